"""Which setting of a search has the best validation accuracy? Test is not looked at.

    python scripts/choose_by_validation.py [results/method_search.jsonl]

Prints, for each method and backbone, every setting that was tried with its validation
accuracy, meant over seeds and then over datasets; the best comes first.
"""

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from stored_results import RESULTS


def main() -> None:
    """Rank the settings."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "method_search.jsonl"
    found: dict[tuple[str, str], dict[str, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for line in path.read_text("utf-8").splitlines():
        fit = json.loads(line)
        setting = json.dumps(fit["set"], sort_keys=True)
        by_dataset = found[fit["method"], fit["backbone"]][setting]
        by_dataset[fit["dataset"]].append(100 * fit["val_accuracy"])
    for (method, backbone), settings in found.items():
        print(f"{method}, {backbone}")
        datasets = max(len(by_dataset) for by_dataset in settings.values())
        means = {
            setting: statistics.mean(statistics.mean(v) for v in by_dataset.values())
            for setting, by_dataset in settings.items()
            if len(by_dataset) == datasets
        }
        for setting, mean in sorted(means.items(), key=lambda pair: -pair[1]):
            print(f"  {mean:6.2f}  {setting}")


if __name__ == "__main__":
    main()
