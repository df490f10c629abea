"""``scipy.stats.poisson`` as a module, of plain and of traced values."""

from __future__ import annotations

from typing import Any

from functrans.scipy.stats import poisson as _ours

cdf = _ours.cdf
logpmf = _ours.logpmf
pmf = _ours.pmf


def __getattr__(name: str) -> Any:
    return getattr(_ours, name)
