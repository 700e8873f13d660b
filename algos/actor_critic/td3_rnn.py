"""Twin delayed deep deterministic policy gradient (TD3) with recurrent networks, for partially observed Box tasks.

Ni et al. (2022), "Recurrent model-free RL can be a strong baseline for many POMDPs" (ICML): TD3 (Fujimoto et al. 2018,
`td3.py`) whose actor and critics each have a recurrent body of their own. A rollout of each environment is one sequence
of the replay. At each step t of a sequence, with memories m of what was observed up to it,

    y[t] = r[t] + gamma (1 - terminated[t]) min_k Q'_k(m[t+1], clip(mu'(m[t+1]) + clip(e, -c, c), -1, 1))

with e ~ N(0, sigma) is the target of both critics; every `policy_delay`-th gradient step the actor ascends Q_1(m,
mu(m)) and the target networks take a Polyak step. A sequence is replayed from the carries that were stored before its
burn-in, which every network, target networks too, advances with its own weights and without gradient (Kapturowski et
al. 2019). Carries are reset where an episode starts in a sequence. A truncated step is masked out of the critics' loss,
since the observation after it is not in the sequence.

The critics may see privileged observations, which only their body gets. Both have one body and a head each.

Deviations from the authors' code: sequences of fixed length that cross episodes, with stored carries and a burn-in, not
whole episodes; the last action and reward reach the networks through `wrappers.PreviousActionReward`; the action joins
the critics behind their memory; the current observation takes no second path around it; those of `td3.py`. Results:
`docs/algos/r2d2.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from jaxrl.algorithm import (
    Algorithm,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    restarted,
    shared,
    spaces_of,
    starting_values,
)
from jaxrl.environment import Environment, pytree, visible
from jaxrl.math import fast_key
from jaxrl.nn.actor_critic import RecurrentActor, RecurrentCritic
from jaxrl.nn.losses import masked_critic_loss, td_target
from jaxrl.nn.nets import Net, Nets, net
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import Optimizer, OptimizerLike, optimizer_of
from jaxrl.nn.recurrent import Carry, burnt_in, check_carry, first_past, one_step
from jaxrl.off_policy import sequences
from jaxrl.off_policy.sequences import Rollout, Sequence, State, learns, swapped
from jaxrl.off_policy.steps import check_outputs, check_ratio, gradient_steps_due, random_action, steps_taken
from jaxrl.replay.ring import Replay, uniform
from jaxrl.rollout import spread
from jaxrl.spaces import Box, Space, environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 8  # environments stepped together
    num_steps: int = 20  # steps of each between updates: the length of a sequence
    burn_in: int = 10  # steps before a sequence that are replayed to refresh its carries; at most num_steps
    num_updates: int = 20  # gradient steps an update, at most: see Hyper.replay_ratio
    batch_size: int = 32  # sequences
    buffer_size: int = 5000  # sequences kept
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (128,)  # widths before the recurrent layer, of actor and critics
    activation: str = "relu"
    rnn: str = "gru"  # a name of `jaxrl.nn.cells.CELLS`
    rnn_size: int = 128
    window: int = 32  # steps before the present one that the cells attention and frames see
    head_hidden: tuple[int, ...] = (128,)  # widths after the recurrent layer
    policy_delay: int = 2  # gradient steps of the critics for one of the actor
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        sequences.check_config(self, without="td3")
        check_at_least_one(self, "policy_delay")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps."""

    learning_rate: jax.Array = 3e-4  # of all networks
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # Polyak step of target networks, each gradient step
    exploration_noise: jax.Array = 0.1  # standard deviation, in units of the box
    policy_noise: jax.Array = 0.2  # standard deviation of the smoothing of the target action
    noise_clip: jax.Array = 0.5  # largest smoothing
    learning_starts: jax.Array = 1000  # steps at random, before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # gradient steps a step; infinite: num_updates an update
    max_grad_norm: jax.Array = 1e6  # of each network's gradient; the default clips nothing


class Hidden(NamedTuple):
    """The memories of the two networks."""

    actor: Any
    critic: Any


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any  # of the actor
    noise: Array  # standard deviation of exploration, in units of the box


def smoothed(
    key: Key[Array, ""],
    action: Float[Array, "*batch A"],
    noise: Float[Array, ""] | float,
    clip: Float[Array, ""] | float,
) -> Float[Array, "*batch A"]:
    """The target action with clipped normal noise, within the box (Fujimoto et al. 2018, equation 14)."""
    drawn = noise * jax.random.normal(key, action.shape, action.dtype)
    return jnp.clip(action + jnp.clip(drawn, -clip, clip), -1, 1)


