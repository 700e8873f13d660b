"""`jaxrl compile`: ask an accelerator's compiler about a run before the machine is rented."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

from jaxrl.host.cli.experiment import DataFlags, WrapFlags, experiment, folder_name
from jaxrl.host.cli.flags import UsageError, at_least_one, called


def compile_command(args: list[str]) -> int:
    @dataclasses.dataclass
    class CompileFlags(DataFlags, WrapFlags):
        """What `compile` takes beside the algorithm's and the environment's own settings."""

        target: Annotated[str, called("for")] = ""
        """The machine: tpu-v4, tpu-v5e, tpu-v5p, tpu-v6e, a100, a100-80gb or h100; chips after a colon, as in
        tpu-v5e:4x4, tpu-v5p:2x2x4, h100:8."""
        seeds: int = 1
        """Runs trained at once, as one program."""
        mesh: str | None = None
        """How the chips are laid out, as `jaxrl train --mesh` has it: seeds=4,envs=2. Default: as `--distributed` lays
        them out, all of them divide the seeds, or the environments of one seed."""
        largest: str | None = None
        """Find the largest value of this, num-envs, seeds or another whole number of --config, whose memory fits."""
        json: Path | None = None
        """Write all figures there, too."""
        limit: float = 900.0
        """Seconds after which a compiler that is not done is ended."""
        tuned: bool = True
        """Start from the settings of jaxrl/tuned.toml, or of the family in jaxrl/recipes.toml."""

    import jax

    from jaxrl.host.ahead import target_of
    from jaxrl.host.ahead.run import RunReport, largest, within
    from jaxrl.host.run.sharding import default_sizes, sizes_of

    # The run is only described here; where a plug-in is installed, jax would look for its device.
    jax.config.update("jax_platforms", "cpu")
    parsed, recipe = experiment("compile", args, CompileFlags)
    flags: CompileFlags = parsed.run
    if not flags.target:
        raise UsageError("compile needs a machine, as in --for tpu-v5e.")
    chips = math.prod(target_of(flags.target)[1])
    at_least_one("--seeds", flags.seeds)
    if not flags.limit > 0:
        raise ValueError(f"--limit {flags.limit}: it must be positive.")
    if flags.json is not None and not flags.json.parent.is_dir():
        raise ValueError(f"--json {flags.json}: there is no folder {flags.json.parent}.")
    seeds = flags.seeds
    several = 2 if flags.largest == "seeds" else seeds
    sizes = default_sizes(chips, several) if flags.mesh is None else sizes_of(flags.mesh)
    mesh = ",".join(f"{axis}={size}" for axis, size in sizes.items())

    def attempt(count: int) -> RunReport:
        """With so much of what `--largest` names."""
        if name == "seeds":
            return within(flags.limit, recipe, count, flags.target, mesh)
        config = {**recipe["config"], name: count}
        return within(flags.limit, {**recipe, "config": config}, seeds, flags.target, mesh)

    if flags.largest is None:
        run, found = within(flags.limit, recipe, seeds, flags.target, mesh), {}
    else:
        name = flags.largest.replace("-", "_")
        whole = {"seeds": seeds} | {k: v for k, v in recipe["config"].items() if type(v) is int}
        if name not in whole:
            known = ", ".join(k.replace("_", "-") for k in whole)
            raise ValueError(f"--largest {flags.largest}: it is one of {known}.")
        multiple = sizes.get({"seeds": "seeds", "num_envs": "envs"}.get(name, ""), 1)
        count, run = largest(attempt, whole[name], lambda text: print(f"{name} {text}", file=sys.stderr), multiple)
        found = {"largest": {name: count}}
        seeds = count if name == "seeds" else seeds
        print(f"largest {flags.largest} that fits: {count:,}\n")
    print(f"{folder_name(recipe)}, {seeds} seed{'s' * (seeds > 1)}, for {flags.target}\n")
    what = "gradient steps" if "dataset" in recipe else "steps of environments"
    print("\n".join(f"{name:<16}{text}" for name, text in rows(run, what)))
    if flags.json is not None:
        figures = {"recipe": recipe, "seeds": seeds, **found, "steps": run.steps, "update_seconds": run.seconds}
        flags.json.write_text(json.dumps({**figures, "report": run.report.to_json()}, indent=1) + "\n")
    return 0


def rows(run: Any, what: str) -> list[tuple[str, str]]:
    """What a `RunReport` says, as named lines; `what` its steps are."""
    from jaxrl.host.ahead import target_of

    report, update, memory = run.report, run.update, run.report.memory
    parts = {
        "arguments": memory.arguments,
        "outputs": memory.outputs - memory.aliased,
        "temporaries": memory.temporaries,
        "code": memory.code,
    }
    known = [f"{loop.rounds:,}" for loop in report.loops if loop.rounds is not None]
    said = [
        ("compiled in", f"{report.compile_seconds:.1f} s, on this machine"),
        ("memory", f"{_bytes(memory.needed)} of {_bytes(memory.available)} ({memory.needed / memory.available:.0%})"),
        ("", ", ".join(f"{name} {_bytes(size)}" for name, size in parts.items())),
        ("an update", f"{run.steps:,} {what}, on {_count(report.devices, 'device')}"),
    ]
    if run.seconds is None:
        said.append(("estimate", "none, this compiler gives no times: look at kernels, and at what the host waits for"))
    else:
        left_out = f"{sum(report.unestimated.values()):,} of {report.kernels_run:,} kernels run"
        said += [
            ("estimate", f"{_seconds(run.seconds)} an update, {run.steps / run.seconds:.3g} steps/s"),
            ("", f"without {left_out}, for which the compiler gives no cycles, without what starts"),
            ("", "kernels, and with one round of each loop of unknown length"),
        ]
    if report.optimal_seconds is not None:
        best = report.optimal_seconds
        at_best = f"{_seconds(best)} at best, by the cost model" if best > 0 else "no time known to the cost model"
        said.append(("one pass", f"{at_best}, each loop's body once"))
    if report.flops is not None:
        said.append(("", f"{report.flops:.3g} operations, {_bytes(report.bytes_accessed)} accessed"))
    said += [
        ("kernels", f"{update.kernels:,} run in an update, of {report.kernels:,} in the program"),
        ("loops", f"{', '.join(known) or 'none'} rounds; of unknown length: {len(run.waits)}"),
        *(("", loop.name) for loop in run.waits),
        ("conditionals", str(report.conditionals)),
    ]
    if target_of(report.target)[0].platform == "cuda" and (run.waits or report.conditionals):
        said.append(("", "the host waits at each conditional, and at each round of a loop of unknown length"))
    said += [
        ("host transfers", ", ".join(report.host_transfers) or "none"),
        ("collectives", _count(len(report.collectives), "exchange") if report.collectives else "none"),
        *(("", line) for line in _exchanges(report.collectives)),
    ]
    return said


def _exchanges(collectives: Any) -> list[str]:
    """How many there are of each kind, how often they run and what they move, by where they are."""
    where = ("after the updates", "in an update", "in its loops")
    found: dict[tuple[int, str], list[Any]] = {}
    for each in collectives:
        found.setdefault((min(each.depth, 2), each.opcode), []).append(each)
    return [
        f"{where[depth]}: {len(all_)} {opcode}, run {sum(x.times for x in all_):,} times, "
        f"{_bytes(sum(x.times * x.bytes for x in all_))} a device"
        for (depth, opcode), all_ in sorted(found.items())
    ]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _bytes(number: int | float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.3g} {unit}" if unit != "bytes" else f"{number:.0f} bytes"
        number /= 1024
    return f"{number:,.2f} GiB"


def _seconds(number: int | float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if number * scale >= 1:
            return f"{number * scale:.3g} {unit}"
    return f"{number * 1e6:.3g} us"
