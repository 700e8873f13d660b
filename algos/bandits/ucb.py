"""UCB1, KL-UCB and MOSS: pull the arm whose upper confidence bound is highest.

After each arm has been pulled once, with n pulls and the empirical mean of an arm in round t, K arms:

- `ucb1`: mean + sqrt(exploration log t / n), exploration 2 (Auer, Cesa-Bianchi and Fischer 2002, figure 1); regret at
  most sum over arms 8 log T / gap + (1 + pi^2 / 3) gap (theorem 1).
- `kl`: the largest q with n kl(mean, q) <= log t, kl of Bernoulli distributions (Garivier and Cappe 2011, with their
  recommended c = 0); its regret reaches the lower bound of Lai and Robbins (1985).
- `moss`: mean + sqrt(max(log(horizon / (K n)), 0) / n) (Audibert and Bubeck 2009); regret at
  most 49 sqrt(K T) for T = horizon.

All three are stated for rewards in [0, 1]; `scale` divides the rewards where they are larger (UCB1 and MOSS hold for
sub-Gaussian noise of standard deviation `scale / 2`). Results: `experiments/regret`.

Papers: Auer, Cesa-Bianchi and Fischer (2002), "Finite-time analysis of the multiarmed bandit problem"; Garivier and
Cappe (2011), "The KL-UCB algorithm for bounded stochastic bandits and beyond" (arXiv:1102.2490); Audibert and Bubeck
(2009), "Minimax policies for adversarial and stochastic bandits".
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.algorithm import Algorithm, shared
from jaxrl.environment import Environment, pytree
from jaxrl.math import fence
from jaxrl.online import Experience, Rule, num_arms, random_argmax
from jaxrl.online import make as make_online
from jaxrl.vector_env import VectorEnv

TINY = 1e-12  # keeps quotients finite at means of 0 and 1; its square is still a float32


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # 1 with `forget`; for many runs, vmap over keys
    forget: bool = True  # an episode is a whole problem; False: it is a round, as in bsuite's bandit
    bound: Literal["ucb1", "kl", "moss"] = "ucb1"  # or "kl", "moss"

    def __post_init__(self) -> None:
        if self.bound not in ("ucb1", "kl", "moss"):
            raise ValueError(f"bound={self.bound!r}: choose ucb1, kl or moss.")


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    exploration: jax.Array = 2.0  # ucb1: weight of the bonus, inside the root
    horizon: jax.Array = 1000.0  # moss: rounds
    scale: jax.Array = 1.0  # width of the range of rewards


@pytree
class Weights:
    pulls: jax.Array  # (K,) float, pulls of each arm
    total: jax.Array  # (K,) sum of each arm's rewards


def ucb1(mean: Float[Array, " K"], pulls: Float[Array, " K"], t: Float[Array, ""], hyper: Hyper) -> Float[Array, " K"]:
    """Hoeffding's upper bound of each arm's mean."""
    return mean + jnp.sqrt(hyper.exploration * jnp.log(t) / pulls)


def moss(mean: Float[Array, " K"], pulls: Float[Array, " K"], t: Float[Array, ""], hyper: Hyper) -> Float[Array, " K"]:
    """MOSS's upper bound of each arm's mean: no bonus for arms with more than horizon / K pulls."""
    return mean + jnp.sqrt(jnp.maximum(jnp.log(hyper.horizon / (len(mean) * pulls)), 0) / pulls)


def kl_bernoulli(p: Float[Array, "..."], excess: Float[Array, "..."]) -> Float[Array, "..."]:
    """KL between Bernoulli distributions of means p and p + excess, both in [0, 1), excess >= 0.

    A function of the excess, as the difference of two logarithms loses its digits where that is small.
    """
    rest = 1 - p
    return -p * jnp.log1p(excess / jnp.maximum(p, TINY)) - rest * jnp.log1p(-excess / jnp.maximum(rest, TINY))


def kl_bound(mean: Float[Array, " K"], pulls: Float[Array, " K"], t: Float[Array, ""]) -> Float[Array, " K"]:
    """The largest q in [mean, 1] with pulls * kl(mean, q) <= log t, to 1e-6.

    Two of Halley's steps from the least of three estimates: Pinsker's q - mean <= sqrt(limit / 2); Bernstein's
    (q - mean)^2 = 2 limit (variance + (q - mean) (1 - 2 mean) / 3); and what remains of the divergence near q = 1,
    q <= 1 - exp(-(limit + entropy) / (1 - mean)).
    """
    limit = jnp.log(t) / pulls
    rest, low = jnp.maximum(1 - mean, TINY), jnp.maximum(mean, TINY)
    skew = jnp.maximum(1 - 2 * mean, 0) / 3 * limit
    bernstein = skew + jnp.sqrt(skew**2 + 2 * mean * rest * limit)
    entropy = -mean * jnp.log(low) - rest * jnp.log(rest)
    tail = rest - jnp.exp(-(limit + entropy) / rest)
    excess = jnp.minimum(jnp.minimum(jnp.sqrt(limit / 2), bernstein), tail)
    most = rest * (1 - 1e-6)  # where the divergence is still finite
    excess = jnp.clip(excess, 0, most)
    for _ in range(2):
        q, room = jnp.maximum(mean + excess, TINY), jnp.maximum(rest - excess, TINY)
        value = kl_bernoulli(mean, excess) - limit
        slope = excess / (q * room)
        curvature = mean / q**2 + rest / room**2
        step = 2 * value * slope / jnp.maximum(2 * slope**2 - value * curvature, TINY)
        excess = jnp.clip(excess - step, 0, most)
    return mean + excess


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """An upper-confidence-bound player of `env`'s arms. Equal arguments share one jit cache.

    Raises ValueError unless the actions are Discrete, or for several environments with `forget`.
    """
    K = num_arms("ucb", env)

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        return Weights(jnp.zeros(K), jnp.zeros(K))

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Any, greedy: bool) -> Integer[Array, ""]:
        if greedy:
            return jnp.argmax(weights.total / jnp.maximum(weights.pulls, 1)).astype(jnp.int32)
        # A CPU is slow at logarithms in rows that do not fill its vector registers: ten arms cost more than sixteen.
        spare = -K % 8 if config.bound == "kl" else 0
        played, total = fence((jnp.pad(weights.pulls, (0, spare)), jnp.pad(weights.total, (0, spare))))
        pulls, t = jnp.maximum(played, 1), jnp.sum(weights.pulls) + 1
        mean = total / pulls
        if config.bound == "kl":
            index = kl_bound(jnp.clip(mean, 0, 1), pulls, t)
        else:
            index = {"ucb1": ucb1, "moss": moss}[config.bound](mean, pulls, t, hyper)
        index = jnp.where(played > 0, index, jnp.inf)
        return random_argmax(jnp.where(jnp.arange(K + spare) < K, index, -jnp.inf), key)

    def learn(weights: Weights, hyper: Hyper, key: Array, x: Experience) -> tuple[Weights, Array]:
        pulled = jnp.arange(K) == x.action
        reward = x.reward / hyper.scale
        error = jnp.sum(jnp.where(pulled, reward - weights.total / jnp.maximum(weights.pulls, 1), 0))
        return Weights(weights.pulls + pulled, weights.total + pulled * reward), error**2

    return make_online("ucb", Rule(init, act, learn), config, Hyper, env, forget=config.forget)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
