"""Attacks on fitted models by somebody who knows them: evasion.

What counts is what the estimator itself predicts of the attacked graph. The attacker
climbs a differentiable copy of it, and an attack on a copy that is not the same would
look harmless: so both have to predict the same classes, or the trial fails.
"""

import time
import warnings
from typing import Any, final

import torch
from torch import Tensor, nn

from gsebo.attacks import PRBCD, Perturbation, Victim, victim_of
from gsebo.attacks.budget import read_budget
from gsebo.attacks.losses import margins
from gsebo.attacks.perturbation import undirected_pairs
from gsebo.data.seeding import seeded_generator
from gsebo.data.splits import has_unseen
from gsebo.errors import InputWarning
from gsebo.experiments.protocols import EvasionProtocol
from gsebo.experiments.result import AttackOutcome
from gsebo.graph import canonicalise
from gsebo.graph.graph import Graph
from gsebo.methods import GraphClassifier

_DIGITS = 5
# Of the nodes, on which rounding may make another of two equal classes the first.
_ROUNDING = 0.005


def evade(
    model: GraphClassifier,
    graph: Graph,
    protocol: EvasionProtocol,
    seed: int,
    compared: bool,
) -> dict[str, AttackOutcome]:
    """Attack a fitted model, and say what became of its predictions.

    Args:
        model: The model, fitted on the graph.
        graph: The graph with its masks and all labels, which the attacker knows.
        protocol: The attacks.
        seed: Of everything that is drawn.
        compared: Whether the first attack is made with PyG's implementation, too.

    Returns:
        ``"global"``: one budget for all test nodes; ``"local"``: some of them, each on
        its own; ``"global_pyg"``: the first, as PyG has it.
    """
    if has_unseen(graph):
        raise ValueError("models are attacked on the graph that the fit saw")
    known = graph.test_mask.cpu() & (graph.y.cpu() >= 0)
    scene = _Scene(model, graph, known.nonzero().squeeze(1))
    found = {"global": _global(scene, protocol, seed)}
    if compared:
        found["global_pyg"] = _global_of_pyg(scene, protocol, seed)
    found["local"] = _local(scene, protocol, seed)
    return found


