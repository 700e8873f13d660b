"""DQN: targets and losses against arrays computed by hand, probes with known values, and the protocol's promises."""

import dataclasses
from functools import cache, partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxrl import make, train, vectorize
from jaxrl.algorithm import algorithm_of
from jaxrl.algos import dqn
from jaxrl.environment import strongly_typed
from jaxrl.nn.action_values import QNetwork, value_of
from jaxrl.off_policy.q_learner import Batch, QLearner
from jaxrl.spaces import Box, Dict
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import (
    DelayedReward,
    Masked,
    ObservationActionReward,
    ObservationReward,
    Privileged,
    Termination,
    TimeLimit,
)
from jaxrl.testing.rules import q_step


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-6, "atol": 1e-7, **tolerance})


# ---- targets and losses


def test_td_loss_by_hand():
    q = jnp.array([[1.0, 5.0], [2.0, 0.0], [3.0, 3.0]])
    action, reward, discount = jnp.array([1, 0, 1]), jnp.array([4.0, 4.0, 3.0]), jnp.array([0.5, 0.25, 0.0])
    target = jnp.array([4.5, 5.0, 3.0])
    close(dqn.n_step_target(reward, discount, jnp.array([1.0, 4.0, 9.0])), target)

    def total(q, huber=False):
        each, _ = dqn.scalar_loss(value_of(q, action), reward, discount, jnp.array([1.0, 4.0, 9.0]), huber=huber)
        return jnp.mean(each)

    # Errors 0.5, -3, 0.
    close(total(q), (0.125 + 4.5) / 3)
    close(total(q, huber=True), (0.125 + 2.5) / 3)
    close(jax.grad(total)(q), np.array([[0, 0.5], [-3, 0], [0, 0]]) / 3)
    close(jax.grad(partial(total, huber=True))(q), np.array([[0, 0.5], [-1, 0], [0, 0]]) / 3)


class Table(nn.Module):
    """Values linear in the observation."""

    @nn.compact
    def __call__(self, obs):
        table = self.param("table", lambda _: jnp.array([[1.0, 2.0, 9.0], [4.0, 3.0, 0.0]]))
        return (obs["x"] if isinstance(obs, dict) else obs) @ table


SPACE = Dict({"x": Box(0.0, 1.0, (2,)), "action_mask": Box(0, 1, (3,), jnp.bool_)})


@pytest.mark.parametrize(
    ("double", "allowed", "bootstrap"),
    [
        (False, [1, 1, 1], 30.0),  # the largest target value
        (True, [1, 1, 1], 10.0),  # the target value of action 0, the online network's choice at [0, 1]
        (False, [1, 1, 0], 20.0),
        (True, [0, 1, 1], 20.0),
    ],
)
def test_whole_loss_by_hand(double, allowed, bootstrap):
    weights = {"params": {"table": jnp.array([[1.0, 2.0, 9.0], [4.0, 3.0, 0.0]])}}
    batch = Batch(
        obs={"x": jnp.array([[1.0, 0.0]]), "action_mask": jnp.ones((1, 3), bool)},
        action=jnp.array([1]),
        reward=jnp.array([0.5]),
        discount=jnp.array([0.9]),
        next_obs={"x": jnp.array([[0.0, 1.0]]), "action_mask": jnp.array([allowed], bool)},
    )
    target_weights = {"params": {"table": jnp.array([[0.0, 0.0, 0.0], [10.0, 20.0, 30.0]])}}
    rule = dqn._DQN(dqn.Config(double=double), Table(), SPACE)
    report, slope = q_step(rule, weights, target_weights, batch, dqn.Hyper(max_grad_norm=np.inf))
    error = 2 - (0.5 + 0.9 * bootstrap)
    close(report["loss"], 0.5 * error**2)
    close(report["q_value"], 2)
    # Only through the value of the action taken, not through the target.
    close(slope["params"]["table"], np.array([[0, error, 0], [0, 0, 0]]), rtol=1e-5)


# ---- exploration


