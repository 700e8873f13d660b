"""Episodes of trained policies over time: recorded, kept as `media/episode.json`, drawn as a picture.

What is shown of a state is the task's `telemetry`; of a task without one its observation, by `observation_names`.
matplotlib loads when it draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.canvas import COLORS
from jaxrl.environment import Environment, visible
from jaxrl.host.run.files import read_json
from jaxrl.host.run.run_folder import RunFolder, RunFolderError, tree_values, write_json
from jaxrl.spaces import Box
from jaxrl.telemetry import Curve, Episode, Plane, Quantity, panels, period, split

FILE = "episode.json"
"""In `media/` of a run folder; `episode.png` beside it is its picture."""

LONGEST = 10_000
"""Samples of an episode that are kept."""


class Played(NamedTuple):
    """T steps of one episode: observations and states have T + 1 entries, the others T."""

    obs: Any
    states: Any
    actions: Any
    rewards: np.ndarray
    infos: dict[str, np.ndarray]
    terminated: bool
    truncated: bool


def play(algo: Any, policy: Any, key: Any, env: Any, params: Any, steps: int, greedy: bool | None) -> Played:
    """One episode of at most so many steps, from the first state to the one in which it ended."""
    from jaxrl.evaluation import actor

    act = actor(algo, env, greedy)

    def step(loop, key):
        obs, state, carry = loop
        act_key, env_key = jax.random.split(key)
        one = jax.tree.map(lambda x: x[None], (state, obs))
        action, carry = act(policy, act_key, *one, params, carry)
        action = jax.tree.map(lambda x: x[0], action)
        ts = env.step(env_key, state, action, params)
        return (ts.obs, ts.state, carry), (ts.obs, ts.state, action, ts.reward, ts.info, ts.terminated, ts.truncated)

    @jax.jit
    def episode(key):
        reset_key, run_key = jax.random.split(key)
        obs, first = env.reset(reset_key, params)
        loop = obs, first, algo.initial_carry((1,))
        _, (obs_after, after, *rest) = jax.lax.scan(step, loop, jax.random.split(run_key, steps))
        before = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), (obs, first), (obs_after, after))
        return *before, *rest

    obs, states, actions, rewards, infos, terminated, truncated = episode(key)
    done = np.asarray(terminated | truncated)
    length = int(np.argmax(done)) + 1 if np.any(done) else steps
    obs, states = jax.tree.map(lambda x: x[: length + 1], (obs, states))
    actions, rewards, infos = jax.tree.map(lambda x: x[:length], (actions, rewards, infos))
    ends = bool(terminated[length - 1]), bool(truncated[length - 1])
    return Played(obs, states, actions, np.asarray(rewards), {k: np.asarray(v) for k, v in infos.items()}, *ends)


def shows(env: Environment, params: Any) -> bool:
    """Whether time plots say something of a task: it has telemetry or names, or is of continuous control."""
    _, state = jax.eval_shape(env.reset, jax.random.key(0), params)
    if env.observation_names or jax.eval_shape(env.telemetry, state, params):
        return True
    spaces = (_flat(env.observation_space(params)), env.action_space(params))
    return all(isinstance(s, Box) and len(s.shape) == 1 and jnp.issubdtype(s.dtype, jnp.floating) for s in spaces)


def require_shows(env: Environment, params: Any) -> None:
    """Raises ValueError for a task whose observation is neither telemetry nor one row of numbers."""
    if not shows(env, params):
        raise ValueError(
            f"{env.id}: an episode has no time plot: its observation is no row of numbers with names; "
            "`jaxrl render` draws it."
        )


def _flat(space: Any) -> Any:
    """The part of an observation that names are about."""
    return space.spaces.get("obs", space) if hasattr(space, "spaces") and isinstance(space.spaces, dict) else space


def episode_of(env: Environment, params: Any, played: Played, told: Mapping[str, Any] | None = None) -> Episode:
    """What is shown of an episode.

    Raises ValueError for a task whose observation is neither telemetry nor one row of numbers.
    """
    require_shows(env, params)
    order: list[str] = []  # in which the task names them; jit sorts

    def telemetry_of(state: Any) -> dict[str, Quantity]:
        found = env.telemetry(state, params)
        order[:] = found
        return found

    found = jax.tree.map(lambda x: np.asarray(x, float), jax.jit(jax.vmap(telemetry_of))(played.states))
    telemetry = {name: found[name] for name in order}
    observation = played.obs
    if not telemetry:
        seen = visible(observation)
        observed = np.asarray(seen["obs"] if isinstance(seen, dict) else seen, float)
        space = _flat(env.observation_space(params))
        telemetry = _columns(observed, env.observation_names, "obs", space)
        planes = []
    else:
        planes = env.planes(telemetry, params)
    signals = {name: _limited(quantity) for name, quantity in _apart(telemetry).items()}
    actions = np.asarray(played.actions, float)
    space = env.action_space(params)
    actions = actions.reshape(len(actions), -1)
    one = env.action_names
    agents = actions.shape[1] // len(one) if one else 1
    names = one if agents == 1 else tuple(f"{name} of {agent}" for agent in range(1, agents + 1) for name in one)
    acted = _columns(actions, names, "action", space if isinstance(space, Box) and agents == 1 else None)
    terms = {k.removeprefix("reward/"): v for k, v in sorted(played.infos.items()) if k.startswith("reward/")}
    rewards = {"reward": played.rewards, **terms}
    rewards = {name: np.asarray(x, float).reshape(len(x), -1).mean(1) for name, x in rewards.items()}
    end = "terminated" if played.terminated else "truncated" if played.truncated else "cut"
    told = {"end": end, **(told or {})}
    return Episode(env.id, period(env, params), signals, acted, rewards, planes, parameters(params), told)


def _columns(values: np.ndarray, names: Any, otherwise: str, space: Any) -> dict[str, Quantity]:
    """The columns of an array, with the bounds of their space where these are finite; rows of agents one by one."""
    values = values.reshape(len(values), -1)
    if len(names) != values.shape[1]:
        names = [f"{otherwise}[{i}]" for i in range(values.shape[1])]
    bounds: list[Any] = [None, None]
    if isinstance(space, Box) and np.prod(space.shape) == values.shape[1]:
        bounds = [np.broadcast_to(np.asarray(x, float), space.shape).ravel() for x in (space.low, space.high)]
    limits = [[None if b is None or not np.isfinite(b[i]) else float(b[i]) for b in bounds] for i in range(len(names))]
    return {name: Quantity(values[:, i], None, *limits[i]) for i, name in enumerate(names)}


def _apart(telemetry: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Quantities of M agents as M of one."""
    found = {}
    for name, quantity in telemetry.items():
        if np.ndim(quantity.value) < 2:
            found[name] = quantity
            continue
        what, unit = split(name)
        for agent in range(quantity.value.shape[1]):
            own = [x[:, agent] if np.ndim(x) == 2 else x for x in quantity]
            found[f"{what} of {agent + 1}" + (f" [{unit}]" if unit else "")] = Quantity(*own)
    return found


