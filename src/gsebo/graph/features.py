"""Node features as dense or sparse tensors, and back to CSR arrays."""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.graph.graph import Graph
from gsebo.memory import in_words, require_memory

LARGEST_DENSE = 2**28
"""Entries up to which features become a dense tensor: 1 GiB in float32."""
# Columns up to which, or up to so many for each stored number, a matrix may claim to
# have them: a network has weights for every one.
_FEW_COLUMNS = 10**6
_MOST_COLUMNS_PER_ENTRY = 64
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
# Numbers of a tensor for which nobody has to look how much memory is free.
_ALWAYS_FITS = 2**24


def require_used_columns(columns: int, stored: int, what: str) -> None:
    """Raise if sparse features claim columns in which there can be hardly anything."""
    most = max(_FEW_COLUMNS, _MOST_COLUMNS_PER_ENTRY * stored)
    if columns > most:
        weights = in_words(4 * columns)
        raise InvalidInput(
            f"{what} claims {columns:,} columns for {stored:,} stored numbers, which "
            f"takes {weights} for each unit of a network; expected at most {most:,} "
            "columns."
        )


def require_features(x: object, *, floating: bool = True) -> Tensor:
    """Return a feature matrix after checking that it can be read without harm.

    Whether its numbers are finite is not looked at; ``floating`` refuses whole ones.
    """
    if not isinstance(x, Tensor):
        raise InvalidInput(f"expected x as a tensor, got {type(x).__name__}.")
    if x.is_nested or x.layout not in (torch.strided, torch.sparse_csr):
        kind = "a nested tensor" if x.is_nested else x.layout
        raise InvalidInput(
            f"expected x as a dense or sparse_csr tensor, got {kind}; "
            "x.to_sparse_csr() converts it."
        )
    if x.dim() != 2:
        shape = list(x.shape)
        raise InvalidInput(f"expected x as [nodes, features], got shape {shape}.")
    if x.dtype not in (_FLOATS if floating else (*_FLOATS, *_WHOLE)):
        raise InvalidInput(f"expected x in floating point, got {x.dtype}; x.float().")
    require_numbers(x, "x")
    if x.layout == torch.sparse_csr:
        _require_sound_rows(x)
    return x


def require_numbers(tensor: Tensor, name: str) -> None:
    """Raise unless a tensor holds its numbers, and not more than there is room for.

    One number that is repeated over a large shape takes no memory, but everything
    that is computed from it does.
    """
    if tensor.is_nested:
        raise InvalidInput(f"{name} is a nested tensor: expected a dense one.")
    if tensor.is_meta:
        raise InvalidInput(f"{name} is on the device 'meta': expected numbers.")
    if tensor.layout != torch.strided:
        return
    if tensor.is_neg():
        raise InvalidInput(
            f"{name} is the negative of other memory: expected numbers of its own, "
            f"{name}.resolve_neg()."
        )
    if tensor.numel() > _ALWAYS_FITS:
        require_memory(
            tensor.numel() * tensor.element_size(),
            tensor.device,
            what=f"{name} with shape {list(tensor.shape)}",
            instead="a smaller graph",
        )


def whole_numbers(data: Graph, key: str) -> NDArray[Any]:
    """Return classes, truth values, names or ends of edges of a graph as an array."""
    value = data.get(key)
    if not isinstance(value, Tensor):
        raise InvalidInput(f"expected {key} as a tensor, got {type(value).__name__}.")
    require_numbers(value, key)
    if value.layout != torch.strided or value.dtype not in _WHOLE:
        raise InvalidInput(
            f"expected {key} as a dense tensor of whole numbers or truth values, got "
            f"{value.layout} and {value.dtype}."
        )
    array: NDArray[Any] = value.detach().cpu().numpy()
    return array


def _require_sound_rows(x: Tensor) -> None:
    """Raise unless the parts of a ``sparse_csr`` matrix fit together.

    Whatever reads a matrix follows its row pointers and column numbers unchecked, out
    of its memory if they lead there.
    """
    starts, columns = x.crow_indices(), x.col_indices()
    stored, rows = x.values().numel(), x.shape[0]
    shapes = (tuple(starts.shape), tuple(columns.shape), tuple(x.values().shape))
    if shapes != ((rows + 1,), (stored,), (stored,)):
        raise InvalidInput(
            f"x is inconsistent: expected {rows + 1} row pointers and a column for "
            f"each of {stored} values, got shapes {', '.join(map(str, shapes))}."
        )
    require_used_columns(x.shape[1], stored, "x")
    fault = fault_of_rows(starts, columns, stored, x.shape[1])
    if fault is not None:
        part = {"indptr": "row pointers", "indices": "columns"}[fault[0]]
        raise InvalidInput(f"the {part} of x are inconsistent: {fault[1]}.")


