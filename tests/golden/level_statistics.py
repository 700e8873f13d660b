"""What is counted over many levels of a generator, ours or the reference's. NumPy only; cells are packed as in
`jaxrl.envs.grid.engine`."""

from __future__ import annotations

import numpy as np

KINDS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava")


def levels_with(level: np.ndarray, value: np.ndarray, n: int) -> np.ndarray:
    """In how many levels each of 0 .. n-1 is among the values; `level` says whose each value is."""
    pairs = np.unique(level.reshape(-1).astype(np.int64) * n + value.reshape(-1))
    return np.bincount(pairs % n, minlength=n).astype(np.uint16)


def steps_from(free: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Steps from `start` (levels,) to each cell over `free` (levels, height, width) ones and onto their neighbours; -1
    where there is no way."""
    levels, height, width = free.shape
    distance = np.full(free.shape, -1, np.int16)
    distance.reshape(levels, -1)[np.arange(levels), start] = 0
    for step in range(1, height * width):
        padded = np.pad((distance >= 0) & (free | (distance == 0)), ((0, 0), (1, 1), (1, 1)))
        around = padded[:, :-2, 1:-1] | padded[:, 2:, 1:-1] | padded[:, 1:-1, :-2] | padded[:, 1:-1, 2:]
        new = around & (distance < 0)
        if not np.any(new):
            break
        distance[new] = step
    return distance


def closest(here: np.ndarray, most: int = 3) -> np.ndarray:
    """How many rows or columns, whichever is more, two of the marked cells of each level are apart at least; `most` + 1
    where it is more, or there are no two."""
    apart = np.full(len(here), most + 1)
    padded = np.pad(here, ((0, 0), (most, most), (most, most)))
    height, width = here.shape[1:]
    for i in range(-most, most + 1):
        for j in range(-most, most + 1):
            moved = padded[:, most + i : most + i + height, most + j : most + j + width]
            if (i, j) != (0, 0):
                apart = np.where(np.any(here & moved, (1, 2)), np.minimum(apart, max(abs(i), abs(j))), apart)
    return apart


def statistics(
    grid: np.ndarray, position: np.ndarray, direction: np.ndarray, mission: np.ndarray, target: np.ndarray
) -> dict[str, np.ndarray]:
    """In how many levels (first axis of each array) something is so: an agent or a kind of cell at each cell; each
    direction; each number, colour, number of colours and state of a kind; one so many rows, columns or steps from the
    agent; so many different keys, balls and boxes, and two of them so close; each mission, and target with what is
    there. So each count is binomial."""
    levels, height, width = grid.shape
    cells, each = height * width, np.arange(levels)
    kind, color, state = grid & 255, grid >> 8 & 255, grid >> 16
    counts = {"agent": levels_with(each, position, cells), "direction": levels_with(each, direction, 4)}
    distance = steps_from((kind != KINDS.index("wall")) & (kind != KINDS.index("lava")), position)
    for number in np.unique(kind):
        name, here = KINDS[number], kind == number
        counts[f"{name} at"] = here.reshape(levels, cells).sum(0, dtype=np.uint16)
        counts[f"{name} number"] = levels_with(each, np.sum(here, (1, 2)), cells + 1)
        if name in ("empty", "wall"):
            continue
        which, row, column = np.nonzero(here)
        counts[f"{name} color"] = levels_with(which, color[here], 6)
        counts[f"{name} state"] = levels_with(which, state[here], 256)
        colors = np.stack([np.any(here & (color == c), (1, 2)) for c in range(6)])
        counts[f"{name} colors"] = levels_with(each, np.sum(colors, 0), 7)
        counts[f"{name} rows away"] = levels_with(which, row - position[which] // width + height, 2 * height)
        counts[f"{name} columns away"] = levels_with(which, column - position[which] % width + width, 2 * width)
        counts[f"{name} steps away"] = levels_with(which, distance[here] + 1, cells)
    loose = (kind >= KINDS.index("key")) & (kind <= KINDS.index("box"))
    if np.any(loose):
        seen = grid & 0xFFFF
        different = np.sum([np.any(loose & (seen == thing), (1, 2)) for thing in np.unique(seen[loose])], 0)
        counts["different objects"] = levels_with(each, different, 19)
        counts["closest objects"] = levels_with(each, closest(loose), 5)
    for i in range(mission.shape[1]):
        counts[f"mission {i}"] = levels_with(each, mission[:, i], 8)
    for i in range(target.shape[1]):
        there = grid.reshape(levels, cells)[each, target[:, i]]
        counts[f"target {i}"] = levels_with(each, target[:, i], cells)
        counts[f"target {i} color"] = levels_with(each, there >> 8 & 255, 6)
        counts[f"target {i} kind"] = levels_with(each, there & 255, len(KINDS))
        counts[f"target {i} steps away"] = levels_with(
            each, distance.reshape(levels, cells)[each, target[:, i]] + 1, cells
        )
    return counts
