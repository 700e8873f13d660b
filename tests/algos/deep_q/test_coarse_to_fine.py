"""CQN and ARSQ: cells, distributions and soft advantages by brute force, gradient steps by hand, what is refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algos import arsq, cqn
from jaxrl.data.transitions import Transition
from jaxrl.environment import strongly_typed
from jaxrl.spaces import Box
from jaxrl.testing.probes import ObservationActionReward
from jaxrl.testing.rules import step

KEY = jax.random.key(0)


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


# ---- cells


@pytest.mark.parametrize("levels, bins", [(1, 2), (3, 5), (2, 4)])
def test_cells_by_zooming(levels, bins):
    """An interval at a time, as the paper does it."""
    action = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    action[:2] = [[-1, 1], [1, -1]]
    found = np.asarray(cqn.digits(jnp.asarray(action), levels, bins))
    middle = np.asarray(cqn.centres(jnp.asarray(found), bins))
    for n, d in np.ndindex(50, 2):
        low, high = -1.0, 1.0
        for level in range(levels):
            close(middle[n, level, d], (low + high) / 2)
            width = (high - low) / bins
            bin = min(int((action[n, d] - low) / width), bins - 1)
            assert found[n, level, d] == bin
            low, high = low + bin * width, low + (bin + 1) * width
    centre = np.sum(cqn.offsets(jnp.asarray(found), bins), -2)
    assert np.all(np.abs(centre - action) <= 1.0001 / bins**levels)
    np.testing.assert_array_equal(cqn.digits(jnp.asarray(centre), levels, bins), found)


def test_beginnings_know_the_bins_before_them_and_no_others():
    bin = jnp.array([[2, 0], [1, 2]])  # of two levels and two dimensions, three bins
    first, second = 2 / 3, -2 / 3  # the moves of the first level
    expected = [[0, 0], [first, 0], [first, second], [first + 0, second]]
    close(arsq.beginnings(bin, 3), expected)
    close(np.sum(cqn.offsets(bin, 3), -2), [first, second + 2 / 9])


# ---- CQN


def test_a_target_distribution_by_hand():
    """Atoms 0, 1, 2: all mass on 2 moves to 0.5 + 0.5 2 = 1.5, half of it to either side; a last step adds nothing."""
    atoms, sure = jnp.array([0.0, 1.0, 2.0]), jnp.array([-1e4, -1e4, 0.0])
    logits = jnp.broadcast_to(sure, (2, 1, 2, 3))
    found = cqn.target_distribution(jnp.array([0.5, 1.0]), jnp.array([0.5, 0.0]), logits, atoms)
    close(found, [[[[0, 0.5, 0.5]] * 2], [[[0, 1, 0]] * 2]])


class Table:
    """Logits that say which bin is best at a level, as a function of the centre."""

    def apply(self, weights, x, centre, level):
        best = jnp.where(level[0] == 1, 2, jnp.where(centre > 0, 0, 1))  # the second level sees where the first ended
        worse = jnp.where(jnp.arange(3) == best[..., None], -1.0, 0.0)
        return weights * jnp.stack([worse, jnp.zeros_like(worse)], -1)


def test_it_zooms_into_the_best_bin_of_each_dimension():
    zooming = cqn.Zooming(Table(), cqn.Config(levels=2, bins=3, num_outputs=2), Box(-1.0, 1.0, (1,)), 2)
    obs = jnp.zeros((4, 1))
    np.testing.assert_array_equal(zooming.best(1.0, obs, jnp.array([0.0, 1.0])), [[[2, 2], [0, 0]]] * 4)
    close(zooming.mode((1.0, 0.0, 1.0), obs), [[2 / 3 - 2 / 9] * 2] * 4)
    close(zooming.mode((-1.0, 0.0, 1.0), obs[0]), [-2 / 3 - 2 / 9] * 2)  # the first of those that are equally good


SMALL = dict(levels=2, bins=2, hidden=(8,), num_envs=2, batch_size=4, buffer_size=16)


def batch_of(n):
    rng = np.random.default_rng(1)
    obs = [jnp.asarray(rng.normal(size=(n, 1)), jnp.float32) for _ in range(2)]
    action, reward = jnp.asarray(rng.uniform(-1, 1, (n, 1))), jnp.asarray(rng.normal(size=n), jnp.float32)
    return Transition(obs[0], action.astype(jnp.float32), reward, jnp.arange(n) % 2 == 1, obs[1])


def changed(change):
    """Names of the weights whose gradient is 0."""
    return [jax.tree_util.keystr(path) for path, x in jax.tree_util.tree_leaves_with_path(change) if not np.any(x)]


def noisy(tree):
    """Weights of which none is 0."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(KEY, len(leaves))
    return structure.unflatten([x + 0.3 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)])


