"""Meshes: what they refuse, and that a run on forced devices is the run on one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from jax.sharding import AbstractMesh

import jaxrl
from jaxrl import list_algos
from jaxrl.algos import ppo
from jaxrl.host.run.sharding import check, make_mesh, sizes_of

ROOT = Path(__file__).parents[3]
LIGHT = "--xla_cpu_use_fusion_emitters=false"


def on_devices(count, *words):
    """What `on_devices.py` prints, on so many devices."""
    flags = f"--xla_force_host_platform_device_count={count} {LIGHT}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "tests/host/run/on_devices.py", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_sizes_are_read_from_words():
    assert sizes_of("seeds=4,envs=2") == {"seeds": 4, "envs": 2}
    for words in ("", "seeds", "seeds=0", "seeds=-1", "seeds=2,seeds=2", "batch=2", "seeds=2;envs=2"):
        with pytest.raises(ValueError, match="it is written seeds=4,envs=2"):
            sizes_of(words)


def test_a_mesh_that_cannot_be():
    with pytest.raises(ValueError, match="mesh seeds=4,envs=2 is of 8 devices, and there are 1 .*device_count"):
        make_mesh("seeds=4,envs=2")
    with pytest.raises(ValueError, match="no axis 'batch'; there are seeds and envs"):
        make_mesh({"batch": 2})

    class Device:
        platform = "cpu"

        def __init__(self, process):
            self.process_index = process

    with pytest.raises(ValueError, match="The processes have 2, 1 devices: give each as many"):
        make_mesh({"seeds": 3}, [Device(0), Device(0), Device(1)])
    with pytest.raises(ValueError, match="is of 2 devices, and there are 4"):  # one process would have none
        make_mesh({"seeds": 2}, [Device(0), Device(0), Device(1), Device(1)])


def test_a_mesh_divides_seeds_and_environments():
    algo = ppo.make(jaxrl.make("CartPole-v1")[0], ppo.Config(num_envs=6, num_steps=4))
    mesh = AbstractMesh((4, 4), ("seeds", "envs"))
    with pytest.raises(ValueError, match="mesh seeds=4 does not divide the number of seeds = 6; 2 does"):
        check(mesh, algo, 6)
    with pytest.raises(ValueError, match="mesh envs=4 does not divide num_envs = 6; 2 does"):
        check(mesh, algo, 8)
    check(make_mesh("seeds=1", jax.devices()[:1]), algo, None)


ASKED = {
    "train ppo CartPole-v1 --mesh seeds=3,envs=2": 6,
    "resume runs/a --mesh=seeds=2": 2,
    "sweep ppo CartPole-v1 --mesh seeds=100000": 256,
    "meta-train lpg GridWorld-small-v0 --mesh seeds=2 --mesh seeds=4": 4,
    "train ppo CartPole-v1 --mesh=seeds=2 --mesh seeds=4 --seeds 4": 4,
    "train ppo CartPole-v1 --mesh seeds=3 --distributed": -1,  # each process says its own
    "compile ppo CartPole-v1 --mesh seeds=3": -1,  # of the target's chips
    "train ppo CartPole-v1 --mesh three": -1,
    "train ppo CartPole-v1 --mesh": -1,
    "train ppo CartPole-v1": -1,
}


def of_cpu(program, **environment):
    """What a program prints in a process of its own."""
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_command_asks_for_the_devices_of_its_mesh():
    program = f"""
import jax
from jaxrl.host.cli.command import make_devices
for words in {list(ASKED)}:
    jax.config.update("jax_num_cpu_devices", -1)
    make_devices(words.split())
    print(jax.config.jax_num_cpu_devices)
