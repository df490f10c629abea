"""Indexing: every kind of index reads, writes, transposes and batches as NumPy's does."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans._core.bind import bind
from functrans._ops import indexing as rows
from functrans.errors import ConcretizationError, ImmutableError
from tests.cases import CHECK_NAMES, CHECKS, Case

K, J = np.array([2, 0, 2]), np.array([[1], [-1]])
MASK = np.arange(24).reshape(2, 3, 4) % 5 < 2

# indices of an array of shape (2, 3, 4)
INDICES = {
    "int": 1,
    "negative int": -1,
    "numpy int": np.int32(1),
    "slice": slice(1, None),
    "slice of numpy ints": slice(np.int64(0), np.int64(1)),
    "backwards": np.s_[::-1, ::-2],
    "ints": (1, 2, 3),
    "int and slice": np.s_[:, 1],
    "ellipsis": np.s_[..., 1],
    "only ellipsis": ...,
    "newaxis": np.s_[:, None, 1, ..., None],
    "nothing": (),
    "empty slice": np.s_[:, 2:2],
    "array": np.array([1, 0, 1]),
    "list": [0, 1, 1],
    "empty list": [],
    "0-d array": np.array(1),
    "array on axis 1": np.s_[:, K],
    "array behind ellipsis": np.s_[..., K],
    "two adjacent arrays": np.s_[:, K, J],
    "two arrays apart": np.s_[[1, 0, 1], :, K],
    "int and array adjacent": np.s_[:, 1, K],
    "int and array apart": np.s_[0, :, K],
    "arrays apart by newaxis": np.s_[[0, 1, 1], None, K],
    "arrays apart by ellipsis": np.s_[[0, 1, 1], ..., K],
    "array and newaxis": np.s_[None, :, K, None],
    "array between slices": np.s_[1:, K, ::-1],
    "three arrays": (np.array([0, 1, 1]), K, K),
    "2-d array": np.s_[:, :, J],
    "mask": MASK,
    "mask of one axis": np.s_[:, np.array([True, False, True])],
    "mask of the last axes": np.s_[:, MASK[0]],
    "mask behind ellipsis": np.s_[..., MASK[0]],
    "mask and array": np.s_[MASK[:, :, 0], np.array([1, 2, 0, 3])[: int(MASK[:, :, 0].sum())]],
    "list of bools": [True, False],
}
each_index = pytest.mark.parametrize("key", INDICES.values(), ids=INDICES)
each_check = pytest.mark.parametrize("check", CHECKS, ids=CHECK_NAMES)


@each_check
@each_index
def test_reading(key, check):
    check(Case(lambda x: x[key], ((2, 3, 4),)))


def write(x, key, method, v):
    """``x.at[key].method(v)``, and on plain arrays NumPy's in-place equivalent."""
    if not all(type(a) in (np.ndarray, np.float64, np.complex128) for a in (x, v)):
        return getattr(fnp.asarray(x).at[key], method)(v)
    y = np.array(x, np.result_type(x, v))
    if method == "set":
        y[key] = v
    else:
        getattr(np, method).at(y, key, v)
    return y


@pytest.mark.parametrize("method", ["set", "add", "multiply"])
@each_check
@each_index
def test_writing(key, check, method):
    shape = np.empty((2, 3, 4))[key].shape
    check(Case(lambda x, v: write(x, key, method, v), ((2, 3, 4), shape)))


@pytest.mark.parametrize("method", ["divide", "power", "subtract"])
@each_check
def test_writing_where_the_index_repeats(method, check):
    check(Case(lambda x, v: write(x, K, method, v), ((3, 2), (3, 2))))


@pytest.mark.parametrize("method", ["min", "max"])
def test_minimum_and_maximum_where_the_index_repeats(method):
    x, v = np.array([3.0, 1.0, 2.0]), np.array([2.5, 0.5, 1.5])
    want = x.copy()
    getattr(np, {"min": "minimum", "max": "maximum"}[method]).at(want, K, v)
    np.testing.assert_array_equal(getattr(fnp.array(x).at[K], method)(v), want)
    g = ft.grad(lambda x, v: getattr(x.at[K], method)(v).sum(), (0, 1))(x, v)
    assert np.concatenate(g).sum() == 3


