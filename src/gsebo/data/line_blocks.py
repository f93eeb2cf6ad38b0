"""A text file in blocks of whole lines, each with the number of its first line."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn, final

from gsebo.errors import InvalidInput

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_LINE = 2**28


@final
class LineBlock(NamedTuple):
    """Some lines of a file, in full.

    Attributes:
        content: The lines, without what ends the last one.
        first: Number of the first line, counted from 1.
        lines: How many there are.
        consumed: Bytes of the file read up to here.
        cut_off: Whether the file ends here without the end of the line.
    """

    content: bytes
    first: int
    lines: int
    consumed: int
    cut_off: bool


def line_blocks(path: Path, block_bytes: int) -> Iterator[LineBlock]:
    """Read a file; empty lines at its end and a byte order mark are left out.

    Raises:
        InvalidInput: The file cannot be read, or a line is empty and others follow.
    """
    number, empty, consumed = 1, 0, 0
    try:
        with path.open("rb") as file:
            for block in _whole_lines(file, path, block_bytes):
                consumed += len(block)
                ended = block.count(b"\n")
                cut_off = not block.endswith(b"\n")
                content = block.rstrip(b"\r\n")
                if number == 1:
                    content = content.removeprefix(_BYTE_ORDER_MARK)
                if content:
                    if empty:
                        _refuse_empty(number - empty, path)
                    lines = content.count(b"\n") + 1
                    gap = _empty_line(content)
                    if gap is not None:
                        # What is wrong before it has to be found first.
                        before = b"\n".join(content.split(b"\n", gap)[:gap])
                        if gap:
                            yield LineBlock(before, number, gap, consumed, False)
                        _refuse_empty(number + gap, path)
                    yield LineBlock(content, number, lines, consumed, cut_off)
                    empty = ended + cut_off - lines
                else:
                    empty += ended
                number += ended
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}.") from error


def _whole_lines(file: BinaryIO, path: Path, block_bytes: int) -> Iterator[bytes]:
    rest = b""
    while piece := file.read(block_bytes):
        cut = piece.rfind(b"\n") + 1
        if cut:
            yield rest + piece[:cut]
            rest = piece[cut:]
        else:
            rest += piece
            if len(rest) > _LONGEST_LINE:
                raise InvalidInput(
                    f"{path} has a line of more than {_LONGEST_LINE} bytes: "
                    "expected a text file with one row per line."
                )
    if rest:
        yield rest


def _empty_line(content: bytes) -> int | None:
    """Number of lines before the first empty one, if there is one."""
    if content.startswith((b"\n", b"\r\n")):
        return 0
    found = [content.find(mark) for mark in (b"\n\n", b"\n\r\n")]
    first = min((place for place in found if place >= 0), default=None)
    return None if first is None else content.count(b"\n", 0, first) + 1


def _refuse_empty(line: int, path: Path) -> NoReturn:
    raise InvalidInput(
        f"line {line} of {path} is empty: expected a row, as more rows follow."
    )
