"""Planning through an environment's own `step`: MPPI, CEM and iLQR, without learning.

A planner sees the environment's state, simulates `horizon` steps ahead, acts, and starts the next decision from the
rest of its plan (model-predictive control). It maximises the discounted sum of rewards until the episode ends, of
either kind, plus `terminal_value(state, params)` where it has not ended by then. Plans are in units of the action box,
[-1, 1] a side (a box with an open side keeps its own units); every action stays in the box. All is pure: jit it, vmap
it over states, keys, params and `Hyper` leaves. Results: `experiments/planning`.

A planner a file: `mppi` is in `path_integral`, `cem` in `cross_entropy`, `ilqr` in `linear_quadratic`; `planner` is
what they share, `noise` colours what they draw, and `control` (in `episode`) lets one of them act.
"""

from jaxrl.exact.planning.cross_entropy import CEMConfig, CEMHyper, cem, elites
from jaxrl.exact.planning.episode import Trajectory, control
from jaxrl.exact.planning.linear_quadratic import (
    ILQRConfig,
    ILQRHyper,
    Quadratic,
    backward_pass,
    box_step,
    ilqr,
    solve_positive,
)
from jaxrl.exact.planning.noise import colored_noise, whitened
from jaxrl.exact.planning.path_integral import MPPIConfig, MPPIHyper, mppi, mppi_weights, standardized
from jaxrl.exact.planning.planner import Carry, Planner, TerminalValue, shifted

__all__ = [
    "CEMConfig",
    "CEMHyper",
    "Carry",
    "ILQRConfig",
    "ILQRHyper",
    "MPPIConfig",
    "MPPIHyper",
    "Planner",
    "Quadratic",
    "TerminalValue",
    "Trajectory",
    "backward_pass",
    "box_step",
    "cem",
    "colored_noise",
    "control",
    "elites",
    "ilqr",
    "mppi",
    "mppi_weights",
    "shifted",
    "solve_positive",
    "standardized",
    "whitened",
]
