"""Each wrapper against what it says, on environments whose every number is known."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import Environment, Transition, curriculum, make, pytree, scores, vectorize
from jaxrl.algos import ppo
from jaxrl.algos.curricula import dr, plr
from jaxrl.environment import Hints, strongly_typed
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from jaxrl.wrappers import (
    ActionHistory,
    ActionRepeat,
    ClipAction,
    FlattenObservation,
    FrameStack,
    FromStates,
    PreviousActionReward,
    RescaleAction,
    StickyActions,
    Trials,
    VisitBonus,
    Wrapper,
    by_name,
    flatten,
    flatten_space,
)

KEY = jax.random.key(0)


@pytree
class CounterParams:
    max_steps: jax.Array = 6
    scale: jax.Array = 3.0


@pytree
class CounterState:
    time: jax.Array
    sum: jax.Array  # of the actions executed


@dataclasses.dataclass(frozen=True)
class Counter(Environment):
    """Observes (clock, sum of actions, noise); the reward is scale * action. `box`: actions in [-1, scale]."""

    box: bool = True
    noise: bool = False
    agents: int = 1
    id: str = dataclasses.field(default="Counter", kw_only=True)
    Params = CounterParams

    @property
    def hints(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return Hints(deterministic=not self.noise)

    @property
    def num_agents(self):
        return self.agents

    def _lead(self):
        return (self.agents,) if self.agents > 1 else ()

    def initial(self, key, params):
        return CounterState(jnp.int32(0), jnp.zeros(self._lead()))

    def transition(self, key, state, action, params):
        a = (action[..., 0] if self.box else action).astype(float)
        return Transition(state.replace(sum=state.sum + a), params.scale * a, jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key, state, params):
        noise = jax.random.uniform(key, self._lead()) if self.noise else jnp.zeros(self._lead())
        return jnp.stack([jnp.broadcast_to(state.time.astype(float), self._lead()), state.sum, noise], -1)

    def observation_space(self, params):
        return Box(-100.0, 100.0, (3,))

    def action_space(self, params):
        return Box(-1.0, params.scale, (1,)) if self.box else Discrete(4)

    def render(self, state, params):
        return np.full((2, 2, 3), int(state.time), np.uint8)


class Rich(Counter):
    """A Dict observation with reserved entries, a discrete one and a picture."""

    def observe(self, key, state, params):
        t = state.time
        return {
            "image": jnp.broadcast_to(t.astype(jnp.uint8), (2, 2, 3)),
            "clock": t % 4,
            "privileged": state.sum[None],
            "action_mask": jnp.array([True, True, True, False]),
        }

    def observation_space(self, params):
        return Dict(
            {
                "image": Box(0, 255, (2, 2, 3), jnp.uint8),
                "clock": Discrete(4),
                "privileged": Box(-100.0, 100.0, (1,)),
                "action_mask": Box(0, 1, (4,), jnp.bool_),
            }
        )


def play(env, actions, params=None, key=KEY):
    """Observations (first one included) and rewards of an episode."""
    params = env.default_params if params is None else params
    obs, state = env.reset(key, params)
    seen, rewards = [obs], []
    for i, action in enumerate(actions):
        ts = env.step(jax.random.fold_in(key, i), state, action, params)
        state = ts.state
        seen.append(ts.obs)
        rewards.append(ts.reward)
    return jax.tree.map(lambda *x: np.stack(x), *seen), np.array(rewards), ts


ACTIONS = jnp.array([[1.0], [2.0], [-1.0], [0.5]])


def test_identity_hash_and_forwarding():
    env = Counter()
    assert FrameStack(env, 2) == FrameStack(Counter(), 2)
    assert hash(FrameStack(env, 2)) == hash(FrameStack(Counter(), 2))
    assert FrameStack(env, 2) != FrameStack(env, 3)
    wrapped = PreviousActionReward(StickyActions(RescaleAction(Counter(agents=2))))
    assert (wrapped.id, wrapped.num_agents, wrapped.hints.deterministic) == ("Counter", 2, False)
    assert FrameStack(env).hints.deterministic and not FrameStack(Counter(noise=True)).hints.deterministic
    assert FrameStack(env, id="mine").id == "mine"
    for id, reset in (("CartPole-v1", "dense"), ("Acrobot-v1", "auto")):
        assert FrameStack(make(id)[0]).hints.reset == reset


def test_one_clock_at_any_depth():
    env = FrameStack(StickyActions(ActionHistory(Counter(), 2)), 2)
    params = env.default_params
    _, state = env.reset(KEY, params)
    for i in range(6):
        ts = env.step(KEY, state, jnp.ones(1), params)
        state = ts.state
        assert int(state.time) == int(state.env.time) == int(state.env.env.env.time) == i + 1
        assert bool(ts.truncated) == (i == 5)
    assert int(state.replace(time=jnp.int32(3)).env.env.env.time) == 3
    assert env.render(state, params)[0, 0, 0] == 6


def test_clip_action():
    env = ClipAction(Counter())
    _, reward, _ = play(env, jnp.array([[5.0], [-5.0], [0.5]]))
    np.testing.assert_array_equal(reward, [9, -3, 1.5])
    assert not np.isfinite(env.action_space(env.default_params).low)
    with pytest.raises(ValueError, match=r"ClipAction: Counter acts in Discrete\(4\)"):
        ClipAction(Counter(box=False))


def test_rescale_action():
    env = RescaleAction(Counter())
    _, reward, _ = play(env, jnp.array([[-1.0], [1.0], [0.0]]))
    np.testing.assert_array_equal(reward, [-3, 9, 3])
    # The bound is a leaf: batches of params have boxes of their own.
    wide = env.default_params.replace(scale=jnp.float32(7))
    assert play(env, jnp.ones((1, 1)), wide)[1] == 49
    with pytest.raises(ValueError, match="every bound must be finite"):
        RescaleAction(ClipAction(Counter())).reset(KEY, env.default_params)


def test_sticky_actions_repeat_the_executed_action_with_the_given_probability():
    env = StickyActions(Counter(box=False))
    params = env.default_params
    assert params.probability == 0.25 and params.max_steps == 6

    @jax.jit
    def executed(key, probability):
        p = params.replace(probability=probability, env=params.env.replace(max_steps=jnp.int32(10_000)))

        def body(state, inputs):
            ts = env.step(inputs[1], state, inputs[0], p)
            return ts.state, ts.reward / p.env.scale

        given = jnp.arange(1, 2001) % 4
        return jax.lax.scan(body, env.reset(key, p)[1], (given, jax.random.split(key, 2000)))[1], given

    always, given = executed(KEY, jnp.float32(1))
    np.testing.assert_array_equal(always, np.full(2000, given[0]))
    np.testing.assert_array_equal(executed(KEY, jnp.float32(0))[0], given)
    some = np.asarray(jax.vmap(executed, (0, None))(jax.random.split(KEY, 4), jnp.float32(0.25))[0])
    # Three repeats in a row meet the given action again by chance: 0.25 + 0.75 * 0.75 * 0.25**3. 8,000 draws.
    assert abs((some[:, 1:] == some[:, :-1]).mean() - 0.2588) < 0.02


@pytest.mark.slow
@pytest.mark.light
def test_sticky_probability_is_a_leaf_to_vmap_over():
    env = StickyActions(Counter(box=False))
    params = env.default_params
    grid = jax.tree.map(lambda x: jnp.broadcast_to(x, (2, *x.shape)), params).replace(probability=jnp.array([0.0, 1.0]))
    venv = vectorize(env, 2, batched_params=True)
    _, vstate = venv.reset(KEY, grid)
    for action in (1, 3):
        ts = venv.step(KEY, vstate, jnp.full(2, action), grid)
        vstate = ts.state
    np.testing.assert_array_equal(ts.reward, [9, 3])
    with pytest.raises(ValueError, match=r"probability=1.5 must be from 0 to 1"):
        env.reset(KEY, params.replace(probability=jnp.float32(1.5)))


def test_frame_stack_oldest_first():
    plain, _, _ = play(Counter(), ACTIONS)
    stacked, _, _ = play(FrameStack(Counter(), 3), ACTIONS)
    padded = np.concatenate([plain[:1], plain[:1], plain])
    np.testing.assert_array_equal(stacked, [padded[i : i + 3].reshape(-1) for i in range(len(plain))])
    env = FrameStack(Counter(), 3)
    np.testing.assert_array_equal(env.observation_space(env.default_params).low, np.full(9, -100))


def test_a_noisy_frame_is_seen_twice_the_same():
    seen, _, _ = play(FrameStack(Counter(noise=True), 2), ACTIONS)
    np.testing.assert_array_equal(seen[1:, :3], seen[:-1, 3:])
    assert len(np.unique(seen[:, 5])) == len(seen)


def test_frame_stack_of_a_dict_leaves_reserved_entries():
    env = FrameStack(Rich(), 2)
    seen, _, ts = play(env, ACTIONS)
    assert env.observation_space(env.default_params).contains(ts.obs)
    assert seen["image"].shape == (5, 2, 2, 6) and seen["image"].dtype == np.uint8
    np.testing.assert_array_equal(seen["image"][3, 0, 0], [2, 2, 2, 3, 3, 3])
    np.testing.assert_array_equal(seen["clock"], [[0, 0], [0, 1], [1, 2], [2, 3], [3, 0]])
    np.testing.assert_array_equal(seen["privileged"][:, 0], [0, 1, 3, 2, 2.5])
    assert seen["action_mask"].shape == (5, 4)
    assert isinstance(env.observation_space(env.default_params).spaces["clock"], MultiDiscrete)
    with pytest.raises(ValueError, match="length=0"):
        FrameStack(Counter(), 0)


def test_action_history_and_none_before_the_first():
    seen, _, _ = play(ActionHistory(Counter(), 2), ACTIONS)
    np.testing.assert_array_equal(seen["action_history"][..., 0], [[0, 0], [0, 1], [1, 2], [2, -1], [-1, 0.5]])
    np.testing.assert_array_equal(seen["obs"], play(Counter(), ACTIONS)[0])
    env = ActionHistory(Counter(box=False), 2)
    seen, _, ts = play(env, jnp.array([0, 3]))
    np.testing.assert_array_equal(seen["action_history"][:, 1], [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]])
    assert env.observation_space(env.default_params).contains(ts.obs)
    with pytest.raises(ValueError, match="length=0"):
        ActionHistory(Counter(), 0)


def test_previous_action_and_reward():
    env = PreviousActionReward(Rich())
    seen, reward, ts = play(env, ACTIONS)
    np.testing.assert_array_equal(seen["previous_reward"], [0, *reward])
    np.testing.assert_array_equal(seen["previous_action"][:, 0], [0, 1, 2, -1, 0.5])
    assert env.observation_space(env.default_params).contains(ts.obs)


@pytest.mark.slow
@pytest.mark.light
def test_visit_bonus_falls_with_the_root_of_the_visits_of_this_episode():
    """In the 5x5 room: forward twice, turn twice, forward to where it has been; the next episode counts anew."""
    grid, params = make("MiniGrid-Empty-5x5-v0")
    env = VisitBonus(grid, "position", 25, 0.5)
    key = jax.random.key(0)
    for _ in range(2):
        obs, state = env.reset(key, params)
        rewards = []
        for action in (2, 2, 1, 1, 2):
            ts = env.step(key, state, jnp.int32(action), params)
            rewards.append(float(ts.reward))
            state = ts.state
        np.testing.assert_allclose(rewards, 0.5 / np.sqrt([1, 1, 2, 3, 2]), rtol=1e-6)
        assert state.memory[6] == 1 and state.memory.sum() == 6  # the start counts, too
    with pytest.raises(ValueError, match="num_places=0"):
        VisitBonus(grid, "position", 0)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("wrap", [FrameStack, ActionHistory, PreviousActionReward], ids=lambda w: w.__name__)
def test_several_agents(wrap):
    team, single = wrap(Counter(agents=2)), wrap(Counter())
    actions = jnp.stack([ACTIONS, 2 * ACTIONS], 1)
    together, reward, ts = play(team, actions)
    for i in range(2):
        alone, alone_reward, _ = play(single, actions[:, i])
        jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda x, i=i: x[:, i], together), alone)
        np.testing.assert_array_equal(reward[:, i], alone_reward)
    assert jax.vmap(team.observation_space(team.default_params).contains)(ts.obs).all()


def test_flatten_observation():
    env = FlattenObservation(PreviousActionReward(Counter(box=False)))
    seen, reward, ts = play(env, jnp.array([2, 0]))
    # Sorted names: obs (3), previous_action (4), previous_reward (1).
    np.testing.assert_array_equal(seen[1], [1, 2, 0, 0, 0, 1, 0, reward[0]])
    assert env.observation_space(env.default_params).contains(ts.obs)
    env = FlattenObservation(Rich())
    seen, _, ts = play(env, ACTIONS)
    assert seen.keys() == {"obs", "privileged", "action_mask"}
    np.testing.assert_array_equal(seen["obs"][2], [0, 0, 1, 0, *[2] * 12])
    assert env.observation_space(env.default_params).contains(ts.obs)


def test_flatten_any_space():
    space = Dict({"b": MultiDiscrete((2, 3)), "a": Tuple((Box(0, 9, (2, 2), jnp.int32), Discrete(2)))})
    value = {"a": (jnp.array([[1, 2], [3, 4]]), jnp.int32(1)), "b": jnp.array([1, 0])}
    expected = [1, 2, 3, 4, 0, 1, 0, 1, 1, 0, 0]
    np.testing.assert_array_equal(flatten(space, value), expected)
    batch = jax.tree.map(lambda x: jnp.stack([x] * 6).reshape(2, 3, *x.shape), value)
    np.testing.assert_array_equal(flatten(space, batch), np.broadcast_to(expected, (2, 3, 11)))
    np.testing.assert_array_equal(flatten_space(space).high, [9, 9, 9, 9, *[1] * 7])


def test_flatten_is_what_networks_see():
    from jaxrl.nn.networks import encode

    env = PreviousActionReward(Counter(box=False))
    params = env.default_params
    obs = env.observation_space(params).sample(KEY)
    np.testing.assert_array_equal(
        flatten(env.observation_space(params), obs), encode(env.observation_space(params), obs)
    )


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(
    "env",
    [RescaleAction(Counter()), FrameStack(Counter(), 2), FlattenObservation(PreviousActionReward(Counter()))],
    ids=lambda e: type(e).__name__,
)
def test_gradients_pass(env):
    def last(actions, scale):
        params = env.default_params.replace(scale=scale)
        _, state = env.reset(KEY, params)
        total = 0.0
        for action in actions:
            ts = env.step(KEY, state, action, params)
            state, total = ts.state, total + ts.reward
        return total + ts.obs.sum()

    actions, scale = jax.grad(last, (0, 1))(0.1 * jnp.ones((3, 1)), jnp.float32(3))
    assert np.all(np.isfinite(actions)) and np.all(actions != 0) and scale != 0


@pytest.mark.slow
@pytest.mark.light
def test_vectorised_restart_shows_the_state_it_restarts():
    env = FrameStack(Counter(), 2)
    venv = vectorize(env, 2)
    params = env.default_params
    obs, vstate = venv.reset(KEY, params)
    for _ in range(2):
        obs, vstate, *_ = venv.step(KEY, vstate, jnp.ones((2, 1)), params)
    again, vstate = venv.restart(KEY, vstate, params, jnp.array([True, False]))
    np.testing.assert_array_equal(again[1], obs[1])
    np.testing.assert_array_equal(again[0], np.zeros(6))
    np.testing.assert_array_equal(vstate.env.time, [0, 2])
    for _ in range(4):
        obs, vstate, *_, info = venv.step(KEY, vstate, jnp.ones((2, 1)), params)
    np.testing.assert_array_equal(obs[1], np.zeros(6))  # slot 1 reached the limit
    np.testing.assert_array_equal(info["final_obs"][1], [5, 5, 0, 6, 6, 0])
    np.testing.assert_array_equal(info["episode_length"], [4, 6])


def test_params_of_the_inner_environment_are_strongly_typed():
    params = StickyActions(Counter()).default_params
    assert jax.tree.structure(params) == jax.tree.structure(strongly_typed(params))
    assert not any(x.weak_type for x in jax.tree.leaves(params))


# ---- what a wrapper hands on

EXCUSED = {"replace", "id", "Params", "reset", "step", "static_ranges"}
"""Public names that `Wrapper` has no method for: fields, what the base class makes of the author's functions, and the
ranges of a class's own settings, which the wrapped environment has checked of its own."""


