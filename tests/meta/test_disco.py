"""DiscoRL's rule against the code of its authors, its weights as a file, and the agent that learns by it."""

import os
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algos.meta import disco, disco_rule
from jaxrl.algos.meta.disco import Config, Hyper
from jaxrl.algos.meta.disco_rule import Outputs, RuleConfig, Trajectories
from jaxrl.meta.stored import RuleFileError
from jaxrl.testing.golden import golden
from jaxrl.testing.probes import DelayedReward, ObservationActionReward
from tests.golden.make_disco import SMALL, SMALL_BINS, SMALL_MAX, inputs

KEY = jax.random.key(0)
TWO_HOT = 2e-5  # 1e-5 over the distance of bins, 0.8 in the small rule's case
TINY = Config(
    num_envs=2,
    num_steps=4,
    batch_size=4,
    buffer_size=8,
    hidden=(8, 8),
    model_size=4,
    model_hidden=(4,),
    num_bins=11,
    max_value=3.0,
    predictions=6,
    features=6,
    memory=4,
)


def cut(said, first):
    """Of T + 1 states the first T, or the last."""
    return jax.tree.map(lambda x: x[first : first + len(x) - 1], said)


def two_updates(weights, config, made, bins, max_value):
    """Everything that the reference's file has, of our functions."""
    centres, hyper, memory = disco.centres(bins, max_value), Hyper(), disco_rule.fresh_memory(config)
    found = {}
    for i in range(2):
        whole, of_target = (
            Outputs(*(jnp.asarray(made[f"{i}/{who}/{name}"]) for name in Outputs._fields)) for who in ("now", "old")
        )
        (now, after), (old, old_after) = ((cut(x, 0), cut(x, 1)) for x in (whole, of_target))
        action, behaviour = (jnp.asarray(made[f"{i}/{name}"][:-1]) for name in ("action", "behaviour"))
        seen = Trajectories(action, behaviour, *(jnp.asarray(made[f"{i}/{name}"]) for name in ("reward", "done")))
        values, memory = disco.values_of(now, after, old, old_after, seen, memory, hyper, centres)
        targets, memory = disco_rule.apply_rule(weights, config, now, after, old, old_after, seen, values, memory)

        def losses(said, seen=seen, targets=targets):
            return disco.loss(cut(said, 0), said.logits[1:], seen, targets, hyper, centres)[0]

        grads = jax.grad(lambda said, losses=losses: losses(said).mean())(whole)
        found |= {f"{i}/pi": targets.pi, f"{i}/y_hat": targets.y, f"{i}/z_hat": targets.z, f"{i}/q_target": targets.q}
        found |= {f"{i}/normalized": values.normalized, f"{i}/hidden": memory.hidden, f"{i}/cell": memory.cell}
        found |= {f"{i}/loss": losses(whole)}
        found |= {f"{i}/grad/{name}": x for name, x in grads._asdict().items()}
    return found


def agree(found, expected, tolerance):
    """By an array's largest number, as some have no other scale: gradients are 1e-4 and less.

    The reference's two-hot targets of q add 1e-5 to a denominator, which losses and their gradients show.
    """
    assert set(found) == set(expected)
    for name, x in expected.items():
        near = max(tolerance, TWO_HOT) if name.endswith(("loss", "grad/q")) else tolerance
        np.testing.assert_allclose(found[name][..., : x.shape[-1]], x, 0, near * np.abs(x).max(), err_msg=name)


def test_a_small_rule_says_what_the_reference_says():
    data = golden("disco")
    expected = {k.removeprefix("small/"): x for k, x in data.items() if k.startswith("small/")}
    named = {k.removeprefix("weights/"): expected.pop(k) for k in list(expected) if k.startswith("weights/")}
    made = inputs(2, SMALL["predictions"], SMALL_BINS)
    with jax.enable_x64(True):
        weights = {name: jnp.asarray(x) for name, x in named.items()}
        run = jax.jit(lambda w: two_updates(w, RuleConfig(**SMALL), made, SMALL_BINS, SMALL_MAX))
        agree(run(weights), expected, 1e-10)


@pytest.mark.skipif("JAXRL_DISCO_WEIGHTS" not in os.environ, reason="JAXRL_DISCO_WEIGHTS: path of disco_103.npz")
def test_disco103_says_what_the_reference_says():
    data = golden("disco")
    expected = {k.removeprefix("disco103/"): x for k, x in data.items() if k.startswith("disco103/")}
    made = inputs(3, 600, 601)
    with jax.enable_x64(True):
        weights = disco_rule.load(os.environ["JAXRL_DISCO_WEIGHTS"])
        weights = {name: x.astype(jnp.float64) for name, x in weights.items()}
        agree(jax.jit(lambda w: two_updates(w, RuleConfig(), made, 601, 300.0))(weights), expected, 1e-10)
    single = disco_rule.load(os.environ["JAXRL_DISCO_WEIGHTS"])
    agree(jax.jit(lambda w: two_updates(w, RuleConfig(), made, 601, 300.0))(single), expected, 2e-5)


