"""What is left of a task when a hint misleads? The task's reward, its sum with a hint, the hint as potential, BARFI.

    python experiments/barfi/run.py [TASK ...]

All four are the inner learner of algos/meta/barfi.py, which for the first three keeps the mix as it begins. 10 seeds
in one program. Judged by the task's own return of the greedy policy over 32 episodes. Writes
results.json and results.png beside this file (rows of other tasks are kept) and prints the table of README.md.
"""

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxrl
from jaxrl import Environment, Transition, pytree
from jaxrl.algos.meta import barfi
from jaxrl.environment import Hints
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval
from jaxrl.spaces import Discrete

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
SIZE, SEEDS, GAMMA = 6, 10, 0.99
GOAL, DECOY = SIZE * SIZE - 1, SIZE - 1


@pytree
class GridParams:
    max_steps: jax.Array = 40


@pytree
class GridState:
    time: jax.Array
    cell: jax.Array


@dataclasses.dataclass(frozen=True)
class Grid(Environment):
    """From one corner of a room of 6 x 6 to the opposite one, which pays 1 and ends; 40 steps at most."""

    id: str = dataclasses.field(default="Grid", kw_only=True)
    Params = GridParams
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return GridState(jnp.int32(0), jnp.int32(0))

    def transition(self, key, state, action, params):
        row, column = state.cell // SIZE, state.cell % SIZE
        row = jnp.clip(row + jnp.array([-1, 0, 1, 0])[action], 0, SIZE - 1)
        column = jnp.clip(column + jnp.array([0, 1, 0, -1])[action], 0, SIZE - 1)
        state = state.replace(cell=row * SIZE + column)
        there = state.cell == GOAL
        return Transition(state, there.astype(jnp.float32), there, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return state.cell

    def observation_space(self, params):
        return Discrete(SIZE * SIZE)

    def action_space(self, params):
        return Discrete(4)


@dataclasses.dataclass(frozen=True)
class Shaped(Environment):
    """A task with gamma F(s') - F(s) added, F being 0 where an episode ends, by its limit too (Grzes 2017)."""

    id: str = dataclasses.field(default="Shaped", kw_only=True)
    env: Any = None
    hint: Any = None
    hints = Hints(deterministic=True)

    @property
    def default_params(self):
        return self.env.default_params

    def initial(self, key, params):
        return self.env.initial(key, params)

    def transition(self, key, state, action, params):
        after = self.env.transition(key, state, action, params)
        last = after.terminated | (state.time + 1 >= params.max_steps)
        now, then = (self.hint(self.env.observe(key, s, params), action, None) for s in (state, after.state))
        return after._replace(reward=after.reward + GAMMA * jnp.where(last, 0, then) - now)

    def observe(self, key, state, params):
        return self.env.observe(key, state, params)

    def observation_space(self, params):
        return self.env.observation_space(params)

    def action_space(self, params):
        return self.env.action_space(params)


TABLE = barfi.Config(num_envs=16, num_steps=40, num_rollouts=2, inner_steps=10, hidden=(), reward_hidden=())
NETWORK = barfi.Config(num_envs=8, num_steps=200, num_rollouts=2, inner_steps=10)
TASKS = {  # environment, settings, hint, updates, learning rate of the policy
    "grid, misled": (Grid(), TABLE, lambda obs, action, _: 0.2 * (obs == DECOY), 200, 0.01),
    "CartPole, misled": (
        jaxrl.make("CartPole-v1")[0],
        NETWORK,
        lambda obs, action, _: -3.0 * (jnp.abs(obs[2]) < 0.1),
        100,
        2e-3,
    ),
    "MountainCar, misled": (
        jaxrl.make("MountainCar-v0")[0],
        NETWORK,
        lambda obs, action, _: 50 * jnp.abs(obs[1]),
        100,
        2e-3,
    ),
    "MountainCar, helped": (
        jaxrl.make("MountainCar-v0")[0],
        NETWORK,
        lambda obs, action, _: 0.5 * jnp.abs(obs[0] + jnp.pi / 6),  # how far from the valley's lowest point
        100,
        2e-3,
    ),
}
METHODS = ("task alone", "sum", "potential", "BARFI")
START = {"task alone": 0.0, "potential": 0.0, "sum": 1.0, "BARFI": 1.0}


def trained(env, config, hint, updates, methods, learning_rate):
    """Final greedy returns (methods, seeds) on `env`, and metrics (methods, seeds, updates) of training."""
    task = env.env if isinstance(env, Shaped) else env
    params = task.default_params.replace(max_steps=jnp.int32(config.num_steps))
    algo = barfi.make(env, dataclasses.replace(config, learn_reward=methods == ["BARFI"]), aux_fn=hint)

    start = barfi.Hyper(learning_rate=learning_rate, reward_learning_rate=jnp.float32(0.05))

    def run(auxiliary, key):
        hyper = start.replace(auxiliary_weight=auxiliary)
        state, metrics = jaxrl.train(algo, key, updates * algo.steps_per_update, hyper, params)
        stats = jaxrl.evaluation.evaluate(
            algo, algo.policy(state), jax.random.key(7), task, params, num_episodes=32, greedy=True
        )
        return stats.returns.mean(), metrics

    keys = jax.random.split(jax.random.key(0), SEEDS)
    found = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(jnp.array([START[m] for m in methods]), keys)
    return jax.tree.map(lambda x: np.asarray(x, float), found)


def draw(found):
    figure, axes = plt.subplots(1, len(found), figsize=(3.8 * len(found), 3.4), squeeze=False)
    axes = axes[0]
    for ax, (task, row) in zip(axes, found.items(), strict=True):
        for method in METHODS:
            if row[method]["curve"]:  # of the potential, returns in training are of the shaped task
                ax.plot(row[method]["curve"], label=method)
        ax.set(title=task, xlabel="rollouts")
    axes[0].set_ylabel("the task's return, mean of seeds")
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(HERE / "results.png", dpi=90)


def main() -> None:
    path = HERE / "results.json"
    found = json.loads(path.read_text())["results"] if path.exists() else {}
    for task in sys.argv[1:] or TASKS:
        env, config, hint, updates, rate = TASKS[task]
        begin = time.process_time()
        fixed, metrics = trained(env, config, hint, updates, ["task alone", "sum"], rate)
        shaped, _ = trained(Shaped(env=env, hint=hint), config, None, updates, ["potential"], rate)
        learned, of_learned = trained(env, config, hint, updates, ["BARFI"], rate)
        seconds = time.process_time() - begin
        curves = [*metrics["episode_return"], None, *of_learned["episode_return"]]
        found[task] = {"seconds": round(seconds)}
        for method, final, curve in zip(METHODS, [*fixed, *shaped, *learned], curves, strict=True):
            found[task][method] = {
                "returns": final.round(3).tolist(),
                "mean": float(np.mean(final)),
                "interval": list(bootstrap_interval(final, np.mean)),
                "curve": [] if curve is None else np.nanmean(curve, 0).round(3).tolist(),
            }
        for name in ("primary_weight", "auxiliary_weight", "discount"):  # where the seeds of BARFI end
            found[task]["BARFI"][name] = of_learned[name][0, :, -1].round(3).tolist()
        cells = (found[task][m] for m in METHODS)
        cells = " | ".join("{:.2f} ({:.2f} to {:.2f})".format(x["mean"], *x["interval"]) for x in cells)
        print(f"| {task} | {cells} |  {seconds:.0f} CPU s", flush=True)
        where = {"date": time.strftime("%Y-%m-%d"), "where": environment_of_run()}
        path.write_text(json.dumps({**where, "results": found}, indent=1) + "\n")
    draw(found)


if __name__ == "__main__":
    main()
