"""What is the best return on an id, or that of a controller that is accepted as good? `reference(id)`, for run.py.

`REFERENCES` has a row for each pattern of ids: what the reference is, and its value, or a function that finds it from
the environment, its params and the step after which an episode is cut. A number is exact; a `Sample` has an interval.
Learners may exceed all but what is called the best.
"""

import fnmatch
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl import scores
from jaxrl.actors import Actor, scripted
from jaxrl.envs.bandits import coupled, linear
from jaxrl.envs.classic import fishery, lettuce_greenhouse
from jaxrl.envs.quadcopter.control import cascade
from jaxrl.envs.quadcopter.control.setpoints import Setpoint
from jaxrl.envs.routing import cvrp
from jaxrl.envs.tabular.generalization import button_grid, pan_flute, proc_maze
from jaxrl.evaluation import episodes
from jaxrl.exact import planning
from jaxrl.exact.mdp import MDP, explore, tabulate
from jaxrl.exact.solvers import bellman
from jaxrl.exact.whittle import average_whittle_index, whittle_action, whittle_index
from jaxrl.host.statistics import bootstrap_interval

AVERAGE = ("Cont-*", "Finite-*")
"""Ids whose scores are average rewards of a step: a violated limit ends an episode, and with it all further costs."""


class Sample(NamedTuple):
    values: Any  # (n,), whose mean is the reference
    of: str = "episodes"  # what there are n of
    lengths: Any = None  # (n,), of episodes whose returns the values are


def average(id: str) -> bool:
    return any(fnmatch.fnmatch(id, pattern) for pattern in AVERAGE)


def averaged(returns: np.ndarray, lengths: np.ndarray) -> tuple[float, tuple[float, float]]:
    """The average reward of a step of episodes (n,), with its interval when episodes are redrawn."""

    def ratio(episodes):
        chosen = np.asarray(episodes, int).ravel()
        return returns[chosen].sum() / lengths[chosen].sum()

    every = np.arange(len(returns))
    return ratio(every), bootstrap_interval(every, ratio)


def reference(id: str) -> dict | None:
    """`value`, `what`, and of a sample `interval` (95 %) and its size; None where nothing above random is known: where
    the intervals of both are not apart.
    """
    row = next((row for pattern, row in REFERENCES.items() if fnmatch.fnmatch(id, pattern)), None)
    if row is None:
        return None
    (what, find), record = row, scores.of(id)
    found = find(*jaxrl.make(id), record.cap) if callable(find) else find
    values = np.asarray(found.values if isinstance(found, Sample) else found, float)
    about = {"value": float(values.mean()), "what": what}
    if average(id):
        about["value"], about["interval"] = averaged(values, np.asarray(found.lengths))
        about[found.of] = len(values)
    elif isinstance(found, Sample):
        about |= {"interval": bootstrap_interval(values, np.mean), found.of: len(values)}
    low, high = about.get("interval", (about["value"],))[0], record.random.interval[1]
    return about if low > high else None


# ---- exact optima of finite tasks


def best_return(mdp: MDP, steps: int) -> float:
    """The expected return of the best policy in so many steps, by backward induction in float64."""
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: jnp.asarray(x, float) if jnp.issubdtype(x.dtype, jnp.floating) else x, mdp)

        def sweep(_, value):
            return jnp.max(bellman(wide, value, 1.0), -1)

        value = jax.jit(lambda: jax.lax.fori_loop(0, steps, sweep, jnp.zeros_like(wide.initial)))()
        return float(wide.initial @ value)


def tabular(env, params, cap):
    return best_return(tabulate(env, params), cap)


def explored(env, params, cap):
    """Of deterministic tasks in which every start is worth the same."""
    return best_return(explore(env, params, num_starts=256, clock=True)[0], cap)


