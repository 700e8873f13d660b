"""Ids, hints and lazy imports."""

import ast
import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

import jaxrl
from jaxrl import registry
from jaxrl.data.learns import Learns
from jaxrl.envs.classic.cartpole import CartPole


@pytest.fixture(autouse=True)
def own_table(monkeypatch):
    table = dict(registry.environments())
    monkeypatch.setattr(registry, "environments", lambda: table)


@dataclasses.dataclass(frozen=True)
class Sized(CartPole):
    size: int = 3
    id: str = dataclasses.field(default="Sized", kw_only=True)


def test_make_gives_the_environment_and_strongly_typed_params():
    env, params = jaxrl.make("CartPole-v1")
    assert isinstance(env, CartPole) and env.id == "CartPole-v1" and env == jaxrl.make("CartPole-v1")[0]
    assert params.length.dtype == jnp.float32 and not params.length.weak_type and params.max_steps == 500


@pytest.mark.parametrize(
    ("name", "hint"),
    [("CartPole-v0", "'CartPole-v1'"), ("cartpole-v1", "'CartPole-v1'"), ("Pendulm-v1", "'Pendulum-v1'")],
)
def test_unknown_id_names_the_nearest(name, hint):
    with pytest.raises(ValueError, match=f"Unknown environment '{name}'. Did you mean {hint}"):
        jaxrl.make(name)


@pytest.mark.parametrize("name", ["Humanoid-v5", "HumanoidStandup-v4", "Pusher-v5", "swimmer-v3"])
def test_the_tasks_of_mujoco_that_are_not_here_are_said_to_be_so(name):
    there = [id for id in jaxrl.list_envs() if id.endswith("-v5")]
    assert len(there) == 7
    with pytest.raises(ValueError, match=f"'{name}' is of the four .* it has {', '.join(there)}; of the same model"):
        jaxrl.make(name)


def test_a_static_setting_is_of_32_bits():
    with pytest.raises(ValueError, match="FrozenLake-v1: rows=10000000000 is beyond 32 bits"):
        jaxrl.make("FrozenLake-v1", rows=10**10)


def test_unknown_id_without_a_near_one_tells_how_to_list():
    with pytest.raises(ValueError, match=r"'zzzzzz'\. `jaxrl envs` lists all \d+"):
        jaxrl.make("zzzzzz")
    with pytest.raises(ValueError, match=r"Unknown algorithm 'pppo'. Did you mean 'ppo'"):
        jaxrl.get_algo("pppo")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Hoper-v5", "Hopper-v5"),
        ("Walker-v5", "Walker2d-v5"),
        ("DoorKey-8x8-v0", "MiniGrid-DoorKey-8x8-v0"),  # a part of an id
        ("Hover-v0", "Quadcopter-Hover-v0"),
        ("Blackjak-v9", "Blackjack-v1"),
        ("LinearBandits-v0", "LinearBandit-v0"),
        ("NoSuchEnv-v0", None),  # of many of equal version none is close
        ("MyEnv-v0", None),
        ("Bandwagon-v0", None),
        ("Monopoly-v1", None),
    ],
)
def test_hints_are_close(name, near):
    assert registry.nearest(name, [*registry.environments(), "Blackjack-v1"]) == near


GYMNASIUM = """
import gymnasium


class Numpy(gymnasium.Env):
    pass


class Vector(gymnasium.vector.VectorEnv):
    pass


def build(id):
    return Numpy()


gymnasium.register("Mine/Numpy-v0", entry_point=Numpy)
"""


def test_environments_of_gymnasium_are_told_what_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "numpy_environments.py"
    file.write_text(GYMNASIUM)
    for id in (f"{file}:Numpy", f"{file}:Vector", f"{file}:build", f"{file}:Mine/Numpy-v0", "Mine/Numpy-v0"):
        with pytest.raises(ValueError, match=r"(Gymnasium's|a gymnasium environment); jaxrl steps.*Write one"):
            jaxrl.make(id)
    with pytest.raises(ValueError, match="'LunarLander-v3' is an id of Gymnasium's"):
        jaxrl.make("LunarLander-v3")
    module = sys.modules.pop("numpy_environments")
    for thing in (module.Numpy, module.Numpy()):
        with pytest.raises(TypeError, match="is a gymnasium environment; jaxrl steps"):
            jaxrl.make(thing)
    with pytest.raises(TypeError, match="is a gymnasium environment; jaxrl steps"):
        jaxrl.get_algo("ppo").make(module.Numpy())


