"""Datasets come back from the disk as they went there, Minari reads ours and we read its, and bad files are refused."""

import functools
import importlib.util
import json
import pickle
import zipfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import jaxrl
from jaxrl.data.datasets import Dataset, from_rollout
from jaxrl.host.data import d4rl_files, dataset_parts, minari_files, npz_files, robomimic_files
from jaxrl.host.data import dataset_files as files
from jaxrl.rollout import Steps
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

needs_minari = pytest.mark.skipif(importlib.util.find_spec("minari") is None, reason="minari is not installed")
needs_h5py = pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is not installed")
ABOUT = {"env": "Toy-v0", "seeds": [0, 1], "reference": {"random": 0.0, "best": 4.0, "exact": True}}
LINE, PUSH = Box(-9.0, 9.0, (2,)), Box(-2.0, 2.0, (1,))


def toy(lengths=(3, 1, 2), terminated=(True, False, False), closed=True):
    """Episodes of these lengths; each number of it tells where it is from. `closed`: the last one's end is marked."""
    parts = []
    for e, (length, term) in enumerate(zip(lengths, terminated, strict=True)):
        seen = np.arange(length + 1, dtype=np.float32)[:, None] * [1, -1] + 0.25 * e
        ends = np.arange(length) == length - 1
        parts.append((seen[:-1], seen[:-1, :1] / 9, seen[1:, 0] / 3, ends & term, ends, seen[1:]))
    columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
    dataset = Dataset(*(c.astype(bool if c.dtype == bool else np.float32) for c in columns))
    return dataset if closed else dataset.replace(last=np.append(dataset.last[:-1], False))


def assert_same(one, other):
    """Names, dtypes and bits."""
    a, b = dataset_parts.named_arrays(one), dataset_parts.named_arrays(other)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        np.testing.assert_array_equal(a[name], b[name], name)


