"""DQN's relatives: losses by hand, prioritised windows, noisy networks, replay ratio, and what they learn."""

import dataclasses
from functools import cache

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl import make, train
from jaxrl.algos import c51, dqn, iqn, qr_dqn, rainbow
from jaxrl.nn.value_heads import fractions, midpoints, padded_edges, quantile_huber
from jaxrl.off_policy.q_learner import Batch
from jaxrl.spaces import Box, Dict
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import Masked, ObservationReward, Termination, TimeLimit
from jaxrl.testing.rules import q_step

MODULES = {"c51": c51, "qr_dqn": qr_dqn, "rainbow": rainbow, "iqn": iqn}
TINY = dict(num_envs=2, num_steps=4, num_updates=2, batch_size=8, buffer_size=32, hidden=(8,), activation="tanh")
START = dict(learning_starts=0, learning_rate=1e-2, target_period=8)


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


# ---- losses

LOGITS = jnp.log(jnp.array([[0.5, 0.25, 0.25]]))  # of the action taken
NEXT = jnp.log(jnp.array([[0.2, 0.2, 0.6]]))  # mean 1.4 on atoms 0, 1, 2
REWARD, DISCOUNT = jnp.array([0.5]), jnp.array([0.5])


def cross_entropy(target, probability=(0.5, 0.25, 0.25)):
    return -np.sum(np.array(target) * np.log(probability))


def entropy(target):
    return -sum(p * np.log(p) for p in target if p > 0)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (dqn.two_hot_loss, [0, 0.8, 0.2]),  # target 0.5 + 0.5 * 1.4 = 1.2
        (c51.loss, [0.1, 0.2 / 2 + 0.2 + 0.6 / 2, 0.3]),  # atoms go to 0.5, 1, 1.5
    ],
    ids=["two_hot", "c51"],
)
def test_categorical_losses_by_hand(loss, target):
    each, priority = loss(LOGITS, REWARD, DISCOUNT, NEXT, (0.0, 2.0))
    close(each, [cross_entropy(target)])
    close(priority, [cross_entropy(target) - entropy(target)])
    terminal, _ = loss(LOGITS, jnp.array([1.0]), 0 * DISCOUNT, NEXT, (0.0, 2.0))
    close(terminal, [np.log(4)])


@pytest.mark.slow
@pytest.mark.light
def test_hl_gauss_loss_by_hand():
    logits, following = jnp.zeros((1, 11)), jnp.zeros((1, 11)).at[0, 5].set(50.0)  # the successor is worth 1
    close(dqn.hl_gauss_values(following, (0.0, 2.0)), 1)
    each, priority = dqn.hl_gauss_loss(logits, REWARD, DISCOUNT, following, (0.0, 2.0))
    close(each, np.log(11))
    assert 0 < priority[0] < each[0]
    slope = jax.grad(lambda x: dqn.hl_gauss_loss(x, REWARD, DISCOUNT, following, (0.0, 2.0))[0].sum())
    centres = midpoints(padded_edges(0.0, 2.0, 11))
    close(-(slope(logits) @ centres), 1.0 - centres.mean(), atol=1e-3)  # towards a target of 0.5 + 0.5 * 1
    assert centres[0] < 0 and centres[-1] > 2, "the support is padded"


def test_quantile_loss_by_hand():
    outputs, following = jnp.array([[0.0, 1.0]]), jnp.array([[1.0, 5.0]])  # targets 1 and 3
    # Errors 1, 3 at 0.25 and 0, 2 at 0.75.
    want = 0.25 * (0.5 + 2.5) / 2 + 0.75 * 1.5 / 2
    close(qr_dqn.loss(outputs, REWARD, DISCOUNT, following), [want])
    close(qr_dqn.values(following), [3])


def test_scalar_losses_and_priorities_by_hand():
    outputs, following = jnp.array([4.0]), jnp.array([1.0])  # the target is 1
    for critic, want in (("mse", 4.5), ("huber", 2.5)):
        values, loss = dqn.CRITICS[critic]
        close(values(outputs), outputs)
        each, priority = loss(outputs, REWARD, DISCOUNT, following)
        close(each, [want])
        close(priority, [3])


