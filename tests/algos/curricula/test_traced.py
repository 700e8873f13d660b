"""TRACED's priorities on levels that are numbers, its model's errors by hand, and its model around a student."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import curriculum
from jaxrl.algos import ppo
from jaxrl.algos.curricula import traced
from jaxrl.curriculum.protocol import Outcomes

PARAMS = {"low": jnp.zeros(())}
ENV = jaxrl.make("CartPole-v1")[0]
N, SIZE = 4, 16


def level_fn(key, params):
    return {"x": params["low"] + jax.random.uniform(key)}


def mutate_fn(key, level):
    return {"x": level["x"] + jax.random.uniform(key) / 100}


def scored(batch, score):
    n = batch.slot.shape[0]
    return Outcomes(*[jnp.zeros(n)] * 3, score, score, jnp.ones(n, jnp.int32))


def test_a_replay_gives_the_levels_of_the_last_one_what_it_made_easier():
    """Replays at difficulties that are known: priorities, and the transfer that is in them, by hand."""
    hyper = traced.Hyper(replay_prob=1.0, min_fill=1.0, transfer_coef=0.5)
    cur = traced.make(ENV, level_fn, mutate_fn, traced.Config(SIZE, num_edits=1, model_size=2), hyper)
    sample, update = jax.jit(cur.sample), jax.jit(cur.update)
    state = jax.jit(cur.init)(jax.random.key(0), cur.hyper, PARAMS)
    difficulty, transfer, last, replays = {}, {}, [], 0
    for i in range(24):
        batch, state = sample(jax.random.key(i), state, jnp.ones(N, bool))
        x, slots = np.asarray(batch.params["x"]), np.asarray(batch.slot)
        # A level that is in several rows has one difficulty; harder levels of later batches push others out.
        made = 1 + x + 0.01 * i
        before = {float(v): s for v, s in zip(state.accel.buffer.levels["x"], state.accel.buffer.score, strict=True)}
        state = update(jax.random.key(i), state, batch, scored(batch, jnp.asarray(made)))
        held = np.asarray(state.accel.buffer.levels["x"])
        if (slots >= 0).all():
            replays += 1
            gain = np.mean([difficulty[float(v)] - m for v, m in zip(x, made, strict=True)])
            transfer |= {v: gain for v in last if v in before}
            last = [float(v) for v in x]
            for v, m in zip(x, made, strict=True):
                difficulty[float(v)] = m
        else:
            difficulty |= {float(v): m for v, m in zip(x, made, strict=True)}
        filled = np.isfinite(state.accel.buffer.score)
        for slot in np.nonzero(filled)[0]:
            level = float(held[slot])
            np.testing.assert_allclose(state.transfer[slot], transfer.get(level, 0), atol=1e-5)
            wanted = difficulty[level] + 0.5 * transfer.get(level, 0)
            np.testing.assert_allclose(state.accel.buffer.score[slot], wanted, atol=1e-5)
        assert set(held[np.asarray(state.replayed)].tolist()) <= set(last)
    assert replays >= 8 and np.any(np.asarray(state.transfer) != 0)
    ranks = np.argsort(np.argsort(-np.asarray(state.accel.buffer.score), kind="stable")) + 1
    np.testing.assert_array_equal(state.accel.buffer.rank, ranks)


def test_prediction_errors_are_those_of_steps_within_episodes():
    """Two slots, four steps; with zero weights the model predicts zeros, so an error is the next observation's size."""
    model = traced.Model(3)
    obs = jnp.arange(1.0, 17.0).reshape(4, 2, 2)
    action = jnp.ones((4, 2, 1))
    done = jnp.array([[False, True], [True, True], [False, True], [False, False]])
    weights = jax.tree.map(jnp.zeros_like, model.init(jax.random.key(0), obs, action, done))
    loss, error = traced.prediction_error(model, weights, obs, action, done)
    sizes = obs.mean(-1)
    np.testing.assert_allclose(error, [(sizes[1, 0] + sizes[3, 0]) / 2, 0.0])
    np.testing.assert_allclose(loss, (sizes[1, 0] + sizes[3, 0]) / 2)
    # What happens in one episode has no influence on the predictions in the next one.
    weights = model.init(jax.random.key(0), obs, action, done)
    alone = model.apply(weights, obs[2:, :1], action[2:, :1], jnp.array([[True], [False]]))
    whole = model.apply(weights, obs[:, :1], action[:, :1], jnp.array([[True], [False], [True], [False]]))
    np.testing.assert_allclose(whole[2:], alone, atol=1e-6)


@pytest.mark.slow
@pytest.mark.light
def test_around_a_student_its_model_learns():
    env, params = jaxrl.make("Maze-v0", height=6, width=6)
    levels = env.as_levels()
    config = traced.Config(32, num_edits=2, model_size=16)
    hyper = traced.Hyper(min_fill=0.25, model_rate=1e-2)
    chosen = traced.make(levels, env.generate, env.mutate, config, hyper)
    student = ppo.make(
        jaxrl.vectorize(levels, 8, batched_params=True), ppo.Config(num_envs=8, num_steps=64, hidden=(16,))
    )
    algo = curriculum.attach(student, chosen)
    params = jaxrl.environment.strongly_typed(params.replace(max_steps=30))
    run = jax.jit(lambda key: jaxrl.train(algo, key, 8 * 64 * 40, env_params=params))
    _, metrics = run(jax.random.key(0))
    score = np.asarray(metrics["level_score"])
    assert np.isfinite(score).all() and (score > 0).all()
    assert np.nanmean(score[-10:]) < 0.8 * np.nanmean(score[:3])  # most of it is the model's error, which falls
    assert np.any(np.asarray(metrics["levels_replayed"]) == 1) and np.any(np.asarray(metrics["transfer"]) != 0)


@pytest.mark.parametrize("change", [{"model_size": 0}, {"model_steps": 0}, {"num_edits": 0}])
def test_settings_out_of_range_are_said(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        traced.Config(**change)
