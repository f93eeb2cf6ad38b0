"""Small fits whose bits must be the same on every processor, and their checksums.

``python tests/portable_fits.py`` prints the checksums in reproducible mode, one JSON
object; ``--write`` makes them the ones that are expected from now on, which is right
after a change of what is computed, and only then.
"""

import argparse
import hashlib
import json
import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

PINS = Path(__file__).with_suffix(".json")


def computed_with() -> dict[str, str]:
    """What decides the bits beside the processor: with others the pins mean nothing."""
    packages = ("torch", "torch_geometric", "numba", "llvmlite", "numpy")
    libc = " ".join(platform.libc_ver())
    return {**{name: version(name) for name in packages}, "libc": libc}


def expected() -> dict[str, str] | None:
    """The checksums that the fits must have, if the pins are for what is installed."""
    content = json.loads(PINS.read_text("utf-8"))
    same = content["computed_with"] == computed_with()
    return content["checksums"] if same else None


def fits() -> dict[str, Callable[[Path], list[Any]]]:
    """Each fit by its name; returns the arrays that it is judged by."""
    import gsebo

    # Beyond the size from which a fit has several threads, with dense features.
    large = gsebo.generate_graph(1000, average_degree=20.0, num_features=96, seed=1)
    small = gsebo.generate_graph(120, average_degree=6.0, num_features=20, seed=2)
    quick = {"max_outer_steps": 3, "inner_steps": 3, "random_state": 3, "device": "cpu"}
    plain = {"max_epochs": 9, "random_state": 3, "device": "cpu"}

    def of(model: Any, data: Any, **how: Any) -> list[Any]:
        model.fit(data, **how)
        return [
            array
            for one in model.replicas_
            for array in (one.strength_, one.probability_, one.predict_proba(data))
        ]

    def on_disk(folder: Path) -> list[Any]:
        from gsebo.data.formats.folder import write_folder

        graph = write_folder(small, folder / "graph")
        model = gsebo.Amortised(batch_size=24, num_folds=2, refit_epochs=4, **quick)
        return [model.fit(graph).predict_proba(graph)]

    def with_gsebo(data: Any, **options: Any) -> Callable[[Path], list[Any]]:
        return lambda _: of(gsebo.GSEBO(**quick | options), data)

    return {
        # With this seed it keeps what it learned, as the others do with theirs.
        "gcn": with_gsebo(large, hidden_channels=64, random_state=4),
        # Kernels of attention over eight channels are compiled for other tests too.
        "gat": with_gsebo(small, backbone="gat", hidden_channels=8),
        "jk": with_gsebo(
            small, backbone="jk", outer_step="paper", outer_optimizer="adam"
        ),
        "gin of PyG": lambda _: of(
            gsebo.Vanilla(backbone="GIN", hidden_channels=64, **plain), large
        ),
        "replicas of sage": lambda _: of(
            gsebo.GSEBO(backbone="sage", **quick), small, replicas=3
        ),
        "amortised": lambda _: of(
            gsebo.Amortised(num_folds=2, refit_epochs=6, **quick), small
        ),
        "amortised on disk": on_disk,
        "batches": with_gsebo(small, batch_size=16),
        "vanilla": lambda _: of(gsebo.Vanilla(**plain, hidden_channels=64), large),
        "prognn": lambda _: of(gsebo.ProGNN(**plain), small),
        "ptdnet": lambda _: of(gsebo.PTDNet(passes=2, **plain), small),
        "vgcn": lambda _: of(gsebo.VGCN(samples=2, test_samples=2, **plain), small),
    }


def checksum(arrays: list[Any]) -> str:
    """The first digits of SHA-256 over the bytes of some tensors."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(array.contiguous().cpu().numpy().tobytes())
    return whole.hexdigest()[:16]


def main() -> None:
    """Run all fits in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="expect these from now on")
    parser.add_argument("--threads", type=int, help="of torch and of the kernels")
    parser.add_argument("--torch-first", action="store_true")
    parser.add_argument("--default", action="store_true", help="not in that mode")
    options = parser.parse_args()
    # What others warn of, and PyG while it is imported, is no matter here.
    warnings.simplefilter("ignore")
    if options.torch_first:
        import torch
    import gsebo

    if not options.default:
        gsebo.set_reproducible()
    import torch

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    found = {}
    for name, fit in fits().items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = checksum(fit(Path(folder)))
    if options.write:
        content = {"computed_with": computed_with(), "checksums": found}
        PINS.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    said = {**gsebo.reproducibility(), "checksums": found, "expected": expected()}
    print(json.dumps(said))


if __name__ == "__main__":
    # Fits have no downloads and no caches of their own.
    os.environ.pop("GSEBO_DATA", None)
    sys.exit(main())
