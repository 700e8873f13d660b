"""Restless bandits: indices against closed forms and brute force, constraints against exhaustive search."""

import functools
import importlib
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.bandits import coupled, restless
from jaxrl.exact import gittins, whittle

KEY = jax.random.key(0)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


# Jitted once each: arms of 4 states throughout.
indices = jax.jit(jax.vmap(whittle.whittle_index, (0, 0, None)))
averages = jax.jit(jax.vmap(whittle.average_whittle_index))


def random_arms(count, size=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(size), (count, 2, size)), rng.random((count, 2, size))


def advantages(transition, reward, subsidy, discount):
    """Of resting over pulling in each state, for each subsidy: value iteration in NumPy, (subsidies, S)."""
    value = np.zeros((len(subsidy), reward.shape[1]))
    for _ in range(int(np.log(1e-13) / np.log(discount)) + 1):
        rest = reward[0] + subsidy[:, None] + discount * value @ transition[0].T
        pull = reward[1] + discount * value @ transition[1].T
        value = np.maximum(rest, pull)
    return rest - pull


# ---- Whittle


def test_at_its_index_a_state_is_indifferent(x64):
    transition, reward = random_arms(12)
    index, indexable = indices(transition, reward, 0.9)
    assert indexable.all()
    for p, r, row in zip(transition, reward, index, strict=True):
        np.testing.assert_allclose(np.diagonal(advantages(p, r, np.asarray(row), 0.9)), 0, atol=1e-10)


def test_indexability_is_that_of_the_passive_sets_on_a_grid(x64):
    """Arms that move little, of which some are not indexable, against value iteration on a grid of subsidies."""
    rng = np.random.default_rng(3)
    transition, reward = rng.dirichlet(np.full(4, 0.15), (2000, 2, 4)), rng.random((2000, 2, 4)) ** 3
    index, indexable = (np.asarray(x) for x in indices(transition, reward, 0.9))
    subsidy = np.linspace(-12, 12, 1201)
    some = np.concatenate([np.flatnonzero(indexable)[:10], np.flatnonzero(~indexable)[:10]])
    assert len(some) == 20
    for i in some:
        rest = advantages(transition[i], reward[i], subsidy, 0.9) > 1e-9
        assert np.any(rest[:-1] & ~rest[1:]) == (not indexable[i])
        if indexable[i]:
            assert np.all(np.abs(subsidy[np.argmax(rest, 0)] - 0.01 - index[i]) < 0.011)


def test_an_arm_that_is_not_indexable(x64):
    """Found by search: state 0 rests at subsidies from -0.43 to -0.10 and above 1.17, but not between."""
    transition = np.array([[[0, 1, 0], [0.1, 0.3, 0.6], [0.7, 0, 0.3]], [[0, 0, 1], [0.1, 0.9, 0], [1, 0, 0]]])
    reward = np.array([[0.0, 0.2, 0.6], [1.0, 0.9, 0.3]])
    assert not indices(transition[None], reward[None], 0.9).indexable[0]
    rest = advantages(transition, reward, np.array([-0.5, -0.3, 0.0, 1.0, 1.3]), 0.9)[:, 0] > 0
    np.testing.assert_array_equal(rest, [False, True, False, False, True])


def test_rested_arms_have_gittins_indices(x64):
    """An arm that stands still and earns nothing at rest: three methods, one of them the restart problem in NumPy."""
    transition, reward = random_arms(20, seed=1)
    transition[:, 0], reward[:, 0] = np.eye(4), 0
    index, indexable = indices(transition, reward, 0.9)
    assert indexable.all()
    largest = jax.jit(jax.vmap(gittins.gittins_index, (0, 0, None)))(transition[:, 1], reward[:, 1], 0.9)
    np.testing.assert_allclose(index, largest, atol=1e-10)
    for p, r, row in zip(transition[:5, 1], reward[:5, 1], largest, strict=False):
        for state in range(
            4
        ):  # Katehakis and Veinott (1987): (1 - discount) times the value of restarting in the state
            value = np.zeros(4)
            for _ in range(300):
                going_on = r + 0.9 * p @ value
                value = np.maximum(going_on, going_on[state])
            np.testing.assert_allclose(0.1 * value[state], row[state], atol=1e-10)