def _limited(quantity: Quantity) -> Quantity:
    """The limits that are finite somewhere; limits that are infinite everywhere are left out."""

    def limit(x: Any) -> Any:
        if x is None or not np.any(np.isfinite(x)):
            return None
        return float(np.ravel(x)[0]) if np.ptp(x) == 0 else np.asarray(x, float)

    return quantity._replace(low=limit(quantity.low), high=limit(quantity.high))


def parameters(params: Any) -> list[tuple[str, str, str]]:
    """Name, value and what its class says of it, of every number of a task; arrays by their shape."""
    from jaxrl.host.cli.flags import comments_of

    rows = []
    for name, value in tree_values(params).items():
        owner, _, field = name.rpartition(".")
        held = params
        for part in filter(None, owner.split(".")):
            held = getattr(held, part, None)
        shown = f"{value:.6g}" if isinstance(value, int | float) else f"array of shape {np.shape(value)}"
        if name == "max_steps" and value == np.iinfo(np.int32).max:
            shown = "no limit"
        rows.append((name, shown, comments_of(type(held)).get(field, "") if hasattr(held, field) else ""))
    return rows


# ---- of a run folder


def record(
    run: str | Path,
    seed: int = 0,
    max_steps: int | None = None,
    greedy: bool | None = None,
    at: int | str | None = None,
    key: int | None = None,
) -> Episode:
    """One episode of the policy of a run's `seed`, or of `zoo:NAME`, of at most `max_steps` (1000 by default), with
    the random numbers of `key` (by default, of `seed`); `at` is the update of its checkpoint, or "best".

    Raises RunFolderError, CheckpointError or ZooError where no policy is made, ValueError for a seed that it has not or
    a task of which nothing can be plotted.
    """
    from jaxrl.algorithm import deployment
    from jaxrl.zoo import of_seed, policies_of

    found = policies_of(Path(run), at=at)
    algo, policy, env, params = of_seed(found, seed)
    require_shows(env, params)
    from jaxrl.host.cli.flags import key_of, require_episode_fits

    require_episode_fits(env, params, max_steps or 1000)
    steps = min(int(np.max(np.asarray(params.max_steps))), max_steps or 1000)
    played = play(algo, policy, key_of(seed if key is None else key, "--key"), env, params, steps, greedy)
    told = {"seed": seed, "act": deployment(algo, greedy)}
    if found.update is not None:
        told["update"] = found.update
    return episode_of(env, params, played, told)


