"""What only a GPU or a TPU can confirm, all of it: run this where there is one, and put its table into docs/scaling.md.

Whether the same key gives the same episodes as on the CPU; random actions with auto-reset over batch sizes; acting by
a policy; PPO's whole update alone, with 64 and more seeds, and divided over all devices of the machine; a quadcopter's
dynamics alone. With `--for TARGET`, a name of `jaxrl compile`, PPO's rows also have what that compiler estimates. The
last rows are what others published for theirs, as rows to beat; those are single figures of other machines and other
programs, and no measurement of ours.

Run: `python benchmarks/accelerator.py --for tpu-v5e --out accelerator.json`; `--tiny` tries it on a CPU. Most of its
time is compiling: with `JAX_COMPILATION_CACHE_DIR` set, several processes may do that before, each with some of
`--parts` and `--ids` and `--repeats 1`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import quadcopter
from common import batched_action, print_table, save
from scaling import env_rate, median_seconds, ppo_rate

import jaxrl
from jaxrl.algos import ppo

IDS = (
    "CartPole-v1",
    "Acrobot-v1",
    "Pendulum-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Breakout-MinAtar",
    "Asterix-MinAtar",
    "Freeway-MinAtar",
    "SpaceInvaders-MinAtar",
    "MiniGrid-DoorKey-8x8-v0",
    "MiniGrid-FourRooms-v0",
    "Maze-v0",
    "Quadcopter-Hover-v0",
    "Cont-CC-PMSM-v0",
    "Hopper-v5",
    "HalfCheetah-v5",
    "Walker2d-v5",
)

GYMNAX = "gymnax's README (086ad95): A100, 2,000 environments, from seconds for 1e6 steps"
ISAAC = "Isaac Lab's documentation, v1.4.1: RTX 4090, 4,096 environments"
TO_BEAT = (
    ("CartPole-v1", "random actions", 1e6 / 0.05, GYMNAX),
    ("Acrobot-v1", "random actions", 1e6 / 0.07, GYMNAX),
    ("Pendulum-v1", "random actions", 1e6 / 0.07, GYMNAX),
    ("MountainCar-v0", "random actions", 1e6 / 0.07, GYMNAX),
    ("MountainCarContinuous-v0", "random actions", 1e6 / 0.09, GYMNAX),
    ("Breakout-MinAtar", "random actions", 1e6 / 0.19, GYMNAX),
    ("SpaceInvaders-MinAtar", "random actions", 1e6 / 0.33, GYMNAX),
    ("Freeway-MinAtar", "random actions", 1e6 / 0.87, GYMNAX),
    ("Asterix-MinAtar", "random actions", 1e6 / 0.92, GYMNAX),
    ("CartPole (Isaac Lab's)", "steps", 1.1e6, ISAAC),
    ("CartPole (Isaac Lab's)", "steps and inference", 0.91e6, ISAAC),
    ("CartPole (Isaac Lab's)", "steps, inference and training", 0.51e6, ISAAC),
    (
        "a quadcopter's Runge-Kutta step",
        "dynamics alone",
        1.3e9,
        "learning-to-fly (Eschmann et al. 2024): a laptop's GPU, 5 months of flight a second at 0.01 s a step; no "
        "policy, motors, rewards or resets",
    ),
)


PARTS = ("agreement", "steps", "acting", "dynamics", "ppo")


def difference(id: str, num_envs: int = 16, num_steps: int = 32) -> tuple[float, float]:
    """The largest difference of observations and rewards from the CPU's, of one key, relative where they are above 1.

    The second number is what the CPU's own episodes differ by where their starts do by one part in 10^7: no other
    machine can agree better. Infinite where an episode ended at another step or only one of two numbers is finite.
    Episodes are cut after ten steps where the task has a limit, so that starts are compared, too.
    """
    env, params = jaxrl.make(id)
    if hasattr(params, "max_steps"):
        params = params.replace(max_steps=jnp.minimum(params.max_steps, 10))
    venv, space = jaxrl.vectorize(env, num_envs, "dense"), env.action_space(params)

    def episodes(key, nudge):
        reset_key, key = jax.random.split(key)
        start = venv.reset(reset_key, params)[1]
        start = jax.tree.map(lambda x: x * (1 + nudge) if jnp.issubdtype(x.dtype, jnp.floating) else x, start)

        def step(state, key):
            act_key, step_key = jax.random.split(key)
            ts = venv.step(step_key, state, batched_action(act_key, space, num_envs), params)
            return ts.state, (ts.obs, ts.reward, ts.terminated | ts.truncated)

        return jax.lax.scan(step, start, jax.random.split(key, num_steps))[1]

    def seen(device, nudge):
        with jax.default_device(device):
            *numbers, ended = jax.device_get(jax.jit(episodes)(jax.random.key(0), jnp.float32(nudge)))
        return [np.asarray(x, float) for x in jax.tree.leaves(numbers)], ended

    def apart(one, other):
        (numbers, ended), (others, others_ended) = one, other
        pairs = [*zip(numbers, others, strict=True)]
        if (ended != others_ended).any() or any((np.isfinite(a) != np.isfinite(b)).any() for a, b in pairs):
            return math.inf
        gaps = (abs(a - b) / np.maximum(abs(b), 1) for a, b in pairs)
        return float(max(np.max(gap, where=np.isfinite(gap), initial=0) for gap in gaps))

    cpu = jax.devices("cpu")[0]
    here, there, nudged = seen(jax.devices()[0], 0), seen(cpu, 0), seen(cpu, 1e-7)
    return apart(here, there), apart(nudged, there)


def acting_rate(id: str, num_envs: int, num_steps: int, repeats: int) -> float:
    """Environment steps per second of PPO's rollouts, its actor and critic of 64 x 64 included, nothing learned."""
    algo = ppo.make(jaxrl.make(id)[0], ppo.Config(num_envs=num_envs, num_steps=num_steps))
    collect, state = jax.jit(algo.collect), jax.jit(algo.init)(jax.random.key(0))
    return num_envs * num_steps / median_seconds(lambda: collect(state), repeats)


