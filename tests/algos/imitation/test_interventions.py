"""Experts beside a learner: who acts when, what is stored of it, what a value is, and the losses by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import actors
from jaxrl.algos import dagger, hg_dagger, ppo, rlif
from jaxrl.data.transitions import Batch, Transition
from jaxrl.environment import strongly_typed
from jaxrl.nn.nets import net as made_net
from jaxrl.off_policy import interventions
from jaxrl.replay.ring import Kept, kept, uniform
from jaxrl.vector_env import vectorize

KEY = jax.random.key(0)
MODULES = dagger, hg_dagger, rlif
SMALL = dict(num_envs=3, num_steps=2, num_updates=2, batch_size=8, buffer_size=64, hidden=(8,))


def upright(obs):
    return (obs[2] + 0.2 * obs[3] > 0).astype(jnp.int32)


def brakes(obs):
    return jnp.clip(-obs[2:3], -2.0, 2.0)


def falls(obs):
    return (obs[2] < 0).astype(jnp.int32)


def made(module, task="CartPole-v1", act=None, **config):
    env, params = jaxrl.make(task)
    few = dict(num_critics=3) if module is rlif else {}
    expert = actors.of_function(act or (upright if task == "CartPole-v1" else brakes))
    return module.make(env, module.Config(**{**SMALL, **few, **config}), expert=expert), params


def test_a_ring_keeps_the_rows_of_the_mask_in_their_order():
    """Against a list, through several turns of the ring."""
    rng, memory = np.random.default_rng(0), kept(7)
    state, held = memory.init(jnp.zeros(2)), []
    add = jax.jit(memory.add)
    for i in range(12):
        rows, mask = rng.normal(size=(5, 2)).astype(np.float32), rng.random(5) < (0.0 if i == 3 else 0.5)
        state, held = add(state, Kept(jnp.asarray(rows), jnp.asarray(mask))), [*held, *rows[mask]]
        n = min(len(held), 7)
        assert (int(state.size), int(state.position)) == (n, len(held) % 7)
        in_order = np.roll(state.items, -int(state.position) if n == 7 else 0, 0)[:n]
        np.testing.assert_array_equal(in_order, np.reshape(held[-7:], (n, 2)))
    all_rows = Kept(jnp.ones((5, 2)), jnp.ones(5, bool))
    same = uniform(7).add(state, all_rows.items)
    jax.tree.map(np.testing.assert_array_equal, memory.add(state, all_rows), same)


def test_a_value_is_the_discounted_return_of_an_action_and_the_actors_own():
    """Step by step, for two actions, with an end of the task before the horizon and without."""
    env, params = jaxrl.make("CartPole-v1")
    expert = actors.of_function(falls)
    keys = jax.random.split(KEY, 2)
    obs, state = jax.vmap(env.reset, (0, None))(keys, params)
    for horizon in (3, 30):
        found = actors.value(expert, env, KEY, state, jnp.array([0, 1]), params, (), 0.9, horizon)
        for i in range(2):
            at, action, total = jax.tree.map(lambda x, i=i: x[i], state), jnp.int32(i), 0.0
            for t in range(horizon):
                ts = env.step(KEY, at, action, params)
                total += 0.9**t * float(ts.reward)
                if ts.terminated:
                    break
                at, action = ts.state, falls(ts.obs)
            assert (t < horizon - 1) == (horizon == 30)
            np.testing.assert_allclose(found[i], total, rtol=1e-6)


def test_the_trigger_is_right_for_negative_values():
    hyper = rlif.Hyper(threshold=1.0, lapse_prob=0.0)
    of_expert, of_learner = jnp.array([-10.0, -10.0, 10.0, 10.0]), jnp.array([-10.5, -12.0, 9.5, 8.0])
    wanted = [False, True, False, True]
    np.testing.assert_array_equal(interventions.by_value(KEY, of_expert, of_learner, hyper), wanted)
    lapsed = interventions.by_value(KEY, of_expert, of_learner, hyper.replace(lapse_prob=1.0))
    np.testing.assert_array_equal(lapsed, np.logical_not(wanted))


@pytest.mark.parametrize("num_steps", [1, 5])
def test_who_acts_when_and_what_is_rewarded(num_steps):
    """With an expert who always takes over, for two steps: ..., learner, expert, expert, learner, ... in each episode,
    whatever a rollout's length; rewarded is the learner's step before, and the last step of an episode is there."""
    algo, params = made(rlif, act=falls, takeover="random", expert_steps=2, num_steps=num_steps, batch_size=2)
    hyper = rlif.Hyper(takeover_prob=1.0, learning_starts=15)
    _, (rolled, terminated) = jax.jit(
        lambda key: jax.lax.scan(
            lambda state, _: (lambda out: (out[0], (out[1], out[1].transition.items.terminated)))(algo.collect(state)),
            algo.init(key, hyper, params),
            length=60 // num_steps,
        )
    )(KEY)
    by_expert, taken_over, done, reward, terminated = (
        np.asarray(x).reshape(60, 3)
        for x in (rolled.by_expert, rolled.taken_over, rolled.ends.done, rolled.transition.items.reward, terminated)
    )
    alone = 5  # steps of 3 environments until learning_starts
    assert by_expert[:alone].all() and not taken_over[:alone].any()
    for n in range(3):
        left = 0
        for t in range(60):
            if t < alone:
                continue
            assert by_expert[t, n] == (left > 0), (t, n)
            begins = left == 0 and not done[t, n]
            assert taken_over[t, n] == begins
            left = 2 if begins else 0 if done[t, n] else max(left - 1, 0)
    np.testing.assert_array_equal(reward, -taken_over.astype(np.float32))
    assert done.sum() >= 3 and (terminated == done).all()
    assert np.asarray(rolled.transition.mask).all()


def test_what_is_kept():
    """DAgger: the expert's action in every state; HG-DAgger: what it did itself; RLIF: all that was done."""
    for module in MODULES:
        algo, params = made(module, num_steps=8, **({} if module is dagger else dict(takeover="random")))
        hyper = module.Hyper(learning_starts=1, **({} if module is dagger else dict(takeover_prob=0.5)))
        state, _ = jax.jit(algo.collect)(algo.init(KEY, hyper, params))  # the demonstrations
        _, rollout = jax.jit(algo.collect)(state)
        items, mask = rollout.transition
        wanted = jax.vmap(jax.vmap(upright))(items.obs)
        if module is dagger:
            assert mask.all() and not rollout.by_expert.any() and not rollout.taken_over.any()
            np.testing.assert_array_equal(items.action, wanted)
            continue
        assert rollout.by_expert.any() and not rollout.by_expert.all()
        np.testing.assert_array_equal(mask, rollout.by_expert if module is hg_dagger else np.ones_like(mask))
        theirs = np.asarray(rollout.by_expert)
        np.testing.assert_array_equal(np.asarray(items.action)[theirs], np.asarray(wanted)[theirs])


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("module", MODULES)
def test_every_weight_learns_and_actions_are_in_the_box(module, task):
    algo, params = made(module, task)
    state = algo.init(KEY, module.Hyper(learning_starts=1, learning_rate=1e-2), params)
    run = jax.jit(lambda state: jax.lax.scan(lambda state, _: algo.update(state), state, length=8))
    after, metrics = run(state)
    moved = jax.tree.map(lambda x, y: bool(np.any(x != y)), state.weights, after.weights)
    assert all(jax.tree.leaves(moved)), moved
    assert np.isfinite(metrics["loss"][-1]) and metrics["expert_share"][0] == 1
    stored = after.replay.items
    obs, action = (np.asarray(x)[: int(after.replay.size)] for x in (stored.obs, stored.action))
    if task == "Pendulum-v1":
        assert (np.abs(action) <= 1).all()
        if module is not rlif:  # the expert's, whose -2 to 2 is -1 to 1
            np.testing.assert_allclose(action, np.clip(-obs[:, 2:3], -2, 2) / 2, atol=1e-6)


