"""Novelty search: what does something new survives, whatever it earns.

Lehman and Stanley (2011), "Abandoning objectives: evolution through the search for novelty alone", Evolutionary
Computation 19(2), with the settings of Paolo, Coninx, Doncieux and Laflaquiere (2021), "Sparse reward exploration via
novelty search and emitters" (arXiv:2102.03140). The novelty of a genome is the mean distance of its descriptor to its
`neighbours` nearest among parents, children and the novelty archive, itself left out. An update is one generation:

    children    each parent's, all numbers with noise:  child = clip(parent + sigma z, -weight_clip, weight_clip)
    archive     `num_kept` children drawn at random are kept for good (the latest `capacity` of them)
    parents     the `num_parents` most novel of parents and children

What was found is recorded in an archive of cells, as by MAP-Elites; the search does not read it. Deployed is the genome
of its best cell; `behaviour.policy_of` is that of any. `selection="random"` draws survivors instead: the control.

Deviations: the authors' code leaves out the nearest point as if it was the point itself, also where the point is not
in the set; here a point is left out by its index. A genome whose return or descriptor is not finite does not survive.
Results: `docs/algos/quality_diversity.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, algorithm_of, check_at_least_one, shared
from jaxrl.environment import Environment, pytree
from jaxrl.nn.networks import Network
from jaxrl.quality_diversity import behaviour, elites, novelty
from jaxrl.quality_diversity.behaviour import Rollout, State
from jaxrl.quality_diversity.novelty import Kept
from jaxrl.vector_env import VectorEnv

SELECTIONS = ("novelty", "random")


@dataclasses.dataclass(frozen=True)
class Config(behaviour.Config):
    """Static settings: each value compiles its own program."""

    population_size: int = 200  # children of a generation, as many of each parent
    num_parents: int = 100  # genomes that survive a generation
    neighbours: int = 15  # whose mean distance is novelty
    num_kept: int = 5  # children of a generation that the novelty archive keeps
    capacity: int = 10_000  # of the novelty archive; beyond it the oldest are overwritten
    selection: str = "novelty"  # or "random": survivors are drawn, a control

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_parents", "neighbours", "num_kept", "capacity")
        if self.population_size % self.num_parents:
            raise ValueError(
                f"population_size={self.population_size} are children of num_parents={self.num_parents}, as many of "
                "each: make it a multiple."
            )
        if self.num_kept > min(self.population_size, self.capacity):
            raise ValueError(
                f"num_kept={self.num_kept}: a generation has {self.population_size} children, the archive room for "
                f"{self.capacity}."
            )
        if self.selection not in SELECTIONS:
            raise ValueError(f"selection={self.selection!r} is unknown; use one of {', '.join(SELECTIONS)}.")


@pytree
class Hyper(behaviour.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    sigma: jax.Array = 0.05  # std of a child about its parent
    weight_clip: jax.Array = 5.0  # children's weights are clipped to plus or minus this


class Members(NamedTuple):
    """N genomes with what they did; where fitness is not finite there is none."""

    genome: Any  # (N, D)
    fitness: Any  # (N,)
    descriptor: Any  # (N, B)


class Search(NamedTuple):
    parents: Members
    kept: Kept


def no_members(count: int, genome_size: int, descriptors: int) -> Members:
    """Places without a genome."""
    dtype = jnp.result_type(float)
    return Members(
        jnp.zeros((count, genome_size), dtype),
        jnp.full(count, -jnp.inf, dtype),
        jnp.zeros((count, descriptors), dtype),
    )


def together(*members: Members) -> Members:
    """All of them, in this order."""
    return jax.tree.map(lambda *x: jnp.concatenate(x), *members)


def novelties(members: Members, known: Float[Array, "M B"], present: Array, k: int) -> Float[Array, " N"]:
    """Of members among each other and what is known; -inf where there is none."""
    alive = jnp.isfinite(members.fitness)
    own = jnp.arange(alive.shape[0])
    everything = jnp.concatenate([members.descriptor, known]), jnp.concatenate([alive, present])
    return jnp.where(alive, novelty.novelty(members.descriptor, *everything, k, own), -jnp.inf)


def drawn(key: Array, kept: Kept, children: Members, count: int) -> Kept:
    """The archive with `count` of the children, drawn at random."""
    lots = jnp.where(jnp.isfinite(children.fitness), jax.random.uniform(key, children.fitness.shape), -jnp.inf)
    genome, fitness, descriptor = jax.tree.map(lambda x: x[novelty.fittest(lots, count)], children)
    return novelty.keep(kept, genome, fitness, descriptor, jnp.isfinite(fitness))


def next_parents(key: Array, search: Search, children: Members, config: Config) -> Members:
    """The survivors of a generation."""
    members = together(search.parents, children)
    value = novelties(members, search.kept.descriptor, search.kept.present, config.neighbours)
    if config.selection == "random":
        value = jnp.where(value > -jnp.inf, jax.random.uniform(key, value.shape), -jnp.inf)
    return jax.tree.map(lambda x: x[novelty.fittest(value, config.num_parents)], members)


def children_of(key: Array, parents: Members, count: int, hyper: Any) -> Float[Array, "P D"]:
    """`count` children, as many of each parent."""
    parent = jnp.repeat(parents.genome, count // parents.fitness.shape[0], 0)
    return jnp.clip(elites.gaussian(key, parent, hyper.sigma), -hyper.weight_clip, hyper.weight_clip)


@dataclasses.dataclass(frozen=True)
class _NoveltySearch(behaviour.Shell):
    """The static settings of the learner; its methods are the Algorithm's functions."""

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        state, config = self.begin(Hyper, key, hyper, env_params), self.config
        D, B = state.population.shape[1], len(self.descriptor.names)
        return state.replace(search=Search(no_members(config.num_parents, D, B), novelty.empty(config.capacity, D, B)))

    def learn(self, state: State, rollout: Rollout) -> tuple[State, dict[str, Array]]:
        config = self.config
        key, keep_key, select_key, child_key = jax.random.split(state.key, 4)
        archive, inserted = elites.insert(state.archive, rollout.population, rollout.fitness, rollout.descriptor)
        fitness = jnp.where(inserted.refused, -jnp.inf, rollout.fitness)
        children = Members(rollout.population, fitness, rollout.descriptor)
        parents = next_parents(select_key, state.search, children, config)
        kept = drawn(keep_key, state.search.kept, children, config.num_kept)
        population = children_of(child_key, parents, config.population_size, state.hyper)
        state = self.recorded(state, archive).replace(key=key, population=population, search=Search(parents, kept))
        return state, {**self.metrics(archive, inserted, rollout, state.hyper), "kept": kept.count}


@shared
def make(env: Environment | VectorEnv, config: Config = Config(), *, network: Network | None = None) -> Algorithm:
    """Novelty search on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from observations to logits, or for a Box to means in units of the box (-1 to 1 a side).

    Raises ValueError for what `behaviour.parts` refuses.
    """
    learner = _NoveltySearch(*behaviour.parts("novelty_search", env, config, network))
    return algorithm_of("novelty_search", learner, Hyper, learner.steps_per_update)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
