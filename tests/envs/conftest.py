"""What the golden tests of the grid worlds share."""

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest


class Episodes:
    """Playing recorded actions on recorded levels, and comparing (`minigrid`'s, see tests/golden/make_minigrid.py)."""

    @staticmethod
    def player(env: Any) -> Any:
        """A compiled `(levels, actions (seeds, steps)) -> (seen, reward, terminated, truncated)`. An episode that ends
        starts again on its level."""

        def play(level, actions):
            start = env.start(level)

            def step(state, action):
                ts = env.step(jax.random.key(0), state, action, level)
                ended = ts.terminated | ts.truncated
                state = jax.tree.map(lambda a, b: jnp.where(ended, a, b), start, ts.state)
                seen = jnp.append(ts.obs["image"].reshape(-1), ts.obs["direction"].astype(jnp.uint8))
                return state, (seen, ts.reward, ts.terminated, ts.truncated)

            return jax.lax.scan(step, start, actions)[1]

        return jax.jit(jax.vmap(play))

    @staticmethod
    def compare(env: Any, played: Any, missions: Any, kept: dict[str, np.ndarray]) -> None:
        """Raise AssertionError, saying where, unless observations, rewards, ends and missions in words are those kept.

        `kept`: `ends` (3, n) seeds, steps, terminated + 2 truncated; `rewards` (n,); `crc` (seeds, blocks of steps) of
        image and direction; `text` (seeds,)."""
        seen, reward, terminated, truncated = map(np.asarray, played)
        ended = terminated | truncated
        ends = np.stack([*np.nonzero(ended), terminated[ended] + 2 * truncated[ended]])
        np.testing.assert_array_equal(ends, kept["ends"], f"{env.id}: seeds, steps, ends")
        np.testing.assert_allclose(reward[ended], kept["rewards"], rtol=0, atol=2e-6, err_msg=f"{env.id}: rewards")
        assert not np.any(reward[~ended]), f"{env.id}: a reward within an episode"
        block = seen.shape[1] // kept["crc"].shape[1]
        blocks = seen.reshape(len(seen), -1, block * seen.shape[-1])
        crc = np.array([[zlib.crc32(steps.tobytes()) for steps in seed] for seed in blocks])
        wrong = np.argwhere(crc != kept["crc"])
        assert not len(wrong), (
            f"{env.id}: observations differ, first in seed {wrong[0][0]}, steps from {wrong[0][1] * block}"
        )
        texts = [env.mission_text(np.asarray(mission)) for mission in missions]
        assert texts == kept["text"].tolist(), f"{env.id}: missions read differently"


@pytest.fixture(scope="session")
def episodes() -> type[Episodes]:
    return Episodes
