"""What sampling for learnability keeps and hands out, on levels whose success is a coin of known bias."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition, curriculum, pytree
from jaxrl.algos import ppo, ppo_rnn
from jaxrl.algos.curricula import sfl
from jaxrl.curriculum.attachment import look
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse

KEY = jax.random.key(0)
SMALL = sfl.Config(buffer_size=6, num_levels=24, num_steps=40, chunk=8, refresh_every=3)


@pytree
class CoinParams:
    max_steps: jax.Array = 2
    bias: jax.Array = 0.5


@pytree
class CoinState:
    time: jax.Array
    won: jax.Array


@dataclasses.dataclass(frozen=True)
class Coin(Environment):
    """Two steps; the second earns 1 with probability `bias`, else -0.25, whatever one does."""

    id: str = dataclasses.field(default="Coin", kw_only=True)
    Params = CoinParams

    def initial(self, key, params):
        return CoinState(jnp.int32(0), jnp.float32(0))

    def transition(self, key, state, action, params):
        thrown = jnp.where(jax.random.bernoulli(key, params.bias), jnp.float32(1), -0.25)
        won = jnp.where(state.time == 1, thrown, 0)
        return Transition(state.replace(won=won), won, state.time == 1, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jnp.stack([state.time.astype(jnp.float32), params.bias])

    def observation_space(self, params):
        return Box(0.0, 2.0, (2,))

    def action_space(self, params):
        return Discrete(2)


def coin(key, params):
    return params.replace(bias=jax.random.uniform(key))


def student_of(env=Coin(), num_envs=4, num_steps=8, **changes):
    config = ppo.Config(
        num_envs=num_envs, num_steps=num_steps, **{"num_epochs": 1, "num_minibatches": 1, "hidden": (8,), **changes}
    )
    return ppo.make(jaxrl.vectorize(env, num_envs, batched_params=True), config)


@pytest.fixture(scope="module")
def algo():
    return curriculum.attach(student_of(), sfl.make(coin, SMALL))


def looks_of(looks):
    """A score that notes what was seen of the levels looked at."""

    def note(bias, success, episodes, score):
        if len(bias) == SMALL.chunk:  # else it is a rollout
            looks.append([np.asarray(x) for x in (bias, success, episodes, score)])

    def score(rollout, batch, seen, hyper):
        score = curriculum.learnability(rollout, batch, seen, hyper)
        jax.debug.callback(note, batch.params.bias, seen.success, seen.episodes, score)
        return score

    return score


@pytest.mark.slow
@pytest.mark.light
def test_the_buffer_is_the_most_learnable_of_what_was_looked_at():
    looks = []
    algo = curriculum.attach(student_of(), sfl.make(coin, SMALL, score=looks_of(looks)))
    state, _ = jax.jit(algo.collect)(jax.jit(algo.init)(KEY))
    jax.effects_barrier()
    bias, success, episodes, score = (np.concatenate(x) for x in zip(*looks, strict=True))
    assert len(set(bias.tolist())) == 24 and (episodes == 20).all()
    np.testing.assert_allclose(score, success * (1 - success), rtol=1e-6)
    assert np.abs(success - bias).max() < 0.45  # of 20 throws
    order = np.argsort(-score, stable=True)
    buffer = state.curriculum
    np.testing.assert_array_equal(buffer.score, score[order[:6]])
    kept = [np.flatnonzero(bias == b) for b in np.asarray(buffer.levels.bias)]
    assert all(len(k) == 1 for k in kept) and len({int(k[0]) for k in kept}) == 6
    np.testing.assert_array_equal(score[np.concatenate(kept)], buffer.score)
    assert np.abs(buffer.levels.bias - 0.5).max() < 0.4 and (bias < 0.1).any() and (bias > 0.9).any()


def test_learnability_of_p_and_of_its_complement_are_the_same_number():
    wins, episodes = (jnp.asarray(x) for x in np.divmod(np.arange(1, 30 * 30), 30)[::-1])
    wins, episodes = jnp.minimum(wins, episodes), jnp.maximum(episodes, 1)
    zeros = jnp.zeros(len(wins))
    batch = curriculum.new_levels(zeros)

    def score(wins):
        seen = curriculum.Outcomes(zeros, zeros, wins / episodes, zeros, zeros, episodes)
        return curriculum.learnability((), batch, seen, ())

    np.testing.assert_array_equal(score(wins), score(episodes - wins))
    p = np.asarray(wins / episodes)
    np.testing.assert_allclose(score(wins), p * (1 - p), atol=1e-7)
    nothing = curriculum.Outcomes(*jnp.zeros((5, 1)), jnp.zeros(1, jnp.int32))
    assert curriculum.learnability((), batch, nothing, ()) == -np.inf


def test_the_balanced_score_leaves_out_what_is_too_easy_or_too_hard():
    """Five levels with 0 to 4 successes in 4 episodes, one without an episode; the ends belong to it."""
    zeros, episodes = jnp.zeros(6), jnp.array([4, 4, 4, 4, 4, 0])
    seen = curriculum.Outcomes(zeros, zeros, jnp.array([0, 0.25, 0.5, 0.75, 1, 0]), zeros, zeros, episodes)
    batch, out = curriculum.new_levels(zeros), -np.inf
    for (low, high), expected in (
        ((0.25, 0.75), [out, 3 / 16, 1 / 4, 3 / 16, out, out]),
        ((0.3, 0.7), [out, out, 1 / 4, out, out, out]),
        ((0.0, 1.0), [0, 3 / 16, 1 / 4, 3 / 16, 0, out]),
    ):
        np.testing.assert_allclose(curriculum.balanced(low, high)((), batch, seen, ()), expected)
    for wrong in ((0.7, 0.3), (-0.1, 0.5), (0.5, 1.1)):
        with pytest.raises(ValueError, match="must be in order and from 0 to 1"):
            curriculum.balanced(*wrong)


def test_the_best_by_hand():
    levels = {"x": jnp.arange(5.0), "y": jnp.arange(10).reshape(5, 2)}
    kept, score = sfl.best(levels, jnp.asarray([0.1, -jnp.inf, 0.25, 0.2, -jnp.inf]), 4)
    np.testing.assert_array_equal(score, np.float32([0.25, 0.2, 0.1, -np.inf]))
    np.testing.assert_array_equal(kept["x"][:3], [2, 3, 0])
    np.testing.assert_array_equal(kept["y"][:3], [[4, 5], [6, 7], [0, 1]])


def test_each_rollout_takes_its_share_of_the_buffer_each_level_equally_likely():
    score = jnp.asarray([0.25, 0.2, 0.0, -jnp.inf, -jnp.inf])
    state = sfl.SFLState({"x": jnp.arange(5.0)}, score, jnp.int32(0), (), sfl.Hyper(jnp.float32(0.5)))
    new = {"x": 10.0 + jnp.arange(8)}
    batches = jax.jit(jax.vmap(lambda key: sfl.choose(key, state, new)))(jax.random.split(KEY, 1000))
    np.testing.assert_array_equal(np.asarray(batches.slot >= 0), [[True] * 4 + [False] * 4] * 1000)
    np.testing.assert_array_equal(batches.params["x"][:, 4:], [np.arange(14, 18)] * 1000)
    np.testing.assert_array_equal(batches.params["x"][:, :4], batches.slot[:, :4])
    np.testing.assert_allclose(np.bincount(np.asarray(batches.slot[:, :4]).ravel()) / 4000, 1 / 3, atol=0.03)
    assert batches.learn_mask.all()
    for share, count in ((0.0, 0), (0.2, 2), (1.0, 8)):
        batch = sfl.choose(KEY, state.replace(hyper=sfl.Hyper(jnp.float32(share))), new)
        assert int((batch.slot >= 0).sum()) == count
    empty = sfl.choose(KEY, state.replace(score=jnp.full(5, -jnp.inf)), new)
    np.testing.assert_array_equal(empty.params["x"], new["x"])
    assert (empty.slot == -1).all()


@pytest.mark.slow
@pytest.mark.light
def test_a_buffer_lasts_from_one_look_to_the_next(algo):
    update, state = jax.jit(algo.update), jax.jit(algo.init)(KEY)
    buffers, steps, replayed = [], [], []
    for _ in range(7):
        state, metrics = update(state)
        buffers.append(np.asarray(state.curriculum.levels.bias))
        steps.append(int(metrics["refresh_steps"]))
        replayed.append(float(metrics["levels_replayed"]))
        np.testing.assert_allclose(metrics["buffer_score"], np.mean(state.curriculum.score), rtol=1e-5)
    assert steps == [24 * 40, 0, 0, 24 * 40, 0, 0, 24 * 40]
    assert [bool((a == b).all()) for a, b in zip(buffers, buffers[1:], strict=False)] == [True, True, False] * 2
    assert not np.isin(buffers[3], buffers[0]).any()
    assert replayed == [0.5] * 7
    assert int(state.step) == 7 * algo.steps_per_update == 7 * 32  # of what is learned from
    assert update._cache_size() == 1


@pytest.mark.slow
@pytest.mark.light
def test_a_look_leaves_the_student_as_it_was(algo):
    state = jax.jit(algo.init)(KEY)
    after, rollout = jax.jit(algo.collect)(state)
    for a, b in zip(jax.tree.leaves(state.weights), jax.tree.leaves(after.weights), strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(after.step) == 32 and np.asarray(after.env_state.env.time).shape == (4,)
    np.testing.assert_array_equal(after.env_params.bias, rollout.batch.params.bias)
    assert np.isin(rollout.batch.params.bias[:2], after.curriculum.levels.bias).all()


@pytest.mark.slow
@pytest.mark.light
def test_levels_without_a_finished_episode_stay_out():
    algo = curriculum.attach(student_of(), sfl.make(coin, dataclasses.replace(SMALL, num_steps=1)))
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 4 * algo.steps_per_update))(KEY)
    assert (state.curriculum.score == -np.inf).all()
    assert not metrics["levels_replayed"].any() and not metrics["buffer_score"].any()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(metrics))


@pytest.mark.slow
@pytest.mark.light
def test_a_recurrent_policy_forgets_where_an_episode_ends():
    """One that counts its steps, on a task that asks for the count. Its carry has no field that says so: it is new."""

    @dataclasses.dataclass(frozen=True)
    class Count(Coin):
        def transition(self, key, state, action, params):
            right = (action == state.time).astype(jnp.float32)
            return Transition(state.replace(won=right), right, state.time == 2, jnp.bool_(False), {})

    def act(policy, key, obs, carry):
        return carry, carry + 1

    student = student_of(Count())
    state = jax.jit(student.init)(KEY)
    fake = student._replace(act=act, initial_carry=lambda n: jnp.zeros(n, jnp.int32))
    levels = jax.tree.map(lambda x: jnp.broadcast_to(x, 3), CoinParams(jnp.int32(9), jnp.float32(0)))
    seen = jax.jit(lambda key: look(fake, state, key, levels, 9))(KEY)
    done = np.asarray(seen.ends.done)
    np.testing.assert_array_equal(done, np.repeat((np.arange(9) % 3 == 2)[:, None], 3, 1))
    assert (seen.ends.episode_return[done] == 3).all()  # right at each step, in each episode
    assert (seen.ends.episode_length[done] == 3).all()


# ---- as an algorithm


@pytest.mark.slow
def test_it_keeps_the_contract_of_algorithms(algo):
    """Among others that many seeds at once are the single ones, and that all weights learn."""
    check_algorithm(algo, num_updates=5)


@pytest.mark.slow
@pytest.mark.light
def test_no_key_is_used_twice(algo):
    loss = assert_no_key_reuse(lambda key: jaxrl.train(algo, key, 4 * algo.steps_per_update)[1]["loss"], KEY)
    assert np.isfinite(loss).all()


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(algo, tmp_path):
    steps = algo.steps_per_update
    whole = jaxrl.fit(algo, KEY, 5 * steps, progress=False).state
    jaxrl.fit(algo, KEY, 2 * steps, out=tmp_path, checkpoint_every=2 * steps, progress=False)
    again = jaxrl.fit(algo, KEY, 5 * steps, out=tmp_path, resume=True, progress=False).state
    for a, b in zip(
        jax.tree.leaves((whole.weights, whole.curriculum)),
        jax.tree.leaves((again.weights, again.curriculum)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_it_trains_a_recurrent_student_on_mazes():
    task, params = jaxrl.make("Maze-v0", height=4, width=4)
    env = task.as_levels()
    config = ppo_rnn.Config(num_envs=4, num_steps=6, num_epochs=1, num_minibatches=1, hidden=(8,), rnn_size=8)
    student = ppo_rnn.make(jaxrl.vectorize(env, 4, batched_params=True), config)
    config = sfl.Config(buffer_size=8, num_levels=64, num_steps=30, chunk=16)
    algo = curriculum.attach(student, sfl.make(task.generate, config))
    params = params.replace(max_steps=jnp.int32(6), walls=jnp.int32(3))
    train = jax.jit(lambda key: jaxrl.train(algo, key, 4 * algo.steps_per_update, None, params))
    state, metrics = train(KEY)
    assert all(np.isfinite(x).all() for name, x in metrics.items() if not name.startswith("episode_"))
    buffer = jax.device_get(state.curriculum)
    assert (buffer.score > 0).sum() > 2 and (metrics["levels_replayed"] == 0.5).all()
    env.validate(buffer.levels)


# ---- bad input


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"buffer_size": 0}, "buffer_size=0: it must be at least 1"),
        ({"num_steps": 0}, "num_steps=0"),
        ({"refresh_every": 0}, "refresh_every=0"),
        ({"buffer_size": 25}, "buffer_size=25: it is at most num_levels=24"),
        ({"chunk": 7}, "chunk=7 does not divide num_levels=24"),
    ],
)
def test_refuses_settings(settings, says):
    with pytest.raises(ValueError, match=says):
        dataclasses.replace(SMALL, **settings)


@pytest.mark.slow
@pytest.mark.light
def test_refuses_a_share_that_is_none_and_students_without_levels():
    with pytest.raises(ValueError, match=r"replay_share=1.5.*in \[0, 1\]"):
        sfl.make(coin, SMALL, sfl.Hyper(replay_share=1.5))
    plain = ppo.make(jaxrl.vectorize(Coin(), 4), ppo.Config(num_envs=4, num_steps=8))
    with pytest.raises(ValueError, match="a look has no values"):
        sfl.make(coin, SMALL, score=curriculum.max_mc)
    with pytest.raises(ValueError, match="batched_params=True"):
        curriculum.attach(plain, sfl.make(coin, SMALL))
    wide = sfl.make(lambda key, params: params.replace(bias=jnp.ones(3)), SMALL)
    algo = curriculum.attach(student_of(), wide)
    with pytest.raises(ValueError, match="bias of its levels"):
        algo.init(KEY)
    huge = curriculum.attach(student_of(), sfl.make(coin, sfl.Config(2**40, 2**40, 10, 2**20)))
    with pytest.raises(ValueError, match="capacity=1099511627776"):
        huge.init(KEY)
