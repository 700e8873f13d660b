"""Minari reads ours and we read its, texts of missions become numbers, and bad folders are refused."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.data.datasets import Dataset
from jaxrl.host.data import dataset_files as files
from jaxrl.host.data import dataset_parts, minari_files
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from tests.host.data.dataset_builders import (
    ABOUT,
    LINE,
    PUSH,
    assert_same,
    mission_dataset,
    needs_h5py,
    needs_minari,
    refused,
    toy,
)

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
    with pytest.raises(ImportError, match=r"pip install .*\[minari\]"):
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
def test_missions_of_a_fixed_length_are_texts(tmp_path):
    import h5py

    texts = ["go to the red ball", "go to a blue box"]
    folder = mission_dataset(tmp_path / "a-v0", "BabyAI-GoToLocal-v0", texts)
    wanted, _ = files.read_any(folder)
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        for i, text in enumerate(texts):
            del file[f"episode_{i}/observations/mission"]
            file[f"episode_{i}/observations"].create_dataset("mission", data=np.array([text.encode()] * 4, "S18"))
    assert_same(files.read_any(folder)[0], wanted)


@needs_h5py
def test_a_space_that_is_no_object(tmp_path):
    folder = mission_dataset(tmp_path / "a-v0", "MiniGrid-DoorKey-5x5-v0", [None])
    about, space = folder / "data" / "metadata.json", json.dumps({"type": "Dict", "subspaces": {"image": "str"}})
    about.write_text(json.dumps({**json.loads(about.read_text()), "observation_space": space}))
    refused(lambda: files.read_any(folder), str(folder), "the space of obs.image", "which is no object")


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
