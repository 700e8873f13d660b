"""Trained policies that come with the library, most of a few kilobytes: `jaxrl.zoo.load("ppo/CartPole-v1")`.

A file is an npz of the policy's arrays and, as JSON, of what it was made: the recipe of its run, command, versions, and
the return that it got when it was stored, which a test asks of it again. Of quality diversity it holds the archive,
too. No pickle, no download. `jaxrl eval`, `render`, `export`, `plot --episode` and `plot --archive` take `zoo:NAME` in
the place of a run folder. `python -m jaxrl.zoo RUN NAME` stores the policy of a run.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithm import Algorithm
from jaxrl.environment import Environment
from jaxrl.host.run.recipe import build, load_run, read_recipe
from jaxrl.meta.stored import arrays_of

FOLDER = Path(__file__).parent / "policies"
PREFIX = "zoo:"
ARCHIVE = "archive"
"""Before the names of an archive's arrays in a file; those of a policy begin with a dot or a bracket."""


class ZooError(ValueError):
    """An unknown name, or a file that holds no policy; the message says why."""


class Trained(NamedTuple):
    """A policy, and what it acts with and in."""

    algo: Algorithm
    policy: Any
    env: Environment
    params: Any
    about: dict[str, Any]  # recipe, command, versions, episodes, max_steps, return, lengths
    archive: Any = None  # elites.Cells, of an algorithm of quality diversity; None of others

    @property
    def kept(self) -> Kept:
        """For `behaviour.policy_of(trained.kept, cell)`, the policy of a cell of the archive."""
        return Kept(self.policy.weights, self.archive)


class Kept(NamedTuple):
    """An archive, and weights of one of its policies: what `behaviour.policy_of` asks of a state."""

    weights: Any
    archive: Any


def names() -> list[str]:
    """The names of all policies, `<algorithm>/<environment id>`."""
    return sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.npz"))


def about(name: str) -> dict[str, Any]:
    """What a stored policy says of itself, without building it. Raises ZooError as `load` does."""
    return json.loads(str(_arrays(name)["about"]))


def load(name: str) -> Trained:
    """A stored policy, ready to act: `algo.act(policy, key, obs, algo.initial_carry(batch))`.

    Raises ZooError for an unknown name, with the nearest that is known, and for a file that is damaged or of other
    shapes than the algorithm of this version has.
    """
    arrays = _arrays(name)
    told = json.loads(str(arrays.pop("about")))
    algo, hyper, env, params = build(told["recipe"])

    def kept(key):
        state = algo.init(key, hyper, params)
        return algo.policy(state), getattr(state, ARCHIVE, None) if any(x.startswith(ARCHIVE) for x in arrays) else None

    def read(wanted, prefix):
        leaves = []
        for place, x in jax.tree_util.tree_leaves_with_path(wanted):
            at = prefix + jax.tree_util.keystr(place)
            shape = arrays[at].shape if at in arrays else None
            if shape != x.shape:
                raise ZooError(f"{name}: {at} is {shape or 'missing'}, and {algo.name} has {x.shape} there.")
            leaves.append(jnp.asarray(arrays[at], x.dtype))
        return jax.tree.unflatten(jax.tree.structure(wanted), leaves)

    policy, archive = jax.eval_shape(kept, jax.random.key(0))
    return Trained(algo, read(policy, ""), env, params, told, read(archive, ARCHIVE))


def _arrays(name: str) -> dict[str, np.ndarray]:
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ZooError(f"{name!r}: no policy of this name comes with jaxrl.{hint} `jaxrl zoo` lists them.")
    arrays = arrays_of(FOLDER / f"{name}.npz", "policy")
    if "about" not in arrays:
        raise ZooError(f"{name}: its file does not say what it is of.")
    return arrays


def save(policy: Any, path: Path, told: dict[str, Any], archive: Any = None) -> Path:
    """Write one policy, float32 and smaller as they are, with what is told of it, and its archive if it has one."""
    named = (("", policy), (ARCHIVE, archive))
    leaves = {
        prefix + jax.tree_util.keystr(place): np.asarray(x)
        for prefix, tree in named
        for place, x in jax.tree_util.tree_leaves_with_path(tree)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, about=np.array(json.dumps(told)), **leaves)
    return path


class Policies(NamedTuple):
    """The policies of a run or of the zoo; leaves of `policies` have a leading axis of seeds."""

    algo: Algorithm
    policies: Any
    env: Environment
    params: Any
    seeds: int
    max_steps: int | None  # cap of the run's own evaluations
    reference: dict[str, Any] | None = None  # returns of the task that the dataset's file knew, `random` and `best`
    update: int | None = None  # of the run's checkpoint


def policies_of(
    run: Path,
    dataset: Path | None = None,
    at: int | str | None = None,
    choose: Callable[[Algorithm, Any], Any] | None = None,
) -> Policies:
    """Of `zoo:NAME`, or of the newest whole checkpoint of a run folder, of that `at` an update or of the "best" one;
    `dataset` is where its dataset is now. `choose(algo, state)` takes other policies than those that are deployed.

    Raises ZooError, RunFolderError or CheckpointError, which say what is wrong with it.
    """
    if str(run).startswith(PREFIX):
        if dataset is not None:
            raise ZooError(f"--dataset {dataset}: policies of the zoo need none.")
        if at is not None:
            raise ZooError(f"--at {at}: of a policy of the zoo there is one alone.")
        found = load(str(run).removeprefix(PREFIX))
        one = jax.tree.map(lambda x: x[None], found.policy)
        if choose is not None:
            if found.archive is None:
                raise ZooError(f"{run}: of a policy of the zoo without an archive there is nothing to choose among.")
            one = choose(found.algo, jax.tree.map(lambda x: x[None], found.kept))
        return Policies(found.algo, one, found.env, found.params, 1, found.about["max_steps"])
    recipe = read_recipe(run, dataset=dataset)
    algo, state, env, params, update = load_run(recipe, run, at)
    policies = jax.vmap(algo.policy)(state) if choose is None else choose(algo, state)
    reference = recipe.get("dataset", {}).get("reference")
    of_run = recipe["run"]
    return Policies(algo, policies, env, params, of_run["seeds"], of_run["eval_max_steps"], reference, update)


def policy_of(
    run: Path, seed: int, dataset: Path | None = None, at: int | str | None = None
) -> tuple[Algorithm, Any, Environment, Any]:
    """`(algo, policy, env, params)` of one seed of `policies_of`. Raises ValueError for a seed that it has not, too."""
    return of_seed(policies_of(run, dataset, at), seed)


def of_seed(found: Policies, seed: int) -> tuple[Algorithm, Any, Environment, Any]:
    """`(algo, policy, env, params)` of one seed. Raises ValueError for a seed that there is not."""
    if not 0 <= seed < found.seeds:
        raise ValueError(f"--seed {seed}: the run has seeds 0 to {found.seeds - 1}.")
    return found.algo, jax.tree.map(lambda x: x[seed], found.policies), found.env, found.params


def file_beside(run: Path, name: str) -> Path:
    """Where a command leaves a file by default: in the run folder; of the zoo in the current one, by the policy."""
    if str(run).startswith(PREFIX):
        return Path(f"{str(run).removeprefix(PREFIX).replace('/', '-')}{Path(name).suffix}")
    return run / name
