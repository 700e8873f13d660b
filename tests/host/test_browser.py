"""Pages in a browser: what they are told over HTTP, who is refused, and both pages in a Chromium without a window."""

import contextlib
import http.client
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types
import urllib.error
import urllib.request
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxrl
from jaxrl import zoo
from jaxrl.host.browser import Game, Player, Watched, boards, controls, game, play, server, watch, watched
from jaxrl.host.run.run_folder import RunFolderError, Tail
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete
from tests.host.chromium import CHROMIUM, chromium

ROOT = Path(__file__).resolve().parents[2]
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


def asked(served, path, sent=None, **headers):
    """`(status, answer)` of a request as the page makes it."""
    body = None if sent is None else json.dumps(sent).encode()
    request = urllib.request.Request(served.url + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            content, kind = answer.read(), answer.headers["Content-Type"]
            return answer.status, json.loads(content) if kind == "application/json" else content
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def told(served, path, sent=None):
    status, answer = asked(served, path, sent)
    assert status == 200, answer
    return answer


def small_maze():
    env, params = jaxrl.make("Maze-v0", height=5, width=4)
    return env, params.replace(walls=jnp.int32(6))


@pytest.fixture(scope="module")
def maze():
    env, params = small_maze()
    with play(env, params, key=3) as served:
        yield served


@pytest.fixture(scope="module")
def pole():
    with play(jaxrl.make("CartPole-v1")[0], key=5) as served:
        yield served


# ---- the environment


def test_steps_are_those_of_the_environment(pole):
    env, params = jaxrl.make("CartPole-v1")
    keys = game.keys_of(5)
    obs, state = jax.jit(env.reset)(keys.reset, params)
    step, total = jax.jit(env.step), 0.0
    found = told(pole, "reset", {"seed": 5})
    np.testing.assert_array_equal(np.float32(found["observation"][0]["values"]), obs)
    assert found["observation"][0]["names"] == list(env.observation_names)
    assert (found["time"], found["limit"], found["total"], found["reward"]) == (0, 500, 0, None)
    for t in range(200):
        ts = step(jax.random.fold_in(keys.step, t), state, jnp.int32(1), params)
        found = told(pole, "step", {"action": 1})
        state, total = ts.state, total + float(ts.reward)
        np.testing.assert_array_equal(np.float32(found["observation"][0]["values"]), ts.obs)
        assert (found["time"], found["reward"], found["total"]) == (t + 1, float(ts.reward), total)
        assert (found["terminated"], found["truncated"]) == (bool(ts.terminated), bool(ts.truncated))
        if ts.terminated:
            break
    assert ts.terminated and t < 20
    status, answer = asked(pole, "step", {"action": 1})
    assert status == 400 and "over" in answer["error"]
    told(pole, "reset", {})
    again = told(pole, "step", {"action": 1, "times": 100})  # as long as the episode goes
    assert again["terminated"] and (again["time"], again["reward"], again["total"]) == (t + 1, total, total)


def test_the_picture_is_the_environments_own(pole):
    env, params = jaxrl.make("CartPole-v1")
    told(pole, "reset", {"seed": 7})
    state = jax.device_get(jax.jit(env.reset)(game.keys_of(7).reset, params)[1])
    with Image.open(io.BytesIO(told(pole, "picture.png?v=1"))) as image:
        np.testing.assert_array_equal(np.asarray(image), env.render(state, params))


def test_what_the_page_knows(pole, maze):
    about = told(pole, "about")
    assert about["id"] == "CartPole-v1" and about["words"].startswith("CartPole-v1: keep a pole upright")
    assert about["controls"]["actions"] == [
        {"label": "left", "keys": ["ArrowLeft", "0"]},
        {"label": "right", "keys": ["ArrowRight", "1"]},
    ]
    assert about["clock"]["real"] and about["clock"]["fps"] == pytest.approx(50)
    assert about["player"] is None and about["levels"] == {"drawn": False, "mutate": False}
    about = told(maze, "about")
    assert [a["label"] for a in about["controls"]["actions"]][:3] == ["turn left", "turn right", "forward"]
    assert not about["clock"]["real"] and about["levels"] == {"drawn": True, "mutate": True}


@pytest.mark.parametrize(
    ("path", "sent", "words"),
    [
        ("step", {}, "action None: it must be a number from 0 to 1"),
        ("step", {"action": 2}, "action 2: it must be a number from 0 to 1"),
        ("step", {"action": True}, "action True"),
        ("step", {"action": [0]}, "action [0]"),
        ("step", {"action": 0, "times": 0}, "times 0: it must be from 1 to 1000"),
        ("step", {"action": "policy"}, "no policy"),
        ("reset", {"seed": -1}, "seed -1"),
        ("reset", {"seed": 1.5}, "seed 1.5"),
        ("level", {"mutate": True}, "cannot be changed"),
        ("nothing", {}, "no such page"),
        ("step", [0], "no JSON object"),
    ],
)
def test_what_is_wrong_is_said(path, sent, words, pole):
    status, answer = asked(pole, path, sent)
    assert status in (400, 404) and words in answer["error"]


# ---- levels


def test_a_level_is_changed_and_played(maze):
    env, params = small_maze()
    kit, keys = env.levels, game.keys_of(3)
    level = kit.generate(keys.level, params)
    before = told(maze, "reset", {"seed": 3})
    assert before["board"]["things"]["wall"] == np.flatnonzero(level.wall_map).tolist()
    free = sorted({*range(20)} - {cell for cells in before["board"]["things"].values() for cell in cells})[0]
    after = told(maze, "level", {"thing": "wall", "cell": free})
    assert after["board"]["things"]["wall"] == sorted([*before["board"]["things"]["wall"], free])
    assert (after["time"], after["edits"]) == (0, 1)
    changed = level.replace(wall_map=level.wall_map.at[divmod(free, 4)].set(True))
    obs, state = kit.env.reset(keys.reset, changed)
    ts = kit.env.step(jax.random.fold_in(keys.step, 0), state, jnp.int32(0), changed)
    found = told(maze, "step", {"action": 0})
    assert found["observation"][0]["values"] == [int(ts.obs["direction"])]
    with Image.open(io.BytesIO(told(maze, "picture.png"))) as image:
        np.testing.assert_array_equal(np.asarray(image), kit.env.render(ts.state, changed))
    assert told(maze, "reset", {})["board"] == after["board"]  # the same level again
    mutated = told(maze, "level", {"mutate": True})
    assert mutated["edits"] == 2
    assert told(maze, "reset", {"seed": 3})["board"] == before["board"]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"thing": "door", "cell": 1}, "one of wall, agent, goal"),
        ({"thing": "wall", "cell": 20}, "from 0 to 19"),
        ({"thing": "wall", "cell": "1"}, "from 0 to 19"),
        ({}, "one of wall"),
    ],
)
def test_a_level_that_cannot_be_is_refused(sent, words, maze):
    before = told(maze, "reset", {"seed": 3})
    status, answer = asked(maze, "level", sent)
    assert status == 400 and words in answer["error"]
    goal = before["board"]["things"]["goal"][0]
    status, answer = asked(maze, "level", {"thing": "wall", "cell": goal})  # the task's own check
    assert status == 400 and "wall" in answer["error"]
    assert told(maze, "state")["board"] == before["board"]


