"""The backbones by name: one entry each."""

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from gsebo.errors import InvalidInput
from gsebo.names import imported, normalise

if TYPE_CHECKING:
    from torch import nn

    from gsebo.nn.base import Backbone


T = TypeVar("T")
Options = Mapping[str, Any]
_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


@dataclass(frozen=True)
class BackboneInfo:
    """How a backbone is built and what it is.

    Its place is the class, its ``"MODULE:NAME"``, or whatever takes the sizes and, as
    keywords, the options; those that the name stands for are given here.
    """

    place: "str | Callable[..., Backbone]"
    description: str
    paper: str
    options: Options = field(default_factory=dict)


BACKBONES: dict[str, BackboneInfo] = {
    "gcn": BackboneInfo(
        "gsebo.nn.gcn:GCN", "graph convolutions", "Kipf and Welling, ICLR 2017"
    ),
    "gat": BackboneInfo(
        "gsebo.nn.gat:GAT", "attention over neighbors", "Veličković et al., ICLR 2018"
    ),
    "sage": BackboneInfo(
        "gsebo.nn.sage:SAGE",
        "mean of the neighbors beside the node itself",
        "Hamilton et al., NeurIPS 2017",
    ),
    "sage-gcn": BackboneInfo(
        "gsebo.nn.sage:SAGE",
        "mean of the neighbors and the node itself",
        "Hamilton et al., NeurIPS 2017",
        {"aggregator": "gcn"},
    ),
    "jk": BackboneInfo(
        "gsebo.nn.jk:JKNet",
        "graph convolutions, all layers seen by the read-out",
        "Xu et al., ICML 2018",
    ),
    "jk-sage": BackboneInfo(
        "gsebo.nn.jk:JKNet",
        "GraphSAGE (gcn), all layers seen by the read-out",
        "Xu et al., ICML 2018",
        {"convolution": "sage"},
    ),
    "jk-sage-mean": BackboneInfo(
        "gsebo.nn.jk:JKNet",
        "GraphSAGE (mean), all layers seen by the read-out",
        "Xu et al., ICML 2018",
        {"convolution": "sage-mean"},
    ),
    "appnp": BackboneInfo(
        "gsebo.nn.appnp:APPNP",
        "a perceptron, then personalised PageRank",
        "Gasteiger et al., ICLR 2019",
    ),
    "gcnii": BackboneInfo(
        "gsebo.nn.gcnii:GCNII",
        "deep graph convolutions that remember the first layer",
        "Chen et al., ICML 2020",
    ),
    "grand": BackboneInfo(
        "gsebo.nn.grand:GRAND",
        "random propagation, then a perceptron",
        "Feng et al., NeurIPS 2020",
    ),
    "relational-gcn": BackboneInfo(
        "gsebo.nn.relational:RelationalGCN",
        "R-GCN: a map for each relation, of a graph with types",
        "Schlichtkrull et al., ESWC 2018",
    ),
    "han": BackboneInfo(
        "gsebo.nn.han:HAN",
        "attention in each relation, and over relations",
        "after Wang et al., WWW 2019",
    ),
    "biweight": BackboneInfo(
        "gsebo.nn.biweight:BiweightNet",
        "votes of neighbors; too different ones do not count",
        "after Hou et al., NeurIPS 2024",
    ),
    "magna": BackboneInfo(
        "gsebo.methods.baselines.magna:MAGNANet",
        "attention diffused over several hops",
        "Wang et al., IJCAI 2021",
    ),
    "stable": BackboneInfo(
        "gsebo.methods.baselines.stable:StableNet",
        "graph convolutions behind a wide encoder",
        "Li et al., KDD 2022",
    ),
    "rgcn": BackboneInfo(
        "gsebo.methods.defences.rgcn:RGCNNet",
        "graph convolutions of Gaussians",
        "Zhu et al., KDD 2019",
    ),
    "gnnguard": BackboneInfo(
        "gsebo.methods.defences.gnnguard:GNNGuardNet",
        "graph convolutions by similarity in each layer",
        "Zhang and Zitnik, NeurIPS 2020",
    ),
    "soft-median": BackboneInfo(
        "gsebo.methods.defences.soft_median:SoftMedianNet",
        "soft medians of neighbors",
        "Geisler et al., NeurIPS 2021",
    ),
    "mlp": BackboneInfo("gsebo.nn.mlp:MLP", "no edges: the control", "-"),
}
"""What ``backbone`` may be, by name, with a line on each."""


