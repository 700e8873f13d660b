"""`jaxrl plot`: learning curves."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from jaxrl.host.cli.flags import UsageError, parse, positional


def plot_command(args: list[str]) -> int:
    @dataclasses.dataclass
    class Plot:
        runs: Annotated[tuple[Path, ...], positional()]
        """Run folders."""
        out: Path = Path("curves.png")
        metric: str = "episode_return"
        window: int | None = None
        """Rows of the trailing mean. Default: a fortieth of the run."""

    flags = parse(Plot, args, "jaxrl plot", "Learning curves: the mean over seeds, single seeds behind it.")
    if not flags.runs:
        raise UsageError("plot needs at least one run folder.")
    from jaxrl.host.plotting import plot

    print(plot(flags.runs, flags.out, flags.metric, flags.window))
    return 0
