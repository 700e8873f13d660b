"""Preferences on disk and their command: there and back, every bad input in one line, a run and its critic."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import dqn, ppo, sac
from jaxrl.data import datasets, preferences
from jaxrl.data.datasets import Dataset
from jaxrl.data.preferences import Preferences
from jaxrl.host import cli
from jaxrl.host.data import dataset_files, npz_files, preference_files, preference_recipes, recorded_task
from jaxrl.host.data.dataset_parts import about_of
from jaxrl.host.run.fit import fit
from jaxrl.wrappers import FlattenObservation

ENV, PARAMS = jaxrl.make("Pendulum-v1")


def made(n=60, pairs=20, length=4, env=ENV, params=PARAMS):
    rng, last = np.random.default_rng(0), np.arange(n) % 20 == 19
    obs, action = rng.normal(size=(n, 3)).astype(np.float32), rng.uniform(-2, 2, (n, 1)).astype(np.float32)
    steps = Dataset(obs, action, rng.normal(size=n).astype(np.float32), last & False, last, obs)
    first = preferences.uniform_queries(rng, steps, pairs, length)
    label = (rng.uniform(size=pairs) < 0.5).astype(np.float32)
    return Preferences(steps, first, label, length), about_of(env, params)


def said(words, capsys, status=0):
    assert cli.main(words.split()) == status
    out, err = capsys.readouterr()
    return out if status == 0 else err


def refused(words, capsys, status=1):
    """The one line with which a command refuses."""
    lines = said(words, capsys, status).splitlines()
    lines = [line for line in lines if not line.startswith(("fitting", "recording", "the task"))]
    assert len(lines) == 1 if status == 1 else lines, lines
    return lines[0]


def test_there_and_back(tmp_path):
    path, (found, about) = tmp_path / "new" / "p.npz", made()
    preference_files.write(path, found, about)
    read, known = preference_files.read(path)
    assert known == {**about, "digest": preference_files.digest(found)} and read.length == 4
    jax.tree.map(np.testing.assert_array_equal, read, found)
    assert preference_files.is_one(path) and preference_files.summary(read)["pairs"] == 20
    with pytest.raises(FileExistsError, match="overwrite=True"):
        preference_files.write(path, found, about)
    other = found.replace(label=1 - found.label)
    preference_files.write(path, other, about, overwrite=True)
    assert preference_files.read(path)[1]["digest"] != known["digest"]
    with pytest.raises(ValueError, match="outside 0 to 1"):
        preference_files.write(path, found.replace(label=found.label + 0.5), about, overwrite=True)
    np.testing.assert_array_equal(preference_files.read(path)[0].label, other.label)


CHANGES = [
    (lambda x: x.update({"pair.label": x["pair.label"] + 0.5}), "of 20 labels are outside 0 to 1, as 1.5"),
    (lambda x: x.update({"pair.label": x["pair.label"].astype(np.int32)}), "pair.label is int32: labels are floats"),
    (lambda x: x["pair.length"].__setitem__((3, 1), 2), "segments of different lengths, 2 to 4: cut them"),
    (lambda x: x.update({n: x[n][:0] for n in x if n.startswith("pair")}), "there is no pair of segments"),
    (lambda x: x["pair.first"].__setitem__((0, 0), 18), "1 of 40 segments of 4 steps are not within one episode"),
    (lambda x: x.pop("pair.length"), "has no pair.length: preferences are npz"),
    (lambda x: x.update({"pair.length": x["pair.length"][:, 0]}), "pair.length is [20], pair.first [20, 2]"),
    (lambda x: x.update(more=np.zeros(2)), "has arrays more, which no preferences have"),
    (lambda x: x["reward"].__setitem__(2, np.nan), "of reward are NaN"),
    (lambda x: x.pop("next_obs"), "has no next_obs"),
]


@pytest.mark.parametrize("change, line", CHANGES, ids=[line for _, line in CHANGES])
def test_what_is_wrong_with_a_file(change, line, tmp_path, capsys):
    path, (found, about) = tmp_path / "p.npz", made()
    arrays = preference_files._arrays(found)
    change(arrays)
    npz_files.write(path, arrays, about)
    with pytest.raises(ValueError, match="p.npz") as error:
        preference_files.read(path)
    assert line in str(error.value)
    for words in (f"train cpl Pendulum-v1 --dataset {path}", f"dataset relabel {path}"):
        assert line in refused(words, capsys)


def test_what_is_no_such_file(tmp_path, capsys):
    path, (found, about) = tmp_path / "p.npz", made()
    preference_files.write(path, found, about)
    steps = dataset_files.write(tmp_path / "steps.npz", found.steps, about)
    assert "has no pair.first, pair.label, pair.length" in refused(f"train cpl Pendulum-v1 --dataset {steps}", capsys)
    assert "is a dataset of preferences: cpl, oppo and p_iql learn" in refused(
        f"train bc Pendulum-v1 --dataset {path}", capsys
    )
    words = f"train cpl MountainCarContinuous-v0 --dataset {path}"
    assert "the dataset, of Pendulum-v1, has obs of float32[3] a step" in refused(words, capsys)
    assert "--episodes: cpl learns from preferences" in said(
        f"train cpl Pendulum-v1 --dataset {path} --episodes return", capsys, 2
    )
    (tmp_path / "text.npz").write_text("no")
    assert "is neither npz nor HDF5: preferences are npz" in refused(f"dataset relabel {tmp_path / 'text.npz'}", capsys)
    damaged = path.read_bytes()
    path.write_bytes(damaged[:-200])
    assert "damaged or cut short" in refused(f"dataset relabel {path}", capsys)
    assert "cpl learns from preferences alone" in refused("train cpl Pendulum-v1", capsys)


def test_the_command(tmp_path, capsys):
    _, about = made()
    steps, path = tmp_path / "steps.npz", tmp_path / "p.npz"
    dataset_files.write(steps, made()[0].steps, about)
    words = f"dataset preferences {steps} --pairs 30 --length 5"
    out = said(f"{words} --seed 3 --out {path}", capsys)
    assert "pairs 30" in out and "labels_right 1" in out
    found, known = preference_files.read(path)
    score = preferences.scores(found.steps, found.first, 5)
    np.testing.assert_array_equal(found.label, score[:, 1] > score[:, 0])
    told = known["preferences"]
    assert (told["labels"], told["noise"]["name"], told["query"], told["gamma"]) == ("return", "none", "uniform", 1.0)
    assert "pairs 30" in said(f"dataset info {path}", capsys)
    again = tmp_path / "again.npz"
    said(f"{words} --seed 3 --out {again} --noise mistakes --mistakes 0.3", capsys)
    noisy = preference_files.read(again)[0]
    np.testing.assert_array_equal(noisy.first, found.first)
    assert 0 < np.mean(noisy.label != found.label) < 0.6
    for more, line, status in (
        (f"--out {path}", "exists: name another file, or say --overwrite", 1),
        ("--length 21", "there is no pair of segments of 21 steps in a dataset of 60, whose longest episode has 20", 1),
        ("--pairs 0", "--pairs 0: it must be at least 1", 1),
        ("--labels regret", "Pendulum-v1 lists no outcomes, so its values are not known: --critic RUN", 1),
        ("--mistakes 0.6", "mistakes=0.6: it must be a probability below 0.5", 1),
        ("--labels rank", "--labels rank: it is one of return, regret", 2),
        ("--noise loud", "--noise loud: it is one of none, logistic, mistakes, human", 2),
        ("--query best", "--query best: it is one of uniform, disagreement", 2),
        ("--critic runs/x", "labels by return need no values", 2),
        ("--gamma 1.5", "--gamma 1.5: it must be from 0 to 1", 2),
        ("--labels regret --critic runs/none", "runs/none", 1),
    ):
        out = f" --out {tmp_path / 'other.npz'}" if "--out" not in more else ""
        assert line in refused(f"{words} {more}{out}", capsys, status)
    dataset_files.write(steps, made()[0].steps, {**about, "env": "Mine-v0"}, overwrite=True)
    assert "does not say of which environment of jaxrl it is (env: 'Mine-v0')" in refused(words, capsys)


@pytest.mark.slow
@pytest.mark.light
def test_by_disagreement_and_relabelled(tmp_path, capsys, monkeypatch):
    small = preference_recipes.SMALL
    monkeypatch.setattr(
        preference_recipes, "SMALL", type(small)(num_members=2, hidden=(4,), num_checks=1, num_updates=2, batch_size=4)
    )
    steps, path, learned = (tmp_path / name for name in ("steps.npz", "p.npz", "learned.npz"))
    dataset_files.write(steps, made()[0].steps, made()[1])
    said(f"dataset preferences {steps} --pairs 10 --length 4 --query disagreement --out {path}", capsys)
    found, about = preference_files.read(path)
    assert found.size == 10 and about["preferences"]["query"] == "disagreement"
    small = "--config.num-members 2 --config.hidden 4 --config.num-checks 1 --config.num-updates 2"
    out = said(f"dataset relabel {path} {small} --out {learned}", capsys)
    assert "held-out loss" in out and "correlation with the true reward" in out
    dataset, known = dataset_files.read(learned)
    assert known["learned_reward"]["preferences"]["digest"] == about["digest"] and "preferences" not in known
    np.testing.assert_array_equal(dataset.obs, found.steps.obs)
    assert not np.allclose(dataset.reward, found.steps.reward)
    assert "hidden" in refused(f"dataset relabel {path} --config.hidden 0 --out {tmp_path / 'x.npz'}", capsys)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("module", [sac, dqn])
def test_of_a_run_with_the_values_of_its_critic(module, tmp_path, capsys):
    id = "Pendulum-v1" if module is sac else "CartPole-v1"
    env, params = jaxrl.make(id)
    run, path = tmp_path / "run", tmp_path / "p.npz"
    algo = module.make(env, module.Config(hidden=(8,), buffer_size=400))
    hyper = module.Hyper(learning_starts=10, gamma=0.9)
    fit(algo, jax.random.key(0), 20, hyper=hyper, env_params=params, out=run, eval_every=None, progress=False)
    words = f"dataset preferences {run} --steps 450 --pairs 8 --length 5 --labels regret --critic {run} --out {path}"
    said(words, capsys)
    found, about = preference_files.read(path)
    assert found.steps.size == 450 and about["preferences"]["gamma"] == pytest.approx(0.9)
    score = np.array([[regret(algo, run, found, row) for row in pair] for pair in found.first])
    np.testing.assert_array_equal(found.label, score[:, 1] < score[:, 0])
    assert "the values of --critic" in said(f"{words} --gamma 0.5 --overwrite", capsys, 2)
    other = tmp_path / "other.npz"
    said(f"dataset make MountainCarContinuous-v0 --recipe random --steps 1200 --out {other}", capsys)
    assert f"it is of {id}, and the steps are of Mount" in refused(
        f"dataset preferences {other} --labels regret --critic {run} --length 5", capsys
    )


def regret(algo, run, found, row):
    """By hand, from the critic's values at the two ends."""
    loaded, data = jaxrl.load(run), found.steps
    learner = loaded.algo.init.__self__

    def value(obs):
        if hasattr(learner, "values"):
            return float(jnp.max(learner.values(loaded.policy, obs, None)))
        unit = learner.greedy(loaded.policy, obs)
        both = jax.vmap(lambda w: learner.rule.critic.apply(w, obs, unit))(loaded.state.weights["critic"])
        return float(jnp.min(both))

    end = row + found.length - 1
    total = sum(0.9**t * float(data.reward[row + t]) for t in range(found.length))
    ahead = 0.0 if data.terminated[end] else 0.9**found.length * value(jnp.asarray(data.next_obs[end]))
    return value(jnp.asarray(data.obs[row])) - total - ahead


