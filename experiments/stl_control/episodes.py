"""The tasks as environments: rewarded by robustness, or grounded in times as TGPO does.

An episode begins with one of the pairs of a place and of times in `params`. The observation is what the system shows,
the time, how robust each part of the formula is so far, and where grounded how long until each goal's time, which is
next and where that is from here.

`reward="robustness"`: at the end that of the formula [m], else zero. `reward="grounded"`, each step: 8 times the share
of the way to the next goal that it covered; 6, over its steps, for being in it at its time and while it holds; -3 a
metre that it is in a pole or its margin of 5 cm; at the end 5 if the formula is satisfied.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from systems import GOALS, PARTS, RADIUS, SYSTEMS, System, T, clearance, distance

from jaxrl.environment import Environment, Hints, Transition, pytree
from jaxrl.exact import stl
from jaxrl.spaces import Box

FIRST, LAST, HOLD = (jnp.array([getattr(goal, name) for goal in GOALS]) for name in ("first", "last", "hold"))
PLACES = jnp.array([goal.place for goal in GOALS])
PROGRESS, BONUS, SUCCESS = 8.0, 6.0, 5.0
VIOLATION, MARGIN = 3.0, 0.05  # 1/m, m
WATCHES = tuple(map(stl.monitor, PARTS))


@functools.cache
def system_of(name: str) -> System:
    return SYSTEMS[name]()


@pytree
class Params:
    places: jax.Array  # (n, d) m, where episodes begin
    times: jax.Array  # (n, goals) int32, when to be in each goal
    max_steps: jax.Array = T


@pytree
class State:
    time: jax.Array
    x: jax.Array  # of the system
    watches: tuple  # the monitors' carries
    rho: jax.Array  # (parts,) m, of the formula's parts so far
    times: jax.Array  # (goals,)
    far: jax.Array  # m, to the next goal when it became that


def gaps(place):
    """(goals,) m, to each goal."""
    return distance(place, PLACES[:, : len(place)])


def allocations(key, n):
    """Times (n, goals), uniform in their windows."""
    return jax.random.randint(key, (n, len(GOALS)), FIRST, LAST + 1)


def next_goal(time, times):
    """(goals,), True for the one whose time comes first of those that are not over; all False after the last."""
    ahead = time < times + HOLD
    return jax.nn.one_hot(jnp.argmin(jnp.where(ahead, times, 2 * T)), len(times), dtype=bool) & ahead


def stage_reward(time, times, before, after, far):
    """Of a step that ends at `time`, from how far the goals (goals,) were before and are after it [m].

    `far` is how far the next one was when it became that: progress is a share of it, else detours would be worth more.
    """
    nearer = jnp.sum(next_goal(time - 1, times) * (before - after)) / jnp.maximum(far, RADIUS)
    due = (time >= times) & (time <= times + HOLD)
    return PROGRESS * nearer + BONUS * jnp.sum(due * (after < RADIUS) / (HOLD + 1))


@dataclasses.dataclass(frozen=True)
class Episodes(Environment):
    system: str = "point"
    reward: str = "robustness"
    id: str = dataclasses.field(default="STLEpisodes-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)

    @property
    def default_params(self):
        return self.drawn(jax.random.key(0), 1)

    def drawn(self, key, n):
        """Params with `n` new places and uniform times."""
        place_key, time_key = jax.random.split(key)
        return Params(system_of(self.system).starts(place_key, n), allocations(time_key, n), jnp.int32(T))

    def begun(self, place, times):
        """The state at the start of an episode."""
        watched = [watch.update(watch.init(), place) for watch in WATCHES]
        carries, rho = zip(*watched, strict=True)
        far = next_goal(0, times) @ gaps(place)
        return State(jnp.int32(0), system_of(self.system).at(place), carries, jnp.stack(rho), times, far)

    def initial(self, key, params):
        i = jax.random.randint(key, (), 0, len(params.places))
        return self.begun(params.places[i], params.times[i])

    def transition(self, key, state, action, params):
        system, time = system_of(self.system), state.time + 1
        x = system.step(state.x, jnp.clip(action, -1, 1))
        before, place = system.place(state.x), system.place(x)
        watched = [watch.update(carry, place) for watch, carry in zip(WATCHES, state.watches, strict=True)]
        carries, rho = zip(*watched, strict=True)
        state, end = state.replace(x=x, watches=carries, rho=jnp.stack(rho)), time >= T
        if self.reward == "robustness":
            reward = jnp.where(end, state.rho.min(), 0.0)
        else:
            reward = stage_reward(time, state.times, gaps(before), gaps(place), state.far) - VIOLATION * jax.nn.relu(
                MARGIN - clearance(place)
            )
            reward += SUCCESS * (end & (state.rho.min() > 0))
            following = next_goal(time, state.times)
            same = jnp.all(following == next_goal(state.time, state.times))
            state = state.replace(far=jnp.where(same, state.far, following @ gaps(place)))
        return Transition(state, reward, end, jnp.bool_(False), {})

    def observe(self, key, state, params):
        system = system_of(self.system)
        seen = [system.features(state.x), (state.time / T)[None], jnp.clip(state.rho, -1, 1)]
        if self.reward == "grounded":
            following = next_goal(state.time, state.times)
            away = PLACES[:, : system.dimensions] - system.place(state.x)
            seen += [(state.times - state.time) / 10, following, following @ away]
        return jnp.concatenate([x.astype(jnp.float32) for x in seen])

    def observation_space(self, params):
        size = jax.eval_shape(lambda p: self.observe(None, self.begun(p.places[0], p.times[0]), p), params).shape
        return Box(-jnp.inf, jnp.inf, size)

    def action_space(self, params):
        return Box(-1.0, 1.0, (system_of(self.system).actions,))
