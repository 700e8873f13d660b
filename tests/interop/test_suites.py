"""Environments of other libraries by name: fakes of their interfaces always, the libraries where they are installed."""

import dataclasses
import functools
import importlib
import importlib.metadata
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make, registry
from jaxrl.environment import NO_LIMIT
from jaxrl.interop import suites
from jaxrl.interop.craftax import from_craftax
from jaxrl.interop.envelope import from_envelope, to_envelope
from jaxrl.interop.foreign import kept, named, with_key
from jaxrl.interop.jumanji import from_jumanji
from jaxrl.interop.pgx import from_pgx
from jaxrl.interop.stoa import from_stoa, to_stoa
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete
from jaxrl.testing.environments import check_environment

KEY = jax.random.key(0)


# ---- names


@pytest.fixture
def installed(monkeypatch):
    """Says which version of every library there is; None for none."""

    def say(version):
        def found(package):
            if version is None:
                raise importlib.metadata.PackageNotFoundError(package)
            return version

        monkeypatch.setattr(suites.importlib.metadata, "version", found)
        suites.make.cache_clear()

    yield say
    suites.make.cache_clear()


@pytest.mark.parametrize("prefix", sorted(suites.SUITES))
def test_a_library_that_is_not_there_is_named_with_the_line_that_installs_it(prefix, installed):
    installed(None)
    package, version = suites.SUITES[prefix].package, suites.SUITES[prefix].version
    with pytest.raises(
        ValueError, match=rf'^{prefix}:Any-v0 needs {package} {version}.* pip install "{package}>='
    ) as e:
        make(f"{prefix}:Any-v0")
    assert "\n" not in str(e.value)


def test_the_way_out_names_its_library_too(installed):
    env, _ = make("CartPole-v1")
    for to, line in ((to_stoa, "stoa-env 0.1.2 or newer"), (to_envelope, "jax-envelope 0.6 or newer")):
        installed(None)
        with pytest.raises(ValueError, match=f"^{to.__name__} needs {line}: pip install"):
            to(env)
        installed("0.0.9")
        with pytest.raises(ValueError, match=f"needs {line}, and there is 0.0.9: pip install"):
            to(env)
        installed("99.0")
        with pytest.raises(ValueError, match=f"{to.__name__}: Quadcopter-Flock-v0 has 4 agents"):
            to(make("Quadcopter-Flock-v0")[0])


def test_an_old_library_is_named_with_both_versions(installed):
    installed("0.3.1")
    with pytest.raises(ValueError, match=r"needs jumanji 1.1 or newer, and there is 0.3.1: pip install"):
        make("jumanji:Snake-v1")


def test_an_unknown_name_is_told_the_nearest(installed, monkeypatch):
    installed("99.0")
    adapter = importlib.import_module("jaxrl.interop.jumanji")
    monkeypatch.setattr(adapter, "names", lambda: ["Maze-v0", "Snake-v1"])
    for wrong in ("Snak-v1", "snake", "Snake-v2"):
        with pytest.raises(ValueError, match=f"'jumanji:{wrong}'. Did you mean 'jumanji:Snake-v1'. jumanji has 2"):
            make(f"jumanji:{wrong}")
    with pytest.raises(ValueError, match="has no static setting 'time_limit'"):
        make("jumanji:Snake-v1", time_limit=3)


def test_a_name_is_one_environment(installed, monkeypatch):
    """Equal environments share programs, and runs are resumed by the name."""
    installed("99.0")
    adapter = importlib.import_module("jaxrl.interop.jumanji")
    monkeypatch.setattr(adapter, "names", lambda: ["Walk-v0"])
    monkeypatch.setattr(adapter, "by_name", lambda name: from_jumanji(Walk(), id=name))
    env, params = make("jumanji:Walk-v0")
    assert env.id == "jumanji:Walk-v0" and make("jumanji:Walk-v0")[0] == env and int(params.max_steps) == 3
    assert registry.is_of_suite(env.id) and registry.lasting(env.id) == env.id


def test_words_of_yours_are_not_of_a_suite(tmp_path):
    for word in ("CartPole-v1", "jaxrl.testing.probes:TimeLimit", "jumanji", "my/jumanji.py:Tank", "envelopes:X"):
        assert not registry.is_of_suite(word)
    assert make("jaxrl.testing.probes:TimeLimit")[0].id
    with pytest.raises(ValueError, match="no module 'crafta', .* Did you mean 'craftax:', a library of environments"):
        make("crafta:Craftax-Symbolic-v1")
    with pytest.raises(ValueError, match=r"no module 'mytanks', installed or in [^ ]*\.$"):
        make("mytanks:Tank")
    assert all(importlib.util.find_spec(f"jaxrl.interop.{suite.adapter}") for suite in suites.SUITES.values())


# ---- the libraries' interfaces, as small as they get


def register(*fields):
    return functools.partial(jax.tree_util.register_dataclass, data_fields=list(fields), meta_fields=[])


def thing(kind, **fields):
    return type(kind, (), fields)()


class Replaceable:
    def replace(self, **changes):
        return dataclasses.replace(self, **changes)  # pyright: ignore


@register("key", "x", "step_count")
@dataclasses.dataclass(frozen=True)
class WalkState(Replaceable):
    key: Any
    x: Any
    step_count: Any


