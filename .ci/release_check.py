"""`make release-check`: what users would get, made from the last commit, installed apart and used as README says.

Builds sdist and wheel, looks into both, installs the wheel, with the newest releases of what it needs, into a clean
environment, and runs there, outside the checkout, README's commands and program and the notebooks, at small budgets.
Each `pip install` line of README and docs is run in an environment of its own, with the git address and the index that
it names being the checkout and `dist/`; plug-ins of accelerators, of gigabytes, are resolved only.
Ends with the first thing that fails and what it said; else `dist/` holds what may be published.
"""

import ast
import concurrent.futures
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGAN = time.time()

STEPS = "8192"
"""In place of what a command of README trains for."""

BEFORE = ["jaxrl train ppo CartPole-v1 --total-steps 8192 --out runs/y --no-video"]
AFTER = ["jaxrl eval zoo:ppo/CartPole-v1 --episodes 16", "jaxrl export runs/x", "jaxrl plot --episode runs/x"]
"""What README's commands leave to the reader, and what else one tries first."""

TANK = """
import dataclasses

import jaxrl
from jaxrl.envs.classic import cartpole


@dataclasses.dataclass(frozen=True)
class Tank(cartpole.CartPole):
    pass


jaxrl.register("Tank-v0", Tank)
"""


class Failed(Exception):
    pass


