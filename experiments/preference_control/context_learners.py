"""OPPO, and decision transformers on learned or on the true rewards, from the Pendulum data of this study."""

import dataclasses

import compared_learners as study
import jax

import jaxrl
from jaxrl.algos import decision_transformer, oppo
from jaxrl.data import datasets, preferences, reward_models
from jaxrl.wrappers import LearnedReward
from jaxrl.wrappers.base import Wrapper

TASK, UPDATES = "Pendulum", 4_000
OPPO = oppo.Config(num_updates=100, batch_size=32, context_size=8, width=32, layers=1, hidden=(64, 64))
DT = decision_transformer.Config(num_updates=100, batch_size=32, context=8, width=32, layers=2)
MODEL = reward_models.Config(num_members=3, hidden=(64, 64), num_checks=15, batch_size=32)


@dataclasses.dataclass(frozen=True)
class PaidByTask(Wrapper):
    """Around a `LearnedReward`, which the policy sees: pays what the task itself does."""

    def transition(self, key, state, action, params):
        out = self.env.transition(key, state, action, params)
        return out._replace(reward=out.info["task_reward"])


def of_oppo(found, env, params, triplet_coef):
    algo = oppo.make(env, OPPO, replay=preferences.stored(found, env.action_space(params)))
    return algo, oppo.Hyper(learning_rate=1e-3, triplet_coef=triplet_coef), params, env


def of_dt(steps, env, params):
    algo = decision_transformer.make(env, DT, replay=datasets.windows(steps, env.action_space(params), DT.context))
    return algo, decision_transformer.Hyper(learning_rate=1e-3), params, algo.venv.env


def of_learned(key, found, env, params):
    """A decision transformer told the best return of the data, by rewards of a model, also of the way."""
    model, losses = reward_models.fit(key, found, env.observation_space(params), env.action_space(params), MODEL)
    task = LearnedReward(env, reward_models.reward_of)
    algo, hyper, params, inside = of_dt(reward_models.relabelled(model, found.steps), task, task.on(params, model))
    return algo, hyper, params, PaidByTask(inside)


def of_seed(key, name, found, env, params):
    """The mean return of 50 episodes of one seed's policy."""
    fit_key, train_key, eval_key = jax.random.split(key, 3)
    if name.startswith("oppo"):
        algo, hyper, on, judged = of_oppo(found, env, params, 1.0 if name.endswith("weighed 1") else 3.0)
    elif found is None:
        algo, hyper, on, judged = of_dt(study.oracle.data(TASK, study.STEPS, study.SHARES[TASK], 0)[0], env, params)
    else:
        algo, hyper, on, judged = of_learned(fit_key, found, env, params)
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, UPDATES, hyper, on))(train_key)
    result = jax.jit(lambda state: jaxrl.evaluate(algo, algo.policy(state), eval_key, judged, on, num_episodes=50))
    return float(result(state).returns.mean())
