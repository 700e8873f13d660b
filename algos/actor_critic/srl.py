"""Sequence reinforcement learning (SRL): an actor that decides rarely, on a sequence of actions each time. For Boxes.

Patel and Siegelmann (2025), "Overcoming slow decision frequencies in continuous control: model-based sequence
reinforcement learning for model-free control" (arXiv:2410.08979). From one observation a recurrent network (GRU) gives
as many actions as are wanted,

    h_0 = f(s),    h_{k+1} = GRU(h_k, a_{k-1}),    a_k ~ tanh N(mean(h_{k+1}), std(h_{k+1})),    a_{-1} = 0

The critics are SAC's, of single steps (s, a), and so is their target: a sequence's first action is what would be done
at s'. A model learns s' from (s, a). For the actor it says where each action of a sequence will be taken ("temporal
recall"), so that every one of them is judged by the critics of single steps:

    maximise  1/J sum_{k<J} min_i Q_i(s_k, a_k) - alpha log pi(a_k),    s_0 = s,  s_{k+1} = model(s_k, a_k)

Model and critics are not needed to act. `Policy.length` is the number of actions that are done between two decisions, a
leaf: Config.sequence_length while it learns, any number after that (`jaxrl eval RUN --hold 1 2 4 8`).

The authors' code of it is not public, and this was written from a summary of the paper. Decided here: no gradient
passes from one action to the later states, since Q(s_k, a_k) counts them already; the model predicts differences of
observations and is fitted by the mean squared error, each number in units of its variance in the batch; SAC's
temperature, tuned to the mean entropy of an action; states after an imagined end count as all others.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, restarted, shared, spaces_of
from jaxrl.data.transitions import Batch, Transition
from jaxrl.environment import Environment, pytree, visible
from jaxrl.math import rarely
from jaxrl.nn.actor_critic import Critic
from jaxrl.nn.distributions import TanhNormal
from jaxrl.nn.losses import critic_loss, td_target, temperature_loss
from jaxrl.nn.nets import Nets, critic_values, init_critics
from jaxrl.nn.networks import MLP, Dense, Network, encode, encoded_size, orthogonal, own
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.nn.recurrent import Recurrent
from jaxrl.off_policy import learner, steps
from jaxrl.off_policy.steps import Rollout
from jaxrl.replay.ring import uniform
from jaxrl.rollout import rollout
from jaxrl.spaces import Box, Space, environment_action
from jaxrl.vector_env import VectorEnv

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0  # as in SAC


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    sequence_length: int = 8  # J, actions of a sequence, in the loss and while it acts to learn
    rnn_size: int = 64  # of the GRU

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "sequence_length", "rnn_size")


@pytree
class Hyper(learner.SoftHyper):
    """Dynamic settings: leaves, so vmap over any of them."""


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any  # of the actor
    length: Array  # actions that are done between two decisions, at least 1


class Plan(NamedTuple):
    """A sequence that is being done, leaves (*batch, ...)."""

    hidden: Array  # (*batch, H)
    action: Array  # (*batch, A), the last one, in units of the box
    done: Array  # (*batch,) actions of it that were done; below 0: none is being done


@pytree
class State(learner.State):
    plan: Any  # leaves (N, ...)


class SequenceActor(nn.Module):
    """The default policy network: `begin` reads an observation, `next` gives one action after another."""

    observation_space: Space
    action_space: Box
    hidden: tuple[int, ...]
    activation: str
    rnn_size: int

    def setup(self) -> None:
        self.trunk = MLP(self.hidden, self.rnn_size, self.activation)
        self.cell = Recurrent(self.rnn_size, "gru")
        self.head = Dense(2 * self.action_space.shape[0], kernel_init=orthogonal(0.01))

    def begin(self, obs: Any) -> Float[Array, "*batch H"]:
        """The hidden state before the first action."""
        return jnp.tanh(self.trunk(encode(self.observation_space, obs, privileged=False)))

    def next(
        self, hidden: Float[Array, "*batch H"], action: Float[Array, "*batch A"]
    ) -> tuple[Float[Array, "*batch H"], Float[Array, "*batch A"], Float[Array, "*batch A"]]:
        """`(hidden, mean, log_std)` of the action after `action`, zeros before the first; before tanh."""
        hidden, _ = self.cell(hidden, action[None], jnp.zeros((1, *hidden.shape[:-1]), bool))
        mean, log_std = jnp.split(self.head(hidden), 2, -1)
        return hidden, mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)

    def __call__(self, obs: Any) -> Any:
        hidden = self.begin(obs)
        return self.next(hidden, jnp.zeros((*hidden.shape[:-1], *self.action_space.shape)))


class Model(nn.Module):
    """The default model: the difference of the next observation, as a vector (..., D), to this one."""

    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, x: Float[Array, "... D"], action: Float[Array, "... A"]) -> Float[Array, "... D"]:
        inputs = jnp.concatenate([x, action], -1)
        return MLP(self.hidden, x.shape[-1], self.activation, out_scale=0.01)(inputs)


def soft_values(q: Float[Array, "K *batch"], log_prob: Float[Array, "*batch"], alpha: Any) -> Float[Array, "*batch"]:
    """min_k q[k] - alpha log_prob of actions that were sampled (Haarnoja et al. 2018, eq. 3)."""
    return jnp.min(q, 0) - alpha * log_prob


def model_loss(
    predicted: Float[Array, "B D"], obs: Float[Array, "B D"], next_obs: Float[Array, "B D"]
) -> Float[Array, ""]:
    """The mean squared error of the differences, each of the D numbers in units of its variance in the batch."""
    change = next_obs - obs
    return jnp.mean((predicted - change) ** 2 / (jnp.var(change, 0) + 1e-6))


@dataclasses.dataclass(frozen=True)
class _SRL:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha", "model")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    observation_space: Space
    critic: Any  # flax modules
    actor: Any
    model: Any
    num_actions: int  # A
    length: int  # J

    def vector(self, obs: Any) -> Float[Array, "... D"]:
        """A whole observation as the vector that critics and model see."""
        return encode(self.observation_space, obs, privileged=True)

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        return {
            "critic": init_critics(self.critic, keys["critic"], 2, self.vector(obs), action),
            "actor": self.actor.init(keys["actor"], visible(obs)),
            "log_alpha": jnp.log(hyper.alpha),
            "model": self.model.init(keys["model"], self.vector(obs), action),
        }

    def begin(self, weights: Any, obs: Any) -> tuple[Array, Array]:
        """`(hidden, action)` before the first action."""
        hidden: Any = self.actor.apply(weights, visible(obs), method="begin")
        return hidden, jnp.zeros((*hidden.shape[:-1], self.num_actions), hidden.dtype)

    def next(self, weights: Any, hidden: Array, action: Array) -> tuple[Array, TanhNormal]:
        """`(hidden, distribution of the next action)`."""
        hidden, mean, log_std = self.actor.apply(weights, hidden, action, method="next")
        return hidden, TanhNormal(mean, log_std)

    def sequence(
        self, actor: Any, model: Any, key: Array, obs: Any
    ) -> tuple[Float[Array, "J B D"], Float[Array, "J B A"], Float[Array, "J B"]]:
        """Where each action of a sequence will be taken, by the model; the actions; the logarithms of their density."""

        def step(carry: Any, key: Array) -> Any:
            hidden, action, x = carry
            hidden, pi = self.next(actor, hidden, action)
            action, log_prob = pi.sample_and_log_prob(key)
            change: Any = self.model.apply(model, x, jax.lax.stop_gradient(action))
            return (hidden, action, x + change), (x, action, log_prob)

        start = (*self.begin(actor, obs), self.vector(obs))
        return jax.lax.scan(step, start, jax.random.split(key, self.length))[1]

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics, the model, the actor on sequences that the model goes along, the temperature."""
        critic, actor, log_alpha, model = (nets[name] for name in self.networks)
        critic_key, actor_key = jax.random.split(key)
        settings, alpha = (hyper.learning_rate, hyper.max_grad_norm), jnp.exp(log_alpha.weights)
        x, next_x = self.vector(batch.obs), self.vector(batch.next_obs)

        _, pi = self.next(actor.weights, *self.begin(actor.weights, batch.next_obs))
        action, log_prob = pi.sample_and_log_prob(critic_key)
        next_q = critic_values(self.critic, critic.target, next_x, action)
        next_value = soft_values(next_q, log_prob, alpha)
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, x, batch.action)
            return 0.5 * critic_loss(q, target), {"q_value": jnp.mean(q)}

        critic, critic_report = critic.descend(critic_objective, *settings)

        def model_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            predicted: Any = self.model.apply(weights, x, batch.action)
            return model_loss(predicted, x, next_x), {}

        model, model_report = model.descend(model_objective, *settings)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            imagined, action, log_prob = self.sequence(weights, model.weights, actor_key, batch.obs)
            q = critic_values(self.critic, critic.weights, imagined, action)
            return -jnp.mean(soft_values(q, log_prob, alpha)), {"entropy": -jnp.mean(log_prob)}

        actor, actor_report = actor.descend(actor_objective, *learner.actor_settings(hyper))
        usual = -float(self.num_actions)
        target_entropy = jnp.where(jnp.isfinite(hyper.target_entropy), hyper.target_entropy, usual)

        def temperature_objective(weights: Array) -> tuple[Array, dict[str, Array]]:
            return temperature_loss(weights, actor_report["entropy"], target_entropy), {"alpha": alpha}

        rate = hyper.alpha_learning_rate, hyper.max_grad_norm
        log_alpha, alpha_report = log_alpha.descend(temperature_objective, *rate)
        nets = {"critic": critic.track(hyper.tau), "actor": actor, "log_alpha": log_alpha, "model": model}
        return nets, {**critic_report, **model_report, **actor_report, **alpha_report}


