"""Proximal policy optimisation with recurrent networks, for partially observed tasks.

Schulman et al. (2017), "Proximal policy optimization algorithms" (arXiv:1707.06347): objective and details are those
of `ppo.py`, whose functions this file uses. What recurrence changes:

- Actor and critic have separate cells (`rnn`, one of `jaxrl.nn.cells`), so that the critic's may see privileged
  observations and only the actor's is deployed; or, with `shared`, they have one body with two heads.
- Minibatches are whole sequences of some environments. They are replayed from the carry at the begin of the rollout
  (stored, as in R2D2: Kapturowski et al. 2019), which is reset wherever an episode starts inside the sequence.
- That carry was computed with older weights. The `burn_in` steps before the rollout are replayed first, with the
  current weights and without gradient, which refreshes the carry; they are not learned from.
- A truncated episode bootstraps from the value of its final observation with the carry of that episode, not a reset
  one.

Deviations from purejaxrl's `ppo_rnn.py`: two recurrent bodies instead of one shared; resets are flags in addition to
the carry; time limits are not deaths; the entropy's weight can go to zero (`ent_anneal_steps`). Results:
`docs/results.md`, `experiments/memory/`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
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
from jaxrl.algos.on_policy import ppo
from jaxrl.algos.on_policy.ppo import policy_loss
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.math import shuffled
from jaxrl.nn import cells, nets
from jaxrl.nn.distributions import Distribution, num_outputs, of_space
from jaxrl.nn.networks import MLP, Dense, Encoder, Network, orthogonal, own
from jaxrl.nn.optim import Optimizer, OptimizerLike, annealed, optimizer_of
from jaxrl.nn.recurrent import Carry, Past, burnt_in, check_carry, first_past, one_step, past_of
from jaxrl.on_policy import epochs, explained_variance
from jaxrl.returns import gae
from jaxrl.rollout import Ends, rollout, successor_values
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space, environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 16  # environments stepped together
    num_steps: int = 128  # steps of each in a rollout
    num_epochs: int = 4  # passes over a rollout
    num_minibatches: int = 4  # gradient steps a pass; divides num_envs
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (64,)  # widths before the recurrent layer, of actor and critic
    activation: str = "tanh"
    rnn: str = "gru"  # a name of `jaxrl.nn.cells.CELLS`
    rnn_size: int = 64
    window: int = 32  # steps before the present one that the cells attention and frames see
    head_hidden: tuple[int, ...] = ()  # widths between the recurrent layer and the heads
    shared: bool = False  # one encoder and body for both: half the work, but the critic sees nothing privileged
    burn_in: int = 0  # steps before a rollout that are replayed to refresh its carry; at most num_steps
    normalize_advantage: bool = True  # per minibatch
    clip_value: bool = True
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-5  # added to the denominator of Adam and its kin
    forward_mode: bool = False  # also allows forward-mode derivatives (`jax.jvp`); slower

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "num_epochs", "num_minibatches", "rnn_size", "window")
        cells.check_cell(self.rnn, without="ppo")
        if not 0 <= self.burn_in <= self.num_steps:
            raise ValueError(f"burn_in={self.burn_in}: it must be 0 to num_steps={self.num_steps}.")
        check_minibatches(self.num_minibatches, self.num_envs, "num_envs")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-3
    anneal_steps: jax.Array = 0  # environment steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    gae_lambda: jax.Array = 0.95
    clip_eps: jax.Array = 0.2
    ent_coef: jax.Array = 0.01  # weight of the entropy
    ent_anneal_steps: jax.Array = 0  # environment steps over which that weight goes to zero; 0: constant
    vf_coef: jax.Array = 0.5
    max_grad_norm: jax.Array = 0.5


class RecurrentBody(nn.Module):
    """Dense layers, a recurrent layer, optional further dense layers, and linear heads."""

    hidden: tuple[int, ...]
    activation: str
    rnn: str
    rnn_size: int
    heads: tuple[tuple[int, float], ...]  # (outputs, scale of initial weights) of each head
    forward_mode: bool = False
    head_hidden: tuple[int, ...] = ()
    window: int = 32

    @nn.compact
    def __call__(self, hidden: Any, x: Any, start: Any) -> tuple[Any, ...]:
        x = MLP(self.hidden, None, self.activation)(x)
        hidden, x = cells.layer(self.rnn, self.rnn_size, window=self.window, forward_mode=self.forward_mode)(
            hidden, x, start
        )
        x = MLP(self.head_hidden, None, self.activation)(x)
        return hidden, *(Dense(out, kernel_init=orthogonal(scale))(x) for out, scale in self.heads)


class Hidden(NamedTuple):
    actor: Any
    critic: Any = ()  # () with one body for both

    @property
    def seen_by_critic(self) -> Any:
        return self.actor if isinstance(self.critic, tuple) and not self.critic else self.critic


class RecurrentActorCritic(nn.Module):
    """The default network, on time-major sequences. A network in its place has the same methods, and `shared`."""

    observation_space: Space
    num_outputs: int
    continuous: bool
    hidden: tuple[int, ...]
    activation: str
    rnn: str
    rnn_size: int
    conv: tuple[int, ...] = ()
    shared: bool = False
    forward_mode: bool = False
    head_hidden: tuple[int, ...] = ()
    window: int = 32

    def setup(self) -> None:
        body = self.hidden, self.activation, self.rnn, self.rnn_size
        policy, value = (self.num_outputs, 0.01), (1, 1.0)
        last = self.forward_mode, self.head_hidden, self.window
        self.actor_encoder = Encoder(self.observation_space, self.conv, self.activation)
        self.actor_body = RecurrentBody(*body, (policy, value) if self.shared else (policy,), *last)
        if not self.shared:
            self.critic_encoder = Encoder(self.observation_space, self.conv, self.activation, privileged=True)
            self.critic_body = RecurrentBody(*body, (value,), *last)
        if self.continuous:
            self.log_std = self.param("log_std", nn.initializers.zeros, (self.num_outputs,))

    def initial_carry(self, batch_shape: tuple[int, ...]) -> PyTree:
        """The hidden states of actor and critic before an episode."""
        return cells.initial_carry(self.rnn, self.rnn_size, self.window, batch_shape)

    def actor(self, hidden: Any, obs: Any, start: Any) -> tuple[Any, Any]:
        """`(hidden, logits (T, *batch, n))`, for a Box `(mean, log_std)` in units of the box in their place.

        `obs` are whole observations (T, *batch, ...); `start` (T, *batch) is True at the first ones of an episode.
        """
        hidden, out, *_ = self.actor_body(hidden, self.actor_encoder(obs), start)
        return hidden, (out, self.log_std) if self.continuous else out

    def critic(self, hidden: Any, obs: Any, start: Any) -> tuple[Any, Float[Array, "T *batch"]]:
        """`(hidden, values)`; sees the privileged part of the observations too, unless shared."""
        encoder, body = (
            (self.actor_encoder, self.actor_body) if self.shared else (self.critic_encoder, self.critic_body)
        )
        hidden, *_, out = body(hidden, encoder(obs), start)
        return hidden, out[..., 0]

    def __call__(self, hidden: Hidden, obs: Any, start: Any) -> tuple[Hidden, Any, Float[Array, "T *batch"]]:
        """`(hidden, outputs of the actor, values)`."""
        if self.shared:
            after, out, value = self.actor_body(hidden.actor, self.actor_encoder(obs), start)
            return Hidden(after), (out, self.log_std) if self.continuous else out, value[..., 0]
        actor, outputs = self.actor(hidden.actor, obs, start)
        critic, value = self.critic(hidden.critic, obs, start)
        return Hidden(actor, critic), outputs, value


@pytree
class PPORNNState(on_policy.State):
    carry: Carry  # its `hidden` is a `Hidden`
    past: Past


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    start: Array  # the observation is the first of an episode
    past: Past
    action: Array  # as sampled, before clipping to the box
    log_prob: Array
    value: Array
    reward: Array
    terminated: Array
    truncated: Array
    next_value: Array  # of the true successor, final_obs where truncated
    ends: Ends
    learn_mask: Array | None = None  # (N,): slots to learn from; None: all


class Batch(NamedTuple):
    """A minibatch of sequences, time-major (T, B, ...)."""

    obs: Any
    start: Array
    past: Past  # its hidden has a leading axis of length 1
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array
    mask: Array | None = None  # learn from these; None: all


def loss(
    weights: Any,
    batch: Batch,
    hyper: Hyper,
    config: Config,
    network: Network,
    observation_space: Space,
    space: Space,
    policy_loss: Callable[..., Array] = policy_loss,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """`(loss, metrics)` of PPO on a minibatch of sequences, replayed from the carry at their begin."""
    past = batch.past._replace(hidden=on_policy.first_of(batch.past.hidden))
    hidden = burnt_in(weights, past, network)
    after: Any = network.apply(weights, hidden, batch.obs, batch.start)
    _, outputs, value = after
    pi = of_space(space, outputs, split_observation(batch.obs, observation_space)[2])
    now = pi.log_prob(batch.action), value, pi.entropy()
    then = {name: getattr(batch, name) for name in ("log_prob", "value", "advantage", "target", "mask")}
    (log_prob, value, entropy), then = jax.tree.map(lambda x: x.reshape(-1), (now, then))
    return ppo.objective(log_prob, value, entropy, batch._replace(**then), hyper, config, policy_loss)


@dataclasses.dataclass(frozen=True)
class _PPORNN:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    slots: ClassVar = ("carry", "past")
    config: Config
    venv: VectorEnv
    network: Any
    observation_space: Space
    action_space: Space
    optimizer: Optimizer
    loss: Callable[..., Any] | None = None  # replaces the function `loss` of this file

    def distribution(self, outputs: Any, obs: Any) -> Distribution:
        """The policy of an actor's outputs for one step's observations (*batch, ...), still with a time axis."""
        if isinstance(self.action_space, Box):
            means, log_std = outputs
            # A state-independent log_std has no time axis.
            outputs = means[0], log_std[0] if log_std.ndim == means.ndim else log_std
        else:
            outputs = outputs[0]
        return of_space(self.action_space, outputs, split_observation(obs, self.observation_space)[2])

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> PPORNNState:
        start, hidden = self.initial_carry((self.config.num_envs,))
        hidden = Hidden(hidden, () if getattr(self.network, "shared", False) else hidden)

        def weights(key, obs):
            return self.network.init(key, hidden, *one_step((obs, start)))

        begun = on_policy.begin(Hyper, self.venv, self.optimizer, weights, key, hyper, env_params)
        past = first_past(hidden, begun["obs"], start, self.config.burn_in)
        return PPORNNState(**begun, carry=Carry(start, hidden), past=past)

    def restart(self, state: PPORNNState, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> PPORNNState:
        """Starts a new episode in the slots of `mask`, with a reset carry."""
        state = restarted(self.venv, state, key, env_params, mask)
        return state.replace(carry=state.carry._replace(start=state.carry.start | mask))

    def collect(self, state: PPORNNState) -> tuple[PPORNNState, Rollout]:
        def act(key, obs, carry):
            hidden, outputs, value = self.network.apply(state.weights, carry.hidden, *one_step((obs, carry.start)))
            pi = self.distribution(outputs, obs)
            action, after = pi.sample(key), Carry(jnp.zeros_like(carry.start), hidden)
            return environment_action(self.action_space, action), (action, pi, value[0], carry.start, after), after

        def ended(carry, done):
            return carry._replace(start=done)

        def value_after(inputs):
            obs, carry = inputs
            sequence = one_step((obs, carry.start))
            return self.network.apply(state.weights, carry.hidden, *sequence, method="critic")[1][0]

        new_state, carry, steps = rollout(self.venv, state, self.config.num_steps, act, state.carry, ended)
        action, pi, value, start, after = steps.output
        # A final observation belongs to the episode that it ends: its value uses the carry before any reset.
        last = Carry(jnp.zeros_like(carry.start), carry.hidden.seen_by_critic)
        successor = Carry(after.start, after.hidden.seen_by_critic)
        next_value = successor_values(
            value_after, value, (new_state.obs, last), (steps.next_obs, successor), steps.truncated
        )
        past = past_of(state.carry.hidden, after.hidden, steps.obs, start, self.config.burn_in)
        return new_state.replace(carry=carry, past=past), Rollout(
            obs=steps.obs,
            start=start,
            past=state.past,
            action=action,
            log_prob=pi.log_prob(action),
            value=value,
            reward=steps.reward,
            terminated=steps.terminated,
            truncated=steps.truncated,
            next_value=next_value,
            ends=steps.ends,
        )

    def learn(self, state: PPORNNState, rollout: Rollout) -> tuple[PPORNNState, dict[str, Array]]:
        """Advantages, then epochs of gradient steps on minibatches of whole sequences."""
        config, hyper = self.config, state.hyper
        key, shuffle_key = jax.random.split(state.key)
        ends = rollout.terminated, rollout.truncated
        advantage = gae(rollout.reward, rollout.value, rollout.next_value, *ends, hyper.gamma, hyper.gae_lambda)
        target = advantage + rollout.value
        past = rollout.past._replace(hidden=one_step(rollout.past.hidden))
        mask = rollout.learn_mask
        mask = None if mask is None else jnp.broadcast_to(mask, target.shape)
        batch = Batch(
            rollout.obs, rollout.start, past, rollout.action, rollout.log_prob, rollout.value, advantage, target, mask
        )
        steps = config.num_steps * config.num_envs
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        hyper = hyper.replace(ent_coef=annealed(hyper.ent_coef, state.step - steps, hyper.ent_anneal_steps))
        gradient_step = functools.partial(self.gradient_step, hyper=hyper, learning_rate=learning_rate)
        orders = shuffled(shuffle_key, (config.num_epochs, config.num_envs))
        net = nets.net(state.weights, state.optimizer, self.optimizer)
        net, report = epochs(gradient_step, net, batch, orders, config.num_minibatches, sequences=True)
        shown = {"explained_variance": explained_variance(target, rollout.value), "learning_rate": learning_rate}
        shown["ent_coef"] = hyper.ent_coef
        state = state.replace(key=key, weights=net.weights, optimizer=net.state)
        return state, {**rollout.ends.metrics(), **report, **shown}

    def gradient_step(self, net: nets.Net, batch: Batch, hyper: Hyper, learning_rate: Array) -> tuple[nets.Net, dict]:
        """One step on a minibatch; no step where the mask is all False."""
        parts = hyper, self.config, self.network, self.observation_space, self.action_space
        objective = self.loss or loss
        new, report = net.descend(lambda w: objective(w, batch, *parts), learning_rate, hyper.max_grad_norm)
        if batch.mask is not None:
            new = jax.tree.map(functools.partial(jnp.where, batch.mask.any()), new, net)
        return new, report

    def policy(self, state: PPORNNState) -> Any:
        return state.weights

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Carry:
        return Carry(jnp.ones(batch_shape, bool), self.network.initial_carry(batch_shape))

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        check_carry(carry, obs, self.observation_space)
        hidden, outputs = self.network.apply(policy, carry.hidden, *one_step((obs, carry.start)), method="actor")
        pi = self.distribution(outputs, obs)
        action = pi.mode() if greedy else pi.sample(key)
        return environment_action(self.action_space, action), Carry(jnp.zeros_like(carry.start), hidden)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
    loss: Callable[..., Any] | None = None,
) -> Algorithm:
    """Recurrent PPO on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module with the methods `actor`, `critic`, `__call__` (both) and `initial_carry` of
            `RecurrentActorCritic`; and `shared`, if it is True.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.
        loss: a function with the arguments and results of `loss` in this file, in its place; as `partial(loss,
            policy_loss=...)`.

    Raises ValueError for an action space it cannot handle, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("ppo_rnn", venv, Discrete, MultiDiscrete, Box)
    outputs = num_outputs(action_space)
    continuous = isinstance(action_space, Box)
    network = own("network", network)
    if network is None:
        body = config.hidden, config.activation, config.rnn, config.rnn_size, config.conv, config.shared
        last = config.forward_mode, config.head_hidden, config.window
        network = RecurrentActorCritic(observation_space, outputs, continuous, *body, *last)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    ppo = _PPORNN(config, venv, network, observation_space, action_space, chosen, loss)
    state = jax.eval_shape(ppo.init, jax.random.key(0))
    _, head, value = jax.eval_shape(
        lambda s: network.apply(s.weights, s.carry.hidden, *one_step((s.obs, s.carry.start))), state
    )
    head_shape = (head[0] if continuous else head).shape
    if head_shape[-1] != outputs or value.shape != (1, config.num_envs):
        raise ValueError(
            f"network gives outputs {head_shape} and values {value.shape} for {(1, config.num_envs)} observations; "
            f"{action_space} needs {(1, config.num_envs, outputs)} and {(1, config.num_envs)}."
        )
    return algorithm_of("ppo_rnn", ppo, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
