"""Learning a DiscoRL rule: the gradient through agents that learn by it, their lives, and the rule as a file."""

import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxrl
from jaxrl.algos.meta import disco, disco_rule
from jaxrl.envs.bsuite.catch import Catch
from jaxrl.testing.assertions import assert_same_type

STUDY = Path(__file__).parents[2] / "experiments" / "disco" / "disco_training.py"
_spec: Any = importlib.util.spec_from_file_location("disco_training", STUDY)
disco_training = sys.modules["disco_training"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(disco_training)
Config, Hyper, RuleLearner = disco_training.Config, disco_training.Hyper, disco_training.RuleLearner

KEY = jax.random.key(0)
TINY = disco.Config(
    num_envs=2,
    num_steps=4,
    batch_size=2,
    buffer_size=4,
    hidden=(4, 4),
    model_size=3,
    model_hidden=(3,),
    num_bins=5,
    max_value=2.0,
    predictions=4,
    features=4,
    memory=3,
)
BLIND = {"lstm/linear_4/b", "lstm/sequential_1/conv1_d/b"}
"""What is added to the logits of all actions alike, a softmax does not see."""


def board():
    return Catch(rows=3, columns=3)


def lifted(state):
    """With a memory that has seen nothing and biases of zero, much of what a rule says is zero."""
    return state.replace(weights=jax.tree.map(lambda x: x + 0.1, state.weights))


@functools.cache
def updates():
    """A learner and three states: the first one, and those after each of two meta-updates."""
    algo = disco_training.make(board(), Config(num_agents=2), TINY)
    first = lifted(jax.jit(lambda key: algo.init(key, Hyper(lifetime=4)))(KEY))
    update = jax.jit(algo.update)
    second, metrics = update(first)
    third, _ = update(second)
    return algo, (first, second, third), metrics


def moved(x, y):
    return [bool(jnp.any(a != b)) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)]


@pytest.mark.slow
@pytest.mark.light
def test_every_group_of_the_rule_learns_and_so_do_agents_and_critics():
    _, (first, second, third), metrics = updates()
    still = {name for name, x in first.weights.items() if not (x != second.weights[name]).any()}
    assert still <= BLIND
    assert all(np.isfinite(x).all() for x in third.weights.values())
    assert all(moved(first.agents.state.weights, second.agents.state.weights))
    assert all(moved(first.agents.critic, second.agents.critic))
    assert all(moved(first.agents.state.memory.hidden, second.agents.state.memory.hidden))
    assert_same_type(first, second, "state before and after a meta-update")
    assert int(third.step) == 2 and metrics["loss"].shape == () and metrics["grad_norm"] > 0


@pytest.mark.slow
@pytest.mark.light
def test_lives_end_one_after_the_other():
    _, states, metrics = updates()
    # Two updates a meta-update, four a life: the second agent begins in the middle of one.
    np.testing.assert_array_equal([s.agents.age for s in states], [[0, 2], [2, 0], [0, 2]])
    assert int(metrics["lives_over"]) == 1 and np.isfinite(metrics["final_return"])
    fresh = states[1].agents.state
    np.testing.assert_array_equal(fresh.replay.size, [4, 0])
    np.testing.assert_array_equal(fresh.memory.missing < 1, [True, False])


@pytest.mark.slow
@pytest.mark.light
def test_the_rule_as_a_file_teaches_agents(tmp_path):
    algo, (*_, last), _ = updates()
    path = tmp_path / "rule.npz"
    disco_rule.save(path, algo.policy(last))
    agent = disco.make(board(), disco.Config(weights=str(path), predictions=4, features=4, memory=3))
    taught = agent.learn.__self__.config
    back = disco_rule.load(path, taught.rule)
    assert all((back[name] == x).all() for name, x in last.weights.items())
    with pytest.raises(TypeError, match="A rule does not act: save it"):
        algo.act(last.weights, KEY, last.obs)
    with pytest.raises(ValueError, match="disco acts in Discrete spaces"):
        disco_training.make(jaxrl.make("Pendulum-v1")[0]).init(KEY)
    with pytest.raises(ValueError, match="num_agents=0"):
        Config(num_agents=0)


@pytest.mark.slow
@pytest.mark.light
def test_what_the_objective_has_beside_the_policy_gradient():
    said = disco_rule.Outputs(
        jnp.zeros((2, 1, 3)), jnp.zeros((2, 1, 4)), jnp.zeros((2, 1, 3, 4)), jnp.zeros(()), jnp.zeros(())
    )
    report = {name: jnp.array([1.0, 3.0]) for name in ("pi_hat", "y_hat", "z_hat", "target_kl")}
    hyper = Hyper(policy_entropy=0.5, prediction_entropy=0.25, target_mean=2.0, target_kl=3.0)
    # Means over the two updates of squares, (1 + 9) / 2, and of the distance; entropies of uniform distributions.
    expected = 2.0 * 3 * 5.0 + 3.0 * 2.0 - 0.5 * np.log(3) - 0.25 * 2 * np.log(4)
    found = disco_training.regulariser(said, jnp.zeros((2, 1), jnp.int32), report, hyper)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.light
def test_a_run_that_broke_off_is_resumed_bit_for_bit(tmp_path):
    algo, *_ = updates()
    whole = jaxrl.fit(algo, KEY, 4, hyper=Hyper(lifetime=4), progress=False)
    settings: dict = dict(hyper=Hyper(lifetime=4), out=tmp_path / "run", checkpoint_every=2, progress=False)
    jaxrl.fit(algo, KEY, 2, **settings)
    again = jaxrl.fit(algo, KEY, 4, resume=True, **settings)
    for x, y in zip(jax.tree.leaves(whole.state.weights), jax.tree.leaves(again.state.weights), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(("num_updates", "held"), [(1, True), (2, False)])
def test_the_meta_gradient_is_that_of_finite_differences(num_updates, held, monkeypatch):
    """Of one update as it is: what is held fixed does not depend on the rule. Of two with nothing held fixed at all."""
    if not held:
        monkeypatch.setattr(jax.lax, "stop_gradient", lambda x: x)
    with jax.enable_x64(True):
        meta = RuleLearner(board(), Config(num_agents=1, num_updates=num_updates, remat=False), TINY)
        state = lifted(jax.jit(lambda key: meta.init(key, Hyper(agent=disco.Hyper(learning_rate=3.0))))(KEY))
        one = jax.tree.map(lambda x: x[0], state.agents)
        count, mean, square = one.state.optimizer
        # Adam's denominator, which has no derivative, hardly depends on the gradient where there were large ones.
        square = jax.tree.map(jnp.ones_like, square)
        one = one._replace(state=one.state.replace(optimizer=(count, mean, square)))
        flat, unravel = ravel_pytree(state.weights)
        both = jax.jit(jax.value_and_grad(lambda flat: meta.objective(unravel(flat), one, state.hyper)[0]))
        gradient = both(flat)[1]
        assert jnp.linalg.norm(gradient) > 1e-4
        # Steps so small that no action is drawn otherwise.
        for direction in np.random.default_rng(0).normal(size=(4, flat.size)):
            step = 1e-5 * direction / np.linalg.norm(direction)
            difference = (both(flat + step)[0] - both(flat - step)[0]) / 2e-5
            np.testing.assert_allclose(gradient @ step / 1e-5, difference, rtol=1e-3, atol=1e-9)