def test_losses_of_imitation_by_hand():
    logits, action = jnp.array([[0.0, 0.0], [1.0, 0.0]]), jnp.array([1, 0])
    by_hand = (np.log(2) + np.log1p(np.exp(-1.0))) / 2
    for module in (dagger, hg_dagger):
        np.testing.assert_allclose(module.cross_entropy(logits, action), by_hand, rtol=1e-6)
        found = module.squared_error(jnp.array([[1.0, 0.0], [0.5, -1.0]]), jnp.array([[0.0, 0.0], [0.5, 1.0]]))
        np.testing.assert_allclose(found, 5 / 4)


class Table:
    """A critic of two actions, or a policy, that gives its weights whatever is observed."""

    def apply(self, weights, obs, *_, mutable=None):
        values = jnp.broadcast_to(weights, (*obs.shape[:-1], *weights.shape))
        return (values, {}) if mutable else values


def test_the_step_of_rlif_by_hand():
    """Three critics of which a target takes the least of all; no entropy in it; the actor's objective of their mean."""
    env, _ = jaxrl.make("CartPole-v1")
    config = rlif.Config(num_critics=3, num_min=3)
    spaces = env.action_space(env.default_params), env.observation_space(env.default_params)
    rule = rlif._RLIF(config, *spaces, Table(), rlif.Softmax(Table(), spaces[1]))
    algo, _ = made(rlif)
    optimizer = algo.init.__self__.optimizer
    q, logits = np.array([[1.0, 2.0], [3.0, 0.0], [2.0, 5.0]], np.float32), np.array([0.0, np.log(3.0)], np.float32)

    def net(name, weights, target=None):
        return made_net(weights, optimizer.init(weights, 1e-3), optimizer, target, name)

    nets = {
        "critic": net("critic", jnp.asarray(q), jnp.asarray(q)),
        "actor": net("actor", jnp.asarray(logits)),
        "log_alpha": net("log_alpha", jnp.log(0.5)),
    }
    batch: Batch = Transition(
        jnp.zeros((2, 4)), jnp.array([0, 1]), jnp.array([-1.0, 0.0]), jnp.array([False, True]), jnp.zeros((2, 4))
    )
    _, report = rule.gradient_step(nets, KEY, batch, strongly_typed(rlif.Hyper(gamma=0.5, learning_rate=0.0)))
    p = np.array([0.25, 0.75])
    target = np.array([-1 + 0.5 * p @ q.min(0), 0.0])
    np.testing.assert_allclose(report["critic_loss"], ((q - target) ** 2).mean(1).sum(), rtol=1e-5)
    entropy = -p @ np.log(p)
    np.testing.assert_allclose(report["entropy"], entropy, rtol=1e-5)
    np.testing.assert_allclose(report["actor_loss"], -(p @ q.mean(0)) - 0.5 * entropy, rtol=1e-5)


