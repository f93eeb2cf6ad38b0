"""``gsebo results``: what is stored, and whether it is whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from gsebo.cli.ui.options import Json, ResultsFolder
from gsebo.cli.ui.output import messages, print_json, print_table
from gsebo.errors import InvalidInput
from gsebo.experiments import Result, Store, load_recipe, make_survey, recipe_names
from gsebo.experiments.migrate import Migration, migrate
from gsebo.experiments.verify import (
    FileReport,
    check_results,
    leftovers,
    put_in_order,
)

results_app = typer.Typer(
    add_completion=False,
    help="See and check the stored results.",
    epilog="[bold]Example:[/bold] gsebo results verify",
    rich_markup_mode="rich",
)


@results_app.callback(invoke_without_command=True)
def results_group(context: typer.Context) -> None:
    """See and check the stored results."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@results_app.command("list", epilog="[bold]Example:[/bold] gsebo results list")
def list_results(results: ResultsFolder = Path("results"), json: Json = False) -> None:
    """Show how much of each recipe is stored."""
    store = Store(results)
    names = recipe_names()
    known = store.results()
    rows = [_standing(name, known) for name in names]
    rows += [_own_file(r) for r in check_results(store) if r.path.stem not in names]
    if json:
        print_json({"recipes": rows})
        return
    print_table(
        f"Results in {results}",
        ("recipe", ">stored / planned", ">failed", ">missing", "remark"),
        (
            (
                row["recipe"],
                f"{_or_unknown(row['stored'])} / {_or_unknown(row['planned'])}",
                row["failed"],
                row["missing"],
                row["remark"],
            )
            for row in rows
        ),
    )


def _or_unknown(number: int | None) -> str:
    return "?" if number is None else str(number)


def _standing(name: str, known: Mapping[str, Result]) -> dict[str, Any]:
    survey = make_survey(load_recipe(name), known)
    search = survey.stage.recipe.name
    remarks = [f"the search {search} comes first"] if search != name else []
    remarks += survey.hopeless
    return {
        "recipe": name,
        "planned": survey.planned,
        "stored": survey.stored,
        "failed": len(survey.failed),
        "missing": survey.missing,
        "remark": "; ".join(remarks),
    }


def _own_file(report: FileReport) -> dict[str, Any]:
    """A file whose recipe is not known, because it is the user's own."""
    row = _unknown(report.path.stem, "not a recipe of the package")
    return {**row, "stored": report.ok, "failed": report.failed}


def _unknown(name: str, remark: str) -> dict[str, Any]:
    """A row of which not even the number of trials is known."""
    counts = dict.fromkeys(("planned", "stored", "failed", "missing"))
    return {"recipe": name, **counts, "remark": remark}


@results_app.command("verify", epilog="[bold]Example:[/bold] gsebo results verify")
def verify_results(
    results: ResultsFolder = Path("results"),
    fix: Annotated[
        bool,
        Option(
            "--fix",
            help="Take away duplicates and half-written last lines. A line that "
            "cannot be read is never taken away.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Check every line of every file; exit code 1 if something is wrong.

    Also named are trials that would be another fit today, because a default of the
    method has changed since.
    """
    if not results.is_dir():
        raise InvalidInput(f"--results {results} given; there is no such folder.")
    store = Store(results)
    if fix:
        put_in_order(store)
    reports, left = check_results(store), leftovers(store)
    if json:
        print_json(
            {
                "files": [_as_json(report) for report in reports],
                "leftovers": [str(path) for path in left],
            }
        )
    else:
        _print(results, reports, left)
    if left or not all(report.sound for report in reports):
        raise typer.Exit(1)


@results_app.command("migrate", epilog="[bold]Example:[/bold] gsebo results migrate")
def migrate_results(
    results: ResultsFolder = Path("results"), json: Json = False
) -> None:
    """Bring files of an older gsebo up to date; exit code 1 if one is damaged.

    Trials that GSEBO was fitted in say now which outer step that was: the paper's. A
    file with a line that is no result is left as it is.
    """
    if not results.is_dir():
        raise InvalidInput(f"--results {results} given; there is no such folder.")
    done = migrate(Store(results))
    if json:
        print_json({"files": [_migration_as_json(one) for one in done]})
    else:
        print_table(
            f"Results in {results}",
            ("file", ">lines", ">brought up to date", ">of these with a new id"),
            ((one.path.name, one.lines, one.migrated, one.renamed) for one in done),
        )
    for one in done:
        if one.problem is not None:
            messages.note(f"{one.path} is left as it is: {one.problem}")
    if any(one.problem for one in done):
        raise typer.Exit(1)


def _migration_as_json(done: Migration) -> dict[str, Any]:
    return {
        "file": done.path.name,
        "lines": done.lines,
        "migrated": done.migrated,
        "renamed": done.renamed,
        "problem": done.problem,
    }


def _as_json(report: FileReport) -> dict[str, Any]:
    return {
        "file": report.path.name,
        "lines": report.lines,
        "ok": report.ok,
        "failed": report.failed,
        "duplicates": list(report.duplicates),
        "unfinished": report.unfinished,
        "problems": list(report.problems),
    }


def _print(folder: Path, reports: list[FileReport], left: list[Path]) -> None:
    print_table(
        f"Results in {folder}",
        ("file", ">lines", ">ok", ">failed", ">duplicates", ">problems"),
        (
            (
                report.path.name,
                report.lines,
                report.ok,
                report.failed,
                len(report.duplicates),
                len(report.problems) + report.unfinished,
            )
            for report in reports
        ),
    )
    for report in reports:
        _explain(report)
    for path in left:
        messages.note(f"{path} is what a killed process left; --fix takes it away.")


def _explain(report: FileReport) -> None:
    if report.unfinished:
        messages.note(
            f"{report.path}: the last line is half-written; --fix takes it away, and "
            "its trial runs again."
        )
    if report.duplicates:
        messages.note(
            f"{report.path}: lines {', '.join(map(str, report.duplicates))} are of "
            "trials that other lines stand for; --fix takes them away."
        )
    for problem in report.problems:
        messages.note(f"{report.path}: {problem}")
