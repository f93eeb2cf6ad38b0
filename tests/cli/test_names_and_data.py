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

    monkeypatch.setattr("gsebo.data.download.open_url", unreachable)
    assert "no network" in refused(command("data", "get", "pubmed"))


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
