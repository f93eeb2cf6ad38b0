"""Several types of nodes and relations: whether what a graph says of them fits."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.errors import InvalidInput, escaped
from gsebo.graph.features import require_numbers
from gsebo.graph.graph import Graph, as_graph
from gsebo.graph.hetero import METAPATH
from gsebo.sparse.types import EntryTypes, Relation

TYPES = ("node_type", "edge_type")
"""What says of each node and of each edge which type it is of, by number."""
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def require_types(data: Graph, num_nodes: int, where: str = "the graph") -> None:
    """Raise unless each node is of a type, and each edge of a relation that joins such.

    The ends of edges have been checked before, and so has ``x``.

    Args:
        data: A graph, with types or without.
        num_nodes: How many nodes it has.
        where: What it is called in a message.
    """
    if not any(key in data for key in TYPES):
        # Without types meta may hold anything.
        return
    names, relations = _stated_names(data, where)
    node_type = _numbers(data, "node_type", num_nodes, len(names), where)
    edge_type = _numbers(data, "edge_type", data.num_edges, len(relations), where)
    for key, held, stated in (
        ("node_type", node_type, names),
        ("edge_type", edge_type, relations),
    ):
        if held is None and len(stated) > (key == "node_type"):
            what, each = ("types", "node") if stated is names else ("relations", "edge")
            raise InvalidInput(
                f"meta of {where} names {len(stated)} {what}, and it has no {key}: "
                f"expected a number for each {each}."
            )
    if node_type is None:
        node_type = np.zeros(num_nodes, np.int64)
    most = int(node_type.max(initial=0)) + 1
    names = names or [str(number) for number in range(most)]
    _check_names(data, names, relations, where)
    if edge_type is not None:
        _check_ends(data, node_type, edge_type, (names, relations), where)
    _check_columns(data, node_type, names, where)
    _check_edge_columns(data, len(relations), where)


def relation_in_words(relation: Sequence[str]) -> str:
    """A relation as a message shows it.

    >>> relation_in_words(("author", "writes", "paper"))
    "'author' 'writes' 'paper'"
    """
    return " ".join(repr(escaped(each, longest=40)) for each in relation)


def refuse_types(data: Graph, what: str, holds: str, instead: str) -> None:
    """Raise for a graph with types where something knows one of each.

    Args:
        data: The graph.
        what: What the graph is called.
        holds: What there is room for, such as ``"a graph folder holds one"``.
        instead: What else to do.
    """
    if (types := as_graph(data).types) is not None:
        raise InvalidInput(
            f"{what} has {len(types.node_types)} types of nodes and "
            f"{types.num_relations} relations, and {holds}: expected {instead}."
        )


def classified_nodes(data: Graph) -> Tensor:
    """Numbers of the nodes of the type that has classes; of all, if no type is said."""
    types, nodes = data.types, torch.arange(int(data.num_nodes))
    if types is None or types.classified is None:
        return nodes
    return nodes[types.node_type == types.classified]


def kept_with_nodes(data: Graph) -> list[str]:
    """Names of what a graph has for each node because of types."""
    return [
        name
        for name, value in data
        if (name == "node_type" or name.startswith(METAPATH)) and value is not None
    ]


def metapath_embeddings(data: Graph) -> dict[str, Tensor]:
    """What a graph holds for its nodes along metapaths, ``[nodes, columns]``, by name.

    Raises:
        InvalidInput: Some are no such tensors, or not finite.
    """
    found = dict[str, Tensor]()
    for key in (key for key, value in data if key.startswith(METAPATH)):
        z, shown = data[key], escaped(key, longest=60)
        if not (isinstance(z, Tensor) and z.dim() == 2 and len(z) == data.num_nodes):
            shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise InvalidInput(
                f"'{shown}' of {shape} given; expected a tensor of "
                f"({data.num_nodes}, columns)."
            )
        if not bool(z.isfinite().all()):
            raise InvalidInput(
                f"'{shown}' has numbers that are not finite; expected finite ones."
            )
        found[key.removeprefix(METAPATH)] = z
    return found


def opposite_relations(edges: Tensor, types: EntryTypes) -> list[int | None]:
    """For each relation, the one that holds the same edges the other way, if any.

    A relation of a type with itself may be its own opposite.
    """
    size = len(types.node_type)
    forward, backward = [], []
    for number in range(types.num_relations):
        source, target = edges[:, types.edge_type == number].cpu().to(torch.int64)
        forward.append(torch.unique(source * size + target))
        backward.append(torch.unique(target * size + source))
    found: list[int | None] = []

    def fits(number: int, each: int) -> bool:
        one, _, other = types.edge_types[number]
        # Of several relations with the same edges, each has an opposite of its own.
        is_free = found[each] == number if each < number else each not in found
        return (
            is_free
            and types.edge_types[each][::2] == (other, one)
            and len(forward[number]) > 0
            and torch.equal(forward[number], backward[each])
        )

    for number in range(types.num_relations):
        # Itself first, as friends are each other's.
        likely = sorted(range(types.num_relations), key=lambda each: each != number)
        found.append(next((each for each in likely if fits(number, each)), None))
    return found


def _stated_names(data: Graph, where: str) -> tuple[list[str], list[Relation]]:
    """Names of types and relations as ``meta`` has them, where they are distinct."""
    meta = data.meta if isinstance(data.meta, dict) else {}
    names = meta.get("node_types")
    relations = meta.get("edge_types")
    if not names and not relations:
        return [], []
    names = [] if names is None else names
    if not _are_texts(names) or len(set(names)) < len(names):
        raise InvalidInput(
            f"node_types in meta of {where} is {_shown(names)}: "
            "expected another text for each type of nodes."
        )
    relations = [] if relations is None else relations
    triples = isinstance(relations, list | tuple) and all(
        _are_texts(each) and len(each) == 3 for each in relations
    )
    if not triples or len({tuple(each) for each in relations}) < len(relations):
        raise InvalidInput(
            f"edge_types in meta of {where} is {_shown(relations)}: "
            "expected for each relation another type of the source, name and type of "
            "the target."
        )
    return list(names), [(each[0], each[1], each[2]) for each in relations]


def _check_names(
    data: Graph, names: list[str], relations: list[Relation], where: str
) -> None:
    """Raise if anything in ``meta`` names a type that there is not."""
    expected = f"expected one of {escaped(', '.join(names), longest=80)}"
    for each in relations:
        for end in (each[0], each[2]):
            if end not in names:
                raise InvalidInput(
                    f"relation {relation_in_words(each)} of {where} joins nodes of the "
                    f"type {escaped(end, longest=40)!r}: {expected}."
                )
    meta = data.meta if isinstance(data.meta, dict) else {}
    if (target := meta.get("target")) is not None and target not in names:
        raise InvalidInput(
            f"target in meta of {where} is {_shown(target)}: {expected}."
        )
    bare = meta.get("without_features")
    if bare is not None and not (_are_texts(bare) and set(bare) <= set(names)):
        raise InvalidInput(
            f"without_features in meta of {where} is {_shown(bare)}: expected a list "
            f"of some of {escaped(', '.join(names), longest=80)}."
        )


def _shown(given: object) -> str:
    """The beginning of anything that may be found in a file."""
    try:
        return escaped(repr(given), longest=60)
    except (ValueError, RecursionError):
        # Python does not write out integers of thousands of digits.
        return type(given).__name__


def _are_texts(given: object) -> bool:
    return isinstance(given, list | tuple) and all(
        isinstance(each, str) and each for each in given
    )


def _numbers(
    data: Graph, key: str, count: int, known: int, where: str
) -> NDArray[np.int64] | None:
    """The type of each node or edge, once it is found to be one that there is."""
    if key not in data:
        return None
    given = data[key]
    if not isinstance(given, Tensor) or given.layout != torch.strided:
        raise InvalidInput(
            f"expected {key} of {where} as a dense tensor, got {type(given).__name__}."
        )
    require_numbers(given, key)
    if given.dtype not in _INTEGERS or given.shape != (count,):
        each = "node" if key == "node_type" else "edge"
        raise InvalidInput(
            f"{key} of {where} has shape {list(given.shape)} and dtype {given.dtype}: "
            f"expected one whole number for each of {count} {each}s."
        )
    found: NDArray[np.int64] = given.detach().cpu().numpy().astype(np.int64)
    low, high = int(found.min(initial=0)), int(found.max(initial=0))
    # Without names a number beyond all nodes or edges is none of a type.
    end = known or max(count, 1)
    if low < 0 or high >= end:
        whose = f", as meta names {known}" if known else ""
        raise InvalidInput(
            f"{key} of {where} holds {low if low < 0 else high}: expected 0 to "
            f"{end - 1}{whose}."
        )
    return found


def _check_ends(
    data: Graph,
    node_type: NDArray[np.int64],
    edge_type: NDArray[np.int64],
    stated: tuple[list[str], list[Relation]],
    where: str,
) -> None:
    """Raise if an edge joins other types than its relation says, or than the first."""
    names, relations = stated
    ends = node_type[data.edge_index.detach().cpu().numpy()]
    count = len(names)
    joined = ends[0] * count + ends[1]
    if relations:
        place = {name: number for number, name in enumerate(names)}
        wanted = [place[one] * count + place[other] for one, _, other in relations]
        expected = np.array(wanted, np.int64)[edge_type]
    else:
        _, first, relation = np.unique(
            edge_type, return_index=True, return_inverse=True
        )
        expected = joined[first][relation]
    if (wrong := np.flatnonzero(joined != expected)).size:
        edge, (one, other) = int(wrong[0]), ends[:, wrong[0]].tolist()
        number = int(edge_type[edge])
        called = relation_in_words(relations[number]) if relations else str(number)
        another = "" if relations else ", and others of it join other types"
        raise InvalidInput(
            f"edge {edge} of {where} is of the relation {called} and goes from a node "
            f"of the type {escaped(names[one], longest=40)!r} to one of "
            f"{escaped(names[other], longest=40)!r}{another}: expected the types of "
            "the relation."
        )


def _check_columns(
    data: Graph, node_type: NDArray[np.int64], names: list[str], where: str
) -> None:
    """Raise unless each column of ``x`` belongs to one type, whose nodes alone have it.

    Nothing is said of columns where all types share them.
    """
    meta = data.meta if isinstance(data.meta, dict) else {}
    columns = meta.get("columns")
    if not columns:
        return
    width = data.num_features
    if not _are_ranges(columns, len(names), width) or any(
        first == end for first, end in columns
    ):
        raise InvalidInput(
            f"columns in meta of {where} is {_shown(columns)}: "
            f"expected first and end for each type of nodes, {width} columns in all, "
            "each in one of them."
        )
    rows, used = _entries(data.x)
    bounds = np.array(columns, np.int64)[node_type[rows]]
    if (wrong := np.flatnonzero((used < bounds[:, 0]) | (used >= bounds[:, 1]))).size:
        raise InvalidInput(
            f"x of {where} holds a number in column {used[wrong[0]]} of node "
            f"{rows[wrong[0]]}: expected 0 outside the columns "
            f"{bounds[wrong[0], 0]} to {bounds[wrong[0], 1] - 1} of its type."
        )


def _check_edge_columns(data: Graph, relations: int, where: str) -> None:
    """Raise unless each column of ``edge_attr`` belongs to one relation.

    Nothing is said of columns where all relations share them.
    """
    meta = data.meta if isinstance(data.meta, dict) else {}
    columns = meta.get("edge_columns")
    # A method that makes no use of attributes is not given any.
    if columns is None or "edge_attr" not in data:
        return
    attr = data.edge_attr
    width = attr.shape[1] if isinstance(attr, Tensor) and attr.dim() == 2 else 0
    if not _are_ranges(columns, relations, width):
        raise InvalidInput(
            f"edge_columns in meta of {where} is {_shown(columns)}: expected first and "
            f"end for each of {relations} relations that are named, {width} columns of "
            "edge_attr in all, each in one of them."
        )


def _are_ranges(given: Any, count: int, width: int) -> bool:
    """Whether these are first and end of so many ranges that share out all columns."""
    if not isinstance(given, list | tuple) or len(given) != count:
        return False
    if not all(_is_range(each) for each in given):
        return False
    last = 0
    for first, end in sorted(tuple(each) for each in given):
        if first != last:
            return False
        last = end
    return last == width


def _is_range(given: object) -> bool:
    """Whether this is a first column and the end of some, perhaps none."""
    if not isinstance(given, list | tuple) or len(given) != 2:
        return False
    whole = all(isinstance(e, Integral) and not isinstance(e, bool) for e in given)
    return whole and 0 <= given[0] <= given[1]


def _entries(x: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of every number that is not zero."""
    if x.layout == torch.strided:
        rows, columns = x.detach().nonzero(as_tuple=True)
        return rows.cpu().numpy(), columns.cpu().numpy()
    kept = x.values().detach() != 0
    nodes = torch.arange(x.shape[0], device=x.device)
    rows = nodes.repeat_interleave(x.crow_indices().diff())[kept]
    columns = x.col_indices()[kept]
    return rows.cpu().numpy(), columns.cpu().numpy()
