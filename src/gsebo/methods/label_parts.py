"""Which labelled nodes a structure is learned from, and what is known without edges."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.errors import InvalidInput
from gsebo.methods.folds import deal
from gsebo.methods.plain_training import PlainTraining, probabilities
from gsebo.methods.prepare import NetworkChoices, PreparedGraph
from gsebo.training import Division, Folds, Redrawn

LabelUse = Literal["folds", "cross", "fixed"]


class LabelParts(NamedTuple):
    """Labelled nodes by their use, one set for each network.

    Attributes:
        inner: Nodes that the weights are trained on.
        outer: Nodes that judge the structure.
    """

    inner: list[Tensor]
    outer: list[Tensor]


def parts_of(
    data: Data, label_use: LabelUse, num_folds: int, seed: int, device: torch.device
) -> LabelParts:
    """Divide the labelled nodes, class by class where that is for us to do."""
    train, val = (
        mask.nonzero().squeeze(-1) for mask in (data.train_mask, data.val_mask)
    )
    if label_use == "fixed":
        return LabelParts([train.to(device)], [val.to(device)])
    labelled = torch.cat([train, val]).sort().values.cpu()
    outer = [fold.held_out for fold in deal(data, num_folds, seed)]
    if not outer:
        raise InvalidInput(
            f"label_use={label_use!r} given where no class has two labelled nodes; "
            "expected at least one such class, or label_use='fixed'."
        )
    inner = [labelled[~torch.isin(labelled, nodes)] for nodes in outer]
    return LabelParts(*([one.to(device) for one in each] for each in (inner, outer)))


def division_of(
    parts: LabelParts, label_use: LabelUse, inner_share: float, seed: int
) -> Division:
    """How the steps of the structure use the parts."""
    if label_use == "cross":
        return Redrawn(_labelled(parts), inner_share, seed)
    return Folds(parts.inner, parts.outer)


def guesses_without_edges(
    prepared: PreparedGraph,
    parts: LabelParts,
    label_use: LabelUse,
    network: NetworkChoices,
    training: PlainTraining,
) -> list[Tensor]:
    """What features alone say of every node, for each of the networks that take turns.

    Args:
        prepared: The graph.
        parts: The guess for a network is learned from the nodes that it learns from.
        label_use: Where nodes are divided anew all the time, the guess for a labelled
            node is one that its label did not serve.
        network: Which network guesses.
        training: How it is trained.
    """
    guesses = [
        probabilities(*training.train(prepared, network, None, nodes))
        for nodes in parts.inner
    ]
    return [_stitched(guesses, parts.outer)] if label_use == "cross" else guesses


def _stitched(guesses: Sequence[Tensor], held_out: Sequence[Tensor]) -> Tensor:
    mean = torch.stack(list(guesses)).mean(0)
    for guess, nodes in zip(guesses, held_out, strict=True):
        mean[nodes] = guess[nodes]
    return mean


def _labelled(parts: LabelParts) -> Tensor:
    both: Tensor = torch.cat([parts.inner[0], parts.outer[0]])
    return both.sort().values