@pytest.mark.slow
@pytest.mark.light
def test_a_run_without_a_critic_of_actions(tmp_path, capsys):
    env, params = jaxrl.make("Pendulum-v1")
    algo = ppo.make(env, ppo.Config(num_envs=2, num_steps=4, num_minibatches=1, num_epochs=1, hidden=(4,)))
    run, steps = tmp_path / "run", tmp_path / "steps.npz"
    fit(algo, jax.random.key(0), 8, env_params=params, out=run, eval_every=None, progress=False)
    dataset_files.write(steps, made()[0].steps, made()[1])
    words = f"dataset preferences {steps} --labels regret --critic {run} --length 4 --out {tmp_path / 'p.npz'}"
    assert "a run of ppo has no critic of actions" in refused(words, capsys)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("algo", ["cpl", "p_iql"])
def test_a_training_is_gone_on_with(algo, tmp_path, capsys):
    path, run = tmp_path / "p.npz", tmp_path / "run"
    preference_files.write(path, *made())
    small = "--config.hidden 4 --config.batch-size 4 --config.num-updates 2 --no-progress"
    more = f"--total-steps 8 --eval-episodes 2 --eval-max-steps 9 --out {run}"
    assert "return" in said(f"train {algo} Pendulum-v1 --dataset {path} {small} {more}", capsys)
    recipe = json.loads((run / "config.json").read_text())["recipe"]
    assert recipe["dataset"]["digest"] == preference_files.read(path)[1]["digest"]
    moved = path.rename(tmp_path / "moved.npz")
    said(f"resume {run} --total-steps 12 --no-progress --dataset {moved}", capsys)
    said(f"eval {run} --episodes 2 --max-steps 9", capsys)
    found, about = made(pairs=6)
    preference_files.write(moved, found, about, overwrite=True)
    assert "has changed since the run began" in refused(
        f"resume {run} --total-steps 16 --no-progress --dataset {moved}", capsys
    )
    assert datasets.check(found.steps, ENV.action_space(PARAMS)) is None


