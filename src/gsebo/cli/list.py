"""``gsebo list``: what there is to choose from."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

from typer import Argument

from gsebo.cli.ui.options import Json
from gsebo.cli.ui.output import print_json, print_table
from gsebo.lookup import lookup

Rows = list[dict[str, Any]]


def list_names(
    kind: Annotated[
        str | None,
        Argument(
            metavar="KIND",
            help="methods, backbones, structures, hypergradients, datasets, presets or "
            "recipes; all by default.",
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


def _methods() -> Rows:
    from gsebo.methods import METHODS

    return [
        {
            "name": name,
            "description": info.description,
            "paper": info.paper,
            "backbones": ", ".join(info.backbones) or "any",
            "cost": info.cost,
        }
        for name, info in METHODS.items()
    ]


def _backbones() -> Rows:
    from gsebo.nn.registry import BACKBONES

    return [
        {"name": name, "description": info.description, "paper": info.paper}
        for name, info in BACKBONES.items()
    ]


def _structures() -> Rows:
    from gsebo.structure.registry import STRUCTURES

    return [
        {"name": name, "description": _first_line(structure)}
        for name, structure in STRUCTURES.items()
    ]


def _hypergradients() -> Rows:
    from gsebo.bilevel.registry import HYPERGRADIENTS

    return [
        {"name": name, "description": _first_line(engine)}
        for name, engine in HYPERGRADIENTS.items()
    ]


def _datasets() -> Rows:
    from gsebo.data import DATASETS, GENERATED

    rows = [
        {
            "name": info.name,
            "nodes": info.num_nodes,
            "undirected edges": info.num_edges,
            "features": info.num_features,
            "classes": info.num_classes,
            "description": info.description,
        }
        for info in DATASETS.values()
    ]
    for name, drawn in GENERATED.items():
        data = drawn.make()
        rows.append(
            {
                "name": name,
                "nodes": data.num_nodes,
                "undirected edges": data.num_edges // 2,
                "features": data.num_features,
                "classes": int(data.y.max()) + 1,
                "description": f"drawn: {drawn.description}",
            }
        )
    return rows


def _presets() -> Rows:
    from gsebo.methods.presets import presets

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


def _recipes() -> Rows:
    from gsebo.experiments import load_recipe, recipe_names

    return [{"name": name, "title": load_recipe(name).title} for name in recipe_names()]


def _joined(names: str | list[str] | None) -> str:
    if names is None:
        return "any"
    return names if isinstance(names, str) else ", ".join(names)


def _first_line(thing: Callable[..., Any]) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


_KINDS: dict[str, Callable[[], Rows]] = {
    "methods": _methods,
    "backbones": _backbones,
    "structures": _structures,
    "hypergradients": _hypergradients,
    "datasets": _datasets,
    "presets": _presets,
    "recipes": _recipes,
}
