"""Which nodes train, validate and test: named, seeded splits."""

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gsebo.data.relations import TYPES, classified_nodes, kept_with_nodes
from gsebo.data.seeding import seeded_generator
from gsebo.data.validate import MASKS, require_graph, sized
from gsebo.errors import InvalidInput, escaped
from gsebo.graph.features import require_numbers, take_rows, whole_numbers
from gsebo.graph.graph import Graph, GraphLike, as_graph, given_back
from gsebo.graph.node_match import node_ids
from gsebo.names import lookup, normalise, own_name


def has_unseen(data: Graph) -> bool:
    """Whether a fit may not see some of the nodes."""
    return "unseen_mask" in data and data.unseen_mask is not None


def refuse_unseen(data: Graph) -> None:
    """Raise if a fit is about to see nodes that it may not."""
    if has_unseen(data):
        raise InvalidInput(
            f"unseen_mask marks {int(data.unseen_mask.sum())} nodes that a fit may not "
            "see: expected the graph without them, gsebo.data.visible_part(data)."
        )


def visible_part(data: GraphLike) -> Any:
    """Return the graph without the nodes of ``unseen_mask`` and without their edges.

    Nodes and edges keep their order, edges their weight, and nodes their ``node_id``,
    which makes them known again in the whole graph.

    Args:
        data: A graph, perhaps with an ``unseen_mask``.
    """
    graph = as_graph(data)
    visible = ~graph.unseen_mask.cpu()
    nodes = visible.nonzero().squeeze(-1)
    place = torch.full(visible.shape, -1)
    place[nodes] = torch.arange(nodes.numel())
    edges = place[graph.edge_index.cpu()]
    kept = (edges >= 0).all(0)
    part = Graph(edge_index=edges[:, kept].to(graph.edge_index))
    if "x" in graph:
        part.x = take_rows(graph.x, nodes.to(graph.x.device))
    else:
        part.num_nodes = nodes.numel()
    for key in ("y", *MASKS, *kept_with_nodes(graph)):
        if key in graph:
            part[key] = graph[key][nodes.to(graph[key].device)]
    if (ids := node_ids(graph)) is not None:
        numbers = isinstance(ids, torch.Tensor)
        part.node_id = ids[nodes if numbers else nodes.numpy()]
    for key in ("edge_weight", "edge_attr", "edge_type"):
        if key in graph:
            part[key] = graph[key][kept.to(graph[key].device)]
    if "meta" in graph:
        part.meta = graph.meta
    return given_back(part, data)


Nodes = NDArray[np.int64]

_ROW_BY_SEED = "seed"
_LONGEST_NAME = 100
_MOST_PARTS = 10


def apply_split(data: GraphLike, name: str, seed: int = 0) -> Graph:
    """Return a shallow copy of a graph with the masks of the split called ``name``.

    ====================  ==========================================================
    name                  nodes
    ====================  ==========================================================
    ``file``              the masks that came with the graph
    ``file:3``            row 3 of ``train_masks``, ``val_masks``, ``test_masks``
    ``file:seed``         row ``seed`` of them, and the first again after the last
    ``planetoid``         ``planetoid:20/500/1000``: 20 of each class train, then
                          500 validate and 1000 test, drawn with ``seed``
    ``ratio``             ``ratio:10/20/70``: percentages of each class, in the
                          order of the nodes
    ``random``            ``random:10/20/70``: percentages, drawn with ``seed``
    ``halves``            ``halves:file``: any other split without its test nodes;
                          of its validation nodes, half validate and the others test,
                          drawn with ``seed``: to choose parameters by
    ``unseen``            ``unseen:20:file``: any other split, of whose test nodes 20 %
                          test, drawn with ``seed``; ``unseen_mask`` has them too, for
                          a fit may not even see that they exist
    ``seen``              ``seen:20:file``: the same without ``unseen_mask``
    ====================  ==========================================================

    Nodes with a negative label are in no mask of a split that is made here.

    Args:
        data: Any graph that ``fit`` takes; it is not changed.
        name: A name of the table, with its numbers.
        seed: Draws the nodes, where they are drawn.

    Raises:
        InvalidInput: The name is unknown or the graph is too small for the split.
    """
    require_split_name(name)
    kind, _, detail = name.partition(":")
    make = lookup("split", kind, _SPLITS)
    split = make(sized(as_graph(data)), detail.strip(), seed)
    shown: Graph = given_back(split, data)
    return shown


def require_split_name(name: str) -> None:
    """Raise for what is no name, or one of splits within splits without end."""
    if not isinstance(name, str):
        raise InvalidInput(f"split {name!r:.40}: expected a name, such as 'file'.")
    if len(name) > _LONGEST_NAME or name.count(":") > _MOST_PARTS:
        raise InvalidInput(
            f"split '{escaped(name, longest=40)}' has {len(name)} characters and "
            f"{name.count(':') + 1} parts: expected up to {_LONGEST_NAME} and "
            f"{_MOST_PARTS + 1}."
        )


