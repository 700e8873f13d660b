"""Write what the controllers of gym-pybullet-drones and crazyflow do, for tests that run without them.

    python tests/golden/make_quadcopter_controllers.py gpd --source PATH   # a checkout, with pybullet, transforms3d
    python tests/golden/make_quadcopter_controllers.py crazyflow          # with crazyflow 0.4.0

Each in an environment of its own; both write their part of `quadcopter_controllers.json`.

- `dslpid_<model>`: gym-pybullet-drones (commit 90b178a) with `Physics.DYN` at 240 Hz: rotor speeds at zero for a step,
  then its PID from `START` to `TARGET`. States after every 48th step, quaternions (w, x, y, z).
- `ctbr`: thrust by mass and body rates of its `CTBRControl` at each of `states()`, for `TARGET` without yaw.
- `mellinger_<drone>`: rotor speeds of crazyflow's controller at each of `states()` in turn, 1/500 s apart.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "quadcopter_controllers.json"
START = {"position": (0.1, -0.2, 0.4), "rpy": (0.1, -0.05, 0.3)}
TARGET = {
    "position": (0.4, 0.1, 0.9),
    "velocity": (0.1, -0.2, 0.05),
    "acceleration": (0.3, -0.1, 0.2),
    "yaw": 0.4,
    "yaw_rate": 0.3,
}


def states(n: int = 6) -> dict[str, np.ndarray]:
    """States to ask a controller about; rows of smooth numbers."""
    k = np.arange(n)[:, None]
    xyz = np.arange(3)
    return {
        "position": np.array([0.37, 0.13, 0.87]) + 0.02 * np.sin(0.4 * k + xyz),
        "rpy": np.array([0.0, 0.0, 0.35]) + 0.08 * np.cos(0.3 * k + 2 * xyz),
        "velocity": np.array([0.1, -0.15, 0.0]) + 0.1 * np.sin(0.5 * k + 2 * xyz),
        "body_rates": 0.1 * np.cos(0.15 * k + xyz),
    }


def write(part: dict[str, Any]) -> None:
    data = json.loads(DATA.read_text()) if DATA.exists() else {}
    DATA.write_text(json.dumps({**data, **part}, indent=1) + "\n")


def gpd(source: Path) -> dict[str, Any]:
    sys.path.insert(0, str(source))
    import gym_pybullet_drones
    from gym_pybullet_drones.control.DSLPIDControl import DSLPIDControl
    from gym_pybullet_drones.envs.CtrlAviary import CtrlAviary
    from gym_pybullet_drones.utils.enums import DroneModel, Physics

    data = {}
    for name in ("cf2x", "cf2p"):
        with contextlib.redirect_stdout(io.StringIO()):
            env = CtrlAviary(
                drone_model=DroneModel(name),
                initial_xyzs=np.array([START["position"]]),
                initial_rpys=np.array([START["rpy"]]),
                physics=Physics.DYN,
                ctrl_freq=240,
                gui=False,
                user_debug_gui=False,
            )
            control = DSLPIDControl(drone_model=DroneModel(name))
            env.reset()
        rpm, rows = np.zeros((1, 4)), []
        for _ in range(480):
            obs = env.step(rpm)[0]
            rpm[0] = control.computeControlFromState(
                control_timestep=1 / 240,
                state=obs[0],
                target_pos=np.array(TARGET["position"]),
                target_rpy=np.array([0, 0, TARGET["yaw"]]),
                target_vel=np.array(TARGET["velocity"]),
                target_rpy_rates=np.array([0, 0, TARGET["yaw_rate"]]),
            )[0]
            rows.append(np.concatenate([env.pos[0], env.quat[0, [3, 0, 1, 2]], env.vel[0], rpm[0]]).tolist())
        data[f"dslpid_{name}"] = rows[47::48]
        with contextlib.redirect_stdout(io.StringIO()):
            env.close()

    # It looks its files up with a module that setuptools no longer has.
    folder = Path(gym_pybullet_drones.__file__).parent
    resources: Any = types.ModuleType("pkg_resources")
    resources.resource_filename = lambda _, path: str(folder / path)
    sys.modules.setdefault("pkg_resources", resources)
    from gym_pybullet_drones.control.CTBRControl import CTBRControl
    from scipy.spatial.transform import Rotation

    control = CTBRControl(DroneModel.CF2X)
    given = states()
    data["ctbr"] = [
        [
            float(x)
            for x in control.computeControl(
                1 / 240,
                position,
                Rotation.from_euler("xyz", rpy).as_quat()[[3, 0, 1, 2]],
                velocity,
                rates,
                np.array(TARGET["position"]),
                target_vel=np.array(TARGET["velocity"]),
            )
        ]
        for position, rpy, velocity, rates in zip(*given.values(), strict=True)
    ]
    return data


def crazyflow() -> dict[str, Any]:
    os.environ["SCIPY_ARRAY_API"] = "1"
    from crazyflow.control.core import load_fn_params
    from crazyflow.control.mellinger import attitude2force_torque, force_torque2rotor_vel, state2attitude
    from scipy.spatial.transform import Rotation

    wanted = np.concatenate(
        [
            TARGET["position"],
            TARGET["velocity"],
            TARGET["acceleration"],
            Rotation.from_euler("z", TARGET["yaw"]).as_quat(),
            np.zeros(3),
        ]
    )
    data, given = {}, states()
    for drone in ("cf2x_L250", "cf2x_P250", "cf2x_T350", "cf21B_500"):
        stages = (state2attitude, attitude2force_torque, force_torque2rotor_vel)
        parameters = [load_fn_params(stage, drone, xp=np) for stage in stages]
        rows, total, twist, last = [], None, None, None
        for position, rpy, velocity, rates in zip(*given.values(), strict=True):
            body = Rotation.from_euler("xyz", rpy).as_quat()
            attitude, total = state2attitude(position, body, velocity, wanted, total, 500, **parameters[0])
            force, torque, twist = attitude2force_torque(body, rates, attitude, last, twist, 500, **parameters[1])
            rows.append(np.ravel(force_torque2rotor_vel(force, torque, **parameters[2])).tolist())
            last = rates
        data[f"mellinger_{drone}"] = rows
    return data


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("simulator", choices=["gpd", "crazyflow"])
    parser.add_argument("--source", type=Path)
    args = parser.parse_args()
    write(gpd(args.source) if args.simulator == "gpd" else crazyflow())
