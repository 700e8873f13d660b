"""Reference generators: their signals against scipy's, their distributions against their definitions."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal, stats

from jaxrl.environment import strongly_typed
from jaxrl.envs.motor import tasks
from jaxrl.envs.motor.drive import MotorDrive
from jaxrl.envs.motor.references import (
    Constant,
    Laplace,
    Recorded,
    Sawtooth,
    Sine,
    Step,
    Switched,
    Triangle,
    Wiener,
)

WAVES = (Sine, Sawtooth, Triangle, Step)
TAU = 1e-3
N, T = 256, 4500


def play(reference, seed=0, n=N, t=T):
    """`n` states at `t` steps each, as leaves of shape (t, n)."""
    return jax.tree.map(np.asarray, _play(strongly_typed(reference), seed, n, t))


@functools.partial(jax.jit, static_argnames=("n", "t"))
def _play(reference, seed, n, t):
    first, rest = jax.random.split(jax.random.key(seed))
    words = jax.random.bits(first, (n, reference.start_words), jnp.uint32)
    state = jax.vmap(lambda w: reference.start(tuple(w), TAU))(words)

    def body(state, key):
        words = jax.random.bits(key, (n, reference.words), jnp.uint32)
        after = jax.vmap(lambda w, s: reference.step(tuple(w), s, TAU))(words, state)
        return after, state

    return jax.lax.scan(body, state, jax.random.split(rest, t))[1]


@functools.cache
def waves(cls, **changes):
    return play(cls(low=-0.6, high=0.8, **changes))


def formula(cls, wave, k, tau):
    """gym-electric-motor's definition, of one sub-episode with the numbers of `wave`, at its steps `k`."""
    t = np.arange(wave.length) * tau
    if cls is Step:
        ratio = stats.triang(0.5).ppf(wave.shape)
        x = np.sign(wave.frequency * (t % (1 / wave.frequency)) - ratio)
        x = np.roll(x, int(wave.phase / wave.frequency / tau))
    else:
        angle = 2 * np.pi * (wave.frequency * t + wave.phase)
        x = np.sin(angle) if cls is Sine else signal.sawtooth(angle, wave.shape if cls is Triangle else 1)
    return np.clip(wave.amplitude * x + wave.offset, -0.6, 0.8)[k]


def begins(index):
    """(step, which) where a whole sub-episode begins, so that it ends before the record does."""
    steps, which = np.nonzero(index == 0)
    return steps, which


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("cls", WAVES)
def test_a_wave_is_that_of_its_definition(cls):
    found = waves(cls)
    steps, which = begins(found.index)
    for step, i in list(zip(steps, which, strict=True))[:60]:
        wave = type(found)(*(np.float64(leaf[step, i]) for leaf in found))
        wave = wave._replace(length=int(wave.length))
        stop = min(step + wave.length, T)
        expected = formula(cls, wave, np.arange(stop - step), TAU)
        error = np.abs(found.value[step:stop, i] - expected)
        # where a wave jumps, rounding may put that a step earlier or later
        jumps = cls in (Sawtooth, Step)
        assert (error > 2e-4).mean() < (0.02 if jumps else 1e-9), (step, i)
        assert np.median(error) < 1e-5


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("cls", WAVES)
def test_sub_episodes_last_from_500_to_2000_steps_and_keep_their_numbers(cls):
    found = waves(cls)
    assert found.index[0].max() == 0
    for i in range(16):
        at = np.flatnonzero(found.index[:, i] == 0)
        lengths = np.diff(at)
        assert lengths.min() >= 500 and lengths.max() < 2000
        np.testing.assert_array_equal(lengths, found.length[at[:-1], i])
        changes = np.flatnonzero(np.diff(found.frequency[:, i])) + 1
        np.testing.assert_array_equal(changes, at[1:])
    first = found.length[0]
    assert first.mean() == pytest.approx(1250, abs=4 * 1500 / math.sqrt(12 * N))
    assert first.std() == pytest.approx(1500 / math.sqrt(12), rel=0.12)


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("cls", WAVES)
def test_numbers_of_a_wave_have_their_distributions(cls):
    found = waves(cls)
    new = found.index == 0
    amplitude, frequency, offset, phase, shape = (
        leaf[new] for leaf in (found.amplitude, found.frequency, found.offset, found.phase, found.shape)
    )
    low, high = -0.6, 0.8
    floor = low if cls is Step else -high
    least = np.clip(low, floor + amplitude, high - amplitude)
    most = high - amplitude
    room = most - least > 1e-3
    for name, sample, spread in (
        ("amplitude", amplitude, stats.uniform(0, (high - low) / 2)),
        ("frequency", frequency, stats.uniform(1, 9)),
        ("offset", ((offset - least) / np.where(room, most - least, 1))[room], stats.uniform(0, 1)),
        ("phase", phase, stats.uniform(0, 1)),
        ("shape", shape, stats.uniform(0, 1)),
    ):
        assert stats.kstest(sample, spread.cdf).pvalue > 1e-4, name
    assert abs(np.corrcoef([amplitude, frequency, phase, shape]) - np.eye(4)).max() < 0.12
    assert found.value.min() >= low - 1e-6 and found.value.max() <= high + 1e-6
    assert found.value.min() < -0.55 and found.value.max() > 0.75


