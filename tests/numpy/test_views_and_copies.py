"""What is a view and what is a copy when written to: NumPy's answer, in value and in derivative."""

from __future__ import annotations

import copy
import operator

import numpy
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.errors import UnsupportedError

pytestmark = pytest.mark.usefixtures("seldom_optimised")

X = numpy.array([0.3, -1.2, 0.7, 2.0, -0.4, 1.1])
W = numpy.arange(1.0, 7.0)
MASK = numpy.array([1, 0, 1, 1, 0, 1], bool)


def pair(x):
    return x.reshape(2, 3) * 1.0


def other_name(np, y):
    z = y
    z[0] = 2 * y[1]


def whole(np, y):
    z = y[...]
    z[0] = 3 * y[1]
    y[()][1] = 4.0


def sliced(np, y):
    y[1:4][::-1][0] = y[0] ** 2
    y[4:1:-2] = y[:2]
    y[-3:-1] *= y[0]


def through_a_reshape(np, y):
    y.reshape(2, 3)[0] *= y[3:]
    y.reshape(3, 2, order="F")[0] = 3.0
    np.reshape(y, (2, 3)).T[0] += 1.0


def through_a_transpose(np, y):
    z = y.reshape(2, 3)
    np.transpose(z)[0] = y[5]
    z.swapaxes(0, 1)[2, 0] = y[0] * y[4]
    np.rot90(z)[0, 0] = y[1]
    np.moveaxis(z, 0, 1)[1] *= 2.0
    np.rollaxis(z, 1)[0] = 3.0


def a_ravel_that_copies(np, y):
    z = y.reshape(2, 3)
    z.T.ravel()[0] = 7.0
    z.flatten()[0] = 3.0
    z.ravel()[1] = y[0]
    z.T.reshape(-1)[0] = 7.0


def results_in_the_order_of_their_operands(np, y):
    z = y.reshape(2, 3)
    for t in (
        z.T * 2.0, -z.T, np.sin(z.T), np.array(z.T), np.copy(z.T), z.T.copy(), z.T.copy("A"),
        z.T.astype(y.dtype), np.where(z.T > 1, z.T, 0.0), np.zeros_like(z.T), np.sort(z.T),
        np.concatenate([z.T, z.T]), np.cumsum(z.T, axis=0), z.T * y[:2], y[:2] * z.T, z.T * z.T,
        z.T * y.reshape(3, 2), z.T[:, [0, 1]], z[:, [0, 1]], np.einsum("ij->ji", z * 1.0) * 2.0,
        numpy.ones((2, 3)).T * y.reshape(3, 2)[0], y.reshape(1, 2, 3).T * 2.0, (z * 1.0).T * y[1],
        y.reshape(3, 1, 2).swapaxes(0, 1) * y[0], np.multiply(y[:2], numpy.ones((2, 3)).T),
    ):
        t.ravel()[0] = y[1]
        t.reshape(-1)[1] += 3.0
        y[2] += t[0].sum() * t[-1].sum()


def order_that_is_asked_for(np, y):
    for t in (
        np.array(y.reshape(2, 3), order="F"), np.zeros((2, 3), y.dtype, order="F"),
        np.asfortranarray(y.reshape(2, 3)), y.reshape(2, 3, order="F") * 2.0,
        y.reshape(2, 3).copy(order="F"), y.reshape(2, 3).astype(y.dtype, order="F"),
        np.einsum("ij,k->kji", y.reshape(2, 3), y[:2])[0],
    ):
        t.ravel(order="F")[1] = y[1]
        t.T.reshape(-1)[0] += y[0]
        y[2] += 0.1 * t.sum() * t[0, 1]


def rows(np, y):
    for i, row in enumerate(y.reshape(2, 3)):
        row[...] = row * (i + 2)


def unpacked(np, y):
    a, b = y.reshape(2, 3)
    a += b
    b -= a


def parts(np, y):
    a, b = np.split(y, 2)
    a[0] = b[2]
    b *= 2
    _, q, _ = np.array_split(y, 3)
    q[...] = y[:2]
    np.hsplit(y.reshape(2, 3), [1])[1][0] = 5.0
    np.unstack(y.reshape(2, 3))[1][2] *= y[0]


