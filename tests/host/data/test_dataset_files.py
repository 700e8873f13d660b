"""Datasets come back from the disk as they went there in the project's own npz, and bad files are refused."""

import json
import os
import pickle
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import jaxrl
from jaxrl.data.datasets import Dataset, from_rollout
from jaxrl.host.data import dataset_files as files
from jaxrl.host.data import dataset_parts
from jaxrl.rollout import Steps
from jaxrl.spaces import Box
from tests.host.data.dataset_builders import ABOUT, assert_same, ogbench, refused, toy


@st.composite
def datasets(draw):
    """Observations flat or in parts, of floats or bytes; actions discrete or in a box."""
    n = draw(st.integers(2, 6))

    def array(dtype, *shape):
        finite = {"allow_nan": False, "allow_infinity": False} if np.dtype(dtype).kind == "f" else {}
        elements = hnp.from_dtype(np.dtype(dtype), **finite)
        return draw(hnp.arrays(dtype, (n, *shape), elements=elements))

    flat = lambda: array("f4", 3)  # noqa: E731
    parts = lambda: {"image": array("u1", 2, 2), "state": {"x": flat(), "y": array("i4")}, "pair": (flat(), flat())}  # noqa: E731
    observe = draw(st.sampled_from([flat, parts]))
    action = array("i4") if draw(st.booleans()) else array("f4", 2)
    rewards = draw(hnp.arrays("f4", n, elements=st.floats(-1e6, 1e6, width=32)))
    return Dataset(observe(), action, rewards, array("?"), array("?"), observe())


@given(datasets())
@settings(max_examples=30)
def test_npz_comes_back_bit_for_bit(tmp_path_factory, dataset):
    path = tmp_path_factory.mktemp("npz") / "set.npz"
    files.write(path, dataset, ABOUT)
    back, about = files.read(path)
    assert_same(dataset, back)
    assert about == {**ABOUT, "digest": dataset_parts.digest(dataset)}
    again, _ = files.read_any(path)
    assert_same(dataset, again)
    with np.load(path, allow_pickle=False) as file:
        assert set(file.files) == {"about", *dataset_parts.named_arrays(dataset)}


def test_the_digest_sees_names_dtypes_shapes_and_values_but_no_order():
    one = toy()
    x = {"a": one.obs, "b": one.obs + 1}
    parts = one.replace(obs=x, next_obs=x)
    seen = {dataset_parts.digest(d) for d in (one, parts, one.replace(obs=one.obs.astype(np.float64)))}
    seen.add(dataset_parts.digest(one.replace(obs=one.obs.reshape(-1, 1, 2))))
    seen.add(dataset_parts.digest(one.replace(obs=np.nextafter(one.obs, np.float32(9)))))
    assert len(seen) == 5
    assert dataset_parts.digest(parts) == dataset_parts.digest(parts.replace(obs={"b": x["b"], "a": x["a"]}))
    assert dataset_parts.digest(one) == dataset_parts.digest(one.replace(obs=jnp.asarray(one.obs)))
    assert dataset_parts.digest(one) == dataset_parts.digest(one.replace(obs=one.obs.astype(">f4")))


def test_nothing_is_written_over_and_nothing_half(tmp_path, monkeypatch):
    path = tmp_path / "sub" / "set.npz"
    files.write(path, toy(), ABOUT)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        files.write(path, toy((2, 2, 2)), ABOUT)

    def full(file, **arrays):
        file.write(b"half")
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez_compressed", full)
        with pytest.raises(OSError, match="No space"):
            files.write(path, toy((2, 2, 2)), ABOUT, overwrite=True)
    assert path.read_bytes() == before and [p.name for p in path.parent.iterdir()] == ["set.npz"]
    files.write(path, toy((2, 2, 2)), ABOUT, overwrite=True)
    assert_same(files.read(path)[0], toy((2, 2, 2)))


