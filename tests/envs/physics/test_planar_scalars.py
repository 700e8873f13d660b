"""A group of equations is computed once, before what reads it, and on a CPU in one kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.physics.planar.scalars import differentiated, once

N = 512  # more than a loop that XLA makes one kernel of by itself


def grouped(x, y, unread):
    """Numbers known as the program is written, arguments as results, one that nothing reads once XLA has simplified."""

    def inner():
        return {"same": x, "known": 2.0, "sum": x + y}

    def outer():
        found, chosen = once(inner), jax.lax.select(jnp.ones(N, bool), x * y, unread)
        return [found["known"], chosen * found["sum"], found["same"], y, jnp.ones(N), y]

    return once(outer)


def looped(x, y, unread):
    def step(carry, _):
        x, y, unread = carry
        known, product, same, other, one, again = grouped(x, y, unread)
        assert known == 2.0
        return (0.5 * same + 0.1 * other, jnp.sin(product), unread + one), product + again

    return jax.lax.scan(step, (x, y, unread), None, 3)


def by_hand(x, y, unread):
    products = []
    for _ in range(3):
        product = x * y * (x + y)
        products.append(product + y)
        x, y, unread = 0.5 * x + 0.1 * y, np.sin(product), unread + 1
    return (x, y, unread), np.stack(products)


def test_a_group_is_one_kernel_and_computes_what_it_says():
    args = tuple(np.linspace(low, 1, N, dtype=np.float32) for low in (-1, 0.2, 0.5))
    program = jax.jit(looped).lower(*args).compile()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), program(*args), by_hand(*args))
    if jax.default_backend() == "cpu":
        assert program.as_text().count('xla_cpu_small_call="true"') >= 2  # the group, and the one within


def test_a_group_in_a_batch_is_what_it_is_alone():
    rows = tuple(jnp.asarray(np.random.default_rng(n).normal(size=(3, N)), jnp.float32) for n in range(3))
    alone = [looped(*(x[i] for x in rows)) for i in range(3)]
    together = jax.jit(jax.vmap(looped))(*rows)
    jax.tree.map(lambda a, *b: np.testing.assert_allclose(a, np.stack(b), rtol=1e-5, atol=1e-6), together, *alone)


@pytest.mark.parametrize("inside", [False, True])
def test_derivatives_pass(inside):
    def value(x):
        with differentiated(inside):
            return jnp.sum(once(lambda: [x * jnp.sin(x)])[0])

    x = jnp.linspace(-1.0, 2.0, N)
    found = jax.jit(jax.grad(value))(x)
    np.testing.assert_allclose(found, jnp.sin(x) + x * jnp.cos(x), rtol=1e-5, atol=1e-6)
