"""Curricula: what decides on which levels a student trains. A level is env params, so any environment can have one.

A `Curriculum` is three pure functions; `attach` puts one around any student whose environments take batched params and
gives an `Algorithm` again: train, fit, resume and sweeps work unchanged.

The buffer and the scores are those of prioritised level replay (Jiang et al. 2021a, arXiv:2010.03934; 2021b,
arXiv:2110.02439) as minimax (Jiang et al. 2023, arXiv:2311.12716) and JaxUED (Coward et al. 2024, arXiv:2403.13091)
have them. Both insert one level after another with a sort of the whole buffer for each; here a batch enters at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, UInt32

from jaxrl.algorithm import Algorithm, episode_metrics
from jaxrl.environment import is_concrete, pytree, strongly_typed
from jaxrl.returns import gae
from jaxrl.vectorize import VectorEnv


class LevelBatch(NamedTuple):
    """The levels of one rollout, leading axis n."""

    params: Any  # levels: env params with leading axis n
    slot: Int[Array, " n"]  # where in the buffer it comes from, -1 for a new one
    learn_mask: Bool[Array, " n"]  # learn from it; robust PLR only looks at new levels
    parent: Int[Array, " n"]  # the slot a mutated level was made from, else -1
    max_return: Float[Array, " n"]  # best return ever seen on it, -inf for a new one
    note: Any = ()  # leading axis n: what the curriculum wants back with the outcomes


class Outcomes(NamedTuple):
    """What a rollout showed of each level, (n,) each; without a finished episode means are 0 and max_return is -inf."""

    episode_return: Array  # mean over finished episodes
    episode_length: Array  # likewise
    success: Array  # share of finished episodes that succeed
    score: Array  # of the level for training, higher is more useful
    max_return: Array  # best return ever seen, this rollout included
    episodes: Array  # finished episodes, int32


class Curriculum(NamedTuple):
    """`params` are the level distribution's, handed to the level function."""

    init: Callable[[Array, Any], Any]  # (key, params) -> cstate
    sample: Callable[[Array, Any, int], tuple[LevelBatch, Any]]  # (key, cstate, n) -> (batch, cstate)
    update: Callable[[Array, Any, LevelBatch, Outcomes], Any]  # (key, cstate, batch, outcomes) -> cstate
    name: str = "curriculum"
    settings: Any = ()  # static ones, which tell runs apart
    scored: bool = False  # it reads scores, or holds levels back from learning


def new_levels(params: PyTree) -> LevelBatch:
    """A batch of levels of which nothing is known, to be learned from."""
    n = jax.tree.leaves(params)[0].shape[0]
    nowhere = jnp.full(n, -1)
    return LevelBatch(params, nowhere, jnp.ones(n, bool), nowhere, jnp.full(n, -jnp.inf))


def check_levels(maker: str, levels: PyTree, expected: PyTree, of: str) -> None:
    """Raise ValueError unless `levels`, from `maker`, have the structure, shapes and dtypes of `expected`, which is
    `of`. Arrays or their shapes."""
    found, wanted = (
        {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(tree)}
        for tree in (levels, expected)
    )
    kinds = type(levels).__qualname__, type(expected).__qualname__
    for name in [*wanted, *found]:
        if name not in found or name not in wanted:
            lacking = "lack" if name in wanted else "have"
            raise ValueError(f"{maker}: its levels ({kinds[0]}) {lacking} {name}, unlike {of} ({kinds[1]}).")
    for name, x in found.items():
        y = wanted[name]
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            raise ValueError(
                f"{maker}: {name} of its levels is {x.dtype} {x.shape}; that of {of} is {y.dtype} {y.shape}."
            )
    if jax.tree.structure(levels) != jax.tree.structure(expected):
        raise ValueError(f"{maker}: its levels are {kinds[0]}, built otherwise than {of}, {kinds[1]}.")


# ---- level buffer


@pytree
class LevelBuffer:
    """A fixed number of levels with what replay needs to know of each. Empty slots have score -inf.

    Rank and hash follow from score and level. They are kept since sorting 100,000 scores and looking through as many
    levels would cost more than all the rest.
    """

    levels: Any  # leading axis C
    score: jax.Array  # (C,)
    max_return: jax.Array  # (C,)
    sampled_at: jax.Array  # (C,) int32, the clock when last acted on
    rank: jax.Array  # (C,) int32, 1 is the highest score; of equal ones the first slot's is better
    hash: jax.Array  # (C,) uint32
    extras: Any  # leading axis C: whatever else is to be known of each
    clock: jax.Array  # int32, batches drawn


