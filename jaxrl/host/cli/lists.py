"""`jaxrl envs` and `jaxrl algos`."""

from __future__ import annotations

import sys


def envs(args: list[str]) -> int:
    from jaxrl import registry

    found = registry.list_envs(args[0] if args else "*")
    for id in found:
        env, params = registry.make(id)
        print(f"{id:28} {env.observation_space(params)!r:.60}  ->  {env.action_space(params)!r:.40}")
    if not found:
        print(f"jaxrl: no environment matches {args[0]!r}.", file=sys.stderr)
    return 0 if found else 1


def algos(args: list[str]) -> int:
    from jaxrl import registry

    for name in registry.list_algos():
        print(f"{name:14} {(registry.get_algo(name).__doc__ or '').splitlines()[0]}")
    print("\n--curriculum, around one that learns on batched params:")
    for name in registry.list_curricula():
        print(f"{name:14} {(registry.get_curriculum(name)[0].__doc__ or '').splitlines()[0]}")
    return 0
