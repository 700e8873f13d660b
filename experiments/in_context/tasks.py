"""The four task families: environment, how tasks are drawn, what a context is, the label, the schedule, the rivals."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import Algorithm, pytree, vectorize
from jaxrl.algos.bandits import lin_ts, lin_ucb, thompson, ucb
from jaxrl.algos.meta import dpt
from jaxrl.algos.tabular import q_learning
from jaxrl.envs.bandits.linear import LinearBandit
from jaxrl.envs.bandits.stochastic import GaussianBandit
from jaxrl.envs.tabular.grids.darkroom import Darkroom
from jaxrl.online import Rule
from jaxrl.online import make as make_online
from jaxrl.spaces import Discrete, MultiDiscrete
from jaxrl.vector_env import rows_where
from jaxrl.wrappers import PreviousActionReward, Wrapper, WrapperState
from jaxrl.wrappers.base import Remembering


class Phase(NamedTuple):
    """Contexts of one kind."""

    num_steps: int  # their length
    num_envs: int  # tasks an update
    updates: int
    source: Algorithm | None = None  # who plays them; None: the task's


class Stage(NamedTuple):
    """Phases under one cosine of the learning rate, to zero; Adam starts anew."""

    learning_rate: float
    phases: tuple[Phase, ...]


@functools.cache
def either(*sources: Algorithm) -> Algorithm:
    """Each task is played by one of the sources, drawn at random. All of them play, which costs little; one is seen."""

    def init(key, hyper=None, env_params=None):
        *keys, pick_key = jax.random.split(key, len(sources) + 1)
        states = tuple(source.init(k, None, env_params) for source, k in zip(sources, keys, strict=True))
        return states[0].replace(weights=(jax.random.randint(pick_key, (), 0, len(sources)), states))

    def collect(state):
        pick, states = state.weights
        states, rollouts = zip(*(source.collect(s) for source, s in zip(sources, states, strict=True)), strict=True)
        seen = jax.tree.map(
            lambda *x: jnp.stack(x)[pick], *(rollout._replace(key=None, weights=None) for rollout in rollouts)
        )
        return state.replace(weights=(pick, states, rollouts)), seen

    def learn(state, rollout):
        pick, states, rollouts = state.weights
        states = tuple(source.learn(s, r)[0] for source, s, r in zip(sources, states, rollouts, strict=True))
        return state.replace(weights=(pick, states)), {}

    return sources[0]._replace(name="either", init=init, collect=collect, learn=learn)


def shown(source: Algorithm, env: Any) -> Algorithm:
    """The histories of `source`, which plays what `env` wraps, as `env` shows them: `env.seen(obs, the one before)`.

    The one before the first observation of an episode is that observation itself.
    """

    def dressed(inner, before, rollout=None):
        return inner.replace(obs=jax.vmap(env.seen)(inner.obs, before), weights=(inner, before, rollout))

    def init(key, hyper=None, env_params=None):
        inner = source.init(key, hyper, env_params)
        return dressed(inner, inner.obs)

    def collect(state):
        inner, before, _ = state.weights
        inner, rollout = source.collect(inner)
        x = rollout.experience
        seen = x._replace(obs=jax.vmap(env.seen)(x.obs, before), next_obs=jax.vmap(env.seen)(x.next_obs, x.obs))
        before = rows_where(x.terminated | x.truncated, inner.obs, x.obs)
        return dressed(inner, before, rollout), rollout._replace(experience=seen)

    def learn(state, rollout):
        inner, before, played = state.weights
        inner, metrics = source.learn(inner, played)
        return dressed(inner, before), metrics

    return source._replace(venv=vectorize(env, 1), init=init, collect=collect, learn=learn)


def excerpts(source: Algorithm, start: int, skip: int) -> Algorithm:
    """Its learning history from one of the episodes 0 to `start` on, with `skip` episodes left out after each.

    So a short context shows what many episodes changed (Laskin et al. 2022, section 4 and appendix).
    """

    def without_us(state, episodes):
        return jax.lax.fori_loop(0, episodes * state.env_params.max_steps, lambda _, s: source.update(s)[0], state)

    def init(key, hyper=None, env_params=None):
        key, start_key = jax.random.split(key)
        return without_us(source.init(key, hyper, env_params), jax.random.randint(start_key, (), 0, start + 1))

    def learn(state, rollout):
        state, metrics = source.learn(state, rollout)
        return without_us(state, jnp.where(state.ended, skip, 0)), metrics

    return source._replace(init=init, learn=learn)


class Histories(NamedTuple):
    """What algorithm distillation learns from, instead of the best actions in the task's contexts."""

    source: Algorithm
    stages: tuple[Stage, ...]


