"""Compiling for machines that are not here: reading what a compiler wrote, targets, limits, and the command.

The compilers themselves are no part of the test environment; `make test-targets` runs them.
"""

import contextlib
import dataclasses
import importlib.util
import io
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import SingleDeviceSharding

from jaxrl import registry
from jaxrl.host import cli
from jaxrl.host.ahead import (
    DoesNotFitError,
    Memory,
    MissingPluginError,
    Report,
    Target,
    compilation,
    compile_for,
    hlo,
    run,
    target_of,
    targets,
    topology_devices,
)
from jaxrl.host.ahead.hlo import Collective, Loop
from jaxrl.host.run.sharding import sizes_of
from tools.tables import by_family

# A program as the TPU compiler writes it: no trip counts, cycles in the configuration of each kernel. By hand.
PROGRAM = """HloModule jit_f, is_scheduled=true

%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %inside = f32[8]{0} multiply(%p, %p), backend_config={"estimated_cycles":"999"}
}

%inner_body (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t = (s32[]{:T(128)}, /*index=1*/f32[8]{0:T(1024)S(1)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%t), index=0
  %copied = s32[]{:T(128)} copy(%i)
  %three = s32[] constant(3)
  %next = s32[]{:T(128)} add(%three, %copied), metadata={op_name="jit(f)/while/body/add"}
  %x = f32[8]{0} get-tuple-element(%t), index=1
  %y = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused, backend_config={"estimated_cycles":"10","x":["0"]}
  %all = f32[8]{0} all-reduce(%y), replica_groups={{0,1}}, to_apply=%sum, metadata={op_name="jit(f)/psum"}
  ROOT %out = (s32[]{:T(128)}, f32[8]{0}) tuple(%next, %all)
}

%inner_condition (t: (s32[], f32[8])) -> pred[] {
  %t = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %end = s32[]{:T(128)} constant(12)
  ROOT %less = pred[]{:T(512)} compare(%i, %end), direction=LT
}

%outer_body (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %x = f32[8]{0} get-tuple-element(%t), index=1
  %two = s32[] constant(2)
  %start = (s32[], f32[8]{0}) tuple(%two, %x)
  %inner = (s32[], f32[8]{0}) while(%start), condition=%inner_condition, body=%inner_body, metadata={op_name="inner"}
  %z = f32[8]{0} get-tuple-element(%inner), index=1
  ROOT %out = (s32[], f32[8]{0}) tuple(%next, %z)
}

%outer_condition (t: (s32[], f32[8])) -> pred[] {
  %t = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %end = s32[] constant(5)
  ROOT %less = pred[] compare(%i, %end), direction=LT
}

%until_condition (t: (s32[], f32[8])) -> pred[] {
  %t = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %end = s32[] constant(5)
  ROOT %equal = pred[] compare(%i, %end), direction=NE
}

%cheap (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %c = f32[8]{0} copy(%p), backend_config={"estimated_cycles":"1"}
}

%dear (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %s = f32[8]{0} sort(%p), dimensions={0}, to_apply=%less, backend_config={"estimated_cycles":"7"}
}

ENTRY %main (n: s32[], x: f32[8], which: pred[]) -> f32[8] {
  %n = s32[] parameter(0)
  %x = f32[8]{0} parameter(1)
  %which = pred[] parameter(2)
  %zero = s32[] constant(0)
  %room = f32[8]{0} custom-call(), custom_call_target="AllocateBuffer"
  %start = (s32[], f32[8]{0}) tuple(%zero, %x)
  %outer = (s32[], f32[8]{0}) while(%start), condition=%outer_condition, body=%outer_body, metadata={op_name="outer"}
  %y = f32[8]{0} get-tuple-element(%outer), index=1
  %chosen = f32[8]{0} conditional(%which, %y, %y), branch_computations={%cheap, %dear}
  %again = (s32[], f32[8]{0}) tuple(%n, %chosen)
  %until = (s32[], f32[8]{0}) while(%again), condition=%until_condition, body=%outer_body, metadata={op_name="until"}
  %asked = f32[8]{0} custom-call(%chosen), custom_call_target="xla_python_gpu_callback", metadata={op_name="ask"}
  %single = u32[1,1]{1,0} reshape(%n)
  %nothing = f32[8]{0} reverse(%y), dimensions={0}
  ROOT %z = f32[8]{0} get-tuple-element(%until), index=1
}
"""


