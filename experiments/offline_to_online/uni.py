"""What is Uni-O4's own: a model of the dataset, in which policies are judged, and PPO from the best of them.

Lei et al. (2024), "Uni-O4: unifying online and offline deep reinforcement learning with multi-step on-policy
optimization".
"""

import jax

from jaxrl.algos import uni_o4
from jaxrl.data import dynamics

MODEL = dynamics.Config(num_members=4, num_elites=3, hidden=(64, 64), num_checks=10, num_updates=200, batch_size=128)


def given(dataset):
    """The model, one for all seeds. Neither task ends by itself."""
    return {"model": dynamics.predictor(dynamics.fit(jax.random.key(2), dataset, MODEL)[0])}


def start(online, trained, key, hyper, params, warm_up):
    """As `fine_tune.start`, of PPO, which has no memory to warm up."""
    return uni_o4.start(online, trained, key, hyper, params)