def test_the_last_of_repeated_writes_wins_and_gets_the_whole_cotangent():
    g = ft.grad(lambda v: (np.zeros(3) + 0 * v[0]).at[np.array([1, 1, 0])].set(v)[1])(np.ones(3))
    assert g.tolist() == [0.0, 1.0, 0.0]


TWICE = {  # ways to write v at repeated places of an array: issues 29 and 38
    "an update": lambda x, v: fnp.asarray(x).at[np.array([1, 2, 1, 1])].set(v),
    "the row": lambda x, v: bind(rows.scatter_set, x, v, np.array([1, 2, 1, 1]),
                                 pattern=(rows.ARRAY,)),
}


def assigned(x, v):
    y = fnp.copy(x)
    y[np.array([1, 2, 1, 1])] = v
    return y


@pytest.mark.parametrize("write", [*TWICE.values(), assigned], ids=[*TWICE, "an assignment"])
def test_of_repeated_writes_only_the_last_carries_a_derivative(write):
    w, v = np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 6.0, 7.0, 8.0])

    def f(x, v):
        return np.sum(w * write(x, v) ** 2)

    for grad in (ft.grad(f, (0, 1)), ft.jit(ft.grad(f, (0, 1)))):
        gx, gv = grad(w, v)
        np.testing.assert_array_equal(gx, [2.0, 0, 0, 32])
        np.testing.assert_array_equal(gv, [0.0, 36, 0, 32])
    moved = ft.jvp(lambda v: write(w, v), (v,), (np.array([1.0, 2.0, 3.0, 4.0]),))[1]
    np.testing.assert_array_equal(moved, [0.0, 4, 2, 0])


def test_updates_of_an_array_are_arrays_and_leave_it_alone():
    x = fnp.array([1.0, 2.0])
    y = x.at[0].set(7)
    assert type(y) is ft.Array
    assert (y.tolist(), x.tolist()) == ([7.0, 2.0], [1.0, 2.0])
    assert x.at[1].get() == 2.0
    assert x.at[1].apply(np.exp).tolist() == [1.0, np.exp(2.0)]


def test_updates_keep_the_dtype_and_broadcast_the_value():
    y = fnp.zeros((2, 3), np.float32).at[:, 1:].add(2.5)
    assert y.dtype == np.float32
    assert y.tolist() == [[0, 2.5, 2.5]] * 2


# ---- indices that differ within a batch


@pytest.mark.parametrize("pick", [
    lambda at, i: at[i], lambda at, i: at[:, i], lambda at, i: at[i, :, 0],
    lambda at, i: at[0, :, i], lambda at, i: at[i, ..., i], lambda at, i: at[None, :, i, 1:],
    lambda at, i: at[:, i, J],
])
@pytest.mark.parametrize("shape", [(), (2,), (2, 2)], ids=str)
@pytest.mark.parametrize("both", [True, False], ids=["x batched", "x whole"])
def test_reading_where_the_index_is_batched(pick, shape, both):
    rng = np.random.default_rng(0)
    x, i = rng.standard_normal((5, 2, 3, 4)), rng.integers(0, 2, (5, *shape))
    axes, args = (0 if both else None, 0), (x if both else x[0], i)

    def read(x, i):
        return pick(fnp.asarray(x).at, i).get()

    for f in (read, ft.grad(lambda x, i: np.sum(np.sin(read(x, i))))):
        want = np.stack([f(x[k] if both else x[0], i[k]) for k in range(5)])
        np.testing.assert_allclose(ft.vmap(f, axes)(*args), want, rtol=1e-13)