def test_what_a_program_holds():
    found = hlo.contents(PROGRAM)
    inner = 4  # 2, 5, 8, 11
    assert [(loop.name, loop.rounds, loop.depth) for loop in found.loops] == [
        *[("outer", 5, 0), ("inner", inner, 1)],
        *[("until", None, 0), ("inner", inner, 1)],
    ]
    assert found.loops[0].kernels == inner * 2 and found.loops[0].cycles == inner * 10
    # Both outer loops' fusions and exchanges (the unknown loop's once), the dearer branch, the call and the reversal.
    assert found.kernels_run == (5 + 1) * inner * 2 + 1 + 2
    assert found.cycles == (5 + 1) * inner * 10 + 7
    assert found.unestimated == {"all-reduce": 6 * inner, "custom-call": 1, "reverse": 1}
    assert found.kernels == 2 + 2 + 2  # of the inner body, of the branches, of the entry
    assert found.conditionals == 1
    assert found.collectives == (
        Collective("all-reduce", 32, 5 * inner, 2, "jit(f)/psum"),
        Collective("all-reduce", 32, inner, 2, "jit(f)/psum"),
    )
    assert found.host_transfers == ("custom-call: ask",)


def test_a_loop_that_starts_elsewhere_is_counted_from_zero():
    found = hlo.contents(PROGRAM.replace("tuple(%two, %x)", "tuple(%i, %x)"))
    assert found.loops[1].rounds == 4  # 0, 3, 6, 9
    known = PROGRAM.replace(
        'body=%outer_body, metadata={op_name="until"}',
        'body=%outer_body, backend_config={"known_trip_count":{"n":"6"}}',
    )
    assert [loop.rounds for loop in hlo.contents(known).loops if loop.depth == 0] == [5, 6]
    with pytest.raises(ValueError, match="no ENTRY"):
        hlo.contents("module @jit_f {}")


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[2048,4]{0,1:T(4,128)S(1)}", 2048 * 16),
        ("bf16[3]{0}", 6),
        ("pred[]{:T(512)}", 1),
        ("(s32[]{:T(128)}, /*index=1*/u8[10]{0}, f8e4m3fn[4])", 18),
        ("s4[5]", 3),
    ],
)
def test_bytes_of_shapes(shape, size):
    assert hlo.bytes_of(shape) == size


# ---- targets


def test_targets_are_read_as_they_are_written():
    assert target_of("tpu-v5e")[1] == (1, 1) and target_of("V5P")[0].name == "tpu-v5p"
    assert target_of("tpu-v5p:2x2x4")[1] == (2, 2, 4) and target_of("h100:16")[1] == (16,)
    for target in targets.TARGETS.values():
        assert target.memory > 2**34 * 0.9 and (target.platform == "cuda") == ("core_count" in target.description)
        assert target.platform == "cuda" or target.clock > 1e9
        assert target.description.count("{") == target.description.count("}")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tpu-v7", "no such machine is known.*h100"),
        ("h10", "Did you mean 'h100'"),
        ("tpu-v5e:16", "as in tpu-v5e:4x4"),
        ("tpu-v5p:4x4", "as in tpu-v5p:2x2x4"),
        ("tpu-v5e:", "2 axes"),
        ("tpu-v5e:0x2", "2 axes"),
        ("h100:2x2", "as in h100:8"),
    ],
)
def test_targets_that_are_none(spec, said):
    with pytest.raises(ValueError, match=said):
        target_of(spec)


