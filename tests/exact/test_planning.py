"""MPPI, CEM and iLQR against Riccati's equation, numerical optimisers, closed forms, and the tasks they are for."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

from jaxrl import make
from jaxrl.environment import NO_LIMIT, Environment, Transition, pytree
from jaxrl.exact.planning import (
    CEMConfig,
    CEMHyper,
    ILQRConfig,
    ILQRHyper,
    MPPIConfig,
    MPPIHyper,
    box_step,
    cem,
    colored_noise,
    control,
    elites,
    ilqr,
    mppi,
    mppi_weights,
    shifted,
    solve_positive,
    standardized,
)
from jaxrl.spaces import Box, MultiDiscrete
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import ObservationActionReward

A = np.array([[1.0, 0.1], [-0.05, 0.98]])
B = np.array([[0.0, 0.02], [0.1, 0.03]])
Q = np.array([[1.0, 0.2], [0.2, 0.5]])
R = np.array([[0.1, 0.02], [0.02, 0.3]])


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    limit: jax.Array = np.inf  # of each action
    noise: jax.Array = 0.0
    wall: jax.Array = np.inf  # the episode ends beyond it
    bonus: jax.Array = 0.0  # a step


@pytree
class State:
    time: jax.Array
    x: jax.Array  # (2,)


@dataclasses.dataclass(frozen=True)
class Linear(Environment):
    """x' = A x + B u + noise, reward bonus - x'Qx - u'Ru of the state before the step."""

    id: str = "Linear"
    Params = Params

    def initial(self, key, params):
        return State(jnp.int32(0), jnp.array([1.0, -0.5]) + 0.1 * jax.random.normal(key, (2,)))

    def transition(self, key, state, action, params):
        action = jnp.clip(action, -params.limit, params.limit)
        noise = params.noise * jax.random.normal(key, (2,), state.x.dtype)
        reward = params.bonus - state.x @ Q @ state.x - action @ R @ action
        state = state.replace(x=A @ state.x + B @ action + noise)
        return Transition(state, reward, state.x[0] > params.wall, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return state.x

    def observation_space(self, params):
        return Box(-jnp.inf, jnp.inf, (2,))

    def action_space(self, params):
        return Box(-params.limit, params.limit, (2,))


ENV = Linear()
PLANNERS = {
    "mppi": lambda env, **kw: mppi(env, MPPIConfig(**{"horizon": 8, "num_samples": 32, **kw})),
    "cem": lambda env, **kw: cem(env, CEMConfig(**{"horizon": 8, "num_samples": 32, "num_elites": 4, **kw})),
    "ilqr": lambda env, **kw: ilqr(env, ILQRConfig(**{"horizon": 8, "num_iterations": 3, "num_starts": 4, **kw})),
}


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def riccati(horizon, end, gamma=1.0):
    """`(P at the start, first gain)` of the finite problem, u = -K x (Bertsekas, section 4.1)."""
    P, K = end, None
    for _ in range(horizon):
        K = np.linalg.solve(R + gamma * B.T @ P @ B, gamma * B.T @ P @ A)
        P = Q + gamma * A.T @ P @ (A - B @ K)
    return P, K


# ---- iLQR


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("gamma, end", [(1.0, np.zeros((2, 2))), (0.9, np.diag([3.0, 1.0]))])
def test_ilqr_is_riccatis_solution_on_a_linear_quadratic_problem(float64, gamma, end):
    planner = ilqr(
        ENV,
        ILQRConfig(horizon=12, num_iterations=3, num_starts=1),
        functools.partial(quadratic_value, tuple(map(tuple, end))),
    )
    state = State(jnp.int32(0), jnp.array([1.0, -2.0]))
    hyper = ILQRHyper(gamma=gamma, damping=1e-8)
    action, carry = jax.jit(planner.plan)(jax.random.key(0), planner.init(hyper), state, ENV.default_params)
    P, K = riccati(12, end, gamma)
    np.testing.assert_allclose(action, -K @ np.asarray(state.x), rtol=1e-6)
    np.testing.assert_allclose(carry.value, -np.asarray(state.x) @ P @ np.asarray(state.x), rtol=1e-9)
    after = A @ np.asarray(state.x) + B @ np.asarray(action)
    np.testing.assert_allclose(carry.plan[0], -riccati(11, end, gamma)[1] @ after, rtol=1e-6)


def quadratic_value(matrix, state, params):
    return -state.x @ np.array(matrix) @ state.x


@pytest.mark.slow
def test_with_the_value_of_the_infinite_problem_the_loop_is_the_regulators(float64):
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    config = ILQRConfig(horizon=3, num_iterations=3, num_starts=1)
    planner = ilqr(ENV, config, functools.partial(quadratic_value, tuple(map(tuple, P))))
    run = jax.jit(lambda key: control(ENV, planner, key, ENV.default_params, 20, ILQRHyper(damping=1e-8)))
    trajectory = run(jax.random.key(1))
    x = np.asarray(trajectory.state.x)
    np.testing.assert_allclose(trajectory.action, -x @ K.T, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(x[1:], x[:-1] @ (A - B @ K).T, rtol=1e-5, atol=1e-8)
    np.testing.assert_array_equal(trajectory.obs, x)


@pytest.mark.slow
def test_ilqr_keeps_limits_as_a_bounded_optimiser_does(float64):
    limit, x0 = 0.4, np.array([2.0, 1.0])
    planner = ilqr(ENV, ILQRConfig(horizon=8, num_iterations=20, num_starts=1))
    params = ENV.default_params.replace(limit=jnp.float64(limit))
    state = State(jnp.int32(0), jnp.asarray(x0))
    hyper = ILQRHyper(damping=1e-8, tolerance=0.0)
    action, carry = jax.jit(planner.plan)(jax.random.key(0), planner.init(hyper), state, params)

    def cost(us):
        x, total = x0, 0.0
        for u in us.reshape(8, 2):
            total, x = total + x @ Q @ x + u @ R @ u, A @ x + B @ u
        return total

    best = scipy.optimize.minimize(cost, np.zeros(16), bounds=[(-limit, limit)] * 16, options={"ftol": 1e-14})
    us = best.x.reshape(8, 2)
    assert np.any(np.abs(us) == limit) and np.any(np.abs(us) < 0.9 * limit)
    np.testing.assert_allclose(carry.value, -best.fun, rtol=1e-6)
    np.testing.assert_allclose(action, us[0], atol=1e-3)
    np.testing.assert_allclose(np.asarray(carry.plan[:-1]) * limit, us[1:], atol=1e-3)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("m", [1, 3])
def test_box_step_is_the_bounded_minimum(float64, m):
    """Against all 3^m choices of active limits."""
    rng = np.random.default_rng(m)
    for _ in range(20):
        root = rng.normal(size=(m, m))
        hessian, gradient = root @ root.T + 0.1 * np.eye(m), rng.normal(size=m) * 2
        feedback, low, high = rng.normal(size=(m, 2)), -rng.uniform(0.1, 1, m), rng.uniform(0.1, 1, m)
        best, where = np.inf, None
        for active in itertools.product((-1, 0, 1), repeat=m):
            active = np.array(active)
            k, free = np.where(active < 0, low, high), active == 0
            k[free] = 0
            k[free] = np.linalg.solve(hessian[np.ix_(free, free)], -(gradient + hessian @ k)[free])
            value = k @ hessian @ k / 2 + gradient @ k
            if np.all((k >= low - 1e-12) & (k <= high + 1e-12)) and value < best:
                best, where = value, (k, free)
        k, K, ok = box_step(*map(jnp.asarray, (hessian, gradient, feedback, low, high)))
        assert ok
        np.testing.assert_allclose(k, where[0], atol=1e-6)
        free = where[1]
        want = np.zeros_like(feedback)
        want[free] = -np.linalg.solve(hessian[np.ix_(free, free)], feedback[free])
        np.testing.assert_allclose(K, want, atol=1e-8)


def test_elimination_tells_whether_a_matrix_is_positive_definite(float64):
    rng = np.random.default_rng(0)
    root, b = rng.normal(size=(4, 4)), rng.normal(size=(4, 3))
    positive = root @ root.T + 0.1 * np.eye(4)
    x, ok = solve_positive(jnp.asarray(positive), jnp.asarray(b))
    np.testing.assert_allclose(x, np.linalg.solve(positive, b), rtol=1e-9)
    assert ok
    lowest = np.linalg.eigvalsh(positive)[0]
    assert not solve_positive(jnp.asarray(positive - (lowest + 1e-6) * np.eye(4)), jnp.asarray(b))[1]


# ---- sampling


def test_mppi_weights_by_hand():
    # exp(value / 0.5) is 1, 4 and 16 times a constant.
    values = 7 + jnp.array([0.0, np.log(2), 2 * np.log(2)])
    np.testing.assert_allclose(mppi_weights(values, 0.5), np.array([1, 4, 16]) / 21, rtol=1e-5)
    np.testing.assert_allclose(standardized(jnp.array([1.0, 1, 5, 5])), [-1, -1, 1, 1], rtol=1e-6)
    np.testing.assert_array_equal(standardized(jnp.full(3, 2.0)), 0)
    assert np.all(np.abs(standardized(jnp.array([1e6, 1e6 + 0.0625]))) < 0.1)  # one unit in the last place


def test_elites_and_shift_by_hand():
    plans = jnp.arange(8.0).reshape(4, 2, 1)
    values, best = elites(jnp.array([0.0, 3, -1, 2]), plans, 2)
    np.testing.assert_array_equal(values, [3, 2])
    np.testing.assert_array_equal(best, plans[jnp.array([1, 3])])
    np.testing.assert_array_equal(shifted(plans[:3, :, 0]), [[2, 3], [4, 5], [4, 5]])


@dataclasses.dataclass(frozen=True)
class Bandit(Linear):
    """reward -(u - 1)^2 / 2, one action, nothing moves."""

    id: str = "Bandit"

    def transition(self, key, state, action, params):
        return Transition(state, -0.5 * jnp.sum((action - 1) ** 2), jnp.bool_(False), jnp.bool_(False), {})

    def action_space(self, params):
        return Box(-jnp.inf, jnp.inf, (1,))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("start", [0.0, 0.5])
@pytest.mark.parametrize("alpha", [1.0, 0.0])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_mppi_is_the_closed_form_of_a_normal_and_a_parabola(start, alpha, beta):
    """N(start, S) times exp(reward / lambda) is normal; with alpha = 0 it is N(0, S) whatever the start."""
    std, temperature = 0.4, 0.3
    planner = mppi(Bandit(), MPPIConfig(horizon=4, num_samples=100_000, standardize=False))
    carry = planner.init(MPPIHyper(temperature=temperature, std=std, beta=beta, alpha=alpha))
    carry = carry.replace(plan=jnp.full_like(carry.plan, start))
    env = Bandit()
    action, new = jax.jit(planner.plan)(
        jax.random.key(0), carry, env.reset(jax.random.key(1), env.default_params)[1], env.default_params
    )
    prior = start if alpha == 1 else 0.0
    noise = colored_noise(jax.random.key(2), (100_000, 4, 1), beta)[..., 0]
    precision = np.linalg.inv(std**2 * np.cov(noise.T))
    mean = np.linalg.solve(precision + np.eye(4) / temperature, precision @ np.full(4, prior) + 1 / temperature)
    np.testing.assert_allclose(action, mean[:1], atol=0.03)
    np.testing.assert_allclose(new.plan[:-1, 0], mean[1:], atol=0.03)


class Exploding(Bandit):
    """The reward is NaN for pushes beyond the optimum."""

    def transition(self, key, state, action, params):
        ts = super().transition(key, state, action, params)
        return ts._replace(reward=jnp.where(action[0] > 1, jnp.nan, ts.reward))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(("make_planner", "config"), [(mppi, MPPIConfig(horizon=4)), (cem, CEMConfig(horizon=4))])
def test_samples_that_blow_up_do_not_spoil_the_plan(make_planner, config):
    env = Exploding()
    planner = make_planner(env, config)
    carry, state = planner.init(), env.reset(jax.random.key(1), env.default_params)[1]
    plan = jax.jit(planner.plan)
    for i in range(8):
        action, carry = plan(jax.random.key(i), carry, state, env.default_params)
    assert np.all(np.isfinite(carry.plan)) and 0.5 < action[0] <= 1.05


@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_colored_noise_has_unit_variance_and_its_spectrum(beta):
    noise = np.asarray(colored_noise(jax.random.key(0), (20_000, 16, 1), beta))[..., 0]
    np.testing.assert_allclose(noise.std(0), 1, atol=0.02)
    power = (np.abs(np.fft.rfft(noise)) ** 2).mean(0)[1:-1]
    np.testing.assert_allclose(power / power[0], np.arange(1, 8.0) ** -beta, rtol=0.06)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", ["mppi", "cem"])
def test_samplers_come_near_the_regulators_return(name):
    """Within 5 % of the optimum of 15 steps, where doing nothing costs twice as much."""
    settings = dict(horizon=15, num_samples=256, num_iterations=8)
    planner = PLANNERS[name](ENV, **settings, **({"num_elites": 16} if name == "cem" else {}))
    x = np.array([1.0, -2.0])
    state = State(jnp.int32(0), jnp.asarray(x, jnp.float32))
    params = ENV.default_params.replace(limit=jnp.float32(5))
    hyper = planner.hyper(**({"std": 0.04, "temperature": 0.05} if name == "mppi" else {"std": 0.3, "min_std": 0.01}))
    run = jax.jit(lambda key: control(ENV, planner, key, params, 15, hyper, state).reward.sum())
    best, idle = -x @ riccati(15, np.zeros((2, 2)))[0] @ x, 0.0
    for _ in range(15):
        idle, x = idle - x @ Q @ x, A @ x
    reached = float(run(jax.random.key(0)))
    assert best - 1e-4 > reached - 1e-4 > 1.05 * best > idle, (best, reached, idle)


@pytest.mark.slow
def test_cem_plans_discrete_actions():
    env, params = make("CartPole-v1")
    planner = cem(env, CEMConfig(horizon=20, num_samples=64, num_elites=8))
    run = jax.jit(lambda key: control(env, planner, key, params, 100))
    trajectory = run(jax.random.key(0))
    assert trajectory.action.dtype == jnp.int32 and set(np.asarray(trajectory.action)) == {0, 1}
    assert trajectory.reward.sum() == 100


# ---- what holds for all


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", PLANNERS)
def test_nothing_is_earned_after_the_end_of_either_kind(name):
    planner = PLANNERS[name](ENV)
    with_value = {"mppi": mppi, "cem": cem, "ilqr": ilqr}[name](ENV, planner.config, five)
    base = ENV.default_params.replace(bonus=jnp.float32(1))
    state = State(jnp.int32(0), jnp.zeros(2))

    @functools.partial(jax.jit, static_argnums=0)
    def value(planner, params, state):
        hyper = planner.hyper(std=1e-6, gamma=0.5, **({"min_std": 1e-6} if name == "cem" else {}))
        return planner.plan(jax.random.key(0), planner.init(hyper), state, params)[1].value

    whole = 2 - 0.5**7
    np.testing.assert_allclose(value(planner, base, state), whole, rtol=1e-4)
    np.testing.assert_allclose(value(with_value, base, state), whole + 5 / 2**8, rtol=1e-4)
    cut = base.replace(max_steps=jnp.int32(5))
    np.testing.assert_allclose(value(with_value, cut, state.replace(time=jnp.int32(2))), 1.75, rtol=1e-4)
    wall = base.replace(wall=jnp.float32(-1))  # every step crosses it
    np.testing.assert_allclose(value(with_value, wall, state), 1, rtol=1e-4)


def five(state, params):
    return jnp.float32(5)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", PLANNERS)
def test_actions_stay_in_the_box_and_control_stops_at_the_end(name):
    planner = PLANNERS[name](ENV)
    params = ENV.default_params.replace(limit=jnp.float32(0.2), max_steps=jnp.int32(6), noise=jnp.float32(0.1))
    trajectory = jax.jit(lambda key: control(ENV, planner, key, params, 9))(jax.random.key(0))
    assert np.all(np.abs(trajectory.action) <= 0.2) and np.any(np.abs(trajectory.action) > 0.05)
    np.testing.assert_array_equal(trajectory.valid, np.arange(9) < 6)
    np.testing.assert_array_equal(trajectory.truncated, np.arange(9) == 5)
    assert not trajectory.terminated.any()
    np.testing.assert_array_equal(trajectory.state.time, np.minimum(np.arange(9), 6))
    assert np.all(np.asarray(trajectory.reward[:6]) < 0) and np.all(trajectory.reward[6:] == 0)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", PLANNERS)
def test_vmap_over_keys_states_params_and_settings_is_a_loop(float64, name):
    planner = PLANNERS[name](ENV)
    keys = jax.random.split(jax.random.key(3), 3)
    params = jax.vmap(lambda limit: ENV.default_params.replace(limit=limit, noise=jnp.float64(0.1)))(
        jnp.array([0.3, 1.0, 3.0])
    )
    gammas = jnp.array([0.5, 0.9, 1.0])

    def run(key, params, gamma):
        trajectory = control(ENV, planner, key, params, 3, planner.hyper(gamma=gamma))
        return trajectory.action, trajectory.reward

    actions, rewards = jax.jit(jax.vmap(run))(keys, params, gammas)
    alone = jax.jit(run)
    for i in range(3):
        action, reward = alone(keys[i], jax.tree.map(lambda x, i=i: x[i], params), gammas[i])
        np.testing.assert_allclose(actions[i], action, atol=1e-6)
        np.testing.assert_allclose(rewards[i], reward, atol=1e-6)
    assert len(np.unique(np.asarray(actions[:, 0, 0]).round(4))) == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANNERS)
def test_no_key_is_used_twice_and_nothing_compiles_twice(name):
    planner, traces = PLANNERS[name](ENV), []
    params = ENV.default_params.replace(noise=jnp.float32(0.1))
    trajectory = assert_no_key_reuse(lambda key: control(ENV, planner, key, params, 2), jax.random.key(len(name)))
    assert np.all(np.isfinite(trajectory.reward))

    @jax.jit
    def plan(key, carry, state):
        traces.append(1)
        return planner.plan(key, carry, state, params)

    state = ENV.reset(jax.random.key(0), params)[1]
    first, carry = plan(jax.random.key(1), planner.init(), state)
    again, _ = plan(jax.random.key(1), planner.init(planner.hyper(gamma=1)), state)
    plan(jax.random.key(2), carry, state)
    assert len(traces) == 1
    np.testing.assert_array_equal(first, again)


@pytest.mark.slow
def test_a_wrong_model_plans_worse():
    """The planner believes that its actions are ten times as strong as they are."""

    env, params = make("Pendulum-v1")
    planner = mppi(env, MPPIConfig(horizon=20, num_samples=64))
    believed = params.replace(mass=jnp.float32(0.05))
    run = jax.jit(lambda key, model: control(env, planner, key, params, 100, model_params=model).reward.sum())
    assert run(jax.random.key(0), believed) < run(jax.random.key(0), params) - 100


def upright(theta):
    return np.abs((np.asarray(theta) + np.pi) % (2 * np.pi) - np.pi)


@pytest.mark.slow
def test_mppi_swings_the_pendulum_up_without_learning():
    """Ten seeds: within 0.2 rad for the whole last half of 200 steps."""
    env, params = make("Pendulum-v1")
    planner = mppi(env, MPPIConfig(horizon=30))
    hyper = MPPIHyper(beta=1.0)
    run = jax.jit(lambda keys: jax.lax.map(lambda key: control(env, planner, key, params, 200, hyper), keys))
    trajectory = run(jax.random.split(jax.random.key(0), 10))
    assert upright(trajectory.state.theta)[:, 100:].max() < 0.2
    assert trajectory.reward.sum(1).mean() > -200


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    "env_id, first", [("Pendulum-v1", 100), pytest.param("CartPoleSwingUp-v0", 250, marks=pytest.mark.slow)]
)
def test_ilqr_swings_up(env_id, first):
    env, params = make(env_id)
    planner = ilqr(env)
    run = jax.jit(lambda keys: jax.lax.map(lambda key: control(env, planner, key, params, 2 * first), keys))
    trajectory = run(jax.random.split(jax.random.key(0), 2))
    assert upright(trajectory.state.theta)[:, first:].max() < 0.05


