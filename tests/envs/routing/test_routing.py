"""Knapsack, tours and routes: exact programmes against enumeration, equal rests, the rules, greedy baselines."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.routing import cvrp, knapsack, tsp
from jaxrl.exact import routing
from jaxrl.testing.environments import check_environment

KEY = jax.random.key(0)
FAMILY = {"Knapsack-v0": knapsack, "TSP-v0": tsp, "CVRP-v0": cvrp}


def play(env, params, actions):
    step = jax.jit(env.step)
    obs, state = env.reset(KEY, params)
    steps = []
    for action in actions:
        steps.append(step(KEY, state, jnp.int32(action), params))
        obs, state = steps[-1][:2]
    return steps


def greedy_return(env, params, greedy, count=200):
    def one(key):
        obs, state = env.reset(key, params)

        def step(carry, _):
            obs, state, on = carry
            ts = env.step(KEY, state, greedy(obs), params)
            return (ts.obs, ts.state, on & ~ts.terminated), jnp.where(on, ts.reward, 0)

        length = env.action_space(params).n
        return jax.lax.scan(step, (obs, state, jnp.bool_(True)), length=length)[1].sum()

    return jax.jit(jax.vmap(one))(jax.random.split(KEY, count))


# ---- exact programmes


def test_knapsack_is_that_of_enumeration():
    rng = np.random.default_rng(0)
    solve = jax.jit(routing.knapsack, static_argnums=3)
    for _ in range(20):
        values, weights = rng.integers(1, 30, (2, 8))
        capacity = rng.integers(1, 80)
        best, chosen = solve(jnp.asarray(values), jnp.asarray(weights), jnp.asarray(capacity), 100)
        sets = np.array(list(itertools.product([0, 1], repeat=8)))
        assert best == (sets @ values)[sets @ weights <= capacity].max()
        chosen = np.asarray(chosen)
        assert values[chosen].sum() == best and weights[chosen].sum() <= capacity


def tour_length(distance, order):
    return sum(distance[a, b] for a, b in zip(order, [*order[1:], order[0]], strict=True))


@pytest.mark.parametrize("n", [2, 3, 7])
def test_held_karp_is_that_of_enumeration(n):
    rng = np.random.default_rng(n)
    for symmetric in (True, False):
        distance = np.asarray(routing.distances(jnp.asarray(rng.random((n, 2)), jnp.float32)))
        distance = distance if symmetric else distance + rng.random((n, n)).astype(np.float32)
        length, order = routing.held_karp(jnp.asarray(distance))
        best = min(tour_length(distance, (0, *rest)) for rest in itertools.permutations(range(1, n)))
        np.testing.assert_allclose(length, best, rtol=1e-5)
        assert sorted(np.asarray(order)) == list(range(n)) and order[0] == 0
        np.testing.assert_allclose(tour_length(distance, np.asarray(order)), best, rtol=1e-5)


def test_routes_are_those_of_enumeration():
    rng = np.random.default_rng(0)
    for capacity in (9, 14, 40):
        places = jnp.asarray(rng.random((6, 2)), jnp.float32)
        distance, demands = np.asarray(routing.distances(places)), rng.integers(1, 10, 5)
        best = np.inf
        for order in itertools.permutations(range(5)):
            for cuts in itertools.product([0, 1], repeat=4):  # whether the vehicle goes home after each
                parts = np.split(np.array(order), np.flatnonzero(cuts) + 1)
                if all(demands[part].sum() <= capacity for part in parts):
                    best = min(best, sum(tour_length(distance, (0, *(part + 1))) for part in parts))
        found = routing.routes(jnp.asarray(distance), jnp.asarray(demands), jnp.asarray(capacity))
        np.testing.assert_allclose(found, best, rtol=1e-5)


def test_too_large_instances_are_refused():
    with pytest.raises(ValueError, match="held_karp: 21 places; it takes from 2 to 20"):
        routing.held_karp(jnp.zeros((21, 21)))
    with pytest.raises(ValueError, match="routes: 11 customers; it takes from 1 to 10"):
        routing.routes(jnp.zeros((12, 12)), jnp.ones(11, int), jnp.int32(9))


# ---- the best return is what the task can give


def best_by_search(env, level):
    """The best return over all sequences of allowed actions."""
    step = jax.jit(env.step)

    def search(obs, state):
        found = []
        for action in np.flatnonzero(obs["action_mask"]):
            ts = step(KEY, state, jnp.int32(action), level)
            found.append(float(ts.reward) + (0 if ts.terminated else search(ts.obs, ts.state)))
        return max(found)

    return search(*env.reset(KEY, level))


@pytest.mark.parametrize("env", [knapsack.Knapsack(5, 2000), tsp.TSP(5), cvrp.CVRP(3)], ids=lambda env: env.id)
def test_optimal_values_are_those_of_all_episodes(env):
    params = env.default_params
    if env.id == "CVRP-v0":
        params = params.replace(capacity=jnp.int32(10))
    for key in jax.random.split(KEY, 3):
        level = env.generate(key, params)
        np.testing.assert_allclose(env.levels.optimal_value(level), best_by_search(env, level), rtol=1e-5)


# ---- equal rests


@pytest.mark.parametrize(
    ("id", "one", "other"),
    [
        ("Knapsack-v0", [3, 8, 5], [5, 3, 8]),
        ("TSP-v0", [3, 8, 5, 9], [5, 3, 8, 9]),
        ("CVRP-v0", [3, 8, 20 + 5], [8, 20 + 3, 20 + 5]),  # served by one vehicle or two, the last is from the depot
    ],
)
def test_equal_rests_look_equal(id, one, other):
    env, params = jaxrl.make(id)
    level = env.generate(jax.random.key(3), params)
    a, b = (play(env, level, actions) for actions in (one, other))
    for step in (*a, *b):
        assert not step.terminated
    jax.tree.map(np.testing.assert_array_equal, a[-1].obs, b[-1].obs)
    before = jax.tree.map(np.array_equal, *({**steps[-2].obs} for steps in (a, b)))
    assert not all(jax.tree.leaves(before))


def test_other_instances_with_the_same_rest_look_equal():
    """What was taken is forgotten: an item of other value, a city elsewhere, a customer with another demand."""
    env, params = jaxrl.make("Knapsack-v0")
    level = env.generate(KEY, params)
    changed = level.replace(values=level.values.at[4].add(-1))
    jax.tree.map(np.testing.assert_array_equal, play(env, level, [4])[0].obs, play(env, changed, [4])[0].obs)
    env, params = jaxrl.make("TSP-v0")
    level = env.generate(KEY, params)
    changed = level.replace(cities=level.cities.at[4].set(0.5))
    jax.tree.map(np.testing.assert_array_equal, play(env, level, [4, 2])[1].obs, play(env, changed, [4, 2])[1].obs)


# ---- rules


def test_knapsack_by_hand():
    env = knapsack.Knapsack(4, 1000)
    params = env.default_params.replace(
        values=jnp.asarray([300, 200, 900, 50]), weights=jnp.asarray([400, 300, 600, 350]), fresh=jnp.bool_(False)
    )
    first, second = play(env, params, [2, 0])
    np.testing.assert_allclose([first.reward, second.reward], [0.9, 0.3])
    assert not first.terminated and second.terminated  # 1000 - 600 - 400 = 0
    np.testing.assert_array_equal(first.obs["action_mask"], [True, True, False, True])
    np.testing.assert_allclose(first.obs["items"][0], [0.3, 0.4])
    np.testing.assert_array_equal(first.obs["items"][2], 0)
    np.testing.assert_allclose(first.obs["capacity"], 0.4)
    taken_twice = play(env, params, [2, 2])[1]
    assert taken_twice.terminated and taken_twice.reward == 0


def test_tour_by_hand():
    env = tsp.TSP(4)
    square = jnp.asarray([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    params = env.default_params.replace(cities=square, fresh=jnp.bool_(False))
    steps = play(env, params, [1, 2, 3])
    np.testing.assert_allclose([step.reward for step in steps], [-1, -1, -2])
    assert [bool(step.terminated) for step in steps] == [False, False, True]
    np.testing.assert_array_equal(steps[0].obs["origin"], [1, 0])
    np.testing.assert_array_equal(steps[0].obs["destination"], [0, 0])
    wrong = play(env, params, [1, 0])[1]
    assert wrong.terminated and wrong.reward == -10
    np.testing.assert_allclose(env.optimal_value(params), -4, rtol=1e-6)


def test_routes_by_hand():
    env = cvrp.CVRP(3)
    places = jnp.asarray([[0.0, 0.0], [0.3, 0.4], [0.6, 0.8], [0.0, 1.0]])
    demands = jnp.asarray([6, 3, 5])
    params = env.default_params.replace(places=places, demands=demands, capacity=jnp.int32(9), fresh=jnp.bool_(False))
    first, second, third = play(env, params, [0, 1, 3 + 2])
    np.testing.assert_allclose([first.reward, second.reward, third.reward], [-0.5, -0.5, -3], rtol=1e-6)
    np.testing.assert_allclose(first.obs["load"], 3 / 9)
    np.testing.assert_array_equal(first.obs["action_mask"], [False, True, False, False, True, True])
    np.testing.assert_array_equal(second.obs["action_mask"], [False] * 5 + [True])
    assert third.terminated and not second.terminated
    too_much = play(env, params, [0, 2])[1]
    assert too_much.terminated and too_much.reward == -10
    np.testing.assert_allclose(env.optimal_value(params), -3 - 0.4**0.5, rtol=1e-6)


@pytest.mark.optimised
def test_greedy_ones_do_as_known_of_these_distributions():
    """Nearest neighbour on 20 uniform cities is 4.50 in Kool et al. (2019, arXiv:1803.08475), table 1."""
    env, params = jaxrl.make("TSP-v0")
    tours = -greedy_return(env, params, tsp.greedy)
    assert abs(tours.mean() - 4.50) < 3 * tours.std() / 200**0.5
    env = knapsack.Knapsack(20, 5000)
    level = jax.vmap(env.generate, (0, None))(jax.random.split(KEY, 20), env.default_params)
    best = jax.jit(jax.vmap(env.optimal_value))(level)
    found = [greedy_return(env, jax.tree.map(lambda x, i=i: x[i], level), knapsack.greedy, 1)[0] for i in range(20)]
    gap = 1 - np.array(found) / np.asarray(best)
    assert np.all(gap > -1e-6) and 0 < gap.mean() < 0.05
    env = cvrp.CVRP(6)
    params = env.default_params.replace(capacity=jnp.int32(12))
    level = jax.vmap(env.generate, (0, None))(jax.random.split(KEY, 20), params)
    best = -np.asarray(jax.jit(jax.vmap(env.optimal_value))(level))
    found = [-greedy_return(env, jax.tree.map(lambda x, i=i: x[i], level), cvrp.greedy, 1)[0] for i in range(20)]
    assert np.all(np.array(found) >= best - 1e-5) and np.mean(np.array(found) / best) < 1.5


@pytest.mark.parametrize("id", FAMILY)
def test_levels(id):
    env, params = jaxrl.make(id)
    level = env.generate(KEY, params)
    assert not level.fresh and not env.mutate(KEY, params).fresh
    starts = [env.reset(key, level)[0] for key in jax.random.split(KEY, 2)]
    jax.tree.map(np.testing.assert_array_equal, *starts)
    names = [name for name in ("values", "weights", "cities", "places", "demands") if hasattr(level, name)]
    other = env.mutate(jax.random.key(1), level)
    differ = [np.asarray(getattr(level, name) != getattr(other, name)) for name in names]
    changed = [x.reshape(len(x), -1).any(1) for x in differ]
    assert all(c.sum() <= 1 for c in changed) and any(c.any() for c in changed)
    drawn = [env.reset(key, params)[0] for key in jax.random.split(KEY, 2)]
    assert not all(jax.tree.leaves(jax.tree.map(lambda x, y: bool(np.array_equal(x, y)), *drawn)))


@pytest.mark.parametrize(("env", "known"), [(tsp.TSP(20), 1), (tsp.TSP(21), 0), (cvrp.CVRP(10), 1), (cvrp.CVRP(), 0)])
def test_a_kit_has_the_optimal_value_where_it_can_be_computed(env, known):
    assert (env.levels.optimal_value is not None) == known


def test_capacities_are_those_of_the_paper():
    assert [int(cvrp.CVRP(n).default_params.capacity) for n in (10, 20, 21, 50, 100)] == [20, 30, 40, 40, 50]


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", FAMILY)
def test_contract_of_a_level(id):
    env, params = jaxrl.make(id)
    check_environment(env, env.generate(KEY, params), num_steps=6)


def test_errors():
    for made, message in (
        (having("Knapsack-v0", capacity=jnp.int32(30_000)), "capacity=30000 must be from 1 to max_capacity=25000"),
        (
            having("Knapsack-v0", values=jnp.zeros(50, jnp.int32)),
            r"values \(50,\) must be \(50,\) of integers from 1 to",
        ),
        (having("Knapsack-v0", capacity=jnp.int32(1)), "no item fits"),
        (having("TSP-v0", cities=jnp.full((20, 2), 2.0)), r"cities \(20, 2\) must be \(20, 2\), all in \[0, 1\]"),
        (having("CVRP-v0", capacity=jnp.int32(8)), "capacity=8 must be at least the largest demand, 9"),
        (having("CVRP-v0", demands=jnp.zeros(20, jnp.int32)), r"demands \(20,\) must be \(20,\) of integers from 1 on"),
        (having("CVRP-v0", places=jnp.zeros((20, 2))), r"places \(20, 2\) must be \(21, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            made[0].reset(KEY, made[1])


def having(id, **changes):
    env, params = jaxrl.make(id)
    return env, params.replace(**changes)
