"""The same task space under the teachers of the authors' own code, to see whether ours are theirs.

    python experiments/teachers/authors.py --source <checkout of flowersteam/teachDeepRL> [--seeds 20] [--useless 0]

Needs numpy, scipy, scikit-learn and treelib, so a virtual environment of its own; gym, of which the teachers take only
the box, is stood in for. Prints a JSON object: teacher -> mastered share of the cells after every 1,000 episodes, a row
a seed. The student is theirs (`toy_env.py`), with the cell found by a floor in place of a histogram of one point.
"""

import argparse
import importlib
import json
import sys
import types
import warnings

import numpy as np

CLASSES = {"riac": ("riac", "RIAC"), "covar_gmm": ("covar_gmm", "CovarGMM"), "alp_gmm": ("alp_gmm", "ALPGMM")}


class Box:
    def __init__(self, low, high, dtype=np.float32):
        self.low, self.high = np.array(low, dtype), np.array(high, dtype)

    def sample(self):
        return np.random.uniform(self.low, self.high).astype(np.float32)

    def contains(self, x):
        return bool(np.all(x >= self.low) and np.all(x <= self.high))


def episode(competence, x):
    i, j = np.minimum((x[:2] * 10).astype(int), 9)
    before = {(max(0, i - a), max(0, j - b)) for a, b in ((0, 1), (1, 0), (1, 1))} - {(i, j)}
    unlocked = (i, j) == (0, 0) or any(competence[cell] >= 75 for cell in before)
    competence[i, j] = min(competence[i, j] + unlocked, 100)
    return competence[i, j] / 100


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--only", nargs="*", default=list(CLASSES), choices=list(CLASSES))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--useless", type=int, default=0)
    args = parser.parse_args()
    spaces = types.ModuleType("gym.spaces")
    spaces.Box = Box
    sys.modules.update({"gym": types.ModuleType("gym"), "gym.spaces": spaces})
    sys.path.insert(0, args.source)
    warnings.filterwarnings("ignore")
    curves = {}
    for name in args.only:
        module, cls = CLASSES[name]
        make = getattr(importlib.import_module(f"teachDRL.teachers.algos.{module}"), cls)
        for seed in range(args.seeds):
            D = 2 + args.useless
            teacher, competence, curve = make(np.zeros(D), np.ones(D), seed=seed + 1), np.zeros((10, 10)), []
            for i in range(args.episodes):
                x = teacher.sample_task()
                teacher.update(np.array(x), episode(competence, x))
                if (i + 1) % 1000 == 0:
                    curve.append(float((competence > 75).mean()))
            curves.setdefault(name, []).append(curve)
            print(name, seed, curve[-1], file=sys.stderr, flush=True)
    print(json.dumps(curves))


if __name__ == "__main__":
    main()
