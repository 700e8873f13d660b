"""HDF5 that says more than it holds, or points elsewhere, whoever's format it is."""

import functools

import numpy as np
import pytest

from jaxrl.host.data import d4rl_files, hdf5_files, npz_files, robomimic_files
from jaxrl.host.data import dataset_files as files
from tests.host.data.dataset_builders import assert_same, d4rl, mission_dataset, needs_h5py, refused, robomimic


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


@pytest.mark.slow
@pytest.mark.light
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
def test_texts_of_a_fixed_length_are_counted_as_they_will_be_kept(tmp_path, monkeypatch):
    import h5py

    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("x", data=np.zeros(2**16, "S2"), compression="gzip")
    monkeypatch.setattr(npz_files, "FREE", 2**20)
    with hdf5_files.opened(tmp_path / "a.hdf5") as (file, budget):
        refused(lambda: hdf5_files.array(file["x"], "x", "a.hdf5", budget), "x as texts")