def open_grid(env, params, cap):
    """The mean over all starts; no way is nearly as long as the cap."""
    cells, walls = env.size**2, jnp.zeros((env.size, env.size), bool)
    level = proc_maze.Level(params.max_steps, params.teleport_probability, walls, jnp.int32(0), jnp.int32(cells - 1))
    return jax.vmap(lambda start: proc_maze.optimal_value(level.replace(start=start)))(jnp.arange(cells)).mean()


def mazes(env, params, cap, count=1024):
    """Of drawn ones; no way is nearly as long as the cap."""
    keys = jax.random.split(jax.random.key(0), count)
    best = jax.vmap(lambda key: proc_maze.optimal_value(proc_maze.generate(key, params, env.size)))
    return Sample(jax.jit(best)(keys), "levels")


def buttons(env, params, cap, batches=16, levels=64):
    """Backward induction over which buttons are on and where the agent is, in batches of drawn buttons.

    Success draws buttons anew: its value is the mean over the buttons of the batch and all cells of the agent.
    """
    cells, on = jnp.arange(env.size**2), jnp.arange(2**env.num_buttons)
    move = jax.vmap(jax.vmap(button_grid.move, (None, 0, None)), (0, None, None))
    to = move(cells, jnp.arange(5), jnp.zeros((env.size, env.size), bool))  # (cells, actions)
    p, all_on = params.spontaneous_probability, len(on) - 1

    def batch(key):
        bits = jax.random.bits(key, (levels, env.num_buttons + 1), jnp.uint32)
        places = jax.vmap(button_grid.place, (0, None))(bits, env.size)[1]
        button = jnp.sum((places[..., None] == cells) << jnp.arange(env.num_buttons)[:, None], 1)  # (levels, cells)
        toggled = jnp.where(to == cells[:, None], 0, button[:, to])
        after = on[:, None, None] ^ toggled[:, None]  # (levels, on, cells, actions)

        def sweep(_, value):
            walked = value[jnp.arange(levels)[:, None, None, None], after, to]
            best = jnp.max((1 - p) * walked + p * value[:, all_on][:, to][:, None], -1)
            return best.at[:, all_on].set(1 + value[:, 0].mean())

        return jax.lax.fori_loop(0, cap, sweep, jnp.zeros((levels, len(on), len(cells))))[:, 0].mean()

    run = jax.jit(lambda keys: jax.lax.map(batch, keys))
    return Sample(run(jax.random.split(jax.random.key(0), batches)), "batches")


SWEEPS = 300
"""Steps ahead that value iteration on a grid looks at most."""

# ---- returns of who is accepted as good


def played(env, params, cap, who: Actor, count: int = 128):
    carry = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *jnp.shape(x))), who.carry)
    run = jax.jit(lambda key: episodes(who.act, carry, key, env, params, num_episodes=count, max_steps=cap))
    stats = run(jax.random.key(1))
    return Sample(stats.returns.reshape(count, -1).mean(1), lengths=stats.lengths)


def by(choose: Callable, count: int = 2048):
    """Of who acts by `choose(state, obs, params)`."""

    def act(key, state, obs, params, carry):
        return jax.vmap(choose, (0, 0, None))(state, obs, params), carry

    return lambda env, params, cap: played(env, params, cap, Actor(act), count)


def controlled(env, params, cap):
    """By the controller in the family's `control/scripted.py`."""
    return played(env, params, cap, scripted(env))


def planned(make_planner: Callable, count: int = 32):
    def find(env, params, cap):
        planner = make_planner(env)

        def one(key):
            return planning.control(env, planner, key, params, cap).reward.sum()

        run = jax.jit(lambda keys: jax.lax.map(one, keys))  # not vmapped, so that each plan stops when it is done
        return Sample(run(jax.random.split(jax.random.key(1), count)))

    return find


