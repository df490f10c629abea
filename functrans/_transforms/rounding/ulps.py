"""How accurate NumPy's functions of float64 are, in units in the last place (ulp).

By processor, NumPy computes them with loops of its own, with Intel's SVML (AVX-512) or with the C
library. SVML's are within 4 ulp (numpy/numpy, pull request 19478, which brought them in), and so is
what glibc lists for double on x86_64 (``sysdeps/x86_64/fpu/libm-test-ulps``: 1 or 2 for most, 4 for
``cbrt``). SciPy's of the same names are those of Cephes, which lists 1 or 2. Square roots round
once, by IEEE 754; the two scales multiply by a rounded constant.
"""

from __future__ import annotations

from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops import exponents
from functrans._ops.reductions import root
from functrans._ops.special import elementary, errors, logistic

LIBRARY = 4.0

ULPS: dict[Primitive, float] = {
    ops.sqrt: 0.5, root: 0.5, ops.deg2rad: 2.0, ops.rad2deg: 2.0,
    errors.erf: 2 * LIBRARY,  # Cephes: 3.7e-16
    # a logarithm, and a product
    **dict.fromkeys([logistic.xlogy, logistic.xlog1py, logistic.entr], LIBRARY + 1),
    # an exponential of a square, of which one up to 16 is rounded
    **dict.fromkeys([exponents.exp_of_minus_square, exponents.exp_of_minus_half_square],
                    LIBRARY + 12),
    # two functions of the library, and sums or a quotient of numbers of one sign
    **dict.fromkeys([logistic.expit, logistic.expit_of_minus, logistic.log_expit,
                     logistic.logit], 2 * LIBRARY + 2),
    ops.logistic: 2 * LIBRARY + 2,  # an exponential, once as it is and once beside 1; a quotient
    ops.binary_logistic: 2 * LIBRARY + 2,
    # a hyperbolic cosine or an exponential, squared, in two quotients
    ops.sech2: 2 * LIBRARY + 8,
    **dict.fromkeys([ops.slope_of_arcsin, ops.slope_of_arctan, ops.slope_of_arctanh], 4.0),
    **dict.fromkeys([
        ops.exp, ops.exp2, ops.expm1, ops.log, ops.log2, ops.log10, ops.log1p, ops.cbrt,
        ops.sin, ops.cos, ops.tan, ops.arcsin, ops.arccos, ops.arctan, ops.arctan2,
        ops.sinh, ops.cosh, ops.tanh, ops.arcsinh, ops.arccosh, ops.arctanh,
        ops.power, ops.float_power, ops.hypot,
        elementary.cbrt, elementary.exp2, elementary.exp10, elementary.expm1, elementary.log1p,
    ], LIBRARY),
}
