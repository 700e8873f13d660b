"""Make tests/golden/quadcopter_tasks.npz: closed-loop episodes of gym-pybullet-drones' learning tasks.

Reference: gym-pybullet-drones, commit 90b178a (2026-05, package 2.1.0), pybullet 3.2.7, numpy 2.4, Python 3.11, with
`Physics.DYN`. It is not on PyPI in this form: clone it, then in an environment with pybullet, gymnasium and scipy

    PYTHONPATH=gym-pybullet-drones python tests/golden/make_quadcopter_tasks.py
"""

import contextlib
import io
from pathlib import Path

import numpy as np
from gym_pybullet_drones.envs.HoverAviary import HoverAviary
from gym_pybullet_drones.envs.MultiHoverAviary import MultiHoverAviary
from gym_pybullet_drones.utils.enums import ActionType, ObservationType, Physics

STEPS = 40
OUT = Path(__file__).with_name("quadcopter_tasks.npz")


def episode(make, kind: str, actions: np.ndarray) -> dict[str, np.ndarray]:
    """State after each action, in double precision, the reward and how it ended; the last observation, in single."""
    with contextlib.redirect_stdout(io.StringIO()):
        env = make(physics=Physics.DYN, obs=ObservationType.KIN, act=ActionType(kind))
        env.reset()
    states, rewards, terminated, truncated = [], [], [], []
    for action in actions:
        obs, reward, end, cut, _ = env.step(action)
        states.append(np.concatenate([env.pos, env.rpy, env.vel, env.ang_v], 1))
        rewards.append(reward)
        terminated.append(end)
        truncated.append(cut)
    env.close()
    return {
        "actions": actions,
        "states": np.array(states),
        "rewards": np.array(rewards, float),
        "terminated": np.array(terminated),
        "truncated": np.array(truncated),
        "obs": obs,
    }


def main() -> None:
    rng = np.random.default_rng(0)
    data = {}
    for kind, size in (("rpm", 4), ("one_d_rpm", 1), ("pid", 3), ("vel", 4), ("one_d_pid", 1)):
        # Slow changes, for a start: four rotors at random soon tumble, which is in the data too.
        actions = np.clip(np.cumsum(rng.normal(0, 0.2, (STEPS, 1, size)), 0), -1, 1)
        data |= {f"hover_{kind}_{k}": v for k, v in episode(HoverAviary, kind, actions).items()}
    for kind, size in (("rpm", 4), ("vel", 4)):
        actions = np.clip(np.cumsum(rng.normal(0, 0.2, (STEPS, 2, size)), 0), -1, 1)
        data |= {f"multi_{kind}_{k}": v for k, v in episode(MultiHoverAviary, kind, actions).items()}
    # Up and past the ceiling, then on to the time limit.
    full = np.full((243, 1, 1), 1.0)
    data |= {f"hover_time_{k}": v for k, v in episode(HoverAviary, "one_d_rpm", -0.0 * full).items() if k != "actions"}
    np.savez_compressed(OUT, **data)
    print(OUT, {k: v.shape for k, v in data.items()})


if __name__ == "__main__":
    main()
