"""The shell of deep Q-learning: epsilon-greedy acting, a replay buffer of n-step windows, and a target network.

What the network's outputs mean, their target, their loss and the gradient step are an algorithm's `Rule`, which its own
file defines. A window holds k <= n rewards, fewer than n only where the episode ends. Its `Batch` has

    reward = r[0] + gamma r[1] + ... + gamma^(k-1) r[k-1]    and    discount = gamma^k, 0 if the episode terminated

so that the target of a value is reward + discount * (value of the best action at next_obs). Episodes cut by a time
limit bootstrap from their final observation. The target network moves and priorities change after the gradient steps of
an update, not between them; epsilon is constant during a rollout.

With a dataset (`replay=` one) the learner never acts: an update is `num_updates` gradient steps on windows of one step.
`state.step`, and every setting of `Hyper` that is in steps, then counts gradient steps.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrl.algorithm import Algorithm, algorithm_of, check_at_least_one, restarted, starting_values
from jaxrl.data.datasets import Dataset
from jaxrl.data.datasets import prioritised as prioritised_dataset
from jaxrl.data.transitions import Stored
from jaxrl.environment import is_concrete, pytree, split_observation, visible
from jaxrl.math import fast_key
from jaxrl.nn.action_values import QNetwork, best_action, check_shape, epsilon_at, epsilon_greedy
from jaxrl.nn.nets import Net, net
from jaxrl.nn.networks import Network, active_units
from jaxrl.nn.optim import Optimizer, OptimizerLike, OptimizerState, annealed, optimizer_of
from jaxrl.off_policy.steps import as_replay, check_ratio, gradient_steps_due, no_ends, steps_taken
from jaxrl.replay.ring import Replay
from jaxrl.replay.sequence import prioritised_sequence, sequence
from jaxrl.rollout import Ends, rollout, spread, ticked
from jaxrl.spaces import Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 10  # environments stepped together
    num_steps: int = 1  # steps of each between updates
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 128
    buffer_size: int = 10_000  # transitions kept, without a dataset; a multiple of num_envs
    n_step: int = 1  # rewards before the bootstrap; 1 on a dataset
    prioritised: bool = False  # prioritised replay, with Hyper.priority_*; else uniform
    hidden: tuple[int, ...] = (120, 84)
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_sizes(self)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps; on a dataset, gradient steps."""

    learning_rate: jax.Array = 2.5e-4
    anneal_steps: jax.Array = 0  # steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    epsilon_start: jax.Array = 1.0  # initial probability of a random action
    epsilon_end: jax.Array = 0.05  # and after exploration_steps; linear in between
    exploration_steps: jax.Array = 250_000
    learning_starts: jax.Array = 10_000  # where it acts: steps before the first gradient step
    target_period: jax.Array = 500  # steps between updates of the target network; at most once an update
    tau: jax.Array = 1.0  # Polyak step of the target network, each such update; 1: a copy
    max_grad_norm: jax.Array = 10.0
    replay_ratio: jax.Array = float("inf")  # where it acts: gradient steps a step; inf: num_updates an update
    priority_alpha: jax.Array = 0.5  # exponent of priorities; 0: uniform
    priority_beta: jax.Array = 0.4  # initial exponent of the importance weights; 1: no bias
    priority_steps: jax.Array = 0  # steps until that exponent is 1; 0: constant


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any
    epsilon: Array  # probability of a random action, where not greedy
    support: Any = ()  # settings that the values depend on, see `Rule.support`


class Transition(NamedTuple):
    """One step, as the replay buffer holds it."""

    obs: Any
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Any  # of the true successor: the final observation where the episode ended


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
    replay: Any  # the state of the replay buffer; for a dataset its priorities or ()


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
    weight: Array | None = None  # importance weights of prioritised replay; None: all 1
    next_action: Array | None = None  # with a dataset: the action that it took at next_obs
    return_to_go: Array | None = None  # with a dataset: discounted rewards to the end of the episode


