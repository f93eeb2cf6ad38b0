"""The entry point: commands, and what becomes of errors, warnings and Ctrl-C."""

import errno
import gc
import io
import os
import platform
import re
import secrets
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast, final

import typer
from typer.core import TyperCommand, TyperGroup

from gsebo.cli.output import messages
from gsebo.cli.read_on import address, page_of
from gsebo.code_paths import fix_code_paths, set_reproducible
from gsebo.data.datasets.registry import cache_folder
from gsebo.errors import InvalidInput, escaped
from gsebo.names import imported
from gsebo.version import __version__

_MOST_THREADS = 4096
_BAD_INPUT = 2
_DEFECT = 70  # ``EX_SOFTWARE``
_INTERRUPTED = 130


def check_environment() -> None:
    """Raise where a variable has a value that keeps our kernels from running."""
    threads = os.environ.get("NUMBA_NUM_THREADS", "1")
    plain = re.fullmatch("[0-9]{1,5}", threads.strip())
    if not plain or not 1 <= int(threads) <= _MOST_THREADS:
        raise InvalidInput(
            f"the environment has NUMBA_NUM_THREADS={escaped(threads, longest=50)}; "
            f"expected a number from 1 to {_MOST_THREADS}, or that it is not set."
        )
    without = os.environ.get("NUMBA_DISABLE_JIT", "0")
    if without.strip() not in ("", "0"):
        raise InvalidInput(
            f"the environment has NUMBA_DISABLE_JIT={escaped(without, longest=50)}; "
            "expected that it is not set: all of gsebo's kernels are compiled."
        )


