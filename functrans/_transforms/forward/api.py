"""Forward mode, as its user calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec

from functrans import tree
from functrans._core.array import aval_of, shape_of
from functrans._core.bind import AnyArray
from functrans._ops.calls import arrive
from functrans._transforms.arguments import (
    Leaves,
    describe,
    hand_out_all,
    hand_out_tree,
    is_number,
    open_all,
    open_argument,
    require_callable,
    require_numbers,
    zeros_like,
)
from functrans._transforms.derived import deriving, surfacing
from functrans._transforms.forward.jvp import JVPTrace, fit, mine
from functrans._transforms.reverse.api import active_tangents
from functrans._transforms.reverse.grad import split_aux
from functrans._transforms.watching.kinks import jvp_trace
from functrans.errors import ArgumentError, name_of

P = ParamSpec("P")


class JVPResult(NamedTuple):
    """Values and tangents of the output leaves, and how they nest."""

    values: list
    tangents: list
    structure: tree.Structure
    aux: Any


def run_jvp(
    who: str,
    f: Callable,
    opened: Sequence[Leaves | None],
    args: Sequence,
    tangents: Sequence,
    has_aux: bool,
    call: Callable | None = None,
) -> JVPResult:
    """Run ``f`` on dual numbers; ``tangents`` are those of the active leaves, in order."""
    trace = jvp_trace(f"{who}({name_of(f)})")
    try:
        remaining = iter(tangents)
        duals = [
            a.rebuild([trace.input(v, next(remaining)) for v in a.primals]) if a else x
            for a, x in zip(opened, args, strict=True)
        ]
        out = (call or (lambda xs: f(*xs)))(duals)
        out, aux = split_aux(who, f, out) if has_aux else (out, None)
        outs, structure = tree.flatten(out)
        require_numbers(f"{who}: `{name_of(f)}`", outs)
        values = [trace.lower(x) for x in outs]
        out_tangents = arrive([_tangent(trace, x) for x in outs])
        aux = tree.map(trace.lower, aux) if has_aux else None
        return JVPResult(values, out_tangents, structure, aux)
    finally:
        trace.closed = True


def _tangent(trace: JVPTrace, x: Any) -> AnyArray:
    return fit(x.tangent, x.primal) if mine(trace, x) else zeros_like(x)


@surfacing
def jvp(f: Callable, primals: Any, tangents: Any, *, has_aux: bool = False) -> tuple:
    """The value of ``f`` and its derivative along ``tangents``, ``J t``, in one forward run.

    ``primals`` and ``tangents`` are tuples with one entry an argument; anything else stands for
    the one argument of ``f``.

    Returns ``(out, out_tangent)``, or ``(out, out_tangent, aux)`` with ``has_aux``.

    >>> import functrans as ft, numpy as np
    >>> ft.jvp(np.sin, (0.0,), (2.0,))
    (Array(0.), Array(2.))
    """
    f = require_callable("jvp", f)
    args, ts = as_arguments("jvp", f, primals, tangents)
    opened = open_all("jvp", f, args)
    flat = active_tangents("jvp", f, opened, args, ts)
    run = run_jvp("jvp", f, opened, args, flat, has_aux)
    out = tree.unflatten(run.structure, hand_out_all(run.values))
    out_tangent = tree.unflatten(run.structure, hand_out_all(run.tangents))
    return (out, out_tangent, hand_out_tree(run.aux)) if has_aux else (out, out_tangent)


def as_arguments(who: str, f: Callable, primals: Any, tangents: Any) -> tuple[tuple, tuple]:
    """Primals and tangents as tuples, one entry an argument."""
    if not isinstance(primals, tuple | list):
        return (primals,), (tangents,)
    if not isinstance(tangents, tuple | list) or len(tangents) != len(primals):
        raise ArgumentError(
            f"{who}: `{name_of(f)}` was given {len(primals)} primals, so there must be a tuple "
            f"of as many tangents, but got {describe(tangents)}"
        )
    return tuple(primals), tuple(tangents)


@deriving
def derivative(f: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[Any, P], Any]:
    """The derivative of a function of one real number, ``x -> f'(x)``, of any output.

    >>> import functrans as ft, numpy as np
    >>> ft.derivative(ft.derivative(np.exp))(0.0)
    Array(1.)
    """
    function = require_callable("derivative", f)

    def slope(x: Any, *args: P.args, **kwargs: P.kwargs) -> AnyArray:
        if not is_number(x) or shape_of(x) != ():
            raise ArgumentError(
                f"derivative is for functions of one number, but `{name_of(f)}` was given "
                f"{describe(x)}. Use elementwise_grad, grad or jacobian."
            )
        opened = [open_argument("derivative", function, 0, x)]
        one = aval_of(opened[0].primals[0]).dtype.type(1)
        result = run_jvp(
            "derivative", f, opened, [x], [one], False, lambda xs: function(xs[0], *args, **kwargs)
        )
        return tree.unflatten(result.structure, hand_out_all(result.tangents))

    return slope
