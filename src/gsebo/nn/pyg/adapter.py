"""Any PyG model as a backbone, gated from outside."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import cached_property
from typing import Any, final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing

from gsebo.errors import InvalidInput
from gsebo.nn.base import Backbone, Features, LayerStrengths
from gsebo.nn.pyg.typed import (
    TypedEdges,
    features_by_type,
    joined_scores,
    takes_types,
    typed_edges,
)
from gsebo.sparse import Noise, Pattern, SparseFeatures


@contextmanager
def gated(
    module: nn.Module,
    strengths: Tensor,
    edge_index: Tensor,
    num_nodes: int,
    typed: TypedEdges | None = None,
) -> Iterator["Gate"]:
    """Gate the messages that ``module`` sends inside the ``with`` block.

    A layer sends one message per edge, or those and then one self-loop per node in
    node order. Every propagation is compared with the edges it should go along; what
    does not match them exactly, or would escape the gate, is refused.

    Args:
        module: Model with PyG message passing layers.
        strengths: ``[entries]``, shared by all propagations, or
            ``[propagations, entries]``, row k for the k-th propagation of the block.
            Entries are the edges, and then, for layers that add them, the self-loops.
        edge_index: Edges ``[2, edges]`` that the model is called with, no self-loops.
        num_nodes: Number of nodes.
        typed: The edges of each relation, where the model is called with those.

    >>> from torch_geometric.nn import GINConv
    >>> conv = GINConv(torch.nn.Identity())
    >>> edge_index = torch.tensor([[0], [1]])
    >>> with gated(conv, torch.tensor([0.5]), edge_index, num_nodes=2):
    ...     conv(torch.tensor([[1.0], [0.0]]), edge_index).flatten().tolist()
    [1.0, 0.5]
    """
    gate = Gate(module, strengths, edge_index, num_nodes, typed)
    with ExitStack() as hooks:
        for layer in message_layers(module):
            for handle in (
                layer.register_propagate_forward_pre_hook(gate.on_propagate),
                layer.register_message_forward_hook(gate.on_message),
                layer.register_forward_hook(gate.on_call),
            ):
                hooks.callback(handle.remove)
        yield gate
    gate.finish()


def message_layers(module: nn.Module) -> list[MessagePassing]:
    """All message passing layers in ``module``, itself included."""
    return [layer for layer in module.modules() if isinstance(layer, MessagePassing)]


@final
class Gate:
    """The hooks of one ``with`` block, and how many propagations they have gated."""

    def __init__(
        self,
        module: nn.Module,
        strengths: Tensor,
        edge_index: Tensor,
        num_nodes: int,
        typed: TypedEdges | None = None,
    ) -> None:
        num_edges = edge_index.shape[-1]
        sizes = (num_edges, num_edges + num_nodes)
        if strengths.dim() not in (1, 2) or strengths.shape[-1] not in sizes:
            raise InvalidInput(
                f"strengths have shape {list(strengths.shape)}, expected [entries] or "
                f"[propagations, entries] with {sizes[0]} entries (edges) or "
                f"{sizes[1]} (edges, then self-loops)."
            )
        self.module, self.strengths = module, strengths
        self.edge_index, self.num_nodes = edge_index, num_nodes
        self.typed = typed
        self.num_propagations = 0
        # Strengths of the propagation that each layer is in, and whether it sent any.
        self._strength: dict[MessagePassing, Tensor] = {}
        self._sent: set[MessagePassing] = set()

    @cached_property
    def _with_loops(self) -> Tensor:
        nodes = torch.arange(self.num_nodes, device=self.edge_index.device)
        return torch.cat([self.edge_index, nodes.expand(2, -1)], dim=1)

    def on_propagate(self, layer: MessagePassing, inputs: tuple[Any, ...]) -> None:
        """Check where the messages go, and choose their strengths."""
        edge_index = inputs[0]
        if edge_index is not self.edge_index:
            self._check_plain(layer, edge_index)
        if layer.flow != "source_to_target":
            raise self._refused(
                layer, f"has flow={layer.flow!r}, expected 'source_to_target'"
            )
        entries = self._entries_along(layer, edge_index)
        count = edge_index.shape[1]
        strengths = self.strengths
        if count > strengths.shape[-1]:
            raise self._refused(
                layer,
                f"sent {count} messages, self-loops included, and there are strengths "
                f"for {strengths.shape[-1]} edges only",
            )
        if strengths.dim() == 2:
            if self.num_propagations >= len(strengths):
                raise self._refused(
                    layer,
                    f"makes propagation {self.num_propagations + 1} of the model, and "
                    f"there are strengths for {len(strengths)}",
                )
            strengths = strengths[self.num_propagations]
        self._strength[layer] = (
            strengths[:count] if entries is None else strengths.index_select(0, entries)
        )
        self.num_propagations += 1

    def on_message(
        self, layer: MessagePassing, inputs: tuple[Any, ...], message: Any
    ) -> Tensor:
        """Multiply the messages by their strengths."""
        strength, axis = self._strength[layer], layer.node_dim
        if not isinstance(message, Tensor):
            raise self._refused(
                layer, f"sent a {type(message).__name__}, expected one tensor"
            )
        shape = [1] * message.dim()
        if not -len(shape) <= axis < len(shape):
            raise self._refused(
                layer,
                f"sent messages of shape {list(message.shape)}, which have no "
                f"axis {axis}",
            )
        if message.shape[axis] != len(strength):
            raise self._refused(
                layer,
                f"sent {message.shape[axis]} messages, expected {len(strength)}, one "
                "for each edge it propagates along",
            )
        shape[axis] = -1
        self._sent.add(layer)
        return message * strength.view(shape)

    def on_call(self, layer: MessagePassing, inputs: Any, output: Any) -> None:
        """Refuse a layer that computed something without sending a gated message."""
        if layer not in self._sent:
            raise self._refused(
                layer, "was called but sent no message that could be gated"
            )
        self._sent.remove(layer)

    def finish(self) -> None:
        """Refuse a block in which nothing, or less than expected, was gated."""
        name = type(self.module).__name__
        if self.num_propagations == 0:
            raise InvalidInput(
                f"{name} sent no message that could be gated, expected at least one "
                "torch_geometric.nn.MessagePassing layer that propagates."
            )
        strengths = self.strengths
        if strengths.dim() == 2 and len(strengths) != self.num_propagations:
            raise InvalidInput(
                f"{name} made {self.num_propagations} propagations, and there are "
                f"strengths for {len(strengths)}."
            )

    def _entries_along(
        self, layer: MessagePassing, edge_index: Tensor
    ) -> Tensor | None:
        """The entries that messages go along; ``None``: the first, in their order."""
        if self.typed is None:
            if edge_index is not self.edge_index:
                self._check_edges(layer, edge_index)
            return None
        entries = self.typed.entries_along(edge_index)
        if entries is None:
            raise self._refused(
                layer,
                f"sent {edge_index.shape[1]} messages along other edges than those of "
                "one relation, with or without self-loops, or of all relations in "
                "their order",
            )
        return entries

    def _check_plain(self, layer: MessagePassing, edge_index: Any) -> None:
        plain = isinstance(edge_index, Tensor) and edge_index.layout == torch.strided
        if not plain or isinstance(edge_index, EdgeIndex):
            raise self._refused(
                layer,
                f"propagates along a {type(edge_index).__name__} whose fused "
                "aggregation loses the gradient, expected an ordinary edge_index "
                "tensor",
            )

    def _check_edges(self, layer: MessagePassing, edge_index: Tensor) -> None:
        num_edges = self.edge_index.shape[1]
        count = edge_index.shape[-1]
        if count not in (num_edges, num_edges + self.num_nodes):
            raise self._refused(
                layer,
                f"sent {count} messages, expected {num_edges} (edges) or "
                f"{num_edges + self.num_nodes} (edges, then self-loops)",
            )
        expected = self.edge_index if count == num_edges else self._with_loops
        if not torch.equal(edge_index, expected):
            raise self._refused(
                layer,
                f"sent {count} messages along other edges, or in another order, than "
                "the edges it was given and then the self-loops in node order",
            )

    def _refused(self, layer: MessagePassing, why: str) -> InvalidInput:
        names = (name for name, each in self.module.named_modules() if each is layer)
        name, kind = next(names), type(layer).__name__
        return InvalidInput(f"layer {f'{name} ({kind})' if name else kind} {why}.")


# The model draws what it likes from one stream, so one site stands for all of it.
_SITE = 0
_EVALUATION = Noise(seed=0, step=0)

_edge_indices: WeakKeyDictionary[Pattern, Tensor] = WeakKeyDictionary()
_dense: WeakKeyDictionary[SparseFeatures, Tensor] = WeakKeyDictionary()


@final
class PyGBackbone(Backbone):
    """A model called as ``module(x, edge_index)``; strengths multiply its messages.

    One that is made for types (with ``HeteroConv``, ``HGTConv``, ``to_hetero`` or
    arguments such as ``x_dict``) is called as ``module(x_dict, edge_index_dict)`` and
    gives scores of the nodes of one type, or a dictionary of them.

    What the model computes is a pure function of its weights, the strengths and the
    noise: torch's generators are seeded from the noise around each call and put back
    after it, and normalisation layers forget their running statistics, so that they
    always normalise by the whole graph they are given, in evaluation too.

    Strengths are ``[entries]`` in the order of the pattern, edges and then self-loops;
    those of the self-loops have no effect on layers that send none.

    The model is copied. Call :meth:`prepare` before training: until then it is not
    known how many propagations one call makes, and their number is 0.

    Args:
        module: A model with layers that pass messages.
    """

    sums_messages = False

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        name = type(module).__name__
        if not message_layers(module):
            raise InvalidInput(
                f"{name} holds no torch_geometric.nn.MessagePassing layer, so no "
                "message could be given a strength."
            )
        for path, layer in module.named_modules():
            if getattr(layer, "cached", False):
                raise InvalidInput(
                    f"layer {path or name} of {name} has cached=True and may reuse "
                    "what other strengths gave; expected cached=False."
                )
        self.module = deepcopy(module)
        self.takes_types = takes_types(module)
        self._num_classes: int | None = None
        self.num_propagations = self._num_gated = 0
        for layer in self.module.modules():
            if isinstance(layer, _NormBase):
                layer.track_running_stats = False
                layer.running_mean = layer.running_var = None
                layer.num_batches_tracked = None

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        if callable(strengths):
            raise InvalidInput(
                f"{self._name} given with strengths that depend on each layer's input; "
                "expected one of the networks of gsebo, such as 'gcn'."
            )
        edge_index = _edge_index(pattern)
        typed = typed_edges(pattern, self._name) if self.takes_types else None
        self._set_training(noise is not None)
        with _seeded(noise or _EVALUATION, features.device):
            if strengths is None:
                return self._called(features, pattern)
            size = pattern.num_rows
            with gated(self.module, strengths, edge_index, size, typed) as gate:
                logits = self._called(features, pattern)
        self._num_gated = gate.num_propagations
        return logits

    def _called(self, features: Features, pattern: Pattern) -> Tensor:
        x = _dense_features(features)
        types = pattern.types
        if not self.takes_types or types is None:
            logits: Tensor = self.module(x, _edge_index(pattern))
            return logits
        edges = typed_edges(pattern, self._name).edge_index
        given = self.module(features_by_type(x, types), edges)
        scores: Tensor = joined_scores(given, types, self._num_classes)
        return scores

    def prepare(self, features: Features, pattern: Pattern, num_classes: int) -> None:
        """Initialise lazy weights and check that the model can be used.

        Lazy weights are drawn from torch's global generator, as they would be without
        this adapter. A model is refused that cannot be called, gated, replayed or
        differentiated twice, or gives another shape than ``[nodes, classes]``.
        """
        name, self._num_classes = self._name, num_classes
        expected = [pattern.num_rows, num_classes]
        try:
            with torch.no_grad():
                if any(is_lazy(parameter) for parameter in self.parameters()):
                    self._set_training(False)
                    if self.takes_types:
                        typed_edges(pattern, name)
                    self._called(features, pattern)
                logits = self(features, pattern, self.initial_strength(pattern))
        except InvalidInput:
            raise
        except Exception as error:
            how = "x_dict, edge_index_dict" if self.takes_types else "x, edge_index"
            raise InvalidInput(
                f"{name} could not be called as module({how}) with x "
                f"{list(features.shape)}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(logits, Tensor):
            raise InvalidInput(
                f"{name} returned a {type(logits).__name__}, expected one tensor "
                f"{expected}, the logits."
            )
        if list(logits.shape) != expected:
            raise InvalidInput(
                f"{name} returned shape {list(logits.shape)}, expected {expected}, one "
                "logit for each node and class."
            )
        self.num_propagations = self._num_gated
        self._check_training(features, pattern)

    def _check_training(self, features: Features, pattern: Pattern) -> None:
        name = self._name
        weights = {
            key: weight.detach().requires_grad_()
            for key, weight in self.named_parameters()
            if weight.requires_grad
        }
        if not weights:
            raise InvalidInput(f"{name} has no weights to train.")
        strengths = self.initial_strength(pattern).requires_grad_()
        inputs = (features, pattern, strengths, Noise(seed=0, step=1))
        try:
            with torch.enable_grad():
                logits = functional_call(self, weights, inputs)
                num_gated = self._num_gated
                hypergradient = _second_order(logits, list(weights.values()), strengths)
        except InvalidInput:
            raise
        except RuntimeError as error:
            raise InvalidInput(
                f"{name} cannot be differentiated twice: {error}"
            ) from error
        if hypergradient is None:
            raise InvalidInput(
                f"{name} cannot be differentiated twice: the gradient of its weights "
                "does not depend on the strengths."
            )
        if not bool(hypergradient.isfinite().all()):
            raise InvalidInput(
                f"{name} cannot be differentiated twice: the second derivative with "
                "respect to weights and strengths is not finite."
            )
        with torch.no_grad():
            again = functional_call(self, weights, inputs)
        if num_gated != self.num_propagations or not torch.allclose(logits, again):
            raise InvalidInput(
                f"{name} cannot be replayed: two calls with the same weights and noise "
                "differ, or training and evaluation propagate differently often."
            )

    @property
    def _name(self) -> str:
        """The model and the layers in it, for error messages."""
        layers = {type(layer).__name__ for layer in message_layers(self.module)}
        return f"{type(self.module).__name__} ({', '.join(sorted(layers))})"

    def _set_training(self, training: bool) -> None:
        if self.module.training != training:
            self.module.train(training)


def _second_order(
    logits: Tensor, weights: list[Tensor], strengths: Tensor
) -> Tensor | None:
    """Gradient of a projection of the weights' gradient, with respect to strengths."""
    labels = torch.arange(len(logits), device=logits.device) % logits.shape[1]
    gradients = torch.autograd.grad(
        cross_entropy(logits, labels), weights, create_graph=True, allow_unused=True
    )
    # A fixed direction without symmetry, drawn from no generator.
    projection = sum(
        (g * torch.linspace(0.5, 1.5, g.numel()).to(g).view_as(g)).sum()
        for g in gradients
        if g is not None and g.requires_grad
    )
    if not isinstance(projection, Tensor):
        return None
    # Not autograd.grad: it would step around functions that are differentiable once.
    torch.autograd.backward(projection)
    return strengths.grad


