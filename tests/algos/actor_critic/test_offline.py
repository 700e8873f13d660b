"""Learners from stored data: losses against arrays computed by hand, and what each makes of data with a known best."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrl
from jaxrl.algos import awac, bc, cql, dvl, edac, famo2o, iql, mopo, morel, ravl, rebrac, recoil, ro2o, sac, td3_bc
from jaxrl.data import datasets
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Stored
from jaxrl.nn.actor_critic import Deterministic, Gaussian, TanhGaussian
from jaxrl.nn.distributions import TanhNormal
from jaxrl.nn.losses import advantage_weighted_loss, critic_loss, expectile_loss, td_target
from jaxrl.nn.nets import critic_values, net
from jaxrl.nn.optim import optimizer_of
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import ObservationActionReward
from jaxrl.testing.rules import step

KEY = jax.random.key(0)
REWARD, TERMINATED = jnp.array([1.0, 2.0, 3.0]), jnp.array([False, True, False])
NEXT_Q = jnp.array([[1.0, 5.0, 2.0], [2.0, 4.0, -1.0]])


def close(actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=1e-6, atol=1e-7)


# ---- targets and losses


class Table:
    """Q(s, a) is the state's number plus the action; V(s) the state's number. States are numbered."""

    def apply(self, weights, obs, action=None, mutable=None):
        values = weights[obs] + (0 if action is None else action[..., 0])
        return values if mutable is None else (values, {})


class Known(TanhNormal):
    """Actions 0 with known densities, of states whose numbers are its mean."""

    def sample(self, key):
        return jnp.zeros_like(self.mean)

    def mode(self):
        return self.sample(None)

    def log_prob(self, x):
        return LOG_PROB[self.mean[..., 0].astype(jnp.int32)]

    def sample_and_log_prob(self, key):
        return self.sample(key), self.log_prob(None)

    def kl(self, other):
        return jnp.zeros(self.mean.shape[:-1])


def known(obs):
    column = jnp.asarray(obs, jnp.float32)[..., None]
    return Known(column, 0 * column)


def standard(obs):
    """The same distribution in all states."""
    return TanhNormal(jnp.zeros((*obs.shape, 1)), jnp.zeros((*obs.shape, 1)))


def zero(kind, distribution=known):
    """An actor of this kind whose actions are 0 where it acts."""

    class Zero(kind):
        def __call__(self, weights, obs):
            return jnp.zeros((*obs.shape, 1)) if kind is Deterministic else distribution(obs)

        def explore(self, weights, key, obs, noise=None):
            return jnp.zeros((*obs.shape, 1))

    return Zero(nn.Module())


class Members(famo2o.Family):
    """They are all alike."""

    def balances(self, weights, obs):
        return standard(obs)

    def policy(self, weights, obs, beta):
        return known(obs)


LOG_PROB = jnp.array([1.0, 1.0, -2.0])
Q = jnp.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
STATES, NEXT_ACTION = jnp.arange(3), jnp.sqrt(jnp.array([[2.0], [2.0], [4.0]]))
STEPS = Stored(STATES, jnp.zeros((3, 1)), REWARD, TERMINATED, STATES, NEXT_ACTION, REWARD, REWARD)
LAZY, SOFT_ACTOR = zero(Deterministic), zero(TanhGaussian)
RULES = {
    "td3_bc": (td3_bc._TD3BC(td3_bc.Config(), Table(), LAZY), td3_bc.Hyper(policy_noise=0.0)),
    "rebrac": (rebrac._ReBRAC(rebrac.Config(), Table(), LAZY), rebrac.Hyper(policy_noise=0.0, critic_penalty=0.1)),
    "awac": (awac._AWAC(Table(), zero(Gaussian)), awac.Hyper()),
    "cql": (cql._CQL(cql.Config(), Table(), zero(TanhGaussian, standard)), cql.Hyper(min_q_weight=0.0)),
    "edac": (edac._EDAC(edac.Config(num_critics=2, diverse=False), Table(), SOFT_ACTOR), edac.Hyper()),
    "ro2o": (ro2o._RO2O(ro2o.Config(num_critics=2), Table(), SOFT_ACTOR), ro2o.Hyper(ood=0.0)),
    "mopo": (mopo._MOPO(mopo.Config(num_critics=2), Table(), SOFT_ACTOR), mopo.Hyper()),
    "morel": (morel._MOReL(morel.Config(num_critics=2), Table(), SOFT_ACTOR), morel.Hyper()),
    "ravl": (ravl._RAVL(ravl.Config(num_critics=2, diverse=False), Table(), SOFT_ACTOR), ravl.Hyper()),
}
PLAIN, SOFT = [1.5, 2.0, 2.5], [1.25, 2.0, 3.0]
WANTED = {"td3_bc": PLAIN, "awac": PLAIN, "cql": PLAIN, "rebrac": [1.4, 2.0, 2.3], "edac": SOFT, "ro2o": SOFT}
WANTED |= {"mopo": SOFT, "morel": SOFT, "ravl": SOFT}


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", WANTED)
def test_targets_by_hand(name):
    """Of the target critics' smaller value; the gradient of a squared error tells them."""
    rule, hyper = RULES[name]
    weights = {"critic": Q, "actor": jnp.zeros(1), "log_alpha": jnp.log(0.5)}
    hyper = hyper.replace(gamma=0.5, learning_rate=1.0)
    report, change = step(rule, weights, {"critic": NEXT_Q, "actor": jnp.zeros(1)}, STEPS, hyper, KEY)
    close(Q - 3 / 2 * change["critic"], [WANTED[name]] * 2)
    close(report["q_value"], Q.mean())


