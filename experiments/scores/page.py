"""docs/scores.md, from jaxrl/scores.toml."""

from pathlib import Path

import env_code

from jaxrl import registry, scores

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scores.md"
TITLES = {
    "babyai": "BabyAI",
    "minigrid": "MiniGrid",
    "minatar": "MinAtar",
    "bsuite": "bsuite",
    "motor": "Electric motors",
}
PROSE = """# Scores of record

What random actions get on every environment id, what counts as good, and what our learners got: returns of episodes,
undiscounted, of several agents their mean, rounded to four digits.
[What is random worth](../experiments/scores/README.md) says how they were made;
[`jaxrl.scores.of`](../jaxrl/scores.py#of) reads them:

```python
from jaxrl import scores

assert scores.of("CartPole-v1").reference.value == 500
assert scores.normalized("CartPole-v1", 500) == 1  # and 0 is random's return
```

`jaxrl eval` says where a run's return lies between random's and the reference's, and `jaxrl plot --normalized` draws
runs of several tasks on one axis. Where there is no reference, 1 is the best of ours; where there is neither, no return
is 1.

**{total} ids have random's return, {known} of them a reference and {ours} a score of ours**; of the other {open}
nothing better than random is on record. Ids of an extra that was not installed are missing.

- **cap**: steps after which an episode was cut, 1,000 where a task has no limit of its own
- **random**: mean and 95 % interval of 64 to 2,048 episodes of uniform actions; "always" where all returns were equal
- **reference**: the best return there is, or the return from which Gymnasium calls a task solved
- **ours**: the best algorithm of [results](results.md), IQM and 95 % interval over seeds; in brackets normalized
"""


def family_of(id: str) -> str:
    """The title of the folder that an id's module is in; of grid worlds that within `grid`."""
    parts = str(registry.environments()[id].target).split(":")[0].split(".")[2:]
    name = parts[1] if parts[0] == "grid" and len(parts) > 2 else parts[0]
    return TITLES.get(name, name.replace("_", " ").capitalize())


def page() -> str:
    records = [scores.of(id) for id in scores.ids()]
    known = sum(record.reference is not None for record in records)
    ours = sum(record.ours is not None for record in records)
    unknown = sum(record.top is None for record in records)
    lines = [PROSE.format(total=len(records), known=known, ours=ours, open=unknown)]
    stale = [x.id for x in records if env_code.of(x.id) != x.random.about["code"]]
    if stale:
        lines += [f"The code of {len(stale)} has changed since: {', '.join(stale)}.", ""]
    for family in sorted({family_of(record.id) for record in records}, key=str.lower):
        lines += [f"## {family}", "", "| id | cap | random | reference | ours |", "|---|---|---|---|---|"]
        lines += [cells(record) for record in records if family_of(record.id) == family] + [""]
    return "\n".join(lines)


def cells(record: scores.Record) -> str:
    low, high = record.random.interval
    random = f"{record.random.value:g} ({f'{low:g} to {high:g}' if low < high else 'always'})"
    reference = "" if record.reference is None else f"{record.reference.value:g}, {record.reference.what}"
    ours = ""
    if record.ours is not None:
        low, high = record.ours.interval
        share = scores.normalized(record.id, record.ours.value)
        about = record.ours.about
        ours = f"{record.ours.value:g} ({low:g} to {high:g}) [{share:.2f}], {record.ours.what}, "
        ours += f"{about['steps']:,} steps, {about['seeds']} seeds"
    return f"| {record.id} | {record.cap} | {random} | {reference} | {ours} |"
