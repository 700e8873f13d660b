"""Pretraining in stages of longer and longer contexts, and the weights on disk."""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tasks import Task

from jaxrl.algos.meta import dpt

CHUNK = 50  # updates a compiled scan


def pretrain(task: Task, file: Path, done: int = 0) -> None:
    """Train, saving weights and curve as they come; go on from `file` where `done` stages lie behind it."""
    weights, curve, seconds = load(task, file) if done else (None, [], 0.0)
    for number, stage in enumerate(task.stages[done:], done):
        before = curve[-1][1] if curve else 0
        steps = sum(phase.num_steps * phase.num_envs * phase.updates for phase in stage.phases)
        hyper = dpt.Hyper(learning_rate=stage.learning_rate, warmup_steps=steps // 50, anneal_steps=steps)
        state, compiled = None, {}
        for i, phase in enumerate(stage.phases):
            algo = task.algorithm(phase.num_steps, phase.num_envs, phase.source)
            fresh = jax.jit(algo.init)(jax.random.key(1000 * number + i), hyper, task.params)
            if state is not None:  # other contexts, the same learner
                fresh = fresh.replace(weights=state.weights, optimizer=state.optimizer, step=state.step)
            elif weights is not None:
                fresh = fresh.replace(weights=weights)
            state = fresh
            run = compiled.setdefault(algo, jax.jit(lambda s, algo=algo: jax.lax.scan(_update(algo), s, length=CHUNK)))
            for _ in range(phase.updates // CHUNK):
                begin = time.process_time()
                state, metrics = run(state)
                row = [
                    phase.num_steps,
                    before + int(state.step),
                    *(float(metrics[k].mean()) for k in ("loss", "accuracy")),
                ]
                seconds += time.process_time() - begin
                curve.append(row)
                save(file, state.weights, curve, seconds)
                print(file.stem, *row, round(seconds), flush=True)
        weights = state.weights


def _update(algo):
    return lambda state, _: algo.update(state)


def save(file: Path, weights, curve: list, seconds: float) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    leaves = {f"leaf{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(weights))}
    np.savez(file, curve=np.asarray(curve), seconds=seconds, **leaves)


def load(task: Task, file: Path):
    """`(weights, curve, CPU seconds)`; a row of the curve is context length, steps, loss, accuracy."""
    algo = task.algorithm(8, 8)  # the weights do not depend on the context's length
    like = jax.eval_shape(lambda: algo.init(jax.random.key(0), None, task.params)).weights
    with np.load(file) as data:
        leaves = [jnp.asarray(data[f"leaf{i}"]) for i in range(len(jax.tree.leaves(like)))]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), data["curve"].tolist(), float(data["seconds"])
