"""What a policy for many motors sees, and a network for it: gains that are scheduled by the motor's numbers."""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

import jaxrl
from jaxrl.envs.motor.converters import ContB6C
from jaxrl.nn.networks import MLP
from jaxrl.spaces import Box
from jaxrl.wrappers import Wrapper

OBSERVED = ("omega", "i_sd", "i_sq")
ENV, PARAMS = jaxrl.make(
    "Cont-CC-PMSM-v0", dq_actions=True, converter=ContB6C("space_vector"), observed=(*OBSERVED, "u_sd", "u_sq")
)
"""Voltages on the rotor's axes, each up to half of the link's, of a bridge that makes them all."""


def numbers(params):
    """Logarithms of resistance, inductances, flux and top speed in units of limits and control step, (5,)."""
    machine, u, i = params.machine, params.limits.u, params.limits.i
    speed = params.limits.omega * machine.p
    tau = params.tau
    own = (machine.r_s * i / u, machine.l_d * i / (u * tau), machine.l_q * i / (u * tau), machine.psi_p * speed / u)
    return jnp.log(jnp.stack([*own, speed * tau]))


@dataclasses.dataclass(frozen=True)
class Informed(Wrapper):
    """The motor's `numbers`, from those of the default motor, before the observation."""

    def observe(self, key, state, params):
        return jnp.concatenate([numbers(params) - numbers(PARAMS), self.env.observe(key, state, params)])

    def observation_space(self, params):
        return Box(-jnp.inf, jnp.inf, (5 + self.env.observation_space(params).shape[0],))


class Scheduled(nn.Module):
    """Voltages linear in errors, currents and speed, by gains that are a function of `context`, plus a small network.

    The linear part is what a controller with decoupling is; the network is for what the voltage limit makes nonlinear.
    `context` is how many entries of the observation say which motor it is; 0: all of a stack of observations.
    """

    context: int
    hidden: tuple[int, ...] = (64, 64)

    @nn.compact
    def actor(self, obs):
        speed, currents, goals = obs[..., -7:-6], obs[..., -6:-4], obs[..., -2:]
        terms = [goals - currents, currents, speed * currents, speed, jnp.ones_like(speed)]
        gains = MLP(self.hidden, 16, "elu", out_scale=0.1)(obs[..., : self.context] if self.context else obs)
        linear = jnp.einsum("...ij,...j->...i", gains.reshape(*gains.shape[:-1], 2, 8), jnp.concatenate(terms, -1))
        rest = MLP(self.hidden, 2, "elu", out_scale=0.01)(jnp.concatenate([obs, linear], -1))
        log_std = self.param("log_std", nn.initializers.constant(-2.0), (2,))
        return jnp.arctanh(jnp.clip(linear, -0.995, 0.995)) + rest, log_std  # actions are its hyperbolic tangent

    def critic(self, obs):
        return jnp.zeros(obs.shape[:-1])

    def __call__(self, obs):
        return self.actor(obs), self.critic(obs)