@pytest.mark.slow
@pytest.mark.light
def test_wrappers_and_static_settings_of_a_run_stay_with_its_steps(tmp_path, capsys):
    """From a wrapped run with --env settings to preferences, a learner and learned rewards, saying them once."""
    run, path = tmp_path / "run", tmp_path / "p.npz"
    small = "--no-tuned --config.num-envs 2 --config.hidden 4 --config.buffer-size 100 --total-steps 16 --no-progress"
    wrap = ["PreviousActionReward", "FlattenObservation"]
    small += " --eval-episodes 2 --eval-max-steps 5"
    said(f"train dqn CompassWorld-v0 --env.size 6 {small} --wrap {' '.join(wrap)} --out {run}", capsys)
    said(
        f"dataset preferences {run} --labels regret --critic {run} --steps 300 --pairs 6 --length 4 --out {path}",
        capsys,
    )
    found, about = preference_files.read(path)
    assert about["wrap"] == wrap and about["env_settings"] == {"size": 6}
    env, params = recorded_task.task_of(about, str(path))
    assert env == jaxrl.load(run).env and found.steps.obs.shape[1:] == env.observation_space(params).shape
    learner = tmp_path / "cpl"
    words = "--config.hidden 4 --config.batch-size 4 --total-steps 2 --no-progress --eval-episodes 2 --eval-max-steps 5"
    said(f"train cpl CompassWorld-v0 --dataset {path} {words} --out {learner}", capsys)
    recipe = json.loads((learner / "config.json").read_text())["recipe"]
    assert recipe["wrap"] == wrap and recipe["env_settings"]["size"] == 6 and jaxrl.load(learner).env == env
    fitted = "--config.num-members 2 --config.hidden 4 --config.num-checks 1 --config.num-updates 2"
    out = said(f"dataset relabel {path} {fitted} --out {tmp_path / 'learned.npz'}", capsys)
    assert "of the 5 pairs that were learned" in out and "of 1 held out" in out
    other = tmp_path / "other.npz"
    said(f"dataset make CompassWorld-v0 --recipe random --steps 300 --out {other}", capsys)
    assert "with other wrappers or --env settings than the steps'" in refused(
        f"dataset preferences {other} --labels regret --critic {run} --length 4", capsys
    )


def test_a_task_that_words_do_not_make_again():
    recipe = {"env_id": "Pendulum-v1", "env_settings": {}}
    assert recorded_task.said_of(recipe, ENV) == {"env": "Pendulum-v1"}
    with pytest.raises(ValueError, match="was wrapped or changed in Python, which a file of steps does not say"):
        recorded_task.said_of(recipe, FlattenObservation(ENV))
