"""Who may import whom (read from the source), and what `import jaxrl` costs (measured in fresh processes)."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jaxtyping
import pytest

from jaxrl import registry
from jaxrl.envs.classic import cartpole

ROOT = Path(__file__).resolve().parents[2]
CORE = sorted(p for p in (ROOT / "jaxrl").rglob("*.py") if not {"envs", "algos"} & {*p.relative_to(ROOT).parts})
ENVS = sorted((ROOT / "envs").rglob("*.py"))
ALGOS = sorted((ROOT / "algos").rglob("*.py"))
INTEROP = {p for p in CORE if p.parent.name == "interop"}

HEAVY = {"brax", "gymnasium", "gymnax", "matplotlib", "mujoco", "mujoco_playground", "stable_baselines3"}
HEAVY |= {"tensorboardX", "wandb"}


DRAWING = {"drawing", "scene"}
"""Files of a family that make pictures; `render` of an environment imports them when it is called."""


class Import(NamedTuple):
    target: str  # absolute dotted name, relative ones resolved
    line: int
    relative: bool
    scope: str  # name of the enclosing function, "" at module level, "TYPE_CHECKING" where only type checkers look


def module_name(path: Path) -> str:
    """The import name of a file of the checkout: jaxrl.envs.classic.cartpole for envs/classic/cartpole.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "jaxrl" else ("jaxrl", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, source: str | None = None) -> list[Import]:
    """All imports of a file, wherever they stand."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    def visit(node: ast.AST, scope: str) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, False, scope)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    above = package.split(".")[: len(package.split(".")) - child.level + 1]
                    base = ".".join([*above, base] if base else above)
                for alias in child.names:
                    yield Import(f"{base}.{alias.name}", child.lineno, child.level > 0, scope)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from visit(child, scope or child.name)
            elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
                yield from visit(child, scope or "TYPE_CHECKING")
            elif isinstance(child, ast.If) and ast.unparse(child.test) == "__name__ == '__main__'":
                yield from visit(child, scope or "main")
            else:
                yield from visit(child, scope)

    return list(visit(ast.parse(path.read_text() if source is None else source), ""))


def within(target: str, package: str) -> bool:
    return target == package or target.startswith(package + ".")


def is_pure(path: Path) -> bool:
    """Whether a file holds pure functions only: not what runs on the host, adapters, or pictures of environments."""
    parts = path.relative_to(ROOT).parts
    host = parts[0] == "jaxrl" and parts[1] in ("host", "interop", "testing", "zoo", "__init__.py")
    return not host and path.stem not in DRAWING


def violations(path: Path, source: str | None = None) -> list[str]:
    """What a file imports that its place in the house forbids."""
    folder = path.relative_to(ROOT).parts[0]
    family = ".".join(module_name(path).split(".")[:3])  # jaxrl.envs.classic
    wrong = []
    for target, line, relative, scope in imports(path, source):
        bad = ""
        if any(within(target, top) for top in ("envs", "algos", "experiments", "tests")):
            bad = "the package is jaxrl; experiments and tests are imported by nothing"
        elif within(target, "jax._src") or target == "jaxlib" or target.startswith("jaxlib."):
            bad = "private to jax"
        elif folder == "jaxrl" and (within(target, "jaxrl.envs") or within(target, "jaxrl.algos")):
            bad = "the core imports neither environments nor algorithms"
        elif folder == "envs" and within(target, "jaxrl.algos"):
            bad = "an environment imports the core and its family"
        elif folder == "envs" and within(target, "jaxrl.envs") and not (relative and within(target, family)):
            bad = "an environment imports its own family, relatively"
        elif folder == "algos" and within(target, "jaxrl.envs"):
            bad = "an algorithm imports no environment"
        elif folder == "algos" and scope != "main" and (within(target, "jaxrl.registry") or target == "jaxrl.make"):
            bad = "only an algorithm's main looks environments up"
        elif within(target, "jaxrl.host") and is_pure(path) and scope not in ("render", "main", "TYPE_CHECKING"):
            bad = "pure code never imports what runs on the host"
        elif target.split(".")[0] in HEAVY and not scope and path not in INTEROP:
            bad = "imported where it is used, inside a function"
        if bad:
            wrong.append(f"{path.relative_to(ROOT)}:{line}: {target}: {bad}")
    return wrong


@pytest.mark.parametrize("path", [*CORE, *ENVS, *ALGOS], ids=lambda p: str(p.relative_to(ROOT)))
def test_import_directions(path):
    assert not violations(path)


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("jaxrl/new.py", "from jaxrl.envs.classic import cartpole"),
        ("jaxrl/new.py", "def f():\n    from jaxrl import algos"),
        ("jaxrl/new.py", "import matplotlib.pyplot as plt"),
        ("jaxrl/new.py", "from jax._src import random"),
        ("jaxrl/new.py", "import tests.helpers"),
        ("jaxrl/new.py", "from jaxrl.host.run.fit import fit"),
        ("jaxrl/nn/new.py", "def f():\n    from jaxrl.host import plotting"),
        ("envs/classic/new.py", "from jaxrl.host.render import save"),
        ("algos/new.py", "from jaxrl.host import checkpoint"),
        ("envs/classic/new.py", "from jaxrl.envs.classic.cartpole import dynamics"),
        ("envs/classic/new.py", "from ..grid import maze"),
        ("envs/classic/new.py", "from jaxrl.algos import ppo"),
        ("envs/classic/new.py", "from envs.classic import cartpole"),
        ("algos/new.py", "from jaxrl.envs.classic import cartpole"),
        ("algos/new.py", "from jaxrl import make"),
        ("algos/new.py", "from ..envs.classic import cartpole"),
        ("algos/new.py", "if True:\n    import experiments.speed"),
    ],
)
def test_a_forbidden_import_is_seen(place, source):
    assert len(violations(ROOT / place, source)) == 1


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("jaxrl/new.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import matplotlib"),
        ("jaxrl/new.py", "def plot():\n    import matplotlib"),
        ("envs/classic/new.py", "from . import cartpole\nfrom .cartpole import dynamics\nfrom jaxrl.math import wrap"),
        ("algos/new.py", "def main():\n    from jaxrl import make"),
        ("algos/new.py", "if __name__ == '__main__':\n    from jaxrl.host.cli import train_file"),
        ("envs/classic/drawing.py", "from jaxrl.host.plotting import plot"),
        ("jaxrl/host/new.py", "from jaxrl.host.run.fit import fit"),
        ("algos/new.py", "from jaxrl.algos.on_policy.ppo import loss\nfrom . import dqn"),
    ],
)
def test_an_allowed_import_passes(place, source):
    assert not violations(ROOT / place, source)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """One circle of names for each set of modules that reach each other: the shortest, from a to ... to a."""

    def way(start: str) -> list[str]:
        before, queue = {}, [start]
        for name in queue:
            for target in sorted(graph[name]):
                if target == start:
                    found = [start, name]
                    while found[-1] != start:
                        found.append(before[found[-1]])
                    return found[::-1]
                if target not in before:
                    before[target] = name
                    queue.append(target)
        return []

    found = sorted((way(name) for name in graph), key=lambda circle: (len(circle), circle))
    shortest, seen = [], set()
    for circle in filter(None, found):
        if not seen & {*circle}:
            shortest.append(circle)
        seen |= {*circle}
    return shortest


def import_graph(modules: dict[str, list[Import]]) -> dict[str, set[str]]:
    """By module, the modules that it imports, wherever in it that stands; not what only type checkers look at."""

    def module(target: str) -> str:
        while target and target not in modules:
            target = target.rpartition(".")[0]
        return target

    return {
        name: {module(i.target) for i in found if i.scope != "TYPE_CHECKING"} - {"", name}
        for name, found in modules.items()
    }


def test_no_imports_go_in_a_circle():
    files = [*CORE, *ENVS, *ALGOS]
    found = circles(import_graph({module_name(path): imports(path) for path in files}))
    assert not found, "\n" + "\n".join(" -> ".join(circle) for circle in found)


def test_a_circle_is_seen():
    a, b, c = (ROOT / f"envs/classic/{name}.py" for name in "abc")
    sources = {
        a: "from typing import TYPE_CHECKING\nfrom .b import f\nif TYPE_CHECKING:\n    from . import c",
        b: "def render():\n    from . import c",
        c: "import jax",
    }
    around = {**sources, c: "from jaxrl.envs.classic.a import g"}
    straight, round_ = (
        import_graph({module_name(path): imports(path, source) for path, source in case.items()})
        for case in (sources, around)
    )
    assert not circles(straight)
    family = "jaxrl.envs.classic"
    assert circles(round_) == [[f"{family}.a", f"{family}.b", f"{family}.c", f"{family}.a"]]


def test_the_suite_runs_under_the_type_checker():
    with pytest.raises(jaxtyping.TypeCheckError):
        registry.list_envs(3)  # pyright: ignore[reportArgumentType]
    assert type(cartpole.__loader__) is type(registry.__loader__)


def fresh(code: str) -> dict:
    """Run code, which prints a JSON object, in a new interpreter outside the checkout."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd="/", timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


