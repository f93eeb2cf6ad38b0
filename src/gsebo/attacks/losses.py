"""How far an attack has come: what it makes large, from the logits of attacked nodes.

With probabilities p, logits z and the class y that an attacker takes for the true one,
each is a mean over the attacked nodes:

    prob_margin     max_{c != y} p_c - p_y, in [-1, 1]
    tanh_margin     tanh(max_{c != y} z_c - z_y), in [-1, 1]
    masked          cross-entropy of the nodes that are predicted rightly still
    cross_entropy   cross-entropy of all of them

The first two do not gain by pushing a node further that is wrong already. A targeted
attack makes the same of a class that nodes are to be put into small.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

LossName = Literal["prob_margin", "tanh_margin", "masked", "cross_entropy"]


def attack_loss(name: LossName, logits: Tensor, labels: Tensor) -> Tensor:
    """What an attack makes large, a number.

    Args:
        name: Which.
        logits: Of the attacked nodes, ``[nodes, classes]``.
        labels: What the attacker takes for their classes, int64 ``[nodes]``.
    """
    if name == "prob_margin":
        return -margins(logits.softmax(-1), labels).mean()
    if name == "tanh_margin":
        return -margins(logits, labels).tanh().mean()
    each = cross_entropy(logits, labels, reduction="none")
    if name == "masked":
        each = each * (logits.argmax(-1) == labels)
    return each.mean()


def targeted_loss(name: LossName, logits: Tensor, target: int) -> Tensor:
    """The same of an attack that wants nodes to be put into one class."""
    wanted = torch.full((len(logits),), target, device=logits.device)
    if name == "masked":
        there = logits.argmax(-1) == target
        each = cross_entropy(logits, wanted, reduction="none")
        return -(each * ~there).mean()
    return -attack_loss(name, logits, wanted)


def margins(scores: Tensor, labels: Tensor) -> Tensor:
    """Score of each node's class less the best of the others, ``[nodes]``.

    It is negative exactly where another class is predicted.

    >>> margins(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([1]))
    tensor([-2.])
    """
    own = labels.unsqueeze(-1)
    best = scores.scatter(-1, own, -torch.inf).amax(-1)
    return scores.gather(-1, own).squeeze(-1) - best
