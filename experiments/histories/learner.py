"""CQL and IQL for discrete actions on whole episodes, with an encoder of histories and the bisimulation loss.

phi(tau) is a GRU's state after all looks and moves so far. Heads on it learn by the library's losses, of which the
actor's moves no phi. A Gaussian model of phi's dynamics, P(phi(next tau) | phi(tau), a), is fitted to it by likelihood
and moves no phi either. With it, and the moves and rewards that two histories went on by, the bisimulation loss is

    ( |phi(tau) - phi(tau')|_1 - |r - r'| - gamma W2(P(. | phi(tau), a), P(. | phi(tau'), a')) )^2

whose gradients go to the two phi alone (Zhang et al. 2021, "Learning invariant representations for reinforcement
learning without reconstruction"). It is measured in every arm, and trained by the weight that the arm gives it.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import room

from jaxrl.algos import cql_discrete, iql
from jaxrl.nn.action_values import value_of
from jaxrl.nn.distributions import Categorical, Normal
from jaxrl.nn.networks import MLP
from jaxrl.nn.recurrent import Recurrent

GAMMA = 0.9


class Settings(NamedTuple):
    learner: str  # CQL or IQL
    batch: int = 16  # episodes
    width: int = 32  # of phi and of the heads' hidden layers
    learning_rate: float = 2e-3
    tau: float = 0.01
    min_q_weight: float = 0.1
    expectile: float = 0.8
    beta: float = 5.0


class Arm(NamedTuple):
    """Numbers, so that all arms are one program."""

    memory: Any  # 0: phi is of the present look alone
    weight: Any  # of the bisimulation loss
    shrinking: Any  # of the mean square of |phi(tau) - phi(tau')|_1 alone: a control


class Network(nn.Module):
    settings: Settings

    def setup(self) -> None:
        width, n = self.settings.width, room.NUM_ACTIONS
        self.encoder = Recurrent(width)
        self.q = [MLP((width,), n, "relu") for _ in range(1 if self.settings.learner == "CQL" else 2)]
        if self.settings.learner == "IQL":
            self.v, self.pi = MLP((width,), 1, "relu"), MLP((width,), n, "relu", out_scale=0.01)
        self.model = MLP((2 * width,), 2 * width, "relu")

    def phi(self, carry: Any, looks: Any, start: Any, memory: Any) -> Any:
        """Of looks (T, B, LOOK): `(carry, phi (T, B, width))`. Without memory it sees no last move, and forgets."""
        shown = jnp.arange(room.LOOK) < room.LOOK - room.NUM_ACTIONS
        return self.encoder(carry, jnp.where(shown | (memory > 0), looks, 0), start | (memory == 0))

    def heads(self, phi: Any) -> dict[str, Any]:
        heads = {"q": jnp.stack([head(phi) for head in self.q])}
        if self.settings.learner == "IQL":
            heads |= {"v": self.v(phi)[..., 0], "pi": self.pi(jax.lax.stop_gradient(phi))}
        return heads

    def dynamics(self, phi: Any, action: Any) -> Normal:
        x = self.model(jnp.concatenate([phi, jax.nn.one_hot(action, room.NUM_ACTIONS)], -1))
        change, log_std = jnp.split(x, 2, -1)
        return Normal(phi + change, jnp.clip(log_std, -5, 1))

    def __call__(self, looks: Any, action: Any) -> Any:
        """All of it, to be initialised."""
        start = jnp.zeros(looks.shape[:2], bool)
        phi = self.phi(self.encoder.initial_carry(start.shape[1:]), looks, start, 1)[1]
        return self.heads(phi), self.dynamics(phi, action)


def average(x: Any, valid: Any) -> jax.Array:
    return jnp.sum(jnp.where(valid, x, 0)) / jnp.maximum(jnp.sum(valid), 1)


def bisimulation(phi: Any, reward: Any, ahead: Normal, valid: Any, shift: Any) -> tuple[jax.Array, jax.Array]:
    """`(the loss, the mean square of |phi(tau) - phi(tau')|_1)` over pairs of rows that are `shift` apart."""

    def apart(x):
        return x - jnp.roll(x, shift, 0)

    distance = jnp.sum(jnp.abs(apart(phi)), -1)
    square = apart(ahead.mean) ** 2 + apart(jnp.exp(ahead.log_std)) ** 2
    target = jnp.abs(apart(reward)) + GAMMA * jnp.sqrt(jnp.sum(square, -1))
    both = valid & jnp.roll(valid, shift, 0)
    return average((distance - jax.lax.stop_gradient(target)) ** 2, both), average(distance**2, both)


def losses(weights: Any, target: Any, data: room.Data, arm: Arm, shift: Any, network: Network) -> Any:
    """Of some episodes: what is minimised, and what is reported. The rows are all steps, time-major."""
    settings, fixed = network.settings, jax.lax.stop_gradient
    apply: Any = network.apply
    looks, start = room.looks_of(data)
    carry = jnp.zeros((start.shape[1], settings.width))
    phi, old = (apply(w, carry, looks, start, arm.memory, method=Network.phi)[1] for w in (weights, target))
    heads, theirs = (apply(w, z, method=Network.heads) for w, z in ((weights, phi), (target, old)))
    cell, action, valid = (jnp.swapaxes(x, 0, 1) for x in (data.cell, data.action, data.valid))
    reward = (cell[1:] == data.goal).astype(jnp.float32)
    discount = GAMMA * ~jnp.any(cell[1:, :, None] == room.CORNERS, -1)
    flat = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
    action, valid, reward, discount = (flat(x) for x in (action, valid, reward, discount))
    values = lambda q: jnp.stack([value_of(flat(x[:-1]), action) for x in q])  # noqa: E731
    q = values(heads["q"])
    if settings.learner == "CQL":
        following = value_of(flat(theirs["q"][0, 1:]), jnp.argmax(flat(heads["q"][0, 1:]), -1))
        rest = settings.min_q_weight * cql_discrete.penalty(flat(heads["q"][0, :-1]), q[0])
    else:
        following = flat(heads["v"][1:])
        advantage = jnp.min(fixed(values(theirs["q"])), 0) - flat(heads["v"][:-1])
        log_prob = Categorical(flat(heads["pi"][:-1])).log_prob(action)
        # The library's are means: of one row each.
        rest = jax.vmap(iql.value_loss, (0, None))(advantage[:, None], settings.expectile)
        cloning = jax.vmap(iql.actor_loss, (0, 0, None))
        rest += cloning(log_prob[:, None], fixed(advantage)[:, None], settings.beta)
    error = jnp.sum((q - fixed(reward + discount * following)) ** 2, 0)
    before, after = flat(phi[:-1]), flat(phi[1:])
    ahead = apply(weights, fixed(before), action, method=Network.dynamics)
    fit = -average(ahead.log_prob(fixed(after)), valid)
    bisim, square = bisimulation(before, reward, ahead, valid, shift)
    report = {"bisimulation": bisim, "share": bisim / jnp.maximum(square, 1e-9), "td_error": average(error, valid)}
    return average(error + rest, valid) + fit + arm.weight * bisim + arm.shrinking * square, report


def greedy(network: Network, weights: Any, arm: Arm) -> Any:
    apply: Any = network.apply

    def act(carry, look, start):
        carry, phi = apply(weights, carry, look[None], start[None], arm.memory, method=Network.phi)
        heads = apply(weights, phi[0], method=Network.heads)
        return carry, jnp.argmax(heads["pi"] if "pi" in heads else heads["q"][0], -1)

    return act


def merging(network: Network, weights: Any, arm: Arm, data: room.Data, shifts: Any) -> jax.Array:
    """How far apart phi has two histories of one state, as a share of how far those of two: 0, it has states."""
    looks, start = room.looks_of(data)
    carry = jnp.zeros((start.shape[1], network.settings.width))
    apply: Any = network.apply
    phi = apply(weights, carry, looks, start, arm.memory, method=Network.phi)[1][1:-1]
    state = (data.cell.T * room.SIDE**2 + data.goal)[1:-1].reshape(-1)
    phi, valid = phi.reshape(len(state), -1), data.valid.T[1:].reshape(-1)

    def pairs(shift):
        distance = jnp.sum(jnp.abs(phi - jnp.roll(phi, shift, 0)), -1)
        both, same = valid & jnp.roll(valid, shift, 0), state == jnp.roll(state, shift, 0)
        return [jnp.sum(jnp.where(which, x, 0)) for which in (both & same, both & ~same) for x in (distance, 1.0)]

    near, n, far, m = (jnp.sum(x) for x in jax.lax.map(pairs, shifts))
    return (near / n) / (far / m)


def train(
    settings: Settings, data: room.Data, size: Any, arms: Arm, test: room.Data, key: Any, steps: int, chunks: int
) -> dict[str, jax.Array]:
    """All arms (A,) and seeds (S,) at once, of `data` (S, E, ...) the first `size` episodes.

    Reports are (A, S, chunks): means over the chunk's gradient steps, and how the policy does after it. The arms of a
    seed begin with the same weights and draw the same episodes.
    """
    network, seeds = Network(settings), len(data.cell)
    optimiser = optax.adam(settings.learning_rate)
    looks, action = jnp.zeros((1, 1, room.LOOK)), jnp.zeros((1, 1), jnp.int32)
    init_key, step_key = jax.random.split(key)
    begin = jax.lax.map(lambda k: network.init(k, looks, action), jax.random.split(init_key, seeds))
    state = begin, begin, jax.vmap(optimiser.init)(begin)
    state = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(arms.memory), *x.shape)), state)
    shifts = 1 + np.random.default_rng(0).choice(test.valid.size // 2, 64, replace=False)

    def update(state, arm, episodes, shift):
        weights, target, opt = state
        gradient, report = jax.grad(losses, has_aux=True)(weights, target, episodes, arm, shift, network)
        change, opt = optimiser.update(gradient, opt, weights)
        weights = optax.apply_updates(weights, change)
        return (weights, optax.incremental_update(weights, target, settings.tau), opt), report

    def step(state, key):
        index_key, shift_key = jax.random.split(key)
        index = jax.random.randint(index_key, (seeds, settings.batch), 0, size)
        shift = jax.random.randint(shift_key, (), 1, room.STEPS * settings.batch)
        episodes = jax.tree.map(lambda x: jax.vmap(lambda y, i: y[i])(x, index), data)
        of_seeds = jax.vmap(update, (0, None, 0, None))
        return jax.vmap(of_seeds, (0, 0, None, None))(state, arms, episodes, shift)

    def judge(weights, arm):
        carry = jnp.zeros((len(room.CASES), settings.width))
        works = room.success(greedy(network, weights, arm), carry)
        return {"success": works, "merging": merging(network, weights, arm, test, jnp.asarray(shifts))}

    def chunk(state, keys):
        state, reports = jax.lax.scan(step, state, keys)
        judged = jax.vmap(jax.vmap(judge, (0, None)))(state[0], arms)
        return state, jax.tree.map(lambda x: jnp.mean(x, 0), reports) | judged

    reports = jax.lax.scan(chunk, state, jax.random.split(step_key, (chunks, steps // chunks)))[1]
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), reports)
