"""Evolution strategies: generations computed by hand, probes with known actions, and the protocol's promises."""

import builtins
import dataclasses
import math
import subprocess
import sys
from functools import cache

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl import make, train, vectorize
from jaxrl.nn.optim import optimizer_of
from jaxrl.spaces import Box, Discrete, MultiDiscrete
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse, assert_same_type
from jaxrl.testing.probes import DelayedReward, Masked, ObservationActionReward, Privileged

pytest.importorskip("evosax")
from jaxrl.algos import evolution  # noqa: E402


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


# ---- fitness


def test_fitness_is_the_return_of_the_first_episode():
    reward = jnp.array([[1.0, 1, 1, 1], [2, 2, 2, 2], [4, 4, 4, 4]])
    done = jnp.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 1, 1]], bool)
    np.testing.assert_array_equal(evolution.counted(done), np.array([[1, 1, 1, 1], [1, 0, 1, 1], [1, 0, 0, 1]], bool))
    close(evolution.fitness(reward, done, 4), [7, 1, 3, 7])
    close(evolution.fitness(reward, done, 2), [4, 5])  # two environments a member, member-major


def test_what_outputs_mean():
    space = Box(-2.0, 4.0, (2,))
    close(evolution.choose(space, jnp.array([0.0, -0.5])), [1, -0.5])
    close(evolution.choose(space, jnp.array([3.0, -3.0])), [4, -2])
    logits = jnp.array([1.0, 5.0, 2.0])
    assert evolution.choose(Discrete(3), logits) == 1
    assert evolution.choose(Discrete(3), logits, jnp.array([True, False, True])) == 2
    np.testing.assert_array_equal(evolution.choose(MultiDiscrete((1, 2)), logits), [0, 0])


# ---- one generation: four members, four weights (a linear policy of one input and two actions)

NOISE = np.array([[1.0, 0, 0, 2], [0, 1, 0, -1]])
FITNESS = [4.0, 1.0, 2.0, 3.0]  # so that evosax's centred ranks of the cost are -1/2, 1/2, 1/6, -1/6
TINY = evolution.Config(population_size=4, num_steps=3, hidden=())


@cache
def tiny(strategy, **settings):
    return evolution.make(ObservationActionReward(), dataclasses.replace(TINY, strategy=strategy, **settings))


@cache
def learner(strategy, optimizer="adam"):
    return jax.jit(tiny(strategy, optimizer=optimizer).learn)


def generation(strategy, optimizer="adam", **hyper):
    """The state before and after learning from NOISE and its opposite, at sigma = 1/2."""
    algo = tiny(strategy, optimizer=optimizer)
    state, rollout = algo.collect(algo.init(jax.random.key(0), evolution.Hyper(sigma=0.5, **hyper)))
    mean = state.search.mean
    population = mean + 0.5 * jnp.asarray(np.concatenate([NOISE, -NOISE]), mean.dtype)
    rollout = rollout._replace(population=population, fitness=jnp.array(FITNESS))
    return mean, *learner(strategy, optimizer)(state, rollout)


@pytest.mark.slow
def test_open_es_by_hand():
    mean, state, metrics = generation("open_es", learning_rate=0.01)
    # (-1/2 - 1/6) noise_0 + (1/2 + 1/6) noise_1, over 4 * 0.5: a gradient of the cost.
    adam, _ = state.search.opt_state
    close(adam.inner[0].mu, 0.1 * np.array([-1 / 3, 1 / 3, 0, -1]))
    close(state.search.mean - mean, [0.01, -0.01, 0, 0.01], atol=1e-5)
    close(metrics["fitness"], 2.5)
    close(metrics["loss"], -2.5)
    close(metrics["fitness_best"], 4)
    close(metrics["sigma"], 0.5)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    ("std_learning_rate", "std"), [(0.1, [0.5 + 0.1 / 24, 0.5 - 0.1 / 24, 0.5, 0.5125]), (4.0, [0.6, 0.4, 0.5, 0.6])]
)
def test_pgpe_by_hand(std_learning_rate, std):
    mean, state, _ = generation("pgpe", learning_rate=0.01, std_learning_rate=std_learning_rate)
    adam, _ = state.search.opt_state
    close(adam.inner[0].mu, 0.1 * np.array([-1, 1, 0, -3]) / 12)
    close(state.search.mean - mean, [0.01, -0.01, 0, 0.01], atol=1e-5)
    close(state.search.std, std)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["cma_es", "sep_cma_es"])
