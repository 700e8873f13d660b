"""Stream Q(lambda): Q-learning with a network, from single transitions.

Elsayed, Vasan & Mahmood (2024), "Streaming deep reinforcement learning finally works" (arXiv:2410.14606). After a step
from s by a to s' with reward r,

    delta = r + gamma max_a' Q(s', a') - Q(s, a),    e <- gamma lambda e + grad Q(s, a),

and the weights take a step by ObGD, which bounds the step along e so that it does not overshoot delta. A trace ends
with its episode and, as in Watkins's Q(lambda), with an action that is not greedy; a random action that happens to be
the best one does not cut it. Observations and rewards are normalised by running statistics, and initial weights are
sparse.

Deviations from the authors' code: episodes cut by a time limit bootstrap from their final observation, where theirs
terminate; so the time is not part of the observation; the discounted return that scales rewards starts at 0 in each
episode (theirs starts at the last reward); each dimension of a Box is discretised into `num_bins` values.
Results: `experiments/streaming/`.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer, Key, PyTree

from jaxrl import streaming
from jaxrl.algorithm import Algorithm, shared, spaces_of
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.nn.losses import td_target
from jaxrl.nn.networks import Network, encoded_size, own
from jaxrl.nn.streaming import StreamMLP, obgd
from jaxrl.spaces import Box, Discrete, Space
from jaxrl.streaming import Transition
from jaxrl.vector_env import VectorEnv

MOST_ACTIONS = 4_096  # of a discretised Box; each action is an output of the network


@dataclasses.dataclass(frozen=True)
class Config(streaming.Config):
    """Static settings: each value compiles its own program."""

    num_bins: int = 5  # values of each dimension of a Box, evenly spaced from end to end

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_bins < 2:
            raise ValueError(f"num_bins={self.num_bins}: it must be at least 2.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Defaults are the paper's, for all its tasks."""

    learning_rate: jax.Array = 1.0  # before the bound
    kappa: jax.Array = 2.0  # strictness of the bound; above 1 an update does not overshoot delta
    gamma: jax.Array = 0.99  # discount
    trace_decay: jax.Array = 0.8  # lambda
    epsilon_start: jax.Array = 1.0  # initial probability of a random action
    epsilon_end: jax.Array = 0.01  # and after exploration_steps; linear in between
    exploration_steps: jax.Array = 25_000  # 5 % of the authors' 500,000


def epsilon_at(step: Int[Array, ""], hyper: Hyper) -> Float[Array, ""]:
    """The probability of a random action at environment step `step`."""
    done = jnp.where(hyper.exploration_steps > 0, step / jnp.maximum(hyper.exploration_steps, 1), 1)
    start, end = hyper.epsilon_start, hyper.epsilon_end
    return start + jnp.clip(done, 0, 1).astype(start.dtype) * (end - start)


def allowed(q: Float[Array, "*batch n"], action_mask: Bool[Array, "*batch n"] | None) -> Float[Array, "*batch n"]:
    """Action values, minus infinity where the mask forbids."""
    return q if action_mask is None else jnp.where(action_mask, q, -jnp.inf)


def cut(trace: PyTree, q: Float[Array, " n"], action: Integer[Array, ""]) -> PyTree:
    """The trace after a step: unchanged if the action was the best one, else zero."""
    return jax.tree.map(lambda e: jnp.where(action == jnp.argmax(q), e, 0), trace)


@dataclasses.dataclass(frozen=True)
class _StreamQ:
    """The learning rule, a `streaming.Rule`: a network of action values."""

    privileged: ClassVar = False
    deployed: ClassVar = "greedy"

    config: Config
    network: Network  # from standardised vectors (..., F) to values (..., n)
    observation_space: Space
    num_actions: int
    table: Any = dataclasses.field(compare=False)  # (n, A): the actions in a Box; None for a Discrete space

    def init(self, key: Key[Array, ""]) -> Any:
        return self.network.init(key, jnp.zeros(encoded_size(self.observation_space)))

    def act(self, weights: Any, hyper: Hyper, step: Array, key: Array, x: Array, obs: Any, greedy: bool) -> Array:
        """The best allowed action; with probability epsilon a uniformly drawn allowed one."""
        q: Any = self.network.apply(weights, x)
        action_mask = split_observation(obs, self.observation_space)[2]
        best = jnp.argmax(allowed(q, action_mask), -1).astype(jnp.int32)
        if greedy:
            return best
        explore_key, action_key = jax.random.split(key)
        any_action = jnp.ones(q.shape, bool) if action_mask is None else action_mask
        random = Categorical(mask_logits(jnp.zeros_like(q), any_action)).sample(action_key)
        return jnp.where(jax.random.uniform(explore_key, best.shape) < epsilon_at(step, hyper), random, best)

    def to_env(self, action: Array) -> Array:
        return action if self.table is None else jnp.asarray(self.table)[action]

    def gradient_step(self, weights: Any, trace: Any, hyper: Hyper, x: Transition) -> tuple[Any, Any, dict[str, Array]]:
        """Error, trace, bounded step, and the end of the trace where the action was not greedy."""

        def prediction(weights):
            q: Any = self.network.apply(weights, x.obs)
            taken = jnp.arange(self.num_actions) == x.action
            return jnp.sum(jnp.where(taken, q, 0)), q  # a gather's gradient scatters: slow

        (q, values), grads = jax.value_and_grad(prediction, has_aux=True)(weights)
        next_q: Any = self.network.apply(weights, x.next_obs)
        best = jnp.max(allowed(next_q, x.next_mask))
        delta = td_target(x.reward, x.terminated, best, hyper.gamma) - q
        decay = jnp.where(x.first, 0, hyper.gamma * hyper.trace_decay)
        trace = jax.tree.map(lambda e, g: decay * e + g, trace, grads)
        weights, step_size = obgd(weights, trace, delta, hyper.learning_rate, hyper.kappa, self.config.bounded)
        trace = cut(trace, allowed(values, x.action_mask), x.action)
        return weights, trace, {"loss": delta**2, "q_value": q, "step_size": step_size}


def actions_of(space: Box, num_bins: int) -> Float[np.ndarray, "n A"]:
    """The points of a grid over the box. Raises ValueError where they are too many."""
    if num_bins ** space.shape[0] > MOST_ACTIONS:
        raise ValueError(
            f"num_bins={num_bins} for {space.shape[0]} dimensions are {num_bins ** space.shape[0]:,} actions; at most "
            f"{MOST_ACTIONS:,} are built. stream_ac and sac need no bins."
        )
    grid = np.array(list(itertools.product(np.linspace(-1, 1, num_bins), repeat=space.shape[0])))
    return np.asarray(space.from_unit(jnp.asarray(grid, jnp.float32)))


@shared
def make(env: Environment | VectorEnv, config: Config = Config(), *, network: Network | None = None) -> Algorithm:
    """Stream Q(lambda) on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from standardised observation vectors (..., F) to values of the n actions.

    Raises ValueError for an action space that is neither Discrete nor a one-dimensional Box, several agents or
    environments, or a network whose outputs do not fit.
    """
    observation_space, space = spaces_of("stream_q", env, Discrete, Box, between_ends=True)
    table = None if isinstance(space, Discrete) else actions_of(space, config.num_bins)
    n = space.n if table is None else len(table)
    network = own("network", network) or StreamMLP(config.hidden, n, config.sparsity, config.layer_norm)
    streaming.check_outputs("network", network, encoded_size(observation_space), n, str(space))
    rule = _StreamQ(config, network, observation_space, n, table)
    return streaming.make("stream_q", rule, config, Hyper, env)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
