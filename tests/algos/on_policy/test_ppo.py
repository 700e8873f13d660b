"""PPO: losses against arrays computed by hand, probe environments with known values, and the protocol's promises."""

import dataclasses
from functools import cache, partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxrl import Environment, Transition, make, pytree, train, vectorize
from jaxrl.algos import ppo
from jaxrl.environment import NO_LIMIT, Hints, strongly_typed
from jaxrl.nn.distributions import num_outputs
from jaxrl.nn.networks import ActorCritic
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from jaxrl.testing.assertions import assert_no_key_reuse

# ---- losses


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-6, "atol": 1e-7, **tolerance})


def test_policy_loss_is_the_clipped_surrogate():
    ratio = jnp.array([1.5, 0.5, 1.0, 1.1, 0.5, 1.5])
    advantage = jnp.array([1.0, 1.0, -2.0, -1.0, -1.0, -1.0])
    old = jnp.array([-1.0, -2.0, 0.0, -3.0, -0.5, -1.0])
    # Terms: 1.2 (clipped), 0.5, -2, -1.1, -0.8 (clipped), -1.5 (the worse one is kept).
    new = old + jnp.log(ratio)
    close(ppo.policy_loss(new, old, advantage, 0.2), 3.7 / 6)
    mask = jnp.array([True, False, False, False, True, True])
    close(ppo.policy_loss(new, old, advantage, 0.2, mask), 1.1 / 3)
    slope = jax.grad(lambda x: ppo.policy_loss(x, old, advantage, 0.2))(new)
    close(slope, -np.array([0.0, 0.5, -2.0, -1.1, 0.0, -1.5]) / 6)


def test_value_loss_keeps_the_larger_error():
    value, old, target = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 2.0, 5.0]), jnp.full(3, 2.0)
    close(ppo.value_loss(value, old, target, None), 0.5 * (1 + 0 + 1) / 3)
    close(ppo.value_loss(value, old, target, 0.5), 0.5 * (2.25 + 0 + 6.25) / 3)
    close(ppo.value_loss(value, old, target, 0.5, jnp.array([True, True, False])), 0.5 * 2.25 / 2)
    close(ppo.value_loss(value, old, target, None, jnp.array([False, False, True])), 0.5)


class Table(nn.Module):
    """Logits and value independent of the observation."""

    @nn.compact
    def __call__(self, obs):
        return self.actor(obs), self.critic(obs)

    def setup(self):
        self.logits = self.param("logits", lambda _: jnp.array([1.0, 0.0, -1.0]))
        self.value = self.param("value", lambda _: jnp.float32(2.0))

    def actor(self, obs):
        return jnp.broadcast_to(self.logits, (*obs.shape[:-1], 3))

    def critic(self, obs):
        return jnp.broadcast_to(self.value, obs.shape[:-1])


def table_loss(weights, batch, **hyper):
    config = ppo.Config(normalize_advantage=False, clip_value=False)
    hyper = strongly_typed(ppo.Hyper(**{"ent_coef": 0.0, "vf_coef": 0.0, **hyper}))
    return ppo.loss(weights, batch, hyper, config, Table(), Box(-1.0, 1.0, (1,)), Discrete(3))


