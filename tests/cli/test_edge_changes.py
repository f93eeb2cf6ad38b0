from typing import Any

import pytest
import torch

from gsebo.cli.inspect import ModelEdges, ratios
from gsebo.model.fitted import EdgePiece

EDGES = torch.tensor([[0, 1, 2, 3, 0, 2], [1, 0, 3, 2, 0, 0]])
START = torch.tensor([0.5, 0.5, 0.4, 0.2, 0.0, 0.5])
STRENGTH = torch.tensor([0.5, 0.25, 0.8, 0.0, 0.0, 0.5])
LABELS = torch.tensor([0, 0, 1, 2])


def describe_layer(
    edges: torch.Tensor,
    start: torch.Tensor,
    strength: torch.Tensor,
    labels: torch.Tensor,
    *,
    top: int,
) -> dict[str, Any]:
    pieces = [EdgePiece(edges, start, strength)]
    changes = ModelEdges(lambda: pieces, labels.numpy(), True, 4).summary(top)
    (layer,) = changes["layers"]
    assert isinstance(layer, dict)
    return layer


def test_groups() -> None:
    layer = describe_layer(EDGES, START, STRENGTH, LABELS, top=2)
    assert layer["weakened"]["count"] == 2
    assert layer["weakened"]["mean_ratio"] == pytest.approx(0.25)
    assert layer["strengthened"]["count"] == 1
    assert layer["strengthened"]["mean_ratio"] == pytest.approx(2.0)
    assert layer["unchanged"]["count"] == 3
    assert layer["within_class"]["mean_ratio"] == pytest.approx(0.75)
    assert layer["between_classes"]["count"] == 3
    assert layer["between_classes"]["mean_ratio"] == pytest.approx(1.0)


def test_most_changed_edges() -> None:
    layer = describe_layer(EDGES, START, STRENGTH, LABELS, top=2)
    first, second = layer["most_changed"]
    assert (first["source"], first["target"]) == (2, 3)
    assert first["ratio"] == pytest.approx(2.0)
    assert (first["source_class"], first["target_class"]) == (1, 2)
    assert (second["source"], second["target"]) == (1, 0)


def test_unknown_classes_are_left_out() -> None:
    layer = describe_layer(EDGES, START, STRENGTH, torch.full((4,), -1), top=1)
    assert layer["within_class"]["count"] == layer["between_classes"]["count"] == 0
    assert layer["within_class"]["mean_ratio"] is None
    assert layer["most_changed"][0]["source_class"] is None


def test_a_start_of_zero_has_no_ratio() -> None:
    assert ratios(START, STRENGTH).isnan().tolist() == [False] * 4 + [True, False]
    layer = describe_layer(EDGES, START, STRENGTH + 0.1, LABELS, top=9)
    (loop,) = [
        edge for edge in layer["most_changed"] if edge["source"] == edge["target"]
    ]
    assert loop["ratio"] is None
    assert layer["strengthened"]["count"] == 4


def test_histogram_counts_every_ratio() -> None:
    layer = describe_layer(EDGES, START, STRENGTH, LABELS, top=0)
    counts = {bar["low"]: bar["count"] for bar in layer["histogram"]}
    assert counts[0.0] == 1
    assert counts[0.5] == 1
    assert counts[0.999] == 2
    assert counts[2.0] == 1
    assert layer["histogram"][-1]["high"] is None


def test_nothing_changed() -> None:
    layer = describe_layer(EDGES, START, START, LABELS, top=5)
    assert layer["unchanged"]["count"] == 6
    assert layer["most_changed"] == []
