"""Compare the speed of this tree with that of another, on this machine.

    git worktree add ../before SOME_COMMIT
    python scripts/speed_against.py ../before/src

Fits of both trees alternate in fresh processes, so that whatever else the machine does
meets both; each is the median of its own repetitions after one that compiles. What is
compared is the same algorithm, the paper's step, and beside it the default step.
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
FIT = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import gsebo
case, step, fits = sys.argv[1], sys.argv[2], int(sys.argv[3])
steps = 100 if case == "cora" else 30 if case == "pubmed" else 3
if case == "1e6 edges":
    data = gsebo.generate_graph(100_000, average_degree=10.0, split="random:10/20/70")
else:
    data = gsebo.load_data(case)
options = dict(max_outer_steps=steps, random_state=0, device="cpu")
try:
    model = gsebo.GSEBO(outer_step=step, **options)
except TypeError:
    model = gsebo.GSEBO(**options)
model.fit(data)
times = []
for _ in range(fits):
    begun = time.perf_counter()
    model.fit(data)
    times.append(time.perf_counter() - begun)
print(json.dumps(times))
"""


def main() -> None:
    """Print a line for each graph."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="the folder src of the other tree")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=CASES, nargs="*", default=CASES)
    options = parser.parse_args()
    if not (options.other / "gsebo/__init__.py").is_file():
        sys.exit(f"{options.other} has no package gsebo; expected a folder src of it.")
    print("graph, seconds: before, now (paper's step), ratio; now (default), ratio")
    for case in options.only:
        times: dict[str, list[float]] = {"before": [], "paper": [], "trust": []}
        for number in range(options.rounds):
            order = list(times) if number % 2 else list(reversed(times))
            for name in order:
                tree = options.other if name == "before" else HERE
                step = "paper" if name == "before" else name
                times[name] += fit_times(tree, case, step)
        before, paper, trust = (statistics.median(each) for each in times.values())
        print(
            f"{case}: {before:.3f}, {paper:.3f}, {paper / before:.3f}; "
            f"{trust:.3f}, {trust / before:.3f}",
            flush=True,
        )


def fit_times(tree: Path, case: str, step: str) -> list[float]:
    """Seconds of fits in a process of their own."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
    # Spinning threads of one process would be a load on the other.
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    done = subprocess.run(
        [sys.executable, "-c", FIT, case, step, "3"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
