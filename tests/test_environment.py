"""The pytree decorator, strong types, and what the base class makes of an environment."""

import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import Environment, Transition, make, pytree, registry
from jaxrl.environment import NO_LIMIT, check_params, is_concrete, split_observation, strongly_typed
from jaxrl.spaces import Box, Dict, Discrete
from jaxrl.wrappers import StickyActions, Wrapper


@pytree
class Point:
    x: jax.Array
    y: Any = 2.0


@pytree(static=("size", "name"))
class Sized:
    values: jax.Array
    size: int
    name: str = "a"


def test_pytree_children_and_replace():
    p = Point(jnp.arange(3.0))
    assert jax.tree.leaves(p)[1] == 2.0 and len(jax.tree.leaves(p)) == 2
    q = p.replace(y=5.0)
    assert isinstance(q, Point) and q.y == 5.0 and p.y == 2.0 and q.x is p.x
    with pytest.raises(TypeError, match="z"):
        p.replace(z=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.x = 0
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(p)]
    assert paths == [".x", ".y"]


def test_pytree_passes_through_transformations():
    p = Point(jnp.arange(3.0), jnp.ones(3))
    doubled = jax.jit(jax.vmap(lambda p: p.replace(x=p.x * 2)))(p)
    np.testing.assert_array_equal(doubled.x, [0, 2, 4])
    grad = jax.grad(lambda p: jnp.sum(p.x * p.y))(p)
    np.testing.assert_array_equal(grad.y, p.x)
    np.testing.assert_array_equal(jax.vmap(lambda p: p.x + p.y, (Point(0, None),))(Point(p.x, 1.0)), [1, 2, 3])


def test_pytree_holds_placeholders_of_any_type():
    p = Point(jnp.zeros(2), jnp.zeros(3))
    assert jax.tree.map(lambda _: object(), p).x is not None
    assert jax.tree.map(jnp.shape, p).x == (2,)
    assert jax.tree.map(lambda x: x.dtype, jax.eval_shape(lambda: p)).y == jnp.float32
    assert Point(None, "axis").x is None


def test_static_fields_are_part_of_the_structure():
    a = Sized(jnp.zeros(2), 3)
    assert len(jax.tree.leaves(a)) == 1
    assert jax.tree.structure(a) == jax.tree.structure(Sized(jnp.ones(2), 3))
    assert jax.tree.structure(a) != jax.tree.structure(a.replace(size=4))
    traces = []

    @jax.jit
    def scaled(s):
        traces.append(s.size)
        return s.values * s.size

    np.testing.assert_array_equal(scaled(a.replace(values=jnp.ones(2))), 3)
    scaled(a)
    np.testing.assert_array_equal(scaled(Sized(jnp.ones(2), 4)), 4)
    assert traces == [3, 4]


def test_classes_with_equal_fields_are_told_apart():
    @pytree
    class Rise:
        x: jax.Array = 0.0

        def next(self):
            return self.x + 1

    @pytree
    class Fall(Rise):
        def next(self):
            return self.x - 1

    assert jax.tree.structure(Rise()) != jax.tree.structure(Fall())
    assert jax.tree.structure(Rise()) == jax.tree.structure(Rise(2.0))
    step = jax.jit(lambda tree: tree.next())
    assert [float(step(tree)) for tree in (Rise(0.0), Fall(0.0)) * 2] == [1, -1, 1, -1]
    fall = Fall(3.0).replace(x=4.0)
    assert isinstance(jax.tree.map(lambda x: x, fall), Fall)
    assert vars(fall) == {"x": 4.0} and [f.name for f in dataclasses.fields(fall)] == ["x"]
    assert "class_of" not in repr(fall)


def test_the_signature_shows_the_fields_alone():
    @pytree
    class Deeper(Sized):
        depth: Any = 1

    assert list(inspect.signature(Point).parameters) == ["x", "y"] and inspect.signature(Point).bind(1).args == (1,)
    assert inspect.signature(Point).parameters["y"].default == 2.0
    assert list(inspect.signature(Sized).parameters) == ["values", "size", "name"]
    assert list(inspect.signature(Deeper).parameters) == ["values", "size", "name", "depth"]
    assert Deeper(0.0, 3, depth=2).replace(depth=3).depth == 3


def test_pytrees_compare_by_identity():
    """Equality of arrays has no truth value, so a generated __eq__ would raise."""
    p = Point(jnp.zeros(2))
    assert p == p and p != Point(jnp.zeros(2))


def test_strongly_typed_leaves():
    tree = strongly_typed(
        {"f": 1.5, "i": 3, "b": True, "n": np.float32(2), "weak": jnp.asarray(1.0), "a": np.arange(3)}
    )
    dtypes = {name: (x.dtype.name, x.weak_type) for name, x in tree.items()}
    assert dtypes == {
        "f": ("float32", False),
        "i": ("int32", False),
        "b": ("bool", False),
        "n": ("float32", False),
        "weak": ("float32", False),
        "a": ("int32", False),
    }
    with jax.enable_x64(True):
        wide = strongly_typed({"f": 1.5, "i": 3, "kept": np.float32(1)})
        assert [wide[n].dtype.name for n in ("f", "i", "kept")] == ["float64", "int32", "float32"]
    key = jax.random.key(0)
    assert strongly_typed(key).dtype == key.dtype
    assert strongly_typed(None) is None


