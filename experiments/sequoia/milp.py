"""The best feasible action of a coupled restless bandit as a mixed-integer linear program, solved by HiGHS.

The objective is linear in the action (a myopic policy, a sum of indices) or a ReLU network of it (a Q-function): each
unit h = max(0, y) with bounds low <= y <= high is written with a binary z as h >= y, h >= 0, h <= y - low (1 - z),
h <= high z (the big-M encoding of Xu et al. 2025 and Dumouchelle et al. 2022). Bounds come from interval arithmetic;
the first layer's use how many ones an action can have. Host only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from jaxrl.envs.bandits import coupled


class Program:
    """Variables with bounds and kinds, and rows `low <= sum of coefficient * variable <= high`."""

    def __init__(self) -> None:
        self.low, self.high, self.integer = [], [], []
        self.rows: list[tuple[list[int], list[float], float, float]] = []

    def add(self, count: int, low: float = 0.0, high: float = 1.0, integer: bool = True) -> np.ndarray:
        """New variables; their indices."""
        first = len(self.low)
        self.low += [low] * count
        self.high += [high] * count
        self.integer += [integer] * count
        return np.arange(first, first + count)

    def row(self, variables: Any, coefficients: Any, low: float = -np.inf, high: float = np.inf) -> None:
        """One constraint; a single coefficient serves all variables."""
        variables = np.atleast_1d(variables)
        self.rows.append((variables, np.broadcast_to(coefficients, variables.shape), low, high))

    def maximise(self, variables: np.ndarray, coefficients: np.ndarray, **options: Any) -> np.ndarray:
        """The values of all variables at the optimum. RuntimeError when the solver finds none."""
        cost = np.zeros(len(self.low))
        np.add.at(cost, variables, -np.asarray(coefficients, float))
        number = np.repeat(np.arange(len(self.rows)), [len(r[0]) for r in self.rows])
        columns, values = (np.concatenate([r[i] for r in self.rows]) for i in (0, 1))
        matrix = coo_array((values, (number, columns)), (len(self.rows), len(self.low)))
        constraint = LinearConstraint(matrix.tocsr(), [r[2] for r in self.rows], [r[3] for r in self.rows])
        result = milp(
            cost, integrality=self.integer, bounds=Bounds(self.low, self.high), constraints=constraint, options=options
        )
        if result.x is None:
            raise RuntimeError(f"HiGHS: {result.message}")
        return result.x


def feasible_set(env: coupled.CoupledRestless, params: Any) -> tuple[Program, np.ndarray, int]:
    """A program whose first variables are the action, their indices, and the most ones an action can have."""
    program = Program()
    action = program.add(env.num_actions)
    most = env.budget
    if isinstance(env, coupled.Capacity):
        capacity = np.asarray(params.capacity)
        most = int(np.sum(capacity // np.asarray(params.cost).min()))
        given = program.add(env.num_arms * len(capacity)).reshape(env.num_arms, -1)  # arm to worker
        for arm, variables in enumerate(given):
            program.row([action[arm], *variables], [1, *[-1] * len(variables)], 0, 0)
        for worker, room in enumerate(capacity):
            program.row(given[:, worker], np.asarray(params.cost, float), high=float(room))
        return program, action, most
    program.row(action, 1, high=env.budget)
    if isinstance(env, coupled.Matching):
        slots, workers = np.asarray(params.arm_slots), np.asarray(params.worker_slots).sum(0)
        served = program.add(slots.size, high=2.0).reshape(slots.shape)  # services of an arm in a slot
        for arm in range(env.num_arms):
            program.row([action[arm], *served[arm, slots[arm]]], [2, *[-1] * slots[arm].sum()], 0, 0)
        for slot, offer in enumerate(workers):
            program.row(served[slots[:, slot], slot], 1, high=float(offer))
    if isinstance(env, coupled.Path):
        _walk(program, action, np.asarray(params.distance) == 1, int(params.depot), 2 * env.budget)
    return program, action, most


def _walk(program: Program, action: np.ndarray, edge: np.ndarray, depot: int, steps: int) -> None:
    """A unit of flow on the graph unrolled over time, from the depot to the depot; it may wait there only."""
    edge = edge.copy()
    edge[depot, depot] = True
    tail, head = np.nonzero(edge)
    flow = program.add(steps * len(tail)).reshape(steps, -1)
    program.row(flow[0, tail == depot], 1, 1, 1)
    program.row(flow[0, tail != depot], 1, 0, 0)
    for t in range(steps):
        for node in range(len(edge)):
            arrive = flow[t, head == node]
            if t + 1 < steps:
                leave = flow[t + 1, tail == node]
                program.row([*arrive, *leave], [1] * len(arrive) + [-1] * len(leave), 0, 0)
            elif node != depot:
                program.row(arrive, 1, 0, 0)
    for node in set(range(len(edge))) - {depot}:
        visits = flow[:, head == node].ravel()
        program.row([action[node], *visits], [1, *[-1] * len(visits)], high=0)


def best_linear(env: coupled.CoupledRestless, params: Any, value: np.ndarray, **options: Any) -> np.ndarray:
    """The feasible action with the largest `value @ action`."""
    program, action, _ = feasible_set(env, params)
    return np.round(program.maximise(action, value, **options)[action]).astype(np.int32)


def best_of_network(
    env: coupled.CoupledRestless, params: Any, layers: list[tuple[np.ndarray, np.ndarray]], **options: Any
) -> np.ndarray:
    """The feasible action at which a ReLU network of the action, `[(weight (in, out), bias (out,)), ...]`, is largest.

    The last layer is linear with one output; the state is already in the first bias.
    """
    program, units, most = feasible_set(env, params)
    action = units
    first = np.sort(np.asarray(layers[0][0], float), 0)
    low, high = (np.asarray(layers[0][1], float) + x for x in _budget_interval(first, most))
    for i, (weight, bias) in enumerate(layers[:-1]):
        weight, bias = np.asarray(weight, float), np.asarray(bias, float)
        if i > 0:
            up, down = np.maximum(weight, 0), np.minimum(weight, 0)
            low, high = bias + low @ up + high @ down, bias + high @ up + low @ down
        units = _relu(program, units, weight, bias, low, high)
        low, high = np.maximum(low, 0), np.maximum(high, 0)
    return np.round(program.maximise(units, np.asarray(layers[-1][0])[:, 0], **options)[action]).astype(np.int32)


def _budget_interval(ascending: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The least and most that at most `most` ones add to each unit, from its weights in ascending order."""
    return np.minimum(ascending[:most], 0).sum(0), np.maximum(ascending[-most:], 0).sum(0)


def _relu(
    program: Program, inputs: np.ndarray, weight: np.ndarray, bias: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """One variable for each unit's output."""
    outputs = np.concatenate([program.add(1, 0.0, max(h, 0.0), integer=False) for h in high])
    for j, out in enumerate(outputs):
        terms, w = [out, *inputs], [1, *-weight[:, j]]
        if high[j] <= 0:
            continue  # its upper bound is zero
        program.row(terms, w, low=bias[j])
        if low[j] >= 0:
            program.row(terms, w, high=bias[j])
            continue
        on = program.add(1)[0]
        program.row([*terms, on], [*w, -low[j]], high=bias[j] - low[j])
        program.row([out, on], [1, -high[j]], high=0)
    return outputs
