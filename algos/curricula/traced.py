"""TRACED: ACCEL (`accel.py`) by value error, by the error of a learned model, and by what a level gives to others.

Cho et al. (2025), "TRACED: transition-aware regret approximation with co-learnability for environment design"
(arXiv:2506.19997). With the levels T_k of the k-th replayed batch:

    difficulty_i    = PVL_i + transition_coef * ATPL_i, as of the last rollout on the level
    transfer_i      = mean over j in T_k+1 of the last difficulty of j less that in batch k+1, for i in T_k: what
                      training on T_k made of the levels replayed next (the paper's co-learnability)
    priority_i      = difficulty_i + transfer_coef * transfer_i, by whose rank levels are replayed

PVL is the positive value loss of the rollout (`scores.positive_value_loss`). ATPL is the mean absolute error of a model
that predicts the next observation from the observations and actions of the episode; it is a recurrent network that
learns from every rollout, also from those that the student does not learn from. `assess` computes the difficulties and
trains the model; `update` hands the priorities to ACCEL's buffer.

A level's last difficulty may be many batches old. So all that was learned since, by the student and by the model, from
whatever levels, counts as transfer; the paper's is no other.

Deviations: the model sees encoded observations (`networks.encode`) in units of their running deviations, so that
transition_coef means the same on every task; the paper's are raw. It learns by `model_steps` steps of Adam from all N
slots at once, at a higher rate, not by one step of AdamW for each slot. Its memory is that of the rollout: of an
episode longer than that it sees the last part. A level that left the buffer before the next replay gets no transfer.
Usage:

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
from jaxrl.nn import normalize, optim
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
    difficulty: jax.Array  # (C,) of the level in each slot of the buffer, as is the next one
    transfer: jax.Array
    replayed: jax.Array  # (C,) bool: the slots that the last replayed batch drew
    statistics: normalize.Statistics  # of encoded observations
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
) -> tuple[Float[Array, ""], Float[Array, " N"]]:
    """`(loss, errors)`: the model's mean absolute error over all steps, and in each slot.

    Steps whose next observation is of another episode, and the last one, count in neither; a slot with such steps only
    has error 0.
    """
    start = jnp.concatenate([jnp.ones_like(done[:1]), done[:-2]])
    predicted: Any = model.apply(weights, obs[:-1], action[:-1], start)
    error = jnp.abs(predicted - obs[1:]).mean(-1)
    total, steps = jnp.where(done[:-1], 0, error).sum(0), jnp.sum(~done[:-1], 0)
    return total.sum() / jnp.maximum(steps.sum(), 1), total / jnp.maximum(steps, 1)


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

    Raises ValueError as `accel.make`, and in `assess` for rollouts of one step.
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
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        optimizer = strongly_typed(optim.adam(hyper.model_rate).init(weights))
        state, zeros = base.init(key, hyper, params), jnp.zeros(config.buffer_size)
        statistics = normalize.init(obs[0, 0])
        return TRACEDState(state, zeros, zeros, zeros.astype(bool), statistics, weights, optimizer, hyper)

    def slots(slot: Array, valid: Array) -> Bool[Array, " C"]:
        """Which slots of the buffer are in some valid row."""
        rows = jnp.where(valid & (slot >= 0), slot, config.buffer_size)
        return jnp.zeros(config.buffer_size, bool).at[rows].set(True, mode="drop")

    def sample(key: Array, state: TRACEDState, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, TRACEDState]:
        batch, accel_state = base.sample(key, state.accel.replace(hyper=state.hyper), wanted)
        return batch, state.replace(accel=accel_state)

    def assess(
        key: Array, state: TRACEDState, rollout: Any, batch: LevelBatch, outcomes: Outcomes, hyper: Any
    ) -> tuple[Float[Array, " N"], TRACEDState]:
        """The difficulty of each slot's level; then the model learns from the rollout."""
        done = rollout.ends.done
        if done.shape[0] < 2:
            raise ValueError("traced: its model learns what follows what, so a rollout needs two steps at least.")
        seen, action = jax.lax.stop_gradient((encode(spaces[0], rollout.obs), encode(spaces[1], rollout.action)))
        statistics = normalize.update(state.statistics, seen, (0, 1))
        obs = normalize.normalize(statistics, seen)

        def step(carry, _):
            weights, optimizer = carry
            loss = jax.value_and_grad(lambda w: prediction_error(model, w, obs, action, done), has_aux=True)
            (_, error), grads = loss(weights)
            change, optimizer = optim.adam(state.hyper.model_rate).update(grads, optimizer, weights)
            return (optax.apply_updates(weights, change), optimizer), error

        (weights, optimizer), errors = jax.lax.scan(step, (state.weights, state.optimizer), length=config.model_steps)
        value_loss = positive_value_loss(rollout, batch, outcomes, hyper)
        difficulty = value_loss + state.hyper.transition_coef * errors[0]  # before it learned
        return difficulty, state.replace(statistics=statistics, weights=weights, optimizer=optimizer)

    def update(key: Array, state: TRACEDState, batch: LevelBatch, outcomes: Outcomes) -> TRACEDState:
        before, scored = state.accel.buffer, jnp.isfinite(outcomes.score)
        slot = level_buffer.find(before, batch.params)  # also of new levels that the buffer has by chance
        replayed = (batch.slot >= 0) & (slot >= 0) & scored
        easier = jnp.where(replayed, state.difficulty[slot] - outcomes.score, 0)
        gain = easier.sum() / jnp.maximum(replayed.sum(), 1)
        transfer = jnp.where(state.replayed & replayed.any(), gain, state.transfer)
        # The levels of the last replay get other priorities; ACCEL's update gives those of this batch.
        rows = jnp.flatnonzero(state.replayed & replayed.any(), size=batch.slot.shape[0], fill_value=-1)
        raised = (state.difficulty + state.hyper.transfer_coef * transfer)[rows]
        buffer = level_buffer.update(before, rows, raised, before.max_return[rows])
        gives = jnp.where(slot >= 0, transfer[slot], 0)
        accel_state = base.update(
            key,
            state.accel.replace(buffer=buffer, hyper=state.hyper),
            batch,
            outcomes._replace(score=outcomes.score + state.hyper.transfer_coef * gives),
        )
        after = accel_state.buffer
        other = after.hash != before.hash  # the slot has another level
        transfer = jnp.where(other, 0, transfer)
        # A level that is in several rows has their mean, as in the buffer.
        measured = slots(level_buffer.find(after, batch.params), scored)
        difficulty = jnp.where(measured, after.score - state.hyper.transfer_coef * transfer, state.difficulty)
        return state.replace(
            accel=accel_state,
            difficulty=difficulty,
            transfer=transfer,
            replayed=jnp.where(replayed.any(), slots(slot, replayed), state.replayed) & ~other,
        )

    def metrics(state: TRACEDState) -> dict[str, Array]:
        filled = jnp.isfinite(state.accel.buffer.score)
        mean = jnp.where(filled, state.transfer, 0).sum() / jnp.maximum(filled.sum(), 1)
        return {**base.metrics(state.accel), "transfer": mean}

    settings = (env, level_fn, mutate_fn, config)
    return Curriculum(
        init, sample, update, "traced", settings, defaults, None, metrics, whole_batches=True, assess=assess
    )