def buffer_init(example: PyTree, capacity: int, extras: PyTree = ()) -> LevelBuffer:
    """An empty buffer for levels, and extras, like these examples (arrays or their shapes).

    Raises ValueError for a capacity below 1 and for a buffer that the memory cannot hold.
    """
    if capacity < 1:
        raise ValueError(f"capacity={capacity}: a level buffer holds at least 1 level.")
    size = sum(x.dtype.itemsize * int(np.prod(x.shape)) for x in jax.tree.leaves((example, extras)))
    memory = _memory()
    if memory is not None and capacity * size > memory:
        raise ValueError(
            f"capacity={capacity}: levels of {size} bytes are {capacity * size / 2**30:.1f} GiB, the memory is "
            f"{memory / 2**30:.1f} GiB; at most {memory // size} fit."
        )
    levels, extras = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), (example, extras))
    empty, zero = jnp.full(capacity, -jnp.inf, float), jnp.zeros(capacity, jnp.int32)
    rank = jnp.arange(1, capacity + 1, dtype=jnp.int32)
    return LevelBuffer(levels, empty, empty, zero, rank, zero.astype(jnp.uint32), extras, jnp.int32(0))


def _memory() -> int | None:
    """Bytes of the device, of the host where it has none of its own; None where nobody tells."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"]
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ()):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def buffer_weights(
    buffer: LevelBuffer,
    temperature: Float[Array, ""] | float,
    staleness: Float[Array, ""] | float,
    prioritization: str = "rank",
) -> Float[Array, " C"]:
    """Replay probabilities: (1 - staleness) h^(1/temperature) + staleness age, each normalised.

    Jiang et al. (2021a), P_replay. `rank`: h = 1 / rank; `proportional`: h = score, a negative one (as `max_mc` may
    give) counting as zero. What is zero everywhere counts as equal. Zero for empty slots; the weights sum to one unless
    all are empty.
    """
    filled = jnp.isfinite(buffer.score)
    if prioritization == "rank":
        h = 1 / buffer.rank.astype(buffer.score.dtype)
    elif prioritization == "proportional":
        h = jnp.where(filled, jnp.maximum(buffer.score, 0), 0)
        h = h / jnp.maximum(h.max(), 1e-30)  # the power of a large score would overflow
    else:
        raise ValueError(f"prioritization={prioritization!r}: it is 'rank' or 'proportional'.")
    by_score = jnp.where(h > 0, jnp.exp(jnp.log(jnp.where(h > 0, h, 1)) / temperature), 0)
    by_age = (buffer.clock - buffer.sampled_at).astype(by_score.dtype)

    def normalized(weights):
        weights = jnp.where(filled, weights, 0)
        weights = jnp.where(weights.sum() > 0, weights, filled)
        return weights / jnp.maximum(weights.sum(), 1e-30)

    return (1 - staleness) * normalized(by_score) + staleness * normalized(by_age)


def buffer_draw(key: Array, weights: Float[Array, " C"], n: int) -> Int[Array, " n"]:
    """`n` slots without repetition, in proportion to `weights` (Gumbel top-k); repeats only where fewer have weight."""
    log_weights = jnp.where(weights > 0, jnp.log(jnp.where(weights > 0, weights, 1)), -jnp.inf)
    return best_slots(log_weights + jax.random.gumbel(key, weights.shape, weights.dtype), n, n)


def best_slots(value: Float[Array, " C"], k: int, n: int) -> Int[Array, " n"]:
    """The slots of the `k` highest values above -inf, repeated in their order until there are `n`."""
    value, slots = jax.lax.top_k(value, min(k, value.shape[0]))
    return slots[jnp.arange(n) % jnp.maximum(jnp.isfinite(value).sum(), 1)]


def buffer_find(buffer: LevelBuffer, levels: PyTree) -> Int[Array, " n"]:
    """The slots of levels that the buffer holds, bit for bit; -1 for others.

    The hash names a slot, its level decides. So an equal level in a second slot of the same hash is not seen.
    """
    words = _words(levels)
    slots = jnp.arange(buffer.hash.shape[0])
    slot = jnp.max(jnp.where(buffer.hash == _hash(words)[:, None], slots, -1), 1)
    held = jax.tree.map(lambda x: x[slot], buffer.levels)
    equal = jnp.all(_words(held) == words, 1) & jnp.isfinite(buffer.score[slot])
    return jnp.where((slot >= 0) & equal, slot, -1)


def _words(levels: PyTree) -> UInt32[Array, "n words"]:
    """Levels as bits."""

    def leaf(x):
        x = x.astype(jnp.uint8) if x.dtype == bool else x
        words = jax.lax.bitcast_convert_type(x, f"uint{8 * min(x.dtype.itemsize, 4)}")
        return words.astype(jnp.uint32).reshape(x.shape[0], -1)

    return jnp.concatenate([leaf(x) for x in jax.tree.leaves(levels)], 1)


def _hash(words: UInt32[Array, "n words"]) -> UInt32[Array, " n"]:
    """The sum of each word mixed with its place; the mixing is Wellons' lowbias32."""
    x = words ^ np.random.default_rng(0).integers(2**32, size=words.shape[1], dtype=np.uint32)
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    x = (x ^ x >> 15) * np.uint32(0x846CA68B)
    return jnp.sum(x ^ x >> 16, 1, dtype=jnp.uint32)


