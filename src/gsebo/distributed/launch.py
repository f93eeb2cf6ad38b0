"""What torchrun tells a process: which of how many it is; only the first one speaks.

After a failure torchrun ends all processes and starts all of them again, with the same
command. Each finds its place anew and goes on from the checkpoint of the first one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import NamedTuple, final

from gsebo.errors import InvalidInput

_SIZE = "WORLD_SIZE"
_ELASTIC = "TORCHELASTIC_RUN_ID"
_NEEDED = ("RANK", _SIZE, "MASTER_ADDR", "MASTER_PORT")


@final
class Launch(NamedTuple):
    """The place of this process among those launched together, and on its machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def launched() -> Launch | None:
    """Where torchrun has put this process; ``None`` if it was started alone."""
    elastic = _ELASTIC in os.environ
    if not elastic and (_SIZE not in os.environ or _number(_SIZE) == 1):
        return None
    missing = [name for name in _NEEDED if not os.environ.get(name)]
    if missing:
        given = _ELASTIC if elastic else f"{_SIZE}={os.environ[_SIZE]}"
        raise InvalidInput(
            f"the environment has {given} but not {', '.join(missing)}; expected all "
            "that torchrun sets, or none of it"
        )
    rank, size = _number("RANK"), _number(_SIZE)
    if not 0 <= rank < size:
        raise InvalidInput(
            f"RANK={rank} and WORLD_SIZE={size} given; expected a rank from 0 to "
            f"{size - 1}"
        )
    local_rank = _number("LOCAL_RANK", rank)
    return Launch(rank, size, local_rank, _number("LOCAL_WORLD_SIZE", size))


@contextmanager
def quiet_other_ranks() -> Iterator[bool]:
    """Let only the first process print results; tell whether this is the first.

    The others write nothing to standard output inside. Standard error stays as it is,
    so that an error is seen wherever it happens.
    """
    place = launched()
    if place is None or place.rank == 0:
        yield True
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield False


def _number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isascii() or not text.isdigit():
        raise InvalidInput(f"{name}={text!r} in the environment; expected an integer")
    return int(text)