# ---- what is refused


@dataclasses.dataclass(frozen=True)
class Keys(Linear):
    """Actions that no planner takes."""

    id: str = "Keys"

    def action_space(self, params):
        return MultiDiscrete((2, 2))


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: MPPIConfig(horizon=0), r"horizon=0.*at least 1"),
        (lambda: CEMConfig(num_samples=8), r"num_elites=16 of num_samples=8"),
        (lambda: ILQRConfig(num_step_sizes=0), r"num_step_sizes=0.*at least 1"),
        (lambda: mppi(make("CartPole-v1")[0]), r"mppi plans in Box.*CartPole-v1 has Discrete\(2\).*cem does"),
        (lambda: ilqr(ObservationActionReward()), r"ilqr plans in Box.*cem does"),
        (lambda: cem(Keys()), r"cem plans in Box and Discrete.*MultiDiscrete"),
        (lambda: mppi(ENV).init(MPPIHyper(temperature=0.0)), r"temperature=0.*positive"),
        (lambda: mppi(ENV).init(MPPIHyper(std=jnp.array([0.1, -1.0]))), r"std=.*positive"),
        (lambda: cem(ENV).init(CEMHyper(min_std=-1.0)), r"min_std=-1.*at least 0"),
        (lambda: cem(ENV).init(CEMHyper(smoothing=1.5)), r"smoothing=1.5.*at most 1"),
        (lambda: ilqr(ENV).init(ILQRHyper(damping_factor=1.0)), r"damping_factor=1.*more than 1"),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_several_agents_and_a_foreign_hyper_are_refused():
    two = dataclasses.dataclass(frozen=True)(type("Two", (Linear,), {"num_agents": 2}))()
    with pytest.raises(ValueError, match="2 agents"):
        mppi(two)
    with pytest.raises(TypeError, match="CEMHyper, not a MPPIHyper"):
        mppi(ENV).init(CEMHyper())


def test_equal_arguments_make_the_same_planner():
    assert mppi(Linear(), MPPIConfig(horizon=3)) is mppi(Linear(), MPPIConfig(horizon=3))
    assert mppi(Linear()) is not mppi(Linear(), MPPIConfig(horizon=3))
