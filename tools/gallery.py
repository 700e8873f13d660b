"""The gallery of the documentation: a picture of every environment class, on one page.

`python -m tools.gallery [DOCS] [--only ID ...]` writes `envs/gallery.md` and `media/gallery/<id>.png` below DOCS
(default `docs`); a test compares the page with what it would write. An environment that draws itself is shown as it
draws itself, after some random actions where its first state shows little; of the others an episode of random actions
is shown, its observation and its reward over time.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from jaxrl import registry
from jaxrl.canvas import BLUE, GREY, INK, ORANGE, PALE, WHITE
from jaxrl.environment import Environment
from tools.tables import FAMILIES, by_family, title_of

CHOSEN: dict[str, tuple[str, ...]] = {
    "Brax-ant": ("Brax-ant", "Brax-humanoid", "Brax-pusher"),
    "Cont-CC-DFIM-v0": ("Cont-CC-PMSM-v0", "Finite-TC-SCIM-v0", "Cont-SC-SeriesDc-v0"),
    "GridWorld-all-v0": ("GridWorld-rand_dense-v0", "GridWorld-mazes-v0", "GridWorld-rand_long-v0"),
    "Maze-Labyrinth-v0": ("Maze-Labyrinth-v0", "Maze-SixteenRooms-v0"),
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
    **{"Game2048-v0": 60, "MazeEditor-v0": 60, "Minesweeper-v0": 3, "MinesweeperLevel-v0": 3},
}
"""Random actions before a picture, by family or id."""

EPISODE = 60
"""Random actions of an episode that is shown as curves."""

SIZE, CAPTION = 200, 22
"""Pixels of a picture's longer side and of the line below it."""


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


def played(env: Environment, params: Any, steps: int) -> tuple[Any, Any, Any]:
    """`(states, observations, rewards)` of random actions, the first state before them; it stays where it ends."""

    def step(loop: Any, key: jax.Array) -> Any:
        obs, state, ended = loop
        action_key, env_key = jax.random.split(key)
        space = env.action_space(params)
        if env.num_agents > 1:
            action = jax.vmap(space.sample)(jax.random.split(action_key, env.num_agents))
        else:
            action = space.sample(action_key)
        ts = env.step(env_key, state, action, params)
        obs, state = jax.tree.map(lambda old, new: jnp.where(ended, old, new), (obs, state), (ts.obs, ts.state))
        reward = jnp.where(ended, jnp.nan, ts.reward)
        return (obs, state, ended | ts.terminated | ts.truncated), (state, obs, reward)

    @jax.jit
    def episode(key: jax.Array) -> Any:
        obs, state = env.reset(key, params)
        _, (states, seen, rewards) = jax.lax.scan(step, (obs, state, jnp.bool_(False)), jax.random.split(key, steps))
        both = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), (state, obs), (states, seen))
        return *both, rewards

    return jax.device_get(episode(jax.random.key(1)))


def picture(id: str, family: str) -> UInt8[np.ndarray, "height width 3"]:
    """The environment as it draws itself, else an episode's curves; with its id below."""
    env, params = registry.make(id)
    if type(env).render is Environment.render:
        return framed(curves(*played(env, params, EPISODE)[1:]), id)
    steps = STEPS.get(id, STEPS.get(family, 0))
    if steps:
        state = jax.tree.map(lambda x: x[-1], played(env, params, steps)[0])
    else:
        state = jax.device_get(jax.jit(env.reset)(jax.random.key(1), params)[1])
    return framed(env.render(state, jax.device_get(params)), id)


def framed(image: np.ndarray, text: str) -> UInt8[np.ndarray, "height width 3"]:
    """A picture scaled to fit a square of `SIZE` pixels, its name below it."""
    from PIL import Image, ImageDraw, ImageFont

    height, width = image.shape[:2]
    scale = SIZE / max(height, width)
    small = Image.fromarray(image).resize(
        (max(1, round(width * scale)), max(1, round(height * scale))), Image.Resampling.LANCZOS
    )
    page = Image.new("RGB", (SIZE + 2, SIZE + 2 + CAPTION), WHITE)
    page.paste(small, ((SIZE + 2 - small.width) // 2, (SIZE + 2 - small.height) // 2))
    size = next(size for size in range(12, 5, -1) if ImageFont.load_default(size).getlength(text) <= SIZE or size == 6)
    draw = ImageDraw.Draw(page)
    draw.text((SIZE // 2, SIZE + 2 + CAPTION // 2), text, fill=INK, font=ImageFont.load_default(size), anchor="mm")
    return np.asarray(page)


def curves(obs: Any, rewards: np.ndarray) -> UInt8[np.ndarray, "height width 3"]:
    """Numbers of the observation (grey, the first one blue) and the reward (orange) over the steps of an episode."""
    from PIL import Image, ImageDraw, ImageFont

    big = 3
    side, half = SIZE * big, SIZE * big // 2
    page = Image.new("RGB", (side, side), WHITE)
    draw = ImageDraw.Draw(page)
    leaves = [np.asarray(x, float).reshape(len(x), -1) for x in jax.tree.leaves(obs)]
    numbers = np.concatenate(leaves, 1)[:, :8]
    rows = [(rewards[:, None], "reward", [ORANGE]), (numbers, "observation", [BLUE, *[GREY] * 7])]
    for row, (values, name, colors) in enumerate(rows):
        top = row * half
        low, high = np.nanmin(values), np.nanmax(values)
        span = high - low if high > low else 1.0
        draw.line([(0, top + half - big), (side, top + half - big)], PALE, big)
        draw.text((big * 4, top + big * 3), name, fill=INK, font=ImageFont.load_default(11 * big))
        x = np.linspace(0.04, 0.96, len(values)) * side
        y = top + half * (0.9 - 0.62 * (values - low) / span)
        for column in range(values.shape[1] - 1, -1, -1):
            points = [(a, b) for a, b in zip(x, y[:, column], strict=True) if np.isfinite(b)]
            draw.line(points, colors[column], 2 * big, joint="curve")
            for a, b in points if row == 0 else ():
                draw.ellipse((a - 2 * big, b - 2 * big, a + 2 * big, b + 2 * big), colors[column])
    return np.asarray(page.resize((SIZE, SIZE), Image.Resampling.BOX))


def page() -> str:
    """`docs/envs/gallery.md`."""
    lines = [
        "# Gallery: a picture of every environment",
        "",
        "Written by `python -m tools.gallery`: a picture of every environment class, as the environment draws",
        "itself, after some random actions where its first state shows little. Of what draws nothing there is an",
        "episode of random actions: the reward, and the observation's first eight numbers. [Every id](ids.md).",
    ]
    for family, ids in shown().items():
        about = FAMILIES[family]
        lines += ["", f"## {about.title}", "", f"[{title_of(f'envs/{about.page}')}]({about.page})", ""]
        lines += [f"![{id}](../media/gallery/{id}.png)" for id in ids]
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
