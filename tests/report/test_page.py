"""The page as text: what is in it, what is not, and what is said to be missing."""

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from tests.report.page_reader import PageReader
from tests.report.page_store import fill_pages, made_up
from tests.report.synthetic import SEARCH, fill, recipe_of

from gsebo.errors import InvalidInput
from gsebo.experiments import ExperimentRecipe, Planned, Result, Store
from gsebo.report import Summary, gather_evidence
from gsebo.report.page.results import Page, build_page


@pytest.fixture(scope="module")
def reader(page: Page) -> PageReader:
    return PageReader(page.html)


def test_the_same_results_give_the_same_bytes(page: Page, tmp_path: Path) -> None:
    store, recipes = fill_pages(tmp_path)
    assert build_page(store, recipes).html == page.html


def test_every_name_is_unique_and_every_link_leads_somewhere(
    reader: PageReader,
) -> None:
    names = Counter(reader.values("id"))
    assert names.most_common(1)[0][1] == 1
    links = reader.values("href")
    assert {link for link in links if not link.startswith("#")} == {"data:,"}
    assert {link[1:] for link in links if link.startswith("#")} <= names.keys()


def test_nothing_comes_from_outside(page: Page, reader: PageReader) -> None:
    outside = {"src", "srcset", "action", "poster", "data", "style", "onclick"}
    assert not any(outside & own.keys() for _, own in reader.elements)
    assert set(re.findall(r"https?://[^\"'\s<]*", page.html)) <= {
        "http://www.w3.org/2000/svg"
    }
    assert "@import" not in page.html
    assert not re.search(r"url\((?!#)", page.html)


def test_the_policy_allows_this_style_and_this_script_only(
    reader: PageReader,
) -> None:
    policy = reader.values("content")
    (policy,) = [one for one in policy if "default-src" in one]
    for kind, directive in (("style", "style-src"), ("script", "script-src")):
        digest = hashlib.sha256("".join(reader.inside[kind]).encode()).digest()
        expected = f"{directive} 'sha256-{base64.b64encode(digest).decode()}'"
        assert expected in policy.split("; ")
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_every_figure_has_a_title_in_words(reader: PageReader) -> None:
    drawings = [own for tag, own in reader.elements if tag == "svg"]
    panels = [own for _, own in reader.elements if own.get("class") == "panel"]
    assert len(panels) > 20
    assert len(drawings) > len(panels)
    assert all(own["role"] == "img" and own["aria-label"] for own in drawings)


def test_tables_show_what_is_stored(
    reader: PageReader, filled: tuple[Store, list[ExperimentRecipe]]
) -> None:
    store, recipes = filled
    for recipe in recipes:
        evidence = gather_evidence(recipe, store)
        for cell in evidence.results:
            summary = Summary.of(evidence.scores(cell))
            assert summary is not None
            assert f"{summary.mean:.2f} ± {summary.std:.2f}" in reader.text
        for results in evidence.results.values():
            assert all(one.key[:8] in reader.text for one in results.values())
        assert f"gsebo run {recipe.name} reproduces it" in reader.text
        assert f"gsebo show {recipe.name}" in reader.text


def test_the_head_says_how_it_was_made(page: Page, reader: PageReader) -> None:
    assert "2026-11-15" in reader.text
    assert "cpu (made up)" in reader.text
    assert "torch 2.13.0" in reader.text
    keys = {
        identity
        for section in page.sections
        for trial in section.trials
        for identity in trial.ids
    }
    assert f"{len(keys)} finished" in reader.text


def test_findings_are_counted(reader: PageReader) -> None:
    assert "more accurate than the plain network in 4 of 4 places" in reader.text
    assert "With 20000 false edges" in reader.text
    assert "1.010 times their start" in reader.text
    assert "is more accurate than GSEBO in 0 of 1 places" in reader.text


def test_code_between_backticks(page: Page) -> None:
    assert "Says <code>gsebo run</code> in the middle." in page.html


