"""``scipy.stats.dirichlet`` as a module, of plain and of traced values."""

from __future__ import annotations

from typing import Any

from functrans.scipy.stats import dirichlet as _ours

logpdf = _ours.logpdf
pdf = _ours.pdf
rvs = _ours.rvs


def __getattr__(name: str) -> Any:
    return getattr(_ours, name)
