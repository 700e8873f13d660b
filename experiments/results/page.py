"""The rows of docs/results.md, the page itself, and its figures."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from jaxrl import registry
from jaxrl.host.plotting import bars, curves_by_task
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1]))  # `tools` is in the checkout, not installed

from tools.tables import algorithm_page  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "results.md"


class Row(NamedTuple):
    """A pair of jaxrl/tuned.toml and what it must reach."""

    algo: str
    env: str
    bar: float
    published: str = ""
    greedy: bool | None = None  # evaluated by the mode of the policy; None: as the algorithm is deployed
    config: dict[str, Any] = {}  # beside the tuned ones
    hyper: dict[str, Any] = {}
    params: dict[str, Any] = {}  # of the environment, where they are not its default
    tuned: str = ""  # the algorithm whose tuned settings it takes, if not its own


# HL-Gauss takes C51's tuned row: the range of returns and everything else but the loss.
HL_GAUSS = {"critic": "hl_gauss", "double": False}
# gymnax's MinAtar, on which PQN's and others' results were made: no sticky actions, and a limit.
GYMNAX = {"sticky_action_prob": 0.0, "max_steps": 1000}
ROWS = {
    "ppo/CartPole-v1": Row("ppo", "CartPole-v1", 490, "CleanRL 490.0 ± 6.1"),
    "ppo/Acrobot-v1": Row("ppo", "Acrobot-v1", -87, "CleanRL -86.4 ± 1.3"),
    "ppo/Pendulum-v1": Row("ppo", "Pendulum-v1", -170),
    "ppo/MountainCarContinuous-v0": Row("ppo", "MountainCarContinuous-v0", 90),
    "ppo/InvertedPendulum-v5": Row("ppo", "InvertedPendulum-v5", 960, "CleanRL, v4 963.1 ± 22.2"),
    "ppo/Reacher-v5": Row("ppo", "Reacher-v5", -5),
    "ppo/Hopper-v5": Row("ppo", "Hopper-v5", 2300, "CleanRL, v4 2382.9 ± 271.7"),
    "ppo/Walker2d-v5": Row("ppo", "Walker2d-v5", 2280, "CleanRL, v4 2288.0 ± 571.8"),
    "ppo/HalfCheetah-v5": Row("ppo", "HalfCheetah-v5", 1440, "CleanRL, v4 1442.6 ± 46.0"),
    "dqn/CartPole-v1": Row("dqn", "CartPole-v1", 488, "CleanRL 488.7 ± 16.1"),
    "dqn/Acrobot-v1": Row("dqn", "Acrobot-v1", -90, "CleanRL -91.5 ± 7.2"),
    "dqn hl_gauss/CartPole-v1": Row("dqn", "CartPole-v1", 485, config=HL_GAUSS, tuned="c51"),
    "dqn hl_gauss/Acrobot-v1": Row("dqn", "Acrobot-v1", -92, config=HL_GAUSS, tuned="c51"),
    "c51/CartPole-v1": Row("c51", "CartPole-v1", 485, "CleanRL 481.2"),
    "c51/Acrobot-v1": Row("c51", "Acrobot-v1", -92, "CleanRL -87.7"),
    "c51/MountainCar-v0": Row("c51", "MountainCar-v0", -170, "CleanRL -166.4"),
    "qr_dqn/CartPole-v1": Row("qr_dqn", "CartPole-v1", 485),
    "qr_dqn/Acrobot-v1": Row("qr_dqn", "Acrobot-v1", -92),
    "pqn/CartPole-v1": Row("pqn", "CartPole-v1", 485, "CleanRL 495.1 ± 6.9"),
    "pqn/Acrobot-v1": Row("pqn", "Acrobot-v1", -92, "CleanRL -95.6 ± 5.7"),
    "sac/Pendulum-v1": Row("sac", "Pendulum-v1", -160),
    "sac/InvertedPendulum-v5": Row("sac", "InvertedPendulum-v5", 900, "CleanRL, v4, 1M steps 909.4 ± 55.7"),
    "sac/Reacher-v5": Row("sac", "Reacher-v5", -5),
    "sac/Hopper-v5": Row("sac", "Hopper-v5", 2300, "CleanRL, v4, 1M steps 2310.5 ± 342.8"),
    "sac/HalfCheetah-v5": Row("sac", "HalfCheetah-v5", 3000, "CleanRL, v4, 1M steps 9634.9 ± 1423.7"),
    "td3/Pendulum-v1": Row("td3", "Pendulum-v1", -160),
    "ddpg/Pendulum-v1": Row("ddpg", "Pendulum-v1", -160),
    "crossq/Pendulum-v1": Row("crossq", "Pendulum-v1", -160),
    "apg/Pendulum-v1": Row("apg", "Pendulum-v1", -170),
    "rnd/MountainCar-v0": Row("rnd", "MountainCar-v0", -170),
    "rnd rdd/MountainCar-v0": Row("rnd", "MountainCar-v0", -170, config={"bonus": "rdd"}),
    "iqn/CartPole-v1": Row("iqn", "CartPole-v1", 485),
    "iqn/Acrobot-v1": Row("iqn", "Acrobot-v1", -92),
    "rainbow/CartPole-v1": Row("rainbow", "CartPole-v1", 485),
    "rainbow/Acrobot-v1": Row("rainbow", "Acrobot-v1", -92),
    "evolution/CartPole-v1": Row("evolution", "CartPole-v1", 485),
    "alphazero/CartPole-v1": Row("alphazero", "CartPole-v1", 485),
    "alphazero/Knapsack-v0": Row(
        "alphazero", "Knapsack-v0", 19.8, "dynamic programming 20.01", params={"max_steps": 50}
    ),
    "a2c/CartPole-v1": Row("a2c", "CartPole-v1", 485, greedy=True),
    "reinforce/CartPole-v1": Row("reinforce", "CartPole-v1", 485, greedy=True),
    "pqn/Asterix-MinAtar": Row("pqn", "Asterix-MinAtar", 15, "gymnax's PPO 15", params=GYMNAX),
    "pqn/Breakout-MinAtar": Row("pqn", "Breakout-MinAtar", 28, "gymnax's PPO 28", params=GYMNAX),
    "pqn/Freeway-MinAtar": Row("pqn", "Freeway-MinAtar", 58, "gymnax's PPO 58", params={**GYMNAX, "max_steps": 2500}),
    "pqn/SpaceInvaders-MinAtar": Row("pqn", "SpaceInvaders-MinAtar", 131, "gymnax's PPO 131", params=GYMNAX),
}

NOTES = """
MinAtar: two seeds a game (`--seeds 2 --only pqn/Asterix-MinAtar ...`), an MLP instead of PQN's convolution (`conv`).
With the convolution it took 8,100 steps a second where the MLP took 37,900 (tries on Breakout, the same loaded core,
2026-11-30). At that speed ten seeds of four games take 14 hours of a core, Freeway more. They were not run.
Rainbow and IQN were run on Acrobot alone. ReBRAC on Hopper's medium data is in
[what offline learners get](../experiments/offline_returns/README.md).
The published figures are PPO's of gymnax's README, which states no number of steps; PQN's own are pictures only.