def test_a_target_takes_the_least_of_some_critics():
    q = jnp.array([[3.0], [1.0], [2.0]])
    keys = jax.random.split(KEY, 300)
    found = jax.vmap(lambda key: rlif.least_of_some(key, q, 2)[0])(keys)
    share = np.array([(found == x).mean() for x in (1.0, 2.0, 3.0)])  # of 3 pairs the least is 1 in two, 2 in one
    np.testing.assert_allclose(share, [2 / 3, 1 / 3, 0], atol=0.1)


def test_restarted_slots_are_the_learners_again():
    algo, params = made(rlif, takeover="random")
    hyper = rlif.Hyper(learning_starts=1, takeover_prob=1.0)
    state = algo.init(KEY, hyper, params)
    for _ in range(2):
        state, _ = algo.collect(state)
    assert (state.watch.left > 0).all()
    mask = jnp.array([True, False, False])
    again = algo.restart(state, jax.random.key(1), params, mask)
    np.testing.assert_array_equal(again.watch.left, jnp.where(mask, 0, state.watch.left))
    np.testing.assert_array_equal(again.watch.expert_action, jax.vmap(upright)(again.obs))
    np.testing.assert_array_equal(again.watch.action[1:], state.watch.action[1:])


def test_an_expert_with_a_memory_forgets_at_the_end_of_an_episode():
    """It counts its steps, and acts by the count."""
    env, params = jaxrl.make("CartPole-v1")

    def act(key, env_state, obs, env_params, carry):
        return carry % 2, carry + 1

    algo = dagger.make(
        env, dagger.Config(**{**SMALL, "num_steps": 40, "buffer_size": 128}), expert=actors.Actor(act, jnp.int32(0))
    )
    _, rollout = jax.jit(algo.collect)(algo.init(KEY, dagger.Hyper(learning_starts=1), params))
    done, action = np.asarray(rollout.ends.done), np.asarray(rollout.transition.items.action)
    assert done.any()
    for n in range(3):
        count = 0
        for t in range(40):
            assert action[t, n] == count % 2
            count = 0 if done[t, n] else count + 1


