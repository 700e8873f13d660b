"""PAIRED by hand, on a guessing game whose level is the number to be guessed, and on small mazes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition, pytree
from jaxrl.algos import ppo, ppo_rnn
from jaxrl.algos.curricula import paired
from jaxrl.curriculum.protocol import Outcomes
from jaxrl.environment import Hints
from jaxrl.envs.grid.maze import editor as maze_editor
from jaxrl.envs.grid.maze.editor import MazeEditor
from jaxrl.returns import gae
from jaxrl.rollout import Ends
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.algorithms import check_algorithm

KEY = jax.random.key(0)


@pytree
class GuessParams:
    max_steps: jax.Array = 1
    target: jax.Array = 0


@pytree
class Clock:
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class Guess(Environment):
    """One guess at a number that is not shown."""

    id: str = dataclasses.field(default="Guess", kw_only=True)
    Params = GuessParams
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return Clock(jnp.int32(0))

    def transition(self, key, state, action, params):
        return Transition(state, (action == params.target).astype(jnp.float32), jnp.bool_(True), jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jnp.ones(1)

    def observation_space(self, params):
        return Box(0.0, 1.0, (1,))

    def action_space(self, params):
        return Discrete(3)


@pytree
class PickParams:
    max_steps: jax.Array = 9


@pytree
class PickState:
    time: jax.Array
    target: jax.Array


@dataclasses.dataclass(frozen=True)
class Pick(Environment):
    """Two steps, of which the second names the number."""

    id: str = dataclasses.field(default="Pick", kw_only=True)
    Params = PickParams
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return PickState(jnp.int32(0), jnp.int32(-1))

    def transition(self, key, state, action, params):
        last, named = state.time == 1, action.astype(jnp.int32)
        return Transition(state.replace(target=named), jnp.float32(0), last, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return state.time.astype(jnp.float32)[None]

    def observation_space(self, params):
        return Box(0.0, 2.0, (1,))

    def action_space(self, params):
        return Discrete(3)


def level(state):
    return GuessParams(jnp.int32(1), state.target)


N = 8
TINY = dict(num_envs=N, num_epochs=2, num_minibatches=1, hidden=(4,))


def student_of(env=Guess(), num_steps=4, **changes):
    config = ppo.Config(**{**TINY, "num_steps": num_steps, **changes})
    return ppo.make(jaxrl.vectorize(env, config.num_envs, batched_params=True), config)


def designer_of(env=Pick(), num_steps=2, **changes):
    return ppo.make(env, ppo.Config(**{**TINY, "num_steps": num_steps, **changes}))


def made(reward="regret", num_students=2, designer_hyper=None):
    return paired.make(student_of(), designer_of(), level, paired.Config(reward, num_students), designer_hyper)


@pytest.fixture(scope="module")
def algo():
    return made()


def seen_of(mean, best, episodes):
    """Outcomes (M, N)."""
    mean, best, episodes = jnp.asarray(mean), jnp.asarray(best), jnp.asarray(episodes)
    return Outcomes(mean, mean, mean, mean, best, episodes)


# ---- rewards


INF = np.inf
SEEN = seen_of(
    #   solved  better  worse   neither  only the second
    [[0.5, 0.2, 0.6, 0.0, 0.0], [0.5, 0.4, 0.1, 0.0, 0.3]],
    [[0.9, 0.3, 0.8, -INF, -INF], [0.7, 0.8, 0.2, -INF, 0.7]],
    [[2, 3, 2, 0, 0], [2, 2, 1, 0, 1]],
)


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ("regret", [0.2, 0.6, 0.0, 0.0, 0.7]),
        ("mean", [0.0, 0.2, 0.0, 0.0, 0.3]),
        ("population", [0.4, 0.5, 0.45, 0.0, 0.55]),
        ("minimax", [-0.5, -0.2, -0.6, 0.0, 0.0]),
    ],
)
def test_rewards_by_hand(reward, expected):
    np.testing.assert_allclose(paired.designer_reward(SEEN, reward), expected, atol=1e-6)


def test_the_reward_comes_with_the_last_step_and_nothing_after_it():
    zeros, no = jnp.zeros((3, 2)), jnp.zeros((3, 2), bool)
    rollout = ppo.Rollout(zeros, zeros, zeros, zeros, zeros + 0.1, no, no, zeros + 5, Ends(no, zeros, zeros))
    paid = paired.rewarded(rollout, jnp.asarray([1.0, 2.0]))
    np.testing.assert_allclose(paid.reward, [[0.1, 0.1], [0.1, 0.1], [1.1, 2.1]], rtol=1e-6)
    np.testing.assert_array_equal(paid.ends.episode_return, [[0, 0], [0, 0], [1, 2]])
    for ended in (paid.terminated, paid.ends.done):
        np.testing.assert_array_equal(ended, [[False] * 2] * 2 + [[True] * 2])


# ---- what one update does


def spied(algorithm, calls):
    """The algorithm, which notes the rollouts that it learns from."""

    def learn(state, rollout):
        calls.append(jax.tree.map(np.asarray, rollout))
        return algorithm.learn(state, rollout)

    return algorithm._replace(learn=learn)


@pytest.mark.slow
def test_regret_reaches_the_designers_advantage_at_the_right_step():
    calls, student, designer = [], student_of(), designer_of()
    algo = paired.make(student, spied(designer, calls), level)
    state, rollout = jax.jit(algo.collect)(jax.jit(algo.init)(KEY))
    algo.learn(state, rollout)
    action, reward = np.asarray(rollout.students.action), np.asarray(rollout.students.reward)
    target = np.asarray(rollout.designer.action[-1])
    np.testing.assert_array_equal(rollout.levels.target, target)
    assert len(set(target.tolist())) > 1
    np.testing.assert_array_equal(reward, (action == target).astype(np.float32))  # both played these levels
    assert (action[0] != action[1]).any()
    regret = np.maximum(reward[1].max(0) - reward[0].mean(0), 0)
    assert regret.max() > regret.min() >= 0
    (paid,) = calls
    np.testing.assert_allclose(paid.reward, [np.zeros(N), regret], atol=1e-6)
    np.testing.assert_array_equal(paid.terminated, [[False] * N, [True] * N])
    np.testing.assert_allclose(paid.ends.episode_return[-1], regret, atol=1e-6)
    ends, zero = (jnp.asarray(paid.terminated), jnp.asarray(paid.truncated)), jnp.zeros((2, N))
    advantage = gae(jnp.asarray(paid.reward), zero, zero, *ends, 0.9, 0.5)
    np.testing.assert_allclose(advantage, [0.45 * regret, regret], atol=1e-6)


@pytest.mark.slow
@pytest.mark.light
def test_levels_are_the_last_states_before_any_reset():
    """Of the editor: what its actions build, one after another, from where the rollout began."""
    editor = MazeEditor(height=3, width=4, num_walls=4, noise_dim=2)
    maze = jaxrl.make("Maze-v0", height=3, width=4)[0].as_levels()
    algo = paired.make(student_of(maze), designer_of(editor, editor.num_steps), maze_editor.level)
    state = jax.jit(algo.init)(KEY)
    for _ in range(2):
        begun = state.designer.env_state.env
        assert (begun.time == 0).all()
        state, rollout = jax.jit(algo.collect)(state)
        step = jax.jit(editor.step)
        for i in range(N):
            alone = jax.tree.map(lambda x, i=i: x[i], begun)
            for action in rollout.designer.action[:, i]:
                alone = step(KEY, alone, action, editor.default_params).state
            for a, b in zip(jax.tree.leaves(alone.level), jax.tree.leaves(rollout.levels), strict=True):
                np.testing.assert_array_equal(a, b[i])
        maze.validate(rollout.levels)
        for i in range(2):
            np.testing.assert_array_equal(state.student(i).env_params.wall_map, rollout.levels.wall_map)


@pytest.mark.slow
@pytest.mark.light
def test_steps_and_metrics(algo):
    update, state = jax.jit(algo.update), jax.jit(algo.init)(KEY)
    for i in range(1, 4):
        state, metrics = update(state)
        assert int(state.step) == i * algo.steps_per_update == i * 2 * 4 * N
        assert state.inner.step.tolist() == [i * 4 * N] * 2 and int(state.designer.step) == i * 2 * N
    assert update._cache_size() == 1
    assert int(metrics["designer_steps"]) == 2 * N
    assert all(np.isfinite(x) for x in metrics.values())
    assert metrics["episodes"] == 4 * N  # the protagonist's
    np.testing.assert_allclose(metrics["level_return"], metrics["episode_return"], rtol=1e-6)
    assert metrics["level_best_return"] >= metrics["level_return"]
    assert algo.policy(state) is not None
    for a, b in zip(
        jax.tree.leaves(algo.policy(state).weights), jax.tree.leaves(state.student(0).weights), strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.light
def test_students_start_apart_and_all_three_learn(algo):
    state = jax.jit(algo.init)(KEY)
    first, second = (jax.tree.leaves(state.student(i).weights) for i in range(2))
    assert any((a != b).any() for a, b in zip(first, second, strict=True))
    after, _ = jax.jit(lambda state: jax.lax.scan(lambda s, _: algo.update(s), state, length=4))(state)
    before, now = (dict(jax.tree_util.tree_leaves_with_path(s.weights)) for s in (state, after))
    assert len(before) == 2 * len(first)
    for path, x in before.items():
        changed = np.asarray(x != now[path])
        pair = path[0].key == "students"
        assert all(changed[i].any() for i in range(2)) if pair else changed.any(), path


def opinionated(state, which, action):
    """The state, in which a student guesses `action`, almost always."""

    def leaf(x):
        x = x.at[which].set(0)
        return x.at[which, action].set(20.0) if x.shape[1:] == (3,) else x  # the bias of the logits

    return state.replace(inner=state.inner.replace(weights=jax.tree.map(leaf, state.inner.weights)))


@pytest.mark.slow
@pytest.mark.parametrize("reward", ["regret", "population", "minimax"])
def test_the_designer_learns_what_its_reward_asks_for(reward):
    """The protagonist always guesses 0, the antagonist 1, and neither learns."""
    hyper = ppo.Hyper(learning_rate=0.05, ent_coef=0.0, gamma=1.0)
    algo = made(reward, 1 if reward == "minimax" else 2, hyper)
    state = opinionated(jax.jit(lambda key: algo.init(key, ppo.Hyper(learning_rate=0.0)))(KEY), 0, 0)
    state = state if reward == "minimax" else opinionated(state, 1, 1)
    state, metrics = jax.jit(lambda state: jax.lax.scan(lambda s, _: algo.update(s), state, length=40))(state)
    _, rollout = jax.jit(algo.collect)(state)
    counts = np.bincount(np.asarray(rollout.levels.target), minlength=3)
    if reward == "regret":  # what the antagonist can and the protagonist cannot
        assert counts[1] >= N - 1 and metrics["designer_reward"][-1] > 0.8
    elif reward == "population":  # what one of both can
        assert counts[2] <= 1 and metrics["designer_reward"][-1] > 0.4
    else:  # what the student cannot
        assert counts[0] <= 1 and metrics["designer_reward"][-1] > -0.2


@pytest.mark.slow
@pytest.mark.light
def test_a_population_of_three():
    algo = made("population", 3)
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 2 * algo.steps_per_update))(KEY)
    assert state.inner.step.shape == (3,) and algo.steps_per_update == 3 * 4 * N
    assert np.isfinite(metrics["loss"]).all() and (metrics["designer_reward"] >= 0).all()


# ---- as an algorithm


@pytest.mark.slow
def test_it_keeps_the_contract_of_algorithms(algo):
    """Among others that many seeds at once are the single ones, and that the weights of all three learn."""
    check_algorithm(algo, num_updates=4)


@pytest.mark.slow
@pytest.mark.light
def test_each_agent_has_keys_of_its_own(algo):
    """Under `vmap` jax's checker takes every scan over keys for a second use."""
    state, found = jax.jit(algo.init)(KEY), []
    update = jax.jit(algo.update)
    for _ in range(3):
        for key in (state.key, *state.inner.key, state.designer.key):
            found.append(tuple(jax.random.key_data(key).tolist()))
        state, _ = update(state)
    assert len(set(found)) == len(found) == 12


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(algo, tmp_path):
    steps = algo.steps_per_update
    whole = jaxrl.fit(algo, KEY, 5 * steps, progress=False).state
    jaxrl.fit(algo, KEY, 2 * steps, out=tmp_path, checkpoint_every=2 * steps, progress=False)
    again = jaxrl.fit(algo, KEY, 5 * steps, out=tmp_path, resume=True, progress=False).state
    for a, b in zip(jax.tree.leaves(whole.weights), jax.tree.leaves(again.weights), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.light
def test_recurrent_students_and_a_recurrent_designer_on_mazes():
    editor = MazeEditor(height=4, width=4, num_walls=3, noise_dim=2)
    maze = jaxrl.make("Maze-v0", height=4, width=4)[0].as_levels()
    tiny = dict(num_envs=4, num_epochs=1, num_minibatches=1, hidden=(8,), rnn_size=8)
    student = ppo_rnn.make(jaxrl.vectorize(maze, 4, batched_params=True), ppo_rnn.Config(num_steps=6, **tiny))
    designer = ppo_rnn.make(editor, ppo_rnn.Config(num_steps=editor.num_steps, conv=(2,), **tiny))
    algo = paired.make(student, designer, maze_editor.level)
    params = editor.default_params.replace(level_max_steps=jnp.int32(3))
    train = jax.jit(lambda key: jaxrl.train(algo, key, 3 * algo.steps_per_update, None, params))
    state, metrics = train(KEY)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(metrics))
    assert (state.env_params.max_steps == 3).all()
    maze.validate(state.env_params)


