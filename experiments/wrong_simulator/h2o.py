"""H2O: soft actor-critic in a wrong simulator and on a little real data at once, trusting the first by its dynamics.

Niu et al. (2022), "When to trust your simulator: dynamics-aware hybrid offline-and-online reinforcement learning". Two
discriminators tell real from simulated (s, a, s') and (s, a); of their logits l, log P_real/P_sim (s' | s, a) is
l(s, a, s') - l(s, a). The critics' loss is

    mean_real (Q - y)^2 + mean_sim w (Q - y)^2 + min_q_weight (logsumexp_sim (Q + log omega) - mean_real Q)

with w = clip(P_real / P_sim, 1e-5, 1), the square of what multiplies the error, and omega proportional in the batch to
u(s, a) = clip(mean log P_sim / P_real, 0, 10) at `NUM_NOISY` next states near the simulated one. The memory is the
simulator's, real steps come from a dataset; actor and temperature are `cql`'s, the actor on states of both.

Deviations from the authors' code: the least u is 1e-6, not 1e-45, which is no float32; real and simulated steps have a
batch each; the penalty is not cut off at 1,000; noise of next states is relative to their deviation in the batch.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxrl.algorithm import as_vector_env
from jaxrl.algos import cql
from jaxrl.nn.networks import MLP
from jaxrl.nn.optim import optimizer_of
from jaxrl.replay.actor_critic import Actor
from jaxrl.replay.off_policy import Critic, Transition
from jaxrl.replay.ring import uniform

NUM_NOISY, NOISE = 4, 0.1


def log_ratio(logit_sas, logit_sa):
    """log P_real / P_sim of the next state."""
    return logit_sas - logit_sa


def trust(log_ratio):
    """w of simulated errors."""
    return jnp.clip(jnp.exp(log_ratio), 1e-5, 1.0)


def dynamics_gap(log_ratios):
    """u (B,) of the log ratios (NUM_NOISY, B) at next states near the simulated ones."""
    return jnp.clip(jnp.mean(-log_ratios, 0), 0.0, 10.0)


def penalty(q_sim, gap, q_real):
    """sum_k logsumexp_i (Q_k(s_i, a_i) + log omega_i) - mean Q_k of real steps; gap (B,) is u."""
    log_omega = jnp.log(gap + 1e-6) - jnp.log(jnp.sum(gap + 1e-6))
    return jnp.sum(jax.nn.logsumexp(q_sim + log_omega, -1) - jnp.mean(q_real, -1))


@dataclasses.dataclass(frozen=True)
class H2O(cql._CQL):
    name: ClassVar = "h2o"
    order: ClassVar = ("discriminator", "critic", "actor", "log_alpha")
    real: Any = None  # a Replay of the real steps
    trusting: bool = False  # every simulated error counts in full, w = 1

    def initial(self, name, key, item, hyper):
        if name != "discriminator":
            return super().initial(name, key, item, hyper)
        sa = jnp.concatenate([item.obs, item.action], -1)
        sas, (one, two) = jnp.concatenate([sa, item.obs], -1), jax.random.split(key)
        return self.network(name).init(one, sas), self.network(name).init(two, sa)

    def logits(self, weights, obs, action, next_obs):
        sa = jnp.concatenate([obs, action], -1)
        net = self.network("discriminator")
        of_sas = net.apply(weights[0], jnp.concatenate([sa, next_obs], -1))[..., 0]
        return of_sas, net.apply(weights[1], sa)[..., 0]

    def reals(self, key):
        batch = self.real.sample(key, (), self.config.batch_size)
        return Transition(*batch[:5])

    def discriminator_loss(self, own, weights, target_weights, key, batch, hyper):
        keys, losses = jax.random.split(key, 2), []
        for sign, part, noise_key in ((-1, batch, keys[0]), (1, self.reals(keys[1]), keys[1])):
            x = [part.obs, part.action, part.next_obs]
            noisy = jax.tree.map(
                lambda x, k: x + NOISE * jax.random.normal(k, x.shape), x, list(jax.random.split(noise_key, 3))
            )
            losses += [jnp.mean(jax.nn.softplus(-sign * logit)) for logit in self.logits(own, *noisy)]
        return sum(losses), {}

    def critic_loss(self, own, weights, target_weights, key, batch, hyper):
        real_key, next_key, noise_key = jax.random.split(key, 3)
        both = jax.tree.map(lambda *x: jnp.concatenate(x), batch, self.reals(real_key))
        n = self.config.batch_size
        action = self.distribution(weights["actor"], both.next_obs).sample(next_key)
        next_q = self.act_values(target_weights["critic"], both.next_obs, action)
        q = self.act_values(own, both.obs, both.action)
        errors = (q - cql.td_target(both.reward, both.terminated, next_q, hyper.gamma)) ** 2
        ratio = log_ratio(*self.logits(weights["discriminator"], batch.obs, batch.action, batch.next_obs))
        weight = jax.lax.stop_gradient(jnp.ones_like(ratio) if self.trusting else trust(ratio))

        spread = NOISE * jnp.std(batch.next_obs, 0)
        near = batch.next_obs + spread * jax.random.normal(noise_key, (NUM_NOISY, *batch.next_obs.shape))
        of_sas, of_sa = jax.vmap(lambda x: self.logits(weights["discriminator"], batch.obs, batch.action, x))(near)
        gap = jax.lax.stop_gradient(dynamics_gap(log_ratio(of_sas, of_sa)))
        low = penalty(q[:, :n], gap, q[:, n:])
        loss = jnp.sum(jnp.mean(errors[:, n:], -1) + jnp.mean(weight * errors[:, :n], -1)) + hyper.min_q_weight * low
        return loss, {"trust": jnp.mean(weight), "penalty": low, "q_value": jnp.mean(q)}

    def actor_loss(self, own, weights, target_weights, key, batch, hyper):
        key, real_key = jax.random.split(key)
        both = jax.tree.map(lambda *x: jnp.concatenate(x), batch, self.reals(real_key))
        return super().actor_loss(own, weights, target_weights, key, both, hyper)


def make(env, config: cql.Config, real, trusting: bool = False):
    """H2O that acts in `env`, the simulator by its params, and draws real steps from the stored dataset `real`.

    `trusting`: without the ratio of the dynamics, w = 1.
    """
    venv = as_vector_env(env, config.num_envs)
    params = venv.env.default_params
    obs_space, space = venv.env.observation_space(params), venv.env.action_space(params)
    networks = (
        ("discriminator", MLP(config.hidden, 1, config.activation)),
        ("actor", Actor(obs_space, space, config.hidden, config.activation, spread=True)),
        ("critic", Critic(obs_space, config.hidden, config.activation, config.layer_norm)),
    )
    chosen = optimizer_of(config.optimizer, eps=config.adam_eps)
    replay = uniform(config.buffer_size)
    return H2O(config, venv, networks, obs_space, space, replay, chosen, real, trusting).algorithm()
