"""Policies for coupled restless bandits: fitted Q-iteration with a combinatorial arg-max, and what to compare it with.

The Q-function is a ReLU network of (action, state) with one layer of 16 units (the paper's has 16 and 32: see the
README for what that costs without a commercial solver), first fitted to the expected reward
(myopic pre-training), then to `expected reward + 0.99 max_a Q(next state, a)` with the maximum over the **feasible**
actions. The arg-max is an argument: `Enumerator` (all feasible actions, jitted) or `Solver` (a mixed-integer program).
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from milp import best_linear, best_of_network

from jaxrl.envs.bandits import coupled
from jaxrl.exact import whittle

GAMMA = 0.99
UNITS = (16,)
PRETRAINING = 2000


# ---- the Q-function


def init(key: jax.Array, size: int) -> list[tuple[jax.Array, jax.Array]]:
    """Weights and biases, uniform within 1 / sqrt(fan in)."""
    sizes = (size, *UNITS, 1)
    bounds = [fan_in**-0.5 for fan_in in sizes[:-1]]
    keys = jax.random.split(key, 2 * len(bounds)).reshape(-1, 2)
    return [
        (jax.random.uniform(k[0], (i, o), minval=-b, maxval=b), jax.random.uniform(k[1], (o,), minval=-b, maxval=b))
        for k, i, o, b in zip(keys, sizes[:-1], sizes[1:], bounds, strict=True)
    ]


def q_value(weights: list, arms: jax.Array, action: jax.Array) -> jax.Array:
    """Of states `(..., M)` and actions `(..., n)`, in units of the last fit's standard deviation: `(...)`."""
    (weight, bias), *rest = weights
    n = action.shape[-1]
    x = action @ weight[:n] + (arms / 3.0 @ weight[n:] + bias)  # apart: one state meets very many actions
    for weight, bias in rest:
        x = jax.nn.relu(x) @ weight + bias
    return x[..., 0]


@functools.partial(jax.jit, static_argnames="steps")
def fit(key: jax.Array, weights: list, arms: jax.Array, action: jax.Array, target: jax.Array, steps: int) -> list:
    """Minibatch regression (32, AdamW with a cosine schedule from 3e-3) on standardised targets with Huber's loss."""
    optimiser = optax.adamw(optax.cosine_decay_schedule(3e-3, steps))

    def loss(weights, rows):
        return jnp.mean(optax.huber_loss(q_value(weights, arms[rows], action[rows]), target[rows]))

    def step(carry, key):
        weights, state = carry
        gradient = jax.grad(loss)(weights, jax.random.randint(key, (32,), 0, target.shape[0]))
        update, state = optimiser.update(gradient, state, weights)
        return (optax.apply_updates(weights, update), state), None

    keys = jax.random.split(key, steps)
    return jax.lax.scan(step, (weights, optimiser.init(weights)), keys)[0][0]


# ---- two ways to the best feasible action


class Enumerator:
    """All feasible actions in one array."""

    def __init__(self, env: coupled.CoupledRestless, params: Any) -> None:
        self.actions = jnp.asarray(env.feasible_actions(params))
        self._best = jax.jit(lambda weights, arms: jax.lax.map(lambda s: self.one(weights, s), arms))

    def one(self, weights: list, arms: jax.Array) -> jax.Array:
        """The best action in one state; a pure function."""
        return self.actions[jnp.argmax(q_value(weights, arms, self.actions))]

    def best(self, weights: list, arms: np.ndarray) -> np.ndarray:
        """The best action in each of a batch of states."""
        return np.asarray(self._best(weights, arms))


class Solver:
    """The same by HiGHS, one state at a time; a solution is remembered until the weights change.

    `gap` is the relative gap at which the search may stop.
    """

    def __init__(self, env: coupled.CoupledRestless, params: Any, gap: float = 1e-3) -> None:
        self.env, self.params, self.gap = env, params, gap
        self.weights, self.memory, self.solved = None, {}, 0

    def best(self, weights: list, arms: np.ndarray) -> np.ndarray:
        """The best action in each of a batch of states."""
        if weights is not self.weights:
            self.weights, self.memory = weights, {}
            self.layers = [(np.asarray(w, float), np.asarray(b, float)) for w, b in weights]
        return np.stack([self._one(tuple(row)) for row in np.asarray(arms).tolist()])

    def _one(self, arms: tuple) -> np.ndarray:
        if arms not in self.memory:
            n = self.env.num_actions
            (weight, bias), *rest = self.layers
            first = (weight[:n], bias + np.asarray(arms) / 3.0 @ weight[n:])
            self.memory[arms] = best_of_network(self.env, self.params, [first, *rest], mip_rel_gap=self.gap)
            self.solved += 1
        return self.memory[arms]