@pytest.mark.parametrize("name", ["iql", "famo2o"])
def test_targets_of_a_value_by_hand(name):
    """The critics regress on V(s'), what it is after a step of its own."""
    value = jnp.array([1.0, 4.0, -1.0])
    close(td_target(REWARD, TERMINATED, value, 0.5), PLAIN)
    rule = cloning(name)[0]
    hyper = {"iql": iql, "famo2o": famo2o}[name].Hyper(gamma=0.5, learning_rate=1.0)
    weights = {"critic": Q, "actor": jnp.zeros(1), "value": value, "balance": jnp.zeros(1), "log_alpha": jnp.zeros(())}
    _, change = step(rule, weights, {"critic": NEXT_Q + 1}, STEPS, hyper, KEY)
    assert np.abs(change["value"]).max() > 0.1
    target = td_target(REWARD, TERMINATED, value - change["value"], 0.5)
    close(Q - 3 / 2 * change["critic"], [target] * 2)


def test_iqls_rewards_are_scaled_and_shifted():
    """Twice the reward less 1, also where the task ends."""
    value = jnp.array([1.0, 4.0, -1.0])
    hyper = iql.Hyper(gamma=0.5, learning_rate=1.0, reward_scale=2.0, reward_bias=-1.0)
    weights = {"critic": Q, "actor": jnp.zeros(1), "value": value}
    _, change = step(cloning("iql")[0], weights, {"critic": NEXT_Q + 1}, STEPS, hyper, KEY)
    ahead = value - change["value"]
    close(Q - 3 / 2 * change["critic"], [[2 - 1 + 0.5 * ahead[0], 4 - 1, 6 - 1 + 0.5 * ahead[2]]] * 2)


def cloning(name):
    """A rule, with settings of which two units make the exponent of an advantage of 1."""
    table, actor = Table(), zero(Gaussian)
    if name == "awac":
        return awac._AWAC(table, actor), awac.Hyper(temperature=0.5)
    if name == "iql":
        return iql._IQL(table, table, actor), iql.Hyper(beta=2.0)
    if name == "dvl":
        return dvl._DVL(dvl.Config(), table, table, actor), dvl.Hyper(beta=2.0)
    if name == "recoil":
        return recoil._ReCOIL(table, table, actor), recoil.Hyper(beta=2.0)
    rule = famo2o._FamO2O(famo2o.Config(), table, table, Members(None, None))
    return rule, famo2o.Hyper(beta_min=2.0, beta_max=2.0)


