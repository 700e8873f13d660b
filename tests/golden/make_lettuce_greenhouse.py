"""Writes lettuce_greenhouse.npz: 15 minutes of Van Henten's (2003) greenhouse by GreenLight 2.0.5 (BSD-3-Clause-Clear).

    pip install greenlight==2.0.5
    python tests/golden/make_lettuce_greenhouse.py tests/golden/lettuce_greenhouse.npz

From random states, weathers and controls, all held. GreenLight's file of the model has its equation 11, the vapour
that leaves, without the ventilation: `released` are transitions of that file with closed vents, `mended` have the
ventilation in it, as the carbon dioxide of equation 7 has.
"""

import sys
import tempfile
from importlib import metadata, resources
from pathlib import Path

import numpy as np
from greenlight import GreenLight

MENDED = {"aux_states": {"phi_vent_h": {"definition": "(U_v + c_leak)*(X_h - V_h)"}}}
LOW = {"X_d": 1e-3, "X_c": 4e-4, "X_T": 5, "X_h": 3e-3}
HIGH = {"X_d": 0.3, "X_c": 2.5e-3, "X_T": 35, "X_h": 2e-2}
INPUTS_LOW = {"V_rad": 0, "V_T": -5, "V_h": 2e-3, "V_c": 6e-4, "U_c": 0, "U_v": 0, "U_q": 0}
INPUTS_HIGH = {"V_rad": 800, "V_T": 25, "V_h": 1.2e-2, "V_c": 8e-4, "U_c": 1.2e-6, "U_v": 7.5e-3, "U_q": 150}


def drawn(rng, low, high):
    return {name: float(rng.uniform(low[name], high[name])) for name in low}


def simulate(folder, state, inputs, mended):
    """The state 900 s later."""
    model = str(resources.files("greenlight") / "models/van_henten_2003/definition/greenhouse_evh2003.json")
    changes = {
        "states": {name: {"init": repr(x)} for name, x in state.items()},
        "inputs": {name: {"definition": repr(x)} for name, x in inputs.items()},
        "options": {"t_start": "0", "t_end": "900", "solver": "LSODA", "rtol": "1e-12", "atol": "1e-16"},
    }
    prompt = [model, changes] + ([MENDED] if mended else [])
    run = GreenLight(base_path=str(folder), input_prompt=prompt, output_path="out.csv")
    run.load()
    run.solve()
    solution = run.full_sol
    return [float(solution[name].iloc[-1]) for name in state]


def main() -> None:
    assert metadata.version("greenlight") in ("2.0.5",), "made with GreenLight 2.0.5"
    rng = np.random.default_rng(0)
    arrays = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, mended, count in (("released", False, 20), ("mended", True, 40)):
            rows = []
            for i in range(count):
                state, inputs = drawn(rng, LOW, HIGH), drawn(rng, INPUTS_LOW, INPUTS_HIGH)
                if not mended:
                    inputs["U_v"] = 0.0
                if i % 4 == 0:
                    inputs["V_rad"] = 0.0  # by night
                rows.append(
                    (list(state.values()), list(inputs.values()), simulate(Path(folder), state, inputs, mended))
                )
            arrays |= {
                f"{name}_{k}": np.array(x)
                for k, x in zip(("state", "inputs", "after"), zip(*rows, strict=True), strict=True)
            }
    np.savez_compressed(sys.argv[1], version="GreenLight 2.0.5", **arrays)


if __name__ == "__main__":
    main()
