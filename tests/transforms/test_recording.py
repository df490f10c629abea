"""What a tape holds: the quick ways of recording an op append what the plain one does."""

import dis
import sys

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans._core.array import aval_of, inexact_dtype
from functrans._ops.declare import TABLE, Bilinear, Elementwise, General, Linear
from functrans._transforms import mutation
from functrans._transforms.mutation import Callees
from functrans._transforms.reverse.tracer import Overwritten
from functrans._transforms.reverse.vjp import Node, VJPTrace
from tests.table.samples import SCIPYS, cases, named, samples


def same(a, b):
    """Whether two entries, or what they hold, are the same."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray | np.generic):
        return aval_of(a) == aval_of(b) and a.tobytes() == b.tobytes()
    if isinstance(a, Node | Overwritten):
        names = [n for n in ("params", "parents", "prim", "wanted", "xs", "y") if hasattr(a, n)]
        return all(same(getattr(a, n), getattr(b, n)) for n in names)
    return a is b or a == b


def recorded(record, row, args, mine, params):
    trace = VJPTrace("test")
    xs = [trace.input(x) if m else x for x, m in zip(args, mine, strict=True)]
    start = len(trace.tape)
    y = record(trace, row, tuple(xs), params)
    entries = trace.tape[start:]
    if len(entries) == 1 and type(entries[0]) is tuple:  # x + 0 as x itself has no entry
        (_, action, _, unlike), *others = entries[0]
        if not others and getattr(action, "identity", False) and unlike is None:
            entries = []
    return entries, [trace.lower(v) for v in (y if row.outputs > 1 else [y])]


def quickly(trace, row, xs, params):
    """As operators and functions do."""
    if isinstance(row, Elementwise) and len(xs) == 1:
        return trace.unary(row, *xs)
    return trace.binary(row, *xs) if isinstance(row, Elementwise) and len(xs) == 2 else (
        trace.process(row, xs, params))


def sharings(row, args):
    """Which operands are traced, one after the other and together."""
    followed = [inexact_dtype(aval_of(x).dtype) for x in args]
    if isinstance(row, Linear) and row.operands == 1:
        followed = [followed[0], *[False] * (len(args) - 1)]
    alone = [[i == j for j in range(len(args))] for i, f in enumerate(followed) if f]
    return [followed, *alone] if len(alone) > 1 else alone


@pytest.mark.parametrize("family", [Elementwise, Linear, Bilinear, General])
def test_each_way_of_recording_appends_the_entries_of_the_plain_one(family):
    # rows that keep something else for their backward have an entry that reads it
    rows = cases(lambda row: type(row) is family and row.name not in SCIPYS and (
        getattr(row, "keeps", None) is None))
    assert rows
    for name, i in rows:
        row, sample = TABLE[name], samples(name)[i]
        args = sample.operands()
        kinds = [args]
        if isinstance(row, Elementwise):  # numbers, of Python's and NumPy's
            numbers = [x.ravel()[0] for x in args]
            kinds += [numbers, [x.item() for x in numbers], [args[0], *[
                x.item() for x in numbers[1:]]]]
        with named((name, i)), np.errstate(all="ignore"):
            for xs in kinds:
                for mine in sharings(row, xs):
                    ways = [recorded(w, row, xs, mine, sample.params)
                            for w in (quickly, VJPTrace.plainly)]
                    assert same(*ways), (xs, mine, ways)


def test_a_gradient_passes_few_frames_in_few_files():
    def derived():
        return ft.grad(np.sin)(0.5)

    root, seen = ft.__path__[0], []

    def note(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(root):
            seen.append(frame.f_code.co_filename)

    derived()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        y = derived()
    finally:
        sys.setprofile(before)
    assert y == np.cos(0.5)
    assert len(seen) <= 70
    assert len(set(seen)) <= 12


# ---- functions whose code shows at once that they do not write


def writes(x):
    y = fnp.zeros(3)
    y[0] = x
    return fnp.sum(y)


def slope(x):
    return np.sin(x) * 2.0


def calls(x):
    return inner(x) + len([x])


def undefined(x):
    return not_there(x)  # noqa: F821


def repeats(x):
    return repeats(x - 1) if x > 0 else x


def imports(x):
    import math
    return math.sin(x)


def over(f):
    return lambda x: f(x)


def kept(x, f=writes):
    return f(x)


def inside(x):
    def put(y):
        y[0] = 1.0
    put(x)


inner = slope


@pytest.mark.parametrize(("f", "alone"), [
    (slope, True), (calls, True), (repeats, True), (over(slope), True), (writes, False),
    (undefined, False), (imports, False), (over(writes), False), (kept, False), (inside, False),
    (over([writes]), False),
])
def test_no_function_is_looked_for_where_no_name_can_stand_for_one(f, alone):
    assert mutation._calls_numpy_alone(f, set()) is alone
    found = Callees(f)
    assert not alone or not any([mutation._code_writes(g.__code__) for g in found])
    assert not alone or not found.unknown


def test_a_function_that_writes_is_found_though_another_had_its_name(monkeypatch):
    assert ft.grad(calls)(0.5) == 2.0 * np.cos(0.5)
    monkeypatch.setitem(globals(), "inner", writes)
    assert ft.grad(calls)(0.5) == 1.0


def test_code_is_read_once(monkeypatch):
    expected = ft.grad(calls)(0.5)
    monkeypatch.delattr(dis, "get_instructions")
    assert ft.grad(calls)(0.5) == expected