@pytest.mark.slow
@pytest.mark.light
def test_whole_loss_by_hand():
    p = np.exp([1, 0, -1]) / np.exp([1, 0, -1]).sum()
    weights = {"params": {"logits": jnp.array([1.0, 0.0, -1.0]), "value": jnp.float32(2.0)}}
    action = jnp.array([0, 2])
    batch = ppo.Batch(
        obs=jnp.zeros((2, 1)),
        action=action,
        log_prob=jnp.log(jnp.asarray(p))[action] - jnp.log(jnp.array([1.1, 0.5])),
        value=jnp.zeros(2),
        advantage=jnp.array([1.0, -1.0]),
        target=jnp.array([3.0, 0.0]),
        mask=None,
    )
    entropy = -np.sum(p * np.log(p))
    total, report = table_loss(weights, batch, vf_coef=0.3, ent_coef=0.1)
    actor, critic = -(1.1 - 0.8) / 2, 0.5 * (1 + 4) / 2
    close(report["policy_loss"], actor)
    close(report["value_loss"], critic)
    close(report["entropy"], entropy)
    close(total, actor + 0.3 * critic - 0.1 * entropy)
    close(report["approx_kl"], np.mean([0.1 - np.log(1.1), -0.5 - np.log(0.5)]), rtol=1e-5)
    # A bonus for entropy: descending the loss makes the policy more random.
    idle = batch._replace(advantage=jnp.zeros(2))
    slope = jax.grad(lambda w: table_loss(w, idle, ent_coef=1.0)[0])(weights)["params"]["logits"]
    assert slope[0] > 0 > slope[2]


# ---- probe environments


@pytree
class ChainParams:
    max_steps: jax.Array = NO_LIMIT
    length: jax.Array = 1  # steps until it terminates
    reward_each: jax.Array = 1.0
    reward_end: jax.Array = 0.0
    reward_first: jax.Array = 0.0


