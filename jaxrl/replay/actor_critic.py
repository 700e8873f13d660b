"""What actor-critics that learn from stored steps share: networks by name, gradient steps of one network after another,
targets that follow, and a memory that is either a dataset or the learner's own.

With a dataset (`datasets.stored`) the learner never acts: an update is `num_updates` gradient steps, which are what its
`step` counts. Without one it is an off-policy learner that acts, stores and learns, as SAC is; a state that was trained
on a dataset goes on so in the environment. Losses are in each algorithm's file.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, algorithm_of, starting_values
from jaxrl.environment import visible
from jaxrl.math import fast_key
from jaxrl.nn import normalize
from jaxrl.nn.actor_critic import Actor, GaussianActor, Value  # noqa: F401
from jaxrl.nn.distributions import Normal, TanhNormal
from jaxrl.nn.optim import Optimizer, polyak
from jaxrl.off_policy.learner import Policy, State  # noqa: F401
from jaxrl.replay import off_policy
from jaxrl.replay.off_policy import Rollout, critics, flatten, init_critics
from jaxrl.replay.ring import Replay
from jaxrl.rollout import ticked
from jaxrl.spaces import Space, environment_action
from jaxrl.vectorize import VectorEnv

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0  # below, a likelihood of a single action outweighs all others


@dataclasses.dataclass(frozen=True)
class ActorCritic:
    """The static half; its methods are the Algorithm's functions.

    A subclass has `name`, `hyper_class`, and a method `<network>_loss(own, weights, target_weights, key, batch, hyper)
    -> (loss, report)` of each network of `order`, in which an update goes through them; `weights` are those at hand,
    with what came before it already changed. Losses, `explore` and `mode` are given observations that are normalised,
    where the Config has `normalize_obs`; the memory holds them as they are.
    """

    slots: ClassVar = ("replay",)
    deployed: ClassVar = "greedy"
    name: ClassVar[str]
    hyper_class: ClassVar[type]
    order: ClassVar[tuple[str, ...]] = ("critic", "actor")
    tracked: ClassVar[tuple[str, ...]] = ("critic",)  # networks with a target
    num_critics: ClassVar[int] = 2

    config: Any
    venv: VectorEnv
    networks: Any  # pairs of a name and a flax module
    observation_space: Space
    action_space: Space
    replay: Replay
    optimizer: Optimizer

    def network(self, name: str) -> nn.Module:
        return dict(self.networks)[name]

    def delay(self, name: str) -> int:
        """Updates for one of this network; targets follow with the last network's."""
        return 1

    def learning_rate(self, name: str, hyper: Any) -> Array:
        return hyper.learning_rate

    # ---- what losses are written with

    def act_values(self, weights: Any, obs: Any, action: Array) -> Float[Array, "K *B"]:
        return critics(self.network("critic"), weights, obs, action)[0]

    def values(self, weights: Any, obs: Any) -> Float[Array, " B"]:
        found: Any = self.network("value").apply(weights, obs)
        return found

    def actions(self, weights: Any, obs: Any) -> Any:
        """The actor's output."""
        return self.network("actor").apply(weights, visible(obs))

    # ---- the Algorithm's functions

    def initial(self, name: str, key: Array, item: Any, hyper: Any) -> Any:
        """The first weights of a network."""
        if name == "critic":
            return init_critics(self.network(name), key, self.num_critics, item.obs, item.action)
        return self.network(name).init(key, visible(item.obs) if name == "actor" else item.obs)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        hyper, env_params = starting_values(self.hyper_class, self.venv, hyper, env_params)
        if self.replay.update is not None:
            raise ValueError(f"{self.name}: a memory with priorities is for learners whose Config has `prioritised`.")
        if self.replay.add is not None:
            off_policy.check_ratio(hyper, self.config)
        key, reset_key, *keys = jax.random.split(key, 2 + len(self.order))
        obs, env_state = self.venv.reset(reset_key, env_params)
        item = off_policy.example(obs, self.action_space)
        weights = {name: self.initial(name, k, item, hyper) for name, k in zip(self.order, keys, strict=True)}
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        return State(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            target_weights={name: weights[name] for name in self.tracked},
            optimizer={name: self.optimizer.init(w, self.learning_rate(name, hyper)) for name, w in weights.items()},
            extra={},
            replay=self.replay.init(item),
            normalizer=self.first_normalizer(item.obs),
        )

    def first_normalizer(self, obs: Any) -> Any:
        """The dataset's; of nothing yet, which leaves observations as they are, where the learner has none."""
        if not getattr(self.config, "normalize_obs", False):
            return None
        known = self.replay.normalizer
        if known is None and self.replay.add is None:
            raise ValueError(
                f"{self.name}: normalize_obs=True, and this memory does not know the statistics of its observations: "
                "give its Replay a `normalizer`, as `datasets.stored` does, or say normalize_obs=False."
            )
        return jax.tree.map(jnp.asarray, (known or normalize.init)(obs))

    def collect(self, state: State) -> tuple[State, Rollout | None]:
        """None on a dataset: there is nothing to do before `learn`."""
        if self.replay.add is None:
            return state, None
        policy, normalizer = self.exploring(state), normalize.visible(state.normalizer)

        def act(key, obs):
            return self.explore(policy, key, normalized(normalizer, obs))

        return off_policy.collect(
            self.venv, state, self.config.num_steps, act, self.observation_space, self.action_space
        )

    def exploring(self, state: State) -> Any:
        """The policy by which it collects."""
        return self.policy(state)

    def explore(self, policy: Policy, key: Array, obs: Any) -> Array:
        """A deterministic actor's action with noise; others draw."""
        action = self.actions(policy.weights, obs)
        return jnp.clip(action + policy.noise * jax.random.normal(key, action.shape, action.dtype), -1, 1)

    def mode(self, policy: Policy, obs: Any) -> Array:
        return self.actions(policy.weights, obs)

    def turn(
        self,
        name: str,
        flat: Array,
        optimizer: Any,
        weights: Any,
        target_weights: Any,
        key: Array,
        batch: Any,
        hyper: Any,
    ) -> tuple[Array, Any, dict[str, Array]]:
        """A gradient step of one network: `(flat, optimizer, report)`."""

        def loss(own: Any) -> tuple[Array, dict[str, Array]]:
            return getattr(self, f"{name}_loss")(own, {**weights, name: own}, target_weights, key, batch, hyper)

        (value, more), grads = jax.value_and_grad(loss, has_aux=True)(weights[name])
        learning = self.learning_rate(name, hyper), hyper.max_grad_norm
        flat, optimizer, norm = self.optimizer.descend(flat, optimizer, grads, *learning)
        return flat, optimizer, {**more, f"{name}_loss": value, f"{name}_grad_norm": norm}

    def learn(self, state: State, rollout: Rollout | None = None) -> tuple[State, dict[str, Array]]:
        hyper = state.hyper
        flat, unravel = flatten(state.weights)
        flat_target, unravel_target = flatten(state.target_weights)

        def gradient_step(carry, key, batch):
            flat, target, optimizer = dict(carry[0]), carry[1], dict(carry[2])
            target_weights, report = unravel_target(target), {}
            if state.normalizer is not None:
                obs, next_obs = (normalized(state.normalizer, x) for x in (batch.obs, batch.next_obs))
                batch = batch._replace(obs=obs, next_obs=next_obs)

            count = optimizer[self.order[0]].count
            for name, own_key in zip(self.order, jax.random.split(key, len(self.order)), strict=True):
                known = unravel(flat), target_weights, own_key, batch, hyper
                take = functools.partial(self.turn, name, flat[name], optimizer[name], *known)
                if self.delay(name) == 1:
                    flat[name], optimizer[name], more = take()
                else:
                    due = (count + 1) % self.delay(name) == 0
                    wait = functools.partial(_unchanged, take, flat[name], optimizer[name])
                    flat[name], optimizer[name], more = jax.lax.cond(due, take, wait)
                report |= more
            if self.tracked:
                follow = (count + 1) % self.delay(self.order[-1]) == 0
                target = polyak(target, {name: flat[name] for name in target}, jnp.where(follow, hyper.tau, 0))
            return (flat, target, optimizer), report

        carry = flat, flat_target, state.optimizer
        if rollout is None:
            state, carry, metrics = from_dataset(state, self.replay, self.config, carry, gradient_step)
        else:
            state, carry, metrics = off_policy.learn(state, rollout, self.replay, self.config, carry, gradient_step)
        first = self.order[0]
        metrics = {"loss": metrics[f"{first}_loss"], "grad_norm": metrics[f"{first}_grad_norm"], **metrics}
        weights, target_weights = unravel(carry[0]), unravel_target(carry[1])
        return state.replace(weights=weights, target_weights=target_weights, optimizer=carry[2]), metrics

    def policy(self, state: State) -> Policy:
        noise = getattr(state.hyper, "exploration_noise", jnp.float32(0))
        return Policy(state.weights["actor"], noise, normalize.visible(state.normalizer))

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        obs = normalized(getattr(policy, "normalizer", None), visible(obs))
        action = self.mode(policy, obs) if greedy else self.explore(policy, key, obs)
        return environment_action(self.action_space, action), carry

    def algorithm(self) -> Algorithm:
        """Checks the networks' outputs, then the Algorithm."""
        off_policy.check_outputs(
            self.action_space,
            self.outputs,
            (self.config.num_envs, *self.action_space.shape),
            (self.num_critics, self.config.num_envs),
        )
        config = self.config
        steps = config.num_updates if self.replay.add is None else config.num_envs * config.num_steps
        return algorithm_of(self.name, self, self.hyper_class, steps)

    def outputs(self, key: Array) -> tuple[Any, Any]:
        """Actions and values at the first observations: what `algorithm` checks the shapes of."""
        state = self.init(key)
        action = self.mode(self.policy(state), visible(state.obs))
        if "critic" not in self.order:
            return action, jnp.zeros((self.num_critics, self.config.num_envs))
        zeros = jnp.zeros((self.config.num_envs, *self.action_space.shape))
        return action, self.act_values(state.weights["critic"], state.obs, zeros)


