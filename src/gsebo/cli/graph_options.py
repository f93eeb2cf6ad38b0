"""Options of every command that takes a graph: how its tables are read."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from gsebo.cli.output import messages
from gsebo.data.datasets.registry import TABLES, is_table, is_tables_folder
from gsebo.errors import InvalidInput, escaped

if TYPE_CHECKING:
    from gsebo.graph.graph import Graph

_PANEL = "Edge lists and node tables"


def _option(*names: str, **more: Any) -> Any:
    return Option(*names, rich_help_panel=_PANEL, show_default=False, **more)


@dataclass(kw_only=True)
class GraphOptions:
    """How an edge list, and the table of its nodes, become a graph."""

    nodes: Annotated[
        Path | None,
        _option(help="Table of the nodes: ids, labels, split and features."),
    ] = None
    source: Annotated[
        str | None, _option(metavar="NAME", help="Column; by default source.")
    ] = None
    target: Annotated[
        str | None, _option(metavar="NAME", help="Column; by default target.")
    ] = None
    id: Annotated[
        str | None,
        _option(metavar="NAME", help="Column of --nodes; by default id, if any."),
    ] = None
    label: Annotated[
        str | None,
        _option(
            metavar="NAME", help="Column of --nodes; by default label, y or class."
        ),
    ] = None
    weight: Annotated[
        str | None,
        _option(metavar="NAME", help="Column of weights; by default weight, if any."),
    ] = None
    leave_out: Annotated[
        list[str] | None,
        _option(metavar="NAME", help="A column of --nodes to ignore. Repeatable."),
    ] = None
    delimiter: Annotated[
        str | None,
        _option(help="One character, tab or space; by default as in the first line."),
    ] = None
    directed: Annotated[
        bool | None,
        _option(
            "--directed/--undirected",
            help="Whether edges go one way or both; by default both.",
        ),
    ] = None

    def check_tables(self, graph: str) -> None:
        """Raise if there are options for tables, and the graph is none."""
        given = [f"--{name.replace('_', '-')}" for name in self._given()]
        if self.directed is False:
            given[given.index("--directed")] = "--undirected"
        tables = is_tables_folder(graph)
        if tables and self.nodes is not None:
            raise InvalidInput(
                f"{escaped(graph, longest=200)} given with --nodes: expected none, for "
                "the folder has the tables of the nodes."
            )
        if given and not is_table(graph) and not tables:
            raise InvalidInput(
                f"{escaped(graph, longest=200)} given with {', '.join(given)}, for "
                f"tables: expected an edge list that ends in {', '.join(TABLES)}."
            )

    def load_graph(
        self,
        graph: str,
        *,
        data_dir: Path | None = None,
        normalize: bool | None = None,
    ) -> "Graph":
        """Load a graph by name or path, and say what became of a table."""
        from gsebo.data import load

        self.check_tables(graph)
        loaded = load(graph, data_dir=data_dir, normalize=normalize, **self._given())
        if is_table(graph) or is_tables_folder(graph):
            self._say(graph, loaded)
        return loaded

    def _given(self) -> dict[str, Any]:
        shared = inspect.signature(GraphOptions).parameters
        found = {name: getattr(self, name) for name in shared}
        return {name: value for name, value in found.items() if value is not None}

    def _say(self, name: str, graph: "Graph") -> None:
        facts = graph.meta
        if self.directed is None:
            messages.note(
                f"Each edge of {escaped(name)} goes both ways; --directed if not"
            )
        if reverses := facts.get("reverse_relations"):
            names = escaped(", ".join(reverses))
            messages.note(f"Relations were added for the other way: {names}")
        if loops := facts["self_loops_dropped"]:
            messages.note(f"Self-loops were left out: {loops}")
        if merged := facts["duplicates_merged"]:
            summed = "; their weights add up" if "edge_weight" in graph else ""
            messages.note(f"Rows that repeat an edge were merged: {merged}{summed}")
        left_out = [
            *facts["edge_columns_left_out"],
            *facts.get("columns_left_out", ()),
        ]
        if left_out:
            names = escaped(", ".join(left_out))
            messages.note(f"These columns were left out: {names}")


def with_features(graph: "Graph") -> "Graph":
    """The graph, for a method that needs features: if there are none, one is made."""
    from gsebo.data.formats.folder import LOG_DEGREE, with_log_degree

    if "x" in graph:
        return graph
    messages.note(f"There were no features; each node got one, {LOG_DEGREE}")
    return with_log_degree(graph)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command line have the fields of each parameter that is a dataclass."""
    own = inspect.signature(command).parameters.values()
    kinds: dict[str, Any] = {
        each.name: each.annotation for each in own if is_dataclass(each.annotation)
    }
    fields = {name: inspect.signature(kind).parameters for name, kind in kinds.items()}

    @wraps(command)
    def run(**given: Any) -> None:
        groups = {
            name: kind(**{one: given.pop(one) for one in fields[name] if one in given})
            for name, kind in kinds.items()
        }
        command(**groups, **given)

    parameters = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for one in own
        for each in (fields[one.name].values() if one.name in fields else [one])
    ]
    vars(run)["__signature__"] = inspect.Signature(parameters)
    return run
