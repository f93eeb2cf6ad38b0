"""AdaEdge: link what the network takes for one class, cut what it takes for two."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.methods.base import Run
from gsebo.methods.epochs import EpochClassifier
from gsebo.methods.outcome import Outcome
from gsebo.methods.parameters import (
    require_choice,
    require_count,
    require_count_or_zero,
    require_flag,
    require_share,
)
from gsebo.methods.schedule import train_on_fixed_structure
from gsebo.structure.label_agreement import (
    Belief,
    PairOrder,
    agreeing_unlinked_pairs,
    belief_of,
    disagreeing_pairs,
)
from gsebo.structure.node_pairs import linked_pairs, rewired


@final
@dataclass(kw_only=True, eq=False, repr=False)
class AdaEdge(EpochClassifier):
    """Training on a graph that is changed by the predictions of the last training.

    Chen et al., AAAI 2020. After each training, pairs of nodes that are surely of one
    class become edges, and edges between nodes that are surely of two classes go; then
    a fresh network is trained on the new graph, from the same seed. This goes on as
    long as the validation accuracy rises; the best network is kept with its graph.

    Pairs have no direction: in a directed graph a pair that goes loses the edges of
    both directions, a new one gets both, and all other edges stay as they are.

    Args:
        num_add: How many pairs become edges in one round at most; ``None`` means a
            tenth as many as the given graph has.
        num_remove: How many pairs cease to be edges in one round at most; ``None``
            means a tenth of those that the given graph has.
        conf_add: Probability of its class that each node of a new pair must reach.
        conf_remove: The same for each node of a pair that goes.
        order: Whether a round begins with ``"add"`` or ``"remove"``. New pairs have
            equal classes and those that go have not, so the graph is the same; it is
            there because published settings name it.
        max_rounds: Number of trainings at most.
        compat: Do as the code behind the published figures: removals too ask for
            ``conf_add``, and of too many pairs those of the first nodes are taken
            instead of the surest.
    """

    num_add: int | None = None
    num_remove: int | None = None
    conf_add: float = 0.5
    conf_remove: float = 0.5
    order: Literal["add", "remove"] = "add"
    max_rounds: int = 5
    compat: bool = False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("num_add", "num_remove"):
            if getattr(self, name) is not None:
                require_count_or_zero(**{name: getattr(self, name)})
        require_share(conf_add=self.conf_add, conf_remove=self.conf_remove)
        require_choice("order", self.order, ("add", "remove"))
        require_count(max_rounds=self.max_rounds)
        require_flag(compat=self.compat)

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Outcome]:
        # All seeds begin on the same graph, and each goes on with its own.
        firsts = self._trained(data, [run.stage(0) for run in runs], data.edge_index)
        pairs = zip(runs, firsts, strict=True)
        return [self._improved(data, run, first) for run, first in pairs]

    def _improved(self, data: Data, run: Run, best: Outcome) -> Outcome:
        edges = data.edge_index.to(run.device, torch.int64)
        num_pairs = linked_pairs(edges, data.num_nodes).numel()
        for number in range(1, self.max_rounds):
            changed = self._adjusted(edges, belief_of(best.probability), num_pairs)
            if changed.shape == edges.shape and bool((changed == edges).all()):
                break
            (found,) = self._trained(data, [run.stage(number)], changed)
            if _accuracy(found) <= _accuracy(best):
                break
            best, edges = found, changed
        return best

    def _trained(self, data: Data, runs: Sequence[Run], edges: Tensor) -> list[Outcome]:
        return train_on_fixed_structure(
            data, runs, self.network(), self.schedule(), graph=edges
        )

    def _adjusted(self, edges: Tensor, belief: Belief, num_pairs: int) -> Tensor:
        """Put pairs in and take pairs out, ``[2, edges]``."""
        by: PairOrder = "rows" if self.compat else "confidence"
        num_nodes = belief.label.numel()
        num_add = num_pairs // 10 if self.num_add is None else self.num_add
        num_remove = num_pairs // 10 if self.num_remove is None else self.num_remove
        conf_remove = self.conf_add if self.compat else self.conf_remove
        for adds in (True, False) if self.order == "add" else (False, True):
            linked = linked_pairs(edges, num_nodes)
            added = removed = linked[:0]
            if adds:
                added = agreeing_unlinked_pairs(
                    belief, linked, confidence=self.conf_add, count=num_add, order=by
                )
            else:
                removed = disagreeing_pairs(
                    belief, linked, confidence=conf_remove, count=num_remove, order=by
                )
            edges = rewired(edges, num_nodes, added=added, removed=removed)
        return edges


def _accuracy(outcome: Outcome) -> float:
    """Validation accuracy of the step that was kept."""
    assert outcome.progress.best is not None
    return outcome.progress.best.val_accuracy
