"""What learns offline, and how it goes on online: one row of the table each."""

from typing import Any, NamedTuple

from jaxrl.algos.offline import awac, cql, edac, famo2o, iql, rebrac, ro2o

SIZES = dict(hidden=(32, 32), batch_size=64, buffer_size=4_000)
OFFLINE = dict(num_updates=250)  # gradient steps an update
RATES = dict(learning_rate=2e-3, tau=0.02, gamma=0.98, learning_starts=0)
CRITICS = 4  # of ensembles


class Phase(NamedTuple):
    module: Any
    config: dict
    hyper: dict

    def make(self, env, memory=None, **config):
        return self.module.make(env, self.module.Config(**{**SIZES, **self.config, **config}), memory)

    def settings(self, **hyper):
        return self.module.Hyper(**{**RATES, **self.hyper, **hyper})


class Arm(NamedTuple):
    offline: Phase | None
    online: Phase
    retained: bool  # the dataset is half of what it learns from online
    warm_up: int = 0  # steps of the frozen policy first
    reptile: bool = False  # MOORL's outer loop


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
    "MOORL": Arm(None, SAC_K, True, reptile=True),
}
