"""STAX: generations of TAXONS until something pays, then SERENE's emitters, whose novelty is of codes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.algos import serene, stax, taxons
from jaxrl.algos.quality_diversity.novelty_search import Members
from jaxrl.testing.probes import ObservationActionReward

KEY = jax.random.key(0)
SETTINGS = dict(population_size=8, num_parents=4, neighbours=3, num_kept=2, capacity=32, num_gathered=16)
SETTINGS |= dict(code_size=2, ae_hidden=(5,), train_every=3, num_updates=4, batch_size=6, num_frames=1)
SETTINGS |= dict(num_emitters=3, members=2, step_size=4, reward_capacity=32, chunk=2)


def learner(**more):
    env = ObservationActionReward()
    return stax.make(env, stax.Config(**SETTINGS | dict(hidden=(4,), num_steps=1, cells=(5,)) | more))


def test_it_explores_until_something_pays_and_then_in_turn():
    algo = learner()
    state = algo.init(KEY)
    collect, learn = jax.jit(algo.collect), jax.jit(algo.learn)

    def generation(state, fitness):
        state, rollout = collect(state)
        return learn(state, rollout._replace(fitness=jnp.asarray(fitness, rollout.fitness.dtype)))

    for number in range(3):  # nothing pays: chunks of exploration
        state, metrics = generation(state, np.zeros(8))
        assert metrics["exploits"] == 0 and metrics["emitters"] == 0
        assert np.isfinite(metrics["ae_loss"]) == (number == 0)
    turns = []
    for number in range(9):
        state, metrics = generation(state, np.where(np.arange(8) < 2, 1.0 + number, 0))
        turns.append(int(metrics["exploits"]))
    # The chunk in which something pays is explored to its end; then two generations each.
    assert turns == [0, 1, 1, 0, 0, 1, 1, 0, 0]
    assert metrics["emitters"] > 0 and metrics["rewarded"] > 0
    assert state.search.learned.generation == 3 + turns.count(0)
    assert state.search.rewarded.descriptor.shape == (32, 1)  # what was seen: one observation of one number


def test_novelty_of_emitters_is_of_codes():
    algo = learner()
    shell = algo.learn.__self__
    search = algo.init(KEY).search
    rng = np.random.default_rng(0)
    seen = jnp.asarray(rng.normal(size=(8, 1)), jnp.float32)
    children = Members(jnp.asarray(rng.normal(size=(8, shell.genome_size)), jnp.float32), jnp.ones(8), seen)
    search = search._replace(
        emitters=search.emitters._replace(active=jnp.array([True, False, True])),
        owner=jnp.array([0, 0, 0, 0, 2, 2, 2, 2], jnp.int32),
        kept=search.kept.replace(descriptor=search.kept.descriptor.at[:3, 0].set(jnp.arange(3.0)), count=jnp.int32(3)),
    )
    after, loss, _ = shell.exploit(KEY, search, children, stax.Hyper())
    code = shell.autoencoder.apply(search.learned.weights, seen)[0]
    known = shell.autoencoder.apply(search.learned.weights, jnp.arange(3.0)[:, None])[0]
    far = np.linalg.norm(np.asarray(code)[:, None] - np.asarray(known), axis=-1).mean(1)
    np.testing.assert_allclose(after.emitters.most_novel[jnp.array([0, 2])], [far[:4].max(), far[4:].max()], rtol=1e-4)
    assert np.isnan(loss) and np.isinf(after.emitters.most_novel[1])


def test_an_emitters_most_novel_is_told_anew_by_the_codes_as_they_are():
    """What it stored is of an autoencoder before this: by it none of these children would be more novel."""
    algo = learner()
    shell = algo.learn.__self__
    search = algo.init(KEY).search
    seen, most = jnp.linspace(0.5, 1, 8)[:, None], jnp.float32(0.2)
    children = Members(jnp.zeros((8, shell.genome_size)), jnp.ones(8), seen)
    novel = search.emitters.novel
    novel = novel._replace(fitness=novel.fitness.at[0, 0].set(1.0), descriptor=novel.descriptor.at[0, 0, 0].set(most))
    search = search._replace(
        emitters=search.emitters._replace(
            active=jnp.array([True, False, False]), most_novel=jnp.full(3, 1e6), novel=novel
        ),
        owner=jnp.zeros(8, jnp.int32),
        kept=search.kept.replace(count=jnp.int32(1)),  # of one that saw 0
    )
    after = shell.exploit(KEY, search, children, stax.Hyper())[0].emitters
    codes = np.asarray(shell.codes(search, jnp.array([[0.0], [most], [1.0]])))
    near, far = np.linalg.norm(codes[1:] - codes[0], axis=-1)
    assert far > near
    np.testing.assert_allclose(after.most_novel, [far, -np.inf, -np.inf], rtol=1e-4)
    np.testing.assert_allclose(after.novel.descriptor[0, :, 0], seen[:-3:-1, 0])


def test_seeds_compute_only_what_any_of_them_does():
    algo = learner()
    states = jax.vmap(algo.init)(jax.random.split(KEY))
    generation = jax.eval_shape(jax.vmap(algo.collect), states)
    assert str(jax.make_jaxpr(jax.vmap(algo.learn))(*generation)).count(" cond[") == 3  # two kinds, and training


def test_its_settings_are_those_of_both():
    ours = stax.Config()
    for other in (serene.Config(), taxons.Config()):
        shared = set(other.__dataclass_fields__) - {"population_size", "num_parents"}
        assert all(getattr(ours, name) == getattr(other, name) for name in shared)
    with pytest.raises(ValueError, match=r"selection='random'.*trained=False"):
        stax.Config(selection="random")
    with pytest.raises(ValueError, match="step_size=10"):
        stax.Config(step_size=10)


@pytest.mark.slow
def test_it_finds_both_areas_of_the_maze_by_what_its_robot_sees():
    """24,000 episodes of 250 steps of a robot that drives faster than SERENE's; places are not told."""
    env, params = make("HardMaze-v0")
    params = params.replace(max_steps=jnp.int32(250), max_speed=jnp.float32(0.025))
    algo = stax.make(env, stax.Config(num_steps=250, hidden=(5, 5), descriptor=("x", "y")))
    state, update = jax.jit(algo.init)(KEY, env_params=params), jax.jit(algo.update)
    for _ in range(120):
        state, metrics = update(state)
    place = np.asarray(state.archive.descriptor)[np.asarray(state.archive.fitness) > 0.3]
    areas = np.asarray(params.areas)
    inside = np.linalg.norm(place[:, None] - areas[:, :2], axis=-1) < areas[:, 2]
    assert inside.any(0).all() and metrics["rewarded"] > 20
