"""Names with codes that a terminal, a markup or a spreadsheet would execute."""

import csv
import io
import json
import os
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cli.conftest import Command, json_of, refused
from experiments.small import write_recipe
from gsebo.cli.output import print_json, print_table, print_text
from gsebo.cli.run import LiveTable
from gsebo.errors import escaped_json
from gsebo.experiments import Slot, Store, load_recipe, make_survey

# Erases a screen, in both ways; writes backwards; is red; is no UTF-8.
EVIL = "e\x1b[2J\x9b2J\u202e[red]x[/red]\udcff"
TOML = json.dumps(EVIL.removesuffix("\udcff"))


@pytest.mark.parametrize(
    "words",
    [
        ("fit", f"{EVIL}.npz"),
        ("fit", EVIL),
        ("fit", f"{'x' * 5000}.npz"),
        ("fit", "cora", "--method", EVIL),
        ("fit", "cora", "--set", f"{EVIL}=3"),
        ("fit", "cora", f"--{EVIL}"),
        ("predict", EVIL),
        ("inspect", EVIL),
        ("inspect", "x" * 5000),
        ("show", f"{EVIL}.toml"),
        ("show", f"{'x' * 5000}.toml"),
        ("show", "table1", "--results", EVIL),
        ("run", EVIL),
        ("run", "table1", "--only", f"method={EVIL}"),
        ("results", "verify", "--results", EVIL),
        ("results", "migrate", "--results", "x" * 5000),
        ("data", "info", EVIL),
    ],
)
def test_messages_are_harmless(command: Command, words: tuple[str, ...]) -> None:
    sentence = refused(command(*words))
    assert sentence.isprintable()
    assert len(sentence) < 2100


def test_files_with_such_names_can_be_used(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / EVIL
    recipe = write_recipe(folder / f"{EVIL}.toml", seeds=2, more=f"label = {TOML}")
    os.mkfifo(folder / "pipe.toml")
    assert "is a pipe" in refused(command("run", folder / "pipe.toml"))
    assert "[red]x[/red]" in refused(command("show", recipe, "--results", folder))
    done = command("run", recipe, "--seeds", "1", "--workers", "1", "--results", folder)
    assert done.exit_code == 0, done.stderr
    for words in (("show", recipe), ("results", "list"), ("results", "verify")):
        done = command(*words, "--results", folder)
        assert done.exit_code == 0, done.stderr
        shown = done.stdout + done.stderr
        assert all(line.isprintable() for line in shown.splitlines())
        assert "[red]x[/red]" in shown
    listed = json_of(command("results", "verify", "--results", folder, "--json"))
    assert [one["problems"] for one in listed["files"]] == [[]]


def test_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    content = {"name": EVIL + "\x7f\U000e0001ä", "more": ["line\nfeed"]}
    print_json(content)
    text = capsys.readouterr().out
    assert all(line.isprintable() for line in text.splitlines())
    assert json.loads(text) == content
    assert "ä" in text
    assert escaped_json("[1, 2]") == "[1, 2]"


def test_tables_and_texts(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(EVIL, ("name",), [(EVIL,)])
    print_text(f"{EVIL}\n{EVIL}")
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert sum("[red]x[/red]" in line for line in lines) == 4


def test_a_live_table(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "some.toml", seeds=1)
    recipe.write_text(recipe.read_text().replace('"Some short fits"', TOML))
    stage = make_survey(load_recipe(str(recipe)), {}).stage
    screen = Console(file=StringIO(), width=100, markup=False)
    with closing(LiveTable(screen)) as table:
        table.stage_begins(stage, 1, [Slot("one")], None)
        screen.print(table.table())
    assert isinstance(screen.file, StringIO)
    shown = screen.file.getvalue()
    assert "[red]x[/red]" in shown
    assert "\x1b[2J" not in shown and "\x9b" not in shown


def test_a_spreadsheet_executes_nothing(command: Command, tmp_path: Path) -> None:
    label = "=HYPERLINK(1)"
    recipe = write_recipe(tmp_path / "some.toml", more=f'label = "{label}"')
    folder = tmp_path / "results"
    done = command("run", recipe, "--seeds", "1", "--workers", "1", "--results", folder)
    assert done.exit_code == 0, done.stderr
    done = command("show", recipe, "--format", "csv", "--results", folder)
    rows = list(csv.reader(io.StringIO(done.stdout)))
    cells = [cell for row in rows for cell in row]
    assert f"'{label}" in cells and label not in cells
    assert not any(cell.startswith(("=", "+", "@")) for cell in cells)
    assert Store(tmp_path / "none").results() == {}
