"""The page of stored results."""

import pytest
from tests.report.page_store import fill_pages

from gsebo.experiments import ExperimentRecipe, Store
from gsebo.report.page.results import Page, build_page


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
