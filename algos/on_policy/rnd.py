"""PPO with an exploration bonus, the error of predicting a random network: RND, and RDD, whose bonus is a pseudo-count.

RND: Burda, Edwards, Storkey and Klimov (2018), "Exploration by random network distillation" (arXiv:1810.12894).
RDD: Fang et al. (2025), "Exploration by random distribution distillation" (arXiv:2505.11044), `Config(bonus="rdd")`.

A random network mu is never trained; a predictor f is regressed to it on visited states. The bonus of a step is
b(s') = |f(s') - mu(s')|^2 / d, with d features and s' the step's true successor. RND's targets are mu(s'); RDD's are
drawn at each visit from N(mu(s'), noise_scale^2 I). After n visits a converged predictor is the mean of n draws, so
E[b] = noise_scale^2 / n, a pseudo-count; before convergence RND's prediction error is added to it.

Bonuses are divided by the running standard deviation of their discounted sum. Rewards and bonuses have separate critics
and discounts, and their advantages are added. Returns of bonuses continue beyond the end of an episode (unless
`episodic_bonus`), so that the end of an episode costs only the bonuses missed on the way back.

Deviations from the authors' code: the running statistics of observations include the rollout whose bonuses they
normalise, instead of starting from a phase of random actions; the two critics are two networks, not two heads of one;
extrinsic rewards are not clipped; the bonus of an episode's last step is that of its final observation, not of the next
episode's first. Results: `docs/algos/rnd.md`; bonus against count: `experiments/rdd_counts`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from jaxrl import on_policy
from jaxrl.algorithm import (
    Algorithm,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    check_minibatches,
    restarted,
    shared,
    spaces_of,
    starting_values,
)
from jaxrl.environment import Environment, pytree, visible
from jaxrl.math import shuffled
from jaxrl.nn import nets, normalize
from jaxrl.nn.distributions import Distribution, num_outputs
from jaxrl.nn.losses import normalized
from jaxrl.nn.networks import MLP, SQRT2, ActorCritic, Network, encode, own
from jaxrl.nn.optim import Optimizer, OptimizerLike, annealed, optimizer_of
from jaxrl.on_policy import flattened, policy_of
from jaxrl.returns import gae
from jaxrl.rollout import Ends, minibatches, rollout, successor_values
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space, environment_action
from jaxrl.vector_env import VectorEnv

BONUSES = ("rnd", "rdd")


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 32  # environments stepped together
    num_steps: int = 128  # steps of each in a rollout
    num_epochs: int = 4  # passes over a rollout
    num_minibatches: int = 4  # gradient steps a pass; divides num_envs * num_steps
    hidden: tuple[int, ...] = (64, 64)  # widths of actor and critics
    activation: str = "tanh"
    normalize_obs: bool = False  # inputs of actor and critics; those of the random network are always normalised
    bonus: str = "rnd"  # or "rdd"
    episodic_bonus: bool = False  # returns of bonuses end with the episode
    target_hidden: tuple[int, ...] = (64,)  # widths of the random network
    predictor_hidden: tuple[int, ...] = (64, 64, 64)  # widths of the predictor, which must be the larger network
    num_features: int = 64  # outputs of both networks
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-5  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "num_epochs", "num_minibatches", "num_features")
        if self.bonus not in BONUSES:
            raise ValueError(f"bonus={self.bonus!r} is unknown; use {' or '.join(BONUSES)}.")
        check_minibatches(self.num_minibatches, self.num_envs * self.num_steps, "num_envs * num_steps")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 2.5e-4
    anneal_steps: jax.Array = 0  # environment steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.999  # discount of rewards
    int_gamma: jax.Array = 0.99  # discount of bonuses
    gae_lambda: jax.Array = 0.95
    ext_coef: jax.Array = 2.0  # weight of the advantages of rewards
    int_coef: jax.Array = 1.0  # weight of the advantages of bonuses
    clip_eps: jax.Array = 0.1
    ent_coef: jax.Array = 0.001
    vf_coef: jax.Array = 0.5
    max_grad_norm: jax.Array = 0.5
    predictor_fraction: jax.Array = 1.0  # probability that the predictor learns from a sample; 0.25 in Burda et al.
    noise_scale: jax.Array = 1.0  # of RDD's targets, in units of the random network's outputs


class TwoCritics(ActorCritic):
    """`networks.ActorCritic` with one more critic, of bonuses."""

    def setup(self) -> None:
        super().setup()
        self.int_critic_mlp = MLP(self.hidden, 1, self.activation, out_scale=1.0)

    def int_critic(self, obs: Any) -> Float[Array, "..."]:
        """Values (...) of future bonuses, of whole observations with their privileged part."""
        return self.int_critic_mlp(encode(self.observation_space, obs, privileged=True))[..., 0]

    def __call__(self, obs: Any) -> Any:
        return self.actor(obs), self.critic(obs), self.int_critic(obs)


class Policy(NamedTuple):
    """The policy, as it is evaluated and exported."""

    weights: Any
    normalizer: Any  # running statistics of observations; None without Config.normalize_obs


@pytree
class RNDState(on_policy.State):
    """`weights` are `{"network": actor and critics, "predictor": ...}`."""

    target: Any  # the random network's weights, never trained
    normalizer: Any  # statistics of the inputs of actor and critics
    bonus_normalizer: Any  # statistics of the inputs of random network and predictor
    bonus_scaler: Any


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    action: Array  # as sampled, before clipping to the box
    log_prob: Array
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Any  # of the true successor
    value: Array
    next_value: Array  # of the true successor
    int_value: Array
    next_int_value: Array  # of the next observation, also across a reset unless Config.episodic_bonus
    ends: Ends


class Batch(NamedTuple):
    """A minibatch, leaves (B, ...)."""

    obs: Any
    action: Array
    log_prob: Array
    advantage: Array
    value_target: Array
    int_value_target: Array
    inputs: Array  # encoded and normalised successor
    features: Array  # regression targets of the predictor


def prediction_error(
    prediction: Float[Array, "*#batch d"], features: Float[Array, "*#batch d"]
) -> Float[Array, " *batch"]:
    """|f - mu|^2 / d: with the random network's `features` the bonus, with drawn targets the predictor's loss."""
    return jnp.mean((prediction - features) ** 2, -1)


def draw_targets(
    key: Key[Array, ""], features: Float[Array, "*batch d"], noise_scale: Float[Array, ""] | float
) -> Float[Array, "*batch d"]:
    """RDD's targets, one draw of N(mu, noise_scale^2 I) for each visit (Fang et al. 2025)."""
    return features + noise_scale * jax.random.normal(key, features.shape, features.dtype)


