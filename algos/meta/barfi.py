"""BARFI: learns how to mix the task's reward and a designer's auxiliary reward, so that the task is learned well.

Gupta, Chandak, Jordan, Thomas and Castro da Silva (2023), "Behavior Alignment via Reward Function Optimization",
NeurIPS, arXiv:2310.19007. A policy learns by

    r_phi(s, a) = phi_1(s) + phi_2(s) r_primary(s, a) + phi_3(s) r_auxiliary(s, a),    discounted by gamma_phi,

and phi is learned so that this policy has a high primary return (bi-level optimisation):

    inner: theta(phi) is a root of Delta = E_memory[sum_t grad log pi(a_t|s_t) G_t],
           G_t = sum_j>=t gamma_phi^(j-t) (r_phi(s_j, a_j) - c log pi(a_j|s_j))
    outer: phi ascends J(theta(phi)) - discount_penalty gamma_phi, J the primary return:
           dJ/dphi = -(dJ/dtheta) H^-1 dDelta/dphi, H = dDelta/dtheta,
           -H^-1 = b sum_k (I + b H)^k, of which `neumann_terms` + 1 terms are kept (b is `neumann_step`)

An update collects a rollout, moves phi along dJ/dphi (with dJ/dtheta of this rollout, and Delta and H of earlier ones,
so not in the first update), stores the rollout in a memory of the last `num_rollouts`, and takes `inner_steps` steps
along Delta. There are no importance weights: old rollouts bias Delta, which r_phi can compensate. Products with H are
computed as derivatives; no matrix is formed.

Deviations: returns end with the rollout and have a linear baseline of observation and time (the features of `maml.py`);
returns of r_phi are divided by their standard deviation, so that the root of Delta does not depend on the scale of
r_phi and c (`ent_coef`) has no unit; Adam optimises both levels, but gamma_phi's logit takes plain gradient ascent with
its gradient clipped to `max_grad_norm`, as Adam would take full steps along the penalty where dJ/dphi is small; the
memory is finite. The network sizes and schedules of the paper are unknown to us: only its abstract was available.

The auxiliary reward is `aux_fn(obs, action, next_obs)`. Without `learn_reward` the mix is constant, `primary_weight`
and `auxiliary_weight`: (1, 0) is the task's reward alone, (1, 1) the sum. Results: `experiments/barfi/`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Integer

from jaxrl.algorithm import (
    Algorithm,
    State,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    shared,
    spaces_of,
    starting_values,
)
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.exact.solvers import solve
from jaxrl.nn.distributions import Distribution, num_outputs, of_space
from jaxrl.nn.networks import MLP, Network, encode
from jaxrl.nn.optim import Optimizer, OptimizerLike, OptimizerState, optimizer_of
from jaxrl.returns import discounted_returns
from jaxrl.rollout import Ends, rollout
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space, environment_action
from jaxrl.vector_env import VectorEnv

AuxiliaryReward = Callable[[Any, Any, Any], Any]
"""(obs, action, next_obs) of one step -> a scalar; `next_obs` is the true successor, before a reset."""

RIDGE = 1e-4
"""Regularisation of the baseline's fit, relative to the features' mean square."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 8  # environments stepped together
    num_steps: int = 200  # steps of each in a rollout, with which returns end; choose the task's time limit
    num_rollouts: int = 4  # rollouts in the memory, from which the inner level learns
    inner_steps: int = 15  # steps of the policy along Delta, each update
    neumann_terms: int = 5  # products with the Hessian
    hidden: tuple[int, ...] = (32,)  # widths of the policy
    reward_hidden: tuple[int, ...] = (32,)  # widths of the reward network phi
    learn_reward: bool = True  # False: phi is constant, and no outer gradient is computed
    activation: str = "tanh"
    optimizer: str = "adam"  # of both levels; a name of optim.OPTIMIZERS
    adam_eps: float = 1e-5  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "num_rollouts", "inner_steps")
        if self.neumann_terms < 0:
            raise ValueError(f"neumann_terms={self.neumann_terms}: it must not be negative.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 5e-3  # of the policy
    reward_learning_rate: jax.Array = 2e-2  # of phi
    gamma: jax.Array = 0.99  # discount of the primary return; initial gamma_phi
    primary_weight: jax.Array = 1.0  # initial phi_2
    auxiliary_weight: jax.Array = 1.0  # initial phi_3
    ent_coef: jax.Array = 0.02  # c above, in the inner level
    discount_penalty: jax.Array = 1e-3  # weight of gamma_phi in the outer objective
    neumann_step: jax.Array = 0.1  # b above
    max_grad_norm: jax.Array = 0.5  # of each level's gradient, and of that of gamma_phi's logit


class Played(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    action: Array  # as sampled, before clipping to the box
    primary: Array
    auxiliary: Array
    done: Array


@pytree
class BARFIState(State):
    weights: Any  # {"policy", "reward": phi, "discount": gamma_phi's logit}
    optimizer: dict[str, OptimizerState]  # of "policy" and "reward"
    memory: Played  # (M, T, N, ...), the newest first
    held: jax.Array  # int32, rollouts in the memory


class Rollout(NamedTuple):
    """A rollout: steps, and where episodes ended."""

    played: Played
    ends: Ends


class Data(NamedTuple):
    """Several rollouts (T, B, ...), with the features of the linear baseline."""

    played: Played
    weight: Array  # (T, B): 1, or 0 for empty places of the memory
    features: Array  # (T, B, F), 0 where `weight` is 0
    inverse: Array  # (F, F), inverse of the features' second moments


def mixed(outputs: Float[Array, "*batch 3"], primary: Array, auxiliary: Array, hyper: Hyper) -> Float[Array, "*batch"]:
    """r_phi of steps, from the reward network's three outputs, which are added to the initial weights of the mix."""
    by_primary, by_auxiliary = outputs[..., 1] + hyper.primary_weight, outputs[..., 2] + hyper.auxiliary_weight
    return outputs[..., 0] + by_primary * primary + by_auxiliary * auxiliary


def mean(x: Float[Array, "*batch"], weight: Float[Array, "*batch"]) -> Float[Array, ""]:
    """The weighted mean of x; 0 if all weights are 0."""
    return jnp.sum(x * weight) / jnp.maximum(jnp.sum(weight), 1)


def baseline_features(x: Float[Array, "T B F"], time: Integer[Array, "T B"]) -> Float[Array, "T B G"]:
    """Features of the linear baseline: the observation, its squares, three powers of time [100 steps], a constant."""
    t = time[..., None] / 100
    return jnp.concatenate([x, x**2, t, t**2, t**3, jnp.ones_like(t)], -1)


def centred(returns: Float[Array, "T B"], data: Data) -> Float[Array, "T B"]:
    """Returns minus their least-squares fit by the features; 0 where `weight` is 0. Linear in the returns."""
    returns = returns * data.weight
    moments = jnp.einsum("tbf,tb->f", data.features, returns) / returns.size
    return returns - data.features @ (data.inverse @ moments)


def reward_advantage(reward: Float[Array, "T B"], gamma: Float[Array, ""], data: Data) -> Float[Array, "T B"]:
    """Centred returns of `reward`, divided by their standard deviation."""
    advantage = centred(discounted_returns(reward, data.played.done, gamma), data)
    return advantage / jnp.sqrt(mean(advantage**2, data.weight) + 1e-8)


def direction(
    weights: Any,
    log_prob: Callable[[Any, Played], Array],
    advantage: Float[Array, "T B"],
    gamma: Float[Array, ""],
    ent_coef: Float[Array, ""],
    data: Data,
) -> Any:
    """Delta: the policy gradient for this advantage with an entropy bonus. Differentiable in all arguments."""
    own = discounted_returns(log_prob(weights, data.played), data.played.done, gamma)
    soft = advantage - ent_coef * centred(own, data)
    return jax.grad(lambda w: mean(log_prob(w, data.played) * soft, data.weight))(weights)


def against_inverse(pull: Callable[[Any], Any], vector: Any, step: Float[Array, ""], terms: int) -> Any:
    """`-H^-T vector`, approximated by step sum_k=0..terms (I + step H^T)^k vector; `pull(x)` is H^T x."""

    def one(carried: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        power, total = carried
        power = jax.tree.map(lambda x, y: x + step * y, power, pull(power))
        return (power, jax.tree.map(jnp.add, total, power)), None

    (_, total), _ = jax.lax.scan(one, (vector, vector), None, terms)
    return jax.tree.map(lambda x: step * x, total)


@dataclasses.dataclass(frozen=True)
class _BARFI:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    network: Network
    reward_network: Network
    observation_space: Space
    action_space: Any
    optimizer: Optimizer
    aux_fn: AuxiliaryReward | None

    def distribution(self, policy: Any, obs: Any) -> Distribution:
        outputs: Any = self.network.apply(policy["network"], encode(self.observation_space, obs))
        outputs = (outputs, policy["log_std"]) if isinstance(self.action_space, Box) else outputs
        return of_space(self.action_space, outputs, split_observation(obs, self.observation_space)[2])

    def log_prob(self, policy: Any, played: Played) -> Array:
        return self.distribution(policy, played.obs).log_prob(played.action)

    def reward(self, phi: Any, played: Played, hyper: Hyper) -> Array:
        """r_phi of every step."""
        outputs: Any = self.reward_network.apply(phi["reward"], encode(self.observation_space, played.obs))
        return mixed(outputs, played.primary, played.auxiliary, hyper)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> BARFIState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        key, policy_key, phi_key, reset_key = jax.random.split(key, 4)
        obs, env_state = self.venv.reset(reset_key, env_params)
        x = encode(self.observation_space, obs)
        policy: Any = {"network": self.network.init(policy_key, x)}
        if isinstance(self.action_space, Box):
            policy["log_std"] = jnp.zeros(num_outputs(self.action_space))
        p = jnp.clip(hyper.gamma, 1e-6, 1 - 1e-6)
        phi = {"reward": self.reward_network.init(phi_key, x), "discount": jnp.log(p) - jnp.log1p(-p)}
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), {"policy": policy, **phi})
        rates = {"policy": hyper.learning_rate, "reward": hyper.reward_learning_rate}
        optimizer = {name: self.optimizer.init(weights[name], rate) for name, rate in rates.items()}
        zero, none = jnp.int32(0), Played((), *[jnp.zeros(0)] * 4)
        state = BARFIState(key, hyper, env_params, env_state, obs, zero, weights, optimizer, none, zero)
        kind = jax.eval_shape(lambda s: self.collect(s)[1].played, state)
        memory = jax.tree.map(lambda x: jnp.zeros((self.config.num_rollouts, *x.shape), x.dtype), kind)
        return state.replace(memory=memory)

    def collect(self, state: BARFIState) -> tuple[BARFIState, Rollout]:
        def act(key, obs, carry):
            action = self.distribution(state.weights["policy"], obs).sample(key)
            in_units = environment_action(self.action_space, action)
            return in_units, (action, in_units), carry

        after, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        action, in_units = steps.output
        if self.aux_fn is None:
            auxiliary = jnp.zeros_like(steps.reward)
        else:
            auxiliary = jax.vmap(jax.vmap(self.aux_fn))(steps.obs, in_units, steps.next_obs)
        played = Played(steps.obs, action, steps.reward, auxiliary.astype(steps.reward.dtype), steps.done)
        return after, Rollout(played, steps.ends)

    def data(self, played: Played, weight: Array) -> Data:
        time = jnp.broadcast_to(jnp.arange(len(weight))[:, None], weight.shape)
        features = baseline_features(encode(self.observation_space, played.obs), time) * weight[..., None]
        gram = jnp.einsum("tbf,tbg->fg", features, features) / weight.size
        eye = jnp.eye(len(gram), dtype=gram.dtype)
        ridge = RIDGE * jnp.trace(gram) / len(gram) + jnp.finfo(gram.dtype).tiny  # the tiny term is for an empty memory
        return Data(played, weight, features, solve(gram + ridge * eye, eye))

    def remembered(self, state: BARFIState) -> Data:
        """The rollouts of the memory as one `Data`, their environments side by side on axis B."""

        def beside(x: Array) -> Array:
            return jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:])

        memory = state.memory
        held = jnp.arange(self.config.num_rollouts) < state.held
        weight = jnp.broadcast_to(held[:, None, None], memory.done.shape).astype(memory.primary.dtype)
        return self.data(jax.tree.map(beside, memory), beside(weight))

    def delta(self, policy: Any, phi: Any, data: Data, hyper: Hyper) -> Any:
        """Delta of a policy's weights and a phi."""
        gamma = jax.nn.sigmoid(phi["discount"])
        advantage = reward_advantage(self.reward(phi, data.played, hyper), gamma, data)
        return direction(policy, self.log_prob, advantage, gamma, hyper.ent_coef, data)

    def implicit_gradient(self, policy: Any, phi: Any, slope: Any, data: Data, hyper: Hyper) -> Any:
        """dJ/dphi, with the policy taken as a root of Delta; `slope` is dJ/dtheta there."""
        _, by_policy = jax.vjp(lambda policy: self.delta(policy, phi, data, hyper), policy)
        solved = against_inverse(lambda x: by_policy(x)[0], slope, hyper.neumann_step, self.config.neumann_terms)
        _, by_phi = jax.vjp(lambda phi: self.delta(policy, phi, data, hyper), phi)
        return by_phi(solved)[0]

    def outer(self, state: BARFIState, slope: Any) -> tuple[Any, OptimizerState, Array]:
        """`(phi, optimiser state, norm of the reward network's gradient)` after the outer step; `slope` is dJ/dtheta.

        Nothing changes while the memory is empty, as Delta is not defined yet.
        """
        hyper, before = state.hyper, state.optimizer["reward"]
        phi = {name: state.weights[name] for name in ("reward", "discount")}
        if not self.config.learn_reward:
            return phi, before, jnp.zeros_like(phi["discount"])
        ascent = self.implicit_gradient(state.weights["policy"], phi, slope, self.remembered(state), hyper)
        flat, unravel = ravel_pytree(phi["reward"])
        down = jax.tree.map(jnp.negative, ascent["reward"])
        flat, own, norm = self.optimizer.descend(flat, before, down, hyper.reward_learning_rate, hyper.max_grad_norm)
        gamma = jax.nn.sigmoid(phi["discount"])
        up = ascent["discount"] - hyper.discount_penalty * gamma * (1 - gamma)
        up = jnp.clip(up, -hyper.max_grad_norm, hyper.max_grad_norm)
        after = {"reward": unravel(flat), "discount": phi["discount"] + hyper.reward_learning_rate * up}
        phi, own = jax.tree.map(lambda x, y: jnp.where(state.held > 0, x, y), (after, own), (phi, before))
        return phi, own, norm

    def learn(self, state: BARFIState, rollout: Rollout) -> tuple[BARFIState, dict[str, Array]]:
        hyper, played = state.hyper, rollout.played
        policy, optimizer = state.weights["policy"], dict(state.optimizer)

        fresh = self.data(played, jnp.ones_like(played.primary))
        advantage = reward_advantage(played.primary, hyper.gamma, fresh)

        def lost(policy: Any) -> Array:
            return -jnp.mean(self.log_prob(policy, played) * advantage)

        loss, slope = jax.value_and_grad(lost)(policy)
        phi, optimizer["reward"], phi_norm = self.outer(state, jax.tree.map(jnp.negative, slope))

        memory = jax.tree.map(lambda old, new: jnp.concatenate([new[None], old[:-1]]), state.memory, played)
        state = state.replace(memory=memory, held=jnp.minimum(state.held + 1, self.config.num_rollouts))
        data = self.remembered(state)
        gamma = jax.nn.sigmoid(phi["discount"])
        reward = self.reward(phi, data.played, hyper)
        by_reward = reward_advantage(reward, gamma, data)  # the same for all inner steps

        def inner(carried: Any, _: None) -> tuple[Any, Array]:
            flat, own = carried
            up = direction(unravel(flat), self.log_prob, by_reward, gamma, hyper.ent_coef, data)
            flat, own, norm = self.optimizer.descend(
                flat, own, jax.tree.map(jnp.negative, up), hyper.learning_rate, hyper.max_grad_norm
            )
            return (flat, own), norm

        flat, unravel = ravel_pytree(policy)
        (flat, optimizer["policy"]), norms = jax.lax.scan(
            inner, (flat, optimizer["policy"]), None, self.config.inner_steps
        )
        outputs: Any = self.reward_network.apply(phi["reward"], encode(self.observation_space, played.obs))
        metrics = {
            **rollout.ends.metrics(),
            "loss": loss,
            "entropy": jnp.mean(self.distribution(policy, played.obs).entropy()),
            "grad_norm": norms[-1],
            "reward_grad_norm": phi_norm,
            "discount": gamma,
            "primary_weight": jnp.mean(outputs[..., 1]) + hyper.primary_weight,
            "auxiliary_weight": jnp.mean(outputs[..., 2]) + hyper.auxiliary_weight,
        }
        return state.replace(weights={"policy": unravel(flat), **phi}, optimizer=optimizer), metrics

    def policy(self, state: BARFIState) -> Any:
        return state.weights["policy"]

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.distribution(policy, obs)
        return environment_action(self.action_space, pi.mode() if greedy else pi.sample(key)), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    aux_fn: AuxiliaryReward | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """BARFI on `env`. Feed-forward policies.

    Args:
        aux_fn: the auxiliary reward of one step, `(obs, action, next_obs) -> scalar`; None: there is none, and r_phi is
            the weighted primary reward plus a bonus of the state.
        optimizer: of both levels, in place of `config.optimizer`; see `optimizer_of`.

    Raises ValueError for several agents, action spaces that are not Discrete, MultiDiscrete or Box, and an auxiliary
    reward that is no scalar.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("barfi", venv, Discrete, MultiDiscrete, Box)
    network = MLP(config.hidden, num_outputs(action_space), config.activation, out_scale=0.01)
    reward_network = MLP(config.reward_hidden, 3, config.activation, out_scale=0.0)
    chosen = optimizer_of(config.optimizer if optimizer is None else optimizer, eps=config.adam_eps)
    learner = _BARFI(config, venv, network, reward_network, observation_space, action_space, chosen, aux_fn)
    if aux_fn is not None:
        shape = jax.eval_shape(lambda key: learner.init(key).memory.auxiliary, jax.random.key(0)).shape
        if shape != (config.num_rollouts, config.num_steps, config.num_envs):
            raise ValueError(f"aux_fn gives {shape[3:]} numbers a step: an auxiliary reward is a scalar.")
    return algorithm_of("barfi", learner, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