def refused(call, *words):
    """A ValueError, in one line, that names all of these."""
    with pytest.raises(ValueError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text and len(text) < 500, text
    for word in words:
        assert word in text, (word, text)


# ---- npz


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


# ---- what is known of them


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


# ---- Minari


WORDS = {name: "x" for name in ("author", "author_email", "code_permalink", "description", "algorithm_name")}


def collect(name, id, monkeypatch, root):
    """What Minari makes of three random episodes: `(its dataset, its folder)`."""
    import gymnasium
    import minari
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    env, buffers = gymnasium.make(id, max_episode_steps=25), []
    for seed in range(3):
        obs, _ = env.reset(seed=seed)
        env.action_space.seed(seed)
        buffer = EpisodeBuffer(seed=seed, observations=[obs], actions=[], infos={})
        while not buffer.rewards or not (buffer.terminations[-1] or buffer.truncations[-1]):
            buffer.actions.append(env.action_space.sample())
            step = env.step(buffer.actions[-1])
            for column, x in zip(("observations", "rewards", "terminations", "truncations"), step, strict=False):
                getattr(buffer, column).append(x)
        buffers.append(buffer)
    made = minari.create_dataset_from_buffers(name, buffers, env=env, **WORDS)
    env.close()
    return made, root / name


@needs_minari
@pytest.mark.filterwarnings("ignore:`eval_env` is set to None:UserWarning", "ignore:env_spec is None:UserWarning")
@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1"])
def test_what_minari_writes_is_read_step_for_step(id, monkeypatch, tmp_path):
    made, folder = collect("jaxrl/random-v0", id, monkeypatch, tmp_path)
    dataset, about = files.read_any(folder)
    assert dataset.size == made.total_steps and about["env"] == id
    assert about["minari"]["dataset_id"] == "jaxrl/random-v0"
    at = 0
    for episode in made:
        rows = slice(at, at + len(episode))
        np.testing.assert_array_equal(dataset.obs[rows], episode.observations[:-1])
        np.testing.assert_array_equal(dataset.next_obs[rows], episode.observations[1:])
        np.testing.assert_array_equal(dataset.action[rows], episode.actions)
        np.testing.assert_array_equal(dataset.reward[rows], episode.rewards.astype(np.float32))
        np.testing.assert_array_equal(dataset.terminated[rows], episode.terminations)
        assert dataset.last[rows].tolist() == [False] * (len(episode) - 1) + [True]
        at += len(episode)
    ends = dataset.terminated[dataset.last]
    assert not ends.all() and ends.any() == (id == "CartPole-v1")  # one is cut, or falls; the other is always cut
    env, params = jaxrl.make(id)
    dataset_parts.check_fits(dataset, about, env, params)
    for path in (folder / "data", folder / "data" / "main_data.hdf5"):
        assert_same(dataset, files.read_any(path)[0])


@needs_minari
@pytest.mark.filterwarnings("ignore:`eval_env` is set to None:UserWarning", "ignore:env_spec is None:UserWarning")
def test_pictures_that_minari_wrote_as_jpeg_are_read_as_minari_does(monkeypatch, tmp_path):
    import gymnasium
    import minari
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    pixels = gymnasium.spaces.Box(0, 255, (32, 40, 3), np.uint8)
    space = gymnasium.spaces.Dict({"image": pixels, "map": gymnasium.spaces.Box(0, 255, (8, 8), np.uint8)})
    rng = np.random.default_rng(0)
    buffers = [
        EpisodeBuffer(
            observations={
                "image": [np.full((32, 40, 3), rng.integers(256), np.uint8) for _ in range(4)],
                "map": [rng.integers(0, 256, (8, 8), np.uint8) for _ in range(4)],
            },
            actions=[1, 0, 1],
            rewards=[0.0, 1.0, 2.0],
            terminations=[False] * 3,
            truncations=[False, False, True],
            infos={},
        )
    ]
    made = minari.create_dataset_from_buffers(
        "pixels-v0", buffers, observation_space=space, action_space=gymnasium.spaces.Discrete(2),
        **WORDS,
    )  # fmt: skip
    dataset, _ = minari_files.read_minari(tmp_path / "pixels-v0")
    seen = made[0].observations
    for name in ("image", "map"):
        assert dataset.obs[name].dtype == np.uint8
        np.testing.assert_array_equal(dataset.obs[name], seen[name][:-1], name)
        np.testing.assert_array_equal(dataset.next_obs[name], seen[name][1:], name)


def of_parts():
    """A dataset of observations in parts, and its spaces."""
    dataset, rng = toy((4, 3), (False, True)), np.random.default_rng(1)
    picture = rng.integers(0, 256, (9, 32, 32, 3), np.uint8)

    def at(rows):
        return {
            "image": picture[rows],
            "inner": {"n": (rows % 3).astype(np.int32)},
            "pair": (picture[rows, 0, 0], (rows / 4).astype(np.float32)),
        }

    rows = np.array([0, 1, 2, 3, 5, 6, 7])
    obs, after = at(rows), at(rows + 1)
    spaces = {"image": Box(0, 255, (32, 32, 3), jnp.uint8), "inner": Dict({"n": Discrete(3)})}
    pair = Tuple((Box(0, 255, (3,), jnp.uint8), Box(0.0, jnp.inf)))
    action = np.stack([rows % 2, rows % 5], -1).astype(np.int32)
    dataset = dataset.replace(obs=obs, next_obs=after, action=action)
    return dataset, Dict({**spaces, "pair": pair}), MultiDiscrete((2, 5))


@needs_minari
def test_minari_loads_what_is_written(monkeypatch, tmp_path):
    import minari

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    flat = toy(closed=False)
    minari_files.write_minari(tmp_path / "mine" / "toy-v0", flat, ABOUT, LINE, PUSH, dataset_id="mine/toy-v0")
    parts, observation, action = of_parts()
    minari_files.write_minari(tmp_path / "parts-v1", parts, ABOUT, observation, action)

    loaded = minari.load_dataset("mine/toy-v0")
    assert (loaded.total_steps, loaded.total_episodes) == (6, 3)
    assert loaded.observation_space == LINE.to_gymnasium() and loaded.action_space == PUSH.to_gymnasium()
    assert set(minari.list_local_datasets()) == {"mine/toy-v0", "parts-v1"}
    assert minari.get_normalized_score(loaded, np.float64(1.0)) == 0.25
    ends = [(e.terminations[-1], e.truncations[-1], len(e)) for e in loaded]
    assert ends == [(True, False, 3), (False, True, 1), (False, True, 2)]
    np.testing.assert_array_equal(loaded[0].observations, np.concatenate([flat.obs[:3], flat.next_obs[2:3]]))
    np.testing.assert_array_equal(loaded[2].rewards, flat.reward[4:].astype(np.float64))
    assert loaded.filter_episodes(lambda e: bool(e.terminations[-1])).total_steps == 3

    seen = minari.load_dataset("parts-v1")
    assert seen.observation_space == observation.to_gymnasium()
    np.testing.assert_array_equal(seen[1].observations["image"][:-1], parts.obs["image"][4:])
    np.testing.assert_array_equal(seen[1].observations["pair"][1][1:], parts.next_obs["pair"][1][4:])
    assert all(seen.action_space.contains(a) for a in seen[0].actions)

    for name, dataset in (("mine/toy-v0", toy()), ("parts-v1", parts)):
        back, about = files.read_any(tmp_path / name)
        assert_same(dataset, back)
        assert ABOUT.items() <= about.items() and about["spaces"].keys() == {"observation", "action"}
    buffer = minari.data_collector.EpisodeBuffer(
        observations=[np.zeros(2, np.float32)] * 3, actions=[np.zeros(1, np.float32)] * 2, rewards=[0.0, 0.0],
        terminations=[False] * 2, truncations=[False, True], infos={},
    )  # fmt: skip
    loaded.update_dataset_from_buffer([buffer])
    assert files.read_any(tmp_path / "mine" / "toy-v0")[0].size == 8


@needs_h5py
def test_folders_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    folder = tmp_path / "toy-v0"

    def write(dataset, folder=folder, about=ABOUT, **how):
        return minari_files.write_minari(folder, dataset, about, LINE, PUSH, **how)

    write(toy())
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write(toy())
    broken = toy()
    broken.next_obs[1] += 1
    refused(lambda: write(broken, overwrite=True), "step 1", "next_obs is not obs")
    refused(lambda: write(toy().replace(action=toy().action + 9), overwrite=True), "outside Box")
    refused(lambda: write(toy(), folder=tmp_path / "toy"), "'toy'", "-v0")
    refused(lambda: write(toy(), folder=tmp_path / "toy-v1", dataset_id="a/toy-v1"), "a/toy-v1")
    with monkeypatch.context() as patch:
        patch.setattr(minari_files, "_metadata", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write(toy((2, 2, 2)), overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["toy-v0"]
    assert_same(minari_files.read_minari(folder)[0], toy())
    write(toy((2, 2, 2)), overwrite=True)
    assert_same(minari_files.read_minari(folder)[0], toy((2, 2, 2)))
    assert [p.name for p in tmp_path.iterdir()] == ["toy-v0"]
    (folder / "mine.txt").write_text("keep")
    with pytest.raises(FileExistsError, match="no Minari dataset"):
        write(toy(), overwrite=True)
    assert (folder / "mine.txt").exists()


@needs_h5py
def test_bad_hdf5_is_refused(tmp_path):
    import h5py

    folder = tmp_path / "toy-v0"
    minari_files.write_minari(folder, toy(), ABOUT, LINE, PUSH)
    main, about = folder / "data" / "main_data.hdf5", folder / "data" / "metadata.json"
    whole, words = main.read_bytes(), about.read_text()

    def no(change, *words):
        main.write_bytes(whole)
        with h5py.File(main, "a") as file:
            change(file)
        refused(lambda: files.read_any(folder), "main_data.hdf5", *words)

    def put(file, name, value):
        del file[name]
        file[name] = value

    no(lambda f: f.pop("episode_0/terminations"), "episode_0 has no terminations", "rewards")
    no(lambda f: f.pop("episode_1"), "2 episodes", "says 3")
    no(lambda f: put(f, "episode_1/observations", np.zeros((1, 2), np.float32)), "episode_1", "unequal length", "obs 0")
    no(lambda f: put(f, "episode_1/observations", np.zeros((2, 3), np.float32)), "episode_1", "alike")
    no(lambda f: put(f, "episode_0/rewards", [0.0, np.nan, 1.0]), "1 of the 6 numbers of reward are NaN")
    no(lambda f: put(f, "episode_0/rewards", [0.0, 1e300, 1.0]), "rewards has numbers beyond float32")
    no(lambda f: put(f, "episode_0/rewards", 1.0), "rewards must be a number a step")
    no(lambda f: put(f, "episode_0/terminations", [0, 2, 0]), "terminations must be a 0 or 1")
    no(lambda f: put(f, "episode_0/observations", ["a"] * 4), "obs holds no numbers")
    no(lambda f: put(f, "episode_0/actions", np.array([1, 2, 2**40])), "action has numbers beyond int32")
    no(lambda f: f.clear() or f.update({"observations": [1]}), "no groups episode_0", "observations")

    def one_step(file):
        for name in ("episode_0", "episode_2"):
            del file[name]
        file.move("episode_1", "episode_0")

    about.write_text(words.replace('"total_episodes": 3', '"total_episodes": 1'))
    no(one_step, "1 transition")
    about.write_text("{")
    refused(lambda: files.read_any(folder), "metadata.json is no JSON")
    about.write_text(words.replace('"data_format": "hdf5"', '"data_format": "arrow"'))
    refused(lambda: files.read_any(folder), "'arrow'")
    about.write_text(words)
    at = whole.index(toy().obs[:3].tobytes())
    main.write_bytes(whole[:at] + b"\x01" + whole[at + 1 :])
    refused(lambda: files.read_any(folder), "main_data.hdf5", "cut short")
    for size in (len(whole) // 2, 100):
        main.write_bytes(whole[:size])
        refused(lambda: files.read_any(folder), "main_data.hdf5", "cut short")
    refused(lambda: files.read_any(tmp_path), "has no main_data.hdf5")


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ImportError, match=r'pip install "jaxrl\[minari\]"'):
        files.read_any(tmp_path)


def test_states_that_the_task_does_not_have():
    """As of a larger map of the same kind."""
    env, params = jaxrl.make("FrozenLake-v1")
    states = np.array([0, 63], np.int32)
    flags = np.array([False, True])
    dataset = Dataset(states, states % 4, np.zeros(2, np.float32), flags, flags, states)
    refused(
        lambda: dataset_parts.check_fits(dataset, {"env": "FrozenLake8x8-v1"}, env, params),
        "1 of 2 numbers of obs",
        "16",
    )
    assert not dataset_parts.fits(dataset, {}, env, params)


# ---- OGBench


def ogbench(path, **changes):
    """Trajectories of 4 and 3 rows, as published: the last row of each is no transition."""
    rows = {
        "observations": np.arange(14, dtype=np.float32).reshape(7, 2),
        "actions": np.arange(7, dtype=np.float32)[:, None],
        "terminals": np.array([0, 0, 0, 1, 0, 0, 1], bool),
        "qpos": np.full((7, 3), np.nan),
    }
    np.savez_compressed(path, **{k: v for k, v in {**rows, **changes}.items() if v is not None})
    return path


def load_dataset(rows):
    """What `load_dataset` of ogbench/utils.py makes of a file's rows, for its two values of `compact_dataset`."""
    ends = rows["terminals"].astype(np.float32)
    following = np.concatenate([ends[1:], [1.0]])
    compact = {**rows, "valids": 1 - ends, "terminals": np.minimum(ends + following, 1)}
    keep = ends == 0
    after = np.concatenate([[False], keep[:-1]])
    seen, actions = rows["observations"], rows["actions"]
    regular = {"observations": seen[keep], "next_observations": seen[after], "actions": actions[keep]}
    return compact, {**regular, "terminals": following[keep].astype(np.float32)}


def test_ogbench_rows_become_transitions(tmp_path):
    path = ogbench(tmp_path / "maze-navigate-v0.npz")
    dataset, about = files.read_any(path)
    assert about["name"] == "maze-navigate-v0" and dataset.size == 5
    np.testing.assert_array_equal(dataset.action[:, 0], [0, 1, 2, 4, 5])
    np.testing.assert_array_equal(dataset.obs[:, 0], [0, 2, 4, 8, 10])
    np.testing.assert_array_equal(dataset.next_obs, dataset.obs + 2)
    assert dataset.last.tolist() == [False, False, True, False, True]
    assert not dataset.terminated.any() and not dataset.reward.any() and dataset.reward.dtype == np.float32

    with np.load(path) as file:
        rows = {name: file[name] for name in ("observations", "actions", "terminals")}
    for form in load_dataset(rows):
        np.savez(path, **form)
        assert_same(d4rl_files.read_ogbench(path)[0], dataset)


def test_the_end_of_a_task_is_not_that_of_a_trajectory_in_ogbench(tmp_path):
    masks, rewards = np.array([1, 0, 1, 1, 1, 1, 0.0]), np.arange(7) - 7.0
    dataset, about = d4rl_files.read_ogbench(ogbench(tmp_path / "a.npz", masks=masks, rewards=rewards))
    assert dataset.terminated.tolist() == [False, True, False, False, False]
    assert dataset.last.tolist() == [False, False, True, False, True]
    np.testing.assert_array_equal(dataset.reward, [-7, -6, -5, -3, -2])
    assert about["rewards"] == "of the file"


PIXELS = np.random.default_rng(0).integers(0, 255, (7, 4, 4, 3)).astype(np.uint8)


@pytest.mark.parametrize(
    "changes, kinds",
    [
        ({"observations": PIXELS}, (np.uint8, np.float32)),  # of the visual tasks
        ({"observations": PIXELS, "actions": np.arange(7)}, (np.uint8, np.int32)),  # of powderworld
        ({"observations": PIXELS, "actions": np.arange(7, dtype=np.uint8)}, (np.uint8, np.int32)),
        ({"observations": np.arange(14).reshape(7, 2)}, (np.float32, np.float32)),
        ({"observations": np.ones((7, 2), np.float16), "actions": np.ones((7, 1))}, (np.float32, np.float32)),
        *(({"terminals": np.array([0, 0, 0, 1, 0, 0, 1], t)}, (np.float32,) * 2) for t in "?befd"),
        ({"qvel": np.zeros((7, 14)), "button_states": np.zeros((7, 4), int), "x": np.zeros(3)}, (np.float32,) * 2),
    ],
)
def test_ogbench_kinds_are_those_of_its_loader(changes, kinds, tmp_path):
    dataset, _ = files.read_any(ogbench(tmp_path / "a.npz", **changes))
    assert (dataset.obs.dtype, dataset.action.dtype) == kinds and dataset.next_obs.dtype == kinds[0]
    assert dataset.size == 5 and dataset.last.tolist() == [False, False, True, False, True]


def test_rewards_of_ogbenchs_single_tasks_in_all_three_forms(tmp_path):
    """Relabelled data that was saved as it was in memory: with or without `masks`, `valids`, `oracle_reps`."""
    success = np.array([0, 0, 1, 0, 0, 1, 0.0])
    with np.load(ogbench(tmp_path / "a.npz")) as file:
        rows = {name: file[name] for name in ("observations", "actions", "terminals")}
    compact, regular = load_dataset(rows)
    kept = ~rows["terminals"]
    for form, won in ((rows, success), (compact, success), (regular, success[kept])):
        for masks in (True, False):
            given = {
                **form,
                "rewards": won - 1,
                **({"masks": 1 - won} if masks else {"oracle_reps": np.zeros(len(won))}),
            }
            np.savez(tmp_path / "b.npz", **given)
            dataset, about = files.read_any(tmp_path / "b.npz")
            assert about["format"] == "OGBench" and dataset.reward.tolist() == [-1, -1, 0, -1, 0]
            assert dataset.terminated.tolist() == [False, False, masks, False, masks]
            assert dataset.last.tolist() == [False, False, True, False, True]


@pytest.mark.parametrize("terminals", [[0, 0, 1, 1, 0, 0, 1], [1, 0, 0, 1, 0, 0, 1]])
def test_a_trajectory_of_one_row_is_no_transition_in_ogbench(terminals, tmp_path):
    path = ogbench(tmp_path / "a.npz", terminals=np.array(terminals))
    with np.load(path) as file:
        _, regular = load_dataset({name: file[name] for name in ("observations", "actions", "terminals")})
    dataset, _ = files.read_any(path)
    np.testing.assert_array_equal(dataset.obs, regular["observations"])
    np.testing.assert_array_equal(dataset.next_obs, regular["next_observations"])
    assert dataset.last.tolist() == regular["terminals"].astype(bool).tolist()


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"terminals": None}, ["no terminals", "observations"]),
        ({"terminals": np.zeros(7)}, ["last row", "no successor"]),
        ({"terminals": np.full(7, 0.5)}, ["terminals must be a 0 or 1"]),
        ({"actions": np.zeros((6, 1))}, ["unequal length", "actions 6", "observations 7"]),
        ({"observations": np.full((7, 2), np.nan)}, ["10 of the 10 numbers of obs are NaN"]),
        ({"terminals": np.array([0, 1, 1, 1, 1, 1, 1.0])}, ["1 transition"]),
        ({"terminals": np.ones(7)}, ["0 transition"]),
        ({"valids": np.ones(7)}, ["last row", "valids is 1"]),
    ],
)
def test_bad_ogbench_files_are_refused(changes, words, tmp_path):
    path = ogbench(tmp_path / "bad.npz", **changes)
    refused(lambda: files.read_any(path), str(Path(path)), *words)


