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
SEEDS, ROUNDS = 50, 20_000
BETAS = 0.1, 0.05, 0.03, 0.02  # weights of the divergence from the reference
OPTIMISM = 0.0, 0.01, 0.1, 1.0
"""XPO's alpha as multiples of beta, so that optimism weighs alike beside the labels at each; 0 is online DPO."""
GAIN = 0.5  # reward of the second arm above the first's, or below it where it is worse
RARE = 0.25  # the reference plays the second arm exp(-RARE / beta) of the time
GRID = jnp.linspace(-1, 1, 201)
"""Policies: the reference times exp(theta / beta) for the second arm, normalised; theta is the gain one believes in."""
CLOSE = 0.05  # of the best regularised value, as a share of the reference's distance from it


def log_policy(theta, beta):
    """(..., 2) log-probabilities of both arms."""
    reference = jnp.array([jnp.log1p(-jnp.exp(-RARE / beta)), -RARE / beta])
    return jax.nn.log_softmax(reference + jnp.stack([jnp.zeros_like(theta), theta / beta], -1))


def value(theta, beta, gain):
    """E[r] - beta KL(policy | reference), with the first arm's reward 0."""
    log_p, log_ref = log_policy(theta, beta), log_policy(jnp.zeros(()), beta)
    p = jnp.exp(log_p)
    return p[..., 1] * gain - beta * jnp.sum(p * (log_p - log_ref), -1)


def played(key, beta, alpha, gain):
    """theta (ROUNDS,) of the policies, each the exact minimum over GRID of what was seen before it:

        alpha sum log p(arm of the reference) - sum log sigmoid(beta log ratio of the better - of the worse)

    of pairs of one arm of the policy and one of the reference (Xie et al. 2024, algorithm 1). Of equally good ones the
    policy nearest to the reference is taken, which is where both begin.
    """
    log_p = log_policy(GRID, beta)
    ways = jnp.stack([-jax.nn.log_sigmoid(GRID), -jax.nn.log_sigmoid(-GRID)])  # the second arm wins, loses

    def step(seen, key):
        won, tried = seen  # of pairs of both arms (2,), of the reference's arms (2,)
        loss = won @ ways + alpha * tried @ log_p.T
        theta = GRID[jnp.argmin(loss + 1e-6 * jnp.abs(GRID))]
        keys = jax.random.split(key, 3)
        mine = jax.random.bernoulli(keys[0], jnp.exp(log_policy(theta, beta)[1]))
        other = jax.random.bernoulli(keys[1], jnp.exp(-RARE / beta))
        wins = jax.random.bernoulli(keys[2], jax.nn.sigmoid(gain))
        won = won + (mine != other) * jnp.array([wins, ~wins])
        return (won, tried + jnp.array([~other, other])), theta

    start = jnp.zeros(2), jnp.zeros(2)
    return jax.lax.scan(step, start, jax.random.split(key, ROUNDS))[1]


def measure(beta, optimism, gain):
    """Of each seed: rounds until the policy stays CLOSE for a hundred rounds, ROUNDS where it never does; its mean
    shortfall of the best regularised value; the share of the last tenth in which theta is the largest of GRID.
    """
    keys = jax.random.split(jax.random.key(0), SEEDS)
    theta = jax.jit(jax.vmap(lambda key: played(key, beta, optimism * beta, gain)))(keys)
    best = value(jnp.float32(gain), beta, gain)
    lost = np.asarray(best - value(theta, beta, gain))
    close = lost < CLOSE * float(best - value(jnp.zeros(()), beta, gain))
    stays = np.lib.stride_tricks.sliding_window_view(close, 100, 1).all(-1)
    rounds = np.where(stays.any(1), stays.argmax(1), ROUNDS)
    return {
        "rounds": rounds.tolist(),
        "shortfall": lost.mean(1).round(5).tolist(),
        "at the end of the grid": np.asarray(theta == GRID[-1])[:, -ROUNDS // 10 :].mean(1).round(4).tolist(),
    }


def main():
    found = {}
    names = ["online DPO", *(f"alpha {x:g} beta" for x in OPTIMISM[1:])]
    for what, gain in (("better", GAIN), ("worse", -GAIN)):
        print(f"\n| beta | the reference plays it | {' | '.join(names)} |\n|{'---|' * (2 + len(names))}")
        for beta in BETAS:
            cells = []
            for optimism in OPTIMISM:
                row = found[f"{what}, {beta}, {optimism}"] = measure(beta, optimism, gain)
                rounds, cost = np.array(row["rounds"]), f"{np.mean(row['shortfall']):.4f}"
                cost += f", at the end of the grid {np.mean(row['at the end of the grid']):.0%}"
                low, high = bootstrap_interval(rounds, np.median)
                took = f"{np.median(rounds):,.0f} ({low:,.0f} to {high:,.0f}), {(rounds < ROUNDS).mean():.0%}; "
                cells.append(took + cost if gain > 0 else cost)  # the reference is all but the best if it is worse
            print(f"| {beta:g} | {np.exp(-RARE / beta):.1e} | {' | '.join(cells)} |", flush=True)
    (HERE / "results.json").write_text(json.dumps(found | environment_of_run()) + "\n")


if __name__ == "__main__":
    main()
