"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Dataset = Annotated[
    str,
    Argument(
        metavar="DATASET",
        help="A registered name ([bold]gsebo list datasets[/bold]), an .npz file or a "
        "graph folder ([bold]gsebo data convert[/bold]).",
    ),
]
Model = Annotated[
    Path, Argument(metavar="MODEL", help="Folder of a model, from --out of fit.")
]
Backbone = Annotated[
    str | None,
    Option(
        help="The network: gcn, gat, sage, ..., or any of PyG's, by name. By default "
        "the method's own, which mostly is gcn."
    ),
]
Preset = Annotated[str | None, Option(help="A named set of parameters, such as paper.")]
Settings = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter of the method, such as inner_steps=20 or "
        "backbone_options.heads=4. Repeatable.",
    ),
]
BatchSize = Annotated[
    int | None,
    Option(
        min=1,
        help="Train on batches of the graph of this size instead of the whole graph. "
        "Short for --set batch_size=N.",
    ),
]
Sampler = Annotated[
    str | None,
    Option(help="How batches are drawn: neighbour or partition. Short for --set."),
]
BatchesPerStep = Annotated[
    int | None,
    Option(
        min=1,
        help="Batches of one step, which processes share. Short for --set.",
    ),
]
Seed = Annotated[int, Option(min=0, help="Seed of the (first) run.")]
Seeds = Annotated[
    int | None,
    Option(min=1, help="Number of runs, with seeds SEED, SEED + 1, ...: mean and std."),
]
Split = Annotated[
    str | None,
    Option(
        help="file, file:3, file:seed, planetoid, ratio:10/20/70, random:10/20/70, or "
        "unseen:20:NAME to hide 20 % of the test nodes from the fit. By default the "
        "masks that came with the graph, or random."
    ),
]
Noise = Annotated[
    str,
    Option(
        metavar="COUNT|KIND:LEVEL",
        help="Add so many edges between classes, or other noise: random:COUNT edges, "
        "or percentages: removed:30 (edges), features:30, labels:30.",
    ),
]
DataDir = Annotated[
    Path | None, Option(help="Folder to look in first for registered datasets.")
]
ResultsFolder = Annotated[
    Path,
    Option(
        "--results",
        metavar="DIR",
        envvar="GSEBO_RESULTS",
        help="Folder of the stored results.",
    ),
]
Normalize = Annotated[
    bool | None,
    Option(
        "--normalize/--no-normalize",
        help="Divide each row of the features by its sum. By default as is usual for "
        "the dataset.",
        show_default=False,
    ),
]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[
    bool, Option("--quiet", help="Print nothing but the result and errors.")
]
Predictions = Annotated[
    Path | None,
    Option(
        help="Of a graph folder: write the class of every node to this .npy or "
        ".parquet file."
    ),
]
Strengths = Annotated[
    Path | None,
    Option(
        help="Of a graph folder: write the strength of every edge, in its order, to "
        "this .npy or .parquet file."
    ),
]
Memory = Annotated[
    str,
    Option(help="Of a graph folder: memory that predicting stays within, as 500M."),
]