@runtime_checkable
class Rule(Protocol):
    """The learning rule of an algorithm, which its file defines: network, action values and gradient step.

    `draws` is True for a network with noise, which is given keys; for other networks, and for greedy actions, a key is
    None. The learner samples the batches of an update, takes its gradient steps, stores the priorities that they
    report, and then moves the target network: every `Hyper.target_period` steps, by `Hyper.tau`.
    """

    def init(self, key: Array, obs: Any) -> Any:
        """The initial weights, from one observation."""
        ...

    def support(self, hyper: Any) -> Any:
        """The settings of `hyper` that action values depend on, such as `limits(hyper)`; () where there are none."""
        ...

    def values(self, weights: Any, obs: Any, support: Any, key: Array | None) -> Float[Array, "..."]:
        """Action values (..., n), by which the learner acts."""
        ...

    def ahead(self, target_weights: Any, batch: Batch, hyper: Any, key: Any) -> Any:
        """What targets need of the target network at `batch.next_obs`.

        It is computed once for all batches of an update and given to each gradient step as a constant.
        """
        ...

    def gradient_step(
        self, net: Net, batch: Batch, ahead: Any, key: Any, hyper: Any, learning_rate: Array
    ) -> tuple[Net, dict[str, Array]]:
        """`(net, metrics)` after one step; the metrics have each transition's `priority` (B,)."""
        ...


def check_sizes(config: Any) -> None:
    """Raise ValueError for counts below 1, or a replay buffer too small for a rollout and a window."""
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


def check_dataset(name: str, config: Any, replay: Replay) -> None:
    """Raise ValueError for a replay that is no dataset, and for settings that a dataset does not allow."""
    if replay.add is not None:
        raise ValueError(
            f"{name}: replay is a dataset or None; the size of its own replay buffer is Config.buffer_size."
        )
    if config.n_step != 1:
        raise ValueError(f"n_step={config.n_step}: {name} learns from a dataset by single steps; it must be 1.")
    if config.prioritised != (replay.update is not None):
        raise ValueError(
            f"prioritised={config.prioritised}: {name} draws from `datasets.prioritised` with priorities and from "
            "`datasets.stored` without."
        )


def check_num_outputs(num_outputs: int, least: int, of: str) -> None:
    """Raise ValueError where an action has fewer outputs than the algorithm `of` needs."""
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
    """A Batch of windows of n consecutive transitions, leaves (n, B, ...), with the true successor of each window."""
    reward, discount, last = n_step(windows.reward, windows.terminated, windows.truncated, gamma)

    def at_last(x):
        return jnp.take_along_axis(x, last.reshape(1, *last.shape, *(1,) * (x.ndim - 2)), 0)[0]

    first: Any = jax.tree.map(lambda x: x[0], (windows.obs, windows.action))
    return Batch(first[0], first[1], reward, discount, jax.tree.map(at_last, windows.next_obs))


def stored_to_batch(steps: Stored, gamma: Float[Array, ""] | float) -> Batch:
    """A Batch of single steps of a dataset."""
    discount = jnp.where(steps.terminated, 0, gamma).astype(steps.reward.dtype)
    seen = visible(steps.obs), steps.action, steps.reward, discount, visible(steps.next_obs)
    return Batch(*seen, next_action=steps.next_action, return_to_go=steps.return_to_go)


def apply(network: Network, weights: Any, obs: Any, key: Array | None) -> tuple[Any, dict[str, Array]]:
    """`(outputs, metrics)` of the network, with noise of `key`; the metrics have `active_units` if it sows them."""
    rngs = None if key is None else {"noise": key}
    outputs, sown = network.apply(weights, obs, rngs=rngs, mutable="intermediates")
    return outputs, {"active_units": active_units(sown)} if jax.tree.leaves(sown) else {}


