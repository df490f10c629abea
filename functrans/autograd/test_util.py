"""Derivatives compared with differences."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from functrans.autograd._names import missing
from functrans.autograd.core import make_jvp, make_vjp, vspace
from functrans.autograd.wrap_util import get_name, unary_to_nary

TOL = RTOL = EPS = 1e-6


def scalar_close(a: Any, b: Any) -> Any:
    """Whether two numbers agree to 1e-6, absolutely or relative to their sum."""
    return abs(a - b) < TOL or abs(a - b) / abs(a + b) < RTOL


def make_numerical_jvp(f: Callable, x: Any) -> Callable:
    """``v -> J v`` by central differences."""
    of_x, of_y = vspace(x), vspace(f(x))

    def jvp(v: Any) -> Any:
        ends = [f(of_x.add(x, of_x.scalar_mul(v, side * EPS / 2))) for side in (1, -1)]
        change = of_y.add(ends[0], of_y.scalar_mul(ends[1], -1.0))
        return of_y.scalar_mul(change, 1.0 / EPS)

    return jvp


def check_equivalent(x: Any, y: Any) -> None:
    """AssertionError unless two values have one vector space and agree along a random covector."""
    of_x, of_y = vspace(x), vspace(y)
    assert of_x == of_y, f"VSpace mismatch:\nx: {of_x}\ny: {of_y}"
    v = of_x.randn()
    same = scalar_close(of_x.inner_prod(x, v), of_x.inner_prod(y, v))
    assert same, f"Value mismatch:\nx: {x}\ny: {y}"


def check_vjp(f: Callable, x: Any) -> None:
    """AssertionError unless the vjp of ``f`` at ``x`` agrees with differences."""
    vjp, y = make_vjp(f, x)
    of_x, of_y = vspace(x), vspace(y)
    v, w = of_x.randn(), of_y.randn()
    pulled = of_x.covector(vjp(of_y.covector(w)))
    assert vspace(pulled) == of_x, f"VSpace mismatch:\nx: {of_x}\nvjp: {vspace(pulled)}"
    exact = of_x.inner_prod(v, pulled)
    numeric = of_y.inner_prod(w, make_numerical_jvp(f, x)(v))
    assert scalar_close(numeric, exact), (
        f"Derivative (VJP) check of {get_name(f)} failed with arg {x}:\n"
        f"analytic: {exact}\nnumeric:  {numeric}"
    )


def check_jvp(f: Callable, x: Any) -> None:
    """AssertionError unless the jvp of ``f`` at ``x`` agrees with differences."""
    v = vspace(x).randn()
    check_equivalent(make_jvp(f, x)(v)[1], make_numerical_jvp(f, x)(v))


@unary_to_nary
def check_grads(f, x, modes=("fwd", "rev"), order=2):
    """AssertionError unless derivatives of ``f`` up to ``order`` agree with differences.

    >>> import functrans.autograd.numpy as np
    >>> from functrans.autograd.test_util import check_grads
    >>> check_grads(lambda x: np.sum(np.sin(x)), modes=["fwd", "rev"], order=2)(np.ones(2))
    """
    if not set(modes) <= {"fwd", "rev"}:
        raise AssertionError(f'modes are "fwd" and "rev", not {modes}')
    if "fwd" in modes:
        check_jvp(f, x)
        if order > 1:
            _check_next(f"jvp_{get_name(f)}", lambda x, v: make_jvp(f, x)(v)[1],
                        x, vspace(x).randn(), modes, order)
    if "rev" in modes:
        check_vjp(f, x)
        if order > 1:
            _check_next(f"vjp_{get_name(f)}", lambda x, v: make_vjp(f, x)[0](v),
                        x, vspace(f(x)).randn(), modes, order)


def _check_next(name: str, f: Callable, x: Any, v: Any, modes: Sequence[str], order: int) -> None:
    f.__name__ = name
    check_grads(f, (0, 1), modes, order=order - 1)(x, v)


def combo_check(fun: Callable, *args: Any, **kwargs: Any) -> Callable:
    """``check_grads`` for each combination of the given arguments and keywords."""

    def check(*choices: Sequence, **named: Sequence) -> None:
        for xs in itertools.product(*choices):
            for values in itertools.product(*named.values()):
                check_grads(fun, *args, **kwargs)(*xs, **dict(zip(named, values, strict=True)))

    return check


def quick_grad_check(fun: Callable, arg0: Any, extra_args: Sequence = (),
                     kwargs: dict | None = None, verbose: bool = True, eps: float = 1e-4,
                     rtol: float = 1e-4, atol: float = 1e-6, rs: Any = None) -> None:
    """Deprecated in autograd: ``check_grads`` of the first argument, in reverse mode."""
    warnings.warn("quick_grad_check is deprecated: use test_util.check_grads", stacklevel=2)
    check_grads(lambda x: fun(x, *extra_args, **kwargs or {}), modes=["rev"], order=1)(arg0)


__all__ = ["EPS", "RTOL", "TOL", "check_equivalent", "check_grads", "check_jvp", "check_vjp",
           "combo_check", "make_numerical_jvp", "quick_grad_check", "scalar_close"]
__getattr__ = missing(__name__)
