"""The level buffer and the scores against brute force and by hand, and curricula around students."""

import functools
import os
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import curriculum
from jaxrl.algos import dqn, ppo, ppo_rnn
from jaxrl.algos.curricula import dr, plr
from jaxrl.curriculum import level_buffer
from jaxrl.curriculum.level_buffer import LevelBuffer
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, new_levels
from jaxrl.environment import pytree
from jaxrl.host.run.fit import _Scores
from jaxrl.rollout import Ends


def held(levels, score, max_return, sampled_at, clock=10):
    """A buffer as it would have become."""
    score = np.asarray(score, np.float32)
    return LevelBuffer(
        levels,
        jnp.asarray(score),
        jnp.asarray(max_return, jnp.float32),
        jnp.asarray(sampled_at, jnp.int32),
        jnp.asarray(ranks(score)),
        jax.jit(lambda levels: level_buffer._hash(level_buffer._words(levels)))(levels),
        (),
        jnp.int32(clock),
    )


WEIGHTS = jax.jit(level_buffer.weights, static_argnums=3)
INSERT = jax.jit(level_buffer.insert)
UPDATE = jax.jit(level_buffer.update)


def ranks(score):
    return np.argsort(np.argsort(-np.asarray(score), stable=True)).astype(np.int32) + 1


BUFFER = held(
    {"mass": jnp.asarray([1.0, 2.0, 3.0, 4.0, 0.0])},
    [0.5, 2.0, -1.0, 1.0, -np.inf], [5, 6, 7, 8, -np.inf], [9, 10, 4, 7, 0],
)  # fmt: skip


# ---- level buffer


def test_weights_mix_rank_and_age():
    by_rank = np.array([1 / 3, 1.0, 1 / 4, 1 / 2, 0]) ** 2  # temperature 0.5
    by_age = np.array([1, 0, 6, 3, 0.0])
    expected = 0.7 * by_rank / by_rank.sum() + 0.3 * by_age / by_age.sum()
    weights = WEIGHTS(BUFFER, 0.5, 0.3)
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-6)


def test_proportional_weights_know_no_negative_score():
    by_score = np.array([0.5, 2, 0, 1, 0]) ** 2
    weights = WEIGHTS(BUFFER, 0.5, 0.0, "proportional")
    np.testing.assert_allclose(weights, by_score / by_score.sum(), rtol=1e-5)
    large = BUFFER.replace(score=BUFFER.score * 1e10)
    np.testing.assert_allclose(WEIGHTS(large, 0.5, 0.0, "proportional"), weights, rtol=1e-5)
    none = BUFFER.replace(score=jnp.minimum(BUFFER.score, 0))
    np.testing.assert_allclose(WEIGHTS(none, 0.5, 0.0, "proportional"), [0.25] * 4 + [0])
    with pytest.raises(ValueError, match="prioritization='best'.*'rank', 'proportional' or 'topk'"):
        WEIGHTS(BUFFER, 0.5, 0.0, "best")


def test_the_best_few_are_drawn_in_proportion_to_the_exponential_of_their_scores():
    """`LevelSampler.score_weights` of JaxUED: a softmax over the k highest scores."""
    for k, expected in ((1, [0, 1, 0, 0, 0]), (2, [0, np.exp(2.0), 0, np.exp(1.0), 0])):
        weights = level_buffer.weights(BUFFER, 0.5, 0.0, "topk", k)
        np.testing.assert_allclose(weights, np.array(expected) / np.sum(expected), rtol=1e-5)
    every = level_buffer.weights(BUFFER, 0.5, 0.0, "topk", 5)  # one slot is empty
    np.testing.assert_allclose(every, np.append(jax.nn.softmax(BUFFER.score[:4]), 0), rtol=1e-5)
    empty = level_buffer.init({"mass": jnp.zeros(())}, 3)
    assert not level_buffer.weights(empty, 0.5, 0.0, "topk", 2).any()
    slots, _ = level_buffer.draw(jax.random.key(0), BUFFER, jnp.ones(64, bool), 0.5, 0.0, "topk", 2)
    assert set(np.asarray(slots).tolist()) == {1, 3}


def test_the_best_few_are_at_most_the_buffer():
    with pytest.raises(ValueError, match="top_k=9: it is at least 1 and at most buffer_size=8"):
        plr.Config(8, prioritization="topk", top_k=9)


def test_staleness_is_monotone_and_an_empty_buffer_weighs_nothing():
    weights = np.asarray(WEIGHTS(BUFFER, 0.5, 1.0))
    assert weights[2] > weights[3] > weights[0] > weights[1] == weights[4] == 0
    empty = level_buffer.init({"mass": jnp.zeros(())}, 3)
    assert not WEIGHTS(empty, 0.5, 0.3).any()


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("prioritization", ["rank", "proportional"])
def test_weights_sum_to_one(prioritization):
    rng = np.random.default_rng(0)
    for temperature in (0.01, 0.3, 1.0, 10.0):
        for scale in (1e-3, 1.0, 1e3):
            score = np.where(rng.random(30) < 0.7, rng.normal(size=30) * scale, -np.inf)
            buffer = held({"x": jnp.zeros(30)}, score, score, rng.integers(0, 11, 30))
            weights = np.asarray(WEIGHTS(buffer, temperature, rng.random(), prioritization))
            np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)
            assert (weights >= 0).all() and not weights[~np.isfinite(score)].any()


def one_after_another(rng, score, sampled_at, clock, n, temperature, staleness):
    """The reference: n draws, the weights computed anew for each."""
    rank, at, drawn = np.argsort(np.argsort(-score)) + 1, sampled_at.astype(float), []
    by_score = (1 / rank) ** (1 / temperature)
    for k in range(n):
        age = clock + k - at
        weights = (1 - staleness) * by_score / by_score.sum() + staleness * age / age.sum()
        drawn.append(rng.choice(len(score), p=weights / weights.sum()))
        at[drawn[-1]] = clock + k + 1
    return drawn


