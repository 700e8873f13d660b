# %% [markdown]
# # Ask the TPU's compiler
#
# Will your experiment fit a chip that you do not have, and how fast will it be? XLA's compilers for TPUs run on any x86 Linux
# machine. So `jaxrl compile` builds the very program that `jaxrl train` would run there, and says what its compiler says.

# %% tags=["parameters"]
NUM_ENVS = 2048
TARGET = "tpu-v5e"

# %%
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

# The compiler, 200 MB, as this jax wants it; no TPU is needed. It goes to a folder of its own that only the processes below
# look into: beside jax itself it would have every later program of this machine look for a TPU.
beside = {**os.environ, "JAX_PLATFORMS": "cpu"}
if importlib.util.find_spec("libtpu") is None:
    wanted = [line for line in importlib.metadata.requires("jax") if re.match(r"libtpu\b", line)]
    libtpu = wanted[0].partition(";")[0].strip()
    folder = os.path.join(tempfile.gettempdir(), f"jaxrl-{re.sub(r'[^0-9a-z.]+', '-', libtpu)}")
    if not os.path.isdir(os.path.join(folder, "libtpu")):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, libtpu]
        subprocess.run(command, check=True)
    beside["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


# %%
def ask(*words):
    """What `jaxrl compile` prints."""
    command = [sys.executable, "-m", "jaxrl", "compile", *map(str, words)]
    print("$ jaxrl compile", *words)
    done = subprocess.run(command, capture_output=True, text=True, env=beside)
    print(done.stdout or done.stderr)


ask("ppo", "CartPole-v1", "--for", TARGET, "--config.num-envs", NUM_ENVS, "--config.num-steps", 64)

# %% [markdown]
# Memory is what the compiler laid out. The time is its own estimate, of kernels' cycles; what that leaves out is said below it. Many
# kernels in an update, conditionals and loops of unknown length are what to get rid of.
#
# The same question of a step of your own, from Python (in a process that has no device yet: `JAX_PLATFORMS=cpu`):

# %%
program = f'''
import jax, jax.numpy as jnp, jaxrl
from jaxrl.host.ahead import compile_for

env, params = jaxrl.make("Quadcopter-Hover-v0")
venv = jaxrl.vectorize(env, {NUM_ENVS})
obs, state = jax.eval_shape(venv.reset, jax.random.key(0), params)
action = jax.ShapeDtypeStruct(({NUM_ENVS}, 4), jnp.float32)
key = jax.eval_shape(lambda: jax.random.key(0))
report = compile_for(jax.jit(venv.step), (key, state, action, params), "{TARGET}")
print(f"a step of {NUM_ENVS:,} drones: {{report.estimated_seconds * 1e6:.0f}} us estimated,",
      f"{{report.memory.needed / 2**20:.0f}} MiB, loops of unknown length: {{len(report.unknown_loops)}}")
'''
done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=beside)
print(done.stdout or done.stderr)

# %% [markdown]
# `--largest num-envs` searches for the most that fits, `--mesh seeds=4,envs=4` lays a run over sixteen chips and lists what they exchange,
# and `--for h100` asks a GPU's compiler (the extra `cuda`). What the figures mean:
# [the page](https://github.com/jaxrl/jaxrl/blob/main/docs/accelerators.md).
