"""What the report says of large graphs."""

from collections.abc import Sequence

from benchmarks.markdown import (
    MISSING,
    Line,
    latest,
    measured,
    megabytes,
    number,
    table,
)

_STAGES = ("fit", "inference")


def large(lines: Sequence[Line]) -> str:
    """Seconds and memory by the number of edges, and beside the whole graph."""
    lines = latest(lines, ("requested_edges", "nodes", "batch_size", "device"))
    parts = [
        "A fresh process fits `Amortised(batch_size=..., inner_steps=5, "
        "max_outer_steps=10, refit_epochs=20)` on a graph folder, with a strength of "
        "its own for every edge, then writes class probabilities of all nodes to a "
        "file. Seconds of an outer step: mean of a round of all folds and its "
        "evaluation, the first round left out. Other work on the machine disturbs "
        "processor time less than the clock; it adds up both threads.",
        _time(lines),
        "Memory at most, and before (imports). Resident memory has pages of mapped "
        "files in it, which the system takes back when it needs them; private memory "
        "has not. Inference may fill a room of "
        f"{megabytes(lines[-1]['room_bytes'])} MB beside what was there before, and "
        "turns to files for what does not fit.",
        _memory(lines),
    ]
    if any("peak_gpu_bytes" in line["fit"] for line in lines):
        parts.append(_gpu(lines))
    if any("whole" in line for line in lines):
        parts += ["Beside the same on the whole graph in memory:", _whole(lines)]
    return "\n\n".join(parts)


def _time(lines: Sequence[Line]) -> str:
    heads = [
        *("edges", "nodes", "batch", "on", "s per outer step", "processor, s"),
        *("fit, s", "processor, s", "inference, s", "processor, s", "test accuracy"),
    ]
    rows = [
        [
            *_case(line),
            number(line["step_seconds"]),
            number(line["step_processor_seconds"]),
            *(
                measured(line.get(stage), key)
                for stage in _STAGES
                for key in ("seconds", "processor_seconds")
            ),
            _accuracy(line),
        ]
        for line in lines
    ]
    return table(heads, rows)


def _memory(lines: Sequence[Line]) -> str:
    heads = [
        *("edges", "nodes", "batch", "on", "before, MB", "fit, MB", "inference, MB"),
        *("private before, MB", "private in fit, MB", "private in inference, MB"),
    ]
    rows = [
        [
            *_case(line),
            megabytes(line["fit"]["idle_bytes"]),
            *_of_stages(line, "peak_bytes"),
            megabytes(line["fit"]["idle_private_bytes"]),
            *_of_stages(line, "peak_private_bytes"),
        ]
        for line in lines
    ]
    return table(heads, rows)


def _gpu(lines: Sequence[Line]) -> str:
    heads = ["edges", "nodes", "batch", "on", "GPU in fit, MB", "in inference, MB"]
    rows = [
        [*_case(line), *_of_stages(line, "peak_gpu_bytes")]
        for line in lines
        if "peak_gpu_bytes" in line["fit"]
    ]
    return table(heads, rows)


def _whole(lines: Sequence[Line]) -> str:
    heads = [
        *("edges", "nodes", "batch", "on", "s per outer step", "whole graph, s"),
        *("private in fit, MB", "whole graph, MB", "test accuracy", "whole graph"),
    ]
    rows = []
    for line in lines:
        whole = line.get("whole")
        if whole is None:
            continue
        memory = whole.get("fit", {}).get("peak_private_bytes")
        rows.append(
            [
                *_case(line),
                number(line["step_seconds"]),
                measured(whole, "step_seconds"),
                megabytes(line["fit"]["peak_private_bytes"]),
                megabytes(memory),
                _accuracy(line),
                _accuracy(whole),
            ]
        )
    return table(heads, rows)


def _accuracy(line: Line) -> str:
    found = line.get("test_accuracy")
    return MISSING if found is None else number(found)


def _of_stages(line: Line, key: str) -> list[str]:
    """Memory of each stage that was measured."""
    return [megabytes(line.get(stage, {}).get(key)) for stage in _STAGES]


def _case(line: Line) -> list[str]:
    keys = ("edges", "nodes", "batch_size", "device")
    return [str(line[key]) for key in keys]
