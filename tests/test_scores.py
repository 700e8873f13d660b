"""The scores of record: every id has one, and normalized returns are 0 at random's and 1 at the top's."""

import ast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import registry, scores
from jaxrl.evaluation import episodes
from jaxrl.host.data.recording import at_random


def test_every_id_that_can_be_made_here_has_what_random_actions_get():
    missing = {id for id, entry in registry.environments().items() if not entry.extra} - set(scores.ids())
    assert not missing, f"python experiments/scores/run.py random --only {' '.join(sorted(missing))}"
    assert not set(scores.ids()) - set(registry.environments())


def test_records_are_complete_and_in_order():
    for id in scores.ids():
        record = scores.of(id)
        low, high = record.random.interval
        assert low <= record.random.value <= high and record.cap > 0, id
        assert record.random.about["episodes"] >= 64 and len(record.random.about["code"]) == 8, id
        for other in (record.reference, record.ours):
            assert other is None or np.isfinite(other.value) and other.what, id
        if record.ours:
            assert {"steps", "seeds", "seconds", "date"} <= set(record.ours.about), id
        assert record.top is None or record.top.value > record.random.value, id


def test_normalized_is_zero_at_random_and_one_at_the_reference_and_keeps_the_shape():
    record = scores.of("CartPole-v1")
    ends = np.array([[record.random.value, record.top.value]])
    np.testing.assert_allclose(scores.normalized("CartPole-v1", ends), [[0, 1]], atol=1e-12)
    assert record.top is record.reference
    assert scores.normalized("CartPole-v1", (record.random.value + record.top.value) / 2) == pytest.approx(0.5)


def test_what_has_no_score_is_said():
    with pytest.raises(ValueError, match="CartPole-v1"):
        scores.of("CartPole-v2")
    bare = next(id for id in scores.ids() if scores.of(id).top is None)
    with pytest.raises(ValueError, match="only random's return"):
        scores.normalized(bare, 1.0)


def test_a_record_is_of_a_task_as_its_id_has_it():
    env, params = jaxrl.make("CartPole-v1")
    assert scores.record_of(env, params) == scores.of("CartPole-v1")
    assert scores.record_of(env, params.replace(length=jnp.float32(0.7))) is None
    assert scores.record_of(*jaxrl.make("Maze-v0", height=5, width=5)) is None
    env, params = jaxrl.make("Quadcopter-Hover-v0")
    assert scores.record_of(env, params) is not None
    thrust = params.model.replace(thrust=params.model.thrust * 2)  # 3e-10
    assert scores.record_of(env, params.replace(model=thrust)) is None


def test_random_was_measured_as_it_says():
    env, params = jaxrl.make("CartPole-v1")
    act = at_random(env, params).act
    found = episodes(act, (), jax.random.key(9), env, params, num_episodes=512, max_steps=500).returns
    low, high = scores.of("CartPole-v1").random.interval
    assert abs(float(found.mean()) - (low + high) / 2) < 3 * (high - low)  # 512 episodes have twice the interval


def test_actions_at_random_are_of_all_agents():
    env, params = jaxrl.make("Quadcopter-Flock-v0")
    act = at_random(env, params).act
    returns = episodes(act, (), jax.random.key(0), env, params, num_episodes=3, max_steps=4).returns
    assert returns.shape == (3, env.num_agents) and len(np.unique(np.asarray(returns))) > env.num_agents


def test_the_hash_of_an_environments_code_sees_what_it_is_made_of(of_study):
    code, run = of_study("scores", "env_code", "run")
    assert "jaxrl.envs.classic.two_link" in code.imports("jaxrl.envs.classic.acrobot")
    assert "jaxrl.envs.grid.engine" in code.imports("jaxrl.envs.grid.minigrid.empty")
    assert code.of("MiniGrid-Empty-5x5-v0") != code.of("MiniGrid-Empty-8x8-v0")  # their settings
    one, other, changed = (code.dumped(ast.parse(text)) for text in ('"""A."""\nx = 1  # one', "x = 1", "x = 2"))
    assert one == other != changed
    drawn = {id: run.draws(*jaxrl.make(id)) for id in ("Maze-v0", "GridWorld-small-v0", "Darkroom-v0")}
    assert drawn == {"Maze-v0": True, "GridWorld-small-v0": False, "Darkroom-v0": False}
