"""The machines that programs are compiled for, and how their plug-ins are asked for their devices.

Public figures. TPUs: Google Cloud's pages "TPU v4", "v5e", "v5p", "v6e" (peak FLOP/s, memory; programs see the two
cores of a v4 or v5p as one). Clock rates: v4 from Jouppi et al. (2023), table 4; the others are the peak divided by the
operations a cycle of 4 x 128^2 (v5e), 8 x 128^2 (v5p) and 4 x 256^2 (v6e) multipliers, at which the compiler's cycles
of a copy come to 72 to 81 % of the published bandwidth. `memory` is what the TPU compiler lets a program have, as it
says where one has too much. GPUs: NVIDIA's white papers "A100 Tensor Core GPU Architecture" and "H100 Tensor Core GPU
Architecture", and the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; `memory` is the
share that JAX takes by default, three quarters (XLA_PYTHON_CLIENT_MEM_FRACTION).
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import math
import os
import re
from typing import Any

import jax
from jax.experimental import topologies

from jaxrl import extras


class MissingPluginError(ImportError):
    """The plug-in with a target's compiler is not installed; the message says how it is."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A kind of device."""

    name: str
    platform: str  # as jax calls it: "tpu" or "cuda"
    memory: int  # bytes a device that a program may have
    plugin: str  # what the plug-in calls it
    axes: int = 0  # TPU: of its topologies
    accelerator: str = ""  # TPU: TPU_ACCELERATOR_TYPE, without the count
    options: tuple[tuple[str, Any], ...] = ()  # TPU: what the plug-in needs to know besides
    clock: float | None = None  # Hz, where the compiler counts cycles
    description: str = ""  # GPU: as the compiler takes it
    compiler_options: tuple[tuple[str, Any], ...] = ()


def gpu_description(
    name: str,
    *,
    capability: tuple[int, int],
    cores: int,
    units: int,
    clock: float,
    memory: int,
    bandwidth: float,
    cache: int,
    shared: int,
) -> str:
    """A `stream_executor.GpuTargetConfigProto` as text, for a compiler that sees no device.

    Args:
        cores: streaming multiprocessors; `units`: float32 lanes of each.
        clock: GHz. memory: bytes. bandwidth: bytes a second. cache: of level 2, bytes. shared: bytes a multiprocessor.
    """
    return f"""
gpu_device_info {{
  cuda_compute_capability {{ major: {capability[0]} minor: {capability[1]} }}
  core_count: {cores}
  fpus_per_core: {units}
  clock_rate_ghz: {clock}
  memory_bandwidth: {int(bandwidth)}
  device_memory_size: {memory}
  l2_cache_size: {cache}
  shared_memory_per_core: {shared}
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {shared - 1024}
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 7 }}
runtime_version {{ major: 12 minor: 9 }}
device_description_str: "{name}"
"""


# What is tuned by running candidates cannot be, without a device.
_UNTUNED = (("xla_gpu_autotune_level", 0), ("xla_gpu_enable_triton_gemm", False))
_A100 = {"capability": (8, 0), "cores": 108, "units": 64, "clock": 1.41, "cache": 40 << 20, "shared": 164 << 10}
_H100 = {"capability": (9, 0), "cores": 132, "units": 128, "clock": 1.98, "cache": 50 << 20, "shared": 228 << 10}


def _gpu(name: str, title: str, memory: int, bandwidth: float, chip: dict[str, Any]) -> Target:
    text = gpu_description(title, memory=memory, bandwidth=bandwidth, **chip)
    return Target(name, "cuda", memory * 3 // 4, title, description=text, compiler_options=_UNTUNED)


def _tpu(version: str, gibibytes: float, axes: int, accelerator: str, clock: float, **options: Any) -> Target:
    memory = int(gibibytes * 2**30)
    return Target(f"tpu-{version}", "tpu", memory, version, axes, accelerator, tuple(options.items()), clock)


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        _tpu("v4", 30.75, 3, "v4", 1.05e9, chip_config_name="megacore"),
        _tpu("v5e", 15.75, 2, "v5litepod", 1.5e9),
        _tpu("v5p", 95.74, 3, "v5p", 1.75e9),
        _tpu("v6e", 31.25, 2, "v6e", 1.75e9),
        _gpu("a100", "NVIDIA A100-SXM4-40GB", 40 * 10**9, 1.555e12, _A100),
        _gpu("a100-80gb", "NVIDIA A100-SXM4-80GB", 80 * 10**9, 2.039e12, _A100),
        _gpu("h100", "NVIDIA H100 80GB HBM3", 80 * 10**9, 3.352e12, _H100),
    )
}

