"""Write `minatar.npz`: what package `minatar` 1.0.15 does, draw for draw, for tests that run without it.

    python tests/golden/make_minatar.py

For each game and each group of runs, `default` and `varied` (other constants of the games, as `Params` name them),
arrays with keys `<game>/<group>/<name>`, time-major (T, R):
- `action`: among all six; in half of the runs random, in the others of a player that looks ahead, so that rare things
  happen (six divers set ashore, new brick walls and waves, a hard game);
- the draws of the step: `sticky` and what the game draws (fields of its `Draws`; 0 where the step drew nothing);
- `reward`, `terminal`;
- `checksum`: low 16 bits of a CRC-32 of the observation's bytes, which goes on from the one before (per run, from the
  first observation on, that of a restart included): one difference spoils all that follow;
- `start_*` (T + 1, R): the draws of the restart before each step, those that were used;
- `params/<name>` (R,): the constants, where they are not the default.
The package keeps the last action through a reset; here it is set to 0, as it is for the first episode.
"""

from __future__ import annotations

import copy
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from minatar import Environment

STEPS = 500
SEED = 20261121


class Recorder:
    """A random source that logs what it returns."""

    def __init__(self, seed: int) -> None:
        self.source, self.log = np.random.RandomState(seed), []

    def __getattr__(self, name: str) -> Any:
        def call(*args, **kwargs):
            self.log.append(getattr(self.source, name)(*args, **kwargs))
            return copy.copy(self.log[-1])  # Freeway changes its speeds in place

        return call

    def taken(self) -> list:
        log, self.log = self.log, []
        return log


class Spec(NamedTuple):
    """One game: constants of the varied runs, and what a step (and a restart) draw, with the dtype in the file."""

    varied: tuple[dict[str, Any], ...]
    draws: dict[str, tuple]
    start: dict[str, tuple] = {}


FLAG, BYTE, SPEEDS = ((), bool), ((), np.uint8), ((8,), np.int8)
SPECS = {
    "asterix": Spec(
        ({"ramping": False}, {"ramp_interval": 8}, {"init_spawn_speed": 2, "init_move_interval": 3}),
        {"right": FLAG, "gold": FLAG, "slot": BYTE},
    ),
    "breakout": Spec(({"sticky_action_prob": 0.0}, {"sticky_action_prob": 0.5}), {}, {"from_right": FLAG}),
    "freeway": Spec(({"player_speed": 1, "time_limit": 150},), {"speeds": SPEEDS}, {"speeds": SPEEDS}),
    "seaquest": Spec(
        (
            {"init_spawn_speed": 1, "init_move_interval": 3, "max_oxygen": 120, "diver_spawn_speed": 6},
            {"ramping": False, "init_spawn_speed": 2, "shot_cool_down": 1, "enemy_shot_interval": 2},
            {"diver_spawn_speed": 7, "diver_move_interval": 3, "shot_cool_down": 3, "max_oxygen": 30},
        ),
        {"enemy_right": FLAG, "enemy_is_sub": FLAG, "enemy_y": BYTE, "diver_right": FLAG, "diver_y": BYTE},
    ),
    "space_invaders": Spec(
        (
            {"ramping": False, "shot_cool_down": 1},
            {"shot_cool_down": 2, "enemy_move_interval": 8, "enemy_shot_interval": 3},
        ),
        {},
    ),
}


def step_draws(game: str, before: Any, log: list) -> dict[str, Any]:
    """What a step drew after the sticky one, in our terms; `before` is the game before the step."""
    if game == "asterix" and log:
        free = [i for i, entity in enumerate(before.entities) if entity is None]
        slot = free[log[2]] if free else 8
        return {"right": log[0] < 1 / 2, "gold": log[1] < 1 / 3, "slot": slot}
    if game == "freeway" and log:
        return {"speeds": log[0] * np.sign(log[1] - 0.5)}
    if game == "seaquest":
        drawn = {}
        if before.e_spawn_timer == 0:
            drawn = {"enemy_right": log[0] < 1 / 2, "enemy_is_sub": log[1] < 1 / 3, "enemy_y": log[2]}
        if before.d_spawn_timer == 0:
            drawn |= {"diver_right": log[-2] < 1 / 2, "diver_y": log[-1]}
        return drawn
    return {}


