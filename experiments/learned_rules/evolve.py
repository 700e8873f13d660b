"""A rule that begins as A2C or PPO, evolved on whole lives of several task families; and is it better than these two?

    python experiments/learned_rules/evolve.py train [--rounds 600] [--seed 0] [--begins a2c] [--init RULE] [--times 1]
    python experiments/learned_rules/evolve.py judge --rules runs/evolved-a2c-0.npz [--tasks ...]

`train` takes an evolution-strategy step on each family of `FAMILIES` in turn, and writes the rule every few rounds; it
goes on where it was stopped. `judge` writes its part of results.json, a task at a time: final returns of agents that
live by each rule on levels that were in no training, A2C's and PPO's beside, every rule with the best of 63 pairs of
learning rates (15 with --few-pairs, which take less time) on other levels. `UNSEEN` names the families that no rule was
trained on. Tasks of networks have one level: there only the seeds are others.
"""

import argparse
import ast
import dataclasses
import json
import math
import subprocess
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from run import RESULTS, save

import jaxrl
from jaxrl.algos.curricula import dr
from jaxrl.algos.meta import lpo, policy_gradients, scheduled
from jaxrl.algos.rule_learners import gradients
from jaxrl.environment import NO_LIMIT
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval
from jaxrl.meta import stored
from jaxrl.meta.agent import AgentConfig, AgentHyper, agent
from jaxrl.meta.judging import judged
from jaxrl.meta.rule import fresh_weights
from jaxrl.meta.strategies import StrategyConfig, StrategyHyper, strategy
from jaxrl.wrappers.base import Wrapper

TABLES = AgentConfig(num_envs=16)  # SGD
NETWORKS = AgentConfig(num_envs=16, hidden=(32, 32), optimizer="adam")
USUAL = {TABLES: (80.0, 12.0), NETWORKS: (3e-3, 3e-3)}
"""Learning rates of actor and critic, about which those of a pair of agents are drawn: near A2C's best."""
IN_PASSES = {TABLES: (0.1, 0.5), NETWORKS: (0.3, 1.0)}
"""Times these for rules of several passes over a rollout: near PPO's best."""
RULE = {
    "a2c": ("scheduled", scheduled.rule, scheduled.RuleConfig()),
    "ppo": ("scheduled", scheduled.rule, scheduled.RuleConfig(clip_eps=0.2)),
    "numbers": ("policy_gradient", policy_gradients.rule, policy_gradients.RuleConfig()),
    "lpo": ("lpo", lpo.rule, lpo.RuleConfig(hidden=16, clip_eps=0.2)),
    "ta_lpo": ("lpo", lpo.rule, lpo.RuleConfig(hidden=16, temporal=True, clip_eps=0.2)),
}
"""By the rule that it begins as: kind, function, settings. Of "numbers" only A2C's four settings are evolved. LPO and
TA-LPO begin as PPO, too; their drifts are evolved."""


class Family(NamedTuple):
    id: str
    config: AgentConfig
    lives: tuple[int, int]  # the fewest and the most updates, log-uniform
    pairs: int = 32  # of rules, in a round
    settings: dict[str, Any] = {}  # of the environment
    slips: float = 0.0  # share of the moves in whose place a random one is made


