"""The site has every page in its navigation, a place for every link, and pictures of what the gallery shows.

`make docs` builds it, strictly; that needs packages of its own and is not done here.
"""

import importlib.util
import json
import re
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from jaxrl import registry
from tools import gallery, search

ROOT = Path(__file__).resolve().parents[2]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())

spec = importlib.util.spec_from_file_location("hook", ROOT / CONFIG["hooks"][0])
assert spec is not None and spec.loader is not None
hook = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hook)

PAGES = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md"))]
STUDIES = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("experiments/*/README.md"))]
OUTSIDE = [*hook.MOVED, "experiments/README.md", *STUDIES]


def entries(nav):
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else entries(value)


def test_every_page_is_in_the_navigation_once():
    listed = sorted(entries(CONFIG["nav"]))
    # The hook lists studies and modules; README and CITATION.cff are in MOVED.
    assert listed == sorted({*map(hook.site_path, [*PAGES, *hook.MOVED]), "studies/index.md", "api/index.md"})


def test_every_study_and_module_is_listed():
    listed = [f"experiments/{name}/README.md" for titles in hook.studies().values() for name in titles]
    assert sorted(listed) == STUDIES
    found = hook.modules()
    assert {"jaxrl", "jaxrl.rollout", "jaxrl.spaces"} <= set(found["jaxrl"])
    assert {"jaxrl.algos.actor_critic.td3", "jaxrl.algos.curricula.plr"} <= set(found["jaxrl.algos"])
    assert "jaxrl.host.run.fit" in found["jaxrl.host"]
    assert not any(module.startswith("jaxrl.envs") for names in found.values() for module in names)
    assert all(hook.about(module) for names in found.values() for module in names)


@pytest.mark.parametrize("page", [*PAGES, *OUTSIDE])
def test_what_a_page_links_to_is_on_the_site(page):
    text = (ROOT / page).read_text()
    assert page.endswith(".cff") or re.match(r"# \S", text), f"{page} begins with its title"
    for target in hook.targets(text, page):
        assert hook.site_path(target)


def test_links_are_rewritten_to_the_places_of_the_site():
    page = "docs/algos/td3.md"
    for before, after in [
        ("[f](../../algos/actor_critic/td3.py)", "[f](../source/algos/actor_critic/td3.py.md)"),
        ("[s](../../experiments/mazes/README.md#a-b)", "[s](../studies/mazes/index.md#a-b)"),
        ("[s](../../experiments/mazes)", "[s](../studies/mazes/index.md)"),
        ("[c](../../CONTRIBUTING.md) [m](../index.md)", "[c](../contributing.md) [m](../map.md)"),
        ("![p](../media/mazes.png)", "![p](../media/mazes.png)"),
        ("[u](https://a.b/c) [h](#here)", "[u](https://a.b/c) [h](#here)"),
        ("`[x](y)`\n```python\na[0](b)\n```\n", "`[x](y)`\n```python\na[0](b)\n```\n"),
    ]:
        assert hook.rewritten(before, page) == after
    assert hook.rewritten("![p](results.png)", "experiments/mazes/README.md") == "![p](results.png)"
    assert hook.rewritten("![p](docs/media/mazes.png)", "README.md") == "![p](media/mazes.png)"
    with pytest.raises(ValueError, match="nowhere"):
        hook.rewritten("[n](nowhere.md)", page)
    for page in [*PAGES, *OUTSIDE]:
        assert hook.repository_path(hook.site_path(page)) == page


@pytest.mark.parametrize("page", [*PAGES, *OUTSIDE])
def test_every_linked_name_of_the_code_exists(page):
    """Names only: a moved line is nobody's concern, since the site finds it when it is built."""
    text = (ROOT / page).read_text()
    assert not re.search(r"\]\([^)]*\.py#L\d+", text), f"{page} links to a line: name what stands there"
    hook.rewritten(text, page)


