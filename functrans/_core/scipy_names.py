"""Which of SciPy's functions take traced values: the one table, by namespace.

Errors, ``functrans.scipy`` and the page docs/scipy.md read it; a test compares it with SciPy's
namespaces and with ours. A subpackage of ``functrans.scipy`` has an entry here: ``called`` are
ufuncs that take traced values as SciPy has them; ``ours`` are found under the same name in
``functrans.scipy``; ``constant`` take traced values as
they are and have the derivative zero.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from functrans.errors import scipy_frames, user_line


class Names(NamedTuple):
    """The names of a namespace, separated by blanks."""

    called: str = ""
    ours: str = ""
    constant: str = ""


NAMES: dict[str, Names] = {
    "special": Names(
        called="""
            airy airye bdtr bdtrc bei beip ber berp beta betainc betaincc betainccinv betaincinv
            betaln binom boxcox boxcox1p cbrt chdtr chdtrc chdtri cosdg cosm1 cotdg dawsn digamma
            ellipe ellipeinc ellipj ellipk ellipkinc ellipkm1 elliprc elliprd elliprf elliprg
            elliprj entr erf erfc erfcinv erfcx erfi erfinv eval_chebyc eval_chebys eval_chebyt
            eval_chebyu eval_gegenbauer eval_genlaguerre eval_hermite eval_hermitenorm eval_jacobi
            eval_laguerre eval_legendre eval_sh_chebyt eval_sh_chebyu eval_sh_jacobi
            eval_sh_legendre exp1 exp10 exp2 expi expit expm1 expn exprel fdtr fdtrc fdtri fresnel
            gamma gammainc gammaincc gammainccinv gammaincinv gammaln gdtr gdtrc gdtrix hankel1
            hankel2 huber hyp0f1 hyp1f1 hyp2f1 hyperu i0 i0e i1 i1e inv_boxcox inv_boxcox1p iv ive
            j0 j1 jn jv jve k0 k0e k1 k1e kei keip ker kerp kl_div kn kv kve log1p log_expit
            log_ndtr loggamma logit modstruve nbdtr nbdtrc ndtr ndtri ndtri_exp owens_t pdtr pdtrc
            pdtri poch powm1 pseudo_huber psi radian rel_entr rgamma shichi sici sinc sindg softplus
            spence stdtr stdtrit struve tandg voigt_profile wofz wrightomega xlog1py xlogy y0 y1 yn
            yv yve zeta zetac
        """,
        ours="""
            comb factorial h1vp h2vp ivp jvp kvp lambertw log_softmax logsumexp multigammaln perm
            polygamma softmax spherical_in spherical_jn spherical_kn spherical_yn yvp
        """,
        constant="gammasgn round",
    ),
    "fft": Names(
        ours="""
            dct dctn dst dstn fft fft2 fftn fftshift hfft idct idctn idst idstn ifft ifft2 ifftn
            ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftn
        """,
    ),
    "integrate": Names(
        ours="""
            cumulative_simpson cumulative_trapezoid dblquad fixed_quad nquad odeint quad quad_vec
            simpson solve_bvp solve_ivp tplquad trapezoid
        """,
    ),
    "interpolate": Names(
        ours="""
            Akima1DInterpolator BSpline CubicHermiteSpline CubicSpline InterpolatedUnivariateSpline
            LSQUnivariateSpline PPoly PchipInterpolator RectBivariateSpline RegularGridInterpolator
            UnivariateSpline interp1d interpn make_interp_spline make_lsq_spline
            make_smoothing_spline pchip_interpolate splantider splder splev splint splrep
        """,
    ),
    "optimize": Names(
        ours="""
            bisect brenth brentq curve_fit fixed_point fsolve least_squares leastsq linprog
            lsq_linear minimize minimize_scalar newton nnls ridder root root_scalar rosen rosen_der
            rosen_hess rosen_hess_prod toms748
        """,
    ),
    "linalg": Names(
        ours="""
            block_diag cho_factor cho_solve cholesky circulant companion convolution_matrix coshm
            cosm det eigh eigh_tridiagonal eigvalsh eigvalsh_tridiagonal expm expm_frechet fiedler
            fractional_matrix_power hankel inv khatri_rao leslie logm lstsq lu lu_factor lu_solve
            matmul_toeplitz norm null_space orth pinv polar qr schur sinhm sinm solve solve_banded
            solve_continuous_are solve_continuous_lyapunov solve_discrete_are
            solve_discrete_lyapunov solve_sylvester solve_toeplitz
            solve_triangular solveh_banded sqrtm svd svdvals tanhm tanm toeplitz
        """,
    ),
    "ndimage": Names(
        ours="""
            affine_transform convolve convolve1d correlate correlate1d gaussian_filter
            gaussian_filter1d gaussian_gradient_magnitude gaussian_laplace laplace map_coordinates
            maximum_filter maximum_filter1d median_filter minimum_filter minimum_filter1d
            percentile_filter prewitt rank_filter rotate shift sobel spline_filter spline_filter1d
            uniform_filter uniform_filter1d zoom
        """,
    ),
    "signal": Names(
        ours="""
            coherence convolve convolve2d correlate correlate2d csd detrend fftconvolve filtfilt
            freqz freqz_sos hilbert lfilter lfilter_zi lfiltic medfilt oaconvolve periodogram
            resample resample_poly savgol_filter sosfilt sosfilt_zi sosfiltfilt stft upfirdn welch
        """,
    ),
    "sparse": Names(
        ours="""
            block_array block_diag bmat coo_array coo_matrix csc_array csc_matrix csr_array
            csr_matrix diags diags_array hstack kron vstack
        """,
    ),
    "sparse.linalg": Names(
        ours="""
            bicgstab cg eigsh expm_multiply factorized gcrotmk gmres inv lgmres minres norm splu
            spsolve tfqmr
        """,
    ),
    "spatial": Names(ours="distance_matrix minkowski_distance minkowski_distance_p"),
    "spatial.distance": Names(
        ours="""
            braycurtis canberra cdist chebyshev cityblock correlation cosine euclidean jensenshannon
            mahalanobis minkowski pdist seuclidean sqeuclidean squareform
        """,
    ),
    "spatial.transform": Names(ours="Rotation"),
    "stats": Names(
        ours="""
            bernoulli beta binom cauchy chi2 describe dirichlet energy_distance entropy
            expon f gamma gaussian_kde genextreme genpareto geom gmean gstd gumbel_l
            gumbel_r gzscore halfnorm hmean invgamma kendalltau kurtosis laplace
            linregress logistic lognorm median_abs_deviation moment multinomial
            multivariate_normal multivariate_t nbinom norm pareto pearsonr pmean poisson
            rankdata sem skew skewnorm spearmanr t trim_mean truncnorm uniform variation
            vonmises wasserstein_distance weibull_min wishart zmap zscore
        """,
    ),
}


def advice(x: Any) -> str | None:
    """What to do about a traced value that reached a function of SciPy's; None: it has not."""
    frames = scipy_frames()
    if not frames:
        return None
    for namespace, name, function in _candidates(frames):
        known = NAMES.get(namespace)
        if known is not None and name in known.ours.split():
            parent, _, module = f"functrans.scipy.{namespace}".rpartition(".")
            return (
                f"{user_line()}: scipy.{namespace}.{function} got {x!r}, whose derivative it would "
                f"lose. Take {module}.{function} of functrans, which runs SciPy's on plain arrays: "
                f"from {parent} import {module}."
            )
    known_to_scipy = (c for c in _candidates(frames)
                      if hasattr(sys.modules.get(f"scipy.{c[0]}"), c[1]))
    namespace, _, function = next(known_to_scipy, next(_candidates(frames)))
    return no_counterpart(f"scipy.{namespace}.{function}", x)