@dataclasses.dataclass(frozen=True)
class _TD3RNN:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    networks: ClassVar = ("critic", "actor")
    targets: ClassVar = ("critic", "actor")
    slots: ClassVar = ("carry", "past", "replay")
    deployed: ClassVar = "greedy"
    config: Config
    venv: VectorEnv
    observation_space: Space
    action_space: Space
    actor: Any  # a flax module
    critic: Any  # a flax module
    replay: Replay
    optimizer: Optimizer

    # ---- acting

    def mu(self, weights: Any, hidden: Any, obs: Any, start: Any) -> tuple[Any, Float[Array, "T *batch A"]]:
        """`(hidden, actions)` of observations (T, *batch, ...), without their privileged part."""
        hidden, action = self.actor.apply(weights, hidden, visible(obs), start)
        return hidden, action

    def explore(self, policy: Policy, key: Array, hidden: Any, obs: Any, start: Any) -> tuple[Any, Array]:
        """`(hidden, actions in units of the box)` of one step, with normal noise."""
        hidden, action = self.greedy(policy, hidden, obs, start)
        drawn = policy.noise * jax.random.normal(key, action.shape, action.dtype)
        return hidden, jnp.clip(action + drawn, -1, 1)

    def greedy(self, policy: Policy, hidden: Any, obs: Any, start: Any) -> tuple[Any, Array]:
        """The same without noise."""
        hidden, action = self.mu(policy.weights, hidden, *one_step((obs, start)))
        return hidden, action[0]

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        config = self.config
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        check_ratio(hyper, config)
        key, reset_key, critic_key, actor_key = jax.random.split(key, 4)
        obs, env_state = self.venv.reset(reset_key, env_params)
        start = jnp.ones(config.num_envs, bool)
        hidden = Hidden(*(x.initial_carry((config.num_envs,)) for x in (self.actor, self.critic)))
        action = jnp.zeros((config.num_envs, *self.action_space.shape))
        seen = one_step((obs, start))
        weights = {
            "critic": self.critic.init(critic_key, hidden.critic, *seen, action[None]),
            "actor": self.actor.init(actor_key, hidden.actor, visible(seen[0]), seen[1]),
        }
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        past = first_past(hidden, obs, start, config.burn_in)
        return State(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            target_weights={name: weights[name] for name in self.targets},
            optimizer={name: self.optimizer.init(w, hyper.learning_rate) for name, w in weights.items()},
            replay=self.replay.init(sequences.example(past, obs, action[0], config.num_steps)),
            carry=Carry(start, hidden),
            past=past,
        )

    def restart(self, state: State, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> State:
        """Starts a new episode in the slots of `mask`, with reset carries; what is stored ends before it."""
        state = restarted(self.venv, state, key, env_params, mask)
        return state.replace(carry=state.carry._replace(start=state.carry.start | mask))

    def collect(self, state: State) -> tuple[State, Rollout]:
        """A rollout of the policy, before `learning_starts` of random actions; the critics remember it, too."""
        policy, config = self.policy(state), self.config
        at_random = state.step < state.hyper.learning_starts

        def act(key, obs, carry):
            act_key, random_key = jax.random.split(key)
            actor, action = self.explore(policy, act_key, carry.hidden.actor, obs, carry.start)
            uniform = random_action(random_key, self.action_space, self.observation_space, obs, config.num_envs)
            action = jnp.where(at_random, uniform, action)
            seen = one_step((obs, carry.start))
            critic, _ = self.critic.apply(state.weights["critic"], carry.hidden.critic, *seen)
            after = Carry(jnp.zeros_like(carry.start), Hidden(actor, critic))
            return environment_action(self.action_space, action), action, after

        return sequences.collect(self.venv, state, config.num_steps, config.burn_in, act)

    # ---- learning

    def learn(self, state: State, rollout: Rollout) -> tuple[State, dict[str, Array]]:
        """Stores the sequences, and takes the gradient steps that are due."""
        config, hyper = self.config, state.hyper
        key, sample_key, step_key = jax.random.split(state.key, 3)
        replay = self.replay.add(state.replay, rollout.sequence)
        steps = config.num_envs * config.num_steps
        due = gradient_steps_due(state.step, steps, hyper.replay_ratio, config.num_updates)
        due = jnp.where(state.step > hyper.learning_starts, due, 0)

        # Batches are drawn outside the branch: inputs of a branch may be copied, and the replay buffer is large.
        keys = jax.random.split(fast_key(sample_key), config.num_updates)
        batches = spread(jax.vmap(lambda key: self.replay.sample(key, replay, config.batch_size))(keys), 1)
        keys = jax.random.split(fast_key(step_key), config.num_updates)

        def gradient_step(nets, inputs):
            key, batch = inputs
            return self.gradient_step(nets, key, swapped(batch), hyper)

        parts = state.weights, state.optimizer, state.target_weights
        nets = {name: self.net(name, *(part.get(name) for part in parts)) for name in self.networks}
        nets, report = steps_taken(due, config.num_updates, nets, lambda: (keys, batches), gradient_step)
        state = state.replace(
            key=key,
            weights={name: nets[name].weights for name in self.networks},
            target_weights={name: nets[name].target for name in self.targets},
            optimizer={name: nets[name].state for name in self.networks},
            replay=replay,
        )
        report = jax.tree.map(jnp.nanmean, report)
        shown = {"loss": report["critic_loss"], "grad_norm": report["critic_grad_norm"], "gradient_steps": due}
        return state, {**rollout.ends.metrics(), **report, **shown}

    def net(self, name: str, weights: Any, optimizer: Any, target: Any) -> Net:
        return net(weights, optimizer, self.optimizer, target, name)

    def gradient_step(self, nets: Nets, key: Array, batch: Sequence, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics; every `policy_delay` steps the actor and all targets (Fujimoto et al. 2018, algorithm 1)."""
        critic, actor = (nets[name] for name in self.networks)
        settings = hyper.learning_rate, hyper.max_grad_norm
        seen, counts = (batch.obs, batch.start), learns(batch.terminated, batch.truncated)
        actor_past = batch.past._replace(hidden=batch.past.hidden.actor, obs=visible(batch.past.obs))
        critic_past = batch.past._replace(hidden=batch.past.hidden.critic)

        # The target: the target actor and the target critics over the sequence, each after its own burn-in.
        _, action = self.mu(actor.target, burnt_in(actor.target, actor_past, self.actor), *seen)
        action = smoothed(key, action, hyper.policy_noise, hyper.noise_clip)
        hidden = burnt_in(critic.target, critic_past, self.critic)
        _, next_q = self.critic.apply(critic.target, hidden, *seen, action)
        next_value = jnp.min(next_q, 0)[1:]
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            hidden = burnt_in(weights, critic_past, self.critic)
            _, q = self.critic.apply(weights, hidden, *acted_on(seen), batch.action)
            return masked_critic_loss(q, target, counts), {"q_value": jnp.mean(q)}

        critic, critic_report = critic.descend(critic_objective, *settings)
        hidden = burnt_in(critic.weights, critic_past, self.critic)
        _, features = self.critic.apply(critic.weights, hidden, *acted_on(seen))

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            _, action = self.mu(weights, burnt_in(weights, actor_past, self.actor), *acted_on(seen))
            q = self.critic.apply(critic.weights, features, action, method="values")
            return -jnp.mean(q[0]), {}

        due = critic.count % self.config.policy_delay == 0
        actor, actor_report = actor.descend(actor_objective, *settings, when=due)
        tau = jnp.where(due, hyper.tau, 0)
        return {"critic": critic.track(tau), "actor": actor.track(tau)}, {**critic_report, **actor_report}

    # ---- what is deployed

    def policy(self, state: State) -> Policy:
        return Policy(state.weights["actor"], state.hyper.exploration_noise)

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Carry:
        return Carry(jnp.ones(batch_shape, bool), self.actor.initial_carry(batch_shape))

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        check_carry(carry, obs, self.observation_space)
        seen = carry.hidden, obs, carry.start
        hidden, action = self.greedy(policy, *seen) if greedy else self.explore(policy, key, *seen)
        return environment_action(self.action_space, action), Carry(jnp.zeros_like(carry.start), hidden)


def acted_on(seen: tuple[Any, Any]) -> tuple[Any, Any]:
    """Observations and starts without the last, on which nothing was done in this sequence."""
    return jax.tree.map(lambda x: x[:-1], seen)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    actor: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Recurrent TD3 for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        actor: a flax module with the methods `initial_carry` and `__call__` of `actor_critic.RecurrentActor`, whose
            outputs are actions in units of the box.
        critic: a flax module with the methods `initial_carry`, `__call__` and `values` of
            `actor_critic.RecurrentCritic`.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is no vector, several agents, or networks
    whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("td3_rnn", venv, Box, between_ends=True)
    body = config.hidden, config.activation, config.rnn, config.rnn_size, config.head_hidden, config.conv
    actor = own("actor", actor) or RecurrentActor(obs_space, space, *body, window=config.window)
    critic = own("critic", critic, "values") or RecurrentCritic(obs_space, *body, window=config.window)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    td3 = _TD3RNN(config, venv, obs_space, space, actor, critic, uniform(config.buffer_size), chosen)

    def outputs(key: Array) -> tuple[Any, Any]:
        state = td3.init(key)
        hidden, start = state.carry.hidden, state.carry.start
        action = td3.greedy(td3.policy(state), hidden.actor, state.obs, start)[1]
        seen = one_step((state.obs, start, jnp.zeros((config.num_envs, *space.shape))))
        return action, td3.critic.apply(state.weights["critic"], hidden.critic, *seen)[1][:, 0]

    check_outputs(space, outputs, (config.num_envs, *space.shape), (2, config.num_envs))
    return algorithm_of("td3_rnn", td3, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
