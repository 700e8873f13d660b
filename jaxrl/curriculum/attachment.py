"""A student under a curriculum: an Algorithm that trains on the levels which the curriculum chooses."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import Algorithm
from jaxrl.calls import recorded
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, check_levels, new_levels
from jaxrl.environment import check_params, is_concrete, pytree, strongly_typed
from jaxrl.math import rarely
from jaxrl.nesting import OuterState, around, split_hyper, with_settings
from jaxrl.rollout import Ends, rollout, ticked
from jaxrl.vector_env import rows_where, vectorize

# ---- outcomes of episodes on levels


def outcomes_of(
    rollout: Any,
    batch: LevelBatch,
    score: Callable[..., Array] | None,
    hyper: Any,
    success_above: float = 0.0,
    before: Outcomes | None = None,
) -> Outcomes:
    """The outcomes of a rollout (T, N), for the level in each of N slots.

    Args:
        score: of levels, as `Curriculum.score`; None: all scores are -inf.
        hyper: the student's settings, which `score` reads.
        success_above: an episode succeeds if its return is higher.
        before: the outcomes of earlier rollouts on the same levels, which are counted in.

    `score` gets the outcomes of all these episodes, but only the steps of this rollout. In a slot where no episode
    ended in this rollout the score of `before` is kept.
    """
    done, returns, lengths = rollout.ends
    episodes = done.sum(0, dtype=jnp.int32)

    def mean(x):
        return jnp.where(done, x, 0).sum(0) / jnp.maximum(episodes, 1)

    best = jnp.max(jnp.where(done, returns, -jnp.inf), axis=0)
    outcomes = Outcomes(
        episode_return=mean(returns),
        episode_length=mean(lengths),
        success=mean(returns > success_above),
        score=jnp.full(episodes.shape, -jnp.inf),
        max_return=jnp.maximum(batch.max_return, best),
        episodes=episodes,
    )
    ended_now = episodes > 0
    if before is not None:
        outcomes = merged(before, outcomes)
    if score is None:
        return outcomes
    return outcomes._replace(score=jnp.where(ended_now, score(rollout, batch, outcomes, hyper), outcomes.score))


def no_outcomes(n: int) -> Outcomes:
    """The outcomes of n levels on which no episode has ended."""
    zero = jnp.zeros(n)
    worst = zero - jnp.inf
    return Outcomes(zero, zero, zero, score=worst, max_return=worst, episodes=jnp.zeros(n, jnp.int32))


def merged(before: Outcomes, now: Outcomes) -> Outcomes:
    """The outcomes of all episodes of two rollouts on the same levels. The score is that of `before`."""
    episodes = before.episodes + now.episodes

    def mean(x, y):
        return (x * before.episodes + y * now.episodes) / jnp.maximum(episodes, 1)

    return Outcomes(
        *map(mean, before[:3], now[:3]),
        score=before.score,
        max_return=jnp.maximum(before.max_return, now.max_return),
        episodes=episodes,
    )


class LookRollout(NamedTuple):
    """The result of a look at N levels over T steps: where episodes ended."""

    ends: Ends  # (T, N)


def look(student: Algorithm, state: Any, key: Array, levels: Any, num_steps: int) -> LookRollout:
    """`num_steps` steps of the student's policy on each of N levels, without learning from them.

    An episode that ends is followed by another one on the same level. The student's `state` is not changed.
    """
    n = jax.tree.leaves(levels)[0].shape[0]
    venv, policy = vectorize(student.venv.env, n, batched_params=True), student.policy(state)
    reset_key, run_key = jax.random.split(key)
    obs, env_state = venv.reset(reset_key, levels)

    def act(key, obs, carry):
        action, carry = student.act(policy, key, obs, carry)
        return action, (), carry

    fresh = student.initial_carry((n,))

    def ended(carry, done):
        return rows_where(done, fresh, carry)

    visitor = state.replace(key=run_key, obs=obs, env_state=env_state, env_params=levels)
    steps = rollout(venv, visitor, num_steps, act, fresh, ended)[2]
    return LookRollout(steps.ends)


# ---- the algorithm


@pytree
class AttachedState(OuterState):
    """The student's state, the curriculum's state, and the level that each of N slots plays.

    `step` counts all environment steps; `inner.step` counts those that the student learned from, by which its
    schedules anneal.
    """

    key: jax.Array
    step: jax.Array
    inner: Any  # the student's state
    curriculum: Any  # the curriculum's state; its dynamic settings, if it has any, are the field `hyper`
    batch: LevelBatch  # leading axis N
    outcomes: Outcomes  # of earlier rollouts on levels that the slots still play
    wanted: jax.Array  # (N,) bool: the slot gets another level before the next rollout

    # `hyper` has the student's settings and one more field, `curriculum`, for the settings of the curriculum.
    SETTINGS = ("curriculum", "curriculum.hyper")


class AttachedRollout(NamedTuple):
    """A student's rollout and the levels it was made on."""

    student: Any
    batch: LevelBatch

    @property
    def ends(self) -> Ends:
        """Where episodes of the student's rollout ended."""
        return self.student.ends


