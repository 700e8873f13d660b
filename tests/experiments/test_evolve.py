"""The study that evolves a rule: its training goes on where it was stopped, and goes on with nothing else."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxrl.algos.rule_learners import gradients

ROOT = Path(__file__).resolve().parents[2]


def evolve(*words):
    command = [sys.executable, ROOT / "experiments/learned_rules/evolve.py", "train", "--families", "Catch"]
    return subprocess.run([*command, *map(str, words)], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.light
def test_training_goes_on_where_it_was_stopped(tmp_path):
    stopped, whole = tmp_path / "stopped.npz", tmp_path / "whole.npz"
    found = []
    for out, rounds in ((stopped, 1), (stopped, 2), (whole, 2)):
        done = evolve("--rounds", rounds, "--out", out)
        assert done.returncode == 0, done.stderr
        found.append(ravel_pytree(gradients.load(str(out)).weights)[0])
    np.testing.assert_array_equal(found[1], found[2])
    assert np.abs(found[0] - found[1]).max() > 1e-3
    other = evolve("--rounds", 3, "--seed", 1, "--out", stopped)
    assert other.returncode and "name another --out" in other.stderr.splitlines()[-1]
    ppo = evolve("--begins", "ppo", "--init", stopped, "--out", tmp_path / "ppo.npz")
    assert ppo.returncode and "clip_eps=0.2" in ppo.stderr.splitlines()[-1]
    on = evolve("--rounds", 1, "--init", stopped, "--learning-rate", 0.0, "--out", tmp_path / "on.npz")
    assert on.returncode == 0, on.stderr
    np.testing.assert_array_equal(ravel_pytree(gradients.load(str(tmp_path / "on.npz")).weights)[0], found[1])


@pytest.mark.slow
@pytest.mark.light
def test_all_families_can_be_lived_in_and_slips_are_random_moves(of_study):
    [module], keys = of_study("learned_rules", "evolve"), jax.random.split(jax.random.key(0), 32)
    for family in {**module.FAMILIES, **module.UNSEEN}.values():
        env, params = module.world(family)

        def step(key, env=env, params=params):
            return env.step(key, env.reset(key, params)[1], env.action_space(params).sample(key), params)

        assert jax.eval_shape(step, keys[0]).reward.shape == ()
    env, params = module.world(module.FAMILIES["GridWorld-small"])

    @jax.jit
    def moved(share):
        slipping = module.Slips(env, share)
        state = env.reset(keys[0], params)[1]
        move = jax.vmap(slipping.transition, (0, None, None, None))
        return jnp.stack([move(keys, state, jnp.int32(action), params).state.position for action in range(4)])

    always, never, sometimes = map(np.asarray, (moved(1.0), moved(0.0), moved(0.3)))
    assert (always == always[0]).all() and len(np.unique(always)) > 1
    assert (never == never[:, :1]).all() and len(np.unique(never)) > 1
    assert 0.05 < (sometimes != never).mean() < 0.4
