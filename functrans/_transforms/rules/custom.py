"""Functions whose derivative their author gives, and constants on purpose."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.array import PYTHON_SCALARS, Aval, aval_of, is_inexact, plain, shape_of
from functrans._core.bind import AnyArray, Tracer, cast, newest_trace
from functrans._core.plain import placed
from functrans._core.writing import current, handed_to
from functrans._ops.calls import stop
from functrans._transforms.arguments import describe, hand_out, zeros_like
from functrans._transforms.derived import ByValue
from functrans._transforms.mutation import follow
from functrans._transforms.rules.calls import ForwardRuled, ReverseRuled, RuledCall
from functrans.errors import ArgumentError, ShapeError, name_of

# ---- Functions whose derivative their author gives: ``custom_jvp`` and ``custom_vjp``


class Custom(ByValue):
    """A function that carries a rule. Called, it is the function."""

    rules: tuple[Callable, ...] = ()  # as the user wrote them

    def __init__(self, f: Callable, nondiff_argnums: int | Sequence[int] = ()):
        who = type(self).__name__
        if not callable(f):
            raise ArgumentError(f"{who} needs a function, but got {describe(f)}")
        given = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        if not all(isinstance(i, int) and i >= 0 for i in given):
            raise ArgumentError(f"{who}: nondiff_argnums are positions of arguments, counted from "
                                f"0, but got {nondiff_argnums!r}")
        self.nondiff = tuple(sorted(set(given)))
        functools.update_wrapper(self, f, updated=())
        self.f = follow(f)
        self.name = f"{type(self).__name__}({name_of(f)})"
        self.signature = signature_of(f)

    def __get__(self, instance: Any, owner: type | None = None) -> Custom | MethodType:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return self.name

    def by_value(self) -> tuple:
        made = (self.__wrapped__, self.nondiff)  # type: ignore[attr-defined]  # f
        return type(self), made, self.rules

    def __setstate__(self, rules: tuple[Callable, ...]) -> None:
        if rules:
            self.set_rules(*rules)

    def set_rules(self, *rules: Callable) -> None:
        """Take the rules of the class's own method."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._require_rule()
        given = positional(self, args, kwargs)
        if self.nondiff:
            self._require_fixed(given)
        run = FlatCall(self.name, self.f, given)
        if newest_trace(run.operands) is None:
            return self.f(*args, **kwargs)
        outs = self._call(run)(*run.operands)
        assert run.out is not None
        return handed_to(sys._getframe(1), tree.unflatten(run.out, outs), fixed=False)

    def _require_rule(self) -> None:
        raise NotImplementedError

    def _call(self, run: FlatCall) -> RuledCall:
        raise NotImplementedError

    def _require_fixed(self, args: tuple) -> None:
        """Raise where an argument that has no derivative is not there, or holds an array."""
        for i in self.nondiff:
            if i >= len(args):
                raise ArgumentError(f"{self.name}: nondiff_argnums names argument {i}, but there "
                                    f"are {len(args)}")
            if any(map(is_operand, tree.leaves(args[i]))):
                raise ArgumentError(
                    f"{self.name}: argument {i} is one of nondiff_argnums, which are functions, "
                    "strings and numbers of Python, but holds an array. Leave it out of them; the "
                    "rule gives None, or a zero tangent, for what has no derivative."
                )

    def _fixed(self, args: tuple) -> tuple:
        """The arguments that have no derivative, which a rule is given first."""
        return tuple([args[i] for i in self.nondiff])

    def _others(self, args: tuple) -> tuple:
        """The arguments that have one."""
        return tuple([x for i, x in enumerate(args) if i not in self.nondiff])


