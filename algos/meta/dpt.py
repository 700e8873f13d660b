"""Decision-pretrained transformers and algorithm distillation: in-context learning, with constant weights.

A causal transformer is trained on generated interaction: each update draws new tasks from the environment's level kit
(`generate`), lets a behaviour policy play each of them, and takes one AdamW step on the cross-entropy

    mean over tasks and t of -log p(target[t] | obs[0], action[0], reward[0], ..., obs[t])

for all prefixes at once. The trained network solves a new task from the interaction in its context.

- `label="optimal"`: the target is the task's best action (DPT: Lee et al. 2023, "Supervised pretraining can learn
  in-context reinforcement learning", arXiv:2306.14892, eq. 2). The trained p is then the posterior probability of each
  action being the best one, so sampling from it is Thompson sampling, and its mode is for offline data.
- `label="behaviour"`: the target is the action of the behaviour policy (algorithm distillation: Laskin et al. 2022,
  "In-context reinforcement learning with algorithm distillation", arXiv:2210.14215). With an online algorithm as
  `source` the network imitates its learning, UCB for example, from the learning histories.

Both are supervised pretraining in the sense of Lin, Bai and Mei (2024), "Transformers as decision makers"
(arXiv:2310.08566), whose attention without a softmax is `attention="relu"`. `rnn="s5"`, or another cell's name, has a
recurrent network in the transformer's place, whose carry does not grow with the context (S5 learns in context in Lu et
al. 2023, arXiv:2303.03982).

Deviations: there is no stored dataset, a task is never seen twice; a token is one observation of
`PreviousActionReward`, (obs[t], action[t-1], reward[t-1]), and also the query at its time, where DPT puts one query
state before the context; so the context is a trajectory of the behaviour policy, not independent (state, action) pairs;
the only positional input is the logarithm of the number of steps so far, since a softmax cannot count; a token also has
the product of action and reward, and the first layer's attention reads tokens without a layer norm, so that averages of
rewards are exact. Results: `experiments/in_context`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, Integer

from jaxrl.algorithm import Algorithm, algorithm_of, check_at_least_one, shared, spaces_of, starting_values
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn import cells
from jaxrl.nn.attention import Block
from jaxrl.nn.distributions import Categorical, invert_cdf, mask_logits
from jaxrl.nn.networks import MLP, Dense, encode
from jaxrl.nn.optim import Optimizer, OptimizerLike, OptimizerState, optimizer_of
from jaxrl.online import Rule
from jaxrl.online import make as make_online
from jaxrl.rollout import Ends, ticked
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv, rows_where, vectorize
from jaxrl.wrappers import PreviousActionReward


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 64  # tasks an update
    num_steps: int = 100  # steps of each: the length of the context, also when deployed
    label: Literal["optimal", "behaviour"] = "optimal"  # DPT or algorithm distillation
    attention: Literal["softmax", "relu"] = "softmax"  # relu: ReLU scores over the number of tokens so far
    width: int = 32  # of a token
    hidden: int = 128  # of the perceptron in each layer
    layers: int = 4  # attention and perceptron each
    heads: int = 4  # of attention; with a softmax each head can average the rewards of one action
    rnn: str = ""  # a name of `jaxrl.nn.cells.CELLS`, in place of attention; "": attention to the whole context
    window: int = 32  # tokens before the present one that the cells attention and frames see
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS; Hyper.weight_decay makes Adam AdamW, and adamw decay twice
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "width", "hidden", "layers", "heads", "window")
        if self.rnn:
            cells.check_cell(self.rnn)
        for name, allowed in (("label", ("optimal", "behaviour")), ("attention", ("softmax", "relu"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}: choose {' or '.join(allowed)}.")
        if self.width % self.heads:
            near = math.gcd(self.width, self.heads)
            raise ValueError(f"heads={self.heads} does not divide width={self.width}; {near} does.")


@pytree
class Hyper:
    """Dynamic settings: leaves. Steps are environment steps, `num_envs * num_steps` an update."""

    learning_rate: jax.Array = 1e-3
    warmup_steps: jax.Array = 0  # steps over which the learning rate rises linearly from 0
    anneal_steps: jax.Array = 0  # steps at which its cosine decay reaches 0; 0: constant
    weight_decay: jax.Array = 1e-4  # of all weights, times the learning rate (Loshchilov and Hutter 2019)
    max_grad_norm: jax.Array = 1.0


# ---- the network


def tokens(space: Space, obs: dict[str, Any]) -> Float[Array, "... F"]:
    """One vector of the observation, and of the previous action (one-hot) times the previous reward.

    With the product, an average over tokens has every action's sum of rewards; without it a layer would have to learn
    the multiplication first.
    """
    product = obs["previous_action"] * obs["previous_reward"][..., None]
    return jnp.concatenate([encode(space, obs), product], -1)


class Cache(NamedTuple):
    """The carry of a transformer that acts: a ring buffer of keys and values of the last `H` tokens."""

    key: Array  # (..., L, H, width)
    value: Array  # (..., L, H, width)
    time: Array  # (...) int32, tokens seen


class Transformer(nn.Module):
    """The default network: `__call__` for whole contexts, `step` for one more token of a context in a `Cache`."""

    num_actions: int
    width: int
    hidden: int
    layers: int
    heads: int
    attention: str
    length: int = 100  # tokens that a `Cache` holds

    def setup(self) -> None:
        self.embed = Dense(self.width)
        block = functools.partial(Block, self.width, self.hidden, self.heads, self.attention == "softmax")
        self.blocks = [block(i == 0) for i in range(self.layers)]
        self.norm = nn.LayerNorm()
        self.head = Dense(self.num_actions, kernel_init=nn.initializers.zeros)

    def timed(self, x: Array, time: Array) -> Array:
        clock = jnp.broadcast_to(jnp.log1p(time.astype(x.dtype)) / 4, x.shape[:-1])
        return self.embed(jnp.concatenate([x, clock[..., None]], -1))

    def __call__(self, x: Float[Array, "... T F"]) -> Float[Array, "... T n"]:
        """Logits of the action at every one of T `tokens`."""
        time = jnp.arange(x.shape[-2])
        visible = time[:, None] >= time
        x = self.timed(x, time)
        for block in self.blocks:
            query, key, value = block.split(x)
            x = block.mix(x, query, key, value, visible)
        return self.head(self.norm(x))

    def step(self, x: Float[Array, "... F"], cache: Cache) -> tuple[Float[Array, "... n"], Cache]:
        """Logits after one more of `tokens`. O(H width) a layer."""
        H = cache.key.shape[-2]
        slot = jnp.arange(H)
        here = (slot == cache.time[..., None] % H)[..., None]
        visible = (slot <= cache.time[..., None])[..., None, :]
        x = self.timed(x, jnp.minimum(cache.time, H - 1))[..., None, :]
        keys, values = [], []
        for i, block in enumerate(self.blocks):
            query, key, value = block.split(x)
            keys.append(jnp.where(here, key, cache.key[..., i, :, :]))
            values.append(jnp.where(here, value, cache.value[..., i, :, :]))
            x = block.mix(x, query, keys[-1], values[-1], visible)
        cache = Cache(jnp.stack(keys, -3), jnp.stack(values, -3), cache.time + 1)
        return self.head(self.norm(x))[..., 0, :], cache

    def initial_carry(self, batch_shape: tuple[int, ...]) -> Cache:
        empty = jnp.zeros((*batch_shape, self.layers, self.length, self.width))
        return Cache(empty, empty, jnp.zeros(batch_shape, jnp.int32))


class Memory(nn.Module):
    """The network of `Config.rnn`: layers of a cell and a perceptron, each added to its input. Its carry is theirs."""

    num_actions: int
    width: int
    hidden: int
    layers: int
    rnn: str
    window: int

    def setup(self) -> None:
        self.embed = Dense(self.width)
        self.cells = [cells.layer(self.rnn, self.width, window=self.window) for _ in range(self.layers)]
        self.norms = [nn.LayerNorm() for _ in range(2 * self.layers)]
        self.perceptrons = [MLP((self.hidden,), self.width, "gelu") for _ in range(self.layers)]
        self.norm = nn.LayerNorm()
        self.head = Dense(self.num_actions, kernel_init=nn.initializers.zeros)

    def initial_carry(self, batch_shape: tuple[int, ...]) -> tuple[Any, ...]:
        return (cells.initial_carry(self.rnn, self.width, self.window, batch_shape),) * self.layers

    def unrolled(self, x: Float[Array, "T *batch F"], carry: tuple[Any, ...]) -> tuple[Array, tuple[Any, ...]]:
        """`(logits, carry)` of a piece of a context, whose first token need not be the context's first."""
        x, after, start = self.embed(x), [], jnp.zeros(x.shape[:-1], bool)
        for i, (cell, perceptron) in enumerate(zip(self.cells, self.perceptrons, strict=True)):
            before = carry[i]
            held, out = cell(before, self.norms[2 * i](x), start)
            after.append(held)
            x = x + out
            x = x + perceptron(self.norms[2 * i + 1](x))
        return self.head(self.norm(x)), tuple(after)

    def __call__(self, x: Float[Array, "*batch T F"]) -> Float[Array, "*batch T n"]:
        """Logits of the action at every one of T `tokens`."""
        logits, _ = self.unrolled(jnp.moveaxis(x, -2, 0), self.initial_carry(x.shape[:-2]))
        return jnp.moveaxis(logits, 0, -2)

    def step(self, x: Float[Array, "*batch F"], carry: tuple[Any, ...]) -> tuple[Array, tuple[Any, ...]]:
        """Logits after one more of `tokens`."""
        logits, carry = self.unrolled(x[None], carry)
        return logits[0], carry