BOARDS = ("Maze-v0", "MiniGrid-Empty-6x6-v0", "Sokoban-v0", "ProcMaze-v0", "Minesweeper-v0", "JaxNav-v0")


@pytest.mark.parametrize("id", [*BOARDS, "GridWorld-small-v0"])
def test_a_cell_of_the_board_is_that_of_the_picture(id):
    """What is flipped at a cell changes the picture there, and nowhere else."""
    env, params = jaxrl.make(id)
    kit = env.levels
    level = jax.device_get(kit.generate(jax.random.key(0), params))
    board = boards.board_of(kit.env, level)
    thing = next(iter(board.things))
    taken = {int(cell) for cells in board.things.values() for cell in cells}
    inner = [r * board.columns + c for r in range(1, board.rows - 1) for c in range(1, board.columns - 1)]
    cell = next(cell for cell in inner if cell not in taken)
    changed = boards.changed(kit.env, level, thing, cell)
    assert {*boards.board_of(kit.env, changed).things[thing]} == {*board.things[thing], cell}
    alike = jax.tree.map(lambda x, y: (x.shape, x.dtype) == (y.shape, y.dtype), level, jax.device_get(changed))
    assert jax.tree.all(alike)
    same = boards.changed(kit.env, jax.device_get(changed), thing, cell)
    jax.tree.map(np.testing.assert_array_equal, same, level)
    if id == "Minesweeper-v0":
        return  # mines are not seen
    try:
        kit.validate(changed)
    except ValueError:
        pytest.skip("this one cell would close the way")
    levels = [jax.tree.map(jnp.asarray, x) for x in (level, changed)]
    pictures = [kit.env.render(kit.env.reset(jax.random.key(0), x)[1], x).astype(int) for x in levels]
    rows, columns = np.nonzero(np.abs(pictures[0] - pictures[1]).sum(2))
    height, width, _ = pictures[0].shape
    at = np.median(rows) / height * board.rows, np.median(columns) / width * board.columns
    row, column = divmod(cell, board.columns)
    assert abs(at[0] - row - 0.5) < 1 and abs(at[1] - column - 0.5) < 1


