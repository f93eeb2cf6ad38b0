"""Write what the stored search chose into the preset ``paper``.

``python scripts/paper_preset.py`` rewrites the file; with ``--check`` it exits with 1
if the file is stale. For each method, network and dataset of the search it holds the
candidate with the best mean accuracy on held-out validation nodes.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from gsebo.experiments import Store, Tuning, load_recipe, make_plan

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/gsebo/methods/preset_files/paper.tuned.toml"
HEAD = """\
# Written by scripts/paper_preset.py from the search `tuning` (`gsebo show tuning`): the
# best mean accuracy on a half of the validation nodes that was not learned from.
rule = [
"""


def main() -> None:
    """Rewrite or check the file."""
    fresh = HEAD + "".join(f"    {line},\n" for line in rules()) + "]\n"
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(fresh, "utf-8")
    elif not TARGET.exists() or TARGET.read_text("utf-8") != fresh:
        sys.exit(f"{TARGET.name} is stale: run `make readme`")


def rules() -> list[str]:
    """One inline table for each method, network and dataset with something to say."""
    lines = []
    for (method, backbone, dataset), chosen in sorted(winners().items()):
        if not chosen:
            continue
        where = {"backbone": backbone, "dataset": dataset}
        if method == "gsebo":
            lines.append(table(method=[method, "frozen"], **where, parameters=chosen))
            options = {"method_options": chosen}
            lines.append(table(method="retrain", **where, parameters=options))
        else:
            lines.append(table(method=method, **where, parameters=chosen))
    return lines


def winners() -> dict[tuple[str, str, str], dict[str, Any]]:
    """The best candidate for each method, network and dataset; of equals the first."""
    results = Store(ROOT / "results").results()
    scores: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(dict)
    for one in make_plan(load_recipe("tuning"), Tuning(results)).trials:
        place = (one.trial.method, one.trial.backbone, one.trial.dataset)
        candidate = json.dumps(one.candidate.parameters)
        if one.trial.key not in results:
            sys.exit("the search is not complete: run `gsebo run tuning`")
        accuracy = results[one.trial.key].test_accuracy
        # A candidate that failed with any seed is out.
        value = float("-inf") if accuracy is None else accuracy
        scores[place].setdefault(candidate, []).append(value)
    return {
        place: json.loads(max(tried, key=lambda name: mean(tried[name])))
        for place, tried in scores.items()
    }


def table(**items: Any) -> str:
    """An inline table of TOML."""
    return "{ " + ", ".join(f"{k} = {value(v)}" for k, v in items.items()) + " }"


def value(item: Any) -> str:
    """A value of TOML; that of JSON but for tables."""
    return table(**item) if isinstance(item, dict) else json.dumps(item)


if __name__ == "__main__":
    main()