_MODULES = {"tpu": ("libtpu",), "cuda": ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")}


def target_of(spec: str) -> tuple[Target, tuple[int, ...]]:
    """`(target, its chips along each axis)` of "tpu-v5e", "tpu-v5e:4x4", "v5p:2x2x1", "h100" or "h100:8".

    Raises ValueError for a machine that is not in the table, and for a layout that is not written as it should be.
    """
    name, colon, layout = spec.lower().partition(":")
    name = f"tpu-{name}" if f"tpu-{name}" in TARGETS else name
    if name not in TARGETS:
        near = difflib.get_close_matches(name, TARGETS, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{spec}: no such machine is known; those are {', '.join(TARGETS)}.{hint}")
    target = TARGETS[name]
    axes = target.axes or 1
    if not colon:
        return target, (1,) * axes
    if not re.fullmatch(r"[1-9]\d{0,4}(x[1-9]\d{0,4})*", layout) or layout.count("x") + 1 != axes:
        example = {1: f"{name}:8", 2: f"{name}:4x4", 3: f"{name}:2x2x4"}[axes]
        raise ValueError(f"{spec}: the chips of {name} are counted along {axes} axes, as in {example}.")
    return target, tuple(map(int, layout.split("x")))


def topology_devices(spec: str) -> list[Any]:
    """The devices of a target, for shardings and meshes of programs that are compiled for it; nothing runs on them.

    Raises ValueError for a target or layout that is unknown here or to the plug-in, and MissingPluginError.
    """
    target, chips = target_of(spec)
    if not any(_found(module) for module in _MODULES[target.platform]):
        raise MissingPluginError(
            f"{spec}: the compiler for {target.name} is not installed here; {extras.install(target.platform)} "
            "brings it (no device is needed)."
        )
    if target.platform == "cuda":
        hosts, each = (1, chips[0]) if chips[0] < 8 else divmod(chips[0], 8)
        if chips[0] >= 8 and each:
            raise ValueError(f"{spec}: beyond 8, devices come in hosts of 8.")
        options = {"topology": f"1x{hosts}x{each or 8}", "target_config": target.description}
    else:
        # libtpu reads these when it is loaded; without them it asks a cloud's metadata server, which is not there.
        os.environ["TPU_SKIP_MDS_QUERY"] = "1"
        os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # one process owns a TPU; any number may compile
        os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
        os.environ.setdefault("TPU_ACCELERATOR_TYPE", f"{target.accelerator}-4")
        options = {"topology_name": f"{target.plugin}:{'x'.join(map(str, chips))}", **dict(target.options)}
        if math.prod(chips) < 4:  # a part of a host
            options["chips_per_host_bounds"] = [*chips, 1][:3]
    try:
        return list(topologies.get_topology_desc(platform=target.platform, **options).devices)
    except NotImplementedError as error:  # the plug-in looked for its device when jax first looked for any
        raise MissingPluginError(f"{spec}: its plug-in was not loaded; start Python with JAX_PLATFORMS=cpu.") from error
    except jax.errors.JaxRuntimeError as error:
        unknown = str(error).startswith(("INVALID_ARGUMENT", "NOT_FOUND"))
        what = "does not know it" if unknown else "does not start"
        raise ValueError(f"{spec}: the plug-in {what}: {_sentence(error)}") from error


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def _sentence(error: BaseException) -> str:
    """The first line of a runtime's error, without its status."""
    return re.sub(r"^[A-Z_]+: ", "", str(error).strip().splitlines()[0])
