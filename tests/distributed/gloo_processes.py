"""Processes that talk by gloo, with the surroundings that torchrun gives its own."""

import multiprocessing
import os
import warnings
from collections.abc import Callable
from pathlib import Path

from torch.distributed import TCPStore

from gsebo.distributed import leave_group

# A process that imports what takes long once, and is then copied for each member. It
# does not find the folders of tests; packages of gsebo load nothing before it is used.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["gsebo.methods.amortised_fit", "hypothesis", "pytest"])
_SECONDS = 300


def new_store() -> TCPStore:
    """What torchrun's own process keeps through all restarts, on a free port."""
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def run_members(
    store: TCPStore, size: int, work: Callable[[str], None], folder: Path
) -> list[int | None]:
    """Start members and return how each has ended."""
    processes = []
    for rank in range(size):
        environment = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        arguments = (work, str(folder), environment)
        processes.append(_CONTEXT.Process(target=_member, args=arguments, daemon=True))
    for process in processes:
        process.start()
    for process in processes:
        process.join(_SECONDS)
    ended = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return ended


def _member(
    work: Callable[[str], None], folder: str, environment: dict[str, str]
) -> None:
    warnings.simplefilter("error")
    os.environ.update(environment)
    try:
        work(folder)
    finally:
        leave_group()
