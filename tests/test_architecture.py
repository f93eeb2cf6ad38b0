"""What the folders may know of each other, and habits that the code keeps."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import gsebo

ROOT = Path(gsebo.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
TEXTS = {path: path.read_text("utf-8") for path in FILES}

PAGE = (Path(__file__).parents[1] / "docs/how/architecture.md").read_text("utf-8")
# From the rooms that know nothing of others to the one that may know all.
LAYERS = tuple(re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE))
SHARED = {
    "code_paths",
    "errors",
    "files",
    "memory",
    "metrics",
    "names",
    "version",
}
# These two know no graphs: they could be packages of their own.
INDEPENDENT = {"sparse", "bilevel"}


def imported_parts(path: Path) -> Iterator[str]:
    """First name after ``gsebo`` of every import; empty for the package itself."""
    package = ["gsebo", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(TEXTS[path])):
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


def test_the_page_shows_every_room_and_no_other() -> None:
    folders = {path.parent.relative_to(ROOT).parts[:1] for path in FILES}
    assert folders - {()} == {(layer,) for layer in LAYERS}
    assert len(set(LAYERS)) == len(LAYERS)


def test_what_all_may_use_stands_beside_the_rooms() -> None:
    beside = {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__"}
    assert beside == SHARED
    assert all(f"`{name}.py`" in PAGE for name in SHARED)


def test_files_that_the_page_names_are_there() -> None:
    named = {name for name in re.findall(r"`([\w/]+\.py)`", PAGE) if "/" in name}
    assert len(named) > 5
    assert all((ROOT / name).is_file() for name in named)


def test_a_folder_can_be_overlooked() -> None:
    inside = Counter(path.parent for path in FILES)
    assert max(inside.values()) <= 20


def may_import(path: Path) -> set[str]:
    parts = path.relative_to(ROOT).parts
    if len(parts) > 1:
        return allowed(parts[0])
    return SHARED if path.stem in SHARED else SHARED | set(LAYERS)


def test_imports_point_left() -> None:
    found = {path: set(imported_parts(path)) - may_import(path) for path in FILES}
    assert not {path: wrong for path, wrong in found.items() if wrong}


def test_only_those_who_measure_know_attacks() -> None:
    knowing = {
        path.relative_to(ROOT).parts[0]
        for path in FILES
        if "attacks" in set(imported_parts(path))
    }
    assert knowing <= {"attacks", "experiments", "cli", "__init__.py"}


def test_the_rule_can_be_broken() -> None:
    found = set(imported_parts(ROOT / "methods" / "base.py"))
    assert {"data", "errors", "training", "methods"} <= found | {"errors"}
    assert not found <= allowed("training")


def called_name(call: ast.Call) -> str:
    return ast.unparse(call.func)


def runs_foreign_code(call: ast.Call) -> bool:
    forbidden = {
        "eval",
        "exec",
        "pickle.load",
        "pickle.loads",
        "torch.load",
        "joblib.load",
    }
    keywords = {k.arg: ast.unparse(k.value) for k in call.keywords}
    loads = called_name(call) in ("np.load", "numpy.load")
    allowed = keywords.get("allow_pickle", "unsaid" if loads else "False")
    return called_name(call) in forbidden or allowed != "False"


def test_nothing_that_runs_foreign_code() -> None:
    calls = [
        (path, node)
        for path in FILES
        for node in ast.walk(ast.parse(TEXTS[path]))
        if isinstance(node, ast.Call)
    ]
    assert len(calls) > 1000
    assert not [
        (path, ast.unparse(call)) for path, call in calls if runs_foreign_code(call)
    ]


def test_that_rule_can_be_broken() -> None:
    def call(text: str) -> bool:
        (node,) = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call))
        return runs_foreign_code(node)

    assert call("eval(x)") and call("np.load(x)") and call("pickle.load(x)")
    assert call("np.load(x, allow_pickle=True)") and call("f(x, allow_pickle=some)")
    assert not call("np.load(x, allow_pickle=False)") and not call("f(x)")


def callers_of(method: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in FILES
        for node in ast.walk(ast.parse(TEXTS[path]))
        if isinstance(node, ast.Call) and called_name(node).endswith(method)
    }


def test_there_is_one_trainer() -> None:
    # LDS begins anew with every episode, which is its method.
    asking = callers_of("hypergradient.run")
    assert asking == {"training/trainer.py", "methods/baselines/lds.py"}
    assert callers_of("outer_step.update") == {
        "training/turns.py",
        "training/batches.py",
    }


def test_a_public_name_is_defined_once() -> None:
    places: dict[str, set[str]] = {}
    for path in FILES:
        for node in ast.parse(TEXTS[path]).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                places.setdefault(node.name, set()).add(str(path.relative_to(ROOT)))
    twice = {
        name: where
        for name, where in places.items()
        if len(where) > 1 and not name.startswith("_")
    }
    assert not twice


def test_every_test_folder_is_a_package() -> None:
    tests = Path(__file__).parent
    folders = {path.parent for path in tests.rglob("test_*.py")} - {tests}
    assert all((folder / "__init__.py").exists() for folder in folders)
