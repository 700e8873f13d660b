"""Networks of nnx, equinox and plain functions are networks as linen's: same weights, saved, exported, spread."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxrl
from jaxrl.algos import ppo, sac
from jaxrl.host import export
from jaxrl.interop import neural
from jaxrl.nn.networks import own

CONFIG = ppo.Config(num_envs=2, num_steps=8, num_epochs=2, num_minibatches=2)
WAYS = ("nnx", "equinox", "functions")


class Parts:
    def actor(self, obs):
        return self.head(jnp.tanh(self.hidden(obs)))

    def critic(self, obs):
        return self.value(jnp.tanh(self.hidden(obs)))[..., 0]

    def __call__(self, obs):
        return self.actor(obs), self.critic(obs)


class Linen(Parts, nn.Module):
    def setup(self):
        self.hidden, self.head, self.value = nn.Dense(3), nn.Dense(2), nn.Dense(1)


class Nnx(Parts, nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(4, 3, rngs=rngs)
        self.head, self.value = nnx.Linear(3, 2, rngs=rngs), nnx.Linear(3, 1, rngs=rngs)


class Equinox(Parts, eqx.Module):
    hidden: eqx.nn.Linear
    head: eqx.nn.Linear
    value: eqx.nn.Linear

    def __init__(self, key):
        self.hidden = eqx.nn.Linear(4, 3, key=key)
        self.head, self.value = eqx.nn.Linear(3, 2, key=key), eqx.nn.Linear(3, 1, key=key)


def layer(weights, x):
    return x @ weights["kernel"] + weights["bias"]


def actor(weights, obs):
    return layer(weights["head"], jnp.tanh(layer(weights["hidden"], obs)))


def critic(weights, obs):
    return layer(weights["value"], jnp.tanh(layer(weights["hidden"], obs)))[..., 0]


def both(weights, obs):
    return actor(weights, obs), critic(weights, obs)


def linen(key, obs=None):
    return Linen().init(key, jnp.zeros(4) if obs is None else obs)["params"]


def nnx_of_linen(rngs):
    module = Nnx(rngs)
    state = nnx.state(module)
    nnx.replace_by_pure_dict(state, linen(KEY))
    nnx.update(module, state)
    return module


def equinox_of_linen(key):
    module, first = Equinox(key), linen(KEY)
    for name, weights in first.items():
        values = weights["kernel"].T, weights["bias"]  # whose matrices are transposed
        module = eqx.tree_at(lambda at: (getattr(at, name).weight, getattr(at, name).bias), module, values)  # noqa: B023
    return module


KEY = jax.random.key(5)
DRAWN = {
    "nnx": neural.Nnx(Nnx),
    "equinox": neural.Equinox(Equinox),
    "functions": neural.Functions(linen, both, actor=actor, critic=critic),
}
"""Each with first weights as its library draws them."""

EQUAL = {
    "nnx": neural.Nnx(nnx_of_linen),
    "equinox": neural.Equinox(equinox_of_linen),
    "functions": neural.Functions(lambda key, obs: linen(KEY), both, actor=actor, critic=critic),
}
"""All with the first weights of linen."""


class Given:
    """Linen with the same first weights, whatever the key."""

    def init(self, key, *inputs):
        return Linen().init(KEY, *inputs)

    def apply(self, weights, *inputs, **how):
        return Linen().apply(weights, *inputs, **how)


def kernels(way, weights):
    """The matrices and biases by the names of linen."""
    if way == "equinox":
        weights = {name: {"kernel": x.weight.T, "bias": x.bias} for name, x in vars(weights).items()}
    return weights["params"] if way == "linen" else weights


@pytest.fixture(scope="module")
def env():
    return jaxrl.make("CartPole-v1")[0]


def test_from_equal_weights_four_libraries_learn_the_same(env):
    found = {}
    for way, network in {"linen": Given(), **EQUAL}.items():
        algo = ppo.make(env, CONFIG, network=network)
        state, _ = jax.jit(lambda key, algo=algo: jaxrl.train(algo, key, 48))(jax.random.key(1))
        found[way] = kernels(way, algo.policy(state).weights)
    moved = jax.tree.map(lambda x, y: float(abs(x - y).max()), found["linen"], linen(KEY))
    assert min(jax.tree.leaves(moved)) > 1e-4  # all have learned
    for way in WAYS:
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-6), found[way], found["linen"])


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_saved_gone_on_with_and_exported(env, way, tmp_path):
    algo = ppo.make(env, CONFIG, network=DRAWN[way])
    told = dict(num_seeds=2, progress=False)
    whole = jaxrl.fit(algo, jax.random.key(0), 64, **told)
    jaxrl.fit(algo, jax.random.key(0), 32, out=tmp_path, **told)
    resumed = jaxrl.fit(algo, jax.random.key(0), 64, out=tmp_path, resume=True, **told)
    jax.tree.map(np.testing.assert_array_equal, algo.policy(resumed.state), algo.policy(whole.state))
    policy = jax.tree.map(lambda x: x[1], algo.policy(whole.state))
    header = export.export(algo, policy, tmp_path / "policy.h", "c").read_text()
    assert "policy_act" in header.lower() or "#define POLICY" in header
    loaded = jaxrl.load(tmp_path, seed=1)  # by the names of what the network is built of
    obs = jnp.ones((3, 4))
    acts = [
        algo.act(x, jax.random.key(0), obs, algo.initial_carry((3,)), greedy=True)[0] for x in (policy, loaded.policy)
    ]
    np.testing.assert_array_equal(*acts)


@pytest.mark.parametrize("way", WAYS)
def test_equal_adapters_make_equal_algorithms(env, way):
    again = {
        "nnx": neural.Nnx(Nnx),
        "equinox": neural.Equinox(Equinox),
        "functions": neural.Functions(linen, both, actor=actor, critic=critic),
    }[way]
    assert again == DRAWN[way] and hash(again) == hash(DRAWN[way])
    assert ppo.make(env, CONFIG, network=again).update is ppo.make(env, CONFIG, network=DRAWN[way]).update
    assert neural.Functions(linen, both) != DRAWN["functions"] and neural.Equinox(Equinox, 3) != DRAWN["equinox"]


def test_images_and_any_leading_axes():
    class Conv(eqx.Module):
        inner: eqx.nn.Linear

        def __init__(self, key):
            self.inner = eqx.nn.Linear(6, 2, key=key)

        def __call__(self, image):
            return self.inner(image.ravel())

    network = neural.Equinox(Conv, axes=3)
    image = jax.random.normal(KEY, (5, 4, 1, 2, 3))
    weights = network.init(KEY, image[0, 0])
    outputs = network.apply(weights, image)
    assert outputs.shape == (5, 4, 2)
    np.testing.assert_allclose(outputs[3, 1], Conv(KEY)(image[3, 1]), atol=1e-6)
    assert network.apply(weights, image, mutable=["intermediates"])[1] == {}


class Dropping(nnx.Module):
    def __init__(self, rngs):
        self.inner, self.drop = nnx.Linear(4, 2, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)


class Counting(eqx.Module):
    count: jax.Array

    def __init__(self, key):
        self.count = jnp.int32(0)


class Static(eqx.Module):
    act: object = eqx.field(static=True)

    def __init__(self, key):
        self.act = lambda x: x


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (neural.Nnx(Dropping), r"Dropping keeps drop\..* beside its parameters, which no update would carry"),
        (neural.Nnx(lambda rngs: (1, 2)), "returns no .*Module but a tuple"),
        (neural.Nnx(Nnx(nnx.Rngs(0))), "Nnx is a module; give what builds it"),
        (neural.Equinox(Equinox(KEY)), "Equinox is a module; give what builds it"),
        (neural.Equinox(Static), "Static has other static fields each time that it is built"),
        (neural.Equinox(Counting), "Counting keeps int32 arrays beside its parameters"),
        (neural.Equinox(lambda key: (1, 2)), "returns no .*Module but a tuple"),
    ],
)
def test_what_no_update_would_carry_is_refused(network, says):
    with pytest.raises(TypeError, match=says):
        network.init(KEY, jnp.zeros(4))


def test_a_method_that_is_missing_is_named(env):
    with pytest.raises(TypeError, match="the algorithm calls 'critic'; give it as critic=FUNCTION"):
        algo = ppo.make(env, CONFIG, network=neural.Functions(linen, both, actor=actor))
        jax.eval_shape(lambda key: jaxrl.train(algo, key, 16), KEY)
    with pytest.raises(TypeError, match="network is .*; Nnx has no init and no apply.*interop.neural"):
        own("network", Nnx(nnx.Rngs(0)))


@pytest.mark.slow
def test_a_critic_of_functions():
    env = jaxrl.make("Pendulum-v1")[0]
    critic = neural.Functions(
        lambda key, obs, action: {"w": jax.random.normal(key, (4,))},
        lambda weights, obs, action: jnp.concatenate([obs, action], -1) @ weights["w"],
    )
    algo = sac.make(env, sac.Config(hidden=(4,), batch_size=4, buffer_size=64), critic=critic)
    state, metrics = jax.jit(lambda key: jaxrl.train(algo, key, 40, sac.Hyper(learning_starts=8)))(KEY)
    assert np.isfinite(metrics["critic_loss"][8:]).all()  # before, nothing is learned


class Lists(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(4, 3, rngs=rngs), nnx.Linear(3, 2, rngs=rngs)])

    def __call__(self, obs):
        return self.layers[1](jnp.tanh(self.layers[0](obs["b"] + obs["a"][..., None])))


class Perceptron(eqx.Module):
    inner: eqx.nn.MLP

    def __init__(self, key):
        self.inner = eqx.nn.MLP(4, 2, 3, 1, jnp.tanh, key=key)

    def __call__(self, obs):
        return self.inner(obs["b"] + obs["a"])


@pytest.mark.parametrize("network", [neural.Nnx(Lists), neural.Equinox(Perceptron, axes=0)])
def test_dicts_of_observations_lists_of_layers_and_seeds(network):
    """Of an observation's arrays the first by name has no axis of its own: `axes` is 0."""
    obs = {"a": jnp.ones((5,)), "b": jnp.ones((5, 4))}
    one = jax.tree.map(lambda x: x[0], obs)
    weights = jax.jit(jax.vmap(lambda key: network.init(key, one)))(jax.random.split(KEY, 2))
    outputs = jax.vmap(network.apply, (0, None))(weights, obs)
    assert outputs.shape == (2, 5, 2) and (outputs[0] != outputs[1]).all()
    np.testing.assert_allclose(outputs[:, 0], outputs[:, 3])
    grads = jax.grad(lambda w: network.apply(w, obs).sum())(jax.tree.map(lambda x: x[0], weights))
    assert all((np.asarray(x) != 0).any() for x in jax.tree.leaves(grads))
