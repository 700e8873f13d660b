"""What an environment or an algorithm must do to fit here, as functions that raise AssertionError.

`check_environment` and `check_algorithm` are the contracts; `PROBES` are environments so small that every value is
known (after Jones 2021, "Debugging RL, without the agonizing pain"); `golden` loads stored reference data;
`assert_no_key_reuse` finds a random key that is used twice; `check_model` plays a task on a MuJoCo model beside MuJoCo
in C.
"""

from jaxrl.testing.algorithms import check_algorithm
from jaxrl.testing.assertions import assert_no_key_reuse
from jaxrl.testing.environments import check_environment
from jaxrl.testing.golden import golden
from jaxrl.testing.models import Element, ModelReport, check_model
from jaxrl.testing.probes import (
    PROBES,
    ActionReward,
    ConstantReward,
    DelayedReward,
    Known,
    Masked,
    ObservationActionReward,
    ObservationReward,
    Privileged,
    Probe,
    Termination,
    TimeLimit,
)

__all__ = [
    "PROBES",
    "ActionReward",
    "ConstantReward",
    "DelayedReward",
    "Element",
    "Known",
    "Masked",
    "ModelReport",
    "ObservationActionReward",
    "ObservationReward",
    "Privileged",
    "Probe",
    "Termination",
    "TimeLimit",
    "assert_no_key_reuse",
    "check_algorithm",
    "check_environment",
    "check_model",
    "golden",
]
