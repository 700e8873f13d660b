"""Forward-backward representations: losses by hand, the successor measure by a linear solve, and tasks from rewards."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import fb
from jaxrl.data import datasets
from jaxrl.data.datasets import Dataset
from jaxrl.exact.mdp import MDP, as_environment
from jaxrl.exact.solvers import successor_representation, value_iteration

KEY = jax.random.key(0)
S, A, GAMMA = 5, 2, 0.8


def close(actual, desired, atol=1e-6):
    np.testing.assert_allclose(actual, desired, rtol=1e-5, atol=atol)


# ---- losses


@pytest.mark.slow
@pytest.mark.light
def test_losses_by_hand():
    forward, backward = jnp.array([[[1.0, 2.0], [0.0, 1.0]]]), jnp.array([[1.0, 0.0], [2.0, 1.0]])
    measure = fb.measures(forward, backward)
    close(measure, [[[1.0, 4.0], [0.0, 1.0]]])
    target = jnp.array([[9.0, 3.0], [2.0, 9.0]])  # its diagonal is not read
    close(fb.measure_loss(measure, target), (1 + 4) / 2 / 2 - (1 + 1) / 2)
    close(fb.orthonormality(backward), (2**2 + 2**2) / 2 - 2 * (1 + 5) / 2)
    tried, of_data = jnp.array([[[0.0, np.log(3.0)], [1.0, 1.0]]]), jnp.array([[0.0, 1.0]])
    close(fb.penalty(tried, of_data), (np.log(4) + np.log(2)) / 2)
    close(fb.penalty(tried[..., None], of_data[..., None]), (np.log(4) + np.log(2)) / 2)
    close(fb.task_vector(backward, jnp.array([2.0, 0.0])), [np.sqrt(2), 0.0])
    close(fb.task_vector(backward, jnp.zeros(2)), [0.0, 0.0])
    z = fb.draw_tasks(KEY, jnp.array([[3.0, 4.0]] * 6), 1.0)
    close(z, np.array([[0.6, 0.8]] * 6) * np.sqrt(2))
    close(jnp.sum(fb.draw_tasks(KEY, backward, 0.0) ** 2, -1), [2.0, 2.0])


def test_settings_that_cannot_be():
    for settings, what in (
        (dict(conservative="cautious"), "'none', 'value', 'measure'"),
        (dict(size=0), "size=0"),
        (dict(batch_size=1), "batch_size=1"),
    ):
        with pytest.raises(ValueError, match=what):
            fb.Config(**settings)


# ---- in a table


def chain():
    """A ring of S states: go on or stay."""
    next_state = ((jnp.arange(S)[:, None] + jnp.arange(A)) % S)[..., None].astype(jnp.int32)
    return table(jnp.ones((S, A, 1)), next_state)


def random():
    """Each pair leads to three states at unequal chances."""
    keys = jax.random.split(jax.random.key(1))
    next_state = jax.vmap(lambda key: jax.random.permutation(key, S)[:3])(jax.random.split(keys[0], S * A))
    chance = jnp.broadcast_to(jnp.array([0.6, 0.3, 0.1]), (S, A, 3))
    return table(chance, next_state.reshape(S, A, 3).astype(jnp.int32))


def table(probability, next_state):
    none = jnp.zeros(probability.shape)
    return MDP(probability, next_state, none, none.astype(bool), jnp.ones(S) / S)


def exact_measure(transition, policy):
    """(S, A, S): discounted visits from the next state on."""
    mdp = jaxrl.exact.mdp.DenseMDP(transition, jnp.zeros((S, A)), jnp.ones(S) / S)
    return transition @ successor_representation(mdp, policy, GAMMA)


def trained(transition, z, steps=3000, batch=256):
    """F (Z, S, A, S) and B (S, S), every number of them free, from batches of uniform pairs."""

    def loss(weights, target, key):
        F, B = weights
        keys = jax.random.split(key, 4)
        s, a = jax.random.randint(keys[0], (batch,), 0, S), jax.random.randint(keys[1], (batch,), 0, A)
        task = jax.random.randint(keys[2], (batch,), 0, len(z))
        cdf = jnp.cumsum(transition[s, a], -1)
        after = jnp.sum(jax.random.uniform(keys[3], (batch, 1)) >= cdf * (1 - 1e-6), -1)
        ahead = target[0][task, after]
        best = jnp.argmax(jnp.einsum("iad,id->ia", ahead, z[task]), -1)
        ahead = fb.measures(fb.of_action(ahead[None], best)[0], target[1][after])
        measure = fb.measures(F[task, s, a][None], B[after])
        return fb.measure_loss(measure, GAMMA * ahead) + fb.orthonormality(B[after])

    def step(carry, x):
        weights, target, mean, square, number = carry
        share, key = x
        grads = jax.grad(loss)(weights, target, key)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
        square = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g**2, square, grads)
        rate = 0.03 * jnp.minimum(1.0, 2 * (1 - share)) ** 2

        def moved(w, m, v):
            return w - rate * (m / (1 - 0.9**number)) / (jnp.sqrt(v / (1 - 0.99**number)) + 1e-8)

        weights = jax.tree.map(moved, weights, mean, square)
        target = jax.tree.map(lambda t, w: t + 0.05 * (w - t), target, weights)
        return (weights, target, mean, square, number + 1), None

    first = jnp.zeros((len(z), S, A, S)), jnp.eye(S) + 0.1 * jax.random.normal(KEY, (S, S))
    zeros = jax.tree.map(jnp.zeros_like, first)
    inputs = jnp.arange(steps) / steps, jax.random.split(KEY, steps)
    carry, _ = jax.lax.scan(step, (first, first, zeros, zeros, 1), inputs)
    return carry[0]


@pytest.mark.slow
def test_f_times_b_is_the_successor_measure():
    """Of a deterministic and of a stochastic MDP, for ten tasks each, with F and B of full rank, both learned."""
    z = fb.on_sphere(jax.random.normal(KEY, (10, S)))
    transitions = jnp.stack([mdp.dense().transition for mdp in (chain(), random())])
    many = jax.jit(jax.vmap(lambda transition: trained(transition, z)))(transitions)
    for transition, F, B in zip(transitions, *many, strict=True):
        rho = transition.mean((0, 1))
        policy = jnp.argmax(jnp.einsum("zsad,zd->zsa", F, z), -1)
        wanted = jax.vmap(exact_measure, (None, 0))(transition, policy)
        assert len(np.unique(policy, axis=0)) > 3, "tasks differ"
        close(wanted.sum(-1), 1 / (1 - GAMMA), 1e-4)
        # Where two actions are nearly worth the same the greedy one changes as the numbers settle.
        q = jnp.sort(jnp.einsum("zsad,zd->zsa", F, z), -1)
        clear = np.asarray(jnp.min(q[..., -1] - q[..., -2], 1) > 0.3)
        assert clear.sum() >= 4
        close((jnp.einsum("zsad,td->zsat", F, B) * rho)[clear], wanted[clear], 0.1)
        # The reward whose z this is: pi_z is optimal for it, and F . z its value.
        second = jnp.einsum("s,sd,se->de", rho, B, B)
        close(second, np.eye(S), 0.1)
        reward = jnp.einsum("sd,de,ze->zs", B, jnp.linalg.inv(second), z)
        close(jnp.einsum("s,sd,zs->zd", rho, B, reward), z, 1e-4)
        for r, F_z, z_r in zip(reward, F, z, strict=True):
            of_pairs = jaxrl.exact.mdp.DenseMDP(transition, transition @ r, jnp.ones(S) / S)
            close(jnp.max(F_z @ z_r, -1), value_iteration(of_pairs, GAMMA, 1e-6).value, 0.4)


class Table(nn.Module):
    """F of each state that may be the goal: z is then its row of B."""

    @nn.compact
    def __call__(self, obs, z):
        return self.param("table", nn.initializers.zeros, (S, S, A, S))[jnp.argmax(z, -1), obs]


class Corners(nn.Module):
    """B of full rank and orthonormal for uniform states: a corner of the space each."""

    @nn.compact
    def __call__(self, obs):
        return jnp.sqrt(S) * jax.nn.one_hot(obs, S)


@pytest.mark.slow
@pytest.mark.light
def test_the_learner_finds_the_successor_measure_and_the_way_to_every_goal():
    mdp = chain()
    env, params = as_environment(mdp, max_steps=20)
    s, a = np.repeat(np.arange(S), A).astype(np.int32), np.tile(np.arange(A), S).astype(np.int32)
    to = np.asarray(mdp.next_state)[s, a, 0]
    reward, none = (to == 3).astype(np.float32), np.zeros(S * A, bool)
    dataset = Dataset(s, a, reward, none, ~none, to)
    memory = datasets.stored(dataset, env.action_space(params))
    config = fb.Config(num_updates=500, batch_size=256, size=S, num_forward=1, num_labelled=100)
    algo = fb.make(env, config, replay=memory, forward=Table(), backward=Corners())
    hyper = fb.Hyper(gamma=GAMMA, learning_rate=0.02, tau=0.05, goal_share=1.0)
    state = algo.init(KEY, hyper, params)
    update = jax.jit(algo.update)
    for rate in (0.05, 0.05, 0.01):
        state, metrics = update(state.replace(hyper=hyper.replace(learning_rate=jnp.float32(rate))))
    assert np.isfinite(metrics["loss"]) and int(state.step) == 1500

    F = state.weights["representation"]["forward"]["params"]["table"][0]
    goals = jnp.sqrt(S) * jnp.eye(S)
    policy = jnp.argmax(jnp.einsum("zsad,zd->zsa", F, goals), -1)
    wanted = jax.vmap(exact_measure, (None, 0))(mdp.dense().transition, policy)
    close(jnp.einsum("zsad,td->zsat", F, goals) / S, wanted, 0.1)

    deployed = algo.policy(state)  # for the reward of the data: arriving in 3
    close(deployed.task, goals[3])
    action, _ = algo.act(deployed, KEY, jnp.arange(S), greedy=True)
    close(action, [1, 1, 1, 0, 1])
    other = fb.make(
        env,
        config,
        replay=datasets.stored(dataset.replace(reward=(to == 1).astype(np.float32)), env.action_space(params)),
        forward=Table(),
        backward=Corners(),
    )
    action, _ = algo.act(other.policy(state), KEY, jnp.arange(S), greedy=True)
    close(action, [1, 0, 1, 1, 1])


@pytest.mark.slow
@pytest.mark.parametrize("conservative", ["value", "measure"])
def test_conservative_ones_think_less_of_what_the_data_lacks(conservative):
    """The data never stays in a state: with the penalty staying is worth less than going on, whatever the task."""
    mdp = chain()
    env, params = as_environment(mdp, max_steps=20)
    s, on = np.arange(S, dtype=np.int32), np.ones(S, np.int32)
    none = np.zeros(S, bool)
    memory = datasets.stored(
        Dataset(s, on, np.zeros(S, np.float32), none, ~none, (s + 1) % S), env.action_space(params)
    )
    config = fb.Config(num_updates=500, batch_size=64, size=S, hidden=(32,), conservative=conservative)
    algo = fb.make(env, config, replay=memory)
    hyper = fb.Hyper(gamma=GAMMA, learning_rate=1e-3, conservative_weight=5.0)
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 1000, hyper, params))(KEY)
    assert np.isfinite(metrics["penalty"]).all()
    tasks = fb.on_sphere(jax.random.normal(KEY, (8, S)))
    learner, weights = algo.init.__self__, state.weights["representation"]
    F = learner.rule.forward(weights["forward"], jnp.tile(jnp.arange(S), (8, 1)), jnp.repeat(tasks[:, None], S, 1))
    if conservative == "value":
        less = jnp.einsum("kzsad,zd->kzsa", F, tasks)
    else:  # of measures, so not of the values of tasks whose rewards are negative
        less = jnp.einsum("kzsad,td->kzsat", F, learner.rule.backward(weights["backward"], jnp.arange(S))).mean(-1)
    assert np.mean(less[..., 0] < less[..., 1]) > 0.95
