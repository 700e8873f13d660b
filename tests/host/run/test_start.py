"""A run that begins from the state of another one: what goes on, what begins anew, and what is refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import curriculum, vectorize
from jaxrl.algos import dqn, ppo
from jaxrl.algos.curricula import dr
from jaxrl.host.run import checkpoint, progress
from jaxrl.host.run.fit import fit
from jaxrl.host.run.run_folder import RunFolder

KEY, OTHER = jax.random.key(0), jax.random.key(7)
ENV, PARAMS = jaxrl.make("CartPole-v1")
CONFIG = {"num_steps": 8, "hidden": (8,), "num_epochs": 1, "num_minibatches": 1, "normalize_obs": True}
STEPS = 6 * 16


def ppo_of(num_envs=2, env=ENV, **changes):
    return ppo.make(env, ppo.Config(num_envs=num_envs, **{**CONFIG, **changes}))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "first"
    fit(ppo_of(), KEY, STEPS, hyper=ppo.Hyper(learning_rate=1e-3), env_params=PARAMS, out=folder, progress=False)
    return jaxrl.load(folder)


def begun(algo, start, **given):
    """The first state of a run from a start, as its folder keeps it."""
    states = []
    given = {"env_params": PARAMS, "progress": False, **given}
    result = fit(algo, OTHER, algo.steps_per_update, start=start, on_progress=lambda *x: states.append(x), **given)
    return result


def same(one, other):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


@pytest.mark.slow
@pytest.mark.light
def test_what_was_learned_goes_on_with_another_rate_and_from_step_zero(trained, tmp_path):
    out = tmp_path / "second"
    none = ppo.Hyper(learning_rate=0.0)
    result = begun(ppo_of(), trained, hyper=none, out=out)
    assert same(result.state.weights, trained.state.weights)  # the rate is that of the new run
    assert not same(trained.state.weights, fit(ppo_of(), OTHER, 16, hyper=none, progress=False).state.weights)
    assert int(result.state.step) == 16
    moments = jax.tree.leaves(trained.state.optimizer)
    assert any(np.any(np.asarray(x) != 0) for x in moments)
    assert float(result.state.normalizer.count) > float(trained.state.normalizer.count)
    told = json.loads((out / "config.json").read_text())["start"]
    assert told["folder"] == str(trained.folder) and told["update"] == 6 and told["weights_only"] is False
    assert json.loads((out / "config.json").read_text())["hyper"]["learning_rate"] == 0
    assert checkpoint.steps(RunFolder(out).checkpoints) == [0, 1]


def test_without_settings_those_of_the_state_stay(trained):
    assert float(begun(ppo_of(), trained.state).state.hyper.learning_rate) == pytest.approx(1e-3)


@pytest.mark.slow
@pytest.mark.light
def test_a_folder_that_was_begun_needs_nothing_of_what_it_began_from(trained, tmp_path):
    given = {"env_params": PARAMS, "checkpoint_every": STEPS, "progress": False}
    whole = fit(ppo_of(), OTHER, STEPS, start=trained, out=tmp_path / "a", **given)

    def stop(done, row, state):
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        fit(ppo_of(), OTHER, STEPS, start=trained, out=tmp_path / "b", on_progress=stop, **given)
    assert checkpoint.steps(RunFolder(tmp_path / "b").checkpoints) == [0]
    hyper = trained.state.hyper
    again = fit(ppo_of(), OTHER, STEPS, hyper=hyper, out=tmp_path / "b", resume=True, **given)
    assert same(whole.state.weights, again.state.weights)


@pytest.mark.slow
@pytest.mark.light
def test_more_environments_and_seeds_that_begin_alike(trained):
    none = ppo.Hyper(learning_rate=0.0)
    result = begun(ppo_of(num_envs=4), trained, hyper=none, num_seeds=3)
    for seed in range(3):
        assert same(jax.tree.map(lambda x, seed=seed: x[seed], result.state.weights), trained.state.weights)
    obs = np.asarray(result.state.obs)
    assert obs.shape[:2] == (3, 4) and not np.array_equal(obs[0], obs[1])  # what they see is their own


def test_weights_alone_leave_the_optimiser_behind(trained):
    result = begun(ppo_of(), trained, weights_only=True, hyper=ppo.Hyper(learning_rate=0.0))
    assert same(result.state.weights, trained.state.weights)
    fresh, gone_on = (
        [int(x) for x in jax.tree.leaves(begun(ppo_of(), trained, weights_only=alone).state.optimizer) if x.ndim == 0]
        for alone in (True, False)
    )
    assert fresh and all(one < other for one, other in zip(fresh, gone_on, strict=True))


def test_another_task_with_equal_spaces_and_other_params(trained):
    short = PARAMS.replace(length=jnp.float32(0.3))
    result = begun(ppo_of(), trained, env_params=short, hyper=ppo.Hyper(learning_rate=0.0))
    assert float(result.state.env_params.length) == pytest.approx(0.3)
    assert same(result.state.weights, trained.state.weights)


@pytest.mark.slow
@pytest.mark.light
def test_a_student_goes_under_a_curriculum_and_out_of_it_again(trained):
    student = ppo.make(vectorize(ENV, 2, batched_params=True), ppo.Config(num_envs=2, **CONFIG))
    taught = curriculum.attach(student, dr.make(lambda key, params: params))
    none = taught.hyper(learning_rate=0.0)
    under = begun(taught, trained, hyper=none)
    assert same(under.state.weights, trained.state.weights)
    out = begun(ppo_of(), under.state, hyper=ppo.Hyper(learning_rate=0.0))
    assert same(out.state.weights, trained.state.weights)


@pytest.mark.slow
@pytest.mark.light
def test_a_replay_goes_on_unless_the_number_of_environments_differs(tmp_path):
    def learner(num_envs):
        return dqn.make(ENV, dqn.Config(num_envs=num_envs, buffer_size=64, hidden=(8,), batch_size=4))

    hyper = dqn.Hyper(learning_starts=1_000_000)
    first = fit(learner(2), KEY, 32, hyper=hyper, env_params=PARAMS, progress=False)
    result = begun(learner(2), first.state, hyper=hyper)
    assert int(np.max(result.state.replay.size)) > int(np.max(first.state.replay.size))
    more = begun(learner(4), first.state, hyper=hyper, out=tmp_path)
    assert same(more.state.weights, first.state.weights)
    assert json.loads((tmp_path / "config.json").read_text())["start"]["afresh"] == ["replay"]


@pytest.mark.parametrize(
    ("what", "match"),
    [
        (lambda run: (ppo_of(hidden=(4,)), run), r"leaf weights.* is float32\[8\], and here it is float32\[4\]"),
        (lambda run: (ppo_of(normalize_obs=False), run), "leaf normalizer.* here it is not there"),
        (lambda run: (ppo_of(), {"weights": 1}), "a dict, not the state of an algorithm or what `load` returns"),
        (lambda run: (dqn.make(ENV, dqn.Config(num_envs=2, hidden=(8,))), run), "run of ppo, and this is dqn"),
        (lambda run: (dqn.make(ENV, dqn.Config(num_envs=2, hidden=(8,))), run.state), "PPOState .* goes on with its"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(trained, tmp_path, what, match):
    algo, start = what(trained)
    with pytest.raises(ValueError, match=match) as caught:
        begun(algo, start, out=tmp_path / "run")
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.light
def test_seeds_that_do_not_match_are_refused(trained):
    two = fit(ppo_of(), KEY, 16, env_params=PARAMS, num_seeds=2, progress=False).state
    with pytest.raises(ValueError, match="start has 2 seeds and num_seeds=None"):
        begun(ppo_of(), two)
    assert begun(ppo_of(), two, num_seeds=2).state.step.shape == (2,)


def test_progress_is_told_the_mean_since_the_last_call_and_the_state(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_PER_CALL", 1e9)  # the first call makes one update, the next all others
    told = []
    result = fit(ppo_of(), KEY, STEPS, progress=False, checkpoint_every=STEPS, on_progress=lambda *x: told.append(x))
    assert [done for done, _, _ in told] == [1, 6] and same(told[-1][2].weights, result.state.weights)
    assert told[1][1]["loss"] == pytest.approx(result.metrics["loss"][1:].mean())
