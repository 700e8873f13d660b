"""Ask an accelerator's compiler without owning the accelerator: memory, estimated time, and what the device waits for.

`compile_for(function, arguments, "tpu-v5e:4x4")` compiles from shapes on this machine, with the real compiler, and
returns a `Report`; `topology_devices` are the target's devices, of which a mesh can be made. `targets` has the table of
machines, `hlo` reads what the compiler wrote. `python -m jaxrl.host.ahead` is the process in which `jaxrl compile`
does it: a compiler cannot be interrupted, a process can. The page is docs/accelerators.md.
"""

from jaxrl.host.ahead.compilation import DoesNotFitError, Memory, Report, compile_for
from jaxrl.host.ahead.targets import TARGETS, MissingPluginError, Target, target_of, topology_devices

__all__ = [
    "TARGETS",
    "DoesNotFitError",
    "Memory",
    "MissingPluginError",
    "Report",
    "Target",
    "compile_for",
    "target_of",
    "topology_devices",
]
