"""Uni-O4: proximal policy optimisation on a dataset, followed by fine-tuning in the environment with PPO.

Lei, He, Lu, Hu, Gao and Xu (2024), "Uni-O4: unifying online and offline deep reinforcement learning with multi-step
on-policy optimization". Three phases:

1. Cloning, for `Hyper.cloning_steps` gradient steps: the values of implicit Q-learning (`iql.py`), and K policies
cloned
   from the dataset, each pushed away from the other policy that gives the dataset's action the highest probability,

    -mean log pi_i(a | s) - diversity KL(pi_i(. | s), pi_j(. | s)),   j = argmax_{j != i} log pi_j(a | s)

2. Offline PPO: each policy has a reference, initially itself. It learns by PPO's clipped objective on the dataset's
   states and the reference's actions, with the advantage min_k Q_k(s, a) - V(s), normalised over the batch; Q and V are
   constant. After an update of `num_updates` such steps the policy replaces its reference if its score is the highest
   so far. The score (AM-Q in the paper) is the mean value of its actions along `horizon` steps in a dynamics model,
   from states of the dataset. The reference with the highest score is the deployed policy.
3. Online: `start` gives `ppo` the weights of that policy and of V; from there on only PPO learns.

The KL divergence is unbounded: on a Pendulum dataset policies diverged at a `diversity` of 1/2, not at 1/10.

Deviations from the authors' code: the policies learn at the same time, not in turn, and not longer than Q and V; their
standard deviations do not depend on the state; disagreement is the KL divergence between distributions (the default of
the authors' code adds a term without a gradient, which scales the likelihood's gradient by 1 + diversity); Q gets
actions clipped to the box; their online phase starts from the best policy, evaluated in the environment, of the three
with the highest scores; their slight decay of the clipping range is left out.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree, visible
from jaxrl.math import fast_key, rarely
from jaxrl.nn.actor_critic import Critic, Gaussian, GaussianActor, Value
from jaxrl.nn.distributions import Normal
from jaxrl.nn.losses import critic_loss, expectile_loss, normalized, td_target
from jaxrl.nn.nets import Nets, critic_values, init_critics
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike, annealed, optimizer_of
from jaxrl.off_policy.imagination import Model
from jaxrl.off_policy.learner import Learner, Policy, State
from jaxrl.off_policy.steps import as_replay, no_ends
from jaxrl.replay.ring import Replay
from jaxrl.rollout import ticked
from jaxrl.spaces import Box, environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments in the state; nothing acts in them
    num_updates: int = 100  # gradient steps an update, after which policies are scored
    batch_size: int = 512
    num_policies: int = 4  # K
    horizon: int = 1000  # model steps of a score
    num_rollouts: int = 512  # model rollouts of a score, each from a state of the dataset
    hidden: tuple[int, ...] = (256, 256)  # widths of all networks
    activation: str = "relu"
    layer_norm: bool = False  # in the critics and the state value
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        names = "num_envs", "num_updates", "batch_size", "num_policies", "horizon", "num_rollouts"
        check_at_least_one(self, *names)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-4  # of cloned policies, critics and value
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # Polyak step of target critics, each gradient step
    expectile: jax.Array = 0.7  # of the state value; towards 1 it nears the value of the dataset's best action
    diversity: jax.Array = 0.1  # weight of the KL divergence between cloned policies
    cloning_steps: jax.Array = 1_000_000  # gradient steps before the first of PPO
    max_grad_norm: jax.Array = 1e6  # of each network, before PPO
    ppo_learning_rate: jax.Array = 1e-4  # of PPO
    anneal_steps: jax.Array = 10_000  # gradient steps of PPO over which its learning rate goes to zero; 0: constant
    clip_eps: jax.Array = 0.25
    ppo_max_grad_norm: jax.Array = 0.5  # of each policy's gradient in PPO


@pytree
class UniO4State(State):
    reference: Any  # weights of the reference policies, leading axis K
    score: jax.Array  # (K,), of the references; -inf before the first scores
    ppo_optimizer: Any  # leading axis K


class PolicyAndValue(nn.Module):
    """The network of the online phase, for `ppo`: an actor as in this file, and the state value."""

    policy: Network
    value: Network

    def actor(self, obs: Any) -> Any:
        return self.policy(visible(obs))

    def critic(self, obs: Any) -> Float[Array, "..."]:
        return self.value(obs)

    def __call__(self, obs: Any) -> Any:
        return self.actor(obs), self.critic(obs)


def likeliest_other(log_prob: Float[Array, "K B"]) -> Array:
    """(K, B): for each policy and row the index of the other policy that gives the row the highest probability."""
    own = jnp.eye(len(log_prob), dtype=bool)[:, :, None]
    return jnp.argmax(jnp.where(own, -jnp.inf, log_prob[None]), 1)


def cloning_loss(policies: Normal, action: Float[Array, "B A"], diversity: Float[Array, ""] | float) -> Any:
    """`(loss, metrics)` of policies (K, B, A): the sum over i of mean -log pi_i(a | s) - diversity KL."""
    log_prob = policies.log_prob(action)
    j, row = likeliest_other(log_prob), jnp.arange(len(action))
    other = jax.tree.map(lambda x: jax.lax.stop_gradient(x[j, row]), policies)
    disagreement = policies.kl(other)
    loss = -jnp.sum(jnp.mean(log_prob + diversity * disagreement, -1))
    return loss, {"disagreement": jnp.mean(disagreement)}


def clipped_loss(
    log_prob: Float[Array, " B"],
    old_log_prob: Float[Array, " B"],
    advantage: Float[Array, " B"],
    clip_eps: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """PPO's clipped surrogate, to be minimised (Schulman et al. 2017, equation 7)."""
    ratio = jnp.exp(log_prob - old_log_prob)
    return -jnp.mean(jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps) * advantage))


