"""AlphaZero: losses by hand, searches against exact values, probes with known actions, and the protocol's promises."""

import builtins
import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make, train, vectorize
from jaxrl.exact.mdp import tabulate
from jaxrl.exact.solvers import backward_induction, evaluate_policy
from jaxrl.nn.networks import ActorCritic
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import DelayedReward, Masked, ObservationActionReward, Privileged, TimeLimit, TimeLimitParams

pytest.importorskip("mctx")
from jaxrl.algos import alphazero  # noqa: E402

SEARCHES = ("gumbel", "puct")


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


# ---- losses and values


def test_losses_by_hand():
    logits = jnp.log(jnp.array([[0.5, 0.5], [0.2, 0.8]]))
    close(
        alphazero.policy_loss(logits, jnp.array([[1.0, 0], [0.5, 0.5]])), (0.693147 + 0.5 * (1.609438 + 0.223144)) / 2
    )
    close(alphazero.value_loss(jnp.array([1.0, 2.0]), jnp.array([3.0, 2.0])), 1)
    slope = jax.grad(alphazero.policy_loss)(logits, jnp.array([[1.0, 0], [0.5, 0.5]]))
    close(slope, np.array([[-0.5, 0.5], [-0.3, 0.3]]) / 2)  # (pi - w) / B


def test_plan_value_by_hand():
    q = jnp.array([[1.0, 3.0, 100.0], [1.0, 3.0, 5.0]])
    weights = jnp.array([[0.25, 0.25, 0.5], [0.0, 0.0, 1.0]])
    visits = jnp.array([[4.0, 2, 0], [3, 1, 0]])
    # The unvisited action is left out; where the policy has nothing else, visits weigh.
    close(alphazero.plan_value(weights, q, visits), [2, 1.5])


# ---- the model


@pytest.mark.slow
@pytest.mark.light
def test_a_limit_keeps_the_value_of_where_it_cut_and_a_termination_keeps_none():
    def expansions(env, params, steps):
        def predict(weights, obs):
            return jnp.zeros((2, 2)), jnp.full(2, 7.0)

        expand = alphazero.model(env, predict, 0.9, params)
        _, env_state = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), 2), params)
        node = alphazero.Node(env_state, jnp.zeros(2, bool), jnp.full(2, 7.0))
        rows = []
        for i in range(steps):
            found, node = expand(None, jax.random.key_data(jax.random.key(i)), jnp.array([0, 1]), node)
            rows.append([x[0] for x in (found.reward, found.discount, found.value, node.ended)])
        return np.array(rows)

    # reward, discount, value, ended. The edge over the limit bootstraps; past it nothing is added to that value.
    close(expansions(TimeLimit(), TimeLimitParams(jnp.int32(2)), 3), [[1, 0.9, 7, 0], [1, 0.9, 7, 1], [0, 1, 7, 1]])
    probe = DelayedReward()
    close(expansions(probe, probe.default_params, 3), [[0, 0.9, 7, 0], [1, 0.9, 0, 1], [0, 1, 0, 1]])


# ---- the search, from random networks, against exact values

TREES = 16


@cache
def searched(search):
    """Of random rewards of TwoStepTree, a row each: exact MDP, prior and searched policy (3, 2) of the inner nodes."""
    env, params = make("TwoStepTree-v0")
    config = alphazero.Config(search=search, num_simulations=128, hidden=(8,))
    plan_from = alphazero.searcher(env, config)
    network = ActorCritic(env.observation_space(params), 2, False, (8,), "tanh")
    nodes = jnp.arange(3)

    def tree(key):
        reward_key, weights_key, search_key, start_key = jax.random.split(key, 4)
        here = params.replace(reward=jax.random.uniform(reward_key, (4,), minval=-2, maxval=2))
        obs, state = env.reset(start_key, here)
        states = jax.vmap(lambda index: state.replace(index=index))(nodes)
        weights = network.init(weights_key, obs)
        policy = alphazero.Policy(weights, alphazero.Hyper(gamma=1.0))
        plan = plan_from(policy, search_key, states, nodes, here, greedy=True)
        prior = jax.nn.softmax(network.apply(weights, nodes)[0])
        mdp = tabulate(env, here)

        def value(policy):
            leaves = jnp.full((4, 2), 0.5)
            return evaluate_policy(mdp, jnp.concatenate([policy, leaves]), 0.999)[:3]

        best = backward_induction(mdp, 2)[1]
        q = jnp.stack([best[0, 0], best[1, 1], best[1, 2]])
        return plan, q, value(prior), value(plan.weights)

    return jax.jit(jax.vmap(tree))(jax.random.split(jax.random.key(3), TREES))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_improves_on_a_random_network(search):
    plan, _, before, after = searched(search)
    assert np.all(after > before - 1e-4), (after - before).min()
    assert np.mean(after - before) > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_picks_the_action_of_backward_induction(search):
    plan, q, _, _ = searched(search)
    right = np.asarray(plan.action == np.argmax(q, -1))
    # At the root a random critic may keep an inner node's better action from ever being tried.
    gap = np.abs(q[..., 0] - q[..., 1])
    assert np.all(right | (gap < np.array([0.9, 0, 0]))) and right[:, 0].mean() > 0.6, right
    # One step from the end, action values are exact, and the searched policy's value lies between them.
    low, high = np.min(q[:, 1:], -1), np.max(q[:, 1:], -1)
    assert np.all((plan.value[:, 1:] > low - 1e-5) & (plan.value[:, 1:] < high + 1e-5))
    close(plan.visits.sum(-1), 128)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("search", SEARCHES)