def test_cma_es_recombines_the_better_half(strategy):
    mean, state, _ = generation(strategy)
    # Hansen (2016), eq. 48: log 2.5 - log rank of the best and the second, normalised.
    first, second = math.log(2.5), math.log(2.5) - math.log(2)
    step = (first * NOISE[0] - second * NOISE[1]) / (first + second)
    close(state.search.mean - mean, 0.5 * step)
    close(jax.flatten_util.ravel_pytree(state.weights)[0], state.search.mean)


def test_an_optimiser_as_a_transformation_keeps_its_rate():
    weights, grads = {"w": jnp.array([1.0, 2.0])}, jnp.array([1.0, -2.0])
    flat, unravel = jax.flatten_util.ravel_pytree(weights)
    for optimizer in (optimizer_of("adam"), optimizer_of(lambda rate: optax.adamw(rate, weight_decay=0.5))):
        transformation = evolution.with_its_rate(optimizer, unravel)
        state, rate = transformation.init(flat)
        close(rate, 0)
        change, (after, rate) = transformation.update(grads, (state, jnp.float32(0.1)), flat)
        expected, _ = optimizer.at(0.1).update({"w": grads}, optimizer.at(0.1).init(weights), weights)
        close(change, expected["w"])
        assert after.count == 1 and rate == jnp.float32(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_other_optimisers_move_the_mean(optimizer):
    mean, state, _ = generation("open_es", optimizer=optimizer, learning_rate=0.01)
    # Along -[-1/3, 1/3, 0, -1], as Adam in test_open_es_by_hand; kernels are muon's, and move all or not at all.
    np.testing.assert_array_equal(np.sign(state.search.mean - mean)[[0, 1, 3]], [1, -1, 1])
    assert_same_type(tiny("open_es", optimizer=optimizer).init(jax.random.key(0)), state, "before and after")


@pytest.mark.slow
def test_the_learning_rate_anneals_by_the_steps_before_the_generation():
    algo = tiny("open_es")
    state = algo.init(jax.random.key(0), evolution.Hyper(learning_rate=0.1, anneal_steps=2 * algo.steps_per_update))
    for expected in (0.1, 0.05, 0.0, 0.0):
        state, _ = learner("open_es")(*algo.collect(state))
        close(state.search.opt_state[1], expected)


@pytest.mark.slow
def test_members_start_together_or_apart():
    for common in (True, False):
        algo = evolution.make(
            make("CartPole-v1")[0],
            evolution.Config(population_size=4, num_episodes=2, num_steps=2, common_starts=common),
        )
        obs = np.asarray(algo.init(jax.random.key(0)).obs).reshape(4, 2, 4)
        assert (np.abs(obs - obs[:1]).max() == 0) == common
        assert np.abs(obs[:, 0] - obs[:, 1]).min() > 0


@pytest.mark.slow
@pytest.mark.light
def test_weights_put_in_from_outside_are_searched_around():
    """As population-based training does: the state's weights are the mean, not a copy of it."""
    algo = tiny("sep_cma_es")
    state = algo.init(jax.random.key(0))
    moved = state.replace(weights=jax.tree.map(lambda x: x + 100, state.weights))
    _, rollout = algo.collect(moved)
    close(rollout.population.mean(1) - jax.flatten_util.ravel_pytree(state.weights)[0].mean(), 100, atol=1)


# ---- learning

PROBE = evolution.Config(population_size=16, num_episodes=8, num_steps=1, hidden=(4,))
PROBE_HYPER = evolution.Hyper(sigma=0.2, learning_rate=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("probe", "strategy"),
    [
        (ObservationActionReward("box"), "open_es"),
        (ObservationActionReward("multi_discrete"), "pgpe"),
        (Masked(), "cma_es"),
        (ObservationActionReward("box"), "sep_cma_es"),
        *(
            pytest.param(probe, strategy, marks=pytest.mark.slow)
            for probe in (ObservationActionReward(), Masked(), ObservationActionReward("box"))
            for strategy in evolution.STRATEGIES
        ),
    ],
    ids=str,
)
def test_learns_the_probe(probe, strategy):
    algo = evolution.make(probe, dataclasses.replace(PROBE, strategy=strategy))
    known = probe.known(0.8)

    @jax.vmap
    def run(key):
        state, metrics = train(algo, key, 100 * algo.steps_per_update, PROBE_HYPER)
        action, _ = algo.act(algo.policy(state), jax.random.key(1), known.obs, greedy=True)
        return action, metrics["fitness"]

    # A strategy goes on drawing with the same sigma: one seed of six is 0.3 beside the best action, their mean is not.
    actions, fitness = jax.jit(run)(jax.random.split(jax.random.key(0), 6))
    close(actions.mean(0), known.action, atol=known.tolerance)
    assert fitness[:, -1].mean() > fitness[:, 0].mean()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", evolution.STRATEGIES)
def test_learns_cartpole(strategy):
    from jaxrl.evaluation import evaluate

    env, params = make("CartPole-v1")
    algo = evolution.make(env, evolution.Config(strategy=strategy))
    hyper = evolution.Hyper(sigma=0.3, learning_rate=0.1)
    state, _ = jax.jit(lambda key: train(algo, key, 60 * algo.steps_per_update, hyper))(jax.random.key(0))
    stats = evaluate(algo, algo.policy(state), jax.random.key(1), env, params, num_episodes=64, greedy=True)
    assert stats.returns.mean() > 475


# ---- the protocol's promises


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["pgpe", "cma_es", "sep_cma_es"])
def test_keeps_the_contract(strategy):
    algo = evolution.make(ObservationActionReward(), dataclasses.replace(PROBE, strategy=strategy))
    if strategy != "cma_es":
        check_algorithm(algo, hyper=PROBE_HYPER, num_updates=3)
        return
    # Its samples go through the eigenvectors of a covariance, whose signs and bases are free wherever eigenvalues are
    # close: a rounding changes them, so batched and alone it draws other samples of one distribution. Not of the first
    # generation, whose covariance is the unit matrix.
    check_algorithm(algo, hyper=PROBE_HYPER, num_updates=1)
    check_algorithm(algo, hyper=PROBE_HYPER, num_updates=3, whole=False)


