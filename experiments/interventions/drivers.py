"""Two experts that are not good, learners beside them, and the faults of RLIF's released code, one by one."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl import actors
from jaxrl.algos import dagger, hg_dagger, rlif
from jaxrl.evaluation import episodes, evaluate

EPISODES, POINTS = 20, 20
SIZES = dict(num_envs=4, num_updates=4, batch_size=128, hidden=(64, 64), buffer_size=20_000)
STARTS = 500  # steps of demonstrations
FACTOR = 0.97  # of the released code


def drifts(obs):
    """Keeps the pole up and lets the cart run off to one side."""
    return (obs[2] + 0.2 * obs[3] + LEAN > 0).astype(jnp.int32)


def swings(obs):
    """Swings the pendulum up and hardly damps it there."""
    cos, sin, speed = obs
    energy = speed**2 / 6 + 5 * (cos - 1)
    near = -4 * jnp.arctan2(sin, cos) - DAMPING * speed
    return jnp.clip(jnp.where(cos > 0.8, near, -2 * jnp.sign(speed) * jnp.sign(energy)), -2, 2)[None]


LEAN, DAMPING = 0.026, 0.5
STEPS = 20_000
TASKS = {"CartPole-v1": (drifts, 0.0, {"target_entropy": 0.2}), "Pendulum-v1": (swings, 15.0, {})}
"""For each its expert, how much less than the expert's action another may be worth, and settings of RLIF."""
ENDS = "last transition lost", "expert's last step alone"
"""Faults about what is stored."""
METHODS = ("RLIF", "HG-DAgger", "DAgger", "factor", *ENDS)


def by_factor(key, of_expert, of_learner, hyper):
    """The released code's: wrong where values are negative."""
    return (of_learner < FACTOR * of_expert) ^ jax.random.bernoulli(key, hyper.lapse_prob, of_expert.shape)


def with_fault(algo, fault):
    """RLIF that does not store what the released code does not, once the demonstrations are over."""

    def collect(state):
        new, rollout = algo.collect(state)
        driving = state.step >= state.hyper.learning_starts
        done, by_expert = rollout.ends.done, rollout.by_expert
        goes_on = jnp.concatenate([by_expert[1:], (new.watch.left > 0)[None]]) & ~done
        lost = done if fault == "last transition lost" else by_expert & goes_on
        kept = rollout.transition
        return new, rollout._replace(transition=kept._replace(mask=kept.mask & ~(driving & lost)))

    return algo._replace(collect=collect)


def learner(task, method):
    """`(algorithm, its settings)`."""
    act, threshold, soft = TASKS[task]
    env, expert = jaxrl.make(task)[0], actors.of_function(act)
    common = dict(learning_starts=STARTS, learning_rate=1e-3)
    judging = dict(common, threshold=threshold, lapse_prob=0.0)  # an expert who judges without lapses
    if method == "DAgger":
        return dagger.make(env, dagger.Config(**SIZES), expert=expert), dagger.Hyper(**common)
    if method == "HG-DAgger":
        return hg_dagger.make(env, hg_dagger.Config(**SIZES), expert=expert), hg_dagger.Hyper(**judging)
    trigger = {"trigger": by_factor} if method == "factor" else {}
    algo = rlif.make(env, rlif.Config(**SIZES), expert=expert, **trigger)
    algo = with_fault(algo, method) if method in ENDS else algo
    return algo, rlif.Hyper(**judging, alpha=0.1, alpha_learning_rate=1e-3, **soft)


def of_expert(task, key):
    """Returns of the expert alone."""
    env, params = jaxrl.make(task)
    expert = actors.of_function(TASKS[task][0])
    play = jax.jit(lambda key: episodes(expert.act, (), key, env, params, num_episodes=256, max_steps=None).returns)
    return np.asarray(play(key))


def trained(task, method, seeds):
    """`(returns, takeovers)` of each seed, greedily, at equally spaced points of the training: (S, POINTS)."""
    algo, hyper = learner(task, method)
    updates = STEPS // POINTS // algo.steps_per_update

    def run(key):
        init_key, eval_key = jax.random.split(key)

        def to_point(state, _):
            state, metrics = jax.lax.scan(lambda state, _: algo.update(state), state, length=updates)
            returns = evaluate(algo, algo.policy(state), eval_key, num_episodes=EPISODES).returns
            return state, (returns.mean(), metrics["interventions"].sum())

        _, (returns, takeovers) = jax.lax.scan(to_point, algo.init(init_key, hyper), length=POINTS)
        return returns, jnp.cumsum(takeovers)

    return [np.asarray(x) for x in jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(1), seeds))]


def at_equal(returns, takeovers, most):
    """Of each seed the return at its last point with at most so many takeovers, (S,) each; the first one's if none."""
    at = np.maximum((takeovers <= np.asarray(most)[:, None]).sum(1) - 1, 0)
    return np.take_along_axis(np.asarray(returns), at[:, None], 1)[:, 0]
