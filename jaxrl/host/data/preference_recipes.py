"""From a run or a dataset to preferences: whose steps, which segments are compared, by what values, with what errors.

Labels by regret need the value of states. Where the task lists its outcomes (`exact.mdp.TabularEnvironment`) they are
exact, by value iteration. Elsewhere they are those of a trained run's critic, for the actions that its policy takes:
the regret is then against that policy, and as right as the critic. Values know no time limit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.data import preferences, reward_models
from jaxrl.data.datasets import Dataset
from jaxrl.data.preferences import Preferences, Teacher
from jaxrl.environment import Environment, visible
from jaxrl.exact.mdp import tabulate
from jaxrl.exact.solvers import value_iteration
from jaxrl.nn.nets import critic_values
from jaxrl.off_policy.learner import Learner, normalized
from jaxrl.off_policy.q_learner import QLearner
from jaxrl.spaces import Discrete

LABELS = ("return", "regret")
QUERIES = ("uniform", "disagreement")
ROUNDS = 4
"""Rounds of `disagreement`: in each a quarter of the pairs is asked about, in the first uniformly."""
CANDIDATES = 10
"""Pairs that are looked at for each that is asked about."""
SMALL = reward_models.Config(hidden=(64, 64), num_checks=10, num_updates=50)
"""Of the ensembles by whose disagreement pairs are chosen."""


class Source(NamedTuple):
    """A dataset, what is known of it, and the task that it is of."""

    steps: Dataset
    about: dict[str, Any]
    env: Environment
    params: Any


def recorded(folder: Path, num_steps: int, seed: int) -> Source:
    """So many steps of a run's policy, which explores as in training: segments of one quality teach little."""
    from jaxrl.actors import of_policy
    from jaxrl.host.data.dataset_parts import about_of
    from jaxrl.host.data.recorded_task import said_of
    from jaxrl.host.data.recording import first_steps, streams, unbroken
    from jaxrl.host.data.recording import recorded as record
    from jaxrl.host.run.load import load
    from jaxrl.host.run.run_folder import RunFolder

    run = load(folder)
    task = said_of(RunFolder(folder).read_config().get("recipe", {"env_id": run.env.id}), run.env)
    max_steps = int(np.max(np.asarray(run.env_params.max_steps)))
    if max_steps == np.iinfo(np.int32).max:
        raise ValueError(f"{run.env.id} has no time limit: record a dataset with `jaxrl dataset make` instead.")
    num_envs, enough = streams(num_steps, max_steps)
    who = of_policy(run.algo, run.policy, False)
    key = jax.random.key(seed)
    found = jax.jit(lambda key: record(run.env, run.env_params, who, key, num_envs, enough + max_steps - 1))(key)
    steps = first_steps(unbroken(found, num_envs, enough), num_steps)
    about = about_of(run.env, run.env_params, recipe=f"the policy of {folder}", seed=seed, max_steps=max_steps) | task
    return Source(steps, about, run.env, run.env_params)


def table_values(source: Source, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """The optimal values of `obs` and of `next_obs`, of a task that lists its outcomes.

    Raises ValueError for any other, and for observations that are not the state's number.
    """
    env, steps = source.env, source.steps
    if not hasattr(env, "outcomes"):
        raise ValueError(
            f"{env.id} lists no outcomes, so its values are not known: --critic RUN names a run whose are taken."
        )
    if np.ndim(steps.obs) != 1 or not np.issubdtype(np.asarray(steps.obs).dtype, np.integer):
        raise ValueError(f"observations of {env.id} are not the numbers of its states; regret needs these.")
    mdp = tabulate(env, source.params)
    with jax.enable_x64(True):  # regrets are differences of values, small ones of large ones
        mdp = jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, mdp)
        value = np.asarray(value_iteration(mdp, gamma, 1e-9).value)
    return value[np.asarray(steps.obs)], value[np.asarray(steps.next_obs)]


