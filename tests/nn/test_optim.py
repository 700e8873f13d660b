"""Optimisers against optax and closed forms: clipping, names, dynamic rates, derivatives; algorithms that use them."""

import dataclasses
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tyro
from jax.flatten_util import ravel_pytree

from jaxrl import actors, make, registry
from jaxrl.algos import ppo, sac
from jaxrl.algos.actor_critic.recoil import demonstrated
from jaxrl.host.cli import main
from jaxrl.host.run.run_folder import description
from jaxrl.nn import optim
from jaxrl.nn.optim import OPTIMIZERS, Optimizer, annealed, clip_by_global_norm, optimizer_of, safe_norm
from jaxrl.replay.ring import Replay, uniform
from jaxrl.testing.assertions import assert_same_type, assert_strong


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-6, "atol": 1e-7, **tolerance})


TREE = {"a": jnp.array([3.0, 0.0]), "b": [jnp.array([[4.0]]), jnp.array(12.0)]}
LAYER = {"kernel": jnp.array([[1.0, -2.0, 0.5], [0.3, 2.0, -1.0]]), "bias": jnp.array([0.5, -1.0, 2.0])}


# ---- norms and rates


@pytest.mark.slow
@pytest.mark.light
def test_safe_norm_is_the_norm_of_everything():
    close(safe_norm(TREE), 13)
    assert safe_norm({}) == 0 and safe_norm(jnp.zeros(3)) == 0
    close(jax.grad(safe_norm)(jnp.array([3.0, 4.0])), [0.6, 0.8])
    # Where the norm has no derivative: zero, and no NaN further down.
    for f in (safe_norm, lambda x: safe_norm(x) ** 2, lambda x: safe_norm(x * 0)):
        np.testing.assert_array_equal(jax.grad(f)(jnp.zeros(3)), 0)
        assert np.all(np.isfinite(jax.hessian(f)(jnp.zeros(3))))


@pytest.mark.slow
@pytest.mark.light
def test_clipping_is_by_the_common_norm_and_keeps_the_direction():
    clipped = clip_by_global_norm(TREE, 6.5)
    jax.tree.map(lambda got, x: close(got, x / 2), clipped, TREE)
    close(safe_norm(clipped), 6.5)
    # An element-wise clip at 6.5 would leave 3 and 4 as they are.
    chex.assert_trees_all_close(clip_by_global_norm(TREE, 13.0), TREE)
    chex.assert_trees_all_equal(clip_by_global_norm(TREE, 1e9), TREE)
    optimiser = optax.clip_by_global_norm(2.0)
    chex.assert_trees_all_close(clip_by_global_norm(TREE, 2.0), optimiser.update(TREE, optimiser.init(TREE))[0])
    zeros = jax.tree.map(jnp.zeros_like, TREE)
    chex.assert_trees_all_equal(clip_by_global_norm(zeros, 1.0), zeros)
    jacobian = jax.jacobian(lambda x: clip_by_global_norm(x, 1.0))(jnp.zeros(2))
    assert np.all(np.isfinite(jacobian))


def test_annealed():
    value = jnp.float32(2.0)
    steps = jnp.array([0, 25, 50, 100, 1000])
    close(annealed(value, steps, jnp.int32(100)), [2, 1.5, 1, 0, 0])
    close(annealed(value, steps, jnp.int32(0)), np.full(5, 2.0))
    assert annealed(value, jnp.int32(3), jnp.int32(9)).dtype == jnp.float32
    assert np.isfinite(jax.grad(annealed)(value, jnp.int32(3), jnp.int32(0)))


# ---- each optimiser


def test_a_step_is_one_clipped_step_of_adam():
    weights = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}
    grads = {"a": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}
    adam = optimizer_of("adam")
    flat = ravel_pytree(weights)[0]
    new, state, norm = adam.descend(flat, adam.init(weights, 0.1), grads, 0.1, max_grad_norm=1.0)
    assert norm == 5 and state.count == 1
    # The first step of Adam has the size of the learning rate, whatever the clipping; its moments do not.
    np.testing.assert_allclose(new, [0.9, 2.0, 2.9], rtol=1e-6)
    np.testing.assert_allclose(state.inner[0].mu, [0.06, 0.0, 0.08], rtol=1e-6)


