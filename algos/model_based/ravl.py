"""Reach-aware value learning (RAVL): pessimism about values, not about the model.

Sims, Lu, Foerster and Teh (2024), "The edge-of-reach problem in offline model-based reinforcement learning". Rollouts
of k steps from states of a dataset come to states that are reached at step k alone: they are in targets and are never
learned, so values there are what critics make up, and maximisation spreads the highest. A penalty for the model's
uncertainty hides that, and vanishes with the model's error. RAVL has no such penalty: its critics are EDAC's
(`edac.py`), many and diverse, whose smallest value is low where nothing holds them together:

    critics  sum_k mean_B (Q_k(s, a) - r - gamma (1 - terminated) (min_l Q'_l(s', a') - alpha log pi(a' | s')))^2
             + diversity * similarity of the gradients in the action

The published settings: N = 10, diversity 1, k = 5 and 5 % real steps in the authors' example. The study with a model
without error is in `experiments/edge_of_reach`. Deviations: as in `mopo.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.algos.actor_critic.edac import similarity
from jaxrl.environment import Environment, pytree
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.replay import model_based
from jaxrl.replay.actor_critic import Actor
from jaxrl.replay.model_based import Model, ModelBased
from jaxrl.replay.off_policy import Batch, Critic
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
    num_critics: int = 10  # of which the smallest value counts
    diverse: bool = True  # False: N critics without the gradients in the actions
    hidden: tuple[int, ...] = (256, 256, 256)  # widths of actor and critics
    activation: str = "relu"
    layer_norm: bool = False  # in the critics
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        model_based.check_config(self)
        if self.num_critics < 2:
            raise ValueError(f"num_critics={self.num_critics}: it must be at least 2.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of actor and critics
    alpha_learning_rate: jax.Array = 3e-4  # of the logarithm of the temperature; 0: constant
    alpha: jax.Array = 1.0  # temperature, at first
    target_entropy: jax.Array = jnp.inf  # nats in units of the box; infinite: -A
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target critics move to the others, each gradient step
    diversity: jax.Array = 1.0  # eta; read where Config.diverse
    learning_starts: jax.Array = 1000  # where it acts: environment steps before the first gradient step
    replay_ratio: jax.Array = 1.0  # where it acts: gradient steps an environment step; infinite: num_updates
    max_grad_norm: jax.Array = 1e6  # of each network


@dataclasses.dataclass(frozen=True)
class _RAVL(ModelBased):
    """The diversity of the critics; what else the Algorithm's functions do is `ModelBased`'s."""

    name: ClassVar = "ravl"
    hyper_class: ClassVar = Hyper

    def regulariser(
        self, own: Any, weights: Any, key: Array, batch: Batch, q: Float[Array, "K B"], hyper: Hyper
    ) -> tuple[Array | float, dict[str, Array]]:
        if not self.config.diverse:
            return 0.0, {}
        critic: Any = self.network("critic")

        def own_values(actions: Array) -> Array:
            return jnp.sum(jax.vmap(lambda w, a: critic.apply(w, batch.obs, a))(own, actions))

        # A copy of the actions for each critic: no critic's value depends on another's.
        alike = similarity(jax.grad(own_values)(jnp.broadcast_to(batch.action, (q.shape[0], *batch.action.shape))))
        return hyper.diversity * alike, {"similarity": alike}


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
    """RAVL for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None, as `model`: it acts and fills its
            own.
        model: what imagines, as `dynamics.predictor(ensemble)`; see `model_based.Model`.
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` of actions before
            tanh, (..., A) each.
        critic: a flax module from a whole observation and an action to values (...); there will be `num_critics`.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, networks whose outputs do not fit, a
    dataset without a model or a model without a dataset.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("ravl", venv, Box)
    networks = (
        ("actor", actor or Actor(obs_space, space, config.hidden, config.activation, spread=True)),
        ("critic", critic or Critic(obs_space, config.hidden, config.activation, config.layer_norm)),
    )
    ring = uniform(config.buffer_size)
    replay = model_based.memory_of(memory, model, ring, config, "ravl")
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _RAVL(config, venv, networks, obs_space, space, replay, chosen, memory, model, ring).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
