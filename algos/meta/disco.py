"""DiscoRL: an agent that learns by an update rule that was meta-learned on a hundred environments.

Oh et al. (2025), "Discovering state-of-the-art reinforcement learning algorithms", Nature. The agent's network outputs
for a state a policy (`logits`) and a prediction vector y, and for each action a prediction vector z, the policy one
step later (aux_pi) and a value q; the meaning of y and z was found by meta-learning. The rule's network reads a rollout
backwards and outputs targets for the policy and both predictions, and the agent takes gradient steps on

    KL(pi_hat || pi) + KL(y_hat || y) + KL(z_hat || z(a)) + KL(pi(s_t+1) || aux_pi(a)) + 0.2 CE(q(a), Retrace target)

A second recurrent network, which takes one step for each update, is the rule's memory of an agent's life and scales the
output of the first. The agent has target networks, moving averages of advantages, and a replay buffer. q is categorical
on 601 bins of sign(x) (sqrt(|x| + 1) - 1) + x / 1000.

The rule's network and its weights, the published Disco103 among them, are in `disco_rule.py`: with
`Config(weights=path)` the agent learns by the rule in that file, without a file by a random initial rule.

Deviations from disco_rl at commit 9059a29, whose numbers are in `tests/golden/disco.npz`: there the final state of an
episode is a masked step; here it is the successor of the last step, and no step is masked. As there, a truncated
episode counts as terminated: the rule has one input for both, and q does not bootstrap from either. Its running average
of temporal differences is left out, as nothing reads it. Hidden layers and the heads of actions have orthogonal initial
weights, and the initial gates of an action depend on that action alone, so that z and q of a new agent differ 5 times
as much between actions as there, and aux_pi 12 times. Results: `experiments/disco/`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from jaxrl.algorithm import (
    Algorithm,
    State,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    shared,
    spaces_of,
    starting_values,
)
from jaxrl.algos.meta.disco_rule import (
    Memory,
    Outputs,
    RuleConfig,
    Targets,
    Trajectories,
    Values,
    apply_rule,
    chosen,
    fresh_memory,
    fresh_rule,
    kl,
    load,
    lstm,
)
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.distributions import Categorical, of_space
from jaxrl.nn.networks import MLP, Dense, encode
from jaxrl.nn.optim import polyak
from jaxrl.nn.value_heads import cross_entropy, expected_value, two_hot
from jaxrl.replay import ring
from jaxrl.rollout import Ends, rollout
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv

EPS = 1e-3
"""eps of the signed hyperbolic transform, `squashed`."""


def squashed(x: Array) -> Array:
    """sign(x) (sqrt(|x| + 1) - 1) + eps x (Pohlen et al. 2018)."""
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1) - 1) + EPS * x


def unsquashed(x: Array) -> Array:
    """The inverse of `squashed`."""
    root = (jnp.sqrt(1 + 4 * EPS * (EPS + 1 + jnp.abs(x))) - 1) / (2 * EPS)
    return jnp.sign(x) * (jnp.square(root) - 1)


def centres(num_bins: int, max_value: float) -> Array:
    """The middle of each bin of q, as a squashed value."""
    return jnp.linspace(-max_value, max_value, num_bins)


def values_of(
    now: Outputs,
    after: Outputs,
    old: Outputs,
    old_after: Outputs,
    seen: Trajectories,
    memory: Memory,
    hyper: Hyper,
    bins: Array,
) -> tuple[Values, Memory]:
    """Retrace targets of q (Munos et al. 2016) and advantages, and the memory with updated moving averages.

    `now` and `after` are the agent's outputs for states and their successors, `old` and `old_after` the target
    network's.
    """
    q, target_q, target_q_after = (unsquashed(expected_value(x.q, bins)) for x in (now, old, old_after))
    pi, pi_after = jax.nn.softmax(now.logits), jax.nn.softmax(after.logits)
    value = jnp.sum(pi * q, -1)
    next_value = jnp.sum(pi_after * unsquashed(expected_value(after.q, bins)), -1)
    target_value, target_next = jnp.sum(pi * target_q, -1), jnp.sum(pi_after * target_q_after, -1)
    of_action = chosen(target_q[..., None], seen.action)[..., 0]
    log_ratio = Categorical(now.logits).log_prob(seen.action) - Categorical(seen.behaviour).log_prob(seen.action)
    trace = hyper.td_lambda * jnp.minimum(jnp.exp(log_ratio), 1.0)
    discount = hyper.gamma * ~seen.done

    def back(beyond: Array, step: Any) -> tuple[Array, Array]:
        reward, discount, next_value, trace, of_action = step
        target = reward + discount * (next_value + beyond)
        return trace * (target - of_action), target

    steps = seen.reward, discount, target_next, trace, of_action
    _, target = jax.lax.scan(back, jnp.zeros_like(value[0]), steps, reverse=True)
    target = jax.lax.stop_gradient(target)
    advantage, q_advantage = target - target_value, target_q - target_value[..., None]
    decay = 0.99
    mean = decay * memory.mean + (1 - decay) * jnp.mean(advantage)
    square = decay * memory.square + (1 - decay) * jnp.mean(jnp.square(advantage))
    missing = decay * memory.missing
    memory = memory.replace(mean=mean, square=square, missing=missing)
    centre = mean / (1 - missing)
    scale = jnp.sqrt(jnp.maximum(square / (1 - missing) - jnp.square(centre), 0) + 1e-12) + 1e-6
    normal = (advantage - centre) / scale, (q_advantage - centre) / scale
    return Values(value, next_value, advantage, normal[0], target_q, q_advantage, normal[1], target), memory


def loss(
    now: Outputs, after_logits: Array, seen: Trajectories, targets: Targets, hyper: Hyper, bins: Array
) -> tuple[Array, dict[str, Array]]:
    """`(loss (T, B), metrics)` of an agent whose outputs are `now`. The targets have no gradient."""
    q = chosen(now.q, seen.action)
    aim = jax.lax.stop_gradient(two_hot(squashed(targets.q), bins))
    policy, y = kl(targets.pi, now.logits), kl(targets.y, now.y)
    z = kl(targets.z, chosen(now.z, seen.action))
    auxiliary = kl(jax.lax.stop_gradient(after_logits), chosen(now.aux_pi, seen.action)) * ~seen.done
    value = cross_entropy(q, aim)
    each = hyper.policy_coef * policy + hyper.y_coef * y + hyper.z_coef * z
    each += hyper.aux_coef * auxiliary + hyper.vf_coef * value
    names = ("policy_loss", "y_loss", "z_loss", "aux_loss", "value_loss")
    report = {name: jnp.mean(x) for name, x in zip(names, (policy, y, z, auxiliary, value), strict=True)}
    return each, report | {"entropy": jnp.mean(Categorical(now.logits).entropy())}


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program. The defaults are those of the evaluation in disco_rl."""

    num_envs: int = 2  # environments stepped together
    num_steps: int = 29  # steps of each in a rollout, and of the trajectories that are replayed
    batch_size: int = 64  # trajectories of an update
    buffer_size: int = 1024  # trajectories kept
    hidden: tuple[int, ...] = (512, 512)  # of the torso; the last one is linear
    model_size: int = 128  # of the recurrent model step, whose input is an action
    model_hidden: tuple[int, ...] = (128,)  # of the heads of each action: z, aux_pi and q
    num_bins: int = 601  # of q
    max_value: float = 300.0  # value of the last bin, squashed
    predictions: int = 600  # size of y, and of z of each action
    features: int = 256  # width of the rule's network, see RuleConfig
    memory: int = 128  # width of the rule's memory, see RuleConfig
    weights: str = ""  # file of the rule; "": Hyper.rule, else random initial weights

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "batch_size", "predictions", "features", "memory")
        if self.buffer_size < self.num_envs:
            raise ValueError(
                f"buffer_size={self.buffer_size} trajectories hold no rollout of num_envs={self.num_envs}."
            )

    @property
    def rule(self) -> RuleConfig:
        return RuleConfig(self.predictions, self.features, self.memory)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    rule: Any = None  # the rule's weights; None: those of `Config.weights`
    learning_rate: jax.Array = 1e-2  # of the agent, by Adam
    max_update: jax.Array = 1.0  # largest change of a weight in a step, in units of the learning rate
    gamma: jax.Array = 0.997
    td_lambda: jax.Array = 0.95  # of the traces of Retrace
    target_rate: jax.Array = 0.1  # Polyak step of the target network, each update
    policy_coef: jax.Array = 1.0  # weight of KL(pi_hat, pi)
    y_coef: jax.Array = 1.0  # of KL(y_hat, y)
    z_coef: jax.Array = 1.0  # of KL(z_hat, z)
    aux_coef: jax.Array = 1.0  # of KL(policy of the next state, aux_pi)
    vf_coef: jax.Array = 0.2  # of q's cross entropy


