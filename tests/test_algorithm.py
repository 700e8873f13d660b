"""What all algorithms share: the pure training loop, its starting values, and how often off-policy ones learn."""

import subprocess
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import Algorithm, make, pytree, train, vectorize
from jaxrl.algorithm import as_vector_env, check_key, num_updates, spaces_of, starting_values
from jaxrl.algos import dqn, ppo
from jaxrl.algos.tabular import q_learning
from jaxrl.host.run.training_program import Program
from jaxrl.off_policy.steps import gradient_steps_due
from jaxrl.spaces import Box, Discrete


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-6, "atol": 1e-7, **tolerance})


# ---- a training loop of an algorithm that only counts


@pytree
class CounterHyper:
    rate: jax.Array = 0.5
    horizon: jax.Array = 100


class CounterState(NamedTuple):
    key: Any
    total: Any
    step: Any
    weights: Any = ()


def counter(steps_per_update=8):
    def init(key, hyper=None, env_params=None):
        return CounterState(key, hyper.rate, jnp.int32(0))

    def collect(state):
        return state._replace(step=state.step + steps_per_update), None

    def learn(state, rollout):
        key, draw = jax.random.split(state.key)
        return state._replace(key=key, total=state.total + 1), {"total": state.total, "draw": jax.random.uniform(draw)}

    venv = vectorize(make("CartPole-v1")[0], 2)
    return Algorithm(
        name="counter",
        config=None,
        hyper=CounterHyper,
        venv=venv,
        steps_per_update=steps_per_update,
        init=init,
        collect=collect,
        learn=learn,
        policy=lambda state: None,
        initial_carry=lambda shape=(): (),
        act=lambda policy, key, obs, carry=(), greedy=False: (jnp.int32(0), carry),
        restart=lambda state, key, env_params, mask: state,
    )


@pytest.mark.parametrize(("total", "updates"), [(1, 1), (8, 1), (9, 2), (80, 10)])
def test_train_makes_at_least_the_steps_asked_for(total, updates):
    algo = counter()
    assert num_updates(algo, total) == updates
    state, metrics = train(algo, jax.random.key(0), total, CounterHyper(rate=jnp.float32(3)))
    assert metrics["total"].shape == (updates,) and state.step == 8 * updates >= total
    np.testing.assert_array_equal(metrics["total"], 3 + np.arange(updates))


def test_train_is_pure_and_batches_over_keys_and_hypers():
    algo = counter()
    rates = CounterHyper(rate=jnp.array([1.0, 2.0]))

    def run(key, hyper):
        return train(algo, key, 24, hyper)[1]

    grid = jax.jit(jax.vmap(jax.vmap(run, (None, CounterHyper(0, None))), (0, None)))(
        jax.random.split(jax.random.key(0), 3), rates.replace(horizon=1)
    )
    assert grid["total"].shape == (3, 2, 3)
    np.testing.assert_array_equal(grid["total"][0], [[1, 2, 3], [2, 3, 4]])
    assert len(np.unique(grid["draw"][:, 0])) == 9


@pytest.mark.parametrize("total", [0, -5])
def test_no_steps_are_refused(total):
    with pytest.raises(ValueError, match=f"total_steps={total}: it must be at least 1"):
        num_updates(counter(), total)


def test_starting_values_fill_in_defaults_and_strengthen():
    env, params = make("CartPole-v1")
    venv = vectorize(env, 2)
    hyper, env_params = starting_values(CounterHyper, venv, None, None)
    assert hyper.rate == 0.5 and jax.tree.all(jax.tree.map(lambda a, b: a == b, env_params, params))
    # A whole number for a float, and a float for a whole number, must not become another program.
    for given in (CounterHyper(rate=1, horizon=1e6), CounterHyper(rate=np.float64(1), horizon=np.int64(10**6))):
        hyper, _ = starting_values(CounterHyper, venv, given, None)
        assert hyper.rate.dtype == jnp.float32 and hyper.horizon.dtype == jnp.int32
        assert hyper.rate == 1 and hyper.horizon == 10**6 and not hyper.rate.weak_type
    batched, _ = starting_values(CounterHyper, venv, CounterHyper(rate=np.array([1, 2])), None)
    assert batched.rate.dtype == jnp.float32 and batched.rate.shape == (2,)
    _, env_params = starting_values(CounterHyper, venv, None, params.replace(length=1.0))
    assert env_params.length.dtype == jnp.float32 and not env_params.length.weak_type
    with pytest.raises(TypeError, match="int.*not this algorithm's Hyper"):
        starting_values(CounterHyper, venv, 3, None)
    with pytest.raises(ValueError, match="length"):
        starting_values(CounterHyper, venv, None, params.replace(length=-1.0))


@pytree
class RuleHyper:
    rate: jax.Array = 0.5
    rule: Any = None


@pytest.mark.parametrize("wrong", [{"length": 1.0}, 3, (make("CartPole-v1")[1],)])
def test_what_is_no_params_is_refused_in_one_sentence(wrong):
    env, _ = make("CartPole-v1")
    message = r"env_params is .*, not the params of CartPole-v1: .* env\.default_params\.replace\(max_steps=100\)\.$"
    with pytest.raises(TypeError, match=message):
        train(ppo.make(env), jax.random.key(0), 64, None, wrong)
    with pytest.raises(TypeError, match=message):
        env.reset(jax.random.key(0), wrong)


