"""How tensors print, and the limits of element types: ``finfo`` and ``iinfo``."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from functrans.torch._tensors import dtypes
from functrans.torch._tensors.tensor import Tensor, edge_of

# ---- ``finfo`` and ``iinfo``: the limits of element types

_COMPLEX_PARTS = {np.dtype(np.complex64): np.float32, np.dtype(np.complex128): np.float64}


class _Limits:
    """Limits of one type, as attributes."""

    _fields: tuple[str, ...] = ()
    dtype: str

    def __repr__(self) -> str:
        shown = [f"{name}={_short(getattr(self, name))}" for name in self._fields]
        return f"{type(self).__name__}({', '.join(shown)}, dtype={self.dtype})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)


def _short(limit: float) -> str:
    return f"{limit:.6g}"


def _of_type(who: str, kind: Any) -> dtypes.dtype:
    """The type that ``kind`` is or, a class of Python's numbers, stands for."""
    if kind in dtypes.NUMBERS:
        return (dtypes.bool_, dtypes.int64, dtypes.float64, dtypes.complex128)[
            (bool, int, float, complex).index(kind)]
    if not isinstance(kind, dtypes.dtype):
        raise TypeError(f"{who}(): argument 'type' (position 1) must be torch.dtype, not "
                        f"{type(kind).__name__}")
    return kind


class finfo(_Limits):
    """The limits of a floating-point type; of a complex one those of its parts.

    >>> from functrans import torch
    >>> torch.finfo(torch.float32).eps == 2.0**-23
    True
    """

    _fields = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")

    def __init__(self, dtype: Any = None):
        kind = dtypes.get_default_dtype() if dtype is None else _of_type("finfo", dtype)
        if not (kind.is_floating_point or kind.is_complex):
            raise TypeError(
                f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle "
                f"'{kind}'"
            )
        part = _COMPLEX_PARTS.get(kind.array_dtype, kind.array_dtype)
        limits: Any = ml_dtypes.finfo(part)
        self.dtype = np.dtype(part).name
        self.bits = int(limits.bits)
        self.eps, self.max, self.min = float(limits.eps), float(limits.max), float(limits.min)
        self.tiny = self.smallest_normal = float(limits.smallest_normal)
        self.resolution = float(limits.resolution)


class iinfo(_Limits):
    """The limits of an integer type.

    >>> from functrans import torch
    >>> torch.iinfo(torch.int8).min
    -128
    """

    _fields = ("min", "max")

    def __init__(self, type: Any):
        kind = _of_type("iinfo", type)
        if kind is dtypes.bool_:
            raise TypeError("torch.bool is not supported by torch.iinfo")
        if kind.rank != dtypes.INT:
            raise TypeError(
                f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{kind}'"
            )
        limits = np.iinfo(kind.array_dtype)
        self.dtype = kind.name
        self.bits, self.min, self.max = int(limits.bits), int(limits.min), int(limits.max)


# ---- How a tensor prints: ``tensor([[1., 2.]], grad_fn=<AddBackward0>)``


class _Options:
    """How tensors print; ``set_printoptions`` sets it for the process."""

    precision, threshold, edgeitems, linewidth = 4, 1000.0, 3, 80
    sci_mode: bool | None = None
    _profiles: ClassVar[dict[str, tuple]] = {
        "default": (4, 1000.0, 3, 80), "short": (2, 1000.0, 2, 80), "full": (4, math.inf, 3, 80),
    }

    def set(self, precision: int | None, threshold: float | None, edgeitems: int | None,
            linewidth: int | None, profile: str | None, sci_mode: bool | None) -> None:
        """Set what is not None, after all of a profile."""
        if profile is not None:
            if profile not in self._profiles:
                raise ValueError(f"set_printoptions: there is no profile {profile!r}, only "
                                 f"{', '.join(self._profiles)}")
            self.precision, self.threshold, self.edgeitems, self.linewidth = self._profiles[profile]
        options = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems,
                   "linewidth": linewidth}
        for name, value in options.items():
            if value is not None:
                setattr(self, name, value)
        self.sci_mode = sci_mode


OPTIONS = _Options()


