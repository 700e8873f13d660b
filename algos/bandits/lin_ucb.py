"""LinUCB and OFUL: upper confidence bounds for arms whose mean reward is linear in known features.

The observation of a round is a matrix of features, one row for each arm. From the features x and rewards r of earlier
rounds one parameter vector for all arms is estimated by ridge regression,

    A = regularisation I + sum x x^T,   theta = A^-1 sum r x,

and the arm with the largest x theta + beta sqrt(x A^-1 x) is pulled. `radius` says what beta is:

- `constant`: `alpha` (Li, Chu, Langford and Schapire 2010, algorithm 1; their disjoint model is this one with a
  separate block of features for each arm);
- `oful`: noise_scale sqrt(2 log(sqrt(det A / regularisation^d) / delta)) + sqrt(regularisation) theta_norm, with which
  theta is within the ellipsoid in all rounds with probability 1 - `delta` (Abbasi-Yadkori, Pal and Szepesvari 2011,
  theorem 2; figure 1 is the algorithm).

Inverse and determinant are updated by the Sherman-Morrison formula in d^2 operations a round, without a factorisation.
Results: `experiments/regret`.

Papers: Li, Chu, Langford and Schapire (2010), "A contextual-bandit approach to personalized news article
recommendation" (arXiv:1003.0146); Abbasi-Yadkori, Pal and Szepesvari (2011), "Improved algorithms for linear stochastic
bandits".
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.algorithm import Algorithm, environment_of, shared
from jaxrl.environment import Environment, pytree
from jaxrl.online import Experience, Rule, num_arms, random_argmax
from jaxrl.online import make as make_online
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # 1 with `forget`; for many runs, vmap over keys
    forget: bool = True  # an episode is a whole problem; False: it is a round, as in bsuite's bandit
    radius: Literal["constant", "oful"] = "constant"  # or "oful"

    def __post_init__(self) -> None:
        if self.radius not in ("constant", "oful"):
            raise ValueError(f"radius={self.radius!r}: choose constant or oful.")


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    alpha: jax.Array = 1.0  # constant: width of the confidence bound
    regularisation: jax.Array = 1.0
    noise_scale: jax.Array = 0.1  # oful: the noise is sub-Gaussian with this standard deviation
    theta_norm: jax.Array = 1.0  # oful: an upper bound of theta's length
    delta: jax.Array = 0.01  # oful: probability that a bound fails in any round


@pytree
class Weights:
    inverse: jax.Array  # (d, d), of A
    moment: jax.Array  # (d,) sum of r x
    log_det: jax.Array  # of A / regularisation


def feature_shape(env: Environment | VectorEnv) -> tuple[int, int]:
    """`(K, d)`, the shape of observations: features of K arms. Raises ValueError for other observations."""
    K = num_arms("lin_ucb", env)
    env = environment_of(env)
    space = env.observation_space(env.default_params)
    if not isinstance(space, Box) or len(space.shape) != 2 or space.shape[0] != K:
        raise ValueError(
            f"lin_ucb needs observations of shape ({K}, d), a row of features an arm; {env.id} has {space}."
        )
    return space.shape


def add_sample(inverse: Float[Array, "d d"], x: Float[Array, " d"]) -> tuple[Float[Array, "d d"], Float[Array, ""]]:
    """`((A + x x^T)^-1, increase of log det A)`, from `A^-1`."""
    direction = inverse @ x
    growth = 1 + x @ direction
    return inverse - jnp.outer(direction, direction / growth), jnp.log(growth)


def oful_radius(log_det: Float[Array, ""], hyper: Hyper) -> Float[Array, ""]:
    """The radius of the confidence ellipsoid, theorem 2."""
    width = hyper.noise_scale * jnp.sqrt(log_det - 2 * jnp.log(hyper.delta))
    return width + jnp.sqrt(hyper.regularisation) * hyper.theta_norm


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """A LinUCB player of `env`, whose observations are features (K, d). Equal arguments share one jit cache.

    Raises ValueError unless observations and actions are such, or for several environments with `forget`.
    """
    _, d = feature_shape(env)

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        return Weights(jnp.eye(d) / hyper.regularisation, jnp.zeros(d), jnp.zeros(()))

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Float[Array, "K d"], greedy: bool) -> Integer[Array, ""]:
        mean = obs @ (weights.inverse @ weights.moment)
        if greedy:
            return jnp.argmax(mean).astype(jnp.int32)
        variance = jnp.sum((obs @ weights.inverse) * obs, -1)
        radius = hyper.alpha if config.radius == "constant" else oful_radius(weights.log_det, hyper)
        return random_argmax(mean + radius * jnp.sqrt(jnp.maximum(variance, 0)), key)

    def learn(weights: Weights, hyper: Hyper, key: Array, experience: Experience) -> tuple[Weights, Array]:
        obs = experience.obs
        x = jnp.sum(jnp.where(jnp.arange(len(obs))[:, None] == experience.action, obs, 0), 0)
        error = experience.reward - x @ (weights.inverse @ weights.moment)
        inverse, growth = add_sample(weights.inverse, x)
        return Weights(inverse, weights.moment + experience.reward * x, weights.log_det + growth), error**2

    return make_online("lin_ucb", Rule(init, act, learn), config, Hyper, env, forget=config.forget)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
