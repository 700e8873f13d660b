"""PQN with a recurrent network, for partially observed tasks.

Gallici et al. (2024), "Simplifying deep temporal difference learning" (arXiv:2407.04811), PQN-RNN. Target and loss are
those of `pqn.py`, whose functions this file uses. What recurrence changes:

- Minibatches are whole sequences of some environments. They are replayed from the carry at the begin of the rollout
  (stored, as in R2D2: Kapturowski et al. 2019), which is reset wherever an episode starts inside the sequence.
- That carry was computed with older weights. The `burn_in` steps before the rollout are replayed first, with the
  current weights and without gradient, which refreshes the carry; they are not learned from.
- A truncated episode bootstraps from the value of its final observation with the carry of that episode, not a reset
  one.

Deviations from purejaxql: those of `pqn.py`; targets are computed once for a rollout, from the values at the time it
was collected; the last step of a rollout is learned from too; the network does not see the last action. Results:
`experiments/memory/`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jaxrl import on_policy
from jaxrl.algorithm import (
    Algorithm,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    check_minibatches,
    restarted,
    shared,
    spaces_of,
)
from jaxrl.algos.deep_q import pqn
from jaxrl.algos.deep_q.pqn import Policy, td_loss
from jaxrl.environment import Environment, pytree, split_observation, visible
from jaxrl.math import shuffled
from jaxrl.nn import cells, nets
from jaxrl.nn.action_values import best_action, best_value, check_shape, epsilon_at, epsilon_greedy, value_of
from jaxrl.nn.networks import MLP, Dense, Encoder, Network, orthogonal, own
from jaxrl.nn.optim import Optimizer, OptimizerLike, annealed, optimizer_of
from jaxrl.nn.recurrent import Carry, Past, burnt_in, check_carry, first_past, one_step, past_of
from jaxrl.on_policy import epochs
from jaxrl.returns import lambda_returns
from jaxrl.rollout import Ends, rollout, successor_values
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(pqn.Config):
    """Static settings: each value compiles its own program."""

    num_minibatches: int = 16  # gradient steps a pass; divides num_envs
    hidden: tuple[int, ...] = (64, 64)  # widths before the recurrent layer
    rnn: str = "gru"  # a name of `jaxrl.nn.cells.CELLS`
    rnn_size: int = 64
    window: int = 32  # steps before the present one that the cells attention and frames see
    burn_in: int = 0  # steps before a rollout that are replayed to refresh its carry; at most num_steps
    forward_mode: bool = False  # also allows forward-mode derivatives (`jax.jvp`); slower

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "num_epochs", "num_minibatches", "rnn_size", "window")
        cells.check_cell(self.rnn, without="pqn")
        if not 0 <= self.burn_in <= self.num_steps:
            raise ValueError(f"burn_in={self.burn_in}: it must be 0 to num_steps={self.num_steps}.")
        check_minibatches(self.num_minibatches, self.num_envs, "num_envs")


@pytree
class Hyper(pqn.Hyper):
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps."""


class QNetwork(nn.Module):
    """The default network, on time-major sequences. A network in its place has the same two methods."""

    observation_space: Space
    num_actions: int
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool
    rnn: str
    rnn_size: int
    conv: tuple[int, ...] = ()
    forward_mode: bool = False
    window: int = 32

    def initial_carry(self, batch_shape: tuple[int, ...]) -> PyTree:
        """The hidden state before an episode."""
        return cells.initial_carry(self.rnn, self.rnn_size, self.window, batch_shape)

    @nn.compact
    def __call__(self, hidden: Any, obs: Any, start: Any) -> tuple[Any, Float[Array, "T *batch n"]]:
        """`(hidden, action values)` of observations (T, *batch, ...); `start` (T, *batch): first ones of an episode."""
        x = Encoder(self.observation_space, self.conv, self.activation, layer_norm=self.layer_norm)(obs)
        x = MLP(self.hidden, None, self.activation, layer_norm=self.layer_norm)(x)
        hidden, x = cells.layer(self.rnn, self.rnn_size, window=self.window, forward_mode=self.forward_mode)(
            hidden, x, start
        )
        return hidden, Dense(self.num_actions, kernel_init=orthogonal())(x)


@pytree
class PQNRNNState(on_policy.State):
    carry: Carry
    past: Past


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    action: Array
    value: Array  # the largest action value
    reward: Array
    terminated: Array
    truncated: Array
    next_value: Array  # of the true successor, final_obs where truncated
    start: Array  # the observation is the first of an episode
    past: Past
    ends: Ends


class Batch(NamedTuple):
    """A minibatch of sequences, time-major (T, B, ...)."""

    obs: Any
    action: Array
    target: Array
    start: Array
    past: Past  # its hidden has a leading axis of length 1


def loss(weights: Any, batch: Batch, network: nn.Module) -> tuple[Float[Array, ""], dict[str, Array]]:
    """`(loss, metrics)` of one minibatch (Gallici et al. 2024, algorithm 1)."""
    past = batch.past._replace(hidden=on_policy.first_of(batch.past.hidden))
    after: Any = network.apply(weights, burnt_in(weights, past, network), batch.obs, batch.start)
    q, action = after[1].reshape(-1, after[1].shape[-1]), batch.action.reshape(-1)
    total = td_loss(q, action, batch.target.reshape(-1))
    return total, {"loss": total, "q_value": jnp.mean(value_of(q, action))}