def test_things_of_a_grid_stay():
    env, params = jaxrl.make("MiniGrid-DoorKey-5x5-v0")
    kit = env.levels
    level = jax.device_get(kit.generate(jax.random.key(0), params))
    board = boards.board_of(kit.env, level)
    door = next(i for i, cell in enumerate(level.grid.reshape(-1)) if cell & 255 == 4)
    assert door not in board.things["wall"]
    with pytest.raises(ValueError, match="there is a door"):
        boards.changed(kit.env, level, "wall", door)
    moved = boards.changed(kit.env, level, "agent", 6)
    assert int(moved.position) == 6


# ---- controls


def test_names_and_keys_of_actions():
    def of(id, **settings):
        env, params = jaxrl.make(id, **settings)
        return controls.described(env.action_space(params), env.action_names)

    def keys(id, **settings):
        return {a["label"]: a["keys"][0] for a in of(id, **settings)["actions"]}

    arrows = {"up": "ArrowUp", "right": "ArrowRight", "down": "ArrowDown", "left": "ArrowLeft"}
    assert keys("Snake-v0") == keys("FrozenLake-v1") == keys("Sokoban-v0") == keys("CliffWalking-v1") == arrows
    assert keys("Seaquest-MinAtar") == {"stay": "s", **arrows, "fire": "f"}
    assert keys("Breakout-MinAtar") == {"stay": "s", "left": "ArrowLeft", "right": "ArrowRight"}
    assert len(of("Breakout-MinAtar", minimal_actions=False)["actions"]) == 6
    assert keys("Acrobot-v1") == {"-1": "ArrowLeft", "0": "ArrowDown", "1": "ArrowRight"}
    assert of("Acrobot-v1")["idle"] == 1 and of("MountainCar-v0")["idle"] == 1 and of("CartPole-v1")["idle"] is None
    mini = {"turn left": "ArrowLeft", "turn right": "ArrowRight", "forward": "ArrowUp"}
    mini |= {"pick up": "p", "drop": "d", "toggle": "t", "done": "o"}
    assert keys("MiniGrid-DoorKey-5x5-v0") == mini
    xland = {"forward": "ArrowUp", "turn right": "ArrowRight", "turn left": "ArrowLeft"}
    assert keys("XLand-MiniGrid-R1-9x9") == {**xland, "pick up": "p", "put down": "u", "toggle": "t"}
    assert [k[0] for k in controls.keys(["move up", "go left", "look right", ""])] == ["ArrowUp", "ArrowLeft", "l", "3"]
    assert [a["keys"] for a in of("Blackjack-v1")["actions"]] == [["0"], ["1"]]
    (entry,) = of("Pendulum-v1")["entries"]
    assert entry == {"name": "torque [N m]", "low": -2, "high": 2, "neutral": 0, "keys": ["ArrowLeft", "ArrowRight"]}
    ahead, turning = of("JaxNav-v0")["entries"]  # more of w turns to the left
    assert (ahead["keys"], turning["keys"]) == (["ArrowDown", "ArrowUp"], ["ArrowRight", "ArrowLeft"])
    across, upright = of("PointMass-v0")["entries"]
    assert (across["keys"], upright["keys"]) == (["ArrowLeft", "ArrowRight"], ["ArrowDown", "ArrowUp"])
    assert [e["keys"] for e in of("Quadcopter-Hover-v0")["entries"]][:2] == [["a", "q"], ["s", "w"]]
    assert [e["n"] for e in of("Finite-CC-DFIM-v0")["entries"]] == [8, 8]
    with pytest.raises(ValueError, match="no controls"):
        controls.described(Dict({"a": Discrete(2)}), ())


NAMED = ("BabyAI-GoTo-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0", "XLand-MiniGrid-R1-9x9", "GridWorld-small-v0")
NAMED += ("Asterix-MinAtar", "Freeway-MinAtar", "SpaceInvaders-MinAtar", "Game2048-v0", "Taxi-v4", "TwoGoalGrid-v0")
NAMED += ("WindyGridworld-v0", "WindyWalk-v0", "ButtonGrid-v0", "ProcMaze-v0", "Catch-bsuite", "MountainCar-bsuite")
NAMED += ("CartPoleSwingup-bsuite", "Maze-FourRooms-v0")


