"""What an attack looks at: logits that can be differentiated by the weights of edges.

An edge of weight zero is the same as none. That is what lets an attack ask what an
edge would do that is not there: it is laid into the graph with weight zero.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol, final, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gsebo.data.preparation import given_features
from gsebo.errors import InvalidInput, escaped
from gsebo.graph import CanonicalGraph, canonicalise
from gsebo.graph.graph import Graph
from gsebo.graph.node_match import find_edges
from gsebo.model.fitted import FittedModel
from gsebo.model.state import edges_of
from gsebo.nn.base import Features
from gsebo.nn.gat import GATLayer
from gsebo.nn.pyg.adapter import PyGBackbone
from gsebo.sparse import Pattern, make_features
from gsebo.training import Member

# Absent edges that are laid into a graph to see that they change nothing.
_PROBES = 16
_TOLERANCE = 1e-3


@runtime_checkable
class Victim(Protocol):
    """Logits of every node of one graph, whatever edges it is given."""

    def logits(self, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """Logits ``[nodes, classes]``, differentiable by the weights.

        Args:
            edge_index: Edges in both directions, int64 ``[2, edges]``, no self-loops.
            edge_weight: What each weighs, ``[edges]``; one of weight 0 is absent, and
                the weights of one that is there twice add up.
        """
        ...


def victim_of(model: Any, graph: Graph, *, random_state: int = 0) -> Victim:
    """What is attacked, with the features of a graph.

    Args:
        model: A :class:`Victim`; a fitted estimator; a module that is called as
            ``module(x, edge_index, edge_weight)``; or ``None`` for a plain GCN that is
            fitted on the graph now.
        graph: The graph that is attacked.
        random_state: Seed of that fit.

    Raises:
        InvalidInput: It is none of these, or an edge of weight zero would still count.
    """
    if model is None:
        from gsebo.methods.controls import Vanilla

        model = Vanilla(random_state=random_state).fit(graph)
    if isinstance(model, Victim):
        return model
    if isinstance(model, nn.Module):
        victim: Victim = ModuleVictim(model, given_features(graph))
    else:
        fitted = model if isinstance(model, FittedModel) else _fitted(model)
        if fitted.scorer is not None:
            from gsebo.attacks.adaptive import ScoredVictim

            scored: Victim = ScoredVictim(fitted, graph)
            return scored
        victim = _victim_of_fitted(fitted, graph)
    _require_zero_is_absent(victim, graph, type(model).__name__)
    return victim


def _fitted(model: Any) -> FittedModel:
    if hasattr(model, "require_fitted"):
        model.require_fitted()
        fitted: FittedModel = model.model_
        return fitted
    raise InvalidInput(
        f"{type(model).__name__} given as victim; expected a fitted estimator, or a "
        "module that is called as module(x, edge_index, edge_weight)."
    )


def _victim_of_fitted(model: FittedModel, graph: Graph) -> Victim:
    if model.preparation is None:
        x = given_features(graph, model.num_features)
    else:
        x = model.preparation.features(graph)
    if not model.learned and isinstance(model.backbone, PyGBackbone):
        # Such a network normalises by itself, and so it has to be told the weights.
        return ModuleVictim(model.backbone.module, x.to(model.device, model.dtype))
    fitted = model.held[0]
    if model.learned and fitted.num_nodes != graph.num_nodes:
        raise InvalidInput(
            f"a graph of {graph.num_nodes} nodes given with a victim that learned "
            f"strengths on {fitted.num_nodes}; expected the graph of its fit."
        )
    return NetworkVictim(model, make_features(x, model.dtype, model.device))


@final
class ModuleVictim:
    """Any module of torch that takes features, edges and their weights.

    Args:
        module: Called as ``module(x, edge_index, edge_weight)``; it is copied.
        x: Features, ``[nodes, channels]``.
    """

    def __init__(self, module: nn.Module, x: Tensor) -> None:
        self._module = copy.deepcopy(module).eval().requires_grad_(False)
        self._x = x.to_dense() if x.layout != torch.strided else x

    def logits(self, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """As :meth:`Victim.logits`."""
        x = self._x
        try:
            found = self._module(x, edge_index.to(x.device), edge_weight.to(x))
        except TypeError as error:
            raise InvalidInput(
                f"{type(self._module).__name__} given as victim; expected a module "
                "that is called as module(x, edge_index, edge_weight) "
                f"({escaped(str(error), longest=200)})."
            ) from error
        if not isinstance(found, Tensor) or found.dim() != 2 or len(found) != len(x):
            raise InvalidInput(
                f"{type(self._module).__name__} given as victim; expected a module "
                f"that gives logits of shape [{len(x)}, classes]."
            )
        return found


@final
class NetworkVictim:
    """A network of ours with what it learned of the edges of its fit.

    It predicts as the fitted model does on a changed graph: edges of the fit keep what
    was learned of them, times their weight; others get the vanilla propagation.

    Args:
        model: Fitted, on a graph in memory.
        features: Those of every node, prepared.
    """

    def __init__(self, model: FittedModel, features: Features) -> None:
        self._features, self._learned = features, model.learned
        self._fitted, self._strengths = model.held
        self._backbone = copy.deepcopy(model.backbone).eval().requires_grad_(False)
        self._members = model.members if model.learned else ()
        if not model.learned:
            for layer in self._backbone.modules():
                if isinstance(layer, GATLayer):
                    # The same with weights of one; others count inside of the softmax.
                    layer.renormalise = True
        self._layout: _Layout | None = None

    def logits(self, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """As :meth:`Victim.logits`."""
        layout = self._laid_out(edge_index)
        backbone, dtype = self._backbone, self._strengths.dtype
        weights = edge_weight.to(self._strengths.device, dtype)
        loops = layout.pattern.num_entries - len(weights)
        entries = torch.cat([weights, weights.new_ones(loops)])
        strengths = backbone.normalise(layout.pattern, entries)
        if not self._learned:
            found: Tensor = backbone(self._features, layout.pattern, strengths, None)
            return found
        ratio = weights / layout.weight_then.to(weights)
        if not self._members:
            stored = self._strengths.index_select(-1, layout.entry.clamp(min=0))
            factor = torch.cat([ratio, ratio.new_ones(loops)])
            strengths = torch.where(layout.entry >= 0, stored * factor, strengths)
            found = backbone(self._features, layout.pattern, strengths, None)
            return found
        # What is left of each edge of the fit; what is new to it goes to a last place.
        number, place = self._fitted.num_edges, layout.entry[: len(ratio)]
        place = torch.where(place < 0, number, place)
        now = ratio.new_zeros(number + 1).index_add(0, place, ratio)[:-1]
        found = torch.stack(
            [
                self._of_member(member, layout, strengths, now)
                for member in self._members
            ]
        )
        # Probabilities are averaged; the logarithm of the mean stands for its logits.
        return found.log_softmax(-1).logsumexp(0)

    def _of_member(
        self, member: Member, layout: _Layout, strengths: Tensor, now: Tensor
    ) -> Tensor:
        """Logits of a network on its own graph, with what changed of the given one.

        Edges that the fit was given count as much as is left of them now; those that
        the network found itself stay; those that both did not know are added.
        """
        (pattern, own), size = member.propagation, self._fitted.num_nodes
        edges, device = edges_of(pattern).cpu().long(), own.device
        given = find_edges(self._fitted.edge_index.cpu(), size, edges).to(device)
        left = torch.cat([now, now.new_ones(1)])[given]
        loops = pattern.num_entries - edges.shape[1]
        kept = own * torch.cat([left, left.new_ones(loops)])
        unknown = find_edges(edges, size, layout.edge_index.cpu()).to(device) < 0
        unknown &= layout.entry[: len(unknown)] < 0
        added = unknown.nonzero().squeeze(1)
        source, target = layout.edge_index.to(device)[:, added]
        joined = Pattern.from_positions(
            torch.cat([pattern.row_of_entry.long(), target]),
            torch.cat([pattern.column_of_entry.long(), source]),
            size,
        )
        fresh = strengths.index_select(-1, added)
        fresh = fresh.expand(*own.shape[:-1], len(added))
        values = torch.cat([kept, fresh], dim=-1)
        found: Tensor = functional_call(
            self._backbone, member.weights or {}, (self._features, joined, values, None)
        )
        return found

    def _laid_out(self, edge_index: Tensor) -> _Layout:
        layout = self._layout
        if layout is None or layout.edge_index is not edge_index:
            layout = self._layout = _Layout(
                edge_index,
                self._features.shape[0],
                self._backbone.self_loops,
                self._fitted if self._learned else None,
                self._strengths.device,
            )
        return layout


@final
class _Layout:
    """Edges that were asked for last, as entries with the network's self-loops.

    Attributes:
        edge_index: The edges, as they were given.
        pattern: The same as entries, and then the self-loops.
        entry: Number of each entry among those of the fit, -1 where it is new.
        weight_then: What each edge weighed in the fit, one where it is new.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        self_loops: bool,
        fitted: CanonicalGraph | None,
        device: torch.device,
    ) -> None:
        self.edge_index = edge_index
        source, target = edge_index.to(device)
        loops = torch.arange(num_nodes if self_loops else 0, device=device)
        self.pattern = Pattern.from_positions(
            torch.cat([target, loops]), torch.cat([source, loops]), num_nodes
        )
        if fitted is None:
            return
        known = find_edges(fitted.edge_index.cpu(), num_nodes, edge_index.cpu())
        known = known.to(device)
        self.entry = torch.cat([known, fitted.num_edges + loops])
        self.weight_then = torch.ones(len(known), dtype=torch.float64, device=device)
        if fitted.weight is not None:
            then = fitted.weight.to(device)[known.clamp(min=0)]
            # Of an edge that had no weight nothing was learned.
            self.entry[: len(known)] = torch.where(then > 0, known, -1)
            self.weight_then = torch.where((known >= 0) & (then > 0), then, 1)


@torch.no_grad()
def _require_zero_is_absent(victim: Victim, graph: Graph, name: str) -> None:
    """Raise if pairs that are joined with weight zero change what is predicted."""
    canonical = canonicalise(graph)
    edges = canonical.edge_index.cpu()
    weights = canonical.weight
    weights = torch.ones(edges.shape[1]) if weights is None else weights.cpu()
    drawn = torch.Generator().manual_seed(0)
    ends = torch.randint(graph.num_nodes, (2, _PROBES), generator=drawn)
    ends = ends[:, ends[0] != ends[1]]
    more = torch.cat([edges, ends, ends.flip(0)], dim=1)
    nothing = weights.new_zeros(more.shape[1] - edges.shape[1])
    before = victim.logits(edges, weights)
    after = victim.logits(more, torch.cat([weights, nothing]))
    if float((before - after).abs().max()) > _TOLERANCE * float(1 + before.abs().max()):
        raise InvalidInput(
            f"{name} given as victim, for which an edge of weight 0 is not the same as "
            "none; expected a network that weighs its edges before it normalises, such "
            "as a GCN."
        )
