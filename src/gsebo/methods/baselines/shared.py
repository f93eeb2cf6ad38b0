"""What several baselines share: an estimator and a problem to start from."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar, final

import torch
from torch import Tensor, nn

from gsebo.bilevel import Optimizer, Tree
from gsebo.bilevel.tree import filled, gradient, require_grad
from gsebo.errors import InvalidInput
from gsebo.graph import Graph, Propagation, Topology
from gsebo.methods.base import GraphClassifier
from gsebo.methods.baselines.pairs import require_dense_memory
from gsebo.methods.fitting import Outcome
from gsebo.methods.run import Run
from gsebo.methods.schedule import EpochClassifier
from gsebo.nn.base import Features, symmetric_normalisation
from gsebo.sparse import CompletePattern, Noise, Pattern
from gsebo.sparse.pattern import subpattern
from gsebo.training import JointProblem, Task

M = TypeVar("M", bound=nn.Module)
E = TypeVar("E", bound=GraphClassifier)


class JointBaseline(EpochClassifier):
    """A method that trains weights and structure on the loss of one problem."""

    weight_steps: ClassVar[int | None] = None
    """Where both take turns: steps of the weights for one of the structure."""

    @abstractmethod
    def _problem(self, task: Task) -> JointProblem:
        """What is minimised, and which graphs predict."""

    def _structure_optimizer(self) -> Optimizer | None:
        """Makes the steps of the structure, if it learns by gradient."""
        return None

    def _dense_matrices(self, data: Graph, runs: int) -> int:
        """At most so many matrices of all pairs of nodes are held at once."""
        return 0

    def _require_pairs(self, data: Graph, runs: Sequence[Run]) -> None:
        """Refuse matrices of all pairs that do not fit into memory."""
        if matrices := self._dense_matrices(data, len(runs)):
            dtype = data.x.dtype if data.x.dtype == torch.float64 else torch.float32
            name, device = type(self).__name__.lower(), runs[0].device
            require_dense_memory(name, matrices, data.num_nodes, dtype, device)

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        self._require_pairs(data, runs)
        return self.train_jointly(
            data,
            runs,
            lambda task, run: self._problem(task),
            structure_optimizer=self._structure_optimizer(),
            weight_steps=self.weight_steps or 1,
            in_turns=self.weight_steps is not None,
        )


class BaselineProblem(JointProblem, Generic[E]):
    """A problem that reads the parameters of its method, with what most have."""

    def __init__(self, task: Task, method: E) -> None:
        super().__init__(task)
        self.method = method

    @cached_property
    def given(self) -> Propagation:
        """The given graph in its vanilla propagation."""
        return Propagation(self.task.graph.pattern, self.initial_strengths)

    def weighted(self, pattern: Pattern, weights: Tensor) -> Propagation:
        """A weighted graph in its vanilla propagation, differentiable."""
        return Propagation(pattern, self.task.backbone.normalise(pattern, weights))

    @cached_property
    def all_pairs(self) -> CompletePattern:
        """Every pair of nodes, and every node with itself."""
        return CompletePattern(self.task.num_nodes, self.task.device)

    def weighted_pairs(self, matrix: Tensor) -> Propagation:
        """The same of a dense graph ``[nodes, nodes]``, loops included."""
        return self.weighted(self.all_pairs, self.all_pairs.values(matrix))

    def unweighted(self, edge_index: Tensor) -> Propagation:
        """Other edges ``[2, edges]`` in their vanilla propagation."""
        task, loops = self.task, self.task.backbone.self_loops
        pattern = Topology.from_edges(
            edge_index, task.num_nodes, self_loops=loops, device=task.device
        ).pattern
        return Propagation(pattern, task.backbone.initial_strength(pattern))

    def loss_on(self, graph: Propagation, weights: Tree, noise: Noise) -> Tensor:
        """Mean cross-entropy of the training nodes on a graph, plus weight decay."""
        logits = self.task.logits(weights, *graph, noise)
        return self.task.loss_of(logits) + self.task.penalty(weights)


def new_network(task: Task, site: int, kind: Callable[..., M], *sizes: Any) -> M:
    """Make a network to train with the backbone, its weights drawn by the seed."""
    with torch.random.fork_rng(devices=[]):
        # Not the seed itself, from which the backbone drew its weights.
        torch.manual_seed(Noise(task.seed, 0).keys(site)[0])
        return kind(*sizes).to(task.device, task.dtype)


def run_layers(
    task: Task, weights: Tree, graph: Propagation, noise: Noise | None
) -> tuple[Tensor, list[Features]]:
    """Run a network; return its logits and what each layer reads, before dropout."""
    read: list[Features] = []

    def strengths(number: int, h: Features) -> Tensor:
        read.append(h)
        return graph.strengths

    return task.logits(weights, graph.pattern, strengths, noise), read


def weights_of(module: nn.Module) -> Tree:
    """A copy of the weights of a network."""
    return {name: weight.detach().clone() for name, weight in module.named_parameters()}


def both_ways(edge_index: Tensor) -> Tensor:
    """Edges ``[2, edges]`` and then the same edges turned round."""
    return torch.cat([edge_index, edge_index.flip(0)], dim=1)


def normalised_adjacency(
    edge_index: Tensor, num_nodes: int, dtype: torch.dtype, device: torch.device
) -> Propagation:
    """D^-1/2 (A + I) D^-1/2 of the graph in which each edge goes both ways."""
    pattern = Topology.from_edges(
        both_ways(edge_index), num_nodes, self_loops=True, device=device
    ).pattern
    return Propagation(pattern, symmetric_normalisation(pattern, dtype))


@final
class EntrySum:
    """Adds sparse matrices of one size, whose entries are known beforehand.

    Args:
        size: Number of rows, and of columns.
        positions: Rows and columns of the entries of each matrix.
    """

    def __init__(self, size: int, *positions: tuple[Tensor, Tensor]) -> None:
        keys = torch.cat([row * size + column for row, column in positions])
        kept, self._place = torch.unique(keys, return_inverse=True)
        self.pattern = Pattern.from_positions(kept // size, kept % size, size)

    def __call__(self, *values: Tensor) -> Tensor:
        """Entries of the sum from those of each matrix; every position is one."""
        given = torch.cat(values)
        total = given.new_zeros(self.pattern.num_entries)
        return total.index_add(0, self._place, given)


def with_itself(taken: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Entries, rows and columns, of nodes that take others and themselves.

    ``taken`` has the others and those who take them, ``[2, pairs]``; loops come last.
    """
    nodes = torch.arange(size, device=taken.device)
    column, row = torch.cat([taken, nodes.expand(2, -1)], dim=1)
    return row, column


