"""PPO with gradient-boosted trees as actor and critic (GBRL): `ppo.objective`, each gradient step of which is a tree.

Fuhrer, Tessler and Dalal (2025), "Gradient boosting reinforcement learning" (arXiv:2407.08250). Policy and value are
the outputs of one ensemble of oblivious trees: logits or means, and a value. A minibatch gives the gradient of the loss
with respect to the outputs of each of its rows; a new tree is fitted to these gradients and joins the ensemble, with
its leaves times minus the learning rate, one for the policy's outputs and one for the value. Candidates of splits,
their scores and the ensemble are `jaxrl.nn.trees`.

Deviations from the authors' gbrl 1.1.9 and gbrl_sb3: the outputs of a rollout are kept and each new tree is added to
them, where gbrl asks all trees again in each minibatch (the same numbers, up to rounding); actor and critic share the
structure of each tree, which is gbrl's default, not that of gbrl_sb3 (`shared=False`); the number of
trees has a budget; time limits, units of actions and the rest of the shell are those of `ppo.py`. What is privileged is
not used. Results: `docs/algos/ppo_gbrl.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

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
from jaxrl.algos import ppo
from jaxrl.environment import Environment, pytree, split_observation, visible
from jaxrl.math import rarely, shuffled
from jaxrl.nn import normalize, trees
from jaxrl.nn.distributions import Distribution, num_outputs, of_space
from jaxrl.nn.networks import encode, one_hot_columns
from jaxrl.nn.optim import Optimizer, annealed, optimizer_of
from jaxrl.on_policy import explained_variance
from jaxrl.returns import gae
from jaxrl.rollout import Ends, rollout, spread
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space, environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 8  # environments stepped together
    num_steps: int = 128  # steps of each in a rollout
    num_epochs: int = 1  # passes over a rollout
    num_minibatches: int = 16  # trees a pass; divides num_envs * num_steps
    num_trees: int = 8000  # the budget; acting costs time in proportion to it
    depth: int = 4  # questions of a tree, which has 2^depth leaves
    shared: bool = True  # one tree for actor and critic in each gradient step; False: one for each
    score: str = "cosine"  # of splits: a name of trees.SCORES
    candidates: str = "quantile"  # thresholds of numeric features: a name of trees.CANDIDATES
    num_candidates: int = 250  # of them for each feature
    categorical: bool = True  # integers of a box are categories, if there are at most networks.MOST_CODES of them
    normalize_reward: bool = False  # by the standard deviation of the discounted return
    normalize_advantage: bool = True  # per minibatch
    clip_value: bool = False
    log_std: float = -2.0  # before the first step, of a Box's actions in units of the box
    log_std_optimizer: str = "adam"  # a name of optim.OPTIMIZERS

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "num_epochs", "num_minibatches", "depth", "num_candidates")
        check_minibatches(self.num_minibatches, self.num_envs * self.num_steps, "num_envs * num_steps")
        trees.check_names(self.score, self.candidates)
        self.check_updates(1)

    @property
    def trees_per_update(self) -> int:
        return self.num_epochs * self.num_minibatches * (1 if self.shared else 2)

    def check_updates(self, updates: int) -> None:
        """Raise ValueError where the budget does not last for so many updates."""
        if updates * self.trees_per_update > self.num_trees:
            raise ValueError(
                f"num_trees={self.num_trees}: {updates} updates grow {updates * self.trees_per_update} trees, and the "
                f"budget lasts for {self.num_trees // self.trees_per_update} updates of {self.trees_per_update}; make "
                f"it at least {updates * self.trees_per_update}."
            )


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 0.029  # of the policy's outputs
    value_learning_rate: jax.Array = 0.015  # of the value
    std_learning_rate: jax.Array = 1.7e-3  # of a Box's standard deviation
    anneal_steps: jax.Array = 0  # environment steps over which the learning rates go to zero; 0: constant
    gamma: jax.Array = 0.98  # discount
    gae_lambda: jax.Array = 0.8
    clip_eps: jax.Array = 0.2
    ent_coef: jax.Array = 0.0
    vf_coef: jax.Array = 0.871923
    max_grad_norm: jax.Array = 100.0  # of the gradient of one row with respect to the policy's outputs
    max_value_grad: jax.Array = 10.0  # of the same with respect to the value, in size


class Weights(NamedTuple):
    """What is learned: the trees, and the standard deviation of a Box's actions."""

    trees: trees.Trees  # outputs (A + 1,): logits or means of actions, then the value
    log_std: Array  # (A,); (0,) without a Box


@pytree
class PPOGBRLState(on_policy.State):
    """`weights` are `Weights`, `optimizer` is that of `weights.log_std`."""

    reward_scaler: Any


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    outputs: Array  # (T, N, A + 1) of the trees; the last one is the value
    action: Array  # as sampled, before clipping to the box
    log_prob: Array
    reward: Array
    terminated: Array
    truncated: Array
    next_value: Array  # of the true successor, final_obs where truncated
    ends: Ends
    learn_mask: Array | None = None  # (N,): slots to learn from; None: all

    @property
    def value(self) -> Array:
        """(T, N), as the trees saw it."""
        return self.outputs[..., -1]