def test_a_missing_plug_in_is_said_with_its_install_command(monkeypatch):
    monkeypatch.setattr(targets, "_found", lambda module: False)
    for spec, extra in (("tpu-v5e", "tpu"), ("h100", "cuda")):
        with pytest.raises(MissingPluginError, match=rf"pip install .*\[{extra}\]"):
            compile_for(jnp.sin, (jnp.ones(3),), spec)
    assert not targets._found("jaxrl.no_such_module.at_all")


def test_what_the_plug_in_refuses_is_one_sentence(monkeypatch):
    def refuse(platform, **options):
        asked.append(options)
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: Topology layout is not divisible\nmore")

    asked = []
    monkeypatch.setattr(targets, "_found", lambda module: True)
    monkeypatch.setattr(targets.topologies, "get_topology_desc", refuse)
    for name in ("TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD", "TPU_WORKER_HOSTNAMES", "TPU_ACCELERATOR_TYPE"):
        monkeypatch.setenv(name, "1")  # so that they are as before afterwards
    with pytest.raises(ValueError, match=r"^tpu-v5e:3x3: the plug-in does not know it: Topology .* divisible$"):
        topology_devices("tpu-v5e:3x3")
    with pytest.raises(ValueError, match="hosts of 8"):
        topology_devices("h100:12")
    for spec in ("tpu-v4", "h100:4", "h100:16"):
        with pytest.raises(ValueError, match="does not know it"):
            topology_devices(spec)
    assert asked[0] == {"topology_name": "v5e:3x3"}
    one = {"topology_name": "v4:1x1x1", "chip_config_name": "megacore", "chips_per_host_bounds": [1, 1, 1]}
    assert asked[1] == one
    assert [options["topology"] for options in asked[2:]] == ["1x1x4", "1x2x8"]


# ---- compiling, with this machine's compiler in place of another's


@pytest.fixture
def here(monkeypatch):
    """A target that is this machine."""
    target = Target("here", "cpu", 2**34, "cpu")
    for module in (compilation, run):
        monkeypatch.setattr(module, "topology_devices", lambda spec: jax.devices()[:1])
    monkeypatch.setattr(compilation, "target_of", lambda spec: (target, (1,)))
    return target


def test_a_report_of_a_real_compiler(here, monkeypatch):
    def program(weights, x, count):
        def body(x, _):
            x = jax.lax.while_loop(lambda x: x.sum() < 10, lambda x: jnp.tanh(x @ weights["a"]) + 1, x)
            return x, x.sum()

        return jax.lax.fori_loop(0, count, lambda i, x: jax.lax.scan(body, x, None, length=7)[0], x)

    shape = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    jitted = jax.jit(program, donate_argnums=1)
    one = SingleDeviceSharding(jax.devices()[0])
    report = compile_for(jitted, ({"a": shape}, shape, 1), "here", (one, one, one))
    assert [(loop.rounds, loop.depth) for loop in report.loops] == [(None, 0), (7, 1), (None, 2)]
    assert [loop.depth for loop in report.unknown_loops] == [0, 2]
    assert report.memory.arguments == 2 * 64 + 4 and report.memory.aliased == report.memory.outputs == 64
    assert report.memory.needed >= 2 * 64 + 4 + report.memory.temporaries
    assert report.flops and report.estimated_seconds is None and report.seconds_of(report.loops[0]) is None
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report
    monkeypatch.setattr(compilation, "target_of", lambda spec: (dataclasses.replace(here, memory=100), (1,)))
    with pytest.raises(DoesNotFitError, match="here: the program does not fit: it needs .* a device, which has 100"):
        compile_for(jitted, ({"a": shape}, shape, 1), "here")