@pytree
class ChainState:
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class Chain(Environment):
    """Nothing to decide; the observation tells the first step from later ones."""

    id: str = dataclasses.field(default="Chain", kw_only=True)
    Params = ChainParams
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return ChainState(jnp.int32(0))

    def transition(self, key, state, action, params):
        end = state.time + 1 >= params.length
        reward = params.reward_each + jnp.where(end, params.reward_end, 0)
        reward = reward + jnp.where(state.time == 0, params.reward_first, 0)
        return Transition(state, reward, end, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jax.nn.one_hot(jnp.minimum(state.time, 1), 2)

    def observation_space(self, params):
        return Box(0.0, 1.0, (2,))

    def action_space(self, params):
        return Discrete(2)


@pytree
class MatchParams:
    max_steps: jax.Array = NO_LIMIT
    privileged: jax.Array = 0.0  # weight of what only the critic may see


@pytree
class MatchState:
    time: jax.Array
    bit: jax.Array
    hidden: jax.Array


ACTIONS = {"Discrete": Discrete(3), "MultiDiscrete": MultiDiscrete((2, 3)), "Box": Box(-2.0, 6.0, (2,))}


@dataclasses.dataclass(frozen=True)
class Match(Environment):
    """One step: the action should match the observed bit. A forbidden third choice would pay best.

    Discrete: 1 for a match. MultiDiscrete: 1 for each match. Box: minus the squared distance to +-half the box. On top
    comes `hidden`, which the actor cannot see.
    """

    kind: str = "Discrete"
    id: str = dataclasses.field(default="Match", kw_only=True)
    Params = MatchParams

    def initial(self, key, params):
        bit, hidden = jax.random.bernoulli(key, shape=(2,)).astype(jnp.int32)
        return MatchState(jnp.int32(0), bit, hidden)

    def transition(self, key, state, action, params):
        if self.kind == "Box":
            reward = -jnp.mean(((action - 2) / 4 - (state.bit - 0.5)) ** 2)
        else:
            reward = jnp.sum((action == state.bit) + 10.0 * (action == 2))
        reward = reward + params.privileged * state.hidden
        return Transition(state, reward, jnp.bool_(True), jnp.bool_(False), {})

    def observe(self, key, state, params):
        obs = {"bit": jax.nn.one_hot(state.bit, 2), "privileged": state.hidden[None].astype(jnp.float32)}
        allowed = {"Discrete": [1, 1, 0], "MultiDiscrete": [1, 1, 1, 1, 0]}
        return obs if self.kind == "Box" else {**obs, "action_mask": jnp.array(allowed[self.kind], bool)}

    def observation_space(self, params):
        spaces = {"bit": Box(0.0, 1.0, (2,)), "privileged": Box(0.0, 1.0, (1,))}
        n = {"Discrete": 3, "MultiDiscrete": 5, "Box": 0}[self.kind]
        return Dict(spaces | {"action_mask": MultiDiscrete((2,) * n)} if n else spaces)

    def action_space(self, params):
        return ACTIONS[self.kind]


SMALL = ppo.Config(num_envs=8, num_steps=8, num_epochs=2, num_minibatches=2, hidden=(16,), clip_value=False)
FAST = ppo.Hyper(learning_rate=2e-2, ent_coef=0.0, gamma=0.8)


@pytest.mark.slow
def test_values_of_probes_and_bootstrap_at_a_time_limit():
    """One program for all three: their differences are env params."""
    algo = ppo.make(Chain(), SMALL)
    probes = [
        ChainParams(length=1),  # one reward
        ChainParams(length=2, reward_each=0.0, reward_end=1.0),  # a reward one step later
        # Rewards for ever, but recorded 5 at a time; a new episode is worth more than going on.
        ChainParams(length=NO_LIMIT, max_steps=5, reward_first=3.0),
    ]
    probes = jax.tree.map(lambda *x: jnp.stack(x), *map(strongly_typed, probes))

    @jax.jit
    @jax.vmap
    def run(params):
        hyper = FAST.replace(anneal_steps=100 * algo.steps_per_update)
        state, metrics = train(algo, jax.random.key(0), 100 * algo.steps_per_update, hyper, params)
        _, rollout = algo.collect(state)
        at = [jnp.sum(rollout.value * rollout.obs[..., i]) / jnp.sum(rollout.obs[..., i]) for i in range(2)]
        return jnp.stack(at), metrics, rollout.truncated.any()

    value, metrics, truncated = run(probes)
    close(value[0, 0], 1, atol=0.02)
    close(value[1], [0.8, 1], atol=0.02)
    close(value[2], [3 + 1 / (1 - 0.8), 1 / (1 - 0.8)], rtol=0.02)
    np.testing.assert_array_equal(truncated, [False, False, True])
    np.testing.assert_array_equal(metrics["episode_length"][:, -1], [1, 2, 5])
    np.testing.assert_array_equal(metrics["episode_return"][:, -1], [1, 1, 8])
    np.testing.assert_array_equal(metrics["episodes"][:2, 0], [64, 32])
    assert np.all(metrics["learning_rate"][:, 0] == 2e-2) and np.all(metrics["learning_rate"][:, -1] < 3e-4)
    assert np.all(metrics["explained_variance"] <= 1)


@cache
def matched(kind):
    """`(algo, first state, state after an update, trained state, metrics)` of a Match probe."""
    algo = ppo.make(Match(kind), SMALL)

    @jax.jit
    def run(key):
        first = algo.init(key, FAST, strongly_typed(MatchParams(privileged=1.0)))
        second, _ = algo.update(first)
        last, metrics = jax.lax.scan(lambda state, _: algo.update(state), second, length=60)
        return first, second, last, metrics

    return algo, *run(jax.random.key(1))


def observation(kind, bit, hidden):
    return Match(kind).observe(None, MatchState(jnp.int32(0), jnp.int32(bit), jnp.float32(hidden)), None)


KINDS = list(ACTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_learns_to_match_in_every_action_space(kind):
    algo, _, _, last, metrics = matched(kind)
    policy = algo.policy(last)
    for bit in (0, 1):
        obs = observation(kind, bit, 0)
        best, carry = algo.act(policy, jax.random.key(0), obs, algo.initial_carry(()), greedy=True)
        assert carry == ()
        if kind == "Box":
            close(best, [0.0, 0.0] if bit == 0 else [4.0, 4.0], atol=0.5)
        else:
            np.testing.assert_array_equal(best, np.full(np.shape(best), bit))
    best = {"Discrete": 1.5, "MultiDiscrete": 2.5, "Box": 0.5}[kind]
    assert np.mean(metrics["episode_return"][-10:]) > best - 0.35
    assert metrics["entropy"][-1] < metrics["entropy"][0]


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("kind", ["Discrete", "MultiDiscrete"])
def test_masked_actions_are_never_taken(kind):
    algo, first, _, last, metrics = matched(kind)
    assert np.max(metrics["episode_return"]) < 4, "a masked action pays 10"
    obs = jax.tree.map(lambda x: jnp.broadcast_to(x, (2000, *x.shape)), observation(kind, 1, 0))
    for state in (first, last):
        action, _ = algo.act(algo.policy(state), jax.random.key(2), obs)
        assert np.max(action) == 1
    obs["action_mask"] = obs["action_mask"].at[:, 1].set(False)
    action, _ = algo.act(algo.policy(first), jax.random.key(2), obs)
    assert not np.any(action[..., 0] == 1 if kind == "MultiDiscrete" else action == 1)
    if kind == "MultiDiscrete":
        assert set(np.unique(action[..., 1])) == {0, 1}, "the second entry keeps its choices"


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("kind", KINDS)
def test_critic_alone_sees_the_privileged_observation(kind):
    algo, first, _, last, _ = matched(kind)
    network = ActorCritic(
        Match(kind).observation_space(None),
        num_outputs(ACTIONS[kind]),
        kind == "Box",
        SMALL.hidden,
        SMALL.activation,
    )
    low, high = (observation(kind, 1, h) for h in (0, 1))
    for state in (first, last):
        actor = [network.apply(state.weights, obs, method="actor") for obs in (low, high)]
        jax.tree.map(np.testing.assert_array_equal, *actor)
    values = [network.apply(last.weights, obs, method="critic") for obs in (low, high)]
    best = {"Discrete": 1, "MultiDiscrete": 2, "Box": 0}[kind]
    close(values, [best, best + 1], atol=0.3)
    # Deployed, nobody knows the privileged part.
    deployed = {k: v for k, v in low.items() if k != "privileged"}
    action, _ = algo.act(algo.policy(last), jax.random.key(0), deployed, greedy=True)
    np.testing.assert_array_equal(action, algo.act(algo.policy(last), jax.random.key(0), high, greedy=True)[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_group_learns(kind):
    _, first, second, _, _ = matched(kind)
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), first.weights, second.weights)
    assert all(jax.tree.leaves(moved)), moved
    assert len(jax.tree.leaves(moved)) == 8 + (kind == "Box")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_act_takes_any_batch_shape_and_stays_in_the_space(kind):
    algo, first, _, _, _ = matched(kind)
    space = ACTIONS[kind]
    for shape in ((), (2, 3)):
        obs = jax.tree.map(lambda x, s=shape: jnp.broadcast_to(x, (*s, *x.shape)), observation(kind, 0, 1))
        for greedy in (True, False):
            action, _ = algo.act(algo.policy(first), jax.random.key(3), obs, algo.initial_carry(shape), greedy=greedy)
            assert action.shape == (*shape, *space.shape)
            assert np.all(jax.vmap(space.contains)(action.reshape(-1, *space.shape)))


@pytest.mark.slow
@pytest.mark.light
def test_box_actions_are_in_units_of_the_box_and_clipped():
    algo, first, _, _, _ = matched("Box")
    weights = jax.tree.map(jnp.zeros_like, first.weights)
    obs = jax.tree.map(lambda x: jnp.broadcast_to(x, (4000, *x.shape)), observation("Box", 0, 0))
    action, _ = algo.act(ppo.Policy(weights, None), jax.random.key(4), obs)
    inside = np.asarray(action[(action > -2) & (action < 6)])
    close(inside.mean(), 2, atol=0.1)
    # A standard normal in units of half the box, 32 % of it outside.
    close(np.mean((action == -2) | (action == 6)), 0.3173, atol=0.02)
    np.testing.assert_array_equal(algo.act(ppo.Policy(weights, None), jax.random.key(4), obs, greedy=True)[0], 2)


# ---- the protocol


TINY = ppo.Config(num_envs=2, num_steps=8, num_epochs=2, num_minibatches=2, hidden=(8,))


@pytest.mark.slow
@pytest.mark.parametrize("x64", [False, True])
def test_vmap_over_seeds_and_learning_rates_equals_single_runs(x64):
    with jax.enable_x64(x64):
        algo = ppo.make(make("CartPole-v1")[0], TINY)
        traces = []

        def run(key, learning_rate):
            traces.append(1)
            return train(algo, key, 3 * algo.steps_per_update, ppo.Hyper(learning_rate=learning_rate))

        keys, rates = jax.random.split(jax.random.key(5), 2), jnp.array([1e-3, 1e-2])
        grid = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(keys, rates)
        assert len(traces) == 1 and grid[1]["loss"].shape == (2, 2, 3)
        single, tolerance = jax.jit(run), {"rtol": 1e-10, "atol": 1e-10} if x64 else {"rtol": 1e-5, "atol": 1e-5}
        for i, j in ((0, 0), (1, 1)):
            one = single(keys[i], rates[j])
            for path, want in jax.tree_util.tree_leaves_with_path(one):
                got = dict(jax.tree_util.tree_leaves_with_path(grid))[path][i, j]
                if jnp.issubdtype(want.dtype, jax.dtypes.prng_key):
                    got, want = jax.random.key_data(got), jax.random.key_data(want)
                if jnp.issubdtype(want.dtype, jnp.floating):
                    assert want.dtype == (jnp.float64 if x64 else jnp.float32), path
                    np.testing.assert_allclose(got, want, **tolerance, err_msg=str(path))
                else:
                    np.testing.assert_array_equal(got, want, err_msg=str(path))
        assert len(traces) == 2


@cache
def cartpole(config=TINY):
    return ppo.make(make("CartPole-v1")[0], config)


@pytest.mark.slow
def test_states_keep_their_types_so_that_nothing_compiles_twice():
    algo, traces = cartpole(), []

    @jax.jit
    def update(state):
        traces.append(1)
        return algo.update(state)

    key = jax.random.key(0)
    state, _ = update(algo.init(key))
    state, _ = update(state)
    update(algo.init(key, ppo.Hyper(learning_rate=1, gamma=0, anneal_steps=10)))
    update(algo.init(key, None, make("CartPole-v1")[1].replace(length=1.0)))
    assert len(traces) == 1
    for config in (dataclasses.replace(TINY, normalize_obs=True, normalize_reward=True, stop_on_kl=True), TINY):
        algo = cartpole(config)
        before = jax.eval_shape(algo.init, key)
        after, _ = jax.eval_shape(algo.update, before)
        assert jax.tree.structure(before) == jax.tree.structure(after)
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
            assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)


@pytest.mark.slow
@pytest.mark.light
def test_make_returns_the_same_functions_for_equal_arguments():
    env = make("CartPole-v1")[0]
    assert ppo.make(env, TINY) is ppo.make(make("CartPole-v1")[0], dataclasses.replace(TINY))
    assert ppo.make(env, TINY) is not ppo.make(env, dataclasses.replace(TINY, num_epochs=1))
    algo = ppo.make(env, TINY)
    assert (algo.name, algo.config, algo.hyper, algo.steps_per_update) == ("ppo", TINY, ppo.Hyper, 16)
    hash(algo)


@pytest.mark.slow
def test_rollout_holds_what_it_says():
    """Every field recomputed from the others, with episodes cut every three steps."""
    algo = cartpole()
    params = make("CartPole-v1")[1].replace(max_steps=jnp.int32(3))
    state, rollout = jax.jit(algo.collect)(algo.init(jax.random.key(6), None, params))
    assert state.step == 16 and rollout.obs.shape == (8, 2, 4) and rollout.learn_mask is None
    outputs, value = network().apply(state.weights, rollout.obs)
    close(rollout.log_prob, jnp.take_along_axis(jax.nn.log_softmax(outputs), rollout.action[..., None], -1)[..., 0])
    close(rollout.value, value)
    last = network().apply(state.weights, state.obs, method="critic")
    follows = jnp.concatenate([value[1:], last[None]])
    assert rollout.truncated.sum() == 4
    np.testing.assert_array_equal(rollout.truncated.T, np.array([[0, 0, 1, 0, 0, 1, 0, 0]] * 2, bool))
    cut = np.asarray(rollout.truncated)
    close(rollout.next_value[~cut], follows[~cut])
    # Where it was cut: the value of the state that the action led to, not of the next episode's first.
    env = make("CartPole-v1")[0]
    for t, n in np.argwhere(cut):
        x = env.initial(jax.random.key(0), params).replace(
            **dict(zip(("x", "x_dot", "theta", "theta_dot"), rollout.obs[t, n], strict=True))
        )
        final = env.step(jax.random.key(0), x, rollout.action[t, n], params).obs
        close(rollout.next_value[t, n], network().apply(state.weights, final, method="critic"), atol=1e-6)
        assert abs(rollout.next_value[t, n] - follows[t, n]) > 1e-6
    np.testing.assert_array_equal(rollout.ends.episode_length[cut], 3)
    np.testing.assert_array_equal(rollout.ends.episode_return[cut], 3)


def network(config=TINY):
    space = make("CartPole-v1")[0].observation_space(make("CartPole-v1")[1])
    return ActorCritic(space, 2, False, config.hidden, config.activation)


@pytest.mark.slow
def test_metrics_without_a_finished_episode_are_nan():
    algo = cartpole()
    for limit, episodes in ((500, 0), (8, 2)):
        params = make("CartPole-v1")[1].replace(max_steps=jnp.int32(limit), theta_max=jnp.float32(100.0))
        metrics = jax.jit(algo.update)(algo.init(jax.random.key(0), None, params))[1]
        assert metrics["episodes"] == episodes
        assert np.isnan(metrics["episode_return"]) == np.isnan(metrics["episode_length"]) == (episodes == 0)
        assert all(np.shape(x) == () for x in metrics.values()) and np.isfinite(metrics["loss"])


@pytest.mark.slow
def test_running_statistics_and_kl_stop():
    config = dataclasses.replace(TINY, normalize_obs=True, normalize_reward=True, stop_on_kl=True, clip_value=True)
    algo = cartpole(config)
    collect, learn = jax.jit(algo.collect), jax.jit(algo.learn)
    hyper = ppo.Hyper(target_kl=1e-5, learning_rate=1e-2, gamma=0.5)
    state = algo.init(jax.random.key(7), hyper)
    seen, rewards = [], []
    for _ in range(3):
        state, rollout = collect(state)
        # The rollout was made and is learnt from with the statistics of those before it.
        view = rollout.obs
        if seen:
            past = np.concatenate(seen).reshape(-1, 4)
            view = jnp.clip((view - past.mean(0)) / np.sqrt(past.var(0) + 1e-8), -10, 10)
        close(rollout.value, network().apply(state.weights, view, method="critic"), rtol=1e-4, atol=1e-4)
        seen.append(np.asarray(rollout.obs))
        rewards.append((np.asarray(rollout.reward), np.asarray(rollout.terminated | rollout.truncated)))
        state, _ = learn(state, rollout)
    everything = np.concatenate(seen).reshape(-1, 4)
    close(state.normalizer.moments.mean, everything.mean(0), rtol=1e-4, atol=1e-5)
    close(state.normalizer.moments.var, everything.var(0), rtol=1e-4, atol=1e-5)
    total, returns = np.zeros(2), []
    for reward, done in rewards:
        for r, d in zip(reward, done, strict=True):
            total = 0.5 * total + r
            returns.append(total)
            total = np.where(d, 0, total)
    close(state.reward_scaler.stats.moments.var, np.var(returns), rtol=1e-4)
    # Each rollout stops after the gradient steps that bring the KL divergence over 1e-5: one.
    assert state.optimizer.count == 3
    patient, _ = learn(state.replace(hyper=state.hyper.replace(target_kl=jnp.float32(jnp.inf))), rollout)
    assert patient.optimizer.count == 3 + 4
    # The policy carries the statistics, and acts by them.
    policy = algo.policy(state)
    jax.tree.map(np.testing.assert_array_equal, policy.normalizer, state.normalizer)
    flipped = policy._replace(normalizer=None)
    obs = 50 * jax.random.normal(jax.random.key(8), (64, 4))
    with_statistics, without = (
        algo.act(p, jax.random.key(9), obs)[0]
        for p in (policy, flipped._replace(normalizer=algo.init(jax.random.key(0)).normalizer))
    )
    assert np.any(with_statistics != without)


@pytest.mark.slow
@pytest.mark.light
def test_clipping_the_value_loss_changes_learning_after_the_first_gradient_step():
    config = dataclasses.replace(TINY, num_epochs=1)
    state, rollout = jax.jit(cartpole(config).collect)(cartpole(config).init(jax.random.key(0)))
    state = state.replace(hyper=state.hyper.replace(clip_eps=jnp.float32(1e-3), learning_rate=jnp.float32(1e-2)))
    unclipped = cartpole(dataclasses.replace(config, clip_value=False))
    a, b = (jax.jit(algo.learn)(state, rollout)[0] for algo in (cartpole(config), unclipped))
    assert np.any(ravel_pytree(a.weights)[0] != ravel_pytree(b.weights)[0])


WHOLE = dataclasses.replace(TINY, num_envs=4, num_epochs=1, num_minibatches=1)


@pytest.mark.slow
def test_learn_mask_leaves_out_slots():
    algo = cartpole(WHOLE)
    state, rollout = jax.jit(algo.collect)(algo.init(jax.random.key(10)))
    learn = jax.jit(algo.learn)
    nothing, metrics = learn(state, rollout._replace(learn_mask=jnp.zeros(4, bool)))
    for name in ("weights", "optimizer"):
        jax.tree.map(np.testing.assert_array_equal, getattr(nothing, name), getattr(state, name))
    everything, _ = learn(state, rollout._replace(learn_mask=jnp.ones(4, bool)))
    plain, _ = jax.jit(algo.learn)(state, rollout)
    jax.tree.map(partial(close, rtol=1e-4, atol=1e-6), everything.weights, plain.weights)
    # Some slots: as if the others had never been there.
    some, _ = learn(state, rollout._replace(learn_mask=jnp.array([True, False, False, True])))
    two = cartpole(dataclasses.replace(WHOLE, num_envs=2))
    slots = np.array([0, 3])
    pair = jax.tree.map(lambda x: x[:, slots], rollout)
    alone, _ = jax.jit(two.learn)(state.replace(hyper=state.hyper), pair)
    jax.tree.map(partial(close, rtol=1e-4, atol=1e-6), some.weights, alone.weights)
    assert np.any(ravel_pytree(some.weights)[0] != ravel_pytree(plain.weights)[0])
    # A mask also of time steps.
    late = jnp.arange(8)[:, None] >= jnp.full(4, 8)
    jax.tree.map(
        np.testing.assert_array_equal, learn(state, rollout._replace(learn_mask=late))[0].weights, state.weights
    )


@pytest.mark.slow
@pytest.mark.light
def test_gradient_is_clipped_by_its_global_norm():
    """Adam forgets a constant scale of the gradient, so it is seen in the first moment."""
    algo = cartpole(WHOLE)
    state, rollout = jax.jit(algo.collect)(algo.init(jax.random.key(11)))
    learn = jax.jit(algo.learn)
    means = {}
    for limit in (1e-3, 1e3):
        after, metrics = learn(state.replace(hyper=state.hyper.replace(max_grad_norm=jnp.float32(limit))), rollout)
        means[limit] = np.asarray(after.optimizer.inner[0].mu)
        norm = metrics["grad_norm"]
    close(np.linalg.norm(means[1e-3]), 0.1 * 1e-3, rtol=1e-4)
    close(np.linalg.norm(means[1e3]), 0.1 * norm, rtol=1e-4)
    close(means[1e-3] / np.linalg.norm(means[1e-3]), means[1e3] / np.linalg.norm(means[1e3]), atol=1e-5)


@pytest.mark.slow
def test_no_key_is_used_twice():
    def run(key):
        algo = ppo.make(Match("Discrete"), dataclasses.replace(TINY, normalize_obs=True))
        state, _ = algo.update(algo.init(key))
        return algo.act(algo.policy(state), state.key, state.obs)

    assert_no_key_reuse(run, jax.random.key(0))


# ---- what may be brought along, and what is refused


class Shared(nn.Module):
    """One torso for actor and critic."""

    outputs: int = 2
    squeeze: bool = True

    def setup(self):
        self.torso, self.head, self.value = nn.Dense(8), nn.Dense(self.outputs), nn.Dense(1)

    def actor(self, obs):
        return self.head(nn.tanh(self.torso(obs)))

    def critic(self, obs):
        value = self.value(nn.tanh(self.torso(obs)))
        return value[..., 0] if self.squeeze else value

    def __call__(self, obs):
        return self.actor(obs), self.critic(obs)


@pytest.mark.slow
@pytest.mark.light
def test_bring_your_own_network_and_vector_env():
    env = make("CartPole-v1")[0]
    venv = vectorize(env, 2, "dense")
    algo = ppo.make(venv, TINY, network=Shared())
    assert algo.venv is venv
    first = algo.init(jax.random.key(0))
    state, _ = jax.jit(algo.update)(first)
    assert set(state.weights["params"]) == {"torso", "head", "value"}
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), first.weights, state.weights)
    assert all(jax.tree.leaves(moved)), moved


