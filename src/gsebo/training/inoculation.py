"""False edges at the nodes that judge a structure, drawn anew for every outer step.

Labels tell of edges near labelled nodes only. Where somebody has added edges elsewhere,
nothing that a fit was judged by looks like them. So the structure is judged on a graph
that has false edges at the judging nodes, while weights learn on the given graph: what
is learned is how to score edges, not how to live with false ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.bilevel.derivatives import (
    AutogradDerivatives,
    BilevelProblem,
    Derivatives,
    HandDifferentiated,
)
from gsebo.graph.topology import Topology
from gsebo.structure import AmortisedStrength, Predictions
from gsebo.training.problem import NodeClassification

# More false edges at one node teach nothing more.
_MOST = 100
# Nodes that are drawn for a false edge until one is of another class.
_TRIES = 8

StateOn = Callable[[NodeClassification], Predictions | None]
"""What the structure sees on a graph, at the weights and outer variables of now."""


@final
@dataclass(frozen=True, eq=False)
class JudgedElsewhere(HandDifferentiated):
    """Weights learn on one graph and are judged on another with the same nodes.

    Both graphs share the outer variables.
    """

    given: NodeClassification
    judged: NodeClassification

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        return self.given.inner_loss(weights, outer, step)

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        return self.judged.outer_loss(weights, outer)

    def derivatives(self, outer: Tree) -> Derivatives | None:
        known = self.given.derivatives(outer)
        return None if known is None else _DerivativesElsewhere(known, self, outer)


@final
class _DerivativesElsewhere(Derivatives):
    def __init__(
        self, given: Derivatives, problem: JudgedElsewhere, outer: Tree
    ) -> None:
        # The graph that judges serves one step: kernel calls of its own do not pay.
        self._given, self._judged = given, AutogradDerivatives(problem, outer)

    def inner_gradient(self, weights: Tree, step: int) -> tuple[Tree, Tensor]:
        return self._given.inner_gradient(weights, step)

    def outer_gradient(
        self, weights: Tree, *, direct_term: bool
    ) -> tuple[Tensor, Tree, Tree]:
        return self._judged.outer_gradient(weights, direct_term=direct_term)

    def pull_back(self, weights: Tree, step: int, cotangent: Tree) -> Tree:
        return self._given.pull_back(weights, step, cotangent)

    def gathered(self) -> Tree:
        return self._given.gathered()


@final
class Inoculation:
    """Graphs with false edges at the nodes that judge, one for each outer step.

    Args:
        base: The problem on the given graph.
        structure: The same function as in ``base``.
        lay_out: From edges ``[2, edges]`` to entries, with what is given of edges.
        dose: False edges for each edge of a judging node, on average.
        seed: Decides which.
    """

    def __init__(
        self,
        base: NodeClassification,
        structure: AmortisedStrength,
        lay_out: Callable[[Tensor], Topology],
        *,
        dose: float,
        seed: int,
    ) -> None:
        self._base, self._structure, self._lay_out = base, structure, lay_out
        self._dose, self._seed = dose, seed
        self._edges = base.graph.graph.edge_index.cpu()
        self._degree = self._edges[1].bincount(minlength=base.graph.num_nodes)

    def problem(
        self, here: NodeClassification, number: int, state_on: StateOn
    ) -> BilevelProblem:
        """The losses of an outer step, with the nodes that ``here`` learns from."""
        given = here.with_state(state_on(self._base))
        # A function of seed and step; a generator takes no more than 63 bits.
        rng = torch.Generator().manual_seed((self._seed * 1_000_003 + number) % 2**63)
        drawn = false_edges(
            here.outer_nodes.cpu(), self._classes(given), self._degree, self._dose, rng
        )
        graph = self._lay_out(torch.cat([self._edges, drawn, drawn.flip(0)], dim=1))
        structure = self._structure.with_edges(graph, self._base.graph, here.features)
        judged = replace(here, graph=graph, structure=structure, by_hand=False)
        return JudgedElsewhere(given, judged.with_state(state_on(judged)))

    def _classes(self, given: NodeClassification) -> Tensor:
        """Class of each node by what may be known and what is predicted, or -1."""
        labels, state = given.labels.cpu(), given.state
        known = torch.full_like(labels, -1)
        if state is not None:
            known = state[-1].argmax(-1).cpu()
        for nodes in (given.inner_nodes.cpu(), given.outer_nodes.cpu()):
            known[nodes] = labels[nodes]
        return known


def false_edges(
    nodes: Tensor, classes: Tensor, degree: Tensor, dose: float, rng: torch.Generator
) -> Tensor:
    """Draw edges between some nodes and any of other classes, ``[2, edges]``.

    How many a node gets varies widely, so that what is learned holds for nodes with one
    false edge as for those where most are false.

    Args:
        nodes: The nodes that get false edges.
        classes: Class of every node, -1 where nothing is known.
        degree: Number of edges of every node.
        dose: False edges for each edge of a node, on average.
        rng: Decides everything.
    """
    share = -dose * torch.rand(len(nodes), generator=rng).clamp(min=1e-9).log()
    counts = torch.poisson(share * degree[nodes].clamp(min=1), generator=rng)
    source = nodes.repeat_interleave(counts.long().clamp(max=_MOST))
    others = torch.randint(len(classes), (_TRIES, len(source)), generator=rng)
    apart = (classes[others] != classes[source]) & (others != source)
    first = apart.to(torch.uint8).argmax(0, keepdim=True)
    found, other = apart.gather(0, first)[0], others.gather(0, first)[0]
    return torch.stack([source[found], other[found]])