def test_draws_follow_each_other_with_replacement():
    """Shares of the ranks in batches of 32, against the sequential reference."""
    C, n, temperature, staleness = 64, 32, 0.3, 0.3
    rng = np.random.default_rng(0)
    score, at = rng.permutation(C).astype(float), rng.integers(0, 40, C)
    buffer = held({"x": jnp.zeros(C)}, score, score, at, clock=40)
    draw = jax.vmap(lambda key: level_buffer.draw(key, buffer, jnp.ones(n, bool), temperature, staleness))
    slots, after = jax.jit(draw)(jax.random.split(jax.random.key(0), 400))
    wanted = np.concatenate([one_after_another(rng, score, at, 40, n, temperature, staleness) for _ in range(400)])
    share, expected = (np.bincount(C - 1 - score[x].astype(int), minlength=C) / x.size for x in (slots.ravel(), wanted))
    assert abs(share[0] - expected[0]) < 0.02 and expected[0] > 0.6, "rank 1"
    np.testing.assert_allclose(share[1:], expected[1:], atol=0.006)
    np.testing.assert_array_equal(after.clock, 40 + n)
    last = np.asarray(slots)[:, -1]
    np.testing.assert_array_equal(np.asarray(after.sampled_at)[np.arange(400), last], 40 + n)


