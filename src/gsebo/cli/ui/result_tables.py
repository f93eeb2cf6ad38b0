"""Tables of what fits achieved."""

from typing import Any

from gsebo.cli.edge_changes import summarise
from gsebo.cli.ui.output import percent, print_table
from gsebo.data import noise_in_words
from gsebo.methods import GraphClassifier


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