failed = threading.Event()


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """What a command printed; `Failed` with all of it when it fails."""
    if failed.is_set():
        raise Failed("something else failed before.")
    said = " ".join(shlex.join(map(str, command)).split())
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "MAKE"))}
    start = time.time()
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**kept, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(f"{time.time() - BEGAN:4.0f} s  {time.time() - start:4.0f} s  {said[:110]}", flush=True)
    if done.returncode:
        failed.set()
        raise Failed(f"{said}\nin {cwd} ended with status {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def expect(what: bool, sentence: str) -> None:
    if not what:
        failed.set()
        raise Failed(sentence)


def point_outside(readme: Path) -> None:
    """On the index README lies beside no other file: its links lead to the repository, at this version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    repository = re.search(r'^REPOSITORY = "(.+)"$', (ROOT / "notebooks" / "build.py").read_text(), re.M)
    assert repository
    text = re.sub(
        r"(!?)(\[[^\]]*\]\()(?!https?:|#)",
        lambda m: f"{m[1]}{m[2]}https://github.com/{repository[1]}/{'raw' if m[1] else 'blob'}/v{version}/",
        readme.read_text(),
    )
    readme.write_text(text)


def build(checkout: Path, dist: Path) -> Path:
    """The wheel, made from the sdist as its readers make it; both are looked into."""
    point_outside(checkout / "README.md")
    run(sys.executable, "-m", "build", "--outdir", dist, checkout, cwd=checkout)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", dist / "direct", checkout, cwd=checkout)
    (wheel,), (direct,), (sdist,) = dist.glob("*.whl"), dist.glob("direct/*.whl"), dist.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel, cwd=checkout)
    tracked = run("git", "ls-files", "jaxrl", "envs", "algos", cwd=checkout).splitlines()
    sources = {name if name.startswith("jaxrl/") else f"jaxrl/{name}" for name in tracked}
    sources -= {"jaxrl/envs", "jaxrl/algos"}  # the links
    names = zipfile.ZipFile(wheel).namelist()
    packed = {name for name in names if ".dist-info/" not in name}
    expect(packed == sources, f"the wheel has more or less than the package: {sorted(packed ^ sources)}")
    expect(any(name.endswith(".dist-info/licenses/LICENSE") for name in names), "the wheel has no licence.")
    expect(sorted(names) == sorted(zipfile.ZipFile(direct).namelist()), "wheels from sdist and checkout differ.")
    shutil.rmtree(direct.parent)
    with tarfile.open(sdist) as tar:
        files = {m.name.partition("/")[2] for m in tar if m.isfile()}
    inside = {name for name in files if name.startswith("jaxrl/")}
    expect(inside == sources, f"the sdist has more or less than the package: {sorted(inside ^ sources)}")
    beside = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}
    made = {"PKG-INFO", "setup.cfg"} | {name for name in files if name.startswith("jaxrl.egg-info/")}
    expect(files == inside | beside | made, f"beside the package the sdist has {sorted(files - inside - made)}")
    for file in (sdist, wheel):
        expect(file.stat().st_size < 5e6, f"{file.name} has {file.stat().st_size / 1e6:.1f} MB.")
    return wheel


def installed(work: Path, name: str, *requirements: str | Path) -> Path:
    """Folder of the executables of a new environment with what is required."""
    run(sys.executable, "-m", "venv", work / name, cwd=work)
    folder = work / name / "bin"
    run(folder / "python", "-m", "pip", "install", "--quiet", *requirements, cwd=work)
    run(folder / "python", "-m", "pip", "check", cwd=work)
    return folder


def commands(readme: str) -> list[str]:
    """The `jaxrl ...` lines of README's usage, each command apart."""
    block = re.search(r"^## Command line$.*?^```bash\n(.*?)^```$", readme, re.M | re.S)
    assert block
    lines = [line.split("  #")[0].strip() for line in block[1].splitlines()]
    return [part.strip() for line in lines for part in line.split(";") if part.strip()]


def small(command: str) -> list[str]:
    words = shlex.split(command)
    if words[1] in ("train", "sweep"):
        if "--total-steps" in words:
            words[words.index("--total-steps") + 1] = STEPS
        else:
            words += ["--total-steps", STEPS]
    return words


def try_readme(wheel: Path, work: Path, env: dict[str, str]) -> None:
    bin, here = installed(work, "clean", wheel), work / "elsewhere"
    (here / "my").mkdir(parents=True)
    (here / "my" / "module.py").write_text(TANK)
    readme = (work / "checkout" / "README.md").read_text()
    where = run(bin / "python", "-c", "import jaxrl; print(jaxrl.__file__, jaxrl.__version__)", cwd=here).split()
    version = tomllib.loads((work / "checkout" / "pyproject.toml").read_text())["project"]["version"]
    expect(Path(where[0]).is_relative_to(work / "clean") and where[1] == version, f"imported {where}")
    shutil.copy(Path(where[0]).parent / "algos" / "on_policy" / "ppo.py", here / "my" / "learner.py")
    for program in re.findall(r"^```python\n(.*?)^```$", readme, re.M | re.S):
        run(bin / "python", "-W", "error", "-c", program.replace("100_000", STEPS), cwd=here, **env)
    for command in [*BEFORE, *commands(readme), *AFTER]:
        if command.startswith("jaxrl compile"):  # needs the extra `tpu`, which the notebooks have
            continue
        words = small(command)
        said = run(bin / words[0], *words[1:], cwd=here, **env)
        expect(bool(said.strip()), f"{command} said nothing.")


def try_notebooks(wheel: Path, work: Path, env: dict[str, str]) -> None:
    """Each as Jupyter runs it, with the budgets of the tests, in an environment with the extra `tpu`: its compiler."""
    bin = installed(work, "jupyter", f"jaxrl[tpu,gymnasium] @ {wheel.as_uri()}", "ipykernel", "nbclient")
    here = work / "notebooks"
    here.mkdir()
    tree = ast.parse((work / "checkout" / "tests" / "notebooks" / "test_notebooks.py").read_text())
    small = next(n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "SMALL")
    budgets = ast.literal_eval(small)
    for path in sorted((work / "checkout" / "notebooks").glob("*.ipynb")):
        book = json.loads(path.read_text())
        at = next(i for i, cell in enumerate(book["cells"]) if "parameters" in cell["metadata"].get("tags", []))
        source = "\n".join(f"{name} = {value!r}" for name, value in budgets[path.name[:2]].items())
        cell = {"cell_type": "code", "id": "small", "metadata": {}, "outputs": [], "execution_count": None}
        book["cells"].insert(at + 1, {**cell, "source": source})
        (here / path.name).write_text(json.dumps(book))
        run(bin / "jupyter", "execute", "--timeout=600", path.name, cwd=here, **env)
    readme = (work / "checkout" / "README.md").read_text()
    for command in commands(readme):
        if command.startswith("jaxrl compile"):
            run(bin / "jaxrl", *shlex.split(command)[1:], cwd=here, **env)


ACCELERATORS = {"cuda", "tpu"}
"""Extras whose lines pip resolves and does not install."""


def install_lines(checkout: Path) -> list[str]:
    """What README and docs tell to type after `pip install`, each once."""
    said = {}
    for page in [checkout / "README.md", *sorted((checkout / "docs").rglob("*.md"))]:
        for line in re.findall(r"(?:`|^ *(?:setup: )?)pip install ([^`#\n]+)", page.read_text(), re.M):
            words = shlex.split(line)
            if any(re.match(r"jaxrl\W|\.", word) for word in words):
                said[shlex.join(words)] = None
    return list(said)


def try_installs(wheel: Path, work: Path, env: dict[str, str]) -> None:
    checkout, lines = work / "checkout", install_lines(work / "checkout")
    expect(len(lines) >= 8, f"README and docs have these install lines alone: {lines}")
    for i, line in enumerate(lines):
        # with a host, without which pip takes the address for none
        words = [word.replace("git+ADDRESS", f"git+file://localhost{checkout}") for word in shlex.split(line)]
        extras = set(re.findall(r"[\w-]+", "".join(re.findall(r"\[(.*?)\]", line))))
        words += ["--find-links", str(wheel.parent), *(["--dry-run"] if extras & ACCELERATORS else [])]
        folder = work / f"line-{i}"
        run(sys.executable, "-m", "venv", folder, cwd=work)
        run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *words, cwd=checkout)
        if not extras & ACCELERATORS:
            run(folder / "bin" / "jaxrl", "envs", "CartPole-v1", cwd=work, **env)
        shutil.rmtree(folder)


def main() -> int:
    dirty = run("git", "status", "--porcelain", cwd=ROOT).strip()
    if dirty:
        print(f"Not committed, so not in what is checked:\n{dirty}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run("git", "clone", "--quiet", ROOT, work / "checkout", cwd=work)
        wheel = build(work / "checkout", work / "dist")
        env = {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": str(work / "xla")}
        env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        with concurrent.futures.ThreadPoolExecutor() as both:
            tried = [both.submit(do, wheel, work, env) for do in (try_readme, try_notebooks, try_installs)]
            for done in concurrent.futures.as_completed(tried):
                done.result()
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        shutil.copytree(work / "dist", ROOT / "dist")
    made = ", ".join(sorted(path.name for path in (ROOT / "dist").iterdir()))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = f"{time.time() - BEGAN:.0f} s, {used.ru_utime + used.ru_stime:.0f} CPU s"
    print(f"dist/ holds {made}: ready, {took}.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(f"\nrelease-check: {failure}")
