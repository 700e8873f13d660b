"""Attacks: nothing at strength 0, the ball and the box, corners by brute force, and what is refused."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition, evaluate, pytree
from jaxrl.algos import ppo
from jaxrl.spaces import Box, Dict, Discrete
from jaxrl.testing import check_environment
from jaxrl.wrappers import (
    ActionAttack,
    ActionDifference,
    DynamicsAttack,
    FlattenObservation,
    LeastValue,
    ObservationAttack,
)
from jaxrl.wrappers.attacks import within

KEY = jax.random.key(0)


def same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def linear(victim, obs):
    """A policy whose action is one number."""
    return jnp.tanh(victim @ obs)[None]


def attacks_of(env):
    """Of a task that acts in one number or in two directions."""
    size = env.observation_space(env.default_params).shape[0]
    victim = jnp.linspace(-1, 1, size)
    yield ObservationAttack(env), ()
    yield ObservationAttack(env, ActionDifference(linear), 2), victim
    yield ObservationAttack(env, LeastValue(linear, lambda victim, obs, action: jnp.sum(action) * obs[0])), victim
    yield ActionAttack(env), ()


@pytest.mark.parametrize("id", ["Pendulum-v1", "CartPole-v1", "DriftingBandit-v0"])
def test_strength_zero_changes_nothing_to_the_bit(id):
    """Deterministic tasks and one that draws: from the same keys the same episode."""
    env, params = jaxrl.make(id)
    wrapped = [ActionAttack(env)] if id.startswith("Drifting") else [a for a, _ in attacks_of(env)]
    space = env.action_space(params)

    def episode(env, params):
        step = jax.jit(env.step)
        obs, state = jax.jit(env.reset)(KEY, params)
        seen = [(obs, state)]
        for i in range(3):
            ts = step(jax.random.key(i), seen[-1][1], space.sample(jax.random.key(9 + i)), params)
            seen.append((ts.obs, ts.state, ts.reward, ts.terminated))
        return seen

    for attacked, victim in zip(wrapped, [()] if len(wrapped) == 1 else [v for _, v in attacks_of(env)], strict=True):
        same(episode(env, params), episode(attacked, attacked.attacking(params, 0.0, victim=victim)))


def test_observations_are_within_the_ball_and_the_box():
    env, params = jaxrl.make("Pendulum-v1")
    box = env.observation_space(params)
    unit = jnp.array([1.0, 0.5, 8.0])
    for attacked, victim in attacks_of(env):
        if isinstance(attacked, ActionAttack):
            continue

        def look(key, strength, attacked=attacked, victim=victim):
            state = env.initial(key, params)
            under = attacked.attacking(params, strength, unit, victim)
            return env.observe(key, state, params), attacked.observe(key, state, under)

        strengths = jnp.array([0.0, 0.05, 3.0])
        keys = jax.random.split(KEY, 200)
        so, seen = jax.jit(jax.vmap(jax.vmap(look, (0, None)), (None, 0)))(keys, strengths)
        assert jax.vmap(jax.vmap(box.contains))(seen).all()
        far = jnp.abs(seen - so) / unit
        assert (far.max((1, 2)) <= strengths * (1 + 1e-5) + 1e-6).all()
        assert (far[0] == 0).all() and far[1].max() > 0.045
        assert far[1].mean() < far[2].mean()  # strength is a leaf: three in one program


def test_a_uniform_point_fills_the_ball():
    low, high = -jnp.ones(2), jnp.array([1.0, 3.0])
    x = jax.vmap(lambda key: within(key, low, high))(jax.random.split(KEY, 4_000))
    np.testing.assert_allclose(x.mean(0), [0, 1], atol=0.06)
    np.testing.assert_allclose(x.var(0), [1 / 3, 4 / 3], rtol=0.06)
    assert (x >= low).all() and (x <= high).all() and x.max(0)[1] > 2.99


def test_of_a_linear_loss_the_corner_is_found_and_of_a_curved_one_nearly_the_best():
    slope = jnp.array([2.0, -1.0, 0.5])
    found = within(KEY, -jnp.ones(3), jnp.array([1.0, 2.0, 3.0]), lambda x: slope @ x)
    np.testing.assert_allclose(found, [1.0, -1.0, 3.0])
    corners = jnp.array(list(itertools.product([-1.0, 1.0], repeat=3)))

    def loss(x):
        return jnp.sum((x - jnp.array([0.2, -0.1, 0.3])) ** 2) + jnp.sin(2 * x[0] * x[1])

    best = jax.vmap(loss)(corners).max()
    tried = jax.vmap(lambda key: loss(within(key, -jnp.ones(3), jnp.ones(3), loss, 8)))(jax.random.split(KEY, 50))
    start = jax.vmap(lambda key: loss(within(key, -jnp.ones(3), jnp.ones(3))))(jax.random.split(KEY, 50))
    assert (tried >= start).all() and (tried > start).mean() > 0.9
    assert tried.max() >= 0.999 * best and tried.mean() > start.mean() + 0.5 * (best - start.mean())


def test_attacks_on_a_policy_and_its_critic_by_hand():
    """Pendulum; the policy is tanh(w obs), the critic's value action * obs[0]."""
    env, params = jaxrl.make("Pendulum-v1")
    state = env.initial(jax.random.key(3), params)
    obs = env.observe(KEY, state, params)
    w = jnp.array([0.3, -0.2, 0.1])
    critic = ObservationAttack(env, LeastValue(linear, lambda victim, obs, action: jnp.sum(action) * obs[0]))
    seen = critic.observe(KEY, state, critic.attacking(params, 0.05, victim=w))
    # The action falls where the value rises with it, within the box of the first two numbers.
    low, high = jnp.array([-1, -1, -8]), jnp.array([1, 1, 8])
    by_hand = jnp.clip(obs - 0.05 * jnp.sign(w) * jnp.sign(obs[0]), low, high)
    np.testing.assert_allclose(seen, by_hand, atol=1e-6)
    policy = ObservationAttack(env, ActionDifference(linear), 3)
    seen = policy.observe(KEY, state, policy.attacking(params, 0.05, victim=w))
    changed = abs(linear(w, seen) - linear(w, obs))[0]
    ends = [
        jnp.clip(obs + 0.05 * sign * jnp.sign(w), jnp.array([-1, -1, -8]), jnp.array([1, 1, 8])) for sign in (-1, 1)
    ]
    np.testing.assert_allclose(changed, max(abs(linear(w, x) - linear(w, obs))[0] for x in ends), rtol=0.05)