def machine(size, cost, repair):
    """At rest it ages one step and costs `cost(age)`; a pull costs `repair` and makes it new."""
    age = np.arange(size)
    transition = np.stack([np.eye(size)[np.minimum(age + 1, size - 1)], np.eye(size)[np.zeros(size, int)]])
    return transition, np.stack([-cost(age), np.full(size, -repair)])


def test_machine_maintenance_closed_form(x64):
    """Discounted: the subsidy at which repairing at age n and at n + 1 are worth the same."""
    discount, size, repair = 0.9, 8, 5.0
    transition, reward = machine(size, lambda age: 0.3 * age**1.5, repair)
    d = discount ** np.arange(size + 2)
    aged = np.concatenate([[0], np.cumsum(d[:size] * reward[0])])  # discounted reward of the first n ages
    n = np.arange(size)
    rest = (1 - d) / (1 - discount)
    top = (aged[n + 1] - d[n + 1] * repair) * (1 - d[n + 1]) - (aged[n] - d[n] * repair) * (1 - d[n + 1] * discount)
    bottom = rest[n] * (1 - d[n + 1] * discount) - rest[n + 1] * (1 - d[n + 1])
    index, indexable = indices(transition[None], reward[None], discount)
    assert indexable[0]
    np.testing.assert_allclose(index[0], top / bottom, atol=1e-10)


def test_machine_maintenance_average_reward(x64):
    """Average: cycles of n + 1 and n + 2 steps, so W(n) = (n + 1) c(n) - sum of c before n - repair."""
    transition, reward = machine(8, lambda age: 0.3 * age**1.5, 5.0)
    cost = -reward[0]
    n = np.arange(8)
    expected = (n + 1) * cost - np.concatenate([[0], np.cumsum(cost)[:-1]]) - 5.0
    index, indexable = averages(transition[None], reward[None])
    assert indexable[0]
    np.testing.assert_allclose(index[0], expected, atol=1e-10)


def test_opportunistic_channels_closed_form(x64):
    """Liu and Zhao (2010), theorem on positively correlated Gilbert-Elliott channels, on the chain of beliefs."""
    p01, p11, discount, depth = 0.3, 0.6, 0.8, 20
    belief = [[p01], [p11]]  # after a bad and a good observation, and 0 .. depth - 1 steps without
    for row in belief:
        for _ in range(depth - 1):
            row.append(row[-1] * p11 + (1 - row[-1]) * p01)
    omega = np.concatenate(belief)
    size = 2 * depth
    unseen = np.eye(size)[np.minimum(np.arange(size) + 1, np.repeat([depth - 1, size - 1], depth))]
    seen = (1 - omega)[:, None] * np.eye(size)[0] + omega[:, None] * np.eye(size)[depth]
    reward = np.stack([np.zeros(size), omega])
    index, indexable = jax.jit(whittle.whittle_index)(jnp.stack([unseen, seen]), jnp.asarray(reward), discount)
    assert indexable
    # Above the stationary belief, which the decay from p11 approaches. Rounding orders beliefs closer than 1e-9.
    above = slice(depth + 1, depth + 15)
    np.testing.assert_allclose(index[above], (omega / (1 - discount * p11 + discount * omega))[above], atol=1e-8)
    np.testing.assert_allclose(index[::depth], [p01, p11], atol=1e-10)


def test_average_index_is_the_limit_of_the_discounted(x64):
    transition, reward = random_arms(10, seed=2)
    near = indices(transition, reward, 1 - 1e-7)
    np.testing.assert_allclose(averages(transition, reward).index, near.index, atol=1e-5)


@pytest.mark.parametrize("discount", [0.5, 0.95])
def test_generated_arms_are_indexable(discount, x64):
    env = restless.RestlessBandit(num_arms=100)
    level = jax.jit(env.generate)(jax.random.key(1), env.default_params)
    env.validate(level)
    assert indices(level.transition, level.reward, discount).indexable.all()


# ---- Gittins


@pytest.mark.slow(but_first=3)
@pytest.mark.parametrize(("discount", "index"), [(0.5, 0.5590), (0.9, 0.7029), (0.95, 0.7614), (0.99, 0.8699)])
def test_gittins_index_of_a_uniform_prior(discount, index, x64):
    """Four digits of the book's tables (Beta(1, 1)); the look-ahead is long enough for them all."""
    value = jax.jit(gittins.gittins_bernoulli, static_argnums=3)(1.0, 1.0, discount, 1000)
    assert abs(float(value) - index) < 5e-5


