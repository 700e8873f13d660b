# %% [markdown]
# # vmap everything
#
# Seeds x learning rates x physics, one program: 8 learning rates, 6 lengths of the pole and 2 seeds are 96 whole training runs,
# compiled once and trained together.

# %% tags=["parameters"]
TOTAL_STEPS = 60_000  # of each run
RATES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2)
LENGTHS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)  # m, half of the pole's
SEEDS = 2

# %%
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxrl
from jaxrl.algos import ppo

env, params = jaxrl.make("CartPole-v1")
algo = ppo.make(env, ppo.Config(num_envs=4, num_steps=64, hidden=(32, 32)))


def run(key, rate, length):
    """The last episodes' mean return of a whole training: a pure function of its numbers."""
    level = params.replace(length=length)
    state, metrics = jaxrl.train(algo, key, TOTAL_STEPS, ppo.Hyper(learning_rate=rate), level)
    return jnp.nanmean(metrics["episode_return"][-10:])


# %% [markdown]
# What is a number is a leaf, so `vmap` goes over it. Three of them, inside out:

# %%
over_seeds = jax.vmap(run, (0, None, None))
over_lengths = jax.vmap(over_seeds, (None, None, 0))
everything = jax.jit(jax.vmap(over_lengths, (None, 0, None)))

keys = jax.random.split(jax.random.key(0), SEEDS)
begin = time.perf_counter()
returns = jax.block_until_ready(everything(keys, jnp.array(RATES), jnp.array(LENGTHS)))
seconds = time.perf_counter() - begin

print(f"{returns.size} runs of {TOTAL_STEPS:,} steps in {seconds:.0f} s, compilation included: ", end="")
print(f"{returns.size * TOTAL_STEPS / seconds / 1e6:.2f} million steps a second, learning")

# %%
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
mean = np.asarray(returns.mean(-1))
image = axes.imshow(mean, origin="lower", aspect="auto", cmap="viridis", vmin=0, vmax=500)
axes.set_xticks(range(len(LENGTHS)), [f"{2 * x:g} m" for x in LENGTHS])
axes.set_yticks(range(len(RATES)), [f"{x:g}" for x in RATES])
axes.set(
    xlabel="length of the pole", ylabel="learning rate", title=f"return after {TOTAL_STEPS:,} steps, {SEEDS} seeds"
)
for (i, j), value in np.ndenumerate(mean):
    axes.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=8, color="white" if value < 300 else "black")
figure.colorbar(image)

# %% [markdown]
# Which rate is best for which pole?

# %%
for j, length in enumerate(LENGTHS):
    print(f"{2 * length:4.1f} m: {RATES[int(mean[:, j].argmax())]:g}")

# %% [markdown]
# The same line works for a maze's walls, a motor's inductance, a discount, or the weights of a learned update rule.
# From a shell, with a table and a heat map: `jaxrl sweep ppo CartPole-v1 --hyper.learning-rate 1e-4 1e-3 1e-2 --seeds 4`.
