"""RAT: an attack on a policy's observations that makes it do what the attacker prefers, here on a pendulum.

Bai et al. (2025), "RAT: Adversarial attacks on deep reinforcement agents for targeted behaviors" (arXiv:2412.10713).
The task pays for standing upright. The attacker wants the rod to turn, counter-clockwise and on and on, and says so by
preferences between segments alone:

1. a reward is learned from them by the model of Bradley and Terry, and an *intention policy* pi_i by that reward;
2. an adversary theta shows the victim  seen(s) = s + strength * unit * tanh(net_theta(s)),  cut by the box, and
   descends

       L(theta, omega) = mean over states of  w_omega(s) KL(pi_v(. | seen(s)) || pi_i(. | s));

3. the weights w_omega(s), from 0 to 2, say in which states that counts. They descend what the adversary is for, after
   one step of it:

       J(theta - rate grad_theta L(theta, omega)),    J(theta) = -mean of Q_i(s, action of pi_v for seen(s)).

Deviations from the paper and its code: policies are PPO's, not SAC's, so Q_i is a regression of r + gamma V_i(s') on
recorded steps, where the paper has SAC's critic, and there is no entropy of the adversary, which has no noise; weights
begin at 1 everywhere; the gradient of step 3 is that of each state, by differentiating through the step, while the code
multiplies two gradients of whole batches by the mean weight (see README.md). That step is a plain one, on one batch,
at theta before Adam's steps, which omega's step follows; Q_i, fitted on actions inside the box, is read a little
outside of it. Means of actions count a tenth beyond the ends of the box, where they change nothing: of a clipped mean
there is no gradient, of a free one mostly that.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrl
from jaxrl import registry
from jaxrl.algos import ppo
from jaxrl.data import preferences, reward_models
from jaxrl.data.datasets import Dataset, joined
from jaxrl.environment import pytree
from jaxrl.nn import normalize
from jaxrl.nn.networks import MLP, ActorCritic
from jaxrl.wrappers import DirectedAttack, LearnedReward, ObservationAttack

ENV, PARAMS = jaxrl.make("Pendulum-v1")
SPACES = ENV.observation_space(PARAMS), ENV.action_space(PARAMS)
UNIT = np.array([1.0, 1.0, 8.0], np.float32)
"""A strength is a share of the half-width of each number that is observed: cosine, sine, angular velocity [rad/s]."""
TORQUE, STEPS, TURNS = 2.0, 200, 3.0
"""N m of an action of 1; steps of an episode; turns in its second half, of 5 s, that are the preferred behaviour."""
STREAMS, LENGTH, SEGMENT = 96, 100, 20
"""Of the recorded steps: streams, steps of each, steps of a segment that is compared."""
EPISODES, ENVS, ITERATIONS, KEPT, CYCLES, INNER, BATCH = 128, 16, 80, 10, 2, 10, 256
"""Of a judgement; of the adversary: environments, iterations, of how many the states are kept, how often in each so
many steps of theta are followed by one of omega, and the states of a step."""
LEAK, GAMMA, RATE, WEIGHT_RATE = 0.1, 0.95, 1e-3, 1e-2
SETTINGS = [TURNS, STREAMS, LENGTH, SEGMENT, EPISODES, ENVS, ITERATIONS, KEPT, CYCLES, INNER, BATCH]
SETTINGS += [LEAK, GAMMA, RATE, WEIGHT_RATE]
TUNED = registry.settings("ppo", ENV.id)
CONFIG, HYPER = ppo.Config(**TUNED.config), ppo.Hyper(**TUNED.hyper)
NETWORK = ActorCritic(SPACES[0], 1, True, CONFIG.hidden, CONFIG.activation)
VICTIM = ppo.make(ENV, CONFIG, network=NETWORK)


def reward(model, obs, action):
    return 0.1 * reward_models.reward_of(model, obs, action)


def minus_reward(model, obs, action):
    return -reward(model, obs, action)


LEARNED = LearnedReward(ENV, reward)
INTENTION = ppo.make(LEARNED, ppo.Config(**{**TUNED.config, "normalize_reward": False}), network=NETWORK)
MODEL = reward_models.Config(num_members=3, hidden=(32, 32), num_checks=10, num_updates=50, batch_size=32)
WEIGHTS, CRITIC = MLP((32,), 1, "tanh", out_scale=0.0), MLP((64, 64), 1, "silu")


@pytree(static=("hidden",))
class Given:
    """What an adversary does not change."""

    victim: Any  # a policy of PPO, as the next
    intention: Any
    critic: Any  # weights of Q_i
    strength: jax.Array
    hidden: tuple[int, ...] = (64, 64)  # widths of its network; (): a linear one


def network(given):
    """The adversary's, whose weights are theta."""
    return MLP(given.hidden, 3, "tanh")