def test_losses_by_hand():
    close(critic_loss(jnp.array([[0.0, 1.0], [2.0, 3.0]]), jnp.array([1.0, 1.0])), 0.5 + 2.5)
    action, wanted = jnp.array([[0.0, 1.0], [0.5, 0.5]]), jnp.zeros((2, 2))
    close(bc.actor_loss(action, wanted), 1.5 / 4)
    close(td3_bc.actor_loss(jnp.array([1.0, -3.0]), action, wanted, 2.0), 1.0 + 1.5 / 4)
    close(rebrac.penalty(action, wanted), [1.0, 0.5])
    close(rebrac.actor_loss(jnp.array([[1.0, 4.0], [3.0, 2.0]]), jnp.array([1.0, 0.5])), 0.75 - 1.0)
    advantage, log_prob = jnp.array([1.0, -2.0]), jnp.array([-1.0, -3.0])
    close(expectile_loss(advantage, 0.7), (0.7 * 1 + 0.3 * 4) / 2)
    close(advantage_weighted_loss(log_prob, 2 * advantage), (np.exp(2) * 1 + np.exp(-4) * 3) / 2)
    close(advantage_weighted_loss(log_prob, 2 * jnp.array([50.0, -2.0])), (100 * 1 + np.exp(-4) * 3) / 2)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", ["iql", "dvl", "recoil", "famo2o", "awac"])
def test_actors_are_cloned_by_weight(name):
    """Advantages 1, -2 and 50, of which two units of the temperature make 2, -4 and a weight of 100 at most."""
    advantage, value = jnp.array([1.0, -2.0, 50.0]), jnp.array([3.0, 1.0, -4.0])
    rule, hyper = cloning(name)
    weights = {"critic": Q, "actor": jnp.zeros(1), "value": value, "balance": jnp.zeros(1), "log_alpha": jnp.zeros(())}
    targets = jnp.stack([advantage + value, advantage + value + 9])
    batch = recoil.Pair(STEPS, STEPS) if name == "recoil" else STEPS
    if name == "awac":  # the value of the data's action less that of its own, which is 0
        batch = STEPS._replace(action=advantage[:, None])
    report, _ = step(rule, weights, {"critic": targets}, batch, hyper.replace(learning_rate=0.0), KEY)
    close(report["actor_loss"], -np.mean(np.array([np.exp(2), np.exp(-4), 100]) * LOG_PROB))


def test_weights_of_actors_are_held_fixed():
    slope = jax.grad(lambda a: advantage_weighted_loss(jnp.array([-1.0, -3.0]), 2 * a))(jnp.array([1.0, -2.0]))
    assert not slope.any()


def test_edacs_similarity_by_hand():
    """Two critics that agree, and three, of which two are opposite and one is across."""
    same = jnp.array([[[3.0, 4.0]], [[3.0, 4.0]]])
    close(edac.similarity(same), 2.0)
    three = jnp.array([[[2.0, 0.0]], [[-1.0, 0.0]], [[0.0, 5.0]]])
    close(edac.similarity(three), 2 * (-1 + 0 + 0) / 2)


def test_cqls_penalty_by_hand():
    q, density = jnp.array([[[1.0], [3.0]]]), jnp.array([[0.0], [np.log(2.0)]])
    close(cql.penalty(q, density, jnp.array([[2.0]]), 1.0), np.log(np.exp(1.0) + np.exp(3.0) / 2) - 2)


def test_cqls_backup_of_the_best_next_action_by_hand():
    """The smaller critic's values of three actions at each of two states, then the largest of them."""
    next_q = jnp.array([[[1.0, 5.0], [4.0, 2.0], [3.0, 0.0]], [[2.0, 1.0], [0.0, 3.0], [2.0, 9.0]]])
    close(cql.best_of(next_q), [2.0, 2.0])


class Drawn(TanhGaussian):
    """An actor that draws actions by their key, alike in all states."""

    def __call__(self, weights, obs):
        return standard(obs)


