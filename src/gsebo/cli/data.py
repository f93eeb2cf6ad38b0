"""``gsebo data``: where graphs are, getting, checking, converting and drawing them."""

import os
import secrets
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from gsebo import data as graphs
from gsebo.cli.graph_options import GraphOptions, with_options
from gsebo.cli.options import (
    DataDir,
    Force,
    Json,
    Normalize,
    Quiet,
    Seed,
    command_group,
    require_new,
)
from gsebo.cli.output import messages, print_json, print_table, print_text, progress_bar
from gsebo.data import DATASETS, locate
from gsebo.errors import InvalidInput, escaped
from gsebo.names import normalise

if TYPE_CHECKING:
    from gsebo.data.formats.convert import TableOptions
    from gsebo.graph.graph import Graph

data_app = command_group(
    "Find, download, convert and check datasets.", "data verify cora"
)
Name = Annotated[str, Argument(metavar="NAME", help="A registered dataset.")]
Out = Annotated[Path, Option(help="The folder to write.")]
_EXAMPLE = "[bold]Example:[/bold] gsebo data"


@data_app.command("list", epilog=f"{_EXAMPLE} list")
def list_datasets(data_dir: DataDir = None, json: Json = False) -> None:
    """Show where each dataset is found on this machine."""
    rows = []
    for info in DATASETS.values():
        where, path = locate(info.name, data_dir)
        found = None if where == "absent" else str(path)
        rows.append((info.name, where, found, info.licence, info.source))
    columns = ("name", "where", "path", "licence", "source")
    if json:
        objects = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"datasets": objects})
        return
    # Licence and source would make the table wider than most terminals.
    print_table("Datasets", columns[:3], (row[:3] for row in rows))


@data_app.command("get", epilog=f"{_EXAMPLE} get pubmed")
def get(name: Name, data_dir: DataDir = None, json: Json = False) -> None:
    """Download a dataset into the user's cache, unless it is here already.

    Some cannot be downloaded: the message says where their file is expected.
    """
    where, path = locate(name, data_dir)
    if where == "absent":
        where, path = "cache", graphs.download_dataset(name)
    if json:
        print_json({"name": name, "where": where, "path": str(path)})
        return
    print_text(f"{name}: {path} ({where})")


