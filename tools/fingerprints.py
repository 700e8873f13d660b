"""What every learner computes, to the last bit: run before and after a change that should change nothing.

    python tools/fingerprints.py write tests/golden/fingerprints.json     # before
    python tools/fingerprints.py compare tests/golden/fingerprints.json   # after; exit code 1 where something differs
    python tools/fingerprints.py compare tests/golden/fingerprints.json --only "iql*" "dqn*"

The `jaxrl` of the current folder is trained, not the one beside this file. Each case is a tiny learner: every algorithm
of the registry, the same from a dataset (`iql@data`), with settings by which shared code branches (`dqn+two_hot`),
curricula around a student (`curriculum:plr`) and learners of rules (`meta:lpg`). It is trained for three updates with
a fixed key in float64 on one core of a CPU. Kept of a case are hashes and sums of `state.weights`, of what the public
state says of the environments, of actions of the policy and of each metric. Names of weights and class names do not
count. `compare` knows three answers: the bits are equal; numbers are equal to a relative 1e-9, or 1e-6 with
`--tolerance 1e-6`; they differ. A case or metric that is gone is a failure, one that is new is told. Weights whose bits
are all there in another order are equal, and that is told.

`seen` is a note, no failure: how many of the arrays in the whole state (moments of optimisers, memories, target
networks) are not there any more bit by bit.

Learners that do not run in float64, as integers become 64 bits wide, too, are trained in float32: `double` is false.

Compiled programs are kept in a folder of the system's for temporary files, so that a program that is the same as before
is not compiled again. They are compiled with few optimisations, for speed and so that rewritten code which does the
same sums gives the same bits; hashes are comparable on one machine and version of jax alone, the sums anywhere.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

os.environ |= {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
if version("jaxlib").startswith("0.10."):  # XLA ends a process that has a flag which it does not know
    # Without fused multiply-add, which compilers put where they like; on one thread, so that sums have one order.
    flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_max_isa=AVX --xla_cpu_multi_thread_eigen=false"
    os.environ["XLA_FLAGS"] = f"{flags} {os.environ.get('XLA_FLAGS', '')}".strip()
sys.path.insert(0, os.getcwd())
# An editable install would lend modules that the current folder's `jaxrl` lacks, of another checkout.
sys.meta_path = [finder for finder in sys.meta_path if "__editable__" not in getattr(finder, "__module__", "")]

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import jaxrl  # noqa: E402
from jaxrl import Environment, Transition, pytree, registry  # noqa: E402
from jaxrl.environment import Hints  # noqa: E402
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete  # noqa: E402

UPDATES = 3

# ---- what may have moved: the only part that knows where things are


PACKAGES = tuple(f"jaxrl.{name}" for name in ("algos", "meta", "curriculum", "data", "replay", "off_policy"))
"""Where something is looked for that is not where it was."""


def found(name: str, *modules: str) -> Any:
    """What is called `name` in the first of these modules that has it, or in any other one."""
    for path in modules:
        try:
            return getattr(importlib.import_module(path), name)
        except (ImportError, AttributeError):
            continue
    for package in PACKAGES:
        for path in _modules(package):
            try:
                return getattr(importlib.import_module(path), name)
            except (ImportError, AttributeError):
                continue
    raise ImportError(f"no module has {name!r}")


@functools.cache
def _modules(package: str) -> list[str]:
    try:
        paths = importlib.import_module(package).__path__
    except (ImportError, AttributeError):
        return []
    return [info.name for info in pkgutil.walk_packages(paths, f"{package}.", onerror=lambda name: None)]


CALLED = {
    "rule of disco": ("disco_rule", "disco"),
    "td3 with optimism": ("mex", "td3"),
    "training": ("training", "gradients"),
    "evolving": ("evolving", "strategies"),
}
"""Modules by what they may be called; the first that is there."""


def module(name: str) -> Any:
    """An algorithm's module by its name, also of those that are not in the registry, as `maml`."""
    if name in registry.list_algos():
        return jaxrl.get_algo(name)
    if name in registry.list_curricula():
        return registry.get_curriculum(name)[0]
    known = [path for package in PACKAGES for path in _modules(package)]
    for word in CALLED.get(name, (name,)):
        for path in known:
            if path.rpartition(".")[2] == word:
                return importlib.import_module(path)
    raise ImportError(f"no module is called {name!r}")


@functools.cache
def elsewhere() -> SimpleNamespace:
    """All names that are used here and not public in `jaxrl`."""
    data = ("jaxrl.data", "jaxrl.data.dataset", "jaxrl.data.datasets", "jaxrl.data.sampling", "jaxrl.replay.datasets")
    return SimpleNamespace(
        Dataset=found("Dataset", *data),
        stored=found("stored", *data),
        windows=found("windows", *data),
        mixed=found("mixed", *data),
        priorities=found("prioritised", *[name for name in data if name != "jaxrl.data"]),
        uniform=found("uniform", "jaxrl.replay.ring", "jaxrl.replay"),
        ranges=found("ranges", "jaxrl.curriculum.teaching", "jaxrl.curriculum"),
        FromStates=found("FromStates", "jaxrl.wrappers"),
    )


GIVEN = {
    "memory": ("memory", "replay", "replay_buffer", "data", "dataset"),
    "model": ("model", "dynamics"),
}
"""Words of `make`, and what they may be called."""


def make(name: str, env: Any, config: dict[str, Any], **given: Any) -> tuple[Any, Any]:
    """`(module, algorithm)` by the algorithm's name, with `memory` and `model` by whatever name `make` has for them."""
    learner = module(name)
    there = inspect.signature(learner.make).parameters
    named = {next((word for word in GIVEN.get(key, (key,)) if word in there), key): x for key, x in given.items()}
    return learner, learner.make(env, learner.Config(**config), **named)


# ---- a task in which both kinds of end occur, of any kind of action and observation


@pytree
class WalkParams:
    max_steps: jax.Array = 3
    width: jax.Array = 1.5
    noise: jax.Array = 0.1


@pytree
class WalkState:
    time: jax.Array
    x: jax.Array


ACTIONS = {"Discrete": Discrete(3), "MultiDiscrete": MultiDiscrete((3, 2)), "Box": Box(-2.0, 1.0, (2,))}


