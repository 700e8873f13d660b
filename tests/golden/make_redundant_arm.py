"""Golden episodes of SERENE's redundant arm, into redundant_arm.npz.

    python tests/golden/make_redundant_arm.py --serene CHECKOUT

CHECKOUT is one of GPaolo/SERENE (MIT), made at 83bc38a, of which only the arm's file is run, in NumPy; gym and pygame,
which it imports for its base class and its pictures, are replaced by empty modules. Twelve episodes of 250 steps or
until the arm stops, each of a few accelerations held for some time: `angle (12, 26, 20)` (the last one repeated after
an end) at every tenth step, `action (12, 5, 20)`, each for 50 steps, `tip (12, 250, 2)`, `stopped` and `live`, both
(12, 250), and `reward (12,)`, the sum of an episode, which its last step brings. As no such episode ends in the
authors' three areas, those of `AREAS` are put in their place.
"""

import argparse
import sys
import types
from pathlib import Path

import numpy as np

EPISODES, STEPS = 12, 250
AREAS = np.array([[0.3, 0.7, 0.12], [0.4, 0.6, 0.08], [0.45, 0.8, 0.1]])


def arm_of(checkout: Path):
    class Missing(types.ModuleType):
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"__init__": lambda self, *a, **k: None, "np_random": staticmethod(lambda s: (s, s))})

    for name in ("gym", "gym.utils", "pygame", "pygame.locals", "gym_redarm", "gym_redarm.envs"):
        sys.modules[name] = Missing(name)
    sys.modules["gym.utils"].seeding = types.SimpleNamespace(np_random=lambda seed: (None, seed))
    sys.modules["gym"].utils = sys.modules["gym.utils"]
    sys.modules["gym"].spaces = types.SimpleNamespace(Box=lambda **settings: None)
    sys.modules["gym_redarm.envs"].graphics = None
    sys.modules["pygame.locals"].__all__ = []
    path = checkout / "environments/assets/gym_redarm/envs/arm_env.py"
    module = types.ModuleType("arm_env")
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module.ArmEnv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serene", type=Path, required=True)
    make = arm_of(parser.parse_args().serene)
    rng = np.random.default_rng(0)
    shapes = {"angle": (STEPS + 1, 20), "action": (STEPS, 20), "tip": (STEPS, 2)}
    stored = {name: np.zeros((EPISODES, *shape)) for name, shape in shapes.items()}
    stored |= {
        name: np.zeros((EPISODES, STEPS), kind) for name, kind in (("reward", float), ("stopped", bool), ("live", bool))
    }
    for episode in range(EPISODES):
        arm = make()
        arm.goals, arm.goalRadius = AREAS[:, :2], AREAS[:, 2].tolist()
        arm.reset()
        scale = (0.02, 0.05, 0.2, 1.0)[episode % 4]
        stored["angle"][episode, 0] = arm.angles
        held = np.clip(rng.normal(0, scale, (5, 20)), -1, 1)
        done = False
        for t in range(STEPS):
            action = held[t // 50]
            stored["action"][episode, t] = action
            if not done:
                _, reward, done, info = arm.step(action)
                stored["live"][episode, t] = True
                stored["reward"][episode, t] = reward
                stored["stopped"][episode, t] = done and t + 1 < STEPS
                tip = info["End effector pose"]
            stored["tip"][episode, t] = tip
            stored["angle"][episode, t + 1] = arm.angles
    stored["angle"], stored["action"] = stored["angle"][:, ::10], stored["action"][:, ::50]
    stored["reward"] = stored["reward"].sum(1)
    path = Path(__file__).with_name("redundant_arm.npz")
    np.savez_compressed(path, **stored, areas=AREAS, version="SERENE 83bc38a")
    print(f"{path}: {path.stat().st_size} bytes, lengths {stored['live'].sum(1)}, rewards {stored['reward']}")


if __name__ == "__main__":
    main()