def parts_without_entries(np, y):
    none, a = np.split(y, [0])
    a[0] = 2 * y[1]
    np.array_split(y, 7)[2][...] *= y[3]
    z = np.zeros(3, y.dtype)
    np.split(z, [1, 1])[2][1] = y[0]
    y[4:] = z[1:]
    assert none.shape == (0,)


def longer(np, y):
    np.expand_dims(y, 0)[0, 1] = 2 * y[0]
    y[None, :, None][0, 2] = y[1]
    np.atleast_2d(y)[0, 3] = y[2]
    np.squeeze(y.reshape(1, 6))[5] = y[0]


def diagonals(np, y):
    z = np.outer(y, y)
    np.einsum("ii->i", z)[...] = y
    np.einsum("ij->ji", z)[0] *= 2.0
    d = np.diag(z).copy()
    d[0] = 9.0
    y[:] = z[1] * z[2] + d


def copies(np, y):
    for z in (
        np.array(y), np.copy(y), y.copy(), y[[0, 1]], y[MASK], y.take([0, 1]), np.stack([y, y]),
        np.where(y > 0, y, 0), y.astype(y.dtype), +y, np.conjugate(y), np.repeat(y, 1),
        np.roll(y, 0), np.concatenate([y]), np.append(y, []), np.pad(y, 0),
        copy.copy(y), copy.deepcopy([y])[0],
        np.ascontiguousarray(y[::-1]), np.sort(y), np.full_like(y, 1.0), np.nan_to_num(y),
    ):
        z[0] = 9.0


def parts_of_constants(np, y):
    z = np.zeros(6)
    np.ascontiguousarray(z[::2])[0] = 9.0
    np.asfortranarray(z[::2])[1] = 9.0
    np.real_if_close(z)[2] = 2.0
    zero = np.zeros(1)
    np.real_if_close(zero)[0] = 3.0
    row, _ = np.broadcast_arrays(z, numpy.ones((2, 6)))
    z[3] = 4.0
    y *= z + zero + row[1]


def the_array_itself(np, y):
    np.asarray(y)[0] = y[1] * y[2]
    np.array(y, copy=None)[1] = y[3]
    np.ascontiguousarray(y)[2] *= 2.0
    y.astype(y.dtype, copy=False)[3] = y[4] ** 2
    np.diff(y, n=0)[4] = 2.0
    np.linalg.matrix_power(y[:4].reshape(2, 2), 1)[0, 0] *= 3.0


def flat(np, y):
    y.reshape(2, 3).flat[2] = y[0]
    z = y.reshape(2, 3)
    z.flat = y[::-1] * y[0]
    z.flat = []
    y[:4].flat = y[4:] * y[1]
    y[::-2].flat = y[0] * 3.0
    y[1:3].flat = [2.0, -1.0]


def row_of_a_matrix(np, y):
    y[:3] = y.reshape(2, 3)[1:]
    y[1:3] = y[None, None, 3:5] * y[0]


def another_shape(np, y):
    y.shape = (2, 3)
    y[1] = y[0] * 2
    y.shape = (6,)


def swapped_entries(np, y):
    y[0], y[1] = y[1], y[0]


def swapped_rows(np, y):
    z = y.reshape(2, 3)
    z[[0, 1]] = z[[1, 0]]
    z[0], z[1] = z[1], z[0]  # in NumPy both are row 1 then: they are views


def overlapping(np, y):
    y[1:] = y[:-1]
    y[:-1] += y[1:]
    y *= y[::-1]
    y[:] = y
    y[::2] = y[1::2]


def a_view_of_what_is_replaced(np, y):
    v = y.T
    y[:] = 3 * y
    y[0] = v[1] * v[2]


def a_list_of_what_was_there(np, y):
    before = list(y)
    y[0] = 100.0
    y[1] = sum(before)


def masks(np, y):
    y[MASK] *= y[MASK]
    y[y.real > 1e6] = 4.0
    y.reshape(2, 3)[numpy.array([True, False])] = y[3:]


