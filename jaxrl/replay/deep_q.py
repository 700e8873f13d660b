"""What deep Q-learning algorithms share: epsilon-greedy steps, windows of n of them from the replay, the gradient steps
that are due, and a target network. What a network's outputs mean, their target and their loss are in each algorithm's
file: a `Critic`, three functions.

Where a transition's window holds k rewards, k <= n and smaller only where the episode ends, a `Batch` has

    reward = r[0] + gamma r[1] + ... + gamma^(k-1) r[k-1]    and    discount = gamma^k, 0 if the episode terminated

so that the target of a value is reward + discount * (value of the best action at next_obs). Episodes cut by a time
limit bootstrap from their final observation. The target network moves and priorities change after the gradient steps of
an update, not between them; epsilon stays as it is during a rollout.

With a dataset as memory (`datasets.stored`) the learner never acts: an update is `num_updates` gradient steps on
windows of one step, which are what its `step` counts, and so every number of `Hyper` that is in steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

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
    restarted,
    spaces_of,
    starting_values,
)
from jaxrl.environment import Environment, is_concrete, pytree, split_observation, visible
from jaxrl.math import fast_key
from jaxrl.nn.action_values import QNetwork, best_action, check_shape, epsilon_at, epsilon_greedy, outputs_of
from jaxrl.nn.networks import active_units
from jaxrl.nn.optim import Optimizer, OptimizerLike, OptimizerState, annealed, optimizer_of
from jaxrl.replay.off_policy import Stored, check_ratio, gradient_steps_due, no_ends, steps_taken
from jaxrl.replay.ring import Replay
from jaxrl.replay.sequence import prioritised_sequence, sequence
from jaxrl.rollout import Ends, rollout, spread, ticked
from jaxrl.spaces import Discrete, Space
from jaxrl.vectorize import VectorEnv

LIMITS = ("v_min", "v_max")
"""Of values that have them, by their names in Hyper."""


class Critic(NamedTuple):
    """What makes one algorithm of this family another: functions of the network's weights.

    `support` are the numbers of Hyper that it reads: `(v_min, v_max)` of values that have limits, else () or what its
    file says. Keys are for networks that draw something, as noise; None without.
    """

    values: Callable[..., Any]  # (weights, obs, support, key) -> action values (..., n); without a key the greedy ones
    ahead: Callable[..., Any]  # (target_weights, batch, support, key) -> what the loss needs of the target network
    loss: Callable[..., Any]
    """(weights, batch, ahead, support, key) -> (loss (B,), priority (B,), report of scalars)."""


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any
    epsilon: Array  # of random actions where not greedy
    support: Any = ()  # see `Critic`


class Transition(NamedTuple):
    """What the replay holds of a step."""

    obs: Any
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Any  # of the true successor, before a reset


@pytree
class State:
    key: jax.Array
    hyper: Any
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # environment steps done; on a dataset, gradient steps
    weights: Any
    target_weights: Any
    optimizer: OptimizerState
    replay: Any  # the memory's; of a dataset its priorities or ()


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    transition: Transition
    ends: Ends


class Batch(NamedTuple):
    """What a gradient step sees: target = reward + discount * (value of next_obs)."""

    obs: Any
    action: Array
    reward: Array  # the window's discounted sum
    discount: Array  # gamma^k, 0 if terminated
    next_obs: Any  # k steps later
    weight: Array | None = None  # of each loss, from prioritised replay; None: all alike
    next_action: Array | None = None  # of a dataset: the one taken there at next_obs
    return_to_go: Array | None = None  # of a dataset: discounted rewards to the end of the episode


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


def check_memory(name: str, config: Any, memory: Replay) -> None:
    """Raise ValueError for a memory that is no dataset, and for what cannot be had from one."""
    if memory.add is not None:
        raise ValueError(f"{name}: memory is a dataset, `datasets.stored`, or None; what it fills itself is Config's.")
    if config.n_step != 1:
        raise ValueError(f"n_step={config.n_step}: {name} learns from a dataset by single steps; it must be 1.")
    if config.prioritised != (memory.update is not None):
        raise ValueError(
            f"prioritised={config.prioritised}: {name} draws from `datasets.prioritised` with priorities and from "
            "`datasets.stored` without."
        )


def check_num_outputs(num_outputs: int, least: int, of: str) -> None:
    """Raise ValueError for fewer outputs of an action than `of` needs."""
    if num_outputs < least:
        raise ValueError(f"num_outputs={num_outputs}: {of} needs at least {least}.")


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


def stored_to_batch(steps: Stored, gamma: Float[Array, ""] | float) -> Batch:
    """Single steps of a dataset."""
    discount = jnp.where(steps.terminated, 0, gamma).astype(steps.reward.dtype)
    seen = visible(steps.obs), steps.action, steps.reward, discount, visible(steps.next_obs)
    return Batch(*seen, next_action=steps.next_action, return_to_go=steps.return_to_go)


def apply(network: nn.Module, weights: Any, obs: Any, key: Array | None) -> tuple[Any, dict[str, Array]]:
    """The network's outputs, with noise of `key`, and `active_units` if it tells."""
    rngs = None if key is None else {"noise": key}
    outputs, sown = network.apply(weights, obs, rngs=rngs, mutable="intermediates")
    return outputs, {"active_units": active_units(sown)} if jax.tree.leaves(sown) else {}


