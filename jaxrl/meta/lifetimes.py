"""Learning an update rule by meta-gradients, from the lives of many agents at once.

Each agent of a batch has its own level and lifetime, and learns by the rule. In a meta-update every agent makes K
updates; then the rule's weights eta take a gradient step on

    J(eta) = E[ -log pi_K(a|s) A - b_pi H(pi) - b_y H(y) + b_pi_hat pi_hat^2 + b_y_hat |y_hat|^2 ]

with pi_K the policy after K updates, on a rollout of it, and A advantages by a critic that each agent has for this
purpose and that learns from the same rollouts (Oh et al. 2020, section 3.3; Jackson et al. 2023). The gradient flows
through the K updates. An agent whose life is over is replaced by a new one on a level that the curriculum chooses; the
curriculum gets the `Outcomes` of the finished life, scored by its regret, algorithmic or exact.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, check_at_least_one, shared, starting_hyper
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes
from jaxrl.environment import Environment, pytree, strongly_typed
from jaxrl.math import rarely
from jaxrl.meta.agent import TABULAR, AgentConfig, AgentHyper, Body, Rollout, agent, agent_parts
from jaxrl.meta.lives import Antagonist, drawn_rates, final_return, lifetime_on, other_return, where_over
from jaxrl.meta.rule import UpdateRule, fresh_weights
from jaxrl.nesting import cast_settings
from jaxrl.nn.distributions import Categorical
from jaxrl.nn.optim import Optimizer, OptimizerState, optimizer_of
from jaxrl.returns import gae
from jaxrl.rollout import Ends, successor_values
from jaxrl.vector_env import VectorEnv, rows_where

OF_EPISODES = ("episode_return", "episode_length", "episodes")


@dataclasses.dataclass(frozen=True)
class MetaConfig:
    """Static settings: each value compiles its own program."""

    num_agents: int = 64
    num_updates: int = 5  # updates of each agent that the meta-gradient goes through
    at_once: int = 0  # agents whose gradients are computed at once, for memory; 0: all
    held_inputs: bool = False  # stop gradients of the rule's inputs, as GROOVE's code: not the gradient of J
    remat: bool | None = None  # recompute updates in the backward pass, for memory; None: by size, `recomputed`
    judged_at_once: int = 8  # finished lives are evaluated in groups of this size, each with its antagonist
    optimizer: str = "adam"  # of the rule

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_agents", "num_updates", "judged_at_once")
        if self.at_once < 0 or (self.at_once and self.num_agents % self.at_once):
            raise ValueError(f"at_once={self.at_once} does not divide num_agents={self.num_agents}.")


def recomputed(weights: int, steps: int) -> bool:
    """Whether a meta-gradient recomputes its agents' updates where `MetaConfig.remat` is None.

    To keep what lies inside them is worth its memory for a rule whose time is matrix products, as LPG's of 256 units:
    0.87 of the time on a CPU, three times the memory. At 16 and 64 units it is 0.97 to 0.99, for 3.5 to 4 times the
    memory (benchmarks/meta_updates.py). So it is kept for rules of 100,000 weights or more, where it takes up to 1 GiB.

    Args:
        weights: of the rule.
        steps: of environments that are differentiated at once, those of all agents in all K updates.
    """
    kept = steps * 30 * math.sqrt(weights / 3)  # bytes: LPG's cell, 3 units^2 weights, keeps 30 a step and unit
    return weights < 100_000 or kept > 2**30


@pytree
class MetaHyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-4  # of the rule
    max_grad_norm: jax.Array = 0.5  # of the rule's gradient
    gamma: jax.Array = 0.99  # discount of the advantages A
    gae_lambda: jax.Array = 0.95
    critic_learning_rate: jax.Array = 4.0  # of the critics of A
    policy_entropy: jax.Array = 0.05  # b_pi
    prediction_entropy: jax.Array = 1e-3  # b_y
    pi_hat_l2: jax.Array = 5e-3  # b_pi_hat
    y_hat_l2: jax.Array = 1e-3  # b_y_hat
    agent: AgentHyper = AgentHyper()  # settings of all agents; `rule` and `lifetime` are replaced
    rate_spread: jax.Array = 0.0  # s: the learning rates of a new agent are those of `agent` times exp(U(-s, s))
    curriculum: Any = None  # settings of the curriculum (its Hyper); None: those that it was made with


class Agents(NamedTuple):
    """Leaves have a leading axis of agents."""

    state: Any  # AgentState without a rule
    critic: Any  # weights of the critic of the advantages A
    critic_optimizer: OptimizerState


@pytree
class MetaState:
    key: jax.Array
    hyper: MetaHyper
    env_params: Any  # params of the level distribution
    step: jax.Array  # meta-updates done
    weights: Any  # of the rule
    optimizer: OptimizerState
    agents: Agents
    batch: LevelBatch  # the agents' levels
    curriculum: Any  # the state of the curriculum

    @property
    def env_state(self) -> Any:
        """The state of the agents' environments, (agents, N, ...)."""
        return self.agents.state.env_state

    @property
    def obs(self) -> Any:
        """The observations of the agents, (agents, N, ...)."""
        return self.agents.state.obs


