"""Checks of what a user hands in, each failure one sentence."""

import copy
import warnings
from collections.abc import Collection, Sequence
from itertools import combinations
from numbers import Integral

import torch
from torch import Tensor

from gsebo.data.relations import require_types
from gsebo.errors import InputWarning, InvalidInput, escaped
from gsebo.graph.features import require_features, require_numbers
from gsebo.graph.graph import Graph, as_graph
from gsebo.graph.node_match import node_ids

MASKS = ("train_mask", "val_mask", "test_mask")
_MOST_NODES_PER_EDGE = 64
_FEW_NODES = 10**6
_SUPPORTED = "expected a graph to classify nodes in, with one class per node"
# Columns whose scales differ more than so are not of one unit.
_FAR_APART = 1000.0
_ENOUGH_ROWS = 2**16
# Of a matrix with fewer non-zeros, the spread of a column says how rare they are.
_DENSE = 0.25
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_HINTS = {
    "x": "; only the method auto does without, or features='degree'",
    **dict.fromkeys(
        MASKS, ", or gsebo.apply_split(graph, 'random:10/20/70'), which draws masks"
    ),
}


def _nodes_without_features(data: Graph) -> int:
    """``num_nodes`` where it was set, the length of ``y``, or what the edges name."""
    # As it was set, not as a graph would infer it from its edges.
    stated = data.get("num_nodes")
    if stated is not None:
        if not isinstance(stated, Integral):
            raise InvalidInput(
                f"num_nodes={stated!r:.40} given: expected a whole number."
            )
        return int(stated)
    for key in ("y", *MASKS):
        if key in data and isinstance(data[key], Tensor) and data[key].dim():
            return int(data[key].shape[0])
    return int(data.edge_index.max()) + 1


def most_nodes(num_edges: int) -> int:
    """Above it, numbers of nodes in so many edges are more likely names, or a slip."""
    return max(_FEW_NODES, _MOST_NODES_PER_EDGE * num_edges)


def sized(data: Graph) -> Graph:
    """Return a graph that knows its number of nodes: itself, or a shallow copy."""
    if "x" in data and data.x is not None:
        return data
    counted = copy.copy(data)
    counted.num_nodes = _nodes_without_features(data)
    return counted


def validate(
    data: Graph, *, labels_needed: bool = True, features_needed: bool = True
) -> None:
    """Raise `InvalidInput` unless ``data`` is a graph that can be learned from.

    It has ``x``, ``edge_index`` and, when labels are needed, ``y``, ``train_mask``,
    ``val_mask`` and perhaps ``test_mask``; ``node_id``, ``edge_weight`` and
    ``edge_attr`` are checked where they are there.
    The labels of nodes outside the training and validation masks are never read.

    Args:
        data: What may be a graph.
        labels_needed: Whether it has to have labels and masks.
        features_needed: Whether it has to have features.
    """
    data = as_graph(data)
    num_nodes = require_graph(data, features_needed=features_needed)
    if _present(data, "x"):
        values = data.x.values() if data.x.layout == torch.sparse_csr else data.x
        if not bool(torch.isfinite(values).all()):
            raise InvalidInput(
                "x holds NaN or infinite values: expected finite numbers."
            )
    if bool((data.edge_index[0] == data.edge_index[1]).all()):
        raise InvalidInput("the graph has only self-loops: expected at least one edge.")
    require_edge_values(data)
    if _present(data, "node_id"):
        _check_node_ids(data, num_nodes)
    if labels_needed:
        _check_labels(data, num_nodes)


def require_graph(data: Graph, *, features_needed: bool = False) -> int:
    """Count the nodes, or raise unless features and edges can be read without harm.

    So are types of nodes and relations of edges, where there are some. Labels and masks
    are not looked at, nor whether anything can be learned.
    """
    data = as_graph(data)
    if features_needed or _present(data, "x"):
        x = require_features(_value(data, "x"))
        if x.shape[0] == 0:
            raise InvalidInput("the graph is empty: expected at least one node, got 0.")
        if x.shape[1] == 0:
            raise InvalidInput("x has no columns: expected at least one feature.")
        num_nodes = int(x.shape[0])
    else:
        num_nodes = _count_without_features(data)
    _check_edges(data, num_nodes)
    require_types(data, num_nodes)
    return num_nodes