@pytest.mark.slow
def test_gittins_index_of_a_posterior_is_that_of_the_finite_arm(x64):
    """The posterior as a finite chain that stops learning after 12 pulls, by the largest-remaining-index algorithm."""
    depth, discount = 12, 0.6
    states = [(s, f) for s in range(depth + 1) for f in range(depth + 1 - s)]
    number = {state: i for i, state in enumerate(states)}
    mean = np.array([(1 + s) / (2 + s + f) for s, f in states])
    transition = np.zeros((len(states),) * 2)
    for i, (s, f) in enumerate(states):
        last = s + f == depth
        transition[i, i if last else number[s + 1, f]] += mean[i]
        transition[i, i if last else number[s, f + 1]] += 1 - mean[i]
    finite = jax.jit(gittins.gittins_index)(jnp.asarray(transition), jnp.asarray(mean), discount)
    table = gittins.gittins_table(2, discount, 60)
    for s, f in itertools.product(range(2), repeat=2):
        np.testing.assert_allclose(finite[number[s, f]], table[s, f], atol=discount**depth * 0.05)
    np.testing.assert_allclose(finite[number[0, 0]], gittins.gittins_bernoulli(1.0, 1.0, discount, depth), atol=1e-12)


@pytest.mark.slow
def test_the_index_policy_is_bayes_optimal(x64):
    discount, horizon = 0.5, 30
    table = gittins.gittins_table(horizon + 1, discount, 40)

    def by_index(s1, f1, s2, f2):
        i, j, k, m = (jnp.clip(x, 0, horizon).astype(jnp.int32) for x in (s1, f1, s2, f2))
        return table[i, j] >= table[k, m]

    def by_mean(s1, f1, s2, f2):
        return (1 + s1) * (2 + s2 + f2) >= (1 + s2) * (2 + s1 + f1)

    best = gittins.bayes_value(discount, horizon)
    np.testing.assert_allclose(gittins.bayes_value(discount, horizon, by_index), best, atol=1e-8)
    assert gittins.bayes_value(discount, horizon, by_mean) < best - 1e-4


# ---- RestlessBandit-v0


def test_only_the_first_of_too_many_ones_are_pulled():
    action = jnp.asarray([0, 1, 1, 0, 1])
    np.testing.assert_array_equal(restless.first_ones(action, 2), [False, True, True, False, False])
    env = restless.RestlessBandit(num_arms=5, budget=2)
    params = env.default_params
    rested = params.replace(reward=params.reward.at[:, 0].set(0).at[:, 1].set(1))
    _, state = jax.jit(env.reset)(KEY, rested)
    step = jax.jit(env.step)
    for action, reward, infeasible in (([0, 1, 1, 0, 1], 2, True), ([0, 0, 0, 0, 1], 1, False), ([0] * 5, 0, False)):
        ts = step(KEY, state, jnp.asarray(action), rested)
        assert ts.reward == reward and ts.info["infeasible"] == infeasible


def test_arms_move_by_their_own_transition():
    env = restless.RestlessBandit(num_arms=3, num_states=3, budget=1)
    params = env.default_params
    action = jnp.asarray([0, 1, 0])
    _, state = env.reset(KEY, params)
    state = state.replace(arms=jnp.asarray([2, 0, 1], jnp.int32))
    step = jax.jit(jax.vmap(lambda key: env.step(key, state, action, params).obs))
    arms = np.asarray(step(jax.random.split(KEY, 20000)))
    share = np.stack([(arms == s).mean(0) for s in range(3)], 1)
    expected = np.asarray([params.transition[0, 0, 2], params.transition[1, 1, 0], params.transition[2, 0, 1]])
    np.testing.assert_allclose(share, expected, atol=0.02)  # five standard errors
    last = restless.categorical(jnp.asarray([0.999999, 0.0]), jnp.asarray([[0.5, 0.499999], [0.0, 1.0]]))
    np.testing.assert_array_equal(last, [1, 1])


