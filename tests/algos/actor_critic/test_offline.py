"""Learners from stored data: losses against arrays computed by hand, and what each makes of data with a known best."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import awac, bc, cql, edac, famo2o, iql, rebrac, ro2o, td3_bc
from jaxrl.data import datasets
from jaxrl.data.datasets import Dataset
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import ObservationActionReward

KEY = jax.random.key(0)
REWARD, TERMINATED = jnp.array([1.0, 2.0, 3.0]), jnp.array([False, True, False])
NEXT_Q = jnp.array([[1.0, 5.0, 2.0], [2.0, 4.0, -1.0]])


def close(actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=1e-6, atol=1e-7)


# ---- targets and losses


def test_targets_by_hand():
    for module in (td3_bc, awac, cql):
        close(module.td_target(REWARD, TERMINATED, NEXT_Q, 0.5), [1.5, 2.0, 2.5])
    close(rebrac.td_target(REWARD, TERMINATED, NEXT_Q, jnp.array([0.2, 0.2, 0.4]), 0.5), [1.4, 2.0, 2.3])
    close(ro2o.td_target(REWARD, TERMINATED, NEXT_Q, jnp.array([1.0, 1.0, -2.0]), 0.5, 0.5), [1.25, 2.0, 3.0])
    close(edac.td_target(REWARD, TERMINATED, NEXT_Q, jnp.array([1.0, 1.0, -2.0]), 0.5, 0.5), [1.25, 2.0, 3.0])


def test_losses_by_hand():
    q, target = jnp.array([[0.0, 1.0], [2.0, 3.0]]), jnp.array([1.0, 1.0])
    for module in (td3_bc, awac, cql, edac, rebrac, iql, ro2o, famo2o):
        close(module.critic_loss(q, target), 0.5 + 2.5)
    action, wanted = jnp.array([[0.0, 1.0], [0.5, 0.5]]), jnp.zeros((2, 2))
    close(bc.actor_loss(action, wanted), 1.5 / 4)
    close(td3_bc.actor_loss(jnp.array([1.0, -3.0]), action, wanted, 2.0), 1.0 + 1.5 / 4)
    close(rebrac.penalty(action, wanted), [1.0, 0.5])
    close(rebrac.actor_loss(jnp.array([[1.0, 4.0], [3.0, 2.0]]), jnp.array([1.0, 0.5])), 0.75 - 1.0)
    advantage, log_prob = jnp.array([1.0, -2.0]), jnp.array([-1.0, -3.0])
    close(iql.value_loss(advantage, 0.7), (0.7 * 1 + 0.3 * 4) / 2)
    close(iql.actor_loss(log_prob, advantage, 2.0), (np.exp(2) * 1 + np.exp(-4) * 3) / 2)
    close(iql.actor_loss(log_prob, jnp.array([50.0, -2.0]), 2.0), (100 * 1 + np.exp(-4) * 3) / 2)
    close(awac.actor_loss(log_prob, advantage, 0.5), (np.exp(2) * 1 + np.exp(-4) * 3) / 2)


def test_weights_of_actors_are_held_fixed():
    slope = jax.grad(lambda a: iql.actor_loss(jnp.array([-1.0, -3.0]), a, 2.0))(jnp.array([1.0, -2.0]))
    assert not slope.any()


def test_edacs_similarity_by_hand():
    """Two critics that agree, and three, of which two are opposite and one is across."""
    same = jnp.array([[[3.0, 4.0]], [[3.0, 4.0]]])
    close(edac.similarity(same), 2.0)
    three = jnp.array([[[2.0, 0.0]], [[-1.0, 0.0]], [[0.0, 5.0]]])
    close(edac.similarity(three), 2 * (-1 + 0 + 0) / 2)


def test_cqls_penalty_by_hand():
    q, density = jnp.array([[[1.0], [3.0]]]), jnp.array([[0.0], [np.log(2.0)]])
    close(cql.penalty(q, density, jnp.array([[2.0]]), 1.0), np.log(np.exp(1.0) + np.exp(3.0) / 2) - 2)


def test_ro2os_losses_by_hand():
    """Critics at (K, n, B): what the most different of two displacements does, and what disagreement costs."""
    q, near = jnp.array([[1.0], [2.0]]), jnp.array([[[2.0], [0.0]], [[2.0], [0.0]]])
    close(ro2o.smoothness(near, q), max(0.8 / 2, (0.2 + 0.8) / 2))  # tau 0.2 below, 0.8 above
    deviation = np.sqrt(2.0)  # of 1 and 3
    close(ro2o.ood_loss(jnp.array([[[1.0]], [[3.0]]]), 0.5), 0.25 * deviation**2)
    slope = jax.grad(lambda q: ro2o.ood_loss(q, 0.5))(jnp.array([[[1.0]], [[3.0]]]))
    close(slope.ravel(), [0.5 * deviation] * 2)  # all of them sink
    states = ro2o.around(KEY, {"x": jnp.zeros((3, 2)), "n": jnp.ones(3, jnp.int32)}, 5, 0.1)
    assert states["x"].shape == (5, 3, 2) and states["n"].shape == (5, 3) and np.asarray(states["n"] == 1).all()
    assert 0.05 < np.abs(states["x"]).max() <= 0.1 and np.unique(states["x"][:, :, 0]).size == 5


def test_famo2os_encoding_and_loss_by_hand():
    close(
        famo2o.encoded(jnp.array(2.0)),
        [np.sin(2), np.cos(2), *(f(2 / 1e4 ** (i / 3)) for i in (1, 2) for f in (np.sin, np.cos))],
    )
    advantage, log_prob = jnp.array([1.0, -2.0]), jnp.array([-1.0, -3.0])
    close(famo2o.actor_loss(log_prob, advantage, jnp.array([2.0, 1.0])), (np.exp(2) * 1 + np.exp(-2) * 3) / 2)
    close(famo2o.value_loss(advantage, 0.7), (0.7 * 1 + 0.3 * 4) / 2)


# ---- on a dataset

ENV, PARAMS = ObservationActionReward("box"), ObservationActionReward("box").default_params
SPACE = ENV.action_space(PARAMS)
SIZES = dict(num_updates=50, batch_size=64, hidden=(16,))
MODULES = {"bc": bc, "td3_bc": td3_bc, "rebrac": rebrac, "iql": iql, "awac": awac, "edac": edac, "cql": cql}
MODULES |= {"ro2o": ro2o, "famo2o": famo2o}
HYPER = {
    "bc": {},
    # At three times the rate its critics point some states' actions past the data, where nothing corrects them.
    "td3_bc": dict(alpha=2.5, tau=0.05, learning_rate=3e-3),
    "rebrac": dict(actor_penalty=0.05, critic_penalty=0.0, tau=0.05),
    "iql": dict(expectile=0.8, beta=10.0, tau=0.05),
    "awac": dict(temperature=0.1, tau=0.05),
    "edac": dict(alpha=0.01, alpha_learning_rate=0.0, diversity=0.1, tau=0.05),
    "cql": dict(alpha=0.01, alpha_learning_rate=0.0, min_q_weight=0.1, tau=0.05),
}
HYPER |= {
    "ro2o": dict(alpha=0.01, alpha_learning_rate=0.0, ood=1.0, tau=0.05),
    "famo2o": dict(expectile=0.8, beta_min=8.0, beta_max=12.0, tau=0.05),
}
CONFIG = {"edac": dict(num_critics=3), "cql": dict(num_actions=2), "ro2o": dict(num_critics=3, num_samples=2)}


def one_step_data(n=2000):
    """Episodes of a step: uniform actions below the middle, reward -(a - 0.3)^2 in units of the box."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (n, *ENV.observation_space(PARAMS).shape)).astype(np.float32)
    unit = rng.uniform(-1.0, 0.5, (n, *SPACE.shape)).astype(np.float32)
    reward = -np.sum((unit - 0.3) ** 2, -1)
    true = np.ones(n, bool)
    return Dataset(obs, np.asarray(SPACE.from_unit(jnp.asarray(unit))), reward, true, true, obs)


