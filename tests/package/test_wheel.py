"""The wheel, built, installed and used where nothing of the source tree can be seen."""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

import gsebo
from docs.shortened import shortened

ROOT = Path(__file__).parents[2]
SHIPPED = "gsebo/experiments/shipped_results.zip"
# Bytes of the stored results that every installation carries along.
MOST = 2_000_000

# Runs what a page shows, one thing after the other, and tells which files were opened.
DRIVER = """
import json, os, sys

root, page = sys.argv[1:]
beside = tuple(path for path in sys.path if path.endswith("-packages"))
seen = set()

def listen(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        path = os.path.abspath(arguments[0])
        if path.startswith(root + os.sep) and not path.startswith(beside):
            seen.add(path)

sys.addaudithook(listen)

import typer
import gsebo
from gsebo.cli.main import app

names = {}
for kind, text in json.loads(page):
    if kind == "python":
        exec(text, names)
        continue
    try:
        typer.main.get_command(app).main(text[1:])
    except SystemExit as done:
        if done.code:
            sys.exit(f"{text} ended with {done.code}")
facts = {"file": gsebo.__file__, "version": gsebo.__version__, "seen": sorted(seen)}
open("facts.json", "w").write(json.dumps(facts))
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


def build(kind: str, tree: Path, folder: Path) -> Path:
    """Make a distribution of a source tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d"]
    done = subprocess.run([*command, folder], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob({"wheel": "*.whl", "sdist": "*.tar.gz"}[kind])
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of the source distribution, in a folder without anything else."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(build("sdist", ROOT, folder)) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = (path for path in folder.iterdir() if path.is_dir())
    return build("wheel", tree, folder)


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    """What is in the wheel."""
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def bring_kernels(package: Path) -> None:
    """Copy what was compiled of the same sources, which takes longer than to run it.

    numba knows a source by its time and its size, and finds what is beside it.
    """
    here = ROOT / "src" / "gsebo"
    for compiled in here.rglob("__pycache__/*.nb[ic]"):
        module, _, _ = compiled.name.partition(".")
        source = compiled.parents[1] / f"{module}.py"
        other = package / source.relative_to(here)
        # Something may be left of a source that is gone or has changed.
        if source.is_file() and other.read_bytes() == source.read_bytes():
            stamp = source.stat()
            os.utime(other, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
            folder = other.parent / "__pycache__"
            folder.mkdir(exist_ok=True)
            shutil.copy2(compiled, folder)


@pytest.fixture(scope="module")
def run(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a command of a new environment, in a folder that was empty before."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python"]
    options = ["install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, python, *options, wheel], check=True)
    # Libraries are those of the environment that runs this. A path in such a file is
    # searched, but what lies there is not read for more: no editable gsebo.
    (own,) = environment.glob("lib/python*/site-packages")
    libraries = [path for path in sys.path if path.endswith("-packages")]
    own.joinpath("libraries.pth").write_text("\n".join(libraries))
    bring_kernels(own / "gsebo")
    place = tmp_path_factory.mktemp("elsewhere")
    ours = ("GSEBO_", "NUMBA_CACHE", "PYTHON", "PYTEST")
    variables = {k: v for k, v in os.environ.items() if not k.startswith(ours)}

    def command(*words: str, folder: Path = place) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [environment / "bin" / words[0], *words[1:]],
            cwd=folder,
            env={**variables, "HOME": str(environment)},
            capture_output=True,
            text=True,
        )

    return command


def of_page(path: Path) -> list[tuple[str, str | list[str]]]:
    """Commands of ``gsebo`` and the Python of a page, in its order, with short fits."""
    steps: list[tuple[str, str | list[str]]] = []
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```", path.read_text(), re.M | re.S)
    for kind, text in blocks:
        if kind == "python":
            fit = 'gsebo.GSEBO("gcn", '
            steps.append((kind, text.replace(fit, f"{fit}max_outer_steps=3, ")))
            continue
        lines = [shlex.split(one, comments=True) for one in text.splitlines()]
        steps += [
            (kind, ["gsebo", *shortened(words[1:])])
            for words in lines
            if words[:1] == ["gsebo"]
        ]
    return steps


def test_all_files_of_the_package_are_inside(files: dict[str, bytes]) -> None:
    folder = ROOT / "src"
    here = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    kinds = {PurePosixPath(name).suffix for name in here}
    assert {".py", ".toml", ".json", ".npz", ".css", ".js", ".html"} < kinds
    packed = {name: one for name, one in files.items() if ".dist-info/" not in name}
    assert packed.keys() == here.keys() | {SHIPPED}
    assert [name for name, content in here.items() if packed[name] != content] == []
    for name in ("LICENSE", "NOTICE"):
        text = (ROOT / name).read_bytes()
        assert [one for n, one in files.items() if n.endswith(f"licenses/{name}")] == [
            text
        ]


def test_results_are_shipped_whole_and_small(files: dict[str, bytes]) -> None:
    assert len(files[SHIPPED]) < MOST
    with ZipFile(io.BytesIO(files[SHIPPED])) as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    stored = {path.name: path for path in (ROOT / "results").glob("*.jsonl")}
    assert inside.keys() == stored.keys()
    # A run that goes on meanwhile only ever appends.
    assert all(path.read_bytes().startswith(inside[n]) for n, path in stored.items())


def test_every_shipped_file_has_a_licence(files: dict[str, bytes]) -> None:
    notice = (ROOT / "NOTICE").read_text("utf-8")
    patterns = re.findall(r"^  (src/gsebo/\S+)$", notice, re.M)
    shipped = [
        PurePosixPath("src", name)
        for name in files
        if name.startswith("gsebo/") and not name.endswith(".py")
    ]
    covered = {path: [one for one in patterns if path.match(one)] for path in shipped}
    assert {path: by for path, by in covered.items() if len(by) != 1} == {}
    assert {one for by in covered.values() for one in by} == set(patterns)
    named = re.findall(r"src/gsebo/\S*(?:LICENSE|NOTICE\.md)", notice)
    assert named and all((ROOT / one).is_file() for one in named)


def test_an_installation_tells_of_itself(run: Run) -> None:
    assert run("gsebo", "--version").stdout == f"gsebo {gsebo.__version__}\n"
    methods = run("gsebo", "list", "methods")
    assert methods.returncode == 0 and "Graph Structure Learning" in methods.stdout
    code = (
        "from importlib.metadata import version; from importlib.resources import files;"
        "print(version('gsebo'), files('gsebo').joinpath('py.typed').is_file())"
    )
    assert run("python", "-c", code).stdout.split() == [gsebo.__version__, "True"]


def test_tables_are_there_without_the_repository(run: Run, tmp_path: Path) -> None:
    done = run("gsebo", "show", "table2", "--format", "json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("These results came with gsebo")
    table = json.loads(done.stdout)
    assert table["missing"] == 0
    assert all(cell["seeds"] == table["seeds"] == 10 for cell in table["cells"])
    assert not any(tmp_path.iterdir())


def test_the_five_minute_page_runs(run: Run, tmp_path: Path) -> None:
    steps = of_page(ROOT / "docs" / "start.md")
    kinds = [kind for kind, _ in steps]
    assert kinds.count("sh") >= 3 and kinds.count("python") >= 1
    page = json.dumps(steps)
    done = run("python", "-c", DRIVER, str(ROOT), page, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["version"] == gsebo.__version__
    assert not Path(facts["file"]).is_relative_to(ROOT)
    assert facts["seen"] == []
    words = [word for kind, command in steps if kind == "sh" for word in command]
    written = [b for a, b in pairwise(words) if a in ("--page", "--out")]
    assert written and all((tmp_path / name).exists() for name in written)
