"""TAXONS: novelty search in a space that an autoencoder learns from what the robot saw, also for what it cannot code.

Paolo, Laflaquiere, Coninx and Doncieux (2020), "Unsupervised learning and exploration of reachable outcome space"
(arXiv:1909.05508). It is novelty search (`novelty_search`, whose functions this file uses) without a descriptor that
somebody chose. `num_frames` observations of an episode, evenly spaced, are what it looked like: o. An autoencoder is
trained on what was seen so far by its reconstruction error, which is also a surprise,

    code = encoder(o)        loss = surprise(o) = mean (decoder(code) - o)^2

and a generation's survivors are the most novel by their codes (the mean distance to the `neighbours` nearest codes) or,
with probability `surprise_share`, those that surprise most; in the first `warm_up` generations by novelty alone. The
`num_kept` best children by that measure enter the novelty archive. Every `train_every` generations, the first among
them, the autoencoder takes `num_updates` steps of Adam on the latest `num_gathered` observations and those of the
archive; the archives hold observations, so codes are always those of the autoencoder as it is.

What was found is recorded in an archive of cells by `Config.descriptor`, as by all algorithms here; the search does not
read it. `trained=False` leaves the autoencoder as it was drawn, a control; with `surprise_share=0` that is novelty of
random codes. Deployed is the genome of the archive's best cell.

Deviations: the authors look at the last image of an episode (`num_frames=1`, and a network of your own), and train on
all that was seen since the last time, by epochs; parents and children are those of `novelty_search`. Observations of a
Box with two ends are scaled to [-1, 1]. Results: `docs/algos/quality_diversity.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import Algorithm, algorithm_of, check_at_least_one, shared
from jaxrl.algos.quality_diversity import novelty_search
from jaxrl.algos.quality_diversity.novelty_search import Members, children_of, no_members, novelties, together
from jaxrl.environment import Environment, pytree
from jaxrl.math import rarely
from jaxrl.nn import nets
from jaxrl.nn.networks import MLP, Network
from jaxrl.nn.optim import Optimizer, optimizer_of
from jaxrl.quality_diversity import behaviour, elites, novelty
from jaxrl.quality_diversity.behaviour import Rollout, State
from jaxrl.quality_diversity.novelty import Kept
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(novelty_search.Config):
    """Static settings: each value compiles its own program."""

    num_frames: int = 10  # observations of an episode, evenly spaced and the last among them, that the search looks at
    code_size: int = 10  # of what the autoencoder makes of them
    ae_hidden: tuple[int, ...] = (64,)  # of encoder and decoder
    train_every: int = 30  # generations
    num_updates: int = 240  # gradient steps each time
    batch_size: int = 128  # observations of a gradient step
    num_gathered: int = 6_000  # the latest observations of children that it is trained on, beside the archive
    warm_up: int = 30  # generations by novelty alone
    trained: bool = True  # False: the autoencoder stays as it was drawn, a control
    optimizer: str = "adam"  # of the autoencoder; a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_frames", "code_size", "train_every", "num_updates", "batch_size")
        check_learned(self)


def check_learned(config: Any) -> None:
    """Raise ValueError where survivors are drawn, or a generation does not fit among what was gathered."""
    if config.selection != "novelty":
        raise ValueError(f"selection={config.selection!r}: codes are told by 'novelty'; trained=False is a control.")
    if config.num_gathered < config.population_size:
        raise ValueError(
            f"num_gathered={config.num_gathered}: a generation alone has population_size={config.population_size}."
        )


@pytree
class Hyper(novelty_search.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    surprise_share: jax.Array = 0.5  # probability that a generation's survivors are those that surprise
    learning_rate: jax.Array = 1e-3  # of the autoencoder


class Autoencoder(nn.Module):
    """Two MLPs: from what was seen (..., H) to `(code (..., C), what it would have been (..., H))`."""

    hidden: tuple[int, ...]
    code_size: int
    activation: str

    @nn.compact
    def __call__(self, seen: Float[Array, "*batch H"]) -> Any:
        code = MLP(self.hidden, self.code_size, self.activation)(seen)
        return code, MLP(self.hidden[::-1], seen.shape[-1], self.activation)(code)


class Learned(NamedTuple):
    """The autoencoder in training and what it learns from."""

    weights: Any
    optimizer: Any
    gathered: Kept  # `descriptor` (G, H) is what was seen; genomes have no numbers
    generation: Any  # int32


class Search(NamedTuple):
    parents: Members  # descriptors are what was seen
    kept: Kept
    learned: Learned


def surprise(decoded: Float[Array, "*batch H"], seen: Float[Array, "*batch H"]) -> Float[Array, "*batch"]:
    """The reconstruction error."""
    return jnp.mean((decoded - seen) ** 2, -1)


def loss(autoencoder: Any, weights: Any, seen: Float[Array, "B H"]) -> Float[Array, ""]:
    """The mean reconstruction error of a batch."""
    return jnp.mean(surprise(autoencoder.apply(weights, seen)[1], seen))


def train(
    key: Array, learned: Learned, kept: Kept, autoencoder: Any, optimizer: Optimizer, config: Any, hyper: Any
) -> tuple[Learned, Float[Array, ""]]:
    """`(learned, mean loss)` after the gradient steps of one training, on rows drawn from all that is there."""
    seen = jnp.concatenate([learned.gathered.descriptor, kept.descriptor])
    present = jnp.concatenate([learned.gathered.present, kept.present])
    rows = jnp.flatnonzero(present, size=present.shape[0], fill_value=0)
    shape = (config.num_updates, config.batch_size)
    drawn = rows[jax.random.randint(key, shape, 0, jnp.maximum(present.sum(), 1))]

    def gradient_step(net, rows):
        def objective(weights):
            return loss(autoencoder, weights, seen[rows]), {}

        net, report = net.descend(objective, hyper.learning_rate)
        return net, report["loss"]

    net = nets.net(learned.weights, learned.optimizer, optimizer)
    net, losses = jax.lax.scan(gradient_step, net, drawn)
    return learned._replace(weights=net.weights, optimizer=net.state), jnp.mean(losses)


def after(
    key: Array,
    learned: Learned,
    kept: Kept,
    frames: Float[Array, "P H"],
    there: Bool[Array, " P"],
    autoencoder: Any,
    optimizer: Optimizer,
    config: Any,
    hyper: Any,
) -> tuple[Learned, Float[Array, ""]]:
    """`(learned, loss)` after a generation that looked like `frames`; the loss is NaN where nothing was trained."""
    P, dtype = frames.shape[0], frames.dtype
    gathered = novelty.keep(learned.gathered, jnp.zeros((P, 0), dtype), jnp.zeros(P, dtype), frames, there)
    due = (learned.generation % config.train_every == 0) & gathered.present.any()
    learned = learned._replace(gathered=gathered, generation=learned.generation + 1)
    if not config.trained:
        return learned, jnp.full((), jnp.nan, dtype)
    # Also under vmap over seeds it trains only when it is due: a `cond` would always.
    return rarely(
        due,
        lambda: train(key, learned, kept, autoencoder, optimizer, config, hyper),
        (learned, jnp.full((), jnp.nan, dtype)),
    )


def begun(key: Array, autoencoder: Any, optimizer: Optimizer, frame_size: int, config: Any, hyper: Any) -> Learned:
    """Before the first generation."""
    weights = autoencoder.init(key, jnp.zeros(frame_size))
    weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
    state = optimizer.init(weights, hyper.learning_rate)
    return Learned(weights, state, novelty.empty(config.num_gathered, 0, frame_size), jnp.int32(0))


def measure_of(
    key: Array,
    everyone: Members,
    known: Array,
    present: Array,
    learned: Learned,
    autoencoder: Any,
    config: Any,
    hyper: Any,
) -> tuple[Float[Array, " N"], Bool[Array, ""]]:
    """`(worth of each, whether it is surprise)` this generation: novelty by codes among each other and what is `known`,
    or the reconstruction error; -inf where there is none."""
    codes, decoded = autoencoder.apply(learned.weights, everyone.descriptor)
    novel = novelties(
        everyone._replace(descriptor=codes), autoencoder.apply(learned.weights, known)[0], present, config.neighbours
    )
    surprises = jnp.where(jnp.isfinite(everyone.fitness), surprise(decoded, everyone.descriptor), -jnp.inf)
    surprised = (learned.generation > config.warm_up) & jax.random.bernoulli(key, hyper.surprise_share)
    return jnp.where(surprised, surprises, novel), surprised


@dataclasses.dataclass(frozen=True)
class Shell(behaviour.Shell):
    """What learners with such an autoencoder have beside a `behaviour.Shell`."""

    optimizer: Optimizer

    @property
    def num_frames(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.config.num_frames

    @property
    def autoencoder(self) -> Autoencoder:
        return Autoencoder(self.config.ae_hidden, self.config.code_size, self.config.activation)


@dataclasses.dataclass(frozen=True)
class _Taxons(Shell):
    """The static settings of the learner; its methods are the Algorithm's functions."""

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        state, config = self.begin(Hyper, key, hyper, env_params), self.config
        key, ae_key = jax.random.split(state.key)
        D, H = self.genome_size, self.frame_size
        learned = begun(ae_key, self.autoencoder, self.optimizer, H, config, state.hyper)
        search = Search(no_members(config.num_parents, D, H), novelty.empty(config.capacity, D, H), learned)
        return state.replace(key=key, search=search)

    def learn(self, state: State, rollout: Rollout) -> tuple[State, dict[str, Array]]:
        config, search, hyper = self.config, state.search, state.hyper
        key, train_key, surprise_key, child_key = jax.random.split(state.key, 4)
        archive, inserted = elites.insert(state.archive, rollout.population, rollout.fitness, rollout.descriptor)
        fitness = jnp.where(inserted.refused, -jnp.inf, rollout.fitness)
        children = Members(rollout.population, fitness, rollout.frames.astype(rollout.population.dtype))
        parts = self.autoencoder, self.optimizer, config, hyper
        learned, loss = after(train_key, search.learned, search.kept, children.descriptor, ~inserted.refused, *parts)

        everyone = together(search.parents, children)
        known = search.kept.descriptor, search.kept.present
        value, surprised = measure_of(surprise_key, everyone, *known, learned, self.autoencoder, config, hyper)
        parents = jax.tree.map(lambda x: x[novelty.fittest(value, config.num_parents)], everyone)
        best = novelty.fittest(value[config.num_parents :], config.num_kept)
        genome, fitness, seen = jax.tree.map(lambda x: x[best], children)
        kept = novelty.keep(search.kept, genome, fitness, seen, jnp.isfinite(fitness))
        population = children_of(child_key, parents, config.population_size, hyper)
        search = Search(parents, kept, learned)
        metrics = {
            **self.metrics(archive, inserted, rollout, hyper),
            "kept": kept.count,
            "ae_loss": loss,
            "surprised": surprised.astype(jnp.int32),
        }
        return self.recorded(state, archive).replace(key=key, population=population, search=search), metrics


@shared
def make(env: Environment | VectorEnv, config: Config = Config(), *, network: Network | None = None) -> Algorithm:
    """TAXONS on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from observations to logits, or for a Box to means in units of the box (-1 to 1 a side).

    Raises ValueError for what `behaviour.parts` refuses.
    """
    learner = _Taxons(
        *behaviour.parts("taxons", env, config, network), optimizer=optimizer_of(config.optimizer, eps=config.adam_eps)
    )
    return algorithm_of("taxons", learner, Hyper, learner.steps_per_update)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
