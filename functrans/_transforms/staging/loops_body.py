"""Bodies and branches of staged loops, run once: what their names are before, inside and after."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.nest.equation import Nest
from functrans._compile.nest.forms import Form, Index
from functrans._compile.nest.ir import (
    Buffer,
    For,
    If,
    Place,
    Statement,
    Unproved,
    While,
    buffers_of,
    written_buffers,
)
from functrans._core.bind import Tracer, layers
from functrans._core.writing import current, hand, part_of
from functrans._transforms.control.nests import NestCall, staged_nest
from functrans._transforms.forward.jvp import JVPTracer
from functrans._transforms.reverse.vjp import VJPTracer
from functrans._transforms.staging.loops_index import (
    Condition,
    IndexValue,
    Undecided,
    WrittenOut,
    building,
    form_of,
    index_value,
)
from functrans._transforms.staging.loops_numpy import Counter, holds_ours
from functrans._transforms.staging.loops_source import LoopName
from functrans._transforms.staging.loops_values import INT, BodyValue, Builder, leaves_of
from functrans._transforms.staging.staging import StagedTracer
from functrans._transforms.vmap import BatchTracer
from functrans.errors import user_line

# How often one loop is cut where a comparison changes.
MOST_CUTS = 8
# Passes of a loop inside of a staged one up to which Python may run it.
MOST_INSIDE = 64
_TRACED = (StagedTracer, VJPTracer, JVPTracer, BatchTracer)
_NUMBERS = (np.ndarray, Tracer, BodyValue, float, bool, int, np.generic)


class Unset:
    """The mark for a name without a value."""

    def __repr__(self) -> str:
        return "a name without a value"


UNSET = Unset()


class Loops:
    """What has become of the loops of one staging, by their lines.

    ``functions`` are those that have been looked at, each with the one that is called instead.
    """

    def __init__(self, homes: frozenset[str]):
        self.homes = homes
        self.notes: dict[str, str] = {}
        self.refused: set[Any] = set()
        self.functions: dict[int, tuple[Any, Any]] = {}

    def note(self, line: str, text: str) -> None:
        self.notes[line] = text


class Widened(BaseException):
    """A number has another type at the end of a pass."""

    def __init__(self, name: str, dtype: np.dtype):
        self.name, self.dtype = name, dtype


# ---- Outermost loops


def outermost(notes: Loops, body: Callable, stage: Callable, state: Sequence,
              names: Sequence[LoopName]) -> tuple | None:
    """A loop as one equation; None: Python runs it."""
    line, why = user_line(), None
    if body.__code__ in notes.refused:
        return None
    try:
        b, outs = _build(notes, body, stage)
        found = _call_nest(b, outs, names, state)
        notes.note(line, "staged as a loop")
        return found
    except WrittenOut as found:
        why = f"{found.why} ({found.line})"
    except Undecided as found:
        why = f"a comparison of indices holds in some passes only ({found.line})"
    except (Unproved, NotImplementedError) as found:
        why = f"{type(found).__name__}: {found}"
    notes.refused.add(body.__code__)
    notes.note(line, f"written out: {why}")
    return None


def _build(notes: Loops, body: Callable, stage: Callable) -> tuple[Builder, tuple]:
    """The statements of a loop, and the names after it."""
    out: set[Any] = set()
    while True:
        b = Builder(notes.homes)
        b.written_out = out
        token = building.set(b)
        try:
            return b, stage(b)
        except WrittenOut as why:
            inner = why.body
            if inner is None or inner in out or inner is body.__code__:
                raise
            out.add(inner)
        except Exception as error:  # the user's code may raise anything: then Python does, too
            raise WrittenOut(f"{type(error).__name__}: {error}") from error
        finally:
            building.reset(token)


def _call_nest(b: Builder, outs: Sequence, names: Sequence[LoopName], state: Sequence) -> tuple:
    """The names after the equation of a loop."""
    results: list[tuple[int, BodyValue]] = []
    after: list[Any] = []
    for k, (y, n) in enumerate(zip(outs, names, strict=True)):
        after.append(y)
        if not isinstance(y, BodyValue):
            if isinstance(y, IndexValue | Condition) or holds_ours(y):
                raise WrittenOut(f"`{n.name}` is used behind the loop")
        elif not n.live and k not in b.objects:
            after[k] = UNSET
        else:
            whole = isinstance(y.node, Place) and y.node.at == tuple(map(Form.of, y.axes))
            if any([m.terms for m in y.lengths]):
                raise WrittenOut(f"the length of `{n.name}` depends on an index")
            whole = whole and y.node.buffer.aval.shape == tuple([m.c for m in y.lengths])
            results.append((k, y if whole else b.temporary(y)))
    block = tuple(b.blocks[0])
    changed = written_buffers(block)
    targets = [o for o in b.operands.values() if o.writable and o.buffer in changed]
    buffers = [o.buffer for o in targets]
    buffers += [y.node.buffer for _, y in results if y.node.buffer not in buffers]
    buffers = list(dict.fromkeys(buffers))
    named = {*buffers_of(block), *buffers}
    operands = [o for o in b.operands.values() if o.buffer in named]
    values = [current(o.source) for o in operands]
    _require_staged(values)
    nest = Nest("loop", [o.buffer for o in operands], buffers, block, NestCall)
    found = dict(zip(buffers, staged_nest(nest, values), strict=True))
    for o in targets:
        o.source.assign(found[o.buffer])
    for k, y in results:
        z = found[y.node.buffer]
        own: Any = state[b.objects[k]] if k in b.objects else None
        if part_of(own) is not None:  # one of the arrays that take turns
            own[...] = z
            after[k] = own
        else:
            after[k] = hand(z.weakened() if y.weak and isinstance(z, Tracer) else z)
    return tuple(after)


def _require_staged(values: Sequence) -> None:
    """Refuse a loop that reads nothing traced, or what a transform without a rule for nests has."""
    traced = [x for x in values if isinstance(x, Tracer)]
    inner = [list(layers(x)) for x in traced]
    if not any([isinstance(x[-1], StagedTracer) for x in inner]):
        raise WrittenOut("it reads no traced value")
    for x in inner:
        for v in x:
            if isinstance(v, Tracer) and not isinstance(v, _TRACED):
                raise WrittenOut(f"a {type(v).__name__} is read")


# ---- Names at the begin and the end of a pass


class Entered(NamedTuple):
    """A name when a pass begins: its value, and the buffer that carries it."""

    value: Any
    buffer: Buffer | None = None
    step: int | None = None


def _enter(b: Builder, x: Any, n: LoopName, k: Form, sure: bool, wide: dict) -> Entered:
    """A name in pass ``k``; ``sure``: there is a pass."""
    if x is UNSET or not (n.carried or n.step is not None or (n.live and not sure)):
        return Entered(UNSET)
    if n.step is not None and (isinstance(x, IndexValue) or type(x) is int):
        return Entered(index_value(form_of(x) + k * n.step), None, n.step)
    if not isinstance(x, _NUMBERS):
        return Entered(x)
    v = b.value_of(x)
    if v.ndim and n.added:
        return Entered(v)
    memory = b.buffer(f"{n.name}_", [b.bound(m) for m in v.lengths], wide.get(n.name, v.dtype))
    b.fill(memory, v)
    return Entered(b.whole(memory, v.lengths, v.weak and memory.aval.dtype == v.dtype), memory)


def _end(b: Builder, entered: Sequence[Entered], outs: Sequence, names: Sequence[LoopName],
         block: Sequence[Statement], state: Sequence) -> dict[int, int]:
    """Write what the names are at the end of a pass into what carries them.

    Which arrays are those of other names is returned, by their numbers.
    """
    own = {e.buffer: k for k, e in enumerate(entered) if e.buffer is not None}
    swaps: dict[int, int] = {}
    new: list[tuple[Entered, BodyValue]] = []
    for k, (e, y, n) in enumerate(zip(entered, outs, names, strict=True)):
        if e.buffer is None:
            _require_same(e, y, n)
            continue
        v = _next(b, e, y, n)
        node = v.node
        if isinstance(node, Place) and node.buffer is e.buffer:
            if v.ndim and node.at != tuple(map(Form.of, v.axes)):
                raise WrittenOut(f"`{n.name}` becomes a part of itself")
            continue
        new.append((e, v))
        if not v.ndim:
            continue
        if node.at != tuple(map(Form.of, v.axes)) or not (
                node.buffer in own or b.made_in.get(node.buffer) is b.bodies[-1]):
            raise WrittenOut(f"`{n.name}` becomes a part of another array")
        if node.buffer in own:
            swaps[k] = own[node.buffer]
    _require_apart(b, entered, block, swaps, state)
    kept = [(e, b.temporary(v) if _reads(v, own) else v) for e, v in new]
    for e, v in kept:
        assert e.buffer is not None
        b.fill(e.buffer, v)
    return swaps


def _reads(v: BodyValue, buffers: dict) -> bool:
    return any([isinstance(x, Place) and x.buffer in buffers for x in leaves_of(v.node)])


def _next(b: Builder, e: Entered, y: Any, n: LoopName) -> BodyValue:
    """What a carried name is at the end of a pass."""
    if y is UNSET or not isinstance(y, (*_NUMBERS, IndexValue)):
        raise WrittenOut(f"`{n.name}` becomes a {type(y).__name__}")
    v = b.value_of(y)
    if v.ndim:
        v = b.keep(v)
    if v.lengths != e.value.lengths:
        raise WrittenOut(f"the shape of `{n.name}` changes")
    if v.dtype != e.value.dtype:
        if v.ndim or not np.can_cast(e.value.dtype, v.dtype):
            raise WrittenOut(f"`{n.name}` becomes {v.dtype}")
        raise Widened(n.name, v.dtype)
    if v.weak and v.dtype.kind in "ib" and v.node != e.value.node:
        raise WrittenOut(f"`{n.name}` is an integer of Python's that no constant is added to")
    return v


def _require_same(e: Entered, y: Any, n: LoopName) -> None:
    """Refuse a name that no buffer carries and that is something else in the next pass."""
    if e.step is not None:
        if not isinstance(y, IndexValue | int) or form_of(y) != form_of(e.value) + e.step:
            raise WrittenOut(f"`{n.name}` goes up in some passes only")
    elif isinstance(e.value, BodyValue):  # written into by += alone
        if not (isinstance(y, BodyValue) and isinstance(y.node, Place) and (
                y.node == e.value.node and y.axes == e.value.axes)):
            raise WrittenOut(f"`{n.name}` becomes another array")
    elif e.value is not UNSET and y is not e.value:
        raise WrittenOut(f"`{n.name}` is another object in each pass")


def _require_apart(b: Builder, entered: Sequence[Entered], block: Sequence[Statement],
                   swaps: dict[int, int], state: Sequence) -> None:
    """Refuse arrays that a pass gets under another name and that are also used under theirs.

    What carries an array is a copy: whoever has the array itself does not see what is written.
    """
    used, changed = set(buffers_of(tuple(block))), written_buffers(tuple(block))
    for k, e in enumerate(entered):
        if e.buffer is None or not e.value.ndim:
            continue
        x = state[k]
        source = b.value_of(x).node.buffer
        if source in (used if swaps or e.buffer in changed else changed):
            raise WrittenOut("an array is used under two names")
        turns = k in swaps and k in swaps.values()
        if e.buffer in changed and not (turns and not isinstance(x, BodyValue)):
            raise WrittenOut("an array is written into before its name is given to another one")


# ---- Loops


def nest_for(b: Builder, counter: Counter, body: Callable, state: Sequence,
           names: Sequence[LoopName], cuts: int = 0) -> tuple:
    """A ``for`` whose body is run once."""
    low, high = counter.low, counter.high
    if b.proves(low - high):
        return tuple(state)
    index, mark = Index("i"), len(b.blocks[-1])
    try:
        return _widening(b, lambda wide: _pass(b, counter, index, body, state, names, wide))
    except WrittenOut as why:
        passes = (high - low).constant
        if why.body is None and passes is not None and passes <= MOST_INSIDE:
            why.body = body.__code__
        raise
    except Undecided as why:
        cut = _cut(b, why, index, low, high) if cuts < MOST_CUTS else None
        if cut is None:
            raise
    del b.blocks[-1][mark:]
    parts = (low, cut), (cut, high)
    for first, last in parts:
        part = Counter(first, last, counter.item, counter.plain)
        state = nest_for(b, part, body, state, names, cuts + 1)
    return tuple(state)


def _widening(b: Builder, stage: Callable[[dict], tuple]) -> tuple:
    """Stage a loop, with numbers of the types that a pass gives them."""
    wide: dict[str, Any] = {}
    mark = len(b.blocks[-1])
    while True:
        try:
            return stage(wide)
        except Widened as w:
            del b.blocks[-1][mark:]
            if w.name in wide and wide[w.name] == w.dtype:
                raise WrittenOut(f"the type of `{w.name}` changes") from None
            wide[w.name] = w.dtype


def _cut(b: Builder, why: Undecided, index: Index, low: Form, high: Form) -> Form | None:
    """Where a loop is cut, so that a comparison has one answer in each part."""
    for form in why.forms:
        k = form.factor(index)
        if k not in (1, -1):
            continue
        rest = form - Form.of(index) * k
        cut = -rest if k == 1 else rest + 1
        if b.proves(cut - low - 1) and b.proves(high - cut - 1):
            return cut
    return None


def _pass(b: Builder, counter: Counter, index: Index, body: Callable, state: Sequence,
          names: Sequence[LoopName], wide: dict) -> tuple:
    low, high = counter.low, counter.high
    k, sure = Form.of(index), b.proves(high - low - 1)
    entered = [_enter(b, x, n, k - low, sure, wide) for x, n in zip(state, names, strict=True)]
    with b.inside([k - low, high - 1 - k]) as block, b.body():
        outs = body(b.keep(counter.item(k)), *[e.value for e in entered])
        swaps = _end(b, entered, outs, names, block, state)
        _require_own(entered, outs, names)
        outs = [_last(b, y, n) if e.value is UNSET else y
                for e, y, n in zip(entered, outs, names, strict=True)]
    if swaps:
        _take_turns(b, swaps, (high - low).constant, len(state))
    b.emit(For(index, low, high, tuple(block)))
    ended = {index: high - 1}
    after = [_after(b, x, e, y, n, ended if sure else None, high - low)
             for x, e, y, n in zip(state, entered, outs, names, strict=True)]
    return _all_there(state, after, names)


def _all_there(state: Sequence, after: Sequence, names: Sequence[LoopName]) -> tuple:
    """The names after a loop; refused where one that is read has lost its value."""
    for x, y, n in zip(state, after, names, strict=True):
        if n.live and y is UNSET and x is not UNSET:
            raise WrittenOut(f"it is not known what `{n.name}` is behind the loop")
    return tuple(after)


def _take_turns(b: Builder, swaps: dict[int, int], passes: int | None, count: int) -> None:
    """Note which array each name has after so many passes, in each of which they change places."""
    if len(b.bodies) > 1 or passes is None or b.objects or set(swaps) != set(swaps.values()):
        raise WrittenOut("an array is given to another name")
    order = list(range(count))
    turns = 1
    now = [swaps.get(k, k) for k in order]
    while now != order:
        now, turns = [now[swaps.get(k, k)] for k in order], turns + 1
    now = order
    for _ in range(passes % turns):
        now = [now[swaps.get(k, k)] for k in order]
    b.objects = {k: now[k] for k in swaps}


def _last(b: Builder, y: Any, n: LoopName) -> Any:
    """What the last pass has left in a name that is read behind the loop."""
    if not n.live or not isinstance(y, BodyValue):
        lost = holds_ours(y) and not isinstance(y, IndexValue)
        return UNSET if lost or not n.live else y
    fresh = isinstance(y.node, Place) and b.made_in.get(y.node.buffer) is b.bodies[-1] and (
        y.node.at == tuple(map(Form.of, y.axes)))
    if y.ndim and not fresh:
        raise WrittenOut(f"`{n.name}`, a part of another array, is used behind the loop")
    return y if fresh else b.temporary(y)


def _require_own(entered: Sequence[Entered], outs: Sequence, names: Sequence[LoopName]) -> None:
    """Refuse two names for one array that a pass has made: what they are then would be copies."""
    arrays = [
        y.node.buffer for e, y, n in zip(entered, outs, names, strict=True)
        if isinstance(y, BodyValue) and y.is_view and (e.buffer is not None or (
            n.live and e.value is UNSET))
    ]
    if len(set(arrays)) < len(arrays):
        raise WrittenOut("two names become one array")


def _after(b: Builder, x: Any, e: Entered, y: Any, n: LoopName, ended: dict | None,
           passes: Form) -> Any:
    """What a name is after a loop."""
    if e.step is not None:
        if not b.decides(passes):
            raise WrittenOut("a range ends before it begins")
        return index_value(form_of(x) + passes * e.step)
    if e.buffer is not None:
        same = isinstance(y, BodyValue) and y.node == e.value.node
        return x if same else b.whole(e.buffer, e.value.lengths, b.value_is_weak(y))
    if e.value is not UNSET:
        return x
    if ended is None or y is UNSET:
        return UNSET
    if isinstance(y, IndexValue):
        return index_value(y.form.replaced(ended))
    if isinstance(y, BodyValue):
        lengths = [m.replaced(ended) for m in y.lengths]
        return b.whole(y.node.buffer, lengths, y.weak)
    return y


def nest_while(b: Builder, test: Callable, body: Callable, state: Sequence,
                 names: Sequence[LoopName]) -> tuple:
    """A ``while`` that decides by a traced value."""
    return _widening(b, lambda wide: _while_pass(b, test, body, state, names, wide))


def _while_pass(b: Builder, test: Callable, body: Callable, state: Sequence,
                names: Sequence[LoopName], wide: dict) -> tuple:
    index = Index("w")
    k = Form.of(index)
    entered = [_enter(b, x, n, k, False, wide) for x, n in zip(state, names, strict=True)]
    with b.inside([k]) as tests, b.body():
        going = test(*[e.value for e in entered])
        if not isinstance(going, BodyValue) or going.ndim:
            raise WrittenOut("`while` decides by no traced value")
        going = b.temporary(going if going.dtype.kind == "b" else b.apply(operator.ne, going, 0))
    with b.inside([k]) as block, b.body():
        outs = body(*[e.value for e in entered])
        swaps = _end(b, entered, outs, names, block, state)
        _require_own(entered, outs, names)
    if swaps:
        raise WrittenOut("an array is given to another name in a `while`")
    count = b.buffer("count", (), INT)
    b.emit(While(index, tuple(tests), going.node, tuple(block), count))
    b.change(count)
    after = []
    for x, e, y, n in zip(state, entered, outs, names, strict=True):
        if e.step is None:
            after.append(_after(b, x, e, y, n, None, Form(0)))
            continue
        total = b.apply(operator.add, x, b.apply(operator.mul, b.whole(count), e.step))
        total = b.temporary(total)
        total.weak = True
        after.append(total)
    return _all_there(state, after, names)


# ---- Branches


def branches(b: Builder, test: BodyValue | Condition, then: Callable, orelse: Callable,
             state: Sequence, names: Sequence[str]) -> tuple:
    """The names after an ``if`` that holds in some passes, or by a traced value."""
    cond, forms = None, ()
    if isinstance(test, Condition):
        forms = test.forms
        if test.negated:
            then, orelse = orelse, then
    else:
        if test.ndim:
            raise WrittenOut("`if` decides by an array")
        flag = test if test.dtype.kind == "b" else b.apply(operator.ne, test, 0)
        cond = b.temporary(flag).node
    opposite = [-forms[0] - 1] if len(forms) == 1 else []
    parts: list[tuple[list[Statement], Sequence[Form], Any, Sequence]] = []
    for way, known in ((then, list(forms)), (orelse, opposite)):
        with b.inside(known) as block, b.body():
            outs = way(*state)
            parts.append((block, known, b.bodies[-1], outs))
    after = [_merge(b, parts, k, name) for k, name in enumerate(names)]
    b.emit(If(forms, cond, tuple(parts[0][0]), tuple(parts[1][0])))
    return tuple(after)


def _merge(b: Builder, parts: list, k: int, name: str) -> Any:
    """What a name is after both ways."""
    y, z = parts[0][3][k], parts[1][3][k]
    if y is z or y is UNSET or z is UNSET:
        return y if y is z else UNSET
    if isinstance(y, IndexValue) and isinstance(z, IndexValue) and y.form == z.form:
        return y
    if isinstance(y, BodyValue) and isinstance(z, BodyValue) and y.node == z.node:
        return y
    if type(y) is type(z) and not holds_ours((y, z)) and isinstance(
            y, int | float | str) and repr(y) == repr(z):
        return y
    if not all([isinstance(x, (*_NUMBERS, IndexValue)) for x in (y, z)]):
        raise WrittenOut(f"`{name}` becomes one of two objects")
    values = []
    for (block, known, token, _), x in zip(parts, (y, z), strict=True):
        with b.inside_again(block, known, token):
            values.append(b.value_of(x))
    first, second = values
    if first.ndim or second.ndim:
        raise WrittenOut(f"`{name}` becomes one of two arrays")
    dtype = np.result_type(first.example(), second.example())
    memory = b.buffer("t", (), np.dtype(dtype))
    for (block, known, token, _), v in zip(parts, values, strict=True):
        with b.inside_again(block, known, token):
            b.fill(memory, v)
    return b.whole(memory, (), first.weak and second.weak)
