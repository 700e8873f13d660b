"""Random-action throughput of grid worlds with auto-reset, against navix 0.7 and xminigrid 0.9 in the same process.

All sides draw actions with the same code and store what PPO would of every step: observation, reward, ends. Ours is
MiniGrid's own observation, 7x7x3 uint8 with each id's visibility, and the direction; navix's is its default, the whole
grid without occlusion (`navix 7x7`: its first-person one, not occluded either); xminigrid's is 7x7x2, not occluded.
Time limits are MiniGrid's on all sides. Repeats alternate; the table shows medians.

Run: `python benchmarks/grid_throughput.py --out grid_throughput.json`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
from common import batched_action, geometric_mean, print_table, save

import jaxrl
from jaxrl.spaces import Discrete

IDS = ("Empty-8x8", "DoorKey-8x8", "FourRooms")


def jaxrl_side(id: str, n: int, max_steps: int) -> tuple[Callable, Callable]:
    """`(reset, step)` of `n` environments: `state = reset(key)`, `state, stored = step(key, state, action)`."""
    env, params = jaxrl.make(f"MiniGrid-{id}-v0")
    venv = jaxrl.vectorize(env, n)

    def step(key, state, action):
        obs, state, reward, terminated, truncated, _ = venv.step(key, state, action, params)
        return state, (obs["image"], obs["direction"], reward, terminated, truncated)

    return lambda key: venv.reset(key, params)[1], step


def navix_side(id: str, n: int, max_steps: int, first_person: bool = False) -> tuple[Callable, Callable]:
    """navix resets in its own step, at the next call."""
    import navix

    options = {"observation_fn": navix.observations.symbolic_first_person} if first_person else {}
    env = navix.make(f"Navix-{id}-v0", max_steps=max_steps, **options)

    def step(key, timestep, action):
        timestep = jax.vmap(env.step)(timestep, action)
        return timestep, (timestep.observation, timestep.reward, timestep.step_type)

    return lambda key: jax.vmap(env.reset)(jax.random.split(key, n)), step


def xminigrid_side(id: str, n: int, max_steps: int) -> tuple[Callable, Callable]:
    """xminigrid with the auto-reset of its wrapper."""
    import xminigrid
    from xminigrid.wrappers import GymAutoResetWrapper

    env, params = xminigrid.make(f"MiniGrid-{id}")
    env, params = GymAutoResetWrapper(env), params.replace(max_steps=max_steps)

    def step(key, timestep, action):
        timestep = jax.vmap(env.step, (None, 0, 0))(params, timestep, action)
        return timestep, (timestep.observation, timestep.reward, timestep.step_type)

    return lambda key: jax.vmap(env.reset, (None, 0))(params, jax.random.split(key, n)), step


def navix_first_person(id: str, n: int, max_steps: int) -> tuple[Callable, Callable]:
    """navix with its 7x7 observation."""
    return navix_side(id, n, max_steps, first_person=True)


SIDES = {"jaxrl": jaxrl_side, "navix": navix_side, "navix 7x7": navix_first_person, "xminigrid": xminigrid_side}


def time_limit(id: str) -> int:
    return int(jaxrl.make(f"MiniGrid-{id}-v0")[1].max_steps)


def program(side: Callable, id: str, n: int, steps: int) -> tuple[Callable, Any, float]:
    """A compiled `(key, state) -> (state, stored)`, its first state, and the seconds it took to compile."""
    max_steps = time_limit(id)
    reset, step = side(id, n, max_steps)
    actions = Discrete(6 if side is xminigrid_side else 7)

    def run(key, state):
        def body(state, key):
            act_key, step_key = jax.random.split(key)
            return step(step_key, state, batched_action(act_key, actions, n))

        return jax.lax.scan(body, state, jax.random.split(key, steps))

    start = time.perf_counter()
    state = jax.block_until_ready(jax.jit(reset)(jax.random.key(0)))
    compiled = jax.jit(run).lower(jax.random.key(1), state).compile()
    seconds = time.perf_counter() - start
    return compiled, jax.block_until_ready(compiled(jax.random.key(1), state))[0], seconds


def measure(id: str, sides: list[str], n: int, steps: int, repeats: int) -> dict[str, Any]:
    """Median environment steps per second and compile seconds of each side, repeats alternating."""
    programs = {name: program(SIDES[name], id, n, steps) for name in sides}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    # Clocks stay in step, so that each repeat lasts a whole time limit and holds a reset of every slot.
    calls = math.ceil(time_limit(id) / steps)
    for repeat in range(repeats):
        for name, (run, state, _) in programs.items():
            seconds = 0.0
            for call in range(calls):
                start = time.perf_counter()
                state, stored = jax.block_until_ready(run(jax.random.key(calls * repeat + call), state))
                seconds += time.perf_counter() - start
                del stored
            rates[name].append(n * steps * calls / seconds)
    return {
        "rates": {name: statistics.median(r) for name, r in rates.items()},
        "compile_s": {name: seconds for name, (_, _, seconds) in programs.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", nargs="+", default=IDS)
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=200, help="in one timed call; all of them are stored")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", default="grid_throughput.json")
    args = parser.parse_args()
    results = {id: measure(id, args.sides, args.num_envs, args.steps, args.repeats) for id in args.ids}
    rows = []
    for id, result in results.items():
        rates = result["rates"]
        rows += [
            [id, name, f"{rate / 1e6:.2f}", f"{rates['jaxrl'] / rate:.1f}", f"{result['compile_s'][name]:.1f}"]
            for name, rate in rates.items()
        ]
    for name in args.sides[1:]:
        mean = geometric_mean([r["rates"]["jaxrl"] / r["rates"][name] for r in results.values()])
        rows.append(["geometric mean", name, "", f"{mean:.1f}", ""])
    print_table(f"{args.num_envs:,} environments", ["", "side", "M steps/s", "jaxrl / it", "compile s"], rows)
    versions = {name: importlib.metadata.version(name) for name in ("navix", "xminigrid")}
    save(args.out, {**versions, "results": results})


if __name__ == "__main__":
    main()