def gridded(actions: np.ndarray, **axes: np.ndarray):
    """By value iteration on a grid of two numbers of the state; a number beyond its axis goes on at the other end."""

    def find(env, params, cap):
        def worth(value, state, action):
            after, reward, terminated, _, _ = env.transition(jax.random.key(0), state, action, params)
            places = [(getattr(after, name) - x[0]) / (x[1] - x[0]) for name, x in axes.items()]
            ahead = jax.scipy.ndimage.map_coordinates(value, places, order=1, mode="wrap")
            return reward + jnp.where(terminated, 0, ahead)

        worths = jax.vmap(worth, (None, None, 0))
        mesh = dict(zip(axes, jnp.meshgrid(*axes.values(), indexing="ij"), strict=True))
        shape = tuple(len(x) for x in axes.values())
        first = env.reset(jax.random.key(0), params)[1]
        states = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), first).replace(**mesh)
        of_grid = jax.vmap(jax.vmap(worths, (None, 0, None)), (None, 0, None))

        def sweep(_, value):
            return of_grid(value, states, actions).max(-1)

        best = jax.jit(lambda: jax.lax.fori_loop(0, min(cap, SWEEPS), sweep, jnp.zeros(shape)))()

        def choose(state, obs, params):
            return jnp.asarray(actions)[jnp.argmax(worths(best, state, actions))]

        return by(choose)(env, params, cap)

    return find


def straight(state, obs, params):
    """Of Discrete2D's 100 directions, of which the last is the first again, the one to the goal."""
    angle = jnp.arctan2(state.goal_x - state.x, state.goal_y - state.y) % (2 * math.pi)
    return jnp.round(99 * angle / (2 * math.pi)).astype(jnp.int32)


def digit(state, obs, params):
    """The likeliest one of DigitsBandit: each digit at all places, by how many pixels would have been inverted."""
    (height, width), (rows, columns) = obs.shape, params.glyphs.shape[1:]
    places = np.ndindex(height - rows + 1, width - columns + 1)
    gaps = [((0, 0), (y, height - rows - y), (x, width - columns - x)) for y, x in places]
    inverted = jnp.abs(jnp.stack([jnp.pad(params.glyphs, gap) for gap in gaps], 1) - obs).sum((-2, -1))
    return jnp.argmax(jnp.sum((params.flip / (1 - params.flip)) ** inverted, 1))


def cascaded(target: Callable):
    """Several quadcopters, each by the cascade to its `target(env, params, state)`, three arrays (M,) [m]."""

    def find(env, params, cap):
        def one(params, state, carry):
            to, period = Setpoint(target(env, params, state)), env.substeps * params.dt
            rpm, carry = cascade.position_loop(carry, state.drone, to, cascade.CascadeGains(), params.model, period)
            action = jnp.stack([(n / params.model.hover_rpm - 1) / 0.05 for n in rpm], -1)  # as rpm_band has it
            return jnp.clip(action.ravel() if env.num_agents == 1 else action, -1, 1), carry

        def act(key, state, obs, params, carry):
            return jax.vmap(one, (None, 0, 0))(params, state, carry)

        carry = jax.tree.map(lambda _: jnp.zeros(env.agents), cascade.cascade_init())
        return played(env, params, cap, Actor(act, carry))

    return find


def risen(height: float):
    """Every drone above its start: who follows another's height is where that one is all the way."""

    def target(env, params, state):
        x = jnp.arange(env.num_agents) * params.start_spacing
        return x, x, jnp.full_like(x, height)

    return target


# ---- circuits, tours


def placed(*gates: str):
    """By the gates of a known circuit, in their order."""

    def find(env, params, cap):
        order = jnp.asarray([[str(gate) for gate in env.gate_list].index(name) for name in gates])
        return by(lambda state, obs, params: order[state.time % len(gates)], 2)(env, params, cap)

    return find


def drawn_levels(count: int):
    """The best returns of drawn levels, one after another: the table of a tour has ten million rows."""

    def find(env, params, cap):
        best = jax.jit(lambda key: env.optimal_value(env.generate(key, params)))
        return Sample([best(key) for key in jax.random.split(jax.random.key(0), count)], "levels")

    return find


# ---- bandits


def phases(env, params, cap):
    phase = jnp.sum(jnp.arange(cap)[:, None] >= params.start, 1) - 1
    return params.mean.max(1)[phase].sum()