@pytest.mark.slow
@pytest.mark.light
def test_dict_observations_are_normalised_and_privileged_ones_unseen():
    algo = evolution.make(Privileged(), dataclasses.replace(TINY, normalize_obs=True))
    state, _ = jax.jit(algo.update)(algo.init(jax.random.key(0)))
    policy = algo.policy(state)
    assert set(state.normalizer.moments) == {"obs"} and state.normalizer.count > 0
    assert algo.act(policy, jax.random.key(0), {"obs": jnp.zeros((3, 1))})[0].shape == (3,)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("strategy", evolution.STRATEGIES)
def test_no_key_is_used_twice(strategy):
    algo = tiny(strategy)
    state = algo.init(jax.random.key(0))

    def twice(key):
        return algo.update(algo.update(state.replace(key=key))[0])[1]["loss"]

    key = jax.random.key(list(evolution.STRATEGIES).index(strategy) + 40)
    assert np.isfinite(assert_no_key_reuse(twice, key))


def test_no_factorisation_is_batched():
    """Two batched LAPACK calls at a time can hang a CPU, so that of CMA-ES stays one matrix whatever is vmapped."""
    algo = tiny("cma_es")

    def run(key, sigma):
        return train(algo, key, 2 * algo.steps_per_update, evolution.Hyper(sigma=sigma))[1]["loss"]

    both = jax.vmap(jax.vmap(run, (None, 0)), (0, None))
    keys, sigmas = jax.random.split(jax.random.key(0), 2), jnp.array([0.1, 0.2, 0.3])
    lines = str(jax.make_jaxpr(both)(keys, sigmas)).splitlines()
    found = [line for line in lines if "= eigh" in line]
    assert len(found) == 1 and "f32[4,4]" in found[0], found


