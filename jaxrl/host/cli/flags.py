"""What commands share: the usage, and typed flags of dataclasses, of pytrees and of environments."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

USAGE = """usage: jaxrl COMMAND ...

  jaxrl train ALGO ENV     train and write a run folder     jaxrl train ppo CartPole-v1 --seeds 8 --out runs/x
  jaxrl sweep ALGO ENV     a grid of settings x seeds       jaxrl sweep ppo CartPole-v1 --hyper.gamma 0.9 0.99
  jaxrl compile ALGO ENV   ask a TPU's or GPU's compiler    jaxrl compile ppo CartPole-v1 --for tpu-v5e
  jaxrl meta-train RULE    learn an update rule             jaxrl meta-train lpg --tasks GridWorld-small-v0
  jaxrl meta-test RULE ENV agents that learn by it, and by A2C and PPO, tuned alike
  jaxrl resume RUN         go on where a run stopped, bit for bit
  jaxrl eval RUN           full episodes of the trained policies
  jaxrl render RUN         a GIF or MP4 of the trained policy
  jaxrl play ENV           an environment in the browser, by hand; of RUN and zoo:NAME also by its policy
  jaxrl watch RUN          curves and films in the browser, while it trains
  jaxrl export RUN         the trained policy as a C header, ONNX or StableHLO
  jaxrl plot RUN [RUN...]  learning curves; --episode: one over time, also of zoo:NAME; --archive: cells
  jaxrl report RUN [RUN..] one HTML page to mail: curves, tables, videos, episodes
  jaxrl dataset make ENV   a dataset by a recipe; info, plot  jaxrl dataset make CartPole-v1 --recipe medium
  jaxrl dataset model FILE a model of its steps             jaxrl dataset model pendulum.npz --out model.npz
  jaxrl envs [PATTERN]     registered environments
  jaxrl algos [PATTERN]    algorithms and curricula
  jaxrl zoo [PATTERN]      policies and rules that come with it  jaxrl eval zoo:ppo/CartPole-v1
  jaxrl bench [ENV...]     random-action steps per second on this machine
  jaxrl help, --version

