"""Tabular learners against hand-computed updates, Monte Carlo averages and exact solutions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import train
from jaxrl.algos.tabular import dyna_q, psrl, q_learning, r_max, sarsa, ucb_vi
from jaxrl.envs.tabular.chains.chain import Chain
from jaxrl.envs.tabular.chains.river_swim import RiverSwim
from jaxrl.exact.mdp import MDP, as_environment, tabulate
from jaxrl.exact.solvers import backward_induction, bellman, evaluate_policy, value_iteration
from jaxrl.online import Experience
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse

RIVER = RiverSwim()
H = 20  # RiverSwim's time limit
KEY = jax.random.key(0)


def random_mdp(seed, S=4, A=2, K=3, ends=0.2):
    """A random MDP whose episodes end with probability `ends` a step."""
    rng = np.random.default_rng(seed)
    probability = rng.dirichlet(np.ones(K), (S, A))
    return MDP(
        jnp.asarray(np.concatenate([(1 - ends) * probability, np.full((S, A, 1), ends)], -1), jnp.float32),
        jnp.asarray(rng.integers(0, S, (S, A, K + 1)), jnp.int32),
        jnp.asarray(rng.random((S, A, K + 1)), jnp.float32),
        jnp.broadcast_to(jnp.arange(K + 1) == K, (S, A, K + 1)),
        jnp.full(S, 1 / S),
    )


def chain(length, num_actions, rng):
    """States in a row with random rewards; every action moves on, the last state ends."""
    shape = (length, num_actions, 1)
    s = jnp.broadcast_to(jnp.arange(length)[:, None, None], shape)
    reward = jnp.asarray(rng.normal(size=shape), jnp.float32)
    start = jnp.zeros(length).at[0].set(1)
    return MDP(jnp.ones(shape), jnp.minimum(s + 1, length - 1).astype(jnp.int32), reward, s == length - 1, start)


ENV, PARAMS = as_environment(random_mdp(0))


def experience(obs, action, reward, next_obs, terminated=False, truncated=False):
    return Experience(
        jnp.int32(obs),
        jnp.int32(action),
        jnp.float32(reward),
        jnp.int32(next_obs),
        jnp.bool_(terminated),
        jnp.bool_(truncated),
    )


def rollouts(module, env, **config):
    """`(algo, init, learn)`: `learn(state, experience)` through the public functions, with one environment."""
    algo = module.make(env, module.Config(**config))
    learn = jax.jit(algo.learn)

    def feed(state, x):
        _, rollout = algo.collect(state)
        rollout = rollout._replace(experience=jax.tree.map(lambda x: x[None], x))
        return learn(state, rollout)[0]

    return algo, partial(algo.init, KEY), feed


# ---- hand-computed updates


@pytest.mark.slow
@pytest.mark.light
def test_sarsa_updates_by_the_action_that_is_taken():
    _, init, feed = rollouts(sarsa, RIVER)
    hyper = sarsa.Hyper(learning_rate=0.5, gamma=0.9, trace_decay=0.5)
    state = feed(init(hyper), experience(0, 1, 1.0, 1))
    np.testing.assert_array_equal(state.weights.q, 0)  # the next action is not known
    state = feed(state, experience(1, 0, 2.0, 2))
    # delta = 1 + 0.9 Q(1, 0) - Q(0, 1) = 1
    assert state.weights.q[0, 1] == 0.5
    state = feed(state, experience(2, 1, 4.0, 0, terminated=True))
    # of (1, 0): delta = 2 + 0 - 0, trace of (0, 1) 0.45; of (2, 1): delta = 4, traces 1, 0.45 and 0.2025
    np.testing.assert_allclose(state.weights.q[0, 1], 0.5 + 0.5 * 2 * 0.45 + 0.5 * 4 * 0.2025, rtol=1e-6)
    np.testing.assert_allclose(state.weights.q[1, 0], 0.5 * 2 + 0.5 * 4 * 0.45, rtol=1e-6)
    np.testing.assert_allclose(state.weights.q[2, 1], 2.0, rtol=1e-6)
    np.testing.assert_array_equal(state.weights.trace, 0)


@pytest.mark.parametrize("kind, twice", [("accumulating", 1.45), ("replacing", 1.0), ("dutch", 0.45 + 1 - 0.5 * 0.45)])
def test_traces_of_a_second_visit(kind, twice):
    trace = jnp.zeros((2, 2)).at[0, 1].set(1.0).at[1, 1].set(0.5)
    new = sarsa.mark(trace, jnp.int32(0), jnp.int32(1), jnp.float32(0.5), jnp.float32(0.45), kind)
    np.testing.assert_allclose(new, [[0, twice], [0, 0.225]], rtol=1e-6)


@pytest.mark.slow
def test_expected_sarsa_bootstraps_from_the_mean_of_its_policy():
    _, init, feed = rollouts(sarsa, RIVER, expected=True)
    hyper = sarsa.Hyper(learning_rate=0.5, gamma=0.9, epsilon_start=0.4, epsilon_end=0.4)
    state = init(hyper)
    state = state.replace(weights=state.weights.replace(q=state.weights.q.at[1].set(jnp.array([2.0, 1.0]))))
    state = feed(state, experience(0, 1, 1.0, 1))
    np.testing.assert_allclose(state.weights.q[0, 1], 0.5 * (1 + 0.9 * (0.8 * 2 + 0.2 * 1)), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.light
def test_dyna_q_plans_with_what_it_saw():
    """One pair is known, so every planning step updates it; the end of an episode is worth nothing."""
    _, init, feed = rollouts(dyna_q, RIVER, planning_steps=3)
    hyper = dyna_q.Hyper(learning_rate=0.5, gamma=0.9)
    state = init(hyper)
    state = state.replace(weights=state.weights.replace(q=state.weights.q.at[3].set(7.0)))
    state = feed(state, experience(2, 1, 1.0, 3, terminated=True))
    np.testing.assert_allclose(state.weights.q[2, 1], 1 - 0.5**4, rtol=1e-6)
    np.testing.assert_array_equal(state.weights.seen, [2, 6, 6, 6, 6, 6])
    assert int(state.weights.num_seen) == 1 and int(state.weights.next_state[2, 1]) == 6


def test_dyna_q_plus_rewards_what_was_not_tried_for_long():
    """An action never taken leads back to its state; with n planning steps k of them update it."""
    _, init, feed = rollouts(dyna_q, RIVER, planning_steps=40, untried=True)
    state = feed(init(dyna_q.Hyper(learning_rate=1.0, gamma=0.0, bonus=0.25)), experience(2, 1, 1.0, 3))
    # one step has passed: sqrt(1 - 0) for the untried one, sqrt(0) for the other
    np.testing.assert_allclose(state.weights.q[2], [0.25, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(jnp.delete(state.weights.q, 2, axis=0), 0)


def test_ucb_vi_hoeffding_by_hand():
    """After one episode of two steps, 0 -> 1 -> 1 with rewards 0.25 and 0.5, H = 2."""
    _, init, feed = rollouts(ucb_vi, RIVER, horizon=2)
    hyper = ucb_vi.Hyper(bonus_scale=0.001, delta=0.1, total_steps=100.0)
    state = feed(init(hyper), experience(0, 0, 0.25, 1))
    np.testing.assert_array_equal(state.weights.q, 2)  # plans are made between episodes
    state = feed(state, experience(1, 0, 0.5, 1, truncated=True))
    bonus = 0.001 * 7 * 2 * np.log(5 * 6 * 2 * 100 / 0.1)
    want = np.full((2, 6, 2), 2.0)  # of pairs never tried, H
    want[1, :2, 0] = [0.25 + bonus, 0.5 + bonus]
    want[0, :2, 0] = np.minimum(np.array([0.25, 0.5]) + 2 + bonus, 2)  # state 1 is worth 2, by its other action
    np.testing.assert_allclose(state.weights.q, want, rtol=1e-5)


def test_ucb_vi_bernstein_by_hand():
    n, L, horizon = jnp.full((2, 1), 4.0), 3.0, 2
    transition, value, visits = jnp.full((2, 1, 2), 0.25).at[..., 1].set(0.5), jnp.array([1.0, 2.0]), [1.0, 1e7]
    out = ucb_vi.bernstein(n, transition, value, jnp.array(visits), jnp.float32(L), horizon)
    variance = 0.25 * 1 + 0.5 * 4 - 1.25**2
    per_state = np.minimum(100.0**2 * 2**3 * 2**2 * 1 * L**2 / np.array(visits), 2**2)
    want = np.sqrt(8 * L * variance / 4) + 14 * 2 * L / 12 + np.sqrt(8 * np.dot([0.25, 0.5], per_state) / 4)
    np.testing.assert_allclose(out, np.full((2, 1), want), rtol=1e-5)


def test_psrl_posterior_of_rewards():
    """The conjugate update against the textbook's (Murphy 2007, eqs. 85 to 89) for three rewards."""
    r, hyper = np.array([1.0, 2.0, 4.5]), psrl.Hyper(reward_mean=0.5, reward_weight=2.0)
    mu, kappa, a, b = psrl.reward_posterior(
        jnp.full((1, 1), 3.0), jnp.full((1, 1), r.mean()), jnp.full((1, 1), ((r - r.mean()) ** 2).sum()), hyper
    )
    want = (2 * 0.5 + r.sum()) / 5, 5, 2.5, 0.1 + ((r - 2.5) ** 2).sum() / 2 + 2 * 3 * (2.5 - 0.5) ** 2 / (2 * 5)
    np.testing.assert_allclose([mu[0, 0], kappa[0, 0], a[0, 0], b[0, 0]], want, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.light
def test_psrl_draws_from_the_posterior():
    """Means of many drawn MDPs: (concentration + count) / total and the posterior mean reward."""
    algo = psrl.make(ENV, psrl.Config(horizon=20))
    weights = algo.init(KEY, psrl.Hyper(), PARAMS).weights
    count = weights.count.at[1, 0].set(jnp.array([1.0, 0, 3, 0, 2]))
    weights = weights.replace(count=count, mean=weights.mean.at[1, 0].set(0.8))
    draw = jax.jit(jax.vmap(lambda key: psrl.sample_mdp(key, weights, psrl.Hyper())))
    mdps = draw(jax.random.split(KEY, 4000))
    np.testing.assert_allclose(mdps.transition.mean(0)[1, 0], (0.2 + np.array([1, 0, 3, 0])) / 7, atol=0.01)
    np.testing.assert_allclose(mdps.reward.mean(0)[1, 0], (0.5 + 6 * 0.8) / 7, atol=0.01)
    assert np.all(np.isfinite(mdps.transition)) and np.all(mdps.transition.sum(-1) <= 1 + 1e-5)


@pytest.mark.slow
@pytest.mark.light
def test_r_max_knows_after_m_samples():
    _, init, feed = rollouts(r_max, RIVER)
    hyper = r_max.Hyper(known_count=2.0, gamma=0.5, max_reward=1.0, tolerance=1e-6)
    state = feed(init(hyper), experience(0, 0, 0.25, 0))
    np.testing.assert_array_equal(state.weights.q, 2)
    state = feed(state, experience(0, 0, 0.75, 1))
    # its mean reward is 0.5, and both states that follow are worth R_max / (1 - gamma) = 2 by their other actions
    np.testing.assert_allclose(state.weights.q[0], [0.5 + 0.5 * 2, 2], rtol=1e-5)
    state = feed(state, experience(0, 0, 100.0, 1))
    np.testing.assert_allclose(state.weights.reward[0, 0], 0.5)  # only the first m count


# ---- equal to Monte Carlo


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("kind", ["accumulating", "replacing", "dutch"])
def test_sarsa_of_lambda_one_is_monte_carlo(kind):
    """Without states visited twice: every table after n episodes is that of Q += alpha (return - Q), in NumPy."""
    mdp = chain(5, 2, np.random.default_rng(0))
    env, params = as_environment(mdp)
    algo = sarsa.make(env, sarsa.Config(trace=kind))
    hyper = sarsa.Hyper(learning_rate=0.2, trace_decay=1.0, gamma=0.9, epsilon_end=1.0)

    def step(state, _):
        state, rollout = algo.collect(state)
        return algo.learn(state, rollout)[0], rollout.experience

    state, x = jax.jit(lambda p: jax.lax.scan(step, algo.init(KEY, hyper, p), length=5 * 40))(params)
    q = np.zeros((5, 2))
    for actions, rewards in zip(x.action.reshape(40, 5), x.reward.reshape(40, 5), strict=True):
        g = 0.0
        for s in reversed(range(5)):
            g = float(rewards[s]) + 0.9 * g
            q[s, actions[s]] += 0.2 * (g - q[s, actions[s]])
    np.testing.assert_allclose(state.weights.q, q, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.light
def test_true_online_sarsa_is_the_online_lambda_return_algorithm():
    """Also with states visited twice: against its definition in NumPy, all of an episode again at each step."""
    rng, decay, gamma, alpha, T = np.random.default_rng(1), 0.7, 0.9, 0.4, 12
    s, a, r = rng.integers(0, 3, T), rng.integers(0, 2, T), rng.normal(size=T)
    _, init, feed = rollouts(sarsa, RIVER, trace="dutch")
    start = rng.normal(size=(6, 2))
    state = init(sarsa.Hyper(learning_rate=alpha, gamma=gamma, trace_decay=decay))
    state = state.replace(weights=state.weights.replace(q=jnp.asarray(start, jnp.float32)))
    for t in range(T):
        following = s[t + 1] if t + 1 < T else 5
        state = feed(state, experience(s[t], a[t], r[t], following, terminated=t == T - 1))

    tables = [start]  # tables[h]: after seeing h steps; bootstraps at time k use the table of then (eq. 12.21)
    for h in range(1, T + 1):

        def nstep(t, n):
            g = sum(gamma**i * r[t + i] for i in range(n))
            k = t + n
            # the action values used at time k are those before the update that k makes possible
            return g + (gamma**n * tables[k - 1][s[k], a[k]] if k < T else 0)

        q = start.copy()
        for t in range(h):
            g = (1 - decay) * sum(decay ** (n - 1) * nstep(t, n) for n in range(1, h - t))
            g += decay ** (h - t - 1) * nstep(t, h - t)
            q[s[t], a[t]] += alpha * (g - q[s[t], a[t]])
        tables.append(q)
    np.testing.assert_allclose(state.weights.q, tables[T], rtol=1e-4, atol=1e-5)


# ---- convergence to exact solutions


def final(module, env, params, steps, hyper, seeds=8, **config):
    algo = module.make(env, module.Config(**config))
    run = jax.jit(jax.vmap(lambda key, params: train(algo, key, steps, hyper, params)[0], (0, None)))
    return run(jax.random.split(KEY, seeds), params)


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True])
def test_q_learning_converges_to_the_optimum(double):
    hyper = q_learning.Hyper(learning_rate=0.0, count_exponent=0.8, gamma=0.9, epsilon_end=1.0)
    state = final(q_learning, ENV, PARAMS, 60_000, hyper, double=double)
    want = value_iteration(PARAMS.mdp, 0.9, 1e-6).q
    np.testing.assert_allclose(state.weights.q.mean((0, 1)), want, atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("expected", [False, True])
def test_sarsa_converges_to_the_best_soft_policy(expected):
    """The fixed point of Q = r + gamma P ((1 - e) max Q + e mean Q), which exploration for ever leads to."""
    e, gamma = 0.4, 0.9
    hyper = sarsa.Hyper(
        learning_rate=0.0, count_exponent=0.8, gamma=gamma, trace_decay=0.0, epsilon_start=e, epsilon_end=e
    )
    state = final(sarsa, ENV, PARAMS, 60_000, hyper, expected=expected)
    q = jnp.zeros((4, 2))
    for _ in range(200):
        q = bellman(PARAMS.mdp, (1 - e) * q.max(-1) + e * q.mean(-1), gamma)
    np.testing.assert_allclose(state.weights.q.mean(0), q, atol=0.03)


@pytest.mark.slow
@pytest.mark.light
def test_sarsa_greedy_in_the_limit_finds_the_optimal_policy():
    hyper = sarsa.Hyper(
        learning_rate=0.0,
        count_exponent=0.8,
        gamma=0.9,
        trace_decay=0.0,
        epsilon_end=0.02,
        exploration_steps=50_000,
    )
    state = final(sarsa, ENV, PARAMS, 60_000, hyper)
    best = value_iteration(PARAMS.mdp, 0.9, 1e-6).value
    value = jax.vmap(lambda policy: evaluate_policy(PARAMS.mdp, policy, 0.9))(state.weights.q.argmax(-1))
    uniform = evaluate_policy(PARAMS.mdp, jnp.full((4, 2), 0.5), 0.9)
    # actions that hardly differ may be confused
    np.testing.assert_array_less(best - value, jnp.broadcast_to(0.1 * (best - uniform), value.shape))


@pytest.mark.slow
@pytest.mark.light
def test_dyna_q_needs_fewer_steps_than_q_learning():
    """In a deterministic row with the reward at its end: both explore at random, planning carries it to the start."""
    mdp = chain(10, 1, np.random.default_rng(0))
    mdp = mdp.replace(reward=jnp.zeros_like(mdp.reward).at[-1].set(1.0))
    env, params = as_environment(mdp)
    known = 0.9 ** jnp.arange(9, -1, -1.0)
    hyper = dict(learning_rate=1.0, gamma=0.9)
    direct = final(q_learning, env, params, 20, q_learning.Hyper(**hyper), seeds=1)
    assert float(direct.weights.q[0, 0, 0, 0]) == 0  # two episodes carry the reward two states back
    planned = final(dyna_q, env, params, 20, dyna_q.Hyper(**hyper), seeds=1, planning_steps=50)
    np.testing.assert_allclose(planned.weights.q[0, :, 0], known, rtol=1e-5)


# ---- exploration

OPTIMUM = float(backward_induction(tabulate(RIVER, RIVER.default_params), H)[0][0, 0])
EPISODES = 1500


def late_return(module, hyper, seeds=4, **config):
    """Mean return of the last 200 of `EPISODES` episodes in RiverSwim, by seed."""
    algo = module.make(RIVER, module.Config(**config))

    def episode(state, _):
        state, metrics = jax.lax.scan(lambda s, _: algo.update(s), state, length=H)
        return state, metrics["episode_return"][-1]

    run = jax.jit(jax.vmap(lambda key: jax.lax.scan(episode, algo.init(key, hyper), length=EPISODES)[1]))
    return run(jax.random.split(KEY, seeds))[:, -200:].mean(-1)


EXPLORERS = {
    "psrl": (psrl, psrl.Hyper(), {}),
    "ucb_vi": (ucb_vi, ucb_vi.Hyper(bonus_scale=0.002), {}),
    "ucb_vi_bernstein": (ucb_vi, ucb_vi.Hyper(bonus_scale=0.002), dict(bonus="bernstein")),
    "r_max": (r_max, r_max.Hyper(), {}),
}


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", EXPLORERS)
def test_explorers_find_the_right_bank(name):
    module, hyper, config = EXPLORERS[name]
    assert np.all(late_return(module, hyper, **config) > 0.8 * OPTIMUM)


@pytest.mark.slow
@pytest.mark.light
def test_epsilon_greedy_stays_on_the_left_bank():
    """What makes the task hard: greedy by the small reward (0.1 an episode), chance swims back again."""
    hyper = q_learning.Hyper(epsilon_start=0.1, epsilon_end=0.1)
    assert np.all(late_return(q_learning, hyper) < 0.2 * OPTIMUM)


# ---- the contract

MODULES = {"sarsa": sarsa, "dyna_q": dyna_q, "ucb_vi": ucb_vi, "psrl": psrl, "r_max": r_max}
CASES = {
    "sarsa": ({}, {}, 21),
    "sarsa_dutch": (dict(trace="dutch"), {}, 19),
    "sarsa_expected": (dict(expected=True, trace="replacing"), {}, 7),
    "dyna_q": (dict(planning_steps=2), {}, 10),
    "ucb_vi": (dict(horizon=4), dict(bonus_scale=1e-4, reward_scale=10.0), 7),
    "psrl": (dict(horizon=4), {}, 10),
    "r_max": ({}, dict(known_count=1.0, max_reward=10.0), 7),
}


@pytest.mark.slow  # the quick suite checks the contract of each module in tests/test_contract_algos.py
@pytest.mark.parametrize("case", CASES)
def test_keeps_the_contract(case):
    config, hyper, num_updates = CASES[case]
    module = MODULES[case.removesuffix("_dutch").removesuffix("_expected")]
    env = Chain()
    algo, hyper = module.make(env, module.Config(**config)), module.Hyper(**hyper)
    params = env.default_params.replace(max_steps=jnp.int32(1000 if module is sarsa else 4))
    check_algorithm(algo, hyper=hyper, env_params=params, num_updates=num_updates)
    key = jax.random.key(1)  # the checker remembers across tests which key was consumed
    assert_no_key_reuse(lambda key, params: train(algo, key, 3, hyper, params)[1]["loss"], key, params)


@pytest.mark.parametrize("module", [sarsa, ucb_vi, psrl])
def test_one_environment_only(module):
    with pytest.raises(ValueError, match="vmap over keys"):
        module.Config(num_envs=2)
