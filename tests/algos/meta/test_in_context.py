"""What `experiments/in_context` hands to algorithm distillation, and what it holds out."""

import itertools

import jax
import numpy as np
import pytest

from jaxrl import vectorize
from jaxrl.wrappers import PreviousActionReward


@pytest.fixture
def tasks(of_study):
    return of_study("in_context", "tasks")[0]


def test_held_out_tasks_are_never_drawn(tasks):
    for values, everything in (
        (tasks.meanings, set(itertools.permutations(range(5)))),
        (tasks.goals, {(cell,) for cell in range(100)}),
    ):
        held_out, train = ({tuple(np.atleast_1d(x).tolist()) for x in values(side)} for side in (True, False))
        assert held_out | train == everything and not held_out & train
        assert len(held_out) == len(everything) // 5


@pytest.mark.slow
@pytest.mark.light
def test_excerpts_are_a_learning_history_as_the_wrapper_shows_it(tasks):
    """Played again in the wrapped room the actions give the same observations, across episodes that were left out."""
    task = tasks.permuted().distilled()
    algo, N, T = task.algorithm(250, 3), 3, 250
    start = jax.jit(algo.init)(jax.random.key(0), None, task.params)
    _, rollout = jax.jit(algo.collect)(start)
    draw_key = jax.random.split(jax.random.split(start.key)[1])[0]  # as `collect` draws the levels
    levels = jax.vmap(task.draw, (0, None))(jax.random.split(draw_key, N), task.params)
    venv = vectorize(PreviousActionReward(task.env), N, batched_params=True)
    obs, state = jax.jit(venv.reset)(jax.random.key(1), levels)
    step = jax.jit(venv.step)
    for t in range(T):
        jax.tree.map(lambda seen, true, t=t: np.testing.assert_array_equal(seen[t], true), rollout.obs, obs)
        ts = step(jax.random.key(t), state, rollout.target[t], levels)
        obs, state = ts.obs, ts.state
    assert rollout.truncated.sum() == 2 * N


@pytest.mark.slow
@pytest.mark.light
def test_left_out_episodes_were_learned_from(tasks):
    """Between two shown episodes the table has learned from those between them."""
    room = tasks.Darkroom()
    learner = tasks.q_learning.make(room)
    params = room.default_params.replace(max_steps=np.int32(10))
    source = tasks.excerpts(learner, 0, 4)
    update = jax.jit(source.update)
    state = jax.jit(lambda key: source.init(key, None, params))(jax.random.key(0))
    seen = [int(state.weights.steps)]
    for _ in range(21):
        state, _ = update(state)
        seen.append(int(state.weights.steps))
    assert seen[:10] == list(range(10))
    assert seen[10:20] == list(range(50, 60))
    assert seen[20] == 100
