"""OPPO: a policy from preferences by way of what its segments have in common, without a reward.

Kang et al. (2023), "Beyond reward: offline preference-guided policy optimization". Three parts are learned together:

- an encoder z = I(segment) of a whole segment seen in hindsight, and a policy pi(a | s, z) that is told it:
  **hindsight information matching**,   -log pi(a_t | s_t, I(segment))   over all steps of all segments;
- an optimal context z*, one vector, nearer to the better segment of a pair than to the worse one:
  **a triplet loss**,   max(|z* - z+|^2 - |z* - z-|^2 + margin, 0),   which moves z* and the encoder.

What is deployed is pi(a | s, z*): the policy of segments that would be preferred to the others. A decision transformer
is told a return in the place of z, for which somebody has to know rewards.

In a Box the policy is a network in units of the box whose -log pi is the squared error, in a Discrete space a softmax.

Deviations: the policy is told z and the observation of the moment, as in `rvs`, where the paper's is a decision
transformer over the last steps; contexts are unit vectors, so that distances cannot be made small by shrinking all of
them; the segments are those that were compared, where the paper also clones trajectories that nobody compared; a label
between 0 and 1 weighs both orders. The authors' data cannot be fetched any more, so this follows the paper's losses.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.preferences import Compared, Preferences, as_replay
from jaxrl.data.reward_models import accuracy
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import Deterministic, Softmax
from jaxrl.nn.attention import Block
from jaxrl.nn.nets import Nets
from jaxrl.nn.networks import MLP, Dense, encode
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Discrete, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments in the state; nothing acts in them
    num_updates: int = 1  # gradient steps an update
    batch_size: int = 64  # pairs of segments a gradient step
    context_size: int = 16  # numbers of z
    width: int = 64  # of a token of the encoder
    layers: int = 2  # transformer blocks of the encoder, whose perceptrons are four times as wide
    hidden: tuple[int, ...] = (256, 256)  # widths of the policy
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_updates", "batch_size", "context_size", "width", "layers")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of all networks
    margin: jax.Array = 1.0  # of the triplet loss; unit vectors are at most 4 apart, squared
    triplet_coef: jax.Array = 1.0  # of the triplet loss in the encoder's, beside the cloning loss
    max_grad_norm: jax.Array = 1e6  # of each network's gradient; the default clips nothing


class Encoder(nn.Module):
    """From segments (..., L) to contexts (..., context_size): a transformer that sees all steps, and their mean."""

    observation_space: Space
    action_space: Space
    context_size: int
    width: int
    layers: int

    @nn.compact
    def __call__(self, obs: Any, action: Array) -> Float[Array, "..."]:
        seen = encode(self.observation_space, obs, privileged=False), encode(self.action_space, action)
        length = seen[0].shape[-2]
        time = jnp.broadcast_to(jnp.linspace(-1.0, 1.0, length)[:, None], (*seen[0].shape[:-1], 1))
        x = Dense(self.width)(jnp.concatenate([*seen, time], -1))
        everything = jnp.ones((*x.shape[:-2], length, length), bool)
        for _ in range(self.layers):
            block = Block(self.width, 4 * self.width, 1, True, False)
            query, key, value = block.split(x)
            x = block.mix(x, query, key, value, everything)
        return Dense(self.context_size)(jnp.mean(nn.LayerNorm()(x), -2))


class ContextActor(nn.Module):
    """The policy's network: actions (..., A) in units of the box, or logits (..., n), of observations and contexts."""

    observation_space: Space
    action_space: Space
    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, obs: Any, context: Float[Array, "... Z"]) -> Array:
        x = encode(self.observation_space, obs, privileged=False)
        context = jnp.broadcast_to(context, (*x.shape[:-1], context.shape[-1]))
        discrete = isinstance(self.action_space, Discrete)
        outputs = self.action_space.n if discrete else self.action_space.shape[0]
        x = MLP(self.hidden, outputs, self.activation, out_scale=0.01)(jnp.concatenate([x, context], -1))
        return x if discrete else jnp.tanh(x)


@dataclasses.dataclass(frozen=True)
class Told:
    """A `ContextActor` as a network of observations alone, whose weights are `{"actor", "optimum"}`."""

    actor: ContextActor

    def apply(self, weights: Any, obs: Any) -> Any:
        return self.actor.apply(weights["actor"], obs, unit(weights["optimum"]))


def unit(x: Float[Array, "*batch Z"]) -> Float[Array, "*batch Z"]:
    """Of length 1."""
    return x / jnp.sqrt(jnp.sum(x**2, -1, keepdims=True) + 1e-12)