class Walk(Environment):
    """A random walk that the first action pushes; it terminates beyond `width`.

    The id says what it is: `Walk-Box`, and `Walk-Box-dict` with a privileged part and, of discrete actions, a mask.
    """

    Params = WalkParams
    hints = Hints(reset="dense")

    @property
    def _parts(self) -> tuple[str, bool]:
        return self.id.split("-")[1], self.id.endswith("-dict")

    def observation_space(self, params: Any) -> Any:
        (action, several), vector = self._parts, Box(-jnp.inf, jnp.inf, (2,))
        if not several:
            return vector
        spaces: dict[str, Any] = {"vector": vector, "privileged": Box(-jnp.inf, jnp.inf, (1,))}
        if action != "Box":
            spaces["action_mask"] = Box(False, True, (3 if action == "Discrete" else 5,), jnp.bool_)
        return Dict(spaces)

    def action_space(self, params: Any) -> Any:
        return ACTIONS[self._parts[0]]

    def initial(self, key: Any, params: Any) -> WalkState:
        return WalkState(jnp.int32(0), jax.random.normal(key))

    def transition(self, key: Any, state: Any, action: Any, params: Any) -> Transition:
        push = jnp.ravel(jnp.asarray(action, state.x.dtype))[0]
        x = state.x + push * 0.5 + params.noise * jax.random.normal(key)
        return Transition(state.replace(x=x), 1 - jnp.abs(x), jnp.abs(x) > params.width, jnp.bool_(False), {})

    def observe(self, key: Any, state: Any, params: Any) -> Any:
        (action, several), vector = self._parts, jnp.stack([state.x, state.time.astype(state.x.dtype)])
        if not several:
            return vector
        obs = {"vector": vector, "privileged": state.x[None] ** 2}
        if action != "Box":
            obs["action_mask"] = jnp.arange(3 if action == "Discrete" else 5) != 1
        return obs

    def validate(self, params: Any) -> None:
        pass

    def generate(self, key: Any, params: Any) -> Any:
        return params.replace(width=params.width * jax.random.uniform(key, minval=0.5, maxval=1.5))


class Still(Walk):
    """The walk without chance, for what needs to know the next state."""

    hints = Hints(reset="dense", deterministic=True)

    def transition(self, key: Any, state: Any, action: Any, params: Any) -> Transition:
        return super().transition(key, state, action, params.replace(noise=jnp.zeros_like(params.noise)))


@pytree
class DesignParams:
    max_steps: jax.Array = 9


@pytree
class DesignState:
    time: jax.Array
    width: jax.Array


class Design(Environment):
    """Two steps that make a level of the walk: the last says its width."""

    Params = DesignParams
    hints = Hints(deterministic=True)

    def initial(self, key: Any, params: Any) -> DesignState:
        return DesignState(jnp.int32(0), jnp.ones(()))

    def transition(self, key: Any, state: Any, action: Any, params: Any) -> Transition:
        width = 0.5 + action.astype(state.width.dtype)
        return Transition(state.replace(width=width), jnp.zeros(()), state.time == 1, jnp.bool_(False), {})

    def observe(self, key: Any, state: Any, params: Any) -> Any:
        return state.time.astype(state.width.dtype)[None]

    def observation_space(self, params: Any) -> Any:
        return Box(0.0, 2.0, (1,))

    def action_space(self, params: Any) -> Any:
        return Discrete(3)


@functools.cache
def walk(kind: str = "Box", cls: Any = Walk) -> Any:
    return cls(id=f"Walk-{kind}")


# ---- data and a model


