"""Network bodies against flax and plain formulas, and the encoding of observations."""

import inspect
import math
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import make, registry, spaces
from jaxrl.nn.networks import (
    CNN,
    MLP,
    ActorCritic,
    Dense,
    Encoder,
    Ensemble,
    active_units,
    convolve,
    encode,
    encoded_size,
    orthogonal,
    own,
)
from jaxrl.nn.recurrent import Recurrent

KEY = jax.random.key(0)


def deviation(matrix):
    """How far the shorter side of a matrix is from orthonormal, in float64."""
    m = np.asarray(matrix, np.float64).reshape(-1, matrix.shape[-1])
    m = m if m.shape[0] <= m.shape[1] else m.T
    return np.abs(m @ m.T - np.eye(len(m))).max()


@pytest.mark.slow(but_first=1)
@pytest.mark.light
@pytest.mark.parametrize("shape", [(1, 1), (4, 64), (64, 64), (64, 2), (3, 3, 4, 16), (256, 256)])
def test_orthogonal(shape):
    q = jax.jit(orthogonal(), static_argnums=1)(KEY, shape)
    assert q.shape == shape and deviation(q) < 1e-6
    np.testing.assert_allclose(orthogonal(3.0)(KEY, shape), 3 * q, rtol=1e-6)


def test_orthogonal_is_uniform():
    """Haar measure on O(3): entries have mean 0 and variance 1/3, and both determinants are as likely."""
    q = np.asarray(jax.jit(jax.vmap(lambda key: orthogonal()(key, (3, 3))))(jax.random.split(KEY, 4000)))
    np.testing.assert_allclose(q.mean(0), 0, atol=0.04)
    np.testing.assert_allclose((q**2).mean(0), 1 / 3, atol=0.03)
    assert abs(np.linalg.det(q).mean()) < 0.06
    assert max(deviation(m) for m in q[:500]) < 1e-6


@pytest.mark.slow
@pytest.mark.light
def test_orthogonal_in_half_precision_and_refusal():
    q = orthogonal()(KEY, (8, 8), jnp.bfloat16)
    assert q.dtype == jnp.bfloat16 and deviation(q) < 0.03
    with pytest.raises(ValueError, match=r"\(3,\)"):
        orthogonal()(KEY, (3,))


@pytest.mark.slow
@pytest.mark.light
def test_mlp_is_its_formula():
    net = MLP((8, 6), 2, "tanh", out_scale=0.01)
    x = jax.random.normal(KEY, (5, 3, 4))
    weights = net.init(KEY, x)
    layers = [weights["params"][f"Dense_{i}"] for i in range(3)]
    h = np.asarray(x)
    for layer in layers[:2]:
        h = np.tanh(h @ layer["kernel"] + layer["bias"])
    np.testing.assert_allclose(net.apply(weights, x), h @ layers[2]["kernel"] + layers[2]["bias"], atol=1e-6)
    assert deviation(layers[0]["kernel"] / math.sqrt(2)) < 1e-6 and deviation(layers[2]["kernel"] / 0.01) < 1e-6


def test_mlp_settings():
    assert hash(MLP((8,), 2)) == hash(MLP((8,), 2)) and MLP((8,), 2) == MLP((8,), 2) != MLP((9,), 2)
    x = 100 * jax.random.normal(KEY, (5, 4))
    features, weights = MLP((64,), None, "relu", layer_norm=True).init_with_output(KEY, x)
    assert features.shape == (5, 64) and set(weights["params"]) == {"Dense_0", "LayerNorm_0"}
    np.testing.assert_allclose((features**2).mean(-1), 0.5, atol=0.25)
    with pytest.raises(ValueError, match="activation='tahn' is unknown; use one of tanh"):
        MLP((8,), 2, "tahn").init(KEY, x)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(("channels", "stride", "padding"), [(4, 1, "VALID"), (3, 2, "SAME"), (16, 2, "SAME")])
def test_convolve_matches_xla(channels, stride, padding):
    x, kernel = jax.random.normal(KEY, (2, 7, 8, channels)), jax.random.normal(KEY, (3, 2, channels, 5))

    def reference(x, kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=numbers)

    def ours(x, kernel):
        return convolve(x[:, None], kernel, stride, padding)[:, 0]

    def loss(f, x, kernel):
        return jnp.sum(jnp.sin(f(x, kernel)))

    np.testing.assert_allclose(ours(x, kernel), reference(x, kernel), atol=2e-5)
    gradients = (jax.jit(jax.grad(lambda x, k, f=f: loss(f, x, k), (0, 1)))(x, kernel) for f in (ours, reference))
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)


