"""The members of a model as named tensors, and back."""

import torch
from torch import Tensor

from gsebo.backbone import Backbone
from gsebo.errors import InvalidInput
from gsebo.structure import Propagation, Topology
from gsebo.training import Member

_EDGES, _STRENGTHS, _WEIGHT = "edges", "strengths", "weight:"


def member_tensors(members: tuple[Member, ...]) -> dict[str, Tensor]:
    """Name the tensors of every member."""
    tensors: dict[str, Tensor] = {}
    for number, (propagation, weights) in enumerate(members):
        own = _prefix(number)
        pattern, strengths = propagation
        source, target = pattern.column_of_entry, pattern.row_of_entry
        is_edge = source != target
        tensors[own + _EDGES] = torch.stack([source[is_edge], target[is_edge]])
        tensors[own + _STRENGTHS] = strengths
        for name, weight in (weights or {}).items():
            tensors[own + _WEIGHT + name] = weight.clone()
    return tensors


def members_from(
    tensors: dict[str, Tensor], network: Backbone, num_nodes: int
) -> tuple[Member, ...]:
    """Rebuild the members from their tensors.

    Raises:
        InvalidInput: They do not fit each other.
    """
    members: list[Member] = []
    while (own := _prefix(len(members))) + _EDGES in tensors:
        topology = Topology.from_edges(
            tensors[own + _EDGES],
            num_nodes,
            self_loops=network.self_loops,
            device="cpu",
        )
        strengths = tensors[own + _STRENGTHS]
        if strengths.shape[-1] != topology.num_entries:
            raise InvalidInput(
                f"the model file holds {strengths.shape[-1]} strengths for a graph of "
                f"{topology.num_entries} entries; expected one for each."
            )
        weights = {
            name.removeprefix(own + _WEIGHT): tensor
            for name, tensor in tensors.items()
            if name.startswith(own + _WEIGHT)
        }
        propagation = Propagation(topology.pattern, strengths)
        members.append(Member(propagation, weights or None))
    return tuple(members)


def _prefix(number: int) -> str:
    return f"member{number}:"
