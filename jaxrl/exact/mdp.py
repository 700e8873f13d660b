"""Finite Markov decision processes: as data (`MDP`, `DenseMDP`), as environments, and how one becomes the other.

A tabular environment is written once, as local rules `outcomes(state, action, params)`: what can happen, how likely, at
what reward. The base class samples one of them in `step` and `tabulate` lists them all, so that the simulator and the
exact solvers of `solvers.py` cannot disagree. All of it is `vmap`-able over params: thousands of MDPs are one array.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Shaped

from jaxrl.environment import NO_LIMIT, Environment, Transition, pytree, strongly_typed
from jaxrl.math import precise
from jaxrl.spaces import Discrete


class Outcomes(NamedTuple):
    """All that can follow one state and one action; leaves (K,). Unlikely ones may be listed with probability zero."""

    probability: Array  # sums to one
    next_state: Array  # int32; of no meaning where terminated
    reward: Array
    terminated: Array  # bool


def certain(next_state: Any, reward: Any, terminated: Any = False) -> Outcomes:
    """The one outcome of a deterministic step."""
    one = jnp.ones((1,), jnp.result_type(reward, float))
    return Outcomes(
        one,
        jnp.asarray(next_state, jnp.int32).reshape(1),
        jnp.asarray(reward, one.dtype).reshape(1),
        jnp.asarray(terminated, bool).reshape(1),
    )


@pytree
class DenseMDP:
    """A finite MDP as expectations. What the probabilities of a row lack to one is termination."""

    transition: jax.Array  # (S, A, S) probability of going on in each state
    reward: jax.Array  # (S, A) expected reward
    initial: jax.Array  # (S,) probability of starting in each state

    @precise
    def expect(self, value: Float[Array, " S"]) -> Float[Array, "S A"]:
        """The expected `value` of the next state, zero where the episode has ended."""
        return self.transition @ value

    def expected_reward(self) -> Float[Array, "S A"]:
        return self.reward

    def ends(self) -> Bool[Array, ""]:
        """Whether an episode can end, as far as the rows' sums can tell."""
        row = jnp.sum(self.transition, -1)
        return jnp.any(row < 1 - 4 * row.shape[0] * jnp.finfo(row.dtype).eps)

    def dense(self) -> DenseMDP:
        return self


@pytree
class MDP:
    """A finite MDP as lists of outcomes, K for each state and action: exact, and small where K is far below S."""

    probability: jax.Array  # (S, A, K)
    next_state: jax.Array  # (S, A, K) int32
    reward: jax.Array  # (S, A, K)
    terminated: jax.Array  # (S, A, K) bool
    initial: jax.Array  # (S,) probability of starting in each state

    @property
    def num_states(self) -> int:
        return self.probability.shape[-3]

    @property
    def num_actions(self) -> int:
        return self.probability.shape[-2]

    @property
    def continues(self) -> Float[Array, "*batch S A K"]:
        """Probability of each outcome and of the episode going on from it."""
        return jnp.where(self.terminated, 0, self.probability)

    def expect(self, value: Float[Array, " S"]) -> Float[Array, "S A"]:
        """The expected `value` of the next state, zero where the episode has ended."""
        return jnp.sum(self.continues * value[self.next_state], -1)

    def expected_reward(self) -> Float[Array, "S A"]:
        return jnp.sum(self.probability * self.reward, -1)

    def ends(self) -> Bool[Array, ""]:
        """Whether an episode can end."""
        return jnp.any(self.terminated & (self.probability > 0))

    def dense(self) -> DenseMDP:
        """The same MDP with its outcomes added up: (S, A, S) numbers, quick to multiply where S is small."""
        S, A, _ = self.probability.shape
        s, a = jnp.ogrid[:S, :A]
        transition = jnp.zeros((S, A, S), self.probability.dtype)
        transition = transition.at[s[..., None], a[..., None], self.next_state].add(self.continues)
        return DenseMDP(transition, self.expected_reward(), self.initial)