# ---- behaviour policies that make the contexts


@pytree
class RandomHyper:
    """Dynamic settings of the random behaviour."""

    uniform: jax.Array = 0.0  # share of the uniform distribution in the actions' distribution of each task


@dataclasses.dataclass(frozen=True)
class _One:
    num_envs: int = 1


@functools.cache
def random_behaviour(env: Environment) -> Algorithm:
    """Actions from a distribution that is drawn once for every task (Lee et al. 2023, appendix A).

    (1 - c) Dirichlet(1, ..., 1) + c (one action), c uniform on {0, 0.1, ..., 1}; `RandomHyper(uniform=1)` makes them
    all equally likely.
    """
    n: int = env.action_space(env.default_params).n  # pyright: ignore[reportAttributeAccessIssue]

    def init(key: Array, hyper: RandomHyper, env_params: Any) -> Float[Array, " n"]:
        u = jax.random.uniform(key, (n + 2,))
        spread = -jnp.log1p(-u[:n])
        share, one = jnp.floor(11 * u[n]) / 10, jnp.floor(n * u[n + 1])
        probability = (1 - share) * spread / jnp.sum(spread) + share * (jnp.arange(n) == one)
        return (1 - hyper.uniform) * probability + hyper.uniform / n

    def act(weights: Array, hyper: RandomHyper, key: Array, obs: Any, greedy: bool) -> Integer[Array, ""]:
        if greedy:
            return jnp.argmax(weights).astype(jnp.int32)
        return invert_cdf(jax.random.uniform(key), weights)

    def learn(weights: Array, hyper: RandomHyper, key: Array, experience: Any) -> tuple[Array, Array]:
        return weights, jnp.zeros(())

    return make_online("random", Rule(init, act, learn), _One(), RandomHyper, env)


