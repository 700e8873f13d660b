"""docs/scores.md and its pictures, from jaxrl/scores.toml."""

import tomllib
from pathlib import Path

import hashes
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from jaxrl import registry, scores

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, MEDIA = DOCS / "scores.md", DOCS / "media" / "scores"
TITLES = {
    "babyai": "BabyAI",
    "minigrid": "MiniGrid",
    "minatar": "MinAtar",
    "bsuite": "bsuite",
    "motor": "Electric motors",
}
SOLVED = 0.95
"""Normalized, of ours over a reference: what is below is a challenge."""
NOT_RUN = {
    "Ant-v5": "over 11 minutes",
    "Brax-ant": "5 minutes",
    "Brax-halfcheetah": "6 minutes",
    "Brax-hopper": "2 minutes",
    "Brax-walker2d": "3 minutes",
    "Brax-humanoid": "not timed",
    "Brax-humanoidstandup": "not timed",
    "Brax-pusher": "not timed",
    "PerfectMaze101-v0": "not timed",
    "PointMazeGiant-v0": "not timed",
    "PointMazeLarge-v0": "not timed",
    "PointMazeMedium-v0": "not timed",
    "PointMazeTeleport-v0": "not timed",
}
"""Ids that have no score of ours: CPU time of one seed of the recipe, by a try, without compiling."""
SETTINGS = """What differs from the algorithm's defaults; `jaxrl train ENV` starts from them. Steps and seeds are in the
rows above. Rows of [results](results.md) name there what else they changed."""
PROSE = """# Scores of record

What random actions get on every environment id, what counts as good, and what our learners got: returns of episodes,
undiscounted, of several agents their mean, rounded to four digits. Of electric motors it is the **average reward of a
step**, rewards of all episodes by their steps: a violated limit costs about 10 once and ends the episode, so that
a controller that follows its references for 1,000 steps may have a lower return than one that fails in its tenth step.
[What is random worth](../experiments/scores/README.md) says how they were made;
[`jaxrl.scores.of`](../jaxrl/scores.py#of) reads them:

```python
from jaxrl import scores

assert scores.of("CartPole-v1").reference.value == 500
assert scores.normalized("CartPole-v1", 500) == 1  # and 0 is random's return
```

`jaxrl train ENV`, without an algorithm, takes the one of record with its settings: on 19 of
[twenty ids drawn at random](../experiments/scores/README.md) it was above random actions. Two things differ: on tasks
without a limit the rows below were trained with their cap as the limit (`--params.max-steps 1000`), and those of
bandits' learners are of the problems that they learned in, not of policies afterwards. AlphaZero needs the extra
`mctx`. `jaxrl eval` says where a run's
return lies between random's and the reference's, and `jaxrl plot --normalized` draws runs of several tasks on one axis.
Where there is no reference, 1 is the best of ours; where there is neither, no return is 1.

**{total} ids have random's return, {known} of them a reference and {ours} a score of ours**; of {open} there is
neither a reference nor a score above random. Ids of an extra that was not installed are missing.

- **cap**: steps after which an episode was cut, 1,000 where a task has no limit of its own
- **random**: mean and 95 % interval of 64 to 2,048 episodes of uniform actions; "always" where all returns were equal
- **reference**: the best return there is, or who is accepted as good; the words say which. The best there is and the
  longest episode are exceeded by the noise of 128 episodes only, others by better policies, too
- **ours**: IQM and 95 % interval over seeds (of three seeds from the least to the greatest), the best algorithm of
  [results](results.md) where several were run, else that of the family's recipe; in brackets normalized

A usual controller that is not above random actions, with intervals apart, is no reference. The number after an
algorithm is that of [its settings](#settings-of-ours).

{totals}
{missing}

## What is unsolved here

Of ids that have a score of ours below; what has none has not been tried with a recipe yet, and is no less a challenge.
A bandit's reference knows the best arm from the first round; who has to find it stays behind. Some are solved here
with more than one recipe and one task, such as a bonus for visits, lessons or two learners:
[MiniGrid's DoorKey-8x8, MultiRoom-N4-S5, KeyCorridorS3R2, MemoryS11 and MemoryS13](../experiments/minigrid/README.md),
[the quadcopters' MultiHover and gate racing](../experiments/quadcopter/README.md).

{unsolved}
"""


def family_of(id: str) -> str:
    """The title of the folder that an id's module is in; of grid worlds that within `grid`."""
    parts = str(registry.environments()[id].target).split(":")[0].split(".")[2:]
    name = parts[1] if parts[0] == "grid" and len(parts) > 2 else parts[0]
    return TITLES.get(name, name.replace("_", " ").capitalize())


def page() -> str:
    """The whole page; its pictures are drawn beside it."""
    records = [scores.of(id) for id in scores.ids()]
    known = sum(record.reference is not None for record in records)
    ours = [record for record in records if record.ours is not None]
    unknown = sum(record.top is None for record in records)
    hours = sum(record.ours.about["seconds"] * record.ours.about["seeds"] for record in ours) / 3600
    totals = f"All scores of ours together took {hours:.1f} hours of one core, compiling not counted."
    counts = {"total": len(records), "known": known, "ours": len(ours), "open": unknown}
    lines = [PROSE.format(**counts, totals=totals, missing=missing(records), unsolved="\n".join(unsolved(records)))]
    table = tomllib.loads(scores.FILE.read_text())
    of_then = {id for id, rows in table.items() if "ours" in rows and hashes.stale(id, "ours", rows)}
    known_by = {record.id: settings(record) for record in ours if record.id not in of_then}
    numbers = {words: number for number, words in enumerate(sorted(set(known_by.values())), 1)}
    number_of = {id: str(numbers[words]) for id, words in known_by.items()}
    for kind in ("random", "reference", "ours"):
        stale = [id for id, rows in table.items() if kind in rows and hashes.stale(id, kind, rows)]
        if stale:
            lines += [f"Rows of {kind} of other code or settings: {', '.join(stale)}.", ""]
    for family in sorted({family_of(record.id) for record in records}, key=str.lower):
        of = [record for record in records if family_of(record.id) == family]
        lines += [f"## {family}", ""]
        if drawn := draw(family, of):
            lines += [f"![normalized returns of {family}, {len(of)} ids](media/scores/{drawn.name})", ""]
        lines += ["| id | cap | random | reference | ours |", "|---|---|---|---|---|"]
        lines += [cells(record, number_of) for record in of] + [""]
    lines += ["## Settings of ours", "", SETTINGS, "", "| | algorithm | settings |", "|---|---|---|"]
    lines += [f"| {number} | {algo} | {words} |" for (algo, words), number in numbers.items()]
    return "\n".join(lines) + "\n"


