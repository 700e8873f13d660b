"""How many runs fit: the arithmetic, and what the compiler says of real programs."""

import jax
import pytest

import jaxrl
from jaxrl.algos import ppo
from jaxrl.host import cli
from jaxrl.host.run import ram
from jaxrl.host.run.ram import SHARE, bytes_in, footprint, runs_at_once
from jaxrl.host.run.training_program import Program


def test_bytes_in_words():
    assert [bytes_in(words) for words in ("8GB", "1.5 gib", "512M", "100")] == [8 * 10**9, 3 * 2**29, 512 * 10**6, 100]
    for words in ("", "8 bytes", "GB", "-1GB", "0"):
        with pytest.raises(ValueError, match="memory=.*: it is written as 8GB"):
            bytes_in(words)


def linear(count):
    return 1000 + 100 * count


def test_programs_fill_the_memory_and_are_about_equal(monkeypatch, capsys):
    monkeypatch.setattr(ram, "free_memory", lambda: int((1000 + 100 * 40) / SHARE) + 1)
    assert runs_at_once(100, 120, linear) == 34  # three programs, where 40 would fit
    assert "100 runs in 3 programs of 34" in capsys.readouterr().err
    assert runs_at_once(100, 120, linear, parts=8) == 40  # multiples of 8: 40, 40, 20 would be of 3 programs
    assert runs_at_once(30, 120, linear) == 30
    assert runs_at_once(5, 30, lambda count: pytest.fail("it fits in any case"), parts=5) == 5
    monkeypatch.setattr(ram, "free_memory", lambda: 1050)
    with pytest.raises(ValueError, match="One run needs about .* GiB"):
        runs_at_once(100, 120, linear)
    with pytest.raises(ValueError, match="4 runs, one a device, need about"):
        runs_at_once(100, 120, linear, parts=4)


def test_stated_memory_is_the_whole_process(monkeypatch):
    monkeypatch.setattr(ram, "resident", lambda: 3000)
    assert ram.left_of(10_000) == 7000


@pytest.mark.slow
@pytest.mark.light
def test_memory_grows_linearly_with_the_runs():
    config = ppo.Config(num_envs=4, num_steps=32, num_epochs=1, num_minibatches=2, hidden=(16,))
    algo = ppo.make(jaxrl.make("CartPole-v1")[0], config)
    program = Program(algo, jax.random.key(0), 5, None, None)
    metrics = jax.eval_shape(algo.update, jax.eval_shape(algo.init, jax.random.key(0)))[1]
    assert ram.logged(program, 2500) == 2 * 8 * 1250 * len(metrics) * 5
    assert ram.logged(program, 7) == 2 * 8 * 7 * len(metrics) * 5
    low, high, far = (footprint(Program(algo, jax.random.key(0), n, None, None)) for n in (16, 32, 128))
    predicted = low + (high - low) / 16 * (128 - 16)
    assert high > low and abs(predicted - far) < 0.15 * far


def test_train_refuses_more_seeds_than_fit(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(ram, "footprint", lambda program: 10**6 * program.num_seeds)
    monkeypatch.setattr(ram, "resident", lambda: 0)
    words = f"train reinforce CartPole-v1 --seeds 100 --memory 50MB --out {tmp_path / 'run'}"
    assert cli.main(words.split()) == 1
    said = capsys.readouterr().err
    # 0.8 of 50 MB hold 40 of 1 MB, and three programs of about equal size are 34, 34 and 32
    assert "--seeds 100 do not fit into 50MB, 34 do: `jaxrl sweep` with the same words" in said
    assert not (tmp_path / "run").exists()