def critic_of(folder: Path) -> tuple[Environment, float, Callable[[Any], jax.Array]]:
    """`(environment, gamma, values of observations)` by the critic of a run.

    Of actor-critics the least of the critics' values of the policy's action, of Q-learners the value of the best one.
    Raises ValueError for a run that has neither.
    """
    from jaxrl.host.run.load import load

    run = load(folder)
    learner, state, policy = getattr(run.algo.init, "__self__", None), run.state, run.policy
    for name, usual in (("reward_scale", 1), ("reward_bias", 0)):
        if (value := float(getattr(state.hyper, name, usual))) != usual:
            raise ValueError(f"--critic {folder}: its values are of rewards by {name}={value:g}, not of the task's.")
    gamma = float(getattr(state.hyper, "gamma", jnp.nan))
    if isinstance(learner, QLearner):

        def values(obs: Any) -> jax.Array:
            return jnp.max(learner.values(policy, obs, None), -1)

        return run.env, gamma, values
    critic = getattr(getattr(learner, "rule", None), "critic", None)
    if not isinstance(learner, Learner) or critic is None or isinstance(learner.action_space, Discrete):
        raise ValueError(
            f"--critic {folder}: a run of {run.algo.name} has no critic of actions; those of sac, td3, dqn and others "
            "that learn from stored steps have."
        )

    def values_of_policy(obs: Any) -> jax.Array:
        action = learner.greedy(policy, normalized(policy.normalizer, visible(obs)))
        return jnp.min(critic_values(critic, state.weights["critic"], normalized(state.normalizer, obs), action), 0)

    return run.env, gamma, values_of_policy


def critic_values_of(source: Source, folder: Path) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
    """`(gamma, values of obs and of next_obs)` by the critic of a run. Raises ValueError for one of another task."""
    env, gamma, values = critic_of(folder)
    if env.id != source.env.id:
        raise ValueError(f"--critic {folder}: it is of {env.id}, and the steps are of {source.env.id}.")
    if env != source.env:
        raise ValueError(f"--critic {folder}: it is of {env.id} with other wrappers or --env settings than the steps'.")
    of_chunk = jax.jit(values)

    def of_all(obs: Any) -> np.ndarray:
        chunks = range(0, source.steps.size, 8192)
        return np.concatenate([np.asarray(of_chunk(jax.tree.map(lambda x, i=i: x[i : i + 8192], obs))) for i in chunks])

    return gamma, (of_all(source.steps.obs), of_all(source.steps.next_obs))


def make(
    source: Source,
    pairs: int,
    length: int,
    score: Callable[[np.ndarray], np.ndarray],
    teacher: Teacher,
    query: str = "uniform",
    seed: int = 0,
    rounding: Callable[[np.ndarray], float] = lambda first: 0.0,
    say: Callable[[str], Any] = lambda line: None,
) -> tuple[Preferences, np.ndarray]:
    """`(preferences, scores (n, 2))` of pairs of segments that `query` chooses. Host only.

    Args:
        score: of segments by their first rows (..., ), the higher the better.
        rounding: the difference up to which scores of these segments are equal.
        query: "uniform", or "disagreement": pairs about whose labels an ensemble fitted to those so far disagrees most.

    Raises ValueError as `preferences.uniform_queries` does.
    """
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    spaces = source.env.observation_space(source.params), source.env.action_space(source.params)
    rounds = 1 if query == "uniform" else min(ROUNDS, pairs // 2) or 1
    sizes = np.diff(np.arange(rounds + 1) * pairs // rounds)
    first, score_of, label = [], [], []
    for i, size in enumerate(sizes):
        key, label_key, fit_key = jax.random.split(key, 3)
        asked = preferences.uniform_queries(rng, source.steps, int(size) * (CANDIDATES if i else 1), length)
        if i:
            so_far = Preferences(source.steps, np.concatenate(first), np.concatenate(label), length)
            say(f"fitting an ensemble to {so_far.size} pairs, to choose {size} more")
            model, _ = reward_models.fit(fit_key, so_far, *spaces, SMALL)
            doubt = preferences.disagreement(reward_models.margins(model, source.steps, asked, length))
            asked = asked[np.argsort(-np.asarray(doubt), kind="stable")[:size]]
        first.append(asked)
        score_of.append(score(asked))
        apart = rounding(asked)
        given = preferences.labels(label_key, jnp.asarray(score_of[-1], jnp.result_type(float)), teacher, apart)
        label.append(np.asarray(given, np.float32))
    found = Preferences(source.steps, np.concatenate(first), np.concatenate(label), length)
    preferences.check(found)
    return found, np.concatenate(score_of)


def teacher_of(noise: str, **changes: float | None) -> Teacher:
    """The teacher of a name of `preferences.NOISES`, with numbers in the place of its own. Raises ValueError."""
    if noise not in preferences.NOISES:
        raise ValueError(f"noise {noise!r}: it is one of {', '.join(preferences.NOISES)}.")
    given = {name: value for name, value in changes.items() if value is not None}
    return dataclasses.replace(preferences.NOISES[noise], **given)