def learner(name, memory):
    module = MODULES[name]
    algo = module.make(ENV, module.Config(**SIZES, **CONFIG.get(name, {})), memory)
    return algo, module.Hyper(**{"learning_rate": 1e-2, **HYPER[name]})


@pytest.fixture(scope="module")
def memory():
    return datasets.stored(one_step_data(), SPACE)


@pytest.mark.parametrize("name", [n if n == "iql" else pytest.param(n, marks=pytest.mark.slow) for n in MODULES])
def test_learns_what_the_data_says(name, memory):
    """Cloning finds the mean of the data's actions, -0.25; the others an action near the best, 0.3."""
    algo, hyper = learner(name, memory)
    assert algo.steps_per_update == 50
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 1500, hyper, PARAMS))(KEY)
    assert int(state.step) == 1500 and not np.asarray(metrics["episodes"]).any()
    assert np.all(np.isfinite(metrics["loss"]))
    obs = jnp.asarray(one_step_data(64).obs)
    action, _ = algo.act(algo.policy(state), KEY, obs, greedy=True)
    unit = np.asarray(datasets.to_unit(SPACE, action))
    wanted = -0.25 if name == "bc" else 0.3
    assert abs(unit.mean() - wanted) < 0.12, unit.mean()


def test_nothing_acts_and_seeds_are_alike(memory):
    """Environments stay where they began; a seed of a vmap is the seed alone; no key serves twice."""
    algo, hyper = learner("iql", memory)
    train = jax.jit(lambda key: jaxrl.train(algo, key, 100, hyper, PARAMS))
    many = jax.jit(jax.vmap(lambda key: jaxrl.train(algo, key, 100, hyper, PARAMS)))(jax.random.split(KEY, 2))
    one, _ = train(jax.random.split(KEY, 2)[1])
    start = algo.init(jax.random.split(KEY, 2)[1], hyper, PARAMS)
    jax.tree.map(np.testing.assert_array_equal, one.env_state, start.env_state)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x[1], y, rtol=1e-4, atol=1e-5), many[0].weights, one.weights)
    assert_no_key_reuse(lambda key: algo.update(algo.init(key, hyper, PARAMS)), KEY)


