"""The shell of an algorithm that learns from stored steps: it acts, stores, draws batches and keeps the state.

Without a dataset it acts, stores and learns, as SAC does. With one (`replay=` a dataset) it never acts: an update is
`num_updates` gradient steps, and `state.step` counts these; `fine_tune.start` lets a state that was trained so go on
learning in an environment. The networks and the gradient step are an algorithm's `Rule`, which its own file defines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxrl.algorithm import Algorithm, algorithm_of, starting_values
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import example
from jaxrl.environment import pytree, visible
from jaxrl.nn import normalize
from jaxrl.nn.actor_critic import Softmax
from jaxrl.nn.distributions import TanhNormal
from jaxrl.nn.losses import temperature_loss
from jaxrl.nn.nets import Net, Nets, critic_value, critic_values, init_critics, net
from jaxrl.nn.networks import Network
from jaxrl.nn.optim import Optimizer, OptimizerLike, optimizer_of
from jaxrl.off_policy import steps
from jaxrl.off_policy.steps import Rollout
from jaxrl.replay.ring import Replay, uniform
from jaxrl.spaces import Discrete, Space, environment_action
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 256
    buffer_size: int = 100_000  # transitions kept, without a dataset
    normalize_obs: bool = False  # by the dataset's mean and deviation; without a dataset nothing is normalised
    hidden: tuple[int, ...] = (256, 256)  # widths of all networks
    activation: str = "relu"
    layer_norm: bool = False  # in the critics and the state value
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        steps.check_config(self)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of all networks
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # Polyak step of target networks, each gradient step
    learning_starts: jax.Array = 1000  # where it acts: environment steps before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # where it acts: gradient steps an environment step; infinite: num_updates
    max_grad_norm: jax.Array = 1e6  # of each network's gradient; the default clips nothing


@pytree
class SoftHyper(Hyper):
    """Dynamic settings of soft actor-critics, whose temperature is tuned to a target entropy."""

    actor_learning_rate: jax.Array = jnp.inf  # of the actor; infinite: learning_rate
    alpha_learning_rate: jax.Array = 3e-4  # of the temperature's logarithm; 0: a constant temperature
    alpha: jax.Array = 1.0  # initial temperature
    target_entropy: jax.Array = jnp.inf  # nats in units of the box; infinite: -A


class Policy(NamedTuple):
    """What is deployed."""

    weights: Any  # of the actor
    noise: Array  # standard deviation of exploration in units of the box; 0 for actors that are distributions
    normalizer: Any = None  # statistics of observations; None without Config.normalize_obs


@pytree
class State:
    key: jax.Array
    hyper: Any
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # environment steps done; on a dataset, gradient steps
    weights: Any  # {name: weights} of the networks; critics have a leading axis K
    target_weights: Any  # {name: weights} of the target networks
    optimizer: Any  # {name: OptimizerState} of the networks
    extra: Any  # {name: value} of what else gradient steps change, such as statistics of a batch normalisation
    replay: Any  # the state of the replay buffer; () for a dataset
    normalizer: Any  # statistics of the dataset's observations; None without Config.normalize_obs


@runtime_checkable
class Rule(Protocol):
    """The learning rule of an algorithm, which its file defines: its networks and its gradient step."""

    networks: ClassVar[tuple[str, ...]]  # names; the first one's loss is the update's `loss`
    targets: ClassVar[tuple[str, ...]]  # names of the networks that have a target network

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Any) -> dict[str, Any]:
        """`{name: initial weights}` of the networks, from `{name: key}`, one observation and one action.

        The dictionary may have further entries, such as running statistics. `gradient_step` finds these in `nets`
        under the same names, and returns their new values there.
        """
        ...

    def gradient_step(self, nets: Nets, key: Array, batch: Any, hyper: Any) -> tuple[Nets, dict[str, Array]]:
        """`(nets, metrics)` after one step of each network on a batch of the replay, leaves (B, ...)."""
        ...


@runtime_checkable
class Acting(Protocol):
    """How a policy of given weights acts.

    Observations (...) lack their privileged part; actions are in units of the box.
    """

    def explore(self, weights: Any, key: Array, obs: Any, noise: Array) -> Array: ...

    def mode(self, weights: Any, obs: Any) -> Array: ...


@dataclasses.dataclass(frozen=True)
class Learner:
    """The static settings of the learner; its methods are the Algorithm's functions.

    With `Config.normalize_obs` the rule and the actor see normalised observations; the replay buffer holds raw ones.
    """

    slots: ClassVar = ("replay",)

    name: str
    config: Any
    hyper_class: type
    venv: VectorEnv
    observation_space: Space
    action_space: Space
    rule: Any  # a Rule
    actor: Any  # an Acting: how the weights named `actor` act
    replay: Replay
    optimizer: Optimizer
    deploy: Callable[[State], Any] | None = None  # the weights that act; None: those named `actor`
    deployed: str = "greedy"  # as `Algorithm.deployed`

    def optimizer_of(self, network: str) -> Optimizer:
        """The optimiser of a network; that of the temperature is always Adam, as weight decay would pull it to 1."""
        return optimizer_of("adam") if network == "log_alpha" else self.optimizer

    # ---- the Algorithm's functions

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> State:
        hyper, env_params = starting_values(self.hyper_class, self.venv, hyper, env_params)
        if self.replay.update is not None:
            raise ValueError(f"{self.name}: a replay with priorities is for learners whose Config has `prioritised`.")
        if self.replay.add is not None:
            steps.check_ratio(hyper, self.config)
        names = self.rule.networks
        key, reset_key, *keys = jax.random.split(key, 2 + len(names))
        obs, env_state = self.venv.reset(reset_key, env_params)
        item = example(obs, self.action_space)
        made = self.rule.init(dict(zip(names, keys, strict=True)), item.obs, item.action, hyper)
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), {name: made[name] for name in names})
        return State(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            target_weights={name: weights[name] for name in self.rule.targets},
            optimizer={name: self.optimizer_of(name).init(w, hyper.learning_rate) for name, w in weights.items()},
            extra={name: x for name, x in made.items() if name not in names},
            replay=self.replay.init(item),
            normalizer=self.first_normalizer(item.obs),
        )

    def first_normalizer(self, obs: Any) -> Any:
        """Statistics of the dataset's observations; without a dataset empty ones, which change no observation."""
        if not getattr(self.config, "normalize_obs", False):
            return None
        known = self.replay.normalizer
        if known is None and self.replay.add is None:
            raise ValueError(
                f"{self.name}: normalize_obs=True, and this replay does not know the statistics of its observations: "
                "give it a `normalizer`, as `datasets.stored` does, or say normalize_obs=False."
            )
        return jax.tree.map(jnp.asarray, (known or normalize.init)(obs))

    def collect(self, state: State) -> tuple[State, Rollout | None]:
        """A rollout of the exploring policy; None with a dataset, where nothing acts."""
        if self.replay.add is None:
            return state, None
        policy, normalizer = self.exploring(state), normalize.visible(state.normalizer)

        def act(key: Array, obs: Any) -> Array:
            return self.explore(policy, key, normalized(normalizer, obs))

        spaces = self.observation_space, self.action_space
        return steps.collect(self.venv, state, self.config.num_steps, act, *spaces)

    def learn(self, state: State, rollout: Rollout | None = None) -> tuple[State, dict[str, Array]]:
        """Stores the rollout, if there is one, and takes the gradient steps that are due."""
        names, hyper = self.rule.networks, state.hyper
        nets: dict[str, Any] = {
            name: net(
                state.weights[name],
                state.optimizer[name],
                self.optimizer_of(name),
                state.target_weights.get(name),
                name,
            )
            for name in names
        } | state.extra

        def gradient_step(nets: Nets, key: Array, batch: Any) -> tuple[Nets, dict[str, Array]]:
            if state.normalizer is not None:
                obs, next_obs = (normalized(state.normalizer, x) for x in (batch.obs, batch.next_obs))
                batch = batch._replace(obs=obs, next_obs=next_obs)
            return self.rule.gradient_step(nets, key, batch, hyper)

        state, nets, metrics = steps.learn(state, rollout, self.replay, self.config, nets, gradient_step)
        metrics = {"loss": metrics[f"{names[0]}_loss"], "grad_norm": metrics[f"{names[0]}_grad_norm"], **metrics}
        state = state.replace(
            weights={name: nets[name].weights for name in names},
            target_weights={name: nets[name].target for name in self.rule.targets},
            optimizer={name: nets[name].state for name in names},
            extra={name: nets[name] for name in state.extra},
        )
        return state, metrics

    def policy(self, state: State) -> Policy:
        noise = getattr(state.hyper, "exploration_noise", jnp.float32(0))
        weights = state.weights["actor"] if self.deploy is None else self.deploy(state)
        return Policy(weights, noise, normalize.visible(state.normalizer))

    def exploring(self, state: State) -> Any:
        """The policy that collects."""
        return self.policy(state)

    def explore(self, policy: Any, key: Array, obs: Any) -> Array:
        return self.actor.explore(policy.weights, key, obs, policy.noise)

    def greedy(self, policy: Any, obs: Any) -> Array:
        return self.actor.mode(policy.weights, obs)

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Any:
        return ()

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        obs = normalized(getattr(policy, "normalizer", None), visible(obs))
        action = self.greedy(policy, obs) if greedy else self.explore(policy, key, obs)
        return environment_action(self.action_space, action), carry

    def algorithm(self, critic: Network | None = None, num_critics: int = 2) -> Algorithm:
        """The Algorithm. Raises ValueError for an actor, or critics, whose outputs have wrong shapes.

        A critic takes an observation and an action; where actions are Discrete, an observation alone. `num_critics` 0:
        a single critic, whose values have no axis K.
        """
        n, shape = self.config.num_envs, self.action_space.shape
        discrete, logits = isinstance(self.action_space, Discrete), isinstance(self.actor, Softmax)
        action_shape = (n, self.action_space.n) if logits else (n, *shape)  # an action's shape does not show n
        q_shape = (*((num_critics,) if num_critics else ()), n, *((self.action_space.n,) if discrete else ()))

        def outputs(key: Array) -> tuple[Any, Any]:
            state = self.init(key)
            policy, obs = self.policy(state), visible(state.obs)
            action = self.actor(policy.weights, obs).logits if logits else self.greedy(policy, obs)
            if critic is None:
                return action, jnp.zeros(q_shape)
            inputs = (state.obs,) if discrete else (state.obs, jnp.zeros((n, *shape)))
            apply: Any = critic_values if num_critics else critic_value
            return action, apply(critic, state.weights["critic"], *inputs)

        steps.check_outputs(self.action_space, outputs, action_shape, q_shape)
        config = self.config
        per_update = config.num_updates if self.replay.add is None else config.num_envs * config.num_steps
        return algorithm_of(self.name, self, self.hyper_class, per_update)


