"""The network of DiscoRL's update rule, which computes targets of an agent's policy and predictions, and its weights.

Oh et al. (2025), "Discovering state-of-the-art reinforcement learning algorithms", Nature. A recurrent network reads a
rollout backwards and gives targets for the policy and for both predictions of the agent; a second one takes one step
for each update and scales the output of the first. The agent that learns by the rule is `disco.py`.

**Weights.** The published rule, Disco103, is a file of github.com/google-deepmind/disco_rl,
`disco_rl/update_rules/weights/disco_103.npz` (2.8 MB, 42 float32 arrays, 754,778 numbers). It does not come with this
library: its code is Apache 2.0 and its other materials, so presumably the weights, are CC-BY 4.0, by the authors of the
paper. `load(path)` reads it and `disco.Config(weights=path)` learns by it. Names and shapes of a rule's
weights are those of that file.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrl.environment import pytree
from jaxrl.meta.stored import RuleFileError, arrays_of

Weights = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class RuleConfig:
    """Sizes of the rule's networks; the defaults are Disco103's."""

    predictions: int = 600  # size of y and z
    features: int = 256  # width of the network that reads a rollout
    memory: int = 128  # width of the network that takes one step for each update
    embedding: int = 16  # hidden units of the embeddings of predictions and of the memory's inputs
    channels: tuple[int, int] = (16, 2)  # of the two layers on the inputs of actions
    target_channels: int = 16  # of the layer before pi_hat


NUM_INPUTS = 23
"""Inputs of the rule for each step, besides the outputs of the layers on actions."""

NUM_ACTION_INPUTS = 9
"""Inputs of the rule for each action of a step."""

DEVIATIONS = {"lstm/linear/w": 1.0, **{f"lstm/linear_{i}/w": 0.3 for i in (1, 2, 3, 4)}}
"""Standard deviations of initial weights, as in the authors' code: of the memory's scaling of the first
network's output (linear), and of the rule's outputs; for all other weights 1 / sqrt(inputs)."""


def shapes(config: RuleConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a rule's weights, as in the published file."""
    c, first, last = config, *config.channels
    inputs = NUM_INPUTS + 2 * last
    layers: dict[str, tuple[int, ...]] = {}

    def embedding(name: str) -> None:
        layers[f"{name}/~/linear_0"] = (c.predictions, c.embedding)
        layers[f"{name}/~/linear_1"] = (c.embedding, 1)

    def on_actions(name: str) -> None:
        layers[f"{name}/conv1_d"] = (1, 2 * NUM_ACTION_INPUTS, first)
        layers[f"{name}/conv1_d_1"] = (1, 2 * first, last)

    for prefix in ("", "~/meta_lstm/~unroll/"):
        embedding(f"{prefix}mlp")
        embedding(f"{prefix}mlp_1")
        on_actions(f"{prefix}sequential")
    layers["lstm/linear"] = (inputs + c.features, 4 * c.features)
    layers["linear"] = (c.memory, c.features)
    layers["linear_1"] = (c.features, 1)
    layers["linear_2"] = layers["linear_3"] = (c.features, c.predictions)
    layers["sequential_1/conv1_d"] = (1, 2 * (c.features + last), c.target_channels)
    layers["linear_4"] = (c.target_channels, 1)
    layers["~/meta_lstm/~unroll/mlp_2/~/linear_0"] = (inputs + 2, c.embedding)
    layers["~/meta_lstm/~unroll/lstm/linear"] = (c.embedding + c.memory, 4 * c.memory)
    return {f"lstm/{name}/w": s for name, s in layers.items()} | {f"lstm/{n}/b": s[-1:] for n, s in layers.items()}


def fresh_rule(key: Array, config: RuleConfig = RuleConfig()) -> Weights:
    """Initial weights of a rule: truncated normals with standard deviations `DEVIATIONS`, zero biases."""
    wanted = shapes(config)
    keys = jax.random.split(key, len(wanted))

    def drawn(key: Array, name: str, shape: tuple[int, ...]) -> Array:
        if len(shape) == 1:
            return jnp.zeros(shape)
        deviation = DEVIATIONS.get(name, 1 / math.sqrt(math.prod(shape[:-1])))
        return deviation * jax.random.truncated_normal(key, -2, 2, shape)

    return {name: drawn(key, name, shape) for key, (name, shape) in zip(keys, wanted.items(), strict=True)}