LEVELS = {"observation": "index"}
FAMILIES = {
    "GridWorld-small": Family("GridWorld-small-v0", TABLES, (10, 250), settings=LEVELS),
    "GridWorld-medium": Family("GridWorld-medium-v0", TABLES, (10, 250), settings=LEVELS),
    "GridWorld-mazes": Family("GridWorld-mazes-v0", TABLES, (10, 250), settings=LEVELS),
    "GridWorld-rand_sparse": Family("GridWorld-rand_sparse-v0", TABLES, (10, 250), settings=LEVELS),
    "GridWorld-small, slippery": Family("GridWorld-small-v0", TABLES, (10, 250), settings=LEVELS, slips=0.3),
    "GridWorld-rand_sparse, slippery": Family(
        "GridWorld-rand_sparse-v0", TABLES, (10, 250), settings=LEVELS, slips=0.3
    ),
    "Darkroom": Family("Darkroom-v0", TABLES, (10, 250)),
    "Garnet": Family("Garnet-v0", TABLES, (10, 100)),
    "Catch": Family("Catch-bsuite", NETWORKS, (10, 100), 16),
    "CartPole": Family("CartPole-v1", NETWORKS, (25, 100), 8),
    "Asterix": Family("Asterix-MinAtar", NETWORKS, (25, 100), 8),
}
UNSEEN = {
    "GridWorld-long": Family("GridWorld-long-v0", TABLES, (100, 100), settings=LEVELS),
    "FrozenLake": Family("FrozenLake-v1", TABLES, (100, 100)),
    "DeepSea": Family("DeepSea-bsuite", NETWORKS, (100, 100)),
    "Breakout": Family("Breakout-MinAtar", NETWORKS, (100, 100)),
    "SpaceInvaders": Family("SpaceInvaders-MinAtar", NETWORKS, (100, 100)),
    "CliffWalkingSlippery": Family("CliffWalkingSlippery-v1", TABLES, (100, 100)),
    "Acrobot": Family("Acrobot-v1", NETWORKS, (100, 100)),
}
"""Named before training."""


