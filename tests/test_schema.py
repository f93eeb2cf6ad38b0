"""What no file of ours may say, whatever it is about."""

import os
from pathlib import Path

import msgspec
import pytest

from gsebo import InvalidInput
from gsebo.errors import escaped
from gsebo.files import (
    Count,
    Name,
    Record,
    checksum,
    json_as,
    read_bytes,
    read_toml_as,
    require_regular,
)


class Thing(Record):
    name: Name
    count: Count = 1
    anything: dict[str, object] = msgspec.field(default_factory=dict)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "{}",
        '{"name": 3}',
        '{"name": ""}',
        '{"name": "a", "count": 0}',
        '{"name": "a", "count": 1e999}',
        '{"name": "a", "count": true}',
        '{"name": "a", "count": NaN}',
        '{"name": "a", "other": 1}',
        '{"name": "a", "anything": {"b": 1' + "0" * 40 + "}}",
        '{"name": "a", "anything": {"b": ' + "[" * 40 + "]" * 40 + "}}",
        "[" * 100_000,
        '{"name": "\ud800"}'.encode("utf-8", "surrogatepass"),
    ],
)
def test_json_is_refused_in_one_sentence(text: str | bytes) -> None:
    with pytest.raises(InvalidInput, match="a thing"):
        json_as(Thing, text, "here", "a thing")


@pytest.mark.parametrize(
    "text",
    [
        "name",
        "name = 2026-11-16",
        "name = 'a'\nanything = {b = nan}",
        "name = 'a'\nanything = {b = 2026-11-16}",
        "name = 'a'\nanything = {b = " + "[" * 5000 + "]" * 5000 + "}",
    ],
)
def test_toml_is_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "thing.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="a thing"):
        read_toml_as(Thing, path, "a thing")


def test_what_is_sound_is_read() -> None:
    text = '{"name": "a", "count": 2, "anything": {"b": [1.5, null]}}'
    read = json_as(Thing, text, "here", "a thing")
    assert (read.name, read.count, read.anything) == ("a", 2, {"b": [1.5, None]})


def test_only_plain_files_are_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, kind in (
        (pipe, "a pipe"),
        (tmp_path, "a folder"),
        (Path(os.devnull), "a device"),
        (tmp_path / "none", "no such file"),
        (tmp_path / ("long" * 100), "too long"),
        (tmp_path / "null\0", "null"),
    ):
        for read in (require_regular, checksum):
            with pytest.raises(InvalidInput, match=kind):
                read(path, "a thing")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"12345")
    assert read_bytes(path, "a thing", 5) == b"12345"
    with pytest.raises(InvalidInput, match="5 bytes"):
        read_bytes(path, "a thing", 4)


def test_a_terminal_is_not_told_what_to_do() -> None:
    shown = escaped("a\x1b[2J\x07\udcff\u202e\nb")
    assert shown.isprintable() and shown.startswith("a\\x1b[2J")
    assert escaped("x" * 10, longest=3) == "xxx…"
