"""What learned rules are worth: over lives of several lengths, as a measure of levels, and by how they are learned.

    python experiments/learned_rules/run.py lives [--rules lpg-cpu-1 ...] [--levels 64]
    python experiments/learned_rules/run.py regret [--rule lpg-cpu-1] [--levels 256]
    python experiments/learned_rules/run.py faults [--updates 300] [--seeds 2]
    python experiments/learned_rules/run.py choices [--updates 400] [--seeds 3] [--levels 128]

Each writes its part of results.json beside this file, and `lives` the picture.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from scipy.stats import spearmanr

import jaxrl
from jaxrl.algos.curricula import dr, groove
from jaxrl.algos.meta import lpg
from jaxrl.algos.rule_learners import gradients
from jaxrl.envs.grid.grid_world.grid_world import optimal_value
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told
from jaxrl.meta.agent import TABULAR, AgentConfig, AgentHyper, agent
from jaxrl.meta.lifetimes import MetaConfig, learner, policy_gradient
from jaxrl.meta.lives import lived

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
LIVES = (10, 25, 50, 100, 250)
"""Updates of an agent's life."""
RATES = [(40 * a, 4 * b) for a in (0.1, 0.3, 1.0, 3.0, 10.0) for b in (0.1, 0.3, 1.0)]
"""Learning rates of actor and critic that every rule is tuned over, on levels that it is not judged on."""


def levels(seed: int, count: int):
    """Some of GridWorld-small: `(environment, their params)`; levels of other seeds are others."""
    env, distribution = jaxrl.make("GridWorld-small-v0", observation="index")
    return env, jax.vmap(env.generate, (0, None))(jax.random.split(jax.random.key(seed), count), distribution)


def returns_of(rule, env, params, rates, key, lifetime, weights=None, config=TABULAR):
    """Final return on each level of an agent that lived so many updates by a rule, with its own weights or these."""
    algo = agent(rule, env, config)

    def one(level, key):
        hyper = AgentHyper(weights, learning_rate=rates[0], critic_learning_rate=rates[1], lifetime=lifetime)
        return lived(algo, jax.random.split(key), hyper, level)

    return jax.vmap(one)(params, jax.random.split(key, len(params.start)))


def save(part: str, found: dict, path: Path = RESULTS) -> None:
    results = json.loads(path.read_text()) if path.exists() else {}
    results[part] = {**found, "date": time.strftime("%Y-%m-%d"), "where": environment_of_run()}
    path.write_text(json.dumps(results, indent=1) + "\n")


