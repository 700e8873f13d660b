"""How a genome is judged: its policy plays whole episodes, which have a return and a descriptor.

The shell that the algorithms of quality diversity share. A genome is the weights of a network as one vector. What is
measured of it is named in `Config.descriptor` by entries of the task's telemetry (`Environment.telemetry`), as
`("x [m]", "y [m]")`, or of a task without one by its observation's names, as `"obs[0]"`: their values at the end of an
episode, or their mean over it. An algorithm draws the genomes of a generation (`State.population`), `collect` lets them
play, and `learn` puts them into the archive and draws the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from jaxrl import algorithm
from jaxrl.algorithm import as_vector_env, check_at_least_one, spaces_of, starting_values
from jaxrl.environment import NO_LIMIT, Environment, TimeStep, is_concrete, pytree, split_observation, visible
from jaxrl.math import light_key, stock_keys
from jaxrl.nn.distributions import num_outputs, of_space
from jaxrl.nn.networks import Network, PolicyNetwork, encode, encoded_size, own
from jaxrl.quality_diversity import elites
from jaxrl.quality_diversity.elites import Cells, Inserted
from jaxrl.rollout import Ends, step_keys, ticked
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space
from jaxrl.telemetry import Quantity
from jaxrl.vector_env import VectorEnv, VectorState, rows_where

SUMMARIES = ("final", "mean")


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    population_size: int = 64  # genomes that play in a generation
    num_episodes: int = 1  # environments of a genome, one episode of each; return and descriptor are their means
    num_steps: int = 0  # steps of a generation; longer episodes are cut there; 0: the task's limit, so none is
    common_starts: bool = True  # the k-th episodes of all genomes have the same initial state (and level)
    descriptor: tuple[str, ...] = ()  # names in the task's telemetry, or obs[0] ...; (): the first two with limits
    descriptor_low: tuple[float, ...] = ()  # the archive's box; (): the limits that the task names
    descriptor_high: tuple[float, ...] = ()  # as many
    summary: str = "final"  # what is kept of an episode: its "final" value of the descriptor or the "mean"
    cells: tuple[int, ...] = (50,)  # of the archive along each descriptor; one number is for all of them
    centroids: int = 0  # above 0: so many cells about spread-out centroids (CVT) instead of a grid
    hidden: tuple[int, ...] = (16,)
    activation: str = "tanh"

    @property
    def num_envs(self) -> int:
        """Environments stepped together."""
        return self.population_size * self.num_episodes

    def __post_init__(self) -> None:
        check_at_least_one(self, "population_size", "num_episodes")
        if self.num_steps < 0:
            raise ValueError(f"num_steps={self.num_steps}: it must be at least 1, or 0 for the task's limit.")
        if self.summary not in SUMMARIES:
            raise ValueError(f"summary={self.summary!r} is unknown; use one of {', '.join(SUMMARIES)}.")
        if len(self.descriptor_low) != len(self.descriptor_high):
            raise ValueError(
                f"descriptor_low={self.descriptor_low} and descriptor_high={self.descriptor_high} must be as many."
            )


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    qd_offset: jax.Array = 0.0  # of the metric qd_score, the sum of what fitness exceeds it by: below every fitness


class Policy(NamedTuple):
    """The policy of one genome, as it is evaluated and exported."""

    weights: Any


@pytree
class State(algorithm.State):
    weights: Any  # of the best cell: what is deployed
    archive: Any  # elites.Cells: the best that was found in each cell
    population: Any  # (P, D): the genomes that play next
    search: Any  # what an algorithm remembers beside these


class Rollout(NamedTuple):
    """A generation: P genomes, N = P * num_episodes environments, genome-major."""

    population: Array  # (P, D)
    fitness: Array  # (P,)
    descriptor: Array  # (P, B)
    ends: Ends
    frames: Any  # (P, H): what its episodes looked like, if the algorithm asks for frames; None
    steps: Any  # (T, N): what the algorithm's `record` makes of each step; None without


class Played(NamedTuple):
    """What N environments' first episodes were."""

    obs: Any  # where they stopped
    env_state: VectorState
    episode_return: Array  # (N,), of what was played of them
    descriptor: Array  # (N, B)
    ends: Ends
    frames: Any  # (N, K, F): `view` at the end of each K-th of `num_steps`; None
    steps: Any  # (T, N): what `record` made of each step; None


