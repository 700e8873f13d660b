"""Learning an update rule by evolution strategies, from the returns after whole lives, without derivatives.

Salimans et al. (2017), arXiv:1703.03864, with the antithetic tasks of Jackson et al. (2024), arXiv:2402.05828: agents
that learn by the rules eta + sigma eps and eta - sigma eps have the same initial weights, level and random numbers, and
only the sign of the difference of their final returns is used. This finds rules that change over a life, which a
gradient through a few updates cannot see.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxrl.algorithm import SLOTS, Algorithm, check_at_least_one, shared
from jaxrl.curriculum.protocol import Curriculum, Outcomes
from jaxrl.environment import Environment, pytree, strongly_typed
from jaxrl.math import on_cpu
from jaxrl.meta.agent import TABULAR, AgentConfig, AgentHyper, agent
from jaxrl.meta.lifetimes import Lives, rule_learner, starting_with, with_curriculum_settings
from jaxrl.meta.lives import Antagonist, drawn_rates, lifetime_on, lived, other_return
from jaxrl.meta.rule import UpdateRule, fresh_weights
from jaxrl.nn.optim import Optimizer, OptimizerState, optimizer_of


@dataclasses.dataclass(frozen=True)
class StrategyConfig:
    """Static settings: each value compiles its own program."""

    num_pairs: int = 64  # pairs of antithetic rules, each pair on another level
    at_once: int = 0  # pairs that live at once; 0: all, but an eighth of them on CPUs. Short lives go together
    optimizer: str = "adam"  # of the rule

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_pairs")
        if self.at_once < 0 or (self.at_once and self.num_pairs % self.at_once):
            raise ValueError(f"at_once={self.at_once} does not divide num_pairs={self.num_pairs}.")

    @property
    def groups(self) -> int:
        """Into how many groups the pairs are parted on CPUs: at most eight, all equally large."""
        if self.at_once:
            return self.num_pairs // self.at_once
        return max(d for d in range(1, 9) if self.num_pairs % d == 0)


@pytree
class StrategyHyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-2
    decay: jax.Array = 0.999  # of the learning rate, each meta-update
    sigma: jax.Array = 0.1  # of the noise on the rule's weights
    agent: AgentHyper = AgentHyper()  # settings of all agents; `rule` and `lifetime` are replaced
    rate_spread: jax.Array = 0.0  # s: the learning rates of a pair are those of `agent` times exp(U(-s, s))
    curriculum: Any = None  # settings of the curriculum (its Hyper); None: those that it was made with


@pytree
class StrategyState:
    key: jax.Array
    hyper: StrategyHyper
    env_params: Any  # params of the level distribution
    env_state: Any  # (), as is `obs`: no agent lives between meta-updates
    obs: Any
    step: jax.Array  # meta-updates done
    weights: Any  # of the rule
    optimizer: OptimizerState
    curriculum: Any  # the state of the curriculum


def better(scores: Array) -> Array:
    """Of P pairs (P, 2), 1 where the first score is the larger, -1 where the second is, 0 where they are equal.

    Scores are means of returns: two that differ by their rounding alone are equal, or the order of a sum decided.
    """
    apart, size = scores[:, 0] - scores[:, 1], jnp.abs(scores).max(1)
    return jnp.where(jnp.abs(apart) > 32 * jnp.finfo(scores.dtype).eps * size, jnp.sign(apart), 0.0)


def pair_gradient(noise: Array, scores: Array, sigma: Array | float) -> Array:
    """The gradient estimate from P pairs: noise (P, D), and scores (P, 2) of the rules with noise added and subtracted.

    Fitness is 1 for the better rule of a pair and 0 for the other, 1/2 each if they are equal. The result is for
    gradient descent: it points away from better rules.
    """
    sign = better(scores)
    return -(sign @ noise) / (2 * sigma * noise.shape[0])


@dataclasses.dataclass(frozen=True)
class Strategy:
    """The static settings of `strategy`, which explains the fields; its methods are the Algorithm's functions."""

    rule: UpdateRule
    env: Environment
    curriculum: Curriculum
    config: StrategyConfig = StrategyConfig()
    agent_config: AgentConfig = TABULAR
    antagonist: Antagonist = None
    lifetime_fn: Callable[[Array, Any], Array] | None = None

    @functools.cached_property
    def agent(self) -> Algorithm:
        return agent(self.rule, self.env, self.agent_config)

    @functools.cached_property
    def opponent(self) -> Callable[[Any, AgentHyper, Any], Array] | None:
        return other_return(self.antagonist, self.env, self.agent_config)

    @functools.cached_property
    def optimizer(self) -> Optimizer:
        return optimizer_of(self.config.optimizer)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> StrategyState:
        hyper = starting_with(StrategyHyper, self.curriculum, hyper)
        env_params = strongly_typed(self.env.default_params if env_params is None else env_params)
        key, rule_key, curriculum_key = jax.random.split(key, 3)
        weights = fresh_weights(self.rule, rule_key)
        optimizer = self.optimizer.init(weights, hyper.learning_rate)
        cstate = self.curriculum.init(curriculum_key, hyper.curriculum, env_params)
        return StrategyState(key, hyper, env_params, (), (), jnp.int32(0), weights, optimizer, cstate)

    def lifetime(self, key: Array, level: Any) -> Array:
        """How many updates the lives on a level have."""
        return lifetime_on(level, jax.random.split(key, 4)[0], self.lifetime_fn)

    def scored(self, key: Array, pair: tuple[Any, Any], level: Any, hyper: StrategyHyper) -> tuple[Array, Array]:
        """Final returns on a level: (2,) of the agents of a pair of rules, and that of the antagonist."""
        _, own_key, other_key, rates_key = jax.random.split(key, 4)
        settings = drawn_rates(rates_key, hyper.agent, hyper.rate_spread)
        settings = settings.replace(rule=None, lifetime=self.lifetime(key, level))
        own_keys, other_keys = jax.random.split(own_key), jax.random.split(other_key)

        def one(weights: Any) -> Array:
            return lived(self.agent, own_keys, settings.replace(rule=weights), level)

        own = jax.vmap(one)(jax.tree.map(lambda *both: jnp.stack(both), *pair))
        return own, own.mean() if self.opponent is None else self.opponent(other_keys, settings, level)

    def all_scored(self, keys: Array, of_pair: Callable[[Any], Any], inputs: Any, levels: Any) -> Any:
        """`of_pair` of all rows of `inputs`, whose lives are of different lengths.

        Lives that are simulated together take as long as the longest of them. So they are sorted by their lengths and
        parted into groups, one after the other: of lives of 10 to 250 updates, log-uniform, an eighth at once takes a
        third of the updates. An accelerator, which does many lives in the time of one, takes all together: best up to
        some hundred pairs, and of 4,096 on an H200 512 at once took 0.42 of the time.
        """

        def together(inputs: Any, groups: int) -> Any:
            if groups == 1:
                return jax.vmap(of_pair)(inputs)
            order = jnp.argsort(jax.vmap(self.lifetime)(keys, levels))
            rows = jax.tree.map(lambda x: x[order].reshape(groups, -1, *x.shape[1:]), inputs)
            found = jax.lax.map(jax.vmap(of_pair), rows)
            back = jnp.argsort(order)
            return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[back], found)

        few = functools.partial(together, groups=self.config.groups)
        many = few if self.config.at_once else functools.partial(together, groups=1)
        return on_cpu(few, many, inputs)

    def learn(self, state: StrategyState, lives: Lives) -> tuple[StrategyState, dict[str, Array]]:
        hyper, n = state.hyper, self.config.num_pairs
        key, noise_key, sample_key, life_key, update_key = jax.random.split(state.key, 5)
        flat, unravel = ravel_pytree(state.weights)
        batch, cstate = self.curriculum.sample(
            sample_key, with_curriculum_settings(state.curriculum, hyper), jnp.ones(n, bool)
        )
        noise = jax.random.normal(noise_key, (n, flat.size), flat.dtype)

        def of_pair(inputs: Any) -> tuple[Array, Array]:
            key, noise, level = inputs
            pair = unravel(flat + hyper.sigma * noise), unravel(flat - hyper.sigma * noise)
            return self.scored(key, pair, level, hyper)

        keys = jax.random.split(life_key, n)
        scores, other = self.all_scored(keys, of_pair, (keys, noise, batch.params), batch.params)
        grads = unravel(pair_gradient(noise, scores, hyper.sigma))
        rate = hyper.learning_rate * hyper.decay**state.step
        flat, after, norm = self.optimizer.descend(flat, state.optimizer, grads, rate)
        mean, zero = scores.mean(1), jnp.zeros(n)
        score = mean if self.opponent is None else other - mean
        best = jnp.maximum(batch.max_return, scores.max(1))
        outcomes = Outcomes(mean, zero, zero, score, best, jnp.ones(n, jnp.int32))
        cstate = self.curriculum.update(update_key, cstate, batch, outcomes)
        report = {
            "episode_return": scores.mean(),  # of the last episodes of every life
            "episode_length": jnp.nan,
            "episodes": jnp.int32(2 * n * self.agent_config.num_envs),
            "final_return": scores.mean(),
            "loss": -scores.mean(),
            "grad_norm": norm,
            "pairs_apart": jnp.mean(better(scores) != 0),
        }
        report |= {} if self.opponent is None else {"regret": score.mean()}
        state = state.replace(key=key, step=state.step + 1, weights=unravel(flat), optimizer=after, curriculum=cstate)
        return state, report

    def algorithm(self) -> Algorithm:
        return rule_learner(f"{self.rule.name}-strategy", self, StrategyHyper, self.agent.venv, SLOTS)


@shared
def strategy(
    rule: UpdateRule,
    env: Environment,
    curriculum: Curriculum,
    config: StrategyConfig = StrategyConfig(),
    agent_config: AgentConfig = TABULAR,
    antagonist: Antagonist = None,
    lifetime_fn: Callable[[Array, Any], Array] | None = None,
) -> Algorithm:
    """An Algorithm that learns `rule` on levels of `env` by the returns of agents at the ends of their lives.

    A step is a meta-update. Arguments are those of `lifetimes.learner`. Lives begin and end within a meta-update. The
    score of a level is the antagonist's return minus the pair's mean return.
    """
    return Strategy(rule, env, curriculum, config, agent_config, antagonist, lifetime_fn).algorithm()
