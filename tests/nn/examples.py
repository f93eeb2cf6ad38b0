"""Small graphs with features and labels, and every native backbone to run on them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.graph import Topology
from gsebo.graph.topology import canonicalise
from gsebo.methods.baselines.magna import MAGNANet
from gsebo.methods.baselines.stable import StableNet
from gsebo.methods.defences.gnnguard import GNNGuardNet
from gsebo.methods.defences.rgcn import RGCNNet
from gsebo.methods.defences.soft_median import SoftMedianNet
from gsebo.nn.appnp import APPNP
from gsebo.nn.base import Backbone, Features
from gsebo.nn.biweight import BiweightNet
from gsebo.nn.gat import GAT
from gsebo.nn.gcn import GCN
from gsebo.nn.gcnii import GCNII
from gsebo.nn.grand import GRAND
from gsebo.nn.han import HAN
from gsebo.nn.jk import JKNet
from gsebo.nn.mlp import MLP
from gsebo.nn.relational import RelationalBackbone, RelationalGCN
from gsebo.nn.sage import SAGE
from gsebo.sparse import Pattern, SparseFeatures, make_features

KINDS = ("undirected", "directed")
FEATURES, CLASSES = 20, 3


@dataclass(frozen=True)
class Example:
    """A graph without self-loops, in canonical order."""

    edge_index: Tensor
    x: Tensor
    y: Tensor

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    @property
    def sparse_x(self) -> SparseFeatures:
        features = make_features(self.x, self.x.dtype, "cpu")
        assert isinstance(features, SparseFeatures)
        return features

    def pattern(self, self_loops: bool) -> Pattern:
        data = Data(edge_index=self.edge_index, num_nodes=self.num_nodes)
        graph = canonicalise(data)
        return Topology.of(graph, self_loops=self_loops, device="cpu").pattern

    def permuted(self, order: Tensor) -> "Example":
        """The same graph with node ``order[i]`` in place ``i``."""
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel())
        edges = canonicalise(
            Data(edge_index=place[self.edge_index], num_nodes=self.num_nodes)
        ).edge_index
        return Example(edges, self.x[order], self.y[order])


def example(kind: str, num_nodes: int = 14, num_edges: int = 22) -> Example:
    """A random graph whose last two nodes are isolated; 12 % of the features stored."""
    generator = torch.Generator().manual_seed(11)
    edges = torch.randint(num_nodes - 2, (2, num_edges), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    if kind == "undirected":
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    graph = canonicalise(Data(edge_index=edges, num_nodes=num_nodes))
    x = torch.randn(num_nodes, FEATURES, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(x.shape, generator=generator) < 0.12)
    y = torch.randint(CLASSES, (num_nodes,), generator=generator)
    return Example(graph.edge_index, x, y)


SIZES = (FEATURES, 6, CLASSES)
STRONG = {"residual": True, "norm": "layer", "input_projection": True}
NATIVE: dict[str, Callable[[], Backbone]] = {
    "gcn": lambda: GCN(*SIZES),
    "gcn of 3 layers": lambda: GCN(*SIZES, num_layers=3),
    "gcn of 1 layer": lambda: GCN(*SIZES, num_layers=1),
    "gat": lambda: GAT(*SIZES, heads=4),
    "gat, two output heads": lambda: GAT(*SIZES, heads=2, output_heads=2),
    "sage mean": lambda: SAGE(*SIZES),
    "sage gcn": lambda: SAGE(*SIZES, aggregator="gcn"),
    "jk concat": lambda: JKNet(*SIZES, num_layers=2),
    "jk max": lambda: JKNet(*SIZES, mode="max"),
    "jk lstm": lambda: JKNet(*SIZES, mode="lstm"),
    "jk sage": lambda: JKNet(*SIZES, convolution="sage", mode="max"),
    "jk sage mean": lambda: JKNet(*SIZES, convolution="sage-mean"),
    "gcn, residual": lambda: GCN(*SIZES, residual=True),
    "gcn, layer norm": lambda: GCN(*SIZES, norm="layer"),
    "gcn, batch norm": lambda: GCN(*SIZES, norm="batch", residual=True),
    "gcn, projected": lambda: GCN(*SIZES, input_projection=True),
    "strong gcn": lambda: GCN(*SIZES, **STRONG),
    "strong gat": lambda: GAT(*SIZES, heads=2, **STRONG),
    "strong sage": lambda: SAGE(*SIZES, **STRONG),
    "strong jk": lambda: JKNet(*SIZES, num_layers=2, **STRONG),
    "appnp": lambda: APPNP(*SIZES, hops=3),
    "gcnii": lambda: GCNII(*SIZES, num_layers=3),
    "grand": lambda: GRAND(*SIZES, hops=3),
    "grand, gated": lambda: GRAND(*SIZES, hops=2, feature_gates=True),
    "grand of 1 layer": lambda: GRAND(*SIZES, hops=2, num_layers=1),
    "magna": lambda: MAGNANet(*SIZES, dropout=0.5, heads=2, hops=3, top_k=2),
    "stable": lambda: StableNet(*SIZES, embedding_channels=5),
    "biweight": lambda: BiweightNet(*SIZES),
    "rgcn": lambda: RGCNNet(*SIZES),
    "gnnguard": lambda: GNNGuardNet(*SIZES),
    "gnnguard with memory": lambda: GNNGuardNet(*SIZES, threshold=0, memory=True),
    "soft median": lambda: SoftMedianNet(*SIZES),
    "mlp": lambda: MLP(*SIZES),
    "relational gcn": lambda: of_one_relation(RelationalGCN(*SIZES)),
    "relational gcn of bases": lambda: of_one_relation(
        RelationalGCN(*SIZES, num_bases=2, num_layers=3)
    ),
    "han": lambda: of_one_relation(HAN(*SIZES, heads=2, relation_channels=4)),
}


def of_one_relation(model: RelationalBackbone) -> Backbone:
    """Make the weights that wait for the graph."""
    given = example("directed")
    model.prepare(given.x, given.pattern(self_loops=True), CLASSES)
    return model


def native(name: str) -> Backbone:
    """The backbone in float64; biases too are away from zero."""
    torch.manual_seed(0)
    return spread(NATIVE[name]())


def spread(model: Backbone) -> Backbone:
    """Move every parameter that starts at zero."""
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(std=0.3)
    return model


def run(model: Backbone, given: Example, features: Features, **options) -> Tensor:
    return model(features, given.pattern(model.self_loops), **options)


def assert_equal(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
