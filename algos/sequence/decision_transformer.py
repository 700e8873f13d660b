"""Decision transformer: predicts actions from a sequence of outcomes, observations and actions.

Chen et al. (2021), "Decision transformer: reinforcement learning via sequence modeling". A causal transformer reads the
last `context` steps of an episode,

    outcome[t - K + 1], obs[t - K + 1], action[t - K + 1], ..., outcome[t], obs[t]

each token with an embedding of its time step, and predicts each action from the token of its observation.

- `outcome="return"`: the return-to-go. When acting, it begins with `Hyper.target_return`, from which received rewards
  are subtracted; the environment is wrapped in `PreviousActionReward`, so that the policy sees them.
- `outcome="goal"`: a state that was reached after the window, which `hindsight.Hindsight` puts into the observation's
  entry "goal"; when acting, the goal is the environment's.

The context is the policy's carry. Deviations from the authors' code: no dropout (theirs: 0.1), no warm-up of the
learning rate, observations are not normalised by the dataset, ReLU for GELU in the perceptrons; weight decay by optax's
AdamW, 1e-4 on all weights; windows end with the drawn step, theirs begin with it. Results:
`experiments/stitching`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.datasets import Windows
from jaxrl.environment import Environment, pytree, visible
from jaxrl.nn.attention import Block
from jaxrl.nn.nets import Nets
from jaxrl.nn.networks import Dense, encode
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.off_policy import outcomes
from jaxrl.off_policy.outcomes import NO_DATASET, OutcomeLearner, Policy, chosen, masked
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Dict, Discrete, Space, environment_action
from jaxrl.vector_env import VectorEnv, vectorize
from jaxrl.wrappers import PreviousActionReward


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    outcome: str = "return"  # return or goal: what actions are conditioned on
    context: int = 20  # steps of the context, the current one included
    max_steps: int | None = None  # time steps that are embedded; None: the time limit of the default params
    num_envs: int = 1  # environments in the state; nothing acts in them
    num_updates: int = 1  # gradient steps an update
    batch_size: int = 64
    width: int = 128  # of a token
    layers: int = 3  # transformer blocks, whose perceptrons are four times as wide
    heads: int = 1  # of the attention
    optimizer: str = "adamw"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "context", "width", "layers", "heads")
        if self.width % self.heads:
            near = math.gcd(self.width, self.heads)
            raise ValueError(f"heads={self.heads} does not divide width={self.width}; {near} does.")


@pytree
class Hyper(outcomes.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-4
    max_grad_norm: jax.Array = 0.25


def sees(valid: Bool[Array, "*batch K"], tokens: int) -> Bool[Array, "*batch n n"]:
    """The attention mask of a window with `tokens` tokens a step: to itself and to valid earlier tokens."""
    n = valid.shape[-1] * tokens
    at = jnp.arange(n)
    there = jnp.repeat(valid, tokens, -1)[..., None, :]
    return (at[:, None] == at) | ((at[:, None] > at) & there)


class Transformer(nn.Module):
    """The default network: from windows of K steps to actions (..., K, A) in units of the box or logits (..., K, n)."""

    action_space: Space
    max_steps: int
    width: int
    layers: int
    heads: int

    @nn.compact
    def __call__(
        self,
        outcome: Float[Array, "*batch K G"],
        obs: Float[Array, "*batch K F"],
        action: Float[Array, "*batch K A"],
        time: Int[Array, "*batch K"],
        valid: Bool[Array, "*batch K"],
    ) -> Array:
        discrete = isinstance(self.action_space, Discrete)
        parts = (Dense(self.width, name=name)(x) for name, x in (("outcome", outcome), ("obs", obs), ("act", action)))
        clock = nn.Embed(self.max_steps, self.width)(jnp.minimum(time, self.max_steps - 1))
        x = jnp.stack([part + clock for part in parts], -2)  # (..., K, 3, width)
        x = nn.LayerNorm()(x.reshape(*x.shape[:-3], -1, self.width))
        visible = sees(valid, 3)
        for _ in range(self.layers):
            block = Block(self.width, 4 * self.width, self.heads, True, False)
            query, key, value = block.split(x)
            x = block.mix(x, query, key, value, visible)
        x = nn.LayerNorm()(x)[..., 1::3, :]
        outputs = self.action_space.n if discrete else self.action_space.shape[0]
        x = Dense(outputs, kernel_init=nn.initializers.variance_scaling(1e-4, "fan_in", "truncated_normal"))(x)
        return x if discrete else jnp.tanh(x)


class Context(NamedTuple):
    """The carry: the last K steps, the last place being that of the current step."""

    obs: Any  # (..., K, ...)
    action: Array  # (..., K, ...) in units of the box; that of the current step is still unknown
    return_to_go: Array  # (..., K) in units of Policy.scale
    time: Array  # (...) int32, steps so far


@dataclasses.dataclass(frozen=True)
class _DecisionTransformer:
    """The learning rule, a `learner.Rule`, and how it acts with a context as its carry."""

    networks: ClassVar[tuple[str, ...]] = ("actor",)
    targets: ClassVar[tuple[str, ...]] = ()

    config: Config
    venv: VectorEnv
    observation_space: Any
    action_space: Space
    network: Any  # a flax module

    def inputs(self, windows: Windows, scale: Array | float) -> tuple[Array, ...]:
        obs, space = visible(windows.obs), self.observation_space
        outcome = (windows.return_to_go / scale)[..., None]
        if self.config.outcome == "goal" and isinstance(space, Dict):
            spaces = dict(space.spaces)
            outcome = encode(Dict({"goal": spaces.pop("goal")}), {"goal": obs["goal"]})
            space = Dict(spaces)
        discrete = isinstance(self.action_space, Discrete)
        action = jax.nn.one_hot(windows.action, self.action_space.n) if discrete else windows.action
        return outcome, encode(space, obs), action, windows.time, windows.valid

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        one = jnp.zeros(1)
        obs, action = jax.tree.map(lambda x: x[None], (self.seen(obs), action))
        windows = Windows(obs, action, one, jnp.zeros(1, jnp.int32), one == 0)
        return {"actor": self.network.init(keys["actor"], *self.inputs(windows, hyper.return_scale))}

    def gradient_step(self, nets: Nets, key: Array, batch: Windows, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """Cloning of the dataset's actions, conditioned on the outcome."""

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            output = self.network.apply(weights, *self.inputs(batch, hyper.return_scale))
            output = masked(output, batch.obs, self.observation_space)
            return outcomes.action_loss(self.action_space, output, batch.action, batch.valid), {}

        actor, report = nets["actor"].descend(objective, hyper.learning_rate, hyper.max_grad_norm)
        return {"actor": actor, "max_steps": nets["max_steps"]}, report

    def asked(self, hyper: Hyper, max_steps: Int[Array, ""]) -> Float[Array, ""]:
        return hyper.target_return / hyper.return_scale

    def seen(self, obs: Any) -> Any:
        if self.config.outcome == "goal":
            return obs
        kept = {name: x for name, x in obs.items() if name not in ("previous_action", "previous_reward")}
        return kept if isinstance(self.observation_space, Dict) else kept["obs"]

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Context:
        K, venv = self.config.context, self.venv
        params = venv.default_params
        obs = jax.eval_shape(lambda key: venv.reset(key, params)[0], jax.random.key(0))
        obs = visible(self.seen(obs))
        obs = jax.tree.map(lambda x: jnp.zeros((*batch_shape, K, *x.shape[1:]), x.dtype), obs)
        discrete = isinstance(self.action_space, Discrete)
        action = jnp.zeros((*batch_shape, K, *self.action_space.shape), jnp.int32 if discrete else float)
        return Context(obs, action, jnp.zeros((*batch_shape, K)), jnp.zeros(batch_shape, jnp.int32))

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any, greedy: bool = False) -> tuple[Array, Any]:
        now, K, axis = visible(self.seen(obs)), self.config.context, carry.time.ndim

        def pushed(past: Array, x: Array) -> Array:
            tail = jax.lax.slice_in_dim(past, 1, K, axis=axis)
            return jnp.concatenate([tail, jnp.expand_dims(x.astype(past.dtype), axis)], axis)

        target = jnp.broadcast_to(policy.target, carry.time.shape)
        if self.config.outcome == "return":
            left = carry.return_to_go[..., -1] - obs["previous_reward"] / policy.scale
            target = jnp.where(carry.time == 0, target, left)
        seen = jax.tree.map(pushed, carry.obs, now)
        return_to_go = pushed(carry.return_to_go, target)
        past = pushed(carry.action, jnp.zeros_like(jax.lax.index_in_dim(carry.action, 0, axis, keepdims=False)))
        time = carry.time[..., None] + jnp.arange(1 - K, 1)
        windows = Windows(seen, past, return_to_go * policy.scale, jnp.maximum(time, 0), time >= 0)
        output = self.network.apply(policy.weights, *self.inputs(windows, policy.scale))
        last: Any = jax.lax.index_in_dim(jnp.asarray(output), K - 1, axis, keepdims=False)
        action = chosen(masked(last, obs, self.observation_space), self.action_space, key, greedy)
        done = jnp.concatenate(
            [jax.lax.slice_in_dim(past, 0, K - 1, axis=axis), jnp.expand_dims(action.astype(past.dtype), axis)], axis
        )
        return environment_action(self.action_space, action), Context(seen, done, return_to_go, carry.time + 1)