def test_stored_text_is_never_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script><img src=x onerror='alert(2)'>"

    def outcome(planned: Planned) -> Result:
        if planned.trial.seed == 0:
            return Result(trial=planned.trial, error=evil, device=evil)
        return structs.replace(made_up(planned), device=evil, versions={evil: evil})

    store, recipes = fill_pages(tmp_path, outcome)
    recipes = [replace(one, title=evil, about=evil) for one in recipes[:3]]
    page = build_page(store, recipes)
    elements = Counter(tag for tag, _ in PageReader(page.html).elements)
    assert elements["script"] == 1
    assert elements["img"] == 0
    assert "&lt;script&gt;alert(1)" in page.html


def test_holes_are_told(tmp_path: Path) -> None:
    def outcome(planned: Planned) -> Result | None:
        trial = planned.trial
        if trial.curves or (trial.backbone == "sage" and trial.seed):
            return None
        if trial.method == "gsebo" and trial.noise == 20000:
            return Result(trial=trial, error="ValueError: no luck")
        return made_up(planned)

    store, recipes = fill_pages(tmp_path, outcome)
    page = build_page(store, recipes)
    text = PageReader(page.html).text
    assert "no luck" in text
    sections = {one.recipe.name: one for one in page.sections}
    assert sections["convergence"].stored == sections["overfitting"].stored == 0
    assert "12 of 12 trials are not stored: gsebo run convergence runs them" in text
    assert "no results yet" in text
    assert any("failed" in sentence for sentence in sections["robustness"].gaps)
    assert sections["robustness"].drawing is not None
    assert "With 20000 false edges" not in text


def test_a_figure_without_enough_to_draw(tmp_path: Path) -> None:
    def only_vanilla(planned: Planned) -> Result | None:
        return made_up(planned) if planned.trial.method == "vanilla" else None

    store, recipes = fill_pages(tmp_path, only_vanilla)
    factors = next(one for one in recipes if one.name == "factors")
    (section,) = build_page(store, [factors]).sections
    assert section.drawing is None
    assert section.stored == 4
    assert "There is not enough yet to draw the figure." in section.gaps


def test_a_search_that_failed_does_not_take_the_rest_along(tmp_path: Path) -> None:
    store, (first, *_) = fill_pages(tmp_path)
    search = recipe_of(
        tmp_path,
        """
title = "A search"
seeds = 1
[[trials]]
methods = ["gsebo"]
backbones = ["gcn"]
datasets = ["cora"]
split = "halves"
vary = { inner_steps = [2, 3] }
""",
        "search",
    )
    tuned = recipe_of(
        tmp_path,
        f"""
title = "Tuned"
[[trials]]
methods = ["gsebo"]
backbones = ["gcn"]
datasets = ["cora"]
tuned_by = "{tmp_path / "search.toml"}"
""",
        "tuned",
    )
    waiting = build_page(store, [first, tuned])
    assert "search that decides" in waiting.sections[-1].gaps[0]
    planned = gather_evidence(search, store).plan.trials
    store.append("search", [Result(trial=one.trial, error="no") for one in planned])
    failed = build_page(store, [first, tuned])
    assert "every candidate of the search" in failed.sections[-1].gaps[0]
    assert failed.sections[0].stored == waiting.sections[0].stored > 0


def test_choices_that_another_method_lists_leave_no_hole(tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    search = recipe_of(
        tmp_path, SEARCH.replace('"gsebo", "vanilla"', '"vanilla"'), "search"
    )
    recipe = recipe_of(
        tmp_path,
        f"""
title = "As vanilla"
seeds = 2
[[trials]]
methods = ["vanilla", "train_val"]
backbones = ["gcn"]
datasets = ["cora"]
tuned_by = "{tmp_path / "search.toml"}"
tuned_as = "vanilla"
""",
        "as_vanilla",
    )
    fill(store, search)
    fill(store, recipe)
    (section,) = build_page(store, [recipe]).sections
    assert (section.stored, section.choices, section.gaps) == (4, (), ())


@pytest.mark.parametrize("exists", [True, False])
def test_no_results_at_all(tmp_path: Path, exists: bool) -> None:
    if exists:
        tmp_path.joinpath("results").mkdir()
    with pytest.raises(InvalidInput, match="gsebo run"):
        build_page(Store(tmp_path / "results"))
