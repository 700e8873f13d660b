"""Behaviour cloning by denoising diffusion (DDPM): a policy with as many modes as the data has.

Ho, Jain and Abbeel (2020), "Denoising diffusion probabilistic models" (arXiv:2006.11239), conditioned on the
observation, as Chi et al. (2023), "Diffusion policy: visuomotor policy learning via action diffusion"
(arXiv:2303.04137) and Hansen-Estruch et al. (2023), "IDQL: implicit Q-learning as an actor-critic method with diffusion
policies" (arXiv:2304.10573) clone actions. In T steps the data's actions a turn into normal noise,

    a_t = sqrt(s_t) a + sqrt(1 - s_t) e,    e ~ N(0, I),    s_t = (1 - b_1) ... (1 - b_t),

a network is fitted to the noise, loss = mean | e(s, a_t, t) - e |^2 with t uniform in 1, ..., T, and the policy begins
at a_T ~ N(0, I) and takes the steps back, each of which has normal noise but for the last,

    a_hat   = (a_t - sqrt(1 - s_t) e(s, a_t, t)) / sqrt(s_t),    clipped to the box,
    a_(t-1) = (sqrt(s_(t-1)) b_t a_hat + sqrt(1 - b_t) (1 - s_(t-1)) a_t) / (1 - s_t) + sqrt(b_t) z.

It is `flow_bc.py` with another path from noise to actions. b_t is the variance-preserving schedule of IDQL's code,
s_t = exp(-0.1 t/T - 4.95 (t/T)^2), whose s_T is 0.006 whatever T is.

Deviations from IDQL's code: what is clipped to the box is a_hat, as in Chi et al., not a_(t-1); a plain network with
five features of t/T, without residual blocks, dropout and weight decay; the loss is a mean over dimensions, not a sum.
From Chi et al.: single actions, and no average of weights. Where actions must be a function of the observation, they
are what the steps make of a_T = 0 without noise; the policy is deployed by its samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.algos.generative.flow_bc import Velocity
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree, visible
from jaxrl.nn.nets import Nets
from jaxrl.nn.networks import Network, encode, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Space
from jaxrl.vector_env import VectorEnv

BETA_MIN, BETA_MAX = 0.1, 10.0
"""Rates of noise at the times 0 and 1, as in IDQL's code."""


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    activation: str = "silu"
    num_diffusion_steps: int = 10  # T, steps from noise to an action

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_diffusion_steps")


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""


# ---- diffusions, as functions


