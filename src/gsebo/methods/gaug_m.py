"""GAug-M: rank all pairs by an auto-encoder, rewire once, then train as usual."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor
from torch.func import functional_call
from torch_geometric.data import Data

from gsebo.backbone.gcn import symmetric_normalisation
from gsebo.bilevel import Tree, make_optimizer
from gsebo.methods.base import Run
from gsebo.methods.epochs import EpochClassifier
from gsebo.methods.outcome import Outcome
from gsebo.methods.parameters import (
    require_choice,
    require_count,
    require_flag,
    require_not_negative,
    require_share,
)
from gsebo.methods.prepare import PreparedGraph
from gsebo.methods.schedule import train_on_fixed_structure
from gsebo.sparse import Noise, Pattern
from gsebo.structure import Propagation, Topology
from gsebo.structure.node_pairs import linked_pairs, nodes_of, rewired
from gsebo.structure.pair_ranking import highest_unlinked_pairs, lowest_linked_pairs
from gsebo.structure.vgae import (
    Embedding,
    GraphEncoder,
    auto_encoder_loss,
    scaled_rows,
)
from gsebo.training.fit_module import minimise
from gsebo.training.threads import threads_for


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GAugM(EpochClassifier):
    """Training on a graph from which an auto-encoder has taken edges and put others in.

    Zhao et al., AAAI 2021, the variant that changes the graph once. A (variational)
    graph auto-encoder is trained on the links; the least likely of them are removed and
    the most likely pairs without one are added. The network is trained and predicts on
    the new graph.

    Pairs have no direction: in a directed graph the auto-encoder sees each edge both
    ways, a pair that goes loses the edges of both directions, a new one gets both, and
    all other edges stay as they are.

    Args:
        remove_share: How many pairs are removed, as a share of all that are linked.
        add_share: How many pairs are added, as a share of all that are linked.
        predictor: ``"vgae"`` (variational, ranks by the means) or ``"gae"``.
        predictor_epochs: Number of its training steps; the last one counts.
        predictor_hidden: Width of its hidden layer.
        predictor_dim: Width of its embedding.
        predictor_lr: Its learning rate, of Adam.
        predictor_scaling: Rows of features are divided by their ``"sum"``, as the
            authors do, or by their largest number (``"max"``). The sum makes features
            of many entries so small that training takes several times as long.
        compat: Do as the authors' code: the auto-encoder is trained to find each link
            in one direction only, and pairs are ranked by one random draw instead of
            by the means.
    """

    remove_share: float = 0.02
    add_share: float = 0.3
    predictor: Literal["vgae", "gae"] = "vgae"
    predictor_epochs: int = 200
    predictor_hidden: int = 32
    predictor_dim: int = 16
    predictor_lr: float = 0.01
    predictor_scaling: Literal["sum", "max"] = "max"
    compat: bool = False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_share(remove_share=self.remove_share, add_share=self.add_share)
        require_choice("predictor", self.predictor, ("vgae", "gae"))
        require_choice("predictor_scaling", self.predictor_scaling, ("sum", "max"))
        require_count(
            predictor_epochs=self.predictor_epochs,
            predictor_hidden=self.predictor_hidden,
            predictor_dim=self.predictor_dim,
        )
        require_not_negative(predictor_lr=self.predictor_lr)
        require_flag(compat=self.compat)

    def _train(self, data: Data, runs: Sequence[Run]) -> list[Outcome]:
        prepared = PreparedGraph(data, runs[0].device)
        outcomes = []
        for run in runs:
            edges = self._changed_edges(prepared, run.seed)
            outcomes += train_on_fixed_structure(
                data, [run], self.network(), self.schedule(), graph=edges
            )
        return outcomes

    def _changed_edges(self, prepared: PreparedGraph, seed: int) -> Tensor:
        """The graph that the network is trained on, ``[2, edges]``."""
        edges = prepared.graph.edge_index.to(prepared.device)
        num_nodes = prepared.graph.num_nodes
        linked = linked_pairs(edges, num_nodes)
        num_removed = _share_of(linked.numel(), self.remove_share)
        num_added = _share_of(linked.numel(), self.add_share)
        if num_removed == num_added == 0:
            return edges
        with threads_for(num_nodes**2 * self.predictor_dim):
            embedding = self._embedding(prepared, linked, seed)
            return rewired(
                edges,
                num_nodes,
                added=highest_unlinked_pairs(embedding, linked, num_added),
                removed=lowest_linked_pairs(embedding, linked, num_removed),
            )

    def _embedding(self, prepared: PreparedGraph, linked: Tensor, seed: int) -> Tensor:
        """Train the auto-encoder; return one row for each node."""
        features = scaled_rows(prepared.features, self.predictor_scaling)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder = GraphEncoder(
                features.shape[1],
                self.predictor_hidden,
                self.predictor_dim,
                variational=self.predictor == "vgae",
            ).to(prepared.device, prepared.dtype)
        nodes = nodes_of(linked, prepared.graph.num_nodes)
        graph = _both_ways(nodes, prepared)
        links = Pattern.from_positions(nodes[0], nodes[1], prepared.graph.num_nodes)

        def embedded(weights: Tree) -> Embedding:
            found: Embedding = functional_call(encoder, weights, (features, graph))
            return found

        def loss(weights: Tree, step: int) -> Tensor:
            noise = Noise(seed, step)
            return auto_encoder_loss(
                embedded(weights), links, noise, both_ways=not self.compat
            )

        start = {name: p.detach().clone() for name, p in encoder.named_parameters()}
        optimizer = make_optimizer("adam", self.predictor_lr)
        weights = minimise(loss, start, optimizer, self.predictor_epochs)
        with torch.no_grad():
            final = embedded(weights)
            if not self.compat:
                return final.mean
            return final.sample(Noise(seed, self.predictor_epochs))


def _both_ways(nodes: Tensor, prepared: PreparedGraph) -> Propagation:
    """D^-1/2 (A + I) D^-1/2 of the graph in which each pair is linked both ways."""
    topology = Topology.from_edges(
        torch.cat([nodes, nodes.flip(0)], dim=1),
        prepared.graph.num_nodes,
        self_loops=True,
        device=prepared.device,
    )
    strengths = symmetric_normalisation(topology.pattern, prepared.dtype)
    return Propagation(topology.pattern, strengths)


def _share_of(count: int, share: float) -> int:
    """Round down, but 0.57 of 100 is 57, whatever the floats say."""
    return int(round(count * share, 6))
