"""Multiply each message of any PyG model by the strength of its edge, from outside."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing

from gsebo.errors import InvalidInput


@contextmanager
def gated(
    module: nn.Module, strengths: Tensor, edge_index: Tensor, num_nodes: int
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

    Yields:
        The gate, which counts the propagations.

    Raises:
        InvalidInput: Where messages cannot be matched to edges.

    >>> from torch_geometric.nn import GINConv
    >>> conv = GINConv(torch.nn.Identity())
    >>> edge_index = torch.tensor([[0], [1]])
    >>> with gated(conv, torch.tensor([0.5]), edge_index, num_nodes=2):
    ...     conv(torch.tensor([[1.0], [0.0]]), edge_index).flatten().tolist()
    [1.0, 0.5]
    """
    gate = Gate(module, strengths, edge_index, num_nodes)
    handles = []
    try:
        for layer in message_layers(module):
            handles += [
                layer.register_propagate_forward_pre_hook(gate.on_propagate),
                layer.register_message_forward_hook(gate.on_message),
                layer.register_forward_hook(gate.on_call),
            ]
        yield gate
    finally:
        for handle in handles:
            handle.remove()
    gate.finish()


def message_layers(module: nn.Module) -> list[MessagePassing]:
    """All message passing layers in ``module``, itself included."""
    return [layer for layer in module.modules() if isinstance(layer, MessagePassing)]


@final
class Gate:
    """The hooks of one ``with`` block.

    Attributes:
        num_propagations: Number of propagations that were gated.
    """

    def __init__(
        self, module: nn.Module, strengths: Tensor, edge_index: Tensor, num_nodes: int
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
            self._check_edges(layer, edge_index)
        if layer.flow != "source_to_target":
            raise self._refused(
                layer, f"has flow={layer.flow!r}, expected 'source_to_target'"
            )
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
        self._strength[layer] = strengths[:count]
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

    def _check_edges(self, layer: MessagePassing, edge_index: Any) -> None:
        plain = isinstance(edge_index, Tensor) and edge_index.layout == torch.strided
        if not plain or isinstance(edge_index, EdgeIndex):
            raise self._refused(
                layer,
                f"propagates along a {type(edge_index).__name__} whose fused "
                "aggregation loses the gradient, expected an ordinary edge_index "
                "tensor",
            )
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
        kind = type(layer).__name__
        name = next(names)
        return InvalidInput(f"layer {f'{name} ({kind})' if name else kind} {why}.")
