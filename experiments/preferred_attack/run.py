"""Can an attack on a policy's observations make it do what the attacker prefers, and not only badly? RAT on a pendulum.

    python experiments/preferred_attack/run.py [--seeds 10]

The preferred behaviour, to turn counter-clockwise on and on, is given by preferences between segments. Goes on where it
stopped: a row of results.json is one adversary's network and seed; one with other settings is made again. Prints the
tables of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import rat

from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval

FILE = Path(__file__).with_name("results.json")
STRENGTHS, STEPS, ROUNDS, PAIRS = (0.05, 0.1, 0.15, 0.2), 300_000, (75_000, 75_000, 150_000), 400
SETTINGS = [*map(list, (STRENGTHS, ROUNDS)), STEPS, PAIRS, *rat.SETTINGS]
WHAT = "return", "rate", "turns"
PARTS: dict[str, tuple[int, ...]] = {"wide": (64, 64), "linear": ()}
"""Hidden layers of the adversary: a linear one cannot do everywhere what is best there, so weights may matter."""


def of_seed(seed: int, hidden: tuple[int, ...]) -> dict:
    """With a linear adversary only the arms of RAT."""
    victim_key, critic_key, attack_key, judge_key = jax.random.split(jax.random.key(seed), 4)
    victim = rat.learned(rat.VICTIM, victim_key, rat.PARAMS, STEPS)
    model, intention, data, losses = rat.intended(seed, victim, ROUNDS, PAIRS)
    critic, unexplained = rat.critic_of(critic_key, model, intention, data)
    at = jnp.array(STRENGTHS)
    found, spread = rat.by_adversaries(attack_key, victim, intention, critic, at, data.obs, hidden)
    if hidden:
        found = jnp.concatenate([rat.by_directors(attack_key, victim, model, at, STEPS), found])
    arms = zip(rat.ARMS[-len(found) :], np.asarray(found, float), strict=True)
    return {
        "arms": {arm: x.round(3).tolist() for arm, x in arms},
        "nobody": np.asarray(rat.alone(judge_key, victim), float).round(3).tolist(),
        "intention": np.asarray(rat.alone(judge_key, intention), float).round(3).tolist(),
        "weights": np.asarray(spread, float).round(3).tolist(),
        "held-out loss": np.asarray(losses.min(0), float).round(4).tolist(),
        "critic's unexplained variance": round(float(unexplained), 4),
    }


def told(values, digits: int) -> str:
    low, high = bootstrap_interval(values, np.mean)
    return f"{np.mean(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def tables(rows: list) -> None:
    arms = list(rows[0]["arms"])
    found = np.array([[row["arms"][arm] for arm in arms] for row in rows])  # seeds, arms, strengths, 3
    for k, digits in ((1, 2), (0, 0), (2, 1)):
        print(f"\n| {WHAT[k]}, {len(rows)} seeds | " + " | ".join(map(str, STRENGTHS)) + " |\n" + "|---" * 5 + "|")
        for i, arm in enumerate(arms):
            print(f"| {arm} | " + " | ".join(told(found[:, i, j, k], digits) for j in range(len(STRENGTHS))) + " |")
        for i, arm in enumerate(arms[:-1]):
            more = found[:, -1, :, k] - found[:, i, :, k]
            print(f"| RAT minus {arm} | " + " | ".join(told(x, digits) for x in more.T) + " |")
        for who in ("nobody", "intention"):
            print(f"{who}:", told([row[who][k] for row in rows], digits))
    weights = np.array([row["weights"] for row in rows]).mean(0).round(2).tolist()
    print("\nweights, least, mean and most over states:", dict(zip(STRENGTHS, weights, strict=True)))
    unexplained = np.mean([row["critic's unexplained variance"] for row in rows])
    print("held-out loss", np.mean([row["held-out loss"] for row in rows]).round(3), "critic", unexplained.round(4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    rows = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in [f"{part}/{seed}" for part in PARTS for seed in range(args.seeds)]:
        if rows.get(name, {}).get("settings") != SETTINGS:
            begin, (part, _, seed) = time.process_time(), name.partition("/")
            rows[name] = of_seed(int(seed), PARTS[part])
            rows[name] |= {
                "settings": SETTINGS,
                "cpu_seconds": round(time.process_time() - begin),
                "where": environment_of_run(),
            }
            lines = [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items()]
            FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
            print(name, rows[name], flush=True)
    for part in PARTS:
        print(f"\n{part} adversary")
        tables([row for name, row in rows.items() if name.startswith(part)])


if __name__ == "__main__":
    main()