def quadratic(weights):
    return sum(jnp.sum(x**2) for x in jax.tree.leaves(weights))


def descent(optimizer, learning_rate, steps, max_grad_norm=jnp.inf, weights=LAYER):
    """`(weights, state)` after steps down a quadratic."""
    flat, unravel = ravel_pytree(weights)

    def step(carry, _):
        flat, state = carry
        return optimizer.descend(flat, state, jax.grad(quadratic)(unravel(flat)), learning_rate, max_grad_norm)[
            :2
        ], None

    carry = jax.lax.scan(step, (flat, optimizer.init(weights, learning_rate)), length=steps)[0]
    return unravel(carry[0]), carry[1]


@pytest.mark.slow(but_first=5)
@pytest.mark.light
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_name_descends(name):
    """And keeps the types of its state (or the scan would not run), which are strong."""
    optimizer = optimizer_of(name)
    weights, state = jax.jit(lambda rate: descent(optimizer, rate, 20))(0.02)
    assert quadratic(weights) < quadratic(LAYER) and state.count == 20
    moved = jax.tree.map(lambda a, b: bool(jnp.all(a != b)), weights, LAYER)
    assert all(jax.tree.leaves(moved)), moved
    assert_strong(state, name)


@pytest.mark.slow(but_first=3)
@pytest.mark.light
@pytest.mark.parametrize("name", sorted({*OPTIMIZERS} - {"muon"}))
def test_each_name_on_one_vector_is_optax_on_the_tree(name):
    """Over steps whose gradients are large, small, zero, and not; to rounding."""
    theirs = getattr(optax, name)
    settings = {"b1": 0.8, "eps": 1e-5} if name in optim.ADAMS else {}
    ours = optimizer_of(name, b1=0.8, eps=1e-5)
    rng = np.random.default_rng(0)
    grads = [
        jax.tree.map(lambda x, s=s: jnp.asarray(s * rng.normal(size=x.shape), x.dtype), TREE) for s in (1, 0, 1e-6)
    ]
    rate = 0.01

    @jax.jit
    def run(grads):
        flat, unravel = ravel_pytree(TREE)
        state, weights = ours.init(TREE, rate), TREE
        optimizer = theirs(rate, **settings)
        their_state = optimizer.init(weights)
        for g in grads * 3:
            change, their_state = optimizer.update(g, their_state, weights)
            weights = optax.apply_updates(weights, change)
            flat, state, _ = ours.descend(flat, state, g, rate)
        return unravel(flat), weights

    got, expected = run(grads)
    chex.assert_trees_all_close(got, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_muon_steps_on_matrices_have_one_size_in_all_directions_and_the_rest_is_nadam():
    weights = {
        "kernel": jax.random.normal(jax.random.key(0), (2, 4, 6)),  # of two networks
        "bias": jnp.ones((2, 6)),  # no matrix, though it has two axes
        "kernel_0": jax.random.normal(jax.random.key(1), (3, 3, 2, 5)),  # a convolution: 18 to 5
    }
    grads = jax.tree.map(lambda x: 0.7 * x, weights)
    flat, unravel = ravel_pytree(weights)
    rates = {}
    for name in ("muon", "nadam"):
        optimizer = optimizer_of(name)
        change, _ = optimizer.change(flat, optimizer.init(weights, 0.1), grads, 0.1)
        rates[name] = unravel(change)
    close(rates["muon"]["bias"], rates["nadam"]["bias"], rtol=1e-5)
    for kernel, (inputs, outputs) in (("kernel", (4, 6)), ("kernel_0", (18, 5))):
        for matrix in np.asarray(rates["muon"][kernel]).reshape(-1, inputs, outputs):
            singular = np.linalg.svd(matrix, compute_uv=False)
            assert singular.max() < 2 * singular.min()  # Newton-Schulz in five steps
            # 0.2 sqrt(larger side) each, that is a root mean square of 0.2 learning rates or less.
            assert 0.5 < singular.mean() / (0.1 * 0.2 * np.sqrt(max(inputs, outputs))) < 1.3


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", ["adam", "muon"])
def test_rates_are_leaves(name):
    """Many at a time, without compiling again, and each step has its own."""
    optimizer = optimizer_of(name)
    chex.clear_trace_counter()
    run = jax.jit(jax.vmap(chex.assert_max_traces(lambda rate: descent(optimizer, rate, 2, 1.0), n=1)))
    rates = jnp.array([0.01, 0.02])
    many = run(rates)
    again = run(2 * rates)
    alone = jax.jit(lambda rate: descent(optimizer, rate, 2, 1.0))(0.02)
    for other in (jax.tree.map(lambda x: x[1], many), jax.tree.map(lambda x: x[0], again)):
        chex.assert_trees_all_close(other, alone, rtol=1e-4, atol=1e-5)
    assert jnp.any(many[0]["kernel"][0] != many[0]["kernel"][1])


def after(learning_rate, target, transformation):
    """Two steps on (w - target)^2 and on weights whose gradients are zero, one of them for this `target` only."""
    weights, state = jnp.array([1.0, 0.0, 0.0]), None
    for _ in range(2):
        optimizer = transformation(learning_rate)
        grads = jax.grad(lambda w: jnp.sum((w[0] - target) ** 2) + 0 * w[1] + w[2] * (target - 0.3))(weights)
        change, state = optimizer.update(grads, optimizer.init(weights) if state is None else state, weights)
        weights = weights + change
    return jnp.sum(weights**2)


def derivatives(transformation):
    f = partial(after, transformation=transformation)
    return jax.jit(lambda x, y: (jax.grad(f, (0, 1))(x, y), jax.hessian(f, (0, 1))(x, y)))(0.1, 0.3)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", sorted({*OPTIMIZERS} - {"muon"}))
def test_second_derivatives_are_finite_at_a_gradient_of_zero(name):
    assert all(np.isfinite(x) for x in jax.tree.leaves(derivatives(optimizer_of(name).at)))


def test_the_derivative_of_adam():
    assert not all(np.isfinite(x) for x in jax.tree.leaves(derivatives(optax.adam))), "then EPS_ROOT is needless"
    # At zero the step is -g / (|g| + eps) of the rate, whose slope is -1 / eps.
    slope = jax.grad(lambda g: optim.adam(1.0, eps=1e-5).update(g, optim.adam(1.0).init(g))[0])(0.0)
    close(slope, -1e5, rtol=1e-3)
    with jax.enable_x64(True):
        f = jax.jit(jax.value_and_grad(partial(after, transformation=optim.adam)))
        grad = f(jnp.float64(0.1), jnp.float64(0.4))[1]
        ends = [f(jnp.float64(0.1 + e), jnp.float64(0.4))[0] for e in (1e-6, -1e-6)]
        close(grad, (ends[0] - ends[1]) / 2e-6, rtol=1e-7)


@pytest.mark.parametrize("eps", [1e-8, 1e-5])
def test_adam_takes_gradients_of_any_size_as_optax_does(eps):
    """Its `eps_root` is nothing beside `eps`, also for gradients as small as that."""

    @jax.jit
    def steps(grads):
        both = []
        for make_adam in (optim.adam, optax.adam):
            optimizer = make_adam(1.0, eps=eps)
            change, state = optimizer.update(grads, optimizer.init(grads))
            both.append(jnp.stack([change, optimizer.update(-0.5 * grads, state)[0]]))
        return both

    close(*steps(jnp.asarray(10.0 ** np.arange(-15, 4), jnp.float32)), rtol=0, atol=2e-7)


# ---- what optimizer_of takes


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="optimizer='Adamv' is unknown; did you mean 'adam.?'.*rmsprop"):
        optimizer_of("Adamv")
    with pytest.raises(TypeError):  # here by the run-time type checker already
        optimizer_of(3)  # pyright: ignore[reportArgumentType]


