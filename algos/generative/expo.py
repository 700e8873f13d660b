"""EXPO: a diffusion policy that only imitates, small edits that ascend the values, and the best of both acts.

Dong, Li, Sadigh and Finn (2025), "EXPO: stable reinforcement learning with expressive policies" (arXiv:2507.07986).
Gradients of values through the many steps of a diffusion are unstable, so that none are taken. The base policy is that
of `ddpm_bc.py`, fitted to all actions in the batches, those of a dataset and its own (`datasets.mixed`). An edit is
drawn from a tanh-normal e, given an observation and an action, times a scale beta. Whenever an action is needed, to
act as in targets, N base actions and the edits of some of them are drawn, and the best by the critics is taken:

    a_1, ..., a_N ~ base(s),    a_(N+i) = clip(a_i + beta e_i),  e_i ~ edit(s, a_i),    a* = argmax_i min_k Q'_k(s, a_i)
    critics   r + gamma (1 - terminated) min_k Q'_k(s', a*(s'))
    edit      mean alpha log edit(e | s, a) - mean_k Q_k(s, clip(a + beta e)),    (s, a) of the batch, e ~ edit(s, a)

Each minimum is over `num_target_critics` of the K critics, drawn anew for the choice and for its value, as in REDQ.
Ablations are settings: `num_edits=0` is the best of N imitated actions, as in IDQL; with `num_samples=1, num_edits=1`
an action and its edit are all there is to choose from; `num_samples=1, num_edits=0` clones.

Deviations from the released code (a fork was read, at its commit 673a4a7). There a target network of the base policy
acts, while the live one makes targets: here the live one does both, and has no target network; target critics choose in
both, as there. There edited actions leave the box, in the environment and in the critics: here they are clipped to it.
There the entropy is that of beta e, and its target -A/2, which no edit reaches where beta is below 0.30, so that alpha
grows without end (unless `adjust_target_entropy` is set): here it is that of e. The temperature's loss is log(alpha)
times the difference. Networks are plain, `flow_bc.Velocity` for the base, without its decay of the learning rate and of
weights. There 20 gradient steps follow each step of the environment, after the first 5,000: here `num_updates` and
`learning_starts` say, one and 1,000 by default. Critics do not see what is privileged, as they act. A greedy action is
the better of the base's without noise and its edit's median, by all critics; the policy is deployed by its samples.
Results: `experiments/expo`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.algos.generative.ddpm_bc import Diffusion, cloning_error
from jaxrl.algos.generative.flow_bc import Velocity
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree, visible
from jaxrl.nn.actor_critic import LOG_STD_MAX, LOG_STD_MIN
from jaxrl.nn.distributions import TanhNormal
from jaxrl.nn.losses import critic_loss, td_target, temperature_loss
from jaxrl.nn.nets import Nets, critic_values, init_critics
from jaxrl.nn.networks import MLP, Network, encode, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    num_critics: int = 10  # K
    num_target_critics: int = 2  # critics drawn for a choice or a target, which takes their smallest value
    num_samples: int = 8  # N, base actions to choose from
    num_edits: int = 8  # how many of these are edited, too; 0: none
    num_diffusion_steps: int = 10  # T, steps from noise to a base action
    policy_delay: int = 1  # gradient steps of the critics for one of base, edit and temperature
    hidden: tuple[int, ...] = (256, 256, 256)  # widths of all networks
    activation: str = "relu"  # of critics and edit; that of the base is silu
    layer_norm: bool = True  # in the critics

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_critics", "num_samples", "num_diffusion_steps", "policy_delay")
        if not 1 <= self.num_target_critics <= self.num_critics:
            raise ValueError(
                f"num_target_critics={self.num_target_critics}: it must be 1 to num_critics={self.num_critics}."
            )
        if not 0 <= self.num_edits <= self.num_samples:
            raise ValueError(f"num_edits={self.num_edits}: it must be 0 to num_samples={self.num_samples}.")


@pytree
class Hyper(learner.SoftHyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    edit_scale: jax.Array = 0.05  # beta, the largest edit in units of the box
    target_entropy: jax.Array = jnp.inf  # nats, of the edit in units of its scale; infinite: -A / 2


def edited(
    action: Float[Array, "*batch A"], edit: Float[Array, "*batch A"], scale: Float[Array, ""] | float
) -> Float[Array, "*batch A"]:
    """clip(a + beta e), in units of the box."""
    return jnp.clip(action + scale * edit, -1, 1)


def best_of(q: Float[Array, "n *batch"], actions: Float[Array, "n *batch A"]) -> Float[Array, "*batch A"]:
    """The one of n actions with the largest value; the first of a tie."""
    return jnp.take_along_axis(actions, jnp.argmax(q, 0)[None, ..., None], 0)[0]


def edit_loss(
    log_prob: Float[Array, " B"], q: Float[Array, "K B"], alpha: Float[Array, ""] | float
) -> Float[Array, ""]:
    """mean alpha log edit(e | s, a) - mean_k Q_k, as above."""
    return jnp.mean(alpha * log_prob - jnp.mean(q, 0))


class Edit(nn.Module):
    """`(mean, log_std)` (..., A) before tanh, of the vector of an observation and an action."""

    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, x: Float[Array, "*batch features"], action: Float[Array, "*batch A"]) -> tuple[Array, Array]:
        inputs = jnp.concatenate([x, action.astype(x.dtype)], -1)
        out = MLP(self.hidden, 2 * action.shape[-1], self.activation, out_scale=0.01)(inputs)
        return out[..., : action.shape[-1]], out[..., action.shape[-1] :]


class Critic(nn.Module):
    """Values (...) of an observation, without its privileged part, and an action."""

    observation_space: Space
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool

    @nn.compact
    def __call__(self, obs: Any, action: Float[Array, "*batch A"]) -> Float[Array, "*batch"]:
        x = encode(self.observation_space, visible(obs))
        inputs = jnp.concatenate([x, action.astype(x.dtype)], -1)
        return MLP(self.hidden, 1, self.activation, layer_norm=self.layer_norm)(inputs)[..., 0]


@dataclasses.dataclass(frozen=True)
class BestOf:
    """The policy that acts. Its weights: those of `actor` (the base), `edit` and `critic` (K of them), and beta."""

    config: Config
    base: Diffusion
    editor: Any  # a flax module as Edit
    critic: Any  # a flax module as Critic

    def edit(self, weights: Any, obs: Any, action: Float[Array, "*batch A"]) -> TanhNormal:
        mean, log_std = self.editor.apply(weights, encode(self.base.observation_space, visible(obs)), action)
        return TanhNormal(mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX))

    def judges(self, key: Array, weights: Any) -> Any:
        """`num_target_critics` of the critics, drawn without repetition."""
        drawn = jax.random.permutation(key, self.config.num_critics)[: self.config.num_target_critics]
        return jax.tree.map(lambda x: x[drawn], weights)

    def smallest(self, judges: Any, obs: Any, action: Float[Array, "*batch A"]) -> Float[Array, "*batch"]:
        return jnp.min(critic_values(self.critic, judges, visible(obs), action), 0)

    def candidates(self, weights: Any, key: Array, obs: Any) -> Float[Array, "n *batch A"]:
        """N base actions, then the edits of the first `num_edits` of them."""
        base_key, edit_key = jax.random.split(key)
        obs, edits = copies(visible(obs), self.config.num_samples), self.config.num_edits
        action = self.base.explore(weights["actor"], base_key, obs)
        if not edits:
            return action
        edit = self.edit(weights["edit"], jax.tree.map(lambda x: x[:edits], obs), action[:edits]).sample(edit_key)
        return jnp.concatenate([action, edited(action[:edits], edit, weights["edit_scale"])])

    def explore(self, weights: Any, key: Array, obs: Any, noise: Any = None) -> Float[Array, "*batch A"]:
        key, judges_key = jax.random.split(key)
        actions = self.candidates(weights, key, obs)
        if len(actions) == 1:
            return actions[0]
        judges = self.judges(judges_key, weights["critic"])
        return best_of(self.smallest(judges, copies(visible(obs), len(actions)), actions), actions)

    def mode(self, weights: Any, obs: Any) -> Float[Array, "*batch A"]:
        action = self.base.mode(weights["actor"], obs)
        if not self.config.num_edits:
            return action
        edit = self.edit(weights["edit"], obs, action).mode()
        actions = jnp.stack([action, edited(action, edit, weights["edit_scale"])])
        return best_of(self.smallest(weights["critic"], copies(visible(obs), 2), actions), actions)


def copies(obs: Any, n: int) -> Any:
    """Observations (n, ...), n times the same."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *jnp.shape(x))), obs)