@dataclasses.dataclass(frozen=True)
class _Attached:
    """Student and curriculum; its methods are the Algorithm's functions."""

    student: Algorithm
    curriculum: Curriculum
    success_above: float

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> AttachedState:
        venv, N = self.student.venv, self.student.venv.num_envs
        key, curriculum_key, student_key, check_key = jax.random.split(key, 4)
        hyper, own = split_hyper(hyper, "curriculum", self.curriculum.hyper)
        env_params = venv.env.default_params if env_params is None else env_params
        cstate = self.curriculum.init(curriculum_key, own, env_params)
        # The student starts on the default params: `collect` draws levels before the student acts for the first time.
        inner = self.student.init(student_key, hyper)
        everywhere = jnp.ones(N, bool)
        shapes = jax.eval_shape(self.sample, key, cstate, everywhere)[0]
        check_levels("attach", shapes.params, inner.env_params, f"{N} params of {venv.env.id}")
        if is_concrete((key, cstate)):
            check_params(venv.env, jax.jit(self.sample)(check_key, cstate, everywhere)[0].params)
        batch = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return AttachedState(key, inner.step, inner, cstate, batch, no_outcomes(N), everywhere)

    def sample(self, key: Array, cstate: Any, wanted: Bool[Array, " N"]) -> tuple[LevelBatch, Any]:
        """The curriculum's levels, with the dtypes of params."""
        batch, cstate = self.curriculum.sample(key, cstate, wanted)
        return batch._replace(params=strongly_typed(batch.params)), cstate

    def look(self, student_state: Any, key: Array, levels: Any, num_steps: int) -> Outcomes:
        """Outcomes of the student on levels that it does not learn from: a `Look` of the protocol."""
        steps: Any = look(self.student, student_state, key, levels, num_steps)
        return outcomes_of(steps, new_levels(levels), self.curriculum.score, student_state.hyper, self.success_above)

    def collect(self, state: AttachedState) -> tuple[AttachedState, AttachedRollout]:
        """The curriculum chooses levels for the slots that want one; then the student collects a rollout."""
        key, sample_key, restart_key = jax.random.split(state.key, 3)
        wanted, cstate = state.wanted, state.curriculum
        if self.curriculum.refresh is not None:
            key, refresh_key = jax.random.split(key)
            cstate = self.curriculum.refresh(refresh_key, cstate, functools.partial(self.look, state.inner))

        def chosen():
            batch, after = self.sample(sample_key, cstate, wanted)
            return rows_where(wanted, batch, state.batch), after

        batch, after = rarely(wanted.any(), chosen, (state.batch, cstate))
        inner = self.student.restart(state.inner, restart_key, batch.params, wanted)
        inner, student_rollout = self.student.collect(inner)
        step = ticked(state.step, self.student.steps_per_update)
        state = state.replace(key=key, step=step, inner=inner, curriculum=after, batch=batch)
        return state, AttachedRollout(student_rollout, batch)

    def learn(self, state: AttachedState, rollout: AttachedRollout) -> tuple[AttachedState, dict[str, Array]]:
        """The student learns; then the curriculum gets the outcomes of the levels that slots are done with."""
        curriculum, N = self.curriculum, self.student.venv.num_envs
        key, update_key = jax.random.split(state.key)
        batch = rollout.batch
        inner, metrics = self.student_learn(state.inner, rollout.student, batch.learn_mask)
        outcomes = outcomes_of(
            rollout.student, batch, curriculum.score, state.inner.hyper, self.success_above, state.outcomes
        )
        cstate = state.curriculum
        if curriculum.assess is not None:
            update_key, assess_key = jax.random.split(update_key)
            found, cstate = curriculum.assess(assess_key, cstate, rollout.student, batch, outcomes, state.inner.hyper)
            ended = rollout.ends.done.any(0)
            outcomes = outcomes._replace(score=jnp.where(ended, found, outcomes.score))
        done = outcomes.episodes > 0
        done = jnp.full(N, done.all()) if curriculum.whole_batches else done
        none = no_outcomes(N)
        finished = rows_where(done, outcomes, none)
        cstate = curriculum.update(update_key, cstate, batch, finished)
        metrics = {
            **metrics,
            "level_score": mean_where(finished.score, jnp.isfinite(finished.score)),
            "level_success": mean_where(finished.success, done),
            "levels_finished": done.mean(),
            "levels_replayed": (batch.slot >= 0).mean(),
            **self.described(batch),
            **curriculum.metrics(cstate),
        }
        state = state.replace(
            key=key, inner=inner, curriculum=cstate, outcomes=rows_where(done, none, outcomes), wanted=done
        )
        return state, metrics

    def student_learn(self, inner: Any, rollout: Any, learn_mask: Bool[Array, " N"]) -> tuple[Any, dict[str, Array]]:
        """The student's `learn`, without the steps of slots where `learn_mask` is False, which are not counted."""
        student, N = self.student, self.student.venv.num_envs
        if self.curriculum.score is None and self.curriculum.assess is None:
            return student.learn(inner, rollout)
        missing = {"value", "next_value", "learn_mask"} - set(rollout._fields)
        if missing:
            raise ValueError(
                f"attach: rollouts of {student.name} have no {', '.join(sorted(missing))}, by which levels are scored "
                "and learning is held back; those of ppo and ppo_rnn have. Curricula without a score, as dr and "
                "teachers, need neither."
            )
        rollout = rollout._replace(learn_mask=learn_mask)
        inner, metrics = jax.lax.cond(learn_mask.any(), student.learn, self.learn_nothing, inner, rollout)
        held_back = student.steps_per_update // N * jnp.sum(~learn_mask, dtype=inner.step.dtype)
        at_end = inner.step == np.iinfo(np.int32).max  # the step counter stays at its largest value
        metrics = {**metrics, "learned": learn_mask.any().astype(jnp.int32)}
        return inner.replace(step=jnp.where(at_end, inner.step, inner.step - held_back)), metrics

    def learn_nothing(self, inner: Any, rollout: Any) -> tuple[Any, dict[str, Array]]:
        """Replaces the student's `learn` where it learns from no slot: the state is unchanged, losses are NaN."""
        metrics = jax.eval_shape(self.student.learn, inner, rollout)[1]

        def nothing(x):
            return jnp.full(x.shape, jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else 0, x.dtype)

        return inner, {**jax.tree.map(nothing, metrics), **rollout.ends.metrics()}

    def described(self, batch: LevelBatch) -> dict[str, Array]:
        """`env.describe` of the levels, such as the number of walls of a maze: means over the rollout's levels."""
        told = jax.vmap(self.student.venv.env.describe)(batch.params)
        return {f"level/{name}": x.mean() for name, x in told.items()}

    def restart(self, state: AttachedState, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> AttachedState:
        """Starts episodes on `env_params` in the slots of `mask`.

        The curriculum gets no outcomes of them; before the next rollout it chooses another level for these slots.
        """
        inner = self.student.restart(state.inner, key, env_params, mask)
        outcomes = rows_where(mask, no_outcomes(self.student.venv.num_envs), state.outcomes)
        return state.replace(inner=inner, outcomes=outcomes, wanted=state.wanted | mask)


def mean_where(x: Float[Array, " N"], valid: Bool[Array, " N"]) -> Float[Array, ""]:
    """The mean of the valid entries; NaN if there is none."""
    return jnp.where(valid.any(), jnp.where(valid, x, 0).sum() / jnp.maximum(valid.sum(), 1), jnp.nan)


@recorded
def attach(student: Algorithm, curriculum: Curriculum, success_above: float = 0.0) -> Algorithm:
    """An Algorithm that trains `student` on the levels that `curriculum` chooses.

    A slot keeps its level until the first rollout in which an episode ends on it; the next rollout starts another
    level there. So rollouts may be shorter than episodes. The metric `levels_finished` is the share of slots that were
    done with their level. Means over levels, such as `level_score`, are over these slots, NaN if there is none.

    `env_params` given to `init` are those of the level distribution. `hyper` has the student's settings and one more
    field, `curriculum`, for the settings of the curriculum; without that field the curriculum uses its defaults.

    In a rollout where the student must not learn from any slot, no gradients are computed (under `vmap` they are) and
    the student does not change; nor does its step counter, by which its schedules anneal. Its losses are then NaN and
    the metric `learned` is 0.

    A curriculum with a score needs students whose rollouts have `value`, `next_value` and `learn_mask`, as those of
    ppo. If an episode is longer than a rollout, scores computed from steps (`max_mc` and the value losses) see its
    steps in the last rollout only; `learnability` and `oracle_regret` are computed from whole episodes. A curriculum
    without a score, such as domain randomisation or a teacher, lets the student learn from all levels, so students
    without values (sac, td3, dqn) work as well.

    Args:
        success_above: an episode succeeds if its return is higher.

    Raises ValueError unless the student's environments were vectorised with `batched_params=True`; in `init` for levels
    that are not params of the environment or, outside of transformations, that its `validate` refuses; in `learn` for
    rollouts that lack a field that scores need.
    """
    venv = student.venv
    if not venv.batched_params or venv.level_fn is not None:
        raise ValueError(
            "attach: the curriculum chooses each slot's level, so the student needs "
            f"vectorize(env, {venv.num_envs}, batched_params=True) and no level_fn."
        )
    hyper = student.hyper
    if curriculum.hyper is not None:
        hyper = with_settings(student.hyper, "curriculum", curriculum.hyper)
    attached = _Attached(student, curriculum, success_above)
    return around(
        student,
        curriculum.name,
        (curriculum.settings, curriculum.score, success_above),
        hyper=hyper,
        init=attached.init,
        collect=attached.collect,
        learn=attached.learn,
        restart=attached.restart,
        # A population may copy one member's state to another, except for these fields: the slots of the copy go on with
        # the levels that they play. The copied curriculum then gets outcomes of levels that it did not choose; it
        # compares a level with its buffer and does not rely on `LevelBatch.slot` alone.
        slots=(*(f"inner.{path}" for path in student.slots), "batch", "outcomes", "wanted"),
    )