class Lives(NamedTuple):
    """The rollout of a meta-learner: no steps, as its agents act inside `learn`, where they are differentiated."""

    ends: Ends


@dataclasses.dataclass(frozen=True)
class Settings:
    """The static settings of a meta-learner and of its agents."""

    learner: Any  # MetaConfig or StrategyConfig
    agent: AgentConfig


def policy_gradient(log_prob: Float[Array, "T N"], advantage: Float[Array, "T N"]) -> Float[Array, ""]:
    """-E[log pi A], where A is normalised over the agent's rollout and has no gradient."""
    centred = advantage - jnp.mean(advantage)
    return -jnp.mean(log_prob * jax.lax.stop_gradient(centred / (jnp.std(centred) + 1e-8)))


def starting_with(algo_hyper: type, curriculum: Curriculum, hyper: Any) -> Any:
    """`starting_hyper` of a meta-learner, with the settings of its curriculum (None if that has no settings).

    Raises TypeError for settings of another curriculum, or for a curriculum without settings.
    """
    hyper = starting_hyper(algo_hyper, hyper)
    if curriculum.hyper is None:
        if hyper.curriculum is not None:
            found = f"{type(hyper.curriculum).__module__}.{type(hyper.curriculum).__qualname__}"
            raise TypeError(f"hyper.curriculum is a {found}, and {curriculum.name} is a curriculum without settings.")
        return hyper
    own = curriculum.hyper if hyper.curriculum is None else hyper.curriculum
    return hyper.replace(curriculum=cast_settings("curriculum", own, curriculum.hyper))


def with_curriculum_settings(cstate: Any, hyper: Any) -> Any:
    """A curriculum's state with the settings `hyper.curriculum` of the meta-learner."""
    return cstate if hyper.curriculum is None else cstate.replace(hyper=hyper.curriculum)


