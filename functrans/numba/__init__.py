"""Functions compiled by numba, differentiated; compiled functions, called from numba and from C.

A kernel that meets a traced value is differentiated as it is. ``differentiable`` says how, and is
needed for one that writes into its arguments, which then come back as results:

>>> import functrans as ft, numba
>>> @numba.njit
... def logistic(x, steps):
...     for _ in range(steps):
...         x = 3.5 * x * (1 - x)
...     return x
>>> round(float(ft.grad(logistic)(0.3, 3)), 10)
2.9293872125

numba is an extra (``pip install functrans[numba]``): its newest release takes a while to follow
NumPy's. Nothing here is imported by ``import functrans``.
"""

from functrans._core.unswapped import unswapped

# numba goes by the identity of NumPy's functions: in a block of patch they are others
with unswapped():
    from functrans.numba import traced  # noqa: F401  # numba may ask for it in such a block
    from functrans.numba.differentiable import differentiable

__all__ = ["differentiable"]
