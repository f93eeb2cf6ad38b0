"""The process that ``python -m benchmarks convert`` starts: one file, two numbers."""

import contextlib
import io
import json
import sys
import time

from benchmarks.process_memory import peak_bytes, reset_peak


def measure(path: str, out: str) -> dict[str, float]:
    """Run the command, imports included in its memory but not in its time."""
    import torch_geometric.data  # noqa: F401

    from gsebo.cli.data import convert

    idle = reset_peak()
    printed = io.StringIO()
    begun = time.perf_counter()
    used = time.process_time()
    with contextlib.redirect_stdout(printed):
        convert(out=out, edges=path, json=True)
    facts = json.loads(printed.getvalue())
    return {
        "seconds": time.perf_counter() - begun,
        "processor_seconds": time.process_time() - used,
        "idle_bytes": idle,
        "peak_bytes": peak_bytes(),
        "nodes": facts["nodes"],
        "edges": facts["edges"],
    }


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