class Spec:
    def __init__(self, **specs):
        self._specs = specs
        self.__dict__.update(specs)

    def generate_value(self):
        return {name: jnp.zeros(s.shape, s.dtype) for name, s in self._specs.items()}


class Walk:
    """Jumanji: up by a random bit and the action, until 4; its time limit of 3 is reported as termination."""

    time_limit = 3
    shape = (3,)

    @property
    def unwrapped(self):
        return self

    @property
    def action_spec(self):
        if len(self.shape) == 1:
            return thing("DiscreteArray", num_values=3, dtype=jnp.int32)
        return thing("MultiDiscreteArray", num_values=np.array([3, 2]), dtype=jnp.int32)

    @property
    def observation_spec(self):
        return Spec(
            x=thing("BoundedArray", shape=(1,), dtype=float, minimum=0.0, maximum=9.0),
            step_count=thing("DiscreteArray", shape=(), dtype=jnp.int32, minimum=0, maximum=2),
            action_mask=thing("BoundedArray", shape=self.shape, dtype=bool, minimum=False, maximum=True),
        )

    def timestep(self, state, reward):
        end = (state.x >= 4) | (state.step_count >= self.time_limit)
        obs = {"x": state.x[None] * 1.0, "step_count": state.step_count, "action_mask": jnp.ones(self.shape, bool)}
        last = types.SimpleNamespace(reward=reward, discount=1.0 - end, observation=obs, extras={"x": state.x})
        last.last = lambda: end
        return state, last

    def reset(self, key):
        return self.timestep(WalkState(key, jnp.int32(0), 0), 0)

    def step(self, state, action):
        bit = jax.random.bernoulli(state.key).astype(jnp.int32)
        x = state.x + bit + jnp.sum(action)
        return self.timestep(WalkState(state.key, x, state.step_count + 1), bit)


class Boards(Walk):
    """The same, with two numbers an action and a mask of their pairs."""

    shape = (3, 2)


class Apart(Walk):
    """The same, with a mask a number, which no space of ours has."""

    shape = (2, 5)


def test_jumanjis_time_limit_is_a_truncation():
    env, params = from_jumanji(Walk())
    bits = []
    for actions, terminated, truncated in (([2, 2, 0], [0, 1, 1], [0, 0, 1]), ([0, 0, 0], [0, 0, 0], [0, 0, 1])):
        _, state = env.reset(KEY, params)
        for i, action in enumerate(actions):
            key = jax.random.key(len(bits) + 100)
            ts = env.step(key, state, jnp.uint8(action), params)
            bits.append(int(jax.random.bernoulli(jax.random.split(key)[0])))
            assert (bool(ts.terminated), bool(ts.truncated)) == (bool(terminated[i]), bool(truncated[i]))
            assert ts.reward == bits[-1] and ts.info["x"] == ts.state.env.x  # by the key of this step
            state = ts.state
    assert 0 < sum(bits) < len(bits)
    space: Any = env.observation_space(params)
    assert space.contains(ts.obs) and int(ts.obs["step_count"]) == 3


def test_jumanjis_actions_and_masks():
    walk, boards = from_jumanji(Walk())[0], from_jumanji(Boards())[0]
    assert walk.action_space(None) == Discrete(3) and boards.action_space(None) == Discrete(6) and boards.joint
    params = boards.default_params
    obs, state = boards.reset(KEY, params)
    assert obs["action_mask"].shape == (6,)
    x = [int(boards.step(KEY, state, jnp.int32(a), params).state.env.x) for a in range(6)]
    assert [n - x[0] for n in x] == [0, 1, 1, 2, 2, 3]  # (0, 0), (0, 1), (1, 0) ...
    apart = from_jumanji(Apart())[0]
    assert apart.action_space(None) == MultiDiscrete((3, 2))
    assert apart.reset(KEY, params)[0]["legal"].shape == (2, 5)
    space: Any = apart.observation_space(params)
    assert space.spaces.keys() == {"x", "step_count", "legal"}


@register("current_player", "rewards", "terminated", "truncated", "legal_action_mask", "sticks")
@dataclasses.dataclass(frozen=True)
class NimState(Replaceable):
    current_player: Any
    rewards: Any
    terminated: Any
    truncated: Any
    legal_action_mask: Any
    sticks: Any


class Nim:
    """Pgx: of seven sticks each takes one or two, and who takes the last wins."""

    id, num_players, num_actions = "nim", 2, 3  # the third action is illegal

    def init(self, key):
        who = jax.random.bernoulli(key).astype(jnp.int32)
        no = jnp.bool_(False)
        return NimState(who, jnp.zeros(2), no, no, jnp.array([True, True, False]), jnp.int32(7))

    def step(self, state, action, key=None):
        sticks = jnp.maximum(state.sticks - 1 - action, 0)
        sign = jnp.where(jnp.arange(2) == state.current_player, 1.0, -1.0)
        over, lost = sticks == 0, ~state.legal_action_mask[action]
        rewards = jnp.where(lost, -sign, jnp.where(over, sign, 0.0))
        legal = jnp.array([True, False, False]) | (jnp.arange(3) < jnp.minimum(sticks, 2))
        over = over | lost
        return NimState(1 - state.current_player, rewards, over, state.truncated, legal | over, sticks)

    def _observe(self, state, player):
        return jnp.stack([state.sticks, (player == state.current_player).astype(jnp.int32)])