@functools.cache
def long(cls):
    """2 s of waves of no offset, which nothing clips: at least two whole periods."""
    found = play(cls(offset_low=0.0, offset_high=0.0, steps_low=2000.0, steps_high=2000.0), seed=3)
    return type(found)(*(leaf[:2000] for leaf in found))


def test_frequencies_can_be_counted():
    found = long(Sine)
    upward = (found.value[:-1] < 0) & (found.value[1:] >= 0)
    at = [np.flatnonzero(column) for column in upward.T]
    counted = np.array([(len(a) - 1) / ((a[-1] - a[0]) * TAU) if len(a) > 1 else np.nan for a in at])
    np.testing.assert_allclose(counted, found.frequency[0], rtol=0.01)
    assert stats.kstest(counted, stats.uniform(1, 9).cdf).pvalue > 1e-4


def test_a_sawtooth_rises_for_a_whole_period():
    found = long(Sawtooth)
    np.testing.assert_allclose((np.diff(found.value, axis=0) < 0).sum(0), 2 * found.frequency[0], atol=1.01)


def test_widths_of_triangles_are_uniform():
    found = long(Triangle)
    rising = (np.diff(found.value, axis=0) > 0)[:, found.frequency[0] > 3]  # many periods, so the ends count for little
    width = rising.mean(0)
    assert np.abs(width - found.shape[0][found.frequency[0] > 3]).max() < 0.2
    assert stats.kstest(width, stats.uniform(0, 1).cdf).pvalue > 1e-4


def test_duty_ratios_of_steps_are_triangular():
    found = long(Step)
    low = (found.value < 0)[:, found.frequency[0] > 3].mean(0)
    assert low.mean() == pytest.approx(0.5, abs=0.06)
    assert stats.kstest(low, stats.triang(0.5).cdf).pvalue > 1e-4
    np.testing.assert_allclose(np.abs(found.value), np.broadcast_to(found.amplitude[0], found.value.shape), atol=1e-6)


def test_ranges_that_are_given_are_cut_to_the_margins():
    found = waves(Sine, amplitude_low=0.5, amplitude_high=5.0, offset_low=0.1, offset_high=0.2, frequency_low=4.0)
    assert 0.5 <= found.amplitude.min() and found.amplitude.max() <= 0.7
    assert found.offset.max() <= 0.2 + 1e-6 and (found.offset <= 0.8 - found.amplitude + 1e-6).all()
    assert found.frequency.min() >= 4