def make_backbone(
    spec: "str | type[nn.Module] | nn.Module",
    *,
    in_channels: int,
    hidden_channels: int,
    out_channels: int,
    num_layers: int,
    dropout: float,
    options: Options | None = None,
) -> "Backbone":
    """Build a backbone; the caller has set torch's seed.

    Args:
        spec: Name of ``BACKBONES``, or of a model or layer of ``torch_geometric.nn``
            (``"pyg:GCN"`` where both have it); a class; or an instance, which is
            copied.
        in_channels: Number of features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of classes.
        num_layers: Number of layers.
        dropout: Rate of dropout, in [0, 1).
        options: Further arguments of the backbone.

    >>> sizes = dict(in_channels=5, hidden_channels=4, out_channels=3)
    >>> type(make_backbone("gcn", **sizes, num_layers=2, dropout=0.5)).__name__
    'GCN'
    """
    # Not at the top: names are to be read without torch, ours to be built without PyG.
    from gsebo.nn.base import Backbone

    if hidden_channels < 1 or num_layers < 1:
        raise InvalidInput(
            f"hidden_channels is {hidden_channels} and num_layers is {num_layers}, "
            "expected at least 1."
        )
    if not 0 <= dropout < 1:
        raise InvalidInput(f"dropout is {dropout}, expected 0 <= dropout < 1.")
    options = options or {}
    sizes: dict[str, Any] = {
        "in_channels": in_channels,
        "hidden_channels": hidden_channels,
        "out_channels": out_channels,
        "num_layers": num_layers,
        "dropout": dropout,
    }
    if isinstance(spec, Backbone):
        no_options(spec, options)
        return deepcopy(spec)
    if isinstance(spec, str):
        if (name := normalise(spec)) in BACKBONES:
            build: Callable[..., Backbone] = imported(BACKBONES[name].place)
            return construct(build, sizes, options, BACKBONES[name].options)
        from gsebo.nn.pyg.build import pyg_class

        spec = pyg_class(spec, BACKBONES)
    if isinstance(spec, type) and issubclass(spec, Backbone):
        return construct(spec, sizes, options)
    from gsebo.nn.pyg.adapter import PyGBackbone
    from gsebo.nn.pyg.build import build_pyg_module

    return PyGBackbone(build_pyg_module(spec, sizes, options))


def construct(
    build: Callable[..., T],
    sizes: Options,
    options: Options,
    fixed: Options = MappingProxyType({}),
) -> T:
    """Call ``build`` with those of ``sizes`` that it takes, and all ``options``.

    Those that are fixed cannot be given.
    """
    name = getattr(build, "__name__", str(build))
    if isinstance(build, partial):
        fixed, name = {**build.keywords, **fixed}, build.func.__name__
    parameters = inspect.signature(build).parameters
    takes = {key: each for key, each in parameters.items() if key not in fixed}
    named = {key: each for key, each in takes.items() if each.kind not in _VARIADIC}
    given = {**{k: v for k, v in sizes.items() if k in takes}, **options}
    takes_any = any(each.kind is _VARIADIC[0] for each in takes.values())
    unknown = [option for option in options if option not in takes or option in sizes]
    if unknown and (not takes_any or set(unknown) & set(sizes)):
        free = [key for key in named if key not in sizes]
        raise InvalidInput(
            f"{name} does not take option {', '.join(map(repr, unknown))}, its options "
            f"are: {', '.join(free) or 'none'}."
        )
    missing = [
        key
        for key, parameter in named.items()
        if key not in given and parameter.default is inspect.Parameter.empty
    ]
    if missing:
        raise InvalidInput(f"{name} needs {', '.join(missing)}, give them as options.")
    try:
        return build(**given, **fixed)
    except InvalidInput:
        raise
    except (TypeError, ValueError, AssertionError, ImportError) as error:
        raise InvalidInput(f"{name} could not be built: {error}") from error


def no_options(module: "nn.Module", options: Options) -> None:
    """Refuse options for what is built already."""
    if options:
        raise InvalidInput(
            f"options {', '.join(options)} given with a {type(module).__name__} that "
            "is built already, expected none."
        )
