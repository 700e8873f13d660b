"""PROPS: PPO on data that look on-policy because the acting policy fills in what the buffer lacks.

Corrado and Hanna (2023), "On-policy policy gradient reinforcement learning without on-policy sampling"
(arXiv:2311.08290). A finite sample of the policy pi_theta has the wrong proportions of actions: sampling error. PROPS
keeps the last `buffer_batches` batches and, every `props_num_steps` steps, starts a behaviour policy pi_phi at theta
and moves it away from what the buffer has too much of,

    min over phi of  E_buffer[max(r, clip(r, 1 - eps, 1 + eps))] + props_kl_coef KL(pi_theta || pi_phi),

with r = pi_phi(a|s) / pi_theta(a|s), until the KL divergence exceeds `props_target_kl`. PPO then learns from the whole
buffer as if pi_theta had drawn it: probabilities, values and advantages are those of the present weights.

Special cases: no `props_num_epochs` is PPO on the last `buffer_batches` batches, and on one batch it is `ppo`. One
epoch of one minibatch after every step is ROS, robust on-policy sampling (Zhong et al. 2022).

The metric `sampling_error` is KL(pi_D || pi_theta), where pi_D is the policy that makes the buffer most likely: counted
where observations and actions are Discrete, fitted from theta by `fit_steps` gradient steps elsewhere.

Deviations from the authors' code: the behaviour policy is updated before its steps, so that a batch begins with one
that belongs to the present theta; no gradient step once a limit of KL is exceeded, where theirs takes one more; the fit
for the sampling error trains all layers of the policy, not the last one; the rest as in `ppo`. Results:
`experiments/props`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, restarted, shared, spaces_of, starting_values
from jaxrl.algos.on_policy.ppo import Batch, Policy, loss
from jaxrl.environment import Environment, pytree, split_observation, visible
from jaxrl.math import shuffled
from jaxrl.nn import normalize
from jaxrl.nn.distributions import Distribution, num_outputs, of_space
from jaxrl.nn.losses import mean
from jaxrl.nn.networks import ActorCritic
from jaxrl.nn.optim import Optimizer, OptimizerLike, OptimizerState, annealed, optimizer_of
from jaxrl.returns import gae
from jaxrl.rollout import Ends, minibatches, rollout, successor_values
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space, environment_action
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 4  # environments stepped together
    num_steps: int = 512  # steps of each in a batch
    buffer_batches: int = 2  # batches learnt from, the newest included
    num_epochs: int = 16  # passes over the buffer
    num_minibatches: int = 16  # gradient steps a pass; divides the buffer
    props_num_steps: int = 4  # steps of each environment between updates of the behaviour policy; divides num_steps
    props_num_epochs: int = 16  # passes over the buffer of such an update; 0: act with the policy itself
    props_num_minibatches: int = 4  # gradient steps a pass; divides the buffer
    fit_steps: int = 0  # gradient steps of the fit for sampling_error; 0: only where it can be counted
    hidden: tuple[int, ...] = (64, 64)  # widths of actor and critic
    activation: str = "tanh"
    normalize_obs: bool = False
    normalize_reward: bool = False  # by the standard deviation of the discounted return
    normalize_advantage: bool = True  # per minibatch
    clip_value: bool = True
    stop_on_kl: bool = True  # no more gradient steps on a buffer once approx_kl exceeds hyper.target_kl
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-5  # added to the denominator of Adam and its kin

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
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-3
    anneal_steps: jax.Array = 0  # environment steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    gae_lambda: jax.Array = 0.95
    clip_eps: jax.Array = 0.2
    ent_coef: jax.Array = 0.01
    vf_coef: jax.Array = 0.5
    max_grad_norm: jax.Array = 0.5
    target_kl: jax.Array = 0.03  # read with Config.stop_on_kl
    props_learning_rate: jax.Array = 1e-3  # of the behaviour policy
    props_clip_eps: jax.Array = 0.3  # no gradient where its probability is this share below the policy's
    props_kl_coef: jax.Array = 0.0  # weight of KL(policy, behaviour policy); the paper's regulariser
    props_target_kl: jax.Array = 0.01  # an update of the behaviour policy ends when its KL to the policy exceeds it
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
class PROPSState:
    key: jax.Array
    hyper: Hyper
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # environment steps done
    weights: Any
    optimizer: OptimizerState
    behaviour_optimizer: OptimizerState  # goes on from one behaviour policy to the next
    buffer: Any  # Transition (b T, N, ...) of the last b batches, the newest at the end
    num_batches: jax.Array  # how many of them there are so far
    normalizer: Any
    reward_scaler: Any


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    transition: Transition
    ends: Ends
    behaviour_kl: Array  # (updates of the behaviour policy,): approx_kl of its last minibatch
    behaviour_steps: Array  # (updates of the behaviour policy,): gradient steps


class BehaviourBatch(NamedTuple):
    """What a minibatch for the behaviour policy holds."""

    obs: Any
    action: Array
    target: Any  # the policy's distributions
    mask: Array


def sampling_loss(
    log_prob: Float[Array, " B"],
    target_log_prob: Float[Array, " B"],
    clip_eps: Float[Array, ""] | float,
    mask: Bool[Array, " B"] | None = None,
) -> Float[Array, ""]:
    """What the behaviour policy minimises: its probability of recorded actions, down to 1 - clip_eps of the policy's.

    Corrado and Hanna (2023), the clipped objective: no gradient below, whatever is above is brought back.
    """
    ratio = jnp.exp(log_prob - target_log_prob)
    return mean(jnp.maximum(ratio, jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps)), mask)


def counted_sampling_error(
    log_prob: Float[Array, "S A"],
    obs: Integer[Array, " B"],
    action: Integer[Array, " B"],
    mask: Bool[Array, " B"],
) -> Float[Array, ""]:
    """KL(pi_D || pi_theta) [nats] over the recorded states, from counts; `log_prob` is pi_theta's in every state."""
    count = jnp.zeros(log_prob.shape, log_prob.dtype).at[obs, action].add(mask.astype(log_prob.dtype))
    log_share = jnp.log(jnp.maximum(count, 1)) - jnp.log(jnp.maximum(count.sum(1, keepdims=True), 1))
    return jnp.sum(count * (log_share - log_prob)) / jnp.maximum(jnp.sum(count), 1)