@final
class _Scene:
    """A model, its differentiable copy, and the test nodes of a graph."""

    def __init__(self, model: GraphClassifier, graph: Graph, nodes: Tensor) -> None:
        self.model, self.graph, self.nodes = model, graph, nodes
        self.labels = graph.y.cpu().long()
        self.victim: Victim = victim_of(model, graph)
        self.clean = self.classes(graph)

    def classes(self, graph: Graph) -> Tensor:
        """What the model predicts of a graph, checked against its copy."""
        with warnings.catch_warnings():
            # That new edges get the vanilla weight is what is measured here.
            warnings.simplefilter("ignore", InputWarning)
            predicted = self.model.predict(graph).cpu()
        with torch.no_grad():
            copied = self.victim.logits(*self.edges(graph)).argmax(-1).cpu()
        other = int((predicted != copied).sum())
        if other > _ROUNDING * len(predicted):
            raise ValueError(
                f"the attacker's copy of {type(self.model).__name__} predicts another "
                f"class of {other} nodes than the model itself"
            )
        return predicted

    def edges(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """Distinct edges and their weights, as the copy takes them."""
        canonical = canonicalise(graph)
        edges, weight = canonical.edge_index.cpu(), canonical.weight
        if weight is None or not self.model.uses_edge_weight:
            return edges, torch.ones(edges.shape[1])
        return edges, weight.cpu().clone()

    def right(self, predicted: Tensor, nodes: Tensor) -> float:
        """Share of some nodes that are predicted rightly."""
        return float((predicted == self.labels)[nodes].double().mean())

    @property
    def looks_at_edges(self) -> bool:
        """Whether there is anything to climb: predictions by features alone stay."""
        edges, weights = self.edges(self.graph)
        return self.victim.logits(edges, weights.requires_grad_()).requires_grad


def _global(scene: _Scene, protocol: EvasionProtocol, seed: int) -> AttackOutcome:
    begun = time.perf_counter()
    change = Perturbation()
    if scene.looks_at_edges:
        attack = PRBCD(
            knows_labels=True,
            epochs=protocol.global_epochs,
            resampling_epochs=_drawing_steps(protocol.global_epochs),
        )
        change = attack.attack(
            scene.graph,
            budget=f"{protocol.global_percent}%",
            victim=scene.model,
            nodes=scene.nodes,
            random_state=seed,
        )
    seconds = time.perf_counter() - begun
    return _of_all(scene, change.apply(scene.graph), change.num_flips, seconds)


def _global_of_pyg(
    scene: _Scene, protocol: EvasionProtocol, seed: int
) -> AttackOutcome:
    """The first attack with the implementation and the parameters of PyG."""
    with warnings.catch_warnings():
        # It says that it is experimental.
        warnings.simplefilter("ignore")
        from torch_geometric.contrib.nn import PRBCDAttack
    begun = time.perf_counter()
    graph, block = scene.graph, PRBCD().block_size
    pairs = len(undirected_pairs(graph))
    attack = PRBCDAttack(
        _AsModule(scene.victim),
        block_size=block,
        epochs=protocol.global_epochs,
        epochs_resampling=_drawing_steps(protocol.global_epochs),
        log=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        edges, flips = attack.attack(
            # The copy knows the features.
            torch.zeros(graph.num_nodes, 1),
            scene.edges(graph)[0],
            scene.labels,
            budget=read_budget(f"{protocol.global_percent}%", pairs),
            idx_attack=scene.nodes,
        )
    seconds = time.perf_counter() - begun
    attacked = graph.clone()
    attacked.edge_index = edges
    return _of_all(scene, attacked, int(flips.shape[1]), seconds)


def _local(scene: _Scene, protocol: EvasionProtocol, seed: int) -> AttackOutcome:
    begun = time.perf_counter()
    nodes = attacked_one_by_one(
        scene.model.predict_proba(scene.graph).cpu()[scene.nodes],
        scene.labels[scene.nodes],
        protocol,
        seed,
    )
    nodes = scene.nodes[nodes]
    changes = {int(node): Perturbation() for node in nodes}
    if scene.looks_at_edges:
        attack = PRBCD(
            knows_labels=True,
            epochs=protocol.local_epochs,
            resampling_epochs=_drawing_steps(protocol.local_epochs),
        )
        changes = attack.attack_each(
            scene.graph,
            budget=f"{protocol.local_percent}%",
            victim=scene.model,
            nodes=nodes,
            random_state=seed,
        )
    right = 0
    for node, change in changes.items():
        predicted = scene.clean
        if change.num_flips:
            predicted = scene.classes(change.apply(scene.graph))
        right += int(predicted[node] == scene.labels[node])
    return {
        "nodes": len(nodes),
        "before": round(scene.right(scene.clean, nodes), _DIGITS),
        "after": round(right / len(nodes), _DIGITS),
        "flips": sum(change.num_flips for change in changes.values()),
        "seconds": round(time.perf_counter() - begun, 3),
    }


def attacked_one_by_one(
    probabilities: Tensor, labels: Tensor, protocol: EvasionProtocol, seed: int
) -> Tensor:
    """Places of the nodes that are attacked each on its own, int64, sorted.

    Of those that are predicted rightly the surest and the least sure, and others that
    are drawn; all of them where there are no more.

    Args:
        probabilities: Of the nodes that may be chosen, ``[nodes, classes]``.
        labels: Their classes, ``[nodes]``.
        protocol: How many of each.
        seed: What decides which are drawn.
    """
    margin = margins(probabilities, labels)
    order = margin.argsort(stable=True)
    right = order[margin[order] > 0]
    number = protocol.extreme_nodes
    extreme = torch.cat([right[:number], right[len(right) - number :]])
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    chosen[extreme] = True
    others = (~chosen).nonzero().squeeze(1).numpy()
    drawn = min(protocol.random_nodes, len(others))
    found = seeded_generator(seed).choice(others, drawn, replace=False)
    chosen[torch.from_numpy(found)] = True
    return chosen.nonzero().squeeze(1)


def _of_all(
    scene: _Scene, attacked: Graph, flips: int, seconds: float
) -> AttackOutcome:
    after = scene.right(scene.classes(attacked), scene.nodes)
    return {
        "nodes": len(scene.nodes),
        "before": round(scene.right(scene.clean, scene.nodes), _DIGITS),
        "after": round(after, _DIGITS),
        "flips": flips,
        "seconds": round(seconds, 3),
    }


def _drawing_steps(epochs: int) -> int:
    """Steps after which pairs without a share are drawn anew."""
    default = PRBCD()
    return round(epochs * default.resampling_epochs / default.epochs)


@final
class _AsModule(nn.Module):
    """A victim as PyG calls a network."""

    def __init__(self, victim: Victim) -> None:
        super().__init__()
        self.victim: Any = victim

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """Logits of every node; the features are the victim's own."""
        found: Tensor = self.victim.logits(edge_index, edge_weight)
        return found
