"""Write `tabular.npz`: the transition tables of the installed Gymnasium's toy text, for tests that run without it.

    python tests/golden/make_tabular.py

For each case `<name>`, with K the most outcomes of any state and action (fewer are padded by probability 0):

`<name>/probability`, `<name>/next_state`, `<name>/reward`, `<name>/terminated` (S, A, K) and `<name>/initial` (S,).
`Taxi/action_mask` (500, 6). `gymnasium` is the version.

A fickle Taxi has no table in the reference: its `step` is run from every state, with and without the hidden flag
(states 500 to 999 have it set), under a random generator that goes through all its choices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

CORNER_MAP = ["SFFHF", "FFFFS", "HFHGF"]  # not square, two starts
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "CliffWalking": ("CliffWalking-v1", {}),
    "CliffWalkingSlippery": ("CliffWalkingSlippery-v1", {}),
    "FrozenLake": ("FrozenLake-v1", {}),
    "FrozenLakeDry": ("FrozenLake-v1", {"is_slippery": False}),
    "FrozenLake8x8": ("FrozenLake8x8-v1", {}),
    "FrozenLakeOther": (
        "FrozenLake-v1",
        {"desc": CORNER_MAP, "success_rate": 0.7, "reward_schedule": (2, -1, -0.25)},
    ),
    "Taxi": ("Taxi-v4", {}),
    "TaxiRainy": ("Taxi-v4", {"is_rainy": True, "rainy_probability": 0.75}),
    "TaxiFickle": ("Taxi-v4", {"fickle_passenger": True, "fickle_probability": 0.4}),
    "TaxiRainyFickle": ("Taxi-v4", {"is_rainy": True, "fickle_passenger": True}),
}

Rows = list[list[list[tuple[float, int, float, bool]]]]


def as_arrays(rows: Rows, initial: np.ndarray) -> dict[str, np.ndarray]:
    most = max(len(outcomes) for actions in rows for outcomes in actions)
    shape = len(rows), len(rows[0]), most
    probability, next_state = np.zeros(shape), np.zeros(shape, np.int32)
    reward, terminated = np.zeros(shape), np.zeros(shape, bool)
    for s, actions in enumerate(rows):
        for a, outcomes in enumerate(actions):
            for k, outcome in enumerate(outcomes):
                probability[s, a, k], next_state[s, a, k], reward[s, a, k], terminated[s, a, k] = outcome
    return dict(probability=probability, next_state=next_state, reward=reward, terminated=terminated, initial=initial)


class Scripted:
    """A random generator that returns what it is told: `uniform` and the `pick`-th of any choice."""

    def __init__(self, uniform: float, pick: int) -> None:
        self.uniform, self.pick = uniform, pick

    def random(self) -> float:
        return self.uniform

    def choice(self, options: list[int]) -> int:
        return options[self.pick]


def fickle_rows(env: Any) -> Rows:
    rows: Rows = []
    for state in range(1000):
        pending, s = divmod(state, 500)
        rows.append([])
        for action in range(6):
            ways = env.P[s][action]
            ends = np.cumsum([way[0] for way in ways])
            outcomes = []
            for (p, *_), end in zip(ways, ends, strict=True):
                for pick in range(3):
                    env.s, env.fickle_step = s, bool(pending)
                    env.np_random = Scripted(end - p / 2, pick)
                    obs, reward, terminated, _, _ = env.step(action)
                    outcomes.append((p / 3, obs + 500 * env.fickle_step, reward, terminated))
            rows[-1].append(outcomes)
    return rows


def main() -> None:
    data: dict[str, Any] = {"gymnasium": gymnasium.__version__}
    for name, (env_id, settings) in CASES.items():
        env: Any = gymnasium.make(env_id, **settings).unwrapped
        initial = np.asarray(env.initial_state_distrib)
        if settings.get("fickle_passenger"):
            fickle = env.fickle_probability
            arrays = as_arrays(fickle_rows(env), np.concatenate([initial * (1 - fickle), initial * fickle]))
        else:
            table = [[env.P[s][a] for a in range(len(env.P[s]))] for s in range(len(env.P))]
            arrays = as_arrays(table, initial)
        data |= {f"{name}/{key}": value for key, value in arrays.items()}
        if name == "Taxi":
            data["Taxi/action_mask"] = np.array([env.action_mask(s) for s in range(500)], bool)
    np.savez_compressed(Path(__file__).parent / "tabular.npz", **data)


if __name__ == "__main__":
    main()