@pytest.mark.parametrize("id", NAMED)
def test_every_action_has_a_name(id):
    env, params = jaxrl.make(id)
    found = controls.labels(env.action_names, env.action_space(params).n)
    assert not [name for name in found if name.isdecimal()]


def test_actions_that_were_sent():
    box = Box(-1.0, jnp.array([1.0, jnp.inf]), (2,))
    np.testing.assert_array_equal(controls.read(box, [-1, 5.5]), np.float32([-1, 5.5]))
    for said in ([0], [0, float("nan")], [2, 0], "x", [True, 0], None):
        with pytest.raises(ValueError, match="action"):
            controls.read(box, said)
    assert controls.neutral(Box(jnp.array([1.0, -1.0]), jnp.array([3.0, 1.0]), (2,))).tolist() == [2, 0]
    np.testing.assert_array_equal(controls.read(MultiDiscrete((2, 3)), [1, 2]), [1, 2])
    with pytest.raises(ValueError, match="from 0 to 2"):
        controls.read(MultiDiscrete((2, 3)), [1, 3])
    with pytest.raises(ValueError, match="forbidden"):
        controls.read(Discrete(2), 1, np.array([True, False]))


def test_masks_agents_and_what_draws_no_picture():
    snake = Game(jaxrl.make("Snake-v0")[0])
    forbidden = [i for i, allowed in enumerate(server.plain(snake.get["state"]({})["mask"])) if not allowed]
    for action in forbidden[:1]:
        with pytest.raises(ValueError, match="forbidden"):
            snake.post["step"]({"action": action})
    deaf = Game(jaxrl.make("Blackjack-v1")[0])
    assert deaf.get["state"]({})["picture"] is False
    with pytest.raises(ValueError, match="draws no picture"):
        deaf.get["picture.png"]({})
    swarm = Game(jaxrl.make("Quadcopter-Flock-v0")[0])
    swarm.begin(0)
    own = [0.5, 0.0, 0.0, 0.0]
    np.testing.assert_array_equal(swarm.action_of(own), np.float32([own, *[[0] * 4] * 3]))
    drawn = np.asarray(swarm.action_of(own, "random"))
    assert drawn[0].tolist() == own and np.abs(drawn[1:]).min() > 0 and drawn.shape == (4, 4)
    with pytest.raises(ValueError, match="neutral or random"):
        swarm.action_of(own, "asleep")


def test_a_policy_acts_as_it_is_deployed():
    found = zoo.load("ppo/CartPole-v1")
    played = Game(found.env, found.params, 0, Player(found.algo, found.policy, "zoo:ppo/CartPole-v1"))
    assert played.get["about"]({})["player"] == "zoo:ppo/CartPole-v1"
    suggested = server.plain(played.get["state"]({})["suggested"])
    state = played.post["step"]({"action": "policy"})
    assert int(state["action"]) == suggested
    state = played.post["step"]({"action": "policy", "times": 1000})
    assert state["truncated"] and state["total"] == 500


# ---- who is refused


def raw(served, method, path, headers=(), body=None):
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_others_are_refused(pole):
    secret = "/" + pole.url.split("/")[3] + "/"
    own = ("Host", f"127.0.0.1:{pole.port}")
    assert raw(pole, "GET", secret + "state", [own])[0] == 200
    assert raw(pole, "GET", secret + "state", [("Host", f"localhost:{pole.port}")])[0] == 200
    for host in (
        "evil.example",
        f"evil.example:{pole.port}",
        f"127.0.0.1.evil.example:{pole.port}",
        "",
    ):  # a name that was rebound, or none
        status, said = raw(pole, "GET", secret + "state", [("Host", host)])
        assert status == 403 and b"is not this machine" in said
    for path in ("/", "/state", "/wrong/state", secret.upper() + "x", "//evil"):
        status, said = raw(pole, "GET", path, [own])
        assert status == 403 and b"the whole address" in said
    sent = [own, ("Content-Length", "2")]
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{pole.port}"):
        status, said = raw(pole, "POST", secret + "reset", [*sent, ("Origin", origin)], b"{}")
        assert status == 403 and b"may change nothing" in said
    assert raw(pole, "POST", secret + "reset", [*sent, ("Origin", pole.url[: -len(secret)])], b"{}")[0] == 200
    for length in ("-1", "x", str(2**30)):
        assert raw(pole, "POST", secret + "reset", [own, ("Content-Length", length)])[0] == 400
    for path in ("server.py", "../browser/server.py", "..%2fserver.py", "watch.js"):  # no file but the page's own
        assert raw(pole, "GET", secret + path, [own])[0] == 404
    assert raw(pole, "GET", secret, [own])[1].startswith(b"<!doctype html>")


