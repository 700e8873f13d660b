"""Restless bandits whose arms are coupled by what may be done together: four tasks.

Xu, Wilder, Khalil and Tambe (2025), "Reinforcement learning with combinatorial actions for coupled restless bandits",
ICLR; instances as drawn by the authors' public code. Every arm is a ladder of four states: with probability `up` it
climbs one step, otherwise it drops one. The first `budget` arms are worth most at the top but pay least on the third
step, the others pay more as they climb but little at the top, so looking one step ahead misleads.

An action is feasible when

- `CoupledRestlessInterventions-v0`: at most `budget` of the interventions are chosen; each touches some arms, whose
  probability to climb is a sigmoid of the sum;
- `CoupledRestlessPath-v0`: at most `budget` arms are pulled, all on one closed walk of at most 2 `budget` steps from a
  depot on a graph;
- `CoupledRestlessMatching-v0`: at most `budget` arms are pulled, and each is served twice, by workers in time slots in
  which both are free;
- `CoupledRestlessCapacity-v0`: the pulled arms fit into the workers' capacities, each arm served by one worker.

| observation | unit | range |
|---|---|---|
| state of each arm, `(num_arms,)` | - | 0 .. 3 |

Action: zeros and ones, one an arm (interventions: one an intervention). An infeasible action counts as all zeros and
sets `info["infeasible"]`. Reward: the sum of the arms' rewards in their **next** states; `info["expected_reward"]` is
its expectation before the arms move. Ends: never; truncated after 20 steps. Paper's sizes (num_arms, budget): (20, 5),
(40, 10), (100, 20).

Differences: the paper's path task runs on the London underground, this one on a random planar graph of as many nodes
(the relative neighbourhood graph of uniform points, connected and sparse as a railway is), and a walk may be shorter
than 2 `budget`. Every constraint is decided exactly.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Key

from jaxrl.environment import Environment, Transition, pytree, strongly_typed
from jaxrl.math import precise
from jaxrl.spaces import MultiDiscrete

NUM_STATES = 4
NUM_SLOTS = 5


@pytree
class State:
    time: jax.Array  # steps since reset
    arms: jax.Array  # (M,) int32, step of the ladder


@pytree
class InterventionParams:
    reward: jax.Array  # (M, 4): of being in each state
    effect: jax.Array  # (M, N): what each intervention adds to the input of each arm's link
    height: jax.Array  # (M,): the link is 0.98 height (sigmoid(slope x - threshold) - sigmoid(-threshold)) + 0.01
    slope: jax.Array  # (M,)
    threshold: jax.Array  # (M,)
    start: jax.Array = 0.5  # probability that an arm starts in state 1, not 0
    max_steps: jax.Array = 20


@pytree
class PathParams:
    reward: jax.Array  # (M, 4)
    up: jax.Array  # (M, 2): probability to climb, at rest and pulled
    distance: jax.Array  # (M, M) int32: edges on the shortest path between two nodes; 1 is an edge
    depot: jax.Array  # int32 node
    start: jax.Array = 0.5
    max_steps: jax.Array = 20


@pytree
class MatchingParams:
    reward: jax.Array  # (M, 4)
    up: jax.Array  # (M, 2)
    arm_slots: jax.Array  # (M, 5) bool: time slots when an arm can be served
    worker_slots: jax.Array  # (W, 5) bool: time slots when a worker works
    start: jax.Array = 0.5
    max_steps: jax.Array = 20


@pytree
class CapacityParams:
    reward: jax.Array  # (M, 4)
    up: jax.Array  # (M, 2)
    cost: jax.Array  # (M,) int32, 2 .. 6
    capacity: jax.Array  # (W,) int32, 0 .. 7
    start: jax.Array = 0.5
    max_steps: jax.Array = 20


# ---- the ladder


def next_reward(arms: Integer[Array, " M"], reward: Float[Array, "M 4"]) -> tuple[Float[Array, " M"], ...]:
    """Each arm's reward after a drop and after a climb."""
    down, up = jnp.maximum(arms - 1, 0), jnp.minimum(arms + 1, NUM_STATES - 1)
    which = jnp.arange(arms.shape[0])
    return reward[which, down], reward[which, up]


