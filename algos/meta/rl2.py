"""RL^2 is recurrent PPO (`ppo_rnn.py`) on trials: a policy learns, slowly, how to learn fast in its own activations.

Duan et al. (2016), "RL^2: Fast Reinforcement Learning via Slow Reinforcement Learning", arXiv:1611.02779; Wang et al.
(2016), "Learning to reinforcement learn", arXiv:1611.05763. Several episodes of one task, drawn anew for each trial,
are one episode to the policy: it sees its last action and reward and where an episode begins, its memory is cleared
between trials only, and what is maximised is the return of the whole trial. So exploring in the first episodes is
worth what it earns in the last ones, and what comes out is an algorithm for the family of tasks, run by the weights.

    trials = wrappers.Trials(env, episodes=2)     # env.generate draws the tasks, or task_fn
    algo = rl2.make(env, rl2.Config(episodes=2))  # PPO with recurrent networks on them

The learner is `ppo_rnn.py`, the trial is `jaxrl.wrappers.Trials`; here is what belongs to both, and `play`, which
judges: what was earned in each episode of a trial, on tasks that training never saw. Deviations from Duan et al.: PPO
in place of TRPO; the flag is of the first observation of an episode; a trial is a number of episodes (a bandit's
problem is one episode). Results: `experiments/rl2/`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrl.algorithm import Algorithm, shared
from jaxrl.algos.on_policy import ppo_rnn
from jaxrl.environment import Environment
from jaxrl.wrappers import Trials

Hyper = ppo_rnn.Hyper


@dataclasses.dataclass(frozen=True)
class Config(ppo_rnn.Config):
    """Static settings: each value compiles its own program. Those of the learner, and the length of a trial."""

    episodes: int = 2  # of a trial

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.episodes < 1:
            raise ValueError(f"episodes={self.episodes}: a trial has at least one.")


@shared
def make(
    env: Environment,
    config: Config = Config(),
    *,
    task_fn: Callable[[Array, Any], Any] | None = None,
    reveal: Callable[[Any], Array] | None = None,
    network: Any = None,
) -> Algorithm:
    """Recurrent PPO on trials of `env`; its params are `TrialParams`, by default of the environment's.

    Args:
        task_fn: `(key, params)` to the params of a task; default: `env.generate`, and without one the params.
        reveal: task to a vector that the critic alone is told, as a bandit's means; see `Trials`. For `shared=False`.
        network: see `ppo_rnn.make`.

    Raises ValueError for several agents and action spaces that `ppo_rnn` has no policy for.
    """
    trials = Trials(env, config.episodes, task_fn, reveal)
    return ppo_rnn.make(trials, config, network=network)._replace(name="rl2")


class Played(NamedTuple):
    """N trials of E episodes."""

    returns: Float[Array, "N E"]  # of every episode; 0 of those that were not begun
    lengths: Int[Array, "N E"]
    finished: Bool[Array, " N"]  # the trial came to its end
    regret: Float[Array, " N"]  # the sum of `info["regret"]`, which bandits report; else 0


def play(
    algo: Algorithm,
    policy: Any,
    key: Array,
    params: Any,
    num_trials: int,
    episodes: int,
    max_steps: int,
    greedy: bool = False,
) -> Played:
    """What a policy earns in each of the `episodes` of new trials, at most `max_steps` steps. Pure: jit and vmap it.

    `params` are the trials' and are those of tasks not trained on if their distribution is: memory is kept between
    the episodes of a trial, by the policies that have one.
    """
    env = algo.venv.env
    reset_key, key = jax.random.split(key)
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(reset_key, num_trials), params)
    zeros = jnp.zeros((num_trials, episodes))
    none = Played(zeros, zeros.astype(jnp.int32), jnp.zeros(num_trials, bool), jnp.zeros(num_trials))

    def step(carried: Any, key: Array) -> tuple[Any, None]:
        obs, state, carry, played = carried
        act_key, step_key = jax.random.split(key)
        action, carry = algo.act(policy, act_key, obs, carry, greedy)
        ts = jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(step_key, num_trials), state, action, params)
        on = ~played.finished
        # Before a trial is over its episode is below `episodes`; after it, nothing counts.
        here = jax.nn.one_hot(ts.info["episode"], episodes) * on[:, None]
        played = Played(
            played.returns + here * ts.reward[:, None],
            played.lengths + here.astype(jnp.int32),
            played.finished | ts.terminated | ts.truncated,
            played.regret + jnp.where(on, ts.info.get("regret", jnp.zeros_like(ts.reward)), 0),
        )
        return (ts.obs, ts.state, carry, played), None

    start = obs, state, algo.initial_carry((num_trials,)), none
    return jax.lax.scan(step, start, jax.random.split(key, max_steps))[0][-1]
