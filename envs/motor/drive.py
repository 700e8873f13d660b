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
angle before the step and flux-oriented ones at the flux before it, a doubly fed machine's rotor currents on other axes
at a reset; a B6 bridge reports half the supply's voltage at a reset; random stator currents of a reset may be over the
limit of their length; dead times, RC supplies, external speeds, the default excited machine and the six-phase one
(their files).
"""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import Hints, Transition, strongly_typed
from jaxrl.math import fence, random_words
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space
from jaxrl.telemetry import Plane, Quantity

from . import checks, converters, defaults, mismatches, motion, quantities
from .levels import generate, mutate
from .plant import Params, Plant, State
from .references import normal, uniform
from .settings import Settings


@dataclasses.dataclass(frozen=True)
class MotorDrive(Settings):
    """A drive of these static settings."""

    Params = Params
    hints = Hints(noiseless=True)

    # ---- parameters

    @property
    def default_params(self) -> Params:
        return strongly_typed(defaults.complete(self, defaults.components(self)))

    def params_of(self, **parts: Any) -> Params:
        """Default parameters with `machine=`, `limits=`, `nominal=`, `load=`, `supply=`, `tau=` or others in place of
        the defaults, and the references, weights and starts that the task derives from these.

        `default_params.replace(...)` keeps the references of the default drive instead. Raises ValueError for a name
        that parameters have not, and what `validate` refuses; warns as it does.
        """
        known = [field.name for field in dataclasses.fields(Params)]
        for name in parts:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"{self.id}: params have no {name!r}.{hint} They have {', '.join(known)}.")
        params = strongly_typed(defaults.complete(self, defaults.components(self).replace(**parts)).replace(**parts))
        self.validate(params)
        return params

    def validate(self, params: Params) -> None:
        checks.check_params(self, params)
        for sentence in mismatches.find(self, params):
            warnings.warn(sentence, stacklevel=2)

    # ---- what is measured

    def measured(self, params: Params) -> Mapping[str, quantities.Quantity]:
        """All measured quantities by name, each with its unit, its limit and its sign."""
        return quantities.measured(self, params)

    def names(self, params: Params) -> tuple[str, ...]:
        """Of all measured quantities."""
        return tuple(self.measured(params))

    def limit(self, name: str, params: Params, ratings: Any = None) -> Any:
        """What a measured quantity is divided by."""
        return self.measured(params)[name].limit(params, params.limits if ratings is None else ratings)

    def signals(self, plant: Plant, params: Params) -> dict[str, Any]:
        """Every measured quantity by name, in SI units."""
        return quantities.signals(self, plant, params)

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        """All measured quantities in SI units but angles, with their references and the limits that end an episode."""
        table = self.measured(params)
        targets = zip(self.referenced or (), self.targets(state.references, params), strict=True)
        wanted = {name: x * table[name].limit(params, params.limits) for name, x in targets}
        found = {}
        for name, x in self.signals(state.plant, params).items():
            quantity = table[name]
            if quantity.unit not in ("rad", "") or name in wanted:
                most = quantity.limit(params, params.limits) if name in self.ending else None
                least = None if most is None or quantity.low == 0 else -most
                found[f"{name} [{quantity.unit}]"] = Quantity(x, wanted.get(name), least, most)
        return found

    def measures(self, params: Params) -> dict[str, dict[str, str]]:
        """Limits; of voltages that are asked for what the supply's nominal one makes of them."""
        table = self.measured(params)
        seen = [(name, name) for name in self.observed_names(params)]
        seen += [(f"{name}*", name) for name in self.referenced or ()]
        limits = {
            shown: f"1 is {float(table[name].limit(params, params.limits)):.6g} {table[name].unit}".strip()
            for shown, name in seen
        }
        if self.converter.finite:
            return {"obs": limits}
        shares = [0.5 if part.outputs == 3 else 1.0 for part in self.converter.each for _ in range(part.outputs)]
        if self.dq_actions:  # two axes in the place of three phases
            shares = [0.5] * 2 + shares[3:]
        volts = [f"1 is {share * float(params.supply.u_nominal):.6g} V at the nominal supply" for share in shares]
        return {"obs": limits, "action": dict(zip(self.action_names, volts, strict=False))}

    def planes(self, telemetry: dict[str, Quantity], params: Params) -> list[Plane]:
        """Torque over speed, and what the machine can hold."""
        from .pictures.torque_speed import plane

        run = {"omega": telemetry["omega [rad/s]"].value, "torque": telemetry["torque [N m]"].value}
        return [plane(params, run, self.voltage_radius)]

    def normalised(self, plant: Plant, noise: tuple, params: Params) -> dict[str, Any]:
        """Every measured quantity by name, divided by its limit, with noise."""
        table = self.measured(params)
        values = {name: x / table[name].limit(params, params.limits) for name, x in self.signals(plant, params).items()}
        for name, error in zip(self.noisy_names(params), noise, strict=True):
            values[name] = values[name] + error
        return values

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
        plant = motion.rest(self.stepping, load.start(pieces[1], mechanical), motor, supply.start(pieces[2]), params)
        references = tuple(
            reference.start(words, params.tau) for reference, words in zip(params.references, pieces[3:], strict=True)
        )
        noise = tuple(jnp.zeros((), dtype) for _ in self.noisy_names(params))
        return State(jnp.int32(0), plant, references, noise)

    def _shrunk(self, motor: tuple, params: Params) -> tuple:
        """`motor` with stator currents, drawn each by itself, within the constraints on the sum of their squares."""
        machine = params.machine
        values = dict(zip(machine.currents, machine.measured_currents(motor, machine.frame(motor)), strict=True))
        share = jnp.ones(())
        for kind, names in self.constraints or ():
            if kind == "squared" and all(name in machine.stator and name in values for name in names):
                square = sum((values[name] / self.limit(name, params)) ** 2 for name in names)
                share = jnp.minimum(share, 0.999 / jnp.sqrt(jnp.maximum(square, 0.999**2)))
        return tuple(share * x if name in machine.stator else x for name, x in zip(machine.states, motor, strict=True))

    def transition(self, key: Key[Array, ""], state: State, action: Any, params: Params) -> Transition:
        noisy = self.noisy_names(params)
        counts = [params.load.words, *(reference.words for reference in params.references), len(noisy)]
        words = tuple(random_words(key, (sum(counts),))) if sum(counts) else ()
        load_words, *reference_words, noise_words = converters.cut(words, counts)
        plant = fence(motion.advance(self.stepping, load_words, state.plant, action, state.time, params))
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
        table = self.measured(params)
        wanted = dict(zip(self.referenced or (), targets, strict=True))
        error = jnp.asarray(params.bias)
        for name, weight in zip(self.rewarded or (), params.weights, strict=True):
            length = table[name].high - table[name].low
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
        measured = [values[name] for name in self.observed_names(params)]
        wanted = self.targets(state.references, params)
        return jnp.stack([*measured, *wanted])

    def observation_space(self, params: Params) -> Box:
        return Box(-jnp.inf, jnp.inf, (len(self.observed_names(params)) + len(params.references),))

    def action_space(self, params: Params) -> Space:
        converter = self.converter
        if converter.finite:
            return Discrete(converter.sizes[0]) if len(converter.sizes) == 1 else MultiDiscrete(converter.sizes)
        low = (-1.0,) * params.machine.dq if self.dq_actions else converter.low
        return Box(np.asarray(low, np.float32), 1.0, (len(low),))

    def as_levels(self) -> MotorDrive:
        """Itself: params are levels. `levels.py` draws and varies them."""
        return self

    def generate(self, key: Array, params: Params) -> Params:
        """Another drive, each number of which differs from that of `params` by a factor of at most 2."""
        return generate(key, params)

    def mutate(self, key: Array, level: Params) -> Params:
        """The drive with each number changed by a factor of at most 1.1."""
        return mutate(key, level)

    def render(self, state: State, params: Params) -> np.ndarray:
        from .pictures.drawing import Bar, draw_drive

        table, seconds = self.measured(params), int(state.time) * float(params.tau)
        shares, values = self.normalised(state.plant, state.noise, params), self.signals(state.plant, params)
        wanted = dict(zip(self.referenced or (), self.targets(state.references, params), strict=True))
        reaches = quantities.reaches(self, params, state.plant.u_sup)
        bars = [
            Bar(quantity, shares[name], values[name], self.limit(name, params), wanted.get(name), reaches.get(name))
            for name, quantity in table.items()
        ]
        return draw_drive(f"{self.id}   t = {seconds * 1e3:.2f} ms", bars, state.plant, params)


def _between(word: Any, low: Any, high: Any, kind: str, dtype: Any) -> Any:
    """A random number in [low, high]; `normal`: of standard deviation 1 about the middle, truncated."""
    unit = uniform(word, dtype)
    if kind != "normal":
        return low + unit * (high - low)
    half = 0.5 * (high - low)
    below, above = jax.scipy.special.ndtr(-half), jax.scipy.special.ndtr(half)
    drawn = jax.scipy.special.ndtri(below + (unit + 2.0**-25) * (above - below))
    return jnp.clip(low + half + drawn, low, high)
