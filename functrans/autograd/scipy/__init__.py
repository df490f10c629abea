"""``autograd.scipy``: SciPy's names, of plain and of traced values."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from functrans.autograd._names import missing as _missing

_MODULES = ("integrate", "linalg", "misc", "signal", "special", "stats")


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"functrans.autograd.scipy.{name}")
    return _missing(__name__)(name)


__all__ = list(_MODULES)
