"""Every command that a page shows is one that is understood: read as the program reads it, and not carried out."""

import importlib
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from jaxrl import registry
from jaxrl.host.cli import command, flags

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    path
    for pattern in ("*.md", "docs/**/*.md", "experiments/*/*.md", "notebooks/*.md")
    for path in sorted(ROOT.glob(pattern))
]

STANDS_FOR = {"my.module:Tank-v0": "CartPole-v1", "my/learner.py": "ppo", "runs/lpg": "lpg-cpu-1", "RUN": "runs/x"}
STANDS_FOR |= {"my.py:trials": "CartPole-v1", "my.py:rule": "lpg", "my.py:Yard": "Maze-v0"}
STANDS_FOR |= {"craftax:Craftax-Classic-Symbolic-v1": "CartPole-v1"}
"""What pages call a reader's own, or have of a library that is not here, and something of the same kind that is."""

OWN = """
import dataclasses
@dataclasses.dataclass(frozen=True)
class Config:
    stages: int = 2
def progress(level_fn, config): pass
"""
"""A reader's `my.py`."""

BEFORE = ("srun", "nohup", "time")
"""Words that stand before a command, with flags of their own."""


def shown(text):
    """The lines of a page's blocks, continued ones joined, and its spans of code."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        if language in ("", "bash", "sh", "yaml"):
            for line in re.sub(r"\s*\\\n\s*", " ", block).splitlines():
                columns = re.split(r" {2,}", line)  # of the usage: a pattern, what it does, an example
                yield from (c for c in columns if c.startswith("jaxrl ")) if line.startswith("jaxrl ") else [line]
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))


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
        for line in shown(page.read_text()):
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
    for name in (
        "bench",
        "browse",
        "dataset",
        "evaluate",
        "experiment",
        "export",
        "meta",
        "plot",
        "preference_command",
        "render",
        "report",
        "train",
    ):
        monkeypatch.setattr(importlib.import_module(f"jaxrl.host.cli.{name}"), "parse", parse)
    monkeypatch.setattr(command, "cache_compilations", lambda: None)
    monkeypatch.setattr("jaxrl.host.run.processes.join", lambda *args: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my", raising=False)
    (tmp_path / "my.py").write_text(OWN)
    # The run that another one begins from is not there: settings are as without it.
    begun = importlib.import_module("jaxrl.host.cli.experiment")
    monkeypatch.setattr(begun, "settings_from", lambda run, algo, id: (*registry.make(id), registry.tuned(algo, id)))


def is_pattern(word):
    return word == "..." or word.isupper() or bool(set(word) & set("[]$"))


@pytest.mark.parametrize("said", commands("jaxrl"))
def test_jaxrl_understands(said, only_parsed, capsys):
    args = [STANDS_FOR.get(word, re.sub(r"\$SLURM_\w+", "0", word)) for word in said[1:]]
    if is_pattern(args[0]):
        return
    assert args[0].rstrip(",") in (*command.COMMANDS, "help")
    if args[0] in ("envs", "algos", "help,") or len(args) == 1 or any(map(is_pattern, args)):
        return  # nothing to parse, or a command by its name, or a pattern
    if args[1].startswith("-") and args[0] not in ("bench", "plot"):
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
    file = next((f for f in (ROOT / said[1], ROOT / "benchmarks" / said[1]) if f.exists()), None)
    assert file is not None, said[1]
    sources = [
        file,
        *(file.parent / f"{name}.py" for name in re.findall(r"^from (\w+) import", file.read_text(), re.M)),
    ]
    known = set(re.findall(r'"(--[\w-]+)"', "\n".join(source.read_text() for source in sources if source.exists())))
    for flag in re.findall(r"(?<!\S)\[?(--[\w-]+)", " ".join(said[2:])):
        assert flag in known, f"{said[1]} has {sorted(known)}"


@pytest.mark.parametrize("said", commands("pip"))
def test_pip_installs_extras_that_there_are(said):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for names in re.findall(r"(?:^|\s)(?:jaxrl|\.)\[([\w,-]+)\]", " ".join(said)):
        assert set(names.split(",")) <= set(extras)
