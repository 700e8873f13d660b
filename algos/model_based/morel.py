"""Model-based offline reinforcement learning (MOReL): a pessimistic MDP that halts where its model does not know.

Kidambi, Rajeswaran, Netrapalli and Joachims (2020), "MOReL: model-based offline reinforcement learning". Where the
members of an ensemble disagree by more than a threshold, an episode of the model ends with a low reward,

    r_halt, terminated   where max_{k, l} |f_k(s, a) - f_l(s, a)| > threshold

f_k being what member k predicts (`dynamics.disagreement`). The threshold is a share of the largest disagreement on the
data, the unit of `model_of`'s uncertainty; the reward is to be well below the data's smallest (unifloral: 200 below).

The loop is MOPO's (`mopo.py`, `model_based`) with another penalty, as in unifloral (Jackson et al. 2025), whose
settings the defaults are: the paper trains a natural policy gradient in the pessimistic MDP with long rollouts, here it
is soft actor-critic on short ones. Other deviations: as in `mopo.py`.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data import dynamics
from jaxrl.data.datasets import Dataset
from jaxrl.data.dynamics import Ends, Ensemble
from jaxrl.environment import Environment, pytree
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.replay import model_based
from jaxrl.replay.actor_critic import Actor
from jaxrl.replay.model_based import Model, ModelBased, Prediction
from jaxrl.replay.off_policy import Critic
from jaxrl.replay.ring import Replay, uniform
from jaxrl.spaces import Box
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1000  # gradient steps between rollouts; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 256
    buffer_size: int = 1_250_000  # transitions kept of what was imagined; without a dataset, of what was done
    num_rollouts: int = 50_000  # states of the data that rollouts begin from, each update
    horizon: int = 5  # steps of a rollout
    real_ratio: float = 0.01  # share of a batch that is the data's
    num_critics: int = 10  # of which the smallest value counts
    hidden: tuple[int, ...] = (256, 256, 256)  # widths of actor and critics
    activation: str = "relu"
    layer_norm: bool = False  # in the critics
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        model_based.check_config(self)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-4  # of actor and critics
    alpha_learning_rate: jax.Array = 1e-4  # of the logarithm of the temperature; 0: constant
    alpha: jax.Array = 1.0  # temperature, at first
    target_entropy: jax.Array = jnp.inf  # nats in units of the box; infinite: -A
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target critics move to the others, each gradient step
    threshold: jax.Array = 1.0  # of the model's uncertainty, in its units; infinite: never halts
    halt_reward: jax.Array = -200.0  # of the step that halts, in the task's units
    learning_starts: jax.Array = 1000  # where it acts: environment steps before the first gradient step
    replay_ratio: jax.Array = 1.0  # where it acts: gradient steps an environment step; infinite: num_updates
    max_grad_norm: jax.Array = 1e6  # of each network


def halted(
    reward: Float[Array, " B"],
    terminated: Bool[Array, " B"],
    uncertainty: Float[Array, " B"],
    threshold: Float[Array, ""] | float,
    halt_reward: Float[Array, ""] | float,
) -> tuple[Float[Array, " B"], Bool[Array, " B"]]:
    """`(reward, terminated)` of the pessimistic MDP (Kidambi et al. 2020, definitions 1 and 2)."""
    unknown = uncertainty > threshold
    return jnp.where(unknown, halt_reward, reward), terminated | unknown


def model_of(ensemble: Ensemble, dataset: Dataset, terminated: Ends | None = None) -> Model:
    """A learned model whose disagreement is 1 where it is largest on the data; `terminated` are the task's own ends.

    Raises ValueError where its members agree about all of the data, so that no threshold tells steps apart.
    """
    largest = float(jnp.max(dynamics.uncertainties(ensemble, dataset, dynamics.disagreement)))
    if not 0 < largest < jnp.inf:
        raise ValueError(f"morel: the members disagree by at most {largest} on the data; it takes 2 elites or more.")

    def measure(mean: Float[Array, "E B D"], std: Float[Array, "E B D"]) -> Float[Array, " B"]:
        return dynamics.disagreement(mean, std) / largest

    return dynamics.predictor(ensemble, measure, terminated)


@dataclasses.dataclass(frozen=True)
class _MOReL(ModelBased):
    """The halt; what else the Algorithm's functions do is `ModelBased`'s."""

    name: ClassVar = "morel"
    hyper_class: ClassVar = Hyper

    def pessimistic(self, predicted: Prediction, hyper: Hyper) -> Prediction:
        _, reward, terminated, uncertainty = predicted
        reward, terminated = halted(reward, terminated, uncertainty, hyper.threshold, hyper.halt_reward)
        return predicted._replace(reward=reward, terminated=terminated)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    memory: Replay | None = None,
    model: Model | None = None,
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """MOReL for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None, as `model`: it acts and fills its
            own.
        model: what imagines, as `model_of` makes it; see `model_based.Model`.
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` of actions before
            tanh, (..., A) each.
        critic: a flax module from a whole observation and an action to values (...); there will be `num_critics`.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, networks whose outputs do not fit, a
    dataset without a model or a model without a dataset.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("morel", venv, Box)
    networks = (
        ("actor", actor or Actor(obs_space, space, config.hidden, config.activation, spread=True)),
        ("critic", critic or Critic(obs_space, config.hidden, config.activation, config.layer_norm)),
    )
    ring = uniform(config.buffer_size)
    replay = model_based.memory_of(memory, model, ring, config, "morel")
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _MOReL(config, venv, networks, obs_space, space, replay, chosen, memory, model, ring).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
