"""R2D2: recurrent double Q-learning from prioritised sequences, with stored carries and a burn-in.

Kapturowski et al. (2019), "Recurrent experience replay in distributed reinforcement learning" (ICLR). A rollout of each
environment is one sequence of the replay. It is replayed from the carry that was stored before its burn-in; online and
target network each advance that over the burn-in, without gradient, and then over the sequence. With h the rescaling

    h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x

of values, the n-step target of double Q-learning at step t and the priority of a sequence with errors delta are

    y[t] = h(r[t] + gamma r[t+1] + ... + gamma^(n-1) r[t+n-1] + gamma^n h^-1(Q_target(t+n, argmax_a Q(t+n, a))))
    p = eta max_t |delta[t]| + (1 - eta) mean_t |delta[t]|

A window is cut where the sequence ends, bootstrapping from its last observation, and where an episode ends: without
a bootstrap if it terminated. The true successor of a truncated step is not in the sequence. So the windows of steps
before it bootstrap from the last observation that is there, the one at which the truncated step was taken, and the
truncated step itself is masked out of the loss.

Hausknecht and Stone (2015), "Deep recurrent Q-learning for partially observable MDPs": DRQN is `Config(rnn="lstm",
prioritised=False, n_step=1, rescaled=False, double=False, dueling=False)`, but for the carry: the paper's random
updates begin from zeros, here they begin from the stored one (a `burn_in` of 0 leaves it as it was stored).

Deviations: one learner that acts in several environments with one epsilon, not hundreds of actors with their own; new
sequences get the largest priority so far, not that of their errors; sequences do not overlap; priorities change after
the gradient steps of an update; streams of the dueling head are linear; the last action and reward reach the network
through `wrappers.PreviousActionReward`; the loss is the mean over steps, half the squared error. Results:
`docs/algos/r2d2.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, restarted, shared, spaces_of, starting_values
from jaxrl.environment import Environment, pytree, split_observation, visible
from jaxrl.math import fast_key
from jaxrl.nn import cells, nets
from jaxrl.nn.action_values import best_action, check_shape, dueling_values, epsilon_at, epsilon_greedy, value_of
from jaxrl.nn.networks import MLP, Dense, Encoder, Network, orthogonal, own
from jaxrl.nn.optim import Optimizer, OptimizerLike, annealed, optimizer_of
from jaxrl.nn.recurrent import Carry, burnt_in, check_carry, first_past, one_step
from jaxrl.off_policy import sequences
from jaxrl.off_policy.sequences import Rollout, Sequence, State, learns, swapped
from jaxrl.off_policy.steps import check_ratio, gradient_steps_due, steps_taken
from jaxrl.replay.prioritised import prioritised
from jaxrl.replay.ring import Replay, uniform
from jaxrl.rollout import spread
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 16  # environments stepped together
    num_steps: int = 20  # steps of each between updates: the length of a sequence
    burn_in: int = 10  # steps before a sequence that are replayed to refresh its carry; at most num_steps
    num_updates: int = 10  # gradient steps an update, at most: see Hyper.replay_ratio
    batch_size: int = 32  # sequences
    buffer_size: int = 5000  # sequences kept
    prioritised: bool = True  # prioritised replay, with Hyper.priority_*; else uniform
    n_step: int = 5  # rewards before the bootstrap; at most num_steps
    double: bool = True  # double Q-learning: the online network picks the action that the target network evaluates
    rescaled: bool = True  # values are h of returns
    dueling: bool = True  # dueling head of the default network: a state value plus centred advantages
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (64,)  # widths before the recurrent layer
    activation: str = "relu"
    rnn: str = "gru"  # a name of `jaxrl.nn.cells.CELLS`
    rnn_size: int = 64
    window: int = 32  # steps before the present one that the cells attention and frames see
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        sequences.check_config(self, without="dqn")
        if not 1 <= self.n_step <= self.num_steps:
            raise ValueError(f"n_step={self.n_step}: it must be 1 to num_steps={self.num_steps}.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps."""

    learning_rate: jax.Array = 1e-3
    anneal_steps: jax.Array = 0  # steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    rescale_eps: jax.Array = 1e-3  # eps of h
    epsilon_start: jax.Array = 1.0  # initial probability of a random action
    epsilon_end: jax.Array = 0.05  # and after exploration_steps; linear in between
    exploration_steps: jax.Array = 50_000
    learning_starts: jax.Array = 2000  # steps before the first gradient step
    replay_ratio: jax.Array = float("inf")  # gradient steps a step; inf: num_updates an update
    target_period: jax.Array = 100  # gradient steps between updates of the target network
    tau: jax.Array = 1.0  # Polyak step of the target network, each such update; 1: a copy
    max_grad_norm: jax.Array = 10.0
    priority_eta: jax.Array = 0.9  # share of the largest error in a sequence's priority; the rest is their mean's
    priority_alpha: jax.Array = 0.9  # exponent of priorities; 0: uniform
    priority_beta: jax.Array = 0.6  # initial exponent of the importance weights; 1: no bias
    priority_steps: jax.Array = 0  # steps until that exponent is 1; 0: constant


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any
    epsilon: Array  # probability of a random action, where not greedy


