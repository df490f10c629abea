"""Products with second derivatives, and derivatives of elementwise functions, without matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from functrans import tree
from functrans._core.bind import AnyArray
from functrans._transforms.arguments import (
    check_like,
    plain_argnums,
    require_callable,
    require_numbers,
)
from functrans._transforms.derived import deriving, surfacing
from functrans._transforms.forward.api import as_arguments, jvp
from functrans._transforms.reverse.grad import grad, run_value_and_grad
from functrans.errors import ArgumentError, name_of

P = ParamSpec("P")


@surfacing
def hvp(f: Callable, primals: Any, tangents: Any) -> tuple:
    """The value of a scalar function and ``H v``, without forming the Hessian.

    Forward over reverse: one gradient's work plus one tangent's. ``primals`` and ``tangents`` are
    tuples with one entry an argument, and so is the product; anything else stands for the one
    argument.

    >>> import functrans as ft, numpy as np
    >>> ft.hvp(lambda x: np.sum(x**3), np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    (Array(9.), Array([6., 0.]))
    """
    f = require_callable("hvp", f)
    args, ts = as_arguments("hvp", f, primals, tangents)
    for i, (t, x) in enumerate(zip(ts, args, strict=True)):
        check_like("hvp", f, f"tangent {i}", t, x)
    both = run_value_and_grad("hvp", f, tuple(range(len(args))))
    (value, _), (_, product) = jvp(both, args, ts)
    return value, product if isinstance(primals, tuple | list) else product[0]


@surfacing
def vhp(f: Callable, primals: Any, cotangents: Any) -> tuple:
    """The value of a scalar function and ``v^T H``, reverse over reverse.

    Arguments and result as for ``hvp``, to which it is equal where second derivatives are
    continuous.

    >>> import functrans as ft, numpy as np
    >>> ft.vhp(lambda x: np.sum(x**3), np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    (Array(9.), Array([6., 0.]))
    """
    f = require_callable("vhp", f)
    args, vs = as_arguments("vhp", f, primals, cotangents)
    for i, (v, x) in enumerate(zip(vs, args, strict=True)):
        check_like("vhp", f, f"cotangent {i}", v, x)

    def along(*xs: Any) -> tuple:
        value, gs = run_value_and_grad("vhp", f, tuple(range(len(xs))))(*xs)
        pairs = zip(tree.leaves(gs), tree.leaves(vs), strict=True)
        return sum((g * v).sum() for g, v in pairs), value

    product, value = grad(along, tuple(range(len(args))), has_aux=True)(*args)
    return value, product if isinstance(primals, tuple | list) else product[0]


@deriving
def elementwise_grad(f: Callable[P, Any], argnums: int | str = 0) -> Callable[P, Any]:
    """The derivative of a function that acts entry by entry, ``dy_i/dx_i``.

    One backward walk with a cotangent of ones: for any other function, the column sums of J.

    >>> import functrans as ft, numpy as np
    >>> ft.elementwise_grad(np.tanh)(np.array([0.0, 1.0]))
    Array([1.        , 0.41997434])
    """
    function = require_callable("elementwise_grad", f)
    argnum = plain_argnums("elementwise_grad", argnums)
    if isinstance(argnum, tuple):
        raise ArgumentError(f"elementwise_grad: argnums must be one argument, but is {argnum!r}")

    def slopes(*args: P.args, **kwargs: P.kwargs) -> Any:
        def total(*args: P.args, **kwargs: P.kwargs) -> AnyArray:
            y = function(*args, **kwargs)
            require_numbers(f"elementwise_grad: `{name_of(f)}`", [y], "a number or an array")
            return np.sum(y)

        functools.update_wrapper(total, f)
        return grad(total, argnum)(*args, **kwargs)

    return slopes
