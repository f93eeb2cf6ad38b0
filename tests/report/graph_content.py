"""Graphs that were made up, for pages about them."""

from typing import Any

import numpy as np
import pandas

from gsebo.report.page.graph_page import GraphPage

CLASSES = ("Physics", "Biology", "History", "Law")


def made_up(
    num_edges: int = 400,
    num_nodes: int = 120,
    seed: int = 0,
    *,
    missing: int = 30,
    **more: Any,
) -> GraphPage:
    """Communities of people; the edges between them are the most suspicious."""
    random = np.random.default_rng(seed)
    classes = random.integers(0, len(CLASSES), num_nodes)
    ids = np.array([f"person {number}" for number in range(num_nodes)])
    score = np.sort(random.beta(0.6, 2.5, num_edges))[::-1]
    ends = _ends(random, classes, score)
    edges = _frame(random, ids, classes, ends, score)
    known = random.random(num_nodes) < 0.5
    names = np.array(CLASSES, object)[classes]
    nodes = pandas.DataFrame(
        {
            "id": ids,
            "label": np.where(known, names, None),
            "predicted": names,
            "confidence": random.uniform(0.5, 1.0, num_nodes),
        }
    )
    pairs = _ends(random, classes, np.zeros(missing))
    first = np.unique(np.geomspace(1, num_edges, 12).astype(int))
    precision = np.linspace(0.95, 0.1, len(first))
    given: dict[str, Any] = {
        "title": "Suspicious edges of friends.csv",
        "sentences": (
            f"Of {num_edges:,} edges some {num_edges // 20:,} are probably wrong.",
            "Most of them join two classes whose members share hardly any neighbor.",
            "Probabilities are calibrated on planted edges of this very graph.",
        ),
        "edges": edges,
        "ends": ends,
        "nodes": nodes,
        "expected": pandas.DataFrame(
            {
                "first": first,
                "precision": precision,
                "low": np.clip(precision - 0.072, 0, 1),
                "high": np.clip(precision + 0.061, 0, 1),
            }
        ),
        "missing": _frame(random, ids, classes, pairs, np.linspace(0.9, 0.3, missing)),
        "missing_ends": pairs,
        "history": [_record(step) for step in range(1, 81)],
        "facts": {
            "graph": "friends.csv",
            "nodes": num_nodes,
            "edges": num_edges,
            "method": "amortised",
            "seed": 0,
        },
    }
    return GraphPage(**{**given, **more})


def _ends(random: Any, classes: Any, score: Any) -> Any:
    """Ends of different classes where the score is high, else mostly of one."""
    source = random.integers(0, len(classes), len(score))
    target = random.integers(0, len(classes), len(score))
    # Nodes by their class, and which of them is drawn.
    order, drawn = np.argsort(classes, kind="stable"), random.random(len(score))
    begin = np.searchsorted(classes[order], classes[source])
    size = np.bincount(classes)[classes[source]]
    alike = order[begin + (drawn * size).astype(int)]
    target = np.where(score < 0.5, alike, target)
    same = source == target
    target[same] = (source[same] + 1) % len(classes)
    return np.stack([source, target]).astype(np.int64)


def _frame(random: Any, ids: Any, classes: Any, ends: Any, score: Any) -> Any:
    source, target = ends
    names = np.array(CLASSES, object)
    cosine = np.clip(1 - score + random.normal(0, 0.1, len(score)), 0, 1)
    shared = random.poisson(3 * (1 - score))
    return pandas.DataFrame(
        {
            "source": ids[source],
            "target": ids[target],
            "score": score,
            "probability": score**1.4,
            "cosine": cosine,
            "agreement": np.clip(1 - score, 0, 1),
            "common_neighbors": shared,
            "learned_weight": np.clip(1.2 - score, 0, 1),
            "source_class": names[classes[source]],
            "target_class": names[classes[target]],
            "reason": [
                f"{names[classes[one]]} and {names[classes[other]]} differ, and "
                f"features are {'un' if alike < 0.5 else ''}like (cosine {alike:.2f}), "
                f"{number} shared neighbors"
                for one, other, alike, number in zip(
                    source, target, cosine, shared, strict=True
                )
            ],
        }
    )


def _record(step: int) -> dict[str, float]:
    return {
        "step": step,
        "train_loss": 1.4 * np.exp(-step / 15) + 0.1,
        "val_loss": 1.4 * np.exp(-step / 20) + 0.3 + 0.002 * step,
        "val_accuracy": 0.85 - 0.5 * np.exp(-step / 12),
    }