@data_app.command("verify", epilog=f"{_EXAMPLE} verify")
def verify_datasets(
    name: Annotated[
        str | None,
        Argument(
            metavar="NAME",
            help="A registered dataset or a graph folder; all datasets by default.",
        ),
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Compare datasets with the published graphs; exit code 1 if one differs.

    A graph folder is read whole and compared with its checksums. When all datasets are
    checked, one that is not on this machine is no failure.
    """
    columns = ("name", "where", "path", "ok", "message")
    if name is not None and _is_folder(name):
        rows = [_verified_folder(Path(name))]
    else:
        names = list(DATASETS) if name is None else [name]
        found = (graphs.verify(each, data_dir=data_dir) for each in names)
        rows = [(e.name, e.where, str(e.path), e.ok, e.message) for e in found]
    if json:
        objects = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"datasets": objects})
    else:
        heads = ("name", "where", "verdict")
        print_table("Datasets", heads, ((row[0], row[1], row[4]) for row in rows))
    optional = "absent" if name is None else None
    if not all(row[3] or row[1] == optional for row in rows):
        raise typer.Exit(1)


def _is_folder(name: str) -> bool:
    """Whether this can only be meant as the path of a folder."""
    other = os.path.isdir(name) and normalise(name) not in DATASETS
    return other or graphs.is_graph_folder(name)


def _verified_folder(path: Path) -> tuple[str, str, str, bool, str]:
    from gsebo.data.formats.folder import GraphFolder

    try:
        GraphFolder.open(path, anew=True)
        ok, message = True, "undamaged."
    except InvalidInput as error:
        ok, message = False, str(error)
    return escaped(path.name), "folder", escaped(str(path)), ok, message


@data_app.command(
    "convert",
    epilog=f"{_EXAMPLE} convert --edges edges.csv --nodes nodes.csv --out graph/",
)
@with_options
def convert(
    graph: Annotated[
        str | None,
        Argument(
            metavar="GRAPH",
            help="An edge list that fits into memory, an .npz file or a registered "
            "name.",
        ),
    ] = None,
    *,
    out: Out,
    edges: Annotated[
        Path | None,
        Option(help="Instead: edge list of any size, CSV, TSV or Parquet."),
    ] = None,
    tables: GraphOptions,
    num_nodes: Annotated[
        int | None,
        Option(
            min=1,
            help="With --edges, without --nodes; else the largest number plus one.",
        ),
    ] = None,
    duplicates: Annotated[
        str,
        Option(
            metavar="merge|error",
            help="With --edges: what to do with an edge that is there again.",
        ),
    ] = "merge",
    split: Annotated[
        str | None, Option(help="Draw masks: random:10/20/70, planetoid, file:3, ...")
    ] = None,
    seed: Seed = 0,
    data_dir: DataDir = None,
    normalize: Normalize = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a graph as a folder of memory-mapped arrays, in bounded memory.

    An edge list that fits into memory may be given as GRAPH; one of any size as
    --edges, whose edges go one way unless there is --undirected, and whose ids are
    whole numbers or those of --nodes. The first row that cannot be used is named,
    and nothing is left behind.
    """
    from gsebo.data.formats.convert import TableOptions, convert_tables
    from gsebo.data.formats.folder import write_folder
    from gsebo.data.formats.node_table import NodeColumns
    from gsebo.data.relations import refuse_types

    messages.quiet = quiet
    options = TableOptions(
        undirected=tables.directed is False,
        num_nodes=num_nodes,
        duplicates=duplicates,  # type: ignore[arg-type]  # checked when made
        delimiter=tables.delimiter,
        ends=(tables.source, tables.target),
        nodes=NodeColumns(tables.id, tables.label, None, tuple(tables.leave_out or ())),
        split=split,
        seed=seed,
    )
    _check_inputs(graph, edges, tables, options)
    with _new_place(out, force) as place, _tidy_when_ended(quiet or json) as progress:
        if edges is None:
            whole = tables.load_graph(
                str(graph), data_dir=data_dir, normalize=normalize
            )
            refuse_types(
                whole,
                escaped(str(graph), longest=200),
                "a graph folder holds one of each",
                "a graph without them; every other command takes this one as it is",
            )
            whole = _with_masks(whole, split, seed)
            name = whole.meta["name"]
            write_folder(whole, place, facts={"made_from": [escaped(name)]})
        else:
            convert_tables(
                edges,
                place,
                nodes=tables.nodes,
                options=options,
                progress=progress,
            )
    _show(out, json)


@data_app.command(
    "generate",
    epilog=f"{_EXAMPLE} generate --nodes 100000 --edges 1000000 --out graph/",
)
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
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw a labelled graph with power-law degrees into a folder, of any size."""
    from gsebo.data.synthetic.power_law import write_power_law

    messages.quiet = quiet
    with _new_place(out, force) as place, _tidy_when_ended(quiet or json) as progress:
        write_power_law(
            place,
            nodes,
            edges,
            num_features=features,
            num_classes=classes,
            homophily=homophily,
            labelled_share=labelled_share,
            dtype="float16" if half else "float32",
            seed=seed,
            progress=progress,
        )
    _show(out, json)


@contextmanager
def _new_place(out: Path, force: bool) -> Iterator[Path]:
    """Where a folder is written, which stands at its own place at the end.

    What is there already stays there until then.
    """
    out = Path(os.path.expanduser(out))
    if not os.path.lexists(out) or _is_empty(out):
        yield out
        return
    require_new(out, force=force)
    if not graphs.is_graph_folder(str(out)):
        raise InvalidInput(
            f"--force given for {out}, which is no graph folder; expected one to "
            "replace, or another name."
        )
    out = out.resolve()
    name = f".{out.name[:100]}.{secrets.token_hex(4)}"
    fresh, old = out.parent / f"{name}.new", out.parent / f"{name}.old"
    yield fresh
    os.rename(out, old)
    os.rename(fresh, out)
    shutil.rmtree(old, ignore_errors=True)


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except OSError:
        return False


def _check_inputs(
    graph: str | None,
    edges: Path | None,
    tables: GraphOptions,
    options: "TableOptions",
) -> None:
    """One graph or one edge list, and options only where they say something."""
    if (graph is None) == (edges is None):
        given = "neither was given" if graph is None else f"{graph} and {edges} given"
        raise InvalidInput(f"{given}: expected either a graph or --edges.")
    if graph is not None:
        tables.check_tables(graph)
        for name, usual in (("num_nodes", None), ("duplicates", "merge")):
            if getattr(options, name) != usual:
                option = f"--{name.replace('_', '-')}"
                raise InvalidInput(
                    f"{graph} was given with {option}: expected --edges with that."
                )
    elif tables.weight is not None:
        raise InvalidInput(
            f"--weight {tables.weight} given with --edges: expected none, as "
            "weights are read only of an edge list that is given as GRAPH."
        )


def _with_masks(data: "Graph", split: str | None, seed: int) -> "Graph":
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
def _tidy_when_ended(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show progress; let a polite request to end remove what is half-written."""

    def end(number: int, frame: Any) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with progress_bar(quiet=quiet, percentage=True) as bar:
            yield bar.report
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(out: Path, json: bool) -> None:
    """Print what was written, and say what was made up or left out."""
    from gsebo.data.formats.folder import GraphFolder

    folder = GraphFolder.open(out)
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
    if json:
        print_json({**row, "facts": manifest.facts})
    else:
        facts = {
            key.replace("_", " "): manifest.facts[key]
            for key in ("edges_read", "self_loops_dropped", "duplicates_merged")
            if key in manifest.facts
        }
        print_table("Graph folder", ("", ""), [*row.items(), *facts.items()])
    if "features_made" in manifest.facts:
        messages.note(
            "There were no features; each node got one, "
            f"{manifest.facts['features_made']}"
        )
    if left_out := manifest.facts.get("columns_left_out"):
        messages.note(f"These columns were left out: {escaped(', '.join(left_out))}")
