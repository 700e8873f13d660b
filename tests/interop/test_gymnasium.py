"""`to_gymnasium` and `to_gymnasium_vector` under Gymnasium's checker, against plain steps, and given bad actions."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from jaxrl import Environment, Transition, list_envs, make, pytree, vectorize
from jaxrl.environment import Hints
from jaxrl.interop.gymnasium import to_gymnasium, to_gymnasium_vector
from jaxrl.registry import first_of_each_class
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from jaxrl.testing.probes import ObservationActionReward
from jaxrl.wrappers import PreviousActionReward


@pytree
class LineParams:
    max_steps: jax.Array = 3
    step: jax.Array = 1.0


@pytree
class LineState:
    time: jax.Array
    x: jax.Array


@dataclasses.dataclass(frozen=True)
class Line(Environment):
    """Walk to 2 (terminated) or be cut; nested observation, action and info."""

    id: str = dataclasses.field(default="Line/plain-v0", kw_only=True)
    Params = LineParams
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return LineState(jnp.int32(0), jnp.float32(0))

    def transition(self, key, state, action, params):
        x = state.x + params.step * action["move"][0] * (1 + action["gear"][1][0])
        info = {"reward/x": x, "more": {"vector": jnp.stack([x, x])}}
        return Transition(state.replace(x=x), x, x >= 2, jnp.bool_(False), info)

    def observe(self, key, state, params):
        return {"x": state.x[None], "clock": (state.time % 4, jnp.stack([state.time % 2, state.time % 3]))}

    def observation_space(self, params):
        return Dict({"x": Box(-100.0, 100.0, (1,)), "clock": Tuple((Discrete(4), MultiDiscrete((2, 3))))})

    def action_space(self, params):
        return Dict({"move": Box(-1.0, 1.0, (1,)), "gear": Tuple((Discrete(2), MultiDiscrete((2, 2))))})

    def validate(self, params):
        if not np.all(np.asarray(params.step) > 0):
            raise ValueError(f"step={params.step} must be positive.")

    def render(self, state, params):
        return np.full((4, 4, 3), int(state.time), np.uint8)


def go(move, gear=0):
    return {"move": np.array([move], np.float32), "gear": (0, np.array([gear, 0]))}


@pytest.mark.slow(but_first=3)
@pytest.mark.light
@pytest.mark.parametrize(
    "env",
    [make("CartPole-v1")[0], make("Pendulum-v1")[0], Line(), PreviousActionReward(ObservationActionReward())],
    ids=lambda e: e.id,
)
def test_passes_gymnasiums_checker(env, recwarn):
    check_env(to_gymnasium(env, render_mode="rgb_array"), skip_render_check=not isinstance(env, Line))
    unwanted = [str(w.message) for w in recwarn if "Box" not in str(w.message)]
    assert not unwanted  # an unbounded or symmetric box is advised against; nothing else is


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")  # advice on boxes, and on environments without a picture
@pytest.mark.parametrize("id", sorted(first_of_each_class().values()))
def test_every_class_passes_gymnasiums_checker(id):
    env = make(id)[0]
    if env.num_agents > 1:
        pytest.skip("Gymnasium environments have one agent")
    drawn = type(env).render is not Environment.render
    check_env(to_gymnasium(env, render_mode="rgb_array" if drawn else None), skip_render_check=not drawn)


def test_one_environment_steps_as_the_function_does():
    env, params = make("CartPole-v1")
    gym_env = to_gymnasium(env, params, seed=3)
    obs, info = gym_env.reset()
    assert info == {} and obs.dtype == np.float32 and gym_env.observation_space.contains(obs)
    for i in range(5):
        expected = env.step(jax.random.key(0), gym_env.state, jnp.int32(i % 2), params)
        obs, reward, terminated, truncated, info = gym_env.step(i % 2)
        np.testing.assert_allclose(obs, expected.obs, rtol=1e-6)
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        assert reward == 1.0


def test_the_seed_decides_everything():
    def run(seed, reset_seed):
        env = to_gymnasium(make("Pendulum-v1")[0], seed=seed)
        first = env.reset(seed=reset_seed)[0]
        return np.stack([first, env.step(np.zeros(1, np.float32))[0], env.reset()[0], env.reset()[0]])

    np.testing.assert_array_equal(run(1, None), run(1, None))
    np.testing.assert_array_equal(run(None, 1), run(2, 1))
    assert not np.array_equal(run(1, None), run(2, None))
    assert not np.array_equal(run(None, None), run(None, None))
    assert len(np.unique(run(1, None)[[0, 2, 3]], axis=0)) == 3  # no episode begins as the one before


def test_time_limit_info_and_nested_spaces():
    env = to_gymnasium(Line())
    env.reset(seed=0)
    _, _, terminated, truncated, info = env.step(go(0.5))
    assert info["reward/x"] == 0.5 and isinstance(info["reward/x"], float)
    np.testing.assert_array_equal(info["more"]["vector"], [0.5, 0.5])
    env.step(go(0.5))
    obs, _, terminated, truncated, _ = env.step(go(1.0, gear=0))
    assert (terminated, truncated) == (True, True)
    assert env.observation_space.contains(obs) and obs["clock"][0] == 3


def test_made_by_gymnasium_from_its_spec():
    env = to_gymnasium(Line(), render_mode="rgb_array")
    assert env.spec is not None and env.spec.id == "jaxrl/Line-plain-v0"
    made = gymnasium.make(env.spec, render_mode="rgb_array")
    made.reset(seed=0)
    made.step(go(0.5))
    frame = made.render()
    assert isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame[0, 0, 0] == 1
    made.close()


@pytest.mark.parametrize(
    "id, action, message",
    [
        ("CartPole-v1", 2, r"CartPole-v1: the action 2 is outside Discrete\(2\)"),
        ("CartPole-v1", -1, "the action -1 is outside"),
        ("CartPole-v1", 0.0, "float64 of shape"),
        ("CartPole-v1", np.zeros(1, int), r"int64 of shape \(1,\)"),
        ("Pendulum-v1", np.array([2.5]), r"2\.5.*outside Box\(-2.0, 2.0, \(1,\), float32\); clip it"),
        ("Pendulum-v1", np.array([np.nan]), "nan.*outside"),
        ("Pendulum-v1", np.zeros(2), r"shape \(2,\), is not in Box"),
    ],
)
def test_a_bad_action_is_an_error_that_names_it(id, action, message):
    env = to_gymnasium(make(id)[0])
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(action)


def test_what_is_accepted():
    env = to_gymnasium(make("Pendulum-v1")[0])
    env.reset(seed=0)
    env.step(np.array([2.0]))  # float64
    env.step([1])
    env = to_gymnasium(make("CartPole-v1")[0])
    env.reset(seed=0)
    for action in (1, np.int8(1), np.array(0), jnp.int32(1)):
        env.step(action)


@pytest.mark.parametrize("action", [{"move": np.zeros(1)}, {**go(0.0), "gear": (0,)}, {**go(0.0), "gear": (0, [2, 0])}])
def test_bad_nested_actions(action):
    env = to_gymnasium(Line())
    env.reset(seed=0)
    with pytest.raises(ValueError, match="Line/plain-v0: the action"):
        env.step(action)


def test_misuse():
    env = to_gymnasium(Line())
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(go(0.0))
    with pytest.raises(ValueError, match="render_mode='human'"):
        to_gymnasium(Line(), render_mode="human")
    with pytest.raises(ValueError, match="step=-1.0 must be positive"):
        to_gymnasium(Line(), LineParams(step=-1.0)).reset()
    with pytest.raises(ValueError, match="needs num_envs"):
        to_gymnasium_vector(Line())
    with pytest.raises(ValueError, match="num_envs=3, but the VectorEnv has 2"):
        to_gymnasium_vector(vectorize(Line(), 2), 3)


def batch(*moves):
    n = len(moves)
    return {"move": np.array(moves, np.float32)[:, None], "gear": (np.zeros(n, int), np.zeros((n, 2), int))}


def test_vector_environment_resets_in_the_same_step():
    env = to_gymnasium_vector(Line(), 3, render_mode="rgb_array")
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs) and env.action_space.contains(env.action_space.sample())
    obs, reward, terminated, truncated, info = env.step(batch(1.0, 0.5, 1.0))
    assert reward.dtype == np.float64 and terminated.dtype == truncated.dtype == np.bool_
    assert "final_obs" not in info and info["_reward/x"].all()
    np.testing.assert_array_equal(info["more"]["vector"][:, 1], [1, 0.5, 1])
    obs, reward, terminated, truncated, info = env.step(batch(1.0, 0.5, 0.0))
    np.testing.assert_array_equal(terminated, [True, False, False])
    np.testing.assert_array_equal(truncated, [False, False, False])
    np.testing.assert_array_equal(obs["x"][:, 0], [0, 1, 1])
    np.testing.assert_array_equal(info["_final_obs"], [True, False, False])
    assert info["final_obs"][0]["x"] == [2] and info["final_obs"][1] is None
    assert env.single_observation_space.contains(info["final_obs"][0])
    np.testing.assert_array_equal(info["final_info"]["episode_return"], [3, 0, 0])
    np.testing.assert_array_equal(info["final_info"]["episode_length"], [2, 0, 0])
    np.testing.assert_array_equal(info["final_info"]["reward/x"], [2, 0, 0])
    np.testing.assert_array_equal(info["reward/x"], [0, 1, 1])
    np.testing.assert_array_equal(info["_reward/x"], [False, True, True])
    frames = env.render()
    assert frames is not None and [f[0, 0, 0] for f in frames] == [0, 2, 2]
    _, _, terminated, truncated, info = env.step(batch(0.0, 0.0, 0.0))
    np.testing.assert_array_equal(truncated, [False, True, True])
    obs, _ = env.reset(options={"reset_mask": np.array([True, False, False])})
    np.testing.assert_array_equal(obs["clock"][0], [0, 0, 0])
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_mask": np.ones(2, bool)})
    with pytest.raises(ValueError, match="outside"):
        env.step(batch(0.0, 0.0, 1.5))
    env.close()


def test_vector_infos_have_gymnasiums_shape():
    """The same episode in Gymnasium's own same-step vector environment: equal results, infos of equal structure."""
    ours = to_gymnasium_vector(Line(), 2)
    theirs = gymnasium.vector.SyncVectorEnv([lambda: to_gymnasium(Line())] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    ours.reset(seed=0)
    theirs.reset(seed=0)
    for moves in ((1.0, 0.5), (1.0, 0.5), (0.5, 1.0)):
        a, b = ours.step(batch(*moves)), theirs.step(batch(*moves))
        for x, y in zip(jax.tree.leaves(a[:4]), jax.tree.leaves(b[:4]), strict=True):
            np.testing.assert_array_equal(x, y)
            assert x.dtype == y.dtype
        if "final_info" in b[4]:
            for name in ("episode_return", "episode_length"):
                del a[4]["final_info"][name], a[4]["final_info"][f"_{name}"]
        assert jax.tree.structure(drop_empty(a[4])) == jax.tree.structure(drop_empty(b[4]))
        for x, y in zip(jax.tree.leaves(drop_empty(a[4])), jax.tree.leaves(drop_empty(b[4])), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_the_other_modes_are_gymnasiums(mode):
    """Against Gymnasium's own vector environment in the same mode, over ends, cuts and partial resets."""
    ours = to_gymnasium_vector(Line(), 3, autoreset_mode=mode)
    theirs = gymnasium.vector.SyncVectorEnv([lambda: to_gymnasium(Line())] * 3, autoreset_mode=mode)
    assert ours.metadata["autoreset_mode"] == mode
    ours.reset(seed=0)
    theirs.reset(seed=0)
    ends = 0
    for moves in [(1.0, 0.5, 0.25), (1.0, 0.5, 1.0), (0.5, 1.0, 0.5), (0.25, 1.0, 1.0), (0.5, 0.5, 1.0)] * 3:
        a, b = ours.step(batch(*moves)), theirs.step(batch(*moves))
        finished = a[2] | a[3]
        ends += finished.sum()
        assert ours.observation_space.contains(a[0])
        assert ("episode_return" in a[4]) == finished.any()
        for name in ("episode_return", "episode_length"):
            a[4].pop(name, None)
            a[4].pop(f"_{name}", None)
        assert jax.tree.structure(a) == jax.tree.structure(b)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_array_equal(x, y)
        assert [x.dtype for x in a[1:4]] == [y.dtype for y in b[1:4]]
        if mode == AutoresetMode.DISABLED and finished.any():
            with pytest.raises(gymnasium.error.ResetNeeded, match=r"slots \[.*\] have ended"):
                ours.step(batch(0.0, 0.0, 0.0))
            obs = [env.reset(options={"reset_mask": finished.copy()})[0] for env in (ours, theirs)]
            jax.tree.map(np.testing.assert_array_equal, *obs)
    assert ends > 8


def test_modes_by_name():
    assert to_gymnasium_vector(Line(), 2, autoreset_mode="NextStep").metadata["autoreset_mode"].name == "NEXT_STEP"
    assert to_gymnasium_vector(Line(), 2, autoreset_mode="DISABLED").metadata["autoreset_mode"].name == "DISABLED"
    with pytest.raises(ValueError, match="autoreset_mode='never': it is one of .*NEXT_STEP, SAME_STEP"):
        to_gymnasium_vector(Line(), 2, autoreset_mode="never")


@dataclasses.dataclass(frozen=True)
class Walk(Line):
    """`Line` whose observation and action are boxes."""

    def transition(self, key, state, action, params):
        x = state.x + action[0]
        return Transition(state.replace(x=x), x, x >= 2, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jnp.stack([state.x, state.x**2])

    def observation_space(self, params):
        return Box(-9.0, 9.0, (2,))

    def action_space(self, params):
        return Box(-1.0, 1.0, (1,))


LAYERS = {
    "flatten": lambda env: gymnasium.wrappers.vector.FlattenObservation(env),
    "dtype": lambda env: gymnasium.wrappers.vector.DtypeObservation(env, np.float64),
    "rescale": lambda env: gymnasium.wrappers.vector.RescaleObservation(env, np.float32(-1), np.float32(1)),
    "normalize": lambda env: gymnasium.wrappers.vector.NormalizeObservation(env),
}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # of Gymnasium's Box in float64
def test_gymnasiums_vector_observation_wrappers(mode, layer):
    """They make of our batch what they make of Gymnasium's, over ends and restarts."""
    if layer == "normalize" and mode == AutoresetMode.DISABLED:
        pytest.skip("Gymnasium's NormalizeObservation takes NEXT_STEP alone")
    ours = LAYERS[layer](to_gymnasium_vector(Walk(), 2, autoreset_mode=mode))
    theirs = LAYERS[layer](gymnasium.vector.SyncVectorEnv([lambda: to_gymnasium(Walk())] * 2, autoreset_mode=mode))
    assert ours.observation_space == theirs.observation_space
    np.testing.assert_allclose(ours.reset(seed=0)[0], theirs.reset(seed=0)[0], rtol=1e-6)
    moves = np.random.default_rng(0).uniform(-0.5, 1, (15, 2, 1)).astype(np.float32)
    for move in moves:
        a, b = ours.step(move), theirs.step(move)
        np.testing.assert_allclose(a[0], b[0], rtol=1e-6)
        assert ours.observation_space.contains(a[0])
        for x, y in zip(a[1:4], b[1:4], strict=True):
            np.testing.assert_array_equal(x, y)
        finished = a[2] | a[3]
        if mode == AutoresetMode.DISABLED and finished.any():
            for env in (ours, theirs):
                env.reset(options={"reset_mask": finished.copy()})


def test_specs_state_the_limit():
    env, params = make("CartPole-v1")

    def limit(made):
        assert made.spec is not None
        return made.spec.max_episode_steps

    assert limit(to_gymnasium(env)) == limit(to_gymnasium_vector(env, 2)) == 500
    assert limit(to_gymnasium(env, params.replace(max_steps=jnp.int32(7)))) == 7
    assert limit(to_gymnasium(env, params.replace(max_steps=jnp.int32(2**31 - 1)))) is None
    rows = jax.tree.map(lambda x: jnp.stack([x, x]), params).replace(max_steps=jnp.array([3, 4]))
    assert limit(to_gymnasium_vector(vectorize(env, 2, batched_params=True), params=rows)) is None
    spec = to_gymnasium(Line()).spec
    assert spec is not None
    made = gymnasium.make(spec)  # Gymnasium adds a TimeLimit: the same step is cut
    made.reset(seed=0)
    assert [made.step(go(0.1))[3] for _ in range(3)] == [False, False, True]


def drop_empty(info):
    """Without object arrays (pytree leaves that hold dicts), which are compared elsewhere."""
    return {k: drop_empty(v) if isinstance(v, dict) else v for k, v in info.items() if k != "final_obs"}


def test_levels_reach_the_vector_environment():
    def level(key, params):
        return params.replace(step=jax.random.choice(key, jnp.array([0.25, 0.5])))

    env = to_gymnasium_vector(vectorize(Line(), 8, level_fn=level), render_mode="rgb_array")
    env.reset(seed=0)
    obs, *_ = env.step(batch(*[1.0] * 8))
    assert set(np.unique(obs["x"])) == {0.25, 0.5}
    frames = env.render()
    assert frames is not None and len(frames) == 8


# ---- by Gymnasium's names


def test_all_ids_are_registered_with_gymnasium():
    ours = {name.removeprefix("jaxrl/") for name in gymnasium.registry if name.startswith("jaxrl/")}
    assert ours == set(list_envs())
    with pytest.raises(gymnasium.error.NameNotFound, match="Did you mean: `CartPole`"):
        gymnasium.make("jaxrl/CartPol-v1")


def test_made_by_name_it_is_what_to_gymnasium_makes():
    """Also with settings of `jaxrl.make`, under Gymnasium's own wrappers, and made again from its spec."""
    named = gymnasium.make("jaxrl.interop.gymnasium:jaxrl/Catch-bsuite", rows=6, render_mode="rgb_array")
    plain = to_gymnasium(*make("Catch-bsuite", rows=6))
    again = gymnasium.make(named.spec)
    counted = gymnasium.wrappers.RecordEpisodeStatistics(again)
    seen = [env.reset(seed=3)[0] for env in (named, plain, counted)]
    assert seen[0].shape == (6, 5) and (seen[0] == seen[1]).all() and (seen[0] == seen[2]).all()
    for action in (0, 2, 1, 1, 0):
        a, b, c = (env.step(action) for env in (named, plain, counted))
        np.testing.assert_array_equal(a[0], b[0])
        assert a[1:4] == b[1:4] == c[1:4]
    assert a[2] and c[4]["episode"]["l"] == 5 and c[4]["episode"]["r"] == a[1]
    assert named.render().ndim == 3


@pytest.mark.parametrize("mode", AutoresetMode)
def test_batches_made_by_name(mode):
    named = gymnasium.make_vec("jaxrl/Catch-bsuite", num_envs=3, autoreset_mode=mode, rows=6)
    plain = to_gymnasium_vector(make("Catch-bsuite", rows=6)[0], 3, autoreset_mode=mode)
    assert named.metadata["autoreset_mode"] == mode and named.spec.id == "jaxrl/Catch-bsuite"
    np.testing.assert_array_equal(named.reset(seed=5)[0], plain.reset(seed=5)[0])
    for _ in range(4):
        for x, y in zip(named.step(np.ones(3, int))[:4], plain.step(np.ones(3, int))[:4], strict=True):
            np.testing.assert_array_equal(x, y)


def test_episodes_of_batches_are_counted_by_gymnasium():
    counted = gymnasium.wrappers.vector.RecordEpisodeStatistics(gymnasium.make_vec("jaxrl/Catch-bsuite", num_envs=4))
    counted.reset(seed=0)
    returns = [counted.step(np.full(4, action % 3))[1] for action in range(9)]
    assert list(counted.length_queue) == [9] * 4
    assert sorted(counted.return_queue) == sorted(np.sum(returns, 0))


VIDEO_LENGTHS = {AutoresetMode.NEXT_STEP: [10, 10], AutoresetMode.DISABLED: [10, 10], AutoresetMode.SAME_STEP: [9, 9]}
"""Pictures of two episodes of nine steps; Gymnasium warns that the last one is lost where a slot restarts at once."""


def filmed(folder):
    """The pictures of each film in `folder`, (T, height, width, 3)."""
    from moviepy import VideoFileClip

    films = []
    for path in sorted(folder.glob("*.mp4")):
        with VideoFileClip(str(path)) as clip:
            films.append(np.stack(list(clip.iter_frames())))
    return films


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # moviepy's reader leaves pipes open
def test_gymnasium_records_films(tmp_path):
    pytest.importorskip("moviepy", reason="needs moviepy, with which Gymnasium writes films")
    env = gymnasium.make("jaxrl/Catch-bsuite", render_mode="rgb_array")
    film = gymnasium.wrappers.RecordVideo(
        env, str(tmp_path / "films"), episode_trigger=lambda i: i < 2, disable_logger=True
    )
    shown = []
    for seed in range(2):
        film.reset(seed=seed)
        shown.append([env.render()])
        ended = False
        while not ended:
            ended = film.step(2 * seed)[2]
            shown[-1].append(env.render())
    film.close()
    films = filmed(tmp_path / "films")
    assert [len(x) for x in films] == [len(x) for x in shown] == [10, 10]
    assert film.metadata["render_fps"] == 50
    for pictures, expected in zip(films, np.asarray(shown, float), strict=True):  # to the codec's loss
        assert np.mean(np.abs(pictures - expected)) < 3 < np.mean(np.abs(pictures[:1] - expected[-1:]))


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:.*autoreset mode is same-step:UserWarning")
@pytest.mark.parametrize("mode", AutoresetMode)
def test_gymnasium_records_films_of_batches(mode, tmp_path):
    pytest.importorskip("moviepy", reason="needs moviepy, with which Gymnasium writes films")
    envs = gymnasium.make_vec("jaxrl/Catch-bsuite", num_envs=3, autoreset_mode=mode, render_mode="rgb_array")
    film = gymnasium.wrappers.vector.RecordVideo(envs, str(tmp_path / "films"), episode_trigger=lambda i: i < 2)
    film.reset(seed=0)
    for _ in range(20):
        ended = np.logical_or(*film.step(np.ones(3, int))[2:4])
        if mode == AutoresetMode.DISABLED and ended.any():
            film.reset(options={"reset_mask": ended})
    film.close()
    films = filmed(tmp_path / "films")
    assert [len(x) for x in films] == VIDEO_LENGTHS[mode]
    assert films[0].shape[1:] == (240, 3 * 120, 3)  # side by side