def link(x: Float[Array, " M"], params: InterventionParams) -> Float[Array, " M"]:
    """The probability to climb when the interventions on an arm add up to `x`; between 0.01 and 0.99."""
    rise = jax.nn.sigmoid(params.slope * x - params.threshold) - jax.nn.sigmoid(-params.threshold)
    return 0.98 * params.height * rise + 0.01


def arm_mdps(params: Any) -> tuple[Float[Array, "M 2 4 4"], Float[Array, "M 2 4"]]:
    """Each arm on its own, as `(transition, reward)` for `whittle.whittle_index`; not for interventions."""
    climb = jnp.eye(NUM_STATES)[jnp.minimum(jnp.arange(NUM_STATES) + 1, NUM_STATES - 1)]
    drop = jnp.eye(NUM_STATES)[jnp.maximum(jnp.arange(NUM_STATES) - 1, 0)]
    up = params.up[:, :, None, None]
    transition = up * climb + (1 - up) * drop
    return transition, jnp.sum(transition * params.reward[:, None, None, :], -1)


# ---- the constraints


def within_budget(action: Integer[Array, " n"], budget: int) -> Bool[Array, ""]:
    """Whether at most `budget` entries are chosen."""
    return jnp.sum(action > 0) <= budget


def walkable(action: Integer[Array, " M"], params: PathParams, budget: int) -> Bool[Array, ""]:
    """Whether a closed walk of at most 2 `budget` steps from the depot visits all pulled arms, `budget` at most.

    A shortest tour through them in hop distances, by Held and Karp's (1962) recursion over subsets: `2**k` steps for k
    pulled arms, so cheap for budgets to about 12 and exact, if slow, above.
    """
    count = jnp.sum(action > 0)
    _, stops = jax.lax.top_k(action > 0, budget)
    far = 4 * budget + params.distance.shape[0]  # longer than any walk
    between = params.distance[stops][:, stops]
    home = params.distance[params.depot, stops]
    bit = 1 << jnp.arange(budget)

    def visit(subset, length):
        # length[m, i]: the shortest way from the depot through the stops of m, ending in i.
        inside = (subset & bit) > 0
        before = subset & ~bit
        reach = jnp.min(length[before] + between.T, 1)
        reach = jnp.where(before == 0, home, reach)
        return length.at[subset].set(jnp.where(inside, reach, far).astype(length.dtype))

    # Without pulls, or with too many, there is nothing to search.
    subsets = jnp.where(count <= budget, 1 << jnp.minimum(count, budget), 1)
    length = jax.lax.fori_loop(1, subsets, visit, jnp.full((1 << budget, budget), far, jnp.int32))
    tour = jnp.min(length[subsets - 1] + home)
    return (count <= budget) & ((count == 0) | (tour <= 2 * budget))


SLOT_SETS = np.asarray(list(itertools.product([False, True], repeat=NUM_SLOTS)))  # (32, 5)


def schedulable(action: Integer[Array, " M"], params: MatchingParams, budget: int) -> Bool[Array, ""]:
    """Whether workers can serve each pulled arm twice, each worker at most once a slot, and arms are within budget.

    Hall's theorem: the arms that are free only within a set of slots need no more than all services in those slots.
    """
    only = jnp.all(SLOT_SETS[:, None] | ~params.arm_slots, -1)  # (32, M)
    need = 2 * jnp.sum(only & (action > 0), -1)
    offer = jnp.sum(SLOT_SETS * jnp.sum(params.worker_slots, 0), -1)
    return within_budget(action, budget) & jnp.all(need <= offer)


