"""Write `gymnasium_mujoco.npz`: steps of Gymnasium's MuJoCo tasks and the numbers of their models, for tests.

    pip install "gymnasium[mujoco]"; python tests/golden/make_gymnasium_mujoco.py

For each id, arrays `<id>/<name>` of STEPS steps, time-major:
- `qpos`, `qvel`, `qacc` before the step (the last MuJoCo's warm start), `action`;
- `seen_x`, of the ant alone: where its torso was when forces were last computed;
- `next_qpos`, `next_qvel`, `obs`, `reward`, `terminated` after it;
- `constrained`: whether joints' limits or contacts acted at its end.
Actions are uniform; every fiftieth step starts with normal noise on the rates, so that limits and falls are met, and an
end restarts. The solver runs until it has converged. `<id>/model/<field>` are the numbers of the compiled model.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

STEPS = 150
IDS = (
    "Ant-v5",
    "HalfCheetah-v5",
    "Hopper-v5",
    "InvertedDoublePendulum-v5",
    "InvertedPendulum-v5",
    "Reacher-v5",
    "Walker2d-v5",
)
FIELDS = (
    "body_mass body_inertia body_ipos body_pos body_invweight0 jnt_range jnt_stiffness jnt_margin jnt_solref "
    "jnt_solimp qpos0 dof_armature dof_damping dof_invweight0 actuator_gear actuator_ctrlrange"
).split()


def record(id: str) -> dict[str, np.ndarray]:
    env: Any = gymnasium.make(id, max_episode_steps=10**6)
    model, data = env.unwrapped.model, env.unwrapped.data
    out = {f"model/{name}": getattr(model, name).copy() for name in FIELDS}
    out["model/gravity"], out["model/timestep"] = model.opt.gravity.copy(), np.float64(model.opt.timestep)
    out["frame_skip"] = np.int64(env.unwrapped.frame_skip)
    model.opt.tolerance, model.opt.iterations, model.opt.ls_iterations = 0.0, 100, 100
    rng = np.random.default_rng(20261125)
    env.reset(seed=0)
    rows: dict[str, list[Any]] = {}
    for n in range(STEPS):
        if n % 50 == 25:
            env.unwrapped.set_state(data.qpos, data.qvel + rng.normal(size=model.nv))
        action = rng.uniform(env.action_space.low, env.action_space.high)
        row = {"qpos": data.qpos.copy(), "qvel": data.qvel.copy(), "qacc": data.qacc_warmstart.copy(), "action": action}
        if id == "Ant-v5":  # whose speed is measured by a place that is late
            row["seen_x"] = data.xpos[1, 0].copy()
        obs, reward, terminated, _, _ = env.step(action)
        row |= {"obs": obs, "reward": reward, "terminated": terminated, "constrained": data.nefc > 0}
        row |= {"next_qpos": data.qpos.copy(), "next_qvel": data.qvel.copy()}
        for name, x in row.items():
            rows.setdefault(name, []).append(x)
        if terminated:
            env.reset()
    return {**out, **{name: np.array(x) for name, x in rows.items()}}


def main() -> None:
    arrays = {f"{id}/{name}": x for id in IDS for name, x in record(id).items()}
    versions = np.array([f"{name} {version(name)}" for name in ("gymnasium", "mujoco")])
    path = Path(__file__).with_name("gymnasium_mujoco.npz")
    np.savez_compressed(path, versions=versions, **arrays)
    print(path.stat().st_size, versions)


if __name__ == "__main__":
    main()
