"""The shell of learners beside whom an expert sits, who at times acts in the learner's place (DAgger, HG-DAgger, RLIF).

The expert (`actors.Actor`) drives alone until `hyper.learning_starts` steps are done; these are its demonstrations.
Then the learner drives. With a `Takeover` the expert looks at what the learner is about to do after each of its steps:

- by "value": it takes over where its own action is worth more than the learner's by more than `hyper.threshold`, both
  followed by its own actions (`actors.value`); with probability `hyper.lapse_prob` it does the opposite;
- at "random": with probability `hyper.takeover_prob`.

It then acts for `config.expert_steps` steps, after which the learner acts for at least one. The first step of an
episode is the learner's. What is judged is what is then done, so a learner decides one step ahead, and a step is known
to have led to a takeover in the same rollout in which it was taken. Nothing is lost where an episode or a rollout ends.

Which steps are stored, and as what, is an algorithm's: the function `kept` of its rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from jaxrl import actors
from jaxrl.actors import Actor
from jaxrl.algorithm import Algorithm, check_at_least_one, restarted
from jaxrl.data.datasets import to_unit
from jaxrl.environment import is_concrete, pytree, visible
from jaxrl.math import light_key, stock_keys
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.off_policy import learner, steps
from jaxrl.replay.ring import Kept, kept
from jaxrl.rollout import Ends, step_keys, ticked
from jaxrl.spaces import environment_action
from jaxrl.vector_env import VectorEnv, rows_where

HOW = "value", "random"
"""How it is decided when the expert takes over."""


class Steps(NamedTuple):
    """What happened, leaves (N, ...), in a rollout (T, N, ...). Actions are in units of the box, or discrete."""

    obs: Any
    action: Array  # what was done
    expert_action: Array  # what the expert does in this state
    reward: Array  # the task's
    terminated: Array
    next_obs: Any  # of the true successor
    by_expert: Array  # bool: the expert did it
    taken_over: Array  # bool: the learner did it, and in the state where it led to the expert takes over
    ends: Ends


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    transition: Kept  # what is stored, of `Transition`s, and which of them
    ends: Ends
    by_expert: Array
    taken_over: Array


class Rule(Protocol):
    """A `learner.Rule` that also says what is stored."""

    def kept(self, taken: Steps) -> Kept:
        """Transitions of what was done, and which of them are stored."""
        ...


Trigger = Callable[[Array, Array, Array, Any], Array]
"""`(key, values (N,) of the expert's actions, of the learner's, hyper) -> (N,)`, True where the expert takes over."""


def by_value(
    key: Key[Array, ""], of_expert: Float[Array, " N"], of_learner: Float[Array, " N"], hyper: Any
) -> Bool[Array, " N"]:
    """Where the learner's action is worth less by more than `hyper.threshold`; with `hyper.lapse_prob` the opposite.

    A difference, which means the same whatever the sign of values is; the authors' code of RLIF has a factor.
    """
    return (of_expert - of_learner > hyper.threshold) ^ jax.random.bernoulli(key, hyper.lapse_prob, of_expert.shape)


class Takeover(NamedTuple):
    """When the expert takes over; hashable."""

    how: str  # a name of HOW
    trigger: Trigger = by_value
    horizon: int = 50  # steps of the rollouts by which actions are judged

    def decided(
        self,
        key: Array,
        venv: VectorEnv,
        expert: Actor,
        seen: tuple[Any, Any, Any],
        actions: Any,
        carry: Any,
        hyper: Any,
    ) -> Bool[Array, " N"]:
        """Whether it takes over where `seen`, `(env_state, obs, env_params)`, from `actions`, of expert and learner."""
        if self.how == "random":
            return jax.random.bernoulli(key, hyper.takeover_prob, (venv.num_envs,))
        value_key, key = jax.random.split(key)
        env_state, obs, env_params = seen

        def value(action: Array) -> Array:
            if expert.value is not None:
                return expert.value(value_key, env_state, obs, action, env_params, carry)
            rest = env_params, carry, hyper.gamma, self.horizon
            return actors.value(expert, venv.env, value_key, env_state, action, *rest)

        of_expert, of_learner = jax.vmap(value)(jnp.stack(actions))
        return self.trigger(key, of_expert, of_learner, hyper)


@pytree
class Watch:
    """What learner and expert are about to do, (N, ...), and how long the expert still acts."""

    action: jax.Array  # the learner's
    expert_action: jax.Array
    carry: Any  # what the expert remembers
    left: jax.Array  # (N,) int32: steps that the expert acts from here on


@pytree
class State(learner.State):
    watch: Watch


def check_takeover(config: Any) -> None:
    """Raise ValueError for an unknown `takeover` and counts below 1."""
    if config.takeover not in HOW:
        raise ValueError(f"takeover={config.takeover!r}: choose {' or '.join(HOW)}.")
    check_at_least_one(config, "expert_steps", "horizon")


@dataclasses.dataclass(frozen=True)
class Learner(learner.Learner):
    """A `learner.Learner` with an expert; `takeover` None: who never takes over."""

    slots: ClassVar = ("replay", "watch")

    expert: Any = None  # an Actor
    takeover: Takeover | None = None

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        state = super().init(key, hyper, env_params)
        starts = state.hyper.learning_starts
        if is_concrete(starts) and np.any(np.asarray(starts) < 1):
            raise ValueError(
                f"{self.name}: learning_starts={starts}: the expert begins, and drives for so many steps, 1 at least."
            )
        key, watch_key = jax.random.split(state.key)
        n, carry = self.venv.num_envs, self.expert.carries(self.venv.num_envs)
        seen = state.env_state.env, state.obs, state.env_params
        watch = self.ahead(self.policy(state), watch_key, seen, carry, jnp.zeros(n, jnp.int32))
        fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
        return State(**{**fields, "key": key}, watch=watch)

    def ahead(self, policy: Any, key: Array, seen: tuple[Any, Any, Any], carry: Any, left: Array) -> Watch:
        """What both are about to do where `seen`, `(env_state, obs, env_params)`."""
        own_key, expert_key = jax.random.split(key)
        env_state, obs, env_params = seen
        action, carry = self.expert.act(expert_key, env_state, obs, env_params, carry)
        own = self.explore(policy, own_key, visible(obs))
        return Watch(own, to_unit(self.action_space, jnp.asarray(action)).astype(own.dtype), carry, left)

    def collect(self, state: State) -> tuple[State, Rollout]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A rollout in which both act, of what the rule keeps."""
        policy, space, hyper = self.exploring(state), self.action_space, state.hyper
        n, num_steps, fresh = self.venv.num_envs, self.config.num_steps, self.expert.carries(self.venv.num_envs)
        alone = state.step < hyper.learning_starts
        key, rollout_key = jax.random.split(state.key)

        def step(carried: Any, key: Array) -> tuple[Any, Steps]:
            obs, env_state, watch = carried
            env_key, watch_key, decision_key = jax.random.split(light_key(key), 3)
            by_expert = alone | (watch.left > 0)
            action = rows_where(by_expert, watch.expert_action, watch.action)
            ts = self.venv.step(env_key, env_state, environment_action(space, action), state.env_params)
            done = ts.terminated | ts.truncated
            seen = ts.state.env, ts.obs, state.env_params
            carry, left = rows_where(done, fresh, watch.carry), jnp.maximum(watch.left - 1, 0)
            after = stock_keys(self.ahead(policy, watch_key, seen, carry, jnp.where(done, 0, left)))
            taken_over = jnp.zeros(n, bool)
            if self.takeover is not None:
                actions = [environment_action(space, x) for x in (after.expert_action, after.action)]
                asked = self.takeover.decided(decision_key, self.venv, self.expert, seen, actions, after.carry, hyper)
                taken_over = asked & ~by_expert & ~done
                after = after.replace(left=jnp.where(taken_over, self.config.expert_steps, after.left))
            ends = Ends(done, ts.info["episode_return"], ts.info["episode_length"])
            done_by = by_expert, taken_over
            taken = Steps(
                obs, action, watch.expert_action, ts.reward, ts.terminated, ts.info["final_obs"], *done_by, ends
            )
            return (ts.obs, ts.state, after), taken

        start = state.obs, state.env_state, state.watch
        (obs, env_state, watch), taken = jax.lax.scan(step, start, step_keys(rollout_key, num_steps))
        state = state.replace(
            key=key, obs=obs, env_state=env_state, watch=watch, step=ticked(state.step, num_steps * n)
        )
        return state, Rollout(self.rule.kept(taken), taken.ends, taken.by_expert, taken.taken_over)

    def learn(self, state: State, rollout: Rollout) -> tuple[State, dict[str, Array]]:  # pyright: ignore
        """Stores what is kept and takes the gradient steps that are due."""
        stored: Any = rollout.transition
        state, metrics = super().learn(state, steps.Rollout(stored, rollout.ends))
        told = {"expert_share": jnp.mean(rollout.by_expert), "interventions": jnp.sum(rollout.taken_over)}
        return state, {**metrics, **told}

    def restart(self, state: State, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> State:
        """As every `restart`; in the slots of `mask` both look at their new states."""
        key, watch_key = jax.random.split(key)
        state = restarted(self.venv, state, key, env_params, mask)
        n, old = self.venv.num_envs, state.watch
        seen = state.env_state.env, state.obs, state.env_params
        carry = rows_where(mask, self.expert.carries(n), old.carry)
        new = self.ahead(self.policy(state), watch_key, seen, carry, jnp.zeros(n, jnp.int32))
        return state.replace(watch=rows_where(mask, new, old))


def algorithm(
    name: str,
    venv: VectorEnv,
    config: Any,
    hyper: type,
    rule: Any,
    actor: Any,
    expert: Actor | None,
    takeover: Takeover | None = None,
    *,
    optimizer: OptimizerLike | None = None,
    critic: Any = None,
    num_critics: int = 2,
) -> Algorithm:
    """The Algorithm of a rule beside an expert. The arguments are those of `learner.algorithm`, without a dataset.

    Raises ValueError without an expert, for one that does not act in this environment, and for levels: a curriculum's,
    say, since an expert knows one task.
    """
    env, params = venv.env, venv.env.default_params
    if not isinstance(expert, Actor):
        raise ValueError(
            f"{name} needs an expert: --expert zoo:NAME, RUN, scripted or FILE.py:FUNCTION; in Python "
            "make(env, config, expert=jaxrl.actors.of_policy(algo, policy))."
        )
    if venv.batched_params or venv.level_fn is not None:
        raise ValueError(f"{name}: its expert acts in one task, and this VectorEnv of {env.id} has many, its levels.")
    observation_space, space = env.observation_space(params), env.action_space(params)
    _check_acts(name, expert, venv)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    memory = kept(config.buffer_size)
    settings = config, hyper, venv, observation_space, space, rule, actor, memory, chosen
    return Learner(name, *settings, expert=expert, takeover=takeover).algorithm(critic, num_critics)


def _check_acts(name: str, expert: Actor, venv: VectorEnv) -> None:
    """Raise ValueError for an expert that takes no observations of this environment, or whose actions are no actions
    here."""
    env, params, n = venv.env, venv.env.default_params, venv.num_envs
    space = env.action_space(params)

    def act(key: Array) -> Any:
        obs, state = venv.reset(key, params)
        return expert.act(key, state.env, obs, params, expert.carries(n))[0]

    try:
        action = jax.eval_shape(act, jax.random.key(0))
        found = f"gives actions {getattr(action, 'shape', action)}, where {space} needs {(n, *space.shape)}"
        fits = getattr(action, "shape", None) == (n, *space.shape)
    except Exception as error:  # noqa: BLE001  # of any library's functions
        fits, found = False, f"fails: {str(error).splitlines()[0]}"
    if not fits:
        raise ValueError(f"{name}: on observations of {env.id} the expert {found}.")