def two_agents():
    return dataclasses.dataclass(frozen=True)(type("Two", (Chain,), {"num_agents": 2}))(id="Two")


def with_actions(space):
    return dataclasses.dataclass(frozen=True)(type("Odd", (Chain,), {"action_space": lambda self, params: space}))()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ppo.Config(num_envs=0), r"num_envs=0.*at least 1"),
        (lambda: ppo.Config(num_steps=-3), r"num_steps=-3.*at least 1"),
        (lambda: ppo.Config(num_envs=3, num_steps=5, num_minibatches=4), r"num_minibatches=4 does not divide.*15"),
        (lambda: ppo.make(make("CartPole-v1")[0], dataclasses.replace(TINY, activation="rleu")), r"'rleu'.*relu"),
        (lambda: ppo.make(make("CartPole-v1")[0], TINY, network=Shared(3)), r"outputs \(2, 3\).*needs \(2, 2\)"),
        (lambda: ppo.make(make("CartPole-v1")[0], TINY, network=Shared(2, False)), r"values \(2, 1\).*\(2,\)"),
        (lambda: ppo.make(vectorize(make("CartPole-v1")[0], 4), TINY), r"num_envs=4 but the config says 2"),
        (lambda: ppo.make(two_agents(), TINY), r"2 agents"),
        (lambda: ppo.make(with_actions(Tuple((Discrete(2),))), TINY), r"not in Chain.s Tuple"),
        (lambda: ppo.make(with_actions(Box(-1.0, 1.0, (2, 2))), TINY), r"one-dimensional"),
        (lambda: train(cartpole(), jax.random.key(0), 0), r"total_steps=0"),
    ],
)
def test_impossible_requests_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_foreign_hyper_or_unusable_params_are_refused():
    algo = cartpole()
    with pytest.raises(TypeError, match="ChainParams.*not this algorithm's Hyper"):
        algo.init(jax.random.key(0), ChainParams())
    with pytest.raises(ValueError, match="mass_pole"):
        algo.init(jax.random.key(0), None, make("CartPole-v1")[1].replace(mass_pole=-1.0))
