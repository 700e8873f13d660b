"""SPO: self-play preference optimisation. It is `ppo` whose reward is how often an episode wins against its likes.

Swamy et al. (2024), "A minimaximalist approach to reinforcement learning from human feedback" (algorithm 2). Nothing is
said to be good, only that one episode is preferred to another. The policy plays against itself: an episode xi that ends
is compared with the last q episodes that the policy has finished, and its reward is the win rate,

    r(xi) = 1/q sum_j P(xi preferred to xi_j)                                        (`win_rates`)

Where preferences have a winner, whom nothing beats more often than not, self-play finds it, also where they go round
in a cycle and no reward of Bradley and Terry's model could say them (of single decisions exactly:
`jaxrl.exact.preference_games.self_play`).

An episode is told to who compares by its **outcome**, the sum over its steps of `features(obs, action, reward)`, by
default the return, of which the larger is preferred: for sure, or with the chance sigmoid(difference / temperature).
`make(env, prefers=...)` takes any preference of two outcomes, cyclic ones, too.

The win rate is paid in an episode's last step, nothing before, so that without a discount the return is the win rate;
the end of an episode is final whether the task or the clock ended it, since who compares has seen all of it. The true
reward is in no loss; `episode_return` in the log is of it.

Deviations: no code was published with the paper. There the win rate is spread over an episode's steps, each getting
r(xi) / H; here an episode may span rollouts, and its first steps are learned from before it is judged. The q episodes
are the last ones that ended before it, the first ones of all being judged by fewer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl import on_policy
from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, check_at_least_one, shared
from jaxrl.algos.on_policy import ppo
from jaxrl.environment import Environment, pytree
from jaxrl.nn.networks import Network
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.rollout import Ends
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(ppo.Config):
    """Static settings: each value compiles its own program."""

    num_envs: int = 32  # environments stepped together
    num_compared: int = 8  # q, the episodes that one is compared with

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_compared")


@pytree
class Hyper(ppo.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-3
    gamma: jax.Array = 1.0  # discount; below 1 a win is worth the less the later it comes
    gae_lambda: jax.Array = 1.0  # 1: values only as baselines, since an observation does not say who was compared with
    temperature: jax.Array = 0.0  # of the preference, in units of return; 0: the larger return is always preferred


@pytree
class SPOState(ppo.PPOState):
    so_far: Any  # (N, F), the outcome of the steps of each slot's episode until now
    compared: Any  # (q, F), outcomes of the last episodes, the newest last
    num_compared: jax.Array  # how many of these there are yet


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    steps: ppo.Rollout
    outcome: Array  # (T, N, F), of the episode up to and with the step
    ends: Ends


Features = Callable[[Any, Array, Array], Float[Array, "*batch F"]]
"""`(obs, action, reward)` of steps -> what is added up over an episode."""

Prefers = Callable[[Float[Array, "*batch F"], Float[Array, "*batch F"], Any], Float[Array, "*batch"]]
"""`(outcome, other, hyper)` -> the probability that the first is preferred."""


def return_alone(obs: Any, action: Array, reward: Float[Array, "*batch"]) -> Float[Array, "*batch 1"]:
    """The outcome is the return."""
    return reward[..., None]


def larger(outcome: Float[Array, "*batch F"], other: Float[Array, "*batch F"], hyper: Any) -> Float[Array, "*batch"]:
    """The chance with which the larger return is preferred (Bradley and Terry 1952); a half where they are equal."""
    margin = outcome[..., 0] - other[..., 0]
    hard = hyper.temperature <= 0
    return jnp.where(hard, (jnp.sign(margin) + 1) / 2, jax.nn.sigmoid(margin / jnp.where(hard, 1, hyper.temperature)))


def outcomes(
    features: Float[Array, "T N F"], done: Bool[Array, "T N"], so_far: Float[Array, "N F"]
) -> tuple[Float[Array, "N F"], Float[Array, "T N F"]]:
    """`(so_far after the rollout, outcome up to and with each step)`; an episode begins at 0."""

    def add(total: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        total = total + step[0]
        return jnp.where(step[1][:, None], 0, total), total

    return jax.lax.scan(add, so_far, (features, done))


def win_rates(
    outcome: Float[Array, "n F"],
    done: Bool[Array, " n"],
    compared: Float[Array, "q F"],
    num_compared: Array,
    prefers: Callable[[Array, Array], Array],
) -> tuple[Float[Array, " n"], Float[Array, "q F"], Array]:
    """`(win rate of each, compared, num_compared)` of n steps in order, of which those are episodes where `done`.

    Each episode is compared with the q that ended before it, those of `compared` first; 1/2 where there is none. What
    is no episode has the win rate 0.
    """
    q, n = len(compared), len(done)
    rank = jnp.cumsum(done) - 1
    # Finished episodes one after the other, behind the q of before; all else is written over by nothing.
    line = (
        jnp.concatenate([compared, jnp.zeros_like(outcome)])
        .at[jnp.where(done, q + rank, q + n)]
        .set(outcome, mode="drop")
    )
    others = jnp.maximum(rank, 0)[:, None] + jnp.arange(q)  # the newest last
    there = jnp.arange(q) >= q - num_compared - jnp.maximum(rank, 0)[:, None]
    wins = jnp.where(
        there, prefers(jnp.broadcast_to(outcome[:, None], others.shape + outcome.shape[1:]), line[others]), 0
    )
    rate = jnp.where(there.any(1), jnp.sum(wins, 1) / jnp.maximum(jnp.sum(there, 1), 1), 0.5)
    count = jnp.sum(done)
    return jnp.where(done, rate, 0), jax.lax.dynamic_slice_in_dim(line, count, q), jnp.minimum(num_compared + count, q)


@dataclasses.dataclass(frozen=True)
class _SPO:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    slots: ClassVar = ("reward_scaler.returns", "so_far")
    config: Config
    venv: VectorEnv
    ppo: ppo.PPO  # the learner from rewards
    features: Features
    prefers: Prefers

    @property
    def optimizer(self) -> Any:
        return self.ppo.optimizer

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> SPOState:
        begun = self.ppo.begin(Hyper, key, hyper, env_params)
        n, kind = self.config.num_envs, jnp.result_type(float)
        action = jnp.zeros((n, *self.ppo.action_space.shape), self.ppo.action_space.dtype)
        size = jax.eval_shape(self.features, begun["obs"], action, jnp.zeros(n, kind)).shape[-1]
        zeros = jnp.zeros((n, size), kind), jnp.zeros((self.config.num_compared, size), kind)
        return SPOState(**begun, so_far=zeros[0], compared=zeros[1], num_compared=jnp.int32(0))

    def restart(self, state: SPOState, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> SPOState:
        """Starts a new episode in the slots of `mask`, whose outcomes begin at 0."""
        state = self.ppo.restart(state, key, env_params, mask)
        return state.replace(so_far=jnp.where(mask[:, None], 0, state.so_far))

    def collect(self, state: SPOState) -> tuple[SPOState, Rollout]:
        state, steps = self.ppo.collect(state)
        features = self.features(steps.obs, steps.action, steps.reward)
        so_far, outcome = outcomes(features, steps.terminated | steps.truncated, state.so_far)
        return state.replace(so_far=so_far), Rollout(steps, outcome, steps.ends)

    def learn(self, state: SPOState, rollout: Rollout) -> tuple[SPOState, dict[str, Array]]:
        """Win rates of the episodes that ended, in the order in which they did, then PPO with these as rewards."""
        steps = rollout.steps
        done = steps.terminated | steps.truncated

        def prefers(outcome: Array, other: Array) -> Array:
            return self.prefers(outcome, other, state.hyper)

        outcome, ended = on_policy.flattened((rollout.outcome, done))
        rate, compared, num_compared = win_rates(outcome, ended, state.compared, state.num_compared, prefers)
        final = steps._replace(reward=rate.reshape(done.shape), terminated=done, truncated=jnp.zeros_like(done))
        state, metrics = self.ppo.learn(state, final)
        episodes = jnp.sum(done)
        shown = jnp.where(episodes > 0, jnp.sum(rate) / jnp.maximum(episodes, 1), jnp.nan)
        return state.replace(compared=compared, num_compared=num_compared), {**metrics, "win_rate": shown}

    def policy(self, state: SPOState) -> ppo.Policy:
        return self.ppo.policy(state)

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        return self.ppo.act(policy, key, obs, carry, greedy)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    features: Features = return_alone,
    prefers: Prefers = larger,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """SPO on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        features: of steps, `(obs, action, reward) -> (..., F)`, whose sums over an episode are its outcome.
        prefers: `(outcome, other, hyper) -> (...)`, the probability that the first of two outcomes is preferred.

    `on_policy.actor_critic` explains `network` and the errors; `optimizer` replaces `config.optimizer`.
    """
    venv = as_vector_env(env, config.num_envs)
    parts = on_policy.actor_critic("spo", venv, config, network)
    learner = ppo.PPO(config, venv, *parts, optimizer_of(optimizer or config.optimizer, eps=config.adam_eps))
    spo = _SPO(config, venv, learner, features, prefers)
    return algorithm_of("spo", spo, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
