"""Conservative Q-learning (CQL) for discrete actions, and values of the behaviour policy.

Kumar, Zhou, Tucker and Levine (2020), "Conservative Q-learning for offline reinforcement learning", equation 4: the
loss of each transition is that of DQN, or of QR-DQN where an action has several outputs, plus the penalty

    min_q_weight (logsumexp_b Q(s, b) - Q(s, a))

which is small where the dataset's action a has the largest value by far. `Config.target` is the target of Q(s, a),

    double, max    r + gamma Q'(s', b), b the best action by Q (double), or by the target network Q' (max)
    data           r + gamma Q'(s', b), b the dataset's next action
    returns        the discounted rewards to the end of the episode

With `min_q_weight` 0 these are offline DQN; behaviour value estimation, BVE (Gulcehre et al. 2021, "Regularized
behavior value estimation", without its regulariser); and Monte Carlo estimation, MCE, as in Schweighofer et al. (2022),
"A dataset perspective on offline reinforcement learning". The latter two are one step of policy improvement.

Deviations: those of `dqn.py`; Huber's loss of single values, as in Schweighofer et al.; `returns` do not bootstrap
where a time limit ended an episode, and have the discount of the stored dataset (`datasets.stored`, gamma).
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
from jaxrl.nn.action_values import best_action, outputs_of, value_of
from jaxrl.nn.distributions import mask_logits
from jaxrl.nn.losses import half_square
from jaxrl.nn.nets import Net
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.nn.value_heads import fractions, quantile_huber
from jaxrl.off_policy import q_learner
from jaxrl.off_policy.q_learner import Batch, apply, split_or_none, weighted_mean
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv

TARGETS = ("double", "max", "data", "returns")


@dataclasses.dataclass(frozen=True)
class Config(q_learner.Config):
    """Static settings: each value compiles its own program."""

    target: str = "double"  # one of TARGETS: the target of the value of the dataset's action
    num_outputs: int = 1  # of an action: 1 is its value, more are quantiles
    dueling: bool = False  # dueling head of the default network: a state value plus centred advantages
    noisy: bool = False  # noisy layers in the default network explore, in the place of random actions
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers

    def __post_init__(self) -> None:
        super().__post_init__()
        q_learner.check_num_outputs(self.num_outputs, 1, "cql_discrete")
        if self.target not in TARGETS:
            raise ValueError(f"target={self.target!r} is unknown; use one of {', '.join(TARGETS)}.")


@pytree
class Hyper(q_learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps; on a dataset, gradient steps."""

    min_q_weight: jax.Array = 1.0  # of the penalty


def penalty(q: Float[Array, "B n"], of_data: Float[Array, " B"]) -> Float[Array, " B"]:
    """logsumexp_b Q(s, b) - Q(s, a): at least 0, and at most log n where the dataset's action is the best."""
    return jax.nn.logsumexp(q, -1) - of_data


def values(outputs: Float[Array, "..."], num_outputs: int) -> Float[Array, "..."]:
    """Q: the output itself, or the mean of several quantiles."""
    return outputs if num_outputs == 1 else jnp.mean(outputs, -1)


def td_loss(
    outputs: Float[Array, "..."], reward: Array, discount: Array, following: Float[Array, "..."]
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """`(loss, priority)` of each transition: Huber's loss for values (B,), the quantile one for quantiles (B, N)."""
    if outputs.ndim == 1:
        error = outputs - (reward + discount * following)
        return half_square(error, huber=True), jnp.abs(error)
    targets = reward[:, None] + discount[:, None] * following
    each = quantile_huber(outputs, fractions(outputs.shape[-1]), targets)
    return each, each


@dataclasses.dataclass(frozen=True)
class _CQL:
    """The learning rule, a `q_learner.Rule`.

    After an update, every `target_period` steps, the learner moves the target network to the online one by `tau`.
    """

    config: Config
    network: Network  # (..., n), or (..., n, num_outputs)
    observation_space: Space

    @property
    def draws(self) -> bool:
        return self.config.noisy

    def init(self, key: Array, obs: Any) -> Any:
        return self.network.init(key, obs)

    def support(self, hyper: Hyper) -> tuple:
        return ()

    def values(self, weights: Any, obs: Any, support: Any, key: Array | None) -> Float[Array, "..."]:
        return values(apply(self.network, weights, obs, key)[0], self.config.num_outputs)

    def ahead(self, target_weights: Any, batch: Batch, hyper: Hyper, key: Array | None) -> Float[Array, "..."]:
        """The target network's outputs for all actions at next_obs."""
        return apply(self.network, target_weights, batch.next_obs, key)[0]

    def gradient_step(
        self, net: Net, batch: Batch, ahead: Array, key: Array | None, hyper: Hyper, learning_rate: Array
    ) -> tuple[Net, dict[str, Array]]:
        """The next action, the target, its loss and the penalty (Kumar et al. 2020, equation 4)."""
        online_key, choice_key = split_or_none(key)
        n = self.config.num_outputs
        reward, discount = batch.reward, batch.discount
        if self.config.target == "returns":
            reward, discount = jnp.asarray(batch.return_to_go), jnp.zeros_like(discount)
        allowed, next_allowed = (split_observation(x, self.observation_space)[2] for x in (batch.obs, batch.next_obs))

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            outputs, report = apply(self.network, weights, batch.obs, online_key)
            if self.config.target == "data":
                next_action = jnp.asarray(batch.next_action)
            else:
                choosing = ahead
                if self.config.target == "double":
                    choosing, _ = apply(self.network, jax.lax.stop_gradient(weights), batch.next_obs, choice_key)
                next_action = best_action(values(choosing, n), next_allowed)
            taken = outputs_of(outputs, batch.action)
            following = jax.lax.stop_gradient(outputs_of(ahead, next_action))
            error, priority = td_loss(taken, reward, discount, following)
            q = values(apply(self.network, weights, batch.obs, None)[0], n)
            gap = penalty(q if allowed is None else mask_logits(q, allowed), value_of(q, batch.action))
            report = {"priority": priority, "q_value": jnp.mean(values(taken, n)), **report}
            report |= {"td_error": jnp.mean(error), "penalty": jnp.mean(gap)}
            return weighted_mean(error + hyper.min_q_weight * gap, batch.weight), report

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
    """Discrete CQL on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset, or what `datasets.stored` makes of one; None: the learner acts and fills a replay buffer.
        network: a flax module as `dqn.make` takes it, with `num_outputs` of each action.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not fit
    or a target that needs a dataset without one.
    """
    if config.target in ("data", "returns") and replay is None:
        raise ValueError(f"target={config.target!r}: it needs a dataset as replay; double and max do without.")
    venv = as_vector_env(env, config.num_envs)
    observation_space, space = spaces_of("cql_discrete", venv, Discrete)
    network = own("network", network) or q_learner.q_network(config, observation_space, space.n, config.num_outputs)
    rule = _CQL(config, network, observation_space)
    algo = q_learner.algorithm("cql_discrete", venv, config, Hyper, rule, replay=replay, optimizer=optimizer)
    q_learner.check_network(algo, network, space.n, config.num_outputs)
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