@pytest.mark.slow
@pytest.mark.light
def test_levels_that_nobody_finishes_reward_nothing():
    @dataclasses.dataclass(frozen=True)
    class Long(Guess):
        def transition(self, key, state, action, params):
            return super().transition(key, state, action, params)._replace(terminated=state.time == 4)

    algo = paired.make(student_of(Long()), designer_of(), lambda state: level(state).replace(max_steps=jnp.int32(9)))
    _, metrics = jax.jit(lambda key: algo.update(algo.init(key)))(KEY)
    assert metrics["episodes"] == 0 and metrics["designer_reward"] == metrics["level_best_return"] == 0
    assert np.isfinite(metrics["loss"]) and np.isfinite(metrics["designer_loss"])


# ---- bad input


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"reward": "max"}, "reward='max': it is one of regret, mean, population, minimax"),
        ({"num_students": 3}, "num_students=3: reward='regret' needs 2"),
        ({"reward": "minimax"}, "num_students=2: reward='minimax' needs 1"),
        ({"reward": "population", "num_students": 1}, "needs at least 2"),
        ({"num_students": 0}, "num_students=0: it must be at least 1"),
    ],
)
def test_refuses_settings(settings, says):
    with pytest.raises(ValueError, match=says):
        paired.Config(**settings)


