"""Write `memory.npz`: what POPGym's card games and POBAX's tasks do, for tests that run without them.

    python tests/golden/make_memory.py --pobax CHECKOUT [--packages FOLDER]

Made with popgym 1.0.7, gymnax 1.0.1 and gymnasium (`pip install --target FOLDER --no-deps popgym gymnax six seaborn`)
and a checkout of taodav/pobax at commit a5e1d62, of which only the modules of the four tasks are imported, and
twni2016/Memory-RL's T-Maze at commit c9b8b39 (`--memory-rl CHECKOUT`). Arrays are named `<case>/<name>`:

- card games: `cards (E, N)`, and of CountRecall `queries (E, N)`, the numbers of the cards in the order of dealing in E
  episodes; `action`, `reward`, `end (E, T)`; `obs (E, T + 1, ...)`. Half of the answers are right, the others random;
- POBAX: single steps, each from the state that the one before left, or from a new one after an end: the fields of the
  state `before/<field>` and `after/<field>`, `action`, `obs` after the step, `reward`, `end`; of RockSample, whose
  readings are random, `rocks` and `reading`, the last part of `obs`; of Battleship `mask`;
- `rock_accuracy/distance`, `/probability`: what the sensor shows with which probability;
- the passive and active T-Maze of Memory-RL: whole episodes as of card games, with `goal (E,)`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
EPISODES, STEPS = 4, 400


def modules(checkout: Path) -> Any:
    """An importer of POBAX's modules without what the packages around them import."""
    for name in ("pobax", "pobax.envs", "pobax.envs.jax", "pobax.envs.wrappers"):
        package = types.ModuleType(name)
        package.__path__ = [str(checkout / name.replace(".", "/"))]
        sys.modules[name] = package
    return lambda name: importlib.import_module(f"pobax.envs.jax.{name}")


# ---- POPGym


def answer(name: str, env: Any, suits: np.ndarray, t: int) -> int:
    """The right answer to step t, from the reference's own state; any where none is asked for."""
    if name.startswith("CountRecall"):
        return int(env.counts[env.query])
    if name.startswith("RepeatFirst"):
        return int(env.card)
    if name.startswith("RepeatPrevious"):
        return int(suits[max(t + 1 - env.k, 0)])
    return int(suits[min(2 * len(suits) - 2 - t, len(suits) - 1)])


