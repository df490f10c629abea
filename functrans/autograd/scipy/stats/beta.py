"""``scipy.stats.beta`` as a module, of plain and of traced values."""

from __future__ import annotations

from typing import Any

from functrans.scipy.stats import beta as _ours

cdf = _ours.cdf
logcdf = _ours.logcdf
logpdf = _ours.logpdf
pdf = _ours.pdf


def __getattr__(name: str) -> Any:
    return getattr(_ours, name)