def dynamics_rate(name: str, num_drones: int, num_steps: int, repeats: int) -> float:
    """Drone-steps per second of dynamics alone, as `quadcopter.py` has them."""
    return quadcopter.measure_bare(name, num_drones, num_drones * num_steps, repeats)["steps"]


def estimated(id: str, target: str, seeds: int, num_envs: int, mesh: str | None, config: dict[str, int]) -> float:
    """Environment steps per second of PPO that the compiler of a target expects, by `jaxrl compile`.

    Raises ValueError with its sentence where it refuses.
    """
    words = ["compile", "ppo", id, "--for", target, "--seeds", str(seeds), *(["--mesh", mesh] if mesh else [])]
    for name, value in {"num_envs": num_envs, **config}.items():
        words += [f"--config.{name.replace('_', '-')}", str(value)]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "report.json"
        command = [sys.executable, "-m", "jaxrl", *words, "--json", str(file)]
        done = subprocess.run(command, env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(done.stderr.strip()[-200:])
        report = json.loads(file.read_text())
    if report["update_seconds"] is None:
        raise ValueError("this compiler gives no times")
    return report["steps"] / report["update_seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", nargs="*", default=IDS)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--envs", type=int, nargs="*", default=[2048, 4096, 16384, 65536, 262144])
    parser.add_argument("--seeds", type=int, nargs="*", default=[64, 256, 1024])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="sizes with which a CPU shows that all of it runs")
    parser.add_argument("--out")
    parser.add_argument("--for", dest="target", help="also what the compiler of this machine estimates, as tpu-v5e")
    flags = parser.parse_args()
    if jax.default_backend() == "cpu" and not flags.tiny:
        parser.error("there is no accelerator here; --tiny shows on a CPU that all of it runs.")
    if flags.tiny:
        flags.envs, flags.seeds, flags.steps, flags.repeats = [8, 16], [2], 8, 1
    devices = jax.device_count()
    name = f"{devices} x {jax.devices()[0].device_kind}"
    rows: list[tuple[str, str, str, float | None, str]] = []

    def measured(id: str, what: str, size: str, rate_of: Callable[..., float], *args: Any, **kwargs: Any) -> None:
        start = time.perf_counter()
        try:
            rate, note = rate_of(id, *args, repeats=flags.repeats, **kwargs), name
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # out of memory, mostly: the others are still wanted
            rate, note = None, " ".join(str(error).split())[:80]
        rows.append((id, what, size, rate, note))
        print(f"{id:28} {what:24} {size:24} {rate or 0:12.4g}  {time.perf_counter() - start:.0f} s", flush=True)

    apart = {}
    for id in flags.ids if "agreement" in flags.parts else ():
        apart[id] = difference(id)
        said = "largest difference from the CPU's episodes {:.2g}, of these when starts differ {:.2g}"
        print(f"{id:28}", said.format(*apart[id]), flush=True)
    for id in flags.ids if "steps" in flags.parts else ():
        for n in flags.envs:
            measured(id, "random actions", f"{n} envs", env_rate, n, flags.steps)
    for n in flags.envs if "acting" in flags.parts else ():
        measured("CartPole-v1", "steps and inference", f"{n} envs", acting_rate, n, 8 if flags.tiny else 64)
    for n in flags.envs if "dynamics" in flags.parts else ():
        measured("l2f 13", "dynamics alone", f"{n} drones", dynamics_rate, n, flags.steps)
    small = dict(num_steps=64, num_epochs=4, num_minibatches=4)
    if flags.tiny:
        small = dict(num_steps=8, num_epochs=1, num_minibatches=1)
    each = min(flags.envs[0], 256)
    runs = [(None, n, None) for n in flags.envs] + [(seeds, each, None) for seeds in flags.seeds]
    runs += [(flags.seeds[0] * devices, each, f"seeds={devices}"), (None, flags.envs[0] * devices, f"envs={devices}")]
    tasks = [("CartPole-v1", *run) for run in runs] + [("MiniGrid-DoorKey-8x8-v0", None, flags.envs[0], None)]
    for id, seeds, n, mesh in tasks if "ppo" in flags.parts else ():
        what, size = "PPO" if mesh is None else f"PPO, mesh {mesh}", f"{seeds or 1} seeds x {n} envs"
        measured(id, what, size, ppo_rate, n, seeds, mesh=mesh, **small)
        if flags.target and mesh is None:
            expected = dict(target=flags.target, seeds=seeds or 1, num_envs=n, mesh=None, config=small)
            measured(id, f"... estimated for {flags.target}", size, lambda id, repeats, e=expected: estimated(id, **e))
    table = [(*row[:3], "-" if row[3] is None else f"{row[3] / 1e6:.4g}", row[4]) for row in rows]
    table += [(id, what, "", f"{rate / 1e6:.4g}", source) for id, what, rate, source in TO_BEAT]
    print_table(name, ("task", "what", "size", "M steps/s", "where"), table)
    if flags.out:
        save(flags.out, {"rows": rows, "to_beat": TO_BEAT, "settings": vars(flags), "differences": apart})


if __name__ == "__main__":
    main()
