"""Settings with which nothing can be learned are refused, of every algorithm and in every Hyper inside of one."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algorithm import MAY_BE_INFINITE, NOT_NEGATIVE, WITHIN_ONE, check_hyper, check_sizes, starting_hyper
from jaxrl.algos import ppo, sac
from jaxrl.algos.curricula import plr
from jaxrl.environment import pytree


def named(name, *words):
    return any(name == word or name.endswith(f"_{word}") for word in words)


@pytest.mark.parametrize("name", jaxrl.list_algos())
def test_every_algorithm_refuses_what_makes_no_sense(name):
    hyper = jaxrl.get_algo(name).Hyper()
    check_hyper(hyper)
    for field in dataclasses.fields(hyper):
        if not isinstance(field.default, int | float):
            continue
        bad = [np.nan] * isinstance(field.default, float)
        endless = named(field.name, *MAY_BE_INFINITE) or np.isinf(field.default)
        bad += [np.inf] * (isinstance(field.default, float) and not endless)
        bad += [-1e-3, -np.inf, 1.5, np.inf] if named(field.name, *WITHIN_ONE) else []
        bad += [-1.0, -np.inf] if named(field.name, *NOT_NEGATIVE) else []
        # An infinite default stands for something else, such as the rate of the other networks.
        bad += [np.inf] if named(field.name, "learning_rate") and np.isfinite(field.default) else []
        for value in bad:
            with pytest.raises(ValueError, match=rf"hyper\.{field.name}={value:g}: it must be ".replace("+", r"\+")):
                check_hyper(hyper.replace(**{field.name: value}))
    rates = [f.name for f in dataclasses.fields(hyper) if f.name.endswith("learning_rate")]
    assert all(named(rate, *NOT_NEGATIVE) for rate in rates)


def test_what_is_unusual_but_right_passes():
    check_hyper(ppo.Hyper(max_grad_norm=np.inf, target_kl=np.inf, ent_coef=-0.01, learning_rate=0.0, gamma=jnp.ones(3)))
    check_hyper(sac.Hyper(target_entropy=-3.0, replay_ratio=np.inf))


def test_one_of_a_batch_is_named():
    with pytest.raises(ValueError, match=r"hyper\.learning_rate=-2: it must be finite, and 0 or more"):
        check_hyper(ppo.Hyper(learning_rate=jnp.array([1e-3, -2.0])))
    with pytest.raises(ValueError, match="learning_rate=nan"):
        starting_hyper(ppo.Hyper, ppo.Hyper(learning_rate=np.nan))


def test_a_hyper_inside_of_another_is_read_too():
    @pytree
    class Outer:
        curriculum: plr.Hyper = plr.Hyper()
        log_std: float = -1.0

    check_hyper(Outer())
    with pytest.raises(ValueError, match=r"hyper\.curriculum\.temperature=-1"):
        check_hyper(Outer(plr.Hyper(temperature=-1.0)))


@dataclasses.dataclass(frozen=True)
class Sizes:
    num_envs: int = 4
    adam_eps: float = 1e-8
    hidden: tuple[int, ...] = (8,)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_envs": 8.5}, "num_envs=8.5: it must be an integer"),
        ({"num_envs": np.int64(-3)}, "num_envs=-3: it must be at least 0"),
        ({"num_envs": 2**40}, "num_envs=.*: sizes are kept in 32 bits"),
        ({"num_envs": "8"}, "num_envs='8': it must be an integer"),
        ({"hidden": (8, 0)}, "hidden=.*: it must be at least 1"),
        ({"hidden": [8, 8]}, "hidden=.*: it must be a tuple of integers"),
        ({"hidden": "64"}, "hidden='64': it must be a tuple of integers"),
        ({"hidden": (64.5,)}, "hidden=.*: it must be a tuple of integers"),
        ({"adam_eps": np.nan}, "adam_eps=nan"),
        ({"adam_eps": -1.0}, "adam_eps=-1"),
        ({"adam_eps": np.inf}, "adam_eps=inf: it must be finite"),
    ],
)
def test_a_config_with_which_nothing_can_be_built(changes, message):
    check_sizes(Sizes())
    with pytest.raises(ValueError, match=message):
        check_sizes(Sizes(**changes))


def test_make_looks_at_the_config():
    with pytest.raises(ValueError, match="adam_eps=nan"):
        ppo.make(jaxrl.make("CartPole-v1")[0], ppo.Config(adam_eps=np.nan))


def test_a_float_of_an_own_config_may_be_negative():
    @dataclasses.dataclass(frozen=True)
    class Config:
        log_std_min: float = -5.0

    check_sizes(Config())
    with pytest.raises(ValueError, match="log_std_min=-inf: it must be finite"):
        check_sizes(Config(-np.inf))
