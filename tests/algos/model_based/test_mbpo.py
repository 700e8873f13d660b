"""MBPO: the model's loss, returns and the kept branches by hand, branches against a loop, what learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import bernoulli, norm

import jaxrl
from jaxrl.algos import mbpo
from jaxrl.data.dynamics import Scale
from jaxrl.data.transitions import Transition
from jaxrl.environment import strongly_typed
from jaxrl.nn.nets import net
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import ObservationActionReward

KEY = jax.random.key(0)
ENV = jaxrl.make("Pendulum-v1")[0]
SMALL = dict(num_envs=2, num_steps=4, num_updates=3, batch_size=8, buffer_size=32, hidden=(8,), num_members=2)
SMALL |= dict(model_hidden=(8,), model_updates=3, model_batch_size=4, num_rollouts=6, horizon=3)


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


# ---- by hand


def test_the_models_loss_is_twice_the_negative_log_likelihood():
    rng = np.random.default_rng(0)
    mean, target, log_var = rng.normal(size=(3, 2, 4, 3))
    logit, end = rng.normal(size=(2, 4)), rng.random((2, 4)) < 0.5
    given = [jnp.asarray(x, jnp.float32) for x in (mean, log_var, logit)]
    found = mbpo.model_loss(mbpo.Prediction(*given), jnp.asarray(target, jnp.float32), jnp.asarray(end))
    log_density = norm.logpdf(target, mean, np.exp(log_var / 2)) + np.log(2 * np.pi) / 2
    log_end = bernoulli.logpmf(end, 1 / (1 + np.exp(-logit)))
    close(found, -2 * (log_density.sum(-1) + log_end).mean(1).sum(), rtol=1e-4)


def test_returns_stop_at_the_end_of_the_task():
    reward = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    begun = jnp.array([[True, True], [True, True], [True, False]])
    close(mbpo.branch_returns(reward, begun, 0.5), [1 + 1.5 + 1.25, 2 + 2.0])


@pytest.mark.parametrize(
    "share, kept", [(1.0, [1, 1, 1, 1, 1]), (0.6, [1, 0, 1, 0, 1]), (0.2, [0, 0, 1, 0, 0]), (0.0, [0, 0, 1, 0, 0])]
)
def test_the_lowest_returns_are_kept(share, kept):
    returns = jnp.array([[1.0, 7.0, -3.0, 2.0, 0.0], [1.0, 7.0, -3.0, 2.0, 0.0]])
    assert mbpo.worst(returns, jnp.float32(share)).astype(int).tolist() == [kept, kept]


@pytest.mark.parametrize("num_branches, kept", [(1, [1, 1, 0, 1, 0, 0]), (3, [1, 0, 0, 1, 0, 0])])
def test_of_all_branches_or_of_those_from_one_state(num_branches, kept):
    """Half of six branches, or a third of the three from each state: returns are 0, 1, 5, 2, 8, 6, in one step each."""
    rule = mbpo.make(ENV, mbpo.Config(**{**SMALL, "num_branches": num_branches})).init.__self__.rule
    reward, begun = jnp.zeros((3, 6)).at[0].set(jnp.array([0.0, 1, 5, 2, 8, 6])), jnp.ones((3, 6), bool)
    begun = begun.at[2, 0].set(False)
    steps = Transition(None, jnp.zeros((3, 6, 1)), reward, ~begun, None)
    hyper = mbpo.Hyper(keep_share=0.5 if num_branches == 1 else 1 / 3)
    found = rule.kept(mbpo.Branches(steps, begun), hyper)
    assert found.astype(int).tolist() == [kept, kept, [0, *kept[1:]]]


def test_numbers_of_every_kind_and_back():
    obs = {
        "image": jnp.array([[[3], [255]], [[0], [7]]], jnp.uint8),
        "flag": jnp.array([True, False]),
        "x": jnp.array([[0.5], [-2.0]]),
    }
    flat = mbpo.numbers(obs)
    assert flat.tolist() == [[1, 3, 255, 0.5], [0, 0, 7, -2.0]]  # by name: flag, image, x
    back = mbpo.observations(flat + jnp.array([0.4, 0.4, 300.0, 0.25]), obs)
    assert back["image"].ravel().tolist() == [3, 255, 0, 255] and back["image"].dtype == jnp.uint8
    assert back["flag"].tolist() == [True, False] and back["x"].tolist() == [[0.75], [-1.75]]


def test_scales_are_of_the_rows_that_are_held():
    x = jnp.array([[1.0, 5.0], [3.0, 5.0], [99.0, 99.0]])
    found = mbpo.scale_of(x, jnp.array([True, True, False]), 1e-6, 0.25)
    close(found.mean, [2.0, 5.0])
    close(found.std, [1.0, 0.25])


# ---- branches


def nets_of(algo, hyper):
    """The networks of a new state, with scales that are not those of a new state, and what it was."""
    learner, state = algo.init.__self__, algo.init(KEY, hyper)
    nets = {
        name: net(x, state.optimizer[name], learner.optimizer_of(name), state.target_weights.get(name), name)
        for name, x in state.weights.items()
    }
    scales = Scale(jnp.arange(4.0) / 10, jnp.arange(1.0, 5.0)), Scale(jnp.arange(4.0) / 5, jnp.array([0.5, 1, 2, 3.0]))
    return nets | {"inputs": scales[0], "targets": scales[1]}, state


@pytest.fixture(scope="module")
def imagined():
    algo = mbpo.make(ENV, mbpo.Config(**SMALL))
    rule, (nets, _) = algo.init.__self__.rule, nets_of(algo, None)
    start = jax.random.normal(KEY, (6, 3))
    return rule, nets, start, jax.jit(lambda key: rule.imagine(nets, key, start))(KEY)


def test_branches_against_a_loop(imagined):
    """Step by step with the same keys: the policy's samples, then one member's prediction a row, and its end."""
    rule, nets, obs, found = imagined
    begun, weights = np.ones(6, bool), nets["model"].weights
    for t, key in enumerate(jax.random.split(KEY, 3)):
        act_key, model_key = jax.random.split(key)
        member_key, noise_key, end_key = jax.random.split(model_key, 3)
        action = rule.actor(nets["actor"].weights, obs).sample(act_key)
        member = np.asarray(jax.random.randint(member_key, (6,), 0, 2))
        noise = np.asarray(jax.random.normal(noise_key, (6, 4)))
        x = (np.concatenate([obs, action], -1) - np.asarray(nets["inputs"].mean)) / np.asarray(nets["inputs"].std)
        logits, drawn = np.zeros(6), np.zeros((6, 4))
        for i in range(6):
            own = jax.tree.map(lambda w, k=member[i]: w[k], weights)
            out = np.asarray(rule.member(4).apply(own["members"], jnp.asarray(x[i], jnp.float32)))
            log_var = own["high"] - np.logaddexp(0, own["high"] - out[4:8])
            log_var = own["low"] + np.logaddexp(0, log_var - own["low"])
            drawn[i] = (out[:4] + np.exp(log_var / 2) * noise[i]) * nets["targets"].std + nets["targets"].mean
            logits[i] = out[8]
        steps = jax.tree.map(lambda x, t=t: x[t], found.steps)
        close(steps.obs, obs)
        close(steps.action, action)
        close(steps.next_obs, obs + drawn[:, :3], rtol=1e-4, atol=1e-4)
        close(steps.reward, drawn[:, 3], rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(steps.terminated, jax.random.bernoulli(end_key, jax.nn.sigmoid(logits)))
        np.testing.assert_array_equal(found.begun[t], begun)
        begun, obs = begun & ~np.asarray(steps.terminated), steps.next_obs


def test_it_ends_and_goes_on(imagined):
    """A new model's ends are a coin's: of six branches of three steps some were cut, and some were not."""
    begun = np.asarray(imagined[3].begun)
    assert begun[0].all() and 0 < begun[2].sum() < 6


# ---- learning


def run(algo, hyper, updates=1):
    def whole(key):
        states, reports = [algo.init(key, hyper)], []
        for _ in range(updates):
            state, report = algo.update(states[-1])
            states, reports = [*states, state], [*reports, report]
        return states, reports

    return jax.jit(whole)(KEY)


@pytest.fixture(scope="module")
def updated():
    algo = mbpo.make(ENV, mbpo.Config(**SMALL))
    return run(algo, mbpo.Hyper(learning_starts=9), 2)


def test_nothing_learns_before_its_time_and_then_everything_does(updated):
    states, reports = updated
    jax.tree.map(np.testing.assert_array_equal, states[0].weights, states[1].weights)
    assert np.isnan(reports[0]["loss"]) and np.isnan(reports[0]["imagined_steps"]) and reports[0]["gradient_steps"] == 0
    moved = jax.tree.map(lambda x, y: bool(np.any(x != y)), states[1].weights, states[2].weights)
    assert all(jax.tree.leaves(moved)), moved
    assert reports[1]["gradient_steps"] == 3
    assert all(np.isfinite(x) for name, x in reports[1].items() if not name.startswith("episode"))
    counts = {name: int(x.count) for name, x in states[2].optimizer.items()}
    assert counts == {"critic": 3, "actor": 3, "log_alpha": 3, "model": 3}
    assert int(states[2].replay.size) == 16 and int(states[2].step) == 16


def test_the_first_random_rollout_is_learned_from_at_once():
    """A rollout is long: with `learning_starts` as long as one, none is acted by a network that has not learned."""
    assert run(mbpo.make(ENV, mbpo.Config(**SMALL)), mbpo.Hyper(learning_starts=8), 1)[1][0]["gradient_steps"] == 3


def test_the_scale_is_of_what_is_stored(updated):
    state = updated[0][2]
    seen = jax.tree.map(lambda x: np.asarray(x[:16], float), state.replay.items)
    x = np.concatenate([seen.obs, seen.action], -1)
    y = np.concatenate([seen.next_obs - seen.obs, seen.reward[:, None]], -1)
    for name, z in (("inputs", x), ("targets", y)):
        close(state.extra[name].mean, z.mean(0), rtol=1e-4, atol=1e-5)
        close(state.extra[name].std, z.std(0), rtol=1e-4, atol=1e-5)


def test_gradients_reach_every_weight_of_the_model():
    algo = mbpo.make(ENV, mbpo.Config(**SMALL))
    rule, (nets, _) = algo.init.__self__.rule, nets_of(algo, None)

    def loss(weights):
        x = jax.random.normal(KEY, (2, 5, 4))
        return mbpo.model_loss(rule.predict(weights, x), jnp.ones((2, 5, 4)), jnp.arange(10).reshape(2, 5) < 4)

    gradient = jax.grad(loss)(nets["model"].weights)
    assert all(np.any(x != 0) for x in jax.tree.leaves(gradient))


def test_a_share_is_a_leaf_and_an_epoch_a_branch_also_of_several_seeds():
    """A `cond` whose predicate is batched is computed on both sides, at every update."""
    algo = mbpo.make(ENV, mbpo.Config(**{**SMALL, "model_updates": 37}))
    states = jax.eval_shape(
        jax.vmap(lambda key, share: algo.init(key, mbpo.Hyper(keep_share=share))),
        jax.random.split(KEY, 2),
        jnp.array([1.0, 0.5]),
    )
    jaxpr = jax.make_jaxpr(jax.vmap(algo.update))(states)
    lengths = [x.params["length"] for x in jaxpr.jaxpr.eqns if x.primitive.name == "scan"]
    assert 37 not in lengths and "cond" in {x.primitive.name for x in jaxpr.jaxpr.eqns}


def test_no_key_serves_twice():
    algo = mbpo.make(ENV, mbpo.Config(**SMALL))
    hyper = mbpo.Hyper(learning_starts=0)
    assert_no_key_reuse(lambda key: algo.update(algo.init(key, hyper))[1]["loss"], jax.random.key(7))


@pytest.mark.slow
@pytest.mark.light
def test_a_model_learns_what_the_environment_does():
    """Of random steps of the probe: the reward 1 - (a - best)^2, and that each step ends the task."""
    config = mbpo.Config(**{**SMALL, "num_steps": 100, "buffer_size": 400, "model_updates": 600, "model_hidden": (32,)})
    algo = mbpo.make(ObservationActionReward("box"), config)
    rule, hyper = algo.init.__self__.rule, strongly_typed(mbpo.Hyper(learning_starts=200, model_learning_rate=5e-3))
    state, report = jax.jit(lambda key: algo.update(algo.update(algo.init(key, hyper))[0]))(KEY)
    assert report["model_error"] < 0.05  # of the second update's steps, after the fit of the first's
    nets = {"model": net(state.weights["model"], state.optimizer["model"], algo.init.__self__.optimizer)} | state.extra
    obs, unit = jnp.array([[-1.0], [1.0]]), jnp.array([[-0.5], [2 / 3]])  # the best actions, in units of the box
    predicted = rule.everyone(nets, mbpo.inputs_of(obs, unit))
    reward = predicted.mean[..., -1] * nets["targets"].std[-1] + nets["targets"].mean[-1]
    close(reward, np.ones((2, 2)), atol=0.15)
    assert np.all(predicted.logit > 2)


# ---- what cannot be


def test_settings_that_cannot_be():
    with pytest.raises(ValueError, match="real_ratio=1.5"):
        mbpo.Config(real_ratio=1.5)
    with pytest.raises(ValueError, match="num_branches=4 does not divide num_rollouts=6"):
        mbpo.Config(num_rollouts=6, num_branches=4)
    with pytest.raises(ValueError, match="horizon=0"):
        mbpo.Config(horizon=0)
    with pytest.raises(ValueError, match="normalize_obs=True is of learners from a dataset"):
        mbpo.make(ENV, mbpo.Config(normalize_obs=True))
    with pytest.raises(ValueError, match="keep_share=1.5: it must be between 0 and 1"):
        mbpo.make(ENV, mbpo.Config(**SMALL)).init(KEY, mbpo.Hyper(keep_share=1.5))
    with pytest.raises(ValueError, match="replay_ratio=9"):
        mbpo.make(ENV, mbpo.Config(**SMALL)).init(KEY, mbpo.Hyper(replay_ratio=9.0))
