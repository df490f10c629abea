"""What ``scipy.special``'s ufuncs do with traced values: the row of each, or a function of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special as sp

from functrans._ops.declare import TABLE
from functrans._ops.special import (
    bessel,
    carlson,
    distributions,
    elementary,
    errors,
    gamma,
    hypergeometric,
    incomplete,
    integrals,
    logistic,
    orthogonal,
    standard,
)
from functrans.numpy.protocols import UFUNCS

# imported for the rows that they declare
assert carlson and distributions and elementary and errors and hypergeometric and incomplete
assert logistic and orthogonal and standard
# Ufuncs inside of functions of SciPy's, which hand traced values on to them.
INSIDE = {"_zeta": gamma.zeta, "_riemann_zeta": gamma.riemann_zeta}


MEANINGS: dict[np.ufunc, Any] = {
    row.impl: row
    for row in TABLE.values()
    if row.name.startswith("special.") and isinstance(row.impl, np.ufunc)
}
MEANINGS |= {
    getattr(sp._ufuncs, name): row for name, row in INSIDE.items() if hasattr(sp._ufuncs, name)
}
MEANINGS |= {
    sp.airy: bessel.airy, sp.airye: bessel.airye, sp.ellipj: integrals.ellipj,
    sp.fresnel: integrals.fresnel, sp.shichi: integrals.shichi,
    sp.sici: integrals.sici, sp.voigt_profile: errors.voigt_profile,
}
MEANINGS |= {getattr(sp, name): f for name, f in distributions.COMPOSED.items()}
UFUNCS |= MEANINGS
