"""`jaxrl render`: a GIF or MP4 of the trained policy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from jaxrl.host.cli.experiment import AtFlags, MovedFlags, at_of
from jaxrl.host.cli.flags import Act, at_least_one, greedy_of, key_of, parse, positional, require_episode_fits


def render(args: list[str]) -> int:
    @dataclasses.dataclass
    class Render(MovedFlags, AtFlags):
        run: Annotated[Path, positional()]
        """Run folder, or zoo:NAME."""
        out: Path | None = None
        """A .gif, .mp4 or .png (contact sheet). Default: media/policy.gif in the run folder; of the zoo, a GIF here."""
        seed: int = 0
        """Which of the run's seeds."""
        key: int | None = None
        """Of the episode's random numbers: each gives another episode. Default: the number of the seed."""
        max_steps: int | None = None
        """Steps at most. Default: one episode, 500 at most."""
        act: Act | None = None
        """How the policy acts. Default: as the algorithm is deployed, which the result says."""

    flags = parse(Render, args, "jaxrl render", "One episode of the trained policy.")
    at_least_one("--max-steps", flags.max_steps)
    from jaxrl.host.render import check_format
    from jaxrl.zoo import file_beside

    out = flags.out or file_beside(flags.run, "media/policy.gif")
    check_format(out)
    key, at = flags.seed if flags.key is None else flags.key, at_of(flags.at)
    print(render_run(flags.run, out, flags.seed, flags.max_steps, greedy_of(flags.act), flags.dataset, at, key))
    return 0


def render_run(
    folder: Path,
    out: Path,
    seed: int,
    max_steps: int | None,
    greedy: bool | None,
    dataset: Path | None = None,
    at: int | str | None = None,
    key: int = 0,
) -> Path:
    """One episode of the policy of a run's `seed`, of at most `max_steps` (500 by default), with the random numbers of
    `key`; returns `out`. `dataset` is where the run's is now, `at` the update of the checkpoint, or "best"."""
    from jaxrl.host.render import film
    from jaxrl.zoo import policy_of

    algo, policy, env, params = policy_of(folder, seed, dataset, at)
    drawn = key_of(key, "--key")
    require_episode_fits(env, params, max_steps or 500)
    out.parent.mkdir(parents=True, exist_ok=True)
    shown = film(algo, policy, drawn, env, params, max_steps=max_steps or 500, greedy=greedy)
    return shown.save(out)
