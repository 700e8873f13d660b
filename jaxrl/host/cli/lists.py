"""`jaxrl envs`, `jaxrl algos` and `jaxrl zoo`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from types import ModuleType


def envs(args: list[str]) -> int:
    from jaxrl import registry

    found = registry.list_envs(args[0] if args else "*")
    for id in found:
        if not registry.is_available(id):
            print(f"{id:28} needs pip install 'jaxrl[{registry.environments()[id].extra}]'")
            continue
        env, params = registry.make(id)
        print(f"{id:28} {env.observation_space(params)!r:.60}  ->  {env.action_space(params)!r:.40}")
    if not found:
        print(f"jaxrl: no environment matches {args[0]!r}.", file=sys.stderr)
    return 0 if found else 1


def algos(args: list[str]) -> int:
    from jaxrl import registry

    for name in registry.list_algos():
        print(f"{name:14} {_about(registry.get_algo(name))}")
    print("\n--curriculum, around one that learns on batched params:")
    for name in registry.list_curricula():
        print(f"{name:18} {_about(registry.get_curriculum(name)[0])}")
    print("\nFrom Python, with `make` or `select` of their files:")
    for module in unnamed():
        print(f"{module.__name__.rpartition('.')[2]:14} {_about(module)}")
    return 0


def zoo(args: list[str]) -> int:
    import fnmatch

    from jaxrl import zoo

    found = [name for name in zoo.names() if fnmatch.fnmatch(name, args[0] if args else "*")]
    for name in found:
        told = zoo.about(name)
        how = (
            f"{told['steps']:,} steps, the best of {told['of_seeds']}"
            if told["of_seeds"] > 1
            else f"{told['steps']:,} steps"
        )
        print(f"{name:36} return {told['return']:8.2f} ± {told['standard_error']:.2f}   {how}")
    if not found:
        print(f"jaxrl: no policy matches {args[0]!r}." if args else "jaxrl: the zoo is empty.", file=sys.stderr)
    return 0 if found else 1


def unnamed() -> list[ModuleType]:
    """The modules of algorithms and curricula that no command takes."""
    from jaxrl import registry

    named = {registry.get_algo(name) for name in registry.list_algos()}
    named |= {registry.get_curriculum(name)[0] for name in registry.list_curricula()}
    found = []
    for package in map(importlib.import_module, ("jaxrl.algos.population", "jaxrl.algos.curricula")):
        names = [m.name for m in pkgutil.iter_modules(package.__path__, f"{package.__name__}.") if not m.ispkg]
        found += [module for module in map(importlib.import_module, names) if module not in named]
    return found


def _about(module: ModuleType) -> str:
    return (module.__doc__ or "").splitlines()[0]
