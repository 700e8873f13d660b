"""How much is there to gain by scheduling PPO's learning rates, entropy and clip over a life, without any training?

    python experiments/learned_rules/schedules.py [--tasks "GridWorld-mazes, 25" ...]

Rules of the form that `evolve.py --begins ppo` evolves, whose weights are set so that they schedule as `SCHEDULES`
says. Each is tuned over 15 pairs of learning rates, as PPO is, and judged on other levels. Goes on where it was
stopped, writes its part of results.json and prints the README's table.
"""

import argparse
import functools
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from evolve import FAMILIES, FEW_RATES, UNSEEN, returns_of
from run import RESULTS, save

from jaxrl.algos.meta import scheduled
from jaxrl.host.statistics import bootstrap_interval
from jaxrl.meta.rule import fresh_weights

TASKS = ("GridWorld-mazes, 25",)
"""Family and updates of a life."""
LEVELS, TUNING = 192, 48

Schedule = Callable[[np.ndarray], Any]  # of n/N in [0, 1] to the logarithm of a factor


def linear(last: float) -> Schedule:
    return lambda t: np.log(1 - (1 - last) * t)


def exponential(first: float, last: float) -> Schedule:
    return lambda t: np.log(first) + np.log(last / first) * t


def constant(t: np.ndarray) -> np.ndarray:
    return 0 * t


SCHEDULES: dict[str, tuple[Schedule, Schedule, Schedule, Schedule]] = {  # both rates, the entropy, the clip
    "PPO": (constant,) * 4,
    "both rates to 0.1, linearly": (linear(0.1), linear(0.1), constant, constant),
    "the actor's rate to 0.1, linearly": (linear(0.1), constant, constant, constant),
    "entropy from 1 to 0.03": (constant, constant, exponential(1, 0.03), constant),
    "entropy from 3 to 0.03": (constant, constant, exponential(3, 0.03), constant),
    "entropy from 10 to 0.03": (constant, constant, exponential(10, 0.03), constant),
    "rates to 0.1, entropy from 3 to 0.03": (linear(0.1), linear(0.1), exponential(3, 0.03), constant),
    "clip from 2 to 0.5, entropy from 3 to 0.03": (constant, constant, exponential(3, 0.03), exponential(2, 0.5)),
}
"""Factors by the position in a life."""


def weights_of(schedules: tuple[Schedule, ...], rule: Any) -> Any:
    """The rule's weights with which its outputs are so, to 0.04."""
    hidden, last = fresh_weights(rule, jax.random.key(0))
    (bias, kernel), centres, slope = jax.tree.leaves(hidden), np.linspace(-0.1, 1.1, 8), 3.0
    assert (bias.shape, kernel.shape) == ((8,), (4, 8))
    first = [-slope * centres, np.zeros((4, 8))]
    first[1][0] = slope
    t = np.linspace(0, 1, 200)
    features = np.c_[np.tanh(slope * (t[:, None] - centres)), np.ones(200)]
    wanted = np.stack([schedule(t) for schedule in schedules], 1)
    solved = np.linalg.lstsq(features, wanted, rcond=1e-3)[0]
    assert np.abs(features @ solved - wanted).max() < 0.04
    second = [solved[8], solved[:8]]
    found = [jax.tree.unflatten(jax.tree.structure(old), new) for old, new in ((hidden, first), (last, second))]
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tuple(found))


def given(weights: Any, key: jax.Array) -> Any:
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    args = parser.parse_args()
    rule = scheduled.rule(scheduled.RuleConfig(clip_eps=0.2))
    found = json.loads(RESULTS.read_text()).get("schedules", {}).get("tasks", {})
    for task in args.tasks:
        name, updates = task.split(", ")
        rows = found.setdefault(task, {})
        for title, schedules in SCHEDULES.items():
            times = [np.exp(schedule(np.linspace(0, 1, 3))).round(3).tolist() for schedule in schedules]
            what = {"factors": str(times), "levels": LEVELS, "tuned_on": TUNING, "rates": str(FEW_RATES)}
            if rows.get(title, {}).get("what") == what:
                continue
            made = rule._replace(init=functools.partial(given, weights_of(schedules, rule)))
            got = returns_of(made, (FAMILIES | UNSEEN)[name], int(updates), LEVELS, TUNING, FEW_RATES)
            rows[title] = {"what": what, **got}
            apart = np.subtract(rows[title]["returns"], rows["PPO"]["returns"])
            low, high = bootstrap_interval(apart, np.mean)
            mean = np.mean(rows[title]["returns"])
            print(f"| {task} | {title} | {mean:.3f} | {apart.mean():+.3f} ({low:+.3f} to {high:+.3f}) |", flush=True)
            save("schedules", {"tasks": found})


if __name__ == "__main__":
    main()