def test_draws_of_rows_that_are_not_wanted_leave_no_trace():
    buffer = held({"x": jnp.zeros(3)}, [3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [9, 8, 7])
    slots, after = level_buffer.draw(jax.random.key(0), buffer, jnp.asarray([False, True, False]), 1.0, 0.5)
    changed = np.flatnonzero(np.asarray(after.sampled_at) != np.asarray(buffer.sampled_at))
    np.testing.assert_array_equal(changed, [slots[1]])
    assert after.clock == 11


def test_draws_never_find_an_empty_slot():
    slots, _ = level_buffer.draw(jax.random.key(1), BUFFER, jnp.ones(500, bool), 1.0, 0.5)
    assert set(slots.tolist()) == {0, 1, 2, 3}


def test_insert_replaces_the_least_useful_where_the_new_is_better():
    usefulness = jnp.asarray([0.1, 0.5, 0.05, 0.35, 0.0])
    after = INSERT(
        BUFFER,
        {"mass": jnp.asarray([10.0, 11.0, 12.0])},
        jnp.asarray([0.2, -jnp.inf, 3.0]),
        jnp.asarray([1.0, 2.0, 3.0]),
        usefulness,
    )
    # The best (12) takes the empty slot, the second (10, score 0.2) the least useful (slot 2, -1.0); -inf stays out.
    np.testing.assert_array_equal(after.levels["mass"], [1, 2, 10, 4, 12])
    np.testing.assert_allclose(after.score, [0.5, 2.0, 0.2, 1.0, 3.0])
    np.testing.assert_array_equal(after.rank, [4, 2, 5, 3, 1])
    np.testing.assert_array_equal(after.max_return, [5, 6, 1, 8, 3])
    np.testing.assert_array_equal(after.sampled_at, [9, 10, 10, 7, 10])


def test_insert_keeps_a_useless_but_better_level():
    full = held(BUFFER.levels, [0.5, 2.0, -1.0, 1.0, 5.0], BUFFER.max_return, BUFFER.sampled_at)
    after = INSERT(
        full,
        {"mass": jnp.asarray([9.0, 10.0, 11.0])},
        jnp.asarray([4.0, -np.inf, -np.inf]),
        jnp.zeros(3),
        jnp.asarray([0.3, 0.3, 0.2, 0.15, 0.05]),
    )
    np.testing.assert_array_equal(after.levels["mass"], full.levels["mass"])


def test_a_level_that_is_held_only_updates_its_slot():
    after = INSERT(
        BUFFER,
        {"mass": jnp.asarray([4.0, 9.0, 2.0, 9.0, 0.0])},
        jnp.asarray([7.0, 3.0, -jnp.inf, 8.0, 2.5]),
        jnp.asarray([1.0, 2.0, 99.0, 4.0, 5.0]),
        jnp.asarray([0.1, 0.5, 0.05, 0.35, 0.0]),
    )
    # 4 is in slot 3, whose best return stays; of 2 nothing was learned; of the two 9 the better counts. 0 is new, as an
    # empty slot holds no level, and 9 and 0 find the empty slot and the least useful one.
    np.testing.assert_array_equal(after.levels["mass"], [1, 2, 0, 4, 9])
    np.testing.assert_allclose(after.score, [0.5, 2.0, 2.5, 7.0, 8.0])
    np.testing.assert_array_equal(after.max_return, [5, 6, 5, 8, 4])
    np.testing.assert_array_equal(after.sampled_at, [9, 10, 10, 10, 10])


def test_update_keeps_the_best_return_and_what_nothing_was_learned_of():
    after = UPDATE(
        BUFFER,
        jnp.asarray([2, -1, 0, 3, 2]),
        jnp.asarray([4.0, 9.0, -jnp.inf, 1.5, 5.0]),
        jnp.asarray([6.0, 9.0, 9.0, 9.0, 99.0]),
    )
    # Slot 2 is named twice: its outcomes are merged.
    np.testing.assert_allclose(after.score, [0.5, 2.0, 4.5, 1.5, -np.inf])
    np.testing.assert_array_equal(after.rank, [4, 2, 1, 3, 5])
    np.testing.assert_array_equal(after.max_return, [5, 6, 99, 9, -np.inf])
    np.testing.assert_array_equal(after.sampled_at, BUFFER.sampled_at, "ages count from the draw")


def by_hand(buffer, levels, score, max_return, usefulness, extras):
    """`level_buffer.insert` one level after another: [level, score, max_return, sampled_at, extra] a slot."""
    clock, copies, new = int(buffer.clock), {}, []
    slots = [list(row) for row in zip(*buffer[:-1], strict=True)]
    for level, s, best, extra in zip(levels.tolist(), score, max_return, extras, strict=True):
        copies.setdefault(level, []).append((s, best, extra))
    for level, outcomes in copies.items():
        s, _, extra = max(outcomes, key=lambda x: x[0])
        best = max(x[1] for x in outcomes)
        own = [row for row in slots if np.isfinite(row[1]) and row[0] == level]
        if np.isfinite(s) and own:
            own[0][1:4] = [s, max(own[0][2], best), clock]
        elif np.isfinite(s):
            new.append([level, s, best, clock, extra])
    order = sorted(range(len(slots)), key=lambda i: usefulness[i] if np.isfinite(slots[i][1]) else -1)
    for row, i in zip(sorted(new, key=lambda row: -row[1]), order, strict=False):
        if row[1] > slots[i][1]:
            slots[i] = row
    return slots


class Rows(tuple):
    """Columns of a buffer on the host, and its clock."""

    clock = property(lambda self: self[-1])


@pytest.mark.slow
@pytest.mark.light
def test_insertion_against_brute_force():
    rng = np.random.default_rng(1)
    example = jax.ShapeDtypeStruct((), jnp.int32)
    for _ in range(8):
        C, n = int(rng.choice([1, 8])), 5
        buffer = level_buffer.init(example, C, example)
        for clock in range(1, 12):
            buffer = buffer.replace(clock=jnp.int32(clock))
            levels = rng.integers(0, 12, n).astype(np.int32)
            score = np.where(rng.random(n) < 0.8, rng.permutation(40)[:n] / 8, -np.inf).astype(np.float32)
            best, usefulness = rng.random(n, np.float32), rng.random(C, np.float32)
            extras = rng.integers(0, 9, n).astype(np.int32)
            columns = [buffer.levels, buffer.score, buffer.max_return, buffer.sampled_at, buffer.extras]
            expected = by_hand(
                Rows([*[np.asarray(x).tolist() for x in columns], clock]), levels, score, best, usefulness, extras
            )
            buffer = INSERT(buffer, *(jnp.asarray(x) for x in (levels, score, best, usefulness, extras)))
            columns = [buffer.levels, buffer.score, buffer.max_return, buffer.sampled_at, buffer.extras]
            for column, wanted in zip(columns, zip(*expected, strict=True), strict=True):
                np.testing.assert_allclose(column, wanted)
            np.testing.assert_array_equal(buffer.rank, ranks(buffer.score))


def test_ranks_follow_every_change_of_a_score():
    rng = np.random.default_rng(2)
    buffer = held({"x": jnp.arange(20)}, rng.integers(0, 5, 20), np.zeros(20), np.zeros(20, int))
    for _ in range(30):  # scores of few values: equal ones rank by slot
        score = jnp.asarray(np.where(rng.random(6) < 0.9, rng.integers(0, 5, 6), -np.inf), jnp.float32)
        buffer = UPDATE(buffer, jnp.asarray(rng.integers(-1, 20, 6)), score, score)
        np.testing.assert_array_equal(buffer.rank, ranks(buffer.score))


@pytest.mark.slow
@pytest.mark.light
def test_levels_are_found_by_their_bits():
    rng = np.random.default_rng(3)

    def levels(n):
        return {
            "walls": jnp.asarray(rng.random((n, 3, 3)) < 0.5),
            "image": jnp.asarray(rng.integers(0, 9, (n, 2)), jnp.uint8),
            "half": jnp.asarray(rng.random(n), jnp.float16),
            "mass": jnp.asarray(rng.random(n), jnp.float32).at[0].set(jnp.nan),
            "steps": jnp.arange(n),
        }

    old, new = levels(30), levels(4)
    buffer = held(old, [0.0] * 28 + [-np.inf] * 2, np.zeros(30), np.zeros(30, int))
    mixed = jax.tree.map(lambda x, y: jnp.concatenate([x[jnp.asarray([7, 0, 29])], y]), old, new)
    find = jax.jit(level_buffer.find)
    np.testing.assert_array_equal(find(buffer, mixed), [7, 0, -1, -1, -1, -1, -1])
    changed = {**mixed, "walls": mixed["walls"].at[0, 2, 2].set(~mixed["walls"][0, 2, 2])}
    np.testing.assert_array_equal(find(buffer, changed), [-1, 0, -1, -1, -1, -1, -1])
    words = level_buffer._words({"x": jnp.arange(100_000) * 0.5, "y": jnp.ones(100_000)})
    assert len(np.unique(level_buffer._hash(words))) > 99_990  # of 100,000; 1.2 collisions are expected


def test_a_buffer_larger_than_memory_is_refused_before_it_is_made():
    level = {"image": jax.ShapeDtypeStruct((100, 100), jnp.float32), "mass": jax.ShapeDtypeStruct((), jnp.int32)}
    with pytest.raises(ValueError, match=r"capacity=10000000000: levels of 40004 bytes are 3725\d\d.\d GiB, .*at most"):
        level_buffer.init(level, 10**10)
    if hasattr(os, "sysconf"):
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with pytest.raises(ValueError, match=f"at most {pages // 40004} fit"):
            jax.eval_shape(lambda: level_buffer.init(level, pages // 40004 + 1))
        jax.eval_shape(lambda: level_buffer.init(level, pages // 40004))
    with pytest.raises(ValueError, match="capacity=0"):
        level_buffer.init(level, 0)


# ---- scores

# Slot 0: an episode of one step, one of two, and a step of a third. Slot 1: none ends. Slot 2: one of all four steps.
ENDS = np.array([[1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1]], bool)
ROLLOUT = ppo.Rollout(
    obs=None, action=jnp.zeros((4, 3)), log_prob=jnp.zeros((4, 3)),
    value=jnp.asarray([[1, 1, 0.5], [2, 1, 0.5], [3, 1, 0.5], [4, 1, 0.5]]),
    reward=jnp.asarray([[0, 0, 0], [0, 0, 0], [2, 0, 0], [5, 0, 1.0]]),
    terminated=jnp.asarray(ENDS).at[0, 0].set(False), truncated=jnp.zeros((4, 3), bool).at[0, 0].set(True),
    next_value=jnp.asarray([[3, 1, 0.5], [3, 1, 0.5], [9, 1, 0.5], [0, 1, 9.0]]),
    ends=Ends(
        jnp.asarray(ENDS),
        jnp.asarray([[0, 7, 7], [7, 7, 7], [2, 7, 7], [5, 7, 1.0]]),
        jnp.asarray([[1, 1, 1], [1, 2, 2], [2, 3, 3], [1, 4, 4]]),
    ),
)  # fmt: skip
HYPER = ppo.Hyper(gamma=0.5, gae_lambda=0.0)
LEVELS = new_levels({"best": jnp.asarray([3.0, 3.0, 3.0])})


def scored(score, max_return=(-np.inf, -np.inf, -np.inf)):
    batch = LEVELS._replace(max_return=jnp.asarray(max_return))
    return jax.jit(lambda *args: curriculum.outcomes_of(*args, score, HYPER))(ROLLOUT, batch)


def test_outcomes_by_hand():
    seen = scored(curriculum.max_mc, (1.5, 4.0, -np.inf))
    np.testing.assert_array_equal(seen.episodes, [2, 0, 1])
    np.testing.assert_allclose(seen.episode_return, [1, 0, 1])
    np.testing.assert_allclose(seen.episode_length, [1.5, 0, 4])
    np.testing.assert_allclose(seen.success, [0.5, 0, 1])
    np.testing.assert_allclose(seen.max_return, [2, 4, 1])
    above = curriculum.outcomes_of(ROLLOUT, LEVELS, None, HYPER, success_above=1.5)
    np.testing.assert_allclose(above.success, [0.5, 0, 0])
    assert (above.score == -np.inf).all()


# With lambda 0 the advantage is reward + gamma next_value (unless terminated) - value: in slot 0 0.5, -0.5, -1 and 1,
# in slot 2 three times -0.25, then 0.5. What follows the last end of slot 0 does not count.
@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (curriculum.max_mc, [(1 + (0 - 1) / 2) / 2, -np.inf, 0.5]),
        (curriculum.positive_value_loss, [(0.5 + 0) / 2, -np.inf, 0.5 / 4]),
        (curriculum.l1_value_loss, [(0.5 + (0.5 + 1) / 2) / 2, -np.inf, (3 * 0.25 + 0.5) / 4]),
        (curriculum.learnability, [0.25, -np.inf, 0]),
        (curriculum.oracle_regret(lambda level: level["best"]), [2, -np.inf, 2]),
    ],
)
def test_scores_by_hand(score, expected):
    np.testing.assert_allclose(scored(score).score, expected, rtol=1e-6)


def test_a_score_is_told_of_the_episodes_of_all_rollouts_on_its_level():
    """One rollout after another in which slot 0 had two failures, slot 1 a success; slot 1 ends none in the later."""
    before = Outcomes(
        jnp.asarray([0.0, 3, 0]), jnp.asarray([4.0, 4, 0]), jnp.asarray([0.0, 1, 0]), jnp.asarray([0.1, 0.2, -np.inf]),
        jnp.asarray([0.0, 3, -np.inf]), jnp.asarray([2, 1, 0]),
    )  # fmt: skip

    def after(score):
        return curriculum.outcomes_of(ROLLOUT, LEVELS, score, HYPER, 0.0, before)

    learnable = after(curriculum.learnability)
    np.testing.assert_array_equal(learnable.episodes, [4, 1, 1])
    np.testing.assert_allclose(learnable.score, [1 / 4 * 3 / 4, 0.2, 0], rtol=1e-6)
    regret = after(curriculum.oracle_regret(lambda level: level["best"]))
    np.testing.assert_allclose(regret.score, [3 - 2 / 4, 0.2, 2], rtol=1e-6)
    np.testing.assert_allclose(after(None).score, before.score)


def test_max_mc_goes_by_the_best_return_ever_seen():
    seen = scored(curriculum.max_mc, (5.0, 5.0, 0.0))
    np.testing.assert_allclose(seen.score, [(4 + (3 + 2) / 2) / 2, -np.inf, 0.5])


def test_algorithmic_regret_by_hand():
    def seen(mean, best, episodes):
        mean, best = jnp.asarray(mean), jnp.asarray(best)
        return Outcomes(mean, mean, mean, mean, best, jnp.asarray(episodes))

    agent = seen([0.25, 0.9, 0.0, 0.4, 0.0], [0.5, 1, -np.inf, 0.4, -np.inf], [4, 2, 0, 1, 0])
    antagonist = seen([0.5, 0.2, 0.3, 0.0, 0.0], [0.75, 0.3, 0.5, -np.inf, -np.inf], [2, 2, 1, 0, 0])
    regret = curriculum.algorithmic_regret(agent, antagonist)
    np.testing.assert_allclose(regret, [0.5, 0, 0.5, 0, -np.inf])


# ---- a student under a curriculum


def cartpole_level(key, params):
    """A two-parameter family: pole length and mass."""
    length, mass = jax.random.uniform(key, (2,), minval=0.2, maxval=3.0)
    return params.replace(length=length * params.length, mass_pole=mass * params.mass_pole)


def cartpole_student(num_envs=4, **changes):
    venv = jaxrl.vectorize(jaxrl.make("CartPole-v1")[0], num_envs, batched_params=True)
    config = dict(num_envs=num_envs, num_steps=16, num_epochs=1, num_minibatches=2, hidden=(8,))
    return ppo.make(venv, ppo.Config(**{**config, **changes}))


@pytest.fixture(scope="module")
def robust_plr():
    hyper = plr.Hyper(replay_prob=0.5, min_fill=0.5)
    algo = curriculum.attach(
        cartpole_student(normalize_obs=True), plr.make(cartpole_level, plr.Config(buffer_size=12), hyper)
    )
    return algo, jax.jit(algo.init), jax.jit(algo.collect), jax.jit(algo.learn), jax.jit(algo.update)


def largest_change(a, b):
    return max(jax.tree.leaves(jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), a, b)))


@pytest.mark.slow
def test_robust_plr_learns_from_replayed_levels_only(robust_plr):
    algo, init, collect, learn, _ = robust_plr
    state = init(jax.random.key(3))
    replays = 0
    for _ in range(24):
        before = state
        state, made = collect(before)
        slot, wanted = np.asarray(made.batch.slot), np.asarray(before.wanted)
        assert len(set((slot[wanted] >= 0).tolist())) <= 1  # levels drawn together are all replayed or all new
        np.testing.assert_array_equal(made.batch.learn_mask, slot >= 0)
        drawn = wanted & (slot >= 0)  # the levels are the buffer's, and the students' params are the levels
        held = before.curriculum.buffer.levels.length[slot[drawn]]
        np.testing.assert_array_equal(held, made.batch.params.length[drawn])
        np.testing.assert_array_equal(state.env_params.length, made.batch.params.length)
        replayed = bool((slot >= 0).any())
        acted = state.inner
        state, metrics = learn(state, made)
        for part in ("weights", "optimizer", "normalizer"):
            assert (largest_change(getattr(acted, part), getattr(state.inner, part)) > 0) == replayed
        assert np.isfinite(metrics["loss"]) == metrics["learned"] == replayed
        assert int(metrics["episodes"]) == int((made.student.terminated | made.student.truncated).sum())
        replays += replayed
    assert 3 <= replays <= 20
    score = np.asarray(state.curriculum.buffer.score)
    assert np.isfinite(score).sum() >= 6


def test_replay_updates_score_and_keeps_the_best_return():
    cur = plr.make(cartpole_level, plr.Config(buffer_size=5))
    _, params = jaxrl.make("CartPole-v1")
    state = cur.init(jax.random.key(0), cur.hyper, params)
    levels = jax.tree.map(lambda x: jnp.arange(5, dtype=x.dtype), params)
    state = state.replace(buffer=held(levels, BUFFER.score, BUFFER.max_return, BUFFER.sampled_at))
    batch = LevelBatch(
        params=jax.tree.map(lambda x: x[jnp.asarray([2, 0])], levels),
        slot=jnp.asarray([2, 0]), learn_mask=jnp.ones(2, bool), parent=jnp.full(2, -1), max_return=jnp.asarray([7.0,
        5.0]),
    )  # fmt: skip
    seen = Outcomes(
        *[jnp.zeros(2)] * 3,
        score=jnp.asarray([4.0, -jnp.inf]),
        max_return=jnp.asarray([6.0, 9.0]),
        episodes=jnp.ones(2, int),
    )
    buffer = jax.jit(cur.update)(jax.random.key(1), state, batch, seen).buffer
    np.testing.assert_allclose(buffer.score, [0.5, 2.0, 4.0, 1.0, -np.inf])
    np.testing.assert_allclose(buffer.max_return, [5.0, 6.0, 7.0, 8.0, -np.inf])
    np.testing.assert_array_equal(buffer.levels.length, levels.length)


def numbers():
    """Levels that are a number each, and outcomes of a batch of them."""

    def level_fn(key, params):
        return {"x": params["low"] + jax.random.uniform(key)}

    def seen(batch):
        n = batch.slot.shape[0]
        return Outcomes(*[jnp.zeros(n)] * 3, batch.params["x"], batch.params["x"], jnp.ones(n, jnp.int32))

    return level_fn, {"low": jnp.zeros(())}, seen


@pytest.mark.slow
def test_parallel_plr_replays_half_of_each_batch():
    level_fn, params, seen = numbers()
    for robust in (True, False):
        cur = plr.make(level_fn, plr.Config(buffer_size=8, robust=robust, parallel=True))
        state = cur.init(jax.random.key(0), cur.hyper, params)
        sample, update = jax.jit(cur.sample), jax.jit(cur.update)
        for i in range(6):
            before = state.buffer
            batch, state = sample(jax.random.key(i), state, jnp.ones(6, bool))
            replay = i > 0  # after the first batch 6 of 8 slots are filled
            np.testing.assert_array_equal(batch.slot >= 0, [False] * 3 + [replay] * 3)
            np.testing.assert_array_equal(batch.learn_mask, [not robust] * 3 + [replay or not robust] * 3)
            if replay:
                np.testing.assert_array_equal(batch.params["x"][3:], before.levels["x"][batch.slot[3:]])
            assert not np.isin(batch.params["x"][:3], before.levels["x"]).any()
            state = update(jax.random.key(i), state, batch, seen(batch))
        assert sample._cache_size() == update._cache_size() == 1
    with pytest.raises(ValueError, match="parallel: half of a batch is replayed, and 5"):
        cur.sample(jax.random.key(0), state, jnp.ones(5, bool))


def test_domain_randomisation_learns_from_new_levels():
    level_fn, params, seen = numbers()
    cur = dr.make(level_fn)
    state = cur.init(jax.random.key(0), cur.hyper, {"low": 2.0})
    batch, state = cur.sample(jax.random.key(1), state, jnp.ones(5, bool))
    assert batch.learn_mask.all() and (batch.slot == -1).all() and (batch.max_return == -np.inf).all()
    assert len(set(batch.params["x"].tolist())) == 5 and (batch.params["x"] >= 2).all()
    np.testing.assert_array_equal(cur.update(jax.random.key(2), state, batch, seen(batch))["low"], 2)


@pytest.mark.slow
def test_students_without_values_under_a_curriculum_that_reads_no_score():
    env, params = jaxrl.make("CartPole-v1")
    venv = jaxrl.vectorize(env, 4, batched_params=True)
    config = dqn.Config(num_envs=4, num_steps=16, buffer_size=128, batch_size=8, num_updates=2, hidden=(8,), n_step=3)
    algo = curriculum.attach(dqn.make(venv, config), dr.make(cartpole_level))
    short = params.replace(max_steps=6)
    state = jax.jit(algo.init)(jax.random.key(0), dqn.Hyper(learning_starts=0), short)
    update, before = jax.jit(algo.update), state.weights
    for _ in range(3):
        state, metrics = update(state)
        assert metrics["levels_finished"] == 1 and metrics["level_success"] == 1  # 16 steps, episodes of 6
    assert largest_change(before, state.weights) > 0 and len(np.unique(state.env_params.length)) == 4
    # Rows of steps by slot, of the third update and then the second, 16 steps into which two episodes fit and a part of
    # one: as the third began, each slot had another level, and no window of rewards runs on into it.
    truncated = np.asarray(state.inner.replay.items.truncated).reshape(32, 4)
    assert truncated[31].all() and not truncated[15].any()


@pytest.mark.slow
def test_what_was_earned_in_a_cut_episode_is_no_part_of_the_next_return():
    """With gamma 1 and rewards of 1 the return so far is the clock. Episodes of 6 steps end in the second rollout of 4,
    and the two steps that follow in it belong to a level that is done with."""
    algo = curriculum.attach(cartpole_student(num_steps=4, normalize_reward=True), dr.make(cartpole_level))
    short = jaxrl.make("CartPole-v1")[1].replace(max_steps=6)
    state = jax.jit(algo.init)(jax.random.key(0), ppo.Hyper(gamma=1.0), short)
    update = jax.jit(algo.update)
    for clock in (4, 2, 4, 2, 4):
        state, _ = update(state)
        np.testing.assert_array_equal(state.env_state.env.time, clock)
        np.testing.assert_allclose(state.inner.reward_scaler.returns, clock)


LENGTHS = jnp.array([3, 5, 7, 9])


def with_lengths(params):
    """Four levels whose episodes last so long, with poles that do not fall in this time."""
    many = jax.tree.map(lambda x: jnp.stack([x] * 4), params.replace(length=jnp.float32(3.0)))
    return many.replace(max_steps=LENGTHS.astype(jnp.int32))


def told(whole_batches):
    """A curriculum that always has the same levels; its state is them and what `update` was told last."""

    def init(key, hyper, params):
        return {"levels": with_lengths(params), "told": curriculum.attachment.no_outcomes(4)}

    def sample(key, state, wanted):
        return new_levels(state["levels"]), state

    def update(key, state, batch, seen):
        return {**state, "told": seen}

    return curriculum.Curriculum(init, sample, update, "told", whole_batches=whole_batches)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("whole_batches", [False, True])
def test_outcomes_add_up_over_rollouts_until_the_level_is_done_with(whole_batches):
    """Rollouts of 4 steps on levels of 3, 5, 7 and 9. A curriculum of whole batches is told of all of them, in the
    rollout in which the longest ends; else of each when it ends, and the level begins anew."""
    algo = curriculum.attach(cartpole_student(num_steps=4), told(whole_batches))
    state = jax.jit(algo.init)(jax.random.key(0))
    update = jax.jit(algo.update)
    if whole_batches:
        expected = [[0, 0, 0, 0], [0, 0, 0, 0], [4, 2, 1, 1], [0, 0, 0, 0]]
    else:
        expected = [[1, 0, 0, 0], [1, 1, 1, 0], [1, 0, 0, 1], [1, 1, 1, 0]]
    for episodes in expected:
        state, metrics = update(state)
        seen = state.curriculum["told"]
        np.testing.assert_array_equal(seen.episodes, episodes)
        ended = np.array(episodes) > 0
        np.testing.assert_array_equal(state.wanted, ended)
        np.testing.assert_allclose(metrics["levels_finished"], ended.mean())
        for mean in (seen.episode_return, seen.episode_length):
            np.testing.assert_allclose(mean, np.where(ended, LENGTHS, 0), rtol=1e-6)
        np.testing.assert_allclose(seen.max_return, np.where(ended, LENGTHS, -np.inf))


@pytest.mark.slow
@pytest.mark.light
def test_a_student_of_one_step_a_rollout_ends_its_episodes():
    venv = jaxrl.vectorize(jaxrl.make("CartPole-v1")[0], 4, batched_params=True)
    config = dqn.Config(num_envs=4, num_steps=1, buffer_size=128, batch_size=8, num_updates=1, hidden=(4,), n_step=1)
    algo = curriculum.attach(dqn.make(venv, config), told(False))
    state = jax.jit(algo.init)(jax.random.key(0), dqn.Hyper(learning_starts=0))
    update = jax.jit(algo.update)
    for step in range(1, 16):
        state, metrics = update(state)
        ends = step % np.asarray(LENGTHS) == 0
        np.testing.assert_array_equal(state.curriculum["told"].episodes, ends)
        assert metrics["episodes"] == ends.sum()
        if ends.any():
            np.testing.assert_allclose(metrics["episode_length"], np.asarray(LENGTHS)[ends].mean())


@pytest.mark.slow
def test_attached_algorithm_trains_and_resumes_unchanged(robust_plr):
    algo, init, _, _, update = robust_plr
    state, metrics = jax.jit(lambda k: jaxrl.train(algo, k, 6 * algo.steps_per_update))(jax.random.key(1))
    assert metrics["loss"].shape == (6,) and int(state.step) == 6 * algo.steps_per_update
    again = init(jax.random.key(1))
    for _ in range(6):
        again, _ = update(again)
    leaves = zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True)
    for a, b in leaves:
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    action, _ = algo.act(algo.policy(state), jax.random.key(0), jnp.zeros((3, 4)))
    assert action.shape == (3,)