def test_make_takes_an_id_alone():
    with pytest.raises(TypeError, match=r"CartPole is a class: call it, env = CartPole\(\)"):
        jaxrl.make(CartPole)
    with pytest.raises(TypeError, match="is an environment already"):
        jaxrl.make(CartPole())
    with pytest.raises(TypeError, match="id=3: it is a string"):
        jaxrl.make(3)


def test_static_settings():
    with pytest.raises(ValueError, match=r"CartPole-v1 has no static setting 'length'; it has none"):
        jaxrl.make("CartPole-v1", length=1.0)
    jaxrl.register("Sized-v0", Sized, size=5)
    assert jaxrl.make("Sized-v0")[0].size == 5 and jaxrl.make("Sized-v0", size=7)[0].size == 7
    assert jaxrl.make("Sized-v0")[0].id == "Sized-v0"
    with pytest.raises(ValueError, match=r"'sise'; it has size"):
        jaxrl.make("Sized-v0", sise=7)


def test_register_refuses_an_id_that_stands_for_something_else():
    jaxrl.register("Mine-v0", "jaxrl.envs.classic.cartpole:CartPole")
    jaxrl.register("Mine-v0", "jaxrl.envs.classic.cartpole:CartPole")
    assert isinstance(jaxrl.make("Mine-v0")[0], CartPole)
    for target, settings in (("elsewhere:CartPole", {}), ("jaxrl.envs.classic.cartpole:CartPole", {"size": 1})):
        with pytest.raises(ValueError, match=r"'Mine-v0' is registered already.*another id"):
            jaxrl.register("Mine-v0", target, **settings)


def test_listing():
    everything = jaxrl.list_envs()
    assert everything == sorted(everything) and "CartPole-v1" in everything
    assert jaxrl.list_envs("cartpole-v?") == ["CartPole-v1"]
    assert set(jaxrl.list_envs("POLE")) == {name for name in everything if "pole" in name.lower()} != set()
    assert jaxrl.list_envs("nothing like it") == []
    jaxrl.register("Cart-v9", CartPole)
    assert "Cart-v9" in jaxrl.list_envs("cart*")
    assert "ppo" in jaxrl.list_algos()
    assert all(hasattr(jaxrl.get_algo(name), "make") for name in ["ppo"])