@dataclasses.dataclass(frozen=True)
class Task:
    env: Any
    params: Any  # what tasks are drawn from
    draw: Callable[[Any, Any], Any]  # (key, params) -> level
    optimal: Callable[[Any, Any], Any]
    stages: tuple[Stage, ...]
    context: int  # steps remembered when deployed
    histories: Histories
    source: Algorithm | None = None  # None: the random behaviour
    rivals: dict[str, Algorithm] = dataclasses.field(default_factory=dict)
    held_out: Any = None  # levels that `draw` never gives; None: all may come, and fresh ones are drawn
    label: Literal["optimal", "behaviour"] = "optimal"

    def algorithm(self, num_steps: int, num_envs: int, source: Algorithm | None = None, rnn: str = "") -> Algorithm:
        venv = vectorize(PreviousActionReward(self.env), num_envs, level_fn=self.draw)
        config = dpt.Config(num_envs, num_steps, self.label, hidden=64, layers=3, heads=4, rnn=rnn)
        optimal = self.optimal if self.label == "optimal" else None
        return dpt.make(venv, config, optimal=optimal, source=source or self.source)

    def distilled(self) -> "Task":
        """The same tasks for algorithm distillation."""
        return dataclasses.replace(self, label="behaviour", **self.histories._asdict())


def gaussian() -> Task:
    """Lee et al. (2023), section 4: 5 arms, means uniform in [0, 1], noise 0.3, 500 rounds."""
    env = GaussianBandit(arms=5)
    params = env.default_params.replace(scale=jnp.float32(0.3), max_steps=jnp.int32(500))
    posterior = thompson.Hyper(prior_mean=0.5, prior_scale=np.sqrt(1 / 12), noise_scale=0.3)
    rivals = {
        "Thompson sampling": dpt.with_hyper(thompson.make(env, thompson.Config(posterior="gaussian")), posterior),
        # 4 sigma^2 log t / n: UCB with alpha = 2 for this noise (Bubeck and Cesa-Bianchi 2012, section 2.2).
        "UCB": dpt.with_hyper(ucb.make(env), ucb.Hyper(exploration=4 * 0.3**2)),
        # No exploration after the first pull of each arm.
        "empirical mean": dpt.with_hyper(ucb.make(env), ucb.Hyper(exploration=0.0)),
    }
    sampler = rivals["Thompson sampling"]
    # The sampler's contexts are like those that the network makes when deployed, with few pulls of bad arms; the label
    # is the best arm in both.
    every = either(dpt.random_behaviour(env), sampler, rivals["empirical mean"])
    mostly = either(dpt.random_behaviour(env), sampler, sampler, rivals["empirical mean"])
    own = Phase(200, 16, 200, sampler), Phase(500, 8, 150), Phase(500, 8, 250, sampler), Phase(500, 8, 100)
    stages = (
        Stage(3e-3, (Phase(64, 32, 1500), Phase(200, 16, 400), *own)),
        Stage(2e-3, (Phase(500, 8, 300, sampler), Phase(500, 8, 100)) * 2),
        # All kinds in every batch; the empirical mean's contexts teach that an arm pulled often need not be the best.
        Stage(2e-3, (Phase(250, 16, 400, every), Phase(500, 8, 300, every))),
        Stage(3e-3, (Phase(250, 16, 500, mostly), Phase(500, 8, 400, mostly))),
        Stage(3e-3, (Phase(250, 32, 500, mostly), Phase(500, 16, 900, mostly))),
    )
    histories = Histories(sampler, (Stage(3e-3, (Phase(64, 32, 800), Phase(500, 8, 200))),))
    return Task(env, params, env.generate, lambda p, obs: jnp.argmax(p.mean), stages, 500, histories, rivals=rivals)


