"""Structure: reshaping, joining, splitting, padding, diagonals."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.errors import ImmutableError, UnsupportedError
from tests.cases import CHECK_NAMES, CHECKS, Case

A, B, V = (3, 4), (2, 3, 4), (5,)

CASES = {
    "reshape": Case(lambda x: np.reshape(x, (2, -1)), (A,)),
    "reshape to a scalar": Case(lambda x: x.reshape(()), ((1, 1),)),
    "reshape in Fortran order": Case(lambda x: np.reshape(x, (2, 6), order="F"), (A,)),
    "ravel": Case(lambda x: np.ravel(x), (A,)),
    "ravel in Fortran order": Case(lambda x: x.ravel("F"), (A,)),
    "flatten": Case(lambda x: x.flatten(), (A,)),
    "transpose": Case(lambda x: np.transpose(x, (2, 0, 1)), (B,)),
    "T": Case(lambda x: x.T, (B,)),
    "mT": Case(lambda x: x.mT, (B,)),
    "transpose method": Case(lambda x: x.transpose(1, 0, 2), (B,)),
    "matrix_transpose": Case(np.matrix_transpose, (B,)),
    "swapaxes": Case(lambda x: np.swapaxes(x, 0, -1), (B,)),
    "moveaxis": Case(lambda x: np.moveaxis(x, (0, 2), (-1, 0)), (B,)),
    "rollaxis": Case(lambda x: np.rollaxis(x, 2), (B,)),
    "rollaxis to a start": Case(lambda x: np.rollaxis(x, 0, 2), (B,)),
    "expand_dims": Case(lambda x: np.expand_dims(x, (0, -1)), (A,)),
    "squeeze": Case(np.squeeze, ((1, 3, 1),)),
    "squeeze an axis": Case(lambda x: np.squeeze(x, -1), ((1, 3, 1),)),
    "atleast_1d": Case(np.atleast_1d, ((),)),
    "atleast_2d": Case(lambda x, y: np.atleast_2d(x, y), (V, ())),
    "atleast_3d": Case(np.atleast_3d, (A,)),
    "broadcast_to": Case(lambda x: np.broadcast_to(x, (2, 3, 4)), ((3, 1),)),
    "broadcast_arrays": Case(lambda x, y: np.broadcast_arrays(x, y), ((3, 1), (4,))),
    "concatenate": Case(lambda x, y: np.concatenate([x, y], 1), (A, (3, 2))),
    "concatenate flat": Case(lambda x, y: np.concatenate((x, y), axis=None), (A, (3, 2))),
    "concatenate one traced": Case(lambda x: np.concatenate([np.ones(2, x.dtype), x]), (V,)),
    "stack": Case(lambda x, y: np.stack([x, y], -1), (A, A)),
    "vstack": Case(lambda x, y: np.vstack([x, y]), (V, (2, 5))),
    "hstack": Case(lambda x, y: np.hstack([x, y]), (V, (2,))),
    "hstack of matrices": Case(lambda x, y: np.hstack([x, y]), (A, (3, 2))),
    "dstack": Case(lambda x, y: np.dstack([x, y]), (V, V)),
    "column_stack": Case(lambda x, y: np.column_stack([x, y]), (V, (5, 2))),
    "block": Case(lambda x, y: np.block([[x, y], [y.T[:1, :], x[:1, :]]]), ((2, 2), (2, 2))),
    "append": Case(lambda x, y: np.append(x, y), (A, V)),
    "insert": Case(lambda x, y: np.insert(x, 2, y), (V, ())),
    "insert a column": Case(lambda x, y: np.insert(x, 1, y, axis=1), (A, (3,))),
    "insert columns at one place": Case(lambda x, y: np.insert(x, [1], y, axis=1), (A, (3, 2))),
    "insert at a slice": Case(lambda x, y: np.insert(x, slice(0, 2), y, axis=1), (A, (3, 2))),
    "insert from the end": Case(lambda x, y: np.insert(x, -1, y), (V, ())),
    "insert rows, broadcast": Case(lambda x, y: np.insert(x, [0, 3, 3], y, axis=0), (A, (4,))),
    "insert into the flat array": Case(lambda x, y: np.insert(x, [0, 5], y), (A, (2,))),
    "insert several": Case(lambda x, y: np.insert(x, [1, 3], y, axis=1), (A, (3, 2))),
    "delete": Case(lambda x: np.delete(x, [0, 2], axis=1), (A,)),
    "split": Case(lambda x: np.split(x, 2, axis=1), (A,)),
    "split at indices": Case(lambda x: np.split(x, [1, 3], axis=1), (A,)),
    "array_split": Case(lambda x: np.array_split(x, 3), (V,)),
    "hsplit": Case(lambda x: np.hsplit(x, 2), (A,)),
    "vsplit": Case(lambda x: np.vsplit(x, 3), (A,)),
    "dsplit": Case(lambda x: np.dsplit(x, 2), (B,)),
    "unstack": Case(lambda x: np.unstack(x, axis=1), (A,)),
    "flip": Case(np.flip, (A,)),
    "flip an axis": Case(lambda x: np.flip(x, -1), (B,)),
    "fliplr": Case(np.fliplr, (A,)),
    "flipud": Case(np.flipud, (A,)),
    "rot90": Case(np.rot90, (A,)),
    "rot90 thrice": Case(lambda x: np.rot90(x, 3, (1, 2)), (B,)),
    "rot90 twice": Case(lambda x: np.rot90(x, 2), (A,)),
    "roll": Case(lambda x: np.roll(x, 2), (A,)),
    "roll axes": Case(lambda x: np.roll(x, (1, -2), (0, 1)), (A,)),
    "tile": Case(lambda x: np.tile(x, (2, 1, 3)), (A,)),
    "tile few": Case(lambda x: np.tile(x, 2), (A,)),
    "repeat": Case(lambda x: np.repeat(x, 3), (A,)),
    "repeat an axis": Case(lambda x: np.repeat(x, 2, axis=0), (A,)),
    "repeat unevenly": Case(lambda x: np.repeat(x, [1, 0, 2], axis=0), (A,)),
    "repeat method": Case(lambda x: x.repeat(2, 1), (A,)),
    "resize": Case(lambda x: np.resize(x, (4, 4)), (V,)),
    "pad": Case(lambda x: np.pad(x, 2), (A,)),
    "pad unevenly": Case(lambda x: np.pad(x, ((0, 1), (2, 0))), (A,)),
    "pad with a value": Case(lambda x: np.pad(x, 1, constant_values=3), (A,)),
    "pad edge": Case(lambda x: np.pad(x, 2, mode="edge"), (A,)),
    "pad reflect": Case(lambda x: np.pad(x, 1, mode="reflect"), (A,)),
    "pad symmetric": Case(lambda x: np.pad(x, ((1, 2), (3, 0)), mode="symmetric"), (A,)),
    "pad wrap": Case(lambda x: np.pad(x, 2, mode="wrap"), (A,)),
    "diag of a vector": Case(lambda x: np.diag(x, -2), (V,)),
    "diag of a matrix": Case(lambda x: np.diag(x, 1), (A,)),
    "diagonal": Case(lambda x: np.diagonal(x, -1, 2, 0), (B,)),
    "diagonal method": Case(lambda x: x.diagonal(), (A,)),
    "diagflat": Case(lambda x: np.diagflat(x, 1), ((2, 2),)),
    "trace": Case(np.trace, (A,)),
    "trace of axes": Case(lambda x: np.trace(x, 1, 1, 2), (B,)),
    "tril": Case(lambda x: np.tril(x, -1), (B,)),
    "triu": Case(lambda x: np.triu(x, 1), (A,)),
    "vander": Case(lambda x: np.vander(x, 3).astype(x.dtype), (V,)),  # NumPy's is wider
    "meshgrid": Case(lambda x, y: np.meshgrid(x, y), (V, (3,))),
    "meshgrid ij": Case(lambda x, y: np.meshgrid(x, y, indexing="ij", sparse=True), (V, (3,))),
    "flat": Case(lambda x: x.flat[3], (A,)),
    "empty": Case(lambda x: np.concatenate([np.reshape(x, (0,)), np.ones(1, x.dtype)]), ((0, 3),)),
}


@pytest.mark.parametrize("check", CHECKS, ids=CHECK_NAMES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_structure(case, check):
    check(case)


def test_astype_keeps_the_cotangents_dtype_that_of_the_input():
    g = ft.grad(lambda x: x.astype(np.float64).sum())(np.ones(3, np.float32))
    assert g.dtype == np.float32


def test_astype_is_a_function_too():
    g = ft.grad(lambda x: np.astype(x, np.float32).sum())(np.ones(3))
    assert (g.dtype, g.tolist()) == (np.float64, [1.0, 1.0, 1.0])


def test_astype_to_integers_has_no_derivative():
    g = ft.grad(lambda x: x.sum() + x.astype(int).sum())(np.array([1.5, 2.5]))
    assert g.tolist() == [1.0, 1.0]


def test_astype_to_complex_and_back_is_the_identity():
    g = ft.grad(lambda x: (x.astype(complex) * 2j * -1j).real.sum())(np.ones(3))
    assert g.tolist() == [2.0, 2.0, 2.0]


def test_mixed_dtypes_join_and_their_gradients_part():
    g = ft.grad(lambda x, y: np.concatenate([x, y]).sum(), (0, 1))(
        np.ones(2, np.float32), np.ones(2)
    )
    assert [v.dtype for v in g] == [np.float32, np.float64]


def test_plain_arguments_go_to_numpy_and_come_back_as_arrays():
    y = fnp.concatenate([np.ones(2), [3]])
    assert type(y) is ft.Array
    assert y.tolist() == [1.0, 1.0, 3.0]


def test_a_list_of_traced_values_is_their_stack():
    g = ft.grad(lambda x: np.sum(fnp.array([[x[0], 2.0], [x[1], x[0]]]) ** 2))(np.array([1.0, 2.0]))
    assert g.tolist() == [4.0, 4.0]


@pytest.mark.parametrize("f", [
    lambda x: np.reshape(x, (5, 5)), lambda x: np.concatenate([x, np.ones((2, 2))], 1),
    lambda x: np.stack([x, np.ones(2)]), lambda x: np.broadcast_to(x, (2, 2)),
    lambda x: np.swapaxes(x, 0, 5), lambda x: np.squeeze(x, 0), lambda x: np.split(x, 2),
    lambda x: np.transpose(x, (0, 0)), lambda x: np.expand_dims(x, 7), lambda x: np.pad(x, -1),
    lambda x: x.reshape(-1, -1), lambda x: np.hsplit(x, 3), lambda x: np.moveaxis(x, 0, 9),
])
def test_bad_input_raises_what_numpy_raises(f):
    x = np.ones((3, 4))
    with pytest.raises(Exception) as expected:
        f(x)
    with pytest.raises(expected.type):
        ft.grad(lambda x: np.sum(f(x)))(x)


def test_out_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="stack got out="):
        ft.grad(lambda x: np.stack([x, x], out=np.empty((2, 3))).sum())(np.ones(3))
    with pytest.raises(UnsupportedError, match=r"np\.cumsum got out="):
        ft.grad(lambda x: np.cumsum(x, out=np.empty(3)).sum())(np.ones(3))


@pytest.mark.parametrize("others", [
    (2.0,), (np.float32(2),), (np.float64(2),), (np.int64(2),), (1j,), (np.array(2, np.float32),),
])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_stack_of_numbers_is_that_of_numpy(dtype, others):
    x = np.array([3, 5], dtype)
    found = []
    stack = lambda x: np.stack([x[0], *others, x[1]])  # noqa: E731  # used twice

    def f(x):
        found.append(ft.stop_gradient(stack(x)))
        return np.sum(stack(x).real * np.arange(1, 4))

    np.testing.assert_array_equal(ft.grad(f)(x), np.array([1, 3], dtype))
    assert found[0].dtype == stack(x).dtype
    np.testing.assert_array_equal(found[0], stack(x))


def test_fill_that_cannot_be_seen_names_the_cure():
    calls = {"fill": operator.methodcaller("fill", 2)}
    with pytest.raises(ImmutableError, match="full_like"):
        ft.grad(lambda x: calls["fill"](x))(np.ones(3))
