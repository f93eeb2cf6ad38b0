"""What the README shows is what the repository does."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from scripts import paper_preset, pictures, tables

import portable_fits
from gsebo.methods.registry import METHODS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
OVERVIEW = (ROOT / "docs" / "overview.md").read_text("utf-8")


@pytest.mark.parametrize("script", [tables, paper_preset, pictures])
def test_what_is_generated_is_what_is_stored(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [script.__name__, "--check"])
    script.main()


def test_the_first_example_prints_what_the_readme_says() -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    shown = re.search(r"```text\n(.*?)```", README, re.DOTALL)
    assert code and shown
    # In a process of its own, where nothing was computed yet.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code[1]],
        capture_output=True,
        text=True,
        check=True,
    )
    if portable_fits.expected() is not None:
        assert done.stdout == shown[1]
        return
    number = r"[0-9]+\.[0-9]+"
    assert re.sub(number, "#", done.stdout) == re.sub(number, "#", shown[1])
    # Other versions of the libraries round differently: some test nodes may turn.
    ours = [float(text) for text in re.findall(number, done.stdout)]
    told = [float(text) for text in re.findall(number, shown[1])]
    assert ours == pytest.approx(told, abs=0.03)


@pytest.mark.parametrize("page", [README, OVERVIEW], ids=["README", "overview"])
def test_methods_are_counted(page: str) -> None:
    said = re.search(r"(\d+) methods and (\d+) controls", page)
    words = [info.description for info in METHODS.values()]
    controls = sum(one.startswith("control") for one in words)
    assert said and said.groups() == (str(len(words) - controls), str(controls))


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_it_is_a_screen_and_a_half() -> None:
    assert len(README.splitlines()) <= 95


def test_pictures_that_are_stale_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "flow-light.svg"
    arguments = ["--assets", str(tmp_path), "--results", str(ROOT / "results")]
    monkeypatch.setattr(sys, "argv", ["pictures", *arguments])
    pictures.main()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    stored = {path.name: path.read_bytes() for path in pictures.ASSETS.glob("*.svg")}
    assert before == stored
    # Each for both kinds of pages, and with no colour that a page would have to name.
    assert {name.rpartition("-")[2] for name in before} == {"light.svg", "dark.svg"}
    assert not any(
        b"var(" in text or b"currentColor" in text for text in stored.values()
    )
    made.write_text("other", "utf-8")
    monkeypatch.setattr(sys, "argv", ["pictures", "--check", *arguments])
    with pytest.raises(SystemExit, match=r"pictures flow-light\.svg are stale"):
        pictures.main()
