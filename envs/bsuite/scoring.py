"""One number in [0, 1] for each experiment of the suite: the package's formulas, as NumPy functions of logged results.

Osband et al. (2020), "Behaviour suite for reinforcement learning"; agreement with version 0.3.6 of the package is
tested. Runs may be unfinished (NaN): as in the package, the last episode that any run of a setting has reached counts,
and the mean is over the runs that have reached it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Integer, Shaped

from .logged import Results
from .sweep import EXPERIMENTS

Array = np.ndarray


def score(experiment: str, results: Results) -> float:
    """The score of `experiment`, whose runs are in the order of its sweep, each repeated equally often (or once).

    Raises ValueError for an unknown experiment, or runs that do not fit its settings.
    """
    if experiment not in EXPERIMENTS:
        raise ValueError(f"experiment={experiment!r}: there are {', '.join(EXPERIMENTS)}.")
    row = EXPERIMENTS[experiment]
    name, values = next(iter(row.settings.items()))
    runs = len(results.total_return)
    if not runs or runs % len(values):
        raise ValueError(f"{experiment}: {runs} runs; it has {len(values)} settings.")
    settings = np.repeat(values, runs // len(values))
    results = _reached(results, row.num_episodes)
    family = experiment.removesuffix("_noise").removesuffix("_scale")
    function = FUNCTIONS[family]
    if family != experiment:
        return over_scales([function(part, row.num_episodes) for part in _groups(results, settings)])
    if name in ("seed", "mapping_seed"):
        return function(results, row.num_episodes)
    if family.startswith("deep_sea"):
        sizes = np.unique(settings)
        parts = _groups(results, settings)
        return float(np.nanmean([function(part, int(n)) for part, n in zip(parts, sizes, strict=True)]))
    return float(np.mean([function(part, row.num_episodes) for part in _groups(results, settings)]))


def by_tag(scores: dict[str, float]) -> dict[str, float]:
    """The mean score of the experiments that carry each tag: the axes of bsuite's radar plot."""
    tags = sorted({tag for name in scores for tag in EXPERIMENTS[name].tags})
    return {tag: float(np.mean([s for name, s in scores.items() if tag in EXPERIMENTS[name].tags])) for tag in tags}


def _reached(results: Results, num_episodes: int) -> Results:
    """The part of the log that some run has reached, and no later than `num_episodes`."""
    columns = ~np.isnan(np.asarray(results.total_return)).all(0) & (np.asarray(results.episode) <= num_episodes)
    if not columns.any():
        raise ValueError("No run has finished an episode that is logged.")
    return Results(np.asarray(results.episode)[columns], *(np.asarray(x)[:, columns] for x in results[1:]))


def _groups(results: Results, settings: Shaped[Array, " R"]) -> list[Results]:
    """The runs of each value of a setting, in increasing order."""
    groups = ([x[settings == value] for x in results[1:]] for value in np.unique(settings))
    return [_reached(Results(results.episode, *group), int(results.episode[-1])) for group in groups]


# ---- formulas


def regret_score(regret: Float[Array, "R E"], episode: Integer[Array, " E"], baseline: float) -> float:
    """How much smaller than `baseline` the mean regret an episode is: 1 for none."""
    mean = np.nanmean(regret[:, -1]) / episode[-1]
    return float(np.clip((baseline - mean) / baseline, 0, 1))


def over_scales(scores: Sequence[float]) -> float:
    """The mean score over noise or reward scales and what is left of it after a standard deviation, averaged."""
    mean = np.mean(scores)
    return float(0.5 * (np.clip(mean, 0, 1) + np.clip(mean - np.std(scores), 0, 1)))


def bandit_score(results: Results, num_episodes: int) -> float:
    return regret_score(results.regret, results.episode, 0.5)


def catch_score(results: Results, num_episodes: int) -> float:
    return regret_score(results.regret, results.episode, 1.6)


def digits_score(results: Results, num_episodes: int) -> float:
    """Half regret, half accuracy in the last tenth of the episodes; NaN, as in bsuite, before they are reached."""
    accuracy = 1 - np.diff(results.regret) / np.diff(results.episode) / 2
    last = results.episode[1:] > 0.9 * num_episodes
    final = np.nanmean(accuracy[:, last]) if last.any() else np.nan
    return float(0.5 * (regret_score(results.regret, results.episode, 1.8) + final))


def cartpole_score(results: Results, num_episodes: int) -> float:
    """Half regret against 1,000 steps upright, half the runs with an episode above 500."""
    regret = 1000 * results.episode - results.raw_return
    solved = np.mean(np.nanmax(results.best_episode, 1) > 500)
    return float(0.5 * (regret_score(regret, results.episode, 1000.0) + solved))


def swingup_score(results: Results, num_episodes: int) -> float:
    """Half regret against a return of 700, half the runs with an episode above 100."""
    regret = 700 * results.episode - results.total_return
    solved = np.mean(np.nanmax(results.best_episode, 1) > 100)
    return float(0.5 * (regret_score(regret, results.episode, 700.0) + solved))


def mountain_car_score(results: Results, num_episodes: int) -> float:
    """Regret against episodes of 100 steps."""
    return regret_score(-100 * results.episode - results.raw_return, results.episode, 1000.0)


def deep_sea_score(results: Results, size: int, first: int = 1, threshold: float = 0.9) -> float:
    """Whether the share of bad episodes fell below `threshold` before 2**size + 100 episodes, of those from `first` on.

    NaN, which the mean over sizes leaves out, where no run has come to episode `first`.
    """
    if results.episode[-1] < first:
        return np.nan
    solved = (results.regret / results.episode < threshold) & (results.episode >= first)
    return float(solved.any() and results.episode[solved.any(0)][0] < 2.0**size + 100)


def deep_sea_stochastic_score(results: Results, size: int) -> float:
    """The same after 100 episodes, and below 0.8, because luck alone makes some episodes good."""
    return deep_sea_score(results, size, 100, 0.8)


def discounting_chain_score(results: Results, num_episodes: int) -> float:
    """1 for always the best chain, 0 for any other."""
    mean = np.nanmean(results.total_return[:, -1]) / results.episode[-1]
    return float(np.clip(1 - 10 * (1.1 - mean), 0, 1))


def memory_score(results: Results, num_episodes: int) -> float:
    """Whether answers were wrong less than 0.75 times as often as guesses are; the regret of a guess is 1."""
    return float(np.nanmean(results.regret[:, -1]) / results.episode[-1] < 0.75)


def umbrella_score(results: Results, num_episodes: int) -> float:
    """Whether the mean regret an episode is below a half."""
    return float(np.nanmean(results.regret[:, -1]) / results.episode[-1] < 0.5)


FUNCTIONS: dict[str, Callable[[Results, int], float]] = {
    "bandit": bandit_score,
    "digits": digits_score,
    "catch": catch_score,
    "cartpole": cartpole_score,
    "cartpole_swingup": swingup_score,
    "mountain_car": mountain_car_score,
    "deep_sea": deep_sea_score,
    "deep_sea_stochastic": deep_sea_stochastic_score,
    "discounting_chain": discounting_chain_score,
    "memory_len": memory_score,
    "memory_size": memory_score,
    "umbrella_length": umbrella_score,
    "umbrella_distract": umbrella_score,
}
"""A score of runs of equal settings; the second argument is `num_episodes`, and the size for the two seas."""
