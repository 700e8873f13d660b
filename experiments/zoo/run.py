"""Trains the policies that ship with the library, and stores them: jaxrl/zoo/policies/<algorithm>/<id>.npz.

    python experiments/zoo/run.py [--only ppo/CartPole-v1 ...]

Each by a command that anybody can repeat; of its seeds the one with the highest return is kept.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

MOTOR = (
    "--config.num-envs 64 --config.num-steps 64 --config.num-epochs 5 --config.num-minibatches 8 --config.normalize-obs"
)
MOTOR += " --config.normalize-reward --config.no-clip-value --hyper.learning-rate 1e-3 --hyper.ent-coef 0"

WORDS = {
    "ppo/CartPole-v1": "--seeds 4",
    "ppo/Acrobot-v1": "--seeds 4",
    "ppo/Pendulum-v1": "--seeds 4",
    "ppo/MountainCarContinuous-v0": "--seeds 4",
    "sac/Pendulum-v1": "",
    "td3/Pendulum-v1": "",
    "dqn/CartPole-v1": "",
    "pqn/CartPole-v1": "--seeds 4",
    "apg/Quadcopter-Hover-v0": "--total-steps 1000000 --seeds 2",
    "ppo/Quadcopter-MultiHover-v0": "--no-tuned --total-steps 4000000 --seeds 3 --config.num-envs 64 "
    "--config.num-steps 64 --config.num-minibatches 8 --config.normalize-obs --config.normalize-reward "
    "--config.no-clip-value --hyper.learning-rate 1e-3 --hyper.anneal-steps 4000000 --hyper.ent-coef 0",
    "ppo/Quadcopter-GateRacing-v0": "--no-tuned --total-steps 4000000 --seeds 3 --env.frame body "
    "--params.weights.course 5 --params.weights.progress 0 --params.weights.gate 0 --params.weights.crash 1 "
    "--config.num-envs 256 --config.num-steps 32 --config.num-minibatches 8 --config.activation elu "
    "--config.normalize-obs --config.normalize-reward --config.no-clip-value --config.stop-on-kl "
    "--hyper.learning-rate 1e-3 --hyper.anneal-steps 4000000 --hyper.ent-coef 0 --hyper.target-kl 0.03",
    "ppo/Cont-CC-PMSM-v0": "--no-tuned --total-steps 1000000 --env.dq-actions --eval-max-steps 1000 "
    f"--hyper.gamma 0.5 {MOTOR}",
    "ppo/Cont-CC-SeriesDc-v0": f"--no-tuned --total-steps 1000000 --eval-max-steps 1000 --hyper.gamma 0.9 {MOTOR}",
    "ppo_rnn/Maze-v0": "--total-steps 1000000 --curriculum plr --curriculum.config.buffer-size 512 "
    "--curriculum.config.no-robust",
    "ppo/MiniGrid-Empty-8x8-v0": "--no-tuned --total-steps 500000 --config.num-envs 32",
    "ppo/MiniGrid-DoorKey-5x5-v0": "--no-tuned --total-steps 1000000 --config.num-envs 32",
    "ppo/BabyAI-GoToRedBallNoDists-v0": "--no-tuned --total-steps 1000000 --config.num-envs 32",
    "pqn/Breakout-MinAtar": "--total-steps 3000000 --params.sticky-action-prob 0 --params.max-steps 1000",
    "ppo/Catch-bsuite": "--no-tuned --total-steps 100000 --seeds 4",
    "ppo/CliffWalking-v1": "--no-tuned --total-steps 200000 --seeds 4",
    "ppo/Snake-v0": "--no-tuned --total-steps 1000000 --config.num-envs 32",
    "ppo/Fishery-v0": "--no-tuned --total-steps 300000 --config.num-envs 32 --config.num-steps 200 "
    "--config.num-epochs 6 --config.num-minibatches 32 --config.normalize-obs --config.no-clip-value "
    "--hyper.learning-rate 1e-3 --hyper.ent-coef 0 --hyper.anneal-steps 300000",
    "ppo/InvertedPendulum-v5": "--total-steps 1000000 --seeds 2 --config.num-envs 16 --config.num-steps 256 "
    "--config.normalize-obs --hyper.learning-rate 1e-3 --hyper.ent-coef 0 --hyper.anneal-steps 1000000",
    "ppo/StumpWalker-v0": "--seeds 3",
    "ppo/LettuceGreenhouse-v0": "--seeds 3",
    "ppo/Knapsack-v0": "--seeds 3",
    "ppo/GridWorld-small-v0": "--seeds 3",
    "ppo/DuelingBandit-v0": "--seeds 2",
    "ppo/MemoryAllocation-A-v0": "--seeds 3",
    "ppo/CircuitDesign-H2-2-v0": "--seeds 3 --hyper.gamma 0.88",
    "ppo_rnn/TMazePassive-v0": "",
    "ppo_rnn/XLand-MiniGrid-R1-9x9": "--seeds 3",
    "map_elites/HardMaze-v0": "--total-steps 5000000 --config.population-size 200 --config.hidden 5 5 "
    "--config.descriptor x y --config.cells 30 --config.num-steps 250 --seeds 3 --params.max-steps 250 "
    "--params.max-speed 0.025",
    "spo/CartPole-v1": "--total-steps 1000000 --hyper.anneal-steps 1000000 --seeds 3",
    "ppo/OpenGrid-v0": "--no-tuned --total-steps 200000 --config.num-envs 32 --eval-max-steps 200",
    "ppo/PointMass-v0": "--no-tuned --total-steps 300000",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(WORDS), choices=WORDS, metavar="NAME")
    parser.add_argument("--runs", type=Path, default=Path("runs/zoo"))
    args = parser.parse_args()
    for name in args.only:
        algo, env = name.split("/")
        out = args.runs / f"{algo}-{env}"
        words = ["train", algo, env, *WORDS[name].split()]
        begin = time.perf_counter()
        run = [sys.executable, "-m", "jaxrl", *words, "--out", out, "--overwrite", "--no-progress"]
        if subprocess.run(run, stdout=subprocess.DEVNULL).returncode:
            print(f"{name}: its training failed", file=sys.stderr)
            continue
        print(f"{time.perf_counter() - begin:4.0f} s  ", end="", flush=True)
        subprocess.run(
            [sys.executable, "-m", "jaxrl.zoo", out, name, "--command", " ".join(["jaxrl", *words])], check=True
        )


if __name__ == "__main__":
    main()
