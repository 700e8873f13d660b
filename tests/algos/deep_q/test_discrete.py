"""Learners of Discrete actions from stored data: losses by hand, and what each makes of data with a known best one."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import bc, bcq_discrete, c51, cql_discrete, crr_discrete, dqn, iqn, qr_dqn, rem
from jaxrl.data import datasets
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Stored
from jaxrl.off_policy import fine_tune
from jaxrl.off_policy.q_learner import Batch, stored_to_batch
from jaxrl.replay.ring import uniform
from jaxrl.spaces import Box, Dict, Discrete
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import ObservationActionReward
from jaxrl.testing.rules import q_step

KEY = jax.random.key(0)


def close(actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=1e-5, atol=1e-6)


# ---- losses


class Table(nn.Module):
    """Outputs linear in the observation: rows of the table, or of a mask beside it."""

    @nn.compact
    def __call__(self, obs):
        x = obs["x"] if isinstance(obs, dict) else obs
        return jnp.tensordot(x, self.param("table", lambda _: jnp.zeros((2, 3))), 1)


def table(rows):
    return {"params": {"table": jnp.array(rows, jnp.float32)}}


PLAIN = Box(0.0, 1.0, (2,))
MASKED = Dict({"x": PLAIN, "action_mask": Box(0, 1, (3,), jnp.bool_)})
Q = [[1.0, 2.0, 0.5], [4.0, 3.0, 0.0]]  # of the two states
TARGET_Q = [[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]


def one(allowed=None, next_action=2, return_to_go=2.25):
    """State 0, action 1, reward 0.5, state 1."""

    def seen(row):
        x = jnp.eye(2)[row][None]
        return x if allowed is None else {"x": x, "action_mask": jnp.array([allowed], bool)}

    known = dict(next_action=jnp.array([next_action]), return_to_go=jnp.array([return_to_go]))
    return Batch(seen(0), jnp.array([1]), jnp.array([0.5]), jnp.array([0.9]), seen(1), **known)


def loss_of(rule, weights, target_weights, batch, hyper, key=None):
    report, _ = q_step(rule, weights, target_weights, batch, hyper, key)
    return [report["loss"]], report  # of the one transition


def huber(error):
    return 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5


def test_steps_of_a_dataset_by_hand():
    true, numbers = jnp.array([False, True]), jnp.array([1.0, 2.0])
    obs = {"x": numbers, "privileged": numbers}
    batch = stored_to_batch(
        Stored(obs, jnp.array([0, 1]), numbers, true, obs, jnp.array([1, 1]), 3 * numbers, numbers), 0.9
    )
    close(batch.discount, [0.9, 0.0])
    close(batch.return_to_go, [3.0, 6.0])
    assert set(batch.obs) == set(batch.next_obs) == {"x"} and batch.weight is None


@pytest.mark.parametrize(
    ("target", "bootstrap"),
    [("double", 0.5 + 0.9 * 1), ("max", 0.5 + 0.9 * 3), ("data", 0.5 + 0.9 * 2), ("returns", 2.25)],
)
def test_cqls_loss_by_hand(target, bootstrap):
    """Online action 0 is the best of state 1, of the target network action 2; the data took action 1."""
    rule = cql_discrete._CQL(cql_discrete.Config(target=target), Table(), PLAIN)
    each, report = loss_of(rule, table(Q), table(TARGET_Q), one(next_action=1), cql_discrete.Hyper(min_q_weight=0.5))
    gap = np.log(np.exp(1.0) + np.exp(2.0) + np.exp(0.5)) - 2
    close(report["td_error"], huber(2 - bootstrap))
    close(report["penalty"], gap)
    close(each, [huber(2 - bootstrap) + 0.5 * gap])


def test_cqls_penalty_counts_allowed_actions_alone_and_pushes_the_others_down():
    rule = cql_discrete._CQL(cql_discrete.Config(), Table(), MASKED)
    _, report = loss_of(rule, table(Q), table(TARGET_Q), one([0, 1, 1]), cql_discrete.Hyper(min_q_weight=0.5))
    close(report["penalty"], np.log(np.exp(2.0) + np.exp(0.5)) - 2)
    slope = jax.grad(lambda q: cql_discrete.penalty(q, q[:, 1])[0])(jnp.array(Q[:1]))
    close(slope, jax.nn.softmax(jnp.array(Q[:1])) - np.array([[0, 1, 0]]))


def test_cql_of_quantiles_has_their_mean_in_the_penalty():
    class Quantiles(nn.Module):
        @nn.compact
        def __call__(self, obs):
            return self.param("table", lambda _: jnp.zeros((2, 3, 2)))[jnp.argmax(obs, -1)]

    rule = cql_discrete._CQL(cql_discrete.Config(num_outputs=2), Quantiles(), PLAIN)
    spread = jnp.stack([jnp.array(Q) - 1, jnp.array(Q) + 1], -1)
    _, report = loss_of(rule, {"params": {"table": spread}}, {"params": {"table": spread}}, one(), cql_discrete.Hyper())
    close(report["penalty"], np.log(np.exp(1.0) + np.exp(2.0) + np.exp(0.5)) - 2)


def test_rems_mixture_is_convex_and_drawn_by_the_key():
    alpha = np.stack([rem.mixture(jax.random.key(i), 4) for i in range(3)])
    close(alpha.sum(1), 1)
    assert (alpha >= 0).all() and np.unique(alpha).size == 12


@pytest.mark.parametrize("double", [False, True])
def test_rems_loss_by_hand(double):
    class Heads(nn.Module):
        @nn.compact
        def __call__(self, obs):
            return self.param("table", lambda _: jnp.zeros((2, 3, 2)))[jnp.argmax(obs, -1)]

    heads = np.stack([Q, np.array(Q) * [[1.0, -1.0, 2.0]]], -1)
    target_heads = np.stack([TARGET_Q, np.array(TARGET_Q) * [[1.0, 4.0, -1.0]]], -1)
    rule = rem._REM(rem.Config(num_outputs=2, double=double), Heads(), PLAIN)
    weights, target_weights = ({"params": {"table": jnp.array(x, jnp.float32)}} for x in (heads, target_heads))
    each, report = loss_of(rule, weights, target_weights, one(), rem.Hyper(), KEY)
    alpha = np.asarray(rem.mixture(KEY, 2))
    q, ahead = heads[0, 1] @ alpha, target_heads[1] @ alpha
    following = ahead[np.argmax(heads[1] @ alpha)] if double else ahead.max()
    close(each, [huber(q - 0.5 - 0.9 * following)])
    close(report["q_value"], q)
    close(rule.values(weights, jnp.eye(2), (), None), heads.mean(-1))


def test_bcqs_threshold_by_hand():
    logits = jnp.log(jnp.array([0.6, 0.3, 0.1]))
    np.testing.assert_array_equal(bcq_discrete.likely(logits, 0.4), [True, True, False])
    np.testing.assert_array_equal(bcq_discrete.likely(logits, 0.6), [True, False, False])
    np.testing.assert_array_equal(bcq_discrete.likely(logits, 0.0), [True, True, True])
    np.testing.assert_array_equal(bcq_discrete.likely(logits, 1.0), [True, False, False])
    close(bcq_discrete.behaviour_loss(logits[None], jnp.array([1])), [-np.log(0.3) + 0.01 * np.mean(logits**2)])


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    ("threshold", "following"),
    [(0.0, 1.0), (0.4, 2.0), (0.6, 3.0)],  # the online network's best of the actions that count: 0, 1, and 2 alone
)
def test_bcqs_loss_by_hand(threshold, following):
    rule = bcq_discrete._BCQ(bcq_discrete.Config(), Table(), PLAIN)
    logits = np.log([[0.25, 0.25, 0.5], [0.1, 0.3, 0.6]])
    weights = {"values": table(Q), "behaviour": table(logits)}
    # The target network's imitation is not asked.
    target_weights = {"values": table(TARGET_Q), "behaviour": table(np.zeros((2, 3)))}
    each, report = loss_of(rule, weights, target_weights, one(), bcq_discrete.Hyper(threshold=threshold))
    cloned = np.log(4) + 0.01 * np.mean(logits[0] ** 2)
    close(report["behaviour_loss"], cloned)
    close(each, [huber(2 - 0.5 - 0.9 * following) + cloned])
    best = np.argmax(rule.values(weights, jnp.eye(2), (threshold,), None), -1)
    np.testing.assert_array_equal(best, {0.0: [1, 0], 0.4: [1, 1], 0.6: [2, 2]}[threshold])


def test_bcq_with_a_mask_clones_among_allowed_actions():
    rule = bcq_discrete._BCQ(bcq_discrete.Config(), Table(), MASKED)
    logits = np.log([[0.25, 0.25, 0.5], [0.1, 0.3, 0.6]])
    weights = {"values": table(Q), "behaviour": table(logits)}
    each, report = loss_of(rule, weights, weights, one([1, 1, 0]), bcq_discrete.Hyper(threshold=0.6))
    close(report["behaviour_loss"], np.log(2) + 0.01 * np.mean(logits[0] ** 2))
    close(each, [huber(2 - 0.5 - 0.9 * 3) + report["behaviour_loss"]])  # of state 1 action 1 alone counts


@pytest.mark.parametrize(("weight", "f"), [("binary", [1, 0]), ("exp", [np.exp(2), np.exp(-4)])])
def test_crrs_weights_by_hand(weight, f):
    log_prob, advantage = jnp.array([-1.0, -3.0]), jnp.array([1.0, -2.0])
    close(crr_discrete.policy_loss(log_prob, advantage, 0.5, weight), [f[0] * 1, f[1] * 3])
    slope = jax.grad(lambda a: jnp.sum(crr_discrete.policy_loss(log_prob, a, 0.5, weight)))(advantage)
    assert not slope.any()
    close(crr_discrete.policy_loss(log_prob, jnp.array([50.0, 0.0]), 0.5, "exp"), [20.0, 3.0])


@pytest.mark.parametrize("weight", ["binary", "exp"])
def test_crrs_loss_by_hand(weight):
    rule = crr_discrete._CRR(crr_discrete.Config(weight=weight), Table(), PLAIN)
    probabilities = np.array([[0.25, 0.25, 0.5], [0.1, 0.3, 0.6]])
    weights = {"values": table(Q), "policy": table(np.log(probabilities))}
    target_weights = {"values": table(TARGET_Q), "policy": table(np.log(probabilities[:, ::-1]))}
    each, report = loss_of(rule, weights, target_weights, one(), crr_discrete.Hyper(temperature=0.5))
    advantage = 2 - (0.25 * 1 + 0.25 * 2 + 0.5 * 0.5)
    close(report["advantage"], advantage)
    f = 1 if weight == "binary" else np.exp(advantage / 0.5)
    close(report["policy_loss"], f * np.log(4))
    close(each, [huber(2 - 0.5 - 0.9 * (0.6 * 1 + 0.3 * 2 + 0.1 * 3)) + f * np.log(4)])


def test_clonings_loss_by_hand():
    logits = jnp.log(jnp.array([[0.25, 0.75], [0.5, 0.5]]))
    close(bc.cross_entropy(logits, jnp.array([1, 0])), -(np.log(0.75) + np.log(0.5)) / 2)


# ---- on a dataset

ENV = ObservationActionReward()
PARAMS = ENV.default_params
SPACE = ENV.action_space(PARAMS)
SIZES = dict(num_updates=50, batch_size=64, hidden=(16,))
MODULES = {"dqn": dqn, "qr_dqn": qr_dqn, "c51": c51, "iqn": iqn, "bc": bc, "cql_discrete": cql_discrete, "rem": rem}
MODULES |= {"bcq_discrete": bcq_discrete, "crr_discrete": crr_discrete}
CONFIG = {"qr_dqn": dict(num_outputs=8), "c51": dict(num_outputs=11), "rem": dict(num_outputs=4)}
CONFIG |= {"iqn": dict(num_quantiles=8, num_target_quantiles=8, hidden=(16, 16), activation="tanh")}
HYPER = {"c51": dict(v_min=-3.0, v_max=3.0), "cql_discrete": dict(min_q_weight=0.1)}


def one_step_data(n=2000, wise=0.5):
    """Episodes of a step: with probability `wise` the best action, the cue's, and reward 1, else the other and -1."""
    rng = np.random.default_rng(0)
    known = ENV.known(0.9)
    cue = rng.integers(0, len(known.obs), n)
    best = np.asarray(known.action)[cue].astype(np.int32)
    right = rng.uniform(size=n) < wise
    obs, true = np.asarray(known.obs)[cue], np.ones(n, bool)
    return Dataset(obs, np.where(right, best, 1 - best), np.where(right, 1.0, -1.0).astype(np.float32), true, true, obs)