def test_pgxs_other_player_answers_with_legal_moves():
    env, params = from_pgx(Nim())
    assert env.id == "nim" and int(params.max_steps) == NO_LIMIT

    @jax.jit
    @jax.vmap
    def play(key):
        reset_key, key = jax.random.split(key)
        obs, state = env.reset(reset_key, params)

        def body(state, key):
            action = jnp.int32(0)
            ts = env.step(key, state, action, params)
            return ts.state, (state.env.sticks, ts.state.env.sticks, ts.obs["obs"], ts.reward, ts.terminated)

        return obs["obs"], jax.lax.scan(body, state, jax.random.split(key, 4))[1]

    first, (before, after, obs, reward, terminated) = map(lambda x: jax.tree.map(np.asarray, x), play(
        jax.random.split(KEY, 200)
    ))  # fmt: skip
    assert set(first[:, 0]) == {5, 6, 7} and np.all(first[:, 1] == 1)  # who begins is drawn
    assert 0.3 < np.mean(first[:, 0] == 7) < 0.7
    live = np.cumsum(terminated, 1) - terminated == 0
    taken = (before - after)[live]
    assert set(taken) == {1, 2, 3}  # ours, and none, one or two of the other's
    won, lost = (reward == 1) & live, (reward == -1) & live
    assert np.all((won | lost) == (terminated & live)) and 0 < won.sum() < won.sum() + lost.sum()
    assert np.all(obs[live & ~terminated][:, 1] == 1) and np.all(after[terminated & live] == 0)
    assert np.all(before[won] == 1)  # only then ours is the last
    state = env.reset(KEY, params)[1]
    ts = env.step(KEY, state, jnp.int32(2), params)
    assert ts.terminated and ts.reward == -1  # illegal


def test_pgxs_games_of_three_are_refused():
    class Three(Nim):
        num_players = 3

    with pytest.raises(ValueError, match="nim has 3 players; it takes games of one or two"):
        from_pgx(Three())


class ToStoa:
    """Stoa: up by a random bit; at 2 the end, at the fourth step a cut."""

    def reset(self, rng_key, env_params=None):
        return {"rng": rng_key, "x": 0, "t": 0}, self.timestep(0, 0, 0)

    def timestep(self, x, t, reward):
        end, cut = jnp.asarray(x >= 2), jnp.asarray(t >= 4)
        last = types.SimpleNamespace(reward=reward, discount=1.0 - end, observation={"x": jnp.asarray(x)})
        last.terminated, last.truncated = lambda: end, lambda: cut & ~end
        last.done = lambda: end | cut
        return last

    def step(self, state, action, env_params=None):
        bit = jax.random.bernoulli(state["rng"]).astype(jnp.int32)
        x, t = state["x"] + bit * action, state["t"] + 1
        return {"rng": state["rng"], "x": x, "t": t}, self.timestep(x, t, bit)

    def observation_space(self, env_params=None):
        x = thing("DiscreteSpace", num_values=9, minimum=0, maximum=8, shape=(), dtype=int)
        return thing("DictSpace", spaces={"x": x})

    def action_space(self, env_params=None):
        return thing("DiscreteSpace", num_values=2, minimum=0, maximum=1, shape=(), dtype=int)


def ends(env, params, action, steps):
    @jax.jit
    @jax.vmap
    def run(key):
        def body(state, key):
            ts = env.step(key, state, jnp.int32(action), params)
            return ts.state, (ts.terminated, ts.truncated, ts.reward)

        reset_key, key = jax.random.split(key)
        return jax.lax.scan(body, env.reset(reset_key, params)[1], jax.random.split(key, steps))[1]

    return map(np.asarray, run(jax.random.split(KEY, 32)))


def test_stoas_ends_are_apart():
    env, params = from_stoa(ToStoa())
    terminated, truncated, reward = ends(env, params, 1, 4)
    done = np.cumsum(reward, 1) >= 2
    np.testing.assert_array_equal(terminated, done)
    np.testing.assert_array_equal(truncated[:, 3], ~done[:, 3])
    assert not truncated[:, :3].any() and 0 < done[:, 3].sum() < 32
    assert env.action_space(params) == Discrete(2)
    space: Any = env.observation_space(params)
    assert isinstance(space, Dict) and isinstance(space.spaces["x"], Box)  # a number, no category
    assert from_stoa(ToStoa(), max_steps=2)[1].max_steps == 2


def test_stoas_adapters_that_reset_are_refused():
    with pytest.raises(ValueError, match="GymnaxToStoa resets within its step.*from_gymnax takes it"):
        from_stoa(type("GymnaxToStoa", (ToStoa,), {})())
    outer = type("AutoResetWrapper", (ToStoa,), {})()
    with pytest.raises(ValueError, match="from_stoa: AutoResetWrapper is of that library's training"):
        from_stoa(outer)


class ToEnvelope:
    """Envelope: up by a random bit; at 2 the end."""

    default_max_steps = 4

    @property
    def unwrapped(self):
        return self

    def init(self, key):
        return {"key": key, "x": 0}, types.SimpleNamespace(obs=jnp.int32(0), reward=0.0, terminated=False)

    def step(self, state, action):
        bit = jax.random.bernoulli(state["key"]).astype(jnp.int32)
        x = state["x"] + bit * action
        info = types.SimpleNamespace(obs=x, reward=bit, terminated=x >= 2, truncated=False)
        return {"key": state["key"], "x": x}, info

    observation_space = thing("Discrete", n=np.int32(9), dtype=np.dtype("int32"), shape=())
    action_space = thing("Discrete", n=np.array([2, 3]), dtype=np.dtype("int32"), shape=(2,))


