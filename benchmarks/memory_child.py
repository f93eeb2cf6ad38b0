"""The process that ``python -m benchmarks memory`` starts: one case, one number."""

import json
import sys
from dataclasses import replace
from typing import Any

from benchmarks.case import Case
from benchmarks.graphs import load_graph, small_part
from benchmarks.packages import PEERS, load_package
from benchmarks.process_memory import peak_bytes, reset_peak
from benchmarks.setting import Setting

OUTER_STEPS = 2


def measure(wanted: dict[str, Any]) -> dict[str, int]:
    """Train as wanted; return the memory held before and the most held while at it."""
    setting = Setting(
        backbone=wanted["backbone"], hidden=wanted["hidden"], tau=wanted["tau"]
    )
    load_package(wanted["who"])
    case = Case(load_graph(wanted["dataset"]), setting)
    who = wanted["who"]
    if wanted["start"] == "warm":
        part = Case(small_part(case.data), replace(setting, tau=2))
        part.build(who).outer_step()
        del part
    if who in PEERS:
        # Dense features and an edge list are what a peer would have loaded; what gsebo
        # makes of the graph counts as ours, and what plain torch does as its own.
        _ = case.task
    idle = reset_peak()
    contender = case.build(who)
    for _ in range(OUTER_STEPS):
        contender.outer_step()
    return {"idle_bytes": idle, "peak_bytes": peak_bytes()}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