@pytest.mark.slow
def test_greedy_is_the_best_action_even_where_all_are_as_likely():
    """With epsilon 1 the largest probability tells nothing."""
    algo, first = cartpole(), cartpole().init(jax.random.key(0))
    policy = algo.policy(first)
    close(policy.epsilon, 1)
    obs = jax.random.normal(jax.random.key(1), (64, 4))
    q = np.asarray(network(algo).apply(policy.weights, obs))
    assert len(set(np.argmax(q, -1))) == 2
    greedy, carry = algo.act(policy, jax.random.key(2), obs, greedy=True)
    np.testing.assert_array_equal(greedy, np.argmax(q, -1))
    assert carry == () and greedy.dtype == jnp.int32
    np.testing.assert_array_equal(algo.act(policy._replace(epsilon=0.0), jax.random.key(2), obs)[0], greedy)


# ---- probe environments

# Not relu: many probes observe only zeros, where no unit of a new layer is active.
SMALL = dqn.Config(
    num_envs=8, num_steps=4, num_updates=4, batch_size=32, buffer_size=8192, hidden=(16,), activation="tanh"
)
FAST = dqn.Hyper(
    learning_rate=1e-2, gamma=0.8, learning_starts=200, exploration_steps=0, epsilon_end=0.5, target_period=64
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("probe", "changes"),
    [
        (DelayedReward(), {"double": False, "critic": "huber"}),
        (TimeLimit(), {"n_step": 3}),  # windows of 3 in episodes of 5: every kind of cut
        (Termination(), {"n_step": 3}),  # not huber, which finds no mean of targets that vary
        (ObservationActionReward(), {"dueling": True}),
        (Masked(), {}),
    ],
    ids=lambda x: getattr(x, "id", ""),
)
def test_probes(probe, changes):
    algo = dqn.make(probe, dataclasses.replace(SMALL, **changes))
    total = 400 * algo.steps_per_update
    state, metrics = jax.jit(lambda key: train(algo, key, total, FAST.replace(anneal_steps=total)))(jax.random.key(0))
    known = probe.known(0.8)
    q = np.asarray(network(algo).apply(state.weights, known.obs))
    if isinstance(known.obs, dict):
        q = np.where(known.obs["action_mask"], q, -np.inf)
    close(q.max(-1), known.value, atol=0.06, rtol=0.02)
    if known.action is not None:
        action, _ = algo.act(algo.policy(state), jax.random.key(1), known.obs, greedy=True)
        np.testing.assert_array_equal(action, known.action)
    if isinstance(probe, Masked):
        assert np.min(metrics["episode_return"]) >= 0, "a forbidden action costs 10"
    if isinstance(probe, TimeLimit):
        assert np.nanmin(metrics["episode_length"]) == np.nanmax(metrics["episode_length"]) == 5


@pytest.mark.slow
def test_privileged_observations_are_neither_stored_nor_seen():
    algo = dqn.make(Privileged(), SMALL)
    state, _ = jax.jit(algo.update)(algo.init(jax.random.key(0)))
    assert set(state.obs) == {"obs", "privileged"}
    assert set(state.replay.items.obs) == set(state.replay.items.next_obs) == {"obs"}
    one, other = ({"obs": jnp.zeros(1), "privileged": jnp.array([x])} for x in (-1.0, 1.0))
    policy = algo.policy(state)
    assert algo.act(policy, jax.random.key(0), one)[0] == algo.act(policy, jax.random.key(0), other)[0]
    algo.act(policy, jax.random.key(0), {"obs": jnp.zeros(1)})


# ---- the protocol

TINY = dqn.Config(num_envs=2, num_steps=4, num_updates=2, batch_size=8, buffer_size=32, hidden=(8,))
START = dqn.Hyper(learning_starts=0, learning_rate=1e-2, target_period=8)


@cache
def cartpole(config=TINY):
    return dqn.make(make("CartPole-v1")[0], config)


@cache
def jitted(config=TINY):
    algo = cartpole(config)
    return jax.jit(algo.collect), jax.jit(algo.learn), jax.jit(algo.init)


def network(algo):
    env, config = algo.venv.env, algo.config
    params = env.default_params
    n = env.action_space(params).n
    return QNetwork(env.observation_space(params), n, config.hidden, config.activation, config.dueling)


