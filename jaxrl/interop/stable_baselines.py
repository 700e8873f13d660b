"""`to_sb3`: a batch of jaxrl environments for Stable-Baselines3 and SBX, which have a vector environment of their own.

Importing this module imports stable_baselines3, and with it torch; jaxrl declares neither.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv as SB3VecEnv

from jaxrl.environment import Environment
from jaxrl.interop.gymnasium import to_gymnasium_vector
from jaxrl.vector_env import VectorEnv


class ToSB3(SB3VecEnv):
    """Made by `to_sb3`; `venv` is the Gymnasium vector environment that it steps."""

    def __init__(self, venv: Any) -> None:
        self.venv = venv
        self._start = time.time()
        super().__init__(venv.num_envs, venv.single_observation_space, venv.single_action_space)

    def reset(self) -> Any:
        # `seed(s)` sets s, s+1, ...: one key makes the whole batch here, so the first alone decides.
        obs, _ = self.venv.reset(seed=self._seeds[0])
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, reward, terminated, truncated, info = self.venv.step(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(terminated | truncated):
            final = info["final_info"]
            infos[i] = {
                "terminal_observation": info["final_obs"][i],
                "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
                "episode": {  # as SB3's Monitor records it
                    "r": float(final["episode_return"][i]),
                    "l": int(final["episode_length"][i]),
                    "t": time.time() - self._start,
                },
            }
        return obs, reward.astype(np.float32), terminated | truncated, infos

    def close(self) -> None:
        self.venv.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        return self.venv.render() or [None] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The batch's attribute, once a slot: all slots share one object."""
        return [getattr(self.venv, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("to_sb3: slots have no attributes of their own; give `params` when it is made.")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        raise NotImplementedError("to_sb3: slots have no methods of their own; call those of `venv`.")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """True for `Monitor`, whose entry `infos` have: SB3's evaluation then takes returns from there."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]


def to_sb3(
    env: Environment | VectorEnv,
    num_envs: int | None = None,
    params: Any = None,
    *,
    seed: int | None = None,
    render_mode: str | None = None,
) -> SB3VecEnv:
    """What `to_gymnasium_vector` makes of the same arguments, as a `VecEnv` of Stable-Baselines3 and SBX.

    Where an episode ended, `infos` holds `terminal_observation`, `TimeLimit.truncated` (cut, not ended) and `episode`
    (return, length, seconds since made), so no monitor is needed. Raises what `to_gymnasium_vector` raises.
    """
    return ToSB3(to_gymnasium_vector(env, num_envs, params, seed=seed, render_mode=render_mode))