# ---- the learning rule


@dataclasses.dataclass(frozen=True)
class _EXPO:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "edit", "log_alpha")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    policy: BestOf

    @property
    def critic(self) -> Any:
        return self.policy.critic

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        seen, policy = visible(obs), self.policy
        return {
            "critic": init_critics(policy.critic, keys["critic"], self.config.num_critics, seen, action),
            "actor": policy.base.init(keys["actor"], seen, action),
            "edit": policy.editor.init(keys["edit"], encode(policy.base.observation_space, seen), action),
            "log_alpha": jnp.log(hyper.alpha),
        }

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics on the best next action's value, the base by imitation, the edit, the temperature."""
        critic, actor, edit, log_alpha = (nets[name] for name in self.networks)
        next_key, judges_key, base_key, edit_key = jax.random.split(key, 4)
        settings, obs, policy = (hyper.learning_rate, hyper.max_grad_norm), visible(batch.obs), self.policy
        acting = {"actor": actor.weights, "edit": edit.weights, "critic": critic.target}
        acting["edit_scale"] = hyper.edit_scale

        next_action = policy.explore(acting, next_key, batch.next_obs)
        next_value = policy.smallest(policy.judges(judges_key, critic.target), batch.next_obs, next_action)
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(policy.critic, weights, obs, batch.action)
            return critic_loss(q, target), {"q_value": jnp.mean(q), "q_deviation": jnp.mean(jnp.std(q, 0))}

        critic, report = critic.descend(critic_objective, *settings)

        def base_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            return cloning_error(policy.base, weights, base_key, obs, batch.action), {}

        def edit_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            drawn, log_prob = policy.edit(weights, obs, batch.action).sample_and_log_prob(edit_key)
            q = critic_values(policy.critic, critic.weights, obs, edited(batch.action, drawn, hyper.edit_scale))
            return edit_loss(log_prob, q, jnp.exp(log_alpha.weights)), {"entropy": -jnp.mean(log_prob)}

        when = None if self.config.policy_delay == 1 else critic.count % self.config.policy_delay == 0
        actor, base_report = actor.descend(base_objective, *learner.actor_settings(hyper), when=when)
        edit, edit_report = edit.descend(edit_objective, *learner.actor_settings(hyper), when=when)
        usual = -0.5 * batch.action.shape[-1]
        target_entropy = jnp.where(jnp.isfinite(hyper.target_entropy), hyper.target_entropy, usual)

        def temperature_objective(weights: Array) -> tuple[Array, dict[str, Array]]:
            return temperature_loss(weights, edit_report["entropy"], target_entropy), {"alpha": jnp.exp(weights)}

        rate = hyper.alpha_learning_rate, hyper.max_grad_norm
        log_alpha, alpha_report = log_alpha.descend(temperature_objective, *rate, when=when)
        nets = {"critic": critic.track(hyper.tau), "actor": actor, "edit": edit, "log_alpha": log_alpha}
        return nets, {**report, **base_report, **edit_report, **alpha_report}


