"""Learning a rule of DiscoRL's kind: a gradient through agents that learn by it.

Oh et al. (2025), "Discovering state-of-the-art reinforcement learning algorithms", Nature. A few agents learn by one
rule. A meta-update lets each make K updates (`disco`'s own: acting, replay, a step by the rule), looks at what its
policy then does in a rollout twice as long, and moves the rule's weights down the gradient, through the K updates, of

    J(eta) = E[ -log pi_K(a|s) A - b_pi H(pi_K) - b_pred (H(y) + H(z(a)))
                + b_mean (mean pi_hat)^2 + ... of y_hat, z_hat + b_kl KL(pi_target || pi_hat) ]

with A the normalised advantages by a critic of the agent's own. An agent whose life is over begins anew, on another
level if the environment has any; the first lives end one after the other, so that the rule always has agents of all
ages. A step is a meta-update, the weights are those that `disco_rule.save` writes and `Config(weights=path)` learns by.

The objective, its coefficients, K = 2 and the double rollout are the authors' (`colabs/meta_train.ipynb` of disco_rl at
commit 9059a29). Deviations: what is judged is played by the policy after the K updates, and each update's rollout by
the one before it, where the colab plays all of it with the first one and corrects by V-trace; agents end, which there
live for the whole run; the critic is as in `jaxrl.meta.lifetimes`, with GAE of plain rewards, where theirs has
squashed values and moving averages; the rule's gradient is clipped.

No rule that teaches has been learned by it yet: in 520 meta-updates on Catch (`experiments/disco/learn.py`, rule's rate
3e-3, agents' 5e-3, a minute of one core) the agents' return stayed at -0.6, a random policy's.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, check_at_least_one, shared, starting_hyper
from jaxrl.algos.meta import disco
from jaxrl.algos.meta.disco_rule import Outputs, RuleConfig, chosen, fresh_rule
from jaxrl.environment import Environment, pytree, strongly_typed
from jaxrl.math import rarely
from jaxrl.meta.agent import Body
from jaxrl.meta.lifetimes import OF_EPISODES, Lives, policy_gradient
from jaxrl.nn.distributions import Categorical
from jaxrl.nn.optim import Optimizer, OptimizerState, optimizer_of
from jaxrl.returns import gae
from jaxrl.rollout import Ends
from jaxrl.vector_env import rows_where

LEARNED = ("weights", "target", "optimizer", "memory", "replay")
"""Of an agent's state, what an update changes; the gradient goes through all but the replay."""

SMALL = disco.Config(
    num_envs=16,
    num_steps=16,
    batch_size=16,
    buffer_size=32,
    hidden=(32, 32),
    model_size=16,
    model_hidden=(16,),
    num_bins=31,
    max_value=3.0,
    predictions=16,
    features=32,
    memory=32,
)
"""Agents, and with them a rule, of a size that a CPU learns in minutes."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_agents: int = 4
    num_updates: int = 2  # of each agent that the gradient goes through
    remat: bool = True  # keep only what lies between updates, and compute them again on the way back
    optimizer: str = "adam"  # of the rule

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_agents", "num_updates")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-3  # of the rule
    max_grad_norm: jax.Array = 1.0  # of the rule's gradient
    lifetime: jax.Array = 100  # updates of an agent's life, at least
    gamma: jax.Array = 0.99  # of the advantages that the rule is judged by
    gae_lambda: jax.Array = 0.96
    critic_learning_rate: jax.Array = 1e-3  # of the agents' critics that these need
    policy_entropy: jax.Array = 1e-2  # b_pi
    prediction_entropy: jax.Array = 1e-3  # b_pred
    target_mean: jax.Array = 1e-3  # b_mean
    target_kl: jax.Array = 1e-2  # b_kl
    agent: disco.Hyper = disco.Hyper()  # settings of every agent, but for its rule


class Agents(NamedTuple):
    """Leaves have a leading axis of agents."""

    state: Any  # of `disco`, without a rule
    critic: Any  # weights of the critic that judges
    critic_optimizer: OptimizerState
    age: Array  # int32, updates done


@pytree
class TrainingState:
    key: jax.Array
    hyper: Hyper
    env_params: Any  # what levels are drawn of
    step: jax.Array  # meta-updates done
    weights: Any  # of the rule
    optimizer: OptimizerState
    agents: Agents

    @property
    def env_state(self) -> Any:
        """Of the agents' environments, (agents, N, ...)."""
        return self.agents.state.env_state

    @property
    def obs(self) -> Any:
        """What the agents see, (agents, N, ...)."""
        return self.agents.state.obs


@dataclasses.dataclass(frozen=True)
class Settings:
    """The static settings of a meta-learner and of its agents."""

    learner: Config
    agent: disco.Config


