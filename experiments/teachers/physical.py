"""Which of 50 fixed tasks does a student master under each teacher: starts of a drone, motors, tracks of a walker?

    python experiments/teachers/physical.py [--only alp_gmm/walker ...] [--seeds 10]

Writes physical.json and physical.png beside this file and prints the table of README.md. The student is PPO; all seeds
of a teacher are one program. A task is mastered when the mean return of its test episodes is above `mastery`.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from picture import NAMES

import jaxrl
from jaxrl.algos import ppo
from jaxrl.algos.curricula import alp_gmm, covar_gmm, oracle_teacher, random_teacher, riac
from jaxrl.curriculum.attachment import attach
from jaxrl.environment import strongly_typed
from jaxrl.envs.motor import levels
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import COLORS
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm, told

FILE = Path(__file__).with_name("physical.json")
TASKS = 50
TEACHERS = ("random", "oracle", "riac", "covar_gmm", "alp_gmm")


class Space(NamedTuple):
    """Tasks: an environment, and points of a box as its params."""

    env: Any
    params: Any
    level_at: Any  # (params, x) -> params
    dimensions: int
    step: tuple[float, ...] | float  # where harder tasks are, for the oracle
    low: float  # returns from here
    high: float  # to here
    mastery: float
    config: ppo.Config
    hyper: ppo.Hyper
    updates: int
    points: int = 20  # tests on the way
    episodes: int = 8  # of each task in a test
    max_steps: int | None = None  # of them, where longer than in training
    passed: float | None = None  # the oracle's mark, where training's returns are others


def thrown(params, x):
    """A drone that starts 5 to 0.3 m above the floor with up to 10 m/s and 40 rad/s along each axis."""
    height = 5 - 4.7 * x[0]
    return params.replace(start_height=(height, height), start_velocity=10 * x[1], start_rates=40 * x[2])


def motor(params, x):
    """A drive each of whose numbers is within a factor of 4 of the default's; harder ones are anywhere."""
    return levels.scaled(params, math.log(4) * (2 * x - 1))


def track(params, x):
    """The stump tracks of Portelas et al. (2019): up to 3 terrain steps high, 6 to 0 m apart."""
    return params.replace(stump_height=3 * x[0], stump_spacing=6 * (1 - x[1]))


DRONE, DRONE_PARAMS = jaxrl.make("Quadcopter-Recover-v0")
MOTOR, MOTOR_PARAMS = jaxrl.make("Cont-CC-PMSM-v0", dq_actions=True)
STUDENT = ppo.Config(num_envs=32, num_steps=300, num_minibatches=8, normalize_obs=True)
WALKER, WALKER_PARAMS = jaxrl.make("StumpWalker-v0")
CONTROLLER = ppo.Config(num_envs=64, num_steps=100, num_minibatches=8, normalize_obs=True, clip_value=False)
LEGS = ppo.Config(
    num_envs=32, num_steps=256, num_epochs=10, num_minibatches=32, normalize_obs=True, normalize_reward=True
)
SPACES = {
    "walker": Space(
        WALKER,
        WALKER_PARAMS.replace(max_steps=512),
        track,
        2,
        1 / 30,
        -110,
        90,
        230,
        LEGS,
        ppo.Hyper(learning_rate=3e-4, ent_coef=0.0),
        360,
        points=6,
        episodes=1,
        max_steps=2000,
        passed=50,
    ),
    "quadcopter": Space(
        DRONE,
        DRONE_PARAMS,
        thrown,
        3,
        1 / 30,
        -1,
        250,
        150,
        STUDENT,
        ppo.Hyper(learning_rate=1e-3, gamma=0.98, ent_coef=0.0),
        600,
    ),
    "motor": Space(
        MOTOR,
        MOTOR_PARAMS.replace(max_steps=100),
        motor,
        levels.dimensions(MOTOR_PARAMS),
        1 / 30,
        -20,
        0,
        -3,
        CONTROLLER,
        ppo.Hyper(learning_rate=1e-3, gamma=0.5, ent_coef=0.0),
        300,
    ),
}


def teacher(name, space):
    if name == "random":
        return random_teacher.make(space.level_at, random_teacher.Config(space.dimensions))
    if name == "oracle":
        hyper = oracle_teacher.Hyper(threshold=space.mastery if space.passed is None else space.passed, step=space.step)
        return oracle_teacher.make(space.level_at, oracle_teacher.Config(space.dimensions), hyper)
    module: Any = {"riac": riac, "covar_gmm": covar_gmm, "alp_gmm": alp_gmm}[name]
    hyper = module.Hyper(return_low=space.low, return_high=space.high)
    return module.make(space.level_at, module.Config(space.dimensions), hyper)


