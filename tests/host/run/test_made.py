"""Runs that were put together in Python are read by the commands: own physics, airframes, wrappers, curricula."""

import contextlib
import dataclasses
import io
import json
import os
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import curriculum, registry, vectorize
from jaxrl.algos import ppo
from jaxrl.algos.curricula import dr, plr
from jaxrl.envs.quadcopter import dynamics, models
from jaxrl.host import cli
from jaxrl.host.run.fit import fit
from jaxrl.host.run.made import NotMadeError, names_in, read, written
from jaxrl.host.run.options import EvalOptions
from jaxrl.host.run.recipe import build, read_recipe
from jaxrl.host.run.recipe_of import NoRecipeError, made_recipe_of
from jaxrl.host.run.run_folder import description
from jaxrl.wrappers import FlattenObservation

KEY = jax.random.key(0)
CONFIG = ppo.Config(num_envs=2, num_steps=8, hidden=(8,), num_epochs=1, num_minibatches=1)
OWN = """
import dataclasses
from jaxrl import curriculum
from jaxrl.algos.curricula import dr
from jaxrl.calls import recorded
from jaxrl.envs.classic.cartpole import CartPole


@dataclasses.dataclass(frozen=True)
class Physics:
    drag: float = 0.1


@dataclasses.dataclass(frozen=True)
class Cart(CartPole):
    physics: Physics = Physics()


def short(key, params):
    return params.replace(length=params.length * 0.5)


@recorded
def progress(level_fn, step=0.1):
    return dr.make(lambda key, params: level_fn(key, params))
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A user's module in a folder that programs there find."""
    folder, before = tmp_path_factory.mktemp("own"), Path.cwd()
    (folder / "own_run_parts.py").write_text(OWN)
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    import own_run_parts  # pyright: ignore[reportMissingImports]

    yield own_run_parts
    os.chdir(before)
    sys.path.remove(str(folder))


def good(command):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(command.split())
    assert status == 0, err.getvalue()
    return out.getvalue()


def trained(folder, algo, env_params=None, **given):
    given = {"eval_every": 16, "eval_episodes": 2, "eval_max_steps": 5, "checkpoint_every": 16, **given}
    result = fit(algo, KEY, 32, env_params=env_params, out=folder, progress=False, **given)
    assert "no_recipe" not in json.loads((folder / "config.json").read_text())
    return result


def all_commands(folder):
    """Each command reads the run, from another folder than it was made in."""
    moved = Path(shutil.move(folder, folder.with_name("moved")))
    rows = (moved / "metrics.jsonl").read_bytes(), (moved / "evaluations.jsonl").read_bytes()
    shutil.rmtree(max((moved / "checkpoints").iterdir()))
    good(f"resume {moved} --no-progress")
    assert ((moved / "metrics.jsonl").read_bytes(), (moved / "evaluations.jsonl").read_bytes()) == rows
    assert "return" in good(f"eval {moved} --episodes 2 --max-steps 3")
    assert Path(good(f"export {moved}").strip()).exists()
    assert Path(good(f"plot --episode {moved} --max-steps 3").strip()).exists()
    good(f"report {moved} --out {moved / 'report.html'}")
    return jaxrl.load(moved)


@pytest.mark.slow
@pytest.mark.light
def test_own_physics_and_a_wrapper_and_a_level_function(own, tmp_path):
    env = FlattenObservation(own.Cart(id="Cart-v0", physics=own.Physics(0.3)))
    algo = ppo.make(vectorize(env, 2, level_fn=own.short), CONFIG)
    params = env.default_params.replace(length=jnp.float32(0.7))
    result = trained(tmp_path / "run", algo, params, hyper=ppo.Hyper(learning_rate=1e-3))
    run = all_commands(tmp_path / "run")
    assert run.algo == algo and run.env == env and run.env.env.physics == own.Physics(0.3)
    assert float(run.env_params.length) == np.float32(0.7)
    for x, y in zip(jax.tree.leaves(run.state.weights), jax.tree.leaves(result.state.weights), strict=True):
        assert np.array_equal(x, y)


@pytest.mark.slow
@pytest.mark.light
def test_an_airframe_and_the_windy_quadcopter_of_the_docs(tmp_path):
    instant = jaxrl.make("Quadcopter-Hover-v0")[0].physics.replace(motors="instant")
    env, params = jaxrl.make("Quadcopter-Hover-v0", physics=instant)
    racer = params.replace(model=models.RACER, max_steps=jnp.int32(20))
    trained(tmp_path / "racer", ppo.make(env, CONFIG), racer)
    assert "return" in good(f"eval {tmp_path / 'racer'} --episodes 2 --max-steps 3")
    assert Path(good(f"export {tmp_path / 'racer'}").strip()).exists()
    run = jaxrl.load(tmp_path / "racer")
    assert jax.tree.all(jax.tree.map(lambda x, y: bool(np.all(x == y)), run.env_params.model, models.RACER))

    physics = dynamics.CRAZYFLOW_0_4.replace(floor="none")
    windy, params = jaxrl.make("Quadcopter-Hover-v0", physics=physics, substeps=5, gusts=True, battery=True)
    params = params.replace(model=models.CRAZYFLOW_0_4["cf2x_L250"], dt=0.002, wind=(3.0, 0.0, 0.0), max_steps=20)
    trained(tmp_path / "windy", ppo.make(windy, CONFIG), params, eval_every=None)
    run = jaxrl.load(tmp_path / "windy")
    assert run.env == windy and float(run.env_params.wind[0]) == 3


