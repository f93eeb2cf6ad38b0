"""What an automatic fit chose, and why."""

from collections import Counter
from typing import Any

from gsebo.cli.edge_changes import summarise
from gsebo.cli.output import percent, print_table, print_text
from gsebo.methods import Auto, GraphClassifier


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
            "structure": _structure(model),
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
        (_row(record) for record in choice["tried"]),
    )
    chosen = next(record for record in choice["tried"] if record["chosen"])
    print_text(f"Chose {chosen['candidate']} because {chosen['reason']}.")
    print_text(f"Structure: {_in_words(choice['structure'])}.")


def _row(record: dict[str, Any]) -> tuple[object, ...]:
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


def _structure(model: GraphClassifier) -> dict[str, Any] | None:
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


def _in_words(structure: dict[str, Any] | None) -> str:
    if structure is None:
        return "as given, no edge was changed"
    return (
        f"{percent(structure['weakened_share'])} of the edges are weaker, "
        f"{percent(structure['strengthened_share'])} stronger, "
        f"{structure['new_edges']} are new"
    )