def test_equal_arguments_give_equal_optimisers():
    assert optimizer_of("adam", eps=1e-5, b1=0.8) == optimizer_of("adam", b1=0.8, eps=1e-5)
    assert hash(optimizer_of("adamw")) == hash(optimizer_of("adamw"))
    assert optimizer_of("rmsprop", eps=1e-5).settings == (), "an algorithm's eps is Adam's"
    given = Optimizer(optax.adam, flat=True)
    assert optimizer_of(given, eps=1e-5) is given


def test_a_transformation_keeps_its_own_rate_and_a_function_takes_the_algorithms():
    ready = optimizer_of(optax.sgd(0.1))
    made = optimizer_of(lambda rate: optax.sgd(rate))
    for optimizer, rate in ((ready, 0.1), (made, 0.25)):
        weights, _ = descent(optimizer, jnp.float32(0.25), 1)
        chex.assert_trees_all_close(weights, jax.tree.map(lambda x, r=rate: (1 - 2 * r) * x, LAYER), rtol=1e-6)


def test_a_function_sees_the_tree_unless_it_is_said_to_be_flat():
    def decayed(rate):
        return optax.adamw(rate, weight_decay=1.0, mask=lambda weights: {"kernel": True, "bias": False})

    plain, _ = descent(optimizer_of("adam"), 0.1, 1)
    weights, state = descent(optimizer_of(decayed), 0.1, 1)
    close(weights["bias"], plain["bias"])
    close(weights["kernel"], plain["kernel"] - 0.1 * LAYER["kernel"])
    assert state.inner[0].mu["kernel"].shape == (2, 3)
    _, state = descent(Optimizer(optax.adam, flat=True), 0.1, 1)
    assert state.inner[0].mu.shape == (9,)


