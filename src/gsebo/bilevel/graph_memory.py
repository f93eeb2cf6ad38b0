"""How much memory a recorded computation holds until it is differentiated."""

from collections.abc import Hashable, Iterable, Iterator
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor


def graph_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of all distinct memory that the graph of ``tensors`` holds.

    Inputs that would be there anyway count too: the result is an upper bound of what
    forgetting the graph sets free.
    """
    held: dict[int, int] = {}
    seen: set[Any] = set()
    waiting = [tensor.grad_fn for tensor in tensors]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for saved in _saved_tensors(node):
            storage = saved.untyped_storage()
            held[storage.data_ptr()] = storage.nbytes()
        waiting += [before for before, _ in node.next_functions]
    return sum(held.values())


def _saved_tensors(node: Any) -> Iterator[Tensor]:
    for name in _saved_names(cast(Hashable, type(node))):
        value = getattr(node, name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Tensor) and each.layout == torch.strided:
                yield each


@cache
def _saved_names(kind: Any) -> tuple[str, ...]:
    """Names under which a kind of node shows what it saved (autograd's notes)."""
    ours = issubclass(kind, torch.autograd.function.BackwardCFunction)
    names = ("saved_tensors",) if ours else dir(kind)
    return tuple(n for n in names if n == "saved_tensors" or n.startswith("_saved_"))
