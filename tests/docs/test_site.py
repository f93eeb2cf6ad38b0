"""The site builds, is refused where it is wrong, and works without any host."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from tests.report.browser import OpenPage, Tab

ROOT = Path(__file__).parents[2]
LOOKED_AT = (
    "index.html",
    "start.html",
    "questions.html",
    "guides/suspects.html",
    "evidence/reproduction.html",
    "api/methods.html",
)

both_widths = pytest.mark.parametrize("width", [1280, 400])


def build(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config)]
    return subprocess.run(
        [*command, "--site-dir", str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built once however many processes test."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "site"
    with FileLock(f"{folder}.lock"):
        if not (folder / "index.html").exists():
            done = build(ROOT / "mkdocs.yml", folder)
            assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = [
        one.relative_to(ROOT / "docs").with_suffix(".html")
        for ending in ("*.md", "*.ipynb")
        for one in (ROOT / "docs").rglob(ending)
    ]
    assert len(pages) > 40
    assert [one for one in pages if not (site / one).is_file()] == []
    # What links lead to outside of docs/ is a page, too.
    assert "<h1" in (site / "source/CONTRIBUTING.html").read_text("utf-8")
    assert "Unreleased" in (site / "changelog.html").read_text("utf-8")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A site of two pages that is built as strictly."""
    hooks = [str(path) for path in sorted((ROOT / "scripts").glob("site_so*.py"))]
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\nnav: [index.md, other.md]\nhooks: {hooks}\n"
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# One\n\n[two](other.md#two)\n")
    (tmp_path / "docs/other.md").write_text("# Two\n")
    return tmp_path


def test_a_small_site_builds(small: Path) -> None:
    done = build(small / "mkdocs.yml", small / "site")
    assert done.returncode == 0, done.stderr


def test_what_is_wrong_fails_the_build(small: Path) -> None:
    page = small / "docs/index.md"
    page.write_text(
        "# One\n\n[gone](gone.md) [no such place](other.md#three)\n\n"
        "![picture](gone.png) [absolute](/other.md)\n\n[name][gsebo.no_such_name]\n"
    )
    (small / "docs/unlisted.md").write_text("# Three\n")
    done = build(small / "mkdocs.yml", small / "site")
    assert done.returncode == 1
    warned = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    for place in ("gone.md", "#three", "gone.png", "/other.md", "no_such_name"):
        assert any(place in line for line in warned), done.stderr
    assert "unlisted.md" in done.stderr


@pytest.fixture(scope="module")
def folder_of_pictures(screenshots: Path) -> Path:
    folder = screenshots / "site"
    folder.mkdir(exist_ok=True)
    return folder


@both_widths
def test_it_fits_and_asks_nobody(
    open_page: OpenPage, site: Path, folder_of_pictures: Path, width: int
) -> None:
    tab = open_page(site / LOOKED_AT[0], width=width)
    for name in LOOKED_AT:
        tab.page.goto((site / name).as_uri())
        assert tab.page.locator("h1").first.is_visible()
        assert tab.fits(), name
        picture = f"{width}-{name.replace('/', '-').removesuffix('.html')}.png"
        tab.page.screenshot(path=folder_of_pictures / picture)
    assert tab.complaints == []
    elsewhere = [one for one in tab.requests if not one.startswith(site.as_uri())]
    assert elsewhere == []


def heading(tab: Tab) -> str:
    return str(tab.page.locator("article h1").first.inner_text()).strip("¶ \n")


@both_widths
def test_navigation(open_page: OpenPage, site: Path, width: int) -> None:
    tab = open_page(site / "start.html", width=width)
    if width < 1000:
        tab.page.locator("label.md-header__button[for=__drawer]").click()
        # The drawer opens on the section of the page; above it are all of them.
        side = tab.page.locator(".md-sidebar--primary")
        side.locator("label.md-nav__title", has_text="Start").click()
        side.locator("label.md-nav__link", has_text="Evidence").click()
        side.get_by_role("link", name="Claims, read as a sceptic").click()
        assert heading(tab) == "Claims, read as a sceptic would"
    else:
        tab.page.locator(".md-tabs").get_by_role("link", name="Evidence").click()
        assert "/evidence/" in tab.page.url
        side = tab.page.locator(".md-sidebar--primary")
        side.get_by_role("link", name="Claims, read as a sceptic").click()
        assert heading(tab) == "Claims, read as a sceptic would"
    assert tab.complaints == []


@both_widths
def test_search_finds_the_suspects(open_page: OpenPage, site: Path, width: int) -> None:
    tab = open_page(site / "index.html", width=width)
    if width < 1000:
        tab.page.locator("label.md-header__button[for=__search]").click()
    tab.page.locator(".md-search__input").press_sequentially("suspects")
    found = tab.page.locator(".md-search-result__link")
    found.first.wait_for()
    addresses = [one.get_attribute("href") or "" for one in found.all()]
    assert any("suspects.html" in one for one in addresses)
    found.first.click()
    tab.page.wait_for_url("**/*.html*")
    assert "suspects" in tab.page.locator("article").inner_text().lower()
    assert tab.complaints == []


@both_widths
def test_light_and_dark(open_page: OpenPage, site: Path, width: int) -> None:
    tab = open_page(site / "start.html", width=width, color_scheme="light")
    scheme = "document.body.dataset.mdColorScheme"
    assert tab.run(scheme) == "default"
    before = tab.style("body", "backgroundColor")
    tab.page.locator("label[title=Dark]").click()
    assert tab.run(scheme) == "slate"
    assert tab.style("body", "backgroundColor") != before
    tab.page.goto((site / "index.html").as_uri())
    assert tab.run(scheme) == "slate"
    tab.page.locator("label[title=Light]").click()
    assert tab.run(scheme) == "default"
    assert open_page(site / "start.html", color_scheme="dark").run(scheme) == "slate"
    assert tab.complaints == []
