"""What `pip install jaxrl` brings: seconds, MB of each package, and what each dependency costs to import.

A copy of the committed files is installed into a fresh virtual environment, with the locked versions. A dependency's
"own" MB are its files; "alone" are those of all that would not be there without it. Imports are CPU seconds of fresh
processes.
Run: `python benchmarks/install_size.py --out install_size.json`.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from common import print_table, save

CHECKOUT = pathlib.Path(__file__).parents[1]

MODULES = {
    "brax": "brax.envs",
    "mujoco-mjx": "mujoco.mjx",
    "flax": "flax.linen",
    "matplotlib": "matplotlib.pyplot",
    "orbax-checkpoint": "orbax.checkpoint",
    "pillow": "PIL.Image",
    "tensorboardx": "tensorboardX",
    "scipy": "scipy.stats",
}
"""What a user of a package imports, where that is not its name."""

TOGETHER = (("brax", "mujoco-mjx"),)
"""Dependencies of which one brings the other, so that only both together can go."""

LIST = """
import importlib.metadata as metadata, json
out = {}
for d in metadata.distributions():
    size = sum(p.stat().st_size for p in map(d.locate_file, d.files or ()) if p.exists())
    out[d.metadata["Name"]] = {"version": d.version, "bytes": size, "requires": d.requires or []}
print(json.dumps(out))
"""


def canonical(name: str) -> str:
    """A distribution's name as indices compare it."""
    return name.lower().replace("_", "-").replace(".", "-")


def requirements(lines: list[str], extras: frozenset[str]) -> dict[str, frozenset[str]]:
    """Names, with their extras, of those of `lines` that hold on this platform."""
    from packaging.requirements import Requirement

    found: dict[str, frozenset[str]] = {}
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            name = canonical(requirement.name)
            found[name] = found.get(name, frozenset()) | requirement.extras
    return found


def reachable(tree: dict[str, Any], start: dict[str, frozenset[str]]) -> set[str]:
    """Installed names that `start` needs, itself included."""
    seen: dict[str, frozenset[str]] = {}
    queue = list(start.items())
    while queue:
        name, extras = queue.pop()
        if name in tree and not (name in seen and extras <= seen[name]):
            seen[name] = seen.get(name, frozenset()) | extras
            queue.extend(requirements(tree[name]["requires"], seen[name]).items())
    return set(seen)


def cpu_seconds(python: pathlib.Path, statement: str) -> float:
    """User and system seconds of a fresh process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, "-W", "ignore", "-c", statement], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def beyond_jax(python: pathlib.Path, modules: str, repeats: int) -> float:
    """Median of what importing `modules` takes beyond jax, alternating processes; a first one fills the file cache."""
    cpu_seconds(python, f"import jax, {modules}")
    jax, both = "import jax", f"import jax, {modules}"
    return statistics.median(-cpu_seconds(python, jax) + cpu_seconds(python, both) for _ in range(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="install_size.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, python = pathlib.Path(folder, "source"), pathlib.Path(folder, "venv/bin/python")
        source.mkdir()
        files = subprocess.run(["git", "archive", "HEAD"], cwd=CHECKOUT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x"], cwd=source, input=files, check=True)
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        start = time.perf_counter()
        pip = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "-c", "requirements.lock", "."]
        subprocess.run(pip, cwd=source, check=True)
        install = time.perf_counter() - start
        listed = subprocess.run([python, "-c", LIST], check=True, capture_output=True, text=True).stdout
        tree = {canonical(name): entry for name, entry in json.loads(listed).items()}
        top = requirements(tree["jaxrl"]["requires"], frozenset())
        everything = reachable(tree, top)
        base = statistics.median(cpu_seconds(python, "import jax") for _ in range(args.repeats + 1))
        rows = {}
        for names in [*((name,) for name in top), *TOGETHER]:
            rest = {other: extras for other, extras in top.items() if other not in names}
            gone = everything - reachable(tree, rest)
            module = ", ".join(MODULES.get(name, name) for name in names)
            rows[", ".join(names)] = {
                "version": ", ".join(tree[name]["version"] for name in names),
                "own_mb": sum(tree[name]["bytes"] for name in names) / 1e6,
                "alone_mb": sum(tree[other]["bytes"] for other in gone) / 1e6,
                "alone": sorted(gone),
                "import_s": beyond_jax(python, module, args.repeats),
            }
        total = sum(tree[name]["bytes"] for name in everything) / 1e6
        own = tree["jaxrl"]["bytes"] / 1e6
        beyond = beyond_jax(python, "jaxrl", args.repeats)
    print_table(
        f"{install:.0f} s; {len(everything)} packages, {total:.0f} MB. Import of jax {base:.2f} s; jaxrl {own:.1f} MB, "
        f"{beyond:.2f} s beyond",
        ["dependency", "version", "MB, own", "MB, alone", "packages, alone", "import, CPU s beyond jax"],
        [
            [
                n,
                r["version"],
                f"{r['own_mb']:.1f}",
                f"{r['alone_mb']:.1f}",
                str(len(r["alone"])),
                f"{r['import_s']:.2f}",
            ]
            for n, r in sorted(rows.items(), key=lambda item: -item[1]["alone_mb"])
        ],
    )
    sizes = {name: tree[name]["bytes"] / 1e6 for name in sorted(everything)}
    save(
        args.out,
        {
            "install_s": install,
            "packages_mb": sizes,
            "jaxrl_mb": own,
            "import_jax_s": base,
            "import_jaxrl_s": beyond,
            "dependencies": rows,
        },
    )


if __name__ == "__main__":
    main()