def missing(records: list[scores.Record]) -> str:
    """Which ids have no score of ours, and why."""
    ids = {record.id for record in records if record.ours is None}
    said = [f"{id} ({NOT_RUN.get(id, 'not timed')})" for id in sorted(ids, key=str.lower)]
    why = "No score of ours yet, for want of CPU time; in brackets a seed's, by tries that are not kept"
    return f"\n{why}: {', '.join(said)}.\n" if said else ""


def settings(record: scores.Record) -> tuple[str, str]:
    """The algorithm of ours, and the settings that it started from, where they are not its defaults."""
    assert record.ours is not None
    found = registry.settings(record.ours.what, record.id)
    assert found is not None
    words = [f"`{name}={value!r}`" for part in (found.config, found.hyper) for name, value in part.items()]
    env_flags = [f"`--env.{name.replace('_', '-')} {value}`" for name, value in found.env.items()]
    env_flags += [f"`--wrap {name}`" for name in found.wrap]
    return record.ours.what, ", ".join(env_flags + words) or "defaults"


def unsolved(records: list[scores.Record]) -> list[str]:
    """By family the ids on which ours is behind a reference with all of its interval, and those where nothing was
    learned: where the intervals of ours and random's are not apart.
    """
    behind = [record for record in records if record.ours and record.reference and share(record, 1) < SOLVED]
    none = [record for record in records if record.ours and not record.learned]
    lines = [f"**Behind a reference** by the whole interval ({len(behind)} ids, normalized below {SOLVED}):", ""]
    lines += by_family(behind, lambda record: f"{record.id} {share(record):.2f}")
    lines += ["", f"**Nothing learned**: not above random actions by intervals that are apart ({len(none)} ids):", ""]
    return lines + by_family(none, lambda record: record.id)


def by_family(records: list[scores.Record], said) -> list[str]:
    families = sorted({family_of(record.id) for record in records}, key=str.lower)
    return [f"- {name}: {', '.join(said(x) for x in records if family_of(x.id) == name)}" for name in families]


def share(record: scores.Record, end: int | None = None) -> float:
    """Normalized, ours, or an end of its interval."""
    value = record.ours.value if end is None else record.ours.interval[end]
    return float(scores.normalized(record.id, value, 1))  # of what is an average reward already


def draw(family: str, records: list[scores.Record]) -> Path | None:
    """Sorted bars of ours between random (0) and the reference (1), with intervals; None where there are not two."""
    known = [record for record in records if record.ours and record.reference]
    if len(known) < 2:
        return None
    known.sort(key=share)
    matplotlib.use("agg")
    height = 0.16 * len(known) + 0.9
    figure, axis = plt.subplots(figsize=(6.5, height), layout="constrained")
    values = np.clip([share(record) for record in known], -0.5, 1.5)
    ends = np.clip([[share(record, 0), share(record, 1)] for record in known], -0.5, 1.5)
    place = np.arange(len(known))
    axis.barh(place, values, color="#4c78a8", height=0.7)
    axis.hlines(place, *ends.T, color="#222222", linewidth=1)
    axis.axvline(0, color="#888888", linewidth=0.8)
    axis.axvline(1, color="#888888", linewidth=0.8, linestyle="--")
    axis.set_yticks(place, [f"{record.id}, {record.ours.what}" for record in known], fontsize=6)
    axis.set_xlabel("0: random actions, 1: the reference", fontsize=7)
    axis.tick_params(axis="x", labelsize=7)
    axis.set(xlim=(min(-0.05, values.min() - 0.05), max(1.1, values.max() + 0.05)), ylim=(-0.7, len(known) - 0.3))
    MEDIA.mkdir(parents=True, exist_ok=True)
    file = MEDIA / f"{family.lower().replace(' ', '_')}.png"
    figure.savefig(file, dpi=110)
    plt.close(figure)
    Image.open(file).convert("RGB").quantize(32, dither=Image.Dither.NONE).save(file, optimize=True)
    return file


def cells(record: scores.Record, number_of: dict[str, str]) -> str:
    low, high = record.random.interval
    random = f"{record.random.value:g} ({f'{low:g} to {high:g}' if low < high else 'always'})"
    reference = "" if record.reference is None else f"{record.reference.value:g}, {record.reference.what}"
    ours = ""
    if record.ours is not None:
        low, high = record.ours.interval
        normalized = "" if record.top is None else f" [{share(record):.2f}]"
        about, number = record.ours.about, number_of.get(record.id, "of then")
        ours = f"{record.ours.value:g} ({low:g} to {high:g}){normalized}, {record.ours.what} ({number}), "
        ours += f"{about['steps']:,} steps, {about['seeds']} seeds"
    return f"| {record.id} | {record.cap} | {random} | {reference} | {ours} |"
