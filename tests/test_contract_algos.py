"""`jaxrl.testing.check_algorithm` for every algorithm, and what each learns on probes of known value."""

import contextlib
import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import (
    Algorithm,
    Environment,
    Transition,
    VectorEnv,
    actors,
    get_algo,
    list_algos,
    make,
    pytree,
    registry,
    train,
    vectorize,
)
from jaxrl.algorithm import restarted, starting_values
from jaxrl.algos import recoil
from jaxrl.algos.meta import disco_rule
from jaxrl.data import datasets, preferences
from jaxrl.nn.nets import critic_values
from jaxrl.off_policy.imagination import Prediction
from jaxrl.off_policy.q_learner import Batch
from jaxrl.replay.ring import uniform
from jaxrl.rollout import Ends, ends_of
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete
from jaxrl.telemetry import Quantity
from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse, assert_same_type
from jaxrl.testing.probes import (
    PROBES,
    ConstantReward,
    DelayedReward,
    ObservationActionReward,
    Privileged,
    Probe,
    Recall,
    Termination,
)

GAMMA = 0.8


class Setup(NamedTuple):
    """Small settings with which an algorithm learns the probes within seconds, and how to read its values."""

    config: dict[str, Any]
    hyper: dict[str, Any]
    steps: int
    value: Callable[..., Any]  # (state, obs) -> (B,); of the best action where values belong to actions
    probes: Callable[[Probe], bool] = lambda probe: True
    tolerance: float = 0.08
    task: Probe = ObservationActionReward()  # on which the contract is checked
    num_updates: int = 6  # of that check; rounding grows with each
    double: bool = False  # the whole of that check in float64
    huber: bool = False  # single values by Huber's loss


def of_policy_values(probe: Probe) -> bool:
    """For what acts in Discrete spaces by values of the policy, which does not see what is privileged."""
    return probe.kind == "discrete" and not isinstance(probe, Privileged)


HUBER_TERMINATION = 3.75
"""Where Huber's loss comes to rest on `Termination`, whose value is 2.78: 0.8 (1 + 0.8 V - V) + 0.2 max(1 - V, -1) = 0,
since errors of an end, 1 - V, are clipped."""


def ppo_value(algo: Any, state: Any, obs: Any) -> Any:
    """The critic's, through a rollout of the public interface: PPO's holds observations and their values."""
    _, rollout = jax.jit(algo.collect)(state)
    seen = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout.obs)
    values = rollout.value.reshape(-1)

    def at(wanted):
        match = jax.tree.leaves(jax.tree.map(lambda s, w: (s == w).reshape(len(s), -1).all(1), seen, wanted))
        return values[jnp.argmax(jnp.stack(match).all(0))]

    return jnp.stack([at(jax.tree.map(lambda x, i=i: x[i], obs)) for i in range(len(jax.tree.leaves(obs)[0]))])


def q_value(algo: Any, state: Any, obs: Any) -> Any:
    q = algo.policy.__self__.values(algo.policy(state), obs, None)
    return jnp.max(q if not isinstance(obs, dict) else jnp.where(obs["action_mask"], q, -jnp.inf), -1)


def crr_value(algo: Any, state: Any, obs: Any) -> Any:
    """The critic's of the policy's actions."""
    rule, policy = algo.init.__self__.rule, algo.policy(state)
    return rule.ahead(policy.weights, Batch(obs, None, None, None, obs), state.hyper, None)


DQN_CONFIG = dict(num_envs=8, num_steps=2, num_updates=4, batch_size=32, buffer_size=512, hidden=(16,))
DQN_HYPER = dict(learning_rate=5e-3, gamma=GAMMA, learning_starts=64, target_period=32)


def dqn_setup(config: Any = (), hyper: Any = (), noisy: bool = False) -> Setup:
    exploring = {} if noisy else dict(exploration_steps=1, epsilon_end=0.5)
    return Setup(
        {**DQN_CONFIG, **dict(config)},
        {**DQN_HYPER, **exploring, **dict(hyper)},
        steps=16 * 400,
        value=q_value,
        probes=of_policy_values,
    )


def r2d2_value(algo: Any, state: Any, obs: Any) -> Any:
    """Of the best allowed action at the start of an episode, as a return."""
    from jaxrl.algos.deep_q.r2d2 import unscale

    learner = algo.init.__self__
    carry = algo.initial_carry((len(jax.tree.leaves(obs)[0]),))
    q, allowed = learner.values(state.weights, obs, carry)[0], learner.allowed(obs)
    best = jnp.max(q if allowed is None else jnp.where(allowed, q, -jnp.inf), -1)
    return unscale(best, state.hyper.rescale_eps)


def recurrent_value(algo: Any, state: Any, obs: Any) -> Any:
    """The smaller of the critics' values of the greedy action at the start of an episode."""
    learner, n = algo.init.__self__, len(jax.tree.leaves(obs)[0])
    start, hidden = jnp.ones(n, bool), learner.actor.initial_carry((n,))
    _, unit = learner.greedy(algo.policy(state), hidden, obs, start)
    one = jax.tree.map(lambda x: x[None], (obs, start, unit))
    weights, hidden = state.weights["critic"], learner.critic.initial_carry((n,))
    return jnp.min(learner.critic.apply(weights, hidden, *one)[1], 0)[0]


def sequence_value(algo: Any, state: Any, obs: Any) -> Any:
    """The smaller of the critics' values of the first action of a sequence."""
    learner = algo.init.__self__
    action = learner.greedy(algo.policy(state), obs)
    return jnp.min(critic_values(learner.rule.critic, state.weights["critic"], learner.rule.vector(obs), action), 0)


def stream_value(algo: Any, state: Any, obs: Any) -> Any:
    """The largest action value, or the critic's."""
    from jaxrl.nn.normalize import standardized
    from jaxrl.nn.streaming import StreamMLP
    from jaxrl.streaming import features

    config, critic = algo.config, "value" in state.weights
    weights = state.weights["value"] if critic else state.weights
    space = algo.venv.env.observation_space(state.env_params)
    x = standardized(state.normalizer, features(space, obs, privileged=critic))
    n = weights["params"]["Dense_1"]["kernel"].shape[-1]
    out: Any = StreamMLP(config.hidden, n, config.sparsity, config.layer_norm).apply(weights, x)
    if isinstance(obs, dict) and "action_mask" in obs and not critic:
        out = jnp.where(obs["action_mask"], out, -jnp.inf)
    return jnp.max(out, -1)