def limits(hyper: Any) -> tuple[Array, Array]:
    """`(v_min, v_max)`, the range of values. Raises ValueError unless v_min is below v_max."""
    if is_concrete((hyper.v_min, hyper.v_max)) and np.any(np.asarray(hyper.v_min) >= np.asarray(hyper.v_max)):
        raise ValueError(f"v_min={hyper.v_min}, v_max={hyper.v_max}: v_min must be below v_max.")
    return hyper.v_min, hyper.v_max


def clipped_targets(mean: Float[Array, " B"], support: tuple[Array, Array]) -> Float[Array, ""]:
    """The share of targets outside `support`, which a loss clips to it.

    A large share means that the support is too narrow, or that values diverge.
    """
    return jnp.mean((mean < support[0]) | (mean > support[1]), dtype=mean.dtype)


def split_or_none(key: Array | None) -> tuple[Array | None, Array | None]:
    """`jax.random.split(key)`, or two Nones for None."""
    return (None, None) if key is None else tuple(jax.random.split(key))


def weighted_mean(each: Float[Array, " B"], weight: Float[Array, " B"] | None) -> Float[Array, ""]:
    """The mean of the losses, each multiplied by its importance weight of prioritised replay, if there are any."""
    return jnp.mean(each if weight is None else weight * each)


@dataclasses.dataclass(frozen=True)
class QLearner:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    slots: ClassVar = ("replay",)
    deployed: ClassVar = "greedy"
    config: Any
    hyper_class: type
    venv: VectorEnv
    observation_space: Space
    rule: Any  # a Rule
    replay: Replay
    optimizer: Optimizer

    def epsilon(self, state: State) -> Array:
        """The probability of a random action: 0 with noisy layers, which explore alone (Fortunato et al. 2018)."""
        now = epsilon_at(state.step, state.hyper)
        return jnp.zeros_like(now) if getattr(self.config, "noisy", False) else now

    def values(self, policy: Policy, obs: Any, key: Array | None) -> Float[Array, "..."]:
        """Action values (..., n); without a key those of the mean weights, for greedy actions."""
        return self.rule.values(policy.weights, obs, policy.support, key)

    def allowed(self, obs: Any) -> Any:
        """The action mask or None."""
        return split_observation(obs, self.observation_space)[2]

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        hyper, env_params = starting_values(self.hyper_class, self.venv, hyper, env_params)
        if self.replay.add is not None:
            check_ratio(hyper, self.config)
        self.rule.support(hyper)  # raises for invalid limits
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.venv.reset(reset_key, env_params)
        first = jax.tree.map(lambda x: x[0], visible(obs))
        weights = self.rule.init(weights_key, first)
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
        """Starts a new episode in the slots of `mask`; no window will reach from the old episode into the new one."""
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
        """An epsilon-greedy rollout; None with a dataset, where nothing acts."""
        if self.replay.add is None:
            return state, None
        policy = self.policy(state)

        def act(key, obs, carry):
            obs = visible(obs)
            if self.rule.draws:  # each environment draws its own noisy weights
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
        """The batches of an update, leaves (num_updates, batch_size, ...), and their indices for new priorities."""
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
        key, sample_key, *draw_key = jax.random.split(state.key, 2 + self.rule.draws)
        keys = (
            tuple(jax.random.split(fast_key(draw_key[0]), (2, config.num_updates))) if self.rule.draws else (None, None)
        )
        replay = state.replay if rollout is None else self.replay.add(state.replay, rollout.transition)
        batches, indices = self.batches(sample_key, replay, state)
        batches = spread(batches, 1)
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        learning = net(state.weights, state.optimizer, self.optimizer)
        due = jnp.int32(config.num_updates)
        if rollout is not None:
            due = gradient_steps_due(state.step, steps, hyper.replay_ratio, config.num_updates)
            size = replay.ring.size if config.prioritised else replay.size
            enough = (state.step > hyper.learning_starts) & (size >= config.n_step * config.num_envs)
            due = jnp.where(enough, due, 0)

        def inputs():
            # The target network is constant during an update, so it is evaluated on all batches at once.
            ahead = jax.vmap(self.rule.ahead, (None, 0, None, 0))(state.target_weights, batches, hyper, keys[0])
            return batches, ahead, keys[1]

        def gradient_step(learning, inputs):
            batch, ahead, key = inputs
            return self.rule.gradient_step(learning, batch, ahead, key, hyper, learning_rate)

        learning, report = steps_taken(due, config.num_updates, learning, inputs, gradient_step)
        priority = report.pop("priority")
        if self.replay.update:
            made = jnp.repeat(jnp.arange(config.num_updates) < due, config.batch_size)
            # Rounding may make a divergence near 0 negative.
            priority = jnp.where(made, jnp.maximum(priority.reshape(-1), 0) + 1e-6, 1)
            replay = self.replay.update(replay, indices.reshape(-1), priority, hyper.priority_alpha, made)
        weights = learning.weights
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
            key=key, weights=weights, target_weights=target_weights, optimizer=learning.state, replay=replay
        )
        return state, metrics

    def policy(self, state: State) -> Policy:
        return Policy(state.weights, self.epsilon(state), self.rule.support(state.hyper))

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        obs = visible(obs)
        if greedy:
            return best_action(self.values(policy, obs, None), self.allowed(obs)), carry
        key, *draw_key = jax.random.split(key) if self.rule.draws else (key,)
        q = self.values(policy, obs, draw_key[0] if self.rule.draws else None)
        return epsilon_greedy(q, policy.epsilon, self.allowed(obs)).sample(key), carry


