"""SUBLIME: a graph that is learned without labels, by contrast with an anchor.

A generator (those of SLAPS, or one that propagates over the given graph) makes a graph
L of the features. One network, a GCN and a projection, looks at every node twice: on
the anchor, at first the given graph, and on L, each time with some columns of the
features masked and some edges dropped. The two views u_i, v_i of a node shall be closer
than those of different nodes:

    loss = mean_i [log Σ_{j≠i} exp(cos(u_i, v_j) / t) - cos(u_i, v_i) / t]

and the same with u and v exchanged, of which the mean is taken. After each step the
anchor follows slowly, τ anchor + (1 - τ) L. Fresh GCNs are trained on L as it is after
some of the steps, and the best of them on the validation nodes is kept with its graph.

All pairs of nodes are compared, in blocks that are computed again for the derivative,
so that memory does not grow with the square of the nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from gsebo.bilevel import Tree, make_optimizer
from gsebo.files import Count, Share
from gsebo.graph import Graph, Propagation
from gsebo.methods.baselines.pairs import row_blocks
from gsebo.methods.baselines.shared import (
    BaselineProblem,
    EntrySum,
    JointBaseline,
    LastOf,
    minimise,
    new_network,
    weights_of,
    without_zeros,
)
from gsebo.methods.baselines.slaps import (
    PAIR_MATRICES,
    Activation,
    GraphGenerator,
    room_for,
)
from gsebo.methods.fitting import Outcome
from gsebo.methods.parameters import (
    FeaturesName,
    Positive,
    Rate,
    ShareBelowOne,
    SideWidth,
    Steps,
    StepsOrZero,
    Width,
)
from gsebo.methods.run import Run
from gsebo.nn import GCN
from gsebo.nn.base import Features
from gsebo.sparse import CompletePattern, Noise, SparseFeatures, dropout, uniform
from gsebo.sparse.operators import unit_rows
from gsebo.training import Member, Patience, Task
from gsebo.training.history import SelectBy

# Places that draw: masks of features, edges, weights.
_MASK_SITE, _EDGE_SITE, _ENCODER_SITE = 1000, 1001, 1002
# Both views draw at the same places of one network, so that each has its own steps.
_VIEWS = 2
# Similarities that are held at once.
_BLOCK = 1 << 24
Learner = Literal["fp", "full", "mlp", "mlp_d", "gnn"]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class SUBLIME(JointBaseline):
    """Structure bootstrapping by contrast (Liu et al., WWW 2022): refinement.

    A graph of nearest neighbors is learned without any label, so that a network sees
    the same on it as on the given graph, whose place it takes over little by little;
    GCNs are trained on it from time to time, with edges dropped at random, and that
    which ``select_by`` prefers is kept. Labels, those of validation nodes too, only
    serve the GCNs. The defaults are the authors' for Cora, but for ``learner``, which
    there is "full".
    (For Citeseer: ``learner`` "mlp_d" with ``activation`` "tanh", ``num_neighbors`` 20,
    ``contrast_epochs`` 1000, ``contrast_lr`` 1e-3, ``contrast_edge_dropout`` 0.25,
    ``mask_learned`` 0.6, ``mask_anchor`` 0.8, ``edge_dropout`` 0.5, ``weight_decay``
    0.05.)

    Args:
        learner: What the weights of edges are: one parameter for each pair of nodes
            (``"full"``, the authors' fgp, in which all but the nearest begin at
            0.0025), the same for the nearest and the given edges alone (``"fp"``, in
            memory that grows with the edges), or cosines of features that a weight
            each (``"mlp_d"``, their att), two dense layers (``"mlp"``) or two layers
            over the given graph (``"gnn"``) have changed.
        num_neighbors: k, how many others a node takes.
        activation: Between the layers of the learner.
        search_every: Steps between two searches for what nodes take. The authors have
            1; ``"fp"`` and ``"full"`` search once, by the features.
        contrast_epochs: Steps of the contrast. None of them looks at a label.
        train_every: Steps of the contrast between two graphs on which a GCN is trained;
            one is on the last.
        contrast_lr: Learning rate of the learner and of the network that compares.
        contrast_hidden: Width of that network.
        contrast_channels: Width of what it gives, and of the projection.
        contrast_dropout: Rate of dropout in it.
        contrast_edge_dropout: Share of the edges that each view drops.
        mask_anchor: Share of the features that the view of the anchor does not see.
        mask_learned: The same for the view of the learned graph.
        temperature: t.
        tau: τ, how much of the anchor stays in each step.
        edge_dropout: Share of the edges that each step of the GCN drops.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)

    hidden_channels: Width = 32
    features: FeaturesName = "largest"
    inner_lr: Rate = 1e-3
    max_epochs: Steps = 200
    evaluate_every: Steps = 10
    patience: Count = 10
    select_by: SelectBy = "first_accuracy"
    learner: Learner = "fp"
    num_neighbors: Count = 30
    activation: Activation = "relu"
    search_every: Steps = 1
    contrast_epochs: StepsOrZero = 4000
    train_every: Steps = 500
    contrast_lr: Rate = 0.01
    contrast_hidden: SideWidth = 512
    contrast_channels: SideWidth = 256
    contrast_dropout: ShareBelowOne = 0.5
    contrast_edge_dropout: ShareBelowOne = 0.5
    mask_anchor: ShareBelowOne = 0.6
    mask_learned: ShareBelowOne = 0.7
    temperature: Positive = 0.2
    tau: Share = 0.9999
    edge_dropout: ShareBelowOne = 0.75

    def _problem(self, task: Task) -> "SUBLIMEProblem":
        return SUBLIMEProblem(task, self)

    def _dense_matrices(self, data: Graph, runs: int) -> int:
        return PAIR_MATRICES * (self.learner == "full")

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        self._require_pairs(data, runs)
        return [self._best_graph(data, run) for run in runs]

    def _best_graph(self, data: Graph, run: Run) -> Outcome:
        """Train on each graph that the contrast leads to, and keep the best."""
        learners: list[Tree] = []

        def problem(task: Task, run: Run) -> SUBLIMEProblem:
            begun = SUBLIMEProblem(task, self)
            if not learners:
                learners.extend(begun.learners())
            begun.learner = learners[number]
            return begun

        wanted, best = Patience(self.select_by, self.patience), None
        for number in range(max(-(-self.contrast_epochs // self.train_every), 1)):
            (outcome,) = self.train_jointly(data, [run.stage(number)], problem)
            kept = outcome.progress.best
            assert kept is not None
            if best is None or wanted.is_better(kept, best.progress.best):
                best = outcome
            if outcome.progress.stopped:
                break
        assert best is not None
        return best


def masked_columns(x: Features, rate: float, noise: Noise, site: int) -> Features:
    """The same with a share of the columns, rounded down, set to zero."""
    like = torch.empty((), dtype=torch.float64, device=x.device)
    drawn = uniform((x.shape[1],), noise, site, like)
    kept = torch.ones_like(drawn, dtype=x.dtype)
    kept[drawn.argsort(stable=True)[: int(round(rate * x.shape[1], 6))]] = 0
    if isinstance(x, Tensor):
        return x * kept
    return SparseFeatures(x.pattern, x.values * kept[x.pattern.column_of_entry])


def contrast_loss(
    u: Tensor, v: Tensor, temperature: float, *, block: int = _BLOCK
) -> Tensor:
    """How much closer to its own other view every node is than to those of others.

    Of a single node there is nothing to compare: 0.
    """
    size = len(u)
    if size < 2:
        return (u.sum() + v.sum()) * 0
    u, v = unit_rows(u) / temperature, unit_rows(v)
    own = (u * v).sum(-1)
    blocks = list(row_blocks(size, block))
    # What a single block has computed is kept; of several each is computed once more.
    compared = _compared if len(blocks) == 1 else _compared_anew
    found = [compared(u, v, start, stop) for start, stop in blocks]
    by_row = torch.cat([rows for rows, _ in found])
    by_column = torch.stack([columns for _, columns in found]).logsumexp(0)
    return ((by_row + by_column) / 2 - own).mean()


def _compared(u: Tensor, v: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Log-sums over the products of some rows of ``u`` with those of others in ``v``.

    One for each of these rows, and one for each row of ``v``.
    """
    products = u[start:stop] @ v.mT
    own = torch.arange(stop - start, device=u.device)
    # Not -inf, which in a block of one row would leave nothing to differentiate.
    none = products.new_full((stop - start,), torch.finfo(u.dtype).min / 2)
    products = products.index_put((own, own + start), none)
    return products.logsumexp(1), products.logsumexp(0)


def _compared_anew(
    u: Tensor, v: Tensor, start: int, stop: int
) -> tuple[Tensor, Tensor]:
    rows, columns = checkpoint(_compared, u, v, start, stop, use_reentrant=False)
    return rows, columns


def at_all_pairs(graph: Propagation, pairs: CompletePattern) -> Tensor:
    """Strengths of all pairs, ``[nodes * nodes]``, 0 where the graph has no edge."""
    pattern, strengths = graph
    if isinstance(pattern, CompletePattern):
        return strengths
    place = pattern.row_of_entry * pattern.num_columns + pattern.column_of_entry
    return strengths.new_zeros(pairs.num_entries).index_add(0, place, strengths)


@final
class ViewEncoder(nn.Module):
    """A GCN of two layers, and two more that project what it gives."""

    def __init__(
        self, in_channels: int, hidden: int, channels: int, dropout: float
    ) -> None:
        super().__init__()
        sizes = in_channels, hidden, channels
        self.network = GCN(*sizes, dropout=dropout, input_dropout=False)
        self.first = nn.Linear(channels, channels)
        self.second = nn.Linear(channels, channels)

    def forward(
        self, features: Features, graph: Propagation, noise: Noise | None
    ) -> Tensor:
        """One vector for each node, ``[nodes, channels]``."""
        found = self.network(features, *graph, noise)
        projected: Tensor = self.second(torch.relu(self.first(found)))
        return projected


@final
class Contrast:
    """The loss of a step of the contrast, after which the anchor is another.

    Attributes:
        anchor: The graph that the learned one is compared with.
    """

    def __init__(self, problem: "SUBLIMEProblem") -> None:
        task, method = problem.task, problem.method
        self._problem, self.anchor = problem, problem.given
        sizes = task.features.shape[1], method.contrast_hidden, method.contrast_channels
        self._encoder = new_network(
            task, _ENCODER_SITE, ViewEncoder, *sizes, method.contrast_dropout
        )
        self._learner_names = tuple(problem.generator.initial())

    def initial(self) -> Tree:
        """Parameters of the learner, and weights of the network that compares."""
        return self._problem.generator.initial() | weights_of(self._encoder)

    def learner(self, parameters: Tree) -> Tree:
        """Those of the learner."""
        return {name: parameters[name] for name in self._learner_names}

    def __call__(self, parameters: Tree, step: int) -> Tensor:
        method, problem = self._problem.method, self._problem
        learner = self.learner(parameters)
        if step % method.search_every == 0:
            self._pairs = problem.generator.search(learner)
        learned = problem.weighted(*problem.generator.graph(learner, self._pairs))
        first = self._view(parameters, self.anchor, method.mask_anchor, _VIEWS * step)
        place = _VIEWS * step + 1
        second = self._view(parameters, learned, method.mask_learned, place)
        loss = contrast_loss(first, second, method.temperature)
        self._follow(learned)
        return loss

    def _view(
        self, parameters: Tree, graph: Propagation, mask: float, place: int
    ) -> Tensor:
        noise = Noise(self._problem.task.seed, place)
        features = masked_columns(self._problem.task.features, mask, noise, _MASK_SITE)
        rate = self._problem.method.contrast_edge_dropout
        left = dropout(graph.strengths, rate, noise, _EDGE_SITE)
        own = {n: w for n, w in parameters.items() if n not in self._learner_names}
        inputs = features, Propagation(graph.pattern, left), noise
        view: Tensor = functional_call(self._encoder, own, inputs)
        return view

    @torch.no_grad()
    def _follow(self, learned: Propagation) -> None:
        """Let the anchor become a little more like what was learned."""
        tau = self._problem.method.tau
        if tau == 1:
            return
        if isinstance(learned.pattern, CompletePattern):
            before = at_all_pairs(self.anchor, learned.pattern)
            mixed = tau * before + (1 - tau) * learned.strengths
            self.anchor = Propagation(learned.pattern, mixed)
            return
        both = self.anchor.pattern, learned.pattern
        places = ((each.row_of_entry, each.column_of_entry) for each in both)
        added = EntrySum(self._problem.task.num_nodes, *places)
        mixed = added(tau * self.anchor.strengths, (1 - tau) * learned.strengths)
        self.anchor = Propagation(added.pattern, mixed)


@final
class SUBLIMEProblem(BaselineProblem[SUBLIME]):
    """Training loss on a learned graph, edges dropped; it is learned before.

    The outer variables are the parameters of the learner, which stay as they are.

    Attributes:
        learner: Those to train on; without, those that the contrast ends with.
    """

    learner: Tree | None = None

    def __init__(self, task: Task, method: SUBLIME) -> None:
        super().__init__(task, method)
        kind, on = method.learner, None
        if kind == "gnn":
            kind, on = "mlp", self.given
        words = f"learner={method.learner!r}"
        room_for(task.features, kind, words, instead="learner='fp'")
        edges = task.graph.graph.edge_index.to(task.device)
        self.generator = GraphGenerator(
            task.features, kind, method.num_neighbors, method.activation, on, edges
        )
        self._learned = LastOf(self._found)

    def initial_outer(self) -> Tree:
        """The learner after the contrast, or that which is to be trained on."""
        return self.learners()[-1] if self.learner is None else self.learner

    def learners(self) -> list[Tree]:
        """The learner after every so many steps of the contrast, and after the last."""
        contrast, method = Contrast(self), self.method
        found: list[Tree] = []

        def watch(steps: int, parameters: Tree) -> None:
            if steps % method.train_every == 0:
                found.append(contrast.learner(parameters))

        last = minimise(
            contrast,
            contrast.initial(),
            make_optimizer("adam", method.contrast_lr),
            method.contrast_epochs,
            watcher=watch,
        )
        if not found or method.contrast_epochs % method.train_every:
            found.append(contrast.learner(last))
        return found

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        noise, (pattern, strengths) = Noise(self.task.seed, step), self._learned(outer)
        left = dropout(strengths, self.method.edge_dropout, noise, _EDGE_SITE)
        return self.loss_on(Propagation(pattern, left), weights, noise)

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        return [Member(self._learned(outer))]

    @torch.no_grad()
    def _found(self, outer: Tree) -> Propagation:
        pairs = self.generator.search(outer)
        return without_zeros(self.weighted(*self.generator.graph(outer, pairs)))
