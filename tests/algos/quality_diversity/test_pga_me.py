"""PGA-MAP-Elites: its losses by hand, what its children climb, what it stores, and beside MAP-Elites."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition, pytree
from jaxrl.algos import map_elites, pga_me
from jaxrl.data import transitions
from jaxrl.quality_diversity import behaviour
from jaxrl.spaces import Box, Discrete

KEY = jax.random.key(0)
SMALL = dict(population_size=8, hidden=(4,), cells=(5,), critic_hidden=(32,), batch_size=64, buffer_size=1_000)


@pytree
class Params:
    max_steps: jax.Array = 3


@pytree
class State:
    time: jax.Array
    place: jax.Array  # (2,)


@dataclasses.dataclass(frozen=True)
class Bowl(Environment):
    """Each action is worth minus its squared distance from (0.5, -0.5) in units of the box; it moves the agent, too.

    The box is from 0 to 4, so (0.5, -0.5) are 3 and 1. The episode ends where the first number is above 3.8.
    """

    id: str = dataclasses.field(default="Bowl", kw_only=True)
    Params = Params

    def initial(self, key, params):
        return State(jnp.int32(0), jnp.array([0.3, -0.2]))

    def transition(self, key, state, action, params):
        unit = action / 2 - 1
        state = state.replace(place=jnp.clip(state.place + unit / 3, -1, 1))
        reward = -jnp.sum((unit - jnp.array([0.5, -0.5])) ** 2)
        return Transition(state, reward, action[0] > 3.8, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return state.place

    def observation_space(self, params):
        return Box(-1.0, 1.0, (2,))

    def action_space(self, params):
        return Box(0.0, 4.0, (2,))


class Quadratic:
    """A critic without weights: minus the squared distance of the action from (0.5, -0.5)."""

    def apply(self, weights, obs, action, **_):
        value = weights - jnp.sum((action - jnp.array([0.5, -0.5])) ** 2, -1)
        return (value, {}) if _ else value


def test_losses_by_hand():
    """Targets from the smaller of two critics, none where the episode ended; the actor's loss from the first one."""
    batch = transitions.Transition(
        obs=jnp.zeros((2, 2)),
        action=jnp.array([[0.5, -0.5], [0.5, 0.5]]),
        reward=jnp.array([1.0, 2.0]),
        terminated=jnp.array([False, True]),
        next_obs=jnp.zeros((2, 2)),
    )
    next_action, both = jnp.array([[0.5, 0.5]] * 2), jnp.array([3.0, 5.0])
    found = pga_me.critic_objective(Quadratic(), both, batch, next_action, both, 0.9)
    target = np.array([1 + 0.9 * (3 - 1), 2])
    values = np.array([[3, 3 - 1], [5, 5 - 1]])
    np.testing.assert_allclose(found, ((values - target) ** 2).mean(1).sum(), rtol=1e-6)
    lost = pga_me.actor_objective(Quadratic(), 3.0, lambda weights, obs: weights + obs, jnp.zeros(2), batch.obs)
    np.testing.assert_allclose(lost, -(3 - 0.5), rtol=1e-6)


def algo_of(**more):
    return pga_me.make(Bowl(), pga_me.Config(**{**SMALL, **more}))