def algorithm(
    name: str,
    venv: VectorEnv,
    config: Any,
    hyper: type,
    rule: Rule,
    *,
    replay: Replay | Dataset | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """The Algorithm of a learning rule on `venv`.

    Args:
        config: a `Config`, or an instance of a subclass.
        hyper: the class of the dynamic settings, `Hyper` or a subclass.
        replay: a dataset, or what `datasets.stored` makes of one; None: the learner acts and fills a replay buffer.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    `make` raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not
    fit, and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    params = venv.env.default_params
    observation_space, space = venv.env.observation_space(params), venv.env.action_space(params)
    if isinstance(replay, Dataset) and config.prioritised:
        replay = prioritised_dataset(replay, space)
    own = prioritised_sequence if config.prioritised else sequence
    drawn = as_replay(name, replay, space, lambda: own(config.buffer_size, config.num_envs, config.n_step))
    if replay is not None:
        check_dataset(name, config, drawn)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    learner = QLearner(config, hyper, venv, observation_space, rule, drawn, chosen)
    per_update = config.num_envs * config.num_steps if replay is None else config.num_updates
    return algorithm_of(name, learner, hyper, per_update)


def q_network(config: Any, observation_space: Space, num_actions: int, num_outputs: int = 1) -> QNetwork:
    """The default Q-network, with the layer sizes of `config`."""
    body = config.hidden, config.activation, config.dueling
    noisy = getattr(config, "noisy", False)
    return QNetwork(observation_space, num_actions, *body, num_outputs, noisy, config.conv)


def check_network(algo: Algorithm, network: Network, num_actions: int, num_outputs: int, name: str = "") -> None:
    """Raise ValueError unless the network's outputs have the shape (N, num_actions[, num_outputs]).

    `name` is the key of its weights in `state.weights`, for algorithms with several networks.
    """
    state = jax.eval_shape(algo.init, jax.random.key(0))
    weights = state.weights[name] if name else state.weights
    outputs = jax.eval_shape(
        lambda state, weights: apply(network, weights, visible(state.obs), None)[0], state, weights
    )
    batch = algo.config.num_envs, num_actions
    check_shape(outputs.shape, batch if num_outputs == 1 else (*batch, num_outputs))
