"""What BabyAI levels are like in numbers, ours or the reference's. NumPy only; cells and missions are integers as in
`jaxrl.envs.grid`."""

from __future__ import annotations

import numpy as np


def features(
    grid: np.ndarray, position: np.ndarray, direction: np.ndarray, mission: np.ndarray, room_size: int
) -> dict[str, np.ndarray]:
    """Each (levels,). What there is: doors, keys, balls, boxes, their colours and states, where they are, how near to
    the agent; the agent; what is asked for."""
    levels, height, width = grid.shape
    cells = grid.reshape(levels, -1)
    kind, color, state = cells & 255, cells >> 8 & 255, cells >> 16
    y, x = np.divmod(np.arange(height * width), width)
    row, column = np.divmod(position, width)
    far = np.abs(y - row[:, None]) + np.abs(x - column[:, None])
    door, loose = kind == 4, (kind >= 5) & (kind <= 7)
    found = {f"number of kind {k}": np.sum(kind == k, 1) for k in range(2, 8)}
    for name, things in (("doors", door), ("objects", loose)):
        found |= {f"{name} of colour {c}": np.sum(things & (color == c), 1) for c in range(6)}
        found |= {f"{name} within {d}": np.sum(things & (far <= d), 1) for d in (1, 2, 3, 5, 8)}
        found |= {f"{name} x": np.sum(things * x, 1), f"{name} y": np.sum(things * y, 1)}
        found |= {f"{name} x^2": np.sum(things * x * x, 1), f"{name} y^2": np.sum(things * y * y, 1)}
    found |= {f"doors in state {s}": np.sum(door & (state == s), 1) for s in range(3)}
    found |= {f"boxes with {s}": np.sum((kind == 7) & (state == 16 * s), 1) for s in range(1, 7)}
    found["number of doors^2"] = np.sum(door, 1) ** 2
    found["objects beside a wall"] = np.sum(loose & (y % (room_size - 1) == 1), 1)
    here = row // (room_size - 1) * 10 + column // (room_size - 1)
    same = y // (room_size - 1) * 10 + x // (room_size - 1) == here[:, None]
    found["objects in the agent's room"] = np.sum(loose & same, 1)
    found |= {"agent x": column, "agent y": row, "agent x^2": column**2, "agent y^2": row**2, "agent xy": row * column}
    found |= {"agent beside a wall": row % (room_size - 1) == 1}
    found |= {f"agent turned {d}": direction == d for d in range(4)}
    ahead = position + np.array([1, width, -1, -width])[direction]
    found |= {f"agent faces {k}": np.take_along_axis(kind, ahead[:, None], 1)[:, 0] == k for k in (1, 2, 4)}
    clauses = mission[:, 1:].reshape(levels, -1, 9)
    things = clauses[..., 1:].reshape(levels, -1, 4)
    found |= {f"order {k}": mission[:, 0] == k for k in range(3)}
    found |= {f"clauses with verb {k}": np.sum(clauses[..., 0] == k, 1) for k in range(1, 5)}
    found["number of clauses^2"] = np.sum(clauses[..., 0] > 0, 1) ** 2
    for k, (name, values) in enumerate((("kind", 8), ("colour", 7), ("place", 5), ("several", 2))):
        found |= {f"said {name} {v}": np.sum(things[..., k] == v, 1) for v in range(1, values)}
    found |= {f"only {k}": np.sum((things[..., 0] == k) & (things[..., 1] == 0), 1) for k in range(8)}
    for v in range(1, 5):
        verb = clauses[..., 0] == v
        found |= {f"verb {v} with kind {k}": np.sum(verb & (clauses[..., 1] == k), 1) for k in range(8)}
        found |= {f"verb {v} with several": np.sum(verb & (clauses[..., 4] == 1), 1)}
        found |= {f"verb {v} with no colour": np.sum(verb & (clauses[..., 2] == 0), 1)}
    said = things[:, 0]
    fits = (kind == said[:, :1]) & (color + 1 == said[:, 1:2])
    found |= {"first said is in reach": np.sum(fits & (far <= 4), 1), "fit the first said": np.sum(fits, 1)}
    found |= {f"first said in state {s}": np.sum(fits & door & (state == s), 1) for s in range(3)}
    return {name: x.astype(np.float64) for name, x in found.items()}
