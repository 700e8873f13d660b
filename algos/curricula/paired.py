"""Protagonist antagonist induced regret environment design: a third agent builds levels on which two students differ.

Dennis et al. (2020), "Emergent Complexity and Zero-shot Transfer via Unsupervised Environment Design"
(arXiv:2012.02096), in the parallel form of minimax (Jiang et al. 2023, arXiv:2311.12716):

    collect   the designer builds N levels, each in one episode of its own environment
              protagonist and antagonist, two students of one kind, each play all N levels, in as many episodes as fit
    learn     the reward of the designer's last step on each level becomes the regret
                  highest return of the antagonist's episodes - mean return of the protagonist's, at least 0
              all three learn from their rollouts

So the designer looks for levels that can be solved, but not yet by the protagonist. The protagonist is deployed. A
student that finished no episode on a level counts as if it had returned 0 there. `Config.reward` has variants: `mean`
takes the mean return of the antagonist, too; `population` takes the highest return of any of `num_students` minus the
mean over all of them, all students being equals; `minimax` has no antagonist and takes minus the mean return of a
single student.

This is no `Curriculum` but an Algorithm around a student and a designer, as the designer learns, too. `state.step` and
`steps_per_update` count the steps of all students, twice those of one (as minimax and JaxUED count), while
`anneal_steps` of the students' settings counts the steps of one. The designer's steps are the metric `designer_steps`.
Metrics without a prefix are the protagonist's; `level_*` are means over levels.

The designer's environment must be `deterministic`, with episodes as long as the designer's rollouts. A vectorised
environment resets at the end of an episode, so its last states are found by repeating the actions (`last_states`). Any
student fits, and any designer whose rollouts have `action`, `reward` and `terminated`, as those of ppo and ppo_rnn.

Deviations: a level on which neither student finished an episode rewards nothing. The regret of JaxUED may be negative,
and its designer bootstraps from the value after the last step. Students are one program, vmapped. Usage:

    mazes, editor = make("Maze-v0")[0].as_levels(), make("MazeEditor-v0")[0]
    student = ppo_rnn.make(vectorize(mazes, 32, batched_params=True), ppo_rnn.Config(num_envs=32, num_steps=256))
    designer = ppo_rnn.make(editor, ppo_rnn.Config(num_envs=32, num_steps=editor.num_steps, conv=(128,)))
    algo = paired.make(student, designer, editor.level)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import PUBLIC, Algorithm, check_at_least_one
from jaxrl.calls import recorded
from jaxrl.curriculum.attachment import outcomes_of
from jaxrl.curriculum.protocol import Outcomes, check_levels, new_levels
from jaxrl.curriculum.scores import algorithmic_regret
from jaxrl.environment import pytree, strongly_typed
from jaxrl.nesting import OuterState, around, complete_hyper, join_hyper, split_hyper, with_settings
from jaxrl.rollout import Ends, in_all
from jaxrl.spaces import environment_action

REWARDS = ("regret", "mean", "population", "minimax")


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    reward: str = "regret"  # of the designer for a level; or "mean", "population", "minimax"
    num_students: int = 2  # the first one is the protagonist

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_students")
        if self.reward not in REWARDS:
            raise ValueError(f"reward={self.reward!r}: it is one of {', '.join(REWARDS)}.")
        fits, needs = self.num_students == 2, "2"
        if self.reward == "population":
            fits, needs = self.num_students >= 2, "at least 2"
        if self.reward == "minimax":
            fits, needs = self.num_students == 1, "1"
        if not fits:
            raise ValueError(f"num_students={self.num_students}: reward={self.reward!r} needs {needs}.")


@pytree
class PAIREDState(OuterState):
    """The states of M students and of the designer of their levels.

    Public fields of an algorithm's state, such as `obs`, are those of the protagonist, except `step`, which counts the
    steps of all students, and `weights`, which has the weights of all students and of the designer.
    """

    key: jax.Array
    inner: Any  # the students' states, leading axis M; the first is the protagonist
    designer: Any

    def student(self, which: int) -> Any:
        """The state of one student: 0 is the protagonist, 1 the antagonist.

        A batch of runs, whose axes come before the axis of students, gives a batch of states.
        """
        axis = self.inner.step.ndim - 1
        return jax.tree.map(lambda x: jax.lax.index_in_dim(x, which, axis, keepdims=False), self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.student(0), name) if name in PUBLIC else super().__getattr__(name)

    @property
    def hyper(self) -> Any:
        """The students' settings with one more field, `designer`, for the settings of the designer."""
        return join_hyper(self.student(0).hyper, "designer", self.designer.hyper)

    @property
    def step(self) -> Any:
        return in_all(self.inner.step)

    @property
    def weights(self) -> Any:
        return {"students": self.inner.weights, "designer": self.designer.weights}

    def replace(self, **changes: Any) -> PAIREDState:
        """A copy with fields changed.

        A public field of a student is changed for the protagonist; `hyper` and `step`, which all students share, are
        changed for all.
        """
        own = {name: changes.pop(name) for name in ("key", "inner", "designer") if name in changes}
        state = super().replace(**own)
        if weights := changes.pop("weights", None):
            designer = state.designer.replace(weights=weights["designer"])
            state = state.replace(inner=state.inner.replace(weights=weights["students"]), designer=designer)
        if "hyper" in changes:
            first, designers = split_hyper(changes.pop("hyper"), "designer", state.designer.hyper)
            axis = state.inner.step.ndim - 1
            hyper = jax.tree.map(
                lambda x, new: jnp.broadcast_to(jnp.expand_dims(new, axis), x.shape), state.inner.hyper, first
            )
            designer = state.designer.replace(hyper=designers)
            state = state.replace(inner=state.inner.replace(hyper=hyper), designer=designer)
        if "step" in changes:
            steps = state.inner.step
            each = jnp.broadcast_to(changes.pop("step")[..., None] // steps.shape[-1], steps.shape)
            state = state.replace(inner=state.inner.replace(step=each))
        if changes:
            first, before = state.student(0).replace(**changes), (slice(None),) * (state.inner.step.ndim - 1)
            state = state.replace(inner=jax.tree.map(lambda x, new: x.at[*before, 0].set(new), state.inner, first))
        return state


class PAIREDRollout(NamedTuple):
    """The rollouts of all students and of the designer, before the designer is rewarded."""

    students: Any  # (M, T, N)
    designer: Any  # (T', N), T' steps that build a level
    levels: Any  # leading axis N
    ends: Ends  # where the protagonist's episodes ended, (T, N)


# ---- the designer's reward


def mean_regret(agent: Outcomes, antagonist: Outcomes) -> Float[Array, " N"]:
    """The mean return of the antagonist minus that of the agent, at least 0; 0 for a student without an episode."""
    return jnp.maximum(antagonist.episode_return - agent.episode_return, 0)


def population_regret(outcomes: Outcomes) -> Float[Array, " N"]:
    """The highest return of any student minus the mean return of all, at least 0. Outcomes are (M, N)."""
    best = jnp.where(outcomes.episodes > 0, outcomes.max_return, 0).max(0)
    return jnp.maximum(best - outcomes.episode_return.mean(0), 0)


def designer_reward(outcomes: Outcomes, reward: str) -> Float[Array, " N"]:
    """The designer's reward for each level, from the students' outcomes (M, N); 0 where none finished an episode."""
    if reward == "population":
        return population_regret(outcomes)
    if reward == "minimax":
        return -outcomes.episode_return[0]
    protagonist, antagonist = (jax.tree.map(lambda x, i=i: x[i], outcomes) for i in range(2))
    regret = (algorithmic_regret if reward == "regret" else mean_regret)(protagonist, antagonist)
    return jnp.where(jnp.isfinite(regret), regret, 0)


def rewarded(rollout: Any, reward: Float[Array, " N"]) -> Any:
    """The designer's rollout with `reward` added to the last step of each level, which becomes a terminal one."""
    done, returns, lengths = rollout.ends
    return rollout._replace(
        reward=rollout.reward.at[-1].add(reward),
        terminated=rollout.terminated.at[-1].set(True),
        ends=Ends(done.at[-1].set(True), returns.at[-1].add(reward), lengths),
    )


# ---- the algorithm


def last_states(env: Any, state: Any, action: Array, params: Any) -> tuple[Any, Bool[Array, "T N"]]:
    """`(states, done)`: the states of N environments after T actions (T, N, ...), without a reset.

    `done` marks the steps that ended an episode.
    """

    def step(state, action):
        # The key does not matter, as the environment is deterministic.
        ts = jax.vmap(env.step, (None, 0, 0, None))(jax.random.key(0), state, action, params)
        return ts.state, ts.terminated | ts.truncated

    return jax.lax.scan(step, state, action)


@dataclasses.dataclass(frozen=True)
class _PAIRED:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    student: Algorithm
    designer: Algorithm
    level_of_state: Callable[[Any], Any]
    config: Config
    designer_hyper: Any  # default settings of the designer

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> PAIREDState:
        key, student_key, designer_key = jax.random.split(key, 3)
        hyper, of_designer = split_hyper(hyper, "designer", self.designer_hyper)
        designer = self.designer.init(designer_key, of_designer, env_params)
        keys = jax.random.split(student_key, self.config.num_students)
        students = jax.vmap(lambda key: self.student.init(key, hyper))(keys)
        state = PAIREDState(key, students, designer)
        levels, venv = jax.eval_shape(self.levels, designer.env_state.env), self.student.venv
        check_levels("paired", levels, state.env_params, f"{venv.num_envs} params of {venv.env.id}")
        return state

    def levels(self, designed: Any) -> Any:
        """The levels of N states of the designer's environment, with the dtypes of params."""
        return strongly_typed(jax.vmap(self.level_of_state)(designed))

    def collect(self, state: PAIREDState) -> tuple[PAIREDState, PAIREDRollout]:
        """The designer builds levels; then every student plays all of them."""
        key, restart_key = jax.random.split(state.key)
        design, before = self.designer.venv.env, state.designer
        designer, designer_rollout = self.designer.collect(before)
        action = environment_action(design.action_space(before.env_params), designer_rollout.action)
        finished, _ = last_states(design, before.env_state.env, action, before.env_params)
        levels = self.levels(finished)

        def play(key, inner):
            everywhere = jnp.ones(self.student.venv.num_envs, bool)
            return self.student.collect(self.student.restart(inner, key, levels, everywhere))

        keys = jax.random.split(restart_key, self.config.num_students)
        students, rollouts = jax.vmap(play)(keys, state.inner)
        ends = jax.tree.map(lambda x: x[0], rollouts.ends)
        return PAIREDState(key, students, designer), PAIREDRollout(rollouts, designer_rollout, levels, ends)

    def learn(self, state: PAIREDState, rollout: PAIREDRollout) -> tuple[PAIREDState, dict[str, Array]]:
        """The designer is rewarded by the students' outcomes; then all learn."""
        batch = new_levels(rollout.levels)
        outcomes = jax.vmap(lambda rollout: outcomes_of(rollout, batch, None, None))(rollout.students)
        reward = designer_reward(outcomes, self.config.reward)
        students, metrics = jax.vmap(self.student.learn)(state.inner, rollout.students)
        designer, of_designer = self.designer.learn(state.designer, rewarded(rollout.designer, reward))
        best = jnp.where(outcomes.episodes > 0, outcomes.max_return, 0).max(0)  # of all students
        metrics = {
            **{name: x[0] for name, x in metrics.items()},
            "level_success": outcomes.success[0].mean(),
            "level_return": outcomes.episode_return[0].mean(),
            "level_best_return": best.mean(),
            "designer_reward": reward.mean(),
            "designer_loss": of_designer["loss"],
            "designer_steps": jnp.int32(self.designer.steps_per_update),
        }
        return PAIREDState(state.key, students, designer), metrics

    def policy(self, state: PAIREDState) -> Any:
        """The policy of the protagonist."""
        return self.student.policy(state.student(0))

    def restart(self, state: PAIREDState, key: Array, levels: Any, mask: Bool[Array, " N"]) -> PAIREDState:
        """Episodes of all students begin on `levels` in the slots of `mask`."""
        keys = jax.random.split(key, self.config.num_students)
        students = jax.vmap(self.student.restart, (0, 0, None, None))(state.inner, keys, levels, mask)
        return state.replace(inner=students)


@recorded
def make(
    student: Algorithm,
    designer: Algorithm,
    level_of_state: Callable[[Any], Any],
    config: Config = Config(),
    designer_hyper: Any = None,
) -> Algorithm:
    """PAIRED around a student and the designer of its levels: an Algorithm whose policy is the protagonist's.

    Args:
        student: on environments with batched params.
        designer: on an environment that builds a level in each episode, with as many slots as the student.
        level_of_state: the level of that environment's state after the last step, such as `editor.level`.
        designer_hyper: dynamic settings of the designer, unless `init` is given others as `hyper.designer`.

    `env_params` given to `init` are those of the designer's environment.

    Raises ValueError for environments that do not fit each other or are not as said above.
    """
    _check(student, designer)
    defaults = strongly_typed(complete_hyper(designer, designer_hyper))
    made = _PAIRED(student, designer, level_of_state, config, defaults)
    slots = [f"inner.{path}" for path in student.slots] + [f"designer.{path}" for path in designer.slots]
    return around(
        student,
        "paired",
        (config, level_of_state, designer.name, designer.config, *designer.around),
        steps_per_update=config.num_students * student.steps_per_update,
        hyper=with_settings(student.hyper, "designer", defaults),
        init=made.init,
        collect=made.collect,
        learn=made.learn,
        policy=made.policy,
        restart=made.restart,
        slots=tuple(slots),
    )


def _check(student: Algorithm, designer: Algorithm) -> None:
    """Raise ValueError unless the designer can build the student's levels. It plays one episode, to see its length."""
    venv, design = student.venv, designer.venv
    if not venv.batched_params or venv.level_fn is not None:
        raise ValueError(
            "paired: the designer makes each slot's level, so the student needs "
            f"vectorize(env, {venv.num_envs}, batched_params=True) and no level_fn."
        )
    if design.batched_params or design.level_fn is not None:
        raise ValueError("paired: the designer's slots share their params: no batched_params and no level_fn for it.")
    if venv.num_envs != design.num_envs:
        raise ValueError(f"paired: the student plays {venv.num_envs} levels and the designer makes {design.num_envs}.")
    env = design.env
    if not env.hints.deterministic:
        raise ValueError(f"paired: steps of {env.id} are random, deterministic=False, and cannot be done again.")
    num_steps, params = designer.steps_per_update // design.num_envs, env.default_params

    @jax.jit
    def episode(key: Array) -> Array:
        reset_key, action_key = jax.random.split(key)
        state = jax.vmap(env.reset, (0, None))(reset_key[None], params)[1]
        action = jax.vmap(env.action_space(params).sample)(jax.random.split(action_key, num_steps))
        return last_states(env, state, jax.tree.map(lambda x: x[:, None], action), params)[1][:, 0]

    with jax.ensure_compile_time_eval():  # as `make` may be called inside a transformation
        ends = np.flatnonzero(episode(jax.random.key(0)))
    if ends.tolist() != [num_steps - 1]:
        length = f"end after {ends[0] + 1}" if len(ends) else f"do not end within {num_steps}"
        raise ValueError(
            f"paired: num_steps={num_steps} of the designer must be the length of its episodes; those of {env.id} "
            f"{length} steps."
        )
