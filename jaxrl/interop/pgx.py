"""Pgx's games as jaxrl's, for one player: `from_pgx`, or `make("pgx:tic_tac_toe")`.

Needs the `pgx` package (the extra `pgx`). Lost: the other player, who plays legal actions at random; and
games of three or four.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.environment import Transition, strongly_typed
from jaxrl.interop.foreign import Adapted, Held, TheirParams, TheirState, box, kept
from jaxrl.spaces import Dict, Discrete, Space

ME = 0
"""The player that the agent is. Who begins is drawn by the game."""


@dataclasses.dataclass(frozen=True)
class FromPgx(Adapted):
    """Made by `from_pgx`."""

    def initial(self, key: Array, params: TheirParams) -> TheirState:
        start, answer = jax.random.split(key)
        state, _ = self.answered(answer, strongly_typed(self.env.init(start)))
        return strongly_typed(TheirState(jnp.int32(0), state, self.seen(state)))

    def transition(self, key: Array, state: TheirState, action: Array, params: TheirParams) -> Transition:
        play, answer = jax.random.split(key)
        mine = self.env.step(state.env, action.astype(jnp.int32), play)
        env, reward = self.answered(answer, kept(mine, state.env))
        reward = jnp.asarray(mine.rewards[ME] + reward, jnp.result_type(float))
        obs = kept(self.seen(env), state.obs)
        return Transition(state.replace(env=env, obs=obs), reward, env.terminated, env.truncated, {})

    def answered(self, key: Array, state: Any) -> tuple[Any, Float[Array, ""]]:
        """The state when it is the agent's turn again, or the game over, and the agent's rewards until then."""
        nothing = jnp.zeros((), state.rewards.dtype)
        if self.env.num_players == 1:
            return state, nothing

        def theirs(carry):
            _, state, _ = carry
            return (state.current_player != ME) & ~(state.terminated | state.truncated)

        def play(carry):
            key, state, reward = carry
            key, choice, chance = jax.random.split(key, 3)
            action = jax.random.categorical(choice, jnp.where(state.legal_action_mask, 0.0, -jnp.inf))
            after = kept(self.env.step(state, action, chance), state)
            return key, after, reward + after.rewards[ME]

        _, state, reward = jax.lax.while_loop(theirs, play, (key, state, nothing))
        return state, reward

    def seen(self, state: Any) -> dict[str, Array]:
        """What the agent sees, whoever's turn it is: Pgx's own observation is that of who is to play."""
        obs = self.env._observe(state, jnp.asarray(ME, state.current_player.dtype))
        return {"obs": jax.lax.stop_gradient(obs), "action_mask": state.legal_action_mask}

    def observation_space(self, params: TheirParams) -> Space:
        seen = jax.eval_shape(lambda key: self.initial(key, params).obs, jax.random.key(0))
        return Dict({name: box(x.shape, x.dtype) for name, x in seen.items()})

    def action_space(self, params: TheirParams) -> Discrete:
        return Discrete(int(self.env.num_actions))


def from_pgx(env: Any) -> tuple[FromPgx, TheirParams]:
    """`(env, params)` of a game of Pgx for one or two; of two, the other plays uniformly among legal actions.

    Observations are `obs`, as Pgx has it for the agent, and `action_mask`; an illegal action loses, as in Pgx. Rewards
    of a step are all that the agent gets until it is its turn again. Pgx has no time limit, and of MinAtar some games
    have no end: set `params.max_steps`. Raises ValueError for more players, TypeError for what is no game of Pgx.
    """
    if lacking := [name for name in ("init", "num_players", "num_actions") if not hasattr(env, name)]:
        raise TypeError(f"from_pgx: {env!r:.60} is no game of Pgx: it has no {', no '.join(lacking)}.")
    if env.num_players > 2:
        raise ValueError(f"from_pgx: {env.id} has {env.num_players} players; it takes games of one or two.")
    adapted = FromPgx(Held(env), id=str(env.id))
    return adapted, adapted.default_params


def names() -> list[str]:
    """Ids of Pgx's games of one or two players."""
    import pgx

    return sorted(name for name in pgx.available_envs() if name != "sparrow_mahjong")  # of three


def by_name(name: str) -> tuple[FromPgx, TheirParams]:
    """`(env, params)` of one of `names()`."""
    import pgx

    return from_pgx(pgx.make(name))