def critic_value(algo: Any, state: Any, obs: Any) -> Any:
    """The critic's half of the default ActorCritic, whose weights may be the state's or a part of them."""
    from jaxrl.nn.distributions import num_outputs
    from jaxrl.nn.networks import ActorCritic

    env, params = algo.venv.env, algo.venv.env.default_params
    space = env.action_space(params)
    parts = env.observation_space(params), num_outputs(space), isinstance(space, Box)
    return ActorCritic(*parts, algo.config.hidden, "tanh").apply(state.weights, obs, method="critic")


def rnd_value(algo: Any, state: Any, obs: Any) -> Any:
    """The critic of the environment's own rewards."""
    from jaxrl.algos.on_policy.rnd import TwoCritics
    from jaxrl.nn.distributions import num_outputs

    env, params = algo.venv.env, algo.venv.env.default_params
    space = env.action_space(params)
    parts = env.observation_space(params), num_outputs(space), isinstance(space, Box)
    return TwoCritics(*parts, algo.config.hidden, "tanh").apply(state.weights["network"], obs, method="critic")


def apg_value(algo: Any, state: Any, obs: Any) -> Any:
    return algo.init.__self__.value(state.weights, obs)


def in_units(algo: Any, state: Any, space: Any, obs: Any) -> Any:
    """The greedy action in units of the box."""
    action, _ = algo.act(algo.policy(state), jax.random.key(1), obs, greedy=True)
    return (action - (space.low + space.high) / 2) / ((space.high - space.low) / 2)


def off_policy_value(algo: Any, state: Any, obs: Any) -> Any:
    """The smaller of the critics' values of the greedy action, or of the best action."""
    critic = algo.init.__self__.rule.critic
    weights, space = state.weights["critic"], algo.venv.env.action_space(algo.venv.env.default_params)
    if algo.name == "crossq":
        weights = {**weights, "batch_stats": state.extra["batch_stats"]}
    apply = jax.vmap(critic.apply, (0, *[None] * (1 if isinstance(space, Discrete) else 2)))
    if algo.name == "ddpg":
        apply = critic.apply
    if isinstance(space, Discrete):
        q = jnp.min(apply(weights, obs), 0)
        mask = obs.get("action_mask") if isinstance(obs, dict) else None
        return jnp.max(q if mask is None else jnp.where(mask, q, -jnp.inf), -1)
    unit = in_units(algo, state, space, obs)
    return apply(weights, obs, unit) if algo.name == "ddpg" else jnp.min(apply(weights, obs, unit), 0)


def zoomed_value(algo: Any, state: Any, obs: Any) -> Any:
    """The mean over levels of the bins that a coarse-to-fine network zooms into."""
    from jaxrl.algos.deep_q.cqn import of_bins
    from jaxrl.nn.value_heads import expected_value

    critic, (weights, *ends) = algo.init.__self__.rule.critic, algo.policy(state).weights
    atoms = jnp.linspace(*ends, critic.config.num_outputs)
    bin = critic.best(weights, obs, atoms)
    return jnp.mean(expected_value(of_bins(critic.logits(weights, obs, bin), bin), atoms), (1, 2))


def soft_value(algo: Any, state: Any, obs: Any) -> Any:
    return algo.init.__self__.rule.critic.value(state.weights["critic"], obs)


OFF_POLICY = dict(num_envs=8, num_steps=2, num_updates=4, batch_size=64, buffer_size=1024, hidden=(16,))


def off_policy_setup(config: Any = (), **hyper: Any) -> Setup:
    return Setup(
        {**OFF_POLICY, **dict(config)},
        dict(learning_rate=5e-3, gamma=GAMMA, learning_starts=64) | hyper,
        steps=16 * 400,
        value=off_policy_value,
        probes=lambda probe: probe.kind == "box",
        task=ObservationActionReward("box"),
    )


SEQUENCES = dict(num_envs=8, num_steps=4, burn_in=2, num_updates=4, batch_size=16, hidden=(16,), rnn_size=16)


def sequences_setup(**hyper: Any) -> Setup:
    return Setup(
        dict(SEQUENCES, head_hidden=(16,), buffer_size=256),
        dict(learning_rate=5e-3, gamma=GAMMA, learning_starts=64, tau=0.05) | hyper,
        steps=32 * 400,
        value=recurrent_value,
        probes=lambda probe: probe.kind == "box",
        task=Recall("box"),
    )


STREAM = dict(num_steps=50, hidden=(16,), sparsity=0.5, normalize_reward=False)
NOVELTY = dict(num_parents=8, neighbours=3, num_kept=2, capacity=64)
EMITTERS = dict(num_emitters=6, members=2, step_size=4, chunk=1, reward_capacity=64)
GRADIENT = dict(num_critic_updates=4, num_policy_updates=2, batch_size=16, buffer_size=1_000, critic_hidden=(8,))
CODES = dict(num_frames=1, code_size=2, ae_hidden=(8,), train_every=5, num_updates=4, batch_size=8, num_gathered=64)


@dataclasses.dataclass(frozen=True)
class SecondObservation(ObservationActionReward):
    """The observation is the second of two, so that a tree has something to choose."""

    def observe(self, key, state, params):
        return jnp.stack([jnp.zeros_like(state.cue), state.cue])

    def observation_space(self, params):
        return Box(-1.0, 1.0, (2,))