def without_zeros(graph: Propagation) -> Propagation:
    """The same without edges that count for nothing; self-loops stay.

    A graph of all pairs stays as it is: it is cut where it is stored.
    """
    pattern, strengths = graph
    if isinstance(pattern, CompletePattern):
        return graph
    loop = pattern.row_of_entry == pattern.column_of_entry
    kept = (strengths != 0) | loop
    return Propagation(subpattern(pattern, kept), strengths[kept])


R = TypeVar("R")


@final
class LastOf(Generic[R]):
    """A function of a tree that remembers its last answer.

    What is searched for the evaluation after a step is what the next step needs.
    """

    def __init__(self, function: Callable[[Tree], R]) -> None:
        self._function = function
        self._last: tuple[Tree, R] | None = None

    def __call__(self, tree: Tree) -> R:
        """The answer for ``tree``, from memory where the numbers are the same."""
        if self._last is not None:
            known, answer = self._last
            same = (torch.equal(known[name], leaf) for name, leaf in tree.items())
            if known.keys() == tree.keys() and all(same):
                return answer
        answer = self._function(tree)
        # A copy: whoever trains may change the numbers in their place.
        copied = {name: leaf.detach().clone() for name, leaf in tree.items()}
        self._last = copied, answer
        return answer


def minimise(
    loss_of: Callable[[Tree, int], Tensor],
    start: Tree,
    optimizer: Optimizer,
    steps: int,
    *,
    patience: int | None = None,
    watcher: Callable[[int, Tree], None] | None = None,
) -> Tree:
    """Take steps on a loss, for what a method prepares before its real training.

    The last parameters are returned. With a patience they are those of the smallest
    loss, and it ends after so many losses that are not smaller. What is not finite is
    refused. A watcher is told the number of steps so far, and what they led to.
    """
    parameters, state = start, optimizer.init(start)
    kept, least, waited = start, math.inf, 0
    for step in range(steps):
        leaves = require_grad(parameters)
        with torch.enable_grad():
            loss = loss_of(leaves, step)
            (found,) = gradient(loss, leaves)
        if patience is not None:
            if (now := float(loss.detach())) < least:
                kept, least, waited = parameters, now, 0
            elif (waited := waited + 1) >= patience:
                break
        with torch.no_grad():
            found = filled(found, leaves)
            parameters, state = optimizer.update(found, state, parameters)
        if watcher is not None:
            watcher(step + 1, parameters)
    if not all(bool(leaf.isfinite().all()) for leaf in parameters.values()):
        raise InvalidInput(
            f"preparing diverged: a parameter is not finite after {steps} steps; "
            "expected a smaller learning rate or smaller features"
        )
    return parameters if patience is None else kept
