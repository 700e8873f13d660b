"""Evolution strategies over the weights of a policy: OpenAI-ES, PGPE and CMA-ES.

An update is one generation. The strategy draws `population_size` weight vectors; each acts deterministically in
separate environments for one episode, and the search distribution moves towards those of higher return. No derivatives
are used. With fitness f_i as centred ranks in [-1/2, 1/2] and w_i = mean + std * noise_i,

    OpenAI-ES   gradient = sum_i f_i noise_i / (n std), std constant (Salimans et al. 2017, arXiv:1703.03864)
    PGPE        gradient of the mean (f_i+ - f_i-) (w_i - mean) / n over pairs of opposite noise, and a gradient of the
                std of each weight (Sehnke et al. 2010)
    CMA-ES      weighted recombination of the better half, step size and full covariance from evolution paths (Hansen
                2016, arXiv:1604.00772); `sep_cma_es` keeps its diagonal (Ros and Hansen 2008)

The strategies are those of evosax (the extra `evosax`); this file adds the evaluation, settings as leaves and
the optimiser (Adam) of the mean. Deviations from Salimans et al.: no weight decay and no virtual batch normalisation
(the observations may be normalised by running statistics); actions carry no noise. Results: `docs/algos/evolution.md`.

Papers: Salimans et al. (2017), "Evolution strategies as a scalable alternative to reinforcement learning"
(arXiv:1703.03864); Sehnke et al. (2010), "Parameter-exploring policy gradients"; Hansen (2016), "The CMA evolution
strategy: a tutorial" (arXiv:1604.00772); Ros and Hansen (2008), "A simple modification in CMA-ES achieving linear time
and space complexity".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from jaxrl import extras
from jaxrl.algorithm import Algorithm, State, algorithm_of, as_vector_env, shared, spaces_of, starting_values
from jaxrl.environment import Environment, pytree, split_observation, strongly_typed, visible
from jaxrl.nn import normalize
from jaxrl.nn.distributions import num_outputs, of_space
from jaxrl.nn.networks import Network, PolicyNetwork, own
from jaxrl.nn.optim import Optimizer, OptimizerLike, annealed, optimizer_of
from jaxrl.rollout import Ends, rollout
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space
from jaxrl.vector_env import VectorEnv

STRATEGIES = {"open_es": "Open_ES", "pgpe": "PGPE", "cma_es": "CMA_ES", "sep_cma_es": "Sep_CMA_ES"}
"""Names of strategies, and their classes in evosax."""
WITH_GRADIENT = ("open_es", "pgpe")
"""Strategies that estimate a gradient of the mean, and so have an optimiser."""
MOST_WEIGHTS = 2_000
"""The largest number of weights for cma_es: its decomposition then takes 1.3 s a generation on a CPU core."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    strategy: str = "open_es"  # or "pgpe", "cma_es", "sep_cma_es"
    population_size: int = 64  # members a generation; even for open_es and pgpe, whose noise comes in opposite pairs
    num_episodes: int = 1  # environments of a member, one episode of each
    num_steps: int = 500  # steps of a generation; longer episodes are cut there
    common_starts: bool = True  # the k-th episodes of all members have the same initial state (and level)
    hidden: tuple[int, ...] = (16,)
    activation: str = "tanh"
    normalize_obs: bool = False
    optimizer: str = "adam"  # of the mean, for open_es and pgpe; a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    @property
    def num_envs(self) -> int:
        """Environments stepped together."""
        return self.population_size * self.num_episodes

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy={self.strategy!r} is unknown; use one of {', '.join(STRATEGIES)}.")
        for name, least in (("population_size", 4), ("num_episodes", 1), ("num_steps", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: it must be at least {least}.")
        if self.strategy in ("open_es", "pgpe") and self.population_size % 2:
            raise ValueError(
                f"population_size={self.population_size}: {self.strategy} draws pairs; "
                f"{self.population_size + 1} is even."
            )


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    sigma: jax.Array = 0.1  # std of the weights around their mean; its initial value for pgpe and (sep_)cma_es
    learning_rate: jax.Array = 0.03  # of the mean, by the optimiser; open_es and pgpe
    anneal_steps: jax.Array = 0  # environment steps over which the learning rate goes to zero; 0: constant
    std_learning_rate: jax.Array = 0.1  # pgpe: learning rate of the stds
    std_max_change: jax.Array = 0.2  # pgpe: largest relative change of a std in one generation


class Policy(NamedTuple):
    """The policy, as it is evaluated and exported: the mean of the search distribution."""

    weights: Any
    normalizer: Any  # running statistics of observations; None without Config.normalize_obs


@pytree
class EvolutionState(State):
    weights: Any  # the mean of the search distribution
    search: Any  # the strategy's state
    normalizer: Any


class Rollout(NamedTuple):
    """A generation: P members, N = P * num_episodes environments, member-major."""

    population: Array  # (P, D)
    fitness: Array  # (P,)
    ends: Ends  # of the episodes that count
    obs: Any  # (T, N, ...) with Config.normalize_obs, else None


def counted(done: Bool[Array, "T N"]) -> Bool[Array, "T N"]:
    """Whether a step is in its environment's first episode, the last step of it included."""
    before = jnp.cumsum(done, 0, dtype=jnp.int32) - done
    return before == 0


def fitness(reward: Float[Array, "T N"], done: Bool[Array, "T N"], population_size: int) -> Float[Array, " P"]:
    """The mean return of each member's first episodes, which may be cut at the end of the generation."""
    returns = jnp.sum(jnp.where(counted(done), reward, 0), 0)
    return returns.reshape(population_size, -1).mean(1)


def choose(space: Space, outputs: Float[Array, "*batch n"], action_mask: Any = None) -> Array:
    """The deterministic action of a network's outputs: the largest allowed logit (of each factor), or itself."""
    if isinstance(space, Box):
        return space.from_unit(outputs)
    return of_space(space, outputs, action_mask).mode()


def with_its_rate(optimizer: Optimizer, unravel: Callable[[Array], Any]) -> Any:
    """An optax transformation of flattened weights whose state is `(state, learning_rate)`."""
    import optax

    def init(flat):
        rate = jnp.zeros((), flat.dtype)
        return optimizer.init(unravel(flat), rate), rate

    def update(grads, state, params: Any = None):
        change, after = optimizer.change(params, state[0], unravel(grads), state[1])
        return change, (after, state[1])

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True)
class _Evolution:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    network: Network
    observation_space: Space
    action_space: Space
    strategy: Any  # evosax's
    ask: Any  # the strategy's
    optimizer: Optimizer  # of the mean, for strategies with a gradient
    deployed = "greedy"

    def action(self, weights: Any, obs: Any, normalizer: Any) -> Array:
        view = obs if normalizer is None else normalize.normalize(normalizer, obs)
        outputs: Any = self.network.apply(weights, view)
        return choose(self.action_space, outputs, split_observation(obs, self.observation_space)[2])

    def settings(self, hyper: Hyper) -> Any:
        """evosax's parameters from `hyper`; those of CMA-ES that depend on sizes only have the tutorial's values."""
        params = self.strategy.default_params
        if self.config.strategy != "open_es":
            params = params.replace(std_init=hyper.sigma)
        if self.config.strategy == "pgpe":
            params = params.replace(std_lr=hyper.std_learning_rate, std_max_change=hyper.std_max_change)
        return params

    def current(self, state: EvolutionState) -> Any:
        """The strategy's state with the current weights and settings."""
        search = state.search.replace(mean=ravel_pytree(state.weights)[0])
        if self.config.strategy == "open_es":
            search = search.replace(std=state.hyper.sigma)
        if self.config.strategy in ("open_es", "pgpe"):
            learning_rate = annealed(state.hyper.learning_rate, state.step, state.hyper.anneal_steps)
            search = search.replace(opt_state=(search.opt_state[0], learning_rate))
        return search

    def starts(self, key: Array, env_params: Any) -> tuple[Any, Any]:
        obs, env_state = self.venv.reset(key, env_params)
        if self.config.common_starts:
            slots = jnp.arange(self.config.num_envs) % self.config.num_episodes
            obs, env, level = jax.tree.map(lambda x: x[slots], (obs, env_state.env, env_state.params))
            env_state = env_state.replace(env=env, params=level)
        return obs, env_state

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> EvolutionState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        key, weights_key, reset_key, search_key = jax.random.split(key, 4)
        obs, env_state = self.starts(reset_key, env_params)
        first = jax.tree.map(lambda x: x[0], obs)
        weights = self.network.init(weights_key, visible(first))
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        search = self.strategy.init(search_key, ravel_pytree(weights)[0], self.settings(hyper))
        return EvolutionState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            search=strongly_typed(search),
            normalizer=normalize.init(visible(first)) if self.config.normalize_obs else None,
        )

    def collect(self, state: EvolutionState) -> tuple[EvolutionState, Rollout]:
        config = self.config
        key, ask_key, reset_key = jax.random.split(state.key, 3)
        population, search = self.ask(ask_key, self.current(state), self.settings(state.hyper))
        members = jax.vmap(ravel_pytree(state.weights)[1])(population)
        # A new generation begins new episodes, as running ones belong to other members.
        obs, env_state = self.starts(reset_key, state.env_params)
        state = state.replace(key=key, obs=obs, env_state=env_state, search=strongly_typed(search))

        def act(key, obs, carry):
            seen = jax.tree.map(lambda x: x.reshape(config.population_size, -1, *x.shape[1:]), visible(obs))
            action = jax.vmap(self.action, (0, 0, None))(members, seen, state.normalizer)
            return action.reshape(config.num_envs, *action.shape[2:]), (), carry

        state, _, steps = rollout(self.venv, state, config.num_steps, act)
        return state, Rollout(
            population=population,
            fitness=fitness(steps.reward, steps.done, config.population_size),
            ends=steps.ends._replace(done=steps.done & counted(steps.done)),
            obs=visible(steps.obs) if config.normalize_obs else None,
        )

    def learn(self, state: EvolutionState, rollout: Rollout) -> tuple[EvolutionState, dict[str, Array]]:
        key, tell_key = jax.random.split(state.key)
        # The learning rate is that at the steps before this generation.
        search = self.current(state.replace(step=state.step - self.config.num_envs * self.config.num_steps))
        params = self.settings(state.hyper)
        sigma = jnp.mean(search.std)
        # evosax minimises.
        search, _ = self.strategy.tell(tell_key, rollout.population, -rollout.fitness, search, params)
        mean = jnp.mean(rollout.fitness)
        metrics = {
            **rollout.ends.metrics(),
            "loss": -mean,
            "fitness": mean,
            "fitness_best": jnp.max(rollout.fitness),
            "fitness_std": jnp.std(rollout.fitness),
            "sigma": sigma,  # of this generation
        }
        normalizer = state.normalizer
        if normalizer is not None:
            normalizer = normalize.update(normalizer, rollout.obs, axes=(0, 1))
        weights = ravel_pytree(state.weights)[1](search.mean)
        search = strongly_typed(search)
        return state.replace(key=key, weights=weights, search=search, normalizer=normalizer), metrics

    def policy(self, state: EvolutionState) -> Policy:
        return Policy(state.weights, state.normalizer)

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        return self.action(policy.weights, visible(obs), policy.normalizer), carry


