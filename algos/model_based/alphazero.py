"""AlphaZero: a policy and a value network that learn from a tree search through the environment itself.

Silver et al. (2018), "A general reinforcement learning algorithm that masters chess, shogi and Go through self-play",
for one agent. The environment's own `step` is the model of the search, which is DeepMind's `mctx`
(the extra `mctx`): with `search="puct"` that of AlphaZero and MuZero (Schrittwieser et al. 2020, app. B), with
`search="gumbel"` that of Danihelka et al. (2022), "Policy improvement by planning with Gumbel", which improves on the
network also with few simulations. Each step of a rollout is searched from; learning minimises

    -sum_a w(a) log pi(a) + vf_coef (v - target)^2 / 2

where w is the search's policy (visit shares; softmax(logits + scaled completed action values) with Gumbel) and target
the lambda-return that bootstraps from the search's values, sum_a w(a) q(a).

An edge of the tree that ends an episode leads to a permanent leaf: of value 0 if the episode terminated, of the
network's value if it was truncated. In a stochastic environment a simulation draws an outcome once, when it expands the
edge, and the search then plans with this known outcome: action values, and with them the search's values, are
optimistic (`td_lambda=1` keeps these out of the targets). There is no learned model (MuZero) and there are no chance
nodes.

Deviations: no replay buffer, but several passes over each rollout, as in PPO; no weight decay; no schedule of the
temperature. Results: `docs/algos/alphazero.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl import extras, on_policy
from jaxrl.algorithm import (
    Algorithm,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    check_minibatches,
    environment_of,
    shared,
    spaces_of,
)
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.math import shuffled
from jaxrl.nn import nets
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.nn.networks import ActorCritic, Network, own
from jaxrl.nn.optim import Optimizer, OptimizerLike, annealed, optimizer_of
from jaxrl.on_policy import epochs, flattened
from jaxrl.returns import lambda_returns
from jaxrl.rollout import Ends, ends_of, step_keys, successor_values, ticked
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 16  # environments stepped together
    num_steps: int = 32  # steps of each in a rollout
    search: str = "gumbel"  # or "puct"
    num_simulations: int = 16  # environment steps of a search, which chooses one action
    max_depth: int | None = None  # of the tree; None: num_simulations
    max_considered: int = 16  # gumbel: actions considered at the root
    num_epochs: int = 4  # passes over a rollout
    num_minibatches: int = 8  # gradient steps a pass; divides num_envs * num_steps
    hidden: tuple[int, ...] = (64, 64)  # widths of actor and critic
    activation: str = "tanh"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        if self.search not in ("gumbel", "puct"):
            raise ValueError(f"search={self.search!r} is unknown; use 'gumbel' or 'puct'.")
        check_at_least_one(
            self, "num_envs", "num_steps", "num_simulations", "max_considered", "num_epochs", "num_minibatches"
        )
        if self.max_depth is not None and self.max_depth < 1:
            raise ValueError(f"max_depth={self.max_depth}: it must be at least 1, or None.")
        check_minibatches(self.num_minibatches, self.num_envs * self.num_steps, "num_envs * num_steps")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 2e-3
    anneal_steps: jax.Array = 0  # environment steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    td_lambda: jax.Array = 0.95  # of the value targets; 1: Monte Carlo
    vf_coef: jax.Array = 0.5
    max_grad_norm: jax.Array = 10.0
    value_scale: jax.Array = 0.1  # gumbel: weight of the action values relative to the logits
    dirichlet_alpha: jax.Array = 0.3  # puct: concentration of the noise at the root
    dirichlet_fraction: jax.Array = 0.25  # puct: share of that noise
    temperature: jax.Array = 1.0  # puct: acts with probability ~ visits ** (1 / temperature)


class Policy(NamedTuple):
    """The policy, as it is evaluated and exported."""

    weights: Any
    hyper: Hyper  # the settings of `search`


@pytree
class AlphaZeroState(on_policy.State):
    """The state of every learner of rollouts, without further fields."""


class Plan(NamedTuple):
    """The result of a search, one row for each root."""

    action: Array  # (B,)
    weights: Array  # (B, A): the improved policy
    value: Array  # (B,): of that policy, by the action values of the tree
    visits: Array  # (B, A)


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    plan: Plan
    reward: Array
    terminated: Array
    truncated: Array
    next_value: Array  # of the true successor, by search; by the network at truncations and the rollout's end
    ends: Ends


class Batch(NamedTuple):
    """A minibatch, leaves (B, ...)."""

    obs: Any
    weights: Array  # (B, A): the search's policy
    target: Array  # of the value


class Node(NamedTuple):
    """The data of a tree node."""

    env_state: Any
    ended: Array  # (B,): the episode is over here
    value: Array  # (B,): by the network, 0 where terminated


def plan_value(
    weights: Float[Array, "*batch A"], q: Float[Array, "*batch A"], visits: Float[Array, "*batch A"]
) -> Float[Array, "*batch"]:
    """The mean of the visited actions' values under the search's policy."""
    known = jnp.where(visits > 0, weights, 0)
    # Weights of all visited actions may round to zero; then the visit counts are the weights.
    known = jnp.where(jnp.sum(known, -1, keepdims=True) > 0, known, visits)
    return jnp.sum(known * jnp.where(visits > 0, q, 0), -1) / jnp.maximum(jnp.sum(known, -1), 1e-30)


def policy_loss(logits: Float[Array, "B A"], weights: Float[Array, "B A"]) -> Float[Array, ""]:
    """Cross entropy of the network's policy under the search's (Silver et al. 2018, eq. 1)."""
    return -jnp.mean(jnp.sum(weights * jax.nn.log_softmax(logits), -1))


def value_loss(value: Float[Array, " B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """Half the squared error."""
    return 0.5 * jnp.mean((value - target) ** 2)


def loss(
    weights: Any, batch: Batch, hyper: Hyper, network: Network, observation_space: Space
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """`(loss, metrics)` of one minibatch."""
    logits, value = _predict(network, observation_space, weights, batch.obs)
    actor, critic = policy_loss(logits, batch.weights), value_loss(value, batch.target)
    total = actor + hyper.vf_coef * critic
    entropy = jnp.mean(Categorical(logits).entropy())
    return total, {"loss": total, "policy_loss": actor, "value_loss": critic, "entropy": entropy}


def _predict(network: Network, space: Space, weights: Any, obs: Any) -> tuple[Any, Any]:
    """The network's logits, with forbidden actions masked, and values."""
    logits, value = network.apply(weights, obs)
    action_mask = split_observation(obs, space)[2]
    return (logits if action_mask is None else mask_logits(logits, action_mask)), value


