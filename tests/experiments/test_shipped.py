"""Results that came with the package, as an archive that is only read."""

import json
from pathlib import Path
from zipfile import ZIP_BZIP2, ZipFile

import pytest

from experiments.small import result
from gsebo.errors import InvalidInput
from gsebo.experiments import ShippedResults, Store


def packed(folder: Path, archive: Path) -> ShippedResults:
    with ZipFile(archive, "w") as file:
        for path in sorted(folder.glob("*.jsonl")):
            file.writestr(path.name, path.read_bytes(), ZIP_BZIP2)
    return ShippedResults(archive)


def test_it_says_what_the_folder_says(tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    store.append("one", [result(0), result(1, error="bad luck")])
    store.append("two", [result(2), result(3, method="gsebo")])
    # Another file may end what failed here, and repeat what ended.
    lines = [result(1).line(), result(0, test_accuracy=0.9).line()]
    (tmp_path / "results" / "zzz.jsonl").write_text("\n".join([*lines, ""]))
    fresh = Store(tmp_path / "results").results()
    shipped = packed(tmp_path / "results", tmp_path / "shipped.zip")
    assert shipped.present
    assert shipped.results() == fresh
    assert fresh[result(1).key].ok and fresh[result(0).key].test_accuracy == 0.5


def test_what_is_given_out_is_not_what_is_kept(tmp_path: Path) -> None:
    Store(tmp_path).append("one", [result(0)])
    shipped = packed(tmp_path, tmp_path / "shipped.zip")
    shipped.results().clear()
    assert len(shipped.results()) == 1


def test_a_source_tree_has_none(tmp_path: Path) -> None:
    missing = ShippedResults(tmp_path / "none.zip")
    assert not missing.present
    with pytest.raises(InvalidInput, match="there is no such file"):
        missing.results()


@pytest.mark.parametrize("how", ["no archive", "cut", "no results", "half a line"])
def test_damage_is_one_sentence(tmp_path: Path, how: str) -> None:
    Store(tmp_path).append("one", [result(seed) for seed in range(20)])
    archive = tmp_path / "shipped.zip"
    if how in ("no results", "half a line"):
        line = result(0).line()
        text = json.dumps({"schema": 3}) if how == "no results" else line[:-5]
        (tmp_path / "one.jsonl").write_text(f"{text}\n")
    packed(tmp_path, archive)
    if how == "no archive":
        archive.write_text("what is this")
    elif how == "cut":
        content = bytearray(archive.read_bytes())
        content[100:200] = bytes(100)
        archive.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"is damaged.*install it again\.$"):
        ShippedResults(archive).results()
