"""Datasets: where episodes are, weights of them, what is known of them, and how often a learner draws what."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxrl
from jaxrl.algos import bc
from jaxrl.data import datasets, quality
from jaxrl.data.datasets import Dataset, Episodes
from jaxrl.data.transitions import Transition
from jaxrl.replay.ring import uniform
from jaxrl.rollout import Steps
from jaxrl.spaces import Box, Discrete

BOX = Box(-2.0, 2.0, (1,))
KEY = jax.random.key(0)


def made(*lengths, rewards=None, complete=True):
    """Episodes of these lengths; the observation is the step's number, the action a tenth of it."""
    n = sum(lengths)
    last = np.zeros(n, bool)
    last[np.cumsum(lengths) - 1] = True
    last[-1] = complete
    x = np.arange(n, dtype=np.float32)[:, None]
    rewards = np.ones(n, np.float32) if rewards is None else np.asarray(rewards, np.float32)
    return Dataset(x, x / 10, rewards, last & (np.arange(n) < lengths[0]), last, x + 1)


def test_episodes():
    episodes = Episodes(made(3, 1, 2, rewards=[1, 2, 3, 10, 5, 6]))
    np.testing.assert_array_equal(episodes.first, [0, 3, 4])
    np.testing.assert_array_equal(episodes.length, [3, 1, 2])
    np.testing.assert_array_equal(episodes.total, [6, 10, 11])
    np.testing.assert_array_equal(episodes.of_step(), [0, 0, 0, 1, 2, 2])
    assert len(Episodes(made(2, 2, complete=False))) == 2, "the last one was not finished"
    np.testing.assert_array_equal(Episodes(made(1, 2, rewards=[2.0**60, 1, 1])).total, [2.0**60, 2])
    with pytest.raises(ValueError, match="without steps"):
        Episodes(jax.tree.map(lambda x: x[:0], made(2)))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_choosing_and_joining_are_opposites(lengths, data):
    dataset = made(*lengths)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths))))
    parts = [datasets.chosen(dataset, np.arange(len(lengths)) == i) for i in range(len(lengths))]
    whole = datasets.joined(*parts)
    jax.tree.map(np.testing.assert_array_equal, whole, dataset)
    if mask.any():
        few = datasets.chosen(dataset, mask)
        assert Episodes(few).length.tolist() == [n for n, keep in zip(lengths, mask, strict=True) if keep]


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="different kinds"):
        datasets.joined(made(2), made(2).replace(obs=np.zeros((2, 3))))
    with pytest.raises(ValueError, match="no dataset"):
        datasets.joined()
    with pytest.raises(ValueError, match=r"shape \(3,\) among 2 episodes"):
        datasets.chosen(made(1, 1), np.ones(3, bool))
    for weights in ([1.0], [0.0, 0.0], [1.0, -1.0], [1.0, np.inf], [1.0, np.nan]):
        with pytest.raises(ValueError, match="a dataset of 2 episodes needs"):
            datasets.stored(made(1, 1), BOX, np.array(weights))
    with pytest.raises(ValueError, match="share=0"):
        datasets.best_weights(made(1), 0.0)


def test_a_rollout_becomes_a_dataset():
    """Environments one after another, each of whose last steps ends an episode; equal to a loop over steps."""
    env, params = jaxrl.make("CartPole-v1")
    venv = jaxrl.vectorize(env, 3)

    def run(key):
        obs, state = venv.reset(key, params)

        def step(carry, key):
            obs, state = carry
            action = jax.random.randint(key, (3,), 0, 2)
            ts = venv.step(key, state, action, params)
            steps = Steps(obs, (), ts.reward, ts.terminated, ts.truncated, ts.info["final_obs"], {})
            return (ts.obs, ts.state), (steps, action)

        return jax.lax.scan(step, (obs, state), jax.random.split(key, 40))[1]

    steps, action = jax.jit(run)(KEY)
    dataset = jax.device_get(datasets.from_rollout(steps, action))
    assert dataset.size == 120 and dataset.last[39] and dataset.last[79] and dataset.terminated.sum() >= 3
    np.testing.assert_array_equal(dataset.obs[40:80], steps.obs[:, 1])
    inside = ~dataset.last[:-1]
    np.testing.assert_array_equal(dataset.next_obs[:-1][inside], dataset.obs[1:][inside])
    assert not dataset.terminated[~dataset.last].any()


