"""`check_model`: a task's engine beside MuJoCo in C, by element."""

import contextlib
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import pytest

import jaxrl
from jaxrl.environment import pytree
from jaxrl.envs.physics import on_mjx
from jaxrl.envs.physics.task import ModelTask, State
from jaxrl.testing import check_model

SERVO = """<mujoco><option timestep="0.01" integrator="{integrator}"/><worldbody><body name="arm">
<joint name="elbow" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -1" size="0.05" contype="0" conaffinity="0"/>
</body></worldbody><actuator><position name="servo" joint="elbow" kp="200" kv="10" ctrlrange="-1 1" {limit}/></actuator>
</mujoco>"""


@pytree
class Params:
    max_steps: Any = 100
    model: Any = None


def task(tmp_path, xml: str, **settings: Any) -> Any:
    path = tmp_path / "model.xml"
    path.write_text(xml)

    @dataclasses.dataclass(frozen=True)
    class Own(ModelTask):
        id: str = dataclasses.field(default="Own-v0", kw_only=True)

        def initial(self, key, params):
            rest, still = params.model["qpos0"], jnp.zeros_like(params.model["dof_damping"])
            return State(jnp.int32(0), rest, still, still)

        def observe(self, key, state, params):
            return state.qpos

    Own.Params, Own.file, Own.frame_skip = Params, str(path), 1
    return Own(**settings)


def test_a_task_that_agrees():
    report = check_model(jaxrl.make("InvertedPendulum-v5")[0], tolerance=1e-9)
    assert report.error < 1e-9 and {x.kind for x in report.elements} >= {"joint", "actuator"}


def test_an_engine_that_is_wrong_is_named():
    env: Any = jaxrl.make("InvertedPendulum-v5")[0]

    @dataclasses.dataclass(frozen=True)
    class Wrong(type(env)):
        def advance(self, state, control, model):
            return super().advance(state, 1.1 * control, model)

    with pytest.raises(AssertionError, match="actuator fixed-none slide"):
        check_model(Wrong())


def test_changed_numbers_are_written_into_c():
    env, params = jaxrl.make("InvertedPendulum-v5")
    heavy = params.replace(model={**params.model, "body_mass": 2 * params.model["body_mass"]})
    assert check_model(env, jax.tree.map(jnp.asarray, heavy), tolerance=1e-5).error < 1e-5


def test_what_is_no_task_on_a_model():
    with pytest.raises(TypeError, match="check_model takes a ModelTask"):
        check_model(jaxrl.make("CartPole-v1")[0])


CONNECTED = '<equality><connect body1="arm" body2="world" anchor="0 0 -1"/></equality>'
BOX = """<worldbody><geom name="ground" type="plane" size="1 1 1"/><body name="thing"><freejoint/>
<geom name="crate" type="box" size="1 1 1"/></body></worldbody>"""
BALL = BOX.replace('type="box"', 'type="sphere"')
WELDED = '<equality><weld body1="arm" body2="world"/></equality>'


@pytest.mark.parametrize(
    ("more", "integrator", "limit", "told"),
    [
        (CONNECTED, "Euler", "", ["equality 0 (connect)"]),
        (WELDED, "Euler", "", ["equality 0 (weld)"]),
        ("", "implicitfast", 'forcerange="-5 5"', ["actuator 'servo' (forcerange of a servo under implicitfast)"]),
        ("", "Euler", 'forcerange="-5 5"', []),
        ("", "implicitfast", "", []),
        (BOX, "Euler", "", ["geom 'ground' and geom 'crate' (other points where a box touches)"]),
        (BALL, "Euler", "", []),
    ],
)
def test_elements_that_mjx_takes_otherwise(more, integrator, limit, told):
    xml = SERVO.format(integrator=integrator, limit=limit).replace("</mujoco>", f"{more}</mujoco>")
    assert on_mjx.differing(mujoco.MjModel.from_xml_string(xml)) == told


@pytest.mark.slow
def test_a_clamped_servo_on_mjx(tmp_path):
    """MJX 3.17 differs from C where a servo's force is clamped under implicitfast, and there alone."""
    clamped = 'forcerange="-5 5"'
    for integrator, limit, differs in (("Euler", clamped, 0), ("implicitfast", "", 0), ("implicitfast", clamped, 1)):
        env = task(tmp_path, SERVO.format(integrator=integrator, limit=limit), engine="mjx")
        told = pytest.warns(UserWarning, match="other steps than MuJoCo in C") if differs else contextlib.nullcontext()
        with told:
            report = check_model(env, tolerance=math.inf)
        assert (report.error > 1e-5) == bool(differs), (integrator, limit)


TENDON = """<mujoco><option timestep="0.005"/><worldbody>
<body><joint name="a" axis="0 1 0"/><geom size="0.05" pos="0.2 0 0"/>
<body pos="0.3 0 0"><joint name="b" axis="0 1 0"/><geom size="0.05" pos="0.2 0 0"/></body></body></worldbody>
<tendon><fixed name="t" stiffness="5" damping="0.1" limited="true" range="-0.1 0.1" frictionloss="0.1">
<joint joint="a" coef="1"/><joint joint="b" coef="-0.5"/></fixed></tendon>
<actuator><motor tendon="t" ctrlrange="-1 1"/></actuator></mujoco>"""


@pytest.mark.slow
def test_a_tendon_on_mjx(tmp_path):
    """With a spring, a damper, friction, a limit and a motor; in float64 MJX widens the indices of tendons."""
    report = check_model(task(tmp_path, TENDON, engine="mjx"), tolerance=1e-9)
    assert "tendon" in {x.kind for x in report.elements}
