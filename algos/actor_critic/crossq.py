"""CrossQ: soft actor-critic with batch-normalised critics and without target networks.

Bhatt, Palenicek et al. (2024), "CrossQ: batch normalization in deep reinforcement learning for greater sample
efficiency and simplicity" (ICLR). The critics see both halves of a transition, (s, a) and (s', a') with a' of the
policy, in one forward pass, so that batch renormalisation (Ioffe 2017) has the statistics of their mixture; their own
values of the second half, held fixed, are the bootstrap:

    y = r + gamma (1 - terminated) (min_k Q_k(s', a') - alpha log pi(a' | s'))

Critics are wide, Adam's first moment short (b1 = 0.5), and every `policy_delay`-th gradient step the actor and the
temperature of `sac.py` learn, from critics that normalise by their running statistics.

Deviations from the authors' code: critics of 1,024 units by default, theirs 2,048 (`Config.critic_hidden`); no batch
normalisation in the actor; actions in units of the box; several environments may step together.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, shared, spaces_of, starting_values
from jaxrl.algos.actor_critic.sac import LOG_STD_MAX, LOG_STD_MIN, alpha_loss, critic_loss, soft_value, td_target
from jaxrl.environment import Environment, pytree, visible
from jaxrl.nn.distributions import TanhNormal
from jaxrl.nn.networks import MLP, activation_function, active_units, encode
from jaxrl.nn.optim import Optimizer, OptimizerLike, optimizer_of
from jaxrl.replay import off_policy
from jaxrl.replay.off_policy import Rollout, Transition, flatten, init_critics
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
    policy_delay: int = 3  # gradient steps of the critics for one of the actor
    hidden: tuple[int, ...] = (256, 256)  # widths of the actor
    critic_hidden: tuple[int, ...] = (1024, 1024)  # widths of the critics; the paper's are 2,048
    activation: str = "relu"
    b1: float = 0.5  # Adam's, of actor and critics
    momentum: float = 0.99  # of the running statistics of batch renormalisation
    warmup: int = 100_000  # gradient steps of plain batch normalisation before its limits on r and d apply
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        off_policy.check_config(self)
        if self.policy_delay < 1:
            raise ValueError(f"policy_delay={self.policy_delay}: it must be at least 1.")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum={self.momentum}: it must be at least 0 and below 1.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-3  # of actor and critics
    alpha_learning_rate: jax.Array = 1e-3  # of the logarithm of the temperature; 0: constant
    alpha: jax.Array = 1.0  # temperature, at first
    target_entropy: jax.Array = jnp.inf  # nats; infinite: -A, in units of the box
    gamma: jax.Array = 0.99  # discount
    learning_starts: jax.Array = 1000  # environment steps of random actions before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # gradient steps an environment step; infinite: always num_updates an update
    max_grad_norm: jax.Array = 1e6  # of actor and of critics, each; no gradient here is that large


R_MAX, D_MAX = 3.0, 5.0  # the authors' limits of the correction


def renormalize(
    x: Float[Array, "*batch F"],
    mean: Float[Array, " F"],
    var: Float[Array, " F"],
    warm: Bool[Array, ""] | bool = True,
    epsilon: float = 1e-3,
) -> tuple[Float[Array, "*batch F"], Float[Array, " F"], Float[Array, " F"]]:
    """`(normalised, mean, variance)` of a batch, by its own statistics, corrected towards running ones (Ioffe 2017).

    (x - m) / s * r + d with r = s / s_running within 1/3 and 3 and d = (m - m_running) / s_running within 5, neither
    differentiated; until `warm` they are 1 and 0: plain batch normalisation.
    """
    axes = tuple(range(x.ndim - 1))
    batch_mean, batch_var = jnp.mean(x, axes), jnp.var(x, axes)
    std, running = jnp.sqrt(batch_var + epsilon), jnp.sqrt(var + epsilon)
    r = jnp.where(warm, jnp.clip(std / running, 1 / R_MAX, R_MAX), 1)
    d = jnp.where(warm, jnp.clip((batch_mean - mean) / running, -D_MAX, D_MAX), 0)
    r, d = jax.lax.stop_gradient((r, d))
    return (x - batch_mean) / std * r + d, batch_mean, batch_var


class BatchRenorm(nn.Module):
    """`renormalize` with running statistics in the collection `batch_stats`, then a learnt scale and shift."""

    momentum: float
    warmup: int
    epsilon: float = 1e-3

    @nn.compact
    def __call__(self, x: Float[Array, "*batch F"], train: bool) -> Float[Array, "*batch F"]:
        features = x.shape[-1:]
        mean = self.variable("batch_stats", "mean", jnp.zeros, features, x.dtype)
        var = self.variable("batch_stats", "var", jnp.ones, features, x.dtype)
        steps = self.variable("batch_stats", "steps", jnp.zeros, (), jnp.int32)
        scale = self.param("scale", nn.initializers.ones, features)
        shift = self.param("shift", nn.initializers.zeros, features)
        if not train:
            return (x - mean.value) * jax.lax.rsqrt(var.value + self.epsilon) * scale + shift
        warm = steps.value >= self.warmup
        y, batch_mean, batch_var = renormalize(x, mean.value, var.value, warm, self.epsilon)
        if not self.is_initializing():
            mean.value = self.momentum * mean.value + (1 - self.momentum) * batch_mean
            var.value = self.momentum * var.value + (1 - self.momentum) * batch_var
            steps.value = steps.value + 1
        return y * scale + shift


class Critic(nn.Module):
    """The default action-value network, normalised at its input and after each hidden layer."""

    observation_space: Space
    hidden: tuple[int, ...]
    activation: str
    momentum: float
    warmup: int

    @nn.compact
    def __call__(self, obs: Any, action: Float[Array, "*batch A"], train: bool = False) -> Float[Array, "*batch"]:
        x = encode(self.observation_space, obs, privileged=True)
        x = BatchRenorm(self.momentum, self.warmup)(jnp.concatenate([x, action.astype(x.dtype)], -1), train)
        for width in self.hidden:
            # Not orthogonal, as elsewhere: for layers this wide that takes seconds, and the scale is normalised away.
            x = activation_function(self.activation)(nn.Dense(width)(x))
            self.sow("intermediates", "active", jnp.mean(x > 0))
            x = BatchRenorm(self.momentum, self.warmup)(x, train)
        return nn.Dense(1)(x)[..., 0]


class Actor(nn.Module):
    """The default policy: `(mean, log_std)` (..., A) each before tanh."""

    observation_space: Space
    num_outputs: int
    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, obs: Any) -> Any:
        x = encode(self.observation_space, obs, privileged=False)
        x = MLP(self.hidden, 2 * self.num_outputs, self.activation, out_scale=0.01)(x)
        return tuple(jnp.split(x, 2, -1))


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any  # of the actor


@pytree
class CrossQState:
    key: jax.Array
    hyper: Hyper
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # environment steps done
    weights: Any  # {"actor": ..., "critic": ..., "log_alpha": ()}, the critics' with a leading axis of 2
    batch_stats: Any  # running statistics of the critics, not trained
    optimizer: Any  # an OptimizerState of each
    replay: Any


@dataclasses.dataclass(frozen=True)
class _CrossQ:
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
    alpha_optimizer: Optimizer  # as in SAC
    deployed = "greedy"

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> CrossQState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        off_policy.check_ratio(hyper, self.config)
        key, actor_key, critic_key, reset_key = jax.random.split(key, 4)
        obs, env_state = self.venv.reset(reset_key, env_params)
        item = off_policy.example(obs, self.action_space)
        variables = init_critics(self.critic, critic_key, 2, item.obs, item.action)
        weights = {
            "actor": self.actor.init(actor_key, visible(item.obs)),
            "critic": {"params": variables["params"]},
            "log_alpha": jnp.log(hyper.alpha),
        }
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        if "batch_stats" not in variables:
            raise ValueError(
                "crossq's critic needs running statistics, a collection 'batch_stats' (see crossq.BatchRenorm); sac "
                "takes a critic without."
            )
        return CrossQState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            batch_stats=variables["batch_stats"],
            optimizer={
                name: (self.alpha_optimizer if name == "log_alpha" else self.optimizer).init(w, hyper.learning_rate)
                for name, w in weights.items()
            },
            replay=self.replay.init(item),
        )

    def distribution(self, weights: Any, obs: Any) -> TanhNormal:
        """The policy at an observation with or without its privileged part."""
        outputs: Any = self.actor.apply(weights, visible(obs))
        return TanhNormal(outputs[0], jnp.clip(outputs[1], LOG_STD_MIN, LOG_STD_MAX))

    def values(self, weights: Any, batch_stats: Any, obs: Any, action: Array) -> Any:
        """Values (K, ...) by the running statistics."""

        def one(weights, batch_stats):
            return self.critic.apply({**weights, "batch_stats": batch_stats}, obs, action)

        return jax.vmap(one)(weights, batch_stats)

    def collect(self, state: CrossQState) -> tuple[CrossQState, Rollout]:
        def act(key, obs):
            return self.distribution(state.weights["actor"], obs).sample(key)

        return off_policy.collect(
            self.venv, state, self.config.num_steps, act, self.observation_space, self.action_space
        )

    def learn(self, state: CrossQState, rollout: Rollout) -> tuple[CrossQState, dict[str, Array]]:
        hyper, delay = state.hyper, self.config.policy_delay
        default = jnp.asarray(-self.action_space.shape[0], hyper.target_entropy.dtype)
        target_entropy = jnp.where(jnp.isfinite(hyper.target_entropy), hyper.target_entropy, default)
        flat, unravel = flatten(state.weights)

        def gradient_step(carry, key, batch):
            flat, batch_stats, optimizer = carry
            weights, learning = unravel(flat), (hyper.learning_rate, hyper.max_grad_norm)
            critic_key, actor_key = jax.random.split(key)
            gradient = jax.grad(self.critics_loss, has_aux=True)
            grads, (report, batch_stats) = gradient(weights["critic"], weights, batch_stats, critic_key, batch, hyper)
            critic, critic_optimizer, report["grad_norm"] = self.optimizer.descend(
                flat["critic"], optimizer["critic"], grads, *learning
            )

            def improve():
                critic_weights = unravel({**flat, "critic": critic})["critic"]
                gradient = jax.value_and_grad(self.actor_loss, has_aux=True)
                alpha = jnp.exp(weights["log_alpha"])
                (loss, entropy), grads = gradient(
                    weights["actor"], critic_weights, batch_stats, alpha, actor_key, batch
                )
                actor = self.optimizer.descend(flat["actor"], optimizer["actor"], grads, *learning)
                grads = jax.grad(alpha_loss)(weights["log_alpha"], entropy, target_entropy)
                log_alpha = self.alpha_optimizer.descend(
                    flat["log_alpha"], optimizer["log_alpha"], grads, hyper.alpha_learning_rate, hyper.max_grad_norm
                )
                return actor[:2], log_alpha[:2], loss, entropy

            def wait():
                nothing = jnp.full_like(report["loss"], jnp.nan)
                return *((flat[name], optimizer[name]) for name in ("actor", "log_alpha")), nothing, nothing

            turn = critic_optimizer.count % delay == 0
            actor, log_alpha, report["actor_loss"], report["entropy"] = jax.lax.cond(turn, improve, wait)
            report["alpha"] = jnp.exp(weights["log_alpha"])
            flat = {"actor": actor[0], "critic": critic, "log_alpha": log_alpha[0]}
            optimizer = {"actor": actor[1], "critic": critic_optimizer, "log_alpha": log_alpha[1]}
            return (flat, batch_stats, optimizer), report

        carry = flat, state.batch_stats, state.optimizer
        state, carry, metrics = off_policy.learn(state, rollout, self.replay, self.config, carry, gradient_step)
        return state.replace(weights=unravel(carry[0]), batch_stats=carry[1], optimizer=carry[2]), metrics

    def critics_loss(
        self, weights: Any, acting: Any, batch_stats: Any, key: Array, batch: Transition, hyper: Hyper
    ) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """The critics' objective on one batch, what to report of it, and the statistics after it."""
        next_action, log_prob = self.distribution(acting["actor"], batch.next_obs).sample_and_log_prob(key)
        obs, action = jax.tree.map(
            lambda *x: jnp.concatenate(x), (batch.obs, batch.action), (batch.next_obs, next_action)
        )

        def one(weights, batch_stats):
            variables = {**weights, "batch_stats": batch_stats}
            return self.critic.apply(variables, obs, action, train=True, mutable=["batch_stats", "intermediates"])

        both, new = jax.vmap(one)(weights, batch_stats)
        q, next_q = jnp.split(both, 2, -1)
        next_value = soft_value(jax.lax.stop_gradient(next_q), log_prob, jnp.exp(acting["log_alpha"]))
        loss = critic_loss(q, td_target(batch.reward, batch.terminated, next_value, hyper.gamma))
        sown = new.get("intermediates", {})
        active = active_units(sown) if jax.tree.leaves(sown) else jnp.full((), jnp.nan)
        return loss, ({"loss": loss, "q_value": jnp.mean(q), "active_units": active}, new["batch_stats"])

    def actor_loss(
        self, weights: Any, critic_weights: Any, batch_stats: Any, alpha: Array, key: Array, batch: Transition
    ) -> tuple[Array, Array]:
        """Minus the soft value of the policy (Haarnoja et al. 2018, eq. 7), and its entropy."""
        action, log_prob = self.distribution(weights, batch.obs).sample_and_log_prob(key)
        value = soft_value(self.values(critic_weights, batch_stats, batch.obs, action), log_prob, alpha)
        return -jnp.mean(value), -jnp.mean(log_prob)

    def outputs(self, key: Array) -> tuple[Any, Any]:
        """Actions and values at the first observations: what `make` checks the shapes of."""
        state = self.init(key)
        action = self.distribution(state.weights["actor"], state.obs).mode()
        held = state.replay.items.action[: self.config.num_envs]  # of the right shape, whatever the actor gives
        return action, self.values(state.weights["critic"], state.batch_stats, state.obs, held)

    def policy(self, state: CrossQState) -> Policy:
        return Policy(state.weights["actor"])

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.distribution(policy.weights, obs)
        action = pi.mode() if greedy else pi.sample(key)
        return self.action_space.from_unit(action), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """CrossQ on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` of actions before
            tanh, (..., A) each.
        critic: a flax module from a whole observation, an action and the keyword `train` to values (...), with running
            statistics in the collection `batch_stats`; there will be two of them.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or networks whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("crossq", venv, Box)
    if actor is None:
        actor = Actor(observation_space, action_space.shape[0], config.hidden, config.activation)
    if critic is None:
        critic = Critic(observation_space, config.critic_hidden, config.activation, config.momentum, config.warmup)
    optimizers = optimizer_of(optimizer or config.optimizer, b1=config.b1, eps=config.adam_eps), optimizer_of("adam")
    replay = uniform(config.buffer_size)
    crossq = _CrossQ(config, venv, actor, critic, observation_space, action_space, replay, *optimizers)
    off_policy.check_outputs(action_space, crossq.outputs, (config.num_envs, *action_space.shape), (2, config.num_envs))
    return algorithm_of("crossq", crossq, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