@dataclasses.dataclass(frozen=True)
class RuleLearner:
    """The static settings of `learner`, which explains the fields; its methods are the Algorithm's functions."""

    rule: UpdateRule
    env: Environment
    curriculum: Curriculum
    config: MetaConfig = MetaConfig()
    agent_config: AgentConfig = TABULAR
    antagonist: Antagonist = None
    lifetime_fn: Callable[[Array, Any], Array] | None = None
    policy_loss: Callable[..., Array] = policy_gradient

    @functools.cached_property
    def parts(self) -> Any:
        """The parts of an agent that learns by the rule."""
        return agent_parts(self.rule, self.env, self.agent_config)

    @functools.cached_property
    def judge(self) -> Body:
        """The network of the critics of the advantages A."""
        c = self.agent_config
        return Body(self.parts.observation_space, 1, c.hidden, c.activation, privileged=True)

    @functools.cached_property
    def meta_optimizer(self) -> Optimizer:
        return optimizer_of(self.config.optimizer)

    @functools.cached_property
    def taught_by_rule(self) -> Algorithm:
        return agent(self.rule, self.env, self.agent_config)

    @functools.cached_property
    def opponent(self) -> Callable[[Any, AgentHyper, Any], Array] | None:
        return other_return(self.antagonist, self.env, self.agent_config)

    @functools.cached_property
    def remat(self) -> bool:
        """Whether the backward pass recomputes updates."""
        c, a = self.config, self.agent_config
        if c.remat is not None:
            return c.remat
        weights = sum(x.size for x in jax.tree.leaves(jax.eval_shape(self.rule.init, jax.random.key(0))))
        return recomputed(weights, (c.at_once or c.num_agents) * c.num_updates * a.num_envs * a.num_steps)

    def begin(self, key: Array, hyper: MetaHyper, level: Any) -> Agents:
        """A new agent on a level."""
        life_key, agent_key, critic_key, rates_key = jax.random.split(key, 4)
        lifetime = lifetime_on(level, life_key, self.lifetime_fn)
        settings = drawn_rates(rates_key, hyper.agent, hyper.rate_spread)
        state = self.parts.init(agent_key, settings.replace(rule=(), lifetime=lifetime), level)
        critic = self.judge.init(critic_key, jax.tree.map(lambda x: x[0], state.obs))
        return Agents(state, critic, self.parts.optimizer.init(critic, hyper.critic_learning_rate))

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> MetaState:
        hyper = starting_with(MetaHyper, self.curriculum, hyper)
        env_params = strongly_typed(self.env.default_params if env_params is None else env_params)
        key, rule_key, begin_key, curriculum_key, level_key = jax.random.split(key, 5)
        cstate = self.curriculum.init(curriculum_key, hyper.curriculum, env_params)
        batch, cstate = self.curriculum.sample(level_key, cstate, jnp.ones(self.config.num_agents, bool))
        weights = fresh_weights(self.rule, rule_key)
        keys = jax.random.split(begin_key, self.config.num_agents)
        agents = jax.vmap(self.begin, (0, None, 0))(keys, hyper, batch.params)
        optimizer = self.meta_optimizer.init(weights, hyper.learning_rate)
        return MetaState(key, hyper, env_params, jnp.int32(0), weights, optimizer, agents, batch, cstate)

    def judged(self, critic: Any, rollout: Rollout, hyper: MetaHyper) -> tuple[Array, Array]:
        """`(values, advantages A)`, (T, N) each, of a rollout."""

        def value(obs: Any) -> Array:
            values: Any = self.judge.apply(critic, obs)
            return values[..., 0]

        values, steps = value(rollout.obs), rollout.steps
        following = successor_values(value, values, rollout.last_obs, steps.next_obs, steps.truncated)
        ends = steps.terminated, steps.truncated
        return values, gae(steps.reward, values, following, *ends, hyper.gamma, hyper.gae_lambda)

    def corrected(self, critic: Any, optimizer: OptimizerState, rollout: Rollout, hyper: MetaHyper) -> tuple[Any, Any]:
        """`(critic, optimizer)` after a gradient step towards the returns of a rollout."""

        def loss(critic: Any) -> Array:
            values, advantage = self.judged(critic, rollout, hyper)
            return jnp.mean((values - jax.lax.stop_gradient(advantage + values)) ** 2)

        flat, unravel = ravel_pytree(critic)
        flat, optimizer, _ = self.parts.optimizer.descend(
            flat, optimizer, jax.grad(loss)(critic), hyper.critic_learning_rate, hyper.agent.max_grad_norm
        )
        return unravel(flat), optimizer

    def objective(
        self, weights: Any, one_agent: Agents, hyper: MetaHyper
    ) -> tuple[Array, tuple[Agents, dict[str, Array]]]:
        """`(J, (agent, metrics))` of one agent after K updates by the rule with these weights."""

        def learn_from(rollout: Rollout, acting: Any, agent: Agents) -> tuple[Agents, Any]:
            state = acting.replace(weights=agent.state.weights, optimizer=agent.state.optimizer)
            state = state.replace(hyper=state.hyper.replace(rule=weights))
            after, metrics, weighed = self.parts.taught(state, rollout, self.config.held_inputs)
            said = self.parts.outputs(after.weights, rollout.obs)
            weighed["policy_entropy"] = jnp.mean(self.parts.distribution(said["logits"]).entropy())
            if "y" in said:  # LPG's predictions are categorical
                weighed["prediction_entropy"] = jnp.mean(Categorical(said["y"]).entropy())
            alive = state.updates < state.hyper.lifetime

            def kept(name: str) -> Any:  # an agent whose life is over stays as it is
                return jax.tree.map(lambda x, y: jnp.where(alive, x, y), getattr(after, name), getattr(state, name))

            after = after.replace(**{name: kept(name) for name in ("weights", "optimizer", "updates")})
            after = after.replace(hyper=after.hyper.replace(rule=()))
            judge_after = self.corrected(agent.critic, agent.critic_optimizer, rollout, hyper)
            critic, seen = jax.lax.stop_gradient((judge_after, {name: metrics[name] for name in OF_EPISODES}))
            return Agents(after, *critic), (weighed, seen)

        learn_from = jax.checkpoint(learn_from) if self.remat else learn_from

        def one(agent: Agents, _: None) -> tuple[Agents, Any]:
            acting, rollout = jax.lax.stop_gradient(self.parts.collect(jax.lax.stop_gradient(agent.state)))
            return learn_from(rollout, acting, agent)

        after, (weighed, seen) = jax.lax.scan(one, one_agent, None, self.config.num_updates)
        acting, rollout = jax.lax.stop_gradient(self.parts.collect(jax.lax.stop_gradient(after.state)))
        pi = self.parts.distribution(self.parts.logits(after.state.weights, rollout.obs))
        _, advantage = self.judged(after.critic, rollout, hyper)
        means = jax.tree.map(jnp.mean, weighed)
        loss = self.policy_loss(pi.log_prob(rollout.action), jax.lax.stop_gradient(advantage))
        total = loss - hyper.policy_entropy * means["policy_entropy"]
        total -= hyper.prediction_entropy * means.get("prediction_entropy", 0.0)
        total += hyper.pi_hat_l2 * means.get("pi_hat_l2", 0.0) + hyper.y_hat_l2 * means.get("y_hat_l2", 0.0)
        critic, optimizer = self.corrected(after.critic, after.critic_optimizer, rollout, hyper)
        state = acting.replace(weights=after.state.weights, optimizer=after.state.optimizer)
        metrics = {"loss": total, "policy_loss": loss, **means, **{name: jnp.nanmean(x) for name, x in seen.items()}}
        metrics["episodes"] = jnp.sum(seen["episodes"])
        return total, (Agents(state, critic, optimizer), metrics)

    def gradient(self, weights: Any, agents: Agents, hyper: MetaHyper) -> tuple[Any, Agents, dict[str, Array]]:
        """The mean gradient of some agents' objectives, the agents afterwards, and their metrics."""

        def mean(weights: Any) -> tuple[Array, Any]:
            each, after = jax.vmap(self.objective, (None, 0, None))(weights, agents, hyper)
            return jnp.mean(each), after

        grads, (agents, metrics) = jax.grad(mean, has_aux=True)(weights)
        return grads, agents, metrics

    def in_groups(self, weights: Any, agents: Agents, hyper: MetaHyper) -> tuple[Any, Agents, dict[str, Array]]:
        """`gradient` of all agents, computed in groups of `at_once`."""
        n, at_once = self.config.num_agents, self.config.at_once
        if at_once in (0, n):
            return self.gradient(weights, agents, hyper)
        groups = jax.tree.map(lambda x: x.reshape(n // at_once, at_once, *x.shape[1:]), agents)

        def add(total: Any, agents: Agents) -> tuple[Any, tuple[Agents, dict[str, Array]]]:
            grads, agents, metrics = self.gradient(weights, agents, hyper)
            return jax.tree.map(jnp.add, total, grads), (agents, metrics)

        grads, after = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, weights), groups)
        grads = jax.tree.map(lambda x: x * (at_once / n), grads)
        return grads, *jax.tree.map(lambda x: x.reshape(n, *x.shape[2:]), after)

    def learn(self, state: MetaState, lives: Lives) -> tuple[MetaState, dict[str, Array]]:
        hyper = state.hyper
        key, begin_key = jax.random.split(state.key)
        grads, agents, metrics = self.in_groups(state.weights, state.agents, hyper)
        flat, unravel = ravel_pytree(state.weights)
        flat, optimizer, norm = self.meta_optimizer.descend(
            flat, state.optimizer, grads, hyper.learning_rate, hyper.max_grad_norm
        )
        report = {name: jnp.nanmean(x) for name, x in metrics.items()} | {"grad_norm": norm}
        report["episodes"] = jnp.sum(metrics["episodes"])
        state = state.replace(key=key, step=state.step + 1, weights=unravel(flat), optimizer=optimizer, agents=agents)
        return self.renewed(state, begin_key, report)

    def worth(self, key: Array, agent: Agents, hyper: MetaHyper) -> Array:
        """The final return of an agent, and that of the antagonist on the same level."""
        own_key, other_key = jax.random.split(key)
        state = agent.state
        own = final_return(self.taught_by_rule, state, own_key)
        if self.opponent is None:
            return jnp.stack([own, own])
        return jnp.stack([own, self.opponent(jax.random.split(other_key), state.hyper, state.env_params)])

    def renewed(self, state: MetaState, key: Array, report: dict[str, Array]) -> tuple[MetaState, dict[str, Array]]:
        """Evaluates the lives that are over and starts new ones in their place."""
        agents, hyper, n = state.agents, state.hyper, self.config.num_agents
        over = agents.state.updates >= agents.state.hyper.lifetime
        worth_key, update_key, sample_key, begin_key = jax.random.split(key, 4)

        def of_one(key: Array, agent: Agents) -> Array:
            return self.worth(key, agent, hyper)

        found = where_over(over, of_one, (jax.random.split(worth_key, n), agents), self.config.judged_at_once, (2,))
        own, other = found[:, 0], found[:, 1]
        score = jnp.where(over, own if self.opponent is None else other - own, -jnp.inf)
        zero = jnp.zeros_like(own)
        updates = agents.state.updates
        best = jnp.where(over, jnp.maximum(state.batch.max_return, own), -jnp.inf)
        outcomes = Outcomes(own, jnp.where(over, updates, zero), zero, score, best, over.astype(jnp.int32))

        def begun() -> Any:
            cstate = self.curriculum.update(
                update_key, with_curriculum_settings(state.curriculum, hyper), state.batch, outcomes
            )
            batch, cstate = self.curriculum.sample(sample_key, cstate, over)
            batch = rows_where(over, batch, state.batch)
            fresh = jax.vmap(self.begin, (0, None, 0))(jax.random.split(begin_key, n), hyper, batch.params)
            return rows_where(over, fresh, agents), batch, cstate

        agents, batch, cstate = rarely(over.any(), begun, (agents, state.batch, state.curriculum))
        lives = jnp.sum(over)

        def mean(x: Array) -> Array:
            return jnp.where(lives > 0, jnp.sum(jnp.where(over, x, 0)) / jnp.maximum(lives, 1), jnp.nan)

        report |= {"lives_over": lives, "final_return": mean(own)}
        report |= {} if self.opponent is None else {"regret": mean(other - own)}
        return state.replace(agents=agents, batch=batch, curriculum=cstate), report

    def algorithm(self) -> Algorithm:
        slots = ("agents.state.env_params", "agents.state.env_state", "agents.state.obs")
        return rule_learner(f"{self.rule.name}-learner", self, MetaHyper, self.parts.venv, slots)