def test_envelopes_limit_is_a_leaf():
    env, params = from_envelope(ToEnvelope())
    assert int(params.max_steps) == 4 and env.action_space(params) == MultiDiscrete((2, 3))
    space: Any = env.observation_space(params)
    assert isinstance(space, Box) and space.high == 8
    single = type("Single", (ToEnvelope,), {"action_space": thing("Discrete", n=2)})()
    env, params = from_envelope(single, max_steps=3)
    terminated, truncated, reward = ends(env, params, 1, 3)
    np.testing.assert_array_equal(terminated, np.cumsum(reward, 1) >= 2)
    np.testing.assert_array_equal(truncated, np.broadcast_to([False, False, True], (32, 3)))


@register("max_timesteps", "goal")
@dataclasses.dataclass(frozen=True)
class TinyParams(Replaceable):
    max_timesteps: Any = 3
    goal: Any = 2.0


class TinyCraftax:
    """Craftax: `done` merges the goal and the time limit."""

    name, default_params = "Craftax-Tiny-NoAutoReset-v1", TinyParams()

    def reset_env(self, key, params):
        return jnp.zeros(1), {"x": 0.0, "t": 0, "rng": key}

    def is_terminal(self, state, params):
        return (state["x"] >= params.goal) | (state["t"] >= params.max_timesteps)

    def step_env(self, key, state, action, params):
        state = {"x": state["x"] + action, "t": state["t"] + 1, "rng": key}
        return state["x"][None], state, 1, self.is_terminal(state, params), {"discount": 0.0, "Achievements/up": 1}

    def observation_space(self, params):
        return thing("Box", low=0.0, high=9.0, shape=(1,), dtype=jnp.float32)

    def action_space(self, params):
        return thing("Discrete", n=3)


def test_craftaxs_ends_are_apart():
    env, params = from_craftax(TinyCraftax())
    assert env.id == "Craftax-Tiny-v1" and int(params.max_steps) == 3
    for action, terminated in ((0, [0, 0, 0]), (1, [0, 1, 1])):
        got = list(ends(env, params, action, 3))
        np.testing.assert_array_equal(got[0], np.broadcast_to(np.array(terminated, bool), (32, 3)))
        np.testing.assert_array_equal(got[1], np.broadcast_to([False, False, True], (32, 3)))


def test_what_is_of_no_library_is_refused():
    for take in (from_jumanji, from_pgx, from_stoa, from_envelope, from_craftax):
        with pytest.raises(TypeError, match=f"{take.__name__}: .* it has no "):
            take(object())


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    "adapted",
    [from_jumanji(Walk()), from_jumanji(Boards()), from_stoa(ToStoa()), from_craftax(TinyCraftax()), from_pgx(Nim())],
    ids=lambda pair: pair[0].id,
)
def test_keeps_our_contract(adapted):
    check_environment(*adapted, num_steps=4, whole=False)


# ---- the real libraries


def same_rollout(env, params, first, step, num_steps=40, slots=6, legal=True):
    """Live steps of ours against the library's own, by equal keys; returns what ended and the rewards.

    `first(key) -> (obs, state)` and `step(key, state, action) -> (obs, state, reward, end)` call the library with the
    keys that ours hands to it. Actions are random, under the mask where `legal`.
    """

    @jax.jit
    @jax.vmap
    def run(key):
        reset_key, key = jax.random.split(key)
        obs, state = env.reset(reset_key, params)
        their_obs, theirs = first(jax.random.split(reset_key)[0])

        def body(carry, key):
            (state, seen), theirs = carry
            act_key, key = jax.random.split(key)
            space = env.action_space(params)
            action = space.sample(act_key)
            if legal and isinstance(seen, dict) and "action_mask" in seen:
                action = jax.random.categorical(act_key, jnp.where(seen["action_mask"], 0.0, -jnp.inf))
            ts = env.step(key, state, action, params)
            their_obs, theirs, reward, end = step(jax.random.split(key)[0], theirs, action)
            pairs = (ts.obs, their_obs), (ts.reward, reward), (ts.terminated | ts.truncated, end)
            return ((ts.state, ts.obs), theirs), (pairs, ts.terminated, ts.truncated)

        _, out = jax.lax.scan(body, ((state, obs), theirs), jax.random.split(key, num_steps))
        return (obs, their_obs), out

    begins, (pairs, terminated, truncated) = jax.tree.map(np.asarray, run(jax.random.split(KEY, slots)))
    ended = terminated | truncated
    live = np.cumsum(ended, 1) - ended == 0

    def equal(pair, where):
        for a, b in zip(*map(jax.tree.leaves, pair), strict=True):
            np.testing.assert_allclose(a[where].astype(float), b[where].astype(float), rtol=1e-6)

    equal(begins, np.ones(slots, bool))
    for pair in pairs:
        equal(pair, live)
    assert live.sum() > slots  # more than one step each
    return terminated & live, truncated & live, pairs[1][0] * live


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", ["Snake-v1", "Game2048-v1", "Tetris-v0", "Maze-v0"])
def test_real_jumanji(id):
    jumanji = pytest.importorskip("jumanji")
    lib = jumanji.make(id)
    env, params = make(f"jumanji:{id}")

    def seen(ts):
        obs = {name: x for name, x in ts.observation._asdict().items()}
        obs["action_mask"] = obs["action_mask"].reshape(-1)
        return jax.tree.map(jnp.asarray, {k: v._asdict() if hasattr(v, "_asdict") else v for k, v in obs.items()})

    def first(key):
        state, ts = lib.reset(key)
        return seen(ts), state

    def step(key, state, action):
        if id == "Tetris-v0":
            action = jnp.stack(jnp.unravel_index(action, (4, 10)))
        state, ts = lib.step(dataclasses.replace(state, key=key), action)
        return seen(ts), state, ts.reward, ts.last()

    steps = {"Maze-v0": 110, "Snake-v1": 60}.get(id, 40)
    terminated, truncated, _ = same_rollout(env, params, first, step, steps, legal=id != "Snake-v1")
    assert terminated.any() == (id in ("Snake-v1", "Tetris-v0")) or id == "Maze-v0"
    assert truncated.any() == (id == "Maze-v0")  # its limit of 100 steps, which it calls a termination
    check_environment(env, params, num_steps=4, whole=False)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.filterwarnings("ignore:scatter inputs:FutureWarning")  # their BinPack, 1.1.2