def show_tensor(t: Tensor, *, tensor_contents: Any = None) -> str:
    """The text of a tensor: its entries, then what is not as usual about it."""
    suffix = []
    dtype = t.dtype
    usual = (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool_)
    plain = dtype in usual or dtype.array_dtype == dtypes.of_python_number(complex)
    if not plain or (not t._array.size and dtype is not usual[0]):
        suffix.append(f"dtype={dtype}")
    if not t._array.size and t._array.ndim != 1:
        suffix.insert(0, f"size={tuple(t._array.shape)}")
    edge = edge_of(t)
    if t._node is not None:
        suffix.append(f"grad_fn=<{t._node.name()}>")
    elif edge is not None:
        suffix.append("requires_grad=True")
    name = type(t).__name__ if t._overriding else "tensor"
    body = _array(t._array, len(name) + 1)
    text = f"{name}({body}"
    column = len(text.rsplit("\n", 1)[-1])
    for part in suffix:
        fits = column + len(part) + 4 <= OPTIONS.linewidth  # as torch counts
        text += f", {part}" if fits else f",\n       {part}"
        column = column + len(part) + 2 if fits else 5 + len(part)
    return f"{text})"


def _array(array: np.ndarray, indent: int) -> str:
    if not array.size:
        return "[]"
    short = array.size > OPTIONS.threshold
    texts = np.asarray(_summary(array) if short else array)
    words = _words(texts.reshape(-1))
    return _nest(np.array(words, object).reshape(texts.shape), indent, array.shape if short
                   else None)


def _summary(array: np.ndarray) -> np.ndarray:
    """The entries that are shown of a large array: those near its edges."""
    for axis, n in enumerate(array.shape):
        if n > 2 * OPTIONS.edgeitems:
            near = [*range(OPTIONS.edgeitems), *range(n - OPTIONS.edgeitems, n)]
            array = np.take(array, near, axis)
    return array


def _words(flat: Any) -> list[str]:
    """The entries as texts of one width."""
    kind = flat.dtype.kind
    if kind == "b":
        words = [str(bool(v)) for v in flat]
    elif kind in "iu":
        words = [str(int(v)) for v in flat]
    elif kind == "c":
        real, imag = _floats(flat.real), _floats(np.abs(flat.imag))
        signs = ["-" if math.copysign(1, v) < 0 else "+" for v in flat.imag]
        return [f"{r}{s}{i.strip()}j" for r, s, i in zip(real, signs, imag, strict=True)]
    else:
        return _floats(flat.astype(np.float64))
    width = max(map(len, words))
    return [w.rjust(width) for w in words]


def _floats(flat: np.ndarray) -> list[str]:
    """Numbers as texts, as wide as the widest that is neither 0 nor infinite nor NaN."""
    values = flat.astype(np.float64)
    finite = np.abs(values[np.isfinite(values) & (values != 0)])
    low, high = (finite.min(), finite.max()) if finite.size else (1.0, 1.0)
    digits, wide = OPTIONS.precision, high > 1e8 or high / low > 1000.0
    scientific = OPTIONS.sci_mode
    if finite.size and (np.ceil(finite) == finite).all():
        spec = f".{digits}e" if (wide if scientific is None else scientific) else "whole"
    else:
        wide = wide or low < 1e-4
        spec = f".{digits}{'e' if (wide if scientific is None else scientific) else 'f'}"
    if not finite.size:
        spec = "whole"
    words = [_float(v, spec) for v in values.tolist()]
    counted = np.isfinite(values) & (values != 0)
    width = max([len(w) for w, c in zip(words, counted, strict=True) if c], default=0)
    return [w.rjust(width) for w in words]


def _float(v: float, spec: str) -> str:
    if not math.isfinite(v):
        return str(v)
    return f"{v:.0f}." if spec == "whole" else format(v, spec)


def _nest(words: np.ndarray, indent: int, full: tuple | None) -> str:
    if words.ndim == 0:
        return str(words[()]).strip()
    cut = full is not None and full[0] != words.shape[0]
    inner = None if full is None else full[1:]
    if words.ndim == 1:
        items = list(words)
        if cut:
            items.insert(OPTIONS.edgeitems, " ...")
        return _lines(items, indent)
    parts = [_nest(w, indent + 1, inner) for w in words]
    if cut:
        parts.insert(OPTIONS.edgeitems, "...")
    gap = "," + "\n" * (words.ndim - 1) + " " * (indent + 1)
    return f"[{gap.join(parts)}]"


def _lines(items: list[str], indent: int) -> str:
    """One dimension, broken into lines."""
    per_line = max(1, (OPTIONS.linewidth - indent) // (len(items[0]) + 2))
    rows = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(rows) + "]"
