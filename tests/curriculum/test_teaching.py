"""Level functions from named ranges, the teachers' history, and computing only when any of a batch needs it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.curriculum.teaching import dimensions_of, latest, no_history, ranges, remember, unit
from jaxrl.environment import pytree
from jaxrl.math import rarely


@pytree
class Machine:
    r_s: jax.Array = 0.1


@pytree
class Params:
    max_steps: jax.Array = 10
    inertia: jax.Array = (1.0, 2.0, 3.0)
    machine: Machine = Machine()

    def __post_init__(self):
        if isinstance(self.inertia, tuple):
            object.__setattr__(self, "inertia", jnp.array(self.inertia))


@pytree
class Whole:
    steps: jax.Array = 3


def test_named_leaves_go_where_x_says():
    level_at = ranges(Params(), {"machine.r_s": (0.2, 0.4), "inertia": (0.0, [1.0, 2.0, 4.0])})
    assert level_at.dimensions == 4
    level = jax.jit(level_at)(Params(), jnp.array([0.5, 0.0, 0.5, 1.0]))
    np.testing.assert_allclose(level.machine.r_s, 0.3)
    np.testing.assert_allclose(level.inertia, [0, 1, 4])
    assert level.max_steps == 10
    assert hash(level_at) == hash(ranges(Params(), {"machine.r_s": (0.2, 0.4), "inertia": (0.0, [1.0, 2.0, 4.0])}))


def test_an_environments_params_keep_their_types():
    env, params = jaxrl.make("CartPole-v1")
    level_at = ranges(params, {"length": (0.2, 3.0), "mass_pole": (0.05, 1.0)})
    level = level_at(params, jnp.array([0.0, 1.0]))
    types = [[jnp.result_type(leaf) for leaf in jax.tree.leaves(tree)] for tree in (level, params)]
    assert types[0] == types[1]
    np.testing.assert_allclose([level.length, level.mass_pole, level.gravity], [0.2, 1.0, params.gravity], rtol=1e-6)


@pytest.mark.parametrize(
    ("params", "bounds", "says"),
    [
        (Params(), {"machine.rs": (0, 1)}, "no leaf 'machine.rs'; did you mean 'machine.r_s'"),
        (Params(), {"machine": (0, 1)}, "no leaf 'machine'.*They have max_steps, inertia, machine.r_s"),
        (Params(), {"max_steps": (1, 9)}, "max_steps is int32: only leaves of floating point"),
        (Params(), {"inertia": (1.0, 1.0)}, "inertia: the range from 1.0 to 1.0 is empty"),
        (Params(), {"inertia": (1.0, np.inf)}, "inertia: .* finite"),
        (Params(), {"inertia": (1.0, [2.0, 2.0])}, r"inertia has shape \(3,\); its bounds have \(\) and \(2,\)"),
        (Params(), {}, "ranges of no parameter: name some of inertia, machine.r_s"),
        (Whole(), {"steps": (0, 1)}, "Whole has no leaf of floating point that a teacher could vary; it has steps"),
        ((), {}, "tuple has no leaf"),
    ],
)
def test_refuses_ranges(params, bounds, says):
    with pytest.raises(ValueError, match=says):
        ranges(params, bounds)


def test_a_level_function_refuses_what_does_not_fit():
    level_at = ranges(Params(), {"machine.r_s": (0.2, 0.4)})
    with pytest.raises(ValueError, match=r"x has shape \(2,\); machine.r_s need \(1,\)"):
        level_at(Params(), jnp.zeros(2))
    with pytest.raises(ValueError, match="no leaf 'machine.r_s'"):
        level_at(Machine(), jnp.zeros(1))


def test_dimensions():
    level_at = ranges(Params(), {"inertia": (0.0, 1.0)})
    assert dimensions_of(level_at, None) == dimensions_of(level_at, 3) == 3
    assert dimensions_of(lambda params, x: x, 2) == 2
    with pytest.raises(ValueError, match="dimensions=2: level_at varies 3"):
        dimensions_of(level_at, 2)
    with pytest.raises(ValueError, match="dimensions=None: say how long"):
        dimensions_of(lambda params, x: x, None)
    with pytest.raises(ValueError, match="dimensions=0"):
        dimensions_of(lambda params, x: x, 0)


@pytest.mark.slow
def test_a_history_keeps_the_latest_valid_rows():
    kept, held = no_history(4, 1), []
    rng = np.random.default_rng(0)
    for i in range(8):
        rows = jnp.arange(6.0)[:, None] + 10 * i
        valid = rng.random(6) < (0.3 if i < 6 else 1.0)
        held += np.asarray(rows)[valid, 0].tolist()
        kept = remember(kept, rows, jnp.asarray(valid))
        assert kept.count == len(held) and kept.filled.sum() == min(4, len(held))
        if len(held) >= 3:
            np.testing.assert_array_equal(latest(kept, 3)[:, 0], held[-3:])


def test_unit():
    np.testing.assert_allclose(unit(jnp.array([-200.0, -150.0, 100.0, 350.0, 400.0]), -150.0, 350.0), [0, 0, 0.5, 1, 1])


def test_rarely_computes_only_when_any_needs_it():
    calls = []

    def choose(needed, x):
        def compute():
            jax.debug.callback(lambda: calls.append(1))
            return 2 * x

        return rarely(needed, compute, x)

    batched = jax.jit(jax.vmap(choose))
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(batched(jnp.zeros(3, bool), x), x)
    jax.effects_barrier()
    assert not calls
    np.testing.assert_array_equal(batched(jnp.array([False, True, False]), x), [0, 2, 2])
    jax.effects_barrier()
    assert calls
    twice = jax.vmap(jax.vmap(choose))(jnp.array([[False, True]]), jnp.ones((1, 2)))
    np.testing.assert_array_equal(twice, [[1, 2]])
    assert choose(jnp.bool_(True), 3.0) == 6


def test_ranges_are_drawn_from_where_no_teacher_chooses():
    """dr, plr, accel and sfl take a level function of (key, params): of ranges, their `draw`."""
    from jaxrl.algos.curricula import accel, dr, plr, sfl

    params = {"length": jnp.float32(1.0), "mass": jnp.float32(2.0)}
    box = ranges(params, {"length": (3.0, 4.0)})
    level = box.draw(jax.random.key(0), params)
    assert 3 <= level["length"] <= 4 and level["mass"] == 2
    curriculum = dr.make(box)
    batch, _ = curriculum.sample(jax.random.key(1), params, jnp.ones(16, bool))
    assert batch.params["length"].min() >= 3 and np.ptp(batch.params["length"]) > 0.3
    for cur in (plr.make(box), accel.make(box, lambda key, level: level), sfl.make(box)):
        assert cur.settings[0] == dr.make(box).settings[0]