def test_every_jumanji_environment_has_spaces_and_a_step():
    jumanji = pytest.importorskip("jumanji")
    for id in sorted(jumanji.registered_environments() - {"Sokoban-v0"}):  # which downloads its levels
        env, params = make(f"jumanji:{id}")
        obs, state = jax.eval_shape(env.reset, KEY, params)
        action = jax.eval_shape(env.action_space(params).sample, KEY)
        ts = jax.eval_shape(env.step, KEY, state, action, params)
        space: Any = env.observation_space(params)
        assert jax.tree.structure(ts.state) == jax.tree.structure(state) and ts.reward.shape == (), id
        assert space.spaces.keys() == obs.keys(), id
        acts = env.action_space(params)
        if "action_mask" in obs:
            (n,) = obs["action_mask"].shape
            assert n == (acts.n if isinstance(acts, Discrete) else sum(acts.nvec)), id
        assert isinstance(acts, Discrete | MultiDiscrete) or id == "SearchAndRescue-v0", f"{id}: {acts}"


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", ["Craftax-Classic-Symbolic-v1", "Craftax-Symbolic-v1"])
def test_real_craftax(id):
    """Step by step: under `vmap` and in one program with the library's own, XLA needs minutes for Craftax."""
    craftax = pytest.importorskip("craftax.craftax_env")
    lib = craftax.make_craftax_env_from_name(id, auto_reset=False)
    own = lib.default_params
    env, params = make(f"craftax:{id}")
    lib_reset, lib_step, reset, step = map(jax.jit, (lib.reset_env, lib.step_env, env.reset, env.step))
    deaths, rewarded = 0, 0
    for seed in range(3):
        key = jax.random.key(seed)
        actions = np.random.default_rng(seed).integers(env.action_space(params).n, size=300)
        obs, state = reset(key, params)
        their_obs, theirs = lib_reset(jax.random.split(key)[0], own)
        np.testing.assert_array_equal(obs, their_obs)
        for i, action in enumerate(actions):
            key = jax.random.fold_in(jax.random.key(seed), 1000 + i)
            ts = step(key, state, jnp.int32(action), params)
            their_obs, theirs, reward, done, _ = lib_step(jax.random.split(key)[0], theirs, jnp.int32(action), own)
            np.testing.assert_array_equal(ts.obs, their_obs)
            assert float(ts.reward) == float(reward) and bool(ts.terminated) == bool(done) and not ts.truncated
            state, rewarded = ts.state, rewarded + bool(reward)
            if done:
                deaths += 1
                break
    assert deaths and rewarded
    _, state = reset(KEY, params)
    dead = state.replace(env=state.env.replace(player_health=jnp.zeros_like(state.env.player_health) - 1))
    ts = step(KEY, dead, jnp.int32(0), params)
    assert ts.terminated and not ts.truncated
    short = params.replace(env=params.env.replace(max_timesteps=jnp.int32(1)))
    ts = step(KEY, state, jnp.int32(0), short)
    assert ts.truncated and not ts.terminated


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", ["Navix-Empty-5x5-v0", "Navix-Dynamic-Obstacles-5x5-v0"])
def test_real_navix(id):
    navix = pytest.importorskip("navix")
    lib = navix.make(id)
    env, params = make(f"navix:{id}")

    def first(key):
        ts = lib.reset(key)
        return ts.observation, ts

    def step(key, ts, action):
        ts = lib.step(ts.replace(state=ts.state.replace(key=key)), action)
        return ts.observation, ts, ts.reward, ts.is_done()

    terminated, truncated, reward = same_rollout(env, params, first, step, int(params.max_steps) + 2, 12)
    assert terminated.any() and not np.any(reward[~terminated] > 0)
    assert np.all(np.argmax(truncated, 1)[truncated.any(1)] == int(params.max_steps) - 1)
    check_environment(env, params, num_steps=4, whole=False)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", ["MiniGrid-Empty-5x5", "XLand-MiniGrid-R1-9x9"])