# ---- learning


def learn(key: jax.Array, env: Any, params: Any, solver: Any, rounds: int, samples: int, fit_steps: int) -> list:
    """Weights after myopic pre-training and `rounds` of fitted Q-iteration on `samples` transitions each.

    Pre-training, which needs no arg-max, has `PRETRAINING` pairs. Half of the states are drawn uniformly with a random
    feasible action, half are met by the greedy policy, which is epsilon-greedy with epsilon falling from 0.9 to 0.05.
    The targets of the whole replay are renewed every round.
    """
    randoms = jax.jit(jax.vmap(lambda key: env.fill(jax.random.uniform(key, (env.num_actions,)), params)))
    expected = jax.jit(jax.vmap(env.expected_reward, (0, 0, None)))
    step = jax.jit(jax.vmap(lambda key, arms, action: env.step(key, coupled.State(jnp.int32(0), arms), action, params)))
    key, init_key, seed_key = jax.random.split(key, 3)
    rng = np.random.default_rng(int(jax.random.randint(seed_key, (), 0, 2**31 - 1)))
    weights = init(init_key, env.num_actions + env.num_arms)

    def data(count):
        nonlocal key
        key, use = jax.random.split(key)
        arms = rng.integers(0, 4, (count, env.num_arms)).astype(np.int32)
        return arms, np.asarray(randoms(jax.random.split(use, count)))

    def refit(arms, action, target):
        nonlocal key
        key, use = jax.random.split(key)
        scale = max(float(target.std()), 1e-6)
        # One shape, so that the fit is compiled once.
        rows = np.arange(max(PRETRAINING, rounds * samples)) % len(target)
        fitted = fit(use, weights, arms[rows], action[rows], ((target - target.mean()) / scale)[rows], fit_steps)
        return fitted, (target.mean(), scale)

    arms, action = data(PRETRAINING)
    weights, (mean, scale) = refit(arms, action, np.asarray(expected(arms, action, params)))
    replay = []
    for i in range(rounds):
        arms, action = data(samples // 2)
        epsilon = 0.05 + 0.85 * np.exp(-2.0 * i)
        walkers = max(samples // 40, 1)  # episodes of 20 steps side by side
        states = (rng.random((walkers, env.num_arms)) < 0.5).astype(np.int32)
        parts = [(arms, action)]
        for _ in range(20):
            greedy = solver.best(weights, states)
            explore = rng.random(walkers) < epsilon
            _, tried = data(walkers)
            chosen = np.where(explore[:, None], tried, greedy)
            parts.append((states, chosen))
            key, use = jax.random.split(key)
            states = np.asarray(step(jax.random.split(use, walkers), states, chosen).obs)
        arms, action = (np.concatenate(x) for x in zip(*parts, strict=True))
        key, use = jax.random.split(key)
        following = np.asarray(step(jax.random.split(use, len(arms)), arms, action).obs)
        replay.append((arms, action, following, np.asarray(expected(arms, action, params))))
        arms, action, following, earned = (np.concatenate(x) for x in zip(*replay, strict=True))
        ahead = q_value(weights, following, solver.best(weights, following))
        weights, (mean, scale) = refit(arms, action, earned + GAMMA * (mean + scale * np.asarray(ahead)))
    return weights


# ---- evaluation


def evaluate(env: Any, params: Any, policy: Any, episodes: int = 50, seed: int = 1) -> np.ndarray:
    """Expected reward a step, averaged over each of `episodes` of 20 steps; equal first states for every policy.

    `policy(keys, arms (episodes, M)) -> actions`, on the host. Arms start in state 1 with probability 0.2, as in the
    authors' evaluation.
    """
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    key, reset_key = jax.random.split(jax.random.key(seed))
    states = jax.vmap(env.reset, (0, None))(
        jax.random.split(reset_key, episodes), params.replace(start=jnp.float32(0.2))
    )[1]
    total = np.zeros(episodes)
    for _ in range(20):
        key, act_key, step_key = jax.random.split(key, 3)
        actions = jnp.asarray(policy(jax.random.split(act_key, episodes), states.arms))
        ts = step(jax.random.split(step_key, episodes), states, actions, params)
        assert not np.any(ts.info["infeasible"]), "a policy chose an infeasible action"
        states, total = ts.state, total + np.asarray(ts.info["expected_reward"])
    return total / 20


def linear_policy(env: Any, params: Any, value: Any, enumerator: Enumerator | None) -> Any:
    """The feasible action of largest `value(arms) @ action` in each state."""
    if enumerator is None:
        values = jax.jit(jax.vmap(value))
        return lambda keys, arms: np.stack([best_linear(env, params, v) for v in np.asarray(values(arms), float)])
    actions = enumerator.actions
    best = jax.jit(jax.vmap(lambda arms: actions[jnp.argmax(actions @ value(arms))]))
    return lambda keys, arms: best(arms)


def baselines(env: Any, params: Any, enumerator: Enumerator | None) -> dict[str, Any]:
    """Null, random, myopic, and (where arms are pulled) the sum of Whittle indices over the feasible set."""
    n = env.num_actions
    fill = jax.jit(jax.vmap(lambda key: env.fill(jax.random.uniform(key, (n,)), params)))
    found = {"null": lambda keys, arms: jnp.zeros((len(arms), n), jnp.int32), "random": lambda keys, arms: fill(keys)}
    if isinstance(env, coupled.Interventions):
        actions = enumerator.actions
        gain = jax.vmap(env.expected_reward, (None, 0, None))
        myopic = jax.jit(jax.vmap(lambda arms: actions[jnp.argmax(gain(arms, actions, params))]))
        return found | {"myopic": lambda keys, arms: myopic(arms)}

    def myopic_value(arms):
        down, up = coupled.next_reward(arms, params.reward)
        return (params.up[:, 1] - params.up[:, 0]) * (up - down)

    with jax.enable_x64(True):
        mdps = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), coupled.arm_mdps(params))
        index, indexable = jax.vmap(lambda p, r: whittle.whittle_index(p, r, GAMMA))(*mdps)
        assert indexable.all(), "an arm is not indexable"
    index = jnp.asarray(np.asarray(index), jnp.float32)
    return found | {
        "myopic": linear_policy(env, params, myopic_value, enumerator),
        "whittle": linear_policy(env, params, lambda arms: index[jnp.arange(env.num_arms), arms], enumerator),
    }