def no_counterpart(function: str, x: Any) -> str:
    """What to do about a traced value for a function that ``functrans.scipy`` does not have."""
    return (
        f"{user_line()}: {function} got {x!r}, whose derivative it would lose, and functrans.scipy "
        "has no counterpart. Wrap the call with ft.external, or pass the constant "
        "ft.stop_gradient(x)."
    )


def answer_to_sparse() -> np.ndarray | None:
    """The answer where an operator of SciPy's sparse arrays asks if its operand is an array.

    SciPy leaves operators to an operand that it is told is no array, by one of objects; ``dot`` of
    the format COO goes on to the operator where that has an axis.
    """
    frames = scipy_frames()
    name = frames[-1].f_code.co_name if frames else ""
    if name in ("_matmul_dispatch", "_divide"):
        return np.empty((), object)
    of_coo = name == "dot" and frames[-1].f_globals["__name__"] == "scipy.sparse._coo"
    return np.empty(1, object) if of_coo else None


def asked_by_solver() -> bool:
    """Whether a solver of SciPy's in C asks if what the user's function returned is a number.

    It asks in Python; the error of C code after that it drops, and calls the function again.
    """
    frames = scipy_frames()
    return bool(frames) and frames[-1].f_code.co_qualname in (
        "_wrap_nan_raise.<locals>.f_raise",  # brentq and its kin, by isnan
        "_check_func",  # MINPACK, by atleast_1d
    )


def _candidates(frames: list[FrameType]) -> Iterator[tuple[str, str, str]]:
    """Namespace, name in the table and full name of what may have been called, outermost first."""
    for frame in frames:
        namespace = _namespace(frame.f_globals["__name__"])
        method = frame.f_code.co_name
        owner = frame.f_locals.get("self")
        if owner is None:
            if frame.f_code.co_qualname.count(".") == 1:  # a static method, by its class
                full = frame.f_code.co_qualname
                yield namespace, full.partition(".")[0], full
            yield namespace, method, method
            # a decorator's wrapper has the function that it wraps among its variables
            inside = [v for v in frame.f_locals.values() if isinstance(v, FunctionType)]
            yield from [(_namespace(f.__module__), f.__name__, f.__name__) for f in inside
                        if f.__module__.startswith("scipy.")]
            continue
        suffix = "" if method in ("__init__", "__call__") else f".{method}"
        # a distribution of scipy.stats has a name, other objects that of their class
        for name in (getattr(owner, "name", None), type(owner).__name__.removesuffix("_gen")):
            if isinstance(name, str):
                yield namespace, name, f"{name}{suffix}"


def _namespace(module: str) -> str:
    """The namespace of the table, else of SciPy's, that one of SciPy's modules is part of."""
    parts = module.split(".")[1:]
    public = [p for p in parts if not p.startswith("_")][:2]
    namespace = ".".join(public)
    while public and namespace not in NAMES:
        namespace = ".".join(public := public[:-1])
    return namespace or parts[0]
