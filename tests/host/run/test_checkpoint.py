"""Round trips are exact, damage is noticed and passed over, foreign checkpoints are refused."""

import dataclasses
import json
import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import ppo
from jaxrl.host.run import checkpoint
from jaxrl.host.run.checkpoint import CheckpointError
from jaxrl.host.run.run_folder import _text, description, tree_values

CONFIG = ppo.Config(num_envs=2, num_steps=8, hidden=(8,), num_epochs=1, num_minibatches=1)
SMALL = {"key": jax.random.key(0), "x": jnp.arange(3.0)}
ABOUT = {"algorithm": "mine", "config": {"width": 3}}


def assert_identical(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for path, (a, b) in zip(
        (p for p, _ in jax.tree_util.tree_leaves_with_path(one)),
        zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True),
        strict=True,
    ):
        assert a.dtype == b.dtype, path
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes() and a.shape == b.shape, path


@pytest.fixture(scope="module")
def algo():
    return ppo.make(jaxrl.make("CartPole-v1")[0], dataclasses.replace(CONFIG, normalize_obs=True))


@pytest.fixture(scope="module")
def states(algo):
    """One state, and three of them with an axis of seeds."""
    init = jax.jit(lambda key: algo.init(key))
    return init(jax.random.key(0)), jax.jit(jax.vmap(init))(jax.random.split(jax.random.key(0), 3))


@pytest.fixture
def three(tmp_path):
    """Checkpoints 1, 2 and 3 of a small tree, holding their own number."""
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, {**SMALL, "x": SMALL["x"] + step}, ABOUT)
    return tmp_path


def newest(folder):
    step, state = checkpoint.restore(folder, jax.eval_shape(lambda: SMALL), ABOUT)
    np.testing.assert_array_equal(state["x"], SMALL["x"] + step)
    return step


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("which", [0, 1])
def test_algorithm_state_round_trip_is_exact(tmp_path, algo, states, which):
    state, about = states[which], description(algo, None if which == 0 else 3)
    checkpoint.save(tmp_path, 7, state, about)
    step, again = checkpoint.restore(tmp_path, jax.eval_shape(lambda: state), about)
    assert step == 7
    assert_identical(state, again)


def test_every_dtype_and_generator_round_trips(tmp_path):
    state = {
        "keys": jax.random.split(jax.random.key(1), (2, 3)),
        "rbg": jax.random.key(1, impl="rbg"),
        "half": jnp.asarray([1.5, jnp.nan, -jnp.inf], jnp.bfloat16),
        "float": jnp.asarray([0.1, -0.0, jnp.nan]),
        "int8": jnp.int8(-3),
        "bool": jnp.asarray([True, False]),
        "pixels": jnp.arange(12, dtype=jnp.uint8).reshape(3, 4),
        "none": None,
        "empty": jnp.zeros((0, 2)),
        "nested": [jnp.uint32(7), (jnp.float16(2),)],
    }
    checkpoint.save(tmp_path, 0, state, {})
    assert_identical(state, checkpoint.restore(tmp_path, jax.eval_shape(lambda: state), {})[1])


def test_retention(three):
    assert checkpoint.steps(three) == [1, 2, 3]
    checkpoint.save(three, 4, {**SMALL, "x": SMALL["x"] + 4}, ABOUT, keep=2)
    assert checkpoint.steps(three) == [3, 4]
    (three / "5.bak").mkdir()  # not ours
    (three / ".000000000006.partial").mkdir()  # a save that was killed
    assert checkpoint.steps(three) == [3, 4] and newest(three) == 4
    # A run that went on from an earlier checkpoint replaces what came after it: the new one is not dropped as old.
    checkpoint.save(three, 2, {**SMALL, "x": SMALL["x"] + 2}, ABOUT, keep=1)
    assert checkpoint.steps(three) == [2] and newest(three) == 2


def test_saving_again_replaces(three):
    checkpoint.save(three, 3, {**SMALL, "x": SMALL["x"] + 3}, ABOUT)
    assert checkpoint.steps(three) == [1, 2, 3] and newest(three) == 3


def largest(path):
    return max(
        (p for p in path.rglob("*") if p.is_file() and p.name != checkpoint.MANIFEST), key=lambda p: p.stat().st_size
    )


def truncate(path):
    file = largest(path)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file, at=None):
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    file.write_bytes(bytes(data))