# ---- environments


@pytree
class TabularState:
    time: jax.Array  # steps since reset
    index: jax.Array  # int32, of the state


@dataclasses.dataclass(frozen=True)
class TabularEnvironment(Environment):
    """Base class of environments with S states and A actions; the observation is the state's index.

    An author writes `num_states`, `num_actions` (static fields or properties), `outcomes` and, unless episodes start in
    state 0, `initial_distribution`. A subclass whose K is 1 sets `deterministic = True`.
    """

    num_states: Any = dataclasses.field(default=None, init=False, repr=False)
    num_actions: Any = dataclasses.field(default=None, init=False, repr=False)

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Any) -> Outcomes:
        """All that can happen; pure, of local cost, with the same K everywhere."""
        raise NotImplementedError

    def initial_distribution(self, params: Any) -> Float[Array, " S"]:
        """The probability of starting in each state."""
        return jnp.zeros(self.num_states).at[0].set(1)

    def initial(self, key: Array, params: Any) -> TabularState:
        if type(self).initial_distribution is TabularEnvironment.initial_distribution:
            return TabularState(jnp.int32(0), jnp.int32(0))
        return TabularState(jnp.int32(0), draw(jax.random.uniform(key), self.initial_distribution(params)))

    def transition(self, key: Array, state: TabularState, action: Integer[Array, ""], params: Any) -> Transition:
        all = self.outcomes(state.index, action.astype(jnp.int32), params)
        if all.probability.shape == (1,):
            probability, index, reward, terminated = jax.tree.map(lambda x: x[0], all)
        else:
            chosen = jnp.arange(len(all.probability)) == draw(jax.random.uniform(key), all.probability)
            # A sum over the few outcomes is cheaper than indexing, which becomes a gather under vmap.
            probability, index, reward = (jnp.sum(jnp.where(chosen, x, 0), dtype=x.dtype) for x in all[:3])
            terminated = jnp.any(chosen & all.terminated)
        del probability
        return Transition(state.replace(index=index), reward, terminated, jnp.bool_(False), {})

    def observe(self, key: Array, state: TabularState, params: Any) -> Integer[Array, ""]:
        return state.index

    def observation_space(self, params: Any) -> Discrete:
        return Discrete(self.num_states)

    def action_space(self, params: Any) -> Discrete:
        return Discrete(self.num_actions)


def draw(uniform: Float[Array, ""], probability: Float[Array, " K"]) -> Integer[Array, ""]:
    """The index into `probability` that a number in [0, 1) falls on: inversion of the distribution function."""
    cdf = jnp.cumsum(probability)
    # Rounding may leave the last sum below one: scaled by it, no number falls behind the end.
    below = uniform * cdf[-1] >= cdf
    return jnp.minimum(jnp.sum(below, dtype=jnp.int32), len(probability) - 1)


def tabulate(env: Environment, params: Any) -> MDP:
    """The MDP that `env` samples from; its time limit, `params.max_steps`, is not part of it. jit and vmap it.

    Raises ValueError for an environment that lists no outcomes.
    """
    if not hasattr(env, "outcomes"):
        raise ValueError(
            f"{env.id} lists no outcomes: tabulate needs a TabularEnvironment; explore takes deterministic ones."
        )
    state, action = jnp.arange(env.num_states), jnp.arange(env.num_actions)
    over_actions = jax.vmap(lambda s, a: env.outcomes(s, a, params), (None, 0))
    table = jax.vmap(over_actions, (0, None))(state, action)
    return MDP(*table, initial=env.initial_distribution(params))


@pytree
class TableParams:
    mdp: MDP
    max_steps: jax.Array = NO_LIMIT


