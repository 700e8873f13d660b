"""Proximal policy optimisation with recurrent networks, for tasks whose observation does not tell the state.

Schulman et al. (2017), "Proximal policy optimization algorithms" (arXiv:1707.06347): losses and details are those of
`ppo.py`, whose functions this file uses. What recurrence changes:

- Actor and critic each have a GRU or LSTM of their own, so that the critic's may see what is privileged and only the
  actor's is deployed.
- Minibatches are whole sequences of some environments. They are replayed from the carry with which the rollout began
  (stored, as in R2D2: Kapturowski et al. 2019), and forget it wherever an episode starts inside the sequence.
- That carry came from older weights. The `burn_in` steps before the rollout are replayed first, with the present
  weights and without gradient; they refresh the carry and are not learned from.
- A cut episode bootstraps from the value of its final observation, after the carry of that episode, not the reset one.

Deviations from purejaxrl's `ppo_rnn.py`: two recurrent bodies instead of one shared; resets are flags beside the carry;
time limits are not deaths. Results: `docs/results.md`, `experiments/memory/`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from jaxrl.algorithm import (
    AdamState,
    Algorithm,
    adam_init,
    annealed,
    as_vector_env,
    check_at_least_one,
    check_minibatches,
    descend,
    episode_metrics,
    spaces_of,
    starting_values,
)
from jaxrl.algos.ppo import mean, normalized, policy_loss, value_loss
from jaxrl.distributions import Distribution, num_outputs, of_space
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.math import fast_key, shuffled
from jaxrl.networks import MLP, Encoder, Recurrent, orthogonal
from jaxrl.returns import gae
from jaxrl.rollout import rollout, successor_values
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space, environment_action
from jaxrl.vectorize import VectorEnv


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
    rnn: str = "gru"  # or "lstm"
    rnn_size: int = 64
    burn_in: int = 0  # steps before a rollout from which its carry is computed again; at most num_steps
    normalize_advantage: bool = True  # per minibatch
    clip_value: bool = True

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "num_epochs", "num_minibatches", "rnn_size")
        if self.rnn not in ("gru", "lstm"):
            raise ValueError(f"rnn={self.rnn!r} is unknown; use gru or lstm (without memory: ppo).")
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
    ent_coef: jax.Array = 0.01
    vf_coef: jax.Array = 0.5
    max_grad_norm: jax.Array = 0.5


class RecurrentBody(nn.Module):
    """Dense layers, one recurrent one, and a linear head."""

    hidden: tuple[int, ...]
    activation: str
    rnn: str
    rnn_size: int
    out: int
    out_scale: float

    @nn.compact
    def __call__(self, hidden: Any, x: Any, start: Any) -> tuple[Any, Float[Array, "T *batch out"]]:
        x = MLP(self.hidden, None, self.activation)(x)
        hidden, x = Recurrent(self.rnn_size, self.rnn)(hidden, x, start)
        return hidden, nn.Dense(self.out, kernel_init=orthogonal(self.out_scale))(x)


class RecurrentActorCritic(nn.Module):
    """The default network, of time-major sequences. Bring your own with the same methods."""

    observation_space: Space
    num_outputs: int
    continuous: bool
    hidden: tuple[int, ...]
    activation: str
    rnn: str
    rnn_size: int
    conv: tuple[int, ...] = ()

    def setup(self) -> None:
        self.actor_encoder = Encoder(self.observation_space, self.conv, self.activation)
        self.critic_encoder = Encoder(self.observation_space, self.conv, self.activation, privileged=True)
        body = self.hidden, self.activation, self.rnn, self.rnn_size
        self.actor_body = RecurrentBody(*body, self.num_outputs, 0.01)
        self.critic_body = RecurrentBody(*body, 1, 1.0)
        if self.continuous:
            self.log_std = self.param("log_std", nn.initializers.zeros, (self.num_outputs,))

    def initial_carry(self, batch_shape: tuple[int, ...]) -> PyTree[Float[Array, "..."]]:
        """What actor and critic, each, remember before an episode."""
        return Recurrent(self.rnn_size, self.rnn, parent=None).initial_carry(batch_shape)

    def actor(self, hidden: Any, obs: Any, start: Any) -> tuple[Any, Any]:
        """`(hidden, logits (T, *batch, n))`, for a Box `(mean, log_std)` in units of the box in their place.

        `obs` are whole observations (T, *batch, ...); `start` (T, *batch) is True at the first ones of an episode.
        """
        hidden, out = self.actor_body(hidden, self.actor_encoder(obs), start)
        return hidden, (out, self.log_std) if self.continuous else out

    def critic(self, hidden: Any, obs: Any, start: Any) -> tuple[Any, Float[Array, "T *batch"]]:
        """`(hidden, values)`; sees the privileged part of the observations too."""
        hidden, out = self.critic_body(hidden, self.critic_encoder(obs), start)
        return hidden, out[..., 0]

    def __call__(self, hidden: Any, obs: Any, start: Any) -> Any:
        return self.actor(hidden, obs, start), self.critic(hidden, obs, start)


class Carry(NamedTuple):
    """What is carried from step to step. After an episode: `carry._replace(start=done)`."""

    start: Any  # (*batch,): the next observation is the first of an episode, so forget `hidden` before it
    hidden: Any  # the actor's; while training `Hidden`


class Hidden(NamedTuple):
    actor: Any
    critic: Any


class Past(NamedTuple):
    """From where a rollout is replayed: the carry before the last `burn_in` steps, and these, (burn_in, N, ...)."""

    hidden: Hidden
    obs: Any
    start: Array


@pytree
class PPORNNState:
    key: jax.Array
    hyper: Hyper
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # environment steps done
    weights: Any
    optimizer: AdamState  # of the flattened weights
    carry: Carry
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
    episode_return: Array  # valid where terminated | truncated
    episode_length: Array
    learn_mask: Array | None = None  # (N,): slots to learn from; None: all


class Batch(NamedTuple):
    """What a minibatch holds: sequences, time-major."""

    obs: Any
    start: Array
    past: Past  # its hidden has a leading axis of length 1
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array
    mask: Array | None = None  # learn from these; None: all


def burnt_in(weights: Any, past: Past, network: nn.Module) -> Hidden:
    """The carries before a rollout, as stored or, after the steps of `past`, of the present weights; no gradient."""
    if not past.start.shape[0]:
        return past.hidden

    def replay(method, hidden):
        return network.apply(weights, hidden, past.obs, past.start, method=method)[0]

    return jax.lax.stop_gradient(Hidden(replay("actor", past.hidden.actor), replay("critic", past.hidden.critic)))


def loss(
    weights: Any, batch: Batch, hyper: Hyper, config: Config, network: nn.Module, observation_space: Space, space: Space
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The whole objective of one minibatch (Schulman et al. 2017, eq. 9, negated) and what to report of it."""
    past = batch.past._replace(hidden=jax.tree.map(lambda h: h[0], batch.past.hidden))
    hidden = burnt_in(weights, past, network)
    outputs: Any = network.apply(weights, hidden.actor, batch.obs, batch.start, method="actor")[1]
    value: Any = network.apply(weights, hidden.critic, batch.obs, batch.start, method="critic")[1]
    pi = of_space(space, outputs, split_observation(batch.obs, observation_space)[2])
    new_log_prob, entropies = pi.log_prob(batch.action), pi.entropy()
    steps = new_log_prob, value, entropies, batch.log_prob, batch.value, batch.advantage, batch.target
    log_prob, value, entropies, old_log_prob, old_value, advantage, target = (x.reshape(-1) for x in steps)
    mask = None if batch.mask is None else batch.mask.reshape(-1)
    advantage = normalized(advantage, mask) if config.normalize_advantage else advantage
    actor = policy_loss(log_prob, old_log_prob, advantage, hyper.clip_eps, mask)
    critic = value_loss(value, old_value, target, hyper.clip_eps if config.clip_value else None, mask)
    entropy = mean(entropies, mask)
    total = actor + hyper.vf_coef * critic - hyper.ent_coef * entropy
    log_ratio = log_prob - old_log_prob
    approx_kl = mean(jnp.expm1(log_ratio) - log_ratio, mask)
    report = {"loss": total, "policy_loss": actor, "value_loss": critic, "entropy": entropy, "approx_kl": approx_kl}
    return total, report


