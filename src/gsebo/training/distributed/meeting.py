"""How processes that torchrun has started find each other, also after a restart.

torchrun keeps one store of keys through all restarts. The addresses of the processes
that have died are still in there, and whoever comes back connects to those and fails or
waits for ever. So every start meets under a name of its own, which the first process
makes up. The number of restarts would not do as a name: every machine counts its own.
"""

import secrets
import time
from datetime import timedelta

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

_PAUSE_SECONDS = 0.02


def meet(store: Store, rank: int, size: int, timeout: timedelta) -> Store:
    """Wait for everybody who was started now; return a store that only they use.

    Args:
        store: What all processes can reach, with keys of earlier starts in it.
        rank: Number of this process.
        size: Number of processes.
        timeout: How long to wait for the others.
    """
    if rank == 0:
        name = secrets.token_hex(8)
        _welcome(store, name, size, time.monotonic() + timeout.total_seconds())
    else:
        # Unlike a rank, this is not mistaken for that of somebody who has died.
        own = secrets.token_hex(8)
        store.set(_hello(rank), own)
        store.wait([_answer(own)], timeout)
        name = store.get(_answer(own)).decode()
        store.set(_here(name, rank), "")
    return PrefixStore(f"gsebo/{name}", store)


def _welcome(store: Store, name: str, size: int, deadline: float) -> None:
    """Answer whoever says hello until all have come; answers to the dead do no harm."""
    missing = set(range(1, size))
    while missing:
        for rank in list(missing):
            if store.check([_hello(rank)]):
                store.set(_answer(store.get(_hello(rank)).decode()), name)
            if store.check([_here(name, rank)]):
                missing.remove(rank)
        if missing and time.monotonic() > deadline:
            ranks = ", ".join(map(str, sorted(missing)))
            raise TimeoutError(f"waited in vain for the processes with rank {ranks}")
        time.sleep(_PAUSE_SECONDS if missing else 0)


def _hello(rank: int) -> str:
    return f"gsebo/hello/{rank}"


def _answer(own: str) -> str:
    return f"gsebo/answer/{own}"


def _here(name: str, rank: int) -> str:
    return f"gsebo/here/{name}/{rank}"
