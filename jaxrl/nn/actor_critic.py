"""Default networks of actors, critics and state values, and the policies that an actor's outputs parameterise.

An actor is a flax module whose input is an observation without its privileged part. `Deterministic`, `Gaussian`,
`TanhGaussian` or `Softmax` around it says what its outputs mean. Actions are in units of the box, [-1, 1] a side.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from jaxrl.environment import split_observation, visible
from jaxrl.nn import cells
from jaxrl.nn.distributions import Categorical, Normal, TanhNormal, mask_logits
from jaxrl.nn.networks import MLP, Encoder, Network, encode
from jaxrl.spaces import Discrete, Space

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
"""Limits of an actor's log_std. Below, the likelihood of a single action outweighs all others."""


class Actor(nn.Module):
    """The default policy network.

    Its outputs are actions (..., A) in units of the box; with `spread` `(mean, log_std)` before tanh; for a Discrete
    space logits (..., n).
    """

    observation_space: Space
    action_space: Space
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool = False
    spread: bool = False
    out_scale: float = 0.01

    @nn.compact
    def __call__(self, obs: Any) -> Any:
        x = encode(self.observation_space, obs, privileged=False)
        discrete = isinstance(self.action_space, Discrete)
        outputs = self.action_space.n if discrete else self.action_space.shape[0] * (1 + self.spread)
        x = MLP(self.hidden, outputs, self.activation, out_scale=self.out_scale, layer_norm=self.layer_norm)(x)
        if discrete:
            return x
        return tuple(jnp.split(x, 2, -1)) if self.spread else jnp.tanh(x)


class GaussianActor(nn.Module):
    """`(mean, log_std)` (..., A) in units of the box; the mean lies inside it, log_std is the same in every state."""

    observation_space: Space
    action_space: Space
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Any) -> tuple[Float[Array, "... A"], Float[Array, "... A"]]:
        x = encode(self.observation_space, obs, privileged=False)
        size = self.action_space.shape[0]
        mean = jnp.tanh(MLP(self.hidden, size, self.activation, out_scale=0.01, layer_norm=self.layer_norm)(x))
        log_std = self.param("log_std", nn.initializers.zeros, (size,))
        return mean, jnp.broadcast_to(log_std, mean.shape)


class Value(nn.Module):
    """The default state-value network: values (...) of whole observations, with their privileged part."""

    observation_space: Space
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Any) -> Float[Array, "..."]:
        x = encode(self.observation_space, obs, privileged=True)
        return MLP(self.hidden, 1, self.activation, layer_norm=self.layer_norm)(x)[..., 0]


class Critic(nn.Module):
    """The default action-value network: values (...) of an observation and an action; without it (..., n)."""

    observation_space: Space
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool = False
    num_actions: int | None = None

    @nn.compact
    def __call__(self, obs: Any, action: Float[Array, "... A"] | None = None) -> Float[Array, "..."]:
        x = encode(self.observation_space, obs, privileged=True)
        x = x if action is None else jnp.concatenate([x, action.astype(x.dtype)], -1)
        q = MLP(self.hidden, self.num_actions or 1, self.activation, layer_norm=self.layer_norm)(x)
        return q if self.num_actions else q[..., 0]


class RecurrentActor(nn.Module):
    """The default policy network with a memory, on time-major sequences, for vectors of actions.

    Its outputs are actions (T, ..., A) in units of the box; with `spread` `(mean, log_std)` before tanh.
    """

    observation_space: Space
    action_space: Space
    hidden: tuple[int, ...]  # widths before the recurrent layer
    activation: str
    rnn: str
    rnn_size: int
    head_hidden: tuple[int, ...] = ()  # widths after it
    conv: tuple[int, ...] = ()
    spread: bool = False
    out_scale: float = 0.01
    window: int = 32

    def initial_carry(self, batch_shape: tuple[int, ...]) -> PyTree:
        """The hidden state before an episode."""
        return cells.initial_carry(self.rnn, self.rnn_size, self.window, batch_shape)

    @nn.compact
    def __call__(self, hidden: Any, obs: Any, start: Bool[Array, "T *batch"]) -> tuple[Any, Any]:
        """`(hidden, outputs)` of observations (T, ...); `start` is True at the first ones of an episode."""
        x = Encoder(self.observation_space, self.conv, self.activation)(obs)
        x = MLP(self.hidden, None, self.activation)(x)
        hidden, x = cells.layer(self.rnn, self.rnn_size, window=self.window)(hidden, x, start)
        outputs = self.action_space.shape[0] * (1 + self.spread)
        x = MLP(self.head_hidden, outputs, self.activation, out_scale=self.out_scale)(x)
        return hidden, tuple(jnp.split(x, 2, -1)) if self.spread else jnp.tanh(x)


