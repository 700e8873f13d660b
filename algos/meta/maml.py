"""MAML: learns initial weights from which one policy-gradient step on a new task gives a good policy.

Finn, Abbeel and Levine (2017), "Model-agnostic meta-learning for fast adaptation of deep networks", arXiv:1703.03400,
section 5.3. The initial policy plays each task, and its weights take an inner step along the policy gradient,

    theta' = theta + alpha grad J_task(theta),        objective: mean over tasks of J_task(theta')

The outer step follows the gradient of the adapted policies' returns with respect to the initial weights, through the
inner step: (I + alpha Hessian J(theta)) grad J(theta'). `first_order` leaves the Hessian out (FOMAML).

Both returns are represented by the surrogate sum r A with r = pi(a|s) / pi_old(a|s). Only its derivatives are used: the
first is the policy gradient, the second a low-variance estimate of the Hessian, exact where an action affects only its
own step (Rothfuss et al. 2019, "ProMP", arXiv:1810.06784, section 5). The original differentiates log pi A twice, which
misses the part of the Hessian from the distribution of trajectories. As in the original, the outer gradient ignores
that the initial policy also draws the trajectories of the inner step (E-MAML).

A task is a setting of the environment's params, drawn by `env.generate` or a `task_fn`. Advantages are returns minus a
baseline that is linear in observation and time, fitted to each task's trajectories (Duan et al. 2016,
arXiv:1604.06778), as in the original. A rollout is one new episode of each environment; later steps are ignored.
Deviation: an outer step of Adam in place of TRPO. `adapt` gives the policy after some inner steps on a task, for
deployment. Results: `experiments/maml/`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.algorithm import (
    Algorithm,
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


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_tasks: int = 20  # tasks of an outer step
    num_envs: int = 20  # environments of a task
    num_steps: int = 100  # steps of a rollout, of which the first episode counts; choose the task's time limit
    inner_steps: int = 1
    first_order: bool = False  # without second derivatives: FOMAML
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    optimizer: str = "adam"  # of the outer step; a name of optim.OPTIMIZERS
    adam_eps: float = 1e-5  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_tasks", "num_envs", "num_steps", "inner_steps")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-3  # of the outer step
    inner_learning_rate: jax.Array = 0.1  # alpha
    gamma: jax.Array = 0.99
    max_grad_norm: jax.Array = 0.5  # of the outer gradient
    ridge: jax.Array = 1e-5  # regularisation of the baseline's fit


@pytree
class MAMLState:
    key: jax.Array
    hyper: Hyper
    env_params: Any  # params of the task distribution
    env_state: Any  # (), as is `obs`: every rollout begins new episodes
    obs: Any
    step: jax.Array  # environment steps done
    weights: Any  # the initial weights theta
    optimizer: OptimizerState


@pytree
class Playing:
    """The state that `rollout` advances: environments of one task."""

    key: jax.Array
    env_params: Any
    env_state: Any
    obs: Any
    step: jax.Array


class Played(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    action: Array
    log_prob: Array  # of the action under the policy that drew it
    advantage: Array


class Rollout(NamedTuple):
    """Trajectories of all tasks, before and after each of K inner steps: leaves (K + 1, tasks, T, N, ...)."""

    played: Played
    returns: Array  # (K + 1,) mean returns of one episode
    ends: Ends  # of the policies after the last inner step, (T, tasks * N)


def linear_baseline(
    features: Float[Array, "T N F"], returns: Float[Array, "T N"], ridge: Float[Array, ""] | float
) -> Float[Array, "T N"]:
    """The least-squares fit of returns by features; `ridge` is relative to the features' mean square."""
    x, y = features.reshape(-1, features.shape[-1]), returns.reshape(-1)
    gram = x.T @ x / len(x)
    size = jnp.trace(gram) / len(gram)
    weights = solve(gram + ridge * size * jnp.eye(len(gram), dtype=x.dtype), x.T @ y / len(x))
    return features @ weights


def with_time(x: Float[Array, "T N F"], time: Integer[Array, "T N"]) -> Float[Array, "T N G"]:
    """Features of the linear baseline: the observation, its squares, three powers of time [100 steps], a constant."""
    t = time[..., None] / 100
    return jnp.concatenate([x, x**2, t, t**2, t**3, jnp.ones_like(t)], -1)


def first_episodes(done: Bool[Array, "T N"]) -> Float[Array, "T N"]:
    """1 for the steps of an environment's first episode, its last step included; 0 for later steps."""
    ended = jnp.cumsum(done, 0) - done
    return (ended == 0).astype(jnp.result_type(float))