# ---- algorithms

TINY = ppo.Config(num_envs=2, num_steps=4, num_epochs=1, num_minibatches=1, hidden=(8,))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "optimizer"),
    [
        (TINY, lambda lr: optax.adamw(lr, weight_decay=0.1)),
        (TINY, optax.chain(optax.scale_by_adam(), optax.scale(-1e-3))),
        (dataclasses.replace(TINY, optimizer="muon"), None),
    ],
    ids=["function", "transformation", "name"],
)
def test_ppo_takes_an_optimiser(config, optimizer):
    algo = ppo.make(make("CartPole-v1")[0], config, optimizer=optimizer)
    state = algo.init(jax.random.key(0))
    after, _ = jax.jit(algo.update)(state)
    assert_same_type(state, after, "state before and after")
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), state.weights, after.weights)
    assert all(jax.tree.leaves(moved)), moved


@pytest.mark.slow
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_ppo_by_name_is_optax_adam_with_the_configs_eps(eps):
    """On the whole of a rollout in one step, against the loss by hand. 1e-5 is the default."""
    env = make("CartPole-v1")[0]
    config = TINY if eps == 1e-5 else dataclasses.replace(TINY, adam_eps=eps)
    runs = [
        jax.jit(algo.update)(algo.init(jax.random.key(0)))[0]
        for algo in (ppo.make(env, config), ppo.make(env, TINY, optimizer=lambda lr: optax.adam(lr, eps=eps)))
    ]
    chex.assert_trees_all_close(runs[0].weights, runs[1].weights, rtol=1e-6, atol=1e-7)


WITH_ADAM = [name for name in registry.list_algos() if hasattr(registry.get_algo(name).Config, "adam_eps")]


def test_every_algorithm_with_optimisers_by_name_has_adams_eps():
    assert WITH_ADAM == [name for name in registry.list_algos() if hasattr(registry.get_algo(name).Config, "optimizer")]
    as_ppos = {"a2c", "barfi", "gorl", "ppo", "ppo_rnn", "props", "reinflow", "reinforce", "rnd", "spo", "stac"}
    for name in WITH_ADAM:
        assert registry.get_algo(name).Config.adam_eps == (1e-5 if name in as_ppos else 1e-8), name


