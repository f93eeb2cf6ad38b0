"""Time of a whole fit, ours and the peers' in turns.

Every fit takes the same number of outer steps, none stops early, the best state by the
validation nodes is kept, and in the end there are predictions of all nodes. Peers know
the loss of the validation nodes from the hypergradient; ours evaluates the whole graph
after each outer step.
"""

import argparse
import math
from contextlib import nullcontext
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.case import Case, each_case
from benchmarks.command_line import add_cases, count
from benchmarks.ours import fit
from benchmarks.packages import OURS, require_installed
from benchmarks.peers.peer import Peer
from benchmarks.process_memory import limited_to_free_memory, unless_out_of_memory
from benchmarks.records import Records
from benchmarks.timing import (
    MEASURED,
    OUT_OF_MEMORY,
    ratios_of,
    warmed_up,
)
from benchmarks.turns import Lane, take_turns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    add_cases(parser, datasets=["cora"], backbones=["gcn"])
    parser.add_argument("--outer-steps", type=count, default=100)
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--device", default="cpu")


def run(arguments: argparse.Namespace, records: Records) -> None:
    """Measure every case."""
    require_installed(arguments.who)
    with limited_to_free_memory(arguments.device) as free:
        for dataset, case in each_case(arguments):
            for line in measure(
                case, arguments.who, arguments.outer_steps, arguments.rounds
            ):
                named = {"dataset": dataset, **case.sizes(), **line}
                records.add({**named, "free_bytes": free}, device=arguments.device)


def measure(
    case: Case, who: list[str], outer_steps: int, rounds: int
) -> list[dict[str, Any]]:
    """Time the fits of one case; one line each."""
    entered = {
        name: unless_out_of_memory(partial(_lane, case, name, outer_steps))
        for name in who
    }
    lanes = {name: lane for name, lane in entered.items() if lane is not None}
    take_turns(lanes, rounds)
    seconds = {name: lane.seconds for name, lane in lanes.items()}
    lines = []
    for name in who:
        line: dict[str, Any] = {"outer_steps": outer_steps, "who": name}
        if name in lanes:
            line |= {
                "outcome": MEASURED,
                "seconds": median(seconds[name]),
                "seconds_of_rounds": seconds[name],
                **ratios_of(name, seconds),
            }
        else:
            line["outcome"] = OUT_OF_MEMORY
        lines.append(line)
    return lines


def _lane(case: Case, name: str, outer_steps: int) -> Lane:
    device = case.setting.device
    if name == OURS:
        # gsebo chooses its threads itself; this fills the cache of its kernels.
        fit(case.data, case.setting, 1)
        return Lane(
            lambda: fit(case.data, case.setting, outer_steps), nullcontext, device
        )
    trial = warmed_up(case, name)
    return Lane(lambda: fit_peer(case, name, outer_steps), trial.threads, device)


def fit_peer(case: Case, name: str, outer_steps: int) -> None:
    """Learn, keep the best by the validation nodes, predict all nodes with it."""
    peer = case.build(name)
    assert isinstance(peer, Peer)
    least = math.inf
    best: tuple[dict[str, torch.Tensor], torch.Tensor] | None = None
    for _ in range(outer_steps):
        strength = peer.strength.detach().clone()
        peer.outer_step()
        if peer.last_loss < least:
            least, best = peer.last_loss, (peer.weights(), strength)
    assert best is not None
    peer.predict(*best)
