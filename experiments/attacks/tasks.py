"""The programs of run.py: victims, who attacks them, and what is returned under whom."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl import registry
from jaxrl.algos import exp3, ppo
from jaxrl.evaluation import evaluate
from jaxrl.nn import normalize
from jaxrl.nn.networks import ActorCritic
from jaxrl.wrappers import ActionDifference, DirectedAttack, ObservationAttack

ID, UNIT = "Pendulum-v1", np.array([1.0, 1.0, 8.0], np.float32)
"""A strength is a share of the half-width of each number that is observed: cosine, sine, angular velocity [rad/s]."""
EPISODES, ROUNDS, WORST = 256, 2000, 1600.0
"""Of an evaluation; of Exp3, whose rewards are returns as shares of the way up from minus WORST, clipped to 0 and 1."""
ENV, PARAMS = jaxrl.make(ID)
TUNED = registry.settings("ppo", ID)
CONFIG, HYPER = ppo.Config(**TUNED.config), ppo.Hyper(**TUNED.hyper)
NETWORK = ActorCritic(ENV.observation_space(PARAMS), 1, True, CONFIG.hidden, CONFIG.activation)
VICTIM = ppo.make(ENV, CONFIG, network=NETWORK)


def push(policy, obs):
    """The mean of the policy's actions, not clipped to the box: where it is beyond an end, it still has a gradient."""
    return NETWORK.apply(policy.weights, normalize.normalize(policy.normalizer, obs), method="actor")[0]


def act(policy, key, obs):
    return VICTIM.act(policy, key, obs, (), greedy=True)[0]


TASK = DirectedAttack(ENV, act, push)
DIRECTOR = ppo.make(TASK, CONFIG)


def directed(victim, obs, seen):
    """The loss of who attacks with a director that has learned; the victim is `(policy, director)`."""
    policy, director = victim
    direction = DIRECTOR.act(director, jax.random.key(0), obs, (), greedy=True)[0]
    return jnp.dot(jnp.clip(direction, -1, 1), push(policy, seen))


ATTACKS = {
    "random": ObservationAttack(ENV),
    "largest difference": ObservationAttack(ENV, ActionDifference(push), 4),
    "directed": ObservationAttack(ENV, directed),
}
LEARNER = ppo.make(ATTACKS["directed"], CONFIG, network=NETWORK)
"""PPO as VICTIM is, on what an attacker lets it see."""


def director_of(key, policy, strength, steps):
    """The policy of who has learned to attack another one."""
    hyper = HYPER.replace(anneal_steps=jnp.float32(steps))
    state, _ = jaxrl.train(DIRECTOR, key, steps, hyper, TASK.attacking(PARAMS, strength, UNIT, policy))
    return DIRECTOR.policy(state)


def returns(key, policy, director, strength, attack):
    """(EPISODES,) of a policy under an attack."""
    victim = {"random": (), "largest difference": policy, "directed": (policy, director)}[attack]
    under = ATTACKS[attack].attacking(PARAMS, strength, UNIT, victim)
    return evaluate(VICTIM, policy, key, ATTACKS[attack], under, num_episodes=EPISODES, greedy=True).returns


@functools.partial(jax.jit, static_argnums=2)
def strength(key, strengths, steps):
    """Mean returns (kinds, strengths) of one victim under each attack."""
    keys = jax.random.split(key, 3)
    state, _ = jaxrl.train(VICTIM, keys[0], steps, HYPER.replace(anneal_steps=jnp.float32(steps)), PARAMS)
    policy = VICTIM.policy(state)

    def at(strength):
        director = director_of(keys[1], policy, strength, steps)
        return jnp.stack([returns(keys[2], policy, director, strength, kind).mean() for kind in ATTACKS])

    return jax.vmap(at, out_axes=1)(strengths)


@functools.partial(jax.jit, static_argnums=(3, 4, 5))
def robust(key, strengths, against, alone, rounds, steps):
    """Returns (policies, attackers, EPISODES): policies that learn for so many steps alone, then in `rounds` of `steps`
    under directors of these strengths, who learn anew in each round to attack what the policy is by then; judged under
    directors that learned `against` it.
    """
    total = alone + rounds * steps
    hyper = HYPER.replace(anneal_steps=jnp.float32(total))
    start_key, train_key, judge_key, episode_key = jax.random.split(key, 4)
    none = (
        VICTIM.policy(VICTIM.init(start_key, hyper, PARAMS)),
        DIRECTOR.policy(DIRECTOR.init(start_key, HYPER, TASK.default_params)),
    )

    def under(strength, victim):
        return ATTACKS["directed"].attacking(PARAMS, strength, UNIT, victim)

    def learned(state, steps):
        count = steps // LEARNER.steps_per_update
        return jax.lax.scan(lambda s, _: (LEARNER.update(s)[0], None), state, None, count)[0]

    first = learned(LEARNER.init(start_key, hyper, under(0.0, none)), alone)

    def trained(strength):
        def one(state, key):
            attack_key, restart_key = jax.random.split(key)
            policy = LEARNER.policy(state)
            victim = policy, director_of(attack_key, policy, strength, steps)
            every = jnp.ones(CONFIG.num_envs, bool)
            return learned(LEARNER.restart(state, restart_key, under(strength, victim), every), steps), None

        return LEARNER.policy(jax.lax.scan(one, first, jax.random.split(train_key, rounds))[0])

    policies = jax.vmap(trained)(strengths)

    def judged(policy, strength):
        director = director_of(judge_key, policy, strength, total)
        return returns(episode_key, policy, director, strength, "directed")

    return jax.vmap(jax.vmap(judged, (None, 0)), (0, None))(policies, against)


@jax.jit
def chosen(key, found):
    """Mean return of Exp3-IX among the policies while one attacker, whom it does not know, attacks: (attackers,)."""
    env, params = jaxrl.make("AdversarialBandit-v0", arms=found.shape[0], rounds=ROUNDS)
    algo = exp3.make(env, exp3.Config(estimator="ix"))
    drawn = jax.random.randint(jax.random.fold_in(key, 1), (ROUNDS,), 0, found.shape[-1])

    def one(of_attacker):  # (policies, EPISODES)
        rewards = jnp.clip(1 + of_attacker[:, drawn].T / WORST, 0, 1)
        hyper = exp3.Hyper(horizon=jnp.float32(ROUNDS))
        _, metrics = jaxrl.train(algo, key, ROUNDS, hyper, params.replace(rewards=rewards))
        return (jnp.nanmean(metrics["episode_return"]) / ROUNDS - 1) * WORST

    return jax.vmap(one, 1)(found)
