"""The methods by name: one line each."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gsebo.names import definition, imported, imports_in, source_of

if TYPE_CHECKING:
    from gsebo.methods.base import GraphClassifier


@dataclass(frozen=True)
class MethodInfo:
    """What ``gsebo list methods`` shows.

    Attributes:
        place: The class of the estimator, or ``"MODULE:NAME"`` of it.
        description: One line.
        paper: Where it was proposed.
        cost: Memory and time, beside those of the network itself.
        dense: Whether a fit is matrices of all pairs of nodes, or otherwise so much
            arithmetic that a GPU pays even on small graphs.
        backbones: Names of the networks that it works with; empty for any.
        learns_from_val: Whether labels of validation nodes are among those that it
            learns from; else they choose a step at most. Tables compare a method with
            a control that has as many labels.
    """

    place: "str | type[GraphClassifier]"
    description: str
    paper: str
    cost: str = "the network itself"
    dense: bool = False
    backbones: tuple[str, ...] = ()
    learns_from_val: bool = False

    @property
    def estimator(self) -> "type[GraphClassifier]":
        """The class."""
        kind: type[GraphClassifier] = imported(self.place)
        return kind

    def make(self, **parameters: Any) -> "GraphClassifier":
        """Construct the estimator."""
        estimator: GraphClassifier = imported(self.place)(**parameters)
        return estimator

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Every parameter of the constructor with its default, by name."""
        return _defaults(self.place)


@cache
def _defaults(place: "str | type[GraphClassifier]") -> Mapping[str, Any]:
    """Read them from the source, where they stand as they are; else ask the class."""
    try:
        found = _declared(*str(place).split(":"))
    except (AttributeError, ModuleNotFoundError, TypeError, ValueError):
        found = imported(place)().get_params(deep=False)
    return MappingProxyType(dict(sorted(found.items())))


_BASE = "gsebo.methods.parameters:SklearnEstimator"


def _declared(module: str, name: str) -> dict[str, Any]:
    """Parameters and defaults of a class, by its source and that of its bases.

    Raises:
        AttributeError: The class, or one that it inherits from, is not there.
        ValueError: A default is no literal.
    """
    if f"{module}:{name}" == _BASE:
        return {}
    kind = definition(module, name)
    if not isinstance(kind, ast.ClassDef):
        raise TypeError(f"{module}:{name} is no class")
    for line in kind.body:
        if isinstance(line, ast.FunctionDef) and line.name == "__init__":
            return _of_arguments(line.args)
    imported_here, found = imports_in(source_of(module).body), dict[str, Any]()
    # As in Python, the first base has the last word.
    for base in reversed([ast.unparse(each) for each in kind.bases]):
        place = imported_here.get(base, f"{module}:{base}")
        if not place.startswith("abc:"):
            found |= _declared(*place.split(":"))
    return found | _of_fields(kind)


def _of_arguments(arguments: ast.arguments) -> dict[str, Any]:
    plain = zip(reversed(arguments.args), reversed(arguments.defaults), strict=False)
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {
        each.arg: ast.literal_eval(default)
        for each, default in (*plain, *named)
        if default is not None
    }


def _of_fields(kind: ast.ClassDef) -> dict[str, Any]:
    """Those of a dataclass: ``name: type = default``, or ``field(default=default)``."""
    found = {}
    for line in kind.body:
        if not isinstance(line, ast.AnnAssign) or line.value is None:
            continue
        if ast.unparse(line.annotation).startswith("ClassVar"):
            continue
        value = line.value
        if isinstance(value, ast.Call):
            (value,) = (one.value for one in value.keywords if one.arg == "default")
        found[ast.unparse(line.target)] = ast.literal_eval(value)
    return found


