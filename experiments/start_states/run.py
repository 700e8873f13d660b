"""Do stored start states speed up learning? S3RL from a teacher's snapshots, and a reverse curriculum from the goal.

    python experiments/start_states/run.py [--seeds 10] [--only snapshot|reverse] [--picture]

Writes results.json and results.png beside this file; `--picture` makes only the latter again.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from picture import report
from point_maze import FREE, GOAL, PointMaze, at

import jaxrl
from jaxrl.algos import ppo, sac
from jaxrl.algos.curricula import reverse_curriculum, snapshot
from jaxrl.environment import NO_LIMIT
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.registry import tuned
from jaxrl.wrappers import FromStates

HERE = Path(__file__).parent
TASKS = {  # student, environment steps, of which a tenth from snapshots, as in the paper; steps of the teacher
    "MountainCar-v0": ("ppo", 200_000, None),  # by hand: pushes the way it moves
    "Acrobot-v1": ("ppo", 100_000, 300_000),
    "Pendulum-v1": ("sac", 10_000, 20_000),
}
ARMS = {"scratch": None, "S3RL": (True, 100), "no limit": (True, NO_LIMIT), "no clusters": (False, 100)}
MAZE = ppo.Config(num_envs=64, num_steps=150, num_minibatches=8, hidden=(64, 64))
POINTS = 25  # of each curve


def curves(algo, hyper, params, steps, seeds, scores):
    """`scores(state, key)` of POINTS states of each training, (seeds, POINTS, ...), the steps, and seconds."""
    updates = max(1, steps // POINTS // algo.steps_per_update)

    def point(carry, key):
        state, _ = jax.lax.scan(lambda s, _: (algo.update(s)[0], None), carry, length=updates)
        return state, scores(state, key)

    def run(key):
        init_key, score_key = jax.random.split(key)
        return jax.lax.scan(point, algo.init(init_key, hyper, params), jax.random.split(score_key, POINTS))[1]

    begin = time.perf_counter()
    values = jax.block_until_ready(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds)))
    return (
        np.asarray(values).tolist(),
        (np.arange(1, POINTS + 1) * updates * algo.steps_per_update).tolist(),
        round(time.perf_counter() - begin, 1),
    )


def snapshots(seeds):
    rows = {}
    for id, (name, steps, teacher_steps) in TASKS.items():
        env, params = jaxrl.make(id)
        starts, module = FromStates(env), {"ppo": ppo, "sac": sac}[name]
        config, hyper = settings(name, module, id)
        algo = module.make(starts, config)
        train = jax.jit(jaxrl.train, static_argnums=(0, 2))
        teacher, _ = train(algo, jax.random.key(100), teacher_steps or 4000, hyper)
        guide = algo if teacher_steps else algo._replace(act=push)
        limit = int(params.max_steps)
        table = snapshot.take(
            jax.random.key(101), guide, algo.policy(teacher), env, params, snapshot.Config(max_steps=limit)
        )

        def score(state, key, algo=algo, env=env, params=params):
            return evaluate(algo, algo.policy(state), key, env, params, num_episodes=16, greedy=True).returns.mean()

        at_teacher = float(score(teacher, jax.random.key(102), guide))
        rows[id] = {"student": name, "snapshots": int((table.weights > 0).sum()), "teacher": at_teacher, "arms": {}}
        for arm, how in ARMS.items():
            student, start = algo, starts.default_params
            if how is not None:
                weights = table.weights if how[0] else (table.weights > 0).astype(float)
                start = starts.starting(params, table.states, weights, limit=how[1])
                student = snapshot.staged(algo, steps // 10)
            values, at_steps, seconds = curves(student, hyper, start, steps, seeds, score)
            rows[id]["arms"][arm] = {"values": values, "seconds": seconds}
            rows[id] |= {"steps": at_steps, "snapshot_steps": steps // 10}
            print(id, arm, np.mean(values, 0)[[2, 5, 12, -1]].round(1), f"{seconds} s", flush=True)
    return rows


def push(policy, key, obs, carry=(), greedy=False):
    return jnp.where(obs[..., 1] < 0, 0, 2), carry


def settings(name, module, id):
    """The tuned ones, with a constant learning rate: a curve then does not depend on where it ends."""
    if id == "MountainCar-v0":
        return module.Config(num_envs=16, normalize_obs=True, normalize_reward=True), module.Hyper(learning_rate=1e-3)
    found = tuned(name, id)
    return module.Config(**found.config), module.Hyper(**{k: v for k, v in found.hyper.items() if k != "anneal_steps"})


def reverse(seeds, steps=1_000_000):
    env, rows = PointMaze(), {}
    starts = FromStates(env)
    anywhere = starts.starting(env.default_params, at(FREE))
    hyper = ppo.Hyper(learning_rate=5e-4, ent_coef=0.001)
    student = ppo.make(jaxrl.vectorize(starts, MAZE.num_envs, batched_params=True), MAZE)
    teacher = reverse_curriculum.make(starts, at(GOAL[None]), reverse_curriculum.Config(walk_steps=25))
    plain = ppo.make(starts, MAZE)
    guide, _ = jax.jit(lambda key: jaxrl.train(plain, key, 300_000, hyper, anywhere))(jax.random.key(100))
    whole = snapshot.Config(max_steps=150)
    table = snapshot.take(jax.random.key(101), plain, plain.policy(guide), env, env.default_params, whole)
    arms = {
        "far start": (plain, starts.default_params),
        "uniform starts": (plain, anywhere),
        "reverse curriculum": (jaxrl.curriculum.attach(student, teacher), starts.default_params),
        "S3RL, 30 %": (
            snapshot.staged(plain, 300_000),
            snapshot.params_of(starts, env.default_params, table),
        ),
    }
    for arm, (algo, params) in arms.items():

        def score(state, key, algo=algo):
            far, uniform = (
                evaluate(algo, algo.policy(state), key, starts, p, num_episodes=64).returns.mean()
                for p in (starts.default_params, anywhere)
            )
            return jnp.stack([far, uniform])

        values, at_steps, seconds = curves(algo, hyper, params, steps, seeds, score)
        rows[arm] = {"values": values, "seconds": seconds}
        print(arm, np.mean(values, 0)[[2, 5, 12, -1]].round(2).tolist(), f"{seconds} s", flush=True)
    return {"steps": at_steps, "arms": rows}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=["snapshot", "reverse"])
    parser.add_argument("--picture", action="store_true")
    args = parser.parse_args()
    file = HERE / "results.json"
    if not args.picture:
        result = json.loads(file.read_text()) if file.exists() else {}
        for name, study in (("snapshot", snapshots), ("reverse", reverse)):
            if args.only in (None, name):
                result[name] = study(args.seeds)
                file.write_text(json.dumps({**result, **environment_of_run()}))
    report(json.loads(file.read_text()), HERE)


if __name__ == "__main__":
    main()