# ---- D4RL


def d4rl(**changes):
    """Episodes of 3 steps, to the end of the task, of 2, cut by the clock, and of 2 to the end of the file."""
    rows = {
        "observations": np.arange(14, dtype=np.float32).reshape(7, 2),
        "actions": np.arange(7, dtype=np.float32)[:, None],
        "rewards": np.arange(7, dtype=np.float32),
        "terminals": np.array([0, 0, 1, 0, 0, 0, 0], bool),
        "timeouts": np.array([0, 0, 0, 0, 1, 0, 0], bool),
    }
    return {k: v for k, v in {**rows, **changes}.items() if v is not None}


def test_d4rl_rows_become_transitions(tmp_path):
    path = tmp_path / "hopper-medium-v2.npz"
    np.savez(path, **d4rl(), infos=np.zeros(7))
    dataset, about = files.read_any(path)
    assert about == {"format": "D4RL", "name": "hopper-medium-v2"}
    # Rows 4 (cut by the clock) and 6 (the file's last) have no successor; row 2 needs none.
    np.testing.assert_array_equal(dataset.reward, [0, 1, 2, 3, 5])
    assert dataset.terminated.tolist() == [False, False, True, False, False]
    assert dataset.last.tolist() == [False, False, True, True, True]
    np.testing.assert_array_equal(dataset.next_obs[:, 0] - dataset.obs[:, 0], [2, 2, 0, 2, 2])

    whole = d4rl_files.of_d4rl(d4rl(next_observations=np.arange(14, dtype=np.float32).reshape(7, 2) + 2))
    np.testing.assert_array_equal(whole.reward, np.arange(7))
    np.testing.assert_array_equal(whole.next_obs, whole.obs + 2)
    assert whole.last.tolist() == [False, False, True, False, True, False, True]

    alone = d4rl_files.of_d4rl(d4rl(timeouts=np.array([0, 0, 0, 1, 1, 0, 0], bool)))
    np.testing.assert_array_equal(alone.reward, [0, 1, 2, 5])
    assert alone.last.tolist() == [False, False, True, True], "nothing is left of an episode of one row"


