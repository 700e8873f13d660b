"""Tabular environments: Gymnasium's tables, simulation against tables, exact values, levels, bad parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.classic.mountain_car import MountainCar
from jaxrl.envs.tabular.chains.chain import Chain
from jaxrl.envs.tabular.chains.combination_lock import CombinationLock, hadamard
from jaxrl.envs.tabular.chains.delayed_chain import DelayedChain
from jaxrl.envs.tabular.chains.river_swim import RiverSwim
from jaxrl.envs.tabular.chains.six_arms import SixArms
from jaxrl.envs.tabular.chains.two_sided_chain import TwoSidedChain
from jaxrl.envs.tabular.chains.two_step_tree import TwoStepTree
from jaxrl.envs.tabular.garnet import Garnet, garnet
from jaxrl.envs.tabular.generalization.discrete_2d import Discrete2D
from jaxrl.envs.tabular.grids import frozen_lake, taxi
from jaxrl.envs.tabular.grids.cliff_walking import CliffWalking
from jaxrl.envs.tabular.grids.darkroom import Darkroom
from jaxrl.envs.tabular.grids.frozen_lake import FrozenLake
from jaxrl.envs.tabular.grids.taxi import Taxi
from jaxrl.envs.tabular.grids.two_goal_grid import TwoGoalGrid
from jaxrl.envs.tabular.grids.windy_gridworld import WindyGridworld
from jaxrl.envs.tabular.grids.windy_walk import WindyWalk
from jaxrl.exact.mdp import TabularState, explore, sticky, tabulate
from jaxrl.exact.solvers import backward_induction, value_iteration
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.golden import golden

KEY = jax.random.key(0)
DETERMINISTIC = [
    CliffWalking(),
    Darkroom(),
    DelayedChain(max_length=6),
    FrozenLake(slippery=False),
    Taxi(),
    TwoGoalGrid(),
    TwoSidedChain(),
    TwoStepTree(),
    WindyGridworld(),
]
STOCHASTIC = [
    Chain(),
    CliffWalking(slippery=True),
    CombinationLock(horizon=4, observation="index"),
    DelayedChain(max_length=6, noisy=True),
    FrozenLake(),
    Garnet(num_states=6),
    RiverSwim(),
    SixArms(),
    Taxi(rainy=True, fickle=True),
    WindyWalk(),
]
table_of = jax.jit(tabulate, static_argnums=0)


@functools.cache
def table(env):
    return jax.device_get(table_of(env, env.default_params))


def name(env):
    return f"{type(env).__name__}-{'stochastic' if not env.hints.deterministic else 'deterministic'}"


# ---- tables


@pytest.mark.slow(but_first=4)
@pytest.mark.parametrize("env", DETERMINISTIC + STOCHASTIC, ids=name)
def test_tables_are_distributions(env):
    mdp = table(env)
    assert mdp.probability.shape[:2] == (env.num_states, env.num_actions)
    assert env.hints.deterministic == (mdp.probability.shape[2] == 1)
    np.testing.assert_allclose(mdp.probability.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(mdp.initial.sum(), 1, atol=1e-6)
    assert mdp.probability.min() >= 0 and mdp.initial.min() >= 0
    assert mdp.next_state.min() >= 0 and mdp.next_state.max() < env.num_states


@pytest.mark.slow(but_first=2)
@pytest.mark.parametrize("env", DETERMINISTIC + STOCHASTIC, ids=name)
def test_simulation_agrees_with_the_table(env):
    """At most 200 states and actions, 500 steps of each (one, if deterministic): frequencies of what follows."""
    params, mdp = env.default_params, table(env)
    rng = np.random.default_rng(0)
    pairs = rng.permutation(env.num_states * env.num_actions)
    pairs = pairs if env.hints.deterministic else pairs[:200]
    states, actions = np.divmod(pairs, env.num_actions)
    n = 1 if env.hints.deterministic else 500

    @jax.jit
    def simulate(key):
        keys = jax.random.split(key, (n, len(pairs)))
        step = lambda key, s, a: env.step(key, TabularState(jnp.int32(0), s), a, params)  # noqa: E731
        ts = jax.vmap(jax.vmap(step), (0, None, None))(keys, jnp.asarray(states, jnp.int32), jnp.asarray(actions))
        first = jax.vmap(lambda key: env.initial(key, params).index)(keys.reshape(-1))
        return ts.state.index, ts.reward, ts.terminated, first

    index, reward, terminated, first = jax.device_get(simulate(KEY))
    for i, (s, a) in enumerate(zip(states, actions, strict=True)):
        expected, found = {}, {}
        for p, *outcome in zip(*(x[s, a].tolist() for x in mdp_leaves(mdp)), strict=True):
            expected[tuple(outcome)] = min(expected.get(tuple(outcome), 0) + p, 1)
        for outcome in zip(*(x[:, i].tolist() for x in (index, reward, terminated)), strict=True):
            found[outcome] = found.get(outcome, 0) + 1 / n
        for outcome in expected.keys() | found.keys():
            p = expected.get(outcome, 0)
            error = abs(found.get(outcome, 0) - p)
            assert error <= 5.5 * np.sqrt(p * (1 - p) / n) + (2 / n if 0 < p < 1 else 1e-5), (s, a, outcome, p, error)
    frequency = np.bincount(first, minlength=env.num_states) / len(first)
    spread = np.sqrt(mdp.initial * (1 - mdp.initial) / len(first))
    assert np.all(np.abs(frequency - mdp.initial) <= 5 * spread + 3 / len(first))
    assert np.all(frequency[mdp.initial == 0] == 0)


def mdp_leaves(mdp):
    return mdp.probability, mdp.next_state, mdp.reward, mdp.terminated


# ---- Gymnasium's toy text


def merged(probability, next_state, reward, terminated):
    """Rows (state, action, next state, reward, terminated) without repetition, and their probabilities."""
    S, A, K = probability.shape
    s, a, _ = np.indices((S, A, K))
    rows = np.stack([x.reshape(-1).astype(np.float64) for x in (s, a, next_state, reward, terminated)], 1)
    kept = probability.reshape(-1) > 0
    rows, where = np.unique(rows[kept], axis=0, return_inverse=True)
    return rows, np.bincount(where.reshape(-1), probability.reshape(-1)[kept])


def other_lake():
    params = FrozenLake(rows=3, columns=5).default_params
    tiles = frozen_lake.parse(["SFFHF", "FFFFS", "HFHGF"])
    numbers = dict(success_rate=0.7, goal_reward=2.0, hole_reward=-1.0, frozen_reward=-0.25)
    return params.replace(tiles=tiles, **{key: jnp.array(value, float) for key, value in numbers.items()})


CASES = {
    "CliffWalking": (CliffWalking(), dict),
    "CliffWalkingSlippery": (CliffWalking(slippery=True), dict),
    "FrozenLake": (FrozenLake(), dict),
    "FrozenLakeDry": (FrozenLake(slippery=False), dict),
    "FrozenLake8x8": (FrozenLake(rows=8, columns=8), dict),
    "FrozenLakeOther": (FrozenLake(rows=3, columns=5), other_lake),
    "Taxi": (Taxi(), dict),
    "TaxiRainy": (Taxi(rainy=True), lambda: {"rainy_probability": jnp.array(0.75, float)}),
    "TaxiFickle": (Taxi(fickle=True), lambda: {"fickle_probability": jnp.array(0.4, float)}),
    "TaxiRainyFickle": (Taxi(rainy=True, fickle=True), dict),
}


@pytest.mark.slow(but_first=2)
@pytest.mark.parametrize("case", CASES)
def test_tables_are_gymnasiums(case):
    data = golden("tabular")
    env, changes = CASES[case]
    with jax.enable_x64(True):
        change = changes()
        params = env.default_params.replace(**change) if isinstance(change, dict) else change
        env.validate(params)
        mdp = jax.device_get(table_of(env, params))
    reference = [data[f"{case}/{key}"] for key in ("probability", "next_state", "reward", "terminated")]
    rows, probability = merged(*mdp_leaves(mdp))
    wanted_rows, wanted_probability = merged(*reference)
    np.testing.assert_array_equal(rows, wanted_rows)
    # The reference adds thirds in another order.
    np.testing.assert_allclose(probability, wanted_probability, rtol=0, atol=3e-16)
    np.testing.assert_allclose(mdp.initial, data[f"{case}/initial"], rtol=0, atol=3e-16)


def test_action_masks_are_gymnasiums():
    params = Taxi().default_params
    mask = jax.jit(jax.vmap(taxi.action_mask, (0, None)))(jnp.arange(500), params)
    np.testing.assert_array_equal(mask, golden("tabular")["Taxi/action_mask"])


def numpy_value(probability, next_state, reward, terminated, gamma=1.0, sweeps=5000):
    value = np.zeros(len(probability))
    for _ in range(sweeps):
        new = np.max(np.sum(probability * (reward + gamma * np.where(terminated, 0, value[next_state])), -1), -1)
        if np.abs(new - value).max() < 1e-13:
            break
        value = new
    return value


@pytest.mark.slow(but_first=2)
@pytest.mark.parametrize(
    ("case", "known"), [("CliffWalking", -13), ("FrozenLake", 0.8235), ("FrozenLake8x8", None), ("Taxi", 7.93)]
)
def test_optimal_values_of_toy_text(case, known):
    data = golden("tabular")
    keys = ("probability", "next_state", "reward", "terminated")
    wanted = data[f"{case}/initial"] @ numpy_value(*(data[f"{case}/{key}"] for key in keys))
    env, _ = CASES[case]
    mdp = table_of(env, env.default_params)
    found = mdp.initial @ value_iteration(mdp, 1.0, tol=1e-7).value
    np.testing.assert_allclose(found, wanted, atol=2e-4)
    if known is not None:
        np.testing.assert_allclose(wanted, known, atol=5e-3)


# ---- exact values


def start_value(env, gamma, params=None):
    mdp = table_of(env, env.default_params if params is None else params)
    return float(mdp.initial @ value_iteration(mdp, gamma, tol=1e-6).value)


@pytest.mark.slow(but_first=3)
@pytest.mark.parametrize(
    ("env", "gamma", "value"),
    [
        (TwoSidedChain(), 0.9, 10 * 0.9**2 - 0.01 * (1 + 0.9)),  # undiscounted, walking on the left pays for ever
        (TwoStepTree(), 1, 2),
        (TwoGoalGrid(), 1, 1 - 3 * 0.01),
        (WindyGridworld(), 1, -15),
        (CombinationLock(horizon=4, observation="index"), 1, 1),
        (DelayedChain(max_length=6), 1, 1),
        (DelayedChain(max_length=6, noisy=True), 1, 1),
    ],
    ids=lambda x: type(x).__name__,
)
def test_values_from_the_start(env, gamma, value):
    np.testing.assert_allclose(start_value(env, float(gamma)), value, rtol=1e-5)


def test_chain_earns_what_is_known():
    """Strens (2000): always going on is optimal, which earns 3677 in 1000 steps, 0.8^5 10 + 0.2 2 a step."""
    value, _, policy = backward_induction(table_of(Chain(), Chain().default_params), 1000)
    np.testing.assert_allclose(value[0, 0] - value[1, 0], 0.8**5 * 10 + 0.2 * 2, rtol=1e-3)
    assert np.all(policy[:900] == 0)
    swapped = Chain().default_params.replace(slip=jnp.float32(1))
    # In the first state both ways of seeing it agree: 1 is now on, 0 is back.
    np.testing.assert_allclose(start_value(Chain(), 0.95, swapped), 10 / 0.05 * 0.95**4, rtol=1e-5)


def test_six_arms_closed_form():
    """Enter arm i again and again, then play it for ever: v0 = p g v_i / (1 - g (1 - p)), v_i = r / (1 - g)."""
    params, gamma = SixArms().default_params, 0.95
    p, r = np.asarray(params.enter, np.float64), np.asarray(params.reward, np.float64)
    values = p * gamma * r / (1 - gamma) / (1 - gamma * (1 - p))
    assert values.argmax() == 5
    np.testing.assert_allclose(start_value(SixArms(), gamma), values.max(), rtol=1e-4)
    worse = params.replace(reward=params.reward.at[5].set(1000.0))
    np.testing.assert_allclose(start_value(SixArms(), gamma, worse), values[:5].max(), rtol=1e-4)


def test_river_swim_right_for_ever():
    mdp = table_of(RiverSwim(), RiverSwim().default_params)
    dense = mdp.dense()
    P, r = np.asarray(dense.transition[:, 1], np.float64), np.asarray(dense.reward[:, 1], np.float64)
    wanted = np.linalg.solve(np.eye(6) - 0.99 * P, r)
    solution = value_iteration(mdp, 0.99, tol=1e-5)
    np.testing.assert_array_equal(solution.policy, 1)
    np.testing.assert_allclose(solution.value, wanted, rtol=1e-4)


def test_windy_walk_goes_farther_the_stronger_the_wind():
    """Crossing a corridor: T_0 = 1 step on without wind, T_i = (1 + w T_(i-1)) / (1 - w) from the i-th cell with it."""
    env, alpha = WindyWalk(), np.array([0.0, 0.08, 0.1, 0.45, 0.47, 0.5])

    def steps(wind):
        times = [np.ones_like(wind)]
        for _ in range(env.columns - 2):
            times.append((1 + wind * times[-1]) / (1 - wind))
        return sum(times)

    wanted = np.stack([steps(alpha), steps(alpha**3) + 4, steps(alpha**6) + 8])  # and the way down and up again
    np.testing.assert_array_equal(wanted.argmin(0), [0, 0, 1, 1, 2, 2])
    with jax.enable_x64(True):
        solve = lambda alpha: tabulate(env, env.default_params.replace(alpha=alpha))  # noqa: E731
        mdps = jax.jit(jax.vmap(solve))(jnp.asarray(alpha))
        solution = jax.jit(jax.vmap(lambda mdp: value_iteration(mdp, 1.0, tol=1e-10)))(mdps)
    np.testing.assert_allclose(solution.value[:, 0], -wanted.min(0), rtol=1e-7)
    right, down = 1, 2
    np.testing.assert_array_equal(solution.policy[:, 0], [right, right, down, down, down, down])  # top corridor
    np.testing.assert_array_equal(solution.policy[2:, 2 * env.columns], [right, right, down, down])  # middle one


# ---- explore, sticky


@pytest.mark.slow
@pytest.mark.parametrize("env", [CliffWalking(), TwoGoalGrid()], ids=name)
def test_explore_is_tabulate_renumbered(env):
    params, mdp = env.default_params, table(env)
    found, states = explore(env, params)
    number = np.asarray(states.index)
    ends = mdp.terminated[number]
    np.testing.assert_array_equal(found.reward, mdp.reward[number])
    np.testing.assert_array_equal(found.terminated, ends)
    np.testing.assert_array_equal(number[found.next_state][~ends], mdp.next_state[number][~ends])
    np.testing.assert_array_equal(found.initial, mdp.initial[number])
    # Cells that are only entered as the end of an episode, or never, are no states.
    assert found.num_states == (37 if isinstance(env, CliffWalking) else 23)


@pytest.mark.slow
def test_explore_refuses_what_has_no_table():
    with pytest.raises(ValueError, match="deterministic"):
        explore(Chain(), Chain().default_params)
    with pytest.raises(ValueError, match="max_states=300"):
        explore(MountainCar(), MountainCar().default_params, max_states=300)


def test_sticky_against_simulation():
    """Uniformly random actions, repeated with probability 0.4: where the agent is, and its return, after each step."""
    env = TwoGoalGrid()
    base, T, n, p = table(env), 8, 40_000, 0.4
    mdp = jax.device_get(sticky(jax.tree.map(jnp.asarray, base), p))
    A = env.num_actions
    mass, expected_reward = mdp.initial.astype(np.float64), []
    for _ in range(T):
        flow = mass[:, None, None] / A * mdp.probability
        expected_reward.append((flow * mdp.reward).sum())
        flow = np.where(mdp.terminated, 0, flow)
        mass = np.bincount(mdp.next_state.reshape(-1), flow.reshape(-1), mdp.num_states)
    rng = np.random.default_rng(0)
    state, previous, alive = np.full(n, env.middle), np.full(n, -1), np.ones(n, bool)
    for t in range(T):
        action = rng.integers(A, size=n)
        action = np.where((rng.random(n) < p) & (previous >= 0), previous, action)
        reward = np.where(alive, base.reward[state, action, 0], 0)
        np.testing.assert_allclose(reward.mean(), expected_reward[t], atol=5 * max(reward.std(), 1e-4) / np.sqrt(n))
        alive = alive & ~base.terminated[state, action, 0]
        state, previous = base.next_state[state, action, 0], action
    place = np.bincount((state * (A + 1) + previous)[alive], minlength=mdp.num_states) / n
    np.testing.assert_allclose(place, mass, atol=5 * np.sqrt(0.1 / n))
    assert abs(alive.mean() - mass.sum()) < 5 / np.sqrt(n)


# ---- levels


def reachable(tiles):
    """From every start to some goal, by search."""
    rows, columns = tiles.shape
    for start in zip(*np.nonzero(tiles == frozen_lake.START), strict=True):
        seen, frontier = {start}, [start]
        while frontier:
            r, c = frontier.pop()
            for cell in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
                inside = 0 <= cell[0] < rows and 0 <= cell[1] < columns
                if inside and cell not in seen and tiles[cell] != frozen_lake.HOLE:
                    seen.add(cell)
                    frontier.append(cell)
        if not any(tiles[cell] == frozen_lake.GOAL for cell in seen):
            return False
    return bool((tiles == frozen_lake.START).any())


@pytest.mark.slow
def test_frozen_lake_levels():
    env = FrozenLake(rows=5, columns=6)
    params = env.default_params
    tiles = np.random.default_rng(0).choice(4, (200, 5, 6), p=[0.5, 0.05, 0.35, 0.1]).astype(np.int32)
    wanted = [reachable(x) for x in tiles]
    assert 0.2 < np.mean(wanted) < 0.8
    np.testing.assert_array_equal(jax.jit(jax.vmap(frozen_lake.solvable))(tiles), wanted)

    @jax.jit
    def levels(key):
        drawn = jax.vmap(env.generate, (0, None))(jax.random.split(key, 200), params)
        changed = jax.vmap(env.mutate)(jax.random.split(jax.random.fold_in(key, 1), 200), drawn)
        full = env.generate(key, params.replace(hole_probability=jnp.float32(1)))
        return drawn.tiles, changed.tiles, full.tiles, jax.vmap(env.optimal_value, (0, None))(drawn, 0.95)

    drawn, changed, full, value = jax.device_get(levels(KEY))
    assert all(reachable(x) for x in drawn) and all(reachable(x) for x in changed) and reachable(full)
    assert (full == frozen_lake.HOLE).sum() == 30 - 10  # a way along the border
    assert np.all(drawn[:, 0, 0] == frozen_lake.START) and np.all(drawn[:, -1, -1] == frozen_lake.GOAL)
    assert 0.1 < (drawn == frozen_lake.HOLE).mean() < 0.2  # solvable ones have fewer
    difference = (drawn != changed).sum((1, 2))
    assert difference.max() == 1 and 0.5 < difference.mean() < 1
    assert np.all(value > 0) and len(np.unique(value)) > 100


def test_garnet_successors():
    S, A, K = 7, 3, 4
    mdp = jax.device_get(jax.jit(jax.vmap(lambda key: garnet(key, S, A, K)))(jax.random.split(KEY, 3000)))
    ordered = np.sort(mdp.next_state, -1)
    assert np.all(np.diff(ordered, axis=-1) > 0)
    sets, count = np.unique(ordered.reshape(-1, K), axis=0, return_counts=True)
    assert len(sets) == 35  # 7 over 4, equally likely
    np.testing.assert_allclose(count / count.sum(), 1 / 35, atol=5 * np.sqrt(1 / 35 / count.sum()))
    np.testing.assert_allclose(mdp.probability.sum(-1), 1, atol=1e-6)
    # A piece of K has the distribution Beta(1, K - 1).
    np.testing.assert_allclose(mdp.probability.mean((0, 1, 2)), 1 / K, atol=0.005)
    np.testing.assert_allclose(mdp.probability.var((0, 1, 2)), (K - 1) / K**2 / (K + 1), atol=0.002)
    np.testing.assert_allclose([mdp.reward.mean(), mdp.reward.std()], [0, 1], atol=0.02)
    everything = garnet(KEY, 3, 2, 3)
    np.testing.assert_array_equal(np.sort(everything.next_state, -1), np.broadcast_to(np.arange(3), (3, 2, 3)))


def test_darkroom_optimal_actions_earn_the_optimal_value():
    env = Darkroom(size=6)

    @jax.jit
    def run(key, permuted):
        drawn = env.generate(key, env.default_params), env.generate_permuted(key, env.default_params)
        params = jax.tree.map(lambda a, b: jnp.where(permuted, b, a), *drawn).replace(max_steps=jnp.int32(15))
        obs, state = env.reset(key, params)

        def step(carry, _):
            obs, state = carry
            ts = env.step(key, state, env.optimal_action(obs, params), params)
            return (ts.obs, ts.state), (ts.reward, ts.truncated)

        _, (reward, truncated) = jax.lax.scan(step, (obs, state), length=15)
        return reward.sum(), env.optimal_value(params), truncated, params.goal, params.meaning

    keys, permuted = jax.random.split(KEY, 200), jnp.arange(200) < 100
    total, value, truncated, goal, meaning = jax.device_get(jax.vmap(run)(keys, permuted))
    np.testing.assert_array_equal(total, value)
    assert truncated[:, -1].all() and not truncated[:, :-1].any()
    assert np.all(goal[:100] == 35) and len(np.unique(goal[100:])) > 25
    assert len(np.unique(meaning[:100], axis=0)) > 50 and np.all(meaning[100:] == np.arange(5))
    solved = table_of(env, env.default_params.replace(goal=jnp.int32(13)))
    value, _, _ = backward_induction(solved, 15)
    assert float(value[0, 0]) == 15 - (13 // 6 + 13 % 6) + 1


def test_delayed_chain_levels_and_distraction():
    env = DelayedChain(distractor_bits=20)
    params = env.default_params

    @jax.jit
    def draw(key):
        level = env.generate(key, params)
        obs, state = env.reset(key, level)
        right = env.step(key, state, level.right_action, level)
        wrong = env.step(key, state, 1 - level.right_action, level)
        return level.length, level.right_action, obs, right.obs, wrong.obs

    length, action, first, right, wrong = jax.device_get(jax.vmap(draw)(jax.random.split(KEY, 2000)))
    np.testing.assert_array_equal(np.unique(length), np.arange(5, 31))
    assert 0.45 < action.mean() < 0.55
    for obs, bits in ((first, (True, False)), (right, (False, True)), (wrong, (False, False))):
        np.testing.assert_array_equal(obs[:, :2], np.broadcast_to(bits, (2000, 2)))
        np.testing.assert_allclose(obs[:, 2:].mean(0), 0.5, atol=0.06)
    short = DelayedChain(max_length=6).default_params.replace(length=jnp.int32(4), right_action=jnp.int32(1))
    assert start_value(DelayedChain(max_length=6), 0.5, short) == 0.5**3
    assert DelayedChain(max_length=6).optimal_value(short, 0.5) == 0.5**3


@pytest.mark.parametrize(
    "env", [CombinationLock(horizon=4), Darkroom(), DelayedChain(), FrozenLake(), Garnet(num_states=6)], ids=name
)
def test_generators_use_keys_once(env):
    level = assert_no_key_reuse(lambda key: env.generate(key, env.default_params), jax.random.key(1))
    env.validate(level)


def test_combination_lock_observation():
    env = CombinationLock(horizon=6)
    params = env.default_params
    R = hadamard(16)
    np.testing.assert_array_equal(R @ R.T, 16 * np.eye(16))
    observe = jax.jit(jax.vmap(env.observe, (0, None, None)))
    state = TabularState(jnp.int32(2), jnp.int32(3 * 2 + 1))  # level 2, B
    obs = observe(jax.random.split(KEY, 4000), state, params)
    assert obs.shape == (4000, env.size) == (4000, 16)
    hidden = np.asarray(obs, np.float64) @ R / 16
    wanted = np.zeros(16)
    wanted[[1, 3 + 2]] = 1
    np.testing.assert_allclose(hidden.mean(0), wanted, atol=0.01)
    np.testing.assert_allclose(hidden.std(0), [0.1] * 9 + [0] * 7, atol=0.005)
    other = env.generate(jax.random.key(1), params)
    assert other.good_actions.shape == (2, 6) and np.any(other.good_actions != params.good_actions)


def test_taxi_hides_the_passengers_mood():
    env = Taxi(fickle=True)
    state = TabularState(jnp.int32(0), jnp.int32(500 + 123))
    assert int(env.observe(KEY, state, env.default_params)) == 123
    assert env.observation_space(env.default_params).n == 500


# ---- Discrete2D


def test_discrete_2d_is_the_reference_formula():
    env = Discrete2D()
    params = env.default_params
    actions = np.random.default_rng(0).integers(100, size=500)

    @jax.jit
    def run(keys):
        _, first = jax.vmap(env.reset, (0, None))(keys, params)
        return first, jax.vmap(env.step, (None, 0, 0, None))(KEY, first, jnp.asarray(actions), params)

    first, ts = jax.device_get(run(jax.random.split(KEY, 500)))
    theta = np.linspace(0, 2 * np.pi, 100)[actions]
    where = np.stack([first.x, first.y], 1) + 0.05 * np.stack([np.sin(theta), np.cos(theta)], 1)
    where = np.clip(where, -1, 1)
    goal = np.stack([first.goal_x, first.goal_y], 1)
    distance = np.linalg.norm(where - goal, axis=1)
    np.testing.assert_allclose(ts.obs, np.concatenate([where, goal], 1), atol=1e-6)
    np.testing.assert_allclose(ts.reward, -distance, atol=1e-6)
    np.testing.assert_array_equal(ts.terminated, distance < 0.05)
    assert np.all(np.hypot(first.x - first.goal_x, first.y - first.goal_y) >= 0.05)
    np.testing.assert_allclose(np.std(first.x), 1 / np.sqrt(3), atol=0.05)


# ---- bad parameters


@pytest.mark.parametrize(
    ("env", "change", "message"),
    [
        (Chain(), {"slip": 1.5}, "slip"),
        (SixArms(), {"enter": np.full(6, -0.1)}, "enter"),
        (SixArms(), {"reward": np.ones(5)}, "reward"),
        (CliffWalking(), {"success_rate": -0.1}, "success_rate"),
        (FrozenLake(), {"tiles": np.full((4, 4), frozen_lake.HOLE, np.int32)}, "START"),
        (FrozenLake(), {"tiles": np.zeros((8, 8), np.int32)}, "tiles"),
        (FrozenLake(), {"tiles": np.full((4, 4), 7, np.int32)}, "tiles"),
        (Taxi(), {"places": np.zeros((4, 2), np.int32)}, "different"),
        (CombinationLock(), {"good_actions": np.full((2, 50), 10)}, "good_actions"),
        (CombinationLock(), {"noise": -1.0}, "noise"),
        (WindyWalk(), {"alpha": 2.0}, "alpha"),
        (WindyGridworld(), {"goal": 70}, "goal"),
        (DelayedChain(), {"length": 31}, "length"),
        (DelayedChain(), {"right_action": 2}, "right_action"),
        (TwoStepTree(), {"reward": np.ones(3)}, "reward"),
        (Darkroom(), {"meaning": np.array([0, 1, 2, 3, 3])}, "permutation"),
        (Darkroom(), {"goal": 100}, "goal"),
        (Discrete2D(), {"radius": 0.0}, "radius"),
    ],
)
def test_bad_parameters_are_refused(env, change, message):
    with pytest.raises(ValueError, match=message):
        env.reset(KEY, env.default_params.replace(**change))


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="observation"):
        CombinationLock(observation="image")
    with pytest.raises(ValueError, match="branching"):
        Garnet(num_states=3, branching=4)
    with pytest.raises(ValueError, match="letters"):
        frozen_lake.parse(["SFX", "FFG"])
    with pytest.raises(ValueError, match="length"):
        frozen_lake.parse(["SF", "FFG"])
