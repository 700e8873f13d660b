"""Cells against plain loops in NumPy, and what holds for all of them: steps, resets, gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from jaxrl.nn.cells import CELLS, initial_carry, layer
from jaxrl.nn.cells import linear_scan as scans
from jaxrl.nn.cells.linear_attention import LEAST, gated_linear_attention
from jaxrl.nn.cells.s5 import _hippo
from jaxrl.nn.cells.window_attention import Cache, attend_window, rotate

KEY = jax.random.key(0)
T, N, F, H, WINDOW = 37, 3, 5, 16, 7  # longer than two chunks of linear attention and five windows, no multiple of them


@pytest.fixture
def case(made):
    with jax.enable_x64(True):
        yield made


@pytest.fixture(scope="module", params=CELLS)
def made(request):
    """A cell in float64 with weights away from their initial zeros, a used carry, inputs with resets."""
    with jax.enable_x64(True):
        cell = layer(request.param, H, window=WINDOW)
        keys = jax.random.split(KEY, 5)
        inputs = jax.random.normal(keys[0], (T, N, F))
        start = (
            jax.random.bernoulli(keys[1], 0.1, (T, N)).at[20, 0].set(True).at[0].set(jnp.array([True, False, False]))
        )
        carry = cell.initial_carry((N,))
        weights = jax.jit(cell.init)(keys[2], carry, inputs, start)
        weights = jax.tree.map(lambda w: w + 0.2 * jax.random.normal(keys[3], w.shape, jnp.float64), weights)
        run = jax.jit(cell.apply)
        carry = run(weights, carry, inputs[:5], jnp.zeros((5, N), bool))[0]
        return cell, weights, carry, inputs, start, run


def close(a, b, atol=1e-10):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol, rtol=0), a, b)


def test_steps_agree_with_the_sequence(case):
    _, weights, carry, inputs, start, run = case
    last, outputs = run(weights, carry, inputs, start)
    assert outputs.shape == (T, N, H)
    for t in range(T):
        carry, out = run(weights, carry, inputs[t : t + 1], start[t : t + 1])
        close(out[0], outputs[t])
    close(carry, last)


def test_a_reset_inside_equals_two_sequences(case):
    cell, weights, carry, inputs, _, run = case
    start = jnp.zeros((T, N), bool).at[20].set(True)
    whole, first = run(weights, carry, inputs, start), run(weights, carry, inputs[:20], start[:20])
    second = run(weights, cell.initial_carry((N,)), inputs[20:], start[20:].at[0].set(False))
    close(whole[1], jnp.concatenate([first[1], second[1]]))
    # What a carry holds of the time before its episode is never read, so it is compared by what follows from it.
    after = (inputs[:9], jnp.zeros((9, N), bool))
    close(run(weights, whole[0], *after)[1], run(weights, second[0], *after)[1])


@pytest.mark.slow
@pytest.mark.light
def test_gradients_are_finite_differences(case):
    _, weights, carry, inputs, start, run = case

    def loss(weights, carry, inputs):
        last, outputs = run(weights, carry, inputs, start)
        hidden = [h for h in jax.tree.leaves(last) if jnp.issubdtype(h.dtype, jnp.floating)]
        return jnp.sin(outputs).sum() + sum(jnp.cos(h).sum() for h in hidden)

    at = weights, carry, inputs
    gradient = jax.jit(jax.grad(loss, (0, 1, 2), allow_int=True))(*at)
    dots = jax.random.split(KEY, len(jax.tree.leaves(at)))

    def direction(x, key):
        return jax.random.normal(key, x.shape, x.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.zeros_like(x)

    along = jax.tree.map(direction, at, jax.tree.unflatten(jax.tree.structure(at), list(dots)))
    given = sum(
        jnp.vdot(g, d)
        for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(along), strict=True)
        if jnp.issubdtype(d.dtype, jnp.floating)
    )

    def moved(by):
        return loss(*jax.tree.map(lambda x, d: x + by * d if jnp.issubdtype(x.dtype, jnp.floating) else x, at, along))

    np.testing.assert_allclose(given, (moved(1e-6) - moved(-1e-6)) / 2e-6, rtol=1e-5)
    for path, g in jax.tree_util.tree_leaves_with_path(gradient[0]):
        assert jnp.abs(g).max() > 0, f"{path} has no gradient"


@pytest.mark.slow
@pytest.mark.light
def test_not_even_a_nan_passes_a_start(case):
    _, weights, carry, inputs, start, run = case
    inputs = inputs.at[5].set(jnp.nan)
    start = start.at[8].set(True)
    whole = run(weights, carry, inputs, start)[1]
    assert np.isnan(whole[5]).all() and np.isfinite(whole[8:]).all()
    broken = run(weights, carry, inputs[:6], start[:6])[0]
    assert np.isfinite(run(weights, broken, inputs[8:9], jnp.ones((1, N), bool))[1]).all()


@pytest.mark.slow
@pytest.mark.light
def test_nothing_passes_a_start(case):
    _, weights, carry, inputs, start, run = case
    gradient = jax.jit(jax.grad(lambda x: run(weights, carry, x, start)[1][20:, 0].sum()))(inputs)
    assert jnp.abs(gradient[:20, 0]).max() < 1e-14 and (gradient[20:, 0] != 0).any()  # chunks cancel to rounding
    assert (gradient[:, 1:] == 0).all()  # nor to the others of the batch


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", CELLS)
def test_carries_take_any_batch_shape(name):
    cell = layer(name, H, window=WINDOW)
    inputs, start = jax.random.normal(KEY, (4, 2, 3, F)), jnp.zeros((4, 2, 3), bool)
    carry = initial_carry(name, H, WINDOW, (2, 3))
    weights = cell.init(KEY, carry, inputs, start)
    last, outputs = cell.apply(weights, carry, inputs, start)
    assert jax.tree.map(jnp.shape, last) == jax.tree.map(jnp.shape, carry) and outputs.shape == (4, 2, 3, H)
    assert jax.tree.map(lambda x: x.dtype, last) == jax.tree.map(lambda x: x.dtype, carry)
    one = cell.apply(weights, initial_carry(name, H, WINDOW, ()), inputs[:, 1, 2], start[:, 1, 2])
    close(one, (jax.tree.map(lambda x: x[1, 2], last), outputs[:, 1, 2]), atol=1e-5)


def test_linear_scan_is_a_loop_on_every_platform_with_its_gradients():
    with jax.enable_x64(True):
        keys = jax.random.split(KEY, 5)
        first, inputs = jax.random.normal(keys[0], (N, H)), jax.random.normal(keys[1], (T, N, H))
        decay = jax.random.uniform(keys[2], (T, N, H)) * jnp.exp(1j * jax.random.normal(keys[3], (T, N, H)))
        start = jax.random.bernoulli(keys[4], 0.2, (T, N)).at[0, 1].set(True)[..., None]
        args = first + 0.5j * first, jnp.where(start, 0, decay), inputs - 0.3j * inputs

        def total(run, *args):
            h = run(*args, start)
            return jnp.sum(jnp.sin(h.real) + h.imag**2)

        expected, h = [], args[0]
        for t in range(T):
            h = decay[t] * h * ~start[t] + args[2][t]
            expected.append(h)
        plain = jax.jit(jax.grad(functools.partial(total, scans._loop), (0, 1, 2)))(*args)
        plain = plain[0], jnp.where(start, 0, plain[1]), plain[2]  # what a start cuts has no gradient
        for run in (scans._loop, scans._associative, scans._recurrence):
            close(jax.jit(run)(*args, start), jnp.stack(expected))
        close(jax.jit(jax.grad(functools.partial(total, scans._recurrence), (0, 1, 2)))(*args), plain)
        backwards = (first, decay.real, inputs, jnp.zeros_like(start))
        close(scans._associative(*backwards, reverse=True), scans._loop(*backwards, reverse=True))

        none = jnp.zeros((T, N), bool)
        tangent = jax.jvp(
            lambda x: scans.linear_scan(first, decay.real, x, none, forward_mode=True), (inputs,), (inputs,)
        )[1]
        close(tangent, scans.linear_scan(jnp.zeros_like(first), decay.real, inputs, none))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", ["min_gru", "lru", "s5", "linear_attention"])
def test_scans_of_accelerators_give_the_same(name, monkeypatch):
    cell = layer(name, H)
    inputs, start = jax.random.normal(KEY, (T, N, F)), jax.random.bernoulli(KEY, 0.1, (T, N))
    carry = cell.initial_carry((N,))
    weights = cell.init(KEY, carry, inputs, start)

    def everything():
        return jax.value_and_grad(lambda w: jnp.sin(cell.apply(w, carry, inputs, start)[1]).sum())(weights)

    on_a_cpu = everything()
    monkeypatch.setattr(scans, "on_cpu", lambda cpu, elsewhere, *args: elsewhere(*args))
    close(everything(), on_a_cpu, atol=2e-4)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", CELLS)
def test_steps_agree_with_the_sequence_in_float32(name):
    cell = layer(name, H, window=WINDOW)
    inputs, start = jax.random.normal(KEY, (T, N, F)), jax.random.bernoulli(KEY, 0.1, (T, N))
    carry = cell.initial_carry((N,))
    weights = cell.init(KEY, carry, inputs, start)
    _, outputs = cell.apply(weights, carry, inputs, start)
    _, steps = jax.lax.scan(lambda carry, x: cell.apply(weights, carry, *(y[None] for y in x)), carry, (inputs, start))
    close(steps[:, 0], outputs, atol=2e-5)


def in_numpy(name):
    """`(cell, weights as NumPy arrays, inputs, outputs)` of one sequence without resets, in float64."""
    with jax.enable_x64(True):
        cell = layer(name, H, window=WINDOW)
        inputs, start = jax.random.normal(KEY, (T, 1, F)), jnp.zeros((T, 1), bool)
        carry = cell.initial_carry((1,))
        weights = cell.init(jax.random.key(1), carry, inputs, start)
        weights = jax.tree.map(lambda w: np.asarray(w, float), weights)
        return (
            weights["params"],
            np.asarray(inputs)[:, 0],
            np.asarray(cell.apply(weights, carry, inputs, start)[1])[:, 0],
        )


def dense(p, x):
    return x @ p["kernel"] + p.get("bias", 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normed(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)


def gelu(x):
    return np.asarray(jax.nn.gelu(x))


def test_min_gru_is_its_equations():
    p, x, outputs = in_numpy("min_gru")
    h = np.zeros(H)
    for t in range(T):
        z = sigmoid(dense(p["gate"], x[t]))
        h = (1 - z) * h + z * dense(p["candidate"], x[t])
        np.testing.assert_allclose(outputs[t], h, atol=1e-12)


def test_lru_is_its_equations():
    p, inputs, outputs = in_numpy("lru")
    eigenvalues = np.exp(-np.exp(p["nu"]) + 1j * np.exp(p["theta"]))
    assert (np.abs(eigenvalues) >= 0.9 - 1e-6).all() and (np.abs(eigenvalues) <= 0.999 + 1e-6).all()
    np.testing.assert_allclose(np.exp(p["gamma"]), np.sqrt(1 - np.abs(eigenvalues) ** 2), rtol=1e-3)
    b, c = p["B"]["kernel"].T, p["C"]["kernel"].T
    b, c = b[:H] + 1j * b[H:], c[:, :H] - 1j * c[:, H:]  # Re(c h) with h = (real, imaginary)
    h, residual = np.zeros(H, complex), dense(p["inputs"], inputs)
    for t in range(T):
        x = normed(residual[t])
        h = eigenvalues * h + np.exp(p["gamma"]) * (b @ x)
        y = gelu((c @ h).real + p["D"] * x)
        np.testing.assert_allclose(
            outputs[t], residual[t] + dense(p["glu"], y) * sigmoid(dense(p["glu_gate"], y)), atol=1e-6
        )


def test_s5_begins_as_hippo_and_is_held_between_steps():
    eigenvalues, vectors = _hippo(H)
    both, pairs = np.concatenate([eigenvalues, eigenvalues.conj()]), np.hstack([vectors, vectors.conj()])
    np.testing.assert_allclose(pairs.conj().T @ pairs, np.eye(H), atol=1e-10)
    n, k = np.arange(H)[:, None], np.arange(H)
    legs = -np.where(n > k, np.sqrt((2 * n + 1) * (2 * k + 1)), np.where(n == k, n + 1.0, 0))
    p = np.sqrt(np.arange(H) + 0.5)
    np.testing.assert_allclose((pairs * both) @ pairs.conj().T, legs + np.outer(p, p), atol=1e-8)

    # With one time step for all states the cell is the dense system, integrated exactly while an input is held.
    weights, inputs, outputs = in_numpy("s5")
    b, c = weights["B"]["kernel"].T, weights["C"]["kernel"].T
    b, c = b[: H // 2] + 1j * b[H // 2 :], (c[:, : H // 2] - 1j * c[:, H // 2 :]) / 2
    x, residual = np.zeros(H // 2, complex), dense(weights["inputs"], inputs)
    for t in range(T):
        u = normed(residual[t])
        for i, step in enumerate(np.exp(weights["log_step"])):
            held = np.array([[weights["real"][i] + 1j * weights["imaginary"][i], (b @ u)[i]], [0, 0]])
            x[i] = (scipy.linalg.expm(held * step) @ [x[i], 1])[0]
        y = gelu(2 * (c @ x).real + weights["D"] * u)
        np.testing.assert_allclose(outputs[t], residual[t] + y * sigmoid(dense(weights["gate"], y)), atol=1e-6)


def test_linear_attention_is_its_recurrence_also_where_it_forgets_all():
    with jax.enable_x64(True):
        keys = jax.random.split(KEY, 6)
        q, k, v = (jax.random.normal(key, (T, N, 2, 4)) for key in keys[:3])
        log_decay = -jnp.exp(2 * jax.random.normal(keys[3], (T, N, 2, 4)))
        log_decay = log_decay.at[11].set(-1e4)
        start = jax.random.bernoulli(keys[4], 0.1, (T, N))
        first = jax.random.normal(keys[5], (N, 2, 4, 4))
        last, outputs = jax.jit(gated_linear_attention)(first, q, k, v, log_decay, start)
        state = np.asarray(first)
        for t in range(T):
            kept = np.exp(np.maximum(log_decay[t], LEAST)) * ~np.asarray(start)[t][:, None, None]
            state = kept[..., None] * state + np.asarray(k[t])[..., None] * np.asarray(v[t])[..., None, :]
            np.testing.assert_allclose(outputs[t], np.einsum("nhd,nhde->nhe", q[t], state), atol=1e-11)
        np.testing.assert_allclose(last, state, atol=1e-11)
    single = [x.astype(jnp.float32) for x in (first, q, k, v, jnp.full_like(log_decay, -1e4))]
    assert np.isfinite(gated_linear_attention(*single, start)[1]).all()


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("steps", [1, 5, WINDOW, T])
def test_window_attention_is_a_softmax_over_the_window(steps):
    """Also with more steps in the cache than are of the episode: they are not seen."""
    with jax.enable_x64(True):
        keys = jax.random.split(KEY, 7)
        q, k, v = (jax.random.normal(key, (steps, N, 8)) for key in keys[:3])
        cached = [jax.random.normal(key, (N, WINDOW, 8)) for key in keys[3:5]]
        length = jnp.array([0, 3, WINDOW], jnp.int32)
        start = jax.random.bernoulli(keys[5], 0.1, (steps, N))
        cache, outputs = jax.jit(attend_window, static_argnums=5)(Cache(*cached, length), q, k, v, start, 2)
        keys_of, values_of = (
            np.concatenate([np.moveaxis(np.asarray(old), 1, 0), np.asarray(x)]).reshape(-1, N, 2, 4)
            for old, x in zip(cached, (k, v), strict=True)
        )
        turned = np.asarray(rotate(jnp.moveaxis(jnp.asarray(keys_of), 1, 0), jnp.arange(WINDOW + steps)))
        asked = np.asarray(rotate(jnp.moveaxis(q.reshape(-1, N, 2, 4), 1, 0), WINDOW + jnp.arange(steps)))
        for n in range(N):
            age = int(length[n])
            for t in range(steps):
                age = 0 if start[t, n] else age + (t > 0)
                seen = range(WINDOW + t - min(age, WINDOW), WINDOW + t + 1)
                for head in range(2):
                    scores = np.array([asked[n, t, head] @ turned[n, s, head] for s in seen]) / 2
                    weight = np.exp(scores - scores.max())
                    mixed = sum(w * values_of[s, n, head] for w, s in zip(weight / weight.sum(), seen, strict=True))
                    np.testing.assert_allclose(outputs[t, n, 4 * head : 4 * head + 4], mixed, atol=1e-10)
            assert cache.length[n] == min(age + 1, WINDOW)


def test_rotated_scores_depend_on_distances():
    with jax.enable_x64(True):
        q, k = jax.random.normal(KEY, (2, 1, 1, 1, 8))
        scores = [(rotate(q, jnp.array([i])) * rotate(k, jnp.array([i - 3]))).sum() for i in (3, 10, 500)]
        np.testing.assert_allclose(scores, scores[0], atol=1e-10)


def test_frames_are_the_last_inputs_and_zeros_before_the_episode():
    weights, inputs, outputs = in_numpy("frames")
    x = np.concatenate([np.zeros((WINDOW, H)), dense(weights["inputs"], inputs)])
    stacked = np.stack([x[t : t + WINDOW + 1].reshape(-1) for t in range(T)])
    np.testing.assert_allclose(outputs, np.tanh(dense(weights["stack"], stacked)), atol=1e-10)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: layer("gated", 8), "rnn='gated' is unknown; use one of gru, lstm, min_gru"),
        (lambda: layer("minGRU", 8), "min_gru is near"),
        (lambda: initial_carry("s5", 7, 1, ()), "size 7 is odd"),
        (lambda: initial_carry("linear_attention", 6, 1, ()), "size 6 is no multiple of 4 heads"),
        (lambda: initial_carry("attention", 12, 1, ()), "size 12 is no multiple of 8"),
        (lambda: initial_carry("attention", 8, 0, ()), "window=0 must be at least 1"),
        (lambda: initial_carry("frames", 8, 0, ()), "window=0 must be at least 1"),
    ],
)
def test_refusals(make, says):
    with pytest.raises(ValueError, match=says):
        make()