def is_drawn(name: str) -> bool:
    """Whether a split depends on its seed.

    Args:
        name: Of a split, as ``apply_split`` takes it.

    >>> is_drawn("random:10/20/70"), is_drawn("file"), is_drawn("file:seed")
    (True, False, True)
    """
    require_split_name(name)
    kind, _, detail = name.partition(":")
    own = own_name("split", kind, _SPLITS)
    return own in _DRAWN or (own == "file" and normalise(detail) == _ROW_BY_SEED)


def _from_file(data: Graph, detail: str, seed: int) -> Graph:
    keys = [f"{key}s" for key in MASKS] if detail else list(MASKS)
    missing = [key for key in keys if key not in data or data[key] is None]
    # A single split without test nodes can still be trained on.
    if missing and (detail or missing != ["test_mask"]):
        raise InvalidInput(f"the graph came without {missing[0]}: expected a file's.")
    if not detail:
        return copy(data)
    for key in keys:
        if not _is_mask(data[key], 2):
            raise InvalidInput(f"{key} is no table: expected bool [splits, nodes].")
    rows = min(len(data[key]) for key in keys)
    if rows and normalise(detail) == _ROW_BY_SEED:
        detail = str(seed % rows)
    if not (detail.isascii() and detail.isdigit() and int(detail) < rows):
        raise InvalidInput(
            f"split 'file:{detail}' asked for, and the graph came with {rows}: "
            f"expected a number below that, or '{_ROW_BY_SEED}'."
        )
    split = copy(data)
    for mask, table in zip(MASKS, keys, strict=True):
        split[mask] = data[table][int(detail)].clone()
    return split


def _is_mask(value: object, sides: int) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.dtype == torch.bool
        and value.dim() == sides
    )


def _nodes_of(data: Graph, key: str) -> Nodes:
    """The nodes of a mask that came with a graph."""
    if not _is_mask(data[key], 1):
        raise InvalidInput(f"{key} is no mask: expected bool [nodes].")
    return np.flatnonzero(whole_numbers(data, key))


def _planetoid(data: Graph, detail: str, seed: int) -> Graph:
    per_class, num_val, num_test = _numbers(detail or "20/500/1000", "planetoid")
    labels = _labels(data)
    order = seeded_generator(seed).permutation(np.flatnonzero(labels >= 0))
    train = []
    for members in _members_of_each_class(labels, order):
        if len(members) < per_class:
            raise InvalidInput(
                f"class {labels[members[0]]} has {len(members)} nodes: expected at "
                f"least the {per_class} that the planetoid split trains on."
            )
        train.append(members[:per_class])
    chosen = np.concatenate(train)
    rest = order[~np.isin(order, chosen)]
    if len(rest) < num_val + num_test:
        raise InvalidInput(
            f"{len(rest)} nodes remain after training: expected at least "
            f"{num_val + num_test} for the planetoid split."
        )
    parts = np.split(rest[: num_val + num_test], [num_val])
    return _with_masks(data, [chosen, *parts], "planetoid")


def _ratio(data: Graph, detail: str, seed: int) -> Graph:
    del seed
    percentages = _percentages(detail, "ratio")
    labels = _labels(data)
    order = np.flatnonzero(labels >= 0)
    classes = _members_of_each_class(labels, order)
    cut = zip(*(_cut(members, percentages) for members in classes), strict=True)
    return _with_masks(data, [np.concatenate(part) for part in cut], "ratio")


def _random(data: Graph, detail: str, seed: int) -> Graph:
    percentages = _percentages(detail, "random")
    order = seeded_generator(seed).permutation(np.flatnonzero(_labels(data) >= 0))
    return _with_masks(data, _cut(order, percentages), "random")


def _halves(data: Graph, detail: str, seed: int) -> Graph:
    base = apply_split(data, detail or "file", seed)
    order = seeded_generator(seed).permutation(_nodes_of(base, "val_mask"))
    half = len(order) // 2
    parts = [_nodes_of(base, "train_mask"), order[:half], order[half:]]
    return _with_masks(base, parts, "halves")