@pytest.mark.parametrize("wrong", [7, None, make("CartPole-v1")[0], np.zeros(2, np.float32)])
def test_what_is_no_key_is_refused_in_one_sentence(wrong):
    number = wrong if isinstance(wrong, int) else 0
    with pytest.raises(TypeError, match=rf"^key is .*, not a random key: pass jax\.random\.key\({number}\)\.$"):
        check_key(wrong)
    check_key(jax.random.key(0))
    check_key(jax.random.PRNGKey(0))  # raw keys, as other libraries hold them


def test_train_says_what_a_number_in_place_of_a_key_should_be():
    """Where no run-time type checker is installed, as on a user's machine."""
    code = "import jaxrl\nfrom jaxrl.algos import ppo\nenv, params = jaxrl.make('CartPole-v1')\n"
    code += "jaxrl.train(ppo.make(env), 3, 64)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stderr.splitlines()[-1] == "TypeError: key is 3, not a random key: pass jax.random.key(3)."


def test_a_rule_beside_the_numbers_is_passed_differentiated_and_vmapped():
    """A setting whose default is None may be any pytree, as a learned update rule is."""
    plain = counter()

    def init(key, hyper=None, env_params=None):
        hyper, _ = starting_values(RuleHyper, plain.venv, hyper, env_params)
        return CounterState(key, (jnp.float32(0), hyper), jnp.int32(0))

    def learn(state, rollout):
        total, hyper = state.total
        total = total + hyper.rate * hyper.rule["w"] @ hyper.rule["v"]
        return state._replace(total=(total, hyper)), {"total": total}

    algo = plain._replace(hyper=RuleHyper, init=init, learn=learn)
    rule = {"w": jnp.array([1.0, 2.0]), "v": np.array([3, 4], np.float32)}

    def end(rule):
        return train(algo, jax.random.key(0), 16, RuleHyper(rule=rule))[1]["total"][-1]

    value, slope = jax.value_and_grad(end)(rule)
    assert value == 11
    np.testing.assert_array_equal(slope["w"], [3, 4])
    np.testing.assert_array_equal(jax.vmap(end)(jax.tree.map(lambda x: jnp.stack([x, 2 * x]), rule)), [11, 44])
    program = Program(algo, jax.random.key(0), 3, RuleHyper(rate=jnp.arange(3.0), rule=rule), None)
    assert program.axes.rate == 0 and program.axes.rule == {"w": None, "v": None}


def test_arguments_left_out_given_in_order_or_by_name_make_the_same_functions():
    env = make("CartPole-v1")[0]
    for module in (ppo, dqn, q_learning):
        if module is q_learning:
            env = make("RiverSwim-v0")[0]
        first = module.make(env)
        assert module.make(env, module.Config()) is first
        assert module.make(env, config=module.Config()) is first and module.make(env=env) is first
        assert module.make(env, module.Config(num_envs=5)) is not first
    assert ppo.make.__name__ == "make" and ppo.make.__doc__.startswith("PPO on `env`")


def test_as_vector_env():
    env = make("CartPole-v1")[0]
    venv = vectorize(env, 3, "dense")
    assert as_vector_env(venv, 3) is venv
    assert as_vector_env(env, 3) == vectorize(env, 3)
    with pytest.raises(ValueError, match="num_envs=3 but the config says 4; make them equal"):
        as_vector_env(venv, 4)


@pytest.mark.parametrize(
    "ratio, due",
    [(0.5, [0, 1, 0, 1]), (1.0, [1] * 4), (2.0, [2] * 4), (9.0, [4] * 4), (jnp.inf, [4] * 4), (0.0, [0] * 4)],
)
def test_gradient_steps_follow_the_replay_ratio(ratio, due):
    got = [gradient_steps_due(jnp.int32(step), 1, jnp.float32(ratio), 4) for step in (1, 2, 3, 4)]
    np.testing.assert_array_equal(got, due)


def test_the_replay_ratio_holds_after_many_steps():
    """float32 has no odd numbers beyond 2^24."""
    steps = jnp.int32(2**25) + jnp.arange(8, dtype=jnp.int32)
    np.testing.assert_array_equal(jax.vmap(lambda s: gradient_steps_due(s, 1, jnp.float32(1), 4))(steps), 1)


def with_space(action_space, num_agents=1):
    class Other(type(make("CartPole-v1")[0])):
        def action_space(self, params):
            return action_space

    Other.num_agents = num_agents
    return Other(id="other")


def test_spaces_of_names_what_would_do():
    with pytest.raises(ValueError, match=r"dqn acts in Discrete spaces, not in Pendulum-v1's Box.*act there:.*ppo"):
        spaces_of("dqn", make("Pendulum-v1")[0], Discrete)
    with pytest.raises(ValueError, match=r"x acts in Discrete and one-dimensional Box spaces, not in other's"):
        spaces_of("x", with_space(Box(-1.0, 1.0, (2, 2))), Discrete, Box)
    with pytest.raises(ValueError, match=r"2 agents; x trains one\. .*wrappers\.agents_as_slots"):
        spaces_of("x", with_space(Discrete(2), num_agents=2), Discrete)
    assert spaces_of("x", vectorize(with_space(Discrete(2)), 3), Discrete)[1] == Discrete(2)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ("CartPole-v1", r"not the id 'CartPole-v1': env, params = jaxrl.make\('CartPole-v1'\)"),
        (make("CartPole-v1"), r"not the pair \(env, params\): pass params to init or train"),
        (None, r"not None: env, params = jaxrl.make\(id\)"),
        (3, r"not 3: env, params = jaxrl.make\(id\)"),
    ],
)
@pytest.mark.parametrize("made", [dqn.make, ppo.make, q_learning.make])
def test_what_is_no_environment_is_refused(made, wrong, message):
    with pytest.raises(TypeError, match=message):
        made(wrong)
