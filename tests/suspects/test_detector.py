"""Wrong edges come first, whatever is known of a graph and whatever form it has."""

import warnings
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

import gsebo
from gsebo import Graph, SuspiciousEdges, suspicious_edges
from gsebo.data.formats.folder import write_folder
from gsebo.errors import InputWarning, InvalidInput
from suspects.graphs import (
    CLASSES,
    NODES,
    area,
    few_labels,
    fitted,
    is_wrong,
    noisy_graph,
    without,
)

Found = tuple[Graph, SuspiciousEdges]
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def labelled() -> dict[int, Found]:
    """Graphs with all that there can be, and what is found of their edges."""
    graphs = {seed: noisy_graph(seed) for seed in SEEDS}
    return {seed: (graph, fitted(graph)) for seed, graph in graphs.items()}


@pytest.fixture(scope="module")
def unlabelled() -> Found:
    graph = without(noisy_graph(), "y")
    return graph, fitted(graph)


@pytest.fixture(scope="module")
def few() -> Found:
    """A graph with a label or two of each class."""
    graph = few_labels(noisy_graph())
    return graph, fitted(graph)


def same(one: SuspiciousEdges, other: SuspiciousEdges) -> bool:
    """Whether all that was found has equal bits."""
    return (
        torch.equal(one.decision_score_, other.decision_score_)
        and torch.equal(one.probability_.isnan(), other.probability_.isnan())
        and torch.equal(*(each.probability_.nan_to_num() for each in (one, other)))
        and torch.equal(one.label_, other.label_)
        and one.edges_.equals(other.edges_)
        and one.nodes_.equals(other.nodes_)
        and one.expected_.equals(other.expected_)
        and one.sentences_ == other.sentences_
        and (one.ends_ == other.ends_).all()
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_edges_come_first(labelled: dict[int, Found], seed: int) -> None:
    found = labelled[seed][1]
    wrong, rows = is_wrong(found, seed), found.edges_
    whole = area(found, seed)
    assert whole > 0.9
    for weak in ("cosine", "neighbors_cosine", "common_neighbors"):
        assert whole > roc_auc_score(wrong, -rows[weak]) + 0.02
    # The best single column may be as good, but nobody knows beforehand which that is.
    for strong in ("features_agreement", "agreement", "learned_weight"):
        assert whole > roc_auc_score(wrong, -rows[strong]) - 0.02
    # Some edges between classes were there from the beginning.
    classes = labelled[seed][0].y.numpy()[found.ends_[:, :20]]
    assert (classes[0] != classes[1]).mean() > 0.75
    assert 0.03 < found.contamination_ < 0.35


@pytest.mark.parametrize("seed", SEEDS)
def test_it_works_without_labels(seed: int) -> None:
    found = fitted(without(noisy_graph(seed), "y"))
    wrong = is_wrong(found, seed)
    assert area(found, seed) > 0.87
    for weak in ("cosine", "common_neighbors"):
        assert area(found, seed) > roc_auc_score(wrong, -found.edges_[weak])
    assert {"agreement", "source_class", "learned_weight"}.isdisjoint(found.edges_)
    assert list(found.nodes_) == ["id"]


def test_it_works_with_a_label_or_two_of_each_class(few: Found) -> None:
    found = few[1]
    assert area(found) > 0.87
    assert "agreement" in found.edges_ and "learned_weight" not in found.edges_
    assert found.nodes_["label"].notna().sum() == 2 * CLASSES - 1


def test_it_works_without_features() -> None:
    found = fitted(without(few_labels(noisy_graph()), "x"))
    assert area(found) > 0.6
    assert {"cosine", "features_agreement"}.isdisjoint(found.edges_)


def test_it_works_with_nothing_but_edges() -> None:
    graph = noisy_graph()
    found = fitted(Graph(edge_index=graph.edge_index))
    assert area(found) > 0.65
    assert "what the graph around both ends" in found.sentences_[0]


def test_scales_of_features_matter_little(unlabelled: Found) -> None:
    graph = unlabelled[0].clone()
    graph.x = graph.x * 10.0 ** torch.arange(-8, 8) + torch.arange(16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        found = fitted(graph)
    assert area(found) > 0.8
    graph.x[:, 3] = 7.0
    graph.x[5] = 0.0
    found = fitted(graph)
    assert np.isfinite(found.edges_["score"]).all()


def test_labels_of_one_class_are_none(unlabelled: Found) -> None:
    graph = noisy_graph()
    graph.y = torch.where(graph.y == 0, 0, -1)
    assert torch.equal(fitted(graph).decision_score_, unlabelled[1].decision_score_)


def test_held_back_labels_are_never_read(labelled: dict[int, Found]) -> None:
    graph, found = labelled[0]
    outside = ~(graph.train_mask | graph.val_mask)
    changed = graph.clone()
    changed.y = torch.where(outside, 10**6, graph.y)
    assert same(fitted(changed), found)


@pytest.mark.parametrize("garbage", [-1, 10**6, -(10**9)])
def test_few_labels_are_all_that_is_read(few: Found, garbage: int) -> None:
    graph, found = few
    hidden = graph.clone()
    hidden.y = torch.where(graph.train_mask, graph.y, garbage)
    assert same(fitted(hidden), found)


def test_without_masks_all_labels_are_read(few: Found) -> None:
    graph, found = few
    bare = without(graph, "train_mask", "val_mask", "test_mask")
    bare.y = torch.where(graph.train_mask, graph.y, -1)
    assert same(fitted(bare), found)


def test_with_a_test_mask_alone_no_label_is_read(unlabelled: Found) -> None:
    graph = without(noisy_graph(), "train_mask", "val_mask")
    found = fitted(graph)
    assert torch.equal(found.decision_score_, unlabelled[1].decision_score_)


def test_the_graph_stays_as_it_was(labelled: dict[int, Found]) -> None:
    graph, fresh = labelled[0][0], noisy_graph()
    assert graph.keys() == fresh.keys()
    for name, value in fresh:
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, graph[name])


def test_what_is_found_is_in_the_order_of_the_edges(
    labelled: dict[int, Found],
) -> None:
    graph, found = labelled[0]
    assert found.decision_score_.shape == (graph.num_edges,)
    rows = {
        frozenset(pair): (score, share)
        for pair, score, share in zip(
            found.ends_.T.tolist(),
            found.edges_["score"],
            found.edges_["probability"],
            strict=True,
        )
    }
    for pair, score, share, label in zip(
        graph.edge_index.T.tolist(),
        found.decision_score_.tolist(),
        found.probability_.tolist(),
        found.label_.tolist(),
        strict=True,
    ):
        assert rows[frozenset(pair)] == (score, share)
        assert label == (share >= 0.5)


def test_rows_fall_and_reasons_are_sentences(labelled: dict[int, Found]) -> None:
    rows = labelled[0][1].edges_
    assert rows["score"].is_monotonic_decreasing
    assert rows["probability"].is_monotonic_decreasing
    assert rows["probability"].between(0, 1).all()
    assert rows.index.tolist() == list(range(len(rows)))
    for text in rows["reason"]:
        assert text.endswith(".") and text[0].isupper()
    assert rows["reason"].iloc[-1] == "Nothing speaks against it."
    expected = labelled[0][1].expected_
    assert expected["first"].iloc[-1] == len(rows)
    assert (expected["low"] <= expected["precision"]).all()
    assert (expected["precision"] <= expected["high"]).all()


def test_a_seed_decides_all(unlabelled: Found) -> None:
    graph, found = unlabelled
    assert same(fitted(graph), found)
    assert not torch.equal(
        fitted(graph, random_state=1).decision_score_, found.decision_score_
    )
    drawn = fitted(graph, random_state=None)
    assert same(fitted(graph, random_state=drawn.seed_), drawn)


def test_a_direction_or_a_repetition_more_changes_nothing(unlabelled: Found) -> None:
    graph, found = unlabelled
    ends = graph.edge_index
    once = ends[:, ends[0] < ends[1]]
    for edges in (once, torch.cat([once, once.flip(0), once], dim=1)):
        changed = graph.clone()
        changed.edge_index = edges
        other = fitted(changed)
        assert set(map(frozenset, other.ends_.T.tolist())) == set(
            map(frozenset, found.ends_.T.tolist())
        )
        if edges is once:
            one_way = other
    assert other.edges_.equals(one_way.edges_)
    assert torch.equal(other.decision_score_, one_way.decision_score_.repeat(3))


def test_the_order_of_edges_hardly_matters(unlabelled: Found) -> None:
    graph, _ = unlabelled
    order = torch.randperm(graph.num_edges, generator=torch.manual_seed(0))
    changed = graph.clone()
    changed.edge_index = graph.edge_index[:, order]
    # Other edges are planted: the more rounds, the less that says.
    other = fitted(changed, rounds=3).decision_score_
    scores = fitted(graph, rounds=3).decision_score_[order]
    assert np.corrcoef(scores, other)[0, 1] > 0.97


def test_self_loops_are_least_suspicious(unlabelled: Found) -> None:
    graph, found = unlabelled
    looped = graph.clone()
    loops = torch.tensor([[0, 3], [0, 3]])
    looped.edge_index = torch.cat([loops, graph.edge_index], dim=1)
    other = fitted(looped)
    assert torch.equal(other.decision_score_[2:], found.decision_score_)
    assert (other.decision_score_[:2] == found.decision_score_.min()).all()
    assert not other.probability_[:2].any() and not other.label_[:2].any()
    assert other.edges_.equals(found.edges_)


def test_every_form_of_a_graph(unlabelled: Found, tmp_path: Path) -> None:
    graph, found = unlabelled
    assert same(fitted(graph.to_pyg()), found)
    folder = write_folder(graph, tmp_path / "graph")
    assert same(fitted(folder), fitted(folder.to_data()))
    ends = graph.edge_index.T.tolist()
    # Neither has features here.
    bare = fitted(Graph(edge_index=graph.edge_index, num_nodes=NODES))
    drawing = networkx.DiGraph()
    drawing.add_nodes_from(range(NODES))
    drawing.add_edges_from(ends)
    frame = pd.DataFrame(ends, columns=["source", "target"])
    for given in (drawing, frame):
        other = fitted(given)
        assert set(
            map(frozenset, other.edges_[["source", "target"]].to_numpy())
        ) == set(map(frozenset, bare.edges_[["source", "target"]].to_numpy()))


def test_rows_have_the_names_of_the_user() -> None:
    graph = few_labels(noisy_graph())
    graph.node_id = np.array([f"p{number} é" for number in range(NODES)])
    graph.meta = {"classes": ["cat", "dog", "eel"]}
    found = fitted(graph)
    rows = found.edges_
    for end, names in enumerate((rows["source"], rows["target"])):
        assert names.tolist() == graph.node_id[found.ends_[end]].tolist()
    assert set(rows["source_class"]) <= {"cat", "dog", "eel"}
    assert found.nodes_["id"].tolist() == graph.node_id.tolist()
    known = graph.train_mask.numpy()
    labels = np.array(["cat", "dog", "eel"])[graph.y.numpy()]
    assert found.nodes_["label"][known].tolist() == labels[known].tolist()
    assert found.nodes_["label"][~known].isna().all()
    assert found.nodes_["predicted"][known].tolist() == labels[known].tolist()
    assert found.nodes_["confidence"].between(1 / CLASSES, 1).all()


def test_numbers_of_classes_may_have_gaps(few: Found) -> None:
    other = few[0].clone()
    other.y = few[0].y * 1000 + 5
    found = fitted(other)
    assert torch.equal(few[1].decision_score_, found.decision_score_)
    assert set(found.nodes_["predicted"]) <= {"5", "1005", "2005"}


def test_several_splits_are_told_and_the_first_is_read() -> None:
    graph = few_labels(noisy_graph())
    both = without(graph, "train_mask", "val_mask", "test_mask")
    masks = torch.stack([graph.train_mask, ~graph.train_mask])
    both.train_masks, both.val_masks = masks, torch.zeros_like(masks)
    both.val_masks[:, 0] = ~masks[:, 0]
    both.test_masks = ~(both.train_masks | both.val_masks)
    with pytest.warns(InputWarning, match="several splits"):
        found = fitted(both)
    assert found.nodes_["label"].notna().sum() <= 2 * CLASSES


def test_a_clean_graph_lacks_what_is_likely_wrong(labelled: dict[int, Found]) -> None:
    graph, found = labelled[0]
    kept = found.clean_graph(graph)
    stays = found.label_ == 0
    assert torch.equal(kept.edge_index, graph.edge_index[:, stays])
    assert 0 < kept.num_edges < graph.num_edges
    assert torch.equal(kept.x, graph.x) and torch.equal(kept.y, graph.y)
    assert found.clean_graph(graph, threshold=2.0).num_edges == graph.num_edges
    assert type(found.clean_graph(graph.to_pyg())) is type(graph.to_pyg())
    other = graph.clone()
    other.edge_index = graph.edge_index[:, 1:]
    with pytest.raises(InvalidInput, match="expected the one of the fit"):
        found.clean_graph(other)
    with pytest.raises(InvalidInput, match="no graph was fitted yet"):
        SuspiciousEdges().clean_graph(graph)


def test_values_of_edges_go_with_them(labelled: dict[int, Found]) -> None:
    graph, found = labelled[SEEDS[0]]
    graph = graph.clone()
    graph.edge_weight = torch.arange(graph.num_edges) + 1.0
    graph.edge_attr = torch.arange(2.0 * graph.num_edges).reshape(-1, 2)
    kept, stays = found.clean_graph(graph, 0.2), found.probability_ < 0.2
    assert torch.equal(kept.edge_weight, graph.edge_weight[stays])
    assert torch.equal(kept.edge_attr, graph.edge_attr[stays])


def test_one_function_does_the_same(unlabelled: Found) -> None:
    graph, found = unlabelled
    table = suspicious_edges(graph, rounds=1, device="cpu", random_state=0)
    assert table.equals(found.edges_)
    assert table.attrs["summary"] == list(found.sentences_)
    assert table.attrs["expected"] == found.expected_.to_dict("records")
    assert torch.equal(
        SuspiciousEdges(rounds=1, device="cpu", random_state=0).fit_predict(graph),
        found.label_,
    )


def test_whoever_wants_is_told_how_far_it_is(unlabelled: Found) -> None:
    told: list[tuple[int, int]] = []
    detector = SuspiciousEdges(rounds=2, device="cpu", random_state=0)
    detector.fit(unlabelled[0], report=lambda _, now, end: told.append((now, end)))
    assert told == [(1, 2), (2, 2)]


def test_it_is_an_estimator() -> None:
    detector = SuspiciousEdges(rounds=2, random_state=3)
    assert detector.get_params()["rounds"] == 2
    assert clone(detector).get_params() == detector.get_params()
    assert repr(detector) == "SuspiciousEdges(random_state=3, rounds=2)"
    with pytest.raises(InvalidInput):
        detector.set_params(round=1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rounds": 0}, "rounds"),
        ({"rounds": 1.5}, "rounds"),
        ({"rounds": "3"}, "rounds"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": "a"}, "random_state"),
        ({"device": "toaster"}, "toaster"),
    ],
)
def test_bad_parameters_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        fitted(noisy_graph(), **settings)


def refused(graph: Any) -> str:
    """The one sentence with which a graph is refused."""
    with pytest.raises(InvalidInput) as told:
        fitted(graph)
    sentence = str(told.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


def test_a_graph_that_is_too_small_is_refused() -> None:
    path = torch.stack([torch.arange(19), torch.arange(1, 20)])
    assert "joins 19 pairs of nodes; expected at least 20" in refused(
        Graph(edge_index=torch.cat([path, path.flip(0)], dim=1))
    )
    longer = torch.stack([torch.arange(20), torch.arange(1, 21)])
    assert len(fitted(Graph(edge_index=longer)).edges_) == 20


def test_a_graph_in_which_all_are_joined_is_refused() -> None:
    every = torch.combinations(torch.arange(9)).T
    assert "leaves more pairs of nodes unjoined" in refused(Graph(edge_index=every))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("y", torch.zeros(NODES), "y as integer classes, got torch.float32"),
        ("y", torch.zeros(NODES, dtype=torch.bool), "y as integer classes"),
        ("y", torch.zeros(NODES, 2, dtype=torch.int64), r"y has shape \[160, 2\]"),
        ("y", torch.zeros(3, dtype=torch.int64), r"y has shape \[3\]"),
        ("y", list(range(NODES)), "y has shape"),
        ("train_mask", torch.zeros(NODES, dtype=torch.int64), "train_mask as bool"),
        ("val_mask", torch.zeros(2, dtype=torch.bool), r"val_mask has shape \[2\]"),
        ("test_mask", torch.zeros(NODES, 2, dtype=torch.bool), "test_mask has shape"),
        ("x", torch.full((NODES, 2), torch.nan), "x holds NaN"),
        ("x", torch.zeros(NODES), "x"),
        ("edge_index", torch.zeros(2, 0, dtype=torch.int64), "no edges"),
        ("edge_index", torch.full((2, 30), 10**6), "edge_index names node"),
        ("edge_weight", torch.ones(3), "edge_weight"),
        ("edge_weight", torch.tensor(torch.nan), "edge_weight"),
        ("edge_attr", torch.ones(3, 2), "edge_attr"),
    ],
)
def test_what_cannot_be_read_is_refused(name: str, value: Any, said: str) -> None:
    graph = noisy_graph()
    graph[name] = value
    with pytest.raises(InvalidInput, match=said):
        fitted(graph)


def test_what_is_no_graph_is_refused() -> None:
    assert "got int" in refused(3)


def test_the_package_has_the_names() -> None:
    assert gsebo.SuspiciousEdges is SuspiciousEdges
    assert gsebo.suspicious_edges is suspicious_edges


def test_from_a_networkx_graph_to_the_page(
    few: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = networkx.Graph()
    graph.add_edges_from(few[0].edge_index.T.tolist())
    found = fitted(graph)
    gsebo.write_page(found, "suspects.html", graph="friends")
    page = Path("suspects.html").read_text("utf-8")
    assert "Suspicious edges of friends" in page and found.sentences_[0] in page
    with pytest.raises(gsebo.InvalidInput, match="is there already"):
        gsebo.write_page(found, "suspects.html")
    gsebo.write_page(found, "suspects.html", graph="friends", overwrite=True)
    assert Path("suspects.html").read_text("utf-8") == page
    with pytest.raises(gsebo.InvalidInput, match="no graph was fitted"):
        gsebo.write_page(SuspiciousEdges(), "other.html")
