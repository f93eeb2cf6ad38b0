"""Whoever is refused is told where to read on."""

import ast
import pickle
import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
from mkdocs.config import load_config

import gsebo
from cli.conftest import SHORT, Command, refused
from docs.headings import DOCS, anchors
from gsebo.cli.main import COMMANDS
from gsebo.cli.read_on import (
    BY_COMMAND,
    BY_KIND,
    BY_OPTION,
    BY_PLACE,
    DOCUMENTATION,
    address,
    page_of,
)
from gsebo.errors import InvalidInput
from gsebo.names import source_of

ROOT = DOCS.parent
SOURCE = ROOT / "src" / "gsebo"
PAGES = {
    page
    for table in (BY_KIND, BY_OPTION, BY_PLACE, BY_COMMAND)
    for page in table.values()
}


def commands() -> dict[str, typer.core.TyperCommand]:
    """All commands by what is typed, groups and what is in them."""
    found = {}
    for name, info in COMMANDS.items():
        found[name] = command = info.load(name)
        for inner, one in getattr(command, "commands", {}).items():
            found[f"{name} {inner}"] = one
    return found


def test_every_command_has_a_page() -> None:
    assert set(BY_COMMAND) == {"", *commands()}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_page_is_there(page: str) -> None:
    path, mark, anchor = page.partition("#")
    assert (DOCS / path).is_file()
    if mark:
        assert anchor in anchors(DOCS / path)


def test_nothing_is_listed_that_cannot_be_refused() -> None:
    options = {one.name for command in commands().values() for one in command.params}
    assert set(BY_OPTION) <= options
    source = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    for kind in BY_KIND:
        named = rf'(own_name|lookup|unknown_name)\(\s*"{kind}"|about="{kind}"'
        assert re.search(named, source), kind
    for place in BY_PLACE:
        module, colon, name = place.partition(":")
        assert find_spec(module) is not None, place
        functions = ast.walk(source_of(module)) if colon else ()
        names = {one.name for one in functions if isinstance(one, ast.FunctionDef)}
        assert not colon or name in names, place


def test_pages_are_where_the_site_has_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["urls"]["Documentation"].rstrip("/") == DOCUMENTATION
    site = load_config(str(ROOT / "mkdocs.yml"))
    # For those who read it without a server, pages are files.
    assert not site.use_directory_urls or "material/offline" in site.plugins
    assert address("start.md") == f"{DOCUMENTATION}/start.html"


TABLES_PAGE = "guides/your_graph.md#two-tables"
EDGES = ("--edges", "edges.tsv")
REFUSALS = [
    ("", ["--foo"], BY_COMMAND[""]),
    ("", ["fitt"], BY_COMMAND[""]),
    ("suspects", [], "guides/suspects.md"),
    ("suspects", ["coraa"], BY_KIND["dataset"]),
    ("suspects", ["cora", "--page", "page.png"], "guides/suspects.md"),
    ("suspects", ["edges.csv"], TABLES_PAGE),
    ("fit", [], "start.md"),
    ("fit", ["cora", "--seed", "x"], "start.md"),
    ("fit", ["cora", "--seeds", "2", "--batch-size", "0"], "guides/batches.md"),
    ("fit", ["cora", "--split"], "guides/npz_format.md#splits"),
    ("fit", ["cora", "--split", "fiel"], "guides/npz_format.md#splits"),
    ("fit", ["cora", "--method", "vanila"], BY_KIND["method"]),
    ("fit", ["cora", "--metric", "acc"], BY_KIND["metric"]),
    ("fit", ["cora", "--preset", "papr"], BY_KIND["preset"]),
    ("fit", ["cora", "--noise", "removed:x"], "guides/noise.md"),
    ("fit", ["cora", "--set", "inner_stepz=3"], BY_KIND["parameter"]),
    ("fit", ["cora", "--set", "inner_steps=0"], BY_KIND["parameter"]),
    ("fit", ["cora", "--backbone", "gnc"], BY_OPTION["backbone"]),
    ("fit", ["cora", "--resume"], "guides/saved_models.md#checkpoints"),
    ("fit", ["bad.npz"], "guides/npz_format.md"),
    ("compare", ["cora", "--methods", ","], "how/methods.md"),
    ("compare", ["cora", "--methods", "vanilla,gseboo"], BY_KIND["method"]),
    ("predict", ["nowhere"], "guides/saved_models.md"),
    ("predict", [], "guides/new_nodes.md"),
    ("inspect", ["nowhere"], "guides/saved_models.md"),
    ("inspect", [], "guides/exports.md#a-table"),
    ("attack", ["cora", "--kind", "nettak"], BY_KIND["attack"]),
    ("attack", ["cora"], "guides/attacks.md#attacking-a-graph"),
    ("run", ["tabel1"], BY_KIND["recipe"]),
    ("run", ["table1", "--only", "x"], "guides/recipes.md"),
    ("show", ["nowhere.toml"], "guides/recipes.md"),
    ("report", ["nowhere"], "guides/saved_models.md"),
    ("report", ["--foo"], "guides/page.md"),
    ("list", ["metods"], "how/methods.md"),
    ("results", ["verfy"], BY_COMMAND["results"]),
    ("results list", ["--foo"], BY_COMMAND["results list"]),
    ("results verify", ["--results", "nowhere"], BY_COMMAND["results verify"]),
    ("results migrate", ["--results", "nowhere"], BY_COMMAND["results migrate"]),
    ("data", ["lits"], BY_COMMAND["data"]),
    ("data list", ["--foo"], BY_COMMAND["data list"]),
    ("data get", ["coraa"], BY_KIND["dataset"]),
    ("data verify", ["coraa"], BY_KIND["dataset"]),
    ("data convert", ["--out", "x"], BY_COMMAND["data convert"]),
    ("data convert", [*EDGES, "--out", "x"], BY_COMMAND["data convert"]),
    ("data convert", ["edges.tsv", "--out", "x"], TABLES_PAGE),
    ("data generate", ["--out", "x"], BY_COMMAND["data generate"]),
]


