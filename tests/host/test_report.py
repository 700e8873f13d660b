"""A report of run folders: its figures are those of the rows, it is one page that asks for nothing, and what is wrong
with a folder is said on it or in one sentence."""

import base64
import dataclasses
import html.parser
import json
import re
import shlex

import jax
import numpy as np
import pytest
from PIL import Image

import jaxrl
from jaxrl import scores
from jaxrl.algos import ppo
from jaxrl.data.datasets import Dataset
from jaxrl.host.cli.experiment import DataFlags, experiment
from jaxrl.host.cli.train import OF_DEVICES, TrainFlags
from jaxrl.host.data import dataset_files
from jaxrl.host.plotting import plot
from jaxrl.host.report import read_runs, report, svg
from jaxrl.host.report.command import command_of
from jaxrl.host.report.page import DARK, LIGHT, STYLE
from jaxrl.host.run import episodes
from jaxrl.host.run.run_folder import RunFolderError
from jaxrl.host.statistics import bootstrap_interval, iqm, probability_of_improvement

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(html.parser.HTMLParser):
    """Elements are closed in their order; tables as lists of rows; what would be loaded."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.sources, self.labels, self.words = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.sources += [attrs[k] for k in ("src", "href") if k in attrs]
        if tag == "svg" and attrs.get("role") == "img":
            self.labels.append(attrs["aria-label"])
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        elif self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    def table(self, first):
        return next(table for table in self.tables if table[0][:2] == first)


def page(out):
    text = out.read_text()
    assert "http" not in text.replace("http-equiv", "") and "default-src 'none'" in text
    found = Page(text)
    assert all(source.startswith(("data:", "#")) for source in found.sources)
    return found


FINAL = {"good": [400.0, 410.0, 480.0, 500.0], "poor": [90.0, 420.0, 200.0, 100.0]}


RECIPE = {"algo": "ppo", "env_id": "CartPole-v1", "env_settings": {}, "config": {}, "hyper": {}, "params": {}}


def make_run(folder, final, env="CartPole-v1", evaluations=True, summary=True, **changes):
    """A run folder by hand: 20 rows, 4 evaluations, that end in `final`, one a seed (a number: no axis of seeds)."""
    folder.mkdir(parents=True)
    values = np.atleast_1d(np.array(final, float))
    config = {
        "algorithm": "ppo",
        "env": env,
        "config": {"num_envs": 4, "hidden": [64, 64]},
        "hyper": {"learning_rate": 3e-4, "gamma": 0.99},
        "num_seeds": len(values) if isinstance(final, list) else None,
        "total_steps": 2000,
        "eval_policy": "greedy",
        "versions": {"python": "3.11", "jaxrl": "0.1.0", "jax": "0.10.2"},
        "device": "1 x cpu cpu",
        "no_recipe": "it was made by hand.",
        **changes,
    }
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v != "absent"}))

    def plain(x):
        own = [None if np.isnan(v) else float(v) for v in x]
        return own if isinstance(final, list) else own[0]

    rows = [
        {"update": i, "step": 100 * i, "episode_return": plain(values * i / 25), "loss": plain(1 / i + 0 * values)}
        for i in range(1, 21)
    ]
    rows[0]["episode_return"] = plain(values * np.nan)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if evaluations:
        rows = [
            {"update": i, "step": 100 * i, "return": plain(values * i / 20), "episodes": 128} for i in (5, 10, 15, 20)
        ]
        (folder / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if summary:
        told = {"run_seconds": 12.5, "diverged": {}, "interrupted": False, **(summary if summary is not True else {})}
        (folder / "summary.json").write_text(json.dumps(told))
    return folder


@pytest.fixture
def runs(tmp_path):
    good = make_run(tmp_path / "good", FINAL["good"])
    poor = make_run(tmp_path / "poor", FINAL["poor"], hyper={"learning_rate": 1e-3, "gamma": 0.99})
    return good, poor


def test_figures_are_those_of_the_rows(runs, tmp_path):
    found = page(report(runs, tmp_path / "new" / "report.html", metrics=["loss"]))
    for name, row in zip(FINAL, found.table(["run", "algorithm"])[1:], strict=True):
        scores = FINAL[name]
        low, high = bootstrap_interval(scores)
        assert row[:4] == [name, "ppo", "4", "2,000"]
        assert row[4:8] == [
            f"{iqm(scores):.4g}",
            f"{low:.4g} to {high:.4g}",
            f"{np.mean(scores):.4g}",
            f"{min(scores):.4g} to {max(scores):.4g}",
        ]
        assert row[8:] == ["128 episodes a seed, greedy", "12.5"]
    probability, (low, high) = probability_of_improvement(FINAL["good"], FINAL["poor"])
    assert probability == 14 / 16  # 420 of poor beats two of good
    improvement = found.table(["", "probability"])
    assert improvement[1] == ["good over poor", f"{probability:.2f}", f"{low:.2f} to {high:.2f}", "4, 4"]
    differing = found.table(["setting", "good"])
    assert differing[1:] == [["hyper.learning_rate", "0.0003", "0.001"]]
    assert [label.split(":")[0] for label in found.labels] == [
        "Evaluations",
        "Training episodes",
        "loss",
        "Returns of seeds",
    ]
    assert f"good from {iqm(FINAL['good']) / 4:.4g} to {iqm(FINAL['good']):.4g}" in found.labels[0]
    assert "poor 90, 420, 200, 100" in found.labels[-1]
    assert "it was made by hand." in " ".join(found.words)


def test_curricula_are_compared_on_held_out_levels_alone(tmp_path):
    """Returns on the levels that a curriculum chose say how hard these were."""
    alone = [
        make_run(tmp_path / f"{x}0", [1.0, 2.0], algorithm=f"ppo+{x}", evaluations=False) for x in ("plr", "accel")
    ]
    found = page(report(alone, tmp_path / "a.html"))
    assert [row[4] for row in found.table(["run", "algorithm"])[1:]] == ["–", "–"]
    assert not any(table[0][:2] == ["", "probability"] for table in found.tables)
    assert "a curriculum chose its levels" in " ".join(found.words)
    judged = [make_run(tmp_path / f"{x}1", [1.0, 2.0], algorithm=f"ppo+{x}") for x in ("plr", "accel")]
    for folder, held_out in zip(judged, ([0.2, 0.4], [0.6, 0.8]), strict=True):
        row = {"update": 20, "step": 2000, "return": [5.0, 5.0], "episodes": 8, "level_return": held_out}
        (folder / "evaluations.jsonl").write_text(json.dumps(row | {"levels": [[0, 1, 0], [1, 0, 1]]}) + "\n")
    found = page(report(judged, tmp_path / "b.html"))
    assert [(row[6], row[8]) for row in found.table(["run", "algorithm"])[1:]] == [
        ("0.3", "3 held-out levels"),
        ("0.7", "3 held-out levels"),
    ]
    assert found.table(["", "probability"])[1][:2] == ["accel1 over plr1", "1.00"]


def test_probability_of_improvement_by_hand():
    assert probability_of_improvement([1.0, 3.0], [2.0, 3.0])[0] == (0 + 0 + 1 + 0.5) / 4
    assert probability_of_improvement([5.0, 6.0], [1.0, 2.0]) == (1.0, (1.0, 1.0))
    with pytest.raises(ValueError, match="no scores"):
        probability_of_improvement([], [1.0])


def test_environments_have_parts_of_their_own(runs, tmp_path):
    other = make_run(tmp_path / "other", [1.0, 2.0], env="Pendulum-v1")
    found = page(report([*runs, other], tmp_path / "r.html"))
    assert found.sources[:2] == ["#env0", "#env1"]
    assert [len(table) for table in found.tables if table[0][0] == "run"] == [3, 2]


def test_runs_of_unlike_tasks_are_not_compared_in_silence(tmp_path):
    def recipe(**params):
        return {"algo": "ppo", "env_id": "CartPole-v1", "config": {}, "hyper": {}, "params": params, "env_settings": {},
                "run": {}}  # fmt: skip

    written = recipe(length=0.5, gravity=9.8)  # as the command keeps all of them, and `fit` those that were changed
    same = [make_run(tmp_path / n, [1.0, 2.0], recipe=r) for n, r in (("all", written), ("changed", recipe()))]
    unlike = make_run(tmp_path / "unlike", [1.0, 2.0], recipe=recipe(length=0.7))
    assert "differ in kind" not in words_of(report(same, tmp_path / "r.html"))
    out = report([*same, unlike], tmp_path / "r.html")
    assert "of the same id with different settings or parameters" in words_of(out)
    assert page(out).table(["setting", "all"])[1:] == [["params.length", "0.5", "0.5", "0.7"]]


def test_pictures_and_films_are_in_the_page(runs, tmp_path):
    media = runs[0] / "media"
    media.mkdir()
    Image.new("RGB", (4, 4)).save(media / "policy.gif")
    Image.new("RGB", (4, 4)).save(media / "curve.png")  # the page has curves of its own
    (media / "policy.mp4").write_bytes(b"film")
    found = page(report(runs[:1], tmp_path / "r.html"))
    data = base64.b64encode((media / "policy.gif").read_bytes()).decode()
    assert found.sources == [f"data:image/gif;base64,{data}", "data:video/mp4;base64,ZmlsbQ=="]


def words_of(out):
    return " ".join(" ".join(page(out).words).split())


@pytest.mark.parametrize(
    ("final", "given", "says"),
    [
        ([1.0, 2.0], {"evaluations": False}, "No evaluations: its figures are of the last training episodes"),
        (7.0, {}, "One seed: no interval can be given."),
        ([3.0, 4.0, 5.0], {"summary": {"diverged": {"1": "loss is NaN"}}}, "Seed 1 of 3 diverged and is left out of"),
        ([3.0], {"summary": {"diverged": {"0": "loss is NaN"}}}, "No seed is left of which to say anything."),
        (
            [3.0, 4.0],
            {"summary": {"interrupted": True}, "total_steps": 9000},
            "Interrupted after 2,000 of 9,000 steps.",
        ),
        ([3.0, 4.0], {"summary": False}, "It has no summary: killed, or still running, after 2,000 of 2,000 steps."),
        ([3.0, 4.0], {"versions": {"jaxrl": "9.0"}}, "Written by jaxrl 9.0; this report is by"),
    ],
)
def test_what_a_reader_has_to_know_is_said(tmp_path, final, given, says):
    run = make_run(tmp_path / "run", final, **given)
    assert says in words_of(report([run], tmp_path / "r.html"))


def test_figures_of_runs_that_did_not_end_well(tmp_path):
    kept = make_run(tmp_path / "kept", [3.0, np.nan, 5.0], summary={"diverged": {"1": "loss is NaN"}})
    trained = make_run(tmp_path / "trained", [10.0, 20.0], evaluations=False)
    alone = make_run(tmp_path / "alone", 7.0)
    rows = page(report([kept, trained, alone], tmp_path / "r.html")).table(["run", "algorithm"])[1:]
    assert [row[2] for row in rows] == ["2 of 3", "2", "1"]
    assert [row[4] for row in rows] == ["4", "12", "7"]  # training rows end at 20/25 of what is given
    assert rows[1][8] == "training episodes" and rows[2][5] == "–"


def test_a_run_in_which_nothing_was_logged(tmp_path):
    run = make_run(tmp_path / "run", [1.0], evaluations=False, summary=False)
    (run / "metrics.jsonl").write_text("")
    out = report([run], tmp_path / "r.html")
    assert "Nothing was logged yet." in words_of(out)
    assert page(out).table(["run", "algorithm"])[1][4:8] == ["–"] * 4
    row = {"update": 1, "step": 10, "episode_return": [None], "loss": [1.0]}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert "no episode ended: there is no return" in words_of(report([run], out))


def test_seeds_of_a_sweep_are_apart_by_their_settings(tmp_path):
    hyper = {"learning_rate": [1e-3, 1e-3, 1e-4, 1e-4], "gamma": 0.9}
    run = make_run(tmp_path / "sweep" / "runs-0-4", [1.0, 3.0, 5.0, 7.0], hyper=hyper)
    (tmp_path / "sweep" / "plan.json").write_text("{}")
    found = page(report([run], tmp_path / "r.html"))
    rows = found.table(["run", "algorithm"])[1:]
    assert [(row[0], row[2], row[4]) for row in rows] == [
        ("runs-0-4: learning_rate=0.001", "2", "2"),
        ("runs-0-4: learning_rate=0.0001", "2", "6"),
    ]
    settings = {
        "config": {},
        "hyper": {"gamma": 0.9},
        "params": {"length": 0.7},
        "env_settings": {},
        "total_steps": 2000,
    }
    points = [{"learning_rate": rate, "returns": [1.0, 2.0]} for rate in (1e-3, 1e-4)]
    kept = {"recipe": {"algo": "ppo", "env_id": "CartPole-v1", **settings}, "points": points}
    (tmp_path / "sweep" / "sweep.json").write_text(json.dumps(kept))
    words = words_of(report([run], tmp_path / "r.html"))
    for word in (
        "jaxrl sweep ppo CartPole-v1",
        "--seeds 2",
        "--hyper.learning-rate 0.001 0.0001",
        "--params.length 0.7",
    ):
        assert word in words
    assert "differ in kind" not in words
    whole = [run.name for run in read_runs([tmp_path / "sweep"])]  # the sweep's folder stands for its runs
    assert whole == [run.name for run in read_runs([run])]
    (run / "config.json").unlink()
    with pytest.raises(RunFolderError, match="is a sweep's folder, of the runs in runs-0-4"):
        report([tmp_path / "sweep"], tmp_path / "r.html")


def test_folders_of_one_name_are_told_apart(tmp_path):
    paths = [make_run(tmp_path / part / "run", [1.0, 2.0]) for part in "ab"]
    assert [run.name for run in read_runs(paths)] == ["a/run", "b/run"]
    assert [run.name for run in read_runs(paths[:1])] == ["run"]


def test_bad_input_is_one_sentence(tmp_path, runs):
    out = tmp_path / "r.html"
    with pytest.raises(RunFolderError, match="nowhere holds no run: it has no readable config.json"):
        report([tmp_path / "nowhere"], out)
    old = make_run(tmp_path / "old", [1.0], hyper="absent")
    with pytest.raises(RunFolderError, match=r"config.json has no hyper: it is of another version .* jaxrl 0\.1\.0"):
        report([old], out)
    renamed = make_run(tmp_path / "renamed", [1.0])
    (renamed / "evaluations.jsonl").write_text('{"update": 1, "step": 1, "score": [1.0]}\n')
    with pytest.raises(RunFolderError, match="rows without 'return': it is of another version"):
        report([renamed], out)
    (renamed / "evaluations.jsonl").write_text('{"update": 1, "step": 1, "return": [1.0, 2.0]}\n')
    with pytest.raises(RunFolderError, match="a row has 2 values of return, and the run 1 seeds"):
        report([renamed], out)
    (runs[1] / "summary.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"summary.json is damaged"):
        report(runs, out)
    with pytest.raises(ValueError, match="good is given twice"):
        report([runs[0], runs[0]], out)
    with pytest.raises(ValueError, match="at least one run folder"):
        report([], out)
    with pytest.raises(ValueError, match="no run has a metric 'los'; there are episode_return, loss"):
        report(runs[:1], out, metrics=["los"])
    with pytest.raises(ValueError, match="is a folder: --out names the page"):
        report(runs[:1], tmp_path)
    assert not out.exists()
    (runs[0] / "media").mkdir()
    (runs[0] / "media" / "episode.json").write_text('{"env": "x"}')
    assert "No episode can be shown" in words_of(report(runs[:1], out))


# ---- what made a run


@pytest.mark.parametrize(
    "words",
    [
        "ppo CartPole-v1 --seeds 4 --total-steps 100000",
        "ppo Pendulum-v1 --no-tuned --seed 3 --hyper.learning-rate 0.001 --config.hidden 32 16 --params.gravity 9.81 "
        "--config.normalize-obs --config.no-clip-value --act sampled",
        "dqn CartPole-v1 --params.length 0.7 --eval-every 0 --out runs/x --log tensorboard",
        "dqn CartPole-v1 --dataset {data} --episodes best:0.5",
        "rvs PointMazeMedium-v0 --config.outcome goal --goals position --dataset {data} --seeds 2",
        "ppo CartPole-v1 --curriculum alp_gmm --curriculum.ranges length=0.2:3.0 --curriculum.hyper.return-low 0 "
        "--curriculum.hyper.return-high 500",
    ],
)
def test_a_recipe_is_the_command_that_made_it(tmp_path, words):
    words = words.format(data=tmp_path / "data.npz")
    step = np.zeros((2, 1), np.float32)
    steps = Dataset(step, step, step[:, 0], step[:, 0] > 0, np.array([False, True]), step)
    dataset_files.write(tmp_path / "data.npz", steps, {})

    def recipe(words):
        parsed, made = experiment("train", words, TrainFlags)
        run = {k: v for k, v in vars(parsed.run).items() if k in TrainFlags.__dataclass_fields__}
        elsewhere = [*OF_DEVICES, *(field.name for field in dataclasses.fields(DataFlags))]
        run = {k: v for k, v in run.items() if k not in elsewhere}
        run |= {"out": str(run["out"]) if run["out"] else None, "total_steps": made.pop("total_steps")}
        return json.loads(json.dumps({**made, "run": run}))

    made = recipe(shlex.split(words))
    command = command_of(tmp_path, {"recipe": made})
    assert command.startswith("jaxrl train " + " ".join(words.split()[:2]))
    assert recipe(shlex.split(command)[2:]) == made
    assert len(command) < 2 * len(words) + 60  # nothing that need not be said
    assert "--model 'a model.npz'" in command_of(tmp_path, {"recipe": {**made, "model": {"path": "a model.npz"}}})
    assert command_of(tmp_path, {"no_recipe": "why"}) is None


def test_a_run_on_a_dataset_says_so(runs, tmp_path):
    """In its settings, and over what its curves are."""
    data = {"path": "/data/x.npz", "episodes": "all", "digest": "abc123", "reference": {"random": -5.0}}
    recipe = {"algo": "td3_bc", "env_id": "Pendulum-v1", "env_settings": {}, "config": {}, "hyper": {}, "params": {}}
    recipe |= {"run": {"seed": 0, "total_steps": 2000}, "dataset": data, "model": {"path": "m.npz", "digest": "def456"}}
    folder = make_run(tmp_path / "offline", FINAL["good"], recipe=recipe)
    out = report([folder], tmp_path / "offline.html", record_episodes=False)
    rows = [row for table in page(out).tables for row in table]
    for row in (["dataset.path", "/data/x.npz"], ["dataset.digest", "abc123"], ["model.digest", "def456"]):
        assert row in rows
    assert ["dataset.reference.random", "-5"] in rows
    assert "gradient steps a seed" in out.read_text() and "environment steps" not in out.read_text()
    both = report([folder, runs[0]], tmp_path / "both.html", record_episodes=False).read_text()
    assert "environment steps a seed" in both
    swept = make_run(tmp_path / "swept", FINAL["poor"], dataset=data)
    assert "gradient steps a seed" in report([swept], tmp_path / "swept.html").read_text()


# ---- charts


def test_ticks_are_round_and_within():
    np.testing.assert_allclose(svg.ticks(0.0, 100.0), [0, 20, 40, 60, 80, 100])
    np.testing.assert_allclose(svg.ticks(-0.013, 0.031), [-0.01, 0, 0.01, 0.02, 0.03])
    assert len(svg.ticks(3.1, 3.2)) >= 3


def test_a_path_is_where_its_numbers_are():
    drawn = svg.chart(
        [svg.Line("x", [0.0, 10.0, 20.0], [5.0, np.nan, 7.0]), svg.Line("y", [0.0, 20.0], [6.0, 6.0])], "", "t"
    )
    x0, per_x, left = map(float, re.search(r'data-x="(.*?)"', drawn)[1].split())
    y0, per_y, bottom = map(float, re.search(r'data-y="(.*?)"', drawn)[1].split())
    path = re.search(r'data-name="x" d="(.*?)"', drawn)[1]
    points = np.array(re.findall(r"M([\d.]+),([\d.]+)", path), float)
    assert path.count("M") == 2  # a gap where there is no number
    np.testing.assert_allclose(x0 + (points[:, 0] - left) * per_x, [0, 20], atol=0.05)
    np.testing.assert_allclose(y0 + (bottom - points[:, 1]) * per_y, [5, 7], atol=0.01)


def test_thinning_keeps_extremes_and_gaps():
    y = np.zeros(50_000)
    y[31_234], y[40_001], y[:100] = 9.0, -9.0, np.nan
    x, seen = svg.thinned(np.arange(50_000.0), y)
    assert len(x) <= svg.POINTS + 2 and seen[x == 31_234] == 9 and seen[x == 40_001] == -9
    assert x[0] == 0 and x[-1] == 49_999 and np.isnan(seen[0])


def test_charts_of_nothing_and_of_one_number():
    for y in ([np.nan, np.nan], [3.0, 3.0], [0.0, 0.0]):
        drawn = svg.chart([svg.Line("x", [1.0, 1.0], y)], "", "t")
        assert "nan" not in drawn and "inf" not in drawn


def test_numbers():
    shown = [svg.number(x) for x in (1.0, 0.123456, -1234.56, 123456.7, float("nan"))]
    assert shown == ["1", "0.1235", "-1235", "123,457", "–"]
    assert [svg.short(x) for x in (0.0, 2500.0, 25_000.0, 1e6, 2.5e9)] == ["0", "2500", "25k", "1M", "2.5G"]


# ---- episodes


@pytest.fixture(scope="module")
def swing():
    env, params = jaxrl.make("Pendulum-v1")
    algo = ppo.make(env, ppo.Config(num_envs=1, num_steps=1, num_minibatches=1, hidden=()))
    policy = algo.policy(algo.init(jax.random.key(0)))
    played = episodes.play(algo, policy, jax.random.key(1), env, params, 30, False)
    return env, params, played, episodes.episode_of(env, params, played, {"seed": 0, "act": "sampled"})


def test_an_episode_is_what_was_played(swing):
    env, params, played, episode = swing
    assert episode.steps == 30 and list(episode.signals) == ["theta [rad]", "theta_dot [rad/s]"]
    theta, speed = episode.signals.values()
    np.testing.assert_allclose(np.cos(theta.value), played.obs[:, 0], atol=1e-5)
    np.testing.assert_allclose(speed.value, played.obs[:, 2], atol=1e-6)
    assert (speed.low, speed.high) == (-8.0, 8.0) and theta.low is None and not theta.reference.any()
    (torque,) = episode.actions.values()
    np.testing.assert_array_equal(torque.value, played.actions[:, 0])
    assert list(episode.actions) == ["torque [N m]"] and (torque.low, torque.high) == (-2.0, 2.0)
    cost = theta.value[:-1] ** 2 + 0.1 * speed.value[:-1] ** 2 + 0.001 * np.clip(torque.value, -2, 2) ** 2
    np.testing.assert_allclose(episode.rewards["reward"], -cost, rtol=1e-3, atol=1e-4)
    time, unit = episode.clock()
    assert unit == "s" and time[-1] == pytest.approx(30 * 0.05) and episode.told["end"] == "cut"
    error = np.abs(theta.value[1:])
    found = episode.errors()["theta [rad]"]
    assert found["mean"] == pytest.approx(error.mean()) and found["largest"] == pytest.approx(error.max())
    assert ("length", "1", "m") in episode.parameters


def test_an_episode_is_kept_drawn_and_in_the_report(swing, tmp_path):
    *_, episode = swing
    run = make_run(tmp_path / "run", [1.0, 2.0], env="Pendulum-v1")
    assert episodes.read(run) is None
    episodes.keep(episode, run)
    again = episodes.read(run)
    assert again is not None and again.told == episode.told and again.period == episode.period
    for name, quantity in episode.signals.items():
        np.testing.assert_allclose(again.signals[name].value, quantity.value, rtol=1e-5)
        assert again.signals[name].high == quantity.high
    np.testing.assert_allclose(again.rewards["reward"], episode.rewards["reward"], rtol=1e-5)

    out = episodes.plot_episode(episode, run / "media" / "episode.png")
    pixels = np.asarray(Image.open(out).convert("RGB")).astype(int)
    assert (np.ptp(pixels, axis=-1) > 60).sum() > 1000

    found = page(report([run], tmp_path / "r.html"))
    assert not any(source.startswith("data:image") for source in found.sources)  # drawn by the page itself
    error = episode.errors()["theta [rad]"]
    assert found.table(["signal", "mean"])[1][:5] == [
        "theta",
        *(f"{error[k]:.4g}" for k in ("mean", "rms", "largest")),
        "rad",
    ]
    assert {"theta", "theta_dot", "actions", "reward"} <= {label.split(":")[0] for label in found.labels}
    assert ["gravity", "10", "m/s^2"] in found.table(["name", "value"])


def test_tasks_of_pictures_have_no_time_plot():
    for id, expected in (("Pendulum-v1", True), ("CartPole-v1", True), ("Breakout-MinAtar", False)):
        assert episodes.shows(*jaxrl.make(id)) == expected


def test_paper_is_light_whatever_the_screen_is():
    def weight(selector):
        return len(re.findall(r":(?!not)|\[", selector))

    rules = re.findall(r"([^{}]+)\{color-scheme:\w+;([^{}]+)\}", STYLE)
    dark = [weight(selector) for selectors, colors in rules if colors == DARK for selector in selectors.split(",")]
    selectors, colors = rules[-1]  # of equals the last one holds
    assert len(dark) == 2 and colors == LIGHT and "@media print" in STYLE[: STYLE.index(selectors + "{color-scheme")]
    always = [selector for selector in selectors.split(",") if set(selector.split(":")) == {"", "root"}]
    assert max(map(weight, always)) >= max(dark)


def test_returns_of_a_task_of_record_are_normalized_too(tmp_path):
    plain = make_run(tmp_path / "plain", FINAL["good"], recipe={**RECIPE, "run": {}})
    short = make_run(tmp_path / "short", FINAL["good"], recipe={**RECIPE, "run": {"eval_max_steps": 9}})
    light = make_run(tmp_path / "light", FINAL["good"], recipe={**RECIPE, "params": {"gravity": 1.0}, "run": {}})
    older = make_run(tmp_path / "older", FINAL["good"], recipe={**RECIPE, "params": {"mass": 1.0}, "run": {}})
    header, *rows = page(report([plain, short, light, older], tmp_path / "a.html")).table(["run", "algorithm"])
    at = header.index("normalized")
    middle = scores.normalized("CartPole-v1", (410 + 480) / 2)  # the IQM of four seeds
    assert [row[at] for row in rows] == [f"{middle:.2f}", "–", "–", "–"]
    header = page(report([short], tmp_path / "b.html")).table(["run", "algorithm"])[0]
    assert "normalized" not in header


def test_average_rewards_are_normalized_where_lengths_were_logged(tmp_path):
    """Of a motor, whose score is the average reward of a step: -40 in 1,000 steps."""
    id = "Cont-CC-PMSM-v0"
    folder = make_run(tmp_path / "run", -40.0, env=id, recipe={**RECIPE, "env_id": id, "run": {"eval_max_steps": 1000}})
    without = page(report([folder], tmp_path / "a.html")).table(["run", "algorithm"])[0]
    assert "normalized" not in without
    logged = (folder / "evaluations.jsonl").read_text().splitlines()
    rows = [{**row, "length": 1000.0} for row in map(json.loads, logged)]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    header, row = page(report([folder], tmp_path / "b.html")).table(["run", "algorithm"])
    share = scores.normalized(id, -40, 1000)
    assert row[header.index("normalized")] == f"{share:.2f}" and 0 < share < 1
    assert plot([folder], tmp_path / "c.png", "return", normalized=True).exists()
    with pytest.raises(RunFolderError, match="its scores are average rewards, which need the lengths"):
        plot([folder], tmp_path / "c.png", normalized=True)  # of training, whose rows have no lengths