def critic_of_outputs(
    network: nn.Module,
    observation_space: Space,
    double: bool,
    values: Callable[..., Any],
    loss: Callable[..., Any],
    of_data: bool = False,
) -> Critic:
    """The critic of a network from observations to outputs of every action, (..., n) or (..., n, m).

    Args:
        double: the online network picks the next action, else the target network.
        values: `(outputs, support)` to the values that they stand for, (..., n).
        loss: `(outputs, reward, discount, next_outputs, support)`, of the action taken and of the next one, (B,) or
            (B, m) each, to the loss of each transition and its priority. No gradient passes `next_outputs`.
        of_data: the next action is the dataset's, not the best.
    """

    def values_of(weights, obs, support, key):
        return values(apply(network, weights, obs, key)[0], support)

    def ahead_of(target_weights, batch, support, key):
        return apply(network, target_weights, batch.next_obs, key)[0]

    def loss_of(weights, batch, next_outputs, support, key):
        online_key, choice_key = (None, None) if key is None else jax.random.split(key)
        outputs, report = apply(network, weights, batch.obs, online_key)
        if of_data:
            next_action = batch.next_action
        else:
            choosing = next_outputs
            if double:
                choosing, _ = apply(network, jax.lax.stop_gradient(weights), batch.next_obs, choice_key)
            allowed = split_observation(batch.next_obs, observation_space)[2]
            next_action = best_action(values(choosing, support), allowed)
        taken = outputs_of(outputs, batch.action)
        following = jax.lax.stop_gradient(outputs_of(next_outputs, next_action))
        each, priority = loss(taken, batch.reward, batch.discount, following, support)
        report = {"q_value": jnp.mean(values(taken, support)), **report}
        if support:
            mean = batch.reward + batch.discount * values(following, support)
            # Of these the loss takes the nearest end: v_min and v_max are too narrow, or the values run away.
            report["clipped_targets"] = jnp.mean((mean < support[0]) | (mean > support[1]), dtype=mean.dtype)
        return each, priority, report

    return Critic(values_of, ahead_of, loss_of)


