"""Gradients: one backward walk from a scalar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, ParamSpec, overload

import numpy as np

from functrans import tree
from functrans._core.array import Array, aval_of, dtype_of
from functrans._core.bind import AnyArray, Tracer, cast
from functrans._transforms.arguments import (
    FIRST,
    Argnums,
    describe,
    hand_out,
    hand_out_all,
    hand_out_tree,
    is_number,
    labels,
    open_argument,
    plain_argnums,
    require_callable,
    require_open,
    select,
    zeros_like,
)
from functrans._transforms.derived import deriving
from functrans._transforms.reverse.nodes import ReverseTrace
from functrans._transforms.reverse.tracer import VJPTracer
from functrans._transforms.reverse.vjp import pull_back
from functrans._transforms.watching.kinks import vjp_trace
from functrans.errors import ArgumentError, NotDifferentiable, name_of

P = ParamSpec("P")


@overload
def grad(
    f: Callable[P, Any], argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...
) -> Callable[P, Any]: ...


@overload
def grad(
    f: None = None, argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...
) -> Callable[[Callable[P, Any]], Callable[P, Any]]: ...


@deriving
def grad(
    f: Any = None,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable:  # as the overloads say
    """The gradient of a scalar function: ``x -> df/dx``.

    ``argnums`` is a position, a parameter name or a tuple of them; the result follows it. It may be
    a path into a container, such as ``"params.layers[0].w"``, or a function of path and leaf that
    says what is differentiated: the result is then a dict by path. With ``has_aux`` the function
    returns ``(scalar, aux)`` and the gradient ``(gradient, aux)``. A gradient has the structure,
    shapes and dtypes of its argument, None at leaves that are not floating. For complex arguments
    of a real function it is the direction of steepest ascent,
    ``df/da + i df/db`` at ``a + ib``; ``holomorphic=True`` gives the complex
    derivative instead.

    Without ``f`` it is a decorator: ``@ft.grad(argnums=1)``.

    Raises NotDifferentiable where the output is not a real scalar or an argument holds no floats.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
    Array([ 3., 12.])

    >>> f = lambda params: params["w"] ** 2 * params["b"]
    >>> ft.grad(f, argnums="params['w']")({"w": 3.0, "b": 2.0})
    Array(12.)
    """
    run = _Run("grad", require_callable("grad", f), argnums, has_aux, holomorphic).__call__

    def gradient(*args: Any, **kwargs: Any) -> Any:
        _, aux, g = run(args, kwargs)
        return (g, hand_out_tree(aux)) if has_aux else g

    return gradient


@overload
def value_and_grad(
    f: Callable[P, Any], argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...
) -> Callable[P, tuple[Any, Any]]: ...


@overload
def value_and_grad(
    f: None = None, argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...
) -> Callable[[Callable[P, Any]], Callable[P, tuple[Any, Any]]]: ...


@deriving
def value_and_grad(
    f: Any = None,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable:  # as the overloads say
    """The value and the gradient in one run; arguments as for ``grad``.

    Returns ``(value, gradient)``, or ``((value, aux), gradient)`` with ``has_aux``.

    >>> import functrans as ft, numpy as np
    >>> ft.value_and_grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    (Array(5.), Array([2., 4.]))
    """
    function = require_callable("value_and_grad", f)
    return run_value_and_grad("value_and_grad", function, argnums, has_aux, holomorphic)


def run_value_and_grad(
    who: str, f: Callable, argnums: Argnums, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """``value_and_grad`` as a part of ``who``, which its errors name."""
    run = _Run(who, f, argnums, has_aux, holomorphic).__call__

    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value, aux, g = run(args, kwargs)
        value = hand_out(value)
        return ((value, hand_out_tree(aux)), g) if has_aux else (value, g)

    return value_and_gradient


class _Run:
    """One recording of ``f`` and one backward walk from its scalar output."""

    __slots__ = ("argnums", "count", "f", "has_aux", "holomorphic", "label", "numbers", "who")

    def __init__(self, who: str, f: Callable, argnums: Argnums, has_aux: bool, holomorphic: bool):
        self.who, self.f, self.argnums = who, f, (argnums := plain_argnums(who, argnums))
        self.has_aux, self.holomorphic = has_aux, holomorphic
        # a call of ``name_of`` takes as long as all else here
        name = f.__name__ if type(f) in (FunctionType, np.ufunc) else name_of(f)
        self.label = f"{who}({name})"
        self.numbers = labels(argnums)
        # of how many arguments the gradient is by each, in their order
        numbers: Any = argnums
        several = type(numbers) is tuple and numbers == FIRST[: len(numbers)]
        self.count = len(numbers) if several else 1 if numbers == 0 else None

    def __call__(self, args: tuple, kwargs: dict) -> tuple:
        """Value, auxiliary output and gradient; the first two not yet handed out."""
        if not kwargs and not self.has_aux and self._takes_all(args):
            return self._of_arrays(args)
        who, f = self.who, self.f
        chosen = select(who, f, self.argnums, args, kwargs)
        opened = [
            open_argument(who, f, i, x) for i, x in zip(self.numbers, chosen.values, strict=True)
        ]
        trace = vjp_trace(self.label)
        try:
            inputs = [trace.arguments(a.primals) for a in opened]
            out = chosen.call([a.rebuild(v) for a, v in zip(opened, inputs, strict=True)])
            out, aux = split_aux(who, f, out) if self.has_aux else (out, None)
            flat = [v for vs in inputs for v in vs]
            value, cts = self._pull(trace, out, flat)
        finally:
            trace.closed = True
            trace.tape = []
        gradients = hand_out_all(_gradients(cts, flat, self.holomorphic))
        aux = lower_all(trace, aux) if self.has_aux else None
        if chosen.single:
            return value, aux, opened[0].only(gradients)
        leaves = iter(gradients)
        return value, aux, tuple(a.only([next(leaves) for _ in a.active]) for a in opened)

    def _takes_all(self, args: tuple) -> bool:
        """Whether all arguments are floats or arrays of them, and the gradient is by each."""
        if len(args) != self.count:
            return False
        for x in args:
            kind = type(x)
            if kind is np.ndarray or kind is Array:
                if x.dtype.kind not in "fc":
                    return False
            elif isinstance(x, Tracer):
                if x.dtype.kind not in "fc" or x.current() is not x:
                    return False
            elif kind is not float and kind is not np.float64:
                return False
        return True

    def _of_arrays(self, args: tuple) -> tuple:
        """The same without taking anything apart: the usual call in a loop."""
        trace = vjp_trace(self.label)
        try:
            inputs = trace.arguments(args)
            value, cts = self._pull(trace, self.f(*inputs), inputs)
        finally:
            trace.closed = True
            trace.tape = []
        gradients = hand_out_all(_gradients(cts, inputs, self.holomorphic))
        return value, None, gradients[0] if self.argnums == 0 else tuple(gradients)

    def _pull(self, trace: ReverseTrace, out: Any, inputs: list) -> tuple[Any, list]:
        """The value of the output and the cotangents of the inputs."""
        if type(out) is not VJPTracer and isinstance(out, Tracer):
            out = out.current()
        value = out.primal if type(out) is VJPTracer and out.owner is trace else out
        if trace.hidden:
            value = trace.settled(value)
        seed = ONES.get(type(value))
        if seed is None or self.holomorphic:
            value = _scalar(self.who, self.f, out, value, self.holomorphic, inputs)
            seed = np.ones(value.shape, value.dtype)
        cts = pull_back(trace, [out], [seed], inputs, consume=True)
        return value, [trace.settled(c) for c in cts] if trace.hidden else cts


# The cotangents of scalars of the usual types.
ONES = {np.float64: np.float64(1.0), np.float32: np.float32(1.0), float: np.float64(1.0)}


def _gradients(cts: list, inputs: Sequence, holomorphic: bool) -> list:
    """Gradients from cotangents, in place."""
    for i, x in enumerate(inputs):
        ct, dtype = cts[i], (x.known or x.aval)[1]
        if (type(ct) is not np.ndarray and type(ct) is not np.float64) or (
                ct.dtype is not dtype or dtype.kind != "f"):
            cts[i] = _gradient(ct, x, holomorphic)
    return cts


def _gradient(ct, x, holomorphic):
    if ct is None:
        return zeros_like(x)
    ct = cast(ct, x.dtype)  # a rule with a float64 constant may have promoted it
    return np.conjugate(ct) if not holomorphic and dtype_of(ct).kind == "c" else ct


def _scalar(
    who: str, f: Callable, out: Any, value: Any, holomorphic: bool, inputs: Sequence
) -> AnyArray:
    """The value of a scalar output; an error that names the output otherwise."""
    if not is_number(value):
        raise NotDifferentiable(
            f"{who} needs a scalar output, but `{name_of(f)}` returned {describe(out)}. Return one "
            "number (with has_aux=True also anything else), or use jacobian."
        )
    require_open(f"{who}: `{name_of(f)}`", value)
    value = value if hasattr(value, "dtype") else np.asarray(value)
    if value.size != 1:
        raise NotDifferentiable(
            f"{who} needs a scalar output, but `{name_of(f)}` returned {aval_of(value)!r}. Use "
            f"jacobian({name_of(f)}), or reduce the result, for example with .sum()."
        )
    kind = value.dtype.kind
    if kind in "biu" and not isinstance(out, VJPTracer):
        raise NotDifferentiable(
            f"{who} needs a floating-point output, but `{name_of(f)}` returned {aval_of(value)!r}, "
            "which has no derivative."
        )
    if holomorphic:
        require_holomorphic(who, f, inputs, [value])
    if kind == "c" and not holomorphic:
        raise NotDifferentiable(
            f"{who} needs a real output, but `{name_of(f)}` returned {aval_of(value)!r}. Take "
            "np.abs, .real or .imag of it, or pass holomorphic=True for the complex derivative."
        )
    return value


def require_holomorphic(who: str, f: Callable, inputs: Sequence, outputs: Sequence) -> None:
    """Raise unless all inputs and outputs, values or avals, are complex."""
    if not all(x.dtype.kind == "c" for x in (*inputs, *outputs)):
        ins, outs = [", ".join(str(x.dtype) for x in xs) for xs in (inputs, outputs)]
        raise NotDifferentiable(
            f"{who}(holomorphic=True) needs complex arguments and a complex output, but "
            f"`{name_of(f)}` maps {ins} to {outs}"
        )


def split_aux(who: str, f: Callable, out: Any) -> tuple:
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentError(
            f"{who}(has_aux=True): `{name_of(f)}` must return (output, aux), but "
            f"returned {describe(out)}"
        )
    return out


def lower_all(trace: ReverseTrace, x: Any) -> Any:
    """``x`` with every value of this trace as its primal."""
    if type(x) is VJPTracer:
        return trace.settled(trace.lower(x))
    return tree.map(lambda v: trace.settled(trace.lower(v)), x)