class Curved(nn.Module):
    """Weights drawn in the default precision: in float32 their last bits may differ under vmap."""

    @nn.compact
    def __call__(self, obs):
        dense = partial(nn.Dense, param_dtype=jnp.result_type(float))
        return dense(2)(nn.tanh(dense(8)(obs)))


@pytest.mark.slow
@pytest.mark.parametrize("x64", [False, True])
def test_vmap_over_seeds_and_settings_equals_single_runs(x64):
    """Also where one setting starts to learn later than another: a branch for one run, a select for many."""
    with jax.enable_x64(x64):
        algo = dqn.make(make("CartPole-v1")[0], TINY, network=Curved())
        traces = []

        def run(key, rate, starts):
            traces.append(1)
            hyper = START.replace(learning_rate=rate, learning_starts=starts)
            return train(algo, key, 3 * algo.steps_per_update, hyper)

        keys, rates, starts = jax.random.split(jax.random.key(5), 2), jnp.array([1e-3, 1e-2]), jnp.array([0, 16])
        grid = jax.jit(jax.vmap(jax.vmap(run, (None, 0, 0)), (0, None, None)))(keys, rates, starts)
        assert len(traces) == 1 and grid[1]["loss"].shape == (2, 2, 3)
        assert np.all(np.isnan(grid[1]["loss"][:, 1, :2])), "no gradient step was due"
        assert np.all(grid[1]["loss"][:, 0] > 0) and np.all(grid[1]["loss"][:, 1, 2] > 0)
        single, tolerance = jax.jit(run), {"rtol": 1e-10, "atol": 1e-10} if x64 else {"rtol": 1e-5, "atol": 1e-5}
        for i, j in ((0, 0), (1, 1)):
            one = single(keys[i], rates[j], starts[j])
            for path, want in jax.tree_util.tree_leaves_with_path(one):
                got = dict(jax.tree_util.tree_leaves_with_path(grid))[path][i, j]
                if jnp.issubdtype(want.dtype, jax.dtypes.prng_key):
                    got, want = jax.random.key_data(got), jax.random.key_data(want)
                if jnp.issubdtype(want.dtype, jnp.floating):
                    assert want.dtype == (jnp.float64 if x64 else jnp.float32), path
                    np.testing.assert_allclose(got, want, **tolerance, err_msg=str(path))
                else:
                    np.testing.assert_array_equal(got, want, err_msg=str(path))
        assert len(traces) == 2


@pytest.mark.slow
def test_states_keep_their_types_so_that_nothing_compiles_twice():
    algo, traces = cartpole(), []

    @jax.jit
    def update(state):
        traces.append(1)
        return algo.update(state)

    key = jax.random.key(0)
    state, _ = update(algo.init(key))
    update(state)
    update(algo.init(key, dqn.Hyper(learning_rate=1.0, gamma=0.0, anneal_steps=10, target_period=1)))
    update(algo.init(key, None, make("CartPole-v1")[1].replace(length=1.0)))
    assert len(traces) == 1


def test_make_returns_the_same_functions_for_equal_arguments():
    env = make("CartPole-v1")[0]
    assert dqn.make(env, TINY) is dqn.make(make("CartPole-v1")[0], dataclasses.replace(TINY))
    assert dqn.make(env, TINY) is not dqn.make(env, dataclasses.replace(TINY, n_step=2))
    algo = dqn.make(env, TINY)
    assert (algo.name, algo.config, algo.hyper, algo.steps_per_update) == ("dqn", TINY, dqn.Hyper, 8)
    hash(algo)


