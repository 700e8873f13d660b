"""What is MOORL's own: batches of one source at a time, and Reptile's outer step.

Chaudhary, Mondal and Behera (2025), "MOORL: a framework for integrating offline-online reinforcement learning": each
meta-epoch draws the dataset or the own memory, takes K steps of SAC on it and moves the weights part of the way there.
"""

import jax

from jaxrl.data.transitions import Transition
from jaxrl.replay.ring import Replay


def by_turns(memory, own, share=0.5):
    """A memory of which a sample is all of the dataset's steps, with probability `share`, or all of the own ones."""

    def sample(key, state, n):
        coin_key, key = jax.random.split(key)
        of_dataset = jax.random.bernoulli(coin_key, share)
        old, new = Transition(*memory.sample(key, (), n)[:5]), own.sample(key, state, n)
        return jax.tree.map(lambda x, y: jax.numpy.where(of_dataset, x, y), old, new)

    return Replay(own.init, own.add, sample)


def reptile(algo, step_size=0.5):
    """`algo` whose weights go `step_size` of the way that an update's gradient steps lead them (Nichol et al. 2018)."""

    def learn(state, rollout):
        after, metrics = algo.learn(state, rollout)
        weights = jax.tree.map(lambda x, y: x + step_size * (y - x), state.weights, after.weights)
        return after.replace(weights=weights), metrics

    return algo._replace(learn=learn, name=f"{algo.name}+reptile", around=(*algo.around, "reptile", step_size))
