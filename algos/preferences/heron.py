"""HERON: a reward from a designer's order of factors, and DDPG on it. It is `ddpg` behind a decision tree and a reward.

Bukharin et al. (2023), "Deep reinforcement learning from hierarchical preference design". A designer names factors of a
step, each the better the larger, in the order of their importance: first the angle, then the speed, then the torque.
Two steps are compared by the first factor in which they differ by more than `margins` of its standard deviations
(`preferences.tree_labels`); where none decides, they are not compared. A network r(s, a, s', end) is fitted to these
labels by the model of Bradley and Terry,

    loss = mean over compared pairs of  softplus(-(r(better) - r(worse)))

and DDPG learns from it. Only the order of factors is a choice, no weight and no unit: a factor in another unit has the
same labels, where a weighted sum of factors is another task.

A gradient step compares all pairs of the first `num_compared` steps of its batch, fits the reward, and takes a step of
DDPG on the rewards of the whole batch, shifted and scaled by their running mean and deviation, since preferences say
neither where zero is nor how large a unit.

Factors are words (`Config.factors`): `obs[i]`, `next_obs[i]`, `action[i]` (in units of the box) or `terminated`.
Between bars it is the absolute value, after a minus the opposite, as in `-|obs[2]|`. In Python
`make(env, factors=...)` takes a function, which observations that are no vectors need for their numbers.

Deviations from the authors' code: rewards are those of the current network whenever a batch is drawn. Theirs are stored
as they were first predicted and stay, which `Config.relabel` False does here. The network sees the step and not its
factors, so that their units reach nothing; standard deviations are of the steps that are compared, not of all that were
ever seen; the reward learns at every gradient step, not in bursts of 16 batches every 400 steps; labels of single steps
alone, where theirs may also be of trajectories.

Ends: preferences do not say what the rest of an episode would have been worth. With a value of 0 after an end, the
shift by the running mean decides whether ending is good. So the reward of a step that ends an episode by itself counts
as if it was paid at every later step, too (`Config.absorbing`):

    target = r + gamma Q(s', a'),    at an end  r / (1 - gamma)

With the factor `terminated` first an end is sought, with `-terminated` first it is fled. That is the absorbing state of
Kostrikov et al. (2019, arXiv:1809.02925), but for its reward, which is learned apart there and is here the last step's.
The authors' code has the value 0, which is `absorbing` False. Limits: without either factor an end is worth what its
step was, many times over, a fall on a fast step much; targets grow by 1 / (1 - gamma); of `num_compared` steps few or
none end an episode, so the first factor is compared only now and then.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.algos.actor_critic import ddpg
from jaxrl.data.preferences import tree_labels
from jaxrl.data.transitions import Batch, Transition
from jaxrl.environment import Environment, is_concrete, pytree
from jaxrl.nn.actor_critic import Actor, Critic, Deterministic
from jaxrl.nn.nets import Nets
from jaxrl.nn.networks import MLP, Dense, Network, encode, orthogonal, own
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.off_policy import learner
from jaxrl.off_policy.steps import Rollout
from jaxrl.replay.ring import uniform
from jaxrl.spaces import Box, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    factors: tuple[str, ...] = ()  # of a step, the larger the better, the most important first
    margins: tuple[float, ...] = ()  # of each factor, in its standard deviations, what decides; (): 1 each
    num_compared: int = 32  # steps of a batch of which all pairs are compared
    absorbing: bool = True  # a terminal step's reward counts as paid at all later steps, too; False: once, then 0
    relabel: bool = True  # False: rewards stay as they were predicted when the steps were taken

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.num_compared <= self.batch_size:
            raise ValueError(
                f"num_compared={self.num_compared}: it must be at least 2 and at most batch_size={self.batch_size}."
            )
        if self.margins and self.factors and len(self.margins) != len(self.factors):
            raise ValueError(
                f"{len(self.margins)} margins of {len(self.factors)} factors: one each, or none for 1 each."
            )
        if not all(0 <= margin < np.inf for margin in self.margins):
            raise ValueError(f"margins={self.margins}: each must be finite and at least 0.")


@pytree
class Hyper(ddpg.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    reward_learning_rate: jax.Array = 1e-4  # of the reward
    moment_step: jax.Array = 0.01  # of the running mean and variance of rewards, each gradient step


Factors = Callable[[Any], Float[Array, "*batch L"]]
"""A batch of steps, as `Transition`, -> their factors, the most important first."""


class StepReward(nn.Module):
    """The default reward: (...) of steps."""

    observation_space: Space
    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, obs: Any, action: Array, next_obs: Any, terminated: Array) -> Float[Array, "..."]:
        seen = (encode(self.observation_space, x, privileged=True) for x in (obs, next_obs))
        x = jnp.concatenate([*seen, action, terminated[..., None].astype(action.dtype)], -1)
        x = MLP(self.hidden, None, self.activation)(x)
        return Dense(1, use_bias=False, kernel_init=orthogonal(0.01))(x)[..., 0]


WORD = re.compile(r"(-?)(\|?)(obs|next_obs|action|terminated)(?:\[(\d+)\])?(\|?)")


def factors_of(words: tuple[str, ...], obs_size: int, action_size: int) -> Factors:
    """The function that words name; `obs_size` 0: observations are no vectors.

    Raises ValueError for none at all, other words, and numbers that are not there.
    """
    if not words:
        raise ValueError(
            "heron needs factors, the most important first, as --config.factors 'obs[0]' '-|obs[2]|' '-|action[0]|'."
        )
    sizes, parts = {"obs": obs_size, "next_obs": obs_size, "action": action_size}, []
    for word in words:
        found = WORD.fullmatch(word)
        if not found or found[2] != found[5] or (found[3] == "terminated") != (found[4] is None):
            raise ValueError(
                f"factor {word!r}: it is obs[i], next_obs[i], action[i] or terminated, as -|obs[2]| with bars for the "
                "absolute value and a minus for its opposite."
            )
        sign, bars, field, number, _ = found.groups()
        if number is not None and sizes[field] == 0:
            raise ValueError(
                f"factor {word!r} needs observations that are a vector; of others, make(env, factors=...)."
            )
        if number is not None and int(number) >= sizes[field]:
            raise ValueError(f"factor {word!r}: {field} has {sizes[field]} numbers, 0 to {sizes[field] - 1}.")
        parts.append((-1 if sign else 1, bool(bars), field, None if number is None else int(number)))

    def factors(batch: Any) -> Array:
        values = []
        for sign, absolute, field, number in parts:
            x = jnp.asarray(getattr(batch, field), jnp.result_type(float))
            x = x if number is None else x[..., number]
            values.append(sign * (jnp.abs(x) if absolute else x))
        return jnp.stack(values, -1)

    return factors


def tree_loss(
    reward: Float[Array, " B"], factors: Float[Array, "B L"], margins: Float[Array, " L"]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """`(loss, accuracy, share)` over all pairs of B steps; `share` of them are decided by the tree."""
    first, second = np.triu_indices(len(reward), 1)
    label = tree_labels(jnp.stack([factors[first], factors[second]], 1), margins)
    decided, margin = label != 0.5, (reward[second] - reward[first]) * jnp.sign(label - 0.5)
    count = jnp.maximum(jnp.sum(decided), 1)
    loss = jnp.sum(jnp.where(decided, jax.nn.softplus(-margin), 0)) / count
    return loss, jnp.sum(decided & (margin > 0)) / count, jnp.mean(decided)


@dataclasses.dataclass(frozen=True)
class _HERON:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "reward")
    targets: ClassVar[tuple[str, ...]] = ("critic", "actor")

    reward: Any  # a flax module
    ddpg: Any  # DDPG's rule
    factors: Factors
    config: Config

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        kind = jnp.result_type(float)
        if self.config.absorbing and is_concrete(hyper.gamma) and np.any(np.asarray(hyper.gamma) >= 1):
            raise ValueError(f"gamma={hyper.gamma}: with absorbing ends, r / (1 - gamma), it must be below 1.")
        return {
            "reward": self.reward.init(keys["reward"], obs, action, obs, jnp.zeros((), jnp.bool_)),
            "moments": jnp.array([0.0, 1.0], kind),
            **self.ddpg.init(keys, obs, action, hyper),
        }

    def raw(self, weights: Any, steps: Any) -> Float[Array, "..."]:
        """The network's outputs for steps."""
        found: Any = self.reward.apply(weights, steps.obs, steps.action, steps.next_obs, steps.terminated)
        return found

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The reward on all pairs of a few steps, then DDPG on the batch with the rewards of that network."""
        few = jax.tree.map(lambda x: x[: self.config.num_compared], batch)
        factors = self.factors(few)
        count, margins = factors.shape[-1], self.config.margins
        if margins and len(margins) != count:
            raise ValueError(f"{len(margins)} margins of the {count} of factors=: one each, or none for 1 each.")
        margins = jnp.array(margins or (1.0,) * count, factors.dtype)

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            loss, accuracy, share = tree_loss(self.raw(weights, few), factors, margins)
            return loss, {"accuracy": accuracy, "compared": share}

        reward, report = nets["reward"].descend(objective, hyper.reward_learning_rate, hyper.max_grad_norm)
        learned = self.raw(reward.weights, batch) if self.config.relabel else batch.reward
        mean, variance = nets["moments"]
        mean = mean + hyper.moment_step * (jnp.mean(learned) - mean)
        variance = variance + hyper.moment_step * (jnp.mean((learned - mean) ** 2) - variance)
        scaled = (learned - mean) / jnp.sqrt(variance + 1e-8)
        if self.config.absorbing:
            scaled = jnp.where(batch.terminated, scaled / (1 - hyper.gamma), scaled)
        networks = {name: nets[name] for name in self.ddpg.networks}
        after, of_ddpg = self.ddpg.gradient_step(networks, key, batch._replace(reward=scaled), hyper)
        return {**after, "reward": reward, "moments": jnp.stack([mean, variance])}, {**of_ddpg, **report}


@dataclasses.dataclass(frozen=True)
class _Learner(learner.Learner):
    """The shell; without `Config.relabel` it stores the rewards that the network predicts as steps are taken."""

    def collect(self, state: Any) -> tuple[Any, Rollout | None]:
        weights = state.weights["reward"]
        state, rollout = super().collect(state)
        if self.config.relabel or rollout is None:
            return state, rollout
        steps: Transition = rollout.transition
        return state, rollout._replace(transition=steps._replace(reward=self.rule.raw(weights, steps)))


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    factors: Factors | None = None,
    actor: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """HERON for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        factors: in place of `config.factors`, a function from a batch of steps, a `Transition` whose actions are in
            units of the box, to their factors (..., L), the most important first.

    Raises ValueError without factors and for words that name none; the update raises it for margins that are not one
    for each of `factors`. `learner.algorithm` explains the other arguments.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("heron", venv, Box, between_ends=True)
    size = obs_space.shape[0] if isinstance(obs_space, Box) and len(obs_space.shape) == 1 else 0
    chosen = factors or factors_of(config.factors, size, space.shape[0])
    sizes = config.hidden, config.activation
    critic = own("critic", critic) or Critic(obs_space, *sizes, config.layer_norm)
    acting = Deterministic(own("actor", actor) or Actor(obs_space, space, *sizes))
    rule = _HERON(StepReward(obs_space, *sizes), ddpg._DDPG(critic, acting), chosen, config)
    weights = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    replay = uniform(config.buffer_size)
    shell = _Learner("heron", config, Hyper, venv, obs_space, space, rule, acting, replay, weights)
    return shell.algorithm(critic, 0)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
