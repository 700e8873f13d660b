"""The long tables of the documentation, written from the registry: ids, algorithms, curricula, settings.

`python -m tools.tables [DOCS]` writes `envs/ids.md`, `algos/index.md`, `algos/curricula.md` and
`algos/settings.md` below DOCS (default `docs`); a test compares what is committed with what it would write. Spaces and
limits are traced, not computed. What is made of these tables in other pages is written by `tools.pages`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax

from jaxrl import registry, spaces
from jaxrl.data.learns import Learns
from jaxrl.environment import NO_LIMIT
from jaxrl.host.cli.flags import comments_of

DOCS = Path(__file__).resolve().parents[1] / "docs"


def title_of(page: str) -> str:
    """What a page of `docs/` is called in a link to it: its title."""
    return (DOCS / page).read_text().partition("\n")[0].removeprefix("# ")


class Family(NamedTuple):
    """What the table of ids calls a family, and its page in `docs/envs/`."""

    title: str
    page: str


FAMILIES: dict[str, Family] = {
    "classic": Family("Classic control", "classic.md"),
    "tabular": Family("Toy text and tabular MDPs", "tabular.md"),
    "grid.minigrid": Family("MiniGrid", "minigrid.md"),
    "grid.babyai": Family("BabyAI", "babyai.md"),
    "grid.maze": Family("Mazes", "maze.md"),
    "grid.minatar": Family("MinAtar", "minatar.md"),
    "grid.grid_world": Family("GridWorld", "grid_world.md"),
    "grid.rule_world": Family("Rule worlds", "rule_world.md"),
    "grid": Family("Puzzles", "combinatorial.md"),
    "quadcopter": Family("Quadcopters", "quadcopter.md"),
    "motor": Family("Electric motors", "motor.md"),
    "physics": Family("Physics", "physics.md"),
    "navigation": Family("Robot navigation", "navigation.md"),
    "routing": Family("Knapsacks and tours", "routing.md"),
    "quantum": Family("Quantum circuits", "quantum.md"),
    "memory": Family("Tasks that need memory", "memory.md"),
    "bandits": Family("Bandits", "bandits.md"),
    "bandits.restless": Family("Restless and coupled bandits", "restless.md"),
    "bsuite": Family("Behaviour suite", "bsuite.md"),
    "tabular.generalization": Family("Model generalisation", "model_generalization.md"),
    "classic.fishery": Family("Fishery", "fishery.md"),
    "allocation": Family("Memory allocation", "allocation.md"),
    "classic.lettuce_greenhouse": Family("Greenhouse", "greenhouse.md"),
}
"""Modules below `jaxrl.envs` and the family they belong to: the longest name that fits counts."""

_MOVED = {"bandits.coupled": "bandits.restless", "tabular.generalization.discrete_2d": "tabular"}
"""Modules that are on another family's page than their folder's."""

KINDS = {
    "on_policy": "On-policy",
    "deep_q": "Deep Q-learning",
    "actor_critic": "Actor-critic, from stored steps",
    "model_based": "With a model",
    "sequence": "Conditioned on the outcome",
    "generative": "Generative policies",
    "preferences": "From preferences",
    "imitation": "Beside an expert",
    "population": "Populations",
    "quality_diversity": "Quality diversity",
    "streaming": "Streaming",
    "tabular": "Tables",
    "bandits": "Bandits",
    "meta": "Learning to learn",
}
"""Folders of `jaxrl.algos` and what they hold, as the table of algorithms is ordered."""

_OF_FOLDER = (
    "bandits",
    "curricula",
    "generative",
    "imitation",
    "meta",
    "preferences",
    "quality_diversity",
    "streaming",
    "tabular",
)
"""Folders whose algorithms share a page."""

_PAGES = {
    **dict.fromkeys(("c51", "iqn", "qr_dqn", "rainbow"), "dqn.md"),
    **dict.fromkeys(("bcq_discrete", "cql_discrete", "crr_discrete", "rem"), "offline.md"),
    **dict.fromkeys(("awac", "bc", "cql", "dvl", "edac", "famo2o", "fb", "iql", "rebrac"), "offline.md"),
    **dict.fromkeys(("h2o", "recoil", "ro2o", "td3_bc", "uni_o4", "combo", "mopo", "morel", "ravl"), "offline.md"),
    **dict.fromkeys(("decision_transformer", "rvs"), "offline.md"),
    **dict.fromkeys(("arsq", "cqn"), "generative.md"),
    **dict.fromkeys(("gorp", "sqirl"), "effective_horizon.md"),
    **{name: f"{name}.md" for name in ("barfi", "disco", "dpt", "stac", "whittle")},
    "ddpg": "td3.md",
    "mex": "td3.md",
    "pbt": "population.md",
    "pqn_rnn": "pqn.md",
    "sac_rnn": "r2d2.md",
    "td3_rnn": "r2d2.md",
    "reinforce": "a2c.md",
}
"""Pages of algorithms that are neither on their folder's page nor on one of their own name, in `docs/algos/`."""