def _first_equal(words: UInt32[Array, "n words"]) -> Int[Array, " n"]:
    """The first row that equals each."""
    hashes = _hash(words)
    first = jnp.argmax(hashes[:, None] == hashes, 1)
    return jnp.where(jnp.all(words[first] == words, 1), first, jnp.arange(first.shape[0]))


def _above(score: Array, slot: Array, other: Array, other_slot: Array) -> Array:
    """Whether a slot is ranked above another."""
    return (score > other) | ((score == other) & (slot < other_slot))


def _scored(buffer: LevelBuffer, rows: Int[Array, " n"], score: Float[Array, " n"]) -> LevelBuffer:
    """The buffer with new scores in distinct slots; rows past the end are dropped. The ranks of all others move by how
    many of these overtook them."""
    C = buffer.score.shape[0]
    slots = jnp.arange(C)
    score = jnp.where(rows < C, score, -jnp.inf)
    old = buffer.score.at[rows].get(mode="fill", fill_value=-jnp.inf)
    after, before = (_above(s[:, None], rows[:, None], buffer.score, slots) for s in (score, old))
    scores = buffer.score.at[rows].set(score, mode="drop")
    own = 1 + jnp.sum(_above(scores, slots, score[:, None], rows[:, None]), 1, dtype=jnp.int32)
    moved = jnp.sum(after.astype(jnp.int32) - before, 0, dtype=jnp.int32)
    return buffer.replace(score=scores, rank=(buffer.rank + moved).at[rows].set(own, mode="drop"))


def buffer_update(
    buffer: LevelBuffer, slot: Int[Array, " n"], score: Float[Array, " n"], max_return: Float[Array, " n"]
) -> LevelBuffer:
    """What a rollout showed of levels that the buffer holds; slot -1 is none of them.

    Where the score is not finite (nothing was learned of it), all stays as it was. Of a slot that is named twice the
    first counts.
    """
    kept = (slot >= 0) & jnp.isfinite(score)
    C = buffer.score.shape[0]
    rows = jnp.where(kept, slot, C + jnp.arange(slot.shape[0]))  # past the end: dropped; no two are equal
    rows = jnp.where(_first_equal(_words(rows)) < jnp.arange(rows.shape[0]), C, rows)
    return _scored(buffer, rows, score).replace(
        max_return=buffer.max_return.at[rows].max(max_return, mode="drop"),
        sampled_at=buffer.sampled_at.at[rows].set(buffer.clock, mode="drop"),
    )


