"""``autograd.scipy.stats``: a module for each distribution, of plain and of traced values."""

from __future__ import annotations

from typing import Any

from functrans.autograd.scipy.stats import (
    beta,
    chi2,
    dirichlet,
    gamma,
    multivariate_normal,
    norm,
    poisson,
    t,
)
from functrans.scipy import stats as _ours


def __getattr__(name: str) -> Any:
    return getattr(_ours, name)  # distributions that autograd has not


__all__ = [
    "beta", "chi2", "dirichlet", "gamma", "multivariate_normal", "norm", "poisson", "t",
]
