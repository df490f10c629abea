"""``numpy.lib``, for programs that import from it: its names are NumPy's own."""

from typing import Any

from numpy import lib as _theirs

from functrans.numpy.lib import stride_tricks as stride_tricks


def __getattr__(name: str) -> Any:
    return getattr(_theirs, name)
