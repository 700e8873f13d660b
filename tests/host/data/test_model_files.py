"""Models of dynamics on disk: there and back, what is no model, and what a learner of the shell makes of one."""

import dataclasses
import json
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import mopo, morel
from jaxrl.data import dynamics
from jaxrl.data.datasets import Dataset
from jaxrl.host.data import dataset_files, model_files
from jaxrl.host.run import recipe_inputs

KEY = jax.random.key(0)
PENDULUM, PARAMS = jaxrl.make("Pendulum-v1")
ABOUT = {"env": "Pendulum-v1", "dataset": {"path": "data.npz", "digest": "0"}, "seed": 0, "held_out": [0.1, 0.2]}


def ensemble(obs=3, action=1, hidden=(4, 3)):
    """Two elites of random weights."""
    rng = np.random.default_rng(0)
    sizes = [obs + action, *hidden, 2 * (obs + 1)]
    layers = {
        f"Dense_{i}": {"kernel": rng.normal(size=(2, n, m)).astype(np.float32), "bias": np.zeros((2, m), np.float32)}
        for i, (n, m) in enumerate(zip(sizes, sizes[1:], strict=False))
    }
    low, high = (np.full((2, obs + 1), x, np.float32) for x in (-10.0, 0.5))
    scales = (dynamics.Scale(np.ones(n, np.float32), np.full(n, 2.0, np.float32)) for n in (obs + action, obs + 1))
    return jax.tree.map(jnp.asarray, dynamics.Ensemble({"params": layers}, low, high, *scales, hidden, "tanh"))


def data(obs, terminated=None):
    n = len(obs)
    ends = np.zeros(n, bool) if terminated is None else np.asarray(terminated)
    return Dataset(obs, np.zeros((n, 1), np.float32), np.zeros(n, np.float32), ends, np.ones(n, bool), obs)


def test_there_and_back(tmp_path):
    path, made = tmp_path / "new" / "model.npz", ensemble()
    model_files.write(path, made, ABOUT)
    read, about = model_files.read(path)
    assert about == {**ABOUT, "digest": model_files.digest(made)} and model_files.digest(read) == about["digest"]
    assert (read.hidden, read.activation) == ((4, 3), "tanh")
    obs, action = jnp.ones((5, 3)), jnp.ones((5, 1))
    predict = jax.jit(dynamics.predict)
    jax.tree.map(np.testing.assert_array_equal, predict(read, obs, action), predict(made, obs, action))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        model_files.write(path, made, ABOUT)
    model_files.write(path, ensemble(hidden=(2,)), ABOUT, overwrite=True)
    assert model_files.digest(model_files.read(path)[0]) != about["digest"]
    assert [p.name for p in path.parent.iterdir()] == ["model.npz"]
    assert model_files.digest(dataclasses.replace(made, activation="relu")) != about["digest"]


def test_what_is_no_model_is_said_in_a_line(tmp_path):
    path = tmp_path / "model.npz"

    def no(said):
        with pytest.raises(ValueError, match=said) as error:
            model_files.read(path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)

    model_files.write(path, ensemble(), ABOUT)
    whole = path.read_bytes()
    for cut in (len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:cut])
        no("damaged or cut short")
    path.write_bytes(b"")
    no("is empty: a model is npz")
    path.write_bytes(pickle.dumps(ABOUT))
    no("unpickling runs what the file says")
    path.write_text("weights")
    no("neither npz nor HDF5: a model is npz")
    dataset_files.write(path, data(np.zeros((3, 3), np.float32)), {}, overwrite=True)
    no("is no model, it has about, action,")
    with np.load(_written(path, whole)) as file:
        members = dict(file)
    np.savez(path, **{**members, "low": members["low"] + 1})
    no("is not what was written")
    np.savez(path, **{**members, "network": np.asarray(json.dumps({"hidden": [4, 3], "activation": "relu"}))})
    no("is not what was written")
    np.savez(path, **{**members, "low": np.array([{}], object)})
    no("low holds pickled objects")
    np.savez(path, **{name: x for name, x in members.items() if name != "high"})
    no("is no model, it has")


def _written(path, content):
    path.write_bytes(content)
    return path


def test_a_model_of_another_size_does_not_fit():
    model_files.check_fits(ensemble(), ABOUT, PENDULUM, PARAMS)
    with pytest.raises(ValueError, match=r"the model has observations of 2 numbers and actions of 2; Pendulum-v1's"):
        model_files.check_fits(ensemble(2, 2), {}, PENDULUM, PARAMS)
    with pytest.raises(ValueError, match="the model, of Pendulum-v1, is of vectors; CartPole-v1 has .* Discrete"):
        model_files.check_fits(ensemble(), ABOUT, *jaxrl.make("CartPole-v1"))


# ---- what a learner makes of it


def test_ends_are_the_tasks_own():
    """Known where the environment tells them by observations and the data agrees; never left out in silence."""
    upright, fallen = [0.0, 0, 0.1, 0], [0.0, 0, 0.3, 0]
    obs = np.array([upright, fallen, upright], np.float32)
    env, params = jaxrl.make("CartPoleContinuous-v0")
    ends = recipe_inputs.ends_of(env, params, data(obs, [False, True, False]))
    assert ends is not None and ends(*map(jnp.asarray, (obs, obs[:, :1], obs))).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="disagree about 1 ends, of 0 in the dataset and 1 by its observations"):
        recipe_inputs.ends_of(env, params, data(obs))
    still = np.zeros((3, 3), np.float32)
    assert recipe_inputs.ends_of(PENDULUM, PARAMS, data(still)) is None
    with pytest.raises(ValueError, match=r"ends in 1 of the dataset's 3 steps.*Pendulum-v1 does not say which obs"):
        recipe_inputs.ends_of(PENDULUM, PARAMS, data(still, [False, True, False]))


@pytest.mark.slow
@pytest.mark.light
def test_each_algorithm_says_what_uncertainty_is():
    """MOPO's is in the task's units; MOReL's is 1 where it is largest on the data."""
    obs, action = jnp.asarray(np.random.default_rng(1).normal(size=(6, 3)), jnp.float32), jnp.zeros((6, 1))
    dataset, made = data(np.asarray(obs)), ensemble()
    mean, std = jax.jit(dynamics.predict)(made, obs, action)
    found = jax.jit(mopo.model_of(made, dataset))(KEY, obs, action)
    np.testing.assert_allclose(found.uncertainty, dynamics.largest_std(mean, std), rtol=1e-5)
    found = jax.jit(morel.model_of(made, dataset, lambda obs, action, next_obs: obs[:, 0] > 0))(KEY, obs, action)
    disagreement = dynamics.disagreement(mean, std)
    np.testing.assert_allclose(found.uncertainty, disagreement / disagreement.max(), rtol=1e-5)
    np.testing.assert_array_equal(found.terminated, obs[:, 0] > 0)
    alone = jax.tree.map(lambda x: x[:1], made).replace(inputs=made.inputs, targets=made.targets)
    with pytest.raises(ValueError, match=re.escape("disagree by at most 0.0 on the data; it takes 2 elites")):
        morel.model_of(alone, dataset)
