"""STL predictive control: a network that plans all actions, trained through smooth robustness and known dynamics."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from episodes import Episodes, system_of
from systems import GOALS, T, robustness

from jaxrl.exact.planning import control
from jaxrl.nn.networks import MLP

NO_TIMES = jnp.zeros(len(GOALS), jnp.int32)


class Plan(nn.Module):
    """The actions (T, m) of a whole episode from an observation at any step of it; those of the past mean nothing."""

    actions: int
    hidden: tuple[int, ...] = (64, 64)

    @nn.compact
    def __call__(self, obs):
        out = MLP(self.hidden, T * self.actions, out_scale=0.5)(obs)
        return jnp.tanh(out).reshape(*out.shape[:-1], T, self.actions)


def first_observation(env: Episodes, place):
    return env.observe(None, env.begun(place, NO_TIMES), None)


def play(env: Episodes, place, act):
    """`(observations (T, ...), actions (T, m))` of an episode from `place` that plays `act(obs, t)`."""

    def step(state, t):
        obs = env.observe(None, state, None)
        action = jnp.clip(act(obs, t), -1, 1)
        state = env.transition(None, state, action, None).state
        return state.replace(time=t + 1), (obs, action)

    return jax.lax.scan(step, env.begun(place, NO_TIMES), jnp.arange(T, dtype=jnp.int32))[1]


def train(key, env: Episodes, steps=1000, batch=64, rate=3e-3, temperature=0.02, margin=0.15, noise=0.05):
    """`(weights, losses)`: Adam on the mean of relu(margin - smooth robustness), through the dynamics.

    Half of the episodes are planned from their start. Of the others a first part is past, played with a new plan each
    step and noise, and the network plans the rest from what it sees then; the signal is that of the two parts.
    """
    system = system_of(env.system)
    net = Plan(system.actions)
    init_key, place_key, noise_key, time_key, half_key = jax.random.split(key, 5)
    weights = net.init(init_key, first_observation(env, env.default_params.places[0]))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(rate, steps)))

    def shortfall(weights, place, noise, k):
        seen, played = play(env, place, lambda obs, t: net.apply(jax.lax.stop_gradient(weights), obs)[t] + noise[t])
        past = jnp.arange(T)[:, None] < k
        actions = jnp.where(past, played, net.apply(weights, seen[k]))
        return jax.nn.relu(margin - robustness(system.flown(system.at(place), actions), temperature))

    def loss(weights, *inputs):
        return jnp.mean(jax.vmap(shortfall, (None, 0, 0, 0))(weights, *inputs))

    def step(carry, inputs):
        weights, state = carry
        i, inputs = inputs
        drawn = noise * jax.random.normal(jax.random.fold_in(noise_key, i), (batch, T, system.actions))
        value, grads = jax.value_and_grad(loss)(weights, inputs[0], drawn, inputs[1])
        change, state = optimizer.update(grads, state)
        return (optax.apply_updates(weights, change), state), value

    places = system.starts(place_key, steps * batch).reshape(steps, batch, -1)
    k = jax.random.randint(time_key, (steps, batch), 0, T) * jax.random.bernoulli(half_key, shape=(steps, batch))
    inputs = (jnp.arange(steps), (places, k))
    (weights, _), losses = jax.lax.scan(step, (weights, optimizer.init(weights)), inputs)
    return weights, losses


def predicted(env: Episodes, state, plan):
    """The robustness [m] of the episode that is in `state`, if it goes on by the rest of `plan` (T, m)."""

    def step(carry, inputs):
        t, action = inputs
        following = env.transition(None, carry, action, None).state.replace(time=t + 1)
        return jax.tree.map(lambda new, old: jnp.where(t < state.time, old, new), following, carry), None

    return jax.lax.scan(step, state, (jnp.arange(T, dtype=jnp.int32), plan))[0].rho.min()


def decide(env: Episodes, weights, state, old, checked: bool):
    """The plan (T, m) of a step; `checked`: the `old` one stays where it is predicted to do better."""
    new = Plan(system_of(env.system).actions).apply(weights, env.observe(None, state, None))
    if not checked:
        return new
    plans = jnp.stack([new, old])
    return plans[jnp.argmax(jax.vmap(lambda plan: predicted(env, state, plan))(plans))]


def open_loop(env: Episodes, weights, places):
    """(n,) m: the robustness where the plan of the first step is carried out."""
    system = system_of(env.system)

    def of(place):
        plan = Plan(system.actions).apply(weights, first_observation(env, place))
        return robustness(system.flown(system.at(place), plan))

    return jax.vmap(of)(places)


def predictive_control(env: Episodes, weights, places, checked: bool):
    """(n,) m: the robustness where every step decides anew and takes that step's action of the plan."""

    def step(carry, t):
        state, plan = carry
        plan = decide(env, weights, state, plan, checked)
        return (env.transition(None, state, plan[t], None).state.replace(time=t + 1), plan), None

    def of(place):
        start = env.begun(place, NO_TIMES), jnp.zeros((T, system_of(env.system).actions))
        return jax.lax.scan(step, start, jnp.arange(T, dtype=jnp.int32))[0][0].rho.min()

    return jax.vmap(of)(places)


def cem_control(env: Episodes, planner, key, places):
    """(n,) m: the same under a planner of the library, whose return is the robustness."""

    def of(inputs):
        key, place = inputs
        return control(env, planner, key, env.default_params, T, state=env.begun(place, NO_TIMES)).reward.sum()

    return jax.lax.map(of, (jax.random.split(key, len(places)), places))