def indexed(env, params, cap):
    index = jax.vmap(average_whittle_index)(params.transition, params.reward).index
    return by(lambda state, obs, params: whittle_action(index, state.arms, env.budget))(env, params, cap)


def coupled_arms(env, params, cap):
    """The feasible action of the largest sum of indices, or where arms have none of the largest next reward."""
    actions = jnp.asarray(env.feasible_actions(params))
    if hasattr(params, "up"):
        index = jax.vmap(whittle_index, (0, 0, None))(*coupled.arm_mdps(params), 0.99).index

    def choose(state, obs, params):
        if not hasattr(params, "up"):
            return actions[jnp.argmax(jax.vmap(env.expected_reward, (None, 0, None))(state.arms, actions, params))]
        now = jnp.take_along_axis(index, state.arms[:, None], 1)[:, 0]
        return actions[jnp.argmax(actions.astype(now.dtype) @ now)]

    return by(choose, 512)(env, params, cap)


# ---- tasks that need memory


def all_seen(env, params, cap):
    """That of the task of which the id shows a part."""
    whole = scores.of(env.name).reference
    return math.nan if whole is None else whole.value


# ---- the table: the first row that matches counts

BEST, ARM, LONGEST = "the best there is", "always the best arm", "the longest episode"
PLAN = "through the true dynamics"
REMEMBERED = f"{BEST}, with memory"
MORTALITY = 0.305
"""That experiments/fishery tuned."""
GRID = "value iteration on a grid"
ROAD = {"position": np.linspace(-1.2, 0.6, 361), "velocity": np.linspace(-0.07, 0.07, 281)}
CIRCLE = {"theta": np.linspace(-np.pi, np.pi, 400, endpoint=False), "theta_dot": np.linspace(-8, 8, 321)}
CASCADE, RATES = "cascade to rotor speeds", "position control by thrust and body rates"

