"""The adaptive replay ratio: its controller by hand, and around an algorithm."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.algos import ddpg, ppo
from jaxrl.environment import strongly_typed
from jaxrl.off_policy import replay_ratio
from jaxrl.off_policy.replay_ratio import Monitor, Ratio, observe, should_switch
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.probes import ObservationActionReward


def fresh():
    return Monitor(jnp.float32(0), jnp.int32(0), jnp.int32(0), jnp.float32(jnp.inf), jnp.bool_(False))


def run(shares, window=2, gap=0.01, elapsed=1):
    """Which updates switched, given the share of active units of each (0: no gradient step)."""
    monitor, ratio = fresh(), strongly_typed(Ratio(window=window, gap=gap))
    switched = []
    for share in shares:
        share = jnp.float32(share)
        monitor = observe(monitor, ratio, share, share > 0, jnp.int32(elapsed))
        switched.append(bool(monitor.switched))
    return switched, monitor


def test_windows_are_compared_and_the_switch_is_final():
    # Windows of two: means 0.5, 0.4, 0.405, then one far away.
    switched, monitor = run([0.4, 0.6, 0.4, 0.4, 0.4, 0.41, 0.9, 0.9])
    assert switched == [False] * 5 + [True] * 3
    np.testing.assert_allclose(monitor.previous, 0.9, rtol=1e-6)


def test_the_first_window_has_nothing_to_be_compared_with():
    assert run([0.5, 0.5, 0.5, 0.5])[0] == [False, False, False, True]


def test_updates_without_gradient_steps_do_not_count():
    switched, monitor = run([0, 0, 0, 0.5, 0, 0.7, 0.6])
    # The first window is updates 4 and 5, the mean of one share; the second 6 and 7.
    np.testing.assert_allclose(monitor.previous, 0.65, rtol=1e-6)
    assert not any(switched)


def test_gap_is_inclusive():
    assert bool(should_switch(jnp.float32(0.5), jnp.float32(0.75), 0.25))
    assert not bool(should_switch(jnp.float32(0.5), jnp.float32(jnp.inf), 0.25))


@cache
def adapted():
    env = ObservationActionReward("box")
    algo = ddpg.make(env, ddpg.Config(num_envs=2, num_updates=4, batch_size=8, buffer_size=32, hidden=(8,)))
    return algo, replay_ratio.adapt(algo, "steps")


@pytest.mark.slow
@pytest.mark.light
def test_gradient_steps_follow_the_ratio():
    _, algo = adapted()
    hyper = algo.hyper(learning_starts=2, learning_rate=1e-2, ratio=Ratio(window=4, gap=10.0))
    update = jax.jit(algo.update)
    state = algo.init(jax.random.key(0), hyper)
    rows = []
    for _ in range(7):
        state, metrics = update(state)
        rows.append((float(metrics["replay_ratio"]), int(metrics["gradient_steps"])))
    # Two steps an update: nothing is learnt in the first, windows end after the third and the fifth update.
    assert rows == [(0.5, 0), (0.5, 1), (0.5, 1), (0.5, 1), (0.5, 1), (2.0, 4), (2.0, 4)]
    assert state.monitor.switched and state.hyper.replay_ratio == 2
    action, _ = algo.act(algo.policy(state), jax.random.key(1), jnp.zeros((3, 1)))
    assert action.shape == (3, 1)


@pytest.mark.slow
def test_keeps_the_contract():
    _, algo = adapted()
    check_algorithm(algo, hyper=ddpg.Hyper(learning_starts=2, learning_rate=1e-2), num_updates=4)


@pytest.mark.slow
@pytest.mark.light
def test_its_settings_are_leaves():
    _, algo = adapted()
    ratios = Ratio(low=jnp.array([0.5, 1.0]), high=jnp.full(2, 2.0), gap=jnp.zeros(2), window=jnp.array([4, 4]))
    state = jax.vmap(lambda r: algo.init(jax.random.key(0), algo.hyper(ratio=r)))(ratios)
    np.testing.assert_array_equal(state.hyper.replay_ratio, [0.5, 1.0])


@pytest.mark.slow
@pytest.mark.light
def test_impossible_requests_are_refused():
    inner, _ = adapted()
    cartpole, _ = make("CartPole-v1")
    with pytest.raises(ValueError, match=r"ppo has no Hyper.replay_ratio"):
        replay_ratio.adapt(ppo.make(cartpole))
    with pytest.raises(ValueError, match=r"unit='updates'.*'episodes' or 'steps'"):
        replay_ratio.adapt(inner, "updates")
    one = replay_ratio.adapt(ddpg.make(ObservationActionReward("box"), ddpg.Config(hidden=(8,))))
    with pytest.raises(ValueError, match=r"num_updates=1.*needs at least 2"):
        one.init(jax.random.key(0))
    one.init(jax.random.key(0), one.hyper(ratio=replay_ratio.Ratio(low=0.25, high=1.0)))

    def silent(state, rollout):
        state, metrics = inner.learn(state, rollout)
        return state, {k: v for k, v in metrics.items() if k != "active_units"}

    with pytest.raises(ValueError, match=r"does not report active_units"):
        replay_ratio.adapt(inner._replace(learn=silent))
