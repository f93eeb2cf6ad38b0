"""Peak memory above an idle process by the number of inner steps, ours and the peers'.

Each number comes from a fresh process on one thread, which takes two outer steps. Idle
is that process with its imports done and the graph loaded, in the form that the
contender starts from. ``warm`` processes have trained on a small part of the graph
before the idle mark: what is loaded then (compiled kernels, buffers of libraries) is
code, which grows neither with the graph nor with tau. ``cold`` ones have not, and count
it in.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.command_line import count
from benchmarks.failure import BenchmarkError
from benchmarks.packages import CONTENDERS, require_installed
from benchmarks.records import Records
from benchmarks.setting import BACKBONES

ROOT = Path(__file__).resolve().parent.parent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--backbones", nargs="+", choices=BACKBONES, default=["gcn"])
    parser.add_argument("--hidden", nargs="+", type=count, default=[16])
    parser.add_argument("--tau", nargs="+", type=count, default=[5, 20, 50])
    parser.add_argument(
        "--who",
        nargs="+",
        choices=(*CONTENDERS, "unrolled"),
        default=list(CONTENDERS),
    )
    parser.add_argument(
        "--start", nargs="+", choices=("warm", "cold"), default=["warm", "cold"]
    )


def run(arguments: argparse.Namespace, records: Records) -> None:
    """Measure every case in a process of its own."""
    require_installed(arguments.who)
    cases = itertools.product(arguments.backbones, arguments.hidden, arguments.who)
    for backbone, hidden, who in cases:
        case = {
            "dataset": arguments.dataset,
            "backbone": backbone,
            "hidden": hidden,
            "who": who,
        }
        # The first process may have to compile kernels that later ones find cached.
        in_fresh_process({**case, "tau": 1, "start": "cold"})
        for start, tau in itertools.product(arguments.start, arguments.tau):
            wanted = {**case, "tau": tau, "start": start}
            records.add({**wanted, **in_fresh_process(wanted)})


def in_fresh_process(wanted: dict[str, Any]) -> dict[str, int]:
    """Return ``idle_bytes`` and ``peak_bytes`` of a process that trains as wanted."""
    one_thread = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory_child", json.dumps(wanted)],
        env=os.environ | one_thread,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise BenchmarkError(f"the process for {wanted} failed: {' '.join(last)}")
    found: dict[str, int] = json.loads(done.stdout)
    return found
