"""GoRL: PPO on a normal latent variable, which a flow turns into actions; stage by stage the flow is fitted anew.

Zhang et al. (2025), "Generative online reinforcement learning" (GoRL, arXiv:2512.02581). A policy that is generative
has no density that PPO could use. Here z has one, and the action is a function of it,

    z ~ N(mean(s), std(s)^2),    a = clip(g(s, z)),    g: K steps of Euler from z along a velocity, as in `flow_bc.py`,

so that PPO learns the encoder N(mean, std^2) alone, in the space of z, with the decoder g held fixed and a penalty that
keeps z where the decoder knows it,

    loss = -min(ratio A, clip(ratio) A) - ent_coef entropy + z_coef mean(mean^2 + std^2).

The first decoder is the identity: a stage of PPO with normal actions. At the end of each stage a new decoder is fitted
by flow matching to the actions of the stage's last rollouts, from noise N(0, I), and the encoder begins anew near N(0,
I): together they act about as before, as far as the flow is fitted, and what was in the encoder, with its one mode, is
in the decoder, which may have several. Later stages have limits of their own (`later_...`).

Deviations from the authors' code: a stage ends after a number of updates with the policy as it is, where theirs goes on
with the best of its evaluations, and the decoder learns from the rollouts of training, not from new ones; the critic is
kept, as the policy's values are, where theirs begins anew; observations are not normalised; the decoder's steps on
batches are counted, without a validation set. They evaluate with z = mean(s), which has one action a state; here the
policy is deployed by its samples; sizes are small: their critic has five layers of 256, a decoder learns for 50 epochs
of up to 10 million samples, and stages have 60, 60, 30 and 30 million steps. A run whose last update ends a stage
returns the new decoder under an encoder that has not learned yet. Results: `experiments/two_goals`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl import on_policy
from jaxrl.algorithm import (
    Algorithm,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    check_minibatches,
    shared,
    spaces_of,
)
from jaxrl.algos.generative.flow_bc import Flow, Velocity, between, flow_matching_loss, follow
from jaxrl.algos.on_policy.ppo import policy_loss
from jaxrl.environment import Environment, pytree, visible
from jaxrl.math import rarely, shuffled
from jaxrl.nn import nets
from jaxrl.nn.actor_critic import LOG_STD_MAX, LOG_STD_MIN, Value
from jaxrl.nn.distributions import Normal
from jaxrl.nn.losses import normalized
from jaxrl.nn.networks import MLP, Network, encode, own
from jaxrl.nn.optim import Optimizer, OptimizerLike, OptimizerState, optimizer_of
from jaxrl.on_policy import epochs, explained_variance
from jaxrl.returns import gae
from jaxrl.rollout import Ends, rollout, successor_values
from jaxrl.spaces import Box, Space, environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 16  # environments stepped together
    num_steps: int = 128  # steps of each in a rollout
    num_epochs: int = 5  # passes over a rollout
    num_minibatches: int = 4  # gradient steps a pass; divides num_envs * num_steps
    stage_updates: int = 100  # updates of the encoder before a new decoder
    refit_rollouts: int = 10  # the last rollouts of a stage, which the decoder is fitted to
    refit_steps: int = 2000  # gradient steps of that fit
    refit_batch_size: int = 256  # steps of rollouts in each of these
    num_flow_steps: int = 10  # K, steps of Euler
    hidden: tuple[int, ...] = (64, 64, 64, 64)  # widths of velocity and critic
    encoder_hidden: tuple[int, ...] = (32, 32, 32, 32)  # widths of the encoder
    activation: str = "silu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-5  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        counts = "num_envs num_steps num_epochs num_minibatches num_flow_steps"
        check_at_least_one(self, *counts.split(), "stage_updates", "refit_rollouts", "refit_steps", "refit_batch_size")
        check_minibatches(self.num_minibatches, self.num_envs * self.num_steps, "num_envs * num_steps")
        if self.refit_rollouts > self.stage_updates:
            raise ValueError(
                f"refit_rollouts={self.refit_rollouts}: it must be at most stage_updates={self.stage_updates}."
            )


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of the encoder
    critic_learning_rate: jax.Array = 3e-4  # of the critic
    decoder_learning_rate: jax.Array = 3e-4  # of the fits of the decoder
    gamma: jax.Array = 0.99  # discount
    gae_lambda: jax.Array = 0.95
    ent_coef: jax.Array = 0.01  # of the entropy of z
    clip_eps: jax.Array = 0.15
    later_clip_eps: jax.Array = 0.3  # after the first stage
    z_coef: jax.Array = 5e-4  # of the penalty on z
    later_z_coef: jax.Array = 1e-3  # after the first stage
    max_grad_norm: jax.Array = 0.5  # of the gradients of encoder, critic and decoder
    later_max_grad_norm: jax.Array = 1.0  # after the first stage


class Policy(NamedTuple):
    """What is deployed."""

    encoder: Any  # weights
    decoder: Any  # weights


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    z: Array
    action: Array  # in units of the box
    log_prob: Array  # of z
    value: Array
    reward: Array
    terminated: Array
    truncated: Array
    next_value: Array  # of the true successor, final_obs where truncated
    ends: Ends


class Batch(NamedTuple):
    """A minibatch, leaves (B, ...)."""

    obs: Any
    z: Array
    log_prob: Array
    advantage: Array
    target: Array


@pytree
class State(on_policy.State):
    updates: jax.Array  # of the encoder, since the start
    buffer: Any  # (obs, action) of the last rollouts, leaves (refit_rollouts T, N, ...), the newest at the end


def z_penalty(mean: Float[Array, "B A"], std: Float[Array, "B A"]) -> Float[Array, ""]:
    """mean(mean^2) + mean(std^2): what keeps z where the decoder was fitted. Samples of z have no gradient."""
    return jnp.mean(mean**2) + jnp.mean(std**2)


class Encoder(nn.Module):
    """`(mean, log_std)` (..., A) of z; near N(0, I) at the start."""

    hidden: tuple[int, ...]
    activation: str
    num_dims: int

    @nn.compact
    def __call__(self, x: Float[Array, "*batch features"]) -> tuple[Array, Array]:
        out = MLP(self.hidden, 2 * self.num_dims, self.activation, out_scale=0.01)(x)
        return out[..., : self.num_dims], jnp.clip(out[..., self.num_dims :], LOG_STD_MIN, LOG_STD_MAX)


@dataclasses.dataclass(frozen=True)
class GoRL:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    slots: ClassVar = ("buffer",)

    config: Config
    venv: VectorEnv
    encoder: Any  # a flax module as Encoder
    flow: Flow
    critic: Any  # a flax module of observations
    observation_space: Space
    action_space: Space
    optimizer: Optimizer

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        def weights(key: Array, obs: Any) -> dict[str, Any]:
            first, keys = on_policy.first_of(obs), jax.random.split(key, 3)
            decoder = self.flow.init(keys[1], first, jnp.zeros(self.action_space.shape))
            return {
                "encoder": self.encoder.init(keys[0], encode(self.observation_space, visible(first))),
                "decoder": jax.tree.map(jnp.zeros_like, decoder),  # no velocity: the identity
                "critic": self.critic.init(keys[2], first),
            }

        begun: Any = on_policy.begin(Hyper, self.venv, self.optimizer, weights, key, hyper, env_params)
        rates = {"encoder": begun["hyper"].learning_rate, "critic": begun["hyper"].critic_learning_rate}
        begun["optimizer"] = {name: self.optimizer.init(begun["weights"][name], rate) for name, rate in rates.items()}
        rows = self.config.refit_rollouts * self.config.num_steps
        stored = jax.tree.map(lambda x: jnp.zeros((rows, *x.shape), x.dtype), visible(begun["obs"]))
        action = jnp.zeros((rows, self.config.num_envs, *self.action_space.shape))
        return State(**begun, updates=jnp.int32(0), buffer=(stored, action))

    def latent(self, weights: Any, obs: Any) -> Normal:
        """The distribution of z."""
        return Normal(*self.encoder.apply(weights, encode(self.observation_space, visible(obs))))

    def decode(self, weights: Any, obs: Any, z: Float[Array, "*batch A"]) -> Float[Array, "*batch A"]:
        """g(s, z), in units of the box."""
        return jnp.clip(follow(self.flow.velocity(weights, obs), z, self.config.num_flow_steps), -1, 1)

    def collect(self, state: State) -> tuple[State, Rollout]:
        def act(key: Array, obs: Any, carry: Any) -> tuple[Array, Any, Any]:
            z, log_prob = self.latent(state.weights["encoder"], obs).sample_and_log_prob(key)
            action = self.decode(state.weights["decoder"], obs, z)
            return environment_action(self.action_space, action), (z, action, log_prob), carry

        def critic(obs: Any) -> Any:
            return self.critic.apply(state.weights["critic"], obs)

        new_state, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        value = critic(steps.obs)
        next_value = successor_values(critic, value, new_state.obs, steps.next_obs, steps.truncated)
        ends = steps.reward, steps.terminated, steps.truncated, next_value, steps.ends
        z, action, log_prob = steps.output
        return new_state, Rollout(steps.obs, z, action, log_prob, value, *ends)

    def learn(self, state: State, rollout: Rollout) -> tuple[State, dict[str, Array]]:
        """PPO of encoder and critic; at the end of a stage a new decoder and a new encoder."""
        config, hyper = self.config, state.hyper
        key, shuffle_key, refit_key = jax.random.split(state.key, 3)
        ends = rollout.terminated, rollout.truncated
        advantage = gae(rollout.reward, rollout.value, rollout.next_value, *ends, hyper.gamma, hyper.gae_lambda)
        target = advantage + rollout.value
        batch = Batch(rollout.obs, rollout.z, rollout.log_prob, advantage, target)
        states = cast(dict[str, OptimizerState], state.optimizer)
        learning = {name: nets.net(state.weights[name], x, self.optimizer, name=name) for name, x in states.items()}
        later = state.updates >= config.stage_updates
        step = functools.partial(self.gradient_step, hyper=hyper, later=later)
        orders = shuffled(shuffle_key, (config.num_epochs, config.num_steps * config.num_envs))
        learning, report = epochs(step, learning, on_policy.flattened(batch), orders, config.num_minibatches)

        new = visible(rollout.obs), rollout.action
        buffer = jax.tree.map(lambda x, y: jnp.concatenate([x[config.num_steps :], y]), state.buffer, new)
        weights = {**state.weights, **{name: x.weights for name, x in learning.items()}}
        optimizer, updates = {name: x.state for name, x in learning.items()}, state.updates + 1
        kept = weights["decoder"], weights["encoder"], optimizer["encoder"], jnp.full((), jnp.nan, target.dtype)
        # Of several seeds, whose counts are equal, a `cond` would fit at every update.
        decoder, encoder, encoder_state, error = rarely(
            updates % config.stage_updates == 0, lambda: self.next_stage(refit_key, buffer, hyper), kept
        )
        weights |= {"decoder": decoder, "encoder": encoder}
        optimizer["encoder"] = encoder_state
        state = state.replace(key=key, weights=weights, optimizer=optimizer, updates=updates, buffer=buffer)
        shown = {"loss": report["encoder_loss"], "explained_variance": explained_variance(target, rollout.value)}
        return state, {**rollout.ends.metrics(), **report, **shown, "decoder_loss": error}

    def gradient_step(self, learning: Any, batch: Batch, hyper: Hyper, later: Array) -> tuple[Any, dict[str, Array]]:
        """PPO's clipped surrogate of z, an entropy bonus and the penalty; squared errors of values."""
        clip_eps = jnp.where(later, hyper.later_clip_eps, hyper.clip_eps)
        z_coef = jnp.where(later, hyper.later_z_coef, hyper.z_coef)
        max_grad_norm = jnp.where(later, hyper.later_max_grad_norm, hyper.max_grad_norm)
        advantage = normalized(batch.advantage)

        def encoder_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            pi = self.latent(weights, batch.obs)
            log_prob, entropy = pi.log_prob(batch.z), jnp.mean(pi.entropy())
            surrogate, log_ratio = policy_loss(log_prob, batch.log_prob, advantage, clip_eps), log_prob - batch.log_prob
            penalty = z_penalty(pi.mean, jnp.exp(pi.log_std))
            report = {
                "policy_loss": surrogate,
                "entropy": entropy,
                "z_penalty": penalty,
                "approx_kl": jnp.mean(jnp.expm1(log_ratio) - log_ratio),
                "clipped": jnp.mean(jnp.abs(jnp.expm1(log_ratio)) > clip_eps, dtype=log_ratio.dtype),
            }
            return surrogate - hyper.ent_coef * entropy + z_coef * penalty, report

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            value: Any = self.critic.apply(weights, batch.obs)
            return 0.5 * jnp.mean((value - batch.target) ** 2), {}

        encoder, report = learning["encoder"].descend(encoder_objective, hyper.learning_rate, max_grad_norm)
        critic, more = learning["critic"].descend(critic_objective, hyper.critic_learning_rate, max_grad_norm)
        return {"encoder": encoder, "critic": critic}, {**report, **more}

    def next_stage(self, key: Key[Array, ""], buffer: Any, hyper: Hyper) -> tuple[Any, Any, Any, Array]:
        """`(decoder, encoder, optimiser state of the encoder, mean loss)`: fitted to `buffer`, and anew."""
        decoder_key, encoder_key, steps_key = jax.random.split(key, 3)
        obs, action = on_policy.flattened(buffer)
        first = on_policy.first_of(obs)
        encoder = self.encoder.init(encoder_key, encode(self.observation_space, first))
        decoder = self.flow.init(decoder_key, first, action[0])
        encoder, decoder = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), (encoder, decoder))
        decoder = nets.net(decoder, self.optimizer.init(decoder, hyper.decoder_learning_rate), self.optimizer)

        def step(decoder: Any, key: Array) -> tuple[Any, Array]:
            row_key, noise_key, time_key = jax.random.split(key, 3)
            rows = jax.random.randint(row_key, (self.config.refit_batch_size,), 0, action.shape[0])
            seen, wanted = jax.tree.map(lambda x: x[rows], (obs, action))
            noise = jax.random.normal(noise_key, wanted.shape, wanted.dtype)
            t = jax.random.uniform(time_key, wanted.shape[:1], wanted.dtype)

            def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
                velocity = self.flow.velocity(weights, seen)(between(noise, wanted, t), t)
                return flow_matching_loss(velocity, noise, wanted), {}

            decoder, report = decoder.descend(objective, hyper.decoder_learning_rate, hyper.max_grad_norm)
            return decoder, report["loss"]

        decoder, losses = jax.lax.scan(step, decoder, jax.random.split(steps_key, self.config.refit_steps))
        return decoder.weights, encoder, self.optimizer.init(encoder, hyper.learning_rate), jnp.mean(losses)

    def policy(self, state: State) -> Policy:
        return Policy(state.weights["encoder"], state.weights["decoder"])

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.latent(policy.encoder, obs)
        action = self.decode(policy.decoder, obs, pi.mode() if greedy else pi.sample(key))
        return environment_action(self.action_space, action), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    encoder: Network | None = None,
    network: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """GoRL on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        encoder: a flax module with the inputs and outputs of `Encoder`: the vector of an observation without its
            privileged part.
        network: of the decoder, a flax module with the inputs and outputs of `flow_bc.Velocity`, without a velocity
            where all of its weights are zero.
        critic: a flax module from a whole observation to values (...).
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, or several agents.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("gorl", venv, Box, between_ends=True)
    size = space.shape[0]
    encoder = own("encoder", encoder) or Encoder(config.encoder_hidden, config.activation, size)
    network = own("network", network) or Velocity(config.hidden, config.activation)
    critic = own("critic", critic) or Value(obs_space, config.hidden, config.activation)
    flow = Flow(network, obs_space, config.num_flow_steps, size)
    optimiser = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    parts = encoder, flow, critic, obs_space, space, optimiser
    return algorithm_of("gorl", GoRL(config, venv, *parts), Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
