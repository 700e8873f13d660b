"""The tasks on MuJoCo models against stored steps of Gymnasium's of the same id, MuJoCo's own step, and MJX."""

import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.physics import features, on_mjx, planar
from jaxrl.envs.physics.task import ModelTask, State, compiled, planned, scaled
from jaxrl.testing.golden import golden

GOLDEN = golden("gymnasium_mujoco")
IDS = sorted({name.split("/")[0] for name in GOLDEN} - {"versions"})
KEY = jax.random.key(0)


def stored(id: str, name: str) -> np.ndarray:
    return GOLDEN[f"{id}/{name}"]


@pytest.mark.parametrize("id", IDS)
def test_model(id):
    """Every number of the model is that of Gymnasium's file."""
    env: Any = jaxrl.make(id)[0]
    model = compiled(env.file)
    for name in (name.removeprefix(f"{id}/model/") for name in GOLDEN if name.startswith(f"{id}/model/")):
        ours = getattr(model.opt, name) if name in ("gravity", "timestep") else getattr(model, name)
        np.testing.assert_allclose(ours, stored(id, f"model/{name}"), atol=1e-10, err_msg=name)
    assert env.frame_skip == stored(id, "frame_skip")


def replayed(id: str, **settings: Any) -> Any:
    """Time steps, from the states that Gymnasium reached, in float64."""
    with jax.enable_x64(True):
        env: Any = jaxrl.make(id, **settings)[0]
        params = env.default_params
        _, state = env.reset(KEY, params)

        def step(before, action):
            return env.step(KEY, state.replace(**before), action, params)

        names = [name for name in ("qpos", "qvel", "qacc", "seen_x") if f"{id}/{name}" in GOLDEN]
        inputs = {name: jnp.asarray(stored(id, name)) for name in names}, jnp.asarray(stored(id, "action"))
        return jax.device_get(jax.jit(jax.vmap(step))(*inputs))


def check(id: str, steps: Any, tolerance: float) -> None:
    rates = stored(id, "next_qvel")
    size = 1 + np.abs(rates).max(1, keepdims=True)
    np.testing.assert_allclose(steps.state.qpos, stored(id, "next_qpos"), atol=tolerance)
    np.testing.assert_allclose(steps.state.qvel / size, rates / size, atol=tolerance)
    np.testing.assert_allclose(steps.obs, stored(id, "obs"), rtol=10 * tolerance, atol=10 * tolerance)
    np.testing.assert_allclose(steps.reward, stored(id, "reward"), rtol=10 * tolerance, atol=10 * tolerance)
    np.testing.assert_array_equal(steps.terminated, stored(id, "terminated"))


@pytest.mark.parametrize("id", [id if "Pendulum" in id else pytest.param(id, marks=pytest.mark.slow) for id in IDS])
def test_steps(id):
    """Single steps of 150 equal Gymnasium's to 1e-9."""
    check(id, replayed(id), 1e-9)
    assert stored(id, "constrained").sum() >= (10 if "Walker" in id or "H" in id[:1] or "Ant" in id else 0)
    assert stored(id, "terminated").any() == (id not in ("HalfCheetah-v5", "Reacher-v5"))


def cart_pole() -> Any:
    """The swing-up's model, with a converged solver."""
    model = mujoco.MjModel.from_xml_path(str(Path(planar.__file__).parents[1] / "mjcf" / "cartpole_swingup.xml"))
    model.opt.tolerance, model.opt.iterations = 0.0, 100
    return model