def gaussian(policy, obs):
    """`(mean, log_std)` of a policy's actions in units of the box, neither clipped."""
    return NETWORK.apply(policy.weights, normalize.normalize(policy.normalizer, obs), method="actor")


def softly(mean):
    """Clipped to the box, but for a tenth of what is beyond."""
    inside = jnp.clip(mean, -1, 1)
    return inside + LEAK * (mean - inside)


def shown(theta, obs, given):
    low, high = SPACES[0].low, SPACES[0].high
    return jnp.clip(obs + given.strength * UNIT * jnp.tanh(network(given).apply(theta, obs / UNIT)), low, high)


def weight(omega, obs):
    return 2 * jax.nn.sigmoid(WEIGHTS.apply(omega, obs / UNIT)[..., 0])


def value(critic, obs, action):
    """Q_i (...), of an action in units of the box."""
    return CRITIC.apply(critic, jnp.concatenate([obs / UNIT, action], -1))[..., 0]


def divergence(theta, obs, given):
    """KL(pi_v(. | seen) || pi_i(. | obs)) of each state, (B,)."""
    mean, log_std = gaussian(given.victim, shown(theta, obs, given))
    target, target_log_std = gaussian(given.intention, obs)
    apart = (softly(mean) - softly(target)) ** 2 + jnp.exp(2 * log_std)
    return jnp.sum(target_log_std - log_std + apart / (2 * jnp.exp(2 * target_log_std)) - 0.5, -1)


def inner_loss(theta, omega, obs, given):
    return jnp.mean(weight(omega, obs) * divergence(theta, obs, given))


def outer_loss(theta, obs, given):
    mean, _ = gaussian(given.victim, shown(theta, obs, given))
    return -jnp.mean(value(given.critic, obs, softly(mean)))


def meta_loss(omega, theta, obs, given, rate):
    """The outer loss after one step of the inner one: its gradient by omega is the outer gradient."""
    slope = jax.grad(inner_loss)(theta, omega, obs, given)
    return outer_loss(jax.tree.map(lambda x, g: x - rate * g, theta, slope), obs, given)


def adversary(key, given, states, weight_rate):
    """`(theta, omega)` after ITERATIONS; a `weight_rate` of 0 leaves all weights at 1.

    Its memory begins with some of `states` (n, 3) and goes on with those of the victim under attack.
    """
    theta_key, omega_key, pick_key, key = jax.random.split(key, 4)
    theta, omega = network(given).init(theta_key, states[0]), WEIGHTS.init(omega_key, states[0])
    inner, outer = optax.adam(RATE), optax.adam(1.0)
    size = ENVS * STEPS
    memory = states[jax.random.randint(pick_key, (KEPT, size), 0, len(states))]

    def cycle(carry, key):
        theta, inner_state, omega, outer_state, memory = carry
        picks = jax.random.randint(key, (INNER + 1, BATCH), 0, KEPT * size)
        batches = memory.reshape(-1, 3)[picks]

        def step(carry, obs):
            theta, state = carry
            change, state = inner.update(jax.grad(inner_loss)(theta, omega, obs, given), state)
            return (optax.apply_updates(theta, change), state), None

        slope = jax.grad(meta_loss)(omega, theta, batches[-1], given, RATE)
        (theta, inner_state), _ = jax.lax.scan(step, (theta, inner_state), batches[:-1])
        change, outer_state = outer.update(slope, outer_state)
        omega = jax.tree.map(lambda x, c: x + weight_rate * c, omega, change)
        return (theta, inner_state, omega, outer_state, memory), None

    def iteration(carry, given_of):
        i, key = given_of
        play_key, key = jax.random.split(key)
        seen = played(play_key, given.victim, lambda _, obs: shown(carry[0], obs, given), ENVS)[0]
        memory = carry[-1].at[i % KEPT].set(seen.reshape(-1, 3))
        return jax.lax.scan(cycle, (*carry[:-1], memory), jax.random.split(key, CYCLES))[0], None

    start = theta, inner.init(theta), omega, outer.init(omega), memory
    end, _ = jax.lax.scan(iteration, start, (jnp.arange(ITERATIONS), jax.random.split(key, ITERATIONS)))
    return end[0], end[2]


# ---- episodes


