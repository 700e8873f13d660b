"""Do synthetic transitions stand in for REDQ's ten critics? SAC online, half of each batch from a diffusion model.

    python experiments/synthetic_replay/online.py [--seeds 10] [--tasks Pendulum-v1]
    python experiments/synthetic_replay/online.py --seeds 3 --tasks "Reacher-v5, 128 wide" "Reacher-v5, 256 wide"

Writes online.json and online.png beside this file and prints the tables of README.md.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import edac
from jaxrl.data import diffusion
from jaxrl.data.transitions import Transition
from jaxrl.environment import pytree
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import curves_by_task
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import iqm, told
from jaxrl.replay.ring import Replay, take, uniform

HERE = Path(__file__).parent
SMALL = diffusion.Config(num_updates=3_000, batch_size=128, learning_rate=1e-3, width=64, num_steps=32)
LARGER = {
    128: diffusion.Config(num_updates=10_000, batch_size=256, learning_rate=1e-3, width=128, num_steps=64),
    256: diffusion.Config(num_updates=15_000, batch_size=256, learning_rate=1e-3, width=256, num_steps=128),
}
EPISODES = 16
# id: steps, steps between fits of the model and between evaluations, settings
TASKS = {
    "Pendulum-v1": (2_500, 250, dict(gamma=0.95, learning_starts=500)),
    "Reacher-v5": (5_000, 500, dict(gamma=0.95, learning_starts=1_000)),
}
LARGE = {f"Reacher-v5, {width} wide": (3_000, 1_000, TASKS["Reacher-v5"][2], LARGER[width]) for width in LARGER}
"""With the synthetic arm alone."""
REDQ = dict(num_critics=10, num_target_critics=2, mean_actor=True)
ARMS = {  # critics, gradient steps a step, with synthetic transitions
    "SAC, 1": (dict(num_critics=2), 1, False),
    "SAC, 10": (dict(num_critics=2), 10, False),
    "SAC + synthetic, 10": (dict(num_critics=2), 10, True),
    "REDQ, 10": (REDQ, 10, False),
}


@pytree
class Halves:
    own: Any  # a Ring
    synthetic: Transition  # leaves (count, ...)
    ready: jax.Array  # whether any was drawn yet


def half_synthetic(capacity: int, count: int) -> Replay:
    """A memory of which every second transition of a batch is synthetic, as soon as there are such."""
    ring = uniform(capacity)

    def init(item):
        return Halves(ring.init(item), jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), item), False)

    def add(state, batch):
        return state.replace(own=ring.add(state.own, batch))

    def sample(key, state, n):
        own_key, key = jax.random.split(key)
        own = ring.sample(own_key, state.own, n)
        synthetic = take(state.synthetic, jax.random.randint(key, (n,), 0, count))
        which = state.ready & (jnp.arange(n) % 2 == 1)
        return jax.tree.map(lambda x, y: jnp.where(which.reshape(n, *[1] * (x.ndim - 1)), y, x), own, synthetic)

    return Replay(init, add, sample)


def refreshed(key, memory: Halves, model: diffusion.Config) -> tuple[Halves, jax.Array]:
    """The memory with new synthetic transitions, of a model fitted from new weights to all that it holds."""
    own, like = memory.own, memory.own.items
    capacity, count = len(like.reward), len(memory.synthetic.reward)
    full = take(like, jnp.arange(capacity) % own.size)  # every transition as often as the others, but for one time
    rows, loss = diffusion.rows_like(
        key, jnp.concatenate([full.obs, full.action, full.reward[:, None], full.next_obs], 1), count, model
    )
    sizes = np.cumsum([like.obs.shape[1], like.action.shape[1], 1])
    obs, action, reward, next_obs = jnp.split(rows, sizes, 1)
    new = Transition(obs, jnp.clip(action, -1, 1), reward[:, 0], jnp.zeros(count, bool), next_obs)
    return memory.replace(synthetic=new, ready=jnp.bool_(True)), loss


def learning_curves(task: str, arm: str, keys) -> tuple[np.ndarray, np.ndarray]:
    """Returns (seeds, evaluations) of the greedy policy, and the model's losses."""
    steps, every, numbers, model = LARGE[task] if task in LARGE else (*TASKS[task], SMALL)
    critics, ratio, synthetic = ARMS[arm]
    env, params = jaxrl.make(task.partition(",")[0])
    config = edac.Config(num_updates=ratio, batch_size=128, hidden=(64, 64), diverse=False, **critics)
    algo = edac.make(env, config, replay=half_synthetic(steps, 2 * steps) if synthetic else uniform(steps))
    hyper = edac.Hyper(learning_rate=1e-3, alpha_learning_rate=1e-3, **numbers)

    def run(key):
        init_key, key = jax.random.split(key)

        def part(state, key):
            eval_key, model_key = jax.random.split(key)
            state = jax.lax.fori_loop(0, every, lambda _, state: algo.update(state)[0], state)
            policy, loss = algo.policy(state), jnp.nan
            if synthetic:
                memory, loss = refreshed(model_key, state.replay, model)
                state = state.replace(replay=memory)
            returns = evaluate(algo, policy, eval_key, env, params, num_episodes=EPISODES, greedy=True).returns.mean()
            return state, (returns, loss)

        first = algo.init(init_key, hyper, params)
        return jax.lax.scan(part, first, jax.random.split(key, steps // every))[1]

    returns, loss = jax.jit(lambda keys: jax.lax.map(run, keys))(keys)
    return np.asarray(returns), np.asarray(loss)


def report(results: dict[str, Any]) -> None:
    """The table and the figure."""
    print("| task | learner, gradient steps a step | after two fifths | mean of all | last | seconds a seed |")
    print("|" + "---|" * 6)
    panels = {}
    for task, rows in results.items():
        if task in LARGE:
            for arm in rows.keys() & ARMS.keys():
                last = np.mean(rows[arm]["returns"], 0)[-1]
                print(f"| {task} | {arm} | | | mean {last:.4g} | {rows[arm]['seconds a seed']:.0f} |")
            continue
        steps, every, _ = TASKS[task]
        at = np.arange(every, steps + 1, every)
        panels[task] = {arm: (at, np.asarray(rows[arm]["returns"])) for arm in ARMS}
        for arm, (_, returns) in panels[task].items():
            cells = [task, arm]
            for x in (returns[:, len(at) * 2 // 5 - 1], returns.mean(1), returns[:, -1]):
                cells.append(told(x, ".4g"))
            print("| " + " | ".join([*cells, f"{rows[arm]['seconds a seed']:.0f}"]) + " |")
    curves_by_task(panels, HERE / "online.png", "return of the greedy policy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), help="the others' results stay as they are")
    parser.add_argument("--picture", action="store_true", help="the table and the figure again")
    args = parser.parse_args()
    out, where = HERE / "online.json", environment_of_run()
    results = json.loads(out.read_text()) if out.exists() else {}
    keys = jax.random.split(jax.random.key(0), args.seeds)
    for task in [] if args.picture else args.tasks:
        results[task] = {"where": {k: where[k] for k in ("started", "device", "processors", "versions")}}
        for arm in (name for name, (*_, synthetic) in ARMS.items() if synthetic or task not in LARGE):
            begin = time.perf_counter()
            returns, loss = learning_curves(task, arm, keys)
            seconds = round((time.perf_counter() - begin) / args.seeds, 1)
            row = {"returns": returns.round(2).tolist(), "seconds a seed": seconds}
            if ARMS[arm][2]:
                row["denoising loss"] = loss.mean(0).round(4).tolist()
            results[task][arm] = row
            print(task, arm, [round(iqm(x), 1) for x in returns.T], seconds, flush=True)
        out.write_text(json.dumps(results, indent=None, separators=(",", ": ")) + "\n")
    report(results)


if __name__ == "__main__":
    main()