`jaxrl COMMAND --help` lists a command's flags; those of an algorithm and an environment, too, once both are named.
`--trust` runs also Python that a run folder names and jaxrl does not have: for folders of people you trust.
`jaxrl train ENV`, as sweep and compile, takes the algorithm of record for it, with its settings (docs/scores.md).
`--curriculum NAME` lets a curriculum choose the levels: jaxrl train ppo_rnn Maze-v0 --curriculum plr
`--rule NAME` of train has a learned rule in the place of a2c or ppo: jaxrl train Catch-bsuite --rule lpg-cpu-1"""


Act = Literal["greedy", "sampled"]

WORDS = {"greedy": "greedily", "sampled": "by samples", "search": "by search"}
"""How a policy acts, `Algorithm.deployed`."""


def greedy_of(act: Act | None) -> bool | None:
    """`--act` as `evaluate` takes it."""
    return None if act is None else act == "greedy"


def at_least_one(flag: str, value: int | None) -> None:
    """Raise ValueError for a count below one."""
    if value is not None and value < 1:
        raise ValueError(f"{flag} {value}: it must be at least 1.")


def key_of(seed: int, flag: str = "--seed") -> Any:
    """The key of a seed. Raises ValueError for one beyond 32 bits, of which jax would leave the rest out."""
    import jax

    if not -(2**31) <= seed < 2**32:
        raise ValueError(f"{flag} {seed}: it must be from {-(2**31)} to {2**32 - 1}.")
    return jax.random.key(seed)


def require_episode_fits(env: Any, params: Any, max_steps: int) -> None:
    """Raise ValueError for an episode of which not all states fit into memory."""
    import numpy as np

    from jaxrl.host.run import ram

    steps = min(int(np.max(np.asarray(params.max_steps))), max_steps)
    parts = {"its states": steps * ram.episode_size(env, params)}
    ram.require_room(parts, f"an episode of {steps} steps", "make --max-steps smaller")


@contextlib.contextmanager
def sizes_said() -> Iterator[None]:
    """Where shapes are computed from settings: what fails by a size that is 0 or too large is a ValueError."""
    try:
        yield
    except (IndexError, OverflowError, ZeroDivisionError) as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(f"nothing can be built of these settings ({said}): is a size 0, or far too large?") from error


class UsageError(Exception):
    """Wrong words on the command line: exit status 2. `help_of` are the words whose `--help` says more."""

    def __init__(self, message: str, help_of: str = "jaxrl") -> None:
        super().__init__(message)
        self.help_of = help_of


def refuse_zoo(runs: Sequence[Any], why: str) -> None:
    """Raise ValueError where a policy of the zoo, which is no run, is named in the place of a run folder."""
    from jaxrl.zoo import PREFIX

    for run in runs:
        if str(run).startswith(PREFIX):
            raise ValueError(f"{run}: {why}")


def named(args: list[str], flag: str, known: str = "`jaxrl algos` lists them") -> tuple[list[str], str | None]:
    """The words without `flag NAME`, and the name; `known` is where names are found."""
    args = [part for word in args for part in (word.split("=", 1) if word.startswith(flag + "=") else [word])]
    if flag not in args:
        return args, None
    at = args.index(flag)
    if at + 1 == len(args) or args[at + 1].startswith("-"):
        raise UsageError(f"{flag} needs a name: {known}.")
    return args[:at] + args[at + 2 :], args[at + 1]


def parse(cls: Any, args: list[str], prog: str, description: str) -> Any:
    """What the words say, as a `cls`. Prints the help and raises SystemExit where it is asked for; raises UsageError
    for what is wrong with the words.
    """
    import io

    import tyro

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            words = [_written_out(word) for word in _switched(cls, args)]
            return tyro.cli(cls, args=words, prog=prog, description=description)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(_in_few_lines(said.getvalue(), args), prog) from None


RULE = re.compile("[─━]{3,}|-{9,}")
"""What tyro draws, in Unicode or ASCII, between the parts of an error: what is wrong, near flags, where the help is."""


def _in_few_lines(box: str, args: Sequence[str]) -> str:
    """What tyro says in a box, as a sentence and, in one line each, the flags that are near and what is meant."""
    lines = [line.strip("│┃╭╮╰╯|+").rstrip() for line in box.splitlines()]
    parts: list[list[str]] = [[]]
    for line in lines:
        if RULE.search(line):
            parts.append([])
        elif line.strip():
            parts[-1].append(line)
    parts = [part for part in parts if part]
    if len(parts) > 1 and not re.search("[─━]", box):  # in ASCII the box's title is a line of its own
        parts = parts[1:]
    if not parts:
        return "these words are not understood."
    message = " ".join(" ".join(parts[0]).split())
    flags = [line.strip() for part in parts[1:] for line in part if re.match(r"\s+--\S", line)]
    flags = list(dict.fromkeys(flags))[:3]
    near = f"\n  Near: {', '.join(flags)}" if flags else ""
    return f"{message[:400]}{near}{_meant(message, args)}"


def _meant(message: str, args: Sequence[str]) -> str:
    """What somebody may have wanted who wrote values with commas, or several where one is taken."""
    joined = next((word for word in args if re.fullmatch(r"\d+(,\d+)+", word) and word in message), None)
    if joined is not None:
        return f"\n  Several numbers are words of their own: {joined.replace(',', ' ')}"
    alone = re.fullmatch(r"Unrecognized options: ([-+.\d][^-,\s]*(?:, [-+.\d][^-,\s]*)*)", message)
    at = list(args).index(alone[1].split(", ")[0]) if alone is not None and alone[1].split(", ")[0] in args else 0
    flag = next((word for word in reversed(args[:at]) if word.startswith("--")), None)
    if flag is None:
        return ""
    return f"\n  {flag} takes one value; only `jaxrl sweep` takes several, of the --hyper flags."


def _switched(cls: Any, args: Sequence[str]) -> list[str]:
    """The words with `--config.remat` and `--config.no-remat` as `--config.remat True` and `... False`.

    For switches that may also be None, of which tyro wants the value.
    """
    flags = {}
    for dotted in _switches(cls):
        path, dot, name = dotted.rpartition(".")
        flags |= {f"--{dotted}": (f"--{dotted}", "True"), f"--{path}{dot}no-{name}": (f"--{dotted}", "False")}
    words: list[str] = []
    for word, following in zip(args, [*args, ""][1:], strict=True):
        plain = word.replace("_", "-")
        valued = plain in flags and flags[plain][0] == plain and following in ("True", "False", "None")
        words += [word] if plain not in flags or valued else flags[plain]
    return words


def _switches(cls: Any, within: str = "") -> Iterator[str]:
    """The flags, without dashes, of fields that are `bool | None`, also of dataclasses in dataclasses."""
    for field in dataclasses.fields(cls):
        name = within + field.name.replace("_", "-")
        kind = getattr(field.type, "__origin__", field.type)  # Annotated
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from _switches(kind, f"{name}.")
        elif str(kind) == "bool | None":
            yield name


def _written_out(word: str) -> str:
    """`1e6` as `1000000`, so that it is a number of steps, too; what is no whole number stays."""
    name, equals, value = word.rpartition("=")
    if not re.fullmatch(r"\d{1,30}(\.\d{0,30})?[eE]\+?\d{1,2}", value):
        return word
    number = Decimal(value)
    # Not by a remainder: Decimal keeps 28 digits, and raises where a whole number has more.
    return f"{name}{equals}{int(number)}" if int(number) == number else word


def positional() -> Any:
    """Marks a field whose value is a bare word."""
    import tyro

    return tyro.conf.Positional


def called(name: str) -> Any:
    """Marks a field whose flag has another name, as `--for`, which no field can have."""
    import tyro

    return tyro.conf.arg(name=name)


def flat(cls: type) -> Any:
    """`--seeds`, not `--run.seeds`."""
    import tyro

    return Annotated[cls, tyro.conf.arg(name="")]


def numbers(name: str, tree: Any, several: bool = False, needed: Sequence[str] = ()) -> tuple[str, type, Any]:
    """A dataclass field of the scalar leaves of a pytree dataclass, for typed flags `--<name>.<leaf>`, also of the
    dataclasses in it: `--<name>.<part>.<leaf>`. The help of each is the comment at its field.

    With `several`, each takes any number of values. Those `needed` have no default.
    """
    import numpy as np
    import tyro

    fields, said = [], comments_of(type(tree))
    for field in dataclasses.fields(tree):
        part = getattr(tree, field.name)
        if isinstance(part, dict):
            fields.append(factors(field.name, part))
            continue
        if dataclasses.is_dataclass(part):
            inside = numbers(field.name, part, several)
            if dataclasses.fields(inside[1]):
                fields.append(inside)
            continue
        if not np.isscalar(part) and not hasattr(part, "dtype"):
            continue  # None, where something is switched off, or a tuple
        value = np.asarray(part)
        kind = {"b": bool, "i": int, "u": int, "f": float}.get(value.dtype.kind)
        if kind is not None and value.ndim == 0:
            # float32 0.1 is shown, and stored, as 0.1
            shown = float(str(value)) if kind is float else kind(value)
            wanted = (tuple[kind, ...], (shown,)) if several else (kind, shown)
            default = dataclasses.MISSING if field.name in needed else wanted[1]
            about = Annotated[wanted[0], tyro.conf.arg(help=said.get(field.name))]
            fields.append((field.name, about, dataclasses.field(default=default)))
    cls = dataclasses.make_dataclass(name.capitalize(), fields, kw_only=True)
    return name, cls, dataclasses.field() if needed else dataclasses.field(default_factory=cls)


def factors(name: str, leaves: Mapping[str, Any]) -> tuple[str, type, Any]:
    """The same of named arrays, as a model's numbers: each flag is a factor, dots in a name are dashes."""
    import tyro

    about = Annotated[float, tyro.conf.arg(help="times the model's own")]
    fields = [(leaf.replace(".", "_"), about, dataclasses.field(default=1.0)) for leaf in leaves]
    cls = dataclasses.make_dataclass(name.capitalize(), fields, kw_only=True)
    return name, cls, dataclasses.field(default_factory=cls)