def test_a_wrapper_hands_on_whatever_an_environment_has():
    public = {name for name in dir(Environment) if not name.startswith("_")} - EXCUSED
    assert not {name for name in public if name not in vars(Wrapper)}


def test_ends_are_read_through_wrappers_that_leave_observations_alone():
    env, params = make("CartPole-v1")
    over, inside = jnp.array([3.0, 0, 0, 0]), jnp.zeros(4)
    bonus = VisitBonus(env, "time", 600)
    for wrapped in (Wrapper(env), StickyActions(env), FromStates(env), bonus, Wrapper(StickyActions(bonus))):
        for obs, ends in ((over, True), (inside, False)):
            assert bool(wrapped.terminal(obs, wrapped.default_params)) == ends
    car, car_params = make("MountainCarContinuous-v0")
    for wrapped in (ClipAction(car), RescaleAction(car)):
        for x, ends in ((0.5, True), (-0.5, False)):
            assert bool(wrapped.terminal(jnp.array([x, 0.01]), car_params)) == ends

    class Halved(Wrapper):
        """Observations of the same space that are other ones."""

        def observe(self, key, state, params):
            return self.env.observe(key, state, params) / 2

    others = FrameStack(env, 2), PreviousActionReward(env), ActionHistory(env), FlattenObservation(env), Trials(env)
    for wrapped in (*others, Halved(env), StickyActions(Halved(env))):
        name = "Halved" if isinstance(wrapped, StickyActions) else type(wrapped).__name__
        with pytest.raises(NotImplementedError, match=f"{name} changes the observations of CartPole-v1"):
            wrapped.terminal(over, wrapped.default_params)


