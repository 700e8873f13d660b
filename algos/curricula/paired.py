"""Protagonist antagonist induced regret environment design: a third agent builds levels on which two students differ.

Dennis et al. (2020), "Emergent Complexity and Zero-shot Transfer via Unsupervised Environment Design"
(arXiv:2012.02096), in the parallel form of minimax (Jiang et al. 2023, arXiv:2311.12716):

    each update   the designer builds N levels, one an episode of its own environment
                  protagonist and antagonist, two students of one kind, each play all N, in as many episodes as fit
                  the designer is rewarded, with the last step of each level, by the regret
                      max over the antagonist's episodes of the return - mean over the protagonist's, at least 0
                  all three learn

so the designer looks for levels that can be solved, but not yet by the protagonist, which is what is deployed. Who
finished no episode on a level returned 0 there. `Config.reward` has the variants: `mean` takes the mean of the
antagonist, too; `population` the highest return of any of `num_students` minus the mean over all of them, which then
are equals; `minimax` is the adversary without an antagonist, rewarded by minus the mean return of a single student.

`state.step` and `steps_per_update` count the steps of all students, twice those of one (as minimax and JaxUED count),
while `anneal_steps` of the students' hyper counts those of one. The designer's own steps are the metric
`designer_steps`. Metrics without a prefix are the protagonist's, `level_*` means over levels.

The designer's environment must have `deterministic` transitions and episodes as long as its rollouts: its last states,
which a vectorised environment resets at once, are found by doing its actions again. Any student fits,
and any designer whose rollouts have `action`, `reward` and `terminated`, as those of ppo and ppo_rnn.

Deviations: levels of which neither student finished an episode reward nothing. JaxUED's regret may be negative, and its
designer bootstraps from the value after the last step. Students of a kind run as one, vmapped. Use:

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
from jaxrl.curriculum.attachment import outcomes
from jaxrl.curriculum.protocol import Outcomes, check_levels, new_levels
from jaxrl.curriculum.scores import algorithmic_regret
from jaxrl.curriculum.task import Task, with_params_of
from jaxrl.environment import pytree, strongly_typed
from jaxrl.nesting import OuterState, around, complete_hyper, join_hyper, split_hyper, with_settings
from jaxrl.rollout import Ends, in_all
from jaxrl.spaces import environment_action
from jaxrl.vectorize import vectorize

REWARDS = ("regret", "mean", "population", "minimax")


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    reward: str = "regret"  # of the designer; or "mean", "population", "minimax"
    num_students: int = 2  # the protagonist first

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
    """The public fields are the protagonist's, but for `step` and `weights`, which are of all."""

    key: jax.Array
    inner: Any  # states of the students, leading axis M; the protagonist first
    designer: Any

    def student(self, which: int) -> Any:
        """The state of one student: 0 the protagonist, 1 the antagonist. Also of many runs, whose axes come before."""
        axis = self.inner.step.ndim - 1
        return jax.tree.map(lambda x: jax.lax.index_in_dim(x, which, axis, keepdims=False), self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.student(0), name) if name in PUBLIC else super().__getattr__(name)

    @property
    def hyper(self) -> Any:
        return join_hyper(self.student(0).hyper, "designer", self.designer.hyper)

    @property
    def step(self) -> Any:
        return in_all(self.inner.step)

    @property
    def weights(self) -> Any:
        return {"students": self.inner.weights, "designer": self.designer.weights}

    def replace(self, **changes: Any) -> PAIREDState:
        """A copy with fields changed, as they are read: those of a student are the protagonist's."""
        own = {name: changes.pop(name) for name in ("key", "inner", "designer") if name in changes}
        state = super().replace(**own)
        if weights := changes.pop("weights", None):
            designer = state.designer.replace(weights=weights["designer"])
            state = state.replace(inner=state.inner.replace(weights=weights["students"]), designer=designer)
        if "hyper" in changes:  # init gives all the same
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
    students: Any  # rollouts, (M, T, N)
    designer: Any  # (T', N), still without what the students' returns make of it
    levels: Any  # leading axis N
    ends: Ends  # the protagonist's