SETUPS = {
    "ppo": Setup(
        dict(num_envs=16, num_steps=16, num_epochs=4, num_minibatches=4, hidden=(16,)),
        dict(learning_rate=1e-2, gamma=GAMMA, ent_coef=0.0),
        steps=16 * 16 * 40,
        value=ppo_value,
    ),
    "dqn": dqn_setup(),
    "c51": dqn_setup(dict(num_outputs=21), dict(v_min=-6.0, v_max=6.0)),
    "qr_dqn": dqn_setup(dict(num_outputs=8)),
    # At half of these steps the values of four seeds are 4.4 to 4.9 of 5, at these within 0.01.
    "rem": dqn_setup(dict(num_outputs=4))._replace(huber=True, steps=2 * 16 * 400),
    "cql_discrete": dqn_setup(hyper=dict(min_q_weight=0.0))._replace(huber=True),
    "bcq_discrete": dqn_setup(hyper=dict(threshold=0.0))._replace(huber=True),
    "crr_discrete": dqn_setup()._replace(value=crr_value, huber=True),
    # Two layers, tanh: what is multiplied by the embedded fraction must not be 0 where the observation is.
    "iqn": dqn_setup(dict(num_quantiles=8, num_target_quantiles=8, hidden=(16, 16), activation="tanh")),
    "rainbow": dqn_setup(
        dict(num_outputs=21, activation="tanh"), dict(v_min=-6.0, v_max=6.0, priority_beta=1.0), noisy=True
    ),
    "a2c": Setup(
        dict(num_envs=16, num_steps=8, hidden=(16,)),
        dict(learning_rate=5e-3, gamma=GAMMA, ent_coef=0.0),
        steps=16 * 8 * 1000,
        value=ppo_value,
    ),
    "stac": Setup(
        dict(num_envs=16, num_steps=8, hidden=(16,), tuned=("gae_lambda", "pg_coef", "vf_coef")),
        dict(learning_rate=5e-3, gamma=GAMMA, ent_coef=0.0, outer_gamma=GAMMA, outer_ent_coef=0.0),
        steps=16 * 8 * 1000,
        value=ppo_value,
    ),
    "barfi": Setup(
        dict(num_envs=8, num_steps=16, num_rollouts=2, inner_steps=4, neumann_terms=2, hidden=(8,), reward_hidden=(4,)),
        dict(learning_rate=1e-2, gamma=GAMMA, ent_coef=0.0),
        steps=8 * 16 * 150,
        value=lambda *_: None,  # it has no critic
        double=True,  # a constant added to its reward has no gradient but rounding, of which Adam makes whole steps
        probes=lambda probe: probe.known(GAMMA).action is not None,
    ),
    "reinforce": Setup(
        dict(num_envs=8, num_steps=64, hidden=(16,)),
        dict(learning_rate=1e-2, gamma=GAMMA, ent_coef=0.0),
        steps=8 * 64 * 2400,  # where first actions lie beyond the bounds, all are clipped alike for a long time
        value=ppo_value,
    ),
    "ppo_rnn": Setup(
        dict(num_envs=16, num_steps=16, num_minibatches=4, hidden=(16,), rnn_size=16),
        dict(learning_rate=1e-2, gamma=GAMMA, ent_coef=0.0),
        steps=16 * 16 * 40,
        value=ppo_value,
        task=DelayedReward(),  # in episodes of one step nothing is remembered, and recurrent weights learn nothing
        num_updates=3,
    ),
    "ppo_gbrl": Setup(
        dict(num_envs=16, num_steps=16, num_epochs=4, num_minibatches=4, num_trees=16 * 40, depth=2, log_std=-1.0),
        dict(learning_rate=0.02, value_learning_rate=0.2, std_learning_rate=1e-2, gamma=GAMMA, gae_lambda=0.95),
        steps=16 * 16 * 40,
        value=ppo_value,
        probes=lambda probe: not isinstance(probe, Privileged),  # whose trees see what actors see
        task=SecondObservation("box"),
    ),
    "pqn": Setup(
        dict(num_envs=8, num_steps=8, num_epochs=2, num_minibatches=4, hidden=(16,)),
        dict(learning_rate=5e-3, gamma=GAMMA, exploration_steps=1, epsilon_end=0.5),
        steps=8 * 8 * 300,
        value=ppo_value,
        probes=of_policy_values,
    ),
    "pqn_rnn": Setup(
        dict(num_envs=8, num_steps=8, num_epochs=2, num_minibatches=4, hidden=(16,), rnn_size=16),
        dict(learning_rate=5e-3, gamma=GAMMA, exploration_steps=1, epsilon_end=0.5),
        steps=8 * 8 * 300,
        value=ppo_value,
        probes=of_policy_values,
        task=DelayedReward(),  # as for ppo_rnn
        num_updates=3,
        double=True,  # a weight of the memory has a gradient near 0 here, and Adam makes steps of its rounding
    ),
    "r2d2": Setup(
        dict(SEQUENCES, buffer_size=256, n_step=2),
        # A slow rate: the rescaling of random targets is a bias already, 0.1 of the value of random ends.
        dict(DQN_HYPER, exploration_steps=1, epsilon_end=0.5, priority_beta=1.0, learning_rate=2e-3),
        steps=32 * 400,
        value=r2d2_value,
        probes=of_policy_values,
        task=DelayedReward(),  # as for ppo_rnn
    ),
    # Without much entropy at first the deeper actor comes to rest at an end of the box, where tanh has no slope.
    "sac_rnn": sequences_setup(alpha=0.3, alpha_learning_rate=3e-3, target_entropy=-3.0, learning_starts=640)._replace(
        num_updates=24
    ),
    "td3_rnn": sequences_setup(exploration_noise=0.5, policy_noise=0.05),
    "stream_q": Setup(
        STREAM,
        dict(gamma=GAMMA, kappa=4.0, exploration_steps=1, epsilon_end=0.5),
        steps=8000,
        value=stream_value,
        # The bound weighs large errors less, so values of states with random ends come out too high.
        probes=lambda probe: of_policy_values(probe) and not isinstance(probe, Termination),
    ),
    "stream_ac": Setup(
        STREAM,
        dict(gamma=GAMMA, kappa_value=4.0, ent_coef=0.0),
        steps=8000,
        value=stream_value,
        probes=lambda probe: not isinstance(probe, Termination),
    ),
    "rnd": Setup(
        dict(
            num_envs=16,
            num_steps=16,
            num_epochs=4,
            num_minibatches=4,
            hidden=(16,),
            target_hidden=(16,),
            predictor_hidden=(16, 16),
            num_features=16,
        ),
        dict(learning_rate=1e-2, gamma=GAMMA, ent_coef=0.0, clip_eps=0.2),
        steps=16 * 16 * 40,
        value=rnd_value,
    ),
    "spo": Setup(
        dict(num_envs=16, num_steps=16, num_epochs=4, num_minibatches=4, hidden=(16,)),
        dict(learning_rate=1e-2, ent_coef=0.0),
        steps=16 * 16 * 40,
        value=lambda *_: None,  # of win rates, which depend on the policy
        probes=lambda probe: probe.known(GAMMA).action is not None,
    ),
    "props": Setup(
        dict(
            num_envs=4,
            num_steps=64,
            buffer_batches=2,
            num_epochs=4,
            num_minibatches=8,
            props_num_steps=16,
            props_num_epochs=2,
            props_num_minibatches=2,
            hidden=(16,),
            stop_on_kl=False,
        ),
        dict(learning_rate=1e-2, gamma=GAMMA, ent_coef=0.0),
        steps=256 * 40,
        value=critic_value,
    ),
    "td3": off_policy_setup(tau=0.05, exploration_noise=0.5, policy_noise=0.05),
    "mex": off_policy_setup(tau=0.05, exploration_noise=0.5, policy_noise=0.05, optimism=1e-3),
    "ddpg": off_policy_setup(tau=0.05, exploration_noise=0.5),
    "sac": off_policy_setup(tau=0.05, alpha=1e-3, alpha_learning_rate=1e-4)._replace(
        probes=lambda probe: probe.kind != "multi_discrete"
    ),
    # As for sac_rnn: without much entropy at first the deeper actor comes to rest at an end of the box.
    "srl": off_policy_setup(
        dict(rnn_size=16, sequence_length=2),
        tau=0.05,
        alpha=0.3,
        alpha_learning_rate=3e-3,
        target_entropy=-3.0,
        learning_starts=640,
    )._replace(value=sequence_value, num_updates=48),
    "crossq": off_policy_setup(dict(critic_hidden=(32,), policy_delay=2), alpha=1e-3, alpha_learning_rate=1e-4),
    # Without a dataset these act as those above; tests/algos/actor_critic has what they do with one.
    "bc": off_policy_setup()._replace(
        hyper=dict(learning_starts=64),
        value=lambda *_: None,
        probes=lambda probe: False,  # it clones itself
    ),
    "td3_bc": off_policy_setup(tau=0.05, alpha=50.0, exploration_noise=0.5, policy_noise=0.05),
    "rebrac": off_policy_setup(
        dict(layer_norm=False),  # of 16 units it leaves too little of an action's size
        tau=0.05,
        actor_penalty=1e-3,
        critic_penalty=0.0,
        exploration_noise=0.5,
        policy_noise=0.05,
    ),
    "iql": off_policy_setup(tau=0.05, expectile=0.9, beta=10.0),
    "famo2o": off_policy_setup(tau=0.05, expectile=0.9, beta_min=8.0, beta_max=12.0),
    "ro2o": off_policy_setup(
        dict(num_critics=2, num_samples=2), tau=0.05, alpha=1e-3, alpha_learning_rate=1e-4, ood=0.0, smooth_actor=0.0
    ),
    "awac": off_policy_setup(tau=0.05, temperature=0.1),
    "edac": off_policy_setup(dict(num_critics=2, diverse=False), tau=0.05, alpha=1e-3, alpha_learning_rate=1e-4),
    "cql": off_policy_setup(dict(num_actions=2), tau=0.05, alpha=1e-3, alpha_learning_rate=1e-4, min_q_weight=0.0),
    "fb": off_policy_setup(dict(size=8, num_labelled=64))._replace(
        hyper=dict(learning_starts=64, learning_rate=1e-3),
        value=lambda *_: None,
        probes=lambda probe: False,  # its values are of a reward that it infers
        task=ObservationActionReward("discrete"),
    ),
    # Without a dataset these too are soft actor-critic; tests/algos/model_based/ has them with a model.
    **{
        name: off_policy_setup(
            dict(num_critics=2, num_rollouts=1, horizon=1, **config),
            tau=0.05,
            alpha=1e-3,
            alpha_learning_rate=1e-4,
            replay_ratio=float("inf"),
        )
        for name, config in {"mopo": {}, "morel": {}, "combo": dict(num_actions=2), "ravl": dict(diverse=False)}.items()
    },
    # Two steps of each branch, so that a probe's ends, too, are imagined. As for srl, some entropy at first.
    "mbpo": off_policy_setup(
        dict(num_members=2, model_hidden=(16,), model_updates=4, model_batch_size=32, num_rollouts=64, horizon=2),
        tau=0.05,
        alpha=0.3,
        alpha_learning_rate=3e-3,
        target_entropy=-3.0,
        learning_starts=640,
        model_learning_rate=5e-3,
    )._replace(num_updates=48),
    "dvl": off_policy_setup(dict(divergence="total_variation"), tau=0.05, temperature=0.9, beta=10.0),
    **{
        name: off_policy_setup(config)._replace(
            hyper=dict(learning_starts=64),
            value=lambda *_: None,
            probes=lambda probe: False,  # it clones itself
        )
        for name, config in {"flow_bc": dict(num_flow_steps=3), "ddpm_bc": dict(num_diffusion_steps=3)}.items()
    },
    # Critics act, so they see nothing privileged. No noise explores, so all steps are kept: once all that is stored
    # lies at the box's edge, nothing leads back.
    "expo": off_policy_setup(
        dict(num_critics=2, num_samples=4, num_edits=4, num_diffusion_steps=3, layer_norm=False, buffer_size=8192),
        tau=0.05,
        alpha=1e-3,
        alpha_learning_rate=1e-4,
        edit_scale=0.2,
    )._replace(probes=lambda probe: probe.kind == "box" and not isinstance(probe, Privileged)),
    # Bins of 3^3 cells; both act by what sees no privileged part.
    "cqn": off_policy_setup(
        dict(levels=3, bins=3, num_outputs=25), tau=0.05, exploration_noise=0.3, v_min=-6.0, v_max=6.0
    )._replace(value=zoomed_value, probes=lambda probe: probe.kind == "box" and not isinstance(probe, Privileged)),
    "arsq": off_policy_setup(dict(levels=3, bins=3), tau=0.05, alpha=0.01)._replace(
        value=soft_value, probes=lambda probe: probe.kind == "box" and not isinstance(probe, Privileged)
    ),
    "reinflow": Setup(
        dict(num_envs=16, num_steps=16, num_epochs=4, num_minibatches=4, num_flow_steps=2)
        | dict(hidden=(16,), noise_hidden=(8,)),
        dict(learning_rate=3e-3, critic_learning_rate=1e-2, gamma=GAMMA, ent_coef=0.0, clip_eps=0.2),
        steps=16 * 16 * 60,
        value=ppo_value,
        probes=lambda probe: probe.kind == "box",
        task=ObservationActionReward("box"),
    ),
    "gorl": Setup(
        dict(num_envs=16, num_steps=16, num_epochs=4, num_minibatches=4, num_flow_steps=3, hidden=(16,))
        | dict(encoder_hidden=(16,), stage_updates=6, refit_rollouts=2, refit_steps=150, refit_batch_size=64),
        dict(learning_rate=3e-3, critic_learning_rate=1e-2, decoder_learning_rate=1e-2, gamma=GAMMA, ent_coef=0.0)
        | dict(clip_eps=0.2, later_clip_eps=0.2),
        steps=16 * 16 * 70,
        value=ppo_value,
        probes=lambda probe: probe.kind == "box",
        task=ObservationActionReward("box"),
        double=True,  # a decoder begins anew among these updates
    ),
    "apg": Setup(
        dict(num_envs=16, num_steps=8, num_epochs=4, num_minibatches=2, hidden=(16,)),
        # Annealed: at a constant rate the critic's last value of random ends is 0.2 off, from one update to the next.
        dict(learning_rate=2e-2, critic_learning_rate=1e-2, gamma=GAMMA, anneal_steps=128 * 200),
        steps=128 * 200,
        value=apg_value,
        probes=lambda probe: probe.kind == "box",
        task=ObservationActionReward("box"),
    ),
    "alphazero": Setup(
        dict(num_envs=8, num_steps=8, num_simulations=4, num_epochs=2, num_minibatches=2, hidden=(8,)),
        dict(learning_rate=1e-2, gamma=GAMMA, td_lambda=1.0),
        steps=8 * 8 * 150,
        value=critic_value,
        probes=lambda probe: probe.kind == "discrete",
        task=DelayedReward(),
        num_updates=3,
    ),
    # Populations judge 16 episodes: of 8 one generation in 128 sees one cue alone, and takes who knows only that for
    # the best. Evolution's mean moves for ever: smaller steps, and twice as many, keep it within the tolerance.
    "evolution": Setup(
        dict(population_size=16, num_episodes=16, num_steps=1, hidden=(4,)),
        dict(sigma=0.2, learning_rate=0.02),
        steps=16 * 16 * 200,
        value=lambda *_: None,  # it has no critic
        probes=lambda probe: probe.known(GAMMA).action is not None,
    ),
    **{
        name: Setup(
            dict(population_size=16, num_episodes=16, num_steps=1, hidden=(4,), cells=(4,), **more),
            hyper,
            steps=16 * 16 * 100,
            value=lambda *_: None,  # it has no critic
            probes=lambda probe: probe.known(GAMMA).action is not None,
            # Whose survivors are told apart by distances that are nearly equal.
            double=name in ("map_elites", "novelty_search", "taxons", "stax"),
            task=ObservationActionReward("box"),  # where no genome of the first generation is the best of all
            num_updates={"cma_me": 6, "serene": 24}.get(name, 12),  # until another genome is the best
        )
        for name, more, hyper in (
            ("map_elites", dict(emitter="gaussian"), dict(sigma=0.3)),
            ("novelty_search", NOVELTY, dict(sigma=0.3)),
            ("cma_me", dict(num_emitters=2), {}),
            ("serene", NOVELTY | EMITTERS, dict(sigma=0.3)),
            ("taxons", NOVELTY | CODES, dict(sigma=0.3)),
            ("stax", NOVELTY | EMITTERS | CODES, dict(sigma=0.3)),
        )
    },
    "pga_me": Setup(
        dict(population_size=16, num_episodes=16, num_steps=1, hidden=(4,), cells=(4,), **GRADIENT),
        dict(iso_sigma=0.3),
        steps=16 * 16 * 100,
        value=lambda *_: None,  # what its critics are worth is the test of climbers
        probes=lambda probe: probe.known(GAMMA).action is not None and probe.kind == "box",
        task=ObservationActionReward("box"),
        double=True,  # whose genomes are told apart by returns that are nearly equal
    ),
}


