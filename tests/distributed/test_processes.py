"""Real processes that talk by gloo, as torchrun starts them."""

import signal
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from distributed import gloo_members
from distributed.gloo_processes import new_store, run_members


@pytest.fixture
def store() -> TCPStore:
    return new_store()


def test_two_and_four_processes(store: TCPStore, tmp_path: Path) -> None:
    for size in (2, 4):
        ended = run_members(store, size, gloo_members.use_everything, tmp_path)
        assert ended == [0] * size
    assert {path.name for path in tmp_path.iterdir()} == {"table-2", "table-4"}


def test_whoever_is_left_notices_and_all_can_come_back(
    store: TCPStore, tmp_path: Path
) -> None:
    ended = run_members(store, 2, gloo_members.die_or_notice, tmp_path)
    assert ended == [0, -signal.SIGKILL]
    # The store still has the addresses of those who have died.
    assert run_members(store, 2, gloo_members.come_back, tmp_path) == [0, 0]


def test_all_stop_where_the_first_one_does(store: TCPStore, tmp_path: Path) -> None:
    assert run_members(store, 2, gloo_members.stop_together, tmp_path) == [0, 0]


def test_waiting_in_vain_ends(store: TCPStore, tmp_path: Path) -> None:
    assert run_members(store, 2, gloo_members.one_is_missing, tmp_path) == [0, 0]
