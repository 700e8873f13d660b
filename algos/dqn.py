"""Deep Q-networks.

Mnih et al. (2015), "Human-level control through deep reinforcement learning" (Nature 518), with, as static choices,
double Q-learning (van Hasselt et al. 2016), the dueling head (Wang et al. 2016) and n-step targets (as in Hessel et al.
2018). Where a transition's window holds k rewards, k <= n and smaller only where the episode ends, its target is

    y = r[0] + gamma r[1] + ... + gamma^(k-1) r[k-1] + gamma^k Q_target(s[k], argmax_a Q(s[k], a))

without the last term if the episode terminated.

Deviations: episodes cut by a time limit bootstrap from their final observation; Adam instead of RMSprop; several
environments step together; the target network moves after the gradient steps of an update, not between them; epsilon
stays as it is during a rollout; the loss is half the squared error, so that `huber` is the same near zero. Results:
`docs/results.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from jaxrl.algorithm import (
    AdamState,
    Algorithm,
    adam_init,
    annealed,
    as_vector_env,
    clip_by_global_norm,
    episode_metrics,
    safe_adam,
    safe_norm,
    starting_values,
)
from jaxrl.distributions import Categorical, mask_logits
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.math import fast_key
from jaxrl.networks import MLP, encode
from jaxrl.replay import Replay, sequence
from jaxrl.spaces import Discrete, Space
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 10  # environments stepped together
    num_steps: int = 1  # steps of each between updates
    num_updates: int = 1  # gradient steps an update
    batch_size: int = 128
    buffer_size: int = 10_000  # transitions kept; a multiple of num_envs
    n_step: int = 1  # rewards before the bootstrap
    double: bool = True  # the online network picks the action that the target network values
    dueling: bool = False  # the default network's head: a state value plus centred advantages
    huber: bool = False  # squared error up to 1, linear beyond; False: squared
    hidden: tuple[int, ...] = (120, 84)
    activation: str = "relu"

    def __post_init__(self) -> None:
        for name in ("num_envs", "num_steps", "num_updates", "batch_size", "n_step"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: it must be at least 1.")
        least = self.num_envs * max(self.num_steps, self.n_step)
        if self.buffer_size < least or self.buffer_size % self.num_envs:
            near = max(round(self.buffer_size / self.num_envs) * self.num_envs, least)
            raise ValueError(
                f"buffer_size={self.buffer_size}: it must be a multiple of num_envs={self.num_envs} and hold a rollout "
                f"and n_step={self.n_step} steps of each environment; {near} does."
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


class QNetwork(nn.Module):
    """The default network. Bring your own, a module from observations (..., *) to action values (..., n)."""

    observation_space: Space
    num_actions: int
    hidden: tuple[int, ...]
    activation: str
    dueling: bool

    @nn.compact
    def __call__(self, obs: Any) -> Float[Array, "... n"]:
        # Both streams of a dueling head are linear in the last hidden layer: one matrix.
        out = MLP(self.hidden, self.num_actions + self.dueling, self.activation)(encode(self.observation_space, obs))
        return dueling_values(out[..., 0], out[..., 1:]) if self.dueling else out


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any
    epsilon: Array  # of random actions where not greedy


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


def dueling_values(value: Float[Array, "*batch"], advantage: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """Action values of a state value and advantages; their mean is the value (Wang et al. 2016, eq. 9)."""
    return value[..., None] + advantage - jnp.mean(advantage, -1, keepdims=True)


def epsilon_at(step: Int[Array, ""], hyper: Hyper) -> Float[Array, ""]:
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
    error = jnp.abs(value_of(q, action) - target)
    near = jnp.minimum(error, 1) if huber else error
    return jnp.mean(0.5 * near**2 + (error - near))


def loss(
    weights: Any,
    batch: Batch,
    target_q: Float[Array, "B n"],
    config: Config,
    network: nn.Module,
    observation_space: Space,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The objective of one batch and what to report of it; `target_q`: the target network's values of `next_obs`."""
    q: Any = network.apply(weights, batch.obs)
    choosing: Any = network.apply(jax.lax.stop_gradient(weights), batch.next_obs) if config.double else target_q
    next_action = best_action(choosing, split_observation(batch.next_obs, observation_space)[2])
    target = batch.reward + batch.discount * value_of(target_q, next_action)
    total = td_loss(q, batch.action, target, config.huber)
    return total, {"loss": total, "q_value": jnp.mean(value_of(q, batch.action))}


