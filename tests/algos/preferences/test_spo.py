"""SPO: outcomes and win rates by brute force, what it does not see, and that it learns by comparison alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import spo
from jaxrl.wrappers import Wrapper

KEY = jax.random.key(0)


def test_outcomes_add_up_over_an_episode_and_across_rollouts():
    rng = np.random.default_rng(0)
    features, done = rng.normal(size=(7, 3, 2)), rng.uniform(size=(7, 3)) < 0.3
    so_far = rng.normal(size=(3, 2))
    after, outcome = spo.outcomes(*map(jnp.asarray, (features, done, so_far)))
    for n in range(3):
        total = so_far[n].copy()
        for t in range(7):
            total = total + features[t, n]
            np.testing.assert_allclose(outcome[t, n], total, rtol=1e-5)
            total = total * ~done[t, n]
        np.testing.assert_allclose(after[n], total, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("before", [0, 2, 3])
def test_win_rates_by_brute_force(before):
    """Against the three that ended before, in order, however many of them there were yet."""
    rng, q = np.random.default_rng(before), 3
    outcome, done = rng.integers(0, 4, (12, 1)).astype(np.float32), rng.uniform(size=12) < 0.6
    compared = np.zeros((q, 1), np.float32)
    if before:
        compared[-before:] = rng.integers(0, 4, (before, 1))

    def prefers(a, b):
        return spo.larger(a, b, spo.Hyper())

    found, kept, count = jax.jit(spo.win_rates, static_argnums=4)(outcome, done, compared, jnp.int32(before), prefers)
    line = list(compared[q - before :, 0])
    for i in range(12):
        expected = 0.0
        if done[i]:
            against = line[-q:]
            wins = [1.0 if outcome[i, 0] > x else 0.5 if outcome[i, 0] == x else 0.0 for x in against]
            expected = np.mean(wins) if wins else 0.5
            line.append(outcome[i, 0])
        np.testing.assert_allclose(found[i], expected, rtol=1e-6)
    assert int(count) == min(q, len(line))
    np.testing.assert_array_equal(kept[q - int(count) :, 0], line[-q:])


def test_the_preference():
    one, other = jnp.array([[1.0], [2.0], [3.0]]), jnp.array([[2.0], [2.0], [1.0]])
    np.testing.assert_array_equal(spo.larger(one, other, spo.Hyper()), [0, 0.5, 1])
    soft = spo.larger(one, other, spo.Hyper(temperature=jnp.float32(2.0)))
    np.testing.assert_allclose(soft, 1 / (1 + np.exp([0.5, 0.0, -1.0])), rtol=1e-6)


class Scaled(Wrapper):
    """Rewards in another unit."""

    def transition(self, key, state, action, params):
        found = self.env.transition(key, state, action, params)
        return found._replace(reward=1000 * found.reward + 0)


SMALL = spo.Config(num_envs=4, num_steps=16, hidden=(8,), num_minibatches=2, num_epochs=2, num_compared=3)


def test_nothing_but_who_wins_is_learned_from():
    """Rewards in another unit give the same weights, and each network is changed."""
    env, params = jaxrl.make("CartPole-v1")
    after = []
    for task in (env, Scaled(env)):
        algo = spo.make(task, SMALL)
        start = algo.init(KEY, spo.Hyper(), params)
        state = jax.jit(lambda state, algo=algo: algo.update(algo.update(algo.update(state)[0])[0]))(start)
        after.append(state[0].weights)
        assert np.isfinite(state[1]["win_rate"])
    jax.tree.map(np.testing.assert_array_equal, *after)
    moved = jax.tree.map(lambda x, y: bool(np.any(x != y)), start.weights, after[0])
    assert all(jax.tree.leaves(moved)), moved


def test_a_preference_of_ones_own():
    """The shorter episode is preferred, by features of one's own."""
    env, params = jaxrl.make("CartPole-v1")

    def features(obs, action, reward):
        return jnp.stack([reward, obs[..., 0]], -1)

    def shorter(outcome, other, hyper):
        return (jnp.sign(other[..., 0] - outcome[..., 0]) + 1) / 2

    algo = spo.make(env, SMALL, features=features, prefers=shorter)
    state = algo.init(KEY, None, params)
    assert state.so_far.shape == (4, 2) and state.compared.shape == (3, 2)
    state, rollout = jax.jit(algo.collect)(state)
    lengths = rollout.outcome[..., 0][rollout.ends.done]
    np.testing.assert_array_equal(lengths, rollout.ends.episode_length[rollout.ends.done])
    after, _ = jax.jit(algo.learn)(state, rollout)
    kept = min(3, len(lengths))
    assert kept and int(after.num_compared) == kept
    np.testing.assert_array_equal(after.compared[3 - kept :, 0], np.asarray(lengths)[-kept:])
    again = algo.restart(state.replace(so_far=jnp.ones((4, 2))), KEY, params, jnp.array([True, False, True, False]))
    np.testing.assert_array_equal(again.so_far[:, 0], [0, 1, 0, 1])


def test_a_number_that_is_wrong():
    with pytest.raises(ValueError, match="num_compared=0"):
        spo.Config(num_compared=0)


@pytest.mark.slow
def test_cart_pole_by_win_rates_alone():
    env, params = jaxrl.make("CartPole-v1")
    algo, total = spo.make(env, spo.Config()), 400_000

    @jax.jit
    @jax.vmap
    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, total, spo.Hyper(anneal_steps=total), params)
        return jaxrl.evaluate(
            algo, algo.policy(state), eval_key, env, params, num_episodes=32, greedy=True
        ).returns.mean()

    returns = run(jax.random.split(KEY, 3))
    assert np.mean(returns) > 450, returns