METHODS: dict[str, MethodInfo] = {
    "gsebo": MethodInfo(
        "gsebo.methods.gsebo:GSEBO",
        "edge strengths by the hypergradient of validation loss",
        "Graph Structure Learning with Bi-level Optimization",
        cost="O(edges); 3 to 4 times the network's training",
        learns_from_val=True,
    ),
    "amortised": MethodInfo(
        "gsebo.methods.amortised:Amortised",
        "edge strengths by one learned function of both ends, also for new nodes",
        "this project, after Graph Structure Learning with Bi-level Optimization",
        cost="O(edges); 10 to 15 times the network's training",
        learns_from_val=True,
    ),
    "inoculated": MethodInfo(
        "gsebo.methods.amortised:Inoculated",
        "amortised strengths that have seen false edges: for graphs under attack",
        "this project",
        cost="O(edges); half as long again as amortised",
        learns_from_val=True,
    ),
    "vanilla": MethodInfo(
        "gsebo.methods.controls:Vanilla", "the backbone on the given graph", "-"
    ),
    "frozen": MethodInfo(
        "gsebo.methods.controls:Frozen",
        "control: GSEBO's schedule, structure fixed",
        "arXiv 2605.07577",
    ),
    "train_val": MethodInfo(
        "gsebo.methods.controls:TrainVal",
        "control: the backbone, taught with the validation labels too",
        "-",
        learns_from_val=True,
    ),
    "retrain": MethodInfo(
        "gsebo.methods.controls:Retrain",
        "control: a fresh backbone on what another method has learned",
        "arXiv 2605.07577",
        cost="the other method and the network itself",
        learns_from_val=True,
    ),
    "single_level": MethodInfo(
        "gsebo.methods.controls:SingleLevel",
        "control: edge strengths by the training loss alone",
        "Graph Structure Learning with Bi-level Optimization",
        cost="O(edges)",
    ),
    "auto": MethodInfo(
        "gsebo.methods.auto.auto:Auto",
        "the best of several methods, features and lengths, by held-out labels",
        "-",
        cost="about three times that of its candidates together",
        learns_from_val=True,
    ),
    "mlp": MethodInfo(
        "gsebo.methods.controls:MLPControl",
        "control: no edges at all",
        "-",
        backbones=("mlp",),
    ),
    "adaedge": MethodInfo(
        "gsebo.methods.baselines.adaedge:AdaEdge",
        "sure pairs of one class linked, of two classes cut, and trained again",
        "Measuring and Relieving the Over-smoothing Problem for Graph Neural Networks",
        cost="O(edges + num_add) memory; up to 5 trainings of the network",
    ),
    "gaug_m": MethodInfo(
        "gsebo.methods.baselines.gaug.gaug_m:GAugM",
        "unlikely edges removed and likely ones added once, by an auto-encoder",
        "Data Augmentation for Graph Neural Networks",
        cost="O(edges) memory; 200 times O(nodes^2) work in small blocks",
    ),
    "dropedge": MethodInfo(
        "gsebo.methods.baselines.dropedge:DropEdge",
        "random edges dropped in every training step",
        "DropEdge: Towards Deep Graph Convolutional Networks on Node Classification",
        cost="O(edges) per step, beside the network",
    ),
    "neuralsparse": MethodInfo(
        "gsebo.methods.baselines.neuralsparse:NeuralSparse",
        "the k best neighbors of each node, by a network on the features",
        "Robust Graph Representation Learning via Neural Sparsification",
        cost="O(32 edges) memory; sorts the edges in every step",
    ),
    "magna": MethodInfo(
        "gsebo.methods.baselines.magna:MAGNA",
        "its own network: attention diffused over several hops",
        "Multi-hop Attention Graph Neural Networks",
        cost="O(heads x edges) memory per hop; sorts the edges in every layer",
        dense=True,
        backbones=("magna",),
    ),
    "ptdnet": MethodInfo(
        "gsebo.methods.baselines.ptdnet:PTDNet",
        "a network for each layer prunes edges, towards few and low rank",
        "Learning to Drop: Robust Graph Neural Network via Topological Denoising",
        cost="O(edges) memory; several passes of the network per step",
        backbones=("gcn", "gat", "sage", "sage-gcn", "jk", "jk-sage"),
    ),
    "bgcn": MethodInfo(
        "gsebo.methods.baselines.bgcn:BGCN",
        "graphs drawn from a block model, predictions averaged over them",
        "Bayesian Graph Convolutional Neural Networks for Semi-supervised "
        "Classification",
        cost="O(edges) memory, and the weights of 60 epochs; 2000 fitting steps",
        backbones=("gcn",),
    ),
    "gaug_o": MethodInfo(
        "gsebo.methods.baselines.gaug.gaug_o:GAugO",
        "training on graphs drawn from an edge predictor that learns along",
        "Data Augmentation for Graph Neural Networks",
        cost="O(nodes²) memory and time per step, times the heads of a GAT",
        dense=True,
    ),
    "vgcn": MethodInfo(
        "gsebo.methods.baselines.vgcn:VGCN",
        "a distribution over graphs, from the given graph or nearest neighbors",
        "Variational Inference for Graph Convolutional Networks in the Absence of "
        "Graph Data and Adversarial Settings",
        cost="O(samples x nodes^2) memory and time per step",
        dense=True,
        backbones=("gcn",),
    ),
    "idgl": MethodInfo(
        "gsebo.methods.baselines.idgl:IDGL",
        "graphs from learned similarities of features and embeddings, in turns",
        "Iterative Deep Graph Learning for Graph Neural Networks: Better and Robust "
        "Node Embeddings",
        cost="O(iterations x nodes^2) memory, and O(heads x features x nodes^2) time "
        "per step",
        dense=True,
        backbones=("gcn",),
    ),
    "hgsl": MethodInfo(
        "gsebo.methods.baselines.hgsl.hgsl:HGSL",
        "graphs of similarity for each relation between types, mixed end to end",
        "Heterogeneous Graph Structure Learning for Graph Neural Networks",
        cost="O(nodes of one type x nodes of the other) memory and time per step, less "
        "where thresholds leave few pairs",
        dense=True,
        backbones=("gcn",),
    ),
    "grcn": MethodInfo(
        "gsebo.methods.baselines.grcn:GRCN",
        "nodes with similar embeddings joined beside the given edges, end to end",
        "Graph-Revised Convolutional Network",
        cost="O(edges + neighbors x nodes) memory, beside nodes x features; "
        "O(features x nodes^2) time per step in small blocks",
        dense=True,
        backbones=("gcn",),
    ),
    "sublime": MethodInfo(
        "gsebo.methods.baselines.sublime:SUBLIME",
        "a neighbor graph by contrast with the given one, without labels, then a GCN",
        "Towards Unsupervised Deep Graph Structure Learning",
        cost="O(edges + neighbors x nodes) memory, O(nodes^2) time per step in blocks; "
        "4000 steps",
        dense=True,
        backbones=("gcn",),
    ),
    "slaps": MethodInfo(
        "gsebo.methods.baselines.slaps:SLAPS",
        "a graph of the features alone, which also has to restore masked ones",
        "SLAPS: Self-Supervision Improves Structure Learning for Graph Neural Networks",
        cost="O(neighbors x nodes + features^2) memory, beside nodes x features; "
        "O(features x nodes^2) time per step in small blocks",
        dense=True,
        backbones=("gcn",),
    ),
    "lds": MethodInfo(
        "gsebo.methods.baselines.lds:LDS",
        "edge probabilities by the hypergradient of validation loss",
        "Learning Discrete Structures for Graph Neural Networks",
        cost="O(nodes^2) memory, 34 matrices; up to 400 such steps per episode",
        dense=True,
        backbones=("gcn",),
        learns_from_val=True,
    ),
    "prognn": MethodInfo(
        "gsebo.methods.baselines.prognn:ProGNN",
        "a sparse, low-rank and smooth graph near the given one",
        "Graph Structure Learning for Robust Graph Neural Networks",
        cost="O(nodes^2) memory, 28 matrices; O(nodes^3) work per epoch",
        dense=True,
        backbones=("gcn",),
    ),
    "gen": MethodInfo(
        "gsebo.methods.baselines.gen:GEN",
        "the block model that nearest neighbors of every layer agree on",
        "Graph Structure Estimation Neural Networks",
        cost="O(neighbors x nodes) memory; up to 30 trainings of the network, and "
        "as often O(nodes^2) work in small blocks",
        backbones=("gcn",),
    ),
    "stable": MethodInfo(
        "gsebo.methods.baselines.stable:STABLE",
        "edges go and come by representations that learned without labels",
        "Reliable Representations Make A Stronger Defender: Unsupervised Structure "
        "Refinement for Robust GNN",
        cost="O(512 nodes + edges) memory, some hundred such steps; O(512 nodes^2) "
        "work once, in small blocks",
        dense=True,
        backbones=("stable",),
    ),
    "denne": MethodInfo(
        "gsebo.methods.baselines.denne:DenNE",
        "edges that a model of communities takes for noise removed once, by likelihood",
        "Learning Node Representations from Noisy Graph Structures",
        cost="O(11 edges) memory; 100 passes over as many pairs, once",
        backbones=("gcn",),
    ),
    "gcn_jaccard": MethodInfo(
        "gsebo.methods.defences.gcn_jaccard:GCNJaccard",
        "defence: edges between dissimilar nodes removed before training",
        "Adversarial Examples on Graph Data: Deep Insights into Attack and Defense",
        cost="O(edges x features of a node), once",
    ),
    "gcn_svd": MethodInfo(
        "gsebo.methods.defences.gcn_svd:GCNSVD",
        "defence: only the largest singular values of the graph are kept",
        "All You Need Is Low (Rank): Defending Against Adversarial Attacks on Graphs",
        cost="O(nodes^2) memory, 40 matrices, and time per step",
        dense=True,
        backbones=("gcn",),
    ),
    "rgcn": MethodInfo(
        "gsebo.methods.defences.rgcn:RGCN",
        "defence, its own network: Gaussians, the uncertain ones count less",
        "Robust Graph Convolutional Networks Against Adversarial Attacks",
        cost="O(edges); 2 to 3 times the training of a GCN",
        backbones=("rgcn",),
    ),
    "gnnguard": MethodInfo(
        "gsebo.methods.defences.gnnguard:GNNGuard",
        "defence, its own network: similar neighbors count, in every layer",
        "GNNGuard: Defending Graph Neural Networks against Adversarial Attacks",
        cost="O(edges); 5 to 10 times the training of a GCN",
        backbones=("gnnguard",),
    ),
    "soft_median": MethodInfo(
        "gsebo.methods.defences.soft_median:SoftMedian",
        "defence, its own network: medians of neighbors instead of sums",
        "Robustness of Graph Neural Networks at Scale",
        cost="O(edges x channels) memory; 20 times the training of a GCN, by sorting",
        backbones=("soft-median",),
    ),
}
"""Methods and controls by name, as ``--method`` takes them."""
