"""What the README shows is what the repository does."""

import contextlib
import io
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from scripts import paper_preset, tables

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("script", [tables, paper_preset])
def test_what_is_generated_is_what_is_stored(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [script.__name__, "--check"])
    script.main()


def test_the_first_example_prints_what_the_readme_says() -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    shown = re.search(r"```text\n(.*?)```", README, re.DOTALL)
    assert code and shown
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code[1], {})
    number = r"[0-9]+\.[0-9]+"
    assert re.sub(number, "#", printed.getvalue()) == re.sub(number, "#", shown[1])
    # Another processor rounds differently: a percent of the test nodes may turn.
    ours = [float(text) for text in re.findall(number, printed.getvalue())]
    told = [float(text) for text in re.findall(number, shown[1])]
    assert ours == pytest.approx(told, abs=0.015)


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