def family_of(target: str) -> str:
    """The key in `FAMILIES` of "jaxrl.envs.<module>:Class". Raises ValueError where there is none."""
    module = target.partition(":")[0].removeprefix("jaxrl.envs.")
    module = _MOVED.get(module, module)
    fitting = [name for name in FAMILIES if module == name or module.startswith(f"{name}.")]
    if not fitting:
        raise ValueError(f"{target} belongs to no family of tools.tables.FAMILIES.")
    return max(fitting, key=len)


def by_family() -> dict[str, list[str]]:
    """Ids of each family in `FAMILIES`, sorted; ids that a user registered are left out."""
    found: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for id, entry in sorted(registry.environments().items()):
        if isinstance(entry.target, str) and entry.target.startswith("jaxrl.envs."):
            found[family_of(entry.target)].append(id)
    return found


def algorithm_page(module: str) -> str:
    """The page, relative to `docs/algos/`, of a module below `jaxrl.algos`."""
    folder, _, name = module.rpartition(".")
    return _PAGES.get(name, f"{folder if folder in _OF_FOLDER else name}.md")


# ---- words


def first_sentence(doc: str | None) -> str:
    """The first sentence of a docstring's first paragraph, on one line; "" for none."""
    paragraph = " ".join(inspect.cleandoc(doc or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0]


def _about(cls: type, alone: bool) -> str:
    """One line of a class: its module's where it is `alone` in there or says nothing itself."""
    own = cls.__doc__ or ""
    written = own and not own.startswith(f"{cls.__name__}(")  # else it is the signature that a dataclass gets
    said = first_sentence(own if written and not alone else sys.modules[cls.__module__].__doc__)
    return re.sub(r"^[\w-]+(, [\w-]+)*: ", "", said)  # without the names, which stand before it


def _space(space: Any) -> str:
    """A space in few words: kind, shape and dtype, without bounds."""
    if isinstance(space, spaces.Dict):
        return "; ".join(f"{name}: {_space(inner)}" for name, inner in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return f"({', '.join(map(_space, space.spaces))})"
    if isinstance(space, spaces.Box):
        return f"Box {space.shape} {jax.numpy.dtype(space.dtype).name}"
    if isinstance(space, spaces.MultiDiscrete) and len(space.nvec) > 8:
        return f"MultiDiscrete of {len(space.nvec)}"
    return repr(space)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


# ---- rows


def environment_row(id: str) -> str:
    """The line of an id: class, static settings, spaces of one agent, time limit."""
    entry = registry.environments()[id]
    assert isinstance(entry.target, str)
    module, _, name = entry.target.partition(":")
    settings = ", ".join(f"{k}={v!r}" for k, v in entry.settings.items())
    if entry.extra:  # the same whether it is installed or not
        return f"| {id} | `{name}` | `{settings}` | needs `jaxrl[{entry.extra}]` | | |"
    env = getattr(importlib.import_module(module), name)(**{**entry.settings, "id": id})
    seen: list[str] = []

    def limit() -> jax.Array:
        params = env.default_params
        seen.extend([_space(env.observation_space(params)), _space(env.action_space(params))])
        return params.max_steps

    traced = jax.make_jaxpr(limit)().jaxpr.outvars[0]
    # A constant of the trace; where an environment computes its limit, it is computed here too.
    steps = int(getattr(traced, "val", None) or env.default_params.max_steps)
    agents = f" x {env.num_agents} agents" if env.num_agents > 1 else ""
    cells = [id, f"`{name}`", f"`{settings}`" if settings else "", seen[0] + agents, seen[1] + agents]
    return f"| {' | '.join(map(_cell, [*cells, 'none' if steps == NO_LIMIT else f'{steps:,}']))} |"


def environments_page(known: Mapping[str, str] | None = None) -> str:
    """`docs/envs/ids.md`; rows of `known` ids are taken as they are."""
    known, table = known or {}, registry.environments()
    lines = [
        "# Every environment id",
        "",
        "Written by `python -m tools.tables`; change the registry, not this page. `make(id, **settings)` takes",
        "any static setting of the class. Spaces are one agent's; bounds and units are on the family's page.",
        "",
    ]
    families = by_family()
    for key, ids in families.items():
        family = FAMILIES[key]
        lines += [f"- [{family.title}](#{_anchor(family.title)}): {len(ids)}"]
    for key, ids in families.items():
        family = FAMILIES[key]
        lines += [
            "",
            f"## {family.title}",
            "",
            f"{len(ids)} ids; [{title_of(f'envs/{family.page}')}]({family.page}).",
            "",
        ]
        lines += _classes(sorted({str(table[id].target) for id in ids}))
        lines += ["", "| id | class | settings | observation | action | limit |", "|---|---|---|---|---|---|"]
        lines += [known[id] if id in known else environment_row(id) for id in ids]
    return "\n".join([*lines, ""])


def _classes(targets: list[str]) -> list[str]:
    """A line of each class, or of all classes of a module of which it says the same."""
    lines: dict[tuple[str, str], list[str]] = {}
    for target in targets:
        module, _, name = target.partition(":")
        alone = sum(other.startswith(f"{module}:") for other in targets) == 1
        about = _about(getattr(importlib.import_module(module), name), alone)
        lines.setdefault((module, about), []).append(f"[`{name}`](../../{_file(module)})")
    return [f"- {', '.join(names)}: {about}" for (_, about), names in lines.items()]


def algorithms_page() -> str:
    """`docs/algos/index.md`: the registered algorithms by folder, then those that are put around another."""
    modules = {name: registry.get_algo(name) for name in registry.list_algos()}
    registered = {module.__name__ for module in modules.values()}
    lines = [
        "# Every algorithm",
        "",
        "Written by `python -m tools.tables`; change the registry or a docstring, not this page. `jaxrl train`",
        "runs those with action spaces on any environment that has one; the others are for tables, arms or tasks of",
        "their own. What `jaxrl train` learns from is the column's word: steps that the algorithm takes itself, or a",
        "`--dataset` (demonstrations: in Python alone). Each one's settings and papers: [every setting and",
        "paper](settings.md). What goes around one of them: [every curriculum](curricula.md).",
    ]
    for folder, title in KINDS.items():
        rows = [(name, module) for name, module in modules.items() if _folder(module) == folder]
        lines += ["", f"## {title}", "", "| name | | actions | learns from | page |", "|---|---|---|---|---|"]
        for name, module in rows:
            cells = ", ".join(registry.algo_actions(name)) or "-", learns_from(registry.algo_learns(name))
            lines.append(_algorithm_row(name, module, *cells))
    package = importlib.import_module("jaxrl.algos.population")
    lines += ["", "## Around another algorithm", "", "| module | | actions | page |", "|---|---|---|---|"]
    for found in pkgutil.iter_modules(package.__path__, "jaxrl.algos.population."):
        module = importlib.import_module(found.name)
        if found.name not in registered and hasattr(module, "make"):
            lines.append(_algorithm_row(found.name.rpartition(".")[2], module, "the student's"))
    return "\n".join([*lines, ""])


def curricula_page() -> str:
    """`docs/algos/curricula.md`: those that `--curriculum` takes, then those that are called from Python."""
    package = importlib.import_module("jaxrl.algos.curricula")
    named = {name: registry.get_curriculum(name) for name in registry.list_curricula()}
    taken = {module.__name__ for module, _ in named.values()}
    others = [m.name for m in pkgutil.iter_modules(package.__path__, "jaxrl.algos.curricula.") if m.name not in taken]
    lines = [
        "# Every curriculum",
        "",
        "Written by `python -m tools.tables`; change the registry or a docstring, not this page. How they are",
        "used: [the guide to curricula](../curricula.md).",
        "",
        "## `--curriculum NAME`",
        "",
        "Levels come from the environment's own `generate` or from ranges, those of `paired` from its `editor`;",
        "points lie in a box of its parameters; starts are states in which episodes begin.",
        "",
        "| name | chooses | |",
        "|---|---|---|",
    ]
    for name, (module, chooses) in named.items():
        lines.append(f"| [`{name}`](../../{_file(module.__name__)}) | {chooses} | {_doc(module)} |")
    lines += ["", "## From Python", "", "| module | |", "|---|---|"]
    for module in map(importlib.import_module, others):
        lines.append(f"| [`{module.__name__.rpartition('.')[2]}`](../../{_file(module.__name__)}) | {_doc(module)} |")
    return "\n".join([*lines, ""])


def settings_page() -> str:
    """`docs/algos/settings.md`: Config, Hyper and papers of every algorithm and curriculum that has a name."""
    lines = [
        "# Every setting and paper",
        "",
        "Written by `python -m tools.tables` from the dataclasses and docstrings; change these, not this page.",
        "`Config` is static: each value compiles its own program. `Hyper` is leaves: `vmap` over any of them. What a",
        "setting does in full is on the algorithm's page. If you use an algorithm, cite its papers beside",
        "[jaxrl](../../CITATION.cff).",
    ]
    for name in registry.list_algos():
        module = registry.get_algo(name)
        page = algorithm_page(module.__name__.removeprefix("jaxrl.algos."))
        lines += [
            "",
            f"## {name}",
            "",
            f"[{title_of(f'algos/{page}')}]({page}), [the file](../../{_file(module.__name__)}).",
        ]
        lines += _settings(module)
    for name in registry.list_curricula():
        module, _ = registry.get_curriculum(name)
        lines += [
            "",
            f"## Curriculum {name}",
            "",
            f"[{title_of('curricula.md')}](../curricula.md), [the file](../../{_file(module.__name__)}).",
        ]
        lines += _settings(module)
    return "\n".join([*lines, ""])


def _settings(module: ModuleType) -> list[str]:
    cited = papers(module.__doc__)
    lines = [f"Papers: {'; '.join(cited)}."] if cited else []
    for kind in ("Config", "Hyper"):
        if hasattr(module, kind):
            lines += ["", f"| {kind} | default | |", "|---|---|---|"]
            lines += [f"| `{n}` | {s.default} | {s.about} |" for n, s in settings(getattr(module, kind)).items()]
    return lines


USUAL = {
    "activation": "between the layers",
    "batch_size": "transitions a gradient step",
    "clip_eps": "how far from 1 the ratio of probabilities counts",
    "clip_value": "the larger squared error of the value and of the value kept within `clip_eps` of the old one",
    "ent_coef": "weight of the entropy",
    "epsilon_end": "and after `exploration_steps`",
    "epsilon_start": "probability of a random action, at first",
    "exploration_steps": "environment steps over which epsilon falls, linearly",
    "gae_lambda": "trace of the advantage estimate; 1: returns, 0: errors of one step",
    "gamma": "discount",
    "hidden": "widths of the hidden layers",
    "layer_norm": "before each activation",
    "learning_rate": "of the optimizer",
    "max_grad_norm": "norm to which the gradients, all together, are clipped",
    "normalize_advantage": "to mean 0 and deviation 1",
    "normalize_obs": "by running mean and deviation, which are part of the policy",
    "regularisation": "of the least squares: weight of the identity matrix",
    "rnn_size": "units of the recurrent layer",
    "vf_coef": "weight of the value loss",
}
"""What settings mean whose field says nothing, since it is what their name means everywhere."""


class Setting(NamedTuple):
    """A field of a Config or Hyper as cells of a table."""

    default: str
    about: str


@functools.cache
def settings(cls: type) -> dict[str, Setting]:
    """The fields of a dataclass, in their order: default, and the comment behind it or what is usual."""
    said, found = comments_of(cls), {}
    for field in dataclasses.fields(cls):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        shown = "" if default is dataclasses.MISSING else f"`{_default(default)}`"
        found[field.name] = Setting(_cell(shown), _cell(said.get(field.name) or USUAL.get(field.name, "")))
    return found


def _default(value: Any) -> str:
    """A default as it is written: numbers with their digits in threes, a function by its name."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if value != NO_LIMIT else "none"
    return getattr(value, "__name__", None) or repr(value)


_PARTICLE = r"(?:(?:[Vv]an|da|de|der|den|von) )"
_NAME = rf"{_PARTICLE}*[A-Z][\w'’-]*[a-zß-öø-ÿ](?: {_PARTICLE}+[A-Z]\w*)?"
_AUTHORS = rf"{_NAME}(?:(?:, | and | & |, and ){_NAME})*(?: et al\.)?"
_WHERE = r"arXiv:[\d.]+\d|Nature[^),.]*"
_TITLED = re.compile(rf'({_AUTHORS}) \(?(\d{{4}}[a-z]?)\)?, "([^"]+)"(?:,? \(?(?:\w+, )?({_WHERE}))?')
_NAMED = re.compile(rf"{_AUTHORS},? (?:\(\d{{4}}[a-z]?\)|\d{{4}}[a-z]?)(?=[,;:). ]|$)")


def papers(doc: str | None) -> list[str]:
    """What a docstring cites with a title; where it cites nothing so, what it names by authors and year."""
    text = " ".join(inspect.cleandoc(doc or "").split())
    titled = [f'{who} ({year}), "{title}"{f" ({at})" if at else ""}' for who, year, title, at in _TITLED.findall(text)]
    return list(dict.fromkeys(titled or _NAMED.findall(text)))


def learns_from(learns: Learns) -> str:
    """What an algorithm learns from, in the words of the table."""
    words = {"transitions": "a dataset", "windows": "windows of a dataset", "pairs": "preferences"}
    if learns.data == "demonstrations":
        return "demonstrations beside other steps"
    if learns.expert:
        return "acting beside an expert"
    data = [words[learns.data] + (" and a model of it" if learns.model else "")] if learns.data else []
    return " or ".join([*(["acting"] if learns.acts else []), *data])


def _algorithm_row(name: str, module: ModuleType, *cells: str) -> str:
    page = algorithm_page(module.__name__.removeprefix("jaxrl.algos."))
    link = f"[{title_of(f'algos/{page}')}]({page})"
    about = f"[`{name}`](../../{_file(module.__name__)})", _doc(module)
    return f"| {' | '.join((*about, *cells, link))} |"


def _doc(module: ModuleType) -> str:
    return _cell(first_sentence(module.__doc__))


def _folder(module: ModuleType) -> str:
    return module.__name__.removeprefix("jaxrl.algos.").rpartition(".")[0]


def _file(module: str) -> str:
    """A module's file from the root of the repository, where `envs` and `algos` are folders of their own."""
    return f"{module.removeprefix('jaxrl.').replace('.', '/')}.py"


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def pages(known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every page by its path below `docs/`."""
    return {
        "envs/ids.md": environments_page(known),
        "algos/index.md": algorithms_page(),
        "algos/curricula.md": curricula_page(),
        "algos/settings.md": settings_page(),
    }


def main(argv: list[str] | None = None) -> int:
    """Write the pages below the folder named first, or `docs`."""
    docs = Path(*(sys.argv[1:] if argv is None else argv)[:1] or ["docs"])
    if not docs.is_dir():
        print(f"tools.tables: {docs} is no folder; run it in the checkout, or name its docs.", file=sys.stderr)
        return 2
    for name, text in pages().items():
        (docs / name).write_text(text)
        print(docs / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