def test_what_no_learner_could_use_is_refused(tmp_path):
    good = toy()

    def no(dataset, *words, about=ABOUT):
        refused(lambda: files.write(tmp_path / "no.npz", dataset, about), *words)
        assert not list(tmp_path.iterdir())

    holes = good.obs.copy()
    holes[1:3, 0] = np.nan
    no(good.replace(obs=holes), "2 of the 12", "obs are NaN")
    no(good.replace(next_obs={"x": good.obs, "y": holes}, obs={"x": good.obs, "y": good.obs}), "next_obs.y are NaN")
    no(good.replace(reward=np.full(6, np.inf, np.float32)), "6 of the 6 numbers of reward are infinite")
    no(good.replace(obs=np.full_like(good.obs, np.inf)), "of obs are infinite")
    no(good.replace(action=good.action[:-1]), "unequal length", "action 5", "obs 6")
    no(toy((1,), (True,)), "1 transition")
    no(Dataset(*(getattr(good, f)[:0] for f in dataset_parts.FIELDS)), "0 transition")
    no(good.replace(terminated=good.terminated.astype(np.int32)), "terminated is int32", "booleans")
    no(good.replace(next_obs=good.next_obs[:, :1]), "obs", "next_obs", "alike")
    no(good.replace(action=good.action.astype(object)), "action is object")
    no(good.replace(obs={"a.b": good.obs}, next_obs={"a.b": good.obs}), "'a.b'")
    no(good, "reference", "best", about={"reference": {"random": 1.0, "best": 1.0, "exact": True}})
    no(good, "JSON", about={"env": object()})


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = files.write(tmp_path / "set.npz", toy((40, 40, 40)), ABOUT)
    whole = path.read_bytes()
    other = tmp_path / "other.npz"

    def no(*words, read=files.read_any):
        refused(lambda: read(other), "other.npz", *words)

    for size in (len(whole) - 1, len(whole) // 2, 10):
        other.write_bytes(whole[:size])
        no("cut short")
    middle = len(whole) // 2
    other.write_bytes(whole[:middle] + bytes(64) + whole[middle + 64 :])
    no("cut short")
    other.write_bytes(b"")
    no("empty")
    other.write_bytes(b"step,reward\n1,2\n")
    no("neither npz nor HDF5")
    other.write_bytes(pickle.dumps({"observations": [1]}))
    no("pickle")
    np.savez(other, observations=np.array([{}, {}]), actions=np.zeros(2), terminals=np.ones(2))
    no("observations holds pickled objects")
    np.savez(other, x=np.zeros(3))
    no("npz with x")
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("about", "{}")
    no("about is no array")

    with np.load(path) as file:
        arrays = dict(file)
    np.savez(other, **{**arrays, "reward": arrays["reward"] + 1})
    no("not what was written", "digest")
    np.savez(other, **{n: x for n, x in arrays.items() if n not in ("terminated", "last")})
    no("has no terminated, last")
    np.savez(other, **arrays, extra=arrays["reward"])
    no("arrays extra")
    np.savez(other, **{**arrays, "about": np.asarray("{")})
    no("about is no JSON dict")
    np.savez(other, **{n: x for n, x in arrays.items() if n != "about"})
    no("has no `about`", read=files.read)
    with pytest.raises(FileNotFoundError):
        files.read_any(tmp_path / "none.npz")


def test_the_summary_counts():
    assert dataset_parts.summary(toy(closed=False), {}) == pytest.approx(
        {
            "steps": 6,
            "episodes": 3,
            "return_mean": (2 + (1.25 / 3) + (1.5 + 2.5) / 3) / 3,
            "return_min": 1.25 / 3,
            "return_max": 2,
            "length_mean": 2,
            "terminated_share": 1 / 3,
        }
    )
    mean = dataset_parts.summary(toy(), {})["return_mean"]
    assert dataset_parts.summary(toy(), ABOUT)["tq"] == pytest.approx(mean / 4)


def test_only_datasets_of_the_environment_fit():
    env, params = jaxrl.make("Pendulum-v1")
    n, rng = 4, np.random.default_rng(0)
    seen = rng.normal(size=(n + 1, 3)).astype(np.float32)
    action = rng.uniform(-2, 2, (n, 1)).astype(np.float32)
    flags = np.zeros(n, bool)
    dataset = Dataset(seen[:-1], action, np.zeros(n, np.float32), flags, flags, seen[1:])
    about = dataset_parts.about_of(env, params, reference=ABOUT["reference"], recipe="random")
    assert about["env"] == "Pendulum-v1" and about["recipe"] == "random" and "jax" in about["made"]["versions"]
    dataset_parts.check_fits(dataset, json.loads(json.dumps(about)), env, params)
    dataset_parts.check_fits(dataset, {}, env, params)

    def no(dataset, *words, about=about, to=(env, params)):
        refused(lambda: dataset_parts.check_fits(dataset, about, *to), *words)

    no(dataset, "of Pendulum-v1", "obs of float32[3]", "CartPole-v1's is float32[4]", to=jaxrl.make("CartPole-v1"))
    no(dataset.replace(action=np.zeros(n, np.int32)), "action of int32[]", "float32[1]")
    no(dataset.replace(obs=seen[:-1].astype(np.uint8)), "obs of uint8[3]", "float32[3]")
    no(dataset.replace(obs={"state": seen[:-1]}), "obs.state", "are obs")
    no(dataset.replace(action=action + 3), "outside Box", "action")
    narrow = {"spaces": {"action": json.dumps(dataset_parts.space_as_json(Box(-1.0, 1.0, (1,))))}}
    no(dataset, "low is [-1.0]", "[-2.0]", about=narrow)
    no(dataset, "action space is no JSON", about={"spaces": {"action": "Box(2)"}})
    seen = seen[:, [0, 0, 1, 2]]
    discrete = dataset.replace(obs=seen[:-1], next_obs=seen[1:], action=np.array([0, 1, 2, 0], np.int32))
    no(discrete, "1 of 4", "Discrete(2)", "0 to 2", about={}, to=jaxrl.make("CartPole-v1"))


def test_a_rollout_survives_the_disk(tmp_path):
    """Of two environments and three steps, as `from_rollout` makes it: jax arrays, the second one unfinished."""
    t, n = 3, 2
    number = jnp.arange(t * n, dtype=jnp.float32).reshape(t, n)
    done = jnp.array([[False, False], [True, False], [False, False]])
    steps = Steps(number, None, number / 8, done, jnp.zeros_like(done), number + 2, {})
    dataset = from_rollout(steps, number.astype(jnp.int32))
    back, _ = files.read(files.write(tmp_path / "rollout.npz", dataset, {}))
    assert_same(dataset, back)
    assert dataset_parts.summary(back, {})["episodes"] == 3


@pytest.mark.slow
@pytest.mark.light
def test_an_npz_is_not_believed(tmp_path):
    path = tmp_path / "bad.npz"
    files.write(path, toy(), {})

    def with_member(name, header, body):
        with zipfile.ZipFile(path) as old:
            rest = {n: old.read(n) for n in old.namelist() if n != f"{name}.npy"}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
            for n, x in rest.items():
                new.writestr(n, x)
            with new.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array_header_1_0(stream, header)
                for part in body:
                    stream.write(part)

    numbers = {"descr": "<f4", "fortran_order": False}
    with_member("reward", {**numbers, "shape": (16 * 10**9,)}, [b"1234"])  # a header of 64 GB
    refused(lambda: files.read_any(path), "bad.npz", "reward", "declares 64,000,000,000 bytes", "holds 4")
    wide = 3 * 10**8
    with_member("reward", {**numbers, "shape": (wide // 4,)}, [bytes(10**6)] * (wide // 10**6))  # really there
    refused(lambda: files.read_any(path), "reward declares 300,000,000 bytes", "no data compress so far")
    files.write(path, toy(), {}, overwrite=True)
    with_member("more", {**numbers, "shape": (wide // 4,)}, [bytes(10**6)] * (wide // 10**6))
    refused(lambda: files.read_any(path), "has arrays more")  # unread
    ogbench(path)
    with_member("qpos", {**numbers, "shape": (wide // 4,)}, [bytes(10**6)] * (wide // 10**6))
    assert files.read_any(path)[0].size > 1


def test_a_pipe_is_no_dataset(tmp_path):
    os.mkfifo(tmp_path / "a.npz")
    refused(lambda: files.read_any(tmp_path / "a.npz"), "a.npz is a pipe")