@pytest.mark.slow
def test_changing_levels_does_not_recompile(robust_plr):
    _, init, _, _, update = robust_plr
    state = init(jax.random.key(0))
    for _ in range(4):
        state, _ = update(state)
    assert update._cache_size() == 1


@functools.cache
def maze_student(num_steps=6):
    env = jaxrl.make("Maze-v0", height=5, width=5)[0].as_levels()
    config = ppo_rnn.Config(num_envs=6, num_steps=num_steps, num_epochs=1, num_minibatches=1, hidden=(8,), rnn_size=8)
    return ppo_rnn.make(jaxrl.vectorize(env, 6, batched_params=True), config)


def maze_level(key, params):
    return jaxrl.make("Maze-v0", height=5, width=5)[0].generate(key, params)


@pytest.mark.slow
def test_a_recurrent_student_remembers_nothing_of_the_level_before():
    algo = curriculum.attach(maze_student(), dr.make(maze_level))
    state = jax.jit(algo.init)(jax.random.key(0), None, jaxrl.make("Maze-v0")[1])
    assert state.env_params.wall_map.shape == (6, 5, 5)
    collect = jax.jit(algo.collect)
    _, first = collect(state)
    # In the middle of an episode, with something to remember.
    student = state.inner
    carry = student.carry._replace(start=jnp.zeros(6, bool), hidden=jax.tree.map(lambda x: x + 5, student.carry.hidden))
    env_state = student.env_state.replace(env=student.env_state.env.replace(time=jnp.full(6, 3)))
    student = student.replace(carry=carry, env_state=env_state)
    _, second = collect(state.replace(inner=student))
    assert first.student.start[0].all() and second.student.start[0].all()
    for name in ("value", "log_prob", "action", "reward"):
        np.testing.assert_array_equal(getattr(first.student, name), getattr(second.student, name))


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [False, True])
def test_plr_trains_a_recurrent_student_on_mazes(parallel):
    cur = plr.make(maze_level, plr.Config(buffer_size=12, parallel=parallel), score=curriculum.positive_value_loss)
    algo = curriculum.attach(maze_student(), cur)
    params = jaxrl.make("Maze-v0")[1].replace(max_steps=jnp.int32(3), walls=jnp.int32(3))
    train = jax.jit(lambda key, params: jaxrl.train(algo, key, 12 * algo.steps_per_update, None, params))
    state, metrics = train(jax.random.key(0), params)
    learned = np.asarray(metrics["learned"]) == 1
    assert all(np.isfinite(x[learned]).all() for x in metrics.values())
    np.testing.assert_array_equal(np.isfinite(metrics["loss"]), learned)
    if parallel:
        np.testing.assert_allclose(metrics["levels_replayed"][2:], 0.5)
    else:
        assert 0 < metrics["levels_replayed"].mean() < 1
    assert learned.any()
    assert np.isfinite(state.curriculum.buffer.score).all()  # episodes of three steps: all are scored


