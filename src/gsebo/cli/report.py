"""``gsebo report``: all tables and figures as one page of HTML, from stored results."""

from pathlib import Path
from typing import Annotated

from typer import Option

from gsebo.cli.options import Quiet, ResultsFolder
from gsebo.cli.output import messages
from gsebo.errors import InvalidInput
from gsebo.experiments import Store
from gsebo.files import check_writable, write_atomically
from gsebo.report.page.results import build_page


def report(
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE", help="The page.")
    ] = Path("report.html"),
    results: ResultsFolder = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Write a page with all tables and figures; it needs no other file and no network.

    What is not stored yet is named in the page and here.
    """
    messages.quiet = quiet
    if output.is_dir():
        raise InvalidInput(f"-o {output} given, which is a folder; expected a file.")
    check_writable(output.parent)
    page = build_page(Store(results))
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
