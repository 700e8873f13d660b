"""Does optimism in the policy's own likelihood find what a reference policy hardly tries? XPO and online DPO, two arms.

    python experiments/exploring_preferences/run.py

Writes results.json beside this file and prints the table of README.md.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval

HERE = Path(__file__).parent
SEEDS, ROUNDS = 100, 20_000
BETAS = 0.1, 0.05, 0.03, 0.02  # weights of the divergence from the reference
OPTIMISM = 0.0, 1e-3, 1e-2, 1e-1  # XPO's alpha; 0 is online DPO
GAIN = 0.5  # reward of the second arm above the first's
RARE = 0.25  # the reference plays the second arm exp(-RARE / beta) of the time
GRID = jnp.linspace(-1, 1, 201)
"""Policies: the reference times exp(theta / beta) for the second arm, normalised; theta is the gain one believes in."""
CLOSE = 0.05  # of the best regularised value, as a share of the reference's distance from it


def log_policy(theta, beta):
    """(..., 2) log-probabilities of both arms."""
    reference = jnp.array([jnp.log1p(-jnp.exp(-RARE / beta)), -RARE / beta])
    return jax.nn.log_softmax(reference + jnp.stack([jnp.zeros_like(theta), theta / beta], -1))


def value(theta, beta, gain=GAIN):
    """E[r] - beta KL(policy | reference), with the first arm's reward 0."""
    log_p, log_ref = log_policy(theta, beta), log_policy(jnp.zeros(()), beta)
    p = jnp.exp(log_p)
    return p[..., 1] * gain - beta * jnp.sum(p * (log_p - log_ref), -1)


def played(key, beta, alpha, gain=GAIN, rounds=ROUNDS):
    """Shortfalls (rounds,) of the policies, each the exact minimum over GRID of what was seen before it:

        alpha sum log p(arm of the reference) - sum log sigmoid(beta log ratio of the better - of the worse)

    of pairs of one arm of the policy and one of the reference (Xie et al. 2024, algorithm 1). Of equally good ones the
    policy nearest to the reference is taken, which is where both begin.
    """
    log_p = log_policy(GRID, beta)
    ways = jnp.stack([-jax.nn.log_sigmoid(GRID), -jax.nn.log_sigmoid(-GRID)])  # the second arm wins, loses
    best = value(jnp.float32(gain), beta, gain)

    def step(seen, key):
        won, tried = seen  # of pairs of both arms (2,), of the reference's arms (2,)
        loss = won @ ways + alpha * tried @ log_p.T
        theta = GRID[jnp.argmin(loss + 1e-6 * jnp.abs(GRID))]
        keys = jax.random.split(key, 3)
        mine = jax.random.bernoulli(keys[0], jnp.exp(log_policy(theta, beta)[1]))
        other = jax.random.bernoulli(keys[1], jnp.exp(-RARE / beta))
        wins = jax.random.bernoulli(keys[2], jax.nn.sigmoid(gain))
        won = won + (mine != other) * jnp.array([wins, ~wins])
        return (won, tried + jnp.array([~other, other])), best - value(theta, beta, gain)

    start = jnp.zeros(2), jnp.zeros(2)
    return jax.lax.scan(step, start, jax.random.split(key, rounds))[1]


def rounds_to(beta, alpha):
    """Rounds (SEEDS,) until the policy stays CLOSE for a hundred rounds, ROUNDS where it never does.

    And its shortfall at the end, as a share of the reference's.
    """
    lost = jax.jit(jax.vmap(lambda key: played(key, beta, alpha)))(jax.random.split(jax.random.key(0), SEEDS))
    whole = value(jnp.float32(GAIN), beta) - value(jnp.zeros(()), beta)
    share = np.asarray(lost / whole)
    stays = np.lib.stride_tricks.sliding_window_view(share < CLOSE, 100, 1).all(-1)
    return np.where(stays.any(1), stays.argmax(1), ROUNDS), share[:, -100:].mean(1)


def main():
    found = {}
    names = [f"alpha {alpha:g}" if alpha else "online DPO" for alpha in OPTIMISM]
    print(f"| beta | the reference tries it | {' | '.join(names)} |")
    print("|" + "---|" * (2 + len(OPTIMISM)))
    for beta in BETAS:
        cells = []
        for alpha in OPTIMISM:
            rounds, end = rounds_to(beta, alpha)
            found[f"{beta}, {alpha}"] = {"rounds": rounds.tolist(), "end": end.round(4).tolist()}
            low, high = bootstrap_interval(rounds, np.median)
            got = (rounds < ROUNDS).mean()
            cells.append(f"{np.median(rounds):,.0f} ({low:,.0f} to {high:,.0f}), {got:.0%}; {end.mean():.2f}")
        print(f"| {beta:g} | {np.exp(-RARE / beta):.1e} | " + " | ".join(cells) + " |", flush=True)
    print("| beta | its mean shortfall if the arm is worse |" + " |" * (len(OPTIMISM) - 1))
    for beta in BETAS:
        cells = []
        for alpha in OPTIMISM:
            keys = jax.random.split(jax.random.key(1), SEEDS)
            lost = jax.jit(jax.vmap(lambda key, b=beta, a=alpha: played(key, b, a, -GAIN, 1000)))(keys).mean(1)
            found[f"worse, {beta}, {alpha}"] = np.asarray(lost, float).round(5).tolist()
            cells.append(f"{np.mean(lost):.3f}")
        print(f"| {beta:g} | {' | '.join(cells)} |", flush=True)
    (HERE / "results.json").write_text(json.dumps(found | environment_of_run()) + "\n")


if __name__ == "__main__":
    main()
