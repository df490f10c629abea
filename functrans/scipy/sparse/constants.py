"""Constant sparse matrices, prepared once and kept as long as their entries live.

Each use compares what the matrix holds with what it held when it was prepared.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from functrans._compile.run.checksum import content
from functrans._core.array import frozen_copy
from functrans._ops.sparse import Constant, Pattern

# What was prepared, by the memory of the entries; a transpose has the same.
_KEPT: dict[tuple[int, int], _Prepared] = {}


class Kept:
    """A matrix, prepared; ``entries`` are those that functions other than products take."""

    def __init__(self, A: Any, prepared: _Prepared, turned: bool):
        self._prepared, self._turned = prepared, turned
        self.matrix = prepared.matrix.T if turned else prepared.matrix
        self.matrix.prepare(A)

    def entries(self, A: Any) -> tuple[np.ndarray, Pattern]:
        """The entries of ``A``, which is this matrix, and their places."""
        if self._prepared.entries is None:
            coo = (A.T if self._turned else A).tocoo()
            data = coo.data.astype(self.matrix.dtype, copy=False)
            self._prepared.entries = frozen_copy(data), Pattern(coo.row, coo.col, coo.shape)
        data, places = self._prepared.entries
        return data, places.T if self._turned else places


class _Prepared:
    def __init__(self, A: Any, state: tuple, owner: weakref.ref):
        self.state, self.owner = state, owner
        self.matrix = Constant.of(A)
        self.entries: tuple[np.ndarray, Pattern] | None = None


def look_up(A: Any) -> Kept:
    """What is kept of a matrix of SciPy's; it is prepared where it is new or has changed."""
    if A.format in ("lil", "dok"):  # lists and dicts: what they hold takes as long to compare
        A = A.tocsr()
    owner = _owner(A.data)
    key = id(owner), A.data.ctypes.data
    found, state = _KEPT.get(key), _state(A)
    if found is not None and found.owner() is owner:
        for turned, before in enumerate((state, _of_transpose(state))):
            if found.state == before:
                return Kept(A, found, bool(turned))
    found = _Prepared(A, state, weakref.ref(owner, lambda _: _KEPT.pop(key, None)))
    _KEPT[key] = found
    return Kept(A, found, False)


def _owner(x: np.ndarray) -> np.ndarray:
    """The array that has the memory of ``x``."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


_PLACES = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "bsr": ("indices", "indptr"),
           "coo": ("row", "col"), "dia": ("offsets",)}


def _state(A: Any) -> tuple:
    """Format, shape and contents."""
    arrays = A.data, *[getattr(A, name) for name in _PLACES[A.format]]
    return A.format, A.shape, *[(x.dtype, x.shape, content(x)) for x in arrays]


def _of_transpose(state: tuple) -> tuple | None:
    """The state of the transpose, if it has the same arrays."""
    kind, shape, data, *places = state
    if kind == "coo":
        places = places[::-1]
    elif kind in ("csr", "csc"):
        kind = "csc" if kind == "csr" else "csr"
    else:
        return None
    return kind, shape[::-1], data, *places
