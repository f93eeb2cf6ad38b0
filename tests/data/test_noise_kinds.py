"""Noise by its name."""

from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gsebo import Graph
from gsebo.attacks import PRBCD
from gsebo.data import (
    NOISE_KINDS,
    NoiseSpec,
    add_inter_class_edges,
    apply_noise,
    edges_appended,
    generate_graph,
    level_in_words,
    noise_in_words,
    noise_parts,
    noise_spec,
)
from gsebo.errors import InvalidInput

KEYS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
CHANGED = {
    "inter_class": "edge_index",
    "random": "edge_index",
    "false_typed": "edge_index",
    "removed": "edge_index",
    "features": "x",
    "labels": "y",
    "prbcd": "edge_index",
}


@pytest.fixture(scope="module")
def data() -> Data:
    return generate_graph(300, seed=1)


def same(first: Data, second: Data) -> set[str]:
    return {key for key in KEYS if torch.equal(first[key], second[key])}


@pytest.mark.parametrize("kind", NOISE_KINDS)
def test_one_thing_changes_by_the_seed_and_not_in_place(
    data: Data, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Few steps of an attack draw as many do.
    whole = PRBCD.attack

    def attack(self: PRBCD, graph: Graph, **options: Any) -> Any:
        self.epochs, self.resampling_epochs, self.samples = 5, 3, 1
        return whole(self, graph, **options)

    monkeypatch.setattr(PRBCD, "attack", attack)
    before = data.clone()
    first, again, other = (apply_noise(data, f"{kind}:40", seed) for seed in (3, 3, 4))
    assert same(data, before) == same(first, again) == set(KEYS)
    assert same(first, data) == same(first, other) == set(KEYS) - {CHANGED[kind]}


@pytest.mark.parametrize("kind", NOISE_KINDS)
def test_nothing_of_anything_is_a_copy(data: Data, kind: str) -> None:
    copied = apply_noise(data, f"{kind}:0")
    assert copied is not data and same(copied, data) == set(KEYS)


def test_a_number_is_one_of_edges_between_classes(data: Data) -> None:
    expected = add_inter_class_edges(data, 30, seed=5).edge_index
    for noise in (30, "30", "inter_class:30"):
        assert torch.equal(apply_noise(data, noise, seed=5).edge_index, expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0, 0),
        (17, 17),
        (" 17 ", 17),
        ("inter_class:17", 17),
        ("Inter-Class:017", 17),
        ("random:5", "random:5"),
        ("REMOVED:100", "removed:100"),
        ("labels:00", 0),
    ],
)
def test_noise_has_one_form(given: NoiseSpec, expected: NoiseSpec) -> None:
    assert noise_spec(given) == expected
    assert noise_spec(expected) == expected
    kind, level = noise_parts(expected)
    assert noise_spec(f"{kind}:{level}") == expected


@pytest.mark.parametrize(
    "given",
    [
        *(-1, True, None, 0.5, "", "x", "-1", "1.5", "9" * 99),
        *("removed", "removed:", "removed:-1", "removed:101", "removd:5", ":5"),
        *("labels:1.5", "random:5:5", "random:²", 10**5000, ["x" * 6000]),
    ],
    ids=lambda given: repr(given)[:20] if given != 10**5000 else "huge",
)
def test_what_is_no_noise(data: Data, given: object) -> None:
    with pytest.raises(InvalidInput, match="--noise") as error:
        noise_spec(given, "--noise")
    assert str(error.value).endswith(".") and len(str(error.value)) < 300
    with pytest.raises(InvalidInput, match="noise"):
        apply_noise(data, given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("noise", "words", "level", "appended"),
    [
        (0, "0 false edges", "0", 0),
        (500, "500 false edges", "500", 500),
        ("random:500", "500 random edges", "500", 500),
        ("removed:30", "30 % of edges removed", "30 %", 0),
        ("features:30", "30 % of features shuffled", "30 %", 0),
        ("labels:30", "30 % of labels replaced", "30 %", 0),
    ],
)
def test_words(noise: NoiseSpec, words: str, level: str, appended: int) -> None:
    assert noise_in_words(noise) == words
    assert level_in_words(noise) == level
    assert edges_appended(noise) == appended


@pytest.mark.parametrize("kind", ["inter_class", "random"])
def test_appended_edges_are_the_last_ones(data: Data, kind: str) -> None:
    noisy = apply_noise(data, f"{kind}:25")
    added = 2 * edges_appended(f"{kind}:25")
    assert torch.equal(noisy.edge_index[:, :-added], data.edge_index)