def require_edge_values(data: Graph) -> None:
    """Raise unless each edge has a weight that can be used, and attributes, if any.

    Ends of edges have been checked before.
    """
    count, is_edge = data.num_edges, data.edge_index[0] != data.edge_index[1]
    if _present(data, "edge_weight"):
        weight = _real(data, "edge_weight")
        if weight.shape != (count,):
            hint = "; squeeze it with edge_weight[:, 0]" * (weight.dim() == 2)
            raise InvalidInput(
                f"expected edge_weight with shape [{count}], one for each edge, got "
                f"{list(weight.shape)}{hint}."
            )
        if bool((weight < 0).any()):
            raise InvalidInput(
                f"edge_weight holds {float(weight.min())}: expected 0 or more."
            )
        used = weight.float()[is_edge.to(weight.device)]
        if not bool(used.any()):
            raise InvalidInput(
                "edge_weight is 0 for all edges: expected at least one above 0."
            )
        if not bool(used.sum().isfinite()):
            raise InvalidInput(
                f"edge_weight holds up to {float(weight.max()):.3g}: expected weights "
                "whose sum single precision can hold."
            )
    if _present(data, "edge_attr"):
        attr = _real(data, "edge_attr")
        if attr.dim() not in (1, 2) or attr.shape[0] != count or not attr.numel():
            raise InvalidInput(
                f"expected edge_attr with shape [{count}] or [{count}, columns], a row "
                f"for each edge, got {list(attr.shape)}."
            )


def num_classes(data: Graph) -> int:
    """Count the classes: the largest training or validation label plus one.

    Args:
        data: A graph with labels and masks.
    """
    data = as_graph(data)
    return int(data.y[data.train_mask | data.val_mask].max()) + 1


def _tensor(data: Graph, key: str) -> Tensor:
    """Return the dense tensor called ``key`` or say that it is missing."""
    value = _value(data, key)
    if not isinstance(value, Tensor):
        raise InvalidInput(f"expected {key} as a tensor, got {type(value).__name__}.")
    if value.is_nested or value.layout != torch.strided:
        raise InvalidInput(f"expected {key} as a dense tensor, got {value.layout}.")
    require_numbers(value, key)
    return value


def _real(data: Graph, key: str) -> Tensor:
    """Return the dense tensor of finite real numbers called ``key``."""
    value = _tensor(data, key)
    if not (value.is_floating_point() or value.dtype in _INTEGERS):
        raise InvalidInput(f"expected {key} as real numbers, got {value.dtype}.")
    if not bool(torch.isfinite(value).all()):
        raise InvalidInput(
            f"{key} holds NaN or infinite values: expected finite numbers."
        )
    return value


def _value(data: Graph, key: str) -> object:
    if not _present(data, key):
        hint = _HINTS.get(key, "")
        raise InvalidInput(
            f"the graph has no {key}: expected a tensor called {key!r}{hint}."
        )
    return data[key]


def _count_without_features(data: Graph) -> int:
    """Count the nodes; where the edges are none, the next check says so."""
    edges = data.edge_index if _present(data, "edge_index") else None
    if not isinstance(edges, Tensor):
        return 1
    _tensor(data, "edge_index")
    if edges.dtype not in _INTEGERS or edges.dim() != 2 or not edges.numel():
        return 1
    found = _nodes_without_features(data)
    most = most_nodes(edges.shape[1])
    if not 0 < found <= most:
        raise InvalidInput(
            f"the graph counts {found:,} nodes and has no x: expected 1 to {most:,}, "
            f"as there are {edges.shape[1]:,} edges."
        )
    return found