class Batch(NamedTuple):
    """Rows of a rollout, leaves (B, ...)."""

    x: Array  # (B, F) features
    allowed: Array | None  # the action mask
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array
    mask: Array | None


def policy_of(
    outputs: Float[Array, "... A_and_1"], log_std: Float[Array, " A"], allowed: Any, space: Space
) -> Distribution:
    """The action distribution of the trees' outputs, with the action mask applied."""
    head = outputs[..., :-1]
    return of_space(space, (head, log_std) if isinstance(space, Box) else head, allowed)


def loss(
    outputs: Float[Array, "B A_and_1"], log_std: Float[Array, " A"], batch: Batch, hyper: Any, config: Any, space: Space
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """`(loss, metrics)` of a minibatch for which the trees have these outputs: PPO's."""
    pi = policy_of(outputs, log_std, batch.allowed, space)
    return ppo.objective(pi.log_prob(batch.action), outputs[:, -1], pi.entropy(), batch, hyper, config)


def gradients_of_rows(
    grads: Float[Array, "B A_and_1"], mask: Bool[Array, " B"] | None, max_grad_norm: Any, max_value_grad: Any
) -> Float[Array, "B A_and_1"]:
    """The gradients of each row's own loss, clipped row by row, from those of the mean loss."""
    grads = grads * (grads.shape[0] if mask is None else mask.sum())
    actor, critic = grads[:, :-1], grads[:, -1:]
    norm = jnp.sqrt(jnp.sum(actor**2, -1, keepdims=True) + 1e-24)
    return jnp.concatenate(
        [actor * jnp.minimum(1, max_grad_norm / norm), jnp.clip(critic, -max_value_grad, max_value_grad)], -1
    )


@dataclasses.dataclass(frozen=True)
class PPOGBRL:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    slots: ClassVar = ("reward_scaler.returns",)
    config: Config
    venv: VectorEnv
    observation_space: Space
    action_space: Space
    log_std_optimizer: Optimizer

    def features(self, obs: Any) -> tuple[Array, Any]:
        """`(features (..., F), action mask)` of observations; categories have a column for each of their values."""
        allowed = split_observation(obs, self.observation_space)[2]
        return encode(self.observation_space, obs, categorical=self.config.categorical), allowed

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> PPOGBRLState:
        config, outputs = self.config, num_outputs(self.action_space) + 1
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        key, reset_key = jax.random.split(key)
        obs, env_state = self.venv.reset(reset_key, env_params)
        log_std = jnp.full((outputs - 1) * isinstance(self.action_space, Box), config.log_std, jnp.result_type(float))
        return PPOGBRLState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=Weights(trees.empty(config.num_trees, config.depth, outputs), log_std),
            optimizer=self.log_std_optimizer.init(log_std, hyper.std_learning_rate),
            reward_scaler=normalize.RewardScaler.init(config.num_envs) if config.normalize_reward else None,
        )

    def restart(self, state: PPOGBRLState, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> PPOGBRLState:
        """Starts a new episode in the slots of `mask`; the running discounted return of rewards starts at 0 there."""
        state = restarted(self.venv, state, key, env_params, mask)
        if state.reward_scaler is None:
            return state
        return state.replace(reward_scaler=state.reward_scaler.restarted(mask))

    def collect(self, state: PPOGBRLState) -> tuple[PPOGBRLState, Rollout]:
        ensemble, log_std = state.weights

        def act(key, obs, carry):
            x, allowed = self.features(obs)
            outputs = trees.predict(ensemble, x)
            pi = policy_of(outputs, log_std, allowed, self.action_space)
            action = pi.sample(key)
            return environment_action(self.action_space, action), (outputs, action, pi.log_prob(action)), carry

        def critic(obs):
            return trees.predict(ensemble, self.features(obs)[0])[..., -1]

        def successor(_, inputs):
            # Only where an episode was cut the trees are asked once more.
            next_obs, truncated, following = inputs
            value = rarely(truncated.any(), lambda: critic(next_obs), following)
            return None, jnp.where(truncated, value, following)

        new_state, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        outputs, action, log_prob = steps.output
        following = jnp.concatenate([outputs[1:, :, -1], critic(new_state.obs)[None]])
        _, next_value = jax.lax.scan(successor, None, (steps.next_obs, steps.truncated, following))
        return new_state, Rollout(
            obs=steps.obs,
            outputs=outputs,
            action=action,
            log_prob=log_prob,
            reward=steps.reward,
            terminated=steps.terminated,
            truncated=steps.truncated,
            next_value=next_value,
            ends=steps.ends,
        )

    def learn(self, state: PPOGBRLState, rollout: Rollout) -> tuple[PPOGBRLState, dict[str, Array]]:
        """Advantages, then epochs of minibatches, a tree each.

        Where the budget has no room for an update's trees, nothing is learned any more: `trees_left` says so.
        """
        config, hyper = self.config, state.hyper
        key, shuffle_key = jax.random.split(state.key)
        ends = rollout.terminated, rollout.truncated
        reward, scaler, value = rollout.reward, state.reward_scaler, rollout.value
        if scaler is not None:
            scaler = scaler.update(reward, rollout.terminated | rollout.truncated, hyper.gamma)
            reward = scaler.scale(reward)
        advantage = gae(reward, value, rollout.next_value, *ends, hyper.gamma, hyper.gae_lambda)
        target = advantage + value
        mask = rollout.learn_mask
        mask = None if mask is None else jnp.broadcast_to(mask, reward.shape)
        x, allowed = self.features(rollout.obs)
        batch = on_policy.flattened(Batch(x, allowed, rollout.action, rollout.log_prob, value, advantage, target, mask))
        steps = config.num_steps * config.num_envs
        rates = [annealed(rate, state.step - steps, hyper.anneal_steps) for rate in self.rates(hyper)]
        gradient_step = functools.partial(self.gradient_step, batch=batch, hyper=hyper, rates=rates)
        rows = shuffled(shuffle_key, (config.num_epochs, steps)).reshape(-1, steps // config.num_minibatches)
        start = on_policy.flattened(rollout.outputs), state.weights.log_std, state.optimizer
        (_, log_std, optimizer), (grown, report) = jax.lax.scan(gradient_step, start, rows)
        ensemble = state.weights.trees
        room = trees.has_room(ensemble, config.trees_per_update)
        ensemble = trees.add(ensemble, on_policy.flattened(grown))
        log_std, optimizer = jax.tree.map(
            functools.partial(jnp.where, room), (log_std, optimizer), (state.weights.log_std, state.optimizer)
        )
        weights = Weights(ensemble, log_std)
        state = state.replace(key=key, weights=weights, optimizer=optimizer, reward_scaler=scaler)
        shown = {"explained_variance": explained_variance(target, value), "learning_rate": rates[0]}
        shown |= {"trees": ensemble.count, "trees_left": config.num_trees - ensemble.count}
        return state, {**rollout.ends.metrics(), **jax.tree.map(jnp.mean, report), **shown}

    def check_updates(self, updates: int) -> None:
        """Raise ValueError where the budget of trees does not last for so many updates."""
        self.config.check_updates(updates)

    def rates(self, hyper: Hyper) -> tuple[Array, Array, Array]:
        return hyper.learning_rate, hyper.value_learning_rate, hyper.std_learning_rate

    def gradient_step(
        self, carry: Any, rows: Int[Array, " b"], batch: Batch, hyper: Hyper, rates: list[Array]
    ) -> tuple[Any, tuple[trees.Tree, dict]]:
        """A minibatch's gradients, the trees that they give, and the outputs of all rows with these trees."""
        config, (outputs, log_std, optimizer) = self.config, carry
        part = spread(jax.tree.map(lambda leaf: leaf[rows], batch))

        def of_part(outputs, log_std):
            return loss(outputs, log_std, part, hyper, config, self.action_space)

        (_, report), grads = jax.value_and_grad(of_part, (0, 1), has_aux=True)(outputs[rows], log_std)
        row_grads = gradients_of_rows(grads[0], part.mask, hyper.max_grad_norm, hyper.max_value_grad)
        last = jnp.arange(outputs.shape[-1]) == outputs.shape[-1] - 1
        heads = [jnp.ones_like(last)] if config.shared else [~last, last]
        binary = one_hot_columns(self.observation_space, categorical=config.categorical)
        splits = trees.candidates(part.x, config.num_candidates, config.candidates, binary)
        grown = [trees.fit(part.x, row_grads * head, splits, config.depth, config.score, part.mask) for head in heads]
        step_size = jnp.where(last, rates[1], rates[0])
        grown = [tree.scaled(-step_size) for tree in grown]
        outputs = sum((trees.predict(tree, batch.x) for tree in grown), outputs)
        # Without a Box there is no log_std, and nothing happens here.
        log_std, optimizer, _ = self.log_std_optimizer.descend(log_std, optimizer, grads[1], rates[2])
        report["grad_norm"] = jnp.mean(jnp.sqrt(jnp.sum(row_grads**2, -1)))
        return (outputs, log_std, optimizer), (jax.tree.map(lambda *x: jnp.stack(x), *grown), report)

    def policy(self, state: PPOGBRLState) -> Weights:
        return state.weights

    def act(self, policy: Weights, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        x, allowed = self.features(visible(obs))
        pi = policy_of(trees.predict(policy.trees, x), policy.log_std, allowed, self.action_space)
        return environment_action(self.action_space, pi.mode() if greedy else pi.sample(key)), carry


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """PPO with trees on `env`. Equal arguments give the same functions, so they share one jit cache.

    Raises ValueError for an action space it cannot handle, several agents, or a budget below one update's trees.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("ppo_gbrl", venv, Discrete, MultiDiscrete, Box)
    one_hot_columns(observation_space)  # raises TypeError for a kind of space that has no features
    learner = PPOGBRL(config, venv, observation_space, action_space, optimizer_of(config.log_std_optimizer))
    return algorithm_of("ppo_gbrl", learner, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
