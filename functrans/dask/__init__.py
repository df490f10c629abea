"""Derivatives of sums over data that live on a dask cluster, as dask graphs.

``f(w, *data)`` is a sum over the rows of ``data``, as most losses are. Each function here takes
such an ``f`` and returns the function that computes its derivative for data in shards: the blocks
of dask arrays, or lists of ``dask.delayed`` values or futures. A shard's derivative is one task,
which runs where the shard is; parts are added in a tree, on the workers; what comes back has the
size of ``w``.

>>> import functrans.dask as fd, numpy as np, dask.array as da
>>> def loss(w, X, y):
...     return np.sum((X @ w - y) ** 2)
>>> X = da.from_array(np.arange(12.0).reshape(6, 2), chunks=(2, 2))
>>> y = da.ones(6, chunks=2)
>>> fd.grad(loss)(np.ones(2), X, y)
Array([ 880., 1000.])

``in_axes`` says which arguments are data: 0, in shards along axis 0, or None, passed whole; by
default the first is whole. ``reduction="mean"`` takes ``f`` as a mean over rows, and weights shards
by theirs. ``compute=False`` returns the result as a ``dask.delayed`` value. dask is an extra
(``pip install functrans[dask]``); nothing here is imported by ``import functrans``.
"""

from functrans.dask.derivatives import grad, hessian, hvp, jacobian, total, value_and_grad

__all__ = ["grad", "hessian", "hvp", "jacobian", "total", "value_and_grad"]
