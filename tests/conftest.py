import gc
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import final

import pytest
from hypothesis import settings
from tests.report.browser import OpenPage, Tab

ROOT = Path(__file__).parents[1]
_GIVEN = os.environ.get("GSEBO_DATA")
_NUMBERS = count()

# A busy machine may take long for one example.
settings.register_profile("gsebo", deadline=None)
settings.load_profile("gsebo")


def pytest_configure(config: pytest.Config) -> None:
    for mark in (
        "exact: equal to the last bit, whatever code the processor runs",
        "compiles: compiles what others run too; before them, each file in one process",
    ):
        config.addinivalue_line("markers", mark)
    config.pluginmanager.register(Heap())
    # Who only hands tests out need not load the libraries before the others start to.
    hands_out = config.getoption("dist", "no") != "no"
    if hasattr(config, "workerinput") or not hands_out:
        load_libraries()


def load_libraries() -> None:
    # Before torch, so that it can fix which code that runs.
    import gsebo  # noqa: F401

    with warnings.catch_warnings():
        # Importing PyG warns of its own use of torch.jit.
        warnings.simplefilter("ignore")
        import torch_geometric  # noqa: F401


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Who asks for the few files that compile does not wait for all others."""
    if config.option.markexpr != "compiles" or collection_path.suffix != ".py":
        return None
    return "mark.compiles" not in collection_path.read_text("utf-8") or None


@final
class Heap:
    """What stays: thousands of tests, libraries, fits that tests share.

    It is no garbage. Whoever looks for some, as each trial and each command does, would
    take half a second to see that.
    """

    modules = tests = 0

    def pytest_runtest_setup(self) -> None:
        self.tests += 1
        if len(sys.modules) > self.modules + 10 or self.tests % 20 == 0:
            gc.collect()
            gc.freeze()
            self.modules = len(sys.modules)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the datasets as .npz and their raw files."""
    folder = Path(_GIVEN) if _GIVEN else Path(__file__).parents[2] / "shared/data"
    if not (folder / "cora.npz").is_file():
        pytest.skip("no folder of datasets: set GSEBO_DATA")
    return folder


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has the caches of all tests."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(autouse=True)
def own_cache(caches: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or fills the caller's own folders of datasets."""
    # Not in tmp_path: hardly a test needs a cache, and among thousands of folders
    # another one is slow to make.
    cache = caches / str(next(_NUMBERS))
    monkeypatch.delenv("GSEBO_DATA", raising=False)
    monkeypatch.setenv("GSEBO_CACHE", str(cache))
    return cache


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
