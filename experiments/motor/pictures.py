"""Pictures of docs/envs/motor.md, and a report.

    python experiments/motor/pictures.py

Classical controllers in closed loop; writes docs/media/motor_{current,switching,plane}.png and runs/motor/speed.html.
"""

from pathlib import Path

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.envs.motor import references, tasks
from jaxrl.envs.motor.control import controllers
from jaxrl.envs.motor.pictures.plots import plot_switching, plot_time, plot_torque_speed
from jaxrl.envs.motor.pictures.report import episode, record
from jaxrl.host.report import write_episode

ROOT = Path(__file__).parents[2]


def save(figure, name):
    figure.savefig(ROOT / "docs" / "media" / f"motor_{name}.png", dpi=110)


def closed_loop(id, steps, seed=0, **changes):
    env, params = jaxrl.make(id)
    params = params.replace(**changes)
    return env, params, *record(env, params, controllers.make(env), jax.random.key(seed), steps)


def current():
    env, params, run, _ = closed_loop("Cont-CC-PMSM-v0", 300)
    names = ("i_sd", "i_sq", "u_sd", "u_sq", "torque")
    limits = {name: env.limit(name, params) for name in names[:4]}
    save(plot_time(run, params.tau, names, limits=limits), "current")


def switching():
    env, params, run, actions = closed_loop("Finite-CC-PMSM-v0", 250)
    save(plot_switching(env, actions, params.tau, run), "switching")


def plane():
    # From rest to 1000 rad/s and back as fast as torque, current and voltage allow, in place of the task's ramps.
    speed = references.Recorded(jnp.repeat(jnp.array([1000, 100]) / tasks.TOP_SPEED, 13), interval=0.05)
    rest = (0.0,) * 4
    changes = {"references": (speed,), "initial_low": rest, "initial_high": rest}
    env, params, run, _ = closed_loop("Cont-FW-PMSM-v0", 11_000, **changes)
    save(plot_torque_speed(env, params, {"from rest to 1000 rad/s and back": run}), "plane")


def report():
    # A speed that this inertia can follow: 300 rad/s either way at 600 rad/s^2, a new one every 0.2 to 0.6 s.
    speed = references.Ramp(low=-0.75, high=0.75, rate=1.5, steps_low=2000, steps_high=6000)
    env, params, run, actions = closed_loop("Cont-SC-PermExDc-v0", 20_000, references=(speed,))
    shown = episode(env, params, run, actions)
    write_episode(ROOT / "runs" / "motor" / "speed.html", shown, title="Speed control of a DC motor")


if __name__ == "__main__":
    current()
    switching()
    plane()
    report()
