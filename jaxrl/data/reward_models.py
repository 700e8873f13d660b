"""Rewards learned from preferences: an ensemble of networks r(s, a), fitted by the model of Bradley and Terry.

Christiano et al. (2017), "Deep reinforcement learning from human preferences". A segment is worth the sum of its
rewards, and the second of a pair is the better one with probability

    P = sigmoid(sum_t r(s2_t, a2_t) - sum_t r(s1_t, a1_t)),     loss = -label log P - (1 - label) log(1 - P)

Every member of the ensemble has its own weights and its own batches; one member is a single reward model. A share of
the pairs is held out, and each member keeps the weights that had the least loss there. Preferences do not say where
zero is nor, without noise, how large a unit is, so `fit` shifts and scales each member's rewards to mean 0 and standard
deviation 1 over the dataset's steps. Where episodes differ in length the shift matters: a learned reward says nothing
about whether to live on.

A learned reward is a pytree, `RewardModel`: its weights are leaves, to `vmap` over or to differentiate by.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key

from jaxrl.data.datasets import Dataset, check, to_unit
from jaxrl.data.preferences import Preferences, rows_of
from jaxrl.data.preferences import check as check_preferences
from jaxrl.environment import pytree
from jaxrl.math import fast_key
from jaxrl.nn.networks import MLP, Dense, encode, orthogonal
from jaxrl.spaces import Space


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_members: int = 3  # of the ensemble
    hidden: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    num_checks: int = 20  # evaluations of the held-out loss
    num_updates: int = 100  # gradient steps before each evaluation
    batch_size: int = 64  # pairs, of each member
    validation_share: float = 0.1  # of the pairs, held out

    def __post_init__(self) -> None:
        for name in ("num_members", "num_checks", "num_updates", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: it must be at least 1.")
        if not 0 < self.validation_share < 1:
            raise ValueError(f"validation_share={self.validation_share}: it must be above 0 and below 1.")


@pytree
class Hyper:
    """Dynamic settings."""

    learning_rate: jax.Array = 3e-4
    weight_decay: jax.Array = 0.0  # of AdamW


class Reward(nn.Module):
    """The network: rewards (...) of observations and actions, these in units of the box."""

    observation_space: Space
    action_space: Space
    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, obs: Any, action: Array) -> Float[Array, "..."]:
        x = [encode(self.observation_space, obs, privileged=True), encode(self.action_space, action)]
        x = MLP(self.hidden, None, self.activation)(jnp.concatenate(x, -1))
        # No bias: of a pair of equally long segments it is of no account.
        return Dense(1, use_bias=False, kernel_init=orthogonal(0.01))(x)[..., 0]


@pytree(static=("network",))
class RewardModel:
    """What `fit` returns; leading axis K of the members."""

    weights: Any
    mean: jax.Array  # (K,), of the networks' outputs over the dataset's steps
    std: jax.Array  # (K,)
    network: Any  # a `Reward`

    def members(self, obs: Any, action: Array) -> Float[Array, "K ..."]:
        """The rewards by each member, of actions in units of the box."""
        raw: Any = jax.vmap(lambda weights: self.network.apply(weights, obs, action))(self.weights)
        shape = (-1, *[1] * (raw.ndim - 1))
        return (raw - self.mean.reshape(shape)) / self.std.reshape(shape)

    def __call__(self, obs: Any, action: Array) -> Float[Array, "..."]:
        """The mean over the members."""
        return jnp.mean(self.members(obs, action), 0)

    def worst(self, obs: Any, action: Array) -> Float[Array, "..."]:
        """The least over the members: a reward that a policy gains less by exploiting a single member's errors."""
        return jnp.min(self.members(obs, action), 0)


def bradley_terry_loss(margin: Float[Array, "*K B"], label: Float[Array, "... B"]) -> Float[Array, ""]:
    """The cross-entropy of labels with sigmoid(margin): the mean over pairs, summed over members."""
    loss = label * jax.nn.softplus(-margin) + (1 - label) * jax.nn.softplus(margin)
    return jnp.sum(jnp.mean(loss, -1))


def margin_of(reward: Float[Array, "*K B 2 L"]) -> Float[Array, "*K B"]:
    """The second segment's sum of rewards minus the first's."""
    first, second = jnp.moveaxis(jnp.sum(reward, -1), -1, 0)
    return second - first


def accuracy(margin: Float[Array, "*K B"], label: Float[Array, "... B"]) -> Float[Array, ""]:
    """The share of pairs of which the better one is told; ties are left out, NaN where all are."""
    decided = jnp.broadcast_to(label != 0.5, margin.shape)
    right = (margin > 0) == (label > 0.5)
    return jnp.sum(right & decided) / jnp.sum(decided)


def fit(
    key: Key[Array, ""],
    preferences: Preferences,
    observation_space: Space,
    action_space: Space,
    config: Config = Config(),
    hyper: Hyper | None = None,
) -> tuple[RewardModel, Float[Array, "checks K"]]:
    """`(model, held-out loss at each check)`, of a loss of log 2 = 0.693 by a model that knows nothing.

    Raises ValueError as `preferences.check` and `datasets.check` do, and for fewer than two pairs.
    """
    check_preferences(preferences)
    check(preferences.steps, action_space)
    if preferences.size < 2:
        raise ValueError(f"{preferences.size} pair: at least 2 are needed, to learn from and to hold out.")
    network = Reward(observation_space, action_space, config.hidden, config.activation)
    steps = preferences.steps
    steps = steps.replace(action=to_unit(action_space, jnp.asarray(steps.action)))
    found = jax.tree.map(jnp.asarray, preferences.replace(steps=steps))
    return _fit(key, found, hyper or Hyper(), config, network)


