"""Settings of an algorithm around another as one more field of its Hyper; states of both in one.

What stands around real algorithms keeps the contract in `test_contract_wrappers.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxrl import make, pytree
from jaxrl.algos import a2c, ppo
from jaxrl.nesting import OuterState, around, complete_hyper, join_hyper, split_hyper, with_settings

SMALL = dict(num_envs=2, num_steps=4, num_minibatches=1, hidden=(8,))


@pytree
class Share:
    share: Any = 0.25
    length: Any = 3


@pytree
class Outer(OuterState):
    inner: Any
    own: Any

    SETTINGS = ("outer", "own")


def outer(inner):
    default = Share()

    def init(key, hyper=None, env_params=None):
        hyper, own = split_hyper(hyper, "outer", default)
        return Outer(inner.init(key, hyper, env_params), own)

    def update(f):
        return lambda state, *rollout: (state.replace(inner=(out := f(state.inner, *rollout))[0]), out[1])

    functions = {"init": init, "collect": update(inner.collect), "learn": update(inner.learn)}
    return around(inner, "outer", (2,), hyper=with_settings(inner.hyper, "outer", default), **functions)


def test_settings_are_joined_and_split_again():
    joined = join_hyper(ppo.Hyper(gamma=0.5), "outer", Share(0.75))
    assert isinstance(joined, ppo.Hyper) and joined.gamma == 0.5 and joined.outer.share == 0.75
    inner, own = split_hyper(joined, "outer")
    assert type(inner) is ppo.Hyper and inner.gamma == 0.5 and own.share == 0.75
    plain = ppo.Hyper(gamma=0.5)
    inner, own = split_hyper(plain, "outer", Share())
    assert inner is plain and own.share == 0.25
    # Settings of another nesting are no part of this one.
    assert split_hyper(joined, "another", None) == (joined, None)


def test_settings_get_the_dtypes_of_their_defaults_and_must_be_of_their_class():
    default = Share(jnp.float32(0.25), jnp.int32(3))
    _, own = split_hyper(join_hyper(ppo.Hyper(), "outer", Share(1, 4.0)), "outer", default)
    assert (own.share.dtype, own.length.dtype) == (jnp.float32, jnp.int32)
    with pytest.raises(TypeError, match=r"hyper\.outer is a .*a2c\.Hyper, not a .*Share"):
        split_hyper(join_hyper(ppo.Hyper(), "outer", a2c.Hyper()), "outer", default)


def test_the_hyper_of_nested_algorithms_is_made_by_names():
    algo = outer(ppo.make(make("CartPole-v1")[0], ppo.Config(**SMALL)))
    hyper = algo.hyper(gamma=0.9)
    assert hyper.gamma == 0.9 and hyper.outer.share == 0.25
    assert complete_hyper(algo, None).outer.length == 3
    assert complete_hyper(algo, ppo.Hyper(gamma=0.9)).outer.length == 3
    other = a2c.Hyper()
    assert complete_hyper(algo, other) is other, "init refuses it"


def test_a_state_hands_on_the_fields_of_the_inner_one():
    inner = ppo.make(make("CartPole-v1")[0], ppo.Config(**SMALL))
    algo = outer(inner)
    assert algo.name == "ppo+outer" and algo.around[-2:] == ("outer", 2)
    assert algo.slots == tuple(f"inner.{path}" for path in inner.slots)
    state = jax.jit(algo.init)(jax.random.key(0), join_hyper(ppo.Hyper(gamma=0.5), "outer", Share(0.75)))
    assert state.obs is state.inner.obs and state.weights is state.inner.weights
    assert state.hyper.gamma == 0.5 and state.hyper.outer.share == 0.75
    changed = state.replace(step=jnp.int32(7), hyper=state.hyper.replace(gamma=jnp.float32(0.25), outer=Share(0.5)))
    assert changed.inner.step == 7 and changed.inner.hyper.gamma == 0.25 and changed.own.share == 0.5
    with pytest.raises(AttributeError, match="Outer has no field 'nothing'"):
        state.nothing  # noqa: B018
    state, metrics = jax.eval_shape(algo.update, state)
    assert type(state) is Outer and "episode_return" in metrics
