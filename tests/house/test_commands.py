"""Every command that a page shows is one that is understood: read as the program reads it, and not carried out."""

import importlib
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from jaxrl.host.cli import command, flags

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("experiments/*/*.md"))]

STANDS_FOR = {"my.module:Tank-v0": "CartPole-v1", "my/learner.py": "ppo", "runs/lpg": "lpg-cpu-1", "RUN": "runs/x"}
"""What pages call a reader's own, and something of the same kind that is here."""

BEFORE = ("srun", "nohup", "time")
"""Words that stand before a command, with flags of their own."""


def shown(text):
    """`(line, is a line of a block)` of each command of a page, continued lines joined, as the shell gets it."""
    for block in re.findall(r"^```(?:bash|sh|yaml)?\n(.*?)^```", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            # The usage has three columns: a pattern, what it does, an example.
            yield from ((part, True) for part in re.split(r" {2,}(?=jaxrl )", line))
    for code in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        yield code, False


def words(line):
    """The commands of a line, each as its words, without what sets variables or only goes before."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        tokens = list(lexer)
    except ValueError:  # an apostrophe: a sentence
        return
    said = []
    for token in [*tokens, ";"]:
        if set(token) <= set(";&|"):
            while said and (re.fullmatch(r"\w+=.*", said[0]) or said[0].startswith("--") or said[0] in BEFORE):
                said = said[1:]
            if said:
                yield said
            said = []
        else:
            said.append(token)


def commands(program):
    """`(page, words)` of all commands of a program, once each."""
    found = {}
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # how it was
            continue
        for line, _ in shown(page.read_text()):
            for said in words(line):
                name = said[0].rpartition("/")[2]
                if name == program and len(said) > 1:
                    found.setdefault(tuple(said), page)
    return [pytest.param(list(said), id=f"{page.relative_to(ROOT)}: {' '.join(said)}") for said, page in found.items()]


class Understood(BaseException):
    """Raised where the words are parsed and the work would begin."""


@pytest.fixture
def only_parsed(monkeypatch, tmp_path):
    def parse(*args):
        raise Understood(real(*args))

    real = flags.parse
    for name in ("bench", "evaluate", "experiment", "export", "meta", "plot", "render", "train"):
        monkeypatch.setattr(importlib.import_module(f"jaxrl.host.cli.{name}"), "parse", parse)
    monkeypatch.setattr(command, "cache_compilations", lambda: None)
    monkeypatch.setattr("jaxrl.host.processes.join", lambda *args: None)
    monkeypatch.chdir(tmp_path)


WITHOUT_FLAGS = ("envs", "algos", "help", "--version")


@pytest.mark.parametrize("said", commands("jaxrl"))
def test_jaxrl_understands(said, only_parsed, capsys):
    args = [STANDS_FOR.get(word, word) for word in said[1:]]
    assert args[0] in (*command.COMMANDS, *WITHOUT_FLAGS)
    if args[0] in WITHOUT_FLAGS or len(args) == 1 or any(re.fullmatch(r"[A-Z]+|\.\.\.|.*[[\]$].*", a) for a in args[1:]):
        return  # a command by its name, or a pattern
    if args[0] in ("train", "sweep", "compile") and args[1].startswith("-"):
        return  # a flag by its name, of the command that was spoken of
    with pytest.raises(Understood):
        command.main(args)
        raise AssertionError(capsys.readouterr().err)


@pytest.mark.parametrize("said", commands("make"))
def test_make_has_the_target(said):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = [word for word in said[1:] if "=" not in word]
    assert set(named) <= targets, said


@pytest.mark.parametrize("said", [*commands("python"), *commands("python3")])
def test_python_finds_the_file_and_its_flags(said):
    if said[1] in ("-c", "-m") or not said[1].endswith(".py"):
        if said[1] == "-m" and said[2].startswith("jaxrl"):
            importlib.import_module(said[2])
        return
    file = next((f for f in (ROOT / said[1], ROOT / "experiments/benchmarks" / said[1]) if f.exists()), None)
    assert file is not None, said[1]
    sources = [file, *(file.parent / f"{name}.py" for name in re.findall(r"^from (\w+) import", file.read_text(), re.M))]
    known = set(re.findall(r'"(--[\w-]+)"', "\n".join(source.read_text() for source in sources if source.exists())))
    for flag in re.findall(r"(?<!\S)\[?(--[\w-]+)", " ".join(said[2:])):
        assert flag in known, f"{said[1]} has {sorted(known)}"


@pytest.mark.parametrize("said", commands("pip"))
def test_pip_installs_extras_that_there_are(said):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for names in re.findall(r"(?:^|\s)(?:jaxrl|\.)\[([\w,-]+)\]", " ".join(said)):
        assert set(names.split(",")) <= set(extras)