def with_hyper(source: Algorithm, hyper: Any) -> Algorithm:
    """`source` with other default settings."""
    return source._replace(init=lambda key, _=None, env_params=None: source.init(key, hyper, env_params))


# ---- the algorithm


@pytree
class DPTState:
    key: jax.Array
    hyper: Hyper
    env_params: Any  # params of the task distribution
    env_state: Any  # (N, ...), where the behaviour policies stopped
    obs: Any  # (N, ...), of that state; previous action and reward are zeros
    step: jax.Array  # environment steps done
    weights: Any
    optimizer: OptimizerState


class Rollout(NamedTuple):
    """Contexts, time-major, (T, N, ...)."""

    obs: Any  # with the previous action and reward
    target: Array  # action to predict
    terminated: Array
    truncated: Array
    ends: Ends


def learning_rate_at(step: Int[Array, ""], hyper: Hyper) -> Float[Array, ""]:
    """Linear warm-up, then half a cosine down to zero at `anneal_steps`, or constant."""
    rate, warmup = hyper.learning_rate, hyper.warmup_steps
    up = jnp.where(warmup > 0, step / jnp.maximum(warmup, 1), 1)
    done = jnp.where(hyper.anneal_steps > 0, (step - warmup) / jnp.maximum(hyper.anneal_steps - warmup, 1), 0)
    down = 0.5 * (1 + jnp.cos(math.pi * jnp.clip(done, 0, 1)))
    return rate * (jnp.minimum(up, 1) * down).astype(rate.dtype)


