"""What stands for values in the body of a loop that is staged once, and the nest that it becomes.

`BodyValue` is an array or number whose entries are an expression of entries of buffers; its
lengths, and the places, are affine in the indices of the loops around (`nest/forms.py`).
`IndexValue` is such an integer itself. `Builder` takes the statements. Whatever it cannot prove or
does not know raises `WrittenOut`: nothing has happened until then, and Python runs the loop.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Program
from functrans._compile.nest.forms import Form, Index, proves
from functrans._compile.nest.ir import (
    Buffer,
    Entry,
    Place,
    Statement,
    Store,
    overlapping,
)
from functrans._core.array import PYTHON_SCALARS, Aval
from functrans._core.bind import Tracer
from functrans._core.writing import part_of
from functrans._transforms.staging.loops_index import (
    IndexValue,
    Undecided,
    WrittenOut,
    building,
    current_builder,
    form_of,
    index_value,
    stop,
)
from functrans._transforms.staging.staging import stage

# Types whose entries loops compute.
DTYPES = frozenset(map(np.dtype, (float, int, bool)))
INT = np.dtype(np.int64)
# Room for one array that a body makes, in entries.
MOST_ROOM = 1 << 28
_NUMBERS = (bool, int, float, complex, np.number, np.bool_)


class Op(NamedTuple):
    """A function of numbers."""

    f: Callable
    args: tuple[Any, ...]


# An expression of one entry: Place | Form | Op | a number.
Node = Any


def replace(node: Node, values: dict[Index, Form]) -> Node:
    if isinstance(node, Op):
        return Op(node.f, tuple([replace(x, values) for x in node.args]))
    return node.replaced(values) if isinstance(node, Place | Form) else node


def leaves_of(node: Node) -> Iterator[Node]:
    if isinstance(node, Op):
        for x in node.args:
            yield from leaves_of(x)
    else:
        yield node


class Operand(NamedTuple):
    """A value from outside: its buffer, and what it is; ``writable``: where the result goes."""

    buffer: Buffer
    source: Any
    writable: bool


class Builder:
    """The statements of a nest while its body is run once.

    ``changed``: when a buffer was written last, by a clock of statements; a value that was computed
    of it before then can no longer be read. ``bodies``: those that are being run; ``made_in``: the
    one in which a buffer was made. ``objects``: which of the arrays at the begin of the loop a name
    has at its end, for those that take turns.
    """

    def __init__(self, homes: frozenset[str]):
        self.homes = homes
        self.blocks: list[list[Statement]] = [[]]
        self.domain: list[Form] = []
        self.bodies: list[object] = [None]
        self.written_out: set[Any] = set()
        self.operands: dict[int, Operand] = {}
        self.objects: dict[int, int] = {}
        self.made_in: dict[Any, object] = {}
        self.changed: dict[Buffer, int] = {}
        self.clock = self.serial = 0
        self.proved: dict[Any, bool] = {}

    # ---- what is known of indices

    def proves(self, form: Form | int) -> bool:
        form = Form.of(form)
        if not form.terms:
            return form.c >= 0
        key = tuple(self.domain), form
        if key not in self.proved:
            self.proved[key] = proves(self.domain, form)
        return self.proved[key]

    def decides(self, form: Form | int) -> bool:
        """Whether ``form >= 0``, in all passes or in none."""
        form = Form.of(form)
        if self.proves(form):
            return True
        if self.proves(-form - 1):
            return False
        raise Undecided(form)

    def bound(self, form: Form) -> int:
        """The least number that is proved to be no less."""
        if not form.terms:
            return form.c
        high = 1
        while not self.proves(high - form):
            high *= 2
            if high > MOST_ROOM:
                raise WrittenOut(f"there is no bound of {form}")
        low = high // 2 if high > 1 else 0
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.proves(middle - form) else (middle + 1, high)
        return high

    # ---- statements

    def emit(self, s: Statement) -> None:
        self.blocks[-1].append(s)

    def change(self, b: Buffer) -> None:
        self.clock += 1
        self.changed[b] = self.clock

    @contextmanager
    def inside(self, forms: Sequence[Form]) -> Iterator[list[Statement]]:
        """A block of statements where more is known."""
        block: list[Statement] = []
        count = len(self.domain)
        self.blocks.append(block)
        self.domain += forms
        try:
            yield block
        finally:
            self.blocks.pop()
            del self.domain[count:]

    @contextmanager
    def inside_again(
        self, block: list[Statement], forms: Sequence[Form], body: object
    ) -> Iterator[None]:
        """The end of a block that has been left."""
        count = len(self.domain)
        self.blocks.append(block)
        self.bodies.append(body)
        self.domain += forms
        try:
            yield
        finally:
            self.blocks.pop()
            self.bodies.pop()
            del self.domain[count:]

    @contextmanager
    def body(self) -> Iterator[None]:
        """A block whose values are not used behind it."""
        self.bodies.append(object())
        try:
            yield
        finally:
            self.bodies.pop()

    def buffer(self, stem: str, shape: Sequence[int], dtype: np.dtype) -> Buffer:
        if dtype not in DTYPES:
            raise WrittenOut(f"loops of {dtype} are not staged")
        self.serial += 1
        b = Buffer(f"{stem}{self.serial}", Aval(tuple(shape), dtype))
        self.made_in[b] = self.bodies[-1]
        return b

    def store(
        self,
        b: Buffer,
        at: Sequence[Form],
        axes: Sequence[tuple[Index, Form]],
        node: Node,
        add: bool = False,
    ) -> None:
        """``b[at] = node`` for all axes."""
        kept = tuple([(v, n) for v, n in axes])
        loads = tuple(dict.fromkeys([x for x in leaves_of(node) if isinstance(x, Place)]))
        forms = tuple(dict.fromkeys([x for x in leaves_of(node) if isinstance(x, Form)]))
        program = _program(node, loads, forms, b.aval.dtype)
        self.emit(Entry(kept, loads, program, (Store(b, tuple(at), add),), forms))
        self.change(b)

    def fill(self, b: Buffer, x: BodyValue) -> None:
        """Make a buffer hold ``x``, from its first places on."""
        self.store(b, [Form.of(v) for v in x.axes], x.extents(), self.node_of(x))

    def temporary(self, x: BodyValue, stem: str = "t") -> BodyValue:
        """``x`` computed now, in memory of its own."""
        b = self.buffer(stem, [self.bound(n) for n in x.lengths], x.dtype)
        self.fill(b, x)
        return self.whole(b, x.lengths, x.weak)

    def whole(
        self, b: Buffer, lengths: Sequence[Form] | None = None, weak: bool = False
    ) -> BodyValue:
        """What a buffer holds."""
        lengths = [Form(n) for n in b.aval.shape] if lengths is None else lengths
        axes = [self.axis() for _ in lengths]
        return BodyValue(self, Place.of(b, *axes), axes, lengths, b.aval.dtype, weak)

    def axis(self) -> Index:
        self.serial += 1
        return Index(f"a{self.serial}")

    # ---- values

    def value_is_weak(self, x: Any) -> bool:
        return x.weak if isinstance(x, BodyValue) else type(x) in PYTHON_SCALARS

    def require_alive(self, x: BodyValue) -> None:
        if x.owner is not self or x.body not in self.bodies:
            raise WrittenOut("a value of one pass is used outside of it")

    def node_of(self, x: BodyValue) -> Node:
        """The expression of an entry, if what it reads has not changed since it was made."""
        self.require_alive(x)
        for memory, time in x.read.items():
            if self.changed.get(memory, 0) > time:
                raise WrittenOut("an array is written to before a value of it is used")
        return x.node

    def value_of(self, x: Any) -> BodyValue:
        """A number, index or array as a value of the body."""
        if isinstance(x, BodyValue):
            self.require_alive(x)
            return x
        if isinstance(x, IndexValue):
            return BodyValue(self, x.form, (), (), INT, True)
        if isinstance(x, np.ndarray | Tracer):
            return self.outside(x)
        if not isinstance(x, _NUMBERS):
            raise WrittenOut(f"a {type(x).__name__} is used as a number")
        return BodyValue(self, x, (), (), np.asarray(x).dtype, type(x) in PYTHON_SCALARS)

    def outside(self, x: Any) -> BodyValue:
        """The value of an array from outside, as it is at that moment of the loop."""
        part = part_of(x)
        if part is NotImplemented or (part is not None and not x.shape):
            raise WrittenOut("a part of an array at an unknown index, or one without axes, is used")
        if part is None:
            operand = self._operand(id(x), x, x, False)
            return self.whole(operand.buffer)
        operand = self._operand(id(part.memory), part.whole, part.whole, True)
        axes = [self.axis() for _ in x.shape]
        at = [
            Form(start) if axis is None else Form.of(axes[axis]) * step + start
            for start, step, axis in part.places
        ]
        node = Place(operand.buffer, tuple(at))
        return BodyValue(self, node, axes, [Form(n) for n in x.shape], x.dtype, False)

    def _operand(self, key: int, like: Any, source: Any, writable: bool) -> Operand:
        if key not in self.operands:
            b = self.buffer("x", like.shape, like.dtype)
            self.made_in[b] = Operand  # in no body, though it is first used in one
            self.operands[key] = Operand(b, source, writable)
        return self.operands[key]

    def is_writable(self, b: Buffer) -> bool:
        return all([b is not o.buffer or o.writable for o in self.operands.values()])

    def keep(self, x: Any) -> Any:
        """A value that gets a name: a view stays one, all else is computed now."""
        if type(x) is tuple:
            return tuple(map(self.keep, x))
        if not isinstance(x, BodyValue):
            return x
        node = self.node_of(x)
        if (
            x.is_view
            or not isinstance(node, Place | Op)
            or (isinstance(node, Place) and not self.is_writable(node.buffer))
        ):
            return x
        return self.temporary(x)

    def apply(self, f: Callable, *xs: Any) -> BodyValue:
        """``f`` of numbers, entry by entry."""
        values = list(map(self.value_of, xs))
        lengths = self.broadcast([x.lengths for x in values])
        axes = [self.axis() for _ in lengths]
        nodes = tuple([self.spread(x, axes, lengths) for x in values])
        with np.errstate(all="ignore"):
            y = f(*[x.example() for x in values])
        read: dict[Buffer, int] = {}
        for memory, time in [r for x in values for r in x.reads().items()]:
            read[memory] = min(time, read.get(memory, time))
        return BodyValue(
            self, Op(f, nodes), axes, lengths, np.asarray(y).dtype, type(y) in PYTHON_SCALARS, read
        )

    def broadcast(self, shapes: Sequence[Sequence[Form]]) -> list[Form]:
        rank = max(map(len, shapes))
        lengths = [Form(1)] * rank
        for shape in shapes:
            for k, n in enumerate(shape, rank - len(shape)):
                if lengths[k] == Form(1):
                    lengths[k] = n
                elif n not in (Form(1), lengths[k]):
                    raise WrittenOut(f"lengths {lengths[k]} and {n} may differ")
        return lengths

    def spread(self, x: BodyValue, axes: Sequence[Index], lengths: Sequence[Form]) -> Node:
        """The expression of ``x`` broadcast to the axes."""
        own = list(zip(x.axes, x.lengths, strict=True))
        values = {}
        for (v, n), u, m in zip(
            own, axes[len(axes) - len(own) :], lengths[len(axes) - len(own) :], strict=True
        ):
            if n != m and n != Form(1):
                raise WrittenOut(f"lengths {n} and {m} may differ")
            values[v] = Form(0) if n == Form(1) and m != Form(1) else Form.of(u)
        return replace(self.node_of(x), values)

    def assign(self, target: BodyValue, value: Any) -> None:
        """Write into a view."""
        value, place = self.value_of(value), target.node
        self.require_alive(target)
        if not isinstance(place, Place) or not self.is_writable(place.buffer):
            raise WrittenOut("an array that is not the function's own is written to")
        if not np.can_cast(value.dtype, target.dtype, "same_kind"):
            raise WrittenOut(f"{value.dtype} is written into an array of {target.dtype}")
        if len(value.axes) > len(target.axes):
            raise WrittenOut("what is written has more axes than where it goes")
        node = self.spread(value, target.axes, target.lengths)
        if node == place:
            return  # what x[k] += v has written already
        for x in leaves_of(node):
            if (
                isinstance(x, Place)
                and x != place
                and overlapping(self.domain, target.extents(), place, x)
            ):
                node = self.spread(self.temporary(value), target.axes, target.lengths)
                break
        self.store(place.buffer, place.at, target.extents(), node)

    def total(self, x: Any, axis: Any = None, keepdims: bool = False) -> BodyValue:
        """The sum over an axis, or over all."""
        x = self.value_of(x)
        if keepdims or not (axis is None or type(axis) is int):
            raise WrittenOut("a sum over several axes, or that keeps them")
        summed = set(range(x.ndim) if axis is None else [axis % x.ndim])
        dtype = INT if x.dtype.kind == "b" else x.dtype
        pairs = list(x.extents())
        kept = [p for k, p in enumerate(pairs) if k not in summed]
        b = self.buffer("s", [self.bound(n) for _, n in kept], dtype)
        at = [Form.of(v) for v, _ in kept]
        node = self.node_of(x)
        self.store(b, at, kept, dtype.type(0))
        self.store(b, at, [*kept, *[pairs[k] for k in sorted(summed)]], node, add=True)
        return self.whole(b, [n for _, n in kept])


def _program(node: Node, loads: Sequence[Place], forms: Sequence[Form], dtype: np.dtype) -> Program:
    """The program of an entry."""
    examples = [np.array(1, p.buffer.aval.dtype) for p in loads] + [np.array(1, INT)] * len(forms)
    sources: dict[Any, Any] = {}

    def evaluate(x: Node) -> Any:
        if isinstance(x, Op):
            return x.f(*map(evaluate, x.args))
        return sources[x] if isinstance(x, Place | Form) else x

    def entry(*values: Any) -> tuple:
        sources.update(zip((*loads, *forms), values, strict=True))
        return (cast(evaluate(node), dtype),)

    token = building.set(None)  # what it calls is run as it is
    try:
        return stage(entry, examples, "a loop")[0]
    finally:
        building.reset(token)


def cast(x: Any, dtype: np.dtype) -> Any:
    """A number in a type."""
    if isinstance(x, Tracer):
        return x.astype(dtype)  # type: ignore[attr-defined]  # attached by functrans.numpy
    return np.asarray(x, dtype)


# ---- arrays and numbers


class BodyValue:
    """An array or number in a body: the expression of the entry at ``axes``.

    ``is_view``: it is a part of an array, and changes with it; otherwise it ``read`` buffers after
    so many statements.
    """

    __slots__ = ("axes", "body", "dtype", "is_view", "lengths", "node", "owner", "read", "weak")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        owner: Builder,
        node: Node,
        axes: Sequence[Index],
        lengths: Sequence[Form],
        dtype: np.dtype,
        weak: bool,
        read: dict[Buffer, int] | None = None,
    ):
        self.owner, self.node, self.axes, self.lengths = owner, node, tuple(axes), tuple(lengths)
        self.dtype, self.weak, self.body = dtype, weak, owner.bodies[-1]
        self.is_view = isinstance(node, Place) and bool(self.axes)
        self.read: dict[Buffer, int] = {}
        if not self.is_view:
            self.read = self.reads() if read is None else read

    def reads(self) -> dict[Buffer, int]:
        """The buffers that were read for it, and when."""
        if self.read:
            return self.read
        return {x.buffer: self.owner.clock for x in leaves_of(self.node) if isinstance(x, Place)}

    def example(self) -> bool | int | float | complex | np.generic:
        one = self.dtype.type(1)
        return one.item() if self.weak else one

    def extents(self) -> tuple[tuple[Index, Form], ...]:
        return tuple(zip(self.axes, self.lengths, strict=True))

    @property
    def shape(self) -> tuple:
        return tuple(map(index_value, self.lengths))

    @property
    def ndim(self) -> int:
        return len(self.axes)

    @property
    def size(self) -> Any:
        return math.prod(self.shape)

    @property
    def T(self) -> BodyValue:
        return self.transpose()

    def transpose(self, *order: Any) -> BodyValue:
        order = order[0] if len(order) == 1 and isinstance(order[0], tuple) else order
        axes = tuple(reversed(range(self.ndim))) if order in ((), (None,)) else order
        return BodyValue(
            self.owner,
            self.owner.node_of(self),
            [self.axes[k] for k in axes],
            [self.lengths[k] for k in axes],
            self.dtype,
            False,
            self.reads(),
        )

    def __len__(self) -> int:
        n = self.shape[0]
        return n if isinstance(n, int) else stop("Python needs the number of an index")

    def __iter__(self) -> Iterator[BodyValue]:
        return iter([self[k] for k in range(len(self))])

    def __bool__(self) -> bool:
        stop("Python decides by a traced value, and not by an `if` or `while` of its own")

    def __format__(self, spec: str) -> str:
        stop("a traced value is formatted")

    __str__ = __index__ = __float__ = __int__ = __complex__ = __bool__  # type: ignore[assignment]
    __array__ = __round__ = __contains__ = __bool__  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        stop(f"`{name}` of an array")

    # ---- parts

    def __getitem__(self, key: Any) -> BodyValue:
        key = key if isinstance(key, tuple) else (key,)
        given = sum([k is not None and k is not Ellipsis for k in key])
        if given > self.ndim:
            stop("too many indices")
        dots = [k is Ellipsis for k in key]
        at = dots.index(True) if True in dots else len(key)
        key = (*key[:at], *[slice(None)] * (self.ndim - given), *key[at + 1 :])
        old = iter(self.extents())
        axes: list[Index] = []
        lengths: list[Form] = []
        values: dict[Index, Form] = {}
        for k in key:
            if k is None:
                axes.append(self.owner.axis())
                lengths.append(Form(1))
                continue
            v, n = next(old)
            if isinstance(k, slice):
                start, length, step = _slice(self.owner, k, n)
                axes.append(self.owner.axis())
                lengths.append(length)
                values[v] = Form.of(axes[-1]) * step + start
            else:
                values[v] = _entry(self.owner, k, n)
        node = replace(self.owner.node_of(self), values)
        return BodyValue(self.owner, node, axes, lengths, self.dtype, False, self.reads())

    def __setitem__(self, key: Any, value: Any) -> None:
        self.owner.assign(self[key], value)

    # ---- methods of arrays

    def copy(self, order: str = "C") -> BodyValue:
        return self.owner.temporary(self)

    def sum(self, axis: Any = None) -> BodyValue:
        return self.owner.total(self, axis)

    def dot(self, other: Any) -> BodyValue:
        return matmul(self, other)

    def fill(self, value: Any) -> None:
        self.owner.assign(self, value)

    def item(self) -> BodyValue:
        if self.ndim:
            stop("`item` of an array")
        node = self.owner.node_of(self)
        return BodyValue(self.owner, node, (), (), self.dtype, True, self.reads())

    def astype(self, dtype: Any) -> BodyValue:
        wanted = np.dtype(dtype)
        return self.owner.temporary(self.owner.apply(lambda x: cast(x, wanted), self))

    def __matmul__(self, other: Any) -> Any:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return matmul(other, self)

    def __pow__(self, k: Any) -> Any:
        if isinstance(k, IndexValue | BodyValue) or type(k) not in (int, float):
            return self.owner.apply(operator.pow, self, k)
        return self.owner.apply(lambda x: x**k, self)  # small powers are products


def _entry(b: Builder, k: Any, n: Form) -> Form:
    """The place that an integer index says."""
    form = form_of(k)
    if not b.decides(form):
        form = n + form
        if not b.decides(form):
            stop("an index is out of range")
    if not b.decides(n - 1 - form):
        stop("an index is out of range")
    return form


def _slice(b: Builder, s: slice, n: Form) -> tuple[Form, Form, int]:
    """First place, length and step of a slice."""
    step = 1 if s.step is None else s.step
    if all([k is None or type(k) is int for k in (s.start, s.stop, step)]) and not n.terms:
        places = range(n.c)[s]
        return Form(places.start), Form(len(places)), places.step
    if step == 1:
        start, stop_at = (_end(b, k, n, first) for k, first in ((s.start, Form(0)), (s.stop, n)))
        length = stop_at - start
    elif step == -1:
        start = n - 1 if s.start is None else _last(b, s.start, n)
        length = start + 1 if s.stop is None else start - _last(b, s.stop, n)
    else:
        stop("a slice with a step whose ends are not numbers")
    return start, length if b.decides(length) else Form(0), step


def _end(b: Builder, k: Any, n: Form, default: Form) -> Form:
    """An end of a slice that goes up, between 0 and n."""
    if k is None:
        return default
    form = form_of(k)
    if not b.decides(form):
        form = n + form
        if not b.decides(form):
            return Form(0)
    return form if b.decides(n - form) else n


def _last(b: Builder, k: Any, n: Form) -> Form:
    """An end of a slice that goes down, between -1 and n - 1."""
    form = form_of(k)
    if not b.decides(form):
        form = n + form
        if not b.decides(form):
            return Form(-1)
    return form if b.decides(n - 1 - form) else n - 1


def matmul(a: Any, b: Any) -> BodyValue:
    owner = current_builder()
    a, b = owner.value_of(a), owner.value_of(b)
    if not (a.ndim and b.ndim) or a.ndim > 2 or b.ndim > 2:
        stop("a product of arrays of more than two axes, or of none")
    if a.lengths[-1] != b.lengths[0]:
        stop(f"lengths {a.lengths[-1]} and {b.lengths[0]} may differ")
    if a.ndim == b.ndim == 2:
        return owner.total(a[:, None, :] * b.T[None, :, :], 2)
    return owner.total(a * (b.T if b.ndim == 2 else b), -1)


def _binary(f: Callable) -> tuple[Callable, Callable]:
    def forward(self: BodyValue, other: Any) -> Any:
        return self.owner.apply(f, self, other)

    def backward(self: BodyValue, other: Any) -> Any:
        return self.owner.apply(f, other, self)

    return forward, backward


def _in_place(f: Callable) -> Callable:
    def update(self: BodyValue, other: Any) -> Any:
        y = self.owner.apply(f, self, other)
        if not self.ndim:
            return y
        self.owner.assign(self, y)
        return self

    return update


def _not_in_place(self: BodyValue, other: Any) -> object:
    """Numbers are never changed in place; arrays are, which is not known to loops here."""
    return stop("this operation on an array in place") if self.ndim else NotImplemented


def _install_operators() -> None:
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
        f = getattr(operator, name)
        forward, backward = _binary(f)
        setattr(BodyValue, f"__{name}__", forward)
        setattr(BodyValue, f"__r{name}__", backward)
        setattr(BodyValue, f"__i{name}__", _in_place(f))
    BodyValue.__rpow__ = _binary(operator.pow)[1]  # type: ignore[attr-defined]
    for name in ("pow", "matmul", "and", "or", "xor", "lshift", "rshift"):
        setattr(BodyValue, f"__i{name}__", _not_in_place)
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "and_", "or_", "xor"):
        setattr(BodyValue, f"__{name.rstrip('_')}__", _binary(getattr(operator, name))[0])
    for name in ("neg", "pos", "abs", "invert"):
        f = getattr(operator, name)
        setattr(BodyValue, f"__{name}__", lambda self, f=f: self.owner.apply(f, self))


_install_operators()
