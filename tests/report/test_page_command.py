"""``gsebo report`` as it is typed."""

from pathlib import Path

from tests.cli.conftest import Command, refused
from tests.cli.conftest import command as command
from tests.report.page_reader import PageReader
from tests.report.synthetic import fill

from gsebo.experiments import Store, load_recipe


def test_a_page_from_some_results(command: Command, tmp_path: Path) -> None:
    fill(Store(tmp_path / "stored"), load_recipe("overfitting"))
    page = tmp_path / "deep" / "page.html"
    done = command("report", "-o", page, "--results", tmp_path / "stored")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith(f"{page}: 1 of ")
    assert "table1: " in done.stderr
    assert "`gsebo run table1` runs them" in done.stderr
    assert "Overfitting" in PageReader(page.read_text("utf-8")).text


def test_by_default_from_results_to_report_html(command: Command) -> None:
    fill(Store(Path("results")), load_recipe("overfitting"))
    done = command("report", "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert Path("report.html").stat().st_size > 10_000


def test_no_results(command: Command, tmp_path: Path) -> None:
    sentence = refused(command("report", "--results", tmp_path / "none"))
    assert str(tmp_path / "none") in sentence
    assert "`gsebo run table1`" in sentence
    assert not Path("report.html").exists()


def test_a_place_that_cannot_be_written(command: Command, tmp_path: Path) -> None:
    sentence = refused(command("report", "-o", tmp_path))
    assert f"-o {tmp_path} given, which is a folder" in sentence
    file = tmp_path / "file"
    file.touch()
    assert f"cannot write {file}" in refused(command("report", "-o", file / "page"))
