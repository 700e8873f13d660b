"""Write `grid_world.npz`: what GROOVE's grid world does, for tests that run without it.

    git clone https://github.com/EmptyJackson/groove && python tests/golden/make_grid_world.py groove

Made with commit 0c091c0. Its gymnax is too old for a current jax; of it the grid world only needs a base class
and the names of two spaces, which are put in its place here. Its random numbers are recorded as they are drawn.

For each case `<name>_`:
- the level, cells as (row, column): `max_steps grid_size n_objs walls start types cells reward p_terminate p_respawn`,
  and the sizes `sizes` (max_grid, max_objects, num_types);
- single steps: `position (T, 2)`, `exists (T, N)`, `object (T, N, 2)` before, `action (T,)`, the draws `u_respawn
  (T, N)`, `u_end (T,)` and `drawn (T, N, 2)`, and `next_position`, `next_exists`, `next_object`, `reward_got`, `ended`;
- `obs (T, ...)`: observations before each step without the clock, packed bits; only where grid_size is max_grid, whose
  cells are numbered as here;
- tabular cases: `values (2^N, max_grid, max_grid)`, its exact values at the start, NaN where it has -inf.
And for each `levels_<family>_*`, some numbers of 2,000 levels as its code draws them.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

COMMIT = "0c091c039deceb12ad57ae50a16972f1821fb710"
STEPS = 250
CASES = ("dense", "sparse", "longer", "long_dense", "small", "medium", "debug", "rand_small", "rand_dense", "rand_all")
DRAWN = ("small", "all", "labyrinth")


def load(path: str) -> tuple[Any, Any]:
    """GROOVE's `gridworld` and `configs` modules, on a stand-in for gymnax."""
    environment, spaces = types.ModuleType("environment"), types.ModuleType("spaces")
    environment.Environment = type("Environment", (), {"discount": lambda self, state, params: 1.0})  # pyright: ignore
    spaces.Discrete = spaces.Dict = spaces.Box = object  # pyright: ignore
    package = types.ModuleType("gymnax.environments")
    package.environment, package.spaces = environment, spaces  # pyright: ignore
    sys.modules.update({"gymnax": types.ModuleType("gymnax"), "gymnax.environments": package})
    sys.path.insert(0, path)
    return (importlib.import_module(f"environments.gridworld.{name}") for name in ("gridworld", "configs"))  # pyright: ignore


class Recorder:
    """Stands in for `jax.random` inside the reference and keeps what it draws."""

    def __init__(self) -> None:
        self.drawn: list[np.ndarray] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(jax.random, name)

    def bernoulli(self, key: Any, p: Any) -> Any:
        u = jax.random.uniform(key, jnp.shape(p))  # as jax.random.bernoulli does
        self.drawn.append(np.asarray(u))
        return u < p

    def choice(self, *args: Any, **kwargs: Any) -> Any:
        x = jax.random.choice(*args, **kwargs)
        self.drawn.append(np.asarray(x))
        return x


def pairs(cells: Any, grid_size: int) -> np.ndarray:
    return np.stack(np.divmod(np.asarray(cells), grid_size), -1).astype(np.int8)


def square(flat: np.ndarray, grid_size: int, max_grid: int) -> np.ndarray:
    """(..., P) numbered row * grid_size + column, to (..., max_grid, max_grid) by row and column."""
    out = np.zeros((*flat.shape[:-1], max_grid, max_grid), flat.dtype)
    used = flat[..., : grid_size * grid_size].reshape(*flat.shape[:-1], grid_size, grid_size)
    out[..., :grid_size, :grid_size] = used
    return out


