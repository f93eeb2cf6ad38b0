"""``gsebo results``: what is stored, and whether it is whole."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from gsebo.cli.options import DataDir, Json, ResultsFolder, command_group
from gsebo.cli.output import messages, print_json, print_table, progress_bar
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

if TYPE_CHECKING:
    from gsebo.experiments.rerun import Draw, Rerun

_LONGEST = 60.0

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
    if not results.is_dir():
        messages.note(
            f"There is no folder {results} yet: `gsebo run RECIPE` makes it, and "
            "`gsebo show RECIPE --shipped` shows what came with gsebo."
        )
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
    rerun: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Run so many stored trials again, drawn at random, and compare. "
            "Nothing is stored.",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        Option(metavar="NAME", help="Of --rerun: draw from this recipe's file only."),
    ] = None,
    longest: Annotated[
        float | None,
        Option(
            min=0.0,
            metavar="SECONDS",
            help="Of --rerun: draw no trial whose stored time is longer; 60 by "
            "default.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        Option(min=0, help="Of --rerun: which trials are drawn; 0 by default."),
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Check every line of every file; exit code 1 if something is wrong.

    Also named are trials that would be another fit today, because a default of the
    method has changed since. With --rerun, some trials are run again: each has to be
    equal in every figure or, where the processor, a library or the source is another
    than then, within three standard deviations of the seeds of its cell.
    """
    _check_options(rerun, fix, {"recipe": recipe, "longest": longest, "seed": seed})
    store = _existing(results)
    seed, longest = seed or 0, _LONGEST if longest is None else longest
    draw = None if rerun is None else _drawn(store, rerun, seed, longest, recipe)
    if fix:
        put_in_order(store)
    reports, left = check_results(store), leftovers(store)
    sound = not left and all(report.sound for report in reports)
    if not json:
        _print(results, reports, left)
    content: dict[str, Any] = {
        "files": [_as_json(report) for report in reports],
        "leftovers": [str(path) for path in left],
    }
    if draw is not None:
        done = _run_again(store, draw, data_dir, quiet=json)
        sound = sound and all(one.holds for one in done)
        content["rerun"] = {
            "seed": seed,
            "longest": longest,
            "eligible": draw.eligible,
            "longer": draw.longer,
            "elsewhere": draw.elsewhere,
            "trials": [_rerun_as_json(one) for one in done],
        }
        if not json:
            _print_reruns(done, draw, longest)
    if json:
        print_json(content)
    if not sound:
        raise typer.Exit(1)


def _check_options(rerun: int | None, fix: bool, others: dict[str, Any]) -> None:
    if rerun is not None and fix:
        raise InvalidInput(
            "--fix and --rerun given; expected one of them: what is run again is "
            "compared with lines that stay as they are."
        )
    for name, value in others.items():
        if rerun is None and value is not None:
            raise InvalidInput(
                f"--{name} {value} given without --rerun; expected --rerun N too."
            )


def _drawn(
    store: Store, number: int, seed: int, longest: float, recipe: str | None
) -> "Draw":
    # Only those who run something wait for the libraries.
    from gsebo.experiments.rerun import draw_trials

    draw = draw_trials(store, number, seed=seed, longest=longest, recipe=recipe)
    if not draw.trials:
        raise InvalidInput(
            f"--rerun {number} given; expected stored trials that took no longer than "
            f"{longest:g} s on a device that is here, and there are none "
            f"({draw.longer} took longer, {draw.elsewhere} ran on another)."
        )
    return draw


def _run_again(
    store: Store, draw: "Draw", data_dir: Path | None, *, quiet: bool
) -> list["Rerun"]:
    from gsebo.experiments.rerun import run_again

    messages.release()
    done: list[Rerun] = []
    with progress_bar(quiet=quiet) as bar:
        for one in run_again(draw, store, data_dir):
            done.append(one)
            bar.report("Trials run again", len(done), len(draw.trials))
    return done


def _rerun_as_json(one: "Rerun") -> dict[str, Any]:
    from gsebo.experiments.rerun import score_figures

    return {
        "recipe": one.recipe,
        "id": one.stored.key,
        "trial": one.stored.trial.content(),
        "verdict": one.verdict,
        "differing": one.differing,
        "changed": one.changed,
        "stored": score_figures(one.stored),
        "again": score_figures(one.again),
        "spread": one.spread,
        "error": one.again.error,
    }


def _print_reruns(done: list["Rerun"], draw: "Draw", longest: float) -> None:
    from gsebo.experiments.rerun import score_figures

    rows = []
    for one in done:
        # The first is what a trial is run for.
        name = next(iter(score_figures(one.stored)))
        before, now = (
            score_figures(each).get(name) for each in (one.stored, one.again)
        )
        rows.append(
            (
                one.recipe,
                one.stored.trial,
                name.replace("_", " "),
                before,
                now,
                one.verdict,
                ", ".join(one.differing),
                ", ".join(one.changed),
            )
        )
    heads = ("recipe", "trial", "figure", ">stored", ">again", "verdict", "differing")
    print_table("Trials run again", (*heads, "changed since"), rows)
    verdicts = Counter(one.verdict for one in done)
    counts = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())
    messages.note(
        f"{len(done)} of {draw.eligible} trials run again: {counts}. Not drawn from: "
        f"{draw.longer} that took longer than {longest:g} s, {draw.elsewhere} that ran "
        "on a device that is not here."
    )
    for one in done:
        what = f"{one.stored.key} ({one.recipe}): {one.verdict}"
        if one.again.error is not None:
            messages.note(f"{what}: {one.again.error}")
        elif one.differing:
            messages.note(f"{what}: {_changes_in_words(one.changed)}")


def _changes_in_words(changed: Mapping[str, str | None]) -> str:
    """Say what may be the cause.

    >>> _changes_in_words({"torch": "2.11.0", "commit": None})
    'torch was 2.11.0, commit is not known'
    """
    return (
        ", ".join(
            f"{name} is not known" if before is None else f"{name} was {before}"
            for name, before in changed.items()
        )
        or "nothing else has changed since"
    )


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
