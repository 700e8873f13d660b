"""Stream TD(lambda): the value of a given policy, from single transitions.

Elsayed, Vasan & Mahmood (2024), "Streaming deep reinforcement learning finally works" (arXiv:2410.14606). After a step
from s to s' with reward r,

    delta = r + gamma V(s') - V(s),    e <- gamma lambda e + grad V(s),

and the weights take a step by ObGD, which bounds the step along e so that it does not overshoot delta. A trace ends
with its episode. Observations and rewards are normalised by running statistics, and initial weights are sparse. The
policy does not change; `predict` returns the learned values.

Deviations from the authors' code: episodes cut by a time limit bootstrap from their final observation, where theirs
terminate; the discounted return that scales rewards starts at 0 in each episode (theirs starts at the last reward).
Results: `experiments/streaming/`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl import streaming
from jaxrl.algorithm import Algorithm, shared, spaces_of
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.distributions import num_outputs, of_space
from jaxrl.nn.losses import td_target
from jaxrl.nn.networks import Network, encoded_size, own
from jaxrl.nn.normalize import standardized
from jaxrl.nn.streaming import StreamMLP, obgd
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space
from jaxrl.streaming import Transition, features
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(streaming.Config):
    """Static settings: each value compiles its own program."""

    hidden: tuple[int, ...] = (128, 128)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Defaults are the paper's, for all tasks."""

    learning_rate: jax.Array = 1.0  # before the bound
    kappa: jax.Array = 2.0  # strictness of the bound; above 1 an update does not overshoot delta
    gamma: jax.Array = 0.99  # discount
    trace_decay: jax.Array = 0.8  # lambda


@dataclasses.dataclass(frozen=True)
class _StreamTD:
    """The learning rule, a `streaming.Rule`: the value of a policy that stays as it is."""

    privileged: ClassVar = True
    deployed: ClassVar = "greedy"

    config: Config
    policy: Callable[[Array, Any], Any] | None
    network: Network  # from standardised vectors (..., F) to values (..., 1)
    observation_space: Space
    action_space: Space

    def init(self, key: Key[Array, ""]) -> Any:
        return self.network.init(key, jnp.zeros(encoded_size(self.observation_space, privileged=True)))

    def act(self, weights: Any, hyper: Hyper, step: Array, key: Array, x: Array, obs: Any, greedy: bool) -> Any:
        """The given policy's action; without a policy a uniformly drawn allowed action."""
        key = jax.random.key(0) if greedy else key
        if self.policy is not None:
            return self.policy(key, obs)
        shape = (*x.shape[:-1], num_outputs(self.action_space))
        if isinstance(self.action_space, Box):
            return self.action_space.from_unit(jax.random.uniform(key, shape, minval=-1.0))
        mask = split_observation(obs, self.observation_space)[2]
        return of_space(self.action_space, jnp.zeros(shape), mask).sample(key)

    def to_env(self, action: Array) -> Array:
        return action

    def gradient_step(self, weights: Any, trace: Any, hyper: Hyper, x: Transition) -> tuple[Any, Any, dict[str, Array]]:
        """Error, trace, bounded step."""

        def prediction(weights):
            value: Any = self.network.apply(weights, x.obs)
            return value[0]

        value, grads = jax.value_and_grad(prediction)(weights)
        next_value: Any = self.network.apply(weights, x.next_obs)
        delta = td_target(x.reward, x.terminated, next_value[0], hyper.gamma) - value
        decay = jnp.where(x.first, 0, hyper.gamma * hyper.trace_decay)
        trace = jax.tree.map(lambda e, g: decay * e + g, trace, grads)
        weights, step_size = obgd(weights, trace, delta, hyper.learning_rate, hyper.kappa, self.config.bounded)
        return weights, trace, {"loss": delta**2, "value": value, "step_size": step_size}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    policy: Callable[[Array, Any], Any] | None = None,
    network: Network | None = None,
) -> Algorithm:
    """Stream TD(lambda) on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        policy: `(key, obs) -> action`, any leading batch shape; default: uniform over allowed actions. For greedy
            actions it is always called with the same key.
        network: a flax module from standardised observation vectors (..., F), whose last entries are the privileged
            part, to values (..., 1).

    Raises ValueError for an action space it cannot handle, several agents or environments, or a network whose outputs
    do not fit.
    """
    observation_space, action_space = spaces_of("stream_td", env, Discrete, MultiDiscrete, Box, between_ends=True)
    network = own("network", network) or _default(config)
    streaming.check_outputs("network", network, encoded_size(observation_space, privileged=True), 1, "a state's value")
    rule = _StreamTD(config, policy, network, observation_space, action_space)
    return streaming.make("stream_td", rule, config, Hyper, env)


def _default(config: Config) -> StreamMLP:
    return StreamMLP(config.hidden, 1, config.sparsity, config.layer_norm)


def predict(algo: Algorithm, state: Any, obs: Any, network: Network | None = None) -> Float[Array, "..."]:
    """The learned values (...) of observations of any leading batch shape, in the units of the environment's rewards.

    `network`: as `make` got it.
    """
    space = algo.venv.env.observation_space(state.env_params)
    x = standardized(state.normalizer, features(space, obs, privileged=True))
    value: Any = (network or _default(algo.config)).apply(state.weights, x)
    return value[..., 0] * (1 if state.reward_scaler is None else state.reward_scaler.scale)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