@dataclasses.dataclass(frozen=True)
class _Learner(learner.Learner):
    """The shell, which does a sequence to its end before it asks the actor again."""

    slots: ClassVar = ("replay", "plan")

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        begun = super().init(key, hyper, env_params)
        fields = {field.name: getattr(begun, field.name) for field in dataclasses.fields(begun)}
        return State(**fields, plan=self.initial_carry((self.config.num_envs,)))

    def restart(self, state: State, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> State:
        """Starts a new episode in the slots of `mask`, with a new decision."""
        state = restarted(self.venv, state, key, env_params, mask)
        return state.replace(plan=state.plan._replace(done=jnp.where(mask, -1, state.plan.done)))

    def collect(self, state: State) -> tuple[State, Rollout]:
        """A rollout of sequences; before `learning_starts` of random actions."""
        policy, at_random = self.policy(state), state.step < state.hyper.learning_starts

        def act(key: Array, obs: Any, plan: Plan) -> tuple[Array, Array, Plan]:
            act_key, random_key = jax.random.split(key)
            spaces = self.action_space, self.observation_space
            uniform = steps.random_action(random_key, *spaces, obs, self.venv.num_envs)
            plan = self.planned(policy, act_key, visible(obs), plan, greedy=False)
            action = jnp.where(at_random, uniform, plan.action)
            return environment_action(self.action_space, action), action, plan

        def ended(plan: Plan, done: Array) -> Plan:
            return plan._replace(done=jnp.where(done, -1, plan.done))

        state, plan, found = rollout(self.venv, state, self.config.num_steps, act, state.plan, ended)
        transition = Transition(found.obs, found.output, found.reward, found.terminated, found.next_obs)
        return state.replace(plan=plan), Rollout(transition, found.ends)

    def policy(self, state: State) -> Policy:
        return Policy(state.weights["actor"], jnp.int32(self.config.sequence_length))

    def slower(self, policy: Policy, steps: Any) -> Policy:
        """The policy with so many actions between two decisions."""
        return policy._replace(length=jnp.asarray(steps, jnp.int32))

    def planned(self, policy: Policy, key: Array, obs: Any, plan: Plan, greedy: bool) -> Plan:
        """The plan after its next action, of a new sequence where the last one is at its end."""
        fresh = (plan.done < 0) | (plan.done >= policy.length)

        def begun() -> tuple[Array, Array]:
            hidden, action = self.rule.begin(policy.weights, obs)
            return jnp.where(fresh[..., None], hidden, plan.hidden), jnp.where(fresh[..., None], action, plan.action)

        hidden, action = rarely(fresh.any(), begun, (plan.hidden, plan.action))
        hidden, pi = self.rule.next(policy.weights, hidden, action)
        return Plan(hidden, pi.mode() if greedy else pi.sample(key), jnp.where(fresh, 1, plan.done + 1))

    def greedy(self, policy: Policy, obs: Any) -> Array:
        """The first action of a sequence."""
        return self.rule.next(policy.weights, *self.rule.begin(policy.weights, obs))[1].mode()

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Plan:
        kind = jnp.result_type(float)
        hidden = jnp.zeros((*batch_shape, self.config.rnn_size), kind)
        return Plan(
            hidden, jnp.zeros((*batch_shape, *self.action_space.shape), kind), jnp.full(batch_shape, -1, jnp.int32)
        )

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Plan]:
        plan = self.planned(policy, key, visible(obs), carry, greedy)
        return environment_action(self.action_space, plan.action), plan


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    actor: Network | None = None,
    critic: Network | None = None,
    dynamics: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """SRL for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        actor: a flax module with the methods `begin`, `next` and `__call__` of `SequenceActor`; its hidden state has
            `config.rnn_size` numbers.
        critic: a flax module from a whole observation as a vector (..., D) and an action to values (...); there will be
            two of them.
        dynamics: a flax module from such a vector and an action to the difference of the next one (..., D).
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is no vector, several agents, or an actor whose actions do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("srl", venv, Box, between_ends=True)
    if config.normalize_obs:
        raise ValueError("srl: normalize_obs=True is of learners from a dataset; srl learns from no dataset.")
    sizes = config.hidden, config.activation
    vectors = Box(-jnp.inf, jnp.inf, (encoded_size(obs_space, privileged=True),))
    critic = own("critic", critic) or Critic(vectors, *sizes, config.layer_norm)
    chosen = own("actor", actor) or SequenceActor(obs_space, space, *sizes, config.rnn_size)
    model = own("dynamics", dynamics) or Model(*sizes)
    rule = _SRL(obs_space, critic, chosen, model, space.shape[0], config.sequence_length)
    weights = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    shell = _Learner("srl", config, Hyper, venv, obs_space, space, rule, chosen, uniform(config.buffer_size), weights)
    return shell.algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