def imitation_loss(
    logits: Float[Array, "*batch n"], target: Integer[Array, "*batch"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The mean cross-entropy [nats] of the targets, and how often the likeliest action is the target."""
    loss = -jnp.mean(Categorical(logits).log_prob(target))
    return loss, jnp.mean(jnp.argmax(logits, -1) == target, dtype=loss.dtype)


def remembered(
    obs: Any, action: Integer[Array, "T N"], reward: Float[Array, "T N"], done: Bool[Array, "T N"], n: int
) -> dict[str, Any]:
    """Observations (T, N, ...) of an environment as `PreviousActionReward` gives them; an episode starts at t = 0.

    `action`, `reward` and `done` are those of the step that follows each observation.
    """

    def previous(x):
        x = jnp.where(done.reshape(*done.shape, *[1] * (x.ndim - 2)), 0, x)
        return jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])

    obs = obs if isinstance(obs, dict) else {"obs": obs}
    return {
        **obs,
        "previous_action": previous(jax.nn.one_hot(action, n, dtype=reward.dtype)),
        "previous_reward": previous(reward),
    }


@dataclasses.dataclass(frozen=True)
class _DPT:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    network: Transformer | Memory
    observation_space: Space
    source: Algorithm
    optimal: Callable[[Any, Any], Any] | None
    optimizer: Optimizer

    def masked(self, logits: Any, obs: Any) -> Any:
        mask = split_observation(obs, self.observation_space)[2]
        return logits if mask is None else mask_logits(logits, mask)

    def first(self, obs: Any) -> Any:
        """Observations (N, 1, ...) as a network sees them before the first step, with zero action and reward."""
        obs = jax.tree.map(lambda x: x[None, :, 0], obs)
        N = self.venv.num_envs
        nothing = jnp.zeros((1, N), jnp.int32), jnp.zeros((1, N)), jnp.zeros((1, N), bool)
        return jax.tree.map(lambda x: x[0], remembered(obs, *nothing, self.network.num_actions))

    def draw(self, key: Array, env_params: Any) -> tuple[Any, Any]:
        """`(levels, behaviours)`: N tasks, and the initial state of a behaviour policy for each."""
        level_key, init_key = jax.random.split(key)
        N, level_fn = self.venv.num_envs, self.venv.level_fn
        if level_fn is None:
            levels = jax.tree.map(lambda x: jnp.broadcast_to(x, (N, *x.shape)), env_params)
        else:
            levels = jax.vmap(level_fn, (0, None))(jax.random.split(level_key, N), env_params)
        keys = jax.random.split(init_key, N)
        return levels, jax.vmap(lambda key, level: self.source.init(key, None, level))(keys, levels)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> DPTState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        key, weights_key, task_key = jax.random.split(key, 3)
        _, behaviours = self.draw(task_key, env_params)
        obs = self.first(behaviours.obs)
        weights = self.network.init(weights_key, tokens(self.observation_space, obs))
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        optimizer = self.optimizer.init(weights, hyper.learning_rate)
        return DPTState(key, hyper, env_params, behaviours.env_state, obs, jnp.int32(0), weights, optimizer)

    def collect(self, state: DPTState) -> tuple[DPTState, Rollout]:
        key, task_key = jax.random.split(state.key)
        levels, behaviours = self.draw(task_key, state.env_params)

        def play(behaviours, _):
            behaviours, played = jax.vmap(self.source.collect)(behaviours)
            return jax.vmap(self.source.learn)(behaviours, played)[0], played

        behaviours, played = jax.lax.scan(play, behaviours, length=self.config.num_steps)
        x = jax.tree.map(lambda x: x[:, :, 0], played.experience)
        obs = remembered(x.obs, x.action, x.reward, x.terminated | x.truncated, self.network.num_actions)
        target = x.action
        if self.optimal is not None:
            target = jax.vmap(jax.vmap(self.optimal), (None, 0))(levels, obs).astype(target.dtype)
        rollout = Rollout(obs, target, x.terminated, x.truncated, jax.tree.map(lambda x: x[:, :, 0, 0], played.ends))
        state = state.replace(
            key=key,
            env_state=behaviours.env_state,
            obs=self.first(behaviours.obs),
            step=ticked(state.step, self.config.num_envs * self.config.num_steps),
        )
        return state, rollout

    def learn(self, state: DPTState, rollout: Rollout) -> tuple[DPTState, dict[str, Array]]:
        obs, target = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), (rollout.obs, rollout.target))
        x = tokens(self.observation_space, obs)

        def objective(weights):
            return imitation_loss(self.masked(self.network.apply(weights, x), obs), target)

        (loss, accuracy), grads = jax.value_and_grad(objective, has_aux=True)(state.weights)
        steps = self.config.num_envs * self.config.num_steps
        rate = learning_rate_at(state.step - steps, state.hyper)
        flat, unravel = ravel_pytree(state.weights)
        decayed = (1 - rate * state.hyper.weight_decay) * flat
        flat, optimizer, grad_norm = self.optimizer.descend(
            decayed, state.optimizer, grads, rate, state.hyper.max_grad_norm
        )
        return state.replace(weights=unravel(flat), optimizer=optimizer), {
            **rollout.ends.metrics(),
            "loss": loss,
            "accuracy": accuracy,
            "grad_norm": grad_norm,
            "learning_rate": rate,
        }

    def restart(self, state: DPTState, key: Array, env_params: Any, mask: Array) -> DPTState:
        """Draws new tasks for the slots of `mask`; every rollout draws new tasks before it begins, too."""
        _, behaviours = self.draw(key, env_params)
        fresh = behaviours.env_state, self.first(behaviours.obs)
        env_state, obs = rows_where(mask, fresh, (state.env_state, state.obs))
        return state.replace(env_state=env_state, obs=obs, env_params=env_params)

    def policy(self, state: DPTState) -> Any:
        return state.weights

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Any:
        return self.network.initial_carry(batch_shape)

    def act(self, policy: Any, key: Array, obs: Any, carry: Any, greedy: bool = False) -> tuple[Array, Any]:
        x = tokens(self.observation_space, obs)
        logits, carry = self.network.apply(policy, x, carry, method="step")  # pyright: ignore
        logits = self.masked(logits, obs)
        if greedy:
            return jnp.argmax(logits, -1).astype(jnp.int32), carry
        return Categorical(logits).sample(key), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    optimal: Callable[[Any, Any], Any] | None = None,
    source: Algorithm | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """A transformer that learns in context on `env`, which is wrapped in `PreviousActionReward` if it is not yet.

    Equal arguments give the same functions, so they share one jit cache. Tasks are drawn by the VectorEnv's `level_fn`
    or, of an Environment, by its `generate(key, params)`; without either there is one task.

    Args:
        optimal: `(env_params, obs) -> action`, the best action of a task at one observation; for `label="optimal"`.
        source: an online algorithm (`jaxrl.online`) on the environment that is wrapped, whose run from scratch on each
            task is the context; `random_behaviour` by default.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`. Before each of its steps
            weights decay by `Hyper.weight_decay`.

    Raises ValueError for an action space that is not Discrete, several agents, a label without its `optimal`, an
    `optimal` without its label, or a source on another environment.
    """
    venv = _venv(env, config.num_envs)
    observation_space, action_space = spaces_of("dpt", venv, Discrete)
    if (config.label == "optimal") != (optimal is not None):
        raise ValueError(
            f"label={config.label!r} and optimal={optimal}: 'optimal' needs the function (env_params, obs) -> best "
            "action, 'behaviour' takes none."
        )
    inner = venv.env.env  # pyright: ignore[reportAttributeAccessIssue]
    source = random_behaviour(inner) if source is None else source
    if source.venv.env != inner or source.venv.num_envs != 1 or source.venv.level_fn is not None:
        raise ValueError(f"{source.name} plays {source.venv}; a source plays one {inner} and draws no levels itself.")
    sizes = action_space.n, config.width, config.hidden, config.layers
    network = Transformer(*sizes, config.heads, config.attention, config.num_steps)
    network = Memory(*sizes, config.rnn, config.window) if config.rnn else network
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    dpt = _DPT(config, venv, network, observation_space, source, optimal, chosen)
    return algorithm_of("dpt", dpt, Hyper, config.num_envs * config.num_steps)


def _venv(env: Environment | VectorEnv, num_envs: int) -> VectorEnv:
    """`num_envs` wrapped environments that know how to draw their tasks."""
    if isinstance(env, VectorEnv):
        if env.num_envs != num_envs:
            raise ValueError(
                f"The VectorEnv has num_envs={env.num_envs} but the config says {num_envs}; make them equal."
            )
        if not isinstance(env.env, PreviousActionReward):
            raise ValueError(f"The VectorEnv's {env.env.id} must be wrapped in PreviousActionReward.")
        return env
    kit = env.levels
    wrapped = env if isinstance(env, PreviousActionReward) else PreviousActionReward(env)
    return vectorize(wrapped, num_envs, level_fn=None if kit is None else kit.generate)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