ROWS: list[tuple[str, str, Any]] = [
    ("ButtonGrid-v0", BEST, buttons),
    ("OpenGrid-v0", BEST, open_grid),
    ("ProcMaze-v0", BEST, mazes),
    ("PanFlute-v0", BEST, lambda env, params, cap: best_return(pan_flute.tabulate(params, env.num_pipes), cap)),
    ("Discrete2D-v0", "straight to the goal", by(straight)),
    ("Blackjack-v1 Chain-v0 CliffWalking* CombinationLock-v0 DeepSea* FrozenLake* Garnet-v0", BEST, tabular),
    ("RiverSwim-v0 SixArms-v0 Taxi-v4 TwoGoalGrid-v0 TwoSidedChain-v0 TwoStepTree-v0 Windy*", BEST, tabular),
    ("Catch-bsuite DiscountingChain-bsuite", BEST, explored),
    ("Memory*-bsuite", REMEMBERED, explored),
    ("Umbrella*-bsuite", f"{BEST}: the right umbrella, all else is fair coins", 1),
    ("Bandit-bsuite", ARM, lambda env, params, cap: params.rewards.max()),
    ("DigitsBandit-bsuite", "always the likeliest digit", by(digit)),
    ("CartPole-bsuite InvertedPendulum-v5", LONGEST, 1000),
    ("MountainCar-bsuite MountainCar-v0", GRID, gridded(np.arange(3), **ROAD)),
    ("MountainCarContinuous-v0", GRID, gridded(np.linspace(-1, 1, 21)[:, None], **ROAD)),
    ("Pendulum-v1", GRID, gridded(np.linspace(-2, 2, 33)[:, None], **CIRCLE)),
    ("AdversarialBandit-v0", "the best fixed arm", lambda env, params, cap: params.rewards[:cap].sum(0).max()),
    ("BestArmIdentification-v0", "always names the best arm", 1),
    ("DuelingBandit-v0", "the best arm against the worst", lambda env, params, cap: cap * params.preference.max()),
    ("ContextualLinearBandit-v0", ARM, by(lambda s, o, p: jnp.argmax(linear.mean_reward(s.features, p.theta)))),
    ("*LinearBandit-v0", ARM, lambda env, params, cap: cap * linear.mean_reward(params.features, params.theta).max()),
    ("PiecewiseBandit-v0", "the best arm of each round", phases),
    ("DriftingBandit-v0 SwitchingBandit-v0", "the best arm of each round", by(lambda s, o, p: jnp.argmax(s.mean))),
    ("RestlessBandit-v0", "the Whittle index", indexed),
    ("CoupledRestlessInterventions-v0", "the myopic policy", coupled_arms),
    ("CoupledRestless*", "the largest sum of Whittle indices", coupled_arms),
    ("*Bandit-v0", ARM, lambda env, params, cap: cap * params.mean.max()),
    ("Cont-*", "PI control", controlled),
    ("Finite-DTC-*", "direct torque control", controlled),
    ("Finite-*", "one-step MPC", controlled),
    ("Quadcopter-GpdHover-v0 Quadcopter-Hover-v0", CASCADE, controlled),
    ("Quadcopter-Reach-v0 Quadcopter-Landing-v0 Quadcopter-Recover-v0 Quadcopter-*Tracking-v0", RATES, controlled),
    ("Quadcopter-MultiHover-v0", CASCADE, cascaded(lambda env, params, state: env.target(state, params)[0])),
    ("Quadcopter-Flock-v0", f"{CASCADE}, side by side", cascaded(risen(1.0))),
    ("Quadcopter-LeaderFollower-v0", f"{CASCADE}, side by side", cascaded(risen(0.5))),
    ("Quadcopter-Meetup-v0", f"{CASCADE}, halfway to the partner",
     cascaded(lambda env, params, state: tuple((x + x[::-1]) / 2 for x in state.drone.position))),
    ("CartPole-v1 CartPoleContinuous-v0 CartPole-P-v0 CartPole-V-v0", LONGEST, 500),
    ("*-P-v0 *-V-v0", "that of the task with everything seen", all_seen),
    ("TMazePassive* TMazeActive-v0 CompassWorld-v0 Repeat* Autoencode* CountRecall*", REMEMBERED, 1),
    ("TMaze*", REMEMBERED, lambda env, params, cap: env.optimal_value(params)),
    ("RockSample-*", f"{REMEMBERED}: each good rock, since looking costs nothing",
     lambda env, params, cap: params.exit_reward + env.num_rocks * params.good_reward / 2),
    ("Battleship-3x3-v0", REMEMBERED, 5.5),
    ("CircuitDesign-H2-2-v0", "a circuit of two gates", placed("RY 0", "CNOT 0 1")),
    ("CircuitDesign-H2-4-v0", "a circuit of six gates",
     placed("RX 0", "RX 1", "RY 2", "CNOT 2 3", "CNOT 2 0", "CNOT 2 1")),
    ("Knapsack-v0", BEST, drawn_levels(256)),
    ("TSP-v0", BEST, drawn_levels(32)),
    ("CVRP-v0", "the nearest customer first", by(lambda s, o, p: cvrp.greedy(o))),
    ("PointMass-v0 Reacher-v0", f"iLQR {PLAN}", planned(planning.ilqr)),
    ("CartPoleSwingUp-v0 DoublePendulum-v0", f"CEM {PLAN}", planned(planning.cem)),
    ("MemoryAllocation-v0", "a solution, which each problem has", 1),
    ("MemoryAllocation-?-v0", "a solution, which MiniMalloc's authors found", 1),
    ("LettuceGreenhouse-v0", "a grower's rules", by(lambda s, o, p: lettuce_greenhouse.grower(s, p))),
    ("Fishery-v0", "the best constant mortality", by(lambda s, o, p: fishery.constant_mortality(s.x, MORTALITY)[None])),
]  # fmt: skip
REFERENCES = {pattern: (what, find) for patterns, what, find in ROWS for pattern in patterns.split()}
