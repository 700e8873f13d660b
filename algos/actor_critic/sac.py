"""Soft actor-critic (SAC), for Box and Discrete actions: the action space decides.

Haarnoja et al. (2018), "Soft actor-critic algorithms and applications" (arXiv:1812.05905); Christodoulou (2019), "Soft
actor-critic for discrete action settings". Two critics regress on one target, of the smaller value and the entropy of
the policy at the next observation,

    y = r + gamma (1 - terminated) E_a' [min_k Q'_k(s', a') - alpha log pi(a' | s')]

the actor ascends the same expectation at s, and the temperature alpha follows the difference between a target entropy
and the policy's. The expectation is one sample of a tanh-normal in a Box and exact where actions are Discrete.

Deviations from the authors' code: the temperature's loss is log(alpha) times the difference, as in most
implementations, not alpha times it; actions are in units of the box; orthogonal initialisation with a small last layer
of the actor; several environments may step together; the default target entropy of n actions is 0.89 log n, CleanRL's,
where Christodoulou's 0.98 log n hardly lets the policy prefer anything. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, shared, spaces_of, starting_values
from jaxrl.environment import Environment, pytree, split_observation, visible
from jaxrl.nn.distributions import Categorical, TanhNormal, mask_logits
from jaxrl.nn.networks import MLP, encode
from jaxrl.nn.optim import Optimizer, OptimizerLike, optimizer_of, polyak
from jaxrl.replay import off_policy
from jaxrl.replay.off_policy import Critic, Rollout, Transition, critics, flatten, init_critics
from jaxrl.replay.ring import Replay, uniform
from jaxrl.spaces import Box, Discrete, Space, environment_action
from jaxrl.vectorize import VectorEnv

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0  # the authors'


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments stepped together
    num_steps: int = 1  # steps of each between updates
    num_updates: int = 1  # gradient steps an update, at most: see Hyper.replay_ratio
    batch_size: int = 256
    buffer_size: int = 100_000  # transitions kept
    hidden: tuple[int, ...] = (256, 256)  # widths of actor and critics
    activation: str = "relu"
    layer_norm: bool = False  # in the critics
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        off_policy.check_config(self)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of actor and critics
    alpha_learning_rate: jax.Array = 3e-4  # of the logarithm of the temperature; 0: constant
    alpha: jax.Array = 1.0  # temperature, at first
    target_entropy: jax.Array = jnp.inf  # nats; infinite: -A in units of a Box, 0.89 log n of n actions
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target critics move to the others, each gradient step
    learning_starts: jax.Array = 1000  # environment steps of random actions before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # gradient steps an environment step; infinite: always num_updates an update
    max_grad_norm: jax.Array = 1e6  # of actor and of critics, each; no gradient here is that large


class Actor(nn.Module):
    """The default policy: `(mean, log_std)` (..., A) each before tanh, or logits (..., n)."""

    observation_space: Space
    action_space: Space
    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, obs: Any) -> Any:
        x = encode(self.observation_space, obs, privileged=False)
        outputs = self.action_space.n if isinstance(self.action_space, Discrete) else 2 * self.action_space.shape[0]
        x = MLP(self.hidden, outputs, self.activation, out_scale=0.01)(x)
        return x if isinstance(self.action_space, Discrete) else tuple(jnp.split(x, 2, -1))


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any  # of the actor


@pytree
class SACState:
    key: jax.Array
    hyper: Hyper
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # environment steps done
    weights: Any  # {"actor": ..., "critic": ..., "log_alpha": ()}, the critics' with a leading axis of 2
    target_weights: Any  # of the critics
    optimizer: Any  # an OptimizerState of each
    replay: Any


def soft_value(
    q: Float[Array, "K B *n"], log_prob: Float[Array, "B *n"], alpha: Float[Array, ""] | float
) -> Float[Array, " B"]:
    """min_k q[k] - alpha log_prob of the sampled action (Haarnoja et al. 2018, eq. 3).

    With an axis of n actions the mean of that under the policy (Christodoulou 2019, eq. 10).
    """
    value = jnp.min(q, 0) - alpha * log_prob
    return value if value.ndim == 1 else jnp.sum(jnp.exp(log_prob) * value, -1)


def td_target(
    reward: Float[Array, " B"],
    terminated: Bool[Array, " B"],
    next_value: Float[Array, " B"],
    gamma: Float[Array, ""] | float,
) -> Float[Array, " B"]:
    """r + gamma (1 - terminated) next_value (Haarnoja et al. 2018, eq. 2)."""
    return reward + gamma * jnp.where(terminated, 0, next_value)


def critic_loss(q: Float[Array, "K B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """Half the mean squared error of each critic, added up (Haarnoja et al. 2018, eq. 5)."""
    return 0.5 * jnp.sum(jnp.mean((q - target) ** 2, -1))


def alpha_loss(
    log_alpha: Float[Array, ""], entropy: Float[Array, ""], target_entropy: Float[Array, ""] | float
) -> Float[Array, ""]:
    """log alpha (H - target): falls where the policy is more random than the target (cf. eq. 18)."""
    return log_alpha * jax.lax.stop_gradient(entropy - target_entropy)


def default_target_entropy(space: Space, action_mask: Array | None = None) -> Float[Array, ""] | float:
    """-A in units of a Box of A dimensions (Haarnoja et al. 2018, table 1), 0.89 log n of n actions, or of those that
    masks (B, n) allow, on average: of the others no policy has any entropy."""
    if not isinstance(space, Discrete):
        return -float(space.shape[0])
    return 0.89 * (math.log(space.n) if action_mask is None else jnp.mean(jnp.log(action_mask.sum(-1))))


@dataclasses.dataclass(frozen=True)
class _SAC:
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
    alpha_optimizer: Optimizer  # Adam, whatever the networks' is: one number, which decay would pull to 1
    deployed = "greedy"

    @property
    def discrete(self) -> bool:
        return isinstance(self.action_space, Discrete)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> SACState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        off_policy.check_ratio(hyper, self.config)
        key, actor_key, critic_key, reset_key = jax.random.split(key, 4)
        obs, env_state = self.venv.reset(reset_key, env_params)
        item = off_policy.example(obs, self.action_space)
        inputs = (item.obs,) if self.discrete else (item.obs, item.action)
        weights = {
            "actor": self.actor.init(actor_key, visible(item.obs)),
            "critic": init_critics(self.critic, critic_key, 2, *inputs),
            "log_alpha": jnp.log(hyper.alpha),
        }
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        return SACState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            target_weights=weights["critic"],
            optimizer={
                name: (self.alpha_optimizer if name == "log_alpha" else self.optimizer).init(w, hyper.learning_rate)
                for name, w in weights.items()
            },
            replay=self.replay.init(item),
        )

    def distribution(self, weights: Any, obs: Any) -> Categorical | TanhNormal:
        """The policy at an observation with or without its privileged part."""
        outputs: Any = self.actor.apply(weights, visible(obs))
        if not self.discrete:
            return TanhNormal(outputs[0], jnp.clip(outputs[1], LOG_STD_MIN, LOG_STD_MAX))
        action_mask = split_observation(obs, self.observation_space)[2]
        return Categorical(outputs if action_mask is None else mask_logits(outputs, action_mask))

    def soft_values(self, actor_weights: Any, critic_weights: Any, alpha: Any, key: Array, obs: Any) -> tuple[Any, Any]:
        """`(value (B,), entropy ())` of the policy at `obs`, the entropy a mean over the batch."""
        pi = self.distribution(actor_weights, obs)
        if isinstance(pi, Categorical):
            q, _ = critics(self.critic, critic_weights, obs)
            return soft_value(q, jax.nn.log_softmax(pi.logits), alpha), jnp.mean(pi.entropy())
        action, log_prob = pi.sample_and_log_prob(key)
        q, _ = critics(self.critic, critic_weights, obs, action)
        return soft_value(q, log_prob, alpha), -jnp.mean(log_prob)

    def target_entropy(self, hyper: Hyper, obs: Any) -> Float[Array, ""]:
        mask = split_observation(obs, self.observation_space)[2]
        default = jnp.asarray(default_target_entropy(self.action_space, mask), hyper.target_entropy.dtype)
        return jnp.where(jnp.isfinite(hyper.target_entropy), hyper.target_entropy, default)

    def collect(self, state: SACState) -> tuple[SACState, Rollout]:
        def act(key, obs):
            return self.distribution(state.weights["actor"], obs).sample(key)

        return off_policy.collect(
            self.venv, state, self.config.num_steps, act, self.observation_space, self.action_space
        )

    def learn(self, state: SACState, rollout: Rollout) -> tuple[SACState, dict[str, Array]]:
        hyper = state.hyper
        flat, unravel = flatten(state.weights)
        target, unravel_target = ravel_pytree(state.target_weights)

        def gradient_step(carry, key, batch):
            flat, target, optimizer = carry
            optimizer, weights = dict(optimizer), unravel(flat)
            critic_key, actor_key = jax.random.split(key)
            gradient = jax.grad(self.critics_loss, has_aux=True)
            grads, report = gradient(weights["critic"], weights, unravel_target(target), critic_key, batch, hyper)
            critic, optimizer["critic"], report["grad_norm"] = self.optimizer.descend(
                flat["critic"], optimizer["critic"], grads, hyper.learning_rate, hyper.max_grad_norm
            )
            weights = {**weights, "critic": unravel({**flat, "critic": critic})["critic"]}
            gradient = jax.value_and_grad(self.actor_loss, has_aux=True)
            (report["actor_loss"], entropy), grads = gradient(weights["actor"], weights, actor_key, batch)
            actor, optimizer["actor"], _ = self.optimizer.descend(
                flat["actor"], optimizer["actor"], grads, hyper.learning_rate, hyper.max_grad_norm
            )
            grads = jax.grad(alpha_loss)(weights["log_alpha"], entropy, self.target_entropy(hyper, batch.obs))
            log_alpha, optimizer["log_alpha"], _ = self.alpha_optimizer.descend(
                flat["log_alpha"], optimizer["log_alpha"], grads, hyper.alpha_learning_rate, hyper.max_grad_norm
            )
            report |= {"entropy": entropy, "alpha": jnp.exp(weights["log_alpha"])}
            flat = {"actor": actor, "critic": critic, "log_alpha": log_alpha}
            return (flat, polyak(target, critic, hyper.tau), optimizer), report

        carry = flat, target, state.optimizer
        state, carry, metrics = off_policy.learn(state, rollout, self.replay, self.config, carry, gradient_step)
        state = state.replace(weights=unravel(carry[0]), target_weights=unravel_target(carry[1]), optimizer=carry[2])
        return state, metrics

    def critics_loss(
        self, weights: Any, acting: Any, target_weights: Any, key: Array, batch: Transition, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        """The critics' objective on one batch and what to report of it; `acting`: all weights, held fixed."""
        alpha = jnp.exp(acting["log_alpha"])
        next_value, _ = self.soft_values(acting["actor"], target_weights, alpha, key, batch.next_obs)
        if self.discrete:
            q, active = critics(self.critic, weights, batch.obs)
            q = jnp.sum(jnp.where(jnp.arange(q.shape[-1]) == batch.action[:, None], q, 0), -1)
        else:
            q, active = critics(self.critic, weights, batch.obs, batch.action)
        loss = critic_loss(q, td_target(batch.reward, batch.terminated, next_value, hyper.gamma))
        return loss, {"loss": loss, "q_value": jnp.mean(q), "active_units": active}

    def actor_loss(self, weights: Any, others: Any, key: Array, batch: Transition) -> tuple[Array, Array]:
        """Minus the soft value of the policy (Haarnoja et al. 2018, eq. 7), and its entropy."""
        alpha = jnp.exp(others["log_alpha"])
        value, entropy = self.soft_values(weights, others["critic"], alpha, key, batch.obs)
        return -jnp.mean(value), entropy

    def outputs(self, key: Array) -> tuple[Any, Any]:
        """Actions (or their logits) and values at the first observations: what `make` checks the shapes of."""
        state = self.init(key)
        pi = self.distribution(state.weights["actor"], state.obs)
        if isinstance(pi, Categorical):
            q, _ = critics(self.critic, state.weights["critic"], state.obs)
            return pi.logits, q
        held = state.replay.items.action[: self.config.num_envs]  # of the right shape, whatever the actor gives
        return pi.mode(), critics(self.critic, state.weights["critic"], state.obs, held)[0]

    def policy(self, state: SACState) -> Policy:
        return Policy(state.weights["actor"])

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.distribution(policy.weights, obs)
        action = pi.mode() if greedy else pi.sample(key)
        return environment_action(self.action_space, action), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """SAC on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` of actions before
            tanh, (..., A) each, or to logits (..., n).
        critic: a flax module from a whole observation and an action to values (...), or from the observation to values
            (..., n); there will be two of them.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is neither a vector nor Discrete, several agents, or networks whose
    outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("sac", venv, Box, Discrete)
    actions = action_space.n if isinstance(action_space, Discrete) else None
    if actor is None:
        actor = Actor(observation_space, action_space, config.hidden, config.activation)
    if critic is None:
        critic = Critic(observation_space, config.hidden, config.activation, config.layer_norm, actions)
    sac = _SAC(
        config,
        venv,
        actor,
        critic,
        observation_space,
        action_space,
        uniform(config.buffer_size),
        optimizer_of(optimizer or config.optimizer, eps=config.adam_eps),
        optimizer_of("adam"),
    )
    shapes = ((actions,), (actions,)) if actions else (action_space.shape, ())
    action_shape, q_shape = (config.num_envs, *shapes[0]), (2, config.num_envs, *shapes[1])
    off_policy.check_outputs(action_space, sac.outputs, action_shape, q_shape)
    return algorithm_of("sac", sac, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