def test_only_steps_of_episodes_that_are_not_over_are_stored_and_in_units():
    algo = algo_of(num_critic_updates=1, num_policy_updates=1)
    state = algo.init(KEY)
    before, rollout = jax.jit(algo.collect)(state)
    state, _ = jax.jit(algo.learn)(before, rollout)
    memory, stored = state.search.memory, int(state.search.memory.size)
    mask = np.asarray(rollout.steps.mask)
    assert stored == mask.sum() and mask.shape == (3, 8)
    ended = np.asarray(rollout.ends.done)
    np.testing.assert_array_equal(mask, np.cumsum(ended, 0) - ended == 0)
    items = jax.tree.map(lambda x: np.asarray(x[:stored]), memory.items)
    assert np.abs(items.action).max() <= 1
    np.testing.assert_allclose(items.reward, -((items.action - [0.5, -0.5]) ** 2).sum(-1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(items.next_obs, np.clip(items.obs + items.action / 3, -1, 1), atol=1e-6)


def test_children_are_of_three_kinds():
    """Six of iso-line, one that climbed, and the greedy actor, in this order."""
    algo = algo_of(num_critic_updates=4, num_policy_updates=4, gradient_share=0.15)
    assert algo.config.num_gradient == 1
    state = algo.init(KEY)
    hyper = state.hyper.replace(iso_sigma=jnp.float32(0), line_sigma=jnp.float32(0))
    state, metrics = jax.jit(algo.update)(state.replace(hyper=hyper))
    archive = np.asarray(state.archive.genome)[np.asarray(state.archive.filled)]
    same = [(np.abs(archive - np.asarray(child)).max(1) == 0).any() for child in state.population]
    assert same == [True] * 6 + [False] * 2
    np.testing.assert_array_equal(state.population[-1], state.search.actor.flat)
    accepted = sum(int(metrics[f"accepted_{kind}"]) for kind in ("iso_line", "gradient", "greedy"))
    assert accepted == metrics["accepted"] and state.search.critic.count == 4 and state.search.actor.count == 2


@pytest.mark.slow
def test_climbers_and_the_greedy_actor_reach_the_best_action():
    algo = algo_of(num_critic_updates=300, num_policy_updates=60, num_steps=3)
    hyper = pga_me.Hyper(learning_rate=3e-3, policy_learning_rate=1e-2, gamma=0.0)
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, 20 * algo.steps_per_update, hyper))(KEY)
    genomes = state.population[-5:]  # four climbed, and the greedy actor
    members, obs = jax.vmap(state.search.actor.unravel)(genomes), jnp.array([0.3, -0.2])
    action, _ = jax.vmap(lambda weights: algo.act(behaviour.Policy(weights), KEY, obs))(members)
    np.testing.assert_allclose(action, [[3.0, 1.0]] * 5, atol=0.25)
    assert state.archive.fitness.max() > -0.05


@pytest.mark.slow
def test_gradients_reach_every_layer():
    algo = algo_of(num_critic_updates=2, num_policy_updates=2)
    state = algo.init(KEY)
    after, _ = jax.jit(algo.update)(state)
    for name in ("critic", "actor"):
        old, new = (getattr(x.search, name).weights for x in (state, after))
        changed = jax.tree.map(lambda x, y: bool((x != y).any()), old, new)
        assert all(jax.tree.leaves(changed)), name
    climbed = jax.vmap(state.search.actor.unravel)(after.population[-5:-1])
    parents = np.asarray(after.archive.genome)[np.asarray(after.archive.filled)]
    parents = jax.vmap(state.search.actor.unravel)(jnp.asarray(parents))
    for x, y in zip(jax.tree.leaves(climbed), jax.tree.leaves(parents), strict=True):
        assert not any((np.asarray(y) == np.asarray(one)).all(tuple(range(1, y.ndim))).any() for one in x)


@pytest.mark.slow
def test_it_is_ahead_of_map_elites_where_a_gradient_helps():
    """As many evaluations of larger networks on Pendulum: returns of the best cell's policy, played again, by seed."""
    env, params = jaxrl.make("Pendulum-v1")
    shared = dict(population_size=16, hidden=(32, 32), cells=(10,), descriptor=("theta [rad]", "theta_dot [rad/s]"))
    shared |= dict(descriptor_low=(-3.2, -8.0), descriptor_high=(3.2, 8.0), summary="mean", num_episodes=4)
    of = {
        "gradient": pga_me.make(env, pga_me.Config(**shared, num_critic_updates=200, num_policy_updates=50)),
        "chance": map_elites.make(env, map_elites.Config(**shared)),
    }

    def run(algo, key):
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, 80 * algo.steps_per_update)
        best = behaviour.policy_of(state, jnp.argmax(state.archive.fitness))
        return jaxrl.evaluate(algo, best, eval_key, env, params, num_episodes=64, greedy=True).returns.mean()

    returns = {
        name: np.asarray(jax.jit(jax.vmap(lambda key, algo=algo: run(algo, key)))(jax.random.split(KEY, 3)))
        for name, algo in of.items()
    }
    assert returns["gradient"].mean() > returns["chance"].max() + 200, returns


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"gradient_share=1.5: it must be from 0 to 1"):
        pga_me.Config(gradient_share=1.5)
    with pytest.raises(ValueError, match="buffer_size=10: a generation has 24 steps; make it at least that, or"):
        algo_of(buffer_size=10)

    with pytest.raises(ValueError, match="gradient_share=0.5: of population_size=2 that is no child; take more, or 0"):
        pga_me.Config(population_size=2)

    class Choices(Bowl):
        def action_space(self, params):
            return Discrete(2)

    with pytest.raises(ValueError, match="pga_me"):
        pga_me.make(Choices(), pga_me.Config(**SMALL))
