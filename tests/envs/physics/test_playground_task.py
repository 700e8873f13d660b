"""MuJoCo Playground's tasks through the adapter, against Playground's own steps where the package is installed."""

import importlib.util
import struct
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.physics.playground_task import PlaygroundTask
from jaxrl.envs.physics.task import scaled

KEY = jax.random.key(0)
there = importlib.util.find_spec("mujoco_playground") is not None
installed = pytest.mark.skipif(not there, reason='needs pip install "jaxrl[playground]"')


@pytest.mark.skipif(there, reason="the package is installed")
def test_the_error_names_the_command():
    with pytest.raises(ImportError, match=r"Playground-CheetahRun: .*pip install .*\[playground\]"):
        _ = PlaygroundTask("CheetahRun").default_params


@pytest.fixture
def robots(tmp_path, monkeypatch):
    """MuJoCo Menagerie's folder, with tetrahedra for the meshes of one robot: what is seen of it, not what it does."""
    from mujoco_playground._src import mjx_env

    folder = tmp_path / "unitree_go1" / "assets"
    folder.mkdir(parents=True)
    corners = ((0.0, 0.0, 0.0), (0.1, 0.0, 0.0), (0.0, 0.1, 0.0), (0.0, 0.0, 0.1))
    faces = [struct.pack("<12fH", 0, 0, 0, *sum(three, ()), 0) for three in combinations(corners, 3)]
    for name in ("trunk", "hip", "thigh", "thigh_mirror", "calf"):
        (folder / f"{name}.stl").write_bytes(bytes(80) + struct.pack("<I", len(faces)) + b"".join(faces))
    monkeypatch.setattr(mjx_env, "MENAGERIE_PATH", tmp_path)


@pytest.mark.slow
@installed
def test_a_robot_whose_meshes_are_there(robots):
    env, params = jaxrl.make("jaxrl.envs.physics.playground_task:PlaygroundTask", name="Go1JoystickFlatTerrain")
    obs, state = jax.jit(env.reset)(KEY, params)
    assert env.observation_space(params).contains(obs) and obs.keys() == {"state", "privileged"}
    assert env.action_space(params).shape == (12,) and "geom_friction" in params.model


@installed
def test_a_robot_without_meshes_is_not_downloaded(tmp_path, monkeypatch):
    from mujoco_playground._src import mjx_env

    monkeypatch.setattr(mjx_env, "MENAGERIE_PATH", tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="Playground-Go1Getup: .*Clone https.*mujoco_menagerie to .*none"):
        _ = PlaygroundTask("Go1Getup").default_params
    with pytest.raises(ValueError, match="no task 'Horse' .*CartpoleBalance.*Go1Getup"):
        _ = PlaygroundTask("Horse").default_params


def test_what_cannot_run_is_named():
    for settings in ((("impl", "warp"),), (("vision", True),)):
        with pytest.raises(ValueError, match="impl='jax', without vision"):
            PlaygroundTask(settings=settings)


@pytest.mark.slow
@installed
def test_every_number_acts():
    """Each number of a walker changes 50 steps under full actions, but for the bias that its motors do not have."""
    env = PlaygroundTask("WalkerWalk")
    params = env.default_params
    actions = jnp.sign(jax.random.normal(KEY, (50, env.env.action_size)))

    @jax.jit
    @jax.vmap
    def seen(model):
        changed = params.replace(model=model)
        _, state = env.reset(KEY, changed)

        def step(state, action):
            ts = env.step(KEY, state, action, changed)
            return ts.state, ts.obs

        return jax.lax.scan(step, state, actions)[1]

    names = sorted(params.model)
    changed = {name: jnp.where(x == 0, 0.05, 0.7 * x) for name, x in params.model.items()}
    models = [params.model, *(params.model | {name: changed[name]} for name in names)]
    plain, *others = np.asarray(seen(jax.tree.map(lambda *x: jnp.stack(x), *models)))
    still = {name for name, other in zip(names, others, strict=True) if np.allclose(plain, other, atol=1e-6)}
    assert still == {"actuator_biasprm"}


def check_parity(name, steps):
    """Given the model's numbers as arguments, not as constants that the compiler folds, all is equal."""
    env = PlaygroundTask(name)
    params = env.default_params

    @jax.jit
    def both(params, actions):
        own, reset_key = env.under(params.model), jax.random.split(KEY)[0]
        start, (obs, state) = own.reset(jax.random.key_data(reset_key)), env.reset(KEY, params)

        def step(carry, action):
            theirs, ts = own.step(carry[0], action), env.step(KEY, carry[1], action, params)
            found = (ts.obs, ts.reward, ts.terminated, ts.info)
            return (theirs, ts.state), (found, (theirs.obs, theirs.reward, theirs.done > 0, theirs.metrics))

        return (obs, start.obs), jax.lax.scan(step, (start, state), actions)[1]

    actions = jax.random.uniform(KEY, (steps, env.env.action_size), minval=-1.0)
    (ours, theirs), (found, wanted) = jax.device_get(both(params, actions))
    np.testing.assert_array_equal(ours, theirs)
    assert found[3].keys() == wanted[3].keys() and not found[2].any()
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), found, wanted)


@pytest.mark.slow
@installed
@pytest.mark.parametrize("name, steps", [("PendulumSwingup", 1000), ("CartpoleBalance", 1000), ("WalkerWalk", 100)])
def test_parity(name, steps):
    """The walker falls, and lies on the ground."""
    check_parity(name, steps)


@pytest.mark.slow
@installed
def test_masses_differ_within_a_batch_and_starts_are_fresh():
    env = PlaygroundTask("PendulumSwingup")
    params = env.default_params.replace(max_steps=jnp.int32(5))
    with pytest.raises(ValueError, match="'mass' is no number of the model; it has .*body_mass"):
        scaled(params, mass=2.0)
    with pytest.raises(ValueError, match="'gravity'.*must be finite"):
        env.validate(scaled(params, gravity=jnp.nan))
    factors = jnp.array([1.0, 2.0])
    start = jax.jit(env.reset)(KEY, params)[1]
    step = jax.jit(jax.vmap(lambda x: env.step(KEY, start, jnp.ones(1), scaled(params, body_mass=x)).obs))
    light, heavy = step(factors)
    assert not np.allclose(light, heavy, atol=1e-6)

    venv = jaxrl.vectorize(env, 3)
    obs, state = jax.jit(venv.reset)(KEY, params)

    @jax.jit
    def run(state):
        def body(state, key):
            ts = venv.step(key, state, jnp.zeros((3, 1)), params)
            return ts.state, (ts.obs, ts.terminated, ts.truncated)

        return jax.lax.scan(body, state, jax.random.split(KEY, 15))[1]

    seen, terminated, truncated = map(np.asarray, run(state))
    assert not terminated.any() and (truncated.sum(0) == 3).all()
    starts = np.concatenate([np.asarray(obs), seen[truncated]])
    assert len(np.unique(starts, axis=0)) == len(starts)
    assert env.render(jax.device_get(start), params).shape == (320, 320, 3)