FROM_DATA = {  # made with a memory alone, which nothing is drawn from here
    **dict.fromkeys(("cpl", "oppo", "p_iql"), dict(replay=Replay(lambda item: (), None, len))),
    "heron": dict(factors=len),
    **dict.fromkeys(("dagger", "hg_dagger", "rlif"), dict(expert=actors.of_function(lambda obs: obs[:1]))),
    "h2o": dict(real=Replay(lambda item: (), None, len)),
    "recoil": dict(replay=demonstrated(uniform(8), uniform(8))),
    "uni_o4": dict(replay=Replay(lambda item: (), None, len), model=len),
}


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", WITH_ADAM)
def test_adams_eps_reaches_the_optimiser(name):
    module, given = registry.get_algo(name), FROM_DATA.get(name, {})
    env = make("Pendulum-v1" if given or registry.algo_actions(name) == ("Box",) else "CartPole-v1")[0]
    settings = {"num_steps": 4, "num_minibatches": 1, "buffer_size": 10000, "strategy": "open_es", "label": "behaviour"}
    settings |= {"num_rollouts": 4, "burn_in": 0, "n_step": 1}
    known = {field.name for field in dataclasses.fields(module.Config)}
    config = module.Config(adam_eps=0.125, **{name: x for name, x in settings.items() if name in known})
    optimizer = module.make(env, config, **given).init.__self__.optimizer
    assert dict(optimizer.settings)["eps"] == 0.125


@pytest.mark.slow
def test_a_learning_rate_does_not_compile_again():
    algo = ppo.make(make("CartPole-v1")[0], TINY, optimizer=lambda lr: optax.adamw(lr, weight_decay=0.1))
    chex.clear_trace_counter()
    update = jax.jit(chex.assert_max_traces(lambda state: algo.update(state), n=1))
    state = algo.init(jax.random.key(0), ppo.Hyper(learning_rate=1e-3, anneal_steps=100))
    changes = []
    for rate in (0.0, 1e-2):
        new, _ = update(state.replace(hyper=state.hyper.replace(learning_rate=jnp.float32(rate))))
        changes.append(ravel_pytree(new.weights)[0] - ravel_pytree(state.weights)[0])
    assert np.all(changes[0] == 0) and np.any(changes[1] != 0)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["muon", optax.adamw(1e-3, weight_decay=0.5)], ids=["name", "transformation"])
def test_sac_has_an_optimiser_for_each_network_and_adam_for_its_temperature(optimizer):
    algo = sac.make(make("Pendulum-v1")[0], sac.Config(buffer_size=64, batch_size=8, hidden=(8,)), optimizer=optimizer)
    state = algo.init(jax.random.key(0), sac.Hyper(learning_starts=0, alpha_learning_rate=0.0, alpha=0.1))
    after, _ = jax.jit(algo.update)(state)
    assert_same_type(state, after, "state before and after")
    assert {name: int(part.count) for name, part in after.optimizer.items()} == dict.fromkeys(state.weights, 1)
    assert after.weights["log_alpha"] == state.weights["log_alpha"], "its rate is 0, whatever the networks' decay is"


def test_an_optimiser_that_the_config_does_not_name_tells_runs_apart():
    env = make("CartPole-v1")[0]
    told = [
        description(ppo.make(env, TINY, optimizer=optimizer), None)
        for optimizer in (None, "adam", "adamw", optax.sgd(0.1), optax.sgd)
    ]
    assert told[0] == told[1]
    assert len({str(about) for about in told}) == 4


def test_an_unknown_name_is_refused_when_the_algorithm_is_made():
    with pytest.raises(ValueError, match="did you mean 'rmsprop'"):
        ppo.make(make("CartPole-v1")[0], ppo.Config(optimizer="rms_prop"))


def test_the_command_line_takes_a_name(capsys, tmp_path):
    assert tyro.cli(ppo.Config, args=["--optimizer", "adamw"]).optimizer == "adamw"
    # The whole way: the name reaches `make`, which knows it or not.
    words = ["train", "ppo", "CartPole-v1", "--config.optimizer", "adamv", "--out", str(tmp_path / "run")]
    assert main(words) == 1
    assert "optimizer='adamv' is unknown; did you mean 'adam" in capsys.readouterr().err