def _check_edges(data: Graph, num_nodes: int) -> None:
    """Check that ``edge_index`` is a list of pairs of existing nodes."""
    if not _present(data, "edge_index") and _present(data, "adj_t"):
        raise InvalidInput(
            "the graph has a sparse adj_t, which is not supported, and no edge_index: "
            "expected edge_index = torch.stack(adj_t.t().coo()[:2])."
        )
    edges = _tensor(data, "edge_index")
    if edges.dtype not in _INTEGERS:
        raise InvalidInput(f"expected edge_index as integers, got {edges.dtype}.")
    if edges.dim() != 2 or edges.shape[0] != 2:
        raise InvalidInput(
            f"expected edge_index as [2, edges], got {list(edges.shape)}."
        )
    # What the graph says of the number of its nodes may be anything.
    stated: object = data.num_nodes if _present(data, "x") else num_nodes
    if not isinstance(stated, Integral) or stated != num_nodes:
        raise InvalidInput(
            f"x has {num_nodes} rows: expected one for each of {stated!r:.40} nodes."
        )
    if edges.shape[1] == 0:
        raise InvalidInput("the graph has no edges: expected at least one.")
    low, high = (int(end) for end in edges.aminmax())
    if low < 0 or high >= num_nodes:
        whose = "x" if _present(data, "x") else "y"
        raise InvalidInput(
            f"edge_index names node {low if low < 0 else high}: "
            f"expected 0 to {num_nodes - 1}, as {whose} has {num_nodes} rows."
        )


def _check_node_ids(data: Graph, num_nodes: int) -> None:
    """Check that each node has a name of its own."""
    if isinstance(data.node_id, Tensor):
        given = _tensor(data, "node_id")
        if given.dtype not in _INTEGERS:
            raise InvalidInput(f"expected node_id as integers, got {given.dtype}.")
    ids = node_ids(data)
    assert ids is not None
    if tuple(ids.shape) != (num_nodes,):
        raise InvalidInput(
            f"expected node_id with shape [{num_nodes}], got {list(ids.shape)}."
        )
    names: Collection[object] = set(ids.tolist())
    if "" in names:
        raise InvalidInput("node_id holds an empty text: expected a name for each.")
    if len(names) < num_nodes:
        kind = "numbers" if isinstance(ids, Tensor) else "texts"
        raise InvalidInput(
            f"node_id holds {len(names)} distinct {kind} for {num_nodes} nodes: "
            "expected another one for each node."
        )


def _check_class_names(data: Graph) -> None:
    """Check that classes have names of their own, where they have any."""
    names, known = data.class_names, num_classes(data)
    if names is None:
        return
    if len(names) < known or len(set(names)) < len(names):
        raise InvalidInput(
            f"meta names {len(names)} classes, {len(set(names))} of them different: "
            f"expected another name for each of {known}."
        )


def _check_labels(data: Graph, num_nodes: int) -> None:
    """Check labels and masks, reading only training and validation labels."""
    if _present(data, "edge_label_index"):
        raise InvalidInput(
            "the graph has edge_label_index, as one part of a RandomLinkSplit has it, "
            f"for predicting links: {_SUPPORTED}."
        )
    y = _tensor(data, "y")
    _refuse_other_tasks(data, y, num_nodes)
    if y.dtype not in _INTEGERS:
        raise InvalidInput(f"expected y as integer classes, got {y.dtype}.")
    _require_shape(y, "y", num_nodes)
    masks = _checked_masks(data, num_nodes)
    _check_types_of_masks(data, masks)
    train, val = y[masks["train_mask"]].long(), y[masks["val_mask"]].long()
    known = torch.cat([train, val])
    if int(known.min()) < 0:
        raise InvalidInput(
            f"a training or validation node has label {int(known.min())}: "
            "expected classes numbered from 0."
        )
    if int(known.max()) >= max(num_nodes, 2):
        raise InvalidInput(
            f"y holds label {int(known.max())} for a graph of {num_nodes} nodes: "
            "expected classes numbered 0, 1, 2 and so on."
        )
    _check_class_names(data)
    names = data.class_names or range(int(known.max()) + 1)
    _check_training_classes(torch.unique(train), torch.unique(known), names)


