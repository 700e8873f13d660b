"""A policy trained through smooth robustness and known dynamics, and the cross-entropy method: both plan T actions."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from tasks import System, T, signal_of

from jaxrl.exact import stl
from jaxrl.nn.networks import MLP


class Plan(nn.Module):
    """All T actions of a state."""

    actions: int
    hidden: tuple[int, ...] = (64, 64)

    @nn.compact
    def __call__(self, state):
        out = MLP(self.hidden, T * self.actions, "tanh")(state)
        return jnp.tanh(out).reshape(*out.shape[:-1], T, self.actions)


def train(task: System, key, steps=600, batch=64, rate=3e-3, temperature=0.05, margin=0.1):
    """`(weights, losses)`: Adam on the mean of relu(margin - smooth robustness) over new starts each step."""
    net = Plan(task.actions)
    key, first = jax.random.split(key)
    weights = net.init(first, task.initial(first, 1)[0])
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, steps))

    def loss(weights, starts):
        signals = jax.vmap(signal_of, (None, 0, 0))(task, starts, net.apply(weights, starts))
        rho = jax.vmap(lambda signal: stl.rho(task.formula, signal, temperature)[0])(signals)
        return jnp.mean(jax.nn.relu(margin - rho))

    def step(carry, starts):
        weights, state = carry
        value, grads = jax.value_and_grad(loss)(weights, starts)
        change, state = optimizer.update(grads, state)
        return (optax.apply_updates(weights, change), state), value

    starts = task.initial(key, steps * batch).reshape(steps, batch, -1)
    (weights, _), losses = jax.lax.scan(step, (weights, optimizer.init(weights)), starts)
    return weights, losses


def cem(task: System, key, state, population=256, elite=32, iterations=10):
    """The actions of the best robustness in `iterations` populations, drawn around the mean of the elite before."""

    def iterate(carry, noise):
        mean, spread, best, best_rho = carry
        plans = jnp.clip(mean + spread * noise, -1, 1)
        rho = jax.vmap(lambda plan: stl.rho(task.formula, signal_of(task, state, plan))[0])(plans)
        top = jax.lax.top_k(rho, elite)[1]
        chosen = plans[top]
        better = rho[top[0]] > best_rho
        best, best_rho = jnp.where(better, chosen[0], best), jnp.maximum(rho[top[0]], best_rho)
        return (chosen.mean(0), chosen.std(0) + 0.05, best, best_rho), None

    shape = T, task.actions
    noise = jax.random.normal(key, (iterations, population, *shape))
    start = jnp.zeros(shape), jnp.ones(shape), jnp.zeros(shape), jnp.float32(-jnp.inf)
    return jax.lax.scan(iterate, start, noise)[0][2]
