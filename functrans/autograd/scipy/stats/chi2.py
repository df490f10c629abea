"""``scipy.stats.chi2`` as a module, of plain and of traced values."""

from __future__ import annotations

from typing import Any

from functrans.scipy.stats import chi2 as _ours

cdf = _ours.cdf
logpdf = _ours.logpdf
pdf = _ours.pdf


def __getattr__(name: str) -> Any:
    return getattr(_ours, name)
