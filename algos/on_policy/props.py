"""PROPS: PPO on a buffer that a behaviour policy keeps close to the current policy's distribution of actions.

Corrado and Hanna (2023), "On-policy policy gradient reinforcement learning without on-policy sampling"
(arXiv:2311.08290). In a finite sample of the policy pi_theta the proportions of actions differ from its probabilities:
sampling error. PROPS keeps the last `buffer_batches` batches. Every `props_num_steps` steps it starts a behaviour
policy pi_phi at theta and makes actions less likely that the buffer has too often,

    min over phi of  E_buffer[max(r, clip(r, 1 - eps, 1 + eps))] + props_kl_coef KL(pi_theta || pi_phi),

with r = pi_phi(a|s) / pi_theta(a|s), until the KL divergence exceeds `props_target_kl`. PPO then learns from the whole
buffer as if pi_theta had drawn it: probabilities, values and advantages are computed with the current weights.

Special cases: `props_num_epochs` 0 is PPO on the last `buffer_batches` batches; with one batch that is `ppo`. One epoch
of one minibatch after every step is ROS, robust on-policy sampling (Zhong et al. 2022).

The metric `sampling_error` is KL(pi_D || pi_theta), where pi_D is the maximum-likelihood policy of the buffer: counted
where observations and actions are Discrete, else fitted from theta by `fit_steps` gradient steps.

Deviations from the authors' code: the behaviour policy is updated before its steps, so that a batch begins with one for
the current theta; no gradient step follows once a KL limit is exceeded, where theirs takes one more; the fit for the
sampling error trains all layers of the policy, not the last one alone; the rest as in `ppo`. Results:
`experiments/props`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Integer

from jaxrl import on_policy
from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, restarted, shared
from jaxrl.algos.on_policy import ppo
from jaxrl.environment import Environment, pytree
from jaxrl.math import shuffled
from jaxrl.nn import nets, normalize
from jaxrl.nn.losses import mean
from jaxrl.nn.networks import Network
from jaxrl.nn.optim import OptimizerLike, OptimizerState, annealed, optimizer_of
from jaxrl.on_policy import epochs, flattened, policy_of
from jaxrl.returns import gae
from jaxrl.rollout import Ends, rollout, successor_values
from jaxrl.spaces import Discrete, Space, environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(ppo.Config):
    """Static settings: each value compiles its own program."""

    num_steps: int = 512  # steps of each in a batch
    num_epochs: int = 16  # passes over the buffer
    num_minibatches: int = 16  # gradient steps a pass; divides the buffer
    stop_on_kl: bool = True  # no more gradient steps on a buffer once approx_kl exceeds hyper.target_kl
    buffer_batches: int = 2  # batches learnt from, the newest included
    props_num_steps: int = 4  # steps of each environment between updates of the behaviour policy; divides num_steps
    props_num_epochs: int = 16  # passes over the buffer in such an update; 0: the policy itself acts
    props_num_minibatches: int = 4  # gradient steps a pass; divides the buffer
    fit_steps: int = 0  # gradient steps of the fit for sampling_error; 0: only counted, for Discrete spaces

    def __post_init__(self) -> None:
        least = {"props_num_epochs": 0, "fit_steps": 0}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and value < least.get(field.name, 1):
                raise ValueError(f"{field.name}={value}: it must be at least {least.get(field.name, 1)}.")
        if self.num_steps % self.props_num_steps:
            raise ValueError(f"props_num_steps={self.props_num_steps} does not divide num_steps={self.num_steps}.")
        size = self.buffer_batches * self.num_envs * self.num_steps
        for name in ("num_minibatches", "props_num_minibatches"):
            if size % getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)} does not divide buffer_batches * num_envs * num_steps = {size}; "
                    f"{np.gcd(size, getattr(self, name))} does."
                )


@pytree
class Hyper(ppo.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-3
    target_kl: jax.Array = 0.03  # read with Config.stop_on_kl
    props_learning_rate: jax.Array = 1e-3  # of the behaviour policy
    props_clip_eps: jax.Array = 0.3  # no gradient where the ratio r is below 1 - this
    props_kl_coef: jax.Array = 0.0  # weight of KL(policy, behaviour policy); the paper's regulariser
    props_target_kl: jax.Array = 0.01  # largest KL to the policy, at which an update of the behaviour policy ends
    fit_learning_rate: jax.Array = 1e-3  # of the fit for sampling_error


class Transition(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    action: Array  # as sampled, before clipping to the box
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Any  # of the true successor


@pytree
class PROPSState(ppo.PPOState):
    behaviour_optimizer: OptimizerState  # kept from one behaviour policy to the next
    buffer: Any  # Transition (b T, N, ...) of the last b batches, the newest at the end
    num_batches: jax.Array  # number of batches in the buffer


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    transition: Transition
    ends: Ends
    behaviour_kl: Array  # (updates of the behaviour policy,): approx_kl of its last minibatch
    behaviour_steps: Array  # (updates of the behaviour policy,): gradient steps


class BehaviourBatch(NamedTuple):
    """A minibatch for the behaviour policy, leaves (B, ...)."""

    obs: Any
    action: Array
    target: Any  # action distributions of the policy pi_theta
    mask: Array


def sampling_loss(
    log_prob: Float[Array, " B"],
    target_log_prob: Float[Array, " B"],
    clip_eps: Float[Array, ""] | float,
    mask: Bool[Array, " B"] | None = None,
) -> Float[Array, ""]:
    """The clipped loss of the behaviour policy: mean max(r, clip(r, 1 - clip_eps, 1 + clip_eps)), r as above.

    Corrado and Hanna (2023). Recorded actions become less likely; there is no gradient where r is below 1 - clip_eps.
    """
    ratio = jnp.exp(log_prob - target_log_prob)
    return mean(jnp.maximum(ratio, jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps)), mask)


def counted_sampling_error(
    log_prob: Float[Array, "S A"],
    obs: Integer[Array, " B"],
    action: Integer[Array, " B"],
    mask: Bool[Array, " B"],
) -> Float[Array, ""]:
    """KL(pi_D || pi_theta) [nats] over the recorded states, from counts; `log_prob` is pi_theta's in each state."""
    count = jnp.zeros(log_prob.shape, log_prob.dtype).at[obs, action].add(mask.astype(log_prob.dtype))
    log_share = jnp.log(jnp.maximum(count, 1)) - jnp.log(jnp.maximum(count.sum(1, keepdims=True), 1))
    return jnp.sum(count * (log_share - log_prob)) / jnp.maximum(jnp.sum(count), 1)


