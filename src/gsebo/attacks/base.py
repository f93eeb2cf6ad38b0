"""What an attack is: from a graph, a budget and a victim to pairs that change.

What an attacker takes for the truth is what it can know: the labels of training and
validation nodes, and elsewhere what the victim predicts. Only an attack with
``knows_labels`` reads others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.attacks.budget import read_budget
from gsebo.attacks.candidates import CandidatePairs
from gsebo.attacks.linear import LinearGCN
from gsebo.attacks.perturbation import Perturbation, undirected_pairs
from gsebo.attacks.registry import NODE_SETS
from gsebo.attacks.victim import Victim, victim_of
from gsebo.data.relations import refuse_types
from gsebo.data.seeding import seeded_generator
from gsebo.data.validate import sized, validate
from gsebo.errors import InvalidInput
from gsebo.graph import canonicalise
from gsebo.graph.graph import Graph, GraphLike, as_graph
from gsebo.methods.parameters import declared_parameters, require_declared
from gsebo.methods.run import alike_on_any_threads

Nodes = str | Tensor | Sequence[int] | NDArray[Any] | None
"""Numbers of nodes, a mask, or one of ``NODE_SETS``; ``None``: the usual ones."""


@final
@dataclass(frozen=True, eq=False)
class Scene:
    """What an attack is made on, and all that the attacker may know.

    Attributes:
        graph: The graph, which knows its number of nodes.
        given_victim: What the user gave as victim, or nothing.
        knows_labels: Whether the attacker knows every label of the graph.
        seed: What all randomness begins with.
    """

    graph: Graph
    given_victim: Any
    knows_labels: bool
    seed: int

    @cached_property
    def pairs(self) -> Tensor:
        """The pairs that the graph joins, int64 ``[pairs, 2]``."""
        return undirected_pairs(self.graph)

    @cached_property
    def victim(self) -> Victim:
        """What is attacked; a plain GCN that is fitted now, where none was given."""
        victim = self.given_victim
        return victim_of(victim, self.graph, random_state=self.seed)

    @cached_property
    def edges(self) -> tuple[Tensor, Tensor]:
        """Distinct edges and their weights, as :meth:`Victim.logits` takes them."""
        graph = canonicalise(self.graph)
        edges, weight = graph.edge_index.cpu(), graph.weight
        # Some methods leave weights alone.
        if weight is None or not getattr(self.given_victim, "uses_edge_weight", True):
            return edges, torch.ones(graph.num_edges)
        return edges, weight.cpu()

    @cached_property
    def known(self) -> Tensor:
        """Nodes whose labels the attacker knows, bool ``[nodes]``."""
        return known_nodes(self.graph, every=self.knows_labels)

    @cached_property
    def labels(self) -> Tensor:
        """What the attacker takes for the class of each node, int64 ``[nodes]``.

        Labels where they are known, and elsewhere what the victim predicts.
        """
        known = self.known
        if bool(known.all()):
            return self.graph.y.cpu().long()
        with torch.no_grad():
            predicted = self.victim.logits(*self.edges).argmax(-1).cpu()
        if not bool(known.any()):
            return predicted
        return torch.where(known, self.graph.y.cpu().long(), predicted)

    @cached_property
    def linear(self) -> LinearGCN:
        """A linear network, taught the labels that are known, or else predictions."""
        if "x" not in self.graph:
            raise InvalidInput(
                "the graph has no x; expected features, for the network that stands "
                "for the victim."
            )
        known = known_nodes(self.graph)
        taught = known if bool(known.any()) else torch.ones_like(known)
        labels, classes = self.labels, int(self.labels.max()) + 1
        return LinearGCN.fit(self.graph.x, self.pairs, labels, taught, classes)

    def generator(self) -> np.random.Generator:
        """A fresh stream of random numbers, the same whenever it is asked for."""
        return seeded_generator(self.seed)


@dataclass(kw_only=True)
class Attack(ABC):
    """A way to change few edges so that a network goes wrong; parameters are fields.

    Args:
        knows_labels: Whether the attacker knows all labels, test labels too, as
            evaluations of attacks often assume. By default those of training and
            validation nodes, and elsewhere what the victim predicts.
    """

    per_node: ClassVar[bool] = False
    """Whether a budget is always one for each attacked node."""

    knows_labels: bool = False

    def __post_init__(self) -> None:
        declared = declared_parameters(type(self))
        for each in fields(self):
            require_declared(each.name, getattr(self, each.name), declared[each.name])

    @abstractmethod
    def _flips(self, scene: Scene, nodes: Tensor, budget: int) -> Perturbation:
        """The pairs that change so that predictions of some nodes go wrong.

        Args:
            scene: The graph and what is known of it.
            nodes: The attacked nodes, int64, sorted.
            budget: Most pairs that may change, at least 1.
        """

    @final
    @alike_on_any_threads()
    def attack(
        self,
        graph: GraphLike,
        *,
        budget: int | str,
        victim: Any = None,
        nodes: Nodes = None,
        random_state: int = 0,
    ) -> Perturbation:
        """Which pairs to change so that predictions of some nodes go wrong.

        Args:
            graph: The graph; it stays as it is.
            budget: Most pairs that may change: a number, or a share of the graph's
                undirected edges, ``"5%"``. Where the attack is one for each node, a
                number for each of them, or a share of its degree.
            victim: What is attacked: a fitted estimator, or any module that is called
                as ``module(x, edge_index, edge_weight)``. By default a plain GCN that
                is fitted on the graph.
            nodes: The attacked nodes: their numbers, a mask, or ``"test"``, ``"val"``,
                ``"train"``, ``"unlabelled"`` or ``"all"``. By default the test nodes,
                or else those that are not labelled.
            random_state: Seed; the same one gives the same pairs.

        Raises:
            InvalidInput: The graph, or one of these, cannot be used.
        """
        if self.per_node:
            found = self.attack_each(
                graph,
                budget=budget,
                victim=victim,
                nodes=nodes,
                random_state=random_state,
            )
            return Perturbation.union(found.values())
        scene, chosen = self._scene(graph, victim, nodes, random_state)
        allowed = read_budget(budget, len(scene.pairs))
        return self._checked(scene, chosen, allowed)

    @final
    @alike_on_any_threads()
    def attack_each(
        self,
        graph: GraphLike,
        *,
        budget: int | str,
        victim: Any = None,
        nodes: Nodes = None,
        random_state: int = 0,
    ) -> dict[int, Perturbation]:
        """Attack every node on its own; each perturbation is of the given graph.

        Arguments are those of :meth:`attack`, but the budget is a number of pairs for
        each node, or a share of the node's degree, ``"100%"``.

        Returns:
            What is done to the graph to change the prediction of each node.
        """
        scene, chosen = self._scene(graph, victim, nodes, random_state)
        degree = torch.bincount(scene.pairs.flatten(), minlength=scene.graph.num_nodes)
        allowed = [
            read_budget(budget, each, "edges of a node")
            for each in degree[chosen].tolist()
        ]
        return {
            node: self._checked(scene, torch.tensor([node]), most)
            for node, most in zip(chosen.tolist(), allowed, strict=True)
        }

    def _scene(
        self, graph: GraphLike, victim: Any, nodes: Nodes, random_state: int
    ) -> tuple[Scene, Tensor]:
        graph = as_graph(graph)
        validate(graph, labels_needed=False, features_needed=False)
        refuse_types(
            graph,
            "the graph",
            "attacks know one of each",
            "graph.without_types(), or the noise false_typed:PERCENT",
        )
        graph = sized(graph)
        # Before anything is fitted, so that a wrong seed or node is told at once.
        seeded_generator(random_state)
        chosen = attacked_nodes(graph, nodes)
        return Scene(graph, victim, self.knows_labels, random_state), chosen

    def _checked(self, scene: Scene, nodes: Tensor, budget: int) -> Perturbation:
        if budget > (every := CandidatePairs(scene.graph.num_nodes).count):
            raise InvalidInput(
                f"a budget of {budget} pairs given; expected at most {every}, the "
                "pairs of nodes that there are."
            )
        if not budget:
            return Perturbation()
        found = self._flips(scene, nodes, budget)
        assert found.num_flips <= budget
        return found


def known_nodes(graph: Graph, *, every: bool = False) -> Tensor:
    """Nodes whose labels an attacker knows, bool ``[nodes]``.

    Those of training and validation nodes; all where a graph has no masks.

    Args:
        graph: A graph with labels or without.
        every: Whether all labels of the graph are known, test labels too.
    """
    size = graph.num_nodes
    if "y" not in graph:
        if every:
            raise InvalidInput(
                "knows_labels=True given for a graph without y; expected labels."
            )
        return torch.zeros(size, dtype=torch.bool)
    masks = [graph[name].cpu() for name in ("train_mask", "val_mask") if name in graph]
    labelled: Tensor = graph.y.cpu() >= 0
    if every or not masks:
        return labelled
    return labelled & torch.stack(masks).any(0)


def attacked_nodes(graph: Graph, nodes: Nodes = None) -> Tensor:
    """Numbers of the attacked nodes, int64, sorted: see :meth:`Attack.attack`."""
    size = graph.num_nodes
    if nodes is None:
        nodes = "test" if "test_mask" in graph else "unlabelled"
    if isinstance(nodes, str):
        chosen = _named_nodes(graph, nodes)
    else:
        given = torch.as_tensor(nodes).cpu()
        if given.dtype == torch.bool and given.shape == (size,):
            chosen = given
        elif given.dim() == 1 and not given.is_floating_point() and given.numel():
            if int(given.min()) < 0 or int(given.max()) >= size:
                raise InvalidInput(
                    f"nodes from {int(given.min())} to {int(given.max())} given; "
                    f"expected numbers from 0 to {size - 1}."
                )
            chosen = torch.zeros(size, dtype=torch.bool)
            chosen[given.long()] = True
        else:
            raise InvalidInput(
                f"nodes of shape {list(given.shape)} and {given.dtype} given; expected "
                f"numbers of nodes, or a mask of shape [{size}]."
            )
    if not bool(chosen.any()):
        raise InvalidInput("no node to attack given; expected at least one.")
    return chosen.nonzero().squeeze(1)


def _named_nodes(graph: Graph, name: str) -> Tensor:
    if name not in NODE_SETS:
        expected = ", ".join(NODE_SETS)
        raise InvalidInput(f"nodes={name!r:.60} given; expected one of: {expected}.")
    if name == "all":
        return torch.ones(graph.num_nodes, dtype=torch.bool)
    if name == "unlabelled":
        return ~known_nodes(graph)
    if f"{name}_mask" not in graph:
        raise InvalidInput(
            f"nodes={name!r} given for a graph without {name}_mask; expected one, or "
            "other nodes."
        )
    mask: Tensor = graph[f"{name}_mask"].cpu()
    return mask
