"""What a student does on levels that it does not learn from."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jaxtyping import Array

from jaxrl.algorithm import Algorithm
from jaxrl.rollout import Ends, rollout
from jaxrl.vectorize import rows_where, vectorize


class Seen(NamedTuple):
    """What a look at N levels leaves."""

    ends: Ends  # (T, N)


def look(student: Algorithm, state: Any, key: Array, levels: Any, num_steps: int) -> Seen:
    """`num_steps` steps of the student's policy, as it is in `state`, on each of N levels, restarting on the same."""
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
    return Seen(steps.ends)