def play(name: str, grid: Any, configs: Any, seed: int) -> dict[str, np.ndarray]:
    kwargs, _ = configs.get_env_spec(name)
    env = grid.GridWorld(**kwargs)
    params = env.default_params if name == "dense" else configs.reset_env_params(jax.random.PRNGKey(seed), name)
    if kwargs["tabular"] is False:
        params = params.replace(obj_p_respawn=jnp.maximum(params.obj_p_respawn, 0.2))  # else nothing happens
    size, most = int(params.grid_size), kwargs["max_grid_size"]
    out: dict[str, Any] = {
        "sizes": np.array([most, kwargs["max_n_objs"], kwargs["max_n_obj_types"]]),
        "max_steps": params.max_steps_in_episode,
        "grid_size": size,
        "n_objs": params.n_objs,
        "walls": square(np.asarray(params.walls), size, most),
        "start": pairs(params.start_pos, size),
        "types": params.obj_ids,
        "cells": pairs(params.static_obj_poss, size),
        "reward": params.obj_rewards,
        "p_terminate": params.obj_p_terminate,
        "p_respawn": params.obj_p_respawn,
    }
    rows: dict[str, list[np.ndarray]] = {}
    random = np.random.default_rng(seed)
    key = jax.random.PRNGKey(seed)
    _, state = env.reset_env(key, params)
    for _ in range(STEPS):
        key, step_key = jax.random.split(key)
        action = int(random.integers(5))
        recorder = Recorder()
        grid.jax = types.SimpleNamespace(**{**vars(jax), "random": recorder})
        _, after, reward, _, _ = env.step_env(step_key, state, action, params)
        grid.jax = jax
        u_respawn, *drawn, u_end = recorder.drawn
        ids = np.asarray(params.obj_ids) * most**2
        row = {
            "position": pairs(state.pos, size),
            "exists": np.asarray(state.obj_existss),
            "object": pairs(state.obj_poss - ids, size),
            "action": np.int8(action),
            "u_respawn": u_respawn,
            "u_end": u_end,
            "next_position": pairs(after.pos, size),
            "next_exists": np.asarray(after.obj_existss),
            "next_object": pairs(after.obj_poss - ids, size),
            "reward_got": np.float32(reward),
            "ended": np.asarray(after.early_term),
        }
        if drawn:
            row["drawn"] = pairs(drawn[0], size)
        if size == most:
            row["obs"] = np.packbits(np.asarray(env.get_obs(state))[:-1].astype(bool))
        for field, value in row.items():
            rows.setdefault(field, []).append(value)
        # Next to an object now and then, so that a large grid's are met.
        state = after.replace(early_term=False)
        if random.random() < 0.5:
            free = np.flatnonzero(~np.asarray(params.walls)[: size * size])
            cells = np.asarray(state.obj_poss - ids)
            near = [c + d for c in cells for d in (-1, 1, -size, size) if c + d in free]
            state = state.replace(pos=jnp.int32(random.choice(near or free)))
        if random.random() < 0.2:  # all objects again: some never come back
            state = state.replace(obj_existss=jnp.arange(kwargs["max_n_objs"]) < params.n_objs)
    out |= {field: np.stack(values) for field, values in rows.items()}
    if kwargs["tabular"]:
        steps = min(int(params.max_steps_in_episode), 60)
        values = jax.jit(env.optimal_return, static_argnums=(1, 2))(
            params.replace(max_steps_in_episode=steps), steps, True
        )[0]
        values = np.asarray(values).reshape(2 ** kwargs["max_n_objs"], most * most)
        out |= {"value_steps": steps, "values": np.where(np.isfinite(v := square(values, size, most)), v, np.nan)}
    return {f"{name}_{field}": np.asarray(value) for field, value in out.items()}


def draw(name: str, configs: Any) -> dict[str, np.ndarray]:
    levels = jax.jit(jax.vmap(lambda key: configs.reset_env_params(key, name)))(
        jax.random.split(jax.random.PRNGKey(1), 2000)
    )
    size = np.asarray(levels.grid_size)
    cells = np.arange(levels.walls.shape[-1])
    walls = (np.asarray(levels.walls) & (cells < size[:, None] ** 2)).sum(1)
    fields = {"max_steps": levels.max_steps_in_episode, "grid_size": size, "n_objs": levels.n_objs, "walls": walls}
    fields |= {"reward": levels.obj_rewards, "p_terminate": levels.obj_p_terminate, "p_respawn": levels.obj_p_respawn}
    fields["start"] = pairs_of(np.asarray(levels.start_pos), size)
    small = {"max_steps": np.int16, "grid_size": np.int8, "n_objs": np.int8, "walls": np.int8, "start": np.int8}
    return {f"levels_{name}_{k}": np.asarray(v).astype(small.get(k, np.float16)) for k, v in fields.items()}


def pairs_of(cells: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.stack([cells // sizes, cells % sizes], -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", help="a checkout of GROOVE")
    path = parser.parse_args().path
    grid, configs = load(path)
    data: dict[str, np.ndarray] = {"commit": np.array(COMMIT), "jax": np.array(jax.__version__)}
    for i, name in enumerate(CASES):
        data |= play(name, grid, configs, i)
    for name in DRAWN:
        data |= draw(name, configs)
    out = Path(__file__).with_name("grid_world.npz")
    np.savez_compressed(out, **data)  # pyright: ignore[reportArgumentType]
    print(f"{out.name}: {out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
