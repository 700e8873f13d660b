"""`jaxrl bench`: random-action steps per second on this machine."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated

from jaxrl.host.cli.flags import parse, positional


def bench(args: list[str]) -> int:
    @dataclasses.dataclass
    class Bench:
        envs: Annotated[tuple[str, ...], positional()] = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0")
        """Ids."""
        num_envs: int = 2048
        steps: int = 500
        repeats: int = 5

    flags = parse(Bench, args, "jaxrl bench", "Random actions with auto-reset; the median of several repeats.")
    import jax
    import numpy as np

    from jaxrl import registry
    from jaxrl.math import fast_key
    from jaxrl.vectorize import vectorize
    from jaxrl.wrappers import agents_as_slots

    for id in flags.envs:
        env, params = registry.make(id)
        venv, space = vectorize(env, flags.num_envs), env.action_space(params)
        venv = agents_as_slots(venv) if env.num_agents > 1 else venv

        def step(loop, key, venv=venv, space=space, params=params):
            vstate, total = loop
            action_key, env_key = jax.random.split(key)
            action = jax.vmap(space.sample)(jax.random.split(action_key, venv.num_envs))
            ts = venv.step(env_key, vstate, action, params)
            # Everything is summed, so that nothing is computed for nobody.
            total += sum(x.sum() for x in jax.tree.leaves(ts.obs)) + ts.reward.sum()
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