def learner(name, memory, **config):
    module = MODULES[name]
    algo = module.make(ENV, module.Config(**{**SIZES, **CONFIG.get(name, {}), **config}), replay=memory)
    periods = {} if name == "bc" else dict(target_period=50)
    return algo, module.Hyper(**{"learning_rate": 1e-2, **periods, **HYPER.get(name, {})})


@pytest.fixture(scope="module")
def memory():
    return datasets.stored(one_step_data(), SPACE)


@pytest.mark.parametrize(
    "name", [n if n == "cql_discrete" else pytest.param(n, marks=pytest.mark.slow) for n in MODULES]
)
def test_learns_the_best_action_of_the_data(name, memory):
    """The data has both actions as often; cloning is asked of data that has the best one more often."""
    if name == "bc":
        memory = datasets.stored(one_step_data(wise=0.8), SPACE)
    algo, hyper = learner(name, memory)
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 500, hyper, PARAMS))(KEY)
    known = ENV.known(0.9)
    action, _ = algo.act(algo.policy(state), KEY, known.obs, greedy=True)
    np.testing.assert_array_equal(action, known.action)
    assert int(state.step) == 500 and algo.steps_per_update == 50
    assert (np.asarray(metrics["gradient_steps"]) == 50).all() and np.isnan(metrics["episode_return"]).all()


