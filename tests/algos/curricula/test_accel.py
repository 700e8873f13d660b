"""ACCEL's cycle of replay and mutation on levels that are numbers, and around students."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import curriculum
from jaxrl.algos import ppo, ppo_rnn
from jaxrl.algos.curricula import accel, plr
from jaxrl.curriculum import level_buffer
from jaxrl.curriculum.protocol import Outcomes

PARAMS = {"low": jnp.zeros(())}
ALWAYS = accel.Hyper(replay_prob=1.0, min_fill=0.5)


def level_fn(key, params):
    return {"x": params["low"] + jax.random.uniform(key), "edits": jnp.int32(0)}


def mutate_fn(key, level):
    """An edit adds 1, and a hundredth at random."""
    return {"x": level["x"] + 1 + jax.random.uniform(key) / 100, "edits": level["edits"] + 1}


def seen(batch):
    """The score of a level is its number."""
    n = batch.slot.shape[0]
    return Outcomes(*[jnp.zeros(n)] * 3, batch.params["x"], batch.params["x"], jnp.ones(n, jnp.int32))


def run(config, hyper, n, count):
    """`(batch, buffer when sampled, buffer after)` of some batches, and how often each function was compiled."""
    cur = accel.make(level_fn, mutate_fn, config, hyper)
    sample, update = jax.jit(cur.sample), jax.jit(cur.update)
    state, made = jax.jit(cur.init)(jax.random.key(0), cur.hyper, PARAMS), []
    for i in range(count):
        before = state.buffer
        batch, state = sample(jax.random.key(i), state, jnp.ones(n, bool))
        state = update(jax.random.key(i), state, batch, seen(batch))
        made.append((batch, before, state.buffer))
    assert sample._cache_size() == update._cache_size() == 1
    return made


def kind(batch):
    replayed, child = np.asarray(batch.slot) >= 0, np.asarray(batch.parent) >= 0
    assert not (replayed & child).any() and len({*replayed}) == len({*child}) == 1
    return "replay" if replayed[0] else "mutate" if child[0] else "new"


@pytest.mark.slow
@pytest.mark.light
def test_each_replay_is_followed_by_edits_of_its_levels():
    made = run(accel.Config(buffer_size=16, num_edits=3), ALWAYS, 4, 12)
    kinds = [kind(batch) for batch, _, _ in made]
    assert kinds == ["new", "new", *["replay", "mutate"] * 5]
    for i, (batch, before, after) in enumerate(made):
        np.testing.assert_array_equal(batch.learn_mask, [kinds[i] == "replay"] * 4)
        if kinds[i] == "mutate":
            parents = np.asarray(batch.parent)
            assert sorted(parents) == sorted(np.asarray(made[i - 1][0].slot))
            np.testing.assert_array_equal(batch.params["edits"], before.levels["edits"][parents] + 3)
            rise = batch.params["x"] - before.levels["x"][parents]
            assert ((rise > 3) & (rise < 3.03)).all() and len(set(rise.tolist())) == 4
            assert (batch.max_return == -np.inf).all()
            for x, parent in zip(batch.params["x"], parents, strict=True):
                (where,) = np.nonzero(after.levels["x"] == x)
                assert len(where) <= 1  # some may find no place
                assert (after.extras[where] == before.extras[parent] + 1).all()
        elif kinds[i] == "new":
            assert np.isin(batch.params["x"], after.levels["x"]).all() and not after.extras.any()
    assert (made[-1][2].extras * 3 == made[-1][2].levels["edits"]).all() and made[-1][2].extras.max() > 1


@pytest.mark.slow
@pytest.mark.light
def test_replay_or_new_is_drawn_when_no_mutation_is_due():
    made = run(accel.Config(buffer_size=8, num_edits=1), ALWAYS.replace(replay_prob=0.5), 4, 40)
    kinds = [kind(batch) for batch, _, _ in made]
    after = dict.fromkeys(("new", "replay", "mutate"), ())
    for first, second in zip(kinds[1:], kinds[2:], strict=False):
        after[first] = {*after[first], second}
    assert after == {"new": {"new", "replay"}, "replay": {"mutate"}, "mutate": {"new", "replay"}}


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("parents", ["easy", "hard"])
def test_parents_of_the_lowest_or_highest_score(parents):
    made = run(accel.Config(buffer_size=8, num_edits=1, parents=parents, num_parents=2), ALWAYS, 5, 8)
    mutations = 0
    for (replayed, _, _), (batch, before, _) in zip(made, made[1:], strict=False):
        if kind(batch) == "mutate":
            mutations += 1
            order = sorted(set(replayed.slot.tolist()), key=lambda slot: float(before.score[slot]))
            two = order[:2] if parents == "easy" else order[:-3:-1]
            assert batch.parent.tolist() == [two[i % len(two)] for i in range(5)]
    assert mutations >= 3


@pytest.mark.slow
@pytest.mark.light
def test_parents_are_what_was_replayed_as_often_as_it_was():
    score = jnp.asarray([3.0, 1.0, 2.0, -jnp.inf, 5.0])
    buffer = level_buffer.init({"x": jnp.zeros(())}, 5).replace(score=score, rank=jnp.asarray([2, 4, 3, 5, 1]))
    drawn = jnp.asarray([2, 1, 0, 1, 1])  # slot 3 was not scored
    assert accel.parents_of(buffer, drawn, 4, accel.Config()).tolist() == [0, 0, 1, 4]
    assert accel.parents_of(buffer, drawn, 6, accel.Config()).tolist() == [0, 0, 1, 4, 0, 0]
    assert accel.parents_of(buffer, drawn, 3, accel.Config(parents="easy", num_parents=2)).tolist() == [1, 0, 1]
    assert accel.parents_of(buffer, drawn, 3, accel.Config(parents="hard", num_parents=2)).tolist() == [4, 0, 4]


@pytest.mark.slow
@pytest.mark.light
def test_parallel_batches_are_new_mutated_and_replayed():
    made = run(accel.Config(buffer_size=8, num_edits=1, parallel=True), ALWAYS, 6, 5)
    for i, (batch, before, _) in enumerate(made):
        replay = i > 0
        np.testing.assert_array_equal(batch.slot >= 0, [False] * 4 + [replay] * 2)
        np.testing.assert_array_equal(batch.learn_mask, [False] * 4 + [replay] * 2)
        np.testing.assert_array_equal(batch.parent >= 0, [False] * 2 + [replay] * 2 + [False] * 2)
        if replay:
            np.testing.assert_array_equal(batch.parent[2:4], batch.slot[4:])
            np.testing.assert_allclose(batch.params["x"][2:4] - before.levels["x"][batch.slot[4:]], 1.005, atol=0.006)
        else:
            assert (batch.params["edits"] == 0).all()
    cur = accel.make(level_fn, mutate_fn, accel.Config(buffer_size=8, parallel=True))
    with pytest.raises(ValueError, match="parallel: .* equal parts; 7 is no multiple of 3"):
        cur.sample(jax.random.key(0), cur.init(jax.random.key(0), cur.hyper, PARAMS), jnp.ones(7, bool))


# ---- around a student


@pytest.mark.slow
@pytest.mark.light
def test_nothing_is_learned_from_children():
    def pole(key, params):
        return params.replace(length=jax.random.uniform(key, minval=0.2, maxval=0.4))

    def longer(key, params):
        return params.replace(length=params.length * (1 + jax.random.uniform(key)))

    venv = jaxrl.vectorize(jaxrl.make("CartPole-v1")[0], 4, batched_params=True)
    student = ppo.make(venv, ppo.Config(num_envs=4, num_steps=32, num_epochs=1, num_minibatches=2, hidden=(8,)))
    algo = curriculum.attach(
        student, accel.make(pole, longer, accel.Config(buffer_size=12, num_edits=2), ALWAYS, curriculum.l1_value_loss)
    )
    collect, learn, state = jax.jit(algo.collect), jax.jit(algo.learn), jax.jit(algo.init)(jax.random.key(0))
    kinds = []
    for _ in range(12):
        acted, made = collect(state)
        state, metrics = learn(acted, made)
        kinds.append(kind(made.batch))
        change = jax.tree.map(lambda a, b: bool((a != b).any()), acted.weights, state.weights)
        assert all(jax.tree.leaves(change)) if kinds[-1] == "replay" else not any(jax.tree.leaves(change))
        assert np.isfinite(metrics["loss"]) == metrics["learned"] == (kinds[-1] == "replay")
    assert {"replay", "mutate"} < {*kinds}
    assert collect._cache_size() == learn._cache_size() == 1
    assert state.curriculum.buffer.extras.max() > 0


@pytest.mark.slow
def test_it_trains_a_recurrent_student_on_mazes():
    task, params = jaxrl.make("Maze-v0", height=5, width=5)
    env = task.as_levels()
    config = ppo_rnn.Config(num_envs=4, num_steps=6, num_epochs=1, num_minibatches=1, hidden=(8,), rnn_size=8)
    student = ppo_rnn.make(jaxrl.vectorize(env, 4, batched_params=True), config)
    cur = accel.make(task.generate, env.mutate, accel.Config(buffer_size=12), ALWAYS, curriculum.positive_value_loss)
    algo = curriculum.attach(student, cur)
    params = params.replace(max_steps=jnp.int32(3), walls=jnp.int32(0))
    train = jax.jit(lambda key: jaxrl.train(algo, key, 12 * algo.steps_per_update, None, params))
    state, metrics = train(jax.random.key(0))
    learned = np.asarray(metrics["learned"]) == 1
    assert all(np.isfinite(x[learned]).all() for x in metrics.values())
    np.testing.assert_array_equal(np.isfinite(metrics["loss"]), learned)
    assert metrics["levels_replayed"].sum() >= 4
    buffer = jax.device_get(state.curriculum.buffer)
    walls = buffer.levels.wall_map.sum((1, 2))
    assert (walls[buffer.extras > 0] > 0).any() and not walls[buffer.extras == 0].any()
    env.validate(jax.tree.map(lambda x: x[np.isfinite(buffer.score)], buffer.levels))


# ---- bad input


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"num_edits": 0}, "num_edits=0"),
        ({"num_parents": 0}, "num_parents=0"),
        ({"parents": "best"}, "parents='best': it is 'batch', 'easy' or 'hard'"),
        ({"parents": "easy", "parallel": True}, "parallel: parents='easy'"),
        ({"buffer_size": 0}, "buffer_size=0"),
        ({"prioritization": "top"}, "prioritization='top'"),
    ],
)
def test_refuses_settings(settings, says):
    with pytest.raises(ValueError, match=says):
        accel.Config(**settings)


def test_refuses_what_is_no_mutation():
    params = jaxrl.make("CartPole-v1")[1]
    with pytest.raises(ValueError, match="mutate_fn=None is no function .* or use plr"):
        accel.make(level_fn, None)
    with pytest.raises(ValueError, match="replay_prob=2.0"):
        accel.make(level_fn, mutate_fn, hyper=accel.Hyper(replay_prob=2.0))
    wider = accel.make(lambda key, params: params, lambda key, level: level.replace(length=jnp.ones(3)))
    with pytest.raises(ValueError, match=r"accel: mutate_fn: .length of its levels is float32 \(3,\); that of the"):
        wider.init(jax.random.key(0), wider.hyper, params)
    assert issubclass(accel.Config, plr.Config)