def test_returns_to_go():
    found = datasets.returns_to_go(made(3, 2, rewards=[1, 2, 4, 8, 16]), 0.5)
    np.testing.assert_allclose(found, [1 + 1 + 1, 2 + 2, 4, 8 + 8, 16])


def test_no_return_goes_beyond_the_end_of_the_task():
    dataset = made(4).replace(terminated=np.array([False, True, False, False]))  # as OGBench's masks may have it
    np.testing.assert_array_equal(datasets.returns_to_go(dataset), [2, 1, 2, 1])


def test_the_bound_of_a_cut_episode_goes_on_with_the_least_reward():
    """The first episode of `made` ends the task, the second is cut, the third is the one that was not finished."""
    dataset = made(2, 2, 2, rewards=[1, 2, -1, -3, 4, 5], complete=False)
    tail = 0.5 * -3 / (1 - 0.5)
    wanted = [1 + 0.5 * 2, 2, -1 + 0.5 * (-3 + tail), -3 + tail, 4 + 0.5 * (5 + tail), 5 + tail]
    np.testing.assert_allclose(datasets.return_bounds(dataset, 0.5), wanted)
    np.testing.assert_allclose(datasets.transitions(dataset, BOX, 0.5).return_bound, wanted)
    np.testing.assert_array_equal(datasets.return_bounds(dataset), [3, 2, *[-np.inf] * 4])
    goal = made(1, 3, rewards=[0, -1, -1, -1])
    np.testing.assert_allclose(datasets.return_bounds(goal, 0.9)[1:], -10, rtol=1e-6, err_msg="-1 for ever")
    paid = made(1, 3, rewards=[2, 1, 1, 1])
    sums = datasets.returns_to_go(paid, 0.9)
    np.testing.assert_allclose(datasets.return_bounds(paid, 0.9), sums, err_msg="the task may end at the cut")


def test_the_scale_of_rewards_is_by_the_returns_of_whole_episodes():
    dataset = made(2, 1, 2, rewards=[1, 2, -1, 50, 50], complete=False)  # returns 3 and -1
    assert datasets.reward_scale(dataset) == 250 and datasets.reward_scale(dataset, 8) == 2
    for alike in (made(2, 2), made(3), made(3, complete=False)):
        with pytest.raises(ValueError, match="whole episodes are alike"):
            datasets.reward_scale(alike)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"obs": np.zeros((2, 1), np.float32)}, "3 rewards has obs of shape"),
        ({"reward": np.zeros((3, 1), np.float32)}, "one number a step"),
        ({"next_obs": np.full((3, 1), np.nan, np.float32)}, "3 of the 3 numbers of a dataset's next_obs"),
        ({"obs": np.full((3, 1), np.inf, np.float32)}, "obs are not finite"),
        ({"action": np.zeros((3, 2), np.float32)}, "actions have shape"),
        ({"next_obs": np.zeros((3, 2), np.float32)}, "must be alike"),
    ],
)
def test_arrays_that_no_learner_could_use(change, says):
    for memory in (datasets.stored, datasets.prioritised, lambda d, space: datasets.windows(d, space, 2)):
        with pytest.raises(ValueError, match=says):
            memory(made(3).replace(**change), BOX)


def test_actions_of_another_kind():
    for action in (np.array([0, 2, 1]), np.array([0, -1, 1]), np.array([0.0, 1.0, 1.0])):
        with pytest.raises(ValueError, match="integers of Discrete"):
            datasets.stored(made(3).replace(action=action), Discrete(2))
    whole = datasets.transitions(made(3).replace(action=np.array([[-1], [0], [2]])), BOX)
    np.testing.assert_array_equal(whole.action, [[-0.5], [0], [1]])


def test_a_carried_dataset_is_drawn_as_a_stored_one():
    dataset = made(3, 4)
    held = datasets.transitions(dataset, BOX, 0.9)
    drawn = datasets.carried.sample(KEY, held, 50)
    jax.tree.map(np.testing.assert_array_equal, drawn, datasets.stored(dataset, BOX, gamma=0.9).sample(KEY, (), 50))
    with pytest.raises(ValueError, match="put the steps into the state"):
        datasets.carried.sample(KEY, datasets.carried.init(), 50)