def test_d4rl_is_told_from_ogbench(tmp_path):
    """By the clock's ends, or by rewards without masks."""
    for changes, limit in (({}, None), ({"timeouts": None}, 3)):
        np.savez(tmp_path / "a.npz", **d4rl(**changes))
        assert files.read_any(tmp_path / "a.npz", max_episode_steps=limit)[0].terminated.sum() == 1
    np.savez(tmp_path / "a.npz", **d4rl(timeouts=None, terminals=np.arange(7) == 6), masks=np.ones(7))
    assert files.read_any(tmp_path / "a.npz")[1]["format"] == "OGBench"


def by_qlearning_dataset(rows, max_episode_steps):
    """`(reward, terminal)` of the rows that D4RL keeps of a file without `timeouts`, as its loop does."""
    kept, step = [], 0
    for i in range(len(rows["rewards"]) - 1):
        if step == max_episode_steps - 1 and not rows["terminals"][i]:
            step = 0
            continue
        step = 0 if rows["terminals"][i] else step + 1
        kept.append((float(rows["rewards"][i]), bool(rows["terminals"][i])))
    return kept


@pytest.mark.parametrize("limit", [2, 3, 4, 10])
def test_d4rls_first_files_end_where_the_clock_did(limit, tmp_path):
    n, path = 24, tmp_path / "hopper-random-v0.npz"
    rows = {"observations": np.arange(n, dtype=np.float32)[:, None], "rewards": np.arange(n, dtype=np.float32)}
    rows |= {"actions": np.zeros((n, 1), np.float32), "terminals": np.isin(np.arange(n), (2, 9, 10, 17))}
    np.savez(path, **rows)
    dataset, _ = files.read_any(path, max_episode_steps=limit)
    kept = list(zip(np.asarray(dataset.reward).tolist(), np.asarray(dataset.terminated).tolist(), strict=True))
    assert kept == by_qlearning_dataset(rows, limit)
    follows = np.asarray(dataset.next_obs)[:, 0] - np.asarray(dataset.obs)[:, 0]
    assert (follows[~np.asarray(dataset.terminated)] == 1).all()
    within = np.flatnonzero(~np.asarray(dataset.last)[:-1])  # the next row goes on from this one
    np.testing.assert_array_equal(dataset.obs[within + 1], dataset.next_obs[within])