def regulariser(said: Outputs, action: Array, report: dict[str, Array], hyper: Hyper) -> Float[Array, ""]:
    """What J has beside the policy gradient.

    Args:
        said: in the rollout that is judged, leading axes (T, N).
        report: of the K updates, leaves (K,).
    """
    policy = jnp.mean(Categorical(said.logits).entropy())
    predictions = jnp.mean(Categorical(said.y).entropy()) + jnp.mean(Categorical(chosen(said.z, action)).entropy())
    means = sum(jnp.mean(jnp.square(report[name])) for name in ("pi_hat", "y_hat", "z_hat"))
    total = hyper.target_mean * means + hyper.target_kl * jnp.mean(report["target_kl"])
    return total - hyper.policy_entropy * policy - hyper.prediction_entropy * predictions


@dataclasses.dataclass(frozen=True)
class RuleLearner:
    """The static half; its methods are the Algorithm's functions."""

    env: Environment
    config: Config
    agent_config: disco.Config

    @functools.cached_property
    def pupil(self) -> Any:
        """The functions of an agent."""
        learn: Any = disco.make(self.env, self.agent_config).learn
        return learn.__self__

    @functools.cached_property
    def judged_pupil(self) -> Algorithm:
        """The agent whose rollouts are twice as long."""
        return disco.make(self.env, dataclasses.replace(self.agent_config, num_steps=2 * self.agent_config.num_steps))

    @functools.cached_property
    def judge(self) -> Body:
        """The critic of an agent that its rule is judged by."""
        return Body(self.pupil.observation_space, 1, self.agent_config.hidden, "relu", privileged=True)

    @functools.cached_property
    def optimizer(self) -> Optimizer:
        return optimizer_of(self.config.optimizer)

    @functools.cached_property
    def critic_optimizer(self) -> Optimizer:
        return optimizer_of("adam")

    @property
    def rule(self) -> RuleConfig:
        return self.agent_config.rule

    def begin(self, key: Array, hyper: Hyper, env_params: Any, age: Array) -> Agents:
        """One agent, on a level of its own."""
        level_key, agent_key, critic_key = jax.random.split(key, 3)
        generate = None if self.env.levels is None else self.env.levels.generate
        level = env_params if generate is None else generate(level_key, env_params)
        state = self.pupil.init(agent_key, hyper.agent.replace(rule=()), level)
        critic = self.judge.init(critic_key, jax.tree.map(lambda x: x[0], state.obs))
        critic = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), critic)
        return Agents(state, critic, self.critic_optimizer.init(critic, hyper.critic_learning_rate), age)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> TrainingState:
        hyper = starting_hyper(Hyper, hyper)
        env_params = strongly_typed(self.env.default_params if env_params is None else env_params)
        key, rule_key, begin_key = jax.random.split(key, 3)
        weights, n = fresh_rule(rule_key, self.rule), self.config.num_agents
        ages = jnp.arange(n) * hyper.lifetime // n
        begin = jax.vmap(self.begin, (0, None, None, 0))
        agents = begin(jax.random.split(begin_key, n), hyper, env_params, ages.astype(jnp.int32))
        optimizer = self.optimizer.init(weights, hyper.learning_rate)
        return TrainingState(key, hyper, env_params, jnp.int32(0), weights, optimizer, agents)

    def advantages(self, critic: Any, rollout: disco.Rollout, hyper: Hyper) -> tuple[Array, Array]:
        """`(values, advantages)`, (T, N) each. An episode that was cut short has ended, as for the rule."""

        def value(obs: Any) -> Array:
            values: Any = self.judge.apply(critic, obs)
            return values[..., 0]

        seen, values = rollout.seen, value(rollout.obs)
        ends = seen.done, jnp.zeros_like(seen.done)
        return values, gae(seen.reward, values, value(rollout.next_obs), *ends, hyper.gamma, hyper.gae_lambda)

    def corrected(
        self, critic: Any, optimizer: OptimizerState, rollout: disco.Rollout, hyper: Hyper
    ) -> tuple[Any, OptimizerState]:
        """The critic, and the state of its optimiser, after a step towards the returns of a rollout."""

        def loss(critic: Any) -> Array:
            values, advantage = self.advantages(critic, rollout, hyper)
            return jnp.mean((values - jax.lax.stop_gradient(advantage + values)) ** 2)

        flat, unravel = ravel_pytree(critic)
        rate = hyper.critic_learning_rate
        flat, optimizer, _ = self.critic_optimizer.descend(flat, optimizer, jax.grad(loss)(critic), rate)
        return unravel(flat), optimizer

    def objective(
        self, weights: Any, agent: Agents, hyper: Hyper
    ) -> tuple[Float[Array, ""], tuple[Agents, dict[str, Array]]]:
        """J of one agent after K updates by the rule with these weights, the agent then, and what to report."""
        told = ("pi_hat", "y_hat", "z_hat", "target_kl")

        def played(collect: Any, state: Any) -> tuple[Any, disco.Rollout]:
            acting, rollout = jax.lax.stop_gradient(collect(jax.lax.stop_gradient(state)))
            return acting.replace(**{name: getattr(state, name) for name in LEARNED}), rollout

        def one(agent: Agents, _: None) -> tuple[Agents, Any]:
            state, rollout = played(self.pupil.collect, agent.state)
            after, report = self.pupil.learn(state.replace(hyper=state.hyper.replace(rule=weights)), rollout)
            after = after.replace(hyper=after.hyper.replace(rule=()))
            critic = self.corrected(agent.critic, agent.critic_optimizer, rollout, hyper)
            seen = jax.lax.stop_gradient({name: report[name] for name in OF_EPISODES})
            return Agents(after, *critic, agent.age + 1), ({name: report[name] for name in told}, seen)

        one = jax.checkpoint(one) if self.config.remat else one
        after, (report, seen) = jax.lax.scan(one, agent, None, self.config.num_updates)
        state, rollout = played(self.judged_pupil.collect, after.state)
        said, action = self.pupil.outputs(state.weights, rollout.obs), rollout.seen.action
        _, advantage = self.advantages(after.critic, rollout, hyper)
        loss = policy_gradient(Categorical(said.logits).log_prob(action), jax.lax.stop_gradient(advantage))
        total = loss + regulariser(said, action, report, hyper)
        critic = self.corrected(after.critic, after.critic_optimizer, rollout, hyper)
        found = {name: jnp.nanmean(x) for name, x in seen.items()} | {"episodes": jnp.sum(seen["episodes"])}
        judged = rollout.ends.metrics()["episode_return"]
        found |= {"loss": total, "policy_loss": loss, "target_kl": jnp.mean(report["target_kl"]), "judged": judged}
        found["entropy"] = jnp.mean(Categorical(said.logits).entropy())
        return total, jax.lax.stop_gradient((Agents(state, *critic, after.age), found))

    def learn(self, state: TrainingState, lives: Lives) -> tuple[TrainingState, dict[str, Array]]:
        hyper, n = state.hyper, self.config.num_agents
        key, begin_key = jax.random.split(state.key)

        def mean(weights: Any) -> tuple[Array, Any]:
            each, after = jax.vmap(self.objective, (None, 0, None))(weights, state.agents, hyper)
            return jnp.mean(each), after

        grads, (agents, metrics) = jax.grad(mean, has_aux=True)(state.weights)
        flat, unravel = ravel_pytree(state.weights)
        flat, optimizer, norm = self.optimizer.descend(
            flat, state.optimizer, grads, hyper.learning_rate, hyper.max_grad_norm
        )
        over = agents.age >= hyper.lifetime
        judged = metrics.pop("judged")
        report = {name: jnp.nanmean(x) for name, x in metrics.items()} | {"grad_norm": norm}
        report |= {"episodes": jnp.sum(metrics["episodes"]), "lives_over": jnp.sum(over)}
        report["final_return"] = jnp.nanmean(jnp.where(over, judged, jnp.nan))

        def begun() -> Agents:
            begin = jax.vmap(self.begin, (0, None, None, None))
            fresh = begin(jax.random.split(begin_key, n), hyper, state.env_params, jnp.int32(0))
            return rows_where(over, fresh, agents)

        agents = rarely(over.any(), begun, agents)
        state = state.replace(key=key, step=state.step + 1, weights=unravel(flat), optimizer=optimizer)
        return state.replace(agents=agents), report


