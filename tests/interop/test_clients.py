"""Other libraries' agents train on our environments through the adapters, and their returns rise.

Each has a virtual environment of its own, made here from the package index with our locked versions, so only
`make test-all` runs them (`--clients`). The scripts in `clients/` run there as a user's would.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RISE = {"CartPole-v1": 60.0, "Catch-bsuite": 0.8, "Pendulum-v1": 300.0}
"""Of the mean return, by training: clear of the noise of any of the judges, and less than half of what was measured."""

ALSO = {"sbx_agents": {"SAC, Pendulum-v1": 300.0}}

GYMNAX_AGENTS = ("rejax==0.1.3", "gymnax==0.0.9", "six")
AGENTS = {
    "rejax_ppo": GYMNAX_AGENTS,
    "purejaxrl_ppo": GYMNAX_AGENTS,
    "sbx_agents": ("sbx-rl==0.28.0", "stable-baselines3==2.9.2", "gymnasium>=1.1"),  # with torch: 6 GB
}


def uv(*arguments: str | Path) -> None:
    done = subprocess.run([sys.executable, "-m", "uv", *map(str, arguments)], capture_output=True, text=True)
    if re.search(r"Failed to fetch|error sending request|dns error|timed out", done.stderr):
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("script", AGENTS)
def test_returns_rise(script, request):
    if not request.config.getoption("--clients"):
        pytest.skip("needs --clients, which `make test-all` gives")
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python"
        uv("venv", "--quiet", "--python", sys.executable, folder)
        pins = ("--constraint", ROOT / "requirements.lock", "--requirement", ROOT / "pyproject.toml")
        uv("pip", "install", "--quiet", "--python", python, *pins, *AGENTS[script])
        # Compiled as users compile, whatever the suite does; beside what is installed only the checkout is on the path.
        env = {k: v for k, v in os.environ.items() if k not in ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")}
        done = subprocess.run(
            [python, ROOT / "tests" / "interop" / "clients" / f"{script}.py"],
            env={**env, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=1200,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    results = {row["id"]: row for row in map(json.loads, done.stdout.splitlines())}
    rises = RISE | ALSO.get(script, {})
    assert results.keys() == rises.keys()
    for id, rise in rises.items():
        assert results[id]["after"] - results[id]["before"] > rise, results[id]