def load(path: str | Path, config: RuleConfig = RuleConfig()) -> Weights:
    """A rule's weights, from the published file or from one that `save` wrote.

    Raises RuleFileError for a file that is missing, damaged or pickled, and for other names or shapes than `config`'s.
    """
    path = Path(path)
    if not path.exists():
        raise RuleFileError(
            f"{path}: there is no such file. Disco103 is disco_rl/update_rules/weights/disco_103.npz of "
            "github.com/google-deepmind/disco_rl."
        )
    arrays = arrays_of(path)
    wanted = shapes(config)
    if strange := sorted(set(arrays) ^ set(wanted)):
        raise RuleFileError(f"{path}: it is no DiscoRL rule: {strange[0]} is {_which(strange[0] in arrays)}.")
    for name, shape in wanted.items():
        if arrays[name].shape != shape or arrays[name].dtype.kind != "f":
            found = f"{arrays[name].dtype}{arrays[name].shape}"
            raise RuleFileError(f"{path}: {name} is {found}, and a rule of these sizes has float32{shape}.")
    return {name: jnp.asarray(arrays[name]) for name in wanted}


def _which(there: bool) -> str:
    return "in it" if there else "missing"


def save(path: str | Path, weights: Weights) -> None:
    """Writes a rule's weights; `load` needs a config of the same sizes."""
    np.savez_compressed(path, allow_pickle=False, **{name: np.asarray(x) for name, x in weights.items()})


@pytree
class Memory:
    """The memory of a rule over an agent's life."""

    hidden: jax.Array  # (memory,)
    cell: jax.Array
    mean: jax.Array  # moving averages of the advantage and of its square
    square: jax.Array
    missing: jax.Array  # weight still missing in the averages, for bias correction


def fresh_memory(config: RuleConfig) -> Memory:
    zeros = jnp.zeros(config.memory)
    return Memory(zeros, zeros, jnp.zeros(()), jnp.zeros(()), jnp.ones(()))


class Outputs(NamedTuple):
    """The outputs of an agent for states with any leading axes."""

    logits: Array  # (..., A)
    y: Array  # (..., Y) logits
    z: Array  # (..., A, Y) logits, of every action
    aux_pi: Array  # (..., A, A) logits of the policy after every action
    q: Array  # (..., A, bins) logits of the value of each action


class Trajectories(NamedTuple):
    """Trajectories, the rule's input, time-major (T, B)."""

    action: Int[Array, "T B"]
    behaviour: Float[Array, "T B A"]  # logits of the policy that drew the actions
    reward: Float[Array, "T B"]
    done: Bool[Array, "T B"]


class Values(NamedTuple):
    """Values, advantages and targets of q for trajectories."""

    value: Array  # (T, B), the mean of q under the policy
    next_value: Array
    advantage: Array  # (T, B), the Retrace target minus the target network's value
    normalized: Array
    target_q: Array  # (T, B, A)
    q_advantage: Array  # (T, B, A), advantages of all actions by the target network
    normalized_q: Array
    target: Array  # (T, B), the Retrace target of q(a)


class Targets(NamedTuple):
    """Targets of the agent's outputs, as logits."""

    pi: Array  # (T, B, A)
    y: Array  # (T, B, Y)
    z: Array  # (T, B, Y), for the action taken
    q: Array  # (T, B), a scalar value


def chosen(x: Array, action: Array) -> Array:
    """The entries of x (T, B, A, ...) that belong to the actions (T, B)."""
    index = action.reshape(*action.shape, *[1] * (x.ndim - 2))
    return jnp.take_along_axis(x, index, 2)[:, :, 0]


def kl(p: Array, q: Array) -> Array:
    """KL(p || q) of categorical distributions given as logits."""
    log_p = jax.nn.log_softmax(p)
    return jnp.sum(jnp.exp(log_p) * (log_p - jax.nn.log_softmax(q)), -1)


def lstm(linear: Array, cell: Array) -> tuple[Array, Array]:
    """`(hidden, cell)` after an LSTM step with gates (..., 4 size): input, candidate, forget (biased by 1), output."""
    i, g, f, o = jnp.split(linear, 4, -1)
    cell = jax.nn.sigmoid(f + 1) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(cell), cell


