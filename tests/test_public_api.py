"""What ``import gsebo`` gives, and the examples in its docstrings."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import gsebo
from gsebo.methods import METHODS


def needs_triton(name: str) -> bool:
    return "triton" in name or name.startswith("gsebo.tape.cuda_")


MODULES = sorted(
    ["gsebo"]
    + [
        info.name
        for info in pkgutil.walk_packages(gsebo.__path__, "gsebo.")
        if not info.name.endswith("__main__")
        # The kernels of GPUs can only be imported where there is Triton.
        and (not needs_triton(info.name) or importlib.util.find_spec("triton"))
    ]
)


@pytest.mark.parametrize("name", gsebo.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(gsebo, name)
    assert value.__doc__ is not None
    assert len(value.__doc__.strip()) > 10


def test_all_names_each_thing_once() -> None:
    assert len(set(gsebo.__all__)) == len(gsebo.__all__)
    assert dir(gsebo) == sorted(gsebo.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = gsebo.no_such_name


def test_type_checkers_see_the_same_names() -> None:
    source = ast.parse(Path(gsebo.__file__).read_text("utf-8"))
    seen = {
        alias.asname
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert seen == set(gsebo.__all__)


ESTIMATORS = [info.estimator for info in METHODS.values()]


@pytest.mark.parametrize("name", [*(e.__name__ for e in ESTIMATORS), "Checkpoint"])
def test_public_methods_are_documented(name: str) -> None:
    for key, value in inspect.getmembers(getattr(gsebo, name), inspect.isfunction):
        if not key.startswith("_") and value.__module__.startswith("gsebo"):
            assert value.__doc__, key


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_is_documented(estimator: type) -> None:
    """In the class itself, or where it has the parameter from."""
    texts = [inspect.getdoc(each) or "" for each in estimator.__mro__]
    for parameter in inspect.signature(estimator).parameters:
        assert any(f"\n    {parameter}: " in text for text in texts), parameter


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_is_public(estimator: type) -> None:
    assert getattr(gsebo, estimator.__name__) is estimator


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [
        test
        for name in MODULES
        for test in finder.find(importlib.import_module(name))
        if test.examples
    ]
    assert len(found) >= 5


def run(*lines: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_importing_is_light() -> None:
    run("import sys, gsebo", "assert 'torch' not in sys.modules")


def test_importing_prints_and_changes_nothing() -> None:
    run(
        "import torch",
        "before = torch.get_rng_state(), torch.get_num_threads()",
        "import gsebo",
        "gsebo.GSEBO",
        "assert torch.equal(before[0], torch.get_rng_state())",
        "assert before[1] == torch.get_num_threads()",
        "assert torch.get_default_dtype() == torch.float32",
    )
