"""MAP-Elites: an archive of the best genome of every kind of behaviour is filled by variation of what is in it.

Mouret and Clune (2015), "Illuminating search spaces by mapping elites" (arXiv:1504.04909). A genome is the weights of a
policy; it plays an episode, whose return is its fitness and whose descriptor (where the robot ended, say) names its
cell. A cell keeps the best that was found in it. An update is one generation: parents are drawn uniformly from the
filled cells, and their children play,

    Gaussian   child = parent + sigma z                                          z a normal vector
    iso-line   child = parent + iso_sigma z + line_sigma (other - parent) u      u a normal number

the second, towards another parent, by Vassiliades and Mouret (2018), "Discovering the elite hypervolume by leveraging
interspecies correlation" (arXiv:1804.03906). The first generation is drawn as networks are initialised. With
`Config.centroids` the archive is that of CVT-MAP-Elites (Vassiliades, Chatzilygeroudis and Mouret 2018, "Using
centroidal Voronoi tessellations to scale up the multidimensional archive of phenotypic elites algorithm",
arXiv:1610.05729). Deployed is the genome of the best cell; `behaviour.policy_of` is that of any.
Results: `docs/algos/quality_diversity.md`.

The rule is of plain functions of `jaxrl.quality_diversity.elites`, which also work on a function of one's own:

    population = emit(key, archive, hyper, 256)
    fitness, descriptor = jax.vmap(of_genome)(population)
    archive, inserted = elites.insert(archive, population, fitness, descriptor)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, algorithm_of, shared
from jaxrl.environment import Environment, pytree
from jaxrl.nn.networks import Network
from jaxrl.quality_diversity import behaviour, elites
from jaxrl.quality_diversity.behaviour import Rollout, State
from jaxrl.quality_diversity.elites import Cells
from jaxrl.vector_env import VectorEnv

EMITTERS = ("iso_line", "gaussian")


@dataclasses.dataclass(frozen=True)
class Config(behaviour.Config):
    """Static settings: each value compiles its own program."""

    emitter: str = "iso_line"  # or "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.emitter not in EMITTERS:
            raise ValueError(f"emitter={self.emitter!r} is unknown; use one of {', '.join(EMITTERS)}.")


@pytree
class Hyper(behaviour.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    sigma: jax.Array = 0.05  # gaussian: std of a child about its parent
    iso_sigma: jax.Array = 0.01  # iso_line: the same
    line_sigma: jax.Array = 0.2  # iso_line: std along the line to another parent, as a share of their distance
    weight_clip: jax.Array = jnp.inf  # children's weights are clipped to plus or minus this; infinite: not at all


def emit(
    key: Array, archive: Cells, hyper: Hyper, population_size: int, emitter: str = "iso_line"
) -> Float[Array, "P D"]:
    """The children of a generation."""
    parent_key, noise_key = jax.random.split(key)
    if emitter == "gaussian":
        parent = elites.parents(parent_key, archive, population_size)
        child = elites.gaussian(noise_key, parent, hyper.sigma)
    else:
        parent, other = elites.pairs(parent_key, archive, population_size)
        child = elites.iso_line(noise_key, parent, other, hyper.iso_sigma, hyper.line_sigma)
    return jnp.clip(child, -hyper.weight_clip, hyper.weight_clip)


@dataclasses.dataclass(frozen=True)
class _MapElites(behaviour.Shell):
    """The static settings of the learner; its methods are the Algorithm's functions."""

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        return self.begin(Hyper, key, hyper, env_params)

    def learn(self, state: State, rollout: Rollout) -> tuple[State, dict[str, Array]]:
        key, emit_key = jax.random.split(state.key)
        archive, inserted = elites.insert(state.archive, rollout.population, rollout.fitness, rollout.descriptor)
        population = emit(emit_key, archive, state.hyper, self.config.population_size, self.config.emitter)
        state = self.recorded(state, archive).replace(key=key, population=population)
        return state, self.metrics(archive, inserted, rollout, state.hyper)


@shared
def make(env: Environment | VectorEnv, config: Config = Config(), *, network: Network | None = None) -> Algorithm:
    """MAP-Elites on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from observations to logits, or for a Box to means in units of the box (-1 to 1 a side).

    Raises ValueError for what `behaviour.parts` refuses.
    """
    learner = _MapElites(*behaviour.parts("map_elites", env, config, network))
    return algorithm_of("map_elites", learner, Hyper, learner.steps_per_update)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