class FlatCall:
    """One call of a function: which leaves of its arguments are operands, how its outputs nest."""

    __slots__ = ("f", "leaves", "name", "operands", "out", "places", "structure")

    def __init__(self, name: str, f: Callable, args: tuple):
        self.name = name
        self.f = f
        leaves, self.structure = tree.flatten(args)
        self.leaves = [plain(x) for x in leaves]
        self.places = [i for i, x in enumerate(self.leaves) if is_operand(x)]
        self.operands = [self.leaves[i] for i in self.places]
        self.out: tree.Structure | None = None

    @property
    def key(self) -> tuple:
        """Two runs with the same key and operands are the same computation."""
        fixed = tuple(x if is_static(x) else id(x) for x in self.leaves if not is_operand(x))
        return (self.f, repr(self.structure), fixed)

    def args(self, operands: Sequence) -> tuple:
        """The positional arguments with these operands."""
        return tree.unflatten(self.structure, placed(operands, self.places, self.leaves))

    def released(self) -> list:
        """The operands, which the call no longer keeps alive: ``fun`` is given them."""
        operands, self.operands = self.operands, []
        for i in self.places:
            self.leaves[i] = None
        return operands

    def tangents(self, ts: Sequence) -> tuple:
        """Tangents nested as the arguments: zero for a Python float, None where there is none."""
        fixed = [type(x)(0) if type(x) in (float, complex) else None for x in self.leaves]
        return tree.unflatten(self.structure, placed(ts, self.places, fixed))

    def fun(self, *operands: Any) -> tuple:
        """The function itself, flat."""
        return tuple(self.outputs("the function", self.f(*self.args(operands))))

    def flat(self, *operands: Any) -> list:
        """The function itself, flat, Python scalars as they are."""
        return self.numbers("the function", self.f(*self.args(operands)))

    def outputs(self, who: str, out: Any) -> list:
        """The leaves of an output as arrays."""
        return [np.asarray(x) if type(x) in PYTHON_SCALARS else x for x in self.numbers(who, out)]

    def numbers(self, who: str, out: Any) -> list:
        """The leaves of an output; all ways to compute it must agree on how they nest."""
        leaves, structure = tree.flatten(out)
        for x in leaves:
            if not isinstance(x, np.ndarray | np.generic | Tracer | bool | int | float | complex):
                raise ArgumentError(f"{self.name}: {who} returned {describe(x)}, not a number")
        if self.out is not None and repr(self.out) != repr(structure):
            raise ArgumentError(
                f"{self.name}: {who} returned an output with structure {structure!r} where "
                f"{self.out!r} was returned before"
            )
        self.out = structure
        return [plain(x) for x in leaves]


def is_operand(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.generic | Tracer) and x.dtype.kind in "biufcV"


def is_static(x: Any) -> bool:
    return isinstance(x, str | bytes | int | float | complex)


def positional(custom: Custom, args: tuple, kwargs: dict) -> tuple:
    """The arguments in the order of the parameters, defaults filled in: rules take no keywords."""
    if custom.signature is None:
        if kwargs:
            raise ArgumentError(
                f"{custom.name} takes no keywords: `{name_of(custom.f)}` has no signature"
            )
        return args
    bound = custom.signature.bind(*args, **kwargs)
    if bound.kwargs:
        raise ArgumentError(
            f"{custom.name}: {', '.join(map(repr, bound.kwargs))} can only be given by keyword, "
            "but rules take positional arguments. Make it a positional parameter."
        )
    bound.apply_defaults()
    return bound.args


def signature_of(f: Callable) -> inspect.Signature | None:
    """None for ufuncs, whose operands alone matter here, and for builtins that have none."""
    try:
        return None if isinstance(f, np.ufunc) else inspect.signature(f)
    except (TypeError, ValueError):
        return None


class custom_jvp(Custom):
    """A function with a forward rule, ``(x, t) -> (f(x), J(x) t)``, used in every mode.

    ``f.defjvp(rule)`` sets it; ``rule(primals, tangents)`` takes two tuples with an entry for each
    positional argument, keywords resolved, and returns the output and its tangent, which must be
    linear in the tangents. Containers nest alike in both. Tangents of floating values are never
    None (zeros where nothing varies); those of integers, strings and other objects are. Reverse
    mode is the rule's transpose, Taylor mode follows from it, ``vmap`` runs it on slices, and it is
    differentiated for higher orders. What ``f`` or the rule closes over is differentiated as usual.

    Of ``nondiff_argnums``, positions of functions, strings and Python numbers, the rule is given
    the values first, ``rule(*those, primals, tangents)``, and the tuples are without them.

    Raises ArgumentError or ShapeError when called, where the rule's result does not fit.

    >>> import functrans as ft, numpy as np
    >>> from functrans import custom_jvp
    >>> @custom_jvp
    ... def log1pexp(x):
    ...     return np.logaddexp(0.0, x)
    >>> @log1pexp.defjvp
    ... def rule(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return log1pexp(x), t / (1 + np.exp(-x))
    >>> ft.grad(log1pexp)(0.0)
    Array(0.5)
    """

    def __init__(self, f: Callable, nondiff_argnums: int | Sequence[int] = ()):
        super().__init__(f, nondiff_argnums)
        self.rule: Callable | None = None

    def defjvp(self, rule: Callable) -> Callable:
        """Set the rule; returns it, so that it can be used as a decorator."""
        self.rule = follow(require_rule(self, "defjvp", rule))
        self.rules = (rule,)
        return rule

    def set_rules(self, *rules: Callable) -> None:
        self.defjvp(*rules)

    def _require_rule(self) -> None:
        if self.rule is None:
            raise ArgumentError(f"{self.name} has no rule; set it with .defjvp(rule)")

    def _call(self, run: FlatCall) -> RuledCall:
        return ForwardRuled(self.name, run.fun, functools.partial(self._apply, run), run.key, run)

    def _apply(self, run: FlatCall, primals: Sequence, tangents: Sequence) -> tuple[list, list]:
        assert self.rule is not None
        args, ts = run.args(primals), run.tangents(tangents)
        pair = self.rule(*self._fixed(args), self._others(args), self._others(ts))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentError(
                f"{self.name}: the rule must return (output, its tangent), but returned "
                f"{describe(pair)}"
            )
        ys = run.outputs("the rule", pair[0])
        leaves, structure = tree.flatten(pair[1])
        if len(leaves) != len(ys) and any(is_inexact(y) for y in ys):
            leaves = align(
                f"{self.name}: the rule returned a tangent", pair[0], pair[1], structure
            )
        ts = [tangent_like(self.name, plain(t), y) for t, y in zip(leaves, ys, strict=True)]
        return ys, ts


