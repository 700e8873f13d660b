"""Stream TD(lambda): the value of a given policy, from single transitions.

Elsayed, Vasan & Mahmood (2024), "Streaming deep reinforcement learning finally works" (arXiv:2410.14606). After a step
from s to s' with reward r,

    delta = r + gamma V(s') - V(s),    e <- gamma lambda e + grad V(s),

and the weights move by ObGD (`stream.obgd`), which bounds the step so that it does not overshoot delta. What
the streaming algorithms share is in `stream.py`. The policy stays as it is; `predict` gives what was learned.

Deviations from the authors' code: episodes cut by a time limit bootstrap from their final observation, where theirs
end; the discounted return behind the reward's scale starts anew with the episode (theirs is set to the last reward).
Results: `experiments/streaming/`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, shared, spaces_of
from jaxrl.algos.streaming import stream as streaming
from jaxrl.algos.streaming.stream import (
    Learner,
    StreamMLP,
    Transition,
    deviation,
    features,
    obgd,
    standardized,
    td_error,
)
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.distributions import num_outputs, of_space
from jaxrl.nn.networks import encoded_size
from jaxrl.spaces import Box, Discrete, MultiDiscrete
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(streaming.Config):
    """Static settings: each value compiles its own program."""

    hidden: tuple[int, ...] = (128, 128)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. The paper's, for every task."""

    learning_rate: jax.Array = 1.0  # before the bound
    kappa: jax.Array = 2.0  # how strict the bound is; above 1, an update stays short of delta
    gamma: jax.Array = 0.99  # discount
    trace_decay: jax.Array = 0.8  # lambda


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    policy: Callable[[Array, Any], Any] | None = None,
    network: nn.Module | None = None,
) -> Algorithm:
    """Stream TD(lambda) on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        policy: `(key, obs) -> action`, any leading batch shape; default: any allowed action, each as likely. Deployed
            with `greedy=True` it is called with one and the same key.
        network: a flax module from standardised observation vectors (..., F), at whose end is what is privileged, to
            values (..., 1).

    Raises ValueError for an action space it cannot handle, several agents or environments, or a network whose outputs
    do not fit.
    """
    observation_space, action_space = spaces_of("stream_td", env, Discrete, MultiDiscrete, Box)
    critic = _default(config) if network is None else network
    size = encoded_size(observation_space, privileged=True)
    shape = jax.eval_shape(lambda key, x: critic.init_with_output(key, x)[0], jax.random.key(0), jnp.zeros(size)).shape
    if shape != (1,):
        raise ValueError(f"network gives values {shape} for an observation; it needs (1,).")

    def init(key: Array, size: int) -> Any:
        return critic.init(key, jnp.zeros(size))

    def act(weights: Any, hyper: Hyper, step: Array, key: Array, x: Array, obs: Any, greedy: bool) -> Any:
        key = jax.random.key(0) if greedy else key
        if policy is not None:
            return policy(key, obs)
        shape = (*x.shape[:-1], num_outputs(action_space))
        if isinstance(action_space, Box):
            return action_space.from_unit(jax.random.uniform(key, shape, minval=-1.0))
        mask = split_observation(obs, observation_space)[2]
        return of_space(action_space, jnp.zeros(shape), mask).sample(key)

    def learn(weights: Any, trace: Any, hyper: Hyper, x: Transition) -> tuple[Any, Any, dict[str, Array]]:
        def prediction(weights):
            value: Any = critic.apply(weights, x.obs)
            return value[0]

        value, grads = jax.value_and_grad(prediction)(weights)
        next_value: Any = critic.apply(weights, x.next_obs)
        delta = td_error(value, x.reward, next_value[0], x.terminated, hyper.gamma)
        decay = jnp.where(x.first, 0, hyper.gamma * hyper.trace_decay)
        weights, trace, step_size = obgd(
            weights, trace, grads, delta, decay, hyper.learning_rate, hyper.kappa, config.bounded
        )
        return weights, trace, {"loss": delta**2, "value": value, "step_size": step_size}

    learner = Learner(init, act, learn)
    return streaming.make("stream_td", learner, config, Hyper, env, observation_space, privileged=True)


def _default(config: Config) -> StreamMLP:
    return StreamMLP(config.hidden, 1, config.sparsity, config.layer_norm)


def predict(algo: Algorithm, state: Any, obs: Any, network: nn.Module | None = None) -> Float[Array, "..."]:
    """The learned values (...) of observations of any leading batch shape, in the units of the environment's rewards.

    `network`: as `make` got it.
    """
    env, memory = algo.venv.env, state.memory
    x = standardized(memory.observations, features(env.observation_space(state.env_params), obs, privileged=True))
    value: Any = (_default(algo.config) if network is None else network).apply(state.weights, x)
    return value[..., 0] * (1 if memory.rewards is None else deviation(memory.rewards))


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
