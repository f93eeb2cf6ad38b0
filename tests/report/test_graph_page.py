"""The page of a graph as text: what is in it, and that nothing in it can do harm."""

import base64
import dataclasses
import gzip
import hashlib
import json
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pandas
import pytest
from tests.report.graph_content import made_up

from gsebo.errors import InvalidInput
from gsebo.report.page.graph_page import GraphPage, graph_page
from gsebo.report.page.render import page_file

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "it's \"quoted\" & 'so'",
    "\u202eright to left\u2066",
    "line\u2028separator\u2029 and\nbreak",
    "=HYPERLINK(1)",
    "x" * 5000,
    "null\0 bell\a",
    "lone \ud800 surrogate",
    "",
)


def hostile() -> GraphPage:
    """A graph whose every text tries to break out of the page."""
    ids = np.array(HOSTILE, object)
    count = len(ids)
    ends = np.stack([np.arange(count), (np.arange(count) + 1) % count])
    # The texts of pandas cannot hold them all.
    texts = pandas.Series(ids, dtype=object)
    edges = pandas.DataFrame(
        {
            "source": texts[ends[0]].reset_index(drop=True),
            "target": texts[ends[1]].reset_index(drop=True),
            "score": np.linspace(1, 0, count),
            "<b>odd</b>": np.arange(count) * 1e9,
            "reason": texts,
        }
    )
    nodes = pandas.DataFrame({"id": texts, "label": texts, "predicted": texts})
    return GraphPage(
        title=HOSTILE[0],
        sentences=HOSTILE[:3],
        edges=edges,
        ends=ends,
        nodes=nodes,
        facts={HOSTILE[0]: HOSTILE[1]},
    )


def block(html: str, name: str) -> str:
    found = re.search(f'<script id="{name}" [^>]*>(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return found[1]


def about(html: str) -> dict[str, Any]:
    content = json.loads(block(html, "about"))
    assert isinstance(content, dict)
    return content


def unpacked(html: str, place: dict[str, Any]) -> Any:
    """An array or a list of texts, as the page reads it."""
    content = gzip.decompress(base64.b64decode(block(html, "numbers")))
    part = content[place["at"] : place["at"] + place["bytes"]]
    if place["type"] == "Text":
        return json.loads(part)
    kind = {"Float32": "<f4", "Float64": "<f8", "Int32": "<i4"}[place["type"]]
    array = np.frombuffer(part, kind)
    assert len(array) == place["length"]
    return array


def column(html: str, name: str, table: int = 0) -> dict[str, Any]:
    columns = about(html)["tables"][table]["columns"]
    found: dict[str, Any] = next(one for one in columns if one["name"] == name)
    return found


def test_what_goes_in_is_in_the_page() -> None:
    content = made_up()
    html = graph_page(content)
    tables = about(html)["tables"]
    assert [table["key"] for table in tables] == ["edges", "missing"]
    for end, place in zip(content.ends, tables[0]["ends"], strict=True):
        assert unpacked(html, place).tolist() == end.tolist()
    for name in ("score", "probability", "cosine", "common_neighbors"):
        found = unpacked(html, column(html, name)["values"])
        np.testing.assert_allclose(found, content.edges[name], rtol=1e-5)
    reason = column(html, "reason")
    texts, codes = (unpacked(html, reason[key]) for key in ("texts", "codes"))
    assert [texts[code] for code in codes] == content.edges["reason"].tolist()
    nodes = about(html)["nodes"]
    assert unpacked(html, nodes["id"]) == content.nodes["id"].tolist()
    assert nodes["classes"] == sorted(set(content.nodes["predicted"]))
    degree = np.bincount(content.ends.ravel(), minlength=len(content.nodes))
    assert unpacked(html, nodes["degree"]).tolist() == degree.tolist()
    assert content.title in html
    assert all(sentence in html for sentence in content.sentences)


def test_the_same_content_gives_the_same_bytes() -> None:
    assert graph_page(made_up(seed=3)) == graph_page(made_up(seed=3))
    assert graph_page(made_up(seed=3)) != graph_page(made_up(seed=4))


def test_it_asks_for_nothing_and_runs_nothing_else() -> None:
    html = graph_page(made_up())
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    policy = policy.replace("&#39;", "'")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    runs = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert len(runs) == 2
    for text in (*runs, block(html, "library")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    outside = html.replace(block(html, "library"), "")
    # The names of two kinds of XML are the only addresses.
    assert set(re.findall(r"https?://[\w./]+", outside)) == {
        "http://www.w3.org/2000/svg",
        "http://graphml.graphdrawing.org/xmlns",
    }
    assert not re.search(r"<[a-z]+ [^>]*\bon[a-z]+=", outside)


def test_texts_do_not_break_out() -> None:
    html = graph_page(hostile())
    assert html.count("</script>") == graph_page(made_up()).count("</script>")
    assert "<img" not in html
    assert "<script>alert" not in html
    html.encode("utf-8")
    assert unpacked(html, about(html)["nodes"]["id"]) == list(HOSTILE)
    assert column(html, "<b>odd</b>")["values"]["type"] == "Float64"


def test_large_pages_are_small() -> None:
    empty = len(graph_page(made_up(1, 2)))
    assert empty < 700_000
    content = made_up(20_000, 4_000)
    size = len(graph_page(content)) - empty
    assert size < 40 * len(content.edges)


def test_without_anything_that_is_optional() -> None:
    nodes = pandas.DataFrame({"id": [7, 8, 9]})
    edges = pandas.DataFrame({"source": [7], "target": [9]})
    html = graph_page(GraphPage("t", (), edges, np.array([[0], [2]]), nodes))
    assert about(html)["nodes"]["classes"] == []
    assert about(html)["history"] == {}
    none = pandas.DataFrame({"source": [], "target": []})
    graph_page(GraphPage("t", (), none, np.empty((2, 0), np.int64), nodes))


def test_classes_that_only_edges_have() -> None:
    content = made_up()
    nodes = content.nodes[["id"]]
    html = graph_page(dataclasses.replace(content, nodes=nodes))
    found = about(html)["nodes"]
    names = np.array([*found["classes"], None], object)
    predicted = names[unpacked(html, found["predicted"])]
    assert predicted[content.ends[0]].tolist() == content.edges["source_class"].tolist()


def test_numbers_that_are_not_known() -> None:
    content = made_up()
    edges = content.edges.copy()
    edges["score"] = edges["score"].where(edges.index % 2 == 0)
    edges["whole"] = pandas.array([None, 1] * 200, dtype="Int64")
    edges["reason"] = edges["reason"].where(edges.index % 3 > 0)
    html = graph_page(dataclasses.replace(content, edges=edges))
    assert np.isnan(unpacked(html, column(html, "score")["values"])).sum() == 200
    assert unpacked(html, column(html, "whole")["values"])[1] == 1
    assert (unpacked(html, column(html, "reason")["codes"]) < 0).sum() == 134


@pytest.mark.parametrize("ends", [np.zeros((2, 3), int), np.full((2, 400), 120)])
def test_ends_that_fit_nothing(ends: Any) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        graph_page(made_up(ends=ends))


def test_the_library_is_shipped_with_its_licence() -> None:
    licence = page_file("vendor/cytoscape.LICENSE")
    assert "Cytoscape Consortium" in licence
    assert "Permission is hereby granted" in licence
    # Those who get the page get the licence too.
    assert "Permission is hereby granted" in graph_page(made_up())


def test_the_module_alone_is_light() -> None:
    script = (
        "import sys, gsebo.report.page.graph_page\n"
        "heavy = {'pandas', 'torch', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
