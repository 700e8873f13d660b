"""A box with an open side: whoever acts between two ends refuses it, and what a wrapper opened keeps its scale."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import registry
from jaxrl.data import datasets
from jaxrl.spaces import Box
from jaxrl.testing.probes import Probe
from jaxrl.wrappers import ClipAction, PreviousActionReward, RescaleAction

KEY = jax.random.key(0)
OPEN = {
    "a2c",
    "barfi",
    "cma_me",
    "evolution",
    "map_elites",
    "novelty_search",
    "ppo",
    "ppo_gbrl",
    "ppo_rnn",
    "props",
    "reinforce",
}
OPEN |= {"rnd", "serene", "spo", "stac", "stax", "stream_ac", "taxons"}
"""Algorithms whose policies are normal or a network's outputs, and so act in all of an open box."""


@dataclasses.dataclass(frozen=True)
class Three(Probe):
    """One step, worth -(a - 3)^2."""

    low: float = -np.inf
    high: float = np.inf

    def reward(self, state, action):
        return -jnp.sum((action - 3.0) ** 2)

    def action_space(self, params):
        return Box(self.low, self.high, (1,))


def made(name, env):
    module = registry.get_algo(name)
    unlimited = {"num_steps": 1} if getattr(module.Config, "num_steps", 1) == 0 else {}  # 0: the task's limit
    return module.make(env, module.Config(**unlimited))


BETWEEN = sorted(n for n in jaxrl.list_algos() if "Box" in registry.algo_actions(n) and n not in OPEN)
BETWEEN += [
    "cpl",
    "dagger",
    "decision_transformer",
    "heron",
    "hg_dagger",
    "oppo",
    "p_iql",
    "rlif",
    "rvs",
    "stream_td",
]  # whose observations are of a kind of their own


@pytest.mark.parametrize("name", BETWEEN)
def test_who_acts_between_two_ends_refuses_an_open_side(name):
    for side in ((-np.inf, np.inf), (0.0, np.inf), (-np.inf, 10.0)):
        env = Three(low=side[0], high=side[1])
        if name == "decision_transformer":
            env = PreviousActionReward(env)
        with pytest.raises(
            ValueError, match=rf"{name} acts .*a side without: say .* wrappers\.RescaleAction\(env, bounds="
        ):
            made(name, env)


@pytest.mark.parametrize("name", [*BETWEEN, *sorted(OPEN)])
@pytest.mark.parametrize("side", [(1.0, -1.0), (0.0, 0.0), (np.nan, 1.0)])
def test_nobody_acts_in_a_box_of_no_width(name, side):
    env = Three(low=side[0], high=side[1])
    with pytest.raises(ValueError, match="has a side of no width: its low must be below its high"):
        made(name, PreviousActionReward(env) if name == "decision_transformer" else env)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", sorted(OPEN))
def test_other_policies_reach_all_of_an_open_box(name):
    """With larger weights: normal deviations and outputs of networks have no ends."""
    algo = made(name, Three())
    state = algo.init(KEY)
    policy = jax.tree.map(lambda x: 300 * x + 1 if jnp.issubdtype(x.dtype, jnp.floating) else x, algo.policy(state))
    obs = jax.random.uniform(KEY, (512, 1), minval=-1.0)
    action, _ = algo.act(policy, KEY, obs, algo.initial_carry((512,)))
    assert np.nanmax(np.abs(action)) > 3


def test_every_algorithm_that_acts_in_boxes_is_judged():
    for name in jaxrl.list_algos():
        if name not in OPEN and name not in BETWEEN:
            with pytest.raises((ValueError, TypeError)):
                made(name, Three())


def test_what_a_wrapper_opened_keeps_its_scale():
    """A policy's ends under `ClipAction` are those of the box inside, as are a dataset's actions in its units."""
    env = ClipAction(Three(low=2.0, high=10.0))
    box = env.action_space(env.default_params)
    assert not box.is_open() and bool(box.contains(jnp.full(1, 99.0)))
    np.testing.assert_array_equal(box.from_unit(jnp.array([-1.0, 0.0, 1.0, 2.0])[:, None]).ravel(), [2, 6, 10, 14])
    np.testing.assert_array_equal(datasets.to_unit(box, jnp.array([[2.0], [6.0], [14.0]])).ravel(), [-1, 0, 2])
    made("td3", env)
    with pytest.raises(ValueError, match="a side without"):
        made("td3", ClipAction(Three()))


def test_bounds_rescale_an_open_box():
    env = RescaleAction(Three(), (-5.0, 5.0))
    made("sac", env)
    _, state = env.reset(KEY, env.default_params)
    assert env.step(KEY, state, jnp.array([0.6]), env.default_params).reward == 0
    env.validate(env.default_params)
    for bounds in ((1.0, 1.0), (-1.0, np.inf), (-5.0, 5.0)):
        with pytest.raises(ValueError, match="RescaleAction: bounds=.*; a finite low below a high, both in Box"):
            RescaleAction(Three(low=0.0), bounds)
