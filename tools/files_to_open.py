"""What a reader opens to see an algorithm's whole learning rule: files and lines, counted from the imports.

    python tools/files_to_open.py                                   # a table, then its summary
    python tools/files_to_open.py --markdown                        # for the docs
    python tools/files_to_open.py --algorithm iql                   # the files of one, and who imports them
    python tools/files_to_open.py --open "jaxrl/replay/ring.py"     # as if this were no contract

Begun at the algorithm's file, every import of `jaxrl` is followed, those inside of functions, too; not those that only
type checkers or `python file.py` see. It ends at the core: what `CONTRACTS` names is used without being read, since a
sentence says what it does. A package is no file to open: of what its `__init__` hands on, the file that defines it is.
Nothing is imported: sources are read.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import functools
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CONTRACTS: dict[str, str] = {
    "envs/*": "Environments, which algorithms are trained on.",
    "jaxrl/actors.py": "Who acts beside a learner, and what an action is worth to them.",
    "jaxrl/algorithm.py": "The protocol that `make` of every algorithm returns, and what checks and caches it.",
    "jaxrl/curriculum/attachment.py": "Puts a curriculum around a student; what episodes showed of levels.",
    "jaxrl/curriculum/level_buffer.py": "Levels with scores and ages: drawn, scored anew, put in place of the worst.",
    "jaxrl/curriculum/protocol.py": "The protocol of curricula.",
    "jaxrl/curriculum/scores.py": "What a level is worth, from a student's rollout on it.",
    "jaxrl/curriculum/teaching.py": "Levels from named ranges, and the tasks that a teacher remembers.",
    "jaxrl/data/datasets.py": "Stored experience, and drawing from it.",
    "jaxrl/data/hindsight.py": "Goals that were reached later, for a dataset's steps.",
    "jaxrl/data/quality.py": "How good a dataset is, and what its steps cover.",
    "jaxrl/data/preferences.py": "Pairs of segments with labels, and drawing from them.",
    "jaxrl/data/reward_models.py": "Rewards by Bradley and Terry's model.",
    "jaxrl/data/dynamics.py": "An ensemble of models of a dataset's transitions.",
    "jaxrl/data/transitions.py": "What a replay buffer and a dataset hold of a step.",
    "jaxrl/environment.py": "The protocol of environments, and pytrees with `replace`.",
    "jaxrl/evaluation.py": "Plays episodes with a policy and says what they returned.",
    "jaxrl/exact/*": "Finite tasks as arrays and what is known of them exactly: planners, solvers, mixtures.",
    "jaxrl/math.py": "Operations that XLA is slow at, under their mathematical names.",
    "jaxrl/nesting.py": "The state and settings of an algorithm that stands around another.",
    "jaxrl/nn/*": "Networks, distributions, the optimiser's step, Polyak averages, running normalisation.",
    "jaxrl/off_policy/imagination.py": "Rolls a policy out in a model and mixes what it imagines with the data.",
    "jaxrl/off_policy/interventions.py": "Says who acts, learner or expert, and stores what a rule keeps.",
    "jaxrl/off_policy/learner.py": "Acts and stores, or draws from a dataset, and takes the gradient steps of a rule.",
    "jaxrl/off_policy/outcomes.py": "The same on windows of a dataset, acting by the outcome that is asked for.",
    "jaxrl/off_policy/q_learner.py": "The same of action values: epsilon-greedy, n-step windows, a target network.",
    "jaxrl/off_policy/sequences.py": "Stores sequences with their carries, and says which steps have a target.",
    "jaxrl/off_policy/steps.py": "Stepping and storing, and how many gradient steps are due.",
    "jaxrl/meta/agent.py": "An agent that learns by an update rule, whatever the rule is.",
    "jaxrl/meta/rule.py": "The protocol of update rules.",
    "jaxrl/meta/stored.py": "Reads and writes a rule's weights.",
    "jaxrl/on_policy.py": "How a learner of rollouts begins, and its epochs of minibatches.",
    "jaxrl/online.py": "Makes an algorithm of a learner of single steps; says what is called when.",
    "jaxrl/registry.py": "Names and what they stand for.",
    "jaxrl/replay/prioritised.py": "A replay buffer that draws by priorities.",
    "jaxrl/replay/ring.py": "A replay buffer that draws uniformly and forgets the oldest.",
    "jaxrl/replay/sequence.py": "A replay buffer that draws windows of steps.",
    "jaxrl/returns.py": "Returns and advantages: discounted, GAE, lambda, V-trace.",
    "jaxrl/rollout.py": "Steps environments with an action function and says where episodes ended.",
    "jaxrl/spaces.py": "Observation and action spaces, and units of a box.",
    "jaxrl/streaming.py": "Follows one stream of steps with a network; says what is called when.",
    "jaxrl/telemetry.py": "Named quantities that are shown of a state.",
    "jaxrl/testing/*": "Checks for tests.",
    "jaxrl/vector_env.py": "Many environments as one, reset where an episode ends.",
    "jaxrl/wrappers/*": "Environments made of others.",
}
"""Files that need no opening: a pattern of paths from the root (`*` also matches `/`), and what they promise."""

NO_READING = ("jaxrl/host/*", "jaxrl/interop/*", "jaxrl/zoo/*", "*/ids.py")
"""Not of the rule at all: what runs, shows, keeps and lists algorithms."""


class Import(NamedTuple):
    module: str  # absolute
    names: tuple[str, ...]  # () for `import module`
    aliases: tuple[str, ...]  # what they are called here
    checked_only: bool  # under TYPE_CHECKING
    line: int


class Source:
    """A file, read once."""

    def __init__(self, path: Path, module: str) -> None:
        text = path.read_text()
        self.path, self.module, self.lines = path, module, text.count("\n")
        self.tree = ast.parse(text)
        self.is_package = path.name == "__init__.py"
        self.imports = list(self._imports(self.tree, False))

    def _imports(self, node: ast.AST, checked_only: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    called = alias.asname or alias.name.partition(".")[0]
                    yield Import(alias.name, (), (called,), checked_only, child.lineno)
            elif isinstance(child, ast.ImportFrom):
                names = tuple(alias.name for alias in child.names)
                aliases = tuple(alias.asname or alias.name for alias in child.names)
                yield Import(self._absolute(child), names, aliases, checked_only, child.lineno)
            elif isinstance(child, ast.Call):
                yield from self._called(child, checked_only)
                yield from self._imports(child, checked_only)
            elif isinstance(child, ast.If) and _is_main(child.test):
                yield from (found for other in child.orelse for found in self._imports(other, checked_only))
            elif isinstance(child, ast.If) and _is_type_checking(child.test):
                for part, only in ((child.body, True), (child.orelse, checked_only)):
                    yield from self._imports(ast.Module(part, []), only)
            else:
                yield from self._imports(child, checked_only)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.module.split(".") if self.is_package else self.module.split(".")[:-1]
        above = package[: len(package) - node.level + 1]
        return ".".join([*above, *([node.module] if node.module else [])])

    def _called(self, call: ast.Call, checked_only: bool) -> Iterator[Import]:
        """`import_module("jaxrl.x")` and `get_algo("ppo")` are imports, too."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        first = call.args[0] if call.args else None
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            return
        if name == "import_module":
            yield Import(first.value, (), ("",), checked_only, call.lineno)
        elif name in ("get_algo", "get_curriculum"):
            yield Import("jaxrl.algos", (first.value,), ("",), checked_only, call.lineno)

    def attributes(self, alias: str) -> set[str]:
        """What is read of a name, as `attach` in `curriculum.attach`."""
        return {
            node.attr
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == alias
        }

    def outside_annotations(self) -> set[str]:
        """Names that are used elsewhere than in annotations; strings do not count."""
        annotations = set()
        for node in ast.walk(self.tree):
            for field in ("annotation", "returns"):
                part = getattr(node, field, None)
                if isinstance(part, ast.AST):
                    annotations |= {id(inner) for inner in ast.walk(part)}
        names = (node for node in ast.walk(self.tree) if isinstance(node, ast.Name) and id(node) not in annotations)
        return {node.id for node in names}


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and getattr(test.left, "id", "") == "__name__"


