"""Stream AC(lambda): actor-critic from single transitions.

Elsayed, Vasan & Mahmood (2024), "Streaming deep reinforcement learning finally works" (arXiv:2410.14606). After a step
from s by a to s' with reward r,

    delta = r + gamma V(s') - V(s),
    value:    e <- gamma lambda e + grad V(s),
    policy:   e <- gamma lambda e + grad [log pi(a | s) + ent_coef sign(delta) H(pi(. | s))],

and both move by delta e with ObGD (`stream.obgd`), each with its own bound; as the step is multiplied by delta, the
sign makes that of the entropy's gradient positive. What the streaming algorithms share is in `stream.py`.

Deviations from the authors' code: episodes cut by a time limit bootstrap from their final observation, where theirs
end; so the time of the episode is not part of the observation; the discounted return behind the reward's scale starts
anew with the episode (theirs is set to the last reward); continuous policies act in units of the action box, [-1, 1] a
side; one width of 128 by default, where theirs is 32 for discrete actions. Results: `experiments/streaming/`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, shared, spaces_of
from jaxrl.algos.streaming import stream as streaming
from jaxrl.algos.streaming.stream import Learner, StreamMLP, Transition, obgd, td_error
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.distributions import Distribution, num_outputs, of_space
from jaxrl.nn.networks import encoded_size
from jaxrl.spaces import Box, Discrete, MultiDiscrete
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(streaming.Config):
    """Static settings: each value compiles its own program."""

    hidden: tuple[int, ...] = (128, 128)  # widths of actor and critic


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. The paper's, for every task."""

    learning_rate: jax.Array = 1.0  # before the bounds
    kappa_policy: jax.Array = 3.0  # how strict the bounds are
    kappa_value: jax.Array = 2.0  # above 1, an update of the value stays short of delta
    gamma: jax.Array = 0.99  # discount
    trace_decay: jax.Array = 0.8  # lambda
    ent_coef: jax.Array = 0.01


def log_softplus(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(log(1 + exp(x))) and its derivative, finite for every x: far below zero it is x."""
    low = x < -20
    return jnp.where(low, x, jnp.log(jax.nn.softplus(jnp.where(low, 0, x))))


def policy_objective(
    pi: Distribution, action: Array, delta: Float[Array, ""], ent_coef: Float[Array, ""] | float
) -> Float[Array, ""]:
    """log pi(a | s) + ent_coef sign(delta) H: what the policy's trace collects the gradients of."""
    return pi.log_prob(action) + ent_coef * jnp.sign(delta) * pi.entropy()


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
) -> Algorithm:
    """Stream AC(lambda) on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        actor: a flax module from standardised observation vectors (..., visible) to n logits or, for a Box of
            A numbers, 2 A outputs: means, and what softplus turns into standard deviations, in units of the box.
        critic: one from vectors (..., F), at whose end is what is privileged, to values (..., 1).

    Raises ValueError for an action space it cannot handle, several agents or environments, or a network whose outputs
    do not fit.
    """
    observation_space, action_space = spaces_of("stream_ac", env, Discrete, MultiDiscrete, Box)
    continuous = isinstance(action_space, Box)
    outputs = num_outputs(action_space) * (1 + continuous)
    settings = config.sparsity, config.layer_norm
    actor = StreamMLP(config.hidden, outputs, *settings) if actor is None else actor
    critic = StreamMLP(config.hidden, 1, *settings) if critic is None else critic
    visible = encoded_size(observation_space)
    for name, network, size, n in (
        ("actor", actor, visible, outputs),
        ("critic", critic, encoded_size(observation_space, privileged=True), 1),
    ):
        shape = jax.eval_shape(lambda k, x, f=network: f.init_with_output(k, x)[0], jax.random.key(0), jnp.zeros(size))
        if shape.shape != (n,):
            raise ValueError(f"{name} gives {shape.shape} for an observation; {action_space} needs {(n,)}.")

    def init(key: Array, size: int) -> dict[str, Any]:
        policy_key, value_key = jax.random.split(key)
        weights = actor.init(policy_key, jnp.zeros(visible))
        return {"policy": weights, "value": critic.init(value_key, jnp.zeros(size))}

    def distribution(weights: Any, obs: Array, action_mask: Any) -> Distribution:
        out: Any = actor.apply(weights, obs)
        if continuous:
            mean, raw = jnp.split(out, 2, -1)
            out = mean, log_softplus(raw)
        return of_space(action_space, out, action_mask)

    def act(weights: Any, hyper: Hyper, step: Array, key: Array, x: Array, obs: Any, greedy: bool) -> Array:
        pi = distribution(weights["policy"], x, split_observation(obs, observation_space)[2])
        return pi.mode() if greedy else pi.sample(key)

    def learn(weights: Any, trace: Any, hyper: Hyper, x: Transition) -> tuple[Any, Any, dict[str, Array]]:
        def prediction(weights):
            value: Any = critic.apply(weights, x.obs)
            return value[0]

        value, value_grads = jax.value_and_grad(prediction)(weights["value"])
        next_value: Any = critic.apply(weights["value"], x.next_obs)
        delta = td_error(value, x.reward, next_value[0], x.terminated, hyper.gamma)

        def objective(weights):
            pi = distribution(weights, x.obs[:visible], x.action_mask)
            return policy_objective(pi, x.action, delta, hyper.ent_coef), pi.entropy()

        policy_grads, entropy = jax.grad(objective, has_aux=True)(weights["policy"])
        decay = jnp.where(x.first, 0, hyper.gamma * hyper.trace_decay)
        new, traces, report = {}, {}, {"loss": delta**2, "value": value, "entropy": entropy}
        for name, grads, kappa in (
            ("policy", policy_grads, hyper.kappa_policy),
            ("value", value_grads, hyper.kappa_value),
        ):
            new[name], traces[name], report[f"{name}_step_size"] = obgd(
                weights[name], trace[name], grads, delta, decay, hyper.learning_rate, kappa, config.bounded
            )
        return new, traces, report

    learner = Learner(init, act, learn, action_space.from_unit if continuous else lambda action: action, "sampled")
    return streaming.make("stream_ac", learner, config, Hyper, env, observation_space, privileged=True)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
