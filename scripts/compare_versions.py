"""Compare what two source trees compute, on this machine.

    git worktree add ../before SOME_COMMIT
    python scripts/compare_versions.py ../before/src

Every fit runs in both trees, in reproducible mode (an x86-64 processor with AVX2), all
fits of a tree in one process and the commands that it starts. They use the public
names of the package and the command line alone, and graphs that neither tree has made,
so that trees may differ in everything else. The table says by how much probabilities
and strengths differ, and what that means; the exit code is 1 if a fit differs by more
than rounding, has failed, or is there before and no longer.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent.parent / "src"

# Probabilities and strengths lie between 0 and 1 and are computed in single precision,
# which rounds by 6e-8 of a number. With libraries and kernels for SSE4.2 or AVX-512
# instead of AVX2, which add up in other orders, the fits below differ by about 1e-6 at
# most; steps of Adam that are longer by a thousandth make 3e-5 and more.
ROUNDING = 1e-5

Arrays = dict[str, NDArray[Any]]
"""What a fit is judged by; or ``error`` alone, which says why there is none."""

_INSIDE = "--inside"
_WITHIN_SECONDS = 300.0
_NO_SUCH = "no such method"

# The names that samplers have in one tree or another.
_NEIGHBOURS = ("neighbour", "neighbor")
_PARTS = ("partition", "cluster")

# Adam makes a step of full size of a gradient that is nothing but rounding. Few weights
# and few steps meet none with this seed; larger networks mostly do, and then rounding
# alone changes the fourth digit.
_SEED = 3
_SMALL: dict[str, Any] = {"hidden_channels": 8}
_ALIKE: dict[str, Any] = {**_SMALL, "random_state": _SEED, "device": "cpu"}
_EPOCHS: dict[str, Any] = {"max_epochs": 10}
_STEPS: dict[str, Any] = {**_SMALL, "max_outer_steps": 4, "inner_steps": 4}
_GSEBO: dict[str, Any] = {**_STEPS, "select_by": "last"}
_AMORTISED: dict[str, Any] = {**_STEPS, "num_folds": 3, "refit_epochs": 6}
_BATCHES = 16


class Place(NamedTuple):
    """Where the fits of a tree run.

    Attributes:
        gsebo: The package of the tree.
        dense: A small graph with dense features, as a file.
        sparse: The same with sparse features.
        folder: For whatever the fits need; empty at first.
    """

    gsebo: Any
    dense: Path
    sparse: Path
    folder: Path


class Fit(NamedTuple):
    """One line of the table.

    Attributes:
        method: Name of the estimator in the package.
        run: Returns ``probabilities`` and ``strengths``.
        inside: Whether it compares two fits of the same tree instead: there are also
            ``other probabilities`` and ``other strengths``.
    """

    method: str
    run: Callable[[Place], Arrays]
    inside: bool = False


def _in_memory(method: str, options: dict[str, Any], dataset: str | None = None) -> Fit:
    """A fit of a named graph, or else of the small one with sparse features."""

    def run(place: Place) -> Arrays:
        data = place.gsebo.load_data(dataset or str(place.sparse))
        return _fitted(getattr(place.gsebo, method)(**_ALIKE | options), data)

    return Fit(method, run)


def _fitted(model: Any, data: Any) -> Arrays:
    model.fit(data)
    return _judged(model, data)


def _judged(model: Any, data: Any) -> Arrays:
    return {
        "probabilities": np.asarray(model.predict_proba(data)),
        "strengths": np.asarray(model.strength_),
    }


def _on_batches(method: str, options: dict[str, Any]) -> Fit:
    def run(place: Place) -> Arrays:
        return _sampled(place, method, options, _NEIGHBOURS, _BATCHES)

    return Fit(method, run)


def _sampled(
    place: Place,
    method: str,
    options: dict[str, Any],
    samplers: Iterable[str],
    batch_size: int,
) -> Arrays:
    """Fit the small graph with the first of some samplers that is not refused."""
    data = place.gsebo.load_data(str(place.dense))
    refused: list[Exception] = []
    for sampler in samplers:
        batches = {"batch_size": batch_size, "sampler": sampler}
        model = getattr(place.gsebo, method)(**_ALIKE | options, **batches)
        try:
            return _fitted(model, data)
        except place.gsebo.InvalidInput as error:
            refused.append(error)
    raise ExceptionGroup(" ".join(map(str, refused)), refused)


def _on_one_batch(place: Place) -> Arrays:
    """Amortised strengths without batches, and of a batch with all nodes and edges."""
    data = place.gsebo.load_data(str(place.dense))
    whole = _fitted(place.gsebo.Amortised(**_ALIKE | _AMORTISED), data)
    # With so many nodes in a batch all parts are in it.
    size = len(whole["probabilities"])
    batch = _sampled(place, "Amortised", _AMORTISED, _PARTS, size)
    return {**whole, **{f"other {name}": array for name, array in batch.items()}}


def _from_folder(method: str, options: dict[str, Any]) -> Fit:
    """A fit of the small graph as a folder, by the command line."""

    def run(place: Place) -> Arrays:
        from pyarrow import parquet

        graph = place.folder / "graph"
        if not graph.exists():
            _command("gsebo", "data", "convert", place.dense, "--out", graph)
        classes = place.folder / f"{method}.parquet"
        strengths = place.folder / f"{method}.npy"
        written = ("--predictions", classes, "--strengths", strengths)
        _command("gsebo", *_fit_words(graph, method, options), *written)
        # Only that of the predicted class is written.
        _, predicted, probability = (
            column.to_numpy() for column in parquet.read_table(classes).columns
        )
        nodes = np.arange(len(predicted))
        probabilities = np.zeros((len(nodes), 2), probability.dtype)
        probabilities[nodes, predicted] = probability
        return {
            "probabilities": probabilities,
            "strengths": np.load(strengths, allow_pickle=False),
        }

    return Fit(method, run)


def _in_two_processes(place: Place) -> Arrays:
    """A fit that torchrun starts, saves, and this process loads."""
    model = place.folder / "model"
    fit = _fit_words(place.dense, "GSEBO", _GSEBO, "--batches-per-step", 2)
    processes = ("--standalone", "--nproc-per-node", 2, "-m", "gsebo")
    _command("torch.distributed.run", *processes, *fit, "--out", model)
    data = place.gsebo.load_data(str(place.dense))
    return _judged(place.gsebo.load_model(model), data)


FITS = {
    "gsebo gcn": _in_memory("GSEBO", _GSEBO),
    # With the seed of the others no step is accepted, and strengths stay.
    "gsebo gat": _in_memory("GSEBO", {**_GSEBO, "backbone": "gat", "random_state": 7}),
    "gsebo sage": _in_memory("GSEBO", {**_GSEBO, "backbone": "sage"}),
    "gsebo jk": _in_memory("GSEBO", {**_GSEBO, "backbone": "jk"}),
    # Where there are so many weights few seeds will do.
    "gsebo on cora": _in_memory(
        "GSEBO",
        {**_GSEBO, "max_outer_steps": 3, "inner_steps": 3}
        | {"hidden_channels": 4, "random_state": 10},
        "cora",
    ),
    "amortised": _in_memory("Amortised", _AMORTISED),
    "vanilla": _in_memory("Vanilla", _EPOCHS, "cora"),
    "auto": _in_memory("Auto", {"max_epochs": 20, "evaluate_every": 10}),
    "prognn": _in_memory("ProGNN", _EPOCHS),
    "ptdnet": _in_memory("PTDNet", _EPOCHS, "cora"),
    "gaug_m": _in_memory("GAugM", _EPOCHS),
    "gsebo on batches": _on_batches("GSEBO", _GSEBO),
    "amortised on batches": _on_batches("Amortised", _AMORTISED),
    "gsebo from a folder": _from_folder("GSEBO", _GSEBO),
    "amortised from a folder": _from_folder("Amortised", _AMORTISED),
    "gsebo in two processes": Fit("GSEBO", _in_two_processes),
    "amortised on one batch": Fit("Amortised", _on_one_batch, inside=True),
}


def _fit_words(
    graph: Path, method: str, options: dict[str, Any], *others: object
) -> list[object]:
    """The words of a command that fits on batches."""
    words: list[object] = ["fit", graph, "--method", method.lower(), "--device", "cpu"]
    words += ["--seed", _SEED, "--quiet", "--batch-size", _BATCHES, *others]
    for name, value in options.items():
        words += ["--set", f"{name}={value}"]
    return words


def _command(module: str, *arguments: object) -> None:
    """Run a module of this tree in another process.

    Raises:
        RuntimeError: It ended with another exit code than 0.
        subprocess.TimeoutExpired: It did not end in time.
    """
    words = [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # As torchrun does by itself, but then it says so.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            said, _ = process.communicate(timeout=_WITHIN_SECONDS)
        except BaseException:
            # Not killed: torchrun has to end those whom it has started.
            process.terminate()
            raise
    if process.returncode:
        print(said, file=sys.stderr)
        last = said.strip().rpartition("\n")[2]
        raise RuntimeError(f"exit code {process.returncode}, {last}")


def run_inside(tree: Path, folder: Path, names: Iterable[str]) -> None:
    """Run fits with the package of this process, and write what each has found.

    Args:
        tree: Where the package has to come from.
        folder: Has what the fits need; every fit writes ``NAME.npz`` there.
        names: Of the fits.

    Raises:
        ImportError: The package is that of another tree.
    """
    # What others warn of, and PyG while it is imported, is no matter here.
    warnings.simplefilter("ignore")
    import gsebo

    if tree.resolve() not in Path(gsebo.__file__).resolve().parents:
        raise ImportError(f"gsebo is {gsebo.__file__}; expected it from {tree}")
    scratch = folder / "scratch"
    scratch.mkdir()
    place = Place(gsebo, scratch / "dense.npz", scratch / "sparse.npz", scratch)
    write_graph(place.dense, sparse=False)
    write_graph(place.sparse, sparse=True)
    for name in names:
        fit = FITS[name]
        try:
            found = fit.run(place) if hasattr(gsebo, fit.method) else _error(_NO_SUCH)
        except Exception as error:
            traceback.print_exc()
            found = _error(f"{type(error).__name__}: {error}")
        np.savez(folder / f"{name}.npz", **found)


def _error(text: str) -> Arrays:
    return {"error": np.array(text)}


def write_graph(path: Path, *, sparse: bool) -> None:
    """Draw a small graph of two classes, whose edges mostly stay within one."""
    draw, size = np.random.default_rng(0), 200
    y = np.arange(size) % 2
    pairs = draw.integers(size, size=(2, 1600))
    within = y[pairs[0]] == y[pairs[1]]
    pairs = pairs[:, (pairs[0] != pairs[1]) & (within | (draw.random(1600) < 0.3))]
    masks = np.zeros((3, size), bool)
    masks[np.repeat([0, 1, 2], [40, 60, 100]), draw.permutation(size)] = True
    features: Arrays
    if sparse:
        # Some of 20 words for each node, of which the classes have ten in common.
        words = np.stack([draw.permutation(20)[:5] for _ in y]) + 10 * y[:, None]
        features = {
            "x_data": np.ones(words.size, np.float32),
            "x_indices": np.sort(words).ravel(),
            "x_indptr": np.arange(size + 1) * words.shape[1],
            "x_shape": np.array([size, 30]),
        }
    else:
        dense = draw.normal(size=(size, 16)) + 0.5 * y[:, None]
        features = {"x": dense.astype(np.float32)}
    names = ("train_mask", "val_mask", "test_mask")
    both = np.unique(np.hstack([pairs, pairs[::-1]]), axis=1)
    given = features | dict(zip(names, masks, strict=True))
    np.savez(path, edge_index=both, y=y, **given)


def found_in(tree: Path, folder: Path, names: list[str]) -> dict[str, Arrays]:
    """Run fits in a process with the package of a tree.

    Args:
        tree: A folder ``src``.
        folder: An empty folder.
        names: Of the fits.
    """
    environment = {**os.environ, "PYTHONPATH": str(tree), "GSEBO_REPRODUCIBLE": "1"}
    # Cora is that of the package, and kernels are compiled from the sources of the
    # tree: those in a cache may be from before they were changed.
    environment.pop("GSEBO_DATA", None)
    for variable in ("GSEBO_CACHE", "NUMBA_CACHE_DIR"):
        environment[variable] = str(folder / variable)
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    script = str(Path(__file__).resolve())
    done = subprocess.run(
        [sys.executable, script, _INSIDE, str(tree), str(folder), *names],
        env=environment,
        # The folder of a process is where it looks first for modules.
        cwd=folder,
    )
    ended = _error(f"the process ended with exit code {done.returncode}")
    return {name: read(folder, name) or ended for name in names}


def read(folder: Path, name: str) -> Arrays | None:
    """What a fit has written, or ``None`` if its process did not come so far."""
    path = folder / f"{name}.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


class Line(NamedTuple):
    """What the table says of a fit.

    Attributes:
        differences: Largest of probabilities and of strengths, in absolute value.
        verdict: In words.
        bad: Whether the trees must not be so.
    """

    differences: tuple[float, float] | None
    verdict: str
    bad: bool


def compared(old: Arrays, new: Arrays) -> Line:
    """Compare what two trees have found."""
    errors = [
        None if "error" not in each else str(each["error"]) for each in (old, new)
    ]
    failed = {
        name: error
        for name, error in zip(("OLD", "NEW"), errors, strict=True)
        if error not in (None, _NO_SUCH)
    }
    if failed:
        said = "; ".join(f"{name}: {error}" for name, error in failed.items())
        return Line(None, f"FAILED in {said}", bad=True)
    match errors:
        case [None, None]:
            return _compared_arrays(old, new)
        case [None, _]:
            return Line(None, "only in OLD", bad=True)
        case [_, None]:
            return Line(None, "only in NEW", bad=False)
    return Line(None, "in neither", bad=True)


def _compared_arrays(old: Arrays, new: Arrays, prefix: str = "") -> Line:
    pairs = [
        (old[name], new[f"{prefix}{name}"]) for name in ("probabilities", "strengths")
    ]
    largest = tuple(_largest_difference(one, other) for one, other in pairs)
    if all(
        one.dtype == other.dtype
        and one.shape == other.shape
        and one.tobytes() == other.tobytes()
        for one, other in pairs
    ):
        return Line((0.0, 0.0), "equal bits", bad=False)
    # Also where a difference is not a number.
    if not all(each <= ROUNDING for each in largest):
        return Line((largest[0], largest[1]), "DIFFERS", bad=True)
    return Line((largest[0], largest[1]), "equal to rounding", bad=False)


def _largest_difference(one: NDArray[Any], other: NDArray[Any]) -> float:
    if one.shape != other.shape:
        return float("inf")
    return float(np.abs(one.astype(np.float64) - other).max(initial=0.0))


def compared_inside(arrays: Arrays, *, strict: bool) -> Line:
    """Compare two fits of one tree, which only ``strict`` demands to be equal bits."""
    if "error" in arrays:
        missing = str(arrays["error"]) == _NO_SUCH
        said = _NO_SUCH if missing else f"FAILED: {arrays['error']}"
        return Line(None, said, bad=strict or not missing)
    line = _compared_arrays(arrays, arrays, "other ")
    if strict:
        return line._replace(bad=line.verdict != "equal bits")
    return line._replace(verdict=f"{line.verdict} (for information)", bad=False)


def table(
    old: Mapping[str, Arrays], new: Mapping[str, Arrays], *, strict: bool
) -> dict[str, Line]:
    """A line for every fit; those inside a tree have one for each tree."""
    lines = {}
    for name in old:
        if FITS[name].inside:
            # What was is no fault of what is.
            before = compared_inside(old[name], strict=False)
            lines[f"{name}, OLD"] = before._replace(bad=False)
            lines[f"{name}, NEW"] = compared_inside(new[name], strict=strict)
        else:
            lines[name] = compared(old[name], new[name])
    return lines


def main() -> int:
    """Print the table; return 1 if anything in it must not be so."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path, help="the folder src of a tree")
    parser.add_argument("new", type=Path, nargs="?", default=HERE, help="this tree's")
    names = list(FITS)
    parser.add_argument("--only", action="append", choices=names, metavar="NAME")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="fail if one batch with the whole graph has other bits than that graph",
    )
    options = parser.parse_args()
    trees = {"OLD": options.old.resolve(), "NEW": options.new.resolve()}
    for tree in trees.values():
        if not (tree / "gsebo/__init__.py").is_file():
            parser.error(f"{tree} has no package gsebo; expected a folder src of it.")
    found = []
    for side, tree in trees.items():
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found.append(found_in(tree, Path(folder), options.only or names))
        print(f"{side}: {tree}, {time.monotonic() - begun:.0f} s", flush=True)
    lines = table(*found, strict=options.strict)
    print(_row("fit", "probabilities", "strengths", "verdict"))
    for name, line in lines.items():
        numbers = [f"{each:.2g}" for each in line.differences or ()] or ["-", "-"]
        print(_row(name, *numbers, line.verdict))
    print(f"Equal to rounding: no number differs by more than {ROUNDING:g}.")
    return int(any(line.bad for line in lines.values()))


def _row(name: str, probabilities: str, strengths: str, verdict: str) -> str:
    return f"{name:28} {probabilities:>13} {strengths:>10}  {verdict}"


if __name__ == "__main__":
    if sys.argv[1:2] == [_INSIDE]:
        run_inside(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
    else:
        sys.exit(main())
