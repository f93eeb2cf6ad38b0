from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data


@pytest.fixture
def raw(shared: Path) -> Callable[[str], dict[str, bytes]]:
    def read(name: str) -> dict[str, bytes]:
        folder = shared / "raw" / name
        if not folder.is_dir():
            pytest.skip(f"no raw files of {name}")
        return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}

    return read


@pytest.fixture
def dataset_file(shared: Path) -> Callable[[str], Path]:
    def find(name: str) -> Path:
        path = shared / f"{name}.npz"
        if not path.is_file():
            pytest.skip(f"no {name}.npz in the folder of datasets")
        return path

    return find


@pytest.fixture
def graph() -> Data:
    """Six nodes, two classes, a path with one self-loop and one double edge."""
    ends = torch.tensor([[0, 1, 2, 3, 4, 4, 0], [1, 2, 3, 4, 5, 4, 1]])
    train, val, test = torch.eye(3, dtype=torch.bool).repeat_interleave(2, dim=1)
    return Data(
        x=torch.randn(6, 3, generator=torch.Generator().manual_seed(0)),
        edge_index=ends,
        y=torch.tensor([0, 1, 0, 1, 0, 1]),
        train_mask=train,
        val_mask=val,
        test_mask=test,
    )
