"""`jaxrl eval`: full episodes of the trained policies."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from jaxrl.host.cli.experiment import AtFlags, MovedFlags, at_of, episode_cap
from jaxrl.host.cli.flags import WORDS, Act, at_least_one, greedy_of, key_of, parse, positional


def evaluate_command(args: list[str]) -> int:
    @dataclasses.dataclass
    class Eval(MovedFlags, AtFlags):
        run: Annotated[Path, positional()]
        """Run folder, or zoo:NAME."""
        episodes: int = 128
        seed: int | None = None
        """Which of the run's seeds. Default: all of them."""
        key: int = 0
        """Of the episodes' random numbers: each gives other episodes."""
        max_steps: int | None = None
        """Cap on the length of an episode. Default: that of the run's own evaluations."""
        act: Act | None = None
        """How the policy acts. Default: as the algorithm is deployed, which the result says."""
        cell: tuple[float, ...] = ()
        """Of a run of quality diversity: the policy found for these descriptors, as --cell 0.3 0.7, instead of the
        best."""

    flags = parse(Eval, args, "jaxrl eval", "Full episodes of each seed's policy.")
    at_least_one("--max-steps", flags.max_steps)
    import jax
    import numpy as np

    from jaxrl.algorithm import deployment
    from jaxrl.evaluation import evaluate
    from jaxrl.host.run import ram
    from jaxrl.zoo import policies_of

    choose = None
    if flags.cell:
        from jaxrl.host.run import archives

        def choose(algo, state):
            return archives.policies_at(algo, state, flags.run, flags.cell, flags.seed)

    found = policies_of(flags.run, flags.dataset, at_of(flags.at), choose)
    algo, policies, task, params, seeds, own_cap, reference, _ = found
    if flags.seed is not None and not 0 <= flags.seed < seeds:
        raise ValueError(f"--seed {flags.seed}: the run has seeds 0 to {seeds - 1}.")
    which = range(seeds) if flags.seed is None else range(flags.seed, flags.seed + 1)
    cap = flags.max_steps or episode_cap(params, own_cap)

    parts = {"the episodes": len(which) * flags.episodes * ram.episode_size(task, params)}
    ram.require_room(parts, f"--episodes {flags.episodes}", "evaluate fewer at once")

    def returns(policy, key):
        return evaluate(
            algo, policy, key, task, params, num_episodes=flags.episodes, max_steps=cap, greedy=greedy_of(flags.act)
        )

    at = slice(which.start, which.stop)  # a seed's episodes are the same alone and among all
    keys = jax.random.split(key_of(flags.key, "--key"), seeds)[at]
    stats = jax.jit(jax.vmap(returns))(jax.tree.map(lambda x: x[at], policies), keys)
    mean = np.asarray(stats.returns.mean(1))
    for seed, value, length in zip(which, mean, np.asarray(stats.lengths.mean(1)), strict=True):
        print(f"seed {seed}: return {value:.2f}, length {length:.1f}")
    how = deployment(algo, greedy_of(flags.act))
    print(f"return {summary(mean)} over {flags.episodes} full episodes a seed, {WORDS[how]}")
    if reference is not None:
        print_score(mean, reference, params, cap)
    print_normalized(mean, task, params, cap)
    return 0


def print_normalized(returns: Any, task: Any, params: Any, cap: int | None, of: str = "") -> None:
    """Returns, one a seed, as shares of the way from random's to the top of record, where there is one of this task."""
    import numpy as np

    from jaxrl import scores
    from jaxrl.wrappers.agents import Team

    record = scores.record_of(task.env if isinstance(task, Team) else task, params)
    longest = int(np.max(np.asarray(params.max_steps)))
    if record is not None and record.top is not None and min(longest, cap or longest) == record.cap:
        low, high = f"{record.random.value:.4g}", f"{record.top.value:.4g}"
        got = scores.normalized(record.id, returns)
        print(f"{of}normalized {summary(got)}: 0 is {low} (random actions), 1 is {high} ({record.top.what})")


def print_score(returns: Any, reference: dict[str, Any], params: Any, cap: int | None) -> None:
    """Normalised scores, where episodes may last as long as the reference's: 0 is random's return, 100 the best that
    the dataset's file knows."""
    import numpy as np

    random, best = reference["random"], reference["best"]
    longest = int(np.max(np.asarray(params.max_steps)))
    if min(longest, cap or longest) == reference["max_steps"]:
        score = 100 * (returns - random) / (best - random)
        print(f"score {summary(score)}: 0 is random's return, {random:.4g}, 100 the best that is known, {best:.4g}")


def summary(returns: Any) -> str:
    """Mean, IQM and bootstrap interval of one return a seed, in words."""
    from jaxrl.host.statistics import bootstrap_interval, iqm

    if len(returns) == 1:
        return f"{returns[0]:.2f}"
    low, high = bootstrap_interval(returns)
    return f"{returns.mean():.2f} (IQM {iqm(returns):.2f}, 95 % interval {low:.2f} to {high:.2f}, {len(returns)} seeds)"
