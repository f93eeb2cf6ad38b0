"""Cost of amortised strengths: an outer step beside a per-edge one, by edges, a fit.

Both estimators run their own loops on the same network, in turns. Without --datasets,
--edges or --fit, steps are compared on Cora and the default sizes are measured;
otherwise only what is asked for.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from statistics import median
from typing import Any, get_args

from torch_geometric.data import Data

from benchmarks.command_line import count
from benchmarks.estimator_loop import (
    EstimatorLoop,
    amortised,
    gather_evidence,
    on_nodes_of,
    per_edge,
)
from benchmarks.graphs import load_graph
from benchmarks.power_law import power_law_graph
from benchmarks.process_memory import (
    limited_to_free_memory,
    peak_above,
    unless_out_of_memory,
)
from benchmarks.ratios import range_of_ratios
from benchmarks.records import Records
from benchmarks.setting import BACKBONES, Setting
from benchmarks.timing import MEASURED, OUT_OF_MEMORY
from benchmarks.turns import Lane, take_turns
from gsebo import Amortised
from gsebo.methods.folds import LabelUse

STEP, CURVE, FIT = "step", "curve", "fit"
AMORTISED, PER_EDGE = "amortised", "per_edge"
SAME_NODES = "per_edge_on_same_nodes"
_DATASETS = ["cora"]
_EDGES = [10**4, 10**5, 10**6, 3 * 10**6]
_WARM_UP_EDGES = 4000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument("--datasets", nargs="+", help="where to compare steps")
    parser.add_argument("--edges", nargs="+", type=count, help="sizes of the graphs")
    parser.add_argument("--fit", nargs="+", metavar="NAME", help="datasets to fit")
    parser.add_argument("--backbones", nargs="+", choices=BACKBONES, default=["gcn"])
    parser.add_argument("--hidden", type=count, default=16)
    parser.add_argument("--tau", nargs="+", type=count, default=[10, 20])
    parser.add_argument(
        "--label-use", nargs="+", choices=get_args(LabelUse), default=["folds"]
    )
    parser.add_argument(
        "--degree", type=count, default=20, help="mean neighbors in sized graphs"
    )
    parser.add_argument("--features", type=count, default=32, help="of sized graphs")
    parser.add_argument(
        "--edges-tau", type=count, default=5, help="inner steps on sized graphs"
    )
    parser.add_argument("--rounds", type=count, default=15, help="of compared steps")
    parser.add_argument("--edges-rounds", type=count, default=3)
    parser.add_argument("--device", default="cpu")


def run(arguments: argparse.Namespace, records: Records) -> None:
    """Measure what is asked for."""
    datasets, edges, fits = arguments.datasets, arguments.edges, arguments.fit
    if datasets is edges is fits is None:
        datasets, edges = _DATASETS, _EDGES
    for name in datasets or []:
        data = load_graph(name)
        for line in _steps(arguments, data):
            named = {"part": STEP, "dataset": name, **line}
            records.add(named, device=arguments.device)
    for line in _curve(arguments, edges or []):
        records.add({"part": CURVE, **line}, device=arguments.device)
    for name in fits or []:
        line = {"dataset": name, **whole_fit(load_graph(name), arguments.device)}
        records.add({"part": FIT, **line}, device=arguments.device)


def _steps(arguments: argparse.Namespace, data: Data) -> Iterator[dict[str, Any]]:
    cases = product(arguments.backbones, arguments.tau, arguments.label_use)
    for backbone, tau, label_use in cases:
        setting = Setting(
            backbone=backbone,
            hidden=arguments.hidden,
            tau=tau,
            device=arguments.device,
        )
        yield {
            "nodes": data.num_nodes,
            "edges": data.num_edges,
            "backbone": backbone,
            "hidden": setting.hidden,
            "tau": tau,
            "label_use": label_use,
            **compare(data, setting, label_use, arguments.rounds),
        }


def compare(
    data: Data, setting: Setting, label_use: LabelUse, rounds: int
) -> dict[str, Any]:
    """Time as many outer steps of both estimators, in turns.

    Per-edge strengths train on the training nodes, amortised ones on more: what that
    alone costs is seen where per-edge strengths get the same nodes.

    Args:
        data: A graph with masks.
        setting: What to train and how.
        label_use: Of the amortised estimator.
        rounds: How often each takes its steps.
    """
    ours = amortised(data, setting, label_use)
    steps = ours.count
    same = on_nodes_of(data, ours.problem)
    loops = {
        PER_EDGE: per_edge(data, setting, steps),
        SAME_NODES: per_edge(same, setting, steps),
        AMORTISED: ours,
    }
    lanes = {name: _lane(loop, setting) for name, loop in loops.items()}
    for lane in lanes.values():
        # Programs are built in a loop's first steps.
        lane.time_once()
    take_turns(lanes, rounds)
    line: dict[str, Any] = {"outer_steps": steps}
    if len(lanes) < len(loops):
        return line | {"outcome": OUT_OF_MEMORY}
    line["outcome"] = MEASURED
    for name, lane in lanes.items():
        line |= {
            f"{name}_milliseconds": 1e3 * median(lane.seconds) / steps,
            f"{name}_milliseconds_of_rounds": [
                1e3 * second / steps for second in lane.seconds
            ],
            f"{name}_processor_milliseconds": 1e3
            * median(lane.processor_seconds)
            / steps,
        }
    own = lanes[AMORTISED]
    for name in (PER_EDGE, SAME_NODES):
        other = lanes[name]
        line[f"times_{name}"] = range_of_ratios(own.seconds, other.seconds)
        line[f"times_{name}_by_processor"] = range_of_ratios(
            own.processor_seconds, other.processor_seconds
        )
    return line


def _curve(arguments: argparse.Namespace, sizes: list[int]) -> Iterator[dict[str, Any]]:
    if not sizes:
        return
    setting = Setting(
        backbone=arguments.backbones[0],
        hidden=arguments.hidden,
        tau=arguments.edges_tau,
        device=arguments.device,
    )
    graph = partial(
        power_law_graph,
        degree=arguments.degree,
        num_features=arguments.features,
        device=arguments.device,
    )
    with limited_to_free_memory(arguments.device) as free:
        # Kernels are compiled, or loaded from their cache, before anything is measured.
        _at_size(partial(graph, _WARM_UP_EDGES), setting, rounds=1)
        for edges in sorted(sizes):
            found = unless_out_of_memory(
                partial(
                    _at_size, partial(graph, edges), setting, arguments.edges_rounds
                )
            )
            yield {
                "requested_edges": edges,
                "degree": arguments.degree,
                "backbone": setting.backbone,
                "hidden": setting.hidden,
                "features": arguments.features,
                "tau": setting.tau,
                "free_bytes": free,
                **(found or {"outcome": OUT_OF_MEMORY}),
            }


def _at_size(draw: Callable[[], Data], setting: Setting, rounds: int) -> dict[str, Any]:
    data = draw()
    made: list[tuple[EstimatorLoop, Lane]] = []

    def first_round() -> None:
        loop = amortised(data, setting, "folds")
        made.append((loop, _lane(loop, setting)))
        made[0][1].time_once()

    peak = peak_above(first_round, setting.device)
    ((loop, lane),) = made
    each = [1e3 * lane.time_once()[0] / loop.count for _ in range(rounds)]
    evidence = Lane(partial(gather_evidence, loop), device=setting.device)
    return {
        "outcome": MEASURED,
        "nodes": data.num_nodes,
        "edges": data.num_edges,
        "outer_steps": loop.count,
        "milliseconds": median(each),
        "milliseconds_of_rounds": each,
        "evidence_seconds": median(evidence.time_once()[0] for _ in range(rounds)),
        "peak_bytes": peak,
    }


def whole_fit(data: Data, device: str, **choices: Any) -> dict[str, Any]:
    """Time one fit as :class:`gsebo.Amortised` makes it without being told anything.

    Args:
        data: A graph with masks.
        device: Where to compute.
        choices: Parameters that shall not have their defaults.
    """
    make = partial(Amortised, device=device, random_state=0)
    # Compiles what is not in the cache of kernels.
    make(max_outer_steps=1, refit_epochs=1).fit(data)
    model = make(**choices)
    lane = Lane(lambda: model.fit(data), device=device)
    seconds, processor_seconds = lane.time_once()
    return {
        "nodes": data.num_nodes,
        "edges": data.num_edges,
        "backbone": model.backbone,
        "hidden": model.hidden_channels,
        "tau": model.inner_steps,
        "outer_steps": model.max_outer_steps,
        "refit_epochs": model.refit_epochs,
        "seconds": seconds,
        "processor_seconds": processor_seconds,
    }


def _lane(loop: EstimatorLoop, setting: Setting) -> Lane:
    return Lane(loop.outer_steps, loop.threads, setting.device)