def objective(
    weights: Any, batch: Batch, ahead: Any, support: Any, key: Any, critic: Critic
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The critic's mean loss of a batch and what to report of it, all scalars but the `priority` of each transition."""
    each, priority, report = critic.loss(weights, batch, ahead, support, key)
    total = jnp.mean(each if batch.weight is None else batch.weight * each)
    return total, {"loss": total, "priority": priority, **report}


@dataclasses.dataclass(frozen=True)
class Learner:
    """The static half; its methods are the Algorithm's functions."""

    slots: ClassVar = ("replay",)
    deployed: ClassVar = "greedy"
    config: Any
    hyper: type
    venv: VectorEnv
    observation_space: Space
    critic: Critic
    init_weights: Callable[[Array, Any], Any]  # (key, one observation) -> weights of a new network
    replay: Replay
    draws: bool  # whether the critic is given keys
    numbers: tuple[str, ...]  # of hyper, which the critic is given
    optimizer: Optimizer

    def epsilon(self, state: State) -> Array:
        """How often actions are random: where the weights are noisy that explores alone (Fortunato et al. 2018)."""
        now = epsilon_at(state.step, state.hyper)
        return jnp.zeros_like(now) if getattr(self.config, "noisy", False) else now

    def support(self, hyper: Any) -> Any:
        return tuple(getattr(hyper, name) for name in self.numbers)

    def values(self, policy: Policy, obs: Any, key: Array | None) -> Float[Array, "..."]:
        """Action values (..., n) to act by, greedy ones without a key."""
        return self.critic.values(policy.weights, obs, policy.support, key)

    def allowed(self, obs: Any) -> Any:
        """The action mask or None."""
        return split_observation(obs, self.observation_space)[2]

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        hyper, env_params = starting_values(self.hyper, self.venv, hyper, env_params)
        if self.replay.add is not None:
            check_ratio(hyper, self.config)
        if self.numbers == LIMITS and is_concrete(hyper) and np.any(hyper.v_min >= hyper.v_max):
            raise ValueError(f"v_min={hyper.v_min}, v_max={hyper.v_max}: v_min must be below v_max.")
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.venv.reset(reset_key, env_params)
        first = jax.tree.map(lambda x: x[0], visible(obs))
        weights = self.init_weights(weights_key, first)
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        reward = jnp.zeros((), jnp.result_type(float))
        item = Transition(first, jnp.int32(0), reward, jnp.bool_(False), jnp.bool_(False), first)
        return State(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            target_weights=weights,
            optimizer=self.optimizer.init(weights, hyper.learning_rate),
            replay=self.replay.init(item),
        )

    def restart(self, state: State, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> State:
        """A new episode in the slots of `mask`: no window runs from the one that is cut into it."""
        state = restarted(self.venv, state, key, env_params, mask)
        if self.config.n_step == 1:
            return state
        ring = state.replay.ring if self.config.prioritised else state.replay
        N, items = self.config.num_envs, ring.items
        rows = (ring.position - N + jnp.arange(N)) % items.truncated.shape[0]  # of each slot's last step
        cut = items.truncated[rows] | (mask & ~items.terminated[rows])
        ring = ring.replace(items=items._replace(truncated=items.truncated.at[rows].set(cut)))
        return state.replace(replay=state.replay.replace(ring=ring) if self.config.prioritised else ring)

    def collect(self, state: State) -> tuple[State, Rollout | None]:
        """None on a dataset: there is nothing to do before `learn`."""
        if self.replay.add is None:
            return state, None
        policy = self.policy(state)

        def act(key, obs, carry):
            obs = visible(obs)
            if self.draws:  # other weights for every environment
                key, draw_key = jax.random.split(key)
                keys = jax.random.split(draw_key, self.config.num_envs)
                q = jax.vmap(self.values, (None, 0, 0))(policy, obs, keys)
            else:
                q = self.values(policy, obs, None)
            action = epsilon_greedy(q, policy.epsilon, self.allowed(obs)).sample(key)
            return action, action, carry

        state, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        transition = Transition(
            visible(steps.obs), steps.output, steps.reward, steps.terminated, steps.truncated, visible(steps.next_obs)
        )
        return state, Rollout(transition, steps.ends)

    def batches(self, key: Array, replay: Any, state: State) -> tuple[Batch, Any]:
        """The batches of an update, leaves (num_updates, batch_size, ...), and where priorities of them belong."""
        config, hyper = self.config, state.hyper
        count = config.num_updates, config.batch_size
        if not config.prioritised:
            found = self.replay.sample(fast_key(key), replay, count[0] * count[1])
            flat = (stored_to_batch if self.replay.add is None else windows_to_batch)(found, hyper.gamma)
            return jax.tree.map(lambda x: x.reshape(*count, *x.shape[1:]), flat), None
        beta = 1 - annealed(1 - hyper.priority_beta, state.step, hyper.priority_steps)
        keys = jax.random.split(fast_key(key), count[0])
        windows, indices, weight = jax.vmap(lambda k: self.replay.sample(k, replay, count[1], beta))(keys)
        to_batch = stored_to_batch if self.replay.add is None else windows_to_batch
        batch = jax.vmap(to_batch, (0, None))(windows, hyper.gamma)
        return batch._replace(weight=weight.astype(batch.reward.dtype)), indices

    def learn(self, state: State, rollout: Rollout | None = None) -> tuple[State, dict[str, Array]]:
        config, hyper = self.config, state.hyper
        steps = config.num_updates if rollout is None else config.num_steps * config.num_envs
        if rollout is None:
            state = state.replace(step=ticked(state.step, steps))
        key, sample_key, *draw_key = jax.random.split(state.key, 2 + self.draws)
        keys = tuple(jax.random.split(fast_key(draw_key[0]), (2, config.num_updates))) if self.draws else (None, None)
        replay = state.replay if rollout is None else self.replay.add(state.replay, rollout.transition)
        batches, indices = self.batches(sample_key, replay, state)
        batches = spread(batches, 1)
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        support, gradient = self.support(hyper), jax.grad(objective, has_aux=True)
        flat, unravel = ravel_pytree(state.weights)
        due = jnp.int32(config.num_updates)
        if rollout is not None:
            due = gradient_steps_due(state.step, steps, hyper.replay_ratio, config.num_updates)
            size = replay.ring.size if config.prioritised else replay.size
            learning = (state.step > hyper.learning_starts) & (size >= config.n_step * config.num_envs)
            due = jnp.where(learning, due, 0)

        def inputs():
            # The target network stays as it is during an update, so it is asked in one batch.
            ahead = jax.vmap(self.critic.ahead, (None, 0, None, 0))(state.target_weights, batches, support, keys[0])
            return batches, ahead, keys[1]

        def gradient_step(carry, inputs):
            flat, optimizer = carry
            batch, ahead, key = inputs
            grads, report = gradient(unravel(flat), batch, ahead, support, key, self.critic)
            flat, optimizer, norm = self.optimizer.descend(flat, optimizer, grads, learning_rate, hyper.max_grad_norm)
            return (flat, optimizer), {**report, "grad_norm": norm}

        (flat, optimizer), report = steps_taken(due, config.num_updates, (flat, state.optimizer), inputs, gradient_step)
        priority = report.pop("priority")
        if self.replay.update:
            made = jnp.repeat(jnp.arange(config.num_updates) < due, config.batch_size)
            # A divergence near 0 may be rounded below it.
            priority = jnp.where(made, jnp.maximum(priority.reshape(-1), 0) + 1e-6, 1)
            replay = self.replay.update(replay, indices.reshape(-1), priority, hyper.priority_alpha, made)
        weights = unravel(flat)
        period = jnp.maximum(hyper.target_period, 1)
        move = hyper.tau * (state.step // period > (state.step - steps) // period)
        target_weights = jax.tree.map(lambda old, new: (1 - move) * old + move * new, state.target_weights, weights)
        metrics = {
            **(no_ends() if rollout is None else rollout.ends).metrics(),
            **jax.tree.map(jnp.nanmean, report),
            "gradient_steps": due,
            "epsilon": self.epsilon(state),
            "learning_rate": learning_rate,
        }
        state = state.replace(
            key=key, weights=weights, target_weights=target_weights, optimizer=optimizer, replay=replay
        )
        return state, metrics

    def policy(self, state: State) -> Policy:
        return Policy(state.weights, self.epsilon(state), self.support(state.hyper))

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        obs = visible(obs)
        if greedy:
            return best_action(self.values(policy, obs, None), self.allowed(obs)), carry
        key, *draw_key = jax.random.split(key) if self.draws else (key,)
        q = self.values(policy, obs, draw_key[0] if self.draws else None)
        return epsilon_greedy(q, policy.epsilon, self.allowed(obs)).sample(key), carry


def algorithm(
    name: str,
    venv: VectorEnv,
    config: Any,
    hyper: type,
    observation_space: Space,
    critic: Critic,
    init_weights: Callable[[Array, Any], Any],
    draws: bool,
    numbers: tuple[str, ...] = (),
    optimizer: OptimizerLike | None = None,
    memory: Replay | None = None,
    learner: Callable[..., Learner] = Learner,
) -> Algorithm:
    """The algorithm that a critic makes.

    Args:
        config: with the sizes that `check_sizes` reads, and `prioritised`. hyper: the class of the dynamic settings.
        init_weights: `(key, one observation)` to new weights.
        draws: the critic is given keys.
        numbers: names of what it is given of Hyper; `LIMITS` where its values lie between them.
        optimizer: what follows the gradient, in place of `config.optimizer`.
        memory: a dataset, which takes the place of the memory that it fills.
        learner: makes the static half of the fields of `Learner`, as a subclass of it does.
    """
    if memory is not None:
        check_memory(name, config, memory)
    kind = prioritised_sequence if config.prioritised else sequence
    replay = memory or kind(config.buffer_size, config.num_envs, config.n_step)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    static = learner(config, hyper, venv, observation_space, critic, init_weights, replay, draws, numbers, chosen)
    return algorithm_of(
        name, static, hyper, config.num_envs * config.num_steps if memory is None else config.num_updates
    )


def algorithm_of_outputs(
    name: str,
    env: Environment | VectorEnv,
    config: Any,
    hyper: type,
    network: nn.Module | None,
    values: Callable[..., Any],
    loss: Callable[..., Any],
    num_outputs: int,
    bounded: bool = False,
    optimizer: OptimizerLike | None = None,
    memory: Replay | None = None,
    learner: Callable[..., Learner] = Learner,
) -> Algorithm:
    """The algorithm of a network whose `num_outputs` of an action stand for its value: see `critic_of_outputs`.

    bounded: values lie between `hyper.v_min` and `hyper.v_max`.

    Raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of(name, venv, Discrete)
    network = network or q_network(config, observation_space, action_space.n, num_outputs)
    critic = critic_of_outputs(network, observation_space, config.double, values, loss)
    numbers = LIMITS if bounded else ()
    of_critic = critic, network.init, config.noisy, numbers, optimizer, memory, learner
    algo = algorithm(name, venv, config, hyper, observation_space, *of_critic)
    check_network(algo, network, action_space.n, num_outputs)
    return algo


def q_network(config: Any, observation_space: Space, num_actions: int, num_outputs: int = 1) -> QNetwork:
    """The default network of a config's sizes."""
    body = config.hidden, config.activation, config.dueling
    noisy = getattr(config, "noisy", False)
    return QNetwork(observation_space, num_actions, *body, num_outputs, noisy, config.conv)


def check_network(algo: Algorithm, network: nn.Module, num_actions: int, num_outputs: int, name: str = "") -> None:
    """Raise ValueError unless its outputs fit; `name` is its weights', where there are several networks'."""
    state = jax.eval_shape(algo.init, jax.random.key(0))
    weights = state.weights[name] if name else state.weights
    outputs = jax.eval_shape(
        lambda state, weights: apply(network, weights, visible(state.obs), None)[0], state, weights
    )
    batch = algo.config.num_envs, num_actions
    check_shape(outputs.shape, batch if num_outputs == 1 else (*batch, num_outputs))
