"""The task of who directs an attack: what the victim sees by hand, rewards, and a director that learns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition, evaluate, pytree
from jaxrl.algos import ppo
from jaxrl.spaces import Box, Discrete, MultiDiscrete
from jaxrl.testing import check_environment
from jaxrl.wrappers import DirectedAttack

KEY = jax.random.key(0)


@pytree
class Params:
    max_steps: jax.Array = 4


@pytree
class State:
    time: jax.Array
    place: jax.Array  # (2,)


@dataclasses.dataclass(frozen=True)
class Aim(Environment):
    """The reward is the first number of the action times the first of the place, where the agent stays."""

    id: str = dataclasses.field(default="Aim", kw_only=True)
    Params = Params
    choices: int = 0  # 0: two numbers

    def initial(self, key, params):
        return State(jnp.int32(0), jax.random.uniform(key, (2,), minval=0.2, maxval=0.4))

    def transition(self, key, state, action, params):
        number = (action == 0).astype(float) if self.choices else action[0]
        return Transition(state, number * state.place[0], jnp.bool_(False), jnp.bool_(False), {"action": number})

    def observe(self, key, state, params):
        return state.place

    def observation_space(self, params):
        return Box(-1.0, 1.0, (2,))

    def action_space(self, params):
        return Discrete(self.choices) if self.choices else Box(-5.0, 5.0, (2,))


WEIGHTS = jnp.array([[1.0, -2.0], [0.5, 3.0]])


def linear(weights, obs):
    return weights @ obs


def acted(weights, key, obs):
    return weights @ obs


def directed(env=None, act=acted, **settings):
    return DirectedAttack(Aim() if env is None else env, act, linear, **settings)


def test_the_victim_sees_the_corner_that_pushes_it_furthest():
    """Of a linear policy: obs + strength * sign(direction @ weights), and no further than the box."""
    task = directed()
    params = task.attacking(Params(), 0.1, victim=WEIGHTS)
    obs, state = task.reset(KEY, params)
    for direction in ([1.0, 0.0], [-1.0, 0.0], [0.3, 0.9]):
        ts = task.step(KEY, state, jnp.array(direction), params)
        seen = obs + 0.1 * np.sign(np.array(direction) @ WEIGHTS)
        np.testing.assert_allclose(ts.info["action"], (WEIGHTS @ seen)[0], rtol=1e-6)
        np.testing.assert_allclose(ts.obs, obs)  # the director sees what is so
        np.testing.assert_allclose(ts.info["task_reward"], ts.info["action"] * obs[0], rtol=1e-6)
        assert ts.reward == -ts.info["task_reward"]
    wide = task.step(KEY, state, jnp.array([1.0, 0.0]), params.replace(strength=jnp.float32(9.0)))
    np.testing.assert_allclose(wide.info["action"], 1 * 1 + -2 * -1, rtol=1e-6)
    beyond = task.step(KEY, state, jnp.array([7.0, 0.0]), params)  # of the box of directions
    np.testing.assert_allclose(beyond.info["action"], (WEIGHTS @ (obs + 0.1 * jnp.array([1, -1])))[0], rtol=1e-6)


def test_at_strength_zero_the_director_has_no_say():
    task = directed()
    params = task.attacking(Params(), 0.0, victim=WEIGHTS)
    obs, state = task.reset(KEY, params)
    actions = [task.step(KEY, state, jnp.array(d), params).info["action"] for d in ([1.0, 0.0], [-1.0, 1.0])]
    np.testing.assert_allclose(actions, [(WEIGHTS @ obs)[0]] * 2, rtol=1e-6)


def test_choices_are_directed_by_their_logits():
    task = directed(Aim(choices=2), lambda weights, key, obs: jnp.argmax(weights @ obs))
    params = task.attacking(Params(), 0.5, victim=jnp.array([[1.0, 0.0], [0.0, 1.0]]))
    assert task.action_space(params).shape == (2,)
    state = task.reset(KEY, params)[1]
    found = [task.step(KEY, state, jnp.array(d), params).info["action"] for d in ([1.0, -1.0], [-1.0, 1.0])]
    assert found == [1, 0]


@pytest.mark.slow
def test_directors_of_several_strengths_learn_in_one_program():
    """The victim's first action is W[0] @ seen: at most 0.3 less at strength 0.1, and a director finds nearly that."""
    task = directed()
    algo = ppo.make(task, ppo.Config(num_envs=16, num_steps=16, num_minibatches=4))
    params = jax.vmap(lambda strength: task.attacking(Params(), strength, victim=WEIGHTS))(jnp.array([0.0, 0.1]))

    def run(params):
        state, _ = jaxrl.train(algo, KEY, 30_000, ppo.Hyper(learning_rate=1e-2), params)
        return evaluate(algo, algo.policy(state), KEY, task, params, num_episodes=32).returns.mean()

    free, attacked = jax.jit(jax.vmap(run))(params)
    place = jax.vmap(lambda key: task.reset(key, task.attacking(Params(), 0.0, victim=WEIGHTS))[0])
    mean = float(place(jax.random.split(KEY, 4096))[:, 0].mean())
    assert 0.95 * 4 * 0.3 * mean < attacked - free < 1.05 * 4 * 0.3 * mean


@pytest.mark.slow
def test_the_contract():
    task = directed()
    check_environment(task, task.attacking(Params(), 0.1, victim=WEIGHTS))


def test_what_is_refused():
    task = directed()
    with pytest.raises(ValueError, match="DirectedAttack: params have no victim; take `task.attacking"):
        task.step(KEY, task.reset(KEY, task.default_params)[1], jnp.ones(2), task.default_params)
    short = DirectedAttack(Aim(), acted, lambda weights, obs: obs[:1])
    params = short.attacking(Params(), 0.1, victim=WEIGHTS)
    with pytest.raises(TypeError, match=r"push gives \(1,\); the director's actions are \(2,\)"):
        short.step(KEY, short.reset(KEY, params)[1], jnp.ones(2), params)
    with pytest.raises(ValueError, match=r"strength=-1.0 must be at least 0"):
        task.validate(task.attacking(Params(), -1.0, victim=WEIGHTS))
    with pytest.raises(ValueError, match="agents; it attacks one"):
        DirectedAttack(jaxrl.make("Quadcopter-Flock-v0")[0], acted, linear)

    class Pairs(Aim):
        def action_space(self, params):
            return MultiDiscrete((2, 2))

    with pytest.raises(ValueError, match="it directs Box and Discrete"):
        DirectedAttack(Pairs(), acted, linear)
