"""Agents' updates a second: through the meta-gradient, by size of the rule and with and without `remat`, and in lives.

Tabular agents on GridWorld-small, rollouts of 20 steps. The gradient goes through K = 5 updates of agents of 64
environments by LPG; lives are updates without a gradient, what evolution strategies cost. All programs are timed in
turns, by the clock and in processor time; medians.

Run: `taskset -c 0 python benchmarks/meta_updates.py --out results/meta_updates.json`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from common import print_table, save

import jaxrl
from jaxrl.algos.curricula import dr
from jaxrl.algos.meta import lpg, lpo, policy_gradients
from jaxrl.meta import AgentConfig, AgentHyper, agent
from jaxrl.meta.lifetimes import MetaConfig, RuleLearner

RULES = {
    "A2C": policy_gradients.a2c_rule,
    "LPG-16": lambda: lpg.rule(lpg.RuleConfig(features=16)),
    "LPO-32": lambda: lpo.rule(lpo.RuleConfig(hidden=32)),
}


def gradient(units: int, agents: int, remat: bool) -> tuple[Callable[..., Any], tuple, int]:
    """The program, its arguments and the agents' updates in it."""
    env, params = jaxrl.make("GridWorld-small-v0", observation="index")
    made = RuleLearner(
        lpg.rule(lpg.RuleConfig(features=units)),
        env,
        dr.make(env.levels.generate),
        MetaConfig(num_agents=agents, remat=remat),
        lifetime_fn=lambda key, level: jnp.int32(250),
    )
    state = jax.jit(made.init)(jax.random.key(0), None, params)
    return made.gradient, (state.weights, state.agents, state.hyper), agents * made.config.num_updates


def lives(rule: str, num_envs: int, agents: int, updates: int) -> tuple[Callable[..., Any], tuple, int]:
    """The same of agents that learn by a rule, without a gradient."""
    env, params = jaxrl.make("GridWorld-small-v0", observation="index")
    algo = agent(RULES[rule](), env, AgentConfig(num_envs=num_envs))
    keys = jax.random.split(jax.random.key(0), agents)
    levels = jax.vmap(env.levels.generate, (0, None))(keys, params)
    states = jax.jit(jax.vmap(lambda key, level: algo.init(key, AgentHyper(), level)))(keys, levels)

    def live(states: Any) -> Any:
        return jax.lax.scan(lambda s, _: (jax.vmap(algo.update)(s)[0], None), states, None, updates)[0].weights

    return live, (states,), agents * updates


def in_turns(programs: dict[str, tuple], repeats: int) -> dict[str, dict[str, float]]:
    """Of each program, updates a second by the clock and by processor time, MiB of temporaries, seconds to compile."""
    ready, found = {}, {}
    for name, (fn, args, updates) in programs.items():
        begin = time.perf_counter()
        program = jax.jit(fn).lower(*args).compile()
        compiled = time.perf_counter() - begin
        jax.block_until_ready(program(*args))
        analysis: Any = program.memory_analysis()
        ready[name] = program, args, updates
        found[name] = {"mib": analysis.temp_size_in_bytes / 2**20, "compile_s": compiled}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ready}
    for _ in range(repeats):
        for name, (program, args, _) in ready.items():
            begin = time.perf_counter(), time.process_time()
            jax.block_until_ready(program(*args))
            times[name].append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    for name, (_, _, updates) in ready.items():
        clock, cpu = (statistics.median(x) for x in zip(*times[name], strict=True))
        found[name] |= {"per_s": updates / clock, "per_cpu_s": updates / cpu}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, nargs="*", default=[16, 64, 256], help="of the rule's recurrent cell")
    parser.add_argument("--agents", type=int, nargs="*", default=[16, 16, 4], help="of each of these sizes")
    parser.add_argument("--num-envs", type=int, nargs="*", default=[64, 16, 8], help="of the agents that live")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", default="meta_updates.json")
    args = parser.parse_args()
    programs = {
        f"gradient, {units} units, {agents} agents, remat {remat}": gradient(units, agents, remat)
        for units, agents in zip(args.units, args.agents, strict=True)
        for remat in (True, False)
    }
    programs |= {
        f"lives, {rule}, {num_envs} environments": lives(rule, num_envs, 8, 25)
        for num_envs in args.num_envs
        for rule in RULES
    }
    found = in_turns(programs, args.repeats)
    head = ["", "updates/s", "a second of processor time", "MiB", "compile, s"]
    rows = [
        [name, f"{x['per_s']:,.0f}", f"{x['per_cpu_s']:,.0f}", f"{x['mib']:,.1f}", f"{x['compile_s']:.0f}"]
        for name, x in found.items()
    ]
    print_table("Agents' updates", head, rows)
    save(args.out, {"settings": vars(args), "found": found})


if __name__ == "__main__":
    main()
