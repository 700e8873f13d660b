"""Bounds on finite POMDPs: a published value, exhaustive search on tiny ones, a policy played in the environment."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.memory import planning
from jaxrl.envs.memory.compass_world import CompassWorld
from jaxrl.envs.memory.rock_sample import RockSample, State
from jaxrl.exact.pomdp import Pomdp, bounds, mdp_values


def tiger():
    """Listen (-1, right with 0.85) or open the left or the right door: 10, or -100 where the tiger is."""
    reward = np.array([[[-1.0, -1.0], [-100.0, 10.0], [10.0, -100.0]]])
    hear = np.array([[0.85, 0.15], [0.15, 0.85]])
    listen = np.stack([np.diag(hear[:, o]) for o in range(2)])
    again = np.full((2, 2, 2), 0.25)
    kernel = np.stack([listen, again, again])[None]
    return Pomdp(reward, np.zeros((1, 3, 2), int), kernel)


def searched(pomdp, x, belief, gamma, depth):
    """The best return of `depth` steps, by looking at every action and observation."""

    @functools.cache
    def best(x, key, depth):
        if depth == 0:
            return 0.0
        b = np.array(key)
        values = []
        for a in range(pomdp.reward.shape[1]):
            value = pomdp.reward[x, a] @ b
            for o, n in enumerate(pomdp.successor[x, a]):
                after = b @ pomdp.kernel[x, a, o]
                if (chance := after.sum()) > 1e-12:
                    value += gamma * chance * best(int(n), tuple(np.round(after / chance, 10)), depth - 1)
            values.append(value)
        return max(values)

    return best(x, tuple(belief / belief.sum()), depth) * belief.sum()


def test_the_tiger_is_worth_what_is_published():
    """19.37 at the uniform belief with discount 0.95 (Cassandra's solutions of the problem)."""
    found = bounds(tiger(), np.array([0]), np.full((1, 2), 0.5), 0.95, tolerance=0.01, seconds=20)
    assert found.lower <= 19.3714 <= found.upper and found.upper - found.lower < 0.05
    short = bounds(tiger(), np.array([0]), np.full((1, 2), 0.5), 0.5, tolerance=1e-4, seconds=20)
    depth = 22
    exact, rest = searched(tiger(), 0, np.full(2, 0.5), 0.5, depth), 0.5**depth * 200
    assert short.lower - rest <= exact <= short.upper + rest
    with pytest.raises(ValueError, match="below 1"):
        bounds(tiger(), np.array([0]), np.full((1, 2), 0.5), 1.0)


@pytest.mark.parametrize(("columns", "rocks"), [(2, 1), (3, 1), (3, 2)])
def test_small_rock_samples_against_exhaustive_search(columns, rocks):
    env = RockSample(2, columns, rocks)
    params = env.default_params.replace(half_distance=jnp.float32(1.0))
    pomdp, roots, beliefs = planning.rock_sample(env, params)
    gamma, depth = 0.4, 6
    found = bounds(pomdp, roots, beliefs, gamma, tolerance=1e-3, seconds=20)
    exact = sum(searched(pomdp, int(x), b, gamma, depth) for x, b in zip(roots, beliefs, strict=True))
    rest = gamma**depth * 10 / (1 - gamma)
    assert found.lower - 1e-9 <= exact + rest and exact <= found.upper + 1e-9
    assert found.upper - found.lower < 2e-3
    assert found.upper <= np.sum(mdp_values(pomdp, gamma)[roots] * beliefs) + 1e-9


def test_the_model_of_rock_sample_is_the_environment():
    env = RockSample(3, 3, 2)
    params = env.default_params
    pomdp, _, _ = planning.rock_sample(env, params)
    np.testing.assert_allclose(pomdp.kernel.sum((2, 4)).max(), 1)
    goods = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], bool)

    @jax.jit
    @jax.vmap
    def step(place, good, action):
        ts = env.step(jax.random.key(0), State(jnp.int32(0), place, good, jnp.zeros(2, jnp.int32)), action, params)
        return ts.state, ts.reward, ts.terminated

    x, y, a = (z.reshape(-1) for z in np.meshgrid(range(6), range(4), range(7), indexing="ij"))
    place = np.stack([x // 2, x % 2], 1).astype(np.int32)
    state, reward, ended = step(place, goods[y], a.astype(np.int32))
    np.testing.assert_array_equal(reward, pomdp.reward[x, a, y])
    np.testing.assert_allclose(pomdp.kernel[x, a, :, y].sum((1, 2)), ~np.asarray(ended))
    going = ~np.asarray(ended)
    to = np.asarray(state.place[:, 0] * 2 + state.place[:, 1])
    after = np.asarray(state.good) @ np.array([2, 1])
    seen = (np.asarray(state.reading) > 0).any(1)
    observation = np.where((a < 5) | ~seen, 1, 0)
    np.testing.assert_array_equal(pomdp.successor[x, a, observation][going], to[going])
    assert np.all(pomdp.kernel[x, a, observation, y, after][going] > 0)


def test_the_lower_bounds_policy_earns_it_in_the_environment():
    env, gamma, episodes = RockSample(3, 3, 2), 0.9, 600
    params = env.default_params
    pomdp, roots, beliefs = planning.rock_sample(env, params)
    found = bounds(pomdp, roots, beliefs, gamma, tolerance=0.01, seconds=20)
    keys = jax.random.split(jax.random.key(3), episodes)
    state = jax.vmap(lambda k: env.reset(k, params)[1])(keys)
    step = jax.jit(jax.vmap(lambda k, s, a: env.step(k, s, a, params)))
    belief, total, running = np.full((episodes, 4), 0.25), np.zeros(episodes), np.ones(episodes, bool)
    for t in range(40):
        x = np.minimum(np.asarray(state.place) @ np.array([2, 1]), 5)
        best = [int(np.argmax(found.vectors[i] @ b)) for i, b in zip(x, belief, strict=True)]
        action = np.array([found.actions[i][n] for i, n in zip(x, best, strict=True)], np.int32)
        ts = step(jax.vmap(lambda k, t=t: jax.random.fold_in(k, t))(keys), state, action)
        total += gamma**t * running * np.asarray(ts.reward)
        running &= ~np.asarray(ts.terminated)
        seen = np.where((np.asarray(ts.state.reading) > 0).any(1), 0, 1)
        after = np.einsum("ni,nij->nj", belief, pomdp.kernel[x, action, seen])
        sums = after.sum(1, keepdims=True)
        belief, state = np.where(sums > 0, after / np.maximum(sums, 1e-12), 0.25), ts.state
    assert not running.any()
    assert abs(total.mean() - found.lower) < 4 * total.std() / np.sqrt(episodes)


def test_the_smallest_compass_world_by_hand():
    """Of 3 x 3 one cell is free: turn the shorter way to the west, from the north, south or east: 1, 1 and 2 turns."""
    env = CompassWorld(3)
    pomdp, roots, beliefs = planning.compass(env, env.default_params)
    found = bounds(pomdp, roots, beliefs, 0.9, tolerance=1e-6, seconds=5)
    assert found.lower == pytest.approx((1 + 1 + 0.9) / 3, abs=1e-5) and found.upper == pytest.approx(
        found.lower, abs=1e-5
    )
