"""An electric drive as an environment: supply, converter, machine and load, a reference to follow, limits to keep.

One control step: the action sets the converter, its voltages are held for `tau` seconds while one classical
Runge-Kutta step solves machine and load, and the new state is measured. Default tasks are gym-electric-motor's
(Traue et al. 2022, "Toward a Reinforcement Learning Environment Toolbox for Intelligent Electric Motor Control").

Observation, flat: every measured quantity of `observation_names`, divided by its limit (angles by pi, the supply's
voltage by its nominal one), then the references, which the next step is judged by. An observation of PMSM is

| | |
|---|---|
| omega, torque | mechanical speed, air-gap torque |
| i_a, i_b, i_c, i_sd, i_sq | stator currents, phases and rotor axes |
| u_a, u_b, u_c, u_sd, u_sq | voltages that the last step applied |
| epsilon, u_sup | electrical angle, supply voltage |
| i_sd, i_sq | references |

Action: of the converter, `converters.py`; on turning axes with `dq_actions`. Reward, with every quantity divided by its
limit:

    -sum_i weight_i (|s_i - reference_i| / length_i)^power + bias,    length 2, or 1 for quantities without a sign

and, where a constraint is violated, `violation_reward` (by default the worst of the above for ever, discounted by
`gamma`) instead, and the episode ends. A constraint that is a function may be violated by a degree v in between: it
pays (1 - v) of the first and v of the second. There is no time limit: set `params.max_steps`.

Further tasks, `tasks.py`: FW weakens the field beyond base speed, within the link's hexagon of voltages and a circle of
currents. DTC has references of torque and of the stator flux's length psi_s [V s]; what their generators say are
shares: of the machine's `flux_range`, and of the torque that the nominal current makes at that flux, so that both can
be had together. PC has a servo axis; its position counts whole turns (within end stops) instead of an angle with sine
and cosine: an axis comes back the way it went, and the error has no jump half a turn away.

What gym-electric-motor does in another way than physics would has `upstream=True`: phase currents are reported at the
angle before the step and flux-oriented ones at the flux before it; a B6 bridge reports half the supply's voltage at a
reset; random stator currents of a reset may be over the limit of their length; dead times, RC supplies, external
speeds, the default excited machine and the six-phase one (their files).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, strongly_typed
from jaxrl.math import fence, random_words
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space
from jaxrl.telemetry import Plane, Quantity

from . import checks, converters, loads, motion, supplies, tasks
from .plant import Params, Plant, State
from .references import normal, uniform


@dataclasses.dataclass(frozen=True)
class MotorDrive(Environment):
    """Static settings. What is None is the task's default."""

    Params = Params
    hints = Hints(noiseless=True)

    motor: str = "PMSM"
    task: str = "CC"  # current, torque (TC) or speed control (SC), and FW, DTC, PC
    control: str = "Cont"  # or "Finite": the control set
    upstream: bool = False
    converter: Any = None  # a Converter or a key, "Cont-2QC", "Cont-B6C+Cont-4QC"
    load: str | None = None  # a key of loads.KEYS
    supply: str | None = None  # a key of supplies.KEYS
    referenced: tuple[str, ...] | None = None  # measured quantities that have a reference
    rewarded: tuple[str, ...] | None = None  # whose errors the reward weighs (from 0 where there is no reference)
    reward_power: float = 1.0
    constraints: tasks.Constraints | None = None
    merge: str = "max"  # of several degrees of violation; or "product": 1 - prod(1 - v)
    observed: tuple[str, ...] | None = None  # measured quantities in the observation, in this order
    solver: str = "rk4"
    substeps: int = 1  # solver steps a control step
    hold: str | None = None  # "rotor" or "stator": axes on which a voltage stays still, for machines on rotor axes
    interlocking: bool = False  # half bridges have a dead time, params.interlocking_time
    dq_actions: bool = False
    dead_time: int = 0  # control steps before an action reaches the converter
    flux_observer: bool = False  # psi_abs, psi_angle of induction machines
    stator_flux: bool | None = None  # psi_s, the length of the stator's flux linkage
    cos_sin: bool = False  # cosine and sine of epsilon
    remove_angle: bool = False  # and no epsilon
    current_sum: tuple[str, ...] | None = None  # currents whose sum is measured as i_sum
    current_sum_limit: str = "max"  # of their limits; or "sum"
    noise: tuple[str, ...] = ()  # measured quantities with normal noise; ("all",) for all
    random_init: str = "none"  # or "uniform", "normal", in params.initial_low .. high and the constraints

    def __post_init__(self) -> None:
        tasks.check(self.motor, self.task, self.control)
        if self.hold is None:  # a voltage on rotor axes turns with them, which no inverter does
            object.__setattr__(self, "hold", "stator" if self.task in tasks.MORE_TASKS else "rotor")
        if self.stator_flux is None:
            object.__setattr__(self, "stator_flux", self.task == "DTC")
        checks.check_choices(self)
        row = tasks.MOTORS[self.motor]
        defaults = {
            "converter": tasks.converter(self.motor, self.task, self.control),
            "referenced": tasks.referenced(self.motor, self.task),
            "constraints": tasks.constraints(self.motor, self.task),
            "current_sum": row.current_sum,
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        object.__setattr__(self, "converter", converters.find(self.converter))
        if self.rewarded is None:
            object.__setattr__(self, "rewarded", self.referenced)
        checks.check_settings(self, self.names(self.components()))

    # ---- parameters

    def components(self) -> Params:
        """Default machine, load and supply, of python numbers; no task."""
        machine = tasks.machine(self.motor, self.upstream)
        limits, nominal = tasks.ratings(self.motor, self.task, *machine.ratings())
        load = tasks.load(self.motor, self.task, self.control) if self.load is None else loads.KEYS[self.load]()
        u_nominal = tasks.u_nominal(self.motor, self.task, self.control)
        supply = supplies.KEYS[self.supply or "ideal"](u_nominal)
        if isinstance(supply, supplies.Battery):
            supply = supply.replace(u_empty=0.75 * u_nominal)
        if self.upstream and hasattr(supply, "upstream"):
            supply = supply.replace(upstream=True)
        if self.upstream and hasattr(load, "upstream"):
            load = load.replace(upstream=True)
        tau: Any = tasks.tau(self.motor, self.control)
        forever: Any = NO_LIMIT
        return Params(forever, tau, machine, limits, nominal, load, supply, (), (), (), ())

    def _defaults(self) -> Params:
        """All of it."""
        params = self.components()
        load, machine, nominal = params.load, params.machine, params.nominal
        generators = []
        for name in self.referenced or ():
            own = tasks.targets(self.task, name, params)
            if own is not None:
                generators.append(own)
                continue
            ratio = self.limit(name, params, nominal) / self.limit(name, params)
            one_sided = self.low(name, params) == 0
            low, high = tasks.margin(self.motor, self.task, self.control, name, ratio, one_sided)
            generators.append(tasks.generator(self.motor, self.task, self.control, low, high))
        states = (*load.states, *machine.states)
        start = tasks.initial(self.task, params)
        high = tuple(start.get(name, 0.0) for name in states)
        low = high
        if self.random_init != "none":
            high = tuple(float(self._bound(name, params)) for name in states)
            low = tuple(b * self.low(name, params) for name, b in zip(states, high, strict=True))
        return params.replace(
            references=tuple(generators),
            weights=tasks.weights(self.motor, self.task, self.rewarded or ()),
            initial_low=low,
            initial_high=high,
            interlocking_time=1e-6 if self.interlocking else 0.0,
        )

    def _bound(self, name: str, params: Params) -> Any:
        """The largest value that a random initial state has."""
        if name == "twist":
            return 0.0
        if name == "position":
            return 0.5 * params.load.travel
        if name.startswith("psi"):
            return params.machine.l_m * params.nominal.i
        return self.limit(name, params, params.nominal)

    @property
    def default_params(self) -> Params:
        return strongly_typed(self._defaults())

    def validate(self, params: Params) -> None:
        checks.check_params(self, params)

    # ---- what is measured

    def names(self, params: Params) -> tuple[str, ...]:
        """Of all measured quantities."""
        machine, load, supply = params.machine, params.load, params.supply
        names = [*load.states, "torque", *machine.currents, *machine.voltages]
        if machine.has_angle and not self.remove_angle:
            names.append("epsilon")
        names += ["u_sup"] if supply.phases == 1 else [f"u_sup_{phase}" for phase in "abc"]
        names += ["psi_abs", "psi_angle"] if self.flux_observer else []
        names += ["psi_s"] if self.stator_flux else []
        names += ["cos(epsilon)", "sin(epsilon)"] if self.cos_sin else []
        names += ["i_sum"] if self.current_sum else []
        return tuple(names)

    @property
    def observation_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the observation's entries, for the default kinds of load and supply."""
        return self._observed(self.components()) + tuple(f"{name}*" for name in self.referenced or ())

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of a continuous converter the voltages that it is asked for, of a finite one what it switches."""
        machine, converter = self.components().machine, self.converter
        axes = [name for name in machine.voltages if name.endswith(("d", "q", "x", "y"))]
        if self.dq_actions:
            return tuple(name for name in machine.voltages if name in axes or name == "u_e")[: machine.dq]
        made = tuple(name for name in machine.voltages if name not in axes)
        if not converter.finite:
            return made[: len(converter.low)]
        parts = converter.parts if isinstance(converter, converters.Multi) else (converter,)
        pieces = converters.cut(made, [part.outputs for part in parts])
        return tuple(f"switches of {', '.join(piece)}" for piece in pieces)

    def _observed(self, params: Params) -> tuple[str, ...]:
        return self.names(params) if self.observed is None else self.observed

    def limit(self, name: str, params: Params, ratings: Any = None) -> Any:
        """What a measured quantity is divided by."""
        ratings = params.limits if ratings is None else ratings
        if name.startswith("u_sup"):
            return params.supply.u_nominal
        if name.startswith(("cos", "sin")):
            return 1.0
        if name == "psi_abs":
            return params.machine.l_m * ratings.i
        if name == "psi_s":
            return params.machine.flux_limit(ratings)
        if name == "position":
            return params.load.travel
        if name in ("epsilon", "psi_angle", "twist"):
            return math.pi
        if name in ("i_e", "u_e") and ratings.i_e is not None:
            return getattr(ratings, name)
        if name == "i_sum":
            currents = [self.limit(current, params, ratings) for current in self.current_sum or ()]
            if self.current_sum_limit == "sum":
                return sum(currents)
            return (
                max(currents)
                if all(isinstance(x, float) for x in currents)
                else functools.reduce(jnp.maximum, currents)
            )
        return getattr(ratings, {"i": "i", "u": "u"}.get(name.split("_")[0], name.split("_")[0]))

    def low(self, name: str, params: Params) -> float:
        """The least normalised value of a measured quantity: -1, or 0 where it has no sign."""
        machine, converter = params.machine, self.converter
        if name.startswith("u_sup"):
            return params.supply.low
        if name in ("psi_s", "position"):
            return 0.0 if name == "psi_s" else -1.0
        if machine.has_angle or name == "i_sum":
            return -1.0
        if name in machine.one_sided:
            return 0.0
        parts = converter.parts if isinstance(converter, converters.Multi) else (converter,)
        if name in machine.voltages + machine.currents:
            names = machine.voltages if name in machine.voltages else machine.currents
            part = parts[min(names.index(name), len(parts) - 1)]
            return -1.0 if (part.both_voltages if name in machine.voltages else part.both_currents) else 0.0
        return -1.0 if (converter.both_currents if name == "torque" else converter.both_voltages) else 0.0

    def high(self, name: str, params: Params) -> float:
        """The largest normalised value."""
        return params.supply.high if name.startswith("u_sup") else 1.0

    def signals(self, plant: Plant, params: Params) -> dict[str, Any]:
        """Every measured quantity by name, in SI units."""
        machine = params.machine
        values = dict(zip(params.load.states, plant.load, strict=True))
        values["torque"] = machine.torque(plant.motor)
        values.update(zip(machine.currents, machine.measured_currents(plant.motor, plant.frame), strict=True))
        values.update(zip(machine.voltages, plant.voltage, strict=True))
        if machine.has_angle:
            values["epsilon"] = plant.motor[-1]
        supply = ("u_sup",) if len(plant.u_sup) == 1 else ("u_sup_a", "u_sup_b", "u_sup_c")
        values.update(zip(supply, plant.u_sup, strict=True))
        if self.flux_observer:
            alpha, beta = plant.flux
            values["psi_abs"] = _length(alpha, beta)
            there = values["psi_abs"] > 0
            values["psi_angle"] = jnp.where(there, jnp.arctan2(beta, jnp.where(there, alpha, 1)), 0)
        if self.stator_flux:
            values["psi_s"] = _length(*machine.stator_flux(plant.motor))
        if self.cos_sin:
            frame = params.machine.angle_frame(plant.motor)
            values["sin(epsilon)"], values["cos(epsilon)"] = frame
        if self.current_sum:
            values["i_sum"] = sum(values[name] for name in self.current_sum)
        return values

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        """All measured quantities in SI units but angles, with their references and the limits that end an episode."""
        from .pictures.units import unit

        ending = {name for _, names in self.constraints or () for name in names}
        targets = zip(self.referenced or (), self.targets(state.references, params), strict=True)
        wanted = {name: x * self.limit(name, params) for name, x in targets}
        found = {}
        for name, x in self.signals(state.plant, params).items():
            if unit(name) not in ("rad", "") or name in wanted:
                most = self.limit(name, params) if name in ending else None
                least = None if most is None or self.low(name, params) == 0 else -most
                found[f"{name} [{unit(name)}]"] = Quantity(x, wanted.get(name), least, most)
        return found

    def measures(self, params: Params) -> dict[str, dict[str, str]]:
        """Limits; of voltages that are asked for what the supply's nominal one makes of them."""
        from .pictures.units import unit

        seen = {
            name: f"1 is {float(self.limit(name.rstrip('*'), params)):.6g} {unit(name)}".strip()
            for name in self.observation_names
        }
        if self.converter.finite:
            return {"obs": seen}
        parts = self.converter.parts if isinstance(self.converter, converters.Multi) else (self.converter,)
        shares = [0.5 if part.outputs == 3 else 1.0 for part in parts for _ in range(part.outputs)]
        if self.dq_actions:  # two axes in the place of three phases
            shares = [0.5] * 2 + shares[3:]
        volts = [f"1 is {share * float(params.supply.u_nominal):.6g} V at the nominal supply" for share in shares]
        return {"obs": seen, "action": dict(zip(self.action_names, volts, strict=False))}

    def planes(self, telemetry: dict[str, Quantity], params: Params) -> list[Plane]:
        """Torque over speed, and what the machine can hold."""
        from .pictures.torque_speed import plane

        run = {"omega": telemetry["omega [rad/s]"].value, "torque": telemetry["torque [N m]"].value}
        return [plane(self, params, run)]

    def normalised(self, plant: Plant, noise: tuple, params: Params) -> dict[str, Any]:
        """Every measured quantity by name, divided by its limit, with noise."""
        values = {name: x / self.limit(name, params) for name, x in self.signals(plant, params).items()}
        for name, error in zip(self._noisy(params), noise, strict=True):
            values[name] = values[name] + error
        return values

    def _noisy(self, params: Params) -> tuple[str, ...]:
        return self.names(params) if self.noise == ("all",) else self.noise

    @property
    def shares_out(self) -> bool:
        """Whether references are shares of what the machine can do."""
        return self.task == "DTC" and self.referenced == ("torque", "psi_s")

    def targets(self, references: tuple, params: Params) -> list:
        """What `referenced` should be, in units of the limits, by the states of the references."""
        values = [r.value(s) for r, s in zip(params.references, references, strict=True)]
        if not self.shares_out:
            return values
        low, high = params.machine.flux_range(params.nominal)
        psi = low + values[1] * (high - low)
        torque = values[0] * params.machine.most_torque(psi, params.nominal.i)
        return [torque / params.limits.torque, psi / self.limit("psi_s", params)]

    # ---- the environment

    def initial(self, key: Key[Array, ""], params: Params) -> State:
        load, machine, supply = params.load, params.machine, params.supply
        counts = [len(params.initial_low), load.start_words, supply.words]
        counts += [reference.start_words for reference in params.references]
        pieces = converters.cut(tuple(random_words(key, (sum(counts) + 1,))), counts)
        dtype = jnp.result_type(float)
        drawn = tuple(
            _between(word, low, high, self.random_init, dtype)
            for word, low, high in zip(pieces[0], params.initial_low, params.initial_high, strict=True)
        )
        mechanical, motor = drawn[: len(load.states)], drawn[len(load.states) :]
        if self.upstream and machine.upstream_swap:
            motor = (motor[1], motor[0], *motor[2:])
        if self.random_init != "none" and not self.upstream:
            motor = self._shrunk(motor, params)
        plant = motion.rest(self, load.start(pieces[1], mechanical), motor, supply.start(pieces[2]), params)
        references = tuple(
            reference.start(words, params.tau) for reference, words in zip(params.references, pieces[3:], strict=True)
        )
        noise = tuple(jnp.zeros((), dtype) for _ in self._noisy(params))
        return State(jnp.int32(0), plant, references, noise)

    def _shrunk(self, motor: tuple, params: Params) -> tuple:
        """`motor` with stator currents, drawn each by itself, within the constraints on the sum of their squares."""
        machine = params.machine
        values = dict(zip(machine.currents, machine.measured_currents(motor, machine.frame(motor)), strict=True))
        share = jnp.ones(())
        for kind, names in self.constraints or ():
            if kind == "squared" and all(name.startswith("i_s") and name in values for name in names):
                square = sum((values[name] / self.limit(name, params)) ** 2 for name in names)
                share = jnp.minimum(share, 0.999 / jnp.sqrt(jnp.maximum(square, 0.999**2)))
        return tuple(share * x if name.startswith("i_s") else x for name, x in zip(machine.states, motor, strict=True))

    def transition(self, key: Key[Array, ""], state: State, action: Any, params: Params) -> Transition:
        noisy = self._noisy(params)
        counts = [params.load.words, *(reference.words for reference in params.references), len(noisy)]
        words = tuple(random_words(key, (sum(counts),))) if sum(counts) else ()
        load_words, *reference_words, noise_words = converters.cut(words, counts)
        plant = fence(motion.advance(self, load_words, state.plant, action, state.time, params))
        dtype = plant.load[0].dtype
        noise = tuple(params.noise_scale * normal(word, dtype) for word in noise_words)
        values = self.normalised(plant, noise, params)
        targets = self.targets(state.references, params)
        error, violation = self.judge(values, targets, params)
        violated = violation >= 1
        tracking = jnp.where(violated, 0, (1 - violation) * error)  # an error may be no number
        penalty = violation * self.penalty(params)
        references = tuple(
            reference.step(words, s, params.tau)
            for reference, words, s in zip(params.references, reference_words, state.references, strict=True)
        )
        state = State(state.time, plant, references, noise)
        info = {
            "violation": violation,
            "reward/tracking": tracking,
            "reward/violation": penalty,
        }
        return Transition(state, tracking + penalty, violated, jnp.bool_(False), info)

    def judge(self, values: dict[str, Any], targets: list, params: Params) -> tuple[Any, Any]:
        """The reward while no constraint is violated, and the degree of violation, 0 to 1."""
        wanted = dict(zip(self.referenced or (), targets, strict=True))
        error = jnp.asarray(params.bias)
        for name, weight in zip(self.rewarded or (), params.weights, strict=True):
            length = self.high(name, params) - self.low(name, params)
            distance = jnp.abs(values[name] - wanted.get(name, 0.0)) / length
            error = error - weight * (distance if self.reward_power == 1 else distance**self.reward_power)
        fine, degrees = jnp.bool_(True), []
        for kind, names in self.constraints or ():
            if callable(kind):
                degrees.append(jnp.asarray(kind(*(values[name] for name in names))))
            elif kind == "squared":
                fine = fine & (sum(values[name] ** 2 for name in names) <= 1)
            else:
                for name in names:
                    fine = fine & (jnp.abs(values[name]) <= 1)
        violation = (~fine).astype(error.dtype)
        for degree in degrees:
            if self.merge == "max":
                violation = jnp.maximum(violation, degree)
            else:
                violation = 1 - (1 - violation) * (1 - degree)
        return error, jnp.where(violation < 1, violation, 1)  # a value that is no number is no fine one

    def penalty(self, params: Params) -> Any:
        """The reward of a violated constraint."""
        if params.violation_reward is not None:
            return params.violation_reward
        return jnp.minimum((params.bias - sum(params.weights)) / (1 - params.gamma), 0)

    def observe(self, key: Key[Array, ""], state: State, params: Params) -> Float[Array, " n"]:
        values = self.normalised(state.plant, state.noise, params)
        measured = [values[name] for name in self._observed(params)]
        wanted = self.targets(state.references, params)
        return jnp.stack([*measured, *wanted])

    def observation_space(self, params: Params) -> Box:
        return Box(-jnp.inf, jnp.inf, (len(self._observed(params)) + len(params.references),))

    def action_space(self, params: Params) -> Space:
        converter = self.converter
        if converter.finite:
            return Discrete(converter.sizes[0]) if len(converter.sizes) == 1 else MultiDiscrete(converter.sizes)
        low = (-1.0,) * params.machine.dq if self.dq_actions else converter.low
        return Box(np.asarray(low, np.float32), 1.0, (len(low),))

    def as_levels(self) -> MotorDrive:
        """Itself: params are levels. `levels.py` draws and varies them."""
        return self

    def render(self, state: State, params: Params) -> np.ndarray:
        from .pictures.drawing import draw_drive

        return draw_drive(self, state, params)


def _length(x: Any, y: Any) -> Any:
    """Of a vector; its derivative is finite where there is none."""
    square = x * x + y * y
    there = square > 0
    return jnp.where(there, jnp.sqrt(jnp.where(there, square, 1)), 0)


def _between(word: Any, low: Any, high: Any, kind: str, dtype: Any) -> Any:
    """A random number in [low, high]; `normal`: of standard deviation 1 about the middle, truncated."""
    unit = uniform(word, dtype)
    if kind != "normal":
        return low + unit * (high - low)
    half = 0.5 * (high - low)
    below, above = jax.scipy.special.ndtr(-half), jax.scipy.special.ndtr(half)
    drawn = jax.scipy.special.ndtri(below + (unit + 2.0**-25) * (above - below))
    return jnp.clip(low + half + drawn, low, high)
