"""`jaxrl export`: the trained policy as a C header, ONNX or StableHLO."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Literal

from jaxrl.host.cli.flags import WORDS, parse, positional


def export_command(args: list[str]) -> int:
    @dataclasses.dataclass
    class Export:
        run: Annotated[Path, positional()]
        """Run folder."""
        format: Literal["c", "onnx", "stablehlo"] = "c"
        output: Path | None = None
        """Default: policy.h, policy.onnx or policy.stablehlo in the run folder."""
        name: str = "policy"
        """Of the C function."""
        seed: int = 0
        """Which of the run's seeds."""

    flags = parse(Export, args, "jaxrl export", "The greedy policy as a C header, ONNX or StableHLO.")
    import jax

    from jaxrl.host.export import FORMATS, export
    from jaxrl.host.recipe import load_run, read_recipe

    recipe = read_recipe(flags.run)
    algo, state, _, _ = load_run(recipe, flags.run)
    if not 0 <= flags.seed < recipe["run"]["seeds"]:
        raise ValueError(f"--seed {flags.seed}: the run has seeds 0 to {recipe['run']['seeds'] - 1}.")
    policy = jax.tree.map(lambda x: x[flags.seed], algo.policy(state))
    output = flags.output or flags.run / f"{flags.name}{FORMATS[flags.format]}"
    print(export(algo, policy, output, flags.format, flags.name))
    if algo.deployed != "greedy":
        how = f"the mode of a policy that acts {WORDS[algo.deployed]}"
        print(f"{how}; `jaxrl eval {flags.run} --act greedy` judges it", file=sys.stderr)
    return 0