def index_arrays(np, y):
    z = np.zeros((3, 3), y.dtype)
    z[np.ix_([0, 2], [1, 2])] += y[:4].reshape(2, 2)
    z[np.tril_indices(3)] += y
    z[range(3), range(3)] = y[3:]
    i = np.zeros(2, int)
    i[1] = 2
    z[i] *= 2.0
    y[:3] = z @ y[3:]


def slices_by_name(np, y):
    s = slice(1, 4)
    y[s] = y[np.s_[2:5]] * 2


def from_lists(np, y):
    y[:3] = [y[1], 1.0, y[2]]
    z = np.array([y[0], y[1], 2.0])
    z[0] *= y[3]
    y[3:] = z


def broadcast(np, y):
    z = np.zeros((3, 6), y.dtype)
    z[:] = y
    z[1] = y[0]
    z[:, 2] = [1, 2, 3]
    z[2, :] = y[None, :]
    w = np.broadcast_to(y, (2, 6)).copy()
    w[0] = 1.0
    y += z.sum(axis=0) * w[1]


def out(np, y):
    np.multiply(y, y, out=y)
    np.add(y, 1.0, y)
    z = np.zeros(3, y.dtype)
    np.sum(y.reshape(2, 3), axis=0, out=z)
    y.reshape(2, 3).sum(axis=0, out=y[3:])
    np.matmul(y.reshape(2, 3), z, out=y[:2])
    np.add.reduce(y.reshape(2, 3), axis=0, out=z)
    np.cumsum(z, out=y[:3])
    np.add.accumulate(y, out=y)


def where(np, y):
    np.add(y, y[::-1], out=y, where=MASK)
    z = np.zeros(6, y.dtype)
    np.exp(y, out=z, where=MASK)
    np.copyto(y, z, where=~MASK)


def at(np, y):
    z = np.zeros((3, 2), y.dtype)
    np.add.at(z, (slice(None), 1), y[:3])
    np.add.at(z, ([0, 0],), y[:2])
    np.subtract.at(y, numpy.array([2, 2]), z[0, 1])
    np.multiply.at(y, [0, 1, 0], 2.0)


def functions(np, y):
    np.put(y, [0, 2], y[3:5])
    np.putmask(y, numpy.arange(6) > 4, y[0])
    np.place(y, numpy.arange(6) < 1, [y[1]])
    np.put_along_axis(y, numpy.array([5]), y[2], 0)
    y.put([1], y[5])
    np.fill_diagonal(y[:4].reshape(2, 2), y[4:])
    y[5:].fill(y[0] * y[1])


def operators(np, y):
    z = y * y + 1
    z **= 2
    z /= 3
    z -= y
    a = np.outer(y[:3], z[3:])
    a @= np.eye(3) * 2
    y[:3] = a[0] * a[1]


def numbers_without_axes(np, y):
    s = np.zeros((), y.dtype)
    s[...] = y[0]
    t = s
    t += y[1]
    s[()] = s * s
    u = np.array(y[0])
    u[()] = y[1] * y[2]
    y[3, ...][...] = s
    y[4] = u * t


def numbers_are_rebound(np, y):
    s = y[0]
    t = s
    t += y[1]
    y[2] = s * t


def numbers_read_before_a_write(np, y):
    y[1] = 2 * y[0]
    s = y[0]
    y[0] = 3.0
    y[2] = s * y[3]


def containers(np, y):
    d = {"a": y}
    d["a"] += 1
    d["a"][1:] -= y[:-1]
    rows = [np.zeros(2, y.dtype) for _ in range(3)]
    for i, r in enumerate(rows):
        r[0] = y[i]
    y[:2] = np.array(rows).sum(axis=0)


def helpers(np, y):
    def put(v, i):
        v[i] += y[0] * y[1]

    for i in range(3):
        put(y, i)
        put(y[::-1], i)


def nothing(np, y):
    np.putmask(y, y > 0, [])
    y[3:3] = 1.0
    y[[]] = 2.0
    z = np.zeros(0, y.dtype)
    z[:] = y[:0]
    z += 1


