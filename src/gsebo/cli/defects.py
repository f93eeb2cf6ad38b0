"""What nobody foresaw: one sentence that asks for a report, and a log for it."""

import errno
import os
import platform
import secrets
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from gsebo.errors import escaped
from gsebo.version import __version__

DEFECT = 70
"""Exit code of a program that has a defect: ``EX_SOFTWARE``."""

# What a system says of a disk or of rights is no defect of a program.
_OF_THE_SYSTEM = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EIO,
    errno.ELOOP,
    errno.EMFILE,
    errno.ENAMETOOLONG,
    errno.ENFILE,
    errno.ENOSPC,
    errno.EPERM,
    errno.EROFS,
}


def refusal_of_the_system(error: Exception) -> str | None:
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


def defect_in_words(error: Exception) -> str:
    """Say that something is wrong with the program itself; write a log."""
    kind = escaped(str(error), longest=200) or "no message"
    where = _write_log(error)
    log = "no log could be written" if where is None else f"its traceback is in {where}"
    return (
        f"gsebo has a defect ({type(error).__name__}: {kind}); {log}. Please report it "
        "with that file, or see it with gsebo --debug."
    )


def _write_log(error: Exception) -> Path | None:
    content = _log(error).encode("utf-8", "backslashreplace")
    name = f"defect-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    for folder in _folders():
        path = folder / f"{name}-{secrets.token_hex(4)}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
        except OSError:
            continue
        return path
    return None


def _folders() -> Iterator[Path]:
    try:
        # Not at the top: it loads torch.
        from gsebo.data.locate import cache_folder

        yield cache_folder() / "logs"
    except Exception:
        # Whatever is broken here, there still is a place for temporary files.
        pass
    yield Path(tempfile.gettempdir())


def _log(error: Exception) -> str:
    try:
        lines = traceback.format_exception(error)
    except Exception as another:
        # As with a memory that is full, or a message that cannot be made.
        lines = [f"{type(error).__name__}, whose traceback failed: {another!r}\n"]
    return "".join(
        (
            f"gsebo {__version__}, Python {platform.python_version()}, "
            f"{platform.platform()}\n",
            f"{sys.argv!r}\n\n",
            *lines,
        )
    )