class QNetwork(nn.Module):
    """The default network, on time-major sequences. A network in its place has the same two methods."""

    observation_space: Space
    num_actions: int
    hidden: tuple[int, ...]
    activation: str
    dueling: bool
    rnn: str
    rnn_size: int
    conv: tuple[int, ...] = ()
    window: int = 32

    def initial_carry(self, batch_shape: tuple[int, ...]) -> PyTree:
        """The hidden state before an episode."""
        return cells.initial_carry(self.rnn, self.rnn_size, self.window, batch_shape)

    @nn.compact
    def __call__(self, hidden: Any, obs: Any, start: Any) -> tuple[Any, Float[Array, "T *batch n"]]:
        """`(hidden, action values)` of observations (T, *batch, ...); `start` (T, *batch): first ones of an episode."""
        x = Encoder(self.observation_space, self.conv, self.activation)(obs)
        x = MLP(self.hidden, None, self.activation)(x)
        hidden, x = cells.layer(self.rnn, self.rnn_size, window=self.window)(hidden, x, start)
        # Both streams of a dueling head are linear: one matrix.
        q = Dense(self.num_actions + self.dueling, kernel_init=orthogonal())(x)
        return hidden, dueling_values(q[..., 0], q[..., 1:]) if self.dueling else q


def rescale(x: Float[Array, "*batch"], eps: Float[Array, ""] | float) -> Float[Array, "*batch"]:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x (Pohlen et al. 2018, equation 5)."""
    return x / (jnp.sqrt(jnp.abs(x) + 1) + 1) + eps * x  # without the difference, which cancels near 0


def unscale(y: Float[Array, "*batch"], eps: Float[Array, ""] | float) -> Float[Array, "*batch"]:
    """The x with rescale(x, eps) = y (Pohlen et al. 2018, proposition A.2), written so that nothing cancels."""
    size = jnp.abs(y) + 1 + eps
    root = 2 * size / (jnp.sqrt(1 + 4 * eps * size) + 1)  # sqrt(|x| + 1)
    return jnp.sign(y) * (root - 1) * (root + 1)


def n_step_targets(
    reward: Float[Array, "T *batch"],
    terminated: Bool[Array, "T *batch"],
    truncated: Bool[Array, "T *batch"],
    next_value: Float[Array, "T *batch"],
    gamma: Float[Array, ""] | float,
    n: int,
) -> Float[Array, "T *batch"]:
    """Returns of windows of n steps, from `next_value[t]`, the value of the observation after step t.

    Windows are cut as the head of this file says. The target of a step that was truncated is not to be used.
    """
    cut = sequences.learns(terminated, truncated)
    cut = jnp.concatenate([~cut[1:], jnp.ones_like(cut[:1])])  # a window of step t does not go beyond the next one
    target = ahead = next_value
    for _ in range(n):
        target = reward + gamma * jnp.where(terminated, 0, ahead)
        ahead = jnp.where(cut, next_value, jnp.roll(target, -1, 0))
    return target


def td_loss(
    q: Float[Array, "T B"],
    target: Float[Array, "T B"],
    counts: Bool[Array, "T B"],
    weight: Float[Array, " B"],
) -> tuple[Float[Array, ""], Float[Array, "T B"]]:
    """`(loss, errors)`: half the squared error times the sequence's importance weight, mean over steps that count.

    Errors are 0 where a step does not count.
    """
    error = jnp.where(counts, q - target, 0)
    return 0.5 * jnp.sum(weight * error**2) / jnp.maximum(counts.sum(), 1), error


def sequence_priority(
    error: Float[Array, "T B"], counts: Bool[Array, "T B"], eta: Float[Array, ""] | float
) -> Float[Array, " B"]:
    """eta max |error| + (1 - eta) mean |error| over the steps that count (Kapturowski et al. 2019, section 2.3)."""
    size = jnp.abs(error)
    return eta * jnp.max(size, 0) + (1 - eta) * jnp.sum(size, 0) / jnp.maximum(counts.sum(0), 1)


@dataclasses.dataclass(frozen=True)
class _R2D2:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    slots: ClassVar = ("carry", "past", "replay")
    deployed: ClassVar = "greedy"
    config: Config
    venv: VectorEnv
    network: Any
    observation_space: Space
    replay: Replay
    optimizer: Optimizer

    def allowed(self, obs: Any) -> Bool[Array, "..."] | None:
        """The action mask or None."""
        return split_observation(obs, self.observation_space)[2]

    def values(self, weights: Any, obs: Any, carry: Carry) -> tuple[Array, Carry]:
        """Action values of one step's observations (*batch, ...), and the carry after it."""
        hidden, q = self.network.apply(weights, carry.hidden, *one_step((visible(obs), carry.start)))
        return q[0], Carry(jnp.zeros_like(carry.start), hidden)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        check_ratio(hyper, self.config)
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.venv.reset(reset_key, env_params)
        carry = self.initial_carry((self.config.num_envs,))
        weights = self.network.init(weights_key, carry.hidden, *one_step((visible(obs), carry.start)))
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        past = first_past(carry.hidden, visible(obs), carry.start, self.config.burn_in)
        item = sequences.example(past, visible(obs), jnp.int32(0), self.config.num_steps)
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
            carry=carry,
            past=past,
        )

    def restart(self, state: State, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> State:
        """Starts a new episode in the slots of `mask`, with a reset carry; what is stored ends before it."""
        state = restarted(self.venv, state, key, env_params, mask)
        return state.replace(carry=state.carry._replace(start=state.carry.start | mask))

    def collect(self, state: State) -> tuple[State, Rollout]:
        """An epsilon-greedy rollout."""
        epsilon = epsilon_at(state.step, state.hyper)

        def act(key, obs, carry):
            q, after = self.values(state.weights, obs, carry)
            action = epsilon_greedy(q, epsilon, self.allowed(obs)).sample(key)
            return action, action, after

        return sequences.collect(self.venv, state, self.config.num_steps, self.config.burn_in, act, visible)

    def learn(self, state: State, rollout: Rollout) -> tuple[State, dict[str, Array]]:
        """Stores the sequences, takes the gradient steps that are due, and gives the sequences their priorities."""
        config, hyper = self.config, state.hyper
        key, sample_key = jax.random.split(state.key)
        replay = self.replay.add(state.replay, rollout.sequence)
        steps = config.num_envs * config.num_steps
        due = gradient_steps_due(state.step, steps, hyper.replay_ratio, config.num_updates)
        due = jnp.where(state.step > hyper.learning_starts, due, 0)
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)

        # Batches are drawn outside the branch: inputs of a branch may be copied, and the replay buffer is large.
        keys = jax.random.split(fast_key(sample_key), config.num_updates)
        weight, indices = jnp.ones((config.num_updates, config.batch_size)), jnp.zeros(0, jnp.int32)
        if config.prioritised:
            beta = 1 - annealed(1 - hyper.priority_beta, state.step, hyper.priority_steps)
            sample = jax.vmap(lambda key: self.replay.sample(key, replay, config.batch_size, beta))
            batches, indices, weight = sample(keys)
        else:
            batches = jax.vmap(lambda key: self.replay.sample(key, replay, config.batch_size))(keys)
        batches = spread(batches, 1)

        def gradient_step(net, inputs):
            batch, weight = inputs
            return self.gradient_step(net, swapped(batch), weight.astype(batch.reward.dtype), hyper, learning_rate)

        net = nets.net(state.weights, state.optimizer, self.optimizer, state.target_weights)
        net, report = steps_taken(due, config.num_updates, net, lambda: (batches, weight), gradient_step)
        priority = report.pop("priority")
        if self.replay.update:
            made = jnp.repeat(jnp.arange(config.num_updates) < due, config.batch_size)
            priority = jnp.where(made, priority.reshape(-1) + 1e-6, 1)
            replay = self.replay.update(replay, indices.reshape(-1), priority, hyper.priority_alpha, made)
        state = state.replace(
            key=key, weights=net.weights, target_weights=net.target, optimizer=net.state, replay=replay
        )
        shown = {"gradient_steps": due, "epsilon": epsilon_at(state.step, hyper), "learning_rate": learning_rate}
        return state, {**rollout.ends.metrics(), **jax.tree.map(jnp.nanmean, report), **shown}

    def gradient_step(
        self, net: nets.Net, batch: Sequence, weight: Float[Array, " B"], hyper: Hyper, learning_rate: Array
    ) -> tuple[nets.Net, dict[str, Array]]:
        """Burn-in, targets, loss, one step of the optimiser, and where it is due the target network."""
        config, allowed = self.config, self.allowed(batch.obs)
        counts = learns(batch.terminated, batch.truncated)
        hidden = burnt_in(net.target, batch.past, self.network)
        _, target_q = self.network.apply(net.target, hidden, batch.obs, batch.start)

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            hidden = burnt_in(weights, batch.past, self.network)
            _, q = self.network.apply(weights, hidden, batch.obs, batch.start)
            best = best_action(jax.lax.stop_gradient(q) if config.double else target_q, allowed)
            next_value = value_of(target_q, best)[1:]
            next_value = unscale(next_value, hyper.rescale_eps) if config.rescaled else next_value
            ends = batch.terminated, batch.truncated
            target = n_step_targets(batch.reward, *ends, next_value, hyper.gamma, config.n_step)
            target = rescale(target, hyper.rescale_eps) if config.rescaled else target
            taken = value_of(q[:-1], batch.action)
            loss, error = td_loss(taken, target, counts, weight)
            priority = sequence_priority(jax.lax.stop_gradient(error), counts, hyper.priority_eta)
            return loss, {"priority": priority, "q_value": jnp.mean(taken)}

        net, report = net.descend(objective, learning_rate, hyper.max_grad_norm)
        move = net.count % jnp.maximum(hyper.target_period, 1) == 0
        return net.track(jnp.where(move, hyper.tau, 0)), report

    def policy(self, state: State) -> Policy:
        return Policy(state.weights, epsilon_at(state.step, state.hyper))

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Carry:
        return Carry(jnp.ones(batch_shape, bool), self.network.initial_carry(batch_shape))

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        check_carry(carry, obs, self.observation_space)
        q, carry = self.values(policy.weights, obs, carry)
        if greedy:
            return best_action(q, self.allowed(obs)), carry
        return epsilon_greedy(q, policy.epsilon, self.allowed(obs)).sample(key), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """R2D2 on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module with the methods `initial_carry` and `__call__` of `QNetwork`.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not Discrete, several agents, or a network
    whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("r2d2", venv, Discrete)
    if own("network", network) is None:
        body = config.hidden, config.activation, config.dueling, config.rnn, config.rnn_size, config.conv, config.window
        network = QNetwork(observation_space, action_space.n, *body)
    replay = (prioritised if config.prioritised else uniform)(config.buffer_size)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    r2d2 = _R2D2(config, venv, network, observation_space, replay, chosen)
    state = jax.eval_shape(r2d2.init, jax.random.key(0))
    shape = jax.eval_shape(lambda s: r2d2.values(s.weights, s.obs, s.carry)[0], state).shape
    check_shape(shape, (config.num_envs, action_space.n))
    return algorithm_of("r2d2", r2d2, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