@dataclasses.dataclass(frozen=True)
class _PQNRNN:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    slots: ClassVar = ("carry", "past")
    config: Config
    venv: VectorEnv
    network: Any
    observation_space: Space
    optimizer: Optimizer
    deployed = "greedy"

    def action_mask(self, obs: Any) -> Bool[Array, "..."] | None:
        return split_observation(obs, self.observation_space)[2]

    def values(self, weights: Any, obs: Any, carry: Carry) -> tuple[Array, Carry]:
        """Action values of one step's observations (*batch, ...), and the carry after it."""
        hidden, q = self.network.apply(weights, carry.hidden, *one_step((visible(obs), carry.start)))
        return q[0], Carry(jnp.zeros_like(carry.start), hidden)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> PQNRNNState:
        carry = self.initial_carry((self.config.num_envs,))

        def weights(key, obs):
            return self.network.init(key, carry.hidden, *one_step((visible(obs), carry.start)))

        begun = on_policy.begin(Hyper, self.venv, self.optimizer, weights, key, hyper, env_params)
        past = first_past(carry.hidden, visible(begun["obs"]), carry.start, self.config.burn_in)
        return PQNRNNState(**begun, carry=carry, past=past)

    def restart(self, state: PQNRNNState, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> PQNRNNState:
        """Starts a new episode in the slots of `mask`, with a reset carry."""
        state = restarted(self.venv, state, key, env_params, mask)
        return state.replace(carry=state.carry._replace(start=state.carry.start | mask))

    def collect(self, state: PQNRNNState) -> tuple[PQNRNNState, Rollout]:
        epsilon = epsilon_at(state.step, state.hyper)

        def act(key, obs, carry):
            q, after = self.values(state.weights, obs, carry)
            mask = self.action_mask(obs)
            action = epsilon_greedy(q, epsilon, mask).sample(key)
            return action, (action, best_value(q, mask), carry.start, after), after

        def ended(carry, done):
            return carry._replace(start=done)

        def value_after(inputs):
            obs, carry = inputs
            return best_value(self.values(state.weights, obs, carry)[0], self.action_mask(obs))

        new_state, carry, steps = rollout(self.venv, state, self.config.num_steps, act, state.carry, ended)
        action, value, start, after = steps.output
        # A final observation belongs to the episode that it ends: its value uses the carry before any reset.
        last = carry._replace(start=jnp.zeros_like(carry.start))
        next_value = successor_values(
            value_after, value, (new_state.obs, last), (steps.next_obs, after), steps.truncated
        )
        obs = visible(steps.obs)
        past = past_of(state.carry.hidden, after.hidden, obs, start, self.config.burn_in)
        return new_state.replace(carry=carry, past=past), Rollout(
            obs=obs,
            action=action,
            value=value,
            reward=steps.reward,
            terminated=steps.terminated,
            truncated=steps.truncated,
            next_value=next_value,
            start=start,
            past=state.past,
            ends=steps.ends,
        )

    def learn(self, state: PQNRNNState, rollout: Rollout) -> tuple[PQNRNNState, dict[str, Array]]:
        """Lambda-returns, then epochs of regression on minibatches of whole sequences."""
        config, hyper = self.config, state.hyper
        key, shuffle_key = jax.random.split(state.key)
        reward, ends = hyper.reward_scale * rollout.reward, (rollout.terminated, rollout.truncated)
        target = lambda_returns(reward, rollout.next_value, *ends, hyper.gamma, hyper.q_lambda)
        past = rollout.past._replace(hidden=one_step(rollout.past.hidden))
        batch = Batch(rollout.obs, rollout.action, target, rollout.start, past)
        steps = config.num_steps * config.num_envs
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        gradient_step = functools.partial(self.gradient_step, hyper=hyper, learning_rate=learning_rate)
        orders = shuffled(shuffle_key, (config.num_epochs, config.num_envs))
        net = nets.net(state.weights, state.optimizer, self.optimizer)
        net, report = epochs(gradient_step, net, batch, orders, config.num_minibatches, sequences=True)
        shown = {"epsilon": epsilon_at(state.step, hyper), "learning_rate": learning_rate}
        state = state.replace(key=key, weights=net.weights, optimizer=net.state)
        return state, {**rollout.ends.metrics(), **report, **shown}

    def gradient_step(self, net: nets.Net, batch: Batch, hyper: Hyper, learning_rate: Array) -> tuple[nets.Net, dict]:
        """One step of regression on a minibatch."""
        return net.descend(lambda weights: loss(weights, batch, self.network), learning_rate, hyper.max_grad_norm)

    def policy(self, state: PQNRNNState) -> Policy:
        return Policy(state.weights, epsilon_at(state.step, state.hyper))

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Carry:
        return Carry(jnp.ones(batch_shape, bool), self.network.initial_carry(batch_shape))

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        check_carry(carry, obs, self.observation_space)
        q, carry = self.values(policy.weights, obs, carry)
        if greedy:
            return best_action(q, self.action_mask(obs)), carry
        return epsilon_greedy(q, policy.epsilon, self.action_mask(obs)).sample(key), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Recurrent PQN on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module with the methods `initial_carry` and `__call__` of `QNetwork`.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("pqn_rnn", venv, Discrete)
    if own("network", network) is None:
        body = config.hidden, config.activation, config.layer_norm, config.rnn, config.rnn_size, config.conv
        network = QNetwork(observation_space, action_space.n, *body, config.forward_mode, config.window)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    pqn = _PQNRNN(config, venv, network, observation_space, chosen)
    state = jax.eval_shape(pqn.init, jax.random.key(0))
    shape = jax.eval_shape(lambda s: pqn.values(s.weights, s.obs, s.carry)[0], state).shape
    check_shape(shape, (config.num_envs, action_space.n))
    return algorithm_of("pqn_rnn", pqn, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
