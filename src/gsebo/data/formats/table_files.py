"""Tables in text files and Parquet files, read by pyarrow, some rows at a time."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from gsebo.data.formats.table_rows import (
    ColumnKind,
    Kinds,
    Progress,
    RowBatch,
    TableFile,
)
from gsebo.errors import InvalidInput, escaped

_TYPES = {
    ColumnKind.INTEGER: pa.int64(),
    ColumnKind.NUMBER: pa.float32(),
    ColumnKind.TEXT: pa.string(),
    ColumnKind.TRUTH: pa.bool_(),
}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_LINE = 2**28
# Rows whose fields say what a column holds, if those before are empty.
_ROWS_SEEN = 100
_EMPTY = (b"", b"\r")
_NO_ROW = "is empty: expected a row, as more rows follow"
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
    rest, number, consumed, ended = b"", 1, 0, False
    try:
        with path.open("rb") as file:
            while not ended:
                piece = file.read(block_bytes)
                consumed, ended = consumed + len(piece), not piece
                rest += piece
                whole = rest if ended else rest[: rest.rfind(b"\n") + 1]
                if not whole and len(rest) > _LONGEST_LINE:
                    raise InvalidInput(
                        f"{path} has a line of more than {_LONGEST_LINE} bytes: "
                        "expected a text file with one row per line."
                    )
                plain, rest = whole.rstrip(b"\r\n"), rest[len(whole) :]
                content = plain.removeprefix(_BYTE_ORDER_MARK if number == 1 else b"")
                if content:
                    lines = content.count(b"\n") + 1
                    cut_off = not whole.endswith(b"\n")
                    yield _LineBlock(content, number, lines, consumed, cut_off)
                    number += lines
                    # What follows the end of the last line are empty ones.
                    rest = whole[len(plain) :].partition(b"\n")[2] + rest
                elif whole:
                    # One empty line is as bad as several, should more rows follow.
                    rest = b"\n" + rest
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}.") from error


@final
class CSVFile(TableFile):
    """A text file; its first line names the columns unless it is all numbers."""

    unit = "line"
    typed = False

    def __init__(self, path: Path, delimiter: str | None, block_bytes: int) -> None:
        self.path = path
        self._block_bytes = block_bytes
        opening: list[bytes] = []
        for block in _line_blocks(path, block_bytes):
            opening += block.content.split(b"\n", _ROWS_SEEN)[:_ROWS_SEEN]
            if len(opening) > 1:
                break
        for number, line in enumerate(opening[:2], 1):
            if line in _EMPTY:
                self._refuse(number, _NO_ROW)
        header = self._checked_header(opening)
        self._delimiter = _delimiter_of(header, delimiter)
        fields = self._fields(header)
        self.named = not all(map(_WHOLE_NUMBER.fullmatch, fields))
        if self.named:
            self.columns = tuple(field.strip() for field in fields)
            opening = opening[1:]
        else:
            self.columns = tuple(f"column {n + 1}" for n in range(len(fields)))
        if (twice := self._repeated_name()) is not None:
            self._refuse(1, f"names two columns {twice!r:.40}: expected each name once")
        self._first_rows = [self._fields(_decoded(line)) for line in opening]

    def _checked_header(self, opening: list[bytes]) -> str:
        if not opening:
            raise InvalidInput(f"{self.path} is empty: expected rows.")
        line = _decoded(opening[0]).rstrip("\r")
        if "\0" in line:
            self._refuse(1, "holds a null character: expected text in UTF-8")
        if line.count('"') % 2:
            fault = "opens a quote that it does not close: expected quotes in pairs"
            self._refuse(1, fault)
        if "\r" in line:
            fault = "holds a carriage return: expected lines that end in a line feed"
            self._refuse(1, fault)
        return line

    def _refuse(self, line: int, fault: str) -> NoReturn:
        raise InvalidInput(f"line {line} of {self.path} {fault}.")

    def kinds(self) -> dict[str, ColumnKind | None]:
        """What the first row holds, of the first rows, in which a field is not empty.

        Where all are empty they count as numbers.
        """
        found: dict[str, ColumnKind | None] = dict.fromkeys(
            self.columns, ColumnKind.NUMBER
        )
        for place, name in enumerate(self.columns):
            fields = (row[place] for row in self._first_rows if place < len(row))
            field = next((field for field in fields if field.strip()), "0.0")
            if _WHOLE_NUMBER.fullmatch(field):
                found[name] = ColumnKind.INTEGER
            elif not _fits(field, ColumnKind.NUMBER):
                found[name] = ColumnKind.TEXT
        return found

    def batches(self, kinds: Kinds, progress: Progress) -> Iterator[RowBatch]:
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

    def _rows_of(self, block: _LineBlock, kinds: Kinds) -> Iterator[RowBatch]:
        if (broken := _first_broken(block.content)) is not None:
            before, fault = broken
            content = b"\n".join(block.content.split(b"\n")[:before])
            block = block._replace(content=content, lines=before, cut_off=False)
            if before:
                yield from self._rows_of(block, kinds)
            self._refuse(block.first + before, fault)
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
        self._refuse(block.first + good, fault)

    def _batch(self, table: Any, first: int) -> RowBatch:
        columns = {name: table[name].combine_chunks() for name in table.column_names}
        return RowBatch(self.path, self.unit, first, table.num_rows, columns, False)

    def _parse(self, content: bytes, lines: int, kinds: Kinds) -> Any:
        """Parse lines; ``None`` if one of them does not fit."""
        # At the beginning of what it is given, pyarrow leaves such a mark out.
        if content.startswith(_BYTE_ORDER_MARK):
            return None
        if b"0x" in content or b"0X" in content:
            whole = {
                name: ColumnKind.TEXT
                for name, kind in kinds.items()
                if kind == ColumnKind.INTEGER
            }
            texts = self._parsed(content, whole) if whole else None
            if texts is not None and any(
                pc.any(pc.match_substring_regex(column, _HEXADECIMAL)).as_py()
                for column in texts.columns
            ):
                return None
        table = self._parsed(content, kinds)
        # A carriage return makes other rows of lines.
        return table if table is not None and table.num_rows == lines else None

    def _parsed(self, content: bytes, kinds: Kinds) -> Any:
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

    def _count_good(self, lines: list[bytes], kinds: Kinds) -> int:
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

    def _fault(self, text: str, kinds: Kinds, cut_off: bool) -> str:
        fields = self._fields(text)
        if len(fields) != len(self.columns):
            held = f"{len(fields)} field{'s' * (len(fields) != 1)}"
            if cut_off and len(fields) < len(self.columns):
                held += ", and the file ends in the middle of it"
            wanted = ", ".join(self.columns) if self.named else "as in the first line"
            return f"has {held}: expected {len(self.columns)} ({wanted:.80})"
        for name, field in zip(self.columns, fields, strict=True):
            kind = kinds.get(name, ColumnKind.TEXT)
            if not _fits(field, kind):
                return f"holds {field!r:.40} as {name}: expected {kind.value}"
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


def _fits(field: str, kind: ColumnKind) -> bool:
    """Whether a field is read as this kind."""
    if kind == ColumnKind.INTEGER and re.match(_HEXADECIMAL, field):
        return False
    try:
        pa.array([field.strip()]).cast(_TYPES[kind])
    except pa.ArrowInvalid:
        return False
    return kind not in (ColumnKind.INTEGER, ColumnKind.NUMBER) or bool(field.strip())


def _first_broken(content: bytes) -> tuple[int, str] | None:
    """Lines before the first that is no row by itself, and what is wrong with it."""
    suspects = (b'"', b"\n\n", b"\n\r\n")
    if not content.startswith((b"\n", b"\r\n")) and not any(
        suspect in content for suspect in suspects
    ):
        return None
    for number, line in enumerate(content.split(b"\n")):
        if line in _EMPTY:
            return number, _NO_ROW
        if line.count(b'"') % 2:
            # It would take the lines that follow into its field.
            held = f"opens a quote that it does not close ({_decoded(line)!r:.40})"
            return number, f"{held}: expected quotes in pairs"
    return None


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


class _TypedTable(TableFile):
    """A table whose columns have types; its rows are counted from 1."""

    unit = "row"
    typed = True

    @final
    def _rows_of(self, batch: Any, first: int, kinds: Kinds) -> Iterator[RowBatch]:
        """The rows of a batch of pyarrow's; those before a fault, if there is one."""
        # First row without a value in each column that has such and may not.
        gaps = {
            name: batch.column(name).is_null().index(True).as_py()
            for name, kind in kinds.items()
            if kind != ColumnKind.TEXT and batch.column(name).null_count
        }
        if gaps:
            # Whoever reads the rows before may find fault with one of them.
            batch = batch.slice(0, min(gaps.values()))
        columns = {
            name: self._column(batch.column(name), name, kind)
            for name, kind in kinds.items()
        }
        if batch.num_rows:
            yield RowBatch(self.path, self.unit, first, batch.num_rows, columns, True)
        if gaps:
            name = min(gaps, key=lambda name: gaps[name])
            raise InvalidInput(
                f"row {first + batch.num_rows} of {self.path} has no {name}: expected "
                f"{kinds[name].value}."
            )

    @final
    def _column(self, column: Any, name: str, kind: ColumnKind) -> Any:
        try:
            # Numbers are rounded to single precision, not refused.
            return column.cast(_TYPES[kind], safe=kind != ColumnKind.NUMBER)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInput(
                f"{name} of {self.path} is of type {column.type}: expected "
                f"{kind.value} in each row ({escaped(str(error), longest=200)})."
            ) from error


