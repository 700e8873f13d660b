"""Several agents as one agent in several environments."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from jaxrl.environment import TimeStep
from jaxrl.vector_env import VectorEnv
from jaxrl.wrappers.base import Wrapper


@dataclasses.dataclass(frozen=True)
class Team(Wrapper):
    """Several agents presented as one: spaces are those of one agent, the reward is the mean over agents.

    Observations and actions keep their axis M, which is one more batch axis to a shared policy. This is the `env` of
    `agents_as_slots`, for evaluation; for learning use `agents_as_slots`.
    """

    @property
    def num_agents(self) -> int:
        return 1

    def step(self, key: Array, state: Any, action: Any, params: Any) -> TimeStep:
        ts = self.env.step(key, state, action, params)
        return ts._replace(reward=jnp.mean(ts.reward, -1))


@dataclasses.dataclass(frozen=True)
class AgentVectorEnv(VectorEnv):
    """The result of `agents_as_slots`: slots are agents, those of one environment next to each other."""

    inner: Any = None  # the VectorEnv

    @property
    def default_params(self) -> Any:
        return self.inner.default_params

    def reset(self, key: Array, params: Any) -> tuple[Any, Any]:
        """`(obs, vstate)`: obs with leading axis N M; the state of the inner VectorEnv, with leading axis N."""
        obs, vstate = self.inner.reset(key, params)
        return self._fold(obs), vstate

    def step(self, key: Array, vstate: Any, action: Any, params: Any) -> TimeStep:
        """One row for each agent; values of an environment (ends, lengths) are repeated for each of its agents.

        An entry of `info` is taken to be per agent where its second axis is M.
        """
        agents = self.inner.env.num_agents
        action = jax.tree.map(lambda x: x.reshape(-1, agents, *x.shape[1:]), action)
        ts = self.inner.step(key, vstate, action, params)

        def rows(x):
            return self._fold(x) if x.ndim > 1 and x.shape[1] == agents else jnp.repeat(x, agents, 0)

        info = {name: self._fold(x) if name == "final_obs" else jax.tree.map(rows, x) for name, x in ts.info.items()}
        ends = rows(ts.terminated), rows(ts.truncated)
        return TimeStep(self._fold(ts.obs), ts.state, self._fold(ts.reward), *ends, info)

    def restart(self, key: Array, vstate: Any, params: Any, mask: Bool[Array, " N"]) -> tuple[Any, Any]:
        """Starts a new episode in each environment of which any agent is in `mask`."""
        mask = mask.reshape(-1, self.inner.env.num_agents).any(1)
        obs, vstate = self.inner.restart(key, vstate, params, mask)
        return self._fold(obs), vstate

    def _fold(self, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def agents_as_slots(venv: VectorEnv) -> AgentVectorEnv:
    """A VectorEnv whose slots are the M agents of N environments: independent learning with shared weights.

    Any algorithm for one agent takes it, with `num_envs` N M, unless its policy has a memory:

        venv = agents_as_slots(vectorize(env, 16))
        algo = ppo.make(venv, ppo.Config(num_envs=venv.num_envs))

    Steps are counted per agent. Raises ValueError for a single agent or for batched params.
    """
    agents = venv.env.num_agents
    if agents < 2:
        raise ValueError(f"agents_as_slots: {venv.env.id} has one agent; train on it as it is.")
    if venv.batched_params:
        raise ValueError("agents_as_slots: batched_params has a row an environment, not one an agent; use level_fn.")
    rest = venv.reset_strategy, venv.level_fn, False, venv.chunk
    return AgentVectorEnv(Team(venv.env), venv.num_envs * agents, *rest, inner=venv)
