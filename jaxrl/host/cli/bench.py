"""`jaxrl bench`: random-action steps per second on this machine."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated, Any

from jaxrl.host.cli.flags import at_least_one, parse, positional

MOST_REPEATS = 10_000
"""The most `--repeats`."""


def bench(args: list[str]) -> int:
    @dataclasses.dataclass
    class Bench:
        envs: Annotated[tuple[str, ...], positional()] = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0")
        """Ids."""
        num_envs: int = 2048
        steps: int = 500
        repeats: int = 5

    flags = parse(Bench, args, "jaxrl bench", "Random actions, drawn for all at once, with auto-reset; the median.")
    for name in ("num_envs", "steps", "repeats"):
        at_least_one(f"--{name.replace('_', '-')}", getattr(flags, name))
    if flags.repeats > MOST_REPEATS:
        raise ValueError(f"--repeats {flags.repeats}: it must be at most {MOST_REPEATS}.")
    import jax
    import numpy as np

    from jaxrl import registry
    from jaxrl.host.run import ram
    from jaxrl.math import fast_key, light_key
    from jaxrl.vector_env import vectorize
    from jaxrl.wrappers import agents_as_slots

    for id in flags.envs:
        env, params = registry.make(id)
        parts = {"their states": flags.num_envs * ram.episode_size(env, params), "the keys": 16 * flags.steps}
        ram.require_room(parts, f"--num-envs {flags.num_envs} --steps {flags.steps}", "make them smaller")
        venv, space = vectorize(env, flags.num_envs), env.action_space(params)
        venv = agents_as_slots(venv) if env.num_agents > 1 else venv

        def step(loop, key, venv=venv, space=space, params=params):
            vstate, total = loop
            action_key, env_key = jax.random.split(light_key(key))
            ts = venv.step(env_key, vstate, random_actions(action_key, space, venv.num_envs), params)
            # Everything is summed, so that nothing is computed for nobody.
            total += sum(x.sum() for x in jax.tree.leaves(ts.obs)) + ts.reward.sum()
            total += (ts.terminated | ts.truncated).sum()
            return (ts.state, total), None

        def run(vstate, key, step=step):
            return jax.lax.scan(step, (vstate, 0.0), jax.random.split(fast_key(key), flags.steps))[0]

        vstate = jax.jit(venv.reset)(jax.random.key(0), params)[1]
        begin = time.perf_counter()
        compiled = jax.jit(run).lower(vstate, jax.random.key(1)).compile()
        compile_seconds, seconds = time.perf_counter() - begin, []
        for i in range(flags.repeats + 1):
            begin = time.perf_counter()
            jax.block_until_ready(compiled(vstate, jax.random.key(i)))
            seconds.append(time.perf_counter() - begin)
        rate = flags.num_envs * flags.steps / np.median(seconds[1:])
        print(f"{id:28} {rate / 1e6:8.2f} M steps/s   compile {compile_seconds:.1f} s")
    return 0


def random_actions(key: Any, space: Any, n: int) -> Any:
    """Uniform actions of `n` environments from one draw, as in `docs/benchmarks.md`; a key an environment costs more
    than many a step, and is taken only for spaces that are no numbers between bounds.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxrl.math import fast_key
    from jaxrl.spaces import Box, Discrete

    if isinstance(space, Discrete) and space.n <= 2**8:
        # Bias below n / 2**16, and half the random words of `randint`.
        return (jax.random.bits(fast_key(key), (n,), jnp.uint16) % space.n).astype(space.dtype)
    bounded = isinstance(space, Box) and np.all(np.isfinite(space.low) & np.isfinite(space.high))
    if bounded and jnp.issubdtype(space.dtype, jnp.floating):
        u = jax.random.uniform(fast_key(key), (n, *space.shape), space.dtype)
        return space.low + u * (space.high - space.low)
    return jax.vmap(space.sample)(jax.random.split(key, n))
