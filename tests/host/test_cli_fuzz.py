"""Wrong words of many kinds, thrown at the command in one process: each ends at once, in a few lines."""

import contextlib
import io

import pytest

from jaxrl.host import cli
from jaxrl.host.cli import flags
from jaxrl.host.run import fit as fitting

SIZES = ("0", "-1", "1e10", "1e30", "1e99", "99999999999999999999999999999999", "nan", "1.5", "x", "", "64,64", "[8]")
"""What is no size, or one that nothing has."""

COUNTS = ("--seeds", "--config.num-envs", "--config.num-steps", "--config.hidden", "--env.height")
TRAIN = "train ppo Maze-v0"

WORDS = [
    *(f"{TRAIN} {flag}={value}" for flag in COUNTS for value in SIZES),
    "train",
    "train ppo FrozenLake-v1 --env.rows 0",
    "train ppo FrozenLake-v1 --env.rows 10000000000",
    "train ppo CoupledRestlessMatching-v0 --env.num-arms 10000000000",
    "train ppo Maze-v0 --eval-levels 1000000000000",
    "train ppo CartPole-v1 --eval-max-steps 12345678901234567890",
    "sweep ppo FrozenLake-v1 --env.rows 0 --hyper.gamma 0.9 0.99",
    "bench CartPole-v1 --repeats 12345678901234567890",
    "bench CartPole-v1 --steps 12345678901234567890",
    "dataset make CartPole-v1 --recipe expert --train-steps 12345678901234567890",
    "train ppo Humanoid-v5",
    "train ppo CartPole-v1 --drop obs.x",
    "train ppo CartPole-v1 --max-episode-steps 5",
    "train ppo",
    "train ppo --seeds 3",
    "train --seeds 3 ppo CartPole-v1",
    "train CartPole-v1 ppo",
    "train cartpole-v1 dqn",
    "train cartpole-v1",
    "train plr Maze-v0",
    "train ppo CartPole-v1 Pendulum-v1",
    "train ppo CartPole-v1 --seed 1e20",
    "train ppo CartPole-v1 --seed 8589934592",
    "train ppo CartPole-v1 --seeds 100000000",
    "train ppo CartPole-v1 --eval-episodes 1e12",
    "train ppo CartPole-v1 --eval-episodes 0",
    "train ppo CartPole-v1 --total-steps 1e99",
    "train ppo CartPole-v1 --hyper.anneal-steps 1e30",
    "train ppo CartPole-v1 --hyper.gamma 1e30",
    "train ppo CartPole-v1 --params.max-steps 1e30",
    "train ppo CartPole-v1 --params.length",
    "train ppo CartPole-v1 --config.activation nope",
    "train ppo CartPole-v1 --config.optimizer nope",
    "train ppo CartPole-v1 --config.normalize-obs maybe",
    "train ppo CartPole-v1 --config.conv 16",
    "train ppo CartPole-v1 --config.num-envs 4 8",
    "train ppo CartPole-v1 --config.num-envs 65536 --config.num-steps 65536",
    "train ppo CartPole-v1 --log nope",
    "train ppo CartPole-v1 --act quietly",
    "train ppo CartPole-v1 --mesh nope",
    "train ppo CartPole-v1 --memory lots",
    "train ppo CartPole-v1 --memory 1KB",
    "train ppo CartPole-v1 --curriculum",
    "train ppo CartPole-v1 --curriculum nope",
    "train ppo CartPole-v1 --curriculum plr --curriculum.config.buffer-size 0",
    "train ppo CartPole-v1 --dataset nowhere.npz",
    "train ppo CartPole-v1 --rank 1",
    "train dqn CartPole-v1 --config.buffer-size 1e12",
    "train dqn CartPole-v1 --config.buffer-size 2e9",
    "train dqn CartPole-v1 --config.batch-size 0",
    "train sac Pendulum-v1 --config.hidden 100000 1000000",
    "train td3 CartPole-v1",
    "train ./nothing.py CartPole-v1",
    "train ppo nothing:Here",
    "sweep ppo CartPole-v1",
    "sweep ppo CartPole-v1 --hyper.gamma 0.9 0.99 --seeds 1e12",
    "sweep ppo CartPole-v1 --hyper.gamma 0.9 0.99 --random 1e12",
    "sweep ppo CartPole-v1 --hyper.gamma 0.9 high",
    "sweep ppo CartPole-v1 --config.num-envs 4 8",
    "sweep ppo CartPole-v1 --hyper.gamma",
    "sweep ppo CartPole-v1 --hyper.gamma 0.9 0.99 --plan pbs --at-once 1",
    "sweep ppo CartPole-v1 --hyper.gamma 0.9 0.99 --program first --out x",
    "train ppo CartPole-v1 --params.gravity inf",
    "train ppo CartPole-v1 --params.force-mag nan",
    "train ppo CartPole-v1 --config.adam-eps nan",
    "train ppo CartPole-v1 --config.adam-eps=-1",
    "dataset make CartPole-v1 --algo ppo",
    "dataset make CartPole-v1 --recipe medium --algo nosuch",
    "sweep CartPole-v1 ppo --hyper.gamma 0.9 0.99",
    "compile ppo CartPole-v1",
    "compile ppo CartPole-v1 --for toaster",
    "compile CartPole-v1 ppo --for tpu-v5e",
    "meta-train",
    "meta-train nope --tasks GridWorld-small-v0",
    "meta-test lpg",
    "meta-test nowhere GridWorld-small-v0",
    "resume",
    "resume nowhere",
    "resume zoo:ppo/CartPole-v1",
    "eval zoo:nope",
    "eval zoo:ppo/CartPole-v1 --seed 3",
    "eval zoo:ppo/CartPole-v1 --key 1e30",
    "eval zoo:ppo/CartPole-v1 --episodes 1e12",
    "eval zoo:ppo/CartPole-v1 --episodes many",
    "render zoo:ppo/CartPole-v1 --out film.avi",
    "render zoo:ppo/CartPole-v1 --seed 1",
    "render zoo:ppo/CartPole-v1 --key 1e30",
    "export zoo:ppo/CartPole-v1 --format pdf",
    "export zoo:ppo/CartPole-v1 --seed -1",
    "plot nowhere --window 0",
    "plot nowhere --out curves.nope",
    "plot --episode zoo:ppo/CartPole-v1 --out episode.nope",
    "report zoo:ppo/CartPole-v1",
    "report nowhere",
    "dataset",
    "dataset nope",
    "dataset make CartPole-v1 --steps 0",
    "dataset make CartPole-v1 --steps 1e15",
    "dataset make CartPole-v1 --seed 1e30",
    "dataset make CartPole-v1 --recipe nope",
    "dataset info nowhere.npz",
    "envs nothing",
    "envs pole v1",
    "envs --nope",
    "algos nothing",
    "zoo nothing",
    "bench --num-envs 1e12",
    "bench --repeats -1",
    "bench Nope-v1",
    "nope",
    "--nope",
    "help nope",
]


@pytest.fixture(scope="module", autouse=True)
def nothing_is_trained():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "Program", lambda *_, **__: pytest.fail("it trains"))
        yield


@pytest.mark.parametrize("words", WORDS)
def test_wrong_words_end_in_a_few_lines(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(words.split())
    said = err.getvalue()
    assert status in (1, 2), (status, out.getvalue(), said)
    assert 1 <= len(said.splitlines()) <= 5 and "Traceback" not in said, said
    assert not list(tmp_path.iterdir())


def test_an_error_of_an_ascii_terminal_is_as_short(monkeypatch):
    box = """Unrecognized options
-----------------------------------------------------------
Unrecognized options: --hyper.gama, 0.9
-----------------------------------------------------------
Perhaps you meant:
    --hyper.gamma FLOAT
-----------------------------------------------------------
For full helptext, run jaxrl train ppo CartPole-v1 --help"""
    said = flags._in_few_lines(box, ["--hyper.gama", "0.9"])
    assert said == "Unrecognized options: --hyper.gama, 0.9\n  Near: --hyper.gamma FLOAT"
