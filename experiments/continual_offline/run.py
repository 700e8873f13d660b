"""Which experience of old tasks should an offline learner keep? OER on a point mass with four goals, one after another.

    python experiments/continual_offline/run.py [--seeds 10]

Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxrl.actors import Actor
from jaxrl.algos import td3_bc
from jaxrl.data import datasets
from jaxrl.data.transitions import Transition
from jaxrl.environment import pytree
from jaxrl.envs.classic import point_mass
from jaxrl.evaluation import evaluate
from jaxrl.host.data.recording import recorded
from jaxrl.host.plotting import bars
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told
from jaxrl.nn.networks import MLP
from jaxrl.nn.optim import optimizer_of

HERE = Path(__file__).parent
GOALS = jnp.array([(0.7, 0.7), (-0.7, -0.7), (-0.7, 0.7), (0.7, -0.7)])  # m, in the order in which they come
EPISODES, LENGTH = 50, 100
STARTS, HORIZON = 5, 40  # rollouts in the model; as many steps are kept of each task
KEPT = STARTS * HORIZON
CLONING_STEPS, MODEL_STEPS, BATCH = 1_500, 1_500, 64
ADAM = optimizer_of("adam")
ARMS = ("nothing", "random", "reward", "model-based", "all of it")


@pytree
class Params(point_mass.Params):
    goal: jax.Array = (0.0, 0.0)  # m


@dataclasses.dataclass(frozen=True)
class OneGoal(point_mass.PointMass):
    """PointMass-v0 whose goal is a parameter, of which the observation has only the quadrant: the name of the task."""

    Params = Params

    def initial(self, key, params):
        return super().initial(key, params).replace(goal_x=params.goal[0], goal_y=params.goal[1])

    def observe(self, key, state, params):
        return jnp.stack([state.x, state.y, state.x_dot, state.y_dot, *jnp.sign(jnp.asarray(params.goal))])


ENV = OneGoal()
MEMORY = datasets.carried
"""Of transitions that are put into the state, so that every task and seed has its own."""
CONFIG = td3_bc.Config(num_updates=2_000, batch_size=BATCH, hidden=(64, 64), normalize_obs=False)
ALGO = td3_bc.make(ENV, CONFIG, replay=MEMORY)
HYPER = td3_bc.Hyper(learning_rate=1e-3, gamma=0.95, tau=0.02)
MODEL = MLP((64, 64), 6, "relu")
"""Of an observation and an action: ten times the change of the observation."""


def params_of(goal):
    return ENV.default_params.replace(goal=goal)


def dataset(key, goal):
    """Episodes of a controller, the i-th of which acts at random in a share i / EPISODES of its steps."""
    share = jnp.arange(EPISODES)[:, None] / EPISODES

    def act(key, env_state, obs, env_params, carry):
        which, *uniform = jnp.split(jax.random.uniform(key, (EPISODES, 3)), (1, 2), -1)
        controlled = jnp.clip(4 * (goal - obs[:, :2]) - 2.5 * obs[:, 2:4], -1, 1)
        return jnp.where(which < share, 2 * jnp.concatenate(uniform, -1) - 1, controlled), carry

    d = recorded(ENV, params_of(goal), Actor(act), key, EPISODES, LENGTH)
    return Transition(d.obs, d.action, d.reward, d.terminated, d.next_obs)


def descended(key, weights, loss, steps):
    """Weights after so many steps of Adam on loss(weights, key)."""
    flat, unravel = ravel_pytree(weights)

    def step(carry, key):
        return ADAM.descend(*carry, jax.grad(lambda w: loss(w, key))(unravel(carry[0])), 1e-3)[:2], None

    carry = flat, ADAM.init(weights, 1e-3)
    return unravel(jax.lax.scan(step, carry, jax.random.split(key, steps))[0][0])


def seen(obs, action):
    """Position, velocity and action: what a step is near by. The rest of the observation is the task's name."""
    return jnp.concatenate([obs[..., :4], action], -1)


def nearest_rows(visited, rows):
    """Of each visited (state, action) the number of the nearest row, in deviations of the rows."""
    deviation = rows.std(0)
    visited, scaled = visited / deviation, rows / deviation
    return jnp.argmin((scaled**2).sum(-1) - 2 * visited @ scaled.T, -1)  # squared, less what no row changes