@pytest.mark.slow
@pytest.mark.light
def test_robust_plr_trains_a_recurrent_student_whose_rollouts_are_shorter_than_episodes():
    cur = plr.make(maze_level, plr.Config(buffer_size=12), score=curriculum.positive_value_loss)
    algo = curriculum.attach(maze_student(num_steps=6), cur)
    params = jaxrl.make("Maze-v0")[1].replace(max_steps=jnp.int32(15), walls=jnp.int32(3))

    @jax.jit
    def train(key):
        first = algo.init(key, None, params)
        return first, *jax.lax.scan(lambda state, _: algo.update(state), first, length=60)

    first, state, metrics = train(jax.random.key(0))
    learned = np.asarray(metrics["learned"]) == 1
    np.testing.assert_array_equal(np.isfinite(metrics["loss"]), learned)
    assert 0 < learned.mean() < 1 and largest_change(first.weights, state.weights) > 0
    # An episode of 15 steps ends in its third rollout, if not before.
    finished = np.asarray(metrics["levels_finished"])
    assert np.all(finished[0::3] + finished[1::3] + finished[2::3] >= 0.5) and finished.mean() < 0.7
    assert np.isfinite(state.curriculum.buffer.score).all()


# ---- bad input


@pytest.mark.slow
@pytest.mark.light
def test_errors_name_the_remedy():
    env, params = jaxrl.make("CartPole-v1")
    with pytest.raises(ValueError, match="batched_params=True"):
        curriculum.attach(ppo.make(env, ppo.Config(num_envs=4)), plr.make(cartpole_level))
    with pytest.raises(ValueError, match="buffer_size=0"):
        plr.Config(buffer_size=0)
    with pytest.raises(ValueError, match="prioritization='random'"):
        plr.Config(prioritization="random")
    with pytest.raises(ValueError, match="staleness=1.5"):
        plr.make(cartpole_level, hyper=plr.Hyper(staleness=1.5))
    with pytest.raises(ValueError, match="temperature=0.0"):
        plr.make(cartpole_level, hyper=plr.Hyper(temperature=0.0))
    blind = dqn.make(jaxrl.vectorize(env, 10, batched_params=True), dqn.Config(num_envs=10))
    attached = curriculum.attach(blind, plr.make(cartpole_level, plr.Config(buffer_size=10)))
    with pytest.raises(ValueError, match="rollouts of dqn have no learn_mask, next_value, value.*ppo_rnn"):
        jax.eval_shape(lambda key: attached.update(attached.init(key)), jax.random.key(0))
    huge = curriculum.attach(cartpole_student(), plr.make(cartpole_level, plr.Config(buffer_size=10**15)))
    with pytest.raises(ValueError, match="capacity=1000000000000000: levels of .* GiB, the memory is"):
        huge.init(jax.random.key(0))