@pytest.mark.slow
@pytest.mark.light
def test_a_student_under_a_curriculum_and_under_one_of_ones_own(own, tmp_path):
    env, _ = jaxrl.make("CartPole-v1")
    student = ppo.make(vectorize(env, 2, batched_params=True), CONFIG)
    algo = curriculum.attach(student, plr.make(own.short, plr.Config(buffer_size=4)))
    folder = tmp_path / "plr"
    hyper = algo.hyper(learning_rate=1e-3, curriculum=plr.Hyper(staleness=0.5))
    trained(folder, algo, hyper=hyper, eval_levels=jax.tree.map(lambda x: jnp.stack([x, x]), env.default_params))
    run = all_commands(folder)
    assert run.algo.name == "ppo+plr" and float(run.state.hyper.curriculum.staleness) == 0.5
    mine = curriculum.attach(student, own.progress(own.short))
    trained(tmp_path / "mine", mine)
    again = build(read_recipe(tmp_path / "mine")).algo
    assert description(again, None) == description(mine, None)


def test_what_has_no_name_has_no_recipe_and_says_what(own):
    env, _ = jaxrl.make("CartPole-v1")

    def inside(key, params):
        return params

    student = ppo.make(vectorize(env, 2, batched_params=True), CONFIG)
    for algo, says in (
        (ppo.make(vectorize(env, 2, level_fn=inside), CONFIG), "level_fn.* is defined inside a function"),
        (curriculum.attach(student, dr.make(inside)), "is defined inside a function"),
        (curriculum.attach(student, dr.make(own.short)._replace(name="x")), "mark what makes it with @jaxrl.calls"),
        (ppo.make(env, CONFIG)._replace(deployed="greedy"), "nobody knows which call made its algorithm"),
    ):
        with pytest.raises(NoRecipeError, match=says) as caught:
            made_recipe_of(algo, algo.hyper(), None, {}, EvalOptions())
        assert "\n" not in str(caught.value)


# ---- what is read is data


def test_a_module_in_the_run_folder_is_not_imported(own, tmp_path, monkeypatch):
    (tmp_path / "evil_part.py").write_text("import pathlib\npathlib.Path('ran').touch()\ndef f(): pass\n")
    monkeypatch.chdir(tmp_path)
    for word in ("evil_part:f", f"{tmp_path}/evil_part.py:f"):
        with pytest.raises(NotMadeError, match="lies in the run folder"):
            read({"name": word}, {}, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NotMadeError, match="lies in the run folder"):
        read({"name": "evil_part:f"}, {}, tmp_path)
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("json", "says"),
    [
        ({"call": "os:system", "arguments": {"command": "touch ran"}}, "not marked @jaxrl.calls.recorded"),
        ({"call": "subprocess:run", "arguments": {"args": "ls"}}, "not marked"),
        ({"object": "pathlib:Path", "fields": {}}, "no dataclass"),
        ({"object": "subprocess:Popen", "fields": {"args": "ls"}}, "no dataclass"),
        ({"partial": {"name": "os:system"}, "args": ["ls"], "keywords": {"dict": {}}}, "only functions of jaxrl"),
        ({"method": "__init__", "of": {"object": "jaxrl.algos.on_policy.ppo:Config", "fields": {}}}, "no method"),
        ({"method": "write_text", "of": "x"}, "no method of a dataclass"),
        ({"name": "jaxrl.nothing_there:f"}, "nothing_there"),
        ({"name": "jaxrl.spaces:Nothing"}, "has no Nothing"),
        ({"what": 1}, "nothing that a recipe is made of"),
        ({"array": "a7"}, "nothing that a recipe is made of"),
    ],
)
def test_what_was_written_by_others_runs_nothing(json, says, tmp_path):
    with pytest.raises((NotMadeError, ModuleNotFoundError), match=says):
        read(json, {}, tmp_path)
    assert not {"os", "subprocess", "pathlib"} & set(registry.own_modules()), "what it names may run from now on"


def test_each_kind_comes_back_as_it_was(own, tmp_path):
    things = (1, 2.5, float("inf"), None, True, "a", (1, (2,)), [1, 2], {"a": (1,)}, own.Physics(2.0), own.short)
    things += (ppo.Config, np.dtype("int8"), jnp.float32)
    arrays = {}
    again = read(json.loads(json.dumps(written(things, arrays, "it"))), arrays, tmp_path)
    assert again == things and not arrays
    method = read(json.loads(json.dumps(written(own.Cart(id="x").validate, arrays, "it"))), arrays, tmp_path)
    assert method.__func__ is own.Cart.validate and method.__self__ == own.Cart(id="x")
    tree = jaxrl.make("Pendulum-v1")[1]
    kept = json.loads(json.dumps(written(tree, arrays, "it")))
    back = read(kept, arrays, tmp_path)
    assert jax.tree.structure(back) == jax.tree.structure(tree) and arrays
    assert set(names_in(kept)) == {type(tree).__module__}
    assert dataclasses.is_dataclass(back)
