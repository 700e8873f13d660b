"""AdversarialBandit-v0: the rewards of all rounds were fixed before the first, by whatever rule.

Auer, Cesa-Bianchi, Freund and Schapire (2002), "The nonstochastic multiarmed bandit problem": an oblivious adversary.
`params.rewards` is the table of all rewards in [0, 1], a row a round. The observation says nothing (`Discrete(1)`), the
action is an arm, an episode is one problem of `max_steps` rounds.

`info["regret"]` compares with the **best fixed arm in hindsight**, the one whose rewards in the whole episode sum to
most: its reward of this round minus the reward received. In a single round it may be negative; the sum over an episode
is the regret that the theory bounds.

`generate(key, params)` draws the stochastically constrained adversary of Zimmert and Seldin (2021), "Tsallis-INF: an
optimal algorithm for stochastic and adversarial bandits": one arm, drawn at random, is better than all others by `gap`
in every round, but the level jumps between low and high in phases that grow by the factor `growth`, which misleads
players who average over time. Rewards are Bernoulli with means `gap` and 0 in even phases, 1 and 1 - `gap` in odd ones.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Key

from jaxrl.environment import Transition, pytree, require_product, strongly_typed

from .bandit import Bandit


@pytree
class Params:
    rewards: jax.Array  # (rounds, K) in [0, 1]
    gap: jax.Array = 0.125  # of what `generate` draws
    growth: jax.Array = 1.6  # a phase is so many times as long as the one before
    max_steps: jax.Array = 1000


@pytree
class State:
    time: jax.Array  # rounds played
    best: jax.Array  # int32, the best fixed arm of the whole episode


def best_fixed_arm(rewards: Float[Array, "T K"], rounds: Integer[Array, ""]) -> Integer[Array, ""]:
    """The arm whose rewards in the first `rounds` rounds sum to most."""
    counts = jnp.arange(rewards.shape[0])[:, None] < rounds
    return jnp.argmax(jnp.sum(jnp.where(counts, rewards, 0), 0)).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class AdversarialBandit(Bandit):
    """`rounds` is the length of the table, the longest possible episode."""

    rounds: int = 1000
    id: str = dataclasses.field(default="AdversarialBandit-v0", kw_only=True)

    Params = Params
    hints = Bandit.hints._replace(reset="auto")  # a reset sums over the table
    static_ranges = {"rounds": (1, 1_000_000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        require_product(self, 10_000_000, "arms", "rounds")

    @property
    def default_params(self) -> Params:
        """The table in which arm t mod K alone pays 1 in round t, but the last arm pays in every second round too."""
        t, arm = np.arange(self.rounds)[:, None], np.arange(self.arms)
        rewards = (t % self.arms == arm) | ((t % 2 == 1) & (arm == self.arms - 1))
        return strongly_typed(Params(jnp.asarray(rewards, float), max_steps=jnp.int32(self.rounds)))

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """A table of the stochastically constrained adversary."""
        best_key, reward_key = jax.random.split(key)
        best = jax.random.randint(best_key, (), 0, self.arms)
        # Phase n begins in round (growth^n - 1) / (growth - 1).
        t = jnp.arange(self.rounds)[:, None]
        phase = jnp.floor(jnp.log1p((params.growth - 1) * t) / jnp.log(params.growth) + 1e-4)
        mean = jnp.where(phase % 2 == 0, 0, 1 - params.gap) + params.gap * (jnp.arange(self.arms) == best)
        uniform = jax.random.uniform(reward_key, (self.rounds, self.arms), params.rewards.dtype)
        return params.replace(rewards=(uniform < mean).astype(params.rewards.dtype))

    def initial(self, key: Array, params: Params) -> State:
        # Here and not at every step: it sums over the table.
        return State(jnp.int32(0), best_fixed_arm(params.rewards, params.max_steps))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        row = params.rewards[state.time]
        reward = row[action]
        return Transition(state, reward, jnp.bool_(False), jnp.bool_(False), {"regret": row[state.best] - reward})

    def validate(self, params: Params) -> None:
        shape, rewards = np.shape(params.rewards), np.asarray(params.rewards)
        if shape[-2:] != (self.rounds, self.arms):
            raise ValueError(f"{self.id}: rewards have shape {shape}, not (rounds, arms) = {self.rounds, self.arms}.")
        if not np.all((rewards >= 0) & (rewards <= 1)):
            raise ValueError(f"{self.id}: rewards from {rewards.min()} to {rewards.max()}; they must be in [0, 1].")
        if not np.all(np.asarray(params.max_steps) <= self.rounds):
            raise ValueError(f"{self.id}: max_steps={params.max_steps}, but the table ends after rounds={self.rounds}.")
        if not np.all((np.asarray(params.gap) >= 0) & (np.asarray(params.gap) <= 1)):
            raise ValueError(f"{self.id}: gap={params.gap} must be in [0, 1].")
        if not np.all(np.asarray(params.growth) > 1):
            raise ValueError(f"{self.id}: growth={params.growth} must be above 1.")