def test_shapes_keep_their_own_shardings_and_types():
    one, other = SingleDeviceSharding(jax.devices()[0]), SingleDeviceSharding(jax.devices()[0], memory_kind="device")
    key = jax.eval_shape(lambda: jax.random.key(0))
    own = jax.ShapeDtypeStruct((2,), jnp.int8, sharding=other)
    tree, number = compilation._placed(({"key": key, "own": own, "array": jnp.ones(3)}, 1), one)
    assert tree["key"].dtype == key.dtype and tree["own"].sharding is other and tree["array"].sharding is one
    assert tree["array"].shape == (3,) and number.weak_type and number.dtype == jnp.int32 and number.shape == ()


@pytest.mark.parametrize(
    ("message", "needed"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (24.00G) "
            "exceeds available HBM (15.75G).",
            24 << 30,
        ),
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.50M of 15.75G hbm.", 35 << 19),
        ("RESOURCE_EXHAUSTED: something else", 0),
        ("INTERNAL: broken", None),
    ],
)
def test_what_compilers_say_of_too_little_memory(message, needed):
    assert compilation._exceeded(message) == needed


TINY = "--config.num-envs 2 --config.num-steps 4 --config.num-epochs 1 --config.num-minibatches 1 --config.hidden 4"


@pytest.mark.slow
@pytest.mark.light
def test_the_program_is_the_one_that_fit_calls(here):
    _, recipe = experiment(f"ppo Acrobot-v1 {TINY}")
    found = run.compile_run(recipe, 3, "here")
    assert found.steps == 3 * 2 * 4 and found.update.depth == 0 and found.update.rounds is None
    assert 4 in [loop.rounds for loop in found.report.loops]  # of the rollout
    assert found.report.memory.aliased > 0  # the carry is donated
    assert found.seconds is None and found.waits  # resets, on a CPU


def experiment(words):
    from jaxrl.host.cli.experiment import experiment as parsed
    from jaxrl.host.cli.train import TrainFlags

    return parsed("train", words.split(), TrainFlags)


def test_a_mesh_is_of_all_devices(monkeypatch):
    monkeypatch.setattr(run, "topology_devices", lambda spec: [None] * 16)
    with pytest.raises(ValueError, match="--mesh seeds=4: it is of 4 devices, and tpu-v5e:4x4 has 16"):
        run.compile_run({}, 4, "tpu-v5e:4x4", "seeds=4")


# ---- a process with a limit


def test_a_compiler_that_is_not_done_in_time_is_ended(monkeypatch):
    began, start = [], subprocess.Popen

    def sleeper(command, **options):
        began.append(start([sys.executable, "-c", "import time; time.sleep(600)"], **options))
        return began[0]

    monkeypatch.setattr(run.subprocess, "Popen", sleeper)
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match=r"tpu-v5e: the compiler was not done after 0.2 s .*--limit"):
        run.within(0.2, {}, 1, "tpu-v5e")
    assert time.monotonic() - begin < 60 and began[0].poll() is not None


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("import os; os.abort()", ChildProcessError, "ended by SIGABRT; it does not say why"),
        (
            "import os; os.write(2, b'F00 x.cc:7] Check failed: a <= b'); os.abort()",
            ChildProcessError,
            "ended by SIGABRT; it says: a <= b",
        ),
        (
            "import os; os.kill(os.getpid(), 9)",
            ChildProcessError,
            "SIGKILL; the memory of this machine may be too small",
        ),
        ("raise SystemExit('it broke')", ChildProcessError, "it broke"),
        ("""print('{"error": "ValueError", "message": "no"}')""", ValueError, "^no$"),
        ("""print('{"error": "MissingPluginError", "message": "pip"}')""", MissingPluginError, "pip"),
        ("""print('{"error": "DoesNotFitError", "needed": 9, "available": 4}')""", DoesNotFitError, "needs 9 bytes"),
    ],
)
def test_how_a_compiler_ends_is_an_error_here(code, error, said, monkeypatch):
    start = subprocess.Popen
    monkeypatch.setattr(run.subprocess, "Popen", lambda command, **o: start([sys.executable, "-c", code], **o))
    with pytest.raises(error, match=said):
        run.within(60, {}, 1, "tpu-v5e")


