"""Quality of the generator inside the vectorised step (`jaxrl.math.light_key`), as docs/random_numbers.md has it.

Every stream is made as a step makes it: a threefry key a step, `light_key` of it, then splits, draws and fold-ins. The
same tables for jax's own threefry stand beside them: what a good generator looks like in these tests.

Run: `python benchmarks/random_numbers.py --out random_numbers.json`. With Debian's dieharder, an hour a stream:
`... --dieharder slots steps splits folds children siblings hashed`.
"""

from __future__ import annotations

import argparse
import collections
import math
import re
import subprocess
import threading
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from common import print_table, save

from jaxrl.math import fast_key, light_key

GENERATORS = {"hash": light_key, "threefry": fast_key}
SLOTS = 2048


def words(keys: jax.Array, n: int) -> jax.Array:
    """`n` words of each key: (len(keys), n)."""
    return jax.vmap(lambda key: jax.random.bits(key, (n,), jnp.uint32))(keys)


# ---- streams, each a function (generator, key) -> one block of words, and a key a block


def slots(generator: Callable, key: jax.Array) -> jax.Array:
    """Two words of every slot at a step, slot after slot: 64 steps."""
    return jax.lax.map(
        lambda key: words(jax.random.split(generator(key), SLOTS), 2), jax.random.split(fast_key(key), 64)
    )


def steps(generator: Callable, key: jax.Array) -> jax.Array:
    """A word of each of 4,096 successive steps, slot after slot."""
    drawn = jax.lax.map(
        lambda key: words(jax.random.split(generator(key), 64), 1)[:, 0], jax.random.split(fast_key(key), 4096)
    )
    return drawn.T


def splits(generator: Callable, key: jax.Array) -> jax.Array:
    """Down a tree: each key's two children, one for a word and one to go on, in 64 slots of a step for 4,096 levels."""

    def level(keys, _):
        children = jax.vmap(jax.random.split)(keys)
        return children[:, 0], words(children[:, 1], 1)[:, 0]

    return jax.lax.scan(level, jax.random.split(generator(key), 64), None, 4096)[1]


def folds(generator: Callable, key: jax.Array) -> jax.Array:
    """A word of what 0, 1, 2, ... folded into one key make."""
    key = generator(key)
    return words(jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(1 << 18)), 1)


def children(generator: Callable, key: jax.Array) -> jax.Array:
    """The words of the keys of 2,048 slots themselves, and of two children of each: 16 steps."""

    def step(key):
        keys = jax.random.split(generator(key), SLOTS)
        both = jnp.concatenate([keys[:, None], jax.vmap(jax.random.split)(keys)], 1)
        return jax.random.key_data(both)

    return jax.lax.map(step, jax.random.split(fast_key(key), 16))


def siblings(generator: Callable, key: jax.Array) -> jax.Array:
    """64 words of each of 4,096 slots of one step, slot after slot."""
    return words(jax.random.split(generator(key), 4096), 64)


def hashed(generator: Callable, key: jax.Array) -> jax.Array:
    """Two words of every slot, as `slots`, of a generator seeded by a key of its own kind, as in a nested step."""
    return slots(lambda key: generator(jax.random.split(generator(key))[1]), key)


STREAMS = {f.__name__: f for f in (slots, steps, splits, folds, children, siblings, hashed)}


def stream(name: str, generator: str) -> Iterator[bytes]:
    """Blocks of a stream's bytes, without end."""
    block = jax.jit(lambda i: STREAMS[name](GENERATORS[generator], jax.random.fold_in(jax.random.key(7), i)).ravel())
    index = 0
    while True:
        yield np.asarray(block(jnp.int32(index))).tobytes()
        index += 1


# ---- own tests


def avalanche(generator: str, samples: int = 1 << 19) -> dict[str, float]:
    """The largest distance from one half of the probability that an input bit changes an output bit.

    Inputs are the bits of a key and of a word's number in a draw; outputs those of a word, of a child's word and
    of a grandchild's. Of
    `samples` random inputs the largest of some thousand pairs is about 3.5 of 0.5 / sqrt(samples), 0.0024, for a
    perfect generator.
    """
    impl = jax.random.key_impl(GENERATORS[generator](jax.random.key(0)))
    rows = np.random.default_rng(0).integers(0, 1 << 32, (samples, 2), np.uint32)

    def word(key):
        return jax.random.bits(key, (1,), jnp.uint32)

    def child_word(key):
        return word(jax.random.split(key)[1])

    def grandchild_word(key):
        return child_word(jax.random.split(key)[1])

    def distance(flips):
        return max(float(abs((flips >> np.uint32(bit) & 1).mean(0) - 0.5).max()) for bit in range(32))

    worst = {}
    for output in (word, child_word, grandchild_word):
        values = jax.jit(jax.vmap(lambda row, output=output: output(jax.random.wrap_key_data(row, impl=impl))))
        base = np.asarray(values(rows))
        for column in range(2):
            found = 0.0
            for bit in range(32):
                changed = rows.copy()
                changed[:, column] ^= np.uint32(1 << bit)
                found = max(found, distance(base ^ np.asarray(values(changed))))
            worst[f"word {column + 1} of a key, {output.__name__.replace('_', ' ')}"] = found
    keys = jax.random.wrap_key_data(jnp.asarray(rows[: samples >> 16]), impl=impl)
    drawn = np.asarray(jax.jit(words, static_argnums=1)(keys, 1 << 16)).T
    numbers = np.arange(1 << 16)
    changes = (distance((drawn ^ drawn[numbers ^ (1 << bit)]).reshape(-1, 1)) for bit in range(16))
    return worst | {"number of a word, word": max(changes)}


