"""The contract of `jaxrl.testing.check_environment`: kept by what is registered, and able to find faults."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import Environment, Transition, list_envs, make, pytree, registry
from jaxrl.environment import Hints
from jaxrl.envs.physics.ids import BRAX
from jaxrl.math import fast_key
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.environments import check_environment
from jaxrl.testing.golden import golden
from jaxrl.testing.probes import PROBES
from jaxrl.wrappers import FlattenObservation, FrameStack, PreviousActionReward, StickyActions

ON_MJX = ("Ant-v5",)
"""Dear to compile; MJX's solver, a loop of unknown length, has no reverse derivative. Not the whole contract."""
DEAR = tuple(f"Brax-{name}" for name in BRAX if name not in ("fast", "inverted_pendulum", "reacher"))
DEAR_HERE = (
    *("HalfCheetah-v5", "Walker2d-v5", "StumpWalker-v0", "Reacher-v5", "Seaquest-MinAtar"),
    "SparseHalfCheetah-v0",
    *("Quadcopter-GateRacing-v0", "Quadcopter-TimedGates-v0", "Quadcopter-TrajectoryTracking-v0"),
    *("Sokoban-v0", "SokobanLevel-v0", "XLand-MiniGrid-R1-11x11"),
)
"""Dear to compile, too; the slow tests check all of their contract."""
GRIDS = ("BabyAI-BossLevel-v0", "BabyAI-GoTo-v0", "MiniGrid-DoorKey-16x16-v0", "MiniGrid-Dynamic-Obstacles-16x16-v0")
GRIDS += ("MiniGrid-FourRooms-v0", "MiniGrid-MemoryS11-v0")
"""Of MiniGrid and BabyAI, whose 50 classes differ in levels and goals; the slow tests check the others."""
QUICK = ("BernoulliBandit-v0", "CartPole-v1", "Catch-bsuite", "Pendulum-v1", "RiverSwim-v0")


def later(id):
    return id in ON_MJX + DEAR_HERE or (id.startswith(("BabyAI-", "MiniGrid-")) and id not in GRIDS)


@pytest.mark.parametrize(
    "id",
    [pytest.param(id, marks=[pytest.mark.slow] * later(id)) for id in sorted(registry.first_of_each_class().values())],
)
def test_each_class(id):
    check_environment(*make(id), num_steps=6, whole=id in QUICK)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", list_envs())
def test_registered(id):
    """Brax's tasks are one class: the whole contract for three of them. The dearer ones' states hold iterated inverses
    of mass matrices, which differ by 3e-4 between a program and the same steps one by one; HalfCheetah's state holds
    accelerations at contacts, which differ by 4e-5."""
    if not registry.is_available(id):
        pytest.skip(f"needs jaxrl[{registry.environments()[id].extra}]")
    rtol = 1e-4 if id.startswith(("HalfCheetah-", "SparseHalfCheetah-")) else 1e-5
    check_environment(*make(id), whole=id not in ON_MJX + DEAR, rtol=rtol)


def test_level_functions_of_a_module_are_in_the_kit_of_its_environments():
    """A curriculum by name finds what a task's module has."""
    for id in sorted(registry.first_of_each_class().values()):
        env = make(id)[0]
        module, kit = sys.modules[type(env).__module__], env.levels
        for name in ("generate", "mutate"):
            if hasattr(module, name) and env.levels is not None and not id.endswith("Level-v0"):
                assert getattr(kit, name) is not None, f"{id}: levels.{name}"


def test_wrapped():
    env = FlattenObservation(PreviousActionReward(FrameStack(StickyActions(make("Pendulum-v1")[0]), 2)))
    check_environment(env)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("env", PROBES, ids=lambda e: e.id)
def test_probes(env):
    check_environment(env)


# ---- an environment that is right, and what can be wrong with it


@pytree
class GoodParams:
    max_steps: jax.Array = 5
    gain: jax.Array = 0.5
    bias: jax.Array = 0.1


@pytree
class GoodState:
    time: jax.Array
    x: jax.Array


@pytree
class KeyedState(GoodState):
    key: jax.Array


