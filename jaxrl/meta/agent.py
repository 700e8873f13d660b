"""An agent that learns by an update rule: acting, the outputs that the rule reads, and steps towards its targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxrl.algorithm import (
    Algorithm,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    check_minibatches,
    shared,
    spaces_of,
    starting_values,
)
from jaxrl.environment import Environment, is_concrete, pytree, split_observation
from jaxrl.math import on_cpu
from jaxrl.meta.rule import Lifetime, Seen, UpdateRule, fresh_weights
from jaxrl.nn.distributions import Distribution, mask_logits, num_outputs, of_space
from jaxrl.nn.networks import MLP, Dense, Network, encode
from jaxrl.nn.optim import Optimizer, OptimizerState, optimizer_of
from jaxrl.rollout import Ends, Steps, rollout
from jaxrl.spaces import Discrete, Space, environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class AgentConfig:
    """Static settings: each value compiles its own program. The defaults are LPG's for tabular levels."""

    num_envs: int = 64  # environments stepped together
    num_steps: int = 20  # steps of each in a rollout, which may be longer than an episode
    num_epochs: int = 1  # passes over a rollout
    num_minibatches: int = 1
    hidden: tuple[int, ...] = ()  # widths of actor and critic; (): one matrix without bias, tabular for one-hot inputs
    activation: str = "relu"
    optimizer: str = "sgd"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "num_epochs", "num_minibatches")
        check_minibatches(self.num_minibatches, self.num_envs * self.num_steps, "num_envs * num_steps")

    def in_passes(self, passes: int) -> AgentConfig:
        """The same with so many passes over a rollout, each in as many minibatches, or in fewer that divide it."""
        steps = self.num_envs * self.num_steps
        parts = max(n for n in range(1, passes + 1) if steps % n == 0)
        return dataclasses.replace(self, num_epochs=passes, num_minibatches=parts)


TABULAR = AgentConfig()
"""The settings of LPG's agents on tabular levels."""


@pytree
class AgentHyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    rule: Any = None  # the rule's weights; None: its `init` with a fixed key
    learning_rate: jax.Array = 40.0  # of the actor
    critic_learning_rate: jax.Array = 4.0  # of the rule's heads
    max_grad_norm: jax.Array = 0.5  # of the gradient of each of the two networks
    lifetime: jax.Array = 2500  # updates of a life; rules may depend on it


@pytree
class AgentState:
    key: jax.Array
    hyper: AgentHyper
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # environment steps done
    updates: jax.Array  # int32, updates done
    weights: Any  # {"actor": ..., "critic": ...}
    optimizer: dict[str, OptimizerState]


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    action: Array  # as sampled, before clipping to the box
    last_obs: Any  # (N, ...), the observation after the last step
    steps: Steps
    ends: Ends


def _product(table: Array, index: Array) -> Array:
    return jax.nn.one_hot(index, table.shape[0], dtype=table.dtype) @ table


class Body(nn.Module):
    """Dense layers; with `hidden=()` one matrix on the encoded observation: for Discrete observations a table."""

    observation_space: Space
    out: int
    hidden: tuple[int, ...]
    activation: str
    privileged: bool = False

    @nn.compact
    def __call__(self, obs: Any) -> Array:
        if not self.hidden and isinstance(self.observation_space, Discrete):
            init = nn.initializers.lecun_normal()
            table = self.param("table", init, (self.observation_space.n, self.out))
            # Where a gather is cheap the row is read; elsewhere it is a product with a one-hot, as without this branch.
            return on_cpu(lambda table, i: table[i], _product, table, obs)
        x = encode(self.observation_space, obs, self.privileged)
        if not self.hidden:
            return Dense(self.out, use_bias=False)(x)
        return MLP(self.hidden, self.out, self.activation)(x)