def normalized(stats: normalize.Statistics | None, obs: Any) -> Any:
    """Not clipped, as in the authors' code of TD3+BC."""
    return normalize.normalize(stats, obs, clip=None)


def _unchanged(take: Any, flat: Array, optimizer: Any) -> tuple[Array, Any, Any]:
    """What `take` gives where a network waits: nothing moves, and nothing is known."""
    shapes = jax.eval_shape(take)[2]
    return flat, optimizer, jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)


class GaussianPolicies:
    """Of actors that give `(mean, log_std)` of a normal distribution, whose draws are clipped to the box."""

    def distribution(self: Any, weights: Any, obs: Any) -> Normal:
        mean, log_std = self.actions(weights, obs)
        return Normal(mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX))

    def explore(self, policy: Policy, key: Array, obs: Any) -> Array:
        return jnp.clip(self.distribution(policy.weights, obs).sample(key), -1, 1)

    def mode(self, policy: Policy, obs: Any) -> Array:
        return jnp.clip(self.distribution(policy.weights, obs).mode(), -1, 1)


class TanhPolicies:
    """Of actors that give `(mean, log_std)` before tanh."""

    def distribution(self: Any, weights: Any, obs: Any) -> TanhNormal:
        mean, log_std = self.actions(weights, obs)
        return TanhNormal(mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX))

    def explore(self, policy: Policy, key: Array, obs: Any) -> Array:
        return self.distribution(policy.weights, obs).sample(key)

    def mode(self, policy: Policy, obs: Any) -> Array:
        return self.distribution(policy.weights, obs).mode()


