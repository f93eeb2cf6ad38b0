"""Names are read without importing what they name, and say the truth about it."""

import importlib
import inspect
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

import gsebo
from gsebo.bilevel import HYPERGRADIENTS, OPTIMIZERS
from gsebo.data import DATASETS, GENERATED, NOISE_KINDS
from gsebo.loader import SAMPLERS
from gsebo.methods import METHODS, GraphClassifier, MethodInfo
from gsebo.names import Registry, imported
from gsebo.nn import BACKBONES
from gsebo.structure import STRUCTURES

PACKAGES = [
    info.name
    for info in pkgutil.iter_modules(gsebo.__path__, "gsebo.")
    if info.ispkg and type(importlib.import_module(info.name)) is not ModuleType
]


def test_most_packages_are_lazy() -> None:
    assert len(PACKAGES) > 8


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_what_it_lists(name: str) -> None:
    package = importlib.import_module(name)
    assert len(dir(package)) > 0
    for each in dir(package):
        assert not isinstance(getattr(package, each), ModuleType), each
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = package.no_such_name


def test_a_function_is_not_hidden_by_its_module() -> None:
    module = importlib.import_module("gsebo.data.validate")
    assert gsebo.data.validate is module.validate


@pytest.mark.parametrize("registry", [HYPERGRADIENTS, OPTIMIZERS, SAMPLERS, STRUCTURES])
def test_a_summary_is_that_of_the_thing(registry: Registry) -> None:
    for name, thing in registry.items():
        text = inspect.getdoc(thing)
        assert text is not None
        assert registry.summary(name) == text.partition("\n")[0]


def test_a_registry_takes_things_and_places() -> None:
    registry: Registry = Registry({"down": "math:floor"})
    registry["own"] = Registry
    registry["up"] = "math:ceil"
    assert list(registry) == ["down", "own", "up"] and len(registry) == 3
    assert registry["up"](0.5) == 1 and registry["own"] is Registry
    assert registry.summary("own").startswith("Things by name")
    del registry["down"]
    assert "down" not in registry


@pytest.mark.parametrize("name", METHODS)
def test_what_is_known_of_a_method_is_what_its_class_says(name: str) -> None:
    info = METHODS[name]
    own = info.estimator().get_params(deep=False)
    assert dict(info.defaults) == own and list(info.defaults) == sorted(own)
    assert [*map(type, info.defaults.values())] == [type(own[k]) for k in sorted(own)]
    assert info.backbones == info.estimator.supported_backbones
    assert issubclass(info.estimator, GraphClassifier)


OWN = """
from dataclasses import dataclass
from gsebo.methods import Vanilla
from gsebo.methods.controls import MLPControl

SOME = 7

@dataclass(kw_only=True, eq=False, repr=False)
class Literal(MLPControl):
    patience: int = 3

@dataclass(kw_only=True, eq=False, repr=False)
class Named(Vanilla):
    patience: int = SOME
"""


def test_defaults_of_methods_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_methods.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    literal = MethodInfo("own_methods:Literal", "by its source", "-")
    assert literal.defaults["patience"] == 3 and literal.defaults["backbone"] == "mlp"
    assert "own_methods" not in sys.modules
    named = MethodInfo("own_methods:Named", "by its class", "-")
    assert named.defaults["patience"] == 7 and named.defaults["backbone"] == "gcn"
    itself = MethodInfo(named.estimator, "the class itself", "-")
    assert itself.defaults == named.defaults
    with pytest.raises(ModuleNotFoundError):
        _ = MethodInfo("no_such_module:Method", "nowhere", "-").defaults


def test_every_place_is_there() -> None:
    places = [info.place for info in (*BACKBONES.values(), *NOISE_KINDS.values())]
    places += [info.converter for info in DATASETS.values() if info.converter]
    assert len(places) > 15
    assert all(callable(imported(place)) for place in places)


@pytest.mark.parametrize("name", GENERATED)
def test_what_is_known_of_a_drawn_graph(name: str) -> None:
    info, data = GENERATED[name], GENERATED[name].make()
    assert info.num_nodes == data.num_nodes
    assert 2 * info.num_edges == data.num_edges
    assert info.num_features == data.num_features
    assert info.num_classes == int(data.y.max()) + 1
