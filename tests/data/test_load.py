import io
from collections.abc import Callable
from http.client import IncompleteRead
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from torch_geometric.data import Data

from gsebo.data import (
    content_digest,
    download_dataset,
    load,
    load_npz,
    locate,
    save_npz,
    verify,
)
from gsebo.data.datasets.registry import DATASETS
from gsebo.errors import InvalidInput
from gsebo.graph import normalise_rows

Raw = Callable[[str], dict[str, bytes]]
DOWNLOADED = [name for name, info in DATASETS.items() if info.convert is not None]


def _serve(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], Any]) -> None:
    monkeypatch.setattr("gsebo.data.datasets.load.open_url", answer)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str) -> Any:
        raise AssertionError(f"{url} was opened")

    _serve(monkeypatch, refuse)


def test_protocol_normalises_cora_by_name() -> None:
    by_protocol, raw = load("Cora"), load("cora", normalize=False)
    assert torch.equal(by_protocol.x, normalise_rows(raw.x))
    assert not torch.equal(by_protocol.x, raw.x)
    assert by_protocol.meta["name"] == "cora"


def test_normalised_rows_add_up_to_one_and_zero_rows_stay() -> None:
    sums = load("citeseer").x.sum(1)
    empty = load("citeseer", normalize=False).x.abs().sum(1) == 0
    assert torch.allclose(sums[~empty], torch.ones(()))
    assert bool((sums[empty] == 0).all())
    assert bool(empty.any())


