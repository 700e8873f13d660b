"""Between jaxrl and Envelope: `from_envelope`, or `make("envelope:gymnax::CartPole-v1")`; and `to_envelope`, or
`envelope.create("jaxrl::CartPole-v1")`.

Needs the `jax-envelope` package (the extra `envelope`), and the library of the suite that stands before `::`.
Lost on the way in: params (they are in the object) and `info`. What `to_envelope` loses stands there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.environment import NO_LIMIT, Environment, Transition, strongly_typed
from jaxrl.interop import suites
from jaxrl.interop.foreign import (
    Adapted,
    Held,
    TheirParams,
    TheirState,
    kept,
    named,
    one_agent,
    one_layer,
    refuse_training,
    with_key,
)
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple

# ---- out


def to_envelope(env: Environment, params: Any = None) -> Any:
    """`env` as an `envelope.Environment`, to be given to Envelope's wrappers. It does not reset by itself.

    Our params are leaves of the object, so that `VmapEnvsWrapper` takes a batch of them. `terminated` and `truncated`
    are ours, so both where the time limit is reached in the step that ends the task. The limit stays in
    `params.max_steps`, which a reward may depend on, and is `default_max_steps`, too; a longer one is another `params`.
    `info.backend` is our `info`, zeros at `init`. Lost: of a box its `scale`; booleans are observed as integers, for
    Envelope has no space of them. Raises ValueError where Envelope is not installed, for several agents and for a space
    that Envelope has not.
    """
    suites.require_suite(suites.SUITES["envelope"], "to_envelope")
    one_agent(env, "to_envelope")
    from jaxrl.interop.envelope_out import outward

    return outward(env, params)


# ---- in


@dataclasses.dataclass(frozen=True)
class FromEnvelope(Adapted):
    """Made by `from_envelope`."""

    limit: Held = Held(NO_LIMIT)  # of steps, no setting but the default of `params.max_steps`

    @property
    def default_params(self) -> TheirParams:
        return strongly_typed(TheirParams(max_steps=self.limit.thing))

    def initial(self, key: Array, params: TheirParams) -> TheirState:
        state, info = self.env.init(key)
        return strongly_typed(TheirState(jnp.int32(0), state, named(info.obs)))

    def transition(self, key: Array, state: TheirState, action: Any, params: TheirParams) -> Transition:
        env, info = self.env.step(with_key(state.env, key), action)
        env, obs = kept((env, named(info.obs)), (state.env, state.obs))
        reward = jnp.asarray(info.reward, jnp.result_type(float))
        ended = jnp.asarray(info.terminated, bool), jnp.asarray(info.truncated, bool)
        return Transition(state.replace(env=env, obs=obs), reward, *ended, {})

    def observation_space(self, params: TheirParams) -> Space:
        with jax.ensure_compile_time_eval():  # Envelope makes its spaces when it is asked
            return _space(self.env.observation_space, of_action=False)

    def action_space(self, params: TheirParams) -> Space:
        with jax.ensure_compile_time_eval():
            return _space(self.env.action_space, of_action=True)


def _space(space: Any, of_action: bool) -> Space:
    """A space of Envelope, or a tree of them, as jaxrl's. Integers that are seen are boxes."""
    kind = type(space).__name__
    if kind == "PyTreeSpace":
        return _space(space.tree, of_action)
    if kind == "Continuous":
        dtype = jax.dtypes.canonicalize_dtype(space.dtype)
        return Box(np.asarray(space.low), np.asarray(space.high), tuple(space.shape), dtype)
    if kind == "Discrete":
        n = np.asarray(space.n)
        if of_action and n.ndim < 2:
            return Discrete(int(n)) if n.ndim == 0 else MultiDiscrete(tuple(n.tolist()))
        if not of_action:
            return Box(0, n - 1, n.shape, jax.dtypes.canonicalize_dtype(n.dtype))
    if isinstance(layer := one_layer(space), dict):
        return Dict({name: _space(s, of_action) for name, s in layer.items()})
    if isinstance(layer, tuple):
        return Tuple(tuple(_space(s, of_action) for s in layer))
    raise ValueError(f"from_envelope: {space!r:.60} is not a space it knows (Continuous, Discrete, PyTreeSpace).")


def from_envelope(env: Any, max_steps: int | None = None, id: str | None = None) -> tuple[FromEnvelope, TheirParams]:
    """`(env, params)` of what `envelope.create` returns.

    `max_steps` is the time limit; None for that of the library under it. Give `create` `max_episode_steps=None`, so
    that a longer one is possible. Raises ValueError for Envelope's wrappers of batches and resets, TypeError for what
    is no such environment.
    """
    if lacking := [name for name in ("init", "step", "default_max_steps") if not hasattr(env, name)]:
        raise TypeError(f"from_envelope: {env!r:.60} is no environment of Envelope: it has no {', no '.join(lacking)}.")
    refuse_training(env, "from_envelope")
    limit = (env.default_max_steps or NO_LIMIT) if max_steps is None else max_steps
    adapted = FromEnvelope(Held(env), limit=Held(int(limit)), id=id or type(env.unwrapped).__name__)
    return adapted, adapted.default_params


def names() -> list[str]:
    """`suite::name` of all suites whose library is installed, but of ours."""
    import envelope

    suites = set(envelope.registered_suites()) - {"jaxrl"}
    return sorted(name for suite in suites for name in envelope.registered_environments(suite))


def lacking(name: str) -> str | None:
    """Why Envelope has no name of a suite of its own: its library is not there. None for all other names."""
    import envelope

    suite, two, _ = name.partition("::")
    if not two or suite == "jaxrl" or suite not in envelope.registered_suites():
        return None
    if envelope.registered_environments(suite):
        return None
    return f"Envelope finds no environments of {suite}: its library is not installed, or cannot be imported."


def by_name(name: str) -> tuple[FromEnvelope, TheirParams]:
    """`(env, params)` of one of `names()`."""
    import envelope

    return from_envelope(envelope.create(name, max_episode_steps=None), id=name)