def mean_value(q: Float[Array, "T B"], alive: Bool[Array, "T B"]) -> Float[Array, ""]:
    """AM-Q: the mean value over the steps of rollouts before the task ended."""
    return jnp.sum(jnp.where(alive, q, 0)) / jnp.sum(alive)


@dataclasses.dataclass(frozen=True)
class _Cloning:
    """The learning rule of the cloning phase, a `learner.Rule`: IQL's values, and K cloned policies."""

    networks: ClassVar[tuple[str, ...]] = ("value", "critic", "actor")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    value: Any  # flax modules
    critic: Any
    actor: Gaussian

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        actor_keys = jax.random.split(keys["actor"], self.config.num_policies)
        return {
            "value": self.value.init(keys["value"], obs),
            "critic": init_critics(self.critic, keys["critic"], 2, obs, action),
            "actor": jax.vmap(lambda key: self.actor.init(key, obs))(actor_keys),
        }

    def policies(self, weights: Any, obs: Any) -> Normal:
        """The action distributions (K, B, A) of K actors."""
        return jax.vmap(lambda weights: self.actor(weights, obs))(weights)

    def advantage(self, critic_weights: Any, value_weights: Any, obs: Any, action: Array) -> Float[Array, " B"]:
        q = jnp.min(critic_values(self.critic, critic_weights, obs, action), 0)
        return q - self.value.apply(value_weights, obs)

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """Implicit Q-learning's value and critics, the clones, the target critics (Lei et al. 2024, section 4)."""
        value, critic, actor = (nets[name] for name in self.networks)
        settings = hyper.learning_rate, hyper.max_grad_norm

        def value_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            advantage = self.advantage(critic.target, weights, batch.obs, batch.action)
            return expectile_loss(advantage, hyper.expectile), {"advantage": jnp.mean(advantage)}

        value, value_report = value.descend(value_objective, *settings)
        next_value = self.value.apply(value.weights, batch.next_obs)
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            return critic_loss(q, target), {"q_value": jnp.mean(q)}

        critic, critic_report = critic.descend(critic_objective, *settings)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            return cloning_loss(self.policies(weights, batch.obs), batch.action, hyper.diversity)

        actor, actor_report = actor.descend(actor_objective, *settings)
        nets = {"value": value, "critic": critic.track(hyper.tau), "actor": actor}
        return nets, {**value_report, **critic_report, **actor_report}