def start_draws(game: str, log: list) -> dict[str, Any]:
    if game == "breakout":
        return {"from_right": log[0] == 1}
    return {"speeds": log[0] * np.sign(log[1] - 0.5)} if game == "freeway" else {}


# ---- a player that looks ahead


def clone(game: Any, rng: np.random.RandomState) -> Any:
    other = copy.copy(game)
    for name, value in vars(game).items():
        if isinstance(value, list | np.ndarray) and name != "action_map":
            setattr(other, name, copy.deepcopy(value))
    other.random = rng
    return other


def towards(x: int, y: int, goal_x: int, goal_y: int) -> int:
    if y != goal_y:
        return 4 if goal_y > y else 2
    return 0 if x == goal_x else 3 if goal_x > x else 1


def wish(name: str, game: Any) -> int:
    """What to do if nothing were in the way."""
    if name == "freeway":
        return 2
    if name == "breakout":
        return towards(game.pos, 0, game.ball_x, 0)
    if name == "space_invaders":
        return 5 if game.shot_timer == 0 else towards(game.pos, 0, int(np.argmax(game.alien_map.sum(0))), 0)
    if name == "asterix":
        x, y = game.player_x, game.player_y
        gold = [e for e in game.entities if e is not None and e[3]]
        return towards(x, y, *min(gold, key=lambda e: abs(e[0] - x) + abs(e[1] - y))[:2]) if gold else 0
    x, y = game.sub_x, game.sub_y
    ahead = [e for e in game.e_fish + game.e_subs if e[1] == y and (e[0] > x) == game.sub_or]
    if game.diver_count == 6 or game.oxygen < 15:
        return 2
    if ahead and game.shot_timer == 0:
        return 5
    if y == 0:
        return 4
    return towards(x, y, *min(game.divers, key=lambda d: abs(d[0] - x) + abs(d[1] - y))[:2]) if game.divers else 0


def play(name: str, game: Any, rng: np.random.RandomState) -> int:
    """The action whose rollouts end well; the wish where it is as good."""
    wished, values = wish(name, game), []
    for action in range(6):
        value = 0.05 * (action == wished)
        for _ in range(3):
            ahead = clone(game, rng)
            for step in range(7):
                a = action if step == 0 else rng.randint(6) if rng.rand() < 0.25 else wish(name, ahead)
                reward, terminal = ahead.act(a)
                value += reward / 3 - 4 * terminal
                if terminal:
                    break
        values.append(value)
    return int(np.argmax(values))


# ---- runs


