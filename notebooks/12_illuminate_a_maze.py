# %% [markdown]
# # Illuminate a maze
#
# A robot with two wheels, three lasers and two bumpers is paid only if it ends its episode in one of two places, far away behind
# dead ends. Who looks for reward alone sees none. Quality diversity keeps a policy for every place where the robot can end:
# three ways to fill that map, how the robot goes where you ask it to, and what is left of the map when a wall is put up.

# %% tags=["parameters"]
EVALUATIONS = 6_000  # policies that each learner tries

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxrl
from jaxrl.algos import map_elites, novelty_search
from jaxrl.quality_diversity import behaviour, elites

STEPS, MEMBERS = 250, 200
env, params = jaxrl.make("HardMaze-v0")
params = params.replace(max_steps=jnp.int32(STEPS), max_speed=jnp.float32(0.025))  # a fast robot, short episodes


def maze(axes, params=params):
    for x0, y0, x1, y1 in np.asarray(params.walls):
        axes.plot([x0, x1], [y0, y1], color="black", linewidth=1.5)
    for x, y, radius in np.asarray(params.areas):
        axes.add_patch(plt.Circle((x, y), radius, fill=False, color="tab:red"))
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[], yticks=[])


# %% [markdown]
# An archive has a cell for each place, 50 x 50 of them. A generation is 200 networks of two layers of five; each plays an episode, and
# the archive keeps the best one that ended in each cell. Learners differ in whom they take as parents: `map_elites` any cell's policy,
# `novelty_search` those that ended where few did. Random networks are what has to be beaten.


# %%
def learner(module):
    config = module.Config(population_size=MEMBERS, num_steps=STEPS, hidden=(5, 5), descriptor=("x", "y"), cells=(50,))
    return module.make(env, config)


def illuminate(name, module):
    """The last state, and the share of filled cells after each generation."""
    algo = learner(module)

    @jax.jit
    def run(key):
        def generation(state, key):
            if name == "random":
                state = state.replace(population=algo.init(key, None, params).population)
            state, metrics = algo.update(state)
            return state, metrics["coverage"]

        init_key, scan_key = jax.random.split(key)
        keys = jax.random.split(scan_key, EVALUATIONS // MEMBERS)
        return jax.lax.scan(generation, algo.init(init_key, None, params), keys)

    return run(jax.random.key(0))


LEARNERS = {"random": map_elites, "map_elites": map_elites, "novelty_search": novelty_search}
found = {name: illuminate(name, module) for name, module in LEARNERS.items()}
for name, (state, coverage) in found.items():
    print(f"{name:15} fills {coverage[-1]:.2f} of the map; its best reward is {state.archive.fitness.max():.2f}")

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for ax, (name, (state, _)) in zip(axes, found.items(), strict=True):
    filled = np.asarray(state.archive.filled).reshape(state.archive.shape)
    reward = np.asarray(state.archive.fitness).reshape(state.archive.shape)
    image = ax.imshow(np.ma.masked_array(reward, ~filled).T, origin="lower", extent=(0, 1, 0, 1), vmin=0, vmax=1)
    maze(ax)
    ax.set_title(name)
figure.colorbar(image, ax=axes, label="reward of the policy that ends here")
plt.show()

# %%
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for name, (_, coverage) in found.items():
    axes.plot(MEMBERS * np.arange(1, len(coverage) + 1), coverage, label=name)
axes.set(xlabel="policies tried", ylabel="share of the map", ylim=(0, 1))
axes.legend()
plt.show()

# %% [markdown]
# ## Go there
#
# The archive is a table of policies by what they do. Ask it for places, and watch the robot go.

# %%
algo, state = learner(novelty_search), found["novelty_search"][0]
archive = state.archive
PLACES = jnp.array([[0.9, 0.1], [0.9, 0.9], [0.17, 0.67], [0.1, 0.9]])


def nearest(place):
    """The filled cell whose policy ended nearest to a place."""
    return jnp.argmin(jnp.where(archive.filled, jnp.linalg.norm(archive.descriptor - place, axis=-1), jnp.inf))


def way(cell, params=params):
    """Where the robot of a cell's policy is after each step: (T, 2)."""
    policy = behaviour.policy_of(state, cell)
    obs, inner = env.reset(jax.random.key(0), params)

    def step(before, _):
        obs, inner = before
        action, _ = algo.act(policy, jax.random.key(0), obs, (), greedy=True)
        after = env.step(jax.random.key(0), inner, action, params)
        return (after.obs, after.state), jnp.stack([after.state.x, after.state.y])

    return jax.lax.scan(step, (obs, inner), None, STEPS)[1]


cells = jax.vmap(nearest)(PLACES)
ways = jax.jit(jax.vmap(way))(cells)
figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
maze(axes)
for (x, y), path in zip(PLACES, ways, strict=True):
    (line,) = axes.plot(*path.T)
    axes.plot(x, y, marker="x", color=line.get_color())
plt.show()

# %% [markdown]
# ## A wall is put up
#
# Walls are leaves of `params`. Every policy of the archive plays in a maze where one passage is narrower, all in one program: who
# still gets where it used to? Many do not, but of some places the archive holds another policy that now ends there.

# %%
WALL = jnp.array([[0.525, 0.185, 0.575, 0.245]])
blocked = params.replace(walls=jnp.concatenate([params.walls, WALL]))
every = jnp.flatnonzero(archive.filled)
ends = jax.jit(jax.vmap(lambda cell: way(cell, blocked)[-1]))(every)
moved = jnp.linalg.norm(ends - archive.descriptor[every], axis=-1)
print(f"{(moved < 0.02).mean():.2f} of the policies end where they did")

after = elites.grid((0, 0), (1, 1), (50, 50), genome_size=1)
after, _ = elites.insert(after, every[:, None].astype(float), jnp.zeros(len(every)), ends)
print(f"{archive.coverage:.2f} of the map was reached, {after.coverage:.2f} still is")

# %%
figure, axes = plt.subplots(1, 2, figsize=(7, 3.6), layout="constrained")
for ax, (name, kept, world) in zip(axes, (("before", archive, params), ("with the wall", after, blocked)), strict=True):
    ax.imshow(np.asarray(kept.filled).reshape(50, 50).T, origin="lower", extent=(0, 1, 0, 1), cmap="Greens", vmax=2)
    maze(ax, world)
    ax.set_title(name)
plt.show()

# %% [markdown]
# From a shell: `jaxrl train novelty_search HardMaze-v0 --no-tuned --config.hidden 5 5 --out runs/maze`, then
# `jaxrl plot runs/maze --archive` and `jaxrl eval runs/maze --cell 0.9 0.1`.
# [Quality diversity](https://github.com/jaxrl/jaxrl/blob/main/docs/algos/quality_diversity.md) has seven learners, what each is for, and
# how they did in this maze; `map_elites` and the others work on any task with numbers that describe what was done.