@cache
def made(name, probe):
    module, setup = get_algo(name), SETUPS[name]
    return module.make(probe, module.Config(**setup.config)), module.Hyper(**setup.hyper)


class Case(NamedTuple):
    """A learner that the probes do not suit, because it keeps tables or pulls arms, on a task that does."""

    env: str
    settings: dict[str, Any]  # of the environment
    num_updates: int  # enough that every leaf of its memory changes
    config: dict[str, Any] = {}
    hyper: dict[str, Any] = {}
    params: dict[str, Any] = {}
    make: dict[str, Any] = {}  # further arguments of `make`
    learns: bool = True


def pendulum_data() -> datasets.Dataset:
    """Random numbers for Pendulum."""
    rng = np.random.default_rng(0)
    obs, true = rng.normal(size=(20, 3)).astype(np.float32), np.ones(20, bool)
    action = rng.uniform(-2, 2, (20, 1)).astype(np.float32)
    return datasets.Dataset(obs, action, np.zeros(20, np.float32), ~true, true, obs)


PENDULUM = datasets.stored(pendulum_data(), Box(-2.0, 2.0, (1,)))


def still(key: Any, obs: Any, action: Any) -> Prediction:
    """A model in which nothing moves."""
    return Prediction(obs, jnp.zeros(len(obs)), jnp.zeros(len(obs), bool), jnp.zeros(len(obs)))