def test_a_path_that_is_no_address(pole):
    status, said = raw(pole, "GET", "http://[", [("Host", f"127.0.0.1:{pole.port}")])
    assert status == 400 and b"is no address" in said


def test_a_connection_that_is_kept_open_ends_with_stop():
    served = watch("nowhere")
    path = "/" + served.url.split("/", 3)[3] + "state"
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read()
        served.stop()
        connection.auto_open = 0  # it is the same connection
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 503 and answer.headers["Connection"] == "close"
        assert b"was stopped" in answer.read()


def test_pages_load_nothing_from_elsewhere():
    for file in server.FILES.glob("*.*"):
        if file.suffix in (".html", ".js", ".css"):
            assert "http" not in file.read_text().replace("http://www.w3.org/2000/svg", ""), file


def test_a_port_that_is_taken_and_stop(pole):
    with pytest.raises(OSError, match=f"port {pole.port} is in use"):
        play(jaxrl.make("CartPole-v1")[0], port=pole.port)
    with pytest.raises(ValueError, match="port 70000"):
        watch("nowhere", port=70000)
    served = watch("nowhere")
    assert served.url in repr(served) and f'src="{served.url}"' in served._repr_html_()
    with pytest.raises(NotImplementedError):  # no Colab: IPython takes the HTML
        served._ipython_display_()
    served.stop()
    served.stop()
    assert "stopped" in repr(served) and "Stopped" in served._repr_html_()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(served.url, timeout=5)


# ---- a run


def write_run(folder, rows, *, seeds=2, total=1000, evaluations=(), summary=None):
    folder.mkdir(parents=True, exist_ok=True)
    config = {"algorithm": "ppo", "env": "CartPole-v1", "hyper": {}, "config": {}, "total_steps": total}
    (folder / "config.json").write_text(json.dumps({**config, "num_seeds": seeds}))
    add_rows(folder, rows)
    with (folder / "evaluations.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in evaluations)
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))


def add_rows(folder, rows):
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def row(update, value, seeds=2, loss=0.5):
    values = [None if value is None else value + seed for seed in range(seeds)]
    return {"update": update, "step": 100 * update, "episode_return": values, "loss": [loss] * seeds}


def test_a_run_is_waited_for_and_grows(tmp_path):
    folder = tmp_path / "x"
    run = Watched(folder)
    state = run.get["state"]({})
    assert state["phase"] == "waiting" and "not there yet" in state["words"]
    write_run(folder, [])
    state = run.get["state"]({})
    assert state["phase"] == "training" and "compiles" in state["words"] and state["step"] == 0
    assert run.get["curve"]({}) == {"steps": [], "mean": [], "seeds": []}
    add_rows(folder, [row(1, None), row(2, 10.0)])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"update": 3, "st')  # a row that is being written
    state = server.plain(run.get["state"]({}))
    assert (state["step"], state["total"], state["rows"]) == (200, 1000, 2)
    assert state["metrics"] == ["episode_return", "loss"] and state["latest"]["episode_return"] == 10.5
    found = server.plain(run.get["curve"]({"metric": "episode_return"}))
    assert found == {"steps": [100, 200], "mean": [None, 10.5], "seeds": [[None, 10], [None, 11]]}
    (folder / "metrics.jsonl").write_text("")  # as a resumed run begins again
    add_rows(folder, [row(1, 3.0)])
    assert run.get["state"]({})["rows"] == 1
    assert server.plain(run.get["curve"]({})["mean"]) == [3.5]
    write_run(folder, [], evaluations=[{"update": 1, "step": 100, "return": [4.0, 6.0], "episodes": 3}])
    (folder / "summary.json").write_text("{}")
    state = server.plain(run.get["state"]({}))
    assert state["phase"] == "finished" and state["judged"] == ["return"] and state["latest"]["return"] == 5
    assert server.plain(run.get["curve"]({"of": "evaluations", "metric": "return"}))["mean"] == [5]
    (folder / "summary.json").write_text('{"interrupted": true}')
    assert "resume" in run.get["state"]({})["words"]
    (folder / "summary.json").unlink()
    os.utime(folder / "metrics.jsonl", (1, 1))
    assert run.get["state"]({})["phase"] == "silent"
    (folder / "config.json").write_text("{")
    assert run.get["state"]({})["phase"] == "wrong"