def test_cnn():
    net = CNN((6, 7), (3, 3), (2, 1))
    image = jax.random.randint(KEY, (2, 3, 9, 9, 4), 0, 256).astype(jnp.uint8)
    out, weights = jax.jit(net.init_with_output)(KEY, image)
    apply = jax.jit(net.apply)
    assert out.shape == (2, 3, 2 * 2 * 7)
    np.testing.assert_allclose(apply(weights, image / jnp.float32(255)), out, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(apply(weights, image[0, 1]), out[0, 1], rtol=1e-4, atol=1e-5)
    assert deviation(weights["params"]["kernel_0"] / math.sqrt(2)) < 1e-6
    assert apply(weights, image > 128).dtype == jnp.float32


@pytest.mark.slow
@pytest.mark.light
def test_encoder_convolves_images_and_leaves_the_rest_to_encode():
    space = spaces.Dict(
        {
            "image": spaces.Box(0, 10, (5, 6, 2), jnp.uint8),
            "where": spaces.Discrete(3),
            "privileged": spaces.Box(0.0, 1.0, (2,)),
        }
    )
    image = jax.random.randint(KEY, (4, 5, 6, 2), 0, 11).astype(jnp.uint8)
    obs = {"image": image, "where": jnp.array([2, 0, 1, 2]), "privileged": jnp.ones((4, 2))}
    out, weights = Encoder(space, (3, 7), "relu").init_with_output(KEY, obs)
    cnn = CNN((3, 7), (3, 3), (1, 1))
    expected = cnn.apply({"params": weights["params"]["CNN_0"]}, image / jnp.float32(10))
    assert expected.shape == (4, 1 * 2 * 7)
    np.testing.assert_allclose(out, jnp.concatenate([expected, jax.nn.one_hot(obs["where"], 3)], -1), rtol=1e-5)
    seen, _ = Encoder(space, (3,), "relu", privileged=True, layer_norm=True).init_with_output(KEY, obs)
    assert seen.shape == (4, 3 * 4 * 3 + 2 + 3)
    for few in ((1, 1), (3, 3, 3)), (spaces.Box(0.0, 1.0, (4,)), jnp.ones(4)):
        at, x = (space, obs) if few[0] == (1, 1) else few
        with pytest.raises(ValueError, match="needs images larger than"):
            Encoder(at, (3, 3, 3), "relu").init(KEY, x)
    plain, weights = Encoder(space, (), "relu").init_with_output(KEY, obs)
    assert not weights
    np.testing.assert_array_equal(plain, encode(space, obs))


# ---- recurrent


def flax_cell(net, weights):
    """The flax cell with the same weights: the reference for one step."""
    p, h = weights["params"], net.features
    kernel, bias = jnp.split(p["input"]["kernel"], 3 if net.cell == "gru" else 4, -1), jnp.split(p["bias"], 4)
    if net.cell == "gru":
        cell, names = nn.GRUCell(h), "rzn"
        params = {f"i{g}": {"kernel": kernel[i], "bias": bias[i]} for i, g in enumerate(names)}
        params |= {f"h{g}": {"kernel": p[f"recurrent_{i}"]} for i, g in enumerate(names)}
        params["hn"]["bias"] = bias[3]
    else:
        cell, names = nn.OptimizedLSTMCell(h), "ifgo"
        params = {f"i{g}": {"kernel": kernel[i]} for i, g in enumerate(names)}
        params |= {f"h{g}": {"kernel": p[f"recurrent_{i}"], "bias": bias[i]} for i, g in enumerate(names)}
    return lambda carry, x: cell.apply({"params": params}, carry, x)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_recurrent_matches_flax_and_restarts_inside_a_sequence(cell):
    net = Recurrent(5, cell)
    inputs = jax.random.normal(KEY, (6, 3, 4))
    start = jnp.zeros((6, 3), bool).at[2, 1].set(True).at[4, 0].set(True).at[0, 2].set(True)
    carry = jax.tree.map(lambda h: h + 0.3, net.initial_carry((3,)))
    weights = jax.jit(net.init)(KEY, carry, inputs, start)
    weights["params"]["bias"] = jax.random.normal(KEY, (20,))
    last, outputs = jax.jit(net.apply)(weights, carry, inputs, start)

    step, expected = jax.jit(flax_cell(net, weights)), []
    reference = carry
    for t in range(6):
        reference = jax.tree.map(lambda h, t=t: jnp.where(start[t][:, None], 0.0, h), reference)
        flax_carry = reference if cell == "gru" else reference[::-1]  # flax orders (cell, hidden)
        flax_carry, y = step(flax_carry, inputs[t])
        reference = flax_carry if cell == "gru" else flax_carry[::-1]
        expected.append(y)
    np.testing.assert_allclose(outputs, np.stack(expected), atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), last, reference)

    # Nothing before a start matters after it, and no gradient passes it.
    gradient = jax.jit(jax.grad(lambda x: net.apply(weights, carry, x, start)[1][4:, 0].sum()))(inputs)
    assert (gradient[:4, 0] == 0).all() and (gradient[4:, 0] != 0).all()


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_recurrent_gradients_are_those_of_flax_cells_also_the_second(cell):
    net = Recurrent(5, cell)
    inputs = jax.random.normal(KEY, (6, 3, 4))
    start = jnp.zeros((6, 3), bool).at[2, 1].set(True).at[4, 0].set(True)
    carry = jax.tree.map(lambda h: h + 0.3, net.initial_carry((3,)))
    weights = net.init(KEY, carry, inputs, start)
    weights["params"]["bias"] = jax.random.normal(KEY, (20,))

    def ours(weights, carry, inputs):
        last, outputs = net.apply(weights, carry, inputs, start)
        return jnp.sin(outputs).sum() + sum(jnp.cos(h).sum() for h in jax.tree.leaves(last))

    def theirs(weights, carry, inputs):
        step, outputs = flax_cell(net, weights), []
        for t in range(6):
            carry = jax.tree.map(lambda h, t=t: jnp.where(start[t][:, None], 0.0, h), carry)
            after, y = step(carry if cell == "gru" else carry[::-1], inputs[t])
            carry = after if cell == "gru" else after[::-1]
            outputs.append(y)
        return jnp.sin(jnp.stack(outputs)).sum() + sum(jnp.cos(h).sum() for h in jax.tree.leaves(carry))

    def gradients(f):
        first = jax.grad(f, argnums=(0, 1, 2))

        def size(*at):
            return sum(jnp.sum(g**2) for g in jax.tree.leaves(first(*at)))

        return jax.jit(lambda *at: (first(*at), jax.grad(size, argnums=(0, 1, 2))(*at)))(weights, carry, inputs)

    close = partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-4)
    jax.tree.map(close, gradients(ours), gradients(theirs))


