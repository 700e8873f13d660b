"""Write `planar_states.npz`: accelerations and a step of MuJoCo in C from random states, many of them deep in contacts.

    python tests/golden/make_planar_states.py

For each body, arrays `<body>/<name>` of STATES states, in each of which contacts act: joints anywhere within 0.1 rad of
their ranges, any pitch, the lowest point of a capsule up to 0.4 m in the ground, rates up to 10, any controls.
`qpos`, `qvel`, `ctrl`; `qacc` there, solved until nothing improves; `next_qpos`, `next_qvel` after a step of the model.
States in which two capsules touch at two points or their axes cross are left out, as planar equations have one contact.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

STATES = 300
MODELS = Path(__file__).resolve().parents[2] / "envs" / "physics" / "mjcf"
FILES = {"HalfCheetah-v5": "half_cheetah.xml", "Hopper-v5": "hopper.xml", "Walker2d-v5": "walker2d.xml"}


def lowest(model: Any, data: Any) -> float:
    """Of all capsules [m]."""
    capsules = model.geom_type == mujoco.mjtGeom.mjGEOM_CAPSULE
    rise = np.abs(data.geom_xmat[capsules, 8])
    return float(
        (data.geom_xpos[capsules, 2] - rise * model.geom_size[capsules, 1] - model.geom_size[capsules, 0]).min()
    )


def plain(model: Any, data: Any) -> bool:
    """Whether capsules touch each other at one point, if at all, and their axes do not cross."""
    pairs = [tuple(pair) for pair in data.contact.geom if (model.geom_type[pair] != mujoco.mjtGeom.mjGEOM_PLANE).all()]
    far = [
        distance + model.geom_size[pair, 0].sum()
        for pair, distance in zip(data.contact.geom, data.contact.dist, strict=True)
        if tuple(pair) in pairs
    ]
    return len(set(pairs)) == len(pairs) and min(far, default=1.0) > 1e-3


def record(file: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    model = mujoco.MjModel.from_xml_path(str(MODELS / file))
    model.opt.tolerance, model.opt.iterations, model.opt.ls_iterations = 0.0, 200, 200
    data, rows = mujoco.MjData(model), []
    free = model.jnt_limited == 0
    while len(rows) < STATES:
        mujoco.mj_resetData(model, data)
        low, high = np.where(free, -1.0, model.jnt_range[:, 0] - 0.1), np.where(free, 1.0, model.jnt_range[:, 1] + 0.1)
        data.qpos[:] = rng.uniform(low, high)
        data.qpos[2] = rng.uniform(-np.pi, np.pi)
        mujoco.mj_kinematics(model, data)
        data.qpos[1] -= lowest(model, data) + rng.uniform(0.0, rng.choice([0.06, 0.4]))
        data.qvel[:] = rng.uniform(-1.0, 1.0, model.nv) * rng.choice([0.3, 1.0, 3.0, 10.0])
        data.ctrl[:] = rng.uniform(-1.0, 1.0, model.nu)
        row = {"qpos": data.qpos.copy(), "qvel": data.qvel.copy(), "ctrl": data.ctrl.copy()}
        mujoco.mj_forward(model, data)
        if not data.ncon or not plain(model, data):
            continue
        row["qacc"] = data.qacc.copy()
        mujoco.mj_step(model, data)
        row |= {"next_qpos": data.qpos.copy(), "next_qvel": data.qvel.copy()}
        rows.append(row)
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def main() -> None:
    rng = np.random.default_rng(20261127)
    arrays = {f"{body}/{name}": x for body, file in FILES.items() for name, x in record(file, rng).items()}
    path = Path(__file__).with_name("planar_states.npz")
    np.savez_compressed(path, versions=np.array([f"mujoco {version('mujoco')}"]), **arrays)
    print(path.stat().st_size)


if __name__ == "__main__":
    main()