def distances(optimum: Float[Array, " Z"], context: Float[Array, "B 2 Z"]) -> Float[Array, "B 2"]:
    """|z* - z|^2 of the segments of each pair, of unit vectors."""
    return jnp.sum((unit(optimum) - unit(context)) ** 2, -1)


def triplet_loss(
    distance: Float[Array, "B 2"], label: Float[Array, " B"], margin: float | Float[Array, ""]
) -> Float[Array, ""]:
    """max(d+ - d- + margin, 0), averaged over both orders by the label: the second is the better one."""
    apart = distance[:, 1] - distance[:, 0]
    return jnp.mean(label * jax.nn.relu(apart + margin) + (1 - label) * jax.nn.relu(margin - apart))


@dataclasses.dataclass(frozen=True)
class _OPPO:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("actor", "encoder", "optimum")
    targets: ClassVar[tuple[str, ...]] = ()

    encoder: Encoder
    acting: Softmax | Deterministic  # around a `Told`

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        segment = jax.tree.map(lambda x: x[None], (obs, action))  # of a step; weights do not depend on the length
        told: Any = self.acting.module
        optimum = jax.random.normal(keys["optimum"], (self.encoder.context_size,))
        return {
            "actor": told.actor.init(keys["actor"], obs, optimum),
            "encoder": self.encoder.init(keys["encoder"], *segment),
            "optimum": optimum,
        }

    def context(self, weights: Any, batch: Compared) -> Float[Array, "B 2 Z"]:
        """z of both segments of each pair."""
        found: Any = self.encoder.apply(weights, batch.pair_obs, batch.pair_action)
        return unit(found)

    def cloning_loss(self, actor: Any, context: Float[Array, "B 2 Z"], batch: Compared) -> Float[Array, ""]:
        """-log pi(a | s, z) of all steps, each told the z of its segment."""
        told = {"actor": actor, "optimum": context[:, :, None]}
        if isinstance(self.acting, Softmax):
            return -jnp.mean(self.acting(told, batch.pair_obs).log_prob(batch.pair_action))
        return jnp.mean(jnp.sum((self.acting(told, batch.pair_obs) - batch.pair_action) ** 2, -1))

    def gradient_step(self, nets: Nets, key: Array, batch: Compared, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The policy on the contexts, the encoder on both losses, z* on the triplets, all from old weights."""
        actor, encoder, optimum = (nets[name] for name in self.networks)
        settings = hyper.learning_rate, hyper.max_grad_norm
        context = self.context(encoder.weights, batch)

        def of_actor(weights: Any) -> tuple[Array, dict[str, Array]]:
            return self.cloning_loss(weights, context, batch), {}

        def of_encoder(weights: Any) -> tuple[Array, dict[str, Array]]:
            context = self.context(weights, batch)
            triplet = triplet_loss(distances(optimum.weights, context), batch.label, hyper.margin)
            return self.cloning_loss(actor.weights, context, batch) + hyper.triplet_coef * triplet, {}

        def of_optimum(weights: Any) -> tuple[Array, dict[str, Array]]:
            distance = distances(weights, context)
            report = {"accuracy": accuracy(distance[:, 0] - distance[:, 1], batch.label)}
            return triplet_loss(distance, batch.label, hyper.margin), report

        new_actor, actor_report = actor.descend(of_actor, *settings)
        new_encoder, encoder_report = encoder.descend(of_encoder, *settings)
        new_optimum, optimum_report = optimum.descend(of_optimum, *settings)
        nets = {"actor": new_actor, "encoder": new_encoder, "optimum": new_optimum}
        return nets, {**actor_report, **encoder_report, **optimum_report}


def deployed(state: Any) -> Any:
    """The weights that act: the policy's, and z*."""
    return {name: state.weights[name] for name in ("actor", "optimum")}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Preferences | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """OPPO for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: preferences, or what `preferences.stored` makes of them; required.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError without preferences, for an action space that is neither a vector nor Discrete, and several
    agents, and TypeError for a `replay` of another kind.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("oppo", venv, Discrete, Box, between_ends=True)
    drawn = as_replay("oppo", replay, space)
    told = Told(ContextActor(obs_space, space, config.hidden, config.activation))
    acting = Softmax(told, obs_space) if isinstance(space, Discrete) else Deterministic(told)
    encoder = Encoder(obs_space, space, config.context_size, config.width, config.layers)
    rule = _OPPO(encoder, acting)
    return learner.algorithm(
        "oppo", venv, config, Hyper, rule, acting, replay=drawn, optimizer=optimizer, deploy=deployed
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
