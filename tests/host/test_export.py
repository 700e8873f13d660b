"""Exported policies act as JAX does: C compiled by the system's compiler, ONNX, StableHLO."""

import ctypes
import re
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos import dqn, ppo, ppo_rnn, sac, td3, td3_bc
from jaxrl.environment import Environment, Transition, pytree, strongly_typed
from jaxrl.host import export
from jaxrl.nn import networks
from jaxrl.spaces import Box, Dict, Discrete
from jaxrl.wrappers import agents_as_slots

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler `cc` on this machine")
BATCH = 100
KINDS = {"float": np.float32, "double": np.float64, "int32_t": np.int32, "int64_t": np.int64, "uint8_t": np.uint8}


def test_the_header_says_what_each_number_is():
    env, _ = jaxrl.make("Pendulum-v1")
    algo = ppo.make(env, ppo.Config(num_envs=1, num_steps=1, num_minibatches=1, hidden=()))
    deployed = export.greedy(algo, algo.policy(algo.init(jax.random.key(0))))
    assert deployed.names == {"obs": env.observation_names, "action": env.action_names}
    header = export.to_c(deployed.function, *deployed.examples, names={**deployed.names, "action": ("a*/b",)})
    for line in ("obs[0]  cos(theta)", "obs[2]  theta_dot [rad/s]", "action[0]  a* /b"):
        assert f" *     {line}\n" in header
    assert "cos(theta)" not in export.to_c(deployed.function, *deployed.examples, names={"obs": ("cos(theta)",)})


def test_units_are_those_of_the_params_that_are_given():
    """A drone of 7,500 rpm and a drive of 20 A are told as such, and without their params nothing is guessed."""
    for id, change, told in (
        ("Quadcopter-Hover-v0", lambda p: p.replace(model=p.model.replace(max_rpm=7500.0)), "1 is 7500 rpm"),
        ("Cont-CC-PMSM-v0", lambda p: p.replace(limits=p.limits.replace(i=20.0)), "1 is 20 A"),
    ):
        env, params = jaxrl.make(id)
        algo = ppo.make(env, ppo.Config(num_envs=1, num_steps=1, num_minibatches=1, hidden=()))
        policy = algo.policy(jax.eval_shape(algo.init, jax.random.key(0)))
        with pytest.raises(ValueError, match="params=None: what the numbers of .* stand for depends on its parameters"):
            export.greedy(algo, policy)
        names = export.greedy(algo, policy, change(params)).names
        assert any(told in name for group in names.values() for name in group), names


# ---- targets: a function from lists of arrays (BATCH, ...) to such lists


def run_c(folder, function, *examples, name="policy", outputs=("action",)):
    """The header, compiled, as a function of one flat array an argument; its self-test is run too."""
    header = export.to_c(function, *examples, name=name, outputs=outputs)
    signature = re.search(rf"static inline void {name}\((.*)\)", header)[1]
    kinds = [KINDS[re.search(r"(\w+) \*", p)[1]] for p in signature.split(", ")]
    arguments = [p.rpartition("*")[2] for p in signature.split(", ")]
    sizes = [int(re.search(rf"#define {name.upper()}_{a.upper()}_SIZE (\d+)", header)[1]) for a in arguments]
    (folder / f"{name}.h").write_text(header)
    (folder / "main.c").write_text(
        f'#include "{name}.h"\n'
        f"void run({signature}) {{ {name}({', '.join(arguments)}); }}\n"
        f"float check(void) {{ return {name}_check(); }}\n"
    )
    strict = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run([CC, *strict, "-shared", "-fPIC", "main.c", "-o", "main.so", "-lm"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "main.so"))
    library.check.restype = ctypes.c_float
    assert library.check() <= 1e-6
    count = len(examples)

    def call(*inputs, in_place=False):
        rows = []
        for t in range(len(inputs[0])):
            given = [np.ascontiguousarray(x[t], kind) for x, kind in zip(inputs, kinds, strict=False)]
            out = [np.zeros(size, kind) for size, kind in zip(sizes[count:], kinds[count:], strict=True)]
            out = [out[0], *given[1:]] if in_place else out
            library.run(*(ctypes.c_void_p(x.ctypes.data) for x in [*given, *out]))
            rows.append(out)
        return [np.stack(x) for x in zip(*rows, strict=True)]

    return call


