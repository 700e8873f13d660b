"""The ids of XLand-MiniGrid: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "XLand-MiniGrid-R1-11x11": ("rule_world:RuleWorld", {"layout": "R1", "size": 11}),
        "XLand-MiniGrid-R1-13x13": ("rule_world:RuleWorld", {"layout": "R1", "size": 13}),
        "XLand-MiniGrid-R1-15x15": ("rule_world:RuleWorld", {"layout": "R1", "size": 15}),
        "XLand-MiniGrid-R1-17x17": ("rule_world:RuleWorld", {"layout": "R1", "size": 17}),
        "XLand-MiniGrid-R1-9x9": ("rule_world:RuleWorld", {"layout": "R1", "size": 9}),
        "XLand-MiniGrid-R2-11x11": ("rule_world:RuleWorld", {"layout": "R2", "size": 11}),
        "XLand-MiniGrid-R2-13x13": ("rule_world:RuleWorld", {"layout": "R2", "size": 13}),
        "XLand-MiniGrid-R2-15x15": ("rule_world:RuleWorld", {"layout": "R2", "size": 15}),
        "XLand-MiniGrid-R2-17x17": ("rule_world:RuleWorld", {"layout": "R2", "size": 17}),
        "XLand-MiniGrid-R2-9x9": ("rule_world:RuleWorld", {"layout": "R2", "size": 9}),
        "XLand-MiniGrid-R4-11x11": ("rule_world:RuleWorld", {"layout": "R4", "size": 11}),
        "XLand-MiniGrid-R4-13x13": ("rule_world:RuleWorld", {"layout": "R4", "size": 13}),
        "XLand-MiniGrid-R4-15x15": ("rule_world:RuleWorld", {"layout": "R4", "size": 15}),
        "XLand-MiniGrid-R4-17x17": ("rule_world:RuleWorld", {"layout": "R4", "size": 17}),
        "XLand-MiniGrid-R4-9x9": ("rule_world:RuleWorld", {"layout": "R4", "size": 9}),
        "XLand-MiniGrid-R6-13x13": ("rule_world:RuleWorld", {"layout": "R6", "size": 13}),
        "XLand-MiniGrid-R6-17x17": ("rule_world:RuleWorld", {"layout": "R6", "size": 17}),
        "XLand-MiniGrid-R6-19x19": ("rule_world:RuleWorld", {"layout": "R6", "size": 19}),
        "XLand-MiniGrid-R9-16x16": ("rule_world:RuleWorld", {"layout": "R9", "size": 16}),
        "XLand-MiniGrid-R9-19x19": ("rule_world:RuleWorld", {"layout": "R9", "size": 19}),
        "XLand-MiniGrid-R9-25x25": ("rule_world:RuleWorld", {"layout": "R9", "size": 25}),
    },
)
