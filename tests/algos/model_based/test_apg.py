"""APG: objectives by hand, the gradient of a rollout against finite differences, its contract, and that it learns."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make, train, vectorize
from jaxrl.algos import apg
from jaxrl.evaluation import evaluate
from jaxrl.math import light_key
from jaxrl.rollout import step_keys
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import ObservationActionReward, Privileged, Termination, TimeLimit

TINY = apg.Config(num_envs=4, num_steps=4, num_epochs=2, num_minibatches=2, hidden=(8,))
close = functools.partial(np.testing.assert_allclose, rtol=1e-5)


def column(*x, dtype=np.float32):
    return jnp.array(x, dtype)[:, None]


@functools.cache
def jitted(config=TINY, env_id="Pendulum-v1", reset=None):
    algo = apg.make(vectorize(make(env_id)[0], config.num_envs, reset), config)
    return algo, jax.jit(algo.init), jax.jit(algo.collect), jax.jit(algo.learn), jax.jit(algo.update)


# ---- by hand


def test_discounts_start_again_with_each_episode():
    done = column(0, 1, 0, 0, 1, dtype=bool)
    close(apg.discounts(done, 0.5), column(1, 0.5, 1, 0.5, 0.25))


def test_objective_by_hand():
    reward, next_value = column(1, 2, 3, 4), column(10, 20, 30, 40)
    none = column(0, 0, 0, 0, dtype=bool)
    # A whole window, its end valued: 1 + 2/2 + 3/4 + 4/8 + 40/16.
    close(apg.objective(reward, next_value, none, none, 0.5), (1 + 1 + 0.75 + 0.5 + 2.5) / 4)
    # An episode that terminated after two steps has no value, the next one goes on to the end of the window.
    second = column(0, 1, 0, 0, dtype=bool)
    close(apg.objective(reward, next_value, second, none, 0.5), (1 + 1 + 3 + 2 + 10) / 4)
    # Truncated instead: 20/4 more; both at once count as terminated.
    close(apg.objective(reward, next_value, none, second, 0.5), (1 + 1 + 5 + 3 + 2 + 10) / 4)
    close(apg.objective(reward, next_value, second, second, 0.5), (1 + 1 + 3 + 2 + 10) / 4)
    last = column(0, 0, 0, 1, dtype=bool)
    close(apg.objective(reward, next_value, last, none, 0.5), (1 + 1 + 0.75 + 0.5) / 4)


def test_value_loss_by_hand():
    close(apg.value_loss(jnp.array([1.0, 2.0]), jnp.array([3.0, 1.0])), 0.5 * (4 + 1) / 2)


# ---- the gradient


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("critic, reset", [(True, "sparse"), (False, "dense")])
def test_the_gradient_is_that_of_the_rollout(critic, reset):
    """Along a random direction, against central differences in float64, over windows in which episodes end."""
    with jax.enable_x64(True):
        config = dataclasses.replace(TINY, critic=critic)
        env, params = make("Pendulum-v1")
        params = params.replace(max_steps=jnp.int32(3))
        algo = apg.make(vectorize(env, config.num_envs, reset), config)
        static = algo.init.__self__
        state = jax.jit(algo.init)(jax.random.key(0), None, params)
        grads, (loss, _, steps) = jax.jit(static.gradient)(state)
        assert steps.truncated.any(0).all()
        direction = jax.tree.map(lambda x: jnp.asarray(np.random.default_rng(x.size).normal(size=x.shape)), grads)
        value = jax.jit(lambda e: static.gradient(state.replace(weights=move(state.weights, direction, e)))[1][0])
        close(value(0.0), loss)
        slope = (value(1e-5) - value(-1e-5)) / 2e-5
        want = sum(jnp.sum(g * d) for g, d in zip(jax.tree.leaves(grads), jax.tree.leaves(direction), strict=True))
        assert abs(want) > 1e-4
        close(slope, want, rtol=1e-4)


def move(weights, direction, e):
    return jax.tree.map(lambda w, d: w + e * d, weights, direction)


@pytest.mark.slow
@pytest.mark.light
def test_no_gradient_passes_a_reset():
    """With episodes of one step, an action earns its own reward alone: Pendulum's torque cost, no dynamics."""
    env, params = make("Pendulum-v1")
    algo, init, *_ = jitted(dataclasses.replace(TINY, critic=False))
    state = init(jax.random.key(0), None, params.replace(max_steps=jnp.int32(1)))
    static = algo.init.__self__
    _, (_, _, steps) = jax.jit(static.gradient)(state)

    def cost(weights):
        """The same actions' cost on the states that were met, which are data."""
        keys = step_keys(jax.random.split(state.key)[1], TINY.num_steps)

        def at(key, obs):
            return static.action(static.distribution(weights, obs).sample(jax.random.split(light_key(key))[0]))

        torque = jax.vmap(at)(keys, steps.obs)
        return jnp.mean(0.001 * torque**2)

    grads, _ = jax.jit(static.gradient)(state)
    want = jax.jit(jax.grad(cost))(state.weights)
    jax.tree.map(lambda g, w: close(g, w, rtol=1e-3, atol=1e-8), grads, want)


