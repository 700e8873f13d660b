"""Which network distils a learning algorithm best: a transformer, or layers of a cell whose carry does not grow?

    python experiments/in_context/cells.py [--cells transformer gru s5] [--seeds 5]

Algorithm distillation in the permuted Darkroom, as `run.py` has it, on permutations that were held out. Goes on where
it was stopped: a row of cells.json is one network and seed. Prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from measure import online
from tasks import TASKS

import jaxrl
from jaxrl.algos.meta import dpt
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm
from jaxrl.nn.cells import CELLS

FILE = Path(__file__).with_name("cells.json")
NETWORKS = ("transformer", *(cell for cell in CELLS if cell != "frames"))
EPISODES = 40


def measure(network: str, seed: int) -> dict:
    """Mean return of each of 40 episodes on the held-out permutations, two copies of each."""
    task = TASKS["permuted"]().distilled()
    (stage,) = task.stages
    (phase,) = stage.phases
    rnn = "" if network == "transformer" else network
    algo = task.algorithm(phase.num_steps, phase.num_envs, rnn=rnn)
    steps = phase.num_steps * phase.num_envs * phase.updates
    hyper = dpt.Hyper(learning_rate=stage.learning_rate, warmup_steps=steps // 50, anneal_steps=steps)
    program = jax.jit(lambda key: jaxrl.train(algo, key, steps, hyper, task.params))
    compiled = program.lower(jax.random.key(0)).compile()
    begin = time.process_time()
    state, metrics = jax.block_until_ready(compiled(jax.random.key(seed)))
    seconds = time.process_time() - begin
    levels = jax.tree.map(lambda x: x.repeat(2, 0), task.held_out)
    length = int(task.params.max_steps)
    played = online(task, algo, state.weights, levels, jax.random.key(1000 + seed), EPISODES * length)
    returns = played["reward"].reshape(EPISODES, length, -1).sum(1).mean(1)
    accuracy = float(metrics["accuracy"][-10:].mean())
    return {"returns": returns.round(2).tolist(), "accuracy": round(accuracy, 3), "seconds": round(seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    found = json.loads(FILE.read_text()) if FILE.exists() else {"where": environment_of_run()}
    for seed in range(args.seeds):
        for network in args.cells:
            if str(seed) not in found.setdefault(network, {}):
                found[network][str(seed)] = measure(network, seed)
                FILE.write_text(json.dumps(found, indent=1) + "\n")
                print(network, seed, found[network][str(seed)]["returns"][-1], flush=True)
    print("| network | first | third | tenth | last ten, IQM | 95 % | accuracy | seeds | CPU s |\n|" + "---|" * 9)
    for network in NETWORKS:
        if rows := list(found.get(network, {}).values()):
            curve = np.asarray([row["returns"] for row in rows])
            last = curve[:, -10:].mean(1)
            low, high = bootstrap_interval(last)
            means = " | ".join(f"{curve[:, i].mean():.0f}" for i in (0, 2, 9))
            more = np.mean([[row["accuracy"], row["seconds"]] for row in rows], 0)
            end = f"{iqm(last):.0f} | {low:.0f} to {high:.0f} | {more[0]:.2f} | {len(rows)} | {more[1]:.0f} |"
            print(f"| {network} | {means} | {end}")


if __name__ == "__main__":
    main()