@dataclasses.dataclass(frozen=True)
class Blind(Wrapper):
    """Hides the arms' features, the same in all tasks: the transformer has to learn what arms have in common."""

    def seen(self, obs, before):
        return jnp.int32(0)

    def observe(self, key, state, params):
        return jnp.int32(0)

    def observation_space(self, params):
        return Discrete(1)


def linear() -> Task:
    """The sizes of Lin, Bai and Mei (2024): 10 arms in [-1, 1]^5, theta N(0, I), noise 1.5, 200 rounds.

    As in Lee et al. (2023) the arms are the same in all tasks and their features not shown; theta is normal, so that
    Thompson sampling knows the prior.
    """
    env = LinearBandit(arms=10, dim=5)
    params = env.default_params.replace(scale=jnp.float32(1.5), max_steps=jnp.int32(200))

    def draw(key, params):
        return params.replace(theta=jax.random.normal(key, (5,)))

    # Their settings: the prior for Thompson sampling; alpha 2 and regularisation 1 for LinUCB.
    rivals = {
        "LinTS": dpt.with_hyper(lin_ts.make(env), lin_ts.Hyper(v=1.5, regularisation=1.5**2)),
        "LinUCB": dpt.with_hyper(lin_ucb.make(env), lin_ucb.Hyper(alpha=2.0, regularisation=1.0)),
    }

    def optimal(params, obs):
        return jnp.argmax(params.features @ params.theta)

    # Thompson sampling that knows nothing of features: its arms' means have about the spread that theta gives them.
    apart = thompson.make(Blind(env), thompson.Config(posterior="gaussian"))
    apart = dpt.with_hyper(apart, thompson.Hyper(prior_mean=0.0, prior_scale=1.3, noise_scale=1.5))
    both = either(dpt.random_behaviour(Blind(env)), apart)
    stages = (
        Stage(3e-3, (Phase(50, 32, 1500), Phase(200, 8, 400), Phase(200, 8, 400, apart))),
        Stage(3e-3, (Phase(50, 32, 1500), Phase(200, 16, 300), Phase(200, 16, 500, apart))),
        Stage(3e-3, (Phase(100, 32, 800, both), Phase(200, 32, 1000, both))),
    )
    history = shown(rivals["LinUCB"], Blind(env))
    histories = Histories(history, (Stage(3e-3, (Phase(50, 32, 800), Phase(200, 16, 200))),))
    return Task(Blind(env), params, draw, optimal, stages, 200, histories, rivals=rivals)


# ---- Darkroom


