"""From a dataset into the environment: what goes on, what the memory is warmed up with, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algos import cql, edac, iql, mopo
from jaxrl.data import datasets
from jaxrl.data.datasets import Dataset
from jaxrl.off_policy import fine_tune, imagination
from jaxrl.replay.ring import uniform
from jaxrl.testing.probes import ObservationActionReward

KEY = jax.random.key(0)
ENV = ObservationActionReward("box")
PARAMS = ENV.default_params
SPACE = ENV.action_space(PARAMS)
SIZES = dict(num_envs=2, num_updates=2, batch_size=8, buffer_size=64, hidden=(8,))


def memory():
    obs = np.linspace(-1, 1, 20, dtype=np.float32).reshape(20, *ENV.observation_space(PARAMS).shape)
    true = np.ones(20, bool)
    return datasets.stored(Dataset(obs, np.zeros((20, *SPACE.shape), np.float32), obs[:, 0], true, true, obs), SPACE)


def equal(x, y):
    jax.tree.map(np.testing.assert_array_equal, x, y)


@pytest.mark.slow
def test_cql_goes_on_as_an_ensemble():
    """WSRL: the policy of the dataset fills the memory, nothing is learned meanwhile, then another learner goes on."""
    offline = cql.make(ENV, cql.Config(**SIZES, num_actions=1, num_critics=3, calibrated=True), replay=memory())
    trained = offline.init(KEY, cql.Hyper(), PARAMS)
    trained = trained.replace(optimizer=jax.tree.map(lambda x: x + 1, trained.optimizer))
    steered = jax.tree.map(lambda x: x, trained.weights["actor"])
    steered["params"]["MLP_0"]["Dense_1"]["bias"] = jnp.array([0.5, -20.0])  # tanh(0.5), all but always
    trained = trained.replace(weights={**trained.weights, "actor": steered})

    config = edac.Config(**SIZES, num_critics=3, diverse=False, num_target_critics=2, soft_targets=False)
    online = edac.make(ENV, config)

    @jax.jit
    def run(trained):
        state = fine_tune.start(online, trained, KEY, edac.Hyper(learning_starts=1000), PARAMS, warm_up=10)
        return state, online.update(state)

    state, (after, metrics) = run(trained)
    for part in fine_tune.LEARNT:
        equal(getattr(state, part), getattr(trained, part))
    assert int(state.step) == 10 == int(state.replay.size) and int(state.hyper.learning_starts) == 0
    np.testing.assert_allclose(state.replay.items.action[:10], np.tanh(0.5), atol=0.05)
    assert int(metrics["gradient_steps"]) == 2 and int(after.optimizer["critic"].count) == 3
    assert not np.array_equal(after.weights["log_alpha"], state.weights["log_alpha"])


@pytest.mark.slow
def test_the_optimiser_may_begin_anew_and_the_dataset_stay():
    """Half of what is learned from is then the dataset's."""
    trained = iql.make(ENV, iql.Config(**SIZES), replay=memory()).init(KEY, None, PARAMS)
    trained = trained.replace(optimizer=jax.tree.map(lambda x: x + 1, trained.optimizer))
    online = iql.make(ENV, iql.Config(**SIZES), replay=datasets.mixed(memory(), uniform(64)))
    state = fine_tune.start(online, trained, jax.random.key(1), None, PARAMS, optimizer=False)
    equal(state.weights, trained.weights)
    assert int(state.step) == 0 == int(state.optimizer["actor"].count)
    after, metrics = jax.jit(online.update)(state)
    assert int(metrics["gradient_steps"]) == 2 and int(after.replay.size) == 2 and np.isfinite(metrics["loss"])


def test_what_cannot_go_on_is_refused():
    small = iql.Config(**SIZES)
    offline, online = iql.make(ENV, small, replay=memory()), iql.make(ENV, small)
    trained = jax.eval_shape(lambda: offline.init(KEY, None, PARAMS))

    def start(algo, **settings):
        return jax.eval_shape(lambda trained: fine_tune.start(algo, trained, KEY, **settings), trained)

    with pytest.raises(ValueError, match="does not act"):
        start(offline)

    def model(key, obs, action):
        return imagination.Prediction(obs, action[:, 0], action[:, 0] > 2, jnp.zeros(len(action)))

    imagined = mopo.make(ENV, mopo.Config(**SIZES, num_rollouts=1), replay=memory(), model=model)
    with pytest.raises(ValueError, match="does not act"):
        start(imagined)
    with pytest.raises(ValueError, match="warm_up=3: it must be a multiple of the 2 steps"):
        start(online, warm_up=3)
    with pytest.raises(ValueError, match=r"cql needs weights of log_alpha; trained were actor, critic, value"):
        start(cql.make(ENV, cql.Config(**SIZES)))
    with pytest.raises(
        ValueError, match=r"weights of (actor|value) were trained with the shapes \[\(8,\), .* are \[\(9,\)"
    ):
        start(iql.make(ENV, iql.Config(**{**SIZES, "hidden": (9,)})))
    with pytest.raises(ValueError, match="num_target_critics=4"):
        edac.Config(num_critics=3, num_target_critics=4)