def test_the_process_answers_its_job(monkeypatch, capsys):
    answers = iter([canned(1), DoesNotFitError("h100", 9, 4), NotImplementedError("no such task")])

    def compile_run(recipe, seeds, target, mesh):
        assert (recipe, seeds, target, mesh) == ({"algo": "ppo"}, 2, "h100", "envs=2")
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(run, "compile_run", compile_run)
    said = []
    for _ in range(3):
        job = {"recipe": {"algo": "ppo"}, "seeds": 2, "target": "h100", "mesh": "envs=2"}
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(job)))
        assert run.main() == 0
        said.append(json.loads(capsys.readouterr().out))
    assert Report.from_json(said[0]["report"]) == canned(1).report and said[0]["steps"] == 128
    assert said[1:] == [
        {"error": "DoesNotFitError", "needed": 9, "available": 4},
        {"error": "NotImplementedError", "message": "no such task"},
    ]


# ---- the largest that fits


def canned(needed, available=1000, target="tpu-v5e"):
    """A report of a program of so many bytes."""
    report = Report(
        target=target,
        devices=1,
        compile_seconds=1.0,
        memory=Memory(needed, 0, 0, 0, 0, 0, available),
        flops=1e9,
        bytes_accessed=2e6,
        optimal_seconds=-1.0,
        estimated_seconds=2.0,
        seconds_a_cycle=1e-9,
        kernels=3,
        kernels_run=30,
        unestimated={"sort": 2},
        loops=(Loop("updates", None, 0, 30, 1e6), Loop("steps", 16, 1, 1, 1e3), Loop("resets", None, 2, 1, 1e2)),
        conditionals=1,
        collectives=(Collective("all-reduce", 4, 16, 1, "norm"),),
        host_transfers=(),
    )
    return run.RunReport(report, 128)


def memory_of(fixed, each, tried):
    def attempt(count):
        tried.append(count)
        needed = round(fixed + each * count)
        if needed > 1000:
            raise DoesNotFitError("tpu-v5e", needed, 1000)
        return canned(needed)

    return attempt