SHORT = {"max_steps": 4}
DISCO_RULE = {
    name: np.full(shape, 0.1, np.float32) for name, shape in disco_rule.shapes(disco_rule.RuleConfig(6, 6, 4)).items()
}
ARMS = {"arms": 2}


def noise(length: int) -> Any:
    """A dataset for CartPole: windows of random numbers, for learners that cannot do without one."""
    rng, last = np.random.default_rng(0), np.arange(32) % 8 == 7
    obs = rng.normal(size=(32, 4)).astype(np.float32)
    data = datasets.Dataset(obs, rng.integers(0, 2, 32), np.ones(32, np.float32), last & False, last, obs)
    return datasets.windows(data, Discrete(2), length)


def compared() -> Any:
    """Preferences for Pendulum: pairs of segments of two steps, of random numbers."""
    rng, ends = np.random.default_rng(0), np.arange(20) % 4 == 3
    obs, action = rng.normal(size=(20, 3)).astype(np.float32), rng.uniform(-2, 2, (20, 1)).astype(np.float32)
    data = datasets.Dataset(obs, action, np.zeros(20, np.float32), ends & False, ends, obs)
    first = preferences.uniform_queries(rng, data, 16, 2)
    label = rng.integers(0, 2, 16).astype(np.float32)
    return preferences.stored(preferences.Preferences(data, first, label, 2), Box(-2.0, 2.0, (1,)))


