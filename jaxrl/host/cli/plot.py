"""`jaxrl plot`: learning curves, episodes over time, and archives."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from jaxrl.host.cli.experiment import AtFlags, at_of
from jaxrl.host.cli.flags import Act, UsageError, at_least_one, greedy_of, parse, positional, refuse_zoo


def plot_command(args: list[str]) -> int:
    @dataclasses.dataclass
    class Plot(AtFlags):
        runs: Annotated[tuple[Path, ...], positional()]
        """Run folders; of --episode also zoo:NAME."""
        out: Path | None = None
        """A picture. Default: curves.png; of an episode or an archive media/episode.png or media/archive.png in the run
        folder, of the zoo a file here."""
        metric: str = "episode_return"
        window: int | None = None
        """Rows of the trailing mean. Default: a fortieth of the run."""
        normalized: bool = False
        """Returns as shares of the way from random's to the top of record (jaxrl/scores.toml), for several tasks."""

        episode: bool = False
        """Time plots of an episode of the trained policy in place of curves: states, references, actions, limits and
        reward terms, as media/episode.png in the run folder."""
        archive: bool = False
        """Of runs of quality diversity: the fitness of each cell over two descriptors, in place of curves."""
        seed: int = 0
        """Of --episode and --archive: which of the run's seeds."""
        key: int | None = None
        """Of --episode: of its random numbers, each gives another episode. Default: the number of the seed."""
        max_steps: int | None = None
        """Of --episode: steps at most. Default: one episode, 1000 at most."""
        act: Act | None = None
        """Of --episode: how the policy acts. Default: as the algorithm is deployed."""

    words = "Learning curves: the mean over seeds, single seeds behind it; or an episode over time; or an archive."
    flags = parse(Plot, args, "jaxrl plot", words)
    if not flags.runs:
        raise UsageError("plot needs at least one run folder.")
    at_least_one("--max-steps", flags.max_steps)
    if flags.episode and flags.archive:
        raise UsageError("--episode --archive: one picture of them at a time.")
    if flags.at is not None and not (flags.episode or flags.archive):
        raise UsageError(f"--at {flags.at}: of --episode and --archive; curves are of the whole run.")
    at_least_one("--window", flags.window)
    if flags.out is not None:
        from jaxrl.host.plotting import check_format

        check_format(flags.out)
    if flags.episode:
        return _episodes(flags)
    if flags.archive:
        return _archives(flags)
    refuse_zoo(flags.runs, "it has no learning curve; `jaxrl plot --episode` plots an episode of its policy.")
    from jaxrl.host.plotting import plot

    print(plot(flags.runs, flags.out or Path("curves.png"), flags.metric, flags.window, flags.normalized))
    return 0


def _one_if_named(flags: Any, of: str) -> None:
    if flags.out is not None and len(flags.runs) > 1:
        raise UsageError(f"{of} --out takes one run folder; without --out each picture lies in its own run folder.")


def _archives(flags: Any) -> int:
    _one_if_named(flags, "--archive")
    from jaxrl.host.plotting import archive_picture
    from jaxrl.host.run.archives import archive_of
    from jaxrl.zoo import file_beside

    for run in flags.runs:
        archive, names = archive_of(run, flags.seed, at_of(flags.at))
        print(archive_picture(archive, flags.out or file_beside(run, "media/archive.png"), names))
    return 0


def _episodes(flags: Any) -> int:
    _one_if_named(flags, "--episode")
    from jaxrl.host.run import episodes
    from jaxrl.zoo import PREFIX, file_beside

    for run in flags.runs:
        episode = episodes.record(run, flags.seed, flags.max_steps, greedy_of(flags.act), at_of(flags.at), flags.key)
        if flags.out is None and not str(run).startswith(PREFIX):  # the report shows it
            episodes.keep(episode, run)
        print(episodes.plot_episode(episode, flags.out or file_beside(run, "media/episode.png")))
    return 0
