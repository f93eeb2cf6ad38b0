"""Time of one outer step by the number of edges, on generated graphs.

Of ours and of the peer in plain torch, which both see only what the losses depend on.
"""

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from torch_geometric.data import Data

from benchmarks.case import Case
from benchmarks.command_line import count
from benchmarks.packages import OURS, PEERS, PLAIN
from benchmarks.power_law import power_law_graph
from benchmarks.process_memory import (
    limited_to_free_memory,
    peak_above,
    unless_out_of_memory,
)
from benchmarks.records import Records
from benchmarks.setting import BACKBONES, Setting
from benchmarks.timing import MEASURED, OUT_OF_MEMORY, warmed_up
from benchmarks.turns import Lane

# What is measured by default: (edges, hidden width, features).
_DEFAULTS = {
    "cpu": ([10**4, 10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**7], 16, 32),
    "cuda": ([10**5, 10**6, 10**7, 3 * 10**7, 10**8, 12 * 10**7], 64, 100),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument("--device", choices=list(_DEFAULTS), default="cpu")
    parser.add_argument("--edges", nargs="+", type=count, help="sizes of the graphs")
    parser.add_argument(
        "--degree", type=count, default=20, help="mean number of neighbors"
    )
    parser.add_argument("--backbone", choices=BACKBONES, default="gcn")
    parser.add_argument("--hidden", type=count)
    parser.add_argument("--features", type=count)
    parser.add_argument("--tau", type=count, default=5)
    parser.add_argument("--rounds", type=count, default=3)
    both = (OURS, PLAIN)
    parser.add_argument("--who", nargs="+", choices=both, default=list(both))


def run(arguments: argparse.Namespace, records: Records) -> None:
    """Measure every size, the smallest first."""
    device = arguments.device
    sizes, hidden, features = _DEFAULTS[device]
    setting = Setting(
        backbone=arguments.backbone,
        hidden=arguments.hidden or hidden,
        tau=arguments.tau,
        device=device,
    )
    with limited_to_free_memory(device) as free:
        for edges in sorted(arguments.edges or sizes):
            line = {
                "requested_edges": edges,
                "degree": arguments.degree,
                "backbone": setting.backbone,
                "hidden": setting.hidden,
                "features": arguments.features or features,
                "tau": setting.tau,
                "free_bytes": free,
            }
            graph = partial(
                power_law_graph,
                edges,
                degree=arguments.degree,
                num_features=line["features"],
                device=device,
            )
            for who in arguments.who:
                found = measure(graph, setting, who, arguments.rounds)
                records.add({**line, "who": who, **found}, device=device)


def measure(
    graph: Callable[[], Data], setting: Setting, who: str, rounds: int
) -> dict[str, Any]:
    """Time one outer step of a contender on a graph, which is drawn here."""
    found = unless_out_of_memory(lambda: _measure(graph(), setting, who, rounds))
    return {"outcome": OUT_OF_MEMORY} if found is None else found


def _measure(data: Data, setting: Setting, who: str, rounds: int) -> dict[str, Any]:
    case = Case(data, setting)
    if who in PEERS:
        # An edge list and its strengths are what a peer would have loaded.
        _ = case.task
    contender = warmed_up(case, who)
    lane = Lane(contender.outer_step, contender.threads, setting.device)
    seconds = [lane.time_once()[0] for _ in range(rounds)]
    # Two at once might not fit where one does.
    del contender, lane
    return {
        "outcome": MEASURED,
        "nodes": data.num_nodes,
        "edges": data.num_edges,
        "milliseconds": 1e3 * median(seconds),
        "milliseconds_of_rounds": [1e3 * second for second in seconds],
        "peak_bytes": peak_above(lambda: case.build(who).outer_step(), setting.device),
    }
