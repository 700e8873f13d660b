"""PGA-MAP-Elites: MAP-Elites (`map_elites`) half of whose children follow the gradient of a critic.

Nilsson and Cully (2021), "Policy gradient assisted MAP-Elites", GECCO. Every step of every episode goes into a replay
buffer, on which two critics and a greedy actor learn as TD3's do (Fujimoto, van Hoof and Meger 2018),

    y = r + gamma (1 - terminated) min_k Q'_k(s', clip(mu'(s') + clip(e, -c, c), -1, 1)),   e ~ N(0, sigma)

and a generation is made of three kinds of children (the paper's algorithms 1 to 3):

    iso-line   a step from a parent towards another one, as in MAP-Elites
    gradient   `num_policy_updates` steps of Adam from a parent up Q_1(s, pi(s)), on batches of the buffer
    greedy     the greedy actor itself, one child

All are judged alike, by their episode. The gradient finds what is better where weights are many, and variation by
chance what is different; the archive keeps both.

Deviations from the paper: networks and buffer are small by default, and the first generation alone is drawn at random.
The children of one generation share their batches. No returns have been measured on the paper's walkers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.algos.actor_critic.td3 import smoothed
from jaxrl.data.transitions import Transition, example
from jaxrl.environment import Environment, TimeStep, pytree, visible
from jaxrl.nn.actor_critic import Actor, Critic
from jaxrl.nn.losses import critic_loss, td_target
from jaxrl.nn.nets import Net, critic_values, init_critics, net
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import Optimizer, optimizer_of
from jaxrl.quality_diversity import behaviour, elites
from jaxrl.quality_diversity.behaviour import Rollout, State
from jaxrl.replay.ring import Kept, Replay, kept
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(behaviour.Config):
    """Static settings: each value compiles its own program."""

    gradient_share: float = 0.5  # of the population; what is left are iso-line's children, and one is the greedy actor
    num_critic_updates: int = 300  # gradient steps of the critics and the greedy actor after a generation
    num_policy_updates: int = 100  # gradient steps from a parent to its child
    policy_delay: int = 2  # gradient steps of the critics for one of the greedy actor
    batch_size: int = 256
    buffer_size: int = 100_000  # steps of the replay buffer
    critic_hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers of the critics
    optimizer: str = "adam"  # of all three; a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    @property
    def num_gradient(self) -> int:
        """Children that climb."""
        return round(self.gradient_share * (self.population_size - 1))

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = "num_critic_updates", "num_policy_updates", "policy_delay", "batch_size", "buffer_size"
        check_at_least_one(self, *counts)
        if not 0 <= self.gradient_share <= 1:
            raise ValueError(f"gradient_share={self.gradient_share}: it must be from 0 to 1.")
        if self.gradient_share > 0 and not self.num_gradient:
            raise ValueError(
                f"gradient_share={self.gradient_share}: of population_size={self.population_size} that is no child; "
                "take more, or 0."
            )


@pytree
class Hyper(behaviour.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    iso_sigma: jax.Array = 0.005  # std of a child about its parent
    line_sigma: jax.Array = 0.05  # std along the line to another parent, as a share of their distance
    learning_rate: jax.Array = 3e-4  # of the critics and the greedy actor
    policy_learning_rate: jax.Array = 1e-3  # of children that climb
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # step of the target networks
    policy_noise: jax.Array = 0.2  # standard deviation of the smoothing of the target action, in units of the box
    noise_clip: jax.Array = 0.5  # largest smoothing


class Search(NamedTuple):
    """What is remembered beside the archive."""

    memory: Any  # the replay buffer
    critic: Net  # two, stacked
    actor: Net  # the greedy one


def critic_objective(
    critic: Any, weights: Any, batch: Transition, next_action: Float[Array, "B A"], target: Any, gamma: Any
) -> Float[Array, ""]:
    """The loss of both critics, whose target is the smaller of `target`'s values of the smoothed next action."""
    next_q = jnp.min(critic_values(critic, target, batch.next_obs, next_action), 0)
    y = jax.lax.stop_gradient(td_target(batch.reward, batch.terminated, next_q, gamma))
    return critic_loss(critic_values(critic, weights, batch.obs, batch.action), y)


def actor_objective(critic: Any, first: Any, policy: Callable, weights: Any, obs: Any) -> Float[Array, ""]:
    """Minus the mean value, by the first critic, of what a policy does."""
    return -jnp.mean(critic.apply(first, obs, policy(weights, obs)))


