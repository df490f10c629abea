"""What ``scipy.special``'s ufuncs do with traced values: the row of each, or a function of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special as sp

from functrans._ops.declare import TABLE
from functrans._ops.special import elementary, errors, gamma, logistic
from functrans.numpy.protocols import UFUNCS

ROWS = (elementary, errors, gamma, logistic)  # imported for the rows that they declare


def _zeta_ufunc() -> Any:
    """The ufunc inside of ``sp.zeta``, which hands traced values on to it."""
    return getattr(sp._ufuncs, "_zeta", None)


MEANINGS: dict[np.ufunc, Any] = {
    row.impl: row
    for row in TABLE.values()
    if row.name.startswith("special.") and isinstance(row.impl, np.ufunc)
}
MEANINGS |= {ufunc: row for ufunc, row in {_zeta_ufunc(): gamma.zeta}.items() if ufunc is not None}
UFUNCS |= MEANINGS
