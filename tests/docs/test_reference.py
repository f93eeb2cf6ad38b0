"""Every public name is on a page of the reference, with all that it takes described."""

import inspect
import pkgutil
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
import pytest
from scripts.site_reference import Reference

import gsebo

PAGES = sorted((Path(__file__).parents[2] / "docs/api").glob("*.md"))
LISTED = [
    name
    for page in PAGES
    for name in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE)
]
REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def public_names() -> dict[str, Any]:
    """All names of the package and of those inside it that list some."""
    packages = ["gsebo"]
    for info in pkgutil.iter_modules(gsebo.__path__, "gsebo."):
        if info.ispkg:
            packages.append(info.name)
    return {
        f"{package}.{name}": getattr(import_module(package), name)
        for package in packages
        for name in getattr(import_module(package), "__all__", ())
    }


PUBLIC = public_names()


def test_each_thing_is_listed_once() -> None:
    # Several names may be one thing; two numbers or texts that are equal are not.
    names = {
        name: name if isinstance(thing, str) else str(id(thing))
        for name, thing in PUBLIC.items()
    }
    assert set(LISTED) <= set(PUBLIC)
    times = Counter(names[name] for name in LISTED)
    assert {name for name in PUBLIC if times[names[name]] != 1} == set()


def described(thing: Any) -> str:
    """What is said of a function, or of a class and those that it is made from."""
    classes = thing.__mro__ if inspect.isclass(thing) else (thing,)
    return "\n".join(inspect.getdoc(one) or "" for one in classes)


CALLABLE = {
    name: thing
    for name, thing in PUBLIC.items()
    if inspect.isfunction(thing)
    or (inspect.isclass(thing) and not issubclass(thing, Warning))
}


@pytest.mark.parametrize("name", CALLABLE)
def test_its_parameters_are_described(name: str) -> None:
    thing = CALLABLE[name]
    assert (thing.__doc__ or "").strip()
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:
        # An exception that takes what every exception does.
        assert issubclass(thing, Exception)
        return
    said = described(thing)
    for one in parameters:
        found = re.search(rf"^    \**{one.name}: ", said, re.MULTILINE)
        # What a class hands on to one of another package is described there.
        assert found or one.kind in REST, f"{name} takes {one.name} and says nothing"


def test_a_public_name_without_a_docstring_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "things.py").write_text(
        '"""Things."""\n\n\ndef told():\n    """As :func:`untold`, not `:mod:`."""\n'
        "\n\ndef untold():\n    return 1\n\n\ndef own():\n    return 2\n"
    )
    (package / "__init__.py").write_text(
        '"""A package."""\n\nfrom some_package.things import told, untold\n\n'
        '__all__ = ["told", "untold"]\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    loaded = griffe.load(
        "some_package",
        search_paths=[tmp_path],
        extensions=griffe.load_extensions(Reference()),
    )
    assert [one.getMessage() for one in caplog.records] == [
        "reference: some_package.untold has no docstring"
    ]
    said = loaded["things.told"].docstring
    assert said and "[`untold`][some_package.untold]" in said.value
