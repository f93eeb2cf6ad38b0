"""Processes that a test started, and whether they are gone."""

import time
from collections.abc import Sequence

import psutil


def outlive(family: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that still run after so many seconds; returns early if none does.

    One that has ended but that nobody has asked for yet counts as gone: whoever
    inherits orphans may take seconds to do so.
    """
    deadline = time.monotonic() + seconds
    while alive := [process for process in family if _runs(process)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return alive


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
