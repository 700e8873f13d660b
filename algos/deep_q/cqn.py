"""CQN: coarse-to-fine Q-networks, deep Q-learning in a Box by bins that are zoomed into.

Seo, Uruç and James (2024), "Continuous control with coarse-to-fine reinforcement learning" (arXiv:2407.07787). Each
dimension of an action is cut into B bins, the bin that is chosen into B smaller ones, and so on for L levels. With c
the centre of the cell that the levels before have come to, the network gives C51's logits over returns of every bin,

    Q(s, c, l)[d, b]    of bin b of dimension d at level l,

in each dimension for itself: of the other dimensions it knows the cell of the level before, not the bin. The action
takes the best bin of every dimension, level by level. The bins of a stored action are learned at all levels at once:
their cross entropy with the distribution of r + gamma Z'(s', a')[d, b'], where the online network chooses a', whose
bins b' the target network values (as in double Q-learning).

Dimensions that only fit together (this one up if that one is down) it cannot tell from each other; `arsq.py` can.

Deviations from the authors' code: single steps in the place of three; no images, no loss towards demonstrations (of a
dataset it learns like of its own steps), no weight decay; of bins that are equally good it takes the first, not any; it
explores by noise that may end between two centres; MLPs with biases. As there, the target network acts.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.algos.deep_q.c51 import project
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree, visible
from jaxrl.nn.nets import Nets
from jaxrl.nn.networks import MLP, Network, encode, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.nn.value_heads import cross_entropy, expected_value
from jaxrl.off_policy import learner
from jaxrl.off_policy.q_learner import clipped_targets, limits
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    activation: str = "silu"
    layer_norm: bool = True  # before each activation
    levels: int = 3  # L, how often a bin is cut again
    bins: int = 5  # B, parts of each dimension at each level
    num_outputs: int = 51  # atoms of the distribution of returns

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cells(self)
        if self.num_outputs < 2:
            raise ValueError(f"num_outputs={self.num_outputs}: cqn needs at least 2.")


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    tau: jax.Array = 0.02  # Polyak step of the target network, each gradient step
    exploration_noise: jax.Array = 0.1  # standard deviation in units of the box, when acting
    v_min: jax.Array = -100.0  # the first atom
    v_max: jax.Array = 100.0  # the last one


# ---- cells of actions


def check_cells(config: Any) -> None:
    """Raise ValueError for fewer than one level or two bins, or for cells that a float32 does not tell apart."""
    check_at_least_one(config, "levels")
    if config.bins < 2:
        raise ValueError(f"bins={config.bins}: it must be at least 2.")
    if config.bins**config.levels > 2**20:
        fine = int(20 / np.log2(config.bins))
        raise ValueError(
            f"levels={config.levels}, bins={config.bins}: {config.bins**config.levels} cells are finer than an "
            f"action in float32; with these bins at most {fine} levels."
        )


def digits(action: Float[Array, "*batch A"], levels: int, bins: int) -> Int[Array, "*batch levels A"]:
    """The bin of each dimension at each level, of actions in units of the box."""
    cells = bins**levels
    cell = jnp.clip(jnp.floor((action + 1) / 2 * cells), 0, cells - 1).astype(jnp.int32)
    return cell[..., None, :] // (bins ** np.arange(levels - 1, -1, -1))[:, None] % bins


def moves(bin: Int[Array, "..."], level: Any, bins: int) -> Float[Array, "..."]:
    """How far the centre of a cell moves where it shrinks to this bin at this level, the first being 0."""
    return ((2 * bin + 1 - bins) / float(bins) ** (level + 1)).astype(jnp.result_type(float))


def offsets(bin: Int[Array, "*batch levels A"], bins: int) -> Float[Array, "*batch levels A"]:
    """`moves` at each level; their sum over levels is the centre of the finest cell."""
    return moves(bin, np.arange(bin.shape[-2])[:, None], bins)


def centres(bin: Int[Array, "*batch levels A"], bins: int) -> Float[Array, "*batch levels A"]:
    """The centre of the cell in which each level begins: 0 at the first."""
    moved = offsets(bin, bins)
    return jnp.cumsum(moved, -2) - moved


# ---- network, loss


class CoarseToFine(nn.Module):
    """Logits (..., A, B, m) of the bins of a cell with this centre, at a level that is one-hot.

    The head is dueling: a value of each dimension plus centred advantages of its bins.
    """

    num_dims: int
    bins: int
    num_outputs: int
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool

    @nn.compact
    def __call__(
        self, x: Float[Array, "*batch features"], centre: Float[Array, "*batch A"], level: Float[Array, " L"]
    ) -> Float[Array, "*batch A bins m"]:
        level = jnp.broadcast_to(level, (*x.shape[:-1], *level.shape))
        inputs = jnp.concatenate([x, centre.astype(x.dtype), level], -1)

        def stream(bins: int) -> Array:
            shape = self.num_dims, bins, self.num_outputs
            mlp = MLP(self.hidden, int(np.prod(shape)), self.activation, out_scale=0.0, layer_norm=self.layer_norm)
            return mlp(inputs).reshape(*x.shape[:-1], *shape)

        value, advantage = stream(1), stream(self.bins)
        return value + advantage - jnp.mean(advantage, -2, keepdims=True)


def of_bins(logits: Float[Array, "*batch bins m"], bin: Int[Array, "*batch"]) -> Float[Array, "*batch m"]:
    """The logits of the bins that were chosen."""
    return jnp.take_along_axis(logits, bin[..., None, None], -2)[..., 0, :]


def target_distribution(
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_logits: Float[Array, "B L A m"],
    atoms: Float[Array, " m"],
) -> Float[Array, "B L A m"]:
    """The distribution of reward + discount Z', projected onto the atoms (Bellemare et al. 2017, eq. 7).

    `discount` is 0 where the episode terminated.
    """
    moved = (reward[:, None] + discount[:, None] * atoms)[:, None, None]
    return project(jnp.broadcast_to(moved, next_logits.shape), jax.nn.softmax(next_logits), atoms)


@dataclasses.dataclass(frozen=True)
class Zooming:
    """A coarse-to-fine network and how it acts; its weights are a triple, with the limits of the atoms."""

    network: Any  # a flax module as CoarseToFine
    config: Config
    observation_space: Space
    num_dims: int

    def logits(self, weights: Any, obs: Any, bin: Int[Array, "*batch L A"]) -> Float[Array, "*batch L A bins m"]:
        """The logits of all bins, at each level of the way to the cells `bin`."""
        x = encode(self.observation_space, visible(obs))
        levels, at = jnp.eye(self.config.levels, dtype=x.dtype), jnp.moveaxis(centres(bin, self.config.bins), -2, 0)
        each = jax.vmap(lambda centre, level: self.network.apply(weights, x, centre, level))
        return jnp.moveaxis(each(at, levels), 0, -4)

    def best(self, weights: Any, obs: Any, atoms: Float[Array, " m"]) -> Int[Array, "*batch L A"]:
        """The bins that it zooms into: at each level the best one of every dimension."""
        x, config = encode(self.observation_space, visible(obs)), self.config
        centre, chosen = jnp.zeros((*x.shape[:-1], self.num_dims), x.dtype), []
        for level, one_hot in enumerate(jnp.eye(config.levels, dtype=x.dtype)):
            q = expected_value(self.network.apply(weights, x, centre, one_hot), atoms)
            chosen.append(jnp.argmax(q, -1).astype(jnp.int32))
            centre = centre + moves(chosen[-1], level, config.bins)
        return jnp.stack(chosen, -2)

    def mode(self, weights: Any, obs: Any) -> Float[Array, "*batch A"]:
        network, v_min, v_max = weights
        bin = self.best(network, obs, jnp.linspace(v_min, v_max, self.config.num_outputs))
        return jnp.sum(offsets(bin, self.config.bins), -2)

    def explore(self, weights: Any, key: Array, obs: Any, noise: Array) -> Float[Array, "*batch A"]:
        action = self.mode(weights, obs)
        return jnp.clip(action + noise * jax.random.normal(key, action.shape, action.dtype), -1, 1)


# ---- the learning rule


@dataclasses.dataclass(frozen=True)
class _CQN:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic",)
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    critic: Zooming

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        limits(hyper)  # raises where v_min is not below v_max
        x, level = encode(self.critic.observation_space, visible(obs)), jnp.eye(self.critic.config.levels)[0]
        return {"critic": self.critic.network.init(keys["critic"], x, action, level)}

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The next action's bins, their distribution in the target network, the cross entropy; the target network."""
        critic, config = nets["critic"], self.critic.config
        atoms = jnp.linspace(*limits(hyper), config.num_outputs)
        discount = hyper.gamma * (1 - batch.terminated.astype(batch.reward.dtype))

        next_bin = self.critic.best(critic.weights, batch.next_obs, atoms)
        next_logits = of_bins(self.critic.logits(critic.target, batch.next_obs, next_bin), next_bin)
        target = target_distribution(batch.reward, discount, next_logits, atoms)
        bin = digits(batch.action, config.levels, config.bins)

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            logits = of_bins(self.critic.logits(weights, batch.obs, bin), bin)
            return jnp.mean(cross_entropy(logits, target)), {"q_value": jnp.mean(expected_value(logits, atoms))}

        critic, report = critic.descend(objective, hyper.learning_rate, hyper.max_grad_norm)
        mean = batch.reward + discount * jnp.mean(expected_value(next_logits, atoms), (1, 2))
        report["clipped_targets"] = clipped_targets(mean, (hyper.v_min, hyper.v_max))
        return {"critic": critic.track(hyper.tau)}, report


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """CQN for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset, or what `datasets.stored` makes of one; None: the learner acts and fills a replay buffer.
        network: a flax module with the inputs and outputs of `CoarseToFine`: the vector of an observation without its
            privileged part, the centre of a cell, a level.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or a network whose outputs do not fit,
    and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("cqn", venv, Box, between_ends=True)
    num_dims = space.shape[0]
    network = own("network", network) or CoarseToFine(
        num_dims, config.bins, config.num_outputs, config.hidden, config.activation, config.layer_norm
    )
    zooming = Zooming(network, config, obs_space, num_dims)
    given = {"replay": replay, "optimizer": optimizer}

    def acting(state: learner.State) -> tuple[Any, Array, Array]:
        return state.target_weights["critic"], state.hyper.v_min, state.hyper.v_max

    return learner.algorithm("cqn", venv, config, Hyper, _CQN(zooming), zooming, **given, deploy=acting)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