BESIDE = dict(num_envs=2, num_steps=2, num_updates=2, batch_size=8, buffer_size=8, hidden=(8,))
LEFT = actors.of_function(lambda obs: jnp.int32(0))
PAIRS = dict(num_envs=2, num_updates=2, batch_size=8, hidden=(8,))
STORED = dict(num_envs=2, num_updates=2, batch_size=4, max_steps=8)
CONTRACT = {
    "heron": Case(
        "Pendulum-v1",
        {},
        4,
        dict(num_envs=2, num_steps=2, num_updates=2, batch_size=8, buffer_size=8, hidden=(8,), num_compared=4)
        | dict(factors=("obs[0]", "-|action[0]|")),
        dict(learning_rate=1e-2, learning_starts=2),
    ),
    "dagger": Case("CartPole-v1", {}, 6, BESIDE, dict(learning_rate=1e-2, learning_starts=2), make=dict(expert=LEFT)),
    "hg_dagger": Case(
        "CartPole-v1", {}, 6, BESIDE, dict(learning_rate=1e-2, learning_starts=2), make=dict(expert=LEFT)
    ),
    "rlif": Case(
        "CartPole-v1",
        {},
        6,
        dict(BESIDE, num_critics=2, horizon=2),
        dict(learning_rate=1e-2, learning_starts=2),
        make=dict(expert=LEFT),
    ),
    "cpl": Case(
        "Pendulum-v1",
        {},
        4,
        PAIRS,
        dict(learning_rate=1e-2, cloning_steps=3, warmup_steps=2),
        make=dict(replay=compared()),
    ),
    "oppo": Case(
        "Pendulum-v1",
        {},
        3,
        dict(PAIRS, width=8, layers=1, context_size=3),
        dict(learning_rate=1e-2),
        make=dict(replay=compared()),
    ),
    "p_iql": Case("Pendulum-v1", {}, 4, PAIRS, dict(learning_rate=1e-2, reward_steps=3), make=dict(replay=compared())),
    "decision_transformer": Case(
        "CartPole-v1", {}, 3, dict(STORED, context=3, width=8, layers=1, heads=2), make=dict(replay=noise(3))
    ),
    "rvs": Case("CartPole-v1", {}, 3, dict(STORED, hidden=(8,)), make=dict(replay=noise(1))),
    "dpt": Case(
        "BernoulliBandit-v0",
        ARMS,
        4,
        dict(num_envs=4, num_steps=8, width=8, hidden=8, layers=2, heads=2, label="behaviour"),
        dict(learning_rate=0.03),
    ),
    "disco": Case(
        "CartPole-v1",
        {},
        3,
        dict(num_envs=2, num_steps=4, batch_size=2, buffer_size=8, hidden=(8, 8), model_size=4, model_hidden=(4,))
        | dict(num_bins=11, max_value=3.0, predictions=6, features=6, memory=4),
        dict(rule=DISCO_RULE),
    ),
    "dyna_q": Case("Chain-v0", {}, 40, dict(planning_steps=2), params=SHORT),
    "epsilon_greedy": Case("BernoulliBandit-v0", ARMS, 20),
    "exp3": Case("BernoulliBandit-v0", ARMS, 20),
    "gorp": Case("Chain-v0", {}, 4, dict(horizon=4, depth=2, episodes=2), params=SHORT),
    "h2o": Case(
        "Pendulum-v1",
        {},
        6,
        dict(num_envs=2, num_updates=2, batch_size=8, buffer_size=64, hidden=(16,)),
        dict(learning_starts=2, learning_rate=1e-2),
        make=dict(real=PENDULUM),
    ),
    "lin_ts": Case("ContextualLinearBandit-v0", dict(arms=3, dim=2), 20),
    "lin_ucb": Case("LinearBandit-v0", dict(arms=3, dim=2), 20),
    "nonstationary_ucb": Case("BernoulliBandit-v0", ARMS, 20),
    "psrl": Case("Chain-v0", {}, 10, dict(horizon=4), params=SHORT),
    "q_learning": Case("RiverSwim-v0", {}, 12, dict(double=True)),
    "r_max": Case("Chain-v0", {}, 7, hyper=dict(known_count=1.0, max_reward=10.0), params=SHORT),
    "recoil": Case(
        "Pendulum-v1",
        {},
        6,
        dict(num_envs=2, num_updates=2, batch_size=8, hidden=(16,)),
        dict(learning_starts=2, learning_rate=1e-2),
        make=dict(replay=recoil.demonstrated(PENDULUM, uniform(64))),
    ),
    "sarsa": Case("Chain-v0", {}, 21),
    "sqirl": Case(
        "Chain-v0", {}, 4, dict(num_envs=4, horizon=4, depth=2, num_gradient_steps=3, hidden=(8,)), params=SHORT
    ),
    "stream_td": Case("CartPole-v1", {}, 4, dict(num_steps=16, hidden=(16,))),
    "successive_elimination": Case("BernoulliBandit-v0", ARMS, 200, hyper=dict(delta=0.5, scale=0.1)),
    "thompson": Case("BernoulliBandit-v0", ARMS, 20),
    "ucb": Case("BernoulliBandit-v0", ARMS, 20, dict(bound="kl")),
    "ucb_vi": Case("Chain-v0", {}, 7, dict(horizon=4), dict(bonus_scale=1e-4, reward_scale=10.0), SHORT),
    "uni_o4": Case(
        "Pendulum-v1",
        {},
        4,
        dict(num_envs=2, num_updates=2, batch_size=8, num_policies=2, horizon=2, num_rollouts=4, hidden=(8,)),
        dict(learning_rate=1e-2, cloning_steps=4),
        make=dict(replay=PENDULUM, model=still),
    ),
    "whittle": Case("RestlessBandit-v0", dict(num_arms=3, num_states=3, budget=1), 3, dict(budget=1), learns=False),
}


@cache
def cased(name):
    case, module = CONTRACT[name], get_algo(name)
    env, params = make(case.env, **case.settings)
    params = params.replace(**{k: jnp.asarray(v, jnp.int32) for k, v in case.params.items()})
    return module.make(env, module.Config(**case.config), **case.make), module.Hyper(**case.hyper), params


def test_every_algorithm_is_here():
    assert sorted([*SETUPS, *CONTRACT]) == list_algos()


QUICK = {("ppo", "TimeLimit-discrete"), ("dqn", "Masked-discrete")}  # a second each: that probes are learned at all
CASES = [(name, probe) for name, setup in SETUPS.items() for probe in PROBES if setup.probes(probe)]


@pytest.mark.parametrize(
    "name, probe",
    [pytest.param(n, p, id=f"{n}-{p.id}", marks=() if (n, p.id) in QUICK else pytest.mark.slow) for n, p in CASES],
)
def test_learns_the_probe(name, probe):
    algo, hyper = made(name, probe)
    setup = SETUPS[name]
    state, _ = jax.jit(lambda key: train(algo, key, setup.steps, hyper))(jax.random.key(0))
    known = probe.known(GAMMA)
    if known.action is not None:
        batch = (len(jax.tree.leaves(known.obs)[0]),)
        best, _ = algo.act(algo.policy(state), jax.random.key(1), known.obs, algo.initial_carry(batch), greedy=True)
        np.testing.assert_allclose(best, known.action, atol=known.tolerance)
    else:
        value = setup.value(algo, state, known.obs)
        expected = HUBER_TERMINATION if setup.huber and isinstance(probe, Termination) else known.value
        np.testing.assert_allclose(value, expected, rtol=setup.tolerance, atol=setup.tolerance)


def keeps_the_contract(name, whole):
    if name in SETUPS:
        setup = SETUPS[name]
        with jax.enable_x64(True) if whole and setup.double else contextlib.nullcontext():
            algo, hyper = made(name, setup.task)
            return check_algorithm(algo, hyper=hyper, num_updates=setup.num_updates, whole=whole)
    algo, hyper, params = cased(name)
    case = CONTRACT[name]
    settings = dict(num_updates=case.num_updates, learns=case.learns, whole=whole)
    return check_algorithm(algo, hyper=hyper, env_params=params, **settings)