@pytest.mark.slow
def test_whittle_policy_beats_random_and_resting():
    """Averages over 64 runs of 200 steps; the index at the long-run average."""
    env = restless.RestlessBandit(num_arms=10, budget=2)
    params = env.default_params
    index = averages(params.transition, params.reward).index

    def run(key, choose):
        reset_key, key = jax.random.split(key)
        _, state = env.reset(reset_key, params)

        def body(state, key):
            act_key, step_key = jax.random.split(key)
            ts = env.step(step_key, state, choose(act_key, state.arms), params)
            return ts.state, ts.reward

        return jax.lax.scan(body, state, jax.random.split(key, 200))[1].mean()

    policies = {
        "whittle": lambda key, arms: whittle.whittle_action(index, arms, 2),
        "random": lambda key, arms: jnp.zeros(10, jnp.int32).at[jax.random.permutation(key, 10)[:2]].set(1),
        "rest": lambda key, arms: jnp.zeros(10, jnp.int32),
    }
    keys = jax.random.split(KEY, 64)
    mean = {
        name: float(jax.jit(jax.vmap(functools.partial(run, choose=f)))(keys).mean()) for name, f in policies.items()
    }
    assert mean["whittle"] > max(mean["random"], mean["rest"]) + 0.1, mean


@pytest.mark.slow
def test_bad_settings_and_params_raise():
    with pytest.raises(ValueError, match="budget=4"):
        restless.RestlessBandit(num_arms=3, budget=4)
    env = restless.RestlessBandit()
    with pytest.raises(ValueError, match="transition has rows"):
        env.reset(KEY, env.default_params.replace(transition=env.default_params.transition * 2))
    with pytest.raises(ValueError, match="budget=20"):
        coupled.Path(num_arms=20, budget=20)
    with pytest.raises(ValueError, match="interventions=5"):
        coupled.Interventions(interventions=5)
    capacity = coupled.Capacity()
    with pytest.raises(ValueError, match="must be 2"):
        capacity.reset(KEY, capacity.default_params.replace(cost=jnp.full(20, 9, jnp.int32)))


# ---- the coupled ones

SMALL = {
    "interventions": coupled.Interventions(num_arms=8, budget=3, interventions=6),
    "path": coupled.Path(num_arms=8, budget=3),
    "matching": coupled.Matching(num_arms=8, budget=3),
    "capacity": coupled.Capacity(num_arms=8, budget=3),
}


def walk_exists(action, params, budget):
    """Breadth-first search over (node, visited pulled arms)."""
    edge = np.asarray(params.distance) == 1
    wanted = frozenset(np.flatnonzero(action))
    if len(wanted) > budget:
        return False
    depot = int(params.depot)
    front = {(depot, wanted & {depot})}
    for _ in range(2 * budget + 1):
        if (depot, wanted) in front:
            return True
        front |= {(k, seen | (wanted & {k})) for j, seen in front for k in np.flatnonzero(edge[j])}
    return False


def schedule_exists(action, params, budget):
    """Services one after the other, with backtracking over the workers left in each slot."""
    free = np.asarray(params.arm_slots)
    jobs = [j for j in np.flatnonzero(action) for _ in range(2)]

    @functools.cache
    def place(i, left):
        if i == len(jobs):
            return True
        slots = [s for s in np.flatnonzero(free[jobs[i]]) if left[s]]
        return any(place(i + 1, tuple(x - (t == s) for t, x in enumerate(left))) for s in slots)

    return sum(action) <= budget and place(0, tuple(np.asarray(params.worker_slots).sum(0).tolist()))


def packing_exists(action, params, budget):
    """Arms one after the other, with backtracking over the workers."""
    costs = sorted(np.asarray(params.cost)[np.asarray(action) > 0].tolist(), reverse=True)

    @functools.cache
    def place(i, left):
        if i == len(costs):
            return True
        options = {x for x in left if x >= costs[i]}
        return any(
            place(i + 1, tuple(sorted([*left[: left.index(x)], x - costs[i], *left[left.index(x) + 1 :]])))
            for x in options
        )

    return place(0, tuple(sorted(np.asarray(params.capacity).tolist())))


