"""Tables in text files and Parquet files, read by pyarrow, some rows at a time."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

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

_TYPES = {
    INTEGER: pa.int64(),
    NUMBER: pa.float32(),
    TEXT: pa.string(),
    TRUTH: pa.bool_(),
}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_LINE = 2**28
_DELIMITERS = "\t,; "
_NAMED_DELIMITERS = {"\\t": "\t", "tab": "\t", "space": " "}
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]+\s*")
# What pyarrow takes for a whole number, and nobody else means as one.
_HEXADECIMAL = r"^\s*[+-]?0[xX]"


@final
class _LineBlock(NamedTuple):
    """Some lines of a file, in full, without what ends the last one."""

    content: bytes
    # Number of the first line, counted from 1, and how many there are.
    first: int
    lines: int
    # Bytes of the file read up to here, and whether it ends within the last line.
    consumed: int
    cut_off: bool


def _line_blocks(path: Path, block_bytes: int) -> Iterator[_LineBlock]:
    """Read a file; empty lines at its end and a byte order mark are left out."""
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
                            yield _LineBlock(before, number, gap, consumed, False)
                        _refuse_empty(number + gap, path)
                    yield _LineBlock(content, number, lines, consumed, cut_off)
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


@final
class CSVFile(TableFile):
    """A text file; its first line names the columns unless it is all numbers."""

    unit = "line"

    def __init__(self, path: Path, delimiter: str | None, block_bytes: int) -> None:
        self.path = path
        self._block_bytes = block_bytes
        opening: list[bytes] = []
        for block in _line_blocks(path, block_bytes):
            opening += block.content.split(b"\n", 2)[:2]
            if len(opening) > 1:
                break
        line = self._checked_header(opening)
        self._delimiter = _delimiter_of(line, delimiter)
        fields = self._fields(line)
        self.named = not all(map(_WHOLE_NUMBER.fullmatch, fields))
        if self.named:
            self.columns = tuple(field.strip() for field in fields)
            opening = opening[1:]
        else:
            self.columns = tuple(f"column {n + 1}" for n in range(len(fields)))
        if (twice := self._repeated_name()) is not None:
            raise InvalidInput(
                f"line 1 of {path} names two columns {twice!r:.40}: expected each "
                "name once."
            )
        self._first_row = self._fields(_decoded(opening[0])) if opening else []

    def _checked_header(self, opening: list[bytes]) -> str:
        if not opening:
            raise InvalidInput(f"{self.path} is empty: expected rows.")
        line, where = _decoded(opening[0]).rstrip("\r"), f"line 1 of {self.path}"
        if "\0" in line:
            raise InvalidInput(
                f"{where} holds a null character: expected text in UTF-8."
            )
        if line.count('"') % 2:
            raise InvalidInput(
                f"{where} opens a quote that it does not close: expected quotes in "
                "pairs."
            )
        if "\r" in line:
            raise InvalidInput(
                f"{where} holds a carriage return: expected lines that end in a line "
                "feed."
            )
        return line

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
        rows, size = 0, self.path.stat().st_size
        for block in _line_blocks(self.path, self._block_bytes):
            if self.named and block.first == 1:
                _, _, content = block.content.partition(b"\n")
                block = block._replace(content=content, first=2, lines=block.lines - 1)
            if block.lines:
                yield from self._rows_of(block, kinds)
                rows += block.lines
            progress(f"reading {self.path.name}", block.consumed, size)
        if not rows:
            raise InvalidInput(f"{self.path} has only a header: expected rows.")

    def _rows_of(self, block: _LineBlock, kinds: dict[str, str]) -> Iterator[RowBatch]:
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
                f"line {block.first + before} of {self.path} opens a quote that it "
                f"does not close ({_decoded(lines[before])!r:.40}): expected quotes in "
                "pairs."
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
            if texts is not None and any(
                pc.any(pc.match_substring_regex(column, _HEXADECIMAL)).as_py()
                for column in texts.columns
            ):
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


def _closed_lines(content: bytes) -> int | None:
    """Lines before the first whose quotes are not in pairs, ``None`` if all are."""
    if b'"' not in content:
        return None
    lines = content.split(b"\n")
    return next((n for n, line in enumerate(lines) if line.count(b'"') % 2), None)


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", errors="replace")


def _delimiter_of(line: str, given: str | None) -> str:
    if not given:
        return next((mark for mark in _DELIMITERS if mark in line), ",")
    found = _NAMED_DELIMITERS.get(str(given), str(given))
    plain = found.isascii() and (found == "\t" or found.isprintable())
    if len(found) != 1 or found == '"' or not plain:
        raise InvalidInput(
            f"delimiter {given!r}: expected one character, or tab or space."
        )
    return found


# Numbers of a batch, in all of its columns.
_NUMBERS_AT_ONCE = 2**21
_BUFFER_BYTES = 2**20
# A damaged file may say anything of itself, and pyarrow may stumble over it anywhere.
_UNREADABLE = (
    pa.ArrowException,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    MemoryError,
    OverflowError,
)


@final
class ParquetFile(TableFile):
    """A Parquet file; its rows are counted from 1."""

    unit = "row"
    named = True

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as file:
            self._schema = file.schema_arrow
            self._rows = int(file.metadata.num_rows)
        self.columns = tuple(self._schema.names)
        if (twice := self._repeated_name()) is not None:
            raise InvalidInput(
                f"{path} has two columns {escaped(twice)!r:.40}: expected each name "
                "once."
            )
        if not self._rows:
            raise InvalidInput(f"{path} is empty: expected rows.")

    def kinds(self) -> dict[str, str | None]:
        return {field.name: _kind(field.type) for field in self._schema}

    def batches(self, kinds: dict[str, str], progress: Progress) -> Iterator[RowBatch]:
        at_once = max(_NUMBERS_AT_ONCE // len(kinds), 1)
        first = 1
        with self._opened() as file:
            batches = iter(
                file.iter_batches(at_once, columns=list(kinds), use_threads=False)
            )
            while (batch := self._next(batches)) is not None:
                # First row without a value in each column that has such and may not.
                gaps = {
                    name: batch.column(name).is_null().index(True).as_py()
                    for name, kind in kinds.items()
                    if kind != TEXT and batch.column(name).null_count
                }
                if gaps:
                    # Whoever reads the rows before may find fault with one of them.
                    batch = batch.slice(0, min(gaps.values()))
                columns = {
                    name: self._column(batch.column(name), name, kind)
                    for name, kind in kinds.items()
                }
                rows = batch.num_rows
                if rows:
                    yield RowBatch(self.path, self.unit, first, rows, columns)
                first += rows
                if gaps:
                    name = min(gaps, key=lambda name: gaps[name])
                    raise InvalidInput(
                        f"row {first} of {self.path} has no {name}: expected "
                        f"{EXPECTED[kinds[name]]}."
                    )
                progress(f"reading {self.path.name}", first - 1, self._rows)

    def _next(self, batches: Iterator[Any]) -> Any:
        try:
            batch = next(batches, None)
            if batch is not None:
                batch.validate(full=True)
            return batch
        except _UNREADABLE as error:
            raise self._unreadable(error) from error

    def _column(self, column: Any, name: str, kind: str) -> Any:
        try:
            # Numbers are rounded to single precision, not refused.
            return column.cast(_TYPES[kind], safe=kind != NUMBER)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInput(
                f"{name} of {self.path} is of type {column.type}: expected "
                f"{EXPECTED[kind]} in each row ({escaped(str(error), longest=200)})."
            ) from error

    def _opened(self) -> Any:
        try:
            # Buffered: a column of a row group may be larger than the memory.
            return parquet.ParquetFile(
                self.path, buffer_size=_BUFFER_BYTES, pre_buffer=False
            )
        except _UNREADABLE as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> InvalidInput:
        return InvalidInput(
            f"{self.path} is no Parquet file that can be read "
            f"({escaped(str(error), longest=200)}): expected an undamaged one."
        )


def _kind(type_: Any) -> str | None:
    if pa.types.is_boolean(type_):
        return TRUTH
    if pa.types.is_integer(type_):
        return INTEGER
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return NUMBER
    if pa.types.is_dictionary(type_):
        return _kind(type_.value_type)
    return TEXT if pa.types.is_string(type_) else None