@pytest.mark.slow
def test_nothing_acts_on_a_dataset(memory):
    algo, hyper = learner("cql_discrete", memory, num_updates=2)
    state = algo.init(KEY, hyper, PARAMS)
    assert_no_key_reuse(lambda state: algo.learn(*algo.collect(state)), state)
    assert algo.collect(state)[1] is None and state.replay == ()


@pytest.mark.slow
def test_the_values_of_the_data_are_those_of_its_policy():
    """Chains of two steps, whose second action is right in a quarter of them: BVE and MCE say so, max does not."""
    n = 2000
    right = np.arange(n) % 4 == 0
    second = np.arange(2 * n) % 2 == 1
    obs = np.where(second, 1.0, -1.0).astype(np.float32)[:, None]
    action = np.where(second, np.repeat(right, 2), 0).astype(np.int32)
    reward = np.where(second & (action == 1), 1.0, 0.0).astype(np.float32)
    data = Dataset(obs, action, reward, second, second, np.roll(obs, -1, 0))
    memory = datasets.stored(data, SPACE, gamma=1.0)
    for target, value in (("data", 0.25), ("returns", 0.25), ("max", 1.0)):
        algo, _ = learner("cql_discrete", memory, target=target)
        hyper = cql_discrete.Hyper(learning_rate=3e-3, gamma=1.0, min_q_weight=0.0, target_period=50)
        state, _ = jax.jit(lambda key, algo=algo, hyper=hyper: jaxrl.train(algo, key, 1500, hyper, PARAMS))(KEY)
        q = algo.policy.__self__.values(algo.policy(state), jnp.array([[-1.0]]), None)
        np.testing.assert_allclose(q[0, 0], value, atol=0.1)