# ---- the designer's reward


def mean_regret(agent: Outcomes, antagonist: Outcomes) -> Float[Array, " N"]:
    """The mean return of the antagonist minus the agent's, at least 0; who finished no episode returned 0."""
    return jnp.maximum(antagonist.episode_return - agent.episode_return, 0)


def population_regret(seen: Outcomes) -> Float[Array, " N"]:
    """The highest return of any student minus the mean over all, at least 0, of leaves (M, N)."""
    best = jnp.where(seen.episodes > 0, seen.max_return, 0).max(0)
    return jnp.maximum(best - seen.episode_return.mean(0), 0)


def designer_reward(seen: Outcomes, reward: str) -> Float[Array, " N"]:
    """What each level earns its designer, of the students' outcomes (M, N); 0 where nobody finished an episode."""
    if reward == "population":
        return population_regret(seen)
    if reward == "minimax":
        return -seen.episode_return[0]
    pair = (jax.tree.map(lambda x, i=i: x[i], seen) for i in range(2))
    regret = (algorithmic_regret if reward == "regret" else mean_regret)(*pair)
    return jnp.where(jnp.isfinite(regret), regret, 0)


def rewarded(rollout: Any, reward: Float[Array, " N"]) -> Any:
    """The designer's rollout, each of whose last steps earned this, too; nothing comes after it."""
    done, returns, lengths = rollout.ends
    return rollout._replace(
        reward=rollout.reward.at[-1].add(reward),
        terminated=rollout.terminated.at[-1].set(True),
        ends=Ends(done.at[-1].set(True), returns.at[-1].add(reward), lengths),
    )


# ---- the algorithm


def last_states(env: Any, state: Any, action: Array, params: Any) -> tuple[Any, Bool[Array, "T N"]]:
    """`(states, ends)` of N episodes: the states after their actions (T, N, ...), without any reset."""

    def step(state, action):
        # The key does not matter, as the environment is deterministic.
        ts = jax.vmap(env.step, (None, 0, 0, None))(jax.random.key(0), state, action, params)
        return ts.state, ts.terminated | ts.truncated

    return jax.lax.scan(step, state, action)