@contextmanager
def _seeded(noise: Noise, device: torch.device) -> Iterator[None]:
    """Seed torch's generators from ``noise``, and put them back."""
    high, low = noise.keys(_SITE)
    seed, devices = (high << 32) | low, []
    if device.type == "cuda":
        own = device.index
        devices.append(torch.cuda.current_device() if own is None else own)
    with torch.random.fork_rng(devices=devices, device_type="cuda"):
        # torch.manual_seed would also queue a seed for every absent device.
        torch.default_generator.manual_seed(seed)
        for index in devices:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield


def _edge_index(pattern: Pattern) -> Tensor:
    """The edges of a pattern that ends in a self-loop for every node."""
    if pattern not in _edge_indices:
        entries = torch.stack([pattern.column_of_entry, pattern.row_of_entry])
        num_edges = max(pattern.num_entries - pattern.num_rows, 0)
        nodes = torch.arange(pattern.num_rows, device=pattern.device)
        if not torch.equal(entries[:, num_edges:], nodes.expand(2, -1)):
            raise InvalidInput(
                "the pattern does not end in one self-loop per node, in node order."
            )
        _edge_indices[pattern] = entries[:, :num_edges].contiguous()
    return _edge_indices[pattern]


def _dense_features(features: Features) -> Tensor:
    if isinstance(features, Tensor):
        return features
    if features not in _dense:
        _dense[features] = features.to_dense()
    return _dense[features]