def buffer_insert(
    buffer: LevelBuffer,
    levels: PyTree,
    score: Float[Array, " n"],
    max_return: Float[Array, " n"],
    usefulness: Float[Array, " C"],
    extras: PyTree = (),
) -> LevelBuffer:
    """Put new levels in place of the least useful ones: first into empty slots, then where the new score is higher.

    The best new level meets the least useful slot, the second best the second least, and so on. Levels with score -inf
    (nothing was learned of them) stay out. A level that the buffer holds already only updates its slot, and equal
    levels of a batch enter once, with the best of their scores and returns.
    """
    C = buffer.score.shape[0]
    score = jnp.where(jnp.isfinite(score), score, -jnp.inf)
    order = jnp.argsort(-score)
    levels, extras, score, max_return = jax.tree.map(lambda x: x[order], (levels, extras, score, max_return))
    first = _first_equal(_words(levels))
    max_return = jnp.full_like(max_return, -jnp.inf).at[first].max(max_return)
    score = jnp.where(first == jnp.arange(first.shape[0]), score, -jnp.inf)
    held = buffer_find(buffer, levels)
    buffer = buffer_update(buffer, held, score, max_return)
    score = jnp.where(held < 0, score, -jnp.inf)
    n = min(score.shape[0], C)
    best = jnp.argsort(-score)[:n]
    empty = ~jnp.isfinite(buffer.score)
    worst = jax.lax.top_k(jnp.where(empty, jnp.inf, -usefulness), n)[1]
    enters = jnp.isfinite(score[best]) & (empty[worst] | (score[best] > buffer.score[worst]))
    rows = jnp.where(enters, worst, C)  # past the end: dropped

    def put(old, new):
        return old.at[rows].set(new[best], mode="drop")

    return _scored(buffer, rows, score[best]).replace(
        levels=jax.tree.map(put, buffer.levels, levels),
        max_return=put(buffer.max_return, max_return),
        sampled_at=buffer.sampled_at.at[rows].set(buffer.clock, mode="drop"),
        hash=put(buffer.hash, _hash(_words(levels))),
        extras=jax.tree.map(put, buffer.extras, extras),
    )


# ---- scores: (rollout (T, N), batch, seen, hyper) -> (N,), the level's worth for training
# `seen` are the outcomes without the score, `hyper` the student's settings. Levels without a finished episode score
# -inf, and so never enter a buffer.


def episodic_mean(x: Float[Array, "T N"], done: Bool[Array, "T N"]) -> Float[Array, " N"]:
    """The mean over the steps of each finished episode, then over those; -inf where none finished.

    So steps count for less in a long episode than in a short one, and those after the last end not at all.
    """

    def step(carry, inputs):
        total, steps, mean = carry
        x, done = inputs
        total, steps = total + x, steps + 1
        mean = mean + jnp.where(done, total / steps, 0)
        return (jnp.where(done, 0, total), jnp.where(done, 0, steps), mean), None

    zero = jnp.zeros_like(x[0])
    (_, _, total), _ = jax.lax.scan(step, (zero, zero, zero), (x, done))
    episodes = done.sum(0)
    return jnp.where(episodes > 0, total / jnp.maximum(episodes, 1), -jnp.inf)


def max_mc(rollout: Any, batch: LevelBatch, seen: Outcomes, hyper: Any) -> Float[Array, " N"]:
    """The best return ever seen on the level minus the value estimate (Jiang et al. 2021b, "MaxMC"), as episodic mean.

    May be negative: use it with rank prioritisation. Values must be in units of the return, as they are unless the
    student normalises rewards.
    """
    return episodic_mean(seen.max_return - rollout.value, rollout.terminated | rollout.truncated)


def positive_value_loss(rollout: Any, batch: LevelBatch, seen: Outcomes, hyper: Any) -> Float[Array, " N"]:
    """The positive part of the advantage estimate (Jiang et al. 2021b, "PVL"), as episodic mean."""
    return episodic_mean(jnp.maximum(_advantage(rollout, hyper), 0), rollout.terminated | rollout.truncated)


def l1_value_loss(rollout: Any, batch: LevelBatch, seen: Outcomes, hyper: Any) -> Float[Array, " N"]:
    """The size of the advantage estimate (Jiang et al. 2021a, "L1 value loss"), as episodic mean."""
    return episodic_mean(jnp.abs(_advantage(rollout, hyper)), rollout.terminated | rollout.truncated)


def _advantage(rollout: Any, hyper: Any) -> Float[Array, "T N"]:
    ends = rollout.terminated, rollout.truncated
    return gae(rollout.reward, rollout.value, rollout.next_value, *ends, hyper.gamma, hyper.gae_lambda)


def learnability(rollout: Any, batch: LevelBatch, seen: Outcomes, hyper: Any) -> Float[Array, " N"]:
    """p (1 - p) with p the share of finished episodes that succeed (Rutherford et al. 2024, arXiv:2408.15099).

    Of whole numbers, so that p and 1 - p are equally good to the last bit and no rounding decides between them.
    """
    wins = jnp.round(seen.success * seen.episodes)
    score = wins * (seen.episodes - wins) / jnp.square(jnp.maximum(seen.episodes, 1))
    return jnp.where(seen.episodes > 0, score, -jnp.inf)


