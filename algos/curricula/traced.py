"""TRACED: ACCEL (`accel.py`) by value error, by the error of a learned model, and by what a level gives to others.

Cho et al. (2025), "TRACED: transition-aware regret approximation with co-learnability for environment design"
(arXiv:2506.19997). With the levels T_k of the k-th replayed batch:

    difficulty_i    = PVL_i + transition_coef * ATPL_i
    transfer_i      = mean over j in T_k+1 of the difficulty of j before the replay less that after it, for i in T_k:
                      what training on T_k made of the levels replayed next (the paper's co-learnability)
    priority_i      = difficulty_i + transfer_coef * transfer_i, by whose rank levels are replayed

PVL is the positive value loss of the rollout (`scores.positive_value_loss`). ATPL is the mean absolute error of a model
that predicts the next observation from the observations and actions of the episode; it is a recurrent network that
learns from every rollout, also from those that the student does not learn from. `assess` computes the difficulties and
trains the model; `update` hands the priorities to ACCEL's buffer.

Deviations: the model learns by `model_steps` steps of Adam from all N slots at once, at a higher rate, not by one step
of AdamW for each slot; its memory is that of the rollout, so of an episode longer than a rollout it sees the last part;
it sees encoded observations (`networks.encode`), and the error is the absolute one for all of them. A level that was
replaced in the buffer before the next replay gets no transfer. Usage:

    env = make("Maze-v0")[0].as_levels()
    student = ppo_rnn.make(vectorize(env, 32, batched_params=True), ppo_rnn.Config(num_envs=32))
    algo = jaxrl.curriculum.attach(student, traced.make(env, level_fn, env.mutate))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from jaxrl.algos.curricula import accel, plr
from jaxrl.algos.curricula.accel import ACCELState
from jaxrl.calls import recorded
from jaxrl.curriculum import level_buffer
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes
from jaxrl.curriculum.scores import positive_value_loss
from jaxrl.environment import Environment, pytree, strongly_typed
from jaxrl.nn.networks import encode, encoded_size
from jaxrl.nn.recurrent import Recurrent


@dataclasses.dataclass(frozen=True)
class Config(accel.Config):
    """Static settings: ACCEL's, and those of the model."""

    model_size: int = 128  # units of the model's LSTM
    model_steps: int = 4  # gradient steps a rollout

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model_size < 1 or self.model_steps < 1:
            raise ValueError(f"model_size={self.model_size}, model_steps={self.model_steps}: both are at least 1.")


@pytree
class Hyper(accel.Hyper):
    """Dynamic settings: ACCEL's, and those of the score, as the paper has them for mazes."""

    transition_coef: jax.Array = 1.0  # weight of the model's error; 1.5 in the paper for walkers
    transfer_coef: jax.Array = 1.0  # weight of what a level's training gives to others; 0.6 for walkers
    model_rate: jax.Array = 1e-3  # learning rate of the model


@pytree
class TRACEDState:
    accel: ACCELState  # the scores of its buffer are the priorities
    transfer: jax.Array  # (C,) of the level in each slot of the buffer
    replayed: jax.Array  # (C,) bool: the slots that the last replayed batch drew
    weights: Any  # of the model
    optimizer: Any
    hyper: Hyper


class Model(nn.Module):
    """Predicts the next encoded observation, (T, N, F), from the encoded observations and actions until then."""

    size: int

    @nn.compact
    def __call__(self, obs: Array, action: Array, start: Array) -> Array:
        memory = Recurrent(self.size, "lstm")
        hidden = memory(memory.initial_carry(start.shape[1:]), jnp.concatenate([obs, action], -1), start)[1]
        return nn.Dense(obs.shape[-1])(hidden)


def prediction_error(
    model: Model,
    weights: Any,
    obs: Float[Array, "T N F"],
    action: Float[Array, "T N A"],
    done: Bool[Array, "T N"],
) -> tuple[Float[Array, " N"], Float[Array, ""]]:
    """`(errors, loss)`: the model's mean absolute error in each slot, and over all.

    Steps whose next observation is of another episode, and the last one, count in neither; a slot with such steps only
    has error 0.
    """
    start = jnp.concatenate([jnp.ones_like(done[:1]), done[:-2]])
    predicted: Any = model.apply(weights, obs[:-1], action[:-1], start)
    error = jnp.abs(predicted - obs[1:]).mean(-1)
    total, steps = jnp.where(done[:-1], 0, error).sum(0), jnp.sum(~done[:-1], 0)
    return total / jnp.maximum(steps, 1), total.sum() / jnp.maximum(steps.sum(), 1)


