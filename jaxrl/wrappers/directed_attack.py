"""A wrapper in which the agent is the attacker of a policy: it learns which way the victim's action is best pushed.

After Sun et al. (2022), "Who is the strongest enemy? Towards optimal and efficient evasion attacks in deep RL" (PA-AD):
the strongest attack on what a policy sees solves a decision problem whose actions are as large as observations. So it
is divided. A director chooses a direction d in the space of the victim's actions; an actor finds what to show,

    seen = argmax over |seen - obs| <= strength * unit of <d, push(victim, seen)>,

by projected signs of gradients, without learning. The director is any learner of this library, as its task is an
environment; strength and victim are leaves, so directors of all strengths are trained in one program:

    task = DirectedAttack(env, act, push)
    state, _ = jaxrl.train(ppo.make(task), key, 300_000, hyper, task.attacking(env_params, 0.1, victim=policy))

The director sees the true observation, and is paid minus the task's reward: minus its return is the victim's under
attack.

Deviations from the paper: there the actor makes the policy's change as large as it can, subject to its pointing along
d, and begins at the true observation; here it makes the component along d large, beginning at a random point of the
ball, and keeps the better of that point and of `steps` projected steps. Of choices it pushes logits, there
probabilities. For an action of one number the two agree. `push` is to be differentiable where the action is clipped to
a box, as a mean is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import Hints, Levels, Transition
from jaxrl.spaces import Box, Discrete, Space
from jaxrl.wrappers.attacks import AttackParams, ObservationAttack
from jaxrl.wrappers.base import KeepsObservation, WrapperState


@dataclasses.dataclass(frozen=True)
class Push:
    """The loss of `ObservationAttack` that the actor increases; its victim is `(victim, direction)`."""

    push: Callable[[Any, Any], Any]

    def __call__(self, victim: tuple[Any, Array], obs: Any, seen: Any) -> Float[Array, ""]:
        weights, direction = victim
        pushed = jnp.ravel(self.push(weights, seen))
        if pushed.shape != direction.shape:
            raise TypeError(f"DirectedAttack: push gives {pushed.shape}; the director's actions are {direction.shape}.")
        return jnp.dot(direction, pushed)


@dataclasses.dataclass(frozen=True)
class DirectedAttack(KeepsObservation):
    """Actions are directions in [-1, 1] of the victim's action, a number for each of its numbers or choices.

    The reward is minus the task's, which is `info["task_reward"]`. Raises ValueError where several agents act, where
    actions are neither numbers nor one choice, and as `ObservationAttack`; a step raises it for params without a
    victim, as the default ones are, and TypeError for a push of another size.
    """

    act: Callable[[Any, Array, Any], Any]  # (victim, key, obs) -> action
    push: Callable[[Any, Any], Any]  # (victim, obs) -> (A,): the mean of its actions, or the choices' logits
    steps: int = 1  # of gradients that the actor follows

    Params = AttackParams

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.env.num_agents > 1:
            raise ValueError(f"DirectedAttack: {self.id} has {self.env.num_agents} agents; it attacks one.")
        self.action_space(self.default_params)  # refuses, as the actor's making does, what cannot be attacked

    @property
    def actor(self) -> ObservationAttack:
        return ObservationAttack(self.env, Push(self.push), self.steps)

    def _size(self, space: Space) -> int:
        if isinstance(space, Discrete):
            return space.n
        if isinstance(space, Box):
            return int(np.prod(space.shape))
        raise ValueError(f"DirectedAttack: {self.id} acts in {space}; it directs Box and Discrete.")

    @property
    def default_params(self) -> AttackParams:
        return self.attacking(self.env.default_params, 0.0)

    @property
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.actor.hints

    def attacking(self, params: Any, strength: Any, unit: Any = 1.0, victim: Any = None) -> AttackParams:
        """The wrapped environment's `params` with a victim that sees others by up to `strength * unit`."""
        return self.actor.attacking(params, strength, unit, victim)

    def transition(self, key: Array, state: WrapperState, action: Any, params: AttackParams) -> Transition:
        if params.victim is None:
            raise ValueError("DirectedAttack: params have no victim; take `task.attacking(env_params, strength, ...)`.")
        seen_key, act_key = jax.random.split(jax.random.fold_in(key, 1))
        direction = jnp.ravel(jnp.clip(action, -1, 1))
        aimed = params.replace(victim=(params.victim, direction))
        seen = self.actor.seen(seen_key, state.memory, aimed)
        out = self.after(key, state, self.act(params.victim, act_key, seen), params)
        return out._replace(reward=-out.reward, info={**out.info, "task_reward": out.reward})

    def action_space(self, params: AttackParams) -> Box:
        return Box(-1.0, 1.0, (self._size(self.env.action_space(params.env)),))

    def validate(self, params: AttackParams) -> None:
        self.actor.validate(params)

    @property
    def levels(self) -> Levels | None:
        return self.levels_inside()
