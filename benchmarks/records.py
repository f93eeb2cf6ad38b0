"""Results as JSON lines: one object per measurement, with what it was measured on."""

import json
import math
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, final

from gsebo.version import __version__

RESULTS = Path(__file__).parent / "results"
_PACKAGES = (
    "torch",
    "torch_geometric",
    "numba",
    "triton",
    "torchopt",
    "higher",
)


@final
class Records:
    """Appends lines to ``FOLDER/BENCHMARK.jsonl`` and says them on standard error.

    Args:
        benchmark: Name of the benchmark, and of its file.
        folder: Where to; it is made if it does not exist.
        arguments: The command line after ``python -m benchmarks``, to be stored.
    """

    def __init__(self, benchmark: str, folder: Path, arguments: list[str]) -> None:
        self._benchmark = benchmark
        self._path = folder / f"{benchmark}.jsonl"
        self._common = {
            "command": shlex.join(["python", "-m", "benchmarks", *arguments]),
            **_machine(),
        }

    def add(self, measurement: Mapping[str, Any], *, device: str = "cpu") -> None:
        """Append one measurement."""
        line = {
            "benchmark": self._benchmark,
            **_finite(measurement),
            "device": device_name(device),
            **self._common,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")
        shown = {key: _short(value) for key, value in measurement.items()}
        print(*(f"{key}={value}" for key, value in shown.items()), file=sys.stderr)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All measurements of a file, oldest first; none if there is no file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def device_name(device: str) -> str:
    """``cpu``, or the name of the GPU."""
    if not device.startswith("cuda"):
        return device
    import torch

    return str(torch.cuda.get_device_name(torch.device(device)))


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "wait_policy": os.environ.get("OMP_WAIT_POLICY", "default").lower(),
        "versions": {
            "python": platform.python_version(),
            "gsebo": __version__,
            **_versions(),
        },
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2] for line in lines if line.startswith("model name")]
    return names[0].strip() if names else platform.machine()


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become ``null``."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _short(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