def game(cls: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    rows: dict[str, list[Any]] = {k: [] for k in ("cards", "queries", "action", "reward", "end", "obs")}
    for _ in range(EPISODES if "Hard" not in cls.__name__ else 2):
        env = cls()
        obs, _ = env.reset(seed=int(rng.integers(1 << 30)))
        deck = env.value_deck if hasattr(env, "value_deck") else env.deck
        cards = deck.idx[::-1].copy()  # dealt from the end
        rows["cards"].append(cards)
        rows["queries"].append(env.query_deck.idx[::-1].copy() if hasattr(env, "query_deck") else cards[:0])
        seen, actions, rewards, ends = [obs], [], [], []
        while not ends or not ends[-1]:
            right = answer(cls.__name__, env, cards % 4, len(actions))
            action = right if rng.random() < 0.5 else int(rng.integers(env.action_space.n))
            obs, reward, end, truncated, _ = env.step(action)
            assert not truncated
            for row, x in ((seen, obs), (actions, action), (rewards, reward), (ends, end)):
                row.append(x)
        for name, x in (("action", actions), ("reward", rewards), ("end", ends), ("obs", seen)):
            rows[name].append(np.array(x))
    out = {k: np.stack(v) for k, v in rows.items() if np.size(v)}
    kinds = {"cards": np.int16, "queries": np.int16, "action": np.int8, "obs": np.int8}
    return {k: v.astype(kinds.get(k, v.dtype)) for k, v in out.items()}


# ---- POBAX


def steps(env: Any, params: Any, rng: np.random.Generator, choose: Any, fields: tuple[str, ...]) -> dict[str, Any]:
    import jax

    reset, step = jax.jit(env.reset_env), jax.jit(env.step_env)
    rows: dict[str, list[Any]] = {}

    def add(**values: Any) -> None:
        for name, x in values.items():
            rows.setdefault(name, []).append(np.asarray(x))

    key = jax.random.key(int(rng.integers(1 << 30)))
    first, state = reset(key, params)
    add(first_obs=np.asarray(getattr(first, "obs", first)))
    for t in range(STEPS):
        action = choose(state, rng)
        obs, after, reward, end, _ = step(jax.random.fold_in(key, t), state, action, params)
        add(**{f"before/{f}": state[f] for f in fields}, **{f"after/{f}": after[f] for f in fields})
        if hasattr(obs, "action_mask"):
            add(mask=np.asarray(obs.action_mask) > 0)
            obs = obs.obs
        add(action=action, obs=obs, reward=reward, end=end)
        state = after
        if end:
            first, state = reset(jax.random.fold_in(key, STEPS + t), params)
            add(first_obs=np.asarray(getattr(first, "obs", first)))
    return {name: np.stack(x) for name, x in rows.items()}


def walk(state: Any, rng: np.random.Generator) -> int:
    return int(rng.choice([2, 2, 2, 2, 3, 0, 1]))


def compass(module: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    import jax

    env = module.CompassWorld(jax.random.PRNGKey(0))
    rows: dict[str, list[Any]] = {k: [] for k in ("before", "after", "action", "obs", "reward", "end")}
    env.reset()
    for _ in range(2 * STEPS):
        before, action = np.array(env.state), int(rng.choice([0, 0, 1, 2]))
        obs, reward, end, _, _ = env.step(action)
        for name, x in zip(rows, (before, np.array(env.state), action, obs, reward, end), strict=True):
            rows[name].append(x)
        if end:
            env.reset()
    return {name: np.array(x) for name, x in rows.items()}


# ---- Memory-RL


def late_maze(checkout: Path, rng: np.random.Generator) -> dict[str, np.ndarray]:
    import gymnasium

    sys.modules.setdefault("gym", gymnasium)
    spec: Any = importlib.util.spec_from_file_location("memory_rl_tmaze", checkout / "envs/tmaze.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = {}
    for case, cls, length in (("passive", module.TMazeClassicPassive, 6), ("active", module.TMazeClassicActive, 5)):
        rows: dict[str, list[Any]] = {k: [] for k in ("goal", "action", "reward", "end", "obs")}
        for n in range(60):
            env = cls(corridor_length=length, penalty=-1.0 / length)
            np.random.seed(n)
            seen = [env.reset()]
            on = [2] * (n % 2) + [0] * 30
            chance = (0.0, 0.1, 0.6)[n % 3]
            acts, rewards, ends = [], [], []
            while not ends or not ends[-1]:
                planned = on[len(acts)] if env.x < length + env.oracle_length else (1 if rng.random() < 0.5 else 3)
                action = int(rng.integers(4)) if rng.random() < chance else planned
                obs, reward, end, _ = env.step(action)
                for row, x in ((seen, obs), (acts, action), (rewards, reward), (ends, end)):
                    row.append(x)
            for name, x in zip(rows, (env.goal_y, acts, rewards, ends, seen), strict=True):
                rows[name].append(np.array(x))
        out |= {f"{case}/{name}": np.stack(x) for name, x in rows.items()}
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pobax", type=Path, required=True)
    parser.add_argument("--memory-rl", type=Path, required=True)
    parser.add_argument("--packages", type=Path)
    flags = parser.parse_args()
    if flags.packages:
        sys.path.append(str(flags.packages))
    rng = np.random.default_rng(20261129)
    out: dict[str, np.ndarray] = late_maze(flags.memory_rl, rng)
    pobax = modules(flags.pobax)
    import jax
    import popgym.envs as games  # pyright: ignore[reportMissingImports]

    for name, module in (
        ("Autoencode", games.autoencode),
        ("CountRecall", games.count_recall),
        ("RepeatFirst", games.repeat_first),
        ("RepeatPrevious", games.repeat_previous),
    ):
        for level in ("Easy", "Medium", "Hard"):
            kept = game(getattr(module, name + level), rng)
            out |= {f"{name}{level}-v0/{field}": x for field, x in kept.items()}

    for length in (1, 5):
        env = pobax("tmaze").TMaze(hallway_length=length)
        kept = steps(env, env.default_params, rng, walk, ("grid_idx", "goal_dir"))
        out |= {f"tmaze_{length}/{field}": x for field, x in kept.items()}

    for case, size, lengths in (
        ("battleship_3", 3, (2,)),
        ("battleship_5", 5, (3, 2)),
        ("battleship_10", 10, (5, 4, 3, 2)),
    ):
        env = pobax("battleship").Battleship(rows=size, cols=size, ship_lengths=lengths)

        def shoot(state: Any, rng: np.random.Generator) -> int:
            free = np.flatnonzero(np.asarray(state.hits_misses) == 0)
            return int(rng.choice(free)) if rng.random() < 0.9 else int(rng.integers(state.board.size))

        kept = steps(env, env.default_params, rng, shoot, ("hits_misses", "board"))
        out |= {f"{case}/{field}": x for field, x in kept.items()}

    module = pobax("rocksample")
    for size, rocks in ((5, 5), (7, 8)):
        config = flags.pobax / f"pobax/envs/configs/rocksample_{size}_{rocks}_config.json"
        env = module.RockSample(jax.random.PRNGKey(size), config_path=config)
        places = np.asarray(env.rock_positions)

        def explore(state: Any, rng: np.random.Generator, places: np.ndarray = places) -> int:
            if rng.random() < 0.4 and (places == np.asarray(state.position)).all(1).any():
                return 4
            return int(rng.integers(4, 5 + len(places)) if rng.random() < 0.3 else rng.choice([0, 1, 1, 2, 3]))

        kept = steps(env, env.default_params, rng, explore, ("position", "rock_morality"))
        out |= {f"rocksample_{size}/{field}": x for field, x in {**kept, "rocks": places}.items()}
    distance = np.linspace(0, 30, 61, dtype=np.float32)
    out["rock_accuracy/distance"] = distance
    out["rock_accuracy/probability"] = np.asarray(module.half_dist_prob(distance, 20.0))
    out |= {f"compass/{field}": x for field, x in compass(pobax("compass_world"), rng).items()}

    def small(name: str, x: np.ndarray) -> np.ndarray:
        whole = x.dtype.kind in "fiu" and np.all(x == np.rint(x)) and np.all(np.abs(x) < 128)
        return x.astype(np.int8) if whole and not name.endswith("/reward") else x

    kept = {name: small(name, x) for name, x in out.items()}
    np.savez_compressed(HERE / "memory.npz", **kept)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main()
