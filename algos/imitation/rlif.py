"""RLIF: reinforcement learning from interventions. That the expert takes over is the only reward, a negative one.

Luo, Dong, Zhai, Ma and Levine (2024), "RLIF: interactive imitation learning as reinforcement learning" (ICLR,
arXiv:2311.12996), algorithm 1. The expert drives first, for `learning_starts` steps; these are demonstrations. Then the
learner drives, and where the expert takes over it does so for `expert_steps` steps. All steps of both are stored, with

    r = -1  for the learner's step that led to where the expert takes over,
    r =  0  for all others

and soft actor-critic learns from them; the task's own reward is not read. HG-DAgger imitates what the expert does, and
at best does as well; RLIF avoids what makes the expert act, and may end up better than it.

The learner is RLPD's (Ball et al. 2023, "Efficient online reinforcement learning with offline data"), as in the
authors' code: K critics with layer norms regress on one target, the smallest of a few of them drawn for each batch,

    y = r + gamma (1 - terminated) E_a' [min over M of K of Q'_k(s', a')]

without the entropy, which only the actor's objective has: E_a [mean_k Q_k(s, a) - alpha log pi(a | s)]. The expectation
is one sample of a tanh-normal for a Box, and exact for Discrete actions, of which the authors have none.

A person takes over where they see fit. Here a rule stands for them, which `Config.takeover` names: by "value", where
the learner's action is worth less to the expert than its own by more than `threshold` (`interventions.by_value`), or at
"random".

Deviations from the authors' code, of which three are faults there (`docs/errata.md`): it loses the last transition of
every episode, and stores none of the expert's steps but the last; its expert takes over where Q(s, a) < c Q(s, a*),
which of negative values means the opposite. Values are those of the expert's own actions, by rollouts in the
environment or as `Actor.value` says, where theirs are a trained critic's, of the expert or of a better policy.
Demonstrations are driven here, not read from a file. The first step of an episode is the learner's.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.actors import Actor as Expert
from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.algos.actor_critic.sac import LOG_STD_MIN, default_target_entropy
from jaxrl.data.transitions import Batch, Transition
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.actor_critic import Actor, Critic, Softmax, TanhGaussian
from jaxrl.nn.distributions import Categorical
from jaxrl.nn.losses import critic_loss, td_target, temperature_loss
from jaxrl.nn.nets import Nets, critic_values, init_critics
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import interventions, learner
from jaxrl.off_policy.interventions import Steps, Takeover, Trigger
from jaxrl.replay.ring import Kept
from jaxrl.spaces import Box, Discrete, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    layer_norm: bool = True  # in the critics
    num_critics: int = 10  # K
    num_min: int = 2  # M, critics of which a target takes the smallest value
    takeover: str = "value"  # when the expert takes over: by "value" or at "random"
    expert_steps: int = 4  # that it then drives
    horizon: int = 50  # steps of the rollouts by which it judges actions

    def __post_init__(self) -> None:
        super().__post_init__()
        interventions.check_takeover(self)
        check_at_least_one(self, "num_critics")
        if not 1 <= self.num_min <= self.num_critics:
            raise ValueError(
                f"num_min={self.num_min}: it must be at least 1 and at most num_critics={self.num_critics}."
            )


@pytree
class Hyper(learner.SoftHyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    threshold: jax.Array = 0.0  # by value: how much less than the expert's the learner's action may be worth
    lapse_prob: jax.Array = 0.05  # by value: probability with which the expert does the opposite
    takeover_prob: jax.Array = 0.1  # at random: of taking over, after each step of the learner


def intervention_reward(steps: Steps) -> Float[Array, "*batch"]:
    """-1 for the learner's steps after which the expert takes over, 0 for all others."""
    return -steps.taken_over.astype(steps.reward.dtype)


def least_of_some(key: Array, q: Float[Array, "K *batch"], num_min: int) -> Float[Array, "*batch"]:
    """The smallest value of `num_min` critics that are drawn without replacement (Chen et al. 2021, REDQ)."""
    return jnp.min(q[jax.random.permutation(key, len(q))[:num_min]], 0)