def model(
    env: Environment,
    predict: Callable[[Any, Any], tuple[Any, Any]],
    gamma: Float[Array, ""] | float,
    env_params: Any,
    axis: int | None = None,
) -> Callable[..., tuple[Any, Node]]:
    """mctx's `recurrent_fn` for an environment's `step`: (weights, raw key, action (B,), node) -> (output, next node).

    A step from a node where the episode has ended has reward 0 and discount 1 and keeps the value, so that simulations
    through it leave estimates unchanged. `axis` is 0 where `env_params` have a row for each of the B roots.
    """
    import mctx

    output: Any = mctx.RecurrentFnOutput

    def expand(weights, key, action, node):
        keys = step_keys(jax.random.wrap_key_data(key), action.shape[0])
        ts = jax.vmap(env.step, (0, 0, 0, axis))(keys, node.env_state, action, env_params)
        logits, value = predict(weights, ts.obs)
        value = jnp.where(node.ended, node.value, jnp.where(ts.terminated, 0, value))
        found = output(
            reward=jnp.where(node.ended, 0, ts.reward).astype(value.dtype),
            discount=jnp.where(node.ended, 1, gamma).astype(value.dtype),
            prior_logits=logits,
            value=value,
        )
        return found, Node(ts.state, node.ended | ts.terminated | ts.truncated, value)

    return expand


def _raw(key: Array) -> Array:
    """A raw key drawn from a typed one.

    mctx's batched loops carry split keys of slots that stopped before others, without drawing from them. jax's
    key-reuse checker, which follows typed keys, would report that as reuse.
    """
    return jax.random.bits(key, jax.random.key_data(jax.random.key(0)).shape, jnp.uint32)


