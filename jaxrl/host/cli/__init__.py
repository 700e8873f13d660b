"""The `jaxrl` command: train, resume, sweep, compile, eval, render, export, plot, dataset, envs, algos, bench.

`command` finds the command that is asked for and turns errors into an exit status: 0 done, 1 an error (one line that
says what to do; `--debug` shows where), 2 wrong usage. Each command is in the file of its name (`resume` with `train`;
`evaluate` is eval, `lists` are envs and algos), and loads what it needs when it runs. They share `flags` (typed flags
of dataclasses), `experiment` (from words to a recipe, and from a recipe to an algorithm) and `curricula`.
"""

from jaxrl.host.cli.command import cache_compilations, main, program, train_file

__all__ = ["cache_compilations", "main", "program", "train_file"]