@dataclasses.dataclass(frozen=True)
class _RLIF:
    """The learning rule, an `interventions.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    action_space: Space
    observation_space: Space
    critic: Any  # a flax module
    actor: TanhGaussian | Softmax

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        inputs = (obs,) if isinstance(self.action_space, Discrete) else (obs, action)
        return {
            "critic": init_critics(self.critic, keys["critic"], self.config.num_critics, *inputs),
            "actor": self.actor.init(keys["actor"], obs),
            "log_alpha": jnp.log(hyper.alpha),
        }

    def kept(self, steps: Steps) -> Kept:
        """All steps, of both, with the interventions as reward."""
        rewarded = Transition(steps.obs, steps.action, intervention_reward(steps), steps.terminated, steps.next_obs)
        return Kept(rewarded, jnp.ones_like(steps.by_expert))

    def expected(self, actor_weights: Any, critic_weights: Any, key: Array, obs: Any) -> tuple[Any, Any, Any]:
        """`(q (K, B, ...), log_prob (B, ...), probabilities (B, ...))` of the policy's actions at `obs`: of all
        Discrete ones, or of a sample, whose probability is 1."""
        pi = self.actor(actor_weights, obs)
        if isinstance(pi, Categorical):
            log_prob = jax.nn.log_softmax(pi.logits)
            return critic_values(self.critic, critic_weights, obs), log_prob, jnp.exp(log_prob)
        action, log_prob = pi.sample_and_log_prob(key)
        return critic_values(self.critic, critic_weights, obs, action), log_prob, jnp.ones_like(log_prob)

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics, the actor, the temperature, the target critics."""
        critic, actor, log_alpha = (nets[name] for name in self.networks)
        next_key, some_key, actor_key = jax.random.split(key, 3)
        settings, alpha = (hyper.learning_rate, hyper.max_grad_norm), jnp.exp(log_alpha.weights)
        discrete = isinstance(self.action_space, Discrete)

        def mean(x: Array) -> Array:
            return jnp.sum(x, -1) if discrete else x

        next_q, _, share = self.expected(actor.weights, critic.target, next_key, batch.next_obs)
        next_value = mean(share * least_of_some(some_key, next_q, self.config.num_min))
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            if discrete:
                q = critic_values(self.critic, weights, batch.obs)
                q = jnp.sum(jnp.where(jnp.arange(q.shape[-1]) == batch.action[:, None], q, 0), -1)
            else:
                q = critic_values(self.critic, weights, batch.obs, batch.action)
            return critic_loss(q, target), {"q_value": jnp.mean(q)}

        critic, critic_report = critic.descend(critic_objective, *settings)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q, log_prob, share = self.expected(weights, critic.weights, actor_key, batch.obs)
            entropy = -jnp.mean(mean(share * log_prob))
            return -jnp.mean(mean(share * jnp.mean(q, 0))) - alpha * entropy, {"entropy": entropy}

        actor, actor_report = actor.descend(actor_objective, *learner.actor_settings(hyper))
        mask = split_observation(batch.obs, self.observation_space)[2]
        usual = jnp.asarray(default_target_entropy(self.action_space, mask), hyper.target_entropy.dtype)
        target_entropy = jnp.where(jnp.isfinite(hyper.target_entropy), hyper.target_entropy, usual)

        def temperature_objective(weights: Array) -> tuple[Array, dict[str, Array]]:
            return temperature_loss(weights, actor_report["entropy"], target_entropy), {"alpha": alpha}

        rate = hyper.alpha_learning_rate, hyper.max_grad_norm
        log_alpha, alpha_report = log_alpha.descend(temperature_objective, *rate)
        nets = {"critic": critic.track(hyper.tau), "actor": actor, "log_alpha": log_alpha}
        return nets, {**critic_report, **actor_report, **alpha_report}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    expert: Expert | None = None,
    trigger: Trigger = interventions.by_value,
    actor: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """RLIF for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        expert: who takes over, as `actors.of_policy(algo, policy)`, `actors.scripted(env)` or
            `actors.of_function(act)`; required.
        trigger: with `config.takeover` "value", where it takes over, from the values of both actions.
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` of actions before
            tanh, (..., A) each, or to logits (..., n).
        critic: a flax module from a whole observation and an action to values (...), or from the observation to values
            (..., n); there will be `config.num_critics` of them.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError without an expert and for one that does not act here, for an action space that is neither a vector
    nor Discrete, several agents, levels, or networks whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("rlif", venv, Box, Discrete, between_ends=True)
    actions, sizes = space.n if isinstance(space, Discrete) else None, (config.hidden, config.activation)
    actor = own("actor", actor) or Actor(obs_space, space, *sizes, spread=True)
    critic = own("critic", critic) or Critic(obs_space, *sizes, config.layer_norm, actions)
    acting = Softmax(actor, obs_space) if actions else TanhGaussian(actor, LOG_STD_MIN)
    rule = _RLIF(config, space, obs_space, critic, acting)
    takeover = Takeover(config.takeover, trigger, config.horizon)
    given = {"optimizer": optimizer, "critic": critic, "num_critics": config.num_critics}
    return interventions.algorithm("rlif", venv, config, Hyper, rule, acting, expert, takeover, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