def curves(name, space, seeds):
    """Returns on the 50 tasks (seeds, points, 50), and CPU seconds of compiling and of running."""
    env, params = space.env, space.params
    venv = jaxrl.vectorize(env, space.config.num_envs, batched_params=True)
    algo = attach(ppo.make(venv, space.config), teacher(name, space))
    steps = space.updates * algo.steps_per_update
    hyper = strongly_typed(space.hyper.replace(anneal_steps=steps))
    where = jax.random.uniform(jax.random.key(7), (TASKS, space.dimensions))
    tasks = jax.vmap(space.level_at, (None, 0))(params, where)
    if space.max_steps:
        tasks = tasks.replace(max_steps=jnp.full(TASKS, space.max_steps))

    def block(state, key):
        state, _ = jax.lax.scan(lambda s, _: (algo.update(s)[0], None), state, length=space.updates // space.points)
        policy = algo.policy(state)
        keys = jax.random.split(key, TASKS)

        def mean_return(task, key):
            return evaluate(algo, policy, key, env, task, num_episodes=space.episodes, greedy=True).returns.mean()

        return state, jax.vmap(mean_return)(tasks, keys)

    def run(key):
        init_key, key = jax.random.split(key)
        return jax.lax.scan(block, algo.init(init_key, hyper, params), jax.random.split(key, space.points))[1]

    keys, begin = jax.random.split(jax.random.key(0), seeds), time.process_time()
    program = jax.jit(jax.vmap(run)).lower(keys).compile()
    compiled = time.process_time()
    return np.asarray(program(keys), float), compiled - begin, time.process_time() - compiled


def picture(report, out):
    spaces = [name for name in SPACES if any(pair.endswith(f"/{name}") for pair in report)]
    figure, grid = plt.subplots(1, len(spaces), figsize=(4.6 * len(spaces), 3.8), layout="constrained", squeeze=False)
    for axes, space in zip(grid[0], spaces, strict=True):
        for (name, label), color in zip(NAMES.items(), COLORS, strict=False):
            if f"{name}/{space}" not in report:
                continue
            share = np.array(report[f"{name}/{space}"]["mastered"])
            steps = np.linspace(0, report[f"{name}/{space}"]["steps"], share.shape[1] + 1)[1:] / 1e6
            band = np.array([bootstrap_interval(c, resamples=500) for c in share.T]).T
            axes.plot(steps, [iqm(c) for c in share.T], color=color, label=label, linewidth=1.8)
            axes.fill_between(steps, *band, color=color, alpha=0.25, linewidth=0)
        axes.set(title=space, ylim=(0, None), xlabel="million steps")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    grid[0, 0].set_ylabel("mastered share of 50 tasks")
    labelled = [axes.get_legend_handles_labels() for axes in grid[0]]
    known = {label: handle for handles, labels in labelled for handle, label in zip(handles, labels, strict=True)}
    figure.legend(known.values(), known, loc="outside upper center", ncols=len(known), frameon=False, fontsize=8)
    figure.savefig(out, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs = [f"{name}/{space}" for space in SPACES for name in TEACHERS]
    parser.add_argument("--only", nargs="*", default=pairs, choices=pairs)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    for pair in args.only:
        name, space = pair.split("/")
        setting = SPACES[space]
        returns, compile_s, run_s = curves(name, setting, args.seeds)
        report = json.loads(FILE.read_text()) if FILE.exists() else {}
        report[pair] = {
            "steps": setting.updates * setting.config.num_envs * setting.config.num_steps,
            "mastered": np.round((returns > setting.mastery).mean(2), 2).tolist(),  # seeds, points
            "returns": np.round(returns[:, -1], 1).tolist(),  # seeds, tasks, at the end
            "cpu_seconds": {"compile": round(compile_s, 1), "run": round(run_s, 1)},
            "where": environment_of_run(),
        }
        FILE.write_text(json.dumps({p: report[p] for p in pairs if p in report}) + "\n")
    report = json.loads(FILE.read_text())
    print(
        "| tasks | teacher | mastered, mean over training (95 %) | at the end (95 %) | mean return | CPU s |\n"
        + "|---" * 6
        + "|"
    )
    for pair, r in report.items():
        cells = [*reversed(pair.split("/"))]
        mastered = np.array(r["mastered"])
        for share in (mastered.mean(1), mastered[:, -1]):
            cells.append(told(share))
        print(f"| {' | '.join(cells)} | {np.mean(r['returns']):.1f} | {r['cpu_seconds']['run']:.0f} |")
    picture(report, FILE.with_suffix(".png"))


if __name__ == "__main__":
    main()
