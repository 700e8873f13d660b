"""Signal temporal logic: against the recursive definition, on random formulas and short signals."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl.exact import stl

P = stl.predicate(lambda s: s["x"][:, 0])
Q = stl.predicate(lambda s: s["x"][:, 1])
R = stl.predicate(lambda s: s["x"][:, 1] - 2 * s["y"])
LENGTHS = (1, 2, 7)


def value(formula, signal, t):
    """The definition, in Python: min and max over lists."""
    length = len(signal["x"])

    def window(start, end):
        return range(t + start, min(length - 1, length - 1 if end is None else t + end) + 1)

    match formula:
        case stl.Predicate(fn):
            return float(fn(signal)[t])
        case stl.Not(f):
            return -value(f, signal, t)
        case stl.Or(parts):
            return max(value(f, signal, t) for f in parts)
        case stl.Eventually(f, a, b):
            return max((value(f, signal, s) for s in window(a, b)), default=-math.inf)
        case stl.Until(f, g, a, b):
            pairs = ((value(g, signal, s), [value(f, signal, r) for r in range(t, s + 1)]) for s in window(a, b))
            return max((min(x, *held) for x, held in pairs), default=-math.inf)


def holds(formula, signal, t):
    """Boolean semantics, independent of the values' size."""
    length = len(signal["x"])
    match formula:
        case stl.Predicate(fn):
            return bool(fn(signal)[t] > 0)
        case stl.Not(f):
            return not holds(f, signal, t)
        case stl.Or(parts):
            return any(holds(f, signal, t) for f in parts)
        case stl.Eventually(f, a, b):
            last = length - 1 if b is None else t + b
            return any(holds(f, signal, s) for s in range(t + a, min(last, length - 1) + 1))
        case stl.Until(f, g, a, b):
            last = length - 1 if b is None else t + b
            return any(
                holds(g, signal, s) and all(holds(f, signal, r) for r in range(t, s + 1))
                for s in range(t + a, min(last, length - 1) + 1)
            )


windows = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 4)).map(
    lambda w: (w[0], None if w[1] is None else w[0] + w[1])
)


# Descriptions, built in the test: run-time type checks draw random numbers, which hypothesis refuses in a strategy.
OPERATORS = {
    "not": lambda f: ~f,
    "and": lambda f, g: f & g,
    "or": lambda f, g: f | g,
    "implies": stl.implies,
    "eventually": lambda f, w: stl.eventually(f, *w),
    "always": lambda f, w: stl.always(f, *w),
    "until": lambda f, g, w: stl.until(f, g, *w),
}


def described(children):
    return st.one_of(
        st.tuples(st.just("not"), children),
        st.tuples(st.sampled_from(["and", "or", "implies"]), children, children),
        st.tuples(st.sampled_from(["eventually", "always"]), children, windows),
        st.tuples(st.just("until"), children, children, windows),
    )


descriptions = st.recursive(st.sampled_from(["P", "Q", "R"]), described, max_leaves=4)


def built(description):
    if isinstance(description, str):
        return {"P": P, "Q": Q, "R": R}[description]
    operator, *parts = description
    return OPERATORS[operator](*(p if i and isinstance(p[0], int) else built(p) for i, p in enumerate(parts)))


@st.composite
def signals(draw, lengths=LENGTHS):
    length = draw(st.sampled_from(lengths))
    numbers = draw(st.lists(st.integers(-9, 9), min_size=3 * length, max_size=3 * length))
    table = np.array(numbers, np.float32).reshape(length, 3) / 4
    return {"x": table[:, :2], "y": table[:, 2]}


@pytest.mark.slow
@pytest.mark.light
@given(descriptions, signals())
def test_robustness_is_the_recursive_definition(description, signal):
    formula = built(description)
    wanted = [value(formula, signal, t) for t in range(len(signal["x"]))]
    np.testing.assert_array_equal(stl.rho(formula, signal), wanted)


@pytest.mark.slow
@pytest.mark.light
@given(descriptions, signals())
def test_its_sign_is_the_boolean_semantics(description, signal):
    formula = built(description)
    wanted = np.array([holds(formula, signal, t) for t in range(len(signal["x"]))])
    np.testing.assert_array_equal(stl.satisfied(formula, signal), wanted)
    robustness = np.asarray(stl.rho(formula, signal))
    assert np.all(wanted[robustness > 0]) and not np.any(wanted[robustness < 0])