def coordinates(cell, size):
    return jnp.stack([cell // size, cell % size])


@dataclasses.dataclass(frozen=True)
class Coordinates(Wrapper):
    """The cell as a row and a column, as in the paper, so that a goal in a new cell is not an unknown word."""

    def seen(self, obs, before):
        return coordinates(obs, self.env.size)

    def observe(self, key, state, params):
        return coordinates(self.env.observe(key, state, params), self.env.size)

    def observation_space(self, params):
        return MultiDiscrete((self.env.size, self.env.size))


@dataclasses.dataclass(frozen=True)
class Moves(Remembering):
    """Also how far the last step went, plus one, along rows and columns.

    A token of the paper holds the state before and after its action; one of ours would not say what an action did.
    """

    def seen(self, obs, before):
        here, there = coordinates(before, self.env.size), coordinates(obs, self.env.size)
        return jnp.concatenate([there, there - here + 1])

    def initial(self, key, params):
        state = self.env.initial(key, params)
        return WrapperState(state, state.index)

    def transition(self, key, state, action, params):
        out = self.env.transition(key, state.env, action, params)
        return out._replace(state=WrapperState(out.state, state.env.index))

    def observe(self, key, state, params):
        return self.seen(super().observe(key, state, params), state.memory)

    def observation_space(self, params):
        return MultiDiscrete((self.env.size, self.env.size, 3, 3))


@dataclasses.dataclass(frozen=True)
class WanderConfig:
    num_envs: int = 1


@pytree
class WanderHyper:
    noise: jax.Array = 0.3  # share of uniformly random actions


def wanderer(env: Coordinates | Moves) -> Algorithm:
    """Walks to one random cell after another, so that contexts cover the room as the paper's random states do."""
    room = env.env

    def cell(key):
        return jax.random.randint(key, (), 0, room.num_states, jnp.int32)

    def init(key, hyper, env_params):
        return env_params.replace(goal=cell(key))

    def act(weights, hyper, key, obs, greedy):
        u = jax.random.uniform(key, (2,))
        way = room.optimal_action(obs[0] * room.size + obs[1], weights)
        return jnp.where(u[0] < hyper.noise, jnp.floor(5 * u[1]).astype(jnp.int32), way)

    def learn(weights, hyper, key, x):
        there = x.next_obs[0] * room.size + x.next_obs[1] == weights.goal
        return weights.replace(goal=jnp.where(there, cell(key), weights.goal)), jnp.zeros(())

    return make_online("wanderer", Rule(init, act, learn), WanderConfig(), WanderHyper, env)


def goals(held_out: bool) -> np.ndarray:
    """A fifth of the 100 cells is held out."""
    order = np.random.default_rng(0).permutation(100).astype(np.int32)
    return order[:20] if held_out else order[20:]


def meanings(held_out: bool) -> np.ndarray:
    """A fifth of the 120 permutations of the actions is held out."""
    order = np.random.default_rng(0).permutation(list(itertools.permutations(range(5)))).astype(np.int32)
    return order[:24] if held_out else order[24:]


def room_task(
    env: Coordinates | Moves, field: str, values: Callable[[bool], np.ndarray], updates: int, start: int, skip: int
) -> Task:
    """Lee et al. (2023), section 5: 10 x 10 cells, 100 steps; contexts of two episodes. `field` of a task varies."""
    train, held_out, params = jnp.asarray(values(False)), jnp.asarray(values(True)), env.default_params

    def draw(key, params):
        return params.replace(**{field: train[jax.random.randint(key, (), 0, len(train))]})

    def optimal(params, obs):
        return env.env.optimal_action(obs["obs"][0] * 10 + obs["obs"][1], params)

    # Optimism: an entry never tried is worth half of staying in the goal for ever. Steps are certain, so alpha is 1.
    optimism = q_learning.Hyper(learning_rate=1.0, gamma=0.9, initial_value=5.0, epsilon_start=0.0, epsilon_end=0.0)
    learner = dpt.with_hyper(q_learning.make(env.env), optimism)
    history = shown(excerpts(learner, start, skip), env)
    histories = Histories(history, (Stage(3e-3, (Phase(200, 16, 400),)),))
    rivals = {"Q-learning": learner, "random": dpt.with_hyper(dpt.random_behaviour(env), dpt.RandomHyper(uniform=1.0))}
    stages = (Stage(3e-3, (Phase(200, 16, updates),)),)
    levels = jax.vmap(lambda value: params.replace(**{field: value}))(held_out)
    return Task(env, params, draw, optimal, stages, 200, histories, wanderer(env), rivals, levels)


def darkroom() -> Task:
    return room_task(Coordinates(Darkroom()), "goal", goals, updates=1500, start=24, skip=7)


def permuted() -> Task:
    """The goal in the last corner; what differs is which action is which."""
    return room_task(Moves(Darkroom()), "meaning", meanings, updates=300, start=48, skip=15)


TASKS = {"gaussian": gaussian, "linear": linear, "darkroom": darkroom, "permuted": permuted}
