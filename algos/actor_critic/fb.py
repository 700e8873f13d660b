"""Forward-backward representations (FB): zero-shot policies for any reward, learned from reward-free data.

Touati and Ollivier (2021), "Learning one representation to optimize all rewards"; Touati, Rapin and Ollivier (2023),
"Does zero-shot reinforcement learning exist?". Two embeddings factor the successor measure of a family of policies,

    F(s, a, z) . B(s') rho(s') = sum_t gamma^t Pr(s_{t+1} = s' | s, a, pi_z),    pi_z(s) = argmax_a F(s, a, z) . z

where rho is the distribution of the dataset's next states. For a reward r of the next state, Q(s, a) of pi_z is then
F(s, a, z) . E_rho[B r], and with z = E_rho[B(s') r(s')] (`task_vector`) pi_z is greedy with respect to its own values:
a new reward needs no learning. With m_ij = F(s_i, a_i, z_i) . B(s'_j) the losses of a batch are (`measure_loss`,
`orthonormality`)

    mean_{i != j} (m_ij - gamma m'_ij)^2 / 2 - mean_i m_ii
    orthonormality (mean_{i != j} (B_i . B_j)^2 - 2 mean_i |B_i|^2)

where m' is computed by the target networks at s'_i and the greedy action there, and is the smallest of `num_forward`
networks F. Half of the z are drawn from a normal distribution, half are B of the batch's states; all have length
sqrt(size).

Jeen, Bewley and Cullen (2024), "Zero-shot reinforcement learning from low quality data": on small or narrow datasets F
is too high for actions that the dataset lacks. `conservative="value"` (VC-FB) adds conservative_weight times the mean
of logsumexp_a' F(s, a', z) . z - F(s, a, z) . z, a being the dataset's action; `"measure"` (MC-FB) the same of F .
B(s'_j).

The deployed task is that of the dataset's rewards: z of `num_labelled` of its steps. For other rewards deploy the same
state with a learner whose dataset has them (`dataset.replace(reward=...)`), or with another `task` in the policy.

Deviations from the papers' code: discrete actions only, with an exact argmax and logsumexp in place of an actor and
sampled actions; one network of observation and z, not two whose features are joined, and its input z has length 1; one
learning rate; the weight of the penalty is constant, not a Lagrange multiplier; orthogonal initialisation.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, Key

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree, split_observation, visible
from jaxrl.nn import normalize
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.nn.nets import Nets, critic_values, init_critics
from jaxrl.nn.networks import MLP, Network, encode
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.off_policy import learner
from jaxrl.off_policy.learner import Learner, State, normalized
from jaxrl.off_policy.steps import as_replay
from jaxrl.replay.ring import Replay, uniform
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv

PENALTIES = ("none", "value", "measure")


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    size: int = 50  # dimension d of F, B and z
    num_forward: int = 2  # networks F; the target takes the smallest of their measures
    conservative: str = "none"  # "value": VC-FB, "measure": MC-FB
    num_labelled: int = 10_000  # steps from whose rewards the deployed task z is inferred

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "size", "num_forward", "num_labelled")
        if self.batch_size < 2:
            raise ValueError(
                f"batch_size={self.batch_size}: fb compares pairs of transitions, so it must be at least 2."
            )
        if self.conservative not in PENALTIES:
            raise ValueError(
                f"conservative={self.conservative!r}: it must be one of {', '.join(map(repr, PENALTIES))}."
            )


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-4  # of F and B
    gamma: jax.Array = 0.98  # discount
    tau: jax.Array = 0.01  # Polyak step of target networks, each gradient step
    orthonormality: jax.Array = 1.0  # weight of B's orthonormality loss
    conservative_weight: jax.Array = 1.0  # of the penalty, where Config.conservative has one
    goal_share: jax.Array = 0.5  # share of the z that are B of a state
    epsilon: jax.Array = 0.1  # probability of a random action, where not greedy


class Policy(NamedTuple):
    """The policy, as it is evaluated and exported, for the reward that `task` represents."""

    weights: Any  # of the networks F
    task: Float[Array, " d"]  # z
    epsilon: Array
    normalizer: Any = None  # statistics of observations; None without Config.normalize_obs


class Forward(nn.Module):
    """The default F: from an observation and z (..., d) to (..., A, d), a vector for each action."""

    observation_space: Space
    num_actions: int
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Any, z: Float[Array, "... d"]) -> Float[Array, "... A d"]:
        x = jnp.concatenate([encode(self.observation_space, obs), z / jnp.sqrt(z.shape[-1])], -1)
        x = MLP(self.hidden, self.num_actions * z.shape[-1], self.activation, layer_norm=self.layer_norm)(x)
        return x.reshape(*x.shape[:-1], self.num_actions, z.shape[-1])


class Backward(nn.Module):
    """The default B: from an observation to a vector (..., d) of length sqrt(d)."""

    observation_space: Space
    size: int
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Any) -> Float[Array, "... d"]:
        x = encode(self.observation_space, obs)
        return on_sphere(MLP(self.hidden, self.size, self.activation, layer_norm=self.layer_norm)(x))


def on_sphere(x: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Vectors of the same directions with length sqrt(d); zero stays zero."""
    return x * jnp.sqrt(x.shape[-1]) * jax.lax.rsqrt(jnp.maximum(jnp.sum(x**2, -1, keepdims=True), 1e-12))