def init_twin(rule: Any, keys: dict[str, Array], obs: Any, action: Any, hyper: Any) -> dict[str, Any]:
    """A rule's `init` for the networks `critic` (two of them, stacked) and `actor`."""
    return {
        "critic": init_critics(rule.critic, keys["critic"], 2, obs, action),
        "actor": rule.actor.init(keys["actor"], obs),
    }


def init_with_value(rule: Any, keys: dict[str, Array], obs: Any, action: Any, hyper: Any) -> dict[str, Any]:
    """A rule's `init` for the networks `value`, `critic` (two of them, stacked) and `actor`."""
    return {"value": rule.value.init(keys["value"], obs), **init_twin(rule, keys, obs, action, hyper)}


def init_soft(rule: Any, keys: dict[str, Array], obs: Any, action: Any, hyper: Any) -> dict[str, Any]:
    """A rule's `init` for the networks `critic` (`config.num_critics`, stacked) and `actor`, and for `log_alpha`."""
    return {
        "critic": init_critics(rule.critic, keys["critic"], rule.config.num_critics, obs, action),
        "actor": rule.actor.init(keys["actor"], obs),
        "log_alpha": jnp.log(hyper.alpha),
    }


def actor_settings(hyper: Any) -> tuple[Array, Array]:
    """The learning rate of the actor and the largest norm of its gradient, of a Hyper with `actor_learning_rate`."""
    rate = jnp.where(jnp.isfinite(hyper.actor_learning_rate), hyper.actor_learning_rate, hyper.learning_rate)
    return rate, hyper.max_grad_norm


