"""MuJoCo Playground's environments as jaxrl's. Needs the `playground` package (the extra `playground`)."""

from __future__ import annotations

from typing import Any

from jaxrl.interop.brax import BraxParams, FromBrax, from_brax


def from_playground(name: str, **config_overrides: Any) -> tuple[FromBrax, BraxParams]:
    """`(env, params)` of a Playground environment; see `from_brax`. `params.max_steps` is its `episode_length`.

    `config_overrides` are Playground's own, such as `impl="jax"` where its default needs a GPU. Playground fetches the
    robots of its locomotion and manipulation tasks when one is first loaded. Raises what its registry raises for an
    unknown name.
    """
    from mujoco_playground import registry

    length = config_overrides.get("episode_length", registry.get_default_config(name).episode_length)
    return from_brax(registry.load(name, config_overrides=config_overrides), max_steps=int(length), id=name)