def played(key, policy, see, count):
    """Observations (STEPS, count, 3) and rewards (STEPS, count) of a policy that sees `see(key, obs)`."""
    reset_key, key = jax.random.split(key)
    start = jax.vmap(ENV.reset, (0, None))(jax.random.split(reset_key, count), PARAMS)

    def step(carry, key):
        obs, state = carry
        seen = jax.vmap(see)(jax.random.split(key, count), obs)
        action, _ = VICTIM.act(policy, key, seen, (), greedy=True)
        ts = jax.vmap(ENV.step, (None, 0, 0, None))(key, state, action, PARAMS)
        return (ts.obs, ts.state), (obs, ts.reward)

    return jax.lax.scan(step, start, jax.random.split(key, STEPS))[1]


def judged(key, policy, see):
    """Mean return, share of the episodes that do what is preferred, mean turns in the second half."""
    obs, rewards = played(key, policy, see, EPISODES)
    turns = jnp.sum(obs[STEPS // 2 :, :, 2], 0) * PARAMS.dt / (2 * np.pi)
    return jnp.stack([rewards.sum(0).mean(), jnp.mean(turns >= TURNS), turns.mean()])


@jax.jit
def alone(key, policy):
    """`judged` of a policy that nobody attacks."""
    return judged(key, policy, lambda _, obs: obs)


# ---- preferences and the intention


@jax.jit
def recorded(key, victim, intention):
    """Of each stream's policy - the victim, the intention or chance - samples, a fifth of them by chance instead."""
    reset_key, key = jax.random.split(key)
    start = jax.vmap(ENV.reset, (0, None))(jax.random.split(reset_key, STREAMS), PARAMS)
    who = (jnp.arange(STREAMS) % 3)[:, None]

    def step(carry, key):
        obs, state = carry
        keys = jax.random.split(key, 4)
        by = [VICTIM.act(policy, keys[i], obs, (), greedy=False)[0] for i, policy in enumerate((victim, intention))]
        chance = jax.random.uniform(keys[2], (STREAMS, 1), minval=-TORQUE, maxval=TORQUE)
        by_chance = (who == 2) | jax.random.bernoulli(keys[3], 0.2, (STREAMS, 1))
        action = jnp.where(by_chance, chance, jnp.where(who == 0, *by))
        ts = jax.vmap(ENV.step, (None, 0, 0, None))(key, state, action, PARAMS)
        return (ts.obs, ts.state), (obs, action, ts.reward, ts.obs)

    steps = jax.lax.scan(step, start, jax.random.split(key, LENGTH))[1]
    obs, action, reward, next_obs = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), steps)
    last = jnp.arange(STREAMS * LENGTH) % LENGTH == LENGTH - 1
    return Dataset(obs, action, reward, jnp.zeros_like(last), last, next_obs)


def annotated(seed, data, pairs):
    """The scripted annotator prefers the segment that turns further counter-clockwise."""
    first = preferences.uniform_queries(np.random.default_rng(seed), data, pairs, SEGMENT)
    rows = np.asarray(preferences.rows_of(jnp.asarray(first), SEGMENT))
    turned = np.asarray(data.obs)[rows][..., 2].sum(-1)
    label = preferences.labels(jax.random.key(seed), jnp.asarray(turned))
    return preferences.Preferences(jax.tree.map(np.asarray, data), first, np.asarray(label), SEGMENT)


@functools.partial(jax.jit, static_argnums=(0, 3))
def learned(algo, key, params, steps):
    """The policy that PPO learns."""
    return algo.policy(jaxrl.train(algo, key, steps, HYPER.replace(anneal_steps=jnp.float32(steps)), params)[0])


