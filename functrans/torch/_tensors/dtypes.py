"""Element types, devices and layouts under the shim's names."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from functrans.errors import ArgumentError

# ---- How the entries of a tensor are stored, and how the memory of a new ``grad`` is laid out
#
# The first ``grad`` is laid out as the tensor, if that is dense and does not overlap, else in row
# order. ``backward`` adds to an existing one in place, which keeps its layout, or replaces it by
# the sum with ``create_graph``.


class Constant:
    """What has a name in torch, and is the same one after copying and pickling."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class layout(Constant):
    """How the entries of a tensor are stored."""

    __slots__ = ()


strided, sparse_coo = layout("strided"), layout("sparse_coo")


def empty_like(array: np.ndarray) -> np.ndarray:
    """Memory laid out as ``array`` if that is dense and does not overlap, else in row order."""
    flags = array.flags
    if flags.c_contiguous:
        return np.empty(array.shape, array.dtype)
    expected = array.itemsize
    order = sorted(range(array.ndim), key=lambda i: (array.strides[i], array.shape[i]))
    for i in order:
        if array.shape[i] != 1:
            if array.strides[i] != expected:
                return np.empty(array.shape, array.dtype)
            expected *= array.shape[i]
    return np.empty_like(array, order="K")


# ---- Devices, of which there is one, and memory formats, which change nothing

# Kinds that programs name; one that is not among them is misspelt.
_KINDS = ("cpu", "cuda", "mps", "xpu", "meta", "hip", "xla", "vulkan", "mtia", "hpu", "ipu")
_NAMES = ("cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, "
          "vulkan, mps, meta, hpu, mtia, privateuseone")


class device:
    """The name of a place where tensors live: ``device("cpu")``, ``device("cuda", 1)``.

    A name of another device than the CPU is only a name. What is asked to put a tensor there
    raises.

    >>> device("cuda:1").index
    1
    """

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, name: Any, index: int | None = None):
        if isinstance(name, device):
            name = str(name)
        if isinstance(name, int):
            name, index = "cuda", name
        if not isinstance(name, str):
            raise TypeError(f"device: the name is a str, but got {type(name).__name__}")
        kind, _, number = name.partition(":")
        if kind not in _KINDS:
            raise RuntimeError(
                f"Expected one of {_NAMES} device type at start of device string: {name}"
            )
        if number and (index is not None or not number.isdigit()):
            raise RuntimeError(f"Invalid device string: '{name}'; one index is a number after ':'")
        object.__setattr__(self, "type", kind)
        object.__setattr__(self, "index", int(number) if number else index)

    def __enter__(self) -> device:
        if self.type != "cpu":
            raise RuntimeError(f"device: there is no {self.type} here, so that tensors cannot be "
                               "made there")
        return self

    def __exit__(self, *failure: Any) -> None:
        pass

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"device: {name} cannot be set; make another device")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __reduce__(self) -> tuple:
        return device, (str(self),)


CPU = device("cpu")


class memory_format(Constant):
    """An order of the axes in memory. It is accepted, and everything stays in row order."""

    __slots__ = ()


contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format(
    "preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")


# ---- Element types under the shim's names, their promotion, and ``Size``


class dtype:
    """An element type: ``float32`` and the like. Each is one object, compared by identity."""

    __slots__ = ("array_dtype", "is_complex", "is_floating_point", "name", "rank")

    def __init__(self, name: str, array_dtype: Any):
        self.name = name
        self.array_dtype = np.dtype(array_dtype)
        self.rank = _category(self.array_dtype)
        self.is_floating_point = self.rank == FLOAT
        self.is_complex = self.rank == COMPLEX

    @property
    def itemsize(self) -> int:
        return self.array_dtype.itemsize

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple:
        return _name, (self.name,)


NUMBERS = frozenset({bool, int, float, complex})  # Python's
# NumPy's scalars, which torch takes for Python's numbers: booleans for floats
_SCALARS = {np.bool_: float, np.integer: int, np.floating: float, np.complexfloating: complex}


def number(x: Any) -> Any:
    """``x``, a scalar of NumPy's as the number of Python's that torch takes it for."""
    if isinstance(x, np.generic):
        for kind, convert in _SCALARS.items():
            if isinstance(x, kind):
                return convert(x)
    return x


# A type promotes to the highest category among the operands before it widens within it.
BOOL, INT, FLOAT, COMPLEX = range(4)


def _category(d: np.dtype) -> int:
    return {"b": BOOL, "i": INT, "u": INT, "f": FLOAT, "V": FLOAT, "c": COMPLEX}[d.kind]