def rule_learner(name: str, made: Any, hyper: Callable[..., Any], venv: VectorEnv, slots: tuple[str, ...]) -> Algorithm:
    """The Algorithm of a class with `rule`, `curriculum`, `config`, `agent_config`, `init` and `learn`."""

    def collect(state: Any) -> tuple[Any, Lives]:
        none = jnp.zeros((0, 0))
        return state, Lives(Ends(none > 0, none, none))

    def refuse(*args: Any, **settings: Any) -> Any:
        raise TypeError(f"A rule does not act: train an agent by it, jaxrl.meta.agent({made.rule.name!r} ...).")

    return Algorithm(
        name=name,
        config=Settings(made.config, made.agent_config),
        hyper=functools.partial(hyper, curriculum=made.curriculum.hyper),
        venv=venv,
        steps_per_update=1,
        init=made.init,
        collect=collect,
        learn=made.learn,
        policy=lambda state: state.weights,
        initial_carry=lambda batch_shape=(): (),
        act=refuse,
        restart=refuse,
        slots=slots,
        around=(made.curriculum.name, made.curriculum.settings),
    )


@shared
def learner(
    rule: UpdateRule,
    env: Environment,
    curriculum: Curriculum,
    config: MetaConfig = MetaConfig(),
    agent_config: AgentConfig = TABULAR,
    antagonist: Antagonist = None,
    lifetime_fn: Callable[[Array, Any], Array] | None = None,
    policy_loss: Callable[..., Array] = policy_gradient,
) -> Algorithm:
    """An Algorithm that learns `rule` on levels of `env`, by gradients through its agents' updates.

    `jaxrl.train`, `fit`, `sweep`, checkpoints and plots work as for any other. A step is a meta-update; weights and
    policy are those of the rule. The rule does not act: agents that learn by it do. `RuleLearner` has the parts.

    Args:
        curriculum: chooses levels, the params of one agent's environments; `dr.make(level_fn)` draws them at random.
            Its settings are the field `curriculum` of the learner's Hyper.
        antagonist: another rule, by which a second agent learns for a lifetime on each level where a life is over. The
            curriculum's score is the antagonist's return minus the agent's, GROOVE's algorithmic regret; None: it is
            the return of the agent. A function `level -> best return` makes it the exact regret.
        lifetime_fn: `(key, level) -> int32`, the number of an agent's updates; default: the level's `lifetime`. Where
            it draws less than 1, the life has one update. A life may be shorter than the K updates of a meta-update:
            the agent then stays as it is after its last, and the gradient goes through those that it made.
        policy_loss: `(log_prob, advantage) -> scalar`, with (T, N) each, the first term of J.
    """
    made = RuleLearner(rule, env, curriculum, config, agent_config, antagonist, lifetime_fn, policy_loss)
    return made.algorithm()
