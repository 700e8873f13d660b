"""An algorithm's page has what the template asks for, names all settings and metrics, and links to names that exist."""

import dataclasses
import re
from pathlib import Path

import jax
import pytest

from jaxrl import registry
from jaxrl.algos.population import pbt
from tools import names, pages, tables

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/algos"
GENERATED = ("index.md", "curricula.md", "settings.md")
TEMPLATE = ["Usage", "Details", "Metrics", "Settings", "Results", "Deviations", "How to cite"]

DESCRIBED = {name: registry.get_algo(name) for name in registry.list_algos()} | {"pbt": pbt}
"""Every algorithm that has a page, by its name."""
PAGES = sorted(path.name for path in FOLDER.glob("*.md") if path.name not in GENERATED)


def page_of(name):
    return tables.algorithm_page(DESCRIBED[name].__name__.removeprefix("jaxrl.algos."))


def sections(page):
    """The text below each heading of the second level, and what stands before the first under ""."""
    text = (FOLDER / page).read_text()
    text = re.sub(r"^```.*?^```$", lambda code: code[0].replace("\n#", "\n #"), text, flags=re.M | re.S)
    first, *rest = re.split(r"^## (.+)$", text, flags=re.M)
    return {"": first} | dict(zip(rest[::2], rest[1::2], strict=True))


def test_every_algorithm_has_a_page_and_every_page_one():
    assert {page_of(name) for name in DESCRIBED} == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_made_by_the_template(page):
    found = sections(page)
    assert [name for name in found if name in TEMPLATE] == TEMPLATE, f"{page} has {list(found)}"
    what = found[""].partition("\n")[2]
    assert len(what.split()) > 20, f"{page} says what it is before its first heading"
    assert re.search(r"^jaxrl train \w+ \S+", found["Usage"], re.M) and "```python" in found["Usage"]
    assert "../results.md" in found["Results"]
    assert "![" in found["Results"] or "\n|---|" in found["Results"] or "experiments/" in found["Results"]
    assert len(found["Deviations"].split()) > 10
    assert found["How to cite"].count("\n- ") >= 1 and "CITATION.cff" in found["How to cite"]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", found["Metrics"], re.M)
    assert rows and all(about.strip() for _, about in rows)


@pytest.mark.parametrize("page", PAGES)
def test_each_detail_leads_to_the_code(page):
    details = re.split(r"^- ", sections(page)["Details"], flags=re.M)[1:]
    without = [detail.splitlines()[0] for detail in details if not re.search(r"\]\([^)]*\.py#[\w.]+\)", detail)]
    assert details and not without, f"{page}: a link such as [`ppo.loss`]() is missing of {without}"


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_setting_is_on_the_page(name):
    text = sections(page_of(name))["Settings"]
    for kind in ("Config", "Hyper"):
        if hasattr(DESCRIBED[name], kind):
            known = {field.name for field in dataclasses.fields(getattr(DESCRIBED[name], kind))}
            missing = known - set(re.findall(r"`(\w+)`", text))
            assert not missing, f"{page_of(name)} lacks {sorted(missing)} of {name}.{kind}: <!-- settings {name} -->"


def test_no_setting_goes_unexplained():
    for line in tables.settings_page().splitlines():
        if line.startswith("| `"):
            assert line.split(" | ")[-1].removesuffix("|").strip(), f"a comment behind the field is missing: {line}"
    for page, text in pages.all_filled(ROOT / "docs").items():
        for block in pages.BLOCK.finditer(text):
            assert not re.search(r"^\| `\w+` \|.*\|  \|$", block[0], re.M), f"{page} leaves a setting unexplained"


def test_what_is_made_in_pages_is_up_to_date():
    made = pages.all_filled(ROOT / "docs")
    assert {FOLDER / page for page in PAGES} <= set(made)
    for page, text in made.items():
        assert page.read_text() == text, f"{page.relative_to(ROOT)} is old: python -m tools.pages"


def test_linked_names_are_defined():
    """Read off the lines themselves, not only as the generator finds them."""
    wrong = [f"{page}: {name}: {why}" for page, name, why in pages.unresolved(ROOT / "docs")]
    assert not wrong, "\n".join(["python -m tools.pages --check", *wrong])
    linked = 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for name, file, target in re.findall(r"\[`([\w.]+)`\]\(([^)#]+\.py)#([\w.]+)\)", page.read_text()):
            last = target.rpartition(".")[2]
            source = (page.parent / file).resolve().read_text()
            defined = re.search(rf"^\s*(def {last}\(|class {last}\b|{last}\s*[:=])", source, re.M)
            assert defined and name.endswith(last), f"{page.name}: {name} links to {file}#{target}"
            linked += 1
    assert linked > 200


def test_names_are_found_by_as_much_as_makes_them_unique(tmp_path):
    (tmp_path / "algos").mkdir()
    (tmp_path / "jaxrl/exact").mkdir(parents=True)
    one = "X = 1\n\nclass A:\n    x: int = 0\n\n    def f(self):\n        def g(): ...\n"
    (tmp_path / "algos/one.py").write_text(one)
    (tmp_path / "algos/two.py").write_text("def f(): ...\n\ndef h():\n    def f(): ...\n\ndef k():\n    def g(): ...\n")
    (tmp_path / "jaxrl/exact/two.py").write_text("def f(): ...\n")
    for name, file, inside, line in [
        ("one.X", "algos/one.py", "X", 1),
        ("one.A.x", "algos/one.py", "A.x", 4),
        ("one.f.g", "algos/one.py", "f.g", 7),
        ("one.g", "algos/one.py", "g", 7),
        ("algos.two.f", "algos/two.py", "f", 1),
        ("algos.two.h.f", "algos/two.py", "h.f", 4),
        ("exact.two.f", "jaxrl/exact/two.py", "f", 1),
    ]:
        assert names.resolve(name, tmp_path) == (file, inside, line)
    for name, error in [("one.y", "0 times"), ("two.f", "jaxrl/exact/two.py or algos/two.py"), ("three.f", "no such")]:
        with pytest.raises(ValueError, match=error):
            names.resolve(name, tmp_path)
    page = tmp_path / "docs/a.md"
    code = "[`a.md`](a.md)\n```\n[`one.f`]()\n```\n``[`one.f`]()``"
    text = f"[`one.f`]() `one.f` [`one.f`](../algos/one.py#L99) {code}"
    want = f"[`one.f`](../algos/one.py#f) `one.f` [`one.f`](../algos/one.py#f) {code}"
    assert pages.filled(text, page, tmp_path) == want
    assert pages.filled("[`one.z`](../algos/one.py#z)", page, tmp_path) == "[`one.z`](../algos/one.py#z)"


