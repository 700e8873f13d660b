"""Deep Q-networks, and what their relatives share.

Mnih et al. (2015), "Human-level control through deep reinforcement learning" (Nature 518), with, as static choices,
double Q-learning (van Hasselt et al. 2016), the dueling head (Wang et al. 2016), n-step targets (as in Hessel et al.
2018), prioritised replay (Schaul et al. 2016) and noisy networks (Fortunato et al. 2018). Where a transition's window
holds k rewards, k <= n and smaller only where the episode ends, its target is

    y = r[0] + gamma r[1] + ... + gamma^(k-1) r[k-1] + gamma^k Q_target(s[k], argmax_a Q(s[k], a))

without the last term if the episode terminated. `Config.critic` says how outputs stand for Q and what they learn:

    mse, huber          Q itself                 half the squared error of y, linear beyond 1
    two_hot, hl_gauss   logits over bins         cross entropy with y on two bins, or with a Gaussian around y
    c51                 logits over atoms        cross entropy with the projected distribution of y
    quantile            quantiles of the return  quantile Huber loss

(two_hot, hl_gauss: Farebrother et al. 2024, "Stop Regressing"; for the others see c51.py and qr_dqn.py.)

Deviations: episodes cut by a time limit bootstrap from their final observation; Adam instead of RMSprop; several
environments step together; the target network moves and priorities change after the gradient steps of an update, not
between them; epsilon stays as it is during a rollout; the loss is half the squared error, so that `huber` is the same
near zero; priorities of mse and huber are absolute errors, of bins and atoms the divergence KL(target || prediction),
of quantiles the loss. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from jaxrl.algorithm import (
    Algorithm,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    episode_metrics,
    spaces_of,
    starting_values,
)
from jaxrl.environment import Environment, is_concrete, pytree, split_observation, visible
from jaxrl.math import fast_key
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.nn.networks import MLP, Encoder, activation_function, active_units
from jaxrl.nn.optim import AdamState, adam_init, annealed, descend
from jaxrl.nn.value_heads import CATEGORICAL, CRITICS, SCALAR, action_values, critic_loss, half_square
from jaxrl.replay.off_policy import gradient_steps_due
from jaxrl.replay.ring import Replay
from jaxrl.replay.sequence import prioritised_sequence, sequence
from jaxrl.rollout import rollout
from jaxrl.spaces import Discrete, Space
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 10  # environments stepped together
    num_steps: int = 1  # steps of each between updates
    num_updates: int = 1  # gradient steps an update, at most: see Hyper.replay_ratio
    batch_size: int = 128
    buffer_size: int = 10_000  # transitions kept; a multiple of num_envs
    n_step: int = 1  # rewards before the bootstrap
    double: bool = True  # the online network picks the action that the target network values
    critic: str = "mse"  # one of CRITICS: what the outputs of an action mean, and their loss
    num_outputs: int = 101  # of an action: bins, atoms or quantiles; mse and huber have 1
    prioritised: bool = False  # replay by the priorities of Hyper, not uniformly
    dueling: bool = False  # the default network's head: a state value plus centred advantages
    noisy: bool = False  # the default network explores by noise on its weights; set epsilon to 0 then
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (120, 84)
    activation: str = "relu"

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.critic not in CRITICS:
            raise ValueError(f"critic={self.critic!r} is unknown; use one of {', '.join(CRITICS)}.")
        least = 5 if self.critic == "hl_gauss" else 2
        if self.critic not in SCALAR and self.num_outputs < least:
            raise ValueError(f"num_outputs={self.num_outputs}: {self.critic} needs at least {least}.")


def check_sizes(config: Any) -> None:
    """Raise ValueError for counts below 1, or a replay that does not hold a rollout and a window."""
    check_at_least_one(config, "num_envs", "num_steps", "num_updates", "batch_size", "n_step")
    # Where windows have priorities, those that begin before a rollout and end in it must still be held.
    both = config.num_steps + config.n_step - 1 if config.prioritised else max(config.num_steps, config.n_step)
    least = config.num_envs * both
    if config.buffer_size < least or config.buffer_size % config.num_envs:
        near = max(round(config.buffer_size / config.num_envs) * config.num_envs, least)
        raise ValueError(
            f"buffer_size={config.buffer_size}: it must be a multiple of num_envs={config.num_envs} and hold a rollout "
            f"and n_step={config.n_step} steps of each environment; {near} does."
        )


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps."""

    learning_rate: jax.Array = 2.5e-4
    anneal_steps: jax.Array = 0  # steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    epsilon_start: jax.Array = 1.0  # probability of a random action, at first
    epsilon_end: jax.Array = 0.05  # and after exploration_steps, linear between
    exploration_steps: jax.Array = 250_000
    learning_starts: jax.Array = 10_000  # steps before the first gradient step
    target_period: jax.Array = 500  # steps between updates of the target network; at most once an update
    tau: jax.Array = 1.0  # how far it then moves to the online one; 1: a copy
    max_grad_norm: jax.Array = 10.0
    replay_ratio: jax.Array = float("inf")  # gradient steps per environment step; inf: num_updates an update
    v_min: jax.Array = -100.0  # two_hot, hl_gauss, c51: the smallest return that they can represent
    v_max: jax.Array = 100.0  # and the largest
    priority_alpha: jax.Array = 0.5  # prioritised: 0 is uniform
    priority_beta: jax.Array = 0.4  # how far its bias is corrected, at first
    priority_steps: jax.Array = 0  # steps until the correction is full; 0: it stays as it is


