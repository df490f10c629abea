"""``autograd.scipy.linalg``: ``scipy.linalg``'s names, of plain and of traced values."""

from __future__ import annotations

from typing import Any

import scipy.linalg

from functrans._core.bind import Tracer
from functrans.autograd._primitives import defjvp, defvjp, primitive
from functrans.scipy import linalg as _ours

globals().update({name: getattr(_ours, name) for name in _ours.__all__})


@primitive
def _root(A: Any) -> Any:
    return scipy.linalg.sqrtm(A)


# X dX + dX X = dA, where X is complex though A is real: its eigenvalues lie on the branch cut
defvjp(_root, lambda X, A: lambda g: _ours.solve_sylvester(X.T, X.T, g))
defjvp(_root, lambda g, X, A: _ours.solve_sylvester(X, X, g))


def sqrtm(A: Any, *args: Any, **options: Any) -> Any:
    """``scipy.linalg.sqrtm``; of a real matrix complex where the root is."""
    try:
        return _ours.sqrtm(A, *args, **options)
    except ValueError:
        if not isinstance(A, Tracer) or A.dtype.kind == "c":
            raise
        return _root(A)


__all__ = _ours.__all__
__getattr__ = _ours.__getattr__
