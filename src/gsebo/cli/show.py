"""``gsebo show`` and ``gsebo report``: stored results, or a model, to look at."""

import os
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
    require_new,
)
from gsebo.cli.output import messages, print_text
from gsebo.errors import InvalidInput
from gsebo.experiments import ShippedResults, Store, load_recipe
from gsebo.files import check_writable, write_atomically
from gsebo.names import lookup
from gsebo.report import Evidence, accuracy_sheet, choices_sheet, gaps, gather_evidence
from gsebo.report.formats import formats
from gsebo.version import __version__

_OWN = Path("results")

StoredFolder = Annotated[
    Path | None,
    Option(
        "--results",
        metavar="DIR",
        envvar="GSEBO_RESULTS",
        help="Folder of the stored results; by default the folder results here, or "
        "what came with gsebo where there is none.",
        show_default=False,
    ),
]
Shipped = Annotated[
    bool, Option("--shipped", help="What came with gsebo, whatever else is stored.")
]


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
    results: StoredFolder = None,
    shipped: Shipped = False,
    quiet: Quiet = False,
) -> None:
    """Show what is stored for a recipe: paper, ours, difference.

    What came with gsebo and what you stored yourself are never in one table.
    """
    messages.quiet = quiet
    # No table is cut when the output is a file or a pipe.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
    write = lookup("format", format, formats(width))
    if results is not None and not results.is_dir():
        raise InvalidInput(f"--results {results} given; there is no such folder.")
    asked = load_recipe(recipe, metric=metric)
    store = _stored(results, shipped)
    evidence = gather_evidence(asked, store, seeds=seeds)
    if not _tells_something(evidence, choices):
        raise InvalidInput(_nothing_stored(store, f"of {recipe} ", recipe))
    sheet = choices_sheet(evidence) if choices else accuracy_sheet(evidence)
    print_text(write(sheet))
    _note_source(store)
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
    results: StoredFolder = None,
    shipped: Shipped = False,
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
        _write_results_page(_stored(results, shipped), output)
    else:
        _write_model_page(model, output, data_dir)


def _stored(results: Path | None, shipped: bool) -> Store | ShippedResults:
    """What is asked for, else the user's own, else what came with gsebo."""
    ours = ShippedResults()
    if shipped and not ours.present:
        raise InvalidInput(
            "--shipped given; this gsebo runs from a source tree, which has no results "
            "inside: expected --results DIR, as the folder results of that tree."
        )
    if shipped or (results is None and not os.path.lexists(_OWN) and ours.present):
        return ours
    return Store(_OWN if results is None else results)


def _tells_something(evidence: Evidence, choices: bool) -> bool:
    """Whether a table would have a figure, or else a sentence would say why not."""
    plan = evidence.plan
    if choices:
        searched = (choice.tried[0].seeds for choice in plan.choices.values())
        return any(searched) or not plan.first
    return any(evidence.results.values()) or bool(evidence.failed or plan.hopeless)


def _nothing_stored(store: Store | ShippedResults, of: str, recipe: str) -> str:
    """Say where nothing is, and what would change that."""
    run = f"`gsebo run {recipe}` makes some, and --results DIR names another folder"
    if isinstance(store, ShippedResults):
        return f"no results {of}came with gsebo; expected some: {run}."
    more = ", --shipped shows what came with gsebo" if ShippedResults().present else ""
    return f"no results {of}are stored in {store.folder}; expected some: {run}{more}."


def _note_source(store: Store | ShippedResults) -> None:
    if isinstance(store, ShippedResults):
        messages.note(
            f"These results came with gsebo {__version__}; those of your own runs are "
            "kept and shown apart."
        )


def _write_results_page(store: Store | ShippedResults, output: Path) -> None:
    if not store.results():
        raise InvalidInput(_nothing_stored(store, "", "table1"))
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
    _note_source(store)
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