HANG = """
import jax
import jaxrl
from jaxrl.algos import evolution

algo = evolution.make(
    jaxrl.make("CartPole-v1")[0],
    evolution.Config(strategy="cma_es", population_size=8, num_steps=8, hidden=(8,)),
)
init = jax.jit(jax.vmap(algo.init))
train = jax.jit(jax.vmap(lambda key: jaxrl.train(algo, key, 100 * algo.steps_per_update)[1]["loss"]))
for i in range(3):
    jax.block_until_ready(init(jax.random.split(jax.random.key(i), 8)).weights)
    jax.block_until_ready(train(jax.random.split(jax.random.key(i), 8)))
print("done")
"""


@pytest.mark.slow
def test_vmapped_cma_es_ends_in_fresh_processes(tmp_path, monkeypatch):
    # One thread: OpenBLAS's own threads only wait for each other on matrices of this size.
    for name, value in {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    for i in range(20):
        ended = subprocess.run([sys.executable, "-c", HANG], capture_output=True, text=True, timeout=180)
        assert ended.returncode == 0 and ended.stdout.strip() == "done", f"process {i + 1}: {ended.stderr[-2000:]}"


# ---- what may be brought along, and what is refused


class Linear(nn.Module):
    outputs: int = 2

    @nn.compact
    def __call__(self, obs):
        return nn.Dense(self.outputs)(obs)


def test_bring_your_own_network_and_vector_env():
    venv = vectorize(make("CartPole-v1")[0], 4, "dense")
    algo = evolution.make(venv, TINY, network=Linear())
    assert algo.venv is venv
    state = jax.eval_shape(lambda key: algo.update(algo.init(key))[0], jax.random.key(0))
    assert set(state.weights["params"]) == {"Dense_0"}


def test_image_like_observations():
    algo = evolution.make(make("Catch-bsuite")[0], TINY)
    state = jax.eval_shape(lambda key: algo.update(algo.init(key))[0], jax.random.key(0))
    assert state.obs.shape == (4, 10, 5)


def batched():
    return vectorize(make("CartPole-v1")[0], 4, batched_params=True)


def two_agents():
    return dataclasses.dataclass(frozen=True)(type("Two", (DelayedReward,), {"num_agents": 2}))()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: evolution.Config(strategy="cmaes"), r"strategy='cmaes'.*cma_es"),
        (lambda: evolution.Config(population_size=2), r"population_size=2.*at least 4"),
        (lambda: evolution.Config(population_size=5), r"population_size=5.*pairs.*6"),
        (lambda: evolution.Config(num_steps=0), r"num_steps=0"),
        (lambda: evolution.make(batched(), TINY), r"common_starts=True.*batched_params"),
        (lambda: evolution.make(make("CartPole-v1")[0], TINY, network=Linear(3)), r"\(4, 3\).*needs \(4, 2\)"),
        (lambda: evolution.make(vectorize(make("CartPole-v1")[0], 3), TINY), r"num_envs=3 but the config says 4"),
        (lambda: evolution.make(two_agents(), TINY), r"2 agents"),
        (
            lambda: evolution.make(
                make("CartPole-v1")[0], dataclasses.replace(TINY, strategy="sep_cma_es"), optimizer="adam"
            ),
            r"optimizer: sep_cma_es has no gradient; open_es and pgpe have",
        ),
        (
            lambda: evolution.make(
                make("CartPole-v1")[0], dataclasses.replace(TINY, strategy="cma_es", hidden=(64, 64))
            ),
            r"4610 x 4610.*sep_cma_es",
        ),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_params_of_their_own_without_common_starts():
    algo = evolution.make(batched(), dataclasses.replace(TINY, common_starts=False))
    state = jax.eval_shape(lambda key: algo.update(algo.init(key))[0], jax.random.key(0))
    assert state.obs.shape == (4, 4)


def test_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("evosax"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install .*\[evosax\]"):
        evolution.make(make("CartPole-v1")[0], dataclasses.replace(TINY, num_steps=7))