def test_cql_backs_up_the_best_of_the_actors_actions():
    """Q(s, a) is the state's number plus the action, so the target has the largest of the actions that were drawn."""
    rule = cql._CQL(cql.Config(num_actions=5, max_target_backup=True), Table(), Drawn(nn.Module()))
    key = jax.random.key(3)
    actions = jnp.stack([Drawn(nn.Module()).explore(None, k, STATES) for k in jax.random.split(key, 5)])
    close(rule.next_value(None, NEXT_Q, key, STATES), NEXT_Q.min(0) + actions[..., 0].max(0))
    weights = {"critic": Q, "actor": jnp.zeros(1), "log_alpha": jnp.log(0.5)}
    hyper = cql.Hyper(min_q_weight=0.0, gamma=0.5, learning_rate=1.0)
    _, change = step(rule, weights, {"critic": NEXT_Q}, STEPS, hyper, KEY)
    target = Q - 3 / 2 * change["critic"]
    assert np.all(np.asarray(target[0])[[0, 2]] > np.array(PLAIN)[[0, 2]]) and target[0, 1] == 2


def test_cal_ql_holds_values_up_to_the_bound_alone():
    """The penalty's gradient in a critic is 0 through actions of the actor whose values are below the bound."""
    rule = cql._CQL(cql.Config(num_actions=1, calibrated=True), Table(), Drawn(nn.Module()))
    weights = {"critic": jnp.zeros((2, 3)), "actor": jnp.zeros(1), "log_alpha": jnp.log(0.5)}
    hyper = cql.Hyper(min_q_weight=1.0, gamma=0.0, learning_rate=1.0)
    still = STEPS._replace(reward=jnp.zeros(3))
    for bound in (-jnp.inf, 100.0):
        # The sum known so far says nothing: only the bound is read.
        batch = still._replace(return_to_go=jnp.full(3, 1e6), return_bound=jnp.full(3, bound))
        report, change = step(rule, weights, {"critic": jnp.zeros((2, 3))}, batch, hyper, KEY)
        if bound > 0:
            # logsumexp is of the actor's actions, which are held at the bound: what is left is -mean Q of the data.
            close(change["critic"], jnp.full((2, 3), -1 / 3))
            assert 2 * 100 < report["penalty"] < 2 * 105
        else:
            assert np.abs(change["critic"]).max() < 1e-6 and report["penalty"] < 2 * 5


def soft(rule, hyper):
    """The change of the actor and of the critics in one step of plain descent."""
    weights = {"critic": jnp.zeros((2, 3)), "actor": jnp.full(1, 0.1), "log_alpha": jnp.log(0.5)}
    return step(rule, weights, {"critic": jnp.zeros((2, 3)), "actor": jnp.zeros(1)}, STEPS, hyper, KEY)[1]


class Shifted(TanhGaussian):
    """An actor of one weight, which its mean is."""

    def __call__(self, weights, obs):
        return TanhNormal(jnp.zeros((*obs.shape, 1)) + weights, jnp.zeros((*obs.shape, 1)))


class Moved(Deterministic):
    """An actor of one weight, which its action is."""

    def __call__(self, weights, obs):
        return jnp.zeros((*obs.shape, 1)) + weights


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", ["cql", "edac", "ro2o", "mopo", "morel", "ravl", "rebrac"])
def test_the_actor_has_a_rate_of_its_own(name):
    """A third of the step, and the critics' as it was; infinite, it is that of all networks."""
    rule, hyper = RULES[name]
    rule = dataclasses.replace(rule, config=rebrac.Config(policy_delay=1)) if name == "rebrac" else rule
    rule = dataclasses.replace(rule, actor=(Moved if name == "rebrac" else Shifted)(nn.Module()))
    rates = {"alike": 0.3, "own": 0.1, "same": jnp.inf}
    change = {at: soft(rule, hyper.replace(learning_rate=0.3, actor_learning_rate=rate)) for at, rate in rates.items()}
    close(change["same"]["actor"], change["alike"]["actor"])
    close(change["own"]["actor"], change["same"]["actor"] / 3)
    close(change["own"]["critic"], change["same"]["critic"])
    assert np.abs(change["same"]["actor"]).max() > 1e-3


