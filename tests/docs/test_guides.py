"""What the guides show is run: whole pages, from an empty folder."""

import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import get_type_hints

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

import gsebo
from docs.shortened import shortened
from gsebo.cli.main import app
from gsebo.experiments import (
    ExperimentRecipe,
    TrialBlock,
    Tuning,
    load_recipe,
    make_plan,
)
from gsebo.experiments.recipe import _RecipeFile
from gsebo.methods import METHODS

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(
    r'^```(?P<kind>\w+)(?: title="(?P<title>[\w.]+)")?\n(?P<text>.*?)^```',
    re.DOTALL | re.MULTILINE,
)
Page = list[tuple[str, str, str]]


def page(name: str) -> Page:
    """Kind, title and text of each block of code of a page, in order."""
    text = (DOCS / name).read_text("utf-8")
    return [(m["kind"], m["title"] or "", m["text"]) for m in BLOCK.finditer(text)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and the small graph ``planted`` in place of Cora."""
    monkeypatch.chdir(tmp_path)
    load = gsebo.load_data
    small = gsebo.generate_graph(120, num_features=8, seed=0)
    monkeypatch.setattr(
        gsebo,
        "load_data",
        lambda name, **more: small if name == "cora" else load(name, **more),
    )
    return tmp_path


def commands(text: str) -> list[list[str]]:
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def run(words: list[str]) -> Result:
    """A line of a shell, quicker than on the page."""
    assert words[0] == "gsebo"
    words = shortened(["planted" if word == "cora" else word for word in words[1:]])
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def execute(text: str) -> str:
    shown = io.StringIO()
    with redirect_stdout(shown):
        exec(compile(text, "<page>", "exec"), {"__name__": "page"})
    return shown.getvalue()


def test_the_first_five_minutes(here: Path) -> None:
    said = {}
    for kind, _, text in page("start.md"):
        if kind == "python":
            said[text] = execute(text)
        for words in commands(text) if kind == "sh" else ():
            if words[0] != "pip":
                said[" ".join(words[:2])] = run(words).output
    assert "edges weakened" in said["gsebo fit"] or "Chose" in said["gsebo fit"]
    assert "Mr. Hi and Officer" in said["gsebo suspects"]
    assert (here / "suspects.html").is_file()
    assert (here / "predictions.csv").read_text().startswith("node,predicted")
    assert any("of the test nodes are right" in text for text in said.values())


def test_edges_that_are_not_trusted(here: Path) -> None:
    clean = gsebo.generate_graph(80, num_features=6, homophily=0.9, seed=1)
    noisy = gsebo.add_inter_class_edges(clean, 30, seed=1)
    ids = [f"n{node}" for node in range(noisy.num_nodes)]
    pairs = [f"{ids[one]},{ids[other]}" for one, other in noisy.edge_index.T.tolist()]
    Path("edges.csv").write_text("\n".join(["source,target", *pairs]))
    rows = [
        f"{name},{label}" for name, label in zip(ids, noisy.y.tolist(), strict=True)
    ]
    Path("nodes.csv").write_text("\n".join(["id,label", *rows]))
    shown = []
    for kind, _, text in page("guides/untrusted_edges.md"):
        if kind == "python":
            shown.append(execute(text))
        for words in commands(text) if kind == "sh" else ():
            # A page of suspects is made above, and comparisons are tested elsewhere.
            if words[1] == "fit" or "--clean" in words:
                run(words)
    assert (here / "clean.npz").is_file()
    left_out = re.search(r"(\d+) edges are left out", "".join(shown))
    assert left_out and int(left_out[1]) > 10


def test_a_method_of_ones_own(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(here)
    monkeypatch.setitem(METHODS, "alike", METHODS["vanilla"])
    for kind, title, text in page("guides/own_method.md"):
        if kind == "python":
            (here / title).write_text(text)
    plain, alike = map(float, re.findall(r"0\.\d+", execute("import use")))
    capsys.readouterr()
    assert METHODS["alike"].description.startswith("edges weighed")
    assert 0.5 < plain <= 1 and 0.5 < alike <= 1
    graph = gsebo.generate_graph(80, num_features=6, homophily=0.7, seed=2)
    short = {"max_epochs": 5, "random_state": 0, "device": "cpu"}
    model = METHODS["alike"].make(**short, slope_lr=0.0).fit(graph)
    vanilla = gsebo.Vanilla(**short).fit(graph)
    # At slope 0 it is the plain network.
    assert model.strength_.allclose(vanilla.strength_)
    moved = METHODS["alike"].make(**short).fit(graph)
    assert not moved.strength_.allclose(vanilla.strength_)
    assert "test accuracy" in execute((here / "network.py").read_text())
    one = run(["gsebo", "compare", "planted", "--methods", "vanilla,alike"])
    assert "alike" in one.output


def recipes(folder: Path) -> dict[str, ExperimentRecipe]:
    """Every recipe of the page, read as its file would be."""
    blocks = [block for block in page("guides/recipes.md") if block[0] == "toml"]
    for _, title, text in blocks:
        (folder / title).write_text(text)
    return {title: load_recipe(str(folder / title)) for _, title, _ in blocks}


def test_recipes_are_read_and_planned(here: Path) -> None:
    found = recipes(here)
    names = ("my_recipe", "everything", "attacked", "search")
    assert list(found) == [f"{name}.toml" for name in names]
    assert len(make_plan(found["my_recipe.toml"], Tuning({})).trials) == 20
    assert found["search.toml"].is_search
    plan = make_plan(found["everything.toml"], Tuning({}))
    # Those of the block that is tuned wait for its search.
    assert len(plan.trials) == 2 * 2 * 2 * 3 * 3 + (1 + 2) * 2 * 4 * 2
    assert len(plan.first) == 3 * 2
    (last,) = [text for kind, _, text in page("guides/recipes.md") if kind == "python"]
    assert execute(last) == "20 trials\n"


@pytest.mark.parametrize(
    ("record", "heading"),
    [
        (_RecipeFile, "## Fields of a recipe"),
        (TrialBlock, "## Fields of a block of trials"),
    ],
)
def test_every_field_of_a_recipe_is_described_and_shown(
    record: type, heading: str
) -> None:
    text = (DOCS / "guides/recipes.md").read_text("utf-8")
    table = text.partition(heading)[2].partition("\n## ")[0]
    fields = set(get_type_hints(record))
    described = {
        name.strip("[]") for name in re.findall(r"^\| `([\w\[\]]+)`", table, re.M)
    }
    assert described == fields
    shown = "".join(block[2] for block in page("guides/recipes.md"))
    missing = {one for one in fields if not re.search(rf"^\W*{one}\b", shown, re.M)}
    assert missing == set()


GUIDES = sorted((DOCS / "guides").glob("*.md"))
EVERY_PAGE = sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_a_guide_begins_with_whom_it_is_for_and_a_command(path: Path) -> None:
    _, first, *rest = path.read_text("utf-8").split("\n\n")
    assert first.startswith("For ")
    assert rest[0].startswith("```")
    assert "gsebo" in rest[0]


def shown_commands(text: str) -> Iterator[list[str]]:
    """Lines of a shell that call ``gsebo``, with or without what they print."""
    for kind, _, block in (match.groups() for match in BLOCK.finditer(text)):
        if kind not in ("sh", "console"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ")
            if re.match(r"gsebo [a-z-]", line):
                yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("path", EVERY_PAGE, ids=lambda path: path.stem)
def test_commands_have_the_options_that_are_shown(path: Path) -> None:
    for words in shown_commands(path.read_text("utf-8")):
        command, known = get_command(app), {"--help"}
        for number, word in enumerate(words):
            known |= {one for each in command.params for one in each.opts}
            known |= {one for each in command.params for one in each.secondary_opts}
            if word.startswith("--"):
                option = word.partition("=")[0]
                assert option in known, f"gsebo {' '.join(words)}"
            elif isinstance(command, TyperGroup):
                rest = words[number:]
                _, command, _ = command.resolve_command(Context(command), rest)
                assert command is not None, f"gsebo {' '.join(words)}"
