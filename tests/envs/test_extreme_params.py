"""Params that `validate` accepts never end in an observation that is not finite or, while an episode goes on, outside
its space: the observation that ends one may be beyond the limit that ended it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import registry
from jaxrl.testing.assertions import members

STEPS = 40
FACTORS = (0.0, -1.0, 1e3, 1e-3)
AT_ONCE = 16
"""Rows in one program: of MJX's solver, whose loops go on until the last row is done, many take minutes."""
QUICK = ("CartPole-v1", "Pendulum-v1", "DigitsBandit-bsuite", "BernoulliBandit-v0")
IDS = sorted(registry.first_of_each_class().values())


def accepted(env, params):
    """`(names, params of these rows)`: each float leaf multiplied by each factor, where `validate` allows it."""
    leaves, tree = jax.tree.flatten(params)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    rows = []
    for i, x in enumerate(leaves):
        if not jnp.issubdtype(jnp.result_type(x), jnp.floating):
            continue
        for factor in FACTORS:
            changed = tree.unflatten([*leaves[:i], x * jnp.asarray(factor, x.dtype), *leaves[i + 1 :]])
            try:
                env.validate(changed)
            except ValueError:
                continue
            rows.append((f"{names[i]} x {factor:g}", changed))
    return rows


def judged(env, params):
    """Whether the observations of STEPS steps, with starts anew, are all finite and in the space of these params."""

    def observed(obs, params):
        finite = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(obs) if jnp.issubdtype(x.dtype, jnp.floating)]
        agents = int(env.num_agents > 1)
        inside = jnp.all(members(env.observation_space(params), obs, agents))
        return jnp.all(jnp.array([True, *finite])), inside

    obs, state = env.reset(jax.random.key(0), params)
    space = env.action_space(params)
    shape = (env.num_agents,) if env.num_agents > 1 else ()

    def body(carry, key):
        act_key, step_key, reset_key = jax.random.split(key, 3)
        draw = jax.vmap(space.sample)(jax.random.split(act_key, shape)) if shape else space.sample(act_key)
        ts = env.step(step_key, carry, draw, params)
        finite, inside = observed(ts.obs, params)
        seen = finite, inside | ts.terminated
        anew = env.reset(reset_key, params)[1]
        state = jax.tree.map(lambda a, b: jnp.where(ts.terminated | ts.truncated, a, b), anew, ts.state)
        return state, seen

    _, seen = jax.lax.scan(body, state, jax.random.split(jax.random.key(1), STEPS))
    first = observed(obs, params)
    return tuple(jnp.concatenate([a[None], b]).all() for a, b in zip(first, seen, strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "id", [i if i in QUICK else pytest.param(i, marks=[pytest.mark.slow, pytest.mark.light]) for i in IDS]
)
def test_what_validate_accepts_stays_finite_and_inside(id):
    env, params = jaxrl.make(id)
    rows = accepted(env, params)
    if not rows:
        return
    judge, bad = jax.jit(jax.vmap(lambda p: judged(env, p))), []
    size = min(AT_ONCE, len(rows))
    for first in range(0, len(rows), size):
        chunk = rows[first : first + size]
        whole = chunk + chunk[-1:] * (size - len(chunk))  # all chunks are of one shape
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *(row for _, row in whole))
        for (name, _), finite, inside in zip(
            chunk, *(np.asarray(x)[: len(chunk)] for x in judge(stacked)), strict=True
        ):
            if not (finite and inside):
                bad.append(f"{name}: {'outside' if finite else 'not finite'}")
    assert not bad, f"{id}: " + "; ".join(bad)
