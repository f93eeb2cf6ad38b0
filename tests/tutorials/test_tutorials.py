"""Tutorials run from the first cell to the last, and show what they have printed."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from scripts import site_notebooks, tutorials

import gsebo
from gsebo.data import save_npz

# The same code on a graph that is learned in no time.
QUICK = {"seeds": [0], "outer_steps": 1, "epochs": 5}
SMALL: dict[str, dict[str, object]] = {
    "attacked_graph": {**QUICK, "budgets": ["5%"], "steps": 2, "block_size": 2000},
    "learned_strengths": QUICK,
    "new_nodes": {**QUICK, "false_edges": [0, 50]},
    "wrong_edges": {"seeds": [0], "rounds": 1, "false_edges": 50},
    "your_graph": {**QUICK, "people": 120, "wrong_links": 60},
}
STORED = sorted(tutorials.TUTORIALS.glob("*.ipynb"))
MACHINE = re.compile(r"/(?:home|root|tmp|usr|work|Users)/|[A-Z]:\\")
NUMBER = re.compile(r"\d+\.\d+")


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, 4)


def printed(notebook: NotebookNode) -> str:
    """All text that the cells have put out; tables and drawings are none."""
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    return "\n".join(one.text for one in outputs if one.output_type == "stream")


each = pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)


def test_every_tutorial_is_tried() -> None:
    assert len(STORED) == 5
    assert {path.stem for path in STORED} == SMALL.keys()


def with_values(source: str, values: dict[str, object]) -> str:
    """A cell of parameters with other values; each has to be assigned in it."""
    assigned = {
        node.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    assert values.keys() <= assigned
    return "\n".join(
        [source, *(f"{name} = {value!r}" for name, value in values.items())]
    )


@pytest.mark.compiles
def test_all_of_them_run(tmp_path: Path) -> None:
    graph = gsebo.generate_graph(
        200, num_classes=3, average_degree=6, homophily=0.95, feature_signal=2, seed=0
    )
    save_npz(graph, tmp_path / "small.npz")
    # To start a kernel takes longer than what is run in it, so that one has to do.
    together = nbformat.v4.new_notebook()
    for path in STORED:
        together.cells.append(nbformat.v4.new_code_cell("%reset -f"))
        for cell in read(path).cells:
            if "parameters" in cell.metadata.get("tags", ()):
                values = SMALL[path.stem]
                if "graph_name" in cell.source:
                    values = {**values, "graph_name": str(tmp_path / "small.npz")}
                cell.source = with_values(cell.source, values)
            cell.pop("outputs", None)
            cell.id = f"{path.stem}-{len(together.cells)}"
            if cell.cell_type == "code":
                cell.outputs = []
                together.cells.append(cell)
    tutorials.run(together)
    drawn = [cell for cell in together.cells if "picture" in cell.metadata]
    assert len(drawn) >= 2 * len(STORED) - 1
    assert all("image/svg+xml" in str(cell.outputs) for cell in drawn)


@each
def test_what_is_stored_was_put_out_by_what_is_shown(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert notebook.metadata["sources"] == tutorials.digest(notebook), (
        f"{path.name} was changed: run `make tutorials`"
    )
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {
        "display_data",
        "execute_result",
        "stream",
    }
    assert all(output.get("name", "stdout") == "stdout" for output in outputs)
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)
    assert path.stat().st_size < 300_000


@each
def test_nothing_of_the_machine_is_stored(path: Path) -> None:
    assert MACHINE.search(path.read_text("utf-8")) is None


@each
def test_what_was_seen_is_what_was_put_out(path: Path) -> None:
    notebook = read(path)
    last = notebook.cells[-1]
    assert last.cell_type == "markdown"
    assert last.source.startswith("## What was seen\n")
    told = NUMBER.findall(last.source)
    found = NUMBER.findall(printed(notebook))
    assert "±" in last.source and len(told) >= 4
    assert [one for one in told if one not in found] == []


@each
def test_the_page_shows_all_of_it(path: Path) -> None:
    notebook = read(path)
    text, pictures = site_notebooks.page(notebook, path.stem)
    for cell in notebook.cells:
        source = "\n".join(x for x in cell.source.split("\n") if not x.startswith("%"))
        assert source.replace(".ipynb)", ".md)") in text
    assert all(line in text for line in printed(notebook).split("\n"))
    assert text.count("<table>") == str(notebook.cells).count("<table border")
    drawn = [cell for cell in notebook.cells if "picture" in cell.metadata]
    # One of each for light and for dark pages.
    assert drawn and len(pictures) == 2 * len(drawn)
    assert all(f"]({name}#only-" in text for name in pictures)
    assert not any("#ffffff" in drawing for drawing in pictures.values())