@dataclasses.dataclass(frozen=True)
class _Agent:
    """The static settings of the agent; its methods are the Algorithm's functions."""

    rule: UpdateRule
    config: AgentConfig
    venv: VectorEnv
    actor: Network
    critic: Network
    observation_space: Space
    action_space: Any
    optimizer: Optimizer

    def outputs(self, weights: Any, obs: Any) -> dict[str, Array]:
        """`logits` and the rule's heads, (..., size) each, for observations with any leading shape."""
        heads: Any = self.critic.apply(weights["critic"], obs)
        said: dict[str, Array] = {"logits": self.logits(weights, obs)}
        begin = 0
        for name, size in self.rule.heads:
            said[name], begin = heads[..., begin : begin + size], begin + size
        return said

    def logits(self, weights: Any, obs: Any) -> Any:
        """Of the policy, so that what a rule computes of them knows which actions the observation's mask allows."""
        logits, mask = self.actor.apply(weights["actor"], obs), split_observation(obs, self.observation_space)[2]
        return logits if mask is None else mask_logits(logits, mask)

    def distribution(self, logits: Any) -> Distribution:
        return of_space(self.action_space, logits)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> AgentState:
        given = getattr(hyper, "lifetime", 1)  # still a number here, in a trace too, before it becomes an array
        if is_concrete(given) and np.any(np.asarray(given) < 1):
            raise ValueError(f"hyper.lifetime={given}: a life has at least one update.")
        hyper, env_params = starting_values(AgentHyper, self.venv, hyper, env_params)
        if hyper.rule is None:
            hyper = hyper.replace(rule=fresh_weights(self.rule, jax.random.key(0)))
        elif jax.tree.leaves(hyper.rule):  # (): a meta-learner puts them in later
            check_weights(self.rule, hyper.rule)
        key, actor_key, critic_key, reset_key = jax.random.split(key, 4)
        obs, env_state = self.venv.reset(reset_key, env_params)
        first = jax.tree.map(lambda x: x[0], obs)
        weights = {"actor": self.actor.init(actor_key, first), "critic": self.critic.init(critic_key, first)}
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        rates = {"actor": hyper.learning_rate, "critic": hyper.critic_learning_rate}
        optimizer = {name: self.optimizer.init(weights[name], rate) for name, rate in rates.items()}
        zero = jnp.int32(0)
        return AgentState(key, hyper, env_params, env_state, obs, zero, zero, weights, optimizer)

    def collect(self, state: AgentState) -> tuple[AgentState, Rollout]:
        def act(key, obs, carry):
            action = self.distribution(self.logits(state.weights, obs)).sample(key)
            return environment_action(self.action_space, action), action, carry

        after, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        return after, Rollout(steps.obs, steps.output, after.obs, steps, steps.ends)

    def seen(self, weights: Any, rollout: Rollout) -> Seen:
        """The rollout as the rule sees it, with the outputs of the agent with these weights."""
        steps = rollout.steps
        obs = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), rollout.obs, rollout.last_obs)
        said = self.outputs(weights, obs)
        now, following = ({name: x[part] for name, x in said.items()} for part in (slice(0, -1), slice(1, None)))

        def successor(name: str) -> Array:
            cut = steps.truncated[..., None]
            return jnp.where(cut, self.outputs(weights, steps.next_obs)[name], following[name])

        log_prob = self.distribution(now["logits"]).log_prob(rollout.action)
        return Seen(
            rollout.action, log_prob, steps.reward, steps.terminated, steps.truncated, now, following, successor
        )

    def told(self, fn: Callable[..., Any], *args: Any) -> Any:
        """`fn` of the rule. Raises ValueError where it reads an output that the agent does not give."""
        given = ["logits", *(name for name, _ in self.rule.heads)]
        try:
            return fn(*args)
        except KeyError as error:
            name = error.args[0] if error.args else None
            if not isinstance(name, str) or name in given:
                raise
            raise ValueError(
                f"{self.rule.name} reads {name!r}, and an agent by it gives {', '.join(given)}: an output beside the "
                f"logits is one of the rule's heads, with its size, as ({name!r}, 1)."
            ) from error

    def learn(self, state: AgentState, rollout: Rollout) -> tuple[AgentState, dict[str, Array]]:
        return self.taught(state, rollout)[:2]

    def taught(
        self, state: AgentState, rollout: Rollout, held: bool = True
    ) -> tuple[AgentState, dict[str, Array], dict[str, Array]]:
        """`(state, metrics, regularisers)` after an update by the rule, differentiable in `state.hyper.rule`.

        The regularisers are the second output of `rule.targets`, for a meta-objective. Targets are constants of the
        agent's loss. With `held` the rule's inputs are constants, too: a gradient through several updates then does not
        flow through the agent's predictions in the rollout.
        """
        config, hyper = self.config, state.hyper
        seen = self.seen(jax.lax.stop_gradient(state.weights) if held else state.weights, rollout)
        lifetime = Lifetime(state.updates, hyper.lifetime)
        targets, weighed = self.told(self.rule.targets, hyper.rule, seen, lifetime)
        rates_of = self.rule.rates
        factors = (1.0, 1.0) if rates_of is None else self.told(rates_of, hyper.rule, seen, targets, lifetime)
        if len(factors) != 2:
            raise ValueError(
                f"{self.rule.name}: rates gives {len(factors)} factors; they are two, actor's and critic's."
            )
        given = {"actor": hyper.learning_rate, "critic": hyper.critic_learning_rate}
        rates = {name: rate * factor for (name, rate), factor in zip(given.items(), factors, strict=True)}
        count = config.num_envs * config.num_steps
        rows = jax.tree.map(
            lambda x: x.reshape(count, *x.shape[2:]), (rollout.obs, seen._replace(successor=()), targets)
        )

        def loss(weights, rows):
            obs, seen, targets = rows
            said = self.outputs(weights, obs)
            each, report = self.told(self.rule.loss, hyper.rule, said, seen, targets)
            assert each.shape == seen.reward.shape, (
                f"{self.rule.name}: a loss {each.shape} of {seen.reward.shape} steps"
            )
            total = jnp.mean(each)
            return total, {"loss": total, **report}

        def step(carried, rows):
            weights, optimizer = carried
            grads, report = jax.grad(loss, has_aux=True)(weights, rows)
            new, optimizer, norms = {}, dict(optimizer), {}
            for name, rate in rates.items():
                flat, unravel = ravel_pytree(weights[name])
                flat, optimizer[name], norms[f"{name}_grad_norm"] = self.optimizer.descend(
                    flat, optimizer[name], grads[name], rate, hyper.max_grad_norm
                )
                new[name] = unravel(flat)
            return (new, optimizer), {**report, **norms}

        carried = state.weights, state.optimizer
        if config.num_epochs == config.num_minibatches == 1:
            carried, report = step(carried, rows)
        else:
            carried, report = self._passes(step, carried, rows, jax.random.fold_in(state.key, 1), count)
        weights, optimizer = carried
        state = state.replace(weights=weights, optimizer=optimizer, updates=state.updates + 1)
        return state, {**rollout.ends.metrics(), **report}, weighed

    def _passes(self, step: Any, carried: Any, rows: Any, key: Array, count: int) -> tuple[Any, dict[str, Array]]:
        def epoch(carried, key):
            order = jax.random.permutation(key, count).reshape(self.config.num_minibatches, -1)
            parts = jax.tree.map(lambda x: x[order], rows)
            return jax.lax.scan(step, carried, parts)

        carried, reports = jax.lax.scan(epoch, carried, jax.random.split(key, self.config.num_epochs))
        return carried, jax.tree.map(jnp.mean, reports)

    def policy(self, state: AgentState) -> Any:
        return state.weights["actor"]

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.distribution(self.logits({"actor": policy}, obs))
        return environment_action(self.action_space, pi.mode() if greedy else pi.sample(key)), carry


