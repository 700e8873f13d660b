"""Tabular SARSA(lambda): accumulating, replacing and dutch traces, and expected SARSA.

Sutton and Barto (2018), sections 6.4, 6.6 and 12.7. In S the agent takes A, receives R, reaches S', there takes A':

    delta = R + gamma Q(S', A') - Q(S, A)
    z <- gamma lambda z, then z(S, A) <- z(S, A) + 1 (accumulating) or 1 (replacing)
    Q <- Q + alpha delta z

without the bootstrap where the episode terminated. With `dutch` traces it is true online Sarsa(lambda) (van Seijen et
al. 2016; the box of section 12.7), equal to the online lambda-return algorithm: Q_old is the Q(S', A') of the step
before,

    z <- gamma lambda z, then z(S, A) <- z(S, A) + 1 - alpha z(S, A)
    Q <- Q + alpha (delta + Q(S, A) - Q_old) z,  and Q(S, A) <- Q(S, A) - alpha (Q(S, A) - Q_old).

A' is the action that the agent really takes: the update of a step waits until the next action is chosen, as in the
book. Where a time limit cuts the episode A' is drawn from the policy. With `expected` the bootstrap is the policy's
mean of Q(S', .), and updates do not wait (section 12.9 with the behaviour policy as the target policy). Exploration and
step sizes are those of `q_learning`.

Papers: Sutton and Barto (2018), "Reinforcement learning: an introduction"; van Seijen et al. (2016), "True online
temporal-difference learning" (arXiv:1512.04087).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.algorithm import Algorithm, shared
from jaxrl.environment import Environment, pytree
from jaxrl.online import Experience, Rule, discrete_sizes, random_argmax
from jaxrl.online import make as make_online
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # always 1, as a trace belongs to one episode; for many runs, vmap over keys
    trace: Literal["accumulating", "replacing", "dutch"] = "accumulating"  # or "replacing", "dutch"
    expected: bool = False  # bootstrap from the policy's mean value instead of the next action's

    def __post_init__(self) -> None:
        if self.num_envs != 1:
            raise ValueError(f"num_envs={self.num_envs}: a trace belongs to one episode; vmap over keys for many runs.")
        if self.trace not in ("accumulating", "replacing", "dutch"):
            raise ValueError(f"trace={self.trace!r}: choose accumulating, replacing or dutch.")


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    learning_rate: jax.Array = 0.1  # alpha; with count_exponent the smallest step size
    count_exponent: jax.Array = 0.0  # w of the step size n^-w; 0: constant alpha
    gamma: jax.Array = 0.99
    trace_decay: jax.Array = 0.9  # lambda
    epsilon_start: jax.Array = 1.0
    epsilon_end: jax.Array = 0.05
    exploration_steps: jax.Array = 10_000  # updates from start to end
    initial_value: jax.Array = 0.0  # of every entry; high values explore by optimism


@pytree
class Step:
    """A step whose update waits for the next action."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    waits: jax.Array  # bool: whether there is such a step


@pytree
class Weights:
    q: jax.Array  # (S, A)
    trace: jax.Array  # (S, A)
    count: jax.Array  # (S, A) updates of each entry
    steps: jax.Array  # experiences learned from
    step: Any  # the Step whose next action is not known yet; None if expected
    old: Any  # dutch traces: Q_old above; else None


def epsilon_at(steps: Integer[Array, ""], hyper: Hyper) -> Float[Array, ""]:
    """The probability of a random action after `steps` experiences."""
    done = jnp.minimum(steps / jnp.maximum(hyper.exploration_steps, 1), 1)
    return hyper.epsilon_start + done * (hyper.epsilon_end - hyper.epsilon_start)


def probabilities(q: Float[Array, " A"], epsilon: Float[Array, ""]) -> Float[Array, " A"]:
    """The epsilon-greedy policy; the greedy part is shared by the best actions."""
    best = q >= jnp.max(q)
    return epsilon / len(q) + (1 - epsilon) * best / jnp.sum(best)


def mark(
    trace: Float[Array, "S A"], obs: Array, action: Array, alpha: Float[Array, ""], decay: Float[Array, ""], kind: str
) -> Float[Array, "S A"]:
    """The traces after a visit of (obs, action); `decay` is gamma lambda."""
    trace = decay * trace
    if kind == "replacing":
        return trace.at[obs, action].set(1)
    return trace.at[obs, action].add(1 - alpha * trace[obs, action] if kind == "dutch" else 1)


