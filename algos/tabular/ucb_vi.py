"""UCB-VI: optimistic value iteration with bonuses, for finite horizons.

Azar, Osband and Munos (2017), "Minimax regret bounds for reinforcement learning", algorithms 1 and 2. Before each
episode of H steps, from the counts N of all steps so far, backwards over h with V(H + 1) = 0,

    Q_h(s, a) = min(previous Q_h(s, a), H, R(s, a) + sum_s' P(s' | s, a) V_{h+1}(s') + b_h(s, a)),  H where N(s, a) = 0,

and V_h = max_a Q_h; the agent acts greedily. With L = log(5 S A T / delta) for T steps in all, b is

- `hoeffding` (their algorithm 3): 7 H L / sqrt(N(s, a));
- `bernstein` (algorithm 4): sqrt(8 L Var(V_{h+1}) / N) + 14 H L / (3 N)
  + sqrt(8 / N sum_s' P(s' | s, a) min(100^2 H^3 S^2 A L^2 / N_{h+1}(s'), H^2)),

the variance under P(. | s, a), N_{h+1}(s') the visits of s' at step h + 1. Rewards lie in [0, 1] after division by
`reward_scale`. `bonus_scale` multiplies b: with 1, as in the theorem, H is reached only after very many episodes.

Deviations: the empirical mean of rewards replaces the known reward; episodes may terminate (the value is 0 then);
longer ones are planned again every H steps. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.algorithm import Algorithm, shared
from jaxrl.environment import Environment, pytree
from jaxrl.exact.mdp import DenseMDP
from jaxrl.exact.solvers import bellman
from jaxrl.online import Experience, Rule, discrete_sizes, planning_horizon, random_argmax
from jaxrl.online import make as make_online
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # always 1, as the learner follows one episode; for many runs, vmap over keys
    horizon: int | None = None  # H, steps that it plans for; None: the environment's time limit
    bonus: Literal["hoeffding", "bernstein"] = "hoeffding"  # or "bernstein"

    def __post_init__(self) -> None:
        if self.num_envs != 1:
            raise ValueError(f"num_envs={self.num_envs}: it follows one episode; vmap over keys for many runs.")
        if self.horizon is not None and self.horizon < 1:
            raise ValueError(f"horizon={self.horizon}: it must be at least 1.")
        if self.bonus not in ("hoeffding", "bernstein"):
            raise ValueError(f"bonus={self.bonus!r}: choose hoeffding or bernstein.")


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    bonus_scale: jax.Array = 0.002  # factor of b; 1 in the theorem
    delta: jax.Array = 0.1  # probability with which the bound may fail
    total_steps: jax.Array = 100_000.0  # T
    reward_scale: jax.Array = 1.0  # the largest reward


@pytree
class Weights:
    q: jax.Array  # (H, S, A) optimistic values
    count: jax.Array  # (S, A, S + 1) steps from each pair to each state; to S: terminated
    reward: jax.Array  # (S, A) mean reward of each pair, scaled
    visits: jax.Array  # (H + 1, S) visits of each state at each step of an episode
    time: jax.Array  # int32, step of the episode


def hoeffding(n: Float[Array, "S A"], L: Float[Array, ""], horizon: int) -> Float[Array, "S A"]:
    """The bonus of algorithm 3."""
    return 7 * horizon * L / jnp.sqrt(n)


def bernstein(
    n: Float[Array, "S A"],
    transition: Float[Array, "S A S"],
    value: Float[Array, " S"],
    visits: Float[Array, " S"],
    L: Float[Array, ""],
    horizon: int,
) -> Float[Array, "S A"]:
    """The bonus of algorithm 4; `value` and `visits` are those of the next step."""
    S, A = n.shape
    mean = transition @ value
    # Transition probabilities sum to less than one where the episode may terminate, with value 0.
    variance = jnp.maximum(transition @ value**2 - mean**2, 0)
    # In units of H, because 100^2 H^3 S^2 L^2 leaves float32's precision for nothing.
    unsure = jnp.minimum(100.0**2 * horizon * S**2 * A * L**2 / jnp.maximum(visits, 1e-9), 1)
    return (
        jnp.sqrt(8 * L * variance / n) + 14 * horizon * L / (3 * n) + horizon * jnp.sqrt(8 * (transition @ unsure) / n)
    )


def plan(weights: Weights, hyper: Hyper, config: Config, needed: Array) -> Float[Array, "H S A"]:
    """The optimistic values of the next episode where `needed`, else the current ones."""
    H, S, A = weights.q.shape
    tried = jnp.sum(weights.count, -1)
    n = jnp.maximum(tried, 1)
    mdp = DenseMDP(weights.count[..., :S] / n[..., None], weights.reward, jnp.zeros(S))
    L = jnp.log(5 * S * A * hyper.total_steps / hyper.delta)

    def stage(i, carry):
        q, value = carry
        h = H - 1 - i
        if config.bonus == "hoeffding":
            bonus = hoeffding(n, L, H)
        else:
            bonus = bernstein(n, mdp.transition, value, weights.visits[h + 1], L, H)
        optimistic = jnp.minimum(bellman(mdp, value, 1.0) + hyper.bonus_scale * bonus, H)
        new = jnp.minimum(q[h], jnp.where(tried > 0, optimistic, H))
        return q.at[h].set(new), jnp.max(new, -1)

    # A loop of no turns where nothing is needed: under vmap it ends when no run needs it, unlike a cond.
    q, _ = jax.lax.fori_loop(0, jnp.where(needed, H, 0), stage, (weights.q, jnp.zeros(S, weights.q.dtype)))
    return q


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """UCB-VI on `env`. Equal arguments give the same functions, so they share one jit cache.

    Raises ValueError unless observations and actions are Discrete, or without a horizon.
    """
    S, A = discrete_sizes("ucb_vi", env)
    H = planning_horizon("ucb_vi", env, config.horizon)
    config = dataclasses.replace(config, horizon=H)

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        zeros = jnp.zeros((S, A))
        return Weights(
            jnp.full((H, S, A), H, zeros.dtype), jnp.zeros((S, A, S + 1)), zeros, jnp.zeros((H + 1, S)), jnp.int32(0)
        )

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Array, greedy: bool) -> Integer[Array, ""]:
        q = weights.q[weights.time, obs]
        return jnp.argmax(q).astype(jnp.int32) if greedy else random_argmax(q, key)

    def learn(weights: Weights, hyper: Hyper, key: Array, x: Experience) -> tuple[Weights, Array]:
        at, done = (x.obs, x.action), x.terminated | x.truncated | (weights.time + 1 >= H)
        count = weights.count.at[(*at, jnp.where(x.terminated, S, x.next_obs))].add(1)
        error = x.reward / hyper.reward_scale - weights.reward[at]
        weights = weights.replace(
            count=count,
            reward=weights.reward.at[at].add(error / jnp.sum(count[at])),
            visits=weights.visits.at[weights.time, x.obs].add(1),
            time=jnp.where(done, 0, weights.time + 1),
        )
        return weights.replace(q=plan(weights, hyper, config, done)), error**2

    def at(weights: Weights, t: Array) -> Weights:
        return weights.replace(time=t % H)

    return make_online(
        "ucb_vi", Rule(init, act, learn, at, lambda weights: at(weights, jnp.int32(0))), config, Hyper, env
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
