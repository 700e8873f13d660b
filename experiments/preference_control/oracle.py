"""Optimal values of two tasks with two numbers of state, on a grid: what segments are judged by, and who half acts.

`V = max_a r(s, a) + gamma V(s')` at the nodes of a grid, for a few actions, with V between nodes by bilinear
interpolation. The environment's own `transition` says what follows.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.actors import Actor
from jaxrl.host.data.recording import first_steps, recorded, unbroken

GAMMA = 0.99
U_MAZE = ("#####", "#   #", "### #", "#   #", "#####")


class Task(NamedTuple):
    """A task, its grid, and how its observations and states are placed in it."""

    env: object
    params: object
    low: tuple  # of both numbers
    high: tuple
    nodes: tuple
    actions: np.ndarray  # (A, ...)
    state: object  # (2,) -> state
    of_state: object  # state -> (2,)
    of_obs: object  # obs -> (..., 2)
    wraps: bool = False  # the first number is an angle


def pendulum():
    env, params = jaxrl.make("Pendulum-v1")
    from jaxrl.envs.classic.pendulum import State

    return Task(
        env,
        params,
        (-np.pi, -8.0),
        (np.pi, 8.0),
        (161, 161),
        np.linspace(-2, 2, 17)[:, None],
        lambda x: State(jnp.int32(0), x[0], x[1]),
        lambda state: jnp.stack([state.theta, state.theta_dot]),
        lambda obs: jnp.stack([jnp.arctan2(obs[..., 1], obs[..., 0]), obs[..., 2]], -1),
        True,
    )


def maze(starts="all", max_steps=150):
    """A maze in the shape of a U, from one end (or from anywhere) to the other, without noise of places."""
    from jaxrl.envs.physics.point_maze import State, place

    walls = np.array([[block == "#" for block in row] for row in U_MAZE])
    cells = [(1, 1)] if starts == "first" else [tuple(cell) for cell in np.argwhere(~walls) if tuple(cell) != (3, 1)]
    env, params = jaxrl.make("PointMazeMedium-v0")
    params = params.replace(
        walls=jnp.asarray(walls),
        tasks=jnp.array([(cell, (3, 1)) for cell in cells], jnp.int32),
        weights=jnp.ones(len(cells)),
        noise=jnp.float32(0),
        max_steps=jnp.int32(max_steps),
    )
    goal = place(np.array([3, 1], np.float32))
    around = np.arange(16) * np.pi / 8
    return Task(
        env,
        params,
        (-2.0, -2.0),
        (10.0, 10.0),
        (49, 49),
        np.append(np.stack([np.cos(around), np.sin(around)], 1), [[0, 0]], 0),
        lambda x: State(jnp.int32(0), x[0], x[1], *map(jnp.float32, goal)),
        lambda state: jnp.stack([state.x, state.y]),
        lambda obs: obs["position"],
    )


def between(task, table, x):
    """`table` (n, m, ...) at places x (..., 2), bilinearly."""
    low, high, nodes = (jnp.asarray(part, jnp.float32) for part in (task.low, task.high, task.nodes))
    if task.wraps:
        x = x.at[..., 0].set(low[0] + (x[..., 0] - low[0]) % (high[0] - low[0]))
    at = jnp.clip((x - low) / (high - low), 0, 1) * (nodes - 1)
    i = jnp.minimum(at.astype(jnp.int32), jnp.asarray(task.nodes) - 2)
    part = (at - i).reshape(*at.shape, *[1] * (table.ndim - 2))
    corners = [[table[i[..., 0] + a, i[..., 1] + b] for b in (0, 1)] for a in (0, 1)]
    p, q = (part[(slice(None),) * (at.ndim - 1) + (k,)] for k in (0, 1))
    return (1 - p) * ((1 - q) * corners[0][0] + q * corners[0][1]) + p * ((1 - q) * corners[1][0] + q * corners[1][1])


@functools.cache
def values(name):
    """`(V (n, m), Q (n, m, A))` of a task."""
    task = TASKS[name]()
    axes = [jnp.linspace(*x) for x in zip(task.low, task.high, task.nodes, strict=True)]
    places = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)

    @jax.jit
    def solved(places):
        def follow(place, action):
            found = task.env.transition(jax.random.key(0), task.state(place), action, task.params)
            return task.of_state(found.state), found.reward, found.terminated

        after, reward, over = jax.vmap(jax.vmap(follow, (None, 0)), (0, None))(places, jnp.asarray(task.actions))

        def q_of(value):
            return reward + GAMMA * jnp.where(over, 0, between(task, value.reshape(task.nodes), after))

        value = jax.lax.fori_loop(0, 1200, lambda _, value: jnp.max(q_of(value), -1), jnp.zeros(len(places)))
        return value.reshape(task.nodes), q_of(value).reshape(*task.nodes, -1)

    return solved(places)


def behaviour(name, share):
    """Who acts by the best action of the grid in a `share` of the steps, and at random in the others."""
    task, (_, q) = TASKS[name](), values(name)
    space = task.env.action_space(task.params)

    def act(key, env_state, obs, env_params, carry):
        random_key, which_key = jax.random.split(key)
        best = jnp.asarray(task.actions, jnp.float32)[jnp.argmax(between(task, q, task.of_obs(obs)), -1)]
        random = jax.vmap(space.sample)(jax.random.split(random_key, len(best)))
        return jnp.where(jax.random.uniform(which_key, (len(best), 1)) < share, best, random), carry

    return Actor(act)


def data(name, steps, share, seed):
    """`(dataset, (V of obs, V of next_obs))` of `steps` steps of the behaviour."""
    task, (value, _) = TASKS[name](), values(name)
    num_envs, longest = 40, int(task.params.max_steps)
    enough = steps // num_envs
    found = jax.jit(
        lambda key: recorded(task.env, task.params, behaviour(name, share), key, num_envs, enough + longest - 1)
    )(jax.random.key(seed))
    kept = first_steps(unbroken(found, num_envs, enough), steps)
    return kept, tuple(
        np.asarray(between(task, value, task.of_obs(jax.tree.map(jnp.asarray, x)))) for x in (kept.obs, kept.next_obs)
    )


TASKS = {"Pendulum": pendulum, "point maze": maze, "point maze, more of the oracle": maze}
