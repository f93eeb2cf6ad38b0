"""Every example runs and says something."""

import json
import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
# All in one fresh process, which takes longer to start than an example to run.
RUN_ALL = """
import contextlib, io, json, runpy, sys
said = {}
for path in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        runpy.run_path(path, run_name="__main__")
    said[path] = output.getvalue()
print(json.dumps(said))
"""


def test_every_example_runs() -> None:
    paths = list(map(str, EXAMPLES))
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *paths],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert list(said) == paths
    assert all(output.strip() for output in said.values())
