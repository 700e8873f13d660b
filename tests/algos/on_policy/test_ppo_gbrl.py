"""PPO with trees: the gradients of rows by hand, one update step by step, the budget, and what it learns."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import make, train
from jaxrl.algos import ppo_gbrl
from jaxrl.environment import strongly_typed
from jaxrl.nn import trees
from jaxrl.returns import gae
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.assertions import assert_no_key_reuse

TINY = ppo_gbrl.Config(num_envs=4, num_steps=8, num_epochs=2, num_minibatches=2, num_trees=10, depth=2)


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def test_gradients_of_rows_by_hand():
    # Of the mean over 2 rows; the rows' own are twice as large: actors (6, 8) and (0.6, 0), critics -8 and 3.
    grads = jnp.array([[3.0, 4.0, -4.0], [0.3, 0.0, 1.5]])
    close(ppo_gbrl.gradients_of_rows(grads, None, 100.0, 10.0), 2 * grads)
    close(ppo_gbrl.gradients_of_rows(grads, None, 5.0, 2.0), [[3, 4, -2], [0.6, 0, 2]])
    masked = ppo_gbrl.gradients_of_rows(grads, jnp.array([True, False]), 100.0, 10.0)
    close(masked, grads)


def test_the_loss_is_ppos_of_the_outputs():
    outputs = jnp.array([[1.0, 0.0, 2.0], [0.0, 0.5, -1.0]])
    action, target = jnp.array([0, 1]), jnp.array([3.0, 0.0])
    log_p = jax.nn.log_softmax(outputs[:, :2])
    log_prob = log_p[jnp.arange(2), action]
    ratio = np.array([1.1, 0.5])
    batch = ppo_gbrl.Batch(
        jnp.zeros((2, 1)), None, action, log_prob - jnp.log(ratio), jnp.zeros(2), jnp.array([1.0, -1.0]), target, None
    )
    hyper = strongly_typed(ppo_gbrl.Hyper(ent_coef=0.1, vf_coef=0.3))
    config = dataclasses.replace(TINY, normalize_advantage=False)
    total, report = ppo_gbrl.loss(outputs, jnp.zeros(0), batch, hyper, config, Discrete(2))
    entropy = -np.mean(np.sum(np.exp(log_p) * log_p, -1))
    actor, critic = -(1.1 - 0.8) / 2, 0.5 * (1 + 1) / 2
    close(report["policy_loss"], actor)
    close(total, actor + 0.3 * critic - 0.1 * entropy)


@pytest.mark.parametrize("shared", [True, False])
def test_an_update_is_boosting_step_by_step(shared):
    """Against an update in which all trees are asked again for each minibatch, as gbrl_sb3 does."""
    env, params = make("CartPole-v1")
    config = dataclasses.replace(TINY, num_steps=32, shared=shared, num_trees=16)
    algo = ppo_gbrl.make(env, config)
    hyper = ppo_gbrl.Hyper(learning_rate=0.3, value_learning_rate=0.1, max_grad_norm=0.9, max_value_grad=0.7)
    state = jax.jit(algo.init)(jax.random.key(1), hyper, params)
    # Outputs that are not all zero.
    leaves = jax.random.normal(jax.random.key(2), (4, 4, 3)) * 0.1
    first = trees.Tree(jnp.array([[0, 1], [2, 3], [1, 2], [3, 0]], jnp.int32), jnp.zeros((4, 2)), leaves)
    start = trees.add(state.weights.trees, first)
    state, rollout = jax.jit(algo.collect)(state.replace(weights=state.weights._replace(trees=start)))
    close(rollout.outputs, trees.predict(start, rollout.obs))
    # CartPole's features go together, so that different splits part the rows alike: rounding would choose.
    obs = jax.random.normal(jax.random.key(3), (128, 4))
    outputs = trees.predict(start, obs)
    rollout = rollout._replace(obs=obs.reshape(32, 4, 4), outputs=outputs.reshape(32, 4, 3))
    new, metrics = jax.jit(algo.learn)(state, rollout)
    assert new.weights.trees.count == 4 + config.trees_per_update == 16 - metrics["trees_left"]

    h = new.hyper
    value = outputs[:, -1].reshape(32, 4)
    advantage = gae(
        rollout.reward, value, rollout.next_value, rollout.terminated, rollout.truncated, h.gamma, h.gae_lambda
    )
    flat = [x.reshape(128) for x in (rollout.action, rollout.log_prob, value, advantage, advantage + value)]
    rows = np.asarray(ppo_gbrl.shuffled(jax.random.split(state.key)[1], (2, 128))).reshape(4, 64)
    ensemble = start
    for part in rows:
        batch = ppo_gbrl.Batch(obs[part], None, *(x[part] for x in flat), None)
        grads = jax.grad(lambda out, b=batch: ppo_gbrl.loss(out, jnp.zeros(0), b, h, config, Discrete(2))[0])(
            trees.predict(ensemble, obs[part])
        )
        grads = ppo_gbrl.gradients_of_rows(grads, None, 0.9, 0.7)
        heads = [jnp.ones(3)] if shared else [jnp.array([1.0, 1.0, 0.0]), jnp.array([0.0, 0.0, 1.0])]
        for head in heads:
            tree = trees.fit(obs[part], grads * head, trees.candidates(obs[part]), 2)
            tree = tree.scaled(-jnp.array([0.3, 0.3, 0.1]))
            ensemble = trees.add(ensemble, jax.tree.map(lambda x: x[None], tree))
    for name in ("feature", "threshold", "leaves"):
        close(getattr(new.weights.trees, name), getattr(ensemble, name), rtol=1e-4, atol=1e-5)
    grown = new.weights.trees.leaves[4:]
    assert np.all(np.any(np.asarray(grown) != 0, (0, 1)))  # both logits and the value
    if not shared:  # a tree for one of them has nothing for the other
        assert np.all(np.asarray(grown)[::2, :, 2] == 0) and np.all(np.asarray(grown)[1::2, :, :2] == 0)


def test_where_the_budget_is_full_nothing_is_learned():
    env, params = make("CartPole-v1")
    algo = ppo_gbrl.make(env, TINY)  # 10 trees, of which an update grows 4
    state = algo.init(jax.random.key(0), None, params)
    update, left = jax.jit(algo.update), []
    for _ in range(3):
        before = state.weights
        state, metrics = update(state)
        left.append(int(metrics["trees_left"]))
    assert left == [6, 2, 2]
    jax.tree.map(np.testing.assert_array_equal, state.weights, before)
    box = ppo_gbrl.make(make("Pendulum-v1")[0], dataclasses.replace(TINY, num_trees=4))
    first, _ = jax.jit(box.update)(box.init(jax.random.key(0)))
    second, _ = jax.jit(box.update)(first)
    assert np.any(first.weights.log_std != TINY.log_std)
    jax.tree.map(np.testing.assert_array_equal, (second.weights, second.optimizer), (first.weights, first.optimizer))


def test_budgets_and_names_are_one_clear_line():
    with pytest.raises(ValueError, match="num_trees=3: 1 updates grow 4 trees, .* 0 updates of 4; make it at least 4"):
        dataclasses.replace(TINY, num_trees=3)
    env, params = make("CartPole-v1")
    with pytest.raises(ValueError, match="num_trees=10: 3 updates grow 12 trees, .* 2 updates of 4; make it .* 12"):
        train(ppo_gbrl.make(env, TINY), jax.random.key(0), 96, None, params)
    with pytest.raises(ValueError, match=r"score='cosin' is unknown; did you mean 'cosine'\?"):
        dataclasses.replace(TINY, score="cosin")
    with pytest.raises(ValueError, match=r"candidates='uniforms' is unknown; did you mean 'uniform'\?"):
        dataclasses.replace(TINY, candidates="uniforms")


def test_categories_are_asked_for_equality():
    env, params = make("MiniGrid-Empty-5x5-v0")
    algo = ppo_gbrl.make(env, TINY)
    state, _ = jax.jit(algo.update)(algo.init(jax.random.key(0), None, params))
    asked = np.asarray(state.weights.trees.threshold)[:4]
    asked = asked[asked < trees.NEVER]
    assert len(asked) and np.all(asked == 0.5)


def test_no_key_is_used_twice():
    env, params = make("CartPole-v1")
    algo = ppo_gbrl.make(env, TINY)
    assert_no_key_reuse(algo.update, algo.init(jax.random.key(0), None, params))


@cache
def cartpole_returns():
    env, params = make("CartPole-v1")
    config = ppo_gbrl.Config(num_envs=16, num_epochs=10, num_minibatches=4, num_trees=1480)
    algo = ppo_gbrl.make(env, config)
    hyper = ppo_gbrl.Hyper(learning_rate=0.16, value_learning_rate=0.034, gamma=0.99, gae_lambda=0.94)
    state, _ = jax.jit(lambda key: train(algo, key, 75_000, hyper, params))(jax.random.key(0))
    return jaxrl.evaluate(algo, algo.policy(state), jax.random.key(1), num_episodes=32, greedy=True).returns


@pytest.mark.slow
def test_learns_cartpole():
    assert np.mean(cartpole_returns()) > 450


@pytest.mark.slow
def test_actions_of_a_box_move_to_where_the_reward_is():
    from jaxrl.testing.probes import ObservationActionReward

    probe = ObservationActionReward("box")
    config = ppo_gbrl.Config(num_envs=16, num_steps=16, num_epochs=4, num_minibatches=4, num_trees=640, log_std=-1.0)
    algo = ppo_gbrl.make(probe, config)
    hyper = ppo_gbrl.Hyper(learning_rate=0.05, value_learning_rate=0.2, gamma=0.8, gae_lambda=0.95)
    _, metrics = jax.jit(lambda key: train(algo, key, 16 * 16 * 40, hyper))(jax.random.key(0))
    assert isinstance(algo.venv.env.action_space(algo.venv.default_params), Box)
    assert metrics["episode_return"][-1] > metrics["episode_return"][0]