def packable(action: Integer[Array, " M"], params: CapacityParams) -> Bool[Array, ""]:
    """Whether the pulled arms fit into the workers' capacities: bin packing, exactly, for costs 2-6, capacities to 7.

    An arm may always be given to a worker whose capacity it fills (exchange argument), and a 6 that finds none takes a
    7. Then no worker of capacity 5 is left, or no arm of cost 5, so two numbers describe how the 5s and 4s are placed;
    all are tried. Given them, the least capacity for 2s that the 3s take up is known in closed form.
    """
    size = jnp.arange(8)[:, None]
    item = jnp.sum((params.cost == size) & (action > 0), 1)
    room = jnp.sum(params.capacity == size, 1)
    exact = jnp.minimum(item, room) * jnp.isin(jnp.arange(8), jnp.asarray([4, 5, 6]))
    item, room = item - exact, room - exact
    fits = (item[6] <= room[7]) & (jnp.sum(item[jnp.asarray([0, 1, 7])]) == 0)
    c7 = room[7] - item[6]
    side = jnp.arange(params.capacity.shape[0] + 1)
    choice, four_in_6 = side[:, None], side[None, :]
    five_in_6 = jnp.where(item[5] > 0, choice, 0)
    four_in_5 = jnp.where(item[5] > 0, 0, choice)
    five_in_7 = item[5] - five_in_6
    four_in_7 = item[4] - four_in_5 - four_in_6
    # Workers by what capacity they have left.
    left7, left6, left5 = c7 - five_in_7 - four_in_7, room[6] - five_in_6 - four_in_6, room[5] - four_in_5
    left4, left3, left2 = room[4], room[3] + four_in_7, room[2] + five_in_7 + four_in_6
    placed = (left7 >= 0) & (left6 >= 0) & (left5 >= 0) & (five_in_7 >= 0) & (four_in_7 >= 0)
    twos = 3 * left7 + 3 * left6 + 2 * left5 + 2 * left4 + left3 + left2
    # A first 3 in 7, 5 or 3 costs one place for a 2; two 3s in 6 cost three; every other 3 costs two.
    rest = jnp.maximum(item[3] - (left7 + left5 + left3), 0)
    twos = twos - (item[3] - rest) - 2 * rest + jnp.minimum(rest // 2, left6)
    threes = 2 * left7 + 2 * left6 + left5 + left4 + left3
    return fits & jnp.any(placed & (item[3] <= threes) & (item[2] <= twos))


# ---- instances


def hop_distance(edge: Bool[Array, "M M"]) -> Integer[Array, "M M"]:
    """Edges on the shortest path between every two nodes, by repeated squaring."""
    size = edge.shape[0]
    distance = jnp.where(edge, 1, size).astype(jnp.int32) * (1 - jnp.eye(size, dtype=jnp.int32))
    for _ in range(max(size - 1, 1).bit_length()):
        distance = jnp.min(distance[:, :, None] + distance[None, :, :], 1)
    return jnp.minimum(distance, size)


def neighbourhood_graph(points: Float[Array, "M 2"]) -> Bool[Array, "M M"]:
    """The relative neighbourhood graph: an edge where no third point is nearer to both. Planar and connected."""
    d = jnp.sum((points[:, None] - points[None]) ** 2, -1)
    blocked = jnp.any(jnp.maximum(d[:, None, :], d[None, :, :]) < d[:, :, None], -1)
    return ~blocked & ~jnp.eye(points.shape[0], dtype=bool)


def _touching(num_actions: int, num_arms: int) -> np.ndarray:
    """(arms, actions) zeros and ones: actions in threes touch the same three arms, what is left three arms each."""
    group = [min(i // 3, num_actions // 3) + max(i - num_actions // 3 * 3, 0) for i in range(num_actions)]
    touching = np.zeros((num_arms, num_actions))
    for action, g in enumerate(group):
        touching[3 * g : 3 * g + 3, action] = 1
    return touching


@dataclasses.dataclass(frozen=True)
class CoupledRestless(Environment):
    """What the four have in common: the ladder, its rewards, the treatment of infeasible actions."""

    num_arms: int = 20
    budget: int = 5
    static_ranges = {"num_arms": (2, 1000), "budget": (1, 999)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget >= self.num_arms:
            raise ValueError(f"{self.id}: budget={self.budget} must be below num_arms={self.num_arms}.")

    # ---- what a task defines

    def feasible(self, action: Integer[Array, " n"], params: Any) -> Bool[Array, ""]:
        """Whether a vector of zeros and ones may be chosen."""
        raise NotImplementedError

    def generate(self, key: Key[Array, ""], params: Any) -> Any:
        """A random instance as the paper draws them; the start and the time limit are those of `params`."""
        raise NotImplementedError

    @property
    def num_actions(self) -> int:
        """Length of the action vector."""
        return self.num_arms

    def climb_probability(self, action: Integer[Array, " n"], params: Any) -> Float[Array, " M"]:
        """Of every arm, under a feasible action."""
        return jnp.where(action > 0, params.up[:, 1], params.up[:, 0])

    # ---- what follows

    @property
    def default_params(self) -> Any:
        """The instance that `generate` draws from key 0."""
        with jax.ensure_compile_time_eval():
            fields = {f.name for f in dataclasses.fields(self.Params)}
            empty = self.Params(**{name: jnp.zeros(()) for name in fields - {"start", "max_steps"}})
            return jax.jit(self.generate)(jax.random.key(0), strongly_typed(empty))

    def expected_reward(
        self, arms: Integer[Array, " M"], action: Integer[Array, " n"], params: Any
    ) -> Float[Array, ""]:
        """The expected reward of one step under a feasible action: what a myopic policy maximises."""
        down, up = next_reward(arms, params.reward)
        return jnp.sum(down + self.climb_probability(action, params) * (up - down))

    def fill(self, priority: Float[Array, " n"], params: Any) -> Integer[Array, " n"]:
        """Choose in order of falling `priority`, skipping what would be infeasible. Random numbers: a random action."""

        def take(action, i):
            more = action.at[i].set(1)
            return jnp.where(self.feasible(more, params), more, action), None

        order = jnp.argsort(-priority)
        return jax.lax.scan(take, jnp.zeros(self.num_actions, jnp.int32), order)[0]

    def feasible_actions(self, params: Any, limit: int = 1_000_000) -> np.ndarray:
        """All feasible actions, `(count, n)` int32, by number of ones. Host only; ValueError when more than `limit`.

        Dropping a one never makes an action infeasible, so those with k + 1 ones extend those with k.
        """
        n, chunk = self.num_actions, 4096
        check = jax.jit(jax.vmap(self.feasible, (0, None)))
        levels, count = [np.zeros((1, n), np.int32)], 1
        while len(levels[-1]):
            last = levels[-1]
            highest = np.where(last.any(1), n - 1 - np.argmax(last[:, ::-1], 1), -1)
            row, new = np.nonzero(np.arange(n) > highest[:, None])  # one more, above the highest: each set once
            longer = last[row]
            longer[np.arange(len(row)), new] = 1
            padded = np.concatenate([longer, np.zeros((-len(longer) % chunk, n), np.int32)])
            ok = [np.asarray(check(part, params)) for part in padded.reshape(-1, chunk, n)]
            levels.append(longer[np.concatenate(ok)[: len(longer)]] if ok else longer)
            count += len(levels[-1])
            if count > limit:
                raise ValueError(f"{self.id}: more than limit={limit} feasible actions; use a solver.")
        return np.concatenate(levels)

    def initial(self, key: Array, params: Any) -> State:
        u = jax.random.uniform(key, (self.num_arms,), params.reward.dtype)
        return State(jnp.int32(0), (u < params.start).astype(jnp.int32))

    def transition(self, key: Array, state: State, action: Integer[Array, " n"], params: Any) -> Transition:
        feasible = self.feasible(action, params)
        action = jnp.where(feasible, action, 0)
        up = jax.random.uniform(key, (self.num_arms,), params.reward.dtype) < self.climb_probability(action, params)
        expected = self.expected_reward(state.arms, action, params)
        info = {"infeasible": ~feasible, "expected_reward": expected}
        down_reward, up_reward = next_reward(state.arms, params.reward)
        arms = jnp.clip(state.arms + jnp.where(up, 1, -1), 0, NUM_STATES - 1)
        reward = jnp.sum(jnp.where(up, up_reward, down_reward))
        return Transition(state.replace(arms=arms), reward, jnp.bool_(False), jnp.bool_(False), info)

    def observe(self, key: Array, state: State, params: Any) -> Integer[Array, " M"]:
        return state.arms

    def observation_space(self, params: Any) -> MultiDiscrete:
        return MultiDiscrete((NUM_STATES,) * self.num_arms)

    def action_space(self, params: Any) -> MultiDiscrete:
        return MultiDiscrete((2,) * self.num_actions)

    def validate(self, params: Any) -> None:
        chances = {name: getattr(params, name) for name in ("up", "start") if hasattr(params, name)}
        for name, p in chances.items():
            if np.any((np.asarray(p) < 0) | (np.asarray(p) > 1)):
                raise ValueError(f"{self.id}: {name}={p} must lie in [0, 1].")

    def _ladder(self, key: Key[Array, ""]) -> dict[str, Array]:
        """Rewards and probabilities to climb of all arms."""
        u = jax.random.uniform(key, (self.num_arms, 3))
        good = jnp.arange(self.num_arms) < self.budget
        low = jnp.where(good[:, None], jnp.asarray([0.2, 0.15, 0.1]), jnp.asarray([0.1, 0.15, 0.2]))
        top = jnp.where(good, 4, 1) + jnp.floor(3 * u[:, 0])  # 4, 5, 6 or 1, 2, 3
        up = jnp.stack([0.2 * u[:, 1], 0.7 + 0.2 * u[:, 2]], 1)
        return {"reward": jnp.concatenate([low, top[:, None]], 1), "up": up}


@dataclasses.dataclass(frozen=True)
class Interventions(CoupledRestless):
    """Multiple interventions: an arm climbs by a sigmoid of all that is done to it.

    Half of the interventions touch arms that climb only when three coincide, the others arms that one saturates.
    """

    interventions: int = 10
    id: str = dataclasses.field(default="CoupledRestlessInterventions-v0", kw_only=True)
    Params = InterventionParams
    static_ranges = {"interventions": (1, 1000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        rest = self.interventions - self.budget
        slow = self._num_quick
        sizes = [(rest, slow), (self.budget, self.num_arms - slow)]  # (interventions, arms) of the two kinds
        if rest < 1 or any(3 * (n // 3 + n % 3) > arms for n, arms in sizes):
            raise ValueError(
                f"{self.id}: interventions={self.interventions}, budget={self.budget}, num_arms={self.num_arms}: there "
                "must be more interventions than budget, and enough arms for groups of three; the paper has "
                "interventions = 2 budget and num_arms of 4 or 5 times the budget."
            )

    @property
    def num_actions(self) -> int:
        return self.interventions

    @property
    def _num_quick(self) -> int:
        return -(-self.num_arms * self.budget // self.interventions)

    def feasible(self, action: Integer[Array, " N"], params: InterventionParams) -> Bool[Array, ""]:
        return within_budget(action, self.budget)

    @precise
    def climb_probability(self, action: Integer[Array, " N"], params: InterventionParams) -> Float[Array, " M"]:
        return link(params.effect @ (action > 0).astype(params.effect.dtype), params)

    def generate(self, key: Key[Array, ""], params: InterventionParams) -> InterventionParams:
        ladder_key, order_key, quick_key, slow_key, link_key = jax.random.split(key, 5)
        quick = self._num_quick
        slow_arms, quick_arms = self.num_arms - quick, self.interventions - self.budget
        touching = np.zeros((self.num_arms, self.interventions))
        touching[:quick, self.budget :] = _touching(quick_arms, quick)
        touching[quick:, : self.budget] = _touching(self.budget, slow_arms)
        arms = jnp.concatenate(
            [jax.random.permutation(quick_key, quick), quick + jax.random.permutation(slow_key, slow_arms)]
        )
        actions = jax.random.permutation(order_key, self.interventions)
        u = jax.random.uniform(link_key, (3, self.num_arms))
        is_quick = jnp.arange(self.num_arms) < quick
        ladder = self._ladder(ladder_key)
        return params.replace(
            reward=ladder["reward"],
            effect=3 * jnp.asarray(touching, u.dtype)[arms][:, actions],
            height=jnp.round(jnp.where(is_quick, 0.2, 0.7) + 0.3 * u[0], 1),
            slope=jnp.where(is_quick, 1.0, jnp.round(1.4 + 0.5 * u[1], 1)),
            threshold=jnp.where(is_quick, 1, 9) + jnp.floor(2 * u[2]),
        )


@dataclasses.dataclass(frozen=True)
class Path(CoupledRestless):
    """Path constraint: the pulled arms lie on one walk from a depot and back."""

    id: str = dataclasses.field(default="CoupledRestlessPath-v0", kw_only=True)
    Params = PathParams

    def feasible(self, action: Integer[Array, " M"], params: PathParams) -> Bool[Array, ""]:
        return walkable(action, params, self.budget)

    def generate(self, key: Key[Array, ""], params: PathParams) -> PathParams:
        ladder_key, graph_key = jax.random.split(key)
        points = jax.random.uniform(graph_key, (self.num_arms, 2))
        depot = jnp.argmin(jnp.sum((points - 0.5) ** 2, 1)).astype(jnp.int32)
        distance = hop_distance(neighbourhood_graph(points))
        return params.replace(**self._ladder(ladder_key), distance=distance, depot=depot)

    def validate(self, params: PathParams) -> None:
        super().validate(params)
        d = np.asarray(params.distance)
        if np.any(d != np.swapaxes(d, -1, -2)) or np.any(np.diagonal(d, 0, -2, -1) != 0) or np.any(d < 0):
            raise ValueError(f"{self.id}: distance must be symmetric, zero on the diagonal and not negative.")


@dataclasses.dataclass(frozen=True)
class Matching(CoupledRestless):
    """Schedule constraint: bipartite matching of arms with workers in time slots. As many workers as budget."""

    id: str = dataclasses.field(default="CoupledRestlessMatching-v0", kw_only=True)
    Params = MatchingParams

    def feasible(self, action: Integer[Array, " M"], params: MatchingParams) -> Bool[Array, ""]:
        return schedulable(action, params, self.budget)

    def generate(self, key: Key[Array, ""], params: MatchingParams) -> MatchingParams:
        """Arms prefer late slots and workers early ones; an arm is free in two, a worker works in three."""
        ladder_key, slot_key, arm_key, worker_key = jax.random.split(key, 4)
        weight = jnp.log(jnp.sort(jax.random.uniform(slot_key, (2, NUM_SLOTS), minval=1e-6), 1))

        def slots(key, log_weight, rows, count):
            # The largest of weights with Gumbel noise: a draw without replacement in proportion to the weights.
            score = log_weight + jax.random.gumbel(key, (rows, NUM_SLOTS))
            return score >= jax.lax.top_k(score, count)[0][:, -1:]

        return params.replace(
            **self._ladder(ladder_key),
            arm_slots=slots(arm_key, weight[0], self.num_arms, 2),
            worker_slots=slots(worker_key, weight[1, ::-1], self.budget, 3),
        )


@dataclasses.dataclass(frozen=True)
class Capacity(CoupledRestless):
    """Capacity constraint: as many workers as `budget`, each with a knapsack."""

    id: str = dataclasses.field(default="CoupledRestlessCapacity-v0", kw_only=True)
    Params = CapacityParams

    def feasible(self, action: Integer[Array, " M"], params: CapacityParams) -> Bool[Array, ""]:
        return packable(action, params)

    def generate(self, key: Key[Array, ""], params: CapacityParams) -> CapacityParams:
        ladder_key, cost_key, capacity_key = jax.random.split(key, 3)
        return params.replace(
            **self._ladder(ladder_key),
            cost=jax.random.randint(cost_key, (self.num_arms,), 2, 7, jnp.int32),
            capacity=jax.random.randint(capacity_key, (self.budget,), 2, 8, jnp.int32),
        )

    def validate(self, params: CapacityParams) -> None:
        super().validate(params)
        cost, capacity = np.asarray(params.cost), np.asarray(params.capacity)
        if np.any((cost < 2) | (cost > 6)) or np.any((capacity < 0) | (capacity > 7)):
            raise ValueError(f"{self.id}: cost={cost} must be 2 .. 6 and capacity={capacity} 0 .. 7.")
