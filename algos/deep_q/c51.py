"""C51: a categorical distribution of returns.

Bellemare, Dabney and Munos (2017), "A distributional perspective on reinforcement learning" (arXiv:1707.06887). The
network gives logits of m atoms z[i], equidistant from v_min to v_max, for each action; Q(s, a) is their mean. The
target distribution puts the successor's probabilities at

    y[i] = reward + discount * z[i],    for the next action that maximises the mean in the target network,

and splits the mass of each y[i], clipped to the support, linearly between the two atoms around it (eq. 7 and algorithm
1). The loss is the cross entropy with this target.

Everything else is as in `dqn.py`, with its static choices. The defaults are those of CleanRL's `c51.py` for classic
control, which takes ten steps in one environment where ten environments take one step here. The paper has 51 atoms from
-10 to 10 on Atari, where rewards are clipped. `v_min` and `v_max` are leaves; returns beyond them cannot be
represented. Deviations: those of `dqn.py`; Adam's epsilon and the clipping of gradients are DQN's too. Results:
`docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.action_values import best_action, outputs_of
from jaxrl.nn.nets import Net
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.nn.value_heads import cross_entropy, entropy, expected_value, two_hot
from jaxrl.off_policy import q_learner
from jaxrl.off_policy.q_learner import Batch, apply, clipped_targets, split_or_none, weighted_mean
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(q_learner.Config):
    """Static settings: each value compiles its own program."""

    double: bool = False  # double Q-learning: the online network picks the action that the target network evaluates
    num_outputs: int = 101  # atoms
    dueling: bool = False  # dueling head of the default network: a state value plus centred advantages
    noisy: bool = False  # noisy layers in the default network explore, in the place of random actions
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers

    def __post_init__(self) -> None:
        super().__post_init__()
        q_learner.check_num_outputs(self.num_outputs, 2, type(self).__module__.rpartition(".")[2])


@pytree
class Hyper(q_learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps; on a dataset, gradient steps."""

    v_min: jax.Array = -100.0  # the first atom
    v_max: jax.Array = 100.0  # the last one


def atoms(num: int, support: tuple[Any, Any]) -> Float[Array, " num"]:
    """The atoms z; `support` is `(v_min, v_max)`."""
    return jnp.linspace(*support, num)


def values(logits: Float[Array, "*batch m"], support: tuple[Any, Any]) -> Float[Array, "*batch"]:
    """Q: the mean of each distribution."""
    return expected_value(logits, atoms(logits.shape[-1], support))


def project(
    values: Float[Array, "*batch k"], probability: Float[Array, "*batch k"], centres: Float[Array, " m"]
) -> Float[Array, "*batch m"]:
    """The distribution projected onto `centres`: each value's mass is split between the two centres around it.

    The mean is preserved unless values lie outside the range of the centres (eq. 7, whose bracket is `two_hot`).
    """
    return jnp.sum(probability[..., None] * two_hot(values, centres), -2)


def loss(
    logits: Float[Array, "B m"],
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_logits: Float[Array, "B m"],
    support: tuple[Any, Any],
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """`(loss, priority)` of each transition: cross entropy with the projected target, and KL(target || prediction)."""
    z = atoms(logits.shape[-1], support)
    target = project(reward[:, None] + discount[:, None] * z, jax.nn.softmax(next_logits), z)
    each = cross_entropy(logits, target)
    return each, each - entropy(target)


@dataclasses.dataclass(frozen=True)
class _C51:
    """The learning rule, a `q_learner.Rule`.

    After an update, every `target_period` steps, the learner moves the target network to the online one by `tau`.
    """

    config: Any
    network: Any  # a flax module: logits (..., n, num_outputs)
    observation_space: Any

    @property
    def draws(self) -> bool:
        return self.config.noisy

    def init(self, key: Array, obs: Any) -> Any:
        return self.network.init(key, obs)

    def support(self, hyper: Any) -> tuple[Array, Array]:
        return q_learner.limits(hyper)

    def values(self, weights: Any, obs: Any, support: Any, key: Array | None) -> Float[Array, "..."]:
        return values(apply(self.network, weights, obs, key)[0], support)

    def ahead(self, target_weights: Any, batch: Batch, hyper: Any, key: Array | None) -> Float[Array, "B n m"]:
        """The target network's logits for all actions at next_obs."""
        return apply(self.network, target_weights, batch.next_obs, key)[0]

    def gradient_step(
        self, net: Net, batch: Batch, ahead: Array, key: Array | None, hyper: Any, learning_rate: Array
    ) -> tuple[Net, dict[str, Array]]:
        """The next action, the projected target of its distribution, the cross entropy (algorithm 1)."""
        support, (online_key, choice_key) = self.support(hyper), split_or_none(key)
        allowed = split_observation(batch.next_obs, self.observation_space)[2]

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            logits, report = apply(self.network, weights, batch.obs, online_key)
            choosing = ahead
            if self.config.double:
                choosing, _ = apply(self.network, jax.lax.stop_gradient(weights), batch.next_obs, choice_key)
            next_action = best_action(values(choosing, support), allowed)
            taken = outputs_of(logits, batch.action)
            following = jax.lax.stop_gradient(outputs_of(ahead, next_action))
            each, priority = loss(taken, batch.reward, batch.discount, following, support)
            target = batch.reward + batch.discount * values(following, support)
            report |= {"q_value": jnp.mean(values(taken, support)), "clipped_targets": clipped_targets(target, support)}
            return weighted_mean(each, batch.weight), {"priority": priority, **report}

        return net.descend(objective, learning_rate, hyper.max_grad_norm)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """C51 on `env`. Arguments and errors as of `dqn.make`; a network gives logits (..., n, num_outputs)."""
    venv = as_vector_env(env, config.num_envs)
    observation_space, space = spaces_of("c51", venv, Discrete)
    network = own("network", network) or q_learner.q_network(config, observation_space, space.n, config.num_outputs)
    rule = _C51(config, network, observation_space)
    algo = q_learner.algorithm("c51", venv, config, Hyper, rule, replay=replay, optimizer=optimizer)
    q_learner.check_network(algo, network, space.n, config.num_outputs)
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
