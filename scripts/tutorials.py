"""Run the tutorials of docs/tutorials/ and store them with what they print and draw.

    python scripts/tutorials.py                    # all of them, in full size
    python scripts/tutorials.py docs/tutorials/your_graph.ipynb

Each runs in an empty folder, on data that ships inside the package. What is stored says
which code it comes from, so that a test can tell when one was changed and not run.
"""

import argparse
import hashlib
import os
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = ROOT / "docs" / "tutorials"


def main() -> None:
    """Run some or all tutorials, and store them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="*", help="notebooks")
    options = parser.parse_args()
    for path in options.files or sorted(TUTORIALS.glob("*.ipynb")):
        notebook = nbformat.read(path, 4)
        begun = time.monotonic()
        run(notebook)
        print(f"{path.name}: {time.monotonic() - begun:.0f} s")
        notebook.metadata["sources"] = digest(notebook)
        nbformat.write(notebook, path)


def run(notebook: NotebookNode) -> None:
    """Run all cells, in a folder that is gone afterwards; a failing one is raised."""
    # What warnings say begins with the path of a file of this machine.
    environment = os.environ | {
        "JUPYTER_PLATFORM_DIRS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            # A busy machine takes many times as long, and is no reason to fail.
            timeout=None,
            kernel_name="python3",
            extra_arguments=["--log-level=ERROR"],
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=environment)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}


def digest(notebook: NotebookNode) -> str:
    """What the code of a notebook is known by."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(code).encode()).hexdigest()[:16]


if __name__ == "__main__":
    main()