def test_a_link_to_a_name_leads_to_its_line():
    page, lines = "docs/algos/td3.md", (ROOT / "algos/actor_critic/td3.py").read_text().splitlines()
    for name, begins in [("Config", "class Config"), ("make", "def make(")]:
        link = hook.rewritten(f"[what it is](../../algos/actor_critic/td3.py#{name})", page)
        place = re.fullmatch(r"\[what it is\]\(\.\./source/algos/actor_critic/td3\.py\.md#__codelineno-0-(\d+)\)", link)
        assert place is not None and lines[int(place[1]) - 1].startswith(begins)
    with pytest.raises(ValueError, match=r"td3.md links to .*td3.py#Confg: .*0 times in td3.py; `Config` is"):
        hook.rewritten("[c](../../algos/actor_critic/td3.py#Confg)", page)


def test_names_of_functions_lead_to_their_lines():
    for name, page, file, begins in [
        ("`td3.smoothed`", "docs/algos/td3.md", "../source/algos/actor_critic/td3.py", "def smoothed("),
        ("`jaxrl.rollout.Ends(a)`", "docs/core.md", "source/jaxrl/rollout.py", "class Ends("),
    ]:
        place = re.fullmatch(r"\[(.+)\]\((.+)\.md#__codelineno-0-(\d+)\)", hook.rewritten(name, page))
        assert place is not None and place[1] == name and place[2] == file
        line = (ROOT / file.partition("source/")[2]).read_text().splitlines()[int(place[3]) - 1]
        assert line.startswith(begins)
    for text in [
        "[`td3.Config`](td3.md)",
        "# `td3.Config`",
        "`td3.none`",
        "`none.make`",
        "`jaxrl.make`",
        "`x = td3.make(1)`",
    ]:
        assert hook.rewritten(text, "docs/algos/td3.md") == text
    assert hook.rewritten("`td3.td_target`", "docs/core.md") == "`td3.td_target`"


def test_pipes_of_code_in_tables():
    assert hook.in_table_cells("| `a \\| b` | c |\n`a \\| b`") == "| `a | b` | c |\n`a \\| b`"


def test_the_site_asks_for_nothing_from_elsewhere():
    assert CONFIG["theme"]["font"] is False and "offline" in CONFIG["plugins"]
    # Without one of that name the offline plugin takes it from a server.
    assert [(ROOT / "docs" / script).name for script in CONFIG["extra"]["polyfills"]] == [
        "iframe-worker.js",
        "query.js",
    ]
    for file in [*CONFIG["extra"]["polyfills"], *CONFIG["extra_css"]]:
        assert "://" not in (ROOT / "docs" / file).read_text()


# ---- search

SAID = tomllib.loads((ROOT / "docs/site/words.toml").read_text())


def anchors(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M)
    return {hook.slug(re.sub(r"\]\([^)]*\)", "", heading), "-") for heading in re.findall(r"^#+ (.+)$", text, re.M)}


@pytest.mark.parametrize("target", SAID["words"])
def test_words_for_the_search_are_of_a_page_or_section(target):
    path, _, fragment = target.partition("#")
    assert (ROOT / path).exists() and SAID["words"][target].split()
    assert not fragment or fragment in anchors(ROOT / path), f"{path} has no heading {fragment}"
    assert hook.address("docs/core.md#spaces") == "core.html#spaces" and hook.address("README.md") == "index.html"


def test_what_is_asked_of_the_search():
    wanted = search.asked()
    assert len(wanted) >= 16 and all(wanted.values()) and wanted["mujoco"] == ["envs/physics.html"]
    right = [["api/a.html"], ["envs/physics.html#brax", "envs/physics.html"]]
    guides = [["start.html"], ["core.html"], ["mdp.html"], ["envs/physics.html"]]
    assert not search.faults({"mujoco": right[1:] + guides}, wanted)
    assert search.faults({"mujoco": right}, wanted) == [
        "'mujoco' finds the reference before guides: api/a.html, envs/physics.html#brax."
    ]
    assert "it finds start.html, core.html, mdp.html." in search.faults({"mujoco": guides}, wanted)[0]
    assert "it finds nothing" in search.faults({"mujoco": []}, wanted)[0]


