"""Analytic policy gradients (APG, SHAC): the return is differentiated through the environment's dynamics.

A rollout of `num_steps` steps is a differentiable function of the policy's weights: actions are, `a = tanh(mean(s) +
std noise)`, and so are states, `s' = f(s, a)`. Its gradient needs no likelihood ratio: Freeman et al. (2021), "Brax - a
differentiable physics engine for large scale rigid body simulation" (arXiv:2106.13281); Xu et al. (2022), "Accelerated
policy learning with parallel differentiable simulation" (arXiv:2204.07137), SHAC. Environments continue where the last
rollout stopped, and no gradient passes an episode's end.

With `critic=True` (SHAC) the objective of a window is

    sum_t gamma^t r_t + gamma^h V(s_h),   h: the end of the window, or of an episode that was truncated in it,

where V is the target network of a critic that learns lambda-returns. With `critic=False` (APG as in Brax) V is 0, and
the policy ignores all that follows its window: choose a large `num_steps`.

The objective is the mean per step, so that learning rates do not depend on the window. Deviations from SHAC: Adam has
its usual betas and learning rates are constant; observations are not normalised. From Brax: the sampled policy is
trained. A jump of the reward or the dynamics (a termination, a contact) has no derivative, so its effect is not
learned. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from jaxrl import on_policy
from jaxrl.algorithm import (
    Algorithm,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    check_minibatches,
    shared,
    spaces_of,
)
from jaxrl.environment import Environment, pytree
from jaxrl.math import shuffled
from jaxrl.nn import nets
from jaxrl.nn.distributions import Normal, num_outputs
from jaxrl.nn.networks import ActorCritic, Network, own
from jaxrl.nn.optim import Optimizer, OptimizerLike, annealed, optimizer_of
from jaxrl.on_policy import epochs, flattened
from jaxrl.returns import lambda_returns
from jaxrl.rollout import Ends, Steps, rollout
from jaxrl.spaces import Box, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 32  # environments stepped together
    num_steps: int = 16  # steps that a gradient passes
    critic: bool = True  # SHAC: a critic estimates the return after them; False: it counts as 0
    num_epochs: int = 4  # passes of the critic over a rollout
    num_minibatches: int = 4  # of an epoch; divides num_envs * num_steps
    hidden: tuple[int, ...] = (64, 64)  # widths of actor and critic
    activation: str = "elu"  # should be smooth, as gradients pass it several times
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "num_epochs", "num_minibatches")
        check_minibatches(self.num_minibatches, self.num_envs * self.num_steps, "num_envs * num_steps")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 2e-3  # of the policy
    critic_learning_rate: jax.Array = 2e-3  # of the critic
    anneal_steps: jax.Array = 0  # environment steps over which both go to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    gae_lambda: jax.Array = 0.95  # lambda of the critic's targets
    tau: jax.Array = 0.2  # Polyak step of the target critic, each update
    max_grad_norm: jax.Array = 1.0  # of the policy's gradient and of the critic's


class Policy(NamedTuple):
    """The policy, as it is evaluated and exported."""

    weights: Any


@pytree
class APGState(on_policy.State):
    target_weights: Any  # only their critic is used; None without Config.critic
    critic_optimizer: Any  # of the critic, as `optimizer` is of the policy; None without Config.critic


class Rollout(NamedTuple):
    """The steps of a rollout and the gradient through them, which one pass through the dynamics computes."""

    steps: Steps  # (T, N, ...)
    loss: Array
    grads: Any  # of the loss with respect to the weights that acted

    @property
    def ends(self) -> Ends:
        return self.steps.ends


def discounts(done: Bool[Array, "T N"], gamma: Float[Array, ""] | float) -> Float[Array, "T N"]:
    """gamma^k at the k-th step of an episode within the window, from k = 0."""

    def step(discount, done):
        return jnp.where(done, 1, discount * gamma), discount

    return jax.lax.scan(step, jnp.ones(done.shape[1]), done)[1]


def objective(
    reward: Float[Array, "T N"],
    next_value: Float[Array, "T N"],
    terminated: Bool[Array, "T N"],
    truncated: Bool[Array, "T N"],
    gamma: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Discounted rewards of each window plus the value at its end, per step (SHAC's policy loss, negated).

    `next_value` counts where an episode is truncated and at the end of the window, unless it terminated there.
    """
    discount = discounts(terminated | truncated, gamma)
    stops = truncated.at[-1].set(True) & ~terminated
    return jnp.mean(discount * (reward + gamma * jnp.where(stops, next_value, 0)))


