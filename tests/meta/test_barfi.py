"""BARFI: its implicit gradient against finite differences of solved inner levels."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxrl
from jaxrl.algos.meta import barfi
from jaxrl.testing.probes import ObservationActionReward

KEY = jax.random.key(0)
PROBE = ObservationActionReward()  # a cue of -1 or 1; the action that says which pays 1, the other -1


def test_the_series_tends_to_the_inverse():
    rng = np.random.default_rng(0)
    hessian = -np.diag([1.0, 2.0, 3.0]) + 0.1 * rng.normal(size=(3, 3))
    vector = rng.normal(size=3)
    with jax.enable_x64(True):
        found = [
            barfi.against_inverse(lambda x: jnp.asarray(hessian.T) @ x, jnp.asarray(vector), jnp.float64(0.3), n)
            for n in (2, 300)
        ]
    step = np.eye(3) + 0.3 * hessian.T
    np.testing.assert_allclose(found[0], 0.3 * (np.eye(3) + step + step @ step) @ vector, rtol=1e-12)
    np.testing.assert_allclose(found[1], -np.linalg.solve(hessian.T, vector), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.light
def test_the_implicit_gradient_is_that_of_the_solved_inner_level():
    """Episodes of two steps with a fixed behaviour; the policy and all parts of phi are linear in the cue."""
    config = barfi.Config(num_envs=2, num_steps=2, hidden=(), reward_hidden=(), neumann_terms=4000)
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        learner = barfi.make(PROBE, config).learn.__self__
        hyper = barfi.Hyper(ent_coef=0.5, neumann_step=0.5, auxiliary_weight=0.7)
        hyper = jax.tree.map(jnp.float64, hyper)
        cue = jnp.asarray(rng.choice([-1.0, 1.0], (2, 24, 1)))
        action = jnp.asarray(rng.integers(0, 2, (2, 24)))
        primary, auxiliary = (jnp.asarray(rng.normal(size=(2, 24))) for _ in range(2))
        done = jnp.broadcast_to(jnp.array([[False], [True]]), (2, 24))
        data = learner.data(barfi.Played(cue, action, primary, auxiliary, done), jnp.ones((2, 24)))
        start = learner.init(KEY, hyper).weights
        noise = 0.3 * jax.random.normal(KEY, (6,), jnp.float64)
        flat, unravel = ravel_pytree({name: start[name] for name in ("reward", "discount")})
        flat = flat.at[1:].add(noise)  # the first is the discount's logit
        policy, unravel_policy = ravel_pytree(start["policy"])

        def value(policy):
            """Of what pays 1 where the action is the cue's, exactly, plus something that sees how sure it is."""
            log_prob = learner.distribution(unravel_policy(policy), jnp.array([[-1.0], [1.0]]))
            logits = log_prob.logits - jax.nn.logsumexp(log_prob.logits, -1, keepdims=True)
            return jnp.sum(jnp.exp(logits) * jnp.array([[1.0, 0.3], [-0.2, 0.9]]))

        def solved(flat):
            def up(policy):
                return ravel_pytree(learner.delta(unravel_policy(policy), unravel(flat), data, hyper))[0]

            return jax.lax.fori_loop(0, 4000, lambda _, policy: policy + 0.5 * up(policy), policy), up

        def value_of(flat):
            root, up = solved(flat)
            return value(root), jnp.linalg.norm(up(root))

        @jax.jit
        def both(flat):
            root, _ = solved(flat)
            slope = unravel_policy(jax.grad(value)(root))
            found = learner.implicit_gradient(unravel_policy(root), unravel(flat), slope, data, hyper)
            around = flat + 1e-4 * jnp.concatenate([jnp.eye(7), -jnp.eye(7)])
            values, left = jax.vmap(value_of)(around)
            return ravel_pytree(found)[0], (values[:7] - values[7:]) / 2e-4, left

        found, expected, left = map(np.asarray, both(flat))
    assert left.max() < 1e-9  # the inner levels are solved
    assert np.abs(expected).min() > 1e-4  # each number of phi matters
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.light
def test_phi_ascends_the_implicit_gradient_once_there_is_a_memory():
    """With plain gradient steps, so that a change of phi is the gradient's size and sign."""
    config = barfi.Config(
        num_envs=8, num_steps=4, num_rollouts=2, inner_steps=1, hidden=(), reward_hidden=(), optimizer="sgd"
    )
    hyper = barfi.Hyper(gamma=0.6, discount_penalty=0.3, reward_learning_rate=0.1, max_grad_norm=1e6)

    def hint(obs, action, next_obs):
        return action * 0.5

    learner = barfi.make(PROBE, config, aux_fn=hint).learn.__self__
    fixed = barfi.make(PROBE, dataclasses.replace(config, learn_reward=False), aux_fn=hint).learn.__self__

    def phi_of(state):
        return {name: state.weights[name] for name in ("reward", "discount")}

    @jax.jit
    def start(key):
        return learner.collect(learner.init(key, hyper))

    @jax.jit
    def expected_of(state, played):
        def gained(policy):
            return jnp.mean(learner.log_prob(policy, played) * advantage)

        fresh = learner.data(played, jnp.ones_like(played.primary))
        advantage = barfi.reward_advantage(played.primary, state.hyper.gamma, fresh)
        policy, phi = state.weights["policy"], phi_of(state)
        data, slope = learner.remembered(state), jax.grad(gained)(policy)
        ascent = learner.implicit_gradient(policy, phi, slope, data, state.hyper)
        ascent["discount"] -= jax.grad(lambda x: 0.3 * jax.nn.sigmoid(x))(phi["discount"])
        return ascent

    learn = jax.jit(learner.learn)
    begun, rollout = start(KEY)
    first, _ = learn(begun, rollout)
    second, metrics = learn(first, rollout)
    unmoved, _ = jax.jit(fixed.learn)(first, rollout)
    ascent = expected_of(first, rollout.played)
    for before, after in ((begun, first), (first, unmoved)):
        own = (phi_of(before), before.optimizer["reward"]), (phi_of(after), after.optimizer["reward"])
        for x, y in zip(*map(jax.tree.leaves, own), strict=True):
            np.testing.assert_array_equal(x, y)
        policies = (ravel_pytree(s.weights["policy"])[0] for s in (before, after))
        assert np.abs(np.subtract(*policies)).max() > 1e-6  # the inner level goes on
    for name in ("reward", "discount"):
        now, before, expected = (ravel_pytree(x)[0] for x in (phi_of(second)[name], phi_of(first)[name], ascent[name]))
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose((now - before) / 0.1, expected, rtol=1e-3, atol=1e-5)
    norm = np.linalg.norm(ravel_pytree(ascent["reward"])[0])
    np.testing.assert_allclose(metrics["reward_grad_norm"], norm, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.light
def test_empty_places_of_the_memory_count_for_nothing():
    config = barfi.Config(num_envs=2, num_steps=4, num_rollouts=3, hidden=(), reward_hidden=())
    learner = barfi.make(PROBE, config).learn.__self__

    @jax.jit
    def deltas(key):
        state, rollout = learner.collect(learner.init(key))
        memory = jax.tree.map(lambda old, new: jnp.stack([new, new + 1, old[2]]), state.memory, rollout.played)
        memory = memory._replace(done=state.memory.done.at[0].set(rollout.played.done))
        state = state.replace(memory=memory, held=jnp.int32(1))
        phi = {name: state.weights[name] for name in ("reward", "discount")}
        alone = learner.data(rollout.played, jnp.ones_like(rollout.played.primary))
        return [learner.delta(state.weights["policy"], phi, d, state.hyper) for d in (learner.remembered(state), alone)]

    of_memory, of_rollout = deltas(KEY)
    for x, y in zip(jax.tree.leaves(of_memory), jax.tree.leaves(of_rollout), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-2)  # of a nearly singular fit in float32
    assert max(np.abs(x).max() for x in jax.tree.leaves(of_rollout)) > 1e-3


def test_what_is_refused():
    with pytest.raises(ValueError, match="neumann_terms=-1"):
        barfi.Config(neumann_terms=-1)
    with pytest.raises(ValueError, match="num_rollouts=0"):
        barfi.Config(num_rollouts=0)
    with pytest.raises(ValueError, match=r"\(1,\) numbers a step"):
        barfi.make(PROBE, barfi.Config(num_envs=1, num_steps=1), aux_fn=lambda obs, action, next_obs: obs)
    with pytest.raises(TypeError, match="not this algorithm's Hyper"):
        barfi.make(PROBE, barfi.Config(num_envs=1, num_steps=1)).init(KEY, jaxrl.get_algo("ppo").Hyper())
