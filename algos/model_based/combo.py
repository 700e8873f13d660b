"""Conservative offline model-based policy optimisation (COMBO).

Yu, Kumar, Rafailov, Rajeswaran, Levine and Finn (2021), "COMBO: conservative offline model-based policy optimization".
Soft actor-critic on short rollouts of a model, without a penalty for its uncertainty: critics are low for what the
model imagines instead, and not for the data. To their squared error on batches of both comes

    min_q_weight (mean_{s of the model} T logsumexp_i (Q(s, a_i) / T - log p(a_i)) - mean_{s, a of the data} Q(s, a))

over `num_actions` actions each that are uniform, the actor's at s and the actor's at s', as in `cql.py`.

Defaults are unifloral's (Jackson et al. 2025) but for the actor's rate and 10 critics. Deviations from the paper:
targets are with entropy, as there; rollouts are the policy's only; the penalty looks at imagined states alone, ten
actions of each kind, where unifloral's looks at the whole batch, one of each; else as in `mopo.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.algos.actor_critic.cql import penalty
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
    real_ratio: float = 0.5  # share of a batch that is the data's
    num_critics: int = 2  # of which the smallest value counts
    num_actions: int = 10  # of each kind, for the penalty
    hidden: tuple[int, ...] = (256, 256, 256)  # widths of actor and critics
    activation: str = "relu"
    layer_norm: bool = False  # in the critics
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        model_based.check_config(self)
        if self.num_actions < 1:
            raise ValueError(f"num_actions={self.num_actions}: it must be at least 1.")
        if not 0 < model_based.num_real(self) < self.batch_size:
            raise ValueError(
                f"real_ratio={self.real_ratio}: a batch of {self.batch_size} must have rows of both kinds."
            )


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of actor and critics
    alpha_learning_rate: jax.Array = 3e-4  # of the logarithm of the temperature; 0: constant
    alpha: jax.Array = 1.0  # temperature, at first
    target_entropy: jax.Array = jnp.inf  # nats in units of the box; infinite: -A
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target critics move to the others, each gradient step
    min_q_weight: jax.Array = 0.5  # of the penalty
    temperature: jax.Array = 1.0  # T
    learning_starts: jax.Array = 1000  # where it acts: environment steps before the first gradient step
    replay_ratio: jax.Array = 1.0  # where it acts: gradient steps an environment step; infinite: num_updates
    max_grad_norm: jax.Array = 1e6  # of each network


@dataclasses.dataclass(frozen=True)
class _COMBO(ModelBased):
    """The conservative part of the critics' loss; what else the Algorithm's functions do is `ModelBased`'s."""

    name: ClassVar = "combo"
    hyper_class: ClassVar = Hyper

    def tried(self, actor_weights: Any, key: Array, batch: Batch) -> tuple[Float[Array, "n B A"], Float[Array, "n B"]]:
        """Uniform actions, the actor's at s and the actor's at s', and the logarithms of their densities."""
        n, keys = self.config.num_actions, jax.random.split(key, 3)
        shape = (n, *batch.action.shape)
        actions = [jax.random.uniform(keys[0], shape, batch.action.dtype, -1, 1)]
        densities = [jnp.full(shape[:-1], -batch.action.shape[-1] * jnp.log(2.0), batch.action.dtype)]
        for own_key, obs in zip(keys[1:], (batch.obs, batch.next_obs), strict=True):
            pi = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), self.distribution(actor_weights, obs))
            action, log_prob = pi.sample_and_log_prob(own_key)
            actions.append(action)
            densities.append(log_prob)
        return jnp.concatenate(actions), jnp.concatenate(densities)

    def regulariser(
        self, own: Any, weights: Any, key: Array, batch: Batch, q: Float[Array, "K B"], hyper: Hyper
    ) -> tuple[Array | float, dict[str, Array]]:
        if self.memory is None:
            return 0.0, {"penalty": jnp.zeros(())}  # where it acts, nothing is imagined
        real = model_based.num_real(self.config)
        imagined = jax.tree.map(lambda x: x[real:], batch)
        actions, densities = self.tried(weights["actor"], key, imagined)
        values = jax.vmap(lambda action: self.act_values(own, imagined.obs, action), out_axes=1)(actions)
        # The mean over the data's rows, beside each row of the model's.
        of_data = jnp.broadcast_to(jnp.mean(q[:, :real], -1, keepdims=True), (q.shape[0], q.shape[1] - real))
        low = penalty(values, densities, of_data, hyper.temperature)
        return hyper.min_q_weight * low, {"penalty": low}


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
    """COMBO for `env`. Equal arguments give the same functions, so they share one jit cache.

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
    obs_space, space = spaces_of("combo", venv, Box)
    networks = (
        ("actor", actor or Actor(obs_space, space, config.hidden, config.activation, spread=True)),
        ("critic", critic or Critic(obs_space, config.hidden, config.activation, config.layer_norm)),
    )
    ring = uniform(config.buffer_size)
    replay = model_based.memory_of(memory, model, ring, config, "combo")
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _COMBO(config, venv, networks, obs_space, space, replay, chosen, memory, model, ring).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
