"""D4RL's HDF5, whole and in chunks, and npz of its names."""

import numpy as np
import pytest

from jaxrl.host.data import d4rl_files
from jaxrl.host.data import dataset_files as files
from tests.host.data.dataset_builders import assert_same, d4rl, needs_h5py, refused, toy


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


@pytest.mark.parametrize("name", ["observations", "actions", "rewards"])
def test_numbers_of_the_other_byte_order_are_the_same_numbers(name, tmp_path):
    other = {name: x.astype(x.dtype.newbyteorder(">")) for name, x in d4rl().items() if x.dtype == np.float32}
    np.savez(tmp_path / "a.npz", **d4rl(**{name: other[name]}))
    dataset, _ = files.read_any(tmp_path / "a.npz")
    assert_same(dataset, d4rl_files.of_d4rl(d4rl()))
    assert all(x.dtype.isnative for x in (dataset.obs, dataset.action, dataset.reward, dataset.next_obs))


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


def test_d4rl_columns_are_squeezed_as_its_loader_does():
    plain = d4rl_files.of_d4rl(d4rl())
    columns = {name: x[:, None] for name, x in d4rl().items() if name in ("rewards", "terminals", "timeouts")}
    assert_same(d4rl_files.of_d4rl(d4rl(**columns)), plain)
