"""`restart`: what belongs to an episode that is cut is forgotten, and windows of rewards do not run across."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.algorithm import field, with_field
from jaxrl.algos import dqn, ppo, ppo_gbrl, ppo_rnn, pqn_rnn, props, r2d2, rnd, sac_rnn, td3_rnn
from jaxrl.algos.streaming import stream_ac, stream_q, stream_td

KEY = jax.random.key(0)
ON_POLICY = {"num_envs": 2, "num_steps": 4, "num_epochs": 1, "num_minibatches": 1, "hidden": (4,)}
REPLAYED = {"num_envs": 2, "num_steps": 4, "burn_in": 2, "num_updates": 1, "batch_size": 2, "buffer_size": 2}
SMALL = {"hidden": (4,), "rnn_size": 4}
MODULES = {
    "ppo": (ppo, {**ON_POLICY, "normalize_reward": True}),
    "ppo_gbrl": (
        ppo_gbrl,
        {"num_envs": 2, "num_steps": 4, "num_minibatches": 1, "num_trees": 2, "depth": 2, "normalize_reward": True},
    ),
    "ppo_rnn": (ppo_rnn, {**ON_POLICY, "rnn_size": 4, "burn_in": 2}),
    "pqn_rnn": (pqn_rnn, {**ON_POLICY, "rnn_size": 4, "burn_in": 2}),
    "props": (props, {**ON_POLICY, "normalize_reward": True}),
    "r2d2": (r2d2, {**REPLAYED, **SMALL, "n_step": 1}),
    "sac_rnn": (sac_rnn, {**REPLAYED, **SMALL}),
    "td3_rnn": (td3_rnn, {**REPLAYED, **SMALL}),
    "rnd": (rnd, {**ON_POLICY, "episodic_bonus": True}),
    "stream_q": (stream_q, {"num_steps": 4, "hidden": (10,)}),
    "stream_ac": (stream_ac, {"num_steps": 4, "hidden": (10,)}),
    "stream_td": (stream_td, {"num_steps": 4, "hidden": (10,)}),
}


def scrambled(state, slots):
    """With other numbers, and without beginnings of episodes, in what belongs to slots beside the environments."""

    def other(x):
        return x + 3 if jnp.issubdtype(x.dtype, jnp.floating) else jnp.zeros_like(x) if x.dtype == bool else x

    for path in slots:
        # What props and a replay hold of episodes before is learned from, whatever follows.
        if path not in ("env_params", "env_state", "obs", "buffer", "replay"):
            state = with_field(state, path, jax.tree.map(other, field(state, path)))
    return state


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", MODULES)
def test_what_an_episode_left_behind_does_not_matter_after_a_restart(name):
    module, settings = MODULES[name]
    env = make("Pendulum-v1" if name in ("sac_rnn", "td3_rnn") else "CartPole-v1")[0]
    algo = module.make(env, module.Config(**settings))
    hyper = module.Hyper(learning_starts=0) if "buffer_size" in settings else None
    everywhere = jnp.ones(algo.venv.num_envs, bool)

    @jax.jit
    def run(key):
        state = algo.init(key, hyper)

        def cut(state):
            return algo.restart(state, jax.random.fold_in(key, 1), state.env_params, everywhere)

        other = scrambled(state, algo.slots)
        four = jax.tree.map(lambda *x: jnp.stack(x), state, other, cut(state), cut(other))
        after = jax.vmap(algo.update)(four)[0]
        # What is learned, and the slots' own: returns and traces go on from what was there, or from nothing.
        return after.weights, [field(after, path) for path in algo.slots[3:] if path != "replay"]

    ran = run(KEY)
    gone_on, gone_on_from_other, anew, anew_from_other = (jax.tree.map(lambda x, i=i: x[i], ran) for i in range(4))
    same = jax.tree.map(lambda a, b: bool(jnp.all(a == b)), gone_on, gone_on_from_other)
    assert not all(jax.tree.leaves(same)), "it would matter in an episode that goes on"
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), anew, anew_from_other)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("prioritised", [False, True])
def test_windows_of_rewards_end_with_the_episode_that_was_cut(prioritised):
    """Two slots, four steps before and four after a restart of the first; windows of three steps at gamma 0.5."""
    config = dqn.Config(2, 1, buffer_size=16, batch_size=128, num_updates=1, n_step=3, hidden=(4,))
    algo = dqn.make(make("CartPole-v1")[0], dataclasses.replace(config, prioritised=prioritised))
    learner = algo.init.__self__

    @jax.jit
    def run(key):
        def four(state):
            return jax.lax.scan(lambda state, _: (algo.update(state)[0], None), state, length=4)[0]

        before = four(algo.init(key, dqn.Hyper(learning_starts=10**6, gamma=0.5)))
        after = four(algo.restart(before, key, before.env_params, jnp.array([True, False])))
        return before, after, learner.batches(key, after.replay, after)[0]

    before, after, batch = run(KEY)
    items = (after.replay.ring if prioritised else after.replay).items
    assert not items.terminated.any() and items.truncated.sum() == 1
    obs, batch = items.obs.reshape(8, 2, -1), jax.tree.map(lambda x: None if x is None else x[0], batch)
    for slot, step, steps in ((0, 1, 3), (0, 2, 2), (0, 3, 1), (0, 4, 3), (1, 2, 3), (1, 3, 3)):
        at = np.flatnonzero((batch.obs == obs[step, slot]).all(-1))
        assert at.size, "a window that begins there was drawn"
        np.testing.assert_allclose(batch.reward[at], 2 - 0.5 ** (steps - 1))
        np.testing.assert_allclose(batch.discount[at], 0.5**steps)
        successor = before.obs[0] if slot == 0 and step < 4 else obs[step + steps, slot]
        np.testing.assert_array_equal(batch.next_obs[at], jnp.broadcast_to(successor, (at.size, 4)))
