"""What the compilers of a TPU and a GPU make of the library's programs, on a machine that has neither.

A row is a rollout of 128 steps of 4,096 environments under random actions (an id), or one update of an algorithm
(`algo:id,field=value`), compiled by the plug-ins of two virtual environments, each in a process of its own. Rows are
kept one by one, with a fingerprint of the library's sources, in results/accelerator_targets.json: what is there of the
same sources is not compiled again, so that the command goes on where it was stopped. The table of docs/accelerators.md
is written from them. `MESHES` are runs on many chips, with what may be exchanged in them: another collective, or one in
a loop where none belongs, is a failure; their table is in docs/scaling.md.

Run: `make test-targets`, or with other virtual environments
`python benchmarks/accelerator_targets.py --tpu TPU/bin/python --gpu GPU/bin/python --only short`.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import hashlib
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = pathlib.Path(__file__).with_name("results") / "accelerator_targets.json"
PAGE, MESH_PAGE = ROOT / "docs" / "accelerators.md", ROOT / "docs" / "scaling.md"
NUM_ENVS, STEPS = 4096, 128

SHORT = (
    *("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "Cont-CC-PMSM-v0", "Breakout-MinAtar"),
    *("Quadcopter-Hover-v0", "MiniGrid-DoorKey-8x8-v0", "Maze-v0", "MiniGrid-FourRooms-v0", "MiniGrid-MultiRoom-N6-v0"),
    *("FrozenLake-v1", "BabyAI-GoToLocal-v0", "GridWorld-v0", "XLand-MiniGrid-R1-9x9", "Game2048-v0", "StumpWalker-v0"),
    *(
        "BernoulliBandit-v0",
        "RestlessBandit-v0",
        "Catch-bsuite",
        "ProcMaze-v0",
        "Fishery-v0",
        "LettuceGreenhouse-v0",
        "MemoryAllocation-v0",
        "JaxNav-v0",
        "RockSample-7-8-v0",
        "CircuitDesign-H2-2-v0",
        "TSP-v0",
    ),
    *("ppo:CartPole-v1,num_envs=2048,num_steps=64", "ppo:MiniGrid-DoorKey-8x8-v0,num_envs=2048,num_steps=64"),
    *("ppo_rnn:CartPole-v1", "dqn:CartPole-v1", "sac:Pendulum-v1", "pqn:CartPole-v1", "a2c:CartPole-v1"),
)
"""One environment of each family, those with a bar, and an algorithm of each kind: `--only short`."""


OUTSIDE, SUMS, MIXED = (
    frozenset(),  # of collectives in loops
    frozenset({"all-gather", "all-reduce"}),
    frozenset({"all-gather", "all-reduce", "all-to-all", "collective-permute"}),
)
MESHES = {
    ("tpu-v5e", "seeds=1", 2, 4): OUTSIDE,
    ("tpu-v5e", "envs=1", 1, 64): OUTSIDE,
    ("tpu-v5e:4x4", "seeds=16", 32, 4): OUTSIDE,
    ("tpu-v5e:4x4", "envs=16", 1, 64): SUMS,
    ("tpu-v5e:4x4", "seeds=4,envs=4", 4, 64): MIXED,
    ("tpu-v5e:16x16", "seeds=256", 256, 4): OUTSIDE,
    ("tpu-v5e:16x16", "envs=256", 1, 1024): SUMS,
    ("tpu-v5e:16x16", "seeds=64,envs=4", 64, 64): MIXED,
}
"""PPO on CartPole-v1: (target, mesh, seeds, environments a seed), and which collectives its loops may hold."""
LINK, LATENCY = 200e9, 1e-6
"""Bytes a second that leave a v5e chip (1,600 Gbit/s, Google's page of the machine), and what starting an exchange is
taken to cost: an assumption, no figure is published."""


ALLOWED = {
    **{id: 4.5 for id in ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0")},
    **{"Cont-CC-PMSM-v0": 12, "Breakout-MinAtar": 8, "Quadcopter-Hover-v0": 60, "Maze-v0": 60},
    **{"MiniGrid-DoorKey-8x8-v0": 60, "MiniGrid-FourRooms-v0": 110},
}
"""Environments whose step may hold no conditional and no loop of unknown length on either machine, and the most
microseconds of the TPU's cost model: the bars that were reached, and for FourRooms (75) what was."""


def excess(spec: str, row: dict[str, Any]) -> str:
    """What a row has that it may not have; empty for none."""
    if spec not in ALLOWED or "error" in row:
        return ""
    found = [f"{row['conditionals']} conditionals"] if row["conditionals"] else []
    found += ["a loop of unknown length"] if None in row["loops"] else []
    optimal = row["optimal_seconds"]
    if optimal is not None and (optimal + max(0, math.ceil(-optimal))) * 1e6 > ALLOWED[spec]:
        found.append(f"{known_optimal(optimal)} us, more than {ALLOWED[spec]}")
    return ", ".join(found)


def every() -> list[str]:
    """The rows of `SHORT`, one environment of each other class, and every other algorithm that trains on spaces."""
    from jaxrl import list_algos, registry

    table = registry.environments()
    classes = {str(table[spec].target) for spec in SHORT if ":" not in spec}
    ids = registry.first_of_each_class()
    first = {cls: id for cls, id in ids.items() if cls.startswith("jaxrl.envs.")}  # a user's are left out
    algos = {spec.partition(":")[0] for spec in SHORT if ":" in spec}
    actions = {name: registry.algo_actions(name) for name in list_algos()}
    tasks = {n: "CartPole-v1" if "Discrete" in a else "Pendulum-v1" for n, a in actions.items() if a and n not in algos}
    return [
        *SHORT,
        *sorted(id for cls, id in first.items() if cls not in classes),
        *(f"{n}:{t}" for n, t in tasks.items()),
    ]


# ---- programs


def program(spec: str) -> tuple[Any, tuple[Any, ...]]:
    """`(function, arguments as shapes)` of a row."""
    return _update(spec) if ":" in spec else _rollout(spec)


def _rollout(id: str) -> tuple[Any, tuple[Any, ...]]:
    """Observations are not kept: a step's, its rewards' and its resets' cost, as `docs/accelerators.md` says."""
    import jax

    import jaxrl
    from jaxrl.wrappers import agents_as_slots

    env, params = jaxrl.make(id)
    venv, space = jaxrl.vectorize(env, NUM_ENVS), env.action_space(params)
    venv = agents_as_slots(venv) if env.num_agents > 1 else venv

    def roll(key, state, params):
        def body(state, key):
            act_key, step_key = jax.random.split(key)
            action = jax.vmap(space.sample)(jax.random.split(act_key, venv.num_envs))
            ts = venv.step(step_key, state, action, params)
            return ts.state, (ts.reward, ts.terminated)

        return jax.lax.scan(body, state, jax.random.split(key, STEPS))

    key = jax.eval_shape(lambda: jax.random.key(0))
    return roll, (key, jax.eval_shape(venv.reset, key, params)[1], params)


def _update(spec: str) -> tuple[Any, tuple[Any, ...]]:
    import jax

    import jaxrl

    name, _, rest = spec.partition(":")
    id, *fields = rest.split(",")
    module = jaxrl.get_algo(name)
    settings = {key: int(value) for key, value in (field.split("=") for field in fields)}
    algo = module.make(jaxrl.make(id)[0], module.Config(**settings))
    return algo.update, (jax.eval_shape(lambda: algo.init(jax.random.key(0))),)


def own(spec: str, target: str) -> dict[str, Any]:
    """The row of a program, in this process."""
    from jaxrl.host.ahead import compile_for

    report = compile_for(*program(spec), target)
    each = None
    if ":" not in spec:  # what a step costs: a round of the loop over them
        each = next(loop for loop in report.loops if loop.depth == 0 and loop.rounds == STEPS)
    seconds = report.estimated_seconds if each is None else report.seconds_of(each)
    return {
        "versions": versions(),
        "compile_seconds": report.compile_seconds,
        "kernels": report.kernels_run if each is None else each.kernels,
        "conditionals": report.conditionals,
        "loops": [loop.rounds for loop in report.loops],
        "scratch": report.memory.temporaries,
        "needed": report.memory.needed,
        "bytes_accessed": report.bytes_accessed,
        "optimal_seconds": report.optimal_seconds,
        "estimated_seconds": seconds,
        "unestimated": sum(report.unestimated.values()) / max(report.kernels_run, 1),
        "host_transfers": list(report.host_transfers),
    }


def own_mesh(target: str, mesh: str, seeds: str, num_envs: str) -> dict[str, Any]:
    """The row of a run on a mesh, in this process: its collectives as `[kind, loops around it, bytes, times]`."""
    from jaxrl.host.ahead.run import compile_run
    from jaxrl.host.cli.experiment import experiment
    from jaxrl.host.cli.train import TrainFlags

    _, recipe = experiment("train", ["ppo", "CartPole-v1", "--config.num-envs", num_envs], TrainFlags)
    run = compile_run(recipe, int(seeds), target, mesh)
    exchanged = [[each.opcode, each.depth, each.bytes, each.times] for each in run.report.collectives]
    return {
        "versions": versions(),
        "compile_seconds": run.report.compile_seconds,
        "collectives": exchanged,
        "unknown": len(run.waits),
        "needed": run.report.memory.needed,
        "steps": run.steps,
        "update_seconds": run.seconds,
    }


def beyond(row: dict[str, Any], allowed: frozenset[str]) -> set[str]:
    """Collectives in loops of a mesh's row that may not be there."""
    return {kind for kind, depth, _, _ in row["collectives"] if depth} - allowed


# ---- rows


def fingerprint() -> str:
    """Of the sources that a compiled program is made of, and of what reads it."""
    hashed = hashlib.sha256((ROOT / "jaxrl" / "tuned.toml").read_bytes())
    for folder in ("jaxrl", "envs", "algos"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            if "host" not in parts or "ahead" in parts or path.name in ("sharding.py", "training_program.py"):
                hashed.update(path.read_bytes())
    return hashed.hexdigest()[:12]


def versions() -> str:
    """Of what compiled a row in this environment."""
    import importlib.metadata

    names = ("jax", "jaxlib", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin")
    there = {dist.name.lower(): dist.version for dist in importlib.metadata.distributions() if dist.name}
    return ", ".join(f"{name} {there[name]}" for name in names if name in there)


def compiled(python: str, limit: float, *words: str) -> dict[str, Any]:
    """The row, or what went wrong."""
    command = [python, __file__, *words]
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, cwd=ROOT, start_new_session=True, **pipes) as process:
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return {"error": f"not done after {limit:g} s"}
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        return {"error": (err.strip().splitlines() or [f"status {process.returncode}"])[-1][:300]}
    return json.loads(out.splitlines()[-1])


def wanted(patterns: list[str]) -> list[str]:
    """The rows that are asked for: all, the short list, or those that fit a pattern."""
    if patterns == ["short"]:
        return list(SHORT)
    if patterns == ["meshes"]:
        return []
    rows = every()
    found = [spec for spec in rows if not patterns or any(fnmatch.fnmatch(spec, p) for p in patterns)]
    return found or patterns  # rows that no list has


# ---- the page


def write_page(page: pathlib.Path, lines: str) -> None:
    """Put tables between the marks of a page."""
    text = page.read_text()
    begin, end = "<!-- rows -->\n", "<!-- end of rows -->"
    before, _, rest = text.partition(begin)
    page.write_text(f"{before}{begin}\n{lines}\n{end}{rest.partition(end)[2]}")


def tables(kept: dict[str, Any]) -> str:
    """Markdown of all rows: steps of environments, then updates."""
    now, rows = fingerprint(), kept["rows"]
    specs = {key.partition(" ")[0]: None for key in rows}
    ordered = [spec for spec in SHORT if spec in specs] + [spec for spec in sorted(specs) if spec not in SHORT]
    lines = []
    for title, chosen in (
        (f"A step of {NUM_ENVS:,} environments", [s for s in ordered if ":" not in s]),
        ("An update", [s for s in ordered if ":" in s]),
    ):
        lines += [
            f"**{title}** ({kept['tpu']} | {kept['gpu']})",
            "",
            "| | compile s | kernels | cond. | loops | unknown | scratch MB | optimal us | estimated us "
            "| GPU compile s | kernels | cond. | loops | unknown | scratch MB |",
            "|---|" + "---|" * 14,
        ]
        for spec in chosen:
            tpu, gpu = (rows.get(f"{spec} {kept[kind]}") for kind in ("tpu", "gpu"))
            old = " (older sources)" if any(row and row["sources"] != now for row in (tpu, gpu)) else ""
            lines.append(f"| {spec.replace(',', ', ')}{old} | " + " | ".join([*_cells(tpu, True), *_cells(gpu)]) + " |")
        lines.append("")
    return "\n".join([*lines, _made_by(rows)])


def _made_by(rows: dict[str, Any]) -> str:
    made = sorted({row["versions"] for row in rows.values() if "versions" in row})
    dates = sorted({row["date"] for row in rows.values() if "date" in row})
    return f"Made by {'; '.join(made)}, from {dates[0]} to {dates[-1]}.\n" if made and dates else ""


def known_optimal(seconds: float | None) -> str:
    """The cost model's microseconds; it takes a second off for every kernel that it cannot judge, which is said."""
    if seconds is None:
        return "-"
    unknown = max(0, math.ceil(-seconds))
    return f"{(seconds + unknown) * 1e6:,.1f}" + (f" + {unknown}?" if unknown else "")


def _cells(row: dict[str, Any] | None, times: bool = False) -> list[str]:
    blank = 8 if times else 6
    if row is None or "error" in row:
        return ["not compiled" if row is None else row["error"].replace("|", "/")] + [""] * (blank - 1)
    unknown = sum(rounds is None for rounds in row["loops"])
    cells = [f"{row['compile_seconds']:.0f}", f"{row['kernels']:,}", str(row["conditionals"])]
    cells += [str(len(row["loops"]) - unknown), str(unknown), f"{row['scratch'] / 1e6:,.1f}"]
    if times:
        cells.append(known_optimal(row["optimal_seconds"]))
        cells.append(f"{row['estimated_seconds'] * 1e6:,.1f}")
    return cells


def mesh_table(kept: dict[str, Any]) -> str:
    """Markdown of the runs on many chips."""
    now = fingerprint()
    lines = [
        "| chips | mesh | seeds x environments | compile s | collectives after the loop of updates | in an update "
        "| in each step, or minibatch | exchanges, and bytes of a device, an update | ms of these | estimated ms, rest "
        "| M steps/s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key, row in kept["meshes"].items():
        target, mesh, seeds, num_envs = key.split()
        old = " (older sources)" if row["sources"] != now else ""
        cells = [row["error"].replace("|", "/"), *[""] * 7] if "error" in row else _mesh_cells(row)
        lines.append(f"| `{target}` | `{mesh}`{old} | {seeds} x {num_envs} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _made_by(kept["meshes"])])


def _mesh_cells(row: dict[str, Any]) -> list[str]:
    def kinds(least: int, most: int) -> str:
        found = collections.Counter(kind for kind, depth, _, _ in row["collectives"] if least <= depth <= most)
        return ", ".join(f"{count} {kind}" for kind, count in sorted(found.items())) or "none"

    inside = [(size, times) for _, depth, size, times in row["collectives"] if depth]
    runs, moved = sum(times for _, times in inside), sum(size * times for size, times in inside)
    exchanging = runs * LATENCY + moved / LINK
    rate = row["steps"] / (row["update_seconds"] + exchanging) / 1e6
    cells = [f"{row['compile_seconds']:.0f}", kinds(0, 0), kinds(1, 1), kinds(2, 99), f"{runs:,}, {moved:,}"]
    return [*cells, f"{exchanging * 1e3:.1f}", f"{row['update_seconds'] * 1e3:.1f}", f"{rate:,.1f}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="*", default=[], help="`short`, `meshes`, patterns of rows, or rows of your own"
    )
    parser.add_argument("--tpu", default=None, help="a Python that has libtpu")
    parser.add_argument("--gpu", default=None, help="a Python that has the CUDA plug-in")
    parser.add_argument("--targets", nargs=2, default=["tpu-v5e", "h100"], metavar=("TPU", "GPU"))
    parser.add_argument("--limit", type=float, default=900, help="seconds a program")
    parser.add_argument("--own", nargs=2, help="internal")
    parser.add_argument("--own-mesh", nargs=4, help="internal")
    args = parser.parse_args()
    if args.own:
        print(json.dumps(own(*args.own)))
        return 0
    if args.own_mesh:
        print(json.dumps(own_mesh(*args.own_mesh)))
        return 0
    kept = {"rows": {}, "meshes": {}} | (json.loads(RESULTS.read_text()) if RESULTS.exists() else {})
    kept |= dict(zip(("tpu", "gpu"), args.targets, strict=True))
    failed, now = [], fingerprint()
    for spec in wanted(args.only):
        for python, target in zip((args.tpu, args.gpu), args.targets, strict=True):
            key = f"{spec} {target}"
            row = kept["rows"].get(key)
            if python is None:
                continue
            if not (row and row["sources"] == now and "error" not in row):
                row = compiled(python, args.limit, "--own", spec, target)
                kept["rows"][key] = {**row, "sources": now, "date": time.strftime("%Y-%m-%d")}
                RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
                print(f"{key:60} {row.get('error') or ' | '.join(_cells(row, target.startswith('tpu')))}", flush=True)
            wrong = row.get("error") or excess(spec, row)
            failed += [f"{key}: {wrong}"] if wrong else []
    for job, allowed in MESHES.items() if args.tpu and (not args.only or "meshes" in args.only) else ():
        key = " ".join(map(str, job))
        before = kept["meshes"].get(key)
        if not (before and before["sources"] == now and "error" not in before):
            row = compiled(args.tpu, args.limit, "--own-mesh", *map(str, job))
            kept["meshes"][key] = row = {**row, "sources": now, "date": time.strftime("%Y-%m-%d")}
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
            print(f"{key:60} {row.get('error') or ' | '.join(_mesh_cells(row))}", flush=True)
            before = row
        wrong = before.get("error") or ", ".join(sorted(beyond(before, allowed)))
        failed += [f"{key}: {wrong}"] if wrong else []
    write_page(PAGE, tables(kept))
    write_page(MESH_PAGE, mesh_table(kept))
    print("\n".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
