"""Scores in chunks are those of the whole graph."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import GCN as PyGGCN

from gsebo.data.datasets.load import load
from gsebo.errors import InvalidInput
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.chunks import Chunk
from gsebo.nn import Backbone, make_backbone

from .cases import (
    LAYERS,
    NETWORKS,
    examples,
    features,
    graphs,
    mapped,
    memories,
    network,
    random,
    scores,
    stored_strengths,
    vanilla_strengths,
    whole,
)

# Too little for what two layers of Cora give.
TIGHT = 2_000_000
every_network = pytest.mark.parametrize("kind", NETWORKS)


def at_once(
    backbone: Backbone,
    arrays: GraphArrays,
    strengths: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    pattern = whole(arrays, backbone.self_loops).pattern
    with torch.no_grad():
        logits: Tensor = backbone(features(arrays, dtype), pattern, strengths)
    return logits


def drawn_strengths(
    backbone: Backbone, arrays: GraphArrays, layers: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """Of all entries."""
    loops = arrays.num_nodes if backbone.self_loops else 0
    return random(*layers, arrays.num_edges + loops, dtype=dtype)


def in_arrays(strengths: Tensor, arrays: GraphArrays, backbone: Backbone) -> object:
    edges, loops = strengths.numpy(), None
    if backbone.self_loops:
        loops = edges[..., arrays.num_edges :]
    return stored_strengths(edges[..., : arrays.num_edges], loops)


@every_network
@examples
@given(arrays=graphs(), memory=memories, layers=st.sampled_from([(), (LAYERS,)]))
def test_any_strengths_on_any_graph(
    kind: str, arrays: GraphArrays, memory: int, layers: tuple[int, ...]
) -> None:
    backbone = network(kind)
    strengths = drawn_strengths(backbone, arrays, layers, torch.float64)
    expected = at_once(backbone, arrays, strengths, torch.float64)
    found = scores(
        backbone, arrays, in_arrays(strengths, arrays, backbone), memory=memory
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@every_network
@examples
@given(arrays=graphs(), memory=memories)
def test_the_networks_own_propagation(
    kind: str, arrays: GraphArrays, memory: int
) -> None:
    backbone = network(kind)
    expected = at_once(backbone, arrays, None, torch.float64)
    strengths_of = vanilla_strengths(backbone)
    found = scores(backbone, arrays, strengths_of, memory=memory)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


class Cora(NamedTuple):
    arrays: GraphArrays
    on_disk: GraphArrays

    def network(self, kind: str) -> Backbone:
        return network(kind, torch.float32, self.arrays.num_features, 7, width=64)


@pytest.fixture(scope="module")
def cora(tmp_path_factory: pytest.TempPathFactory) -> Cora:
    arrays = GraphArrays.of(load("cora"))
    return Cora(arrays, mapped(arrays, tmp_path_factory.mktemp("cora")))


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders of the temporary files that were opened."""
    found: list[Path] = []
    original = tempfile.TemporaryFile

    def recorded(dir: Path) -> object:
        # numba tries in the same way whether it may keep compiled kernels.
        if "__pycache__" not in str(dir):
            found.append(dir)
        return original(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", recorded)
    return found


@every_network
@pytest.mark.parametrize("memory", [TIGHT, 10**9])
def test_cora_in_files(
    kind: str, memory: int, cora: Cora, scratch: Path, files: list[Path], tmp_path: Path
) -> None:
    dtype, backbone = torch.float32, cora.network(kind)
    strengths = drawn_strengths(backbone, cora.arrays, (LAYERS,), dtype)
    expected = at_once(backbone, cora.arrays, strengths, dtype)
    out = np.memmap(tmp_path / "out", np.float32, "w+", shape=(2708, 7))
    found = scores(
        backbone,
        cora.on_disk,
        in_arrays(strengths, cora.arrays, backbone),
        memory=memory,
        out=out,
        scratch=scratch,
    )
    assert found is out
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    in_file = memory == TIGHT and kind != "mlp"
    assert files == [scratch] * (LAYERS - 1) * in_file
    assert not list(scratch.iterdir())


def test_nothing_is_left_behind_after_an_error(
    cora: Cora, scratch: Path, files: list[Path]
) -> None:
    backbone = cora.network("gcn")
    vanilla, seen = vanilla_strengths(backbone), []

    def fails_in_the_second_layer(chunk: Chunk) -> Tensor:
        if chunk.begin == 0 and seen:
            raise RuntimeError("wrong")
        seen.append(chunk.end)
        return vanilla(chunk)

    with pytest.raises(RuntimeError, match="wrong"):
        scores(
            backbone,
            cora.arrays,
            fails_in_the_second_layer,
            memory=TIGHT,
            scratch=scratch,
        )
    assert len(seen) > 1 and seen[-1] == 2708
    assert files
    assert not list(scratch.iterdir())


@examples
@given(arrays=graphs(), memory=memories)
def test_functions_of_single_nodes(arrays: GraphArrays, memory: int) -> None:
    sizes = {"in_channels": arrays.num_features, "out_channels": 4, "num_layers": 1}
    linear = make_backbone("mlp", hidden_channels=1, dropout=0.5, **sizes).double()
    found = scores(linear, arrays, vanilla_strengths(linear), memory=memory)
    with torch.no_grad():
        weight, bias = linear.parameters()
        expected = features(arrays, torch.float64) @ weight + bias
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def sizes(arrays: GraphArrays) -> dict[str, int | float]:
    return {
        "in_channels": arrays.num_features,
        "hidden_channels": 8,
        "out_channels": 7,
        "num_layers": 2,
        "dropout": 0.5,
    }


@pytest.mark.parametrize("name", ["magna", "pyg:GCN"])
def test_networks_without_layers_of_ours_are_refused(name: str, cora: Cora) -> None:
    backbone = make_backbone(name, **sizes(cora.arrays))
    given = {"magna": "MAGNANet", "pyg:GCN": PyGGCN.__name__}[name]
    with pytest.raises(InvalidInput, match=f"^{given} given for scores in chunks; exp"):
        scores(backbone, cora.arrays, vanilla_strengths(backbone), memory=10**9)


def test_a_norm_over_all_nodes_is_refused(cora: Cora) -> None:
    backbone = make_backbone("gcn", **sizes(cora.arrays), options={"norm": "batch"})
    with pytest.raises(InvalidInput, match="norm='batch' given for scores in chunks"):
        scores(backbone, cora.arrays, vanilla_strengths(backbone), memory=10**9)


@pytest.mark.parametrize("kind", ["gcn", "mlp"])
def test_bad_numbers_are_refused(kind: str, cora: Cora) -> None:
    backbone = cora.network(kind)
    inputs = backbone, cora.arrays, vanilla_strengths(backbone)
    with pytest.raises(InvalidInput, match="memory=0 given; expected"):
        scores(*inputs, memory=0)
    with pytest.raises(InvalidInput, match=r"out has shape \(7, 2\), expected \(2708"):
        scores(*inputs, memory=10**9, out=np.empty((7, 2)))
