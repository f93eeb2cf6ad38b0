"""How much memory this process holds, held at most, and may hold."""

import ctypes
import gc
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
# Of what is free: the rest of the machine needs some too.
_SHARE = 0.9


def resident_bytes() -> int:
    """Memory that the process holds now."""
    return _status("VmRSS") if _STATUS.exists() else _largest()


def private_bytes() -> int:
    """Memory that the process holds now and that no file stands behind."""
    return _status("RssAnon")


def peak_bytes() -> int:
    """Most memory held since :func:`reset_peak`, or where that cannot be, ever."""
    return _status("VmHWM") if _STATUS.exists() else _largest()


def reset_peak() -> int:
    """Give back what is unused, forget the peak, and return what is held now."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
        _CLEAR.write_text("5", "ascii")
    return resident_bytes()


def peak_above(call: Callable[[], object], device: str) -> int:
    """Most memory that the device held during a call, above what it held before."""
    if not device.startswith("cuda"):
        before = reset_peak()
        call()
        return peak_bytes() - before
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before


@contextmanager
def limited_to_free_memory(device: str) -> Iterator[int | None]:
    """Let an allocation fail that the machine cannot give; yield how much it can.

    Without a limit the kernel would grant it, and kill the process when it is used. A
    GPU has a limit of its own.
    """
    if sys.platform != "linux" or device != "cpu":
        yield None
        return
    held = _status("VmData")
    limit = held + int(_SHARE * _kilobytes(Path("/proc/meminfo"), "MemAvailable"))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield limit - held
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def unless_out_of_memory(call: Callable[[], T]) -> T | None:
    """Call; ``None`` if memory runs out, on the CPU or on a GPU."""
    try:
        return call()
    except (MemoryError, torch.OutOfMemoryError):
        return None
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        return None


def _status(key: str) -> int:
    return _kilobytes(_STATUS, key)


def _kilobytes(path: Path, key: str) -> int:
    """A number of a file in ``/proc``, in bytes."""
    for line in path.read_text("ascii").splitlines():
        name, _, rest = line.partition(":")
        if name == key:
            return 1024 * int(rest.split()[0])
    raise KeyError(key)


def _largest() -> int:
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts kilobytes, macOS bytes.
    return largest if sys.platform == "darwin" else 1024 * largest