@dataclasses.dataclass(frozen=True)
class MAML:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    hyper: ClassVar[type] = Hyper
    config: Config
    venv: VectorEnv
    network: Network
    observation_space: Space
    action_space: Any
    optimizer: Optimizer
    task_fn: Callable[[Array, Any], Any]

    def distribution(self, weights: Any, obs: Any) -> Distribution:
        outputs: Any = self.network.apply(weights["network"], encode(self.observation_space, obs))
        outputs = (outputs, weights["log_std"]) if isinstance(self.action_space, Box) else outputs
        return of_space(self.action_space, outputs, split_observation(obs, self.observation_space)[2])

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> MAMLState:
        hyper, env_params = starting_values(self.hyper, self.venv, hyper, env_params)
        key, weights_key, task_key, reset_key = jax.random.split(key, 4)
        obs, _ = self.venv.reset(reset_key, self.task_fn(task_key, env_params))
        weights: Any = {"network": self.network.init(weights_key, encode(self.observation_space, obs))}
        if isinstance(self.action_space, Box):
            weights["log_std"] = jnp.zeros(num_outputs(self.action_space))
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        optimizer = self.optimizer.init(weights, hyper.learning_rate)
        return MAMLState(key, hyper, env_params, (), (), jnp.int32(0), weights, optimizer)

    def play(self, weights: Any, key: Array, task: Any, hyper: Hyper) -> tuple[Played, Array, Ends]:
        """`(trajectories, mean return of one episode, ends)` of a policy on a task."""
        reset_key, key = jax.random.split(key)
        obs, env_state = self.venv.reset(reset_key, task)

        def act(key: Array, obs: Any, carry: Any) -> tuple[Any, Any, Any]:
            pi = self.distribution(weights, obs)
            action = pi.sample(key)
            return environment_action(self.action_space, action), (action, pi.log_prob(action)), carry

        start = Playing(key, task, env_state, obs, jnp.int32(0))
        _, _, steps = rollout(self.venv, start, self.config.num_steps, act)
        action, log_prob = steps.output
        # One episode of each environment. There is no bootstrap at the end of the rollout, as in the original.
        counts = first_episodes(steps.done)
        returns = discounted_returns(steps.reward, steps.done, hyper.gamma)
        time = jnp.broadcast_to(jnp.arange(self.config.num_steps)[:, None], counts.shape)
        features = with_time(encode(self.observation_space, steps.obs), time) * counts[..., None]
        advantage = (returns - linear_baseline(features, returns * counts, hyper.ridge)) * counts
        share = jnp.mean(counts)
        centred = (advantage - jnp.mean(advantage) / share) * counts
        advantage = centred / (jnp.sqrt(jnp.mean(centred**2) / share) + 1e-8) / share  # a mean over episodes
        total = jnp.mean(jnp.sum(steps.reward * counts, 0))
        return jax.lax.stop_gradient(Played(steps.obs, action, log_prob, advantage)), total, steps.ends

    def surrogate(self, weights: Any, played: Played) -> Array:
        """-mean(r A) of trajectories: r is 1 at the weights that played them; derivatives are the return's."""
        log_prob = self.distribution(weights, played.obs).log_prob(played.action)
        return -jnp.mean(jnp.exp(log_prob - played.log_prob) * played.advantage)

    def adapted(self, weights: Any, played: Played, hyper: Hyper) -> Any:
        """The weights after an inner step on trajectories that were played with them."""

        grads = jax.grad(self.surrogate)(weights, played)
        grads = jax.lax.stop_gradient(grads) if self.config.first_order else grads
        return jax.tree.map(lambda x, g: x - hyper.inner_learning_rate * g, weights, grads)

    def collect(self, state: MAMLState) -> tuple[MAMLState, Rollout]:
        key, task_key, play_key = jax.random.split(state.key, 3)
        n, hyper = self.config.num_tasks, state.hyper
        tasks = jax.vmap(self.task_fn, (0, None))(jax.random.split(task_key, n), state.env_params)

        def of_task(key: Array, task: Any) -> tuple[Any, Array, Ends]:
            weights, found = state.weights, []
            for i in range(self.config.inner_steps + 1):
                found.append(self.play(weights, jax.random.fold_in(key, i), task, hyper))
                if i < self.config.inner_steps:
                    weights = self.adapted(weights, found[-1][0], hyper)
            played = jax.tree.map(lambda *x: jnp.stack(x), *(played for played, *_ in found))
            return played, jnp.stack([total for _, total, _ in found]), found[-1][2]

        played, totals, ends = jax.vmap(of_task)(jax.random.split(play_key, n), tasks)
        played = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), played)
        flat = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1), ends)
        steps = (self.config.inner_steps + 1) * n * self.config.num_envs * self.config.num_steps
        return state.replace(key=key, step=state.step + steps), Rollout(played, totals.mean(0), flat)

    def objective(self, weights: Any, played: Any, hyper: Hyper) -> Array:
        """The adapted policy's `surrogate` on one task; `played` has leaves (K + 1, T, N, ...)."""
        for i in range(self.config.inner_steps):
            weights = self.adapted(weights, jax.tree.map(lambda x, i=i: x[i], played), hyper)
        return self.surrogate(weights, jax.tree.map(lambda x: x[-1], played))

    def learn(self, state: MAMLState, rollout: Rollout) -> tuple[MAMLState, dict[str, Array]]:
        hyper = state.hyper

        def total(weights: Any) -> Array:
            return jnp.mean(jax.vmap(self.objective, (None, 1, None))(weights, rollout.played, hyper))

        value, grads = jax.value_and_grad(total)(state.weights)
        flat, unravel = ravel_pytree(state.weights)
        flat, optimizer, norm = self.optimizer.descend(
            flat, state.optimizer, grads, hyper.learning_rate, hyper.max_grad_norm
        )
        metrics = {**rollout.ends.metrics(), "loss": value, "grad_norm": norm}
        metrics |= {"return_before": rollout.returns[0], "return_after": rollout.returns[-1]}
        return state.replace(weights=unravel(flat), optimizer=optimizer), metrics

    def policy(self, state: Any) -> Any:
        return state.weights

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.distribution(policy, obs)
        return environment_action(self.action_space, pi.mode() if greedy else pi.sample(key)), carry