@pytest.mark.slow
@given(descriptions, signals())
@settings(max_examples=25)
def test_a_smaller_change_of_the_predicates_leaves_the_verdict(description, signal):
    formula = built(description)
    robustness = stl.rho(formula, signal)[0]
    size = min(abs(float(robustness)), 10.0) * 0.24  # R changes by at most three times of what x and y do
    moved = jax.tree.map(lambda x: x + size * np.sign(np.sin(7.0 * np.arange(x.size)).reshape(x.shape)), signal)
    if size > 0:
        assert bool(stl.satisfied(formula, moved)[0]) == bool(robustness > 0)


@pytest.mark.slow
@pytest.mark.light
@given(descriptions, signals(), st.sampled_from([0.02, 0.3]))
def test_smooth_values_are_within_their_bound(description, signal, temperature):
    formula = built(description)
    exact = np.asarray(stl.rho(formula, signal))
    smooth = np.asarray(stl.rho(formula, signal, temperature))
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(smooth[~finite], exact[~finite])
    bound = stl.smoothing_error(formula, len(exact), temperature)
    assert np.all(np.abs(smooth[finite] - exact[finite]) <= bound + 1e-5)


@pytest.mark.slow
@pytest.mark.light
@given(descriptions, signals((7,)))
@settings(max_examples=25)
def test_smooth_derivatives_are_finite_and_conserve_the_scale(description, signal):
    formula = built(description)
    temperature = 0.5
    number = stl.rho(formula, signal)[0]
    gradient = jax.grad(lambda s: stl.rho(formula, s, temperature)[0])(signal)
    assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves(gradient))
    # Every operator's derivatives are a convex combination: adding c to P and Q raises what is not negated by c.
    if np.isfinite(number) and not {stl.Not} & kinds(formula) and R not in stl.predicates(formula):
        np.testing.assert_allclose(sum(jnp.sum(g) for g in jax.tree.leaves(gradient)), 1, rtol=1e-4)


def kinds(formula):
    return {type(formula)}.union(*(kinds(f) for f in stl._children(formula)))


@pytest.mark.slow
@pytest.mark.light
@given(descriptions, signals())
def test_the_monitor_gives_the_robustness_of_each_prefix(description, signal):
    formula = built(description)
    length = len(signal["x"])
    watch = stl.monitor(formula, length=length)
    carry = watch.init(jnp.float32)
    shapes = jax.tree.map(jnp.shape, carry)
    for t in range(length):
        carry, robustness = watch.update(carry, jax.tree.map(lambda x, t=t: x[t], signal))
        prefix = jax.tree.map(lambda x, t=t: x[: t + 1], signal)
        assert float(robustness) == value(formula, prefix, 0)
    assert jax.tree.map(jnp.shape, carry) == shapes


@pytest.mark.slow
@pytest.mark.light
@given(descriptions, signals((7,)))
@settings(max_examples=25)
def test_the_smooth_monitor_is_within_the_bound(description, signal):
    formula = built(description)
    watch = stl.monitor(formula, 0.3, length=7)
    carry = watch.init(jnp.float32)
    for t in range(7):
        carry, smooth = watch.update(carry, jax.tree.map(lambda x, t=t: x[t], signal))
    exact = float(stl.rho(formula, signal)[0])
    if math.isfinite(exact):
        assert abs(float(smooth) - exact) <= stl.smoothing_error(formula, 7, 0.3) + 1e-5
    else:
        assert float(smooth) == exact


def long_signal(length=300):
    x = np.random.default_rng(0).normal(size=(length, 2)).cumsum(0) / 8
    return {"x": jnp.asarray(x, jnp.float32), "y": jnp.asarray(np.sin(np.arange(length)), jnp.float32)}


NESTED = stl.always(stl.implies(P, stl.eventually(Q, 2, 13)), 5, 250) & stl.until(P | Q, stl.always(R, 0, 3), 4)


@pytest.mark.slow
@pytest.mark.light
def test_a_monitor_in_a_scan_under_jit_and_vmap():
    watch = stl.monitor(NESTED)
    signal = long_signal()

    @jax.jit
    def run(signal):
        return jax.lax.scan(watch.update, watch.init(), signal)[1]

    alone = run(signal)
    wanted = [float(stl.rho(NESTED, jax.tree.map(lambda x, t=t: x[: t + 1], signal))[0]) for t in (0, 7, 60, 299)]
    np.testing.assert_array_equal(alone[jnp.array([0, 7, 60, 299])], wanted)
    batch = jax.tree.map(lambda x: jnp.stack([x, -x]), signal)
    np.testing.assert_array_equal(jax.vmap(run)(batch)[0], alone)


def test_no_loop_over_time_and_log_many_operations():
    def operations(length):
        formula = stl.until(stl.always(P, 3, None), Q, 2, None)
        return len(jax.make_jaxpr(functools.partial(stl.rho, formula))(long_signal(length)).eqns)

    assert operations(4096) <= operations(256) + 4 * 20  # four doublings more
    assert "while" not in str(jax.make_jaxpr(functools.partial(stl.rho, NESTED))(long_signal()))