SAC on Hopper-v5 has the published steps and networks of 64, five seeds (`--seeds 5 --only sac/Hopper-v5`), an hour: two
stand at 3,480, one falls at 850. IQN draws 8 fractions on both sides, where its paper has 64 (five seeds). Published
figures of the `-v5` tasks are CleanRL's training returns on Gymnasium's `-v4`, after a million steps.

AlphaZero on Knapsack-v0: 50 items, of which an episode draws its own; 20.01 is the mean optimum of 256 other draws,
which a mean of 128 episodes may exceed.

C51's mean on MountainCar-v0 hides two kinds of seed: those that ever reach the flag end near -100, the others at -200.
"""

STUDIES = """
## Studies

Other questions have a study each, with its command, settings, intervals and figures; they are listed by topic,
with their answers: [studies](../experiments/README.md).
"""

COLUMNS = ["algorithm", "environment", "steps", "seeds", "mean", "IQM", "95 % interval", "lowest seed", "bar"]
COLUMNS += ["published", "s/seed", "compile s"]


def page(results: dict[str, dict], episodes: int) -> None:
    """Write docs/results.md."""
    lines = [
        "# Results",
        "",
        f"Mean return of {episodes} full episodes of the final policy, as each algorithm is deployed "
        "(`Algorithm.deployed`: greedy, but samples for ppo and rnd and the search of alphazero), and greedy for a2c "
        "and reinforce. Others' published numbers are often training returns, with exploration. Settings: "
        "`jaxrl/tuned.toml`. Interval: 95 % bootstrap of the IQM over seeds. Made by "
        "`python experiments/results/run.py` (`make results`).",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    for pair, result in ((pair, results[pair]) for pair in ROWS if pair in results):
        row, returns = ROWS[pair], np.array(result["returns"])
        interval = "{:.1f} to {:.1f}".format(*bootstrap_interval(returns))
        task = row.env + "".join(f", {name} {value:g}" for name, value in row.params.items())
        cells = [pair.split("/")[0], task, f"{result['total_steps']:,}", len(returns), f"{returns.mean():.1f}"]
        cells += [f"{iqm(returns):.1f}", interval, f"{returns.min():.1f}", row.bar, row.published]
        cells += [result["run_seconds_a_seed"], result["compile_seconds"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    made = sorted({f"{r['date']}, {r['device']}, {r['versions']}" for r in results.values()})
    lines += ["", "Machine: " + "; ".join(made) + ". The machine was shared: seconds are no benchmark.", ""]
    lines += [NOTES.strip(), ""]
    lines += ["Returns while training (with exploration), IQM over seeds and its 95 % interval:", ""]
    lines += ["![learning curves](media/results.png)", ""]
    PAGE.write_text("\n".join(lines) + STUDIES)


def draw(results: dict[str, dict], curves: dict[str, np.ndarray]) -> None:
    """The curves a task, those of each algorithm's page, and every seed's final return in units of its bar."""
    tasks: dict[str, dict[str, tuple]] = {}
    on_page: dict[str, dict[str, dict[str, tuple]]] = {}
    for pair, row in ROWS.items():
        if pair in results and pair in curves:
            name = pair.split("/")[0]
            curve = np.linspace(0, results[pair]["total_steps"], curves[pair].shape[1] + 1)[1:], curves[pair]
            tasks.setdefault(row.env, {})[name] = curve
            page = algorithm_page(registry.get_algo(row.algo).__name__.removeprefix("jaxrl.algos."))
            on_page.setdefault(Path(page).stem, {}).setdefault(row.env, {})[name] = curve
    media = PAGE.parent / "media"
    curves_by_task(tasks, media / "results.png")
    for name, of in on_page.items():
        small(curves_by_task(of, media / "curves" / f"{name}.png"))
    scores = {p: np.array(r["returns"]) / abs(ROWS[p].bar) for p, r in results.items()}
    bars(scores, HERE / "results.png", "return over the bar's magnitude", {p: np.sign(ROWS[p].bar) for p in scores})


def small(picture: Path, limit: int = 30_000) -> None:
    """Rewrite a picture with fewer colours and, if that is not enough, smaller, until it has at most so many bytes."""
    image = Image.open(picture).convert("RGB")
    width = image.width
    while True:
        scaled = image.resize((width, image.height * width // image.width), Image.Resampling.LANCZOS)
        scaled.quantize(96, dither=Image.Dither.NONE).save(picture, optimize=True)
        if picture.stat().st_size <= limit:
            return
        width = width * 9 // 10
