"""What is derived of masses against MuJoCo's `mj_setConst`, in float64."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.physics import constants, planar
from jaxrl.envs.physics.contexts import at_point
from jaxrl.envs.physics.ids import ENVIRONMENTS
from jaxrl.envs.physics.task import ModelTask, planned, scaled

NAMES = ("body_invweight0", "dof_invweight0", "tendon_invweight0")
MODELS = [id for id in ENVIRONMENTS if id.endswith("-v5") or id == "DMCartpoleSwingup-v0"]

OWN = """<mujoco><worldbody><body name="a" pos="0 0 1" quat="1 .2 .3 .1"><freejoint/>
<geom type="capsule" fromto="0 0 0 .3 .1 0" size=".05"/><geom type="box" pos=".1 .2 .3" size=".1 .2 .3"/>
<body name="b" pos=".3 .1 0" quat="1 0 .5 .1"><joint name="h" axis="1 2 0" pos=".01 .02 0" armature=".1"/>
<joint name="s" type="slide" axis="0 1 1"/><geom type="box" size=".1 .05 .2" pos=".1 0 .1" quat="1 1 0 0"/>
<body name="c" pos="0 0 .3"><joint name="q" type="ball" pos="0 .1 0" armature=".02"/>
<geom type="ellipsoid" size=".1 .2 .05" pos=".1 0 0"/></body>
<body name="w" pos=".1 .1 .1"><geom size=".1"/></body></body></body>
<body name="still" pos="1 1 1"><geom size=".1"/></body>
<body name="simple" pos="2 2 2"><joint type="slide" axis="1 0 0" armature="1"/><geom size=".1"/></body></worldbody>
<tendon><fixed name="t"><joint joint="h" coef="1"/><joint joint="s" coef="-2"/></fixed></tendon></mujoco>"""
"""Every kind of joint, a body welded to another, one welded to the world, one on a slide alone, a tendon."""


def scaled_at_random(model: Any, seed: int) -> Any:
    """A copy with masses, moments and armature of every body changed, its constants by MuJoCo."""
    random, model = np.random.default_rng(seed), copy.deepcopy(model)
    model.body_mass *= random.uniform(0.3, 3, model.nbody)
    model.body_inertia *= random.uniform(0.3, 3, (model.nbody, 1))
    model.dof_armature *= random.uniform(0.5, 2, model.nv)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


def agree(model: Any, found: dict[str, Any]) -> None:
    for name, x in found.items():
        np.testing.assert_allclose(x, getattr(model, name), rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "id", [id if id in ("Hopper-v5", "Reacher-v5") else pytest.param(id, marks=pytest.mark.slow) for id in MODELS]
)
def test_registered_bodies(id):
    with jax.enable_x64(True):
        env: Any = jaxrl.make(id)[0]
        params, follow = env.default_params, jax.jit(env.with_constants)
        changes = []
        for seed in range(3):
            model = scaled_at_random(env.mujoco_model, seed)
            names = ("body_mass", "body_inertia", "dof_armature")
            changed = params.replace(model={**params.model, **{n: jnp.asarray(getattr(model, n)) for n in names}})
            before = np.asarray(changed.model["body_invweight0"])
            found = follow(changed).model
            assert found.keys() == params.model.keys()
            agree(model, {name: found[name] for name in NAMES if name in found})
            changes.append(np.abs(before - model.body_invweight0).max() / before.max())
        assert max(changes) > 0.1


def test_every_joint_and_a_tendon():
    with jax.enable_x64(True):
        model = mujoco.MjModel.from_xml_string(OWN)
        names = "body_pos body_ipos body_mass body_inertia jnt_pos qpos0 dof_armature".split()
        of = jax.jit(lambda numbers: constants.derived(model, numbers))
        for changed in (model, scaled_at_random(model, 0)):
            agree(changed, found := of({name: jnp.asarray(getattr(changed, name)) for name in names}))
            assert set(found) == set(NAMES)
        model.tendon_armature[:] = 1
        with pytest.raises(ValueError, match="a tendon with armature"):
            constants.derived(model, {name: jnp.asarray(getattr(model, name)) for name in names})


@pytest.mark.slow
def test_steps_of_a_heavier_hopper_are_those_of_a_body_compiled_anew():
    """Contacts of the foot of a hopper of 1.4 times the mass, constants by MuJoCo there and ours here, to 1e-9."""
    with jax.enable_x64(True):
        env: Any = jaxrl.make("Hopper-v5")[0]
        model = copy.deepcopy(env.mujoco_model)
        for field in (model.body_mass, model.body_inertia):
            field *= np.sqrt(2)
        mujoco.mj_setConst(model, mujoco.MjData(model))
        model.opt.tolerance, model.opt.iterations, model.opt.ls_iterations = 0.0, 100, 100
        start, rates = jnp.array([0.0, 1.24, 0.02, -0.1, -0.2, 0.1]), jnp.array([0.3, -0.5, 0.1, 0.2, -0.4, 0.3])
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:], data.ctrl[:] = start, rates, (0.5, -0.3, 0.2)
        mujoco.mj_step(model, data, 4)
        assert data.ncon > 0
        plan, still = planned(env.file), jnp.zeros(6)
        step = jax.jit(lambda m: planar.advance(plan, m, start, rates, still, jnp.array([0.5, -0.3, 0.2]), 4, 8))
        heavy = [at_point(env.default_params, ("mass",), jnp.array([0.75]), e) for e in (env, None)]
        follows, stays = (step(p.model).qvel for p in heavy)
        np.testing.assert_allclose(follows, data.qvel, atol=1e-9)
        assert np.abs(stays - data.qvel).max() > 1e-6


@pytest.mark.slow
def test_batched_and_differentiable():
    env, params = jaxrl.make("Hopper-v5")
    assert isinstance(env, ModelTask)

    def constant(factor):
        return env.with_constants(scaled(params, body_mass=factor, body_inertia=factor)).model["body_invweight0"][4, 0]

    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(constant)))(jnp.array([1.0, 2.0]))
    assert 0.4 < values[1] / values[0] < 1 and bool((slopes < 0).all())  # armature does not grow with the mass
    assert values.dtype == params.model["body_invweight0"].dtype