@pytest.mark.slow
@pytest.mark.light
def test_every_sample_has_a_smooth_derivative_and_ascent_satisfies():
    """Leung et al. 2020: a signal is moved until it satisfies the formula, by gradient ascent alone."""
    formula = stl.eventually(stl.always(P, 0, 3), 0, 10) & stl.always(Q, 5, 15)
    signal = {"x": -jnp.ones((20, 2)), "y": jnp.zeros(20)}
    gradient = jax.jit(jax.grad(lambda s: stl.rho(formula, s, 0.2)[0]))
    first = gradient(signal)["x"]
    assert np.all(np.asarray(first[:14, 0]) > 0) and np.all(np.asarray(first[5:16, 1]) > 0)
    assert not np.any(first[14:, 0]) and not np.any(first[:5, 1])
    for _ in range(60):
        signal = jax.tree.map(lambda x, g: x + 2.0 * g, signal, gradient(signal))
    assert float(stl.rho(formula, signal)[0]) > 0 and bool(stl.satisfied(formula, signal)[0])


@pytest.mark.slow
@pytest.mark.light
def test_float64_follows_the_signal():
    with jax.enable_x64(True):
        signal = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), long_signal(20))
        assert stl.rho(NESTED, signal).dtype == jnp.float64
        watch = stl.monitor(NESTED)
        carry, robustness = watch.update(watch.init(), jax.tree.map(lambda x: x[0], signal))
        assert robustness.dtype == jnp.float64
        assert jax.tree.map(lambda x: x.dtype, carry) == jax.tree.map(lambda x: x.dtype, watch.init())
        narrow = stl.monitor(NESTED).init(jnp.float32)
        assert {x.dtype for x in jax.tree.leaves(narrow)} == {jnp.dtype("float32"), jnp.dtype("int32")}


def test_formulas_are_values():
    assert stl.eventually(P & Q, 0, 3) == stl.eventually(P & Q, 0, 3) != stl.eventually(P & Q, 0, 4)
    assert len({stl.always(P), stl.always(P), stl.always(Q)}) == 2
    assert ~~P is P and (P | Q | R).parts == (P, Q, R) and (P & Q & R) == ~(~P | ~Q | ~R)
    assert stl.predicates(stl.until(P, Q & P)) == (P, Q)


def test_horizon():
    assert stl.horizon(P & ~Q) == 0
    assert stl.horizon(stl.always(stl.eventually(P, 2, 5) | Q, 0, 10)) == 15
    assert stl.horizon(stl.until(stl.eventually(P, 0, 7), Q, 1, 2)) == 9
    assert stl.horizon(stl.always(P | stl.eventually(Q))) is None
    assert stl.horizon(stl.always(P | stl.eventually(Q)), 20) == 19


def test_integers_are_numbers():
    signal = long_signal(7)
    whole = stl.predicate(lambda s: jnp.round(4 * s["x"][:, 0]).astype(jnp.int32))
    real = stl.predicate(lambda s: jnp.round(4 * s["x"][:, 0]))
    for make in (lambda p: stl.always(p, 5, 9), lambda p: ~p & stl.eventually(p, 2, 3), lambda p: stl.always(p, 8)):
        robustness = stl.rho(make(whole), signal)
        assert robustness.dtype == jnp.float32
        np.testing.assert_array_equal(robustness, stl.rho(make(real), signal))
        watch = stl.monitor(make(whole))
        values = jax.lax.scan(watch.update, watch.init(), signal)[1]
        np.testing.assert_array_equal(values[-1], robustness[0])
    assert stl.rho(stl.always(whole, 8), signal)[0] == jnp.inf


def test_truth_values_are_refused():
    truth = stl.predicate(lambda s: s["x"][:, 0] > 0)
    for use in (stl.rho, stl.satisfied, lambda f, s: stl.monitor(f).update(stl.monitor(f).init(), {"x": s["x"][0]})):
        with pytest.raises(ValueError, match="gives truth values; it needs numbers, positive where true"):
            use(stl.eventually(truth, 2, 3), long_signal(7))


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"window \[3, 1\]"):
        stl.eventually(P, 3, 1)
    with pytest.raises(ValueError, match=r"until: the window \[-1, None\]"):
        stl.until(P, Q, -1)
    with pytest.raises(ValueError, match=r"shape \(7, 2\)"):
        stl.rho(stl.predicate(lambda s: s["x"]), long_signal(7))
    with pytest.raises(ValueError, match="without end inside another one"):
        stl.monitor(stl.always(stl.eventually(P)))