class SoftActorCritic(TanhPolicies, ActorCritic):
    """Of critics, as many as the Config says, an actor before tanh, and a temperature that follows a target entropy."""

    order: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha")

    @property
    def num_critics(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.config.num_critics

    def initial(self, name: str, key: Array, item: Any, hyper: Any) -> Any:
        return jnp.log(hyper.alpha) if name == "log_alpha" else super().initial(name, key, item, hyper)

    def learning_rate(self, name: str, hyper: Any) -> Array:
        return hyper.alpha_learning_rate if name == "log_alpha" else hyper.learning_rate

    def log_alpha_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Any, hyper: Any
    ) -> tuple[Array, dict[str, Array]]:
        """Of the logarithm of the temperature: it falls where the entropy is above the target."""
        log_prob = self.distribution(weights["actor"], batch.obs).sample_and_log_prob(key)[1]
        usual = -float(self.action_space.shape[0])
        target = jnp.where(jnp.isfinite(hyper.target_entropy), hyper.target_entropy, usual)
        return own * jax.lax.stop_gradient(-jnp.mean(log_prob) - target), {"alpha": jnp.exp(own)}


def from_dataset(state: Any, replay: Replay, config: Any, carry: Any, gradient_step: Any) -> tuple[Any, Any, Any]:
    """`off_policy.learn` on a dataset: `num_updates` gradient steps, each of which draws its own batch."""
    key, steps_key = jax.random.split(state.key)

    def step(carry, key):
        sample_key, step_key = jax.random.split(key)
        return gradient_step(carry, step_key, replay.sample(sample_key, state.replay, config.batch_size))

    carry, reports = jax.lax.scan(step, carry, jax.random.split(fast_key(steps_key), config.num_updates))
    metrics = {
        **off_policy.no_ends().metrics(),
        **jax.tree.map(jnp.nanmean, reports),
        "gradient_steps": jnp.int32(config.num_updates),
    }
    return state.replace(key=key, step=ticked(state.step, config.num_updates)), carry, metrics
