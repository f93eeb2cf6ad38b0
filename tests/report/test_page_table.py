"""Cells lead to their own trials, and the filter knows what a table is about."""

from pathlib import Path

from gsebo.experiments import Store
from gsebo.report import accuracy_sheet, gather
from gsebo.report.outline import outline
from gsebo.report.page_table import page_table
from gsebo.report.trial_list import trial_list

from .synthetic import NOISY, fill, recipe_of


def test_every_number_leads_to_the_trials_behind_it(tmp_path: Path) -> None:
    recipe, store = recipe_of(tmp_path, NOISY), Store(tmp_path / "results")
    fill(store, recipe)
    evidence = gather(recipe, store)
    trials = trial_list(evidence)
    cells = {one.anchor: one.cell for one in trials}
    seen = set()
    for table in accuracy_sheet(evidence).tables:
        shown = page_table(table, outline(recipe), trials)
        assert table.dataset in ("cora", "citeseer")
        assert shown.tags.datasets == (table.dataset,)
        for row in shown.rows:
            linked = [cells[cell.anchor] for cell in row.cells if cell.anchor]
            assert {cell.dataset for cell in linked} <= {table.dataset}
            seen |= set(linked)
    assert seen == set(cells.values())
