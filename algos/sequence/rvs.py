"""RvS: reinforcement learning via supervised learning, that is cloning conditioned on an outcome.

Emmons, Eysenbach, Kostrikov and Levine (2022), "RvS: What is essential for offline RL via supervised learning?". A
perceptron predicts the dataset's action from the observation and an outcome of the rest of the episode:

- `outcome="return"` (RvS-R): the mean reward of the rest of a full episode, (r[t] + ... + r[T - 1]) / (max_steps - t).
  When acting, it is `Hyper.target_return` / max_steps at every step, where max_steps is `Config.max_steps` or the time
  limit of the run's params.
- `outcome="goal"` (RvS-G): a state that was reached later, which `hindsight.Hindsight` puts into the entry "goal" of
  the observation. When acting, the goal is the environment's.

The loss is the squared error for a Box (the likelihood with a constant standard deviation), the cross-entropy for a
Discrete space.

Deviations from the authors' code: no dropout (theirs: 0.1), so against overfitting choose a smaller network; the
standard deviation for a Box is not learned; actions are in units of the box, and their mean is within it; orthogonal
weights. Results: `experiments/stitching`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data.datasets import Windows
from jaxrl.environment import Environment, pytree, visible
from jaxrl.nn.nets import Nets
from jaxrl.nn.networks import MLP, Network, encode, own
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.off_policy import outcomes
from jaxrl.off_policy.outcomes import NO_DATASET, OutcomeLearner, Policy, chosen, masked
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Discrete, Space, environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    outcome: str = "return"  # return or goal: what actions are conditioned on
    max_steps: int | None = None  # length of a full episode; None: the time limit of the run's params
    num_envs: int = 1  # environments in the state; nothing acts in them
    num_updates: int = 1  # gradient steps an update
    batch_size: int = 256
    hidden: tuple[int, ...] = (1024, 1024)  # widths of the actor
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin


@pytree
class Hyper(outcomes.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""


class Actor(nn.Module):
    """The default network: from an observation and an optional outcome (...) to actions (..., A) or logits (..., n)."""

    observation_space: Space
    action_space: Space
    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, obs: Any, outcome: Float[Array, "..."] | None = None) -> Array:
        x = encode(self.observation_space, obs)
        x = x if outcome is None else jnp.concatenate([x, outcome[..., None]], -1)
        discrete = isinstance(self.action_space, Discrete)
        outputs = self.action_space.n if discrete else self.action_space.shape[0]
        x = MLP(self.hidden, outputs, self.activation, out_scale=0.01)(x)
        return x if discrete else jnp.tanh(x)


def mean_reward_to_go(
    return_to_go: Float[Array, "*batch"], time: Array, max_steps: Array | int
) -> Float[Array, "*batch"]:
    """The return-to-go divided by the remaining steps (Emmons et al. 2022, section 3.2)."""
    return return_to_go / jnp.maximum(max_steps - time, 1)


@dataclasses.dataclass(frozen=True)
class _RvS:
    """The learning rule, a `learner.Rule`, and how it acts."""

    networks: ClassVar[tuple[str, ...]] = ("actor",)
    targets: ClassVar[tuple[str, ...]] = ()

    config: Config
    observation_space: Space
    action_space: Space
    network: Any  # a flax module

    def inputs(self, windows: Windows, scale: Array | float, max_steps: Array | int) -> tuple[Any, ...]:
        obs = visible(windows.obs)
        if self.config.outcome == "goal":
            return (obs,)
        return obs, mean_reward_to_go(windows.return_to_go / scale, windows.time, max_steps)

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        one = jnp.zeros(1)
        obs, action = jax.tree.map(lambda x: x[None], (obs, action))
        windows = Windows(obs, action, one, jnp.zeros(1, jnp.int32), one == 0)
        return {"actor": self.network.init(keys["actor"], *self.inputs(windows, hyper.return_scale, 1))}

    def gradient_step(self, nets: Nets, key: Array, batch: Windows, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """Cloning of the dataset's actions, conditioned on the outcome."""
        max_steps = nets["max_steps"]

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            output = self.network.apply(weights, *self.inputs(batch, hyper.return_scale, max_steps))
            output = masked(output, batch.obs, self.observation_space)
            return outcomes.action_loss(self.action_space, output, batch.action, batch.valid), {}

        actor, report = nets["actor"].descend(objective, hyper.learning_rate, hyper.max_grad_norm)
        return {"actor": actor, "max_steps": max_steps}, report

    def asked(self, hyper: Hyper, max_steps: Int[Array, ""]) -> Float[Array, ""]:
        return hyper.target_return / hyper.return_scale / max_steps

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        inputs: tuple[Any, ...] = (visible(obs),)
        if self.config.outcome == "return":
            leaf = encode(self.observation_space, inputs[0])
            inputs = *inputs, jnp.broadcast_to(policy.target, leaf.shape[:-1])
        output = self.network.apply(policy.weights, *inputs)
        action = chosen(masked(output, obs, self.observation_space), self.action_space, key, greedy)
        return environment_action(self.action_space, action), carry


def window(config: Config) -> int:
    """The number of steps of a sample, see `Learns.data`: 1, without a history."""
    return 1


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | None = None,
    actor: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """RvS for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset, `datasets.windows(dataset, env.action_space(params), 1)`, with its `hindsight` where the
            outcome is a goal; None: the learner acts, but does not learn.
        actor: a flax module from an observation without its privileged part and, where it is a return, the outcome
            (...), to actions (..., A) in [-1, 1] or logits (..., n).
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is neither a vector nor Discrete, several agents, a network whose outputs
    do not fit, or a goal that is not observed; and `init` for params without a limit where `max_steps` is None.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("rvs", venv, Box, Discrete, between_ends=True)
    outcomes.check_outcome("rvs", config, obs_space)
    rule = _RvS(
        config, obs_space, space, own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation)
    )
    chosen_optimizer = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    data = NO_DATASET if replay is None else replay
    shell = OutcomeLearner("rvs", config, Hyper, venv, obs_space, space, rule, None, data, chosen_optimizer)
    return shell.algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