IMPORT_COST = """
import json, sys, time
import jax
before, start = set(sys.modules), time.process_time()
import jaxrl
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "loaded": sorted({m.split(".")[0] for m in set(sys.modules) - before})}))
"""


def test_import_jaxrl_is_light():
    runs = [fresh(IMPORT_COST) for _ in range(3)]
    late = {"brax", "chex", "flax", "gymnasium", "matplotlib", "mujoco", "optax", "orbax", "rich", "tyro"}
    assert not late & set(runs[0]["loaded"])
    assert min(run["seconds"] for run in runs) <= 0.3  # processor time: other processes do not count


def test_environments_and_algorithms_load_nothing_heavy():
    names = [module_name(p) for p in [*CORE, *ENVS, *ALGOS] if p not in INTEROP]
    code = "import importlib, json, sys\n"
    code += f"for name in {names}: importlib.import_module(name)\n"
    code += f"print(json.dumps({{'heavy': sorted(set(sys.modules) & {HEAVY})}}))"
    assert fresh(code)["heavy"] == []


def test_the_public_names_exist():
    """`from jaxrl import *` in words: each name of `__all__` resolves, even after its module was imported."""
    code = "import json, jaxrl, jaxrl.host.run.fit\n"
    code += "missing = [n for n in jaxrl.__all__ if not hasattr(jaxrl, n)]\n"
    code += "print(json.dumps({'missing': missing, 'fit': callable(jaxrl.fit)}))"
    assert fresh(code) == {"missing": [], "fit": True}
