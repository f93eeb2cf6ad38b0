"""``gsebo show``: a recipe's table, beside the paper's, from stored results."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from gsebo.cli.options import Quiet, Recipe, RecipeSeeds, ResultsFolder
from gsebo.cli.output import messages, print_text
from gsebo.errors import InvalidInput
from gsebo.experiments import Store, load_recipe
from gsebo.lookup import lookup
from gsebo.report import accuracy_sheet, choices_sheet, gaps, gather_evidence
from gsebo.report.formats import formats


def show(
    recipe: Recipe,
    format: Annotated[
        str, Option(help="table, markdown, latex, csv or json.")
    ] = "table",
    choices: Annotated[
        bool,
        Option("--choices", help="What was chosen on validation nodes, and what next."),
    ] = False,
    seeds: RecipeSeeds = None,
    results: ResultsFolder = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Show what is stored for a recipe: paper, ours, difference."""
    messages.quiet = quiet
    # No table is cut when the output is a file or a pipe.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
    write = lookup("format", format, formats(width))
    if results != Path("results") and not results.is_dir():
        raise InvalidInput(f"--results {results} given; there is no such folder.")
    evidence = gather_evidence(load_recipe(recipe), Store(results), seeds=seeds)
    sheet = choices_sheet(evidence) if choices else accuracy_sheet(evidence)
    print_text(write(sheet))
    for sentence in gaps(evidence, recipe):
        messages.note(sentence)