def run(name: str, seed: int, overrides: dict[str, Any], skilled: bool) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """One run of `STEPS` steps, and counts of what happened in it."""
    spec = SPECS[name]
    constants = {k: v for k, v in overrides.items() if k not in ("ramping", "sticky_action_prob")}
    env = Environment(name, overrides.get("sticky_action_prob", 0.1), overrides.get("ramping", True))
    module = __import__(f"minatar.environments.{name}", fromlist=["Env"])
    original = {k: getattr(module, k) for k in constants}
    for k, v in constants.items():
        setattr(module, k, v)
    recorder, rng = Recorder(seed), np.random.RandomState(seed + 1)
    env.random = env.env.random = recorder
    columns = {"action": BYTE, "sticky": FLAG, **spec.draws, "reward": BYTE, "terminal": FLAG}
    columns["checksum"] = ((), np.uint16)
    data = {k: np.zeros((STEPS, *shape), dtype) for k, (shape, dtype) in columns.items()}
    data |= {f"start_{k}": np.zeros((STEPS + 1, *shape), dtype) for k, (shape, dtype) in spec.start.items()}
    crc, counts = 0, {}

    def restart(t: int) -> int:
        env.reset()
        env.last_action = 0
        for k, v in start_draws(name, recorder.taken()).items():
            data[f"start_{k}"][t] = v
        return zlib.crc32(env.state().tobytes(), crc)

    recorder.taken()
    crc = restart(0)
    for t in range(STEPS):
        action = play(name, env.env, rng) if skilled else rng.randint(6)
        before = clone(env.env, rng)
        reward, terminal = env.act(action)
        sticky, *log = recorder.taken()
        drawn = step_draws(name, before, log)
        crc = zlib.crc32(env.state().tobytes(), crc)
        row = {"action": action, "sticky": sticky < env.sticky_action_prob, "reward": reward, "terminal": terminal}
        for k, v in {**row, **drawn, "checksum": crc & 0xFFFF}.items():
            data[k][t] = v
        events = {"episodes": terminal, "return": int(reward), **happened(name, before, env.env, reward)}
        counts = {k: counts.get(k, 0) + v for k, v in events.items()}
        if terminal:
            crc = restart(t + 1)
    for k, v in original.items():
        setattr(module, k, v)
    return data, counts


def happened(name: str, before: Any, after: Any, reward: float) -> dict[str, int]:
    """Rare things, to show that the runs hold them."""
    events = {"harder": int((after.difficulty_ramp() or 0) > (before.difficulty_ramp() or 0))}
    if name == "breakout":
        events["walls"] = int(after.brick_map.sum() > before.brick_map.sum())
    if name == "space_invaders":
        events["waves"] = int(after.alien_map.sum() > before.alien_map.sum())
        events["double kills"] = int(reward > 1)
    if name == "seaquest":
        events["surfaced"] = int(after.oxygen > before.oxygen)
        events["six ashore"] = int(after.oxygen > before.oxygen and before.diver_count == 6)
        events["surfaced below zero"] = int(after.oxygen > before.oxygen and before.diver_count < 0)
        events["suffocated"] = int(before.oxygen <= 0)
        enemies = [tuple(e[:2]) for e in after.e_fish + after.e_subs]
        events["crowded cells"] = int(len(set(enemies)) < len(enemies))
        events["over 16 enemies"] = int(len(enemies) > 16)
    return events


def main() -> None:
    arrays: dict[str, np.ndarray] = {"minatar": np.array(version("minatar")), "seed": np.array(SEED)}
    for number, (name, spec) in enumerate(SPECS.items()):
        defaults = [({}, skilled) for skilled in (False, True) for _ in range(12)]
        varied = [(overrides, skilled) for overrides in spec.varied for skilled in (False, True) for _ in range(2)]
        for group, runs in (("default", defaults), ("varied", varied)):
            total: dict[str, int] = {}
            results = []
            for i, (overrides, skilled) in enumerate(runs):
                data, counts = run(name, SEED + 1000 * number + 10 * i + 500 * (group == "varied"), overrides, skilled)
                results.append(data)
                total = {k: total.get(k, 0) + v for k, v in counts.items()}
            print(name, group, f"{len(runs)} runs", total, flush=True)
            for k in results[0]:
                arrays[f"{name}/{group}/{k}"] = np.stack([r[k] for r in results], 1)
            for k in dict.fromkeys(k for overrides, _ in runs for k in overrides):
                module = __import__(f"minatar.environments.{name}", fromlist=["Env"])
                default = {"ramping": True, "sticky_action_prob": 0.1}.get(k, getattr(module, k, None))
                arrays[f"{name}/{group}/params/{k}"] = np.array([overrides.get(k, default) for overrides, _ in runs])
    path = Path(__file__).with_name("minatar.npz")
    np.savez_compressed(path, **arrays)
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
