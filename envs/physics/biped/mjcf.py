"""The biped and a track as a MuJoCo model."""

from __future__ import annotations

import numpy as np

from .body import FOOT, HIP, HULL, LEG, RANGES, SHANK, SHANK_RADIUS, THIGH, THIGH_RADIUS, TRUNK, Body, Physics, Track


def mjcf(track: Track | None = None, physics: Physics | None = None, dt: float = 0.005) -> str:
    """The body and `track` (none: flat ground) as a MuJoCo model: capsules on boxes, four motors.

    A motor's drive and brake depend on the action (`motors`): give `ctrl` the one and `dof_damping` the other.
    """
    physics = Physics() if physics is None else physics
    slide = f'friction="{float(physics.friction)!r} 0.005 0.0001" condim="3"'

    def limb(name: str, body: Body, radius: float, length: float, above: str, span: tuple[float, float]) -> str:
        return (
            f'<body name="{name}" pos="0 0 {above}"><joint name="{name}" axis="0 -1 0" range="{span[0]} {span[1]}"/>'
            f'<inertial pos="0 0 {body.com[1]!r}" mass="{body.mass!r}" diaginertia="1 {body.inertia!r} 1"/>'
            f'<geom name="{name}" type="capsule" fromto="0 0 0 0 0 {-length!r}" size="{radius!r}" contype="1" '
            f'conaffinity="0" {slide}/>'
        )

    legs = "".join(
        limb(f"thigh{n}", THIGH, THIGH_RADIUS, LEG, repr(-HIP), RANGES[0])
        + limb(f"shank{n}", SHANK, SHANK_RADIUS, FOOT, repr(-LEG), RANGES[1])
        + "</body></body>"
        for n in range(2)
    )
    stumps = ""
    if track is not None:
        pitch, width = float(track.spacing) + float(track.width), float(track.width)
        for n, height in enumerate(np.asarray(track.heights)):
            if height > 0:
                x, half = float(track.start) + n * pitch + 0.5 * width, 0.5 * float(height)
                stumps += (
                    f'<geom type="box" pos="{x!r} 0 {half!r}" size="{0.5 * width!r} 1 {half!r}" contype="0" '
                    f'conaffinity="1" {slide}/>'
                )
    hull = " ".join(f"{x!r} {y} {z!r}" for x, z in HULL for y in (-0.2, 0.2))
    gears = "".join(f'<motor joint="{limb}{n}"/>' for n in range(2) for limb in ("thigh", "shank"))
    return f"""<mujoco model="biped">
<compiler angle="radian" autolimits="true"/>
<option timestep="{dt!r}" gravity="0 0 {-float(physics.gravity)!r}" integrator="Euler" cone="pyramidal"/>
<asset><mesh name="hull" vertex="{hull}"/></asset>
<worldbody><geom name="ground" type="plane" size="100 1 1" contype="0" conaffinity="1" {slide}/>{stumps}
<body name="hull"><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
<joint name="pitch" axis="0 -1 0"/>
<inertial pos="{TRUNK.com[0]!r} 0 {TRUNK.com[1]!r}" mass="{TRUNK.mass!r}" diaginertia="1 {TRUNK.inertia!r} 1"/>
<geom name="hull" type="mesh" mesh="hull" contype="0" conaffinity="0"/>{legs}</body></worldbody>
<actuator>{gears}</actuator></mujoco>"""
