"""Files of results: what survives a cut, and what a check finds."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from experiments.small import result, trial
from gsebo.errors import InvalidInput
from gsebo.experiments import Result, Store
from gsebo.experiments.plan import default_parameters
from gsebo.experiments.store import (
    check_results,
    leftovers,
    migrate,
    put_in_order,
    stale,
)


@given(st.data())
def test_whole_lines_survive_a_cut_anywhere(data: st.DataObject) -> None:
    number = data.draw(st.integers(1, 5))
    written = [result(seed) for seed in range(number)]
    texts = [f"{one.line()}\n".encode() for one in written]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.append("some", written)
        path = Path(folder) / "some.jsonl"
        assert path.read_bytes() == b"".join(texts)
        size = data.draw(st.integers(0, path.stat().st_size))
        path.write_bytes(path.read_bytes()[:size])

        ends = [sum(map(len, texts[:place])) for place in range(1, number + 1)]
        whole = [one for one, end in zip(written, ends, strict=True) if end <= size]
        fresh = Store(Path(folder))
        assert list(fresh.results()) == [one.key for one in whole]
        (last,) = [fresh.texts(path)[-1] for path in fresh.paths()]
        assert bool(last) is (size not in (0, *ends))

        later = result(number)
        lost = [one for one in written if one not in whole]
        assert fresh.append("some", [later, *written]) == [later, *lost]
        assert path.read_bytes().startswith(b"".join(texts[: len(whole)]))
        expected = {one.key for one in (*written, later)}
        assert set(Store(Path(folder)).results()) == expected
        (report,) = check_results(Store(Path(folder)))
        assert report.sound
        assert report.ok == number + 1


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def write(store: Store, name: str, *parts: bytes | Result) -> Path:
    path = store.folder / f"{name}.jsonl"
    with path.open("ab") as file:
        for part in parts:
            file.write(part if isinstance(part, bytes) else part.line().encode())
            file.write(b"\n")
    return path


def test_duplicates_of_all_files_are_found_and_taken_away(store: Store) -> None:
    unlucky, lucky, again = result(0, error="bad luck"), result(0), result(0)
    first = write(store, "a", unlucky, result(1), unlucky)
    second = write(store, "b", lucky, again, result(2, error="no"), result(1))
    reports = check_results(store)
    assert [report.duplicates for report in reports] == [(1, 3), (2, 4)]
    assert [(report.ok, report.failed) for report in reports] == [(1, 0), (1, 1)]
    before = store.results()

    put_in_order(store)
    assert first.read_text() == f"{result(1).line()}\n"
    assert second.read_text().splitlines()[0] == lucky.line()
    assert all(report.sound for report in check_results(store))
    assert {key: one.ok for key, one in Store(store.folder).results().items()} == {
        key: one.ok for key, one in before.items()
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"no JSON", "not JSON"),
        (b'{"schema": 0}', "schema 0"),
        (b"\xff\xfe", "not JSON"),
        (b'{"schema": "x", "id": "\xff"}', "schema"),
        (result(1).line().replace(trial(1).key, trial(2).key).encode(), "id"),
        (result(1).line().replace('"ok"', '"failed"').encode(), "status"),
        (result(1).line().replace('"vanilla"', "1").encode(), "method"),
    ],
)
def test_what_cannot_be_read_is_named_and_stays(
    store: Store, text: bytes, says: str
) -> None:
    path = write(store, "a", result(0), text, result(0))
    with path.open("ab") as file:
        file.write(b'{"schema"')
    for fix in (False, True):
        if fix:
            put_in_order(store)
        (report,) = check_results(store)
        (problem,) = report.problems
        assert problem.startswith("line 2 is no result: ")
        assert says in problem
        assert report.unfinished is not fix
        assert report.duplicates == (() if fix else (3,))
    assert path.read_bytes().split(b"\n")[1:] == [text, b""]


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    for kind, make in {"a pipe": os.mkfifo, "a folder": os.mkdir}.items():
        folder = tmp_path / kind
        folder.mkdir()
        make(folder / "some.jsonl")
        for look in (Store(folder).results, lambda at=folder: check_results(Store(at))):
            with pytest.raises(InvalidInput, match=f"is {kind}"):
                look()
        with pytest.raises(InvalidInput, match=f"is {kind}"):
            Store(folder).append("some", [result(0)])
    file = tmp_path / "file"
    file.write_text("")
    for use in (Store(file).results, lambda: Store(file).append("some", [result(0)])):
        with pytest.raises(InvalidInput, match="folder"):
            use()


def old_line(one: Result) -> bytes:
    """As a line was before the outer step of GSEBO had a name."""
    return one.line().replace('"schema": 3', '"schema": 1').encode()


def old_results() -> list[Result]:
    options: dict[str, Any] = {"method_options": {"tied": True}}
    trials = [
        trial(method="gsebo", parameters={"tied": True}),
        trial(method="auto"),
        trial(method="retrain"),
        trial(method="retrain", parameters=options),
        trial(method="retrain", parameters={"method": "dropedge"}),
        trial(),
    ]
    return [
        Result(
            trial=one, test_accuracy=0.5, all_parameters={"zeal": 1, **one.parameters}
        )
        for one in trials
    ]


def test_older_lines_say_which_step_they_had(store: Store) -> None:
    before = old_results()
    path = write(store, "a", *map(old_line, before))
    with pytest.raises(InvalidInput, match="gsebo results migrate"):
        store.results()
    (done,) = migrate(store)
    assert (done.lines, done.migrated, done.renamed, done.problem) == (6, 6, 4, None)
    after = list(Store(store.folder).results().values())
    step = {"outer_step": "paper"}
    options = {"method_options": step}, {"method_options": {**step, "tied": True}}
    wanted = [step | {"tied": True}, step, *options, {"method": "dropedge"}, {}]
    assert [one.trial.parameters for one in after] == wanted
    for old, new, parameters in zip(before, after, wanted, strict=True):
        assert new.all_parameters == {"zeal": 1, **parameters}
        same = {"trial": old.trial, "all_parameters": old.all_parameters}
        assert replace(new, **same) == old
    content = path.read_bytes()
    (again,) = migrate(store)
    assert (again.migrated, path.read_bytes()) == (0, content)


def test_older_lines_get_the_words_of_the_field(store: Store) -> None:
    was = {"batch_size": 9, "sampler": "partition"}
    options = {"method": "neuralsparse", "method_options": {"num_neighbours": 3}}
    trials = [
        trial(method="amortised", parameters=was),
        trial(method="gsebo", parameters={"sampler": "neighbour"}),
        trial(method="lds", parameters={"num_neighbours": 4}),
        trial(method="retrain", parameters=options),
        trial(method="vanilla"),
    ]
    before = [
        Result(trial=one, test_accuracy=0.5, all_parameters={**one.parameters})
        for one in trials
    ]
    lines = [one.line().replace('"schema": 3', '"schema": 2') for one in before]
    path = write(store, "a", *(line.encode() for line in lines))
    (done,) = migrate(store)
    assert (done.migrated, done.renamed, done.problem) == (5, 4, None)
    after = list(Store(store.folder).results().values())
    wanted = [
        {"batch_size": 9, "sampler": "cluster"},
        {"sampler": "neighbor"},
        {"num_neighbors": 4},
        {"method": "neuralsparse", "method_options": {"num_neighbors": 3}},
        {},
    ]
    assert [one.trial.parameters for one in after] == wanted
    assert [one.all_parameters for one in after] == wanted
    assert b"neighbour" not in path.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        b"no JSON",
        b'{"schema": 1}',
        b'{"schema": 1, "trial": []}',
        b"[" * 99_999,
        old_line(result(1)).replace(b'"vanilla"', b'"gsebo"'),
        old_line(result(1)).replace(b'"ok"', b'"failed"'),
        old_line(result(1))[:-1] + b', "all_parameters": 3}',
        result(1).line().replace('"schema": 3', '"schema": 4').encode(),
    ],
)
def test_a_damaged_file_is_not_touched(store: Store, damage: bytes) -> None:
    damaged = write(store, "a", old_line(result(0)), damage)
    half = write(store, "b", old_line(result(2)))
    half.write_bytes(half.read_bytes() + b'{"sch')
    sound = write(store, "c", old_line(result(3)))
    contents = [damaged.read_bytes(), half.read_bytes()]
    first, second, third = migrate(store)
    assert first.problem and first.problem.startswith("line 2 is no result: ")
    assert second.problem and "half-written" in second.problem
    assert third.problem is None and third.migrated == 1
    assert contents == [damaged.read_bytes(), half.read_bytes()]
    assert Result.from_line(sound.read_bytes().strip()) == replace(
        result(3), finished=json.loads(sound.read_bytes())["finished"]
    )


def test_leftovers_of_a_killed_process(store: Store) -> None:
    write(store, "a", result(0))
    left = store.folder / ".a.jsonl.0123abcd"
    left.write_text("half")
    assert leftovers(store) == [left]
    put_in_order(store)
    assert leftovers(store) == []


def test_defaults_that_have_changed_since() -> None:
    today = default_parameters("vanilla")
    parameters = {"max_epochs": 3}
    asked = trial(parameters=parameters)

    def differences(stored: dict[str, object]) -> list[str]:
        return stale(Result(trial=asked, test_accuracy=0.5, all_parameters=stored))

    assert differences({**today, **parameters}) == []
    fewer = {name: value for name, value in today.items() if name != "dropout"}
    assert differences({**fewer, **parameters}) == []
    (text,) = differences({**today, **parameters, "dropout": 0.7})
    assert text == "dropout of vanilla was 0.7 and is 0.5 by default now."
    (text,) = differences({**today, **parameters, "gone": 1})
    assert text == "vanilla has no parameter gone any more."
    assert stale(Result(trial=trial(method="gone"), test_accuracy=0.5)) == [
        "gone is no method any more."
    ]


def test_a_file_that_was_replaced_is_read_again(store: Store) -> None:
    """As after `git pull`, or after another process has put it in order."""
    other = Store(store.folder)
    store.append("some", [result(seed) for seed in range(3)])
    assert len(other.results()) == 3
    path = store.folder / "some.jsonl"
    # Shorter, and then longer than what was read.
    store.rewrite(path, without=(1, 2))
    store.append("some", [result(seed) for seed in range(3, 9)])
    expected = {result(seed).key for seed in (2, *range(3, 9))}
    assert set(other.results()) == expected
    # Another line of the same length, in place.
    text = path.read_text().replace(result(8).line(), result(7).line())
    path.write_text(text.replace(result(7).line(), result(9).line(), 1))
    assert result(9).key in other.results()
    assert result(8).key not in other.results()
    path.unlink()
    assert other.results() == {}


def test_another_failure_is_stored_the_same_is_not(store: Store) -> None:
    first, second = result(0, error="one reason"), result(0, error="another")
    assert store.append("some", [first, first]) == [first]
    assert store.append("some", [first]) == []
    assert store.append("some", [second]) == [second]
    assert store.results()[first.key].error == "another"
    assert Store(store.folder).results()[first.key].error == "another"
    good = result(0)
    assert store.append("some", [good]) == [good]
    assert store.append("some", [second]) == []
    put_in_order(store)
    *lines, _ = (line for path in store.paths() for line in store.texts(path))
    assert [Result.from_line(line) for line in lines] == [good]


def test_a_folder_that_cannot_be_there_has_no_results(tmp_path: Path) -> None:
    store = Store(tmp_path / ("x" * 300))
    assert store.results() == {}
    assert check_results(store) == []
    with pytest.raises(InvalidInput, match="cannot write"):
        store.append("some", [result()])