@pytest.mark.slow
@pytest.mark.light
def test_refuses_what_does_not_fit():
    @dataclasses.dataclass(frozen=True)
    class Random(Pick):
        hints = Pick.hints._replace(deterministic=False)

    plain = ppo.make(Guess(), ppo.Config(**TINY, num_steps=4))
    batched = ppo.make(jaxrl.vectorize(Pick(), N, batched_params=True), ppo.Config(**TINY, num_steps=2))
    for student, designer, says in (
        (plain, designer_of(), "batched_params=True. and no level_fn"),
        (student_of(), batched, "slots share their params"),
        (student_of(), designer_of(num_envs=4), "plays 8 levels and the designer makes 4"),
        (student_of(), designer_of(Random()), "steps of Pick are random, deterministic=False"),
        (student_of(), designer_of(num_steps=3), "num_steps=3 .* those of Pick end after 2 steps"),
        (student_of(), designer_of(num_steps=1), "num_steps=1 .* those of Pick do not end within 1 steps"),
    ):
        with pytest.raises(ValueError, match=says):
            paired.make(student, designer, level)
    wide = paired.make(student_of(), designer_of(), lambda state: level(state).replace(target=jnp.zeros(2, jnp.int32)))
    with pytest.raises(ValueError, match=r"paired: .target of its levels is int32 \(8, 2\); that of 8 params of Guess"):
        wide.init(KEY)