def intended(seed, victim, steps, pairs):
    """`(model of the reward, intention policy, recorded steps)` after one round for each of `steps`."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1), (len(steps), 3))
    intention, data = victim, []
    for i, (record_key, fit_key, train_key) in enumerate(keys):
        data.append(recorded(record_key, victim, intention))
        pairs_of_all = annotated(1000 * seed + i, joined(*data), pairs * (i + 1))
        model, losses = reward_models.fit(fit_key, pairs_of_all, *SPACES, MODEL, reward_models.Hyper(jnp.float32(1e-3)))
        intention = learned(INTENTION, train_key, LEARNED.on(PARAMS, model), steps[i])
    return model, intention, jax.tree.map(jnp.asarray, joined(*data)), losses


@jax.jit
def critic_of(key, model, intention, data):
    """Q_i(s, a), regressed on r(s, a) + gamma V_i(s') of the recorded steps."""
    seen = normalize.normalize(intention.normalizer, data.next_obs)
    target = reward(model, data.obs, data.action)
    target = target + GAMMA * NETWORK.apply(intention.weights, seen, method="critic")
    init_key, key = jax.random.split(key)
    weights = CRITIC.init(init_key, jnp.zeros(4))
    optimizer = optax.adam(optax.cosine_decay_schedule(3e-3, 2_000))

    def loss(weights, rows):
        return jnp.mean((value(weights, data.obs[rows], data.action[rows] / TORQUE) - target[rows]) ** 2)

    def step(carry, key):
        weights, state = carry
        slope = jax.grad(loss)(weights, jax.random.randint(key, (BATCH,), 0, data.size))
        change, state = optimizer.update(slope, state)
        return (optax.apply_updates(weights, change), state), None

    (weights, _), _ = jax.lax.scan(step, (weights, optimizer.init(weights)), jax.random.split(key, 2_000))
    return weights, loss(weights, jnp.arange(data.size)) / jnp.var(target)


# ---- who attacks


def push(policy, obs):
    return gaussian(policy, obs)[0]


def act(policy, key, obs):
    return VICTIM.act(policy, key, obs, (), greedy=True)[0]


DIRECTING = DirectedAttack(ENV, act, push)
"""PA-AD: the director is paid minus the task's reward."""
PREFERRING = DirectedAttack(LearnedReward(ENV, minus_reward), act, push)
"""Here the director is paid the learned reward, as it is minus that of a task that pays minus the learned one."""
DIRECTORS = ppo.make(DIRECTING, CONFIG), ppo.make(PREFERRING, CONFIG)


def directed(victim, obs, seen):
    """What the attacker with a director increases; the victim is `(policy, director)`."""
    policy, director = victim
    direction = DIRECTORS[0].act(director, jax.random.key(0), obs, (), greedy=True)[0]
    return jnp.dot(jnp.clip(direction, -1, 1), push(policy, seen))


def by_director(policy, director, strength):
    attack = ObservationAttack(ENV, directed)
    under = attack.attacking(PARAMS, strength, UNIT, (policy, director))
    return lambda key, obs: attack.seen(key, obs, under)


def by_chance(strength):
    attack = ObservationAttack(ENV)
    under = attack.attacking(PARAMS, strength, UNIT)
    return lambda key, obs: attack.seen(key, obs, under)


ARMS = "chance", "least reward (PA-AD)", "learned reward (PA-AD)", "RAT without weights", "RAT"


@functools.partial(jax.jit, static_argnums=4)
def by_directors(key, victim, model, strengths, steps):
    """Return, rate and turns (3 arms, strengths, 3) under chance and under directors of both kinds."""
    keys = jax.random.split(key, 4)
    hyper = HYPER.replace(anneal_steps=jnp.float32(steps))

    def director(algo, params):
        return algo.policy(jaxrl.train(algo, keys[0], steps, hyper, params)[0])

    def of_strength(strength):
        least = director(DIRECTORS[0], DIRECTING.attacking(PARAMS, strength, UNIT, victim))
        inside = PREFERRING.env.on(PARAMS, model)
        preferring = director(DIRECTORS[1], PREFERRING.attacking(inside, strength, UNIT, victim))
        sees = [by_chance(strength), by_director(victim, least, strength), by_director(victim, preferring, strength)]
        return jnp.stack([judged(keys[2], victim, see) for see in sees])

    return jnp.swapaxes(jax.lax.map(of_strength, strengths), 0, 1)


@functools.partial(jax.jit, static_argnums=6)
def by_adversaries(key, victim, intention, critic, strengths, states, hidden):
    """As `by_directors` (2 arms, strengths, 3) of RAT without weights and with them; and these weights' least, mean and
    most over states, (strengths, 3)."""
    keys = jax.random.split(key, 4)

    def of_strength(strength):
        given = Given(victim, intention, critic, strength, hidden)
        train = functools.partial(adversary, keys[1], given, states)
        thetas, omegas = jax.vmap(train)(jnp.array([0.0, WEIGHT_RATE]))
        found = [
            judged(keys[2], victim, lambda _, obs, i=i: shown(jax.tree.map(lambda x: x[i], thetas), obs, given))
            for i in range(2)
        ]
        weights = weight(jax.tree.map(lambda x: x[1], omegas), states)
        return jnp.stack(found), jnp.stack([weights.min(), weights.mean(), weights.max()])

    found, spread = jax.lax.map(of_strength, strengths)
    return jnp.swapaxes(found, 0, 1), spread