def per_precision(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Cached, apart for float64 and float32."""
    cached = functools.cache(lambda double, *args: fn(*args))
    return lambda *args: cached(bool(jax.config.jax_enable_x64), *args)


@per_precision
def dataset(kind: str = "Box", n: int = 40) -> Any:
    """Steps at random; episodes of five, some of which the task ended."""
    rng = np.random.default_rng(0)
    last = np.arange(n) % 5 == 4
    terminated = last & (np.arange(n) % 10 == 9)
    action, _, several = kind.partition("-")
    row: dict[str, tuple[int, ...]] = {"vector": (2,), "privileged": (1,)}
    obs, next_obs = ({name: rng.normal(size=(n, *shape)) for name, shape in row.items()} for _ in range(2))
    if several and action != "Box":
        obs["action_mask"] = next_obs["action_mask"] = np.tile(np.arange(3) != 1, (n, 1))
    if not several:
        obs, next_obs = obs["vector"], next_obs["vector"]
    taken = rng.uniform([-2, -2], [1, 1], (n, 2)) if action == "Box" else 2 * rng.integers(0, 2, n).astype(np.int32)
    return elsewhere().Dataset(obs, taken, rng.normal(size=n), terminated, last, next_obs)


@per_precision
def memory(kind: str = "Box", gamma: float = 0.99) -> Any:
    return elsewhere().stored(dataset(kind), ACTIONS[kind.partition("-")[0]], gamma=gamma)


class Prediction(NamedTuple):
    """As `model_based.Prediction`."""

    next_obs: Any
    reward: Any
    terminated: Any
    uncertainty: Any


def model(key: Any, obs: Any, action: Any) -> Prediction:
    """Some dynamics with noise, of an uncertainty that grows away from the middle."""
    push = jnp.stack([action[:, 0], jnp.ones(len(action))], -1)
    after = obs + 0.3 * push + 0.1 * jax.random.normal(key, obs.shape)
    far = jnp.abs(after[:, 0])
    return Prediction(after, 1 - far, far > 2, 0.1 + far**2)


# ---- one case


class Case(NamedTuple):
    """A learner, and settings that differ from its own."""

    algo: Any
    hyper: Any = None
    params: Any = None
    updates: int = UPDATES
    acts: bool = True  # whether its policy is asked for actions


Made = Callable[[], Case]


def settings(kind: Any, **wanted: Any) -> Any:
    """A Hyper with those of the wanted settings that it has."""
    made = kind()
    return made.replace(**{name: x for name, x in wanted.items() if hasattr(made, name)}) if wanted else made


def run(case: Case) -> dict[str, Any]:
    """Train it, and say what came of it."""
    algo = case.algo

    def trained(state, act_key):
        state, metrics = jax.lax.scan(lambda state, _: algo.update(state), state, length=case.updates)
        actions = ()
        if case.acts:
            policy, batch = algo.policy(state), jax.tree.leaves(state.obs)[0].shape[:1]
            obs = state.obs
            if isinstance(obs, dict):
                obs = {name: x for name, x in obs.items() if name != "privileged"}
            actions = tuple(
                algo.act(policy, act_key, obs, algo.initial_carry(batch), greedy=greedy)[0] for greedy in (False, True)
            )
        world = tuple(getattr(state, name, ()) for name in ("obs", "env_params", "step"))
        return {"weights": state.weights, "world": world, "actions": actions}, metrics, state

    # Not compiled as one program: its operations are shared by all cases.
    key, act_key = jax.random.split(jax.random.key(42))
    state = _double(algo.init(key, case.hyper, case.params))
    parts, metrics, state = jax.jit(trained)(state, act_key)
    result: dict[str, Any] = {name: _summary(tree) for name, tree in parts.items()}
    result["weights"]["each"] = "".join(_hash([x], DIGITS) for x in _arrays(state.weights))
    result["seen"] = "".join(sorted({_hash([x], DIGITS) for x in _arrays(state)}))
    series = {name: np.asarray(x) for name, x in sorted(metrics.items())}
    result["metrics"] = {name: [_hash([x], 8), _numbers(x if len(x) <= 6 else _sums(x))] for name, x in series.items()}
    return result


DIGITS = 4
"""Of the hash of an array by itself, of which there are many."""


def tried(made: Made, double: bool | None) -> dict[str, Any]:
    """`run` of what is made, in float64 or not; None: in float64 unless that is a TypeError."""
    try:
        with jax.enable_x64(double is not False):
            return run(made()) | {"double": double is not False}
    except TypeError:
        if double is not None:
            raise
    return tried(made, False)


def _double(state: Any) -> Any:
    """Floats in the widest type: networks begin in float32, also where numbers are float64."""
    wide = jnp.result_type(float)
    return jax.tree.map(lambda x: x.astype(wide) if jnp.issubdtype(x.dtype, jnp.floating) else x, state)


def _arrays(tree: Any) -> list[np.ndarray]:
    leaves = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in _leaves(tree)]
    return [np.asarray(x) for x in leaves]


def _leaves(tree: Any) -> list[Any]:
    return [jnp.asarray(x) for x in jax.tree.leaves(tree)]


def _hash(arrays: list[np.ndarray], digits: int = 16) -> str:
    """Of bytes, shapes and types; every NaN and both zeros are alike."""
    whole = hashlib.sha256()
    for x in arrays:
        if np.issubdtype(x.dtype, np.floating):
            x = np.where(np.isnan(x), np.nan, x + 0.0).astype(x.dtype)
        whole.update(f"{x.dtype}{x.shape}".encode() + np.ascontiguousarray(x).tobytes())
    return whole.hexdigest()[:digits]


def _summary(tree: Any) -> dict[str, Any]:
    """A hash of all leaves; the sum of each and of its absolute values, in the order of `jax.tree.leaves`."""
    arrays = _arrays(tree)
    return {"hash": _hash(arrays), "sums": _numbers([number for x in arrays for number in _sums(x)])}


def _sums(x: np.ndarray) -> tuple[float, float]:
    """Of what is there: a mean over episodes is NaN where none ended."""
    x = np.asarray(x, np.float64)
    return np.nansum(x), np.nansum(np.abs(x))


def _numbers(x: Any) -> list[float]:
    """To 11 digits: what is compared is coarser."""
    return [float(f"{value:.11g}") for value in np.ravel(np.asarray(x, np.float64))]


# ---- the cases

SMALL = dict(num_envs=4, num_steps=2, num_updates=3, batch_size=6, buffer_size=32, hidden=(8,))
ON_POLICY = dict(num_envs=4, num_steps=4, hidden=(8,))
PASSES = dict(num_epochs=2, num_minibatches=2)
RATES = dict(
    learning_rate=1e-2, learning_starts=4, tau=0.1, target_period=2, exploration_steps=20, alpha=0.1, anneal_steps=0
)
MODEL = dict(num_rollouts=6, horizon=2, num_critics=2, real_ratio=0.5)


def learner(name: str, kind: str = "Box", cls: Any = Walk, **changes: Any) -> Made:
    """A general algorithm; `changes` are of its config, but for `hyper`, and what `make` is given beside it."""

    def made() -> Case:
        hyper = {**RATES, **changes.pop("hyper", {})}
        given = {key: changes.pop(key)() for key in ("memory", "model", "expert") if key in changes}
        source, algo = make(name, walk(kind, cls), changes, **given)
        return Case(algo, settings(source.Hyper, **hyper))

    return made


def own_task(
    name: str,
    env: str,
    config: dict[str, Any] = {},  # noqa: B006
    hyper: dict[str, Any] = {},  # noqa: B006
    params: dict[str, Any] = {},  # noqa: B006
    updates: int = 12,
    given: dict[str, Callable[[], Any]] = {},  # noqa: B006
    **env_settings: Any,
) -> Made:
    """One that keeps tables or pulls arms: its updates are single steps, so there are more of them."""

    def made() -> Case:
        task, default = jaxrl.make(env, **env_settings)
        changed = default.replace(**{key: jnp.asarray(x, jnp.int32) for key, x in params.items()})
        source, algo = make(name, task, config, **{key: x() for key, x in given.items()})
        return Case(algo, source.Hyper(**hyper), changed, updates)

    return made


BOX_OFFLINE = {  # those that act or learn from a dataset, with what makes them small
    "arsq": dict(levels=2, bins=3),
    "awac": {},
    "bc": {},
    "combo": {**MODEL, "num_actions": 2},
    "cql": dict(num_actions=2),
    "cqn": dict(levels=2, bins=3, num_outputs=5),
    "ddpm_bc": dict(num_diffusion_steps=2),
    "dvl": dict(divergence="chi2"),
    "edac": dict(num_critics=3),
    "expo": dict(num_critics=3, num_samples=3, num_edits=2, num_diffusion_steps=2),
    "famo2o": {},
    "flow_bc": dict(num_flow_steps=2),
    "iql": {},
    "mopo": MODEL,
    "morel": MODEL,
    "ravl": MODEL,
    "rebrac": {},
    "ro2o": dict(num_critics=3, num_samples=2),
    "td3_bc": {},
}
DEEP_Q = {  # DQN's family
    "dqn": {},
    "c51": dict(num_outputs=7),
    "qr_dqn": dict(num_outputs=5),
    "iqn": dict(num_quantiles=3, num_target_quantiles=4, num_policy_quantiles=5, num_cosines=6),
    "rem": dict(num_outputs=3),
    "cql_discrete": {},
    "bcq_discrete": {},
    "crr_discrete": {},
}
SUPPORT = dict(v_min=-4.0, v_max=4.0)
REPLAY = dict(replay_ratio=0.3)


def _with_data(name: str, kind: str, **changes: Any) -> Made:
    given = {"memory": lambda: memory(kind), **({"model": lambda: model} if name in MODEL_BASED else {})}
    return learner(name, kind, **{**SMALL, **changes, **given})


MODEL_BASED = ("combo", "mopo", "morel", "ravl", "uni_o4")


def _general() -> Iterator[tuple[str, Made]]:
    for kind in ("Discrete", "MultiDiscrete-dict", "Box"):
        end = "" if kind == "Discrete" else f"+{kind}"
        yield f"ppo{end}", learner("ppo", kind, **ON_POLICY, **PASSES)
        yield f"a2c{end}", learner("a2c", kind, **ON_POLICY)
        yield f"reinforce{end}", learner("reinforce", kind, **ON_POLICY)
    yield "ppo+normalised", learner("ppo", "Discrete-dict", **ON_POLICY, **PASSES, normalize_obs=True)
    for kind in ("Discrete-dict", "Box"):
        rnn = {**ON_POLICY, **PASSES, "rnn_size": 6}
        yield f"ppo_rnn{'' if kind == 'Box' else '+Discrete-dict'}", learner("ppo_rnn", kind, **rnn)
    for kind in ("Discrete-dict", "Box"):
        grown = dict(num_envs=4, num_steps=4, num_trees=8 * UPDATES, depth=2, shared=kind == "Box", num_candidates=5)
        yield f"ppo_gbrl{'' if kind == 'Box' else '+' + kind}", learner("ppo_gbrl", kind, **PASSES | grown)
    sizes = dict(target_hidden=(6,), predictor_hidden=(6,), num_features=5)
    yield "rnd", learner("rnd", "Discrete", **ON_POLICY, **PASSES, **sizes)
    yield "rnd+rdd", learner("rnd", "Box", **ON_POLICY, **PASSES, **sizes, bonus="rdd", episodic_bonus=True)
    props = dict(buffer_batches=2, props_num_steps=4, props_num_epochs=1, props_num_minibatches=1)
    yield "props", learner("props", "Discrete", **ON_POLICY, **PASSES, **props)
    yield "props+Box", learner("props", "Box", **ON_POLICY, **PASSES, **props)
    yield "stac", learner("stac", "Discrete", **ON_POLICY)
    yield "stac+Box", learner("stac", "Box", **ON_POLICY)
    barfi = dict(num_rollouts=2, inner_steps=2, neumann_terms=2, reward_hidden=(4,))
    yield "barfi", learner("barfi", "Discrete", **ON_POLICY, **barfi)
    yield "pqn", learner("pqn", "Discrete-dict", **ON_POLICY, **PASSES)
    yield "pqn_rnn", learner("pqn_rnn", "Discrete-dict", **ON_POLICY, **PASSES, rnn_size=6)
    sequences = dict(num_envs=3, num_steps=4, burn_in=2, num_updates=2, batch_size=4, buffer_size=9)
    sequences |= dict(hidden=(6,), rnn_size=6)
    yield "r2d2", learner("r2d2", "Discrete-dict", **sequences, n_step=2)
    yield "r2d2+drqn", learner("r2d2", "Discrete", **sequences, prioritised=False, n_step=1, rnn="lstm")
    for name in ("sac_rnn", "td3_rnn"):
        yield name, learner(name, "Box", **sequences, head_hidden=(6,))
    planned = dict(num_envs=3, num_steps=4, num_updates=2, batch_size=4, buffer_size=48, hidden=(6,), rnn_size=6)
    yield "srl", learner("srl", "Box", **planned, sequence_length=3)
    flow = dict(num_flow_steps=2, noise_hidden=(4,))
    yield "reinflow", learner("reinflow", "Box-dict", **ON_POLICY, **PASSES, **flow)
    fitted = dict(num_flow_steps=2, encoder_hidden=(4,), stage_updates=2, refit_rollouts=1, refit_steps=2)
    yield "gorl", learner("gorl", "Box-dict", **ON_POLICY, **PASSES, **fitted, refit_batch_size=4)
    modelled = dict(num_members=3, model_hidden=(5,), model_updates=4, model_batch_size=5, horizon=2, real_ratio=0.5)
    yield "mbpo", learner("mbpo", "Box-dict", **SMALL, **modelled, num_rollouts=6)
    dropped = dict(num_rollouts=12, num_branches=4, hyper=dict(keep_share=0.5))
    yield "mbpo+worst", learner("mbpo", "Box", **SMALL, **modelled, **dropped)
    yield "apg", learner("apg", "Box", **ON_POLICY, **PASSES)
    yield "alphazero", learner("alphazero", "Discrete", Still, **ON_POLICY, **PASSES, num_simulations=3)
    yield "evolution", learner("evolution", "Box", population_size=4, num_episodes=2, num_steps=4, hidden=(4,))
    genomes = dict(population_size=8, num_episodes=2, num_steps=4, hidden=(4,), cells=(4,))
    genomes |= dict(descriptor=("obs[0]",), descriptor_low=(-3.0,), descriptor_high=(3.0,))
    novel = dict(num_parents=4, neighbours=3, num_kept=2, capacity=12)
    emitters = dict(num_emitters=3, members=2, step_size=4, chunk=1, reward_capacity=16)
    yield "map_elites", learner("map_elites", "Box", **genomes)
    climbing = dict(num_critic_updates=3, num_policy_updates=2, batch_size=8, buffer_size=200, critic_hidden=(4,))
    yield "pga_me", learner("pga_me", "Box", **genomes, **climbing)
    yield "novelty_search", learner("novelty_search", "Box", **genomes, **novel)
    yield "cma_me", learner("cma_me", "Box", **genomes, num_emitters=2)
    soft = dict(num_emitters=2, soft=True, covariance="diagonal", hyper=dict(lowest_fitness=-10.0))
    yield "cma_me+soft", learner("cma_me", "Box", **genomes, **soft)
    yield "serene", learner("serene", "Box", **genomes, **novel, **emitters)
    codes = dict(num_frames=2, code_size=2, ae_hidden=(4,), train_every=2, num_updates=3, batch_size=4, num_gathered=16)
    yield "taxons", learner("taxons", "Box", **genomes, **novel, **codes, warm_up=1)
    yield "stax", learner("stax", "Box", **genomes, **novel, **emitters, **codes, warm_up=1)
    stream = dict(num_steps=6, hidden=(8,), sparsity=0.5)
    yield "stream_q", learner("stream_q", "Discrete-dict", **stream)
    yield "stream_q+Box", learner("stream_q", "Box", **stream)
    yield "stream_ac", learner("stream_ac", "Discrete-dict", **stream)
    yield "stream_ac+Box", learner("stream_ac", "Box", **stream)


def _deep_q() -> Iterator[tuple[str, Made]]:
    for name, changes in DEEP_Q.items():
        hyper = SUPPORT if name in ("c51", "rainbow") else {}
        small = {**SMALL, **changes}
        yield name, learner(name, "Discrete-dict", **small, hyper=hyper)
        yield (
            f"{name}+n_step+prioritised",
            learner(name, "Discrete", **small, n_step=3, prioritised=True, hyper={**hyper, **REPLAY}),
        )
        yield f"{name}@data", _with_data(name, "Discrete-dict", **changes, hyper=hyper)
    yield "rainbow", learner("rainbow", "Discrete", **SMALL, num_outputs=7, hyper=SUPPORT)
    all_parts = dict(prioritised=True, dueling=True, noisy=True, n_step=3, double=True)
    yield "dqn+everything", learner("dqn", "Discrete-dict", **SMALL, **all_parts)
    yield "dqn+single", learner("dqn", "Discrete", **SMALL, double=False)
    for critic in ("huber", "two_hot", "hl_gauss"):
        yield f"dqn+{critic}", learner("dqn", "Discrete", **SMALL, critic=critic, num_outputs=7, hyper=SUPPORT)
    yield (
        "dqn@data+two_hot",
        _with_data("dqn", "Discrete", critic="two_hot", num_outputs=7, hyper=SUPPORT),
    )
    yield (
        "dqn@prioritised_data",
        learner(
            "dqn",
            "Discrete",
            **SMALL,
            prioritised=True,
            memory=lambda: elsewhere().priorities(dataset("Discrete"), ACTIONS["Discrete"]),
        ),
    )
    for target in ("max", "data", "returns"):
        yield f"cql_discrete@data+{target}", _with_data("cql_discrete", "Discrete", target=target)
    yield "cql_discrete@data+quantiles", _with_data("cql_discrete", "Discrete-dict", num_outputs=3, dueling=True)
    yield "crr_discrete@data+exp", _with_data("crr_discrete", "Discrete", weight="exp", dueling=True)
    yield "rem@data+double", _with_data("rem", "Discrete", num_outputs=3, double=True)
    for conservative in ("none", "value", "measure"):
        end = "" if conservative == "none" else f"+{conservative}"
        fb = dict(size=4, num_labelled=8, conservative=conservative)
        yield f"fb@data{end}", _with_data("fb", "Discrete-dict", **fb)
    yield "fb", learner("fb", "Discrete", **SMALL, size=4, num_labelled=8)
    yield "bc+Discrete", learner("bc", "Discrete-dict", **SMALL)
    yield "bc@data+Discrete", _with_data("bc", "Discrete-dict")


def _actor_critic() -> Iterator[tuple[str, Made]]:
    for name in ("sac", "td3", "ddpg", "crossq"):
        size = dict(critic_hidden=(10,), warmup=4) if name == "crossq" else {}
        yield name, learner(name, "Box", **SMALL, **size)
        yield f"{name}+privileged", learner(name, "Box-dict", **SMALL, **size, hyper=REPLAY)
    yield "sac+Discrete", learner("sac", "Discrete-dict", **SMALL, layer_norm=True)
    for end, baseline in (("", True), ("+batch", False)):
        mex = dict(baseline=baseline, hyper=dict(optimism=0.3))
        yield f"td3+optimism{end}", learner("td3 with optimism", "Box", **SMALL, **mex)
    for delay in (1, 3):
        yield f"td3+policy_delay{delay}", learner("td3", "Box", **SMALL, policy_delay=delay)
    for name, changes in BOX_OFFLINE.items():
        yield name, learner(name, "Box-dict", **SMALL, **changes, hyper=REPLAY)
        kind = "Box" if name in MODEL_BASED else "Box-dict"
        yield f"{name}@data", _with_data(name, kind, **changes)
    for name in ("td3_bc", "edac", "iql"):
        normal = not module(name).Config().normalize_obs
        end = "normalized" if normal else "as_it_is"
        yield f"{name}@data+{end}", _with_data(name, "Box", **BOX_OFFLINE[name], normalize_obs=normal)
    for delay in (1, 3):
        yield f"td3_bc@data+policy_delay{delay}", _with_data("td3_bc", "Box", policy_delay=delay)
    yield "rebrac@data+policy_delay1", _with_data("rebrac", "Box", policy_delay=1)
    yield "edac@data+num_target_critics", _with_data("edac", "Box", num_critics=3, num_target_critics=2)
    yield "edac@data+sac_n", _with_data("edac", "Box", num_critics=3, diverse=False, layer_norm=True)
    rlpd = dict(num_critics=3, diverse=False, num_target_critics=1, mean_actor=True, soft_targets=False)
    yield "edac+rlpd", learner("edac", "Box", **SMALL, **rlpd)

    def of_both() -> Any:
        return elsewhere().mixed(memory("Box"), elsewhere().uniform(32))

    yield "edac@mixed+rlpd", learner("edac", "Box", **SMALL, **rlpd, memory=of_both)
    yield "iql@mixed", learner("iql", "Box", **SMALL, memory=of_both)
    yield "cql@mixed", learner("cql", "Box", **SMALL, num_actions=2, calibrated=True, memory=of_both)
    yield "cql@data+calibrated", _with_data("cql", "Box", num_actions=2, calibrated=True, num_critics=3)
    yield "famo2o@data+balanced", _with_data("famo2o", "Box", balanced=True)
    yield "ravl@data+ensemble", _with_data("ravl", "Box", **MODEL, diverse=False)
    for divergence in ("gumbel", "total_variation"):
        yield f"dvl@data+{divergence}", _with_data("dvl", "Box", divergence=divergence, random_actions=2)

    def demonstrations(other: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: module("recoil").demonstrated(memory("Box"), other())

    yield "recoil", learner("recoil", "Box", **SMALL_RECOIL, memory=demonstrations(lambda: elsewhere().uniform(32)))
    yield "recoil@data", learner("recoil", "Box", **SMALL_RECOIL, memory=demonstrations(lambda: memory("Box", 0.9)))
    for end, trusting in (("", False), ("+trusting", True)):
        yield f"h2o{end}", functools.partial(_h2o, trusting)
    uni = dict(num_policies=2, horizon=2, num_rollouts=4, num_envs=2, num_updates=3, batch_size=6, hidden=(8,))
    yield (
        "uni_o4",
        learner("uni_o4", "Box", **uni, hyper=dict(cloning_steps=4), memory=lambda: memory("Box"), model=lambda: model),
    )


def _h2o(trusting: bool) -> Case:
    """In its study, before it was an algorithm, it had CQL's settings."""
    try:
        source: Any = module("h2o")
    except ImportError:
        path = Path("experiments", "wrong_simulator", "h2o.py")
        spec: Any = importlib.util.spec_from_file_location("h2o", path)
        source = sys.modules["h2o"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(source)
        cql = module("cql")
        algo = source.make(walk("Box"), cql.Config(**SMALL), memory("Box"), trusting)
        return Case(algo, settings(cql.Hyper, **RATES, min_q_weight=0.5))
    algo = source.make(walk("Box"), source.Config(**SMALL, trusting=trusting), real=memory("Box"))
    return Case(algo, settings(source.Hyper, **RATES, min_q_weight=0.5))


SMALL_RECOIL = {name: x for name, x in SMALL.items() if name != "buffer_size"}
COMPARED = dict(num_envs=2, num_updates=2, batch_size=4, hidden=(6,))
STORED = dict(num_envs=2, num_updates=2, batch_size=4, max_steps=8)


def _sequence() -> Iterator[tuple[str, Made]]:
    for kind in ("Discrete", "Box"):

        def drawn(length: int, kind: str = kind) -> Callable[[], Any]:
            return lambda: elsewhere().windows(dataset(kind), ACTIONS[kind], length)

        end = "" if kind == "Discrete" else f"+{kind}"
        small = dict(context=3, width=8, layers=1, heads=2)
        yield (
            f"decision_transformer{end}",
            learner("decision_transformer", kind, **STORED, **small, memory=drawn(3)),
        )
        yield f"rvs{end}", learner("rvs", kind, **STORED, hidden=(8,), memory=drawn(1))


def _preferences() -> Iterator[tuple[str, Made]]:
    def pairs(kind: str) -> Callable[[], Any]:
        def made() -> Any:
            source, n = importlib.import_module("jaxrl.data.preferences"), np.arange(20)
            first = 5 * np.stack([n % 8, (3 * n + 1) % 8], 1)
            return source.stored(source.Preferences(dataset(kind), first, n % 3 / 2, 3), ACTIONS[kind])

        return made

    for kind in ("Box", "Discrete"):
        after = dict(cloning_steps=2, warmup_steps=2)
        yield (
            f"cpl{'' if kind == 'Box' else '+Discrete'}",
            learner("cpl", kind, **COMPARED, hyper=after, memory=pairs(kind)),
        )
        small = dict(COMPARED, context_size=3, width=4, layers=1)
        yield f"oppo{'' if kind == 'Box' else '+Discrete'}", learner("oppo", kind, **small, memory=pairs(kind))
    yield "spo", learner("spo", "Discrete", **ON_POLICY, **PASSES, num_compared=3)
    words = dict(factors=("obs[0]", "-|action[0]|"), num_compared=3, num_envs=2, num_steps=2)
    yield "heron", learner("heron", "Box", **{**COMPARED, **words}, hyper=dict(reward_learning_rate=1e-2))
    yield "p_iql", learner("p_iql", "Box", **COMPARED, num_members=2, hyper=dict(reward_steps=3), memory=pairs("Box"))


def _imitation() -> Iterator[tuple[str, Made]]:
    def back(kind: str) -> Callable[[], Any]:
        def act(obs: Any) -> Any:
            return jnp.int32(obs[0] < 0) * 2 if kind == "Discrete" else jnp.clip(-obs, -2.0, 1.0)

        return lambda: importlib.import_module("jaxrl.actors").of_function(act)

    for kind in ("Box", "Discrete"):
        end, some = "" if kind == "Box" else "+Discrete", dict(num_critics=3, horizon=3, expert_steps=2)
        yield f"dagger{end}", learner("dagger", kind, **SMALL, expert=back(kind))
        yield f"hg_dagger{end}", learner("hg_dagger", kind, **SMALL, horizon=3, expert=back(kind))
        yield f"rlif{end}", learner("rlif", kind, **SMALL, **some, expert=back(kind))


def _tables() -> Iterator[tuple[str, Made]]:
    short = {"max_steps": 4}
    yield "dyna_q", own_task("dyna_q", "Chain-v0", dict(planning_steps=2), params=short)
    yield "gorp", own_task("gorp", "Chain-v0", dict(horizon=4, depth=2, episodes=2), params=short, updates=4)
    yield "psrl", own_task("psrl", "Chain-v0", dict(horizon=4), params=short)
    yield "q_learning", own_task("q_learning", "RiverSwim-v0", dict(double=True))
    yield "q_learning+single", own_task("q_learning", "RiverSwim-v0", dict(double=False))
    yield "r_max", own_task("r_max", "Chain-v0", hyper=dict(known_count=1.0, max_reward=10.0), params=short)
    yield "sarsa", own_task("sarsa", "Chain-v0", updates=20)
    sqirl = dict(num_envs=4, horizon=4, depth=2, num_gradient_steps=3, hidden=(8,))
    yield "sqirl", own_task("sqirl", "Chain-v0", sqirl, params=short, updates=3)
    yield (
        "ucb_vi",
        own_task("ucb_vi", "Chain-v0", dict(horizon=4), dict(bonus_scale=1e-4, reward_scale=10.0), short, 7),
    )
    yield "stream_td", own_task("stream_td", "CartPole-v1", dict(num_steps=16, hidden=(16,)), updates=3)
    arms = dict(arms=2)
    for name in ("epsilon_greedy", "exp3", "nonstationary_ucb", "thompson", "ucb"):
        yield name, own_task(name, "BernoulliBandit-v0", updates=20, **arms)
    yield "ucb+kl", own_task("ucb", "BernoulliBandit-v0", dict(bound="kl"), updates=20, **arms)
    elimination = dict(delta=0.5, scale=0.1)
    yield (
        "successive_elimination",
        own_task("successive_elimination", "BernoulliBandit-v0", hyper=elimination, updates=60, **arms),
    )
    yield "lin_ts", own_task("lin_ts", "ContextualLinearBandit-v0", updates=20, arms=3, dim=2)
    yield "lin_ucb", own_task("lin_ucb", "LinearBandit-v0", updates=20, arms=3, dim=2)
    restless = dict(num_arms=3, num_states=3, budget=1)
    yield "whittle", own_task("whittle", "RestlessBandit-v0", dict(budget=1), updates=3, **restless)
    dpt = dict(num_envs=4, num_steps=8, width=8, hidden=8, layers=2, heads=2, label="behaviour")
    yield "dpt", own_task("dpt", "BernoulliBandit-v0", dpt, dict(learning_rate=0.03), updates=3, **arms)


def _student(cls: Any = Walk, kind: str = "Discrete") -> Any:
    venv = jaxrl.vectorize(walk(kind, cls), 4, batched_params=True)
    return make("ppo", venv, {**ON_POLICY, **PASSES, "hidden": (4,)})[1]


def _drawn(key: Any, params: Any) -> Any:
    return params.replace(width=params.width * jax.random.uniform(key, minval=0.5, maxval=1.5))


def _edited(key: Any, level: Any) -> Any:
    return level.replace(width=level.width + 0.1 * jax.random.normal(key))


def _box() -> Any:
    return elsewhere().ranges(walk("Discrete").default_params, {"width": (0.5, 2.5), "noise": (0.0, 0.3)})


def _attached(name: str, *levels: Any, config: dict[str, Any] = {}, updates: int = 6, **hyper: Any) -> Made:  # noqa: B006
    def made() -> Case:
        source = module(name)
        first = [_box() if level == "box" else level for level in levels]
        chosen = {"config": lambda: source.Config(**config), "hyper": lambda: source.Hyper(**hyper)}
        there = inspect.signature(source.make).parameters
        curriculum = source.make(*first, **{name: x() for name, x in chosen.items() if name in there})
        return Case(jaxrl.curriculum.attach(_student(), curriculum), updates=updates)

    return made


def _from_states(name: str) -> Made:
    def made() -> Case:
        source = module(name)
        env = walk("Discrete", Still)
        starts, params = elsewhere().FromStates(env), env.default_params
        student = make("ppo", jaxrl.vectorize(starts, 4, batched_params=True), {**ON_POLICY, **PASSES})[1]
        states = jax.vmap(lambda key: env.initial(key, params))(jax.random.split(jax.random.key(3), 3))
        if name == "reverse_curriculum":
            config = source.Config(capacity=6, history=8, walk_steps=3, repeats=2)
            algo = jaxrl.curriculum.attach(student, source.make(starts, states, config))
            return Case(algo, params=starts.starting(params, states), updates=6)
        teacher = make("ppo", env, {**ON_POLICY, **PASSES})[1]
        policy = teacher.policy(teacher.init(jax.random.key(1)))
        config = source.Config(num_episodes=3, keep=2, every=1, max_steps=4, clusters=2)
        table = source.take(jax.random.key(0), teacher, policy, env, params, config)
        algo = jaxrl.curriculum.attach(student, source.make(table, source.Hyper(batches=4.0)))
        return Case(algo, params=source.params_of(starts, params, table), updates=6)

    return made


def _paired(**config: Any) -> Made:
    def made() -> Case:
        source = module("paired")
        designer = make("ppo", Design(id="Design"), {**ON_POLICY, **PASSES, "num_steps": 2, "hidden": (4,)})[1]
        default = walk("Discrete").default_params

        def level(state):
            return default.replace(width=state.width)

        return Case(source.make(_student(), designer, level, source.Config(**config)))

    return made


def _adversarial() -> Case:
    source = module("adversarial_params")
    venv = jaxrl.vectorize(walk("Box", Still), 4, level_fn=source.Drawn(_box()))
    student = make("ppo", venv, {**ON_POLICY, **PASSES, "hidden": (4,)})[1]
    return Case(source.make(student, source.Config(num_adversaries=3, num_episodes=2, num_steps=4)))


def _curricula() -> Iterator[tuple[str, Made]]:
    buffer = dict(buffer_size=8)
    yield "curriculum:dr", _attached("dr", _drawn)
    yield "curriculum:plr", _attached("plr", _drawn, config=buffer)
    yield "curriculum:plr+parallel", _attached("plr", _drawn, config=dict(**buffer, parallel=True, robust=False))
    yield "curriculum:plr+proportional", _attached("plr", _drawn, config=dict(**buffer, prioritization="proportional"))
    edits = dict(buffer_size=6, num_edits=2)
    for end, parents in (("", {}), ("+easy", dict(parents="easy", num_parents=2))):
        accel = _attached("accel", _drawn, _edited, config={**edits, **parents}, updates=12, replay_prob=0.9)
        yield f"curriculum:accel{end}", accel
    sfl = dict(buffer_size=4, num_levels=8, num_steps=9, chunk=4, refresh_every=2)
    yield "curriculum:sfl", _attached("sfl", _drawn, config=sfl)
    yield "curriculum:groove", _attached("groove", _drawn, config=buffer)
    between = dict(return_low=-3.0, return_high=3.0)
    yield "curriculum:adr", _attached("adr", "box", widen_at=0.0, num_returns=2.0, boundary_prob=0.9)
    yield "curriculum:alp_gmm", _attached("alp_gmm", "box", config=dict(fit_rate=8, largest=2, history=12), **between)
    yield "curriculum:covar_gmm", _attached("covar_gmm", "box", config=dict(fit_rate=8, largest=2), **between)
    yield "curriculum:riac", _attached("riac", "box", config=dict(region_size=6, attempts=3, max_regions=4), **between)
    yield (
        "curriculum:self_paced",
        _attached("self_paced", "box", config=dict(num_contexts=8, rounds=3, steps=4), threshold=-1.0),
    )
    yield "curriculum:oracle_teacher", _attached("oracle_teacher", "box", threshold=-1.0, num_returns=4.0)
    yield "curriculum:random_teacher", _attached("random_teacher", "box")
    yield "curriculum:reverse_curriculum", _from_states("reverse_curriculum")
    yield "curriculum:snapshot", _from_states("snapshot")
    yield "curriculum:paired", _paired()
    yield "curriculum:paired+population", _paired(reward="population", num_students=3)
    yield "curriculum:adversarial_params", _adversarial


def _taught(**config: Any) -> Made:
    """A rule that agents on levels of the walk learn by, improved by gradients, or by strategies (`num_pairs`)."""

    def made() -> Case:
        source = module("evolving" if "num_pairs" in config else "training")
        small = dict(num_envs=2, num_steps=3, lifetimes=(2, 3), features=4, predictions=3, buffer_size=4)
        return Case(source.make(walk("Discrete"), source.Config(**{**small, **config})), acts=False)

    return made


def _meta() -> Iterator[tuple[str, Made]]:
    for rule in ("lpg", "ta_lpg", "lpo", "ppo"):  # of several passes, as drifts have no slope before the first step
        passes = {} if rule.endswith("lpg") else dict(num_epochs=2, num_minibatches=2)
        yield f"meta:{rule}", _taught(rule=rule, num_agents=2, num_updates=2, **passes)
    yield "meta:lpg+groove", _taught(rule="lpg", num_agents=2, num_updates=2, curriculum="groove")
    yield "meta:lpg+strategies", _taught(rule="lpg", num_pairs=2)
    yield "meta:lpo+strategies+groove", _taught(rule="lpo", num_pairs=2, curriculum="groove", num_epochs=2)
    config = dict(num_envs=2, num_steps=4, batch_size=2, buffer_size=8, hidden=(8, 8), model_size=4)
    config |= dict(model_hidden=(4,), num_bins=11, max_value=3.0, predictions=6, features=6, memory=4)

    def disco() -> Case:
        source, algo = make("disco", walk("Discrete"), config)
        of_rule = module("rule of disco")
        shapes = of_rule.shapes(of_rule.RuleConfig(6, 6, 4))
        rng = np.random.default_rng(0)
        rule = {name: rng.normal(size=shape) * 0.3 for name, shape in sorted(shapes.items())}
        return Case(algo, source.Hyper(rule=rule))

    yield "disco", disco

    def agent() -> Case:
        source = module("lpg")
        of_agent = found("AgentConfig", "jaxrl.meta")
        network = source.RuleConfig(3, 4, (2,))
        return Case(source.make(walk("Discrete"), of_agent(num_envs=2, num_steps=4, hidden=(4,)), rule_config=network))

    yield "meta:lpg_agent", agent
    tasks = dict(num_tasks=3, num_envs=3, num_steps=3, hidden=(4,))
    for name, changes in (("maml", {}), ("maml+first_order", dict(first_order=True)), ("es_maml", {})):

        def maml(name: str = name, changes: dict[str, Any] = changes) -> Case:
            return Case(make(name.partition("+")[0], walk("Discrete"), {**tasks, **changes})[1], acts=False)

        yield f"meta:{name}", maml
    yield "meta:rl2", lambda: Case(make("rl2", walk("Discrete"), {**ON_POLICY, **PASSES, "rnn_size": 4})[1])

    def pbt() -> Case:
        source, student = module("pbt"), make("ppo", walk("Discrete"), {**ON_POLICY, **PASSES})[1]
        explored = (("learning_rate", 1e-3, 1e-1), ("ent_coef", 1e-3, 1e-1))
        return Case(source.make(student, source.Config(explored, population=4, interval=2)), updates=5)

    yield "meta:pbt", pbt

    def replay_ratio() -> Case:
        adapt = module("replay_ratio").adapt
        source, student = make("td3", walk("Box"), {**SMALL, "num_envs": 2, "num_steps": 1, "num_updates": 4})
        return Case(adapt(student), settings(source.Hyper, **RATES))

    yield "meta:replay_ratio", replay_ratio


def cases() -> dict[str, Made]:
    """All of them by name."""
    parts = (_general, _deep_q, _actor_critic, _sequence, _preferences, _imitation, _tables, _curricula, _meta)
    return {name: made for part in parts for name, made in part()}


def without() -> list[str]:
    """Algorithms and curricula of the registry that have no case."""
    there = [*registry.list_algos(), *(f"curriculum:{name}" for name in registry.list_curricula())]
    every = {*cases(), "mex"}  # MEX was a part of TD3, and is `td3+optimism` here
    return [name for name in there if name not in every]


# ---- the comparison


def compared(new: dict[str, Any], old: dict[str, Any], tolerance: float) -> tuple[str, list[str]]:
    """`("equal", "close" or "DIFFERS", what to say of it)`."""
    worst, said = 0, []
    for part in ("weights", "world", "actions"):
        a, b = new[part], old[part]
        if a["hash"] == b["hash"]:
            continue
        if part == "weights" and sorted(_parts(a["each"])) == sorted(_parts(b["each"])):
            said.append(f"{part}: equal leaves in another order")
        elif _close(a["sums"], b["sums"], tolerance):
            worst = max(worst, 1)
            said.append(f"{part}: close {_gap(a['sums'], b['sums'])}")
        elif _close(_by_size(a["sums"]), _by_size(b["sums"]), tolerance):
            worst = max(worst, 1)
            said.append(f"{part}: close, with leaves in another order")
        else:
            worst = 2
            said.append(f"{part}: differ {_gap(a['sums'], b['sums'])}")
    for name, (hashed, values) in old["metrics"].items():
        if name not in new["metrics"]:
            worst = 2
            said.append(f"metric {name}: gone")
            continue
        got, numbers = new["metrics"][name]
        if got == hashed:
            continue
        if _close(numbers, values, tolerance):
            worst = max(worst, 1)
            said.append(f"metric {name}: close")
        else:
            worst = 2
            said.append(f"metric {name}: differs {_gap(numbers, values)}")
    if added := sorted(set(new["metrics"]) - set(old["metrics"])):
        said.append(f"new metrics: {', '.join(added)}")
    now, before = set(_parts(new["seen"])), set(_parts(old["seen"]))
    if gone := len(before - now):
        said.append(f"seen: {gone} of {len(before)} arrays of the old state are not there")
    return ("equal", "close", "DIFFERS")[worst], said


def _parts(hashes: str) -> list[str]:
    return [hashes[i : i + DIGITS] for i in range(0, len(hashes), DIGITS)]


def _by_size(sums: list[float]) -> list[float]:
    """Pairs of a sum and one of absolute values, sorted by the latter."""
    pairs = sorted(zip(sums[::2], sums[1::2], strict=True), key=lambda pair: pair[::-1])
    return [number for pair in pairs for number in pair]


def _close(a: list[float], b: list[float], tolerance: float) -> bool:
    # A mean of terms of size 1 that cancel, such as a policy's loss, is rounded as these are, however small it is: by
    # 4e-8 between two processors.
    return len(a) == len(b) and bool(np.allclose(a, b, rtol=tolerance, atol=tolerance / 10, equal_nan=True))


def _gap(a: list[float], b: list[float]) -> str:
    if len(a) != len(b):
        return f"({len(b)} numbers are {len(a)})"
    with np.errstate(all="ignore"):
        apart = np.abs(np.subtract(a, b)) / np.maximum(np.abs(b), 1e-12)
    return f"(by {np.nanmax(apart):.1e})" if np.any(np.isfinite(apart)) else "(NaN)"


# ---- the command


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("do", choices=("write", "compare", "list"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--only", nargs="+", default=["*"], help="shell patterns of names of cases")
    parser.add_argument("--tolerance", type=float, default=1e-9, help="relative, up to which numbers are close")
    parser.add_argument("--no-cache", action="store_true", help="compile anew what an earlier run has compiled")
    parser.add_argument("--trace", action="store_true", help="print the traceback of a case that fails")
    args = parser.parse_args()
    if args.no_cache:
        jax.config.update("jax_enable_compilation_cache", False)
    else:
        folder = Path(tempfile.gettempdir()) / "jaxrl-fingerprints"
        jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR", str(folder)))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    warnings.filterwarnings("ignore", module="jax")
    every = cases()
    wanted = [name for name in every if any(fnmatch.fnmatchcase(name, pattern) for pattern in args.only)]
    if args.do == "list":
        print(*wanted, sep="\n")
        return 0
    if args.file is None or not wanted:
        parser.error("no file" if wanted else f"no case is called {' or '.join(args.only)}")
    kept = json.loads(args.file.read_text())["cases"] if args.file.exists() else {}
    print(f"{len(wanted)} cases of {Path(jaxrl.__file__).parent}", flush=True)
    counts: dict[str, list[str]] = {}
    began = time.perf_counter()
    for name in wanted:
        start = time.perf_counter()
        try:
            result = tried(every[name], kept[name]["double"] if args.do == "compare" and name in kept else None)
        except Exception as error:  # one that fails is told, and the others go on
            counts.setdefault("FAILS", []).append(name)
            line = str(error).strip().split("\n")[0][:200]
            print(f"{name:40} FAILS    {type(error).__name__}: {line}", flush=True)
            if args.trace:
                traceback.print_exc()
            continue
        seconds = time.perf_counter() - start
        if args.do == "write":
            kept[name] = result
            answer, said = "written", []
        elif name not in kept:
            answer, said = "new", []
        else:
            answer, said = compared(result, kept[name], args.tolerance)
        counts.setdefault(answer, []).append(name)
        print(f"{name:40} {answer:8} {result['weights']['hash']} {seconds:5.1f} s  {'; '.join(said)}", flush=True)
        if args.do == "write":
            _save(args.file, kept)
    if args.do == "compare" and args.only == ["*"]:
        counts |= {"GONE": [name for name in kept if name not in every], "LACK A CASE": without()}
        counts = {answer: names for answer, names in counts.items() if names}
    print(f"{time.perf_counter() - began:.0f} s:", ", ".join(f"{len(x)} {answer}" for answer, x in counts.items()))
    bad = [f"{answer}: {' '.join(names)}" for answer, names in counts.items() if answer.isupper()]
    print(*bad, sep="\n")
    return int(bool(bad))


def _save(path: Path, kept: dict[str, Any]) -> None:
    """A line a case, sorted by name, so that versions of the file compare."""
    about = {"jax": jax.__version__, "updates": UPDATES}
    lines = [f"{json.dumps(name)}: {json.dumps(kept[name], separators=(',', ':'))}" for name in sorted(kept)]
    text = f'{{"about": {json.dumps(about)}, "cases": {{\n' + ",\n".join(lines) + "\n}}\n"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
