"""EXPO: the choice, its losses and one step by hand, its ablations, and what it makes of data with two modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import expo
from jaxrl.algos.generative.ddpm_bc import Diffusion
from jaxrl.data.transitions import Transition
from jaxrl.environment import strongly_typed
from jaxrl.nn.distributions import TanhNormal
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.testing.probes import ObservationActionReward
from jaxrl.testing.rules import step

KEY = jax.random.key(0)
ENV = ObservationActionReward("box")
SMALL = dict(num_envs=4, buffer_size=64, batch_size=32, hidden=(8,), num_critics=3, num_diffusion_steps=2)


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def test_edits_stay_in_the_box_and_the_best_is_taken():
    action, edit = jnp.array([[0.5, 0.95], [-1.0, 0.0]]), jnp.array([[1.0, 1.0], [-0.5, 0.2]])
    close(expo.edited(action, edit, 0.1), [[0.6, 1.0], [-1.0, 0.02]])
    q = jnp.array([[1.0, 3.0], [2.0, 3.0], [0.0, -1.0]])
    actions = jnp.arange(6.0).reshape(3, 2, 1)
    close(expo.best_of(q, actions), [[2.0], [1.0]])  # of a tie the first
    loss = expo.edit_loss(jnp.array([-1.0, 3.0]), jnp.array([[1.0, 2.0], [3.0, 4.0]]), 0.5)
    close(loss, np.mean([0.5 * -1 - 2, 0.5 * 3 - 3]))


class Noise:
    """A base whose predicted noise is `weights` times a_t."""

    def apply(self, weights, x, action, t):
        return weights * action


class Line:
    """A critic whose value is w_0 a + w_1, and an edit whose mean before tanh is w_0 a + w_1."""

    def __init__(self, edit=False):
        self.edit = edit

    def apply(self, weights, x, action, mutable=False):
        line = weights[0] * action + weights[1]
        out = (line, jnp.full_like(action, -1.0)) if self.edit else line[..., 0]
        return (out, {}) if mutable else out


def test_a_gradient_step_by_hand():
    config = expo.Config(num_critics=2, num_target_critics=2, num_samples=3, num_edits=2, num_diffusion_steps=2)
    base = Diffusion(Noise(), Box(-1.0, 1.0, (1,)), 2, 1)
    policy = expo.BestOf(config, base, Line(edit=True), Line())
    rng = np.random.default_rng(0)
    action, reward = jnp.asarray(rng.uniform(-1, 1, (6, 1)), jnp.float32), jnp.asarray(rng.normal(size=6), jnp.float32)
    terminated = jnp.array([True, False, False, False, False, False])
    batch = Transition(jnp.zeros((6, 1)), action, reward, terminated, jnp.zeros((6, 1)))
    live = (jnp.array([0.4, -0.2]), jnp.array([0.1, 0.3]))  # slopes and heights of the two critics
    target = (jnp.array([1.0, -1.0]), jnp.array([0.0, 0.5]))  # the smaller one is largest where a = 0.25
    weights = {"critic": live, "actor": jnp.float32(0.6), "edit": (jnp.float32(0.3), jnp.float32(-0.1))}
    weights["log_alpha"] = jnp.float32(np.log(0.2))
    hyper = strongly_typed(expo.Hyper(learning_rate=1.0, alpha_learning_rate=1.0, edit_scale=0.5, gamma=0.9))
    report, change = step(expo._EXPO(config, policy), weights, {"critic": target}, batch, hyper, KEY)

    next_key, _, _, edit_key = jax.random.split(KEY, 4)
    draw_key, _ = jax.random.split(next_key)
    base_key, next_edit_key = jax.random.split(draw_key)
    drawn = np.asarray(base.explore(weights["actor"], base_key, jnp.zeros((3, 6, 1))))
    normal = np.asarray(jax.random.normal(next_edit_key, (2, 6, 1)))
    edits = np.tanh(0.3 * drawn[:2] - 0.1 + np.exp(-1) * normal)
    actions = np.concatenate([drawn, np.clip(drawn[:2] + 0.5 * edits, -1, 1)])[..., 0]
    values = np.minimum(actions, 0.5 - actions)
    best = np.max(values, 0)  # the critics drawn for the target are both, as for the choice
    assert len(np.unique(np.argmax(values, 0))) > 1
    aim = np.asarray(reward) + 0.9 * np.where(terminated, 0, best)
    a = np.asarray(action)[:, 0]
    error = np.array([0.4 * a + 0.1 - aim, -0.2 * a + 0.3 - aim])
    close(report["critic_loss"], np.sum(np.mean(error**2, 1)))
    slopes, heights = change["critic"]
    close(slopes, np.mean(2 * error * a, 1))
    close(heights, np.mean(2 * error, 1))

    w, b = np.array([0.4, -0.2]) - slopes, np.array([0.1, 0.3]) - heights  # the edit ascends what was just learned
    pi = TanhNormal(0.3 * action - 0.1, jnp.full_like(action, -1.0))
    drawn, log_prob = (np.asarray(x) for x in pi.sample_and_log_prob(edit_key))
    moved = np.clip(a + 0.5 * drawn[:, 0], -1, 1)
    close(report["edit_loss"], np.mean(0.2 * log_prob - np.mean(w[:, None] * moved + b[:, None], 0)), rtol=1e-4)
    close(report["entropy"], -np.mean(log_prob))
    close(change["log_alpha"], report["entropy"] + 0.5)  # the target is -A / 2
    assert all(np.all(np.asarray(x) != 0) for x in jax.tree.leaves(change))


@pytest.mark.slow
@pytest.mark.light
def test_ablations_choose_among_less():
    obs, key = jnp.ones((5, 1)), jax.random.key(3)
    base_key = jax.random.split(jax.random.split(key)[0])[0]

    def acted(**config):
        algo = expo.make(ENV, expo.Config(**SMALL, **config))
        policy = algo.init.__self__.rule.policy
        weights = algo.policy(algo.init(KEY, expo.Hyper(edit_scale=0.5))).weights
        base = np.asarray(policy.base.explore(weights["actor"], base_key, jnp.ones((config["num_samples"], 5, 1))))
        return np.asarray(policy.explore(weights, key, obs)), base

    action, base = acted(num_samples=1, num_edits=0)
    np.testing.assert_array_equal(action, base[0])
    action, base = acted(num_samples=6, num_edits=0)
    assert np.all(np.any(action == base, 0))
    action, base = acted(num_samples=1, num_edits=1)
    changed = np.any(action != base[0], -1)
    assert changed.any() and np.all(np.abs(action - base[0]) <= 0.5 + 1e-6)


@pytest.mark.slow
@pytest.mark.light
def test_all_weights_learn_and_only_the_critics_learn_each_time():
    def run(delay, steps):
        config = expo.Config(**SMALL, num_samples=2, num_edits=2, policy_delay=delay)
        algo = expo.make(ENV, config)
        state = algo.init(KEY, expo.Hyper(learning_starts=0, edit_scale=1.0))
        after = jax.jit(lambda state: jax.lax.scan(lambda s, _: algo.update(s), state, length=steps)[0])(state)
        return algo, state, after

    algo, before, after = run(1, 4)
    moved = jax.tree.map(lambda x, y: bool(np.any(x != y)), before.weights, after.weights)
    assert all(jax.tree.leaves(moved)), moved
    space = ENV.action_space(ENV.default_params)
    for greedy in (False, True):
        action = np.asarray(algo.act(algo.policy(after), KEY, jnp.ones((50, 1)), greedy=greedy)[0])
        assert np.all((action >= space.low) & (action <= space.high))
        assert (len(np.unique(action)) == 1) == greedy
    assert algo.deployed == "sampled"

    _, before, after = run(5, 4)
    for name in ("actor", "edit", "log_alpha"):
        jax.tree.map(np.testing.assert_array_equal, before.weights[name], after.weights[name])
    moved = jax.tree.map(lambda x, y: bool(np.any(x != y)), before.weights["critic"], after.weights["critic"])
    assert all(jax.tree.leaves(moved)), moved


def test_settings_that_cannot_be():
    for wrong, said in (
        (dict(num_target_critics=11), "num_target_critics=11: it must be 1 to num_critics=10"),
        (dict(num_edits=9), "num_edits=9: it must be 0 to num_samples=8"),
        (dict(num_samples=0), "num_samples=0"),
    ):
        with pytest.raises(ValueError, match=said):
            expo.Config(**wrong)


def two_modes(key, state, n):
    """Actions around -0.5 and 0.5, paid by how near 0.8 they are, where there are few."""
    side_key, noise_key = jax.random.split(key)
    side = jnp.where(jax.random.bernoulli(side_key, 0.5, (n, 1)), 0.5, -0.5)
    action = jnp.clip(side + 0.1 * jax.random.normal(noise_key, (n, 1)), -1, 1)
    return Transition(jnp.ones((n, 1)), action, 1 - (action[:, 0] - 0.8) ** 2, jnp.ones(n, bool), jnp.ones((n, 1)))


@pytest.mark.slow
@pytest.mark.light
def test_the_better_mode_is_chosen_and_its_actions_are_edited():
    config = dict(num_updates=50, batch_size=64, hidden=(32, 32), num_critics=2)
    base = {}

    def mean_action(num_edits):
        given = expo.Config(**config, num_edits=num_edits)
        algo = expo.make(ENV, given, replay=Replay(lambda item: (), None, two_modes))
        space = ENV.action_space(ENV.default_params)

        @jax.jit
        def run(key):
            state, _ = jaxrl.train(algo, key, 3000, expo.Hyper(learning_rate=3e-3, edit_scale=0.2))
            policy, obs = algo.init.__self__.rule.policy, jnp.ones((500, 1))
            base = policy.base.explore(state.weights["actor"], key, obs)
            return algo.act(algo.policy(state), key, obs)[0], base

        action, base[num_edits] = run(KEY)
        return np.mean((action - space.low) / (space.high - space.low) * 2 - 1)

    plain, with_edits = mean_action(0), mean_action(8)
    assert 0.4 < plain < 0.75 and with_edits > plain + 0.05, (plain, with_edits)
    for actions in base.values():  # imitation keeps both modes
        assert 0.25 < np.mean(np.asarray(actions) < 0) < 0.75