def window(config: Config) -> int:
    """The number of steps of a sample, see `Learns.data`."""
    return config.context


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """A decision transformer for `env`, which is wrapped in `PreviousActionReward` where the outcome is a return.

    Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset of `env` unwrapped, `datasets.windows(dataset, env.action_space(params), config.context)`,
            with its `hindsight` where the outcome is a goal; None: the learner acts, but does not learn.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is neither a vector nor Discrete, several agents, a goal that is not
    observed, or a task without a limit where `max_steps` is None; and `init` for params whose limit is then above it.
    """
    if config.outcome == "return" and not isinstance(env, PreviousActionReward):
        if isinstance(env, VectorEnv) and not isinstance(env.env, PreviousActionReward):
            raise ValueError(f"The VectorEnv's {env.env.id} must be wrapped in PreviousActionReward.")
        env = env if isinstance(env, VectorEnv) else vectorize(PreviousActionReward(env), config.num_envs)
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("decision_transformer", venv, Box, Discrete, between_ends=True)
    if config.outcome == "return":
        inner: Any = venv.env
        obs_space = inner.env.observation_space(venv.default_params)
    counts, config = config.max_steps is None, outcomes.with_limit("decision_transformer", config, venv)
    outcomes.check_outcome("decision_transformer", config, obs_space)
    limit: Any = config.max_steps
    network = Transformer(space, limit, config.width, config.layers, config.heads)
    rule = _DecisionTransformer(config, venv, obs_space, space, network)
    chosen_optimizer = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    data, name = NO_DATASET if replay is None else replay, "decision_transformer"
    parts = name, config, Hyper, venv, obs_space, space, rule, None, data, chosen_optimizer
    shell = OutcomeLearner(*parts, counts=counts)
    return shell.algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
