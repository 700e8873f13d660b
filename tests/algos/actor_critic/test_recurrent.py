"""SAC and TD3 with memories: targets and losses against loops in NumPy, stored carries, who sees what, learning."""

import dataclasses
from functools import cache, partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import make, train
from jaxrl.algos import sac_rnn, td3_rnn
from jaxrl.environment import strongly_typed
from jaxrl.evaluation import evaluate
from jaxrl.nn import nets
from jaxrl.nn.distributions import TanhNormal
from jaxrl.nn.recurrent import Past, burnt_in
from jaxrl.off_policy.sequences import Sequence, swapped
from jaxrl.testing.probes import ActionReward, Recall
from jaxrl.testing.probes import Privileged as DiscretePrivileged

SIZES = dict(num_envs=4, num_steps=5, burn_in=3, num_updates=2, batch_size=4, buffer_size=12)
SIZES |= dict(hidden=(8,), rnn_size=8, head_hidden=(8,))
MODULES = pytest.mark.parametrize("module", [sac_rnn, td3_rnn])
GAMMA, ALPHA = 0.8, 0.3


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def leaky(decay, total, obs, start):
    """`(last, all)` leaky sums of observations (T, B, 1), reset where `start`."""
    kept = []
    for x, begun in zip(obs, start, strict=True):
        total = decay * jnp.where(begun[:, None], 0, total) + x
        kept.append(total)
    return total, jnp.stack(kept)


class Memory(nn.Module):
    """A carry that is no array: a leaky sum of observations."""

    def initial_carry(self, batch_shape):
        return {"sum": jnp.zeros((*batch_shape, 1))}

    def total(self, hidden, obs, start):
        total, kept = leaky(self.decay, hidden["sum"], obs, start)
        return {"sum": total}, kept


class LeakyActor(Memory):
    spread: bool = False

    def setup(self):
        self.decay = self.param("decay", nn.initializers.constant(0.5), ())
        self.kernel = self.param("kernel", nn.initializers.constant(0.4), ())

    def __call__(self, hidden, obs, start):
        hidden, x = self.total(hidden, obs, start)
        x = self.kernel * x
        return hidden, (x, -1 - x) if self.spread else jnp.tanh(x)


class LeakyCritic(Memory):
    """K values: a_k memory + b_k action, and their product."""

    def setup(self):
        self.decay = self.param("decay", nn.initializers.constant(0.5), ())
        self.kernel = self.param("kernel", lambda key: jnp.array([[1.0, 0.5], [0.7, -0.9]]))

    def __call__(self, hidden, obs, start, action=None):
        hidden, x = self.total(hidden, obs, start)
        return hidden, x if action is None else self.values(x, action)

    def values(self, features, action):
        x, a = features[..., 0], action[..., 0]
        return jnp.stack([k[0] * x + k[1] * a + x * a for k in self.kernel])


def actor_weights(decay, kernel):
    return {"params": {"decay": jnp.float32(decay), "kernel": jnp.float32(kernel)}}


def critic_weights(decay, *kernel):
    return {"params": {"decay": jnp.float32(decay), "kernel": jnp.array(kernel).reshape(2, 2)}}


ACTOR, OLD_ACTOR = actor_weights(0.5, 0.4), actor_weights(0.7, -0.6)
CRITIC, OLD_CRITIC = critic_weights(0.3, 1.0, 0.5, 0.7, -0.9), critic_weights(0.6, 0.2, -0.5, 0.9, 0.4)


def batch_of(seed, burn_in=3, T=6, B=2):
    """Of the first column: truncated at step 1, terminated at 3, with starts behind them; a start in its burn-in."""
    rng = np.random.default_rng(seed)
    seen, obs = rng.normal(size=(burn_in, B, 1)), rng.normal(size=(T + 1, B, 1))
    terminated, truncated, start = np.zeros((T, B), bool), np.zeros((T, B), bool), np.zeros((T + 1, B), bool)
    terminated[3, 0] = truncated[1, 0] = start[2, 0] = start[4, 0] = True
    begun = np.zeros((burn_in, B), bool)
    begun[1, 0] = True
    hidden = sac_rnn.Hidden(*({"sum": rng.normal(size=(B, 1))} for _ in range(2)))
    action, reward = rng.uniform(-1, 1, (T, B, 1)), rng.normal(size=(T, B))
    sequence = Sequence(Past(hidden, seen, begun), obs, start, action, reward, terminated, truncated)
    return jax.tree.map(jnp.asarray, sequence)


