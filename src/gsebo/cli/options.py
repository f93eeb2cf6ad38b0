"""Options that several commands share, and groups of commands."""

import os
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from gsebo.errors import InvalidInput

Model = Annotated[
    Path, Argument(metavar="MODEL", help="Folder of a model, from --out of fit.")
]
Recipe = Annotated[
    str, Argument(metavar="RECIPE", help="A name, such as table1, or a .toml file.")
]
RecipeSeeds = Annotated[
    int | None, Option(min=1, help="Number of seeds instead of the recipe's own.")
]
Seed = Annotated[int, Option(min=0, help="Seed of the (first) run.")]
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
MetricOption = Annotated[
    str | None,
    Option(
        "--metric",
        help="What is shown, and what [bold]auto[/bold] and searches choose by: "
        "accuracy, balanced_accuracy, f1_macro, roc_auc (of two classes) or "
        "neg_log_loss. By default accuracy, or as a recipe says.",
        show_default=False,
    ),
]
Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[
    bool, Option("--quiet", help="Print nothing but the result and errors.")
]
Force = Annotated[bool, Option("--force", help="Replace what is there already.")]
Strengths = Annotated[
    Path | None,
    Option(
        help="Of a graph folder: write the strength of every edge, in its order, to "
        "this .npy or .parquet file."
    ),
]
Memory = Annotated[
    str, Option(help="Of a graph folder: memory that predicting stays within, as 500M.")
]


def require_new(*paths: Path | None, force: bool) -> None:
    """Raise, before anything is computed, if something would be replaced."""
    for path in paths:
        if path is not None and not force and os.path.lexists(path):
            raise InvalidInput(
                f"{path} is there already; expected another name, or --force to "
                "replace it."
            )


def command_group(help: str, example: str) -> typer.Typer:
    """Commands under one name, which alone prints their help."""
    group = typer.Typer(
        add_completion=False,
        help=help,
        epilog=f"[bold]Example:[/bold] gsebo {example}",
        rich_markup_mode="rich",
    )

    @group.callback(invoke_without_command=True)
    def print_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            print(context.get_help())

    return group