@dataclasses.dataclass(frozen=True)
class _Search:
    """The result of `searcher`, a function."""

    env: Environment
    config: Config
    network: Network
    observation_space: Space

    def predict(self, weights: Any, obs: Any) -> tuple[Any, Any]:
        return _predict(self.network, self.observation_space, weights, obs)

    def __call__(
        self,
        policy: Policy,
        key: Array,
        env_state: Any,
        obs: Any,
        env_params: Any,
        greedy: bool = False,
        axis: int | None = None,
    ) -> Plan:
        import mctx

        output: Any = mctx.RootFnOutput
        config, hyper = self.config, policy.hyper
        logits, value = self.predict(policy.weights, obs)
        root = output(prior_logits=logits, value=value, embedding=Node(env_state, jnp.zeros(value.shape, bool), value))
        action_mask = split_observation(obs, self.observation_space)[2]
        settings: dict[str, Any] = dict(
            params=policy.weights,
            rng_key=_raw(key),
            root=root,
            recurrent_fn=model(self.env, self.predict, hyper.gamma, env_params, axis),
            num_simulations=config.num_simulations,
            max_depth=config.max_depth,
            invalid_actions=None if action_mask is None else (~action_mask).astype(logits.dtype),
        )
        if config.search == "gumbel":
            found: Any = mctx.gumbel_muzero_policy(
                **settings,
                qtransform=functools.partial(mctx.qtransform_completed_by_mix_value, value_scale=hyper.value_scale),
                max_num_considered_actions=config.max_considered,
                gumbel_scale=0.0 if greedy else 1.0,
            )
        else:
            found = mctx.muzero_policy(
                **settings,
                dirichlet_alpha=hyper.dirichlet_alpha,
                dirichlet_fraction=0.0 if greedy else hyper.dirichlet_fraction,
                temperature=hyper.temperature,
            )
        summary = found.search_tree.summary()
        weights, visits = found.action_weights, summary.visit_counts
        action = jnp.argmax(weights, -1) if greedy and config.search == "puct" else found.action
        return Plan(action.astype(jnp.int32), weights, plan_value(weights, summary.qvalues, visits), visits)


@dataclasses.dataclass(frozen=True)
class _AlphaZero:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    network: Network
    observation_space: Space
    search: _Search
    optimizer: Optimizer
    deployed = "search"

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> AlphaZeroState:
        def weights(key, obs):
            return self.network.init(key, on_policy.first_of(obs))

        return AlphaZeroState(**on_policy.begin(Hyper, self.venv, self.optimizer, weights, key, hyper, env_params))

    def collect(self, state: AlphaZeroState) -> tuple[AlphaZeroState, Rollout]:
        config, venv, policy = self.config, self.venv, self.policy(state)
        key, rollout_key = jax.random.split(state.key)

        def critic(obs):
            return self.search.predict(state.weights, obs)[1]

        # `jaxrl.rollout` gives a policy observations only; a search needs the states.
        def step(carried, key):
            obs, env_state = carried
            search_key, env_key = jax.random.split(key)
            params, axis = (state.env_params, 0 if venv.batched_params else None)
            if venv.level_fn is not None:
                params, axis = env_state.params, 0
            plan = self.search(policy, search_key, env_state.env, obs, params, axis=axis)
            ts = venv.step(env_key, env_state, plan.action, state.env_params)
            return (ts.obs, ts.state), (obs, plan, ts._replace(obs=None, state=None))

        carried = state.obs, state.env_state
        (obs, env_state), (seen, plan, ts) = jax.lax.scan(
            step, carried, jax.random.split(rollout_key, config.num_steps)
        )
        steps = config.num_steps * config.num_envs
        state = state.replace(key=key, obs=obs, env_state=env_state, step=ticked(state.step, steps))
        return state, Rollout(
            obs=seen,
            plan=plan,
            reward=ts.reward,
            terminated=ts.terminated,
            truncated=ts.truncated,
            next_value=successor_values(critic, plan.value, obs, ts.info["final_obs"], ts.truncated),
            ends=ends_of(ts),
        )

    def learn(self, state: AlphaZeroState, rollout: Rollout) -> tuple[AlphaZeroState, dict[str, Array]]:
        """Lambda-returns of the search's values, then epochs of gradient steps on minibatches."""
        config, hyper, searched = self.config, state.hyper, rollout.plan.weights
        key, shuffle_key = jax.random.split(state.key)
        target = lambda_returns(
            rollout.reward, rollout.next_value, rollout.terminated, rollout.truncated, hyper.gamma, hyper.td_lambda
        )
        batch = flattened(Batch(rollout.obs, searched, target))
        steps = config.num_steps * config.num_envs
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        gradient_step = functools.partial(self.gradient_step, hyper=hyper, learning_rate=learning_rate)
        orders = shuffled(shuffle_key, (config.num_epochs, steps))
        net = nets.net(state.weights, state.optimizer, self.optimizer)
        net, report = epochs(gradient_step, net, batch, orders, config.num_minibatches)
        shown = {
            "search_value": jnp.mean(rollout.plan.value),
            "search_entropy": -jnp.mean(jnp.sum(searched * jnp.log(jnp.maximum(searched, 1e-30)), -1)),
            "learning_rate": learning_rate,
        }
        state = state.replace(key=key, weights=net.weights, optimizer=net.state)
        return state, {**rollout.ends.metrics(), **report, **shown}

    def gradient_step(self, net: nets.Net, batch: Batch, hyper: Hyper, learning_rate: Array) -> tuple[nets.Net, dict]:
        """One step on a minibatch: the policy towards the search's, the value towards its target."""
        parts = hyper, self.network, self.observation_space
        return net.descend(lambda weights: loss(weights, batch, *parts), learning_rate, hyper.max_grad_norm)

    def policy(self, state: AlphaZeroState) -> Policy:
        return Policy(state.weights, state.hyper)

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        logits: Any = self.network.apply(policy.weights, obs, method="actor")
        action_mask = split_observation(obs, self.observation_space)[2]
        pi = Categorical(logits if action_mask is None else mask_logits(logits, action_mask))
        return pi.mode() if greedy else pi.sample(key), carry


