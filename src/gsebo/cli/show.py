"""``gsebo show`` and ``gsebo report``: stored results, or a model, to look at."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from gsebo.cli.options import (
    DataDir,
    Force,
    MetricOption,
    Quiet,
    Recipe,
    RecipeSeeds,
    ResultsFolder,
    require_new,
)
from gsebo.cli.output import messages, print_text
from gsebo.errors import InvalidInput
from gsebo.experiments import Store, load_recipe
from gsebo.files import check_writable, write_atomically
from gsebo.names import lookup
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
    metric: MetricOption = None,
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
    asked = load_recipe(recipe, metric=metric)
    evidence = gather_evidence(asked, Store(results), seeds=seeds)
    sheet = choices_sheet(evidence) if choices else accuracy_sheet(evidence)
    print_text(write(sheet))
    for sentence in gaps(evidence, recipe):
        messages.note(sentence)


def report(
    model: Annotated[
        Path | None,
        Argument(
            metavar="MODEL",
            help="Folder of a model: the page is about its edges then.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE", help="The page.")
    ] = Path("report.html"),
    force: Force = False,
    results: ResultsFolder = Path("results"),
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Write a page with all tables and figures; it needs no other file and no network.

    What is not stored yet is named in the page and here. With the folder of a model
    the page is about the edges of its graph instead.
    """
    messages.quiet = quiet
    if output.is_dir():
        raise InvalidInput(f"-o {output} given, which is a folder; expected a file.")
    require_new(output, force=force)
    check_writable(output.parent)
    if model is None:
        _write_results_page(Store(results), output)
    else:
        _write_model_page(model, output, data_dir)


def _write_results_page(store: Store, output: Path) -> None:
    # Draws figures, which takes long to load.
    from gsebo.report.page.results import build_page

    page = build_page(store)
    content = page.html.encode("utf-8")
    write_atomically(output, content)
    shown = sum(section.stored > 0 for section in page.sections)
    messages.note(
        f"{output}: {shown} of {len(page.sections)} recipes, "
        f"{len(content) / 1e6:.1f} MB."
    )
    for section in page.sections:
        for sentence in section.gaps:
            messages.note(f"{section.recipe.name}: {sentence}")


def _write_model_page(model: Path, output: Path, data_dir: Path | None) -> None:
    # Read models, which takes torch.
    from gsebo.report.page.graph_page import graph_page
    from gsebo.report.page.model_page import model_page

    page = model_page(model, data_dir=data_dir)
    content = graph_page(page).encode("utf-8")
    write_atomically(output, content)
    messages.note(f"{output}: {len(page.edges):,} edges, {len(content) / 1e6:.1f} MB.")
