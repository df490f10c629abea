"""Where BLAS and LAPACK are, and substitution with one triangle by them."""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# ---- Where BLAS and LAPACK are: addresses of routines that native code calls
#
# NumPy's own library is preferred, since NumPy runs the host steps between: a second library would
# bring threads of its own, which wait for a processor while those of the first still spin. SciPy
# publishes the addresses of its library, so it is the second choice.

# Products are computed in single precision too, all else in double, as NumPy does.
NAMES = (
    "sgemm", "sgemv", "dgemm", "dgemv", "cgemm", "cgemv", "zgemm", "zgemv",
    "dtrsm", "dtrsv", "dgetrf", "dgetrs", "dpotrf", "dtrtri", "dsyevd",
)
# How a NumPy with integers of so many bits may name a routine that it is linked to.
PATTERNS = {64: ("scipy_{}_64_", "{}_64_"), 32: ("scipy_{}_", "{}_")}
# OpenBLAS's names for the function that tells its code, and code for vectors of 256 bits.
CORES = ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename",
         "openblas_get_corename64_", "openblas_get_corename")
NARROW = frozenset({"Haswell", "Zen", "Excavator", "Sandybridge"})
# Prefix of the names that native code uses, so that object code on disk holds no addresses.
PREFIX = "functrans_"
# Products inside tiles, which threads of ours share: they need not be BLAS's where those are slower
# or would start threads of their own.
TILED = {f"{PREFIX}tile_{name}": PREFIX + name for name in ("sgemm", "dgemm", "sgemv", "dgemv")}


class Routines(NamedTuple):
    """``addresses`` by the names that native code uses; ``bits`` of the integers they write.

    ``core``: which processor's products they are, where OpenBLAS tells.

    Integers are passed to them as 64 bits, whose lower half has the same value.
    """

    addresses: dict[str, int]
    bits: int
    source: str
    core: str = ""


@functools.cache
def available() -> Routines | None:
    """The routines that this process can call, None where it has none of either library."""
    return of_numpy() or of_scipy()


def of_numpy() -> Routines | None:
    """Those that NumPy's own linear algebra is linked to."""
    try:
        from numpy.linalg import _umath_linalg as module  # lazy: private, and may not be there

        library = ctypes.CDLL(module.__file__)
    except (ImportError, OSError):
        return None
    bits = 64 if getattr(module, "_ilp64", False) else 32
    for pattern in PATTERNS[bits]:
        names = {f"{PREFIX}{n}": getattr(library, pattern.format(n), None) for n in NAMES}
        if None not in names.values():
            addresses = {n: address_of(f) for n, f in names.items()}
            return Routines(addresses, bits, f"NumPy, {pattern.format('dgemm')}", _core(library))
    return None


def _core(library: Any) -> str:
    for name in CORES:
        function = getattr(library, name, None)
        if function is not None:
            function.restype = ctypes.c_char_p
            return (function() or b"").decode()
    return ""


def address_of(function: Any) -> int:
    """Where a function of ctypes is."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def of_scipy() -> Routines | None:
    """Those that SciPy offers to Cython."""
    try:
        modules = [importlib.import_module(f"scipy.linalg.cython_{n}") for n in ("blas", "lapack")]
    except ImportError:
        return None
    offered = {name: capsule for m in modules for name, capsule in m.__pyx_capi__.items()}
    if not all(n in offered and b"int *" in signature_of(offered[n]) for n in NAMES):
        return None
    addresses = {f"{PREFIX}{n}": pointer_of(offered[n], signature_of(offered[n])) for n in NAMES}
    return Routines(addresses, 32, "SciPy")


def signature_of(capsule: Any) -> bytes:
    """The name of a capsule, which is the type of the C function in it."""
    name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)
    return name(("PyCapsule_GetName", ctypes.pythonapi))(capsule)


def pointer_of(capsule: Any, signature: bytes | None) -> int:
    """What a capsule of CPython's holds."""
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, signature)


# ---- Substitution with one triangle, by the BLAS that NumPy is linked to


def substitute(a: np.ndarray, b: np.ndarray, lower: bool, unit: bool) -> np.ndarray | None:
    """The solution of ``a @ x = b`` with the triangle of ``a``; None where BLAS is not at hand.

    Both are matrices. LinAlgError where the diagonal has a zero.
    """
    call = _trsm()
    if call is None or a.ndim != 2 or b.ndim != 2 or not (a.dtype.char == b.dtype.char == "d"):
        return None
    if not unit and not a.diagonal().all():
        raise np.linalg.LinAlgError("Singular matrix")
    by_columns = a.flags.f_contiguous
    a = a if by_columns else np.require(a, None, ["C", "A"])
    x = np.array(b, order="C")
    if x.size:
        # BLAS goes by columns: to it x is its transpose, and so is a that goes by rows
        n, width = (ctypes.c_int64(k) for k in x.shape)
        upper = lower != by_columns
        call(b"R", b"U" if upper else b"L", b"T" if by_columns else b"N", b"U" if unit else b"N",
             width, n, ctypes.c_double(1.0), _address(a), n, _address(x), width)
    return x


def _address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


@functools.cache
def _trsm() -> Callable | None:
    found = of_numpy()
    if found is None:
        return None
    integer, number = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_double)
    array = ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_char_p] * 4, integer, integer, number, array, integer,
                            array, integer)
    return kind(found.addresses[f"{PREFIX}dtrsm"])
