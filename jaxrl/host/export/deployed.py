"""What is deployed of a trained policy: its greedy action as a function of arrays, written to a file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from jaxrl.algorithm import Algorithm
from jaxrl.environment import visible
from jaxrl.host.export.c import to_c
from jaxrl.host.export.onnx import to_onnx
from jaxrl.host.export.stablehlo import to_stablehlo
from jaxrl.spaces import Dict, Space, Tuple

FORMATS = {"c": ".h", "onnx": ".onnx", "stablehlo": ".stablehlo"}


class Deployed(NamedTuple):
    """A function with what exporters ask about it: `to_c(d.function, *d.examples, outputs=d.outputs)`."""

    function: Callable[..., Any]
    examples: tuple[Any, ...]
    outputs: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]] = {}
    """What each number of an array is, by the array's name, where the environment says so."""


def greedy(algo: Algorithm, policy: PyTree, params: Any = None) -> Deployed:
    """What acts after training: `obs -> action`, or with memory `(obs, carry) -> (action, next_carry)`.

    `obs` is one observation (of several agents: of one), without batch axes and without its privileged part; `policy`
    is `algo.policy(state)` of one seed. The examples are an observation of zeros and the carry before an episode. The
    names say what scaled numbers stand for in an environment of these `params`: those that the policy was trained with.

    Raises ValueError without `params` where what numbers stand for depends on them (`env.measures`): the default
    vehicle's units would be wrong for a policy of another one.
    """
    env = algo.venv.env
    if params is None and any(env.measures(env.default_params).values()):
        raise ValueError(
            f"params=None: what the numbers of {env.id} stand for depends on its parameters; pass params= those that "
            "the policy was trained with (of a run: jaxrl.load(folder).env_params), env.default_params if it was those."
        )
    obs = jax.eval_shape(env.reset, jax.random.key(0), env.default_params)[0]
    whole = _zeros(env.observation_space(env.default_params), obs)

    def act(obs: Any, carry: Any = ()) -> Any:
        # Normalisers know the privileged part, no actor uses it.
        obs = {**whole, **obs} if isinstance(obs, dict) else obs
        action, carry = algo.act(policy, jax.random.key(0), obs, carry, greedy=True)
        return (action, carry) if jax.tree.leaves(carry) else action

    seen, carry = visible(whole), algo.initial_carry()
    observed = "obs.obs" if isinstance(seen, dict) else "obs"
    scaled = env.measures(env.default_params if params is None else params)

    def told(what: str, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{name}, {end}" if (end := scaled.get(what, {}).get(name)) else name for name in names)

    names = {observed: told("obs", env.observation_names), "action": told("action", env.action_names)}
    if jax.tree.leaves(carry):
        return Deployed(act, (seen, carry), ("action", "next_carry"), names)
    return Deployed(act, (seen,), ("action",), names)


def _zeros(space: Space, obs: Any) -> Any:
    """One member of `space`. Its dtypes are the observation's: in float64 that of a space is another."""
    if isinstance(space, Dict):
        return {name: _zeros(s, obs[name]) for name, s in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_zeros(s, x) for s, x in zip(space.spaces, obs, strict=True))
    return jnp.zeros(space.shape, obs.dtype)


def export(
    algo: Algorithm, policy: PyTree, path: str | Path, format: str = "c", name: str = "policy", params: Any = None
) -> Path:
    """Write the greedy policy to `path` in one of `FORMATS`; returns the path. `params` are as `greedy` takes them.

    Raises ValueError for an unknown format and for `params` that are missing, ImportError without the packages of ONNX
    or StableHLO, NotImplementedError for a network with a primitive that the format has not.
    """
    if format not in FORMATS:
        raise ValueError(f"format={format!r} is unknown; use one of {', '.join(FORMATS)}.")
    deployed, path = greedy(algo, policy, params), Path(path)
    c = functools.partial(to_c, name=name, names=deployed.names)
    write = {"c": c, "onnx": to_onnx, "stablehlo": to_stablehlo}[format]
    content = write(deployed.function, *deployed.examples, outputs=deployed.outputs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