def test_actions_are_mixed_or_replaced():
    pendulum, params = jaxrl.make("Pendulum-v1")
    attacked = ActionAttack(pendulum, lambda victim, key, obs: victim)
    _, state = pendulum.reset(KEY, params)
    under = attacked.attacking(params, 0.25, victim=jnp.array([-2.0]))
    got = attacked.step(KEY, state, jnp.array([1.0]), under)
    want = pendulum.step(KEY, state, jnp.array([0.25]), params)
    np.testing.assert_allclose(got.reward, want.reward, rtol=1e-6)
    np.testing.assert_allclose(got.obs, want.obs, rtol=1e-6)

    cartpole, params = jaxrl.make("CartPole-v1")
    attacked = ActionAttack(cartpole, lambda victim, key, obs: jnp.int32(0))
    state = cartpole.initial(KEY, params)

    def pushed_left(key, strength):
        ts = attacked.step(key, state, jnp.int32(1), attacked.attacking(params, strength))
        return ts.obs[1] < 0

    keys = jax.random.split(KEY, 2_000)
    share = jax.jit(jax.vmap(jax.vmap(pushed_left, (0, None)), (None, 0)))(keys, jnp.array([0.0, 0.3, 1.0])).mean(1)
    np.testing.assert_allclose(share, [0, 0.3, 1], atol=0.03)
    by_chance = ActionAttack(cartpole)
    moved = jax.vmap(lambda key: by_chance.step(key, state, jnp.int32(1), by_chance.attacking(params, 1.0)).obs[1] < 0)(
        keys
    ).mean()
    np.testing.assert_allclose(moved, 0.5, atol=0.04)


