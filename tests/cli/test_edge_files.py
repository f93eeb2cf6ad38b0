"""Edges as files for other tools."""

import copy
from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pytest

import gsebo
from cli.conftest import Command, refused, small_graph
from gsebo import InvalidInput
from gsebo.cli.edge_files import EdgeFile
from gsebo.data.formats.folder import write_folder
from gsebo.methods.edges import EdgeTable, NodeNames

HOSTILE = ["a,b", 'say "x"', "<b>&amp;", "=1+1", "ü 漢", " padded ", "it's", "x" * 300]


def test_tables_say_the_same(command: Command, model_folder: Path) -> None:
    model = gsebo.load_model(model_folder)
    for name in ("e.csv", "e.parquet", "e.graphml"):
        assert command("inspect", model_folder, "--export", name).exit_code == 0
    by_comma, by_column = pd.read_csv("e.csv"), pd.read_parquet("e.parquet")
    assert list(by_comma) == list(by_column)
    np.testing.assert_allclose(by_comma, by_column, rtol=1e-8)
    frame = model.edges_frame()
    columns = ["source", "target", "start", "strength", "ratio", "agreement", "weight"]
    pd.testing.assert_frame_equal(by_column, frame[columns])
    graph = networkx.read_graphml("e.graphml", node_type=int)
    assert graph.is_directed() and graph.number_of_nodes() == 40
    for row in frame.itertuples():
        edge = graph.edges[row.source, row.target]
        assert edge["strength"] == pytest.approx(row.strength)
        assert edge["agreement"] == pytest.approx(row.agreement)
        assert "weight" not in edge
    labels = {node: found["class"] for node, found in graph.nodes(data=True)}
    assert labels == dict(enumerate(small_graph().y.tolist()))


def named(ids: list[str]) -> tuple[EdgeTable, NodeNames]:
    """Edges of a fit whose first nodes have these names."""
    model = gsebo.Vanilla(max_epochs=1, random_state=0).fit(small_graph())
    shown = copy.copy(model.graph_)
    more = [f"node {number}" for number in range(len(ids), 40)]
    shown.node_id = np.array([*ids, *more])
    shown.meta = {"classes": ["<one>", "two & three"]}
    model.graph_ = shown
    return EdgeTable.of(model), NodeNames.of(model)


def test_names_come_back_as_they_were(tmp_path: Path) -> None:
    table, names = named(HOSTILE)
    for suffix in (".csv", ".parquet", ".graphml"):
        EdgeFile.at(tmp_path / f"e{suffix}").write(lambda: [table], names.ids, names)
    wanted = names.ids[table.source].tolist()
    by_comma = pd.read_csv(tmp_path / "e.csv", keep_default_na=False)
    assert by_comma["source"].tolist() == wanted
    assert pd.read_parquet(tmp_path / "e.parquet")["source"].tolist() == wanted
    graph = networkx.read_graphml(tmp_path / "e.graphml")
    assert set(graph.nodes) == set(names.ids.tolist())
    assert {found["class"] for _, found in graph.nodes(data=True)} == {
        "<one>",
        "two & three",
    }


@pytest.mark.parametrize("name", ["bell \x07", "half \ud800", "no \uffff"])
def test_what_no_xml_can_hold(tmp_path: Path, name: str) -> None:
    table, names = named([name])
    path = tmp_path / "e.graphml"
    with pytest.raises(InvalidInput, match="characters that XML cannot hold"):
        EdgeFile.at(path).write(lambda: [table], names.ids, names)
    assert not path.exists()


def test_edges_on_disk(command: Command, tmp_path: Path) -> None:
    folder = write_folder(small_graph(), tmp_path / "graph")
    options = {"max_outer_steps": 2, "device": "cpu", "random_state": 0}
    model = gsebo.GSEBO(batch_size=9, **options).fit(folder)
    model.save(tmp_path / "m", dataset=str(folder.path))
    said = refused(command("inspect", tmp_path / "m", "--export", "e.graphml"))
    assert "expected .csv or .parquet" in said
    for name in ("e.csv", "e.parquet"):
        assert command("inspect", tmp_path / "m", "--export", name).exit_code == 0
    frame = pd.read_parquet("e.parquet")
    assert len(frame) == small_graph().num_edges
    assert frame["agreement"].isna().all()
    np.testing.assert_allclose(frame, pd.read_csv("e.csv"), rtol=1e-8)
