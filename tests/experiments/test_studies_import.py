"""Every file of the studies and benchmarks imports as its own command would, and uses public names of jaxrl only.

Nobody trains studies in a test, so what a change of the package breaks in them shows here first.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    str(path.relative_to(ROOT)) for top in ("experiments", "benchmarks") for path in ROOT.glob(f"{top}/**/*.py")
)

PEERS = {
    "benchmarks/combinatorial.py": "jumanji",
    "benchmarks/env_throughput.py": "gymnax",
    "benchmarks/peer_gbrl.py": "gbrl",
    "experiments/rule_worlds/throughput.py": "xminigrid",
}
"""Files that import at their top a library that is no dependency of jaxrl: excused where it is not installed."""

PRIVATE = {}
"""What uses private names today. Nothing is to be added; an entry goes with the use of the name."""

IMPORT_ALL = """
import json, runpy, sys
from pathlib import Path

root = Path(sys.argv[1])
sys.path.insert(0, str(root))
import jaxrl  # of this checkout

assert Path(jaxrl.__file__).is_relative_to(root)
sys.path.remove(str(root))  # as for a command, whose path has its own folder
there, wrong = list(sys.path), {}
own = tuple(f"{root}/{top}/" for top in ("experiments", "benchmarks", "tools"))  # Path takes 20 s for all modules
for file in map(root.joinpath, json.load(sys.stdin)):
    sys.path[:] = [str(file.parent), *there]
    sys.argv = [str(file)]
    try:
        runpy.run_path(str(file), run_name="imported")
    except BaseException as error:
        wrong[str(file.relative_to(root))] = [type(error).__name__, str(error), getattr(error, "name", None)]
    for name, module in list(sys.modules.items()):  # another folder has files of the same names
        if (getattr(module, "__file__", None) or "").startswith(own):
            del sys.modules[name]
print(json.dumps(wrong))
"""


def test_every_file_imports():
    """All in one process, apart from this one: siblings go by bare names, as `picture`, and some set up matplotlib."""
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg"}
    env.pop("PYTHONPATH", None)
    command = [sys.executable, "-c", IMPORT_ALL, str(ROOT)]
    done = subprocess.run(command, input=json.dumps(FILES), env=env, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wrong = json.loads(done.stdout.splitlines()[-1])
    for file, peer in PEERS.items():
        if file in wrong and wrong[file][2] == peer:
            del wrong[file]
    assert not wrong, "\n".join(f"{file}: {kind}: {text}" for file, (kind, text, _) in wrong.items())


def private_names(source):
    """Names with a leading underscore that a file takes from modules of jaxrl, imported or as attributes."""
    tree = ast.parse(source)
    found, modules = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "jaxrl":
                    modules.add(alias.asname or "jaxrl")
                    found |= {alias.name for part in alias.name.split(".") if part.startswith("_")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "jaxrl":
            for alias in node.names:
                modules.add(alias.asname or alias.name)
                path = f"{node.module}.{alias.name}"
                found |= {path for part in path.split(".") if part.startswith("_")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            dotted = ast.unparse(node.value)
            if dotted.partition(".")[0] in modules and node.attr not in ("_replace", "_asdict", "_fields", "_make"):
                found.add(f"{dotted}.{node.attr}")
    return found


@pytest.mark.parametrize("file", FILES)
def test_only_public_names_are_used(file):
    found, known = private_names((ROOT / file).read_text()), PRIVATE.get(file, set())
    assert not found - known, f"{file} uses {sorted(found - known)}: make the name public, or copy what is meant"
    assert not known - found, f"{file} no longer uses {sorted(known - found)}: take it out of PRIVATE"


def test_private_names_are_found():
    for source, names in [
        ("from jaxrl.algos import cql\nclass A(cql._CQL): ...", {"cql._CQL"}),
        ("from jaxrl.algos.actor_critic.cql import _CQL", {"jaxrl.algos.actor_critic.cql._CQL"}),
        ("from jaxrl import _sizes\n", {"jaxrl._sizes"}),
        ("import jaxrl.rollout as r\nr._step(1)", {"r._step"}),
        ("import jaxrl\njaxrl.nn.optim._flat", {"jaxrl.nn.optim._flat"}),
        ("from jaxrl import rollout\nrollout.Ends()._replace(a=1)\nself._x\nrollout.__doc__", set()),
    ]:
        assert private_names(source) == names


def test_only_what_is_there_is_excused():
    assert {*PEERS, *PRIVATE} <= set(FILES)
