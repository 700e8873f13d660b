"""OGBench's npz, in all forms that its loader makes of it."""

from pathlib import Path

import numpy as np
import pytest

from jaxrl.host.data import d4rl_files
from jaxrl.host.data import dataset_files as files
from tests.host.data.dataset_builders import assert_same, ogbench, refused


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


@pytest.mark.parametrize("actions", [np.full(7, 2**40 + 3), np.full(7, -(2**40)), np.full(7, 2**32 - 1, np.uint32)])
def test_whole_actions_beyond_32_bits_are_refused(actions, tmp_path):
    refused(lambda: files.read_any(ogbench(tmp_path / "a.npz", actions=actions)), "a.npz: actions", "beyond int32")


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
