"""What is said of the package in several places is the same everywhere."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

import gsebo
from gsebo.cli.read_on import DOCUMENTATION, address

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
# What conda-forge calls otherwise.
IN_CONDA = {
    "matplotlib": "matplotlib-base",
    "torch": "pytorch",
    "torch_geometric": "pytorch_geometric",
}


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    """The recipe for conda, as conda-build reads it."""
    text = (ROOT / "packaging" / "conda" / "meta.yaml").read_text("utf-8")
    template = Environment(undefined=StrictUndefined).from_string(text)
    content = yaml.safe_load(template.render(PYTHON="python"))
    assert isinstance(content, dict)
    return content


@pytest.fixture(scope="module")
def citation() -> dict[str, Any]:
    content = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert isinstance(content, dict)
    return content


def parted(requirement: str) -> tuple[str, str]:
    """Name and versions of what is needed."""
    found = re.fullmatch(r"([\w.-]+(?:\[\w+\])?) ?(>=[\d.]+)?", requirement)
    assert found is not None, requirement
    return found[1], found[2] or ""


def authors(content: Any) -> Iterator[dict[str, str]]:
    """Everybody who is named anywhere in a citation."""
    yield from content["authors"]
    for other in content.get("references", ()):
        yield from authors(other)


def test_the_version_has_one_place(
    recipe: dict[str, Any], citation: dict[str, Any]
) -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    place = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{gsebo.__version__}"' in place.read_text("utf-8")
    assert str(recipe["package"]["version"]) == gsebo.__version__
    assert str(citation["version"]) == gsebo.__version__


def test_conda_needs_what_pip_needs(recipe: dict[str, Any]) -> None:
    project = PROJECT["project"]
    wanted = {("python", project["requires-python"])}
    for requirement in project["dependencies"]:
        name, versions = parted(requirement)
        wanted.add((IN_CONDA.get(name, name), versions))
    run = [parted(one) for one in recipe["requirements"]["run"]]
    assert len(run) == len(set(run))
    assert set(run) == wanted
    (backend,) = map(parted, PROJECT["build-system"]["requires"])
    assert backend in [parted(one) for one in recipe["requirements"]["host"]]
    ((name, place),) = project["scripts"].items()
    assert recipe["build"]["entry_points"] == [f"{name} = {place}"]
    assert recipe["about"]["license"] == project["license"]
    assert recipe["about"]["license_file"] == project["license-files"]
    assert (ROOT / "packaging" / "conda" / recipe["source"]["path"]).resolve() == ROOT


def test_the_citation_says_all_that_is_required(citation: dict[str, Any]) -> None:
    assert {"cff-version", "message", "title", "authors", "type"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == PROJECT["project"]["license"]
    assert [one["name"] for one in citation["authors"]] == [
        one["name"] for one in PROJECT["project"]["authors"]
    ]
    assert set(citation["keywords"]) <= set(PROJECT["project"]["keywords"])
    for someone in authors(citation):
        assert someone.keys() in ({"name"}, {"family-names", "given-names"})
    (paper,) = citation["references"]
    assert {"type", "title", "authors", "year", "url"} <= paper.keys()
    assert paper["url"] == PROJECT["project"]["urls"]["Paper"]


def test_addresses_are_those_of_the_documentation(
    recipe: dict[str, Any], citation: dict[str, Any]
) -> None:
    urls = PROJECT["project"]["urls"]
    assert urls["Documentation"] == citation["url"] == recipe["about"]["home"]
    assert urls["Documentation"] == DOCUMENTATION
    assert (ROOT / "docs" / "changelog.md").is_file()
    assert urls["Changelog"] == address("changelog.md")


def test_every_extra_is_told_of() -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    told = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.M))
    extras = PROJECT["project"]["optional-dependencies"]
    assert told.keys() == extras.keys()
    # A row names no package that its extra does not bring.
    for name, requirements in extras.items():
        brought = " ".join(requirements)
        packages = re.findall(r"`([\w-]+)`", told[name])
        assert [one for one in packages if one not in brought] == []
