"""Model-based policy optimisation (MBPO): soft actor-critic on short branches of a model that is learned as it acts.

Janner, Fu, Zhang and Levine (2019), "When to trust your model: model-based policy optimization" (arXiv:1906.08253). An
update

1. acts for `num_steps` steps in each environment and stores them;
2. goes on training an ensemble of networks, each of which predicts a normal distribution of the next observation's
   difference and of the reward, and the probability that the task ends there,

       mean_B sum_d ((y_d - mean_d)^2 exp(-v_d) + v_d) + 2 cross entropy of the end,   v the logarithm of the variance;

3. branches off: from stored states the policy acts in the model for `horizon` steps, each predicted by a random member;
4. takes gradient steps of soft actor-critic on batches of which a share `real_ratio` was stored and the rest imagined.

With `keep_share` below 1 it learns from the worst branches alone, as Zhang et al. (2021) do for a greenhouse ("Robust
model-based reinforcement learning for autonomous greenhouse control", arXiv:2108.11645, sample dropout): of the returns

    R_i = sum_{t < horizon} gamma^t r_it

of branches the lowest share is kept, as for a conditional value at risk over what the model and its members may draw.
Stored steps are all kept. With `num_branches` 1 the worst are those of all branches; else of those from one state, so
that differences between states do not decide which are kept.

Deviations from MBPO's code: the policy is fixed for the steps of an update, and all gradient steps come after them;
members take a fixed number of gradient steps on all that is stored, where theirs stop by held-out steps and the best
five of seven predict; a member draws its batches from all that is stored, theirs from a bootstrap of it; the loss is a
sum over the numbers predicted, theirs a mean, so that here the decay and the variance's bounds weigh less; targets are
normalised as inputs are; branches are forgotten at the next update; ends are learned and drawn, where theirs are a
given function of the task; the horizon is constant, theirs grows on some tasks (Hopper: 1 to 15 steps), and the target
entropy is SAC's; the number of branches is 10,000, theirs 100,000. Of Zhang et al. the abstract alone was read: they
learn with whole imagined trajectories.
Results: `experiments/lettuce_weather`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.dynamics import Scale, bounded, likelihood_loss
from jaxrl.data.transitions import Transition
from jaxrl.environment import Environment, pytree
from jaxrl.math import fast_key, rarely
from jaxrl.nn.actor_critic import Actor, Critic, TanhGaussian
from jaxrl.nn.losses import critic_loss, td_target
from jaxrl.nn.nets import Net, Nets, critic_values, init_critics, net
from jaxrl.nn.networks import MLP, Network, own
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.off_policy import learner, steps
from jaxrl.off_policy.learner import State
from jaxrl.off_policy.steps import Rollout
from jaxrl.replay.ring import Ring, take, uniform
from jaxrl.rollout import spread
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv

LOG_STD_MIN = -20.0  # of actions, as in SAC


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    num_steps: int = 250  # steps of each environment between updates
    num_updates: int = 5000  # gradient steps of soft actor-critic an update, at most: see Hyper.replay_ratio
    num_members: int = 7  # networks of the model
    model_hidden: tuple[int, ...] = (200, 200, 200, 200)  # widths of each
    model_activation: str = "silu"  # between them
    model_updates: int = 500  # gradient steps of the model an update
    model_batch_size: int = 256  # stored steps in each of these, drawn for each member
    num_rollouts: int = 10_000  # branches an update
    num_branches: int = 1  # of these from one state; divides num_rollouts
    horizon: int = 1  # steps of a branch
    real_ratio: float = 0.05  # share of a batch that was stored

    def __post_init__(self) -> None:
        super().__post_init__()
        names = "num_members", "model_updates", "model_batch_size", "num_rollouts", "num_branches", "horizon"
        check_at_least_one(self, *names)
        if not 0 <= self.real_ratio <= 1:
            raise ValueError(f"real_ratio={self.real_ratio}: it must be a share, from 0 to 1.")
        if self.num_rollouts % self.num_branches:
            raise ValueError(f"num_branches={self.num_branches} does not divide num_rollouts={self.num_rollouts}.")


@pytree
class Hyper(learner.SoftHyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    model_learning_rate: jax.Array = 1e-3  # of the members
    model_decay: jax.Array = 5e-5  # weight of half the squares of the members' weights in their loss
    bound_coef: jax.Array = 0.01  # weight of the distance between the variance's bounds in that loss
    keep_share: jax.Array = 1.0  # of branches, those of the lowest returns; 1: MBPO


class Prediction(NamedTuple):
    """Of each member, for a batch: `mean` and `log_var` (K, B, D) of (difference of observations, reward) in units of
    the targets, `logit` (K, B) of the probability of an end."""

    mean: Array
    log_var: Array
    logit: Array


class Branches(NamedTuple):
    """What was imagined: `steps` (T, N, ...), and `begun` (T, N), False where the task had ended before."""

    steps: Transition
    begun: Array


# ---- functions of arrays


def numbers(obs: Any) -> Float[Array, "B O"]:
    """All numbers of observations (B, ...), of whatever kind, in a row."""
    flat = [x.reshape(len(x), -1).astype(jnp.result_type(float)) for x in jax.tree.leaves(obs)]
    return jnp.concatenate(flat, -1)


def observations(x: Float[Array, "B O"], like: Any) -> Any:
    """The inverse of `numbers`: observations as `like`, (B, ...). Integers are rounded, and kept in their range."""
    leaves, treedef = jax.tree.flatten(like)
    parts, begin = [], 0
    for leaf in leaves:
        size = leaf[0].size
        part, begin = x[:, begin : begin + size].reshape(leaf.shape), begin + size
        if leaf.dtype == jnp.bool_:
            part = part > 0.5
        elif jnp.issubdtype(leaf.dtype, jnp.integer):
            # Before the type's limits: the nearest floats to those of int32 lie outside of them.
            limits = jnp.iinfo(leaf.dtype)
            part = jnp.clip(jnp.round(part), max(limits.min, -(2**24)), min(limits.max, 2**24))
        parts.append(part.astype(leaf.dtype))
    return jax.tree.unflatten(treedef, parts)


def scale_of(x: Float[Array, "C D"], held: Bool[Array, " C"], least: float, else_std: float) -> Scale:
    """Mean and deviation over the rows that are held; `else_std` where the deviation is at most `least`."""
    n, held = jnp.maximum(jnp.sum(held), 1), held[:, None]
    mean = jnp.sum(jnp.where(held, x, 0), 0) / n
    std = jnp.sqrt(jnp.sum(jnp.where(held, (x - mean) ** 2, 0), 0) / n)
    return Scale(mean, jnp.where(std > least, std, else_std))


def model_loss(predicted: Prediction, target: Float[Array, "K B D"], terminated: Bool[Array, "K B"]) -> Array:
    """Twice the negative log-likelihood up to a constant: a mean over steps, a sum over members."""
    cross_entropy = jax.nn.softplus(predicted.logit) - jnp.where(terminated, predicted.logit, 0)
    return likelihood_loss(predicted.mean, predicted.log_var, target) + 2 * jnp.sum(jnp.mean(cross_entropy, -1))


def branch_returns(
    reward: Float[Array, "T N"], begun: Bool[Array, "T N"], gamma: Float[Array, ""] | float
) -> Float[Array, " N"]:
    """sum_t gamma^t r_t over the steps before the end of the task."""
    discount = gamma ** jnp.arange(len(reward), dtype=reward.dtype)
    return jnp.sum(jnp.where(begun, discount[:, None] * reward, 0), 0)


def worst(
    returns: Float[Array, "groups branches"], keep_share: Float[Array, ""] | float
) -> Bool[Array, "groups branches"]:
    """Where the share of lowest returns in each group is, rounded, and at least one of them."""
    rank = jnp.argsort(jnp.argsort(returns, -1), -1)
    return rank < jnp.maximum(jnp.round(keep_share * returns.shape[-1]), 1)


# ---- the learner


@dataclasses.dataclass(frozen=True)
class _MBPO:
    """The networks and their gradient steps, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha", "model")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    critic: Any  # a flax module
    actor: TanhGaussian

    def member(self, size: int) -> MLP:
        """A network of the model, which predicts `size` numbers and an end."""
        return MLP(self.config.model_hidden, 2 * size + 1, self.config.model_activation)

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        x = numbers(jax.tree.map(lambda x: x[None], obs))[0]
        size, inputs = len(x) + 1, jnp.concatenate([x, action])
        bound = jnp.ones((self.config.num_members, size), x.dtype)
        network_keys = jax.random.split(keys["model"], self.config.num_members)
        members = jax.vmap(lambda key: self.member(size).init(key, inputs))(network_keys)
        return {
            "critic": init_critics(self.critic, keys["critic"], 2, obs, action),
            "actor": self.actor.init(keys["actor"], obs),
            "log_alpha": jnp.log(hyper.alpha),
            "model": {"members": members, "low": -10.0 * bound, "high": 0.5 * bound},
            "inputs": Scale(jnp.zeros_like(inputs), jnp.ones_like(inputs)),
            "targets": Scale(jnp.zeros(size, x.dtype), jnp.ones(size, x.dtype)),
        }

    def predict(self, weights: Any, x: Float[Array, "K B I"]) -> Prediction:
        """From observations and actions in units of the inputs, each member's from rows of its own."""
        size = weights["low"].shape[-1]
        out: Any = jax.vmap(self.member(size).apply)(weights["members"], x)
        log_var = bounded(out[..., size:-1], weights["low"][:, None], weights["high"][:, None])
        return Prediction(out[..., :size], log_var, out[..., -1])

    def everyone(self, nets: Nets, x: Float[Array, "B I"]) -> Prediction:
        """Of all members from the same rows, which are in the task's units."""
        x = nets["inputs"].to_unit(x)
        return self.predict(nets["model"].weights, jnp.broadcast_to(x, (self.config.num_members, *x.shape)))

    def fit(self, nets: Nets, key: Array, stored: Ring, new: Transition, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """`(nets, metrics)` after the gradient steps of the model on what is stored, of which `new` came last."""
        x, y = inputs_of(stored.items.obs, stored.items.action), targets_of(stored.items)
        held = jnp.arange(len(x)) < stored.size
        # A constant difference, such as a clock's, is predicted as exactly; a constant input may change later on.
        before, targets = nets, scale_of(y, held, least=1e-6, else_std=1e-6)
        nets = nets | {"inputs": scale_of(x, held, least=1e-6, else_std=1.0), "targets": targets}
        guess = self.everyone(before, inputs_of(new.obs, new.action)).mean * before["targets"].std
        error = (guess + before["targets"].mean - targets_of(new)) / targets.std

        def step(model: Net, key: Array) -> tuple[Net, dict[str, Array]]:
            shape = self.config.num_members, self.config.model_batch_size
            rows = jax.random.randint(key, shape, 0, stored.size)
            seen, wanted, ends = x[rows], y[rows], stored.items.terminated[rows]

            def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
                predicted = self.predict(weights, nets["inputs"].to_unit(seen))
                squares = jax.tree.reduce(lambda sum, w: sum + jnp.sum(w**2), weights["members"], jnp.zeros(()))
                loss = model_loss(predicted, targets.to_unit(wanted), ends)
                bounds = hyper.bound_coef * jnp.sum(weights["high"] - weights["low"])
                return loss + bounds + hyper.model_decay * squares / 2, {}

            return model.descend(objective, hyper.model_learning_rate, hyper.max_grad_norm)

        model, report = jax.lax.scan(step, nets["model"], jax.random.split(key, self.config.model_updates))
        return nets | {"model": model}, {**jax.tree.map(jnp.mean, report), "model_error": jnp.mean(error**2)}

    def model_step(
        self, nets: Nets, key: Key[Array, ""], obs: Any, action: Float[Array, "B A"]
    ) -> tuple[Any, Float[Array, " B"], Bool[Array, " B"]]:
        """`(next_obs, reward, terminated)`, drawn of what a random member predicts for each row."""
        member_key, noise_key, end_key = jax.random.split(key, 3)
        predicted = self.everyone(nets, inputs_of(obs, action))
        row = jnp.arange(len(action))
        member = jax.random.randint(member_key, row.shape, 0, self.config.num_members)
        mean, log_var, logit = (part[member, row] for part in predicted)
        unit = mean + jnp.exp(log_var / 2) * jax.random.normal(noise_key, mean.shape, mean.dtype)
        drawn = nets["targets"].mean + nets["targets"].std * unit
        next_obs = observations(numbers(obs) + drawn[:, :-1], obs)
        return next_obs, drawn[:, -1], jax.random.bernoulli(end_key, jax.nn.sigmoid(logit))

    def imagine(self, nets: Nets, key: Array, start: Any) -> Branches:
        """Branches of the policy in the model from observations `start` (N, ...)."""

        def step(carry: tuple[Any, Array], key: Array) -> tuple[tuple[Any, Array], Branches]:
            obs, begun = carry
            act_key, model_key = jax.random.split(key)
            action = self.actor(nets["actor"].weights, obs).sample(act_key)
            next_obs, reward, terminated = self.model_step(nets, model_key, obs, action)
            branch = Branches(Transition(obs, action, reward, terminated, next_obs), begun)
            return (next_obs, begun & ~terminated), branch

        begun = jnp.ones(len(jax.tree.leaves(start)[0]), bool)
        return jax.lax.scan(step, (start, begun), jax.random.split(key, self.config.horizon))[1]

    def kept(self, branches: Branches, hyper: Hyper) -> Bool[Array, "T N"]:
        """Which imagined steps are learned from."""
        returns = branch_returns(branches.steps.reward, branches.begun, hyper.gamma)
        n = self.config.num_branches
        groups = returns[None] if n == 1 else returns.reshape(-1, n)
        return branches.begun & worst(groups, hyper.keep_share).reshape(-1)

    def gradient_step(self, nets: Nets, key: Array, batch: Transition, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics, the actor, the temperature, the target critics, as in `sac.py`."""
        critic, actor, log_alpha = nets["critic"], nets["actor"], nets["log_alpha"]
        next_key, actor_key, alpha_key = jax.random.split(key, 3)
        settings, alpha = (hyper.learning_rate, hyper.max_grad_norm), jnp.exp(log_alpha.weights)
        next_action, next_log_prob = self.actor(actor.weights, batch.next_obs).sample_and_log_prob(next_key)
        next_q = critic_values(self.critic, critic.target, batch.next_obs, next_action)
        next_value = jnp.min(next_q, 0) - alpha * next_log_prob
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            return 0.5 * critic_loss(q, target), {"q_value": jnp.mean(q)}

        critic, critic_report = critic.descend(critic_objective, *settings)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            action, log_prob = self.actor(weights, batch.obs).sample_and_log_prob(actor_key)
            q = jnp.min(critic_values(self.critic, critic.weights, batch.obs, action), 0)
            return jnp.mean(alpha * log_prob - q), {"entropy": -jnp.mean(log_prob)}

        actor, actor_report = actor.descend(actor_objective, *learner.actor_settings(hyper))
        pi = self.actor(actor.weights, batch.obs)
        log_alpha, alpha_report = learner.temperature_step(log_alpha, pi, alpha_key, hyper)
        nets = nets | {"critic": critic.track(hyper.tau), "actor": actor, "log_alpha": log_alpha}
        return nets, {**critic_report, **actor_report, **alpha_report}


def inputs_of(obs: Any, action: Float[Array, "B A"]) -> Float[Array, "B I"]:
    """What the model sees: all numbers of an observation, and the action in units of the box."""
    return jnp.concatenate([numbers(obs), action], -1)


def targets_of(step: Transition) -> Float[Array, "B D"]:
    """What the model predicts of steps (B, ...): the difference of observations, and the reward."""
    return jnp.concatenate([numbers(step.next_obs) - numbers(step.obs), step.reward[:, None]], -1)


@dataclasses.dataclass(frozen=True)
class MBPO(learner.Learner):
    """A `Learner` that stores what it does, and learns from that and from branches of its model."""

    def learn(self, state: State, rollout: Rollout | None = None) -> tuple[State, dict[str, Array]]:
        """Stores the rollout; then an epoch of learning, from `hyper.learning_starts` on."""
        names, config, hyper = self.rule.networks, self.config, state.hyper
        if rollout is None:
            raise ValueError(f"{self.name} learns from a rollout of its policy.")
        key, epoch_key = jax.random.split(state.key)
        new = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout.transition)
        stored = self.replay.add(state.replay, new)
        nets: Nets = {
            name: net(
                state.weights[name],
                state.optimizer[name],
                self.optimizer_of(name),
                state.target_weights.get(name),
                name,
            )
            for name in names
        } | state.extra
        due = steps.gradient_steps_due(
            state.step, config.num_envs * config.num_steps, hyper.replay_ratio, config.num_updates
        )
        due = jnp.where(state.step >= hyper.learning_starts, due, 0)  # a rollout is long: no whole one untrained

        def learned() -> tuple[Nets, dict[str, Array]]:
            return self.epoch(nets, fast_key(epoch_key), stored, new, due, hyper)

        nothing = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), jax.eval_shape(learned)[1])
        nets, report = rarely(due > 0, learned, (nets, nothing))
        state = state.replace(
            key=key,
            replay=stored,
            weights={name: nets[name].weights for name in names},
            target_weights={name: nets[name].target for name in self.rule.targets},
            optimizer={name: nets[name].state for name in names},
            extra={name: nets[name] for name in state.extra},
        )
        shown = {"loss": report["critic_loss"], "grad_norm": report["critic_grad_norm"]}
        return state, {**rollout.ends.metrics(), **shown, **report, "gradient_steps": due}

    def epoch(
        self, nets: Nets, key: Array, stored: Ring, new: Transition, due: Int[Array, ""], hyper: Hyper
    ) -> tuple[Nets, dict[str, Array]]:
        """The model, the branches, and `due` gradient steps of the policy (Janner et al. 2019, algorithm 2)."""
        config, rule = self.config, self.rule
        fit_key, start_key, imagine_key, steps_key = jax.random.split(key, 4)
        nets, model_report = rule.fit(nets, fit_key, stored, new, hyper)

        start = self.replay.sample(start_key, stored, config.num_rollouts // config.num_branches).obs
        start = jax.tree.map(lambda x: jnp.repeat(x, config.num_branches, 0), start)
        branches = rule.imagine(nets, imagine_key, start)
        kept = rule.kept(branches, hyper)
        # Rows to learn from first: `count` of them, a number that is known only when it runs.
        order, count = jnp.argsort(~kept.reshape(-1), stable=True), jnp.sum(kept, dtype=jnp.int32)
        imagined = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), branches.steps)
        num_real = round(config.real_ratio * config.batch_size)

        def step(nets: Nets, key: Array) -> tuple[Nets, dict[str, Array]]:
            real_key, row_key, step_key = jax.random.split(key, 3)
            rows = order[jax.random.randint(row_key, (config.batch_size - num_real,), 0, count)]
            parts = self.replay.sample(real_key, stored, num_real), take(imagined, rows)
            batch = spread(jax.tree.map(lambda *x: jnp.concatenate(x), *parts))
            return rule.gradient_step(nets, step_key, batch, hyper)

        keys = jax.random.split(steps_key, config.num_updates)
        nets, report = steps.steps_taken(due, config.num_updates, nets, lambda: keys, step)
        reward = branches.steps.reward
        seen = {
            "imagined_steps": count.astype(reward.dtype),  # as a number that can be NaN, where there was no epoch
            "imagined_reward": jnp.sum(jnp.where(kept, reward, 0)) / count,
        }
        return nets, {**jax.tree.map(jnp.nanmean, report), **model_report, **seen}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    actor: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """MBPO for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` of actions before
            tanh, (..., A) each.
        critic: a flax module from a whole observation and an action to values (...); there will be two of them.
        optimizer: in place of `config.optimizer`, of all networks; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, networks whose outputs do not fit, and
    `normalize_obs`, which is of learners from a dataset.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("mbpo", venv, Box, between_ends=True)
    if config.normalize_obs:
        raise ValueError("mbpo: normalize_obs=True is of learners from a dataset; mbpo learns from no dataset.")
    sizes = config.hidden, config.activation
    critic = own("critic", critic) or Critic(obs_space, *sizes, config.layer_norm)
    acting = TanhGaussian(own("actor", actor) or Actor(obs_space, space, *sizes, spread=True), LOG_STD_MIN)
    rule, chosen = _MBPO(config, critic, acting), optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    replay = uniform(config.buffer_size)
    return MBPO("mbpo", config, Hyper, venv, obs_space, space, rule, acting, replay, chosen).algorithm(critic)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
