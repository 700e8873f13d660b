"""Behaviour cloning by flow matching: a policy with as many modes as the data has.

Lipman, Chen, Ben-Hamu, Nickel and Le (2023), "Flow matching for generative modeling" (arXiv:2210.02747), with straight
paths (as Liu, Gong and Liu 2023, "Flow straight and fast"), conditioned on the observation. A velocity v is fitted to
lines from normal noise a_0 to the data's actions a,

    loss = mean | v(s, a_t, t) - (a - a_0) |^2,    a_t = (1 - t) a_0 + t a,    t uniform in [0, 1],

and the policy draws noise and follows the velocity from t = 0 to 1 by K steps of Euler,

    a_(k+1) = a_k + v(s, a_k, k / K) / K.

`bc.py` fits one action, or a softmax, to each observation: where half of the data goes left and half goes right, its
mean is straight on. This one goes left or right. `reinflow.py` improves it by acting.

The policy is deployed by its samples; its mode, where an action must be a function of the observation, follows the
velocity from a_0 = 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree, visible
from jaxrl.nn.nets import Nets
from jaxrl.nn.networks import MLP, Network, encode, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    activation: str = "silu"
    num_flow_steps: int = 10  # K, steps of Euler when acting

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_flow_steps")


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""


# ---- flows, as functions


def between(
    noise: Float[Array, "*batch A"], action: Float[Array, "*batch A"], t: Float[Array, "*batch"]
) -> Float[Array, "*batch A"]:
    """a_t above: on the line from the noise to the action."""
    return (1 - t[..., None]) * noise + t[..., None] * action


def flow_matching_loss(
    velocity: Float[Array, "B A"], noise: Float[Array, "B A"], action: Float[Array, "B A"]
) -> Float[Array, ""]:
    """The mean squared difference from the line's own velocity (Lipman et al. 2023, equation 23 with sigma_min 0)."""
    return jnp.mean((velocity - (action - noise)) ** 2)


def follow(
    velocity: Callable[[Array, Array], Array], action: Float[Array, "*batch A"], num_steps: int
) -> Float[Array, "*batch A"]:
    """What `num_steps` steps of Euler make of the noise `action`; `velocity` is a function of (a_t, t (...))."""
    for step in range(num_steps):
        t = jnp.full(action.shape[:-1], step / num_steps, action.dtype)
        action = action + velocity(action, t) / num_steps
    return action


class Velocity(nn.Module):
    """v (..., A) of the vector of an observation, a_t and t."""

    hidden: tuple[int, ...]
    activation: str
    out_scale: float = 0.01

    @nn.compact
    def __call__(
        self, x: Float[Array, "*batch features"], action: Float[Array, "*batch A"], t: Float[Array, "*batch"]
    ) -> Float[Array, "*batch A"]:
        inputs = jnp.concatenate([x, action.astype(x.dtype), time_features(t).astype(x.dtype)], -1)
        return MLP(self.hidden, action.shape[-1], self.activation, out_scale=self.out_scale)(inputs)


def time_features(t: Float[Array, "*batch"]) -> Float[Array, "*batch 5"]:
    """t in [0, 1], and its cosine and sine at one and two half turns."""
    angle = jnp.pi * jnp.stack([t, 2 * t], -1)
    return jnp.concatenate([t[..., None], jnp.cos(angle), jnp.sin(angle)], -1)


@dataclasses.dataclass(frozen=True)
class Flow:
    """A policy that follows a velocity from noise; actions are in units of the box, and clipped to it at the end."""

    network: Any  # a flax module as Velocity
    observation_space: Space
    num_steps: int
    num_dims: int

    def init(self, key: Array, obs: Any, action: Any) -> Any:
        return self.network.init(key, encode(self.observation_space, visible(obs)), action, jnp.zeros(()))

    def velocity(self, weights: Any, obs: Any) -> Callable[[Array, Array], Array]:
        """The function `(a_t, t) -> v` at observations (...)."""
        x = encode(self.observation_space, visible(obs))
        return lambda action, t: self.network.apply(weights, x, action, t)

    def explore(self, weights: Any, key: Array, obs: Any, noise: Any = None) -> Float[Array, "... A"]:
        x = encode(self.observation_space, visible(obs))
        start = jax.random.normal(key, (*x.shape[:-1], self.num_dims), x.dtype)
        return jnp.clip(follow(self.velocity(weights, obs), start, self.num_steps), -1, 1)

    def mode(self, weights: Any, obs: Any) -> Float[Array, "... A"]:
        x = encode(self.observation_space, visible(obs))
        start = jnp.zeros((*x.shape[:-1], self.num_dims), x.dtype)
        return jnp.clip(follow(self.velocity(weights, obs), start, self.num_steps), -1, 1)


# ---- the learning rule


@dataclasses.dataclass(frozen=True)
class _FlowBC:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("actor",)
    targets: ClassVar[tuple[str, ...]] = ()

    actor: Flow

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        return {"actor": self.actor.init(keys["actor"], obs, action)}

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """A point on a line from noise to each of the batch's actions, and a step on the error of its velocity."""
        noise_key, time_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, batch.action.shape, batch.action.dtype)
        t = jax.random.uniform(time_key, batch.action.shape[:1], batch.action.dtype)
        point = between(noise, batch.action, t)

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            velocity = self.actor.velocity(weights, batch.obs)(point, t)
            return flow_matching_loss(velocity, noise, batch.action), {}

        actor, report = nets["actor"].descend(objective, hyper.learning_rate, hyper.max_grad_norm)
        return {"actor": actor}, report


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Flow matching for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset, or what `datasets.stored` makes of one; None: the learner acts and fills a replay buffer.
        network: a flax module with the inputs and outputs of `Velocity`: the vector of an observation without its
            privileged part, an action, a time.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or a network whose outputs do not fit,
    and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("flow_bc", venv, Box, between_ends=True)
    network = own("network", network) or Velocity(config.hidden, config.activation)
    actor = Flow(network, obs_space, config.num_flow_steps, space.shape[0])
    given = {"replay": replay, "optimizer": optimizer, "deployed": "sampled"}
    return learner.algorithm("flow_bc", venv, config, Hyper, _FlowBC(actor), actor, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