def run_onnx(function, *examples, outputs=("action",)):
    """From a dict of batches to a dict of batches."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(export.to_onnx(function, *examples, outputs=outputs))
    names = [x.name for x in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, inputs), strict=True))


# ---- policies


@pytree
class Params:
    max_steps: jax.Array = 5


@pytree
class State:
    time: jax.Array  # () int32


class Everything(Environment):
    """Observations of all kinds: what is deployed has no `privileged` part, and its mask restricts the action."""

    @property
    def default_params(self):
        return strongly_typed(Params())

    def observation_space(self, params):
        image = Box(0, 255, (4, 5, 2), jnp.uint8)
        mask = Box(False, True, (3,), jnp.bool_)
        vector = Box(-jnp.inf, jnp.inf, (2,))
        return Dict(
            {"vector": vector, "image": image, "mission": Discrete(4), "privileged": vector, "action_mask": mask}
        )

    def action_space(self, params):
        return Discrete(3)

    def initial(self, key, params):
        return State(jnp.int32(0))

    def transition(self, key, state, action, params):
        return Transition(state, jnp.float32(0), jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key, state, params):
        masked = {"mission": jnp.int32(0), "action_mask": jnp.ones(3, bool)}
        return {"vector": jnp.zeros(2), "privileged": jnp.ones(2), "image": jnp.zeros((4, 5, 2), jnp.uint8), **masked}

    def validate(self, params):
        pass


def trained(module, id, **config):
    """An algorithm and a policy of the right shapes with random numbers in it, which spares the compiling of `init`."""
    env = jaxrl.make(id)[0] if isinstance(id, str) else id
    algo, generator = module.make(env, module.Config(**config)), np.random.default_rng(0)

    def leaf(path, x):
        if ".count" in jax.tree_util.keystr(path):  # of statistics: something was seen
            return jnp.asarray(9, x.dtype)
        numbers = generator.standard_normal(x.shape) / np.sqrt(x.shape[0] if x.ndim > 1 else 4)
        return jnp.asarray(np.exp(numbers) if ".var" in jax.tree_util.keystr(path) else numbers, x.dtype)

    shapes = jax.eval_shape(lambda key: algo.policy(algo.init(key)), jax.random.key(0))
    return algo, jax.tree_util.tree_map_with_path(leaf, shapes)


POLICIES = {
    "ppo_box": (ppo, "Pendulum-v1", dict(num_envs=4, num_steps=8, normalize_obs=True)),
    "ppo_discrete": (ppo, "CartPole-v1", dict(num_envs=4, num_steps=8, hidden=(32, 16))),
    "ppo_dict": (ppo, Everything(id="Everything-v0"), dict(num_envs=4, hidden=(16,), conv=(4,), normalize_obs=True)),
    "td3": (td3, "Pendulum-v1", dict(num_envs=2, hidden=(32, 32))),
    "sac": (sac, "Pendulum-v1", dict(num_envs=2, hidden=(32, 32))),
    "td3_bc": (td3_bc, "Pendulum-v1", dict(num_envs=2, hidden=(16,), normalize_obs=True)),
    "dqn": (dqn, "CartPole-v1", dict(num_envs=2, hidden=(32,))),
    "gru": (ppo_rnn, "Pendulum-v1", dict(num_envs=4, hidden=(16,), rnn_size=16)),
    "lstm": (ppo_rnn, "CartPole-v1", dict(num_envs=4, hidden=(16,), rnn_size=8, rnn="lstm")),
    "s5": (ppo_rnn, "CartPole-v1", dict(num_envs=4, hidden=(16,), rnn_size=8, rnn="s5")),
    "attention": (ppo_rnn, "CartPole-v1", dict(num_envs=4, hidden=(16,), rnn_size=8, rnn="attention", window=3)),
    "linear_attention": (ppo_rnn, "CartPole-v1", dict(num_envs=4, hidden=(16,), rnn_size=8, rnn="linear_attention")),
}


def draw(example, seed=0):
    """BATCH random inputs like an example: normal numbers, random bits."""
    generator = np.random.default_rng(seed)

    def leaf(x):
        shape = (BATCH, *np.shape(x))
        x = np.asarray(x)
        if x.dtype == bool:
            return generator.random(shape) < 0.5
        return (generator.standard_normal(shape) if x.dtype.kind == "f" else generator.integers(0, 2, shape)).astype(
            x.dtype
        )

    return jax.tree.map(leaf, example)


def flat(tree):
    """(BATCH, all numbers of an argument)."""
    return np.concatenate([np.asarray(x).reshape(BATCH, -1) for x in jax.tree.leaves(tree)], 1)


def named(names, trees):
    """{name of the array: array}, as exported models take and give them."""
    return {
        name + jax.tree_util.keystr(path, simple=True, separator=".").join(("." if path else "", "")): np.asarray(x)
        for name, tree in zip(names, trees, strict=False)
        for path, x in jax.tree_util.tree_leaves_with_path(tree)
    }


def assert_same(actual, expected):
    assert sorted(actual) == sorted(expected)
    for name, y in expected.items():
        assert actual[name].shape == y.shape and actual[name].dtype == y.dtype
        np.testing.assert_allclose(actual[name], y, rtol=0, atol=1e-6)


@pytest.fixture(scope="module", params=POLICIES)
def case(request):
    """`(deployed, inputs, expected outputs)`, batches."""
    module, id, config = POLICIES[request.param]
    deployed = export.greedy(*trained(module, id, **config))
    inputs = tuple(draw(x, i) for i, x in enumerate(deployed.examples))
    out = jax.jit(jax.vmap(deployed.function))(*inputs)
    return deployed, inputs, out if len(deployed.outputs) > 1 else (out,)


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@needs_cc
def test_c_acts_as_jax(case, tmp_path):
    deployed, inputs, expected = case
    call = run_c(tmp_path, deployed.function, *deployed.examples, outputs=deployed.outputs)
    actual = call(*map(flat, inputs))
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(x, flat(y), rtol=0, atol=1e-6)
    assert len(np.unique(actual[0])) > 1
    if len(inputs) > 1:  # the carry may be overwritten
        for x, y in zip(actual, call(*map(flat, inputs), in_place=True), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.slow
@pytest.mark.light
def test_onnx_acts_as_jax(case):
    deployed, inputs, expected = case
    call = run_onnx(deployed.function, *deployed.examples, outputs=deployed.outputs)
    assert_same(call(named(("obs", "carry"), inputs)), named(deployed.outputs, expected))


@pytest.mark.parametrize("case", ["ppo_box", "gru"], indirect=True)
def test_stablehlo_acts_as_jax(case):
    pytest.importorskip("flatbuffers")
    deployed, inputs, expected = case
    data = export.to_stablehlo(deployed.function, *deployed.examples, outputs=deployed.outputs)
    assert_same(export.load_stablehlo(data)(named(("obs", "carry"), inputs)), named(deployed.outputs, expected))


# ---- functions


@jax.custom_vjp
def clipped(x):
    return jnp.clip(x, -0.5, 0.5)


clipped.defvjp(lambda x: (clipped(x), None), lambda _, g: (g,))


def cumulative(x):
    """A scan over five elements."""

    def step(total, x):
        total = 0.5 * total + x
        return total, (total, 2.0 * total)

    return jnp.stack([jax.lax.scan(step, x[0], x)[1][0], jax.lax.scan(step, x[0], x, reverse=True)[1][1]])


KERNEL = np.random.default_rng(1).standard_normal((3, 2, 2, 3)).astype(np.float32)  # height, width, in, out
MATRIX = np.random.default_rng(2).standard_normal((5, 5)).astype(np.float32)

ACTIVATIONS = ("relu", "leaky_relu", "silu", "elu", "softplus", "sigmoid", "softmax")

# of a vector x of 5 numbers and an integer n below 3
FUNCTIONS = {
    **{f: (lambda x, n, f=f: getattr(jnp, f)(x)) for f in "abs exp expm1 floor ceil round sign sin cos tanh".split()},
    **{f: (lambda x, n, f=f: getattr(jax.nn, f)(x)) for f in ACTIVATIONS},
    "gelu": lambda x, n: jax.nn.gelu(x),
    "exact_gelu": lambda x, n: jax.nn.gelu(x, approximate=False),
    "roots": lambda x, n: jnp.sqrt(jnp.abs(x)) + jax.lax.rsqrt(1 + x * x) + jnp.log(2 + x * x),
    "powers": lambda x, n: x**2 + x**3 - 1 / (1 + x**4) + jnp.abs(x) ** 1.5 + (2 + x**2) ** -3,
    "negated_twice": lambda x, n: -jnp.negative(x) - jnp.float32(-2),
    "angles": lambda x, n: jnp.arctan(x) + jnp.arcsin(jnp.tanh(x)),
    "remainder": lambda x, n: jnp.mod(x, 0.7),
    "comparisons": lambda x, n: ((x > 0) & ~(x > 1)) | (x <= -1) ^ (x != 0),
    "where": lambda x, n: jnp.where(x > 0, x, jnp.where(x < -1, -1, 2 * x)),
    "clip": lambda x, n: clipped(x) + jax.checkpoint(jnp.sin)(x),
    "integers": lambda x, n: jnp.trunc(10 * x).astype(jnp.int32) * 3 - n,
    "one_hot": lambda x, n: jax.nn.one_hot(n, 3) * x[:3],
    "choice": lambda x, n: jax.lax.select_n(jnp.broadcast_to(n, (5,)), x, 2 * x, jnp.float32(3) - x),
    "sums": lambda x, n: x.sum() + x.reshape(5, 1).mean(1) + jnp.outer(x, x).max(0) - jnp.min(x) + jnp.prod(x),
    "logical": lambda x, n: jnp.stack([jnp.any(x > 1), jnp.all(x > -2)]),
    "argmax": lambda x, n: jnp.argmax(jnp.outer(x, x), 0) + jnp.argmin(x),
    "layer_norm": lambda x, n: (x - x.mean()) / jnp.sqrt(x.var() + 1e-6),
    "layout": lambda x, n: jnp.concatenate([x[::-1], jnp.ones(2), x[1:3], jnp.pad(x, (2, 1), constant_values=7)]),
    "moved": lambda x, n: jnp.tile(jnp.roll(x, 2).reshape(5, 1), (2, 3)).T[:, 1:7:2].at[1].set(0.25),
    "picked": lambda x, n: x[jnp.array([4, 0, 0, 2])] + x[-1],
    "products": lambda x, n: jnp.outer(x, x) @ MATRIX @ x + MATRIX @ x,
    "batched": lambda x, n: jnp.einsum("bij,bkj->bik", *2 * [jnp.stack([MATRIX * x, MATRIX])]),
    "scan": lambda x, n: cumulative(x),
    "convolved": lambda x, n: networks.convolve(jnp.outer(x, x)[..., None] * MATRIX[0, :2], jnp.asarray(KERNEL)),
    "strided": lambda x, n: jax.lax.conv_general_dilated(
        (jnp.outer(x, x)[..., None] * jnp.array([1.0, -2.0]))[None], KERNEL, (2, 1), "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )[0],
    "constant": lambda x, n: jnp.arange(3.0),
}  # fmt: skip


@pytest.fixture(scope="module")
def everything():
    """`(function, examples, names, inputs, expected)` of all FUNCTIONS as one."""

    def function(x, n):
        return tuple(f(x, n) for f in FUNCTIONS.values())

    examples = jnp.zeros(5), jnp.int32(0)
    generator = np.random.default_rng(3)
    inputs = generator.standard_normal((BATCH, 5)).astype(np.float32), np.arange(BATCH, dtype=np.int32) % 3
    return function, examples, tuple(FUNCTIONS), inputs, jax.jit(jax.vmap(function))(*inputs)


@pytest.mark.slow
@pytest.mark.light
@needs_cc
def test_every_primitive_in_c(everything, tmp_path):
    function, examples, names, inputs, expected = everything
    actual = run_c(tmp_path, function, *examples, outputs=names, name="every")(*map(flat, inputs))
    for name, x, y in zip(names, actual, expected, strict=True):
        np.testing.assert_allclose(x, flat(y), rtol=2e-6, atol=2e-6, err_msg=name)


def test_every_primitive_in_onnx(everything):
    function, examples, names, inputs, expected = everything
    actual = run_onnx(function, *examples, outputs=names)(dict(zip("xn", inputs, strict=True)))
    for name, y in zip(names, expected, strict=True):
        assert actual[name].shape == y.shape and actual[name].dtype == y.dtype, name
        np.testing.assert_allclose(actual[name], y, rtol=5e-6, atol=5e-6, err_msg=name)


@needs_cc
def test_c_of_other_types(tmp_path):
    """float64, a NaN, arguments that nothing depends on, an output that is an input."""
    with jax.enable_x64(True):
        weights = jnp.asarray(np.random.default_rng(0).standard_normal((4, 3)))

        def act(obs, unused, count):
            return jnp.clip(jnp.tanh(obs @ weights) / 3, -0.2, 0.2), count

        examples = jnp.zeros(4), jnp.zeros(2), jnp.int64(3)
        call = run_c(tmp_path, act, *examples, name="Double", outputs=("action", "next_count"))
        obs = np.random.default_rng(1).standard_normal((BATCH, 4))
        obs[0, 1] = np.nan
        count = np.full((BATCH, 1), 2**40)
        actual, same = call(obs, np.zeros((BATCH, 2)), count)
        expected = jax.vmap(act)(obs, obs, count)[0]
    assert np.all(np.isnan(actual[0])) and not np.any(np.isnan(actual[1:]))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(same, count)


def test_what_cannot_be_exported():
    x = jnp.zeros(3)
    with pytest.raises(NotImplementedError, match="primitive 'sort'"):
        export.to_c(lambda obs: jnp.sort(obs), x)
    with pytest.raises(NotImplementedError, match="primitive 'while'"):
        export.to_c(lambda obs: jax.lax.while_loop(lambda x: x[0] < 1, lambda x: x + 1, obs), x)
    with pytest.raises(NotImplementedError, match="primitive 'gather'|primitive 'dynamic_slice'"):
        export.to_c(lambda obs: x[obs[0].astype(jnp.int32)] + obs, x)
    with pytest.raises(NotImplementedError, match="float16"):
        export.to_c(lambda obs: obs.astype(jnp.float16), x)
    for name in ("2fast", "a b", "sum", "int", "class", "int32_t", "sin", "tanhf", "obs", "action", "größe"):
        with pytest.raises(ValueError, match=f"{name!r} cannot be a name"):
            export.to_c(lambda obs: obs + 1, x, name=name)
    with pytest.raises(ValueError, match="'register' cannot be a name"):
        export.to_c(lambda obs: obs + 1, x, outputs=("register",))
    with pytest.raises(ValueError, match="2 examples for a function of 1 parameters"):
        export.to_c(lambda obs: obs, x, x)
    with pytest.raises(ValueError, match="returns 2 results, outputs names 3"):
        export.to_c(lambda obs: (obs, obs), x, outputs=("a", "b", "c"))
    # What the outputs do not depend on does no harm.
    assert "static inline void policy" in export.to_c(lambda obs: (jnp.sort(obs), obs + 1)[1], x)


def test_onnx_names_what_it_lacks():
    pytest.importorskip("onnxruntime")
    with pytest.raises(NotImplementedError, match="ONNX has no operator for the primitive 'cbrt'"):
        export.to_onnx(lambda obs: jnp.cbrt(obs), jnp.zeros(3))


def test_the_policy_of_several_agents_is_that_of_one():
    class Pair(Everything):
        num_agents = 2

        def observe(self, key, state, params):
            return jax.tree.map(lambda x: jnp.stack([x, x]), super().observe(key, state, params))

        def transition(self, key, state, action, params):
            return super().transition(key, state, action, params)._replace(reward=jnp.zeros(2))

    module, env, config = POLICIES["ppo_dict"]
    alone, policy = trained(module, env, **config)
    team = module.make(agents_as_slots(jaxrl.vectorize(Pair(id="Pair-v0"), 2)), module.Config(**config))
    one, other = export.greedy(alone, policy), export.greedy(team, policy)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), one.examples) == jax.tree.map(
        lambda x: (x.shape, x.dtype), other.examples
    )
    obs = draw(one.examples[0])
    np.testing.assert_array_equal(*(jax.jit(jax.vmap(deployed.function))(obs) for deployed in (one, other)))


def test_export_writes_files(tmp_path):
    algo, policy = trained(*POLICIES["dqn"][:2], **POLICIES["dqn"][2])
    path = export.export(algo, policy, tmp_path / "new" / "pilot.h", name="pilot")
    assert "static inline void pilot(const float *obs, int32_t *action)" in path.read_text()
    with pytest.raises(ValueError, match="format='rust' is unknown; use one of c, onnx, stablehlo"):
        export.export(algo, policy, tmp_path / "pilot.rs", format="rust")
