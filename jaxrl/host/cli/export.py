"""`jaxrl export`: the trained policy as a C header, ONNX or StableHLO."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Literal

from jaxrl.host.cli.experiment import AtFlags, MovedFlags, at_of
from jaxrl.host.cli.flags import WORDS, parse, positional


def export_command(args: list[str]) -> int:
    @dataclasses.dataclass
    class Export(MovedFlags, AtFlags):
        run: Annotated[Path, positional()]
        """Run folder, or zoo:NAME."""
        format: Literal["c", "onnx", "stablehlo"] = "c"
        out: Path | None = None
        """Default: policy.h, policy.onnx or policy.stablehlo in the run folder; of the zoo, a file here."""
        name: str = "policy"
        """Of the C function."""
        seed: int = 0
        """Which of the run's seeds."""

    flags = parse(Export, args, "jaxrl export", "The greedy policy as a C header, ONNX or StableHLO.")
    from jaxrl.host.export import FORMATS, export
    from jaxrl.zoo import file_beside, policy_of

    algo, policy, _, params = policy_of(flags.run, flags.seed, flags.dataset, at_of(flags.at))
    out = flags.out or file_beside(flags.run, f"{flags.name}{FORMATS[flags.format]}")
    print(export(algo, policy, out, flags.format, flags.name, params))
    if algo.deployed != "greedy":
        how = f"the mode of a policy that acts {WORDS[algo.deployed]}"
        print(f"{how}; `jaxrl eval {flags.run} --act greedy` judges it", file=sys.stderr)
    return 0