@pytest.mark.parametrize("name", [n for n in MODULES if n != "bc"])
def test_what_a_dataset_does_not_have_is_refused(name, memory):
    module = MODULES[name]
    for config, message in ((dict(n_step=2), "n_step=2"), (dict(prioritised=True), "prioritised=True")):
        if all(field in module.Config.__dataclass_fields__ for field in config):
            with pytest.raises(ValueError, match=message):
                module.make(ENV, module.Config(**config), replay=memory)
    with pytest.raises(ValueError, match=f"{name}: replay is a dataset"):
        module.make(ENV, module.Config(), replay=uniform(64))


def test_priorities_are_of_the_steps_that_were_learned(memory):
    """Those of other steps stay 1, and each seed has its own."""
    size = 40
    obs = np.linspace(-1, 1, size, dtype=np.float32)[:, None]
    ends = np.ones(size, bool)
    data = Dataset(obs, np.zeros(size, np.int32), obs[:, 0], ends, ends, obs)
    config = cql_discrete.Config(**{**SIZES, "num_updates": 1, "batch_size": 8}, prioritised=True)
    algo = cql_discrete.make(ENV, config, replay=datasets.prioritised(data, SPACE))
    hyper = cql_discrete.Hyper(priority_alpha=1.0)
    state, _ = jax.jit(jax.vmap(lambda key: jaxrl.train(algo, key, 1, hyper, PARAMS)))(jax.random.split(KEY, 2))
    leaves = np.asarray(state.replay[0])[:, :size]
    drawn = (leaves != 1).sum(1)
    assert np.all((drawn > 3) & (drawn <= 8)) and np.any((leaves != 1)[0] != (leaves != 1)[1])
    with pytest.raises(ValueError, match="prioritised=True: cql_discrete draws from `datasets.prioritised`"):
        cql_discrete.make(ENV, config, replay=memory)
    with pytest.raises(ValueError, match="prioritised=False: cql_discrete draws from"):
        cql_discrete.make(ENV, cql_discrete.Config(**SIZES), replay=datasets.prioritised(data, SPACE))