def fitted_sampling_error(
    log_likelihood: Callable[[Float[Array, " P"]], Float[Array, ""]],
    flat: Float[Array, " P"],
    num_steps: int,
    learning_rate: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """KL(pi_D || pi_theta) [nats] over recorded pairs: the gain in log-likelihood of a fit of the policy to them.

    `log_likelihood` maps flattened weights to the mean over the buffer; `flat` are the weights of the policy. The fit
    takes `num_steps` steps of Adam, whose learning rate decreases linearly to a third.
    """

    adam = optimizer_of("adam")

    def step(carry, i):
        rate = learning_rate * (1 - 2 / 3 * i / num_steps)
        grads = jax.grad(lambda flat: -log_likelihood(flat))(carry[0])
        return adam.descend(carry[0], carry[1], grads, rate)[:2], None

    fitted: Any
    (fitted, _), _ = jax.lax.scan(step, (flat, adam.init(flat, learning_rate)), jnp.arange(num_steps))
    return log_likelihood(fitted) - log_likelihood(flat)


def behaviour_loss(
    weights: Any, batch: BehaviourBatch, hyper: Hyper, network: Network, observation_space: Space, space: Space
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """`(loss, metrics)` of the behaviour policy on a minibatch; the metrics have `approx_kl` to the policy."""
    pi: Any = policy_of(network, weights, batch.obs, observation_space, space)
    log_prob, target_log_prob = pi.log_prob(batch.action), batch.target.log_prob(batch.action)
    sampling = sampling_loss(log_prob, target_log_prob, hyper.props_clip_eps, batch.mask)
    log_ratio = log_prob - target_log_prob
    approx_kl = mean(jnp.expm1(log_ratio) - log_ratio, batch.mask)
    return sampling + hyper.props_kl_coef * mean(batch.target.kl(pi), batch.mask), {"approx_kl": approx_kl}


@dataclasses.dataclass(frozen=True)
class _PROPS:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    slots: ClassVar = ("reward_scaler.returns", "buffer", "num_batches")
    config: Config
    venv: VectorEnv
    ppo: ppo.PPO  # the learner from the buffer

    @property
    def optimizer(self) -> Any:
        return self.ppo.optimizer

    @property
    def parts(self) -> tuple[Network, Space, Space]:
        return self.ppo.network, self.ppo.observation_space, self.ppo.action_space

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> PROPSState:
        begun = self.ppo.begin(Hyper, key, hyper, env_params)
        state = PROPSState(
            **begun,
            behaviour_optimizer=self.optimizer.init(begun["weights"], begun["hyper"].props_learning_rate),
            buffer=None,
            num_batches=jnp.int32(0),
        )
        rows = self.config.buffer_batches * self.config.num_steps
        shapes = jax.eval_shape(lambda state: self.advance(state, state.weights, rows)[1].transition, state)
        return state.replace(buffer=jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes))

    def restart(self, state: PROPSState, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> PROPSState:
        """Starts a new episode in the slots of `mask`.

        In the buffer the old episode is truncated; the running discounted return of rewards starts at 0.
        """
        state = restarted(self.venv, state, key, env_params, mask)
        if state.buffer is not None:
            cut = state.buffer.truncated[-1] | (mask & ~state.buffer.terminated[-1])
            truncated = state.buffer.truncated.at[-1].set(cut)
            state = state.replace(buffer=state.buffer._replace(truncated=truncated))
        if state.reward_scaler is None:
            return state
        return state.replace(reward_scaler=state.reward_scaler.restarted(mask))

    def advance(self, state: PROPSState, weights: Any, num_steps: int) -> tuple[PROPSState, Rollout]:
        """`num_steps` steps of the policy with `weights`."""

        def act(key, obs, carry):
            action = self.ppo.distribution(weights, obs, state.normalizer).sample(key)
            return environment_action(self.ppo.action_space, action), action, carry

        state, _, steps = rollout(self.venv, state, num_steps, act)
        transition = Transition(
            steps.obs, steps.output, steps.reward, steps.terminated, steps.truncated, steps.next_obs
        )
        zero = jnp.zeros((), jnp.result_type(float))
        return state, Rollout(transition, steps.ends, zero, jnp.int32(0))

    def collect(self, state: PROPSState) -> tuple[PROPSState, Rollout]:
        """A batch, with a new behaviour policy every `props_num_steps` steps (Corrado and Hanna 2023, algorithm 1)."""
        config = self.config
        if not config.props_num_epochs:
            new_state, steps = self.advance(state, state.weights, config.num_steps)
            return new_state, steps._replace(
                behaviour_kl=steps.behaviour_kl[None], behaviour_steps=steps.behaviour_steps[None]
            )
        oldest = (config.buffer_batches - 1) * config.num_steps
        first = jnp.maximum(oldest - state.num_batches * config.num_steps, 0)
        row = jnp.arange(oldest + config.num_steps)

        def part(carry, end):
            state, buffer = carry
            state, weights, approx_kl, steps = self.behave(state, buffer, (row >= first) & (row < end))
            state, new = self.advance(state, weights, config.props_num_steps)
            buffer = jax.tree.map(
                lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, end, 0), buffer, new.transition
            )
            return (state, buffer), new._replace(behaviour_kl=approx_kl, behaviour_steps=steps)

        buffer = jax.tree.map(lambda x: jnp.roll(x, -config.num_steps, 0), state.buffer)
        upto = oldest + jnp.arange(0, config.num_steps, config.props_num_steps)
        (new_state, _), parts = jax.lax.scan(part, (state, buffer), upto)
        transition, ends = jax.tree.map(lambda x: x.reshape(config.num_steps, *x.shape[2:]), parts[:2])
        return new_state, Rollout(transition, ends, *parts[2:])

    def behave(
        self, state: PROPSState, buffer: Transition, rows: Bool[Array, " T"]
    ) -> tuple[PROPSState, Any, Float[Array, ""], Integer[Array, ""]]:
        """`(state, weights, approx_kl, gradient steps)` of a behaviour policy for the filled `rows` of the buffer.

        It starts at the policy and stops where the KL between the two exceeds the limit (Corrado and Hanna 2023,
        algorithm 2).
        """
        config = self.config
        key, order_key = jax.random.split(state.key)
        target = self.ppo.distribution(state.weights, buffer.obs, state.normalizer)
        mask = jnp.broadcast_to(rows[:, None], buffer.reward.shape)
        batch = BehaviourBatch(normalize.normalize(state.normalizer, buffer.obs), buffer.action, target, mask)
        # Reverse-mode differentiation cannot pass a loop of unknown length; it is not needed, as actions are data.
        batch, weights, hyper, optimizer = jax.lax.stop_gradient(
            (flattened(batch), state.weights, state.hyper, state.behaviour_optimizer)
        )
        orders = shuffled(order_key, (config.props_num_epochs, mask.size))
        orders = orders.reshape(config.props_num_epochs * config.props_num_minibatches, -1)

        def gradient_step(carry):
            k, steps, net, last_kl, _ = carry
            batch_k = jax.tree.map(lambda x: x[orders[k]], batch)
            new, report = net.descend(
                lambda weights: behaviour_loss(weights, batch_k, hyper, *self.parts),
                hyper.props_learning_rate,
                hyper.max_grad_norm,
            )
            stopped = report["approx_kl"] > hyper.props_target_kl
            some = batch_k.mask.any()
            skip = stopped | ~some
            net = jax.tree.map(functools.partial(jnp.where, skip), net, new)
            return k + 1, steps + ~skip, net, jnp.where(some, report["approx_kl"], last_kl), stopped

        net = nets.net(weights, optimizer, self.optimizer)
        start = (jnp.int32(0), jnp.int32(0), net, jnp.zeros((), net.flat.dtype), ~rows.any())
        _, steps, net, approx_kl, _ = jax.lax.while_loop(
            lambda carry: ~carry[-1] & (carry[0] < len(orders)), gradient_step, start
        )
        return state.replace(key=key, behaviour_optimizer=net.state), net.weights, approx_kl, steps

    def learn(self, state: PROPSState, rollout: Rollout) -> tuple[PROPSState, dict[str, Array]]:
        """PPO's epochs on the whole buffer, whose values and advantages are computed with the current weights."""
        config, hyper = self.config, state.hyper
        key, shuffle_key = jax.random.split(state.key)
        new = rollout.transition
        buffer: Transition = jax.tree.map(lambda x, y: jnp.concatenate([x[config.num_steps :], y]), state.buffer, new)
        num_batches = jnp.minimum(state.num_batches + 1, config.buffer_batches)
        scaler = state.reward_scaler
        if scaler is not None:
            scaler = scaler.update(new.reward, new.terminated | new.truncated, hyper.gamma)
        batch = flattened(self.targets(state, buffer, num_batches, scaler))
        learning_rate = annealed(
            hyper.learning_rate, state.step - config.num_steps * config.num_envs, hyper.anneal_steps
        )
        gradient_step = functools.partial(self.ppo.gradient_step, hyper=hyper, learning_rate=learning_rate)
        orders = shuffled(shuffle_key, (config.num_epochs, batch.mask.size))
        start = nets.net(state.weights, state.optimizer, self.optimizer), jnp.bool_(False)
        (net, _), report = epochs(gradient_step, start, batch, orders, config.num_minibatches)
        metrics = {
            **rollout.ends.metrics(),
            **report,
            **self.sampling_error(state, batch),
            "behaviour_kl": jnp.mean(rollout.behaviour_kl),
            "behaviour_steps": jnp.mean(rollout.behaviour_steps, dtype=net.flat.dtype),
            "learning_rate": learning_rate,
        }
        normalizer = state.normalizer
        if normalizer is not None:
            normalizer = normalize.update(normalizer, new.obs, axes=(0, 1))
        state = state.replace(key=key, weights=net.weights, optimizer=net.state, buffer=buffer, num_batches=num_batches)
        return state.replace(normalizer=normalizer, reward_scaler=scaler), metrics

    def targets(self, state: PROPSState, buffer: Transition, num_batches: Array, scaler: Any) -> ppo.Batch:
        """Log-probabilities, values and advantages of the buffer (b T, N), whose last `num_batches` are filled."""
        reward = buffer.reward if scaler is None else scaler.scale(buffer.reward)
        row = jnp.arange(len(reward))
        held = row >= len(row) - num_batches * self.config.num_steps

        def critic(obs):
            obs = normalize.normalize(state.normalizer, obs)
            return self.ppo.network.apply(state.weights, obs, method="critic")

        value: Any = critic(buffer.obs)
        next_value = successor_values(critic, value, state.obs, buffer.next_obs, buffer.truncated)
        discounts = state.hyper.gamma, state.hyper.gae_lambda
        advantage = gae(reward, value, next_value, buffer.terminated, buffer.truncated, *discounts)
        log_prob = self.ppo.distribution(state.weights, buffer.obs, state.normalizer).log_prob(buffer.action)
        obs, mask = normalize.normalize(state.normalizer, buffer.obs), jnp.broadcast_to(held[:, None], reward.shape)
        return ppo.Batch(obs, buffer.action, log_prob, value, advantage, advantage + value, mask)

    def sampling_error(self, state: PROPSState, batch: ppo.Batch) -> dict[str, Array]:
        """`{"sampling_error": ...}` over the masked buffer; empty where it is not computed."""
        network, observation_space, action_space = self.parts
        mask: Any = batch.mask
        if isinstance(observation_space, Discrete) and isinstance(action_space, Discrete):
            logits: Any = network.apply(state.weights, jnp.arange(observation_space.n), method="actor")
            return {"sampling_error": counted_sampling_error(jax.nn.log_softmax(logits), batch.obs, batch.action, mask)}
        if not self.config.fit_steps:
            return {}
        flat, unravel = ravel_pytree(state.weights)

        def log_likelihood(flat):
            # The observations are normalised already.
            return mean(policy_of(network, unravel(flat), batch.obs, *self.parts[1:]).log_prob(batch.action), mask)

        error = fitted_sampling_error(log_likelihood, flat, self.config.fit_steps, state.hyper.fit_learning_rate)
        return {"sampling_error": error}

    def policy(self, state: PROPSState) -> ppo.Policy:
        return self.ppo.policy(state)

    def act(self, policy: ppo.Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        return self.ppo.act(policy, key, obs, carry, greedy)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """PROPS on `env`. Equal arguments give the same functions, so they share one jit cache.

    `on_policy.actor_critic` explains `network` and the errors; `optimizer` replaces `config.optimizer`.
    """
    venv = as_vector_env(env, config.num_envs)
    parts = on_policy.actor_critic("props", venv, config, network)
    student = ppo.PPO(config, venv, *parts, optimizer_of(optimizer or config.optimizer, eps=config.adam_eps))
    return algorithm_of("props", _PROPS(config, venv, student), Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