@pytest.mark.slow
def test_the_replay_holds_the_rollouts_with_true_successors():
    """Five rollouts of 8 in a memory of 32, episodes cut every three steps: the last four, the oldest overwritten."""
    env, params = make("CartPole-v1")
    params = params.replace(max_steps=jnp.int32(3))
    collect, learn, init = jitted()
    state, rollouts = init(jax.random.key(6), START, params), []
    for i in range(5):
        state, rollout = collect(state)
        rollouts.append(jax.tree.map(lambda x: np.asarray(x).reshape(8, *x.shape[2:]), rollout.transition))
        state, _ = learn(state, rollout)
        assert state.replay.size == min(8 * (i + 1), 32) and state.step == 8 * (i + 1)
    ring = [rollouts[4], *rollouts[1:4]]
    for got, *want in zip(jax.tree.leaves(state.replay.items), *map(jax.tree.leaves, ring), strict=True):
        np.testing.assert_array_equal(got, np.concatenate(want))
    items = state.replay.items
    assert items.truncated.sum() == 10 and not items.terminated.any()

    @jax.vmap
    def successor(obs, action):
        x = env.initial(jax.random.key(0), params).replace(
            **dict(zip(("x", "x_dot", "theta", "theta_dot"), obs, strict=True))
        )
        return env.step(jax.random.key(0), x, action, params).obs

    close(items.next_obs, successor(items.obs, items.action), atol=1e-6)
    cut = rollout.transition.truncated
    np.testing.assert_array_equal(rollout.ends.episode_length[cut], 3)
    np.testing.assert_array_equal(rollout.ends.episode_return[cut], 3)


def flat(weights):
    return np.asarray(ravel_pytree(weights)[0])


@pytest.mark.slow
@pytest.mark.light
def test_learning_starts_and_the_target_network_moves_when_told():
    collect, learn, init = jitted()
    state = init(jax.random.key(7), START.replace(learning_starts=16, target_period=24, tau=0.25))
    first = flat(state.weights)
    np.testing.assert_array_equal(flat(state.target_weights), first)
    seen = []
    for step in (8, 16, 24, 32, 40, 48):
        state, metrics = learn(*collect(state))
        assert state.step == step
        # Two gradient steps an update, once more than 16 steps are done.
        assert state.optimizer.count == max(step - 16, 0) // 8 * 2
        assert (metrics["loss"] > 0) == (metrics["grad_norm"] > 0) == (step > 16)
        seen.append((flat(state.weights), flat(state.target_weights)))
    np.testing.assert_array_equal(seen[1][0], first)
    assert all(np.any(w != first) for w, _ in seen[2:])
    half = 0.75 * first + 0.25 * seen[2][0]
    for i, target in enumerate((first, first, half, half, half, 0.75 * half + 0.25 * seen[5][0])):
        close(seen[i][1], target, rtol=1e-5)
    state = state.replace(hyper=state.hyper.replace(tau=jnp.float32(1), target_period=jnp.int32(0)))
    state, _ = learn(*collect(state))
    np.testing.assert_array_equal(flat(state.target_weights), flat(state.weights))


@pytest.mark.slow
def test_every_parameter_group_learns_and_the_gradient_is_clipped_by_its_norm():
    """Adam forgets a constant scale of the gradient, so it is seen in the first moment."""
    config = dataclasses.replace(TINY, num_updates=1, dueling=True, hidden=(8, 8))
    collect, learn, init = jitted(config)
    means = {}
    for limit in (1e-3, 1e3):
        first = init(jax.random.key(8), START.replace(max_grad_norm=limit))
        state, metrics = learn(*collect(first))
        means[limit] = np.asarray(state.optimizer.inner[0].mu)
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), first.weights, state.weights)
    assert all(jax.tree.leaves(moved)) and len(jax.tree.leaves(moved)) == 6, moved
    close(np.linalg.norm(means[1e-3]), 0.1 * 1e-3, rtol=1e-4)
    close(np.linalg.norm(means[1e3]), 0.1 * metrics["grad_norm"], rtol=1e-4)
    close(means[1e-3] / np.linalg.norm(means[1e-3]), means[1e3] / np.linalg.norm(means[1e3]), atol=1e-5)


@pytest.mark.slow
def test_nothing_is_learnt_before_the_replay_holds_a_window():
    """A window of 3 from rollouts of 1: the third update is the first that may sample."""
    config = dataclasses.replace(TINY, num_steps=1, n_step=3)
    collect, learn, init = jitted(config)
    state = init(jax.random.key(9), START)
    for count in (0, 0, 2, 4):
        state, _ = learn(*collect(state))
        assert state.optimizer.count == count


