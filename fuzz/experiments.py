"""Recipes, stored results of today and of before, and folders of them."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from hypothesis import strategies as st

import gsebo.experiments
from fuzz.damage import FLAT, bytes_damage, tree_damage
from fuzz.target import Draw, Target, require
from gsebo.experiments import Result, Store, make_survey
from gsebo.experiments.recipe import read_recipe, recipe_names
from gsebo.experiments.result import Trial
from gsebo.experiments.store import (
    check_results,
    migrate,
    migrated_line,
    put_in_order,
    stale,
)

_RECIPES = Path(gsebo.experiments.__file__).parent / "recipes"


@final
class Recipes(Target):
    """Recipes of bytes, and of values in the place of others."""

    name, share = "recipes", 3

    def begin(self, folder: Path) -> None:
        """Read those that come with the package."""
        del folder
        self._texts = [
            (_RECIPES / f"{name}.toml").read_bytes() for name in recipe_names()
        ]

    def draw(self, draw: Draw) -> Any:
        """Draw the text of a recipe."""
        if draw(st.booleans()):
            return bytes_damage(draw, draw(st.sampled_from(self._texts)))
        return _toml(tree_damage(draw, _RECIPE)).encode("utf-8", "surrogatepass")

    def read(self, case: Any, place: Path) -> None:
        """Read it, and list its trials."""
        recipe = read_recipe(case, place / "r.toml")
        require(bool(recipe.title and recipe.blocks), "a recipe")
        make_survey(recipe, {})


_RECIPE: dict[str, Any] = {
    "title": "Some fits",
    "about": "Short ones.",
    "seeds": 3,
    "parts": [],
    "control": {"method": "retrain", "setting": "", "backbone": "gcn"},
    "metric": "f1_macro",
    "metrics": {"cora": "accuracy", "minesweeper": "roc_auc"},
    "trials": [
        {
            "methods": ["vanilla", "gsebo"],
            "backbones": ["gcn"],
            "datasets": ["cora"],
            "set": {"hidden_channels": 4, "backbone_options": {"heads": 2}},
            "vary": {"dropout": [0.1, 0.5]},
            "variants": {"gcn": ["gcn", "gat"]},
            "noise": [0, "removed:30"],
            "split": "halves",
            "curves": True,
            "label": "x",
            "preset": "paper",
        },
        {
            "methods": ["retrain"],
            "backbones": ["gcn"],
            "datasets": ["citeseer"],
            "tuned_by": "tuning",
            "tuned_as": "gsebo",
            "tuned_into": "method_options",
        },
    ],
}


def _toml(value: Any, depth: int = 0) -> str:
    """Write a tree as TOML; what that cannot say is written somehow."""
    if isinstance(value, dict):
        inside = [(json.dumps(str(key)), _toml(each, 1)) for key, each in value.items()]
        if not depth:
            return "\n".join(f"{key} = {text}" for key, text in inside) + "\n"
        return "{" + ", ".join(f"{key} = {text}" for key, text in inside) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each, 1) for each in value) + "]"
    if isinstance(value, float):
        return repr(value)
    return "1979-05-27" if value is None else json.dumps(value, ensure_ascii=False)


# --- results -------------------------------------------------------------------------


def _lines() -> list[dict[str, Any]]:
    figures = {
        "test_accuracy": 0.5,
        "val_accuracy": 0.6,
        "val_loss": 1.1,
        "test": {"accuracy": 0.5, "f1_macro": 0.4, "neg_log_loss": -0.7},
        "val": {"accuracy": 0.6, "roc_auc": 0.7},
        "best_step": 3,
        "outer_iterations": 5,
        "seconds": 1.5,
        "all_parameters": {"hidden_channels": 4, "backbone_options": {"heads": 2}},
        "curves": {
            name: [1, 2]
            for name in (
                *("inner_steps", "train_loss", "train_accuracy"),
                *("val_loss", "val_accuracy", "test_accuracy"),
            )
        },
        "device": "cpu",
        "versions": {"gsebo": "1"},
    }
    found = []
    for number, method in enumerate(("vanilla", "gsebo", "retrain", "auto")):
        trial = Trial(
            method=method,
            backbone="gcn",
            dataset="cora",
            split="file",
            seed=number,
            noise=("removed:30", 5)[number % 2],
            parameters={"dropout": 0.5},
        )
        result = Result(trial=trial, **figures)
        found.append(json.loads(result.line()))
    failed = Result(trial=trial, error="it broke")
    return [*found, json.loads(failed.line())]


def _line(draw: Draw) -> bytes:
    """Draw a line: whole, of today or of before, with the right name or not."""
    content = tree_damage(draw, draw(st.sampled_from(_LINES)))
    if not isinstance(content, dict):
        return json.dumps(content).encode()
    if draw(st.booleans()):
        content["schema"] = draw(st.sampled_from([1, 2, 3]) | FLAT)
    with suppress(KeyError, TypeError, ValueError, AttributeError, RecursionError):
        # With the name that belongs to what it says, where it says anything.
        content["id"] = Trial(**content["trial"]).key
    try:
        return json.dumps(content).encode()
    except RecursionError:
        return b"{}"


_LINES = _lines()


@final
class Results(Target):
    """Lines of results: of bytes, and of values in the place of others."""

    name, share = "results", 3

    def draw(self, draw: Draw) -> Any:
        """Draw a line."""
        line = _line(draw)
        return line if draw(st.integers(0, 2)) else bytes_damage(draw, line)

    def read(self, case: Any, place: Path) -> None:
        """Read it, as it is and as one of before."""
        del place
        fresh = migrated_line(case)
        result = Result.from_line(fresh)
        again = Result.from_line(result.line())
        require(again == result, "what it says when it is written again")
        require(migrated_line(fresh) == fresh, "up to date")
        stale(result)
        str(result.trial)


@final
class Stores(Target):
    """Folders of results, in which anything may stand."""

    name, share = "stores", 2
    may_leave = frozenset({".lock"})
    may_change = True

    def draw(self, draw: Draw) -> Any:
        """Draw some files."""
        names = st.sampled_from(["a.jsonl", "b.jsonl", ".c.jsonl.1", "d.txt"])
        files = {}
        for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
            lines = [_line(draw) for _ in range(draw(st.integers(0, 3)))]
            end = b"\n" if draw(st.integers(0, 5)) else b""
            text = b"\n".join(lines) + end
            files[name] = bytes_damage(draw, text) if draw(st.booleans()) else text
        return files, draw(st.sampled_from(["results", "verify", "migrate", "order"]))

    def write(self, case: Any, place: Path) -> None:
        """Write them."""
        for name, content in case[0].items():
            (place / name).write_bytes(content)

    def read(self, case: Any, place: Path) -> None:
        """Look at them, or put them right."""
        store, call = Store(place), case[1]
        if call == "results":
            store.results()
        elif call == "verify":
            check_results(store)
        elif call == "order":
            put_in_order(store)
            check_results(store)
        else:
            for report in migrate(store):
                require(report.problem is not None or report.lines >= 0, "a report")
                if report.problem is not None:
                    kept = report.path.read_bytes()
                    require(kept == case[0][report.path.name], "left as it was")
