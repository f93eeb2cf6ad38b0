"""The group of processes that torchrun has started, by torch.distributed.

How processes that torchrun has started find each other, also after a restart.

torchrun keeps one store of keys through all restarts. The addresses of the processes
that have died are still in there, and whoever comes back connects to those and fails or
waits for ever. So every start meets under a name of its own, which the first process
makes up. The number of restarts would not do as a name: every machine counts its own.
"""

import atexit
import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from gsebo.distributed.group import Alone, Group
from gsebo.distributed.launch import Launch, launched
from gsebo.errors import InvalidInput

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


# As long as a slow machine may need between two meetings. A process that has died is
# noticed at once; only one that hangs is waited for.
_TIMEOUT_SECONDS = 1800.0


def current_group(
    device: str = "cpu", *, timeout_seconds: float = _TIMEOUT_SECONDS
) -> Group:
    """Join those whom torchrun has started with this process; else be alone.

    A second call returns the same group. It is left when the process ends.

    Args:
        device: Where training takes place: on GPUs, tensors travel by nccl from one to
            another, and each process gets its own; otherwise by gloo.
        timeout_seconds: How long to wait for another process before giving up.
    """
    if not dist.is_initialized():
        place = launched()
        if place is None:
            return Alone()
        _join(place, torch.device(device), timedelta(seconds=timeout_seconds))
    return Distributed()


def _join(place: Launch, device: torch.device, timeout: timedelta) -> None:
    uses_gpu = device.type == "cuda"
    if uses_gpu:
        _take_own_gpu(place, device)
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    dist.init_process_group(
        "nccl" if uses_gpu else "gloo",
        store=meet(store, rank, size, timeout),
        rank=rank,
        world_size=size,
        timeout=timeout,
        device_id=torch.device("cuda", place.local_rank) if uses_gpu else None,
    )
    atexit.register(leave_group)


def leave_group() -> None:
    """Leave the group, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _take_own_gpu(place: Launch, device: torch.device) -> None:
    found = torch.cuda.device_count()
    if place.local_size > found:
        raise InvalidInput(
            f"{place.local_size} processes on a machine with {found} GPUs; expected "
            "one for each at most, or --device cpu"
        )
    if device.index not in (None, place.local_rank):
        raise InvalidInput(
            f"device {device} given to the process with local rank {place.local_rank}; "
            "expected cuda, of which each process takes its own"
        )
    torch.cuda.set_device(place.local_rank)


@final
class Distributed(Group):
    """The processes in the default group of torch.distributed."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        on_gpu = dist.get_backend() == "nccl"
        # gloo cannot exchange tensors on GPUs, nccl no others.
        name = f"cuda:{torch.cuda.current_device()}" if on_gpu else "cpu"
        self._device = torch.device(name)

    def sum(self, tensor: Tensor) -> Tensor:
        """By a ring, whose order of addition is fixed by the number of processes."""
        total = self._packed(tensor, copy=True)
        dist.all_reduce(total)
        return total.to(tensor.device)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """All tensors, padded to one length on the way, which gloo needs."""
        own = self._packed(tensor)
        lengths = self._lengths(own.shape[0])
        padded = own.new_zeros(max(lengths), *own.shape[1:])
        padded[: own.shape[0]] = own
        found = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(found, padded)
        pairs = zip(found, lengths, strict=True)
        return [each[:length].to(tensor.device) for each, length in pairs]

    def exchange(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """All to all, the lengths first."""
        sent = [part.shape[0] for part in parts]
        lengths = torch.tensor(sent, device=self._device)
        coming = torch.empty_like(lengths)
        dist.all_to_all_single(coming, lengths)
        received: list[int] = coming.tolist()
        own = self._packed(torch.cat(list(parts)))
        found = own.new_empty(sum(received), *own.shape[1:])
        dist.all_to_all_single(found, own, received, sent)
        return list(torch.split(found.to(parts[0].device), received))

    def from_first(self, tensor: Tensor) -> Tensor:
        """Broadcast from rank 0."""
        told = self._packed(tensor, copy=True)
        dist.broadcast(told, 0)
        return told.to(tensor.device)

    def barrier(self) -> None:
        """Wait for a sum, which needs everybody; reading it waits for a GPU too."""
        self.sum(torch.zeros(1)).item()

    def _lengths(self, own: int) -> list[int]:
        mine = torch.tensor([own], device=self._device)
        found = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(found, mine)
        return [int(each) for each in found]

    def _packed(self, tensor: Tensor, *, copy: bool = False) -> Tensor:
        moved = tensor.detach().to(self._device, copy=copy)
        return moved.contiguous()