class NoisyDense(nn.Module):
    """A dense layer with factorised Gaussian noise on weights and bias (Fortunato et al. 2018, eq. 9 to 11).

    The noise is of the call's rng "noise"; without one the weights are their means.
    """

    features: int
    sigma: float = 0.5  # standard deviation at first, times the root of the number of inputs

    @nn.compact
    def __call__(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch out"]:
        bound = x.shape[-1] ** -0.5

        def uniform(key, shape):
            return jax.random.uniform(key, shape, minval=-bound, maxval=bound)

        shapes = {"kernel": (x.shape[-1], self.features), "bias": (self.features,)}
        mean = {name: self.param(name, uniform, shape) for name, shape in shapes.items()}
        spread = nn.initializers.constant(self.sigma * bound)
        scale = {name: self.param(f"{name}_sigma", spread, shape) for name, shape in shapes.items()}
        out = x @ mean["kernel"] + mean["bias"]
        if not self.has_rng("noise"):
            return out
        noise = jax.random.normal(self.make_rng("noise"), (sum(shapes["kernel"]),), x.dtype)
        noise = jnp.sign(noise) * jnp.sqrt(jnp.abs(noise))
        before, after = noise[: x.shape[-1]], noise[x.shape[-1] :]
        # The noise of the kernel is an outer product: on the inputs and on the outputs it needs no noisy matrix.
        return out + ((x * before) @ scale["kernel"] + scale["bias"]) * after


class QNetwork(nn.Module):
    """The default network. Bring your own, a module from observations (..., *) to outputs of n actions.

    Those are (..., n) where an action has one output, else (..., n, num_outputs).
    """

    observation_space: Space
    num_actions: int
    hidden: tuple[int, ...]
    activation: str
    dueling: bool
    num_outputs: int = 1
    noisy: bool = False
    conv: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, obs: Any) -> Float[Array, "... n"]:
        # Both streams of a dueling head are linear in the last hidden layer: one matrix.
        rows = self.num_actions + self.dueling
        x = Encoder(self.observation_space, self.conv, self.activation)(obs)
        if self.noisy:
            for width in self.hidden:
                x = activation_function(self.activation)(NoisyDense(width)(x))
                self.sow("intermediates", "active", jnp.mean(x > 0))
            out = NoisyDense(rows * self.num_outputs)(x)
        else:
            out = MLP(self.hidden, rows * self.num_outputs, self.activation)(x)
        if self.num_outputs == 1:
            return dueling_values(out[..., 0], out[..., 1:]) if self.dueling else out
        out = out.reshape(*out.shape[:-1], rows, self.num_outputs)
        return jax.vmap(dueling_values, -1, -1)(out[..., 0, :], out[..., 1:, :]) if self.dueling else out


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any
    epsilon: Array  # of random actions where not greedy
    support: Any = ()  # `(v_min, v_max)` of a critic with bins or atoms


class Transition(NamedTuple):
    """What the replay holds of a step."""

    obs: Any
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Any  # of the true successor, before a reset


