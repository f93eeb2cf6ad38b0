"""Compare the speed and memory of this tree with those of another, on this machine.

    git worktree add ../before SOME_COMMIT
    python scripts/speed_against.py ../before/src

Fits of both trees alternate in fresh processes, so that whatever else the machine does
meets both; each time is the median of all repetitions after one that compiles, each
memory the median of the most that a process held.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent / "src"
CASES = ("cora", "pubmed", "1e6 edges")
METHODS = ("paper", "trust", "amortised")
FIT = """
import json, resource, sys, time, warnings
warnings.simplefilter("ignore")
import gsebo
case, method, fits = sys.argv[1], sys.argv[2], int(sys.argv[3])
steps = 100 if case == "cora" else 30 if case == "pubmed" else 3
if case == "1e6 edges":
    data = gsebo.generate_graph(100_000, average_degree=10.0, split="random:10/20/70")
else:
    data = gsebo.load_data(case)
options = dict(random_state=0, device="cpu")
if method == "amortised":
    model = gsebo.Amortised(max_outer_steps=steps // 2, refit_epochs=steps, **options)
else:
    model = gsebo.GSEBO(outer_step=method, max_outer_steps=steps, **options)
model.fit(data)
times = []
for _ in range(fits):
    begun = time.perf_counter()
    model.fit(data)
    times.append(time.perf_counter() - begun)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([times, peak]))
"""


def main() -> None:
    """Print a line for each graph and method."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="the folder src of the other tree")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=CASES, nargs="*", default=CASES)
    parser.add_argument("--methods", choices=METHODS, nargs="*", default=METHODS)
    options = parser.parse_args()
    if not (options.other / "gsebo/__init__.py").is_file():
        sys.exit(f"{options.other} has no package gsebo; expected a folder src of it.")
    print("graph, method; seconds before, now, ratio; MB before, now, ratio")
    for case in options.only:
        for method in options.methods:
            trees = [options.other, HERE]
            times: list[list[float]] = [[], []]
            peaks: list[list[float]] = [[], []]
            for number in range(options.rounds):
                for place in (0, 1) if number % 2 else (1, 0):
                    found, peak = fitted(trees[place], case, method)
                    times[place] += found
                    peaks[place].append(peak)
            before, now = map(statistics.median, times)
            held, holds = map(statistics.median, peaks)
            print(
                f"{case}, {method}; {before:.3f}, {now:.3f}, {now / before:.3f}; "
                f"{held:.0f}, {holds:.0f}, {holds / held:.3f}",
                flush=True,
            )


def fitted(tree: Path, case: str, method: str) -> tuple[list[float], float]:
    """Seconds of fits in a process of their own, and the most that it held."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
    # Spinning threads of one process would be a load on the other.
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    done = subprocess.run(
        [sys.executable, "-c", FIT, case, method, "3"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    times, peak = json.loads(done.stdout.splitlines()[-1])
    return times, peak


if __name__ == "__main__":
    main()
