"""Twin delayed deep deterministic policy gradient (TD3).

Fujimoto, van Hoof and Meger (2018), "Addressing function approximation error in actor-critic methods". Two critics
regress on one target, of the smaller value at a smoothed action of the target actor,

    y = r + gamma (1 - terminated) min_k Q'_k(s', clip(mu'(s') + clip(e, -c, c), -1, 1)),   e ~ N(0, sigma)

and every `policy_delay`-th gradient step the actor ascends Q_1(s, mu(s)) and the targets follow.

Optionally the critics are optimistic, as in Liu et al. (2023), "Maximize to explore" (MEX): their loss is less by
`optimism` times the mean of sum_k Q_k(s, a) over the batch or, with `Config.baseline`, of sum_k A_k with
A_k = Q_k(s, mu(s)) - log sum_a' exp Q_k(s, a') over a' in {a, mu(s'), a uniform one}, as in the authors' released code
(there the second sum takes Q_1 at the batch's action, here Q_2).

Deviations from the authors' code: actions are in units of the box; orthogonal initialisation with a small last layer of
the actor; several environments may step together; a replay ratio other than one step each may be set. Results:
`docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, shared, spaces_of, starting_values
from jaxrl.environment import Environment, pytree, visible
from jaxrl.nn.networks import MLP, encode
from jaxrl.nn.optim import Optimizer, OptimizerLike, optimizer_of, polyak
from jaxrl.replay import off_policy
from jaxrl.replay.off_policy import Critic, Rollout, Transition, critics, flatten, init_critics
from jaxrl.replay.ring import Replay, uniform
from jaxrl.spaces import Box, Space
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments stepped together
    num_steps: int = 1  # steps of each between updates
    num_updates: int = 1  # gradient steps an update, at most: see Hyper.replay_ratio
    batch_size: int = 256
    buffer_size: int = 100_000  # transitions kept
    policy_delay: int = 2  # gradient steps of the critics for one of the actor
    hidden: tuple[int, ...] = (256, 256)  # widths of actor and critics
    activation: str = "relu"
    layer_norm: bool = False  # in the critics
    baseline: bool = False  # optimism about the actor's action against others, not about the batch's
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        off_policy.check_config(self)
        if self.policy_delay < 1:
            raise ValueError(f"policy_delay={self.policy_delay}: it must be at least 1.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of actor and critics
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target networks move to the others, each time the actor learns
    exploration_noise: jax.Array = 0.1  # standard deviation, in units of the box
    policy_noise: jax.Array = 0.2  # standard deviation of the smoothing of the target action
    noise_clip: jax.Array = 0.5  # largest smoothing
    optimism: jax.Array = 0.0  # eta of MEX; 0: plain TD3
    learning_starts: jax.Array = 1000  # environment steps of random actions before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # gradient steps an environment step; infinite: always num_updates an update
    max_grad_norm: jax.Array = 1e6  # of actor and of critics, each; no gradient here is that large


class Actor(nn.Module):
    """The default policy: actions (..., A) in units of the box."""

    observation_space: Space
    num_outputs: int
    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, obs: Any) -> Float[Array, "... A"]:
        x = encode(self.observation_space, obs, privileged=False)
        return jnp.tanh(MLP(self.hidden, self.num_outputs, self.activation, out_scale=0.01)(x))


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any  # of the actor
    exploration_noise: Array  # where not greedy


@pytree
class TD3State:
    key: jax.Array
    hyper: Hyper
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # environment steps done
    weights: Any  # {"actor": ..., "critic": ...}, the critics' with a leading axis of 2
    target_weights: Any  # likewise
    optimizer: Any  # {"actor": OptimizerState, "critic": OptimizerState}
    replay: Any


def add_noise(action: Float[Array, "*batch"], noise: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """An action with noise, within the box."""
    return jnp.clip(action + noise, -1, 1)


def td_target(
    reward: Float[Array, " B"],
    terminated: Bool[Array, " B"],
    next_q: Float[Array, "K B"],
    gamma: Float[Array, ""] | float,
) -> Float[Array, " B"]:
    """r + gamma (1 - terminated) min_k next_q[k] (Fujimoto et al. 2018, eq. 10)."""
    return reward + gamma * jnp.where(terminated, 0, jnp.min(next_q, 0))


def critic_loss(q: Float[Array, "K B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """The mean squared error of each critic, added up (Fujimoto et al. 2018, algorithm 1)."""
    return jnp.sum(jnp.mean((q - target) ** 2, -1))


def advantage(q_actor: Float[Array, "K B"], q_others: Float[Array, "K B n"]) -> Float[Array, "K B"]:
    """How much better critics think the actor's action than a soft maximum of n others (MEX's released code)."""
    return q_actor - jax.nn.logsumexp(q_others, -1)


@dataclasses.dataclass(frozen=True)
class _TD3:
    """The static half; its methods are the Algorithm's functions."""

    slots: ClassVar = ("replay",)
    config: Config
    venv: VectorEnv
    actor: nn.Module
    critic: nn.Module
    observation_space: Space
    action_space: Space
    replay: Replay
    optimizer: Optimizer
    deployed = "greedy"

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> TD3State:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        off_policy.check_ratio(hyper, self.config)
        key, actor_key, critic_key, reset_key = jax.random.split(key, 4)
        obs, env_state = self.venv.reset(reset_key, env_params)
        item = off_policy.example(obs, self.action_space)
        weights = {
            "actor": self.actor.init(actor_key, visible(item.obs)),
            "critic": init_critics(self.critic, critic_key, 2, item.obs, item.action),
        }
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        return TD3State(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            target_weights=weights,
            optimizer={name: self.optimizer.init(w, hyper.learning_rate) for name, w in weights.items()},
            replay=self.replay.init(item),
        )

    def collect(self, state: TD3State) -> tuple[TD3State, Rollout]:
        policy = self.policy(state)

        def act(key, obs):
            return self.explore(policy, key, obs)

        return off_policy.collect(
            self.venv, state, self.config.num_steps, act, self.observation_space, self.action_space
        )

    def explore(self, policy: Policy, key: Array, obs: Any) -> Array:
        action: Any = self.actor.apply(policy.weights, obs)
        return add_noise(action, policy.exploration_noise * jax.random.normal(key, action.shape, action.dtype))

    def learn(self, state: TD3State, rollout: Rollout) -> tuple[TD3State, dict[str, Array]]:
        hyper, delay = state.hyper, self.config.policy_delay
        flat, unravel = flatten(state.weights)

        def gradient_step(carry, key, batch):
            flat, target, optimizer = carry
            weights, learning = unravel(flat), (hyper.learning_rate, hyper.max_grad_norm)
            gradient = jax.grad(self.critics_loss, has_aux=True)
            grads, report = gradient(weights["critic"], weights["actor"], unravel(target), key, batch, hyper)
            critic, critic_optimizer, report["grad_norm"] = self.optimizer.descend(
                flat["critic"], optimizer["critic"], grads, *learning
            )

            def improve():
                critic_weights = unravel({**flat, "critic": critic})["critic"]
                loss, grads = jax.value_and_grad(self.actor_loss)(weights["actor"], critic_weights, batch)
                actor, actor_optimizer, _ = self.optimizer.descend(flat["actor"], optimizer["actor"], grads, *learning)
                target_after = polyak(target, {"actor": actor, "critic": critic}, hyper.tau)
                return actor, target_after, actor_optimizer, loss

            def wait():
                return flat["actor"], target, optimizer["actor"], jnp.full_like(report["loss"], jnp.nan)

            turn = critic_optimizer.count % delay == 0
            actor, target, actor_optimizer, report["actor_loss"] = jax.lax.cond(turn, improve, wait)
            flat = {"actor": actor, "critic": critic}
            return (flat, target, {"actor": actor_optimizer, "critic": critic_optimizer}), report

        carry = flat, flatten(state.target_weights)[0], state.optimizer
        state, carry, metrics = off_policy.learn(state, rollout, self.replay, self.config, carry, gradient_step)
        weights, target_weights = map(unravel, carry[:2])
        return state.replace(weights=weights, target_weights=target_weights, optimizer=carry[2]), metrics

    def critics_loss(
        self, weights: Any, actor_weights: Any, target_weights: Any, key: Array, batch: Transition, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        """The critics' whole objective on one batch and what to report of it."""
        noise_key, random_key = jax.random.split(key)
        next_action: Any = self.actor.apply(target_weights["actor"], visible(batch.next_obs))
        noise = hyper.policy_noise * jax.random.normal(noise_key, next_action.shape, next_action.dtype)
        next_action = add_noise(next_action, jnp.clip(noise, -hyper.noise_clip, hyper.noise_clip))
        next_q, _ = critics(self.critic, target_weights["critic"], batch.next_obs, next_action)
        q, active = critics(self.critic, weights, batch.obs, batch.action)
        optimistic = q
        if self.config.baseline:
            obs = visible(batch.obs), visible(batch.next_obs)
            tried: list[Any] = [self.actor.apply(actor_weights, o) for o in obs]
            tried.append(jax.random.uniform(random_key, batch.action.shape, batch.action.dtype, -1, 1))
            q_actor, *others = (critics(self.critic, weights, batch.obs, action)[0] for action in tried)
            optimistic = advantage(q_actor, jnp.stack([q, *others], -1))
        loss = critic_loss(q, td_target(batch.reward, batch.terminated, next_q, hyper.gamma))
        total = loss - hyper.optimism * jnp.sum(jnp.mean(optimistic, -1))
        return total, {"loss": total, "q_value": jnp.mean(q), "active_units": active}

    def actor_loss(self, weights: Any, critic_weights: Any, batch: Transition) -> Array:
        """-Q_1 at the actor's actions (Fujimoto et al. 2018, algorithm 1)."""
        first = jax.tree.map(lambda x: x[0], critic_weights)
        action = self.actor.apply(weights, visible(batch.obs))
        return -jnp.mean(jnp.asarray(self.critic.apply(first, batch.obs, action)))

    def outputs(self, key: Array) -> tuple[Any, Any]:
        """Actions and values at the first observations: what `make` checks the shapes of."""
        state = self.init(key)
        action = self.actor.apply(state.weights["actor"], visible(state.obs))
        held = state.replay.items.action[: self.config.num_envs]  # of the right shape, whatever the actor gives
        return action, critics(self.critic, state.weights["critic"], state.obs, held)[0]

    def policy(self, state: TD3State) -> Policy:
        return Policy(state.weights["actor"], state.hyper.exploration_noise)

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        obs = visible(obs)
        action: Any = self.actor.apply(policy.weights, obs) if greedy else self.explore(policy, key, obs)
        return self.action_space.from_unit(action), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """TD3 on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        actor: a flax module from an observation without its privileged part to actions (..., A) in [-1, 1].
        critic: a flax module from a whole observation and an action to values (...); there will be two of them.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or networks whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("td3", venv, Box)
    if actor is None:
        actor = Actor(observation_space, action_space.shape[0], config.hidden, config.activation)
    if critic is None:
        critic = Critic(observation_space, config.hidden, config.activation, config.layer_norm)
    replay = uniform(config.buffer_size)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    td3 = _TD3(config, venv, actor, critic, observation_space, action_space, replay, chosen)
    off_policy.check_outputs(action_space, td3.outputs, (config.num_envs, *action_space.shape), (2, config.num_envs))
    return algorithm_of("td3", td3, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
