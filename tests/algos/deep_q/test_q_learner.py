"""What deep Q-learning algorithms share: windows of n steps against arrays worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.off_policy import q_learner


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **{"rtol": 1e-6, "atol": 1e-7, **tolerance})


# Windows of three steps, one a column: whole; terminated, truncated or both in the middle; truncated at once;
# terminated at the end; truncated in the middle, where a later end must not count.
REWARD = jnp.tile(jnp.array([1.0, 2.0, 4.0])[:, None], (1, 7))
TERMINATED = jnp.array([[0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1]], bool)
TRUNCATED = jnp.array([[0, 0, 0, 0, 1, 0, 0], [0, 0, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0]], bool)


@pytest.mark.slow
@pytest.mark.light
def test_n_step_windows_by_hand():
    returns, discount, last = q_learner.n_step(REWARD, TERMINATED, TRUNCATED, 0.5)
    close(returns, [3, 2, 2, 2, 1, 3, 2])
    close(discount, [0.125, 0, 0.25, 0, 0.5, 0, 0.25])
    np.testing.assert_array_equal(last, [2, 1, 1, 1, 0, 2, 1])
    slope = jax.jacobian(lambda gamma: q_learner.n_step(REWARD, TERMINATED, TRUNCATED, gamma)[:2])(0.5)
    close(slope[0], [2 + 4, 2, 2, 2, 0, 2 + 4, 2])
    close(slope[1], [0.75, 0, 1, 0, 1, 0, 1])
    one = q_learner.n_step(REWARD[:1], jnp.array([[False, True, False]]).repeat(3, 1)[:, :7], TRUNCATED[:1], 0.9)
    close(one[0], 1)
    close(one[1], [0.9, 0.9, 0.9, 0, 0, 0, 0.9])


def test_a_batch_has_the_first_observation_and_the_true_successor():
    at = jnp.arange(3.0)[:, None, None] + 10 * jnp.arange(7.0)[:, None]  # (3, 7, 1)
    transition = q_learner.Transition(
        obs={"x": at, "image": jnp.broadcast_to(at[..., None], (3, 7, 1, 2))},
        action=jnp.arange(21, dtype=jnp.int32).reshape(3, 7),
        reward=REWARD,
        terminated=TERMINATED,
        truncated=TRUNCATED,
        next_obs={"x": at + 0.5, "image": jnp.broadcast_to(at[..., None], (3, 7, 1, 2)) + 0.5},
    )
    batch = q_learner.windows_to_batch(transition, 0.5)
    close(batch.obs["x"][:, 0], 10 * np.arange(7))
    np.testing.assert_array_equal(batch.action, np.arange(7))
    successor = 10 * np.arange(7) + np.array([2, 1, 1, 1, 0, 2, 1]) + 0.5
    close(batch.next_obs["x"][:, 0], successor)
    close(batch.next_obs["image"], np.broadcast_to(successor[:, None, None], (7, 1, 2)))
