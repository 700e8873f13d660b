"""`--expert`: a run beside an expert keeps what it needs of them, and words that say nobody are errors of one line."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import actors, registry
from jaxrl.algos import dagger, ppo
from jaxrl.host.cli import main
from jaxrl.host.run.load import load
from jaxrl.host.run.run_folder import RunFolderError

SIZES = [f"--config.{word}" for word in ("num-envs=2", "num-steps=5", "batch-size=8", "hidden=8", "buffer-size=64")]
SHORT = [*SIZES, "--eval-episodes=2", "--eval-max-steps=20", "--no-progress", "--hyper.learning-starts=20"]
OWN = """
def act(obs):
    return (obs[2] > 0).astype("int32")
"""


def trained(folder, *words, total_steps=60):
    out = folder / "run"
    assert main(["train", *words, *SHORT, f"--total-steps={total_steps}", f"--out={out}"]) == 0
    return out


@pytest.mark.slow
@pytest.mark.light
def test_a_run_needs_its_expert_no_more(tmp_path, capsys):
    """The expert is a run of its own, whose folder is then gone; what goes on is what was asked for at once."""
    env, params = jaxrl.make("CartPole-v1")
    teacher = ppo.make(env, ppo.Config(num_envs=2, num_steps=8, num_minibatches=2, hidden=(8,)))
    jaxrl.fit(teacher, jax.random.key(0), 64, env_params=params, out=tmp_path / "teacher", progress=False)
    words = "dagger", "CartPole-v1", f"--expert={tmp_path / 'teacher'}"
    (tmp_path / "whole").mkdir()
    whole = trained(tmp_path / "whole", *words, total_steps=100)
    half = trained(tmp_path, *words)
    shutil.rmtree(tmp_path / "teacher")
    assert main(["resume", str(half), "--total-steps=100", "--no-progress"]) == 0
    assert main(["eval", str(half), "--episodes=2", "--max-steps=20"]) == 0
    states = [load(folder, seed=0).state for folder in (whole, half)]
    assert int(states[0].step) == int(states[1].step) == 100
    jax.tree.map(np.testing.assert_array_equal, states[0].weights, states[1].weights)


def test_an_expert_of_ones_own_is_run_when_told(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    out = trained(tmp_path, "dagger", "CartPole-v1", "--expert=mine.py:act")
    stored = load(out, seed=0).state.replay.items
    np.testing.assert_array_equal(stored.action[:60], stored.obs[:60, 2] > 0)
    monkeypatch.setattr(registry, "own_modules", dict)  # as another program has not imported it
    with pytest.raises(RunFolderError, match="names Python that is not jaxrl's and would be run: .*mine"):
        load(out, seed=0)


@pytest.mark.slow
@pytest.mark.light
def test_python_keeps_who_the_expert_is(tmp_path):
    """A controller with a memory, which `fit` writes as the call that made it."""
    env, params = jaxrl.make("Quadcopter-Hover-v0")
    sizes = dict(num_envs=2, num_steps=2, num_updates=1, batch_size=4, buffer_size=32, hidden=(4,))
    algo = dagger.make(env, dagger.Config(**sizes), expert=actors.scripted(env))
    result = jaxrl.fit(algo, jax.random.key(0), 12, env_params=params, out=tmp_path / "run", progress=False)
    again = load(tmp_path / "run", seed=None)
    jax.tree.map(np.testing.assert_array_equal, again.state.watch, result.state.watch)
    assert jnp.all(jnp.abs(again.state.watch.expert_action) <= 1)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("ppo CartPole-v1 --expert scripted", "nobody acts beside ppo; it is for dagger, hg_dagger, rlif."),
        ("dagger CartPole-v1", "dagger needs an expert: --expert zoo:NAME, RUN, scripted or FILE.py:FUNCTION;"),
        ("dagger CartPole-v1 --expert scripted", "CartPole-v1 has no scripted controller; these have: "),
        ("rlif CartPole-v1 --expert ppo/CartPole-v", "did you mean zoo:ppo/CartPole-v1?"),
        ("rlif CartPole-v1 --expert zoo:ppo/CartPole-v", "no policy of this name comes with jaxrl. Did you mean"),
        ("rlif CartPole-v1 --expert mine.py:nobody", "mine.py"),
        ("rlif CartPole-v1 --expert zoo:ppo/Pendulum-v1", "rlif: on observations of CartPole-v1 the expert fails: "),
        (
            "rlif CartPole-v1 --expert scripted --curriculum dr --curriculum.ranges length=0.4:0.6",
            "--expert scripted: an expert acts in one task, not on the levels of a --curriculum.",
        ),
    ],
)
def test_errors_are_a_line(words, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *words.split(), "--total-steps=10", "--out=run"]) != 0
    said = capsys.readouterr().err
    assert line in said and "Traceback" not in said
    assert not (tmp_path / "run").exists()
