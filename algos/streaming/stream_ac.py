"""Stream AC(lambda): actor-critic from single transitions.

Elsayed, Vasan & Mahmood (2024), "Streaming deep reinforcement learning finally works" (arXiv:2410.14606). After a step
from s by a to s' with reward r,

    delta = r + gamma V(s') - V(s),
    value:    e <- gamma lambda e + grad V(s),
    policy:   e <- gamma lambda e + grad [log pi(a | s) + ent_coef sign(delta) H(pi(. | s))],

and both weights take a step along delta e by ObGD, which bounds the step size so that it does not overshoot. As the
step has the factor delta, sign(delta) makes the step along the entropy's gradient positive. A trace ends with its
episode. Observations and rewards are normalised by running statistics, and the initial weights of both networks are
sparse.

Deviations from the authors' code: episodes cut by a time limit bootstrap from their final observation, where theirs
terminate; so the time is not part of the observation; the discounted return that scales rewards starts at 0 in each
episode (theirs starts at the last reward); continuous policies act in units of the action box, [-1, 1] a
side; one width of 128 by default, where theirs is 32 for discrete actions. Results: `experiments/streaming/`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl import streaming
from jaxrl.algorithm import Algorithm, shared, spaces_of
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.distributions import Distribution, num_outputs, of_space
from jaxrl.nn.losses import td_target
from jaxrl.nn.networks import Network, encoded_size, own
from jaxrl.nn.streaming import StreamMLP, obgd
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space
from jaxrl.streaming import Transition
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(streaming.Config):
    """Static settings: each value compiles its own program."""

    hidden: tuple[int, ...] = (128, 128)  # widths of actor and critic


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Defaults are the paper's, for all tasks."""

    learning_rate: jax.Array = 1.0  # before the bounds
    kappa_policy: jax.Array = 3.0  # strictness of the bound of the policy's step
    kappa_value: jax.Array = 2.0  # that of the value's step; above 1 it does not overshoot delta
    gamma: jax.Array = 0.99  # discount
    trace_decay: jax.Array = 0.8  # lambda
    ent_coef: jax.Array = 0.01


def log_softplus(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(log(1 + exp(x))), finite with finite derivatives for every x; for very negative x it is x."""
    low = x < -20
    return jnp.where(low, x, jnp.log(jax.nn.softplus(jnp.where(low, 0, x))))


def policy_objective(
    pi: Distribution, action: Array, delta: Float[Array, ""], ent_coef: Float[Array, ""] | float
) -> Float[Array, ""]:
    """log pi(a | s) + ent_coef sign(delta) H, whose gradients the policy's trace accumulates."""
    return pi.log_prob(action) + ent_coef * jnp.sign(delta) * pi.entropy()


@dataclasses.dataclass(frozen=True)
class _StreamAC:
    """The learning rule, a `streaming.Rule`: `{"policy": weights of the actor, "value": of the critic}`."""

    privileged: ClassVar = True
    deployed: ClassVar = "sampled"

    config: Config
    actor: Network  # from standardised vectors (..., visible) to logits, or means and spreads
    critic: Network  # from standardised vectors (..., F) to values (..., 1)
    observation_space: Space
    action_space: Space

    def init(self, key: Key[Array, ""]) -> dict[str, Any]:
        policy_key, value_key = jax.random.split(key)
        return {
            "policy": self.actor.init(policy_key, jnp.zeros(encoded_size(self.observation_space))),
            "value": self.critic.init(value_key, jnp.zeros(encoded_size(self.observation_space, privileged=True))),
        }

    def distribution(self, weights: Any, x: Array, action_mask: Any) -> Distribution:
        """The policy where the visible part of the observation is x (..., visible)."""
        out: Any = self.actor.apply(weights, x)
        if isinstance(self.action_space, Box):
            mean, raw = jnp.split(out, 2, -1)
            out = mean, log_softplus(raw)
        return of_space(self.action_space, out, action_mask)

    def act(self, weights: Any, hyper: Hyper, step: Array, key: Array, x: Array, obs: Any, greedy: bool) -> Array:
        pi = self.distribution(weights["policy"], x, split_observation(obs, self.observation_space)[2])
        return pi.mode() if greedy else pi.sample(key)

    def to_env(self, action: Array) -> Array:
        return self.action_space.from_unit(action) if isinstance(self.action_space, Box) else action

    def gradient_step(self, weights: Any, trace: Any, hyper: Hyper, x: Transition) -> tuple[Any, Any, dict[str, Array]]:
        """The critic's error, then a trace and a bounded step of actor and critic each, by the same error."""

        def prediction(weights):
            value: Any = self.critic.apply(weights, x.obs)
            return value[0]

        value, value_grads = jax.value_and_grad(prediction)(weights["value"])
        next_value: Any = self.critic.apply(weights["value"], x.next_obs)
        delta = td_target(x.reward, x.terminated, next_value[0], hyper.gamma) - value

        def objective(weights):
            pi = self.distribution(weights, x.obs[: encoded_size(self.observation_space)], x.action_mask)
            return policy_objective(pi, x.action, delta, hyper.ent_coef), pi.entropy()

        policy_grads, entropy = jax.grad(objective, has_aux=True)(weights["policy"])
        decay = jnp.where(x.first, 0, hyper.gamma * hyper.trace_decay)
        grads = {"policy": policy_grads, "value": value_grads}
        trace = jax.tree.map(lambda e, g: decay * e + g, trace, grads)
        moved, report = {}, {"loss": delta**2, "value": value, "entropy": entropy}
        for name, kappa in (("policy", hyper.kappa_policy), ("value", hyper.kappa_value)):
            moved[name], report[f"{name}_step_size"] = obgd(
                weights[name], trace[name], delta, hyper.learning_rate, kappa, self.config.bounded
            )
        return moved, trace, report


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    actor: Network | None = None,
    critic: Network | None = None,
) -> Algorithm:
    """Stream AC(lambda) on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        actor: a flax module from standardised observation vectors (..., visible) to n logits or, for a Box of A
            numbers, 2 A outputs: means, and what softplus turns into standard deviations, in units of the box.
        critic: one from vectors (..., F), whose last entries are the privileged part, to values (..., 1).

    Raises ValueError for an action space it cannot handle, several agents or environments, or a network whose outputs
    do not fit.
    """
    observation_space, space = spaces_of("stream_ac", env, Discrete, MultiDiscrete, Box)
    outputs = num_outputs(space) * (1 + isinstance(space, Box))
    actor = own("actor", actor) or StreamMLP(config.hidden, outputs, config.sparsity, config.layer_norm)
    critic = own("critic", critic) or StreamMLP(config.hidden, 1, config.sparsity, config.layer_norm)
    streaming.check_outputs("actor", actor, encoded_size(observation_space), outputs, str(space))
    streaming.check_outputs("critic", critic, encoded_size(observation_space, privileged=True), 1, "a state's value")
    rule = _StreamAC(config, actor, critic, observation_space, space)
    return streaming.make("stream_ac", rule, config, Hyper, env)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