@pytree
class DQNState:
    key: jax.Array
    hyper: Hyper
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # environment steps done
    weights: Any
    target_weights: Any
    optimizer: AdamState  # of the flattened weights
    replay: Any


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    transition: Transition
    episode_return: Array  # valid where terminated | truncated
    episode_length: Array


class Batch(NamedTuple):
    """What a gradient step sees: target = reward + discount * (value of next_obs)."""

    obs: Any
    action: Array
    reward: Array  # the window's discounted sum
    discount: Array  # gamma^k, 0 if terminated
    next_obs: Any  # k steps later
    weight: Array | None = None  # of each loss, from prioritised replay; None: all alike


def dueling_values(value: Float[Array, "*batch"], advantage: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """Action values of a state value and advantages; their mean is the value (Wang et al. 2016, eq. 9)."""
    return value[..., None] + advantage - jnp.mean(advantage, -1, keepdims=True)


def epsilon_at(step: Int[Array, ""], hyper: Any) -> Float[Array, ""]:
    """The probability of a random action at environment step `step`."""
    done = jnp.where(hyper.exploration_steps > 0, step / jnp.maximum(hyper.exploration_steps, 1), 1)
    start, end = hyper.epsilon_start, hyper.epsilon_end
    return start + jnp.clip(done, 0, 1).astype(start.dtype) * (end - start)


def epsilon_greedy(
    q: Float[Array, "*batch n"], epsilon: Float[Array, ""] | float, action_mask: Bool[Array, "*batch n"] | None = None
) -> Categorical:
    """The best allowed action with probability 1 - epsilon, else one of the allowed, each as likely."""
    mask = jnp.ones(q.shape, bool) if action_mask is None else action_mask
    best = jax.nn.one_hot(best_action(q, action_mask), q.shape[-1], dtype=q.dtype)
    probability = (1 - epsilon) * best + epsilon * mask / jnp.sum(mask, -1, keepdims=True)
    return Categorical(mask_logits(jnp.log(probability), probability > 0))


def best_action(
    q: Float[Array, "*batch n"], action_mask: Bool[Array, "*batch n"] | None = None
) -> Int[Array, "*batch"]:
    """The allowed action of the largest value, the first of equals."""
    q = q if action_mask is None else jnp.where(action_mask, q, -jnp.inf)
    return jnp.argmax(q, -1).astype(jnp.int32)


def value_of(q: Float[Array, "*batch n"], action: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
    """The entry of `q` that belongs to `action`."""
    # A one-hot select fuses with what comes before where a gather (and the scatter that is its gradient) would not.
    return jnp.sum(jnp.where(jnp.arange(q.shape[-1]) == action[..., None], q, 0), -1)


def n_step(
    reward: Float[Array, "n *batch"],
    terminated: Bool[Array, "n *batch"],
    truncated: Bool[Array, "n *batch"],
    gamma: Float[Array, ""] | float,
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"], Int[Array, "*batch"]]:
    """`(return, discount, last)` of windows of n steps, cut after the first end of an episode, which is step `last`.

    The n-step target is return + discount * value(next_obs[last]) (Sutton & Barto 2018, eq. 7.1); the discount is 0
    where that step terminated.
    """
    done = terminated | truncated
    last = jnp.where(done.any(0), jnp.argmax(done, 0), reward.shape[0] - 1).astype(jnp.int32)
    # weight[i] is gamma^i up to the first end and 0 after it.
    weight = jnp.cumprod(jnp.concatenate([jnp.ones_like(reward[:1]), gamma * ~done[:-1]]), 0)
    discount = gamma * jnp.where(terminated, 0, weight)
    return jnp.sum(weight * reward, 0), jnp.take_along_axis(discount, last[None], 0)[0], last


def windows_to_batch(windows: Transition, gamma: Float[Array, ""] | float) -> Batch:
    """n consecutive transitions, leaves (n, B, ...), as one with the true successor of the window."""
    reward, discount, last = n_step(windows.reward, windows.terminated, windows.truncated, gamma)

    def at_last(x):
        return jnp.take_along_axis(x, last.reshape(1, *last.shape, *(1,) * (x.ndim - 2)), 0)[0]

    first: Any = jax.tree.map(lambda x: x[0], (windows.obs, windows.action))
    return Batch(first[0], first[1], reward, discount, jax.tree.map(at_last, windows.next_obs))


def td_loss(
    q: Float[Array, "B n"], action: Int[Array, " B"], target: Float[Array, " B"], huber: bool = False
) -> Float[Array, ""]:
    """Mean of half the squared error, or of its Huber form with slope 1 beyond 1 (Mnih et al. 2015, error clipping)."""
    return jnp.mean(half_square(value_of(q, action) - target, huber))


def outputs_of(outputs: Float[Array, "..."], action: Int[Array, "*batch"]) -> Float[Array, "..."]:
    """Of `outputs` (*batch, n) or (*batch, n, m) those that belong to `action`."""
    each = value_of if outputs.ndim == action.ndim + 1 else jax.vmap(value_of, (-1, None), -1)
    return each(outputs, action)


def loss(
    weights: Any,
    batch: Batch,
    target_outputs: Float[Array, "B n ..."],
    config: Config,
    network: nn.Module,
    observation_space: Space,
    support: Any = (),
    key: Array | None = None,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The objective of one batch and what to report of it, all scalars but the `priority` of each transition.

    Args:
        target_outputs: the target network's of `next_obs`. support: `(v_min, v_max)`. key: of a noisy network's noise.
    """
    keys = (None, None) if key is None else jax.random.split(key)
    outputs, seen = apply(network, weights, batch.obs, keys[0])
    choosing = target_outputs
    if config.double:
        choosing, _ = apply(network, jax.lax.stop_gradient(weights), batch.next_obs, keys[1])
    allowed = split_observation(batch.next_obs, observation_space)[2]
    next_action = best_action(action_values(choosing, config.critic, support), allowed)
    taken, following = outputs_of(outputs, batch.action), outputs_of(target_outputs, next_action)
    each, priority = critic_loss(taken, batch.reward, batch.discount, following, config.critic, support)
    total = jnp.mean(each if batch.weight is None else batch.weight * each)
    q_value = jnp.mean(action_values(taken, config.critic, support))
    return total, {"loss": total, "q_value": q_value, "priority": priority, **seen}


def apply(network: nn.Module, weights: Any, obs: Any, key: Array | None) -> tuple[Any, dict[str, Array]]:
    """The network's outputs, with noise of `key`, and `active_units` if it tells."""
    rngs = None if key is None else {"noise": key}
    outputs, sown = network.apply(weights, obs, rngs=rngs, mutable="intermediates")
    return outputs, {"active_units": active_units(sown)} if jax.tree.leaves(sown) else {}


@dataclasses.dataclass(frozen=True)
class Learner:
    """The static half; its methods are the Algorithm's functions. IQN overrides the hooks."""

    config: Any
    venv: VectorEnv
    network: nn.Module
    observation_space: Space
    replay: Replay
    hyper: type

    # ---- hooks

    @property
    def noisy(self) -> bool:
        """Whether the hooks are given keys."""
        return self.config.noisy

    def weights(self, key: Array, obs: Any) -> Any:
        """Of a new network, for one observation."""
        return self.network.init(key, obs)

    def values(self, policy: Policy, obs: Any, key: Array | None) -> Float[Array, "..."]:
        """Action values (..., n) to act by, greedy ones without a key."""
        return action_values(apply(self.network, policy.weights, obs, key)[0], self.config.critic, policy.support)

    def targets(self, weights: Any, obs: Any, key: Array | None) -> Any:
        """What `loss` needs of the target network for `next_obs`."""
        return apply(self.network, weights, obs, key)[0]

    def loss(self, weights: Any, batch: Batch, targets: Any, hyper: Any, key: Array | None) -> tuple[Array, Any]:
        """`(objective, report)`; the report with the `priority` of each transition."""
        support = hyper.v_min, hyper.v_max
        return loss(weights, batch, targets, self.config, self.network, self.observation_space, support, key)

    def policy(self, state: DQNState) -> Policy:
        support = () if self.config.critic in (*SCALAR, "quantile") else (state.hyper.v_min, state.hyper.v_max)
        return Policy(state.weights, epsilon_at(state.step, state.hyper), support)

    # ---- the algorithm

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> DQNState:
        hyper, env_params = starting_values(self.hyper, self.venv, hyper, env_params)
        bins = getattr(self.config, "critic", "") in CATEGORICAL  # iqn has no such choice
        if bins and is_concrete(hyper) and np.any(hyper.v_min >= hyper.v_max):
            raise ValueError(f"v_min={hyper.v_min}, v_max={hyper.v_max}: v_min must be below v_max.")
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.venv.reset(reset_key, env_params)
        first = jax.tree.map(lambda x: x[0], visible(obs))
        weights = self.weights(weights_key, first)
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        reward = jnp.zeros((), jnp.result_type(float))
        item = Transition(first, jnp.int32(0), reward, jnp.bool_(False), jnp.bool_(False), first)
        return DQNState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            target_weights=weights,
            optimizer=adam_init(ravel_pytree(weights)[0]),
            replay=self.replay.init(item),
        )

    def collect(self, state: DQNState) -> tuple[DQNState, Rollout]:
        policy = self.policy(state)

        def act(key, obs, carry):
            obs, keys = visible(obs), None
            if self.noisy:  # other weights for every environment
                key, noise_key = jax.random.split(key)
                keys = jax.random.split(noise_key, self.config.num_envs)
                q = jax.vmap(self.values, (None, 0, 0))(policy, obs, keys)
            else:
                q = self.values(policy, obs, None)
            action = epsilon_greedy(q, policy.epsilon, self.allowed(obs)).sample(key)
            return action, action, carry

        state, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        transition = Transition(
            visible(steps.obs), steps.output, steps.reward, steps.terminated, steps.truncated, visible(steps.next_obs)
        )
        return state, Rollout(transition, steps.info["episode_return"], steps.info["episode_length"])

    def allowed(self, obs: Any) -> Any:
        """The action mask or None."""
        return split_observation(obs, self.observation_space)[2]

    def batches(self, key: Array, replay: Any, state: DQNState) -> tuple[Batch, Any]:
        """The batches of an update, leaves (num_updates, batch_size, ...), and where priorities of them belong."""
        config, hyper = self.config, state.hyper
        count = config.num_updates, config.batch_size
        if not config.prioritised:
            windows = self.replay.sample(fast_key(key), replay, count[0] * count[1])
            flat = windows_to_batch(windows, hyper.gamma)
            return jax.tree.map(lambda x: x.reshape(*count, *x.shape[1:]), flat), None
        beta = 1 - annealed(1 - hyper.priority_beta, state.step, hyper.priority_steps)
        keys = jax.random.split(fast_key(key), count[0])
        windows, indices, weight = jax.vmap(lambda k: self.replay.sample(k, replay, count[1], beta))(keys)
        batch = jax.vmap(windows_to_batch, (0, None))(windows, hyper.gamma)
        return batch._replace(weight=weight.astype(batch.reward.dtype)), indices

    def learn(self, state: DQNState, rollout: Rollout) -> tuple[DQNState, dict[str, Array]]:
        config, hyper = self.config, state.hyper
        key, sample_key, *noise_key = jax.random.split(state.key, 2 + self.noisy)
        keys = jax.random.split(fast_key(noise_key[0]), (2, config.num_updates)) if self.noisy else (None, None)
        replay = self.replay.add(state.replay, rollout.transition)
        batches, indices = self.batches(sample_key, replay, state)
        steps = config.num_steps * config.num_envs
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        gradient = jax.grad(self.loss, has_aux=True)
        flat, unravel = ravel_pytree(state.weights)
        due = gradient_steps_due(state.step, steps, hyper.replay_ratio, config.num_updates)
        size = replay.ring.size if config.prioritised else replay.size
        learning = (state.step > hyper.learning_starts) & (size >= config.n_step * config.num_envs)
        due = jnp.where(learning, due, 0)

        def gradient_step(carry, inputs):
            def step():
                flat, optimizer = carry
                batch, targets, key = inputs[1:]
                grads, report = gradient(unravel(flat), batch, targets, hyper, key)
                flat, optimizer, norm = descend(flat, optimizer, grads, learning_rate, hyper.max_grad_norm)
                return (flat, optimizer), {**report, "grad_norm": norm}

            # A single step is the whole of `gradient_steps`, which has its own branch.
            return step() if config.num_updates == 1 else jax.lax.cond(inputs[0] < due, step, lambda: none(step, carry))

        def gradient_steps():
            # The target network stays as it is during an update, so its values are computed in one batch.
            targets = jax.vmap(self.targets, (None, 0, 0))(state.target_weights, batches.next_obs, keys[0])
            inputs = jnp.arange(config.num_updates), batches, targets, keys[1]
            return jax.lax.scan(gradient_step, (flat, state.optimizer), inputs)

        before = flat, state.optimizer
        (flat, optimizer), report = jax.lax.cond(due > 0, gradient_steps, lambda: none(gradient_steps, before))
        priority = report.pop("priority")
        if self.replay.update:
            made = jnp.repeat(jnp.arange(config.num_updates) < due, config.batch_size)
            priority = jnp.maximum(priority.reshape(-1), 0) + 1e-6  # a divergence near 0 may be rounded below it
            replay = self.replay.update(replay, indices.reshape(-1), priority, hyper.priority_alpha, made)
        weights = unravel(flat)
        period = jnp.maximum(hyper.target_period, 1)
        move = hyper.tau * (state.step // period > (state.step - steps) // period)
        target_weights = jax.tree.map(lambda old, new: (1 - move) * old + move * new, state.target_weights, weights)
        transition = rollout.transition
        metrics = {
            **episode_metrics(
                rollout.episode_return, rollout.episode_length, transition.terminated | transition.truncated
            ),
            **jax.tree.map(lambda x: jnp.sum(x) / jnp.maximum(due, 1), report),
            "epsilon": epsilon_at(state.step, hyper),
            "learning_rate": learning_rate,
        }
        state = state.replace(
            key=key, weights=weights, target_weights=target_weights, optimizer=optimizer, replay=replay
        )
        return state, metrics

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        obs = visible(obs)
        if greedy:
            return best_action(self.values(policy, obs, None), self.allowed(obs)), carry
        key, *noise_key = jax.random.split(key) if self.noisy else (key,)
        q = self.values(policy, obs, noise_key[0] if self.noisy else None)
        return epsilon_greedy(q, policy.epsilon, self.allowed(obs)).sample(fast_key(key)), carry


def none(steps: Any, carry: Any) -> tuple[Any, Any]:
    """What `steps()` returns, had it left `carry` as it is and everything to report been zero."""
    return carry, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(steps)[1])


def build(name: str, hyper: type, env: Environment | VectorEnv, config: Config, network: nn.Module | None) -> Algorithm:
    """What `make` of DQN and its relatives have in common; `hyper` is the class of the dynamic settings."""
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of(name, venv, Discrete)
    num = 1 if config.critic in SCALAR else config.num_outputs
    if network is None:
        hidden = config.hidden, config.activation, config.dueling
        network = QNetwork(observation_space, action_space.n, *hidden, num, config.noisy, config.conv)
    learner = Learner(config, venv, network, observation_space, memory(config), hyper)
    state = jax.eval_shape(learner.init, jax.random.key(0))
    shape = jax.eval_shape(lambda s: learner.targets(s.weights, visible(s.obs), None), state).shape
    needed = (config.num_envs, action_space.n) if num == 1 else (config.num_envs, action_space.n, num)
    if shape != needed:
        raise ValueError(
            f"network gives values {shape} for {config.num_envs} observations; {action_space} needs {needed}."
        )
    return algorithm(name, learner)


def memory(config: Any) -> Replay:
    """The replay of windows of `n_step` steps that the settings ask for."""
    kind = prioritised_sequence if config.prioritised else sequence
    return kind(config.buffer_size, config.num_envs, config.n_step)


def algorithm(name: str, learner: Learner) -> Algorithm:
    """The functions of `learner`."""
    config = learner.config
    return algorithm_of(name, learner, learner.hyper, config.num_envs * config.num_steps)


@functools.cache
def make(env: Environment | VectorEnv, config: Config = Config(), network: nn.Module | None = None) -> Algorithm:
    """DQN on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from an observation (a dict keeps its `action_mask`) to values of the n actions (..., n),
        or to their outputs (..., n, num_outputs) if the critic has several.

    Raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not fit.
    """
    return build("dqn", Hyper, env, config, network)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
