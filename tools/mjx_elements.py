"""The table of docs/envs/physics.md: how far a step of MJX is from MuJoCo's in C, by element of the model.

    python -m tools.mjx_elements [--only WORD]

Each row is a small model of its own, 256 steps of `jaxrl.testing.check_model`; minutes, most of them compiling.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from jaxrl.environment import pytree
from jaxrl.envs.physics.task import ModelTask, State
from jaxrl.testing import check_model

ARM = """<body name="arm" pos="0 0 2"><joint name="elbow" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0.3 0 -0.4" size="0.05" contype="0" conaffinity="0"/>
<site name="hand" pos="0.3 0 -0.4"/>{more}</body>"""
FOREARM = """<body name="forearm" pos="0.3 0 -0.4"><joint name="wrist" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.04" contype="0" conaffinity="0"/></body>"""
MOTOR = '<motor name="motor" joint="elbow" ctrlrange="-1 1"/>'
TWO = ARM.format(more=FOREARM)
FREE = '<body pos="0 0 {height}"><freejoint/><geom name="thing" size="{size}" type="{type}"/></body>'
THING = '<body pos="0 0 1"><joint type="slide" axis="0 0 1"/><joint type="hinge" axis="1 0 0"/>{geom}</body>'
PLANE = '<geom name="ground" type="plane" size="5 5 1"/>'
CRATE = '<geom name="crate" type="box" size="0.4 0.4 0.1"/>'
SIZES = {
    "sphere": "0.2",
    "capsule": "0.1 0.2",
    "box": "0.2 0.15 0.1",
    "ellipsoid": "0.2 0.15 0.1",
    "cylinder": "0.15 0.1",
}


def servo(kind: str, force: str = "") -> str:
    gains = 'kp="200" kv="10"' if kind == "position" else 'kv="10"'
    return f'<{kind} name="servo" joint="elbow" {gains} ctrlrange="-1 1" {force}/>'


def lying(type: str, on: str = PLANE, height: float = 0.1) -> tuple[str, str]:
    return on + FREE.format(type=type, size=SIZES[type], height=height), ""


CLAMPED = 'forcerange="-5 5"'
MODELS: dict[str, tuple[str, str, str, str]] = {  # bodies, actuators, everything else, attributes of the option
    "hinge, motor": (ARM.format(more=""), MOTOR, "", ""),
    "ball joint": (ARM.format(more="").replace('axis="0 1 0"', 'type="ball"'), "", "", ""),
    "free joint": (FREE.format(type="box", size=SIZES["box"], height=9), "", "", ""),
    "friction of a joint": (ARM.format(more="").replace("axis=", 'frictionloss="0.5" axis='), MOTOR, "", ""),
    "limit of a joint": (ARM.format(more="").replace("axis=", 'range="-10 10" axis='), MOTOR, "", ""),
    "position servo": (ARM.format(more=""), servo("position"), "", ""),
    "velocity servo": (ARM.format(more=""), servo("velocity"), "", ""),
    "position servo, `forcerange`": (ARM.format(more=""), servo("position", CLAMPED), "", ""),
    "position servo, implicitfast": (ARM.format(more=""), servo("position"), "", 'integrator="implicitfast"'),
    "position servo, `forcerange`, implicitfast": (
        ARM.format(more=""),
        servo("position", CLAMPED),
        "",
        'integrator="implicitfast"',
    ),
    "velocity servo, `forcerange`, implicitfast": (
        ARM.format(more=""),
        servo("velocity", 'forcerange="-1 1"'),
        "",
        'integrator="implicitfast"',
    ),
    "equality of joints": (TWO, MOTOR, '<equality><joint joint1="elbow" joint2="wrist"/></equality>', ""),
    "equality, `connect`": (
        TWO,
        MOTOR,
        '<equality><connect body1="forearm" body2="world" anchor="0.4 0 0"/></equality>',
        "",
    ),
    "equality, `weld`": (TWO, MOTOR, '<equality><weld body1="forearm" body2="world"/></equality>', ""),
    "fixed tendon, limited": (
        TWO,
        MOTOR,
        '<tendon><fixed limited="true" range="-0.2 0.2"><joint joint="elbow" coef="1"/><joint joint="wrist" coef="1"/>'
        "</fixed></tendon>",
        "",
    ),
    **{f"{type} on a plane": (*lying(type), "", "") for type in SIZES},
    "capsule on a plane, elliptic cone": (*lying("capsule"), "", 'cone="elliptic"'),
    **{f"{type} on a box": (*lying(type, CRATE, 0.2), "", "") for type in ("sphere", "capsule", "box")},
    "capsule on a capsule": (
        *lying("capsule", '<geom type="capsule" size="0.1 0.5" euler="90 0 0"/>', 0.2),
        "",
        "",
    ),
}


@pytree
class Params:
    max_steps: Any = 100
    model: Any = None


def task(folder: Path, parts: tuple[str, str, str, str]) -> Any:
    """A task on a model of these parts, whose observation is its coordinates."""
    bodies, actuators, more, option = parts
    file = folder / "model.xml"
    file.write_text(
        f'<mujoco><option timestep="0.004" {option}/><worldbody>{bodies}</worldbody>'
        f"<actuator>{actuators}</actuator>{more}</mujoco>"
    )

    @dataclasses.dataclass(frozen=True)
    class Own(ModelTask):
        id: str = dataclasses.field(default="Own-v0", kw_only=True)

        def initial(self, key: Any, params: Any) -> Any:
            rest, still = params.model["qpos0"], jnp.zeros_like(params.model["dof_damping"])
            return State(jnp.int32(0), rest, still, still)

        def observe(self, key: Any, state: Any, params: Any) -> Any:
            return state.qpos

    Own.Params, Own.file, Own.frame_skip = Params, str(file), 1
    return Own(engine="mjx")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    args = parser.parse_args()
    print("| element | largest error of a step | median |\n|---|---|---|")
    for name, parts in MODELS.items():
        if args.only in name:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    report = check_model(task(Path(folder), parts), tolerance=math.inf)
                except ValueError as error:
                    print(f"| {name} | refused: {error} | |", flush=True)
                    continue
                except TypeError as error:  # MJX's own, of integers in a loop
                    print(f"| {name} | MJX fails in float64: {str(error).splitlines()[0]} | |", flush=True)
                    continue
            print(f"| {name} | {report.error:.0e} | {report.median:.0e} |", flush=True)


if __name__ == "__main__":
    main()
