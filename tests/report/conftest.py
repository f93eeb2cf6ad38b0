"""The page, and a real browser to look at it as a reader does."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.report.browser import OpenPage, Tab
from tests.report.page_store import fill_pages

from gsebo.experiments import ExperimentRecipe, Store
from gsebo.report.page.results import Page, build_page

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def filled(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Store, list[ExperimentRecipe]]:
    """A store with a result of every trial, and the recipes that it is of."""
    return fill_pages(tmp_path_factory.mktemp("filled"))


@pytest.fixture(scope="session")
def page(filled: tuple[Store, list[ExperimentRecipe]]) -> Page:
    """The page that shows them."""
    return build_page(*filled)


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Where pictures go, to be looked at after a run."""
    folder = Path(os.environ.get("GSEBO_TEST_OUTPUT", ROOT / "test-output"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def open_page() -> Iterator[OpenPage]:
    """Opens files in Chromium."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root and most containers have no sandbox, and the pages here are our own.
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"]
        )
        tabs: list[Tab] = []

        def open_file(path: Path, **settings: object) -> Tab:
            tabs.append(Tab(browser, path, **settings))
            return tabs[-1]

        yield open_file
        browser.close()
