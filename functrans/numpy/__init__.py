"""NumPy's names on Arrays and traced values: ``import functrans.numpy as np`` where NumPy stood.

Plain ``numpy`` functions called on traced values arrive at the same functions; see ``protocols``.
Names of NumPy's that compute nothing on them (``testing``, ``typing``) are NumPy's own.
"""

from __future__ import annotations

import importlib as _importlib

import numpy as _np

from functrans.numpy import applying as _applying
from functrans.numpy import arrange as _arrange
from functrans.numpy import contractions as _contractions
from functrans.numpy import elementary as _elementary
from functrans.numpy import emath, fft, linalg
from functrans.numpy import functionalized as _functionalized
from functrans.numpy import indexing as _indexing
from functrans.numpy import joining as _joining
from functrans.numpy import operators as _operators
from functrans.numpy import order as _order
from functrans.numpy import polynomials as _polynomials
from functrans.numpy import protocols as _protocols
from functrans.numpy import public as _public
from functrans.numpy import reductions as _reductions
from functrans.numpy import signals as _signals
from functrans.numpy import standard as _standard
from functrans.numpy import statistics as _statistics
from functrans.numpy import structure as _structure
from functrans.numpy import ufunc_methods as _ufunc_methods
from functrans.numpy import updates as _updates
from functrans.numpy import writing_operators as _writing_operators
from functrans.numpy.public import attach as _attach
from functrans.numpy.public import publish as _publish
from functrans.numpy.standard import __array_api_version__, __array_namespace_info__

assert _ufunc_methods  # imported for what it registers

__version__ = _np.__version__
__all__ = [
    "__array_api_version__", "__array_namespace_info__", "__version__", "emath", "fft", "linalg",
]
for _module in (
    _operators, _protocols, _indexing, _structure, _updates, _functionalized, _writing_operators,
):
    _attach(_module)
for _module in (
    _elementary, _reductions, _ufunc_methods, _structure, _joining, _arrange, _indexing, _operators,
    _updates, _applying, _order, _statistics,
    _contractions, _polynomials, _signals, _standard, _public,
):
    __all__ += _publish(_module, globals(), _np)


def __getattr__(name: str):
    if name in ("lib", "polynomial", "random"):  # lazy: numpy's are slow to import
        return _importlib.import_module(f"functrans.numpy.{name}")
    if name.startswith("_") or name not in _np.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_np, name)
