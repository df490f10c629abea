"""``torch.testing``: comparison of tensors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from functrans.torch._tensors import dtypes, factories
from functrans.torch._tensors.random import source
from functrans.torch._tensors.tensor import Tensor, as_array, from_array

# (rtol, atol) where neither is passed, by the coarser type
_TOLERANCES = {
    dtypes.float16: (1e-3, 1e-5), dtypes.bfloat16: (1.6e-2, 1e-5), dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float64: (1e-7, 1e-7), dtypes.complex64: (1.3e-6, 1e-5),
    dtypes.complex128: (1e-7, 1e-7),
}


def make_tensor(*shape: Any, dtype: dtypes.dtype, device: Any = None, low: float | None = None,
                high: float | None = None, requires_grad: bool = False, noncontiguous: bool = False,
                exclude_zero: bool = False, memory_format: Any = None) -> Tensor:
    """A tensor of random numbers from ``low`` to ``high``: by default -9 to 9, 0 to 9 or 0 to 1,
    depending on the type."""
    size = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    d = dtypes.array_dtype(dtype)
    least, most = (0, 2) if d.kind == "b" else (0 if d.kind == "u" else -9, 10 if d.kind in "iu"
                                                 else 9)
    low, high = least if low is None else low, most if high is None else high
    rng = source(None)
    if d.kind in "biu":
        x = rng.integers(int(low), int(high), size)
    else:
        x = rng.uniform(low, high, size)
        x = x + 1j * rng.uniform(low, high, size) if d.kind == "c" else x
    x = np.asarray(x).astype(d)
    if exclude_zero:
        x[x == 0] = 1
    if noncontiguous and x.size > 1:
        x = np.repeat(x, 2, -1)[..., ::2]
    return from_array(x).requires_grad_(requires_grad)


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True,
                 rtol: float | None = None, atol: float | None = None, equal_nan: bool = False,
                 check_device: bool = True, check_dtype: bool = True, check_layout: bool = True,
                 check_stride: bool = False, msg: Any = None) -> None:
    """Raise AssertionError unless entries agree within ``atol + rtol * abs(expected)``.

    Tensors, numbers, and sequences and mappings of them. Tolerances depend on the type where they
    are left out.

    >>> from functrans import torch
    >>> torch.testing.assert_close(torch.tensor([0.1 + 0.2]), torch.tensor([0.3]))
    """
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan,
                               "check_dtype": check_dtype, "check_stride": check_stride, "msg": msg}
    if isinstance(actual, dict) and isinstance(expected, dict):
        if actual.keys() != expected.keys():
            _fail(msg, f"The keys of the mappings do not match: {list(actual)} != {list(expected)}")
        for key in expected:
            assert_close(actual[key], expected[key], **options)
        return
    if isinstance(actual, list | tuple) and isinstance(expected, list | tuple):
        if len(actual) != len(expected):
            _fail(msg, "The length of the sequences do not match: "
                       f"{len(actual)} != {len(expected)}")
        for a, b in zip(actual, expected, strict=True):
            assert_close(a, b, **options)
        return
    _compare(actual, expected, **options)


def _compare(actual: Any, expected: Any, rtol: float | None, atol: float | None, equal_nan: bool,
             check_dtype: bool, check_stride: bool, msg: Any) -> None:
    if (rtol is None) != (atol is None):
        raise ValueError("assert_close: rtol and atol must both be specified or both be left out")
    a, b = as_array(actual), as_array(expected)
    if a.shape != b.shape:
        _fail(msg, f"The values for attribute 'shape' do not match: {a.shape} != {b.shape}.")
    if check_dtype and isinstance(actual, Tensor) and isinstance(expected, Tensor):
        if a.dtype != b.dtype:
            _fail(msg, "The values for attribute 'dtype' do not match: "
                       f"{actual.dtype} != {expected.dtype}.")
        if check_stride and actual.stride() != expected.stride():
            _fail(msg, "The values for attribute 'stride()' do not match: "
                       f"{actual.stride()} != {expected.stride()}.")
    pairs = [_TOLERANCES.get(dtypes.BY_ARRAY_DTYPE[x.dtype], (0.0, 0.0)) for x in (a, b)]
    usual = max(pairs)
    r, t = usual if rtol is None or atol is None else (rtol, atol)
    wide = np.result_type(a.dtype if a.dtype.kind != "V" else np.float32,
                          b.dtype if b.dtype.kind != "V" else np.float32)
    a, b = a.astype(wide), b.astype(wide)
    close = np.isclose(a, b, rtol=r, atol=t, equal_nan=equal_nan)
    if close.all():
        return
    where = np.unravel_index(int(np.argmin(close)), a.shape) if a.ndim else ()
    index = tuple(int(i) for i in where)
    _fail(msg, f"Tensor-likes are not close! {int((~close).sum())} of {close.size} entries differ, "
               f"the first at {index}: {a[where]} and {b[where]} (rtol={r}, atol={t}).")


def _fail(msg: Any, text: str) -> None:
    raise AssertionError(msg(text) if callable(msg) else msg or text)


def assert_allclose(actual: Any, expected: Any, rtol: float | None = None,
                    atol: float | None = None, equal_nan: bool = True, msg: Any = "") -> None:
    """Deprecated: ``assert_close`` without a comparison of types."""
    warnings.warn("torch.testing.assert_allclose() is deprecated; use assert_close()",
                  FutureWarning, stacklevel=2)
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False,
                 msg=msg or None)


# older names of factories
rand, randn, randn_like = factories.rand, factories.randn, factories.randn_like  # type: ignore[attr-defined]  # made by a table

__all__ = ["assert_allclose", "assert_close", "make_tensor"]