@dataclasses.dataclass(frozen=True)
class Good(Environment):
    id: str = dataclasses.field(default="Good", kw_only=True)
    Params = GoodParams

    def initial(self, key, params):
        return GoodState(jnp.int32(0), jax.random.uniform(key))

    def transition(self, key, state, action, params):
        x = state.x * params.gain + 0.1 * action[0] + params.bias + 0.01 * jax.random.normal(key, dtype=state.x.dtype)
        return Transition(state.replace(x=x), x, jnp.bool_(False), jnp.bool_(False), {"reward/x": x})

    def observe(self, key, state, params):
        return state.x[None]

    def observation_space(self, params):
        return Box(-2.0, 2.0, (1,))

    def action_space(self, params):
        return Box(-1.0, 1.0, (1,))


def test_good():
    check_environment(Good())


class Faults:
    class Unhashable(Good):
        __hash__ = None  # pyright: ignore[reportAssignmentType]

    class WeakParams(Good):
        @property
        def default_params(self):
            return GoodParams(jnp.int32(5), jnp.asarray(0.5), 0.1)

    class WeakState(Good):
        def initial(self, key, params):
            return GoodState(jnp.int32(0), jnp.asarray(0.5) * 1.0)

    class ChangingState(Good):
        def transition(self, key, state, action, params):
            out = super().transition(key, state, action, params)
            return out._replace(state=out.state.replace(x=out.state.x[None]))

    class LateClock(Good):
        def initial(self, key, params):
            return super().initial(key, params).replace(time=jnp.int32(1))

    class NoClock(Good):
        def step(self, key, state, action, params):
            ts = super().step(key, state, action, params)
            return ts._replace(state=ts.state.replace(time=state.time))

    class NoLimit(Good):
        def step(self, key, state, action, params):
            return super().step(key, state, action, params)._replace(truncated=jnp.bool_(False))

    class OtherEnd(Good):
        def terminal(self, obs, params):
            return obs[0] > 0.3

    class IntegerFlag(Good):
        def transition(self, key, state, action, params):
            return super().transition(key, state, action, params)._replace(terminated=jnp.int32(0))

    class VectorReward(Good):
        def transition(self, key, state, action, params):
            out = super().transition(key, state, action, params)
            return out._replace(reward=out.reward[None])

    class VectorTerm(Good):
        def transition(self, key, state, action, params):
            out = super().transition(key, state, action, params)
            return out._replace(info={"reward/x": state.x[None]})

    class OutsideItsSpace(Good):
        def observe(self, key, state, params):
            return 3 + state.x[None]

    class NotDeterministic(Good):
        hints = Hints(deterministic=True)

    class BranchOnParams(Good):
        def transition(self, key, state, action, params):
            gain = params.gain if params.gain.ndim == 0 else params.gain[0]
            out = super().transition(key, state, action, params.replace(gain=gain))
            return out if float(params.bias) > 0 else out

    class Single(Good):
        def transition(self, key, state, action, params):
            out = super().transition(key, state, action, params)
            return out._replace(state=out.state.replace(x=out.state.x.astype(jnp.float32)))

    class InfiniteGradient(Good):
        def transition(self, key, state, action, params):
            out = super().transition(key, state, action, params)
            return out._replace(reward=jnp.sqrt(jnp.abs(action[0] - action[0])))

    class InfiniteGradientOfAParameter(Good):
        def transition(self, key, state, action, params):
            out = super().transition(key, state, action, params)
            return out._replace(reward=out.reward + jnp.sqrt(0 * params.gain))

    class KeyTwice(Good):
        def transition(self, key, state, action, params):
            out = super().transition(key, state, action, params)
            return out._replace(reward=jax.random.uniform(key))

    class KeyTwiceAtReset(Good):
        def initial(self, key, params):
            return GoodState(jnp.int32(0), jax.random.uniform(key) * jax.random.uniform(fast_key(key)))

    class KeptKey(Good):
        def initial(self, key, params):
            return KeyedState(jnp.int32(0), jax.random.uniform(key), jax.random.fold_in(key, 1))

        def transition(self, key, state, action, params):
            x = jax.random.uniform(state.key)
            return Transition(state.replace(x=x), x, jnp.bool_(False), jnp.bool_(False), {})

    class ForeignKey(Good):
        def initial(self, key, params):
            return GoodState(jnp.int32(0), fast_key(key))

        def transition(self, key, state, action, params):
            zero = jnp.zeros(())
            return Transition(state, zero, jnp.bool_(False), jnp.bool_(False), {})

        def observe(self, key, state, params):
            return jnp.zeros(1)

    class SignedActionsOnly(Good):
        def action_space(self, params):
            return Discrete(2)

        def transition(self, key, state, action, params):
            out = super().transition(key, state, jnp.zeros(1), params)
            return out._replace(reward=(out.reward * 0 + (-action)).astype(jnp.float32))

    class WrongPicture(Good):
        def render(self, state, params):
            return np.zeros((4, 4))

    class NaN(Good):
        def transition(self, key, state, action, params):
            out = super().transition(key, state, action, params)
            return out._replace(reward=jnp.where(state.time > 2, jnp.nan, out.reward))


