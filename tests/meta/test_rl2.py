"""RL^2: trials, against a loop in Python, and a task that only memory between its episodes can solve."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition, pytree, vectorize
from jaxrl.algos.meta import rl2
from jaxrl.environment import NO_LIMIT, Hints
from jaxrl.spaces import Discrete
from jaxrl.testing.environments import check_environment
from jaxrl.wrappers import TrialParams, Trials

KEY = jax.random.key(0)


@pytree
class DoorParams:
    max_steps: jax.Array = 2
    good: jax.Array = 0  # the door that pays


@pytree
class DoorState:
    time: jax.Array
    last: jax.Array


@dataclasses.dataclass(frozen=True)
class Doors(Environment):
    """Two doors, of which one pays; an episode is one choice, or two of which the first was wrong."""

    id: str = dataclasses.field(default="Doors", kw_only=True)
    Params = DoorParams
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return DoorState(jnp.int32(0), jnp.int32(2))

    def transition(self, key, state, action, params):
        found = action == params.good
        return Transition(state.replace(last=action), jnp.where(found, jnp.float32(1), -1), found, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return state.last

    def observation_space(self, params):
        return Discrete(3)

    def action_space(self, params):
        return Discrete(2)

    def generate(self, key, params):
        return params.replace(good=jax.random.randint(key, (), 0, 2))


def test_a_trial_is_its_episodes_one_after_the_other():
    env = Trials(Doors(), episodes=2)
    params = env.default_params
    assert int(params.max_steps) == 4
    obs, state = env.reset(KEY, params)
    good = int(state.task.good)
    assert obs["begins"] == 1 and not obs["previous_action"].any() and obs["previous_reward"] == 0
    # Wrong and wrong again (the time limit), then right: the trial is over.
    seen = []
    for action in (1 - good, 1 - good, good):
        ts = env.step(KEY, state, jnp.int32(action), params)
        assert int(ts.state.task.good) == good
        assert ts.obs["previous_action"].argmax() == action and ts.obs["previous_reward"] == ts.reward
        seen.append(
            [int(ts.info["episode"]), bool(ts.info["episode_over"]), bool(ts.obs["begins"]), bool(ts.terminated)]
        )
        seen[-1].append(int(ts.obs["obs"]))
        state = ts.state
    assert seen == [
        [0, 0, 0, 0, 1 - good],
        [0, 1, 1, 0, 2],
        [1, 1, 1, 1, 2],
    ]


@pytest.mark.slow
@pytest.mark.light
def test_only_a_new_trial_has_a_new_task():
    venv = vectorize(Trials(Doors(), episodes=3), 64)
    obs, state = venv.reset(KEY, venv.default_params)

    def step(carried, key):
        _, state = carried
        task = state.env.task.good
        ts = venv.step(key, state, jnp.zeros(64, jnp.int32), venv.default_params)
        return (ts.obs, ts.state), (task, ts.state.env.task.good, ts.terminated)

    _, (before, after, over) = jax.lax.scan(step, (obs, state), jax.random.split(KEY, 30))
    assert (before == after)[~over].all() and (before != after)[over].mean() > 0.3
    assert 0.3 < before.mean() < 0.7


@pytest.mark.slow
@pytest.mark.light
def test_the_contract_of_environments_and_what_is_refused():
    check_environment(Trials(Doors()), num_steps=12, whole=False)
    maze, params = jaxrl.make("GridWorld-debug-v0", observation="index")
    check_environment(Trials(maze), num_steps=12, whole=False)
    assert type(Trials(maze).task(KEY, TrialParams(params, jnp.int32(2)))).__name__ == "Level"
    assert int(TrialParams(DoorParams(max_steps=NO_LIMIT), jnp.int32(2)).max_steps) == NO_LIMIT
    with pytest.raises(ValueError, match="episodes=0 must be at least 1"):
        Trials(Doors(), episodes=0)
    with pytest.raises(ValueError, match="a trial has at least one"):
        env = Trials(Doors())
        env.reset(KEY, env.default_params.replace(episodes=jnp.int32(0)))
    with pytest.raises(ValueError, match="episodes=0: a trial has at least one"):
        rl2.Config(episodes=0)


@pytest.mark.slow
@pytest.mark.light
def test_it_learns_to_remember_the_door():
    config = rl2.Config(num_envs=64, num_steps=16, num_minibatches=2, hidden=(16,), rnn_size=16, episodes=4)
    algo = rl2.make(Doors(), config)
    hyper = rl2.Hyper(learning_rate=5e-3, gamma=0.95, ent_coef=0.01)
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, 60_000, hyper))(KEY)
    params = algo.venv.default_params
    played = jax.jit(lambda policy: rl2.play(algo, policy, KEY, params, 256, 4, 8, greedy=True))(algo.policy(state))
    returns = np.asarray(played.returns).mean(0)
    assert played.finished.all()
    assert -0.2 < returns[0] < 0.75  # a guess: 1, or -1 and then 1
    assert (returns[1:] > 0.95).all()  # and then it is known
    assert (np.asarray(played.lengths)[:, 1:] == 1).mean() > 0.95
