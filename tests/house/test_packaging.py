"""What is shipped: the linked folders are real files in sdist and wheel, and an installed wheel imports anywhere."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = {
    str(Path(folder).relative_to(ROOT) / file)
    for folder, _, files in os.walk(ROOT / "jaxrl", followlinks=True)
    for file in files
    if not file.endswith(".pyc")
}
MODULES = sorted(re.sub(r"(/__init__)?\.py$", "", s).replace("/", ".") for s in SOURCES if s.endswith(".py"))


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Standard output of a command; fails the test with everything it said when it fails."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "COVERAGE_PROCESS_START")}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env={**kept, **env}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, source: Path, out: Path) -> Path:
    """Build a "wheel" or "sdist" as any front end does, with the setuptools at hand instead of a downloaded one."""
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(out)!r})"
    run(sys.executable, "-c", code, cwd=source)
    return next(out.glob("*.whl" if kind == "wheel" else "*.tar.gz"))


@pytest.fixture(scope="module")
def dists(tmp_path_factory) -> tuple[Path, Path]:
    """The sdist of a copy of this checkout, and the wheel built from that sdist."""
    tmp = tmp_path_factory.mktemp("dists")
    checkout = tmp / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, checkout)
    (checkout / "tests").mkdir()
    (checkout / "tests" / "test_something.py").write_text("")
    for name in ("jaxrl", "envs", "algos"):
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    sdist = build("sdist", checkout, tmp)
    with tarfile.open(sdist) as tar:
        assert not [m.name for m in tar if m.issym() or m.islnk()]
        tar.extractall(tmp / "unpacked", filter="data")
    return sdist, build("wheel", next((tmp / "unpacked").iterdir()), tmp)


@pytest.fixture(scope="module")
def installed(dists, tmp_path_factory) -> Path:
    """Folder of the executables of a virtual environment with the wheel, whose other packages are this one's."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=ROOT)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(venv), "platbase": str(venv)}))
    # Only the folder goes on the path; the .pth files in it, an editable jaxrl's among them, are not followed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", "--ignore-installed", dists[1], cwd=venv)
    return venv / "bin"


def test_sdist_and_wheel_hold_every_module(dists):
    sdist, wheel = dists
    assert {"jaxrl/envs/classic/cartpole.py", "jaxrl/algos/on_policy/ppo.py", "jaxrl/py.typed"} <= SOURCES
    with tarfile.open(sdist) as tar:
        packed = {m.name.partition("/")[2] for m in tar if m.isfile()}
    assert {p for p in packed if p.startswith("jaxrl/")} == SOURCES
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml"} <= packed
    assert not [p for p in packed if p.startswith("tests/")]
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {p for p in packed if ".dist-info/" not in p} == SOURCES
    assert [p for p in packed if p.endswith("licenses/LICENSE")]


def test_the_installed_wheel_imports_outside_the_checkout(installed, tmp_path):
    code = "import importlib, jaxrl\n"
    # Stable-Baselines3 brings torch, so no extra has it; Stoa and Envelope live in environments of their own.
    # `tests/interop` imports what needs them.
    absent = {f"jaxrl.interop.{name}" for name in ("stable_baselines", "stoa_out", "envelope_out")}
    here = [name for name in MODULES if name not in absent]
    code += f"for name in {here}: importlib.import_module(name)\n"
    code += "print(jaxrl.__file__, jaxrl.make('CartPole-v1')[0].id)"
    file, id = run(installed / "python", "-c", code, cwd=tmp_path).split()[-2:]
    assert Path(file).is_relative_to(installed.parent) and id == "CartPole-v1"


def test_the_command_is_installed(installed, tmp_path):
    assert "train" in run(installed / "jaxrl", "--help", cwd=tmp_path)


@pytest.mark.parametrize("command", [["algos/on_policy/ppo.py"], ["-m", "jaxrl.algos.on_policy.ppo"]])
def test_an_algorithm_file_runs_from_the_checkout(command):
    assert "learning-rate" in run(sys.executable, *command, "CartPole-v1", "--help", cwd=ROOT, PYTHONPATH=str(ROOT))


def test_every_folder_of_modules_is_a_package():
    folders = {str(Path(source).parent) for source in SOURCES if source.endswith(".py")}
    assert {folder for folder in folders if f"{folder}/__init__.py" not in SOURCES} == set()


def test_the_version_is_one():
    import jaxrl

    citation = (ROOT / "CITATION.cff").read_text()
    assert jaxrl.__version__ == PROJECT["version"]
    assert re.findall(r"^version: (\S+)$", citation, re.M) == [PROJECT["version"]]
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    released = re.findall(r"^date-released: (\S+)$", citation, re.M)
    check_version(PROJECT["version"], headings, released[0] if released else None)


def check_version(version, headings, released):
    """A released tree says when; any other has what is unreleased on top, and the version that it will become."""
    unreleased = headings[0] == "[Unreleased]"
    dated = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)", h) for h in headings[unreleased:]]
    assert all(dated), f"neither [Unreleased] on top nor [version] - date: {headings}"
    versions = [tuple(map(int, found[1].split("."))) for found in dated if found]
    dates = [found[2] for found in dated if found]
    assert versions == sorted(set(versions), reverse=True) and dates == sorted(dates, reverse=True)
    own = tuple(map(int, version.split(".")))
    if unreleased:
        assert own > max(versions, default=(0,)), "the version is released: there is a next one to name"
        assert released is None, "CITATION.cff has a date, and this tree is unreleased"
    else:
        assert own == versions[0] and released == dates[0]


@pytest.mark.parametrize(
    "version, headings, released, good",
    [
        ("0.1.0", ["[Unreleased]"], None, True),
        ("0.1.0", ["[0.1.0] - 2026-12-01"], "2026-12-01", True),
        ("0.10.0", ["[Unreleased]", "[0.9.0] - 2026-12-01", "[0.1.0] - 2026-11-01"], None, True),
        ("0.1.0", ["[0.1.0] - unreleased"], None, False),
        ("0.1.0", ["[0.1.0] - 2026-12-01"], None, False),
        ("0.1.0", ["[0.1.0] - 2026-12-01"], "2026-12-02", False),
        ("0.2.0", ["[0.1.0] - 2026-12-01"], "2026-12-01", False),
        ("0.1.0", ["[Unreleased]", "[0.1.0] - 2026-12-01"], None, False),
        ("0.2.0", ["[Unreleased]", "[0.1.0] - 2026-12-01"], "2026-12-01", False),
        ("0.2.0", ["[0.1.0] - 2026-12-01", "[Unreleased]"], "2026-12-01", False),
        ("0.2.0", ["[0.2.0] - 2026-12-01", "[0.1.0] - 2026-12-02"], "2026-12-01", False),
    ],
)
def test_a_version_that_does_not_agree_is_found(version, headings, released, good):
    if good:
        check_version(version, headings, released)
    else:
        with pytest.raises(AssertionError):
            check_version(version, headings, released)


def test_the_lock_covers_what_is_installed_and_names_no_place():
    def canonical(requirement: str) -> str:
        return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()

    text = (ROOT / "requirements.lock").read_text()
    locked = {canonical(line) for line in text.splitlines() if "==" in line.partition("#")[0]}
    extras = PROJECT["optional-dependencies"]
    needed = {canonical(r) for r in [*PROJECT["dependencies"], *extras["test"], *extras["dev"]]} - {"jaxrl"}
    assert needed <= locked
    assert not re.search(r"://|^-|\bfile:|(?<!pyproject)[ (]/", text, re.MULTILINE)