@dataclasses.dataclass(frozen=True)
class _UniO4(Learner):
    """A `Learner` that follows cloning by PPO's steps, scores, and the replacement of references."""

    model: Any = None  # Model

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> UniO4State:
        state = super().init(key, hyper, env_params)
        actors = state.weights["actor"]
        rate = state.hyper.ppo_learning_rate
        return UniO4State(
            **{field.name: getattr(state, field.name) for field in dataclasses.fields(state)},
            reference=actors,
            score=jnp.full(self.config.num_policies, -jnp.inf, jnp.result_type(float)),
            ppo_optimizer=jax.vmap(lambda weights: self.optimizer.init(weights, rate))(actors),
        )

    # ---- PPO on the dataset's states

    def improved(self, state: UniO4State) -> tuple[UniO4State, dict[str, Array]]:
        """`num_updates` steps of PPO for each policy; Q, V and the references are constant."""
        hyper, weights = state.hyper, state.weights
        key, steps_key = jax.random.split(state.key)
        rate = annealed(hyper.ppo_learning_rate, state.step - hyper.cloning_steps, hyper.anneal_steps)
        one = jax.tree.map(lambda x: x[0], weights["actor"])
        unravel = ravel_pytree(one)[1]

        def loss(flat: Array, obs: Any, action: Array, old_log_prob: Array, advantage: Array) -> tuple[Array, Array]:
            log_prob = self.actor(unravel(flat), obs).log_prob(action)
            log_ratio = log_prob - old_log_prob
            return clipped_loss(log_prob, old_log_prob, advantage, hyper.clip_eps), jnp.mean(
                jnp.expm1(log_ratio) - log_ratio
            )

        def descended(flat: Array, optimizer: Any, obs: Any, *of_one: Array) -> Any:
            (value, kl), grads = jax.value_and_grad(loss, has_aux=True)(flat, obs, *of_one)
            flat, optimizer, norm = self.optimizer.descend(
                flat, optimizer, unravel(grads), rate, hyper.ppo_max_grad_norm
            )
            return flat, optimizer, {"actor_loss": value, "actor_grad_norm": norm, "approx_kl": kl}

        def step(carry: Any, key: Array) -> tuple[Any, dict[str, Array]]:
            sample_key, act_key = jax.random.split(key)
            obs = self.replay.sample(sample_key, state.replay, self.config.batch_size).obs
            old = self.rule.policies(state.reference, obs)
            action = old.sample(act_key)
            done = jnp.clip(action, -1, 1)
            advantage = jax.vmap(lambda a: self.rule.advantage(weights["critic"], weights["value"], obs, a))(done)
            given = action, old.log_prob(action), jax.vmap(normalized)(advantage)
            *carry, report = jax.vmap(descended, (0, 0, None, 0, 0, 0))(*carry, obs, *given)
            report = {**report, "advantage": advantage}
            return tuple(carry), jax.tree.map(jnp.mean, report)

        flat = jax.vmap(lambda weights: ravel_pytree(weights)[0])(weights["actor"])
        keys = jax.random.split(fast_key(steps_key), self.config.num_updates)
        (flat, optimizer), reports = jax.lax.scan(step, (flat, state.ppo_optimizer), keys)
        reports = jax.tree.map(jnp.mean, reports)
        metrics = {
            **no_ends().metrics(),
            **reports,
            "loss": reports["actor_loss"],
            "grad_norm": reports["actor_grad_norm"],
            "gradient_steps": jnp.int32(self.config.num_updates),
        }
        weights = {**weights, "actor": jax.vmap(unravel)(flat)}
        step_count = ticked(state.step, self.config.num_updates)
        return state.replace(key=key, step=step_count, weights=weights, ppo_optimizer=optimizer), metrics

    def scores(self, key: Array, state: UniO4State) -> Float[Array, " K"]:
        """The scores of the current policies; their rollouts share initial states and the model's noise."""
        start_key, key = jax.random.split(key)
        start = self.replay.sample(start_key, state.replay, self.config.num_rollouts).obs
        keys = jax.random.split(key, self.config.horizon)

        def of(actor: Any) -> Float[Array, ""]:
            def step(carry: Any, key: Array) -> Any:
                obs, alive = carry
                action = self.actor.mode(actor, visible(obs))
                q = jnp.min(critic_values(self.rule.critic, state.weights["critic"], obs, action), 0)
                next_obs, _, ends, _ = self.model(key, obs, environment_action(self.action_space, action))
                return (next_obs, alive & ~ends), (q, alive)

            return mean_value(*jax.lax.scan(step, (start, jnp.ones(self.config.num_rollouts, bool)), keys)[1])

        return jax.vmap(of)(state.weights["actor"])

    def learn(self, state: UniO4State, rollout: None = None) -> tuple[UniO4State, dict[str, Array]]:
        phases = super().learn, self.improved
        of_one, of_other = (jax.eval_shape(phase, state)[1] for phase in phases)
        shapes = {**of_one, **of_other}
        absent = {name: jnp.full((), jnp.nan, shapes[name].dtype) for name in of_one.keys() ^ of_other.keys()}
        before, cloning = state, state.step < state.hyper.cloning_steps
        key, own_key, *phase_keys = jax.random.split(before.key, 4)

        def run(number: int) -> Any:
            after, metrics = phases[number](before.replace(key=phase_keys[number]))
            return after.replace(key=None), {**absent, **metrics}

        # Only one phase runs, for seeds under a vmap, too.
        none = before.replace(key=None), {name: jnp.zeros(x.shape, x.dtype) for name, x in shapes.items()}
        cloned = rarely(cloning, lambda: run(0), none)
        state, metrics = rarely(~cloning, lambda: run(1), cloned)
        judged = state.step >= state.hyper.cloning_steps
        score = rarely(judged, lambda: self.scores(fast_key(own_key), state), jnp.full_like(state.score, -jnp.inf))
        score = jnp.where(jnp.isfinite(score), score, -jnp.inf)  # a model that overflows gives no score
        better = cloning | (score > state.score)

        def replaced(new: Array, old: Array) -> Array:
            return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        state = state.replace(
            key=key,
            reference=jax.tree.map(replaced, state.weights["actor"], state.reference),
            score=replaced(score, state.score),
        )
        metrics |= {"replaced": jnp.mean(better.astype(score.dtype)), "score": jnp.max(state.score)}
        return state, {**metrics, "score": jnp.where(judged, metrics["score"], jnp.nan)}

    def policy(self, state: UniO4State) -> Policy:
        return Policy(best(state), jnp.float32(0))