def lives(args: argparse.Namespace) -> None:
    """Final returns of agents by each rule and by A2C after lives of every length, rates tuned for each of them."""
    env, tuning = levels(1, args.levels // 2)
    _, judging = levels(2, args.levels)
    best = jax.jit(jax.vmap(optimal_value))(judging)
    stored = json.loads(RESULTS.read_text()).get("lives", {}) if RESULTS.exists() else {}
    same = stored.get("levels") == args.levels  # rules that are not named keep the rows of these levels
    found = {"levels": args.levels, "optimal": float(best.mean()), "rules": stored["rules"] if same else {}}
    for name in ["a2c", *args.rules]:
        rule = gradients.baseline() if name == "a2c" else gradients.load(name).rule

        @jax.jit
        def program(params, rates, key, lifetime, rule=rule):
            return returns_of(rule, env, params, rates, key, lifetime)

        for lifetime in LIVES:
            key, last = jax.random.key(lifetime), jnp.int32(lifetime)
            tried = [float(program(tuning, jnp.array(pair), key, last).mean()) for pair in RATES]
            pair = RATES[int(np.argmax(tried))]
            got = np.asarray(program(judging, jnp.array(pair), jax.random.fold_in(key, 1), last))
            row = {"returns": got.round(4).tolist(), "learning_rates": pair}
            found["rules"].setdefault(name, {})[str(lifetime)] = row
            print(name, lifetime, f"{got.mean():.3f}", pair, flush=True)
            save("lives", found)
    draw(found)


def draw(found: dict) -> None:
    """Final returns by the length of a life, and the best that there is."""
    figure, ax = plt.subplots(figsize=(5, 3.5))
    for name, rows in found["rules"].items():
        returns = np.array([row["returns"] for row in rows.values()])
        x = [int(life) for life in rows]
        ax.plot(x, returns.mean(1), marker="o", label=name)
    ax.axhline(found["optimal"], color="k", ls="--", lw=0.8, label="best policy")
    ax.set(xscale="log", xlabel="updates of a life", ylabel="final return", title=f"{found['levels']} levels")
    ax.legend(frameon=False, ncols=2, loc=(0.1, 0.72))
    figure.tight_layout()
    figure.savefig(HERE / "lives.png", dpi=110)
    for name, rows in found["rules"].items():
        for length, row in rows.items():
            apart = np.array(row["returns"]) - np.array(found["rules"]["a2c"][length]["returns"])
            mean = f"{np.mean(row['returns']):.3f} | {told(apart, '+.3f', np.mean)}"
            print(f"| {name} | {length} | {mean} |")


def regret(args: argparse.Namespace) -> None:
    """Rank correlation over levels of what GROOVE scores them by with what the rule's agent really loses there."""
    env, params = levels(3, args.levels)
    best = np.asarray(jax.jit(jax.vmap(optimal_value))(params))
    stored = gradients.load(args.rule)
    untrained = lpg.rule(stored.config)
    found = {"rule": args.rule, "levels": args.levels, "updates": args.updates, "optimal": best.tolist()}
    rates, last = (40.0, 4.0), jnp.int32(args.updates)
    rules = {"a2c": gradients.baseline(), "learned": stored.rule, "untrained": untrained}
    got = {}
    for name, rule in rules.items():
        program = jax.jit(lambda params, key, rule=rule: returns_of(rule, env, params, rates, key, last))
        got[name] = np.asarray(program(params, jax.random.key(0)))
        found[name] = got[name].tolist()
        print(name, got[name].mean(), "of", best.mean(), flush=True)
    for name in ("learned", "untrained"):
        lost = best - got[name]
        scores = {"algorithmic regret": got["a2c"] - got[name], "minus its return": -got[name], "optimal return": best}
        for score, x in scores.items():
            rng = np.random.default_rng(0)
            rows = rng.integers(0, len(x), (1000, len(x)))
            low, high = np.quantile([spearmanr(x[r], lost[r]).statistic for r in rows], (0.025, 0.975))
            rank = float(spearmanr(x, lost).statistic)
            found.setdefault("correlation", {}).setdefault(name, {})[score] = [rank, float(low), float(high)]
            print(name, score, f"{rank:.2f} ({low:.2f} to {high:.2f})", flush=True)
    save("regret", found)


def broadcast(log_prob, advantage):
    """The loss of GROOVE's code, where (T,) times (T, 1) is (T, T): every step is credited with every advantage."""
    centred = advantage - jnp.mean(advantage)
    normalized = jax.lax.stop_gradient(centred / (jnp.std(centred) + 1e-8))
    return -jnp.mean(log_prob.T[:, None, :] * normalized.T[:, :, None])


class Variant(NamedTuple):
    """How a rule is learned; the defaults are as it should be, with levels as they are drawn."""

    policy_loss: Callable = policy_gradient  # judges a policy
    critic_learning_rate: float = 4.0  # of the critic that its advantages need
    held_inputs: bool = False
    levels: str = "dr"  # as `curriculum` of jaxrl meta-train
    rate_spread: float = 0.0  # of the agents' learning rates


FAULTS = {
    "as it should be": Variant(),
    "a critic that never learns": Variant(critic_learning_rate=0.0),
    "every step credited with every advantage": Variant(broadcast),
    "both": Variant(broadcast, 0.0),
}
CHOICES = {
    "random levels": Variant(rate_spread=1.2),
    "random levels, inputs held fixed": Variant(rate_spread=1.2, held_inputs=True),
    "levels by regret to A2C": Variant(rate_spread=1.2, levels="groove"),
    "levels by exact regret": Variant(rate_spread=1.2, levels="groove_exact"),
    "levels by regret to A2C, inputs held fixed": Variant(rate_spread=1.2, levels="groove", held_inputs=True),
}


def compared(part: str, variants: dict[str, Variant], args: argparse.Namespace) -> None:
    """Rules learned in several ways, and the final returns of their agents; the first variant is the baseline."""
    env, params = jaxrl.make("GridWorld-small-v0", observation="index")
    rule, config = lpg.rule(lpg.RuleConfig(features=16)), AgentConfig(num_envs=args.workers)
    _, tuning = levels(1, args.levels // 4)
    _, judging = levels(2, args.levels)
    last = jnp.int32(100)

    @functools.cache
    def teaching(policy_loss, held_inputs, chosen):
        by_regret = groove.make(env.generate, groove.Config(buffer_size=args.agents * 16))
        algo = learner(
            rule,
            env,
            dr.make(env.generate) if chosen == "dr" else by_regret,
            MetaConfig(num_agents=args.agents, remat=False, held_inputs=held_inputs),
            config,
            policy_loss=policy_loss,
            lifetime_fn=gradients.Uniform(10, 100),
            antagonist={"groove": gradients.baseline(), "groove_exact": optimal_value}.get(chosen),
        )
        train = jax.jit(lambda key, hyper: jaxrl.train(algo, key, args.updates, hyper, params)[0].weights)
        return train, algo.hyper()

    @jax.jit
    def judged(weights, params, rates, key):
        return returns_of(rule, env, params, rates, key, last, weights, config)

    asked = {name: getattr(args, name) for name in ("updates", "agents", "workers", "levels")}
    found = json.loads(RESULTS.read_text()).get(part, {}) if RESULTS.exists() else {}
    if {name: found.get(name) for name in asked} != asked:
        found = {**asked, "variants": {}}
    for seed in range(args.seeds):
        for name, variant in variants.items():
            rows = found["variants"].setdefault(name, [])
            if seed < len(rows):
                continue
            begin, key = time.process_time(), jax.random.key(seed)
            teach, hyper = teaching(variant.policy_loss, variant.held_inputs, variant.levels)
            numbers = {"learning_rate": 1e-3, "critic_learning_rate": variant.critic_learning_rate}
            numbers["rate_spread"] = variant.rate_spread
            weights = teach(key, hyper.replace(**{name: jnp.float32(x) for name, x in numbers.items()}))
            tried = [float(judged(weights, tuning, jnp.array(pair), key).mean()) for pair in RATES]
            pair = RATES[int(np.argmax(np.nan_to_num(tried, nan=-np.inf)))]
            got = np.asarray(judged(weights, judging, jnp.array(pair), key))
            rows.append({"returns": got.round(4).tolist(), "learning_rates": pair})
            print(name, seed, f"{got.mean():.3f}", pair, f"{time.process_time() - begin:.0f} s", flush=True)
            save(part, found)
    seeds = min(len(rows) for rows in found["variants"].values())
    baseline = np.mean([row["returns"] for row in found["variants"][next(iter(variants))][:seeds]], 0)
    for name, rows in found["variants"].items():
        returns = np.array([row["returns"] for row in rows[:seeds]])
        apart = returns.mean(0) - baseline
        print(f"| {name} | {returns.mean(1).round(3)} | {told(apart, '+.3f', np.mean)} |")


def faults(args: argparse.Namespace) -> None:
    """Rules learned with each of the two silent faults of GROOVE's released code."""
    compared("faults", FAULTS, args)


def choices(args: argparse.Namespace) -> None:
    """Rules learned with what agents give to the rule held fixed or not, on levels at random or by regret."""
    compared("choices", CHOICES, args)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["lives", "regret", "faults", "choices"])
    parser.add_argument("--rules", nargs="+", default=["lpg-cpu-1"], help="lives: names or files")
    parser.add_argument("--rule", default="lpg-cpu-1", help="regret: name or file")
    parser.add_argument("--levels", type=int, default=64)
    parser.add_argument("--updates", type=int, default=250, help="regret: of a life; faults, choices: meta-updates")
    parser.add_argument("--seeds", type=int, default=2, help="faults, choices")
    parser.add_argument("--agents", type=int, default=16, help="faults, choices: that learn at once")
    parser.add_argument("--workers", type=int, default=16, help="faults, choices: environments of an agent")
    args = parser.parse_args()
    {"lives": lives, "regret": regret, "faults": faults, "choices": choices}[args.part](args)


if __name__ == "__main__":
    main()