@shared
def make(env: Environment, config: Config = Config(), agent_config: disco.Config = SMALL) -> Algorithm:
    """An Algorithm that learns a DiscoRL rule, of the sizes that `agent_config` has, by agents on `env`.

    So `jaxrl.train`, `fit`, checkpoints and plots work as for any other. A step is a meta-update, the policy are the
    rule's weights: it does not act, agents do that learn by it. Levels are what `env.generate` draws, one for every
    life; without one all agents are on `env_params`.

    Raises ValueError for action spaces that are not Discrete and for several agents.
    """
    learner = RuleLearner(env, config, agent_config)

    def collect(state: TrainingState) -> tuple[TrainingState, Lives]:
        # Agents act while they are differentiated.
        none = jnp.zeros((0, 0))
        return state, Lives(Ends(none > 0, none, none))

    def refuse(*args: Any, **settings: Any) -> Any:
        raise TypeError("A rule does not act: save it, and train an agent by it, disco.Config(weights=path).")

    return Algorithm(
        name="disco-learner",
        config=Settings(config, agent_config),
        hyper=Hyper,
        venv=learner.pupil.venv,
        steps_per_update=1,
        init=learner.init,
        collect=collect,
        learn=learner.learn,
        policy=lambda state: state.weights,
        initial_carry=lambda batch_shape=(): (),
        act=refuse,
        restart=refuse,
        slots=("agents.state.env_params", "agents.state.env_state", "agents.state.obs"),
    )