def apply_rule(
    weights: Weights, config: RuleConfig, now: Outputs, after: Outputs, old: Outputs, old_after: Outputs,
    seen: Trajectories, values: Values, memory: Memory,
) -> tuple[Targets, Memory]:  # fmt: skip
    """`(targets, memory)` of the rule for trajectories (T, B, ...)."""

    def linear(name: str, x: Array) -> Array:
        w = weights[f"lstm/{name}/w"]
        return x @ w.reshape(w.shape[-2:]) + weights[f"lstm/{name}/b"]

    def embedded(name: str, logits: Array) -> Array:
        hidden = jax.nn.relu(linear(f"{name}/~/linear_0", jax.nn.softmax(logits)))
        return linear(f"{name}/~/linear_1", hidden)[..., 0]

    def on_actions(name: str, x: Array) -> Array:
        """A layer that is equivariant in actions: its inputs for each are the action's and the mean over all."""
        mean = jnp.broadcast_to(jnp.mean(x, 2, keepdims=True), x.shape)
        return jax.nn.relu(linear(name, jnp.concatenate([x, mean], -1)))

    def log(x: Array) -> Array:
        return jnp.sign(x) * jnp.log1p(jnp.abs(x))

    fixed = jax.lax.stop_gradient
    pi, pi_after, behaviour, old_pi = (
        fixed(jax.nn.softmax(x)) for x in (now.logits, after.logits, seen.behaviour, old.logits)
    )
    held: Values = fixed(values)
    one_hot = jax.nn.one_hot(seen.action, pi.shape[-1])

    def of_action(x: Array) -> Array:
        return jnp.sum(one_hot * x, -1)

    def seen_through(prefix: str) -> tuple[Array, Array]:
        """`(inputs (T, B, n), outputs of the layers on actions (T, B, A, c))`, with the embeddings of one network."""
        y, y_after, old_y, old_y_after = (embedded(f"{prefix}mlp", x.y) for x in (now, after, old, old_after))
        z, z_after, old_z, old_z_after = (embedded(f"{prefix}mlp_1", x.z) for x in (now, after, old, old_after))
        inputs = [
            *(of_action(pi), of_action(behaviour), log(seen.reward), 1.0 - seen.done),
            *(log(held.value), log(held.next_value), log(held.advantage), held.normalized, of_action(old_pi)),
            *(y, y_after, old_y, old_y_after),
        ]
        for here, there in ((z, z_after), (old_z, old_z_after)):
            inputs += [of_action(here), jnp.sum(pi * here, -1), jnp.sum(pi_after * there, -1)]
            inputs += [jnp.max(here, -1), jnp.max(there, -1)]
        each = [pi, behaviour, old_pi, z, old_z, log(held.target_q), log(held.q_advantage), held.normalized_q, one_hot]
        x = on_actions(f"{prefix}sequential/conv1_d", jnp.stack(each, -1))
        x = on_actions(f"{prefix}sequential/conv1_d_1", x)
        return jnp.concatenate([jnp.stack(inputs, -1), jnp.mean(x, 2), chosen(x, seen.action)], -1), x

    inputs, actions = seen_through("")
    gates, recurrent = jnp.split(weights["lstm/lstm/linear/w"], [inputs.shape[-1]])
    projected = inputs @ gates + weights["lstm/lstm/linear/b"]

    def back(carry: tuple[Array, Array], step: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        projected, done = step
        hidden, cell = (jnp.where(done[:, None], 0, x) for x in carry)
        carry = lstm(projected + hidden @ recurrent, cell)
        return carry, carry[0]

    start = jnp.zeros((inputs.shape[1], config.features), inputs.dtype)
    _, x = jax.lax.scan(back, (start, start), (projected, seen.done), reverse=True)
    x = x * linear("linear", memory.hidden)
    about, y_hat, z_hat = linear("linear_1", x), linear("linear_2", x), linear("linear_3", x)
    each = jnp.broadcast_to(x[:, :, None], (*actions.shape[:-1], x.shape[-1]))
    pi_hat = linear("linear_4", on_actions("sequential_1/conv1_d", jnp.concatenate([each, actions], -1)))[..., 0]

    unroll = "~/meta_lstm/~unroll/"
    told = [seen_through(unroll)[0], about, embedded(f"{unroll}mlp", y_hat)[..., None]]
    mean = jnp.mean(linear(f"{unroll}mlp_2/~/linear_0", jnp.concatenate(told, -1)), (0, 1))
    hidden, cell = lstm(linear(f"{unroll}lstm/linear", jnp.concatenate([mean, memory.hidden])), memory.cell)
    return Targets(pi_hat, y_hat, z_hat, values.target), memory.replace(hidden=hidden, cell=cell)