def make_usable() -> None:
    """Let the command run whatever streams and warnings it was started with."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # It was closed by whoever started us.
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            # A terminal without some letter gets its number.
            stream.reconfigure(errors="backslashreplace")
    if any("error" in option for option in sys.warnoptions):
        # Libraries that we load warn of each other; workers would inherit it.
        sys.warnoptions.clear()
        os.environ.pop("PYTHONWARNINGS", None)
        warnings.resetwarnings()
        for ignored in (DeprecationWarning, PendingDeprecationWarning, ImportWarning):
            warnings.simplefilter("ignore", ignored)


# What a system says of a disk or of rights is no defect of a program.
_OF_THE_SYSTEM = {
    *(errno.EACCES, errno.EDQUOT, errno.EIO, errno.ELOOP, errno.EMFILE),
    *(errno.ENAMETOOLONG, errno.ENFILE, errno.ENOSPC, errno.EPERM, errno.EROFS),
}


def _refusal_of_the_system(error: Exception) -> str | None:
    """Say what the system refused; ``None`` where it is not to blame."""
    if isinstance(error, RuntimeError) and "gloo" in str(error):
        return (
            "another process of the group ended or cannot be reached "
            f"({escaped(str(error), longest=200)}); expected all of them until the end."
        )
    if not isinstance(error, OSError) or error.errno not in _OF_THE_SYSTEM:
        return None
    reason = (error.strerror or str(error)).lower()
    place = "what is written" if error.filename is None else os.fsdecode(error.filename)
    return f"the system refused {escaped(place)} ({reason}); expected it to be usable."


def _log_folders() -> Iterator[Path]:
    # Whatever is broken here, there still is a place for temporary files.
    with suppress(Exception):
        yield cache_folder() / "logs"
    yield Path(tempfile.gettempdir())


def _write_log(error: Exception) -> Path | None:
    try:
        lines = traceback.format_exception(error)
    except Exception as another:
        # As with a memory that is full, or a message that cannot be made.
        lines = [f"{type(error).__name__}, whose traceback failed: {another!r}\n"]
    system = f"Python {platform.python_version()}, {platform.platform()}"
    text = f"gsebo {__version__}, {system}\n{sys.argv!r}\n\n{''.join(lines)}"
    name = f"defect-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    for folder in _log_folders():
        path = folder / f"{name}-{secrets.token_hex(4)}.log"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8", "backslashreplace"))
            return path
    return None


# What typer raises for wrong usage: click's, or that of the click inside typer.
_UsageError = cast(type[Exception], typer.BadParameter.__mro__[2])


class CommandInfo(NamedTuple):
    """What is known of a command before its module is loaded."""

    place: str  # ``"MODULE:NAME"`` of its function, or of a group of commands.
    help: str  # First paragraph of its help.
    example: str = ""  # What its help ends with; a group has its own.

    def load(self, name: str) -> Any:
        """Import the command."""
        found = imported(self.place)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(rich_markup_mode="rich", add_completion=False)
            example = f"[bold]Example:[/bold] gsebo {self.example}"
            alone.command(name, epilog=example)(found)
            found = alone
        command = typer.main.get_command(found)
        command.name = name
        return command


COMMANDS = {
    "suspects": CommandInfo(
        "gsebo.cli.suspects:suspects",
        "Rank the edges of a graph by how likely each is wrong, and say why.",
        "suspects edges.csv --nodes nodes.csv --page suspects.html",
    ),
    "fit": CommandInfo(
        "gsebo.cli.fit:fit",
        "Train a method on a graph and say how well it did and what it changed.",
        "fit cora --out model/",
    ),
    "compare": CommandInfo(
        "gsebo.cli.fit:compare",
        "Train several methods on the same graph with the same seeds.",
        "compare cora --methods vanilla,gsebo --seeds 3",
    ),
    "predict": CommandInfo(
        "gsebo.cli.predict:predict",
        "Predict the class of every node of a graph.",
        "predict model/ cora --out predictions.csv",
    ),
    "inspect": CommandInfo(
        "gsebo.cli.inspect:inspect",
        "Show which edges are suspicious, and which were weakened or strengthened.",
        "inspect model/ --top 5 --export edges.csv",
    ),
    "attack": CommandInfo(
        "gsebo.cli.attack:attack",
        "Change few edges of a graph so that a network goes wrong on it.",
        "attack cora --kind prbcd --budget 5% --out attacked.npz",
    ),
    "run": CommandInfo(
        "gsebo.cli.run:run_recipe",
        "Run the trials of a recipe that are not stored yet, and then those of its "
        "parts.",
        "run table1 --seeds 10 --workers 2",
    ),
    "show": CommandInfo(
        "gsebo.cli.show:show",
        "Show what is stored for a recipe: paper, ours, difference.",
        "show table1 --format markdown",
    ),
    "report": CommandInfo(
        "gsebo.cli.show:report",
        "Write a page with all tables and figures; it needs no other file and no "
        "network.",
        "report -o report.html",
    ),
    "list": CommandInfo(
        "gsebo.cli.list:list_names",
        "List the methods, networks, datasets and so on that have a name.",
        "list backbones",
    ),
    "results": CommandInfo(
        "gsebo.cli.results:results_app", "See and check the stored results."
    ),
    "data": CommandInfo(
        "gsebo.cli.data:data_app", "Find, download, convert and check datasets."
    ),
}
"""The commands in the order of the help; only the one that is called is loaded."""


@final
class Commands(TyperGroup):
    """The group of all commands; the only place that turns errors into sentences."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # As the list of all shows them, without options.
        self.commands = {
            name: TyperCommand(name, help=info.help) for name, info in COMMANDS.items()
        }
        self._called = ""

    def resolve_command(
        self, ctx: Any, args: list[str]
    ) -> tuple[str | None, Any, list[str]]:
        """Load the command that is called."""
        name, known, rest = super().resolve_command(ctx, args)
        if name is None or known is None:
            return name, known, rest
        self._called = " ".join([name, *rest[:1]])
        # Before it imports torch.
        fix_code_paths()
        return name, COMMANDS[name].load(name), rest

    def main(self, *args: Any, **options: Any) -> Any:
        """Run and exit.

        The code is 0, or 2 with one sentence for bad input and where to read on, 70
        with one for a defect of gsebo itself, 130 for Ctrl-C.
        """
        options |= {"prog_name": "gsebo", "standalone_mode": False}
        self._called = ""
        with messages.shown():
            try:
                code = super().main(*args, **options)
            except InvalidInput as error:
                code = self._refused(str(error), error)
            except _UsageError as error:
                # Worded by a method; their plain text lacks the option's name.
                code = self._refused(cast(Any, error).format_message(), error)
            except (typer.Abort, KeyboardInterrupt):
                code = _INTERRUPTED
            except Exception as error:
                if messages.debug:
                    traceback.print_exception(error)
                if (refusal := _refusal_of_the_system(error)) is not None:
                    code = self._refused(refusal, error)
                else:
                    code = _defect(error)
        sys.exit(code or 0)

    def _refused(self, sentence: str, error: Exception) -> int:
        """Say what cannot be used, and where to read on; return the exit code."""
        messages.error(sentence)
        messages.read_on(address(page_of(error, self._called)))
        return _BAD_INPUT


app = typer.Typer(
    cls=Commands,
    name="gsebo",
    epilog="[bold]Example:[/bold] gsebo fit cora",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


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
    # Importing makes a million objects that all stay: looking for garbage among them
    # takes a tenth of the time of a short command.
    gc.set_threshold(50_000, 20, 50)
    make_usable()
    typer.main.get_command(app).main()


def _defect(error: Exception) -> int:
    """Say what happened that nobody thought of; return the exit code."""
    kind = escaped(str(error), longest=200) or "no message"
    where = _write_log(error)
    log = "no log could be written" if where is None else f"its traceback is in {where}"
    messages.error(
        f"gsebo has a defect ({type(error).__name__}: {kind}); {log}. Please report it "
        "with that file, or see it with gsebo --debug."
    )
    return _DEFECT