@pytree
class DiscoState(State):
    weights: Any  # {"actor": ..., "predictions": ...}
    target: Any  # of the target network
    optimizer: Any
    memory: Memory  # of the rule
    replay: Any


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    next_obs: Any  # true successors
    seen: Trajectories
    ends: Ends


def small_normal(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    return 0.01 * jax.random.truncated_normal(key, -2, 2, shape, dtype)


class Actor(nn.Module):
    """`(logits, features)` of observations."""

    observation_space: Space
    num_actions: int
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, obs: Any) -> tuple[Array, Array]:
        x = encode(self.observation_space, obs)
        x = MLP(self.hidden[:-1], self.hidden[-1], "relu")(x)
        return Dense(self.num_actions, kernel_init=small_normal)(x), x


class Predictions(nn.Module):
    """The outputs besides the policy: y, and for each action z, aux_pi and q after one step of the model."""

    config: Config
    num_actions: int

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, ...]:
        c, n = self.config, self.num_actions
        y = Dense(c.predictions, kernel_init=small_normal)(x)
        cell = Dense(c.model_size)(x)[..., None, :]
        # One model step for every action from the same state, whose part of the gates is computed once.
        gates = Dense(4 * c.model_size)(jnp.tanh(cell)) + Dense(4 * c.model_size, use_bias=False)(jnp.eye(n))
        hidden, _ = lstm(gates, cell)
        return y, *(MLP(c.model_hidden, size, "relu")(hidden) for size in (c.predictions, n, c.num_bins))