@pytest.mark.slow
def test_meta_gradient_through_updates():
    algo = cartpole()

    @jax.jit
    @jax.grad
    def slope(settings):
        hyper = strongly_typed(START).replace(learning_rate=settings[0], gamma=settings[1])
        _, metrics = train(algo, jax.random.key(10), 3 * algo.steps_per_update, hyper)
        return metrics["loss"][-1]

    both = slope(jnp.array([1e-2, 0.9]))
    assert np.all(np.isfinite(both)) and np.all(both != 0)


@pytest.mark.slow
def test_no_key_is_used_twice():
    def run(key):
        algo = dqn.make(ObservationReward(id="key reuse"), TINY)
        state, _ = algo.update(algo.init(key, START))
        return algo.act(algo.policy(state), state.key, state.obs)

    assert_no_key_reuse(run, jax.random.key(0))


# ---- what may be brought along, and what is refused


class Linear(nn.Module):
    outputs: int = 2

    @nn.compact
    def __call__(self, obs):
        return nn.Dense(self.outputs)(obs)


def test_a_learner_with_a_method_of_its_own_is_dqn_in_the_rest():
    @dataclasses.dataclass(frozen=True)
    class Constant(QLearner):
        often: float

        def epsilon(self, state):
            return jnp.float32(self.often)

    env = make("CartPole-v1")[0]
    usual = dqn.make(env, TINY).init.__self__
    fields = {field.name: getattr(usual, field.name) for field in dataclasses.fields(usual)}
    algo = algorithm_of("constant", Constant(**fields, often=0.25), dqn.Hyper, TINY.num_envs * TINY.num_steps)
    state = dqn.make(env, TINY).init(jax.random.key(0), START)
    assert algo.policy(state).epsilon == 0.25
    own, plain = (jax.tree.leaves(jax.eval_shape(a.update, state)) for a in (algo, dqn.make(env, TINY)))
    assert own == plain


@pytest.mark.slow
def test_bring_your_own_network_and_vector_env():
    venv = vectorize(make("CartPole-v1")[0], 2, "dense")
    algo = dqn.make(venv, TINY, network=Linear())
    assert algo.venv is venv
    first = algo.init(jax.random.key(0), START)
    state, _ = jax.jit(algo.update)(first)
    assert set(state.weights["params"]) == {"Dense_0"}
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), first.weights, state.weights)
    assert all(jax.tree.leaves(moved)), moved


def two_agents():
    return dataclasses.dataclass(frozen=True)(type("Two", (DelayedReward,), {"num_agents": 2}))()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: dqn.Config(num_envs=0), r"num_envs=0.*at least 1"),
        (lambda: dqn.Config(n_step=-3), r"n_step=-3.*at least 1"),
        (lambda: dqn.Config(num_envs=3, buffer_size=100), r"buffer_size=100.*num_envs=3.*99 does"),
        (lambda: dqn.Config(num_envs=4, num_steps=8, buffer_size=16), r"buffer_size=16.*32 does"),
        (lambda: dqn.make(make("CartPole-v1")[0], dataclasses.replace(TINY, activation="rleu")), r"'rleu'.*relu"),
        (lambda: dqn.make(make("CartPole-v1")[0], TINY, network=Linear(3)), r"values \(2, 3\).*needs \(2, 2\)"),
        (lambda: dqn.make(vectorize(make("CartPole-v1")[0], 4), TINY), r"num_envs=4 but the config says 2"),
        (lambda: dqn.make(two_agents(), TINY), r"2 agents"),
        (lambda: dqn.make(make("Pendulum-v1")[0], TINY), r"Discrete.*Pendulum-v1's Box.*ppo"),
        (lambda: dqn.make(ObservationActionReward("multi_discrete"), TINY), r"MultiDiscrete.*ppo"),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_foreign_hyper_is_refused():
    with pytest.raises(TypeError, match="not this algorithm's Hyper"):
        cartpole().init(jax.random.key(0), make("CartPole-v1")[1])