# They share the shell and differ in their gradient steps, which probes and hand-computed losses look at.
LATER = {name for name in list_algos() if registry.algo_learns(name).data} - {"iql", "dqn", "sac", "td3", "ddpg"}
LATER |= {
    "rainbow",
    "ppo_gbrl",
    "props",
    "rnd",
    "spo",
    "reinflow",
    "gorl",
    "mbpo",
    "sarsa",
    "stream_td",
    "ucb_vi",
    "lin_ts",
    "nonstationary_ucb",
}  # so do these


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LATER else n for n in list_algos()])
def test_keeps_the_contract(name):
    keeps_the_contract(name, whole=False)


# CrossQ's batch normalisation makes more of the rounding of light compilation than the comparison of seeds allows.
LIGHT = [n if n == "crossq" else pytest.param(n, marks=pytest.mark.light) for n in list_algos()]


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_keeps_the_whole_contract(name):
    keeps_the_contract(name, whole=True)


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize("name", CONTRACT)
def test_no_key_is_used_twice_on_its_own_task(name):
    algo, hyper, params = cased(name)
    # Each call its own key: the checker remembers across tests which one was consumed.
    key = jax.random.key(sorted(CONTRACT).index(name) + 100)
    loss = assert_no_key_reuse(lambda key: train(algo, key, 3 * algo.steps_per_update, hyper, params)[1]["loss"], key)
    assert np.isfinite(loss[-1])


@pytest.mark.slow(but_first=2)
@pytest.mark.light
@pytest.mark.parametrize("name", SETUPS)
def test_no_key_is_used_twice(name):
    """Two updates, so that a key left over from the first would be found in the second."""
    algo, hyper = made(name, SETUPS[name].task)
    if hasattr(hyper, "learning_starts"):
        hyper = hyper.replace(learning_starts=0)
    state = algo.init(jax.random.key(0), hyper)

    def twice(key):
        fresh = state.replace(key=key)
        return algo.update(algo.update(fresh)[0])[1]["loss"]

    assert np.isfinite(assert_no_key_reuse(twice, jax.random.key(1)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "probe", [ObservationActionReward("box"), ObservationActionReward("multi_discrete")], ids=lambda p: p.id
)
def test_ppo_keeps_the_contract_with_other_spaces(probe):
    algo, hyper = made("ppo", probe)
    check_algorithm(algo, hyper=hyper, num_updates=2)


# ---- every general algorithm on every kind of environment it says it can handle


ACTIONS = {"Discrete": Discrete(3), "MultiDiscrete": MultiDiscrete((3, 2)), "Box": Box(-2.0, 2.0, (2,))}


@pytree
class KindParams:
    max_steps: jax.Array = 3


@pytree
class KindState:
    time: jax.Array
    x: jax.Array


@dataclasses.dataclass(frozen=True)
class Kind(Environment):
    """A random walk that the first action pushes; terminates beyond 2, so that both kinds of end occur."""

    id: str = "Kind"
    action: str = "Discrete"
    obs: str = "vector"

    @property
    def default_params(self):
        return KindParams(jnp.int32(3))

    def telemetry(self, state, params):
        return {"x": Quantity(state.x, None, -3.0, 3.0)}

    def observation_space(self, params):
        vector = Box(-jnp.inf, jnp.inf, (2,))
        if self.obs == "vector":
            return vector
        if self.obs == "image":
            return Box(0, 255, (4, 5, 2), jnp.uint8)
        spaces = {"vector": vector, "mission": Discrete(4), "privileged": Box(-jnp.inf, jnp.inf, (1,))}
        if self.action != "Box":
            spaces["action_mask"] = Box(False, True, (3 if self.action == "Discrete" else 5,), jnp.bool_)
        return Dict(spaces)

    def action_space(self, params):
        return ACTIONS[self.action]

    def initial(self, key, params):
        return KindState(jnp.int32(0), jax.random.normal(key))

    def transition(self, key, state, action, params):
        push = jnp.ravel(jnp.asarray(action, jnp.float32))[0]
        x = state.x + push - 1 + 0.1 * jax.random.normal(key)
        return Transition(state.replace(x=x), -jnp.abs(x), jnp.abs(x) > 2, jnp.bool_(False), {})

    def observe(self, key, state, params):
        vector = jnp.stack([state.x, state.time.astype(jnp.float32)])
        if self.obs == "vector":
            return vector
        if self.obs == "image":
            return jnp.broadcast_to(jnp.clip(128 + 20 * state.x, 0, 255).astype(jnp.uint8), (4, 5, 2))
        obs: dict[str, Any] = {"vector": vector, "mission": state.time % 4, "privileged": state.x[None]}
        if self.action != "Box":
            size = 3 if self.action == "Discrete" else 5
            obs["action_mask"] = jnp.arange(size) != 1
        return obs

    def validate(self, params):
        pass


KINDS = [(name, action) for name in list_algos() for action in registry.algo_actions(name)]


@cache
def made_for(name, action, obs):
    module = get_algo(name)
    setup = SETUPS[name]
    return module.make(Kind(action=action, obs=obs), module.Config(**setup.config)), module.Hyper(**setup.hyper)


@pytest.mark.parametrize("name, action", KINDS)
def test_traces_on_every_kind_of_action(name, action):
    """Nothing is compiled: an update and a deployed action, of observations that are a dict with a vector in it."""
    algo, hyper = made_for(name, action, "dict")
    state = jax.eval_shape(lambda key: algo.init(key, hyper), jax.random.key(0))
    new, metrics = jax.eval_shape(algo.update, state)
    assert_same_type(state, new, "state before and after update")
    assert metrics["loss"].shape == ()
    space = algo.venv.env.action_space(None)

    def deployed(state):
        seen = {k: v[0] for k, v in state.obs.items() if k != "privileged"}
        return algo.act(algo.policy(state), jax.random.key(1), seen, algo.initial_carry(()))[0]

    act = jax.eval_shape(deployed, new)
    assert act.shape == space.shape and act.dtype == space.dtype


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("obs", ["dict", "image", "vector"])
@pytest.mark.parametrize("name, action", KINDS)
def test_two_updates_on_every_kind_of_environment(name, action, obs):
    algo, hyper = made_for(name, action, obs)
    if hasattr(hyper, "learning_starts"):
        hyper = hyper.replace(learning_starts=0)
    traces = []

    @jax.jit
    def update(state):
        traces.append(1)
        return algo.update(state)

    state = jax.jit(algo.init)(jax.random.key(0), hyper)
    for _ in range(2):
        state, metrics = update(state)
    assert len(traces) == 1, "compiled once"
    assert np.isfinite(metrics["loss"])
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(state.weights))
    assert int(state.step) == 2 * algo.steps_per_update
    seen = jax.tree.map(lambda x: x[0], state.obs)
    deployed = {k: v for k, v in seen.items() if k != "privileged"} if isinstance(seen, dict) else seen
    act, _ = algo.act(algo.policy(state), jax.random.key(1), deployed, algo.initial_carry(()))
    assert bool(algo.venv.env.action_space(None).contains(act))
    if obs == "dict" and action == "Discrete":
        assert int(act) != 1, "masked"


