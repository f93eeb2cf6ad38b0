"""The page in a real browser, at the widths of a desk and of a phone."""

from pathlib import Path

import pytest
from tests.report.browser import OpenPage, Tab

from gsebo.experiments import Store
from gsebo.report.page.results import Page, build_page

OWN_RESULTS = Path(__file__).parents[2] / "results"

both_widths = pytest.mark.parametrize("width", [1280, 400])
both_schemes = pytest.mark.parametrize("scheme", ["light", "dark"])


@pytest.fixture(scope="module")
def file(
    open_page: OpenPage, page: Page, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("browser") / "report.html"
    path.write_text(page.html, "utf-8")
    return path


@both_widths
@both_schemes
def test_it_fits_and_nothing_is_wrong(
    open_page: OpenPage, file: Path, screenshots: Path, width: int, scheme: str
) -> None:
    tab = open_page(file, width=width, color_scheme=scheme)
    assert tab.fits()
    tab.page.screenshot(path=screenshots / f"{width}-{scheme}.png", full_page=True)
    tab.unfold()
    assert tab.fits()
    assert tab.complaints == []
    assert tab.requests == [file.as_uri()]
    panels = tab.sizes(".panel svg")
    assert len(panels) == len(tab.sizes(".panel")) > 20
    assert all(wide >= 270 and high >= 90 for wide, high in panels)
    # Letters that can be read, in the colour of the text around them.
    assert all(high >= 9 for _, high in tab.sizes(".panel svg text"))
    assert tab.style(".panel svg text", "fill") == tab.style("body", "color")


def shown(tab: Tab, kind: str, selector: str) -> set[str]:
    """Names that any visible element of the selection is about."""
    found = tab.visible(selector)
    return {name for one in found for name in one.get(kind, "").split()}


def test_the_filter_hides_what_does_not_match(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    tab.unfold()
    assert {"gcn", "gat", "sage"} <= shown(tab, "backbone", ".panel")
    before = len(tab.visible("tr[data-leaf]"))
    tab.choose("backbone", "gat")
    for selector in (".panel", "tr[data-leaf]"):
        assert shown(tab, "backbone", selector) == {"gat"}
    assert 0 < len(tab.visible("tr[data-leaf]")) < before
    assert "GCN, Cora" not in {one["text"] for one in tab.visible("figcaption")}
    assert not tab.visible("#robustness")
    assert tab.visible("#shown")[0]["text"] == "GAT"
    tab.choose("backbone", "gcn")
    assert shown(tab, "backbone", ".panel") == {"gat", "gcn"}
    tab.page.get_by_role("button", name="Show everything").click()
    assert len(tab.visible("tr[data-leaf]")) == before
    assert tab.run("location.hash") == ""


def test_methods_and_datasets_are_hidden_inside_panels_and_tables(
    open_page: OpenPage, file: Path
) -> None:
    tab = open_page(file)
    tab.choose("method", "gsebo")
    tab.choose("dataset", "air-usa")
    assert shown(tab, "method", ".panel svg [data-method]") <= {"gsebo"}
    assert shown(tab, "dataset", "#table1 td, #table1 thead th") == {"air-usa"}
    tab.page.get_by_role("button", name="Show everything").click()
    tab.choose("method", "dropedge")
    lines = shown(tab, "method", "#robustness .panel svg [data-method]")
    assert lines == {"dropedge"}


def test_the_address_keeps_the_filter(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    tab.choose("backbone", "gcn", "sage")
    tab.choose("method", "gsebo")
    address = tab.run("location.href")
    assert address.endswith("#?backbone=gcn,sage&method=gsebo")
    rows = tab.visible("tr[data-leaf]")
    tab.page.reload()
    assert tab.visible("tr[data-leaf]") == rows
    again = open_page(file, place=tab.run("location.hash"))
    assert again.visible("tr[data-leaf]") == rows
    again.page.get_by_role("link", name="Robustness: small").click()
    # The page hears of the new place a moment later.
    again.page.wait_for_function("location.hash.includes('?')")
    assert again.run("location.hash") == "#robustness?backbone=gcn,sage&method=gsebo"
    assert again.visible("tr[data-leaf]") == rows
    top = "document.getElementById('robustness').getBoundingClientRect().top"
    assert 0 <= again.run(top) < 100


def test_nothing_matches(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file, place="#?backbone=mlp&method=gsebo")
    assert not tab.visible(".panel, tr[data-leaf]")
    assert [one["text"] for one in tab.visible("#nothing")] == [
        "Nothing matches the filter."
    ]
    tab.page.goto(file.as_uri() + "#?method=no-such-method")
    assert tab.visible(".panel")
    assert not tab.visible("#nothing")


def test_the_filter_by_keyboard(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    tab.page.locator("#filter summary").focus()
    tab.page.keyboard.press("Enter")
    tab.page.keyboard.press("Tab")
    assert tab.run("document.activeElement.value") == "cora"
    tab.page.keyboard.press("Space")
    assert shown(tab, "dataset", ".panel") == {"cora"}
    assert tab.run("location.hash") == "#?dataset=cora"


def test_figures_lead_to_their_trials(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file)
    tab.page.locator("#table1 td a").first.click()
    (row,) = tab.visible("tr:target")
    about = [row[kind] for kind in ("method", "backbone", "dataset")]
    assert about == ["vanilla", "gcn", "cora"]


def test_without_scripts_everything_is_there(open_page: OpenPage, file: Path) -> None:
    tab = open_page(file, java_script_enabled=False)
    page = tab.page
    assert page.locator(".panel").count() > 20
    assert all(one.is_visible() for one in page.locator(".panel").all())
    assert not page.locator("#filter").is_visible()


def test_on_paper(open_page: OpenPage, file: Path, screenshots: Path) -> None:
    tab = open_page(file)
    tab.run(
        "addEventListener('beforeprint', () => window.folded ="
        " document.querySelectorAll('details:not([open])').length)"
    )
    tab.page.emulate_media(media="print")
    assert not tab.page.locator("#filter").is_visible()
    paper = tab.page.pdf(path=screenshots / "print.pdf", format="A4")
    assert paper.startswith(b"%PDF")
    assert tab.run("window.folded") == 0
    assert tab.complaints == []


@pytest.mark.skipif(not any(OWN_RESULTS.glob("*.jsonl")), reason="no results here")
def test_the_repositorys_own_results(
    open_page: OpenPage, tmp_path: Path, screenshots: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(build_page(Store(OWN_RESULTS)).html, "utf-8")
    assert path.stat().st_size < 4e6
    for width in (1280, 400):
        tab = open_page(path, width=width)
        tab.page.screenshot(path=screenshots / f"own-{width}.png", full_page=True)
        tab.unfold()
        assert tab.fits()
        assert tab.complaints == []
        assert all(min(size) > 0 for size in tab.sizes(".panel svg"))