def test_a_file_without_timeouts_says_so_and_one_with_them_takes_no_limit(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, **d4rl(timeouts=None))
    with pytest.warns(UserWarning, match="has no `timeouts`.*--max-episode-steps"):
        files.read_any(path)
    refused(lambda: files.read_any(path, max_episode_steps=0), "max_episode_steps=0", "at least 1")
    refused(lambda: d4rl_files.of_d4rl(d4rl(), max_episode_steps=5), "max_episode_steps=5", "has `timeouts`")
    files.write(path, toy(), {"format": "D4RL"}, overwrite=True)
    refused(lambda: files.read_any(path, max_episode_steps=5), "max_episode_steps=5", "says where episodes end")


@needs_h5py
def test_d4rl_in_chunks_is_one_dataset(tmp_path):
    import h5py

    path, rows = tmp_path / "chunked.hdf5", d4rl()
    parts = {10: slice(4, 7), 2: slice(0, 4)}
    with h5py.File(path, "w") as file:
        for i, part in parts.items():
            for name, x in rows.items():
                file[f"virtual/{i}/{name}"] = x[part]
    assert_same(files.read_any(path)[0], d4rl_files.of_d4rl(rows))
    with h5py.File(path, "a") as file:
        del file["virtual/10/rewards"]
    refused(lambda: files.read_any(path), "virtual/10 has other arrays than virtual/2")
    with h5py.File(path, "w") as file:
        file["virtual"] = np.zeros(3)
    refused(lambda: files.read_any(path), "virtual is an array; it must be a group")


