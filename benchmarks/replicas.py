"""Time of several fits at once beside one fit, in turns."""

import argparse
from functools import partial
from statistics import median

from benchmarks.case import each_case
from benchmarks.command_line import count
from benchmarks.ours import fit, fit_replicas
from benchmarks.ratios import per_round_ratio
from benchmarks.records import Records
from benchmarks.setting import BACKBONES
from benchmarks.turns import Lane, take_turns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument("--datasets", nargs="+", default=["cora"])
    parser.add_argument("--backbones", nargs="+", choices=BACKBONES, default=["gcn"])
    parser.add_argument("--hidden", nargs="+", type=count, default=[16])
    parser.add_argument("--tau", type=count, default=10)
    parser.add_argument("--replicas", type=count, default=10)
    parser.add_argument("--outer-steps", type=count, default=100)
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--device", default="cpu")


def run(arguments: argparse.Namespace, records: Records) -> None:
    """Measure every case."""
    device, steps = arguments.device, arguments.outer_steps
    for dataset, case in each_case(arguments):
        one = partial(fit, case.data, case.setting)
        many = partial(
            fit_replicas, case.data, case.setting, replicas=arguments.replicas
        )
        # Kernels are compiled, or loaded from their cache, before the clock runs.
        one(1), many(1)
        lanes = {
            "one": Lane(partial(one, steps), device=device),
            "many": Lane(partial(many, steps), device=device),
        }
        take_turns(lanes, arguments.rounds)
        alone, together = lanes["one"].seconds, lanes["many"].seconds
        line = {
            "dataset": dataset,
            **case.sizes(),
            "outer_steps": steps,
            "replicas": arguments.replicas,
            "seconds_of_one": median(alone),
            "seconds_of_all": median(together),
            "times_one": per_round_ratio(together, alone),
        }
        records.add(line, device=device)
