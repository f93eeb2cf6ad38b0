import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from gsebo.data import DATASETS, content_digest, load, load_npz

Raw = Callable[[str], dict[str, bytes]]
FIELDS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")


def _assert_equal(first: Data, second: Data) -> None:
    for key in FIELDS:
        assert torch.equal(first[key], second[key]), key


@pytest.mark.parametrize("name", DATASETS)
def test_raw_files_become_the_known_graph(name: str, raw: Raw, shared: Path) -> None:
    made = DATASETS[name].convert(raw(name))
    _assert_equal(made, load_npz(shared / f"{name}.npz"))
    assert content_digest(made) == DATASETS[name].digest


@pytest.mark.parametrize("name", DATASETS)
def test_registry_says_what_the_file_holds(name: str, shared: Path) -> None:
    info, data = DATASETS[name], load_npz(shared / f"{name}.npz")
    assert info.name == name
    assert info.num_nodes == data.num_nodes
    assert info.num_edges == data.num_edges // 2
    assert info.num_features == data.num_features
    assert info.num_classes == int(data.y.max()) + 1
    assert info.digest == content_digest(data)


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_what_ships_in_the_package_is_the_known_graph(name: str, shared: Path) -> None:
    _assert_equal(load(name, normalize=False), load_npz(shared / f"{name}.npz"))


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_what_ships_in_the_package_has_the_registered_digest(name: str) -> None:
    assert content_digest(load(name, normalize=False)) == DATASETS[name].digest


def test_manifest_is_that_of_the_shared_folder(shared: Path) -> None:
    entries = json.loads((shared / "MANIFEST.json").read_text())
    known = {(e.get("pinned_url"), e.get("bytes"), e.get("sha256")) for e in entries}
    for info in DATASETS.values():
        for raw in info.raw_files:
            assert (raw.pinned_url, raw.bytes, raw.sha256) in known
            assert raw.pinned_url.endswith(f"/{raw.file}")


def test_digest_changes_with_every_part(graph: Data) -> None:
    digests = {content_digest(graph)}
    for key in FIELDS:
        other = graph.clone()
        other[key] = other[key].roll(1, 0)
        digests.add(content_digest(other))
    assert len(digests) == 1 + len(FIELDS)