# ---- projection and quantiles

CENTRES = jnp.array([-1.0, 0.0, 1.0, 2.0])


def test_projection_by_hand():
    """Values between atoms, on one, and beyond either end; and the Bellman update of C51's algorithm 1."""
    values, probability = jnp.array([-3.0, -0.5, 1.0, 5.0]), jnp.array([0.1, 0.2, 0.3, 0.4])
    close(c51.project(values, probability, CENTRES), [0.1 + 0.1, 0.1, 0.3, 0.4])
    # reward 0.5, discount 0.5: atoms go to 0, 0.5, 1, 1.5; terminated: all to the reward.
    uniform = jnp.full((2, 4), 0.25)
    values = jnp.array([[0.5], [0.5]]) + jnp.array([[0.5], [0.0]]) * CENTRES
    close(c51.project(values, uniform, CENTRES), [[0, 0.375, 0.5, 0.125], [0, 0.5, 0.5, 0]])


def test_quantile_huber_by_hand():
    # Errors of quantile 0: 0.5 and 3, of quantile 1: -1.5 and 1.
    quantiles, targets, fraction = jnp.array([0.0, 2.0]), jnp.array([0.5, 3.0]), fractions(2)
    close(fraction, [0.25, 0.75])
    first = 0.25 * (0.125 + 2.5) / 2
    second = (0.25 * 1.0 + 0.75 * 0.5) / 2
    close(quantile_huber(quantiles, fraction, targets), first + second)
    wide = (0.25 * (0.125 + 4.0) + 0.25 * 1.125 + 0.75 * 0.5) / 2 / 2  # kappa = 2: 3 -> 2 (3 - 1)
    close(quantile_huber(quantiles, fraction, targets, 2.0), wide)
    # kappa -> 0 is quantile regression, whose optimum is the quantile.
    close(quantile_huber(quantiles, fraction, targets, 1e-6), (0.25 * 3.5 + 0.25 * 1.5 + 0.75) / 2, rtol=1e-4)
    batched = quantile_huber(jnp.stack([quantiles, quantiles]), fraction, jnp.stack([targets, targets]))
    close(batched, [first + second] * 2)


def test_quantile_regression_finds_the_quantiles():
    samples = jnp.asarray(np.random.default_rng(0).exponential(size=2000))
    tau = fractions(5)
    slope = jax.jit(jax.grad(lambda q: quantile_huber(q, tau, samples, 1e-3)))
    q = jax.lax.fori_loop(0, 3000, lambda i, q: q - 0.05 * slope(q), jnp.zeros(5))
    close(q, np.quantile(samples, tau), atol=0.02)


limits = st.tuples(st.floats(-50, 50), st.floats(0.5, 100)).map(lambda x: (x[0], x[0] + x[1]))
shares = st.lists(st.floats(0.01, 1), min_size=6, max_size=6).map(lambda p: np.array(p) / np.sum(p))


@pytest.mark.slow
@given(limits, shares, st.floats(-3, 3), st.floats(0, 1))
def test_projection_keeps_mass_and_mean_inside_the_support(limits, probability, reward, discount):
    low, high = limits
    centres = jnp.linspace(low, high, 6)
    values, p = reward + discount * centres, jnp.asarray(probability, jnp.float32)
    out = c51.project(values, p, centres)
    assert out.min() >= 0
    close(out.sum(), 1, rtol=1e-3)
    tolerance = 1e-3 * max(abs(low), abs(high), 1)
    close(out @ centres, jnp.clip(values, low, high) @ p, atol=tolerance, rtol=1e-3)


