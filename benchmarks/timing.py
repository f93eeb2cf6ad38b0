"""Time of one outer step, ours and the peers' in turns.

Everybody trains the same network from the same weights on the same nodes: tau steps of
Adam with dropout, then the hypergradient and one step of the strengths. A peer works on
one thread or on all, whichever is faster for it.
"""

import argparse
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.case import Case, each_case
from benchmarks.command_line import add_cases, count
from benchmarks.contender import Contender
from benchmarks.ours import Ours, kernel_seconds
from benchmarks.packages import LIBRARIES, OURS, require_installed
from benchmarks.peers.peer import Peer
from benchmarks.process_memory import (
    limited_to_free_memory,
    peak_above,
    unless_out_of_memory,
)
from benchmarks.ratios import faster_of_each_round, per_round_ratio
from benchmarks.records import Records
from benchmarks.setting import Setting
from benchmarks.turns import Lane, take_turns

MEASURED, OUT_OF_MEMORY = "measured", "out of memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    add_cases(
        parser,
        datasets=["cora", "citeseer", "pubmed", "wordnet-lexname"],
        hidden=[16, 128],
    )
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--device", default="cpu")


def run(arguments: argparse.Namespace, records: Records) -> None:
    """Measure every case."""
    require_installed(arguments.who)
    with limited_to_free_memory(arguments.device) as free:
        for dataset, case in each_case(arguments):
            for line in measure(case, arguments.who, arguments.rounds):
                named = {"dataset": dataset, **case.sizes(), **line}
                records.add({**named, "free_bytes": free}, device=arguments.device)


def measure(case: Case, who: list[str], rounds: int) -> list[dict[str, Any]]:
    """Time one outer step of each contender; one line each."""
    contenders = {
        name: unless_out_of_memory(partial(warmed_up, case, name)) for name in who
    }
    lanes = {
        name: Lane(contender.outer_step, contender.threads, case.setting.device)
        for name, contender in contenders.items()
        if contender is not None
    }
    take_turns(lanes, rounds)
    seconds = {name: lane.seconds for name, lane in lanes.items()}
    lines = []
    for name in who:
        if name not in lanes:
            lines.append({"who": name, "outcome": OUT_OF_MEMORY})
            continue
        lane = lanes[name]
        with lane.threads():
            threads = torch.get_num_threads()
        line = {
            "who": name,
            "outcome": MEASURED,
            "milliseconds_per_inner_step": _per_inner_step(lane.seconds, case.setting),
            "milliseconds_of_rounds": [1e3 * second for second in lane.seconds],
            "processor_milliseconds_per_inner_step": _per_inner_step(
                lane.processor_seconds, case.setting
            ),
            "threads": threads,
            "peak_bytes": peak_of(case, name),
            **ratios_of(name, seconds),
        }
        contender = contenders[name]
        kernels = kernel_seconds(contender) if isinstance(contender, Ours) else None
        if kernels is not None:
            per_step = _per_inner_step([kernels], case.setting)
            line["kernel_milliseconds_per_inner_step"] = per_step
        lines.append(line)
    return lines


def warmed_up(case: Case, name: str) -> Contender:
    """Build a contender and let it take its first step, which is not timed."""
    contender = case.build(name)
    lane = Lane(contender.outer_step, contender.threads, case.setting.device)
    lane.time_once()
    if isinstance(contender, Peer):
        # More threads are not always faster, and a user would have tried.
        tried = {}
        for number in {1, torch.get_num_threads()}:
            contender.num_threads = number
            tried[number], _ = lane.time_once()
        contender.num_threads = min(tried, key=tried.__getitem__)
    return contender


def peak_of(case: Case, name: str) -> int | None:
    """Most memory of a fresh contender's first step; ``None`` if there is too little.

    Compiled kernels are there by now, and what a contender keeps between its steps
    counts.
    """

    def from_the_start() -> None:
        contender = case.build(name)
        with contender.threads():
            contender.outer_step()

    return unless_out_of_memory(
        partial(peak_above, from_the_start, case.setting.device)
    )


def ratios_of(name: str, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """How a contender's times compare: a peer with ours, ours with both libraries.

    What is called the faster peer is the faster of the libraries: plain torch has a
    ratio of its own.
    """
    libraries = [seconds[peer] for peer in LIBRARIES if peer in seconds]
    if name == OURS and libraries:
        best = faster_of_each_round(libraries)
        return {"times_faster_than_faster_peer": per_round_ratio(best, seconds[OURS])}
    if name != OURS and OURS in seconds:
        return {"times_slower_than_ours": per_round_ratio(seconds[name], seconds[OURS])}
    return {}


def _per_inner_step(seconds: list[float], setting: Setting) -> float:
    return 1e3 * median(seconds) / setting.tau