def test_dense_on_sequences_is_flax_dense():
    x = jax.random.normal(KEY, (4, 3, 5))
    ours, theirs = Dense(7), nn.Dense(7)
    weights = theirs.init(KEY, x)
    assert jax.tree.structure(weights) == jax.tree.structure(ours.init(KEY, x))

    def both(net):
        return jax.value_and_grad(lambda w, x: jnp.sin(net.apply(w, x)).sum(), argnums=(0, 1))(weights, x)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), both(ours), both(theirs))
    np.testing.assert_allclose(ours.apply(weights, x)[1, 2], ours.apply(weights, x[1, 2]), atol=1e-6)


def test_recurrent_settings():
    net = Recurrent(5, "lstm")
    hidden, cell = net.initial_carry((2, 3))
    assert hidden.shape == cell.shape == (2, 3, 5)
    weights = net.init(KEY, net.initial_carry((3,)), jnp.zeros((1, 3, 4)), jnp.zeros((1, 3), bool))
    np.testing.assert_array_equal(weights["params"]["bias"].reshape(4, 5)[:, 0], [0, 1, 0, 0])
    assert deviation(weights["params"]["recurrent_2"]) < 1e-6
    with pytest.raises(ValueError, match="cell='rnn' is unknown; use gru or lstm"):
        Recurrent(5, "rnn").initial_carry(())