def test_against_rlax():
    rlax = pytest.importorskip("rlax")
    rng = np.random.default_rng(1)
    y = jnp.asarray(rng.uniform(-12, 12, 64), jnp.float32)
    centres = jnp.linspace(-10.0, 10.0, 21)
    p = jax.nn.softmax(jnp.asarray(rng.normal(size=(64, 21)), jnp.float32))
    values = y[:, None] + 0.9 * centres
    want = jax.vmap(rlax.categorical_l2_project, (0, 0, None))(values, p, centres)
    close(c51.project(values, p, centres), want, atol=1e-5)
    quantiles, targets = (jnp.asarray(rng.normal(size=(64, n)), jnp.float32) for n in (5, 7))
    tau = jnp.asarray(rng.uniform(size=(64, 5)), jnp.float32)
    want = jax.vmap(lambda *x: rlax.quantile_regression_loss(*x, huber_param=1.0))(quantiles, tau, targets)
    close(quantile_huber(quantiles, tau, targets), want)


# ---- whole losses


class Table(nn.Module):
    """Logits linear in the observation, three atoms for each of two actions."""

    @nn.compact
    def __call__(self, obs):
        table = self.param("table", lambda _: jnp.log(PROBABILITY))
        return jnp.tensordot(obs["x"], table, 1)


PROBABILITY = jnp.array(
    [[[0.5, 0.25, 0.25], [0.2, 0.4, 0.4]], [[0.1, 0.1, 0.8], [0.6, 0.2, 0.2]]]
)  # state, action, atom
SPACE = Dict({"x": Box(0.0, 1.0, (2,)), "action_mask": Box(0, 1, (2,), jnp.bool_)})


@pytest.mark.slow(but_first=2)
@pytest.mark.parametrize(
    ("double", "allowed", "action"), [(True, [1, 1], 0), (False, [1, 1], 1), (True, [0, 1], 1), (False, [1, 0], 0)]
)
def test_whole_categorical_loss_by_hand(double, allowed, action):
    """The online network prefers action 0 in state 1, the target network action 1; the weight scales the loss."""
    batch = Batch(
        obs={"x": jnp.array([[1.0, 0.0]]), "action_mask": jnp.ones((1, 2), bool)},
        action=jnp.array([1]),
        reward=jnp.array([0.0]),
        discount=jnp.array([1.0]),
        next_obs={"x": jnp.array([[0.0, 1.0]]), "action_mask": jnp.array([allowed], bool)},
        weight=jnp.array([0.5]),
    )
    target = np.array([[[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]])
    rule = c51._C51(c51.Config(double=double), Table(), SPACE)
    weights = {"params": {"table": jnp.log(PROBABILITY)}}
    target_weights = {"params": {"table": jnp.log(PROBABILITY).at[1].set(jnp.log(target[0]))}}
    report, _ = q_step(rule, weights, target_weights, batch, c51.Hyper(v_min=0.0, v_max=2.0))
    value = report["loss"]
    close(value, 0.5 * cross_entropy(target[0, action], (0.2, 0.4, 0.4)))
    close(report["q_value"], 0.4 + 0.8)
    close(report["priority"], [2 * value - entropy(target[0, action])])


def test_iqn_loss_by_hand():
    batch = Batch(None, jnp.array([1]), REWARD, DISCOUNT, None)
    quantiles, following = jnp.array([[[9.0, 9.0], [0.0, 1.0]]]), jnp.array([[[1.0, 5.0], [7.0, 7.0]]])
    each = iqn.loss(quantiles, jnp.array([[0.1, 0.6]]), batch, jnp.array([0]), following)
    close(each, [0.1 * (0.5 + 2.5) / 2 + 0.6 * 1.5 / 2])  # targets 1 and 3
    close(iqn.cosines(jnp.array([0.0, 0.5]), 3), [[1, 1, 1], [1, 0, -1]])


# ---- noise


@cache
def tiny(name, **changes):
    module = MODULES.get(name, dqn)
    own = {} if name == "iqn" else {"num_outputs": 11}
    config = module.Config(**{**TINY, **own, **dict(changes)})
    algo = module.make(make("CartPole-v1")[0], config)
    return algo, module.Hyper(**START), jax.jit(algo.update)


@pytest.mark.slow
def test_noise_explores_and_greedy_actions_have_none():
    algo, hyper, _ = tiny("rainbow")
    policy, obs = algo.policy(algo.init(jax.random.key(0), hyper)), jnp.full((500, 4), 0.3)
    keys = jax.random.split(jax.random.key(1), 40)
    greedy = jax.vmap(lambda k: algo.act(policy, k, obs[0], greedy=True)[0])(keys)
    assert len(set(np.asarray(greedy))) == 1 and policy.epsilon == 0
    explored = jax.vmap(lambda k: algo.act(policy, k, obs[0])[0])(keys)
    assert set(np.asarray(explored)) == {0, 1}
    assert len(set(np.asarray(algo.act(policy, keys[0], obs)[0]))) == 1, "one draw of the weights a call"


# ---- the protocol


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_every_parameter_learns_by_finite_steps_and_compiles_once(name):
    algo, hyper, update = tiny(name)
    assert algo.name == name and algo.config.hidden == (8,)
    first = state = algo.init(jax.random.key(2), hyper)
    for _ in range(3):
        state, metrics = update(state)
    assert update._cache_size() == 1
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), first.weights, state.weights)
    assert all(jax.tree.leaves(moved)), moved
    assert all(np.isfinite(metrics[k]) for k in ("loss", "q_value", "grad_norm")) and 0 < metrics["active_units"] < 1
    assert state.optimizer.count == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rainbow", "iqn"])
