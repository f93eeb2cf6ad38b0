"""``gsebo results``: what is stored, and whether it is whole."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from gsebo.cli.options import Json, ResultsFolder, command_group
from gsebo.cli.output import messages, print_json, print_table
from gsebo.errors import InvalidInput
from gsebo.experiments import Result, Store, load_recipe, make_survey, recipe_names
from gsebo.experiments.store import (
    FileReport,
    Migration,
    check_results,
    leftovers,
    migrate,
    put_in_order,
)

results_app = command_group("See and check the stored results.", "results verify")


@results_app.command("list", epilog="[bold]Example:[/bold] gsebo results list")
def list_results(results: ResultsFolder = Path("results"), json: Json = False) -> None:
    """Show how much of each recipe is stored."""
    store = Store(results)
    names = recipe_names()
    known = store.results()
    rows = [_standing(name, known) for name in names]
    unknown = dict.fromkeys(("planned", "stored", "failed", "missing"))
    for report in check_results(store):
        if report.path.stem not in names:
            # Its recipe is not known, because it is the user's own.
            counts = {**unknown, "stored": report.ok, "failed": report.failed}
            remark = "not a recipe of the package"
            rows.append({"recipe": report.path.stem, **counts, "remark": remark})
    if json:
        print_json({"recipes": rows})
        return
    print_table(
        f"Results in {results}",
        ("recipe", ">stored / planned", ">failed", ">missing", "remark"),
        (
            (
                row["recipe"],
                f"{row['stored']} / {row['planned']}".replace("None", "?"),
                row["failed"],
                row["missing"],
                row["remark"],
            )
            for row in rows
        ),
    )


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
    store = _existing(results)
    if fix:
        put_in_order(store)
    reports, left = check_results(store), leftovers(store)
    if json:
        files = [_as_json(report) for report in reports]
        print_json({"files": files, "leftovers": [str(path) for path in left]})
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
    done = migrate(_existing(results))
    if json:
        print_json({"files": [_as_json(one) for one in done]})
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


def _existing(folder: Path) -> Store:
    if not folder.is_dir():
        raise InvalidInput(f"--results {folder} given; there is no such folder.")
    return Store(folder)


def _as_json(report: FileReport | Migration) -> dict[str, Any]:
    return {"file": report.path.name} | {
        name: value for name, value in asdict(report).items() if name != "path"
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
        if report.unfinished:
            messages.note(
                f"{report.path}: the last line is half-written; --fix takes it away, "
                "and its trial runs again."
            )
        if report.duplicates:
            messages.note(
                f"{report.path}: lines {', '.join(map(str, report.duplicates))} are of "
                "trials that other lines stand for; --fix takes them away."
            )
        for problem in report.problems:
            messages.note(f"{report.path}: {problem}")
    for path in left:
        messages.note(f"{path} is what a killed process left; --fix takes it away.")
