"""``autograd.scipy.misc``: ``logsumexp``, where it stood in older releases of SciPy."""

from __future__ import annotations

from functrans.autograd._names import missing
from functrans.scipy.special import logsumexp

__all__ = ["logsumexp"]
__getattr__ = missing(__name__)