def oracle_regret(optimal_value: Callable[[Any], Array]) -> Callable[..., Array]:
    """The score `optimal_value(level)`, the best undiscounted return, minus the mean return: the exact regret."""

    def score(rollout: Any, batch: LevelBatch, seen: Outcomes, hyper: Any) -> Float[Array, " N"]:
        regret = jax.vmap(optimal_value)(batch.params) - seen.episode_return
        return jnp.where(seen.episodes > 0, regret, -jnp.inf)

    return score


def algorithmic_regret(agent: Outcomes, antagonist: Outcomes) -> Float[Array, " N"]:
    """The best return of the antagonist minus the agent's mean return, at least 0, of rollouts on the same new levels.

    Dennis et al. (2020), PAIRED, as minimax's `relative_regret`: who finished no episode returned 0, so returns should
    not be below 0; -inf where neither finished one.
    """
    best = jnp.where(antagonist.episodes > 0, antagonist.max_return, 0)
    regret = jnp.maximum(best - agent.episode_return, 0)
    return jnp.where((agent.episodes > 0) | (antagonist.episodes > 0), regret, -jnp.inf)


def outcomes(
    rollout: Any, batch: LevelBatch, score: Callable[..., Array] | None, hyper: Any, success_above: float = 0.0
) -> Outcomes:
    """What a rollout (T, N) showed of the level in each slot. Episodes of a return above `success_above` succeed;
    without a `score`, all are -inf."""
    done = _done(rollout)
    episodes = done.sum(0, dtype=jnp.int32)

    def mean(x):
        return jnp.where(done, x, 0).sum(0) / jnp.maximum(episodes, 1)

    best = jnp.max(jnp.where(done, rollout.episode_return, -jnp.inf), axis=0)
    seen = Outcomes(
        episode_return=mean(rollout.episode_return),
        episode_length=mean(rollout.episode_length),
        success=mean(rollout.episode_return > success_above),
        score=jnp.full(episodes.shape, -jnp.inf),
        max_return=jnp.maximum(batch.max_return, best),
        episodes=episodes,
    )
    return seen if score is None else seen._replace(score=score(rollout, batch, seen, hyper))


def _done(rollout: Any) -> Bool[Array, "T N"]:
    if hasattr(rollout, "done"):  # as off_policy's
        return rollout.done
    ends = rollout if hasattr(rollout, "terminated") else getattr(rollout, "transition", None)  # dqn's
    if ends is None:
        raise ValueError(f"a curriculum cannot see where episodes end: {type(rollout).__qualname__} does not say it.")
    return ends.terminated | ends.truncated


# ---- a student under a curriculum


@pytree
class AttachedState:
    """A student's state and its curriculum's. The public fields of an algorithm's state are the student's."""

    key: jax.Array
    student: Any
    curriculum: Any

    @property
    def hyper(self) -> Any:
        return self.student.hyper

    @property
    def env_params(self) -> Any:
        return self.student.env_params

    @property
    def env_state(self) -> Any:
        return self.student.env_state

    @property
    def obs(self) -> Any:
        return self.student.obs

    @property
    def step(self) -> Any:
        return self.student.step

    @property
    def weights(self) -> Any:
        return self.student.weights


class AttachedRollout(NamedTuple):
    """A student's rollout and the levels it was made on."""

    student: Any
    batch: LevelBatch


def on_levels(venv: VectorEnv, key: Array, state: Any, levels: PyTree) -> Any:
    """A student's state, each of whose slots begins an episode on its level, whatever it was in the middle of."""
    everywhere = jnp.ones(venv.num_envs, bool)
    obs, env_state = venv.restart(key, state.env_state, levels, everywhere)
    state = state.replace(obs=obs, env_state=env_state, env_params=levels)
    scaler = getattr(state, "reward_scaler", None)
    if scaler is None:
        return state
    # What was earned in the episode that is cut here is no part of the next one's return.
    return state.replace(reward_scaler=scaler.replace(returns=jnp.zeros_like(scaler.returns)))


