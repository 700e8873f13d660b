"""The greenhouse with its weathers, the arms, and the program that trains and judges one seed of an arm."""

import functools

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.algos import mbpo
from jaxrl.environment import strongly_typed
from jaxrl.envs.classic.lettuce_greenhouse import grower
from jaxrl.evaluation import evaluate
from jaxrl.wrappers import ActionRepeat

DAYS, SCALE = 20, 100.0  # prices and rewards are a hundred times the task's while it learns
UPDATES, LAST = 6, 3  # the policies of the last three updates are judged
WEATHERS = 200
CONFIG = {"num_envs": 4, "num_steps": 120, "num_updates": 600, "batch_size": 128, "hidden": (64, 64)}
CONFIG |= {"buffer_size": 20_000, "num_members": 5, "model_hidden": (64, 64), "model_batch_size": 128}
CONFIG |= {"num_rollouts": 4000, "horizon": 5}
HYPER = {"learning_rate": 5e-4, "alpha_learning_rate": 5e-4, "alpha": 0.1, "gamma": 0.95, "learning_starts": 480}
ARMS = {
    "MBPO": (1.0, 1),
    "worst 0.5 of all": (0.5, 1),
    "worst 0.2 of all": (0.2, 1),
    "worst 0.2 of a state's 10": (0.2, 10),
    "worst 0.2 of five times as many": (0.2, 1, 5),
}
"""`keep_share`, `num_branches`, and by what their number is multiplied: a fifth of five times as many are as many steps
to learn from as MBPO has.
"""
SETTINGS = CONFIG, HYPER, DAYS, UPDATES, LAST, WEATHERS
"""What a stored result was measured with, beside its arm."""


def greenhouse(colder=0.0):
    """`(env, params)` of 20 days from 20 January on, with a decision an hour."""
    env, params = jaxrl.make("LettuceGreenhouse-v0")
    priced = "price", "price_heat", "price_co2", "price_degree", "price_humidity"
    prices = {name: SCALE * getattr(params, name) for name in priced}
    mean = params.mean_temperature - colder
    params = params.replace(max_steps=jnp.int32(96 * DAYS), mean_temperature=mean, **prices)
    return ActionRepeat(env, 4), strongly_typed(params)


WHERE = {"new weather": 0.0, "3 degrees colder": 3.0}


def judgement(returns):
    """Mean, and mean of the worst tenth, in the task's units."""
    returns = jnp.sort(returns) / SCALE
    return jnp.stack([returns.mean(), returns[: len(returns) // 10].mean()])


def rules(colder):
    """The judgement of a grower's rules, which decide every quarter of an hour."""
    hourly, params = greenhouse(colder)
    env = hourly.env

    def episode(key):  # other weathers than the policies', as many
        def step(state, key):
            ts = env.step(key, state, grower(state, params), params)
            return ts.state, ts.reward

        keys = jax.random.split(key, 96 * DAYS + 1)
        return jax.lax.scan(step, env.reset(keys[0], params)[1], keys[1:])[1].sum()

    return jax.jit(lambda key: judgement(jax.vmap(episode)(jax.random.split(key, WEATHERS))))(jax.random.key(1))


@functools.cache
def program(num_branches, times=1):
    """`(key, keep_share) -> (places, LAST, 2)`: mean return, and mean of the worst tenth, of the last policies."""
    env, params = greenhouse()
    algo = mbpo.make(
        env, mbpo.Config(**CONFIG | {"num_rollouts": times * CONFIG["num_rollouts"], "num_branches": num_branches})
    )

    def judged(state, _):
        state, _ = algo.update(state)

        def place(colder):
            key = jax.random.key(1)  # the same weathers for every policy
            found = evaluate(algo, algo.policy(state), key, *greenhouse(colder), num_episodes=WEATHERS, greedy=True)
            return judgement(found.returns)

        return state, jnp.stack([place(colder) for colder in WHERE.values()])

    @jax.jit
    def run(key, keep_share):
        state = algo.init(key, mbpo.Hyper(**HYPER, keep_share=keep_share), params)
        state, _ = jax.lax.scan(lambda x, _: (algo.update(x)[0], None), state, length=UPDATES - LAST)
        return jnp.swapaxes(jax.lax.scan(judged, state, length=LAST)[1], 0, 1)

    return run
