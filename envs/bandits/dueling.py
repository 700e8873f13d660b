"""DuelingBandit-v0: the player chooses two arms and learns only which of them wins.

Yue, Broder, Kleinberg and Joachims (2012), "The K-armed dueling bandits problem". `params.preference[i, j]` is the
probability that arm i beats arm j, 1 minus that of the opposite, 1/2 on the diagonal. The regret is against the
Condorcet winner, the arm that beats every other one with more than even chance, which `validate` requires to exist; an
arm's loss is the winner's chance against it, less 1/2.

Observation: nothing (`Discrete(1)`). Action: two arms. Reward: 1 if the first wins, else 0; it is **feedback, not the
goal**. `info` has three definitions of the regret of a pair, as in the literature:

| key | loss of the pair |
|---|---|
| `regret` | mean of the two arms' (Zoghi et al. 2014, "Relative upper confidence bound") |
| `strong_regret` | the larger (Yue et al. 2012) |
| `weak_regret` | the smaller (Yue et al. 2012) |

`generate(key, params)` draws the winner at random; it beats each other arm with a chance uniform in [1/2 + `margin`,
1]; the others' chances against each other are uniform in [0, 1], so cycles among them are common.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Key

from jaxrl.environment import Transition, pytree, strongly_typed
from jaxrl.spaces import MultiDiscrete, Space

from .bandit import Bandit, pick


@pytree
class Params:
    preference: jax.Array  # (K, K): probability that the row's arm beats the column's
    margin: jax.Array = 0.05  # above 1/2, by which the winner of a generated problem beats every other arm at least
    max_steps: jax.Array = 1000


@pytree
class State:
    time: jax.Array  # duels fought
    loss: jax.Array  # (K,) the winner's chance against each arm, less 1/2


def condorcet_winner(preference: Float[Array, "K K"]) -> Integer[Array, ""]:
    """The arm that beats all others. Without one it is the arm whose worst duel is best."""
    return jnp.argmax(jnp.min(preference, 1)).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class DuelingBandit(Bandit):
    id: str = dataclasses.field(default="DuelingBandit-v0", kw_only=True)

    Params = Params
    static_ranges = {"arms": (2, 1000)}  # params are K x K

    @property
    def default_params(self) -> Params:
        """A later arm beats an earlier one with chance 1/2 + distance / (2 K): the last arm is the winner."""
        arm = np.arange(self.arms)
        preference = 0.5 + (arm[:, None] - arm) / (2 * self.arms)
        return strongly_typed(Params(jnp.asarray(preference, float)))

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """A problem with a Condorcet winner."""
        K = self.arms
        winner_key, chance_key = jax.random.split(key)
        winner = jax.random.randint(winner_key, (), 0, K)
        chance = jax.random.uniform(chance_key, (K, K), params.preference.dtype)
        row, column = jnp.arange(K)[:, None], jnp.arange(K)
        wins = 0.5 + params.margin + (0.5 - params.margin) * chance
        upper = jnp.where(row == winner, wins, jnp.where(column == winner, 1 - wins, chance))
        preference = jnp.where(row < column, upper, 1 - upper.T)
        return params.replace(preference=jnp.where(row == column, 0.5, preference))

    def initial(self, key: Array, params: Params) -> State:
        # Here and not at every step: it looks at all pairs.
        winner = condorcet_winner(params.preference)
        return State(jnp.int32(0), params.preference[winner] - 0.5)

    def transition(self, key: Array, state: State, action: Integer[Array, "2"], params: Params) -> Transition:
        chance = params.preference[action[0], action[1]]
        reward = (jax.random.uniform(key, dtype=chance.dtype) < chance).astype(chance.dtype)
        first, second = pick(state.loss, action[0]), pick(state.loss, action[1])
        info = {
            "regret": (first + second) / 2,
            "strong_regret": jnp.maximum(first, second),
            "weak_regret": jnp.minimum(first, second),
        }
        return Transition(state, reward, jnp.bool_(False), jnp.bool_(False), info)

    def action_space(self, params: Params) -> Space:
        return MultiDiscrete((self.arms, self.arms))

    def validate(self, params: Params) -> None:
        preference = np.asarray(params.preference)
        if preference.shape[-2:] != (self.arms, self.arms):
            raise ValueError(f"{self.id}: preference has shape {preference.shape}; arms={self.arms} need a square.")
        if not np.all((preference >= 0) & (preference <= 1)):
            raise ValueError(f"{self.id}: preferences are probabilities, not {preference.min()} to {preference.max()}.")
        if not np.allclose(preference + preference.swapaxes(-1, -2), 1, atol=1e-5):
            raise ValueError(f"{self.id}: preference[i, j] + preference[j, i] must be 1 for every pair.")
        beats_all = np.all((preference > 0.5) | np.eye(self.arms, dtype=bool), -1)
        if not np.all(beats_all.any(-1)):
            raise ValueError(f"{self.id}: no arm beats every other one, so the regret is not defined.")
        if not np.all((np.asarray(params.margin) > 0) & (np.asarray(params.margin) <= 0.5)):
            raise ValueError(f"{self.id}: margin={params.margin} must be in (0, 1/2].")