def test_a_path_is_left_as_it_is_unless_told(graph: Data, tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    save_npz(graph, path)
    assert torch.equal(load(path).x, graph.x)
    assert torch.equal(load(str(path), normalize=True).x, normalise_rows(graph.x))
    assert load(path).meta == {"name": "mine"}


def test_an_existing_file_without_suffix_is_a_path(
    graph: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_npz(graph, tmp_path / "mine", {"name": "own"})
    monkeypatch.chdir(tmp_path)
    assert load("mine").meta == {"name": "own"}


@pytest.mark.parametrize("path", ["absent.npz", "folder/absent", "~/absent.npz"])
def test_a_path_that_is_not_there(path: str) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        load(path)


def test_unknown_name_suggests_the_nearest() -> None:
    for ask in (load, locate, verify, download_dataset):
        with pytest.raises(InvalidInput, match="did you mean 'cora'"):
            ask("coraa")


def test_places_are_searched_in_order(
    tmp_path: Path, own_cache: Path, graph: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, from_environment = tmp_path / "given", tmp_path / "environment"
    for folder in (given, from_environment, own_cache):
        folder.mkdir()
    assert locate("cora")[0] == "embedded"
    assert locate("pubmed") == ("absent", own_cache / "pubmed.npz")
    save_npz(graph, own_cache / "cora.npz")
    assert locate("cora") == ("cache", own_cache / "cora.npz")
    save_npz(graph, from_environment / "cora.npz")
    monkeypatch.setenv("GSEBO_DATA", str(from_environment))
    assert locate("cora") == ("data_dir", from_environment / "cora.npz")
    assert locate("cora", given) == ("cache", own_cache / "cora.npz")
    assert load("cora").num_nodes == graph.num_nodes


def test_cache_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GSEBO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert locate("pubmed")[1] == tmp_path / "gsebo/pubmed.npz"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locate("pubmed")[1] == tmp_path / ".cache/gsebo/pubmed.npz"


def test_folder_that_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match=r"data_dir is .* existing folder"):
        load("cora", data_dir=tmp_path / "absent")
    monkeypatch.setenv("GSEBO_DATA", str(tmp_path / "absent"))
    with pytest.raises(InvalidInput, match=r"GSEBO_DATA is .* existing folder"):
        load("cora")


def test_no_download_unless_allowed() -> None:
    with pytest.raises(InvalidInput, match="not on this machine"):
        load("pubmed", download=False)


ASK = pytest.mark.parametrize(
    "ask", [load, download_dataset, lambda name: load(name, download=False)]
)


@pytest.mark.parametrize(
    "name", [n for n, i in DATASETS.items() if i.folder == "hetero"]
)
@ASK
def test_a_published_file_says_where_it_belongs(
    name: str, ask: Callable[[str], object], own_cache: Path
) -> None:
    stem = DATASETS[name].stem
    expected = (
        rf"^{name} cannot be downloaded .*{stem}\.npz.*GSEBO_DATA.*{own_cache}\.$"
    )
    with pytest.raises(InvalidInput, match=expected):
        ask(name)


@pytest.mark.parametrize(
    "name",
    [n for n, i in DATASETS.items() if n not in DOWNLOADED and i.folder != "hetero"],
)
@ASK
def test_a_dataset_without_download_says_where_it_belongs(
    name: str, ask: Callable[[str], object], own_cache: Path, graph: Data
) -> None:
    expected = (
        rf"^{name} cannot be downloaded .*{name}\.npz.*GSEBO_DATA.*{own_cache}\.$"
    )
    with pytest.raises(InvalidInput, match=expected):
        ask(name)
    own_cache.mkdir()
    save_npz(graph, own_cache / f"{name}.npz")
    assert torch.equal(load(name).x, graph.x)
    assert not verify(name).ok


@pytest.mark.parametrize("name", DOWNLOADED)
def test_download_is_converted_and_kept(
    name: str, raw: Raw, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = raw(name)
    _serve(monkeypatch, lambda url: io.BytesIO(files[url.rsplit("/", 1)[1]]))
    path = download_dataset(name)
    assert [p.name for p in own_cache.iterdir()] == [f"{name}.npz"]
    assert content_digest(load_npz(path)) == DATASETS[name].digest
    assert verify(name).ok
    assert verify(name).where == "cache"


def test_load_downloads_what_is_absent_once(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, opened = raw("terrorist"), []

    def answer(url: str) -> io.BytesIO:
        opened.append(url)
        return io.BytesIO(files[url.rsplit("/", 1)[1]])

    _serve(monkeypatch, answer)
    first, second = load("terrorist"), load("terrorist")
    assert len(opened) == len(DATASETS["terrorist"].raw_files)
    assert torch.equal(first.x, second.x)
    assert first.meta["name"] == "terrorist"


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b[:-1] + b"\0"]
)
def test_damaged_download_leaves_nothing(
    damage: Callable[[bytes], bytes],
    raw: Raw,
    own_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = raw("air-usa")
    _serve(monkeypatch, lambda url: io.BytesIO(damage(files[url.rsplit("/", 1)[1]])))
    with pytest.raises(InvalidInput, match=r"air-usa from https://.*GSEBO_DATA"):
        load("air-usa")
    assert not own_cache.exists() or not list(own_cache.iterdir())


@pytest.mark.parametrize(
    "error", [URLError("no route"), TimeoutError("slow"), IncompleteRead(b"")]
)
def test_failed_download_says_what_to_do(
    error: Exception, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(url: str) -> Any:
        raise error

    _serve(monkeypatch, fail)
    with pytest.raises(InvalidInput, match=r"pubmed from https://.*GSEBO_DATA"):
        load("pubmed")
    assert not own_cache.exists()


def test_cache_that_cannot_be_made(
    raw: Raw, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = raw("terrorist")
    own_cache.write_text("a file where the folder should be")
    _serve(monkeypatch, lambda url: io.BytesIO(files[url.rsplit("/", 1)[1]]))
    with pytest.raises(InvalidInput, match="GSEBO_CACHE"):
        load("terrorist")


def test_verify_tells_good_from_bad(graph: Data, tmp_path: Path, shared: Path) -> None:
    assert verify("cora").ok
    assert not verify("pubmed").ok
    assert verify("pubmed", data_dir=shared).ok
    save_npz(graph, tmp_path / "cora.npz")
    assert "another graph" in verify("cora", data_dir=tmp_path).message
    (tmp_path / "cora.npz").write_bytes(b"garbage")
    assert "not a readable" in verify("cora", data_dir=tmp_path).message
