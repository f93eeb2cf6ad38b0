"""Fit methods on datasets over seeds, in parallel, one JSON line per fit.

Lines that are already in the output are not computed again, so that a stopped run goes
on where it was:

    python scripts/accuracy_table.py results/table1.jsonl --workers 2

    python scripts/accuracy_table.py /tmp/search.jsonl --backbones gcn --seeds 5 \
        --vary inner_steps=10,20 --vary per_layer=false,true --set stop_on=holdout
"""

import argparse
import itertools
import json
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAPER_DATASETS = ["cora", "citeseer", "terrorist", "air-usa"]
PAPER_BACKBONES = ["gcn", "gat", "sage", "sage-gcn", "jk"]


def main() -> None:
    """Run what is missing."""
    options = parse_arguments()
    done = {key_of(json.loads(line)) for line in read_lines(options.output)}
    trials = [trial for trial in all_trials(options) if key_of(trial) not in done]
    print(f"{len(done)} fits stored, {len(trials)} to run", flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    with (
        context.Pool(options.workers, maxtasksperchild=20) as pool,
        options.output.open("a", encoding="utf-8") as file,
    ):
        for number, result in enumerate(pool.imap_unordered(run_trial, trials), 1):
            file.write(json.dumps(result) + "\n")
            file.flush()
            print(f"{number}/{len(trials)} {summary(result)}", flush=True)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--datasets", nargs="+", default=PAPER_DATASETS)
    parser.add_argument("--backbones", nargs="+", default=PAPER_BACKBONES)
    parser.add_argument("--methods", nargs="+", default=["vanilla", "frozen", "gsebo"])
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", action="append", default=[], metavar="name=value")
    parser.add_argument("--vary", action="append", default=[], metavar="name=a,b")
    return parser.parse_args()


def all_trials(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every combination; slow backbones first, so that no worker idles at the end."""
    fixed = dict(pair.split("=", 1) for pair in options.set)
    varied = [
        [(name, value) for value in values.split(",")]
        for name, values in (pair.split("=", 1) for pair in options.vary)
    ]
    backbones = sorted(options.backbones, key=lambda name: name != "gat")
    for backbone, dataset, method, seed in itertools.product(
        backbones, options.datasets, options.methods, range(options.seeds)
    ):
        if not works_with(method, backbone):
            continue
        for choice in itertools.product(*varied):
            yield {
                "dataset": dataset,
                "method": method,
                "backbone": backbone,
                "preset": options.preset,
                "set": {k: parse(v) for k, v in {**fixed, **dict(choice)}.items()},
                "seed": seed,
                "device": options.device,
            }


def works_with(method: str, backbone: str) -> bool:
    """Whether a method takes a network."""
    from gsebo.methods import METHODS

    names = METHODS[method].backbones
    return not names or backbone in names


def parse(text: str) -> Any:
    """Read a value as JSON if it is JSON, else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def run_trial(trial: dict[str, Any]) -> dict[str, Any]:
    """Fit once."""
    import torch

    import gsebo
    from gsebo.methods import METHODS
    from gsebo.methods.presets import preset_parameters

    torch.set_num_threads(1)
    data = gsebo.load_data(trial["dataset"])
    estimator = METHODS[trial["method"]].estimator
    wanted: dict[str, Any] = {}
    if trial["preset"] != "none":
        where = {key: trial[key] for key in ("backbone", "method", "dataset")}
        wanted = preset_parameters(trial["preset"], **where)
    wanted |= trial["set"]
    known = estimator().get_params(deep=False)
    parameters = {name: value for name, value in wanted.items() if name in known}
    model = estimator(
        backbone=trial["backbone"],
        device=trial["device"],
        random_state=trial["seed"],
        **parameters,
    )
    begun = time.perf_counter()
    model.fit(data)
    best = model.history_[model.best_step_ - 1]
    return trial | {
        "parameters": parameters,
        "test_accuracy": model.score(data),
        "val_accuracy": best.val_accuracy,
        "val_loss": best.val_loss,
        "best_step": model.best_step_,
        "outer_iterations": len(model.history_),
        "seconds": round(time.perf_counter() - begun, 3),
        "new_edges": model.new_edge_index_.shape[1],
        "versions": {"gsebo": gsebo.__version__, "torch": torch.__version__},
    }


def key_of(trial: dict[str, Any]) -> str:
    """What makes two fits the same."""
    names = ("dataset", "method", "backbone", "preset", "set", "seed", "device")
    return json.dumps([trial[name] for name in names], sort_keys=True)


def read_lines(path: Path) -> list[str]:
    """Lines of the output so far; a half-written last one is dropped from the file."""
    if not path.exists():
        return []
    text = path.read_text("utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, "utf-8")
    return whole.splitlines()


def summary(result: dict[str, Any]) -> str:
    """One line about a fit."""
    where = f"{result['method']} {result['backbone']} {result['dataset']}"
    return (
        f"{where} {result['set']} seed {result['seed']}: "
        f"test {result['test_accuracy']:.3f} val {result['val_accuracy']:.3f} "
        f"({result['seconds']:.0f} s)"
    )


if __name__ == "__main__":
    main()