def backup(
    weights: Weights, hyper: Hyper, obs: Array, action: Array, reward: Array, next_value: Array, kind: str
) -> tuple[Weights, Float[Array, ""]]:
    """`(weights, delta)` after one step whose bootstrap is `next_value`, 0 where the episode terminated."""
    count = weights.count.at[obs, action].add(1)
    decayed = jnp.where(hyper.count_exponent > 0, jnp.maximum(count, 1) ** -hyper.count_exponent, 0)
    alpha = jnp.maximum(hyper.learning_rate, decayed)
    delta = reward + hyper.gamma * next_value - weights.q[obs, action]
    trace = mark(weights.trace, obs, action, alpha[obs, action], hyper.gamma * hyper.trace_decay, kind)
    if kind == "dutch":
        lag = weights.q[obs, action] - weights.old
        q = (weights.q + alpha * (delta + lag) * trace).at[obs, action].add(-alpha[obs, action] * lag)
        return weights.replace(q=q, trace=trace, count=count, old=next_value), delta
    return weights.replace(q=weights.q + alpha * delta * trace, trace=trace, count=count), delta


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """SARSA(lambda) on `env`. Equal arguments give the same functions, so they share one jit cache.

    Raises ValueError unless observations and actions are Discrete.
    """
    S, A = discrete_sizes("sarsa", env)

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        q, zero = jnp.broadcast_to(hyper.initial_value, (S, A)), jnp.zeros(())
        step = None if config.expected else Step(jnp.int32(0), jnp.int32(0), zero, jnp.bool_(False))
        old = zero if config.trace == "dutch" else None
        return Weights(q, jnp.zeros((S, A)), jnp.zeros((S, A)), jnp.int32(0), step, old)

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Array, greedy: bool) -> Integer[Array, ""]:
        q = weights.q[obs]
        if greedy:
            return jnp.argmax(q).astype(jnp.int32)
        explore_key, action_key, tie_key = jax.random.split(key, 3)
        random = jax.random.randint(action_key, (), 0, A, jnp.int32)
        explore = jax.random.uniform(explore_key) < epsilon_at(weights.steps, hyper)
        return jnp.where(explore, random, random_argmax(q, tie_key))

    def restart(weights: Weights) -> Weights:
        """Clears the trace and the waiting step."""
        weights = weights.replace(trace=jnp.zeros_like(weights.trace), old=jax.tree.map(jnp.zeros_like, weights.old))
        return weights if config.expected else weights.replace(step=weights.step.replace(waits=jnp.bool_(False)))

    def learn(weights: Weights, hyper: Hyper, key: Array, x: Experience) -> tuple[Weights, Array]:
        done, loss = x.terminated | x.truncated, jnp.zeros(())
        if not config.expected:
            step = weights.step
            following = weights.q[x.obs, x.action]
            learned, delta = backup(weights, hyper, step.obs, step.action, step.reward, following, config.trace)
            weights = jax.tree.map(lambda new, old: jnp.where(step.waits, new, old), learned, weights)
            loss = jnp.where(step.waits, delta**2, 0)
        after = weights.q[x.next_obs]
        if config.expected:
            next_value = probabilities(after, epsilon_at(weights.steps, hyper)) @ after
        else:
            next_value = after[act(weights, hyper, key, x.next_obs, False)]
        next_value = jnp.where(x.terminated, 0, next_value)
        learned, delta = backup(weights, hyper, x.obs, x.action, x.reward, next_value, config.trace)
        if config.expected:
            weights, loss = learned, delta**2
        else:
            step = Step(x.obs.astype(jnp.int32), x.action.astype(jnp.int32), x.reward, ~done)
            learned = learned.replace(step=step)
            weights = jax.tree.map(lambda new, old: jnp.where(done, new, old), learned, weights.replace(step=step))
            loss = loss + jnp.where(done, delta**2, 0)
        weights = weights.replace(trace=jnp.where(done, 0, weights.trace), steps=weights.steps + 1)
        if config.trace == "dutch":
            weights = weights.replace(old=jnp.where(done, 0, weights.old))
        return weights, loss

    return make_online("sarsa", Rule(init, act, learn, restart=restart), config, Hyper, env)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
