"""Brax's environments through the adapter, against Brax's own steps."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.envs.physics import brax_task
from jaxrl.envs.physics.brax_task import BraxTask
from jaxrl.envs.physics.ids import BRAX
from jaxrl.envs.physics.task import scaled

KEY = jax.random.key(0)
QUICK = ("inverted_pendulum", "spring")
PAIRS = sorted({*((name, "spring") for name in BRAX if name != "swimmer"), ("swimmer", "generalized")})
PAIRS += [("hopper", backend) for backend in ("generalized", "positional", "mjx")]


@functools.cache
def trajectories(name: str, backend: str, steps: int) -> Any:
    """`(ours, Brax's)` observations, rewards, ends and metrics of the same actions, to the end of the first episode."""
    env: Any = jaxrl.make(f"Brax-{name}", backend=backend)[0]
    params, own = env.default_params, brax_task.load(name, backend)

    @jax.jit
    def both(params: Any, actions: Any) -> Any:
        brax = env.under(params.model)  # the same numbers, not constants that the compiler folds
        start, (obs, state) = brax.reset(KEY), env.reset(KEY, params)

        def step(carry: Any, action: Any) -> Any:
            theirs, state = brax.step(carry[0], action), env.step(KEY, carry[1], action, params)
            found = (state.obs, state.reward, state.terminated, state.info)
            return (theirs, state.state), (found, (theirs.obs, theirs.reward, theirs.done > 0, theirs.metrics))

        return (obs, start.obs), jax.lax.scan(step, (start, state), actions)[1]

    actions = jax.random.uniform(KEY, (steps, own.action_size), minval=-1.0)
    (ours, theirs), found = jax.device_get(both(params, actions))
    np.testing.assert_array_equal(ours, theirs)
    return found


def check_parity(name: str, backend: str) -> None:
    (obs, reward, end, info), (their_obs, their_reward, their_end, metrics) = trajectories(name, backend, 1000)
    last = int(np.argmax(end)) if end.any() else len(end)
    assert last >= (10 if name != "inverted_pendulum" else 5)
    scale = 1 + np.abs(their_obs[: last + 1])
    np.testing.assert_allclose(obs[: last + 1] / scale, their_obs[: last + 1] / scale, atol=1e-5)
    np.testing.assert_allclose(reward[: last + 1], their_reward[: last + 1], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(end[: last + 1], their_end[: last + 1])
    assert info.keys() == metrics.keys()
    for term in info:
        np.testing.assert_allclose(info[term][: last + 1], metrics[term][: last + 1], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.light
def test_parity():
    check_parity(*QUICK)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "backend"), [pair for pair in PAIRS if pair != QUICK])
def test_every_environment_and_backend_agrees(name, backend):
    check_parity(name, backend)


def perturbed(params: Any) -> Any:
    """Params with every number of the model changed in turn, the first as they are, along a leading axis."""
    names = sorted(params.model)

    def one(n: int, name: str) -> Any:
        return jnp.where(n == names.index(name) + 1, 0.7 * params.model[name] + 0.01, params.model[name])

    rows = [{name: one(n, name) for name in names} for n in range(len(names) + 1)]
    return names, jax.tree.map(lambda *x: jnp.stack(x), *rows)


@pytest.mark.slow
@pytest.mark.parametrize("backend", brax_task.BACKENDS)
def test_every_leaf_acts(backend):
    """Each number of a fallen hopper's model changes what it does: none is there for show."""
    env, params = jaxrl.make("Brax-hopper", backend=backend)
    names, models = perturbed(params)
    actions = jax.random.uniform(KEY, (150, 3), minval=-1.0)

    @jax.jit
    @jax.vmap
    def last(model: Any) -> Any:
        own = params.replace(model=model)
        state = env.reset(KEY, own)[1]
        state = jax.lax.scan(lambda s, a: (env.step(KEY, s, a, own).state, None), state, actions)[0]
        return state.env.obs

    first, *others = np.asarray(last(models))
    dead = [name for name, obs in zip(names, others, strict=True) if np.array_equal(obs, first)]
    assert not dead


@pytest.mark.slow
def test_episodes_start_afresh_and_ends_are_told_apart():
    env, params = jaxrl.make("Brax-hopper", backend="spring")
    venv = jaxrl.vectorize(env, 8)
    params = params.replace(max_steps=jnp.int32(60))
    obs, state = venv.reset(KEY, params)

    @jax.jit
    def run(state: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            ts = venv.step(key, state, jax.random.uniform(key, (8, 3), minval=-1.0), params)
            return ts.state, (ts.obs, ts.terminated, ts.truncated, ts.info["final_obs"])

        return jax.lax.scan(step, state, jax.random.split(KEY, 200))[1]

    seen, terminated, truncated, final = map(np.asarray, run(state))
    ended = terminated | truncated
    assert terminated.any() and truncated.any() and ended.sum(0).min() >= 2
    starts = np.concatenate([np.asarray(obs), seen[ended]])
    assert len(np.unique(starts, axis=0)) == len(starts)
    assert (final[terminated][:, 0] < 0.9).all() or (np.abs(final[terminated][:, 1]) > 0.1).all()
    assert (np.abs(starts[:, 0] - 1.25) < 0.02).all()


def test_model_fields_and_backends_are_named():
    with pytest.raises(ValueError, match="backend='positional'; it has generalized"):
        jaxrl.make("Brax-swimmer", backend="positional")
    with pytest.raises(ValueError, match="backend='bullet'; it has generalized, positional, spring, mjx"):
        jaxrl.make("Brax-ant", backend="bullet")
    with pytest.raises(ValueError, match="name='horse'; Brax has ant, .*walker2d"):
        BraxTask(name="horse")
    assert BraxTask(settings={"a": 1}) == BraxTask(settings=(("a", 1),))
    with pytest.raises(ValueError, match="Brax-reacher: settings=.*'speed'"):
        _ = BraxTask("reacher", settings={"speed": 1}).env
    env, params = jaxrl.make("Brax-inverted_pendulum", backend="spring")
    with pytest.raises(ValueError, match="'body_mass' is no number of the model; it has .*link.inertia.mass"):
        scaled(params, body_mass=2.0)
    heavy = scaled(params, **{"link.inertia.mass": 2.0})
    env.validate(heavy)
    np.testing.assert_allclose(heavy.model["link.inertia.mass"], 2 * params.model["link.inertia.mass"])
    with pytest.raises(ValueError, match="'gravity'.*must be finite"):
        env.validate(scaled(params, gravity=jnp.nan))
    with pytest.raises(ValueError, match="too much or too little"):
        env.validate(params.replace(model={}))


def test_settings_are_brax_own():
    env: Any = BraxTask(
        name="hopper", backend="spring", settings=(("exclude_current_positions_from_observation", False),)
    )
    assert env.observation_space(env.default_params).shape == (12,)
