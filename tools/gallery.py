"""The gallery of the documentation: a picture of every environment class, on one page.

`python -m tools.gallery [DOCS] [--only ID ...]` writes `envs/gallery.md` and `media/gallery/<id>.png` below DOCS
(default `docs`); a test compares the page with what it would write. An environment that draws itself is shown as it
draws itself, after some random actions where its first state shows little; of the others the reward and the observation
are shown over the steps of random actions.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from jaxrl import registry
from jaxrl.canvas import BLUE, GREY, INK, ORANGE, WHITE
from jaxrl.environment import Environment
from tools.tables import DOCS, FAMILIES, by_family, title_of

CHOSEN: dict[str, tuple[str, ...]] = {
    "Brax-ant": ("Brax-ant", "Brax-humanoid", "Brax-pusher"),
    "Cont-CC-DFIM-v0": ("Cont-CC-PMSM-v0", "Finite-TC-SCIM-v0", "Cont-SC-SeriesDc-v0"),
    "GridWorld-all-v0": ("GridWorld-rand_dense-v0", "GridWorld-mazes-v0", "GridWorld-rand_long-v0"),
    "Maze-Labyrinth-v0": ("Maze-Labyrinth-v0", "Maze-SixteenRooms-v0"),
    "MemoryAllocation-A-v0": ("MemoryAllocation-v0",),
    "MiniGrid-DoorKey-16x16-v0": ("MiniGrid-DoorKey-8x8-v0",),
    "MiniGrid-Dynamic-Obstacles-16x16-v0": ("MiniGrid-Dynamic-Obstacles-8x8-v0",),
    "MiniGrid-Empty-16x16-v0": ("MiniGrid-Empty-8x8-v0",),
    "MiniGrid-ObstructedMaze-1Dl-v0": ("MiniGrid-ObstructedMaze-2Dlh-v0",),
    "PerfectMaze101-v0": ("PerfectMaze19-v0",),
    "XLand-MiniGrid-R1-11x11": ("XLand-MiniGrid-R4-13x13",),
}
"""What is shown instead of a class's first id."""

STEPS = {
    **{"classic": 12, "grid.minatar": 40, "motor": 300, "quadcopter": 15, "bsuite": 5},
    **{
        "Game2048-v0": 60,
        "MazeEditor-v0": 60,
        "MemoryAllocation-v0": 8,
        "Minesweeper-v0": 3,
        "MinesweeperLevel-v0": 3,
    },
}
"""Random actions before a picture, by family or id."""

EPISODE, NUMBERS = 60, 8
"""Random actions that are shown as curves, and the most numbers of an observation."""

SIZE = 400
"""Pixels of a picture's width, and the most of its height."""


def shown() -> dict[str, list[str]]:
    """The ids in the gallery by family: the first of each class, or what is `CHOSEN` instead."""
    table = registry.environments()
    found: dict[str, list[str]] = {}
    for family, ids in by_family().items():
        first: dict[str, str] = {}
        for id in ids:
            if not table[id].extra:
                first.setdefault(str(table[id].target), id)
        found[family] = [each for id in first.values() for each in CHOSEN.get(id, (id,))]
    return found


def played(env: Environment, params: Any, steps: int, again: bool = False) -> tuple[Any, Any, Any, Any]:
    """`(states, observations, rewards, ends)` of random actions, the first state and observation before them. What has
    ended stays as it is, or with `again` begins anew.
    """

    def step(loop: Any, key: jax.Array) -> Any:
        obs, state, ended = loop
        action_key, env_key, reset_key = jax.random.split(key, 3)
        space = env.action_space(params)
        if env.num_agents > 1:
            action = jax.vmap(space.sample)(jax.random.split(action_key, env.num_agents))
        else:
            action = space.sample(action_key)
        ts = env.step(env_key, state, action, params)
        ends = ts.terminated | ts.truncated
        if again:
            began = env.reset(reset_key, params)
            obs, state = jax.tree.map(lambda old, new: jnp.where(ends, old, new), began, (ts.obs, ts.state))
            return (obs, state, ended), (state, obs, ts.reward, ends)
        obs, state = jax.tree.map(lambda old, new: jnp.where(ended, old, new), (obs, state), (ts.obs, ts.state))
        reward = jnp.where(ended, jnp.nan, ts.reward)
        ended = ended | ends
        return (obs, state, ended), (state, obs, reward, ended)

    @jax.jit
    def episode(key: jax.Array) -> Any:
        obs, state = env.reset(key, params)
        _, (states, seen, rewards, ends) = jax.lax.scan(
            step, (obs, state, jnp.bool_(False)), jax.random.split(key, steps)
        )
        both = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), (state, obs), (states, seen))
        return *both, rewards, ends

    return jax.device_get(episode(jax.random.key(1)))


def picture(id: str, family: str) -> UInt8[np.ndarray, "height width 3"]:
    """The environment as it draws itself, else an episode's curves; `SIZE` wide."""
    env, params = registry.make(id)
    if type(env).render is Environment.render:
        return curves(*played(env, params, EPISODE, again=True)[1:])
    steps = STEPS.get(id, STEPS.get(family, 0))
    if steps:
        state = jax.tree.map(lambda x: x[-1], played(env, params, steps)[0])
    else:
        state = jax.device_get(jax.jit(env.reset)(jax.random.key(1), params)[1])
    return framed(env.render(state, jax.device_get(params)))


