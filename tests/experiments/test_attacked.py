"""Attacked graphs: computed once, kept, and never believed without a look."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.attacks.graphs import small_graph
from tests.experiments.small import trial

from gsebo import Graph, InvalidInput, Vanilla
from gsebo.attacks import PRBCD
from gsebo.attacks.perturbation import pair_keys, undirected_pairs
from gsebo.data import apply_noise
from gsebo.experiments.attacked import attacked_by_prbcd, checksum_of_content
from gsebo.experiments.fit import execute


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Seeds of the attacks that are made, each of a few steps."""
    made: list[int] = []
    whole = PRBCD.attack

    def attack(self: PRBCD, graph: Graph, **options: Any) -> Any:
        made.append(options["random_state"])
        self.epochs, self.resampling_epochs, self.samples = 5, 3, 1
        return whole(self, graph, **options)

    monkeypatch.setattr(PRBCD, "attack", attack)
    return made


def files(cache: Path) -> list[Path]:
    return sorted((cache / "attacked").glob("*.json"))


def test_what_was_computed_is_used_again(own_cache: Path, attacks: list[int]) -> None:
    graph = small_graph()
    first = attacked_by_prbcd(graph, 20, 3)
    again = attacked_by_prbcd(graph.clone(), 20, 3)
    assert torch.equal(first.edge_index, again.edge_index)
    assert attacks == [3] and len(files(own_cache)) == 1
    assert not torch.equal(first.edge_index, graph.edge_index)
    assert first.x is graph.x and first.y is graph.y


def test_everything_that_it_depends_on_has_another_file(
    own_cache: Path, attacks: list[int]
) -> None:
    graph = small_graph()
    labels, heavy = graph.clone(), graph.clone()
    labels.y = labels.y.roll(1)
    heavy.edge_weight = torch.full((graph.num_edges,), 2.0)
    cases = [(graph, 20, 0), (graph, 20, 1), (graph, 30, 0), (labels, 20, 0)]
    for case in [*cases, (heavy, 20, 0)]:
        attacked_by_prbcd(*case)
    assert len(files(own_cache)) == len(attacks) == 5
    assert len({checksum_of_content(one) for one in (graph, labels, heavy)}) == 3


def test_the_budget_is_kept_and_the_test_nodes_suffer(attacks: list[int]) -> None:
    graph = small_graph()
    attacked = attacked_by_prbcd(graph, 30, 0)
    before, after = (
        set(pair_keys(undirected_pairs(one), graph.num_nodes).tolist())
        for one in (graph, attacked)
    )
    assert 0 < len(before ^ after) <= 0.3 * len(before) + 1
    model = Vanilla(hidden_channels=64, device="cpu", random_state=0).fit(graph)
    assert model.score(attacked) < model.score(graph)


def rewritten(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("damage", ["cut", "byte", "pairs", "empty", "other"])
def test_a_damaged_file_is_computed_again(
    damage: str, own_cache: Path, attacks: list[int]
) -> None:
    graph = small_graph()
    whole = attacked_by_prbcd(graph, 20, 0)
    (path,) = files(own_cache)
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "byte":
        path.write_bytes(content.replace(b'"added"', b'"addad"'))
    elif damage == "pairs":
        rewritten(path, added=[[0, 10**6]])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        attacked_by_prbcd(graph, 30, 0)
        (other,) = set(files(own_cache)) - {path}
        # Sound, but an answer to another question.
        path.write_bytes(other.read_bytes())
    made = len(attacks)
    again = attacked_by_prbcd(graph, 20, 0)
    assert torch.equal(whole.edge_index, again.edge_index)
    assert len(attacks) == made + 1
    assert path.read_bytes() == content


def test_a_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attacks: list[int]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GSEBO_CACHE", str(tmp_path / "file"))
    with pytest.raises(InvalidInput, match="GSEBO_CACHE names another"):
        attacked_by_prbcd(small_graph(), 20, 0)
    assert not attacks


def test_graphs_that_cannot_be_attacked(attacks: list[int]) -> None:
    graph = small_graph().clone()
    del graph["test_mask"]
    with pytest.raises(InvalidInput, match="test_mask"):
        apply_noise(graph, "prbcd:10")


def test_many_methods_share_an_attack(own_cache: Path, attacks: list[int]) -> None:
    short = {"max_epochs": 5, "hidden_channels": 4}
    trials = [
        trial(seed, method, dataset="planted", noise="prbcd:10", parameters=short)
        for method in ("vanilla", "train_val")
        for seed in (0, 1)
    ]
    results = [result for one in trials for result in execute([one])]
    assert all(result.ok for result in results)
    assert attacks == [0, 1] and len(files(own_cache)) == 2
    assert "10 % of edges changed by PRBCD" in str(trials[0])