WRITES = [
    other_name, whole, sliced, through_a_reshape, through_a_transpose, a_ravel_that_copies,
    results_in_the_order_of_their_operands, order_that_is_asked_for, rows,
    unpacked, parts, parts_without_entries, longer, diagonals, copies, parts_of_constants,
    the_array_itself, flat, row_of_a_matrix, another_shape, numbers_read_before_a_write,
    swapped_entries, swapped_rows, overlapping, a_view_of_what_is_replaced,
    a_list_of_what_was_there, masks, index_arrays, slices_by_name, from_lists, broadcast, out,
    where, at, functions, operators, numbers_without_axes, numbers_are_rebound, containers,
    helpers, nothing,
]
EACH = pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__)


def result(write, np, x, start):
    """A number of what is left in an array that was written to."""
    y = x if start == "argument" else x * 1.0
    write(np, y)
    return np.sum(y * y * W) + np.sum(x)


@EACH
@pytest.mark.parametrize("start", ["argument", "product"])
def test_the_value_is_that_of_numpy(write, start):
    def f(x):
        return result(write, fnp, x, start)

    want, kept = result(write, numpy, X.copy(), start), X.copy()
    assert ft.value_and_grad(f)(kept)[0] == pytest.approx(want, rel=1e-13)
    assert ft.jvp(f, (kept,), (kept,))[0] == pytest.approx(want, rel=1e-13)
    assert (kept == X).all()


@EACH
def test_the_value_is_that_of_numpy_compiled_and_batched(write):
    def f(x):
        return result(write, fnp, x, "argument")

    want = result(write, numpy, X.copy(), "argument")
    assert ft.jit(f)(X) == pytest.approx(want, rel=1e-13)
    batch = numpy.stack([X, X])
    assert ft.vmap(f)(batch)[1] == pytest.approx(want, rel=1e-13)
    assert ft.jvp(ft.vmap(f), (batch,), (batch,))[0][1] == pytest.approx(want, rel=1e-13)


