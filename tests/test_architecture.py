"""What the folders may know of each other, and habits that the code keeps."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gsebo

ROOT = Path(gsebo.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
every_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: str(path.relative_to(ROOT))
)

LAYERS = (
    "data",
    "sparse",
    "structure",
    "backbone",
    "bilevel",
    "training",
    "methods",
    "experiments",
    "report",
    "cli",
)
SHARED = {"errors", "lookup", "files", "version"}
# These two know no graphs: they could be packages of their own.
INDEPENDENT = {"sparse", "bilevel"}


def imported_parts(path: Path) -> Iterator[str]:
    """First name after ``gsebo`` of every import; empty for the package itself."""
    package = ["gsebo", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            names = [
                ".".join([*base, node.module or alias.name]) for alias in node.names
            ]
        elif isinstance(node, ast.ImportFrom):
            names = [
                f"gsebo.{alias.name}" if node.module == "gsebo" else node.module
                for alias in node.names
            ]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == "gsebo":
                yield rest.partition(".")[0]


def allowed(layer: str) -> set[str]:
    if layer in INDEPENDENT:
        return SHARED | {layer}
    return SHARED | set(LAYERS[: LAYERS.index(layer) + 1])


def test_every_folder_has_its_place() -> None:
    folders = {path.parent.relative_to(ROOT).parts[:1] for path in FILES}
    assert folders - {()} <= {(layer,) for layer in LAYERS}


@every_file
def test_imports_point_left(path: Path) -> None:
    parts = path.relative_to(ROOT).parts
    if len(parts) > 1:
        may = allowed(parts[0])
    elif path.stem in SHARED:
        may = SHARED
    else:
        may = SHARED | set(LAYERS)
    assert set(imported_parts(path)) <= may


def test_the_rule_can_be_broken() -> None:
    found = set(imported_parts(ROOT / "methods" / "base.py"))
    assert {"data", "errors", "training", "methods"} <= found | {"errors"}
    assert not found <= allowed("training")


@every_file
def test_no_file_is_longer_than_300_lines(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 300


def called_name(call: ast.Call) -> str:
    return ast.unparse(call.func)


@every_file
def test_nothing_that_runs_foreign_code(path: Path) -> None:
    forbidden = {
        "eval",
        "exec",
        "pickle.load",
        "pickle.loads",
        "torch.load",
        "joblib.load",
    }
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        assert called_name(node) not in forbidden
        keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
        assert keywords.get("allow_pickle", "False") == "False"
        if called_name(node) in ("np.load", "numpy.load"):
            assert keywords.get("allow_pickle") == "False"


@every_file
def test_loops_over_epochs_live_in_training(path: Path) -> None:
    inside = path.relative_to(ROOT).parts[0] == "training"
    assert inside or not re.search(r"\bfor epoch", path.read_text("utf-8"))


@every_file
def test_names_say_something(path: Path) -> None:
    vague = {"utils", "util", "helpers", "helper", "misc", "common"}
    assert path.stem not in vague


def test_every_test_folder_is_a_package() -> None:
    tests = Path(__file__).parent
    folders = {path.parent for path in tests.rglob("test_*.py")} - {tests}
    assert all((folder / "__init__.py").exists() for folder in folders)