@cache
def learner(module):
    config = module.Config(**SIZES)
    networks = dict(actor=LeakyActor(spread=module is sac_rnn), critic=LeakyCritic())
    return module.make(ActionReward("box"), config, **networks).init.__self__


def hyper_of(module):
    if module is sac_rnn:
        return strongly_typed(module.Hyper(gamma=GAMMA, tau=0.25, target_entropy=-2.0))
    return strongly_typed(module.Hyper(gamma=GAMMA, tau=0.25, policy_noise=0.0))


def stepped(module, batch, hyper=None, count=1):
    """One gradient step; TD3's second has an actor's, too."""
    static = learner(module)
    given = {"critic": (CRITIC, OLD_CRITIC), "actor": (ACTOR, OLD_ACTOR)}
    if module is sac_rnn:
        given |= {"actor": (ACTOR, None), "log_alpha": (jnp.log(ALPHA), None)}
    made = {}
    for name, (weights, target) in given.items():
        optimizer = static.optimizer_of(name) if module is sac_rnn else static.optimizer
        made[name] = nets.net(weights, optimizer.init(weights, 3e-4), optimizer, target, name)
    key, hyper = jax.random.key(7), hyper_of(module) if hyper is None else hyper
    for _ in range(count):
        before, (made, report) = made, jax.jit(static.gradient_step)(made, key, batch, hyper)
    return before, made, report, key


def memories(decay, hidden, arrays):
    """The sums of a sequence, after its burn-in, in NumPy."""
    total, _ = leaky(float(decay), np.asarray(hidden["sum"]), arrays.past.obs, arrays.past.start)
    return np.asarray(leaky(float(decay), total, arrays.obs, arrays.start)[1])[..., 0]


def values(weights, memory, action):
    return np.stack([float(k[0]) * memory + float(k[1]) * action + memory * action for k in weights["kernel"]])


def policy(weights, arrays, key):
    """`(actions, log_prob)` of SAC at every observation of a sequence."""
    x = float(weights["kernel"]) * memories(weights["decay"], arrays.past.hidden.actor, arrays)[..., None]
    action, log_prob = TanhNormal(jnp.asarray(x), jnp.asarray(-1 - x)).sample_and_log_prob(key)
    return np.asarray(action)[..., 0], np.asarray(log_prob)


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@MODULES
def test_losses_by_hand(module):
    """Burn-in with each network's weights, the target of both critics, masked errors, the actor, the temperature."""
    batch = batch_of(0)
    before, after, report, key = stepped(module, batch, count=1 if module is sac_rnn else 2)
    arrays = jax.tree.map(np.asarray, batch)
    then = {name: net.weights["params"] for name, net in before.items() if name != "log_alpha"}
    old = before["critic"].target["params"]
    target_memory = memories(old["decay"], arrays.past.hidden.critic, arrays)
    if module is sac_rnn:
        critic_key, actor_key = jax.random.split(key)
        action, log_prob = policy(then["actor"], arrays, critic_key)
        next_value = values(old, target_memory, action).min(0) - ALPHA * log_prob
    else:
        mu = before["actor"].target["params"]
        action = np.tanh(float(mu["kernel"]) * memories(mu["decay"], arrays.past.hidden.actor, arrays))
        next_value = values(old, target_memory, action).min(0)
    target = arrays.reward + GAMMA * np.where(arrays.terminated, 0, next_value[1:])
    memory = memories(then["critic"]["decay"], arrays.past.hidden.critic, arrays)[:-1]
    q = values(then["critic"], memory, arrays.action[..., 0])
    counts = ~arrays.truncated
    assert counts.sum() == 11
    total = sum(np.mean((x - target)[counts] ** 2) for x in q)
    close(report["critic_loss"], (0.5 if module is sac_rnn else 1) * total)
    new = after["critic"].weights["params"]
    memory = memories(new["decay"], arrays.past.hidden.critic, arrays)[:-1]
    if module is sac_rnn:
        shorter = arrays._replace(obs=arrays.obs[:-1], start=arrays.start[:-1])
        action, log_prob = policy(then["actor"], shorter, actor_key)
        close(report["actor_loss"], np.mean(ALPHA * log_prob - values(new, memory, action).min(0)), atol=1e-5)
        close(report["entropy"], -np.mean(log_prob))
        close(report["log_alpha_loss"], np.log(ALPHA) * (-np.mean(log_prob) + 2))
    else:
        mu = then["actor"]
        action = np.tanh(float(mu["kernel"]) * memories(mu["decay"], arrays.past.hidden.actor, arrays))[:-1]
        close(report["actor_loss"], -np.mean(values(new, memory, action)[0]), atol=1e-5)
    for name, net in after.items():
        assert np.all(net.flat != before[name].flat), f"every weight of {name} has a gradient"
        if net.flat_target is not None:
            close(net.flat_target, 0.75 * before[name].flat_target + 0.25 * net.flat)


