"""What environments say of their numbers fits their numbers."""

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl import registry
from jaxrl.spaces import Box
from jaxrl.telemetry import Episode, Quantity, named, panels, split
from jaxrl.wrappers import FlattenObservation, FrameStack, RescaleAction, StickyActions

CONTINUOUS = [id for id in jaxrl.list_envs() if id.startswith("Quadcopter")]
CONTINUOUS += ["CartPole-v1", "CartPoleContinuous-v0", "CartPoleSwingUp-v0", "Pendulum-v1", "Acrobot-v1", "Reacher-v0"]
CONTINUOUS += ["DoublePendulum-v0", "PointMass-v0", "MountainCar-v0", "MountainCarContinuous-v0", "Fishery-v0"]
CONTINUOUS += [f"{name}-v5" for name in ("HalfCheetah", "Hopper", "InvertedPendulum", "Reacher", "Walker2d")]
CONTINUOUS += ["Ant-v5", "DMCartpoleSwingup-v0", "InvertedDoublePendulum-v5", "PointMazeMedium-v0", "StumpWalker-v0"]
CONTINUOUS += ["Curling-v0", "HardMaze-v0", "JaxNav-v0", "RedundantArm-v0", "SparseHalfCheetah-v0"]
CONTINUOUS += ["Cont-CC-EESM-v0", "Finite-TC-DFIM-v0", "Cont-PC-PermExDc-v0", "Finite-SC-ShuntDc-v0"]


@pytest.mark.parametrize("id", CONTINUOUS)
def test_each_number_has_a_name(id):
    env, params = jaxrl.make(id)
    obs, state = jax.eval_shape(env.reset, jax.random.key(0), params)
    # Beside "obs" a dictionary has what is privileged; without it, its entries in the order of their names.
    parts = [obs] if not isinstance(obs, dict) else [obs["obs"]] if "obs" in obs else list(obs.values())
    names, space = env.observation_names, env.action_space(params)
    assert len(names) == sum(x.shape[-1] for x in parts) and len(set(names)) == len(names)
    assert len(env.action_names) == (space.shape[0] if space.shape else 1)
    agents = (env.num_agents,) if env.num_agents > 1 else getattr(env, "agents", ())
    for name, quantity in jax.eval_shape(env.telemetry, state, params).items():
        assert split(name)[0] and quantity.value.shape == agents
        assert quantity.reference is None or quantity.reference.shape == agents, name


def test_every_id_of_continuous_actions_names_them_and_what_is_seen():
    for id in set(jaxrl.list_envs("Cont-*")) - set(CONTINUOUS):  # those that have not been looked at
        env, params = jaxrl.make(id)
        obs, names = jax.eval_shape(env.reset, jax.random.key(0), params)[0], env.observation_names
        assert len(names) == obs.shape[0] == len(set(names)), id
        assert (len(env.action_names),) == env.action_space(params).shape, id
        measures = env.measures(params)
        assert set(measures["obs"]) == set(names) and set(measures["action"]) == set(env.action_names), id


def test_scaled_numbers_say_what_one_is():
    env, params = jaxrl.make("Cont-CC-EESM-v0")
    said = env.measures(params)
    assert said["obs"]["i_sd*"] == "1 is 150 A" and said["obs"]["epsilon"] == "1 is 3.14159 rad"
    assert said["action"]["u_a"] == "1 is 150 V at the nominal supply"  # a bridge makes half of the 300 V
    assert said["action"]["u_e"] == "1 is 300 V at the nominal supply"
    env, params = jaxrl.make("Quadcopter-Hover-v0", history=1)
    assert env.measures(params)["obs"] == {f"1 ago: rotor {i}": "-1 is 0, 1 is 21702 rpm" for i in range(1, 5)}
    env, params = jaxrl.make("Quadcopter-Hover-v0", action="body_rates")
    assert env.measures(params)["action"]["yaw rate"] == "1 is 6 rad/s"
    assert StickyActions(env).measures(StickyActions(env).default_params) == env.measures(params)


@pytest.mark.slow
def test_no_continuous_id_is_forgotten():
    for id in set(registry.first_of_each_class().values()) - set(CONTINUOUS):
        env, params = jaxrl.make(id)
        adapted = ("Brax-", "Playground-")  # they do not say what their numbers are
        assert id.startswith(("Cont-", *adapted)) or not isinstance(env.action_space(params), Box), id


def test_names_of_settings_fit_too():
    for id, settings in (
        ("Quadcopter-Hover-v0", {"privileged": True, "action": "velocity"}),
        ("Quadcopter-GpdHover-v0", {"action": "one_d_pid", "history": 3}),
        ("Quadcopter-MultiHover-v0", {"joint": False}),
        ("Quadcopter-Flock-v0", {"neighbors": 1, "num_agents": 3}),
        ("DoublePendulum-v0", {"actuation": "both"}),
        ("Fishery-v0", {"num_fisheries": 2}),
    ):
        env, params = jaxrl.make(id, **settings)
        obs, _ = jax.eval_shape(env.reset, jax.random.key(0), params)
        obs = obs["obs"] if isinstance(obs, dict) else obs
        assert len(env.observation_names) == obs.shape[-1], id
        assert len(env.action_names) == env.action_space(params).shape[0], id


def test_wrappers_keep_names_of_what_they_do_not_change():
    env, params = jaxrl.make("Pendulum-v1")
    for wrapper in (RescaleAction, StickyActions):
        assert wrapper(env).observation_names == env.observation_names, wrapper
    assert RescaleAction(env).action_names == ()  # it has other units
    assert FrameStack(env, 2).observation_names == () and FlattenObservation(env).observation_names == ()
    sticky = StickyActions(env)
    _, state = jax.eval_shape(sticky.reset, jax.random.key(0), sticky.default_params)
    assert list(jax.eval_shape(sticky.telemetry, state, sticky.default_params)) == ["theta [rad]", "theta_dot [rad/s]"]


def test_units_are_at_the_end_of_names():
    assert split("x [m]") == ("x", "m") and split("cos(theta)") == ("cos(theta)", "")
    assert split("x[0]") == ("x[0]", "")
    assert named(["x [m]", "y"], "drone 1: ") == ["drone 1: x [m]", "drone 1: y"]
    assert panels(["x [m]", "v [m/s]", "y [m]"]) == {"m": ["x [m]", "y [m]"], "m/s": ["v [m/s]"]}


def test_errors_and_clock_by_hand():
    signals = {
        "x [m]": Quantity(np.array([9.0, 1.0, 3.0]), np.array([0.0, 0.0, 0.0]), -4.0, 4.0),
        "y": Quantity([1, 2, 3]),
    }
    episode = Episode("task", 0.001, signals, {}, {"reward": np.zeros(2)})
    assert episode.errors() == {"x [m]": {"mean": 2.0, "rms": pytest.approx(5**0.5), "largest": 3.0, "share": 0.5}}
    time, unit = episode.clock()
    np.testing.assert_allclose(time, [0, 1, 2])
    assert unit == "ms"
    assert Episode("task", None, signals, {}, {"reward": np.zeros(2)}).clock()[1] == "steps"
