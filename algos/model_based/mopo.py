"""Model-based offline policy optimisation (MOPO), and MBPO's rollouts on a dataset, which is MOPO with `penalty` 0.

Yu, Thomas, Yu, Ermon, Zou, Levine, Finn and Ma (2020), "MOPO: model-based offline policy optimization". Soft
actor-critic on short rollouts of a model, whose reward is less where the model is uncertain,

    r(s, a) - penalty u(s, a),   u = max_k |sigma_k(s, a)|

sigma_k being the standard deviation that member k of an ensemble predicts (`dynamics.largest_std`). Janner, Fu, Zhang
and Levine (2019), "When to trust your model: model-based policy optimization", is where the rollouts come from; online
it learns the model anew, which is not done here.

Usual settings (unifloral, Jackson et al. 2025): horizons of 1 and 5, penalties from 0 to 5 by task, 5 % real steps.
Deviations from the authors' code: the maximum is over the ensemble's elites, which are all that is kept; where a
rollout ends, the next step is from another state of the data; actions are in units of the box.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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
    real_ratio: float = 0.05  # share of a batch that is the data's
    num_critics: int = 2  # of which the smallest value counts
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

    learning_rate: jax.Array = 3e-4  # of actor and critics
    alpha_learning_rate: jax.Array = 3e-4  # of the logarithm of the temperature; 0: constant
    alpha: jax.Array = 1.0  # temperature, at first
    target_entropy: jax.Array = jnp.inf  # nats in units of the box; infinite: -A
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target critics move to the others, each gradient step
    penalty: jax.Array = 1.0  # of the model's uncertainty; 0: MBPO's rollouts
    learning_starts: jax.Array = 1000  # where it acts: environment steps before the first gradient step
    replay_ratio: jax.Array = 1.0  # where it acts: gradient steps an environment step; infinite: num_updates
    max_grad_norm: jax.Array = 1e6  # of each network


def penalised(
    reward: Float[Array, " B"], uncertainty: Float[Array, " B"], penalty: Float[Array, ""] | float
) -> Float[Array, " B"]:
    """r - penalty u (Yu et al. 2020, equation 4)."""
    return reward - penalty * uncertainty


def model_of(ensemble: Ensemble, dataset: Dataset, terminated: Ends | None = None) -> Model:
    """A learned model with the uncertainty that is penalised here; `terminated` are the task's own ends."""
    return dynamics.predictor(ensemble, dynamics.largest_std, terminated)


@dataclasses.dataclass(frozen=True)
class _MOPO(ModelBased):
    """What the model's uncertainty costs; what else the Algorithm's functions do is `ModelBased`'s."""

    name: ClassVar = "mopo"
    hyper_class: ClassVar = Hyper

    def pessimistic(self, predicted: Prediction, hyper: Hyper) -> Prediction:
        return predicted._replace(reward=penalised(predicted.reward, predicted.uncertainty, hyper.penalty))


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
    """MOPO for `env`. Equal arguments give the same functions, so they share one jit cache.

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
    obs_space, space = spaces_of("mopo", venv, Box)
    networks = (
        ("actor", actor or Actor(obs_space, space, config.hidden, config.activation, spread=True)),
        ("critic", critic or Critic(obs_space, config.hidden, config.activation, config.layer_norm)),
    )
    ring = uniform(config.buffer_size)
    replay = model_based.memory_of(memory, model, ring, config, "mopo")
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _MOPO(config, venv, networks, obs_space, space, replay, chosen, memory, model, ring).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