def temperature_step(
    log_alpha: Net, policy: TanhNormal, key: Array, hyper: SoftHyper, when: Bool[Array, ""] | None = None
) -> tuple[Net, dict[str, Array]]:
    """`(log_alpha, metrics)` after a gradient step of the temperature on the policy's entropy over a batch.

    The target entropy is -A where `hyper.target_entropy` is infinite. Where `when` is False nothing changes, as in
    `Net.descend`.
    """
    entropy = -jnp.mean(policy.sample_and_log_prob(key)[1])
    usual = -float(policy.mode().shape[-1])
    target = jnp.where(jnp.isfinite(hyper.target_entropy), hyper.target_entropy, usual)

    def objective(log_alpha: Array) -> tuple[Array, dict[str, Array]]:
        return temperature_loss(log_alpha, entropy, target), {"alpha": jnp.exp(log_alpha)}

    return log_alpha.descend(objective, hyper.alpha_learning_rate, hyper.max_grad_norm, when)


def algorithm(
    name: str,
    venv: VectorEnv,
    config: Any,
    hyper: type,
    rule: Rule,
    actor: Acting,
    *,
    replay: Replay | Dataset | None = None,
    optimizer: OptimizerLike | None = None,
    critic: Network | None = None,
    num_critics: int = 2,
    deploy: Callable[[State], Any] | None = None,
    deployed: str = "greedy",
) -> Algorithm:
    """The Algorithm of a learning rule on `venv`. `replay`, `critic` and `optimizer` are the arguments of `make`.

    Args:
        config: a `learner.Config`, or an instance of a subclass.
        hyper: the class of the dynamic settings, `Hyper` or a subclass.
        actor: how the weights named `actor` act: `Deterministic`, `Gaussian` or `TanhGaussian` around the flax module
            that `make` takes as `actor`, whose input is an observation without its privileged part.
        replay: a dataset, or what `datasets.stored` makes of one; None: the learner acts and fills a replay buffer.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.
        critic: a flax module from a whole observation and an action to values (...), of which there are `num_critics`
            copies with separate weights. None: the outputs of critics are not checked.
        deploy: the weights that act, where they are not those named `actor`.
        deployed: "sampled" for policies whose mode says little of what they do.

    `make` raises ValueError for an action space that is not a vector, several agents, or networks whose outputs do not
    fit, and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    params = venv.env.default_params
    observation_space, space = venv.env.observation_space(params), venv.env.action_space(params)
    drawn = steps.as_replay(name, replay, space, lambda: uniform(config.buffer_size))
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    learner = Learner(name, config, hyper, venv, observation_space, space, rule, actor, drawn, chosen, deploy, deployed)
    return learner.algorithm(critic, num_critics)


def normalized(stats: normalize.Statistics | None, obs: Any) -> Any:
    """Normalised observations, not clipped, as in the authors' code of TD3+BC; unchanged without statistics."""
    return normalize.normalize(stats, obs, clip=None)