@pytest.mark.parametrize("attack", [ObservationAttack, ActionAttack])
def test_an_attack_around_one_of_its_kind_draws_numbers_of_its_own(attack):
    """Three of them, one at a time, with a wrapper between: as the innermost the attack alone, to the bit."""
    env, params = jaxrl.make("Pendulum-v1")
    inner = attack(env)
    middle = attack(FlattenObservation(inner))
    outer = attack(middle)
    state, action = env.initial(jax.random.key(3), params), jnp.array([0.1])

    @functools.partial(jax.jit, static_argnums=0)
    def after(task, params):
        return task.observe(KEY, task.transition(KEY, state, action, params).state, params)

    def seen(*strengths):
        under = params
        for task, strength in zip((inner, middle, outer), strengths, strict=True):
            under = task.attacking(under, strength)
        return after(outer, under)

    drawn = [seen(*strengths) for strengths in ((0.5, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, 0.5))]
    same(drawn[0], after(inner, inner.attacking(params, 0.5)))
    for one, other in itertools.combinations(drawn, 2):
        assert np.abs(one[2] - other[2]) > 1e-3  # the speed, which actions change and whose box is wide


def dynamics_of(env):
    return DynamicsAttack(env, ("mass",), lambda victim, key: victim)


@pytest.mark.parametrize("id, names", [("Pendulum-v1", ("mass", "length")), ("DriftingBandit-v0", ("drift",))])
def test_dynamics_at_strength_zero_are_the_tasks_to_the_bit(id, names):
    env, params = jaxrl.make(id)
    attacked = DynamicsAttack(env, names)
    under = attacked.attacking(params, 0.0)
    (want, state), (got, inside) = jax.jit(env.reset)(KEY, params), jax.jit(attacked.reset)(KEY, under)
    same((want, state), (got, inside.env))
    step, step_inside = jax.jit(env.step), jax.jit(attacked.step)
    for i in range(3):
        action = env.action_space(params).sample(jax.random.key(9 + i))
        want = step(jax.random.key(i), state, action, params)
        got = step_inside(jax.random.key(i), inside, action, under)
        state, inside = want.state, got.state
        same((want.obs, state, want.reward), (got.obs, inside.env, got.reward))


def test_dynamics_are_those_of_a_task_with_other_params_for_the_whole_episode():
    """Mass 1 + 0.2 * 0.5, chosen; then drawn: one uniform number an episode, the same in each of its steps."""
    env, params = jaxrl.make("Pendulum-v1")
    attacked = dynamics_of(env)
    under = attacked.attacking(params, 0.2, victim=jnp.array([0.5]))
    heavier = params.replace(mass=jnp.float32(1.1))
    (obs, state), (seen, inside) = env.reset(KEY, heavier), attacked.reset(KEY, under)
    np.testing.assert_array_equal(obs, seen)
    for _ in range(3):
        want = env.step(KEY, state, jnp.array([1.5]), heavier)
        got = attacked.step(KEY, inside, jnp.array([1.5]), under)
        state, inside = want.state, got.state
        np.testing.assert_allclose(got.obs, want.obs, rtol=1e-6)
    assert abs(got.obs[2] - env.step(KEY, state, jnp.array([1.5]), params).obs[2]) > 1e-3
    beyond = attacked.reset(KEY, under.replace(victim=jnp.array([7.0])))[1]
    assert beyond.memory == 1.0

    drawn = DynamicsAttack(env, ("mass", "length"))
    under = drawn.attacking(params, 0.2)
    x = jax.vmap(lambda key: drawn.reset(key, under)[1].memory)(jax.random.split(KEY, 2_000))
    np.testing.assert_allclose(x.mean(0), 0, atol=0.05)
    np.testing.assert_allclose(x.var(0), 1 / 3, rtol=0.1)
    assert abs(np.corrcoef(x.T)[0, 1]) < 0.1
    inside = drawn.attacked(under, jnp.array([-1.0, 1.0]))
    np.testing.assert_allclose([inside.mass, inside.length, inside.gravity], [0.8, 1.2, 10.0], rtol=1e-6)
    got = drawn.step(KEY, drawn.reset(KEY, under)[1], jnp.array([0.0]), under).state
    same(got.memory, drawn.reset(KEY, under)[1].memory)


