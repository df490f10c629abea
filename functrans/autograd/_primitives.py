"""``primitive``: a function as one op with the rules that its author gives.

A rule is made where the op is recorded, from plain values or those of outer derivatives, and called
in the backward pass. Where a function has vjps alone, forward mode transposes them: by tracing
them, or, if they are opaque, by one pullback for each entry of the output.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.array import Aval, aval_of, inexact_dtype, is_inexact, plain, shape_of
from functrans._core.bind import PLAIN, STRONG, Tracer, cast
from functrans._core.plain import placed
from functrans._transforms.reverse.cotangents import add_cotangents, unless_zero
from functrans._transforms.reverse.nodes import CallNode, recorded
from functrans._transforms.reverse.tracer import VJPTracer
from functrans._transforms.reverse.vjp import VJPTrace, transpose
from functrans._transforms.rules.calls import ReverseRuled, outside
from functrans.autograd._runs import getval, is_traced_in, zeros_where_none
from functrans.autograd.util import subval
from functrans.autograd.wrap_util import get_name, wraps
from functrans.numpy.protocols import FUNCTIONS, meaning_of

# The rules of each primitive: ``vjps[f](argnums, ans, args, kwargs)(g)`` are cotangents,
# ``jvps[f](argnums, tangents, ans, args, kwargs)`` is the tangent of the output.
primitive_vjps: dict[Any, Callable] = {}
primitive_jvps: dict[Any, Callable] = {}
# Kind of node -> primitives that are constants to the trace of such nodes.
notrace_primitives: dict[Any, set] = defaultdict(set)


class VJPNode:
    """The kind of node of reverse mode, for ``register_notrace``."""


class JVPNode:
    """The kind of node of forward mode, for ``register_notrace``."""


_NO_VJP, _NO_JVP = notrace_primitives[VJPNode], notrace_primitives[JVPNode]


def primitive(f_raw: Callable) -> Callable:
    """``f_raw`` as one op, whose derivative ``defvjp`` and ``defjvp`` give.

    Traced values among the positional arguments, in containers too, are what it is differentiated
    by; the function itself sees plain values.

    Returns the function, with ``f_raw`` as its attribute ``fun``.

    >>> from functrans.autograd import grad
    >>> from functrans.autograd.extend import defvjp, primitive
    >>> @primitive
    ... def cube(x):
    ...     return x**3
    >>> defvjp(cube, lambda ans, x: lambda g: 3.0 * g * x**2)
    >>> float(grad(cube)(2.0))
    12.0
    """

    @wraps(f_raw)
    def f_wrapped(*args: Any, **kwargs: Any) -> Any:
        for x in args:
            if type(x) not in PLAIN and is_traced_in(x):
                return _call(f_wrapped, args, kwargs)
        return f_raw(*args, **kwargs)

    f_wrapped.fun = f_raw  # type: ignore[attr-defined]  # as autograd's
    f_wrapped._is_autograd_primitive = True  # type: ignore[attr-defined]
    return f_wrapped


def notrace_primitive(f_raw: Callable) -> Callable:
    """``f_raw`` of the values inside of traced ones: a constant to every derivative."""
    @wraps(f_raw)
    def f_wrapped(*args: Any, **kwargs: Any) -> Any:
        return f_raw(*map(getval, args), **kwargs)

    f_wrapped._is_primitive = True  # type: ignore[attr-defined]  # as autograd's
    return f_wrapped


def _call(f: Callable, args: tuple, kwargs: dict) -> Any:
    operands: list = []
    owners: list[int] = []
    nested: dict[int, tuple[list, list[int], tree.Structure]] = {}
    for i, x in enumerate(args):
        if isinstance(x, Tracer):
            operands.append(x.current())
            owners.append(i)
        elif type(x) not in PLAIN and is_traced_in(x):
            if f not in primitive_vjps and f not in primitive_jvps:
                return f.fun(*args, **kwargs)  # type: ignore[attr-defined]  # a list is no operand
            leaves, nesting = tree.flatten(x)
            places = [j for j, v in enumerate(leaves) if isinstance(v, Tracer)]
            nested[i] = leaves, places, nesting
            operands += [leaves[j] for j in places]
            owners += [i] * len(places)
    call = PrimitiveCall(f, args, kwargs, owners, nested)
    trace = operands[0].owner
    outs = call(*operands) if len(operands) > 1 or trace.closed else trace.call(call, operands)
    return outs[0] if call.out is tree.LEAF else tree.unflatten(call.out, outs)


class PrimitiveCall(ReverseRuled):
    """One call of a primitive; ``owners`` says of which argument each operand is, or is a leaf."""

    __slots__ = ("args", "f", "kwargs", "nested", "out", "owners")

    out: Any

    def __init__(self, f: Callable, args: tuple, kwargs: dict, owners: list[int], nested: dict):
        self.name, self.f, self.args, self.kwargs = get_name(f), f, args, kwargs
        self.owners, self.nested, self.out = owners, nested, None
        self.run, self.key = self, (f, id(self))

    def fun(self, *operands: Any) -> tuple:  # type: ignore[override]  # a method for the slot
        """The function itself, for programs, into which it is written."""
        raw: Any = self.f
        return tuple(self._opened(raw.fun(*self.arguments(operands), **self.kwargs)))

    def arguments(self, operands: Sequence) -> list:
        """The arguments with these operands."""
        args, values = list(self.args), iter(operands)
        if not self.nested:
            for i, x in zip(self.owners, operands, strict=True):
                args[i] = x
            return args
        for i in dict.fromkeys(self.owners):
            if i in self.nested:
                leaves, places, nesting = self.nested[i]
                args[i] = tree.unflatten(
                    nesting, placed([next(values) for _ in places], places, leaves))
            else:
                args[i] = next(values)
        return args

    def _apply(self, operands: Sequence) -> tuple[list, Any, list]:
        """The arguments, the output and its leaves."""
        args = self.arguments(operands)
        f: Any = self.f
        ans = (f.fun if PLAIN.issuperset(map(type, operands)) else f)(*args, **self.kwargs)
        if type(ans) in STRONG:
            self.out = tree.LEAF
            return args, ans, [ans]
        return args, ans, self._opened(ans)

    def _opened(self, ans: Any) -> list:
        """The leaves of an output as arrays."""
        ys, self.out = tree.flatten(ans)
        for i, y in enumerate(ys):
            if not isinstance(y, np.ndarray | np.generic | Tracer):
                if not isinstance(y, bool | int | float | complex):
                    raise TypeError(f"Can't differentiate w.r.t. type {type(y)}, which "
                                    f"{self.name} returned")
                ys[i] = np.asarray(y)
            elif isinstance(y, np.ndarray):
                ys[i] = plain(y)
        return ys

    def active(self, wanted: Iterable[bool]) -> tuple[int, ...]:
        """The arguments with an operand that is ``wanted``."""
        return tuple(dict.fromkeys([i for i, w in zip(self.owners, wanted, strict=True) if w]))

    def _rule(self, argnums: tuple[int, ...], ans: Any, args: list) -> Callable:
        rule = primitive_vjps.get(self.f)
        if rule is None:
            raise NotImplementedError(
                f"VJP of {self.name} wrt argnums {argnums} not defined: give it one with defvjp")
        return rule(argnums, ans, tuple(args), self.kwargs)

    def pulled(self, vjp: Callable, argnums: tuple[int, ...], g: Sequence, avals: Sequence,
               wanted: Sequence[bool]) -> list:
        """Cotangents of the operands, None where not wanted, from those of the output's leaves."""
        given = vjp(tree.unflatten(self.out, g))
        parts: dict[int, Any] = {}
        for i, ct in zip(argnums, given, strict=True):
            if isinstance(ct, SparseObject):
                ct = ct.mut_add(ct.vs.zeros())
            if i not in self.nested:
                parts[i] = iter((ct,))
                continue
            leaves, places, nesting = self.nested[i]
            whole = [None] * len(leaves) if ct is None else tree.matching(nesting, ct, 0)
            parts[i] = iter([whole[j] for j in places])
        cts = []
        for i, aval, w in zip(self.owners, avals, wanted, strict=True):
            ct = next(parts[i]) if i in parts else None
            cts.append(self.fitted(ct, aval, f"its vjp wrt argnum {i}") if w else None)
        return cts

    def fitted(self, ct: Any, aval: Aval, what: str) -> Any:
        """What a rule returned, in the shape and type that it must have; None stays zero."""
        if ct is None or not is_inexact(aval):
            return None
        ct = ct if isinstance(ct, Tracer) else plain(np.asarray(ct))
        if (shape := shape_of(ct)) != aval.shape:
            if ct.size == aval.size:
                ct = ct.reshape(aval.shape)
            elif ct.size == 1:
                ct = np.broadcast_to(ct.reshape(()), aval.shape)
            else:
                raise ValueError(
                    f"{self.name}: {what} returned shape {shape} for a value of shape "
                    f"{aval.shape}; unbroadcast_f of numpy_vjps sums over axes"
                )
        return cast(ct, aval.dtype)

    def record(self, trace: VJPTrace, args: Sequence) -> tuple:
        primals, parents = trace.operands(args)
        values, ans, ys = self._apply(primals)
        if self.f in _NO_VJP:
            return tuple(ys)
        if not self.nested and self.out is tree.LEAF and type(ys[0]) in STRONG:
            return self._record_one(trace, values, primals, parents, ys[0])
        outside(self.name, trace, ys)
        argnums = self.active([p is not None for p in parents])
        vjp = self._rule(argnums, ans, values)
        avals = [aval_of(x) for x in primals], [aval_of(trace.lower(y)) for y in ys]
        return recorded(trace, PrimitiveNode(self, parents, argnums, vjp, avals, trace.level), ys)

    def _record_one(self, trace: VJPTrace, args: list, primals: list, parents: list,
                    y: Any) -> tuple:
        """The usual call: of arrays to one plain array."""
        wanted = [k for k, p in enumerate(parents) if p is not None]
        vjp = self._rule(tuple([self.owners[k] for k in wanted]), y, args)
        if not inexact_dtype(y.dtype):
            return (y,)
        edges = [(parents[k], self.owners[k], aval_of(primals[k])) for k in wanted]
        trace.tape.append(OneOutputNode(self, vjp, edges, y, trace.level))
        return (VJPTracer(trace, y, len(trace.tape) - 1),)

    def jvp(self, trace: Any, primals: Sequence, tangents: Sequence) -> tuple[Sequence, Sequence]:
        args, ans, ys = self._apply(primals)
        if self.f in _NO_JVP:
            return ys, [None] * len(ys)
        wanted = [t is not None for t in tangents]
        argnums = self.active(wanted)
        rule = primitive_jvps.get(self.f)
        if rule is not None:
            gs = [self._tangents(i, args[i], tangents) for i in argnums]
            t = rule(argnums, gs, ans, tuple(args), self.kwargs)
            ts = [None] * len(ys) if t is None else tree.matching(self.out, t, 0)
            return ys, [None if t is None else self.fitted(t, aval_of(y), "its jvp")
                        for t, y in zip(ts, ys, strict=True)]
        if self.f not in primitive_vjps:
            raise NotImplementedError(
                f"JVP of {self.name} wrt argnums {argnums} not defined: give it one with defjvp "
                "or defvjp")
        vjp = self._rule(argnums, ans, args)
        return ys, self.pushed(vjp, argnums, [aval_of(x) for x in primals],
                               [aval_of(y) for y in ys], tangents)

    def _tangents(self, argnum: int, x: Any, tangents: Sequence) -> Any:
        mine = [t for i, t in zip(self.owners, tangents, strict=True) if i == argnum]
        if argnum not in self.nested:
            return mine[0]
        _, places, nesting = self.nested[argnum]
        zeros = [np.zeros(*aval_of(v))[()] for v in tree.leaves(x)]
        moved = [zeros[j] if t is None else t for j, t in zip(places, mine, strict=True)]
        return tree.unflatten(nesting, placed(moved, places, zeros))

    def pushed(self, vjp: Callable, argnums: tuple[int, ...], avals: Sequence[Aval],
               of_ys: Sequence[Aval], tangents: Sequence) -> list:
        """Tangents of the output's leaves by the transposed vjps."""
        wanted = [t is not None for t in tangents]
        ts = tuple([t for t in tangents if t is not None])
        floats = [k for k, a in enumerate(of_ys) if is_inexact(a)]

        def pull(*cts: Any) -> tuple:
            g = zeros_where_none(placed(cts, floats, [None] * len(of_ys)), of_ys)
            pulled = self.pulled(vjp, argnums, g, avals, wanted)
            return tuple([c for c, w in zip(pulled, wanted, strict=True) if w])

        shapes = [of_ys[k] for k in floats]
        try:
            moved = transpose(pull, shapes, ts, self.name)
        except Exception:  # of any kind: the rule may hand what it gets to any library
            moved = [_by_entries(pull, shapes, k, ts) for k in range(len(shapes))]
        return placed(moved, floats, [None] * len(of_ys))

    def batch(self, trace: Any, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        size = next(len(x) for x, b in zip(xs, batched, strict=True) if b)
        rows = [self._apply([x[i] if b else x for x, b in zip(xs, batched, strict=True)])[2]
                for i in range(size)]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    def fwd(self, primals: Sequence) -> tuple[list, list, Any]:  # type: ignore[override]
        """For programs, which keep residuals as values: the rule is made in the backward pass."""
        ys = self._apply(primals)[2]
        return ys, [*primals, *ys], len(primals)

    def bwd(self, residuals: Sequence, count: int, cts: Sequence) -> list:  # type: ignore[override]
        primals, ys = residuals[:count], residuals[count:]
        wanted = [is_inexact(x) for x in primals]
        argnums = self.active(wanted)
        vjp = self._rule(argnums, tree.unflatten(self.out, ys), self.arguments(primals))
        g = zeros_where_none(cts, [aval_of(y) for y in ys])
        return self.pulled(vjp, argnums, g, [aval_of(x) for x in primals], wanted)


def _by_entries(pull: Callable, avals: Sequence[Aval], k: int, ts: tuple) -> Any:
    """The tangent of output ``k``: one pullback for each entry, paired with the tangents."""
    shape, dtype = avals[k]
    parts = (1.0, 1.0j) if dtype.kind == "c" else (1.0,)
    rates = []
    for index in np.ndindex(*shape):
        rate: Any = 0.0
        for part in parts:
            seeds = [np.zeros(*a) for a in avals]
            seeds[k][index] = part
            cts = pull(*[s[()] for s in seeds])
            # the real part of seed times rate is that of cotangents times tangents
            total = sum([np.sum(np.real(c * t)) for c, t in zip(cts, ts, strict=True)
                         if c is not None])
            rate = rate + total * np.conj(part)
        rates.append(rate)
    if not rates:
        return np.zeros(shape, dtype)
    return cast(np.reshape(np.stack([np.asarray(r) if not isinstance(r, Tracer) else r
                                     for r in rates]), shape), dtype)


class PrimitiveNode(CallNode):
    """The tape entry of a primitive: its vjp, which is already made."""

    __slots__ = ("argnums", "avals", "call", "level", "vjp")

    def __init__(self, call: PrimitiveCall, parents: list, argnums: tuple[int, ...],
                 vjp: Callable, avals: tuple[list, list], level: float):
        super().__init__(parents, len(avals[1]))
        self.call, self.argnums, self.vjp, self.avals, self.level = call, argnums, vjp, avals, level

    def pull(self, cts: Sequence) -> Sequence:
        of_xs, of_ys = self.avals
        wanted = [p is not None for p in self.parents]
        g = zeros_where_none(cts, of_ys)
        return [self._fix(c) for c in self.call.pulled(self.vjp, self.argnums, g, of_xs, wanted)]

    def push(self, ts: Sequence) -> Sequence:
        of_xs, of_ys = self.avals
        return [self._fix(t) for t in self.call.pushed(self.vjp, self.argnums, of_xs, of_ys, ts)]

    def _fix(self, x: Any) -> Any:
        # what a rule closes over is a constant
        return x.primal if type(x) is VJPTracer and x.owner.level == self.level else x


class OneOutputNode(PrimitiveNode):
    """The entry of a call of arrays to one array; ``edges`` are slot, argument and aval of each."""

    __slots__ = ("edges",)

    repeats, refuses = True, False  # the rule is called again where a NaN arrives

    def __init__(self, call: PrimitiveCall, vjp: Callable, edges: list, y: Any, level: float):
        self.call, self.vjp, self.edges, self.size, self.level = call, vjp, edges, 1, level
        self.parents = [slot for slot, _, _ in edges]
        self.argnums = tuple([argnum for _, argnum, _ in edges])
        self.avals = [aval for _, _, aval in edges], [aval_of(y)]

    def pull_into(self, cts: list, k: int, strong: bool) -> None:
        ct, cts[k] = cts[k], None
        if ct is None:
            return
        for (slot, argnum, aval), c in zip(self.edges, self.vjp(ct), strict=True):
            if type(c) is not np.ndarray or c.shape != aval[0] or c.dtype is not aval[1]:
                if isinstance(c, SparseObject):
                    c = c.mut_add(c.vs.zeros())
                c = self._fix(self.call.fitted(c, aval, f"its vjp wrt argnum {argnum}"))
            if c is not None and not (strong and unless_zero((c,), (ct,))[0] is None):
                add_cotangents(cts, (slot,), (c,))

    def push(self, ts: Sequence) -> Sequence:
        wanted = [None] * len(self.call.owners)
        for t, argnum in zip(ts, self.argnums, strict=True):
            wanted[self.call.owners.index(argnum)] = t
        avals = [Aval((), np.dtype(float))] * len(wanted)
        for argnum, aval in zip(self.argnums, self.avals[0], strict=True):
            avals[self.call.owners.index(argnum)] = aval
        moved = self.call.pushed(self.vjp, self.argnums, avals, self.avals[1], wanted)
        return [self._fix(t) for t in moved]


# ---- Declaring rules


class SparseObject:
    """A cotangent that is added by ``mut_add(x)`` to one of the space ``vs``."""

    __slots__ = ("mut_add", "vs")

    def __init__(self, vs: Any, mut_add: Callable):
        self.vs, self.mut_add = vs, mut_add


def _takes_rules(fun: Any) -> bool:
    """Whether ``fun`` is a primitive; a warning where it has a derivative, an error elsewhere."""
    if getattr(fun, "_is_autograd_primitive", False):
        return True
    name = get_name(fun)
    cure = f"Give the rule to primitive({name}) and call that"
    if not _is_derived(fun):
        raise NotImplementedError(f"{name} is no function made by primitive. {cure}")
    warnings.warn(f"{name} has a derivative in functrans, which stays. {cure}", stacklevel=4)
    return False


def _is_derived(fun: Any) -> bool:
    if isinstance(fun, np.ufunc):
        return meaning_of(fun) is not None
    return (getattr(fun, "__module__", None) or "").startswith("functrans.") or fun in FUNCTIONS


def defvjp_argnums(fun: Callable, vjpmaker: Callable) -> None:
    """Set ``vjpmaker(argnums, ans, args, kwargs)``, which returns ``g -> cotangents``."""
    if _takes_rules(fun):
        primitive_vjps[fun] = vjpmaker


def defvjp_argnum(fun: Callable, vjpmaker: Callable) -> None:
    """Set ``vjpmaker(argnum, ans, args, kwargs)``, which returns ``g -> cotangent``."""

    def of_all(argnums: tuple[int, ...], ans: Any, args: tuple, kwargs: dict) -> Callable:
        vjps = [vjpmaker(i, ans, args, kwargs) for i in argnums]
        return lambda g: [vjp(g) for vjp in vjps]

    defvjp_argnums(fun, of_all)


def defvjp(fun: Callable, *vjpmakers: Callable | None,
           argnums: Iterable[int] | None = None) -> None:
    """Set a rule for each argument: ``maker(ans, *args, **kwargs)`` returns ``g -> g^T J``.

    None stands for a derivative that is zero. ``argnums`` are the arguments that the rules are of,
    by default the first ones.

    Raises NotImplementedError, later, where an argument without a rule is traced.
    """
    makers = dict(zip(itertools.count() if argnums is None else argnums, vjpmakers, strict=False))
    for maker in makers.values():
        if maker is not None and not callable(maker):
            raise TypeError(f"Bad VJP '{maker}' for '{get_name(fun)}'")

    def of_all(wanted: tuple[int, ...], ans: Any, args: tuple, kwargs: dict) -> Callable:
        vjps = []
        for i in wanted:
            if i not in makers:
                raise NotImplementedError(f"VJP of {get_name(fun)} wrt argnum {i} not defined")
            maker = makers[i]
            vjps.append(None if maker is None else maker(ans, *args, **kwargs))
        return lambda g: [None if vjp is None else vjp(g) for vjp in vjps]

    defvjp_argnums(fun, of_all)


def defjvp_argnums(fun: Callable, jvpmaker: Callable) -> None:
    """Set ``jvpmaker(argnums, tangents, ans, args, kwargs)``, the tangent of the output."""
    if _takes_rules(fun):
        primitive_jvps[fun] = jvpmaker


def defjvp_argnum(fun: Callable, jvpmaker: Callable) -> None:
    """Set ``jvpmaker(argnum, tangent, ans, args, kwargs)``, whose results are added."""

    def of_all(argnums: tuple[int, ...], gs: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
        return add_all([jvpmaker(i, g, ans, args, kwargs)
                        for i, g in zip(argnums, gs, strict=True)])

    defjvp_argnums(fun, of_all)


def defjvp(fun: Callable, *jvpfuns: Any, argnums: Iterable[int] | None = None) -> None:
    """Set a rule for each argument: ``rule(g, ans, *args, **kwargs)`` returns ``J g``.

    None stands for zero, ``"same"`` for a function that is linear in the argument.
    """
    rules = dict(zip(itertools.count() if argnums is None else argnums, jvpfuns, strict=False))
    for rule in rules.values():
        if rule is not None and rule != "same" and not callable(rule):
            raise TypeError(f"Bad JVP '{rule}' for '{get_name(fun)}'")

    def one(i: int, g: Any, ans: Any, args: tuple, kwargs: dict) -> Any:
        if i not in rules:
            raise NotImplementedError(f"JVP of {get_name(fun)} wrt argnum {i} not defined")
        rule = rules[i]
        if rule is None:
            return None
        return fun(*subval(args, i, g), **kwargs) if rule == "same" else (
            rule(g, ans, *args, **kwargs))

    defjvp_argnum(fun, lambda i, g, ans, args, kwargs: one(i, g, ans, args, kwargs))


def def_linear(fun: Callable) -> None:
    """Declare that a function is linear in each of its arguments."""
    defjvp_argnum(fun, lambda i, g, ans, args, kwargs: fun(*subval(args, i, g), **kwargs))


def add_all(gs: Iterable) -> Any:
    """The sum of tangents or cotangents, nested alike; None stands for zero."""
    total = None
    for g in gs:
        if total is None or g is None:
            total = g if total is None else total
        else:
            total = tree.map(lambda x, y: x + y, total, g)
    return total


def register_notrace(trace_type: Any, primitive_fun: Callable) -> None:
    """Make a primitive a constant to the traces of this kind of node."""
    notrace_primitives[trace_type].add(primitive_fun)