def play(
    venv: VectorEnv,
    key: Array,
    obs: Any,
    env_state: VectorState,
    env_params: Any,
    act: Callable[[Any], Any],
    measure: Callable[[VectorState, Any, Any], Float[Array, "N B"]],
    num_steps: int,
    summary: str = "final",
    view: Callable[[Any], Float[Array, "N F"]] | None = None,
    num_frames: int = 1,
    record: Callable[[Any, Any, TimeStep, Array], Any] | None = None,
) -> Played:
    """One episode of every environment, of at most `num_steps` steps. Where it ended nothing moves any more.

    Args:
        act: from observations (N, ...) to actions.
        measure: `(env_state, env_params, obs) -> (N, B)`, the descriptor of states.
        summary: the descriptor of an episode is that of its last state, or the mean over the states after its steps.
        view: of observations, what is kept of `num_frames` of them; of an episode that is over its last one.
        record: `(obs, action, time_step, over) -> tree`, which is kept of every step, also where it was over before.

    Raises ValueError for more frames than steps.
    """
    if view is not None and num_frames > num_steps:
        raise ValueError(f"num_frames={num_frames}: num_steps={num_steps} have at most {num_steps} frames.")
    means = summary == "mean"

    def step(carried, now):
        obs, env_state, over, total, frames = carried
        key, number = now
        action = act(obs)
        ts = stock_keys(venv.advance(light_key(key), env_state, action, env_params))
        recorded = None if record is None else record(obs, action, ts, over)
        obs, env_state = rows_where(over, (obs, env_state), (ts.obs, ts.state))
        done = (ts.terminated | ts.truncated) & ~over
        if means:
            total = total + jnp.where(over[:, None], 0, measure(env_state, env_params, obs))
        if view is not None:
            frames = frames.at[:, number * num_frames // num_steps].set(view(obs))
        ends = Ends(done, env_state.episode_return, env_state.env.time)
        return (obs, env_state, over | done, total, frames), (ends, recorded)

    over = jnp.zeros(venv.num_envs, bool)
    first = measure(env_state, env_params, obs)
    frames = None if view is None else jnp.repeat(view(obs)[:, None], num_frames, 1)
    start = obs, env_state, over, jnp.zeros_like(first), frames
    now = step_keys(key, num_steps), jnp.arange(num_steps)
    (obs, env_state, _, total, frames), (ends, steps) = jax.lax.scan(step, start, now)
    if means:
        descriptor = total / jnp.maximum(env_state.env.time, 1)[:, None]
    else:
        descriptor = measure(env_state, env_params, obs)
    return Played(obs, env_state, env_state.episode_return, descriptor, ends, frames, steps)


# ---- what is measured


@dataclasses.dataclass(frozen=True)
class Descriptor:
    """Named numbers of a state, and the box that they are in."""

    env: Environment
    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    of_task: bool  # the box is of the limits that the task names, above those of its default params

    def of_state(self, state: Any, params: Any, obs: Any) -> Float[Array, " B"]:
        found = measured(self.env, state, params, obs)
        return jnp.stack([jnp.asarray(found[name].value, jnp.result_type(float)) for name in self.names])

    def measure(self, venv: VectorEnv, vstate: VectorState, env_params: Any, obs: Any) -> Float[Array, "N B"]:
        """The descriptors of all slots."""
        params, axis = env_params, 0 if venv.batched_params else None
        if venv.level_fn is not None:
            params, axis = vstate.params, 0
        return jax.vmap(self.of_state, (0, axis, 0))(vstate.env, params, obs)

    def limits(self, venv: VectorEnv, env_params: Any) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        """The box that the task names with these params; where each slot has its own, the one around all of theirs."""

        def of(params):
            obs, state = self.env.reset(jax.random.key(0), params)
            found = measured(self.env, state, params, obs)
            ends = [(found[name].low, found[name].high) for name in self.names]
            return jnp.asarray(ends, jnp.result_type(float)).T

        if not venv.batched_params:
            low, high = of(env_params)
            return low, high
        ends = jax.vmap(of)(env_params)
        return ends[:, 0].min(0), ends[:, 1].max(0)


def measured(env: Environment, state: Any, params: Any, obs: Any) -> dict[str, Quantity]:
    """The telemetry of a state; of a task without one, the numbers of its observation by their names."""
    if found := env.telemetry(state, params):
        return found
    seen = visible(obs)
    seen = seen.get("obs", ()) if isinstance(seen, dict) else seen
    if not hasattr(seen, "shape"):
        return {}
    values = jnp.ravel(seen)
    names = env.observation_names
    if len(names) != len(values):
        names = [f"obs[{i}]" for i in range(len(values))]
    space: Any = env.observation_space(params)
    space = space.spaces.get("obs", space) if hasattr(space, "spaces") else space
    low, high = (
        (jnp.broadcast_to(x, jnp.shape(seen)).ravel() for x in (space.low, space.high))
        if isinstance(space, Box)
        else ([None] * len(values),) * 2
    )
    return {n: Quantity(v, None, a, b) for n, v, a, b in zip(names, values, low, high, strict=True)}


def descriptor_of(venv: VectorEnv, config: Config) -> Descriptor:
    """What `config` names, on this task.

    Raises ValueError for a name that the task has not, one that is no number, and a box that nobody says.
    """
    env, params = venv.env, venv.env.default_params
    order: list[str] = []  # in which the task names them; jax sorts

    def values(key):
        obs, state = env.reset(key, params)
        found = measured(env, state, params, obs)
        order[:] = found
        return {name: jnp.asarray(quantity.value) for name, quantity in found.items()}

    def limits(key):
        obs, state = env.reset(key, params)
        found = measured(env, state, params, obs)
        return {n: [jnp.nan if x is None else x for x in (found[n].low, found[n].high)] for n in numbers}

    key = jax.random.key(0)
    found = jax.eval_shape(values, key)
    numbers = [name for name in order if found[name].shape == ()]
    names, low, high = config.descriptor, config.descriptor_low, config.descriptor_high
    if len(set(names)) < len(names):
        raise ValueError(f"descriptor={names}: each name once; the same number twice is a diagonal of the archive.")
    for name in names:
        if name not in numbers:
            known = ", ".join(repr(n) for n in numbers[:20]) or "none"
            raise ValueError(f"descriptor {name!r}: {env.id} measures no number of that name; it has {known}.")
    of_task = not low
    if not (names and low):
        with jax.ensure_compile_time_eval():
            ends = {n: [float(np.asarray(x)) for x in x] for n, x in jax.jit(limits)(key).items()}
        limited = [n for n in numbers if np.isfinite(ends[n]).all() and ends[n][0] < ends[n][1]]
        names = names or tuple(numbers if low else limited)[: len(low) or 2]
        if not names:
            raise ValueError(f"{env.id}: nothing that it measures has limits; give descriptor and its low and high.")
        for name in () if low else names:
            if name not in limited:
                raise ValueError(
                    f"descriptor {name!r}: {env.id} says no limits of it; give descriptor_low and descriptor_high, "
                    f"{len(names)} numbers each."
                )
        low = low or tuple(ends[name][0] for name in names)
        high = high or tuple(ends[name][1] for name in names)
    if len(low) != len(names):
        raise ValueError(f"descriptor_low={low} and descriptor_high={high} must have a number for each of {names}.")
    elites.box_of(low, high)
    return Descriptor(env, tuple(names), tuple(map(float, low)), tuple(map(float, high)), of_task)


# ---- the shell


def scaled(space: Space, obs: Any) -> Float[Array, "*batch F"]:
    """`networks.encode`, of a Box with two ends in units of it, from -1 to 1."""
    vector = encode(space, obs)
    if not isinstance(space, Box):
        return vector
    low, high = (jnp.broadcast_to(jnp.asarray(x, vector.dtype), space.shape).ravel() for x in (space.low, space.high))
    closed = jnp.isfinite(low) & jnp.isfinite(high) & (low < high)
    low, high = jnp.where(closed, low, -1), jnp.where(closed, high, 1)
    return 2 * (vector - low) / (high - low) - 1 if space.dtype != jnp.uint8 else vector


def limit_of(env_params: Any) -> int:
    """The steps of the longest episode that params allow."""
    return int(np.max(np.asarray(env_params.max_steps)))


@dataclasses.dataclass(frozen=True)
class Shell:
    """The static settings of a learner of quality diversity; an algorithm adds `init` and `learn`."""

    config: Any
    venv: VectorEnv
    network: Network
    observation_space: Space
    action_space: Space
    descriptor: Descriptor
    genome_size: int
    num_steps: int  # of a generation: of a Config without, the limit of the task's default params
    deployed = "greedy"
    num_frames = 0  # observations of an episode that the algorithm looks at
    record = None  # of `play`: what the algorithm keeps of each step

    @property
    def frame_size(self) -> int:
        """Numbers of `Rollout.frames` of a genome."""
        return self.config.num_episodes * self.num_frames * encoded_size(self.observation_space)

    @property
    def steps_per_update(self) -> int:
        """Environment steps of a generation."""
        return self.config.num_envs * self.num_steps

    def action(self, weights: Any, obs: Any) -> Array:
        """The deterministic action: the largest allowed logit (of each factor), or the point of the box."""
        outputs: Any = self.network.apply(weights, obs)
        if isinstance(self.action_space, Box):
            return self.action_space.from_unit(outputs)
        return of_space(self.action_space, outputs, split_observation(obs, self.observation_space)[2]).mode()

    def starts(self, key: Array, env_params: Any) -> tuple[Any, VectorState]:
        """Fresh episodes for a generation."""
        obs, env_state = self.venv.reset(key, env_params)
        if self.config.common_starts:
            slots = jnp.arange(self.config.num_envs) % self.config.num_episodes
            obs, env, level = jax.tree.map(lambda x: x[slots], (obs, env_state.env, env_state.params))
            env_state = env_state.replace(env=env, params=level)
        return obs, env_state

    def empty_archive(self, genome_size: int) -> Cells:
        config, box = self.config, (self.descriptor.low, self.descriptor.high)
        if config.centroids:
            middles = elites.spread_out(jax.random.key(0), *box, config.centroids)
            return elites.voronoi(*box, middles, genome_size)
        sides = config.cells * len(box[0]) if len(config.cells) == 1 else config.cells
        return elites.grid(*box, sides, genome_size)

    def begin(self, hyper_of: type, key: Array, hyper: Any, env_params: Any) -> State:
        """The first state, whose population is drawn as networks are initialised."""
        hyper, env_params = starting_values(hyper_of, self.venv, hyper, env_params)
        if not self.config.num_steps and is_concrete(env_params) and limit_of(env_params) > self.num_steps:
            raise ValueError(
                f"num_steps=0 is the limit of {self.venv.env.id}'s default params, {self.num_steps} steps, and these "
                f"params' max_steps is {limit_of(env_params)}: set num_steps."
            )
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.starts(reset_key, env_params)
        first = visible(jax.tree.map(lambda x: x[0], obs))

        def genome(key):
            weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), self.network.init(key, first))
            return ravel_pytree(weights)[0], weights

        population, weights = jax.vmap(genome)(jax.random.split(weights_key, self.config.population_size))
        archive = self.empty_archive(population.shape[1])
        if self.descriptor.of_task:
            low, high = self.descriptor.limits(self.venv, env_params)
            if is_concrete((low, high)):
                elites.box_of(np.asarray(low).tolist(), np.asarray(high).tolist())
            archive = elites.stretched(archive, low, high)
        return State(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=jax.tree.map(lambda x: x[0], weights),
            archive=archive,
            population=population,
            search=(),
        )

    def collect(self, state: Any) -> tuple[Any, Rollout]:
        """The population plays one generation."""
        config = self.config
        key, reset_key, play_key = jax.random.split(state.key, 3)
        members = jax.vmap(ravel_pytree(state.weights)[1])(state.population)
        obs, env_state = self.starts(reset_key, state.env_params)

        def act(obs):
            seen = jax.tree.map(lambda x: x.reshape(config.population_size, -1, *x.shape[1:]), visible(obs))
            action = jax.vmap(self.action)(members, seen)
            return action.reshape(config.num_envs, *action.shape[2:])

        def measure(env_state, env_params, obs):
            return self.descriptor.measure(self.venv, env_state, env_params, obs)

        def view(obs):
            return scaled(self.observation_space, visible(obs))

        played = play(
            self.venv,
            play_key,
            obs,
            env_state,
            state.env_params,
            act,
            measure,
            self.num_steps,
            config.summary,
            view if self.num_frames else None,
            self.num_frames,
            self.record,
        )
        step = ticked(state.step, self.steps_per_update)
        state = state.replace(key=key, obs=played.obs, env_state=played.env_state, step=step)
        mean_return = played.episode_return.reshape(config.population_size, -1).mean(1)
        descriptor = played.descriptor.reshape(config.population_size, config.num_episodes, -1).mean(1)
        frames = played.frames if played.frames is None else played.frames.reshape(config.population_size, -1)
        return state, Rollout(state.population, mean_return, descriptor, played.ends, frames, played.steps)

    def recorded(self, state: Any, archive: Cells) -> Any:
        """The state with this archive, and the weights of its best cell."""
        best = ravel_pytree(state.weights)[1](archive.genome[archive.best])
        weights = jax.tree.map(lambda new, old: jnp.where(archive.filled.any(), new, old), best, state.weights)
        return state.replace(archive=archive, weights=weights)

    def metrics(self, archive: Cells, inserted: Inserted, rollout: Rollout, hyper: Hyper) -> dict[str, Array]:
        """What every algorithm of quality diversity reports."""
        fine = ~inserted.refused
        mean = jnp.sum(jnp.where(fine, rollout.fitness, 0)) / fine.sum()  # NaN of none
        return {
            **rollout.ends.metrics(),
            "loss": -mean,
            "fitness": mean,
            **elites.report(archive, hyper.qd_offset),
            "new": inserted.new.sum(dtype=jnp.int32),
            "accepted": inserted.accepted.sum(dtype=jnp.int32),
            "refused": inserted.refused.sum(dtype=jnp.int32),
            "outside": inserted.outside.sum(dtype=jnp.int32),
        }

    def policy(self, state: Any) -> Policy:
        return Policy(state.weights)

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        return self.action(policy.weights, visible(obs)), carry


