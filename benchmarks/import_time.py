"""What a user waits for: `import jaxrl` beyond `import jax`, the first result of `jaxrl train` on a warm compile cache.

Run: `python benchmarks/import_time.py --out import_time.json`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time

from common import print_table, save


def wall(*command: str) -> float:
    """Seconds until a command ends. Raises CalledProcessError when it fails."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def first_result(command: list[str]) -> float:
    """Seconds from the command to the first line of its metrics file."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/run"
        start = time.perf_counter()
        process = subprocess.Popen([*command, "--out", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            while True:
                try:
                    with open(f"{out}/metrics.jsonl") as lines:
                        if lines.readline().endswith("\n"):
                            return time.perf_counter() - start
                except FileNotFoundError:
                    pass
                if process.poll() is not None:
                    raise RuntimeError(
                        f"{' '.join(command)} ended without a result: {process.communicate()[1].decode()}"
                    )
                time.sleep(0.01)
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="import_time.json")
    args = parser.parse_args()
    python = sys.executable
    times: dict[str, list[float]] = {"import jax": [], "import jaxrl": []}
    for statement in times:
        wall(python, "-c", statement)  # fills the file cache and the byte code
    for _ in range(args.repeats):
        for statement, seconds in times.items():
            seconds.append(wall(python, "-c", statement))
    medians = {name: statistics.median(t) for name, t in times.items()}
    medians["import jaxrl beyond import jax"] = statistics.median(
        b - a for a, b in zip(times["import jax"], times["import jaxrl"], strict=True)
    )
    train = [python, "-m", "jaxrl", "train", "ppo", "CartPole-v1", "--total-steps", "500000"]
    first_result(train)  # fills the compile cache
    seconds = [first_result(train) for _ in range(args.repeats)]
    medians["jaxrl train: first result, warm cache"] = statistics.median(seconds)
    print_table("Waiting", ["", "seconds"], [[name, f"{value:.2f}"] for name, value in medians.items()])
    save(args.out, medians)


if __name__ == "__main__":
    main()
