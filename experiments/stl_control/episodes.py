"""The tasks as environments: rewarded by robustness, or grounded in times as TGPO does.

`reward="robustness"`: at the end the robustness, cut off at +-1; the observation holds how robust each part is so far.

`reward="grounded"`: every episode draws when to be in A and when in B from their windows and observes both. Rewards:
how much nearer the next place comes [m], 1 for being in it at its time, -1 for each step in the pole, 2 for an episode
that satisfies the formula.
"""

import dataclasses

import jax
import jax.numpy as jnp
from tasks import RADIUS, SYSTEMS, A, B, T

from jaxrl.environment import Environment, Transition, pytree
from jaxrl.exact import stl
from jaxrl.spaces import Box


@pytree
class Params:
    max_steps: jax.Array = T


@pytree
class State:
    time: jax.Array
    x: jax.Array  # (d,) the system's state
    watches: tuple  # the monitors' carries
    rho: jax.Array  # (3,) robustness of each part so far
    times: jax.Array  # (2,) int32, when to be in A and in B


def initial_of(watches, x, times):
    pairs = [watch.update(watch.init(), x) for watch in watches]
    return State(jnp.int32(0), x, tuple(p[0] for p in pairs), jnp.stack([p[1] for p in pairs]), times)


@dataclasses.dataclass(frozen=True)
class Episodes(Environment):
    system: str = "point"
    reward: str = "robustness"
    id: str = dataclasses.field(default="STLEpisodes-v0", kw_only=True)
    Params = Params

    @property
    def task(self):
        return SYSTEMS[self.system]

    @property
    def watches(self):
        return tuple(stl.monitor(part) for part in self.task.parts)

    def initial(self, key, params):
        place_key, time_key = jax.random.split(key)
        times = jnp.array([1, T // 2 + 1]) + jax.random.randint(time_key, (2,), 0, T // 2)
        return initial_of(self.watches, self.task.initial(place_key, 1)[0], times)

    def transition(self, key, state, action, params):
        task, time = self.task, state.time + 1
        x = task.step(state.x, jnp.clip(action, -1, 1))
        pairs = [watch.update(carry, x) for watch, carry in zip(self.watches, state.watches, strict=True)]
        rho = jnp.stack([p[1] for p in pairs])
        end = time >= T
        if self.reward == "robustness":
            reward = jnp.where(end, jnp.clip(rho.min(), -1, 1), 0.0)
        else:
            n = task.dimensions
            places = jnp.array([A[:n], B[:n]])
            before = jnp.linalg.norm(state.x[:n] - places, axis=-1)
            after = jnp.linalg.norm(x[:n] - places, axis=-1)
            turn = jnp.array([True, False]) == (state.time < state.times[0])  # of which place
            turn = turn & (state.time < state.times)
            reward = jnp.sum(turn * (before - after)) + jnp.sum((time == state.times) & (after < RADIUS))
            in_pole = task.parts[2].part.part.part.value(x[None])[0] < 0
            reward = reward - in_pole + 2.0 * (end & (rho.min() > 0))
        state = state.replace(x=x, watches=tuple(p[0] for p in pairs), rho=rho)
        return Transition(state, reward, end, jnp.bool_(False), {})

    def observe(self, key, state, params):
        parts = [state.x, (state.time / T)[None], jnp.clip(state.rho, -1, 1)]
        if self.reward == "grounded":
            parts.append((state.times - state.time) / T)
        return jnp.concatenate(parts)

    def observation_space(self, params):
        size = jax.eval_shape(lambda: self.task.initial(jax.random.key(0), 1)).shape[1] + 4
        return Box(-jnp.inf, jnp.inf, (size + 2 * (self.reward == "grounded"),))

    def action_space(self, params):
        return Box(-1, 1, (self.task.actions,))