def test_successors_that_are_not_known_are_left_out():
    dataset = made(2, 1).replace(terminated=np.array([False, True, True]))
    same = datasets.with_successors(dataset)
    assert same is dataset, "they changed"
    stays = dataset.replace(next_obs=np.array([[1.0], [1.0], [3.0]], np.float32))
    np.testing.assert_array_equal(datasets.with_successors(stays).obs[:, 0], [0, 2])


def test_weights_by_hand():
    dataset = made(1, 1, 1, rewards=[0, 5, 10])
    np.testing.assert_allclose(datasets.return_weights(dataset, 0.5), np.exp([-2, -1, 0]))
    np.testing.assert_array_equal(datasets.best_weights(dataset, 0.3), [0, 0, 1])
    np.testing.assert_array_equal(datasets.best_weights(dataset, 0.01), [0, 0, 1])
    # What the start explains is no merit: returns are linear in it but for the last episode's 3.
    lucky = made(1, 1, 1, 1, rewards=[0, 2, 4, 6 + 3])
    x = np.stack([np.arange(4.0), np.ones(4)], 1)
    advantage = Episodes(lucky).total - x @ np.linalg.pinv(x) @ Episodes(lucky).total
    scaled = (advantage - advantage.min()) / np.ptp(advantage)
    np.testing.assert_allclose(datasets.advantage_weights(lucky, 0.1), np.exp((scaled - 1) / 0.1))
    assert np.all(datasets.return_weights(made(1, 1)) == 1), "equal returns"


def test_indicators_by_hand():
    dataset = made(1, 1, 1, 1, rewards=[0, 0, 0, 1])
    assert quality.positive_sided_variance(dataset) == pytest.approx(0.75**2 / 4)
    assert quality.trajectory_quality(dataset, 0.0, 0.5) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="must be above"):
        quality.trajectory_quality(dataset, 1.0, 1.0)
    discrete = Dataset(np.array([0, 0, 1]), np.array([0, 0, 1]), np.zeros(3), *(np.ones(3, bool),) * 2, np.zeros(3))
    more = Dataset(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.zeros(4), *(np.ones(4, bool),) * 2, np.zeros(4))
    assert quality.state_action_coverage(discrete, more) == 2 / 4
    assert quality.state_action_coverage(made(10), made(10)) == 1.0
    assert quality.state_action_coverage(made(5), made(10), bins=2) == 0.5


def test_units_are_the_opposite_of_the_boxes():
    box = Box(np.array([-2.0, 0.0, -np.inf, 3.0]), np.array([2.0, 1.0, np.inf, 3.0]), (4,))
    action = jnp.array([[-2.0, 0.25, 7.0, 3.0], [1.0, 1.0, -3.0, 3.0]])
    unit = datasets.to_unit(box, action)
    np.testing.assert_allclose(unit, [[-1, -0.5, 7, 0], [0.5, 1, -3, 0]])
    np.testing.assert_allclose(box.from_unit(unit), action)
    assert datasets.to_unit(Discrete(3), jnp.array([2]))[0] == 2


def drawn(dataset, weights, n=20_000):
    memory = datasets.stored(dataset, BOX, weights, gamma=0.5)
    return jax.jit(lambda key: memory.sample(key, memory.init(), n))(KEY)


def test_steps_are_drawn_as_often_as_they_weigh():
    dataset, n = made(2, 3, 5), 20_000
    for weights, chance in (
        (None, np.full(10, 0.1)),
        (np.array([1.0, 1.0, 1.0]), np.full(10, 0.1)),
        (np.array([3.0, 0.0, 1.0]), np.repeat([3.0, 0.0, 1.0], [2, 3, 5]) / 11),
        (np.array([1.0, 1.0, 0.0]), np.repeat([1.0, 1.0, 0.0], [2, 3, 5]) / 5),
    ):
        count = np.bincount(np.asarray(drawn(dataset, weights).obs[:, 0], int), minlength=10)
        assert not count[chance == 0].any()
        # Ten cells: of each the count is within five deviations of what it should be.
        assert np.all(np.abs(count - n * chance) <= 5 * np.sqrt(n * chance + 1e-9)), (weights, count)