@pytest.mark.slow
@pytest.mark.light
def test_a_wrapped_maze_has_levels():
    env, params = make("Maze-v0")
    plain = env.levels
    assert plain.env == env.as_levels() and make("CartPole-v1")[0].levels is None
    for wrapped in (PreviousActionReward(env), StickyActions(env)):
        kit = wrapped.levels
        assert type(kit.env) is type(wrapped)
        level = kit.generate(KEY, wrapped.default_params)
        want = plain.generate(KEY, params)
        found = level.env if isinstance(wrapped, StickyActions) else level
        jax.tree.map(np.testing.assert_array_equal, found, want)
        kit.validate(kit.mutate(KEY, level))
        jax.eval_shape(lambda key, kit=kit, level=level: kit.env.reset(key, level), KEY)
    assert FromStates(env).levels is None, "its params are states to begin in"


class OwnLevels(Wrapper):
    """A wrapper that draws tasks itself, as those of MAML's families do."""

    def generate(self, key, params):
        return params.replace(max_steps=jax.random.randint(key, (), 1, 9))


class OwnTask(Wrapper):
    """A wrapper whose params are levels of another environment."""

    def as_levels(self):
        return self.env


def test_a_wrapper_that_draws_tasks_has_its_own_levels():
    env, params = make("Maze-v0")
    own = OwnLevels(env).levels
    assert own.env == OwnLevels(env) and int(own.generate(KEY, params).max_steps) < 9
    assert OwnTask(env).levels.env == env
    plain = OwnLevels(make("CartPole-v1")[0])  # which has none
    assert plain.levels.generate == plain.generate and plain.levels.env == plain


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("method", [dr, plr])
def test_a_curriculum_trains_on_a_wrapped_maze(method):
    env, params = make("Maze-v0")
    kit = PreviousActionReward(env).levels
    venv = vectorize(kit.env, 4, batched_params=True)
    student = ppo.make(venv, ppo.Config(num_envs=4, num_steps=4, num_minibatches=1, hidden=(8,)))
    algo = curriculum.attach(student, method.make(kit.generate))
    state = jax.eval_shape(lambda key: algo.update(algo.init(key, None, params))[0], KEY)
    assert state.obs["previous_action"].shape[0] == 4


