"""STAX: SERENE's emitters in the space that TAXONS learns, so that nobody says what behaviour is.

Paolo, Coninx, Laflaquiere and Doncieux (2021), "Discovering and exploiting sparse rewards in a learned behavior space"
(arXiv:2111.01919). Exploration and exploitation alternate in chunks, as in SERENE (`serene`, whose functions this file
uses); what a policy did is the code of an autoencoder for what the robot saw, as in TAXONS (`taxons`, whose functions
this file uses):

    exploration    a generation of TAXONS: survivors by novelty of codes or by surprise; what earns more than 0 starts
                   an emitter; the autoencoder is trained on what was seen
    exploitation   emitters climb rewards; novelty, which says whose turn it is and what archives get, is of codes

Archives hold what was seen, so codes are always those of the autoencoder as it is. What was found is recorded in an
archive of cells by `Config.descriptor`; the search does not read it. Deployed is the genome of that archive's best
cell.

Deviations: those of `serene` and `taxons`; an emitter's most novel so far, a number in SERENE, is told anew among
what is known now, as codes change. Of the paper no more than the abstract was at hand: the autoencoder's sizes
and times are TAXONS', trained in exploring generations alone. Results: `docs/algos/quality_diversity.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, algorithm_of, check_at_least_one, shared
from jaxrl.algos.quality_diversity import serene, taxons
from jaxrl.algos.quality_diversity.novelty_search import Members, children_of, no_members, together
from jaxrl.algos.quality_diversity.serene import Emitters
from jaxrl.algos.quality_diversity.taxons import Learned
from jaxrl.environment import Environment, pytree
from jaxrl.math import rarely
from jaxrl.nn.networks import Network
from jaxrl.nn.optim import optimizer_of
from jaxrl.quality_diversity import behaviour, elites, novelty
from jaxrl.quality_diversity.behaviour import Rollout, State
from jaxrl.quality_diversity.novelty import Kept
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(serene.Config):
    """Static settings: each value compiles its own program."""

    num_frames: int = 10  # observations of an episode, evenly spaced and the last among them, that the search looks at
    code_size: int = 10  # of what the autoencoder makes of them
    ae_hidden: tuple[int, ...] = (64,)  # of encoder and decoder
    train_every: int = 30  # exploring generations
    num_updates: int = 240  # gradient steps each time
    batch_size: int = 128  # observations of a gradient step
    num_gathered: int = 6_000  # the latest observations of children that it is trained on, beside the archive
    warm_up: int = 30  # exploring generations by novelty alone
    trained: bool = True  # False: the autoencoder stays as it was drawn, a control
    optimizer: str = "adam"  # of the autoencoder; a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_frames", "code_size", "train_every", "num_updates", "batch_size")
        taxons.check_learned(self)


@pytree
class Hyper(taxons.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""


class Search(NamedTuple):
    parents: Members  # descriptors are what was seen, in all archives
    kept: Kept
    rewarded: Kept  # the reward archive
    emitters: Emitters
    learned: Learned
    exploits: Any  # bool: whose children play, the emitters'
    left: Any  # int32: generations of the chunk
    owner: Any  # (P,) int32: the emitter of each child, E for none


@dataclasses.dataclass(frozen=True)
class _Stax(taxons.Shell):
    """The static settings of the learner; its methods are the Algorithm's functions."""

    @property
    def patience(self) -> int:
        return self.config.patience or 20 * self.genome_size // self.config.members + 120

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        state, config = self.begin(Hyper, key, hyper, env_params), self.config
        key, ae_key = jax.random.split(state.key)
        D, H = self.genome_size, self.frame_size
        search = Search(
            no_members(config.num_parents, D, H),
            novelty.empty(config.capacity, D, H),
            novelty.empty(config.reward_capacity, D, H),
            serene.no_emitters(config, D, H),
            taxons.begun(ae_key, self.autoencoder, self.optimizer, H, config, state.hyper),
            jnp.bool_(False),
            jnp.int32(config.chunk),
            jnp.full(config.population_size, config.num_emitters, jnp.int32),
        )
        return state.replace(key=key, search=search)

    def codes(self, search: Search, seen: Float[Array, "*batch H"]) -> Float[Array, "*batch C"]:
        return self.autoencoder.apply(search.learned.weights, seen)[0]  # pyright: ignore[reportIndexIssue]

    def references(self, search: Search) -> tuple[Array, Array]:
        """Both archives: `(what was seen, which are present)`."""
        both = search.kept, search.rewarded
        return jnp.concatenate([x.descriptor for x in both]), jnp.concatenate([x.present for x in both])

    def explore(self, key: Array, search: Search, children: Members, hyper: Any) -> tuple[Search, Array, Array]:
        """A generation of TAXONS, and emitters where it earned something: with the autoencoder's loss, and whether
        survivors are those that surprise."""
        config = self.config
        train_key, surprise_key = jax.random.split(key)
        parts = self.autoencoder, self.optimizer, config, hyper
        there = jnp.isfinite(children.fitness)
        learned, loss = taxons.after(train_key, search.learned, search.kept, children.descriptor, there, *parts)
        search = search._replace(learned=learned)
        everyone = together(search.parents, children)
        known = self.references(search)
        value, surprised = taxons.measure_of(surprise_key, everyone, *known, learned, self.autoencoder, config, hyper)
        parents = jax.tree.map(lambda x: x[novelty.fittest(value, config.num_parents)], everyone)
        best = novelty.fittest(value[config.num_parents :], config.num_kept)
        genome, fitness, seen = jax.tree.map(lambda x: x[best], children)
        kept = novelty.keep(search.kept, genome, fitness, seen, jnp.isfinite(fitness))

        rewarded = search.rewarded
        places = self.codes(search, children.descriptor), self.codes(search, rewarded.descriptor)
        among = novelty.novelty(*places, rewarded.present, config.neighbours)
        alive = jnp.isfinite(everyone.fitness)[:, None]
        sigma = serene.spacing(children.genome, jnp.where(alive, everyone.genome, 1e6)) / 3
        # Of genomes that are there twice, or so far apart that nothing is near, the std of novelty search.
        sigma = jnp.where((sigma > 0) & (sigma < 1e5), sigma, hyper.sigma)
        D, H = children.genome.shape[1], children.descriptor.shape[1]
        emitters = serene.started(search.emitters, children, sigma, among, serene.no_emitters(config, D, H))
        rewarded = novelty.keep(rewarded, *children, children.fitness > 0)
        search = search._replace(parents=parents, kept=kept, rewarded=rewarded, emitters=emitters)
        return search, loss, surprised

    def exploit(self, key: Array, search: Search, children: Members, hyper: Any) -> tuple[Search, Array, Array]:
        """A step of the emitters that ran, and the end of some."""
        config = self.config
        known, present = self.references(search)
        known = jnp.concatenate([search.parents.descriptor, known])
        present = jnp.concatenate([jnp.isfinite(search.parents.fitness), present])
        # An emitter's most novel so far is told anew among them, as its number may be of an autoencoder before this.
        most = jax.tree.map(lambda x: x[:, 0], search.emitters.novel)
        seen = jnp.concatenate([children.descriptor, most.descriptor])
        value = novelty.novelty(self.codes(search, seen), self.codes(search, known), present, config.neighbours)
        value, again = jnp.split(value, [children.fitness.shape[0]])
        emitters = search.emitters._replace(most_novel=jnp.where(jnp.isfinite(most.fitness), again, -jnp.inf))
        emitters, enters = serene.advanced(emitters, children, value, search.owner)
        given_up, ended = serene.verdicts(emitters, config.bootstrap, self.patience)
        rewarded = novelty.keep(
            search.rewarded, *together(children, emitters.ancestor), jnp.concatenate([enters, ended])
        )
        genome, fitness, seen = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), emitters.novel)
        kept = novelty.keep(search.kept, genome, fitness, seen, jnp.repeat(ended, config.num_kept))
        emitters = emitters._replace(active=emitters.active & ~given_up & ~ended)
        search = search._replace(kept=kept, rewarded=rewarded, emitters=emitters)
        return search, jnp.full((), jnp.nan, children.genome.dtype), jnp.bool_(False)

    def learn(self, state: State, rollout: Rollout) -> tuple[State, dict[str, Array]]:
        config, search, hyper = self.config, state.search, state.hyper
        key, learn_key, owner_key, explore_key, emit_key = jax.random.split(state.key, 5)
        archive, inserted = elites.insert(state.archive, rollout.population, rollout.fitness, rollout.descriptor)
        fitness = jnp.where(inserted.refused, -jnp.inf, rollout.fitness)
        children = Members(rollout.population, fitness, rollout.frames.astype(rollout.population.dtype))
        told = search, jnp.full((), jnp.nan, children.genome.dtype), jnp.bool_(False)
        # Also under vmap over seeds a generation computes only what any of them does: a `cond` would compute both.
        for whether, kind in ((search.exploits, self.exploit), (~search.exploits, self.explore)):
            told = rarely(whether, functools.partial(kind, learn_key, search, children, hyper), told)
        search, loss, surprised = told

        over = search.left <= 1
        emitters, rewarded = search.emitters, search.rewarded
        exploits = (search.exploits ^ over) & emitters.active.any()
        # An exploration that begins before its time, as no emitter is left, is a whole chunk.
        left = jnp.where(over | (exploits != search.exploits), config.chunk, search.left - 1).astype(jnp.int32)
        places = self.codes(search, emitters.ancestor.descriptor), self.codes(search, rewarded.descriptor)
        value = novelty.novelty(*places, rewarded.present, config.neighbours)
        owner = serene.owners(owner_key, emitters, value, config)
        owner = jnp.where(exploits, owner, config.num_emitters).astype(jnp.int32)
        explored = children_of(explore_key, search.parents, config.population_size, hyper)
        population = jnp.where(exploits, serene.emitted(emit_key, emitters, owner, hyper), explored)
        search = search._replace(exploits=exploits, left=left, owner=owner)
        metrics = {
            **self.metrics(archive, inserted, rollout, hyper),
            "kept": search.kept.count,
            "rewarded": rewarded.count,
            "emitters": emitters.active.sum(dtype=jnp.int32),
            "exploits": state.search.exploits.astype(jnp.int32),
            "ae_loss": loss,
            "surprised": surprised.astype(jnp.int32),
        }
        return self.recorded(state, archive).replace(key=key, population=population, search=search), metrics


@shared
def make(env: Environment | VectorEnv, config: Config = Config(), *, network: Network | None = None) -> Algorithm:
    """STAX on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from observations to logits, or for a Box to means in units of the box (-1 to 1 a side).

    Raises ValueError for what `behaviour.parts` refuses.
    """
    learner = _Stax(
        *behaviour.parts("stax", env, config, network), optimizer=optimizer_of(config.optimizer, eps=config.adam_eps)
    )
    return algorithm_of("stax", learner, Hyper, learner.steps_per_update)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
