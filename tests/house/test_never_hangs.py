"""What once hung in XLA's CPU backend ends: batched LAPACK calls in a program, random draws within a grid's cells."""

import subprocess
import sys

import pytest

TRAIN = """
import jax
import jaxrl
from jaxrl.algos import ppo

env, _ = jaxrl.make("CartPole-v1")
algo = ppo.make(env, ppo.Config(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(16, 16)))
init = jax.jit(jax.vmap(algo.init))
train = jax.jit(jax.vmap(lambda key: jaxrl.train(algo, key, 4 * algo.steps_per_update)[1]["loss"]))
for i in range(100):
    jax.block_until_ready(init(jax.random.split(jax.random.key(i), 8)).weights)
for i in range(10):
    jax.block_until_ready(train(jax.random.split(jax.random.key(i), 8)))
print("done")
"""
SECONDS = 180
"""Many times what it takes, for a machine that is busy; a deadlock takes for ever."""


def ends(code: str) -> None:
    """Run `code`, whose last word is done, in a fresh process."""
    try:
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it did not end within {SECONDS} s")
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.strip() == "done"


@pytest.mark.parametrize("processes", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_vmapped_training_ends_in_fresh_processes(processes, tmp_path, monkeypatch):
    # Only the first process compiles. The hang was one of execution, so those that do not are as good a test.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    for _ in range(processes):
        ends(TRAIN)


EVALUATE = """
import jax
import jaxrl
from jaxrl.algos import ppo_rnn
from jaxrl.evaluation import evaluate

env, params = jaxrl.make("MiniGrid-MemoryS11-v0", encoding="one_hot")
config = ppo_rnn.Config(num_envs=256, num_minibatches=8, activation="relu", hidden=(32,), rnn_size=32)
algo = ppo_rnn.make(env, config)
policy = jax.eval_shape(lambda key: algo.policy(algo.init(key)), jax.random.key(0))
jax.jit(lambda policy, key: evaluate(algo, policy, key, num_episodes=256)).lower(policy, jax.random.key(0)).compile()
print("done")
"""


def test_levels_compile(monkeypatch):
    """Without `random_words` LLVM's loop vectoriser took over ten minutes; with it 4 s."""
    for name in ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS"):  # of a light suite, which has no such vectoriser
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "false")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    ends(EVALUATE)
