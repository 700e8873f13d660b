"""minGRU: a GRU whose gates do not see the past, so that a sequence is an associative scan."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.nn.cells.linear_scan import linear_scan
from jaxrl.nn.networks import Dense, orthogonal


class MinGRU(nn.Module):
    """h[t] = (1 - z) h[t-1] + z n with z = sigmoid(W x + b), n = V x + c (Feng et al. 2024, section 3.1.3).

    "Were RNNs all we needed?", arXiv:2410.01201. n is linear, as in the paper's first form; its second form, in
    logarithms, serves half precision. Gates begin at memories of 2 to 100 steps (Tallec & Ollivier 2018, "Can recurrent
    neural networks warp time?", section 2), since a bias of 0 would lose half of h at each step. Carry: (*batch,
    features).
    """

    features: int
    forward_mode: bool = False

    def initial_carry(self, batch_shape: tuple[int, ...]) -> Float[Array, "..."]:
        """The carry before an episode: zeros."""
        return jnp.zeros((*batch_shape, self.features))

    @nn.compact
    def __call__(
        self, carry: Any, inputs: Float[Array, "T *batch features"], start: Bool[Array, "T *batch"]
    ) -> tuple[Any, Float[Array, "T *batch hidden"]]:
        z = nn.sigmoid(Dense(self.features, kernel_init=orthogonal(), bias_init=_gate_bias, name="gate")(inputs))
        candidate = Dense(self.features, kernel_init=orthogonal(), name="candidate")(inputs)
        h = linear_scan(carry, 1 - z, z * candidate, start, self.forward_mode)
        return h[-1], h


def _gate_bias(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """b with sigmoid(b) = 1 / m, m uniform between 2 and 100 steps."""
    return -jnp.log(jax.random.uniform(key, shape, dtype, 1, 99))