def test_d4rl_from_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "hopper.hdf5"
    with h5py.File(path, "w") as file:
        for name, x in d4rl().items():
            file[name] = x
        file["metadata/algorithm"] = "SAC"
    assert_same(files.read_any(path)[0], d4rl_files.of_d4rl(d4rl()))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(lambda: files.read_any(path), "hopper.hdf5")


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"rewards": None}, ["no rewards"]),
        ({"actions": np.zeros((6, 1))}, ["unequal length", "actions 6"]),
        ({"timeouts": np.full(7, 0.5)}, ["timeouts must be a 0 or 1"]),
        ({"observations": np.full((7, 2), np.nan)}, ["are NaN"]),
    ],
)
def test_bad_d4rl_arrays_are_refused(changes, words):
    refused(lambda: d4rl_files.of_d4rl(d4rl(**changes)), *words)


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


# ---- files that say more than they hold, or point elsewhere


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


@needs_h5py
def test_hdf5_is_read_from_its_own_file_alone(tmp_path):
    import h5py

    secret, path = tmp_path / "secret.hdf5", tmp_path / "hopper.hdf5"
    with h5py.File(secret, "w") as file:
        file["x"] = d4rl()["observations"]
    (tmp_path / "raw").write_bytes(d4rl()["observations"].tobytes())

    def no(change, *words):
        with h5py.File(path, "w") as file:
            file.update({name: x for name, x in d4rl().items() if name != "observations"})
            change(file)
        refused(lambda: files.read_any(path), "hopper.hdf5", "observations", *words)

    shape, dtype = d4rl()["observations"].shape, d4rl()["observations"].dtype

    def external_storage(file):
        file.create_dataset("observations", shape, dtype, external=[(str(tmp_path / "raw"), 0, h5py.h5f.UNLIMITED)])

    def virtual(file):
        layout = h5py.VirtualLayout(shape, dtype)
        layout[...] = h5py.VirtualSource(secret, "x", shape)
        file.create_virtual_dataset("observations", layout)

    no(lambda f: f.update({"observations": h5py.ExternalLink(str(secret), "x")}), "a link to x of", "secret.hdf5")
    no(external_storage, "keeps its numbers in", "raw")
    no(virtual, "keeps its numbers in", "secret.hdf5")

    def through(file):
        file["far"] = h5py.ExternalLink(str(secret), "/")
        file["observations"] = h5py.SoftLink("/far/x")

    with h5py.File(path, "w") as file:
        file.update({name: x for name, x in d4rl().items() if name != "observations"})
        through(file)
    refused(lambda: files.read_any(path), "far is a link to /")
    with h5py.File(path, "w") as file:  # a link within the file is no harm
        file.update({name: x for name, x in d4rl().items() if name != "observations"})
        file["here"] = d4rl()["observations"]
        file["observations"] = h5py.SoftLink("/here")
    assert_same(files.read_any(path)[0], d4rl_files.of_d4rl(d4rl()))

    def endless(file):
        file["observations"] = h5py.SoftLink("/observations")

    no(endless, "a link to a link")
    no(
        lambda f: f.create_dataset("observations", (10**9, 16), "f4", chunks=(1000, 16)),
        "64,000,000,000 bytes",
        "no data",
    )


@needs_h5py
def test_hdf5_that_is_put_together_within_a_file_is_read_and_no_way_leads_out(tmp_path):
    import h5py

    path, rows = tmp_path / "hopper.hdf5", d4rl()
    obs = rows["observations"]
    (tmp_path / "raw").write_bytes(obs.tobytes())

    def written(put_part, source="part"):
        with h5py.File(path, "w") as file:
            for name, x in rows.items():
                if name != "observations":
                    file[name] = x
            put_part(file)
            layout = h5py.VirtualLayout(obs.shape, obs.dtype)
            layout[...] = h5py.VirtualSource(".", source, obs.shape)
            file.create_virtual_dataset("observations", layout)
        return files.read_any(path)[0]

    def keep(name, what):
        return lambda file: file.__setitem__(name, what)

    assert_same(written(keep("part", obs)), d4rl_files.of_d4rl(rows))
    raw = [(str(tmp_path / "raw"), 0, h5py.h5f.UNLIMITED)]
    stored = functools.partial(h5py.File.create_dataset, name="part", shape=obs.shape, dtype=obs.dtype, external=raw)
    refused(lambda: written(stored), "part keeps its numbers in", "raw")
    link = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "x")
    refused(lambda: written(keep("part", link)), "part is a link to x of")
    refused(lambda: written(keep("a", link), "a/b"), "a is a link to x of")