def keep(episode: Episode, folder: str | Path) -> Path:
    """Write `media/episode.json` of a run folder."""
    every = -(-(episode.steps + 1) // LONGEST)

    def numbers(x: Any) -> Any:
        if x is None or isinstance(x, float | int):
            return x
        x = np.asarray(x, float)[::every]
        return [float(f"{v:.6g}") if np.isfinite(v) else None for v in x]

    def quantities(found: Mapping[str, Quantity]) -> dict[str, dict[str, Any]]:
        rows = {name: quantity._asdict() for name, quantity in found.items()}
        return {name: {k: numbers(v) for k, v in row.items() if v is not None} for name, row in rows.items()}

    def plain(plane: Plane) -> dict[str, Any]:
        curves = [{**c._asdict(), "x": numbers_of(c.x), "y": numbers_of(c.y)} for c in plane.curves]
        return {**plane._asdict(), "curves": curves}

    def numbers_of(x: Any) -> Any:
        return [float(f"{v:.6g}") if np.isfinite(v) else None for v in np.asarray(x, float)]

    media = RunFolder(folder).media
    media.mkdir(parents=True, exist_ok=True)
    write_json(
        media / FILE,
        {
            "env": episode.env,
            "period": None if episode.period is None else episode.period * every,
            "signals": quantities(episode.signals),
            "actions": quantities(episode.actions),
            "rewards": {name: numbers(x) for name, x in episode.rewards.items()},
            "planes": [plain(plane) for plane in episode.planes],
            "parameters": episode.parameters,
            "told": episode.told,
        },
    )
    return media / FILE


def read(folder: str | Path) -> Episode | None:
    """The episode that a run folder keeps, or None. Raises RunFolderError for a file of another program or version."""
    file = RunFolder(folder).media / FILE
    if not file.exists():
        return None

    def array(x: Any) -> Any:
        return np.array([np.nan if v is None else v for v in x], float) if isinstance(x, list) else x

    try:
        if file.is_symlink():
            raise ValueError("it is a link")
        kept = read_json(file)
        signals, actions = (
            {name: Quantity(**{k: array(v) for k, v in row.items()}) for name, row in kept[part].items()}
            for part in ("signals", "actions")
        )
        planes = [
            Plane(**{**p, "curves": [Curve(**{**c, "x": array(c["x"]), "y": array(c["y"])}) for c in p["curves"]]})
            for p in kept["planes"]
        ]
        rewards = {name: array(x) for name, x in kept["rewards"].items()}
        rows = [(str(a), str(b), str(c)) for a, b, c in kept["parameters"]]
        episode = Episode(kept["env"], kept["period"], signals, actions, rewards, planes, rows, kept["told"])
        if not signals or any(len(q.value) != episode.steps + 1 for q in signals.values()):
            raise ValueError("its lengths differ")
        return episode
    except (OSError, ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError) as error:
        raise RunFolderError(
            f"{file} is no episode that this version reads ({error}): `jaxrl plot --episode` makes it anew."
        ) from error


# ---- a picture


def plot_episode(episode: Episode, out: str | Path) -> Path:
    """Signals, actions and reward over time, a panel a unit: references dark, limits dashed.

    Raises ValueError for a suffix that matplotlib cannot write.
    """
    from jaxrl.host.plotting import _pyplot, _save

    plt = _pyplot()
    found = [(unit, members, episode.signals) for unit, members in panels(list(episode.signals)).items()]
    found += [("actions", list(episode.actions), episode.actions)]
    rows = len(found) + 1
    figure, grid = plt.subplots(rows, 1, figsize=(8, 1.7 * rows + 0.8), sharex=True, layout="constrained")
    time, what = episode.clock()
    for axes, (label, members, quantities) in zip(grid, found, strict=False):
        for i, name in enumerate(members):
            value, reference, low, high = quantities[name]
            color = COLORS[i % len(COLORS)]
            held = {"where": "post"} if quantities is episode.actions else {}
            (axes.step if held else axes.plot)(
                time[: len(value)], value, color=color, linewidth=1.2, label=split(name)[0], **held
            )
            if reference is not None:
                axes.plot(time, reference, color=color, linewidth=1, linestyle=":")
            for limit in (low, high) if len(members) <= len(COLORS) else ():
                if limit is not None and _near(limit, value):
                    axes.plot(time, np.broadcast_to(limit, time.shape), color=color, alpha=0.5, linewidth=0.8, ls="--")
        axes.set_ylabel(f"[{label}]" if label and label != "actions" else label)
        _legend(axes, 1 + len(members) // 9)
    for i, (name, value) in enumerate(episode.rewards.items()):
        style = {"color": "black", "linewidth": 1.6} if name == "reward" else {"color": COLORS[(i - 1) % len(COLORS)]}
        grid[-1].plot(time[1:], value, label=name, **{"linewidth": 1.0, **style})
    grid[-1].set(ylabel="reward", xlabel=f"time [{what}]" if what != "steps" else "steps")
    _legend(grid[-1])
    figure.suptitle(f"{episode.env}, dotted: references, dashed: limits", fontsize=10)
    return _save(figure, out)


def _legend(axes: Any, columns: int = 1) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=7, ncols=columns)


def _near(limit: Any, value: np.ndarray) -> bool:
    """Whether a limit is worth the room: no more than four times as far as the values go."""
    most = np.nanmax(np.abs(value), initial=0.0)
    return bool(np.max(np.abs(limit)) <= 4 * most) if most > 0 else True