def _is_type_checking(test: ast.expr) -> bool:
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


class Project:
    """The files below a root: the package `jaxrl/`, and `envs/` and `algos/`, which are `jaxrl.envs` and
    `jaxrl.algos` wherever they stand."""

    def __init__(self, root: Path, contracts: dict[str, str] = CONTRACTS, opened: tuple[str, ...] = ()) -> None:
        self.root, self.contracts, self.opened = root, contracts, opened
        self.homes = {}
        for name in ("algos", "envs"):
            inside = root / "jaxrl" / name
            real = inside.is_dir() and not inside.is_symlink()
            self.homes[name] = inside if real else root / name
        self.source = functools.cache(lambda path: Source(path, self._module(path)))
        self.file_of = functools.cache(self._file_of)
        self.contract = functools.cache(self._contract)
        self.followed = functools.cache(self._followed)
        self.table = self._table("ALGORITHMS") | self._table("CURRICULA")

    def algorithms(self) -> dict[str, Path]:
        """The file of each algorithm of the table."""
        return self._table("ALGORITHMS")

    def _table(self, name: str) -> dict[str, Path]:
        """Of `algos/ids.py`: of each entry the first string that is a module there."""
        path = self.homes["algos"] / "ids.py"
        for node in ast.walk(ast.parse(path.read_text())) if path.exists() else ():
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if name in (getattr(target, "id", "") for target in targets) and isinstance(node.value, ast.Dict):  # type: ignore[attr-defined]
                return {key.value: self._entry(value) for key, value in zip(node.value.keys, node.value.values)}  # type: ignore  # noqa: B905
        return {}

    def _entry(self, value: ast.expr) -> Path:
        words = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
        for word in words:
            if isinstance(word, str) and (path := self.file_of(f"jaxrl.algos.{word.removeprefix('jaxrl.algos.')}")):
                return path
        raise ValueError(f"algos/ids.py: none of {words} is a module of algos/.")

    def _file_of(self, module: str) -> Path | None:
        """The file of a module or package of the project."""
        first, *rest = module.split(".")
        if first != "jaxrl":
            return None
        home = self.root / "jaxrl"
        if rest and rest[0] in self.homes:
            home, rest = self.homes[rest[0]], rest[1:]
        stem = home.joinpath(*rest)
        for path in (stem.with_suffix(".py") if rest else None, stem / "__init__.py"):
            if path is not None and path.is_file():
                return path
        return None

    def _module(self, path: Path) -> str:
        for name, home in self.homes.items():
            if home in path.parents:
                parts = ("jaxrl", name, *path.relative_to(home).with_suffix("").parts)
                break
        else:
            parts = path.relative_to(self.root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def name(self, path: Path) -> str:
        """The path as it is shown and as contracts name it: `algos/…`, `envs/…`, `jaxrl/…`."""
        for name, home in self.homes.items():
            if home in path.parents:
                return f"{name}/{path.relative_to(home).as_posix()}"
        return path.relative_to(self.root).as_posix()

    def _contract(self, path: Path) -> str | None:
        """What is promised of a file that needs no opening."""
        name = self.name(path)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.opened):
            return None
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in NO_READING):
            return "It is not of the rule."
        return next((said for pattern, said in self.contracts.items() if fnmatch.fnmatchcase(name, pattern)), None)

    def reached(self, source: Source, found: Import) -> set[Path]:
        """The files that an import leads to; packages are looked through."""
        if found.names:
            pairs = zip(found.names, found.aliases, strict=True)
            return set().union(*(self._member(found.module, name, frozenset(), source, alias) for name, alias in pairs))
        return self._whole(found.module, source, found.aliases[0])

    def _whole(self, module: str, source: Source, alias: str) -> set[Path]:
        """`import module`: the file; of a package what is read of it."""
        path = self.file_of(module)
        if path is None:
            return set()
        if path.name != "__init__.py":
            return {path}
        attributes = source.attributes(alias) if alias else set()
        return set().union(*(self._member(module, name, frozenset(), source, "") for name in attributes))

    def _member(self, module: str, name: str, before: frozenset[str], source: Source, alias: str) -> set[Path]:
        """`from module import name`."""
        path = self.file_of(module)
        if path is None or f"{module}.{name}" in before:
            return set()
        if path.name != "__init__.py":
            return {path}
        inside = self.file_of(f"{module}.{name}")
        if inside is not None and inside.name != "__init__.py":
            return {inside}
        package = self.source(path)
        if inside is not None:
            return self._whole(f"{module}.{name}", source, alias) if alias else set()
        before |= {f"{module}.{name}"}
        for found in package.imports:
            if name in found.aliases:
                taken = found.names[found.aliases.index(name)] if found.names else ""
                handed = self._member(found.module, taken, before, package, "") if taken else set()
                return handed or {path}
            if found.names == ("*",) and (handed := self._member(found.module, name, before, package, "")):
                return handed
        if module == "jaxrl.algos":  # resolved when it is asked for, by the table
            if name in self.table:
                return {self.table[name]}
            return set(sorted(self.homes["algos"].rglob(f"{name}.py"))[:1])
        defined = {node.name for node in package.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        return {path} if name in defined else set()

    def _followed(self, path: Path) -> tuple[Path, ...]:
        """The files that a reader of this one must open, too, in the order of its imports."""
        source = self.source(path)
        reached = (sorted(self.reached(source, found)) for found in source.imports if not found.checked_only)
        return tuple(dict.fromkeys(path for paths in reached for path in paths if self.contract(path) is None))

    def to_open(self, start: Path) -> dict[Path, Path | None]:
        """The files of a rule, `start` first, each with the file that first imports it."""
        opened: dict[Path, Path | None] = {start: None}
        queue = [start]
        while queue:
            importer = queue.pop(0)
            for path in self.followed(importer):
                if path not in opened:
                    opened[path] = importer
                    queue.append(path)
        return opened

    def mere_types(self, paths: set[Path]) -> tuple[int, int]:
        """How many of the imports of these files only type checkers see, and how many others only annotations use; of
        files that are no contract."""
        checked = annotated = 0
        for source in map(self.source, paths):
            used = source.outside_annotations()
            for found in source.imports:
                reached = {path for path in self.reached(source, found) if self.contract(path) is None}
                if not reached - {source.path}:
                    continue
                checked += found.checked_only
                annotated += not found.checked_only and not any(alias in used or not alias for alias in found.aliases)
        return checked, annotated


class Row(NamedTuple):
    algorithm: str
    own: int
    files: int
    total: int
    others: tuple[str, ...]


def rows(project: Project) -> list[Row]:
    """Of each algorithm, by name."""
    made = []
    for name, path in sorted(project.algorithms().items()):
        opened = project.to_open(path)
        lines = [project.source(p).lines for p in opened]
        made.append(Row(name, lines[0], len(lines), sum(lines), tuple(project.name(p) for p in opened)[1:]))
    return made


def summary(project: Project, table: list[Row]) -> list[str]:
    """The numbers that are judged, a sentence each."""
    counts = [row.files for row in table]
    most = max(counts)
    who = [row.algorithm for row in table if row.files == most]
    algos = {path: len(path.read_text().splitlines()) for path in sorted(project.homes["algos"].rglob("*.py"))}
    longest = max(algos, key=lambda path: algos[path])
    above = sum(lines > 500 for lines in algos.values())
    opened = set().union(*(project.to_open(path) for path in project.algorithms().values()))
    shared = {path for path in opened if path not in project.algorithms().values()}
    checked, annotated = project.mere_types(opened)
    named = ", ".join(who[:5]) + (f" and {len(who) - 5} more" if len(who) > 5 else "")
    return [
        f"{counts.count(1)} of {len(table)} algorithms need one file, {counts.count(2)} two, "
        f"{sum(n > 2 for n in counts)} more; the most is {most} ({named}).",
        f"Lines to read: median {statistics.median(row.total for row in table):g}, "
        f"mean {statistics.mean(row.total for row in table):.0f}, most {max(row.total for row in table)}.",
        f"Beside the algorithms' own files, {len(shared)} others with {sum(project.source(p).lines for p in shared)} "
        "lines are to be opened for some.",
        f"algos/: {len(algos)} files, {sum(algos.values())} lines; the longest is {project.name(longest)} "
        f"({algos[longest]}), {above} are above 500.",
        f"Imports of what is no contract: {checked} only for type checkers (not followed), {annotated} used in "
        "annotations only, or not (followed).",
    ]


def shown(project: Project, table: list[Row], markdown: bool) -> Iterator[str]:
    """The table and its summary, line by line."""
    if markdown:
        yield "| algorithm | its file | files to open | lines in all | the others |"
        yield "|---|--:|--:|--:|---|"
        for row in table:
            others = ", ".join(f"`{name}`" for name in row.others)
            yield f"| `{row.algorithm}` | {row.own} | {row.files} | {row.total} | {others} |"
        yield ""
        yield from (f"- {line}" for line in summary(project, table))
        yield ""
        yield "Not counted, as a sentence says what they do:"
        yield ""
        yield from (
            f"- `{pattern}`: {said}" for pattern, said in project.contracts.items() if _matches(project, pattern)
        )
        return
    width = max(len(row.algorithm) for row in table)
    yield f"{'algorithm':{width}} {'own':>5} {'files':>5} {'total':>6}  others"
    for row in table:
        others = " ".join(name.removesuffix(".py") for name in row.others)
        yield f"{row.algorithm:{width}} {row.own:5} {row.files:5} {row.total:6}  {others}".rstrip()
    yield ""
    yield from summary(project, table)


def _matches(project: Project, pattern: str) -> bool:
    """Whether there is such a file."""
    first, _, rest = pattern.partition("/")
    home = project.homes.get(first, project.root / first)
    return any(True for path in home.glob(rest.replace("*", "**/*") if "*" in rest else rest) if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="of the checkout")
    parser.add_argument("--markdown", action="store_true", help="as the docs have it")
    parser.add_argument("--algorithm", help="list the files of this one, and who imports each")
    parser.add_argument("--open", nargs="+", default=[], metavar="PATTERN", help="files that are no contracts then")
    args = parser.parse_args()
    project = Project(args.root.resolve(), opened=tuple(args.open))
    if args.algorithm is not None:
        known = project.algorithms()
        if args.algorithm not in known:
            parser.error(f"{args.algorithm!r} is none of {', '.join(known)}")
        for path, importer in project.to_open(known[args.algorithm]).items():
            by = f"  imported by {project.name(importer)}" if importer else ""
            print(f"{project.source(path).lines:5} {project.name(path)}{by}")
        return
    print(*shown(project, rows(project), args.markdown), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
