"""What is fuzzed: one kind of input, and what has to hold of it."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, final

from hypothesis.strategies import SearchStrategy

Draw = Callable[[SearchStrategy[Any]], Any]
"""Draws a value from a strategy of Hypothesis."""


class Violation(Exception):
    """Something that must not happen, in words."""


class Target(ABC):
    """One kind of input.

    A case is drawn, written into an empty folder and read. ``read`` returns where the
    input is taken, and raises ``InvalidInput`` where it is refused. Whatever else it
    raises is a violation, and so is a folder that was changed.

    Attributes:
        name: On the command line.
        share: How many cases it gets beside the others.
        may_leave: Names of files that reading may leave behind.
        may_change: Whether reading may change what it accepts.
    """

    name: ClassVar[str]
    share: ClassVar[int] = 1
    may_leave: ClassVar[frozenset[str]] = frozenset()
    may_change: ClassVar[bool] = False

    def prepare(self, folder: Path) -> None:
        """Write what cases start from, once, in a process of its own.

        Args:
            folder: Empty.
        """
        del folder

    def begin(self, folder: Path) -> None:
        """Read what was prepared, in each process that runs cases.

        Args:
            folder: What :meth:`prepare` has written.
        """
        del folder

    @abstractmethod
    def draw(self, draw: Draw) -> Any:
        """Draw a case: plain values, whose ``repr`` says what it is."""

    def write(self, case: Any, place: Path) -> None:
        """Write the files of a case.

        Args:
            case: As it was drawn.
            place: An empty folder.
        """
        del case, place

    @abstractmethod
    def read(self, case: Any, place: Path) -> None:
        """Give a case to gsebo and check what becomes of it.

        Args:
            case: As it was drawn.
            place: With its files.

        Raises:
            InvalidInput: It is refused, as it may be.
            Violation: It is accepted and should not have been.
        """


@final
class Originals:
    """Folders that cases are made from, each in one kind of the same thing.

    Args:
        folder: Has a folder for each kind.
    """

    def __init__(self, folder: Path) -> None:
        self.folders = {each.name: each for each in sorted(folder.iterdir())}
        self.files = {
            name: {
                str(path.relative_to(each)): path.read_bytes()
                for path in sorted(each.rglob("*"))
                if path.is_file()
            }
            for name, each in self.folders.items()
        }

    def copy(self, kind: str, place: Path) -> Path:
        """Copy one of them."""
        return Path(shutil.copytree(self.folders[kind], place / "copy"))


def require(holds: bool, what: str) -> None:
    """Raise unless what was accepted is as it has to be.

    Args:
        holds: Whether it is.
        what: What it should be.
    """
    if not holds:
        raise Violation(f"silently accepted: not {what}")
