"""Tables of what fits achieved."""

from collections import Counter
from typing import Any

from gsebo.cli.edge_changes import summarise
from gsebo.cli.ui.output import percent, print_table, print_text
from gsebo.data import noise_in_words
from gsebo.methods import Auto, GraphClassifier


def print_fit(result: dict[str, Any], model: GraphClassifier) -> None:
    """Print the outcome of one method.

    Args:
        result: As in the JSON form.
        model: The last fit, to say what happened to its edges.
    """
    runs = result.get("runs", [])
    if len(runs) > 1:
        _print_runs(runs)
    rows: list[tuple[str, object]] = [
        ("test accuracy", _with_spread(result, "test_accuracy")),
        ("validation accuracy", _with_spread(result, "val_accuracy")),
        ("seconds", f"{result['seconds']:.1f}"),
    ]
    if len(runs) <= 1:
        rows.append(("best step", _best_step(result)))
        rows.append(("structure", structure_in_words(model)))
    rows += [
        ("graph", f"{result['num_nodes']} nodes, {result['num_edges']} edges"),
        ("split", result["split"]),
        ("device", result["device"]),
    ]
    print_table(_title(result), ("", ""), rows)


def print_comparison(results: list[dict[str, Any]]) -> None:
    """Print one row for each method."""
    first = results[0]
    number = len(first["runs"])
    seeds = f"{number} seed" + ("s" if number > 1 else "")
    title = f"{first['dataset']}, {seeds}, split {first['split']}"
    columns = (
        "method",
        "backbone",
        ">test",
        ">validation",
        ">seconds per run",
        ">peak memory",
        f">difference to {first['method']}",
    )
    print_table(
        title,
        columns,
        (
            (
                result["method"],
                result["backbone"],
                _with_spread(result, "test_accuracy"),
                _with_spread(result, "val_accuracy"),
                f"{result['seconds'] / number:.1f}",
                f"{result['peak_memory_bytes'] / 1e6:.0f} MB",
                _signed(result["difference"]) if result is not first else None,
            )
            for result in results
        ),
    )


def structure_in_words(model: GraphClassifier) -> str:
    """Say in one line what the fit did to the edges."""
    changes = summarise(model, top=0)
    if not changes.learned:
        return "not learned: every edge counts as at the start"
    added = model.new_edge_index_.shape[1]
    if changes.unchanged_everywhere and not added:
        return "no edge changed: the best step came before the first change"
    parts = [f"{added} edges added"] if added else []
    for layer in changes.layers:
        prefix = "" if layer.layer is None else f"layer {layer.layer}: "
        parts.append(
            f"{prefix}{layer.weakened.count} edges weakened, "
            f"{layer.strengthened.count} strengthened, "
            f"{layer.unchanged.count} as before"
        )
    return "; ".join(parts)


def _print_runs(runs: list[dict[str, Any]]) -> None:
    print_table(
        "Runs",
        (">seed", ">test", ">validation", ">best step", ">steps", ">seconds"),
        (
            (
                run["seed"],
                percent(run["test_accuracy"]),
                percent(run["val_accuracy"]),
                run["best_step"],
                run["outer_iterations"],
                f"{run['seconds']:.1f}",
            )
            for run in runs
        ),
    )


def _title(result: dict[str, Any]) -> str:
    noise = f", {noise_in_words(result['noise'])}" if result["noise"] else ""
    runs = result.get("runs", [])
    seeds = f"{len(runs)} seeds" if len(runs) > 1 else f"seed {result['seed']}"
    what = f"{result['method']} on {result['dataset']}, {result['backbone']}"
    return f"{what}, {seeds}{noise}"


def _best_step(result: dict[str, Any]) -> str:
    return f"{result['best_step']} of {result['outer_iterations']}"


def _with_spread(result: dict[str, Any], key: str) -> str | None:
    value = result[key]
    if value is None:
        return None
    if len(result.get("runs", [])) < 2:
        return percent(value)
    return f"{100 * value:.1f} ± {100 * result[f'{key}_std']:.1f} %"


def _signed(difference: float | None) -> str | None:
    return None if difference is None else f"{100 * difference:+.1f}"


def choice_facts(model: GraphClassifier) -> dict[str, Any]:
    """What ``--json`` adds for a method that chooses; nothing for others."""
    if not isinstance(model, Auto):
        return {}
    return {
        "choice": {
            "chosen": model.chosen_,
            "preparation": model.preparation_,
            "epochs": model.epochs_,
            "parameters": model.chosen_parameters_,
            "structure": _structure_facts(model),
            "tried": model.choice_,
        }
    }


def print_choice(result: dict[str, Any]) -> None:
    """Print what was tried and one sentence on what was chosen.

    Args:
        result: As in the JSON form; without a choice nothing is printed.
    """
    runs = result.get("runs", [])
    if "choice" not in result:
        return
    if len(runs) > 1:
        counts = Counter(run["choice"]["chosen"] for run in runs)
        times = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        print_text(f"Chosen in {len(runs)} runs: {times}.")
        return
    choice = result["choice"]
    print_table(
        "Candidates on labelled nodes that were held out",
        (
            "candidate",
            "features",
            ">epochs",
            ">accuracy",
            ">log-loss",
            ">folds",
            ">seconds",
        ),
        (_choice_row(record) for record in choice["tried"]),
    )
    chosen = next(record for record in choice["tried"] if record["chosen"])
    print_text(f"Chose {chosen['candidate']} because {chosen['reason']}.")
    print_text(f"Structure: {_structure_facts_in_words(choice['structure'])}.")


def _choice_row(record: dict[str, Any]) -> tuple[object, ...]:
    loss = record["log_loss"]
    return (
        record["candidate"],
        record["preparation"],
        record["epochs"],
        percent(record["accuracy"]),
        None if loss is None else f"{loss:.3f}",
        len(record["fold_accuracy"]),
        f"{record['seconds']:.1f}",
    )


def _structure_facts(model: GraphClassifier) -> dict[str, Any] | None:
    """Shares of the edges that changed, the mean over layers, and how many are new."""
    changes = summarise(model, top=0)
    if not changes.learned:
        return None
    total = changes.num_edges * len(changes.layers)
    weakened = sum(layer.weakened.count for layer in changes.layers)
    strengthened = sum(layer.strengthened.count for layer in changes.layers)
    return {
        "weakened_share": weakened / total,
        "strengthened_share": strengthened / total,
        "new_edges": model.new_edge_index_.shape[1],
    }


def _structure_facts_in_words(structure: dict[str, Any] | None) -> str:
    if structure is None:
        return "as given, no edge was changed"
    return (
        f"{percent(structure['weakened_share'])} of the edges are weaker, "
        f"{percent(structure['strengthened_share'])} stronger, "
        f"{structure['new_edges']} are new"
    )