@dataclasses.dataclass(frozen=True)
class Slips(Wrapper):
    """In the place of a share of the moves a random one is made."""

    share: float = 0.0

    @property
    def hints(self) -> Any:
        return self.env.hints._replace(deterministic=False)

    def transition(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        slip_key, move_key, key = jax.random.split(key, 3)
        random = self.env.action_space(params).sample(move_key)
        action = jnp.where(jax.random.bernoulli(slip_key, self.share), random, action)
        return self.env.transition(key, state, action, params)


def world(family: Family) -> tuple[Any, Any]:
    env, params = jaxrl.make(family.id, **family.settings)
    env = Slips(env, family.slips) if family.slips else env
    limit = jnp.where(params.max_steps == NO_LIMIT, 1000, params.max_steps)
    return env, params.replace(max_steps=limit)


class LogUniform(NamedTuple):
    """Lives of `least` to `most` updates."""

    least: int
    most: int

    def __call__(self, key: Any, level: Any) -> Any:
        power = jax.random.uniform(key)
        return jnp.round(self.least * (self.most / self.least) ** power).astype(jnp.int32)


def digest(rule: Any) -> int:
    return zlib.crc32(np.asarray(ravel_pytree(rule.init(jax.random.key(0)))[0]).tobytes())


def train(args: argparse.Namespace) -> None:
    kind, rule_of, config = RULE[args.begins]
    rule, names = rule_of(config), ("begins", "seed", "learning_rate", "sigma", "decay", "times", "families")
    asked = {name: getattr(args, name) for name in names}
    before = gradients.load(args.init) if args.init else None
    if before and before.config != config:
        raise SystemExit(f"{args.init} has {before.config}; a rule with {config} is evolved.")
    asked["init"] = before and f"{Path(args.init).stem} {digest(before.rule)}"
    out = args.out or Path(f"runs/evolved-{args.begins}-{args.seed}.npz")
    out.parent.mkdir(parents=True, exist_ok=True)
    state, commit = out.with_suffix(".state.npz"), ["git", "rev-parse", "--short", "HEAD"]
    kept = {"asked": asked, "done": 0, "seconds": 0.0, "log": [], "commits": []}
    flat = None
    if state.exists():
        with np.load(state) as file:
            kept, flat = json.loads(str(file["kept"])), jnp.asarray(file["flat"])
        if kept["asked"] != asked:
            raise SystemExit(f"{state} is of {kept['asked']}, and {asked} is asked for: name another --out.")
    learners = {}
    for name in args.families:
        family = FAMILIES[name]
        env, params = world(family)
        pairs = family.pairs * args.times
        algo = strategy(
            rule,
            env,
            dr.make(gradients.levels_of(env)),
            StrategyConfig(pairs, at_once=math.gcd(pairs, 512) if args.times > 1 else 0),
            family.config.in_passes(rule.passes),
            lifetime_fn=LogUniform(*family.lives),
        )
        learners[name] = algo, jax.jit(algo.init)(jax.random.key(0), None, params), jax.jit(algo.update)
    first = next(iter(learners.values()))[1]
    carry = before.weights if before else first.weights, first.optimizer
    _, unravel = ravel_pytree(carry)
    carry = carry if flat is None else unravel(flat)
    kept["commits"] += subprocess.run(commit, capture_output=True, text=True).stdout.split()
    done, log, seconds = kept["done"], kept["log"], kept["seconds"]
    begin = time.process_time() - seconds
    while done < args.rounds:
        key = jax.random.fold_in(jax.random.key(args.seed), done)
        row = {}
        for i, (name, (_, start, update)) in enumerate(learners.items()):
            about = np.array(USUAL[FAMILIES[name].config])
            actor, critic = about * IN_PASSES[FAMILIES[name].config] if rule.passes > 1 else about
            rates = AgentHyper().replace(learning_rate=jnp.float32(actor), critic_learning_rate=jnp.float32(critic))
            # The rate falls once a round, not once a family.
            hyper = StrategyHyper().replace(
                agent=rates, rate_spread=1.2, decay=args.decay, learning_rate=args.learning_rate, sigma=args.sigma
            )
            hyper = jax.tree.map(
                lambda new, old: jnp.asarray(new, old.dtype), hyper.replace(curriculum=None), start.hyper
            )
            after, metrics = update(
                start.replace(
                    key=jax.random.fold_in(key, i),
                    hyper=hyper,
                    weights=carry[0],
                    optimizer=carry[1],
                    step=jnp.int32(done),
                )
            )
            carry = after.weights, after.optimizer
            row[name] = round(float(metrics["final_return"]), 4)
        done += 1
        log.append(row)
        if done % 10 == 0 or done == args.rounds:
            seconds = time.process_time() - begin
            recent = {name: round(float(np.mean([x[name] for x in log[-50:]])), 3) for name in row}
            print(done, f"{seconds:.0f} s", recent, flush=True)
            provenance = {**asked, "done": done, "seconds": round(seconds), "commits": kept["commits"]}
            provenance |= {"where": environment_of_run()}
            kept |= {"done": done, "seconds": seconds, "log": log}
            new = [path.with_name(f"new-{path.name}") for path in (out, state)]
            stored.save(new[0], kind, config, carry[0], provenance)
            np.savez(new[1], flat=ravel_pytree(carry)[0], kept=json.dumps(kept))
            for path, last in zip(new, (out, state), strict=True):
                path.replace(last)


JUDGED = {TABLES: (25, 100), NETWORKS: (100,)}
"""Updates of the lives that rules are judged after."""
RATES = [
    (a, b) for a in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0) for b in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
]
"""Factors of the usual learning rates: the 63 pairs that every rule is tuned over."""
FEW_RATES = [(a, b) for a in (0.03, 0.1, 0.3, 1.0, 3.0) for b in (0.1, 0.3, 1.0)]
"""For rules that are compared with each other, and not shown to be above A2C and PPO."""


def returns_of(rule: Any, family: Family, updates: int, levels: int, tuning: int, rates: Any) -> dict[str, Any]:
    """Final returns after `updates` on `levels` levels, with the rates that were the best on `tuning` other levels."""
    env, params = world(family)
    usual, n = USUAL[family.config], len(rates)
    pairs = jnp.array([(usual[0] * a, usual[1] * b) for a, b in rates], jnp.float32)
    weights = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)), fresh_weights(rule, jax.random.key(0)))
    others = {name: jnp.full(n, getattr(AgentHyper(), name), jnp.float32) for name in ("max_grad_norm", "lifetime")}
    settings = AgentHyper(rule=weights, learning_rate=pairs[:, 0], critic_learning_rate=pairs[:, 1], **others)
    algo, level_fn = agent(rule, env, family.config.in_passes(rule.passes)), gradients.levels_of(env)
    keys = [jax.random.split(jax.random.key(seed), count) for seed, count in ((5_000_000, tuning), (6_000_000, levels))]
    found = judged(algo, level_fn, params, settings, *keys, updates=updates)
    return {"returns": found.returns.round(4).tolist(), "factors": rates[found.best]}


