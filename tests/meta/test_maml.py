"""MAML: its gradient against a closed form, the linear baseline, and adaptation that a task can see."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition, pytree
from jaxrl.algos.meta import es_maml, maml
from jaxrl.environment import Hints
from jaxrl.spaces import Discrete

KEY = jax.random.key(0)
PAY = jnp.array([1.0, 0.0, -0.5])


@pytree
class PullParams:
    max_steps: jax.Array = 1
    pay: jax.Array = (1.0, 0.0, -0.5)


@pytree
class PullState:
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class Pull(Environment):
    """One pull of one of three arms, whose pay is the task."""

    id: str = dataclasses.field(default="Pull", kw_only=True)
    Params = PullParams
    hints = Hints(deterministic=True)

    @property
    def default_params(self):
        return PullParams(jnp.int32(1), PAY)

    def initial(self, key, params):
        return PullState(jnp.int32(0))

    def transition(self, key, state, action, params):
        return Transition(state, params.pay[action], jnp.bool_(True), jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jnp.int32(0)

    def observation_space(self, params):
        return Discrete(1)

    def action_space(self, params):
        return Discrete(3)

    def generate(self, key, params):
        return params.replace(pay=jnp.roll(PAY, jax.random.randint(key, (), 0, 3)))


def exact(logits, alpha, first_order):
    """Expected return of the adapted softmax policy, its expected advantage being pay less its mean."""

    def value(logits):
        return jax.nn.softmax(logits) @ PAY

    step = jax.grad(value)(logits)
    return value(logits + alpha * (jax.lax.stop_gradient(step) if first_order else step))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("first_order", [False, True])
def test_the_gradient_is_that_of_the_adapted_return(first_order):
    config = maml.Config(num_tasks=1, num_envs=3, num_steps=1, hidden=(), first_order=first_order)
    learner = maml.make(Pull(), config, task_fn=lambda key, params: params).policy.__self__
    logits, alpha = jnp.array([0.2, -0.1, 0.3]), 1.0
    network = {"params": {"Dense_0": {"kernel": jnp.zeros((1, 3)), "bias": logits}}}
    hyper = maml.Hyper(inner_learning_rate=alpha)

    def played(logits):
        """All three actions, weighted by how often they are drawn, so that a mean is an expectation."""
        p = jax.nn.softmax(logits)
        advantage = 3 * p * (PAY - p @ PAY)
        at = jnp.zeros((1, 3), jnp.int32)
        return jax.lax.stop_gradient(maml.Played(at, jnp.arange(3)[None], jnp.log(p)[None], advantage[None]))

    @jax.jit
    def gradients(network):
        before = played(logits)
        adapted = learner.adapted({"network": network}, before, hyper)
        layer = adapted["network"]["params"]["Dense_0"]
        after = played(layer["bias"] + layer["kernel"][0])
        both = jax.tree.map(lambda x, y: jnp.stack([x, y]), before, after)
        return jax.grad(learner.objective)({"network": network}, both, hyper)

    found = gradients(network)["network"]["params"]["Dense_0"]["bias"]
    # Kernel and bias both make the step: together twice as far.
    np.testing.assert_allclose(found, -jax.grad(exact)(logits, 2 * alpha, first_order), atol=1e-6)
    other = -jax.grad(exact)(logits, 2 * alpha, not first_order)
    assert np.abs(found - other).max() > 0.05  # the Hessian matters here


def test_the_baseline_is_a_fit_and_first_episodes_count():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 4, 3))
    fitted = maml.linear_baseline(jnp.asarray(x), jnp.asarray(x @ [1.0, -2.0, 0.5]), 0.0)
    np.testing.assert_allclose(fitted, x @ [1.0, -2.0, 0.5], atol=1e-4)
    done = jnp.array([[0, 1], [1, 0], [0, 0]], bool)
    np.testing.assert_array_equal(maml.first_episodes(done), [[1, 1], [1, 0], [0, 0]])


def test_pairs_and_ranks():
    np.testing.assert_allclose(
        es_maml.ranks(jnp.array([[3.0, 1.0], [1.0, 7.0]])), [[1 / 6, -1 / 3], [-1 / 3, 0.5]], atol=1e-6
    )
    noise = jax.random.normal(KEY, (20_000, 3))
    slope = jnp.array([1.0, -2.0, 0.5])
    fitness = jnp.stack([noise @ slope, -noise @ slope], 1) * 0.1
    np.testing.assert_allclose(es_maml.pairs_gradient(noise, fitness, 0.1), slope, atol=0.06)


@pytest.mark.slow
@pytest.mark.light
def test_what_is_played_gives_that_gradient_and_pairs_do_too():
    """Sampled pulls, a fitted baseline, advantages divided by their deviation: the closed form, in those units."""
    config = maml.Config(num_tasks=1, num_envs=100_000, num_steps=1, hidden=())
    algo = maml.make(Pull(), config, task_fn=lambda key, params: params)
    logits, alpha = jnp.array([0.2, -0.1, 0.3]), 1.0

    def deviation(logits):
        p = jax.nn.softmax(logits)
        return jnp.sqrt(p @ (PAY - p @ PAY) ** 2)

    @jax.jit
    def run(key):
        state = algo.init(key, maml.Hyper(inner_learning_rate=alpha))
        network = {"params": {"Dense_0": {"kernel": jnp.zeros((1, 3)), "bias": logits}}}
        state, rollout = algo.collect(state.replace(weights={"network": network}))
        played = jax.tree.map(lambda x: x[:, 0], rollout.played)
        found = jax.grad(algo.learn.__self__.objective)(state.weights, played, state.hyper)
        scaled = 2 * alpha / deviation(logits)
        step = jax.grad(lambda x: jax.nn.softmax(x) @ PAY)(logits)
        expected = -jax.grad(exact)(logits, scaled, False) / deviation(logits + scaled * step)

        def smoothed(key):
            noise = jax.random.normal(key, (20_000, 3))
            both = [jax.vmap(lambda e, s=s: exact(logits + s * 0.05 * e, scaled, False))(noise) for s in (1, -1)]
            return es_maml.pairs_gradient(noise, jnp.stack(both, 1), 0.05)

        pairs = smoothed(key), jax.grad(exact)(logits, scaled, False)
        return found["network"]["params"]["Dense_0"]["bias"], expected, pairs, rollout.returns

    found, expected, pairs, returns = run(KEY)
    np.testing.assert_allclose(found, expected, atol=0.02)
    np.testing.assert_allclose(*pairs, atol=0.01)
    assert returns[1] > returns[0] + 0.2


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("module", [maml, es_maml])
def test_one_step_finds_the_arm_that_pays(module):
    """No policy knows the arm; what can be learned is to be moved far by a step."""
    config = module.Config(num_tasks=32, num_envs=32, num_steps=1, hidden=())
    algo = module.make(Pull(), config)
    hyper = module.Hyper(learning_rate=0.05, inner_learning_rate=3.0)
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 100 * algo.steps_per_update, hyper))(KEY)
    assert np.isfinite(metrics["loss"]).all() and int(state.step) == 100 * algo.steps_per_update
    keys = jax.random.split(jax.random.key(1), 64)

    def adapted(key):
        task = algo.venv.env.generate(key, algo.venv.default_params)
        return maml.adapt(algo, state.weights, key, task, state.hyper, 2)[1]

    returns = np.asarray(jax.jit(jax.vmap(adapted))(keys)).mean(0)
    assert returns[0] < 0.4 and returns[1] > 0.8 and returns[2] > returns[1] - 0.05


def test_what_is_refused():
    with pytest.raises(ValueError, match="inner_steps"):
        maml.Config(inner_steps=0)
