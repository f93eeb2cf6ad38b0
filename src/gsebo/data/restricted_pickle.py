"""Reads the pickles in which some datasets are published, and nothing else.

A pickle may name any function and have it called. Here only the few classes that
arrays and adjacency lists are made of can be named; all else is refused.
"""

import io
import pickle
from _codecs import encode
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from gsebo.errors import InvalidInput


def _plain_dtype(spec: str, align: int = 0, copy: int = 1) -> np.dtype[Any]:
    """Make a dtype from the integers old files hold where numpy now wants bools."""
    dtype = np.dtype(spec, align=bool(align), copy=bool(copy))
    if dtype.hasobject:
        raise InvalidInput("a pickle holds an array of Python objects: refused.")
    return dtype


_RECONSTRUCT = np.empty(0).__reduce__()[0]

ALLOWED: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): _plain_dtype,
        ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("scipy.sparse.csr", "csr_matrix"): csr_matrix,
        ("scipy.sparse._csr", "csr_matrix"): csr_matrix,
        ("collections", "defaultdict"): defaultdict,
        ("__builtin__", "list"): list,
        ("builtins", "list"): list,
        ("_codecs", "encode"): encode,
    }
)
"""The only globals a pickle may name, and what each of them means here."""


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        """Return an allowed global; a name is never imported."""
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise InvalidInput(
                f"a pickle names {module}.{name}: expected only arrays, sparse "
                "matrices, lists and dictionaries."
            ) from None


def read_pickle(payload: bytes) -> Any:
    """Return the arrays, lists and dictionaries of a pickle of Python 2 or 3.

    Raises:
        InvalidInput: The pickle is damaged or names anything outside `ALLOWED`.
    """
    try:
        return _RestrictedUnpickler(io.BytesIO(payload), encoding="latin1").load()
    except InvalidInput:
        raise
    except Exception as error:
        # A damaged pickle may raise whatever its half-read instructions run into.
        raise InvalidInput("a pickle is damaged: expected a whole file.") from error