# ---- by name


def test_wrappers_by_name():
    env, params = jaxrl.make("CartPole-v1")
    both = by_name.wrapped(env, ["FrameStack:length=3", "PreviousActionReward"])
    assert both == PreviousActionReward(FrameStack(env, length=3))
    assert by_name.wrapped(env, ()) is env and by_name.unwrapped(both) is env and by_name.unwrapped(env) is env
    kept = StickyActions(env)  # another task: its returns are not those of the task inside
    assert by_name.unwrapped(PreviousActionReward(kept)) is kept
    assert scores.record_of(both, params) == scores.of("CartPole-v1")


@pytest.mark.parametrize("noise", [False, True])
def test_an_action_is_taken_again_until_the_episode_ends(noise):
    """Equal to a loop over the task's own steps; the clock, the limit and the rewards are the task's."""
    env = Counter(noise=noise)
    params = env.default_params.replace(max_steps=jnp.int32(5))
    repeated = ActionRepeat(env, 2)
    seen, rewards, last = play(repeated, ACTIONS[:3], params)
    sums = [0, 2, 6, 5]  # two steps of 1, two of 2, and one of -1: then five are over
    np.testing.assert_allclose(seen[:, 1], sums)
    np.testing.assert_array_equal(seen[:, 0], [0, 2, 4, 5])
    np.testing.assert_allclose(rewards, 3 * np.diff(sums))
    assert last.truncated and not last.terminated and last.state.time == 5
    assert (len(set(seen[:, 2].tolist())) > 1) == noise
    one, plain = play(ActionRepeat(env, 1), ACTIONS, params), play(env, ACTIONS, params)
    np.testing.assert_array_equal(one[0][:, :2], plain[0][:, :2])
    np.testing.assert_array_equal(one[1], plain[1])


def test_how_often_actions_are_repeated_can_be_changed_inside_other_wrappers():
    env = jaxrl.make("CartPole-v1")[0]
    both = PreviousActionReward(ActionRepeat(FrameStack(env, 2), 4))
    assert by_name.repeated(both, 3) == PreviousActionReward(ActionRepeat(FrameStack(env, 2), 3))
    assert by_name.repeated(env, 3) == env
    assert [by_name.repeats(x) for x in (env, both, ActionRepeat(both, 2))] == [1, 4, 8]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("framestack", "'framestack' is no wrapper; did you mean FrameStack?"),
        ("Trials", "no wrapper; there are ActionHistory, ActionRepeat, ClipAction"),
        ("FrameStack:depth=3", "'depth' is no setting of the wrapper; its settings are length."),
        ("FlattenObservation:length=3", "it has no settings"),
        ("FrameStack:length=-3", "length must be a whole number, as length=4"),
        ("FrameStack:length=0", "length=0 must be at least 1"),
        ("ActionRepeat:repeat=0", "ActionRepeat: repeat=0 must be at least 1"),
    ],
)
def test_wrappers_that_there_are_not(word, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        by_name.wrapped(jaxrl.make("CartPole-v1")[0], [word])