def _refuse_other_tasks(data: Graph, y: Tensor, num_nodes: int) -> None:
    """Raise for labels that are those of another task than classifying nodes."""
    shape = list(y.shape)
    if shape[:1] != [num_nodes] and (y.numel() == 1 or _present(data, "batch")):
        raise InvalidInput(
            f"y has shape {shape} for {num_nodes} nodes, as labels of whole graphs: "
            f"{_SUPPORTED}."
        )
    if y.dim() == 2 and y.shape[1] > 1 and len(y) == num_nodes:
        raise InvalidInput(
            f"y has shape {shape}, as several labels or targets per node: {_SUPPORTED}."
        )
    if y.is_floating_point():
        raise InvalidInput(
            f"y is {str(y.dtype).removeprefix('torch.')}, as the targets of a "
            f"regression: {_SUPPORTED}, as integers."
        )


@torch.no_grad()
def warn_of_scales(x: Tensor) -> None:
    """Warn if columns of dense features differ by orders of magnitude."""
    if x.layout != torch.strided or x.shape[0] < 2:
        return
    rows = x[:: max(x.shape[0] // _ENOUGH_ROWS, 1)].double()
    if int(torch.count_nonzero(rows)) < _DENSE * rows.numel():
        return
    spread, mean = torch.std_mean(rows, dim=0, correction=0)
    varied = spread[spread > 1e-6 * mean.abs()]
    if not varied.numel():
        return
    factor = float(varied.max() / varied.min())
    if factor > _FAR_APART:
        warnings.warn(
            f"the columns of x differ in scale by a factor of {factor:.0g}, and the "
            "largest will drown the others: features='standard' brings all to one.",
            InputWarning,
            stacklevel=4,
        )


def _checked_masks(data: Graph, num_nodes: int) -> dict[str, Tensor]:
    """Return the masks after checking each and that no two overlap."""
    needed = MASKS if _present(data, "test_mask") else MASKS[:2]
    masks = {key: _tensor(data, key) for key in needed}
    for key, mask in masks.items():
        if mask.dtype != torch.bool:
            raise InvalidInput(f"expected {key} as bool, got {mask.dtype}.")
        hint = f"; pick one of several with {key}[:, 0]" * (mask.dim() == 2)
        _require_shape(mask, key, num_nodes, hint)
        if key != "test_mask" and not bool(mask.any()):
            raise InvalidInput(f"{key} is empty: expected at least one node in it.")
    for first, second in combinations(masks, 2):
        shared = int((masks[first] & masks[second]).sum())
        if shared:
            raise InvalidInput(
                f"{first} and {second} share {shared} nodes: expected disjoint masks."
            )
    return masks


def _check_types_of_masks(data: Graph, masks: dict[str, Tensor]) -> None:
    """Check that masks hold nodes of the type alone that ``meta`` says has classes."""
    if (types := data.types) is None or not data.meta or not data.meta.get("target"):
        return
    assert types.classified is not None
    other = types.node_type != types.classified
    for key, mask in masks.items():
        if bool((wrong := mask.cpu() & other).any()):
            found = types.node_types[int(types.node_type[wrong][0])]
            raise InvalidInput(
                f"{key} holds a node of the type {escaped(found, longest=40)!r}: "
                "expected those of the target in meta, "
                f"{escaped(types.node_types[types.classified], longest=40)!r}, alone."
            )


def _check_training_classes(
    trained: Tensor, known: Tensor, names: Sequence[object]
) -> None:
    """Raise if there is nothing to tell apart, warn of classes never trained on."""
    if trained.numel() < 2:
        raise InvalidInput(
            f"all training nodes are of class {names[int(trained[0])]}: "
            "expected at least two classes in train_mask."
        )
    numbers = known[~torch.isin(known, trained)].tolist()
    unseen = [str(names[number]) for number in numbers]
    if unseen:
        warnings.warn(
            f"no training node is of class {', '.join(unseen)}, "
            "which validation nodes have: it cannot be learned.",
            InputWarning,
            stacklevel=4,
        )


def _present(data: Graph, key: str) -> bool:
    return key in data and data[key] is not None


def _require_shape(tensor: Tensor, key: str, num_nodes: int, hint: str = "") -> None:
    if tensor.shape != (num_nodes,):
        raise InvalidInput(
            f"expected {key} with shape [{num_nodes}], got {list(tensor.shape)}{hint}."
        )
