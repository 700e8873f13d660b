"""Write `model_generalization.npz`: what the public code of "The Benefits of Model-Based Generalization" does.

    python tests/golden/make_model_generalization.py environments.py

takes the path of that file of https://github.com/kenjyoung/Model_Generalization_Code_supplement (commit dd3c5a9) and
runs it on the installed JAX. The file holds
- `pan_flute_<N>_*`: 300 steps of random actions, without and (from their state) with spontaneous notes: `cells`
  (the observation before each step), `action`, `next_cells`, `reward`;
- `button_grid_<g>_*`: single steps along runs of random actions without spontaneous activation: `position`, `buttons`,
  `on` (before), `action`, `next_position`, `next_on`, `obs`, `reward`; where the reward is 1, the next state is a draw;
- `maze_<g>_*`: runs in drawn mazes without teleports, `walls`, `goal`, `position`, `action`, `next_position`, `obs`,
  `terminated`; `open_grid_<g>_*` alike;
- `maze_<g>_drawn`: wall grids of 20,000 (g = 3) and 2,000 (g = 6) draws, packed with `np.packbits`;
- `<name>_probability`: the default probability of the rare event; `jax`: the version that ran it.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import jax
import numpy as np

SEED = 20221104


def load(path: str):
    """The reference as a module; it calls a function that newer JAX has under another name."""
    if not hasattr(jax, "tree_map"):
        jax.tree_map = jax.tree.map
    spec = importlib.util.spec_from_file_location("reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(env, steps: int, rng: np.random.Generator):
    """Yield (state, obs, action, next state, next obs, reward, terminated) along a run, reset where it terminates."""

    def key():
        return jax.random.key(int(rng.integers(2**31)))

    state, obs = env.reset(key())
    for _ in range(steps):
        action = int(rng.integers(env.num_actions()))
        new_state, new_obs, reward, terminated, _ = env.step(key(), state, action)
        yield jax.device_get((state, obs, action, new_state, new_obs, reward, terminated))
        state, obs = (new_state, new_obs) if not terminated else env.reset(key())


def columns(prefix: str, names: str, rows: list[tuple]) -> dict[str, np.ndarray]:
    return {
        f"{prefix}_{name}": np.stack(column)
        for name, column in zip(names.split(), zip(*rows, strict=True), strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference")
    ref = load(parser.parse_args().reference)
    rng = np.random.default_rng(SEED)
    data: dict[str, np.ndarray] = {"jax": np.array(jax.__version__), "seed": np.array(SEED)}

    for n in (1, 2, 5):
        rows = [(s[1], s[2], s[4], s[5]) for on in (False, True) for s in run(ref.PanFlute(n, on), 300, rng)]
        data |= columns(
            f"pan_flute_{n}", "cells action next_cells reward", [(c, a, nc, float(r)) for c, a, nc, r in rows]
        )
        data[f"pan_flute_{n}_probability"] = np.array(ref.PanFlute(n).spontaneous_activation_probability)

    for g in (3, 10):
        rows = []
        for (p, b, on), obs, a, (np_, _, non), _, r, _ in run(ref.ButtonGrid(g, spontaneous_reset=False), 1500, rng):
            rows.append((p[0] * g + p[1], b[0] * g + b[1], on, a, np_[0] * g + np_[1], non, np.packbits(obs), float(r)))
        names = "position buttons on action next_position next_on obs reward"
        data |= columns(f"button_grid_{g}", names, rows)
        data[f"button_grid_{g}_probability"] = np.array(ref.ButtonGrid(g).spontaneous_reset_probability)

    for g in (3, 6):
        rows = []
        for (goal, walls, p), obs, a, (_, _, q), _, r, end in run(
            ref.ProcMaze(g, spontaneous_termination=False), 600, rng
        ):
            assert r == -1
            pack = np.packbits
            rows.append((pack(walls), goal[0] * g + goal[1], p[0] * g + p[1], a, q[0] * g + q[1], pack(obs), end))
        names = "walls goal position action next_position obs terminated"
        data |= columns(f"maze_{g}", names, rows)
        data[f"maze_{g}_probability"] = np.array(ref.ProcMaze(g).spontaneous_goal_probability)
        count = {3: 20_000, 6: 2_000}[g]
        drawn = jax.jit(jax.vmap(lambda k, g=g: ref.ProcMaze(g).reset(k)[0][1]))(
            jax.random.split(jax.random.key(SEED), count)
        )
        data[f"maze_{g}_drawn"] = np.packbits(np.asarray(drawn).reshape(count, -1), -1)

    for g in (4,):
        rows = []
        for p, obs, a, q, _, r, end in run(ref.OpenGrid(g, spontaneous_termination=False), 300, rng):
            assert r == -1
            rows.append((p[0] * g + p[1], a, q[0] * g + q[1], np.packbits(obs), end))
        data |= columns(f"open_grid_{g}", "position action next_position obs terminated", rows)
        data[f"open_grid_{g}_probability"] = np.array(ref.OpenGrid(g).spontaneous_goal_probability)

    for name, x in data.items():
        if x.dtype.kind in "iu" and x.ndim and x.max(initial=0) < 256 and x.min(initial=0) >= 0:
            data[name] = x.astype(np.uint8)
    path = Path(__file__).parent / "model_generalization.npz"
    np.savez_compressed(path, **data)
    print(path, path.stat().st_size, {k: float(v) for k, v in data.items() if k.endswith("probability")})


if __name__ == "__main__":
    main()