class RecurrentCritic(nn.Module):
    """The default critics with a memory: `num_critics` heads on one recurrent body, which sees observations alone.

    A body sees whole observations, with their privileged part. An action joins its outputs, so that the values of other
    actions need no other memory.
    """

    observation_space: Space
    hidden: tuple[int, ...]  # widths before the recurrent layer
    activation: str
    rnn: str
    rnn_size: int
    head_hidden: tuple[int, ...]  # widths after it, of each head
    conv: tuple[int, ...] = ()
    num_critics: int = 2
    window: int = 32

    def setup(self) -> None:
        self.encoder = Encoder(self.observation_space, self.conv, self.activation, privileged=True)
        self.mlp = MLP(self.hidden, None, self.activation)
        self.recurrent = cells.layer(self.rnn, self.rnn_size, window=self.window)
        self.heads = [MLP(self.head_hidden, 1, self.activation) for _ in range(self.num_critics)]

    def initial_carry(self, batch_shape: tuple[int, ...]) -> PyTree:
        """The hidden state before an episode."""
        return cells.initial_carry(self.rnn, self.rnn_size, self.window, batch_shape)

    def __call__(
        self, hidden: Any, obs: Any, start: Bool[Array, "T *batch"], action: Float[Array, "T *batch A"] | None = None
    ) -> tuple[Any, Array]:
        """`(hidden, values (K, T, ...))` of observations and actions; without actions `(hidden, features)`."""
        hidden, features = self.recurrent(hidden, self.mlp(self.encoder(obs)), start)
        return hidden, features if action is None else self.values(features, action)

    def values(
        self, features: Float[Array, "T *batch features"], action: Float[Array, "T *batch A"]
    ) -> Float[Array, "K T *batch"]:
        """The values of actions, from the features of observations."""
        x = jnp.concatenate([features, action.astype(features.dtype)], -1)
        return jnp.stack([head(x)[..., 0] for head in self.heads])


@dataclasses.dataclass(frozen=True)
class Deterministic:
    """A policy whose network gives actions (..., A); exploration adds normal noise of standard deviation `noise`."""

    module: Network

    def init(self, key: Key[Array, ""], obs: Any) -> Any:
        return self.module.init(key, visible(obs))

    def __call__(self, weights: Any, obs: Any) -> Float[Array, "... A"]:
        action: Any = self.module.apply(weights, visible(obs))
        return action

    def explore(self, weights: Any, key: Key[Array, ""], obs: Any, noise: Array) -> Float[Array, "... A"]:
        action = self(weights, obs)
        return jnp.clip(action + noise * jax.random.normal(key, action.shape, action.dtype), -1, 1)

    def mode(self, weights: Any, obs: Any) -> Float[Array, "... A"]:
        return self(weights, obs)


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """A policy whose network gives `(mean, log_std)` (..., A) of a normal; samples are clipped to the box."""

    module: Network

    def init(self, key: Key[Array, ""], obs: Any) -> Any:
        return self.module.init(key, visible(obs))

    def __call__(self, weights: Any, obs: Any) -> Normal:
        outputs: Any = self.module.apply(weights, visible(obs))
        return Normal(outputs[0], jnp.clip(outputs[1], LOG_STD_MIN, LOG_STD_MAX))

    def explore(self, weights: Any, key: Key[Array, ""], obs: Any, noise: Any = None) -> Float[Array, "... A"]:
        return jnp.clip(self(weights, obs).sample(key), -1, 1)

    def mode(self, weights: Any, obs: Any) -> Float[Array, "... A"]:
        return jnp.clip(self(weights, obs).mode(), -1, 1)


@dataclasses.dataclass(frozen=True)
class TanhGaussian:
    """A policy whose network gives `(mean, log_std)` (..., A) of a normal distribution before tanh."""

    module: Network
    log_std_min: float = LOG_STD_MIN

    def init(self, key: Key[Array, ""], obs: Any) -> Any:
        return self.module.init(key, visible(obs))

    def __call__(self, weights: Any, obs: Any) -> TanhNormal:
        outputs: Any = self.module.apply(weights, visible(obs))
        return TanhNormal(outputs[0], jnp.clip(outputs[1], self.log_std_min, LOG_STD_MAX))

    def explore(self, weights: Any, key: Key[Array, ""], obs: Any, noise: Any = None) -> Float[Array, "... A"]:
        return self(weights, obs).sample(key)

    def mode(self, weights: Any, obs: Any) -> Float[Array, "... A"]:
        return self(weights, obs).mode()


@dataclasses.dataclass(frozen=True)
class Softmax:
    """A policy whose network gives logits (..., n) of Discrete actions; the observation's action mask is applied."""

    module: Network
    observation_space: Space

    def init(self, key: Key[Array, ""], obs: Any) -> Any:
        return self.module.init(key, visible(obs))

    def __call__(self, weights: Any, obs: Any) -> Categorical:
        logits: Any = self.module.apply(weights, visible(obs))
        allowed = split_observation(obs, self.observation_space)[2]
        return Categorical(logits if allowed is None else mask_logits(logits, allowed))

    def explore(self, weights: Any, key: Key[Array, ""], obs: Any, noise: Any = None) -> Int[Array, "..."]:
        return self(weights, obs).sample(key)

    def mode(self, weights: Any, obs: Any) -> Int[Array, "..."]:
        return self(weights, obs).mode()