def test_cartpole_swingup():
    """Steps and rewards of a cart that meets the rail's ends equal MuJoCo's to 1e-9, the reward written out."""
    model, rng = cart_pole(), np.random.default_rng(0)
    data, rows = mujoco.MjData(model), []
    data.qpos[1] = np.pi
    for t in range(300):
        data.ctrl[0] = np.clip(rng.normal() + (1 if (t // 60) % 2 else -1), -1.0, 1.0)
        row = [data.qpos.copy(), data.qvel.copy(), data.ctrl.copy()]
        mujoco.mj_step(model, data)
        rows.append([*row, data.qpos.copy(), data.qvel.copy(), np.int64(data.nefc)])
    qpos, qvel, action, next_qpos, next_qvel, limited = map(np.array, zip(*rows, strict=True))
    assert limited.sum() > 10
    with jax.enable_x64(True):
        env: Any = jaxrl.make("DMCartpoleSwingup-v0")[0]
        params = env.default_params
        _, state = env.reset(KEY, params)

        def step(q, v, u):
            return env.step(KEY, state.replace(qpos=q, qvel=v), u, params)

        steps = jax.device_get(jax.jit(jax.vmap(step))(qpos, qvel, action))
    np.testing.assert_allclose(steps.state.qpos, next_qpos, atol=1e-9)
    np.testing.assert_allclose(steps.state.qvel, next_qvel, atol=1e-9)
    (x, angle), rate = next_qpos.T, next_qvel[:, 1]
    wanted = (1 + np.cos(angle)) / 2 * (1 + 0.1 ** (x / 2) ** 2) / 2 * (5 - action[:, 0] ** 2) / 5
    np.testing.assert_allclose(steps.reward, wanted * (1 + 0.1 ** (rate / 5) ** 2) / 2, atol=1e-9)
    assert not steps.terminated.any()


@pytest.mark.slow
@pytest.mark.parametrize("id", ["Hopper-v5", "InvertedPendulum-v5"])
def test_mjx(id):
    """MJX as the engine takes the same steps from the same leaves, in its float32."""
    planar_env, params = jaxrl.make(id)
    engine, _ = jaxrl.make(id, engine="mjx")
    heavy = scaled(params, body_mass=1.3, geom_friction=0.5, actuator_gear=0.8, gravity=0.9)
    _, state = planar_env.reset(KEY, heavy)
    rows = slice(10, 50, 8)
    states = jax.vmap(lambda q, v, a: state.replace(qpos=q, qvel=v, qacc=a))(
        *(jnp.asarray(stored(id, name)[rows], jnp.float32) for name in ("qpos", "qvel", "qacc"))
    )
    actions = jnp.asarray(stored(id, "action")[rows], jnp.float32)
    ours, other = (
        jax.jit(jax.vmap(lambda s, a, env=env: env.step(KEY, s, a, heavy)))(states, actions)
        for env in (planar_env, engine)
    )
    np.testing.assert_allclose(ours.state.qpos, other.state.qpos, atol=1e-4)
    np.testing.assert_allclose(ours.state.qvel, other.state.qvel, atol=1e-2)
    np.testing.assert_array_equal(ours.terminated, other.terminated)


@pytest.mark.slow
@pytest.mark.parametrize("id", ["Reacher-v5", "InvertedDoublePendulum-v5", "HalfCheetah-v5"])
def test_steps_on_mjx(id):
    """In float64, too, where forces are of a part of a step ago, and under Euler's integrator."""
    check(id, replayed(id, engine="mjx"), 1e-6)


@pytest.mark.slow
def test_a_capsule_in_space_under_euler():
    """MJX's frames of friction are MuJoCo's under every integrator: a tilted capsule slides as in C."""
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><option timestep="0.005" tolerance="0"/><worldbody><geom type="plane" size="5 5 1"/>'
        '<body pos="0 0 0.28" euler="20 15 0"><freejoint/><geom type="capsule" size="0.1 0.2"/></body>'
        "</worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    data.qvel[:] = 1, 0.5, -1, 0.3, 0.2, 0.1
    qpos, qvel = data.qpos.copy(), data.qvel.copy()
    mujoco.mj_step(model, data)
    assert data.ncon == 1
    with jax.enable_x64(True):
        start = State(jnp.int32(0), jnp.asarray(qpos), jnp.asarray(qvel), jnp.zeros(6))
        numbers = {name: jnp.asarray(x) for name, x in planar.numbers(model, np.float64).items()}
        m = on_mjx.put(model).tree_replace({"opt.tolerance": jnp.asarray(1e-16)})
        moved, _ = jax.device_get(on_mjx.advance(m, numbers, start, jnp.zeros(0), 1))
    np.testing.assert_allclose(moved.qvel, data.qvel, atol=1e-10)
    np.testing.assert_allclose(moved.qpos, data.qpos, atol=1e-10)


@pytest.mark.slow
def test_without_friction():
    env, params = jaxrl.make("Hopper-v5")
    slippery, step = scaled(params, geom_friction=0.0), jax.jit(env.step)
    _, state = env.reset(KEY, slippery)
    for _ in range(30):
        ts = step(KEY, state, jnp.ones(3), slippery)
        state = ts.state
        assert np.all(np.isfinite(ts.obs))


def test_leaves_are_the_models():
    """Changed numbers give what MuJoCo gives after the same writes into its model; and they have gradients."""
    env: Any = jaxrl.make("InvertedPendulum-v5")[0]
    model = mujoco.MjModel.from_xml_path(str(Path(planar.__file__).parents[1] / "mjcf" / env.file))
    factors = {"body_mass": 1.7, "body_inertia": 0.6, "gravity": 0.4, "actuator_gear": 0.5, "dof_damping": 3.0}
    for name, factor in factors.items():
        field = model.opt.gravity if name == "gravity" else getattr(model, name)
        field *= factor
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = (0.1, 0.15), (-0.5, 0.4), 1.3
    plan, start = planned(env.file), (data.qpos.copy(), data.qvel.copy())
    mujoco.mj_step(model, data)
    with jax.enable_x64(True):
        params = scaled(env.default_params, **factors)

        def rate(numbers):
            moved = planar.advance(plan, numbers, *map(jnp.asarray, start), jnp.zeros(2), jnp.array([1.3]), 1, 6)
            return moved.qvel[1], moved

        (_, moved), slopes = jax.jit(jax.value_and_grad(rate, has_aux=True))(params.model)
        moved, slopes = jax.device_get((moved, slopes))
    np.testing.assert_allclose(moved.qpos, data.qpos, atol=1e-12)
    np.testing.assert_allclose(moved.qvel, data.qvel, atol=1e-12)
    for name in factors:
        assert np.any(slopes[name]), name


def test_scaled_names_what_there_is():
    _, params = jaxrl.make("Hopper-v5")
    with pytest.raises(ValueError, match="'mass' is no number of the model; it has actuator_ctrlrange.*body_mass"):
        scaled(params, mass=2.0)
    with pytest.raises(ValueError, match=r"body_mass: a factor of shape \(2,\) for numbers of shape \(5,\)"):
        scaled(params, body_mass=jnp.ones(2))


@pytest.mark.slow
@pytest.mark.light
def test_a_broken_simulation_ends():
    """Where numbers are not finite the episode ends, and what a learner stores of it is finite."""
    env, params = jaxrl.make("HalfCheetah-v5")
    _, state = env.reset(KEY, params)
    ts = jax.jit(env.step)(KEY, state.replace(qvel=state.qvel.at[4].set(jnp.nan)), jnp.zeros(6), params)
    assert ts.terminated and ts.reward == 0 and not np.any(ts.obs)
    assert all(np.isfinite(x) for x in ts.info.values())
    assert not jax.jit(env.step)(KEY, state, jnp.zeros(6), params).terminated


def test_validate():
    env, params = jaxrl.make("Hopper-v5")
    with pytest.raises(ValueError, match="body_mass"):
        env.validate(scaled(params, body_mass=-1.0))
    with pytest.raises(ValueError, match="'body_inertia'. must be positive where the model's own is"):
        env.validate(scaled(params, body_inertia=0.0))
    with pytest.raises(ValueError, match="'dof_damping'. must not be negative"):
        env.validate(scaled(params, dof_damping=-1.0))
    with pytest.raises(ValueError, match="model=None: take `default_params`"):
        env.validate(params.replace(model=None))
    with pytest.raises(ValueError, match="shape"):
        env.validate(params.replace(model={**params.model, "body_mass": jnp.ones(2)}))
    with pytest.raises(ValueError, match="jnt_range"):
        env.validate(scaled(params, jnt_range=-1.0))
    with pytest.raises(ValueError, match="least_height"):
        env.validate(params.replace(least_height=-1.0))
    with pytest.raises(ValueError, match="engine='warp'; there are planar, mjx"):
        jaxrl.make("Hopper-v5", engine="warp")
    with pytest.raises(ValueError, match="engine='planar'; there are mjx .ant.xml moves in space"):
        jaxrl.make("Ant-v5", engine="planar")


BODY = '<body name="b"><joint name="j" {joint}/><geom name="g" {geom}/></body>'
HINGE, BALL = 'axis="0 1 0"', 'type="capsule" size="0.1 0.2"'


@pytest.mark.parametrize(
    ("joint", "geom", "more", "named"),
    [
        ('type="ball"', BALL, "", "joint 'j' is a ball"),
        ('axis="1 0 0"', BALL, "", "joint 'j' turns about x"),
        (HINGE, 'type="box" size="0.1 0.1 0.1"', "", "geom 'g' may be touched"),
        (HINGE, 'type="capsule" size="0.1 0.2" euler="90 0 0"', "", "geom 'g' leaves the plane"),
        (HINGE, 'type="capsule" size="0.1 0.2" condim="4"', "", "torsional"),
        ('axis="0 1 0" frictionloss="1"', BALL, "", "joints with friction"),
        (HINGE, BALL, '<option impratio="10"/>', "impratio"),
        (HINGE, BALL, '<option><flag eulerdamp="disable"/></option>', "flags that disable"),
        (HINGE, BALL, '<contact><exclude body1="b" body2="world"/></contact>', "pairs or exclusions"),
        (f'{HINGE} limited="true" range="-0.1 0.1" margin="0.2"', BALL, "", "joint 'j' is at both its limits"),
        (
            HINGE,
            BALL,
            '<worldbody><body><body name="c"><joint axis="0 1 0"/><geom size="0.1"/></body></body></worldbody>',
            "body 'c' hangs on a body that is welded",
        ),
        (
            HINGE,
            BALL,
            '<worldbody><body name="c" pos="1 0 0"><joint axis="0 1 0"/><geom name="h" size="0.1"/></body></worldbody>',
            "geom 'g' and geom 'h' touch and are on different branches",
        ),
        (HINGE, BALL, '<actuator><position name="p" joint="j" kp="3"/></actuator>', "actuator 'p' is no plain motor"),
    ],
)
def test_refuses(joint, geom, more, named):
    """What is not planar is refused by the name of the element."""
    ground = '<geom name="ground" type="plane" size="1 1 1"/>'
    body = BODY.format(joint=joint, geom=geom)
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{ground}{body}</worldbody>{more}</mujoco>")
    with pytest.raises(ValueError, match=named):
        planar.plan(model)


@pytest.mark.parametrize(
    ("option", "more", "named"),
    [
        ('solver="PGS"', "", "this model's option solver"),
        ('integrator="implicit"', "", "this model's option integrator"),
        ("", '<actuator><general name="p" joint="j" dyntype="user"/></actuator>', "actuator 'p'"),
        (
            "",
            '<actuator><general name="p" joint="j" dyntype="integrator"/></actuator>',
            "actuator 'p' has an activation",
        ),
        ('integrator="implicitfast" density="3"', "", "option integrator in a fluid"),
        ("", '<sensor><user name="s" dim="1"/></sensor>', "sensor 's'"),
        (
            "",
            '<asset><hfield name="f" nrow="2" ncol="2" size="1 1 1 1"/></asset>'
            '<worldbody><geom name="hills" type="hfield" hfield="f"/></worldbody>',
            "contacts of geom 'hills' and geom 'g'",
        ),
    ],
)
def test_mjx_refuses(option, more, named):
    """What MJX cannot run is refused by the name of the element."""
    body = BODY.format(joint=HINGE, geom='type="cylinder" size="0.1 0.2"')
    model = mujoco.MjModel.from_xml_string(f"<mujoco><option {option}/><worldbody>{body}</worldbody>{more}</mujoco>")
    with pytest.raises(ValueError, match=named):
        on_mjx.put(model)


@dataclasses.dataclass(frozen=True)
class Own(ModelTask):
    id: str = dataclasses.field(default="Own-v0", kw_only=True)


def own(path: Path, xml: str, **settings: Any) -> Any:
    path.write_text(f"<mujoco>{xml}</mujoco>")
    return type("Own", (Own,), {"file": str(path)})(**settings)


def test_own_file(tmp_path):
    """A user's file by its absolute path, read again once it was written again."""
    path, body = tmp_path / "own.xml", BODY.format(joint=HINGE, geom='size="0.1" pos="0 0 1"')
    own(path, f"<worldbody>{body}</worldbody>")
    assert planned(str(path)).num_dofs == 1
    mass = compiled(str(path)).body_mass[1]
    own(path, f"<worldbody>{body.replace('0.1', '0.2')}</worldbody>")
    os.utime(path, ns=(1, 1))
    assert compiled(str(path)).body_mass[1] == pytest.approx(8 * mass)
    task = own(path, f'<worldbody>{body}</worldbody><actuator><motor name="m" joint="j"/></actuator>')
    with pytest.raises(ValueError, match="Own-v0: actuator 'm' has no ctrlrange"):
        task.action_space(None)
    with pytest.raises(ValueError, match="own.xml: there is no such file in .*mjcf; .* an absolute path"):
        compiled("own.xml")
    path.write_text("<mujoco><worldbody/>")
    with pytest.raises(ValueError, match="own.xml: XML"):
        compiled(str(path))


def test_own_model_in_space(tmp_path):
    """On MJX: gains are leaves, a picture shows changed sizes, hinges behind a free joint have their own numbers."""
    body = (
        '<body name="b" pos="0 0 1"><freejoint/><geom size="0.2"/><body><joint name="j" axis="0 1 0"/>'
        '<geom type="capsule" fromto="0 0 0 0.6 0 0" size="0.05"/></body></body>'
    )
    servo = '<actuator><position name="p" joint="j" kp="3" ctrlrange="-1 1"/></actuator>'
    env = own(tmp_path / "robot.xml", f"<worldbody>{body}</worldbody>{servo}", engine="mjx")
    model = {name: jnp.asarray(x) for name, x in env._numbers.items()}
    assert model["actuator_gainprm"][0, 0] == 3 and model["actuator_biasprm"][0, 1] == -3
    state = State(jnp.int32(0), model["qpos0"].at[7].set(0.5), jnp.zeros(7).at[6].set(2.0), jnp.zeros(7))
    assert {name: float(x.value) for name, x in env.telemetry(state, None).items()} == {
        "j [rad]": 0.5,
        "j_dot [rad/s]": 2.0,
    }
    plain, thick = (
        env.render(state, SimpleNamespace(model=model | {"geom_size": size}))
        for size in (model["geom_size"], model["geom_size"] * jnp.array([[1.0, 1, 1], [3, 1, 1]]))
    )
    assert plain.shape == (320, 320, 3) and (plain != thick).any(2).mean() > 0.02


def test_ant():
    """A start: no contact forces, rates and coordinates as noisy as Gymnasium's; its picture."""
    env: Any
    env, params = jaxrl.make("Ant-v5")
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(KEY, 500), params)
    off = state.qpos - params.model["qpos0"]
    assert obs.shape == (500, 105) and not obs[:, 27:].any()
    assert 0.099 < jnp.abs(off).max() <= 0.1 and 0.095 < jnp.std(state.qvel) < 0.105
    assert np.ptp(env.render(jax.tree.map(lambda x: x[0], state), params)) > 100


FEATURES = [
    ("geom_adhesion", 'adhesion="2"', "", "", ""),
    ("geom_surfacevel", 'surfacevel="1 0 0 0 0 0"', "", "", ""),
    ("dof_dampingpoly", "", 'damping="0.4 0.3 0.2"', "", ""),
    ("jnt_stiffnesspoly", "", 'stiffness="3 20 10"', "", ""),
    ("jnt_springyield", "", 'stiffness="3" springyield="0.1"', "", ""),
    ("actuator_armature", "", "", 'armature="0.5"', ""),
    ("actuator_damping", "", "", 'damping="0.5"', ""),
    ("actuator_delay", "", "", 'delay="0.01" nsample="5"', ""),
    ("noslip_iterations", "", "", "", '<option noslip_iterations="3"/>'),
    ("disableactuator", "", "", "", '<option actuatorgroupdisable="0"/>'),
    ("DIAGEXACT", "", "", "", '<option><flag diagexact="enable"/></option>'),
]


def rich(geom: str = "", joint: str = "", motor: str = "", more: str = "") -> Any:
    """A planar model with a ground, a body, a site, a motor, and what else a feature needs."""
    return mujoco.MjModel.from_xml_string(
        f'<mujoco>{more}<worldbody><geom name="ground" type="plane" size="1 1 1"/><body name="b" pos="0 0 1">'
        f'<joint name="j" axis="0 1 0" {joint}/><geom name="g" type="capsule" size="0.1 0.2" {geom}/><site name="s"/>'
        f'</body></worldbody><actuator><motor name="m" joint="j" ctrlrange="-1 1" {motor}/></actuator></mujoco>'
    )


@pytest.mark.parametrize(("field", "geom", "joint", "motor", "more"), FEATURES, ids=[x[0] for x in FEATURES])
def test_unread_features_are_refused(field, geom, joint, motor, more):
    model = rich(geom, joint, motor, more)
    for engine in (planar.plan, on_mjx.put):
        with pytest.raises(ValueError, match=field):
            engine(model)


@pytest.mark.parametrize("reader", [features.PLANAR, features.MJX], ids=lambda reader: reader.engine)
def test_every_field_is_read_or_derived_or_refused(reader):
    """Whatever the installed MuJoCo has: a changed field that is neither read nor without effect is refused by name."""

    def check(model: Any) -> None:
        features.refuse_unread(model, reader, ValueError, planar.name_of)

    check(rich())
    refused = set()
    for name in features.fields(rich()):
        if name in reader.fields or features.without_effect(name, reader) or "flags" in name:
            continue
        model = rich()
        owner, field = (model.opt, name[4:]) if name.startswith("opt.") else (model, name)
        value = getattr(owner, field)
        if isinstance(value, np.ndarray):
            if not value.size:
                continue
            value[-1:] = value[-1:] + 1 if value.dtype != bool else ~value[-1:]
        else:
            setattr(owner, field, value + 1)
        with pytest.raises(ValueError, match=name.replace(".", r"\.")):
            check(model)
        refused.add(name)
    assert refused >= {"geom_adhesion", "geom_gap", "jnt_springyield", "dof_dampingpoly", "opt.noslip_iterations"}
    for bit in range(24):
        model = rich()
        model.opt.enableflags = 1 << bit
        if bit in (int(getattr(mujoco.mjtEnableBit, f"mjENBL_{x}")).bit_length() - 1 for x in features.QUIET):
            check(model)
        else:
            with pytest.raises(ValueError, match="option enableflags has the flag"):
                check(model)


def test_a_field_of_a_newer_mujoco_is_refused(monkeypatch):
    """A field that no table names, in the model at hand and in the reference, is compared like any other."""
    usual, there = (SimpleNamespace(geom_novel=np.array(x), opt=SimpleNamespace()) for x in ([0.0], [0.0, 3.0]))
    monkeypatch.setattr(features, "_reference", lambda: usual)
    assert list(features.fields(there)) == ["geom_novel"]
    assert features.unusual(there, "geom_novel") == (1, 3.0, 0.0)