@pytree
class Other:
    length: jax.Array


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize(
    ("level_fn", "says"),
    [
        (
            lambda key, params: {"length": params.length},
            "attach: its levels (dict) lack .max_steps, unlike 4 params of",
        ),
        (
            lambda key, params: Other(params.length),
            "levels (Other) lack .max_steps, unlike 4 params of CartPole-v1 (Params)",
        ),
        (
            lambda key, params: params.replace(length=jnp.ones(2)),
            "attach: .length of its levels is float32 (4, 2); that of 4 params of CartPole-v1 is float32 (4,).",
        ),
        (
            lambda key, params: params.replace(length=jnp.int32(1)),
            "attach: .length of its levels is int32 (4,); that of 4 params of CartPole-v1 is float32 (4,).",
        ),
        (lambda key, params: params.replace(length={"x": params.length}), "its levels (Params) lack .length, unlike"),
        (lambda key, params: tuple(jax.tree.leaves(params)), "its levels (tuple) lack .max_steps"),
    ],
)
def test_levels_that_are_no_params_are_refused(level_fn, says):
    for cur in (dr.make(level_fn), plr.make(level_fn, plr.Config(buffer_size=8))):
        with pytest.raises(ValueError, match=re.escape(says)):
            curriculum.attach(cartpole_student(), cur).init(jax.random.key(0))