def test_is_concrete():
    assert is_concrete({"a": jnp.ones(2), "b": 1.0})
    seen = []
    jax.jit(lambda x: seen.append(is_concrete({"a": x, "b": 1.0})))(1.0)
    assert seen == [False]


# ---- the base class


@pytree
class CountParams:
    max_steps: jax.Array = 5
    end: jax.Array = 3
    leave: jax.Array = 99


@pytree
class CountState:
    time: jax.Array
    total: jax.Array


@dataclasses.dataclass(frozen=True)
class Count(Environment):
    """Adds its action; ends at a total, is cut at another."""

    id: str = dataclasses.field(default="Count", kw_only=True)
    Params = CountParams

    def initial(self, key, params):
        return CountState(jnp.int32(0), jnp.float32(0))

    def transition(self, key, state, action, params):
        state = state.replace(total=state.total + action)
        return Transition(state, state.total, state.total >= params.end, state.total >= params.leave, {})

    def observe(self, key, state, params):
        return state.total + 0 * jax.random.normal(key)

    def observation_space(self, params):
        return Box(0.0, 100.0)

    def action_space(self, params):
        return Discrete(4)

    def validate(self, params):
        if np.any(np.asarray(params.end) < 0):
            raise ValueError(f"end={params.end} must not be negative.")


def test_step_ticks_the_clock_and_returns_a_timestep():
    env = Count()
    params = env.default_params
    obs, state = env.reset(jax.random.key(0), params)
    assert obs == 0 and state.time == 0 and state.time.dtype == jnp.int32
    ts = env.step(jax.random.key(1), state, jnp.int32(2), params)
    obs, state, reward, terminated, truncated, info = ts
    assert obs == 2 and state.time == 1 and reward == 2 and not terminated and not truncated and info == {}
    assert ts.reward is reward
    # No auto-reset: what has ended goes on.
    ts = env.step(jax.random.key(2), state, 2, params)
    assert ts.terminated and ts.state.time == 2 and ts.obs == 4


@pytest.mark.parametrize(
    ("changes", "terminated", "truncated"),
    [
        ({}, [0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1]),
        ({"max_steps": 3}, [0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]),  # the time limit holds also when terminated
        ({"max_steps": NO_LIMIT, "end": 99, "leave": 4}, [0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1]),
        ({"max_steps": 1, "end": 99}, [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]),
    ],
)
def test_ends_are_never_merged(changes, terminated, truncated):
    env = Count()
    params = strongly_typed(CountParams(**changes))
    step = jax.jit(env.step)
    state = env.reset(jax.random.key(0), params)[1]
    for t in range(6):
        ts = step(jax.random.key(t), state, 1, params)
        state = ts.state
        assert (bool(ts.terminated), bool(ts.truncated)) == (bool(terminated[t]), bool(truncated[t])), t
        assert ts.terminated.dtype == ts.truncated.dtype == jnp.bool_ and ts.truncated.shape == ()


def test_actions_that_do_not_fit_are_refused_when_traced():
    env = Count()
    params = env.default_params
    state = env.reset(jax.random.key(0), params)[1]
    key = jax.random.key(0)
    with pytest.raises(ValueError, match=r"Count: the action has shape \(2,\); Discrete\(4\) needs \(\)"):
        env.step(key, state, jnp.zeros(2, int), params)
    with pytest.raises(ValueError, match=r"dtype float32; Discrete\(4\) needs an integer"):
        jax.jit(env.step)(key, state, 1.0, params)
    for dtype in (jnp.int8, jnp.uint8, jnp.int16, jnp.int32):
        assert env.step(key, state, jnp.asarray(1, dtype), params).obs == 1
    pendulum, swing = make("Pendulum-v1")
    state = pendulum.reset(key, swing)[1]
    with pytest.raises(ValueError, match=r"shape \(\); Box.*needs \(1,\)"):
        pendulum.step(key, state, 0.0, swing)
    with pytest.raises(ValueError, match=r"dtype bool.*needs a number"):
        pendulum.step(key, state, jnp.array([True]), swing)


def test_validate_sees_concrete_params_only():
    env = Count()
    bad = env.default_params.replace(end=jnp.int32(-1))
    with pytest.raises(ValueError, match="end=-1"):
        env.reset(jax.random.key(0), bad)
    jax.jit(env.reset)(jax.random.key(0), bad)
    with pytest.raises(ValueError, match="length"):
        env, params = make("CartPole-v1")
        env.reset(jax.random.key(0), params.replace(length=jnp.float32(0)))


ONE_OF_A_CLASS = {str(entry.target): id for id, entry in registry.environments().items() if not entry.extra}


