"""Which of SciPy's functions take traced values: the one table, by namespace.

Errors, ``functrans.scipy`` and the page docs/scipy.md read it; a test compares it with SciPy's
namespaces and with ours. A subpackage of ``functrans.scipy`` has an entry here: ``called`` are
ufuncs that take traced values as SciPy has them; ``ours`` are found under the same name in
``functrans.scipy``; ``constant`` take traced values as
they are and have the derivative zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

from functrans.errors import scipy_frames, user_line


class Names(NamedTuple):
    """The names of a namespace, separated by blanks."""

    called: str = ""
    ours: str = ""
    constant: str = ""


NAMES: dict[str, Names] = {
    "special": Names(
        called="""
            beta betaln binom boxcox boxcox1p cbrt cosdg cosm1 cotdg dawsn digamma entr erf erfc
            erfcinv erfcx erfi erfinv exp10 exp2 expit expm1 exprel gamma gammaln huber inv_boxcox
            inv_boxcox1p kl_div log1p log_expit log_ndtr loggamma logit ndtr ndtri ndtri_exp owens_t
            poch powm1 pseudo_huber psi radian rel_entr rgamma sinc sindg softplus tandg xlog1py
            xlogy zeta
        """,
        ours="comb factorial log_softmax logsumexp multigammaln perm polygamma softmax",
        constant="gammasgn round",
    ),
    "fft": Names(
        ours="""
            fft fft2 fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft
            rfft2 rfftn
        """,
    ),
    "integrate": Names(
        ours="""
            cumulative_trapezoid fixed_quad odeint quad quad_vec simpson solve_ivp trapezoid
        """,
    ),
    "interpolate": Names(ours="Akima1DInterpolator CubicSpline PPoly PchipInterpolator"),
    "optimize": Names(
        ours="""
            bisect brenth brentq curve_fit fixed_point fsolve least_squares minimize minimize_scalar
            newton ridder root root_scalar toms748
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
    namespace, name, function = next(_candidates(frames))
    return (
        f"{user_line()}: scipy.{namespace}.{function} got {x!r}, whose derivative it would lose, "
        "and functrans.scipy has no counterpart. Wrap the call with ft.external, or pass the "
        "constant ft.stop_gradient(x)."
    )


def _candidates(frames: list[FrameType]) -> Iterator[tuple[str, str, str]]:
    """Namespace, name in the table and full name of what may have been called, outermost first."""
    for frame in frames:
        parts = frame.f_globals["__name__"].split(".")[1:]
        public = [p for p in parts if not p.startswith("_")][:2]
        namespace = ".".join(public)
        while public and namespace not in NAMES:
            namespace = ".".join(public := public[:-1])
        namespace = namespace or parts[0]
        method = frame.f_code.co_name
        owner = frame.f_locals.get("self")
        if owner is None:
            yield namespace, method, method
            continue
        suffix = "" if method in ("__init__", "__call__") else f".{method}"
        # a distribution of scipy.stats has a name, other objects that of their class
        for name in (getattr(owner, "name", None), type(owner).__name__):
            if isinstance(name, str):
                yield namespace, name, f"{name}{suffix}"


__all__ = ["NAMES", "Names", "advice"]