def _evosax_strategy(config: Config, weights: Any, optimizer: Optimizer) -> Any:
    """evosax's strategy over weights of these shapes and dtypes."""
    try:
        from evosax import algorithms
    except ImportError as error:
        raise ImportError(f"evolution needs evosax: {extras.install('evosax')}") from error
    # `make` may be called under a trace; its result must not contain tracers.
    with jax.ensure_compile_time_eval():
        flat, unravel = ravel_pytree(jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.result_type(float)), weights))
        settings = {}
        if config.strategy in WITH_GRADIENT:
            settings["optimizer"] = with_its_rate(optimizer, unravel)
        strategy = getattr(algorithms, STRATEGIES[config.strategy])
        return strategy(config.population_size, np.zeros(len(flat), np.float32), **settings)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """An evolution strategy on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from observations to logits, or for a Box to means in units of the box (-1 to 1 a side).
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ImportError without evosax, and ValueError for an action space it cannot handle, several agents, a network
    whose outputs do not fit or that is too large for cma_es, common starts of slots with separate params, and an
    `optimizer` for a strategy that has no gradient.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("evolution", venv, Discrete, MultiDiscrete, Box)
    if venv.batched_params and config.common_starts:
        raise ValueError("common_starts=True, but batched_params give each slot its own level: set it to False.")
    outputs = num_outputs(action_space)
    network = own("network", network)
    if network is None:
        network = PolicyNetwork(observation_space, outputs, config.hidden, config.activation)
    reset_key = jax.random.key(0)
    obs = jax.eval_shape(lambda key: visible(venv.reset(key, venv.default_params)[0]), reset_key)
    weights = jax.eval_shape(lambda key, obs: network.init(key, jax.tree.map(lambda x: x[0], obs)), reset_key, obs)
    shape: Any = jax.eval_shape(network.apply, weights, obs).shape  # pyright: ignore[reportAttributeAccessIssue]
    if shape != (config.num_envs, outputs):
        raise ValueError(f"network gives {shape}; {action_space} needs {(config.num_envs, outputs)}.")
    num_weights = sum(x.size for x in jax.tree.leaves(weights))
    if config.strategy == "cma_es" and num_weights > MOST_WEIGHTS:
        raise ValueError(
            f"cma_es decomposes a {num_weights} x {num_weights} covariance each generation; "
            f"make the network smaller (at most {MOST_WEIGHTS} weights) or use strategy='sep_cma_es'."
        )
    if optimizer is not None and config.strategy not in WITH_GRADIENT:
        raise ValueError(f"optimizer: {config.strategy} has no gradient; {' and '.join(WITH_GRADIENT)} have.")
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    strategy = _evosax_strategy(config, weights, chosen)
    # Its eigendecomposition is LAPACK's; two batched calls at once can deadlock a CPU: under vmap they run in turn.
    ask = jax.custom_batching.sequential_vmap(strategy.ask) if config.strategy == "cma_es" else strategy.ask
    evolution = _Evolution(config, venv, network, observation_space, action_space, strategy, ask, chosen)
    return algorithm_of("evolution", evolution, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
