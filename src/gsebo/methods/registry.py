"""The methods by name: one line each."""

from dataclasses import dataclass

from gsebo.methods.amortised import Amortised
from gsebo.methods.auto.auto import Auto
from gsebo.methods.base import GraphClassifier
from gsebo.methods.baselines.adaedge import AdaEdge
from gsebo.methods.baselines.bgcn import BGCN
from gsebo.methods.baselines.dropedge import DropEdge
from gsebo.methods.baselines.gaug_m import GAugM
from gsebo.methods.baselines.gaug_o import GAugO
from gsebo.methods.baselines.idgl import IDGL
from gsebo.methods.baselines.lds import LDS
from gsebo.methods.baselines.magna import MAGNA
from gsebo.methods.baselines.neuralsparse import NeuralSparse
from gsebo.methods.baselines.prognn import ProGNN
from gsebo.methods.baselines.ptdnet import PTDNet
from gsebo.methods.baselines.vgcn import VGCN
from gsebo.methods.controls import (
    Frozen,
    MLPControl,
    Retrain,
    SingleLevel,
    TrainVal,
    Vanilla,
)
from gsebo.methods.gsebo import GSEBO


@dataclass(frozen=True)
class MethodInfo:
    """What ``gsebo list methods`` shows.

    Attributes:
        estimator: The class.
        description: One line.
        paper: Where it was proposed.
        cost: Memory and time, beside those of the network itself.
        dense: Whether a fit is matrices of all pairs of nodes, or otherwise so much
            arithmetic that a GPU pays even on small graphs.
    """

    estimator: type[GraphClassifier]
    description: str
    paper: str
    cost: str = "the network itself"
    dense: bool = False

    @property
    def backbones(self) -> tuple[str, ...]:
        """Names of the networks that it works with; empty for any."""
        return self.estimator.supported_backbones


METHODS: dict[str, MethodInfo] = {
    "gsebo": MethodInfo(
        GSEBO,
        "edge strengths by the hypergradient of validation loss",
        "Graph Structure Learning with Bi-level Optimization",
        cost="O(edges); 3 to 4 times the network's training",
    ),
    "amortised": MethodInfo(
        Amortised,
        "edge strengths by one learned function of both ends, also for new nodes",
        "this project, after Graph Structure Learning with Bi-level Optimization",
        cost="O(edges); 10 to 15 times the network's training",
    ),
    "vanilla": MethodInfo(Vanilla, "the backbone on the given graph", "-"),
    "frozen": MethodInfo(
        Frozen, "control: GSEBO's schedule, structure fixed", "arXiv 2605.07577"
    ),
    "train_val": MethodInfo(
        TrainVal, "control: the backbone, taught with the validation labels too", "-"
    ),
    "retrain": MethodInfo(
        Retrain,
        "control: a fresh backbone on what another method has learned",
        "arXiv 2605.07577",
        cost="the other method and the network itself",
    ),
    "single_level": MethodInfo(
        SingleLevel,
        "control: edge strengths by the training loss alone",
        "Graph Structure Learning with Bi-level Optimization",
        cost="O(edges)",
    ),
    "auto": MethodInfo(
        Auto,
        "the best of several methods, features and lengths, by held-out labels",
        "-",
        cost="about three times that of its candidates together",
    ),
    "mlp": MethodInfo(MLPControl, "control: no edges at all", "-"),
    "adaedge": MethodInfo(
        AdaEdge,
        "sure pairs of one class linked, of two classes cut, and trained again",
        "Measuring and Relieving the Over-smoothing Problem for Graph Neural Networks",
        cost="O(edges + num_add) memory; up to 5 trainings of the network",
    ),
    "gaug_m": MethodInfo(
        GAugM,
        "unlikely edges removed and likely ones added once, by an auto-encoder",
        "Data Augmentation for Graph Neural Networks",
        cost="O(edges) memory; 200 times O(nodes^2) work in small blocks",
    ),
    "dropedge": MethodInfo(
        DropEdge,
        "random edges dropped in every training step",
        "DropEdge: Towards Deep Graph Convolutional Networks on Node Classification",
        cost="O(edges) per step, beside the network",
    ),
    "neuralsparse": MethodInfo(
        NeuralSparse,
        "the k best neighbours of each node, by a network on the features",
        "Robust Graph Representation Learning via Neural Sparsification",
        cost="O(32 edges) memory; sorts the edges in every step",
    ),
    "magna": MethodInfo(
        MAGNA,
        "its own network: attention diffused over several hops",
        "Multi-hop Attention Graph Neural Networks",
        cost="O(heads x edges) memory per hop; sorts the edges in every layer",
        dense=True,
    ),
    "ptdnet": MethodInfo(
        PTDNet,
        "a network for each layer prunes edges, towards few and low rank",
        "Learning to Drop: Robust Graph Neural Network via Topological Denoising",
        cost="O(edges) memory; several passes of the network per step",
    ),
    "bgcn": MethodInfo(
        BGCN,
        "graphs drawn from a block model, predictions averaged over them",
        "Bayesian Graph Convolutional Neural Networks for Semi-supervised "
        "Classification",
        cost="O(edges) memory, and the weights of 60 epochs; 2000 fitting steps",
    ),
    "gaug_o": MethodInfo(
        GAugO,
        "training on graphs drawn from an edge predictor that learns along",
        "Data Augmentation for Graph Neural Networks",
        cost="O(nodes²) memory and time per step, times the heads of a GAT",
        dense=True,
    ),
    "vgcn": MethodInfo(
        VGCN,
        "a distribution over graphs, from the given graph or nearest neighbours",
        "Variational Inference for Graph Convolutional Networks in the Absence of "
        "Graph Data and Adversarial Settings",
        cost="O(samples x nodes^2) memory and time per step",
        dense=True,
    ),
    "idgl": MethodInfo(
        IDGL,
        "graphs from learned similarities of features and embeddings, in turns",
        "Iterative Deep Graph Learning for Graph Neural Networks: Better and Robust "
        "Node Embeddings",
        cost="O(iterations x nodes^2) memory, and O(heads x features x nodes^2) time "
        "per step",
        dense=True,
    ),
    "lds": MethodInfo(
        LDS,
        "edge probabilities by the hypergradient of validation loss",
        "Learning Discrete Structures for Graph Neural Networks",
        cost="O(nodes^2) memory, 34 matrices; up to 400 such steps per episode",
        dense=True,
    ),
    "prognn": MethodInfo(
        ProGNN,
        "a sparse, low-rank and smooth graph near the given one",
        "Graph Structure Learning for Robust Graph Neural Networks",
        cost="O(nodes^2) memory, 28 matrices; O(nodes^3) work per epoch",
        dense=True,
    ),
}
