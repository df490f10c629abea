"""SciPy's names on plain arrays and traced values: ``from functrans.scipy import special``.

SciPy's ufuncs, such as ``scipy.special.gammaln``, take traced values as they are. What else of
SciPy's has a counterpart is here, under the same name and with the same arguments; of plain arrays
it is SciPy's own function that runs. The page docs/scipy.md lists the names.

A subpackage ``functrans.scipy.X`` is a module or folder that

1. declares a function ``f`` for each ``scipy.X.f``, with ``@counterpart(scipy.X.f)`` from
   ``functrans.scipy.public``: it is called where an argument is traced, SciPy's where none is;
2. ends with ``__all__, __getattr__, __dir__ = namespace(scipy.X, globals(), ...)``, of the modules
   that declare such functions, so that all other names are SciPy's own;
3. has an entry in ``functrans/_core/scipy_names.py`` that says which names those are.

It is imported when it is first asked for, and imports SciPy's part then.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from functrans._core.scipy_names import NAMES as _NAMES

__all__ = sorted({name.partition(".")[0] for name in _NAMES})


def __getattr__(name: str) -> _Any:
    if name in __all__:
        return _importlib.import_module(f"functrans.scipy.{name}")
    raise AttributeError(
        f"module 'functrans.scipy' has no attribute {name!r}; it has {', '.join(__all__)}"
    )


def __dir__() -> list[str]:
    return __all__