def test_the_published_sizes():
    wanted = disco_rule.shapes(RuleConfig())
    assert len(wanted) == 42 and sum(np.prod(shape) for shape in wanted.values()) == 754_778


@pytest.mark.slow
@pytest.mark.light
def test_weights_as_a_file(tmp_path):
    sizes = RuleConfig(predictions=3, features=4, memory=2)
    weights, path = disco_rule.fresh_rule(KEY, sizes), tmp_path / "rule.npz"
    disco_rule.save(path, weights)
    back = disco_rule.load(path, sizes)
    assert all((back[name] == x).all() for name, x in weights.items())
    with pytest.raises(RuleFileError, match=r"lstm/\S+ is float32\(.*\), and a rule of these sizes has"):
        disco_rule.load(path, RuleConfig(predictions=3, features=5, memory=2))
    with pytest.raises(RuleFileError, match=r"no such file. Disco103 is"):
        disco_rule.load(tmp_path / "none.npz")
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(path.read_bytes()[:200])
    with pytest.raises(RuleFileError, match="it is no stored rule"):
        disco_rule.load(damaged, sizes)
    rng, refused = np.random.default_rng(0), 0
    for _ in range(100):
        content = np.frombuffer(path.read_bytes(), np.uint8).copy()
        content[rng.integers(len(content), size=3)] ^= rng.integers(1, 256, 3).astype(np.uint8)
        damaged.write_bytes(content.tobytes())
        try:
            # What is damaged may be a date.
            back = disco_rule.load(damaged, sizes)
            assert all((back[name] == x).all() for name, x in weights.items())
        except RuleFileError:
            refused += 1
    assert refused > 50
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(RuleFileError, match="it is no stored rule"):
        disco_rule.load(tmp_path / "one.npy", sizes)
    pickled = tmp_path / "pickled.npz"
    pickled.write_bytes(pickle.dumps(1))
    with pytest.raises(RuleFileError, match="it is no stored rule"):
        disco_rule.load(pickled, sizes)
    np.savez(tmp_path / "object.npz", **{name: np.asarray(x) for name, x in list(weights.items())[1:]})
    with pytest.raises(RuleFileError, match="it is no DiscoRL rule: .* is missing"):
        disco_rule.load(tmp_path / "object.npz", sizes)
    with pytest.raises(RuleFileError, match="there is no such file"):
        algo = disco.make(ObservationActionReward(), Config(weights=str(tmp_path / "no.npz")))
        algo.init(KEY)
    with pytest.raises(ValueError, match="disco acts in Discrete spaces"):
        disco.make(jaxrl.make("Pendulum-v1")[0])
    with pytest.raises(ValueError, match="trajectories hold no rollout"):
        Config(num_envs=4, buffer_size=3)


@pytest.mark.slow
@pytest.mark.light
def test_every_group_moves_and_the_rule_gets_a_gradient():
    algo = disco.make(DelayedReward(), TINY)
    learner = algo.learn.__self__

    @jax.jit
    def run(key):
        state = algo.init(key)
        state, _ = algo.collect(state)
        state, rollout = algo.collect(state)
        batch = rollout.obs, rollout.next_obs, rollout.seen
        after, _ = learner.follow(state, *batch)

        def later(rule):
            taught, _ = learner.follow(state.replace(hyper=state.hyper.replace(rule=rule)), *batch)
            taught, _ = learner.follow(taught, *batch)
            said = learner.outputs(taught.weights, rollout.obs)
            return -jax.nn.log_softmax(said.logits).mean()

        waits, _ = algo.learn(state, rollout)
        # With biases of zero a memory that has seen nothing makes everything zero.
        rule = jax.tree.map(lambda x: x + 0.1, state.hyper.rule)
        return state, after, waits, jax.grad(later)(rule)

    state, after, waits, grads = run(KEY)
    moved = jax.tree.map(lambda x, y: bool((x != y).any()), state.weights, after.weights)
    assert all(jax.tree.leaves(moved))
    assert (after.memory.hidden != state.memory.hidden).all()
    # Two trajectories are no batch of four that differ.
    assert all(jax.tree.leaves(jax.tree.map(lambda x, y: bool((x == y).all()), waits.weights, state.weights)))
    assert all(np.isfinite(x).all() for x in grads.values())
    # What is added to all actions alike, a softmax does not see.
    blind = {"lstm/linear_4/b", "lstm/sequential_1/conv1_d/b"}
    assert {name for name, x in grads.items() if not x.any()} <= blind
