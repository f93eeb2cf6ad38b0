"""Real processes that talk by gloo, as torchrun starts them."""

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from gsebo.training.distributed import leave_group
from training.distributed import gloo_members

# A process that imports what takes long once, and is then copied for each member. It
# does not find the folders of tests.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["gsebo.training.distributed", "hypothesis", "pytest"])
SECONDS = 300


@pytest.fixture
def store() -> TCPStore:
    """What torchrun's own process keeps through all restarts, on a free port."""
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def member(
    work: Callable[[str], None], folder: str, environment: dict[str, str]
) -> None:
    warnings.simplefilter("error")
    os.environ.update(environment)
    try:
        work(folder)
    finally:
        leave_group()


def run(
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
        processes.append(CONTEXT.Process(target=member, args=arguments, daemon=True))
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
    ended = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return ended


def test_two_and_four_processes(store: TCPStore, tmp_path: Path) -> None:
    for size in (2, 4):
        ended = run(store, size, gloo_members.use_everything, tmp_path)
        assert ended == [0] * size
    assert {path.name for path in tmp_path.iterdir()} == {"table-2", "table-4"}


def test_whoever_is_left_notices_and_all_can_come_back(
    store: TCPStore, tmp_path: Path
) -> None:
    ended = run(store, 2, gloo_members.die_or_notice, tmp_path)
    assert ended == [0, -signal.SIGKILL]
    # The store still has the addresses of those who have died.
    assert run(store, 2, gloo_members.come_back, tmp_path) == [0, 0]


def test_waiting_in_vain_ends(store: TCPStore, tmp_path: Path) -> None:
    assert run(store, 2, gloo_members.one_is_missing, tmp_path) == [0, 0]
