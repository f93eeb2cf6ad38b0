"""The script that fills the tables of the README and the docs."""

import sys
from pathlib import Path

import pytest
from scripts import tables

from gsebo.experiments import Store, load_recipe
from gsebo.report import accuracy_sheet, choices_sheet, gather_evidence
from gsebo.report.formats import as_markdown

from .synthetic import fill

TEXT = "Before\n<!-- {name}:begin -->\n{table}<!-- {name}:end -->\nafter\n"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "results")
    fill(store, load_recipe("overfitting"))
    return store


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    words = ["tables.py", *map(str, arguments)]
    monkeypatch.setattr(sys, "argv", words)
    tables.main()


def test_a_marker_is_filled_with_the_table_of_its_recipe(store: Store) -> None:
    found = tables.rewritten(TEXT.format(name="overfitting", table="old\n"), store)
    sheet = accuracy_sheet(gather_evidence(load_recipe("overfitting"), store))
    table = f"{as_markdown(sheet)}\n"
    assert found == TEXT.format(name="overfitting", table=table)
    assert tables.rewritten(found, store) == found


def test_choices_have_a_marker_of_their_own(store: Store) -> None:
    found = tables.rewritten(TEXT.format(name="table2-choices", table=""), store)
    sheet = choices_sheet(gather_evidence(load_recipe("table2"), store))
    first, *_ = as_markdown(sheet).splitlines()
    assert first in found and "trials are not stored" in found


def test_the_overview_has_six_rows_for_each_network(store: Store) -> None:
    text = tables.rewritten(TEXT.format(name="results", table=""), store)
    rows = [line.split(" | ")[:2] for line in text.splitlines() if "| " in line]
    methods = ["vanilla", "frozen", "GSEBO", "GSEBO", "train + val", "train + val"]
    networks = ["GCN", "GAT", "GraphSAGE", "JK-Net"]
    assert rows[1:] == [[f"| {n}", method] for n in networks for method in methods]
    assert "- (84.0)" in text


def test_text_without_markers_stays(store: Store) -> None:
    assert tables.rewritten("# Title\n\ntext\n", store) == "# Title\n\ntext\n"


def test_check_tells_what_is_stale_and_writes_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    old = TEXT.format(name="overfitting", table="old\n")
    page.write_text(old, "utf-8")
    where = ("--results", store.folder, page)
    with pytest.raises(SystemExit, match=r"page\.md are stale: run `make readme`"):
        run(monkeypatch, "--check", *where)
    assert page.read_text("utf-8") == old
    run(monkeypatch, *where)
    assert page.read_text("utf-8") != old
    run(monkeypatch, "--check", *where)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.format(name="tabel1", table=""), r"page\.md: .*did you mean 'table1'"),
        ("<!-- table1:begin -->\n", r"page\.md: a table begins and does not end"),
        (TEXT.format(name="factors-choices", table=""), "leaves none to a search"),
    ],
)
def test_a_wrong_marker_is_told(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    words: str,
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")
    with pytest.raises(SystemExit, match=words):
        run(monkeypatch, "--results", store.folder, page)
    assert page.read_text("utf-8") == text
