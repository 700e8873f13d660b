"""The toy student by hand, and against the definition cell by cell."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs.tabular.hyper_cubes import HyperCubes


def reference(competence, x, cells, dims):
    """The definition on a host array, one episode; returns the reward."""
    at = tuple(np.minimum((np.asarray(x, np.float64)[:dims] * cells).astype(int), cells - 1))
    steps = itertools.product((0, 1), repeat=dims)
    before = {tuple(max(0, i - b) for i, b in zip(at, back, strict=True)) for back in steps} - {at}
    if at == (0,) * dims or any(competence[c] >= 75 for c in before):
        competence[at] = min(competence[at] + 1, 100)
    return competence[at] / 100


def test_the_first_cell_unlocks_its_neighbours():
    cubes = HyperCubes(cells=4, dimensions=2)
    play = jax.jit(cubes.episodes)
    first, beside = jnp.full((75, 2), 0.1), jnp.array([[0.1, 0.3]])
    state, reward = play(cubes.initial(), beside)
    np.testing.assert_array_equal(reward, [0])
    assert not state.any()
    state, reward = play(cubes.initial(), first)
    np.testing.assert_allclose(reward, np.arange(1, 76) / 100)
    assert cubes.mastered(state) == 0  # 75 is not above 75
    for x, gain in ([0.1, 0.3], 0.01), ([0.3, 0.1], 0.01), ([0.3, 0.3], 0.01), ([0.1, 0.6], 0), ([0.6, 0.6], 0):
        np.testing.assert_allclose(cubes.episode(state, jnp.array(x))[1], gain)
    state, _ = play(state, first)
    assert state[0] == 100 and state.sum() == 100
    np.testing.assert_allclose(cubes.mastered(state), 1 / 16)


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize(("cells", "dims", "useless"), [(3, 1, 0), (3, 2, 2), (2, 3, 0)])
def test_it_is_the_definition(cells, dims, useless):
    cubes = HyperCubes(cells, dims)
    x = np.random.default_rng(0).random((2000, dims + useless)).astype(np.float32) ** 2
    state, rewards = jax.jit(cubes.episodes)(cubes.initial(), jnp.asarray(x))
    competence = np.zeros((cells,) * dims)
    expected = [reference(competence, row, cells, dims) for row in x]
    np.testing.assert_allclose(rewards, expected, atol=1e-6)
    np.testing.assert_array_equal(state, competence.ravel())
    np.testing.assert_allclose(cubes.mastered(state), (competence > 75).mean())
    assert competence.max() == 100 and (cells**dims < 9 or competence.min() < 75)


def test_the_edge_belongs_to_the_last_cell():
    cubes = HyperCubes(cells=2, dimensions=1)
    state = jnp.array([80, 0])
    assert cubes.episode(state, jnp.array([1.0]))[0].tolist() == [80, 1]


def test_refuses():
    with pytest.raises(ValueError, match="cells=0"):
        HyperCubes(cells=0)
    with pytest.raises(ValueError, match="1 coordinates; 2 are needed"):
        HyperCubes().episode(HyperCubes().initial(), jnp.zeros(1))