def make(
    student: Algorithm,
    designer: Algorithm,
    level_fn: Callable[[Any], Any],
    config: Config = Config(),
    designer_hyper: Any = None,
) -> Algorithm:
    """PAIRED around a student and the designer of its levels. An Algorithm again, whose policy is the protagonist's.

    Args:
        student: on environments with batched params.
        designer: on an environment that builds a level in each episode, with as many slots as the student.
        level_fn: the level of a state after the last step, as `editor.level`.
        designer_hyper: dynamic settings of the designer, unless `init` is given others as `hyper.designer`.

    `env_params` given to `init` are those of the designer's environment.

    Raises ValueError for environments that do not fit each other or are not as said above.
    """
    venv, design, many = student.venv, designer.venv, config.num_students
    _check(student, designer)
    defaults = strongly_typed(complete_hyper(designer, designer_hyper))

    def init(key: Array, hyper: Any = None, env_params: Any = None) -> PAIREDState:
        key, student_key, designer_key = jax.random.split(key, 3)
        hyper, of_designer = split_hyper(hyper, "designer", defaults)
        begun = designer.init(designer_key, of_designer, env_params)
        students = jax.vmap(lambda key: student.init(key, hyper))(jax.random.split(student_key, many))
        state = PAIREDState(key, students, begun)
        levels = jax.eval_shape(lambda state: strongly_typed(jax.vmap(level_fn)(state)), begun.env_state.env)
        check_levels("paired", levels, state.env_params, f"{venv.num_envs} params of {venv.env.id}")
        return state

    def collect(state: PAIREDState) -> tuple[PAIREDState, PAIREDRollout]:
        key, restart_key = jax.random.split(state.key)
        before = state.designer
        built, made = designer.collect(before)
        action = environment_action(design.env.action_space(before.env_params), made.action)
        finished, _ = last_states(design.env, before.env_state.env, action, before.env_params)
        levels = strongly_typed(jax.vmap(level_fn)(finished))

        def play(key, state):
            return student.collect(student.restart(state, key, levels, jnp.ones(venv.num_envs, bool)))

        students, rollouts = jax.vmap(play)(jax.random.split(restart_key, many), state.inner)
        ends = jax.tree.map(lambda x: x[0], rollouts.ends)
        return PAIREDState(key, students, built), PAIREDRollout(rollouts, made, levels, ends)

    def learn(state: PAIREDState, rollout: PAIREDRollout) -> tuple[PAIREDState, dict[str, Array]]:
        def returns(rollout):
            return outcomes(rollout, new_levels(levels), lambda rollout, batch, seen, hyper: seen.score, None)

        levels = rollout.levels
        seen = jax.vmap(returns)(rollout.students)
        reward = designer_reward(seen, config.reward)
        students, metrics = jax.vmap(student.learn)(state.inner, rollout.students)
        built, of_designer = designer.learn(state.designer, rewarded(rollout.designer, reward))
        metrics = {
            **{name: x[0] for name, x in metrics.items()},
            "level_success": seen.success[0].mean(),
            "level_return": seen.episode_return[0].mean(),
            "level_best_return": jnp.where(seen.episodes > 0, seen.max_return, 0).max(0).mean(),  # of all students
            "designer_reward": reward.mean(),
            "designer_loss": of_designer["loss"],
            "designer_steps": jnp.int32(designer.steps_per_update),
        }
        return PAIREDState(state.key, students, built), metrics

    def restart(state: PAIREDState, key: Array, levels: Any, mask: Array) -> PAIREDState:
        """Of all students."""
        keys = jax.random.split(key, many)
        begun = jax.vmap(student.restart, (0, 0, None, None))(state.inner, keys, levels, mask)
        return state.replace(inner=begun)

    slots = [f"inner.{path}" for path in student.slots] + [f"designer.{path}" for path in designer.slots]
    return around(
        student,
        "paired",
        (config, level_fn, designer.name, designer.config, *designer.around),
        steps_per_update=many * student.steps_per_update,
        hyper=with_settings(student.hyper, "designer", defaults),
        init=init,
        collect=collect,
        learn=learn,
        policy=lambda state: student.policy(state.student(0)),
        restart=restart,
        slots=tuple(slots),
    )


def for_task(task: Task, config: Config) -> Algorithm:
    """`--curriculum paired`: levels are built in the environment's own `editor()`, by a designer of the student's kind.

    Raises ValueError for an environment without one, and for ranges, which no designer reads.
    """
    kit = task.env.levels
    if task.box is not None or kit is None or kit.editor is None:
        raise ValueError(f"paired: {task.env.id} has no `editor` in which a designer builds levels; mazes have.")
    editor, level_fn = kit.editor()
    designer = task.learner(editor, dataclasses.replace(task.config, num_steps=editor.num_steps))
    venv = vectorize(task.levels, task.config.num_envs, batched_params=True)
    algo = make(task.learner(venv, task.config), designer, level_fn, config)
    return with_params_of(algo, lambda params: editor.default_params)


def _check(student: Algorithm, designer: Algorithm) -> None:
    """Raise ValueError unless the designer can build the student's levels."""
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

    with jax.ensure_compile_time_eval():  # `make` may be traced
        ends = np.flatnonzero(episode(jax.random.key(0)))
    if ends.tolist() != [num_steps - 1]:
        length = f"end after {ends[0] + 1}" if len(ends) else f"do not end within {num_steps}"
        raise ValueError(
            f"paired: num_steps={num_steps} of the designer must be the length of its episodes; those of {env.id} "
            f"{length} steps."
        )