def best(state: UniO4State) -> Any:
    """The weights of the reference with the highest score."""
    return jax.tree.map(lambda x: x[jnp.argmax(state.score)], state.reference)


def network_of(env: Environment | VectorEnv, config: Config = Config()) -> PolicyAndValue:
    """The `network` of `ppo.make` for the online phase after an algorithm with default networks."""
    obs_space, space = spaces_of("uni_o4", as_vector_env(env, config.num_envs), Box, between_ends=True)
    actor = GaussianActor(obs_space, space, config.hidden, config.activation)
    return PolicyAndValue(actor, Value(obs_space, config.hidden, config.activation, config.layer_norm))


def start(online: Algorithm, trained: UniO4State, key: Array, hyper: Any = None, env_params: Any = None) -> Any:
    """The first state of `online`, PPO with the network of `network_of`: the deployed policy, and V as its critic.

    Raises ValueError for networks of other shapes than `trained` has, and for a PPO that normalises observations or
    rewards.
    """
    if online.config.normalize_obs or online.config.normalize_reward:
        raise ValueError("uni_o4.start: the networks know plain observations and rewards; PPO must not normalise them.")
    state = online.init(key, hyper, env_params)
    parts = {"policy": best(trained)["params"], "value": trained.weights["value"]["params"]}
    shapes = [jax.tree.map(jnp.shape, tree) for tree in ({"params": parts}, state.weights)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"trained were networks {shapes[0]}; {online.name} has {shapes[1]}: see uni_o4.network_of.")
    return state.replace(weights={"params": parts})


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    model: Model | None = None,
    actor: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Uni-O4's offline half for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset, or what `datasets.stored` makes of one.
        model: the dynamics model of the scores, such as `dynamics.predictor(ensemble)`; see `imagination.Model`.
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` (..., A) in units of
            the box; there will be `num_policies` of them.
        critic: a flax module from a whole observation and an action to values (...); there will be two of them.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError without a dataset or without a model, for an action space that is not a vector, several agents, or
    networks whose outputs do not fit.
    """
    if replay is None or (isinstance(replay, Replay) and replay.add is not None):
        raise ValueError("uni_o4 learns from a dataset, datasets.stored; online it is ppo, see uni_o4.start.")
    if model is None:
        raise ValueError("uni_o4 judges its policies in a model; give one, as dynamics.predictor(ensemble).")
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("uni_o4", venv, Box, between_ends=True)
    sizes = config.hidden, config.activation, config.layer_norm
    critic = own("critic", critic) or Critic(obs_space, *sizes)
    acting = Gaussian(own("actor", actor) or GaussianActor(obs_space, space, config.hidden, config.activation))
    rule = _Cloning(config, Value(obs_space, *sizes), critic, acting)
    given: Any = as_replay("uni_o4", replay, space, lambda: None)  # pyright: ignore[reportArgumentType]
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    shell = config, Hyper, venv, obs_space, space, rule, acting, given, chosen
    return _UniO4("uni_o4", *shell, model=model).algorithm(critic)