@pytest.mark.parametrize("name", [n for n in list_algos() if registry.algo_actions(n)])
def test_what_it_cannot_handle_it_says(name):
    module = get_algo(name)
    for action in set(ACTIONS) - set(registry.algo_actions(name)):
        with pytest.raises(ValueError, match=rf"{name} acts in .* not in Kind's .*These act there: .*"):
            module.make(Kind(action=action), module.Config(**SETUPS[name].config))


def test_every_general_algorithm_has_a_small_setup():
    assert {n for n in list_algos() if registry.algo_actions(n)} <= set(SETUPS)


# ---- what the contract finds, shown on the smallest algorithm that keeps it


@pytree
class ToyHyper:
    learning_rate: jax.Array = 0.1


@pytree
class ToyState:
    key: jax.Array
    hyper: ToyHyper
    env_params: Any
    env_state: Any
    obs: Any
    step: jax.Array
    weights: Any


class ToyRollout(NamedTuple):
    reward: jax.Array  # (4,)
    ends: Ends  # (1, 4)


@dataclasses.dataclass(frozen=True)
class Toy:
    """Random steps in four environments; the weight follows their mean reward and says how likely action 1 is."""

    venv: VectorEnv

    def init(self, key, hyper=None, env_params=None):
        hyper, env_params = starting_values(ToyHyper, self.venv, hyper, env_params)
        key, reset_key = jax.random.split(key)
        obs, env_state = self.venv.reset(reset_key, env_params)
        return ToyState(key, hyper, env_params, env_state, obs, jnp.int32(0), {"w": jnp.zeros(())})

    def collect(self, state):
        key, act_key, env_key = jax.random.split(state.key, 3)
        action, _ = self.act(state.weights, act_key, state.obs)
        ts = self.venv.step(env_key, state.env_state, action, state.env_params)
        rollout = ToyRollout(ts.reward, jax.tree.map(lambda x: x[None], ends_of(ts)))
        return state.replace(key=key, obs=ts.obs, env_state=ts.state, step=state.step + 4), rollout

    def learn(self, state, rollout):
        error = jnp.mean(rollout.reward) - state.weights["w"]
        weights = {"w": state.weights["w"] + state.hyper.learning_rate * error}
        return state.replace(weights=weights), {**rollout.ends.metrics(), "loss": error**2}

    def restart(self, state, key, env_params, mask):
        return restarted(self.venv, state, key, env_params, mask)

    def act(self, policy, key, obs, carry=(), greedy=False):
        shape = obs.shape[:-1]
        greedy_action = jnp.broadcast_to(policy["w"] > 0, shape).astype(jnp.int32)
        return greedy_action if greedy else jax.random.randint(key, shape, 0, 2), carry


def toy(**changes):
    t = Toy(vectorize(ConstantReward(), 4))
    whole = Algorithm(
        "toy",
        None,
        ToyHyper,
        t.venv,
        4,
        t.init,
        t.collect,
        t.learn,
        lambda s: s.weights,
        lambda s=(): (),
        t.act,
        t.restart,
    )
    return whole._replace(**{name: wrap(getattr(whole, name)) for name, wrap in changes.items()})


def test_toy():
    check_algorithm(toy())


def after(f):
    """A fault: `f(old state, new state, metrics)` stands in the place of an update's (or learn's) results."""
    return lambda fn: lambda state, *args: f(state, *fn(state, *args))


FAULTS = {
    "learns nothing": (
        {"learn": after(lambda old, new, m: (new.replace(weights=old.weights), m))},
        "'w'.* do not change",
    ),
    "NaN": (
        {"learn": after(lambda old, new, m: (new.replace(weights={"w": jnp.full((), jnp.nan, jnp.float32)}), m))},
        "not finite",
    ),
    "reuses its key": (
        {"collect": after(lambda old, new, rollout: (new.replace(key=old.key), rollout))},
        "the key it was given",
    ),
    "learns while it collects": (
        {"collect": after(lambda old, new, rollout: (new.replace(weights={"w": new.weights["w"] + 1}), rollout))},
        "weights before and after collect",
    ),
    "counts while it learns": (
        {
            "learn": after(lambda old, new, m: (new.replace(step=new.step + 4), m)),
            "collect": after(lambda old, new, rollout: (new.replace(step=old.step), rollout)),
        },
        "collect counts the steps",
    ),
    "says not where episodes ended": ({"collect": after(lambda old, new, rollout: (new, rollout.reward))}, "no 'ends'"),
    "lacks a metric": ({"learn": after(lambda old, new, m: (new, {"loss": m["loss"]}))}, "no 'episode_return'"),
    "vector metric": ({"learn": after(lambda old, new, m: (new, m | {"q": jnp.zeros(2)}))}, "metrics are scalars"),
    "weak type": (
        {"learn": after(lambda old, new, m: (new.replace(weights={"w": 0.5 * jnp.asarray(1.0)}), m))},
        "weak",
    ),
    "restless": (
        {"act": lambda act: lambda p, k, o, c=(), greedy=False: act(p, k, o, c)},
        "greedy actions with two keys",
    ),
    "miscounts": ({"steps_per_update": lambda n: n + 1}, "4 steps in an update, not 5"),
    "one shape": ({"act": lambda act: lambda p, k, o, c=(), greedy=False: (jnp.zeros(4, int), c)}, "leaves Discrete"),
    "host value": ({"learn": after(lambda old, new, m: (new, m | {"q": 1.0}))}, "python scalars"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_contract_finds(fault):
    changes, message = FAULTS[fault]
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        check_algorithm(toy(**changes))


def test_the_contract_finds_a_state_without_its_public_fields():
    @pytree
    class Hidden:
        key: jax.Array

    with pytest.raises(AssertionError, match="no field.*'hyper'.*'weights'"):
        check_algorithm(toy()._replace(init=lambda key, hyper=None, env_params=None: Hidden(key)))
