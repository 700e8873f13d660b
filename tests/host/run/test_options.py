"""The two records of `fit` and `sweep`, and the keywords that make them."""

import dataclasses
import typing

import jax
import pytest

from jaxrl.algos import a2c
from jaxrl.host.run.fit import fit
from jaxrl.host.run.options import EvalOptions, Keywords, RunOptions, collected
from jaxrl.host.run.sweep import sweep
from jaxrl.testing.probes import ActionReward


def test_keywords_are_the_fields_of_both_records():
    of_run, of_evaluation = (typing.get_type_hints(record) for record in (RunOptions, EvalOptions))
    fields = {**of_run, **{f"eval_{name}": kind for name, kind in of_evaluation.items()}}
    assert typing.get_type_hints(Keywords) == fields


def test_a_keyword_changes_a_field_of_the_records():
    assert collected(fit, None, None, {}) == (RunOptions(), EvalOptions())
    run, evaluation = RunOptions(out="a", keep=5), EvalOptions(every=10, episodes=3)
    made = collected(fit, run, evaluation, {"out": "b", "eval_episodes": 4})
    assert made == (dataclasses.replace(run, out="b"), dataclasses.replace(evaluation, episodes=4))


@pytest.mark.parametrize(
    ("of", "word", "near"),
    [
        (fit, "eval_evry", "eval_every"),
        (fit, "checkpoints_every", "checkpoint_every"),
        (fit, "env_param", "env_params"),  # one of fit's own
        (fit, "seeds", "num_seeds"),
        (sweep, "at_onc", "at_once"),
        (sweep, "eval_max_step", "eval_max_steps"),
    ],
)
def test_an_unknown_keyword_names_the_nearest(of, word, near):
    says = rf"{of.__name__} has no keyword '{word}'\. Did you mean '{near}'\? It takes hyper, env_params, .*eval_greedy"
    with pytest.raises(TypeError, match=says):
        collected(of, None, None, {word: 1})


def test_fit_and_sweep_say_so_themselves():
    algo = a2c.make(ActionReward(), a2c.Config(num_envs=2, num_steps=2, hidden=(2,)))
    with pytest.raises(TypeError, match="fit has no keyword 'outt'. Did you mean 'out'"):
        fit(algo, jax.random.key(0), 8, outt="x")  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="sweep has no keyword 'outt'. Did you mean 'out'"):
        sweep(algo, jax.random.key(0), 8, [{}], outt="x")  # pyright: ignore[reportCallIssue]


def test_a_word_like_no_keyword_gets_the_list():
    with pytest.raises(TypeError, match="fit has no keyword 'zzz'. It takes hyper"):
        collected(fit, None, None, {"zzz": 1})
