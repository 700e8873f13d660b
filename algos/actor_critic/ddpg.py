"""Deep deterministic policy gradient (DDPG).

Lillicrap et al. (2016), "Continuous control with deep reinforcement learning". A critic regresses on

    y = r + gamma (1 - terminated) Q'(s', mu'(s'))

and at every gradient step the actor ascends Q(s, mu(s)) and the targets follow. `td3.py` is this with a second critic,
a smoothed target and a delayed actor.

Deviations from the paper: Gaussian exploration noise instead of an Ornstein-Uhlenbeck process, one learning rate, no
weight decay, no batch normalisation, the action enters with the observation (TD3's choices, as is customary); actions
in units of the box; orthogonal initialisation with a small last layer of the actor; several environments may step
together. Results: `docs/results.md`.
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
from jaxrl.replay.off_policy import Critic, Rollout, Transition, action_values, flatten
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
    hidden: tuple[int, ...] = (256, 256)  # widths of actor and critic
    activation: str = "relu"
    layer_norm: bool = False  # in the critic
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        off_policy.check_config(self)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of actor and critic
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target networks move to the others
    exploration_noise: jax.Array = 0.1  # standard deviation, in units of the box
    learning_starts: jax.Array = 1000  # environment steps of random actions before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # gradient steps an environment step; infinite: always num_updates an update
    max_grad_norm: jax.Array = 1e6  # of actor and of critic, each; no gradient here is that large


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
class DDPGState:
    key: jax.Array
    hyper: Hyper
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # environment steps done
    weights: Any  # {"actor": ..., "critic": ...}
    target_weights: Any  # likewise
    optimizer: Any  # {"actor": OptimizerState, "critic": OptimizerState}
    replay: Any


def add_noise(action: Float[Array, "*batch"], noise: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """An action with noise, within the box."""
    return jnp.clip(action + noise, -1, 1)


def td_target(
    reward: Float[Array, " B"],
    terminated: Bool[Array, " B"],
    next_q: Float[Array, " B"],
    gamma: Float[Array, ""] | float,
) -> Float[Array, " B"]:
    """r + gamma (1 - terminated) next_q (Lillicrap et al. 2016, algorithm 1)."""
    return reward + gamma * jnp.where(terminated, 0, next_q)


def critic_loss(q: Float[Array, " B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """The mean squared error (Lillicrap et al. 2016, eq. 4)."""
    return jnp.mean((q - target) ** 2)


@dataclasses.dataclass(frozen=True)
class _DDPG:
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

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> DDPGState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        off_policy.check_ratio(hyper, self.config)
        key, actor_key, critic_key, reset_key = jax.random.split(key, 4)
        obs, env_state = self.venv.reset(reset_key, env_params)
        item = off_policy.example(obs, self.action_space)
        weights = {
            "actor": self.actor.init(actor_key, visible(item.obs)),
            "critic": self.critic.init(critic_key, item.obs, item.action),
        }
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        return DDPGState(
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

    def collect(self, state: DDPGState) -> tuple[DDPGState, Rollout]:
        policy = self.policy(state)

        def act(key, obs):
            return self.explore(policy, key, obs)

        return off_policy.collect(
            self.venv, state, self.config.num_steps, act, self.observation_space, self.action_space
        )

    def explore(self, policy: Policy, key: Array, obs: Any) -> Array:
        action: Any = self.actor.apply(policy.weights, obs)
        return add_noise(action, policy.exploration_noise * jax.random.normal(key, action.shape, action.dtype))

    def learn(self, state: DDPGState, rollout: Rollout) -> tuple[DDPGState, dict[str, Array]]:
        hyper = state.hyper
        flat, unravel = flatten(state.weights)

        def gradient_step(carry, key, batch):
            flat, target, optimizer = carry
            weights, learning = unravel(flat), (hyper.learning_rate, hyper.max_grad_norm)
            gradient = jax.grad(self.critic_loss, has_aux=True)
            grads, report = gradient(weights["critic"], unravel(target), batch, hyper)
            critic, critic_optimizer, report["grad_norm"] = self.optimizer.descend(
                flat["critic"], optimizer["critic"], grads, *learning
            )
            critic_weights = unravel({**flat, "critic": critic})["critic"]
            report["actor_loss"], grads = jax.value_and_grad(self.actor_loss)(weights["actor"], critic_weights, batch)
            actor, actor_optimizer, _ = self.optimizer.descend(flat["actor"], optimizer["actor"], grads, *learning)
            flat = {"actor": actor, "critic": critic}
            optimizer = {"actor": actor_optimizer, "critic": critic_optimizer}
            return (flat, polyak(target, flat, hyper.tau), optimizer), report

        carry = flat, flatten(state.target_weights)[0], state.optimizer
        state, carry, metrics = off_policy.learn(state, rollout, self.replay, self.config, carry, gradient_step)
        weights, target_weights = map(unravel, carry[:2])
        return state.replace(weights=weights, target_weights=target_weights, optimizer=carry[2]), metrics

    def critic_loss(
        self, weights: Any, target_weights: Any, batch: Transition, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        """The critic's objective on one batch and what to report of it."""
        next_action: Any = self.actor.apply(target_weights["actor"], visible(batch.next_obs))
        next_q, _ = action_values(self.critic, target_weights["critic"], batch.next_obs, next_action)
        q, active = action_values(self.critic, weights, batch.obs, batch.action)
        loss = critic_loss(q, td_target(batch.reward, batch.terminated, next_q, hyper.gamma))
        return loss, {"loss": loss, "q_value": jnp.mean(q), "active_units": active}

    def actor_loss(self, weights: Any, critic_weights: Any, batch: Transition) -> Array:
        """-Q at the actor's actions (Lillicrap et al. 2016, eq. 6)."""
        action = self.actor.apply(weights, visible(batch.obs))
        return -jnp.mean(jnp.asarray(self.critic.apply(critic_weights, batch.obs, action)))

    def outputs(self, key: Array) -> tuple[Any, Any]:
        """Actions and values at the first observations: what `make` checks the shapes of."""
        state = self.init(key)
        action = self.actor.apply(state.weights["actor"], visible(state.obs))
        held = state.replay.items.action[: self.config.num_envs]  # of the right shape, whatever the actor gives
        return action, action_values(self.critic, state.weights["critic"], state.obs, held)[0]

    def policy(self, state: DDPGState) -> Policy:
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
    """DDPG on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        actor: a flax module from an observation without its privileged part to actions (..., A) in [-1, 1].
        critic: a flax module from a whole observation and an action to values (...).
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or networks whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("ddpg", venv, Box)
    if actor is None:
        actor = Actor(observation_space, action_space.shape[0], config.hidden, config.activation)
    if critic is None:
        critic = Critic(observation_space, config.hidden, config.activation, config.layer_norm)
    replay = uniform(config.buffer_size)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    ddpg = _DDPG(config, venv, actor, critic, observation_space, action_space, replay, chosen)
    off_policy.check_outputs(action_space, ddpg.outputs, (config.num_envs, *action_space.shape), (config.num_envs,))
    return algorithm_of("ddpg", ddpg, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