@pytest.mark.slow
@pytest.mark.light
def test_nothing_is_imported_before_it_is_asked_for():
    code = (
        "import jaxrl, sys; jaxrl.list_envs(); jaxrl.list_algos();"
        "tables = {n for n in sys.modules if n.endswith('.ids')};"
        "packages = {n.rpartition('.')[0] for n in tables};"
        "below = {n for n in sys.modules if n.startswith(('jaxrl.envs.', 'jaxrl.algos.'))};"
        "assert tables and below == {n for n in tables | packages if n.startswith(('jaxrl.envs.', 'jaxrl.algos.'))};"
        "assert not {'flax', 'optax', 'orbax', 'brax', 'mujoco', 'matplotlib', 'gymnasium'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_help_waits_for_no_other_library():
    code = (
        "import sys; from jaxrl.host.cli import main; assert main(['--help']) == 0;"
        "assert not {'jax', 'numpy', 'tyro'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, stdout=subprocess.DEVNULL)


def test_a_link_that_git_wrote_as_text_is_named(tmp_path, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    with monkeypatch.context() as patched:
        patched.setattr(registry, "__file__", str(tmp_path / "registry.py"))
        patched.setattr(registry.importlib, "import_module", missing)
        with pytest.raises(ModuleNotFoundError, match=r"No module named 'jaxrl\.envs'"):
            registry._linked("envs")
        (tmp_path / "envs").write_text("../envs")
        with pytest.raises(ImportError, match=r"envs is a text in the place of a link.*core\.symlinks true"):
            registry._linked("envs")


def test_names_that_are_imported_late_are_those_that_editors_see():
    tree = ast.parse(Path(jaxrl.__file__).read_text())
    seen = next(node.body for node in tree.body if isinstance(node, ast.If))
    names = {(node.module, name.name) for node in seen for name in node.names}
    late = {(f"jaxrl.{module}", name) for module, names in jaxrl.NAMES.items() for name in names}
    assert names - late == {("jaxrl", "curriculum"), ("jaxrl", "data"), ("jaxrl", "spaces")} and late <= names
    assert sorted(name for _, name in names) == jaxrl.__all__
    for name in jaxrl.__all__:
        assert getattr(jaxrl, name).__name__.rpartition(".")[2] == name


def test_modules_of_the_package_need_no_import_of_their_own():
    code = (
        "import jaxrl; assert jaxrl.wrappers.__name__ == 'jaxrl.wrappers';"
        "import jaxrl.vector_env; assert callable(jaxrl.vectorize)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    with pytest.raises(AttributeError, match="jaxrl has no 'wrapers'; it has Algorithm, "):
        _ = jaxrl.wrapers


def test_what_an_extra_is_needed_for_is_listed_and_not_taken_for_a_class(monkeypatch):
    ids = jaxrl.list_envs("Playground-*")
    assert "Playground-CartpoleBalance" in ids
    monkeypatch.setattr(registry, "EXTRAS", {"playground": "no_such_module_as_this"})
    assert not any(map(registry.is_available, ids)) and registry.is_available("CartPole-v1")
    assert not any("playground_task" in target for target in registry.first_of_each_class())
    monkeypatch.setattr(registry, "EXTRAS", {"playground": "jax"})
    assert (
        registry.first_of_each_class()["jaxrl.envs.physics.playground_task:PlaygroundTask"]
        == "Playground-PendulumSwingup"
    )


def test_no_two_ids_differ_by_case_alone():
    """Files are named by ids, and some file systems take such names for one."""
    ids = jaxrl.list_envs()
    assert len({id.lower() for id in ids}) == len(ids) > 0


@pytest.mark.parametrize("name", registry.list_algos())
def test_what_an_algorithm_declares_is_in_its_file(name):
    """So that what the command line gives it for that is taken."""
    module, learns = registry.get_algo(name), registry.algo_learns(name)
    arguments = inspect.signature(module.make).parameters
    config = module.Config()
    assert learns.acts or learns.data
    assert not learns.data or "replay" in arguments
    assert bool(learns.model) == ("model" in arguments)
    assert (learns.model == "model_of") == hasattr(module, "model_of")
    assert (learns.data == "windows") == hasattr(module, "window")
    assert not learns.data or learns.priorities == hasattr(config, "prioritised")
    assert learns.goals == hasattr(config, "outcome")


OWN = """
from jaxrl.algos.actor_critic.bc import Config, Hyper, make
from jaxrl.data.learns import Learns

LEARNS = {}
"""


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ('"transitions"', "LEARNS='transitions'; it is a jaxrl.data.learns.Learns"),
        ('Learns(data="steps")', "LEARNS has data='steps'; it is one of '', 'transitions', 'windows'"),
        ('Learns(model="mine")', "LEARNS has model='mine'; it is one of '', 'predictor', 'model_of'"),
    ],
)
def test_what_an_algorithm_of_yours_declares(tmp_path, monkeypatch, said, problem):
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in (("declares_well", 'Learns(data="transitions")'), ("declares_badly", said)):
        (tmp_path / f"{name}.py").write_text(OWN.format(text))
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert registry.algo_learns(str(tmp_path / "declares_well.py")) == registry.algo_learns("bc")
    with pytest.raises(ValueError, match=problem):
        registry.algo_learns(str(tmp_path / "declares_badly.py"))
    for name in ("declares_well", "declares_badly"):
        sys.modules.pop(name, None)


def test_an_algorithm_that_declares_nothing_learns_from_its_own_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "declares_nothing.py").write_text(OWN.partition("LEARNS")[0])
    assert registry.algo_learns(str(tmp_path / "declares_nothing.py")) == Learns()
    sys.modules.pop("declares_nothing")
    with pytest.raises(ValueError, match="Did you mean 'mopo'"):
        registry.algo_learns("mopoo")
