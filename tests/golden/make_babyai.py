"""Golden data of BabyAI in `minigrid` 3.2.0: `python tests/golden/make_babyai.py [episodes] [levels]`.

Needs minigrid and gymnasium, not jaxrl. babyai.npz: of each id 20 seeds of 500 actions, half of the episodes played
by the reference's `BabyAIBot`, so that missions are fulfilled, the others as in make_minigrid.py; after an end the
reference is reset to the same seed. Kept: layouts, what is asked for, actions, ends and rewards, and a CRC-32 of every
125 observations. babyai_levels.npz: mean and variance of `babyai_features` over levels that the reference generates.

In `Unlock` and `GoToImpUnlock` the reference compares numpy integers by identity, which makes some levels unsolvable.
For their statistics it is given python's integers, with which it does what it says.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import gymnasium
import numpy as np
from babyai_features import features
from make_minigrid import action_of, cells_of, layout, pack, step_towards
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX
from minigrid.envs.babyai.core import verifier
from minigrid.utils.baby_ai_bot import BabyAIBot

SEEDS, STEPS, BLOCK, LEVELS = 20, 500, 125, 1500
PICKUP, DROP, TOGGLE = 3, 4, 5
IDS = sorted(id for id in gymnasium.registry if id.startswith("BabyAI-"))
# One id of each generator, in its settings that differ most.
DRAWN = [
    f"BabyAI-{id}"
    for id in (
        *("ActionObjDoor-v0", "BlockedUnlockPickup-v0", "BossLevel-v0", "BossLevelNoUnlock-v0", "FindObjS5-v0"),
        *("GoTo-v0", "GoToDoor-v0", "GoToImpUnlock-v0", "GoToLocal-v0", "GoToObjDoor-v0", "GoToObjMazeOpen-v0"),
        *("GoToRedBall-v0", "GoToRedBallGrey-v0", "GoToRedBlueBall-v0", "GoToSeqS5R2-v0", "KeyCorridorS4R3-v0"),
        *("KeyInBox-v0", "MiniBossLevel-v0", "MoveTwoAcrossS5N2-v0", "OneRoomS8-v0", "Open-v0", "OpenDoor-v0"),
        *("OpenDoorLoc-v0", "OpenDoorsOrderN2-v0", "OpenDoorsOrderN4-v0", "OpenRedBlueDoors-v0", "OpenRedDoor-v0"),
        *("OpenTwoDoors-v0", "Pickup-v0", "PickupAbove-v0", "PickupDist-v0", "PickupLoc-v0", "PutNextLocalS5N3-v0"),
        *("PutNextS6N3-v0", "Synth-v0", "SynthLoc-v0", "SynthS5R2-v0", "SynthSeq-v0", "UnblockPickup-v0"),
        *("Unlock-v0", "UnlockLocal-v0", "UnlockLocalDist-v0", "UnlockPickup-v0", "UnlockPickupDist-v0"),
        "UnlockToUnlock-v0",
    )
]
PLACES = [None, "left", "right", "front", "behind"]
VERBS = [verifier.GoToInstr, verifier.OpenInstr, verifier.PickupInstr, verifier.PutNextInstr]


# ---- missions as our integers


def describe(desc) -> list[int]:
    """Kind, colour, place, several."""
    kind = OBJECT_TO_IDX[desc.type] if desc.type else 0
    color = 1 + COLOR_TO_IDX[desc.color] if desc.color else 0
    return [kind, color, PLACES.index(desc.loc), int(len(desc.obj_set) > 1)]


def clause(instr) -> list[int]:
    """Nine numbers."""
    if instr is None:
        return [0] * 9
    both = [instr.desc_move, instr.desc_fixed] if isinstance(instr, verifier.PutNextInstr) else [instr.desc]
    numbers = [1 + VERBS.index(type(instr)), *(x for desc in both for x in describe(desc))]
    return numbers + [0] * (9 - len(numbers))


def clauses_of(id: str) -> int:
    """How many clauses our missions of an id have room for."""
    if any(name in id for name in ("Seq", "Boss")):
        return 4
    return 2 if any(name in id for name in ("OpenTwoDoors", "OpenRedBlue", "DoorsOrder", "MoveTwo")) else 1


def mission_of(env, clauses: int) -> list[int]:
    """Our encoding of what is asked for."""
    instr = env.instrs
    joined = isinstance(instr, verifier.BeforeInstr | verifier.AfterInstr)
    order = 1 + isinstance(instr, verifier.AfterInstr) if joined else 0
    numbers = [order]
    for half in ((instr.instr_a, instr.instr_b) if joined else (instr, None))[:clauses]:
        pair = [half.instr_a, half.instr_b] if isinstance(half, verifier.AndInstr) else [half, None]
        numbers += [x for one in pair[: max(1, clauses // 2)] for x in clause(one)]
    return numbers


# ---- episodes


def aims(env) -> list:
    """What to do, in order, where the bot knows no way: with a key in a box, or something to be put next to another."""
    if isinstance(env.instrs, verifier.PutNextInstr):
        sides = ((0, 1), (1, 0), (0, -1), (-1, 0))
        around = [(x + i, y + j) for x, y in env.instrs.desc_fixed.obj_poss for i, j in sides]
        return [({at for at in around if env.grid.get(*at) is None}, DROP)]
    return [(cells_of(env, "box"), TOGGLE), (cells_of(env, "key"), PICKUP), (cells_of(env, "door"), TOGGLE)]


class Bot(BabyAIBot):
    """The reference's, which thinks for ever in a level that cannot be solved; this one gives up."""

    def replan(self, action_taken=None):
        self.patience = self.bfs_counter + 100
        return super().replan(action_taken)

    def _breadth_first_search(self, *args, **kwargs):
        if self.bfs_counter > self.patience:
            raise RuntimeError("no way")
        return super()._breadth_first_search(*args, **kwargs)


