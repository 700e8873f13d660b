"""What `validate` warns of: supply, ratings and load of another machine; and what it is silent about."""

import warnings

import jax
import jax.numpy as jnp
import pytest

from jaxrl.envs.motor import defaults, loads, supplies, tasks
from jaxrl.envs.motor.drive import MotorDrive
from jaxrl.envs.motor.machines.machine import Ratings, rpm
from jaxrl.envs.motor.machines.perm_ex_dc import PermExDc
from jaxrl.envs.motor.machines.pmsm import PMSM, flux_maps
from jaxrl.envs.motor.machines.scim import SCIM
from jaxrl.envs.motor.simulate import simulate


def drive(id: str, **settings) -> MotorDrive:
    return MotorDrive(**tasks.find(id), id=id, **settings)


def told(id: str, **changes) -> list[str]:
    """What `validate` warns of, of the id's default parameters with these changes."""
    env = drive(id)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.validate(env.default_params.replace(**changes))
    return [str(warning.message) for warning in caught]


KINDS = [{"supply": kind} for kind in ("rc", "ac1", "battery")] + [
    {"load": kind} for kind in ("polynomial", "two_mass", "servo", "external_speed", "ornstein_uhlenbeck")
]


def test_the_defaults_of_every_id_are_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for id in (*tasks.IDS, *tasks.MORE_IDS):
            env = drive(id)
            env.validate(defaults.complete(env, defaults.components(env)))


@pytest.mark.parametrize("settings", KINDS)
def test_every_kind_of_supply_and_load_is_silent_with_its_defaults(settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for motor in tasks.MOTORS:
            env = drive(f"Cont-TC-{motor}-v0", **settings)
            env.validate(defaults.complete(env, defaults.components(env)))


SMALL = PMSM(p=4.0, l_d=3.0e-3, l_q=3.4e-3, r_s=0.9, psi_p=0.057, j_rotor=2e-4)
RATED = {
    "machine": SMALL,
    "limits": Ratings(rpm(4500), 6.8, 20.0, 160.0),
    "nominal": Ratings(rpm(3000), 2.4, 7.0, 160.0),
    "supply": supplies.Ideal(320.0),
    "load": loads.Polynomial(b=0.005),
}
"""A servo motor of 2.4 N m, 7 A (20 A for seconds) and 3,000 rpm on a link of 320 V."""


def test_a_motor_with_everything_of_its_own_is_silent():
    assert told("Cont-SC-PMSM-v0", **RATED) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"supply": supplies.Ideal(600.0)}, "600.0 V give u_a up to 300.0 V; its limit is 160.0 V"),
        ({"limits": Ratings(rpm(4500), 6.8, 400.0, 160.0)}, "limits.i=400.0 is 57.14 times nominal.i=7.0"),
        ({"limits": Ratings(rpm(4500), 160.0, 20.0, 160.0)}, "limits.torque=160.0 is 66.67 times"),
        (
            {"limits": Ratings(rpm(4500), 160.0, 20.0, 160.0), "nominal": Ratings(rpm(3000), 160.0, 7.0, 160.0)},
            "nominal.i=7.0 A make 2.397 N m of this machine; nominal.torque is 160.0 N m",
        ),
        ({"load": loads.Polynomial(a=3.0)}, "the load takes 3.0 N m at 3000.0 rpm, where nominal.i=7.0 A"),
        ({"load": loads.ConstantSpeed(rpm(6000))}, "the load turns at 6000.0 rpm; limits.omega is 4500.0 rpm"),
        (
            {"load": loads.ConstantSpeed(rpm(4400)), "machine": SMALL.replace(psi_p=0.25)},
            "the load turns at 4400.0 rpm, where 320.0 V and nominal.i=7.0 A cannot hold",
        ),
    ],
)
def test_one_part_of_another_drive_is_named_with_its_numbers(changes, words):
    found = told("Cont-SC-PMSM-v0", **RATED | changes)
    assert any(words in sentence for sentence in found), found
    assert all(sentence.startswith("Cont-SC-PMSM-v0: ") and sentence.count(". ") == 0 for sentence in found)