@pytest.mark.parametrize("start", [1, 3, 64, 10_000])
@pytest.mark.parametrize(("fixed", "each"), [(0, 1), (400, 1), (10, 7), (0, 900), (1, 0.01)])
def test_the_largest_that_fits(start, fixed, each):
    tried = []
    count, found = run.largest(memory_of(fixed, each, tried), start)
    limit = (1000.5 - fixed) // each
    assert count <= limit < count + max(1, 2 ** int(math.log2(count)) // 8)
    assert found.report.memory.needed == round(fixed + each * count)
    assert len(set(tried)) == len(tried) <= 22  # a compilation each


@pytest.mark.parametrize("multiple", [6, 16, 24, 256])
@pytest.mark.parametrize("most", [300, 1000, 5000])
def test_the_largest_that_a_mesh_divides(multiple, most):
    tried = []
    count, _ = run.largest(memory_of(0, 1000 / most, tried), 100, multiple=multiple)
    assert all(x % multiple == 0 for x in tried)
    times, limit = count // multiple, most // multiple
    assert times <= limit < times + max(1, 2 ** int(math.log2(times)) // 8)


def test_the_largest_of_what_never_fits():
    tried = []
    with pytest.raises(DoesNotFitError, match="it needs 2,001 bytes|needs 1.95 KiB"):
        run.largest(memory_of(2000, 1, tried), 8)
    assert tried == [8, 4, 2, 1]
    with pytest.raises(ValueError, match="memory does not grow with it: 64 need no more than 1"):
        run.largest(memory_of(15, 0, tried), 1)


# ---- the command


def command(words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(["compile", *words.split()])
    return status, out.getvalue(), err.getvalue()


def test_the_command_asks_for_the_run_of_the_words(monkeypatch, tmp_path):
    def within(seconds, recipe, seeds, target, mesh):
        asked.append((seconds, recipe["config"]["num_envs"], recipe["hyper"]["gamma"], seeds, target, mesh))
        return memory_of(0, recipe["config"]["num_envs"] * seeds / 8, [])(1)

    asked = []
    monkeypatch.setattr(run, "within", within)
    file = tmp_path / "said.json"
    status, out, err = command(
        "ppo CartPole-v1 --for tpu-v5e --config.num-envs 512 --seeds 4 --hyper.gamma 0.5 --limit 9 --mesh envs=1 "
        f"--json {file}"
    )
    assert status == 0, err
    assert asked == [(9, 512, 0.5, 4, "tpu-v5e", "envs=1")]
    said = " ".join(out.split())
    for part in (
        "4 seeds, for tpu-v5e",
        "memory 256 bytes of 1000 bytes (26%)",
        "an update 128 steps of environments, on 1 device",
        "estimate 1 ms an update, 1.28e+05 steps/s without 2 of 30 kernels run",
        "one pass no time known to the cost model, each loop's body once 1e+09 operations",
        "loops 16 rounds; of unknown length: 1 resets conditionals 1",
        "collectives 1 exchange in an update: 1 all-reduce, run 16 times, 64 bytes a device",
    ):
        assert part in said, (part, out)
    assert max(map(len, out.splitlines())) <= 120
    kept = json.loads(file.read_text())
    assert kept["seeds"] == 4 and kept["update_seconds"] == 1e-3 and Report.from_json(kept["report"]).kernels == 3
    asked.clear()
    status, out, err = command("ppo CartPole-v1 --for h100 --config.num-envs 64 --largest num-envs")
    assert status == 0 and "largest num-envs that fits: 7,680" in out and "100% of the memory" not in err
    assert asked[0][1] == 64 and len(asked) < 10
    status, out, err = command("ppo CartPole-v1 --for h100 --config.num-envs 64 --largest seeds")
    assert status == 0 and "largest seeds that fits: 120" in out and "120 seeds, for h100" in out


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("ppo CartPole-v1", 2, "--for tpu-v5e"),
        ("ppo", 2, "compile needs an algorithm and an environment"),
        ("ppo CartPole-v1 --for tpu-v9", 1, "no such machine"),
        ("ppo CartPole-v1 --for tpu-v5e --seeds 0", 1, "--seeds 0: it must be at least 1"),
        ("ppo CartPole-v1 --for tpu-v5e --mesh seed=2", 1, "it is written seeds=4,envs=2"),
        ("ppo CartPole-v1 --for tpu-v5e --limit 0", 1, "--limit 0.0: it must be positive"),
        ("ppo CartPole-v1 --for tpu-v5e --largest hidden", 1, "--largest hidden: it is one of seeds, num-envs"),
        ("ppo CartPole-v1 --for tpu-v5e --json no/such/x.json", 1, "there is no folder no/such"),
    ],
)
def test_bad_words(words, status, said, monkeypatch):
    monkeypatch.setattr(run, "within", lambda *arguments: pytest.fail("it was compiled"))
    actual, out, err = command(words)
    assert actual == status and said in err and not out, (out, err)


def test_what_does_not_fit_is_one_sentence(monkeypatch):
    monkeypatch.setattr(run, "within", lambda *arguments: memory_of(2**35, 0, [])(1))
    status, out, err = command("ppo CartPole-v1 --for tpu-v5e")
    assert status == 1 and not out and err.count("\n") == 1
    assert err.startswith("jaxrl: tpu-v5e: the program does not fit: it needs 32.00 GiB a device")


# ---- the table


@pytest.fixture
def table():
    path = Path(__file__).parents[2] / "benchmarks" / "accelerator_targets.py"
    spec = importlib.util.spec_from_file_location("accelerator_targets", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_short_table_has_every_family_and_the_long_one_every_class(table):
    ids = {row for row in table.SHORT if ":" not in row}
    assert all(ids & set(family) for family in by_family().values())
    environments, rows = registry.environments(), table.every()
    ours = {target for target in registry.first_of_each_class() if target.startswith("jaxrl.envs.")}
    assert len(set(rows)) == len(rows)
    assert {str(environments[row].target) for row in rows if ":" not in row} == ours
    trained = {name for name in registry.list_algos() if registry.algo_actions(name)}
    assert {row.partition(":")[0] for row in rows if ":" in row} == trained
    assert table.wanted(["Cart*"]) == [row for row in rows if row.startswith("Cart")]
    assert table.wanted(["ppo:Maze-v0,num_envs=8"]) == ["ppo:Maze-v0,num_envs=8"]


def test_rows_are_written_into_the_page(table, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- rows -->\nold\n<!-- end of rows -->\nafter\n")
    row = {"compile_seconds": 7.4, "kernels": 1234, "conditionals": 2, "loops": [128, None], "scratch": 1.5e6}
    row |= {"optimal_seconds": 5e-6 - 1, "estimated_seconds": 1e-4, "sources": table.fingerprint()}
    rows = {"CartPole-v1 tpu-v5e": row, "CartPole-v1 h100": {**row, "sources": "older"}}
    rows["ppo:CartPole-v1,num_envs=8 tpu-v5e"] = {"error": "a|b", "sources": table.fingerprint()}
    kept = {"tpu": "tpu-v5e", "gpu": "h100", "rows": rows}
    table.write_page(page, table.tables(kept))
    text = page.read_text()
    assert text.startswith("before\n<!-- rows -->\n") and text.endswith("<!-- end of rows -->\nafter\n")
    assert "old\n" not in text
    cells = "| 7 | 1,234 | 2 | 1 | 1 | 1.5 |"
    assert f"| CartPole-v1 (older sources) {cells} 5.0 + 1? | 100.0 {cells}\n" in text
    assert "| ppo:CartPole-v1, num_envs=8 | a/b |" in text and "| not compiled |" in text
    table.write_page(page, table.tables(kept))
    assert page.read_text() == text


def test_what_is_exchanged_where_nothing_should_be_is_found(table):
    row = {"collectives": [["all-gather", 0, 4, 1], ["all-reduce", 2, 8, 16]], "compile_seconds": 9.0}
    row |= {"update_seconds": 1e-3, "steps": 5000, "sources": table.fingerprint()}
    assert table.beyond(row, table.OUTSIDE) == {"all-reduce"} and not table.beyond(row, table.SUMS)
    text = table.mesh_table({"meshes": {"tpu-v5e:4x4 seeds=16 32 4": row}})
    # 16 exchanges of a microsecond each; 5,000 steps in 1.016 ms.
    cells = (
        "| `tpu-v5e:4x4` | `seeds=16` | 32 x 4 | 9 | 1 all-gather | none | 1 all-reduce | 16, 128 | 0.0 | 1.0 | 4.9 |"
    )
    assert cells in text.splitlines()
    row = {"conditionals": 0, "loops": [128], "optimal_seconds": 4e-6}
    assert not table.excess("CartPole-v1", row) and not table.excess("Snake-v0", {**row, "conditionals": 3})
    worse = {"conditionals": 1, "loops": [128, None], "optimal_seconds": 5e-6 - 2}
    said = table.excess("CartPole-v1", worse)
    assert said == "1 conditionals, a loop of unknown length, 5.0 + 2? us, more than 4.5"
    # The meshes that are compiled can be: they divide what they divide, and use all chips.
    for target, mesh, seeds, num_envs in table.MESHES:
        sizes = sizes_of(mesh)
        assert not seeds % sizes.get("seeds", 1) and not num_envs % sizes.get("envs", 1)
        assert math.prod(sizes.values()) == math.prod(target_of(target)[1])