@dataclasses.dataclass(frozen=True)
class Table(TabularEnvironment):
    """Any MDP as an environment: the table is `params.mdp`, so a task distribution is a `vmap` (or a `level_fn`)."""

    num_states: int = 2
    num_actions: int = 2
    Params = TableParams

    @property
    def default_params(self) -> TableParams:
        """A ring, as an example: action a goes a states on, and arriving in state 0 pays 1."""
        S, A = self.num_states, self.num_actions
        next_state = ((jnp.arange(S)[:, None] + jnp.arange(A)) % S)[..., None].astype(jnp.int32)
        reward = jnp.where(next_state == 0, 1.0, 0.0)
        initial = jnp.zeros(S).at[0].set(1)
        return strongly_typed(
            TableParams(MDP(jnp.ones((S, A, 1)), next_state, reward, jnp.zeros((S, A, 1), bool), initial))
        )

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: TableParams) -> Outcomes:
        mdp = params.mdp
        return Outcomes(*(x[state, action] for x in (mdp.probability, mdp.next_state, mdp.reward, mdp.terminated)))

    def initial_distribution(self, params: TableParams) -> Float[Array, " S"]:
        return params.mdp.initial

    def validate(self, params: TableParams) -> None:
        mdp = params.mdp
        shape = np.shape(mdp.probability)[-3:-1]
        if shape != (self.num_states, self.num_actions):
            raise ValueError(
                f"{self.id}: a table of {shape} states and actions, not {self.num_states, self.num_actions}."
            )
        for name, p in (("probability", mdp.probability), ("initial", mdp.initial)):
            p = np.asarray(p, np.float64)
            if p.min() < 0 or not np.allclose(p.sum(-1), 1, atol=1e-4):
                raise ValueError(f"{self.id}: each row of {name} must be a distribution.")
        next_state = np.asarray(mdp.next_state)
        if next_state.min() < 0 or next_state.max() >= self.num_states:
            raise ValueError(f"{self.id}: next_state must be in [0, {self.num_states}).")


def as_environment(mdp: MDP, max_steps: int = NO_LIMIT, id: str = "Table") -> tuple[Table, TableParams]:
    """`(env, params)` that samples from `mdp`."""
    return Table(mdp.num_states, mdp.num_actions, id=id), TableParams(mdp, jnp.int32(max_steps))


# ---- MDPs from other things


def sticky(mdp: MDP, probability: float | Float[Array, ""]) -> MDP:
    """`mdp` in which the previous action is repeated with `probability` (Machado et al. 2018), as in sticky Atari.

    State (s, previous action) has index `s * (A + 1) + previous`; previous = A at the start, where nothing can stick.
    """
    S, A, K = mdp.probability.shape
    previous, action = jnp.arange(A + 1)[:, None], jnp.arange(A)[None, :]
    sticks = jnp.where(previous == A, action, previous)  # (A + 1, A): what happens instead
    weight = jnp.asarray(probability, mdp.probability.dtype)

    def both(x: Shaped[Array, "S A K"]) -> tuple[Array, Array]:
        meant = jnp.broadcast_to(x[:, None], (S, A + 1, A, K))
        return meant, x[:, sticks]

    def join(meant: Array, stuck: Array) -> Array:
        return jnp.concatenate([meant, stuck], -1).reshape(S * (A + 1), A, 2 * K)

    meant, stuck = both(mdp.probability)
    next_meant, next_stuck = both(mdp.next_state)
    executed = action[..., None], sticks[..., None]
    return MDP(
        join((1 - weight) * meant, weight * stuck),
        join(next_meant * (A + 1) + executed[0], next_stuck * (A + 1) + executed[1]).astype(jnp.int32),
        join(*both(mdp.reward)),
        join(*both(mdp.terminated)),
        jnp.zeros((S, A + 1), mdp.initial.dtype).at[:, A].set(mdp.initial).reshape(-1),
    )


