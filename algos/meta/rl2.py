"""RL^2 is recurrent PPO (`ppo_rnn.py`) on trials: the policy's hidden state learns a task within a few episodes.

Duan et al. (2016), "RL^2: Fast Reinforcement Learning via Slow Reinforcement Learning", arXiv:1611.02779; Wang et al.
(2016), "Learning to reinforcement learn", arXiv:1611.05763. A trial is several episodes of one task, and each trial
draws another task. To the policy a trial is one episode: it observes its last action and reward and where an inner
episode begins, its hidden state is reset only between trials, and it maximises the return of the whole trial. So it
learns to explore in the first episodes of a trial and to exploit in the later ones.

    trials = wrappers.Trials(env, episodes=2)     # env.generate draws the tasks, or task_fn
    algo = rl2.make(env, rl2.Config(episodes=2))  # PPO with recurrent networks on them

The learner is `ppo_rnn.py`, the trial is `jaxrl.wrappers.Trials`; this file combines them, and evaluates with `play`:
returns of each episode of a trial, on new tasks. Deviations from Duan et al.: PPO in place of TRPO; the flag marks the
first observation of an episode; a trial is a number of episodes (for a bandit one). Results: `experiments/rl2/`.
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
    """Static settings of `ppo_rnn`, and the length of a trial: each value compiles its own program."""

    episodes: int = 2  # episodes of a trial

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
        reveal: `task -> vector` that only the critic sees, such as a bandit's means; see `Trials`. Needs shared=False.
        network: see `ppo_rnn.make`.

    Raises ValueError for several agents and action spaces that `ppo_rnn` has no policy for.
    """
    trials = Trials(env, config.episodes, task_fn, reveal)
    return ppo_rnn.make(trials, config, network=network)._replace(name="rl2")


class Played(NamedTuple):
    """N trials of E episodes."""

    returns: Float[Array, "N E"]  # of every episode; 0 for episodes that did not begin
    lengths: Int[Array, "N E"]
    finished: Bool[Array, " N"]  # whether the trial ended within the steps
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
    """Returns of a policy in each of the `episodes` of new trials of at most `max_steps` steps. Pure: jit and vmap it.

    `params` are `TrialParams`; they may be those of another task distribution than the training's. The carry of a
    policy is kept between the episodes of a trial.
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
        # Before a trial is over its episode is below `episodes`; later steps do not count.
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