def test_guides_weigh_more_in_the_search_than_the_reference():
    entries = [
        {"location": place} for place in ["core.html", "core.html#spaces", "api/a.html#b", "studies/a/index.html"]
    ]
    hook.weighed(entries, {"core.html#spaces": "box"})
    assert entries[0] == {"location": "core.html"} and entries[1]["words"] == "box"
    assert entries[2]["boost"] < entries[3]["boost"] < 1
    with pytest.raises(ValueError, match="words of core.html#gone, which"):
        hook.weighed(entries, {"core.html#gone": "box"})


def test_a_query_counts_whole_words_and_leaves_fillers_out():
    """In Node, which pyright brings."""
    program = search.node()
    if program is None:
        pytest.skip("there is no Node")
    script = """
        const asked = []
        globalThis.window = {Worker: class {postMessage(message) {asked.push(message)}}}
        require("node:vm").runInThisContext(require("node:fs").readFileSync(process.argv[1], "utf8"))
        const worker = new window.Worker()
        for (const message of JSON.parse(process.argv[2])) worker.postMessage(message)
        process.stdout.write(JSON.stringify(asked))"""
    setup, query = 0, 2
    becomes = {
        "how do I  reset": "reset^4 reset",
        "to be": "to^4 to be^4 be",
        '"own reset"': '"own reset"',
        "+wind -gust": "+wind -gust",
        "multi-gpu": "multi-gpu^4 multi-gpu",
        " ": "",
    }
    sent = [{"type": setup, "data": "how to"}, *({"type": query, "data": typed} for typed in becomes)]
    command = [program, "-e", script, str(ROOT / "docs/site/query.js"), json.dumps(sent)]
    asked = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert asked == [sent[0], *({"type": query, "data": heard} for heard in becomes.values())]


# ---- gallery


def test_the_gallery_is_up_to_date():
    assert (ROOT / "docs/envs/gallery.md").read_text() == gallery.page(), "python -m tools.gallery"
    pictures = {path.stem: path.stat().st_size for path in (ROOT / "docs/media/gallery").glob("*.png")}
    shown = gallery.shown()
    assert set(pictures) == {id for ids in shown.values() for id in ids}
    assert all(shown.values()) and sum(pictures.values()) < 3e6
    for id in pictures:
        with Image.open(ROOT / f"docs/media/gallery/{id}.png") as drawn:
            assert drawn.width == gallery.SIZE and drawn.height <= gallery.SIZE, f"python -m tools.gallery --only {id}"
    assert set(gallery.CHOSEN) <= {id for ids in gallery.by_family().values() for id in ids}


def test_pictures_are_drawn():
    """Of one that draws itself after some steps, and of one that does not."""
    for id, family in [("CartPole-v1", "classic"), ("BernoulliBandit-v0", "bandits")]:
        image = gallery.picture(id, family)
        assert image.shape[1:] == (gallery.SIZE, 3) and gallery.SIZE / 4 < len(image) <= gallery.SIZE
        assert len({tuple(color) for color in image.reshape(-1, 3)}) > 3


def test_captions_of_the_gallery_are_text():
    """A name and a line of what it is, so that the search and a screen reader have them."""
    text = (ROOT / "docs/envs/gallery.md").read_text()
    cells = re.findall(r"!\[(.+?)\]\(\.\./media/gallery/(.+?)\.png\)<br>`(.+?)`: (.+?) (?=\|)", text)
    assert {id for id, *_ in cells} == {id for ids in gallery.shown().values() for id in ids}
    assert all(id == file == name and len(line) > 10 for id, file, name, line in cells)


def test_what_has_ended_stays_or_begins_again():
    env, params = registry.make("CartPole-v1")
    _, _, rewards, ends = gallery.played(env, params, 80)
    assert np.isnan(rewards[np.argmax(ends) + 1 :]).all() and ends[-1] and not ends[0]
    states, _, rewards, ends = gallery.played(env, params, 80, again=True)
    assert np.isfinite(rewards).all() and ends.sum() >= 2
    assert (states.time[1:][ends] == 0).all()


def test_curves_say_what_is_drawn():
    image = gallery.curves(np.zeros((4, 10)), np.ones(3), np.array([False, True, False]))
    assert image.shape[1] == gallery.SIZE and image.dtype == np.uint8
    other = gallery.curves(np.zeros((4, 10)), np.ones(3), np.array([False, False, False]))
    assert (image != other).any()  # the line at which an episode ends
