"""``gsebo data convert`` and ``gsebo data generate``: graphs in folders on disk."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self, final

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from typer import Argument, Option

from gsebo.cli.ui.options import DataDir, Json, Normalize, Quiet, Seed
from gsebo.cli.ui.output import messages, print_json, print_table
from gsebo.errors import InvalidInput, escaped

if TYPE_CHECKING:
    from gsebo.data.formats.folder import GraphFolder
    from gsebo.graph.graph import Graph

_PATIENCE_SECONDS = 1.0


@final
class TableProgress:
    """A bar on standard error that appears once it takes long.

    Args:
        quiet: Show nothing, whatever the terminal.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._enabled = sys.stderr.isatty() and not quiet
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)
        self._what = ""
        self._lock = threading.Lock()
        self._over = False
        self._timer = threading.Timer(_PATIENCE_SECONDS, self._appear)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._enabled:
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            # Stopping a bar that never appeared would print an empty line.
            if self._bar.live.is_started:
                self._bar.stop()

    def tell(self, what: str, done: int, end: int) -> None:
        """Show what is being done and how far it is."""
        if what != self._what:
            self._what = what
            self._bar.reset(self._task, description=escaped(what), total=end)
        self._bar.update(self._task, completed=done, total=end)

    def _appear(self) -> None:
        with self._lock:
            if not self._over:
                self._bar.start()


Out = Annotated[Path, Option(help="The folder to write; it must not exist.")]
_SHOWN_FACTS = ("edges_read", "self_loops_dropped", "duplicates_merged")


def convert(
    graph: Annotated[
        str | None,
        Argument(metavar="GRAPH", help="An .npz file or a registered name."),
    ] = None,
    *,
    out: Out,
    edges: Annotated[
        Path | None,
        Option(help="Instead: edge list, CSV, TSV or Parquet, two integer columns."),
    ] = None,
    nodes: Annotated[
        Path | None,
        Option(help="With --edges: table of the nodes, with named columns."),
    ] = None,
    undirected: Annotated[
        bool, Option("--undirected", help="Add the reverse of each edge.")
    ] = False,
    num_nodes: Annotated[
        int | None,
        Option(min=1, help="Without --nodes; else the largest number plus one."),
    ] = None,
    duplicates: Annotated[
        str,
        Option(
            metavar="merge|error", help="What to do with an edge that is there again."
        ),
    ] = "merge",
    delimiter: Annotated[
        str | None,
        Option(help="One character, tab or space; by default as in the first line."),
    ] = None,
    source_column: Annotated[
        str | None, Option(metavar="NAME", help="By default source.")
    ] = None,
    target_column: Annotated[
        str | None, Option(metavar="NAME", help="By default target.")
    ] = None,
    id_column: Annotated[
        str | None, Option(metavar="NAME", help="By default id, where there is one.")
    ] = None,
    label_column: Annotated[
        str | None, Option(metavar="NAME", help="By default label or y.")
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="A column of --nodes to ignore. Repeatable."),
    ] = None,
    split: Annotated[
        str | None,
        Option(help="Draw masks: random:10/20/70, planetoid, file:3, ..."),
    ] = None,
    seed: Seed = 0,
    data_dir: DataDir = None,
    normalize: Normalize = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a graph as a folder of memory-mapped arrays, in bounded memory.

    The first row that cannot be used is named, and nothing is left behind.
    """
    from gsebo.data import load
    from gsebo.data.formats.convert import TableOptions, convert_tables
    from gsebo.data.formats.convert_nodes import NodeColumns
    from gsebo.data.formats.folder import write_folder

    messages.quiet = quiet
    options = TableOptions(
        undirected=undirected,
        num_nodes=num_nodes,
        duplicates=duplicates,  # type: ignore[arg-type]  # checked when made
        delimiter=delimiter,
        ends=(source_column, target_column),
        nodes=NodeColumns(id_column, label_column, None, tuple(leave_out or ())),
        split=split,
        seed=seed,
    )
    plain = options == TableOptions(split=split, seed=seed) and nodes is None
    _check_inputs(graph, edges, plain)
    with _tidy_when_ended(), TableProgress(quiet=quiet or json) as progress:
        if edges is None:
            whole = load(str(graph), data_dir=data_dir, normalize=normalize)
            whole = _with_masks(whole, split, seed)
            name = whole.meta["name"]
            folder = write_folder(whole, out, facts={"made_from": [escaped(name)]})
        else:
            folder = convert_tables(
                edges, out, nodes=nodes, options=options, progress=progress.tell
            )
    _show(folder, json)


def generate(
    out: Out,
    nodes: Annotated[int, Option(min=1, help="Number of nodes.")],
    edges: Annotated[int, Option(min=1, help="Number of directed edges, about.")],
    features: Annotated[int, Option(min=1, help="Number of features.")] = 32,
    classes: Annotated[int, Option(min=2, help="Number of classes.")] = 10,
    homophily: Annotated[float, Option(help="Share of edges within a class.")] = 0.8,
    labelled_share: Annotated[
        float, Option(help="Share of nodes that train or validate; as many test.")
    ] = 0.01,
    half: Annotated[
        bool, Option("--half", help="Store features as 16-bit numbers.")
    ] = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw a labelled graph with power-law degrees into a folder, of any size."""
    from gsebo.data.synthetic.power_law import write_power_law

    messages.quiet = quiet
    with _tidy_when_ended(), TableProgress(quiet=quiet or json) as progress:
        folder = write_power_law(
            out,
            nodes,
            edges,
            num_features=features,
            num_classes=classes,
            homophily=homophily,
            labelled_share=labelled_share,
            dtype="float16" if half else "float32",
            seed=seed,
            progress=progress.tell,
        )
    _show(folder, json)


