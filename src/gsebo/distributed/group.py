"""Those who train together: one process alone, or several that exchange tensors.

torchrun keeps one store of keys through all restarts. The addresses of the processes
that have died are still in there, and whoever comes back connects to those and fails or
waits for ever. So every start meets under a name of its own, which the first process
makes up. The number of restarts would not do as a name: every machine counts its own.
"""

import atexit
import json
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from gsebo.bilevel.tree import Tree, flatten, unflatten
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


_PAUSE_SECONDS = 0.02
# As long as a slow machine may need between two meetings. A process that has died is
# noticed at once; only one that hangs is waited for.
_TIMEOUT_SECONDS = 1800.0


class Group(ABC):
    """Processes that train together; ``rank`` is the number of this one, from 0.

    All processes call every method, in the same order. What a sum returns does not
    depend on who comes first, and is the same to the last bit for all.
    """

    rank: int
    size: int

    @property
    def is_first(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0

    @abstractmethod
    def sum(self, tensor: Tensor) -> Tensor:
        """Add up the tensors of all processes; the same bits everywhere."""

    @abstractmethod
    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all processes, by rank.

        They may have different lengths, but not types or further axes.
        """

    @abstractmethod
    def exchange(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Send one tensor to each rank; return what each has sent to this one.

        They may have different lengths, but not types or further axes.
        """

    @abstractmethod
    def from_first(self, tensor: Tensor) -> Tensor:
        """Return the tensor of the first process; all have the same shape and type."""

    def sum_in_order(self, parts: Sequence[Tree], like: Tree) -> Tree:
        """Add up all parts of all processes, one after another.

        The bits of the sum depend on the parts and not on how they are shared out, so
        that any number of processes finds the same. All parts travel, not only sums.
        There may be none; ``like`` has their names, shapes and type.
        """
        if not like:
            return {}
        vectors = [flatten({name: part[name] for name in like}) for part in parts]
        own = torch.stack(vectors) if vectors else flatten(like)[None][:0]
        rows = torch.cat(self.gather(own))
        total = rows[0].clone() if len(rows) else own.new_zeros(own.shape[1])
        for row in rows[1:]:
            total.add_(row)
        return unflatten(total, like)


@final
class Alone(Group):
    """One process."""

    rank = 0
    size = 1

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor.detach().clone()

    def gather(self, tensor: Tensor) -> list[Tensor]:
        return [tensor]

    def exchange(self, parts: Sequence[Tensor]) -> list[Tensor]:
        (part,) = parts
        return [part]

    def from_first(self, tensor: Tensor) -> Tensor:
        return tensor


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
        # By a ring, whose order of addition is fixed by the number of processes.
        total = self._packed(tensor, copy=True)
        dist.all_reduce(total)
        return total.to(tensor.device)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        own = self._packed(tensor)
        lengths = [int(length) for length in self._all(torch.tensor([len(own)]))]
        # All of one length on the way, which gloo needs.
        padded = own.new_zeros(max(lengths), *own.shape[1:])
        padded[: len(own)] = own
        pairs = zip(self._all(padded), lengths, strict=True)
        return [each[:length].to(tensor.device) for each, length in pairs]

    def exchange(self, parts: Sequence[Tensor]) -> list[Tensor]:
        sent = [len(part) for part in parts]
        lengths = torch.tensor(sent, device=self._device)
        coming = torch.empty_like(lengths)
        dist.all_to_all_single(coming, lengths)
        received: list[int] = coming.tolist()
        own = self._packed(torch.cat(list(parts)))
        found = own.new_empty(sum(received), *own.shape[1:])
        dist.all_to_all_single(found, own, received, sent)
        return list(torch.split(found.to(parts[0].device), received))

    def from_first(self, tensor: Tensor) -> Tensor:
        given = self._packed(tensor, copy=True)
        dist.broadcast(given, 0)
        return given.to(tensor.device)

    def _all(self, own: Tensor) -> list[Tensor]:
        """Tensors of one shape from all processes, by rank."""
        own = own.to(self._device)
        found = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(found, own)
        return found

    def _packed(self, tensor: Tensor, *, copy: bool = False) -> Tensor:
        return tensor.detach().to(self._device, copy=copy).contiguous()


def current_group(
    device: str = "cpu", *, timeout_seconds: float = _TIMEOUT_SECONDS
) -> Group:
    """Join those whom torchrun has started with this process; else be alone.

    A second call returns the same group. It is left when the process ends. On GPUs,
    tensors travel by nccl from one to another, and each process gets its own; otherwise
    by gloo. A process that does not answer is given up after some seconds.

    Args:
        device: ``"cpu"`` or ``"cuda"``: what tensors that travel are on.
        timeout_seconds: How long an answer is waited for.
    """
    if not dist.is_initialized():
        place = launched()
        if place is None:
            return Alone()
        _join(place, torch.device(device), timedelta(seconds=timeout_seconds))
    return Distributed()


def _join(place: Launch, device: torch.device, timeout: timedelta) -> None:
    own_gpu = None
    if device.type == "cuda":
        found = torch.cuda.device_count()
        if place.local_size > found:
            raise InvalidInput(
                f"{place.local_size} processes on a machine with {found} GPUs; "
                "expected one for each at most, or --device cpu"
            )
        if device.index not in (None, place.local_rank):
            raise InvalidInput(
                f"device {device} given to the process with local rank "
                f"{place.local_rank}; expected cuda, of which each process takes its "
                "own"
            )
        own_gpu = torch.device("cuda", place.local_rank)
        torch.cuda.set_device(own_gpu)
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    dist.init_process_group(
        "gloo" if own_gpu is None else "nccl",
        store=_meet(store, rank, size, timeout),
        rank=rank,
        world_size=size,
        timeout=timeout,
        device_id=own_gpu,
    )
    atexit.register(leave_group)


def leave_group() -> None:
    """Leave the group, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _meet(store: Store, rank: int, size: int, timeout: timedelta) -> Store:
    """Wait for everybody who was started now; return a store that only they use.

    Keys of earlier starts are still in what all processes can reach.
    """
    if rank == 0:
        name = secrets.token_hex(8)
        _welcome(store, name, size, time.monotonic() + timeout.total_seconds())
    else:
        # Unlike a rank, this is not mistaken for that of somebody who has died.
        own = secrets.token_hex(8)
        store.set(f"gsebo/hello/{rank}", own)
        store.wait([f"gsebo/answer/{own}"], timeout)
        name = store.get(f"gsebo/answer/{own}").decode()
        store.set(f"gsebo/here/{name}/{rank}", "")
    return PrefixStore(f"gsebo/{name}", store)


def _welcome(store: Store, name: str, size: int, deadline: float) -> None:
    """Answer whoever says hello until all have come; answers to the dead do no harm."""
    missing = set(range(1, size))
    while missing:
        for rank in list(missing):
            if store.check([f"gsebo/hello/{rank}"]):
                own = store.get(f"gsebo/hello/{rank}").decode()
                store.set(f"gsebo/answer/{own}", name)
            if store.check([f"gsebo/here/{name}/{rank}"]):
                missing.remove(rank)
        if missing and time.monotonic() > deadline:
            ranks = ", ".join(map(str, sorted(missing)))
            raise TimeoutError(f"waited in vain for the processes with rank {ranks}")
        time.sleep(_PAUSE_SECONDS if missing else 0)


def shares(count: int, size: int) -> list[range]:
    """Share ``count`` things out to ``size`` processes, evenly and in order.

    Thing ``k`` goes to process ``k * size // count``.

    Args:
        count: Number of things.
        size: Number of processes.

    >>> shares(5, 2)
    [range(0, 3), range(3, 5)]
    """
    bounds = [-(-rank * count // size) for rank in range(size + 1)]
    return [range(*pair) for pair in pairwise(bounds)]


def share(count: int, group: Group) -> range:
    """Which of ``count`` things this process takes; some may get none.

    Args:
        count: Number of things.
        group: The processes that share them.
    """
    return shares(count, group.size)[group.rank]


Content = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and facts that JSON can hold."""


def broadcast_content(
    group: Group, find: Callable[[], Content | None]
) -> Content | None:
    """Let the first process find something, and broadcast it; so is what it refuses.

    Nobody else needs the files that it reads: they may lie on its machine alone.
    """
    if group.size == 1:
        return find()
    content: Content | None = None
    refused = None
    if group.is_first:
        try:
            content = find()
        except InvalidInput as error:
            refused = str(error)
    own, facts = content or ({}, {})
    forms = {
        name: (str(leaf.dtype).removeprefix("torch."), list(leaf.shape))
        for name, leaf in own.items()
    }
    text = json.dumps([refused, content is not None, facts, forms]).encode()
    length = int(group.from_first(torch.tensor([len(text)])).item())
    # The others give as many letters, whatever they are.
    letters = torch.tensor(list(text.ljust(length)[:length]), dtype=torch.uint8)
    text = bytes(group.from_first(letters).tolist())
    refused, is_found, facts, forms = json.loads(text)
    if refused is not None:
        raise InvalidInput(refused)
    if not is_found:
        return None
    tensors = {}
    for name, (kind, shape) in forms.items():
        empty = torch.empty(shape, dtype=getattr(torch, kind))
        tensors[name] = group.from_first(own.get(name, empty))
    return tensors, facts


def decided_by_first(group: Group, decision: bool) -> bool:
    """Let the first process decide for all."""
    return bool(group.from_first(torch.tensor([float(decision)])).item())
