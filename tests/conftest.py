import os
import warnings
from pathlib import Path

import pytest
from hypothesis import settings

with warnings.catch_warnings():
    # Importing PyG warns of its own use of torch.jit.
    warnings.simplefilter("ignore")
    import torch_geometric  # noqa: F401

_GIVEN = os.environ.get("GSEBO_DATA")

# A busy machine may take long for one example.
settings.register_profile("gsebo", deadline=None)
settings.load_profile("gsebo")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the datasets as .npz and their raw files."""
    folder = Path(_GIVEN) if _GIVEN else Path(__file__).parents[2] / "shared/data"
    if not (folder / "cora.npz").is_file():
        pytest.skip("no folder of datasets: set GSEBO_DATA")
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or fills the caller's own folders of datasets."""
    cache = tmp_path / "cache"
    monkeypatch.delenv("GSEBO_DATA", raising=False)
    monkeypatch.setenv("GSEBO_CACHE", str(cache))
    return cache