def one_step(tree: Any) -> Any:
    """A sequence of length 1."""
    return jax.tree.map(lambda x: x[None], tree)


@dataclasses.dataclass(frozen=True)
class _PPORNN:
    """The static half; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    network: Any
    observation_space: Space
    action_space: Space

    def distribution(self, weights: Any, obs: Any, carry: Carry) -> tuple[Distribution, Carry]:
        """The policy at one step's observations (*batch, ...), and the actor's carry after it."""
        sequence = one_step((obs, carry.start))
        hidden, outputs = self.network.apply(weights, carry.hidden, *sequence, method="actor")
        if isinstance(self.action_space, Box):
            means, log_std = outputs
            # A log_std that is the same for all observations has no time axis.
            outputs = means[0], log_std[0] if log_std.ndim == means.ndim else log_std
        else:
            outputs = outputs[0]
        pi = of_space(self.action_space, outputs, split_observation(obs, self.observation_space)[2])
        return pi, Carry(jnp.zeros_like(carry.start), hidden)

    def value(self, weights: Any, obs: Any, carry: Carry) -> tuple[Array, Any]:
        """The values of one step's observations, and the critic's hidden after it."""
        sequence = one_step((obs, carry.start))
        hidden, value = self.network.apply(weights, carry.hidden, *sequence, method="critic")
        return value[0], hidden

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> PPORNNState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.venv.reset(reset_key, env_params)
        start, hidden = self.initial_carry((self.config.num_envs,))
        sequence = one_step((obs, start))
        weights = self.network.init(weights_key, hidden, *sequence)
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        # The first rollout starts with episodes, before which nothing is remembered: its past does not matter.
        past = jax.tree.map(lambda x: x.repeat(self.config.burn_in, 0), sequence)
        return PPORNNState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            optimizer=adam_init(ravel_pytree(weights)[0]),
            carry=Carry(start, Hidden(hidden, hidden)),
            past=Past(Hidden(hidden, hidden), *past),
        )

    def collect(self, state: PPORNNState) -> tuple[PPORNNState, Rollout]:
        # A level that was put in place of another (`restart`) begins an episode too.
        first = state.carry._replace(start=state.carry.start | (state.env_state.env.time == 0))

        def act(key, obs, carry):
            start, hidden = carry
            pi, new = self.distribution(state.weights, obs, Carry(start, hidden.actor))
            value, critic = self.value(state.weights, obs, Carry(start, hidden.critic))
            action = pi.sample(key)
            carry = Carry(new.start, Hidden(new.hidden, critic))
            return environment_action(self.action_space, action), (action, pi, value, start, carry), carry

        def ended(carry, done):
            return carry._replace(start=done)

        def value_after(inputs):
            return self.value(state.weights, *inputs)[0]

        new_state, carry, steps = rollout(self.venv, state, self.config.num_steps, act, first, ended)
        action, pi, value, start, after = steps.output
        # A final observation is of the episode that it ends: the carry `after` a step is the one before any reset.
        last = Carry(jnp.zeros_like(carry.start), carry.hidden.critic)
        successor = Carry(after.start, after.hidden.critic)
        next_value = successor_values(
            value_after, value, (new_state.obs, last), (steps.next_obs, successor), steps.truncated
        )
        kept = self.config.num_steps - self.config.burn_in
        hidden = jax.tree.map(
            lambda first, h: jnp.concatenate([first[None], h])[kept], state.carry.hidden, after.hidden
        )
        past = Past(hidden, *jax.tree.map(lambda x: x[kept:], (steps.obs, start)))
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
            episode_return=steps.info["episode_return"],
            episode_length=steps.info["episode_length"],
        )

    def learn(self, state: PPORNNState, rollout: Rollout) -> tuple[PPORNNState, dict[str, Array]]:
        config, hyper = self.config, state.hyper
        key, shuffle_key = jax.random.split(state.key)
        advantage = gae(
            rollout.reward,
            rollout.value,
            rollout.next_value,
            rollout.terminated,
            rollout.truncated,
            hyper.gamma,
            hyper.gae_lambda,
        )
        target = advantage + rollout.value
        past = rollout.past._replace(hidden=one_step(rollout.past.hidden))
        mask = rollout.learn_mask
        mask = None if mask is None else jnp.broadcast_to(mask, target.shape)
        batch = Batch(
            rollout.obs, rollout.start, past, rollout.action, rollout.log_prob, rollout.value, advantage, target, mask
        )
        flat, unravel = ravel_pytree(state.weights)
        steps = config.num_steps * config.num_envs
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        gradient = jax.grad(loss, has_aux=True)

        def minibatch(carry, batch):
            flat, optimizer = carry
            grads, report = gradient(
                unravel(flat), batch, hyper, config, self.network, self.observation_space, self.action_space
            )
            *new, report["grad_norm"] = descend(flat, optimizer, grads, learning_rate, hyper.max_grad_norm, eps=1e-5)
            if batch.mask is not None:
                some = batch.mask.any()
                new = jax.tree.map(lambda new, old: jnp.where(some, new, old), new, [flat, optimizer])
            return (new[0], new[1]), report

        def epoch(carry, order):
            orders = order.reshape(config.num_minibatches, -1)
            minibatches = jax.tree.map(lambda x: jnp.moveaxis(x[:, orders], 1, 0), batch)
            return jax.lax.scan(minibatch, carry, minibatches)

        orders = shuffled(shuffle_key, (config.num_epochs, config.num_envs))
        start: Any = (flat, state.optimizer)
        end: Any
        end, reports = jax.lax.scan(epoch, start, orders)
        metrics = {
            **episode_metrics(rollout.episode_return, rollout.episode_length, rollout.terminated | rollout.truncated),
            **jax.tree.map(jnp.mean, reports),
            "explained_variance": 1 - jnp.var(target - rollout.value) / jnp.maximum(jnp.var(target), 1e-8),
            "learning_rate": learning_rate,
        }
        return state.replace(key=key, weights=unravel(end[0]), optimizer=end[1]), metrics

    def update(self, state: PPORNNState) -> tuple[PPORNNState, dict[str, Array]]:
        return self.learn(*self.collect(state))

    def policy(self, state: PPORNNState) -> Any:
        return state.weights

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Carry:
        return Carry(jnp.ones(batch_shape, bool), self.network.initial_carry(batch_shape))

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        if not carry:
            raise ValueError("act: a recurrent policy needs a carry; the first is initial_carry(batch_shape).")
        pi, carry = self.distribution(policy, obs, carry)
        return environment_action(self.action_space, pi.mode() if greedy else pi.sample(fast_key(key))), carry


@functools.cache
def make(env: Environment | VectorEnv, config: Config = Config(), network: nn.Module | None = None) -> Algorithm:
    """Recurrent PPO on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module with the methods `actor`, `critic`, `__call__` (both) and `initial_carry` of
            `RecurrentActorCritic`.

    Raises ValueError for an action space it cannot handle, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("ppo_rnn", venv, Discrete, MultiDiscrete, Box)
    outputs = num_outputs(action_space)
    continuous = isinstance(action_space, Box)
    if network is None:
        body = config.hidden, config.activation, config.rnn, config.rnn_size, config.conv
        network = RecurrentActorCritic(observation_space, outputs, continuous, *body)
    ppo = _PPORNN(config, venv, network, observation_space, action_space)
    state = jax.eval_shape(ppo.init, jax.random.key(0))
    (_, head), (_, value) = jax.eval_shape(
        lambda s: network.apply(s.weights, s.carry.hidden.actor, *one_step((s.obs, s.carry.start))), state
    )
    head_shape = (head[0] if continuous else head).shape
    if head_shape[-1] != outputs or value.shape != (1, config.num_envs):
        raise ValueError(
            f"network gives outputs {head_shape} and values {value.shape} for {(1, config.num_envs)} observations; "
            f"{action_space} needs {(1, config.num_envs, outputs)} and {(1, config.num_envs)}."
        )
    return Algorithm(
        name="ppo_rnn",
        config=config,
        hyper=Hyper,
        venv=venv,
        steps_per_update=config.num_envs * config.num_steps,
        init=ppo.init,
        collect=ppo.collect,
        learn=ppo.learn,
        update=ppo.update,
        policy=ppo.policy,
        initial_carry=ppo.initial_carry,
        act=ppo.act,
    )


def main() -> None:
    """`python -m jaxrl.algos.ppo_rnn CartPole-v1 ...` is `jaxrl train ppo_rnn CartPole-v1 ...`."""
    import sys

    from jaxrl.cli import main

    sys.exit(main(["train", "ppo_rnn", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