def test_weights_of_episodes_reach_the_learner():
    """Cloning the best tenth alone finds the best action."""
    data = one_step_data()
    memory = datasets.stored(data, SPACE, datasets.best_weights(data, 0.1))
    algo, hyper = learner("bc", memory)
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, 500, hyper, PARAMS))(KEY)
    action, _ = algo.act(algo.policy(state), KEY, jnp.asarray(data.obs[:64]), greedy=True)
    assert abs(np.asarray(datasets.to_unit(SPACE, action)).mean() - 0.3) < 0.1


@pytest.mark.slow
def test_cql_thinks_less_of_what_the_data_lacks(memory):
    """Above 0.5 there is no data: there values are lower with the penalty than without, and no lower where it is."""
    obs, values = jnp.asarray(one_step_data(64).obs), {}
    algo, hyper = learner("cql", memory)
    train = jax.jit(lambda hyper: jaxrl.train(algo, KEY, 1500, hyper, PARAMS)[0])

    def value(state, unit):
        action = jnp.full((64, *SPACE.shape), unit)
        return np.asarray(algo.init.__self__.act_values(state.weights["critic"], obs, action)).mean()

    for weight in (0.0, 5.0):
        state = train(hyper.replace(min_q_weight=jnp.float32(weight)))
        values[weight] = value(state, 1.0) - value(state, -0.25)
    assert values[5.0] < values[0.0] - 0.5, values


@pytest.mark.slow
def test_goes_on_in_the_environment(memory):
    """What was learned on a dataset is the start of the same learner with a memory of its own."""
    algo, hyper = learner("iql", memory)
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, 500, hyper, PARAMS))(KEY)
    online = iql.make(ENV, iql.Config(num_envs=4, num_updates=2, batch_size=32, buffer_size=256, hidden=(16,)))
    begun = online.init(KEY, hyper.replace(learning_starts=8), PARAMS)
    begun = begun.replace(weights=state.weights, target_weights=state.target_weights, optimizer=state.optimizer)
    after, metrics = jax.jit(lambda s: jax.lax.scan(lambda s, _: online.update(s), s, length=20))(begun)
    assert int(after.replay.size) == 80 and np.nanmax(metrics["gradient_steps"]) == 2
    assert not np.allclose(after.weights["value"]["params"]["MLP_0"]["Dense_0"]["kernel"], 0)


@pytest.mark.slow
def test_famo2o_chooses_the_best_balance(memory):
    """Members of the family differ, more weight of the advantage acts nearer to the best action, and the balance model
    comes to prefer it. Online the actor learns at its balance."""
    module = famo2o
    algo = module.make(ENV, module.Config(**SIZES), memory)
    hyper = module.Hyper(
        learning_rate=1e-2, expectile=0.8, beta_min=0.0, beta_max=10.0, tau=0.05, alpha=1e-3, alpha_learning_rate=0.0
    )
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 3000, hyper, PARAMS))(KEY)
    learner, obs = algo.init.__self__, jnp.asarray(one_step_data(64).obs)
    means = [learner.distribution(state.weights["actor"], obs, jnp.full(64, beta)).mean.mean() for beta in (0.0, 10.0)]
    assert means[0] < -0.1 < 0.1 < means[1], means
    assert metrics["beta"][-1] > 8
    assert np.isfinite(metrics["entropy"]).all()
    policy = algo.policy(state)
    assert abs(np.asarray(learner.mode(policy, obs)).mean() - means[1]) < 0.1