def test_impossible_settings_are_refused():
    for bad, message in ((dict(target="best"), "target='best'"), (dict(num_outputs=0), "num_outputs=0")):
        with pytest.raises(ValueError, match=message):
            cql_discrete.Config(**bad)
    for target in ("data", "returns"):
        with pytest.raises(ValueError, match=f"target='{target}': it needs a dataset"):
            cql_discrete.make(ENV, cql_discrete.Config(target=target))
    with pytest.raises(ValueError, match="num_outputs=1: rem needs at least 2"):
        rem.Config(num_outputs=1)
    with pytest.raises(ValueError, match="weight='max' is unknown"):
        crr_discrete.Config(weight="max")
    box = ObservationActionReward("box")
    for module in (cql_discrete, rem, bcq_discrete, crr_discrete):
        with pytest.raises(ValueError, match="acts in Discrete spaces"):
            module.make(box)
        with pytest.raises(ValueError, match="network gives values"):
            module.make(ENV, network=nn.Dense(7))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bc", "cql_discrete", "crr_discrete"])
def test_goes_on_in_the_environment(name, memory):
    algo, hyper = learner(name, memory)
    trained = jax.jit(algo.update)(algo.init(KEY, hyper, PARAMS))[0]
    online, _ = learner(name, None, num_envs=2, num_updates=2, buffer_size=64)
    state = fine_tune.start(online, trained, KEY, hyper, PARAMS, warm_up=8)
    for new, old in zip(jax.tree.leaves(state.weights), jax.tree.leaves(trained.weights), strict=True):
        np.testing.assert_array_equal(new, old)
    state, metrics = jax.jit(online.update)(state)
    assert int(state.step) == 10 and int(metrics["gradient_steps"]) == 2


def test_clones_act_by_chance_or_by_the_likeliest():
    algo, hyper = learner("bc", None, num_envs=2)
    policy = algo.policy(algo.init(KEY, hyper, PARAMS))
    obs = jnp.repeat(ENV.known(0.9).obs, 200, 0)
    drawn, _ = algo.act(policy, KEY, obs)
    best, _ = algo.act(policy, KEY, obs, greedy=True)
    assert SPACE == Discrete(2) and set(np.unique(drawn)) == {0, 1}
    assert best.dtype == drawn.dtype == jnp.int32 and np.unique(best.reshape(2, 200), axis=1).shape == (2, 1)