def value_loss(value: Float[Array, " B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """Half the mean squared error."""
    return 0.5 * jnp.mean((value - target) ** 2)


@dataclasses.dataclass(frozen=True)
class _APG:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    network: Network
    observation_space: Space
    action_space: Box
    optimizer: Optimizer
    deployed = "greedy"

    def distribution(self, weights: Any, obs: Any) -> Normal:
        outputs: Any = self.network.apply(weights, obs, method="actor")
        return Normal(*outputs)

    def value(self, weights: Any, obs: Any) -> Any:
        return self.network.apply(weights, obs, method="critic")

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> APGState:
        method = "__call__" if self.config.critic else "actor"  # without a critic its weights are not created

        def init(key, obs):
            return self.network.init(key, on_policy.first_of(obs), method=method)

        begun = on_policy.begin(Hyper, self.venv, self.optimizer, init, key, hyper, env_params)
        weights, rate = begun["weights"], begun["hyper"].critic_learning_rate
        return APGState(
            **begun,
            target_weights=weights if self.config.critic else None,
            critic_optimizer=self.optimizer.init(weights, rate) if self.config.critic else None,
        )

    def roll(self, weights: Any, state: APGState) -> tuple[APGState, Steps]:
        """A rollout, as a differentiable function of `weights`."""

        def act(key, obs, carry):
            return self.action(self.distribution(weights, obs).sample(key)), (), carry

        new_state, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        return new_state, steps

    def action(self, x: Array) -> Array:
        """The action in the box: tanh, as the derivative of clipping is zero outside."""
        return self.action_space.from_unit(jnp.tanh(x))

    def gradient(self, state: APGState) -> tuple[Any, tuple[Array, APGState, Steps]]:
        """`(gradient, (loss, state, steps))` of a rollout from `state`."""

        def loss(weights):
            new_state, steps = self.roll(weights, state)
            next_value = jnp.zeros_like(steps.reward)
            if self.config.critic:
                next_value = self.bootstraps(state.target_weights, steps)
            total = objective(steps.reward, next_value, steps.terminated, steps.truncated, state.hyper.gamma)
            return -total, (-total, new_state, steps)

        return jax.grad(loss, has_aux=True)(state.weights)

    def bootstraps(self, weights: Any, steps: Steps) -> Array:
        """V(next_obs) where `objective` reads it: at the end of the window and, if there are any, at truncations."""
        last = self.value(weights, jax.tree.map(lambda x: x[-1], steps.next_obs))
        return jax.lax.cond(
            steps.truncated[:-1].any(),
            lambda: self.value(weights, steps.next_obs),
            lambda: jnp.zeros_like(steps.reward).at[-1].set(last),
        )

    def collect(self, state: APGState) -> tuple[APGState, Rollout]:
        grads, (loss, new_state, steps) = self.gradient(state)
        return new_state, Rollout(steps, loss, grads)

    def learn(self, state: APGState, rollout: Rollout) -> tuple[APGState, dict[str, Array]]:
        """A step along the policy's gradient, then epochs of the critic on the steps."""
        hyper, (steps, loss, grads) = state.hyper, rollout
        begin = state.step - self.config.num_steps * self.config.num_envs
        learning_rate = annealed(hyper.learning_rate, begin, hyper.anneal_steps)
        flat, unravel = ravel_pytree(state.weights)
        flat, optimizer, norm = self.optimizer.descend(flat, state.optimizer, grads, learning_rate, hyper.max_grad_norm)
        state = state.replace(weights=unravel(flat), optimizer=optimizer)
        report = {"loss": loss, "grad_norm": norm, "learning_rate": learning_rate}
        if self.config.critic:
            state, report["value_loss"] = self.learn_values(state, steps, begin)
        return state, {**rollout.ends.metrics(), **report}

    def learn_values(self, state: APGState, steps: Steps, begin: Array) -> tuple[APGState, Array]:
        """Regression of the critic on lambda-returns, then a Polyak step of the target critic."""
        config, hyper = self.config, state.hyper
        key, shuffle_key = jax.random.split(state.key)
        next_value = self.value(state.target_weights, steps.next_obs)
        target = lambda_returns(
            steps.reward, next_value, steps.terminated, steps.truncated, hyper.gamma, hyper.gae_lambda
        )
        batch = flattened((steps.obs, target))
        learning_rate = annealed(hyper.critic_learning_rate, begin, hyper.anneal_steps)

        def gradient_step(net, batch):
            obs, target = batch
            return net.descend(
                lambda weights: (value_loss(self.value(weights, obs), target), {}), learning_rate, hyper.max_grad_norm
            )

        orders = shuffled(shuffle_key, (config.num_epochs, config.num_steps * config.num_envs))
        net = nets.net(state.weights, state.critic_optimizer, self.optimizer, state.target_weights)
        net, report = epochs(gradient_step, net, batch, orders, config.num_minibatches)
        net = net.track(hyper.tau)
        state = state.replace(key=key, weights=net.weights, target_weights=net.target, critic_optimizer=net.state)
        return state, report["loss"]

    def policy(self, state: APGState) -> Policy:
        return Policy(state.weights)

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.distribution(policy.weights, obs)
        return self.action(pi.mode() if greedy else pi.sample(key)), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Analytic policy gradients on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module with the methods `actor`, `critic` and `__call__` (both) of `networks.ActorCritic`.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space other than Box, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("apg", venv, Box, between_ends=True)
    outputs = num_outputs(action_space)
    if own("network", network) is None:
        network = ActorCritic(observation_space, outputs, True, config.hidden, config.activation)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    apg = _APG(config, venv, network, observation_space, action_space, chosen)
    state = jax.eval_shape(apg.init, jax.random.key(0))
    shape = jax.eval_shape(lambda s: apg.distribution(s.weights, s.obs).mean, state).shape
    if shape != (config.num_envs, outputs):
        raise ValueError(
            f"network gives means {shape} for {config.num_envs} observations; "
            f"{action_space} needs {(config.num_envs, outputs)}."
        )
    return algorithm_of("apg", apg, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