def policy_of(state: Any, cell: int | Int[Array, ""]) -> Policy:
    """The policy of a cell of the archive, for `algo.act` and `jaxrl.evaluate`; which cells have one: `archive.filled`.

    A cell's number is that of `elites.cell_of`. `state` is a learner's, or of the zoo `zoo.load(NAME).kept`.
    """
    return Policy(ravel_pytree(state.weights)[1](state.archive.genome[cell]))


def parts(name: str, env: Environment | VectorEnv, config: Config, network: Network | None = None) -> tuple[Any, ...]:
    """The fields of a `Shell`.

    Raises ValueError for an action space it cannot handle, several agents, a descriptor that is none, a network whose
    outputs do not fit, and common starts of slots with separate params.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of(name, venv, Discrete, MultiDiscrete, Box)
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
    num_steps = config.num_steps or limit_of(venv.default_params)
    if num_steps == NO_LIMIT:
        raise ValueError(f"num_steps=0 is the task's limit, and {venv.env.id} has no time limit: set num_steps.")
    descriptor = descriptor_of(venv, config)
    if len(config.cells) not in (1, len(descriptor.names)):
        raise ValueError(
            f"cells={config.cells}: one number for each descriptor of {descriptor.names}, or one for all of them."
        )
    genome_size = sum(x.size for x in jax.tree.leaves(weights))
    return config, venv, network, observation_space, action_space, descriptor, genome_size, num_steps