def test_many_rows_and_seeds_are_shortened():
    rows = [row(u, float(u % 2), seeds=20) for u in range(1, 2001)]
    found = server.plain(watched.curve(rows, "episode_return"))
    assert len(found["steps"]) == watched.POINTS and found["steps"][-1] == 200_000 and found["seeds"] == []
    assert min(found["least"]) >= 0 and max(found["greatest"]) <= 20
    assert np.mean(found["mean"]) == pytest.approx(10, abs=0.1)


def test_what_is_no_run_is_refused(tmp_path):
    (tmp_path / "note.txt").write_text("")
    with pytest.raises(RunFolderError, match="holds no run"):
        Watched(tmp_path)
    with pytest.raises(RunFolderError, match="is no folder"):
        Watched(tmp_path / "note.txt")
    with pytest.raises(ValueError, match="no learning curve"):
        Watched("zoo:ppo/CartPole-v1")
    tail = Tail(tmp_path / "rows.jsonl")
    assert not tail.update()
    tail.file.write_text("3\n")
    with pytest.raises(RunFolderError, match="line 1 is no row"):
        tail.update()


def test_films_of_the_folder_and_no_other_file(tmp_path):
    write_run(tmp_path / "x", [row(1, 1.0)])
    (tmp_path / "x" / "media").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "x" / "media" / "policy-1.gif")
    with watch(tmp_path / "x") as served:
        assert [film["name"] for film in told(served, "state")["films"]] == ["policy-1.gif"]
        assert told(served, "film?name=policy-1.gif").startswith(b"GIF8")
        whole = told(served, "film?name=policy-1.gif")
        request = urllib.request.Request(served.url + "film?name=policy-1.gif")
        for said, first, last in (("0-", 0, len(whole) - 1), ("2-5", 2, 5), ("4-99999", 4, len(whole) - 1)):
            request.add_header("Range", f"bytes={said}")
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert answer.status == 206 and answer.read() == whole[first : last + 1]
                assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{len(whole)}"
        for said in ("bytes=99999-", "bytes=5-2", "bytes=0-1,3-4", "lines=0-1"):
            assert asked(served, "film?name=policy-1.gif", Range=said) == (200, whole)
        with (tmp_path / "x" / "media" / "vast.mp4").open("wb") as file:
            file.truncate(watched.MOST_BYTES + 1)
        status, answer = asked(served, "film?name=vast.mp4")
        assert status == 400 and "more than a page shows" in answer["error"]
        for name in ("../config.json", "config.json", "", "%2e%2e/config.json"):
            status, answer = asked(served, f"film?name={name}")
            assert status == 404 and "is no film" in answer["error"]
        assert asked(served, "made.gif")[0] == 404
        told(served, "film", {})  # which no checkpoint allows
        end = time.monotonic() + 60
        while (made := told(served, "state")["made"])["state"] == "making" and time.monotonic() < end:
            time.sleep(0.05)
        assert made["state"] == "failed" and made["words"]


@pytest.mark.slow
@pytest.mark.light
def test_an_episode_of_the_newest_checkpoint_is_filmed(tmp_path, monkeypatch):
    from jaxrl.host.cli import command

    monkeypatch.setattr(command, "cache_compilations", lambda: None)
    words = "train ppo CartPole-v1 --seeds 2 --total-steps 1 --eval-every 0 --no-progress --out"
    assert command.main([*words.split(), str(tmp_path / "x")]) == 0
    with watch(tmp_path / "x") as served:
        assert told(served, "state")["phase"] == "finished"
        told(served, "film", {"seed": 1})
        end = time.monotonic() + 120
        while (made := told(served, "state")["made"])["state"] == "making" and time.monotonic() < end:
            time.sleep(0.1)
        assert (made["state"], made["seed"], made["update"]) == ("ready", 1, 1)
        assert told(served, "made.gif").startswith(b"GIF8")