def test_ensemble_members_are_apart():
    net = Ensemble(MLP((8,), 1, "relu"), 3)
    x = jax.random.normal(KEY, (5, 2))
    out, weights = jax.jit(net.init_with_output)(KEY, x)
    assert out.shape == (3, 5, 1)
    kernels = weights["params"]["member"]["Dense_0"]["kernel"]
    assert kernels.shape == (3, 2, 8) and not np.allclose(kernels[0], kernels[1])
    for k in range(3):
        member = jax.tree.map(lambda w, k=k: w[k], weights["params"]["member"])
        np.testing.assert_allclose(MLP((8,), 1, "relu").apply({"params": member}, x), out[k], atol=1e-6)


def test_vmapped_seeds_and_second_derivatives():
    net = MLP((8,), 1)
    x = jax.random.normal(KEY, (4, 3))

    def curvature(key):
        weights = net.init(key, x)
        slope = jax.grad(lambda w: jnp.sum(net.apply(w, x) ** 2))
        return jax.jvp(slope, (weights,), (weights,))[1]

    both = jax.jit(jax.vmap(curvature))(jax.random.split(KEY, 2))
    assert all(np.isfinite(leaf).all() and leaf.shape[0] == 2 for leaf in jax.tree.leaves(both))
    kernel = both["params"]["Dense_0"]["kernel"]
    assert not np.allclose(kernel[0], kernel[1])


# ---- encoding

INNER = spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 255, (2, 2), jnp.uint8)))
SPACE = spaces.Dict(
    {
        "velocity": spaces.Box(-1.0, 1.0, (2,)),
        "privileged": spaces.Box(-1.0, 1.0, (3,)),
        "action_mask": spaces.Box(0, 1, (4,), jnp.int32),
        "inner": INNER,
        "height": spaces.Box(0.0, 1.0),
    }
)


def example():
    return {
        "velocity": jnp.array([0.5, -0.5]),
        "privileged": jnp.array([7.0, 8.0, 9.0]),
        "action_mask": jnp.array([1, 0, 1, 1]),
        "inner": (jnp.array(2), jnp.array([[1, 2], [3, 4]], jnp.uint8)),
        "height": jnp.array(0.25),
    }


def test_encode_by_hand():
    pixels = list(np.float32([1, 2, 3, 4]) / 255)
    expected = [0.25, 0, 0, 1, *pixels, 0.5, -0.5]
    np.testing.assert_allclose(encode(SPACE, example(), privileged=False), expected, rtol=1e-6)
    np.testing.assert_allclose(encode(SPACE, example(), True), expected[:8] + [7, 8, 9] + expected[8:], rtol=1e-6)
    assert encoded_size(SPACE) == 10 and encoded_size(SPACE, privileged=True) == 13
    deployed = {k: v for k, v in example().items() if k not in ("privileged", "action_mask")}
    np.testing.assert_allclose(encode(SPACE, deployed), expected, rtol=1e-6)


def test_an_observation_without_a_part_to_see():
    names = "action_mask", "privileged"
    hidden, obs = spaces.Dict({name: SPACE.spaces[name] for name in names}), {name: example()[name] for name in names}
    with pytest.raises(ValueError, match="nothing to see but an action mask"):
        encode(hidden, obs)
    assert encode(hidden, obs, privileged=True).shape == (3,)


def test_encode_batches():
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (3, 2, *x.shape)), example())
    out = jax.jit(lambda obs: encode(SPACE, obs))(batch)
    assert out.shape == (3, 2, 10) and out.dtype == jnp.float32
    np.testing.assert_array_max_ulp(out[2, 1], encode(SPACE, example()), 1)  # compiled or not: jax 0.9 rounds apart
    np.testing.assert_array_equal(jax.vmap(lambda obs: encode(SPACE, obs))(batch), out)


def test_encode_of_a_plain_vector_is_the_vector():
    x = jnp.ones((2, 3))
    assert encode(spaces.Box(-1.0, 1.0, (3,)), x) is x


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("conv", [(), (3,)])
def test_pixels_reach_every_network_as_their_share_of_255(conv):
    pixels = jax.random.randint(KEY, (5, 4, 4, 3), 0, 256).astype(jnp.uint8)
    spaces_of = spaces.Box(0, 255, (4, 4, 3), jnp.uint8), spaces.Box(0.0, 1.0, (4, 4, 3))
    of_pixels, of_shares = (ActorCritic(space, 2, False, (8,), "tanh", conv) for space in spaces_of)
    outputs, weights = of_pixels.init_with_output(KEY, pixels)
    shares = of_shares.apply(weights, pixels / jnp.float32(255))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), outputs, shares)