def verify_folder(path: Path, json: bool) -> None:
    """Read a graph folder whole and say whether it is undamaged; else exit code 1."""
    from gsebo.data.formats.folder import GraphFolder

    try:
        GraphFolder.open(path, anew=True)
        ok, message = True, "undamaged."
    except InvalidInput as error:
        ok, message = False, str(error)
    row = {
        "name": escaped(path.name),
        "where": "folder",
        "path": escaped(str(path)),
    }
    if json:
        print_json({"datasets": [{**row, "ok": ok, "message": message}]})
    else:
        heads = ("name", "where", "verdict")
        print_table("Datasets", heads, [(row["name"], "folder", message)])
    if not ok:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add both commands to ``gsebo data``."""
    example = "[bold]Example:[/bold] gsebo data"
    app.command(
        "convert",
        epilog=f"{example} convert --edges edges.csv --nodes nodes.csv --out graph/",
    )(convert)
    app.command(
        "generate",
        epilog=f"{example} generate --nodes 100000 --edges 1000000 --out graph/",
    )(generate)


def _check_inputs(graph: str | None, edges: Path | None, plain: bool) -> None:
    """One graph or one edge list, and options only where they say something."""
    if (graph is None) == (edges is None):
        given = "neither was given" if graph is None else f"{graph} and {edges} given"
        raise InvalidInput(f"{given}: expected either a graph or --edges.")
    if graph is not None and Path(graph).suffix in (".csv", ".tsv", ".parquet"):
        raise InvalidInput(f"{graph} is a table: expected --edges {graph}.")
    if graph is not None and not plain:
        raise InvalidInput(
            f"{graph} was given with options for edge lists and node tables: expected "
            "--split, --seed, --data-dir and --normalize at most."
        )


def _with_masks(data: "Graph", split: str | None, seed: int) -> "Graph":
    """A graph with the split that was asked for."""
    from gsebo.data import apply_split

    if split is not None:
        return apply_split(data, split, seed)
    if "train_masks" in data and "train_mask" not in data:
        raise InvalidInput(
            f"{data.meta['name']} came with several splits: expected --split file:0 "
            "or another, as a folder has room for one."
        )
    return data


@contextmanager
def _tidy_when_ended() -> Iterator[None]:
    """Let a polite request to end remove what is half-written."""

    def end(number: int, frame: Any) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(folder: "GraphFolder", json: bool) -> None:
    """Print what was written, and say what was made up or left out."""
    manifest = folder.manifest
    size = sum(file.stat().st_size for file in folder.path.iterdir())
    row: dict[str, Any] = {
        "path": escaped(str(folder.path)),
        "nodes": manifest.num_nodes,
        "edges": manifest.num_edges,
        "features": manifest.num_features,
        "classes": manifest.num_classes,
        "bytes": size,
    }
    facts = {key: manifest.facts[key] for key in _SHOWN_FACTS if key in manifest.facts}
    if json:
        print_json({**row, "facts": manifest.facts})
    else:
        print_table("Graph folder", ("", ""), [*row.items(), *_in_words(facts)])
    if "features_made" in manifest.facts:
        messages.note(
            "There were no features; each node got one, "
            f"{manifest.facts['features_made']}"
        )
    if left_out := manifest.facts.get("columns_left_out"):
        messages.note(f"These columns were left out: {escaped(', '.join(left_out))}")


def _in_words(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(key.replace("_", " "), value) for key, value in facts.items()]
