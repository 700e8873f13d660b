"""A run of quality diversity: its archive as a picture, any of its cells judged, and the same run after a resume."""

import contextlib
import io
import re
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxrl
from jaxrl.algos import ppo
from jaxrl.host import cli
from jaxrl.host.run import archives
from jaxrl.host.run.run_folder import RunFolder
from jaxrl.quality_diversity import behaviour

MAZE = "KheperaxMaze-v0 --no-tuned --config.population-size 6 --config.num-steps 9 --config.hidden 4"
GENERATION = 6 * 9


def run_command(command):
    """`(exit status, stdout, stderr)`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(command.split())
    return status, out.getvalue(), err.getvalue()


def good(command):
    status, out, err = run_command(command)
    assert status == 0, err
    return out


def bad(command):
    """What a command that fails says, in one line."""
    status, _, err = run_command(command)
    assert status == 1 and err.startswith("jaxrl: ") and err.count("\n") == 1, err
    return err


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Four generations of two seeds; the place of a robot is on a grid of 60 x 60, which it cannot fill."""
    folder = tmp_path_factory.mktemp("runs") / "maze"
    words = f"--total-steps {4 * GENERATION} --seeds 2 --config.cells 60 --eval-episodes 1 --no-progress"
    good(f"train map_elites {MAZE} {words} --checkpoint-every {2 * GENERATION} --video-every 2 --out {folder}")
    return folder


def archive(run, seed=0):
    return jaxrl.load(run, seed=seed).state.archive


def test_an_archive_is_plotted(run, tmp_path):
    assert good(f"plot {run} --archive").strip() == str(run / "media" / "archive.png")
    assert good(f"plot {run} --archive --at 2 --seed 1 --out {tmp_path / 'x.png'}").strip() == str(tmp_path / "x.png")
    pictures = [np.asarray(Image.open(path).convert("RGB")) for path in (run / "media/archive.png", tmp_path / "x.png")]
    assert (pictures[0] != pictures[1]).any() and np.ptp(pictures[1]) > 200
    assert "--seed 2: the run has seeds 0 to 1" in bad(f"plot {run} --archive --seed 2")
    assert "--archive --out takes one run folder" in run_command(f"plot {run} {run} --archive --out x.png")[2]
    assert "one picture of them at a time" in run_command(f"plot {run} --archive --episode")[2]
    assert "zoo:ppo/CartPole-v1: ppo keeps no archive" in bad("plot zoo:ppo/CartPole-v1 --archive")


def test_training_leaves_pictures_of_the_archive(run, tmp_path):
    """Along the way and at the end, of the first seed, as `jaxrl plot` draws them."""
    good(f"plot {run} --archive --at 2 --out {tmp_path / 'x.png'}")
    pixels = [np.asarray(Image.open(p)) for p in (run / "media/archive-2.png", tmp_path / "x.png")]
    np.testing.assert_array_equal(*pixels)
    names = {file.name for file in (run / "media").iterdir()}
    assert {"archive.png", "archive-2.png", "archive-4.png", "policy-2.gif", "policy-4.gif"} <= names
    one = jaxrl.load(run, seed=0)
    archives.drawn(one.algo, one.state, None, tmp_path / "y.png")
    pixels = [np.asarray(Image.open(p)) for p in (run / "media/archive-4.png", tmp_path / "y.png")]
    np.testing.assert_array_equal(*pixels)
    removed = Path(shutil.copytree(run, tmp_path / "copy"))
    others = {"archive-mine.png", "archive-2-mine.png", "policy-2-best.gif"}
    for name in others:
        (removed / "media" / name).touch()
    RunFolder(removed).clear()
    assert {file.name for file in (removed / "media").iterdir()} == others


def test_any_cell_is_evaluated(run):
    """The maze is deterministic: a cell's policy earns again what it was found with."""
    for seed in (0, 1):
        cells = archive(run, seed)
        for cell in np.flatnonzero(cells.filled)[[0, -1]]:
            place = " ".join(f"{x:.9g}" for x in cells.descriptor[cell])
            out = good(f"eval {run} --cell {place} --seed {seed} --episodes 1 --max-steps 9")
            assert f"seed {seed}: cell {cell}, found at x {cells.descriptor[cell][0]:.4g}, y" in out
            (found,) = re.findall(rf"seed {seed}: return (\S+), length 9.0", out)
            np.testing.assert_allclose(float(found), cells.fitness[cell], atol=0.006)


