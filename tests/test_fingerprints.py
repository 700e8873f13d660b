"""What every learner computes in three updates, against stored numbers: a change of structure changes none of them.

`tools/fingerprints.py` says how. Price: some 190 learners are traced and compiled, ten minutes of a core in all, in six
parts, so that workers share them; half of that where the programs are known from before.

A change that is meant to change numbers writes the file anew, for the cases that it changes:

    python tools/fingerprints.py write tests/golden/fingerprints.json --only "iql*"
"""

import fnmatch
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STORED = Path("tests") / "golden" / "fingerprints.json"
PARTS = {
    "deep_q": ["dqn*", "c51*", "qr_dqn*", "iqn*", "rem*", "rainbow*", "*_discrete*"],
    "actor_critic": ["sac*", "td3*", "ddpg*", "crossq*", "awac*", "iql*", "dvl*", "rebrac*", "recoil*"],
    "pessimistic": ["edac*", "cql", "cql[+@]*", "ro2o*", "famo2o*", "mopo*", "morel*", "combo*", "ravl*", "uni_o4*"],
    "curricula": ["curriculum:*"],
    "meta": ["meta:*", "disco", "stac*", "barfi", "dpt"],
}
OTHERS = "others"


def fingerprints(*words):
    # Not the tests' own flags of compilation: hashes and the last digits depend on them.
    env = {name: x for name, x in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "tools/fingerprints.py", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)


def cases():
    listed = fingerprints("list")
    assert listed.returncode == 0, listed.stderr
    return listed.stdout.split()


def of_part(name, case):
    return any(fnmatch.fnmatchcase(case, pattern) for pattern in PARTS[name])


@pytest.mark.slow
@pytest.mark.parametrize("part", [*PARTS, OTHERS])
def test_learners_compute_what_they_did(part):
    patterns = PARTS.get(part)
    if patterns is None:
        patterns = [case for case in cases() if not any(of_part(name, case) for name in PARTS)]
    found = fingerprints("compare", STORED, "--tolerance", 1e-6, "--only", *patterns)
    assert found.returncode == 0, f"{found.stdout}\n{found.stderr}"


@pytest.mark.slow
def test_every_algorithm_and_curriculum_has_a_case():
    """`list` says so itself, where it is not so; and nothing stored is of a case that is gone."""
    import json

    assert set(json.loads((ROOT / STORED).read_text())["cases"]) == set(cases())
