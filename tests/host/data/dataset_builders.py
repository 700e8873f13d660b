"""Small datasets in every format, and what is asked of readers: for the tests of each format."""

import importlib.util
import json

import numpy as np
import pytest

from jaxrl.data.datasets import Dataset
from jaxrl.host.data import dataset_parts
from jaxrl.spaces import Box

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
