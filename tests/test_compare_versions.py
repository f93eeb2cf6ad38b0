"""Two source trees are told apart by what they compute."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import compare_versions
from scripts.compare_versions import FITS, ROUNDING, Arrays, compared, read, table

import gsebo

SCRIPT = Path(compare_versions.__file__)
# A package that fits at once: names of its own, and a number that a test chooses.
PACKAGE = """
import numpy as np
class Estimator:
    def __init__(self, **options):
        self.options = options
    def fit(self, data):
        if self.options.get("sampler") == "neighbour":
            raise InvalidInput("expected neighbor")
        self.strength_ = np.full(3, {strength}, np.float32)
        if "batch_size" in self.options:
            self.strength_ *= 0.5
    def predict_proba(self, data):
        return np.full((4, 2), 0.5, np.float32)
class InvalidInput(ValueError):
    pass
load_data = str
{methods}
"""
METHODS = "GSEBO = Amortised = Vanilla = Estimator"


def tree(folder: Path, strength: float = 0.25, methods: str = METHODS) -> Path:
    package = folder / "src" / "gsebo"
    package.mkdir(parents=True)
    content = PACKAGE.format(strength=strength, methods=methods)
    (package / "__init__.py").write_text(content, "utf-8")
    return folder / "src"


def script(*arguments: object) -> tuple[int, str, dict[str, str]]:
    """Exit code, what is printed to stderr, and the verdict of each fit."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()[3:-1]
    verdicts = {line[:28].strip(): line[54:].strip() for line in lines}
    return done.returncode, done.stderr, verdicts


def only(*names: str) -> list[str]:
    return [word for name in names for word in ("--only", name)]


def arrays(**changes: Any) -> Arrays:
    held = {"probabilities": [[0.5, 0.5]], "strengths": [0.25, 0.75]} | changes
    return {name: np.array(value, np.float32) for name, value in held.items()}


def test_a_tree_equals_itself(tmp_path: Path) -> None:
    old, new = tree(tmp_path / "old"), tree(tmp_path / "new")
    names = ("gsebo gat", "vanilla", "gsebo on batches")
    assert script(old, new, *only(*names)) == (
        0,
        "",
        dict.fromkeys(names, "equal bits"),
    )


def test_what_differs_is_named_and_fails(tmp_path: Path) -> None:
    old = tree(tmp_path / "old")
    new = tree(tmp_path / "new", 0.26, "GSEBO = Amortised = Estimator\nVanilla = int")
    wanted = ("amortised", "vanilla", "prognn")
    code, said, verdicts = script(old, new, *only(*wanted))
    assert code == 1
    assert verdicts["amortised"] == "DIFFERS"
    assert verdicts["vanilla"].startswith("FAILED in NEW: TypeError: ")
    assert "TypeError" in said
    assert verdicts["prognn"] == "in neither"


def test_one_batch_of_everything_is_judged_if_asked(tmp_path: Path) -> None:
    own = tree(tmp_path)
    name = "amortised on one batch"
    code, _, verdicts = script(own, own, *only(name))
    told = "DIFFERS (for information)"
    assert (code, verdicts) == (0, {f"{name}, OLD": told, f"{name}, NEW": told})
    code, _, verdicts = script(own, own, *only(name), "--strict")
    assert code == 1
    assert verdicts == {f"{name}, OLD": told, f"{name}, NEW": "DIFFERS"}
    same = arrays()
    both = {name: same | {f"other {key}": same[key] for key in same}}
    assert not any(line.bad for line in table(both, both, strict=True).values())


@pytest.mark.parametrize(
    ("changes", "verdict", "bad"),
    [
        ({}, "equal bits", False),
        ({"strengths": [0.25, 0.75 + 0.5 * ROUNDING]}, "equal to rounding", False),
        ({"strengths": [0.25, 0.75 + 2 * ROUNDING]}, "DIFFERS", True),
        ({"probabilities": [[0.5, np.nan]]}, "DIFFERS", True),
        ({"probabilities": [[0.5]]}, "DIFFERS", True),
    ],
)
def test_how_much_is_rounding(changes: dict[str, Any], verdict: str, bad: bool) -> None:
    for pair in ((arrays(), arrays(**changes)), (arrays(**changes), arrays())):
        line = compared(*pair)
        assert (line.verdict, line.bad) == (verdict, bad)


def test_what_only_one_tree_has() -> None:
    missing = {"error": np.array("no such method")}
    assert compared(missing, arrays())[1:] == ("only in NEW", False)
    # That is lost.
    assert compared(arrays(), missing)[1:] == ("only in OLD", True)


def test_a_tree_is_expected(tmp_path: Path) -> None:
    code, said, _ = script(tmp_path)
    assert code == 2
    assert said.splitlines()[-1].endswith("expected a folder src of it.")


def test_fits_of_this_tree(tmp_path: Path) -> None:
    assert all(hasattr(gsebo, fit.method) for fit in FITS.values())
    names = ["gsebo sage", "amortised on batches", "amortised on one batch"]
    source = Path(gsebo.__file__).parents[1]
    found = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        compare_versions.run_inside(source, folder, names)
        found.append({name: read(folder, name) or {} for name in names})
    lines = table(*found, strict=False)
    assert {lines[name].verdict for name in names[:2]} == {"equal bits"}
    assert not any(line.bad for line in lines.values())
    assert all(line.differences is not None for line in lines.values())
