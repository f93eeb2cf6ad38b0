"""``gsebo suspects``: which edges of a graph are wrong, and which are missing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from gsebo.cli.graph_options import GraphOptions, with_options
from gsebo.cli.options import (
    DataDir,
    Force,
    Json,
    Normalize,
    Quiet,
    Seed,
    require_new,
)
from gsebo.cli.output import messages, print_json, print_table, print_text
from gsebo.data.datasets.registry import require_known_graph
from gsebo.errors import InvalidInput
from gsebo.files import check_writable

if TYPE_CHECKING:
    import pandas

    from gsebo.graph.graph import Graph
    from gsebo.suspects.detector import SuspiciousEdges
    from gsebo.suspects.missing import MissingEdges

_FILES = (".csv", ".parquet", ".graphml")


@with_options
def suspects(
    graph: Annotated[
        str,
        Argument(
            metavar="GRAPH",
            help="A name, an edge list (CSV, TSV or Parquet), an .npz file, a folder "
            "of tables or a graph folder.",
        ),
    ],
    first: Annotated[int, Option(min=1, help="Rows to print.")] = 20,
    missing: Annotated[
        bool, Option("--missing", help="Also list pairs that should be joined.")
    ] = False,
    export: Annotated[
        Path | None,
        Option(help="Write all rows to this .csv, .parquet or .graphml file."),
    ] = None,
    page: Annotated[
        Path | None, Option(help="Write a page to look at it to this .html file.")
    ] = None,
    clean: Annotated[
        Path | None,
        Option(help="Write the graph without edges that are likely wrong to an .npz."),
    ] = None,
    rounds: Annotated[
        int, Option(min=1, help="How often false edges are planted; more are surer.")
    ] = 3,
    labels: Annotated[
        bool, Option("--labels/--no-labels", help="Whether labels are read at all.")
    ] = True,
    split: Annotated[
        str | None,
        Option(
            help="Which labels may be read, as for fit: those of its training and "
            "validation nodes. By default the graph's own masks, or all labels."
        ),
    ] = None,
    seed: Seed = 0,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    data_dir: DataDir = None,
    normalize: Normalize = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    *,
    tables: GraphOptions,
) -> None:
    """Rank the edges of a graph by how likely each is wrong, and say why.

    False edges are planted among the given ones to learn what tells them apart and how
    many of the first rows are wrong, and taken out again. It works with labels, with
    few, with none, with features and without; it never reads a held-back label.
    """
    messages.quiet = quiet
    require_known_graph(graph)
    tables.check_tables(graph)
    _check_files(export, page, clean, force)
    # Only now what needs torch: until here a slip is told at once.
    from gsebo.cli.output import progress_bar
    from gsebo.suspects.detector import SuspiciousEdges
    from gsebo.suspects.missing import missing_edges

    detector = SuspiciousEdges(
        rounds=rounds, use_labels=labels, device=device, random_state=seed
    )
    data = tables.load_graph(graph, data_dir=data_dir, normalize=normalize)
    data = _split(data, split, seed)
    absent = None
    if missing:
        # First, because it refuses what the other takes.
        absent = missing_edges(data, device=device, random_state=seed)
    with progress_bar(quiet=quiet or json) as bar:
        detector.fit(data, report=bar.report)
    _write_files(graph, data, detector, absent, (export, page, clean))
    if json:
        content = _facts(graph, data, detector, absent, first)
        paths = {"export": export, "page": page, "clean": clean}
        named = {key: None if one is None else str(one) for key, one in paths.items()}
        print_json({**content, **named})
        return
    _print(graph, detector, absent, first)


def _check_files(
    export: Path | None, page: Path | None, clean: Path | None, force: bool
) -> None:
    """Raise, before anything is computed, for a file that could not be written."""
    wanted = {
        "--export": (export, _FILES),
        "--page": (page, (".html", ".htm")),
        "--clean": (clean, (".npz",)),
    }
    for option, (path, suffixes) in wanted.items():
        if path is None:
            continue
        if path.suffix not in suffixes:
            raise InvalidInput(
                f"{option} {path} given; expected a file that ends in "
                f"{' or '.join(suffixes)}."
            )
        check_writable(path.parent)
    require_new(export, page, clean, force=force)


def _split(graph: "Graph", split: str | None, seed: int) -> "Graph":
    """The graph with the masks that were asked for, or that it came with."""
    from gsebo.data import apply_split

    if split is not None:
        return apply_split(graph, split, seed)
    if "train_mask" not in graph and "train_masks" in graph:
        messages.note("The graph came with several splits; using file:0.")
        return apply_split(graph, "file:0", seed)
    if "y" in graph and not any(f"{one}_mask" in graph for one in ("train", "val")):
        messages.note("The graph came without masks: all its labels are read.")
    return graph


def _write_files(
    name: str,
    graph: "Graph",
    detector: "SuspiciousEdges",
    absent: "MissingEdges | None",
    paths: tuple[Path | None, Path | None, Path | None],
) -> None:
    from gsebo.data import save_npz

    export, page, clean = paths
    if export is not None:
        from gsebo.cli.edge_files import EdgeFile

        EdgeFile.at(export).write_rows(detector.edges_, detector.ends_, detector.nodes_)
        messages.note(f"The edges are in {export}.")
    if page is not None:
        from gsebo.report.page.suspects_page import write_page

        write_page(detector, page, missing=absent, graph=name, overwrite=True)
        messages.note(f"The page is {page}.")
    if clean is not None:
        kept = detector.clean_graph(graph)
        save_npz(kept, clean, overwrite=True)
        removed = graph.num_edges - kept.num_edges
        messages.note(f"The graph without {removed} of its edges is in {clean}.")


def _facts(
    name: str,
    graph: "Graph",
    detector: "SuspiciousEdges",
    absent: "MissingEdges | None",
    first: int,
) -> dict[str, Any]:
    tells = detector.calibration_.tells
    number = zip(("mean", "low", "high"), detector.calibration_.number, strict=True)
    return {
        "graph": name,
        "num_nodes": int(graph.num_nodes),
        "num_edges": len(detector.edges_),
        "seed": detector.seed_,
        "rounds": detector.rounds,
        "expected_wrong": dict(number) if tells else None,
        "contamination": detector.contamination_ if tells else None,
        "planted_area_under_roc": detector.calibration_.found,
        "expected": detector.expected_.to_dict("records"),
        "sentences": list(detector.sentences_),
        "edges": _rows(detector.edges_, first),
        "missing": None
        if absent is None
        else {
            "sentences": list(absent.sentences),
            "pairs": _rows(absent.table, first),
        },
    }


def _rows(table: "pandas.DataFrame", first: int) -> list[dict[str, Any]]:
    """The first rows in the types of JSON."""
    head = table.head(first)
    columns = {name: head[name].tolist() for name in head}
    return [
        {name: column[number] for name, column in columns.items()}
        for number in range(len(head))
    ]


def _print(
    name: str, detector: "SuspiciousEdges", absent: "MissingEdges | None", first: int
) -> None:
    _print_rows(f"Suspicious edges of {name}", detector.edges_, first)
    print_text("\n".join(detector.sentences_))
    if absent is not None:
        print_text("")
        _print_rows(f"Pairs of {name} that should be joined", absent.table, first)
        print_text("\n".join(absent.sentences))


def _print_rows(title: str, table: "pandas.DataFrame", first: int) -> None:
    rows = table.head(first)
    shares: Any = [None] * len(rows)
    if "probability" in rows:
        shares = [f"{share:.2f}" for share in rows["probability"]]
    columns = zip(rows["source"], rows["target"], shares, rows["reason"], strict=True)
    print_table(
        title,
        (">", ">source", ">target", ">probability", "why"),
        (
            (rank, source, target, share, reason)
            for rank, (source, target, share, reason) in enumerate(columns, 1)
        ),
    )