def test_no_key_is_used_twice(name):
    module = MODULES[name]
    algo = module.make(ObservationReward(id="key reuse"), module.Config(**TINY))

    def run(key):
        state, _ = algo.update(algo.init(key, module.Hyper(**START)))
        return algo.act(algo.policy(state), state.key, state.obs)

    assert_no_key_reuse(run, jax.random.key(list(MODULES).index(name) + 50))


@pytest.mark.slow
def test_priorities_are_those_of_the_batches():
    """Only windows that were drawn change, by the rule p = error + 1e-6 to the power alpha."""
    algo, hyper, update = tiny("dqn", prioritised=True, n_step=2, num_updates=1)
    hyper = hyper.replace(learning_starts=9, priority_alpha=0.7)
    state, _ = update(algo.init(jax.random.key(3), hyper))
    tree = np.asarray(state.replay.tree[0])[:32]
    np.testing.assert_array_equal(tree, np.arange(32) < 6)  # 8 steps: the last of each environment has no successor
    state, metrics = update(state)
    tree = np.asarray(state.replay.tree[0])[:32]
    changed = (tree != 1) & (tree > 0)
    assert 1 <= changed.sum() <= 8 and (tree[:14] > 0).all() and (tree[14:] == 0).all()
    # The mean of half the squared errors, each drawn perhaps more than once, lies within theirs.
    errors = tree[changed] ** (1 / 0.7)
    assert 0.5 * errors.min() ** 2 - 1e-4 <= metrics["loss"] <= 0.5 * errors.max() ** 2 + 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("ratio", "counts"), [(np.inf, [2, 4, 6, 8]), (0.125, [1, 2, 3, 4]), (0.0625, [0, 1, 1, 2])])
def test_replay_ratio(ratio, counts):
    """Eight steps an update and at most two gradient steps."""
    algo, hyper, update = tiny("dqn", prioritised=True)
    state = algo.init(jax.random.key(4), hyper.replace(replay_ratio=ratio))
    for count in counts:
        before = state
        state, metrics = update(state)
        assert state.optimizer.count == count
        assert (metrics["loss"] > 0) == (count > before.optimizer.count) == np.isfinite(metrics["loss"])


# ---- probes