def test_real_xminigrid(id):
    xminigrid = pytest.importorskip("xminigrid")
    lib, own = xminigrid.make(id)
    env, params = make(f"xminigrid:{id}")

    def first(key):
        ts = lib.reset(own, key)
        return ts.observation, ts

    def step(key, ts, action):
        ts = lib.step(own, ts, action)
        return ts.observation, ts, ts.reward, ts.last()

    terminated, truncated, reward = same_rollout(env, params, first, step, 102, 12)
    np.testing.assert_array_equal(reward > 0, terminated)
    assert terminated.any() == id.startswith("MiniGrid")
    assert truncated.any() == (int(params.max_steps) < 102)
    check_environment(env, params, num_steps=4, whole=False)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", ["2048", "minatar-breakout"])
def test_real_pgx_alone(id):
    pgx = pytest.importorskip("pgx")
    lib = pgx.make(id)
    env, params = make(f"pgx:{id}")

    def first(key):
        state = lib.init(jax.random.split(key)[0])
        return {"obs": state.observation, "action_mask": state.legal_action_mask}, state

    def step(key, state, action):
        state = lib.step(state, action, jax.random.split(key)[0])
        obs = {"obs": state.observation, "action_mask": state.legal_action_mask}
        return obs, state, state.rewards[0], state.terminated

    terminated, truncated, _ = same_rollout(env, params, first, step)
    assert terminated.any() == (id == "minatar-breakout") and not truncated.any()


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", ["tic_tac_toe", "kuhn_poker", "connect_four"])
def test_real_pgx_against_another(id):
    """Every step is one of Pgx's for the agent and, with the other's legal moves, those until its next turn."""
    pgx = pytest.importorskip("pgx")
    lib = pgx.make(id)
    env, params = make(f"pgx:{id}")
    lib_step, our_step = jax.jit(lib.step), jax.jit(env.step)
    begun = set()
    for seed in range(6):
        key = jax.random.key(10 * seed)
        obs, state = jax.jit(env.reset)(key, params)
        begun.add(int(jax.jit(lib.init)(jax.random.split(jax.random.split(key)[0])[0]).current_player))
        for i in range(30):
            action = jax.random.categorical(jax.random.key(i), jnp.where(obs["action_mask"], 0.0, -jnp.inf))
            ts = our_step(jax.random.key(i), state, action, params)
            after, moves = lib_step(state.env, action), int(ts.state.env._step_count - state.env._step_count) - 1
            reward = float(after.rewards[0])
            assert moves == 0 or not after.terminated
            ways = [(after, reward)]
            for _ in range(moves):  # all that the other may have done
                ways = [
                    (new, reward + float(new.rewards[0]))
                    for before, reward in ways
                    for move in np.flatnonzero(before.legal_action_mask)
                    for new in [lib_step(before, jnp.int32(move))]
                ]
            same = [
                reward
                for new, reward in ways
                if all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (new, ts.state.env)), strict=True))
            ]
            assert float(ts.reward) in same
            obs, state = ts.obs, ts.state
            if ts.terminated:
                break
            assert int(state.env.current_player) == 0
            np.testing.assert_array_equal(obs["obs"], state.env.observation)
        assert ts.terminated and abs(float(ts.reward)) <= 2
    assert begun == {0, 1}
    check_environment(env, params, num_steps=4, whole=False)


@pytest.mark.slow
@pytest.mark.light
def test_real_stoa():
    """Over its own adapter of a library, where one is installed beside it, with its limit of steps."""
    stoa = pytest.importorskip("stoa")
    pgx = pytest.importorskip("pgx", reason="needs a library under Stoa: pip install stoa-env[pgx]")
    from stoa.env_adapters.pgx import PGXToStoa

    limit = 9
    lib = stoa.EpisodeStepLimitWrapper(PGXToStoa(pgx.make("minatar-breakout")), limit)
    env, params = from_stoa(lib)

    def first(key):
        state, ts = lib.reset(key)
        return jax.tree.map(jnp.asarray, _dict(ts.observation)), state

    def step(key, state, action):
        inner = state.base_env_state
        state = dataclasses.replace(state, base_env_state=dataclasses.replace(inner, rng_key=key))
        state, ts = lib.step(state, action)
        return jax.tree.map(jnp.asarray, _dict(ts.observation)), state, ts.reward, ts.done()

    terminated, truncated, _ = same_rollout(env, params, first, step, 12, 12)
    assert terminated.any() and np.all(np.argmax(truncated, 1)[truncated.any(1)] == limit - 1)


def same_outside(env, params, first, step, num_steps=40, slots=6):
    """What another library shows of our environment against our own steps, by equal keys; returns what ended.

    `first(key) -> (obs, state)`, `step(state, action) -> (obs, state, reward, terminated, truncated)`.
    """

    @jax.jit
    @jax.vmap
    def run(key):
        act_key, key = jax.random.split(key)
        their_obs, theirs = first(key)
        reset_key, key = jax.random.split(key)
        obs, state = env.reset(reset_key, params)

        def body(carry, act_key):
            state, key, theirs = carry
            step_key, key = jax.random.split(key)
            action = env.action_space(params).sample(act_key)
            ts = env.step(step_key, state, action, params)
            their_obs, theirs, *told = step(theirs, action)
            return (ts.state, key, theirs), ((ts.obs, *ts[2:5]), (their_obs, *told))

        _, pairs = jax.lax.scan(body, (state, key, theirs), jax.random.split(act_key, num_steps))
        return (obs, their_obs), pairs

    for ours, theirs in (pairs := run(jax.random.split(KEY, slots))):
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
        for a, b in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
            np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=1e-6)
    return map(np.asarray, pairs[1][0][2:])