def _parts(env: Environment | VectorEnv, config: Config, network: Network | None) -> tuple[_Search, int]:
    try:
        import mctx  # noqa: F401
    except ImportError as error:
        raise ImportError(f"alphazero needs mctx: {extras.install('mctx')}") from error
    observation_space, action_space = spaces_of("alphazero", env, Discrete)
    network = own("network", network) or ActorCritic(
        observation_space, action_space.n, False, config.hidden, config.activation
    )
    env = environment_of(env)
    state = jax.eval_shape(lambda key: env.reset(key, env.default_params)[1], jax.random.key(0))
    if any(jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in jax.tree.leaves(state)):
        raise ValueError(f"{env.id} holds a random key in its state, which the nodes of a search cannot.")
    return _Search(env, config, network, observation_space), action_space.n


@functools.cache
def searcher(env: Environment | VectorEnv, config: Config = Config(), *, network: Network | None = None) -> _Search:
    """The search of the algorithm that `make` returns for the same arguments, for acting with it.

    Returns `search(policy, key, env_state, obs, env_params, greedy=False, axis=None) -> Plan`, for B environments at a
    time: states and observations (B, ...), as `jax.vmap(env.reset)` gives them (of a `VectorState`, its `env`), params
    as `step` takes them, or with `axis=0` a row for each of the B. `greedy`: without noise on the root.

    Raises ImportError without mctx, and ValueError for an action space that is not Discrete, several agents, or a state
    that holds a random key.
    """
    return _parts(env, config, network)[0]


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """AlphaZero on `env`. Equal arguments give the same functions, so they share one jit cache.

    `act` is the policy network alone, as it sees observations only; acting with the search needs the environment's
    states: see `searcher`.

    Args:
        network: a flax module with the methods `actor`, `critic` and `__call__` (both) of `ActorCritic`.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ImportError without mctx, and ValueError for an action space that is not Discrete, several agents, a
    state that holds a random key, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    search, num_actions = _parts(env, config, network)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    alphazero = _AlphaZero(config, venv, search.network, search.observation_space, search, chosen)
    state = jax.eval_shape(alphazero.init, jax.random.key(0))
    head, value = jax.eval_shape(lambda s: search.network.apply(s.weights, s.obs), state)
    if head.shape != (config.num_envs, num_actions) or value.shape != (config.num_envs,):
        raise ValueError(
            f"network gives logits {head.shape} and values {value.shape} for {config.num_envs} observations; "
            f"{num_actions} actions need {(config.num_envs, num_actions)} and {(config.num_envs,)}."
        )
    return algorithm_of("alphazero", alphazero, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
