"""The ids of navigation: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(__package__, {"JaxNav-v0": ("jaxnav:JaxNav", {})})
