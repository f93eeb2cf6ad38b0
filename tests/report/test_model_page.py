"""``gsebo report MODEL``: the page of a saved model's edges."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.conftest import Command, refused, small_graph
from tests.cli.conftest import command as command
from tests.cli.conftest import graph_file as graph_file
from tests.cli.conftest import model_folder as model_folder
from tests.report.browser import OpenPage

from gsebo import GSEBO, Amortised, Graph, load_model
from gsebo.data.formats.folder import write_folder
from gsebo.report.page.graph_page import GraphPage
from gsebo.report.page.model_page import model_page

SHORT = {"max_outer_steps": 2, "inner_steps": 2, "device": "cpu", "random_state": 0}


def row_of(page: GraphPage) -> dict[tuple[int, int], int]:
    return {(int(a), int(b)): row for row, (a, b) in enumerate(page.ends.T)}


def test_the_score_is_the_disagreement_of_both_ends(model_folder: Path) -> None:
    page, model = model_page(model_folder), load_model(model_folder)
    edges, (source, target) = page.edges, page.ends
    given = model.graph_.edge_index.sort(dim=0).values.unique(dim=1)
    assert sorted(row_of(page)) == [tuple(pair) for pair in given.t().tolist()]
    assert not page.directed
    p = model.probability_.double().numpy()
    expected = 1 - (p[source] * p[target]).sum(-1)
    np.testing.assert_allclose(edges["score"], expected, atol=1e-6)
    np.testing.assert_allclose(edges["agreement"], 1 - edges["score"])
    assert (np.diff(edges["score"]) <= 0).all()
    assert {"source", "target", "strength", "start", "ratio", "cosine"} <= set(edges)
    assert "probability" not in edges and page.expected is None
    np.testing.assert_allclose(edges["ratio"], edges["strength"] / edges["start"])
    assert page.nodes["predicted"].tolist() == [
        str(label) for label in model.transduction_.tolist()
    ]
    assert len(page.history) == len(model.history_)
    assert any("gsebo suspects" in sentence for sentence in page.sentences)


def test_features_are_compared_where_they_are_at_hand(
    model_folder: Path, graph_file: Path
) -> None:
    page, x = model_page(model_folder), small_graph().x
    source, target = torch.from_numpy(page.ends)
    expected = torch.cosine_similarity(x[source], x[target])
    np.testing.assert_allclose(page.edges["cosine"], expected, atol=1e-5)
    graph_file.unlink()
    page = model_page(model_folder)
    assert "cosine" not in page.edges
    assert any("not at hand" in sentence for sentence in page.sentences)


def test_learned_weights_of_both_directions_are_one(tmp_path: Path) -> None:
    graph = small_graph()
    fitted = Amortised(**{**SHORT, "inner_steps": 1}).fit(graph)
    fitted.save(tmp_path / "m")
    page = model_page(tmp_path / "m")
    scorer, (held, _) = fitted.model_.scorer, fitted.model_.held
    assert scorer is not None and scorer.weights is not None
    pairs = held.edge_index.t().tolist()
    weight = dict(zip(map(tuple, pairs), scorer.weights.tolist(), strict=True))
    for (a, b), row in row_of(page).items():
        mean = (weight[a, b] + weight[b, a]) / 2
        assert page.edges["learned_weight"][row] == pytest.approx(mean)


def test_a_directed_graph_has_a_row_for_each_direction(tmp_path: Path) -> None:
    data = small_graph()
    graph = Graph.from_pyg(data) if not isinstance(data, Graph) else data
    source, target = graph.edge_index
    graph.edge_index = graph.edge_index[:, (source < target) | (source < 3)]
    GSEBO(**SHORT, per_layer=True).fit(graph).save(tmp_path / "m")
    page = model_page(tmp_path / "m")
    assert page.directed
    assert len(page.edges) == graph.num_edges


def test_nodes_and_classes_by_the_names_of_the_user(
    command: Command, tmp_path: Path
) -> None:
    graph = small_graph()
    graph.node_id = np.array([f"n{place}é" for place in range(graph.num_nodes)])
    graph.meta = {"classes": [f"class {letter}" for letter in "abcdefg"]}
    graph.edge_weight = torch.full((graph.num_edges,), 2.0)
    fitted = GSEBO(**SHORT, backbone="gat", hidden_channels=8).fit(graph)
    fitted.save(tmp_path / "m")
    page = model_page(tmp_path / "m")
    source, target = page.ends
    assert page.edges["source"].tolist() == graph.ids[source].tolist()
    assert page.edges["target"].tolist() == graph.ids[target].tolist()
    assert page.nodes["id"].tolist() == graph.ids.tolist()
    expected = fitted.classes_[fitted.transduction_.numpy()].tolist()
    assert page.nodes["predicted"].tolist() == expected
    assert page.edges["reason"].str.contains("class [a-g]").all()
    # Messages of a GAT start at the weights of their edges.
    np.testing.assert_allclose(page.edges["start"], 2.0)
    done = command("report", tmp_path / "m", "-o", "page.html")
    assert done.exit_code == 0, done.stderr
    content = Path("page.html").read_text(encoding="utf-8")
    assert page.edges["source"][0] in content and "class a" in content


def test_the_command(command: Command, model_folder: Path, open_page: OpenPage) -> None:
    done = command("report", model_folder, "-o", "page.html")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("page.html: ")
    before = Path("page.html").read_bytes()
    sentence = refused(command("report", model_folder, "-o", "page.html"))
    assert "page.html" in sentence and "--force" in sentence
    again = command("report", model_folder, "-o", "page.html", "--force", "--quiet")
    assert (again.exit_code, again.stderr) == (0, "")
    assert Path("page.html").read_bytes() == before
    tab = open_page(Path("page.html").resolve())
    tab.page.wait_for_selector("html.ready")
    assert "nothing was calibrated" in tab.page.locator("#verdict").inner_text()
    assert tab.page.locator("#picture canvas").count() > 0
    assert tab.complaints == []


def test_what_has_no_page(command: Command, tmp_path: Path) -> None:
    assert "nowhere" in refused(command("report", "nowhere", "-o", "page.html"))
    folder = write_folder(small_graph(), tmp_path / "graph")
    GSEBO(**SHORT, batch_size=16).fit(folder).save(tmp_path / "m")
    sentence = refused(command("report", tmp_path / "m", "-o", "page.html"))
    assert "graph folder" in sentence and "gsebo inspect" in sentence
    assert not Path("page.html").exists()
