"""Benchmarks of rule worlds: a million rulesets each without two alike, regenerated from their numbers."""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer, UInt32

from jaxrl.environment import pytree
from jaxrl.math import fast_key

from .rules import Ruleset, packed
from .rulesets import CONFIGS, generate

SIZE = 1_000_000
"""Rulesets of a benchmark."""


@pytree(static=("name", "start", "stop"))
class Benchmark:
    """Rulesets `start` to `stop` - 1 of a numbered million, all different; made by `benchmark`. Jit, vmap at will."""

    name: str
    start: int
    stop: int
    skipped: jax.Array  # (D,) int32: how many candidates are kept before each that is skipped

    def __len__(self) -> int:
        return self.stop - self.start

    def ruleset(self, index: int | Integer[Array, ""]) -> Ruleset:
        """Ruleset `index`, from 0 to `len` - 1, of this benchmark; an index outside is taken as the nearest one."""
        index = self.start + jnp.clip(jnp.asarray(index, jnp.int32), 0, len(self) - 1)
        return candidate(self.name, index + jnp.searchsorted(self.skipped, index, side="right").astype(jnp.int32))

    def sample(self, key: Array) -> Ruleset:
        """One of them, each equally likely."""
        return self.ruleset(jax.random.randint(key, (), 0, len(self)))

    def split(self, fraction: float = 0.8) -> tuple[Benchmark, Benchmark]:
        """`(train, test)`: the first `fraction` of the numbers, and the rest. The numbers are in no order."""
        middle = self.start + round(fraction * len(self))
        if not self.start < middle < self.stop:
            raise ValueError(f"split({fraction}): both parts of {len(self)} rulesets need one at least.")
        return self.replace(stop=middle), self.replace(start=middle)


def candidate(name: str, number: int | Integer[Array, ""]) -> Ruleset:
    """The `number`-th draw for a benchmark. Some are drawn twice, of which `Benchmark` takes the first."""
    config = name.removesuffix("-1m")
    seed = fast_key(jax.random.key(list(CONFIGS).index(config)))  # our threefry: the same bits under every setting
    return generate(jax.random.fold_in(seed, number), config)


def fingerprint(ruleset: Ruleset) -> UInt32[Array, "2"]:
    """64 bits that differ where rulesets do; the order of the objects does not count."""
    numbers = [ruleset.goal, ruleset.rules.reshape(-1), jnp.sort(packed(ruleset.objects))]
    words = jnp.concatenate([x.astype(jnp.uint32) for x in numbers])
    odd = jnp.asarray(_odd_words(words.size))
    mixed = (words + odd[:, :1].T) * odd[:, 1:].T  # (2, n)
    mixed ^= mixed >> 15
    mixed = mixed * jnp.uint32(0x2C1B3C6D)
    mixed ^= mixed >> 13
    total = jnp.sum(mixed * odd[:, :1].T, 1, dtype=jnp.uint32)
    return total


@functools.cache
def _odd_words(n: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(0)).integers(0, 1 << 31, (n, 3), np.uint32) * 2 + 1


SKIPPED = Path(__file__).with_name("benchmarks.npz")


def benchmark(name: str) -> Benchmark:
    """`trivial-1m`, `small-1m`, `medium-1m` or `high-1m`: a million different rulesets of that `CONFIGS` entry.

    Nothing is stored but the few numbers whose draw had come before (`experiments/rule_worlds/run.py` finds them), so
    a ruleset costs one `generate`. Raises ValueError for another name.
    """
    names = [f"{config}-1m" for config in CONFIGS]
    if name not in names:
        raise ValueError(f"benchmark {name!r}: choose one of {', '.join(names)}.")
    with np.load(SKIPPED, allow_pickle=False) as data:
        skipped = np.cumsum(data[name].astype(np.int64)) - np.arange(data[name].size)
    return Benchmark(name, 0, SIZE, jnp.asarray(skipped, jnp.int32))