def adam(learning_rate: Any, max_update: Any) -> optax.GradientTransformation:
    """Adam with no gradient through its denominator, and changes of at most `max_update` learning rates."""

    def init(params: Any) -> tuple[Array, Any, Any]:
        return jnp.int32(0), jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count, mean, square = state
        count += 1
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, updates)
        square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * jnp.square(g), square, updates)

        def change(m: Array, v: Array) -> Array:
            size = jax.lax.stop_gradient(jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)
            return -learning_rate * jnp.clip(m / (1 - 0.9**count) / size, -max_update, max_update)

        return jax.tree.map(change, mean, square), (count, mean, square)

    return optax.GradientTransformation(init, update)


@dataclasses.dataclass(frozen=True)
class _Disco:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    slots: ClassVar = ()
    config: Config
    venv: VectorEnv
    actor: Actor
    predictions: Predictions
    observation_space: Space
    action_space: Discrete

    @property
    def bins(self) -> Array:
        return centres(self.config.num_bins, self.config.max_value)

    def outputs(self, weights: Any, obs: Any) -> Outputs:
        """The outputs of the agent with these weights, for observations with any leading axes."""
        applied: Any = self.actor.apply(weights["actor"], obs)
        logits, features = applied
        more: Any = self.predictions.apply(weights["predictions"], features)
        return Outputs(self.masked(logits, obs), *more)

    def masked(self, logits: Array, obs: Any) -> Array:
        mask = split_observation(obs, self.observation_space)[2]
        return logits if mask is None else jnp.where(mask, logits, -1e9)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> DiscoState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        key, actor_key, model_key, reset_key, rule_key = jax.random.split(key, 5)
        if hyper.rule is None:
            path, sizes = self.config.weights, self.config.rule
            hyper = hyper.replace(rule=load(path, sizes) if path else fresh_rule(rule_key, sizes))
        obs, env_state = self.venv.reset(reset_key, env_params)
        actor, (_, features) = self.actor.init_with_output(actor_key, obs)[::-1]
        weights = {"actor": actor, "predictions": self.predictions.init(model_key, features)}
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        t, n = self.config.num_steps, self.action_space.n
        one = jax.tree.map(lambda x: jnp.broadcast_to(x[0], (t, *x.shape[1:])), obs)
        zero = jnp.zeros(t)
        item = one, one, Trajectories(zero.astype(jnp.int32), jnp.zeros((t, n)), zero, zero > 0)
        return DiscoState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            target=weights,
            optimizer=adam(0.0, 1.0).init(weights),
            memory=fresh_memory(self.config.rule),
            replay=ring.uniform(self.config.buffer_size).init(item),
        )

    def collect(self, state: DiscoState) -> tuple[DiscoState, Rollout]:
        def act(key, obs, carry):
            applied: Any = self.actor.apply(state.weights["actor"], obs)
            logits = self.masked(applied[0], obs)
            action = Categorical(logits).sample(key)
            return action, (action, logits), carry

        after, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        action, logits = steps.output
        seen = Trajectories(action, logits, steps.reward, steps.done)
        return after, Rollout(steps.obs, steps.next_obs, seen, steps.ends)

    def targets(self, state: DiscoState, obs: Any, next_obs: Any, seen: Trajectories) -> tuple[Targets, Memory]:
        """`(targets, memory)` of the rule for trajectories (T, B, ...) and the current agent."""
        now, after = self.outputs(state.weights, obs), self.outputs(state.weights, next_obs)
        old, old_after = self.outputs(state.target, obs), self.outputs(state.target, next_obs)
        values, memory = values_of(now, after, old, old_after, seen, state.memory, state.hyper, self.bins)
        rule = state.hyper.rule
        return apply_rule(rule, self.config.rule, now, after, old, old_after, seen, values, memory)

    def learn(self, state: DiscoState, rollout: Rollout) -> tuple[DiscoState, dict[str, Array]]:
        key, sample_key = jax.random.split(state.key)
        buffer = ring.uniform(self.config.buffer_size)
        new = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), (rollout.obs, rollout.next_obs, rollout.seen))
        replay = buffer.add(state.replay, new)
        batch = buffer.sample(sample_key, replay, self.config.batch_size)
        obs, next_obs, seen = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), batch)
        after, report = self.follow(state, obs, next_obs, seen)
        # It learns as soon as the buffer holds a batch of different trajectories.
        ready = replay.size >= jnp.minimum(self.config.batch_size, self.config.buffer_size)
        learned = ("weights", "target", "optimizer", "memory")
        kept = {
            name: jax.tree.map(lambda x, y: jnp.where(ready, x, y), getattr(after, name), getattr(state, name))
            for name in learned
        }
        return state.replace(key=key, replay=replay, **kept), {**rollout.ends.metrics(), **report}

    def follow(
        self, state: DiscoState, obs: Any, next_obs: Any, seen: Trajectories
    ) -> tuple[DiscoState, dict[str, Array]]:
        """`(state, metrics)` after one gradient step by the rule on trajectories (T, B, ...).

        Both are differentiable in `state.hyper.rule`, also the metrics of the targets: means of their logits, and the
        divergence of pi_hat from the target network.
        """
        hyper = state.hyper
        targets, memory = self.targets(state, obs, next_obs, seen)
        before: Any = self.actor.apply(state.target["actor"], obs)
        about = {f"{name}_hat": jnp.mean(getattr(targets, name)) for name in ("pi", "y", "z")}
        about["target_kl"] = jnp.mean(kl(jax.lax.stop_gradient(self.masked(before[0], obs)), targets.pi))

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            now = self.outputs(weights, obs)
            applied: Any = self.actor.apply(weights["actor"], next_obs)
            each, report = loss(now, self.masked(applied[0], next_obs), seen, targets, hyper, self.bins)
            return jnp.mean(each), {"loss": jnp.mean(each), **report}

        grads, report = jax.grad(objective, has_aux=True)(state.weights)
        change, optimizer = adam(hyper.learning_rate, hyper.max_update).update(grads, state.optimizer)
        report |= {**about, "grad_norm": optax.global_norm(grads)}
        target = polyak(state.target, state.weights, hyper.target_rate)
        weights = jax.tree.map(jnp.add, state.weights, change)
        return state.replace(weights=weights, target=target, optimizer=optimizer, memory=memory), report

    def policy(self, state: DiscoState) -> Any:
        return state.weights["actor"]

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        applied: Any = self.actor.apply(policy, obs)
        mask = split_observation(obs, self.observation_space)[2]
        pi = of_space(self.action_space, applied[0], mask)
        return pi.mode() if greedy else pi.sample(key), carry


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """An agent that learns by a DiscoRL rule; the weights of the rule are the field `rule` of the agent's Hyper.

    Raises ValueError for action spaces that are not Discrete and for several agents, and RuleFileError, from `init`,
    for a file that holds no rule of these sizes.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("disco", venv, Discrete)
    actor = Actor(observation_space, action_space.n, config.hidden)
    learner = _Disco(config, venv, actor, Predictions(config, action_space.n), observation_space, action_space)
    return algorithm_of("disco", learner, Hyper, config.num_envs * config.num_steps)