@pytest.mark.parametrize(
    ("id", "machine"),
    [
        ("Cont-CC-PMSM-v0", SMALL),
        ("Finite-TC-PMSM-v0", PMSM(4.0, 3e-4, 3e-4, 0.2, 0.012, 1e-5)),
        ("Cont-CC-PermExDc-v0", PermExDc(r_a=0.5, l_a=1e-3, psi_e=0.05, j_rotor=1e-4)),
        ("Cont-SC-SCIM-v0", SCIM(l_m=2.0, r_s=60.0, r_r=45.0, l_sigs=0.1, l_sigr=0.1)),
    ],
)
def test_a_machine_that_is_replaced_alone_keeps_ratings_that_are_not_its_own(id, machine):
    assert any("limits and nominal values of this machine" in sentence for sentence in told(id, machine=machine))


def test_a_24_volt_motor_at_the_supply_of_the_id():
    """gym-electric-motor#225."""
    small = {"limits": Ratings(rpm(4000), 1.0, 12.0, 24.0), "nominal": Ratings(rpm(3000), 0.5, 6.0, 24.0)}
    small["machine"] = PMSM(4.0, 3e-4, 3e-4, 0.2, 0.012, 1e-5)
    (sentence,) = told("Cont-CC-PMSM-v0", **small)
    assert "300.0 V give u_a up to 150.0 V; its limit is 24.0 V" in sentence
    assert told("Cont-CC-PMSM-v0", **small, supply=supplies.Ideal(48.0)) == []


@pytest.mark.parametrize("motor", tasks.MOTORS)
def test_a_load_of_three_times_the_torque_limit_is_too_heavy_for_every_motor(motor):
    torque = drive(f"Cont-SC-{motor}-v0").default_params.limits.torque
    assert any("the load takes" in words for words in told(f"Cont-SC-{motor}-v0", load=loads.Polynomial(a=3 * torque)))


def test_batches_are_judged_too_and_batches_of_maps_are_silent():
    env = drive("Cont-CC-PMSM-v0")
    params = env.default_params
    volts = jnp.array([300.0, 900.0])
    with pytest.warns(UserWarning, match="300.0 to 900.0 V give u_a up to 150.0 to 450.0 V"):
        env.validate(params.replace(supply=supplies.Ideal(volts)))
    maps = params.replace(machine=flux_maps(PMSM(), (-400.0, 400.0), (-400.0, 400.0)))
    many = jax.tree.map(lambda x: jnp.stack([x, x]), maps)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.validate(maps)
        env.validate(many)


def test_an_open_loop_has_no_ratings_to_mind_unless_it_is_given_some():
    idle = [[0.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate("Cont-CC-PermExDc-v0", idle, u_nominal=600.0, r_a=0.5, psi_e=0.01)
    small = Ratings(400.0, 1.0, 10.0, 24.0)
    with pytest.warns(UserWarning, match="its limit is 24.0 V"):
        simulate("Cont-CC-PermExDc-v0", idle, limits=small, nominal=small, psi_e=0.1, r_a=0.5)


def test_parameters_of_other_parts_have_the_references_of_these():
    env = drive("Cont-CC-PMSM-v0")
    params = env.params_of(**RATED | {"load": loads.ConstantSpeed(rpm(1500))})
    assert [float(r.high) for r in params.references] == pytest.approx([7 / 20] * 2)
    assert float(params.limits.i) == 20.0 and params.machine.r_s.dtype == jnp.float32
    assert jax.tree.structure(params) == jax.tree.structure(env.default_params)
    with pytest.raises(ValueError, match="params have no 'suply'. Did you mean 'supply'"):
        env.params_of(suply=supplies.Ideal(1.0))