def clipped_loss(
    log_prob: Float[Array, " B"],
    old_log_prob: Float[Array, " B"],
    advantage: Float[Array, " B"],
    clip_eps: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """PPO's clipped surrogate, to be minimised (Schulman et al. 2017, equation 7)."""
    ratio = jnp.exp(log_prob - old_log_prob)
    return -jnp.mean(jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps) * advantage))


def loss(
    weights: Any,
    batch: Batch,
    learns: Array,
    hyper: Hyper,
    network: Network,
    predictor: Network,
    observation_space: Space,
    space: Space,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """`(loss, metrics)` of PPO with both critics, and of the predictor on the samples where `learns` (B,) is True."""
    apply = functools.partial(network.apply, weights["network"], batch.obs)
    pi = policy_of(network, weights["network"], batch.obs, observation_space, space)
    value: Any = apply(method="critic")
    int_value: Any = apply(method="int_critic")
    prediction: Any = predictor.apply(weights["predictor"], batch.inputs)
    log_prob = pi.log_prob(batch.action)
    actor = clipped_loss(log_prob, batch.log_prob, normalized(batch.advantage), hyper.clip_eps)
    critic = 0.5 * jnp.mean((value - batch.value_target) ** 2)
    int_critic = 0.5 * jnp.mean((int_value - batch.int_value_target) ** 2)
    error = prediction_error(prediction, batch.features)
    distillation = jnp.sum(jnp.where(learns, error, 0)) / jnp.maximum(jnp.sum(learns), 1)
    entropy = jnp.mean(pi.entropy())
    total = actor + hyper.vf_coef * (critic + int_critic) - hyper.ent_coef * entropy + distillation
    log_ratio = log_prob - batch.log_prob
    report = {
        "loss": total,
        "policy_loss": actor,
        "value_loss": critic,
        "int_value_loss": int_critic,
        "predictor_loss": distillation,
        "entropy": entropy,
        "approx_kl": jnp.mean(jnp.expm1(log_ratio) - log_ratio),
    }
    return total, report


@dataclasses.dataclass(frozen=True)
class _RND:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    slots: ClassVar = ("bonus_scaler.returns",)
    config: Config
    venv: VectorEnv
    network: Network
    observation_space: Space
    action_space: Space
    optimizer: Optimizer

    @property
    def random_network(self) -> MLP:
        return MLP(self.config.target_hidden, self.config.num_features, "leaky_relu", out_scale=SQRT2)

    @property
    def predictor(self) -> MLP:
        return MLP(self.config.predictor_hidden, self.config.num_features, "leaky_relu", out_scale=SQRT2)

    def encoded(self, obs: Any) -> Array:
        return encode(self.observation_space, obs, privileged=True)

    def distribution(self, weights: Any, obs: Any, normalizer: Any) -> Distribution:
        obs = normalize.normalize(normalizer, obs)
        return policy_of(self.network, weights, obs, self.observation_space, self.action_space)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> RNDState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        key, network_key, predictor_key, target_key, reset_key = jax.random.split(key, 5)
        obs, env_state = self.venv.reset(reset_key, env_params)
        first = on_policy.first_of(obs)
        encoded = self.encoded(first)
        weights = {
            "network": self.network.init(network_key, first),
            "predictor": self.predictor.init(predictor_key, encoded),
        }
        target = self.random_network.init(target_key, encoded)
        weights, target = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), (weights, target))
        return RNDState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            optimizer=self.optimizer.init(weights, hyper.learning_rate),
            target=target,
            normalizer=normalize.init(first) if self.config.normalize_obs else None,
            bonus_normalizer=normalize.init(encoded),
            bonus_scaler=normalize.RewardScaler.init(self.config.num_envs),
        )

    def restart(self, state: RNDState, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> RNDState:
        """Starts a new episode in the slots of `mask`. Returns of bonuses continue, unless they are episodic."""
        state = restarted(self.venv, state, key, env_params, mask)
        return state.replace(bonus_scaler=state.bonus_scaler.restarted(mask & self.config.episodic_bonus))

    def collect(self, state: RNDState) -> tuple[RNDState, Rollout]:
        weights = state.weights["network"]

        def act(key, obs, carry):
            pi = self.distribution(weights, obs, state.normalizer)
            action = pi.sample(key)
            return environment_action(self.action_space, action), (action, pi), carry

        def critic(method, obs):
            return self.network.apply(weights, normalize.normalize(state.normalizer, obs), method=method)

        new_state, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        action, pi = steps.output

        def values(method, cut):
            values_of = functools.partial(critic, method)
            value: Any = values_of(steps.obs)
            return value, successor_values(values_of, value, new_state.obs, steps.next_obs, cut)

        value, next_value = values("critic", steps.truncated)
        # Without episodic bonuses the successor of an episode's last step is the next episode's first observation.
        cut = steps.truncated if self.config.episodic_bonus else jnp.zeros_like(steps.truncated)
        int_value, next_int_value = values("int_critic", cut)
        return new_state, Rollout(
            obs=steps.obs,
            action=action,
            log_prob=pi.log_prob(action),
            reward=steps.reward,
            terminated=steps.terminated,
            truncated=steps.truncated,
            next_obs=steps.next_obs,
            value=value,
            next_value=next_value,
            int_value=int_value,
            next_int_value=next_int_value,
            ends=steps.ends,
        )

    def learn(self, state: RNDState, rollout: Rollout) -> tuple[RNDState, dict[str, Array]]:
        """Bonuses, advantages of rewards and of bonuses, then epochs of gradient steps on minibatches."""
        config, hyper = self.config, state.hyper
        key, shuffle_key, noise_key, subset_key = jax.random.split(state.key, 4)
        bonus_normalizer, inputs, features, bonus = self.bonuses(state, rollout.next_obs)
        if config.bonus == "rdd":
            features = draw_targets(noise_key, features, hyper.noise_scale)
        ends = rollout.terminated, rollout.truncated
        advantage = gae(rollout.reward, rollout.value, rollout.next_value, *ends, hyper.gamma, hyper.gae_lambda)
        if not config.episodic_bonus:
            ends = jnp.zeros_like(rollout.truncated), jnp.zeros_like(rollout.truncated)
        scaler = state.bonus_scaler.update(bonus, ends[0] | ends[1], hyper.int_gamma)
        int_reward = scaler.scale(bonus, clip=jnp.inf)
        int_values = rollout.int_value, rollout.next_int_value
        int_advantage = gae(int_reward, *int_values, *ends, hyper.int_gamma, hyper.gae_lambda)
        batch = Batch(
            obs=normalize.normalize(state.normalizer, rollout.obs),
            action=rollout.action,
            log_prob=rollout.log_prob,
            advantage=hyper.ext_coef * advantage + hyper.int_coef * int_advantage,
            value_target=advantage + rollout.value,
            int_value_target=int_advantage + rollout.int_value,
            inputs=inputs,
            features=features,
        )
        shape = config.num_epochs, config.num_steps * config.num_envs
        net, reports = self.descend(
            state,
            flattened(batch),
            shuffled(shuffle_key, shape),
            jax.random.uniform(subset_key, shape) < hyper.predictor_fraction,
        )
        shown = {"bonus": jnp.mean(bonus), "int_reward": jnp.mean(int_reward)}
        normalizer = state.normalizer
        if normalizer is not None:
            normalizer = normalize.update(normalizer, rollout.obs, axes=(0, 1))
        state = state.replace(
            key=key,
            weights=net.weights,
            optimizer=net.state,
            normalizer=normalizer,
            bonus_normalizer=bonus_normalizer,
            bonus_scaler=scaler,
        )
        return state, {**rollout.ends.metrics(), **reports, **shown}

    def bonuses(self, state: RNDState, next_obs: Any) -> tuple[normalize.Statistics, Array, Array, Array]:
        """`(statistics, inputs of the two networks, the random network's features, bonuses)` of the successors."""
        seen = self.encoded(next_obs)
        stats = normalize.update(state.bonus_normalizer, seen, axes=(0, 1))
        inputs = normalize.normalize(stats, seen, clip=5.0)
        features: Any = self.random_network.apply(state.target, inputs)
        prediction: Any = self.predictor.apply(state.weights["predictor"], inputs)
        return stats, inputs, features, prediction_error(prediction, features)

    def descend(
        self, state: RNDState, batch: Batch, orders: Array, learns: Bool[Array, "epochs B"]
    ) -> tuple[nets.Net, dict[str, Array]]:
        """Epochs of gradient steps; `learns` marks the positions of a pass where the predictor learns."""
        config, hyper = self.config, state.hyper
        steps = config.num_steps * config.num_envs
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        parts = hyper, self.network, self.predictor, self.observation_space, self.action_space

        def gradient_step(net, inputs):
            batch, learns = inputs
            return net.descend(lambda w: loss(w, batch, learns, *parts), learning_rate, hyper.max_grad_norm)

        def epoch(net, inputs):
            order, learns = inputs
            inputs = minibatches(batch, order, config.num_minibatches), learns.reshape(config.num_minibatches, -1)
            return jax.lax.scan(gradient_step, net, inputs)

        net = nets.net(state.weights, state.optimizer, self.optimizer)
        net, reports = jax.lax.scan(epoch, net, (orders, learns))
        return net, {**jax.tree.map(jnp.mean, reports), "learning_rate": learning_rate}

    def policy(self, state: RNDState) -> Policy:
        return Policy(state.weights["network"], normalize.visible(state.normalizer))

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        pi = self.distribution(policy.weights, visible(obs), policy.normalizer)
        return environment_action(self.action_space, pi.mode() if greedy else pi.sample(key)), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """PPO with an exploration bonus on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module with the methods `actor`, `critic`, `int_critic` and `__call__` (all) of `TwoCritics`.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space it cannot handle, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("rnd", venv, Discrete, MultiDiscrete, Box)
    outputs = num_outputs(action_space)
    continuous = isinstance(action_space, Box)
    network = own("network", network)
    if network is None:
        network = TwoCritics(observation_space, outputs, continuous, config.hidden, config.activation)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    rnd = _RND(config, venv, network, observation_space, action_space, chosen)
    state = jax.eval_shape(rnd.init, jax.random.key(0))
    head, *values = jax.eval_shape(lambda s: network.apply(s.weights["network"], s.obs), state)
    head_shape, shapes = (head[0] if continuous else head).shape, [x.shape for x in values]
    if head_shape[-1] != outputs or shapes != [(config.num_envs,)] * 2:
        raise ValueError(
            f"network gives outputs {head_shape} and values {shapes} for {config.num_envs} observations; "
            f"{action_space} needs {(config.num_envs, outputs)} and two times {(config.num_envs,)}."
        )
    return algorithm_of("rnd", rnd, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
