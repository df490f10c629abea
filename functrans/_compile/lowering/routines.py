"""Where BLAS and LAPACK are: addresses of routines that native code calls.

NumPy's own library is taken where it can be reached, since NumPy runs the host steps between. A
second one brings threads of its own, which wait for a processor while those of the first still
spin. SciPy tells the addresses of its library to anyone who asks, so that is the other choice.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any, NamedTuple

# Products are computed in single precision too, all else in double, as NumPy does.
NAMES = (
    "sgemm", "sgemv", "dgemm", "dgemv", "cgemm", "cgemv", "zgemm", "zgemv",
    "dtrsm", "dtrsv", "dgetrf", "dgetrs", "dpotrf", "dsyevd",
)
# How a NumPy with integers of so many bits may name a routine that it is linked to.
PATTERNS = {64: ("scipy_{}_64_", "{}_64_"), 32: ("scipy_{}_", "{}_")}
# What native code calls a routine by, so that object code on disk knows names and no addresses.
PREFIX = "functrans_"


class Routines(NamedTuple):
    """``addresses`` by the names that native code uses; ``bits`` of the integers they write.

    The integers that they read are given as 64 bits: the lower half alone means the same.
    """

    addresses: dict[str, int]
    bits: int
    source: str


@functools.cache
def found() -> Routines | None:
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
            addresses = {n: _address(f) for n, f in names.items()}
            return Routines(addresses, bits, f"NumPy, {pattern.format('dgemm')}")
    return None


def _address(function: Any) -> int:
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


def pointer_of(capsule: Any, signature: bytes) -> int:
    """The address in a capsule of that name."""
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, signature)


__all__ = ["PREFIX", "Routines", "found", "of_numpy", "of_scipy", "pointer_of", "signature_of"]