def num_held_out(size: int, config: Config) -> int:
    """Of so many pairs how many `fit` holds out."""
    return min(max(1, round(config.validation_share * size)), size - 1)


def held_out(key: Key[Array, ""], size: int, config: Config) -> Int[Array, " held"]:
    """Which of `size` pairs `fit` with this key holds out: their numbers."""
    return jax.random.permutation(jax.random.split(key, 3)[0], size)[: num_held_out(size, config)]


@functools.partial(jax.jit, static_argnames=("config", "network"))
def _fit(key: Array, data: Preferences, hyper: Hyper, config: Config, network: Reward) -> tuple[RewardModel, Array]:
    members, size = config.num_members, data.size
    split_key, init_key, steps_key = jax.random.split(key, 3)
    obs, action = data.steps.obs, data.steps.action
    order, held = jax.random.permutation(split_key, size), num_held_out(size, config)
    first, label = data.first[order], data.label[order].astype(jnp.result_type(float))

    def margin(weights: Any, pairs: Any) -> Float[Array, " B"]:
        rows = rows_of(first[pairs], data.length)
        reward: Any = network.apply(weights, jax.tree.map(lambda x: x[rows], obs), action[rows])
        return margin_of(reward)

    one = jax.tree.map(lambda x: x[0], (obs, action))
    weights = jax.vmap(lambda key: network.init(key, *one))(jax.random.split(init_key, members))
    optimizer = optax.adamw(hyper.learning_rate, weight_decay=hyper.weight_decay)

    def loss(weights: Any, pairs: Array) -> Array:
        return bradley_terry_loss(jax.vmap(margin)(weights, pairs), label[pairs])

    def step(carry: tuple, key: Array) -> tuple[tuple, None]:
        weights, state = carry
        pairs = jax.random.randint(key, (members, config.batch_size), held, size)
        change, state = optimizer.update(jax.grad(loss)(weights, pairs), state, weights)
        return (optax.apply_updates(weights, change), state), None

    def check(carry: tuple, key: Array) -> tuple[tuple, Array]:
        (weights, state), best, least = carry
        carry, _ = jax.lax.scan(step, (weights, state), jax.random.split(key, config.num_updates))

        def held_out(weights: Any) -> Array:
            return bradley_terry_loss(margin(weights, np.arange(held)), label[:held])

        found = jax.vmap(held_out)(carry[0])
        better = found < least

        def kept(new: Array, old: Array) -> Array:
            return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        return (carry, jax.tree.map(kept, carry[0], best), jnp.where(better, found, least)), found

    start = (weights, optimizer.init(weights)), weights, jnp.full(members, jnp.inf)
    keys = jax.random.split(fast_key(steps_key), config.num_checks)
    (_, best, _), losses = jax.lax.scan(check, start, keys)

    def moments(weights: Any) -> tuple[Array, Array]:
        reward: Any = jax.lax.map(lambda step: network.apply(weights, *step), (obs, action), batch_size=4096)
        std = jnp.std(reward)
        return jnp.mean(reward), jnp.where(std > 1e-6, std, 1.0)

    mean, std = jax.lax.map(moments, best)
    return RewardModel(best, mean, std, network), losses


def margins(model: RewardModel, dataset: Dataset, first: Any, length: int) -> Float[Array, "K n"]:
    """Each member's margins of pairs of segments of a dataset, whose actions are in the environment's units.

    They are of rewards as they were fitted, not divided by their spread: their sigmoid is what a member predicts.
    """

    def of_pair(first: Array) -> Array:
        rows = rows_of(first, length)
        obs, action = jax.tree.map(lambda x: jnp.asarray(x)[rows], (dataset.obs, dataset.action))
        return margin_of(model.members(obs, to_unit(model.network.action_space, action))) * jnp.asarray(model.std)

    return jnp.moveaxis(jax.lax.map(of_pair, jnp.asarray(first), batch_size=256), 0, -1)


def reward_of(model: RewardModel, obs: Any, action: Array) -> Float[Array, "..."]:
    """The mean over the members, of an action in the environment's units."""
    return model(obs, to_unit(model.network.action_space, action))


def worst_of(model: RewardModel, obs: Any, action: Array) -> Float[Array, "..."]:
    """The least over the members, of an action in the environment's units."""
    return model.worst(obs, to_unit(model.network.action_space, action))


def relabelled(model: RewardModel, dataset: Dataset, worst: bool = False) -> Dataset:
    """The dataset with the model's rewards in place of its own: any learner from data may learn from it.

    `worst`: the least over the members, not their mean.
    """
    reward = worst_of if worst else reward_of
    steps = jax.tree.map(jnp.asarray, (dataset.obs, dataset.action))
    return dataset.replace(reward=np.asarray(jax.lax.map(lambda step: reward(model, *step), steps, batch_size=4096)))