@needs_h5py
def test_entries_of_any_length_are_counted_as_they_are_read(tmp_path, monkeypatch):
    import h5py

    folder = mission_dataset(tmp_path / "a-v0", "Elsewhere-v0", ["go"])
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        group = file["episode_0/observations"]
        del group["mission"]
        group.create_dataset("mission", data=["x" * 1000] * 4, dtype=h5py.string_dtype())
    monkeypatch.setattr(npz_files, "FREE", 3000)
    monkeypatch.setattr(npz_files, "FOLD", 0)
    refused(lambda: files.read_any(folder), "obs.mission declares", "no data compress so far")


@needs_h5py
def test_what_is_no_group_or_no_array_is_named(tmp_path):
    import h5py

    path = robomimic(tmp_path / "lift.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_2"]
        file["data/demo_2"] = np.zeros(3)
    refused(lambda: files.read_any(path), "demo_2 is an array; it must be a group")
    robomimic(path, rewards=np.zeros((4, 1)), dones=np.array([[0], [0], [0], [1]]))
    assert files.read_any(path)[0].terminated.sum() == 2  # columns of one number
    with h5py.File(path, "a") as file:
        del file["data/demo_0/actions"]
        file["data/demo_0/actions"] = np.dtype("f4")
    refused(lambda: files.read_any(path), "action is a type; it must be an array")
    with h5py.File(path, "w") as file:
        file["other"] = np.zeros(2)
    refused(lambda: robomimic_files.read_robomimic(path), "data is missing; it must be a group")


@needs_h5py
def test_a_training_leaves_entries_out_of_data_and_task(tmp_path):
    """Also one whose missions the task has many of: then its observations have none, either."""
    from jaxrl.host import cli
    from jaxrl.host.run.recipe import build, read_recipe

    source = mission_dataset(tmp_path / "a-v0", "Elsewhere-v0", ["go to a"])
    words = f"train bc MiniGrid-Fetch-5x5-N2-v0 --dataset {source} --total-steps 2 --eval-every 0 --no-progress"
    small = "--config.hidden 4 --config.batch-size 2"
    run = tmp_path / "run"
    assert cli.main(f"{words} {small} --drop obs.mission --out {run}".split()) == 0
    recipe = read_recipe(run)
    assert recipe["dataset"]["drop"] == ["obs.mission"]
    built = build(recipe)
    assert list(built.task.observation_space(built.params).spaces) == ["image", "direction"]
    assert cli.main(f"resume {run} --total-steps 4 --no-progress".split()) == 0
    assert cli.main(f"eval {run} --episodes 1 --max-steps 2".split()) == 0
    assert cli.main(f"{words} {small} --drop obs.moon --out {tmp_path / 'none'}".split()) == 1
    assert cli.main("train bc CartPole-v1 --drop obs.mission".split()) == 2


@needs_h5py
def test_minaris_counts_are_not_believed(tmp_path):
    folder = tmp_path / "toy-v0"
    minari_files.write_minari(folder, toy(), ABOUT, LINE, PUSH)
    about = folder / "data" / "metadata.json"
    words = about.read_text()
    for said in (10**8, -1, "many", 2.5):
        about.write_text(words.replace('"total_episodes": 3', f'"total_episodes": {json.dumps(said)}'))
        refused(lambda: files.read_any(folder), "3 episodes", "says")
    about.write_text("[" * 100_000)
    refused(lambda: files.read_any(folder), "metadata.json is no JSON")


# ---- missions, and entries that are left out


def mission_dataset(folder, id, texts, image=True):
    """As Minari keeps what `minigrid` of this id gives: a text a step."""
    import h5py

    (folder / "data").mkdir(parents=True)
    with h5py.File(folder / "data" / "main_data.hdf5", "w") as file:
        for i, text in enumerate(texts):
            group = file.create_group(f"episode_{i}")
            group["observations/image"] = np.zeros((4, 7, 7, 3), np.uint8)
            group["observations/direction"] = np.arange(4)
            if text is not None:
                group["observations"].create_dataset("mission", data=[text] * 4, dtype=h5py.string_dtype())
            group["actions"], group["rewards"] = np.arange(3), np.zeros(3)
            group["terminations"], group["truncations"] = [False, False, True], [False] * 3
    metadata = {"total_episodes": len(texts), "env_spec": json.dumps({"id": id})}
    (folder / "data" / "metadata.json").write_text(json.dumps(metadata))
    return folder


