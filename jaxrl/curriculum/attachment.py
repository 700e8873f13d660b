"""A curriculum put around a student: an Algorithm again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.algorithm import Algorithm
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, check_levels
from jaxrl.curriculum.scores import max_mc
from jaxrl.environment import is_concrete, pytree, strongly_typed
from jaxrl.rollout import Ends


def outcomes(
    rollout: Any, batch: LevelBatch, score: Callable[..., Array] | None, hyper: Any, success_above: float = 0.0
) -> Outcomes:
    """What a rollout (T, N) showed of the level in each slot. Episodes of a return above `success_above` succeed;
    without a `score`, all are -inf."""
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
    return seen if score is None else seen._replace(score=score(rollout, batch, seen, hyper))


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

    @property
    def ends(self) -> Ends:
        """The student's."""
        return self.student.ends


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
    if curriculum.scored and score is None:
        raise ValueError(f"attach: {curriculum.name} goes by scores of levels, so it needs a score, as max_mc.")

    everywhere = np.ones(venv.num_envs, bool)

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
        after, rollout = student.collect(student.restart(state.student, restart_key, batch.params, everywhere))
        return state.replace(key=key, student=after, curriculum=cstate), AttachedRollout(rollout, batch)

    def look(state, rollout):
        """In place of the student's `learn`."""
        metrics = jax.eval_shape(student.learn, state, rollout)[1]
        metrics = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)
        return state, {**metrics, **rollout.ends.metrics()}

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
        policy=lambda state: student.policy(state.student),
    )