def schedule(num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """`(b (T,), s (T,))` above, at the steps 1 to T: variances of the noise, shares of the action's variance left."""
    time = np.arange(num_steps + 1) / num_steps
    log_signal = -BETA_MIN * time - 0.5 * (BETA_MAX - BETA_MIN) * time**2
    return -np.expm1(np.diff(log_signal)), np.exp(log_signal[1:])


def noised(
    action: Float[Array, "*batch A"], noise: Float[Array, "*batch A"], signal: Float[Array, "*batch"]
) -> Float[Array, "*batch A"]:
    """a_t above, of `signal` s_t (Ho et al. 2020, equation 4)."""
    return jnp.sqrt(signal)[..., None] * action + jnp.sqrt(1 - signal)[..., None] * noise


def noise_loss(predicted: Float[Array, "B A"], noise: Float[Array, "B A"]) -> Float[Array, ""]:
    """The mean squared error of the predicted noise (Ho et al. 2020, equation 14)."""
    return jnp.mean((predicted - noise) ** 2)


def step_back(
    point: Float[Array, "*batch A"],
    predicted: Float[Array, "*batch A"],
    beta: Float[Array, ""] | float,
    signal: Float[Array, ""] | float,
    clip: float = 1.0,
) -> Float[Array, "*batch A"]:
    """The mean of a_(t-1) given a_t and its predicted noise (Ho et al. 2020, equation 7), with a_hat in +-`clip`."""
    before = signal / (1 - beta)  # s_(t-1), which is 1 at the last step
    action = jnp.clip((point - jnp.sqrt(1 - signal) * predicted) / jnp.sqrt(signal), -clip, clip)
    return (jnp.sqrt(before) * beta * action + jnp.sqrt(1 - beta) * (1 - before) * point) / (1 - signal)


def denoise(
    predict: Callable[[Array, Array], Array],
    point: Float[Array, "*batch A"],
    noise: Float[Array, "T *batch A"],
    clip: float = 1.0,
) -> Float[Array, "*batch A"]:
    """What the steps from T to 1 make of `point`; `predict` is a function of (a_t, t / T (...)).

    `noise[t - 1]` is that of the step from t to t - 1. At the last step there is none.
    """
    steps = noise.shape[0]
    betas, signals = (jnp.asarray(x, point.dtype) for x in schedule(steps))

    def back(point: Array, step: tuple[Array, ...]) -> tuple[Array, None]:
        number, beta, signal, noise = step
        predicted = predict(point, jnp.full(point.shape[:-1], number / steps, point.dtype))
        mean = step_back(point, predicted, beta, signal, clip)
        return mean + jnp.where(number > 1, jnp.sqrt(beta), 0) * noise, None

    numbers = jnp.arange(1, steps + 1, dtype=point.dtype)
    return jax.lax.scan(back, point, (numbers, betas, signals, noise), reverse=True)[0]


@dataclasses.dataclass(frozen=True)
class Diffusion:
    """A policy that takes noise away step by step; actions are in units of the box."""

    network: Any  # a flax module as flow_bc.Velocity, whose outputs are noise
    observation_space: Space
    num_steps: int
    num_dims: int

    def init(self, key: Array, obs: Any, action: Any) -> Any:
        return self.network.init(key, encode(self.observation_space, visible(obs)), action, jnp.zeros(()))

    def noise(self, weights: Any, obs: Any) -> Callable[[Array, Array], Array]:
        """The function `(a_t, t / T) -> e` at observations (...)."""
        x = encode(self.observation_space, visible(obs))
        return lambda action, t: self.network.apply(weights, x, action, t)

    def explore(self, weights: Any, key: Array, obs: Any, noise: Any = None) -> Float[Array, "... A"]:
        x = encode(self.observation_space, visible(obs))
        drawn = jax.random.normal(key, (self.num_steps + 1, *x.shape[:-1], self.num_dims), x.dtype)
        return jnp.clip(denoise(self.noise(weights, obs), drawn[0], drawn[1:]), -1, 1)

    def mode(self, weights: Any, obs: Any) -> Float[Array, "... A"]:
        x = encode(self.observation_space, visible(obs))
        still = jnp.zeros((self.num_steps + 1, *x.shape[:-1], self.num_dims), x.dtype)
        return jnp.clip(denoise(self.noise(weights, obs), still[0], still[1:]), -1, 1)


def cloning_error(
    policy: Diffusion, weights: Any, key: Array, obs: Any, action: Float[Array, "B A"]
) -> Float[Array, ""]:
    """`noise_loss` of a batch: each action at a time of its own, with noise of its own."""
    noise_key, time_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, action.shape, action.dtype)
    number = jax.random.randint(time_key, action.shape[:1], 0, policy.num_steps)  # t - 1
    signal = jnp.asarray(schedule(policy.num_steps)[1], action.dtype)[number]
    t = (number + 1).astype(action.dtype) / policy.num_steps
    return noise_loss(policy.noise(weights, obs)(noised(action, noise, signal), t), noise)


# ---- the learning rule


@dataclasses.dataclass(frozen=True)
class _DDPMBC:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("actor",)
    targets: ClassVar[tuple[str, ...]] = ()

    actor: Diffusion

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        return {"actor": self.actor.init(keys["actor"], obs, action)}

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """A step on the error of the noise that was added to each of the batch's actions."""

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            return cloning_error(self.actor, weights, key, batch.obs, batch.action), {}

        actor, report = nets["actor"].descend(objective, hyper.learning_rate, hyper.max_grad_norm)
        return {"actor": actor}, report


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Cloning by diffusion for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset, or what `datasets.stored` makes of one; None: the learner acts and fills a replay buffer.
        network: a flax module with the inputs and outputs of `flow_bc.Velocity`: the vector of an observation without
            its privileged part, an action, a time t / T.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or a network whose outputs do not fit,
    and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("ddpm_bc", venv, Box, between_ends=True)
    network = own("network", network) or Velocity(config.hidden, config.activation)
    actor = Diffusion(network, obs_space, config.num_diffusion_steps, space.shape[0])
    given = {"replay": replay, "optimizer": optimizer, "deployed": "sampled"}
    return learner.algorithm("ddpm_bc", venv, config, Hyper, _DDPMBC(actor), actor, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