# ---- the commands


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_command_serves_until_it_is_stopped(stop, tmp_path):
    args = [sys.executable, "-m", "jaxrl", "watch", str(tmp_path / "x"), "--no-browser"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell job starts with it ignored
    try:
        program = subprocess.Popen(args, cwd=tmp_path, env=env, **pipes)
    finally:
        signal.signal(signal.SIGINT, before)
    with program:
        try:
            url = program.stdout.readline().split()[0]
            with urllib.request.urlopen(url, timeout=60) as page:
                assert b"<title>jaxrl watch</title>" in page.read()
            program.send_signal(stop)
            out, err = program.communicate(timeout=60)
        finally:
            program.kill()  # or `with` waits for ever
    assert program.returncode == 128 + stop and out == ""
    assert err == ("jaxrl: terminated.\n" if stop == signal.SIGTERM else "")


def test_words_of_play(monkeypatch, tmp_path, capsys):
    from jaxrl.host.cli import browse, command

    served = []
    monkeypatch.setattr(browse, "_serve", lambda page, flags: served.append((page, flags)) or 0)
    monkeypatch.setattr(command, "cache_compilations", lambda: None)
    monkeypatch.chdir(tmp_path)
    assert command.main("play FrozenLake-v1 --env.rows 8 --env.columns 8 --params.goal-reward 2 --seed 4".split()) == 0
    page, flags = served.pop()
    # The time limit is that of the larger map, since nobody said another.
    assert (page.task.rows, int(page.params.max_steps), float(page.params.goal_reward)) == (8, 200, 2.0)
    assert page.seed == 4 and flags.port == 0
    assert command.main("play zoo:ppo/CartPole-v1 --key 9 --port 8123 --no-browser --act greedy".split()) == 0
    page, flags = served.pop()
    assert (page.player.name, page.player.greedy, page.seed) == ("zoo:ppo/CartPole-v1", True, 9)
    assert (flags.port, flags.browser) == (8123, False)
    assert command.main(["watch", "runs/later"]) == 0
    assert served.pop()[0].path == Path("runs/later")
    said = []
    monkeypatch.setattr(jax.config, "update", lambda *words: said.append(words))
    assert command.main(["watch", "runs/later"]) == 0 and said == []  # JAX_PLATFORMS of the tests
    monkeypatch.delenv("JAX_PLATFORMS")
    assert command.main(["watch", "runs/later"]) == 0 and said == [("jax_platforms", "cpu")]
    monkeypatch.undo()
    served.clear()
    monkeypatch.setattr(browse, "_serve", lambda page, flags: served.append((page, flags)) or 0)
    monkeypatch.setattr(command, "cache_compilations", lambda: None)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert command.main("play --seed 3 Maze-v0".split()) == 2
    assert "before its flags: jaxrl play Maze-v0 --seed 3" in capsys.readouterr().err
    wrong = {"play": 2, "play Mase-v0": 1, "play CartPole-v1 --params.max-steps 0": 1, "watch zoo:x": 1, "watch": 2}
    for words, status in {**wrong, "play CartPole-v1 --seed -9999999999": 1, "play CartPole-v1 --nothing": 2}.items():
        assert command.main(words.split()) == status, words
        assert capsys.readouterr().err.startswith("jaxrl: ")
    assert command.main(["play", "--help"]) == 0 and "usage: jaxrl play" in capsys.readouterr().out
    assert not served


def test_a_browser_is_started_without_the_secret(monkeypatch):
    from jaxrl.host.cli import browse

    class Stop(Exception):
        pass

    opened, told_of = threading.Event(), {}

    def open_(url):
        file = Path(urllib.request.url2pathname(url.removeprefix("file://")))
        modes = [path.stat().st_mode & 0o777 for path in (file, file.parent)]
        told_of.update(url=url, file=file, modes=modes, text=file.read_text())
        opened.set()

    def sleep(seconds):
        assert opened.wait(60)
        raise Stop

    monkeypatch.setattr(browse.webbrowser, "open", open_)
    monkeypatch.setattr(browse, "time", types.SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(browse, "_has_display", lambda: True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(Stop):
        browse._serve(Watched("nowhere"), browse.PageFlags())
    url = printed.getvalue().split()[0]
    assert url.startswith("http://127.0.0.1:") and f"url={url}" in told_of["text"]
    assert told_of["url"].startswith("file://") and url.split("/")[3] not in told_of["url"]
    assert told_of["modes"] == [0o600, 0o700] and not told_of["file"].parent.exists()


# ---- in a browser


@needs_chromium
def test_play_in_chromium(maze):
    told(maze, "reset", {"seed": 3})
    with chromium() as tab:
        tab.open(maze.url)
        tab.until("!!now && document.getElementById('picture').naturalWidth > 0")
        assert tab.text("id") == "Maze-v0" and tab.text("time") == "0 / 250"
        assert tab.js("[...document.querySelectorAll('[data-action]')].filter((b) => !b.hidden).length") == 4
        before = told(maze, "state")["observation"][0]["values"][0]
        tab.key("ArrowRight")
        tab.until("now.time === 1")
        assert told(maze, "state")["observation"][0]["values"][0] == (before + 1) % 4
        tab.key("ArrowLeft")
        tab.until("now.time === 2")
        assert tab.text("time") == "2 / 250" and told(maze, "state")["action"] == 0
        tab.click("[data-action='2']")
        tab.until("now.time === 3")
        tab.js("document.activeElement.blur()")
        tab.key(" ")  # the clock: nothing is done while no key is held
        tab.until("now.time > 4")
        tab.key(" ")
        tab.until("!running && waiting === 0")
        assert tab.js("document.getElementById('run').getAttribute('aria-pressed')") == "false"
        tab.key("Enter")
        tab.until("now.seed === 4 && now.time === 0")
        assert tab.js("document.querySelectorAll('#board button').length") == 0  # built once it is seen
        tab.click("summary")
        tab.until("document.querySelectorAll('#board button').length === 20")
        walls = tab.js("now.board.things.wall.length")
        free = tab.js("[...document.querySelectorAll('#board button')].findIndex((b) => !b.className)")
        tab.click(f"#board button:nth-child({free + 1})")
        tab.until(f"now.board.things.wall.length === {walls + 1}")
        assert tab.js(f"document.querySelectorAll('#board button')[{free}].className") == "wall"
        assert "changed once" in tab.text("words")
        goal = tab.js("now.board.things.goal[0]")
        tab.click(f"#board button:nth-child({goal + 1})")
        tab.until("document.getElementById('words').className.includes('bad')")
        tab.click("#mutate")
        tab.until("now.edits === 2")
        assert not [e for e in tab.errors if "400" not in str(e)]  # of the wall at the goal


@needs_chromium
def test_sliders_and_held_keys_in_chromium():
    with play(jaxrl.make("Pendulum-v1")[0]) as served, chromium() as tab:
        tab.open(served.url)
        tab.until("!!now")
        tab.key("ArrowRight")
        tab.until("now.time === 1")
        assert told(served, "state")["action"] == [2.0]
        tab.js("(() => { const s = document.querySelector('input[type=range]'); s.value = 0.5; s.oninput(); })()")
        tab.js("act(byHand())")
        tab.until("now.time === 2")
        assert told(served, "state")["action"] == [0.5]
        tab.key("ArrowLeft", held=True)
        tab.until("now.time === 3")
        tab.key(" ")
        tab.until("now.time > 6")
        assert told(served, "state")["action"] == [-2.0]
        tab.let_go("ArrowLeft")
        tab.key(" ")
        tab.until("!running && waiting === 0")
        # Paused and started again while a step is awaited: one clock goes on, not two.
        tab.js("act = () => new Promise((done) => (window.steps ??= []).push(done)), undefined")
        tab.key(" ")
        tab.until("window.steps?.length === 1")
        tab.key(" ")
        tab.key(" ")
        tab.until("steps.length === 2")
        tab.js("steps[0](), undefined")
        time.sleep(0.5)
        assert tab.js("running && steps.length") == 2
        tab.key(" ")
        assert tab.errors == []


@needs_chromium
def test_only_steps_are_left_out_in_chromium(maze):
    told(maze, "reset", {"seed": 3})
    with chromium() as tab:
        tab.open(maze.url)
        tab.until("!!now")
        tab.js("act(0), act(0), act(0), next(), next(), undefined")
        tab.until("waiting === 0")
        assert tab.js("[now.seed, now.time]") == [5, 0]


@needs_chromium
def test_watch_in_chromium(tmp_path):
    folder = tmp_path / "x"
    with watch(folder) as served, chromium() as tab:
        tab.open(served.url)
        tab.until("document.getElementById('words').textContent.includes('waits for the run')")
        write_run(folder, [row(u, float(u)) for u in range(1, 6)])
        tab.until("known && known.rows === 5 && document.querySelectorAll('#card-return .seed').length === 2")
        assert tab.text("title") == "ppo on CartPole-v1" and tab.text("step") == "500"
        assert tab.js("document.getElementById('bar').value") == 0.5
        assert tab.js("document.querySelector('#card-return output').textContent") == "5.5 at 500"
        assert tab.js("document.getElementById('metric').value") == "loss"
        assert tab.js("document.getElementById('make').disabled")
        add_rows(folder, [row(6, 60.0)])
        (folder / "media").mkdir()
        Image.new("RGB", (40, 30)).save(folder / "media" / "policy-6.gif")
        tab.until("document.querySelector('#card-return output').textContent === '60.5 at 600'")
        tab.until("document.querySelector('#film img')?.naturalWidth === 40")
        evaluations = [{"update": 6, "step": 600, "return": [1.0, 2.0], "episodes": 3}]
        write_run(folder, [], evaluations=evaluations, summary={})
        tab.until("known.phase === 'finished' && !document.getElementById('card-evaluation').hidden")
        assert tab.text("evaluated") == "1.5"
        assert tab.errors == []
