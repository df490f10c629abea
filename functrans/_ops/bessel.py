"""Modified Bessel functions. Source: Abramowitz and Stegun (1964), section 9.6."""

from __future__ import annotations

import numpy as np

from functrans._ops.declare import elementwise


def _bessel_i(x, n):
    x = np.asarray(x)
    if np.ndim(n) == 0 and n == 0 and x.dtype.kind == "f":
        return np.i0(x)[()]
    from scipy.special import iv  # lazy: slow to import

    wide = x if x.dtype.char in "fdFD" else x.astype(complex if x.dtype.kind == "c" else float)
    return iv(n, wide).astype(x.dtype)[()]


# row: I_n, whose slope (I_(n-1) + I_(n+1)) / 2 is exact to any order, at 0 too (9.6.26)
bessel_i = elementwise(
    "bessel_i", _bessel_i,
    lambda g, x1, x2: g * ((bessel_i(x1, x2 - 1) + bessel_i(x1, x2 + 1)) / 2), None,
    singular=True, whole=(1,),
)
