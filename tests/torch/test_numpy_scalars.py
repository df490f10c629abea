"""Scalars of NumPy's promote as Python's numbers do, as in PyTorch 2.13."""

import warnings

import numpy as np
import pytest

import functrans.torch as torch
from tests.torch.numpy_scalars import SCALARS, TABLE, TYPES, row

ROWS = [line.rsplit(" | ", 1) for line in TABLE.read_text().splitlines()]


@pytest.mark.parametrize(("call", "recorded"), ROWS, ids=[c for c, _ in ROWS])
def test_a_scalar_of_numpy_gives_the_type_that_torch_gives(call, recorded):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = row(torch, call)
    # torch has complex numbers of half precision, which NumPy has not
    pairs = [(r, f) for r, f in zip(recorded, found, strict=True) if r != "E"]
    assert [r for r, _ in pairs] == [f for _, f in pairs]


def test_the_table_has_a_letter_for_each_type_and_scalar():
    assert len(ROWS) > 150
    assert {len(r.replace(" ", "")) for _, r in ROWS} == {len(TYPES) * len(SCALARS)}


@pytest.mark.parametrize("n", [np.float64(3), np.int64(3), np.float16(3)])
def test_gradients_beside_a_scalar_of_numpy_have_their_value_and_type(n):
    x = torch.tensor([2.0], requires_grad=True)
    y = torch.addcmul(x * n, x**n, n - x, value=n) + torch.lerp(x, n * x, n)
    y.backward()
    # 3 x + 3 x^3 (3 - x) + x + 3 (3 x - x)
    assert x.grad.tolist() == [3 + 27 * 4 - 12 * 8 + 1 + 6] and x.grad.dtype == torch.float32


def test_an_imaginary_part_is_not_dropped_in_a_write():
    x = torch.zeros(2)
    with pytest.raises(RuntimeError, match="complex values cannot be written"):
        x[0] = np.complex64(1j)
    with pytest.raises(RuntimeError, match="complex Scalar to non-complex"):
        torch.index_fill(x, 0, torch.tensor([0]), 1j)


def test_a_type_of_numpys_that_torch_has_not_is_refused():
    with pytest.raises(TypeError, match=r"longdouble|float128"):
        torch.as_tensor(np.longdouble(1))