class Player:
    """Plays some episodes with a plan and others as `action_of`."""

    def __init__(self, id: str) -> None:
        self.botless = "KeyInBox" in id or "Carrying" in id

    def __call__(self, rng: np.random.Generator, env) -> int:
        if env.step_count == 0:
            self.planned, self.last = rng.random() < 0.5, None
            self.bot = Bot(env) if self.planned and not self.botless else None
        if self.bot is not None:
            try:
                self.last = self.bot.replan(self.last)
                return int(self.last)
            except Exception:  # of many kinds, where it meets what it was not made for
                self.bot = None
        if self.planned and self.botless:
            for aim in aims(env):
                action = step_towards(env, aim)
                if action is not None:
                    return action
        return action_of(rng, env)


def episodes(id: str) -> dict[str, np.ndarray]:
    """Everything kept of one id."""
    actions, crcs = np.zeros((SEEDS, STEPS), np.uint8), np.zeros((SEEDS, STEPS // BLOCK), np.uint32)
    grids, numbers, texts, ends, rewards = [], [], [], [], []
    choose = Player(id)
    for seed in range(SEEDS):
        env = gymnasium.make(id, disable_env_checker=True).unwrapped
        obs, _ = env.reset(seed=seed)
        rng = np.random.default_rng([seed, zlib.crc32(id.encode())])
        (grid, *where), seen = layout(env), b""
        if "Carrying" in id:  # our levels have the object where it was taken from
            grid[env.obj_a.init_pos[::-1]] = pack(env.obj_a)
        grids.append(grid)
        numbers.append((env.max_steps, *where, *mission_of(env, clauses_of(id))))
        texts.append(obs["mission"])
        for t in range(STEPS):
            actions[seed, t] = action = choose(rng, env)
            obs, reward, terminated, truncated, _ = env.step(action)
            seen += obs["image"].tobytes() + bytes([int(obs["direction"])])
            if t % BLOCK == BLOCK - 1:
                crcs[seed, t // BLOCK], seen = zlib.crc32(seen), b""
            if terminated or truncated:
                ends.append((seed, t, terminated + 2 * truncated))
                rewards.append(reward)
                env.reset(seed=seed)
    assert max(rewards, default=0) > 0, f"{id}: never fulfilled"
    return {
        "grid": np.array(grids, np.int32),
        "numbers": np.array(numbers, np.int32),
        "text": np.array(texts),
        "actions": actions,
        "crc": crcs,
        "ends": np.array(ends, np.int16).reshape(-1, 3),
        "rewards": np.array(rewards, np.float32),
    }


# ---- levels


def moments(id: str) -> dict[str, np.ndarray]:
    """Mean and variance of each feature over the reference's levels."""
    env = gymnasium.make(id, disable_env_checker=True).unwrapped
    if id in ("BabyAI-Unlock-v0", "BabyAI-GoToImpUnlock-v0"):
        env._rand_int = lambda low, high: int(env.np_random.integers(low, high))
    levels = []
    for seed in range(LEVELS):
        env.reset(seed=seed)
        levels.append((*layout(env), mission_of(env, clauses_of(id))))
    drawn = (np.array(x, np.int32) for x in zip(*levels, strict=True))
    found = np.stack(list(features(*drawn, env.room_size).values()))
    return {"mean": np.mean(found, 1).astype(np.float32), "variance": np.var(found, 1).astype(np.float32)}


def write(name: str, recorded: dict[str, dict[str, np.ndarray]]) -> None:
    """<name>.npz: the arrays of all ids, flat and joined, as `key`, and their shapes as `key shape`, in the order of
    `ids`; a file for each array would take more space than what is in it."""
    arrays = {"ids": np.array(list(recorded))}
    for key in next(iter(recorded.values())):
        parts = [kept[key] for kept in recorded.values()]
        arrays[key] = np.concatenate([x.reshape(-1) for x in parts])
        arrays[f"{key} shape"] = np.array([x.shape for x in parts], np.int32)
    np.savez_compressed(Path(__file__).with_name(f"{name}.npz"), **arrays)


def main() -> None:
    wanted = sys.argv[1:] or ["episodes", "levels"]
    if "episodes" in wanted:
        write("babyai", {id: (print(id, flush=True), episodes(id))[1] for id in IDS})
    if "levels" in wanted:
        write("babyai_levels", {id: (print(id, flush=True), moments(id))[1] for id in DRAWN})


if __name__ == "__main__":
    main()
