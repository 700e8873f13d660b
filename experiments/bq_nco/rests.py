"""A policy that sees the rest of a knapsack, exact demonstrations for it, and how far it is from the optimum."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.data.datasets import Dataset
from jaxrl.envs.routing import knapsack
from jaxrl.exact import routing
from jaxrl.nn.attention import Block

UNITS, CAPACITY = 1000, 25_000


class RestActor(nn.Module):
    """BQ-NCO's kind of network: items attend to each other, without positions, and each gets a logit.

    It also sees the capacity for each item that is left, which attention, a mean, cannot count.
    """

    width: int
    layers: int

    @nn.compact
    def __call__(self, obs):
        items, left = obs["items"], obs["capacity"][..., None]
        there = items[..., 1] > 0
        share = left / jnp.maximum(there.sum(-1, keepdims=True), 1)
        rest = jnp.broadcast_to(jnp.stack([left / 5, 10 * share], -1), (*items.shape[:-1], 2))
        worth = jnp.where(there, jnp.log(items[..., 0] + 1e-3) - jnp.log(items[..., 1] + 1e-3), 0)[..., None]
        x = nn.Dense(self.width)(nn.relu(nn.Dense(2 * self.width)(jnp.concatenate([items, worth, rest], -1))))
        visible = there[..., None, :] | jnp.eye(there.shape[-1], dtype=bool)
        for _ in range(self.layers):
            block = Block(self.width, 4 * self.width, 4, True, False)
            x = block.mix(x, *block.split(x), visible)
        return nn.Dense(1)(nn.LayerNorm()(x))[..., 0]


def demonstrations(key, num_items, states):
    """`(observations, actions, whether there is one)` of rests of one instance, of a capacity from 0.3 to 25.

    Of an optimal set, those with most value for their weight are taken already, and the best of the others is the next:
    a part of an optimal set is optimal for the rest of the problem. A policy that takes what it is surest of first gets
    into such rests, and the last few items, which are what greedy gets wrong, are drawn more often.
    """
    item_key, capacity_key, state_key = jax.random.split(key, 3)
    values, weights = knapsack.draw(item_key, num_items)
    ends = jnp.log(jnp.array([300, CAPACITY]))
    capacity = jnp.exp(jax.random.uniform(capacity_key, minval=ends[0], maxval=ends[1])).astype(jnp.int32)
    _, best = routing.knapsack(values, weights, capacity, CAPACITY)
    env = knapsack.Knapsack(num_items, CAPACITY)

    def one(key):
        order = jnp.argsort(jnp.where(best, -values / weights, 1))
        some = jax.random.uniform(key, (2,))
        count = jnp.floor(jnp.where(some[1] < 0.5, some[0], 1 - some[0] ** 2) * best.sum()).astype(jnp.int32)
        taken = jnp.argsort(order) < count
        left = capacity - jnp.sum(jnp.where(taken, weights, 0))
        state = knapsack.State(count, values, weights, taken, left)
        return env.observe(key, state, env.default_params), order[count], best.any()

    return jax.vmap(one)(jax.random.split(state_key, states))


def dataset(key, num_items, instances, states):
    """Demonstrations as a dataset of single steps."""
    make = jax.jit(lambda keys: jax.lax.map(lambda key: demonstrations(key, num_items, states), keys))
    found = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), make(jax.random.split(key, instances)))
    obs, action, there = jax.tree.map(lambda x: x[found[2]], found)
    ended = jnp.ones(len(action), bool)
    return Dataset(obs, action, jnp.zeros(len(action)), ended, ended, obs)


def returns(env, act, levels):
    """`(n,)` returns of `act(obs)` on n levels."""

    def one(level):
        obs, state = env.reset(jax.random.key(0), level)

        def step(carry):
            obs, state, total, _ = carry
            ts = env.step(jax.random.key(0), state, act(obs), level)
            return ts.obs, ts.state, total + ts.reward, ts.terminated

        start = obs, state, jnp.float32(0), jnp.bool_(False)
        return jax.lax.while_loop(lambda carry: ~carry[3], step, start)[2]

    return jax.lax.map(one, levels)


def gaps(algo_on, policy, num_items, capacity, count, key):
    """Per cent below the optimum `(n,)` of the policy and of the greedy rule, on drawn instances."""
    env = knapsack.Knapsack(num_items, CAPACITY)
    params = env.default_params.replace(capacity=jnp.int32(capacity))
    levels = jax.vmap(env.generate, (0, None))(jax.random.split(key, count), params)
    act = algo_on(env).act

    def learned(obs):
        return act(policy, jax.random.key(0), obs, (), greedy=True)[0]

    best = jax.lax.map(env.optimal_value, levels)
    return [100 * (1 - returns(env, who, levels) / best) for who in (learned, knapsack.greedy)]