def explore(
    env: Environment,
    params: Any,
    *,
    key: Array | None = None,
    num_starts: int = 1,
    max_states: int = 100_000,
    clock: bool = False,
) -> tuple[MDP, Any]:
    """`(mdp, states)`: every state that a deterministic environment with Discrete actions can reach, breadth first.

    States that differ in nothing but `time` are one, unless `clock` (for dynamics that read it, whose episodes must end
    by themselves); the time limit is no part of the table. `states` is the environment's state with a leading axis S.
    Host only.

    Args:
        num_starts: episodes whose distinct first states make `initial`, by their frequency; 1 if there is one start.

    Raises ValueError for a stochastic environment, actions that are not Discrete, more than `max_states` states, or
    dynamics that read the clock without `clock`.
    """
    space = env.action_space(params)
    if not env.hints.deterministic or not isinstance(space, Discrete):
        raise ValueError(
            f"{env.id}: explore needs a deterministic environment with Discrete actions; tabulate takes "
            "stochastic ones that list their outcomes."
        )
    key = jax.random.key(0) if key is None else key
    actions = jnp.arange(space.n)
    chunk = 256  # one shape for every frontier, so one compilation

    @jax.jit
    def successors(states):
        step = jax.vmap(jax.vmap(env.step, (None, None, 0, None)), (None, 0, None, None))
        ts = step(key, states, actions, params)
        return ts.state, ts.reward, ts.terminated

    def rows(states: Any) -> list[bytes]:
        """One name for each state: its bytes, without the clock unless that counts."""
        states = jax.device_get(states if clock else states.replace(time=jnp.zeros_like(states.time)))
        leaves = [np.ascontiguousarray(x).reshape(len(x), -1) for x in jax.tree.leaves(states)]
        return [b"".join(leaf[i].tobytes() for leaf in leaves) for i in range(len(leaves[0]))]

    _, starts = jax.vmap(env.reset, (0, None))(jax.random.split(key, num_starts), params)
    index: dict[bytes, int] = {}
    found: list[Any] = []  # states as pytrees of numpy arrays, in order of their index

    def name(states: Any, wanted: np.ndarray) -> np.ndarray:
        """Indices of states, new ones appended where `wanted`; 0 elsewhere."""
        names, host = rows(states), jax.device_get(states)
        out = np.zeros(len(names), np.int32)
        for i in np.flatnonzero(wanted):
            if names[i] not in index:
                index[names[i]] = len(found)
                found.append(jax.tree.map(lambda x, i=i: x[i], host))
            out[i] = index[names[i]]
        if len(found) > max_states:
            raise ValueError(f"{env.id} has more than max_states={max_states} states within reach.")
        return out

    first = name(starts, np.ones(num_starts, bool))
    next_state, reward, terminated = [], [], []
    done = 0
    while done < len(found):
        batch = found[done : done + chunk]
        padded = jax.tree.map(lambda *x: jnp.stack(x), *(batch + batch[-1:] * (chunk - len(batch))))
        states, r, end = jax.device_get(successors(padded))
        n = len(batch)
        # The same states, met later, must go on alike: the first ones at each of 128 times, then a spot check.
        for shift in range(0 if clock else 1 if done else 128):
            later, *outcome = jax.device_get(successors(padded.replace(time=padded.time + shift + 1)))
            flat = (jax.tree.map(lambda x: x.reshape(chunk * space.n, *x.shape[2:]), s) for s in (states, later))
            if not (np.array_equal(outcome, (r, end)) and operator.eq(*map(rows, flat))):
                raise ValueError(f"{env.id}: its dynamics read the clock; give explore clock=True.")
        flat = jax.tree.map(lambda x, n=n: x[:n].reshape(n * space.n, *x.shape[2:]), states)
        next_state.append(name(flat, ~end[:n].reshape(-1)).reshape(n, space.n))
        reward.append(r[:n])
        terminated.append(end[:n])
        done += n
    S = len(found)
    table = [np.concatenate(x)[..., None] for x in (next_state, reward, terminated)]
    initial = np.bincount(first, minlength=S) / num_starts
    mdp = MDP(jnp.ones((S, space.n, 1)), *map(jnp.asarray, table), initial=jnp.asarray(initial, jnp.result_type(float)))
    return mdp, jax.tree.map(lambda *x: jnp.stack(x), *found)