def _seen(data: Graph, detail: str, seed: int, kind: str = "seen") -> Graph:
    share, _, name = detail.partition(":")
    percentage = _whole_number(share, kind)
    base = apply_split(data, name or "file", seed)
    if "test_mask" not in base or base.test_mask is None:
        raise InvalidInput(f"the split {name!r} has no test nodes: expected some.")
    tested = _nodes_of(base, "test_mask")
    count = len(tested) * percentage // 100
    if not 0 < count <= len(tested):
        raise InvalidInput(
            f"split '{kind}:{detail}' leaves {count} of {len(tested)} test nodes: "
            "expected a percentage from 1 to 100 that leaves at least one."
        )
    chosen = seeded_generator(seed).permutation(tested)[:count]
    split = copy(base)
    split.test_mask = torch.zeros_like(base.test_mask)
    split.test_mask[torch.from_numpy(chosen)] = True
    return split


def _unseen(data: Graph, detail: str, seed: int) -> Graph:
    split = _seen(data, detail, seed, "unseen")
    split.unseen_mask = split.test_mask.clone()
    if node_ids(split) is None:
        # Without, the nodes that follow a hidden one would be others than before.
        split.node_id = torch.arange(split.test_mask.shape[0])
    return split


_SPLITS: dict[str, Callable[[Graph, str, int], Graph]] = {
    "file": _from_file,
    "planetoid": _planetoid,
    "ratio": _ratio,
    "random": _random,
    "halves": _halves,
    "seen": _seen,
    "unseen": _unseen,
}
_DRAWN = {"planetoid", "random", "halves", "seen", "unseen"}


def _cut(nodes: Nodes, percentages: list[int]) -> list[Nodes]:
    """Cut nodes at the running sums of the percentages, each rounded down.

    Rounding the running sums, not the parts, is what gives the masks of the Terrorist
    graph as we have them; the split of the paper is not public.
    """
    return np.split(nodes, np.cumsum(percentages) * len(nodes) // 100)[:3]


def _members_of_each_class(labels: Nodes, order: Nodes) -> list[Nodes]:
    """Return the nodes of each class that has any, keeping their order."""
    by_class = order[np.argsort(labels[order], kind="stable")]
    _, starts = np.unique(labels[by_class], return_index=True)
    return np.split(by_class, starts[1:])


def _labels(data: Graph) -> Nodes:
    if "y" not in data or data.y is None:
        raise InvalidInput(
            "the graph has no y: expected labels, such as the column label of a node "
            "table, to make a split."
        )
    if not isinstance(data.y, torch.Tensor) or data.y.layout != torch.strided:
        raise InvalidInput("y is no dense tensor: expected labels, to make a split.")
    require_numbers(data.y, "y")
    labels = data.y.detach().cpu().numpy()
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not (labels >= 0).any():
        raise InvalidInput(
            f"y has shape {list(labels.shape)} and dtype {labels.dtype}: "
            "expected one integer class per node, to make a split."
        )
    known = np.asarray(labels, dtype=np.int64)
    if any(key in data for key in TYPES) and len(known) == require_graph(data):
        # Of other types than the one that is classified no node is drawn.
        chosen = classified_nodes(data).numpy()
        known = np.full_like(known, -1)
        known[chosen] = labels[chosen]
        if not (known >= 0).any():
            raise InvalidInput(
                "no node of the type that meta names as the target has a label: "
                "expected some, to make a split."
            )
    return known


def _with_masks(data: Graph, parts: list[Nodes], name: str) -> Graph:
    """Return a shallow copy of a graph whose masks hold the three sets of nodes."""
    num_nodes = len(_labels(data))
    if max((int(nodes.max()) for nodes in parts if len(nodes)), default=0) >= num_nodes:
        raise InvalidInput(
            f"the graph has labels of {num_nodes} nodes and masks of more: expected as "
            "many."
        )
    if len(parts[0]) == 0 or len(parts[1]) == 0:
        raise InvalidInput(
            f"the graph of {num_nodes} nodes is too small for the {name} split: "
            f"it gives {len(parts[0])} training and {len(parts[1])} validation nodes, "
            "expected at least one of each."
        )
    split = copy(data)
    for key, nodes in zip(MASKS, parts, strict=True):
        mask = torch.zeros(num_nodes, dtype=torch.bool)
        mask[torch.from_numpy(nodes)] = True
        split[key] = mask.to(data.y.device)
    return split


def _percentages(detail: str, kind: str) -> list[int]:
    numbers = _numbers(detail or "10/20/70", kind)
    if sum(numbers) > 100:
        raise InvalidInput(
            f"split '{kind}:{detail}' adds up to {sum(numbers)} %, expected up to 100."
        )
    return numbers


def _numbers(detail: str, kind: str) -> list[int]:
    parts = detail.split("/")
    if len(parts) != 3:
        raise InvalidInput(
            f"split '{kind}:{detail}' asked for: expected three numbers as in "
            f"'{kind}:10/20/70'."
        )
    return [_whole_number(part, kind) for part in parts]


def _whole_number(text: str, kind: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(
            f"split '{kind}:...' got {text!r}: expected a whole number, 0 or more."
        )
    return int(text)
