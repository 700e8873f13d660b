"""Files of learned rules: what is written comes back, and what is none is refused in a sentence."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos.meta import lpg
from jaxrl.meta import AgentConfig
from jaxrl.meta.stored import RuleFileError

NETWORK = lpg.RuleConfig(predictions=3, features=4, embedding=(2,), temporal=True)


@pytest.fixture
def file(tmp_path):
    weights = lpg.rule(NETWORK).init(jax.random.key(3))
    lpg.save(tmp_path / "rule.npz", NETWORK, weights, {"command": "a test", "seed": 3})
    return tmp_path / "rule.npz", weights


@pytest.mark.slow
@pytest.mark.light
def test_what_is_written_comes_back(file):
    path, weights = file
    found = lpg.load(path)
    assert found.config == NETWORK and found.provenance == {"command": "a test", "seed": 3}
    assert found.rule.name == "ta_lpg"
    same = jax.tree.map(lambda x, y: np.array_equal(x, y), weights, found.weights)
    assert all(jax.tree.leaves(same)) and path.stat().st_size < 20_000
    # An agent learns by these weights unless others are given.
    algo = found.agent(jaxrl.make("CartPole-v1")[0], AgentConfig(num_envs=2, num_steps=2))
    state = jax.eval_shape(algo.init, jax.random.key(0))
    assert jax.tree.map(jnp.shape, state.hyper.rule) == jax.tree.map(jnp.shape, weights)


def rewritten(path, change):
    """The file, its arrays changed."""
    with np.load(path) as there:
        arrays = {name: there[name] for name in there.files}
    change(arrays)
    np.savez(path, **arrays)


def about(**changes):
    def change(arrays):
        arrays["about"] = np.array(json.dumps({**json.loads(str(arrays["about"])), **changes}))

    return change


def first(array):
    def change(arrays):
        name = next(name for name in arrays if "recurrent" in name)
        arrays.pop(name) if array is None else arrays.update({name: array})

    return change


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (about(kind="lpo"), "it holds a rule of kind 'lpo', not 'lpg'"),
        (
            about(config={**dataclasses.asdict(NETWORK), "depth": 2}),
            r"settings that this version does not know: \['depth",
        ),
        (about(config={**dataclasses.asdict(NETWORK), "features": 5}), "and the network of its settings has"),
        (first(np.zeros((4, 5), np.float32)), r"is \(4, 5\), and the network of its settings has \(4, 4\)"),
        (first(None), "is missing, and the network"),
        (lambda arrays: arrays.pop("about"), "it is no stored rule"),
        (lambda arrays: arrays.update(about=np.array("[1]")), "it is no stored rule"),
        (lambda arrays: arrays.update(about=np.array('{"kind": "lpg", "config": {}}')), "does not say its provenance"),
    ],
)
def test_files_of_something_else(file, change, said):
    path, _ = file
    rewritten(path, change)
    with pytest.raises(RuleFileError, match=said):
        lpg.load(path)


def test_damaged_pickled_and_unknown(file, tmp_path):
    path, _ = file
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(RuleFileError, match=r"rule.npz: it is no stored rule"):
        lpg.load(path)
    np.savez(tmp_path / "pickled.npz", about=np.array({"kind": "lpg"}, object))
    with pytest.raises(RuleFileError, match=r"pickled.npz: it is no stored rule .*pickle"):
        lpg.load(tmp_path / "pickled.npz")
    with pytest.raises(RuleFileError, match=r"there is no such file"):
        lpg.load(tmp_path / "none.npz")
    with pytest.raises(RuleFileError, match=r"grove: no rule of this name comes with jaxrl"):
        lpg.load("grove")
