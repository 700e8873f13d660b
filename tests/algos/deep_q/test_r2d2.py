"""R2D2: targets, loss and priorities against loops in NumPy, what a stored carry and a burn-in give back, learning."""

import dataclasses
import itertools
from functools import cache

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import make, train
from jaxrl.algos import r2d2
from jaxrl.environment import strongly_typed
from jaxrl.nn import nets
from jaxrl.nn.recurrent import Past, burnt_in
from jaxrl.off_policy.sequences import Sequence, swapped
from jaxrl.testing.probes import DelayedReward, Masked

TINY = r2d2.Config(
    num_envs=4, num_steps=5, burn_in=3, num_updates=2, batch_size=4, buffer_size=12, n_step=2, hidden=(8,), rnn_size=8
)
DECAY, GAMMA, EPS = 0.5, 0.8, 0.01


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


class Leaky(nn.Module):
    """Values linear in a leaky sum of observations (T, B, 1). Its carry is no array and is not what it puts out."""

    outputs: int = 2

    def initial_carry(self, batch_shape):
        return {"sum": jnp.zeros((*batch_shape, 1))}

    @nn.compact
    def __call__(self, hidden, obs, start):
        total, kept = hidden["sum"], []
        decay = self.param("decay", nn.initializers.constant(DECAY), ())
        for x, begun in zip(obs, start, strict=True):
            total = decay * jnp.where(begun[:, None], 0, total) + x
            kept.append(total)
        kernel = self.param("kernel", nn.initializers.normal(), (1, self.outputs))
        return {"sum": total}, jnp.stack(kept) @ kernel


def unrolled(weights, hidden, obs, start):
    """The same in NumPy: `(sum, values)`."""
    weights, total, kept = weights["params"], np.array(hidden, float), []
    for x, begun in zip(obs, start, strict=True):
        total = float(weights["decay"]) * np.where(begun[:, None], 0, total) + x
        kept.append(total)
    return total, np.stack(kept) @ np.asarray(weights["kernel"], float)


def test_rescaling_and_its_inverse():
    close(r2d2.rescale(jnp.array([3.0, -3.0, 0.0, 8.0]), 1e-2), [1.03, -1.03, 0, 2.08])
    x = jnp.concatenate([-jnp.logspace(-3, 5, 50), jnp.zeros(1), jnp.logspace(-3, 5, 50)])
    for eps in (0.0, 1e-3, 0.5):
        close(r2d2.unscale(r2d2.rescale(x, eps), eps), x)
        close(r2d2.rescale(r2d2.unscale(x[20:80], eps), eps), x[20:80])


def by_hand(reward, terminated, truncated, next_value, n):
    """Targets of one sequence, window by window; None where there is none."""
    T, targets = len(reward), []
    for t in range(T):
        if truncated[t] and not terminated[t]:
            targets.append(None)
            continue
        total, k = 0.0, 0
        while True:
            total += GAMMA**k * reward[t + k]
            if terminated[t + k]:
                break
            k += 1
            beyond = t + k == T or k == n or (truncated[t + k] and not terminated[t + k])
            if beyond:
                total += GAMMA**k * next_value[t + k - 1]
                break
        targets.append(total)
    return targets


def flags(*at):
    return np.isin(np.arange(8), at)


ENDS = [(flags(), flags()), (flags(2), flags()), (flags(), flags(2)), (flags(5), flags(2, 5)), (flags(7), flags(0, 3))]


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_targets_of_windows(n):
    """Cut by the end of the sequence, by terminations and, before the truncated step, by truncations."""
    rng = np.random.default_rng(0)
    reward, next_value = rng.normal(size=(2, 8, len(ENDS)))
    terminated, truncated = (np.stack(x, -1) for x in zip(*ENDS, strict=True))
    arrays = [jnp.asarray(x) for x in (reward, terminated, truncated, next_value)]
    got = np.asarray(r2d2.n_step_targets(*arrays, GAMMA, n))
    for column in range(len(ENDS)):
        for t, wanted in enumerate(by_hand(*(x[:, column] for x in (reward, terminated, truncated, next_value)), n)):
            assert wanted is None or abs(got[t, column] - wanted) < 1e-5, (column, t)


def test_a_window_in_numbers():
    """n 2, gamma 0.8; step 2 is truncated, so step 1 bootstraps from the observation at which that step was taken."""
    reward, value = jnp.array([1.0, 2.0, 4.0, 8.0])[:, None], jnp.array([10.0, 20.0, 30.0, 40.0])[:, None]
    none = jnp.zeros((4, 1), bool)
    cut = none.at[2].set(True)
    got = r2d2.n_step_targets(reward, none, cut, value, 0.8, 2)[:, 0]
    close(got[jnp.array([0, 1, 3])], [1 + 0.8 * 2 + 0.64 * 20, 2 + 0.8 * 20, 8 + 0.8 * 40])
    got = r2d2.n_step_targets(reward, cut, none, value, 0.8, 2)[:, 0]
    close(got, [1 + 0.8 * 2 + 0.64 * 20, 2 + 0.8 * 4, 4, 8 + 0.8 * 40])