@dataclasses.dataclass(frozen=True)
class _DQN:
    """The static half; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    network: nn.Module
    observation_space: Space
    replay: Replay

    def visible(self, obs: Any) -> Any:
        """An observation without its privileged part, which is absent at deployment."""
        return {k: v for k, v in obs.items() if k != "privileged"} if isinstance(obs, dict) else obs

    def values(self, weights: Any, obs: Any) -> tuple[Any, Any]:
        """Action values and the action mask or None."""
        return self.network.apply(weights, obs), split_observation(obs, self.observation_space)[2]

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> DQNState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.venv.reset(reset_key, env_params)
        first = jax.tree.map(lambda x: x[0], self.visible(obs))
        weights = self.network.init(weights_key, first)
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
        key, rollout_key = jax.random.split(state.key)
        epsilon = epsilon_at(state.step, state.hyper)

        def step(carry, key):
            obs, env_state = carry
            act_key, env_key = jax.random.split(key)
            seen = self.visible(obs)
            q, action_mask = self.values(state.weights, seen)
            action = epsilon_greedy(q, epsilon, action_mask).sample(act_key)
            ts = self.venv.step(env_key, env_state, action, state.env_params)
            next_obs = self.visible(ts.info["final_obs"])
            transition = Transition(seen, action, ts.reward, ts.terminated, ts.truncated, next_obs)
            return (ts.obs, ts.state), Rollout(transition, ts.info["episode_return"], ts.info["episode_length"])

        keys = jax.random.split(fast_key(rollout_key), self.config.num_steps)
        (obs, env_state), rollout = jax.lax.scan(step, (state.obs, state.env_state), keys)
        steps = state.step + self.config.num_steps * self.config.num_envs
        return state.replace(key=key, obs=obs, env_state=env_state, step=steps), rollout

    def learn(self, state: DQNState, rollout: Rollout) -> tuple[DQNState, dict[str, Array]]:
        config, hyper = self.config, state.hyper
        key, sample_key = jax.random.split(state.key)
        replay = self.replay.add(state.replay, rollout.transition)
        windows = self.replay.sample(fast_key(sample_key), replay, config.num_updates * config.batch_size)
        batches = windows_to_batch(windows, hyper.gamma)
        steps = config.num_steps * config.num_envs
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        gradient = jax.grad(loss, has_aux=True)
        # Adam works on one vector: on a CPU a kernel for every matrix and moment costs more than its arithmetic.
        flat, unravel = ravel_pytree(state.weights)

        def gradient_step(carry, inputs):
            flat, optimizer = carry
            batch, target_q = inputs
            grads, report = gradient(unravel(flat), batch, target_q, config, self.network, self.observation_space)
            grads = ravel_pytree(grads)[0]
            report["grad_norm"] = safe_norm(grads)
            change, optimizer = safe_adam(clip_by_global_norm(grads, hyper.max_grad_norm), optimizer, learning_rate)
            return (flat + change, optimizer), report

        def gradient_steps():
            # The target network stays as it is during an update, so its values are computed in one batch.
            inputs = batches, self.network.apply(state.target_weights, batches.next_obs)
            inputs = jax.tree.map(lambda x: x.reshape(config.num_updates, config.batch_size, *x.shape[1:]), inputs)
            carry, reports = jax.lax.scan(gradient_step, (flat, state.optimizer), inputs)
            return *carry, jax.tree.map(jnp.mean, reports)

        def skip():
            zero = jnp.zeros((), flat.dtype)
            return flat, state.optimizer, {"loss": zero, "q_value": zero, "grad_norm": zero}

        learning = (state.step > hyper.learning_starts) & (replay.size >= config.n_step * config.num_envs)
        flat, optimizer, report = jax.lax.cond(learning, gradient_steps, skip)
        weights = unravel(flat)
        period = jnp.maximum(hyper.target_period, 1)
        move = hyper.tau * (state.step // period > (state.step - steps) // period)
        target_weights = jax.tree.map(lambda old, new: (1 - move) * old + move * new, state.target_weights, weights)
        transition = rollout.transition
        metrics = {
            **episode_metrics(
                rollout.episode_return, rollout.episode_length, transition.terminated | transition.truncated
            ),
            **report,
            "epsilon": epsilon_at(state.step, hyper),
            "learning_rate": learning_rate,
        }
        state = state.replace(
            key=key, weights=weights, target_weights=target_weights, optimizer=optimizer, replay=replay
        )
        return state, metrics

    def update(self, state: DQNState) -> tuple[DQNState, dict[str, Array]]:
        return self.learn(*self.collect(state))

    def policy(self, state: DQNState) -> Policy:
        return Policy(state.weights, epsilon_at(state.step, state.hyper))

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        q, action_mask = self.values(policy.weights, self.visible(obs))
        if greedy:
            return best_action(q, action_mask), carry
        return epsilon_greedy(q, policy.epsilon, action_mask).sample(fast_key(key)), carry


@functools.cache
def make(env: Environment | VectorEnv, config: Config = Config(), network: nn.Module | None = None) -> Algorithm:
    """DQN on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from an observation (a dict keeps its `action_mask`) to values of the n actions.

    Raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    env = venv.env
    if env.num_agents > 1:
        raise ValueError(f"{env.id} has {env.num_agents} agents; dqn trains one: vmap its functions over the agents.")
    params = env.default_params
    observation_space, action_space = env.observation_space(params), env.action_space(params)
    if not isinstance(action_space, Discrete):
        raise ValueError(f"dqn chooses among Discrete actions, {env.id} has {action_space}; ppo acts in such spaces.")
    if network is None:
        network = QNetwork(observation_space, action_space.n, config.hidden, config.activation, config.dueling)
    replay = sequence(config.buffer_size, config.num_envs, config.n_step)
    dqn = _DQN(config, venv, network, observation_space, replay)
    state = jax.eval_shape(dqn.init, jax.random.key(0))
    shape = jax.eval_shape(lambda s: dqn.values(s.weights, dqn.visible(s.obs))[0], state).shape
    if shape != (config.num_envs, action_space.n):
        raise ValueError(
            f"network gives values {shape} for {config.num_envs} observations; "
            f"{action_space} needs {(config.num_envs, action_space.n)}."
        )
    return Algorithm(
        name="dqn",
        config=config,
        hyper=Hyper,
        venv=venv,
        steps_per_update=config.num_envs * config.num_steps,
        init=dqn.init,
        collect=dqn.collect,
        learn=dqn.learn,
        update=dqn.update,
        policy=dqn.policy,
        initial_carry=dqn.initial_carry,
        act=dqn.act,
    )


def main() -> None:
    """`python -m jaxrl.algos.dqn CartPole-v1 ...` is `jaxrl train dqn CartPole-v1 ...`."""
    import sys

    from jaxrl.cli import main

    sys.exit(main(["train", "dqn", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