DAMAGE = {
    "truncated": truncate,
    "flipped byte": lambda path: flip(largest(path)),
    "missing file": lambda path: largest(path).unlink(),
    "missing manifest": lambda path: (path / checkpoint.MANIFEST).unlink(),
    "truncated manifest": lambda path: (path / checkpoint.MANIFEST).write_text("{"),
    "other json": lambda path: (path / checkpoint.MANIFEST).write_text("[1]"),
    "flipped byte in the description": lambda path: flip(
        path / checkpoint.MANIFEST, (path / checkpoint.MANIFEST).read_text().index("mine")
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_newest_falls_back_to_the_one_before(three, damage):
    DAMAGE[damage](three / "000000000003")
    with pytest.warns(UserWarning, match="000000000003.*Trying the one before"):
        assert newest(three) == 2


def test_two_damaged_then_all(three):
    truncate(three / "000000000003")
    flip(largest(three / "000000000002"))
    with pytest.warns(UserWarning) as seen:
        assert newest(three) == 1
    assert len(seen) == 2
    shutil.rmtree(three / "000000000001" / "arrays")
    with pytest.warns(UserWarning), pytest.raises(CheckpointError, match="No usable checkpoint in .*Train first"):
        newest(three)


def test_nothing_there(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert checkpoint.steps(folder) == []
        with pytest.raises(CheckpointError, match="No usable checkpoint"):
            newest(folder)


def refusal(folder, state, about):
    with pytest.raises(CheckpointError) as caught:
        checkpoint.restore(folder, jax.eval_shape(lambda: state), about)
    return str(caught.value)


def test_another_run_is_refused_by_the_first_difference(three):
    shapes = {**SMALL, "x": jnp.zeros(4)}
    assert "algorithm is 'mine' there, 'dqn' here" in refusal(three, SMALL, {**ABOUT, "algorithm": "dqn"})
    assert "config.width is 3 there, 4 here" in refusal(three, SMALL, {**ABOUT, "config": {"width": 4}})
    assert "config.depth is None there, 2 here" in refusal(three, SMALL, {**ABOUT, "config": {"width": 3, "depth": 2}})
    assert "leaf ['x'] is float32[3] there, float32[4] here" in refusal(three, shapes, ABOUT)
    assert "leaf ['x'] is float32[3] there, int32[3] here" in refusal(three, {**SMALL, "x": jnp.arange(3)}, ABOUT)
    assert "leaf ['x'] is float32[3] there, None here" in refusal(three, {"key": SMALL["key"]}, ABOUT)
    assert "leaf ['y'] is None there, int32[] here" in refusal(three, {**SMALL, "y": jnp.int32(0)}, ABOUT)
    key = {**SMALL, "key": jax.random.key(0, impl="rbg")}
    assert "leaf ['key'] is key<fry>[] there, key<rbg>[] here" in refusal(three, key, ABOUT)
    assert checkpoint.steps(three) == [1, 2, 3]


def test_another_algorithm_config_or_hyper_is_refused(tmp_path, algo, states):
    def about(algo, num_seeds=None, **hyper):
        return {**description(algo, num_seeds), "hyper": tree_values(algo.hyper(**hyper))}

    checkpoint.save(tmp_path, 1, states[0], about(algo))
    assert "env is 'CartPole-v1' there, 'Acrobot-v1'" in refusal(
        tmp_path, states[0], about(ppo.make(jaxrl.make("Acrobot-v1")[0], algo.config))
    )
    wider = ppo.make(algo.venv.env, dataclasses.replace(algo.config, hidden=(16,)))
    assert "config.hidden is [8] there, [16] here" in refusal(tmp_path, states[0], about(wider))
    assert "hyper.gamma is 0.99 there, 0.5 here" in refusal(tmp_path, states[0], about(algo, gamma=0.5))
    assert "num_seeds is None there, 3 here" in refusal(tmp_path, states[1], about(algo, 3))


def test_functions_are_told_apart_but_not_by_their_addresses():
    def scaled(factor):
        return lambda key, params: (params, factor)

    class Task:
        def __repr__(self):
            return "Task()"

        def level(self, key):
            return key

    first, again, other = scaled(1.0), scaled(1.0), scaled(2.0)
    assert _text(first) == _text(again) != _text(other)
    assert _text(lambda key: key) != _text(lambda key: -key)
    assert _text(partial(first, 3)) == _text(partial(again, 3)) != _text(partial(again, 4))
    assert _text((Task().level, scaled)).startswith("(Task().level, tests.")
    assert _text(jaxrl.fit) == "jaxrl.host.run.fit.fit"


def test_a_description_may_hold_nan(tmp_path):
    about = {"hyper": {"learning_rate": [1.0, float("nan")]}}
    checkpoint.save(tmp_path, 1, SMALL, about)
    again = json.loads(json.dumps(about))
    assert checkpoint.restore(tmp_path, jax.eval_shape(lambda: SMALL), again)[0] == 1
