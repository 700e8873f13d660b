"""ARSQ: auto-regressive soft Q-learning, a soft policy over bins that are chosen one after the other.

Liu et al. (2025), "Learning from suboptimal data in continuous control via auto-regressive soft Q-network"
(arXiv:2502.00288). As in `cqn.py`, each dimension of an action is cut into B bins, the chosen bin again, for L levels.
Here the L A bins of an action are a sequence, level by level and in each level dimension by dimension, and each is
chosen knowing all before it, which the centre of the cell so far tells. With the network's f,

    Q(s, a) = V(s) + sum_k A_k(s, a_<k, a_k),
    A_k(s, a_<k, b) = f_k(s, a_<k, b) - alpha log sum_b' exp(f_k(s, a_<k, b') / alpha)

is normalised: sum_b exp(A_k / alpha) = 1 for every beginning a_<k. So pi(a | s) = prod_k exp(A_k / alpha) is a policy,
that of maximum entropy for Q, and V is its soft value alpha log sum_a exp(Q(s, a) / alpha), both exactly and without a
network of their own. The loss is the squared error

    1/2 (Q(s, a) - (r + gamma (1 - terminated) V'(s')))^2    with V' of the target network.

Deviations: written from a summary of the paper's equations, and checked against neither the paper's text nor the
authors' code, which were not at hand; single steps; no loss towards demonstrations; one network for all places of the
sequence, told the place. The policy is deployed by its most probable bins, one after the other.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.algos.deep_q.cqn import centres, check_cells, digits, moves, offsets
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, is_concrete, pytree, visible
from jaxrl.nn.distributions import Categorical
from jaxrl.nn.losses import critic_loss, td_target
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
    layer_norm: bool = True  # before each activation
    levels: int = 3  # L, how often a bin is cut again
    bins: int = 5  # B, parts of each dimension at each level

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cells(self)


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    tau: jax.Array = 0.02  # Polyak step of the target network, each gradient step
    alpha: jax.Array = 0.1  # temperature: what a nat of entropy is worth, in units of return


# ---- sequences of bins


def beginnings(bin: Int[Array, "*batch L A"], bins: int) -> Float[Array, "*batch L*A A"]:
    """The centre of the cell before each place of the sequence.

    Of the place's level the bins of the dimensions before it are known.
    """
    levels, dims = bin.shape[-2:]
    before = np.tril(np.ones((dims, dims)), -1)
    moved = offsets(bin, bins)
    centre = centres(bin, bins)[..., None, :] + before.astype(moved.dtype) * moved[..., None, :]
    return centre.reshape(*bin.shape[:-2], levels * dims, dims)


def soft_advantages(
    outputs: Float[Array, "*batch bins"], alpha: Float[Array, ""] | float
) -> Float[Array, "*batch bins"]:
    """A_k above: outputs shifted so that the sum of exp(A / alpha) over the bins is 1."""
    return alpha * jax.nn.log_softmax(outputs / alpha)


def action_value(
    value: Float[Array, " B"], advantages: Float[Array, "B places bins"], chosen: Int[Array, "B places"]
) -> Float[Array, " B"]:
    """Q above, of the bins that were chosen at each place."""
    return value + jnp.sum(jnp.take_along_axis(advantages, chosen[..., None], -1)[..., 0], -1)


class SoftQ(nn.Module):
    """Two MLPs: V of an observation, and f of the bins at a place of the sequence."""

    bins: int
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool

    def setup(self) -> None:
        self.value_mlp = MLP(self.hidden, 1, self.activation, layer_norm=self.layer_norm)
        self.bins_mlp = MLP(self.hidden, self.bins, self.activation, out_scale=0.01, layer_norm=self.layer_norm)

    def value(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch"]:
        """V."""
        return self.value_mlp(x)[..., 0]

    def outputs(
        self, x: Float[Array, "*batch features"], centre: Float[Array, "*batch A"], place: Float[Array, " places"]
    ) -> Float[Array, "*batch bins"]:
        """f, of the centre of the cell so far and the place, one-hot."""
        place = jnp.broadcast_to(place, (*x.shape[:-1], *place.shape))
        return self.bins_mlp(jnp.concatenate([x, centre.astype(x.dtype), place], -1))

    def __call__(self, x: Any, centre: Any, place: Any) -> Any:
        return self.value(x), self.outputs(x, centre, place)


@dataclasses.dataclass(frozen=True)
class OneByOne:
    """A network and how it acts; its weights are a pair, with the temperature."""

    network: Any  # a flax module as SoftQ
    config: Config
    observation_space: Space
    num_dims: int

    def value(self, weights: Any, obs: Any) -> Float[Array, "*batch"]:
        """V."""
        return self.network.apply(weights, encode(self.observation_space, visible(obs)), method="value")

    def outputs(self, weights: Any, obs: Any, bin: Int[Array, "*batch L A"]) -> Float[Array, "*batch places bins"]:
        """f of all bins at each place on the way to the cells `bin`."""
        x, places = encode(self.observation_space, visible(obs)), self.config.levels * self.num_dims
        at = jnp.moveaxis(beginnings(bin, self.config.bins), -2, 0)
        each = jax.vmap(lambda centre, place: self.network.apply(weights, x, centre, place, method="outputs"))
        return jnp.moveaxis(each(at, jnp.eye(places, dtype=x.dtype)), 0, -2)

    def chosen(self, weights: Any, key: Array | None, obs: Any) -> Float[Array, "*batch A"]:
        """An action, bin by bin: sampled, or without a key each the most probable one."""
        network, alpha = weights
        x, places = encode(self.observation_space, visible(obs)), self.config.levels * self.num_dims
        keys: Any = [None] * places if key is None else jax.random.split(key, places)
        centre = jnp.zeros((*x.shape[:-1], self.num_dims), x.dtype)
        for place, one_hot in enumerate(jnp.eye(places, dtype=x.dtype)):
            level, dim = divmod(place, self.num_dims)
            pi = Categorical(self.network.apply(network, x, centre, one_hot, method="outputs") / alpha)
            bin = pi.mode() if key is None else pi.sample(keys[place])
            centre = centre.at[..., dim].add(moves(bin, level, self.config.bins).astype(x.dtype))
        return centre

    def mode(self, weights: Any, obs: Any) -> Float[Array, "*batch A"]:
        return self.chosen(weights, None, obs)

    def explore(self, weights: Any, key: Array, obs: Any, noise: Any = None) -> Float[Array, "*batch A"]:
        return self.chosen(weights, key, obs)


# ---- the learning rule


@dataclasses.dataclass(frozen=True)
class _ARSQ:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic",)
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    critic: OneByOne

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        critic = self.critic
        if is_concrete(hyper.alpha) and np.any(np.asarray(hyper.alpha) <= 0):
            raise ValueError(f"alpha={hyper.alpha}: the temperature must be above 0; the default is {Hyper.alpha}.")
        x, places = encode(critic.observation_space, visible(obs)), critic.config.levels * critic.num_dims
        return {"critic": critic.network.init(keys["critic"], x, action, jnp.eye(places)[0])}

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The soft value of the next state, the squared error of Q; the target network."""
        critic, config = nets["critic"], self.critic.config
        next_value = self.critic.value(critic.target, batch.next_obs)
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)
        bin = digits(batch.action, config.levels, config.bins)
        sequence = bin.reshape(len(bin), -1)

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            advantages = soft_advantages(self.critic.outputs(weights, batch.obs, bin), hyper.alpha)
            value = self.critic.value(weights, batch.obs)
            q = action_value(value, advantages, sequence)
            report = {"q_value": jnp.mean(q), "log_prob": jnp.mean(q - value) / hyper.alpha}
            return 0.5 * critic_loss(q[None], target), report

        critic, report = critic.descend(objective, hyper.learning_rate, hyper.max_grad_norm)
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
    """ARSQ for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset, or what `datasets.stored` makes of one; None: the learner acts and fills a replay buffer.
        network: a flax module with the methods `value`, `outputs` and `__call__` (both) of `SoftQ`; observations come
            as vectors, without their privileged part.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or a network whose outputs do not fit,
    and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("arsq", venv, Box, between_ends=True)
    network = own("network", network, "value", "outputs") or SoftQ(
        config.bins, config.hidden, config.activation, config.layer_norm
    )
    acting = OneByOne(network, config, obs_space, space.shape[0])
    given = {"replay": replay, "optimizer": optimizer}

    def deployed(state: learner.State) -> tuple[Any, Array]:
        return state.weights["critic"], state.hyper.alpha

    return learner.algorithm("arsq", venv, config, Hyper, _ARSQ(acting), acting, **given, deploy=deployed)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
