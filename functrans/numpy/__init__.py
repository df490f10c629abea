"""NumPy's names on Arrays and traced values: ``import functrans.numpy as np`` where NumPy stood.

Plain ``numpy`` functions called on traced values arrive at the same functions; see ``protocols``.
"""

from __future__ import annotations

from types import ModuleType as _ModuleType
from typing import Any as _Any

import numpy as _np

from functrans._core.bind import Tracer as _Tracer
from functrans.numpy import arrange as _arrange
from functrans.numpy import contractions as _contractions
from functrans.numpy import elementary as _elementary
from functrans.numpy import indexing as _indexing
from functrans.numpy import joining as _joining
from functrans.numpy import linalg
from functrans.numpy import operators as _operators
from functrans.numpy import protocols as _protocols
from functrans.numpy import reductions as _reductions
from functrans.numpy import structure as _structure
from functrans.numpy import updates as _updates
from functrans.numpy.public import public as _public

assert _operators  # imported for what it installs


def _publish(module: _ModuleType, into: dict[str, _Any], theirs: _Any) -> list[str]:
    """Make every function of ``module`` callable here, under NumPy's name and as a method."""
    for name in module.__all__:
        ours = getattr(module, name)
        plain = isinstance(ours, type) or not callable(ours)
        into[name] = ours if plain else _public(ours)
        func = getattr(theirs, name, None)
        if callable(func) and func is not ours and not isinstance(func, _np.ufunc):
            _protocols.FUNCTIONS[func] = ours
    for name, ours in getattr(module, "METHODS", {}).items():
        setattr(_Tracer, name, ours)
    _protocols.METHODS.update(getattr(module, "UFUNC_METHODS", {}))
    _protocols.UFUNCS.update(getattr(module, "UFUNCS", {}))
    return list(module.__all__)


__all__: list[str] = ["linalg"]
for _module in (
    _elementary, _reductions, _structure, _joining, _arrange, _indexing, _updates, _contractions,
):
    __all__ += _publish(_module, globals(), _np)
_publish(linalg, {}, _np.linalg)
