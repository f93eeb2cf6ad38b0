"""PyG models from a name, a class or an instance."""

import inspect
from collections.abc import Iterable
from copy import deepcopy
from difflib import get_close_matches
from functools import cache
from typing import final

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gsebo.errors import InvalidInput
from gsebo.names import normalise
from gsebo.nn.registry import Options, construct, no_options


def build_pyg_module(
    spec: str | type[nn.Module] | nn.Module, sizes: Options, options: Options
) -> nn.Module:
    """Build a module that is called as ``module(x, edge_index)``.

    Args:
        spec: Name of a model or layer of ``torch_geometric.nn``; a class, which is
            given those of the sizes that it takes; or an instance, which is copied
            and its weights drawn anew from torch's global generator wherever it has
            ``reset_parameters``. A layer becomes a :class:`ConvStack`.
        sizes: Channels, ``num_layers`` and ``dropout``, by name.
        options: Further arguments of the class.

    >>> sizes = dict(in_channels=5, hidden_channels=4, out_channels=3, num_layers=2)
    >>> build_pyg_module("GATv2", sizes | {"dropout": 0.5}, {"heads": 2}).convs
    ModuleList(
      (0): GATv2Conv(5, 4, heads=2)
      (1): GATv2Conv(8, 3, heads=2)
    )
    """
    if isinstance(spec, nn.Module):
        no_options(spec, options)
        module = deepcopy(spec)
        reset_parameters(module)
        return module
    build = pyg_class(spec) if isinstance(spec, str) else spec
    if issubclass(build, pyg.MessagePassing):
        return ConvStack(build, sizes, options)
    return construct(build, sizes, options)


@final
class ConvStack(nn.Module):
    """Layers of one class: convolution, ReLU, dropout, ..., convolution.

    Heads are concatenated in the hidden layers and averaged in the last one. A layer
    that needs a network, such as GIN, is given Linear-ReLU-Linear.
    """

    def __init__(self, conv: type[nn.Module], sizes: Options, options: Options) -> None:
        super().__init__()
        takes = inspect.signature(conv).parameters
        concat = "heads" in takes and "concat" in takes and options.get("concat", True)
        heads = options.get("heads", 1) if concat else 1
        self.convs = nn.ModuleList()
        width, hidden = sizes["in_channels"], sizes["hidden_channels"]
        for _ in range(sizes["num_layers"] - 1):
            self.convs.append(_convolution(conv, width, hidden, options))
            width = heads * hidden
        averaged = {**options, "concat": False} if concat else options
        self.convs.append(_convolution(conv, width, sizes["out_channels"], averaged))
        self.dropout = nn.Dropout(sizes["dropout"])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the logits, ``[nodes, classes]``."""
        for conv in self.convs[:-1]:
            x = self.dropout(torch.relu(conv(x, edge_index)))
        logits: Tensor = self.convs[-1](x, edge_index)
        return logits


def _convolution(
    conv: type[nn.Module], in_channels: int, out_channels: int, options: Options
) -> nn.Module:
    takes = inspect.signature(conv).parameters
    if "in_channels" in takes and "out_channels" in takes:
        sizes = {"in_channels": in_channels, "out_channels": out_channels}
        return construct(conv, sizes, options)
    if "nn" not in takes:
        raise InvalidInput(
            f"{conv.__name__} takes no in_channels and out_channels and cannot be "
            "stacked; expected a module that uses it."
        )
    # An EdgeConv sees the node and the difference to its neighbor.
    width = 2 * in_channels if issubclass(conv, pyg.EdgeConv) else in_channels
    network = nn.Sequential(
        nn.Linear(width, out_channels), nn.ReLU(), nn.Linear(out_channels, out_channels)
    )
    return construct(conv, {"nn": network}, options)


def reset_parameters(module: nn.Module) -> None:
    """Call ``reset_parameters`` of ``module``, or of those inside it that have one."""
    reset = getattr(module, "reset_parameters", None)
    if reset is not None:
        reset()
    # What MessagePassing itself resets are aggregations, not weights of a subclass.
    inherited = getattr(reset, "__func__", None) is pyg.MessagePassing.reset_parameters
    if reset is None or inherited:
        for child in module.children():
            reset_parameters(child)


def pyg_class(name: str, others: Iterable[str] = ()) -> type[nn.Module]:
    """Return the model or layer of PyG called ``name``, with or without ``Conv``.

    The name may be in any case and start with ``pyg:``; ``others`` are further ones to
    suggest when there is none.
    """
    wanted = normalise(name.removeprefix("pyg:"))
    by_name = {normalise(key): key for key in _pyg_classes()}
    for candidate in (wanted, f"{wanted}conv"):
        if candidate in by_name:
            return _pyg_classes()[by_name[candidate]]
    by_name |= {normalise(key): key for key in others}
    nearest = get_close_matches(wanted, by_name, n=1, cutoff=0.5)
    hint = f", did you mean {by_name[nearest[0]]!r}?" if nearest else "."
    ours = f"{', '.join(others)}, or " if others else ""
    raise InvalidInput(
        f"unknown backbone {name!r}{hint} Expected one of: {ours}a model or layer of "
        "torch_geometric.nn."
    )


@cache
def _pyg_classes() -> dict[str, type[nn.Module]]:
    """Layers and models by name; of two with one name, the model."""
    found = {}
    for package in (pyg.conv, pyg.models):
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isclass(value) and issubclass(value, nn.Module):
                found[name] = value
    return found
