"""SERENE: novelty search finds where rewards are, and local emitters raise what is found there.

Paolo, Coninx, Doncieux and Laflaquiere (2021), "Sparse reward exploration via novelty search and emitters"
(arXiv:2102.03140). Novelty search (`novelty_search`, whose functions this file uses) does not look at rewards. Whenever
a child of it earns more than 0, an emitter is created there: a population of `members`, drawn about the child with the
std of a third of the distance to the nearest genome of parents and children. Chunks of `chunk` generations are spent in
turn on

    exploration    a generation of novelty search, whose references are the reward archive, too
    exploitation   emitters draw children about their members, and keep the best members by reward

New emitters come first, the most novel among rewards before others, for `bootstrap` steps. Then one whose improvement
(the mean of its members over the last three steps less that over the first three) is not above 0 is given up. Of the
others those run that few surpass in both novelty and improvement. An emitter ends when for `patience` steps its best or
its median member has not become better. What exceeds an emitter's best so far enters the reward archive, and what was
more novel than all of its before enters the novelty archive when the emitter ends, at most `num_kept` of these.

Deviations. The authors run one emitter at a time, drawn from the Pareto front of novelty and improvement, with 2
children a member; here a generation's children are shared among as many emitters as it has room for, `step_size` for
each, or more where there are fewer emitters, and the front is the emitters that fewest others surpass. The steps of a
bootstrap are all of that size (the authors' first one is half of it). Stagnation is told by when best and median last
rose, not by windows of their values: members never get worse, so that is the same question. The authors take back the
improvement's first three values after each chunk; here the first stay the first. Results:
`docs/algos/quality_diversity.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrl.algorithm import Algorithm, algorithm_of, check_at_least_one, shared
from jaxrl.algos.quality_diversity import novelty_search
from jaxrl.algos.quality_diversity.novelty_search import Members, children_of, drawn, no_members, together
from jaxrl.environment import Environment, pytree
from jaxrl.math import rarely
from jaxrl.nn.networks import Network
from jaxrl.quality_diversity import behaviour, elites, novelty
from jaxrl.quality_diversity.behaviour import Rollout, State
from jaxrl.quality_diversity.novelty import Kept
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(novelty_search.Config):
    """Static settings: each value compiles its own program."""

    population_size: int = 204  # children of a generation
    num_parents: int = 102  # genomes that survive a generation of novelty search
    num_emitters: int = 64  # at a time; what earns more than 0 while all are in use starts none
    members: int = 6  # of an emitter
    step_size: int = 12  # children of an emitter in a generation, or a multiple where few are active
    bootstrap: int = 6  # an emitter's generations before its improvement is judged, at least 4
    patience: int = 0  # its generations without a rise before it ends; 0: SERENE's 20 D / members + 120
    chunk: int = 5  # generations between exploration and exploitation
    reward_capacity: int = 2_000  # of the reward archive; beyond it the oldest are overwritten

    def __post_init__(self) -> None:
        super().__post_init__()
        names = ("num_emitters", "members", "step_size", "bootstrap", "chunk")
        check_at_least_one(self, *names)
        if self.population_size % self.step_size or self.step_size < self.members:
            raise ValueError(
                f"step_size={self.step_size}: it must divide population_size={self.population_size} and be at least "
                f"members={self.members}."
            )
        if self.bootstrap < 4:
            raise ValueError(
                f"bootstrap={self.bootstrap}: three generations have none before them to compare with; 4 do."
            )
        if self.reward_capacity < self.population_size + self.num_emitters:
            raise ValueError(
                f"reward_capacity={self.reward_capacity}: a generation may bring population_size + num_emitters = "
                f"{self.population_size + self.num_emitters}."
            )


@pytree
class Hyper(novelty_search.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""


class Emitters(NamedTuple):
    """E places for emitters."""

    active: Any  # (E,) bool
    members: Any  # Members, leaves (E, K, ...)
    ancestor: Any  # Members, leaves (E, ...): who earned the reward
    sigma: Any  # (E,)
    steps: Any  # (E,) int32: generations in which it had children
    first: Any  # (E, 3): means of the members after the first three generations, NaN before
    recent: Any  # (E, 3): after the last three
    rises: Any  # (E, 2) int32: steps when best and median last rose
    heights: Any  # (E, 2): best and median
    limit: Any  # (E,): the highest reward that it brought to the reward archive
    most_novel: Any  # (E,): novelty of its most novel so far
    novel: Any  # Members, leaves (E, kept, ...): the latest that were more novel than all before

    @property
    def improvement(self) -> Float[Array, " E"]:
        """How much better the members of the last three generations are than those of the first; NaN before three."""
        return jnp.maximum(self.recent.mean(-1) - self.first.mean(-1), 0)


class Search(NamedTuple):
    parents: Members
    kept: Kept
    rewarded: Kept  # the reward archive
    emitters: Emitters
    exploits: Any  # bool: whose children play, the emitters'
    left: Any  # int32: generations of the chunk
    owner: Any  # (P,) int32: the emitter of each child, E for none


def no_emitters(config: Config, D: int, B: int) -> Emitters:
    """Places without an emitter."""
    E, dtype = config.num_emitters, jnp.result_type(float)

    def nobody(count):
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (E, *x.shape)), no_members(count, D, B))

    return Emitters(
        active=jnp.zeros(E, bool),
        members=nobody(config.members),
        ancestor=jax.tree.map(lambda x: x[:, 0], nobody(1)),
        sigma=jnp.zeros(E, dtype),
        steps=jnp.zeros(E, jnp.int32),
        first=jnp.full((E, 3), jnp.nan, dtype),
        recent=jnp.full((E, 3), jnp.nan, dtype),
        rises=jnp.zeros((E, 2), jnp.int32),
        heights=jnp.full((E, 2), -jnp.inf, dtype),
        limit=jnp.full(E, -jnp.inf, dtype),
        most_novel=jnp.full(E, -jnp.inf, dtype),
        novel=nobody(config.num_kept),
    )


def spacing(genome: Float[Array, "P D"], others: Float[Array, "N D"]) -> Float[Array, " P"]:
    """The distance of each genome, which are the last of `others`, to the nearest other one."""
    N, P = others.shape[0], genome.shape[0]
    squares = jnp.sum(genome**2, -1)[:, None] + jnp.sum(others**2, -1)
    squares = squares - 2 * jnp.matmul(genome, others.T, precision=jax.lax.Precision.HIGHEST)
    own = jnp.arange(N) == (N - P + jnp.arange(P))[:, None]
    return jnp.sqrt(jnp.maximum(jnp.min(jnp.where(own, jnp.inf, squares), 1), 0))


def started(emitters: Emitters, children: Members, sigma: Array, value: Array, empty: Emitters) -> Emitters:
    """With emitters about the children that earn more than 0, those of the highest `value` first, while places last."""
    E, P = emitters.active.shape[0], children.fitness.shape[0]
    count = min(E, P)
    earns = children.fitness > 0
    child = novelty.fittest(jnp.where(earns, jnp.nan_to_num(value, posinf=3e38), -jnp.inf), count)
    place = jnp.argsort(emitters.active, stable=True)[:count]
    fits = earns[child] & ~emitters.active[place]
    ancestor = jax.tree.map(lambda x: x[child], children)
    new = jax.tree.map(lambda x: x[:count], empty)
    new = new._replace(active=fits, ancestor=ancestor, sigma=sigma[child])
    row = jnp.where(fits, place, E)
    return jax.tree.map(lambda x, y: x.at[row].set(y, mode="drop"), emitters, new)


def advanced(
    emitters: Emitters, children: Members, value: Float[Array, " P"], owner: Int[Array, " P"]
) -> tuple[Emitters, Bool[Array, " P"]]:
    """`(emitters, which children enter the reward archive)` after the children of this generation.

    `value` is the novelty of the children.
    """

    def one(number, emitter):
        K = emitter.members.fitness.shape[0]
        own = (owner == number) & jnp.isfinite(children.fitness)
        pool = together(emitter.members, children._replace(fitness=jnp.where(own, children.fitness, -jnp.inf)))
        chosen = novelty.fittest(pool.fitness, K)
        members = jax.tree.map(lambda x: x[chosen], pool)
        there = jnp.isfinite(members.fitness)
        mean = jnp.sum(jnp.where(there, members.fitness, 0)) / jnp.maximum(there.sum(), 1)
        steps = emitter.steps + 1

        best = jnp.max(jnp.where(own, children.fitness, -jnp.inf))
        enters = own & (children.fitness > emitter.limit) & (children.fitness > 0)
        # The first time the best alone, later all that exceed what was there and are among the members now.
        entry = jnp.where(emitter.limit > -jnp.inf, members.fitness[-1], best)
        enters = enters & (children.fitness >= entry)

        heights = jnp.stack([members.fitness[0], jnp.median(members.fitness)])
        rose = heights > emitter.heights
        unset = jnp.isnan(emitter.first)
        first = jnp.where(unset & (jnp.cumsum(unset) == 1), mean, emitter.first)
        # Of those more novel than all before, the most novel.
        count = emitter.novel.fitness.shape[0]
        new = together(emitter.novel, children)
        more = jnp.where(own & (value > emitter.most_novel), value, -jnp.inf)
        before = jnp.where(jnp.isfinite(emitter.novel.fitness), emitter.most_novel, -jnp.inf)
        latest = novelty.fittest(jnp.concatenate([before, more]), count)
        found = jnp.concatenate([before, more])[latest] > -jnp.inf
        new = jax.tree.map(lambda x: x[latest], new)
        new = new._replace(fitness=jnp.where(found, new.fitness, -jnp.inf))
        told = emitter._replace(
            members=members,
            steps=steps.astype(jnp.int32),
            first=first,
            recent=jnp.concatenate([emitter.recent[1:], mean[None]]),
            rises=jnp.where(rose, steps, emitter.rises).astype(jnp.int32),
            heights=heights,
            limit=jnp.maximum(emitter.limit, jnp.max(jnp.where(enters, children.fitness, -jnp.inf))),
            most_novel=jnp.maximum(emitter.most_novel, jnp.max(more)),
            novel=new,
        )
        ran = emitter.active & jnp.any(owner == number)
        return jax.tree.map(lambda new, old: jnp.where(ran, new, old), told, emitter), enters & ran

    numbers = jnp.arange(emitters.active.shape[0])
    new, enters = jax.vmap(one)(numbers, emitters)
    return new, enters.any(0)


def verdicts(emitters: Emitters, bootstrap: int, patience: int) -> tuple[Bool[Array, " E"], Bool[Array, " E"]]:
    """`(given up after the bootstrap, ended)`, of the active ones."""
    judged = emitters.active & (emitters.steps >= bootstrap)
    given_up = judged & ~(emitters.improvement > 0)
    stagnant = jnp.any(emitters.steps[:, None] - emitters.rises > patience, -1)
    return given_up, judged & ~given_up & stagnant


def owners(key: Array, emitters: Emitters, value: Float[Array, " E"], config: Config) -> Int[Array, " P"]:
    """The emitter of each child of an exploiting generation, by the order of the docstring."""
    E, slots = emitters.active.shape[0], config.population_size // config.step_size
    new = emitters.steps < config.bootstrap
    improvement = jnp.where(emitters.active & ~new, emitters.improvement, -jnp.inf)
    as_good = (value[:, None] <= value) & (improvement[:, None] <= improvement)
    better = as_good & ((value[:, None] < value) | (improvement[:, None] < improvement))
    surpassed = jnp.sum(better & (emitters.active & ~new), 1)
    lot = jax.random.uniform(key, (E,))
    first = jnp.where(new, -jnp.nan_to_num(value, posinf=3e38), surpassed + lot)
    order = jnp.lexsort((first, ~new, ~emitters.active))
    used = jnp.clip(emitters.active.sum(), 1, slots)
    of_slot = order[jnp.arange(slots) % used]
    return jnp.where(emitters.active.any(), jnp.repeat(of_slot, config.step_size), E).astype(jnp.int32)


def emitted(key: Array, emitters: Emitters, owner: Int[Array, " P"], hyper: Any) -> Float[Array, "P D"]:
    """Children about the members of their emitters in turn, or about the ancestor where there are none yet."""
    E, K = emitters.members.fitness.shape
    row = jnp.minimum(owner, E - 1)
    member = jnp.arange(owner.shape[0]) % K
    there = jnp.isfinite(emitters.members.fitness[row, member])[:, None]
    parent = jnp.where(there, emitters.members.genome[row, member], emitters.ancestor.genome[row])
    child = elites.gaussian(key, parent, emitters.sigma[row][:, None])
    return jnp.clip(child, -hyper.weight_clip, hyper.weight_clip)


@dataclasses.dataclass(frozen=True)
class _Serene(behaviour.Shell):
    """The static settings of the learner; its methods are the Algorithm's functions."""

    @property
    def patience(self) -> int:
        return self.config.patience or 20 * self.genome_size // self.config.members + 120

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        state, config = self.begin(Hyper, key, hyper, env_params), self.config
        D, B = self.genome_size, len(self.descriptor.names)
        search = Search(
            no_members(config.num_parents, D, B),
            novelty.empty(config.capacity, D, B),
            novelty.empty(config.reward_capacity, D, B),
            no_emitters(config, D, B),
            jnp.bool_(False),
            jnp.int32(config.chunk),
            jnp.full(config.population_size, config.num_emitters, jnp.int32),
        )
        return state.replace(search=search)

    def references(self, search: Search) -> tuple[Array, Array]:
        """Both archives: `(descriptors, which are present)`."""
        both = search.kept, search.rewarded
        return jnp.concatenate([x.descriptor for x in both]), jnp.concatenate([x.present for x in both])

    def explore(self, key: Array, search: Search, children: Members, hyper: Any) -> Search:
        """A generation of novelty search, and emitters where it earned something."""
        config = self.config
        everyone = together(search.parents, children)
        value = novelty_search.novelties(everyone, *self.references(search), config.neighbours)
        parents = jax.tree.map(lambda x: x[novelty.fittest(value, config.num_parents)], everyone)
        kept = drawn(key, search.kept, children, config.num_kept)
        rewarded = search.rewarded
        among = novelty.novelty(children.descriptor, rewarded.descriptor, rewarded.present, config.neighbours)
        alive = jnp.isfinite(everyone.fitness)[:, None]
        sigma = spacing(children.genome, jnp.where(alive, everyone.genome, 1e6)) / 3
        # Of genomes that are there twice, or so far apart that nothing is near, the std of novelty search.
        sigma = jnp.where((sigma > 0) & (sigma < 1e5), sigma, hyper.sigma)
        D, B = children.genome.shape[1], children.descriptor.shape[1]
        emitters = started(search.emitters, children, sigma, among, no_emitters(config, D, B))
        rewarded = novelty.keep(rewarded, *children, children.fitness > 0)
        return search._replace(parents=parents, kept=kept, rewarded=rewarded, emitters=emitters)

    def exploit(self, key: Array, search: Search, children: Members, hyper: Any) -> Search:
        """A step of the emitters that ran, and the end of some."""
        config = self.config
        known, present = self.references(search)
        known = jnp.concatenate([search.parents.descriptor, known])
        present = jnp.concatenate([jnp.isfinite(search.parents.fitness), present])
        value = novelty.novelty(children.descriptor, known, present, config.neighbours)
        emitters, enters = advanced(search.emitters, children, value, search.owner)
        given_up, ended = verdicts(emitters, config.bootstrap, self.patience)
        rewarded = novelty.keep(
            search.rewarded, *together(children, emitters.ancestor), jnp.concatenate([enters, ended])
        )
        genome, fitness, descriptor = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), emitters.novel)
        kept = novelty.keep(search.kept, genome, fitness, descriptor, jnp.repeat(ended, config.num_kept))
        emitters = emitters._replace(active=emitters.active & ~given_up & ~ended)
        return search._replace(kept=kept, rewarded=rewarded, emitters=emitters)

    def learn(self, state: State, rollout: Rollout) -> tuple[State, dict[str, Array]]:
        config, search, hyper = self.config, state.search, state.hyper
        key, learn_key, owner_key, explore_key, emit_key = jax.random.split(state.key, 5)
        archive, inserted = elites.insert(state.archive, rollout.population, rollout.fitness, rollout.descriptor)
        fitness = jnp.where(inserted.refused, -jnp.inf, rollout.fitness)
        children = Members(rollout.population, fitness, rollout.descriptor)
        ran = search
        # Also under vmap over seeds a generation computes only what any of them does: a `cond` would compute both.
        for whether, kind in ((search.exploits, self.exploit), (~search.exploits, self.explore)):
            ran = rarely(whether, functools.partial(kind, learn_key, search, children, hyper), ran)
        search = ran

        over = search.left <= 1
        emitters, rewarded = search.emitters, search.rewarded
        exploits = (search.exploits ^ over) & emitters.active.any()
        # An exploration that begins before its time, as no emitter is left, is a whole chunk.
        left = jnp.where(over | (exploits != search.exploits), config.chunk, search.left - 1).astype(jnp.int32)
        places = emitters.ancestor.descriptor, rewarded.descriptor, rewarded.present
        owner = owners(owner_key, emitters, novelty.novelty(*places, config.neighbours), config)
        owner = jnp.where(exploits, owner, config.num_emitters).astype(jnp.int32)
        explored = children_of(explore_key, search.parents, config.population_size, hyper)
        population = jnp.where(exploits, emitted(emit_key, emitters, owner, hyper), explored)
        search = search._replace(exploits=exploits, left=left, owner=owner)
        metrics = {
            **self.metrics(archive, inserted, rollout, hyper),
            "kept": search.kept.count,
            "rewarded": rewarded.count,
            "emitters": emitters.active.sum(dtype=jnp.int32),
            "exploits": state.search.exploits.astype(jnp.int32),
        }
        return self.recorded(state, archive).replace(key=key, population=population, search=search), metrics


@shared
def make(env: Environment | VectorEnv, config: Config = Config(), *, network: Network | None = None) -> Algorithm:
    """SERENE on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from observations to logits, or for a Box to means in units of the box (-1 to 1 a side).

    Raises ValueError for what `behaviour.parts` refuses.
    """
    if config.selection != "novelty":
        raise ValueError(f"selection={config.selection!r}: SERENE explores by 'novelty'.")
    learner = _Serene(*behaviour.parts("serene", env, config, network))
    return algorithm_of("serene", learner, Hyper, learner.steps_per_update)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