@pytest.mark.slow
@pytest.mark.light
def test_td3s_actor_and_targets_wait():
    before, after, report, _ = stepped(td3_rnn, batch_of(1))
    for name in ("critic", "actor"):
        np.testing.assert_array_equal(before[name].flat_target, after[name].flat_target)
    np.testing.assert_array_equal(before["actor"].flat, after["actor"].flat)
    assert np.isnan(report["actor_loss"])


@pytest.mark.slow
@pytest.mark.light
@MODULES
def test_steps_behind_a_reset_ignore_what_was_before(module):
    """The critics' step from errors after a start, the steps before which are masked, whatever was seen before it."""
    batch = batch_of(2)
    start, truncated = batch.start.at[2].set(True), batch.truncated.at[:2].set(True)
    batch = batch._replace(start=start, truncated=truncated, terminated=batch.terminated.at[:2].set(False))
    hidden = jax.tree.map(lambda x: x + 3, batch.past.hidden)
    past = batch.past._replace(hidden=hidden, obs=batch.past.obs - 1)
    before = batch._replace(past=past, obs=batch.obs.at[:2].multiply(-7), reward=batch.reward.at[:2].add(5))
    one, other = (stepped(module, x) for x in (batch, before))
    close(one[2]["critic_loss"], other[2]["critic_loss"])
    close(one[1]["critic"].flat, other[1]["critic"].flat)
    joined = stepped(module, before._replace(start=start.at[2].set(False)))
    assert joined[2]["critic_loss"] != one[2]["critic_loss"], "it would matter without the reset"


@cache
def pendulum(module, rnn="gru", burn_in=3):
    """Episodes cut after three steps; random actions, so that weights stay."""
    env, params = make("Pendulum-v1")
    algo = module.make(env, module.Config(**{**SIZES, "rnn": rnn, "burn_in": burn_in}))
    params, hyper = params.replace(max_steps=jnp.int32(3)), module.Hyper(learning_starts=10**6)
    return algo, jax.jit(lambda key: algo.init(key, hyper, params)), jax.jit(algo.update)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(("rnn", "burn_in"), [("gru", 3), ("gru", 0), ("lstm", 5), ("attention", 3)])
@MODULES
def test_stored_carries_and_a_burn_in_are_the_uninterrupted_run(module, rnn, burn_in):
    """Three rollouts with the same weights; the memories of actor and critics are those of one long unroll."""
    algo, init, update = pendulum(module, rnn, burn_in)
    static, state = algo.init.__self__, init(jax.random.key(2))
    begun = state.carry.hidden
    for _ in range(3):
        state, _ = update(state)
    parts = [swapped(jax.tree.map(lambda x, i=i: x[4 * i : 4 * i + 4], state.replay.items)) for i in range(3)]
    obs = jnp.concatenate([x.obs[:-1] for x in parts] + [parts[-1].obs[-1:]])
    start = jnp.concatenate([x.start[:-1] for x in parts] + [parts[-1].start[-1:]])
    np.testing.assert_array_equal(start.T, [np.arange(16) % 3 == 0] * 4)
    for name, network in (("actor", static.actor), ("critic", static.critic)):
        weights, hidden = state.weights[name], getattr(begun, name)
        _, whole = network.apply(weights, hidden, obs, start)
        for i, part in enumerate(parts):
            past = part.past._replace(hidden=getattr(part.past.hidden, name))
            _, got = network.apply(weights, burnt_in(weights, past, network), part.obs, part.start)
            jax.tree.map(lambda x, y, i=i: close(x, y[5 * i : 5 * i + 6], atol=1e-5), got, whole)


