"""When is a learned policy better than a tuned rule? Three fisheries, two classical rules and PPO.

    python experiments/fishery/run.py [--steps 300000] [--seeds 3] [--episodes 2000]

Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from picture import picture, table

import jaxrl
from jaxrl.algos import ppo
from jaxrl.envs.classic.fishery import Fishery, constant_escapement, constant_mortality
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
MODELS = {"one fishery": (1, 0.0), "two fisheries": (2, 0.0), "two, r_x falling": (2, 0.005)}
RULES = {"constant mortality": (constant_mortality, 0.5), "constant escapement": (constant_escapement, 1.0)}
CONFIG = ppo.Config(num_envs=32, num_steps=200, num_epochs=6, num_minibatches=32, normalize_obs=True, clip_value=False)


def play(env, params, effort, key):
    """One episode under `effort(obs, state) -> action`: `(return, whether a population was lost)`."""
    reset_key, run_key = jax.random.split(key)
    obs, state = env.reset(reset_key, params)

    def year(carry, key):
        obs, state, on, total = carry
        ts = env.step(key, state, effort(obs, state), params)
        return (ts.obs, ts.state, on & ~ts.terminated, total + jnp.where(on, ts.reward, 0)), None

    keys = jax.random.split(run_key, 200)
    (_, _, kept, total), _ = jax.lax.scan(year, (obs, state, jnp.bool_(True), jnp.float32(0)), keys)
    return total, ~kept


def under_rule(env, params, rule, knobs, keys):
    """Returns and losses (episodes,) of one rule, with a knob a fishery."""

    def effort(obs, state):
        return jnp.stack([rule(*pair) for pair in zip((state.x, state.y), knobs, strict=False)])

    return jax.vmap(lambda key: play(env, params, effort, key))(keys)


def measure(args, num_fisheries, drift, key):
    env = Fishery(num_fisheries)
    params = env.default_params.replace(r_x_drift=jnp.float32(drift))
    tune_key, test_key, train_key = jax.random.split(key, 3)
    tune, test = jax.random.split(tune_key, 300), jax.random.split(test_key, args.episodes)
    rows = {}
    for name, (rule, most) in RULES.items():
        axis = jnp.linspace(0, most, 101 if num_fisheries == 1 else 26)
        grid = jnp.stack(jnp.meshgrid(*[axis] * num_fisheries, indexing="ij"), -1).reshape(-1, num_fisheries)
        # All points meet the same 300 episodes: their noise is drawn once.
        score = jax.jit(lambda knobs, rule=rule: under_rule(env, params, rule, knobs, tune)[0].mean())
        best = grid[jnp.argmax(jax.lax.map(score, grid))]
        final = jax.jit(lambda knobs, rule=rule: under_rule(env, params, rule, knobs, test))
        rows[name] = [row(final(best), knobs=[round(float(x), 3) for x in best])]
        if rule is constant_mortality:
            for part in (0.5, 0.6, 0.7, 0.8, 0.9, 1.1):
                rows[f"{part:.0%} of it"] = [row(final(part * best))]
    algo, hyper = ppo.make(env, CONFIG), ppo.Hyper(learning_rate=1e-3, ent_coef=0.0, anneal_steps=args.steps)
    train = jax.jit(lambda key: algo.policy(jaxrl.train(algo, key, args.steps, hyper, params)[0]))
    greedy = jax.jit(lambda policy: jax.vmap(lambda key: play(env, params, lambda obs, _: algo.act(
        policy, key, obs, (), greedy=True)[0], key))(test))  # fmt: skip
    return rows | {"PPO": [row(greedy(train(key))) for key in jax.random.split(train_key, args.seeds)]}


def row(outcome, **more):
    """Mean return with its 95 % interval, and how often a population was lost with Wilson's."""
    returns, lost = (np.asarray(x, float) for x in outcome)
    n, p, half = len(returns), lost.mean(), 1.96 * returns.std() / len(returns) ** 0.5
    centre, width = p + 1.92 / n, 1.96 * (p * (1 - p) / n + 0.96 / n**2) ** 0.5
    interval = [max(centre - width, 0) / (1 + 3.84 / n), (centre + width) / (1 + 3.84 / n)]
    return {"return": returns.mean(), "return_95": [returns.mean() - half, returns.mean() + half], "sd": returns.std(),
            "lost": p, "lost_95": interval, **more}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("--steps", 300_000), ("--seeds", 3), ("--episodes", 2000)):
        parser.add_argument(name, type=int, default=default)
    args = parser.parse_args()
    results = {name: measure(args, *model, jax.random.key(i)) for i, (name, model) in enumerate(MODELS.items())}
    where = {k: v for k, v in environment_of_run().items() if k in ("device", "versions")}
    record = {"settings": vars(args), **where, "results": results}
    (HERE / "results.json").write_text(json.dumps(record, indent=1) + "\n")
    picture(results, HERE / "results.png")
    print(table(results))


if __name__ == "__main__":
    main()