def fault_of_rows(
    starts: Tensor, columns: Tensor, stored: int, num_columns: int
) -> tuple[str, str] | None:
    """Which part of a sparse matrix is wrong, and what was expected; None if sound."""
    rising = not bool((starts[1:] < starts[:-1]).any())
    if int(starts[0]) != 0 or int(starts[-1]) != stored or not rising:
        return "indptr", f"expected them to rise from 0 to the {stored} stored numbers"
    if stored:
        low, high = (int(end) for end in columns.aminmax())
        if low < 0 or high >= num_columns:
            wrong = low if low < 0 else high
            return "indices", f"expected columns 0 to {num_columns - 1}, got {wrong}"
    return None


def features_from_csr(matrix: csr_matrix) -> Tensor:
    """Return float32 features, dense unless that would hold too many entries."""
    rows, columns = (int(side) for side in matrix.shape)
    if rows * columns <= LARGEST_DENSE:
        require_memory(
            4 * rows * columns,
            what=f"a matrix of {rows} x {columns} features",
            instead="fewer of them",
        )
        return torch.from_numpy(matrix.toarray().astype(np.float32, copy=False))
    return csr_tensor(
        torch.from_numpy(matrix.indptr.astype(np.int64)),
        torch.from_numpy(matrix.indices.astype(np.int64)),
        torch.from_numpy(matrix.data.astype(np.float32)),
        (rows, columns),
    )


def features_to_csr(x: Tensor) -> csr_matrix:
    """Return features as a float32 CSR matrix: sorted columns and no stored zeros."""
    x = require_features(x, floating=False).detach().cpu()
    if x.layout == torch.sparse_csr:
        parts = (x.values().to(torch.float32), x.col_indices(), x.crow_indices())
        arrays = tuple(part.numpy() for part in parts)
        matrix = csr_matrix(arrays, shape=tuple(x.shape), copy=True)
    else:
        matrix = csr_matrix(x.to(torch.float32).numpy())
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def normalise_rows(x: Tensor, *, largest: bool = False) -> Tensor:
    """Divide each row by the sum of its absolute values; rows of zeros stay zero.

    Or by the ``largest`` of these, after which there is a number of size one.

    Args:
        x: Features, dense or sparse (CSR).
        largest: Whether the largest takes the place of the sum.
    """
    require_features(x)
    if x.layout != torch.sparse_csr:
        size = x.abs()
        total = size.amax(1, keepdim=True) if largest else size.sum(1, keepdim=True)
        return x / torch.where(total == 0, 1, total)
    starts, columns, values = x.crow_indices(), x.col_indices(), x.values()
    row = torch.arange(x.shape[0]).repeat_interleave(starts.diff())
    total = torch.zeros(x.shape[0], dtype=values.dtype)
    if largest:
        total = total.scatter_reduce(0, row, values.abs(), "amax")
    else:
        total = total.index_add(0, row, values.abs())
    scaled = values / torch.where(total == 0, 1, total)[row]
    return csr_tensor(starts, columns, scaled, (x.shape[0], x.shape[1]))


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return some rows of a dense or ``sparse_csr`` matrix, in the given order."""
    if x.layout != torch.sparse_csr:
        return x[rows]
    starts, counts = x.crow_indices()[rows], x.crow_indices().diff()[rows]
    new_starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    stored = (starts - new_starts[:-1]).repeat_interleave(counts)
    stored = stored + torch.arange(stored.numel(), device=stored.device)
    columns, values = x.col_indices()[stored], x.values()[stored]
    return csr_tensor(new_starts, columns, values, (len(rows), x.shape[1]))


def csr_tensor(
    starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]
) -> Tensor:
    """Return a ``sparse_csr`` matrix, without the warning that torch has for it."""
    with warnings.catch_warnings():
        # torch warns on every first sparse_csr tensor that its support is in beta.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(
            starts, columns, values, shape, check_invariants=False
        )
