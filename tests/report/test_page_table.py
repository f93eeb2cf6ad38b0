"""Cells lead to their own trials, and the filter knows what a table is about."""

from pathlib import Path

import pytest

from gsebo.data import level_in_words, noise_parts
from gsebo.experiments import Store
from gsebo.report import accuracy_sheet, gather_evidence
from gsebo.report.evidence import outline
from gsebo.report.page.tables import page_table, trial_list

from .synthetic import NOISY, OTHER_NOISE, fill, recipe_of


@pytest.mark.parametrize("text", [NOISY, OTHER_NOISE])
def test_every_number_leads_to_the_trials_behind_it(tmp_path: Path, text: str) -> None:
    recipe, store = recipe_of(tmp_path, text), Store(tmp_path / "results")
    fill(store, recipe)
    evidence = gather_evidence(recipe, store)
    trials = trial_list(evidence)
    cells = {one.anchor: one.cell for one in trials}
    seen = set()
    for table in accuracy_sheet(evidence).tables:
        shown = page_table(table, outline(recipe), trials)
        assert table.dataset in ("cora", "citeseer")
        assert shown.tags.datasets == (table.dataset,)
        for row in shown.rows:
            shown_cells = [cell for group in row.groups for cell in group]
            linked = [cells[cell.anchor] for cell in shown_cells if cell.anchor]
            if table.noise:
                titles = [level_in_words(cell.noise) for cell in linked]
                kinds = {noise_parts(cell.noise)[0] for cell in linked if cell.noise}
                assert titles == [group.title for group in table.groups]
                assert kinds == {table.noise}
            assert {cell.dataset for cell in linked} <= {table.dataset}
            seen |= set(linked)
    assert seen == set(cells.values())
