"""``gsebo show``: a recipe's table, beside the paper's, from stored results."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from gsebo.cli.ui.options import Quiet, ResultsFolder
from gsebo.cli.ui.output import messages, print_text
from gsebo.errors import InvalidInput
from gsebo.experiments import Store, load_recipe
from gsebo.lookup import lookup
from gsebo.report import accuracy_sheet, choices_sheet, gaps, gather_evidence
from gsebo.report.formats import formats

# No table is cut when the output is a file or a pipe.
_UNLIMITED = 1000


def show(
    recipe: Annotated[
        str,
        Argument(metavar="RECIPE", help="A name, such as table1, or a .toml file."),
    ],
    format: Annotated[
        str, Option(help="table, markdown, latex, csv or json.")
    ] = "table",
    choices: Annotated[
        bool,
        Option("--choices", help="What was chosen on validation nodes, and what next."),
    ] = False,
    seeds: Annotated[
        int | None, Option(min=1, help="Number of seeds instead of the recipe's own.")
    ] = None,
    results: ResultsFolder = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Show what is stored for a recipe: paper, ours, difference."""
    messages.quiet = quiet
    write = lookup("format", format, formats(_width()))
    if results != Path("results") and not results.is_dir():
        raise InvalidInput(f"--results {results} given; there is no such folder.")
    evidence = gather_evidence(load_recipe(recipe), Store(results), seeds=seeds)
    sheet = choices_sheet(evidence) if choices else accuracy_sheet(evidence)
    print_text(write(sheet))
    for sentence in gaps(evidence, recipe):
        messages.note(sentence)


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _UNLIMITED
