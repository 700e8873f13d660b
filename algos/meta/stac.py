"""STAC is A2C (`a2c.py`) that tunes its discount, trace and loss coefficients by meta-gradients while it learns.

Zahavy et al. (2020), "A Self-Tuning Actor-Critic Algorithm", NeurIPS, arXiv:2002.12928. The settings eta parameterise
the inner loss L of the weights; an update leads from theta to theta'(eta), and eta descends the outer loss of theta',
which has constant settings:

    theta'(eta) = theta - step(grad L(theta; gamma, gae_lambda, pg_coef, ent_coef, vf_coef))
    eta descends  L(theta'(eta); the outer settings) + kl_coef KL(pi_theta' | pi_theta)

with a gradient through that one update (Xu, van Hasselt and Silver 2018, arXiv:1805.09801). gamma and gae_lambda are
sigmoids of eta; a coefficient is its initial value times `headroom` times a sigmoid, so that all stay in their ranges.
At the ends of a sigmoid the gradient vanishes: a gamma or gae_lambda that begins at 0 or 1 stays there, and a tuned
coefficient must not be 0. The outer loss is computed on the rollout that theta' plays next, as in Xu et al.; until then
the derivative of the update with respect to eta is stored, computed by forward differentiation (`sensitivity`).

Left out: IMPALA with V-trace and its leaky form (here everything is on-policy), and STACX's auxiliary heads with
separate settings. Deviations: coefficients may grow, up to `headroom`; the paper begins where the sigmoid is 0.99, and
with the settings of the outer loss. `jaxrl meta-train a2c` learns such numbers over the lives of many agents instead.
This file differs from `a2c.py`, whose loss and rollouts it uses, by `learn`. Results: `experiments/self_tuning/`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, algorithm_of, shared, starting_values
from jaxrl.algos.on_policy import a2c
from jaxrl.environment import Environment, is_concrete, pytree
from jaxrl.nn.networks import Network
from jaxrl.nn.optim import Optimizer, OptimizerLike, OptimizerState, annealed, optimizer_of
from jaxrl.returns import gae
from jaxrl.vector_env import VectorEnv

SHARES = ("gamma", "gae_lambda")
"""Settings between 0 and 1."""
COEFFICIENTS = ("pg_coef", "ent_coef", "vf_coef")


@dataclasses.dataclass(frozen=True)
class Config(a2c.Config):
    """Static settings: each value compiles its own program."""

    tuned: tuple[str, ...] = SHARES + COEFFICIENTS  # settings that are tuned; the others are constant

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.tuned:
            if name not in SHARES + COEFFICIENTS:
                raise ValueError(f"tuned={name!r}: these can be tuned: {', '.join(SHARES + COEFFICIENTS)}.")
        if not self.tuned:
            raise ValueError("tuned=(): nothing to tune; that is a2c.")


@pytree
class Hyper(a2c.Hyper):
    """Dynamic settings: leaves, so vmap over any of them. These are the initial values of tuned settings."""

    gae_lambda: jax.Array = 0.95
    pg_coef: jax.Array = 1.0  # of the policy's loss
    headroom: jax.Array = 2.0  # largest value of a coefficient relative to its initial one; above 1
    meta_learning_rate: jax.Array = 1e-2  # of eta, by Adam
    outer_gamma: jax.Array = 0.99  # discount of the outer loss
    outer_gae_lambda: jax.Array = 0.95  # trace of the outer loss
    outer_ent_coef: jax.Array = 0.01  # weight of the entropy in the outer loss
    outer_vf_coef: jax.Array = 0.5  # weight of the value loss in the outer loss
    kl_coef: jax.Array = 1.0  # weight of KL(pi_theta' | pi_theta) in the outer loss


@pytree
class STACState(a2c.A2CState):
    hyper: Hyper
    eta: dict[str, jax.Array]  # unbounded numbers of the tuned settings
    eta_optimizer: OptimizerState
    before: Any  # the weights before the last update
    sensitivity: dict[str, jax.Array]  # derivatives of the last update with respect to eta, (P,) each


def logit(p: Float[Array, ""]) -> Float[Array, ""]:
    """The logit of p, clipped to [1e-6, 1 - 1e-6]."""
    p = jnp.clip(p, 1e-6, 1 - 1e-6)
    return jnp.log(p) - jnp.log1p(-p)


def settings(eta: dict[str, Array], hyper: Hyper) -> dict[str, Array]:
    """gamma, gae_lambda and the coefficients that `eta` represents."""
    found = {name: getattr(hyper, name) for name in SHARES + COEFFICIENTS}
    for name, x in eta.items():
        found[name] = jax.nn.sigmoid(x) * (1 if name in SHARES else hyper.headroom * found[name])
    return found


@dataclasses.dataclass(frozen=True)
class _STAC:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    a2c: Any  # the object behind `a2c.make`
    optimizer: Optimizer
    eta_optimizer: Optimizer

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> STACState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        for name, allowed, low, high in (
            ("headroom", "above 1", 1.0, np.inf),
            ("outer_gamma", "between 0 and 1", -1e-9, 1 + 1e-6),
            ("outer_gae_lambda", "between 0 and 1", -1e-9, 1 + 1e-6),
        ):
            value = getattr(hyper, name)
            if is_concrete(value) and not np.all((np.asarray(value) > low) & (np.asarray(value) < high)):
                raise ValueError(f"hyper.{name}={value}: it must be {allowed}.")
        for name in COEFFICIENTS:
            value = getattr(hyper, name)
            if name in self.config.tuned and is_concrete(value) and np.any(np.asarray(value) == 0):
                raise ValueError(f"hyper.{name}={value}: it is tuned by a factor, so 0 stays 0; take it out of tuned.")
        own = a2c.Hyper(**{field.name: getattr(hyper, field.name) for field in dataclasses.fields(a2c.Hyper)})
        inner = self.a2c.init(key, own, env_params)
        eta = {n: logit(getattr(hyper, n) if n in SHARES else 1 / hyper.headroom) for n in self.config.tuned}
        size = ravel_pytree(inner.weights)[0]
        kept = {field.name: getattr(inner, field.name) for field in dataclasses.fields(inner)}
        return STACState(
            **{**kept, "hyper": hyper},
            eta=eta,
            eta_optimizer=self.eta_optimizer.init(eta, hyper.meta_learning_rate),
            before=inner.weights,
            sensitivity={name: jnp.zeros_like(size) for name in eta},
        )

    def collect(self, state: STACState) -> tuple[Any, a2c.Rollout]:
        return self.a2c.collect(state)

    def loss(self, weights: Any, rollout: a2c.Rollout, given: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        """A2C's loss of a rollout at these settings."""
        ends = rollout.terminated, rollout.truncated
        advantage = gae(rollout.reward, rollout.value, rollout.next_value, *ends, given["gamma"], given["gae_lambda"])
        batch = a2c.Batch(rollout.obs, rollout.action, advantage, advantage + rollout.value)
        steps = self.config.num_steps * self.config.num_envs
        batch = jax.tree.map(lambda x: x.reshape(steps, *x.shape[2:]), batch)
        hyper = a2c.Hyper(ent_coef=given["ent_coef"], vf_coef=given["vf_coef"])
        parts = self.config, self.a2c.network, self.a2c.observation_space, self.a2c.action_space
        return a2c.loss(
            weights, batch, hyper, *parts, lambda log_prob, a: given["pg_coef"] * a2c.policy_loss(log_prob, a)
        )

    def outer_loss(self, weights: Any, before: Any, rollout: a2c.Rollout, hyper: Hyper) -> Array:
        """The outer loss of an update from `before` to `weights`, which played the rollout."""
        fixed = {name: getattr(hyper, f"outer_{name}") for name in (*SHARES, "ent_coef", "vf_coef")}
        total, _ = self.loss(weights, rollout, {**fixed, "pg_coef": jnp.ones_like(hyper.outer_gamma)})
        old, new = (self.a2c.distribution(w, rollout.obs) for w in (before, weights))
        return total + hyper.kl_coef * jnp.mean(new.kl(old))

    def after(
        self, eta: dict[str, Array], state: STACState, rollout: a2c.Rollout, learning_rate: Array
    ) -> tuple[Array, tuple[Array, OptimizerState, dict[str, Array]]]:
        """`(flat weights, (flat weights, optimiser state, metrics))` after a step with settings `eta`, for `jacfwd`."""
        flat, _ = ravel_pytree(state.weights)
        grads, report = jax.grad(self.loss, has_aux=True)(state.weights, rollout, settings(eta, state.hyper))
        flat, optimizer, report["grad_norm"] = self.optimizer.descend(
            flat, state.optimizer, grads, learning_rate, state.hyper.max_grad_norm
        )
        return flat, (flat, optimizer, report)

    def learn(self, state: STACState, rollout: a2c.Rollout) -> tuple[STACState, dict[str, Array]]:
        hyper = state.hyper
        # The outer loss of the last update, on the rollout of its weights.
        outer, slope = jax.value_and_grad(self.outer_loss)(state.weights, state.before, rollout, hyper)
        slope, _ = ravel_pytree(slope)
        grads = {name: jnp.vdot(slope, x) for name, x in state.sensitivity.items()}
        flat, unravel = ravel_pytree(state.eta)
        flat, eta_optimizer, norm = self.eta_optimizer.descend(
            flat, state.eta_optimizer, grads, hyper.meta_learning_rate
        )
        eta = unravel(flat)
        steps = self.config.num_steps * self.config.num_envs
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        sensitivity, (flat, optimizer, report) = jax.jacfwd(self.after, has_aux=True)(
            eta, state, rollout, learning_rate
        )
        _, unravel = ravel_pytree(state.weights)
        metrics = {
            **rollout.ends.metrics(),
            **report,
            **settings(eta, hyper),
            "outer_loss": outer,
            "meta_grad_norm": norm,
            "learning_rate": learning_rate,
        }
        state = state.replace(weights=unravel(flat), optimizer=optimizer, before=state.weights)
        return state.replace(eta=eta, eta_optimizer=eta_optimizer, sensitivity=sensitivity), metrics

    def policy(self, state: STACState) -> Any:
        return state.weights

    def act(self, policy: Any, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        return self.a2c.act(policy, key, obs, carry, greedy)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """STAC on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module with the methods `actor`, `critic` and `__call__` (both) of `ActorCritic`.
        optimizer: of the weights, for `config.optimizer`; see `optim.optimizer_of`. The update is differentiated.

    Raises ValueError for an action space it cannot handle, several agents, or a network whose outputs do not fit.
    """
    inner = a2c.a2c_parts(env, config, network=network, optimizer=optimizer)
    stac = _STAC(config, inner.venv, inner, inner.optimizer, optimizer_of("adam", eps=config.adam_eps))
    return algorithm_of("stac", stac, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
