"""What a figure was computed with: libraries, hardware and source."""

import ctypes
import gc
import os
import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

import numpy
import torch

from gsebo.code_paths import processor, reproducibility
from gsebo.version import __version__

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def reset_peak_memory() -> None:
    """Forget earlier peaks, where the system can."""
    gc.collect()
    # A worker that was forked may look at CUDA as little as possible: it cannot use it.
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()
    try:
        # What was freed before, but is still held, would count for the next.
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
        _CLEAR.write_text("5", "ascii")
    except (AttributeError, OSError):
        # No glibc, not on Linux, or not allowed: the peak is that of the process.
        return


def peak_memory_bytes(device: torch.device) -> int:
    """Most memory used at once, by the GPU if it did the work, else by the process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if _STATUS.is_file():
        for line in _STATUS.read_text("ascii").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    # Not on every system.
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts kilobytes, macOS bytes.
    return peak if sys.platform == "darwin" else 1024 * peak


_SOURCE = Path(__file__).parents[1]
_PATIENCE_SECONDS = 10.0


class Circumstances(TypedDict):
    """What a stored result says of the process that computed it."""

    processor: str
    instructions: str
    commit: str | None
    versions: dict[str, str]


def circumstances() -> Circumstances:
    """Of this process."""
    return {
        "processor": processor(),
        "instructions": _instructions(),
        "commit": source_commit(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of this library and of those that decide what a fit computes."""
    return {
        "gsebo": __version__,
        "torch": torch.__version__,
        "torch_geometric": version("torch_geometric"),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


def has_gpu() -> bool:
    """Whether there is a GPU that torch can use."""
    return torch.cuda.is_available()


def device_name(device: torch.device) -> str:
    """Name of the hardware, for example ``"cpu (x86_64)"``."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"{device.type} ({platform.machine()})"


def _instructions() -> str:
    """What the libraries compute with, which may be less than the processor has."""
    code = reproducibility()
    return ", ".join(f"{name} {code[name]}" for name in ("mkl", "aten", "numba"))


@cache
def source_commit() -> str | None:
    """Commit of the source, ``-dirty`` if it was changed since.

    Returns:
        ``None`` where the source is no git checkout, as after an installation.
    """
    # Else a package that is installed inside some other project would have its commit.
    if _git("ls-files", "--error-unmatch", "version.py") is None:
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(*words: str) -> str | None:
    """What a command of git says about the source; ``None`` if it fails."""
    # Inside a hook git would be told of another checkout.
    own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=_SOURCE,
            env=own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return (
        done.stdout.decode("ascii", "replace").strip() if not done.returncode else None
    )