SMALL = dict(num_envs=8, num_steps=4, num_updates=4, batch_size=32, buffer_size=8192, hidden=(16,), activation="tanh")
FAST = dict(learning_rate=1e-2, gamma=0.8, learning_starts=200, target_period=64)
RANDOM = dict(exploration_steps=0, epsilon_end=0.5)
RANGE = dict(v_min=-6.0, v_max=6.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "probe", "config", "hyper"),
    [
        (dqn, TimeLimit(), dict(critic="hl_gauss", prioritised=True, n_step=3, num_outputs=21), RANDOM | RANGE),
        # Targets vary here, and priorities would draw their mean aside.
        (dqn, Termination(), dict(critic="two_hot", n_step=2, num_outputs=21), RANDOM | RANGE),
        (c51, Termination(), dict(num_outputs=21), RANDOM | RANGE),
        (qr_dqn, TimeLimit(), dict(num_outputs=8), RANDOM),
        (rainbow, Masked(), dict(num_outputs=21), RANGE),
        (iqn, Masked(), dict(num_quantiles=8, num_target_quantiles=8), RANDOM),
    ],
    ids=["hl_gauss", "two_hot", "c51", "qr_dqn", "rainbow", "iqn"],
)
def test_probes(module, probe, config, hyper):
    algo = module.make(probe, module.Config(**SMALL, **config))
    total = 400 * algo.steps_per_update
    settings = module.Hyper(**FAST, **hyper, anneal_steps=total)
    state, metrics = jax.jit(lambda key: train(algo, key, total, settings))(jax.random.key(0))
    known = probe.known(0.8)
    learner = algo.policy.__self__
    q = np.asarray(learner.values(algo.policy(state), known.obs, None))
    if isinstance(known.obs, dict):
        q = np.where(known.obs["action_mask"], q, -np.inf)
    close(q.max(-1), known.value, atol=0.1, rtol=0.03)
    if known.action is not None:
        np.testing.assert_array_equal(
            algo.act(algo.policy(state), jax.random.key(1), known.obs, greedy=True)[0], known.action
        )
    if isinstance(probe, Masked):
        assert np.min(metrics["episode_return"]) >= 0, "a forbidden action costs 10"


# ---- what is refused


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: dqn.Config(critic="mes"), r"'mes'.*mse, huber, two_hot, hl_gauss; c51, qr_dqn and iqn"),
        (lambda: dqn.Config(critic="hl_gauss", num_outputs=4), r"num_outputs=4.*hl_gauss needs at least 5"),
        (lambda: rainbow.Config(num_envs=4, num_steps=2, buffer_size=8), r"buffer_size=8.*16 does"),
        (lambda: iqn.Config(num_quantiles=0), r"num_quantiles=0"),
        (
            lambda: c51.make(make("CartPole-v1")[0]).init(jax.random.key(0), c51.Hyper(v_min=5.0, v_max=5.0)),
            r"v_min=5.0, v_max=5.0",
        ),
        (lambda: iqn.Config(hidden=()), r"hidden layer"),
        (lambda: c51.make(make("Pendulum-v1")[0]), r"c51 acts in Discrete"),
        (lambda: iqn.make(make("Pendulum-v1")[0]), r"iqn acts in Discrete"),
        (
            lambda: c51.make(make("CartPole-v1")[0], network=nn.Dense(2)),
            r"\(10, 2\).*needs \(10, 2, 101\)",
        ),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_relatives_differ_from_dqn_only_where_they_say():
    base = dataclasses.asdict(dqn.Config())
    del base["critic"]
    everything = {"double": True, "prioritised": True, "dueling": True, "noisy": True, "n_step": 3}
    for config, changes in (
        (c51.Config(), {"double": False}),
        (qr_dqn.Config(), {"double": False, "num_outputs": 51}),
        (rainbow.Config(), {**everything, "num_outputs": 51}),
    ):
        assert dataclasses.asdict(config) == base | changes
    hyper, limits = dataclasses.asdict(dqn.Hyper()), ("v_min", "v_max")
    without = {name: value for name, value in hyper.items() if name not in limits}
    silent = dict(epsilon_start=0.0, epsilon_end=0.0, exploration_steps=0, priority_steps=500_000)
    for module, want in ((c51, hyper), (qr_dqn, without), (iqn, without), (rainbow, hyper | silent)):
        assert dataclasses.asdict(module.Hyper()) == want