"""
    assert of_cpu(program).split() == list(map(str, ASKED.values()))
    words = list(ASKED)[0].split()
    program = f"import jax\nfrom jaxrl.host.cli.command import make_devices\nmake_devices({words})\n"
    program += "print(jax.config.jax_num_cpu_devices, jax.device_count())"
    assert of_cpu(program) == "6 6\n"
    assert of_cpu(program, XLA_FLAGS="--xla_force_host_platform_device_count=2") == "-1 2\n"  # the user's word
    assert of_cpu(program, JAX_NUM_CPU_DEVICES="2") == "2 2\n"


@pytest.mark.slow
@pytest.mark.light
def test_a_run_over_devices_that_the_command_makes(tmp_path):
    words = "train a2c CartPole-v1 --seeds 2 --total-steps 64 --config.num-envs 2 --config.num-steps 4"
    words += f" --out {tmp_path / 'run'}"
    words += " --config.hidden 8 --eval-episodes 1 --eval-max-steps 5 --no-progress --mesh seeds=2"
    program = f"from jaxrl.host.cli.command import main\nassert main({words.split()}) == 0\n"
    said = of_cpu(program + "import jax\nprint(jax.device_count())", JAX_DISABLE_MOST_OPTIMIZATIONS="1")
    assert said.splitlines()[-1] == "2" and json.loads((tmp_path / "run" / "config.json").read_text())


@pytest.mark.slow
@pytest.mark.light
def test_a_run_does_not_depend_on_the_mesh(tmp_path):
    found = on_devices(8, "meshes", tmp_path)
    for mesh, most in {"seeds=4": 1e-6, "envs=2": 1e-5, "seeds=4,envs=2": 1e-5}.items():
        assert max(found[mesh]) < most, (mesh, found[mesh])  # XLA sums in another order where a batch is smaller
    difference, devices = found["resumed"]
    assert difference < 1e-5 and devices == ["2"]
    assert found["sweep"] < 1e-6
    assert found["refused"] == "mesh seeds=4 does not divide points x seeds = 6; 2 does."
    assert found["collectives seeds=8"] == ["all-gather"] and found["outside"], (
        "seeds exchange nothing while they learn"
    )
    assert found["collectives envs=2"] == ["all-gather", "all-reduce"]
    assert found["rows of a minibatch"], "each device computes the gradient of all 16, not of its 8"


@pytest.mark.slow
@pytest.mark.light
def test_seeds_on_two_devices():
    difference, devices = on_devices(2, "two_devices")
    assert difference < 1e-5 and devices == 2


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("by", ["gradients", "strategies"])
def test_rules_on_two_devices(by):
    difference, devices = on_devices(2, "rules", by)
    assert difference < 1e-5 and devices == 2


@pytest.mark.slow
@pytest.mark.light
def test_networks_of_other_libraries_on_two_devices():
    found = on_devices(2, "networks")
    assert sorted(found) == ["equinox", "functions", "nnx"]
    assert all(difference < 1e-5 and devices == 2 for difference, devices in found.values()), found


IN_ONE_ENVIRONMENT = "mesh envs=2 does not divide num_envs = 1; 1 does."
SHUFFLED = (
    "alphazero apg arsq awac bc bcq_discrete c51 combo cql cql_discrete cqn crossq crr_discrete dagger ddpg ddpm_bc "
    "dqn dvl edac expo famo2o fb flow_bc gorl h2o heron hg_dagger iql iqn mbpo mex mopo morel ppo ppo_gbrl ppo_rnn pqn "
    "pqn_rnn props qr_dqn r2d2 rainbow ravl rebrac recoil reinflow rem rlif rnd ro2o sac sac_rnn spo srl td3 td3_bc "
    "td3_rnn"
).split()


@pytest.mark.slow
@pytest.mark.light
def test_environments_of_every_algorithm_are_divided():
    found = on_devices(2, "traced")
    assert sorted(found) == list_algos()
    alone = [name for name, what in found.items() if what == IN_ONE_ENVIRONMENT]
    assert len(alone) == 18, alone  # learners of one stream, table or set of arms
    for name in set(found) - set(alone):
        divided, constraints = found[name]
        assert divided >= 4, name
        assert (constraints > 0) == (name in SHUFFLED), f"{name}: are its minibatches whole on every device?"


@pytest.mark.slow
@pytest.mark.light
def test_other_families_do_not_depend_on_the_mesh():
    for name, difference in on_devices(2, "algorithms", "dqn", "sac", "ppo_rnn").items():
        assert difference < 1e-4, (name, difference)