def test_codes_and_counts_are_encoded_as_they_are():
    for space in spaces.Box(0, 10, (3,), jnp.uint8), spaces.Box(0, 255, (3,), jnp.int32):
        np.testing.assert_array_equal(encode(space, jnp.array([0, 7, 10], space.dtype)), [0, 7, 10])


def test_encode_of_single_spaces():
    out = encode(spaces.MultiDiscrete((2, 3)), jnp.array([[1, 0], [0, 2]]))
    np.testing.assert_array_equal(out, [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]])
    np.testing.assert_array_equal(encode(spaces.Discrete(3), jnp.array([1, 2])), [[0, 1, 0], [0, 0, 1]])
    assert encode(spaces.Box(0, 1, (2, 2)), jnp.ones((5, 2, 2), jnp.bfloat16)).dtype == jnp.bfloat16
    nested = spaces.Dict({"a": spaces.Dict({"privileged": spaces.Discrete(2)})})
    assert encoded_size(nested) == 2  # reserved at the top only
    with pytest.raises(TypeError, match="is not a Box, Discrete or MultiDiscrete"):
        encoded_size(spaces.Space())


@pytest.mark.slow
@pytest.mark.light
def test_active_units_are_the_share_of_positive_ones():
    mlp = MLP((4, 2), 1, "relu")
    x = jax.random.normal(jax.random.key(0), (64, 3))
    weights = mlp.init(jax.random.key(1), x)
    _, sown = mlp.apply(weights, x, mutable="intermediates")
    params = weights["params"]
    first = jnp.maximum(x @ params["Dense_0"]["kernel"], 0)
    second = jnp.maximum(first @ params["Dense_1"]["kernel"], 0)
    np.testing.assert_allclose(active_units(sown), ((first > 0).mean() + (second > 0).mean()) / 2, rtol=1e-6)
    both = Ensemble(mlp, 2)
    _, sown = both.apply(both.init(jax.random.key(1), x), x, mutable="intermediates")
    assert 0 < active_units(sown) < 1
    dead = jax.tree.map(lambda w: w * 0, weights)
    assert active_units(mlp.apply(dead, x, mutable="intermediates")[1]) == 0


# ---- networks of one's own


class OnlyCall(nn.Module):
    @nn.compact
    def __call__(self, obs):
        return nn.Dense(2)(obs)


class Foreign:
    """As an nnx or equinox module: neither `init` nor `apply`."""

    def __call__(self, obs):
        return obs


class Adapter:
    def init(self, key, *inputs): ...

    def apply(self, weights, *inputs, method=None, rngs=None, mutable=False): ...


class Unhashable(Adapter):
    __hash__ = None  # pyright: ignore[reportAssignmentType]


def test_a_network_of_ones_own_is_checked_for_its_methods():
    assert own("network", None, "actor") is None
    for good in (OnlyCall(), Adapter()):
        assert own("network", good) is good
    adapter = Adapter()
    assert own("network", adapter, "actor", "critic") is adapter  # `apply` knows what it calls
    with pytest.raises(TypeError, match="module with actor, critic.*OnlyCall has no actor and no critic"):
        own("network", OnlyCall(), "actor", "critic")
    with pytest.raises(TypeError, match="critic is .*; Foreign has no init and no apply.*nnx and equinox"):
        own("critic", Foreign())
    with pytest.raises(TypeError, match="network=OnlyCall is a class"):
        own("network", OnlyCall)
    with pytest.raises(TypeError, match="a Unhashable is static, so it must be hashable"):
        own("network", Unhashable())


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac", "alphazero", "stream_q", "evolution", "bc", "td3", "apg", "pqn"])
def test_every_kind_of_algorithm_checks_the_network_it_is_given(name):
    module = registry.get_algo(name)
    given = {"network", "actor"} & set(inspect.signature(module.make).parameters)
    continuous = not {"Discrete"} & set(registry.algo_actions(name)) or name == "bc"
    env = make("Pendulum-v1" if continuous else "CartPole-v1")[0]
    with pytest.raises(TypeError, match="Foreign has no init and no apply"):
        module.make(env, module.Config(), **{given.pop(): Foreign()})
