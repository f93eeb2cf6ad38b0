import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from gsebo.data import DATASETS, apply_split, content_digest, load, load_npz
from gsebo.data.splits import is_drawn

Raw = Callable[[str], dict[str, bytes]]
DatasetFile = Callable[[str], Path]
CONVERTED = [name for name, info in DATASETS.items() if info.convert is not None]
FIELDS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")


def _assert_equal(first: Data, second: Data) -> None:
    for key in FIELDS:
        assert torch.equal(first[key], second[key]), key


@pytest.mark.parametrize("name", CONVERTED)
def test_raw_files_become_the_known_graph(
    name: str, raw: Raw, dataset_file: DatasetFile
) -> None:
    convert = DATASETS[name].convert
    assert convert is not None
    made = convert(raw(name))
    _assert_equal(made, load_npz(dataset_file(name)))
    assert content_digest(made) == DATASETS[name].digest


@pytest.mark.parametrize("name", DATASETS)
def test_registry_says_what_the_file_holds(
    name: str, dataset_file: DatasetFile
) -> None:
    info, data = DATASETS[name], load_npz(dataset_file(name))
    assert info.name == name
    assert info.num_nodes == data.num_nodes
    assert info.num_edges == data.num_edges // 2
    assert info.num_features == data.num_features
    assert info.num_classes == int(data.y.max()) + 1
    assert info.digest == content_digest(data)


@pytest.mark.parametrize("name", DATASETS)
def test_the_default_split_can_be_made(name: str, dataset_file: DatasetFile) -> None:
    data, split = load_npz(dataset_file(name)), DATASETS[name].default_split
    first, again, other = (apply_split(data, split, seed) for seed in (3, 3, 4))
    for key in FIELDS[-3:]:
        assert bool(first[key].any())
        assert torch.equal(first[key], again[key])
        assert torch.equal(first[key], other[key]) != is_drawn(split)


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
        assert bool(info.raw_files) == (info.convert is not None)
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
