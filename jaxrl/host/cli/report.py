"""`jaxrl report`: run folders as one HTML page."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from jaxrl.host.cli.flags import UsageError, parse, positional, refuse_zoo


def report_command(args: list[str]) -> int:
    @dataclasses.dataclass
    class Report:
        runs: Annotated[tuple[Path, ...], positional()]
        """Run folders; those of one environment are compared."""
        out: Path = Path("report.html")
        title: str | None = None
        metrics: tuple[str, ...] = ()
        """Further columns of metrics.jsonl as curves, as loss."""
        episodes: bool = True
        """Of runs of continuous tasks that keep no episode (`jaxrl plot --episode`), play one."""

    flags = parse(Report, args, "jaxrl report", "Run folders as one HTML page to mail; it needs no other file.")
    if not flags.runs:
        raise UsageError("report needs at least one run folder.")
    refuse_zoo(flags.runs, "a report is of runs; `jaxrl eval`, `render` and `plot --episode` show a policy of the zoo.")
    from jaxrl.host.report import report

    print(report(flags.runs, flags.out, flags.title, flags.metrics, flags.episodes))
    return 0