@pytest.mark.parametrize("module", [sac, cql, edac, rebrac])
def test_the_actor_may_have_layer_norms(module):
    """One before each activation, in the actor alone."""
    env = ObservationActionReward("box")
    sizes = dict(hidden=(4, 3), buffer_size=8, batch_size=2, layer_norm=False)
    for asked in (False, True):
        state = jax.eval_shape(module.make(env, module.Config(**sizes, actor_layer_norm=asked)).init, KEY)
        names = {name: str(jax.tree_util.tree_structure(state.weights[name])) for name in ("actor", "critic")}
        assert names["actor"].count("LayerNorm") == 2 * asked and "LayerNorm" not in names["critic"]


def test_edacs_actor_may_wait():
    """With a delay of 2 the actor and the temperature learn at the second gradient step of the critics."""
    rule = edac._EDAC(edac.Config(num_critics=2, diverse=False, policy_delay=2), Table(), Shifted(nn.Module()))
    weights = {"critic": jnp.zeros((2, 3)), "actor": jnp.zeros(1), "log_alpha": jnp.log(0.5)}
    plain, hyper = optimizer_of(optax.sgd), jax.tree.map(jnp.asarray, edac.Hyper(learning_rate=0.1))
    nets = {
        name: net(w, plain.init(w, 1.0), plain, w if name == "critic" else None, name) for name, w in weights.items()
    }
    first, report = rule.gradient_step(nets, KEY, STEPS, hyper)
    assert np.isnan(report["actor_loss"]) and np.isnan(report["log_alpha_loss"]) and np.isfinite(report["critic_loss"])
    second, report = rule.gradient_step(first, KEY, STEPS, hyper)
    assert np.isfinite(report["actor_loss"]) and np.isfinite(report["log_alpha_loss"])
    for name in ("actor", "log_alpha"):
        close(first[name].flat, nets[name].flat)
        assert np.all(second[name].flat != nets[name].flat)
    assert np.any(first["critic"].flat != nets["critic"].flat) and np.any(second["critic"].flat != first["critic"].flat)


def test_ro2os_losses_by_hand():
    """Critics at (K, n, B): what the most different of two displacements does, and what disagreement costs."""
    q, near = jnp.array([[1.0], [2.0]]), jnp.array([[[2.0], [0.0]], [[2.0], [0.0]]])
    close(ro2o.smoothness(near, q), max(0.8 / 2, (0.2 + 0.8) / 2))  # tau 0.2 below, 0.8 above
    deviation = np.sqrt(2.0)  # of 1 and 3
    close(ro2o.ood_loss(jnp.array([[[1.0]], [[3.0]]]), 0.5), 0.25 * deviation**2)
    slope = jax.grad(lambda q: ro2o.ood_loss(q, 0.5))(jnp.array([[[1.0]], [[3.0]]]))
    close(slope.ravel(), [0.5 * deviation] * 2)  # all of them sink
    states = ro2o.around(KEY, {"x": jnp.zeros((3, 2)), "n": jnp.ones(3, jnp.int32)}, 5, 0.1)
    assert states["x"].shape == (5, 3, 2) and states["n"].shape == (5, 3) and np.asarray(states["n"] == 1).all()
    assert 0.05 < np.abs(states["x"]).max() <= 0.1 and np.unique(states["x"][:, :, 0]).size == 5


def test_famo2os_encoding_and_loss_by_hand():
    close(
        famo2o.encoded(jnp.array(2.0)),
        [np.sin(2), np.cos(2), *(f(2 / 1e4 ** (i / 3)) for i in (1, 2) for f in (np.sin, np.cos))],
    )
    advantage, log_prob = jnp.array([1.0, -2.0]), jnp.array([-1.0, -3.0])
    each = advantage_weighted_loss(log_prob, jnp.array([2.0, 1.0]) * advantage)
    close(each, (np.exp(2) * 1 + np.exp(-2) * 3) / 2)
    close(famo2o.beta_of(jnp.array([[-1.0], [0.0], [1.0]]), jnp.float32(1), jnp.float32(5)), [1, 3, 5])


