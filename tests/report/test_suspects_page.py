"""The page that ``gsebo suspects`` writes, in a real browser."""

from pathlib import Path

import numpy as np
from tests.cli.conftest import Command
from tests.cli.conftest import command as command
from tests.report.browser import OpenPage
from tests.suspects.graphs import NODES, noisy_graph, without

from gsebo import load_data, suspicious_edges
from gsebo.data import save_npz


def test_the_first_row_is_at_the_top(
    open_page: OpenPage, command: Command, tmp_path: Path
) -> None:
    graph = without(noisy_graph(), "y")
    graph.node_id = np.array([f"<b>{node}</b> & co" for node in range(NODES)])
    save_npz(graph, tmp_path / "g.npz")
    words = ("--rounds", 1, "--device", "cpu", "--missing", "--page", "p.html")
    done = command("suspects", tmp_path / "g.npz", *words)
    assert done.exit_code == 0, done.stderr
    rows = suspicious_edges(load_data(tmp_path / "g.npz"), rounds=1, device="cpu")
    page = Path("p.html").resolve()
    tab = open_page(page)
    tab.page.wait_for_selector("html.ready")
    first = tab.page.locator(".row").first.inner_text()
    assert rows["source"][0] in first and rows["target"][0] in first
    assert rows.attrs["summary"][0] in tab.page.locator("body").inner_text()
    tab.page.locator(".row").first.click()
    tab.page.wait_for_selector("#picture canvas")
    assert tab.fits()
    assert tab.complaints == []
    assert tab.requests == [page.as_uri()]
