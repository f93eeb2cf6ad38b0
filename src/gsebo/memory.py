"""Whether there is as much memory as something takes, before it is taken."""

import os
from pathlib import Path

import torch

from gsebo.errors import InvalidInput

CPU = torch.device("cpu")


def require_memory(
    needed: int,
    device: torch.device = CPU,
    *,
    what: str = "training",
    instead: str = "a smaller graph, fewer channels or replicas",
) -> None:
    """Refuse what needs more bytes than are free, before anything is allocated.

    What takes them, and what would take fewer ``instead``, is for the message.
    """
    free = free_memory(device)
    if free is not None and needed > free:
        raise InvalidInput(
            f"{what} takes about {in_words(needed)} more on {device}, where "
            f"{in_words(free)} are free; expected {instead}, or more memory."
        )


def in_words(size: int) -> str:
    """Bytes as a person reads them.

    >>> in_words(2_500_000_000), in_words(10**30)
    ('2.5 GB', '1e+21 GB')
    """
    return f"{size / 1e9:{'.1f' if size < 10**15 else '.0e'}} GB"


def free_memory(device: torch.device = CPU) -> int | None:
    """Bytes that can still be allocated, or None where the system does not tell."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What torch holds without using it is free as well.
        reserved = torch.cuda.memory_reserved(device)
        return free + reserved - torch.cuda.memory_allocated(device)
    return min(filter(None, (_of_the_machine(), _of_the_process())), default=None)


def _of_the_machine() -> int | None:
    if (info := Path("/proc/meminfo")).is_file():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _of_the_process() -> int | None:
    """What a limit on addresses leaves (``ulimit -v``), where there is one."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY:
            return None
        held = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        return max(limit - held * resource.getpagesize(), 1)
    except (ImportError, OSError, ValueError):
        return None
