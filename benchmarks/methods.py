"""Whole fits beside one of GSEBO, in turns: amortised, auto, several seeds at once.

Every estimator has its defaults and stops by itself. Ratios are those of each round.
"""

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median

from torch_geometric.data import Data

from benchmarks.command_line import count
from benchmarks.graphs import load_graph
from benchmarks.ratios import range_of_ratios
from benchmarks.records import Records
from benchmarks.turns import Lane, take_turns
from gsebo import GSEBO, Amortised, Auto

BESIDE = "gsebo"
SEEDS = "gsebo, several seeds"
_OTHERS = {"amortised": Amortised, "auto": Auto}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument("--datasets", nargs="+", default=["cora"])
    parser.add_argument(
        "--who",
        nargs="+",
        choices=(*_OTHERS, "seeds"),
        default=[*_OTHERS, "seeds"],
        help="what is fitted beside GSEBO",
    )
    parser.add_argument("--seeds", type=count, default=10, help="fitted at once")
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--device", default="cpu")


def run(arguments: argparse.Namespace, records: Records) -> None:
    """Measure every graph."""
    for name in arguments.datasets:
        data = load_graph(name)
        calls = fits(data, arguments.who, arguments.device, arguments.seeds)
        lanes = {
            who: Lane(call, device=arguments.device) for who, call in calls.items()
        }
        for lane in lanes.values():
            # Kernels are compiled, or loaded from their cache, before the clock runs.
            lane.time_once()
        take_turns(lanes, arguments.rounds)
        beside = lanes[BESIDE]
        for who, lane in lanes.items():
            line = {
                "dataset": name,
                "nodes": data.num_nodes,
                "edges": data.num_edges,
                "who": who,
                "seeds": arguments.seeds if who == SEEDS else 1,
                "seconds": median(lane.seconds),
                "processor_seconds": median(lane.processor_seconds),
                "times_gsebo": range_of_ratios(lane.seconds, beside.seconds),
                "times_gsebo_by_processor": range_of_ratios(
                    lane.processor_seconds, beside.processor_seconds
                ),
            }
            records.add(line, device=arguments.device)


def fits(
    data: Data, who: list[str], device: str, seeds: int
) -> dict[str, Callable[[], object]]:
    """One fit of each, GSEBO's first.

    Args:
        data: A graph with masks.
        who: Names of the others, or ``"seeds"``.
        device: Where to compute.
        seeds: How many are fitted at once.
    """
    own = {"device": device, "random_state": 0}
    found: dict[str, Callable[[], object]] = {BESIDE: partial(GSEBO(**own).fit, data)}
    for name in who:
        if name == "seeds":
            found[SEEDS] = partial(GSEBO(**own).fit, data, replicas=seeds)
        else:
            found[name] = partial(_OTHERS[name](**own).fit, data)
    return found