def test_strengths_of_dynamics_are_leaves_and_policies_are_evaluated_under_them():
    """Three strengths in one program: the task's own returns at 0, others above; and PPO trains on it."""
    env, params = jaxrl.make("Pendulum-v1")
    attacked = dynamics_of(env)
    algo = ppo.make(env, ppo.Config(num_envs=2, num_steps=4, num_minibatches=1, num_epochs=1))
    policy = algo.policy(algo.init(KEY, None, params))

    def returns(strength):
        under = attacked.attacking(params, strength, victim=jnp.array([-1.0]))
        return evaluate(algo, policy, KEY, attacked, under, num_episodes=4, max_steps=20).returns

    plain, light, lighter = jax.jit(jax.vmap(returns))(jnp.array([0.0, 0.4, 0.9]))
    same(plain, jax.jit(lambda: evaluate(algo, policy, KEY, env, params, num_episodes=4, max_steps=20).returns)())
    assert (light != plain).all() and (lighter != light).all()
    learner, under = ppo.make(attacked, algo.config), attacked.attacking(params, 0.2, victim=jnp.array([0.3]))
    assert jax.jit(learner.update)(learner.init(KEY, None, under))[0].step == 8


def test_what_dynamics_refuse_in_one_line():
    env, params = jaxrl.make("Pendulum-v1")
    for names, said in (
        ((), r"names=\(\) of no parameter; Pendulum-v1 has gravity, mass, length"),
        (("mas",), "'mas' is no parameter that it can change; did you mean 'mass'?"),
        (("max_steps",), "'max_steps' is no parameter that it can change"),
        (("zzz",), "'zzz' is no parameter that it can change; Pendulum-v1 has gravity"),
    ):
        with pytest.raises(ValueError, match="DynamicsAttack: " + said) as error:
            DynamicsAttack(env, names)
        assert "\n" not in str(error.value)
    attacked = dynamics_of(env)
    for strength, said in ((1.0, "strength=1.0 must be from 0 to below 1"), (-0.1, "must be at least 0")):
        with pytest.raises(ValueError, match=said):
            attacked.reset(KEY, attacked.attacking(params, strength, victim=jnp.ones(1)))
    with pytest.raises(ValueError, match="params have no victim"):
        attacked.validate(attacked.default_params.replace(strength=jnp.float32(0.1)))
    with pytest.raises(TypeError, match=r"the adversary gives \(2,\); mass need \(1,\)"):
        attacked.reset(KEY, attacked.attacking(params, 0.1, victim=jnp.ones(2)))
    with pytest.raises(NotImplementedError, match="do not tell ends"):
        attacked.terminal(jnp.zeros(3), attacked.default_params)


@pytest.mark.slow
def test_the_contract_of_dynamics():
    attacked = DynamicsAttack(jaxrl.make("Pendulum-v1")[0], ("mass", "length"))
    check_environment(attacked, attacked.attacking(attacked.env.default_params, 0.2))


@pytree
class Params:
    max_steps: jax.Array = 5


@pytree
class State:
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class Sensors(Environment):
    """Observes a Dict with noise of its own, a number of steps and what only critics see; two agents."""

    id: str = dataclasses.field(default="Sensors", kw_only=True)
    Params = Params

    @property
    def num_agents(self):
        return 2

    def initial(self, key, params):
        return State(jnp.int32(0))

    def transition(self, key, state, action, params):
        return Transition(state, action.astype(float), jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key, state, params):
        x = jax.random.uniform(key, (2, 3))
        return {"x": x, "clock": jnp.repeat(state.time % 4, 2), "privileged": x}

    def observation_space(self, params):
        return Dict({"x": Box(0.0, 1.0, (3,)), "clock": Discrete(4), "privileged": Box(0.0, 1.0, (3,))})

    def action_space(self, params):
        return Discrete(2)