def multiplied(values: dict[str, Any], tree: Any) -> dict[str, Any]:
    """Values of nested dicts, where those of `factors` multiply their arrays of `tree`; factors of 1 are left out."""
    out = dict(values)
    for field in dataclasses.fields(tree):
        leaves = getattr(tree, field.name)
        if isinstance(leaves, dict):
            by_flag = {leaf.replace(".", "_"): leaf for leaf in leaves}
            given = {by_flag[flag]: x for flag, x in values[field.name].items() if x != 1}
            out[field.name] = {leaf: (x * leaves[leaf]).tolist() for leaf, x in given.items()}
    return out


def comments_of(cls: type) -> dict[str, str]:
    """`name: type  # comment` of the fields of a dataclass and of what it derives from: units, mostly."""
    import inspect

    found = {}
    for base in reversed(cls.__mro__[:-1]):
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):  # made while the program runs
            continue
        found |= re.findall(r"^    (\w+): [^#\n]*# (.+)$", source, re.MULTILINE)
    return found


def flattened(values: dict[str, Any]) -> dict[str, Any]:
    """Values of nested dicts by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inside = flattened(value) if isinstance(value, dict) else {"": value}
        flat |= {f"{name}.{rest}" if rest else name: x for rest, x in inside.items()}
    return flat


def settings_of(name: str, env: Any) -> tuple[str, type, Any]:
    """The same for the static settings of an environment."""
    kinds = (bool, int, float, str)
    fields = [
        (f.name, type(getattr(env, f.name)), dataclasses.field(default=getattr(env, f.name)))
        for f in dataclasses.fields(env)
        if f.init and f.name != "id" and isinstance(getattr(env, f.name), kinds)
    ]
    cls = dataclasses.make_dataclass(name.capitalize(), fields)
    return name, cls, dataclasses.field(default_factory=cls)