def test_forbidden_actions_are_neither_searched_nor_learnt(search):
    algo = tiny(search, Masked())
    state = jax.jit(algo.init)(jax.random.key(0))
    _, rollout = jax.jit(algo.collect)(state)
    forbidden = ~np.asarray(rollout.obs["action_mask"])
    assert np.all(rollout.plan.weights[forbidden] == 0) and np.all(rollout.plan.visits[forbidden] == 0)
    assert np.all(np.take_along_axis(~forbidden, np.asarray(rollout.plan.action)[..., None], -1))


# ---- the protocol's promises

TINY = alphazero.Config(num_envs=4, num_steps=4, num_simulations=4, num_epochs=2, num_minibatches=2, hidden=(8,))
START = alphazero.Hyper(learning_rate=1e-2, gamma=0.8, td_lambda=1.0)


@cache
def tiny(search="gumbel", env=None):
    return alphazero.make(env or ObservationActionReward(), dataclasses.replace(TINY, search=search))


@pytest.mark.slow
def test_keeps_the_contract_with_puct():
    check_algorithm(tiny("puct"), hyper=START, num_updates=3)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("search", SEARCHES)
def test_no_key_is_used_twice(search):
    algo = tiny(search)
    state = algo.init(jax.random.key(0), START)

    def twice(key):
        return algo.update(algo.update(state.replace(key=key))[0])[1]["loss"]

    assert np.isfinite(assert_no_key_reuse(twice, jax.random.key(60 + SEARCHES.index(search))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("probe", "search"),
    [
        (ObservationActionReward(), "gumbel"),
        *(
            pytest.param(probe, search, marks=pytest.mark.slow)
            for probe in (ObservationActionReward(), Masked(), DelayedReward(), TimeLimit(), Privileged())
            for search in SEARCHES
        ),
    ],
    ids=str,
)
def test_learns_the_probe(probe, search):
    algo = alphazero.make(probe, dataclasses.replace(TINY, search=search, num_envs=8, num_steps=8))
    state, _ = jax.jit(lambda key: train(algo, key, 150 * algo.steps_per_update, START))(jax.random.key(0))
    known = probe.known(0.8)
    if known.action is not None:
        action, _ = algo.act(algo.policy(state), jax.random.key(1), known.obs, greedy=True)
        np.testing.assert_array_equal(action, known.action)
    space, actions = probe.observation_space(None), probe.action_space(None)
    network = ActorCritic(space, actions.n, False, TINY.hidden, TINY.activation)
    close(network.apply(state.weights, known.obs, method="critic"), known.value, rtol=0.08, atol=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_learns_cartpole(search):
    from jaxrl.evaluation import evaluate

    env, params = make("CartPole-v1")
    algo = alphazero.make(env, alphazero.Config(search=search))
    state, _ = jax.jit(lambda key: train(algo, key, 60_000))(jax.random.key(0))
    stats = evaluate(algo, algo.policy(state), jax.random.key(1), env, params, num_episodes=64, greedy=True)
    assert stats.returns.mean() > 475


def harder(key, params):
    return params.replace(max_steps=jax.random.randint(key, (), 5, 9))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("settings", [{"level_fn": harder}, {"batched_params": True}], ids=lambda s: next(iter(s)))
def test_each_slot_is_searched_with_its_own_params(settings):
    venv = vectorize(make("Catch-bsuite")[0], 4, **settings)
    algo = alphazero.make(venv, TINY)
    state = jax.eval_shape(lambda key: algo.update(algo.init(key))[0], jax.random.key(0))
    assert state.obs.shape == (4, 10, 5)


def two_agents():
    return dataclasses.dataclass(frozen=True)(type("Two", (DelayedReward,), {"num_agents": 2}))()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: alphazero.Config(search="mcts"), r"search='mcts'.*'gumbel'"),
        (lambda: alphazero.Config(num_simulations=0), r"num_simulations=0.*at least 1"),
        (lambda: alphazero.Config(max_depth=0), r"max_depth=0"),
        (lambda: alphazero.Config(num_envs=3, num_steps=3, num_minibatches=6), r"num_minibatches=6.*= 9; 3 does"),
        (lambda: alphazero.make(make("Pendulum-v1")[0], TINY), r"Discrete.*Pendulum-v1 has Box|Discrete spaces, not"),
        (lambda: alphazero.make(two_agents(), TINY), r"2 agents"),
        (
            lambda: alphazero.make(
                ObservationActionReward(),
                TINY,
                network=ActorCritic(ObservationActionReward().observation_space(None), 3, False, (4,), "tanh"),
            ),
            r"logits \(4, 3\).*need \(4, 2\)",
        ),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "mctx":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install .*\[mctx\]"):
        alphazero.make(make("CartPole-v1")[0], dataclasses.replace(TINY, num_steps=6))