def learnt(key, goal):
    """`(data, weights of the actor, rows kept by each arm, root mean square error of the model)` of one task."""
    data_key, key, model_key, init_key, random_key = jax.random.split(key, 5)
    data = dataset(data_key, goal)
    state, _ = ALGO.learn(ALGO.init(key, HYPER, params_of(goal)).replace(replay=data))
    policy = ALGO.policy(state)
    inputs, change = jnp.concatenate([data.obs, data.action], -1), 10 * (data.next_obs - data.obs)

    def error(weights, key):
        rows = jax.random.randint(key, (BATCH,), 0, len(inputs))
        return jnp.mean((MODEL.apply(weights, inputs[rows]) - change[rows]) ** 2)

    model = descended(model_key, MODEL.init(init_key, inputs[:1]), error, MODEL_STEPS)

    def ahead(obs, _):
        action, _ = ALGO.act(policy, key, obs, (), greedy=True)
        return obs + MODEL.apply(model, jnp.concatenate([obs, action], -1)) / 10, seen(obs, action)

    first = data.obs.reshape(EPISODES, LENGTH, -1)[:: EPISODES // STARTS, 0]
    visited = jax.lax.scan(ahead, first, None, HORIZON)[1].reshape(KEPT, -1)
    nearest = nearest_rows(visited, seen(data.obs, data.action))
    order = jax.random.permutation(random_key, data.reward.size)
    kept = jnp.stack([order[:KEPT], jnp.argsort(-data.reward)[:KEPT], nearest])
    repeated = jnp.tile(kept, (1, data.reward.size // KEPT))
    rows = jnp.concatenate([order[None], repeated, order[None]])  # of "nothing" unused
    fit = jnp.sqrt(jnp.mean((MODEL.apply(model, inputs) - change) ** 2)) / 10
    return data, policy.weights, rows, fit


def continual(key, arm, data, actors, rows):
    """Returns (tasks, tasks) of the cloning network after each task, in every task."""
    tasks = len(GOALS)
    key, init_key, eval_key = jax.random.split(key, 3)
    start = ALGO.init(init_key, HYPER, params_of(GOALS[0])).weights["actor"]
    own = jnp.arange(tasks)[:, None]
    kept_obs, kept_action = data.obs[own, rows], data.action[own, rows]
    size = rows.shape[1]

    def actions(weights, obs):
        return ALGO.act(template._replace(weights=weights), key, obs, (), greedy=True)[0]

    template = ALGO.policy(ALGO.init(init_key, HYPER, params_of(GOALS[0])))

    def task(weights, inputs):
        n, key, actor = inputs

        def loss(weights, key):
            at, old, which = jax.random.randint(key, (3, BATCH), 0, jnp.array([[size], [size], [1 << 20]]))
            obs = data.obs[n, at]
            new = jnp.mean((actions(weights, obs) - actions(actor, obs)) ** 2)
            which = which % jnp.maximum(n, 1)
            kept = jnp.mean((actions(weights, kept_obs[which, old]) - kept_action[which, old]) ** 2)
            return new + jnp.where((n > 0) & (arm > 0), n * kept, 0)

        weights = descended(key, weights, loss, CLONING_STEPS)

        def returns(goal):
            return evaluate(
                ALGO, template._replace(weights=weights), eval_key, ENV, params_of(goal), num_episodes=16, greedy=True
            )

        return weights, jax.lax.map(lambda goal: returns(goal).returns.mean(), GOALS)

    return jax.lax.scan(task, start, (jnp.arange(tasks), jax.random.split(key, tasks), actors))[1]


def run(key):
    """Returns of each arm, and the error of the models."""
    data_key, key = jax.random.split(key)
    data, actors, rows, fit = jax.lax.map(lambda x: learnt(*x), (jax.random.split(data_key, len(GOALS)), GOALS))
    arms = jnp.arange(len(ARMS)), jnp.swapaxes(rows, 0, 1)
    return jax.lax.map(lambda x: continual(key, x[0], data, actors, x[1]), arms), fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    where = environment_of_run()
    begin = time.perf_counter()
    keys = jax.random.split(jax.random.key(0), seeds)
    found, fit = (np.asarray(x, float) for x in jax.jit(lambda keys: jax.lax.map(run, keys))(keys))
    results = {"where": {k: where[k] for k in ("started", "device", "processors", "versions")}}
    results["model error"] = fit.mean(1).round(5).tolist()
    print("| kept | performance, IQM | 95 % interval | backward transfer, IQM | 95 % interval |\n" + "|---" * 5 + "|")
    for i, arm in enumerate(ARMS):
        last, then = found[:, i, -1], np.diagonal(found[:, i], axis1=1, axis2=2)
        cells = [arm]
        for name, x in (("performance", last.mean(1)), ("backward transfer", (last - then)[:, :-1].mean(1))):
            results[f"{name}, {arm}"] = x.round(2).tolist()
            cells.append(told(x, ".1f", cells=True))
        print("| " + " | ".join(cells) + " |")
    results["minutes"] = round((time.perf_counter() - begin) / 60, 1)
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    shown = {arm: results[f"performance, {arm}"] for arm in ARMS}
    bars(shown, HERE / "results.png", "mean return of the four tasks at the end")
    print(f"{results['minutes']} minutes")


if __name__ == "__main__":
    main()