@pytest.mark.slow
def test_laplace_increments_have_their_scale_and_start_at_zero():
    reference = Laplace(low=-0.6, high=0.8)
    value, sigma, left = play(reference, seed=1)
    assert value.min() == np.float32(-0.6) and value.max() == np.float32(0.8)
    assert stats.kstest(value[0] / sigma[0], stats.laplace.cdf).pvalue > 1e-4
    inside = (np.abs(value[1:]) < 0.3) & (sigma[1:] < 0.03)
    z = (np.diff(value, axis=0) / sigma[1:])[inside]
    assert abs(z.mean()) < 0.02 and np.abs(z).mean() == pytest.approx(1, abs=0.02)
    assert z.std() == pytest.approx(math.sqrt(2), rel=0.02)  # a normal number of |z| = 1 would have 1.25
    assert stats.kstest(np.log10(sigma[0]), stats.uniform(-3, 2).cdf).pvalue > 1e-4
    lengths = np.diff(np.flatnonzero(np.diff(sigma[:, 0])))
    assert lengths.min() >= 500 and lengths.max() < 2000 and left.min() == 0


@pytest.mark.slow
def test_a_switched_reference_has_its_probabilities_and_lengths():
    parts = tuple(Constant(target=x) for x in (-0.5, 0.0, 0.5))
    reference = Switched(parts, (0.2, 0.5, 0.3), steps_low=10.0, steps_high=20.0)
    value, index, left, _ = play(reference, seed=2, t=1000)
    np.testing.assert_array_equal(value, np.array([-0.5, 0, 0.5], np.float32)[index])
    last = left == 0
    chosen = index[1:][last[:-1]]  # anew
    counts = np.bincount(chosen, minlength=3)
    assert stats.chisquare(counts, np.array([0.2, 0.5, 0.3]) * counts.sum()).pvalue > 1e-4
    ends = [np.diff(np.flatnonzero(column)) for column in last.T]
    lengths = np.concatenate(ends)
    assert lengths.min() == 10 and lengths.max() == 19
    assert lengths.mean() == pytest.approx(14.5, abs=0.1)
    default = Switched(parts)
    _, _, left, _ = play(default, seed=2, n=2000, t=1)
    assert 99 <= left.min() < 200 and 9900 < left.max() < 9999  # 100 to 9999 shown, one of them now
    assert left.mean() == pytest.approx(5050, abs=4 * 9900 / math.sqrt(12 * 2000))


def test_a_random_walk_goes_on_where_another_reference_was():
    still = {"sigma_low": 1e-4, "sigma_high": 1e-4}
    reference = Switched((Wiener(**still), Laplace(**still)), steps_low=5.0, steps_high=9.0)
    value, index, _, _ = play(reference, seed=4, n=64, t=300)
    assert (np.diff(index, axis=0) != 0).sum() > 500
    assert np.abs(np.diff(value, axis=0)).max() < 2e-3 and value[0].std() > 0.2


def test_a_record_is_reproduced():
    record = np.random.default_rng(0).uniform(-1, 1, 300).astype(np.float32)
    value = play(Recorded(record, TAU), n=1, t=2000)[0]
    np.testing.assert_array_equal(value[:700, 0], np.concatenate([record, record, record[:100]]))
    slow = play(Recorded(record, 7 * TAU), n=1, t=2000)[0][:, 0]
    expected = np.interp(np.arange(2000) / 7, np.arange(300), record)
    np.testing.assert_allclose(slow, expected, rtol=0, atol=1e-4)
    reference = Recorded(record, TAU, start_low=0.1, start_high=0.2)
    value, begin, _ = play(reference, t=2)
    assert stats.kstest(begin[0], stats.uniform(100, 100).cdf).pvalue > 1e-4
    np.testing.assert_allclose(value[0], np.interp(begin[0], np.arange(300), record), atol=1e-4)


RECORD = Recorded(np.float32([0, 0.3, 0.5, -0.2]), 5e-4)
KINDS = {
    "sine and triangle": (Sine(), Triangle()),
    "sawtooth and step": (Sawtooth(), Step()),
    "laplace and switched": (Laplace(), Switched((Wiener(), Sine(), Constant()), (0.5, 0.25, 0.25))),
    "recorded and constant": (RECORD, Constant(target=-0.3)),
}


