"""DQN that learns from rollouts of a model in place of replayed transitions: a `QLearner` with other batches."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from models import Model

from jaxrl.algorithm import algorithm_of
from jaxrl.algos import dqn
from jaxrl.environment import pytree
from jaxrl.math import fast_key
from jaxrl.nn.action_values import epsilon_greedy
from jaxrl.nn.optim import OptimizerState
from jaxrl.off_policy import q_learner


@pytree
class State(q_learner.State):
    model: Any  # the model's weights
    model_optimizer: OptimizerState


@dataclasses.dataclass(frozen=True)
class Dyna(q_learner.QLearner):
    model: Model
    length: int  # of a rollout; one step of n_step = 1 each

    def init(self, key, hyper=None, env_params=None):
        state = super().init(key, hyper, env_params)
        weights = self.model.init(jax.random.fold_in(key, 1), jax.tree.map(lambda x: x[0], state.obs))
        return State(
            **{f.name: getattr(state, f.name) for f in dataclasses.fields(state)},
            model=weights,
            model_optimizer=self.optimizer.init(weights, state.hyper.learning_rate),
        )

    def batches(self, key, replay, state):
        """Rollouts of the model from replayed observations by the exploring policy; after an end, from there anew."""
        sample_key, key = jax.random.split(fast_key(key))
        count = self.config.num_updates * self.config.batch_size
        start = self.replay.sample(sample_key, replay, count // self.length).obs[0]

        def step(obs, key):
            act_key, model_key = jax.random.split(key)
            action = epsilon_greedy(self.values(self.policy(state), obs, None), self.epsilon(state)).sample(act_key)
            next_obs, reward, terminated = self.model.step(state.model, model_key, obs, action)
            batch = q_learner.Batch(obs, action, reward, state.hyper.gamma * ~terminated, next_obs)
            return jnp.where(terminated[:, None], start, next_obs), batch

        _, batch = jax.lax.scan(step, start, jax.random.split(key, self.length))
        # All rollouts' steps in an order in which every batch has its share of rollouts, whole.
        shape = self.config.num_updates, self.config.batch_size

        def rows(x):
            return jnp.swapaxes(x, 0, 1).reshape(*shape, *x.shape[2:])

        return jax.tree.map(rows, batch._replace(weight=None)), None

    def learn(self, state, rollout):
        """The model's steps, as many and of as many transitions as those of the values, then theirs."""
        if self.model.loss is None:
            return super().learn(state, rollout)
        key, sample_key, loss_key = jax.random.split(fast_key(jax.random.fold_in(state.key, 1)), 3)
        count = self.config.num_updates, self.config.batch_size
        replay = self.replay.add(state.replay, rollout.transition)
        batches = jax.tree.map(
            lambda x: x[0].reshape(*count, *x.shape[2:]), self.replay.sample(sample_key, replay, count[0] * count[1])
        )
        flat, unravel = ravel_pytree(state.model)

        def step(carry, inputs):
            flat, optimizer = carry
            loss, grads = jax.value_and_grad(self.model.loss)(unravel(flat), *inputs)
            flat, optimizer, _ = self.optimizer.descend(flat, optimizer, grads, state.hyper.learning_rate, 10.0)
            return (flat, optimizer), loss

        keys = jax.random.split(loss_key, count[0])
        (flat, optimizer), losses = jax.lax.scan(step, (flat, state.model_optimizer), (keys, batches))
        state, metrics = super().learn(state.replace(model=unravel(flat), model_optimizer=optimizer), rollout)
        return state, {**metrics, "model_loss": losses[-1]}


def make(env, config: dqn.Config, model: Model, length: int = 8):
    """Dyna-DQN: dqn with its scalar values, whose batches the model makes."""
    learner = dqn.make(env, config).init.__self__
    fields = {field.name: getattr(learner, field.name) for field in dataclasses.fields(learner)}
    dyna = Dyna(**fields, model=model, length=length)
    return algorithm_of("dyna_dqn", dyna, dqn.Hyper, config.num_envs * config.num_steps)
