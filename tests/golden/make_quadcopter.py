"""Write what the accepted quadcopter simulators do, for tests that run without them.

    python tests/golden/make_quadcopter.py gpd --source PATH       # a checkout of gym-pybullet-drones, with pybullet
    python tests/golden/make_quadcopter.py crazyflow               # with crazyflow 0.4.0 (and drone-models 0.1.0)
    python tests/golden/make_quadcopter.py rltools --source PATH   # a checkout of rl-tools, with g++
    python tests/golden/make_quadcopter.py cases --source PATH     # a folder with two tables of cases

Each simulator in an environment of its own. Trajectories are rows of position, quaternion (w, x, y, z), velocity and
rates, one after every fourth physics step; what drives them is in `wobble` and `START`, which the tests import.

- `quadcopter_gpd.npz`: `<model>_<physics>` (30, 13): gym-pybullet-drones (commit 90b178a, pybullet 3.2.7) at 240 Hz,
  rates in the world. `pair_pyb_dw` (2, 30, 13): one drone above another. `cf2x_48_<physics>`: five physics steps to a
  control step, a row at each control step.
- `quadcopter_crazyflow.npz`: `<drone>_<integrator>` (15, 17): crazyflow 0.4.0 at 500 Hz, body rates, rotor speeds last.
  `old_<drone>`: what drone-models 0.1.0 gives for the derivative of `STATE`: acceleration, angular acceleration, rotor
  acceleration.
- `quadcopter_rltools.npz`: `<model>` (12, 17): RLtools (commit 9acdf5c) at 100 Hz in double precision, from `STATE`,
  body rates, throttles last.
- `quadcopter_cases.json`: constants, single calls and short flights, `cases`, and those that gym-pybullet-drones was
  seen to agree with, `gym_pybullet_drones`; their quaternions are x, y, z, w.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
EVERY = slice(3, None, 4)
START = {"position": (0.1, -0.2, 0.4), "rpy": (0.2, -0.15, 0.6)}
STATE = {
    "position": (0.1, -0.2, 1.0),
    "rpy": (0.3, -0.2, 0.6),
    "velocity": (0.5, -1.0, 0.3),
    "body_rates": (1.5, -2.0, 0.7),
    "rpm": (15000.0, 16000.0, 17000.0, 18000.0),
    "command": (16000.0, 15500.0, 18000.0, 17500.0),
    "force": (0.01, -0.02, 0.005),
    "torque": (2e-6, -1e-6, 3e-6),  # in the world
}


def wobble(hover: float, steps: int, size: float = 0.03, pace: float = 0.1) -> np.ndarray:
    """Rotor speeds (steps, 4) about `hover`."""
    return hover * (1 + size * np.sin(pace * np.arange(steps)[:, None] + np.arange(4)))


def quaternion(rpy: Any) -> np.ndarray:
    """w, x, y, z of roll, pitch and yaw."""
    (cr, cp, cy), (sr, sp, sy) = np.cos(np.array(rpy) / 2), np.sin(np.array(rpy) / 2)
    return np.array(
        [
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        ]
    )


# ---- gym-pybullet-drones


def fly_gpd(model: str, physics: str, steps: int, starts: Any = (START,), ctrl_freq: int = 240) -> np.ndarray:
    """States (drones, steps, 13) of gym-pybullet-drones under `wobble`, at its control steps."""
    from gym_pybullet_drones.envs.CtrlAviary import CtrlAviary
    from gym_pybullet_drones.utils.enums import DroneModel, Physics

    with contextlib.redirect_stdout(io.StringIO()):
        env = CtrlAviary(
            drone_model=DroneModel(model),
            num_drones=len(starts),
            initial_xyzs=np.array([start["position"] for start in starts], float),
            initial_rpys=np.array([start["rpy"] for start in starts], float),
            physics=Physics(physics),
            ctrl_freq=ctrl_freq,
            gui=False,
            user_debug_gui=False,
        )
        env.reset()
    rows = []
    for command in wobble(env.HOVER_RPM, steps):
        env.step(np.tile(command, (len(starts), 1)))
        rows.append(np.concatenate([env.pos, env.quat[:, [3, 0, 1, 2]], env.vel, env.ang_v], -1))
    with contextlib.redirect_stdout(io.StringIO()):
        env.close()
    return np.stack(rows, 1)[:, EVERY if ctrl_freq == 240 else slice(None)]


PAIR = ({"position": (0.0, 0.0, 0.5), "rpy": (0.1, 0.0, 0.0)}, {"position": (0.03, 0.02, 1.5), "rpy": (0.0, 0.1, 0.0)})


def gpd(source: Path) -> dict[str, np.ndarray]:
    sys.path.insert(0, str(source))
    kinds = ("dyn", "pyb", "pyb_gnd", "pyb_drag", "pyb_gnd_drag_dw")
    data = {f"{model}_{kind}": fly_gpd(model, kind, 120)[0] for model in ("cf2x", "cf2p", "racer") for kind in kinds}
    data["pair_pyb_dw"] = fly_gpd("cf2x", "pyb_dw", 120, PAIR)
    data |= {f"cf2x_48_{kind}": fly_gpd("cf2x", kind, 12, ctrl_freq=48)[0] for kind in kinds}
    return data


# ---- crazyflow


def crazyflow() -> dict[str, np.ndarray]:
    os.environ["SCIPY_ARRAY_API"] = "1"
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from crazyflow.control import Control
    from crazyflow.dynamics import Dynamics, load_params
    from crazyflow.sim import Sim
    from scipy.spatial.transform import Rotation

    body = Rotation.from_euler("xyz", STATE["rpy"])

    def fly(drone, integrator, commands, rotor):
        sim = Sim(drone=drone, dynamics=Dynamics.first_principles, control=Control.rotor_vel, integrator=integrator)
        state = sim.data.states
        given = {
            "pos": STATE["position"],
            "quat": body.as_quat(),
            "vel": STATE["velocity"],
            "ang_vel": STATE["body_rates"],
            "force": STATE["force"],
            "torque": STATE["torque"],
            "rotor_vel": np.broadcast_to(rotor, state.rotor_vel.shape[-1:]),
        }
        state = state.replace(**{k: jnp.asarray(v, jnp.float64)[None, None] for k, v in given.items()})
        sim.data = sim.data.replace(states=state)
        rows = []
        for command in commands:
            command = jnp.asarray(command, jnp.float64)[None, None]
            sim.rotor_vel_control(command)
            sim.step()
            s = sim.data.states
            fields = (s.pos, s.quat[..., [3, 0, 1, 2]], s.vel, s.ang_vel, s.rotor_vel)
            rows.append(np.concatenate([np.asarray(x)[0, 0] for x in fields]))
        return np.stack(rows)[EVERY]

    data = {}
    drones = ("cf2x_L250", "cf2x_P250", "cf2x_T350", "cf21B_500")
    for drone in drones:
        p = load_params(Dynamics.first_principles, drone)
        _, a1, a2 = np.ravel(p["rpm2thrust"])
        hover = (np.sqrt(a1**2 + a2 * float(p["mass"]) * 9.81) - a1) / (2 * a2)
        commands = wobble(hover, 60, 0.02, 0.05)
        for integrator in ("euler", "rk4"):
            data[f"{drone}_{integrator}"] = fly(drone, integrator, commands, hover)
    from drone_models import parametrize
    from drone_models.first_principles import dynamics as old

    for drone in drones:
        rate = parametrize(old, drone)(
            np.array(STATE["position"]),
            body.as_quat(),
            np.array(STATE["velocity"]),
            np.array(STATE["body_rates"]),
            np.array(STATE["command"]),
            np.array(STATE["rpm"]),
            np.array(STATE["force"]),
            np.array(STATE["torque"]),
        )
        data[f"old_{drone}"] = np.concatenate([np.asarray(x) for x in rate[2:]])
    return data


# ---- RLtools

THROTTLE = 0.6
RLTOOLS = {
    "crazyflie_rltools": "crazyflie",
    "x500_sim": "x500_sim",
    "x500_real": "x500_real",
    "flightmare": "flightmare",
    "arpl": "arpl",
}
"""Our name of a model and its name there. The inertia of x500_real has a typing error there; its inverse has not."""

DRIVER = """
#include <rl_tools/operations/cpu.h>
#include <rl_tools/rl/environments/l2f/operations_cpu.h>
#include <cstdio>
namespace rlt = rl_tools;
using DEVICE = rlt::devices::DefaultCPU;
using TI = DEVICE::index_t;
using T = double;
using ENV = rlt::rl::environments::Multirotor<rlt::rl::environments::l2f::Specification<T, TI>>;
namespace models = rlt::rl::environments::l2f::parameters::dynamics;
template <models::REGISTRY NAME> void fly() {
  DEVICE device; ENV env; ENV::Parameters parameters; ENV::State state, next;
  DEVICE::SPEC::RANDOM::ENGINE<> rng;
  rlt::malloc(device, rng); rlt::init(device, rng, 0); rlt::init(device, env);
  rlt::initial_parameters(device, env, parameters);
  parameters.dynamics = models::registry<NAME, ENV::SPEC>;
  for (int i = 0; i < 3; i++) parameters.dynamics.J[i][i] = 1 / parameters.dynamics.J_inv[i][i];
  rlt::initial_state(device, env, parameters, state);
  T start[] = {@START@};
  for (int i = 0; i < 3; i++) {
    state.position[i] = start[i]; state.linear_velocity[i] = start[7 + i];
    state.angular_velocity[i] = start[10 + i]; state.force[i] = 0; state.torque[i] = 0;
  }
  for (int i = 0; i < 4; i++) { state.orientation[i] = start[3 + i]; state.rpm[i] = @THROTTLE@; }
  rlt::Matrix<rlt::matrix::Specification<T, TI, 1, 4, false>> action;
  for (int k = 0; k < 50; k++) {
    for (int i = 0; i < 4; i++) rlt::set(action, 0, i, 2 * @THROTTLE@ * (1 + 0.2 * std::sin(0.3 * k + i)) - 1);
    rlt::step(device, env, parameters, state, action, next, rng);
    state = next;
    for (T x : state.position) std::printf("%.17g ", x);
    for (T x : state.orientation) std::printf("%.17g ", x);
    for (T x : state.linear_velocity) std::printf("%.17g ", x);
    for (T x : state.angular_velocity) std::printf("%.17g ", x);
    for (T x : state.rpm) std::printf("%.17g ", x);
    std::printf("\\n");
  }
}
int main() { using R = models::REGISTRY; @RUNS@ }
"""


def rltools(source: Path) -> dict[str, np.ndarray]:
    start = [*STATE["position"], *quaternion(STATE["rpy"]), *STATE["velocity"], *STATE["body_rates"]]
    text = DRIVER.replace("@START@", ", ".join(repr(float(x)) for x in start)).replace("@THROTTLE@", repr(THROTTLE))
    text = text.replace("@RUNS@", " ".join(f"fly<R::{name}>();" for name in RLTOOLS.values()))
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "driver"
        (Path(folder) / "driver.cpp").write_text(text)
        include = ["-I", str(source / "include")]
        subprocess.run(["g++", "-std=c++17", "-O1", *include, f"{program}.cpp", "-o", str(program)], check=True)
        printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    rows = np.array([line.split() for line in printed.splitlines()], float).reshape(len(RLTOOLS), 50, 17)
    return dict(zip(RLTOOLS, rows[:, EVERY], strict=True))


# ---- the folder of cases


def cases(source: Path) -> None:
    """The two tables of cases in one file, without timings."""
    stated = json.loads((source / "quadcopter_cases.json").read_text())
    measured = json.loads((source / "quadcopter_reference_gpd.json").read_text())
    measured = {k: v for k, v in measured.items() if not k.startswith("speed_")}
    target = HERE / "quadcopter_cases.json"
    target.write_text(json.dumps({"cases": stated, "gym_pybullet_drones": measured}, separators=(",", ":")) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("simulator", choices=["gpd", "crazyflow", "rltools", "cases"])
    parser.add_argument("--source", type=Path, help="the checkout or folder it reads")
    args = parser.parse_args()
    if args.simulator == "cases":
        return cases(args.source)
    data = (
        crazyflow() if args.simulator == "crazyflow" else {"gpd": gpd, "rltools": rltools}[args.simulator](args.source)
    )
    np.savez_compressed(HERE / f"quadcopter_{args.simulator}.npz", **data)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main()