@final
class ArrowTable(_TypedTable):
    """Columns in memory, as pyarrow has them; ``name`` is for messages."""

    def __init__(self, name: str, columns: dict[str, Any], *, named: bool) -> None:
        self.path, self.named = Path(name), named
        self._batch = pa.RecordBatch.from_pydict(columns)
        self.columns = tuple(columns)

    def kinds(self) -> dict[str, ColumnKind | None]:
        return {field.name: _kind(field.type) for field in self._batch.schema}

    def batches(self, kinds: Kinds, progress: Progress) -> Iterator[RowBatch]:
        if not self._batch.num_rows:
            raise InvalidInput(f"{self.path} has no rows: expected some.")
        yield from self._rows_of(self._batch, 1, kinds)


@final
class ParquetFile(_TypedTable):
    """A Parquet file."""

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

    def kinds(self) -> dict[str, ColumnKind | None]:
        return {field.name: _kind(field.type) for field in self._schema}

    def batches(self, kinds: Kinds, progress: Progress) -> Iterator[RowBatch]:
        at_once = max(_NUMBERS_AT_ONCE // len(kinds), 1)
        first = 1
        with self._opened() as file:
            batches = iter(
                file.iter_batches(at_once, columns=list(kinds), use_threads=False)
            )
            while (batch := self._next(batches)) is not None:
                yield from self._rows_of(batch, first, kinds)
                first += batch.num_rows
                progress(f"reading {self.path.name}", first - 1, self._rows)

    def _next(self, batches: Iterator[Any]) -> Any:
        try:
            batch = next(batches, None)
            if batch is not None:
                batch.validate(full=True)
            return batch
        except _UNREADABLE as error:
            raise self._unreadable(error) from error

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


def _kind(type_: Any) -> ColumnKind | None:
    if pa.types.is_boolean(type_):
        return ColumnKind.TRUTH
    if pa.types.is_integer(type_):
        return ColumnKind.INTEGER
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return ColumnKind.NUMBER
    if pa.types.is_dictionary(type_):
        return _kind(type_.value_type)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return ColumnKind.TEXT if any(is_text(type_) for is_text in texts) else None
