"""Nothing that exists is replaced without ``--force``, and it is said before a fit."""

from pathlib import Path

import pytest

import gsebo
from cli.conftest import SHORT, Command, refused, small_graph
from gsebo.cli import experiment
from gsebo.cli.fit import _WRITTEN
from gsebo.data.formats.folder import write_folder


@pytest.fixture
def no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a fit began")

    monkeypatch.setattr(experiment, "Experiment", never)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_model_is_not_replaced(
    command: Command, model_folder: Path, graph_file: Path, no_fit: None
) -> None:
    before = contents(model_folder)
    said = refused(command("fit", graph_file, *SHORT, "--out", model_folder))
    assert str(model_folder / "model.json") in said and "--force" in said
    # Nothing is left to resume: that would be another fit.
    resumed = command("fit", graph_file, *SHORT, "--out", model_folder, "--resume")
    assert "--force to fit anew" in refused(resumed)
    assert contents(model_folder) == before


def test_force_replaces_a_model(
    command: Command, model_folder: Path, graph_file: Path
) -> None:
    options = ("--out", model_folder, "--force", "--seed", 7)
    assert command("fit", graph_file, *SHORT, *options).exit_code == 0
    assert gsebo.load_model(model_folder).seed_ == 7


def test_what_a_model_is_written_as(command: Command, tmp_path: Path) -> None:
    folder = write_folder(small_graph(), tmp_path / "g")
    place = tmp_path / "m"
    fit = ("fit", folder.path, *SHORT, "--out", place)
    assert command(*fit, "--batch-size", 9).exit_code == 0
    written = set(contents(place))
    assert command(*fit, "--noise", 5, "--force").exit_code == 0
    assert written | set(contents(place)) == set(_WRITTEN)


@pytest.mark.parametrize("name", ["graph.npz", "own.npy"])
def test_a_file_of_the_user_that_a_model_would_replace(
    command: Command, graph_file: Path, tmp_path: Path, name: str, no_fit: None
) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / name).write_text("mine")
    said = refused(command("fit", graph_file, *SHORT, "--out", place))
    assert f"{place / name} is there already" in said
    assert (place / name).read_text() == "mine"


def test_a_folder_with_other_files_is_fine(
    command: Command, graph_file: Path, tmp_path: Path
) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    assert command("fit", graph_file, *SHORT, "--out", place).exit_code == 0
    assert (place / "notes.txt").read_text() == "mine"


def test_a_fit_that_was_begun_is_resumed_or_given_up_aloud(
    command: Command,
    graph_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "m"

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    fit = ("fit", graph_file, *SHORT, "--out", place, "--checkpoint-seconds", 0)
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "save_fitted", interrupted)
        assert command(*fit).exit_code != 0
    begun = contents(place)
    assert any(name.startswith("checkpoint") for name in begun)
    said = refused(command(*fit))
    assert "--resume" in said and "--force" in said
    assert contents(place) == begun
    assert command(*fit, "--resume").exit_code == 0
    assert (place / "model.json").exists()


@pytest.mark.parametrize(
    "write", [("predict", "--out", "p.csv"), ("inspect", "--export", "e.csv")]
)
def test_files_are_not_replaced(
    command: Command, model_folder: Path, write: tuple[str, str, str]
) -> None:
    name, option, target = write
    assert command(name, model_folder, option, target).exit_code == 0
    Path(target).write_text("mine")
    said = refused(command(name, model_folder, option, target))
    assert f"{target} is there already" in said and "--force" in said
    assert Path(target).read_text() == "mine"
    assert command(name, model_folder, option, target, "--force").exit_code == 0
    assert Path(target).read_text() != "mine"


def test_results_of_graph_folders_are_not_replaced(
    command: Command, tmp_path: Path
) -> None:
    folder = write_folder(small_graph(), tmp_path / "g")
    model = gsebo.GSEBO(batch_size=9, max_outer_steps=1, random_state=0, device="cpu")
    model.fit(folder).save(tmp_path / "m", dataset=str(folder.path))
    for option in ("--out", "--strengths"):
        Path("x.npy").write_text("mine")
        said = refused(command("predict", tmp_path / "m", option, "x.npy"))
        assert "x.npy is there already" in said
        given = ("predict", tmp_path / "m", option, "x.npy", "--force")
        assert command(*given).exit_code == 0
        assert Path("x.npy").read_bytes() != b"mine"
    fit = ("fit", folder.path, *SHORT, "--batch-size", 9)
    for option in ("--predictions", "--strengths"):
        assert "x.npy is there already" in refused(command(*fit, option, "x.npy"))
    assert command(*fit, "--predictions", "x.npy", "--force").exit_code == 0


def test_graph_folders_are_replaced_whole_or_not_at_all(
    command: Command, graph_file: Path, tmp_path: Path
) -> None:
    place = tmp_path / "g"
    draw = ("data", "generate", "--edges", 900, "--out", place, "--features", 2)
    assert command(*draw, "--nodes", 300).exit_code == 0
    before = contents(place)
    said = refused(command(*draw, "--nodes", 400))
    assert f"{place} is there already" in said and "--force" in said
    convert = ("data", "convert", graph_file, "--out", place)
    assert "--force" in refused(command(*convert))
    # What cannot be read replaces nothing.
    wrong = ("data", "convert", tmp_path / "nothing.npz", "--out", place, "--force")
    assert command(*wrong).exit_code == 2
    assert contents(place) == before
    assert command(*convert, "--force").exit_code == 0
    assert gsebo.load_data(str(place)).num_nodes == 40
    assert {path.name for path in tmp_path.iterdir()} >= {"g", "small.npz"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    said = refused(command("data", "convert", graph_file, "--out", mine, "--force"))
    assert "which is no graph folder" in said
    assert (mine / "notes.txt").read_text() == "mine"
