"""TAXONS: what is seen of an episode, the autoencoder's loss by hand and its gradient, and who survives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.algos import taxons
from jaxrl.algos.quality_diversity.novelty_search import Members
from jaxrl.nn.optim import optimizer_of
from jaxrl.quality_diversity import behaviour, novelty

KEY = jax.random.key(0)
SETTINGS = dict(population_size=8, num_parents=4, neighbours=3, num_kept=2, capacity=16, num_gathered=16)
SETTINGS |= dict(code_size=2, ae_hidden=(5,), train_every=3, num_updates=4, batch_size=6, warm_up=2, num_frames=3)
CONFIG = taxons.Config(**SETTINGS)
MODEL, ADAM = taxons.Autoencoder((5,), 2, "tanh"), optimizer_of("adam")


def learner(**more):
    env = make("KheperaxMaze-v0")[0]
    small = dict(hidden=(4,), num_steps=7, descriptor=("x", "y"), cells=(9,))
    return env, taxons.make(env, taxons.Config(**SETTINGS | small | more))


def begun(size=6):
    return taxons.begun(KEY, MODEL, ADAM, size, CONFIG, taxons.Hyper())


def by_hand(weights, x):
    """Encoder and decoder, each with one hidden layer."""
    out = []
    for name in ("MLP_0", "MLP_1"):
        layers = weights["params"][name]
        x = np.tanh(x @ np.asarray(layers["Dense_0"]["kernel"]) + np.asarray(layers["Dense_0"]["bias"]))
        x = x @ np.asarray(layers["Dense_1"]["kernel"]) + np.asarray(layers["Dense_1"]["bias"])
        out.append(x)
    return out


def test_the_loss_is_the_mean_squared_error_of_what_is_decoded():
    learned = begun()
    seen = jnp.asarray(np.random.default_rng(0).normal(size=(7, 6)), jnp.float32)
    code, decoded = map(jnp.asarray, by_hand(learned.weights, np.asarray(seen)))
    assert code.shape == (7, 2)
    np.testing.assert_allclose(MODEL.apply(learned.weights, seen)[0], code, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(taxons.surprise(decoded, seen), ((decoded - seen) ** 2).sum(1) / 6, rtol=1e-5)
    np.testing.assert_allclose(taxons.loss(MODEL, learned.weights, seen), ((decoded - seen) ** 2).mean(), rtol=1e-5)
    gradient = jax.grad(lambda weights: taxons.loss(MODEL, weights, seen))(learned.weights)
    assert all(np.any(np.asarray(x) != 0) for x in jax.tree.leaves(gradient))


def test_training_learns_what_there_is_and_nothing_else():
    """Rows that lie on a line can be coded; the empty rows of both archives are not among them."""
    t = jnp.linspace(-1, 1, 8)[:, None]
    line = 0.5 + 0.5 * t * jnp.array([1.0, -1, 2, 0, 1, 1])
    hyper = taxons.Hyper(learning_rate=0.02)
    kept = novelty.empty(16, 1, 6)
    learned = begun()
    for _ in range(9):  # at generations 0, 3 and 6 it is trained
        learned, loss = taxons.after(KEY, learned, kept, line, jnp.ones(8, bool), MODEL, ADAM, LONG, hyper)
    assert np.isnan(loss) and learned.generation == 9 and learned.optimizer.count == 300
    after = taxons.loss(MODEL, learned.weights, line)
    assert after < 0.02 * taxons.loss(MODEL, begun().weights, line) and after < 1e-2
    stays = taxons.after(KEY, begun(), kept, line, jnp.ones(8, bool), MODEL, ADAM, UNTRAINED, hyper)[0]
    jax.tree.map(np.testing.assert_array_equal, stays.weights, begun().weights)


LONG = taxons.Config(**SETTINGS | dict(num_updates=100))
UNTRAINED = taxons.Config(**SETTINGS | dict(trained=False))


def test_survivors_are_novel_by_code_or_surprise():
    rng = np.random.default_rng(1)
    seen = rng.normal(size=(12, 6)).astype(np.float32)
    fitness = np.where(np.arange(12) == 3, -np.inf, 0.0).astype(np.float32)
    everyone = Members(jnp.zeros((12, 1)), jnp.asarray(fitness), jnp.asarray(seen))
    known, present = rng.normal(size=(5, 6)).astype(np.float32), np.array([1, 1, 0, 1, 0], bool)
    learned = begun()
    code, decoded = by_hand(learned.weights, seen)
    others = by_hand(learned.weights, known[present])[0]

    def measure(generation, share):
        state = learned._replace(generation=jnp.int32(generation))
        hyper = taxons.Hyper(surprise_share=share)
        there = jnp.asarray(known), jnp.asarray(present)
        return taxons.measure_of(KEY, everyone, *there, state, MODEL, CONFIG, hyper)

    expected = []
    for i in range(12):
        near = [code[j] for j in range(12) if j not in (i, 3)] + list(others)
        expected.append(np.sort(np.linalg.norm(np.array(near) - code[i], axis=-1))[:3].mean())
    expected[3] = -np.inf
    for generation, share in ((9, 0.0), (2, 1.0)):  # in the first two generations by novelty whatever the share
        value, surprised = measure(generation, share)
        np.testing.assert_allclose(value, expected, rtol=1e-4)
        assert not surprised
    value, surprised = measure(3, 1.0)
    np.testing.assert_allclose(np.delete(value, 3), np.delete(((decoded - seen) ** 2).mean(1), 3), rtol=1e-4)
    assert surprised and value[3] == -np.inf


def test_what_is_seen_are_scaled_observations_of_the_episode():
    env, algo = learner()
    state = algo.init(KEY)
    rollout = jax.jit(algo.collect)(state)[1]
    assert rollout.frames.shape == (8, 3 * 5)
    policy = behaviour.policy_of(state.replace(archive=state.archive.replace(genome=state.population)), 5)
    params = env.default_params
    obs, at = env.reset(KEY, params)
    steps = []
    for _ in range(7):
        obs, at, *_ = env.step(KEY, at, algo.act(policy, KEY, obs, greedy=True)[0], params)
        steps.append(np.r_[np.asarray(obs[:3]) / 0.1 - 1, np.asarray(obs[3:])])
    # Of 7 steps the last of each third: floor(3 t / 7) is 0 to t = 2, 1 to t = 4.
    np.testing.assert_allclose(rollout.frames[5].reshape(3, 5), np.array(steps)[[2, 4, 6]], atol=1e-4)


def test_it_runs_and_the_search_does_not_read_the_descriptor():
    _, algo = learner()
    _, other = learner(descriptor=("theta [rad]",), cells=(4,))
    states = []
    for one in (algo, other):
        state, update = one.init(KEY), jax.jit(one.update)
        for _ in range(5):
            state, metrics = update(state)
        states.append(state)
        assert metrics["kept"] == 10 and np.isnan(metrics["ae_loss"]) and metrics["coverage"] > 0
    np.testing.assert_allclose(states[0].population, states[1].population, rtol=1e-6)
    learned = states[0].search.learned
    assert learned.generation == 5 and learned.optimizer.count == 8 and learned.gathered.count == 40
    # Each archive records by its own descriptor, of two numbers or one; the best that was found is in both.
    best = [state.archive.genome[state.archive.best] for state in states]
    np.testing.assert_allclose(*best, rtol=1e-6)


def test_seeds_train_only_when_it_is_due_and_each_as_alone():
    """Seeds whose generations differ are trained at different times."""
    algo = learner()[1]
    states = jax.jit(jax.vmap(algo.init))(jax.random.split(KEY))
    late = states.search.learned._replace(generation=jnp.array([0, 1], jnp.int32))
    states = states.replace(search=states.search._replace(learned=late))
    update = jax.vmap(algo.update)
    conditionals = str(jax.make_jaxpr(update)(states)).count(" cond[")
    untrained = learner(trained=False)[1]
    assert conditionals == 1 + str(jax.make_jaxpr(jax.vmap(untrained.update))(states)).count(" cond[")
    both, alone = jax.jit(update), jax.jit(algo.update)
    singles = [jax.tree.map(lambda x, i=i: x[i], states) for i in range(2)]
    for generation in range(3):
        states, metrics = both(states)
        told = [alone(state) for state in singles]
        singles = [state for state, _ in told]
        trained = [generation % 3 == 0, (generation + 1) % 3 == 0]
        np.testing.assert_array_equal(np.isfinite(metrics["ae_loss"]), trained)
        for i, (state, report) in enumerate(told):
            np.testing.assert_allclose(metrics["ae_loss"][i], report["ae_loss"], rtol=1e-4)
            weights = states.search.learned.weights, state.search.learned.weights
            jax.tree.map(lambda x, y, i=i: np.testing.assert_allclose(x[i], y, atol=1e-5), *weights)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(selection="random"), "selection='random'.*trained=False"),
        (dict(num_gathered=7), "num_gathered=7.*population_size=8"),
        (dict(num_frames=0), "num_frames=0"),
        (dict(train_every=0), "train_every=0"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        taxons.Config(**SETTINGS | settings)