def batch_of(seed, burn_in=3, T=8, B=2):
    """Of the first column: truncated at step 1, terminated at 4, with starts behind them; a start in its burn-in."""
    rng = np.random.default_rng(seed)
    seen, obs = rng.normal(size=(burn_in, B, 1)), rng.normal(size=(T + 1, B, 1))
    terminated, truncated, start = np.zeros((T, B), bool), np.zeros((T, B), bool), np.zeros((T + 1, B), bool)
    terminated[4, 0] = truncated[1, 0] = start[2, 0] = start[5, 0] = True
    begun = np.zeros((burn_in, B), bool)
    begun[1, 0] = burn_in > 1
    past = Past({"sum": rng.normal(size=(B, 1))}, seen, begun)
    action, reward = rng.integers(0, 2, (T, B)).astype(np.int32), rng.normal(size=(T, B))
    return jax.tree.map(jnp.asarray, Sequence(past, obs, start, action, reward, terminated, truncated))


@cache
def learner(**changes):
    config = dataclasses.replace(TINY, num_steps=8, n_step=3, **changes)
    return r2d2.make(DelayedReward(), config, network=Leaky()).init.__self__


HYPER = strongly_typed(r2d2.Hyper(gamma=GAMMA, rescale_eps=EPS, priority_eta=0.7, target_period=2, tau=0.25))


def weights_of(decay, *kernel):
    return {"params": {"decay": jnp.float32(decay), "kernel": jnp.array([kernel])}}


ONLINE, TARGET = weights_of(0.5, 1.0, -0.6), weights_of(0.8, 0.4, 0.9)


def stepped(static, batch, weight=(1.0, 0.5), online=ONLINE, target=TARGET):
    net = nets.net(online, static.optimizer.init(online, 1e-3), static.optimizer, target)
    return jax.jit(static.gradient_step)(net, batch, jnp.array(weight), HYPER, jnp.float32(1e-3))


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("rescaled", [True, False])
def test_loss_and_priorities_by_hand(double, rescaled):
    """Burn-in with either network's weights, targets of both, errors, importance weights, priorities."""
    static, batch = learner(double=double, rescaled=rescaled), batch_of(0)
    net, report = stepped(static, batch)
    arrays = jax.tree.map(np.asarray, batch)
    carried = arrays.past.hidden["sum"], arrays.past.obs, arrays.past.start
    q, target_q = (unrolled(w, unrolled(w, *carried)[0], arrays.obs, arrays.start)[1] for w in (ONLINE, TARGET))
    best = (q if double else target_q).argmax(-1)
    ahead = np.take_along_axis(target_q, best[..., None], -1)[1:, :, 0]
    ahead = np.asarray(r2d2.unscale(jnp.asarray(ahead), EPS)) if rescaled else ahead
    taken = np.take_along_axis(q[:-1], arrays.action[..., None], -1)[..., 0]
    losses, priority = [], []
    for b, weight in enumerate((1.0, 0.5)):
        columns = (x[:, b] for x in (arrays.reward, arrays.terminated, arrays.truncated, ahead))
        targets = by_hand(*columns, 3)
        assert (targets[1] is None) == (b == 0)
        errors = []
        for t, y in enumerate(targets):
            if y is not None:
                y = np.sign(y) * (np.sqrt(abs(y) + 1) - 1) + EPS * y if rescaled else y
                errors.append(taken[t, b] - y)
        losses += [weight * 0.5 * error**2 for error in errors]
        priority.append(0.7 * np.max(np.abs(errors)) + 0.3 * np.mean(np.abs(errors)))
    close(report["loss"], np.mean(losses))
    close(report["priority"], priority)
    changed = jax.tree.map(lambda x, y: bool(jnp.all(x != y)), net.weights, ONLINE)
    assert all(jax.tree.leaves(changed)), "every weight has a gradient"


def test_the_target_network_moves_every_second_step():
    static, batch = learner(), batch_of(1)
    net, _ = stepped(static, batch)
    close(net.flat_target, jax.flatten_util.ravel_pytree(TARGET)[0])
    after, _ = static.gradient_step(net, batch, jnp.ones(2), HYPER, jnp.float32(1e-3))
    close(after.flat_target, 0.75 * net.flat_target + 0.25 * after.flat)