def deployed(state: learner.State) -> dict[str, Any]:
    """The weights of the `BestOf` of a state."""
    nets = {name: state.weights[name] for name in ("actor", "edit")}
    return {**nets, "critic": state.target_weights["critic"], "edit_scale": state.hyper.edit_scale}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    network: Network | None = None,
    edit: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """EXPO for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: usually `datasets.mixed`; a dataset, or what `datasets.stored` makes of one; None: the learner acts and
            fills a replay buffer.
        network: of the base policy, a flax module with the inputs and outputs of `flow_bc.Velocity`.
        edit: a flax module with the inputs and outputs of `Edit`.
        critic: a flax module from an observation without its privileged part and an action to values (...).
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or networks whose outputs do not fit,
    and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("expo", venv, Box, between_ends=True)
    network = own("network", network) or Velocity(config.hidden, "silu")
    base = Diffusion(network, obs_space, config.num_diffusion_steps, space.shape[0])
    editor = own("edit", edit) or Edit(config.hidden, config.activation)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    policy = BestOf(config, base, editor, critic)
    given = {"replay": replay, "optimizer": optimizer, "critic": critic, "num_critics": config.num_critics}
    rule = _EXPO(config, policy)
    return learner.algorithm("expo", venv, config, Hyper, rule, policy, **given, deploy=deployed, deployed="sampled")


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
