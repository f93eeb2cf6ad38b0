"""Which labelled nodes networks learn from, and which they are judged by."""

import copy
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.graph.graph import Graph
from gsebo.training import Division, Folds, Redrawn


@final
@dataclass(frozen=True, eq=False)
class Fold:
    """One division of the labelled nodes.

    Attributes:
        held_out: Nodes that decide, int64 ``[nodes]``.
        train: Nodes to train on.
        val: Nodes to validate on while training; may be empty.
    """

    held_out: Tensor
    train: Tensor
    val: Tensor

    def for_length(self, data: Graph) -> Graph:
        """The graph with all other labels to train on, watched on the held-out ones."""
        return _with_masks(data, torch.cat([self.train, self.val]), self.held_out)

    def for_method(self, data: Graph) -> Graph:
        """The graph without the labels that are held out."""
        hidden = _with_masks(data, self.train, self.val)
        hidden.y = data.y.clone()
        hidden.y[self.held_out] = -1
        return hidden


def stratified_folds(data: Graph, num_folds: int, seed: int) -> list[Fold]:
    """Deal the training and validation nodes of each class into folds.

    Every node of a class with at least two labelled nodes is held out once; the only
    node of a class never is, so that every class can be learned. What is not held out
    is divided, class by class, in the proportion of the given masks. Folds without any
    node are left out.
    """
    labelled = (data.train_mask | data.val_mask).nonzero().squeeze(-1).cpu()
    share = float(data.train_mask.sum()) / len(labelled)
    generator = torch.Generator().manual_seed(seed)
    order = labelled[torch.randperm(len(labelled), generator=generator)]
    labels = data.y.cpu()[order]
    fold = torch.full_like(order, -1)
    dealt = 0
    for label in torch.unique(labels).tolist():
        members = (labels == label).nonzero().squeeze(-1)
        if len(members) > 1:
            # Go on where the last class ended, so that all folds are of one size.
            fold[members] = (dealt + torch.arange(len(members))) % num_folds
            dealt += len(members)
    return [
        _fold(order, labels, fold == number, share)
        for number in range(num_folds)
        if bool((fold == number).any())
    ]


def _fold(order: Tensor, labels: Tensor, held_out: Tensor, share: float) -> Fold:
    trains = torch.zeros_like(held_out)
    for label in torch.unique(labels).tolist():
        members = (~held_out & (labels == label)).nonzero().squeeze(-1)
        wanted = round(share * len(members))
        trains[members[: max(1, min(wanted, len(members) - 1))]] = True
    parts = (held_out, ~held_out & trains, ~held_out & ~trains)
    return Fold(*(order[part].sort().values for part in parts))


def _with_masks(data: Graph, train: Tensor, val: Tensor) -> Graph:
    changed = copy.copy(data)
    for key, nodes in (("train_mask", train), ("val_mask", val)):
        mask = torch.zeros_like(data.train_mask)
        mask[nodes.to(mask.device)] = True
        changed[key] = mask
    return changed


Labels = Literal["all", "train"]
"""Whose labels teach: those of training and validation nodes, or of training nodes
alone, while those of validation nodes choose and stop."""


def check_fallback(labels: Labels, fallback: bool) -> None:
    """Raise where no graph could be fallen back on, and yet it is declined."""
    if labels == "all" and not fallback:
        raise InvalidInput(
            "fallback=False given with labels='all', where the learned graph is taken "
            "in any case; expected labels='train', or fallback=True."
        )


def taught_labels(data: Graph, labels: Labels) -> Graph:
    """The graph with the labels that may teach in its masks, and no others."""
    if labels == "all":
        return data
    taught = copy.copy(data)
    taught.val_mask = torch.zeros_like(data.val_mask)
    return taught


@final
@dataclass(frozen=True)
class Lead:
    """How predictions compare with others, node by node.

    Attributes:
        won: Nodes that only these are right on.
        lost: Nodes that only the others are right on.
        nodes: Nodes in all.
    """

    won: int
    lost: int
    nodes: int

    @classmethod
    def of(cls, log_probability: Tensor, other: Tensor, labels: Tensor) -> "Lead":
        """Compare predictions ``[nodes, classes]`` of nodes with known labels."""
        right, others = (each.argmax(-1) == labels for each in (log_probability, other))
        won, lost = int((right & ~others).sum()), int((others & ~right).sum())
        return cls(won, lost, len(labels))

    @property
    def share(self) -> float:
        """Share of the nodes that are right beyond the others'."""
        return (self.won - self.lost) / self.nodes

    @property
    def error(self) -> float:
        """Its standard error, were both as good: each node that differs is a coin."""
        return math.sqrt(self.won + self.lost) / self.nodes

    @property
    def is_sure(self) -> bool:
        """Whether the lead is more than twice its standard error."""
        return self.is_beyond(2)

    def is_beyond(self, errors: int) -> bool:
        """Whether the lead is more than so many standard errors."""
        # In whole numbers, so that no processor rounds it otherwise.
        ahead = self.won - self.lost
        return ahead > 0 and ahead**2 > errors**2 * (self.won + self.lost)


LabelUse = Literal["folds", "cross", "fixed"]


class FoldNodes(NamedTuple):
    """Nodes that each network learns from, and nodes that judge the structure."""

    inner: list[Tensor]
    outer: list[Tensor]


def fold_nodes(
    data: Graph,
    label_use: LabelUse,
    num_folds: int,
    seed: int,
    device: torch.device,
    labels: Labels = "all",
) -> FoldNodes:
    """Divide the nodes whose labels teach, class by class where that is for us."""
    data = taught_labels(data, labels)
    train, val = (
        mask.nonzero().squeeze(-1) for mask in (data.train_mask, data.val_mask)
    )
    if label_use == "fixed":
        return FoldNodes([train.to(device)], [val.to(device)])
    labelled = torch.cat([train, val]).sort().values.cpu()
    outer = [fold.held_out for fold in stratified_folds(data, num_folds, seed)]
    if not outer:
        instead = "labels='all'" if labels == "train" else "label_use='fixed'"
        raise InvalidInput(
            f"label_use={label_use!r} given where no class has two nodes whose labels "
            f"teach; expected at least one such class, or {instead}."
        )
    inner = [labelled[~torch.isin(labelled, nodes)] for nodes in outer]
    return FoldNodes(*([one.to(device) for one in each] for each in (inner, outer)))


def division_of(
    parts: FoldNodes, label_use: LabelUse, inner_share: float, seed: int
) -> Division:
    """How the steps of the structure use the parts."""
    if label_use == "cross":
        labelled = torch.cat([parts.inner[0], parts.outer[0]]).sort().values
        return Redrawn(labelled, inner_share, seed)
    return Folds(parts.inner, parts.outer)