def check_rule(rule: UpdateRule) -> None:
    """Raise TypeError for what is no rule, and ValueError for heads that an agent cannot have."""
    if not isinstance(rule, UpdateRule):
        raise TypeError(f"rule is a {type(rule).__qualname__}, not an UpdateRule; a stored one is the field `rule`.")
    names = [name for name, _ in rule.heads]
    if len({"logits", *names}) <= len(names):
        raise ValueError(f"{rule.name}: heads={rule.heads} must have names that differ, and none may be 'logits'.")
    if any(type(size) is not int or size < 1 for _, size in rule.heads):
        raise ValueError(f"{rule.name}: heads={rule.heads} must have sizes of at least 1.")


def check_weights(rule: UpdateRule, weights: Any) -> None:
    """Raise ValueError for weights of another network than the rule's."""

    def shapes(tree: Any) -> dict[str, tuple[int, ...]]:
        return {jax.tree_util.keystr(at): jnp.shape(x) for at, x in jax.tree_util.tree_leaves_with_path(tree)}

    wanted, given = shapes(jax.eval_shape(rule.init, jax.random.key(0))), shapes(weights)
    for at in sorted(wanted.keys() | given.keys()):
        if wanted.get(at) != given.get(at):
            needed = f"needs {wanted[at]}" if at in wanted else "has none"
            raise ValueError(
                f"hyper.rule has other weights than {rule.name}: {at} is {given.get(at, 'missing')}, and it {needed}."
            )


def agent_parts(rule: UpdateRule, env: Environment | VectorEnv, config: AgentConfig) -> _Agent:
    """The object behind `agent`, whose methods meta-learners differentiate through.

    Raises TypeError for what is no rule, ValueError for heads that no agent can have, for an action space that the rule
    does not support, and for several agents.
    """
    check_rule(rule)
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of(rule.name, venv, *(rule.spaces or (Discrete,)))
    sizes = num_outputs(action_space), sum(size for _, size in rule.heads)
    actor = Body(observation_space, sizes[0], config.hidden, config.activation)
    critic = Body(observation_space, sizes[1], config.hidden, config.activation, privileged=True)
    chosen = optimizer_of(config.optimizer, eps=config.adam_eps)
    return _Agent(rule, config, venv, actor, critic, observation_space, action_space, chosen)


@shared
def agent(rule: UpdateRule, env: Environment | VectorEnv, config: AgentConfig = TABULAR) -> Algorithm:
    """An agent that learns by `rule`; the weights of the rule are the field `rule` of the agent's Hyper.

    Raises ValueError for an action space that the rule does not support, and for several agents.
    """
    learner = agent_parts(rule, env, config)
    return algorithm_of(rule.name, learner, AgentHyper, config.num_envs * config.num_steps)
