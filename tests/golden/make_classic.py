"""Write `classic_<id>.npz`: what the installed Gymnasium does on classic control, for tests that run without it.

    python tests/golden/make_classic.py [id ...]

Each file holds
- `state (N, S)`, `action (N,)`, `next_state (N, S)`, `reward (N,)`, `terminated (N,)`: single transitions, one third
  from states drawn wide, one third with components on or near (0, 1e-9, 1e-6, 1e-3) a wall, limit, threshold or wrap
  edge, and one third in pairs either side of a termination boundary found by bisection;
- `run_*`: `RUNS` trajectories of 200 steps, time-major and reset where an episode ends, half under random actions,
  half under a bang-bang controller: `run_state (201, R, S)`, `run_obs (201, R, O)`, `run_action`, `run_next_state`,
  `run_next_obs`, `run_reward`, `run_terminated`; `run_state[t + 1]` differs from `run_next_state[t]` only after a
  reset;
- the spaces (`obs_low`, `obs_high`, and `action_low`, `action_high` or `num_actions`), `max_steps`, `gymnasium`,
  `seed`.

States and actions are float64, except MountainCarContinuous, which keeps its state in float32 and is fed float32
actions as an agent would.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gymnasium
import numpy as np

SEED = 20240229
TRANSITIONS = 10_800
RUNS = 8
RUN_STEPS = 200
OFFSETS = (0.0, 1e-9, -1e-9, 1e-6, -1e-6, 1e-3, -1e-3)
FALL = 12 * 2 * np.pi / 360


class Spec(NamedTuple):
    """Where to sample one environment. `special` lists, per state component, the values at which something happens."""

    wide: tuple[float, ...]  # half-width of the uniform draw, per component
    special: tuple[tuple[float, ...], ...]
    bang_bang: Callable[[np.ndarray], float]  # state -> a signed command in [-1, 1]
    centre: tuple[float, ...] = ()
    dtype: type = np.float64
    bisections: int = 26


def cartpole_balance(state: np.ndarray) -> float:
    return np.sign(state @ np.array([0.3, 0.6, 8.0, 2.0]))


SPECS = {
    "CartPole-v1": Spec(
        wide=(3.0, 4.0, np.pi, 6.0),
        special=((-2.4, 0.0, 2.4), (0.0,), (-np.pi, -FALL, 0.0, FALL, np.pi), (0.0,)),
        bang_bang=cartpole_balance,
    ),
    "Pendulum-v1": Spec(
        wide=(6 * np.pi, 8.5),
        special=(tuple(np.pi * np.arange(-3, 4)), (-8.0, 0.0, 8.0)),
        bang_bang=lambda state: np.sign(state[1] * (np.cos(state[0]) - 0.9) * -1.0),
    ),
    "Acrobot-v1": Spec(
        wide=(np.pi, np.pi, 4 * np.pi, 9 * np.pi),
        special=(
            (-np.pi, 0.0, np.pi),
            (-np.pi, 0.0, np.pi),
            (-4 * np.pi, 0.0, 4 * np.pi),
            (-9 * np.pi, 0.0, 9 * np.pi),
        ),
        bang_bang=lambda state: np.sign(state[3]),
    ),
    "MountainCar-v0": Spec(
        wide=(0.9, 0.07),
        centre=(-0.3, 0.0),
        special=((-1.2, 0.5, 0.6), (-0.07, 0.0, 0.07)),
        bang_bang=lambda state: 1.0 if state[1] >= 0 else -1.0,
    ),
    "MountainCarContinuous-v0": Spec(
        wide=(0.9, 0.07),
        centre=(-0.3, 0.0),
        special=((-1.2, 0.45, 0.6), (-0.07, 0.0, 0.07)),
        bang_bang=lambda state: 1.0 if state[1] >= 0 else -1.0,
        dtype=np.float32,
        bisections=14,  # float32 states: a closer pair would be decided by rounding
    ),
}


class Reference:
    """One Gymnasium environment whose state can be set, seen as a function of (state, action)."""

    def __init__(self, env_id: str, dtype: type) -> None:
        self.env = gymnasium.make(env_id).unwrapped
        self.dtype = dtype
        self.discrete = isinstance(self.env.action_space, gymnasium.spaces.Discrete)

    def step(self, state: np.ndarray, action: np.generic) -> tuple[np.ndarray, np.ndarray, float, bool]:
        self.env.state = np.array(state, self.dtype)
        self.env.steps_beyond_terminated = None  # CartPole pays 0 for steps beyond the first terminated one
        obs, reward, terminated, truncated, _ = self.env.step(int(action) if self.discrete else np.array([action]))
        assert not truncated
        return np.array(self.env.state, self.dtype), obs, float(reward), terminated

    def draw_action(self, rng: np.random.Generator) -> np.generic:
        """A legal action, or (continuous) also one on the limit, at zero or up to 50 % beyond the limit."""
        if self.discrete:
            return rng.integers(self.env.action_space.n)
        limit = float(self.env.action_space.high[0])
        choices = (rng.uniform(-1.5 * limit, 1.5 * limit), limit, -limit, 0.0)
        return self.dtype(rng.choice(choices, p=(0.85, 0.05, 0.05, 0.05)))

    def bang_bang(self, command: float) -> np.generic:
        if self.discrete:
            return np.int64((self.env.action_space.n - 1) * (command > 0))
        return self.dtype(command * self.env.action_space.high[0])


def draw_states(spec: Spec, rng: np.random.Generator, number: int, special: bool) -> np.ndarray:
    wide = np.array(spec.wide)
    states = np.array(spec.centre or 0.0) + rng.uniform(-wide, wide, (number, len(wide)))
    if special:
        for i, values in enumerate(spec.special):
            on = rng.random(number) < 0.6
            exact = rng.choice(values, number) + rng.choice(OFFSETS, number)
            states[:, i] = np.where(on, exact, states[:, i])
    return states.astype(spec.dtype)


def bracket(
    reference: Reference, spec: Spec, rng: np.random.Generator, pairs: int
) -> list[tuple[np.ndarray, np.generic]]:
    """Pairs of nearly equal (state, action), of which one terminates and the other does not."""
    found: list[tuple[np.ndarray, np.generic]] = []
    while len(found) < 2 * pairs:
        action = reference.draw_action(rng)
        low, high = draw_states(spec, rng, 2, special=False)
        if reference.step(low, action)[-1] == reference.step(high, action)[-1]:
            continue
        low_terminates = reference.step(low, action)[-1]
        for _ in range(spec.bisections):
            middle = ((low + high) / 2).astype(spec.dtype)
            if reference.step(middle, action)[-1] == low_terminates:
                low = middle
            else:
                high = middle
        found += [(low, action), (high, action)]
    return found


def transitions(
    reference: Reference, spec: Spec, rng: np.random.Generator, can_terminate: bool
) -> dict[str, np.ndarray]:
    third = TRANSITIONS // 3
    states = [
        *draw_states(spec, rng, third, False),
        *draw_states(spec, rng, third if can_terminate else 2 * third, True),
    ]
    cases = [(state, reference.draw_action(rng)) for state in states]
    if can_terminate:
        cases += bracket(reference, spec, rng, third // 2)
    results = [reference.step(*case) for case in cases]
    return {
        "state": np.stack([state for state, _ in cases]),
        "action": np.array([action for _, action in cases]),
        "next_state": np.stack([result[0] for result in results]),
        "reward": np.array([result[2] for result in results]),
        "terminated": np.array([result[3] for result in results]),
    }


def trajectories(reference: Reference, spec: Spec, rng: np.random.Generator) -> dict[str, np.ndarray]:
    columns: dict[str, list] = {}
    for run in range(RUNS):
        rows: dict[str, list] = {}

        def record(rows: dict[str, list] = rows, **values: object) -> None:
            for name, value in values.items():
                rows.setdefault(f"run_{name}", []).append(value)

        obs, _ = reference.env.reset(seed=SEED + run)
        state = np.array(reference.env.state, spec.dtype)
        for _ in range(RUN_STEPS):
            action = reference.draw_action(rng) if run < RUNS // 2 else reference.bang_bang(spec.bang_bang(state))
            next_state, next_obs, reward, terminated = reference.step(state, action)
            record(state=state, obs=obs, action=action, next_state=next_state, next_obs=next_obs)
            record(reward=reward, terminated=terminated)
            state, obs = next_state, next_obs
            if terminated:
                obs, _ = reference.env.reset()
                state = np.array(reference.env.state, spec.dtype)
        record(state=state, obs=obs)
        for name, values in rows.items():
            columns.setdefault(name, []).append(np.array(values))
    return {name: np.stack(values, axis=1) for name, values in columns.items()}


def spaces(reference: Reference) -> dict[str, np.ndarray]:
    obs_space, action_space = reference.env.observation_space, reference.env.action_space
    bounds = {"obs_low": obs_space.low, "obs_high": obs_space.high}
    if reference.discrete:
        return {**bounds, "num_actions": np.array(action_space.n)}
    return {**bounds, "action_low": action_space.low, "action_high": action_space.high}


def write(env_id: str, folder: Path) -> None:
    spec = SPECS[env_id]
    reference = Reference(env_id, spec.dtype)
    rng = np.random.default_rng(SEED)
    data = {
        **transitions(reference, spec, rng, can_terminate=env_id != "Pendulum-v1"),
        **trajectories(reference, spec, rng),
        **spaces(reference),
        "max_steps": np.array(gymnasium.spec(env_id).max_episode_steps),
        "gymnasium": np.array(gymnasium.__version__),
        "seed": np.array(SEED),
    }
    if reference.discrete:
        data |= {name: data[name].astype(np.int8) for name in ("action", "run_action")}
    path = folder / f"classic_{env_id}.npz"
    np.savez_compressed(path, **data)
    print(
        f"{path.name}: {path.stat().st_size / 1024:.0f} KiB, {len(data['reward'])} transitions, "
        f"{data['terminated'].mean():.0%} terminated, {data['run_terminated'].sum()} episodes ended in the runs"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", default=list(SPECS), metavar="id")
    for env_id in parser.parse_args().ids:
        write(env_id, Path(__file__).parent)