def adapt(algo: Algorithm, weights: Any, key: Array, task: Any, hyper: Any, steps: int = 1) -> tuple[Any, Array]:
    """`(weights, returns (steps + 1,))` after inner steps on a task: mean returns before each and after the last.

    A return is that of one episode, up to `num_steps` steps. `task` are params of the environment, `hyper` the
    algorithm's settings (`state.hyper`). Pure: jit and vmap it.
    """
    learner: Any = algo.policy
    learner, returns = learner.__self__, []
    for i in range(steps + 1):
        played, total, _ = learner.play(weights, jax.random.fold_in(key, i), task, hyper)
        returns.append(total)
        weights = learner.adapted(weights, played, hyper) if i < steps else weights
    return weights, jnp.stack(returns)


def drawn_by(env: Environment, task_fn: Callable[[Array, Any], Any] | None) -> Callable[[Array, Any], Any]:
    """The function that draws tasks: `task_fn`, else the environment's `generate`, else its params are the one task."""
    kit = env.levels
    return task_fn or (kit and kit.generate) or (lambda key, params: params)


def parts(env: Environment, config: Any, task_fn: Any, optimizer: OptimizerLike | None, name: str) -> MAML:
    """The object behind `make`, for algorithms that adapt by policy gradients."""
    draw = drawn_by(env, task_fn)
    kit = env.levels
    inner = kit.env if task_fn is None and kit is not None else env
    venv = as_vector_env(inner, config.num_envs)
    observation_space, action_space = spaces_of(name, venv, Discrete, MultiDiscrete, Box)
    network = MLP(config.hidden, num_outputs(action_space), config.activation)
    chosen = optimizer_of(config.optimizer if optimizer is None else optimizer, eps=config.adam_eps)
    return MAML(config, venv, network, observation_space, action_space, chosen, draw)


@shared
def make(
    env: Environment,
    config: Config = Config(),
    *,
    task_fn: Callable[[Array, Any], Any] | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """MAML on tasks of `env`. Feed-forward policies; a step counts in environment steps, before and after adaptation.

    Args:
        task_fn: `(key, env_params)` to the params of a task; default: `env.generate`, and without one the params.
        optimizer: of the outer step, in place of `config.optimizer`; see `optimizer_of`.

    Raises ValueError for several agents and action spaces that are not Discrete, MultiDiscrete or Box.
    """
    learner = parts(env, config, task_fn, optimizer, "maml")
    steps = (config.inner_steps + 1) * config.num_tasks * config.num_envs * config.num_steps
    return algorithm_of("maml", learner, Hyper, steps)
