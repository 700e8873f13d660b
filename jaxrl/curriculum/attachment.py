"""A curriculum put around a student: an Algorithm again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.algorithm import Algorithm
from jaxrl.curriculum import looking
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, check_levels, new_levels
from jaxrl.environment import is_concrete, pytree, strongly_typed
from jaxrl.math import rarely
from jaxrl.nesting import OuterState, around, split_hyper, with_settings
from jaxrl.rollout import Ends, ticked
from jaxrl.vectorize import rows_where


def outcomes(
    rollout: Any,
    batch: LevelBatch,
    score: Callable[..., Array] | None,
    hyper: Any,
    success_above: float = 0.0,
    before: Outcomes | None = None,
) -> Outcomes:
    """What a rollout (T, N), after the rollouts `before` on the same levels, showed of the level in each slot.

    Episodes of a return above `success_above` succeed; without a `score`, all are -inf. A score is told of all
    episodes and sees the steps of this rollout; where none ended in it, the score `before` stays.
    """
    done, returns, lengths = rollout.ends
    episodes = done.sum(0, dtype=jnp.int32)

    def mean(x):
        return jnp.where(done, x, 0).sum(0) / jnp.maximum(episodes, 1)

    best = jnp.max(jnp.where(done, returns, -jnp.inf), axis=0)
    seen = Outcomes(
        episode_return=mean(returns),
        episode_length=mean(lengths),
        success=mean(returns > success_above),
        score=jnp.full(episodes.shape, -jnp.inf),
        max_return=jnp.maximum(batch.max_return, best),
        episodes=episodes,
    )
    now = episodes > 0
    if before is not None:
        seen = added(before, seen)
    if score is None:
        return seen
    return seen._replace(score=jnp.where(now, score(rollout, batch, seen, hyper), seen.score))


def nothing_seen(n: int) -> Outcomes:
    """The outcomes of levels of which no episode ended."""
    zero = jnp.zeros(n)
    worst = zero - jnp.inf
    return Outcomes(zero, zero, zero, score=worst, max_return=worst, episodes=jnp.zeros(n, jnp.int32))


def added(before: Outcomes, now: Outcomes) -> Outcomes:
    """The outcomes of two rollouts on the same levels, of which the later has no score yet."""
    episodes = before.episodes + now.episodes

    def mean(x, y):
        return (x * before.episodes + y * now.episodes) / jnp.maximum(episodes, 1)

    return Outcomes(
        *map(mean, before[:3], now[:3]),
        score=before.score,
        max_return=jnp.maximum(before.max_return, now.max_return),
        episodes=episodes,
    )


@pytree
class AttachedState(OuterState):
    """A student's state, its curriculum's, and the levels that are being played. `inner.step` counts the steps learned
    from, by which the student anneals; `step` all."""

    key: jax.Array
    step: jax.Array
    inner: Any
    curriculum: Any  # with its settings as `hyper`, if it has any; then these are `hyper.curriculum`, too
    batch: LevelBatch  # leading axis N
    seen: Outcomes  # so far, of levels that stay
    wanted: jax.Array  # (N,) bool: the slot's level is done with

    SETTINGS = ("curriculum", "curriculum.hyper")


class AttachedRollout(NamedTuple):
    """A student's rollout and the levels it was made on."""

    student: Any
    batch: LevelBatch

    @property
    def ends(self) -> Ends:
        """The student's."""
        return self.student.ends


