"""Pictures of MuJoCo models without a window."""

from typing import Any

import mujoco
import numpy as np
import pytest

from jaxrl.envs.physics.painter import SKY, paint

KINDS = {"sphere": "1", "capsule": "0.5 0.7", "cylinder": "0.8 0.9", "box": "0.6 0.7 0.8", "ellipsoid": "0.5 0.9 1.2"}


def scene(geoms: str) -> tuple[Any, np.ndarray, np.ndarray]:
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{geoms}</worldbody></mujoco>")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data.geom_xpos, data.geom_xmat


def area(kind: str, size: str, turn: str) -> float:
    """Share of the picture that a geom covers, in units of the view of a sphere around it."""
    text = f'<body><joint/><geom type="{kind}" size="{size}" quat="{turn}" rgba="1 0 0 1"/></body>'
    model, places, turns = scene(text)
    picture = paint(model, places, turns, 96).astype(float)
    share = (np.abs(picture - SKY).sum(-1) > 30).mean()
    return share * (2 * 1.25 * float(model.geom_rbound[0])) ** 2


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_seen_is_the_shadow(kind):
    """The mean of a convex body's shadow over all turns is a quarter of its surface (Cauchy)."""
    turns = np.random.default_rng(0).normal(size=(60, 4))
    seen = np.mean([area(kind, KINDS[kind], " ".join(map(str, turn))) for turn in turns])
    a, b, c = (float(x) for x in (KINDS[kind] + " 0 0").split()[:3])
    p = 1.6075
    surface = {
        "sphere": 4 * np.pi * a**2,
        "capsule": 4 * np.pi * a**2 + 4 * np.pi * a * b,
        "cylinder": 2 * np.pi * a**2 + 4 * np.pi * a * b,
        "box": 8 * (a * b + b * c + a * c),
        "ellipsoid": 4 * np.pi * (((a * b) ** p + (a * c) ** p + (b * c) ** p) / 3) ** (1 / p),
    }[kind]
    np.testing.assert_allclose(seen, surface / 4, rtol=0.05)


def test_the_nearer_covers_the_farther():
    behind = '<geom type="box" size="1 0.1 1" pos="0 2 0" rgba="0 0 1 1"/>'
    before = '<body><joint/><geom type="sphere" size="1" rgba="1 0 0 1"/></body>'
    for order in (behind + before, before + behind):
        red, _, blue = paint(*scene(order), size=64)[32, 32]
        assert red > 100 and blue < 20


def test_ground_and_hidden_geoms():
    ground = '<geom type="plane" size="0 0 1"/>'
    ghost = '<geom type="box" size="9 9 9" group="3"/><geom type="sphere" size="9" rgba="1 1 1 0"/>'
    picture = paint(
        *scene(ground + ghost + '<body pos="0 0 2"><joint/><geom size="0.5" rgba="1 0 0 1"/></body>'), size=64
    )
    assert picture.shape == (64, 64, 3) and picture.dtype == np.uint8
    assert len(np.unique(picture[-1], axis=0)) >= 2  # two colours of squares
    assert picture[32, 32, 0] > 100 and picture[32, 32, 1] < 20
