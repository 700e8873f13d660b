"""A run folder read back by `jaxrl.load`."""

import json
import shutil

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import ppo
from jaxrl.host.run.checkpoint import CheckpointError
from jaxrl.host.run.run_folder import RunFolderError

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two seeds on a short pole: `(folder, algorithm, what fit returned)`."""
    folder = tmp_path_factory.mktemp("load") / "runs" / "x"  # no other test has runs beside it
    env, params = jaxrl.make("CartPole-v1")
    algo = ppo.make(env, ppo.Config(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,)))
    short, hyper = params.replace(length=0.3), ppo.Hyper(gamma=0.9)
    result = jaxrl.fit(algo, KEY, 48, hyper=hyper, env_params=short, num_seeds=2, out=folder, progress=False)
    return folder, algo, result


def assert_same(one, other):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
@pytest.mark.light
def test_a_run_is_read_back_to_act_and_to_train_on(trained):
    folder, algo, result = trained
    run = jaxrl.load(folder, seed=1)
    assert run.algo == algo and run.env == algo.venv.env and (run.updates, run.num_seeds) == (3, 2)
    state = jax.tree.map(lambda x: x[1], result.state)
    assert_same(run.state, state)
    assert_same(run.policy, algo.policy(state))
    assert float(run.state.hyper.gamma) == pytest.approx(0.9) and float(run.env_params.length) == pytest.approx(0.3)
    assert int(run.algo.update(run.state)[0].step) == 64
    assert_same(jaxrl.load(str(folder)).state, jax.tree.map(lambda x: x[0], result.state))


def test_all_seeds_of_a_run(trained):
    folder, algo, result = trained
    run = jaxrl.load(folder, seed=None)
    assert_same(run.state, result.state)
    assert_same(run.policy, jax.vmap(algo.policy)(result.state))
    with pytest.raises(ValueError, match="seed=2: .* has seeds 0 to 1"):
        jaxrl.load(folder, seed=2)


def test_a_run_without_a_recipe_needs_its_algorithm(trained, tmp_path):
    folder, algo, result = trained
    copy = shutil.copytree(folder, tmp_path / "wrapped")
    config = json.loads((copy / "config.json").read_text())
    del config["recipe"]
    (copy / "config.json").write_text(json.dumps({**config, "no_recipe": "it was wrapped."}))
    with pytest.raises(RunFolderError, match=r"it was wrapped\. Give load its algorithm: jaxrl\.load\('.*', algo\)"):
        jaxrl.load(copy)
    short = jaxrl.make("CartPole-v1")[1].replace(length=0.3)
    run = jaxrl.load(copy, algo, hyper=ppo.Hyper(gamma=0.9), env_params=short, seed=None)
    assert_same(run.state, result.state)
    with pytest.raises(CheckpointError, match="gamma is .* there"):
        jaxrl.load(copy, algo, env_params=short)


def test_what_is_no_run_is_said_with_runs_near_it(trained, tmp_path):
    folder, _, _ = trained
    with pytest.raises(RunFolderError, match=rf"y is not there\. Runs near it: {folder}\."):
        jaxrl.load(folder.parent / "y")
    with pytest.raises(RunFolderError, match=rf"holds no run \(it has no config.json\)\. Runs near it: {folder}\."):
        jaxrl.load(folder.parent)
    with pytest.raises(RunFolderError, match=r"`fit\(\.\.\., out=FOLDER\)` or `jaxrl train` makes one"):
        jaxrl.load(tmp_path / "there" / "is" / "none")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RunFolderError, match="config.json is not of a run of jaxrl"):
        jaxrl.load(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(RunFolderError, match=r"jaxrl\.zoo\.load\('x/y'\)"):
        jaxrl.load("zoo:x/y")
    (tmp_path / "plan.json").touch()
    with pytest.raises(RunFolderError, match="a sweep's folder"):
        jaxrl.load(tmp_path)
