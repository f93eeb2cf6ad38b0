"""What only the first process looks up: all hear the same, good or bad."""

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.training.distributed.group import Group

Content = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and facts that JSON can hold."""


def told_by_first(group: Group, find: Callable[[], Content | None]) -> Content | None:
    """Let the first process find something, and tell everybody.

    Nobody else needs the files that it reads: they may lie on its machine alone.

    Args:
        group: Who takes part.
        find: Called by the first process; what it refuses is refused by all.
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
    letter = json.dumps([refused, content is not None, facts, forms])
    refused, is_found, facts, forms = json.loads(_text_of_first(group, letter))
    if refused is not None:
        raise InvalidInput(refused)
    if not is_found:
        return None
    tensors = {}
    for name, (kind, shape) in forms.items():
        empty = torch.empty(shape, dtype=getattr(torch, kind))
        tensors[name] = group.from_first(own.get(name, empty))
    return tensors, facts


def agreed(group: Group, decision: bool) -> bool:
    """Let the first process decide for all."""
    return bool(group.from_first(torch.tensor([float(decision)])).item())


def _text_of_first(group: Group, text: str) -> str:
    letters = torch.tensor(list(text.encode()), dtype=torch.uint8)
    length = int(group.from_first(torch.tensor([len(letters)])).item())
    if not group.is_first:
        letters = torch.empty(length, dtype=torch.uint8)
    return bytes(group.from_first(letters).tolist()).decode()