def test_what_is_drawn_belongs_together():
    dataset = made(2, 3, rewards=[1, 2, 3, 4, 5])
    batch = drawn(dataset, None, 200)
    row = np.asarray(batch.obs[:, 0], int)
    np.testing.assert_allclose(batch.action[:, 0], row / 20, rtol=1e-6)  # of [-2, 2] in units
    np.testing.assert_array_equal(batch.next_obs[:, 0], row + 1)
    np.testing.assert_allclose(batch.next_action[:, 0], np.array([1, 1, 3, 4, 4])[row] / 20, rtol=1e-6)
    np.testing.assert_allclose(batch.return_to_go, np.array([2, 2, 3 + 2 + 1.25, 6.5, 5])[row])


def test_steps_are_drawn_by_their_priorities():
    """As often as priority^alpha says, with weights (size P)^-beta over the largest; what is not given stays."""
    memory, size, n = datasets.prioritised(made(4, 5, 1, rewards=range(10)), BOX), 10, 20_000
    state = memory.init()
    sample = jax.jit(lambda state: memory.sample(KEY, state, n, 0.4))
    _, indices, weights = sample(state)
    assert np.all(np.abs(np.bincount(indices, minlength=size) - n / size) <= 5 * np.sqrt(n / size))
    np.testing.assert_allclose(weights, 1)
    priorities, given = np.arange(10.0) ** 2 + 0.5, np.arange(10) != 3
    state = memory.update(state, jnp.arange(10), jnp.asarray(priorities, jnp.float32), 0.5, jnp.asarray(given))
    p = np.where(given, priorities**0.5, 1)
    p /= p.sum()
    batch, indices, weights = sample(state)
    assert np.all(np.abs(np.bincount(indices, minlength=size) - n * p) <= 5 * np.sqrt(n * p))
    np.testing.assert_array_equal(batch.reward, indices)
    np.testing.assert_allclose(weights, (p[indices] / p.min()) ** -0.4, rtol=1e-5)
    with pytest.raises(ValueError, match="mixed: a replay with priorities"):
        datasets.mixed(memory, uniform(8))
    with pytest.raises(ValueError, match="bc: a replay with priorities"):
        bc.make(jaxrl.make("Pendulum-v1")[0], bc.Config(hidden=(4,)), replay=memory)


def test_a_mixed_memory_draws_from_both():
    """In turns, whatever the share; the learner's own steps have no return."""
    dataset = made(4, 4)
    memory = datasets.mixed(datasets.stored(dataset, BOX), uniform(8), 0.25)
    new = Transition(jnp.full((3, 1), -1.0), jnp.zeros((3, 1)), jnp.ones(3), jnp.zeros(3, bool), jnp.full((3, 1), -2.0))
    state = memory.add(memory.init(jax.tree.map(lambda x: x[0], new)), new)
    batch = memory.sample(KEY, state, 10)
    own = np.asarray(batch.obs[:, 0]) < 0
    np.testing.assert_array_equal(own, [1, 1, 1, 0, 1, 1, 1, 0, 1, 1])
    np.testing.assert_array_equal(np.isinf(batch.return_to_go), own)
    np.testing.assert_array_equal(np.isinf(batch.return_bound), own)
    np.testing.assert_array_equal(batch.next_obs[own], np.full((8, 1), -2.0))
    np.testing.assert_allclose(batch.next_obs[~own], batch.obs[~own] + 1)
    np.testing.assert_array_equal(batch.next_action[own], np.zeros((8, 1)))
    assert not (np.asarray(memory.sample(KEY, state, 3).obs) >= 0).any(), "floor(3 / 4) of the dataset"


def test_a_mixed_memory_needs_a_dataset_and_a_ring():
    memory, own = datasets.stored(made(2), BOX), uniform(8)
    assert datasets.mixed(memory, own) is datasets.mixed(memory, own)
    for pair in ((own, own), (memory, memory), (own, memory)):
        with pytest.raises(ValueError, match="the first replay must be a dataset's"):
            datasets.mixed(*pair)
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="between 0 and 1"):
            datasets.mixed(memory, own, share)