def attach(student: Algorithm, curriculum: Curriculum, success_above: float = 0.0) -> Algorithm:
    """`student`, on the levels that `curriculum` chooses. An Algorithm again.

    A slot has its level until the first rollout in which an episode ends on it; then the next rollout starts there with
    another one. So rollouts may be shorter than episodes. The metric `levels_finished` is the share of the slots that
    were done with their level; means over levels, as `level_score`, are over those, NaN where there was none.

    `env_params` given to `init` are the level distribution's; `hyper` are the student's settings and, as `curriculum`,
    those of the curriculum, which has its own where the student's alone are given. A rollout with nothing to learn from
    costs no gradients (under `vmap` it does), and leaves the student as it was, also in the steps by which it anneals;
    its losses are then NaN and the metric `learned` is 0.

    A curriculum with a score of levels takes students whose rollouts have `value`, `next_value` and `learn_mask`, as
    ppo's. Of an episode longer than a rollout the scores that go by steps (`max_mc`, the value losses) see those in the
    last one; `learnability` and `oracle_regret` go by whole episodes. A curriculum without a score, as domain
    randomisation and teachers, learns from all levels, and students without values (sac, td3, dqn) may have it, too.

    Args:
        success_above: an episode of higher return succeeds.

    Raises ValueError unless the student's environments were vectorised with `batched_params=True`; in `init` for levels
    that are no params of the environments or, outside of transformations, that they refuse; in `learn` for rollouts
    that lack what scores need.
    """
    venv = student.venv
    if not venv.batched_params or venv.level_fn is not None:
        raise ValueError(
            "attach: the curriculum chooses each slot's level, so the student needs "
            f"vectorize(env, {venv.num_envs}, batched_params=True) and no level_fn."
        )
    score, N, hyper_of_both = curriculum.score, venv.num_envs, student.hyper
    if curriculum.hyper is not None:
        hyper_of_both = with_settings(student.hyper, "curriculum", curriculum.hyper)
    everywhere = jnp.ones(N, bool)

    def sample(key, cstate, wanted):
        batch, cstate = curriculum.sample(key, cstate, wanted)
        return batch._replace(params=strongly_typed(batch.params)), cstate

    def init(key, hyper=None, env_params=None):
        key, curriculum_key, student_key, check_key = jax.random.split(key, 4)
        hyper, own = split_hyper(hyper, "curriculum", curriculum.hyper)
        cstate = curriculum.init(curriculum_key, own, venv.env.default_params if env_params is None else env_params)
        # The student begins on the default params, as collect draws the levels on which it acts first.
        inner = student.init(student_key, hyper)
        shapes = jax.eval_shape(sample, key, cstate, everywhere)[0]
        check_levels("attach", shapes.params, inner.env_params, f"{N} params of {venv.env.id}")
        if is_concrete((key, cstate)):
            venv.env.validate(jax.jit(sample)(check_key, cstate, everywhere)[0].params)
        batch = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return AttachedState(key, inner.step, inner, cstate, batch, nothing_seen(N), everywhere)

    def look_of(state):
        """How the student of `state` does on levels that it does not learn from."""

        def look(key, levels, num_steps):
            rollout: Any = looking.look(student, state.inner, key, levels, num_steps)
            return outcomes(rollout, new_levels(levels), score, state.inner.hyper, success_above)

        return look

    def collect(state):
        key, sample_key, restart_key = jax.random.split(state.key, 3)
        wanted, before = state.wanted, state.curriculum
        if curriculum.refresh is not None:
            key, refresh_key = jax.random.split(key)
            before = curriculum.refresh(refresh_key, before, look_of(state))

        def chosen():
            batch, cstate = sample(sample_key, before, wanted)
            return rows_where(wanted, batch, state.batch), cstate

        batch, cstate = rarely(wanted.any(), chosen, (state.batch, before))
        inner, rollout = student.collect(student.restart(state.inner, restart_key, batch.params, wanted))
        step = ticked(state.step, student.steps_per_update)
        state = state.replace(key=key, step=step, inner=inner, curriculum=cstate, batch=batch)
        return state, AttachedRollout(rollout, batch)

    def only_looked(state, rollout):
        """In place of the student's `learn`."""
        metrics = jax.eval_shape(student.learn, state, rollout)[1]

        def nothing(x):
            return jnp.full(x.shape, jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else 0, x.dtype)

        return state, {**jax.tree.map(nothing, metrics), **rollout.ends.metrics()}

    def learn_from(state, rollout, learn_mask):
        if score is None:
            return student.learn(state, rollout)
        missing = {"value", "next_value", "learn_mask"} - set(rollout._fields)
        if missing:
            raise ValueError(
                f"attach: rollouts of {student.name} have no {', '.join(sorted(missing))}, by which levels are scored "
                "and learning is held back; those of ppo and ppo_rnn have. Curricula without a score, as dr and "
                "teachers, need neither."
            )
        rollout = rollout._replace(learn_mask=learn_mask)
        inner, metrics = jax.lax.cond(learn_mask.any(), student.learn, only_looked, state, rollout)
        held_back = student.steps_per_update // N * jnp.sum(~learn_mask, dtype=inner.step.dtype)
        at_end = inner.step == np.iinfo(np.int32).max  # where the counter stays
        metrics = {**metrics, "learned": learn_mask.any().astype(jnp.int32)}
        return inner.replace(step=jnp.where(at_end, inner.step, inner.step - held_back)), metrics

    def described(batch):
        """What the environment tells of levels, as a maze's walls: means over those of this rollout."""
        return {f"level/{name}": x.mean() for name, x in jax.vmap(venv.env.describe)(batch.params).items()}

    def learn(state, rollout):
        key, update_key = jax.random.split(state.key)
        batch = rollout.batch
        inner, metrics = learn_from(state.inner, rollout.student, batch.learn_mask)
        seen = outcomes(rollout.student, batch, score, state.inner.hyper, success_above, state.seen)
        done = seen.episodes > 0
        done = jnp.full(N, done.all()) if curriculum.whole_batches else done
        nothing = nothing_seen(N)
        finished = rows_where(done, seen, nothing)
        cstate = curriculum.update(update_key, state.curriculum, batch, finished)

        def mean(x, valid):
            return jnp.where(valid.any(), jnp.where(valid, x, 0).sum() / jnp.maximum(valid.sum(), 1), jnp.nan)

        metrics = {
            **metrics,
            "level_score": mean(finished.score, jnp.isfinite(finished.score)),
            "level_success": mean(finished.success, done),
            "levels_finished": done.mean(),
            "levels_replayed": (batch.slot >= 0).mean(),
            **described(batch),
            **curriculum.metrics(cstate),
        }
        rest = {"seen": rows_where(done, nothing, seen), "wanted": done}
        return state.replace(key=key, inner=inner, curriculum=cstate, **rest), metrics

    def restart(state, key, env_params, mask):
        """The curriculum is told nothing of what is played there now: the next rollout is on a level of its choice."""
        inner = student.restart(state.inner, key, env_params, mask)
        seen = rows_where(mask, nothing_seen(N), state.seen)
        return state.replace(inner=inner, seen=seen, wanted=state.wanted | mask)

    return around(
        student,
        curriculum.name,
        (curriculum.settings, score, success_above),
        hyper=hyper_of_both,
        init=init,
        collect=collect,
        learn=learn,
        restart=restart,
        # Who copies another's curriculum plays its own levels to their end: a curriculum knows levels by what they are.
        slots=(*(f"inner.{path}" for path in student.slots), "batch", "seen", "wanted"),
    )
