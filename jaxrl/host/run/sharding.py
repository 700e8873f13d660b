"""Training over a mesh of devices: where the parts of a run lie.

Two axes: `seeds`, which are independent programs and exchange nothing, and `envs`, whose sums go through collectives.
Random numbers belong to a seed's key and an environment's index, never to a device, so a run is the same on any mesh.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from jaxrl.algorithm import Algorithm, names_of

AXES = ("seeds", "envs")

# ---- meshes


def sizes_of(words: str) -> dict[str, int]:
    """`seeds=4,envs=2` as a dict. Raises ValueError for other words."""
    sizes: dict[str, int] = {}
    for word in words.split(","):
        name, _, size = word.partition("=")
        if name not in AXES or name in sizes or not size.isdecimal() or int(size) < 1:
            raise ValueError(f"mesh={words!r}: it is written seeds=4,envs=2, with one axis or both, each at least 1.")
        sizes[name] = int(size)
    return sizes


def make_mesh(sizes: str | Mapping[str, int], devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh with the axes `seeds` and `envs`; one that is left out has size 1.

    Args:
        devices: to lay out; default all of the job's, of which a single process may leave some unused.

    Raises ValueError for an unknown axis, too few devices, or processes that have different numbers of them.
    """
    sizes = sizes_of(sizes) if isinstance(sizes, str) else dict(sizes)
    for name in sizes:
        if name not in AXES:
            raise ValueError(f"mesh: there is no axis {name!r}; there are {' and '.join(AXES)}.")
    devices = jax.devices() if devices is None else list(devices)
    shape = tuple(sizes.get(name, 1) for name in AXES)
    need, words = math.prod(shape), ",".join(f"{name}={size}" for name, size in sizes.items())
    each = [sum(d.process_index == process for d in devices) for process in sorted({d.process_index for d in devices})]
    if len(set(each)) > 1:
        raise ValueError(f"The processes have {', '.join(map(str, each))} devices: give each as many.")
    if need > len(devices) or (len(each) > 1 and need < len(devices)):
        hint = (
            " (on a CPU, before jax is used: XLA_FLAGS=--xla_force_host_platform_device_count=N)"
            if devices[0].platform == "cpu"
            else ""
        )
        raise ValueError(f"mesh {words} is of {need} devices, and there are {len(devices)}{hint}.")
    return jax.make_mesh(shape, AXES, (AxisType.Auto,) * len(AXES), devices=devices[:need])


def default_sizes(devices: int, num_seeds: int | None) -> dict[str, int]:
    """Of a mesh of so many devices where nobody says: seeds are divided, environments where there is one seed."""
    return {"seeds" if (num_seeds or 1) > 1 else "envs": devices}


def check(mesh: Mesh | AbstractMesh, algo: Algorithm, num_seeds: int | None) -> None:
    """Raise ValueError unless the mesh divides the seeds and the environments."""
    check_divides(mesh, "seeds", num_seeds or 1, "the number of seeds")
    check_divides(mesh, "envs", algo.venv.num_envs, "num_envs")


def check_divides(mesh: Mesh | AbstractMesh, axis: str, count: int, what: str) -> None:
    """Raise ValueError unless an axis of the mesh divides `count`, which is `what`."""
    size = mesh.shape[axis]
    if count % size:
        raise ValueError(f"mesh {axis}={size} does not divide {what} = {count}; {math.gcd(count, size)} does.")


# ---- where the leaves of a state lie


def shardings(mesh: Mesh, algo: Algorithm, state: PyTree, num_seeds: int | None) -> PyTree:
    """A NamedSharding for each leaf of a state, or of its shapes.

    Seeds are its leading axis. The axis of environments is divided in the fields that belong to slots; the rest
    (weights, optimiser, replay) is whole on every device along `envs`.
    """
    lead = () if num_seeds is None else ("seeds",)
    slots = tuple(f"{path}." for path in algo.slots)

    def of(name: str, x: Any) -> NamedSharding:
        per_slot = f"{name}.".startswith(slots) and x.shape[len(lead) : len(lead) + 1] == (algo.venv.num_envs,)
        return NamedSharding(mesh, PartitionSpec(*lead, *(("envs",) if per_slot else ())))

    leaves, structure = jax.tree.flatten(state)
    return structure.unflatten(map(of, names_of(state), leaves))


def replicated(mesh: Mesh) -> NamedSharding:
    """Whole on every device."""
    return NamedSharding(mesh, PartitionSpec())


def everywhere(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """What every process has, whole on all devices of the mesh."""
    if mesh is None:
        return tree

    def leaf(x: Any) -> Any:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(leaf(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        here = np.asarray(x)
        return jax.make_array_from_callback(here.shape, replicated(mesh), lambda index: here[index])

    return jax.tree.map(leaf, tree)


def independent(fn: Callable[..., Any], mesh: Mesh | None, in_axes: Any, out_axes: Any) -> Callable[..., Any]:
    """`fn`, vmapped over seeds: each device runs its own, as a program without an exchange.

    Axes are as those of `jax.vmap`, for whole trees of arguments and results.
    """
    mapped = jax.vmap(fn, in_axes, out_axes)
    if mesh is None or mesh.shape["seeds"] == 1:
        return mapped

    def spec(axis: int | None) -> PartitionSpec:
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, "seeds")

    in_specs, out_specs = (jax.tree.map(spec, axes, is_leaf=lambda x: x is None) for axes in (in_axes, out_axes))
    return jax.shard_map(
        mapped, mesh=mesh, axis_names={"seeds"}, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )
