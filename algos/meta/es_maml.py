"""ES-MAML is MAML (`maml.py`) with a change: evolution strategies estimate its outer gradient.

Song et al. (2020), "ES-MAML: Simple Hessian-Free Meta Learning", ICLR, arXiv:1910.01215. The adapted return of a task,
F(theta) = J_task(U(theta)) with U an inner step, is smoothed, and its gradient estimated from pairs of opposite
perturbations, each pair on another task, with the same random numbers for both:

    grad = mean over pairs of (F(theta + sigma eps) - F(theta - sigma eps)) eps / (2 sigma)

The inner step is the policy gradient of `maml.py`; it need not be differentiable here. Fitness are ranks in [-1/2, 1/2]
over all policies of an update, as in Salimans et al. (2017). `maml.adapt` adapts these policies, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, algorithm_of, shared
from jaxrl.algos.meta import maml
from jaxrl.environment import Environment, pytree
from jaxrl.nn.optim import OptimizerLike


@dataclasses.dataclass(frozen=True)
class Config(maml.Config):
    """Static settings: each value compiles its own program. `num_tasks` are pairs of opposite perturbations."""

    first_order: bool = dataclasses.field(default=True, init=False)  # no derivative passes an inner step


@pytree
class Hyper(maml.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-2
    sigma: jax.Array = 0.05  # of the perturbations
    max_grad_norm: jax.Array = jnp.inf


def ranks(fitness: Float[Array, "..."]) -> Float[Array, "..."]:
    """The ranks of all entries, spaced evenly in [-1/2, 1/2]; ties get their mean rank."""
    flat = fitness.reshape(-1)
    below = jnp.sum(flat[None] < flat[:, None], 1) + 0.5 * (jnp.sum(flat[None] == flat[:, None], 1) - 1)
    return (below / (flat.size - 1) - 0.5).reshape(fitness.shape)


def pairs_gradient(
    noise: Float[Array, "P D"], fitness: Float[Array, "P 2"], sigma: Array | float
) -> Float[Array, " D"]:
    """The antithetic estimate of the gradient of fitness, measured at theta + sigma noise and theta - sigma noise."""
    return (fitness[:, 0] - fitness[:, 1]) @ noise / (2 * sigma * len(noise))


@dataclasses.dataclass(frozen=True)
class ESMAML(maml.MAML):
    """The static settings of the learner; its methods are the Algorithm's functions."""

    hyper: ClassVar[type] = Hyper

    def fitness(self, weights: Any, key: Array, task: Any, hyper: Any) -> tuple[Array, Array, Any]:
        """`(mean return of an episode of the adapted policy, that before, where its episodes ended)` on a task."""
        totals, ends = [], None
        for i in range(self.config.inner_steps + 1):
            played, total, ends = self.play(weights, jax.random.fold_in(key, i), task, hyper)
            totals.append(total)
            if i < self.config.inner_steps:
                weights = self.adapted(weights, played, hyper)
        return totals[-1], totals[0], ends

    def collect(self, state: maml.MAMLState) -> tuple[maml.MAMLState, Any]:
        key, task_key, play_key, noise_key = jax.random.split(state.key, 4)
        n, hyper = self.config.num_tasks, state.hyper
        tasks = jax.vmap(self.task_fn, (0, None))(jax.random.split(task_key, n), state.env_params)
        flat, unravel = ravel_pytree(state.weights)
        noise = jax.random.normal(noise_key, (n, flat.size), flat.dtype)

        def pair(key: Array, noise: Array, task: Any) -> Any:
            def one(sign: Array) -> Any:
                return self.fitness(unravel(flat + sign * hyper.sigma * noise), key, task, hyper)

            return jax.vmap(one)(jnp.array([1.0, -1.0], flat.dtype))

        fitness, first, ends = jax.vmap(pair)(jax.random.split(play_key, n), noise, tasks)
        ends = jax.tree.map(lambda x: jnp.moveaxis(x, 2, 0).reshape(x.shape[2], -1), ends)
        steps = 2 * (self.config.inner_steps + 1) * n * self.config.num_envs * self.config.num_steps
        return state.replace(key=key, step=state.step + steps), (noise, fitness, first, ends)

    def learn(self, state: maml.MAMLState, rollout: Any) -> tuple[maml.MAMLState, dict[str, Array]]:
        noise, fitness, first, ends = rollout
        flat, unravel = ravel_pytree(state.weights)
        # Ranks have no scale: sigma is in the step already.
        grads = unravel(-pairs_gradient(noise, ranks(fitness), 1.0))
        flat, optimizer, norm = self.optimizer.descend(
            flat, state.optimizer, grads, state.hyper.learning_rate, state.hyper.max_grad_norm
        )
        metrics = {"loss": -fitness.mean(), "grad_norm": norm, "return_before": first.mean()}
        metrics |= {"return_after": fitness.mean()}
        return state.replace(weights=unravel(flat), optimizer=optimizer), {**ends.metrics(), **metrics}


@shared
def make(
    env: Environment,
    config: Config = Config(),
    *,
    task_fn: Callable[[Array, Any], Any] | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """ES-MAML on tasks of `env`; arguments and errors are those of `maml.make`."""
    made = maml.parts(env, config, task_fn, optimizer, "es_maml")
    learner = ESMAML(**{f.name: getattr(made, f.name) for f in dataclasses.fields(made)})
    steps = 2 * (config.inner_steps + 1) * config.num_tasks * config.num_envs * config.num_steps
    return algorithm_of("es_maml", learner, Hyper, steps)
