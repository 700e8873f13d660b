"""The contract of algorithms, kept by what stands around one, alone and around one another."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import Environment, Transition, pytree, vectorize
from jaxrl.algorithm import PUBLIC, names_of
from jaxrl.algos import ddpg, dqn, ppo
from jaxrl.algos.curricula import accel, adversarial_params, dr, paired, plr, sfl, snapshot, traced
from jaxrl.algos.population import pbt
from jaxrl.curriculum import attach
from jaxrl.curriculum.teaching import Ranges
from jaxrl.environment import Hints, strongly_typed
from jaxrl.host.run.fit import fit
from jaxrl.host.run.sweep import grid, sweep
from jaxrl.off_policy import replay_ratio
from jaxrl.spaces import Box, Discrete
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import is_float
from jaxrl.wrappers import FromStates

KEY = jax.random.key(0)
SIZE = dict(num_envs=4, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,))


@pytree
class AimParams:
    max_steps: jax.Array = 3
    target: jax.Array = 0.5


@pytree
class Shots:
    time: jax.Array
    hits: jax.Array


@dataclasses.dataclass(frozen=True)
class Aim(Environment):
    """Be near a target that is shown, three times; in one or several dimensions of action."""

    id: str = dataclasses.field(default="Aim", kw_only=True)
    continuous: bool = False
    Params = AimParams
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return Shots(jnp.int32(0), jnp.float32(0))

    def transition(self, key, state, action, params):
        aim = action[0] if self.continuous else action / 2
        reward = 1 - jnp.square(aim - params.target)
        return Transition(state.replace(hits=state.hits + reward), reward, jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jnp.stack([jnp.clip(params.target, 0, 1), jnp.clip(state.hits, 0, 3) / 3])

    def observation_space(self, params):
        return Box(0.0, 1.0, (2,))

    def action_space(self, params):
        return Box(0.0, 1.0, (1,)) if self.continuous else Discrete(3)


def level(key, params):
    return params.replace(target=jax.random.uniform(key))


def mutate(key, params):
    return params.replace(target=jnp.clip(params.target + 0.1 * jax.random.normal(key), 0, 1))


def built(state):
    """The level of a designer, which is a player itself."""
    return AimParams(jnp.int32(3), state.hits / 3)


ENV = Aim()
LEVELS = vectorize(ENV, 4, batched_params=True)
STUDENT = ppo.make(LEVELS, ppo.Config(**SIZE))
REPLAY = dict(num_envs=4, num_steps=1, batch_size=8, buffer_size=64, hidden=(8,))
BUFFER = plr.Config(buffer_size=8, robust=False)
POPULATION = pbt.Config((("learning_rate", 1e-3, 1e-1),), population=4, interval=2)


def under_plr():
    return attach(STUDENT, plr.make(level, BUFFER))


def off_policy():
    """A rollout is one step, an episode three."""
    return attach(dqn.make(LEVELS, dqn.Config(n_step=2, **REPLAY)), dr.make(level))


def adaptive():
    settings = {**REPLAY, "num_steps": 2, "num_updates": 16}
    return replay_ratio.adapt(
        ddpg.make(vectorize(Aim(continuous=True), 4, batched_params=True), ddpg.Config(**settings))
    )


def adversarial():
    venv = vectorize(ENV, 4, level_fn=adversarial_params.Drawn(Ranges(("target",), ((0.0,),), ((1.0,),))))
    settings = adversarial_params.Config(num_adversaries=2, num_episodes=1, num_steps=3)
    return adversarial_params.make(ppo.make(venv, ppo.Config(**SIZE)), settings)


def designed():
    designer = ppo.make(vectorize(ENV, 4), ppo.Config(**{**SIZE, "num_steps": 3}))
    return paired.make(STUDENT, designer, built)


STARTS = FromStates(ENV)


def table():
    hits = jax.vmap(lambda x: Shots(jnp.int32(0), x))(jnp.asarray([0.0, 1.0]))
    return snapshot.Snapshots(hits, jnp.zeros(2), jnp.zeros(2, jnp.int32), jnp.full(2, 0.5))


WRAPPED = {
    "plr": under_plr,
    "dr, off policy": off_policy,
    "accel": lambda: attach(STUDENT, accel.make(level, mutate, accel.Config(8, num_edits=2, robust=False))),
    "traced": lambda: attach(STUDENT, traced.make(ENV, level, mutate, traced.Config(8, num_edits=2, model_size=2))),
    "sfl": lambda: attach(STUDENT, sfl.make(level, sfl.Config(4, 8, 6, 4, 2))),
    "paired": designed,
    "adversary": adversarial,
    "snapshots": lambda: snapshot.staged(ppo.make(STARTS, ppo.Config(**SIZE)), 64),
    "replay ratio": adaptive,
    "pbt": lambda: pbt.make(ppo.make(ENV, ppo.Config(**SIZE)), POPULATION),
    "pbt, off policy": lambda: pbt.make(dqn.make(ENV, dqn.Config(n_step=2, **REPLAY)), POPULATION),
    "pbt around plr": lambda: pbt.make(under_plr(), POPULATION),
    "pbt around dr, off policy": lambda: pbt.make(off_policy(), POPULATION),
    "pbt around sfl": lambda: pbt.make(WRAPPED["sfl"](), POPULATION),
    "pbt around paired": lambda: pbt.make(designed(), POPULATION),
    "pbt around an adversary": lambda: pbt.make(adversarial(), POPULATION),
    "dr around a replay ratio": lambda: attach(adaptive(), dr.make(level)),
}
HYPER = {
    "dqn": dqn.Hyper(learning_starts=4, learning_rate=0.01),
    "ddpg": ddpg.Hyper(learning_starts=4, learning_rate=0.01),
}


@cache
def wrapped(name):
    """`(algorithm, its hyper, its env_params)`."""
    algo = WRAPPED[name]()
    params = snapshot.params_of(STARTS, STARTS.default_params.env, table()) if name == "snapshots" else None
    return algo, HYPER.get(algo.name.split("+")[0]), params


every_wrapper = pytest.mark.parametrize("name", WRAPPED)


@pytest.mark.slow(but_first=2)
@pytest.mark.light
@every_wrapper
def test_it_keeps_the_contract(name):
    algo, hyper, params = wrapped(name)
    check_algorithm(algo, KEY, hyper, params, num_updates=5)


@pytest.mark.slow(but_first=2)
@pytest.mark.light
@every_wrapper
def test_public_fields_are_read_and_replaced(name):
    algo, hyper, params = wrapped(name)

    def run(key):
        state = algo.update(algo.init(key, hyper, params))[0]
        same = [state.replace(**{field: getattr(state, field)}) for field in PUBLIC]
        doubled = jax.tree.map(lambda x: 2 * x, state.weights)
        return state, same, (state.replace(weights=doubled).weights, doubled)

    state, same, (found, doubled) = jax.tree.map(plain, jax.jit(run)(KEY))
    for field, other in zip(PUBLIC, same, strict=True):
        jax.tree.map(np.testing.assert_array_equal, other, state), field
    jax.tree.map(np.testing.assert_array_equal, found, doubled)


def plain(x):
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


@pytest.mark.slow
@pytest.mark.light
@every_wrapper
def test_it_is_fitted_resumed_and_swept(name, tmp_path):
    algo, hyper, params = wrapped(name)
    steps = algo.steps_per_update
    settings = dict(hyper=hyper, env_params=params, num_seeds=2, eval_episodes=4, progress=False)
    whole = fit(algo, KEY, 4 * steps, **settings)
    fit(algo, KEY, 2 * steps, out=tmp_path / "run", **settings)
    resumed = fit(algo, KEY, 4 * steps, out=tmp_path / "run", resume=True, **settings)
    jax.tree.map(np.testing.assert_array_equal, resumed.state.weights, whole.state.weights)
    # A setting of its own, if it has any, else one that members of a population do not draw.
    own = [path for path in names_of(algo.hyper()) if "." in path]
    points = grid({own[-1] if own else "gamma": [0.5, 0.9]})
    settings = dict(num_seeds=1, eval_episodes=4, eval_max_steps=4, env_params=params, progress=False)
    assert len(sweep(algo, KEY, 2 * steps, points, **settings)) == 2


@every_wrapper
def test_its_settings_travel_through_init(name):
    """Those of what stands around, too: `init` gets them, the state shows them, a state is given others."""
    algo, _, params = wrapped(name)
    given: Any = jax.tree.map(lambda x: 0.9 * x if is_float(x) else x, strongly_typed(algo.hyper()))

    def run(key):
        state = algo.init(key, given, params)
        return state.hyper, state.replace(hyper=jax.tree.map(lambda x: x + 1, state.hyper)).hyper

    kept, changed = jax.eval_shape(run, KEY) if "pbt" in name else jax.jit(run)(KEY)
    assert type(kept) is type(changed) is type(given) and names_of(kept) == names_of(changed) == names_of(given)
    if "pbt" not in name:
        if "ratio" in names_of(given)[-1]:  # which is what chooses this one
            given, kept = (hyper.replace(replay_ratio=0) for hyper in (given, kept))
            changed = changed.replace(replay_ratio=1)
        jax.tree.map(np.testing.assert_array_equal, kept, given)
        jax.tree.map(np.testing.assert_array_equal, changed, jax.tree.map(lambda x: x + 1, given))


@pytest.mark.slow(but_first=2)
@pytest.mark.light
@every_wrapper
def test_a_restart_begins_episodes_of_its_slots(name):
    algo, hyper, params = wrapped(name)

    def run(key):
        state = algo.init(key, hyper, params)
        state = jax.lax.scan(lambda state, _: (algo.update(state)[0], None), state, length=2)[0]
        n = jax.tree.leaves(state.obs)[0].shape[0]
        after = algo.restart(state, jax.random.key(1), state.env_params, jnp.arange(n) % 2 == 0)
        return state.env_state.env.time, after.env_state.env.time, state.weights, after.weights

    before, after, weights, same = jax.jit(run)(KEY)
    np.testing.assert_array_equal(after, np.where(np.arange(len(before)) % 2 == 0, 0, before))
    jax.tree.map(np.testing.assert_array_equal, weights, same)


@pytest.mark.slow
@pytest.mark.light
def test_a_member_that_copies_keeps_its_replay_episodes_and_levels():
    """Under a curriculum, too. So a replay is no part of the exchange, which would copy it in each update."""
    algo = pbt.make(off_policy(), dataclasses.replace(POPULATION, interval=1))
    state, rollout = jax.jit(algo.collect)(jax.jit(algo.init)(KEY, HYPER["dqn"]))
    learn = jax.jit(algo.learn)
    without, metrics = learn(state.replace(score=jnp.zeros(4)), rollout)
    assert metrics["copied"] == 0
    after, metrics = learn(state.replace(score=jnp.arange(4.0)), rollout)
    assert metrics["copied"] == 1
    for name in ("batch", "outcomes", "wanted"):
        jax.tree.map(np.testing.assert_array_equal, getattr(after.inner, name), getattr(without.inner, name))
    for name in ("replay", "obs", "env_params"):
        found, own = (getattr(x.inner.inner, name) for x in (after, without))
        jax.tree.map(np.testing.assert_array_equal, found, own)
    jax.tree.map(lambda x: np.testing.assert_array_equal(x[0], x[3]), after.weights)
