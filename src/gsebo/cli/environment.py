"""Environment variables and streams that would break the command before it begins."""

import io
import os
import sys
import warnings
from pathlib import Path

from gsebo.errors import InvalidInput, escaped

_MOST_THREADS = 4096


def check_environment() -> None:
    """Raise where a variable keeps our kernels from running.

    Raises:
        InvalidInput: One has a value that the libraries cannot use.
    """
    threads = os.environ.get("NUMBA_NUM_THREADS")
    if threads is not None and not _is_count(threads):
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


def _is_count(text: str) -> bool:
    digits = text.strip()
    plain = digits.isascii() and digits.isdigit() and len(digits) < 6
    return plain and 1 <= int(digits) <= _MOST_THREADS