def at_an_end(got: dict[str, Any]) -> bool:
    tried = zip(*ast.literal_eval(got["what"]["rates"]), strict=True)
    return any(x in (min(values), max(values)) for x, values in zip(got["factors"], tried, strict=True))


def judge(args: argparse.Namespace) -> None:
    if args.few_pairs and args.out is None:
        raise SystemExit("--few-pairs: name an --out, since rows of the 63 pairs are not to be replaced by these.")
    out = args.out or RESULTS
    found = json.loads(out.read_text()).get("evolved", {}).get("tasks", {}) if out.exists() else {}
    rates = FEW_RATES if args.few_pairs else RATES
    rules = {"A2C": policy_gradients.a2c_rule(), "PPO": policy_gradients.ppo_rule()}
    rules |= {Path(name).stem: gradients.load(name).rule for name in args.rules}
    for name in args.tasks:
        family = (FAMILIES | UNSEEN)[name]
        few = family.config == NETWORKS
        levels, tuning = (args.agents, args.agents // 8) if few else (args.levels, args.levels // 8)
        for updates in args.updates or JUDGED[family.config]:
            row = found.setdefault(f"{name}, {updates}", {})
            for rule_name, rule in rules.items():
                what = {"rule": digest(rule), "levels": levels, "tuned_on": tuning, "rates": str(rates)}
                if row.get(rule_name, {}).get("what") == what:
                    continue
                begin = time.process_time()
                row[rule_name] = {"what": what, **returns_of(rule, family, updates, levels, tuning, rates)}
                row[rule_name]["seconds"] = round(time.process_time() - begin, 1)
                mean = np.mean(row[rule_name]["returns"])
                print(name, updates, rule_name, f"{mean:.3f}", row[rule_name]["factors"], flush=True)
                save("evolved", {"tasks": found}, out)
    table(found)


def table(found: dict[str, Any]) -> None:
    """The README's."""
    for name, row in found.items():
        cells = [name]
        for rule, got in row.items():
            returns, end = np.array(got["returns"]), " at an end" if at_an_end(got) else ""
            cells += [f"{returns.mean():.3f}{end}"]
            if rule not in ("A2C", "PPO"):
                for other in ("A2C", "PPO"):
                    apart = returns - np.array(row[other]["returns"])
                    low, high = bootstrap_interval(apart, np.mean)
                    cells += [f"{apart.mean():+.3f} ({low:+.3f} to {high:+.3f})"]
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["train", "judge"])
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--begins", choices=list(RULE), default="a2c", help="the rule that it is at the start")
    parser.add_argument("--init", help="a rule's file to go on from")
    parser.add_argument("--learning-rate", type=float, default=1e-2)
    parser.add_argument("--sigma", type=float, default=0.1, help="of the noise on the rule's weights")
    parser.add_argument("--decay", type=float, default=0.998, help="of the learning rate, a round")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES), help="train: of these")
    parser.add_argument("--times", type=int, default=1, help="as many pairs of rules a round, for a GPU")
    parser.add_argument("--out", type=Path, help="default: runs/evolved-BEGINS-SEED.npz; judge: results.json")
    parser.add_argument("--rules", nargs="*", default=[])
    parser.add_argument("--tasks", nargs="+", default=[*FAMILIES, *UNSEEN])
    parser.add_argument("--updates", nargs="+", type=int, help="judge: of a life; default: 25 and 100, networks 100")
    parser.add_argument("--few-pairs", action="store_true", help="judge: 15 pairs of rates in the place of 63")
    parser.add_argument("--levels", type=int, default=384, help="judge: of a task of tables")
    parser.add_argument("--agents", type=int, default=64, help="judge: of a task of networks")
    args = parser.parse_args()
    {"train": train, "judge": judge}[args.part](args)


if __name__ == "__main__":
    main()
