"""The network by hand and token by token; what the contexts hold; learning to learn."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import train, vectorize
from jaxrl.algos.bandits import lin_ucb, ucb
from jaxrl.algos.meta import dpt
from jaxrl.environment import strongly_typed
from jaxrl.envs.bandits.linear import LinearBandit
from jaxrl.envs.bandits.stochastic import BernoulliBandit
from jaxrl.envs.tabular.grids.darkroom import Darkroom
from jaxrl.nn.attention import attend
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.probes import Masked
from jaxrl.wrappers import PreviousActionReward

BANDIT = BernoulliBandit(arms=3)
ROOM = Darkroom(size=3)
TINY = dict(num_envs=4, num_steps=8, width=8, hidden=8, layers=2, heads=2)


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def best_arm(params, obs):
    return jnp.argmax(params.mean)


def towards_goal(params, obs):
    return ROOM.optimal_action(obs["obs"], params)


@cache
def tiny(env=BANDIT, optimal=best_arm, source=None, **changes):
    return dpt.make(env, dpt.Config(**{**TINY, **changes}), optimal=optimal, source=source)


@cache
def played(algo):
    """The state before and after a batch of contexts, and the contexts."""
    state = jax.jit(algo.init)(jax.random.key(0))
    return state, *jax.jit(algo.collect)(state)


def shaken(network, x):
    """Weights: the head starts at zero, which would make all logits equal."""

    def init(key, noise_key):
        weights = network.init(key, x)
        return jax.tree.map(lambda w: w + 0.3 * jax.random.normal(noise_key, w.shape), weights)

    return jax.jit(init)(jax.random.key(1), jax.random.key(2))


# ---- the network


def test_tokens_by_hand():
    space = PreviousActionReward(BANDIT).observation_space(BANDIT.default_params)
    obs = {"obs": jnp.int32(0), "previous_action": jnp.array([0.0, 1, 0]), "previous_reward": jnp.float32(0.5)}
    close(dpt.tokens(space, obs), [1, 0, 1, 0, 0.5, 0, 0.5, 0])


def test_attention_by_hand():
    """One head, one dimension: scores q k."""
    query, key = jnp.array([1.0, 1.0]), jnp.array([0.0, np.log(3.0)])
    value = jnp.array([4.0, 8.0])
    q, k, v = (x[:, None, None] for x in (query, key, value))
    visible = jnp.array([[True, False], [True, True]])
    close(attend(q, k, v, visible, True)[:, 0, 0], [4, (4 + 3 * 8) / 4])
    # ReLU: scores 0 and log 3 over 1 and 2 visible tokens; a negative score counts as nothing.
    close(attend(q, k, v, visible, False)[:, 0, 0], [0, np.log(3) * 8 / 2])
    close(attend(-q, k, v, visible, False), 0)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("attention", ["softmax", "relu"])
def test_step_by_step_is_the_whole_context(attention):
    """Logits from the cache equal those of all prefixes at once: nothing looks ahead, nothing is forgotten."""
    network = dpt.Transformer(3, 8, 16, 2, 2, attention)
    x = jax.random.normal(jax.random.key(0), (5, 6, 4))
    weights = shaken(network, x)
    whole = jax.jit(network.apply)(weights, x)
    assert jnp.std(whole) > 0.1
    algo = tiny(attention=attention, num_steps=6)
    cache = algo.initial_carry((5,))
    step = jax.jit(lambda x, cache: network.apply(weights, x, cache, method="step"))
    for t in range(6):
        logits, cache = step(x[:, t], cache)
        close(logits, whole[:, t], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(cache.time, 6)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("rnn", ["gru", "s5", "attention"])
def test_a_cell_step_by_step_is_the_whole_context(rnn):
    network = dpt.Memory(3, 8, 16, 2, rnn, 6)
    x = jax.random.normal(jax.random.key(0), (5, 6, 4))
    weights = shaken(network, x)
    whole = jax.jit(network.apply)(weights, x)
    assert jnp.std(whole) > 0.1
    carry = network.initial_carry((5,))
    step = jax.jit(lambda x, carry: network.apply(weights, x, carry, method="step"))
    for t in range(6):
        logits, carry = step(x[:, t], carry)
        close(logits, whole[:, t], rtol=1e-4, atol=1e-5)
    changed = jax.jit(network.apply)(weights, x.at[:, 3:].add(1.0))
    close(changed[:, :3], whole[:, :3], rtol=1e-5, atol=1e-6)  # nothing looks ahead
    assert jnp.abs(changed[:, 3:] - whole[:, 3:]).max() > 0.01


@pytest.mark.slow
@pytest.mark.light
def test_the_cache_is_a_ring_of_the_last_tokens():
    """One layer, whose keys and values depend on nothing but their tokens: a full ring is the context of its tokens."""
    network = dpt.Transformer(3, 8, 16, 1, 2, "softmax")
    x = jax.random.normal(jax.random.key(0), (9, 4))
    weights = shaken(network, x)
    # Without the clock, which stands still from the fourth token on.
    weights["params"]["embed"]["kernel"] = weights["params"]["embed"]["kernel"].at[-1].set(0)
    cache = tiny(layers=1, num_steps=4).initial_carry(())
    step = jax.jit(lambda x, cache: network.apply(weights, x, cache, method="step"))
    for token in x:
        logits, cache = step(token, cache)
    close(logits, jax.jit(network.apply)(weights, x[-4:])[-1], rtol=1e-4, atol=1e-5)


# ---- loss and schedule


def test_imitation_loss_by_hand():
    logits = jnp.log(jnp.array([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]]))
    loss, accuracy = dpt.imitation_loss(logits, jnp.array([[1, 2]]))
    close(loss, -(np.log(0.25) + np.log(0.8)) / 2)
    close(accuracy, 0.5)


def test_learning_rate_warms_up_and_follows_a_cosine():
    hyper = dpt.Hyper(jnp.float32(2.0), jnp.int32(100), jnp.int32(500))
    steps = jnp.array([0, 50, 100, 200, 300, 500, 600])
    rate = jax.vmap(lambda step: dpt.learning_rate_at(step, hyper))(steps)
    close(rate, [0, 1, 2, 1 + np.cos(np.pi / 4), 1, 0, 0], atol=1e-6)
    constant = dpt.Hyper(jnp.float32(2.0), jnp.int32(0), jnp.int32(0))
    close(dpt.learning_rate_at(jnp.int32(12345), constant), 2)


@pytest.mark.slow
@pytest.mark.light
def test_a_gradient_step_is_adamw():
    import optax

    algo = tiny()
    hyper = strongly_typed(dpt.Hyper(learning_rate=0.01, weight_decay=0.5, max_grad_norm=1e6))
    _, state, rollout = played(algo)
    state = state.replace(hyper=hyper)
    space = algo.venv.env.observation_space(state.env_params)
    tokens = dpt.tokens(space, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rollout.obs))
    network = dpt.Transformer(3, 8, 8, 2, 2, "softmax")

    def objective(weights):
        return dpt.imitation_loss(network.apply(weights, tokens), rollout.target.T)[0]

    optimizer, weights = optax.adamw(0.01, weight_decay=0.5), state.weights
    change, _ = jax.jit(lambda w: optimizer.update(jax.grad(objective)(w), optimizer.init(w), w))(weights)
    learned, metrics = jax.jit(algo.learn)(state, rollout)
    close(metrics["loss"], np.log(3))
    jax.tree.map(lambda a, b: close(a, b, atol=1e-4), learned.weights, optax.apply_updates(weights, change))


# ---- contexts


@pytest.mark.slow
@pytest.mark.light
def test_contexts_are_what_the_wrapper_shows():
    """Played again in the wrapped environment, the actions give the same observations, over the ends of episodes."""
    params = ROOM.default_params.replace(max_steps=jnp.int32(5), goal=jnp.int32(1))
    algo = tiny(vectorize(PreviousActionReward(ROOM), 4), None, label="behaviour", num_steps=12)
    start = jax.jit(algo.init)(jax.random.key(0), None, params)
    _, rollout = jax.jit(algo.collect)(start)
    venv = vectorize(PreviousActionReward(ROOM), 4)
    obs, state = jax.jit(venv.reset)(jax.random.key(1), params)
    jax.tree.map(close, start.obs, obs)
    step = jax.jit(venv.step)
    for t in range(12):
        jax.tree.map(lambda seen, true, t=t: close(seen[t], true), rollout.obs, obs)
        ts = step(jax.random.key(t), state, rollout.target[t], params)
        np.testing.assert_array_equal(ts.truncated, rollout.truncated[t])
        obs, state = ts.obs, ts.state
    assert rollout.truncated.any() and rollout.obs["previous_reward"].any()


@pytest.mark.slow
@pytest.mark.light
def test_tasks_are_drawn_and_labelled():
    algo = tiny(num_envs=64)
    _, state, rollout = played(algo)
    target = np.asarray(rollout.target)
    np.testing.assert_array_equal(target, np.broadcast_to(target[0], target.shape))  # one label a task
    assert np.bincount(target[0], minlength=3).min() > 8
    _, again = jax.jit(algo.collect)(state)
    assert (again.target[0] != target[0]).any()


@pytest.mark.slow
@pytest.mark.light
def test_labels_follow_the_observation():
    _, _, rollout = played(tiny(ROOM, towards_goal, num_steps=16))
    at_goal = np.asarray(rollout.obs["previous_reward"] > 0)
    assert at_goal.any()
    np.testing.assert_array_equal(np.asarray(rollout.target)[at_goal], 4)


def test_random_behaviour():
    """A distribution a task: the shares of its arms differ, unless it is told to be uniform."""
    source = dpt.random_behaviour(BANDIT)

    def probability(hyper):
        init = jax.vmap(lambda key: dpt.with_hyper(source, hyper).init(key).weights)
        return np.asarray(jax.jit(init)(jax.random.split(jax.random.key(0), 4000)))

    p = probability(dpt.RandomHyper())
    close(p.sum(1), 1)
    close(p.mean(0), 1 / 3, atol=0.02)
    # c = 1 in one of eleven tasks, and then it is one arm; c = 0 in as many, and then the largest is seldom above 0.95.
    assert 1 / 11 - 0.015 < np.mean(p.max(1) > 0.999) < 1 / 11 + 0.015
    # E sum p^2 = E[(1-c)^2] 1/2 + 2 E[c (1-c)] / 3 + E[c^2], 1/2 being (1 + 1) / (1 + 3) of a Dirichlet(1, 1, 1)
    c = np.arange(11) / 10
    close(np.mean((p**2).sum(1)), np.mean((1 - c) ** 2 / 2 + 2 * c * (1 - c) / 3 + c**2), atol=0.01)
    close(probability(dpt.RandomHyper(uniform=1.0)), 1 / 3)


@pytest.mark.slow
@pytest.mark.light
def test_algorithm_distillation_imitates_a_learning_history():
    """The targets are the actions of the source, which starts from nothing on every task."""
    _, _, rollout = played(tiny(optimal=None, source=ucb.make(BANDIT), label="behaviour"))
    # UCB pulls every arm once first.
    np.testing.assert_array_equal(np.sort(np.asarray(rollout.target)[:3], 0), np.arange(3)[:, None].repeat(4, 1))
    close(rollout.obs["previous_action"][1:], jax.nn.one_hot(rollout.target[:-1], 3))


@pytest.mark.slow
@pytest.mark.light
def test_sources_see_what_is_wrapped():
    """LinUCB needs plain features; the network sees them beside the previous action."""
    env = LinearBandit(arms=3, dim=2)
    algo = tiny(env, lambda p, obs: jnp.argmax(obs["obs"] @ p.theta), source=lin_ucb.make(env))
    _, _, rollout = played(algo)
    assert rollout.obs["obs"].shape == (8, 4, 3, 2)
    assert rollout.target.shape == (8, 4)


# ---- the algorithm


@pytest.mark.slow
@pytest.mark.parametrize("case", ["optimal", "behaviour", "cell"])
def test_keeps_the_contract(case):
    if case == "cell":
        algo = tiny(rnn="gru")
    elif case == "optimal":
        algo = tiny(ROOM, towards_goal, attention="relu")
    else:
        algo = tiny(optimal=None, source=ucb.make(BANDIT), label="behaviour")
    check_algorithm(algo, hyper=dpt.Hyper(learning_rate=0.03, anneal_steps=10_000), num_updates=4)


@pytest.mark.slow
@pytest.mark.light
def test_no_key_is_used_twice():
    algo = tiny()
    state, *_ = played(algo)

    def twice(key):
        return algo.update(algo.update(state.replace(key=key))[0])[1]["loss"]

    assert np.isfinite(assert_no_key_reuse(twice, jax.random.key(1)))


@pytest.mark.slow
@pytest.mark.light
def test_forbidden_actions_are_never_taken():
    algo = tiny(Masked(), None, label="behaviour")
    state = jax.jit(algo.init)(jax.random.key(0))
    obs = {"obs": jnp.zeros((200, 1)), "previous_action": jnp.zeros((200, 4)), "previous_reward": jnp.zeros(200)}
    obs["action_mask"] = jnp.tile(jnp.array([False, True, True, False]), (200, 1))
    action, _ = jax.jit(algo.act)(algo.policy(state), jax.random.key(1), obs, algo.initial_carry((200,)))
    assert set(np.asarray(action)) == {1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("rnn", ["", "s5"])
def test_learns_to_learn(rnn):
    """Two arms that always or never pay: after pretraining one reward is enough, and without any the arms are equal."""
    env = BernoulliBandit(arms=2)

    def one_pays(key, params):
        return params.replace(mean=jax.nn.one_hot(jax.random.randint(key, (), 0, 2), 2))

    venv = vectorize(PreviousActionReward(env), 32, level_fn=one_pays)
    algo = dpt.make(venv, dpt.Config(32, 6, width=16, hidden=16, layers=2, rnn=rnn), optimal=best_arm)
    run = jax.jit(lambda key: train(algo, key, 32 * 6 * 150, dpt.Hyper(learning_rate=1e-2)))
    state, metrics = run(jax.random.key(0))
    close(metrics["loss"][0], np.log(2))

    @jax.jit
    def actions(arm, reward):
        """500 draws before anything was seen, and after one step."""

        def draws(seen, carry):
            return jax.vmap(lambda key: algo.act(state.weights, key, seen, carry)[0])(keys)

        keys, carry = jax.random.split(jax.random.key(1), 500), algo.initial_carry(())
        first = {"obs": jnp.int32(0), "previous_action": jnp.zeros(2), "previous_reward": jnp.float32(0)}
        second = first | {"previous_action": jax.nn.one_hot(arm, 2), "previous_reward": reward}
        _, after = algo.act(state.weights, jax.random.key(2), first, carry)
        return draws(first, carry), draws(second, after)

    for arm in (0, 1):
        for reward in (0.0, 1.0):
            start, then = actions(jnp.int32(arm), jnp.float32(reward))
            assert 0.3 < start.mean() < 0.7
            assert np.mean(then == (arm if reward else 1 - arm)) > 0.97


def test_errors():
    with pytest.raises(ValueError, match="label='optimal' and optimal=None"):
        dpt.make(BANDIT)
    with pytest.raises(ValueError, match="'behaviour' takes none"):
        dpt.make(BANDIT, dpt.Config(label="behaviour"), optimal=best_arm)
    with pytest.raises(ValueError, match="heads=3 does not divide width=32"):
        dpt.Config(heads=3)
    with pytest.raises(ValueError, match="layers=0"):
        dpt.Config(layers=0)
    with pytest.raises(ValueError, match="rnn='s6' is unknown"):
        dpt.Config(rnn="s6")
    with pytest.raises((ValueError, TypeError), match="softmax"):  # the import hook's check comes first
        dpt.Config(attention="linear")  # pyright: ignore
    with pytest.raises(ValueError, match="a source plays one"):
        dpt.make(BANDIT, dpt.Config(label="behaviour"), source=ucb.make(BernoulliBandit(arms=4)))
    with pytest.raises(ValueError, match="num_envs=3 but the config says 64"):
        dpt.make(vectorize(PreviousActionReward(BANDIT), 3), dpt.Config(), optimal=best_arm)
    with pytest.raises(ValueError, match="must be wrapped in PreviousActionReward"):
        dpt.make(vectorize(BANDIT, 64), dpt.Config(), optimal=best_arm)
