"""RestlessBandit-v0: every arm moves at every step, and `budget` of them may be pulled.

Whittle (1988), "Restless bandits: activity allocation in a changing world". Arm m is a Markov chain on `num_states`
states whose transition and reward depend on whether it is pulled; the arms touch each other only through the budget.

| observation | unit | range |
|---|---|---|
| state of each arm, `(num_arms,)` | - | 0 .. num_states-1 |

Action: `(num_arms,)` zeros and ones, 1 pulls the arm. When more than `budget` are ones, the first `budget` of them
(lowest arm number) are pulled and the others rest: `info["infeasible"]` is then true. Reward: the sum over arms of
`reward[arm, pulled, state]`, of the state before it moves. Ends: never; the clock truncates.

`generate` draws arms that are indexable at every discount: pulling restarts an arm from a distribution that does not
depend on its state (Akbarzadeh and Mahajan 2022, "Conditions for indexability of restless bandits and an O(K^3)
algorithm to compute Whittle index"). The index itself is in `jaxrl.exact.whittle`.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Key

from jaxrl.environment import Environment, Transition, pytree, strongly_typed
from jaxrl.spaces import MultiDiscrete


@pytree
class Params:
    transition: jax.Array  # (M, 2, S, S): next-state distribution of each arm, at rest and pulled
    reward: jax.Array  # (M, 2, S): at rest and pulled
    initial: jax.Array  # (M, S): distribution of each arm's first state
    max_steps: jax.Array = 100


@pytree
class State:
    time: jax.Array  # steps since reset
    arms: jax.Array  # (M,) int32, state of each arm


def first_ones(action: Integer[Array, " M"], budget: int) -> Bool[Array, " M"]:
    """The first `budget` ones of a 0/1 vector."""
    pull = action > 0
    return pull & (jnp.cumsum(pull) <= budget)


def categorical(u: Float[Array, "*n"], probability: Float[Array, "*n S"]) -> Integer[Array, "*n"]:
    """The outcome that a uniform number in [0, 1) picks, by inversion: one number an arm."""
    bounds = jnp.cumsum(probability, -1)[..., :-1]  # what rounding leaves of one belongs to the last outcome
    return jnp.sum(u[..., None] >= bounds, -1).astype(jnp.int32)


def dynamics(
    arms: Integer[Array, " M"], pulled: Bool[Array, " M"], u: Float[Array, " M"], params: Params
) -> Integer[Array, " M"]:
    """Every arm's next state, given one uniform number each."""
    which = jnp.arange(arms.shape[0])
    return categorical(u, params.transition[which, pulled.astype(jnp.int32), arms])


def reward(arms: Integer[Array, " M"], pulled: Bool[Array, " M"], params: Params) -> Float[Array, " M"]:
    """What every arm earns in its present state."""
    return params.reward[jnp.arange(arms.shape[0]), pulled.astype(jnp.int32), arms]


def generate(key: Key[Array, ""], params: Params) -> Params:
    """Random indexable arms of the same number and size: rows uniform on the simplex, rewards uniform in [0, 1].

    An arm at rest moves by a random chain; a pull restarts it from one distribution. Pulled or not, the reward is that
    of the state, so an arm is pulled for where it goes.
    """
    num_arms, _, size, _ = params.transition.shape
    u = jax.random.uniform(key, (num_arms, size + 2, size), params.reward.dtype)
    rows = -jnp.log1p(-u[:, :-1])  # exponentials, which divided by their sum are uniform on the simplex
    rows = rows / jnp.sum(rows, -1, keepdims=True)
    restart = jnp.broadcast_to(rows[:, -1:], (num_arms, size, size))
    earned = jnp.broadcast_to(u[:, -1:], (num_arms, 2, size))
    return params.replace(transition=jnp.stack([rows[:, :-1], restart], 1), reward=earned)


@dataclasses.dataclass(frozen=True)
class RestlessBandit(Environment):
    num_arms: int = 10
    num_states: int = 4
    budget: int = 2
    id: str = dataclasses.field(default="RestlessBandit-v0", kw_only=True)
    Params = Params
    static_ranges = {"num_arms": (1, 1000), "num_states": (2, 100), "budget": (1, 1000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget > self.num_arms:
            raise ValueError(f"{self.id}: budget={self.budget} must be at most num_arms={self.num_arms}.")

    @property
    def default_params(self) -> Params:
        """The level `generate` draws from key 0, started in uniformly drawn states."""
        shape = (self.num_arms, 2, self.num_states)
        with jax.ensure_compile_time_eval():
            uniform = jnp.full((self.num_arms, self.num_states), 1 / self.num_states)
            empty = strongly_typed(Params(jnp.zeros((*shape, self.num_states)), jnp.zeros(shape), uniform))
            return jax.jit(generate)(jax.random.key(0), empty)

    def initial(self, key: Array, params: Params) -> State:
        u = jax.random.uniform(key, (self.num_arms,), params.initial.dtype)
        return State(jnp.int32(0), categorical(u, params.initial))

    def transition(self, key: Array, state: State, action: Integer[Array, " M"], params: Params) -> Transition:
        pulled = first_ones(action, self.budget)
        u = jax.random.uniform(key, (self.num_arms,), params.transition.dtype)
        earned = jnp.sum(reward(state.arms, pulled, params))
        info = {"infeasible": jnp.sum(action > 0) > self.budget}
        state = state.replace(arms=dynamics(state.arms, pulled, u, params))
        return Transition(state, earned, jnp.bool_(False), jnp.bool_(False), info)

    def observe(self, key: Array, state: State, params: Params) -> Integer[Array, " M"]:
        return state.arms

    def observation_space(self, params: Params) -> MultiDiscrete:
        return MultiDiscrete((self.num_states,) * self.num_arms)

    def action_space(self, params: Params) -> MultiDiscrete:
        return MultiDiscrete((2,) * self.num_arms)

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """`generate`, as a method, to serve as `level_fn`."""
        return generate(key, params)

    def validate(self, params: Params) -> None:
        M, S = self.num_arms, self.num_states
        for name, shape in (("transition", (M, 2, S, S)), ("reward", (M, 2, S)), ("initial", (M, S))):
            found = np.shape(getattr(params, name))
            if found[-len(shape) :] != shape:
                raise ValueError(f"{self.id}: {name} has shape {found}; {M} arms of {S} states need {shape}.")
        for name in ("transition", "initial"):
            p = np.asarray(getattr(params, name))
            if np.any(p < 0) or np.any(np.abs(p.sum(-1) - 1) > 1e-4):
                raise ValueError(f"{self.id}: {name} has rows that are not distributions (they sum to {p.sum(-1)}).")
