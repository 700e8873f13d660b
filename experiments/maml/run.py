"""How far does one step go? MAML, FOMAML and ES-MAML on a point robot, against a policy trained on all goals at once.

    python experiments/maml/run.py [--seeds 3] [--updates 150]

The 2-D navigation of Finn et al. (2017), section 5.3: a point starts at the origin, moves by its action, at most 0.1
along each axis, and pays its squared distance to a goal that it does not see, uniform in [-0.5, 0.5]^2; an episode has
100 steps and ends within 0.01 of the goal. All have 64 x 64 tanh units, 20 tasks of 20 episodes an outer step, one
inner step of 0.1 in training; at test three inner steps of 20 episodes on each of 40 goals that are not trained on.
Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxrl
from jaxrl import Environment, Transition, pytree
from jaxrl.algos.meta import es_maml, maml
from jaxrl.environment import Hints
from jaxrl.host.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval
from jaxrl.spaces import Box

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
STEPS = 3
"""Inner steps at test."""


@pytree
class Goal:
    max_steps: jax.Array = 100
    x: jax.Array = 0.0
    y: jax.Array = 0.0


@pytree
class Place:
    time: jax.Array
    x: jax.Array
    y: jax.Array


@dataclasses.dataclass(frozen=True)
class Navigation(Environment):
    """Move a point to a goal that only the reward tells of."""

    id: str = dataclasses.field(default="Navigation", kw_only=True)
    Params = Goal
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return Place(jnp.int32(0), jnp.float32(0), jnp.float32(0))

    def transition(self, key, state, action, params):
        move = jnp.clip(action, -0.1, 0.1)
        state = state.replace(x=state.x + move[0], y=state.y + move[1])
        squared = (state.x - params.x) ** 2 + (state.y - params.y) ** 2
        return Transition(state, -squared, squared < 1e-4, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jnp.stack([state.x, state.y])

    def observation_space(self, params):
        return Box(-jnp.inf, jnp.inf, (2,))

    def action_space(self, params):
        return Box(-1.0, 1.0, (2,))

    def generate(self, key, params):
        x, y = jax.random.uniform(key, (2,), minval=-0.5, maxval=0.5)
        return params.replace(x=x, y=y)


def methods():
    """Name, algorithm, settings, outer steps for each of those asked for."""
    env = Navigation()
    usual = maml.Hyper(learning_rate=1e-3, inner_learning_rate=0.1)
    yield "MAML", maml.make(env, maml.Config()), usual, 1.0
    yield "FOMAML", maml.make(env, maml.Config(first_order=True)), usual, 1.0
    es = es_maml.Hyper(learning_rate=1e-2, inner_learning_rate=0.1)
    yield "ES-MAML", es_maml.make(env, es_maml.Config()), es, 1.0
    # No inner step while training: the policy that is best without knowing the goal. What would be the episodes before
    # the step teach nothing, so that there are twice as many after it.
    yield (
        "joint training",
        maml.make(env, maml.Config(num_envs=40, first_order=True)),
        usual.replace(inner_learning_rate=0.0),
        1.0,
    )
    yield "untrained", maml.make(env, maml.Config()), usual, 0.0


def draw(found: dict) -> None:
    """Those that were trained; the untrained policy is far below."""
    figure, ax = plt.subplots(figsize=(5, 3.5))
    for name, row in found.items():
        if name != "untrained":
            low, high = np.array(row["intervals"]).T
            ax.plot(row["mean"], marker="o", label=name)
            ax.fill_between(range(STEPS + 1), low, high, alpha=0.1)
    ax.set(xlabel="inner steps on a new goal", ylabel="return", xticks=range(STEPS + 1), title="2-D navigation")
    ax.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(HERE / "results.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=150)
    args = parser.parse_args()
    goals = jax.vmap(Navigation().generate, (0, None))(jax.random.split(jax.random.key(10_000), 40), Goal())
    judge = maml.make(Navigation(), maml.Config())  # adapts all of them by as many episodes
    found = {}
    for name, algo, hyper, share in methods():
        updates = int(share * args.updates)
        at_test = jaxrl.environment.strongly_typed(hyper.replace(inner_learning_rate=0.1))

        def run(key, algo=algo, hyper=hyper, updates=updates, at_test=at_test):
            weights = algo.init(key, hyper).weights
            if updates:
                weights = jaxrl.train(algo, key, updates * algo.steps_per_update, hyper)[0].weights

            def one(key, goal):
                return maml.adapt(judge, weights, key, goal, at_test, STEPS)[1]

            return jax.vmap(one)(jax.random.split(jax.random.fold_in(key, 1), 40), goals)

        program = jax.jit(run)
        begin = time.perf_counter()
        returns = np.stack([np.asarray(program(jax.random.key(seed))) for seed in range(args.seeds)])
        seconds = (time.perf_counter() - begin) / args.seeds
        of_goals = returns.mean(0)
        intervals = [bootstrap_interval(of_goals[:, i], np.mean) for i in range(STEPS + 1)]
        found[name] = {
            "mean": of_goals.mean(0).tolist(),
            "intervals": [list(map(float, x)) for x in intervals],
            "returns": returns.round(3).tolist(),  # (seeds, goals, inner steps)
            "seconds": seconds,
        }
        cells = " | ".join(
            f"{m:.1f} ({a:.1f} to {b:.1f})" for m, (a, b) in zip(of_goals.mean(0), intervals, strict=True)
        )
        print(f"| {name} | {cells} | {seconds:.0f} |", flush=True)
        if name != "MAML":
            apart = (np.mean(found["MAML"]["returns"], 0) - of_goals)[:, 1]
            low, high = bootstrap_interval(apart, np.mean)
            print(f"after one step MAML gets {apart.mean():+.2f} more ({low:+.2f} to {high:+.2f}, paired by goal)")
        where = {"updates": args.updates, "date": time.strftime("%Y-%m-%d"), "where": environment_of_run()}
        (HERE / "results.json").write_text(json.dumps({**where, "results": found}, indent=1) + "\n")
    draw(found)


if __name__ == "__main__":
    main()
