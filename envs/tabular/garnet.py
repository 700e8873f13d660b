"""Garnet: random MDPs with a given number of states, actions and successors.

Archibald, McKinnon and Thomas (1995), "On the generation of Markov decision processes"; in the form of Bhatnagar,
Sutton, Ghavamzadeh and Lee (2009), "Natural actor-critic algorithms".

Each state and action has `branching` different successors, each set of them equally likely; their probabilities are
the lengths of the pieces when [0, 1] is cut at uniform points. The reward of a state and action is standard normal.
The observation is the state's number; episodes start in state 0 and never end; the time limit is 100 steps.

The table is `params.mdp`: `generate(key, params)` draws another, so a distribution of tasks is a `vmap`.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from jaxrl.environment import require_product
from jaxrl.exact.mdp import MDP, Table, TableParams


@partial(jax.jit, static_argnums=(1, 2, 3))
def garnet(key: Key[Array, ""], num_states: int, num_actions: int, branching: int) -> MDP:
    """One random MDP, K = `branching`."""
    S, A, K = num_states, num_actions, branching
    state_key, cut_key, reward_key = jax.random.split(key, 3)
    # Floyd's sampling without replacement, whose cost is K and not S: the i-th of K draws is among the first
    # S - K + i + 1 states; one that is taken already becomes the last of these.
    chosen: list[Array] = []
    for i, uniform in enumerate(jax.random.uniform(state_key, (K, S, A))):
        last = S - K + i
        pick = jnp.floor(uniform * (last + 1)).astype(jnp.int32)
        taken = jnp.stack([pick == other for other in chosen]).any(0) if chosen else jnp.zeros((S, A), bool)
        chosen.append(jnp.where(taken, last, pick).astype(jnp.int32))
    cuts = jnp.sort(jax.random.uniform(cut_key, (S, A, K - 1)), -1)
    probability = jnp.diff(cuts, axis=-1, prepend=0, append=1)
    reward = jnp.broadcast_to(jax.random.normal(reward_key, (S, A, 1)), (S, A, K))
    return MDP(probability, jnp.stack(chosen, -1), reward, jnp.zeros((S, A, K), bool), jnp.zeros(S).at[0].set(1))


@dataclasses.dataclass(frozen=True)
class Garnet(Table):
    id: str = dataclasses.field(default="Garnet-v0", kw_only=True)
    num_states: int = 20
    num_actions: int = 4
    branching: int = 3
    static_ranges = {"num_states": (1, 10_000), "num_actions": (1, 10_000), "branching": (1, 100)}

    def __post_init__(self) -> None:
        super().__post_init__()
        require_product(self, 10_000_000, "num_states", "num_actions", "branching")
        if self.branching > self.num_states:
            raise ValueError(f"{self.id}: branching={self.branching} must be from 1 to num_states={self.num_states}.")

    @property
    def default_params(self) -> TableParams:
        """The same random table every time."""
        return TableParams(garnet(jax.random.key(0), self.num_states, self.num_actions, self.branching), jnp.int32(100))

    def generate(self, key: Key[Array, ""], params: TableParams) -> TableParams:
        """Another table, with the time limit of `params`."""
        return params.replace(mdp=garnet(key, self.num_states, self.num_actions, self.branching))
