"""``scipy.stats.multivariate_normal`` as a module, of plain and of traced values."""

from __future__ import annotations

from typing import Any

from functrans.scipy.stats import multivariate_normal as _ours

entropy = _ours.entropy
logpdf = _ours.logpdf
pdf = _ours.pdf


def __getattr__(name: str) -> Any:
    return getattr(_ours, name)