def collisions(generator: str) -> dict[str, float]:
    """Equal keys among all of a tree's (64 bits; none expected), and equal words beside the number of chance."""
    make = GENERATORS[generator]

    @jax.jit
    def tree(key):
        first = jax.random.split(make(key), 1 << 16)  # slots of a step
        second = jax.vmap(lambda key: jax.random.split(key, 4))(first).reshape(-1)  # what is drawn in each
        third = jax.vmap(jax.random.split)(second).reshape(-1)
        folded = jax.vmap(lambda key: jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(8)))(first).reshape(-1)
        return jnp.concatenate([first, second, third, folded])

    found = collections.Counter()
    for seed in range(8):
        keys = tree(jax.random.key(seed))
        data = np.asarray(jax.random.key_data(keys)).astype(np.uint64)
        found["keys"] += len(data)
        found["equal keys"] += len(data) - len(np.unique(data[:, 0] << np.uint64(32) | data[:, 1]))
        drawn = np.asarray(jax.jit(words, static_argnums=1)(keys, 1)).ravel()
        found["equal words"] += len(drawn) - len(np.unique(drawn))
        n = len(drawn)
        found["equal words by chance"] += n - 2.0**32 * -math.expm1(n * math.log1p(-(2.0**-32)))
    return dict(found)


def neighbours(generator: str, num_steps: int = 4096) -> dict[str, float]:
    """Standard scores of dependence between draws of neighbouring slots, steps, both, and draws of one slot.

    For each lag the correlation of the numbers and of their squares, and chi squared of pairs in 32 x 32 cells.
    """
    make = GENERATORS[generator]

    @jax.jit
    def draws(key):
        return jax.lax.map(
            lambda key: jax.vmap(lambda key: jax.random.uniform(key, (2,)))(jax.random.split(make(key), SLOTS)),
            jax.random.split(fast_key(key), num_steps),
        )

    u = np.asarray(draws(jax.random.key(3)), np.float64)
    pairs = {
        "neighbouring slots": (u[:, :-1, 0], u[:, 1:, 0]),
        "successive steps": (u[:-1, :, 0], u[1:, :, 0]),
        "next slot, next step": (u[:-1, :-1, 0], u[1:, 1:, 0]),
        "two draws of a slot": (u[..., 0], u[..., 1]),
        "a slot's second draw, the next's first": (u[:, :-1, 1], u[:, 1:, 0]),
    }
    scores = {}
    for name, (a, b) in pairs.items():
        a, b = a.ravel(), b.ravel()
        found = []
        for power in (1, 2):
            x, y = ((np.abs(v - 0.5) ** power * np.sign(v - 0.5) ** power) for v in (a, b))
            found.append(np.corrcoef(x, y)[0, 1] * math.sqrt(a.size))
        cells = np.bincount((a * 32).astype(int) * 32 + (b * 32).astype(int), minlength=1024)
        chi = ((cells - a.size / 1024) ** 2).sum() / (a.size / 1024)
        found.append((chi - 1023) / math.sqrt(2 * 1023))
        scores[name] = max(found, key=abs)
    return scores


def dieharder(name: str, generator: str, tests: list[str]) -> dict[str, int]:
    """How many of dieharder's tests a stream passed, was weak in (1 of 100 is, of a perfect one), or failed."""
    command = ["dieharder", *tests, "-g", "200"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def feed():
        try:
            for block in stream(name, generator):
                process.stdin.write(block)
        except (BrokenPipeError, ValueError):
            pass  # it has seen enough

    threading.Thread(target=feed, daemon=True).start()
    words = []
    for line in process.stdout:  # an hour: each test's line as it is done
        print(line.decode(), end="", flush=True)
        words += re.findall(r"\b(PASSED|WEAK|FAILED)\b", line.decode())
    return {word: words.count(word) for word in ("PASSED", "WEAK", "FAILED")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generators", nargs="+", default=list(GENERATORS), choices=GENERATORS)
    parser.add_argument(
        "--dieharder", nargs="*", default=[], choices=STREAMS, metavar="STREAM", help=", ".join(STREAMS)
    )
    parser.add_argument("--tests", nargs="+", default=["-a"], help="dieharder's own options, as `-d 15`")
    parser.add_argument("--out", default="random_numbers.json")
    options = parser.parse_args()
    results = {}
    for generator in options.generators:
        found = results[generator] = {}
        if options.dieharder:
            found["dieharder"] = {name: dieharder(name, generator, options.tests) for name in options.dieharder}
            rows = [[name, *map(str, counts.values())] for name, counts in found["dieharder"].items()]
            print_table(f"{generator}: dieharder", ["stream", "passed", "weak", "failed"], rows)
            continue
        found |= {
            "avalanche": avalanche(generator),
            "collisions": collisions(generator),
            "scores": neighbours(generator),
        }
        for title in found:
            print_table(f"{generator}: {title}", ["", ""], [[k, f"{v:.5g}"] for k, v in found[title].items()])
    save(options.out, results)


if __name__ == "__main__":
    main()