def framed(image: np.ndarray) -> UInt8[np.ndarray, "height width 3"]:
    """A picture scaled to fit a square of `SIZE` pixels, in the middle of that width."""
    from PIL import Image

    scale = SIZE / max(image.shape[:2])
    # Whole multiples first: interpolated straight from few pixels, the edges of a grid's cells would blur.
    times = max(1, int(np.ceil(scale)))
    large = Image.fromarray(np.kron(image, np.ones((times, times, 1), image.dtype)))
    size = tuple(max(1, round(side * scale)) for side in (image.shape[1], image.shape[0]))
    page = Image.new("RGB", (SIZE, size[1]), WHITE)
    page.paste(large.resize(size, Image.Resampling.LANCZOS), ((SIZE - size[0]) // 2, 0))
    return np.asarray(page)


def curves(obs: Any, rewards: np.ndarray, ends: np.ndarray) -> UInt8[np.ndarray, "height width 3"]:
    """The reward (orange) and numbers of the observation (grey, the first one blue) over steps.

    Episodes end at dotted lines.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ink, grey, blue, orange = (tuple(part / 255 for part in color[:3]) for color in (INK, GREY, BLUE, ORANGE))
    figure = Figure((SIZE / 100, SIZE / 100 * 0.8), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(np.arange(1, len(rewards) + 1), rewards, color=orange, marker="o", markersize=3, linewidth=1.2)
    above.set_ylabel("reward of the step")
    leaves = [np.asarray(x, float).reshape(len(x), -1) for x in jax.tree.leaves(obs)]
    numbers = np.concatenate(leaves, 1)
    count = numbers.shape[1]
    for column in reversed(range(min(count, NUMBERS))):
        below.plot(numbers[:, column], color=grey if column else blue, linewidth=1.0 if column else 1.6)
    below.set_ylabel("observation" if count <= NUMBERS else f"observation, {NUMBERS} of {count}")
    below.set_xlabel("step")
    for axes in (above, below):
        axes.tick_params(labelsize=9, colors=ink)
        axes.yaxis.label.set_size(9)
        axes.xaxis.label.set_size(9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.get_major_locator().set_params(integer=True)
        low, high = axes.dataLim.intervaly
        room = 0.12 * (high - low) or 1.0  # what never changes is a line in the middle
        axes.set_ylim(low - room, high + room)
        for end in np.flatnonzero(ends) + 1:
            axes.axvline(end, color=grey, linewidth=0.5, linestyle=":", zorder=0)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def lines_of_classes() -> dict[tuple[str, str], str]:
    """What `docs/envs/ids.md` says of each class in a line, by the family's title and the class as the registry has it.

    The page is read, since asking the classes would import them all.
    """
    found = {}
    for section in re.split(r"^## ", (DOCS / "envs/ids.md").read_text(), flags=re.M)[1:]:
        title = section.partition("\n")[0]
        for classes, line in re.findall(r"^- (\[`\w+`\]\(.+?\)(?:, \[`\w+`\]\(.+?\))*): (.+)$", section, re.M):
            for name, file in re.findall(r"\[`(\w+)`\]\(\.\./\.\./(.+?)\.py\)", classes):
                module = file.replace("/", ".").removesuffix(".__init__")
                found[title, f"jaxrl.{module}:{name}"] = line
    return found


def page() -> str:
    """`docs/envs/gallery.md`."""
    lines = [
        "# Gallery: a picture of every environment",
        "",
        "Written by `python -m tools.gallery`: a picture of every environment class, as the environment draws",
        "itself, after some random actions where its first state shows little. Of what draws nothing there are sixty",
        "random actions: the reward of each step, and the first eight numbers of the observation, the very first in",
        "blue, in the units of the family's page; dotted lines are where episodes end. [Every environment id](ids.md).",
    ]
    table, what = registry.environments(), lines_of_classes()
    for family, ids in shown().items():
        about = FAMILIES[family]
        link = f"[{title_of(f'envs/{about.page}')}]({about.page})"
        if "## Scores of record\n" in (DOCS / "envs" / about.page).read_text():
            link += f", [scores of record]({about.page}#scores-of-record)"
        lines += ["", f"## {about.title}", "", link, ""]
        cells = [
            f"![{id}](../media/gallery/{id}.png)<br>`{id}`: {what[about.title, str(table[id].target)]}" for id in ids
        ]
        lines += ["| | |", "|---|---|"]
        lines += [f"| {' | '.join((*cells[at : at + 2], '')[:2])} |" for at in range(0, len(cells), 2)]
    return "\n".join([*lines, ""])


def main(argv: list[str] | None = None) -> int:
    """Draw into the folder named first, or `docs`."""
    import argparse

    from PIL import Image

    parser = argparse.ArgumentParser(prog="python -m tools.gallery", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("docs", type=Path, nargs="?", default=Path("docs"))
    parser.add_argument("--only", nargs="+", metavar="ID", help="draw these again")
    flags = parser.parse_args(argv)
    if not flags.docs.is_dir():
        print(f"tools.gallery: {flags.docs} is no folder; run it in the checkout, or name its docs.", file=sys.stderr)
        return 2
    folder = flags.docs / "media" / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    for family, ids in shown().items():
        for id in ids:
            if flags.only is None or id in flags.only:
                file = folder / f"{id}.png"
                drawn = Image.fromarray(picture(id, family))
                # The usual palette, of median cuts, has no room for the colour of what is small.
                few = drawn.quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
                few.save(file, optimize=True)
                print(file, flush=True)
    (flags.docs / "envs" / "gallery.md").write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