def task_vector(backward: Float[Array, "n d"], reward: Float[Array, " n"]) -> Float[Array, " d"]:
    """z of a reward: the mean of B(s') r(s') over next states of the dataset, scaled to length sqrt(d)."""
    return on_sphere(jnp.mean(backward * reward[:, None], 0))


def measures(forward: Float[Array, "... B d"], backward: Float[Array, "N d"]) -> Float[Array, "... B N"]:
    """F_i . B_j: densities of the successor measure relative to the distribution of the dataset's next states."""
    return jnp.einsum("...id,jd->...ij", forward, backward)


def measure_loss(measure: Float[Array, "K B B"], target: Float[Array, "B B"]) -> Float[Array, ""]:
    """sum_k mean_{i != j} (m_k[i, j] - target[i, j])^2 / 2 - mean_i m_k[i, i], `target` being discounted."""
    n = len(target)
    other = 1 - jnp.eye(n, dtype=target.dtype)
    errors = jnp.sum(other * (measure - target) ** 2, (1, 2)) / (n * (n - 1))
    return jnp.sum(errors / 2 - jnp.mean(jnp.diagonal(measure, axis1=1, axis2=2), -1))


def orthonormality(backward: Float[Array, "B d"]) -> Float[Array, ""]:
    """mean_{i != j} (B_i . B_j)^2 - 2 mean_i |B_i|^2, which is |E[B B^T] - I|^2 up to a constant."""
    n, products = len(backward), backward @ backward.T
    own = jnp.diagonal(products)
    return (jnp.sum(products**2) - jnp.sum(own**2)) / (n * (n - 1)) - 2 * jnp.mean(own)


def penalty(tried: Float[Array, "K B A *j"], of_data: Float[Array, "K B *j"]) -> Float[Array, ""]:
    """sum_k mean logsumexp_a tried[k, :, a] - of_data[k] (Jeen et al. 2024, equations 7 and 8)."""
    return jnp.sum(jnp.mean((jax.nn.logsumexp(tried, 2) - of_data).reshape(len(tried), -1), -1))


def draw_tasks(key: Key[Array, ""], backward: Float[Array, "B d"], goal_share: Array | float) -> Float[Array, "B d"]:
    """A z for each row: B of a random row's state, with probability `goal_share`, or uniform on the sphere.

    As in the papers' code goals are states of the same batch, so that a row's own state is drawn with probability 1/B.
    """
    order_key, normal_key, share_key = jax.random.split(key, 3)
    goals = backward[jax.random.permutation(order_key, len(backward))]
    normal = jax.random.normal(normal_key, backward.shape, backward.dtype)
    chosen = jax.random.uniform(share_key, (len(backward), 1)) < goal_share
    return on_sphere(jnp.where(chosen, goals, normal))


def of_action(x: Float[Array, "K B A d"], action: Integer[Array, " B"]) -> Float[Array, "K B d"]:
    return jnp.take_along_axis(x, action[None, :, None, None], 2)[:, :, 0]


