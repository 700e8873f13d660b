"""What learns offline, and how it goes on online: one row of the table each."""

from collections.abc import Callable
from typing import Any, NamedTuple

import uni

from jaxrl.algos import awac, cql, edac, famo2o, iql, ppo, rebrac, ro2o, uni_o4
from jaxrl.off_policy import fine_tune

HIDDEN = (32, 32)
SIZES = dict(hidden=HIDDEN, batch_size=64, buffer_size=4_000)
OFFLINE = dict(num_updates=250)  # gradient steps an update, unless an arm says
RATES = dict(learning_rate=2e-3, tau=0.02, gamma=0.98, learning_starts=0)
CRITICS = 4  # of ensembles


class Phase(NamedTuple):
    module: Any
    config: dict
    hyper: dict
    sizes: dict = SIZES
    rates: dict = RATES

    def make(self, env, replay=None, given=(), **config):
        config = self.module.Config(**{**self.sizes, **config, **self.config})
        if self.module is ppo:
            return ppo.make(env, config, network=uni_o4.network_of(env, uni_o4.Config(hidden=HIDDEN)))
        return self.module.make(env, config, replay=replay, **dict(given))

    def settings(self, **hyper):
        return self.module.Hyper(**{**self.rates, **self.hyper, **hyper})


class Arm(NamedTuple):
    offline: Phase | None
    online: Phase
    retained: bool  # the dataset is half of what it learns from online
    warm_up: int = 0  # steps of the frozen policy first
    reptile: bool = False  # MOORL's outer loop
    start: Callable = fine_tune.start
    given: Callable = lambda dataset: {}  # further arguments of `make`, offline


def alike(module, config=(), **hyper):
    """The same learner in both."""
    return Phase(module, dict(config), hyper)


SAC = {"alpha": 0.1, "alpha_learning_rate": 2e-3}
IQL = alike(iql, expectile=0.8, beta=1.0)
AWAC = alike(awac, temperature=1.0)
REBRAC = alike(rebrac, dict(layer_norm=True), actor_penalty=0.01, critic_penalty=0.0)
CQL = alike(cql, dict(num_actions=3), min_q_weight=1.0, **SAC)
CAL_QL = alike(cql, dict(num_actions=3, calibrated=True), min_q_weight=1.0, **SAC)
ENSEMBLE = dict(num_critics=CRITICS, layer_norm=True)
CAL_QL_N = alike(cql, dict(num_actions=3, calibrated=True, **ENSEMBLE), min_q_weight=1.0, **SAC)
SAC_N = dict(diverse=False, num_target_critics=2, num_updates=4, **ENSEMBLE)
WSRL = alike(edac, {**SAC_N, "soft_targets": False}, **SAC)
RLPD = alike(edac, {**SAC_N, "mean_actor": True}, **SAC)
RO2O = alike(ro2o, dict(num_critics=CRITICS, num_samples=4), **SAC)
FAMO2O = alike(famo2o, expectile=0.8, beta_min=0.5, beta_max=3.0)
FAMO2O_ONLINE = alike(famo2o, dict(balanced=True), expectile=0.8, beta_min=0.5, beta_max=3.0)
SAC_K = alike(edac, dict(num_critics=2, diverse=False, num_steps=10, num_updates=10), **SAC)
BATCH = {name: SIZES[name] for name in ("hidden", "batch_size")}  # of what has no replay buffer of its own
STEPS = dict(num_updates=50, horizon=100, num_rollouts=64)
JUDGED = dict(expectile=0.8, cloning_steps=2_000, ppo_learning_rate=5e-4, anneal_steps=1_000)
UNI_O4 = Phase(uni_o4, STEPS, JUDGED, BATCH, {name: x for name, x in RATES.items() if name != "learning_starts"})
ROLLOUTS = dict(num_envs=1, num_steps=100, num_epochs=10, num_minibatches=2)
PPO = Phase(ppo, ROLLOUTS, dict(learning_rate=2e-4, gamma=0.98, ent_coef=0.0), {}, {})

ARMS = {
    "IQL": Arm(IQL, IQL, True),
    "AWAC": Arm(AWAC, AWAC, True),
    "ReBRAC": Arm(REBRAC, REBRAC, True),
    "CQL": Arm(CQL, CQL, True),
    "Cal-QL": Arm(CAL_QL, CAL_QL, True),
    "WSRL": Arm(CAL_QL_N, WSRL, False, 400),
    "WSRL, no warm-up": Arm(CAL_QL_N, WSRL, False),
    "RLPD": Arm(None, RLPD, True),
    "RO2O": Arm(RO2O, RO2O, False, 400),
    "FamO2O": Arm(FAMO2O, FAMO2O_ONLINE, True),
    "Uni-O4": Arm(UNI_O4, PPO, False, start=uni.start, given=uni.given),
    "MOORL": Arm(None, SAC_K, True, reptile=True),
}