def test_an_expert_may_say_values_itself():
    """One that thinks all alike never takes over; one that likes its own best always does."""
    env, params = jaxrl.make("CartPole-v1")

    def act(key, env_state, obs, env_params, carry):
        return jnp.zeros(len(obs), jnp.int32), carry

    for likes, wanted in ((0.0, 0), (1.0, 1)):
        expert = actors.Actor(act, value=lambda key, env_state, obs, action, *_, likes=likes: -likes * action)
        algo = hg_dagger.make(env, hg_dagger.Config(**SMALL), expert=expert)
        state = algo.init(KEY, hg_dagger.Hyper(learning_starts=1, lapse_prob=0.0), params)
        state, _ = algo.collect(state)
        one = state.replace(watch=state.watch.replace(left=jnp.zeros(3, jnp.int32)))
        after, rollout = jax.jit(algo.collect)(one)
        judged = np.asarray(rollout.taken_over)
        assert judged.any() == bool(wanted) or not np.asarray(after.watch.action).any()


def test_errors():
    env, params = jaxrl.make("CartPole-v1")
    expert = actors.of_function(upright)
    for module in MODULES:
        name = module.__name__.rpartition(".")[2]
        with pytest.raises(ValueError, match=f"^{name} needs an expert: --expert zoo:NAME, RUN, scripted or FILE.py"):
            module.make(env)
        with pytest.raises(ValueError, match=f"{name}: its expert acts in one task, and this VectorEnv"):
            module.make(vectorize(env, 1, batched_params=True), expert=expert)
        algo = module.make(env, expert=expert)
        with pytest.raises(ValueError, match="learning_starts=0: the expert begins, and drives for so many steps"):
            algo.init(KEY, module.Hyper(learning_starts=0), params)
    wrong = actors.of_function(lambda obs: obs[:2])
    with pytest.raises(ValueError, match=r"rlif: on observations of CartPole-v1 the expert gives actions \(1, 2\)"):
        rlif.make(env, expert=wrong)
    other = ppo.make(jaxrl.make("Pendulum-v1")[0])
    policy = other.policy(other.init(KEY))
    with pytest.raises(ValueError, match="rlif: on observations of CartPole-v1 the expert fails: "):
        rlif.make(env, expert=actors.of_policy(other, policy))
    for module in (hg_dagger, rlif):
        for settings, line in (
            (dict(takeover="values"), "takeover='values': choose value or random"),
            (dict(expert_steps=0), "expert_steps=0"),
            (dict(horizon=0), "horizon=0"),
        ):
            with pytest.raises(ValueError, match=line):
                module.Config(**settings)
    with pytest.raises(ValueError, match="num_min=3: it must be at least 1 and at most num_critics=2"):
        rlif.Config(num_critics=2, num_min=3)
    with pytest.raises(ValueError, match="CartPole-v1 has no scripted controller; these have: "):
        actors.scripted(env)


def test_settings_are_leaves():
    """Two thresholds in one program."""
    algo, params = made(hg_dagger)
    hyper = hg_dagger.Hyper(learning_starts=1, threshold=jnp.array([-jnp.inf, jnp.inf]), lapse_prob=jnp.zeros(2))
    axes = jax.tree.map(lambda x: 0 if jnp.ndim(x) else None, hyper)

    def run(hyper):
        state = algo.init(KEY, hyper, params)
        return jax.lax.scan(lambda state, _: algo.update(state), state, length=6)[1]["interventions"].sum()

    never = jax.jit(jax.vmap(run, (axes,)))(hyper)
    assert never[0] > 0 and never[1] == 0


@pytest.mark.slow
def test_imitators_learn_what_the_expert_does():
    env, params = jaxrl.make("CartPole-v1")
    for module in (dagger, hg_dagger):
        sizes = dict(num_envs=4, num_steps=4, num_updates=8, batch_size=64, hidden=(32,))
        algo = module.make(env, module.Config(**sizes), expert=actors.of_function(upright))
        hyper = module.Hyper(learning_rate=3e-3, learning_starts=100)
        state, _ = jax.jit(lambda key, algo=algo, hyper=hyper: jaxrl.train(algo, key, 8_000, hyper, params))(KEY)
        assert jaxrl.evaluate(algo, algo.policy(state), KEY, num_episodes=16).returns.mean() > 450


def test_the_configs_of_both_who_take_over_are_alike():
    """So that they can be compared."""
    own = {f.name: f.default for f in dataclasses.fields(hg_dagger.Config)}
    theirs = {f.name: f.default for f in dataclasses.fields(rlif.Config)}
    assert all(theirs[name] == x for name, x in own.items() if name != "layer_norm")