SEARCH = {"path": walk_exists, "matching": schedule_exists, "capacity": packing_exists}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCH)
def test_feasible_is_what_exhaustive_search_finds(name):
    env = SMALL[name]
    actions = jnp.asarray(list(itertools.product([0, 1], repeat=8)), jnp.int32)
    check = jax.jit(jax.vmap(env.feasible, (0, None)))
    generate = jax.jit(env.generate)
    seen = []
    for seed in range(4):
        params = generate(jax.random.key(seed), env.default_params)
        expected = [SEARCH[name](tuple(a), params, env.budget) for a in np.asarray(actions).tolist()]
        np.testing.assert_array_equal(check(actions, params), expected)
        seen += expected
    assert 0.05 < np.mean(seen) < 0.95


@pytest.mark.slow
def test_packing_with_many_workers_is_exact():
    """Random arms and capacities near the limit, where greedy packing fails."""
    rng = np.random.default_rng(0)
    count, arms, workers = 3000, 12, 6
    cost = rng.integers(2, 7, (count, arms)).astype(np.int32)
    capacity = rng.integers(2, 8, (count, workers)).astype(np.int32)
    room = capacity.sum(1, keepdims=True) - rng.integers(0, 3, (count, 1))
    action = (np.cumsum(cost, 1) <= room).astype(np.int32)
    env = coupled.Capacity(num_arms=arms, budget=workers)
    params = env.default_params

    def check(action, cost, capacity):
        return coupled.packable(action, params.replace(cost=cost, capacity=capacity))

    result = np.asarray(jax.jit(jax.vmap(check))(action, cost, capacity))
    for i in range(count):
        level = params.replace(cost=cost[i], capacity=capacity[i])
        assert packing_exists(action[i], level, 0) == result[i], (cost[i], capacity[i], action[i])
    assert 0.1 < result.mean() < 0.9


@pytest.mark.slow
def test_an_infeasible_action_is_no_action():
    for env in SMALL.values():
        params = env.default_params
        _, state = jax.jit(env.reset)(KEY, params)
        none, every = jnp.zeros(env.num_actions, jnp.int32), jnp.ones(env.num_actions, jnp.int32)
        step = jax.jit(env.step)
        rested, flagged = (step(KEY, state, a, params) for a in (none, every))
        assert flagged.info["infeasible"] and not rested.info["infeasible"]
        np.testing.assert_array_equal(rested.obs, flagged.obs)
        assert rested.reward == flagged.reward


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_expected_reward_is_the_mean_and_fill_is_feasible(name):
    env = SMALL[name]
    params = env.default_params

    @jax.jit
    def run(keys):
        _, state = env.reset(KEY, params)
        action = env.fill(jax.random.uniform(jax.random.key(1), (env.num_actions,)), params)
        ts = jax.vmap(lambda key: env.step(key, state, action, params))(keys)
        return action, ts.reward, ts.info["expected_reward"], jnp.any(ts.info["infeasible"])

    action, reward, expected, infeasible = run(jax.random.split(KEY, 4000))
    assert not infeasible and action.sum() > 0
    np.testing.assert_allclose(reward.mean(), expected[0], atol=5 * float(reward.std()) / 4000**0.5 + 1e-5)
    feasible = env.feasible_actions(params)
    assert (feasible == np.asarray(action)).all(1).any() and (feasible.sum(1) == 0).any()


def test_the_sigmoid_link():
    """One intervention saturates a quick arm; slow arms need three together."""
    env = coupled.Interventions()
    params = env.default_params
    quick = np.arange(20) < 10
    effect = np.asarray(params.effect)
    assert set(effect.ravel()) == {0.0, 3.0} and (effect.sum(0) == 9).all()
    assert sorted(effect.sum(1)[quick].tolist())[-3:] == [9, 9, 9] == sorted(effect.sum(1)[~quick].tolist())[-3:]
    climb = {x: np.asarray(coupled.link(jnp.full(20, float(x)), params)) for x in (0, 3, 9)}
    np.testing.assert_allclose(climb[0], 0.01, atol=1e-6)
    height = np.asarray(params.height)
    assert (climb[3][quick] > 0.55 * height[quick]).all() and (climb[3][~quick] < 0.05).all()
    assert (climb[9][~quick] > 0.9 * height[~quick]).all()


