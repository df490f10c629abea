"""``scipy.stats.norm`` as a module, of plain and of traced values."""

from __future__ import annotations

from typing import Any

from functrans.scipy.stats import norm as _ours

cdf = _ours.cdf
logcdf = _ours.logcdf
logpdf = _ours.logpdf
logsf = _ours.logsf
pdf = _ours.pdf
sf = _ours.sf


def __getattr__(name: str) -> Any:
    return getattr(_ours, name)