# ---- the algorithm


@pytest.mark.slow
def test_keeps_the_contract_without_a_critic():
    algo = apg.make(ObservationActionReward("box"), dataclasses.replace(TINY, critic=False))
    check_algorithm(algo, num_updates=4)


@pytest.mark.slow
@pytest.mark.light
def test_learning_from_a_rollout_is_an_update_and_all_weights_learn():
    _, init, collect, learn, update = jitted()
    first = init(jax.random.key(1))
    middle, rollout = collect(first)
    assert rollout.steps.reward.shape == (4, 4) and middle.step == 16
    state, metrics = learn(middle, rollout)
    whole, report = update(first)
    jax.tree.map(lambda a, b: close(a, b, rtol=1e-4, atol=1e-6), (state.weights, metrics), (whole.weights, report))
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), first.weights, state.weights)
    assert all(jax.tree.leaves(moved)) and len(jax.tree.leaves(moved)) == 9, moved
    tau = first.hyper.tau
    jax.tree.map(
        lambda old, new, target: close(target, (1 - tau) * old + tau * new, rtol=1e-4, atol=1e-6),
        first.weights,
        state.weights,
        state.target_weights,
    )


@pytest.mark.slow
def test_the_gradient_is_clipped_by_its_norm():
    _, init, _, _, update = jitted()
    state, metrics = update(init(jax.random.key(2), apg.Hyper(max_grad_norm=1e-3)))
    assert metrics["grad_norm"] > 1e-3
    close(np.linalg.norm(state.optimizer.inner[0].mu), 0.1 * 1e-3, rtol=1e-3)


@pytest.mark.slow
def test_no_key_is_used_twice_and_nothing_compiles_twice():
    algo, traces = jitted()[0], []
    assert_no_key_reuse(lambda key: algo.update(algo.init(key))[1]["loss"], jax.random.key(3))

    @jax.jit
    def update(state):
        traces.append(1)
        return algo.update(state)

    state, _ = update(algo.init(jax.random.key(0)))
    update(state)
    update(algo.init(jax.random.key(0), apg.Hyper(learning_rate=1.0, anneal_steps=10, gamma=0)))
    assert len(traces) == 1


SMALL = apg.Config(num_envs=16, num_steps=8, num_epochs=4, num_minibatches=2, hidden=(16,))
FAST = apg.Hyper(learning_rate=2e-2, critic_learning_rate=1e-2, gamma=0.8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "probe",
    [TimeLimit("box"), Termination("box"), Privileged("box")],
    ids=lambda p: p.id,
)
def test_values_are_the_probes(probe):
    """The critic's bootstrap at truncation and none at termination; what is privileged is seen by it alone."""
    algo = apg.make(probe, SMALL)
    hyper = FAST.replace(anneal_steps=128 * 150)  # at a constant rate the last value follows the last episodes
    state, _ = jax.jit(lambda key: train(algo, key, 128 * 150, hyper))(jax.random.key(0))
    known = probe.known(0.8)
    value = algo.init.__self__.value(state.weights, known.obs)
    np.testing.assert_allclose(value, known.value, rtol=0.05, atol=0.05)
    if isinstance(known.obs, dict):
        algo.act(algo.policy(state), jax.random.key(0), {"obs": known.obs["obs"]})


@pytest.mark.slow
def test_learns_the_pendulum():
    env, params = make("Pendulum-v1")
    algo = apg.make(env)

    @jax.jit
    def run(key):
        state, _ = train(algo, key, 300_000)
        return evaluate(algo, algo.policy(state), key, env, params, num_episodes=64, greedy=True).returns.mean()

    assert run(jax.random.key(0)) > -200


# ---- what is refused


class Wide(nn.Module):
    """Two means for one action."""

    def actor(self, obs):
        return jnp.zeros((*obs.shape[:-1], 2)), jnp.zeros((*obs.shape[:-1], 2))

    def __call__(self, obs):
        return self.actor(obs)


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: apg.Config(num_steps=0), r"num_steps=0.*at least 1"),
        (lambda: apg.Config(num_envs=3, num_steps=5, num_minibatches=4), r"num_minibatches=4 does not divide.*15"),
        (lambda: apg.make(make("CartPole-v1")[0]), r"apg acts in one-dimensional Box.*Discrete.*ppo"),
        (lambda: apg.make(make("Pendulum-v1")[0], TINY, network=Wide()), r"means \(4, 2\) for 4 obs.*\(4, 1\)"),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
