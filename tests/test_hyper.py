"""Settings with which nothing can be learned are refused, of every algorithm and in every Hyper inside of one."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algorithm import NOT_NEGATIVE, WITHIN_ONE, check_hyper, starting_hyper
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