def test_of_a_dict_only_what_the_policy_sees_as_floats_is_attacked():
    env = Sensors()
    attacked = ObservationAttack(env)
    params = attacked.attacking(env.default_params, 0.1)
    state = State(jnp.int32(2))
    so, seen = env.observe(KEY, state, params.env), attacked.observe(KEY, state, params)
    same((so["clock"], so["privileged"]), (seen["clock"], seen["privileged"]))
    off = np.abs(seen["x"] - so["x"])
    assert 0 < off.max() <= 0.1 + 1e-6 and (off[0] != off[1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("attack", [0, 3])
def test_the_contract(attack):
    attacked, _ = list(attacks_of(jaxrl.make("Pendulum-v1")[0]))[attack]
    check_environment(attacked, attacked.attacking(attacked.env.default_params, 0.2))


def test_a_loss_without_a_victim_is_refused_above_strength_zero():
    env = jaxrl.make("Pendulum-v1")[0]
    for attacked in (
        ObservationAttack(env, ActionDifference(linear)),
        ActionAttack(env, lambda victim, key, obs: linear(victim, obs)),
    ):
        attacked.validate(attacked.default_params)
        with pytest.raises(ValueError, match=r"params have no victim; take those of `attacking"):
            attacked.validate(attacked.default_params.replace(strength=jnp.float32(0.1)))


def test_levels_and_training_under_attack():
    env, params = jaxrl.make("Maze-v0")
    attacked = ActionAttack(env)
    under = attacked.attacking(params, 0.3)
    level = attacked.levels.generate(KEY, under)
    assert level.strength == under.strength and attacked.levels.env.env == env.levels.env
    attacked.levels.validate(level)
    env, params = jaxrl.make("Pendulum-v1")
    attacked = ObservationAttack(env, ActionDifference(linear))  # which reads a victim that default params do not have
    algo = ppo.make(attacked, ppo.Config(num_envs=2, num_steps=4, num_minibatches=1, num_epochs=1))
    under = attacked.attacking(params, 0.1, victim=jnp.ones(3))
    policy = algo.policy(algo.init(KEY, None, under))
    state, _ = jax.jit(algo.update)(algo.init(KEY, None, under))
    assert not jnp.array_equal(jax.tree.leaves(algo.policy(state))[0], jax.tree.leaves(policy)[0])
    plain = ppo.make(env, ppo.Config(num_envs=2, num_steps=4, num_minibatches=1, num_epochs=1))
    returns = [
        evaluate(plain, policy, KEY, *task, num_episodes=3, max_steps=20).returns
        for task in ((env, params), (attacked, attacked.default_params))
    ]
    same(*returns)


@pytest.mark.parametrize(
    "attack, strength, said",
    [
        (ObservationAttack, -0.1, r"ObservationAttack: strength=-0.1\d* must be at least 0, where nothing changes"),
        (ActionAttack, -0.1, "ActionAttack: strength=-0.1"),
        (ActionAttack, 1.5, "ActionAttack: strength=1.5 must be from 0 to 1, where the other acts alone"),
        (ObservationAttack, float("nan"), "strength=nan must be at least 0"),
    ],
)
def test_strengths_that_are_refused(attack, strength, said):
    env, params = jaxrl.make("CartPole-v1")
    attacked = attack(env)
    with pytest.raises(ValueError, match=said) as error:
        attacked.reset(KEY, attacked.attacking(params, strength))
    assert "\n" not in str(error.value)


def test_what_else_is_refused():
    env, params = jaxrl.make("CartPole-v1")
    attacked = ObservationAttack(env)
    with pytest.raises(ValueError, match="unit=-1.0 must be at least 0"):
        attacked.reset(KEY, attacked.attacking(params, 0.1, unit=-1.0))
    with pytest.raises(ValueError, match="steps=0 must be at least 1"):
        ObservationAttack(env, steps=0)
    with pytest.raises(ValueError, match=r"observes Discrete\(1\); it attacks boxes of floats"):
        ObservationAttack(jaxrl.make("AdversarialBandit-v0")[0])
    with pytest.raises(NotImplementedError, match="do not tell ends"):
        attacked.terminal(jnp.zeros(4), attacked.default_params)
