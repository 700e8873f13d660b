"""Batched LAPACK calls can deadlock XLA on a CPU (docs/decisions.md), so nothing of ours may make any.

numpy's own `np.linalg`, on the host, is allowed.
"""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FILES = sorted(f for folder in ("jaxrl", "envs", "algos") for f in (ROOT / folder).rglob("*.py"))
FORBIDDEN = {"linalg", "lapack", "delta_orthogonal"}
ALLOWED_ORTHOGONAL = "networks.orthogonal"


def violations(source: str) -> list[str]:
    """Uses of linalg modules, and of orthogonal initialisers that are not ours, as `line: text`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: set[str] = set()
        if isinstance(node, ast.Import):
            names = {part for alias in node.names for part in alias.name.split(".")}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = set(module.split(".")) | {alias.name for alias in node.names}
            if "orthogonal" in names and module not in ("jaxrl.nn.networks", "networks"):
                names.add("lapack")
        elif isinstance(node, ast.Attribute):
            names = {node.attr} if ast.unparse(node) != "np.linalg" else set()
            if node.attr == "orthogonal" and not ast.unparse(node).endswith(ALLOWED_ORTHOGONAL):
                names.add("lapack")
        if names & FORBIDDEN:
            found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def test_there_is_something_to_check():
    assert len([f for f in FILES if f.parts[-2] == "jaxrl"]) > 5


@pytest.mark.parametrize("path", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_no_lapack_backed_calls(path):
    assert not violations(path.read_text()), "use plain operations or lax.map, and networks.orthogonal"


@pytest.mark.parametrize(
    "source",
    [
        "import jax.numpy as jnp\njnp.linalg.norm(x)",
        "import jax.numpy.linalg as la",
        "from jax.numpy import linalg",
        "from jax.numpy.linalg import qr",
        "from jax.scipy.linalg import cholesky",
        "jax.lax.linalg.eigh(x)",
        "nn.initializers.orthogonal(1.0)",
        "from flax.linen.initializers import orthogonal",
        "jax.nn.initializers.delta_orthogonal()",
    ],
)
def test_the_check_finds(source):
    assert violations(source)


@pytest.mark.parametrize(
    "source",
    [
        "from jaxrl.nn.networks import orthogonal\northogonal(2.0)",
        "from jaxrl.nn import networks\nnetworks.orthogonal()",
        "import numpy as np\nnp.linalg.inv(x)",
    ],
)
def test_the_check_passes(source):
    assert not violations(source)
