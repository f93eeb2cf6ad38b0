"""Text files with one row per line, parsed by pyarrow, block by block."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from gsebo.data.formats.table_rows import (
    EXPECTED,
    INTEGER,
    NUMBER,
    TEXT,
    TRUTH,
    Progress,
    RowBatch,
    TableFile,
)
from gsebo.errors import InvalidInput, escaped

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


_TYPES = {
    INTEGER: pa.int64(),
    NUMBER: pa.float32(),
    TEXT: pa.string(),
    TRUTH: pa.bool_(),
}
_DELIMITERS = "\t,; "
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]+\s*")
# What pyarrow takes for a whole number, and nobody else means as one.
_HEXADECIMAL = r"^\s*[+-]?0[xX]"


@final
class CSVFile(TableFile):
    """A text file; its first line names the columns unless it is all numbers."""

    unit = "line"

    def __init__(self, path: Path, delimiter: str | None, block_bytes: int) -> None:
        self.path = path
        self._block_bytes = block_bytes
        opening = _first_lines(path, block_bytes)
        if not opening:
            raise InvalidInput(f"{path} is empty: expected rows.")
        if b"\0" in opening[0]:
            raise InvalidInput(
                f"line 1 of {escaped(str(path))} holds a null character: expected text "
                "in UTF-8."
            )
        line = _decoded(opening[0]).rstrip("\r")
        if line.count('"') % 2:
            raise InvalidInput(
                f"line 1 of {escaped(str(path))} opens a quote that it does not close: "
                "expected quotes in pairs."
            )
        if "\r" in line:
            raise InvalidInput(
                f"line 1 of {path} holds a carriage return: expected lines that end "
                "in a line feed."
            )
        self._delimiter = _checked(delimiter) if delimiter else _detected(line)
        fields = self._fields(line)
        self.named = not all(map(_WHOLE_NUMBER.fullmatch, fields))
        if self.named:
            self.columns = tuple(field.strip() for field in fields)
            opening = opening[1:]
        else:
            self.columns = tuple(f"column {n + 1}" for n in range(len(fields)))
        _check_distinct(self.columns, path)
        self._first_row = self._fields(_decoded(opening[0])) if opening else []

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def kinds(self) -> dict[str, str | None]:
        """What the first row holds; an empty field counts as a number."""
        found: dict[str, str | None] = dict.fromkeys(self.columns, NUMBER)
        for name, field in zip(self.columns, self._first_row, strict=False):
            if _WHOLE_NUMBER.fullmatch(field):
                found[name] = INTEGER
            elif not _fits(field or "0", NUMBER):
                found[name] = TEXT
        return found

    def batches(self, kinds: dict[str, str], progress: Progress) -> Iterator[RowBatch]:
        """Read these columns as these kinds."""
        rows = 0
        for block in line_blocks(self.path, self._block_bytes):
            if self.named and block.first == 1:
                block = _without_first_line(block)
            if block.lines:
                yield from self._rows_of(block, kinds)
                rows += block.lines
            progress(f"reading {self.path.name}", block.consumed, self.size)
        if not rows:
            raise InvalidInput(f"{self.path} has only a header: expected rows.")

    def _rows_of(self, block: LineBlock, kinds: dict[str, str]) -> Iterator[RowBatch]:
        before = _closed_lines(block.content)
        if before is not None:
            # A quote that stays open would take the lines that follow into its field.
            lines = block.content.split(b"\n")
            if before:
                content = b"\n".join(lines[:before])
                yield from self._rows_of(
                    block._replace(content=content, lines=before, cut_off=False), kinds
                )
            raise InvalidInput(
                f"line {block.first + before} of {escaped(str(self.path))} opens a "
                f"quote that it does not close ({_decoded(lines[before])!r:.40}): "
                "expected quotes in pairs."
            )
        table = self._parse(block.content, block.lines, kinds)
        if table is not None:
            yield self._batch(table, block.first)
            return
        lines = block.content.split(b"\n")
        good = self._count_good(lines, kinds)
        table = self._parse(b"\n".join(lines[:good]), good, kinds) if good else None
        if table is not None:
            # Whoever reads them may find fault with an earlier line than this.
            yield self._batch(table, block.first)
        cut_off = block.cut_off and good == len(lines) - 1
        fault = self._fault(_decoded(lines[good]), kinds, cut_off)
        raise InvalidInput(f"line {block.first + good} of {self.path} {fault}.")

    def _batch(self, table: Any, first: int) -> RowBatch:
        columns = {name: table[name].combine_chunks() for name in table.column_names}
        return RowBatch(self.path, self.unit, first, table.num_rows, columns)

    def _parse(self, content: bytes, lines: int, kinds: dict[str, str]) -> Any:
        """Parse lines; ``None`` if one of them does not fit."""
        # At the beginning of what it is given, pyarrow leaves such a mark out.
        if content.startswith(_BYTE_ORDER_MARK):
            return None
        if b"0x" in content or b"0X" in content:
            whole = {name: TEXT for name, kind in kinds.items() if kind == INTEGER}
            texts = self._parsed(content, whole) if whole else None
            if texts is not None and any(map(_any_hexadecimal, texts.columns)):
                return None
        table = self._parsed(content, kinds)
        # A carriage return makes other rows of lines.
        return table if table is not None and table.num_rows == lines else None

    def _parsed(self, content: bytes, kinds: dict[str, str]) -> Any:
        try:
            return arrow_csv.read_csv(
                pa.BufferReader(content),
                read_options=arrow_csv.ReadOptions(
                    use_threads=False,
                    block_size=len(content) + 1,
                    column_names=list(self.columns),
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiter, ignore_empty_lines=False
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types={name: _TYPES[kind] for name, kind in kinds.items()},
                    include_columns=list(kinds),
                    null_values=[],
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return None

    def _count_good(self, lines: list[bytes], kinds: dict[str, str]) -> int:
        """How many lines come before the first that does not fit, by halving."""
        good, bad = 0, len(lines)
        while bad - good > 1:
            middle = (good + bad) // 2
            part = lines[good:middle]
            if self._parse(b"\n".join(part), len(part), kinds) is None:
                bad = middle
            else:
                good = middle
        return good

    def _fault(self, text: str, kinds: dict[str, str], cut_off: bool) -> str:
        fields = self._fields(text)
        if len(fields) != len(self.columns):
            held = f"{len(fields)} field{'s' * (len(fields) != 1)}"
            if cut_off and len(fields) < len(self.columns):
                held += ", and the file ends in the middle of it"
            wanted = ", ".join(self.columns) if self.named else "as in the first line"
            return f"has {held}: expected {len(self.columns)} ({wanted:.80})"
        for name, field in zip(self.columns, fields, strict=True):
            kind = kinds.get(name, TEXT)
            if not _fits(field, kind):
                return f"holds {field!r:.40} as {name}: expected {EXPECTED[kind]}"
        return (
            f"cannot be read ({text!r:.40}): expected UTF-8, quotes in pairs and no "
            "carriage return within"
        )

    def _fields(self, line: str) -> list[str]:
        # A carriage return within a line would be refused by this reader too.
        plain = line.rstrip("\r").replace("\r", " ")
        usual = csv.field_size_limit(max(len(plain), 1))
        try:
            rows = list(csv.reader([plain], delimiter=self._delimiter))
        finally:
            csv.field_size_limit(usual)
        return rows[0] if rows else [""]


def _fits(field: str, kind: str) -> bool:
    """Whether a field is read as this kind."""
    if kind == INTEGER and re.match(_HEXADECIMAL, field):
        return False
    try:
        pa.array([field.strip()]).cast(_TYPES[kind])
    except pa.ArrowInvalid:
        return False
    return kind not in (INTEGER, NUMBER) or bool(field.strip())


def _any_hexadecimal(column: Any) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, _HEXADECIMAL)).as_py())


def _closed_lines(content: bytes) -> int | None:
    """Lines before the first whose quotes are not in pairs, ``None`` if all are."""
    if b'"' not in content:
        return None
    lines = content.split(b"\n")
    return next((n for n, line in enumerate(lines) if line.count(b'"') % 2), None)


def _first_lines(path: Path, block_bytes: int) -> list[bytes]:
    """The first two lines, or as many as there are."""
    lines: list[bytes] = []
    for block in line_blocks(path, block_bytes):
        lines += block.content.split(b"\n", 2)[:2]
        if len(lines) > 1:
            break
    return lines[:2]


def _without_first_line(block: LineBlock) -> LineBlock:
    _, _, content = block.content.partition(b"\n")
    return block._replace(content=content, first=2, lines=block.lines - 1)


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", errors="replace")


def _check_distinct(columns: tuple[str, ...], path: Path) -> None:
    for place, name in enumerate(columns):
        if name in columns[:place]:
            raise InvalidInput(
                f"line 1 of {path} names two columns {name!r:.40}: expected each "
                "name once."
            )


def _detected(line: str) -> str:
    return next((mark for mark in _DELIMITERS if mark in line), ",")


def _checked(delimiter: str) -> str:
    named = {"\\t": "\t", "tab": "\t", "space": " "}
    found = named.get(str(delimiter), str(delimiter))
    plain = found.isascii() and (found == "\t" or found.isprintable())
    if len(found) != 1 or found == '"' or not plain:
        raise InvalidInput(
            f"delimiter {delimiter!r}: expected one character, or tab or space."
        )
    return found
