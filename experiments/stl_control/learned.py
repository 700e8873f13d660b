"""PPO on `Episodes`, and what TGPO adds: times by Metropolis-Hastings from the critic, and the choice among them."""

import jax
import jax.numpy as jnp
from episodes import FIRST, LAST, Episodes, allocations
from systems import T

from jaxrl.algos import ppo

CONFIG = ppo.Config(num_envs=64, num_steps=T, num_epochs=4, num_minibatches=4)
UPDATES, CHECKS = 252, 3  # of 64 episodes each; how often the policy is judged on the way
POOL, MOVES, REACH, TEMPERATURE = 128, 10, 4, 0.5
HYPER = ppo.Hyper(learning_rate=4e-3, ent_coef=0.0, anneal_steps=UPDATES * CONFIG.num_envs * T)
ALLOCATIONS = 32  # of which the critic chooses, when tested


def metropolis(key, score, times, moves=MOVES, reach=REACH, temperature=TEMPERATURE):
    """`times` (n, goals) after so many moves of chains whose density is exp(score / temperature) within the windows.

    `score(times) -> (n,)`. A move adds up to `reach` steps, either way, to each time.
    """
    move_key, accept_key = jax.random.split(key)
    changes = jax.random.randint(move_key, (moves, *times.shape), -reach, reach + 1)
    limits = temperature * jnp.log(jax.random.uniform(accept_key, (moves, len(times))))

    def move(carry, inputs):
        times, scores = carry
        change, limit = inputs
        proposed = times + change
        inside = jnp.all((proposed >= FIRST) & (proposed <= LAST), -1)
        proposed_scores = score(jnp.where(inside[:, None], proposed, times))
        accept = inside & (proposed_scores - scores > limit)
        return (jnp.where(accept[:, None], proposed, times), jnp.where(accept, proposed_scores, scores)), None

    return jax.lax.scan(move, (times, score(times)), (changes, limits))[0][0]


def critic_of(env, algo, weights, places):
    """`times (n, goals) -> values (n,)` of episodes that begin in `places` (n, d)."""

    def values(times):
        obs = jax.vmap(lambda place, times: env.observe(None, env.begun(place, times), None))(places, times)
        return algo.learn.__self__.network.apply(weights, obs, method="critic")

    return values


def train(key, env: Episodes, guided: bool, places, updates=UPDATES):
    """Robustness (CHECKS, n) from `places` (n, d) of the policies on the way, the last one's at the end.

    `guided`: half of the times are moved towards what the critic values.
    """
    algo = ppo.make(env, CONFIG)
    init_key, run_key, test_key = jax.random.split(key, 3)

    def update(state, key):
        draw_key, move_key = jax.random.split(key)
        pool = env.drawn(draw_key, POOL)
        if guided:
            half = POOL // 2
            score = critic_of(env, algo, state.weights, pool.places[:half])
            moved = metropolis(move_key, score, pool.times[:half])
            pool = pool.replace(times=pool.times.at[:half].set(moved))
        return algo.update(state.replace(env_params=pool))[0], None

    def stretch(state, keys):
        state, _ = jax.lax.scan(update, state, keys)
        return state, robustness_of(test_key, env, algo, algo.policy(state), places)

    state = algo.init(init_key, HYPER, env.drawn(init_key, POOL))
    return jax.lax.scan(stretch, state, jax.random.split(run_key, (CHECKS, updates // CHECKS)))[1]


def robustness_of(key, env: Episodes, algo, policy, places):
    """(n,) m, of the greedy policy from `places` (n, d); where grounded at the times that the critic likes best."""
    n = len(places)
    times = allocations(key, ALLOCATIONS * n).reshape(ALLOCATIONS, n, -1)
    if env.reward == "grounded":
        values = jax.lax.map(critic_of(env, algo, policy.weights, places), times)
        times = jnp.take_along_axis(times, jnp.argmax(values, 0)[None, :, None], 0)
    states = jax.vmap(env.begun)(places, times[0])

    def step(states, _):
        obs = jax.vmap(lambda state: env.observe(None, state, None))(states)
        action, _ = algo.act(policy, key, obs, greedy=True)
        states = jax.vmap(lambda state, action: env.transition(None, state, action, None).state)(states, action)
        return states.replace(time=states.time + 1), None

    return jax.lax.scan(step, states, length=T)[0].rho.min(-1)