bool_ = dtype("bool", np.bool_)
uint8 = dtype("uint8", np.uint8)
int8 = dtype("int8", np.int8)
int16 = short = dtype("int16", np.int16)
int32 = dtype("int32", np.int32)
int64 = long = dtype("int64", np.int64)
float16 = half = dtype("float16", np.float16)
bfloat16 = dtype("bfloat16", ml_dtypes.bfloat16)
float32 = dtype("float32", np.float32)
float64 = double = dtype("float64", np.float64)
complex64 = cfloat = dtype("complex64", np.complex64)
complex128 = cdouble = dtype("complex128", np.complex128)

ALL = (
    bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64,
    complex128,
)


def _name(name: str) -> dtype:
    return next(d for d in ALL if d.name == name)


BY_ARRAY_DTYPE = {d.array_dtype: d for d in ALL}
BFLOAT16 = bfloat16.array_dtype


class _Default:
    """The type of ``tensor([1.0])``, for the process."""

    dtype = float32


_default = _Default()


def set_default_dtype(d: dtype) -> None:
    """Make ``d`` the type that Python floats become."""
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise ArgumentError(
            f"only floating-point types are supported as the default type, not {d}"
        )
    _default.dtype = d


def get_default_dtype() -> dtype:
    """The type that Python floats become."""
    return _default.dtype


def default_float() -> np.dtype:
    return _default.dtype.array_dtype


def of_python_number(kind: type) -> np.dtype:
    """The type of a tensor made of Python numbers of one type."""
    if kind is complex:
        return _complex_of(default_float())
    return default_float() if kind is float else np.dtype(kind)


def array_dtype(d: Any) -> np.dtype:
    """NumPy's dtype for ours, NumPy's own, or a Python type."""
    if isinstance(d, dtype):
        return d.array_dtype
    return np.dtype(d)


def dtype_of(a: Any) -> dtype:
    """Ours for an array; TypeError where there is none."""
    d = BY_ARRAY_DTYPE.get(a.dtype)
    if d is None:
        raise ArgumentError(
            f"tensors cannot hold {a.dtype}; supported are {', '.join(d.name for d in ALL)}. "
            "Convert the array first, with .astype."
        )
    return d


def is_differentiable(d: np.dtype) -> bool:
    """Whether a tensor of this type can require gradients."""
    return d.kind in "fcV"


def _complex_of(d: np.dtype) -> np.dtype:
    return np.dtype(np.complex128 if d.itemsize == 8 else np.complex64)


def promote_types(d1: dtype, d2: dtype) -> dtype:
    """The type that holds both: the higher category wins, and widens only within itself."""
    return BY_ARRAY_DTYPE[promote(d1.array_dtype, d2.array_dtype)]


def promote(d1: np.dtype, d2: np.dtype) -> np.dtype:
    c1, c2 = _category(d1), _category(d2)
    if c1 == c2:
        if d1 != d2 and BFLOAT16 in (d1, d2):
            return np.promote_types(*[np.dtype(np.float32) if d == BFLOAT16 else d
                                      for d in (d1, d2)])
        return np.promote_types(d1, d2)
    high, low = (d1, d2) if c1 > c2 else (d2, d1)
    if high.kind == "c" and low.kind in "fV":
        return np.promote_types(high, _complex_of(low))
    return high


def result_dtype(operands: Any) -> np.dtype:
    """The type of an op on arrays and Python numbers.

    Arrays with axes come first, then those without, then numbers; one that comes later counts only
    where its category is higher.
    """
    widest: list[Any] = [None, None, None]
    for x in operands:
        if type(x) in NUMBERS:
            place, d = 2, of_python_number(type(x))
        else:
            place, d = (0 if x.shape else 1), x.dtype
        widest[place] = d if widest[place] is None else promote(widest[place], d)
    result = None
    for d in widest:
        if d is None:
            continue
        if result is None:
            result = d
        elif _category(d) > _category(result):
            result = _lift(result, d)
    assert result is not None, operands
    return result


def _lift(result: np.dtype, d: np.dtype) -> np.dtype:
    """``result`` in the higher category of ``d``."""
    if _category(result) == FLOAT:  # and d is complex
        return _complex_of(result)
    return d


class Size(tuple):
    """The lengths of a tensor's axes.

    >>> Size((2, 3)).numel()
    6
    """

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements of a tensor of this size."""
        n = 1
        for k in self:
            n *= k
        return n

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def __getitem__(self, key: Any) -> Any:
        part = tuple.__getitem__(self, key)
        return Size(part) if isinstance(key, slice) else part

    def __add__(self, other: Any) -> Size:
        return Size(tuple.__add__(self, tuple(other)))