def test_cells_without_a_policy(run):
    assert re.search(
        r"seed 0: --cell 0.9 0.9: that cell is empty; the nearest genome is at 0\.\d+ 0\.\d+\.",
        bad(f"eval {run} --cell 0.9 0.9"),
    )
    assert "--cell 0.5 7: the archive is of y from 0 to 1" in bad(f"eval {run} --cell 0.5 7")
    assert "--cell 0.5: a number for each of the archive's descriptors, x and y" in bad(f"eval {run} --cell 0.5")
    assert "nothing to choose among" in bad("eval zoo:ppo/CartPole-v1 --cell 1 2")
    algo = ppo.make(jaxrl.make("CartPole-v1")[0])
    with pytest.raises(ValueError, match="runs/x: ppo keeps no archive"):
        archives.archive_in(algo, algo.init(jax.random.key(0)), Path("runs/x"))
    assert archives.drawn(algo, algo.init(jax.random.key(0)), None, Path("runs/x.png")) is None
    found = archives.archive_of(run)
    with pytest.raises(ValueError, match="--cell 0 0: the archive is empty"):
        empty = found.archive.replace(fitness=jnp.full_like(found.archive.fitness, -jnp.inf))
        archives.cell_at(found._replace(archive=empty), (0.0, 0.0))


def test_an_archive_of_the_zoo(tmp_path, monkeypatch):
    """Every cell's policy is in the file, and a cell is judged and drawn as a run's is."""
    monkeypatch.chdir(tmp_path)
    name = "map_elites/HardMaze-v0"
    trained = jaxrl.zoo.load(name)
    cells = np.flatnonzero(trained.archive.filled)
    assert len(cells) > 100 and np.abs(trained.archive.genome[cells]).min(-1).max() > 0

    def where(cell):
        """The end of an episode of the cell's policy."""
        obs, state = trained.env.reset(jax.random.key(0), trained.params)
        policy = behaviour.policy_of(trained.kept, cell)

        def step(now, key):
            action, _ = trained.algo.act(policy, key, now[0], (), greedy=True)
            ts = trained.env.step(key, now[1], action, trained.params)
            return (ts.obs, ts.state), None

        (obs, state), _ = jax.lax.scan(step, (obs, state), jax.random.split(jax.random.key(1), 250))
        found = behaviour.measured(trained.env, state, trained.params, obs)
        return jnp.stack([found["x"].value, found["y"].value])

    ends = jax.jit(lambda cells: jax.lax.map(where, cells, batch_size=50))(jnp.asarray(cells))
    off = np.abs(ends - trained.archive.descriptor[cells]).max(-1)
    assert np.mean(off < 1 / 30) > 0.9  # a cell's width; rounding, which walls multiply, is another on other processors
    best = int(np.argmax(trained.archive.fitness))
    jax.tree.map(np.testing.assert_array_equal, behaviour.policy_of(trained.kept, best), trained.policy)
    place = " ".join(f"{x:.9g}" for x in trained.archive.descriptor[best])
    out = good(f"eval zoo:{name} --cell {place} --episodes 1")
    (found,) = re.findall(r"seed 0: return (\S+),", out)
    np.testing.assert_allclose(float(found), trained.archive.fitness[best], atol=0.006)
    assert good(f"plot zoo:{name} --archive").strip() == "map_elites-HardMaze-v0.png"
    assert np.ptp(np.asarray(Image.open("map_elites-HardMaze-v0.png").convert("RGB"))) > 200
    assert "--at 3: of an archive of the zoo there is one alone" in bad(f"plot zoo:{name} --archive --at 3")
    assert "--seed 1: the run has seeds 0 to 0" in bad(f"plot zoo:{name} --archive --seed 1")


def test_a_run_goes_on_with_its_archive(run, tmp_path):
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    shutil.rmtree(sorted((copy / "checkpoints").iterdir())[-1])
    assert jaxrl.load(copy).updates == 2
    good(f"resume {copy} --no-progress")
    assert jaxrl.load(copy).updates == 4
    for seed in (0, 1):
        jax.tree.map(np.testing.assert_array_equal, archive(copy, seed), archive(run, seed))
