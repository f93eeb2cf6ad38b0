import io
import shutil
from pathlib import Path

import pytest

from cli.conftest import Command, json_of, refused, small_graph
from gsebo.data import save_npz

KINDS = [
    "methods",
    "backbones",
    "structures",
    "hypergradients",
    "attacks",
    "metrics",
    "datasets",
    "presets",
    "recipes",
]


def test_list_everything(command: Command) -> None:
    listed = json_of(command("list", "--json"))
    assert list(listed) == KINDS
    assert {"gsebo", "vanilla"} <= {row["name"] for row in listed["methods"]}
    text = command("list")
    assert text.exit_code == 0
    assert all(kind in text.stdout for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_list_one_kind(command: Command, kind: str) -> None:
    listed = json_of(command("list", kind, "--json"))
    assert list(listed) == [kind]
    assert all(row["name"] for row in listed[kind])


def test_data_list(command: Command) -> None:
    rows = json_of(command("data", "list", "--json"))["datasets"]
    where = {row["name"]: row["where"] for row in rows}
    assert (where["cora"], where["pubmed"]) == ("embedded", "absent")
    assert "embedded" in command("data", "list").stdout


def test_data_get_what_is_here(command: Command) -> None:
    assert json_of(command("data", "get", "cora", "--json"))["where"] == "embedded"


def test_data_get_without_a_network(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(url: str) -> io.BytesIO:
        raise OSError("no network")

    monkeypatch.setattr("gsebo.data.datasets.load.open_url", unreachable)
    assert "no network" in refused(command("data", "get", "pubmed"))


def test_data_get_what_has_no_download(command: Command, own_cache: Path) -> None:
    said = refused(command("data", "get", "Texas"))
    assert "texas cannot be downloaded" in said
    assert "texas.npz" in said and "GSEBO_DATA" in said
    own_cache.mkdir()
    save_npz(small_graph(), own_cache / "texas.npz")
    assert json_of(command("data", "get", "texas", "--json"))["where"] == "cache"


def test_a_fit_takes_the_split_of_its_seed(command: Command, shared: Path) -> None:
    if not (shared / "texas.npz").is_file():
        pytest.skip("no texas.npz in the folder of datasets")
    options = ("--method", "vanilla", "--set", "max_epochs=3", "--data-dir", shared)
    asked = ("fit", "texas", *options, "--seed", 12, "--json")
    # Split 2 has no training node of the smallest class.
    by_seed, by_number = (
        json_of(command(*asked, *split)) for split in ((), ("--split", "file:2"))
    )
    assert by_seed["split"] == "file:seed"
    same = ("test_accuracy", "val_accuracy")
    assert [by_seed[key] for key in same] == [by_number[key] for key in same]


def test_data_verify(command: Command, tmp_path: Path) -> None:
    rows = json_of(command("data", "verify", "--json"))["datasets"]
    assert {row["name"] for row in rows if row["ok"]} == {"cora", "citeseer"}
    assert command("data", "verify", "cora").exit_code == 0
    assert command("data", "verify", "pubmed").exit_code == 1


def test_data_verify_finds_another_graph(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "datasets"
    folder.mkdir()
    save_npz(small_graph(), folder / "cora.npz")
    result = command("data", "verify", "--data-dir", folder)
    assert result.exit_code == 1
    assert "another graph" in result.stdout
    shutil.rmtree(folder)
    assert "folder" in refused(command("data", "verify", "--data-dir", folder))
