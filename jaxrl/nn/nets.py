"""`Net`: a network in training, with its weights, its target network and its optimiser state as one value.

critic, metrics = critic.descend(lambda weights: (loss(weights), {}), hyper.learning_rate)
critic = critic.track(hyper.tau)  # Polyak step of the target network
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Key

from jaxrl.environment import pytree
from jaxrl.nn.networks import active_units
from jaxrl.nn.optim import Optimizer, OptimizerState, polyak


@pytree(static=("name", "unravel", "optimizer"))
class Net:
    """A network in training. Its weights are kept as one vector, on which most optimisers work."""

    flat: jax.Array  # (P,)
    flat_target: Any  # (P,), or None without a target network
    state: OptimizerState
    name: str  # its metrics are `<name>_loss` and `<name>_grad_norm`
    unravel: Callable[[Array], Any]  # vector -> tree of weights
    optimizer: Optimizer

    @property
    def weights(self) -> Any:
        return self.unravel(self.flat)

    @property
    def target(self) -> Any:
        """The weights of the target network."""
        return self.unravel(self.flat_target)

    @property
    def count(self) -> Array:
        """The number of gradient steps taken."""
        return self.state.count

    def descend(
        self,
        loss: Callable[[Any], tuple[Array, dict[str, Array]]],
        learning_rate: Array | float,
        max_grad_norm: Array | float = jnp.inf,
        when: Bool[Array, ""] | None = None,
    ) -> tuple[Net, dict[str, Array]]:
        """`(net, metrics)` after one gradient step on `loss(weights) -> (value, metrics)`.

        The gradient is clipped to a global norm of `max_grad_norm`. Where `when` is False the network is unchanged and
        the metrics are NaN.
        """
        prefix = f"{self.name}_" if self.name else ""

        def step() -> tuple[Array, OptimizerState, dict[str, Array]]:
            (value, report), grads = jax.value_and_grad(loss, has_aux=True)(self.weights)
            flat, state, norm = self.optimizer.descend(self.flat, self.state, grads, learning_rate, max_grad_norm)
            return flat, state, {**report, f"{prefix}loss": value, f"{prefix}grad_norm": norm}

        def stay() -> tuple[Array, OptimizerState, dict[str, Array]]:
            shapes = jax.eval_shape(step)[2]
            return self.flat, self.state, jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)

        flat, state, report = step() if when is None else jax.lax.cond(when, step, stay)
        return self.replace(flat=flat, state=state), report

    def track(self, tau: Float[Array, ""] | float) -> Net:
        """The network with the target (1 - tau) target + tau weights."""
        return self.replace(flat_target=polyak(self.flat_target, self.flat, tau))


Nets = dict[str, Any]
"""`{name: Net}`, with further entries that a rule's gradient steps change."""


def net(weights: Any, state: OptimizerState, optimizer: Optimizer, target: Any = None, name: str = "") -> Net:
    """A `Net` from trees of weights; `target` None: without a target network."""
    flat, unravel = ravel_pytree(weights)
    return Net(flat, None if target is None else ravel_pytree(target)[0], state, name, unravel, optimizer)


def apply_critic(critic: Any, weights: Any, *inputs: Any) -> tuple[Any, Float[Array, ""]]:
    """`(values, share of active units)`; the share (`networks.active_units`) is NaN for networks that do not sow it."""
    values, sown = critic.apply(weights, *inputs, mutable="intermediates")
    return values, active_units(sown) if jax.tree.leaves(sown) else jnp.full((), jnp.nan)


def apply_critics(critic: Any, weights: Any, *inputs: Any) -> tuple[Any, Float[Array, ""]]:
    """`apply_critic` for K critics: weights and values have a leading axis K; the share is the mean over critics."""
    values, active = jax.vmap(lambda weights: apply_critic(critic, weights, *inputs))(weights)
    return values, jnp.mean(active)


def critic_value(critic: Any, weights: Any, *inputs: Any) -> Any:
    """The values of `apply_critic`."""
    return apply_critic(critic, weights, *inputs)[0]


def critic_values(critic: Any, weights: Any, *inputs: Any) -> Any:
    """The values (K, ...) of `apply_critics`."""
    return apply_critics(critic, weights, *inputs)[0]


def init_critics(critic: Any, key: Key[Array, ""], num_critics: int, *inputs: Any) -> Any:
    """Separate weights for `num_critics` critics, stacked on a leading axis K."""
    return jax.vmap(lambda key: critic.init(key, *inputs))(jax.random.split(key, num_critics))