OUTWARD = {"CartPole-v1": {}, "Pendulum-v1": {"max_steps": 30}, "Maze-v0": {"max_steps": 12}}


def outward(id):
    env, params = make(id)
    return env, params.replace(**{name: jnp.int32(x) for name, x in OUTWARD[id].items()})


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", OUTWARD)
def test_real_stoa_takes_ours(id):
    stoa = pytest.importorskip("stoa")
    env, params = outward(id)
    lib = to_stoa(env, params)
    assert isinstance(lib, stoa.Environment)

    def first(key):
        state, ts = lib.reset(key)
        return ts.observation, state

    def step(state, action):
        state, ts = lib.step(state, action)
        cut = ts.truncated() | (ts.terminated() & (state.base_env_state.time >= params.max_steps))
        return ts.observation, state, ts.reward, ts.terminated() & (ts.discount == 0), cut

    terminated, truncated = same_outside(env, params, first, step)
    assert terminated.any() == (id != "Pendulum-v1") and truncated.any() == (id != "CartPole-v1")
    longer = params.replace(max_steps=jnp.int32(NO_LIMIT))
    state, ts = lib.reset(KEY, longer)
    assert lib.observation_space().contains(ts.observation)
    assert ts.first() and ts.extras == jax.tree.map(jnp.zeros_like, ts.extras)
    for _ in range(31 if id == "Pendulum-v1" else 1):  # params that are given with a call are taken
        state, ts = lib.step(state, lib.action_space().sample(KEY), longer)
    assert ts.mid()
    check_environment(*from_stoa(lib), num_steps=4, whole=False)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("raw", [False, True])
def test_stoas_wrappers_run_ours(raw):
    """They batch, restart and count: starts differ, and the last observation of an episode is where it ended."""
    stoa = pytest.importorskip("stoa")
    from stoa.core_wrappers.vmap import VmapWrapper

    env, params = make("CartPole-v1")
    params = params.replace(max_steps=jnp.int32(25))
    lib = stoa.AutoResetWrapper(stoa.RecordEpisodeMetrics(to_stoa(env, params)), next_obs_in_extras=True)
    lib = VmapWrapper(lib, num_envs=8)
    state, ts = jax.jit(lib.reset)(jax.random.PRNGKey(0) if raw else KEY)

    def body(carry, key):
        state, ts = lib.step(carry[0], jax.random.randint(key, (8,), 0, 2))
        return (state, ts.replace(extras=carry[1].extras | ts.extras)), ts

    _, ts = jax.jit(lambda carry: jax.lax.scan(body, carry, jax.random.split(KEY, 80)))((state, ts))
    ended, cut, last = np.asarray(ts.done()), np.asarray(ts.truncated()), np.asarray(ts.extras["next_obs"])
    assert cut.any() and (ended & ~cut).any()
    out = (np.abs(last[..., 0]) > float(params.x_max)) | (np.abs(last[..., 2]) > float(params.theta_max))
    np.testing.assert_array_equal(out, ended & ~cut)
    np.testing.assert_array_equal(ts.discount, np.where(out, 0.0, 1.0))
    begins = np.asarray(ts.observation)[ended]
    assert np.all(np.abs(begins) <= 0.05) and len(np.unique(begins[:, 0])) == len(begins)
    lengths = np.asarray(ts.extras["episode_metrics"]["episode_length"])
    assert lengths[cut].min() == lengths[cut].max() == 25 and lengths[ended & ~cut].max() <= 25


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", OUTWARD)
def test_real_envelope_takes_ours(id):
    envelope = pytest.importorskip("envelope")
    env, params = outward(id)
    lib = to_envelope(env, params)
    assert isinstance(lib, envelope.Environment) and lib.default_max_steps == int(params.max_steps)

    def first(key):
        state, info = lib.init(key)
        assert isinstance(info, envelope.Info)
        return info.obs, state

    def step(state, action):
        state, info = lib.step(state, action)
        return info.obs, state, info.reward, info.terminated, info.truncated

    terminated, truncated = same_outside(env, params, first, step)
    assert terminated.any() == (id != "Pendulum-v1") and truncated.any() == (id != "CartPole-v1")
    state, info = lib.init(KEY)
    assert lib.observation_space.contains(info.obs) and not info.terminated
    assert lib.action_space.contains(lib.action_space.sample(KEY))
    check_environment(*from_envelope(lib), num_steps=4, whole=False)


