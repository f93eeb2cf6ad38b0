"""Peak memory of a fit on Cora as the number of inner steps grows.

Usage: ``python benchmarks/memory.py [--taus 5 50]`` prints a table

    tau | reverse MB | unrolled MB

Each number is the peak resident size of a fresh process on one thread, which fits two
outer steps; what Python, torch and the graph take is part of it. This process imports
nothing large, because a child's peak starts from its parent's size.
"""

import argparse
import os
import subprocess
import sys

ENGINES = ("reverse", "unrolled")
_FIT = """
import resource, sys
import gsebo
data = gsebo.load_data("cora")
gsebo.GSEBO(
    inner_steps=int(sys.argv[2]),
    hypergradient=sys.argv[1],
    max_outer_steps=2,
    device="cpu",
    random_state=0,
).fit(data)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
# Linux counts in kilobytes, macOS in bytes.
_UNIT = 1 if sys.platform == "darwin" else 1024


def peak_megabytes(engine: str, inner_steps: int) -> float:
    """Fit in a fresh process and return its peak resident size."""
    one_thread = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FIT, engine, str(inner_steps)],
        env=os.environ | one_thread,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout) * _UNIT / 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--taus", type=int, nargs="+", default=[5, 50])
    taus = parser.parse_args().taus
    print("tau | reverse MB | unrolled MB")
    for tau in taus:
        peaks = [f"{peak_megabytes(engine, tau):.0f}" for engine in ENGINES]
        print(f"{tau} | {peaks[0]} | {peaks[1]}", flush=True)


if __name__ == "__main__":
    main()