def test_steps_behind_a_reset_ignore_what_was_before():
    """Errors after the start at step 2, the steps before which are masked, whatever was seen before it."""
    static, batch = learner(), batch_of(2)
    start, truncated = batch.start.at[2].set(True), batch.truncated.at[:2].set(True)
    batch = batch._replace(start=start, truncated=truncated, terminated=batch.terminated.at[:2].set(False))
    before = batch._replace(
        past=batch.past._replace(hidden={"sum": batch.past.hidden["sum"] + 3}, obs=batch.past.obs - 1),
        obs=batch.obs.at[:2].multiply(-7),
        reward=batch.reward.at[:2].add(5),
    )
    (one, report), (other, changed) = (stepped(static, x) for x in (batch, before))
    close(report["priority"], changed["priority"])
    close(one.flat, other.flat)
    apart = stepped(static, before._replace(start=start.at[2].set(False)))[1]["priority"]
    assert np.all(apart != report["priority"]), "it would matter without the reset"


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("rnn", ["gru", "lstm"])
def test_a_start_in_the_middle_makes_two_sequences(rnn):
    env, params = make("CartPole-v1")
    network = r2d2.QNetwork(env.observation_space(params), 2, (8,), "relu", True, rnn, 8)
    obs = jax.random.normal(jax.random.key(0), (7, 3, 4))
    hidden, start = network.initial_carry((3,)), jnp.zeros((7, 3), bool).at[4].set(True)
    weights = network.init(jax.random.key(1), hidden, obs, start)
    hidden = jax.tree.map(lambda x: x + 1, hidden)
    last, q = network.apply(weights, hidden, obs, start)
    _, first = network.apply(weights, hidden, obs[:4], start[:4])
    after, second = network.apply(weights, network.initial_carry((3,)), obs[4:], start[:3])
    close(q, np.concatenate([first, second]))
    jax.tree.map(close, last, after)


@cache
def cartpole(config=TINY):
    """Episodes cut after three steps."""
    env, params = make("CartPole-v1")
    algo = r2d2.make(env, config)
    params = params.replace(max_steps=jnp.int32(3))
    hyper = r2d2.Hyper(learning_starts=10**6)
    return algo, jax.jit(lambda key: algo.init(key, hyper, params)), jax.jit(algo.update)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    ("rnn", "burn_in"), [*itertools.product(["gru", "lstm"], [0, 3, 5]), ("attention", 3), ("s5", 3), ("frames", 0)]
)
def test_a_stored_carry_and_a_burn_in_are_the_uninterrupted_run(rnn, burn_in):
    """Three rollouts with the same weights fill the replay; each sequence's values are those of one long unroll."""
    algo, init, update = cartpole(dataclasses.replace(TINY, rnn=rnn, burn_in=burn_in))
    network, state = algo.init.__self__.network, init(jax.random.key(2))
    weights, hidden = state.weights, state.carry.hidden
    for _ in range(3):
        state, _ = update(state)
    items = state.replay.ring.items  # rows: the rollouts one after the other, each of four environments
    parts = [swapped(jax.tree.map(lambda x, i=i: x[4 * i : 4 * i + 4], items)) for i in range(3)]
    obs = jnp.concatenate([x.obs[:-1] for x in parts] + [parts[-1].obs[-1:]])
    start = jnp.concatenate([x.start[:-1] for x in parts] + [parts[-1].start[-1:]])
    np.testing.assert_array_equal(start.T, [np.arange(16) % 3 == 0] * 4)
    _, whole = network.apply(weights, hidden, obs, start)
    for i, part in enumerate(parts):
        assert part.past.start.shape == (burn_in, 4)
        np.testing.assert_array_equal(part.truncated.T, [(np.arange(5) + 5 * i) % 3 == 2] * 4)
        _, q = network.apply(weights, burnt_in(weights, part.past, network), part.obs, part.start)
        close(q, whole[5 * i : 5 * i + 6], atol=1e-5)
    _, last = network.apply(weights, state.carry.hidden, state.obs[None], state.carry.start[None])
    close(last[0], whole[-1], atol=1e-5)


@pytest.mark.slow
@pytest.mark.light
def test_a_restart_begins_a_sequence_and_leaves_the_stored_one():
    algo, init, update = cartpole()
    state, _ = update(init(jax.random.key(3)))
    slots = jnp.array([True, False, True, False])
    begun = algo.restart(state, jax.random.key(4), state.env_params, slots)
    after, _ = update(begun)
    first, second = (jax.tree.map(lambda x, i=i: x[i : i + 4], after.replay.ring.items) for i in (0, 4))
    np.testing.assert_array_equal(second.start[:, 0], state.carry.start | slots)
    close(first.obs[:, -1], state.obs)
    close(second.obs[:, 0], begun.obs)
    assert np.all(np.any(first.obs[:, -1] != second.obs[:, 0], -1) == slots)