def test_cloning_needs_a_logit_of_each_action():
    discrete = ObservationActionReward()
    with pytest.raises(ValueError, match=r"actions \(1, 5\).*needs \(1, 2\)"):
        bc.make(discrete, actor=nn.Dense(5))


# ---- on a dataset

ENV, PARAMS = ObservationActionReward("box"), ObservationActionReward("box").default_params
SPACE = ENV.action_space(PARAMS)
SIZES = dict(num_updates=50, batch_size=64, hidden=(16,))
MODULES = {"bc": bc, "td3_bc": td3_bc, "rebrac": rebrac, "iql": iql, "awac": awac, "edac": edac, "cql": cql}
MODULES |= {"ro2o": ro2o, "famo2o": famo2o}
HYPER = {
    "bc": {},
    # At three times the rate its critics point some states' actions past the data, where nothing corrects them.
    "td3_bc": dict(alpha=2.5, tau=0.05, learning_rate=3e-3),
    "rebrac": dict(actor_penalty=0.05, critic_penalty=0.0, tau=0.05),
    "iql": dict(expectile=0.8, beta=10.0, tau=0.05),
    "awac": dict(temperature=0.1, tau=0.05),
    "edac": dict(alpha=0.01, alpha_learning_rate=0.0, diversity=0.1, tau=0.05),
    "cql": dict(alpha=0.01, alpha_learning_rate=0.0, min_q_weight=0.1, tau=0.05),
}
HYPER |= {
    "ro2o": dict(alpha=0.01, alpha_learning_rate=0.0, ood=1.0, tau=0.05),
    "famo2o": dict(expectile=0.8, beta_min=8.0, beta_max=12.0, tau=0.05),
}
CONFIG = {"edac": dict(num_critics=3), "cql": dict(num_actions=2), "ro2o": dict(num_critics=3, num_samples=2)}


def one_step_data(n=2000):
    """Episodes of a step: uniform actions below the middle, reward -(a - 0.3)^2 in units of the box."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (n, *ENV.observation_space(PARAMS).shape)).astype(np.float32)
    unit = rng.uniform(-1.0, 0.5, (n, *SPACE.shape)).astype(np.float32)
    reward = -np.sum((unit - 0.3) ** 2, -1)
    true = np.ones(n, bool)
    return Dataset(obs, np.asarray(SPACE.from_unit(jnp.asarray(unit))), reward, true, true, obs)


def learner(name, memory):
    module = MODULES[name]
    algo = module.make(ENV, module.Config(**SIZES, **CONFIG.get(name, {})), replay=memory)
    return algo, module.Hyper(**{"learning_rate": 1e-2, **HYPER[name]})


@pytest.fixture(scope="module")
def memory():
    return datasets.stored(one_step_data(), SPACE)


@pytest.mark.parametrize("name", [n if n == "iql" else pytest.param(n, marks=pytest.mark.slow) for n in MODULES])
def test_learns_what_the_data_says(name, memory):
    """Cloning finds the mean of the data's actions, -0.25; the others an action near the best, 0.3."""
    algo, hyper = learner(name, memory)
    assert algo.steps_per_update == 50
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 1500, hyper, PARAMS))(KEY)
    assert int(state.step) == 1500 and not np.asarray(metrics["episodes"]).any()
    assert np.all(np.isfinite(metrics["loss"]))
    obs = jnp.asarray(one_step_data(64).obs)
    action, _ = algo.act(algo.policy(state), KEY, obs, greedy=True)
    unit = np.asarray(datasets.to_unit(SPACE, action))
    wanted = -0.25 if name == "bc" else 0.3
    assert abs(unit.mean() - wanted) < 0.12, unit.mean()