@dataclasses.dataclass(frozen=True)
class _FB:
    """The learning rule, a `learner.Rule`: one network `representation`, F and B, which one loss trains."""

    networks: ClassVar[tuple[str, ...]] = ("representation",)
    targets: ClassVar[tuple[str, ...]] = ("representation",)

    config: Config
    observation_space: Space
    forward_net: Any  # flax modules
    backward_net: Any

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        forward_key, backward_key = jax.random.split(keys["representation"])
        obs, z = visible(obs), jnp.zeros(self.config.size)
        forward = init_critics(self.forward_net, forward_key, self.config.num_forward, obs, z)
        return {"representation": {"forward": forward, "backward": self.backward_net.init(backward_key, obs)}}

    def forward(self, weights: Any, obs: Any, z: Float[Array, "... d"]) -> Float[Array, "K ... A d"]:
        return critic_values(self.forward_net, weights, visible(obs), z)

    def backward(self, weights: Any, obs: Any) -> Float[Array, "... d"]:
        return self.backward_net.apply(weights, visible(obs))

    def q_values(self, forward: Float[Array, "K ... A d"], obs: Any, z: Float[Array, "... d"]) -> Float[Array, "... A"]:
        """The smallest F . z over the K networks; actions that the observation forbids get a value far below."""
        q = jnp.min(jnp.einsum("...ad,...d->...a", forward, z), 0)
        allowed = self.allowed(obs)
        return q if allowed is None else mask_logits(q, allowed)

    def allowed(self, obs: Any) -> Bool[Array, "... A"] | None:
        return split_observation(obs, self.observation_space)[2]

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """Draws tasks; F and B learn the successor measure of each task's greedy policy (Touati et al. 2023)."""
        net = nets["representation"]
        (task_key,) = jax.random.split(key, 1)  # one key for each network, as in all algorithms

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            backward = self.backward(weights["backward"], batch.next_obs)
            z = draw_tasks(task_key, jax.lax.stop_gradient(backward), hyper.goal_share)

            ahead = self.forward(net.target["forward"], batch.next_obs, z)
            ahead = of_action(ahead, jnp.argmax(self.q_values(ahead, batch.next_obs, z), -1))
            ahead = jnp.min(measures(ahead, self.backward(net.target["backward"], batch.next_obs)), 0)
            ahead = hyper.gamma * jnp.where(batch.terminated[:, None], 0, ahead)

            forward = self.forward(weights["forward"], batch.obs, z)
            of_data = of_action(forward, batch.action)
            measure = measures(of_data, backward)
            error, apart = measure_loss(measure, ahead), orthonormality(backward)
            report = {"measure_loss": error, "orthonormality": apart, "q_value": jnp.mean(of_data * z) * z.shape[-1]}
            loss = error + hyper.orthonormality * apart
            if self.config.conservative != "none":
                if self.config.conservative == "value":
                    low = penalty(jnp.einsum("kiad,id->kia", forward, z), jnp.einsum("kid,id->ki", of_data, z))
                else:
                    low = penalty(measures(forward, backward), measure)
                loss, report = loss + hyper.conservative_weight * low, report | {"penalty": low}
            return loss, report

        net, report = net.descend(objective, hyper.learning_rate, hyper.max_grad_norm)
        return {"representation": net.track(hyper.tau)}, report


@dataclasses.dataclass(frozen=True)
class _Learner(Learner):
    """A `Learner` that acts greedily by F . z, where the task z is inferred from the rewards in the replay."""

    def policy(self, state: State) -> Policy:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.of_rewards(state, self.config.num_labelled)

    def exploring(self, state: State) -> Policy:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The policy that collects: its z is inferred from `batch_size` steps only, as that is done in each update."""
        return self.of_rewards(state, self.config.batch_size)

    def of_rewards(self, state: State, labelled: int) -> Policy:
        """The policy for the rewards of `labelled` steps of the replay, the same steps at each call."""
        weights = state.weights["representation"]
        seen = self.replay.sample(jax.random.key(0), state.replay, labelled)
        next_obs = normalized(state.normalizer, seen.next_obs)
        task = task_vector(self.rule.backward(weights["backward"], next_obs), seen.reward)
        return Policy(weights["forward"], task, state.hyper.epsilon, normalize.visible(state.normalizer))

    def values_of(self, policy: Policy, obs: Any) -> Float[Array, "... A"]:
        batch_shape = encode(self.observation_space, obs).shape[:-1]
        z = jnp.broadcast_to(policy.task, (*batch_shape, self.config.size))
        return self.rule.q_values(self.rule.forward(policy.weights, obs, z), obs, z)

    def greedy(self, policy: Policy, obs: Any) -> Integer[Array, "..."]:
        return jnp.argmax(self.values_of(policy, obs), -1)

    def explore(self, policy: Policy, key: Array, obs: Any) -> Integer[Array, "..."]:
        random_key, share_key = jax.random.split(key)
        q, allowed = self.values_of(policy, obs), self.rule.allowed(obs)
        even = jnp.zeros_like(q) if allowed is None else mask_logits(jnp.zeros_like(q), allowed)
        at_random = jax.random.uniform(share_key, q.shape[:-1]) < policy.epsilon
        return jnp.where(at_random, Categorical(even).sample(random_key), jnp.argmax(q, -1))


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    forward: Network | None = None,
    backward: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """FB for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset, or what `datasets.stored` makes of one; None: the learner acts and fills a replay buffer.
        forward: a flax module from an observation without its privileged part and z (..., d) to F of every action,
            (..., A, d); there are `config.num_forward` of them.
        backward: a flax module from such an observation to B (..., d).
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not Discrete, several agents, or networks whose outputs do not fit,
    and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("fb", venv, Discrete)
    sizes = config.hidden, config.activation, config.layer_norm
    forward = forward or Forward(obs_space, space.n, *sizes)
    rule = _FB(config, obs_space, forward, backward or Backward(obs_space, config.size, *sizes))
    drawn = as_replay("fb", replay, space, lambda: uniform(config.buffer_size))
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _Learner("fb", config, Hyper, venv, obs_space, space, rule, None, drawn, chosen).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
