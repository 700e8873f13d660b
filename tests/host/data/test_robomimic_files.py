"""robomimic's HDF5."""

import numpy as np

from jaxrl.host.data import dataset_files as files
from tests.host.data.dataset_builders import needs_h5py, refused, robomimic


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


@needs_h5py
def test_a_demonstration_has_one_number(tmp_path):
    import h5py

    path = robomimic(tmp_path / "lift.hdf5")
    with h5py.File(path, "a") as file:
        file.copy("data/demo_0", "data/demo_00")
    refused(lambda: files.read_any(path), "lift.hdf5: data has two demonstrations of one number")
