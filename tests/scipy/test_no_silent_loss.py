"""No argument of a function of SciPy's loses its derivative in silence.

Each float that a call of each name in the table takes is traced on its own: its derivative is that
of SciPy's values by differences, or the call is refused.
"""

import importlib
from functools import reduce

import numpy as np
import pytest

import functrans as ft
from functrans._core.scipy_names import NAMES
from functrans.errors import FunctransError
from functrans.numpy.structure import as_operand
from functrans.scipy import special
from tests.scipy.agreement import numbers
from tests.scipy.calls import CALLS
from tests.scipy.options import OPTIONS

pytestmark = [
    pytest.mark.usefixtures("unoptimised"),
    # SciPy's, of numbers beside those that are traced
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning",
                               "ignore:covariance is not:RuntimeWarning",
                               "ignore:Some rows of:FutureWarning"),
]


def calls_of(name):
    return CALLS[name] + OPTIONS.get(name, [])


STEP = 1e-5
EACH = [(name, i) for name in CALLS for i in range(len(calls_of(name)))]
# Names of which an argument has no derivative, or none that is known: it is refused.
REFUSED = {f"{namespace}.{name}" for namespace, names in {
    "special": """
        bdtr bdtrc eval_chebyc eval_chebys eval_chebyt eval_chebyu eval_gegenbauer eval_genlaguerre
        eval_jacobi eval_laguerre eval_legendre eval_sh_chebyt eval_sh_chebyu eval_sh_jacobi
        eval_sh_legendre hankel1 hankel2 hyp0f1 hyp1f1 hyp2f1 hyperu iv ive jv jve kv kve modstruve
        nbdtr nbdtrc pdtr pdtrc pdtri struve yv yve
    """,
    "stats": """
        bernoulli binom describe geom gstd gzscore kendalltau multinomial nbinom poisson rankdata
        sem spearmanr variation zmap zscore
    """,
    "linalg": "fractional_matrix_power lstsq null_space orth pinv schur solve_continuous_are",
    "interpolate": """
        BSpline InterpolatedUnivariateSpline LSQUnivariateSpline RegularGridInterpolator
        UnivariateSpline interp1d interpn make_interp_spline make_lsq_spline make_smoothing_spline
        splrep
    """,
    "ndimage": "percentile_filter zoom",
    "optimize": "least_squares",
    "signal": "coherence csd periodogram savgol_filter stft upfirdn welch",
    "sparse.linalg": "expm_multiply",
    "spatial": "distance_matrix minkowski_distance",
    "spatial.distance": "cdist minkowski",
}.items() for name in names.split()}


def ours(name):
    namespace, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"functrans.scipy.{namespace}"), function)


def combined(y):
    """One number of all that a call returns."""
    parts = map(as_operand, numbers(y))
    return reduce(np.add, [
        np.sum(np.cos(1.0 + np.arange(y.size)).reshape(y.shape) * part)
        for y in parts for part in ((y.real, y.imag) if y.dtype.kind == "c" else (y,))
    ])


def assert_sloped(f, x, may_refuse=False):
    """The slope of ``f`` is that of its values for plain numbers, which are SciPy's."""
    t = np.cos(np.arange(np.size(x)) + 0.3).reshape(np.shape(x))[()]
    try:
        value, slope = ft.jvp(f, (x,), (t + 0 * x,))
    except FunctransError:
        assert may_refuse
        return
    assert value == pytest.approx(f(x), rel=1e-7, nan_ok=True)  # of solvers
    expected = (f(x + STEP * t) - f(x - STEP * t)) / (2 * STEP)
    if not np.isnan(expected):
        assert slope == pytest.approx(expected, rel=1e-4, abs=1e-6)  # of differences


def test_each_name_has_a_call():
    named = {f"{n}.{f}" for n, known in NAMES.items()
             for f in f"{known.called} {known.ours}".split()}
    assert set(CALLS) == named >= set(OPTIONS)


@pytest.mark.parametrize(("name", "i"), EACH)
def test_each_float_has_scipy_s_slope_or_is_refused(name, i):
    run, args = calls_of(name)[i]
    f = ours(name)
    for k, x in enumerate(args):
        if not isinstance(x, int):
            assert_sloped(lambda x, k=k: combined(run(f, *args[:k], x, *args[k + 1:])), x,
                          name in REFUSED)


def test_a_slope_that_is_lost_is_found():
    with pytest.raises(AssertionError):
        assert_sloped(lambda x: special.gammaln(ft.stop_gradient(x)) + 0 * x, 2.3)