@pytest.mark.slow
@pytest.mark.light
def test_priorities_are_given_to_the_sequences_that_were_drawn():
    """Of two batches of an update with one gradient step due; without a step none changes."""
    env, _ = make("CartPole-v1")
    algo = r2d2.make(env, dataclasses.replace(TINY, batch_size=1, n_step=1))
    state = algo.init(jax.random.key(5), r2d2.Hyper(learning_starts=20, replay_ratio=0.05, priority_alpha=1.0))
    update = jax.jit(algo.update)
    state, metrics = update(state)
    np.testing.assert_array_equal(state.replay.tree[0][:12], [1.0] * 4 + [0.0] * 8)
    assert metrics["gradient_steps"] == 0 and np.isnan(metrics["loss"])
    state, metrics = update(state)
    assert metrics["gradient_steps"] == 1 and np.isfinite(metrics["loss"])
    assert np.sum(state.replay.tree[0][:8] != 1) == 1


@pytest.mark.slow
@pytest.mark.light
def test_a_deployed_carry_forgets_where_told():
    algo, init, _ = cartpole()
    state = init(jax.random.key(6))
    policy, key = algo.policy(state), jax.random.key(0)
    assert set(policy._fields) == {"weights", "epsilon"}
    carry, obs = algo.initial_carry((3,)), jnp.ones((3, 4))
    _, carry = algo.act(policy, key, obs, carry, greedy=True)
    _, fresh = algo.act(policy, key, obs, algo.initial_carry((3,)))
    _, after = algo.act(policy, key, obs, carry._replace(start=jnp.array([False, True, False])))
    np.testing.assert_array_equal(np.any(after.hidden != fresh.hidden, -1), [True, False, True])
    with pytest.raises(ValueError, match="needs a carry.*initial_carry"):
        algo.act(policy, key, obs)
    with pytest.raises(ValueError, match=r"batch shape \(2,\), the observations have \(3,\); initial_carry"):
        algo.act(policy, key, obs, algo.initial_carry((2,)))


DRQN = dict(prioritised=False, n_step=1, rescaled=False, double=False, dueling=False, rnn="lstm")


def test_drqn_is_a_config():
    algo = r2d2.make(Masked(), dataclasses.replace(TINY, **DRQN))
    state = jax.eval_shape(algo.init, jax.random.key(0))
    assert len(state.carry.hidden) == 2
    assert jax.eval_shape(algo.update, state)[1]["loss"].shape == ()


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("changes", [{}, DRQN], ids=["r2d2", "drqn"])
def test_it_remembers_a_bit(changes):
    """Shown at the first two steps, asked for four steps later; without memory the best mean return is 0."""
    env, params = jaxrl.make("MemoryLength-bsuite")
    params = params.replace(memory_length=jnp.int32(4))
    config = r2d2.Config(num_steps=10, burn_in=5, num_updates=8, hidden=(16,), rnn_size=16, buffer_size=512)
    hyper = r2d2.Hyper(learning_rate=3e-3, exploration_steps=4000, epsilon_end=0.0, learning_starts=300)
    hyper = dataclasses.replace(hyper, target_period=50)
    algo = r2d2.make(env, dataclasses.replace(config, **changes))
    _, metrics = jax.jit(lambda key: train(algo, key, 10_000, hyper, params))(jax.random.key(0))
    assert np.nanmean(metrics["episode_return"][-8:]) > 0.9


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: r2d2.Config(num_steps=0), r"num_steps=0.*at least 1"),
        (lambda: r2d2.Config(burn_in=21), r"burn_in=21.*0 to num_steps=20"),
        (lambda: r2d2.Config(n_step=21), r"n_step=21.*1 to num_steps=20"),
        (lambda: r2d2.Config(buffer_size=31), r"buffer_size=31.*batch_size=32; 32 does"),
        (lambda: r2d2.Config(num_envs=64, buffer_size=40), r"buffer_size=40.*num_envs=64.*; 64 does"),
        (lambda: r2d2.Config(rnn="lstn"), r"rnn='lstn'.*unknown.*lstm"),
        (lambda: r2d2.make(make("CartPole-v1")[0], r2d2.Config(conv=(4,))), r"conv=\(4,\) needs images"),
        (lambda: r2d2.make(make("Pendulum-v1")[0], TINY), r"r2d2 acts in Discrete.*Pendulum-v1"),
        (lambda: r2d2.make(jaxrl.vectorize(make("CartPole-v1")[0], 2), TINY), r"num_envs=2.*says 4"),
        (lambda: r2d2.make(DelayedReward(), TINY, network=Leaky(3)), r"values \(4, 3\).*needs \(4, 2\)"),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