def attach(
    student: Algorithm,
    curriculum: Curriculum,
    score: Callable[..., Array] | None = max_mc,
    success_above: float = 0.0,
) -> Algorithm:
    """`student`, each of whose rollouts starts on the levels that `curriculum` chooses. An Algorithm again.

    `env_params` given to `init` are the level distribution's. Only episodes that end within a rollout are seen, so
    rollouts must be as long as episodes; the metric `levels_finished` is the share of levels of which one was. A
    rollout with nothing to learn from costs no gradients (under `vmap` it does), and leaves the student as it was; its
    losses are reported as 0.

    Args:
        score: `(rollout, batch, seen, hyper) -> (N,)`, as `max_mc`, `positive_value_loss`, `l1_value_loss`,
            `learnability` and what `oracle_regret` makes, for rollouts with `value`, `next_value` and `learn_mask` (as
            ppo's). None for curricula that read no score and learn from all levels, as domain randomisation and
            teachers: then students without values (sac, td3, dqn with n_step 1) may have one, too.
        success_above: an episode of higher return succeeds.

    Raises ValueError unless the student's environments were vectorised with `batched_params=True`, and without a score
    for a curriculum that reads it; in `init` for levels that are no params of the environments or, outside of
    transformations, that they refuse; in `learn` for rollouts that lack what scores need.
    """
    venv = student.venv
    if not venv.batched_params or venv.level_fn is not None:
        raise ValueError(
            "attach: the curriculum chooses each slot's level, so the student needs "
            f"vectorize(env, {venv.num_envs}, batched_params=True) and no level_fn."
        )
    if getattr(student.config, "n_step", 1) > 1:
        raise ValueError(
            f"attach: with n_step={student.config.n_step}, {student.name} would join rewards across a change of level; "
            "use n_step=1."
        )
    if curriculum.scored and score is None:
        raise ValueError(f"attach: {curriculum.name} goes by scores of levels, so it needs a score, as max_mc.")

    def sample(key, cstate):
        batch, cstate = curriculum.sample(key, cstate, venv.num_envs)
        return batch._replace(params=strongly_typed(batch.params)), cstate

    def init(key, hyper=None, env_params=None):
        key, curriculum_key, student_key, check_key = jax.random.split(key, 4)
        cstate = curriculum.init(curriculum_key, venv.env.default_params if env_params is None else env_params)
        # The student begins on the default params, as collect draws the levels on which it acts first.
        after = student.init(student_key, hyper)
        levels = jax.eval_shape(sample, key, cstate)[0].params
        check_levels("attach", levels, after.env_params, f"{venv.num_envs} params of {venv.env.id}")
        if is_concrete((key, cstate)):
            venv.env.validate(jax.jit(sample)(check_key, cstate)[0].params)
        return AttachedState(key, after, cstate)

    def collect(state):
        key, sample_key, restart_key = jax.random.split(state.key, 3)
        batch, cstate = sample(sample_key, state.curriculum)
        after, rollout = student.collect(on_levels(venv, restart_key, state.student, batch.params))
        return state.replace(key=key, student=after, curriculum=cstate), AttachedRollout(rollout, batch)

    def look(state, rollout):
        """In place of the student's `learn`."""
        metrics = jax.eval_shape(student.learn, state, rollout)[1]
        metrics = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)
        return state, {**metrics, **episode_metrics(rollout.episode_return, rollout.episode_length, _done(rollout))}

    def learn_from(state, rollout, learn_mask):
        if score is None:
            return student.learn(state, rollout)
        missing = {"value", "next_value", "learn_mask"} - set(rollout._fields)
        if missing:
            raise ValueError(
                f"attach: rollouts of {student.name} have no {', '.join(sorted(missing))}, by which levels are scored "
                "and learning is held back; those of ppo and ppo_rnn have. Curricula that need neither: score=None."
            )
        rollout = rollout._replace(learn_mask=learn_mask)
        return jax.lax.cond(learn_mask.any(), student.learn, look, state, rollout)

    def learn(state, rollout):
        key, update_key = jax.random.split(state.key)
        batch = rollout.batch
        after, metrics = learn_from(state.student, rollout.student, batch.learn_mask)
        seen = outcomes(rollout.student, batch, score, state.student.hyper, success_above)
        cstate = curriculum.update(update_key, state.curriculum, batch, seen)
        known = jnp.isfinite(seen.score)
        metrics = {
            **metrics,
            "level_score": jnp.where(known, seen.score, 0).sum() / jnp.maximum(known.sum(), 1),
            "level_success": seen.success.mean(),
            "levels_finished": (seen.episodes > 0).mean(),
            "levels_replayed": (batch.slot >= 0).mean(),
        }
        return state.replace(key=key, student=after, curriculum=cstate), metrics

    return student._replace(
        name=f"{student.name}+{curriculum.name}",
        around=(*student.around, curriculum.settings, score, success_above),
        init=init,
        collect=collect,
        learn=learn,
        update=lambda state: learn(*collect(state)),
        policy=lambda state: student.policy(state.student),
    )