@needs_h5py
@pytest.mark.parametrize(
    ("id", "texts", "missions"),
    [
        ("MiniGrid-DoorKey-5x5-v0", ["use the key to open the door and then get to the goal"] * 2, [[0], [0]]),
        ("MiniGrid-DoorKey-5x5-v0", [None, None], [[0], [0]]),  # one mission alone: nothing is lost without it
        ("MiniGrid-Fetch-5x5-N2-v0", ["get a red ball", "fetch a grey key"], None),
        ("BabyAI-GoToLocal-v0", ["go to the red ball", "go to a blue box"], None),
    ],
)
def test_missions_become_numbers(id, texts, missions, tmp_path):
    env, params = jaxrl.make(id)
    if id.startswith("MiniGrid-Fetch"):
        texts = [env.mission_text(m) for m in ((0, 0, 6), (3, 5, 5))]
    dataset, about = files.read_any(mission_dataset(tmp_path / "a-v0", id, texts))
    dataset_parts.check_fits(dataset, about, env, params)
    mission = np.asarray(dataset.obs["mission"])
    assert mission.dtype == np.int32 and mission.shape == (6, len(env.missions))
    if missions is not None:
        np.testing.assert_array_equal(mission[::3], missions)
    elif texts[0] is not None:
        assert [env.mission_text(m) for m in mission[::3]] == texts
    np.testing.assert_array_equal(dataset.next_obs["mission"], mission)
    other = {k: v for k, v in about.items() if k != "env"}
    dataset_parts.check_fits(dataset, other, env, params)


@needs_h5py
def test_texts_that_are_no_missions_are_named_and_can_be_left_out(tmp_path, capsys):
    from jaxrl.host.cli.dataset import dataset_command

    env, params = jaxrl.make("MiniGrid-DoorKey-5x5-v0")
    odd = mission_dataset(tmp_path / "a-v0", env.id, ["fly to the moon"])
    refused(lambda: files.read_any(odd), "main_data.hdf5", "no mission 'fly to the moon'")
    unknown = mission_dataset(tmp_path / "b-v0", "Elsewhere-v0", ["go to a"])
    refused(
        lambda: files.read_any(unknown), "obs.mission holds no numbers but texts, as 'go to a'", "drop=('obs.mission',)"
    )
    for folder in (odd, unknown):
        dataset, about = files.read_any(folder, drop=("obs.mission",))
        dataset_parts.check_fits(dataset, about, env, params)  # whose mission is constant
    refused(lambda: files.read_any(unknown, ("obs.none",)), "no obs.none", "obs.mission", "obs.image")
    fetch, fetch_params = jaxrl.make("MiniGrid-Fetch-5x5-N2-v0")
    dataset, about = files.read_any(unknown, drop=("obs.mission",))
    refused(lambda: dataset_parts.check_fits(dataset, about, fetch, fetch_params), "obs.mission")
    out = tmp_path / "b.npz"
    assert dataset_command(["convert", str(unknown), "--drop", "obs.mission", "--out", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    back, about = files.read_any(out)
    assert_same(back, dataset)
    assert about["dropped"] == ["obs.mission"]
    assert list(files.read_any(out, ("obs.direction",))[0].next_obs) == ["image"]


# ---- robomimic


def robomimic(path, **changes):
    import h5py

    parts = {
        "obs/pos": np.arange(8.0).reshape(4, 2),
        "obs/grip": np.arange(4.0)[:, None],
        "actions": np.arange(4.0)[:, None] / 4,
        "rewards": np.array([0.0, 0, 0, 1]),
        "dones": np.array([0, 0, 0, 1]),
        "states": np.zeros((4, 9)),
        **changes,
    }
    with h5py.File(path, "w") as file:
        file.create_group("mask")["train"] = [b"demo_0"]
        for i in (0, 2):  # demonstrations may be left out
            for name, x in parts.items():
                if x is not None:
                    file[f"data/demo_{i}/{name}"] = x
        file["data"].attrs["env_args"] = json.dumps({"env_name": "Lift"})
    return path


@needs_h5py
def test_robomimic_with_and_without_next_obs(tmp_path):
    path = tmp_path / "lift.hdf5"
    dataset, about = files.read_any(robomimic(path))
    assert about == {"format": "robomimic", "name": "lift", "task": "Lift"}
    assert dataset.size == 8 and dataset.terminated.sum() == dataset.last.sum() == 2
    np.testing.assert_array_equal(dataset.next_obs["pos"][:3], dataset.obs["pos"][1:4])
    dataset, _ = files.read_any(robomimic(path, dones=None, rewards=None))
    assert dataset.size == 6 and not dataset.terminated.any()  # of each the last row has no successor
    np.testing.assert_array_equal(np.flatnonzero(dataset.last), [2, 5])
    after = {"next_obs/pos": np.ones((4, 2)), "next_obs/grip": np.ones((4, 1))}
    dataset, _ = files.read_any(robomimic(path, **after, dones=None), drop=("obs.grip",))
    assert dataset.size == 8 and list(dataset.obs) == ["pos"] and (dataset.next_obs["pos"] == 1).all()
    refused(lambda: files.read_any(robomimic(path, actions=None)), "lift.hdf5: demo_0 has no actions", "obs")
    refused(lambda: files.read_any(robomimic(path, rewards=np.zeros(3))), "unequal length", "rewards 3")


def test_d4rl_columns_are_squeezed_as_its_loader_does():
    plain = d4rl_files.of_d4rl(d4rl())
    columns = {name: x[:, None] for name, x in d4rl().items() if name in ("rewards", "terminals", "timeouts")}
    assert_same(d4rl_files.of_d4rl(d4rl(**columns)), plain)
