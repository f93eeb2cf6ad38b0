"""What the report says of the cost of amortised strengths."""

from collections.abc import Callable, Sequence

from benchmarks.growth import exponents
from benchmarks.markdown import (
    MISSING,
    Line,
    latest,
    measured,
    megabytes,
    number,
    ratio,
    table,
)

# Below, an outer step is mostly what every call costs.
_LEAST_EDGES, _MOST_EDGES = 1e5, 1e8


def amortised(lines: Sequence[Line]) -> str:
    """Steps beside each other, steps by the number of edges, whole fits."""
    parts = []
    for name, part in _PARTS.items():
        chosen = [line for line in lines if line["part"] == name]
        if chosen:
            parts.append(part(chosen))
    return "\n\n".join(parts)


def _step(lines: Sequence[Line]) -> str:
    case = ("device", "dataset", "backbone", "hidden", "tau", "label_use")
    who = ("per_edge", "per_edge_on_same_nodes", "amortised")
    rows = [
        [
            *(str(line[key]) for key in case),
            *(measured(line, f"{name}_milliseconds") for name in who),
            ratio(line.get("times_per_edge")),
            ratio(line.get("times_per_edge_by_processor")),
            ratio(line.get("times_per_edge_on_same_nodes_by_processor")),
        ]
        for line in latest(lines, case)
    ]
    heads = [*case, *(f"{name}, ms" for name in who), "amortised / per edge"]
    heads += ["by processor time", "on the same nodes by processor time"]
    return "\n\n".join(
        [
            "One outer step with its share of the evaluation, by the loops of both "
            "estimators, median of the rounds. Amortised strengths train on more of "
            "the labelled nodes; per-edge strengths on the same nodes show what that "
            "alone costs. Ratios as median (least to largest) of the rounds; other "
            "work on the machine disturbs processor time less than the clock.",
            table([head.replace("_", " ") for head in heads], rows),
        ]
    )


def _curve(lines: Sequence[Line]) -> str:
    case = ("device", "backbone", "hidden", "features", "tau", "degree")
    lines = latest(lines, (*case, "requested_edges"))
    rows = [
        [
            *(str(line[key]) for key in case),
            *(str(line.get(key, MISSING)) for key in ("nodes", "edges")),
            measured(line, "milliseconds"),
            number(line.get("evidence_seconds")),
            megabytes(line.get("peak_bytes")),
        ]
        for line in lines
    ]
    heads = [*case, "nodes", "edges", "one outer step, ms", "evidence, s", "peak, MB"]
    return "\n\n".join(
        [
            "An amortised outer step on power-law graphs. The evidence of all edges is "
            "gathered once, before the first step:",
            table(heads, rows),
            *exponents(lines, case, _LEAST_EDGES, _MOST_EDGES),
        ]
    )


def _fit(lines: Sequence[Line]) -> str:
    case = ("device", "dataset", "nodes", "edges", "backbone", "hidden", "tau")
    more = ("outer_steps", "refit_epochs")
    rows = [
        [
            *(str(line[key]) for key in (*case, *more)),
            str(line["cores"]),
            number(line["seconds"]),
            number(line["processor_seconds"]),
        ]
        for line in latest(lines, (*case, *more))
    ]
    heads = [key.replace("_", " ") for key in (*case, *more)]
    return "\n\n".join(
        [
            "A whole fit of `Amortised` with its defaults, from the guesses by "
            "features to the final refit:",
            table([*heads, "cores", "s", "processor, s"], rows),
        ]
    )


_PARTS: dict[str, Callable[[Sequence[Line]], str]] = {
    "step": _step,
    "curve": _curve,
    "fit": _fit,
}