def fitted_sampling_error(
    log_likelihood: Callable[[Float[Array, " P"]], Float[Array, ""]],
    flat: Float[Array, " P"],
    num_steps: int,
    learning_rate: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """KL(pi_D || pi_theta) [nats] over the recorded pairs: how much likelier they get by fitting the policy to them.

    `log_likelihood` is the mean over the buffer for flattened weights, `flat` the policy's. `num_steps` of Adam, whose
    rate goes down linearly to a third.
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
    weights: Any, batch: BehaviourBatch, hyper: Hyper, network: nn.Module, observation_space: Space, space: Space
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`(objective of the behaviour policy, approx_kl to the policy)` of one minibatch."""
    outputs: Any = network.apply(weights, batch.obs, method="actor")
    pi: Any = of_space(space, outputs, split_observation(batch.obs, observation_space)[2])
    log_prob, target_log_prob = pi.log_prob(batch.action), batch.target.log_prob(batch.action)
    sampling = sampling_loss(log_prob, target_log_prob, hyper.props_clip_eps, batch.mask)
    log_ratio = log_prob - target_log_prob
    approx_kl = mean(jnp.expm1(log_ratio) - log_ratio, batch.mask)
    return sampling + hyper.props_kl_coef * mean(batch.target.kl(pi), batch.mask), approx_kl


@dataclasses.dataclass(frozen=True)
class _PROPS:
    """The static half; its methods are the Algorithm's functions."""

    slots: ClassVar = ("reward_scaler.returns", "buffer", "num_batches")
    config: Config
    venv: VectorEnv
    network: nn.Module
    observation_space: Space
    action_space: Space
    optimizer: Optimizer

    def distribution(self, weights: Any, obs: Any, normalizer: Any) -> Distribution:
        outputs: Any = self.network.apply(weights, normalize.normalize(normalizer, obs), method="actor")
        return of_space(self.action_space, outputs, split_observation(obs, self.observation_space)[2])

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> PROPSState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.venv.reset(reset_key, env_params)
        first = jax.tree.map(lambda x: x[0], obs)
        weights = self.network.init(weights_key, first)
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        state = PROPSState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            optimizer=self.optimizer.init(weights, hyper.learning_rate),
            behaviour_optimizer=self.optimizer.init(weights, hyper.props_learning_rate),
            buffer=None,
            num_batches=jnp.int32(0),
            normalizer=normalize.init(first) if self.config.normalize_obs else None,
            reward_scaler=normalize.RewardScaler.init(self.config.num_envs) if self.config.normalize_reward else None,
        )
        rows = self.config.buffer_batches * self.config.num_steps
        shapes = jax.eval_shape(lambda state: self.advance(state, state.weights, rows)[1].transition, state)
        return state.replace(buffer=jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes))

    def advance(self, state: PROPSState, weights: Any, num_steps: int) -> tuple[PROPSState, Rollout]:
        """`num_steps` steps of the policy with `weights`."""

        def act(key, obs, carry):
            action = self.distribution(weights, obs, state.normalizer).sample(key)
            return environment_action(self.action_space, action), action, carry

        state, _, steps = rollout(self.venv, state, num_steps, act)
        transition = Transition(
            steps.obs, steps.output, steps.reward, steps.terminated, steps.truncated, steps.next_obs
        )
        zero = jnp.zeros((), jnp.result_type(float))
        return state, Rollout(transition, steps.ends, zero, jnp.int32(0))

    def behave(
        self, state: PROPSState, buffer: Transition, rows: Bool[Array, " T"]
    ) -> tuple[PROPSState, Any, Float[Array, ""], Integer[Array, ""]]:
        """`(state, weights, approx_kl, gradient steps)` of the behaviour policy for a buffer that holds `rows`."""
        config = self.config
        key, order_key = jax.random.split(state.key)
        target = self.distribution(state.weights, buffer.obs, state.normalizer)
        mask = jnp.broadcast_to(rows[:, None], buffer.reward.shape)
        batch = BehaviourBatch(normalize.normalize(state.normalizer, buffer.obs), buffer.action, target, mask)
        # Reverse-mode differentiation cannot pass a loop of unknown length; it need not, as actions are data.
        batch, weights, hyper, optimizer = jax.lax.stop_gradient(
            (_flat(batch), state.weights, state.hyper, state.behaviour_optimizer)
        )
        flat, unravel = ravel_pytree(weights)
        orders = shuffled(order_key, (config.props_num_epochs, mask.size))
        orders = orders.reshape(config.props_num_epochs * config.props_num_minibatches, -1)
        gradient = jax.grad(behaviour_loss, has_aux=True)

        def minibatch(carry):
            k, steps, flat, optimizer, last_kl, _ = carry
            batch_k = jax.tree.map(lambda x: x[orders[k]], batch)
            grads, approx_kl = gradient(
                unravel(flat), batch_k, hyper, self.network, self.observation_space, self.action_space
            )
            *new, _ = self.optimizer.descend(flat, optimizer, grads, hyper.props_learning_rate, hyper.max_grad_norm)
            stopped = approx_kl > hyper.props_target_kl
            some = batch_k.mask.any()
            skip = stopped | ~some
            flat, optimizer = jax.tree.map(functools.partial(jnp.where, skip), [flat, optimizer], new)
            return k + 1, steps + ~skip, flat, optimizer, jnp.where(some, approx_kl, last_kl), stopped

        start = (jnp.int32(0), jnp.int32(0), flat, optimizer, jnp.zeros((), flat.dtype), ~rows.any())
        _, steps, flat, optimizer, approx_kl, _ = jax.lax.while_loop(
            lambda carry: ~carry[-1] & (carry[0] < len(orders)), minibatch, start
        )
        return state.replace(key=key, behaviour_optimizer=optimizer), unravel(flat), approx_kl, steps

    def restart(self, state: PROPSState, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> PROPSState:
        """A new episode in the slots of `mask`: in the buffer the one that is cut is a truncated one, and what was
        earned in it is no part of the new one's return.
        """
        state = restarted(self.venv, state, key, env_params, mask)
        if state.buffer is not None:
            cut = state.buffer.truncated[-1] | (mask & ~state.buffer.terminated[-1])
            truncated = state.buffer.truncated.at[-1].set(cut)
            state = state.replace(buffer=state.buffer._replace(truncated=truncated))
        if state.reward_scaler is None:
            return state
        return state.replace(reward_scaler=state.reward_scaler.restarted(mask))

    def collect(self, state: PROPSState) -> tuple[PROPSState, Rollout]:
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

    def learn(self, state: PROPSState, rollout: Rollout) -> tuple[PROPSState, dict[str, Array]]:
        config, hyper = self.config, state.hyper
        key, shuffle_key = jax.random.split(state.key)
        new = rollout.transition
        new_done = new.terminated | new.truncated
        buffer: Transition = jax.tree.map(lambda x, y: jnp.concatenate([x[config.num_steps :], y]), state.buffer, new)
        num_batches = jnp.minimum(state.num_batches + 1, config.buffer_batches)
        row = jnp.arange(len(buffer.reward))
        mask = jnp.broadcast_to((row >= len(row) - num_batches * config.num_steps)[:, None], buffer.reward.shape)
        reward, scaler = buffer.reward, state.reward_scaler
        if scaler is not None:
            scaler = normalize.RewardScaler.update(scaler, new.reward, new_done, hyper.gamma)
            reward = normalize.RewardScaler.scale(scaler, reward)

        def critic(obs):
            return self.network.apply(state.weights, normalize.normalize(state.normalizer, obs), method="critic")

        value: Any = critic(buffer.obs)
        next_value = successor_values(critic, value, state.obs, buffer.next_obs, buffer.truncated)
        advantage = gae(reward, value, next_value, buffer.terminated, buffer.truncated, hyper.gamma, hyper.gae_lambda)
        log_prob = self.distribution(state.weights, buffer.obs, state.normalizer).log_prob(buffer.action)
        obs = normalize.normalize(state.normalizer, buffer.obs)
        batch = _flat(Batch(obs, buffer.action, log_prob, value, advantage, advantage + value, mask))
        flat, unravel = ravel_pytree(state.weights)
        learning_rate = annealed(
            hyper.learning_rate, state.step - config.num_steps * config.num_envs, hyper.anneal_steps
        )
        gradient = jax.grad(loss, has_aux=True)

        def minibatch(carry, batch):
            flat, optimizer, stopped = carry
            grads, report = gradient(
                unravel(flat), batch, hyper, config, self.network, self.observation_space, self.action_space
            )
            *new, report["grad_norm"] = self.optimizer.descend(
                flat, optimizer, grads, learning_rate, hyper.max_grad_norm
            )
            if config.stop_on_kl:
                stopped = stopped | (report["approx_kl"] > hyper.target_kl)
            skip = stopped | ~batch.mask.any()
            new = jax.tree.map(functools.partial(jnp.where, skip), [flat, optimizer], new)
            return (*new, stopped), report

        def epoch(carry, order):
            return jax.lax.scan(minibatch, carry, minibatches(batch, order, config.num_minibatches))

        orders = shuffled(shuffle_key, (config.num_epochs, mask.size))
        carry: Any = (flat, state.optimizer, jnp.bool_(False))
        carry, reports = jax.lax.scan(epoch, carry, orders)
        metrics = {
            **rollout.ends.metrics(),
            **jax.tree.map(jnp.mean, reports),
            **self.sampling_error(state, flat, unravel, batch, mask.reshape(-1)),
            "behaviour_kl": jnp.mean(rollout.behaviour_kl),
            "behaviour_steps": jnp.mean(rollout.behaviour_steps, dtype=flat.dtype),
            "learning_rate": learning_rate,
        }
        normalizer = state.normalizer
        if normalizer is not None:
            normalizer = normalize.update(normalizer, new.obs, axes=(0, 1))
        state = state.replace(
            key=key,
            weights=unravel(carry[0]),
            optimizer=carry[1],
            buffer=buffer,
            num_batches=num_batches,
            normalizer=normalizer,
            reward_scaler=scaler,
        )
        return state, metrics

    def sampling_error(
        self, state: PROPSState, flat: Array, unravel: Callable, batch: Batch, mask: Array
    ) -> dict[str, Array]:
        """The metric of that name, of what `mask` keeps of the buffer; empty where it is not to be computed."""
        if isinstance(self.observation_space, Discrete) and isinstance(self.action_space, Discrete):
            states = jnp.arange(self.observation_space.n)
            logits: Any = self.network.apply(state.weights, states, method="actor")
            error = counted_sampling_error(jax.nn.log_softmax(logits), batch.obs, batch.action, mask)
        elif self.config.fit_steps:

            def log_likelihood(flat):
                # The observations are normalised already.
                return mean(self.distribution(unravel(flat), batch.obs, None).log_prob(batch.action), mask)

            error = fitted_sampling_error(log_likelihood, flat, self.config.fit_steps, state.hyper.fit_learning_rate)
        else:
            return {}
        return {"sampling_error": error}

    def policy(self, state: PROPSState) -> Policy:
        return Policy(state.weights, normalize.visible(state.normalizer))

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.distribution(policy.weights, visible(obs), policy.normalizer)
        return environment_action(self.action_space, pi.mode() if greedy else pi.sample(key)), carry


def _flat(batch: Any) -> Any:
    """(T, N, ...) -> (T N, ...)."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """PROPS on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module with the methods `actor`, `critic` and `__call__` (both) of `ActorCritic`.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space it cannot handle, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("props", venv, Discrete, MultiDiscrete, Box)
    outputs = num_outputs(action_space)
    continuous = isinstance(action_space, Box)
    if network is None:
        network = ActorCritic(observation_space, outputs, continuous, config.hidden, config.activation)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    props = _PROPS(config, venv, network, observation_space, action_space, chosen)
    state = jax.eval_shape(props.init, jax.random.key(0))
    head, value = jax.eval_shape(lambda s: network.apply(s.weights, s.obs), state)
    head_shape = (head[0] if continuous else head).shape
    if head_shape[-1] != outputs or value.shape != (config.num_envs,):
        raise ValueError(
            f"network gives outputs {head_shape} and values {value.shape} for {config.num_envs} observations; "
            f"{action_space} needs {(config.num_envs, outputs)} and {(config.num_envs,)}."
        )
    return algorithm_of("props", props, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
