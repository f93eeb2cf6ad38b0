"""The one error that means "what you gave cannot be used", and its warning."""

import json
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_LONGEST = 6000


class InvalidInput(ValueError):
    """What the user gave cannot be used; the message says what was expected.

    The command line turns this into one sentence and exit code 2. Anything else that
    is raised is a defect of the library: exit code 70, and a log with its traceback.

    Whatever the message quotes, of files or names of files, it is one line that can be
    shown.

    Args:
        message: What was given, and what was expected.
        about: What was named, such as a method: the command line says where to read of
            it.
    """

    def __init__(self, message: str = "", *, about: str | None = None) -> None:
        shown = escaped(message, longest=len(message))
        if len(shown) > _LONGEST:
            # In the middle, where a long name is: both ends say what is wrong.
            half = _LONGEST // 2 - 1
            shown = f"{shown[:half]}…{shown[-half:]}"
        super().__init__(shown)
        self.about = about


class InputWarning(UserWarning):
    """What the user gave can be used, but they may not have meant it."""


_FILTERING = RLock()


@contextmanager
def without_warnings(kind: type[Warning], message: str = "") -> Iterator[None]:
    """Ignore warnings of a kind that begin with a message.

    What is ignored is the same for all threads, so that one after another says it.
    """
    with _FILTERING, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message, kind)
        yield


def escaped_json(text: str) -> str:
    r"""Text of JSON, with what a terminal obeys written as JSON writes it.

    >>> print(escaped_json('["\x9b2J"]'))
    ["\u009b2J"]
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(
        one
        if one == "\n" or unicodedata.category(one)[0] != "C"
        else json.dumps(one)[1:-1].replace("\x7f", r"\u007f")
        for one in text
    )


def escaped(text: str, *, longest: int = 2000) -> str:
    r"""Text from outside as it can be shown: without codes that a terminal obeys.

    >>> print(escaped("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    shown = "".join(
        one.encode("unicode_escape", "surrogatepass").decode("ascii")
        # The last two end a line, though no terminal obeys them.
        if (kind := unicodedata.category(one))[0] == "C" or kind in ("Zl", "Zp")
        else one
        for one in text[: longest + 1]
    )
    return shown if len(text) <= longest else f"{shown[:longest]}…"
