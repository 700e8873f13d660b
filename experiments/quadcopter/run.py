"""How fast does a policy learn to hover from rotor speeds, and how well does it hover and track?

    python experiments/quadcopter/run.py [--only apg] [--seeds 10]

Each recipe of recipes.py, compiled once and trained seed after seed. The policy is then flown for 100 episodes of 5 s
from the task's random starts with its noise, motor lag and disturbances (`Quadcopter-Hover-v0` without `guidance`), and
along learning-to-fly's figure-eight. Writes results.json and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from recipes import apg_recipe, td3_recipe

from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
RECIPES = {"td3": td3_recipe, "apg": apg_recipe}
EPISODES, STEPS = 100, 500
SIZES = 1, 2  # of the eight: learning-to-fly's on hardware, and that of its simulation


def figure_eight(t, size):
    """Position and velocity at a time [s] on an eight of 2 `size` by `size` [m] in 5.5 s, as in learning-to-fly."""
    rate = 2 * jnp.pi / 5.5
    phase = rate * t + jnp.pi / 2
    position = size * jnp.stack([0.5 * jnp.sin(2 * phase), jnp.cos(phase), 0 * t])
    return position, size * rate * jnp.stack([jnp.cos(2 * phase), -jnp.sin(phase), 0 * t])


def fly(algo, policy, key, path=None):
    """A greedy episode: distances from the target [m], (STEPS,), and whether the drone is still in the arena.

    With a `path` the drone starts on it, and the policy sees its position and velocity relative to it, within 0.6 m and
    5 m/s: what it knows from hovering.
    """
    env = algo.venv.env
    params = env.default_params.replace(guidance=jnp.float32(path is not None))
    if path is not None:
        params = params.replace(arena=jnp.float32(1e3), start_velocity=jnp.float32(0), start_rates=jnp.float32(0))

    def seen(obs, t):
        position, velocity = (jnp.zeros(3),) * 2 if path is None else path(t)
        own = obs["obs"] if env.privileged else obs
        own = own.at[:3].set(jnp.clip(own[:3] - position, -0.6, 0.6))
        own = own.at[12:15].set(jnp.clip(own[12:15] - velocity, -5, 5))
        return {"obs": own} if env.privileged else own

    def step(carry, key):
        obs, state, alive = carry
        act_key, step_key = jax.random.split(key)
        action, _ = algo.act(policy, act_key, seen(obs, state.time * params.dt), (), greedy=True)
        ts = env.step(step_key, state, action, params)
        target = 0 if path is None else path(ts.state.time * params.dt)[0]
        distance = jnp.linalg.norm(jnp.stack(ts.state.drone.position) - target)
        alive = alive & ~ts.terminated
        return (ts.obs, ts.state, alive), (distance, alive)

    reset_key, key = jax.random.split(key)
    obs, state = env.reset(reset_key, params)
    if path is not None:
        state = state.replace(drone=state.drone._replace(velocity=tuple(path(jnp.float32(0))[1])))
        obs = env.observe(key, state, params)
    steps = STEPS if path is None else 1100  # two rounds
    return jax.lax.scan(step, (obs, state, jnp.bool_(True)), jax.random.split(key, steps))[1]


def measure(name, seeds):
    algo, train = RECIPES[name]()
    begin = time.perf_counter()
    program = jax.jit(train).lower(jax.random.key(0)).compile()
    compile_seconds = time.perf_counter() - begin

    @jax.jit
    def judge(policy, key):
        keys = jax.random.split(key, EPISODES)
        hovers = jax.vmap(lambda key: fly(algo, policy, key))(keys)
        eights = [
            jax.vmap(lambda key, s=s: fly(algo, policy, key, lambda t: figure_eight(t, s))[0])(keys) for s in SIZES
        ]
        return hovers, eights

    rows = []
    for seed in range(seeds):
        begin = time.perf_counter()
        policy = jax.block_until_ready(program(jax.random.key(seed)))
        seconds = time.perf_counter() - begin
        (distance, alive), eights = jax.tree.map(np.asarray, judge(policy, jax.random.key(1000 + seed)))
        survived = alive[:, -1]
        error = distance[survived][:, -200:].mean() if survived.any() else np.nan  # of the last 2 s
        rows.append({"seconds": seconds, "survived": survived.mean(), "hover_error": error})
        for size, tracking in zip(SIZES, eights, strict=True):
            rows[-1][f"tracked_{size}"] = (tracking.max(1) < 0.6).mean()
            rows[-1][f"tracking_error_{size}"] = np.median(tracking[:, 550:].mean(1))
        rows[-1] = {name: round(float(x), 4) for name, x in rows[-1].items()}
        print(name, seed, rows[-1], flush=True)
    return {"compile_seconds": compile_seconds, "seeds": rows, "where": environment_of_run()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", default=list(RECIPES), choices=RECIPES)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    path = HERE / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in args.only:
        results[name] = measure(name, args.seeds)
        path.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