def test_taking_from_a_fixed_array_where_the_index_is_batched():
    x, i = np.arange(4.0), np.array([[3, 1], [0, 0]])
    assert ft.vmap(lambda i: fnp.take(x, i))(i).tolist() == [[3.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("method", ["set", "add", "multiply"])
@pytest.mark.parametrize("place", [
    lambda x, i: x.at[i], lambda x, i: x.at[:, i], lambda x, i: x.at[i, :, 0],
    lambda x, i: x.at[0, :, i],
])
@pytest.mark.parametrize("shape", [(), (2,)], ids=str)
def test_writing_where_the_index_is_batched(place, method, shape):
    rng = np.random.default_rng(0)
    x, i = rng.standard_normal((5, 2, 3, 4)), rng.integers(0, 2, (5, *shape))

    def f(x, i, s):
        slot = place(x, i)
        return getattr(slot, method)(np.cos(s * slot.get()))

    s = np.linspace(1, 2, 5)
    want = np.stack([f(fnp.array(x[k]), i[k], s[k]) for k in range(5)])
    np.testing.assert_allclose(ft.vmap(f)(x, i, s), want, rtol=1e-13)
    g = ft.grad(lambda x, i, s: np.sum(np.sin(f(x, i, s))), (0, 2))
    want = [np.stack(c) for c in zip(*[g(x[k], i[k], s[k]) for k in range(5)], strict=True)]
    for got, w in zip(ft.vmap(g)(x, i, s), want, strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-12, atol=1e-13)


# ---- functions

GATHERS = {
    "take": Case(lambda x: np.take(x, [3, 0, 3]), ((3, 4),)),
    "take along an axis": Case(lambda x: np.take(x, J, axis=-1), ((3, 4),)),
    "take clip": Case(lambda x: np.take(x, [9, -9, 1], mode="clip"), ((3, 4),)),
    "take wrap": Case(lambda x: np.take(x, [9, -9, 1], axis=0, mode="wrap"), ((3, 4),)),
    "take method": Case(lambda x: x.take([1, 1], axis=1), ((3, 4),)),
    "take_along_axis": Case(
        lambda x: np.take_along_axis(x, np.array([[0, 1], [1, 1], [3, 0]]), 1), ((3, 4),)
    ),
    "where": Case(lambda x, y: np.where(np.arange(4) > 1, x, y), ((3, 4), (4,))),
    "where with a scalar": Case(lambda x: np.where(np.arange(4) > 1, x, 0), ((3, 4),)),
    "select": Case(
        lambda x, y: np.select([np.arange(4) < 1, np.arange(4) < 2], [x, y], 0), ((4,), (4,))
    ),
    "choose": Case(lambda x, y: np.choose(np.array([0, 1, 0, 1]), [x, y]), ((4,), (4,))),
    "compress": Case(lambda x: np.compress([True, False, True], x, axis=0), ((3, 4),)),
    "extract": Case(lambda x: np.extract(np.eye(3, 4) > 0, x), ((3, 4),)),
}


@each_check
@pytest.mark.parametrize("case", GATHERS.values(), ids=GATHERS)
def test_gathering(case, check):
    check(case)


@each_check
@pytest.mark.parametrize("axis", [0, -1, None])
def test_sorting(axis, check):
    check(Case(lambda x: np.sort(x, axis), ((3, 4),)))


def test_partition_holds_its_promise():
    y = ft.vmap(lambda x: np.partition(x, 2))(np.random.default_rng(0).standard_normal((4, 6)))
    assert (y[:, :2] <= y[:, 2:3]).all()
    assert (y[:, 3:] >= y[:, 2:3]).all()


def test_unique_values_take_their_derivative_from_the_first():
    g = ft.grad(lambda x: (np.unique(x) * np.array([1.0, 10.0])).sum())(np.array([3.0, 2.0, 3.0]))
    assert g.tolist() == [10.0, 1.0, 0.0]


def test_positions_are_plain_integers():
    def f(x):
        assert np.nonzero(x)[0].tolist() == [1, 2]
        assert np.argwhere(x).tolist() == [[1], [2]]
        assert np.flatnonzero(x).tolist() == [1, 2]
        assert np.where(x > 0)[0].tolist() == [1, 2]
        assert np.argsort(-x).tolist() == [2, 1, 0]
        assert np.searchsorted(x, 1.5) == 2
        return x[np.nonzero(x)].sum()

    assert ft.grad(f)(np.array([0.0, 1.0, 2.0])).tolist() == [0.0, 1.0, 1.0]


def test_searchsorted_batches():
    x = np.sort(np.random.default_rng(0).standard_normal((3, 5)))
    got = ft.vmap(lambda x: np.searchsorted(x, np.array([0.0, 1.0])))(x)
    assert got.tolist() == [np.searchsorted(r, [0.0, 1.0]).tolist() for r in x]


def test_many_repeated_entries_receive_every_cotangent():
    rng = np.random.default_rng(0)
    i, j = rng.integers(-20, 20, (2, 500))
    for shape, key in (((20, 3), (i,)), ((20, 20), (i, j)), ((20, 20), (i[:, None], j[:8]))):
        want = np.zeros(shape)
        v = rng.standard_normal(want[key].shape)
        np.add.at(want, key, v)
        got = ft.grad(lambda x, key=key, v=v: np.sum(x[key] * v))(np.zeros(shape))
        np.testing.assert_allclose(got, want, rtol=1e-12)
    with pytest.raises(IndexError):
        fnp.zeros((20, 3)).at[i + 1].add(1.0)


# ---- structure


def test_basic_reading_accumulates_in_place():
    buffer = np.zeros(4)
    rows.accumulate(buffer, np.float64(2.0), [], {"pattern": (1,)})
    rows.accumulate(buffer, np.ones(2), [], {"pattern": ((1, 3, None),)})
    rows.accumulate(buffer, np.ones(2), [np.array([0, 0])], {"pattern": ("array",)})
    assert buffer.tolist() == [2.0, 3.0, 1.0, 0.0]


# ---- errors


@pytest.mark.parametrize("key", [
    5, (0, 7), np.array([9]), 1.5, "a", np.array([0.5]), (0, 0, 0, 0), np.array([True] * 5),
    (0, 0, 0, np.array([1])), (0, 0, 0, np.array([True])), np.s_[..., 0, ...],
    (np.array([0, 1]), np.array([0, 1, 2])),
], ids=str)
def test_a_bad_index_raises_what_numpy_raises(key):
    x = np.ones((2, 3, 4))
    with pytest.raises(IndexError):
        x[key]
    with pytest.raises(IndexError):
        ft.grad(lambda x: x[key].sum())(x)


def test_a_mask_under_vmap_names_where():
    with pytest.raises(ConcretizationError, match=r"np\.where\(mask, x, 0\)"):
        ft.vmap(lambda x: x[x > 0].sum())(np.ones((2, 3)))


def test_a_batched_mask_can_be_written_to():
    x = np.array([[1.0, -1.0], [-2.0, 3.0]])
    assert ft.vmap(lambda x: x.at[x < 0].set(0.0))(x).tolist() == [[1.0, 0.0], [0.0, 3.0]]
    assert ft.vmap(lambda x: x.at[x < 0].multiply(-2))(x).tolist() == [[1.0, 2.0], [4.0, 3.0]]


# ---- updates that combine, at places that come again


def one_by_one(op, x, places, values):
    """The entries combined one after the other."""
    for k in range(len(places)):
        x = x.at[int(places[k])].set(op(x[int(places[k])], values[k]))
    return x


UPDATED, AGAIN = ft.array([1.0, 0.0, 2.0, 5.0]), np.array([0, 2, 0, -2, 1, 2, 0])
WITH = np.array([1.0, 2.0, 0.0, 2.0, 3.0, 1.0, 0.0])


@pytest.mark.parametrize("op, method", [
    (np.maximum, "max"), (np.minimum, "min"), (np.multiply, "multiply"),
])
@pytest.mark.parametrize("compiled", [False, True])
def test_updates_that_repeat_have_the_derivatives_of_one_after_the_other(op, method, compiled):
    weights = np.array([1.0, -2.0, 3.0, 0.5])

    def by_hand(x, v):
        return np.sum(weights * one_by_one(op, x, AGAIN, v) ** 2)

    def at_once(x, v, places):
        return np.sum(weights * getattr(x.at[places], method)(v) ** 2)

    staged = ft.jit if compiled else lambda f: f
    want = ft.value_and_grad(by_hand, (0, 1))(UPDATED, WITH), ft.hessian(by_hand, 1)(UPDATED, WITH)
    got = staged(lambda x, v, places: (
        ft.value_and_grad(at_once, (0, 1))(x, v, places), ft.hessian(at_once, 1)(x, v, places),
    ))(UPDATED, WITH, AGAIN)
    for ours, theirs in zip(ft.tree.leaves(got), ft.tree.leaves(want), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_updates_at_the_places_of_a_batch_are_those_of_each_row():
    places = np.random.default_rng(0).integers(0, 4, (3, 7))
    f = ft.jacfwd(lambda v, places: (0 * v[:4] + UPDATED).at[places].multiply(v))
    got = ft.vmap(f, in_axes=(None, 0))(WITH, places)
    np.testing.assert_array_equal(got, [f(WITH, p) for p in places])
    np.testing.assert_array_equal(ft.jit(ft.vmap(f, in_axes=(None, 0)))(WITH, places), got)


@pytest.mark.parametrize("method, ufunc", [("max", np.maximum), ("multiply", np.multiply)])
def test_updates_of_rows_and_numbers_at_traced_places_are_numpys(method, ufunc):
    update = ft.jit(lambda x, i, v: getattr(x.at[i], method)(v))
    x, i = np.arange(6.0).reshape(3, 2), np.array([0, -1, 0])
    for dtype in (np.float64, np.float32, np.int32):
        want, v = x.astype(dtype), np.array([[2, 7], [1, 3], [5, 4]], dtype)
        given = ft.array(want.copy())
        ufunc.at(want, i, v)
        got = update(given, i, v)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, want)
    single = ft.jit(lambda x, i: getattr(x.at[i], method)(0.1))(x.astype(np.float32), i)
    assert single.dtype == np.float32
    assert update(x, i[:0], np.zeros((0, 2))).tolist() == x.tolist()
    with pytest.raises(IndexError):
        update(x, np.array([0, 3, 1]), np.ones((3, 2)))


def test_the_program_of_an_update_does_not_grow_with_its_index():
    def equations(n):
        f = ft.grad(lambda v, i: np.sum((0 * v[:3]).at[i].max(v)))
        return len(ft.make_program(f)(np.ones(n), np.zeros(n, int)).eqns)

    assert equations(5) == equations(50) < 30


def test_a_repeated_update_is_as_sparse_as_its_places():
    def f(x):
        return x[:3].at[np.array([0, 0, 2])].multiply(x[2:])

    x = np.arange(1.0, 6.0)
    assert (ft.sparsity(f, x).toarray() == (ft.jacobian(f)(x) != 0)).all()
    second = ft.hessian(lambda x: np.sum(f(x)))(x)
    sparse = ft.sparse_hessian(lambda x: np.sum(f(x)))(x)
    np.testing.assert_allclose(sparse.toarray(), second)
    assert sparse.nnz < x.size**2


def test_nonzero_under_vmap_names_where():
    with pytest.raises(ConcretizationError, match=r"np\.nonzero.*np\.where"):
        ft.vmap(np.nonzero)(np.ones((2, 3)))


def test_assignment_that_cannot_be_seen_names_at():
    calls = {"set": operator.setitem}
    with pytest.raises(ImmutableError, match=r"where functrans sees that.*\.at\[index\]"):
        ft.grad(lambda x: calls["set"](x, 0, 1.0))(np.ones(3))


def test_sorting_in_place_that_cannot_be_seen_names_sort():
    calls = {"sort": operator.methodcaller("sort")}
    with pytest.raises(NotImplementedError, match=r"np\.sort\(x\)"):
        ft.grad(lambda x: calls["sort"](x))(np.ones(3))


def test_a_loop_over_the_entries_adds_into_one_buffer(monkeypatch):
    """The backward of x[0], x[1], ... makes one array of x's shape, not one an entry."""
    made, zeros = [], np.zeros
    monkeypatch.setattr(np, "zeros", lambda *a, **k: made.append(a) or zeros(*a, **k))
    g = ft.grad(lambda x: sum(x[i] * x[i] for i in range(50)))(np.arange(50.0))
    np.testing.assert_array_equal(g, 2 * np.arange(50.0))
    assert len(made) == 1


TRACED_KEYS = {
    "an integer": lambda i: i,
    "in a tuple": lambda i: (slice(None), i),
    "two": lambda i: (i, i),
    "beside a slice": lambda i: (i, slice(1, None)),
    "beside an ellipsis": lambda i: (..., i),
    "in a list": lambda i: [i, 1],
    "a new axis": lambda i: (None, i),
}


@pytest.mark.parametrize("key", TRACED_KEYS.values(), ids=TRACED_KEYS)
def test_an_array_that_was_handed_out_takes_a_traced_index(key):
    a = ft.hessian(lambda x: np.sum(x) ** 3 + np.sum(x**4))(np.array([1.0, 2.0, 3.0]))
    expected = [np.asarray(a)[key(i)] for i in (2, 0)]
    np.testing.assert_array_equal(ft.vmap(lambda i: a[key(i)])(np.array([2, 0])), expected)
    np.testing.assert_array_equal(ft.jit(lambda i: a[key(i)])(2), expected[0])


def test_a_plain_array_under_a_traced_index_names_ft_array():
    y = np.arange(3.0)
    with pytest.raises(ConcretizationError, match=r"write ft\.array\(y\)\[i\]"):
        ft.vmap(lambda i: y[i])(np.array([1, 2]))
    np.testing.assert_array_equal(ft.vmap(lambda i: ft.array(y)[i])(np.array([1, 2])), [1, 2])


@pytest.mark.parametrize("transform", [ft.jit, lambda f: ft.jit(ft.grad(f))], ids=["jit", "grad"])
def test_many_traced_indices_of_a_plain_array_leave_it_to_python(transform):
    y = np.arange(3.0)

    def f(x):
        return np.sum(y[np.floor(x).astype(int)] * x)

    compiled, x = transform(f), np.linspace(0.0, 2.5, 17)  # too many for a path of their own
    with pytest.warns(RuntimeWarning, match=r"write ft\.array\(y\).*run as plain Python"):
        first = compiled(x)
    for found, v in ((first, x), (compiled(x / 2), x / 2)):
        np.testing.assert_allclose(found, ft.grad(f)(v) if found.ndim else f(v), rtol=1e-15)
    with pytest.warns(RuntimeWarning), pytest.raises(ConcretizationError, match=r"ft\.array"):
        ft.vmap(ft.jit(f))(np.stack([x, x]))


def test_a_traced_bound_of_a_slice_of_an_array_decides_its_shape():
    tail = ft.jit(lambda i: ft.array(np.arange(3.0))[i:])
    for i in (1, 0, 3, -1):
        np.testing.assert_array_equal(tail(i), np.arange(3.0)[i:])
    with pytest.raises(ConcretizationError, match=r"an index of .* would fix"):
        ft.make_program(lambda i: ft.array(np.arange(3.0))[i:])(1)


WINDOWS = {
    "a length": lambda x, i: x[i:i + 3],
    "both bounds moved": lambda x, i: x[i - 1:i + 2],
    "a stride of blocks": lambda x, i: x[2 * i:2 * i + 2],
    "of an axis": lambda x, i: np.stack([x, 2 * x])[..., i:i + 2],
    "with an integer": lambda x, i: np.stack([x, 2 * x])[1, i:i + 2],
    "two": lambda x, i: np.outer(x, x)[i:i + 2, i + 1:i + 3],
    "nothing": lambda x, i: x[i:i + 0],
    "backwards": lambda x, i: x[i + 2:i],
    "a tail": lambda x, i: x[i:],
    "a head": lambda x, i: x[:i],
    "steps": lambda x, i: x[i:i + 4:2],
}


@pytest.mark.parametrize("f", WINDOWS.values(), ids=WINDOWS)
def test_slices_between_traced_places_are_numpys(f):
    x = np.arange(7.0) ** 2
    compiled, slope = ft.jit(f), ft.jit(ft.jacrev(f))
    for i in (2, 0, 1, 5, 6, 7, -2, -7, 2):
        np.testing.assert_array_equal(compiled(x, i), f(x, i))
        np.testing.assert_array_equal(slope(x, i), ft.jacrev(f)(x, i))


def test_a_slice_of_fixed_length_is_one_path():
    runs = []
    f = ft.jit(lambda x, i: runs.append(1) or x[i:i + 3])
    for i in range(4):
        np.testing.assert_array_equal(f(np.arange(7.0), i), np.arange(i, i + 3.0))
    assert len(runs) == 1


def test_a_slice_of_fixed_length_in_a_loop_is_read_and_written():
    def f(x):
        def step(i, y):
            return y.at[i:i + 2].set(y[i + 1:i + 3] * x[i])
        return ft.fori_loop(0, 4, step, x * 1.0)

    def by_numpy(x):
        y = x * 1.0
        for i in range(4):
            y[i:i + 2] = y[i + 1:i + 3] * x[i]
        return y

    x = np.arange(1.0, 7.0)
    np.testing.assert_array_equal(ft.jit(f)(x), by_numpy(x))
    np.testing.assert_array_equal(ft.jit(ft.jacrev(f))(x), ft.jacrev(f)(x))


def test_a_slice_that_leaves_its_axis_in_a_loop_or_a_batch_is_refused():
    x = ft.array(np.arange(5.0))
    f = ft.jit(lambda n: ft.fori_loop(0, n, lambda i, y: y + np.sum(x[i:i + 2]), 0.0))
    assert f(4) == 16.0
    with pytest.raises(IndexError):
        f(5)
    batched = ft.vmap(lambda i: x[i:i + 2])
    np.testing.assert_array_equal(batched(np.array([0, 3])), [[0.0, 1.0], [3.0, 4.0]])
    np.testing.assert_array_equal(ft.jit(batched)(np.array([0, 3])), [[0.0, 1.0], [3.0, 4.0]])
    for places in ([0, 4], [-1, 0]):
        with pytest.raises(IndexError):
            batched(np.array(places))


def test_slices_of_different_lengths_in_a_batch_are_refused():
    x = ft.array(np.arange(5.0))
    with pytest.raises(ConcretizationError, match="an index of"):
        ft.vmap(lambda i, j: x[i:j])(np.array([0, 1]), np.array([2, 4]))
    np.testing.assert_array_equal(
        ft.vmap(lambda i, j: x[i:j])(np.array([0, 1]), np.array([2, 3])), [[0, 1], [1, 2]])


def test_a_written_array_takes_slices_of_fixed_length():
    def f(x, i):
        y = ft.numpy.zeros(6)
        y[i:i + 2] = x[i:i + 2] ** 2
        y[i:i + 3] += 1.0
        return y

    compiled = ft.jit(f)
    for i in (0, 1, 4, -2, 5):
        np.testing.assert_array_equal(compiled(np.arange(6.0), i), f(np.arange(6.0), i))


SHORT_ROWS = {"columns": np.s_[:, 2:5], "one column, kept": np.s_[:, 3:4],
              "every second column": np.s_[::2, ::2], "backwards": np.s_[::-1, :3]}


@pytest.mark.parametrize("key", SHORT_ROWS.values(), ids=SHORT_ROWS)
@pytest.mark.parametrize("count", [20, 3000])
def test_parts_with_short_rows_are_read_in_order(key, count):
    x = np.random.default_rng(0).normal(size=(count, 11))
    expected = np.zeros(x.shape)
    expected[key] = 3 * x[key] ** 2
    np.testing.assert_array_equal(ft.vjp(lambda x: x[key], x)[0], x[key])
    np.testing.assert_allclose(ft.grad(lambda x: np.sum(x[key] ** 3))(x), expected, rtol=1e-14)
    y, dy = ft.jvp(lambda x: x[key], (x,), (np.cos(x),))
    np.testing.assert_array_equal(y, x[key])
    np.testing.assert_array_equal(dy, np.cos(x)[key])


def test_only_parts_with_short_rows_are_copied():
    x = np.zeros((3000, 40))
    for key, copied in {((None, None, None), (1, 4, None)): True, (7,): False,
                        ((None, None, None), (1, 39, None)): False}.items():
        assert np.shares_memory(rows.getitem(x, pattern=key), x) is not copied
    assert np.shares_memory(rows.getitem(x.T, pattern=((1, 4, None),)), x)


@pytest.mark.parametrize("between", [(), (None,), (...,)], ids=["nothing", "an axis", "ellipsis"])
@pytest.mark.parametrize("count", [10, rows.NUMBERED + 44])
def test_many_single_entries_of_a_matrix_are_added_to_whatever_stands_between(between, count):
    x = np.linspace(0.0, 1.0, 30).reshape(5, 6)
    i, j = np.arange(count) % 5, np.arange(count) * 7 % 6
    expected = np.zeros_like(x)
    np.add.at(expected, (i, j), 2 * x[i, j])
    slope = ft.grad(lambda x: np.sum(x[(i, *between, j)] ** 2))(x)
    np.testing.assert_allclose(slope, expected, rtol=1e-14)


@pytest.mark.parametrize("how", ["set", "add", "mul", "min", "max"])
def test_a_number_of_pythons_is_updated_with_like_one_of_numpys(how):
    def updated(v):
        return getattr(ft.array(np.ones(4)).at[1:3], how)(v)

    ct = np.arange(1.0, 5.0)
    want = ft.vjp(updated, np.float64(2.5))[1](ct)[0]
    assert want == (0 if how == "min" else 5)
    for pulled in (f := lambda v: ft.vjp(updated, v)[1](ct)[0], ft.jit(f)):
        assert pulled(2.5) == want