@EACH
def test_the_derivative_is_that_of_complex_steps_in_numpy(write):
    def f(x):
        return result(write, fnp, x, "argument")

    steps = [result(write, numpy, X + 1e-40j * e, "argument").imag / 1e-40 for e in numpy.eye(6)]
    for g in (ft.grad(f)(X), ft.jacfwd(f)(X), ft.jit(ft.grad(f))(X)):
        numpy.testing.assert_allclose(g, steps, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("np", [fnp, numpy])
def test_what_trim_zeros_leaves_is_a_view(np):
    def f(x):
        y = fnp.concatenate([[0.0], x])
        np.trim_zeros(y)[0] *= 3.0
        return y[1]

    assert ft.value_and_grad(f)(X)[0] == 3.0 * X[0]


def test_views_of_arrays_without_entries():
    def f(x):
        parts = []
        parts += [x[1:2, 1:2, -2] * 1.0, x[None][..., :1] * 2]
        return parts

    blocks = ft.jacobian(f)(numpy.zeros((0, 5, 3)))
    assert [b.shape for b in blocks] == [(0, 1, 0, 5, 3), (1, 0, 5, 1, 0, 5, 3)]

# ---- arrays that are made read-only


def once_read_only(np, x, write, traced, how):
    y = np.zeros(6) if not traced else x * 1.0
    z = y[1:4]
    if how == "flags":
        y.flags.writeable = False
    elif how == "item":
        y.flags["WRITEABLE"] = False
    else:
        y.setflags(write=False)
    assert not y.flags.writeable and not y[2:].flags.writeable and z.flags.writeable
    z[0] = x[0]  # an older view may be written to still
    copied = y.copy()
    copied[:] = x
    write(np, y, x)
    return y


READ_ONLY_WRITES = {
    "entry": lambda np, y, x: operator.setitem(y, 0, x[0]),
    "plain entry": lambda np, y, x: operator.setitem(y, 0, 1.0),
    "indices": lambda np, y, x: operator.setitem(y, numpy.array([0, 2]), x[0]),
    "mask": lambda np, y, x: operator.setitem(y, MASK, x[0]),
    "slice of a slice": lambda np, y, x: operator.setitem(y[1:][::2], slice(None), x[0]),
    "reshape": lambda np, y, x: operator.setitem(y.reshape(2, 3), 0, x[0]),
    "+=": lambda np, y, x: operator.iadd(y, x),
    "out": lambda np, y, x: np.sin(x, out=y),
    "copyto": lambda np, y, x: np.copyto(y, x),
    "fill": lambda np, y, x: y.fill(x[0]),
    "sort": lambda np, y, x: y.sort(),
}


@pytest.mark.parametrize("write", READ_ONLY_WRITES.values(), ids=READ_ONLY_WRITES)
@pytest.mark.parametrize("traced", [False, True], ids=["plain", "traced"])
def test_what_is_read_only_raises_numpys_error_when_it_is_written_to(write, traced):
    with pytest.raises(ValueError, match="read-only"):
        once_read_only(numpy, X, write, traced, "flags")
    for transform in (ft.grad, ft.jit):
        f = transform(lambda x: numpy.sum(once_read_only(fnp, x, write, traced, "flags")))
        with pytest.raises(ValueError, match="read-only"):
            f(X)


@pytest.mark.parametrize("how", ["flags", "item", "setflags"])
def test_what_is_read_only_may_be_made_writeable_again(how):
    def again(np, y, x):
        y.setflags(write=True)
        y[0] = 2 * x[1]

    def f(np, x):
        return numpy.sum(W * once_read_only(np, x, again, True, how))

    assert ft.value_and_grad(lambda x: f(fnp, x))(X) == (
        pytest.approx(f(numpy, X)), pytest.approx(numpy.array([2.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    )


STARTS, STOPS, STEPS = (None, *range(6)), (None, 0, 1, 3, 5), (1, 2, -1, -2)
LINES = [slice(a, b, c) for a in STARTS for b in STOPS for c in STEPS]


def test_lines_that_overlap_are_copied_as_by_numpy_or_refused():
    """NumPy goes upwards or downwards, or makes a copy first."""
    places = {(i, j): (s, t) for s in LINES for t in LINES
              if len(i := (*range(6)[s], s.step)) == len(j := (*range(6)[t], t.step)) > 2}
    refused = []
    for s, t in places.values():
        expected = 2 * W
        expected[s] = expected[t]

        def f(x, s=s, t=t):
            y = x * W
            y[s] = y[t]
            return y

        try:
            value = ft.jvp(f, (2.0,), (1.0,))[0]
        except UnsupportedError:
            refused.append((s, t))
            continue
        numpy.testing.assert_array_equal(value, expected, err_msg=f"{s} {t}")
    assert len(places) > 300 > 10 * len(refused)


def test_axes_in_a_turn_are_written_as_they_lie():
    def f(np, x, t):
        y = np.zeros((2, 3, 4))
        y.transpose(1, 2, 0)[...] = t * x
        z = y.transpose(2, 0, 1)
        z[1:] = z[1:] * t
        return y

    x = numpy.arange(24.0).reshape(3, 4, 2)
    expected = f(numpy, x, 2.0)
    for value in (ft.jvp(lambda t: f(fnp, x, t), (2.0,), (1.0,))[0],
                  ft.jit(lambda x, t: f(fnp, x, t))(x, 2.0)):
        numpy.testing.assert_array_equal(value, expected)


def test_a_constant_is_read_anew_behind_each_write():
    def f(np, t):
        y = np.zeros(3)
        y[:] = [1.0, 2.0, 3.0]
        first = t * y
        y[0] = 5.0
        second = t * y
        y[1] = 7.0
        return first + 2 * second + 4 * t * y

    value, tangent = ft.jvp(lambda t: f(fnp, t), (2.0,), (1.0,))
    numpy.testing.assert_array_equal(value, f(numpy, 2.0))
    numpy.testing.assert_array_equal(tangent, f(numpy, 1.0))


def test_what_was_handed_out_keeps_its_numbers_inside():
    def f(t):
        y = fnp.arange(4.0)
        held = numpy.asarray(y)
        y[0] = t
        return y + 0.0 * len(held)

    numpy.testing.assert_array_equal(ft.jvp(f, (2.0,), (1.0,))[0], [2.0, 1.0, 2.0, 3.0])