@pytest.mark.filterwarnings("ignore")  # of what flies or turns badly
@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_no_number_of_params_may_be_nan_nor_infinite_unless_its_class_says_so(bad):
    accepted = []
    for id in ONE_OF_A_CLASS.values():
        env, params = make(id)
        leaves, tree = jax.tree_util.tree_flatten_with_path(params)
        numbers = [np.asarray(x) for _, x in leaves]
        for i, x in enumerate(numbers):
            name = jax.tree_util.keystr(leaves[i][0], simple=True, separator=".")
            may = bad in (env.infinite.get(name), *x[np.isinf(x)].tolist()) if x.dtype.kind == "f" else True
            if may or not x.size:
                continue
            other = x.copy()
            other.reshape(-1)[-1] = bad
            try:
                check_params(env, jax.tree.unflatten(tree, [*numbers[:i], other, *numbers[i + 1 :]]))
            except ValueError as error:
                assert len(str(error)) < 2000
            else:
                accepted.append((id, name))
    assert not accepted


def test_what_may_be_infinite_is_taken_and_drawn_and_its_negative_is_not():
    there = [id for id in ONE_OF_A_CLASS.values() if make(id)[0].infinite]
    assert set(there) >= {"CartPole-v1", "CartPoleSwingUp-v0", "Walker2d-v5", "Quadcopter-VelocityTracking-v0"}
    for id in there:
        env, params = make(id)
        for name, infinity in env.infinite.items():
            endless = params.replace(**{name: jnp.full_like(getattr(params, name), infinity)})
            check_params(env, endless)
            with pytest.raises(ValueError, match=name):
                check_params(env, params.replace(**{name: jnp.full_like(getattr(params, name), -infinity)}))
            if id.startswith("CartPole"):
                env.render(env.reset(jax.random.key(0), endless)[1], endless)
    sticky = StickyActions(make("CartPole-v1")[0])
    params = sticky.default_params
    check_params(sticky, params.replace(env=params.env.replace(x_max=jnp.float32(jnp.inf))))
    with pytest.raises(ValueError, match=r"env\.force_mag must be finite, not inf"):
        check_params(sticky, params.replace(env=params.env.replace(force_mag=jnp.float32(jnp.inf))))


def test_levels_are_judged_as_params_are():
    env, params = make("GaussianBandit-v0")
    level = env.levels.generate(jax.random.key(0), params)
    env.levels.validate(level)
    with pytest.raises(ValueError, match="mean must be a number, not nan"):
        env.levels.validate(level.replace(mean=level.mean.at[0].set(jnp.nan)))


@dataclasses.dataclass(frozen=True)
class Switched(Environment):
    on: bool = False


@pytest.mark.parametrize("switch", ["no", 1, None, np.array(True)])
def test_a_switch_is_true_or_false(switch):
    assert Switched(True).on and not Switched(np.bool_(False)).on
    with pytest.raises(ValueError, match="Switched: on=.* must be True or False"):
        Switched(switch)


@dataclasses.dataclass(frozen=True)
class SwitchedWrapper(Wrapper):
    on: bool | None = None
    size: int = 1
    static_ranges = {"size": (1, 3)}


def test_the_settings_of_a_wrapper_are_judged_too():
    env = make("CartPole-v1")[0]
    assert SwitchedWrapper(env, on=True, size=3).on and SwitchedWrapper(env).on is None
    for wrong in ({"on": "no"}, {"size": 4}):
        with pytest.raises(ValueError, match="CartPole-v1: (on|size)="):
            SwitchedWrapper(env, **wrong)


def test_environments_are_hashable_values():
    assert Count() == Count() and hash(Count()) == hash(Count()) and Count() != Count(id="Other")
    with pytest.raises(dataclasses.FrozenInstanceError):
        Count().id = "x"
    with pytest.raises(NotImplementedError, match="Count has no render"):
        Count().render(None, None)
    assert Count().num_agents == 1


def test_default_params_are_strong_in_the_precision_that_is_on():
    leaves = jax.tree.leaves(make("CartPole-v1")[1])
    assert {x.dtype.name for x in leaves} == {"int32", "float32"} and not any(x.weak_type for x in leaves)
    with jax.enable_x64(True):
        assert {x.dtype.name for x in jax.tree.leaves(make("CartPole-v1")[1])} == {"int32", "float64"}


def test_split_observation_by_reserved_keys():
    obs = {"image": 1, "mission": 2, "privileged": 3, "action_mask": 4}
    space = Dict({name: Box(0.0, 9.0) for name in obs})
    actor, critic, mask = split_observation(obs, space)
    assert actor == {"image": 1, "mission": 2} and critic == {"image": 1, "mission": 2, "privileged": 3} and mask == 4
    actor, critic, mask = split_observation({"image": 1}, space)
    assert actor == critic == {"image": 1} and mask is None
    array = jnp.ones(3)
    assert all(a is b for a, b in zip(split_observation(array, Box(0.0, 1.0, (3,))), (array, array, None), strict=True))
