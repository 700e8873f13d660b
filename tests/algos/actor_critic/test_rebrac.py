"""ReBRAC's networks are those of its authors."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algos import rebrac
from jaxrl.testing.probes import ObservationActionReward

KEY = jax.random.key(0)


def close(actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=1e-6, atol=1e-7)


def test_rebracs_first_weights_are_the_authors():
    """Within 1 / sqrt(inputs) and 0.1 in hidden layers, within 0.003 (critics) and 0.001 (actor) in the last one."""
    algo = rebrac.make(ObservationActionReward("box"), rebrac.Config(hidden=(64, 64), buffer_size=8))
    assert rebrac.Config().batch_size == 1024
    weights = jax.jit(lambda key: algo.init(key).weights)(KEY)
    for name, last in (("critic", 3e-3), ("actor", 1e-3)):
        first, second, out = (weights[name]["params"]["Body_0"][f"Dense_{i}"] for i in range(3))
        for layer in (first, second):
            bound = 1 / np.sqrt(layer["kernel"].shape[-2])
            assert 0.85 * bound < np.abs(layer["kernel"]).max() <= bound
            close(layer["bias"], np.full(layer["bias"].shape, 0.1))
        assert 0.85 * last < np.abs(out["kernel"]).max() <= last and 0 < np.abs(out["bias"]).max() <= last


def test_rebracs_layer_norm_is_after_the_activation():
    """What the last layer sees of three units with relu: mean 0 and deviation 1, which no positive numbers have."""
    body = rebrac.Body((3,), 1, "relu", True, 1.0)
    x = jnp.array([[1.0, -2.0]])
    kernel = jnp.array([[1.0, 0.0, 1.0], [0.0, 1.0, -1.0]])
    layers = {
        "Dense_0": {"kernel": kernel, "bias": jnp.zeros(3)},
        "LayerNorm_0": {"scale": jnp.ones(3), "bias": jnp.zeros(3)},
    }
    seen = np.array([1.0, 0.0, 3.0])  # relu of 1, -2 and 3
    wanted = (seen - seen.mean()) / np.sqrt(seen.var() + 1e-6)
    for unit in range(3):
        out = {"kernel": jnp.eye(3)[:, unit : unit + 1], "bias": jnp.zeros(1)}
        close(body.apply({"params": {**layers, "Dense_1": out}}, x), [[wanted[unit]]])
