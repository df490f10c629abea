"""Rows that read and write memory which changes: for values that nothing else refers to.

They are ``getitem`` and ``scatter_set`` but for one copy: what ``fetch`` reads is a copy, so that
it may be kept, and ``store`` makes none. No program and no table has them: where a program is
written, and where a value may be seen elsewhere, the other two serve.
"""

from __future__ import annotations

import numpy as np

from functrans._core.aval import ndim_of
from functrans._core.bind import Tracer, bind, cast, is_staged
from functrans._ops.declare import Linear
from functrans._ops.indexing import BatchedIndex, accumulate, getitem, index_of, scatter_set
from functrans._ops.structure import batched_to


def _fetch(x, *indices, pattern):
    y = getitem.impl(x, *indices, pattern=pattern)
    return y.copy() if isinstance(y, np.ndarray) and y.base is not None else y


def _batch_fetch(size, xs, batched, pattern):
    x, *indices = xs
    if not batched[0]:  # read by arrays, so not as a view
        return getitem.batch(size, xs, batched, {"pattern": pattern})
    index = BatchedIndex(size, tuple(indices), tuple(batched[1:]), pattern, ndim_of(x) - 1)
    return index.from_numpy(bind(fetch, x, *index.indices, pattern=index.pattern))


fetch = Linear(
    "fetch", _fetch, getitem.transpose, _batch_fetch, 1, accumulate=accumulate, drops=True,
    abstract=getitem.abstract,
)


def _store(x, v, *indices, pattern):
    x[index_of(pattern, indices)] = v
    return x


def _batch_store(size, xs, batched, pattern):
    x, v, *indices = xs
    if not batched[0]:
        return scatter_set.batch(size, xs, batched, {"pattern": pattern})
    index = BatchedIndex(size, tuple(indices), tuple(batched[2:]), pattern, ndim_of(x) - 1)
    v = index.to_numpy(batched_to(v, batched[1], size))
    return bind(store, x, v, *index.indices, pattern=index.pattern)


store = Linear(
    "store", _store, scatter_set.transpose, _batch_store, 2, drops=True, fills=True,
    abstract=scatter_set.abstract,
)


def written(x, v, indices, params, alone):
    """``x`` with ``v`` at an index: in place where it is ``alone``, so that nothing else refers to
    it, and no operand depends on the inputs of a program, which would write at each call.
    """
    row = store if alone else scatter_set
    if isinstance(v, Tracer):
        top = None if isinstance(x, Tracer) and x.owner is not v.owner else v.owner
    else:
        top = x.owner if isinstance(x, Tracer) else None
    if top is None or top.closed or indices:
        return bind(row, x, v, *indices, **params)
    return top.process(row, (x, v), params)  # as ``bind`` would


def unstore(ct, x, v, indices, params, wanted, alone):
    """The cotangents of ``x``, which was written over, and of ``v``, which was written.

    ``alone``: nothing else refers to ``ct``, which becomes the first.
    """
    pattern = params["pattern"]
    if type(ct) is np.ndarray and not indices:
        return _unstore_plain(ct, x, v, pattern, wanted, alone)
    in_place = alone and not any(map(is_staged, indices))
    return scatter_set.transpose(
        ct, x, v, *indices, wanted=wanted, pattern=pattern, read=fetch if alone else getitem,
        write=lambda ct, zero: written(ct, zero, indices, params, in_place))


def _unstore_plain(ct, x, v, pattern, wanted, alone):
    """The same of plain numbers, at an index that writes nothing twice."""
    key, ct_x, ct_v = index_of(pattern, ()), None, None
    if wanted[1]:
        ct_v = ct[key]
        if alone and type(ct_v) is np.ndarray:
            ct_v = ct_v.copy()
        if ct_v.dtype is not v.dtype:
            ct_v = cast(ct_v, v.dtype)
    if wanted[0]:
        ct_x = ct if alone else ct.copy()
        ct_x[key] = 0
        if ct_x.dtype is not x.dtype:
            ct_x = cast(ct_x, x.dtype)
    return ct_x, ct_v
