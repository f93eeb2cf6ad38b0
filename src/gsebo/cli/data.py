"""``gsebo data``: where datasets are, getting them, checking them."""

import os
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from gsebo import data as graphs
from gsebo.cli.convert import register, verify_folder
from gsebo.cli.ui.options import DataDir, Json
from gsebo.cli.ui.output import print_json, print_table, print_text
from gsebo.data import DATASETS, locate
from gsebo.lookup import normalise

data_app = typer.Typer(
    add_completion=False,
    help="Find, download, convert and check datasets.",
    epilog="[bold]Example:[/bold] gsebo data verify cora",
    rich_markup_mode="rich",
)

Name = Annotated[str, Argument(metavar="NAME", help="A registered dataset.")]


@data_app.callback(invoke_without_command=True)
def data(context: typer.Context) -> None:
    """Find, download, convert and check datasets."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@data_app.command("list", epilog="[bold]Example:[/bold] gsebo data list")
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


@data_app.command("get", epilog="[bold]Example:[/bold] gsebo data get pubmed")
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


@data_app.command("verify", epilog="[bold]Example:[/bold] gsebo data verify")
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
    if name is not None and _is_folder(name):
        verify_folder(Path(name), json)
        return
    names = list(DATASETS) if name is None else [name]
    found = [graphs.verify(each, data_dir=data_dir) for each in names]
    if json:
        rows = [
            {
                "name": each.name,
                "where": each.where,
                "path": str(each.path),
                "ok": each.ok,
                "message": each.message,
            }
            for each in found
        ]
        print_json({"datasets": rows})
    else:
        print_table(
            "Datasets",
            ("name", "where", "verdict"),
            ((each.name, each.where, each.message) for each in found),
        )
    optional = "absent" if name is None else None
    if not all(each.ok or each.where == optional for each in found):
        raise typer.Exit(1)


def _is_folder(name: str) -> bool:
    """Whether this can only be meant as the path of a folder."""
    other = os.path.isdir(name) and normalise(name) not in DATASETS
    return other or graphs.is_graph_folder(name)


register(data_app)