class custom_vjp(Custom):
    """A function with a reverse rule, used in every mode.

    ``f.defvjp(fwd, bwd)`` sets it. ``fwd(*args)`` returns the output and residuals, any container;
    ``bwd(residuals, ct)`` takes them and the output's cotangent ``v`` and returns a tuple with
    ``v^T J`` for each positional argument, nested as the argument, None for zero. Cotangents
    are not conjugated: for complex values, multiply by the derivative as it is. Forward mode is the
    transpose of ``bwd``, ``vmap`` runs both on slices, and both are differentiated for higher
    orders. What ``f`` or ``fwd`` closes over is differentiated as usual.

    Of ``nondiff_argnums``, positions of functions, strings and Python numbers, ``bwd`` is given the
    values first, ``bwd(*those, residuals, ct)``, and returns no cotangent.

    Raises ArgumentError or ShapeError, when called, where the result of a rule does not fit.

    >>> import functrans as ft, numpy as np
    >>> from functrans import custom_vjp
    >>> @custom_vjp
    ... def clipped(x):  # the identity, whose gradient is kept within bounds
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda _, ct: (np.clip(ct, -1.0, 1.0),))
    >>> ft.grad(lambda x: 10 * clipped(x))(3.0)
    Array(1.)
    """

    def __init__(self, f: Callable, nondiff_argnums: int | Sequence[int] = ()):
        super().__init__(f, nondiff_argnums)
        self.fwd: Callable | None = None
        self.bwd: Callable | None = None

    def defvjp(self, fwd: Callable, bwd: Callable) -> None:
        """Set ``fwd(*args) -> (out, residuals)`` and ``bwd(residuals, ct) -> cotangents``."""
        self.fwd = follow(require_rule(self, "defvjp", fwd))
        self.bwd = follow(require_rule(self, "defvjp", bwd))
        self.rules = fwd, bwd

    def set_rules(self, *rules: Callable) -> None:
        self.defvjp(*rules)

    def _require_rule(self) -> None:
        if self.fwd is None:
            raise ArgumentError(f"{self.name} has no rule; set it with .defvjp(fwd, bwd)")

    def _call(self, run: FlatCall) -> RuledCall:
        fwd, bwd = functools.partial(self._forward, run), functools.partial(self._backward, run)
        return ReverseRuled(self.name, run.fun, fwd, bwd, run.key, run)

    def _forward(self, run: FlatCall, primals: Sequence) -> tuple[list, list, Any]:
        assert self.fwd is not None
        pair = self.fwd(*run.args(primals))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentError(
                f"{self.name}: fwd must return (output, residuals), but returned {describe(pair)}"
            )
        ys = run.outputs("fwd", pair[0])
        residuals, structure = tree.flatten(pair[1])
        avals = [aval_of(x) for x in primals]
        return ys, [plain(r) for r in residuals], (structure, [aval_of(y) for y in ys], avals)

    def _backward(self, run: FlatCall, residuals: Sequence, rest: Any, cts: Sequence) -> list:
        assert self.bwd is not None and run.out is not None
        structure, outs, avals = rest
        full = [
            zeros_like(y) if ct is None and is_inexact(y) else ct
            for ct, y in zip(cts, outs, strict=True)
        ]
        args = run.args(avals)
        fixed = self._fixed(args)
        returned = self.bwd(*fixed, tree.unflatten(structure, residuals),
                            tree.unflatten(run.out, full))
        many = len(args) - len(fixed)
        if not isinstance(returned, tuple | list) or len(returned) != many:
            raise ArgumentError(
                f"{self.name}: bwd must return a tuple of {many} cotangents, one for each "
                f"positional argument, but returned {describe(returned)}"
            )
        rest = iter(returned)
        arg_cts = [None if i in self.nondiff else next(rest) for i in range(len(args))]
        leaves: list = []
        for i, (ct, x) in enumerate(zip(arg_cts, args, strict=True)):
            what = f"{self.name}: bwd returned a cotangent of argument {i}"
            leaves += align(what, x, ct, tree.structure(ct))
        return [
            cotangent_like(self.name, leaves[i], x) for i, x in zip(run.places, avals, strict=True)
        ]