def test_cqns_gradient_step_by_hand():
    config = cqn.Config(**SMALL, num_outputs=5)
    zooming = cqn.Zooming(cqn.CoarseToFine(1, 2, 5, (8,), "silu", True), config, Box(-1.0, 1.0, (1,)), 1)
    rule = cqn._CQN(zooming)
    hyper = strongly_typed(cqn.Hyper(gamma=0.5, v_min=-2.0, v_max=2.0, learning_rate=1.0))
    batch = batch_of(4)
    weights = noisy(rule.init({"critic": KEY}, batch.obs[0], batch.action[0], hyper)["critic"])
    target = jax.tree.map(lambda x: 0.5 * x, weights)
    report, change = jax.jit(lambda: step(rule, {"critic": weights}, {"critic": target}, batch, hyper, KEY))()
    assert not changed(change)
    atoms, total = np.linspace(-2, 2, 5), []
    for n in range(4):
        bin, centre, best = np.asarray(cqn.digits(batch.action[n], 2, 2)), jnp.zeros(1), []
        for level in range(2):
            q = jax.nn.softmax(zooming.network.apply(weights, batch.next_obs[n], centre, jnp.eye(2)[level])) @ atoms
            best.append(int(np.argmax(q[0])))
            after = jax.nn.softmax(zooming.network.apply(target, batch.next_obs[n], centre, jnp.eye(2)[level]))
            mass = np.zeros(5)
            for atom, p in zip(atoms, after[0, best[-1]], strict=True):
                y = float(np.clip(batch.reward[n] + 0.5 * (n % 2 == 0) * atom, -2, 2))
                mass += p * np.maximum(1 - np.abs(y - atoms), 0)
            at = cqn.centres(jnp.asarray(bin), 2)[level]
            logits = zooming.network.apply(weights, batch.obs[n], at, jnp.eye(2)[level])[0, bin[level, 0]]
            total.append(-np.sum(mass * jax.nn.log_softmax(logits)))
            centre = centre + cqn.moves(jnp.array([best[-1]]), level, 2)
    close(report["critic_loss"], np.mean(total), rtol=1e-4)


# ---- ARSQ


def test_advantages_are_a_policy_and_the_value_is_soft():
    """Over all sequences of bins: probabilities sum to 1, and V is alpha log sum exp(Q / alpha)."""
    config, alpha = arsq.Config(levels=2, bins=2, hidden=(8,)), 0.3
    network = arsq.SoftQ(2, (8,), "silu", True)
    acting = arsq.OneByOne(network, config, Box(-1.0, 1.0, (3,)), 2)
    obs = jnp.array([0.3, -0.2, 0.9])
    weights = noisy(network.init(KEY, obs, jnp.zeros(2), jnp.eye(4)[0]))
    every = jnp.array(list(itertools.product(range(2), repeat=4)))
    advantages = arsq.soft_advantages(acting.outputs(weights, jnp.tile(obs, (16, 1)), every.reshape(16, 2, 2)), alpha)
    close(jnp.sum(jnp.exp(advantages / alpha), -1), np.ones((16, 4)))
    value = acting.value(weights, obs)
    q = arsq.action_value(jnp.full(16, value), advantages, every)
    probability = np.exp((q - value) / alpha)
    close(np.sum(probability), 1)
    close(alpha * jax.nn.logsumexp(q / alpha), value)
    assert probability.max() > 2 * probability.min()
    # Drawn bin by bin, actions have these probabilities.
    drawn = jax.jit(lambda key: acting.explore((weights, alpha), key, jnp.tile(obs, (20_000, 1))))(KEY)
    cells = np.asarray(cqn.digits(drawn, 2, 2)).reshape(-1, 4) @ [8, 4, 2, 1]
    close(np.bincount(cells, minlength=16) / 20_000, probability, atol=0.015)
    order = [np.asarray(acting.outputs(weights, obs, every[i].reshape(2, 2))).argmax(-1) for i in range(16)]
    best = next(i for i in range(16) if np.array_equal(order[i], every[i]))  # each bin the best after those before it
    close(acting.mode((weights, alpha), obs), np.sum(cqn.offsets(every[best].reshape(2, 2), 2), 0))


def test_arsqs_gradient_step_by_hand():
    config = arsq.Config(**SMALL)
    acting = arsq.OneByOne(arsq.SoftQ(2, (8,), "silu", True), config, Box(-1.0, 1.0, (1,)), 1)
    rule, hyper, batch = arsq._ARSQ(acting), arsq.Hyper(gamma=0.5, alpha=0.2, learning_rate=1.0), batch_of(4)
    weights = noisy(rule.init({"critic": KEY}, batch.obs[0], batch.action[0], hyper)["critic"])
    target = jax.tree.map(lambda x: 0.5 * x, weights)
    report, change = jax.jit(lambda: step(rule, {"critic": weights}, {"critic": target}, batch, hyper, KEY))()
    assert not changed(change)
    errors, logs = [], []
    for n in range(4):
        bin = np.asarray(cqn.digits(batch.action[n], 2, 2))[:, 0]
        f = np.asarray(acting.outputs(weights, batch.obs[n], jnp.asarray(bin)[:, None]))
        log = [f[k, bin[k]] / 0.2 - np.log(np.sum(np.exp(f[k] / 0.2))) for k in range(2)]
        after = 0.5 * (n % 2 == 0) * acting.value(target, batch.next_obs[n])
        errors.append(acting.value(weights, batch.obs[n]) + 0.2 * sum(log) - batch.reward[n] - after)
        logs.append(sum(log))
    close(report["critic_loss"], 0.5 * np.mean(np.square(errors)), rtol=1e-4)
    close(report["log_prob"], np.mean(logs), rtol=1e-4)


# ---- what is refused


def test_settings_that_cannot_be():
    for module in (cqn, arsq):
        with pytest.raises(ValueError, match="bins=1: it must be at least 2"):
            module.Config(bins=1)
        with pytest.raises(ValueError, match="levels=0"):
            module.Config(levels=0)
        with pytest.raises(ValueError, match=r"levels=9, bins=5: 1953125 cells .* at most 8 levels"):
            module.Config(levels=9)
    with pytest.raises(ValueError, match="num_outputs=1"):
        cqn.Config(num_outputs=1)
    env = ObservationActionReward("box")
    with pytest.raises(ValueError, match="v_min must be below v_max"):
        cqn.make(env, cqn.Config(**SMALL)).init(KEY, cqn.Hyper(v_min=1.0, v_max=1.0))
    with pytest.raises(ValueError, match=r"alpha=0.0: the temperature must be above 0; the default is 0.1"):
        arsq.make(env, arsq.Config(**SMALL)).init(KEY, arsq.Hyper(alpha=0.0))