@pytest.mark.slow
@pytest.mark.light
def test_nothing_acts_and_seeds_are_alike(memory):
    """Environments stay where they began; a seed of a vmap is the seed alone; no key serves twice."""
    algo, hyper = learner("iql", memory)
    train = jax.jit(lambda key: jaxrl.train(algo, key, 100, hyper, PARAMS))
    many = jax.jit(jax.vmap(lambda key: jaxrl.train(algo, key, 100, hyper, PARAMS)))(jax.random.split(KEY, 2))
    one, _ = train(jax.random.split(KEY, 2)[1])
    start = algo.init(jax.random.split(KEY, 2)[1], hyper, PARAMS)
    jax.tree.map(np.testing.assert_array_equal, one.env_state, start.env_state)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x[1], y, rtol=1e-4, atol=1e-5), many[0].weights, one.weights)
    assert_no_key_reuse(lambda key: algo.update(algo.init(key, hyper, PARAMS)), KEY)


def test_weights_of_episodes_reach_the_learner():
    """Cloning the best tenth alone finds the best action."""
    data = one_step_data()
    memory = datasets.stored(data, SPACE, datasets.best_weights(data, 0.1))
    algo, hyper = learner("bc", memory)
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, 500, hyper, PARAMS))(KEY)
    action, _ = algo.act(algo.policy(state), KEY, jnp.asarray(data.obs[:64]), greedy=True)
    assert abs(np.asarray(datasets.to_unit(SPACE, action)).mean() - 0.3) < 0.1


@pytest.mark.slow
def test_cql_thinks_less_of_what_the_data_lacks(memory):
    """Above 0.5 there is no data: there values are lower with the penalty than without, and no lower where it is."""
    obs, values = jnp.asarray(one_step_data(64).obs), {}
    algo, hyper = learner("cql", memory)
    train = jax.jit(lambda hyper: jaxrl.train(algo, KEY, 1500, hyper, PARAMS)[0])

    def value(state, unit):
        action = jnp.full((64, *SPACE.shape), unit)
        return np.asarray(critic_values(algo.init.__self__.rule.critic, state.weights["critic"], obs, action)).mean()

    for weight in (0.0, 5.0):
        state = train(hyper.replace(min_q_weight=jnp.float32(weight)))
        values[weight] = value(state, 1.0) - value(state, -0.25)
    assert values[5.0] < values[0.0] - 0.5, values


@pytest.mark.slow
def test_goes_on_in_the_environment(memory):
    """What was learned on a dataset is the start of the same learner with a memory of its own."""
    algo, hyper = learner("iql", memory)
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, 500, hyper, PARAMS))(KEY)
    online = iql.make(ENV, iql.Config(num_envs=4, num_updates=2, batch_size=32, buffer_size=256, hidden=(16,)))
    begun = online.init(KEY, hyper.replace(learning_starts=8), PARAMS)
    begun = begun.replace(weights=state.weights, target_weights=state.target_weights, optimizer=state.optimizer)
    after, metrics = jax.jit(lambda s: jax.lax.scan(lambda s, _: online.update(s), s, length=20))(begun)
    assert int(after.replay.size) == 80 and np.nanmax(metrics["gradient_steps"]) == 2
    assert not np.allclose(after.weights["value"]["params"]["MLP_0"]["Dense_0"]["kernel"], 0)


@pytest.mark.slow
def test_famo2o_chooses_the_best_balance(memory):
    """Members of the family differ, more weight of the advantage acts nearer to the best action, and the balance model
    comes to prefer it. Online the actor learns at its balance."""
    module = famo2o
    algo = module.make(ENV, module.Config(**SIZES), replay=memory)
    hyper = module.Hyper(
        learning_rate=1e-2, expectile=0.8, beta_min=0.0, beta_max=10.0, tau=0.05, alpha=1e-3, alpha_learning_rate=0.0
    )
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 3000, hyper, PARAMS))(KEY)
    learner, obs = algo.init.__self__, jnp.asarray(one_step_data(64).obs)
    family, actor = learner.actor, state.weights["actor"]
    means = [family.policy(actor, obs, jnp.full(64, beta)).mean.mean() for beta in (0.0, 10.0)]
    assert means[0] < -0.1 < 0.1 < means[1], means
    assert metrics["beta"][-1] > 8
    assert np.isfinite(metrics["entropy"]).all()
    policy = algo.policy(state)
    assert abs(np.asarray(family.mode(policy.weights, obs)).mean() - means[1]) < 0.1