@pytest.mark.slow
@pytest.mark.parametrize("size", [(20, 5), (40, 10), (100, 20)])
def test_instances_are_as_the_paper_draws_them(size):
    num_arms, budget = size
    kinds = (coupled.Path, coupled.Matching, coupled.Capacity)
    path, matching, capacity = (kind(num_arms=num_arms, budget=budget) for kind in kinds)
    level = path.default_params
    reward = np.asarray(level.reward)
    assert np.isin(reward[:budget, 3], [4, 5, 6]).all() and np.isin(reward[budget:, 3], [1, 2, 3]).all()
    up = np.asarray(level.up)
    assert up[:, 0].max() < 0.2 and up[:, 1].min() > 0.7 and up[:, 1].max() < 0.9
    distance = np.asarray(level.distance)
    edges = (distance == 1).sum() // 2
    assert distance.max() < num_arms and num_arms - 1 <= edges <= 3 * num_arms - 6  # connected, planar
    np.testing.assert_array_equal(distance, (distance[:, :, None] + distance[None]).min(1))
    slots = matching.default_params
    assert (np.asarray(slots.arm_slots).sum(1) == 2).all() and (np.asarray(slots.worker_slots).sum(1) == 3).all()
    assert np.asarray(slots.arm_slots)[:, 3:].sum() > np.asarray(slots.arm_slots)[:, :2].sum()
    knapsack = capacity.default_params
    assert knapsack.cost.shape == (num_arms,) and knapsack.capacity.shape == (budget,)
    transition, earned = coupled.arm_mdps(level)
    np.testing.assert_allclose(transition.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(earned[0, 1, 2], up[0, 1] * reward[0, 3] + (1 - up[0, 1]) * 0.15, atol=1e-5)


def test_a_tour_of_ten_arms_is_found_exactly():
    """A ring of 20 nodes, once around or there and back."""
    apart = np.abs(np.subtract.outer(np.arange(20), np.arange(20)))
    ring = np.minimum(apart, 20 - apart)
    env = coupled.Path(num_arms=20, budget=10)
    params = env.default_params.replace(distance=jnp.asarray(ring, jnp.int32), depot=jnp.int32(0))
    check = jax.jit(env.feasible)
    whole = jnp.asarray(np.arange(20) % 2, jnp.int32)  # once around, 20 steps
    assert check(whole, params)
    less = coupled.Path(num_arms=20, budget=9)
    assert not jax.jit(less.feasible)(jnp.asarray(np.isin(np.arange(20), range(1, 18, 2)), jnp.int32), params)
    assert jax.jit(less.feasible)(jnp.asarray(np.isin(np.arange(20), [1, 2, 3, 4, 18, 17, 16]), jnp.int32), params)


# ---- the experiment's arg-max


@pytest.mark.slow
def test_the_mixed_integer_program_finds_what_enumeration_finds(monkeypatch):
    """Linear objectives, and a ReLU network of two layers whose weights are drawn at random."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "experiments" / "sequoia"))
    milp = importlib.import_module("milp")
    rng = np.random.default_rng(0)
    for env in SMALL.values():
        params = env.default_params
        actions = env.feasible_actions(params)
        value = rng.normal(size=env.num_actions)
        assert np.isclose(milp.best_linear(env, params, value) @ value, (actions @ value).max())
        sizes = (env.num_actions, 4, 3, 1)
        layers = [(rng.normal(size=(i, o)), rng.normal(size=o)) for i, o in itertools.pairwise(sizes)]

        def network(x, layers=layers):
            for weight, bias in layers[:-1]:
                x = np.maximum(x @ weight + bias, 0)
            return (x @ layers[-1][0] + layers[-1][1])[..., 0]

        found = milp.best_of_network(env, params, layers)
        assert (actions == found).all(1).any()
        assert np.isclose(network(found), network(actions).max(), atol=1e-4)


@pytest.mark.slow
def test_all_feasible_actions_are_enumerated():
    for env in SMALL.values():
        params = env.default_params
        every = np.asarray(list(itertools.product([0, 1], repeat=env.num_actions)), np.int32)
        expected = every[np.asarray(jax.jit(jax.vmap(env.feasible, (0, None)))(every, params))]
        found = env.feasible_actions(params)
        assert {tuple(a) for a in found.tolist()} == {tuple(a) for a in expected.tolist()}
        assert len(found) == len(expected)
    with pytest.raises(ValueError, match="limit=20"):
        env.feasible_actions(params, limit=20)
