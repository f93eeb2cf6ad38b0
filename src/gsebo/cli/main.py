"""The entry point: commands, and what becomes of errors, warnings and Ctrl-C."""

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, cast, final

import typer
from typer.core import TyperGroup

from gsebo.cli.compare import compare
from gsebo.cli.data import data_app
from gsebo.cli.defects import DEFECT, defect_in_words, refusal_of_the_system
from gsebo.cli.environment import check_environment, make_usable
from gsebo.cli.fit import fit
from gsebo.cli.inspect import inspect
from gsebo.cli.list import list_names
from gsebo.cli.output import messages, one_line
from gsebo.cli.predict import predict
from gsebo.cli.report import report
from gsebo.cli.results import results_app
from gsebo.cli.run import run as run_recipe
from gsebo.cli.show import show
from gsebo.code_paths import fix_code_paths, set_reproducible
from gsebo.errors import InvalidInput
from gsebo.version import __version__

_INTERRUPTED = 130
_BAD_INPUT = 2

# What typer raises for wrong usage: click's, or that of the click inside typer.
_UsageError = cast(type[Exception], typer.BadParameter.__mro__[2])


@final
class Commands(TyperGroup):
    """The group of all commands; the only place that turns errors into sentences."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and exit.

        The code is 0, or 2 with one sentence for bad input, 70 with one for a defect
        of gsebo itself, 130 for Ctrl-C.
        """
        with messages.shown():
            try:
                code = super().main(
                    args=args, prog_name="gsebo", standalone_mode=False, **extra
                )
            except (InvalidInput, _UsageError) as error:
                messages.error(_sentence(error))
                code = _BAD_INPUT
            except (typer.Abort, KeyboardInterrupt):
                code = _INTERRUPTED
            except Exception as error:
                code = _unforeseen(error)
        sys.exit(code or 0)


app = typer.Typer(
    cls=Commands,
    name="gsebo",
    help="Learn how strongly each edge of a graph should count.",
    epilog="[bold]Example:[/bold] gsebo fit cora",
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("fit", epilog="[bold]Example:[/bold] gsebo fit cora --out model/")(fit)
app.command(
    "compare",
    epilog="[bold]Example:[/bold] gsebo compare cora --methods vanilla,gsebo --seeds 3",
)(compare)
app.command(
    "predict",
    epilog="[bold]Example:[/bold] gsebo predict model/ cora --out predictions.csv",
)(predict)
app.command(
    "inspect",
    epilog="[bold]Example:[/bold] gsebo inspect model/ --top 5 --export edges.csv",
)(inspect)
app.command(
    "run", epilog="[bold]Example:[/bold] gsebo run table1 --seeds 10 --workers 2"
)(run_recipe)
app.command("show", epilog="[bold]Example:[/bold] gsebo show table1 --format markdown")(
    show
)
app.command("report", epilog="[bold]Example:[/bold] gsebo report -o report.html")(
    report
)
app.command("list", epilog="[bold]Example:[/bold] gsebo list backbones")(list_names)
app.add_typer(results_app, name="results")
app.add_typer(data_app, name="data")


@app.callback(invoke_without_command=True)
def gsebo(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of a defect of gsebo itself."),
    ] = False,
    reproducible: Annotated[
        bool,
        typer.Option(
            "--reproducible",
            help="The same bits on every x86-64 processor with AVX2; slower where "
            "features are dense.",
        ),
    ] = False,
) -> None:
    """Learn how strongly each edge of a graph should count."""
    messages.debug = debug
    if reproducible:
        set_reproducible()
    if version:
        print(f"gsebo {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        return
    check_environment()


def run() -> None:
    """Run the command line; what ``gsebo`` and ``python -m gsebo`` call."""
    # Before a command imports torch.
    fix_code_paths()
    make_usable()
    typer.main.get_command(app).main()


def _unforeseen(error: Exception) -> int:
    """Say what happened that nobody thought of; return the exit code."""
    if messages.debug:
        traceback.print_exception(error)
    if (refusal := refusal_of_the_system(error)) is not None:
        messages.error(refusal)
        return _BAD_INPUT
    messages.error(defect_in_words(error))
    return DEFECT


def _sentence(error: Exception) -> str:
    """Say what was wrong, on one line."""
    if isinstance(error, InvalidInput):
        return one_line(str(error))
    # Usage errors are worded by a method; their plain text lacks the option's name.
    return one_line(cast(Any, error).format_message())