FAULTS = {
    "Unhashable": (TypeError, "unhashable"),
    "WeakParams": (AssertionError, "params.*bias"),
    "WeakState": (AssertionError, "weakly typed leaves"),
    "ChangingState": (AssertionError, "state after reset and after step.*x"),
    "LateClock": (AssertionError, "clock starts at 0"),
    "NoClock": (AssertionError, "counts steps"),
    "NoLimit": (AssertionError, "not truncated after max_steps"),
    "OtherEnd": (AssertionError, "terminal.obs. and terminated"),
    "IntegerFlag": (AssertionError, "terminated is .*int32"),
    "VectorReward": (AssertionError, "reward is"),
    "VectorTerm": (AssertionError, "reward terms are scalars"),
    "OutsideItsSpace": (AssertionError, "obs is not in observation_space"),
    "NotDeterministic": (AssertionError, "the key matters"),
    "BranchOnParams": (Exception, "Concretization|traced array"),
    "Single": (AssertionError, "float64 state"),
    "InfiniteGradient": (AssertionError, "the derivative.*with respect to the action is not finite"),
    "InfiniteGradientOfAParameter": (AssertionError, "the derivative.*with respect to params.gain is not finite"),
    "KeyTwice": (AssertionError, "step, after reset, consumes a key twice"),
    "KeyTwiceAtReset": (AssertionError, "^reset consumes a key twice"),
    "KeptKey": (AssertionError, "step, after reset, consumes a key twice"),
    "ForeignKey": (AssertionError, "store the user's kind of key"),
    "SignedActionsOnly": (AssertionError, "uint8 action"),
    "WrongPicture": (AssertionError, "render gives"),
    "NaN": (AssertionError, "rewards are not finite"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_finds(name):
    error, message = FAULTS[name]
    with pytest.raises(error, match=f"(?s){message}"):
        check_environment(getattr(Faults, name)(), num_steps=6)


# ---- the other helpers


def test_key_reuse_is_found_also_behind_fast_key():
    def twice(key):
        return jax.random.normal(key) + jax.random.uniform(key)

    def hidden(key):
        return jax.random.normal(fast_key(key)) + jax.random.uniform(fast_key(key))

    def once(key):
        a, b = jax.random.split(fast_key(key))
        return jax.random.normal(a) + jax.random.uniform(fast_key(b))

    for bad in (twice, hidden):
        with pytest.raises(jax.errors.KeyReuseError):
            assert_no_key_reuse(bad, jax.random.key(0))
    np.testing.assert_array_equal(assert_no_key_reuse(once, jax.random.key(0)), once(jax.random.key(0)))


@pytest.mark.parametrize("env", [Good(), StickyActions(FrameStack(Good(), 2))], ids=["Good", "wrapped"])
def test_no_key_is_used_twice(env):
    def two_steps(key):
        a, b, c = jax.random.split(key, 3)
        params = env.default_params
        _, state = env.reset(a, params)
        for k in (b, c):
            state = env.step(k, state, jnp.zeros(1), params).state
        return state.time

    assert assert_no_key_reuse(two_steps, jax.random.key(0)) == 2


def test_golden():
    assert golden("classic_CartPole-v1")["state"].dtype == np.float64
    with pytest.raises(FileNotFoundError, match="No golden data 'nothing'; there are: .*classic_CartPole-v1"):
        golden("nothing")