@pytest.mark.slow(but_first=1)
@pytest.mark.parametrize("kinds", KINDS)
def test_states_keep_their_types_in_float64_and_under_vmap_over_every_number(kinds):
    references = KINDS[kinds]
    words = np.random.default_rng(1).integers(2**32, size=(2, 8)).astype(np.uint32)

    def both(references, words):
        states = tuple(r.start(tuple(words[0, : r.start_words]), TAU) for r in references)
        after = tuple(r.step(tuple(words[1, : r.words]), s, TAU) for r, s in zip(references, states, strict=True))
        return states, after

    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x, jnp.float64)] * 3), references)
        first, then = jax.jit(jax.vmap(both, (0, None)))(wide, jnp.asarray(words))
        for before, after in zip(jax.tree.leaves(first), jax.tree.leaves(then), strict=True):
            assert before.dtype == after.dtype and before.dtype in (np.int32, np.float64)
            assert before.shape == after.shape == (3,)
            np.testing.assert_array_equal(after, after[:1].repeat(3))
    # as they are made, of python's numbers
    for state in jax.tree.leaves(jax.eval_shape(both, references, words)):
        assert state.dtype in (np.int32, np.float32) and not state.weak_type


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds", [("sine and triangle", "sawtooth and step"), ("recorded and constant", "laplace and switched")]
)
def test_a_drive_follows_any_of_them(kinds):
    referenced = ("i_sd", "i_sq", "torque", "omega")
    env = MotorDrive(**tasks.find("Cont-CC-PMSM-v0"), id="Cont-CC-PMSM-v0", referenced=referenced, constraints=())
    references = KINDS[kinds[0]] + KINDS[kinds[1]]
    params = env.default_params.replace(references=references)
    env.validate(params)

    @jax.jit
    def run(params):
        obs, state = env.reset(jax.random.key(0), params)

        def body(state, key):
            obs, state, reward, *_ = env.step(key, state, jnp.zeros(3), params)
            return state, (obs, reward)

        return obs, jax.lax.scan(body, state, jax.random.split(jax.random.key(1), 30))[1]

    first, (rest, reward) = jax.tree.map(np.asarray, run(params))
    obs = np.concatenate([first[None], rest])
    measured = obs[1:, [env.observation_names.index(name) for name in referenced]]
    shown = obs[:, -4:]
    np.testing.assert_allclose(reward, -0.25 * np.abs(measured - shown[:-1]).sum(1) / 2, atol=1e-6)
    assert np.abs(shown).max() <= 1
    if kinds[0] == "recorded and constant":
        expected = np.interp(np.arange(16) / 5, np.arange(4), RECORD.values)
        np.testing.assert_allclose(shown[:16, 0], expected, atol=1e-6)
        np.testing.assert_allclose(shown[:, 1], -0.3, atol=1e-7)
        assert shown[:, 2].std() > 0
    else:
        assert (shown[:, :3].std(0) > 0).all()
        assert len(np.unique(np.round(shown[:, 3], 6))) <= 2


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (Sine(low=0.5, high=-0.5), "low=0.5 must not be above high=-0.5"),
        (Triangle(frequency_low=0.0), "frequency_low=0.0 must be above 0"),
        (Step(amplitude_low=-0.1), "amplitude_low=-0.1 must not be negative"),
        (Sawtooth(offset_low=0.2, offset_high=0.1), "offset_low=0.2 must not be above offset_high=0.1"),
        (Laplace(sigma_low=0.0), "sigma_low=0.0 must be positive"),
        (Wiener(steps_low=0.0), "steps_low=0.0 must be above 0"),
        (Constant(target=math.nan), "target=nan must be finite"),
        (Recorded(np.array([0.0, np.inf])), r"shape \(2,\) must be \(K,\) finite"),
        (Recorded(np.zeros(2), 0.0), "interval=0.0 must be positive"),
        (Switched(()), "at least one"),
        (Switched((Sine(), Step()), (1.0,)), "1 probabilities for 2"),
        (Switched((Sine(), Step()), (0.7, 0.7)), "must have the sum 1"),
        (Switched((Sine(frequency_low=20.0),)), "frequency_low=20.0 must not be above frequency_high=10.0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(reference, message):
    with pytest.raises(ValueError, match=message):
        reference.validate("drive")
