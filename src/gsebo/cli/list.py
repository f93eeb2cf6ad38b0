"""``gsebo list``: what there is to choose from."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from typer import Argument

from gsebo.attacks.registry import ATTACKS
from gsebo.bilevel import HYPERGRADIENTS
from gsebo.cli.options import Json
from gsebo.cli.output import print_json, print_table
from gsebo.data.datasets.registry import DATASETS, GENERATED, DatasetInfo, GeneratedInfo
from gsebo.experiments import load_recipe, recipe_names
from gsebo.methods import METHODS
from gsebo.methods.presets import presets
from gsebo.metrics import METRICS
from gsebo.names import Registry, lookup
from gsebo.nn import BACKBONES
from gsebo.structure import STRUCTURES

Rows = list[dict[str, Any]]


def list_names(
    kind: Annotated[
        str | None,
        Argument(
            metavar="KIND",
            help="methods, backbones, structures, hypergradients, attacks, metrics, "
            "datasets, presets or recipes; all by default.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the methods, networks, datasets and so on that have a name."""
    chosen = _KINDS if kind is None else {kind: lookup("kind", kind, _KINDS)}
    listed = {name: rows() for name, rows in chosen.items()}
    if json:
        print_json(listed)
        return
    for name, rows in listed.items():
        columns = list(rows[0])
        cells = [[row[column] for column in columns] for row in rows]
        print_table(name, columns, cells)


def _described(infos: Mapping[str, Any], *columns: str) -> Rows:
    return [
        {"name": name, **{column: getattr(info, column) for column in columns}}
        for name, info in infos.items()
    ]


def _methods() -> Rows:
    rows = _described(METHODS, "description", "paper", "backbones", "cost")
    return [{**row, "backbones": ", ".join(row["backbones"]) or "any"} for row in rows]


def _summaries(registry: Registry[Any]) -> Rows:
    return [{"name": n, "description": registry.summary(n)} for n in registry]


def _datasets() -> Rows:
    every: dict[str, DatasetInfo | GeneratedInfo] = {**DATASETS, **GENERATED}
    return [
        {
            "name": name,
            "nodes": info.num_nodes,
            "undirected edges": info.num_edges,
            "features": info.num_features,
            "classes": info.num_classes,
            "description": ("" if name in DATASETS else "drawn: ") + info.description,
        }
        for name, info in every.items()
    ]


def _joined(names: str | list[str] | None) -> str:
    return names if isinstance(names, str) else ", ".join(names or ["any"])


def _presets() -> Rows:
    return [
        {
            "name": name,
            "method": _joined(rule.method),
            "backbone": rule.backbone or "any",
            "dataset": rule.dataset or "any",
            "parameters": rule.parameters,
            "note": rule.note,
        }
        for name, rules in presets().items()
        for rule in rules
    ]


_KINDS: dict[str, Callable[[], Rows]] = {
    "methods": _methods,
    "backbones": lambda: _described(BACKBONES, "description", "paper"),
    "structures": lambda: _summaries(STRUCTURES),
    "hypergradients": lambda: _summaries(HYPERGRADIENTS),
    "attacks": lambda: _summaries(ATTACKS),
    "metrics": lambda: _described(METRICS, "title", "classes"),
    "datasets": _datasets,
    "presets": _presets,
    "recipes": lambda: _described(
        {name: load_recipe(name) for name in recipe_names()}, "title"
    ),
}