@pytest.mark.parametrize(
    ("name", "rest", "page"), REFUSALS, ids=[" ".join([n, *r]) for n, r, _ in REFUSALS]
)
def test_a_refusal_ends_with_its_page(
    command: Command, name: str, rest: list[str], page: str
) -> None:
    Path("bad.npz").write_bytes(b"no archive")
    Path("edges.tsv").write_text("source\ttarget\n1\n")
    done = command(*name.split(), *rest)
    refused(done)
    assert done.stderr.splitlines()[-1] == f"Read on: {address(page)}"


def test_every_command_is_among_them() -> None:
    assert {name for name, _, _ in REFUSALS} == set(BY_COMMAND)


@pytest.mark.parametrize(
    ("rest", "page"),
    [
        (["--out", "model"], "guides/saved_models.md#checkpoints"),
        (["--device", "nowhere"], "start.md"),
        (["--strengths", "x.npy"], "start.md"),
        (["--split", "unseen:0:x"], "guides/npz_format.md#splits"),
        (["--set", "backbone_options.heads=2"], BY_OPTION["backbone"]),
        (["--weight", "x"], "start.md"),
    ],
)
def test_what_is_seen_when_the_graph_is_there(
    command: Command, graph_file: Path, rest: list[str], page: str
) -> None:
    Path("model").mkdir()
    Path("model/model.json").write_text("{}")
    done = command("fit", graph_file, *SHORT, *rest, "--json")
    refused(done)
    assert done.stderr.splitlines()[-1] == f"Read on: {address(page)}"


def test_the_innermost_place_that_is_listed_counts() -> None:
    with pytest.raises(InvalidInput) as caught:
        gsebo.load_data("nowhere.csv")
    assert page_of(caught.value, "predict") == TABLES_PAGE
    assert page_of(InvalidInput("from elsewhere"), "predict") == "guides/new_nodes.md"
    assert page_of(InvalidInput("a graph"), "data lits") == BY_COMMAND["data"]
    assert page_of(InvalidInput("a file", about="split"), "fit") == BY_KIND["split"]


def test_in_python_the_sentence_is_alone() -> None:
    with pytest.raises(InvalidInput) as caught:
        gsebo.load_data("coraa")
    assert str(caught.value).startswith("unknown dataset 'coraa', did you mean 'cora'?")
    assert "http" not in str(caught.value) and "\n" not in str(caught.value)
    # As it comes from another process.
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.about) == (str(caught.value), "dataset")
