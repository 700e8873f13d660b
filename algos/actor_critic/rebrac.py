"""Revisited behaviour-regularised actor-critic (ReBRAC).

Tarasov, Kurenkov, Nikulin and Kolesnikov (2023), "Revisiting the minimalist approach to offline reinforcement
learning". TD3+BC with separate penalties of actor and critics, layer normalisation and a deeper network:

    critics r + gamma (1 - terminated) (min_k Q'_k(s', mu') - critic_penalty |mu' - a'|^2)
    actor   actor_penalty mean |mu(s) - a|^2 - mean min_k Q_k(s, mu(s)) / mean |min_k Q_k(s, mu(s))|

where mu' is the smoothed action of the target actor at s', a' the dataset's next action and |.|^2 a sum over
dimensions. At the last step of a truncated episode a' is unknown and the step's action a replaces it. Steps in a replay
buffer have no a' at all: when the learner acts, a replaces it everywhere.

The defaults are those published for Gym's tasks: batches of 1,024, three layers, LayerNorm of the critics after each
activation, initial weights as in EDAC's code. The penalties differ by task; Adroit and AntMaze have batches of 256 and
learning rates of 3e-4 (critics of AntMaze 5e-5), and AntMaze has gamma 0.999 and rewards multiplied by 100. Deviations
from the authors' code: actions are in units of the box; the actor's target network follows the weights after the
actor's step, where theirs follows those before it; online the next action is not stored, see above.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch, Transition
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import Deterministic
from jaxrl.nn.losses import critic_loss, td_target
from jaxrl.nn.nets import Nets, critic_values
from jaxrl.nn.networks import Dense, Network, activation_function, encode, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    batch_size: int = 1024
    policy_delay: int = 2  # gradient steps of the critics for one of the actor
    hidden: tuple[int, ...] = (256, 256, 256)  # widths of all networks
    layer_norm: bool = True  # in the critics, after each activation
    actor_layer_norm: bool = False  # in the actor, after each activation

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "policy_delay")


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-3  # of all networks
    actor_learning_rate: jax.Array = jnp.inf  # of the actor; infinite: learning_rate
    actor_penalty: jax.Array = 0.01  # weight of the distance to the dataset's action
    critic_penalty: jax.Array = 0.01  # weight of the distance to the dataset's next action
    policy_noise: jax.Array = 0.2  # standard deviation of the smoothing of the target action, in units of the box
    noise_clip: jax.Array = 0.5  # largest smoothing
    exploration_noise: jax.Array = 0.1  # standard deviation, when acting


CRITIC_BOUND, ACTOR_BOUND = 3e-3, 1e-3
"""The largest initial weight and bias of the last layer."""


class Body(nn.Module):
    """Dense layers initialised as in EDAC's code; with `layer_norm` a LayerNorm after each activation.

    Initial weights are uniform in +-1 / sqrt(inputs) and biases 0.1; in the last layer both are uniform in +-`bound`.
    """

    hidden: tuple[int, ...]
    out: int
    activation: str
    layer_norm: bool
    bound: float

    @nn.compact
    def __call__(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch out"]:
        activate, uniform = (
            activation_function(self.activation),
            nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform"),
        )
        for width in self.hidden:
            x = activate(Dense(width, kernel_init=uniform, bias_init=nn.initializers.constant(0.1))(x))
            self.sow("intermediates", "active", jnp.mean(x > 0))
            x = nn.LayerNorm()(x) if self.layer_norm else x

        def small(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
            return jax.random.uniform(key, shape, dtype, -self.bound, self.bound)

        return Dense(self.out, kernel_init=small, bias_init=small)(x)


class Actor(nn.Module):
    """Actions (..., A) in units of the box."""

    observation_space: Space
    action_space: Space
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool

    @nn.compact
    def __call__(self, obs: Any) -> Float[Array, "... A"]:
        x, size = encode(self.observation_space, obs, privileged=False), self.action_space.shape[0]
        return jnp.tanh(Body(self.hidden, size, self.activation, self.layer_norm, ACTOR_BOUND)(x))


class Critic(nn.Module):
    """Values (...) of whole observations and actions."""

    observation_space: Space
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool

    @nn.compact
    def __call__(self, obs: Any, action: Float[Array, "... A"]) -> Float[Array, "..."]:
        x = encode(self.observation_space, obs, privileged=True)
        x = jnp.concatenate([x, action.astype(x.dtype)], -1)
        return Body(self.hidden, 1, self.activation, self.layer_norm, CRITIC_BOUND)(x)[..., 0]


def penalty(policy_action: Float[Array, "B A"], action: Float[Array, "B A"]) -> Float[Array, " B"]:
    """sum_A (pi(s) - a)^2."""
    return jnp.sum((policy_action - action) ** 2, -1)


def actor_loss(q: Float[Array, "K B"], own_penalty: Float[Array, " B"]) -> Float[Array, ""]:
    """mean own_penalty - mean min_k q / mean |min_k q|; `own_penalty` has its weight (equation 5, normalised Q)."""
    least = jnp.min(q, 0)
    scale = 1 / jnp.maximum(jax.lax.stop_gradient(jnp.mean(jnp.abs(least))), 1e-6)
    return jnp.mean(own_penalty) - scale * jnp.mean(least)


@dataclasses.dataclass(frozen=True)
class _ReBRAC:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor")
    targets: ClassVar[tuple[str, ...]] = ("critic", "actor")

    config: Config
    critic: Any  # a flax module
    actor: Deterministic

    init = learner.init_twin

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """TD3's step, with the distance to dataset actions in both losses (Tarasov et al. 2023, equations 4 and 5)."""
        critic, actor = nets["critic"], nets["actor"]
        critic_key, _ = jax.random.split(key)
        settings = hyper.learning_rate, hyper.max_grad_norm

        next_action = self.actor(actor.target, batch.next_obs)
        noise = hyper.policy_noise * jax.random.normal(critic_key, next_action.shape, next_action.dtype)
        next_action = jnp.clip(next_action + jnp.clip(noise, -hyper.noise_clip, hyper.noise_clip), -1, 1)
        next_q = jnp.min(critic_values(self.critic, critic.target, batch.next_obs, next_action), 0)
        # Steps of a replay buffer have no next action: the step's action replaces it.
        of_data = batch.action if isinstance(batch, Transition) else batch.next_action
        next_value = next_q - hyper.critic_penalty * penalty(next_action, of_data)
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            return critic_loss(q, target), {"q_value": jnp.mean(q)}

        critic, critic_report = critic.descend(critic_objective, *settings)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            action = self.actor(weights, batch.obs)
            distance = penalty(action, batch.action)
            q = critic_values(self.critic, critic.weights, batch.obs, action)
            return actor_loss(q, hyper.actor_penalty * distance), {"distance": jnp.mean(distance)}

        due = critic.count % self.config.policy_delay == 0
        when = None if self.config.policy_delay == 1 else due
        actor, actor_report = actor.descend(actor_objective, *learner.actor_settings(hyper), when=when)
        tau = jnp.where(due, hyper.tau, 0)
        return {"critic": critic.track(tau), "actor": actor.track(tau)}, {**critic_report, **actor_report}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    actor: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """ReBRAC for `env`. Equal arguments give the same functions, so they share one jit cache.

    `learner.algorithm` explains the arguments and the errors; `actor` is the network of a `Deterministic`, and
    there are two critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("rebrac", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    sizes = config.hidden, config.activation
    acting = Deterministic(own("actor", actor) or Actor(obs_space, space, *sizes, config.actor_layer_norm))
    rule = _ReBRAC(config, critic, acting)
    return learner.algorithm(
        "rebrac", venv, config, Hyper, rule, acting, replay=replay, optimizer=optimizer, critic=critic
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
