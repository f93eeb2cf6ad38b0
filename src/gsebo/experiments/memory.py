"""How much memory a run needed."""

import ctypes
import gc
import sys
from pathlib import Path

import torch

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