def optimum(env: Any, params: Any, enumerator: Enumerator) -> Any:
    """The best policy of a small instance (4**num_arms states), by backward induction over 20 steps, undiscounted.

    One action at a time, and under it one arm at a time: the expectation over next states is a product over arms.
    """
    m = env.num_arms
    state = jnp.stack(jnp.meshgrid(*[jnp.arange(4)] * m, indexing="ij"), -1)
    down, up = jnp.maximum(jnp.arange(4) - 1, 0), jnp.minimum(jnp.arange(4) + 1, 3)

    def action_value(action, value):
        climb = env.climb_probability(action, params)
        earned = 0.0
        for arm in range(m):
            shape = [1] * m
            shape[arm] = 4
            mean = climb[arm] * params.reward[arm, up] + (1 - climb[arm]) * params.reward[arm, down]
            earned = earned + mean.reshape(shape)
            value = climb[arm] * jnp.take(value, up, arm) + (1 - climb[arm]) * jnp.take(value, down, arm)
        return earned + value

    def back(value, _):
        def better(best, i):
            q = action_value(enumerator.actions[i], value)
            return (jnp.maximum(best[0], q), jnp.where(q > best[0], i, best[1]).astype(jnp.int32)), None

        first = (jnp.full(value.shape, -jnp.inf), jnp.zeros(value.shape, jnp.int32))
        (value, choice), _ = jax.lax.scan(better, first, jnp.arange(len(enumerator.actions)))
        return value, choice

    choices = jax.jit(lambda: jax.lax.scan(back, jnp.zeros(state.shape[:-1]), None, length=20)[1])()
    clock = itertools.count()

    def policy(keys, arms):
        return enumerator.actions[choices[19 - next(clock)][tuple(np.asarray(arms).T)]]

    return policy