def require_rule(custom: Custom, method: str, rule: Any) -> Callable:
    if not callable(rule):
        raise ArgumentError(f"{custom.name}.{method} needs functions, but got {describe(rule)}")
    return rule


def align(what: str, like: Any, value: Any, structure: tree.Structure) -> list:
    """What ``value`` has at each leaf of ``like``; None where it is in a part that is None."""
    shape = like if isinstance(like, tree.Structure) else _structure(like)
    leaves = _align(shape, value)
    if leaves is None:
        raise ArgumentError(f"{what} with structure {structure!r} where {shape!r} was needed")
    return leaves


def _structure(x: Any) -> tree.Structure:
    return tree.LEAF if isinstance(x, Aval) else _with_avals(x)


def _with_avals(x: Any) -> tree.Structure:
    """The structure of ``x``, in which an Aval, though a namedtuple, is a leaf."""
    opened = tree.opened(x)
    if opened is None:
        return tree.LEAF
    return tree.Structure(type(x), opened[1], tuple(map(_structure, opened[0])))


def _align(shape, value) -> list | None:
    if value is None:
        return [None] * shape.size
    if shape.kind is None:
        return [current(value)]
    opened = tree.opened(value)
    if opened is None or type(value) is not shape.kind or opened[1] != shape.aux:
        return None
    children = list(opened[0])
    if len(children) != len(shape.children):
        return None
    parts = [_align(s, c) for s, c in zip(shape.children, children, strict=True)]
    return None if any(p is None for p in parts) else [x for p in parts for x in p or ()]


def tangent_like(name: str, t: Any, y: Any) -> AnyArray | None:
    """A tangent of output ``y``, in its dtype; None where ``y`` is no float."""
    return (
        None
        if t is None or not is_inexact(y)
        else fit(f"{name}: the rule's tangent", "output", t, y)
    )


def cotangent_like(name: str, ct: Any, x: Any) -> AnyArray | None:
    """A cotangent of argument ``x``, in its dtype; None where ``x`` is no float."""
    return (
        None
        if ct is None or not is_inexact(x)
        else fit(f"{name}: bwd's cotangent", "argument", plain(ct), x)
    )


def fit(what: str, whose: str, t: Any, x: Any) -> AnyArray:
    if not isinstance(t, np.ndarray | np.generic | Tracer | int | float | complex):
        raise ArgumentError(f"{what} must be an array, but is {describe(t)}")
    if shape_of(t) != shape_of(x):
        raise ShapeError(
            f"{what} has shape {shape_of(t)}, but the {whose} it belongs to has {shape_of(x)}"
        )
    kind, dtype = aval_of(t).dtype.kind, aval_of(x).dtype
    if (kind == "c" and dtype.kind != "c") or kind not in "biufcV":
        raise ArgumentError(
            f"{what} has dtype {aval_of(t).dtype}, but the {whose} it belongs to has {dtype}"
        )
    return cast(t, dtype)


# ---- Constants on purpose: a value that the differentiating transforms see as fixed


def stop_gradient(x: Any) -> Any:
    """``x`` itself, with derivative zero: ``x -> x``, ``t -> 0``.

    ``x`` may be a container; leaves that are not arrays pass through. Under ``vmap`` it is
    still one value for each entry of the batch.

    Returns ``x``, with the same structure, shapes and dtypes.

    >>> import functrans as ft, numpy as np
    >>> from functrans import stop_gradient
    >>> ft.grad(lambda x: x * stop_gradient(x))(3.0)
    Array(3.)
    """
    return handed_to(sys._getframe(1), tree.map(_stop, x))


def _stop(x):
    y = stop(x) if isinstance(x, Tracer) else x
    # read-only, as it may be another value's storage; Python scalars stay weak
    return hand_out(y) if isinstance(y, np.ndarray | np.generic) else y