@recorded
def make(
    env: Environment,
    level_fn: Callable[[Array, Any], Any],
    mutate_fn: Callable[[Array, Any], Any] | None,
    config: Config = Config(),
    hyper: Hyper | None = None,
) -> Curriculum:
    """TRACED over the levels that `level_fn(key, params)` draws and their mutations.

    Args:
        env: the student's environment, of whose observations and actions the model is.
        mutate_fn: `(key, level) -> level`, one edit.

    Raises ValueError as `accel.make`.
    """
    defaults = strongly_typed(Hyper() if hyper is None else hyper)
    base = accel.make(level_fn, mutate_fn, config, accel.Hyper(), positive_value_loss)
    plr.check_hyper(defaults)
    model = Model(config.model_size)
    spaces = env.observation_space(env.default_params), env.action_space(env.default_params)

    def init(key: Array, hyper: Hyper, params: Any) -> TRACEDState:
        key, model_key = jax.random.split(key)
        obs, action = (jnp.zeros((1, 1, encoded_size(space))) for space in spaces)
        weights = model.init(model_key, obs, action, jnp.ones((1, 1), bool))
        optimizer = optax.adam(hyper.model_rate).init(weights)
        nothing = jnp.zeros(config.buffer_size)
        state = base.init(key, hyper, params)
        return TRACEDState(state, nothing, nothing.astype(bool), weights, strongly_typed(optimizer), hyper)

    def sample(key: Array, state: TRACEDState, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, TRACEDState]:
        batch, accel_state = base.sample(key, state.accel.replace(hyper=state.hyper), wanted)
        return batch, state.replace(accel=accel_state)

    def assess(
        key: Array, state: TRACEDState, rollout: Any, batch: LevelBatch, outcomes: Outcomes, hyper: Any
    ) -> tuple[Float[Array, " N"], TRACEDState]:
        """The difficulty of each slot's level; then the model learns from the rollout."""
        done = rollout.ends.done
        inputs = encode(spaces[0], rollout.obs), encode(spaces[1], rollout.action), done
        error, _ = prediction_error(model, state.weights, *inputs)

        def step(carry, _):
            weights, optimizer = carry
            grads = jax.grad(lambda w: prediction_error(model, w, *inputs)[1])(weights)
            change, optimizer = optax.adam(state.hyper.model_rate).update(grads, optimizer, weights)
            return (optax.apply_updates(weights, change), optimizer), None

        (weights, optimizer), _ = jax.lax.scan(step, (state.weights, state.optimizer), None, config.model_steps)
        difficulty = positive_value_loss(rollout, batch, outcomes, hyper) + state.hyper.transition_coef * error
        return difficulty, state.replace(weights=weights, optimizer=optimizer)

    def update(key: Array, state: TRACEDState, batch: LevelBatch, outcomes: Outcomes) -> TRACEDState:
        coef, before, n = state.hyper.transfer_coef, state.accel.buffer, batch.slot.shape[0]
        slot = level_buffer.find(before, batch.params)  # also of new levels that the buffer has by chance
        replayed = (batch.slot >= 0) & (slot >= 0) & jnp.isfinite(outcomes.score)
        easier = before.score[slot] - coef * state.transfer[slot] - outcomes.score
        gain = jnp.where(replayed, easier, 0).sum() / jnp.maximum(replayed.sum(), 1)
        gains = state.replayed & replayed.any()  # of the last replay's levels
        transfer = jnp.where(gains, gain, state.transfer)
        rows = jnp.flatnonzero(gains, size=n, fill_value=-1)
        raised = before.score[rows] + coef * (transfer - state.transfer)[rows]
        buffer = level_buffer.update(before, rows, raised, before.max_return[rows])
        priority = outcomes.score + coef * jnp.where(slot >= 0, transfer[slot], 0)
        accel_state = state.accel.replace(buffer=buffer, hyper=state.hyper)
        accel_state = base.update(key, accel_state, batch, outcomes._replace(score=priority))
        now = jnp.zeros_like(gains).at[jnp.where(replayed, slot, len(gains))].set(True, mode="drop")
        given_away = accel_state.buffer.hash != before.hash  # the slot has another level
        return state.replace(
            accel=accel_state,
            transfer=jnp.where(given_away, 0, transfer),
            replayed=jnp.where(replayed.any(), now, state.replayed) & ~given_away,
        )

    def metrics(state: TRACEDState) -> dict[str, Array]:
        filled = jnp.isfinite(state.accel.buffer.score)
        mean = jnp.where(filled, state.transfer, 0).sum() / jnp.maximum(filled.sum(), 1)
        return {**base.metrics(state.accel), "transfer": mean}

    settings = (env, level_fn, mutate_fn, config)
    return Curriculum(
        init, sample, update, "traced", settings, defaults, None, metrics, whole_batches=True, assess=assess
    )
