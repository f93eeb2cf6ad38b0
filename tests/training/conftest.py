import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from torch_geometric.data import Data

from training.interrupted import graph, interrupt, make

Folders = Callable[[str], Path]


@pytest.fixture(scope="module")
def data() -> Data:
    return graph()


@pytest.fixture(scope="session")
def interrupted_fits(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """What a killed fit of each method left behind, each killed once."""
    folders: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in folders:
            folder = tmp_path_factory.mktemp(name)
            interrupt(make(name), graph(), folder)
            folders[name] = folder
        return folders[name]

    return of


@pytest.fixture
def interrupted(interrupted_fits: Folders, tmp_path: Path) -> Folders:
    """A copy of that, to be resumed or harmed."""
    return lambda name: shutil.copytree(interrupted_fits(name), tmp_path / name)
