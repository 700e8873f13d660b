"""An environment that is played on a page, a step at a time: by hand, or by a policy."""

from __future__ import annotations

import inspect
import io
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.environment import check_params, split_observation, strongly_typed
from jaxrl.host.browser import boards, controls
from jaxrl.host.browser.server import Blob
from jaxrl.host.render import playback

MOST_AT_ONCE = 1000
"""Steps of one request."""

MOST_SHOWN = 64
"""Numbers of an observation that are shown one by one."""

WITHOUT_CLOCK = {"box": 30.0, "discrete": 6.0, "multi": 6.0}
"""Steps a second, by the kind of its controls, of a task that has no time of its own, as a grid."""


class Player(NamedTuple):
    """A policy that can act in the place of the hand."""

    algo: Any
    policy: Any
    name: str
    greedy: bool | None = None  # as `evaluate` has it


class Keys(NamedTuple):
    """Random numbers of an episode, all of the number that the page calls its seed."""

    level: Any
    reset: Any
    step: Any  # of step t with t folded in, as of the two below
    act: Any
    others: Any


def keys_of(seed: int) -> Keys:
    return Keys(*jax.random.split(jax.random.key(seed), 5))


class Game:
    """One episode after another of an environment; what the page asks and says goes through `get` and `post`.

    Where levels have a board of cells (a maze), the level is drawn first and the episode is played on it, which is the
    same in distribution; so it can be changed and played again. Requests come from several threads, one at a time.

    Raises ValueError for params that no episode can have, and for actions that have no controls.
    """

    name = "play"

    def __init__(self, env: Any, params: Any = None, key: int = 0, player: Player | None = None) -> None:
        params = strongly_typed(env.default_params if params is None else params)
        check_params(env, params)
        self.task, self.task_params, self.player = env, params, player
        kit = env.levels
        self.env = self._stage(kit)
        self.kit = kit if self.env is not env or self._board(params) is not None else None
        self.params: Any = params
        self.space = env.action_space(params)
        self.controls = {**controls.described(self.space, env.action_names), "grid": self._cells()}
        self._reset, self._step = jax.jit(self.env.reset), jax.jit(self.env.step)
        if kit is not None:
            self._generate, self._mutate = (f and jax.jit(f) for f in (kit.generate, kit.mutate))
        self._act = None if player is None else self._actor(player)
        self.seed, self.edits, self.drawn = key, 0, True
        self.version = 0
        self._lock = threading.RLock()
        self._begun = False
        self._picture: tuple[int, bytes] | None = None
        self.get = {"about": self._about, "state": self._state, "picture.png": self._drawn_picture}
        self.post = {"reset": self._again, "step": self._steps, "level": self._change}

    def _stage(self, kit: Any) -> Any:
        """The environment that is stepped: the task on a level that is known, where levels are boards."""
        if kit is None or kit.generate is None or kit.env == self.task:
            return self.task
        if self.player is not None and self.player.algo.deployed == "search":  # which is of the task alone
            return self.task
        level = jax.eval_shape(kit.generate, jax.random.key(0), self.task_params)
        known = boards.board_of(kit.env, jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), level))
        return self.task if known is None else kit.env

    def _cells(self) -> tuple[int, int] | None:
        """Rows and columns where an action is a cell of a grid, row by row."""
        env = boards.bare(self.task)
        sides = [(getattr(env, a, 0), getattr(env, b, 0)) for a, b in (("rows", "columns"), ("height", "width"))]
        return next((side for side in sides if side[0] * side[1] == getattr(self.space, "n", None)), None)

    def _board(self, level: Any) -> boards.Board | None:
        return boards.board_of(self.env, jax.device_get(level))

    def _actor(self, player: Player) -> Any:
        from jaxrl.evaluation import actor

        by = actor(player.algo, self.env if player.algo.deployed != "search" else self.task, player.greedy)

        def act(key, state, obs, params, carry):
            one = jax.tree.map(lambda x: x[None], (state, obs))
            action, carry = by(player.policy, key, *one, params, carry)
            return jax.tree.map(lambda x: x[0], action), carry

        return jax.jit(act)

    # ---- an episode

    def begin(self, seed: int, level: Any = None) -> None:
        """Start the episode of a seed, on its own level or on the one that is given."""
        keys = keys_of(seed)
        if level is None:
            level = self.task_params
            if self.kit is not None and self.env is not self.task:
                level = self._generate(keys.level, self.task_params)
        self.seed, self.keys, self.params = seed, keys, level
        self.obs, self.state = self._reset(keys.reset, level)
        self.time, self.total = 0, np.zeros(self._agents or ())
        self.reward: Any = None
        self.terminated = self.truncated = False
        self.action: Any = None
        self.info: dict[str, Any] = {}
        self.carry = None if self.player is None else self.player.algo.initial_carry((1, *self._agents))
        self._moved()

    def step(self, action: Any) -> None:
        """One step with an action as the environment takes it."""
        ts = self._step(jax.random.fold_in(self.keys.step, self.time), self.state, action, self.params)
        self.obs, self.state, self.action = ts.obs, ts.state, action
        self.reward, self.info = np.asarray(ts.reward), {k: np.asarray(v) for k, v in ts.info.items()}
        self.terminated, self.truncated = bool(ts.terminated), bool(ts.truncated)
        self.time += 1
        self.total = self.total + np.asarray(self.reward, float)
        self._moved()

    def _moved(self) -> None:
        self.version += 1
        self._begun = True
        self.suggested = None
        if self._act is not None and not self.over:
            # Once an observation, whoever acts then: so that what the policy remembers is what it has seen.
            key = jax.random.fold_in(self.keys.act, self.time)
            self.suggested, self.carry = self._act(key, self.state, self.obs, self.params, self.carry)

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated

    @property
    def _agents(self) -> tuple[int, ...]:
        return (self.env.num_agents,) if self.env.num_agents > 1 else ()

    @property
    def mask(self) -> Any:
        """Which actions are allowed, of the first of several agents; None without a mask."""
        mask = split_observation(self.obs, self.env.observation_space(self.params))[2]
        return None if mask is None else np.asarray(mask)[0] if self._agents else np.asarray(mask)

    def action_of(self, said: Any, others: Any = "neutral") -> Any:
        """The action of all agents: of the first what the page sent, of the others none, or any."""
        own = controls.read(self.space, said, self.mask)
        if not self._agents:
            return jnp.asarray(own)
        if others == "random":
            drawn = jax.random.split(jax.random.fold_in(self.keys.others, self.time), self._agents[0])
            rest = np.asarray(jax.vmap(self.space.sample)(drawn))
        elif others == "neutral":
            rest = np.broadcast_to(controls.neutral(self.space), (*self._agents, *self.space.shape))
        else:
            raise ValueError(f"others={others!r:.60}: neutral or random.")
        return jnp.asarray(np.concatenate([own[None], rest[1:]]).astype(self.space.dtype))

    # ---- what the page asks

    def _ready(self) -> None:
        if not self._begun:
            self.begin(self.seed)

    def _about(self, asked: dict[str, str]) -> dict[str, Any]:
        with self._lock:
            clocked = hasattr(getattr(self.task_params, "env", self.task_params), "dt")
            every, fps = playback(self.task, self.task_params) if clocked else (1, WITHOUT_CLOCK[self.controls["kind"]])
            module = inspect.getmodule(type(boards.bare(self.task)))
            words = (inspect.getdoc(module) if module and module.__name__ != "__main__" else None) or ""
            return {
                "id": self.task.id,
                "words": words.split("\n\n")[0].replace("\n", " "),
                "controls": self.controls,
                "agents": self.env.num_agents,
                "clock": {"every": every, "fps": fps, "real": clocked},
                "player": None if self.player is None else self.player.name,
                "levels": {
                    "drawn": self.env is not self.task,
                    "mutate": self.kit is not None and self.kit.mutate is not None,
                },
                "seed": self.seed,
            }

    def _state(self, asked: dict[str, str]) -> dict[str, Any]:
        with self._lock:
            self._ready()
            return self._told()

    def _told(self) -> dict[str, Any]:
        mask = self.mask
        board = None if self.kit is None else self._board(self.params)
        return {
            "version": self.version,
            "seed": self.seed,
            "edits": self.edits,
            "time": self.time,
            "limit": _limit(self.params),
            "reward": self.reward,
            "total": self.total,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "action": self.action,
            "suggested": self.suggested,
            "mask": mask,
            "mission": self._mission(),
            "picture": self._painted() is not None,
            "observation": self._observed(),
            "terms": {name: x for name, x in sorted(self.info.items()) if np.ndim(x) == 0},
            "board": None if board is None else {"rows": board.rows, "columns": board.columns, "things": board.things},
        }

    def _observed(self) -> list[dict[str, Any]]:
        parts = self.obs if isinstance(self.obs, dict) else {"": self.obs}
        names = self.env.observation_names
        found = []
        for name, x in parts.items():
            leaves = jax.tree.leaves(x)
            x = np.asarray(leaves[0])
            few = len(leaves) == 1 and x.size <= MOST_SHOWN
            said = {"name": name, "shape": list(x.shape), "dtype": str(x.dtype)}
            if few:
                called = names if len(names) == x.size and x.ndim == 1 else ()
                said |= {"names": called, "values": x.reshape(-1)}
            else:
                said |= {"least": np.min(x), "greatest": np.max(x)}
            found.append(said)
        return found

    def _mission(self) -> str | None:
        mission = self.obs.get("mission") if isinstance(self.obs, dict) else None
        text = getattr(boards.bare(self.task), "mission_text", None)
        return None if mission is None or text is None else text(np.asarray(mission))

    def _painted(self) -> bytes | None:
        """The picture of the state as a PNG; None where the environment draws none."""
        if self._picture is None or self._picture[0] != self.version:
            from PIL import Image

            try:
                frame = self.env.render(self.state, self.params)
            except NotImplementedError:
                return None
            held = io.BytesIO()
            Image.fromarray(frame).save(held, "PNG", compress_level=1)
            self._picture = self.version, held.getvalue()
        return self._picture[1]

    def _drawn_picture(self, asked: dict[str, str]) -> Blob:
        with self._lock:
            self._ready()
            content = self._painted()
            if content is None:
                raise ValueError(f"{self.task.id} draws no picture.")
            return Blob(content, ".png")

    # ---- what the page does

    def _again(self, said: dict[str, Any]) -> dict[str, Any]:
        """Start again: on the same level, or that of a seed."""
        with self._lock:
            self._ready()
            seed = said.get("seed", self.seed)
            if type(seed) is not int or not 0 <= seed < 2**32:
                raise ValueError(f"seed {seed!r:.60}: it must be a whole number from 0 to {2**32 - 1}.")
            if "seed" in said:
                self.edits = 0
                self.begin(seed)
            else:
                self.begin(seed, self.params)
            return self._told()

    def _steps(self, said: dict[str, Any]) -> dict[str, Any]:
        """Some steps with one action, or by the policy, and what was earned in all of them."""
        with self._lock:
            self._ready()
            times = said.get("times", 1)
            if type(times) is not int or not 1 <= times <= MOST_AT_ONCE:
                raise ValueError(f"times {times!r:.60}: it must be from 1 to {MOST_AT_ONCE}.")
            by_policy = said.get("action") == "policy"
            if by_policy and self.player is None:
                raise ValueError("there is no policy here: jaxrl play RUN, or zoo:NAME, has one.")
            if self.over:
                raise ValueError("the episode is over: start another one.")
            earned = 0.0
            for _ in range(times):
                own = said.get("action"), said.get("others", "neutral")
                action = self.suggested if by_policy else self.action_of(*own)
                self.step(action)
                earned = earned + np.asarray(self.reward, float)
                if self.over:
                    break
            return {**self._told(), "reward": earned}

    def _change(self, said: dict[str, Any]) -> dict[str, Any]:
        """Put a thing to a cell of the level, or change it as a curriculum does, and start again on it."""
        with self._lock:
            self._ready()
            if self.kit is None:
                raise ValueError("levels of this task cannot be changed here.")
            if said.get("mutate"):
                if self._mutate is None:
                    raise ValueError("levels of this task have no small changes.")
                level = self._mutate(jax.random.fold_in(self.keys.level, 1 + self.edits), self.params)
            else:
                level = boards.changed(self.env, jax.device_get(self.params), said.get("thing"), said.get("cell"))
                level = strongly_typed(level)
                self.kit.validate(level)
            self.edits += 1
            self.begin(self.seed, level)
            return self._told()


def _limit(params: Any) -> int | None:
    from jaxrl.environment import NO_LIMIT

    limit = int(np.max(np.asarray(params.max_steps)))
    return None if limit == NO_LIMIT else limit