def test_levels_that_the_environment_refuses_are_found_outside_of_jit():
    algo = curriculum.attach(cartpole_student(), dr.make(lambda key, params: params.replace(length=-params.length)))
    with pytest.raises(ValueError, match="CartPole: length=.*must be positive"):
        algo.init(jax.random.key(0))
    jax.eval_shape(algo.init, jax.random.key(0))


@pytest.mark.slow
def test_weakly_typed_levels_do_not_recompile():
    def level_fn(key, params):
        return params.replace(length=jnp.where(jax.random.bernoulli(key), 1.0, 2.0))  # weak

    algo = curriculum.attach(cartpole_student(), dr.make(level_fn))
    update, state = jax.jit(algo.update), jax.jit(algo.init)(jax.random.key(0))
    for _ in range(2):
        state, _ = update(state)
    assert update._cache_size() == 1
    assert isinstance(dr.make(level_fn), Curriculum) and isinstance(BUFFER, LevelBuffer)


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("nothing", [jnp.nan, -jnp.inf, 0.01])
def test_fit_says_that_no_level_has_a_score(nothing, recwarn):
    """One sentence in a run; robust replay has learned from nothing until then."""

    def score(rollout, batch, outcomes, hyper):
        return jnp.full(outcomes.score.shape, nothing)

    algo = curriculum.attach(cartpole_student(), plr.make(cartpole_level, plr.Config(buffer_size=4), score=score))
    result = jaxrl.fit(algo, jax.random.key(0), 24 * algo.steps_per_update, progress=False)
    said = [str(w.message) for w in recwarn if "levels were finished" in str(w.message)]
    if np.isfinite(nothing):
        assert not said and result.metrics["learned"].any()
    else:
        assert len(said) == 1 and "score was NaN or infinite for all of them" in said[0]
        assert not result.metrics["learned"].any()


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("levels", ["one", "many"])
def test_fit_says_that_the_buffer_of_a_task_with_one_level_never_fills(levels, recwarn):
    level_fn = cartpole_level if levels == "many" else lambda key, params: params
    algo = curriculum.attach(cartpole_student(), plr.make(level_fn, plr.Config(buffer_size=4)))
    result = jaxrl.fit(algo, jax.random.key(0), 24 * algo.steps_per_update, progress=False)
    said = [str(w.message) for w in recwarn if "learned from nothing" in str(w.message)]
    if levels == "many":
        assert not said and result.metrics["learned"].any()
    else:
        assert len(said) == 1 and "draws one level" in said[0] and "and 0.25 is" in said[0]
        assert not result.metrics["learned"].any()