def test_moving_a_line_changes_no_page(tmp_path):
    (tmp_path / "algos").mkdir()
    page, code = tmp_path / "docs/a.md", tmp_path / "algos/one.py"
    code.write_text("def f(): ...\n")
    before = pages.filled("[`one.f`]()", page, tmp_path)
    code.write_text("\n\n\ndef f(): ...\n")
    assert pages.filled(before, page, tmp_path) == before and names.line_in(code, "f") == 4


def test_the_generator_writes_what_is_old(tmp_path, capsys):
    docs = tmp_path / "docs"
    (tmp_path / "algos").mkdir()
    docs.mkdir()
    (tmp_path / "algos/one.py").write_text("\ndef f(): ...\n")
    (docs / "old.md").write_text("[`one.f`]()")
    (docs / "new.md").write_text("[`one.f`](../algos/one.py#f)")
    assert pages.main(["--check", str(docs)]) == 0 and (docs / "old.md").read_text() == "[`one.f`]()"
    assert pages.main([str(docs)]) == 0 and capsys.readouterr().out == "docs/old.md\n"
    assert (docs / "old.md").read_text() == (docs / "new.md").read_text()
    assert pages.main([str(docs / "nowhere")]) == 2


def test_all_names_that_are_nowhere_are_listed_at_once(tmp_path, capsys):
    docs = tmp_path / "docs"
    (tmp_path / "algos").mkdir()
    docs.mkdir()
    (tmp_path / "algos/one.py").write_text("def first(): ...\n")
    (docs / "a.md").write_text("[`one.frst`](../algos/one.py#frst) [`one.first`](../algos/one.py#first)")
    (docs / "b.md").write_text("[what it does](../algos/one.py#gone) [`two.f`]()\n```\n[`two.g`]()\n```\n")
    for args in (["--check", str(docs)], [str(docs)]):
        assert pages.main(args) == 1
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 3, said
        assert said[0].startswith("docs/a.md: one.frst: ") and "`first` is" in said[0]
        assert said[1].startswith("docs/b.md: two.f: ") and "no such module" in said[1]
        assert said[2].startswith("docs/b.md: what it does: ") and "0 times in one.py" in said[2]


def test_tables_of_several_algorithms_have_a_column_each():
    lines = pages.MADE["settings"](["td3", "ddpg"], FOLDER / "td3.md", ROOT)
    assert lines[1] == "| Config | td3 | ddpg | |"
    assert any(line.startswith("| `policy_delay` | `2` | - | gradient steps") for line in lines)
    with pytest.raises(ValueError, match="no row of nobody"):
        pages.MADE["results"](["nobody"], FOLDER / "td3.md", ROOT)
    with pytest.raises(ValueError, match="'nobody' is no algorithm"):
        pages.MADE["papers"](["nobody"], FOLDER / "td3.md", ROOT)


def test_papers_are_read_from_docstrings():
    for doc, papers in [
        ('As in Xu and Bo (2001), "One" (arXiv:1.2), eq. 3; Mi et al. 2002, "Two", Conf, arXiv:3.4.', 2),
        ("After Some (2001) and Other et al. 2002.", 2),
        ('Some (2001), and Other et al. (2002), "Two".', 1),
        ("Nobody.", 0),
    ]:
        assert len(tables.papers(doc)) == papers
    assert tables.papers('Xu et al. 2022, "Two", Conf, arXiv:3.45.') == ['Xu et al. (2022), "Two" (arXiv:3.45)']
    assert tables.papers('Ann Bo, Castro da Silva (2023), "T".')[0].endswith('Castro da Silva (2023), "T"')


def test_pictures_of_curves_are_light_and_shown():
    pictures = {path.stem: path.stat().st_size for path in (ROOT / "docs/media/curves").glob("*.png")}
    assert pictures and max(pictures.values()) <= 30_000
    for stem in pictures:
        assert f"](../media/curves/{stem}.png)" in sections(f"{stem}.md")["Results"]


@pytest.mark.slow
@pytest.mark.light
@pytest.mark.parametrize("name", registry.list_algos())
def test_every_metric_is_explained(name):
    """Nothing is compiled: one update is traced."""
    from tests import test_contract_algos as contract

    if name in contract.SETUPS:
        (algo, hyper), params = contract.made(name, contract.SETUPS[name].task), None
    else:
        algo, hyper, params = contract.cased(name)
    metrics = jax.eval_shape(lambda key: algo.update(algo.init(key, hyper, params))[1], jax.random.key(0))
    named = set(re.findall(r"`([\w/]+)`", sections(page_of(name))["Metrics"]))
    everyone = {"episode_return", "episode_length", "episodes"}
    assert not (missing := set(metrics) - everyone - named), f"{page_of(name)} does not explain {sorted(missing)}"