@pytest.mark.slow
@pytest.mark.light
def test_envelopes_wrappers_run_ours():
    """They batch, restart and count; and a batch of our params is a batch of environments."""
    envelope = pytest.importorskip("envelope")
    env, params = make("CartPole-v1")
    params = params.replace(max_steps=jnp.int32(25))
    lib = envelope.EpisodeStatisticsWrapper(env=to_envelope(env, params))
    lib = envelope.VmapWrapper(env=envelope.AutoResetWrapper(env=lib), batch_size=8)
    state, first = jax.jit(lib.init)(KEY)

    def body(state, key):
        return lib.step(state, jax.random.randint(key, (8,), 0, 2))

    _, info = jax.jit(lambda state: jax.lax.scan(body, state, jax.random.split(KEY, 80)))(state)
    cut, out = np.asarray(info.truncated), np.asarray(info.terminated)
    assert (cut & ~out).any() and out.any()
    last = np.asarray(info.final.obs)
    fell = (np.abs(last[..., 0]) > float(params.x_max)) | (np.abs(last[..., 2]) > float(params.theta_max))
    np.testing.assert_array_equal(fell[cut | out], out[cut | out])
    begins = np.asarray(info.obs)[cut | out]
    assert np.all(np.abs(begins) <= 0.05) and len(np.unique(begins[:, 0])) == len(begins)
    assert set(np.asarray(info.final.stats.length)[cut]) == {25}

    lengths = jnp.asarray([0.3, 0.5, 1.0])
    batch = jax.vmap(lambda length: to_envelope(env, params.replace(length=length)))(lengths)
    many = envelope.VmapEnvsWrapper(env=batch, batch_size=3)
    state, _ = many.init(jax.random.split(KEY, 3))
    _, info = many.step(state, jnp.ones(3, jnp.int32))
    for i, length in enumerate(lengths):
        reset_key, key = jax.random.split(jax.random.split(KEY, 3)[i])
        own = params.replace(length=length)
        ts = env.step(jax.random.split(key)[0], env.reset(reset_key, own)[1], jnp.int32(1), own)
        np.testing.assert_allclose(info.obs[i], ts.obs, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.light
def test_envelope_finds_ours_by_name():
    envelope = pytest.importorskip("envelope")
    if "jaxrl" not in envelope.registered_suites():
        pytest.skip("jaxrl is on the path, and not installed")
    assert "jaxrl::CartPole-v1" in envelope.registered_environments("jaxrl")
    lib = envelope.create("jaxrl::Maze-v0", env_kwargs={"height": 7, "width": 7})
    assert lib.default_max_steps == int(make("Maze-v0", height=7, width=7)[1].max_steps)
    with pytest.raises(ValueError, match="Did you mean 'CartPole-v1'"):
        envelope.create("jaxrl::CartPol-v1")
    with pytest.raises(ValueError, match="Unknown environment 'envelope:jaxrl::CartPole-v1'"):
        make("envelope:jaxrl::CartPole-v1")


@pytest.mark.slow
@pytest.mark.light
def test_envelopes_suite_without_its_library_is_told():
    envelope = pytest.importorskip("envelope")
    absent = [suite for suite in envelope.registered_suites() if not envelope.registered_environments(suite)]
    if not absent:
        pytest.skip("all of its libraries are installed")
    with pytest.raises(ValueError, match=f"Envelope finds no environments of {absent[0]}: its library is not"):
        make(f"envelope:{absent[0]}::Any-v0")
    with pytest.raises(ValueError, match="Did you mean 'envelope:"):
        make("envelope:CartPole-v1")


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", ["jumanji::Snake-v1", "jumanji::Tetris-v0", "brax::fast"])
def test_real_envelope_over_others(id):
    """Observations by names, masks, and a suite whose state holds no key of its own."""
    envelope = pytest.importorskip("envelope")
    pytest.importorskip(id.split("::")[0])
    lib = envelope.create(id, max_episode_steps=None)
    env, params = make(f"envelope:{id}")

    def first(key):
        state, info = lib.init(key)
        return named(info.obs), state

    def step(key, state, action):
        new, info = lib.step(with_key(state, key), action)
        return named(info.obs), kept(new, state), info.reward, info.terminated

    terminated, truncated, _ = same_rollout(env, params, first, step, 30, 4, legal=False)
    assert terminated.any() == id.startswith("jumanji") and not truncated.any()
    space: Any = env.observation_space(params)
    assert space.contains(env.reset(KEY, params)[0])


def _dict(obs):
    return obs._asdict() if hasattr(obs, "_asdict") else dict(obs) if isinstance(obs, dict) else obs


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("id", ["CartPole-v1", "Breakout-MinAtar"])
def test_real_envelope(id):
    envelope = pytest.importorskip("envelope")
    pytest.importorskip("gymnax")
    lib = envelope.create(f"gymnax::{id}", max_episode_steps=None)
    env, params = make(f"envelope:gymnax::{id}")

    def first(key):
        state, info = lib.init(key)
        return info.obs, state

    def step(key, state, action):
        state, info = lib.step(state.update(key=key), action)
        return info.obs, state, info.reward, info.terminated

    terminated, truncated, _ = same_rollout(env, params, first, step, 60, 8)
    assert terminated.any() and not truncated.any()
    assert int(params.max_steps) == {"CartPole-v1": 500, "Breakout-MinAtar": 1000}[id]
    check_environment(env, params, num_steps=4, whole=False)


@pytest.mark.slow
@pytest.mark.light
def test_real_gymnax_by_name():
    pytest.importorskip("gymnax", exc_type=ImportError, reason="needs gymnax, and six, which it does not declare")
    if suites._numbers(importlib.metadata.version("gymnax")) < (1,):
        pytest.skip("by name gymnax 1.x only")
    env, params = make("gymnax:CartPole-v1")
    assert env.id == "gymnax:CartPole-v1" and int(params.max_steps) == 500
    with pytest.raises(ValueError, match="Did you mean 'gymnax:CartPole-v1'"):
        make("gymnax:CartPol-v1")
