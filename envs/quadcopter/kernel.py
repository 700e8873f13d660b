"""Many drones over many steps under constant commands: on a GPU one kernel that keeps their states in registers.

`coast` is a scan of `dynamics.step` everywhere but on an NVIDIA GPU, where XLA would launch a kernel and pass the
states through memory at each step: for a few thousand drones the launches take longer than the flight. There a Pallas
kernel flies a block of drones over all steps; the equations are `dynamics.step` itself in both. The integrator
`exponential_rk4` is a scan there too: its `fence` is nothing that a kernel can hold.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import checks, dynamics, models
from .dynamics import CALM, Drone, Model, Physics, Surroundings

BLOCK = 128  # drones of one program: one for each thread of four warps


def coast(
    model: Model,
    drone: Drone,
    command: Any,
    dt: Any,
    steps: int,
    physics: Physics = dynamics.L2F,
    surroundings: Surroundings = CALM,
) -> Drone:
    """N drones `steps` steps of `dt` [s] later, each at its own rotor speeds `command`, 4 of (N,) or scalars [rpm].

    Fields of `drone` and `surroundings` are tuples of (N,) arrays; one `model` for all. Raises ValueError for a model
    that is batched (vmap `coast` for several), and for one without what `physics` needs.
    """
    checks.check_fit(model, physics, "coast")
    for name, value in {**vars(model), "dt": dt}.items():
        if isinstance(value, tuple):
            shape = (len(value), *jnp.broadcast_shapes(*map(jnp.shape, value)))
        else:
            shape = jnp.shape(value)
        wanted = np.shape(getattr(models.CRAZYFLIE, name, 0.0))
        if shape != wanted:
            raise ValueError(f"coast: {name} has shape {shape}, not {wanted}: one model for all drones; vmap coast.")
    arguments = (model, drone, command, dt, steps, physics, surroundings)
    if physics.integrator == "exponential_rk4":
        return in_scan(*arguments)
    return jax.lax.platform_dependent(cuda=lambda: in_kernel(*arguments), default=lambda: in_scan(*arguments))


def in_scan(
    model: Model, drone: Drone, command: Any, dt: Any, steps: int, physics: Physics, surroundings: Surroundings
) -> Drone:
    """`coast` as a scan."""
    drone, command, surroundings = _spread(drone, command, surroundings)

    def body(drone, _):
        return dynamics.step(model, drone, command, dt, physics, surroundings), None

    return jax.lax.scan(body, drone, None, length=steps)[0]


def in_kernel(
    model: Model,
    drone: Drone,
    command: Any,
    dt: Any,
    steps: int,
    physics: Physics,
    surroundings: Surroundings,
    interpret: bool = False,
) -> Drone:
    """`coast` as a Pallas kernel; with `interpret` it runs anywhere, slowly."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    drone, command, surroundings = _spread(drone, command, surroundings)
    dtype, n = drone.position[0].dtype, len(drone.position[0])
    leaves, numbers_tree = jax.tree.flatten((model, dt))
    shapes = [jnp.shape(x) for x in leaves]
    numbers = jnp.concatenate([jnp.ravel(jnp.asarray(x, dtype)) for x in leaves])
    columns, columns_tree = jax.tree.flatten((drone, command, surroundings))
    fields, drone_tree = jax.tree.flatten(drone)
    columns = [jnp.pad(x, (0, -n % BLOCK), mode="edge") for x in columns]

    def kernel(numbers, *refs):
        scalars = iter(range(numbers.shape[0]))
        values = [tuple(numbers[next(scalars)] for _ in range(s[0])) if s else numbers[next(scalars)] for s in shapes]
        model, dt = numbers_tree.unflatten(values)
        read = [ref[...] for ref in refs[: len(columns)]]
        drone, command, surroundings = columns_tree.unflatten(read)

        def body(_, drone):
            return dynamics.step(model, drone, command, dt, physics, surroundings)

        drone = jax.lax.fori_loop(0, steps, body, drone)
        for ref, x in zip(refs[len(columns) :], jax.tree.leaves(drone), strict=True):
            ref[...] = x

    block = pallas.BlockSpec((BLOCK,), lambda i: (i,))
    whole = pallas.BlockSpec(numbers.shape, lambda i: (0,))
    new = pallas.pallas_call(
        kernel,
        grid=(len(columns[0]) // BLOCK,),
        in_specs=[whole, *[block] * len(columns)],
        out_specs=[block] * len(fields),
        out_shape=[jax.ShapeDtypeStruct(columns[0].shape, dtype) for _ in fields],
        compiler_params=triton.CompilerParams(num_warps=BLOCK // 32, num_stages=1),
        interpret=interpret,
    )(numbers, *columns)
    return drone_tree.unflatten([x[:n] for x in new])


def _spread(drone: Drone, command: Any, surroundings: Surroundings) -> tuple[Drone, Any, Surroundings]:
    """All as (N,) arrays of one precision."""
    like = jnp.asarray(drone.position[0])
    tree = (Drone(*map(tuple, drone)), tuple(command), surroundings)
    return jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x, like.dtype), like.shape), tree)