@dataclasses.dataclass(frozen=True)
class _PGA(behaviour.Shell):
    """The static settings of the learner; its methods are the Algorithm's functions."""

    critic: Any  # a flax module
    optimizer: Optimizer

    @property
    def memory(self) -> Replay:
        return kept(self.config.buffer_size)

    def policy_at(self, weights: Any, obs: Any) -> Float[Array, "B A"]:
        """What a policy does, in units of the box."""
        return self.network.apply(weights, visible(obs))

    def record(self, obs: Any, action: Array, ts: TimeStep, over: Bool[Array, " N"]) -> Kept:
        """A step for the buffer, where the episode is not over."""
        low, high = self.action_space.ends()
        unit = (2 * (action - low) / (high - low) - 1).astype(jnp.result_type(float))
        return Kept(Transition(obs, unit, ts.reward, ts.terminated, ts.obs), ~over)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        key, critic_key, actor_key = jax.random.split(key, 3)
        state = self.begin(Hyper, key, hyper, env_params)
        item = example(state.obs, self.action_space)
        obs, action = jax.tree.map(lambda x: x[None], (item.obs, item.action))
        critic = init_critics(self.critic, critic_key, 2, obs, action)
        actor = self.network.init(actor_key, visible(obs))

        def begun(weights: Any, name: str) -> Net:
            weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
            return net(weights, self.optimizer.init(weights, state.hyper.learning_rate), self.optimizer, weights, name)

        return state.replace(search=Search(self.memory.init(item), begun(critic, "critic"), begun(actor, "actor")))

    def learn(self, state: State, rollout: Rollout) -> tuple[State, dict[str, Array]]:
        config, hyper = self.config, state.hyper
        key, critic_key, climb_key, emit_key = jax.random.split(state.key, 4)
        archive, inserted = elites.insert(state.archive, rollout.population, rollout.fitness, rollout.descriptor)

        steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout.steps)
        memory = self.memory.add(state.search.memory, steps)
        nets, report = self.gradient_steps(critic_key, memory, state.search.critic, state.search.actor, hyper)
        critic, actor = nets

        parent_key, start_key, noise_key = jax.random.split(emit_key, 3)
        chance = config.population_size - config.num_gradient - 1
        parent, other = elites.pairs(parent_key, archive, chance)
        varied = elites.iso_line(noise_key, parent, other, hyper.iso_sigma, hyper.line_sigma)
        start = elites.parents(start_key, archive, config.num_gradient)
        climbed = self.climbed(climb_key, memory, critic, actor.unravel, start, hyper)
        population = jnp.concatenate([varied, climbed, actor.flat[None]])

        search = Search(memory, critic, actor)
        state = self.recorded(state, archive).replace(key=key, population=population, search=search)
        kinds = jnp.split(inserted.accepted, [chance, chance + config.num_gradient])
        found = dict(zip(("accepted_iso_line", "accepted_gradient", "accepted_greedy"), kinds, strict=True))
        found = {name: jnp.sum(x, dtype=jnp.int32) for name, x in found.items()}
        return state, {**self.metrics(archive, inserted, rollout, hyper), **found, **report}

    def gradient_steps(
        self, key: Array, memory: Any, critic: Net, actor: Net, hyper: Hyper
    ) -> tuple[tuple[Net, Net], dict[str, Array]]:
        """TD3's steps of the critics, of the greedy actor at every `policy_delay`-th, and the targets'."""

        def step(nets: tuple[Net, Net], key: Array) -> tuple[tuple[Net, Net], dict[str, Array]]:
            critic, actor = nets
            batch_key, noise_key = jax.random.split(key)
            batch = self.memory.sample(batch_key, memory, self.config.batch_size)
            next_action = self.policy_at(actor.target, batch.next_obs)
            next_action = smoothed(noise_key, next_action, hyper.policy_noise, hyper.noise_clip)

            def of_critic(weights: Any) -> tuple[Array, dict[str, Array]]:
                loss = critic_objective(self.critic, weights, batch, next_action, critic.target, hyper.gamma)
                return loss, {}

            critic, report = critic.descend(of_critic, hyper.learning_rate)
            first = jax.tree.map(lambda x: x[0], critic.weights)

            def of_actor(weights: Any) -> tuple[Array, dict[str, Array]]:
                return actor_objective(self.critic, first, self.policy_at, weights, batch.obs), {}

            due = critic.count % self.config.policy_delay == 0
            actor, of_greedy = actor.descend(of_actor, hyper.learning_rate, when=due)
            tau = jnp.where(due, hyper.tau, 0)
            return (critic.track(tau), actor.track(tau)), {**report, **of_greedy}

        keys = jax.random.split(key, self.config.num_critic_updates)
        nets, reports = jax.lax.scan(step, (critic, actor), keys)
        return nets, jax.tree.map(jnp.nanmean, reports)

    def climbed(
        self, key: Array, memory: Any, critic: Net, unravel: Callable, start: Float[Array, "G D"], hyper: Hyper
    ) -> Float[Array, "G D"]:
        """The genomes that parents become by steps up the first critic."""
        first = jax.tree.map(lambda x: x[0], critic.weights)
        rate = hyper.policy_learning_rate

        def step(children: tuple[Array, Any], key: Array) -> tuple[tuple[Array, Any], None]:
            obs = self.memory.sample(key, memory, self.config.batch_size).obs

            def one(genome: Array, moments: Any) -> tuple[Array, Any]:
                slope = jax.grad(lambda x: actor_objective(self.critic, first, self.policy_at, unravel(x), obs))
                return self.optimizer.descend(genome, moments, unravel(slope(genome)), rate)[:2]

            return jax.vmap(one)(*children), None

        moments = jax.vmap(lambda genome: self.optimizer.init(unravel(genome), rate))(start)
        keys = jax.random.split(key, self.config.num_policy_updates)
        return jax.lax.scan(step, (start, moments), keys)[0][0]


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    critic: Network | None = None,
) -> Algorithm:
    """PGA-MAP-Elites on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from observations to actions in units of the box (-1 to 1 a side), differentiable.
        critic: a flax module from observations and actions (B, A), in these units, to values (B,).

    Raises ValueError for actions that are no Box, and for what `behaviour.parts` refuses.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("pga_me", venv, Box, between_ends=True)
    if network is None:
        network = Actor(observation_space, action_space, config.hidden, config.activation, out_scale=1.0)
    parts = behaviour.parts("pga_me", venv, config, network)
    critic = own("critic", critic)
    if critic is None:
        critic = Critic(observation_space, config.critic_hidden, "relu")
    learner = _PGA(*parts, critic=critic, optimizer=optimizer_of(config.optimizer, eps=config.adam_eps))
    if learner.steps_per_update > config.buffer_size:
        raise ValueError(
            f"buffer_size={config.buffer_size}: a generation has {learner.steps_per_update} steps; make it at least "
            "that, or population_size smaller."
        )
    return algorithm_of("pga_me", learner, Hyper, learner.steps_per_update)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
