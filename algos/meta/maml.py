"""MAML: initial weights from which one step of policy gradient on a new task goes far.

Finn, Abbeel and Levine (2017), "Model-agnostic meta-learning for fast adaptation of deep networks", arXiv:1703.03400,
section 5.3. For every task the initial policy plays, its weights make an inner step along the policy gradient,

    theta' = theta + alpha grad J_task(theta),        objective: mean over tasks of J_task(theta')

and the outer step follows the gradient of the adapted policies' returns by the initial weights, through the inner step:
(I + alpha Hessian J(theta)) grad J(theta'). `first_order` leaves the Hessian out (FOMAML).

Both returns are estimated by sum r A with r = pi(a|s) / what it was when a was drawn, whose value is of no interest and
whose derivatives are the policy gradient and a curvature that is right where a step's action decides about that step
alone, and of low variance elsewhere (Rothfuss et al. 2019, "ProMP", arXiv:1810.06784, section 5): log pi A, which the
original differentiates twice, misses the part of the Hessian that comes from what is played. That the initial policy
also decides which trajectories it adapts by (E-MAML) is left out, as in the original.

A task is a setting of the environment's params, by `env.generate` or a `task_fn`. Advantages are returns less a
baseline that is linear in observation and time, fitted to each task's trajectories (Duan et al. 2016,
arXiv:1604.06778), as in the original; a rollout is one new episode of each environment, what follows it is left out.
Deviation: an outer step of Adam in place of TRPO. `adapt` is for deployment: the policy after some inner steps on a
task. Results: `experiments/maml/`.
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
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_tasks: int = 20  # of an outer step
    num_envs: int = 20  # environments of a task
    num_steps: int = 100  # of a rollout, of which one episode of each counts; give it the task's time limit
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
    ridge: jax.Array = 1e-5  # of the baseline's fit


@pytree
class MAMLState:
    key: jax.Array
    hyper: Hyper
    env_params: Any  # what tasks are drawn of
    env_state: Any  # and of observations there is none: every rollout begins new episodes
    obs: Any
    step: jax.Array  # environment steps done
    weights: Any  # the initial ones
    optimizer: OptimizerState


@pytree
class Playing:
    """What `rollout` advances: environments of one task."""

    key: jax.Array
    env_params: Any
    env_state: Any
    obs: Any
    step: jax.Array


class Played(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    action: Array
    log_prob: Array  # of the action, when it was drawn
    advantage: Array


class Rollout(NamedTuple):
    """What the policies of all tasks did, before and after each inner step: leaves (K + 1, tasks, T, N, ...)."""

    played: Played
    returns: Array  # (K + 1,) mean returns of one episode
    ends: Ends  # after the last step, (T, tasks * N)


def linear_baseline(
    features: Float[Array, "T N F"], returns: Float[Array, "T N"], ridge: Float[Array, ""] | float
) -> Float[Array, "T N"]:
    """The least-squares fit of returns by features, the ridge being relative to their mean square."""
    x, y = features.reshape(-1, features.shape[-1]), returns.reshape(-1)
    gram = x.T @ x / len(x)
    size = jnp.trace(gram) / len(gram)
    weights = solve(gram + ridge * size * jnp.eye(len(gram), dtype=x.dtype), x.T @ y / len(x))
    return features @ weights


def with_time(x: Float[Array, "T N F"], time: Integer[Array, "T N"]) -> Float[Array, "T N G"]:
    """What the baseline is linear in: the observation, its squares, three powers of time [100 steps] and a constant."""
    t = time[..., None] / 100
    return jnp.concatenate([x, x**2, t, t**2, t**3, jnp.ones_like(t)], -1)


def first_episodes(done: Bool[Array, "T N"]) -> Float[Array, "T N"]:
    """1 for the steps until an environment's first episode ends, that one too; 0 for those after."""
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
        """`(what a policy did on a task, its mean return of one episode, where episodes ended)`."""
        reset_key, key = jax.random.split(key)
        obs, env_state = self.venv.reset(reset_key, task)

        def act(key: Array, obs: Any, carry: Any) -> tuple[Any, Any, Any]:
            pi = self.distribution(weights, obs)
            action = pi.sample(key)
            return environment_action(self.action_space, action), (action, pi.log_prob(action)), carry

        start = Playing(key, task, env_state, obs, jnp.int32(0))
        _, _, steps = rollout(self.venv, start, self.config.num_steps, act)
        action, log_prob = steps.output
        # One episode of each environment. What lies beyond the rollout's end counts as nothing, as in the original.
        counts = first_episodes(steps.done)
        returns = discounted_returns(steps.reward, steps.done, hyper.gamma)
        time = jnp.broadcast_to(jnp.arange(self.config.num_steps)[:, None], counts.shape)
        features = with_time(encode(self.observation_space, steps.obs), time) * counts[..., None]
        advantage = (returns - linear_baseline(features, returns * counts, hyper.ridge)) * counts
        share = jnp.mean(counts)
        centred = (advantage - jnp.mean(advantage) / share) * counts
        advantage = centred / (jnp.sqrt(jnp.mean(centred**2) / share) + 1e-8) / share  # so that a mean is over episodes
        total = jnp.mean(jnp.sum(steps.reward * counts, 0))
        return jax.lax.stop_gradient(Played(steps.obs, action, log_prob, advantage)), total, steps.ends

    def surrogate(self, weights: Any, played: Played) -> Array:
        """-mean(r A) of what was played, r being 1 where these weights played it: its derivatives are the return's."""
        log_prob = self.distribution(weights, played.obs).log_prob(played.action)
        return -jnp.mean(jnp.exp(log_prob - played.log_prob) * played.advantage)

    def adapted(self, weights: Any, played: Played, hyper: Hyper) -> Any:
        """The weights after an inner step on what was played with them."""

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

    A return is of one episode, as far as `num_steps` steps go. `task` are params of the environment, `hyper` the
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
    """What draws tasks: `task_fn`, else the environment's `generate`, else its params are the one task."""
    kit = env.levels
    return task_fn or (kit and kit.generate) or (lambda key, params: params)


def parts(env: Environment, config: Any, task_fn: Any, optimizer: OptimizerLike | None, name: str) -> MAML:
    """The static half of an algorithm that adapts by policy gradients."""
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
