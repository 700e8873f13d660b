"""BabyAI: golden episodes and levels of `minigrid` 3.2.0 (tests/golden/make_babyai.py), missions, levels."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make
from jaxrl.envs.grid import rooms
from jaxrl.envs.grid.babyai import instructions
from jaxrl.envs.grid.babyai.goto import GoTo
from jaxrl.envs.grid.babyai.instructions import Clause, Order, Place, Thing, Verb
from jaxrl.envs.grid.babyai.level import BabyAI
from jaxrl.envs.grid.babyai.open import OpenDoor, OpenDoorsOrder, OpenTwoDoors
from jaxrl.envs.grid.babyai.pickup import OneRoom, PickupDist
from jaxrl.envs.grid.babyai.put_next import PutNext
from jaxrl.envs.grid.babyai.synth import LevelGen
from jaxrl.envs.grid.engine import reachable
from jaxrl.envs.grid.tiles import BALL, BOX, DOOR, KEY, LOCKED, Level, color_of, kind_of, state_of
from jaxrl.testing.golden import golden
from tests.golden.babyai_features import features

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)
KEYS = jax.random.split(jax.random.key(7), 1500)


@functools.cache
def kept(name):
    """id -> what was kept of it."""
    arrays = golden(name)
    ids: dict[str, dict[str, np.ndarray]] = {str(id): {} for id in arrays["ids"]}
    for key, shapes in ((key[:-6], shapes) for key, shapes in arrays.items() if key.endswith(" shape")):
        starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
        for id, shape, start, stop in zip(ids, shapes, starts, starts[1:], strict=False):
            ids[id][key] = arrays[key][start:stop].reshape(shape)
    return ids


def same_play(id):
    """What says how levels are played: ids that agree in it share a compiled function."""
    env = make(id)[0].as_levels()
    return env.shape, env.room_size, env.clauses, env.strict, getattr(env, "start_carrying", False)


GROUPS = [list(ids) for _, ids in itertools.groupby(sorted(kept("babyai"), key=same_play), same_play)]
QUICK = {"BabyAI-" + id for id in ("GoToLocal-v0", "OpenDoor-v0", "MiniBossLevel-v0", "PutNextS5N2Carrying-v0")}


# ---- episodes


@pytest.mark.slow(but_first=2)
@pytest.mark.parametrize(
    "ids", [pytest.param(ids, id=ids[0], marks=() if QUICK & set(ids) else pytest.mark.slow) for ids in GROUPS]
)
def test_plays_as_the_reference(ids, episodes):
    env = make(ids[0])[0].as_levels()
    play = episodes.player(env)
    for id in ids:
        recorded = kept("babyai")[id]
        numbers = jnp.asarray(recorded["numbers"])
        max_steps, position, direction = numbers[:, :3].T
        target = jnp.zeros((len(numbers), 0), jnp.int32)
        levels = Level(max_steps, jnp.asarray(recorded["grid"]), position, direction, numbers[:, 3:], target)
        its_own = make(id)[0].as_levels()
        its_own.validate(levels)
        played = play(levels, jnp.asarray(recorded["actions"]))
        episodes.compare(its_own, played, levels.mission, {**recorded, "ends": recorded["ends"].T})


def test_every_id_was_played_with_success():
    assert len(kept("babyai")) == 96
    for id, recorded in kept("babyai").items():
        assert np.any(recorded["rewards"] > 0), id
        limit = make(id)[0].time_limit
        assert np.all(recorded["numbers"][:, 0] <= limit), id
        if make(id)[0].clauses < 4 and "Synth" not in id:
            assert np.all(recorded["numbers"][:, 0] == limit), id


# ---- generators


@functools.cache
def draw(id):
    env, params = make(id)
    levels = jax.jit(jax.vmap(env.generate, (0, None)))(KEYS, params)
    env.as_levels().validate(jax.tree.map(lambda x: x[:50], levels))
    return jax.tree.map(np.asarray, levels)


QUICK_DRAWN = {"BabyAI-" + id for id in ("GoToLocal-v0", "MiniBossLevel-v0", "PutNextS6N3-v0")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "id", [pytest.param(id, marks=() if id in QUICK_DRAWN else pytest.mark.slow) for id in kept("babyai_levels")]
)
def test_levels_are_distributed_as_the_reference(id):
    env, levels, theirs = make(id)[0], draw(id), kept("babyai_levels")[id]
    ours = features(levels.grid, levels.position, levels.direction, levels.mission, env.room_size)
    names, values = list(ours), np.stack(list(ours.values()))
    variance = np.var(values, 1) / len(KEYS) + theirs["variance"] / 1500
    # Four and a half standard deviations, and a level more or less of what is too rare to have one.
    bound = 4.5 * np.sqrt(variance) + (theirs["variance"] > 0) / 1500
    wrong = np.flatnonzero(np.abs(np.mean(values, 1) - theirs["mean"]) > bound + 1e-4 * np.abs(theirs["mean"]))
    assert not len(wrong), [(names[i], np.mean(values[i]), theirs["mean"][i], bound[i]) for i in wrong]
    assert np.count_nonzero(variance) > 10


@pytest.mark.slow
def test_generators_hold_what_the_missions_need():
    """A locked door's key lies elsewhere, what is asked for is there, and it is no level twice."""
    levels = draw("BabyAI-Unlock-v0")
    kind, color, state = kind_of(levels.grid), color_of(levels.grid), state_of(levels.grid)
    locked = (kind == DOOR) & (state == LOCKED)
    assert np.all(np.sum(locked, (1, 2)) == 1)
    keys = (kind == KEY) & (color == np.max(np.where(locked, color, 0), (1, 2), keepdims=True))
    assert np.all(np.any(keys, (1, 2)))
    assert len(np.unique(levels.grid.reshape(len(levels.grid), -1), axis=0)) == len(levels.grid)
    # Distractors are in eight rooms, three each, and the key in one of these: so the locked room is empty.
    inner = np.isin(kind, (KEY, BALL, BOX)).reshape(len(kind), -1)
    y, x = np.divmod(np.arange(22 * 22), 22)
    per_room = np.stack([np.sum(inner[:, y // 7 * 3 + x // 7 == room], 1) for room in range(9)], 1)
    assert np.all(np.sort(per_room, 1) == [0, 3, 3, 3, 3, 3, 3, 3, 4])


@pytest.mark.slow
def test_limits_follow_the_mission():
    levels = draw("BabyAI-MiniBossLevel-v0")
    verbs = levels.mission[:, 1::9]
    navigations = np.sum(verbs > 0, 1) + np.sum(verbs == Verb.PUT_NEXT, 1)
    assert np.all(levels.max_steps == navigations * 25 * 4) and len(np.unique(navigations)) == 8
    env, params = make("BabyAI-MiniBossLevel-v0")
    assert int(params.max_steps) == env.time_limit == 800
    capped = jax.jit(jax.vmap(env.generate, (0, None)))(KEYS[:100], params.replace(max_steps=jnp.int32(300)))
    assert np.all(capped.max_steps == np.minimum(levels.max_steps[:100], 300))


@pytest.mark.slow
def test_rows_are_flooded_as_cells():
    for height, width in ((7, 31), (22, 9)):
        passable = jax.random.bernoulli(KEYS[0], 0.62, (100, height, width))
        start = jnp.arange(100) + width
        passable = passable.reshape(100, -1).at[jnp.arange(100), start].set(True).reshape(passable.shape)
        rows, cells = (np.asarray(jax.vmap(f)(passable, start)) for f in (rooms._reachable_by_rows, reachable))
        np.testing.assert_array_equal(rows, cells)
        assert 0.1 < np.mean(cells) < 0.9


# ---- missions

ROOM = """
    ############
    ##......By##
    ##>>Kr....##
    ##......Ab##
    ##Ab......##
    ############
"""
ENV = LevelGen(room_size=6, num_rows=1, num_cols=1, num_dists=4, locked_room_prob=0.0, params_are_level=True)
RED_KEY, YELLOW_BOX, BLUE_BALL = Thing(KEY, 1), Thing(BOX, 5), Thing(BALL, 3)
go_to_key, take_key = Clause(Verb.GO_TO, RED_KEY), Clause(Verb.PICK_UP, RED_KEY)
go_to_box, take_ball = Clause(Verb.GO_TO, YELLOW_BOX), Clause(Verb.PICK_UP, BLUE_BALL)
put_key_to_box = Clause(Verb.PUT_NEXT, RED_KEY, YELLOW_BOX)
step_of = jax.jit(lambda env, *args: env.step(jax.random.key(0), *args), static_argnums=0)


def mission(*clauses, order=Order.ALONE, several=()):
    """Of four clauses or None; descriptions numbered in `several` fit more than one object."""
    given = [clause or Clause() for clause in clauses] + [Clause()] * (4 - len(clauses))
    things = jnp.array([[clause.thing, clause.other] for clause in given], jnp.int32)
    numbers = instructions.encode(order, jnp.array([clause.verb for clause in given], jnp.int32), things)
    return instructions.with_several(numbers, jnp.isin(jnp.arange(8), jnp.array([*several, -1])))


def play(actions, told, env: BabyAI = ENV, room=ROOM, max_steps=100):
    """At which step an episode ended, with which reward; None where it did not."""
    level = env.level(room, tuple(int(x) for x in told), max_steps=max_steps)
    state = env.start(level)
    for t, action in enumerate(actions, 1):
        ts = step_of(env, state, jnp.int32(action), level)
        if ts.terminated | ts.truncated:
            assert bool(ts.terminated) or t == max_steps
            return t, float(ts.reward)
        state = ts.state
    return None


def won(t):
    return t, pytest.approx(1 - 0.009 * t)


AROUND = [LEFT, FORWARD, RIGHT, FORWARD, FORWARD]  # up and along the wall to the box
BACK = [RIGHT, RIGHT, FORWARD, LEFT]  # and to where the key was


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "actions", "end"),
    [
        (mission(go_to_key), [DONE], won(1)),
        (mission(go_to_key), [LEFT, LEFT, DROP, TOGGLE, RIGHT, RIGHT], won(6)),
        (mission(take_key), [FORWARD, TOGGLE, DROP, PICKUP], won(4)),
        (mission(go_to_box), AROUND, won(5)),
        # In order: what comes too early does not count, what comes with the first does.
        (mission(go_to_key, None, take_key, order=Order.THEN), [PICKUP], won(1)),
        (mission(take_key, None, go_to_key, order=Order.THEN), [PICKUP], won(1)),
        (mission(take_key, None, go_to_box, order=Order.THEN), [*AROUND, DONE, LEFT], None),
        (mission(go_to_box, None, take_key, order=Order.THEN), [PICKUP, *AROUND], None),
        (mission(go_to_box, None, take_key, order=Order.THEN), [PICKUP, *AROUND, PICKUP], None),
        (mission(go_to_box, None, go_to_key, order=Order.AFTER), [DONE, *AROUND], won(6)),
        (mission(take_key, None, go_to_box, order=Order.AFTER), [PICKUP, *AROUND], None),
        # Both, in any order; what is done stays done.
        (mission(take_key, go_to_box), [PICKUP, DROP, *AROUND], won(7)),
        (mission(go_to_box, take_key), [PICKUP, *AROUND], won(6)),
        (mission(go_to_key, go_to_box, take_key, None, order=Order.THEN), [PICKUP, *AROUND], None),
        (mission(take_key, None, go_to_key, go_to_box, order=Order.THEN), [PICKUP, *AROUND], won(6)),
        # Where the key was counts until the next drop, of whatever; then only where it is.
        (mission(go_to_box, None, go_to_key, order=Order.THEN), [PICKUP, *AROUND, *BACK], won(10)),
        (mission(go_to_box, None, go_to_key, order=Order.THEN), [PICKUP, *AROUND, DROP, *BACK], None),
        (mission(go_to_box, None, go_to_key, order=Order.THEN), [PICKUP, *AROUND, LEFT, LEFT, DROP], won(9)),
        # Next to it, not askew; by dropping it.
        (mission(put_key_to_box), [PICKUP, LEFT, FORWARD, RIGHT, FORWARD, DROP], won(6)),
        (mission(put_key_to_box), [PICKUP, FORWARD, FORWARD, LEFT, DROP], won(5)),
        (mission(put_key_to_box), [PICKUP, FORWARD, DROP, PICKUP, DROP], None),
        (mission(put_key_to_box, go_to_key), [PICKUP, FORWARD, FORWARD, LEFT, DROP], won(5)),
    ],
)
def test_missions_are_judged(told, actions, end):
    assert play(actions, told) == end


@pytest.mark.slow
@pytest.mark.light
def test_objects_are_meant_as_they_lie_at_the_start():
    """The ball that was on the right is meant wherever it is, its like is not; if any will do, either is."""
    room = """
        ############
        ##Ab......##
        ##>>Kr....##
        ##Ab......##
        ##......By##
        ############
    """
    on_left, on_right = Thing(BALL, 3, Place.LEFT), Thing(BALL, 3, Place.RIGHT)
    up, down = [LEFT, PICKUP], [RIGHT, PICKUP]
    told = mission(Clause(Verb.PICK_UP, on_right))
    assert play(down, told, room=room) == won(2)
    assert play([*up, DROP, PICKUP], told, room=room) is None
    for actions in (up, down):
        assert play(actions, mission(take_ball, several=[0]), room=room) == won(2)
    carry = [*down, FORWARD, FORWARD, LEFT, FORWARD, FORWARD, LEFT, DROP]  # the right one, by way of the box
    for thing, end in ((on_right, won(9)), (on_left, None)):
        told = mission(go_to_box, None, Clause(Verb.GO_TO, thing), order=Order.THEN)
        assert play(carry, told, room=room) == end


@pytest.mark.slow
def test_strict_missions_fail():
    told = tuple(int(x) for x in PickupDist(debug=True).tell(take_ball))
    room = "############## \n ##>>KrAb....## \n" + 4 * " ##..........## \n" + " ##############"
    for debug, end in ((True, (1, 0.0)), (False, None)):
        assert play([PICKUP], told, PickupDist(debug=debug, params_are_level=True), room) == end
    assert play(
        [DONE, PICKUP], told, PickupDist(debug=True, params_are_level=True), room.replace("KrAb", "AbKr")
    ) == won(2)


@pytest.mark.slow
@pytest.mark.parametrize("env", [OpenTwoDoors(debug=True), OpenDoorsOrder(debug=True), OpenDoorsOrder()])
def test_doors_in_order(env):
    """The first door, then the second; toggling another one first fails if strict, and so, as in the reference, does
    the first door where the second clause is strict."""
    row = "##" + ".." * 4 + "##" + ".." * 4 + "##" + ".." * 4 + "##"
    wall = "##" * 16
    rows = [wall, *[row] * 4, wall, row, "##" + ".." * 4 + "Cb" + "..<<...." + "Cr" + ".." * 4 + "##", *[row] * 2, wall]
    rows = [*rows, *[row] * 4, wall]
    blue, red = (Clause(Verb.OPEN, Thing(DOOR, color)) for color in (3, 1))
    to_blue, to_red = [FORWARD, TOGGLE], [RIGHT, RIGHT, FORWARD, FORWARD, TOGGLE]
    env, told = env.as_levels(), env.tell(blue, red, Order.THEN)

    def end(actions):
        return play(actions, told, env, "\n".join(rows))

    first_strict, second_strict = env.strict
    assert end(to_red) == ((5, 0.0) if first_strict else None)
    assert end(to_blue) == ((2, 0.0) if second_strict else None)
    if not second_strict:
        assert end([*to_blue, TOGGLE, TOGGLE, RIGHT, RIGHT, FORWARD, FORWARD, FORWARD, TOGGLE]) == won(10)


@pytest.mark.slow
def test_an_object_in_hand_at_the_start():
    """What is carried is no longer there; putting it down with the first action does not count."""
    env = PutNext(room_size=5, start_carrying=True, params_are_level=True)
    wall, row = "##" * 9, "##" + ".." * 7 + "##"
    room = "\n".join([wall, row, "##Kr>>..By" + ".." * 3 + "##", row, wall])
    told = env.tell(put_key_to_box)
    level = env.level(room, tuple(int(x) for x in told), max_steps=100)
    obs, state = env.reset(KEYS[0], level)
    assert int(kind_of(state.carrying)) == KEY and not np.any(np.asarray(kind_of(state.grid)) == KEY)
    assert obs["image"][3, 6].tolist() == [KEY, 0, 0]
    assert play([DROP], told, env, room) is None
    assert play([DROP, PICKUP, DROP], told, env, room) == won(3)
    assert play([DONE, DROP], told, env, room) == won(2)


def test_missions_in_words():
    ball, door = Thing(BALL, 0, Place.FRONT), Thing(DOOR, 6, Place.LEFT)
    told = mission(Clause(Verb.PUT_NEXT, Thing(0, 4), ball), Clause(Verb.OPEN, door), go_to_box, order=Order.AFTER)
    told = instructions.with_several(told, jnp.arange(8) == 1)
    words = "put the purple object next to a ball in front of you and open the grey door on your left"
    assert ENV.mission_text(told) == f"{words} after you go to the yellow box"
    assert GoTo().mission_text(GoTo().tell(go_to_key)) == "go to the red key"


@pytest.mark.slow
def test_missions_of_one_shape():
    """With `clauses=4` every id's mission is of one shape, and judged and read the same."""
    wide, narrow = OpenDoorsOrder(clauses=4), OpenDoorsOrder()
    params = narrow.default_params
    ours, theirs = (jax.jit(jax.vmap(env.generate, (0, None)))(KEYS[:20], params) for env in (wide, narrow))
    assert ours.mission.shape == (20, 37) and theirs.mission.shape == (20, 19)
    assert [wide.mission_text(m) for m in ours.mission] == [narrow.mission_text(m) for m in theirs.mission]
    np.testing.assert_array_equal(ours.grid, theirs.grid)
    assert OneRoom(clauses=4).missions == ENV.missions


# ---- bad input


def test_unfit_settings_and_levels():
    for make_env, words in (
        (lambda: LevelGen(clauses=1), "from 4 on"),
        (lambda: GoTo(clauses=3), "1, 2 or 4"),
        (lambda: GoTo(room_size=4, num_rows=1, num_cols=1), "num_dists=18 must be from 1 to 1 at room_size=4"),
        (lambda: LevelGen(action_kinds=("dance",)), "dance"),
        (lambda: LevelGen(num_rows=1, num_cols=1), "locked_room_prob"),
        (lambda: OpenDoor(select_by="smell"), "smell"),
        (lambda: OpenTwoDoors(first_color="pink"), "pink"),
        (lambda: PutNext(objs_per_room=7), "objs_per_room=7"),
    ):
        with pytest.raises(ValueError, match=words):
            make_env()
    for told, words in (
        (mission(Clause(Verb.GO_TO, Thing(BALL, 1))), "go to the red ball"),
        (mission(go_to_key, several=[0]), "go to a red key"),
        (mission(take_key, order=Order.THEN), "no sentence"),
        (mission(None, take_key), "no sentence"),
        (mission(go_to_key, None, take_key), "no sentence"),
        (mission(Clause(Verb.PUT_NEXT, RED_KEY)), "each verb"),
        (mission(Clause(Verb.OPEN, RED_KEY)), "each verb"),
    ):
        with pytest.raises(ValueError, match=words):
            ENV.level(ROOM, tuple(int(x) for x in told))


@pytest.mark.slow
def test_mutants_are_levels():
    env = ENV
    level = env.level(ROOM, tuple(int(x) for x in mission(Clause(Verb.GO_TO, Thing(BALL, 3, Place.FRONT)))))
    mutants = jax.jit(jax.vmap(env.mutate, (0, None)))(KEYS[:200], level)
    env.validate(mutants)
    assert len(np.unique(np.asarray(mutants.grid).reshape(200, -1), axis=0)) > 5
    assert len(np.unique(np.asarray(mutants.position))) > 5
