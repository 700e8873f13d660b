"""Proof that the shapes carry research: nested sweeps as one program, another loss, derivatives through training."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import Environment, Transition, make, pytree, train
from jaxrl.algos import a2c, ppo, ppo_rnn
from jaxrl.environment import NO_LIMIT, strongly_typed
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import description
from jaxrl.nn.networks import ActorCritic
from jaxrl.spaces import Box, Discrete


@pytest.mark.slow
@pytest.mark.light
def test_seeds_by_learning_rates_by_pole_lengths_in_one_program():
    env, params = make("CartPole-v1")
    algo = ppo.make(env, ppo.Config(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=2, hidden=(8,)))
    traces = []

    def run(key, learning_rate, length):
        traces.append(1)
        train_key, test_key = jax.random.split(key)
        level = params.replace(length=length)
        state, _ = train(algo, train_key, 2 * algo.steps_per_update, ppo.Hyper(learning_rate=learning_rate), level)
        episodes = evaluate(algo, algo.policy(state), test_key, env, level, num_episodes=8, max_steps=100)
        return episodes.returns.mean()

    over_lengths = jax.vmap(run, (None, None, 0))
    over_rates = jax.vmap(over_lengths, (None, 0, None))
    over_seeds = jax.jit(jax.vmap(over_rates, (0, None, None)))
    keys, rates, lengths = jax.random.split(jax.random.key(0), 2), jnp.array([1e-3, 1e-1]), jnp.array([0.05, 0.5, 5.0])
    returns = over_seeds(keys, rates, lengths)
    assert returns.shape == (2, 2, 3) and len(traces) == 1
    assert np.all((returns >= 1) & (returns <= 100))
    # Every axis is a difference, not a copy: a short pole falls sooner, seeds and learning rates matter.
    assert np.all(returns[..., 0] < returns[..., 2])
    assert len(np.unique(returns[..., 1])) > 2
    single = jax.jit(run)
    np.testing.assert_allclose(returns[1, 0, 2], single(keys[1], rates[0], lengths[2]), rtol=1e-5)
    np.testing.assert_allclose(returns[0, 1, 0], single(keys[0], rates[1], lengths[0]), rtol=1e-5)


def nothing(log_prob, *others):
    """A policy loss that teaches nothing."""
    return 0 * log_prob.sum()


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("module", [ppo, ppo_rnn, a2c], ids=lambda module: module.__name__.rpartition(".")[2])
def test_another_loss_is_what_learns_and_makes_another_run(module):
    env = make("CartPole-v1")[0]
    tiny = {"num_envs": 2, "num_steps": 4, "num_epochs": 1, "num_minibatches": 1, "hidden": (4,), "rnn_size": 4}
    known = {field.name for field in dataclasses.fields(module.Config)}
    config = module.Config(**{name: x for name, x in tiny.items() if name in known})
    algo = module.make(env, config, loss=functools.partial(module.loss, policy_loss=nothing))
    before = algo.init(jax.random.key(0), module.Hyper(ent_coef=0.0, learning_rate=0.1))
    after, metrics = jax.jit(algo.update)(before)
    moved = jax.tree.map(lambda old, new: bool(jnp.any(old != new)), before.weights["params"], after.weights["params"])
    assert metrics["policy_loss"] == 0
    assert not any(x for name, part in moved.items() if "actor" in name for x in jax.tree.leaves(part)), moved
    assert any(x for name, part in moved.items() if "critic" in name for x in jax.tree.leaves(part)), moved
    again = module.make(env, config, loss=functools.partial(module.loss, policy_loss=nothing))
    assert description(algo, None) == description(again, None) != description(module.make(env, config), None)


HYPER = {"learning_rate": 3e-3, "gamma": 0.9, "gae_lambda": 0.8, "ent_coef": 0.02}
LEVEL = {"gravity": 10.0, "length": 1.0}


@pytest.mark.slow
@pytest.mark.light
def test_gradient_of_a_return_through_three_updates():
    """Against finite differences, in the well-posed case.

    Reparameterised actions with little noise on smooth dynamics, the same noise for both sides, no end of an episode,
    and nothing clipped: neither ratios nor gradients nor actions.
    """
    with jax.enable_x64(True):
        env, params = make("Pendulum-v1")
        config = ppo.Config(num_envs=2, num_steps=4, num_epochs=2, num_minibatches=1, hidden=(8,), clip_value=False)
        algo = ppo.make(env, config)

        def after(hyper, level):
            hyper = ppo.Hyper(clip_eps=1e6, max_grad_norm=1e6, **hyper)
            state = algo.init(jax.random.key(3), hyper, params.replace(**level))
            quiet = {**state.weights["params"], "log_std": jnp.full(1, -2.0)}
            state = state.replace(weights={"params": quiet})
            inside = True
            for _ in range(3):
                state, rollout = algo.collect(state)
                inside &= jnp.all(jnp.abs(rollout.action) < 1) & ~jnp.any(rollout.truncated)
                state, _ = algo.learn(state, rollout)
            _, rollout = algo.collect(state)
            inside &= jnp.all(jnp.abs(rollout.action) < 1) & ~jnp.any(rollout.truncated)
            return rollout.reward.sum(0).mean(), inside

        f = jax.jit(jax.value_and_grad(after, (0, 1), has_aux=True))
        hyper, level = (jax.tree.map(jnp.float64, x) for x in (HYPER, LEVEL))
        (_, inside), (by_hyper, by_level) = f(hyper, level)
        assert inside, "the case is not well posed"
        for name, value in (HYPER | LEVEL).items():
            eps = 1e-5 * value

            def at(x, name=name):
                changed = [{**group, name: jnp.float64(x)} if name in group else group for group in (hyper, level)]
                return float(f(*changed)[0][0])

            want = (at(value + eps) - at(value - eps)) / (2 * eps)
            got = float({**by_hyper, **by_level}[name])
            assert got != 0, name
            np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=name)


@pytree
class CueParams:
    max_steps: jax.Array = NO_LIMIT


@pytree
class CueState:
    time: jax.Array
    cue: jax.Array


@dataclasses.dataclass(frozen=True)
class Cue(Environment):
    """One step, a reward of 1 for the action that repeats the cue: the expected return is a sum of two terms."""

    id: str = dataclasses.field(default="Cue", kw_only=True)
    Params = CueParams

    def initial(self, key, params):
        return CueState(jnp.int32(0), jax.random.bernoulli(key).astype(jnp.int32))

    def transition(self, key, state, action, params):
        reward = (action == state.cue).astype(jnp.result_type(float))
        return Transition(state, reward, jnp.bool_(True), jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jax.nn.one_hot(state.cue, 2)

    def observation_space(self, params):
        return Box(0.0, 1.0, (2,))

    def action_space(self, params):
        return Discrete(2)


@pytest.fixture(scope="module")
def score_function():
    """Derivative of the return after three updates by the learning rate, and an estimate from each of many rollouts."""
    config = ppo.Config(num_envs=8, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,), clip_value=False)
    algo = ppo.make(Cue(), config)
    start = strongly_typed(ppo.Hyper(clip_eps=1e6, max_grad_norm=1e6, learning_rate=3e-2))
    network = ActorCritic(Box(0.0, 1.0, (2,)), 2, False, config.hidden, config.activation)

    def trained(learning_rate):
        state = algo.init(jax.random.key(4), start.replace(learning_rate=learning_rate))
        return jax.lax.scan(lambda state, _: algo.update(state), state, length=3)[0]

    def expected_return(learning_rate):
        logits = network.apply(trained(learning_rate).weights, jnp.eye(2), method="actor")
        return jnp.mean(jnp.diagonal(jax.nn.softmax(logits)))

    def surrogate(learning_rate, key):
        """Whose derivative estimates that of the return: Williams (1992). The rollout is on the updated policy."""
        state = trained(learning_rate)
        _, env_state = algo.venv.reset(jax.random.fold_in(key, 1), state.env_params)
        obs = jax.vmap(lambda s: Cue().observe(None, s, None))(env_state.env)
        _, rollout = algo.collect(state.replace(key=key, env_state=env_state, obs=obs))
        baseline = 0.5
        return jnp.mean(rollout.log_prob * jax.lax.stop_gradient(rollout.reward - baseline))

    keys = jax.random.split(jax.random.key(5), 200)
    true = jax.jit(jax.grad(expected_return))(start.learning_rate)
    estimates = jax.jit(jax.vmap(jax.grad(surrogate), (None, 0)))(start.learning_rate, keys)
    return float(true), np.asarray(estimates)


@pytest.mark.slow
@pytest.mark.light
def test_score_function_meta_gradient_on_a_fresh_rollout_is_unbiased(score_function):
    true, estimates = score_function
    error = estimates.std() / np.sqrt(len(estimates))
    assert true > 0, "learning faster helps here"
    assert error < 0.2 * true, "too noisy to tell"
    assert abs(estimates.mean() - true) < 3 * error


@pytest.mark.slow
@pytest.mark.light
def test_meta_gradients_differ_between_rollouts(score_function):
    assert len(np.unique(score_function[1])) > 100
