"""One process of gym-pybullet-drones, timed: physics steps, and steps of its hover task with random actions.

Run by `quadcopter.py` in an environment with pybullet; `--source` is a checkout of gym-pybullet-drones. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--steps", type=int, default=4000, help="physics steps of one timed run")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    sys.path.insert(0, args.source)
    warnings.filterwarnings("ignore")

    import numpy as np
    from gym_pybullet_drones.envs.CtrlAviary import CtrlAviary
    from gym_pybullet_drones.envs.HoverAviary import HoverAviary
    from gym_pybullet_drones.utils.enums import ActionType, Physics

    def rates(env, next_action, steps):
        """Steps per second without what resets take: median of wall time, best of processor time; and with resets."""
        env.reset(seed=0)
        wall, processor, whole = [], [], []
        for _ in range(args.repeats):
            start, before, resets, resets_processor = time.perf_counter(), time.process_time(), 0.0, 0.0
            for _ in range(steps):
                _, _, terminated, truncated, _ = env.step(next_action())
                if terminated or truncated:
                    at, at_processor = time.perf_counter(), time.process_time()
                    env.reset()
                    resets += time.perf_counter() - at
                    resets_processor += time.process_time() - at_processor
            seconds = time.perf_counter() - start
            wall.append(steps / (seconds - resets))
            whole.append(steps / seconds)
            processor.append(steps / (time.process_time() - before - resets_processor))
        env.close()
        return statistics.median(wall), max(processor), statistics.median(whole)

    result = {}
    hover = np.full((1, 4), 14468.429)
    for physics in (Physics.DYN, Physics.PYB):
        # Physics and its state vector, no task: one physics step a call, of one drone that hovers.
        cases = {f"physics {physics.value}": (CtrlAviary(physics=physics, pyb_freq=240, ctrl_freq=240), None)}
        # Its task as it ships, at 30 Hz with eight physics steps each, and with one physics step each.
        for frequency in (30, 240):
            env = HoverAviary(physics=physics, act=ActionType.RPM, ctrl_freq=frequency)
            cases[f"task at {frequency} Hz, {physics.value}"] = (env, env.action_space)
        for name, (env, space) in cases.items():
            if space is None:
                values = rates(env, lambda: hover, args.steps)
            else:
                space.seed(0)
                values = rates(env, space.sample, args.steps * env.CTRL_FREQ // 240)
            result |= {f"{name}:{k}": v for k, v in zip(("steps", "per core", "with resets"), values, strict=True)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