@pytest.mark.parametrize("learned", [0, 1])
def test_a_buffer_that_stays_as_it_is_is_told_while_the_run_goes_on(learned):
    """After 30 updates without a new level, and that nothing was learned where that is so; never while it grows."""

    def rows(filled):
        ones = np.ones(len(filled))
        return {"learned": learned * ones, "level_score": ones, "levels_finished": ones, "buffer_filled": filled}

    scores = _Scores(min_fill=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores.look(rows(np.linspace(0.01, 0.2, 40)), last=False)  # it grows
        scores.look(rows(np.full(29, 0.2)), last=False)
    with pytest.warns(UserWarning, match="In 30 updates .* a share of 0.2 is filled") as said:
        scores.look(rows(np.full(1, 0.2)), last=False)
    assert ("the student learned from nothing" in str(said[0].message)) == (not learned)


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("levels", ["one", "many"])
def test_fit_says_that_replay_has_nothing_to_choose_among(levels, recwarn):
    """Replay that learns from new levels, too, is a run without a curriculum then."""
    level_fn = cartpole_level if levels == "many" else lambda key, params: params
    config = plr.Config(buffer_size=64, robust=False)
    algo = curriculum.attach(cartpole_student(), plr.make(level_fn, config))
    result = jaxrl.fit(algo, jax.random.key(0), 140 * algo.steps_per_update, progress=False)
    said = [str(w.message) for w in recwarn if "nothing to choose" in str(w.message)]
    assert len(said) == (levels == "one") and result.metrics["learned"].all()
    if said:
        assert "a share of 0.016 is filled" in said[0]