@pytest.mark.slow
@pytest.mark.light
@MODULES
def test_a_restart_and_a_deployed_carry_forget(module):
    algo, init, update = pendulum(module)
    state, _ = update(init(jax.random.key(3)))
    slots = jnp.array([True, False, True, False])
    after, _ = update(algo.restart(state, jax.random.key(4), state.env_params, slots))
    np.testing.assert_array_equal(after.replay.items.start[4:8, 0], state.carry.start | slots)
    deployed, key, obs = algo.policy(state), jax.random.key(0), jnp.ones((3, 3))
    names = {path[-1].key for path, _ in jax.tree_util.tree_leaves_with_path(deployed) if hasattr(path[-1], "key")}
    wanted = jax.tree_util.tree_leaves_with_path(state.weights["actor"])
    assert names == {path[-1].key for path, _ in wanted}, "the actor's weights alone"
    _, carry = algo.act(deployed, key, obs, algo.initial_carry((3,)), greedy=True)
    _, fresh = algo.act(deployed, key, obs, algo.initial_carry((3,)))
    _, later = algo.act(deployed, key, obs, carry._replace(start=jnp.array([False, True, False])))
    np.testing.assert_array_equal(np.any(later.hidden != fresh.hidden, -1), [True, False, True])
    with pytest.raises(ValueError, match="needs a carry.*initial_carry"):
        algo.act(deployed, key, obs)
    with pytest.raises(ValueError, match=r"batch shape \(2,\), the observations have \(3,\); initial_carry"):
        algo.act(deployed, key, obs, algo.initial_carry((2,)))


@dataclasses.dataclass(frozen=True)
class Privileged(DiscretePrivileged):
    kind: str = "box"


@pytest.mark.slow
@pytest.mark.light
@MODULES
def test_only_the_critics_see_what_is_privileged(module):
    algo = module.make(Privileged(), module.Config(**SIZES))
    static, state = algo.init.__self__, jax.jit(algo.init)(jax.random.key(5))
    obs, start = {"obs": jnp.zeros((1, 4, 1)), "privileged": jnp.arange(4.0)[None, :, None]}, jnp.ones((1, 4), bool)
    hidden, action = state.carry.hidden, jnp.zeros((1, 4, 1))
    q = static.critic.apply(state.weights["critic"], hidden.critic, obs, start, action)[1]
    assert len(np.unique(q[0])) == 4
    seen = {"obs": jnp.zeros((4, 1))}
    first = partial(algo.act, algo.policy(state), jax.random.key(0), carry=algo.initial_carry((4,)), greedy=True)
    np.testing.assert_array_equal(first({**seen, "privileged": obs["privileged"][0]})[0], first(seen)[0])


@pytest.mark.slow
@pytest.mark.light
@MODULES
def test_an_action_repeats_what_was_seen_at_first(module):
    """Two seeds; without a memory the mean return is at most 0.47 of 2."""
    sizes = dict(num_envs=8, num_steps=6, burn_in=3, num_updates=8, batch_size=32, buffer_size=256)
    config = module.Config(**sizes, hidden=(16,), rnn_size=16, head_hidden=(16,))
    own = dict(alpha=0.1, alpha_learning_rate=0.0) if module is sac_rnn else dict(exploration_noise=0.3)
    hyper = module.Hyper(learning_rate=5e-3, gamma=GAMMA, tau=0.05, learning_starts=96, **own)
    env = Recall("box")
    algo = module.make(env, config)

    def run(key):
        state, _ = train(algo, key, 9600, hyper)
        policy, params = algo.policy(state), env.default_params
        stats = evaluate(algo, policy, key, env, params, num_episodes=64, max_steps=4, greedy=True)
        return stats.returns.mean()

    returns = jax.jit(lambda keys: jax.lax.map(run, keys))(jax.random.split(jax.random.key(0)))
    assert np.all(returns > 1.7), returns


@MODULES
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m: m.Config(num_envs=0), r"num_envs=0.*at least 1"),
        (lambda m: m.Config(burn_in=21), r"burn_in=21.*0 to num_steps=20"),
        (lambda m: m.Config(buffer_size=31), r"buffer_size=31.*batch_size=32; 32 does"),
        (lambda m: m.make(make("Pendulum-v1")[0], m.Config(rnn="lstn")), r"rnn='lstn'.*unknown.*lstm"),
        (lambda m: m.make(make("CartPole-v1")[0], m.Config()), r"_rnn acts in one-dimensional Box.*CartPole-v1"),
        (lambda m: m.make(jaxrl.vectorize(make("Pendulum-v1")[0], 2), m.Config()), r"num_envs=2.*says 8"),
        (
            lambda m: m.make(make("Pendulum-v1")[0], m.Config(), actor=LeakyActor(spread=m is sac_rnn)),
            r"actions \(8, 3\).*needs \(8, 1\)",
        ),
    ],
)
def test_impossible_requests_are_refused(module, build, message):
    with pytest.raises(ValueError, match=message):
        build(module)
